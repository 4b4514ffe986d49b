//! Transactions under power loss, against a model: several sessions in one thread, interleaved by the
//! seed, with a unique and a plain secondary index, savepoints, rollbacks, large rows, rows changed together; power is lost at
//! an I/O step; after the restart every acknowledged commit must be found and no uncommitted change. Some transactions commit
//! in two phases, and are decided after the crash. Meanwhile a table is created and dropped again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::KeyChange;
use terrace_engine::Kind;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Row;
use terrace_engine::Savepoint;
use terrace_engine::Seek;
use terrace_engine::Span;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::offline::check::{self, Verdict};
use terrace_engine::offline::instance::OfflineInstance;
use terrace_engine::planted::ROLLBACKS_FAIL;
use terrace_io::disk::Disk;
use terrace_io::random::Random;
use terrace_io::store::{ObjectStore, Purpose};
use terrace_sim::{SimDisk, SimStore, SimWorld};

type Model = BTreeMap<u64, Vec<u8>>;
const SESSIONS: u64 = 3;

fn config(partitions: usize, store: bool) -> Config {
    Config {
        memory: Bytes(if store { 10 << 20 } else { 4 << 20 }),
        log: Bytes((3 << 20) * partitions as u64),
        log_partitions: partitions,
        // With a store, much smaller than the data becomes.
        object_buffer: Bytes(if store { 4 << 20 } else { 128 << 20 }),
        sink_after_ms: 5,
        flash: Bytes(64 << 20),
        lock_wait_timeout_ms: 1000,
        ..Config::default()
    }
}

/// The row's group, unique number and the two entries.
struct Keys {
    key: [u8; 8],
    plain: Vec<u8>,
    unique: Vec<u8>,
}

fn keys(key: u64, row: &[u8]) -> Keys {
    let plain = [&row[..1], &key.to_be_bytes()].concat();
    let unique = [&row[1..9], &key.to_be_bytes()].concat();
    Keys { key: key.to_be_bytes(), plain, unique }
}

fn entries(keys: &Keys) -> [Entry<'_>; 2] {
    [
        Entry { index: 1, key: &keys.plain, unique_len: None, primary_at: 1, value: b"x" },
        Entry { index: 2, key: &keys.unique, unique_len: Some(8), primary_at: 8, value: b"" },
    ]
}

/// What the other table has in turn: nothing, its first rows, its last ones.
fn other_states(generation: u64) -> [Model; 3] {
    let row = |n: u64, last: u64| {
        vec![(generation * 7 + n + 3 * last) as u8; if n % 4 == 3 { 30_000 } else { 2000 }]
    };
    let rows = |count: u64, last: u64| (0..count).map(|n| (n, row(n, last))).collect();
    [Model::new(), rows(14, 0), rows(12, 1)]
}

struct Session {
    txn: Option<Arc<Txn>>,
    /// What this session sees: the committed state when its view was opened, and its own changes.
    sees: Model,
    changed: BTreeMap<u64, Option<Vec<u8>>>,
    savepoint: Option<(Savepoint, Model, BTreeMap<u64, Option<Vec<u8>>>)>,
}

/// A transaction in two phases.
struct Prepared {
    xid: Vec<u8>,
    changed: BTreeMap<u64, Option<Vec<u8>>>,
    /// It was acknowledged as prepared.
    done: bool,
}

/// The other table: its generation, if it is there, and whether its rows were acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Other {
    generation: Option<u64>,
    filled: bool,
}

struct Run {
    sim: SimWorld,
    disk: Arc<SimDisk>,
    flash: Arc<SimDisk>,
    store: Option<Arc<SimStore>>,
    /// Blocks put into the store by all opens so far.
    sunk: u64,
    /// The flash as it was some time ago.
    old_flash: Option<terrace_sim::disk::Snapshot>,
    partitions: usize,
    committed: Model,
    /// States after each commit since the last acknowledged one, which is the first.
    candidates: Vec<Model>,
    serial: u64,
    /// Since the last acknowledged commit; the last one may be about to be prepared.
    prepared: Vec<Prepared>,
    /// Transactions that were decided after a crash.
    decided: u64,
    /// The other table as acknowledged, and what it is becoming.
    other: (Other, Option<Other>),
    /// How often the checker looked, at instances with unfinished transactions, with undo records.
    looks: (u64, u64, u64),
    /// How often nothing was left over.
    rests: u64,
    /// Whether rollbacks fail in this life, and how many did.
    failing: bool,
    failed: u64,
}

