//! What concerns other clients: caches that are told of changes, pauses, monitors, replies that are off, users and their rights.

mod client;

use client::{Client, Reply, Server, bulk, bulks, error, int, ok, simple};

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
fn a_monitor_sees_commands_but_no_passwords() {
    let server = Server::start();
    let (mut monitor, mut other) = (server.connect(), server.connect());
    assert_eq!(monitor.ask("MONITOR"), ok());
    other.ask("SET a \"\r\n\x01");
    other.ask("AUTH default secret");
    other.ask_args(&[b"EVAL", b"return redis.call('get', KEYS[1])", b"1", b"a"]);
    other.ask("CONFIG SET requirepass secret");
    other.ask("PING");
    let mut line = || match monitor.reply() {
        Reply::Simple(text) => text[text.find(']').unwrap() + 2..].to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(line(), r#""SET" "a" "\"\r\n\x01""#);
    assert_eq!(line(), r#""AUTH" "(redacted)" "(redacted)""#);
    assert!(line().starts_with(r#""EVAL""#));
    assert_eq!(line(), r#""get" "a""#);
    assert_eq!(line(), r#""PING""#);
}

fn as_user(server: &Server, name: &str, rules: &str) -> Client {
    let mut admin = server.connect();
    assert_eq!(admin.ask(&format!("ACL SETUSER {name} on >pw {rules}")), ok());
    let mut client = server.connect();
    assert_eq!(client.ask(&format!("AUTH {name} pw")), ok());
    client
}

const NO_KEY: &str = "NOPERM this user has no permissions to access one of the keys used as arguments";

#[test]
fn a_user_runs_what_one_of_its_selectors_allows_whole() {
    let server = Server::start();
    let mut user = as_user(
        &server,
        "ann",
        "~a:* %R~b:* &news* +@read +@write +publish -flushall (+@all -@dangerous ~c:*)",
    );
    assert_eq!(user.ask("SET a:1 x"), ok());
    assert_eq!(user.ask("GET b:1"), Reply::Null);
    assert_eq!(user.ask("SET b:1 x"), error(NO_KEY));
    assert_eq!(user.ask("SET c:1 x"), ok());
    assert_eq!(user.ask("MGET a:1 c:1"), error(NO_KEY));
    assert_eq!(user.ask("COPY b:1 a:2"), int(0));
    assert_eq!(user.ask("COPY a:2 b:1"), error(NO_KEY));
    assert_eq!(
        user.ask("FLUSHALL"),
        error("NOPERM this user has no permissions to run the 'flushall' command")
    );
    assert_eq!(user.ask("PUBLISH news1 x"), int(0));
    assert_eq!(
        user.ask("PUBLISH other x"),
        error("NOPERM this user has no permissions to access one of the channels used as arguments")
    );
    assert_eq!(user.ask("ACL WHOAMI"), bulk("ann"));
    assert_eq!(
        user.ask("CONFIG GET port"),
        error("NOPERM this user has no permissions to run the 'config|get' command")
    );
}

#[test]
fn a_script_may_do_no_more_than_its_user() {
    let server = Server::start();
    let mut user = as_user(&server, "ann", "~a:* +eval +get +set");
    let eval = |user: &mut Client, text: &str| user.ask_args(&[b"EVAL", text.as_bytes(), b"0"]);
    assert_eq!(eval(&mut user, "return redis.call('set', 'a:1', 'x')"), ok());
    for text in ["return redis.call('set', 'b:1', 'x')", "return redis.call('del', 'a:1')"] {
        match eval(&mut user, text) {
            Reply::Error(error) => assert!(error.contains("The user executing the script can't"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn changed_rules_hold_for_connections_and_queued_commands() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut user = as_user(&server, "ann", "~* +@all");
    assert_eq!(user.ask("MULTI"), ok());
    assert_eq!(user.ask("SET a 1"), simple("QUEUED"));
    assert_eq!(admin.ask("ACL SETUSER ann -set"), ok());
    match user.ask("EXEC") {
        Reply::Array(replies) => {
            assert!(matches!(&replies[0], Reply::Error(text) if text.starts_with("NOPERM")))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(admin.ask("EXISTS a"), int(0));
    assert_eq!(admin.ask("ACL DELUSER ann"), int(1));
    assert!(user.is_closed());
}

#[test]
fn requirepass_and_the_default_user_are_one() {
    let server = Server::start();
    let (mut admin, mut other) = (server.connect(), server.connect());
    assert_eq!(admin.ask("CONFIG SET requirepass pw"), ok());
    assert_eq!(other.ask("PING"), error("NOAUTH Authentication required."));
    assert_eq!(
        other.ask("AUTH wrong"),
        error("WRONGPASS invalid username-password pair or user is disabled.")
    );
    assert_eq!(other.ask("AUTH pw"), ok());
    assert_eq!(other.ask("PING"), simple("PONG"));
    assert_eq!(other.ask("ACL SETUSER default nopass"), ok());
    assert_eq!(server.connect().ask("PING"), simple("PONG"));
}

#[test]
fn the_description_of_a_user_makes_the_same_user() {
    let server = Server::start();
    let mut admin = server.connect();
    let rules = [
        "~a* %R~b* %W~c* &ch +@all -@dangerous -config|set +select|0",
        "on nopass allkeys allchannels +@hash +get -hset",
        "+@read +@write -get (~x +set) (allkeys +@list)",
        "+@all -@all +client -client|kill",
    ];
    for rules in rules {
        admin.ask("ACL DELUSER one two");
        assert_eq!(admin.ask(&format!("ACL SETUSER one {rules}")), ok(), "{rules}");
        let line = |admin: &mut Client, name: &str| match admin.ask("ACL LIST") {
            Reply::Array(lines) => lines
                .iter()
                .find_map(|line| match line {
                    Reply::Bulk(text) => String::from_utf8_lossy(text)
                        .strip_prefix(&format!("user {name} "))
                        .map(str::to_owned),
                    _ => None,
                })
                .unwrap(),
            other => panic!("{other:?}"),
        };
        let described = line(&mut admin, "one");
        assert_eq!(admin.ask(&format!("ACL SETUSER two {described}")), ok(), "{described}");
        assert_eq!(line(&mut admin, "two"), described, "{rules}");
        let core = server.core.lock();
        let (one, two) = (core.server.acl.get(b"one").unwrap(), core.server.acl.get(b"two").unwrap());
        assert_eq!((&one.root, &one.others), (&two.root, &two.others), "{described}");
    }
}
