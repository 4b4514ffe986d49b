//! Collections over TCP: what a comparison with redis-server 7.0 by single commands can't show (see
//! `tests/kv/differ_collections.py`): blocked clients, and expiry of fields, which 7.0 doesn't have.

mod client;

use client::{Client, Reply, Server, bulk, bulks, error, int, nil};

fn ints(numbers: &[i64]) -> Reply {
    Reply::Array(numbers.iter().map(|&number| int(number)).collect())
}

/// Sends a command that blocks, and returns once the server has the client in the queue of `key`.
fn block(server: &Server, command: &str, key: &str) -> Client {
    let place = (0, terrace_kv::keyspace::Key::new(key.as_bytes()));
    let waiting = || server.core.lock().server.waiting.get(&place).map_or(0, |queue| queue.len());
    let before = waiting();
    let mut client = server.connect();
    client.send(command);
    while waiting() == before {
        std::thread::yield_now();
    }
    client
}

#[test]
fn blocked_clients_are_served_in_the_order_in_which_they_came() {
    let server = Server::start();
    let mut first = block(&server, "BLPOP list other 0", "list");
    let mut second = block(&server, "BLMPOP 0 1 list RIGHT COUNT 5", "list");
    let mut pusher = server.connect();
    assert_eq!(pusher.ask("RPUSH list a b c"), int(3));
    assert_eq!(first.reply(), bulks(&["list", "a"]));
    assert_eq!(second.reply(), Reply::Array(vec![bulk("list"), bulks(&["c", "b"])]));
    assert_eq!(pusher.ask("EXISTS list"), int(0));
}

#[test]
fn a_chain_of_blocked_moves_runs_to_its_end() {
    let server = Server::start();
    let mut first = block(&server, "BLMOVE a b LEFT LEFT 0", "a");
    let mut second = block(&server, "BRPOPLPUSH b c 0", "b");
    let mut third = block(&server, "BRPOP c 0", "c");
    let mut pusher = server.connect();
    assert_eq!(pusher.ask("RPUSH a x"), int(1));
    assert_eq!(first.reply(), bulk("x"));
    assert_eq!(second.reply(), bulk("x"));
    assert_eq!(third.reply(), bulks(&["c", "x"]));
}

#[test]
fn a_blocked_client_waits_on_when_its_key_gets_another_type() {
    let server = Server::start();
    let mut waiting = block(&server, "BZPOPMIN key 0", "key");
    let mut other = server.connect();
    assert_eq!(other.ask("SET key text"), client::ok());
    assert_eq!(other.ask("DEL key"), int(1));
    assert_eq!(other.ask("RPUSH key a"), int(1));
    assert_eq!(other.ask("DEL key"), int(1));
    assert_eq!(other.ask("ZADD key 2 b 1 a"), int(2));
    assert_eq!(waiting.reply(), bulks(&["key", "a", "1"]));
    assert_eq!(other.ask("ZCARD key"), int(1));
}

#[test]
fn a_wait_that_is_over_replies_a_null_array() {
    let server = Server::start();
    let mut client = server.connect();
    for command in ["BLPOP list 0.01", "BLMOVE list other LEFT LEFT 0.01", "BZMPOP 0.01 1 set MIN"] {
        assert_eq!(client.ask(command), nil(), "{command}");
    }
}

#[test]
fn a_field_expires_and_takes_an_empty_hash_with_it() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("HSET hash a 1 b 2 c 3"), int(3));
    assert_eq!(client.ask("HEXPIRE hash 100 FIELDS 3 a b none"), ints(&[1, 1, -2]));
    assert_eq!(client.ask("HTTL hash FIELDS 4 a b c none"), ints(&[100, 100, -1, -2]));
    assert_eq!(client.ask("HEXPIRE hash 200 NX FIELDS 2 a c"), ints(&[0, 1]));
    assert_eq!(client.ask("HEXPIRE hash 50 GT FIELDS 1 a"), ints(&[0]));
    assert_eq!(client.ask("HEXPIRE hash 50 LT FIELDS 1 a"), ints(&[1]));
    assert_eq!(client.ask("HINCRBY hash a 4"), int(5));
    assert_eq!(client.ask("HTTL hash FIELDS 1 a"), ints(&[50]));
    assert_eq!(client.ask("HSET hash a 1"), int(0));
    assert_eq!(client.ask("HTTL hash FIELDS 1 a"), ints(&[-1]));
    assert_eq!(client.ask("HPERSIST hash FIELDS 2 b a"), ints(&[1, -1]));
    assert_eq!(client.ask("HPEXPIREAT hash 1 FIELDS 1 a"), ints(&[2]));
    assert_eq!(client.ask("HGETALL hash"), bulks(&["b", "2", "c", "3"]));
    assert_eq!(client.ask("HPEXPIRE hash 1 FIELDS 2 b c"), ints(&[1, 1]));
    while client.ask("HLEN hash") != int(0) {
        std::thread::yield_now();
    }
    assert_eq!(client.ask("EXISTS hash"), int(0));
}

#[test]
fn wrong_field_lists_are_refused() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("HSET hash a 1");
    for (command, text) in [
        ("HEXPIRE hash 1 NX a b c", "ERR Mandatory argument FIELDS is missing or not at the right position"),
        ("HEXPIRE hash 1 FIELDS 0 a", "ERR Parameter `numFields` should be greater than 0"),
        ("HEXPIRE hash 1 FIELDS 2 a", "ERR The `numfields` parameter must match the number of arguments"),
        ("HEXPIRE hash -1 FIELDS 1 a", "ERR invalid expire time, must be >= 0"),
        ("HPEXPIREAT hash 9223372036854775807 FIELDS 1 a", "ERR invalid expire time in 'hpexpireat' command"),
    ] {
        assert_eq!(client.ask(command), error(text), "{command}");
    }
}

#[test]
fn numbers_on_which_random_commands_found_differences_are_those_of_redis() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("ZADD zeros 0 d"), int(1));
    // Minus zero and, as zero times infinity is no number, zero.
    assert_eq!(client.ask("ZUNION 2 zeros zeros WEIGHTS -1 inf WITHSCORES"), bulks(&["d", "0"]));
    assert_eq!(client.ask("ZUNION 1 zeros WEIGHTS -1 WITHSCORES"), bulks(&["d", "-0"]));
    assert_eq!(client.ask("HSET hash hex 0x10"), int(1));
    assert_eq!(client.ask("HINCRBYFLOAT hash hex 3"), bulk("19"));
    assert_eq!(client.ask("INCRBYFLOAT large 9223372036854775807"), bulk("9223372036854775807"));
    assert_eq!(client.ask("INCRBYFLOAT large 1.5"), bulk("9223372036854775808"));
}