/// The parts of a large row that may be stored off-page; none in one row of three.
fn spans(row: &[u8]) -> Vec<Span> {
    let span = |at, len, name| Span { at, len, name };
    match row.len() as u32 {
        len if len > 10_000 && len % 3 > 0 => vec![span(100, 4000, 1), span(6000, len - 6100, 2)],
        _ => Vec::new(),
    }
}

impl Run {
    fn new(seed: u64, partitions: usize, with_store: bool) -> Run {
        // Few leaves are full: entries are shortened before.
        terrace_engine::planted::SHORTENED_AT_ONCE.set(true);
        let sim = SimWorld::new(seed);
        let (disk, flash) = (sim.disk("volume"), sim.disk("flash"));
        let store = with_store.then(|| sim.store("store"));
        Run {
            sim,
            disk,
            flash,
            store,
            sunk: 0,
            old_flash: None,
            partitions,
            committed: Model::new(),
            candidates: vec![Model::new()],
            serial: 0,
            prepared: Vec::new(),
            decided: 0,
            other: (Other::default(), None),
            looks: (0, 0, 0),
            rests: 0,
            failing: false,
            failed: 0,
        }
    }

    fn open(&self) -> Result<(Arc<Engine>, Arc<Table>), Error> {
        let store = self.store.clone().map(|store| store as Arc<dyn ObjectStore>);
        let config = config(self.partitions, store.is_some());
        // Beside a store, every other run has no flash: then far pages are read from objects.
        let flash = Some(self.flash.clone() as Arc<dyn Disk>)
            .filter(|_| store.is_none() || self.sim.seed.is_multiple_of(2));
        let parts = Parts { world: self.sim.world(), volume: self.disk.clone(), flash, store };
        let engine = Engine::open(config, parts)?;
        if self.sim.seed.is_multiple_of(2) {
            engine.set_bypass_from(10_000); // all large rows pass by the log
        }
        let table = match engine.open_table("db/t") {
            Err(Error::Absent(_)) => {
                let index = |name: &str, unique| IndexDef { name: name.into(), unique };
                let indexes = vec![index("PRIMARY", true), index("plain", false), index("number", true)];
                engine.create_table("db/t", &TableDef { indexes, properties: b"v1".to_vec() })?
            }
            other => other?,
        };
        Ok((engine, table))
    }

    fn acknowledged(&mut self) {
        self.candidates = vec![self.committed.clone()];
        self.prepared.clear();
    }

    /// Prepares, which makes all before durable. Others work before the decision.
    fn prepare(&mut self, txn: &Txn, changed: &BTreeMap<u64, Option<Vec<u8>>>) -> Result<(), Error> {
        self.serial += 1;
        let xid = self.serial.to_be_bytes().to_vec();
        let prepared = |done| Prepared { xid: xid.clone(), changed: changed.clone(), done };
        self.prepared.push(prepared(false));
        txn.prepare(&xid)?;
        self.acknowledged();
        self.prepared.push(prepared(true));
        self.sim.sched.run_some(self.sim.random.below(4) as usize);
        Ok(())
    }

