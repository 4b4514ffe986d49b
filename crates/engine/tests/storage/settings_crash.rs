//! Power loss while settings change: sizes of memory, flash and object buffer, quotas, limits and placement, page codecs
//! and the log bypass change between transactions, bulk loads, truncations and scans, over a small object buffer. Each run
//! loses power at I/O steps that its seed chooses. The recovered state must be a committed one, not older than the last
//! acknowledged one, and the rules must be the acknowledged ones.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Kind;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Size;
use terrace_engine::Table;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::offline::check::Verdict;
use terrace_engine::table::catalog::rules::TableRules;
use terrace_io::disk::Disk;
use terrace_io::random::Random;
use terrace_tier::limits::quota::{Limit, Placement, Share, TableRule};
use terrace_tier::objects::object::codec::Codec;

type Model = BTreeMap<u64, Vec<u8>>;
const CODECS: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd];
const KEYS: u64 = 9000;

/// What a life must have met somewhere, or the runs prove little: names of `Engine::status`.
const SEEN: [&str; 7] = [
    "bypass_pages",
    "objects_pages_compressed",
    "objects_pages_decompressed",
    "pool_read_ahead",
    "sink_blocks",
    "reads_object",
    "reads_flash",
];

struct Run {
    on: Machine,
    /// What was acknowledged; then each state committed since.
    candidates: Vec<Model>,
    /// As acknowledged, and what may be in force instead.
    rules: (TableRules, Option<TableRules>),
    version: u64,
    /// Sizes and rules that came into force; and of the status, added up over all lives.
    changed: u64,
    seen: BTreeMap<String, u64>,
    /// Waits for limits of reads and of writes.
    waits: [u64; 2],
}

/// As a row is: half of it alike in all rows, half noise, so that pages are compressed and still many.
fn row(key: u64, version: u64) -> Vec<u8> {
    let mut noise = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version;
    let mut row = vec![version as u8; 500 + (key % 300) as usize];
    for _ in 0..100 {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        row.extend_from_slice(&noise.to_be_bytes());
    }
    row
}

fn entry_key(key: u64, row: &[u8]) -> Vec<u8> {
    [&row[..1], &key.to_be_bytes()].concat()
}

fn entry(key: &[u8]) -> [Entry<'_>; 1] {
    [Entry { index: 1, key, unique_len: None, primary_at: 1, value: b"" }]
}

impl Run {
    fn new(seed: u64) -> Run {
        let on = Machine::new(seed).and_flash().and_store();
        on.store().faults.delay.store(2_000_000, Ordering::SeqCst);
        // One that waits for flash has the memory that the next would wait for.
        on.sim.sched.one_at_a_time("sinker");
        Run {
            on,
            candidates: vec![Model::new()],
            rules: Default::default(),
            version: 0,
            changed: 0,
            seen: BTreeMap::new(),
            waits: [0; 2],
        }
    }

    /// Sizes and codec are others at each start.
    fn open(&self) -> Result<(Arc<Engine>, Arc<Table>), Error> {
        let random = &self.on.sim.random;
        let config = Config {
            memory: Bytes((10 + random.below(4)) << 20),
            memory_max: Bytes(24 << 20),
            log: Bytes(8 << 20),
            log_partitions: 1 + random.below(2) as usize * 3,
            object_buffer: Bytes((4 + random.below(3)) << 20),
            sink_after_ms: 50,
            flash: Bytes(random.below(3) * (8 << 20)),
            compression: CODECS[random.below(3) as usize],
            ..Config::default()
        };
        let engine = self.on.open(config)?;
        let table = kit::table(&engine, "db/t", &kit::indexes(&[("PRIMARY", true), ("plain", false)]))?;
        Ok((engine, table))
    }

    fn last(&self) -> Model {
        self.candidates.last().cloned().unwrap_or_default()
    }

    fn acknowledged(&mut self) {
        self.candidates.drain(..self.candidates.len() - 1);
    }

    fn work(&mut self, ops: u64) -> Result<(), Error> {
        let (engine, table) = self.open()?;
        let worked = self.work_on(&engine, &table, ops);
        for (name, value) in engine.status().into_iter().filter(|(name, _)| SEEN.contains(&name.as_str())) {
            *self.seen.entry(name).or_default() += value;
        }
        self.note_waits(&engine);
        worked
    }

