//! A thousand rows updated over and over, each time with an entry of the secondary index, now and then
//! with a large value: the pages of every space and the history stay flat; behind a long reader they
//! grow, and are freed when it ends.
//!
//! `TERRACE_UPDATES` sets how many updates each test makes (default 200,000; the promise is about
//! 10,000,000).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::tree::space::{HEADER_PAGE, at};
use terrace_io::real::{disk::RealDisk, world};
use terrace_tier::page::{PageId, SpaceId};

const ROWS: u64 = 1000;
const LARGE: usize = 20_000;

fn updates() -> u64 {
    std::env::var("TERRACE_UPDATES").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000)
}

/// What may grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// Pages ever used by the table's trees, and those in use.
    table: u64,
    table_used: u64,
    /// The same of undo.
    undo: u64,
    undo_used: u64,
    /// Committed transactions not purged.
    history: u64,
    /// Transactions that visibility must remember.
    known: u64,
}

impl Size {
    fn max(self, other: Size) -> Size {
        Size {
            table: self.table.max(other.table),
            table_used: self.table_used.max(other.table_used),
            undo: self.undo.max(other.undo),
            undo_used: self.undo_used.max(other.undo_used),
            history: self.history.max(other.history),
            known: self.known.max(other.known),
        }
    }
}

