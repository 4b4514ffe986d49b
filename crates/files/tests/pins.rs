//! Pinned files over the socket: they are not evicted, stay pinned over a restart, and follow their files' changes.

mod rig;

use rig::{Rig, body, figure};
use std::sync::atomic::Ordering;
use terrace_files::catalogue::{Fault, Freshness};
use terrace_files::client::{Client, Error};

const LEN: usize = 700_000;

fn start() -> Rig {
    Rig::start(|config, scratch| {
        config.memory = 192 << 20;
        config.flash = Some((scratch.join("flash"), 512 << 20));
        config.freshness = Freshness::Ttl(3_600_000_000_000);
    })
}

fn fault(error: Error) -> Fault {
    match error {
        Error::Fault(fault) => fault,
        error => panic!("{error}"),
    }
}

fn read(client: &Client, path: &str) -> Vec<u8> {
    client.read(path, 0, u64::MAX, "").unwrap().to_vec()
}

/// Reads more than memory holds.
fn sweep(rig: &Rig, client: &Client) {
    let before = figure(client, "evicted");
    for i in 0..200 {
        assert!(read(client, &format!("sweep/{i}")) == body(i, LEN), "{i}");
    }
    assert!(figure(client, "evicted") > before + 50, "{}", rig.gets());
}

fn put_all(rig: &Rig) {
    (0..200).for_each(|i| rig.put(&format!("sweep/{i}"), &body(i, LEN)));
    (0..10).for_each(|i| rig.put(&format!("keep/{i}"), &body(1000 + i, LEN)));
    rig.put("keep/deep/large", &body(7, 9 << 20));
}

/// Reads all that is pinned, and says how many bytes the store and flash were asked for.
fn asked_for_pinned(rig: &Rig, client: &Client) -> u64 {
    let before = (rig.gets(), figure(client, "hits"));
    for i in 0..10 {
        assert!(read(client, &format!("keep/{i}")) == body(1000 + i, LEN));
    }
    assert!(read(client, "keep/deep/large") == body(7, 9 << 20));
    rig.gets() - before.0 + 11 - (figure(client, "hits") - before.1).min(11)
}

#[test]
fn pinned_files_are_not_evicted_and_are_pinned_after_a_restart() {
    let mut rig = start();
    put_all(&rig);
    let client = rig.client();
    assert_eq!(client.pin(&["keep"]).unwrap(), 11);
    assert_eq!(client.pins().unwrap(), ["keep"]);
    assert_eq!((figure(&client, "pins"), figure(&client, "pinned_files")), (1, 11));
    sweep(&rig, &client);
    assert_eq!(asked_for_pinned(&rig, &client), 0);
    rig.restart();
    let client = rig.client();
    while figure(&client, "pinned_files") < 11 {}
    sweep(&rig, &client);
    assert_eq!(asked_for_pinned(&rig, &client), 0);
    assert_eq!(client.unpin(&["keep"]).unwrap(), 11);
    assert_eq!((figure(&client, "pins"), figure(&client, "pinned_bytes")), (0, 0));
    sweep(&rig, &client);
    sweep(&rig, &client);
    assert!(asked_for_pinned(&rig, &client) > 0, "they can be evicted again");
    assert!(
        matches!(fault(client.unpin(&["keep"]).unwrap_err()), Fault::Invalid(why) if why.contains("not pinned"))
    );
    rig.restart();
    assert_eq!(rig.client().pins().unwrap(), Vec::<String>::new());
}

#[test]
fn more_than_may_be_pinned_is_refused_with_the_limit_and_pins_nothing() {
    let rig = start();
    put_all(&rig);
    let client = rig.client();
    let refused = fault(client.pin(&["keep", "sweep"]).unwrap_err());
    let most = figure(&client, "pinned_bytes_max").to_string();
    assert!(matches!(&refused, Fault::Refused(why) if why.contains(&most)), "{refused:?}");
    assert_eq!((figure(&client, "pins"), figure(&client, "pinned_bytes")), (0, 0));
    assert!(matches!(fault(client.pin(&["none"]).unwrap_err()), Fault::Invalid(why) if why.contains("none")));
    assert!(matches!(fault(client.pin(&["../etc"]).unwrap_err()), Fault::Invalid(_)));
    assert_eq!(client.pin(&["sweep/1", "sweep/2"]).unwrap(), 2);
    rig.store.is_down.store(true, Ordering::SeqCst);
    assert!(matches!(fault(client.pin(&["keep"]).unwrap_err()), Fault::Unavailable(_)));
    assert_eq!(figure(&client, "pins"), 2);
}

#[test]
fn a_pinned_file_follows_its_changes_and_one_that_is_written_into_a_pinned_folder_is_pinned() {
    let rig = start();
    put_all(&rig);
    let client = rig.client();
    client.pin(&["keep"]).unwrap();
    let one = figure(&client, "pinned_bytes");
    client.write("keep/1", &body(5, 100)).unwrap();
    client.write("keep/new", &body(6, 1000)).unwrap();
    client.delete("keep/2").unwrap();
    let taken = |len: u64| len.next_multiple_of(64);
    let expected = one - 2 * taken(LEN as u64) + taken(100) + taken(1000);
    while figure(&client, "pinned_bytes") != expected {}
    assert!(read(&client, "keep/1") == body(5, 100) && read(&client, "keep/new") == body(6, 1000));
    sweep(&rig, &client);
    let gets = rig.gets();
    assert!(read(&client, "keep/1") == body(5, 100) && read(&client, "keep/new") == body(6, 1000));
    assert_eq!(rig.gets(), gets);
    // What is evicted by name is fetched again, as it is now.
    rig.put("keep/3", &body(8, 50));
    client.evict("keep/3").unwrap();
    while read(&client, "keep/3") != body(8, 50) {}
    while figure(&client, "pinned_bytes") != expected - taken(LEN as u64) + 64 {}
}