    /// Rules that are to change, or a life that ends, take their counts with them.
    fn note_waits(&mut self, engine: &Engine) {
        for rule in engine.rules().iter().filter(|rule| rule.index == "PRIMARY") {
            self.waits = [self.waits[0] + rule.waits, self.waits[1] + rule.writes.waits];
        }
    }

    fn work_on(&mut self, engine: &Arc<Engine>, table: &Arc<Table>, ops: u64) -> Result<(), Error> {
        for _ in 0..ops {
            match self.on.sim.random.below(12) {
                0..=4 => self.transaction(engine, table)?,
                5 if self.last().is_empty() => self.fill(engine, table)?,
                5 if self.on.sim.random.one_in(8) => self.truncate(engine)?,
                6 | 7 => self.scan(table, &engine.begin(Isolation::RepeatableRead), &self.last())?,
                8 => self.resize(engine)?,
                9 => self.rule(engine)?,
                10 => self.knob(engine)?,
                _ => {
                    self.on.sim.clock.advance(20_000_000);
                    self.on.sim.sched.run_some(20);
                }
            }
        }
        if self.on.sim.random.one_in(3) {
            engine.shutdown()?;
            self.acknowledged();
        }
        Ok(())
    }

    /// Inserts, changes and deletes some rows, adjacent or scattered; rolls some of it back.
    fn transaction(&mut self, engine: &Arc<Engine>, table: &Arc<Table>) -> Result<(), Error> {
        let random = self.on.sim.random.clone();
        let (mut state, txn) = (self.last(), engine.begin(Isolation::RepeatableRead));
        let (first, near) = (random.below(KEYS), random.one_in(2));
        for n in 0..1 + random.below(60) {
            let key = if near { (first + n) % KEYS } else { random.below(KEYS) };
            self.version += 1;
            let new = row(key, self.version);
            let new_key = entry_key(key, &new);
            txn.statement_begin();
            let id = key.to_be_bytes();
            match state.remove(&key) {
                None => txn.insert(table, &id, &new, &entry(&new_key))?,
                Some(old) if random.one_in(4) => {
                    txn.delete(table, &id, &entry(&entry_key(key, &old)))?;
                    continue;
                }
                Some(old) => txn.update(table, &id, &new, &entry(&entry_key(key, &old)), &entry(&new_key))?,
            }
            state.insert(key, new);
        }
        if random.one_in(6) {
            return txn.rollback();
        }
        self.candidates.push(state);
        let ticket = txn.commit()?;
        if random.one_in(2) {
            ticket.wait()?;
            self.acknowledged();
        }
        Ok(())
    }

    /// The empty table is filled in bulk, most times past the log.
    fn fill(&mut self, engine: &Arc<Engine>, table: &Arc<Table>) -> Result<(), Error> {
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.statement_begin();
        let mut load = engine.load_within(table, &txn, 1)?;
        self.version += 1;
        let state: Model = (0..KEYS).step_by(2).map(|key| (key, row(key, self.version))).collect();
        for (key, row) in &state {
            load.add(&key.to_be_bytes(), row, &entry(&entry_key(*key, row)))?;
        }
        load.finish()?;
        drop(load);
        self.candidates.push(state);
        txn.commit()?.wait()?;
        self.acknowledged();
        Ok(())
    }

    fn truncate(&mut self, engine: &Arc<Engine>) -> Result<(), Error> {
        self.candidates.push(Model::new());
        engine.truncate_tables(&["db/t"])?;
        self.acknowledged();
        Ok(())
    }

