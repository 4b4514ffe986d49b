//! What concerns other clients: caches that are told of changes, pauses, monitors, replies that are off, users and their rights.

mod client;

use client::{Client, Reply, Server, bulk, bulks, int, nil, ok, simple};

fn invalidated(keys: &[&str]) -> Reply {
    Reply::Push(vec![bulk("invalidate"), bulks(keys)])
}

/// A client of RESP3.
fn connect3(server: &Server) -> Client {
    let mut client = server.connect();
    assert!(matches!(client.ask("HELLO 3"), Reply::Map(_)));
    client
}

fn id(client: &mut Client) -> i64 {
    match client.ask("CLIENT ID") {
        Reply::Int(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cached_key_is_invalidated_once_by_each_kind_of_change() {
    let server = Server::start();
    let (mut cache, mut other) = (connect3(&server), server.connect());
    assert_eq!(cache.ask("CLIENT TRACKING ON"), ok());
    for change in
        ["SET a 2", "DEL a", "APPEND a 1", "RENAME b a", "EXPIRE a 100", "PEXPIREAT a 1", "COPY b a REPLACE"]
    {
        assert_eq!(other.ask("MSET a 1 b 1"), ok());
        assert_eq!(cache.ask("GET a"), bulk("1"));
        assert!(!matches!(other.ask(change), Reply::Error(_)), "{change}");
        assert_eq!(cache.reply(), invalidated(&["a"]), "{change}");
        // It is told once: the next change of the key says nothing, as the key was not read again.
        assert_eq!(other.ask("SET a 1"), ok());
    }
    assert_eq!(cache.ask("GET nothing"), Reply::Null);
    assert_eq!(other.ask("FLUSHALL"), ok());
    assert_eq!(cache.reply(), Reply::Push(vec![bulk("invalidate"), Reply::Null]));
}

#[test]
fn own_changes_are_told_after_the_reply_unless_noloop() {
    let server = Server::start();
    let mut cache = connect3(&server);
    assert_eq!(cache.ask("CLIENT TRACKING ON"), ok());
    assert_eq!(cache.ask("GET a"), Reply::Null);
    assert_eq!(cache.ask("SET a 1"), ok());
    assert_eq!(cache.reply(), invalidated(&["a"]));
    assert_eq!(cache.ask("CLIENT TRACKING OFF"), ok());
    assert_eq!(cache.ask("CLIENT TRACKING ON NOLOOP"), ok());
    assert_eq!(cache.ask("GET a"), bulk("1"));
    assert_eq!(cache.ask("SET a 2"), ok());
    assert_eq!(cache.ask("PING"), simple("PONG"));
}

#[test]
fn optin_and_optout_obey_client_caching() {
    let server = Server::start();
    let (mut cache, mut other) = (connect3(&server), server.connect());
    assert_eq!(cache.ask("CLIENT TRACKING ON OPTIN"), ok());
    cache.ask("GET a");
    assert_eq!(cache.ask("CLIENT CACHING YES"), ok());
    cache.ask("GET b");
    cache.ask("GET c");
    assert_eq!(other.ask("MSET a 1 b 1 c 1"), ok());
    assert_eq!(cache.reply(), invalidated(&["b"]));
    assert_eq!(cache.ask("CLIENT TRACKING OFF"), ok());
    assert_eq!(cache.ask("CLIENT TRACKING ON OPTOUT"), ok());
    assert_eq!(cache.ask("CLIENT CACHING NO"), ok());
    cache.ask("GET a");
    cache.ask("GET b");
    assert_eq!(other.ask("MSET a 1 b 1"), ok());
    assert_eq!(cache.reply(), invalidated(&["b"]));
    assert!(matches!(cache.ask("CLIENT CACHING YES"), Reply::Error(_)));
}

#[test]
fn broadcast_names_the_changed_keys_of_its_prefixes() {
    let server = Server::start();
    let (mut cache, mut other) = (connect3(&server), server.connect());
    assert_eq!(cache.ask("CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:"), ok());
    assert_eq!(other.ask("SET other 1"), ok());
    assert_eq!(other.ask("SET user:1 1"), ok());
    assert_eq!(cache.reply(), invalidated(&["user:1"]));
    assert!(matches!(cache.ask("CLIENT TRACKING ON BCAST PREFIX user:1"), Reply::Error(_)));
    assert_eq!(other.ask("DEL item:1 user:1"), int(1));
    assert_eq!(cache.reply(), invalidated(&["user:1"]));
}

#[test]
fn a_client_of_resp2_is_told_through_another_one() {
    let server = Server::start();
    let (mut cache, mut listener, mut other) = (server.connect(), server.connect(), server.connect());
    let to = id(&mut listener);
    listener.send("SUBSCRIBE __redis__:invalidate");
    listener.reply();
    assert_eq!(cache.ask(&format!("CLIENT TRACKING ON REDIRECT {to}")), ok());
    assert_eq!(cache.ask("CLIENT GETREDIR"), int(to));
    cache.ask("GET a");
    assert_eq!(other.ask("SET a 1"), ok());
    let message = vec![bulk("message"), bulk("__redis__:invalidate"), bulks(&["a"])];
    assert_eq!(listener.reply(), Reply::Array(message));
}

#[test]
fn the_table_of_tracked_keys_is_bounded() {
    let server = Server::start();
    let (mut cache, mut other) = (connect3(&server), server.connect());
    assert_eq!(other.ask("CONFIG SET tracking-table-max-keys 10"), ok());
    assert_eq!(cache.ask("CLIENT TRACKING ON"), ok());
    let mut told = 0;
    for number in 0..30 {
        cache.send(&format!("GET k{number}"));
        while cache.reply() != Reply::Null {
            told += 1;
        }
    }
    assert!(told >= 19, "{told}");
    let core = server.core.lock();
    assert!(core.server.tracking.keys() <= 10);
    assert_eq!(core.server.tracking.keys(), core.server.tracking.items());
}

#[test]
fn a_subscriber_with_replies_off_gets_its_messages() {
    let server = Server::start();
    let (mut subscriber, mut other) = (server.connect(), server.connect());
    subscriber.send("CLIENT REPLY OFF");
    subscriber.send("PING");
    subscriber.send("SUBSCRIBE channel");
    assert_eq!(subscriber.reply(), Reply::Array(vec![bulk("subscribe"), bulk("channel"), int(1)]));
    assert_eq!(other.ask("PUBLISH channel hello"), int(1));
    assert_eq!(subscriber.reply(), Reply::Array(vec![bulk("message"), bulk("channel"), bulk("hello")]));
}

#[test]
fn a_pause_holds_back_writes_until_it_ends_and_keeps_their_order() {
    let server = Server::start();
    let (mut writer, mut admin) = (server.connect(), server.connect());
    assert_eq!(admin.ask("CLIENT PAUSE 1000000 WRITE"), ok());
    for number in 0..3 {
        writer.send(&format!("RPUSH list {number}"));
    }
    let waits = |core: &terrace_kv::server::Core| core.server.pause.waiting();
    while waits(&server.core.lock()) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(admin.ask("EXISTS list"), int(0));
    assert_eq!(admin.ask("CLIENT UNPAUSE"), ok());
    for number in 1..=3 {
        assert_eq!(writer.reply(), int(number));
    }
    assert_eq!(admin.ask("LRANGE list 0 -1"), bulks(&["0", "1", "2"]));
}

#[test]
fn keys_do_not_expire_while_clients_are_paused() {
    let server = Server::start();
    let mut one = server.connect();
    assert_eq!((one.ask("SET key 1"), one.ask("CLIENT PAUSE 1000000 WRITE")), (ok(), ok()));
    let expired = |one: &mut Client| {
        let Reply::Bulk(text) = one.ask("INFO stats") else { panic!("a text") };
        let text = String::from_utf8(text).unwrap();
        text.lines().find_map(|line| line.strip_prefix("expired_keys:")).unwrap().to_owned()
    };
    {
        let mut core = server.core.lock();
        let now_ms = core.dbs.all[0].now_ms;
        core.dbs.all[0].set_expiry(b"key", Some(now_ms));
    }
    // Not seen, and still there.
    assert_eq!((one.ask("GET key"), one.ask("DBSIZE")), (nil(), int(1)));
    assert_eq!(expired(&mut one), "0");
    assert_eq!(one.ask("CLIENT UNPAUSE"), ok());
    assert_eq!((one.ask("GET key"), one.ask("DBSIZE")), (nil(), int(0)));
    assert_eq!(expired(&mut one), "1");
}
