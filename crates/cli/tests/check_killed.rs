//! A process that writes is killed at random moments, again and again, on one instance; `terrace check` must find it
//! sound each time, with unfinished transactions, deletes that are not purged, and blocks that are being sunk.
//!
//! `TERRACE_CHECK_RUNS` says how often (default 5).

mod instance;

use instance::{Instance, create};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Table;
use terrace_engine::config::{Bytes, Config};
use terrace_io::object;
use terrace_io::random::Random;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;

const ROOT: &str = "TERRACE_KILLED_ROOT";
const HOLD: &str = "TERRACE_KILLED_HOLD";
const WRITERS: u64 = 3;
/// Transactions after which a look proves something.
const ENOUGH: u64 = 60;

fn open(root: &std::path::Path) -> Arc<Engine> {
    let at = |name: &str| root.join(name).to_str().unwrap().to_string();
    let store = object::open(&object::Settings::new(&at("objects"))).unwrap();
    let volume = Arc::new(RealDisk::open(at("volume")).unwrap());
    let config = Config {
        memory: Bytes(16 << 20),
        log: Bytes(8 << 20),
        log_partitions: 2,
        // Far less than the data becomes.
        object_buffer: Bytes(8 << 20),
        sink_after_ms: 20,
        ..Config::default()
    };
    Engine::open(config, Parts { world: world(), volume, flash: None, store: Some(store) }).unwrap()
}

/// The entry of a row: its group and its key.
fn entry_key(row: &[u8], key: u64) -> Vec<u8> {
    [&row[..8], &key.to_be_bytes()].concat()
}

fn entry(key: &[u8]) -> Entry<'_> {
    Entry { index: 1, key, unique_len: None, primary_at: 8, value: b"" }
}

/// One transaction of a few changes, committed, rolled back or left open for a while.
fn one(engine: &Arc<Engine>, table: &Arc<Table>, writer: u64, random: &dyn Random) -> Result<(), Error> {
    let txn = engine.begin(Isolation::RepeatableRead);
    for _ in 0..1 + random.below(40) {
        let key = random.below(4000) * WRITERS + writer;
        let mut old = Vec::new();
        let found = txn.get(table, &key.to_be_bytes(), Lock::None, &mut old)?;
        let len = if random.below(25) == 0 { 20_000 + random.below(60_000) } else { 20 + random.below(1500) };
        let new = [&random.below(50).to_be_bytes()[..], &vec![key as u8; len as usize]].concat();
        let (old_key, new_key) =
            (if found { entry_key(&old, key) } else { Vec::new() }, entry_key(&new, key));
        match (found, random.below(3)) {
            (false, _) => txn.insert(table, &key.to_be_bytes(), &new, &[entry(&new_key)])?,
            (true, 0) => txn.delete(table, &key.to_be_bytes(), &[entry(&old_key)])?,
            (true, _) if old_key == new_key => txn.update(table, &key.to_be_bytes(), &new, &[], &[])?,
            (true, _) => {
                txn.update(table, &key.to_be_bytes(), &new, &[entry(&old_key)], &[entry(&new_key)])?
            }
        }
    }
    match random.below(4) {
        0 => txn.rollback(),
        1 => txn.commit()?.wait(),
        _ => txn.commit().map(drop),
    }
}

/// The process that is killed. Does nothing unless the environment variable is set.
#[test]
fn writes_in_a_process_of_its_own_until_killed() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let engine = open(root.as_ref());
    let table = engine.open_table("d/t").or_else(|_| Ok::<_, Error>(create(&engine))).unwrap();
    let view = engine.begin(Isolation::RepeatableRead);
    if std::env::var(HOLD).is_ok() {
        view.open_view(); // purge cannot pass it
    }
    println!("\nwriting");
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (engine, table, done) = (&engine, &table, &done);
            scope.spawn(move || {
                loop {
                    match one(engine, table, writer, &*world().random) {
                        Ok(()) if done.fetch_add(1, Ordering::Relaxed) + 1 == ENOUGH => println!("\nenough"),
                        // What the kill before left is rolled back in the background, with its locks.
                        Ok(()) | Err(Error::LockTimeout | Error::Unavailable(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}

#[test]
fn a_killed_instance_is_found_sound() {
    let runs: u64 = std::env::var("TERRACE_CHECK_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(5);
    let instance = Instance::empty("killed");
    std::fs::create_dir_all(&instance.root).unwrap();
    let random = world().random;
    let (mut unfinished, mut undo, mut objects, mut most, mut leaked) = (0, 0, 0, 0, 0);
    for run in 0..runs {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "writes_in_a_process_of_its_own_until_killed", "--nocapture"])
            .env(ROOT, &instance.root);
        if run % 3 != 0 {
            child.env(HOLD, "1");
        }
        let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "writing"), "run {run}: the writer did not start");
        // Every fourth is killed early, the others when they have done something worth a look, however slow the machine.
        if run % 4 != 3 {
            assert!(lines.any(|line| line.unwrap() == "enough"), "run {run}: the writer ended");
        }
        std::thread::sleep(Duration::from_millis(20 + random.below(500)));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        let report = instance.json("check", &[]);
        assert_eq!(report["exit"], 0, "run {run}: {report:#}");
        let count = |name: &str| report[name].as_u64().unwrap();
        unfinished += u64::from(count("unfinished_transactions") > 0);
        undo += u64::from(count("undo_records") > 0);
        objects += u64::from(count("pages_object") > 0);
        most = most.max(count("entries"));
        leaked += u64::from(report["leaked"]["count"] != 0);
        // An object put and not published, or superseded and not deleted yet; no page and no delete mark.
        let first = report["leaked"]["first"].as_array().unwrap();
        let objects_only = first.iter().all(|what| what.as_str().unwrap().starts_with("object "));
        assert!(objects_only, "run {run}: {first:?}");
        if std::env::var("TERRACE_TRACE").is_ok() {
            eprintln!("{run}: {}", report["leaked"]);
        }
    }
    eprintln!(
        "{runs} kills, 0 false alarms; {unfinished} with unfinished transactions, {undo} with undo, {objects} with pages in \
         objects only, {leaked} with leaks; at most {most} entries ({} objects at last)",
        instance.json("status", &[])["objects"]
    );
    assert!(undo * 2 > runs && most > 1000, "the looks prove little");
    assert!(runs < 20 || (unfinished > 0 && objects > runs / 2), "the looks prove little");
}
