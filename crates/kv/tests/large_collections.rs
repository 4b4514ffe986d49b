//! Large collections over TCP, on the engine: a command on one field of a hash reads and writes a few rows whatever the size of the hash, across
//! restarts; what is deleted is removed from storage; old values, snapshot files and eviction.

mod client;
#[path = "large_collections/lists.rs"]
mod lists;
#[path = "large_collections/sorted_sets.rs"]
mod sorted_sets;

use client::durable::{Process, serve_if_asked};
use client::faulty::{Faulty, Healed};
use client::{Client, Reply, Server, bulk, bulks, error, int, nil, ok, simple};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, mpsc};
use terrace_kv::config::files::{Files, NewFile};
use terrace_kv::rdb::{Object, payload};
use terrace_kv::storage::engine::EngineStorage;
use terrace_kv::storage::{Elements, Key, Position, Storage, Stored};

#[global_allocator]
static ALLOCATOR: terrace_kv::memory::Allocator = terrace_kv::memory::Allocator;

#[test]
fn serves_in_a_process_of_its_own() {
    serve_if_asked();
}

fn start(dir: &Path, policy: &str) -> Process {
    Process::start_with(Some(dir), &[("appendfsync", "everysec"), ("tiering-write-policy", policy)])
}

fn info(client: &mut Client, name: &str) -> u64 {
    let Reply::Bulk(text) = client.ask("INFO all") else { panic!("a text") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
}

/// Fields `f0` and so on with values of `bytes`.
fn fill(client: &mut Client, key: &str, fields: usize, bytes: usize) {
    // A command's fields are in memory together.
    let together = (100_000 / (bytes + 10)).min(1000);
    for first in (0..fields).step_by(together) {
        let pairs: Vec<String> = (first..fields.min(first + together))
            .map(|number| format!("f{number} {}", value(number, bytes)))
            .collect();
        let reply = client.ask(&format!("HSET {key} {}", pairs.join(" ")));
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
    }
}

fn value(number: usize, bytes: usize) -> String {
    format!("{number}:{}", "v".repeat(bytes))
}

fn fields(reply: Reply) -> BTreeMap<String, String> {
    let Reply::Array(all) = reply else { panic!("{reply:?}") };
    let text = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    all.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn scan(client: &mut Client, key: &str) -> BTreeMap<String, String> {
    let (mut cursor, mut found) = ("0".to_owned(), BTreeMap::new());
    loop {
        let Reply::Array(mut piece) = client.ask(&format!("HSCAN {key} {cursor} COUNT 100")) else {
            panic!("a piece")
        };
        found.append(&mut fields(piece.pop().unwrap()));
        let Some(Reply::Bulk(next)) = piece.pop() else { panic!("a cursor") };
        cursor = String::from_utf8(next).unwrap();
        if cursor == "0" {
            return found;
        }
    }
}

/// What commands on single fields cost after a restart: rows read and written, and their bytes.
fn single_fields_cost_little(policy: &str) {
    const FIELDS: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), policy);
    fill(&mut server.connect(), "big", FIELDS, 10);
    server.stop();

    let server = start(dir.path(), policy);
    let mut one = server.connect();
    assert_eq!(one.ask("HLEN big"), int(FIELDS as i64));
    let before = info(&mut one, "tiering_reads");
    assert_eq!(one.ask("HGET big f77777"), bulk(&value(77_777, 10)));
    assert_eq!(one.ask("HGET big none"), nil());
    assert_eq!(one.ask("HGET big none"), nil());
    assert_eq!(
        one.ask("HMGET big f1 f2 none"),
        Reply::Array(vec![bulk(&value(1, 10)), bulk(&value(2, 10)), nil()])
    );
    assert_eq!(info(&mut one, "tiering_reads") - before, 4, "four fields were not known");
    assert_eq!(one.ask("HSET big f5 new another 1"), int(1));
    assert_eq!(one.ask("HDEL big f6 none"), int(1));
    assert_eq!(one.ask("HINCRBY big count 3"), int(3));
    assert_eq!(one.ask("HSETNX big f7 new"), int(0));
    assert_eq!(one.ask("HLEN big"), int(FIELDS as i64 + 1));
    server.stop();

    let server = start(dir.path(), policy);
    let mut one = server.connect();
    assert_eq!(
        one.ask("HMGET big f5 f6 f7 count another"),
        Reply::Array(vec![bulk("new"), nil(), bulk(&value(7, 10)), bulk("3"), bulk("1"),])
    );
    // Write-back stores when the server ends: asked of the server that has written.
    assert_eq!(one.ask("HSET big f8 newer"), int(0));
    assert_eq!(one.ask("CONFIG SET tiering-write-policy write-through"), ok());
    assert_eq!(one.ask("HSET big f9 newer"), int(0));
    let (rows, bytes) = (info(&mut one, "tiering_rows"), info(&mut one, "tiering_row_bytes"));
    assert!(rows <= 4, "two commands wrote {rows} rows");
    assert!(bytes < 200, "two commands wrote {bytes} bytes");
    assert_eq!(info(&mut one, "tiering_large_loads"), 0);
    assert_eq!(info(&mut one, "tiering_elements_ranged"), 0);
    assert_eq!(scan(&mut one, "big").len(), FIELDS + 1);
    assert_eq!(info(&mut one, "tiering_large_loads"), 0, "HSCAN reads pieces");
}

