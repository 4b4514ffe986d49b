//! Strings: answers of redis-server 7.0.15 to the same commands.

mod client;

use client::{Reply, Server, bulk, error, int, ok};

fn pair(from: i64, to: i64) -> Reply {
    Reply::Array(vec![int(from), int(to)])
}

#[test]
fn sums_of_decimals_are_those_of_redis() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("RPUSH list 1");
    for (command, reply) in [
        ("SET n 10.50", ok()),
        ("INCRBYFLOAT n 0.1", bulk("10.6")),
        ("INCRBYFLOAT n -5", bulk("5.6")),
        ("SET n 5.0e3", ok()),
        ("INCRBYFLOAT n 2.0e2", bulk("5200")),
        ("INCRBYFLOAT n x", error("ERR value is not a valid float")),
        ("INCRBYFLOAT n inf", error("ERR increment would produce NaN or Infinity")),
        ("INCRBYFLOAT n nan", error("ERR value is not a valid float")),
        ("SET t abc", ok()),
        ("INCRBYFLOAT t 1", error("ERR value is not a valid float")),
        ("INCRBYFLOAT list 1", error("WRONGTYPE Operation against a key holding the wrong kind of value")),
        ("INCRBYFLOAT fresh 3", bulk("3")),
        ("OBJECT ENCODING fresh", bulk("embstr")),
        ("SET i 3", ok()),
        ("EXPIRE i 100", int(1)),
        ("INCRBYFLOAT i 1.10", bulk("4.1")),
        ("TTL i", int(100)),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
}

#[test]
fn the_longest_common_subsequence_is_told_in_every_form() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("SET a ohmytext");
    client.ask("SET b mynewtext");
    client.ask("RPUSH list 1");
    let long = || vec![pair(4, 7), pair(5, 8)];
    let runs =
        |runs: Vec<Reply>| Reply::Array(vec![bulk("matches"), Reply::Array(runs), bulk("len"), int(6)]);
    let both = || runs(vec![Reply::Array(long()), Reply::Array(vec![pair(2, 3), pair(0, 1)])]);
    let with_length = Reply::Array([long(), vec![int(4)]].concat());
    let not_string = || error("ERR The specified keys must contain string values");
    for (command, reply) in [
        ("LCS a b", bulk("mytext")),
        ("LCS a b LEN", int(6)),
        ("LCS a b IDX", both()),
        ("LCS a b IDX MINMATCHLEN -3", both()),
        ("LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN", runs(vec![with_length])),
        ("LCS a b IDX LEN", error("ERR If you want both the length and indexes, please just use IDX.")),
        ("LCS a none", bulk("")),
        ("LCS a list", not_string()),
        ("LCS a list foo", not_string()),
        ("LCS a b foo", error("ERR syntax error")),
        ("LCS a b MINMATCHLEN x", error("ERR value is not an integer or out of range")),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
    client.ask("CONFIG SET proto-max-bulk-len 1048576");
    client.ask_args(&[b"SET", b"long", &[b'x'; 1000]]);
    let refused = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
    assert_eq!(client.ask("LCS long long"), error(refused));
}

#[test]
fn waits_and_latencies_answer_as_redis_does() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("SET k v");
    for (command, reply) in [
        ("WAIT 1 10", int(0)),
        ("WAIT a 10", error("ERR value is not an integer or out of range")),
        ("WAIT 1 -1", error("ERR timeout is negative")),
        ("WAIT 1 a", error("ERR timeout is not an integer or out of range")),
        ("LATENCY LATEST", Reply::Array(vec![])),
        ("LATENCY HISTORY x", Reply::Array(vec![])),
        ("LATENCY HISTOGRAM nope", Reply::Array(vec![])),
        ("LATENCY RESET", int(0)),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
    let Reply::Array(histogram) = client.ask("LATENCY HISTOGRAM set") else { panic!("no array") };
    assert_eq!(histogram[0], bulk("set"));
    let Reply::Array(figures) = &histogram[1] else { panic!("no figures") };
    assert_eq!(figures[..3], [bulk("calls"), int(1), bulk("histogram_usec")]);
    let Reply::Array(steps) = &figures[3] else { panic!("no steps") };
    assert_eq!((steps.len(), &steps[1]), (2, &int(1)));
}

#[test]
fn each_command_with_subcommands_has_help() {
    let server = Server::start();
    let mut client = server.connect();
    for name in ["CLIENT", "CONFIG", "LATENCY", "MEMORY", "OBJECT", "SCRIPT", "SLOWLOG", "XGROUP", "XINFO"] {
        let Reply::Array(lines) = client.ask(&format!("{name} HELP")) else { panic!("{name}: no array") };
        let first = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        assert_eq!(lines[0], Reply::Simple(first));
        assert!(lines.len() > 3, "{name}");
    }
}