    /// Makes or drops the other table.
    fn churn(&mut self, engine: &Arc<Engine>) -> Result<(), Error> {
        if self.other.0.generation.is_some() {
            self.other.1 = Some(Other::default());
            engine.drop_table("db/x")?;
            self.other = (Other::default(), None);
            return Ok(());
        }
        self.serial += 1;
        let generation = self.serial;
        let made = Other { generation: Some(generation), filled: false };
        self.other.1 = Some(made);
        let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
        let properties = generation.to_be_bytes().to_vec();
        let table = engine.create_table("db/x", &TableDef { indexes, properties })?;
        self.other = (made, None);
        let txn = engine.begin(Isolation::RepeatableRead);
        let [_, first, last] = other_states(generation);
        for (n, row) in &first {
            txn.insert(&table, &n.to_be_bytes(), row, &[])?;
        }
        txn.commit()?;
        // A past, which may be purged when the table is gone.
        let txn = engine.begin(Isolation::RepeatableRead);
        for n in first.keys() {
            match last.get(n) {
                Some(row) => txn.update(&table, &n.to_be_bytes(), row, &[], &[])?,
                None => txn.delete(&table, &n.to_be_bytes(), &[])?,
            }
        }
        txn.commit()?.wait()?;
        self.other.0.filled = true;
        Ok(())
    }

    fn check_other(&mut self, engine: &Arc<Engine>) {
        let seed = self.sim.seed;
        let (was, becoming) = self.other;
        let table = match engine.open_table("db/x") {
            Err(Error::Absent(_)) => None,
            table => Some(table.unwrap_or_else(|e| panic!("seed {seed}: the other table: {e}"))),
        };
        let generation =
            table.as_ref().map(|table| u64::from_be_bytes(table.properties().try_into().unwrap()));
        let known =
            generation == was.generation || becoming.is_some_and(|other| other.generation == generation);
        assert!(
            known,
            "seed {seed}: the other table is {generation:?}, it was {was:?} and was becoming {becoming:?}"
        );
        let mut found = Model::new();
        if let (Some(table), Some(generation)) = (&table, generation) {
            table.check(0).unwrap_or_else(|e| panic!("seed {seed}: the other table: {e}"));
            let txn = engine.begin(Isolation::RepeatableRead);
            let mut cursor = txn.cursor(table, 0, Lock::None, Access::Scan).unwrap();
            let mut row = Vec::new();
            let mut valid = cursor.seek(&[], Seek::First).unwrap();
            while valid {
                cursor.row(&mut row).unwrap();
                let n = u64::from_be_bytes(cursor.key().try_into().unwrap());
                found.insert(n, row.clone());
                valid = cursor.next().unwrap();
            }
            let must = was.filled && generation == was.generation.unwrap_or(0);
            let states = other_states(generation);
            let may = &states[if must { 2 } else { 0 }..];
            assert!(may.contains(&found), "seed {seed}: {} rows in the other table", found.len());
        }
        let filled = generation.is_some_and(|generation| found == other_states(generation)[2]);
        self.other = (Other { generation, filled }, None);
    }

    /// A row in place of `old`. If it is large, its off-page values often stay as they are, wholly or in part; if small, most of it stays.
    fn next_row(&mut self, old: Option<&Vec<u8>>) -> Vec<u8> {
        let mut row = self.random_row();
        if let Some(old) = old.filter(|old| !spans(old).is_empty())
            && !self.sim.random.one_in(4)
        {
            let start = row[..9].to_vec();
            row.clone_from(old);
            row[..9].copy_from_slice(&start);
            if self.sim.random.one_in(3) {
                row[7000] ^= 1;
            }
        } else if let Some(old) = old.filter(|old| old.len() < 4000)
            && !self.sim.random.one_in(4)
        {
            row.splice(9.., old[9..].iter().copied());
            let random = &self.sim.random;
            for _ in 0..1 + random.below(2) {
                let at = 9 + random.below(row.len() as u64 - 8) as usize;
                let end = (at + random.below(20) as usize).min(row.len());
                row.splice(at..end, vec![random.below(250) as u8; random.below(20) as usize]);
            }
        }
        row
    }

    fn random_row(&mut self) -> Vec<u8> {
        self.serial += 1;
        let random = &self.sim.random;
        let mut row = vec![random.below(7) as u8];
        row.extend_from_slice(&self.serial.to_be_bytes());
        // With a store there is much more than fits near.
        let len = if random.one_in(if self.store.is_some() { 6 } else { 40 }) {
            20_000 + random.below(30_000)
        } else {
            // Around the limit of what stays in a leaf, too.
            random.below(if random.one_in(10) { 5000 } else { 300 })
        };
        row.extend((0..len).map(|i| (i * 7) as u8));
        row
    }

