//! SORT with a storage tier: the keys that its patterns name are read, and all elements of a large set.

mod client;

use client::durable::{Process, serve_if_asked};
use client::{Client, Reply, bulk, bulks, error, int, nil, ok, simple};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: terrace_kv::memory::Allocator = terrace_kv::memory::Allocator;

#[test]
fn serves_in_a_process_of_its_own() {
    serve_if_asked();
}

const ELEMENTS: u64 = 300;

fn start(dir: &Path, policy: &str) -> Process {
    Process::start_with(Some(dir), &[("appendfsync", "everysec"), ("tiering-write-policy", policy)])
}

/// Another order than that of the elements.
fn weight(element: u64) -> u64 {
    element * 7919 % 1009
}

fn fill(one: &mut Client) {
    for element in 0..ELEMENTS {
        one.ask(&format!("RPUSH list {element}"));
        one.ask(&format!("SET weight_{element} {}", weight(element)));
        // Each third element has no object.
        if element % 3 != 0 {
            one.ask(&format!("HSET object_{element} weight {} name n{element}", weight(element)));
        }
    }
}

fn by_weight() -> Vec<u64> {
    let mut order: Vec<u64> = (0..ELEMENTS).collect();
    order.sort_by_key(|element| weight(*element));
    order
}

fn sorts_what_was_stored(policy: &str) {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), policy);
    fill(&mut server.connect());
    let mut one = server.connect();
    (0..100).for_each(|piece| {
        let members: Vec<String> = (0..300).map(|at| format!("{}", piece * 300 + at)).collect();
        one.ask(&format!("SADD set {}", members.join(" ")));
    });
    server.stop();

    // Nothing is in memory: the list, then the keys that it names.
    let server = start(dir.path(), policy);
    let mut one = server.connect();
    let order: Vec<String> = by_weight().iter().map(u64::to_string).collect();
    let order: Vec<&str> = order.iter().map(String::as_str).collect();
    assert_eq!(one.ask("SORT list BY weight_*"), bulks(&order));
    assert_eq!(one.ask("SORT_RO list BY weight_* LIMIT 0 3"), bulks(&order[..3]));
    let names: Vec<Reply> = by_weight()
        .iter()
        .flat_map(|element| {
            let name = if element % 3 == 0 { nil() } else { bulk(&format!("n{element}")) };
            [bulk(&element.to_string()), name]
        })
        .collect();
    assert_eq!(one.ask("SORT list BY weight_* GET # GET object_*->name"), Reply::Array(names));
    assert_eq!(one.ask("SORT list BY weight_* STORE sorted"), int(ELEMENTS as i64));
    // All members of a large set are read.
    assert_eq!(one.ask("SORT set DESC LIMIT 0 2"), bulks(&["29999", "29998"]));
    assert_eq!(one.ask("SORT set BY nosort GET weight_* LIMIT 0 0"), Reply::Array(vec![]));
    assert_eq!(one.ask("SCARD set"), int(30_000));
    server.stop();

    let server = start(dir.path(), policy);
    let mut one = server.connect();
    assert_eq!(one.ask("LRANGE sorted 0 -1"), bulks(&order));
    // Keys that change while others are read count as they are when the command runs.
    let mut other = server.connect();
    one.send("SORT list BY weight_* LIMIT 0 1");
    other.send("SET weight_5 -1");
    let first = one.reply();
    assert!(first == bulks(&["5"]) || first == bulks(&order[..1]), "{first:?}");
    assert_eq!(other.reply(), ok());
    assert_eq!(one.ask("SORT list BY weight_* LIMIT 0 1"), bulks(&["5"]));
    // What an earlier command of a transaction does to the elements is not known before.
    assert_eq!(one.ask("MULTI"), ok());
    let refused = "ERR SORT by patterns of keys is not possible in a transaction or script while a storage tier is attached";
    assert_eq!(one.ask("SORT list BY weight_*"), error(refused));
    assert_eq!(one.ask("SORT list BY nosort LIMIT 0 1"), simple("QUEUED"));
    one.ask("DISCARD");
    server.stop();
}

#[test]
fn sort_reads_the_keys_that_its_patterns_name_with_write_through() {
    sorts_what_was_stored("write-through");
}

#[test]
fn sort_reads_the_keys_that_its_patterns_name_with_write_back() {
    sorts_what_was_stored("write-back");
}

#[test]
fn a_field_of_a_large_hash_that_a_pattern_names_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    for piece in 0..100 {
        let pairs: Vec<String> =
            (0..300).map(|at| format!("f{} v{}", piece * 300 + at, piece * 300 + at)).collect();
        one.ask(&format!("HSET hash_1 {}", pairs.join(" ")));
    }
    one.ask("RPUSH list 1 2");
    server.stop();
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    assert_eq!(
        one.ask("SORT list BY nosort GET hash_*->f12345 GET hash_*->none GET hash_*"),
        Reply::Array(vec![bulk("v12345"), nil(), nil(), nil(), nil(), nil()])
    );
    server.stop();
}
