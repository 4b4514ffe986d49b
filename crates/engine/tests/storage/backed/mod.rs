//! Shared by the tests of backups: an instance with an object store in a simulation, copied, backed up, restored, and compared with the states that its
//! changes went through.

#![allow(dead_code, unused_imports)] // each test binary uses its part

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::sync::atomic::Ordering;
pub use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub use terrace_engine::Error;
pub use terrace_engine::config::{Bytes, Config};
pub use terrace_engine::offline::backup::attach::Attach;
pub use terrace_engine::offline::backup::create::create;
pub use terrace_engine::offline::backup::prune::{Keep, prune};
pub use terrace_engine::offline::backup::restore::restore;
pub use terrace_engine::offline::backup::verify::verify;
pub use terrace_engine::offline::backup::{Repository, create::Created};
pub use terrace_engine::offline::instance::OfflineInstance;
pub use terrace_engine::storage::copy::{Copied, Copier, Progress};
pub use terrace_engine::storage::{Parts, Storage};
pub use terrace_engine::superblock::Superblock;
pub use terrace_engine::tree::Tree;
pub use terrace_io::clock::Clock;
pub use terrace_io::disk::Disk;
pub use terrace_io::random::Random;
pub use terrace_io::store::ObjectStore;
pub use terrace_log::{Redo, Urgency};
pub use terrace_sim::{SimDisk, SimStore, SimWorld};
use terrace_tier::memory::pool::Access;
pub use terrace_tier::objects::snapshots;
pub use terrace_tier::page::SpaceId;
pub use terrace_tier::planted::Switch;

pub const SPACE: SpaceId = SpaceId(16);
pub const KEYS: u64 = 8000;
pub const SECOND: u64 = 1_000_000_000;
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;
/// A key's new value, or None if it was removed.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// Planted bugs are switched on for all.
pub static ONE: Mutex<()> = Mutex::new(());

pub fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A planted bug is found within this number of seeds.
pub fn is_found(name: &str, switch: &'static Switch, seeds: u64, run: fn(u64)) {
    let _one = alone();
    switch.set(true);
    let found = (0..seeds).find(|seed| std::panic::catch_unwind(|| run(5000 + seed)).is_err());
    switch.set(false);
    assert!(found.is_some(), "{name} was not found in {seeds} seeds");
    println!("{name}: found with seed {found:?}");
}

pub fn key(n: u64) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

pub fn open(sim: &SimWorld, disk: &Arc<SimDisk>, store: &Arc<SimStore>) -> Result<Arc<Storage>, Error> {
    open_archiving(sim, disk, store, 0)
}

pub fn open_archiving(
    sim: &SimWorld,
    disk: &Arc<SimDisk>,
    store: &Arc<SimStore>,
    archive_interval_ms: u64,
) -> Result<Arc<Storage>, Error> {
    let config = Config {
        archive_interval_ms,
        memory: Bytes(12 << 20),
        log: Bytes(4 << 20),
        log_partitions: 1,
        object_buffer: Bytes(14 << 20),
        ..Config::default()
    };
    let parts =
        Parts { world: sim.world(), volume: disk.clone(), flash: None, store: Some(store.clone() as _) };
    let storage = Storage::open(&config, &parts)?;
    storage.start_redo(|space| space == SPACE)?;
    Ok(Arc::new(storage))
}

pub struct Instance {
    pub sim: Arc<SimWorld>,
    pub disk: Arc<SimDisk>,
    pub store: Arc<SimStore>,
    pub running: Option<(Arc<Storage>, Tree)>,
    /// Only these keys change.
    pub keys: u64,
    pub changes: Vec<Change>,
    /// One for each change.
    pub stamps: Vec<Stamp>,
    pub durable: usize,
    /// Milliseconds; 0: the log is not archived.
    pub archive: u64,
}

/// Where the log ended before a change and behind it, and the time of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    pub before: (u64, u64),
    pub after: (u64, u64),
}

impl Instance {
    pub fn new(seed: u64) -> Instance {
        Instance::of_values(seed, 500)
    }

    pub fn of_values(seed: u64, bytes: usize) -> Instance {
        Instance::of(seed, bytes, 0)
    }

    pub fn of(seed: u64, bytes: usize, archive: u64) -> Instance {
        let sim = Arc::new(SimWorld::new(seed));
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        let storage = open_archiving(&sim, &disk, &store, archive).unwrap();
        let tree = Tree::create(&storage.pages, SPACE, Urgency::Normal).unwrap();
        let (running, changes) = (Some((storage, tree)), Vec::new());
        let stamps = Vec::new();
        let mut instance =
            Instance { sim, disk, store, running, keys: KEYS, changes, stamps, durable: 0, archive };
        for n in 0..KEYS {
            let (key, value) = (key(n), vec![1; bytes]);
            let before = instance.now();
            instance.tree().put(&key, &value).unwrap();
            instance.note(key, Some(value), before);
            if n % 200 == 0 {
                instance.storage().checkpoint().unwrap();
            }
        }
        instance.sink_all();
        instance
    }

