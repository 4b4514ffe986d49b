//! A server over TCP, asked as a client asks.

mod client;

use client::{Server, bulk, error, int, nil, ok};

#[test]
fn strings_and_expiry_work_end_to_end() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("PING"), client::simple("PONG"));
    assert_eq!(client.ask("SET key value"), ok());
    assert_eq!(client.ask("GET key"), bulk("value"));
    assert_eq!(client.ask("INCR count"), int(1));
    assert_eq!(client.ask("INCR key"), error("ERR value is not an integer or out of range"));
    assert_eq!(client.ask("EXPIRE key 100"), int(1));
    assert_eq!(client.ask("TTL key"), int(100));
    assert_eq!(client.ask("DEL key missing"), int(1));
    assert_eq!(client.ask("GET key"), nil());
    assert_eq!(client.ask("SET key value PXAT 1"), ok());
    assert_eq!(client.ask("GET key"), nil());
}

#[test]
fn pipelined_commands_are_answered_in_order() {
    let server = Server::start();
    let mut client = server.connect();
    for number in 0..5000 {
        client.send(&format!("SET key:{number} {number}"));
    }
    for _ in 0..5000 {
        assert_eq!(client.reply(), ok());
    }
    assert_eq!(client.ask("GET key:4999"), bulk("4999"));
}

#[test]
fn a_large_value_arrives_in_pieces_and_comes_back_whole() {
    let server = Server::start();
    let mut client = server.connect();
    let value = "x".repeat(20 << 20);
    assert_eq!(client.ask(&format!("SET large {value}")), ok());
    assert_eq!(client.ask("STRLEN large"), int(20 << 20));
    assert_eq!(client.ask("GET large"), bulk(&value));
}

#[test]
fn a_malformed_request_is_answered_and_the_connection_closed() {
    let server = Server::start();
    let mut client = server.connect();
    client.send_raw(b"*1\r\n$4\r\nPING\r\n*x\r\n");
    assert_eq!(client.reply(), client::simple("PONG"));
    assert_eq!(client.reply(), error("ERR Protocol error: invalid multibulk length"));
    assert!(client.is_closed());
}
