//! Several daemons as one cache: which node is asked, what moves, and what a peer costs that is dead, slow or lying, which is never a read.

mod cluster;
mod rig;

use cluster::{Cluster, Node, proxy, run_as_told, secret, settled, spawned, until};
use rig::body;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_files::catalogue::{BLOCK_BYTES, Freshness};
use terrace_files::client::Client;
use terrace_files::peers::Members;
use terrace_files::planted;

const FILES: u64 = 300;

fn path(file: u64) -> String {
    format!("table/part-{file}")
}

fn content(file: u64) -> Vec<u8> {
    body(file, 1 + file as usize * 97 % 9000)
}

fn fill(cluster: &Cluster, files: std::ops::Range<u64>) {
    files.for_each(|file| cluster.put(&path(file), &content(file)));
}

fn read_right(client: &Client, file: u64) {
    let view = client.read(&path(file), 0, u64::MAX, "").unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(view.to_vec() == content(file), "file {file} is not what was written");
}

/// Not a test: a daemon for the tests that kill one.
#[test]
#[ignore]
fn a_node_of_another_process() {
    if let Ok(told) = std::env::var("TERRACE_TEST_NODE") {
        run_as_told(&told);
    }
}

#[test]
fn a_file_takes_one_request_to_the_store_for_all_nodes() {
    let cluster = Cluster::of(3);
    fill(&cluster, 0..FILES);
    let large = body(7, (BLOCK_BYTES + 5000) as usize);
    cluster.put("large", &large);
    let nodes: Vec<Node> =
        (0..3).map(|at| cluster.start(at, |config| config.freshness = Freshness::Immutable)).collect();
    settled(&nodes.iter().collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for (at, node) in nodes.iter().enumerate() {
            scope.spawn(move || {
                let client = node.client();
                (0..FILES).for_each(|file| read_right(&client, (file + at as u64 * 100) % FILES));
            });
        }
    });
    assert_eq!(cluster.requests(), FILES, "each file was asked for once");
    let asked: Vec<u64> = nodes.iter().map(|node| node.figure("peer_got")).collect();
    assert_eq!(asked.iter().sum::<u64>(), 2 * FILES, "and by peers for the two others: {asked:?}");
    assert!(nodes.iter().all(|node| node.figure("failed") == 0));
    // A file of two blocks: its start, the rest of the first block, and the second one.
    for node in &nodes {
        let client = node.client();
        assert!(client.read("large", 0, u64::MAX, "").unwrap().to_vec() == large);
    }
    assert_eq!(cluster.requests() - FILES, 3);
    for node in &nodes {
        assert_eq!(node.figure("peer_corrupt") + node.figure("peer_stale") + node.figure("peer_faults"), 0);
    }
}

#[test]
fn nodes_that_read_each_others_files_at_once_do_not_wait_in_a_circle() {
    let cluster = Cluster::of(2);
    fill(&cluster, 0..FILES);
    cluster.store.delay_ms.store(5, Ordering::SeqCst);
    let nodes: Vec<Node> = (0..2)
        .map(|at| {
            cluster.start(at, |config| {
                config.requests = 4;
                config.freshness = Freshness::Immutable;
            })
        })
        .collect();
    settled(&nodes.iter().collect::<Vec<_>>());
    let paths: Vec<String> = (0..FILES).map(path).collect();
    std::thread::scope(|scope| {
        for node in &nodes {
            let paths = &paths;
            scope.spawn(move || {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                let read = |at: usize, view: Result<terrace_files::client::View<'_>, _>| {
                    assert!(view.unwrap().to_vec() == content(at as u64));
                };
                node.client().read_many(&paths, read).unwrap();
            });
        }
    });
    let late: u64 = nodes.iter().map(|node| node.figure("peer_late")).sum();
    assert!(late <= FILES / 10, "{late} reads waited for a peer in vain");
    assert!(cluster.requests() <= FILES + 2 * late);
}