    /// Where the log ends, and the time.
    pub fn now(&self) -> (u64, u64) {
        (self.storage().log.appended(), self.sim.clock.unix_ms())
    }

    fn note(&mut self, key: Vec<u8>, value: Option<Vec<u8>>, before: (u64, u64)) {
        self.stamps.push(Stamp { before, after: self.now() });
        self.changes.push((key, value));
    }

    pub fn storage(&self) -> &Arc<Storage> {
        &self.running.as_ref().unwrap().0
    }

    pub fn tree(&self) -> &Tree {
        &self.running.as_ref().unwrap().1
    }

    pub fn start(&mut self) {
        let seed = self.sim.seed;
        let storage = open_archiving(&self.sim, &self.disk, &self.store, self.archive)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let tree = Tree::open(&storage.pages, SPACE).unwrap();
        self.running = Some((storage, tree));
    }

    pub fn stop(&mut self) {
        let seed = self.sim.seed;
        self.storage().close().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        self.sim.sched.drop_workers();
        self.running = None;
    }

    pub fn sink_all(&self) {
        self.storage().checkpoint().unwrap();
        self.storage().cold.as_ref().unwrap().sinker.sink_all().unwrap();
        self.sim.sched.run_some(200);
    }

    /// Some changes, and some work of others: blocks sink, and objects are collected.
    pub fn change(&mut self, most: u64) -> Result<(), Error> {
        let random = self.sim.random.clone();
        for _ in 0..random.below(most) + 1 {
            let key = key(random.below(self.keys));
            let value =
                (!random.one_in(4)).then(|| vec![random.next_u64() as u8; 300 + random.below(600) as usize]);
            let before = self.now();
            let changed = match &value {
                Some(value) => self.tree().put(&key, value).map(|_| ()),
                None => self.tree().remove(&key).map(|_| ()),
            };
            match changed.map_err(Error::from) {
                // The copier that holds log or slots does not run beside it.
                Err(Error::Full(_))
                    if self.storage().map.hold_hinders() || self.storage().log.needs_checkpoint() =>
                {
                    break;
                }
                changed => changed?,
            }
            self.note(key, value, before);
        }
        let log = self.storage().log.clone();
        if random.one_in(2) {
            log.make_durable(log.appended())?;
            self.durable = self.changes.len();
        }
        match random.below(4) {
            0 => self.storage().flusher.request(log.appended()),
            1 => self.storage().checkpointer.request(log.appended()),
            _ => {}
        }
        self.sim.sched.run_some(random.below(20) as usize);
        let sinker = self.storage().cold.as_ref().unwrap().sinker.clone();
        let buffered = self.storage().map.buffered_blocks();
        if random.one_in(2) && !buffered.is_empty() {
            _ = sinker.try_sink_block(buffered[random.below(buffered.len() as u64) as usize].block);
        }
        if random.one_in(3) {
            self.sim.clock.advance(2 * SECOND);
        }
        self.sim.sched.run_some(random.below(40) as usize);
        Ok(())
    }

    /// A copy beside changes. Returns the number of changes made before its end began, too.
    pub fn copy(&mut self, to: &Arc<SimDisk>) -> Result<(Copied, usize), Error> {
        let mut copier = Copier::begin(&self.storage().clone(), to.clone())?;
        let mut beside = |_: Progress| {
            let changed = self.change(20);
            assert!(changed.is_ok() || self.sim.crashed(), "a change beside the copy: {changed:?}");
            true
        };
        copier.follow(&mut beside)?;
        let least = self.changes.len();
        let mut beside = |_: Progress| {
            let changed = self.change(20);
            assert!(changed.is_ok() || self.sim.crashed(), "a change beside the copy's end: {changed:?}");
            true
        };
        Ok((copier.finish(&mut beside)?, least))
    }

    /// The power goes, or not, and the instance is opened again.
    pub fn restart(&mut self, crash: bool) {
        if crash {
            self.sim.sched.drop_workers();
            self.running = None;
            self.disk.crash();
            self.sim.power_on();
            self.changes.truncate(self.least_after(&self.disk.clone(), &self.store.clone(), self.durable));
            self.stamps.truncate(self.changes.len());
        } else {
            self.stop();
        }
        self.start();
        self.durable = self.changes.len();
    }

