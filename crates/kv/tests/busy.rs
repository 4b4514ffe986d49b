//! Scripts that run for long, and the clients beside them.

mod client;

use client::{Client, Reply, Server, error, ok};
use std::sync::Arc;
use terrace_kv::storage::Storage;
use terrace_kv::storage::engine::EngineStorage;

const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const BUSY_FUNCTION: &str =
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";

/// A client whose script runs, and one that has been answered `BUSY`.
fn run_for_long(server: &Server, script: &[&[u8]]) -> (Client, Client) {
    let (mut runner, mut other) = (server.connect(), server.connect());
    assert_eq!(other.ask("CONFIG SET busy-reply-threshold 20"), ok());
    runner.send_args(script);
    while !matches!(other.ask("PING"), Reply::Error(text) if text.starts_with("BUSY")) {}
    (runner, other)
}

fn assert_killed(runner: &mut Client) {
    let reply = runner.reply();
    assert!(matches!(&reply, Reply::Error(text) if text.contains("Script killed by user")), "{reply:?}");
    assert_eq!(runner.ask("PING"), client::simple("PONG"));
}

#[test]
fn others_are_answered_busy_and_can_end_the_script() {
    let server = Server::start();
    assert_eq!(server.connect().ask("SCRIPT KILL"), error("NOTBUSY No scripts in execution right now."));
    for script in [
        "while true do end",
        "while true do redis.call('GET', 'key') end",
        "local f = function() while 1 do redis.call('ping') end end while 1 do pcall(f) end",
        "local f = function() while 1 do redis.call('ping') end end local g = function() while 1 do pcall(f) end end while 1 do pcall(g) end",
    ] {
        let (mut runner, mut other) = run_for_long(&server, &[b"EVAL", script.as_bytes(), b"0"]);
        assert_eq!(other.ask("GET key"), error(BUSY));
        assert_eq!(other.ask("FUNCTION KILL"), error(BUSY));
        assert_eq!(other.ask("SHUTDOWN"), error(BUSY));
        assert_eq!(other.ask("MULTI"), ok());
        assert_eq!(other.ask("GET key"), error(BUSY));
        assert!(matches!(other.ask("EXEC"), Reply::Error(text) if text.starts_with("EXECABORT")));
        // One that comes only now.
        let mut late = server.connect();
        assert_eq!(late.ask("GET key"), error(BUSY));
        assert_eq!(late.ask("SCRIPT KILL"), ok());
        assert_killed(&mut runner);
        assert_eq!(other.ask("GET key"), Reply::Null);
        assert_eq!(late.ask("GET key"), Reply::Null);
    }
}

#[test]
fn clients_of_other_event_loops_are_answered_busy_too() {
    let server = Server::start();
    let mut first = server.connect();
    assert_eq!(first.ask("CONFIG SET io-threads 3 io-threads-min 3"), ok());
    while server.core.lock().server.loops.len() != 3 {
        assert_eq!(first.ask("PING"), client::simple("PONG"));
    }
    let mut others: Vec<Client> = (0..6).map(|_| server.connect()).collect();
    for other in &mut others {
        assert_eq!(other.ask("PING"), client::simple("PONG"));
    }
    let (mut runner, _) = run_for_long(&server, &[b"EVAL", b"while true do end", b"0"]);
    for other in &mut others {
        assert_eq!(other.ask("PING"), error(BUSY));
    }
    assert_eq!(others[4].ask("SCRIPT KILL"), ok());
    assert_killed(&mut runner);
    for other in &mut others {
        assert_eq!(other.ask("PING"), client::simple("PONG"));
    }
}

#[test]
fn a_function_is_ended_by_its_own_command() {
    let server = Server::start();
    let mut client = server.connect();
    let library = b"#!lua name=lib\nredis.register_function('runs', function() while true do end end)";
    client.ask_args(&[b"FUNCTION", b"LOAD", library]);
    let (mut runner, mut other) = run_for_long(&server, &[b"FCALL", b"runs", b"0"]);
    assert_eq!(other.ask("GET key"), error(BUSY_FUNCTION));
    assert_eq!(other.ask("SCRIPT KILL"), error(BUSY_FUNCTION));
    let Reply::Array(stats) = other.ask("FUNCTION STATS") else { panic!() };
    let Reply::Array(running) = &stats[1] else { panic!("{stats:?}") };
    assert_eq!(running[..2], [client::bulk("name"), client::bulk("runs")]);
    assert_eq!(other.ask("FUNCTION KILL"), ok());
    assert_killed(&mut runner);
}

#[test]
fn a_script_that_has_written_is_not_ended() {
    let server = Server::start();
    let script = b"redis.call('SET', KEYS[1], '1') while redis.call('GET', KEYS[1]) == '1' do end";
    let (mut runner, mut other) = run_for_long(&server, &[b"EVAL", script, b"1", b"key"]);
    let reply = other.ask("SCRIPT KILL");
    assert!(matches!(&reply, Reply::Error(text) if text.starts_with("UNKILLABLE")), "{reply:?}");
    assert_eq!(other.ask("PING"), error(BUSY));
    other.send("SHUTDOWN NOSAVE");
    assert!(other.is_closed());
    // It may have been told that it was broken off.
    let _ = runner.reply_if_any();
    assert!(runner.is_closed());
}

#[test]
fn nothing_of_a_script_that_a_shutdown_broke_off_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let open = || loop {
        let config = terrace::Config::new(dir.path()).log(8 << 20).memory(16 << 20);
        match terrace::Db::open_with(config) {
            Ok(db) => break EngineStorage::open(db).unwrap(),
            // A removal in the background has the last handle of the instance before.
            Err(error) if error.kind() == terrace::ErrorKind::Busy => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    {
        let server = Server::start_on(open() as Arc<dyn Storage>);
        assert_eq!(server.connect().ask("MSET before 1 both 1"), ok());
        let script = b"redis.call('MSET', 'both', '2', 'half', '2') while true do end";
        let (_runner, mut other) = run_for_long(&server, &[b"EVAL", script, b"2", b"both", b"half"]);
        other.send("SHUTDOWN NOSAVE");
        assert!(other.is_closed());
    }
    let server = Server::start_on(open() as Arc<dyn Storage>);
    let found = server.connect().ask("MGET before both half");
    assert_eq!(found, Reply::Array(vec![client::bulk("1"), client::bulk("1"), Reply::Null]));
}