    /// All rows by one of the indexes, as a scan that goes on, or some from the middle.
    fn scan(&self, table: &Arc<Table>, txn: &Arc<Txn>, sees: &Model) -> Result<(), Error> {
        let (seed, random) = (self.on.sim.seed, &self.on.sim.random);
        let index = random.below(2) as usize;
        let from = if index == 0 && random.one_in(2) { random.below(KEYS) } else { 0 };
        let mut cursor = txn.cursor(table, index, Lock::None, Access::Scan)?;
        let mut valid = cursor.seek(&from.to_be_bytes()[..if from > 0 { 8 } else { 0 }], Seek::AtLeast)?;
        let (mut found, mut bytes) = (Model::new(), Vec::new());
        while valid {
            cursor.row(&mut bytes)?;
            let key = u64::from_be_bytes(cursor.primary_key().try_into().unwrap());
            assert!(found.insert(key, bytes.clone()).is_none(), "seed {seed}: index {index} has {key} twice");
            if found.len() % 100 == 0 {
                self.on.sim.sched.run_some(4); // prefetchers work
            }
            valid = cursor.next()?;
        }
        let must = sees.range(from..);
        assert_eq!(found.len(), must.clone().count(), "seed {seed}: rows of index {index} from {from}");
        assert!(found.iter().eq(must), "seed {seed}: index {index} has other rows");
        Ok(())
    }