    /// Opens the instance again, with nothing in memory, and reads no entry.
    pub fn restart_unread(&mut self) -> Result<(), Error> {
        self.sim.sched.drop_workers();
        self.running = None;
        self.disk.crash();
        let storage = open_archiving(&self.sim, &self.disk, &self.store, self.archive)?;
        let tree = Tree::open(&storage.pages, SPACE);
        self.running = Some((storage, tree?));
        Ok(())
    }

    /// Reads every key that there can be.
    pub fn read_all(&self) -> Result<(), Error> {
        (0..KEYS).try_for_each(|n| Ok(self.tree().get(&key(n), Access::Normal, |_| ())?))
    }

    /// The instance at these places is a state after at least `least` changes. Returns after how many.
    pub fn least_after(&self, disk: &Arc<SimDisk>, store: &Arc<SimStore>, least: usize) -> usize {
        let (seed, found) = (self.sim.seed, self.state_of(disk, store));
        let mut state = Model::new();
        let mut matching = None;
        for (i, (key, value)) in self.changes.iter().enumerate() {
            apply(&mut state, key, value);
            if i + 1 >= least && state.len() == found.len() && state == found {
                matching = Some(i + 1);
            }
        }
        matching.unwrap_or_else(|| {
            panic!(
                "seed {seed}: {} entries are no state after {least} to {} changes",
                found.len(),
                self.changes.len()
            )
        })
    }

    /// Opens the instance at these places, checks it and closes it. Returns its entries.
    pub fn state_of(&self, disk: &Arc<SimDisk>, store: &Arc<SimStore>) -> Model {
        let seed = self.sim.seed;
        let storage = open_archiving(&self.sim, disk, store, self.archive)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let tree = Tree::open(&storage.pages, SPACE).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let mut found = Model::new();
        let mut keep = |key: &[u8], value: &[u8]| _ = found.insert(key.to_vec(), value.to_vec());
        let report = tree.check(&mut keep).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(report.faults.is_empty(), "seed {seed}: {:?}", report.faults);
        assert_eq!(storage.map.faults(), Vec::<String>::new(), "seed {seed}");
        drop(tree);
        storage.close().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        self.sim.sched.drop_workers();
        found
    }

    pub fn collected(&self) -> u64 {
        self.storage().cold.as_ref().unwrap().collector.counters.deleted.load(Ordering::SeqCst)
    }

    /// Goes on for a while, with restarts, so that objects are superseded and collected.
    pub fn go_on(&mut self) {
        for round in 0..12 {
            for _ in 0..6 {
                self.change(40).unwrap();
            }
            self.sink_all();
            self.sim.clock.advance(2 * SECOND);
            self.sim.sched.run_some(500);
            if round == 4 || round == 8 {
                let crash = self.sim.random.one_in(2);
                self.restart(crash);
            }
        }
    }
}

pub fn apply(state: &mut Model, key: &[u8], value: &Option<Vec<u8>>) {
    match value {
        Some(value) => state.insert(key.to_vec(), value.clone()),
        None => state.remove(key),
    };
}

pub fn objects(store: &SimStore) -> BTreeSet<String> {
    store.keys().into_iter().filter(|key| key.contains('/')).collect()
}

pub fn quiet() -> impl FnMut(&str, u64, u64) {
    |_, _, _| {}
}

pub fn back_up(
    copy: &Arc<SimDisk>,
    source: &Arc<SimStore>,
    to: &Arc<SimStore>,
    name: &str,
) -> Result<Created, Error> {
    let look = OfflineInstance::open(copy.clone(), None)?;
    let source: Arc<dyn ObjectStore> = source.clone();
    create(&look, Some(&source), &Repository::open(to.clone())?, name, 1000, &mut quiet())
}

pub fn put_back(
    from: &Arc<SimStore>,
    name: &str,
    disk: &Arc<SimDisk>,
    store: &Arc<SimStore>,
    random: &dyn Random,
    attach: Option<&Attach>,
) -> Result<(), Error> {
    let repository = Repository::open(from.clone())?;
    let manifest = repository.complete(name)?;
    let (disk, store): (Arc<dyn Disk>, Arc<dyn ObjectStore>) = (disk.clone(), store.clone());
    restore(&repository, &manifest, &disk, Some(&store), random, attach, &mut quiet()).map(|_| ())
}

pub fn faults(of: &Arc<SimStore>, name: &str) -> Vec<String> {
    let repository = Repository::open(of.clone()).unwrap();
    verify(&repository, &repository.complete(name).unwrap(), &mut quiet()).unwrap().faults
}

pub fn seeds() -> u64 {
    std::env::var("TERRACE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4)
}