    /// Works until `ops` are done or the machine dies.
    fn work(&mut self, ops: u64) -> Result<(), Error> {
        let (engine, table) = self.open()?;
        self.faults(true);
        self.failing = self.sim.random.one_in(2);
        let random: Arc<dyn Random> = self.sim.random.clone();
        ROLLBACKS_FAIL.set(self.failing.then_some(random));
        let worked = self.work_on(&engine, &table, ops);
        ROLLBACKS_FAIL.set(None);
        if let Some(cold) = &engine.core().storage.cold {
            self.sunk += cold.sinker.counters.blocks.load(Ordering::Relaxed);
        }
        worked
    }

    /// In one life of three the store fails, loses replies and throttles.
    fn faults(&self, on: bool) {
        let Some(store) = &self.store else { return };
        let on = on && self.sim.random.one_in(3);
        let set = |rate: &AtomicU64, n| rate.store(if on { n } else { 0 }, Ordering::SeqCst);
        set(&store.faults.unavailable, 20);
        set(&store.faults.unknown, 8);
        set(&store.faults.throttled, 20);
    }

    fn work_on(&mut self, engine: &Arc<Engine>, table: &Arc<Table>, ops: u64) -> Result<(), Error> {
        let mut sessions: Vec<Session> = (0..SESSIONS)
            .map(|_| Session { txn: None, sees: Model::new(), changed: BTreeMap::new(), savepoint: None })
            .collect();
        if self.sim.random.one_in(3) {
            self.churn(engine)?;
        }
        for _ in 0..ops {
            let which = self.sim.random.below(SESSIONS);
            self.one(engine, table, which, &mut sessions[which as usize])?;
            if self.sim.random.one_in(60) {
                self.churn(engine)?;
            }
            if self.sim.random.one_in(6) {
                self.sim.sched.run_some(4);
                self.sim.clock.advance(1_000_000);
            }
        }
        drop(sessions);
        let txn = engine.begin(Isolation::RepeatableRead);
        self.scan(table, &txn, &self.committed)?;
        drop(txn);
        if self.sim.random.one_in(3) {
            engine.shutdown()?;
            self.acknowledged();
        }
        Ok(())
    }