#[test]
fn commands_on_fields_of_a_hash_of_a_hundred_thousand_read_and_write_a_few_rows_after_a_restart() {
    single_fields_cost_little("write-through");
}

#[test]
fn the_same_holds_with_write_back() {
    single_fields_cost_little("write-back");
}

#[test]
fn commands_that_need_all_fields_read_them_all_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "write-through");
    fill(&mut server.connect(), "big", 5000, 4);
    server.kill();

    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    assert_eq!(one.ask("HSET big f1 new"), int(0));
    let all = fields(one.ask("HGETALL big"));
    assert_eq!(all.len(), 5000);
    assert_eq!((&all["f1"], &all["f2"]), (&"new".to_owned(), &value(2, 4)));
    assert_eq!(one.ask("COPY big copy"), int(1));
    assert!(matches!(one.ask("HRANDFIELD big"), Reply::Bulk(_)));
    assert_eq!(info(&mut one, "tiering_large_loads"), 1);
    // The copy is a collection of its own.
    assert_eq!(one.ask("HDEL copy f1"), int(1));
    assert_eq!(one.ask("HGET big f1"), bulk("new"));
    let script: [&[u8]; 6] =
        [b"EVAL", b"return redis.call('hget', KEYS[1], ARGV[1])", b"1", b"big", b"f2", b"unused"];
    assert_eq!(one.ask_args(&script), bulk(&value(2, 4)));
    assert_eq!(one.ask("MOVE big 1"), int(1));
    server.kill();
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    assert_eq!((one.ask("HLEN copy"), one.ask("EXISTS big")), (int(4999), int(0)));
    assert_eq!(one.ask("SELECT 1"), ok());
    assert_eq!((one.ask("HLEN big"), one.ask("HGET big f1")), (int(5000), bulk("new")));
    assert_eq!(one.ask("MULTI"), ok());
    for command in ["HSCAN big 0 COUNT 10000", "HLEN big", "RENAME big other", "HGET other f3"] {
        assert_eq!(one.ask(command), simple("QUEUED"));
    }
    let Reply::Array(mut replies) = one.ask("EXEC") else { panic!("replies") };
    assert_eq!(replies.split_off(1), [int(5000), ok(), bulk(&value(3, 4))]);
    assert_eq!(one.ask("SET other text"), ok());
    assert_eq!(
        one.ask("HGET other f3"),
        error("WRONGTYPE Operation against a key holding the wrong kind of value")
    );
}

#[test]
fn fields_of_a_large_hash_expire_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    fill(&mut one, "big", 1000, 4);
    assert_eq!(one.ask("HPEXPIRE big 100000 FIELDS 1 f1"), Reply::Array(vec![int(1)]));
    assert_eq!(one.ask("HPEXPIRE big 50 FIELDS 2 f2 f3"), Reply::Array(vec![int(1), int(1)]));
    server.kill();
    std::thread::sleep(std::time::Duration::from_millis(60));
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    assert_eq!(one.ask("HGET big f2"), nil());
    assert_eq!(one.ask("HLEN big"), int(998));
    let Reply::Array(times) = one.ask("HPTTL big FIELDS 3 f1 f3 f4") else { panic!("times") };
    let [Reply::Int(left), Reply::Int(-2), Reply::Int(-1)] = times[..] else { panic!("{times:?}") };
    assert!((1..=100_000).contains(&left), "{left}");
}

