//! The whole server, over TCP, with write-back: what storage does is nothing that a client waits for, and nothing that it loses.

mod client;

use client::faulty::{Fault, Faulty, Healed};
use client::{Client, Reply, Server, bulk, int, nil, ok, simple};
use std::sync::Arc;
use terrace_io::real::disk::RealDisk;
use terrace_kv::storage::engine::EngineStorage;

/// The fields are dropped in this order.
struct Setup {
    storage: Healed,
    server: Server,
    _dir: tempfile::TempDir,
}

/// What is dirty is written at once.
const EAGER: [(&str, &str); 2] = [("tiering-write-policy", "write-back"), ("tiering-dirty-max-ms", "1")];
/// It is written when the server ends, or is told to go back to write-through.
const LAZY: [(&str, &str); 2] = [("tiering-write-policy", "write-back"), ("tiering-dirty-max-ms", "3600000")];

impl Setup {
    fn new(settings: &[(&str, &str)]) -> Setup {
        let dir = tempfile::tempdir().unwrap();
        let config = terrace::Config::new(dir.path()).log(8 << 20).memory(16 << 20);
        let db = terrace::Db::open_with(config).unwrap();
        let log = RealDisk::open(dir.path().join("write-back")).unwrap();
        let storage = EngineStorage::open_with_log(db, Some(Arc::new(log))).unwrap();
        Setup::on(Healed(Faulty::new(storage)), settings, dir)
    }

    fn on(storage: Healed, settings: &[(&str, &str)], dir: tempfile::TempDir) -> Setup {
        let server = Server::start_on(storage.0.clone());
        {
            let mut core = server.core.lock();
            core.server.config.load("dir", "somewhere").unwrap();
            for (name, value) in settings {
                core.server.config.load(name, value).unwrap();
            }
        }
        Setup { storage, server, _dir: dir }
    }

    /// The same data in a server that has nothing in memory.
    fn restart(self, settings: &[(&str, &str)]) -> Setup {
        let Setup { storage, server, _dir } = self;
        drop(server);
        Setup::on(storage, settings, _dir)
    }
}