struct Rig {
    directory: PathBuf,
    engine: Arc<Engine>,
    table: Arc<Table>,
    serial: AtomicU64,
    /// The longest history that a writer saw.
    history: AtomicU64,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.engine.core().storage.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Rig {
    fn new(name: &str, memory: u64) -> Rig {
        let directory = std::env::temp_dir().join(format!("terrace-flat-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let volume = Arc::new(RealDisk::open(&directory).unwrap());
        let config = Config {
            memory: Bytes(memory),
            log: Bytes(64 << 20),
            object_buffer: Bytes(16 << 30),
            ..Config::default()
        };
        let engine =
            Engine::open(config, Parts { world: world(), volume, flash: None, store: None }).unwrap();
        let index = |name: &str, unique| IndexDef { name: name.into(), unique };
        let def =
            TableDef { indexes: vec![index("PRIMARY", true), index("serial", true)], properties: Vec::new() };
        let table = engine.create_table("d/t", &def).unwrap();
        let rig = Rig { directory, engine, table, serial: AtomicU64::new(0), history: AtomicU64::new(0) };
        let txn = rig.engine.begin(Isolation::ReadCommitted);
        for key in 0..ROWS {
            let (row, entry) = rig.row(key);
            txn.insert(&rig.table, &key.to_be_bytes(), &row, &[self::entry(&entry)]).unwrap();
        }
        txn.commit().unwrap().wait().unwrap();
        rig
    }

    /// A new row: its serial number, then filling. And its entry's key.
    fn row(&self, key: u64) -> (Vec<u8>, [u8; 16]) {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        let len = if serial.is_multiple_of(200) { LARGE } else { 50 + (serial % 100) as usize };
        let mut row = vec![serial as u8; len];
        row[..8].copy_from_slice(&serial.to_be_bytes());
        let entry = entry_key(&row, key);
        (row, entry)
    }

    /// One update of one row, in a transaction of its own.
    fn update(&self, key: u64, old: &mut Vec<u8>, wait: bool) {
        loop {
            let txn = self.engine.begin(Isolation::ReadCommitted);
            txn.statement_begin();
            match self.update_in(&txn, key, old) {
                Ok(()) => {
                    let ticket = txn.commit().unwrap();
                    if wait {
                        ticket.wait().unwrap();
                    }
                    return;
                }
                Err(Error::Deadlock | Error::LockTimeout) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn update_in(&self, txn: &Arc<Txn>, key: u64, old: &mut Vec<u8>) -> Result<(), Error> {
        assert!(txn.get(&self.table, &key.to_be_bytes(), Lock::Exclusive, old)?, "row {key} is gone");
        let (row, new) = self.row(key);
        let old = entry_key(old, key);
        txn.update(&self.table, &key.to_be_bytes(), &row, &[entry(&old)], &[entry(&new)])
    }

    /// Makes `count` updates with `threads` threads. Returns the largest sizes seen, looking again and again.
    fn updates(&self, count: u64, threads: u64) -> Size {
        self.history.store(0, Ordering::Relaxed);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = self.size();
                while !done.load(Ordering::SeqCst) {
                    most = most.max(self.size());
                    std::thread::sleep(Duration::from_millis(2));
                }
                most
            });
            let writers: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut random = (thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                        let mut old = Vec::new();
                        for n in 0..count / threads {
                            random ^= random << 13;
                            random ^= random >> 7;
                            random ^= random << 17;
                            self.update(random % ROWS, &mut old, n % 1000 == 0);
                            if n % 64 == 0 {
                                let history = self.engine.core().purge.history.lock().len();
                                self.history.fetch_max(history, Ordering::Relaxed);
                            }
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::SeqCst);
            let most = watch.join().unwrap();
            most.max(Size { history: self.history.load(Ordering::Relaxed), ..most })
        })
    }

    fn undo_header(&self, field: usize) -> u64 {
        let pages = &self.engine.core().storage.pages;
        let guard = pages.read(PageId::new(SpaceId::UNDO, HEADER_PAGE), Access::Internal).unwrap();
        u64::from(guard.page().u32(field))
    }

    fn size(&self) -> Size {
        let mut size = Size::default();
        for index in 0..2 {
            let counts = self.table.tree(index).unwrap().space().counts();
            size.table += u64::from(counts.pages);
            size.table_used += u64::from(counts.pages - counts.free);
        }
        size.undo = self.undo_header(at::NEXT);
        size.undo_used = size.undo.saturating_sub(self.undo_header(at::FREE_COUNT));
        size.history = self.engine.core().purge.history.lock().len();
        size.known = self.engine.core().ids.known() as u64;
        size
    }

    /// The size when purge has caught up.
    fn at_rest(&self) -> Size {
        let until = Instant::now() + Duration::from_secs(600);
        while !self.engine.core().purge.history.lock().is_empty() {
            assert!(Instant::now() < until, "purge does not catch up: {:?}", self.size());
            self.engine.core().purge.wanted.notify();
            std::thread::sleep(Duration::from_millis(5));
        }
        self.size()
    }

    /// Each row once by each index, as the transaction sees them; their serial numbers.
    fn rows(&self, txn: &Arc<Txn>) -> Vec<u64> {
        let mut found = [vec![0; ROWS as usize], vec![0; ROWS as usize]];
        let mut row = Vec::new();
        for (index, serials) in found.iter_mut().enumerate() {
            let mut cursor = txn.cursor(&self.table, index, Lock::None, Access::Scan).unwrap();
            let mut valid = cursor.seek(&[], Seek::First).unwrap();
            while valid {
                cursor.row(&mut row).unwrap();
                let key = u64::from_be_bytes(cursor.primary_key().try_into().unwrap()) as usize;
                let serial = u64::from_be_bytes(row[..8].try_into().unwrap());
                assert!(row[8..].iter().all(|b| *b == serial as u8), "row {key} is not whole");
                assert_eq!(
                    std::mem::replace(&mut serials[key], serial),
                    0,
                    "row {key} is twice in index {index}"
                );
                valid = cursor.next().unwrap();
            }
        }
        assert_eq!(found[0], found[1]);
        assert!(!found[0].contains(&0));
        found[0].clone()
    }

    fn sound(&self) {
        // The checker walks trees that no thread changes.
        self.at_rest();
        self.rows(&self.engine.begin(Isolation::RepeatableRead));
        for index in 0..2 {
            assert_eq!(self.table.check(index).unwrap(), ROWS);
        }
        assert_eq!(self.engine.core().storage.map.faults(), Vec::<String>::new());
    }
}

fn entry_key(row: &[u8], key: u64) -> [u8; 16] {
    let mut entry = [0; 16];
    entry[..8].copy_from_slice(&row[..8]);
    entry[8..].copy_from_slice(&key.to_be_bytes());
    entry
}

fn entry(key: &[u8; 16]) -> Entry<'_> {
    Entry { index: 1, key, unique_len: Some(8), primary_at: 8, value: b"" }
}

/// The most pages that the table and undo may hold: a fixed number, and a page for every `TRANSACTIONS_A_PAGE`
/// transactions in the history. No number of updates exceeds these bounds.
const TABLE_MAX: u64 = 80;
const UNDO_MAX: u64 = 40;
const TRANSACTIONS_A_PAGE: u64 = 50;
/// Purge runs beside the writers, which may be faster for a while.
const HISTORY_MAX: u64 = 60_000;

fn stays_flat(name: &str, threads: u64) {
    let rig = Rig::new(name, 32 << 20);
    let part = updates() / 10;
    let began = Instant::now();
    let mut most = Size::default();
    for n in 1..=10 {
        most = most.max(rig.updates(part, threads));
        println!("{name}: {} updates, {:.1} s: at most {most:?}", n * part, began.elapsed().as_secs_f64());
        let held = most.history / TRANSACTIONS_A_PAGE;
        assert!(most.table <= TABLE_MAX + held && most.undo <= UNDO_MAX + held, "{most:?}");
        assert!(most.history <= HISTORY_MAX && most.known <= HISTORY_MAX, "{most:?}");
    }
    let rest = rig.at_rest();
    println!(
        "{name}: {:.0} updates a second; at rest {rest:?}",
        (10 * part) as f64 / began.elapsed().as_secs_f64()
    );
    assert!(rest.table_used <= TABLE_MAX && rest.undo_used <= UNDO_MAX / 2, "{rest:?}");
    rig.sound();
}

#[test]
fn updates_of_a_thousand_rows_leave_the_space_and_the_history_flat() {
    stays_flat("one", 1);
}

#[test]
fn updates_by_four_threads_leave_the_space_and_the_history_flat() {
    stays_flat("four", 4);
}

#[test]
fn pages_that_a_long_reader_held_back_are_freed_when_it_ends() {
    // The reader goes back over hundreds of versions of each row: not by reads of the volume.
    let rig = Rig::new("reader", (32 << 20) + 100 * updates());
    let part = updates() / 10;
    rig.updates(2 * part, 1);
    let before = rig.at_rest();
    let reader = rig.engine.begin(Isolation::RepeatableRead);
    let seen = rig.rows(&reader);
    let began = Instant::now();
    let seconds = || began.elapsed().as_secs_f64();
    rig.updates(3 * part, 1);
    let behind = rig.size();
    println!("reader: {} updates behind it, {:.1} s: {behind:?}", 3 * part, seconds());
    assert_eq!(rig.rows(&reader), seen, "the reader sees what came after it");
    println!("reader: read, {:.1} s", seconds());
    assert!(behind.history >= 3 * part, "purge took what the reader may see: {behind:?}");
    assert!(
        behind.table_used > before.table_used * 2 && behind.undo_used > before.undo_used * 2,
        "{behind:?}"
    );
    reader.commit().unwrap();
    let after = rig.at_rest();
    println!("reader: at rest before {before:?}, after {after:?}, {:.1} s", seconds());
    assert!(after.table_used <= TABLE_MAX && after.undo_used <= UNDO_MAX / 2, "not given back: {after:?}");
    assert!(after.known <= ROWS, "remembered still: {after:?}");
    // Freed pages are reused: nothing grows further, except when all free pages are in limbo because a thread stands
    // still for long.
    let again = rig.updates(5 * part, 1);
    println!("reader: at most afterwards {again:?}");
    assert!(again.table <= after.table + 8 && again.undo <= after.undo + 8, "{again:?} after {after:?}");
    assert!(again.history <= HISTORY_MAX, "{again:?}");
    rig.sound();
}
