//! A figure, not a claim about any machine: two nodes become four, and the new ones get what they own, from the two others or from the store (Gopher §5.2.4, Table 3).
//! Part of `make bench NAME=files`. FILES says how many files there are.

mod cluster;
mod rig;

use cluster::{Cluster, Node, settled, until};
use rig::body;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_files::catalogue::Freshness;
use terrace_files::config::Config;
use terrace_files::peers::ring::{owners, partition_of};

const BYTES: usize = 10_240;
const MEMORY: u64 = 1 << 30;
const ROUNDS: usize = 3;
/// What a request to the store takes, in milliseconds.
const STORE_MS: u64 = 20;

fn path(file: u64) -> String {
    format!("table-{:03}/part-{file:07}", file / 1000)
}

fn warm(node: &Node, paths: &[String]) {
    let client = node.client();
    for paths in paths.chunks(1000) {
        let ranges: Vec<(&str, u64, u64)> = paths.iter().map(|path| (&**path, 0, u64::MAX)).collect();
        client.warm(&ranges, |_, result| drop(result.unwrap())).unwrap();
    }
}

/// The paths that the node of this number owns among all.
fn owned(cluster: &Cluster, files: u64, at: usize) -> Vec<String> {
    let mut members: Vec<_> = cluster.addresses.iter().map(|address| address.to_string().into()).collect();
    members.sort();
    let owners = owners(&members);
    let me = cluster.addresses[at].to_string();
    let is_mine =
        |path: &String| *members[usize::from(owners[usize::from(partition_of(path))])] == *me.as_str();
    (0..files).map(path).filter(is_mine).collect()
}

fn round(files: u64) -> (Duration, Duration, u64, u64) {
    let cluster = Cluster::of(4);
    (0..files).for_each(|file| cluster.put(&path(file), &body(file, BYTES)));
    let start = |at: usize, has_peers: bool| {
        let flash = cluster.scratch.path().join(format!("flash-{at}-{has_peers}"));
        cluster.start(at, |config: &mut Config| {
            config.memory = MEMORY;
            config.flash = Some((flash, 4 << 30));
            config.requests = 128;
            config.freshness = Freshness::Immutable;
            match (&mut config.peers, has_peers) {
                (Some(peers), true) => peers.patience = 5_000_000_000,
                (peers, _) => *peers = None,
            }
        })
    };
    // The old two have all.
    let old = [start(0, true), start(1, true)];
    for node in &old {
        until("two are live and connected", || {
            let status = node.client().status().unwrap();
            status.contains("\"peer_live\": 2,") && status.matches("\"connected\": true").count() == 1
        });
    }
    let all: Vec<String> = (0..files).map(path).collect();
    let sum = |name: &str| old.iter().map(|node| node.figure(name)).sum::<u64>();
    let sums = |names: [&str; 2]| names.iter().map(|name| sum(name)).sum::<u64>();
    warm(&old[0], &all[..all.len() / 2]);
    warm(&old[1], &all[all.len() / 2..]);
    // What flash did not take in time is in memory alone, and moves from there.
    until("what waits for flash is packed", || sums(["unsaved", "staged_files"]) == 0);
    assert_eq!(sum("peer_down") + sum("peer_late") + sum("peer_faults"), 0, "each file is with its owner");
    cluster.store.delay_ms.store(STORE_MS, Ordering::SeqCst);
    let began = Instant::now();
    let new = [start(2, true), start(3, true)];
    new.iter().for_each(|node| until("it has what it owns", || node.figure("peer_partitions_pending") == 0));
    let by_peers = began.elapsed();
    settled(&[&old[0], &old[1], &new[0], &new[1]]);
    // What has not come is asked of the store.
    let (requests, mut moved) = (cluster.requests(), 0);
    for (at, node) in new.iter().enumerate() {
        let mine = owned(&cluster, files, at + 2);
        moved += mine.len() as u64;
        warm(node, &mine);
    }
    let missing = cluster.requests() - requests;
    let lists = [owned(&cluster, files, 2), owned(&cluster, files, 3)];
    drop(new);
    drop(old);
    let alone = [start(2, false), start(3, false)];
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (node, list) in alone.iter().zip(&lists) {
            scope.spawn(move || warm(node, list));
        }
    });
    let by_store = began.elapsed();
    (by_peers, by_store, moved, missing)
}

#[test]
#[ignore = "a figure"]
fn new_nodes_get_what_they_own_from_peers_or_from_the_store() {
    let files = std::env::var("FILES").ok().and_then(|files| files.parse().ok()).unwrap_or(40_000);
    for number in 1..=ROUNDS {
        let (peers, store, moved, missing) = round(files);
        let (peers, store) = (peers.as_secs_f64(), store.as_secs_f64());
        println!(
            "reconstruction round {number}: {moved} of {files} files of {BYTES} bytes moved in {peers:.2} s by peers, {:.0} a second, {missing} of them were then asked of the store; {store:.2} s from the store, {:.0} a second; {:.1} times faster (paper: 320,000 files, 12 s and 440 s, 36.7 times)",
            moved as f64 / peers,
            moved as f64 / store,
            store / peers
        );
    }
}
