//! Transactions, subscriptions and connections over TCP.

mod client;

use client::{Reply, Server, bulk, bulks, error, int, nil, ok, simple};

#[test]
fn exec_runs_what_was_queued_and_fails_if_a_watched_key_was_changed() {
    let server = Server::start();
    let (mut one, mut other) = (server.connect(), server.connect());
    assert_eq!(one.ask("WATCH key"), ok());
    assert_eq!(one.ask("MULTI"), ok());
    assert_eq!(one.ask("SET key 1"), simple("QUEUED"));
    assert_eq!(one.ask("INCR key"), simple("QUEUED"));
    assert_eq!(one.ask("EXEC"), Reply::Array(vec![ok(), int(2)]));

    assert_eq!(one.ask("WATCH key"), ok());
    assert_eq!(other.ask("SET key 5"), ok());
    assert_eq!(one.ask("MULTI"), ok());
    assert_eq!(one.ask("INCR key"), simple("QUEUED"));
    assert_eq!(one.ask("EXEC"), nil());
    assert_eq!(one.ask("GET key"), bulk("5"));
}

#[test]
fn exec_fails_if_a_watched_key_expired_was_flushed_or_swapped() {
    let server = Server::start();
    let (mut one, mut other) = (server.connect(), server.connect());
    for change in ["FLUSHALL", "SWAPDB 0 1", "DEL key", "RENAME key other"] {
        assert_eq!(one.ask("SET key 1"), ok());
        assert_eq!(one.ask("WATCH key"), ok());
        assert_ne!(other.ask(change), nil());
        assert_eq!(one.ask("MULTI"), ok());
        assert_eq!(one.ask("PING"), simple("QUEUED"));
        assert_eq!(one.ask("EXEC"), nil(), "{change}");
    }
    assert_eq!(one.ask("WATCH absent"), ok());
    assert_eq!(other.ask("FLUSHALL"), ok());
    assert_eq!(one.ask("MULTI"), ok());
    assert_eq!(one.ask("PING"), simple("QUEUED"));
    assert_eq!(one.ask("EXEC"), Reply::Array(vec![simple("PONG")]));
}

#[test]
fn a_transaction_with_a_refused_command_is_discarded() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("MULTI"), ok());
    assert_eq!(client.ask("SET key"), error("ERR wrong number of arguments for 'set' command"));
    assert_eq!(client.ask("SET key 1"), simple("QUEUED"));
    assert_eq!(client.ask("EXEC"), error("EXECABORT Transaction discarded because of previous errors."));
    assert_eq!(client.ask("GET key"), nil());
    assert_eq!(client.ask("EXEC"), error("ERR EXEC without MULTI"));
}

#[test]
fn messages_reach_subscribers_of_channels_patterns_and_shards() {
    let server = Server::start();
    let (mut listener, mut speaker) = (server.connect(), server.connect());
    listener.send("SUBSCRIBE news");
    assert_eq!(listener.reply(), Reply::Array(vec![bulk("subscribe"), bulk("news"), int(1)]));
    assert_eq!(listener.ask("PSUBSCRIBE n*"), Reply::Array(vec![bulk("psubscribe"), bulk("n*"), int(2)]));
    assert_eq!(
        listener.ask("SSUBSCRIBE shard"),
        Reply::Array(vec![bulk("ssubscribe"), bulk("shard"), int(1)])
    );
    assert_eq!(speaker.ask("PUBLISH news hello"), int(2));
    assert_eq!(speaker.ask("SPUBLISH shard deep"), int(1));
    assert_eq!(listener.reply(), bulks(&["message", "news", "hello"]));
    assert_eq!(listener.reply(), bulks(&["pmessage", "n*", "news", "hello"]));
    assert_eq!(listener.reply(), bulks(&["smessage", "shard", "deep"]));
    assert_eq!(
        listener.ask("GET key"),
        error(
            "ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        )
    );
    assert_eq!(speaker.ask("PUBSUB NUMSUB news"), Reply::Array(vec![bulk("news"), int(1)]));
    drop(listener);
}

#[test]
fn keyspace_notices_tell_what_changed() {
    let server = Server::start();
    let (mut listener, mut speaker) = (server.connect(), server.connect());
    assert_eq!(speaker.ask("CONFIG SET notify-keyspace-events KEA"), ok());
    assert_eq!(
        listener.ask("PSUBSCRIBE __key*"),
        Reply::Array(vec![bulk("psubscribe"), bulk("__key*"), int(1)])
    );
    assert_eq!(speaker.ask("SET key 1 EX 100"), ok());
    for (channel, message) in [
        ("__keyspace@0__:key", "set"),
        ("__keyevent@0__:set", "key"),
        ("__keyspace@0__:key", "expire"),
        ("__keyevent@0__:expire", "key"),
    ] {
        assert_eq!(listener.reply(), bulks(&["pmessage", "__key*", channel, message]));
    }
}

#[test]
fn a_password_is_asked_for_and_resp3_is_spoken_after_hello() {
    let server = Server::start_with(|core| {
        core.server.config.load("requirepass", "secret").unwrap();
        core.server.apply_config();
    });
    let mut client = server.connect();
    assert_eq!(client.ask("GET key"), error("NOAUTH Authentication required."));
    assert_eq!(
        client.ask("AUTH wrong"),
        error("WRONGPASS invalid username-password pair or user is disabled.")
    );
    let Reply::Map(hello) = client.ask("HELLO 3 AUTH default secret") else { panic!("HELLO answers a map") };
    assert_eq!(hello[4..6], [bulk("proto"), int(3)]);
    assert!(matches!(client.ask("CONFIG GET maxmemory"), Reply::Map(_)));
    assert_eq!(client.ask("RESET"), simple("RESET"));
    assert_eq!(client.ask("GET key"), error("NOAUTH Authentication required."));
}

#[test]
fn replies_are_switched_off_and_skipped() {
    let server = Server::start();
    let mut client = server.connect();
    client.send("CLIENT REPLY OFF");
    client.send("SET key 1");
    assert_eq!(client.ask("CLIENT REPLY ON"), ok());
    client.send("CLIENT REPLY SKIP");
    client.send("SET key 2");
    assert_eq!(client.ask("GET key"), bulk("2"));
}

#[test]
fn a_killed_client_is_closed() {
    let server = Server::start();
    let (mut one, mut other) = (server.connect(), server.connect());
    let Reply::Int(id) = one.ask("CLIENT ID") else { panic!("CLIENT ID answers a number") };
    assert_eq!(other.ask(&format!("CLIENT KILL ID {id}")), int(1));
    assert!(one.is_closed());
    assert_eq!(other.ask("PING"), simple("PONG"));
}

#[test]
fn a_scan_returns_every_key() {
    let server = Server::start();
    let mut client = server.connect();
    for number in 0..1000 {
        client.send(&format!("SET key:{number} {number}"));
    }
    for _ in 0..1000 {
        assert_eq!(client.reply(), ok());
    }
    let mut found = std::collections::HashSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let Reply::Array(parts) = client.ask(&format!("SCAN {cursor} COUNT 50 MATCH key:*")) else {
            panic!("an array")
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = &parts[..] else { panic!("{parts:?}") };
        for key in keys {
            let Reply::Bulk(key) = key else { panic!("{key:?}") };
            found.insert(key.clone());
        }
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 1000);
    assert_eq!(client.ask("DBSIZE"), int(1000));
}