fn info(client: &mut Client, name: &str) -> String {
    let Reply::Bulk(text) = client.ask("INFO tiering") else { panic!("a text") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {text}")).to_owned()
}

fn number(client: &mut Client, name: &str) -> u64 {
    info(client, name).parse().unwrap()
}

/// Asks until `INFO tiering` says so.
fn wait_for(client: &mut Client, name: &str, is_it: impl Fn(&str) -> bool) {
    while !is_it(&info(client, name)) {}
}

#[test]
fn clients_are_answered_while_storage_stands_still() {
    let setup = Setup::new(&EAGER);
    let (mut one, mut two) = (setup.server.connect(), setup.server.connect());
    wait_for(&mut one, "tiering_mode", |mode| mode == "write-back");
    setup.storage.hold_writes();
    assert_eq!(one.ask("SET key 1"), ok());
    setup.storage.wait_for_write();
    assert_eq!((one.ask("INCR key"), two.ask("GET key"), two.ask("DBSIZE")), (int(2), bulk("2"), int(1)));
    assert_eq!((two.ask("DEL key"), two.ask("GET key"), two.ask("DBSIZE")), (int(1), nil(), int(0)));
    assert_eq!((one.ask("APPEND other x"), two.ask("KEYS *")), (int(1), client::bulks(&["other"])));
    setup.storage.release();
    let setup = setup.restart(&EAGER);
    let mut one = setup.server.connect();
    assert_eq!(
        (one.ask("MGET key other"), one.ask("DBSIZE")),
        (Reply::Array(vec![nil(), bulk("x")]), int(1))
    );
}

#[test]
fn changes_of_one_key_are_merged_into_one_row() {
    let setup = Setup::new(&LAZY);
    let mut one = setup.server.connect();
    wait_for(&mut one, "tiering_mode", |mode| mode == "write-back");
    for _ in 0..1000 {
        one.ask("INCR count");
        one.ask("SET other value");
    }
    assert_eq!((number(&mut one, "tiering_writes"), number(&mut one, "tiering_dirty_keys")), (0, 2));
    assert_eq!(one.ask("CONFIG SET tiering-write-policy write-through"), ok());
    wait_for(&mut one, "tiering_mode", |mode| mode == "write-through");
    assert_eq!((number(&mut one, "tiering_writes"), number(&mut one, "tiering_rows")), (1, 2));
    assert_eq!(number(&mut one, "tiering_dirty_keys"), 0);
    let setup = setup.restart(&LAZY);
    assert_eq!(
        setup.server.connect().ask("MGET count other"),
        Reply::Array(vec![bulk("1000"), bulk("value")])
    );
}

#[test]
fn a_write_that_fails_is_tried_again_and_no_client_hears_of_it() {
    for fault in [Fault::Refused, Fault::UnknownWritten, Fault::UnknownLost] {
        let setup = Setup::new(&EAGER);
        let mut one = setup.server.connect();
        assert_eq!((one.ask("SET key old EX 1000"), one.ask("SET gone 1")), (ok(), ok()));
        wait_for(&mut one, "tiering_dirty_keys", |keys| keys == "0");
        setup.storage.fail(fault, "key");
        assert_eq!(
            (one.ask("SET key new"), one.ask("SET added 1"), one.ask("DEL gone")),
            (ok(), ok(), int(1))
        );
        wait_for(&mut one, "tiering_writes_failed", |count| count != "0");
        assert!(info(&mut one, "tiering_write_failure").contains("does not answer"), "{fault:?}");
        assert_eq!(
            (one.ask("GET key"), one.ask("DBSIZE"), one.ask("INCR added")),
            (bulk("new"), int(2), int(2))
        );
        setup.storage.heal();
        wait_for(&mut one, "tiering_dirty_keys", |keys| keys == "0");
        assert_eq!(info(&mut one, "tiering_write_failure"), "none");
        assert_eq!(one.ask("DBSIZE"), int(2), "{fault:?}");
        let setup = setup.restart(&EAGER);
        let mut one = setup.server.connect();
        let values = Reply::Array(vec![bulk("new"), bulk("2"), nil()]);
        assert_eq!((one.ask("MGET key added gone"), one.ask("DBSIZE")), (values, int(2)), "{fault:?}");
        assert_eq!(one.ask("TTL key"), int(-1), "{fault:?}");
    }
}

#[test]
fn the_policy_is_changed_under_load_and_nothing_is_lost() {
    let setup = Setup::new(&[("tiering-dirty-max-ms", "20")]);
    let (told, heard) = std::sync::mpsc::channel();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (mut client, told, is_over) = (setup.server.connect(), told.clone(), is_over.clone());
            std::thread::spawn(move || {
                let mut count = 0;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    count += 1;
                    assert_eq!(client.ask(&format!("INCR count:{writer}")), int(count));
                    assert_eq!(
                        client.ask(&format!("RPUSH list:{writer}:{} {count}", count % 50)),
                        int((count - 1) / 50 + 1)
                    );
                    let _ = told.send(());
                }
                count
            })
        })
        .collect();
    let mut one = setup.server.connect();
    for policy in ["write-back", "write-through", "write-back", "write-through", "write-back"] {
        (0..300).for_each(|_| heard.recv().unwrap());
        assert_eq!(one.ask(&format!("CONFIG SET tiering-write-policy {policy}")), ok());
        wait_for(&mut one, "tiering_mode", |mode| mode == policy);
    }
    (0..300).for_each(|_| heard.recv().unwrap());
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    let counts: Vec<i64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let setup = setup.restart(&EAGER);
    let mut one = setup.server.connect();
    for (writer, count) in counts.into_iter().enumerate() {
        assert_eq!(one.ask(&format!("GET count:{writer}")), bulk(&count.to_string()));
        let pushed: i64 = (0..50)
            .map(|list| match one.ask(&format!("LLEN list:{writer}:{list}")) {
                Reply::Int(len) => len,
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(pushed, count);
    }
}

#[test]
fn writers_are_slowed_and_then_wait_while_storage_stands_still_and_readers_do_not() {
    let settings = [
        ("tiering-write-policy", "write-back"),
        ("tiering-dirty-max-ms", "1"),
        ("tiering-dirty-max-bytes", "65536"),
    ];
    let setup = Setup::new(&settings);
    let (mut writer, mut reader) = (setup.server.connect(), setup.server.connect());
    wait_for(&mut reader, "tiering_mode", |mode| mode == "write-back");
    setup.storage.hold_writes();
    let value = "v".repeat(1000);
    (0..200).for_each(|key| writer.send(&format!("SET key:{key} {value}")));
    wait_for(&mut reader, "tiering_commands_waited", |count| count != "0");
    let dirty = number(&mut reader, "tiering_dirty_bytes");
    assert!((65_536..80_000).contains(&dirty), "{dirty}");
    let delayed = number(&mut reader, "tiering_commands_delayed");
    assert!(delayed >= 10, "{delayed}");
    assert_eq!(reader.ask("GET key:0"), bulk(&value));
    setup.storage.release();
    (0..200).for_each(|_| assert_eq!(writer.reply(), ok()));
    assert_eq!(reader.ask("DBSIZE"), int(200));
}

#[test]
fn fetches_for_updates_are_made_together_and_a_read_does_not_wait_for_them() {
    let setup = Setup::new(&EAGER);
    let mut one = setup.server.connect();
    for key in 0..200 {
        assert_eq!(one.ask(&format!("SET key:{key} 1")), ok());
    }
    let setup = setup.restart(&LAZY);
    let mut clients: Vec<Client> = (0..50).map(|_| setup.server.connect()).collect();
    wait_for(&mut clients[0], "tiering_mode", |mode| mode == "write-back");
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&format!("INCR key:{number}"));
    }
    clients.iter_mut().for_each(|client| assert_eq!(client.reply(), int(2)));
    let (keys, calls) =
        (number(&mut clients[0], "tiering_reads"), number(&mut clients[0], "tiering_read_calls"));
    assert!(keys >= 50 && calls < keys, "{calls} calls for {keys} keys");
    // A read and an update of one key: one read of storage.
    setup.storage.hold_reads();
    clients[0].send("INCR key:100");
    clients[1].send("GET key:100");
    setup.storage.wait_for_reads(1);
    setup.storage.release();
    assert_eq!(clients[0].reply(), int(2));
    assert!(matches!(clients[1].reply(), Reply::Bulk(_)));
}