#[test]
fn a_node_that_is_killed_costs_no_read() {
    let cluster = Cluster::of(3);
    fill(&cluster, 0..FILES);
    let nodes: Vec<Node> = (0..2).map(|at| cluster.start(at, |_| {})).collect();
    let members: Vec<String> = cluster.addresses.iter().map(|address| address.to_string()).collect();
    let mut child = spawned(&cluster, 2, &members.join(","));
    for node in &nodes {
        until("all three are live", || node.figure("peer_live") == 3);
    }
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..4u64 {
            let (node, is_over, reads) = (&nodes[reader as usize % 2], &is_over, &reads);
            scope.spawn(move || {
                let client = node.client();
                let mut round = reader;
                while !is_over.load(Ordering::SeqCst) {
                    round += 1;
                    let file = round * 31 % FILES;
                    read_right(&client, file);
                    // What is in memory asks no other node.
                    let _ = client.evict(&path(file)).unwrap();
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        until("they read", || reads.load(Ordering::SeqCst) > 200);
        child.kill().unwrap();
        child.wait().unwrap();
        for node in &nodes {
            until("it is found dead", || node.figure("peer_live") == 2);
        }
        let before = reads.load(Ordering::SeqCst);
        until("they read without it", || reads.load(Ordering::SeqCst) > before + 200);
        is_over.store(true, Ordering::SeqCst);
    });
    for node in &nodes {
        assert_eq!(node.figure("failed"), 0);
        assert!(node.figure("peer_got") > 0);
    }
}

#[test]
fn a_peer_that_is_slow_is_not_waited_for_and_one_that_lies_is_not_believed() {
    let cluster = Cluster::of(2);
    fill(&cluster, 0..FILES);
    let nodes: Vec<Node> = (0..2)
        .map(|at| {
            cluster.start(at, |config| {
                config.peers.as_mut().unwrap().patience = 100_000_000;
            })
        })
        .collect();
    settled(&nodes.iter().collect::<Vec<_>>());
    let client = nodes[0].client();
    let faults = &cluster.faults[1];
    let mut next = 0;
    let mut read_some = |until_counted: &str| {
        let before = nodes[0].figure(until_counted);
        let end = Instant::now() + Duration::from_secs(60);
        while nodes[0].figure(until_counted) == before {
            assert!(Instant::now() < end, "{until_counted} was never counted");
            read_right(&client, next % FILES);
            client.evict(&path(next % FILES)).unwrap();
            next += 1;
        }
    };
    read_some("peer_got");
    faults.delay_ms.store(400, Ordering::SeqCst);
    read_some("peer_late");
    faults.delay_ms.store(0, Ordering::SeqCst);
    read_some("peer_got");
    faults.corrupts.store(3, Ordering::SeqCst);
    read_some("peer_corrupt");
    faults.corrupts.store(0, Ordering::SeqCst);
    until("it is connected again", || nodes[0].client().status().unwrap().contains("\"connected\": true"));
    read_some("peer_got");
    faults.cut(true);
    until("it is found silent", || nodes[0].figure("peer_live") == 1);
    (0..20).for_each(|file| read_right(&client, file));
    faults.cut(false);
    until("it is back", || nodes[0].figure("peer_live") == 2);
    read_some("peer_got");
    assert_eq!(nodes[0].figure("failed"), 0);
}

#[test]
fn a_nemesis_between_peers_costs_no_read_and_no_byte() {
    let cluster = Cluster::of(3);
    fill(&cluster, 0..FILES);
    let nodes: Vec<Node> = (0..3)
        .map(|at| {
            cluster.start(at, |config| {
                config.flash = cluster.flash(at);
                config.peers.as_mut().unwrap().patience = 50_000_000;
            })
        })
        .collect();
    let is_over = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    std::thread::scope(|scope| {
        for (at, node) in nodes.iter().enumerate() {
            let (is_over, reads) = (&is_over, &reads);
            scope.spawn(move || {
                let client = node.client();
                let mut round = at as u64;
                while !is_over.load(Ordering::SeqCst) {
                    round += 1;
                    let file = round * 37 % FILES;
                    read_right(&client, file);
                    client.evict(&path(file)).unwrap();
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        // Each step waits until some reads were made under it.
        for step in 0..24 {
            let faults = &cluster.faults[((step + seed) % 3) as usize];
            match (step / 3 + seed) % 4 {
                0 => faults.delay_ms.store(80, Ordering::SeqCst),
                1 => faults.corrupts.store(5, Ordering::SeqCst),
                2 => faults.cuts_after.store(50_000, Ordering::SeqCst),
                _ => faults.cut(true),
            }
            let before = reads.load(Ordering::SeqCst);
            until("reads are made under the fault", || reads.load(Ordering::SeqCst) > before + 40);
            faults.cut(false);
            for fault in [&faults.delay_ms, &faults.corrupts, &faults.cuts_after] {
                fault.store(0, Ordering::SeqCst);
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let sum = |name: &str| nodes.iter().map(|node| node.figure(name)).sum::<u64>();
    assert_eq!(sum("failed"), 0, "SEED={seed}");
    for counted in ["peer_got", "peer_broken"] {
        assert!(sum(counted) > 0, "{counted}: the nemesis did nothing, SEED={seed}");
    }
}

/// A node learns a version from the store while its peer is away; the peer knows an older one.
fn goes_back() -> bool {
    let cluster = Cluster::of(2);
    let nodes: Vec<Node> = (0..2)
        .map(|at| cluster.start(at, |config| config.freshness = Freshness::Ttl(600_000_000_000)))
        .collect();
    settled(&nodes.iter().collect::<Vec<_>>());
    let (one, two) = (nodes[0].client(), nodes[1].client());
    // One that the second node owns: the first asks it.
    let file = (0..)
        .find(|file| {
            cluster.put(&path(*file), b"old");
            let before = nodes[0].figure("peer_got");
            assert!(one.read(&path(*file), 0, u64::MAX, "").unwrap().to_vec() == b"old");
            nodes[0].figure("peer_got") > before
        })
        .unwrap();
    assert!(two.read(&path(file), 0, u64::MAX, "").unwrap().to_vec() == b"old");
    cluster.put(&path(file), b"new, and longer");
    cluster.faults[1].cut(true);
    until("the owner is away", || nodes[0].figure("peer_live") == 1);
    one.evict(&path(file)).unwrap();
    assert!(one.read(&path(file), 0, u64::MAX, "").unwrap().to_vec() == b"new, and longer");
    cluster.faults[1].cut(false);
    settled(&nodes.iter().collect::<Vec<_>>());
    one.evict(&path(file)).unwrap();
    let again = one.read(&path(file), 0, u64::MAX, "").unwrap().to_vec();
    again == b"old"
}

#[test]
fn a_node_never_goes_back_to_an_older_version_that_its_peer_knows() {
    assert!(!goes_back());
}

#[test]
#[ignore]
fn planted_a_version_of_any_age_is_found() {
    planted::PEER_VERSION_OF_ANY_AGE.set(true);
    assert!(goes_back());
    planted::PEER_VERSION_OF_ANY_AGE.set(false);
}

#[test]
fn a_node_reads_what_it_has_written_and_so_does_the_owner() {
    let cluster = Cluster::of(2);
    let nodes: Vec<Node> = (0..2)
        .map(|at| cluster.start(at, |config| config.freshness = Freshness::Ttl(600_000_000_000)))
        .collect();
    settled(&nodes.iter().collect::<Vec<_>>());
    let clients: Vec<Client> = nodes.iter().map(Node::client).collect();
    for file in 0..60 {
        cluster.put(&path(file), b"first");
        for client in &clients {
            assert!(client.read(&path(file), 0, u64::MAX, "").unwrap().to_vec() == b"first");
        }
        let (writer, owner_or_not) = (&clients[file as usize % 2], &clients[1 - file as usize % 2]);
        writer.write(&path(file), b"second, from here").unwrap();
        let read = writer.read(&path(file), 0, u64::MAX, "").unwrap().to_vec();
        assert!(read == b"second, from here", "file {file}: {}", String::from_utf8_lossy(&read));
        // The other one by its freshness, or as it was told: never anything else.
        let other = owner_or_not.read(&path(file), 0, u64::MAX, "").unwrap().to_vec();
        assert!(other == b"second, from here" || other == b"first");
    }
}

#[test]
fn with_always_every_read_is_of_the_current_version() {
    let cluster = Cluster::of(2);
    let nodes: Vec<Node> =
        (0..2).map(|at| cluster.start(at, |config| config.freshness = Freshness::Always)).collect();
    settled(&nodes.iter().collect::<Vec<_>>());
    let clients: Vec<Client> = nodes.iter().map(Node::client).collect();
    for round in 0..40u64 {
        for file in 0..4 {
            let bytes = body(round * 10 + file, 1000 + round as usize);
            cluster.put(&path(file), &bytes);
            for client in &clients {
                assert!(
                    client.read(&path(file), 0, u64::MAX, "").unwrap().to_vec() == bytes,
                    "round {round}"
                );
            }
        }
    }
    assert!(nodes.iter().map(|node| node.figure("peer_got")).sum::<u64>() > 0);
}

#[test]
fn a_node_with_another_secret_gets_nothing_and_loses_nothing() {
    let cluster = Cluster::of(2);
    fill(&cluster, 0..20);
    let one = cluster.start(0, |_| {});
    let other = cluster.start(1, |config| {
        config.peers.as_mut().unwrap().secret = secret("the secret of nobody else");
    });
    for node in [&one, &other] {
        until("it is refused", || node.figure("peer_refused") > 0 && node.figure("peer_live") == 1);
        (0..20).for_each(|file| read_right(&node.client(), file));
        assert_eq!((node.figure("peer_got"), node.figure("peer_served")), (0, 0));
        assert!(node.client().status().unwrap().contains("secret"), "the reason is told");
    }
}

/// Files that one node has, some long: the others are to get them from it.
fn fill_one(cluster: &Cluster, node: &Node, files: u64) {
    fill(cluster, 0..files);
    cluster.put("large", &body(5, 3 * BLOCK_BYTES as usize + 77));
    (0..8).for_each(|file| cluster.put(&format!("middle-{file}"), &body(file, 200_000)));
    let client = node.client();
    (0..files).for_each(|file| read_right(&client, file));
    read_long(&client);
}

fn read_long(client: &Client) {
    // One answer has at most a part of the arena.
    let large = body(5, 3 * BLOCK_BYTES as usize + 77);
    for (block, part) in large.chunks(BLOCK_BYTES as usize).enumerate() {
        let view = client.read("large", block as u64 * BLOCK_BYTES, BLOCK_BYTES, "").unwrap();
        assert!(view.to_vec() == part, "block {block}");
    }
    for file in 0..8 {
        let view = client.read(&format!("middle-{file}"), 0, u64::MAX, "").unwrap();
        assert!(view.to_vec() == body(file, 200_000));
    }
}

/// `is_disturbed`: until three fetches have failed, connections to the old owner are cut after 3 MiB, and some bytes are changed.
fn moves(has_flash: bool, is_disturbed: bool) -> (Cluster, Node, Node) {
    const MANY: u64 = 2000;
    let cluster = Cluster::of(2);
    let config = |at: usize| {
        let flash = cluster.flash(at).filter(|_| has_flash);
        move |config: &mut terrace_files::config::Config| {
            config.flash = flash;
            config.freshness = Freshness::Immutable;
        }
    };
    let old = cluster.start(0, config(0));
    until("it is alone", || old.figure("peer_live") == 1);
    fill_one(&cluster, &old, MANY);
    if has_flash {
        until("all is packed", || old.figure("packed_files") == MANY);
    }
    let faults = &cluster.faults[0];
    if is_disturbed {
        faults.cuts_after.store(3 << 20, Ordering::SeqCst);
        faults.corrupts.store(70, Ordering::SeqCst);
    }
    let new = cluster.start(1, config(1));
    if is_disturbed {
        until("fetches fail", || new.figure("peer_take_failures") >= 3);
        faults.cuts_after.store(0, Ordering::SeqCst);
        faults.corrupts.store(0, Ordering::SeqCst);
    }
    until("the new node has all", || {
        new.figure("peer_partitions_pending") == 0 && new.figure("peer_live") == 2
    });
    settled(&[&old, &new]);
    // What is the new node's comes from no store and from no peer.
    let (requests, asked) = (cluster.requests(), new.figure("peer_got"));
    let client = new.client();
    (0..MANY).for_each(|file| read_right(&client, file));
    let share = MANY - (new.figure("peer_got") - asked);
    read_long(&client);
    assert_eq!(cluster.requests(), requests, "nothing is asked of the store");
    assert!((MANY / 4..MANY * 3 / 4).contains(&share), "{share} of {MANY} are here");
    assert!(new.figure("peer_taken_files") >= share);
    if has_flash {
        until("the old owner drops them", || old.figure("packed_files") == MANY - share);
    }
    assert!(old.figure("peer_moved_files") >= share);
    (cluster, old, new)
}

#[test]
fn a_new_node_has_what_it_owns_from_its_former_owner_which_drops_it() {
    let (_cluster, old, new) = moves(true, false);
    assert_eq!(new.figure("peer_take_failures"), 0);
    let share = new.figure("packed_files");
    assert!(share > 400 && old.figure("packed_files") > 400);
    // The old owner reads them from the new one.
    let before = old.figure("peer_got");
    let client = old.client();
    (0..2000).for_each(|file| read_right(&client, file));
    assert!(old.figure("peer_got") - before >= share);
}

#[test]
fn nodes_without_flash_move_what_is_in_memory() {
    let _ = moves(false, false);
}

#[test]
fn a_transfer_that_is_cut_and_corrupted_goes_on_until_all_is_there() {
    let (_cluster, old, _new) = moves(true, true);
    assert!(old.figure("peer_moved_files") > 0);
}

#[test]
fn what_is_given_is_bounded_by_the_rate() {
    let cluster = Cluster::of(2);
    let config = |at: usize| {
        let flash = cluster.flash(at);
        move |config: &mut terrace_files::config::Config| {
            config.flash = flash;
            config.peers.as_mut().unwrap().rate = 2 << 20;
        }
    };
    let old = cluster.start(0, config(0));
    until("it is alone", || old.figure("peer_live") == 1);
    (0..40).for_each(|file| cluster.put(&path(file), &body(file, 400_000)));
    let client = old.client();
    (0..40).for_each(|file| assert!(client.read(&path(file), 0, u64::MAX, "").is_ok()));
    let began = Instant::now();
    let new = cluster.start(1, config(1));
    until("all has moved", || new.figure("peer_partitions_pending") == 0);
    let (bytes, took) = (old.figure("peer_given_bytes"), began.elapsed());
    assert!(bytes > 4 << 20, "{bytes} bytes are too few to tell");
    // The last block is sent when its turn has come, and its own time is after it.
    let least = (bytes - bytes.min(5 << 20)) as f64 / f64::from(2 << 20);
    assert!(took.as_secs_f64() >= least, "{bytes} bytes took {took:?}");
}

/// An etcd of its own on free ports.
fn etcd(cluster: &Cluster) -> (std::process::Child, String) {
    let (client, peer) = (cluster::free_address(), cluster::free_address());
    let url = format!("http://{client}");
    let child = std::process::Command::new("etcd")
        .args(["--data-dir", cluster.scratch.path().join("etcd").to_str().unwrap()])
        .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &format!("http://{peer}")])
        .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
        .args(["--initial-cluster", &format!("default=http://{peer}")])
        .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("etcd is needed: Debian's package etcd-server has it");
    until("etcd listens", || std::net::TcpStream::connect(client).is_ok());
    (child, url)
}

fn members(node: &Node) -> usize {
    node.client().status().unwrap().matches("\"address\": ").count()
}

#[test]
fn members_come_and_go_by_etcd_and_stay_while_it_is_away() {
    let cluster = Cluster::of(3);
    fill(&cluster, 0..FILES);
    let (mut server, url) = etcd(&cluster);
    // The daemons reach it by a proxy, which takes it away.
    let (gate, faults) = proxy(url.strip_prefix("http://").unwrap().parse().unwrap());
    let url = format!("http://{gate}");
    let of_etcd = |config: &mut terrace_files::config::Config| {
        config.peers.as_mut().unwrap().members =
            Members::Etcd { urls: vec![url.clone()], prefix: "/terrace/test".into() };
    };
    let one = cluster.start(0, of_etcd);
    until("it has registered", || one.figure("peer_live") == 1 && members(&one) == 1);
    let two = cluster.start(1, of_etcd);
    let mut child = spawned(&cluster, 2, &format!("etcd:{url}"));
    for node in [&one, &two] {
        until("it sees all three", || members(node) == 3 && node.figure("peer_live") == 3);
    }
    (0..FILES).for_each(|file| read_right(&one.client(), file));
    assert!(one.figure("peer_got") > 0);
    // Its lease ends, and with it its membership.
    child.kill().unwrap();
    child.wait().unwrap();
    until("the dead node is no member", || members(&one) == 2 && members(&two) == 2);
    faults.cut(true);
    until("etcd is missed", || one.client().status().unwrap().contains("\"peer_etcd_problem\": \""));
    assert_eq!((members(&one), one.figure("peer_live")), (2, 2), "who was there stays");
    faults.cut(false);
    until("etcd is back", || {
        one.client().status().unwrap().contains("\"peer_etcd_problem\": null") && members(&one) == 2
    });
    // A node that stops is gone at once: the lease is given back, and the watch tells.
    drop(two);
    let began = Instant::now();
    until("the other one has gone", || members(&one) == 1);
    assert!(began.elapsed() < Duration::from_secs(5), "it was told after {:?}", began.elapsed());
    drop(one);
    server.kill().unwrap();
    server.wait().unwrap();
}