fn open(dir: &Path) -> Arc<EngineStorage> {
    let config = || terrace::Config::new(dir).log(16 << 20).memory(16 << 20);
    loop {
        match terrace::Db::open_with(config()) {
            Ok(db) => return EngineStorage::open(db).unwrap(),
            // A removal in the background has the last handle of the instance before.
            Err(error) if error.kind() == terrace::ErrorKind::Busy => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Closes the instance, and waits until its background work has let go of it.
fn close(dir: &Path, storage: Arc<EngineStorage>) {
    drop(storage);
    let config = || terrace::Config::new(dir).log(16 << 20).memory(16 << 20);
    while let Err(error) = terrace::Db::open_with(config()) {
        assert_eq!(error.kind(), terrace::ErrorKind::Busy, "{error}");
        std::thread::yield_now();
    }
}

fn elements(storage: &EngineStorage, generation: u64) -> Elements {
    let (told, heard) = mpsc::channel();
    storage.elements(generation, Position::default(), 10, Box::new(move |piece| told.send(piece).unwrap()));
    heard.recv().unwrap().unwrap()
}

#[test]
fn what_is_deleted_replaced_emptied_or_expired_is_removed_from_storage() {
    for policy in ["write-through", "write-back"] {
        let dir = tempfile::tempdir().unwrap();
        let server = start(dir.path(), policy);
        let mut one = server.connect();
        for key in ["deleted", "replaced", "expired", "kept", "renamed", "emptied"] {
            fill(&mut one, key, 1500, 4);
        }
        assert_eq!(one.ask("SELECT 1"), ok());
        fill(&mut one, "flushed", 1500, 4);
        server.stop();
        let server = start(dir.path(), policy);
        let mut one = server.connect();
        assert_eq!(one.ask("DEL deleted"), int(1));
        assert_eq!(one.ask("SET replaced text"), ok());
        assert_eq!(one.ask("PEXPIRE expired 1"), int(1));
        while one.ask("EXISTS expired") != int(0) {}
        assert_eq!(one.ask("RENAME kept renamed"), ok());
        let all: Vec<String> = (0..1500).map(|number| format!("f{number}")).collect();
        assert_eq!(one.ask(&format!("HDEL emptied {}", all.join(" "))), int(1500));
        assert_eq!(one.ask("EXISTS emptied"), int(0));
        assert_eq!(one.ask("SELECT 1"), ok());
        assert_eq!(one.ask("FLUSHDB"), ok());
        server.stop();
        let storage = open(dir.path());
        let next = storage.next_generation().unwrap();
        assert_eq!(next, 8, "seven hashes became large");
        // The removal goes on in the background.
        let mut left: BTreeSet<u64> = (1..next).collect();
        while left.len() > 1 {
            left.retain(|&generation| !elements(&storage, generation).found.is_empty());
            std::thread::yield_now();
        }
        close(dir.path(), storage);
        let server = start(dir.path(), policy);
        let mut one = server.connect();
        assert_eq!(one.ask("HLEN renamed"), int(1500));
        assert_eq!(scan(&mut one, "renamed").len(), 1500);
        assert_eq!(one.ask("DBSIZE"), int(2));
    }
}

#[test]
fn a_hash_that_was_stored_whole_is_read_and_becomes_large_with_its_next_change() {
    let dir = tempfile::tempdir().unwrap();
    let pairs = (0..1000).map(|n| (format!("f{n}").into_bytes(), format!("v{n}").into_bytes())).collect();
    let stored = Stored { expires_ms: None, rdb: payload::encode(&Object::Hash(pairs)) };
    let storage = open(dir.path());
    storage.load([(Key::new(0, b"old"), stored.clone())].into(), ("import", b"")).unwrap();
    close(dir.path(), storage);
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    assert_eq!(one.ask("HGET old f999"), bulk("v999"));
    assert_eq!(info(&mut one, "tiering_large_collections"), 0);
    assert_eq!(one.ask("HSET old f999 new"), int(0));
    assert_eq!(info(&mut one, "tiering_large_collections"), 1);
    assert_eq!(info(&mut one, "tiering_rows"), 1001);
    server.kill();
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    assert_eq!(one.ask("HMGET old f999 f0"), bulks(&["new", "v0"]));
    assert_eq!(info(&mut one, "tiering_reads"), 3);
    assert_eq!(one.ask("HLEN old"), int(1000));
    assert_eq!(one.ask("OBJECT ENCODING old"), bulk("hashtable"));
    assert_eq!(one.ask("SCAN 0 COUNT 10 TYPE hash"), Reply::Array(vec![bulk("0"), bulks(&["old"])]));
    server.stop();
    // An import replaces it, and its fields go.
    let storage = open(dir.path());
    storage.load([(Key::new(0, b"old"), stored)].into(), ("import", b"")).unwrap();
    while !elements(&storage, 1).found.is_empty() {
        std::thread::yield_now();
    }
}

/// A file of a snapshot, in memory.
#[derive(Clone, Default)]
struct Snapshot(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Snapshot {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl NewFile for Snapshot {
    fn finish(self: Box<Self>) -> std::io::Result<()> {
        Ok(())
    }
}

impl Files for Snapshot {
    fn read(&self, _: &str) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }
    fn begin(&self, _: &str) -> std::io::Result<Box<dyn NewFile>> {
        Ok(Box::new(self.clone()))
    }
    fn replace(&self, _: &str, _: &[u8]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    fn open(&self, _: &str) -> std::io::Result<Option<(Box<dyn std::io::Read>, u64)>> {
        Ok(None)
    }
}

#[test]
fn a_snapshot_file_has_large_collections_whole_with_what_is_not_stored_yet() {
    let dir = tempfile::tempdir().unwrap();
    let faulty = Faulty::new(open(dir.path()));
    let server = Server::start_on(faulty.clone());
    let snapshot = Snapshot::default();
    server.core.lock().server.files = Some(Box::new(snapshot.clone()));
    let mut one = server.connect();
    fill(&mut one, "big", 3000, 4);
    let members: Vec<String> = (0..1000).map(|number| format!("m{number}")).collect();
    assert_eq!(one.ask(&format!("SADD set {}", members.join(" "))), int(1000));
    let scored: Vec<String> = (0..1000).map(|number| format!("{number}.5 m{number}")).collect();
    assert_eq!(one.ask(&format!("ZADD scores {}", scored.join(" "))), int(1000));
    let elements: Vec<String> = (0..3000).map(|number| format!("element-{number}")).collect();
    assert_eq!(one.ask(&format!("RPUSH list {}", elements.join(" "))), int(3000));
    let healed = Healed(faulty);
    healed.hold_writes();
    one.send("HSET big f1 new added 1");
    healed.wait_for_write();
    one.send("HDEL big f2");
    one.send("SREM set m7");
    one.send("ZADD scores -1 m7");
    one.send("LPUSH list first");
    let mut two = server.connect();
    assert_eq!(two.ask("SAVE"), ok());
    let bytes = snapshot.0.lock().clone();
    let mut reader = terrace_kv::rdb::file::FileReader::new(&bytes[..], bytes.len() as u64).unwrap();
    let (mut hash, mut set) = (BTreeMap::new(), BTreeSet::new());
    let (mut scores, mut list) = (BTreeMap::new(), Vec::new());
    while let Some(record) = reader.next_record().unwrap() {
        let terrace_kv::rdb::file::Record::Key(record) = record else { continue };
        match record.object {
            Object::Hash(pairs) => hash.extend(pairs),
            Object::Set(members) => set.extend(members),
            Object::Zset(members) => scores.extend(members),
            Object::List(elements) => list.extend(elements),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(hash[&b"f1"[..]], b"new");
    assert_eq!(hash[&b"f3"[..]], value(3, 4).as_bytes());
    // The client that waits may have been executed after the save.
    assert!((3000..=3001).contains(&hash.len()) && (999..=1000).contains(&set.len()));
    assert_eq!((scores.len(), scores[&b"m8"[..]]), (1000, 8.5));
    list.retain(|element| element != b"first");
    assert!(list.iter().eq(elements.iter().map(String::as_bytes)), "{} elements", list.len());
}

#[test]
fn fields_are_evicted_one_by_one_and_all_of_them_can_be_read() {
    const FIELDS: usize = 120_000;
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(
        Some(dir.path()),
        &[("appendfsync", "everysec"), ("maxmemory", "96mb"), ("maxmemory-policy", "allkeys-lru")],
    );
    let mut one = server.connect();
    fill(&mut one, "big", FIELDS, 1000);
    assert!(info(&mut one, "tiering_elements_evicted") > 10_000);
    for number in (0..FIELDS).step_by(997) {
        assert_eq!(one.ask(&format!("HGET big f{number}")), bulk(&value(number, 1000)));
    }
    assert_eq!(one.ask("HLEN big"), int(FIELDS as i64));
    assert_eq!(info(&mut one, "tiering_large_loads"), 0);
}
