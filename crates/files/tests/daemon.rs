//! The daemon over its socket: concurrency, leases, changes, outages, restarts.

mod rig;

use rig::{Rig, body, figure};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use terrace_files::catalogue::{BLOCK_BYTES, Fault, Freshness};
use terrace_files::client::{Client, Error};

const FILES: usize = 200;

fn fault(error: Error) -> Fault {
    match error {
        Error::Fault(fault) => fault,
        error => panic!("{error}"),
    }
}

#[test]
fn sixteen_readers_get_every_file_right_with_one_request_a_file() {
    let rig = Rig::start(|config, _| config.freshness = Freshness::Immutable);
    rig.store.delay_ms.store(2, Ordering::SeqCst);
    let names: Vec<String> = (0..FILES).map(|i| format!("dir/{i}")).collect();
    for (i, name) in names.iter().enumerate() {
        rig.put(name, &body(i as u64, 100 * i));
    }
    let start = Barrier::new(16);
    std::thread::scope(|scope| {
        for reader in 0..16 {
            let (rig, names, start) = (&rig, &names, &start);
            scope.spawn(move || {
                let client = rig.client();
                start.wait();
                for i in (0..FILES).map(|i| (i + reader * 5) % FILES) {
                    let view = client.read(&names[i], 0, u64::MAX, "").unwrap();
                    assert!(view.to_vec() == body(i as u64, 100 * i), "{i}");
                }
                let paths: Vec<&str> = names.iter().map(String::as_str).collect();
                let mut count = 0;
                client
                    .read_many(&paths, |i, view| {
                        assert!(view.unwrap().to_vec() == body(i as u64, 100 * i), "{i}");
                        count += 1;
                    })
                    .unwrap();
                assert_eq!(count, FILES);
            });
        }
    });
    assert_eq!(rig.gets(), FILES as u64);
    assert_eq!(rig.store.heads.load(Ordering::SeqCst), 0);
}

#[test]
fn eviction_keeps_the_limit_and_never_touches_leased_bytes() {
    let rig = Rig::start(|config, _| config.memory = 64 << 20);
    let len = 700_000;
    (0..150).for_each(|i| rig.put(&format!("{i}"), &body(i, len)));
    let holder = rig.client();
    let held: Vec<_> = (0..20).map(|i| holder.read(&format!("{i}"), 0, u64::MAX, "").unwrap()).collect();
    std::thread::scope(|scope| {
        for reader in 0..4u64 {
            let rig = &rig;
            scope.spawn(move || {
                let client = rig.client();
                for i in (0..150).map(|i| (i * 7 + reader * 31) % 150) {
                    let view = client.read(&format!("{i}"), 0, u64::MAX, "").unwrap();
                    assert!(view.to_vec() == body(i, len), "{i}");
                }
            });
        }
    });
    for (i, view) in held.iter().enumerate() {
        assert!(view.to_vec() == body(i as u64, len), "{i}: leased bytes have changed");
    }
    assert!(figure(&holder, "evicted") > 50);
    assert!(figure(&holder, "memory_used_bytes") <= figure(&holder, "memory_bytes"));
}

#[test]
fn the_leases_of_a_client_that_dies_are_free_again() {
    let rig = Rig::start(|config, _| config.memory = 64 << 20);
    let len = 5 << 20;
    (0..9).for_each(|i| rig.put(&format!("{i}"), &body(i, len)));
    let dead = rig.client();
    // Without a release: as a killed process.
    (0..4).for_each(|i| std::mem::forget(dead.read(&format!("{i}"), 0, u64::MAX, "").unwrap()));
    let client = rig.client();
    assert_eq!(figure(&client, "blocks_not_evictable"), 4);
    let refused = dead.read("5", 0, 1, "").err().map(fault);
    assert!(matches!(refused, None | Some(Fault::Busy(_))), "{refused:?}");
    drop(dead);
    for i in 4..9 {
        assert!(client.read(&format!("{i}"), 0, u64::MAX, "").unwrap().to_vec() == body(i, len));
    }
    // The last lease ends with a request of this client, whose own answer may come before that.
    figure(&client, "blocks_not_evictable");
    assert_eq!(figure(&client, "blocks_not_evictable"), 0);
}