#[test]
fn a_flush_of_dirty_data_is_kept_in_order() {
    let setup = Setup::new(&LAZY);
    let mut one = setup.server.connect();
    wait_for(&mut one, "tiering_mode", |mode| mode == "write-back");
    assert_eq!((one.ask("SET old 1"), one.ask("SET both 1")), (ok(), ok()));
    assert_eq!(one.ask("CONFIG SET tiering-dirty-max-ms 1"), ok());
    wait_for(&mut one, "tiering_dirty_keys", |keys| keys == "0");
    assert_eq!(one.ask("CONFIG SET tiering-dirty-max-ms 3600000"), ok());
    assert_eq!((one.ask("SET dirty 1"), one.ask("FLUSHALL"), one.ask("DBSIZE")), (ok(), ok(), int(0)));
    assert_eq!((one.ask("GET old"), one.ask("SET both 2"), one.ask("DBSIZE")), (nil(), ok(), int(1)));
    let setup = setup.restart(&LAZY);
    let mut one = setup.server.connect();
    assert_eq!(one.ask("MGET old dirty both"), Reply::Array(vec![nil(), nil(), bulk("2")]));
    assert_eq!(one.ask("DBSIZE"), int(1));
}

#[test]
fn a_dirty_value_is_not_evicted() {
    let setup = Setup::new(&LAZY);
    let mut one = setup.server.connect();
    wait_for(&mut one, "tiering_mode", |mode| mode == "write-back");
    assert_eq!((one.ask("MULTI"), one.ask("SET key 1")), (ok(), simple("QUEUED")));
    assert_eq!(one.ask("EXEC"), Reply::Array(vec![ok()]));
    let core = setup.server.core.lock();
    let key = terrace_kv::storage::Key::new(0, b"key");
    assert!(!core.server.tier.as_ref().unwrap().queue.may_evict(&key));
}

#[test]
fn without_a_directory_the_policy_changes_nothing() {
    let server = Server::start();
    let mut one = server.connect();
    for policy in ["write-through", "write-back"] {
        assert_eq!(one.ask(&format!("CONFIG SET tiering-write-policy {policy}")), ok());
        assert_eq!((one.ask("SET key 1"), one.ask("GET key")), (ok(), bulk("1")));
    }
}
