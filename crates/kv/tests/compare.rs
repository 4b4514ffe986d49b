//! Conditional changes of strings, which Redis 7.0 does not have, so that a comparison with it cannot show them.

mod client;

use client::{Reply, Server, bulk, error, int, nil, ok};

/// XXH3 of `hello` in 64 bits, as `xxhsum -H3` prints it.
const HELLO: &str = "9555e8555c62dcfd";

#[test]
fn a_digest_is_xxh3_and_keeps_its_leading_zeros() {
    let server = Server::start();
    let mut client = server.connect();
    for (value, digest) in
        [("hello", HELLO), ("123", "404a763b3f4c8c9a"), ("v8", "0cc76dbb41381419"), ("", "2d06800538d394c2")]
    {
        client.ask_args(&[b"SET", b"key", value.as_bytes()]);
        assert_eq!(client.ask("DIGEST key"), bulk(digest), "{value}");
    }
    assert_eq!(client.ask("DIGEST absent"), nil());
    client.ask("RPUSH list a");
    assert!(matches!(client.ask("DIGEST list"), Reply::Error(text) if text.starts_with("WRONGTYPE")));
}

#[test]
fn set_on_a_comparison_changes_only_what_passes_it() {
    let server = Server::start();
    let mut client = server.connect();
    for (command, reply, then) in [
        ("SET key a IFEQ x", nil(), nil()),
        ("SET key a IFDEQ 9555e8555c62dcfd", nil(), nil()),
        ("SET key hello IFNE x", ok(), bulk("hello")),
        ("SET key b IFNE hello", nil(), bulk("hello")),
        ("SET key b IFDNE 9555E8555C62DCFD", nil(), bulk("hello")),
        ("SET key b IFDEQ 9555e8555c62dcfd GET", bulk("hello"), bulk("b")),
        ("SET key c GET IFEQ x", bulk("b"), bulk("b")),
        ("SET key c IFEQ b EX 100", ok(), bulk("c")),
        ("SET key d IFEQ c NX", error("ERR syntax error"), bulk("c")),
        ("SET key d NX IFEQ c", error("ERR syntax error"), bulk("c")),
        ("SET key d IFEQ c IFEQ c", error("ERR syntax error"), bulk("c")),
        ("SET key d IFEQ", error("ERR syntax error"), bulk("c")),
        ("SET key d IFDEQ 12", error("ERR must be exactly 16 hexadecimal characters"), bulk("c")),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
        assert_eq!(client.ask("GET key"), then, "after {command}");
    }
    assert_eq!(client.ask("TTL key"), int(100));
}

#[test]
fn a_deletion_on_a_comparison_leaves_other_values() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("SET key hello");
    client.ask("RPUSH list a");
    let not_string = error("ERR Key should be of string type if conditions are specified");
    for (command, reply) in [
        ("DELEX key IFEQ x", int(0)),
        ("DELEX key IFNE hello", int(0)),
        ("DELEX key IFDNE 9555e8555c62dcfd", int(0)),
        ("DELEX key OTHER hello", error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")),
        ("DELEX absent IFEQ", error("ERR wrong number of arguments for 'delex' command")),
        ("DELEX absent IFNE x", int(0)),
        ("DELEX list IFEQ a", not_string),
        ("DELEX list", int(1)),
        ("DELEX key IFDEQ 9555e8555c62dcfd", int(1)),
        ("EXISTS key list", int(0)),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
}

#[test]
fn cas_and_cad_answer_minus_one_without_the_key() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("CAS key a b"), int(-1));
    assert_eq!(client.ask("CAD key a"), int(-1));
    client.ask("SET key a");
    assert_eq!(client.ask("CAS key x b"), int(0));
    assert_eq!(client.ask("CAS key a b EX 50"), int(1));
    assert_eq!(client.ask("GET key"), bulk("b"));
    assert_eq!(client.ask("TTL key"), int(50));
    assert_eq!(client.ask("CAS key b c EX"), error("ERR syntax error"));
    assert_eq!(client.ask("CAD key a"), int(0));
    assert_eq!(client.ask("CAD key b"), int(1));
    assert_eq!(client.ask("EXISTS key"), int(0));
}