#[test]
fn what_is_warm_is_read_without_a_question_and_the_daemon_learns_what_is_used() {
    let rig = Rig::start(|config, _| config.memory = 64 << 20);
    let len = 1_000_000;
    (0..10).for_each(|i| rig.put(&format!("hot/{i}"), &body(i, len)));
    let client = rig.client();
    let mut buf = vec![0; len + 1];
    let mut read = |i: u64| {
        let (got, length) = client.read_into(&format!("hot/{i}"), 0, &mut buf, "").unwrap();
        assert!(got == len && length == len as u64 && buf[..len] == body(i, len), "{i}");
    };
    (0..10).for_each(&mut read);
    let hits = figure(&client, "hits");
    (0..1000).for_each(|i| read(i % 10));
    // What is told with a request may be counted after the answer to that request.
    figure(&client, "unasked");
    let told = figure(&client, "unasked");
    assert!(told > 900, "{told} of 1000 reads");
    assert_eq!(figure(&client, "hits"), hits + told, "none of them was a request");
    // What is used that way stays when others come and go.
    (0..100).for_each(|i| rig.put(&format!("cold/{i}"), &body(i, len)));
    for i in 0..100 {
        assert!(client.read(&format!("cold/{i}"), 0, u64::MAX, "").unwrap().to_vec() == body(i, len));
        for i in 0..40 {
            let _ = client.shared.stat(&format!("hot/{}", i % 10));
        }
        figure(&client, "unasked");
    }
    assert!(figure(&client, "evicted") > 0);
    let gets = rig.gets();
    let mut buf = vec![0; len];
    for i in 0..10 {
        client.read_into(&format!("hot/{i}"), 0, &mut buf, "").unwrap();
    }
    assert_eq!(rig.gets(), gets);
}

#[test]
fn in_an_outage_cached_files_are_served_and_others_fail_with_the_reason() {
    let rig = Rig::start(|config, _| config.freshness = Freshness::Ttl(1));
    rig.put("cached", &body(1, 10_000));
    rig.put("other", &body(2, 10_000));
    let client = rig.client();
    client.read("cached", 0, u64::MAX, "").unwrap();
    rig.store.is_down.store(true, Ordering::SeqCst);
    for _ in 0..20 {
        assert!(client.read("cached", 0, u64::MAX, "").unwrap().to_vec() == body(1, 10_000));
        let failed = fault(client.read("other", 0, u64::MAX, "").err().unwrap());
        assert!(matches!(&failed, Fault::Unavailable(why) if why.contains("the cable is cut")), "{failed:?}");
    }
    assert!(rig.gets() < 10, "a store that does not answer is not asked again and again");
    rig.store.is_down.store(false, Ordering::SeqCst);
    let is_back = || client.read("other", 0, u64::MAX, "").is_ok();
    while !is_back() {
        std::thread::yield_now();
    }
}

#[test]
fn what_was_in_memory_is_on_flash_after_a_restart_and_checked_by_version() {
    let mut rig = Rig::start(|config, scratch| config.flash = Some((scratch.join("flash"), 256 << 20)));
    let names: Vec<String> = (0..100).map(|i| format!("small/{i}")).collect();
    (0..100).for_each(|i| rig.put(&names[i], &body(i as u64, 20_000)));
    rig.put("large", &body(7, 20 << 20));
    let client = rig.client();
    for name in &names {
        client.read(name, 0, u64::MAX, "").unwrap();
    }
    client.read("large", 0, u64::MAX, "").unwrap();
    drop(client);
    rig.restart();
    rig.put(&names[3], &body(999, 20_000));
    let client = rig.client();
    while client.status().unwrap().contains("\"restoring\": true") {}
    let before = rig.gets();
    for (i, name) in names.iter().enumerate() {
        let seed = if i == 3 { 999 } else { i as u64 };
        assert!(client.read(name, 0, u64::MAX, "").unwrap().to_vec() == body(seed, 20_000), "{i}");
    }
    assert!(client.read("large", 0, u64::MAX, "").unwrap().to_vec() == body(7, 20 << 20));
    assert_eq!(rig.gets() - before, 1, "only the file that changed is fetched again");
}

#[test]
fn a_file_that_changes_while_it_is_read_in_blocks_is_the_old_or_the_new_whole() {
    let rig = Rig::start(|config, _| config.freshness = Freshness::Ttl(1_000_000));
    let len = 20 << 20;
    let bodies: Vec<Vec<u8>> = (0..4).map(|seed| body(seed, len)).collect();
    rig.put("f", &bodies[0]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                rig.put("f", &bodies[round % 4]);
                if stop.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let client = rig.client();
                    let mut whole = 0;
                    for _ in 0..15 {
                        match client.read("f", 0, u64::MAX, "") {
                            Ok(view) => {
                                let found = view.to_vec();
                                assert!(bodies.contains(&found), "a mix of versions");
                                whole += 1;
                            }
                            Err(error) => assert_eq!(fault(error), Fault::Changed),
                        }
                    }
                    whole
                })
            })
            .collect();
        let whole: u32 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        stop.store(true, Ordering::SeqCst);
        println!("{whole} of 45 reads were of one version, the others failed");
    });
    // A reader that goes on with a version that is no longer the file's is told so.
    rig.put("f", &bodies[0]);
    let client = rig.client();
    let version = client.stat("f").unwrap().version;
    rig.put("f", &bodies[1][..100]);
    let is_told = || match client.read("f", 0, 10, &version) {
        Ok(_) => false,
        Err(error) => fault(error) == Fault::Changed,
    };
    while !is_told() {}
}