    /// Resizes a tier; now and then the resize is cancelled.
    fn resize(&mut self, engine: &Arc<Engine>) -> Result<(), Error> {
        let random = &self.on.sim.random;
        let (what, to) = match random.below(3) {
            0 => (Size::Memory, (10 << 20) + (random.below(13) << 20)),
            1 => (Size::Flash, random.below(5) * (8 << 20)),
            _ => (Size::ObjectBuffer, (4 << 20) + (random.below(16) << 18)),
        };
        let looks = AtomicU64::new(if random.one_in(4) { random.below(20) } else { u64::MAX });
        let stop = || looks.fetch_sub(1, Ordering::Relaxed) == 0;
        match engine.resize(what, Bytes(to), &stop) {
            Ok(()) => self.changed += 1,
            // What is guaranteed or in use is more, or it was ended.
            Err(Error::Full(_) | Error::Unavailable(_) | Error::Cancelled | Error::Invalid(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn rule(&mut self, engine: &Arc<Engine>) -> Result<(), Error> {
        let random = &self.on.sim.random;
        let some = |n: u64| if random.one_in(2) { n } else { 0 };
        let reads = || Limit { requests: some(500), bytes: some(8 << 20) };
        let writes = || Limit { requests: some(1000), bytes: some(16 << 20) };
        let placement = |n: u64| [Placement::Default, Placement::Keep, Placement::None][n as usize];
        let rules = TableRules {
            rule: TableRule {
                flash: Share { min: some(1 << 20), max: some(4 << 20) },
                buffer: Share { min: some(1 << 20), max: some(3 << 20) },
                flash_limit: reads(),
                volume_limit: reads(),
                object_limit: reads(),
                flash_writes: writes(),
                volume_writes: writes(),
                object_writes: writes(),
                ..TableRule::default()
            },
            placement: placement(random.below(3)),
            indexes: if random.one_in(2) {
                vec![]
            } else {
                vec![("plain".into(), placement(random.below(3)))]
            },
        };
        self.rules.1 = Some(rules.clone());
        self.note_waits(engine);
        match engine.set_table_rules("db/t", rules.clone(), None) {
            Ok(()) => {
                self.rules.0 = rules;
                self.changed += 1;
            }
            Err(Error::Invalid(_)) => {} // it contradicts itself, or there is no flash
            Err(error) => return Err(error),
        }
        self.rules.1 = None;
        assert_eq!(engine.table_rules("db/t").unwrap_or_default(), self.rules.0, "seed {}", self.on.sim.seed);
        Ok(())
    }

    fn knob(&mut self, engine: &Arc<Engine>) -> Result<(), Error> {
        let random = &self.on.sim.random;
        let codec = CODECS[random.below(3) as usize];
        match random.below(3) {
            0 => engine.set_compression("db/t", Some(codec).filter(|_| random.one_in(2)))?,
            1 => engine.core().storage.codecs().set_fallback(codec),
            _ => engine.set_bypass(!random.one_in(4)),
        }
        Ok(())
    }

    /// Power is back.
    fn check(&mut self) {
        self.on.power_cycle();
        let seed = self.on.sim.seed;
        if self.on.volume.exists("superblock").unwrap() {
            let report = self.on.check();
            let unchecked = &report.unchecked;
            assert!(report.verdict() == Verdict::Sound, "seed {seed}: {:?} {unchecked:?}", report.faults);
        }
        let (engine, table) =
            self.open().unwrap_or_else(|e| panic!("seed {seed}: open after the crash: {e}"));
        self.on.sim.sched.run_some(5000);
        let (mut found, mut bytes) = (Model::new(), Vec::new());
        let txn = engine.begin(Isolation::RepeatableRead);
        let mut cursor = txn.cursor(&table, 0, Lock::None, Access::Normal).unwrap();
        let mut valid = cursor.seek(&[], Seek::First).unwrap();
        while valid {
            cursor.row(&mut bytes).unwrap();
            found.insert(u64::from_be_bytes(cursor.key().try_into().unwrap()), bytes.clone());
            valid = cursor.next().unwrap();
        }
        drop(cursor);
        let rows: Vec<usize> = self.candidates.iter().map(BTreeMap::len).collect();
        assert!(self.candidates.contains(&found), "seed {seed}: {} rows, not one of {rows:?}", found.len());
        self.candidates = vec![found.clone()];
        (0..3).for_each(|_| self.scan(&table, &txn, &found).unwrap());
        (0..2).for_each(|index| _ = table.check(index).unwrap_or_else(|e| panic!("seed {seed}: {e}")));
        let rules = engine.table_rules("db/t").unwrap_or_default();
        let may = [Some(&self.rules.0), self.rules.1.as_ref()];
        assert!(may.contains(&Some(&rules)), "seed {seed}: {rules:?} are none of {may:?}");
        self.rules = (rules, None);
        assert_eq!(engine.core().storage.map.faults(), Vec::<String>::new(), "seed {seed}");
        drop((txn, table, engine));
        self.on.sim.sched.drop_workers();
        self.on.volume.crash();
    }
}

/// Crashes at each of `cuts` steps in turn. Returns how often the power went.
fn crash_often(seed: u64, cuts: u64) -> (Run, u64) {
    let (mut run, mut crashes) = (Run::new(seed), 0);
    for cut in 0..cuts {
        run.on.sim.crash_at(run.on.sim.steps() + 1 + run.on.sim.random.below(1000));
        // In one life of three the store fails, loses replies and throttles.
        let faulty = run.on.sim.random.one_in(3);
        let set = |rate: &AtomicU64, n| rate.store(if faulty { n } else { 0 }, Ordering::SeqCst);
        let faults = run.on.store().clone();
        set(&faults.faults.unavailable, 40);
        set(&faults.faults.unknown, 10);
        set(&faults.faults.throttled, 40);
        let ops = 40 + run.on.sim.random.below(200);
        if let Err(error) = run.work(ops) {
            let excused = faulty && (error.kind() == Kind::Unavailable || matches!(error, Error::Full(_)));
            assert!(run.on.sim.crashed() || excused, "seed {seed}, life {cut}: {error}");
        }
        faults.faults.unavailable.store(0, Ordering::SeqCst);
        faults.faults.unknown.store(0, Ordering::SeqCst);
        faults.faults.throttled.store(0, Ordering::SeqCst);
        crashes += u64::from(run.on.sim.crashed());
        run.check();
    }
    (run, crashes)
}

/// `TERRACE_SEEDS` sets how many runs there are.
#[test]
fn committed_rows_and_rules_survive_power_loss_while_sizes_limits_and_codecs_change() {
    let seeds = std::env::var("TERRACE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(9);
    let (mut crashes, mut changed, mut waits, mut seen) = (0, 0, [0; 2], BTreeMap::new());
    for seed in 0..seeds {
        let (run, died) = crash_often(30_000 + seed, 8);
        (crashes, changed) = (crashes + died, changed + run.changed);
        waits = [waits[0] + run.waits[0], waits[1] + run.waits[1]];
        run.seen.into_iter().for_each(|(name, n)| *seen.entry(name).or_insert(0) += n);
    }
    println!(
        "{crashes} crashes, {changed} changes, {waits:?} waits for limits of reads and writes, {seen:?}"
    );
    assert!(crashes > 3 * seeds && changed > 10 * seeds, "{crashes} crashes, {changed} changes");
    assert!(waits.iter().all(|n| *n > 0), "{waits:?}: nobody waits for limits");
    for name in SEEN {
        assert!(seen.get(name).is_some_and(|n| *n > 0), "{name} in {seen:?}: this proves little");
    }
}