    fn one(
        &mut self,
        engine: &Arc<Engine>,
        table: &Arc<Table>,
        which: u64,
        s: &mut Session,
    ) -> Result<(), Error> {
        let random = self.sim.random.clone();
        let txn = match &s.txn {
            Some(txn) => txn.clone(),
            None => {
                let txn = engine.begin(Isolation::RepeatableRead);
                txn.open_view();
                s.sees = self.committed.clone();
                s.changed.clear();
                s.savepoint = None;
                s.txn = Some(txn.clone());
                txn
            }
        };
        // Each session writes to keys of its own, so that in one thread no session waits for ever.
        let key = random.below(200) * SESSIONS + which;
        txn.statement_begin();
        match random.below(13) {
            12 => self.change_together(table, &txn, key, s)?,
            0..=5 => {
                let row = self.next_row(s.sees.get(&key));
                let new = keys(key, &row);
                let spans = spans(&row);
                let whole = Row { bytes: &row, spans: &spans };
                match s.sees.get(&key) {
                    None => txn.insert(table, &new.key, whole, &entries(&new))?,
                    Some(old_row) => {
                        let old = keys(key, old_row);
                        txn.update(table, &new.key, whole, &entries(&old), &entries(&new))?;
                    }
                }
                s.sees.insert(key, row.clone());
                s.changed.insert(key, Some(row));
            }
            6 => {
                if let Some(row) = s.sees.remove(&key) {
                    let old = keys(key, &row);
                    txn.delete(table, &old.key, &entries(&old))?;
                    s.changed.insert(key, None);
                }
            }
            7 => {
                let mut row = Vec::new();
                let found = txn.get(table, &key.to_be_bytes(), Lock::None, &mut row)?;
                assert_eq!(found.then_some(&row), s.sees.get(&key), "seed {}: key {key}", self.sim.seed);
            }
            8 => match s.savepoint.take() {
                None => s.savepoint = Some((txn.savepoint(), s.sees.clone(), s.changed.clone())),
                Some((savepoint, sees, changed)) => {
                    if self.failed(engine, txn.rollback_to(savepoint))? {
                        // Nothing else can become of it.
                        let commit =
                            if random.one_in(2) { txn.prepare(b"?") } else { txn.commit().map(drop) };
                        assert!(commit.is_err() || !txn.has_changes());
                        s.txn = None;
                    } else {
                        (s.sees, s.changed) = (sees, changed);
                    }
                }
            },
            9 if random.one_in(3) => self.scan(table, &txn, &s.sees)?,
            10 => {
                s.txn = None;
                let two_phases = random.one_in(4) && txn.has_changes();
                if two_phases {
                    self.prepare(&txn, &s.changed)?;
                }
                for (key, row) in std::mem::take(&mut s.changed) {
                    match row {
                        Some(row) => self.committed.insert(key, row),
                        None => self.committed.remove(&key),
                    };
                }
                self.candidates.push(self.committed.clone());
                let changed = txn.has_changes();
                let ticket = txn.commit()?;
                // A transaction that changed nothing promises nothing about those before it.
                if random.one_in(2) && changed {
                    ticket.wait()?;
                    self.acknowledged();
                }
            }
            11 if random.one_in(3) => {
                s.txn = None;
                self.failed(engine, txn.rollback())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether something could not be undone. The rest is rolled back in the background.
    fn failed(&mut self, engine: &Engine, undone: Result<(), Error>) -> Result<bool, Error> {
        match undone {
            Err(Error::Unavailable(why)) if why == "planted" => {
                self.failed += 1;
                if self.sim.random.one_in(2) {
                    (0..200).for_each(|_| {
                        self.sim.sched.run_some(20);
                        self.sim.clock.advance(1_000_000_000);
                    });
                    let left = engine.core().rollbacks.count();
                    assert!(
                        left == 0 || self.sim.crashed(),
                        "seed {}: {left} are not rolled back",
                        self.sim.seed
                    );
                }
                Ok(true)
            }
            other => other.map(|()| false),
        }
    }

    /// Changes and deletes some rows from `key` on, all of them together.
    fn change_together(&mut self, table: &Table, txn: &Txn, key: u64, s: &mut Session) -> Result<(), Error> {
        let most = 1 + self.sim.random.below(60) as usize;
        let mut rows = Vec::new();
        for (key, old) in
            s.sees.range(key..).filter(|(other, _)| *other % SESSIONS == key % SESSIONS).take(most)
        {
            let row = (!self.sim.random.one_in(3)).then(|| self.next_row(Some(old)));
            let new = row.map(|row| (keys(*key, &row), row));
            rows.push((*key, keys(*key, old), new));
        }
        let mut changes = Vec::new();
        for (_, old, new) in &rows {
            let row = new.as_ref().map(|(_, row)| &row[..]);
            changes.push(KeyChange { index: 0, key: &old.key, primary_at: 0, put: row });
            let gone =
                entries(old).map(|e| KeyChange { index: e.index, key: e.key, primary_at: 0, put: None });
            changes.extend(gone);
            for e in new.iter().flat_map(|(keys, _)| entries(keys)) {
                let put = Some(e.value);
                changes.push(KeyChange { index: e.index, key: e.key, primary_at: e.primary_at, put });
            }
        }
        txn.change_rows(table, &mut changes)?;
        for (key, _, new) in rows {
            let row = new.map(|(_, row)| row);
            match &row {
                Some(row) => s.sees.insert(key, row.clone()),
                None => s.sees.remove(&key),
            };
            s.changed.insert(key, row);
        }
        Ok(())
    }

    /// Everything that the transaction sees, by each index, both ways.
    fn scan(&self, table: &Arc<Table>, txn: &Arc<Txn>, sees: &Model) -> Result<(), Error> {
        let seed = self.sim.seed;
        let backward = self.sim.random.one_in(2);
        for index in 0..3 {
            let mut cursor = txn.cursor(table, index, Lock::None, Access::Scan)?;
            let mut found = Model::new();
            let mut row = Vec::new();
            let mut valid = cursor.seek(&[], if backward { Seek::Last } else { Seek::First })?;
            while valid {
                cursor.row(&mut row)?;
                let key = u64::from_be_bytes(cursor.primary_key().try_into().unwrap());
                assert!(
                    found.insert(key, row.clone()).is_none(),
                    "seed {seed}: key {key} twice in index {index}"
                );
                valid = if backward { cursor.prev()? } else { cursor.next()? };
            }
            assert_eq!(found.len(), sees.len(), "seed {seed}: index {index}");
            assert!(found == *sees, "seed {seed}: index {index} sees other rows");
        }
        Ok(())
    }

    /// The checker finds nothing wrong with what the crash left, before anything is recovered.
    fn look(&mut self) {
        let store = self.store.clone().map(|store| store as Arc<dyn ObjectStore>);
        if !self.disk.exists("superblock").unwrap() {
            return;
        }
        let look = OfflineInstance::open(self.disk.clone(), store)
            .unwrap_or_else(|e| panic!("seed {}: {e}", self.sim.seed));
        let report = check::check(&look, &check::Options::default(), &mut |_, _, _| ());
        assert!(
            report.verdict() == Verdict::Sound,
            "seed {}: {:?} {:?}",
            self.sim.seed,
            report.faults,
            report.unchecked
        );
        self.looks.0 += 1;
        self.looks.1 += u64::from(report.unfinished > 0);
        self.looks.2 += u64::from(report.undo_records > 0);
        if std::env::var("TERRACE_TRACE").is_ok() && report.leaked.count > 0 {
            eprintln!("leaked: {:?}", report.leaked);
        }
    }

    /// When what was unfinished is rolled back and everything is purged, no page and no delete mark is left over.
    fn rest(&mut self, engine: &Arc<Engine>) {
        let seed = self.sim.seed;
        for _ in 0..200 {
            self.sim.clock.advance(10_000_000);
            self.sim.sched.run_some(500);
            if engine.core().purge.history.lock().is_empty() {
                break;
            }
        }
        assert!(engine.core().purge.history.lock().is_empty(), "seed {seed}: purge does not come to its end");
        engine.shutdown().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        self.sim.sched.drop_workers();
        self.disk.crash();
        let store = self.store.clone().map(|store| store as Arc<dyn ObjectStore>);
        let look =
            OfflineInstance::open(self.disk.clone(), store).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let report = check::check(&look, &check::Options::default(), &mut |_, _, _| ());
        assert_eq!(report.unfinished, 0, "seed {seed}");
        // Superseded objects go when the log's end is durable and the store answers.
        let leaked: Vec<&String> =
            report.leaked.first.iter().filter(|what| !what.starts_with("object ")).collect();
        assert!(leaked.is_empty(), "seed {seed}: {leaked:?}");
        self.rests += 1;
    }

    /// Decides the prepared transactions found at recovery. Returns the states that are possible then, if a
    /// transaction in two phases limits them.
    fn decide(&mut self, engine: &Arc<Engine>) -> Option<Vec<Model>> {
        let seed = self.sim.seed;
        let found = engine.prepared();
        let mut prepared = std::mem::take(&mut self.prepared);
        let Some(xid) = found.first() else {
            // Acknowledged as prepared, it is committed if it is not there.
            return prepared.iter().any(|one| one.done).then(|| self.candidates.split_off(1));
        };
        let at = prepared.iter().position(|one| one.xid == *xid);
        let Some(Prepared { xid, changed, done }) =
            at.map(|at| prepared.swap_remove(at)).filter(|_| found.len() == 1)
        else {
            panic!("seed {seed}: {found:?} are prepared");
        };
        self.decided += 1;
        let mut state = if done { self.candidates[0].clone() } else { self.committed.clone() };
        if self.sim.random.one_in(2) {
            engine.rollback_prepared(&xid).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            engine.make_durable().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            return Some(vec![state]);
        }
        engine.commit_prepared(&xid).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for (key, row) in changed {
            match row {
                Some(row) => state.insert(key, row),
                None => state.remove(&key),
            };
        }
        Some(vec![state])
    }

    fn check(&mut self) {
        self.sim.sched.drop_workers();
        self.disk.crash();
        self.flash.crash();
        self.sim.power_on();
        // Losing the flash, or getting an old one back, loses nothing (invariant 2).
        match self.old_flash.take() {
            Some(old) => self.flash.restore(&old),
            None => self.old_flash = Some(self.flash.snapshot()),
        }
        let seed = self.sim.seed;
        self.faults(false);
        self.look();
        // An instance that has objects starts without its store; one that has none yet refuses to.
        let dead = self.store.clone().filter(|_| self.sim.random.one_in(3));
        dead.iter().for_each(|store| store.faults.dead.store(true, Ordering::SeqCst));
        let opened = self.open();
        dead.iter().for_each(|store| store.faults.dead.store(false, Ordering::SeqCst));
        let opened = match opened {
            Err(error) if dead.is_some() && error.kind() == Kind::Unavailable => self.open(),
            other => other,
        };
        let (engine, table) = opened.unwrap_or_else(|e| panic!("seed {seed}: open after the crash: {e}"));
        // What was unfinished is rolled back in the background.
        self.sim.sched.run_some(5000);
        self.check_other(&engine);
        let decided = self.decide(&engine);
        let txn = engine.begin(Isolation::RepeatableRead);
        let mut found = Model::new();
        let mut cursor = txn.cursor(&table, 0, Lock::None, Access::Scan).unwrap();
        let mut valid = cursor.seek(&[], Seek::First).unwrap();
        while valid {
            found.insert(u64::from_be_bytes(cursor.key().try_into().unwrap()), cursor.value().to_vec());
            valid = cursor.next().unwrap();
        }
        drop(cursor);
        if let Some(state) = decided {
            self.candidates = state;
        }
        let at = self.candidates.iter().rposition(|state| *state == found);
        if at.is_none() {
            let last = &self.candidates[0];
            let missing: Vec<_> = last.keys().filter(|k| !found.contains_key(k)).collect();
            let extra: Vec<_> = found.keys().filter(|k| !last.contains_key(k)).collect();
            let other: Vec<_> =
                found.iter().filter(|(k, v)| last.get(k).is_some_and(|l| l != *v)).map(|(k, _)| k).collect();
            eprintln!("against the acknowledged: missing {missing:?}, extra {extra:?}, different {other:?}");
        }
        assert!(
            at.is_some(),
            "seed {seed}: {} rows found, {} acknowledged, {} candidates",
            found.len(),
            self.candidates[0].len(),
            self.candidates.len()
        );
        self.scan(&table, &txn, &found).unwrap();
        txn.commit().unwrap();
        for index in 0..3 {
            table.check(index).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        assert_eq!(engine.core().storage.map.faults(), Vec::<String>::new(), "seed {seed}");
        self.committed = found;
        self.acknowledged();
        drop((txn, table));
        if self.sim.random.one_in(3) {
            self.rest(&engine);
        }
        drop(engine);
        self.sim.sched.drop_workers();
        self.disk.crash();
    }
}

fn crash_often(seed: u64, partitions: usize, with_store: bool, cuts: u64) -> (u64, Run) {
    let mut run = Run::new(seed, partitions, with_store);
    let mut crashes = 0;
    for _ in 0..cuts {
        let steps = if with_store { 1000 } else { 250 };
        run.sim.crash_at(run.sim.steps() + 1 + run.sim.random.below(steps));
        let ops = 50 + run.sim.random.below(600);
        match run.work(ops) {
            Ok(()) => {}
            Err(error) => {
                // What a crash left is rolled back in the background, with its locks, when the store answers.
                let waited = matches!(error, Error::LockTimeout);
                let excused = (with_store || run.failing) && (waited || error.kind() == Kind::Unavailable);
                assert!(run.sim.crashed() || excused, "seed {seed}: {error}");
            }
        }
        crashes += u64::from(run.sim.crashed());
        if std::env::var("TERRACE_TRACE").is_ok() {
            eprintln!(
                "crashed: {}, {} acknowledged, {} candidates",
                run.sim.crashed(),
                run.candidates[0].len(),
                run.candidates.len()
            );
        }
        run.check();
    }
    (crashes, run)
}

fn seeds() -> u64 {
    std::env::var("TERRACE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(12)
}

#[test]
fn acknowledged_commits_survive_power_loss_and_nothing_else_does() {
    let runs: Vec<(u64, Run)> = (0..seeds()).map(|seed| crash_often(seed, 1, false, 10)).collect();
    let crashes: u64 = runs.iter().map(|(crashes, _)| crashes).sum();
    assert!(crashes > seeds() * 3, "only {crashes} crashes");
    let sum = |of: fn(&Run) -> u64| runs.iter().map(|(_, run)| of(run)).sum::<u64>();
    let (looks, unfinished, past) = (sum(|r| r.looks.0), sum(|r| r.looks.1), sum(|r| r.looks.2));
    eprintln!(
        "the checker looked {looks} times, {unfinished} at unfinished transactions, {past} at undo records"
    );
    assert!(unfinished > seeds() && past > seeds() * 3, "{unfinished}, {past}: the looks prove little");
    assert!(sum(|r| r.decided) > 0, "no prepared transaction was left");
    assert!(sum(|r| r.rests) > seeds(), "{} rests: this proves little", sum(|r| r.rests));
    assert!(sum(|r| r.failed) > seeds(), "{} rollbacks failed: this proves little", sum(|r| r.failed));
}

#[test]
fn acknowledged_commits_survive_power_loss_with_eight_partitions() {
    let crashes: u64 = (0..seeds()).map(|seed| crash_often(5000 + seed, 8, false, 10).0).sum();
    assert!(crashes > seeds() * 3, "only {crashes} crashes");
}

/// As above, over an object store that fails, loses replies, throttles and is dead at starts.
#[test]
fn acknowledged_commits_survive_power_loss_over_a_faulty_object_store() {
    let (mut crashes, mut sunk, mut gets) = (0, 0, 0);
    for seed in 0..seeds() {
        let (n, run) = crash_often(9000 + seed, 1 + (seed % 2) as usize * 7, true, 10);
        crashes += n;
        sunk += run.sunk;
        gets += run.store.map_or(0, |store| store.requests(Purpose::PageMiss));
    }
    eprintln!("{crashes} crashes, {sunk} blocks sunk, {gets} pages read from objects");
    assert!(crashes > seeds() * 3, "only {crashes} crashes");
    assert!(
        sunk > seeds() * 10 && gets > seeds() * 10,
        "{sunk} blocks sunk, {gets} reads: this proves little"
    );
}

/// Each planted bug of undo and ids is found within twenty seeds; see `terrace_engine::planted`.
#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_each_bug_of_undo_and_ids_is_found_within_twenty_seeds() {
    use terrace_engine::planted as engine;
    let bugs = [
        ("ROLLBACK_SKIPS", &engine::ROLLBACK_SKIPS),
        ("REVIVED_ROW_PURGED", &engine::REVIVED_ROW_PURGED),
        ("ID_REUSED", &engine::ID_REUSED),
        ("LARGE_NOT_NOTED", &engine::LARGE_NOT_NOTED),
        ("PREPARED_FORGOTTEN", &engine::PREPARED_FORGOTTEN),
        ("SPACE_ID_REUSED", &engine::SPACE_ID_REUSED),
        ("UNFINISHED_STREAM_REUSED", &engine::UNFINISHED_STREAM_REUSED),
        ("HALF_A_STATEMENT_COMMITTED", &engine::HALF_A_STATEMENT_COMMITTED),
    ];
    (20_000..20_003).for_each(|seed| _ = crash_often(seed, 1, false, 10));
    let mut missed = Vec::new();
    for (name, switch) in bugs {
        switch.set(true);
        let find = |seed: &u64| std::panic::catch_unwind(|| crash_often(*seed, 1, false, 10)).is_err();
        let found = (20_000..20_020).find(find);
        switch.set(false);
        println!("{name}: found with seed {found:?}");
        if found.is_none() {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