#[test]
fn with_always_a_change_is_seen_by_the_next_read() {
    let rig = Rig::start(|config, _| config.freshness = Freshness::Always);
    let client = rig.client();
    for round in 0..30 {
        rig.put("f", &body(round, 1000 + round as usize));
        assert!(
            client.read("f", 0, u64::MAX, "").unwrap().to_vec() == body(round, 1000 + round as usize),
            "{round}"
        );
    }
}

#[test]
fn ranges_come_from_blocks_that_other_ranges_hit() {
    let rig = Rig::start(|config, _| config.freshness = Freshness::Immutable);
    let whole = body(1, 30 << 20);
    rig.put("f", &whole);
    let client = rig.client();
    let begin = BLOCK_BYTES as usize;
    for (offset, len) in [(begin + 10, 1000), (begin + 5_000_000, 100), (begin, 1), (2 * begin - 1, 1)] {
        let found = client.read("f", offset as u64, len as u64, "").unwrap().to_vec();
        assert!(found == whole[offset..offset + len], "{offset}");
    }
    assert_eq!(rig.gets(), 2, "the file's start, which tells its length, and one block");
    let across = client.read("f", begin as u64 * 2 - 5, 10, "").unwrap().to_vec();
    assert!(across == whole[2 * begin - 5..2 * begin + 5]);
    assert!(client.read("f", 40 << 20, 10, "").unwrap().to_vec().is_empty());
}

#[test]
fn what_a_client_writes_is_in_the_store_and_read_by_the_next() {
    let rig = Rig::start(|config, _| config.freshness = Freshness::Immutable);
    let (writer, reader) = (rig.client(), rig.client());
    for (name, len) in [("empty", 0), ("small", 1000), ("part", 8 << 20), ("parts", 30 << 20)] {
        for round in 0..2 {
            let new = body(round + 5, len);
            writer.write(name, &new).unwrap();
            assert!(std::fs::read(rig.scratch.path().join("store").join(name)).unwrap() == new);
            assert!(reader.read(name, 0, u64::MAX, "").unwrap().to_vec() == new, "{name} {round}");
        }
    }
    assert_eq!(rig.store.parts.load(Ordering::SeqCst), 8);
    writer.delete("small").unwrap();
    assert_eq!(fault(reader.read("small", 0, 1, "").err().unwrap()), Fault::Absent);
    assert_eq!(reader.list("", false).unwrap().len(), 3);
    rig.store.is_down.store(true, Ordering::SeqCst);
    let failed = fault(writer.write("lost", &body(1, 20 << 20)).unwrap_err());
    assert!(matches!(failed, Fault::Unavailable(_)), "{failed:?}");
    while figure(&reader, "body_bytes") > 0 {}
}

#[test]
fn a_socket_is_its_owners_alone_and_refuses_what_is_not_the_protocol() {
    let rig = Rig::start(|config, _| config.clients = 3);
    let mode = std::fs::metadata(&rig.config.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let wrong = Client::connect(&rig.config.socket, "s3://other").err().unwrap().to_string();
    assert!(wrong.contains("not s3://other"), "{wrong}");
    let mut stranger = std::os::unix::net::UnixStream::connect(&rig.config.socket).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stranger, &mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("malformed"));
    let path = fault(rig.client().read("../etc/passwd", 0, 1, "").err().unwrap());
    assert!(matches!(path, Fault::Invalid(_)), "{path:?}");
    let clients: Vec<Client> =
        std::iter::from_fn(|| Client::connect(&rig.config.socket, "").ok()).take(9).collect();
    assert_eq!(clients.len(), 3);
}

#[test]
fn small_files_come_back_from_flash_with_their_neighbours() {
    let mut rig = Rig::start(|config, scratch| config.flash = Some((scratch.join("flash"), 256 << 20)));
    let names: Vec<String> = (0..2000).map(|i| format!("table/{:02}/{i:04}", i / 100)).collect();
    let len = |i: usize| 300 + i * 7 % 9000;
    (0..2000).for_each(|i| rig.put(&names[i], &body(i as u64, len(i))));
    let client = rig.client();
    let paths: Vec<&str> = names.iter().map(String::as_str).collect();
    let read = |client: &Client| {
        let mut count = 0;
        client
            .read_many(&paths, |i, view| {
                assert!(view.unwrap().to_vec() == body(i as u64, len(i)), "{i}");
                count += 1;
            })
            .unwrap();
        assert_eq!(count, paths.len());
    };
    read(&client);
    drop(client);
    rig.restart();
    rig.put(&names[3], &body(3, len(3)));
    let client = rig.client();
    while client.status().unwrap().contains("\"restoring\": true")
        || client.status().unwrap().contains("\"restoring_packed\": true")
    {}
    assert!(figure(&client, "packed_files") >= 1999, "{}", client.status().unwrap());
    assert!(figure(&client, "packed_blocks") <= 8, "a block holds many files");
    let before = rig.gets();
    // What they are is asked first, so that neighbours are known.
    for name in &names {
        client.stat(name).unwrap();
    }
    for (i, name) in names.iter().enumerate() {
        assert!(client.read(name, 0, u64::MAX, "").unwrap().to_vec() == body(i as u64, len(i)), "{i}");
    }
    assert!(rig.gets() - before <= 1, "only the file that was written anew is fetched");
    assert!(figure(&client, "brought") > 1500, "{}", client.status().unwrap());
    assert!(figure(&client, "part_reads") < 200, "{}", client.status().unwrap());
    // Eviction by a person holds for packed files, too.
    client.evict("table/07").unwrap();
    let before = rig.gets();
    assert!(client.read(&names[705], 0, u64::MAX, "").unwrap().to_vec() == body(705, len(705)));
    assert_eq!(rig.gets(), before + 1);
}

/// The figure for which fsspec's simplecache has 71 corrupt or failed reads of 80.
#[test]
fn sixteen_staggered_readers_have_no_corrupt_and_no_failed_read_in_200_rounds() {
    let rig = Rig::start(|config, scratch| {
        config.flash = Some((scratch.join("flash"), 256 << 20));
        config.freshness = Freshness::Ttl(2_000_000);
    });
    const ROUNDS: usize = 200;
    let rounds = Barrier::new(17);
    let bodies: Vec<Vec<u8>> = (0..4).map(|seed| body(seed, 9000 + seed as usize * 100)).collect();
    (0..8).for_each(|file| rig.put(&format!("s/{file}"), &bodies[0]));
    std::thread::scope(|scope| {
        for reader in 0..16usize {
            let (rig, rounds, bodies) = (&rig, &rounds, &bodies);
            scope.spawn(move || {
                let client = rig.client();
                for round in 0..ROUNDS {
                    rounds.wait();
                    // Staggered: each begins a little later than the one before it.
                    (0..reader * 50).for_each(|_| std::hint::spin_loop());
                    for file in 0..8 {
                        let file = format!("s/{}", (file + reader) % 8);
                        let found = client.read(&file, 0, u64::MAX, "").expect("no read fails").to_vec();
                        assert!(bodies.contains(&found), "round {round}: {file} is corrupt");
                    }
                    if round % 16 == reader {
                        client.evict(&format!("s/{}", round % 8)).unwrap();
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            rounds.wait();
            rig.put(&format!("s/{}", round % 8), &bodies[round % 4]);
        }
    });
}

#[test]
fn a_file_that_only_flash_knows_is_evicted_by_its_path_and_an_unknown_one_is_none() {
    let mut rig = Rig::start(|config, scratch| {
        let flash = scratch.join("flash");
        std::fs::create_dir_all(&flash).unwrap();
        config.flash = Some((flash, 256 << 20));
        config.freshness = Freshness::Immutable;
    });
    rig.put("small", &body(1, 5000));
    rig.put("long", &body(2, 300_000));
    let client = rig.client();
    ["small", "long"].iter().for_each(|path| drop(client.read(path, 0, u64::MAX, "").unwrap()));
    drop(client);
    rig.restart();
    let client = rig.client();
    while figure(&client, "packed_files") < 1 || figure(&client, "restored") < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(client.evict("no such file").unwrap(), 0);
    for path in ["small", "long"] {
        assert_eq!((client.evict(path).unwrap(), client.evict(path).unwrap()), (1, 0), "{path}");
        let gets = rig.gets();
        client.read(path, 0, u64::MAX, "").unwrap();
        assert_eq!(rig.gets(), gets + 1, "{path} is not on flash any more");
    }
}
