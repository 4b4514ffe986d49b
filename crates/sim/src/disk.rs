//! A disk that keeps what was synced, and of the rest what it likes.
//!
//! Content is kept in 512-byte sectors. A write goes to the unsynced sectors; a sync moves them to
//! the durable ones. [`SimDisk::crash`] settles each unsynced sector by the seed: it landed, it is
//! gone, or it is garbage. Names are made, removed and renamed in memory and become durable with
//! `sync_dir`; at a crash each change since then happened or did not, where the changes of one name
//! happen in order and a rename changes both names at once. A write issued at the step of the crash
//! or later never lands.
//!
//! Handles from before a crash are dead.

use crate::faults::{Faults, SECTOR};
use crate::random::SimRandom;
use crate::steps::Steps;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::{Class, Disk, DiskError, DiskLock, File, FileWrite, Op, Result};
use terrace_io::random::Random;

/// What may happen to an unsynced sector at a crash, in percent; the rest is lost.
#[derive(Clone, Copy, Debug)]
pub struct CrashMix {
    pub landed: u64,
    pub garbage: u64,
}

impl Default for CrashMix {
    fn default() -> CrashMix {
        CrashMix { landed: 45, garbage: 10 }
    }
}

struct Content {
    durable: HashMap<u64, Box<[u8; SECTOR]>>,
    unsynced: BTreeMap<u64, Box<[u8; SECTOR]>>,
    len: u64,
    durable_len: u64,
    /// Since the last sync the file was cut here, a sector: durable ones from here on read as zeros.
    cut: u64,
}

impl Default for Content {
    fn default() -> Content {
        Content { durable: HashMap::new(), unsynced: BTreeMap::new(), len: 0, durable_len: 0, cut: u64::MAX }
    }
}

impl Content {
    fn read(&self, offset: u64, buf: &mut [u8]) {
        for (i, part) in buf.chunks_mut(SECTOR).enumerate() {
            let sector = offset / SECTOR as u64 + i as u64;
            let durable = || self.durable.get(&sector).filter(|_| sector < self.cut);
            match self.unsynced.get(&sector).or_else(durable) {
                Some(bytes) => part.copy_from_slice(&bytes[..part.len()]),
                None => part.fill(0),
            }
        }
    }
    fn write(&mut self, offset: u64, buf: &[u8]) {
        for (i, part) in buf.chunks(SECTOR).enumerate() {
            let mut sector = Box::new([0; SECTOR]);
            sector[..part.len()].copy_from_slice(part);
            self.unsynced.insert(offset / SECTOR as u64 + i as u64, sector);
        }
        self.len = self.len.max(offset + buf.len() as u64);
    }
    /// What is cut off is gone for readers at once. On the device it is there until a sync, or a crash, says
    /// otherwise: so it may come back, if the file was not made longer again since.
    fn shrink(&mut self, len: u64) {
        if len < self.len {
            let end = len.div_ceil(SECTOR as u64);
            _ = self.unsynced.split_off(&end);
            self.len = len;
            self.cut = self.cut.min(end);
        }
    }
    fn sync(&mut self) {
        let cut = std::mem::replace(&mut self.cut, u64::MAX);
        self.durable.retain(|sector, _| *sector < cut);
        let unsynced = std::mem::take(&mut self.unsynced);
        self.durable.extend(unsynced);
        self.durable_len = self.len;
    }
    fn crash(&mut self, random: &SimRandom, mix: CrashMix) {
        let mut landed = HashSet::new();
        for (sector, bytes) in std::mem::take(&mut self.unsynced) {
            let roll = random.below(100);
            if roll < mix.landed + mix.garbage {
                landed.insert(sector);
            }
            if roll < mix.landed {
                self.durable.insert(sector, bytes);
            } else if roll < mix.landed + mix.garbage {
                let mut garbage = Box::new([0; SECTOR]);
                garbage.chunks_mut(8).for_each(|c| c.copy_from_slice(&random.next_u64().to_le_bytes()));
                self.durable.insert(sector, garbage);
            }
        }
        // The length of the file is metadata: it may have been written or not. A file that was cut and made longer again
        // has lost what was cut off if the new length counts.
        let cut = std::mem::replace(&mut self.cut, u64::MAX);
        if random.one_in(2) {
            self.durable.retain(|sector, _| *sector < cut || landed.contains(sector));
            self.durable_len = self.len;
        }
        self.len = self.durable_len;
        let end = self.len.div_ceil(SECTOR as u64);
        self.durable.retain(|sector, _| *sector < end);
    }
}

type Node = Arc<Mutex<Content>>;

#[derive(Clone)]
enum NameChange {
    Made(String, Node),
    Removed(String),
    Renamed(String, String),
}

impl NameChange {
    /// The directory entries that it changes.
    fn entries(&self) -> Vec<&str> {
        match self {
            NameChange::Made(name, _) | NameChange::Removed(name) => vec![name],
            NameChange::Renamed(from, to) => vec![from, to],
        }
    }
}

#[derive(Default)]
struct Names {
    now: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    pending: Vec<NameChange>,
}

fn apply(names: &mut BTreeMap<String, Node>, change: &NameChange) {
    match change {
        NameChange::Made(name, node) => {
            names.insert(name.clone(), node.clone());
        }
        NameChange::Removed(name) => {
            names.remove(name);
        }
        NameChange::Renamed(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
    }
}

struct Shared {
    name: String,
    names: Mutex<Names>,
    random: SimRandom,
    steps: Arc<Steps>,
    generation: AtomicU64,
    locked: AtomicU64,
    faults: Faults,
    mix: Mutex<CrashMix>,
    syncs: AtomicU64,
    /// By class.
    requests: [AtomicU64; Class::MAX],
}

pub struct SimDisk(Arc<Shared>);

impl SimDisk {
    pub(crate) fn new(name: &str, random: SimRandom, steps: Arc<Steps>) -> SimDisk {
        SimDisk(Arc::new(Shared {
            name: name.to_string(),
            names: Mutex::default(),
            random,
            steps,
            generation: AtomicU64::new(1),
            locked: AtomicU64::new(0),
            faults: Faults::default(),
            mix: Mutex::default(),
            syncs: AtomicU64::new(0),
            requests: Default::default(),
        }))
    }

    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }
    pub fn set_crash_mix(&self, mix: CrashMix) {
        *self.0.mix.lock() = mix;
    }
    pub fn syncs(&self) -> u64 {
        self.0.syncs.load(Ordering::SeqCst)
    }
    /// Reads and writes of the class that a worker waited for; a batch counts once.
    pub fn requests(&self, class: Class) -> u64 {
        self.0.requests[class.index()].load(Ordering::SeqCst)
    }

    /// Power was lost: settles what was not synced. Old handles are dead, the lock is free.
    pub fn crash(&self) {
        let mix = *self.0.mix.lock();
        self.0.generation.fetch_add(1, Ordering::SeqCst);
        self.0.locked.store(0, Ordering::SeqCst);
        let mut names = self.0.names.lock();
        let pending = std::mem::take(&mut names.pending);
        // Entries reach the device in any order, but the changes of one entry in theirs.
        let mut missed = HashSet::new();
        for change in &pending {
            let entries = change.entries();
            if entries.iter().any(|e| missed.contains(*e)) || self.0.random.one_in(2) {
                missed.extend(entries);
            } else {
                apply(&mut names.durable, change);
            }
        }
        names.now = names.durable.clone();
        for node in names.now.values() {
            node.lock().crash(&self.0.random, mix);
        }
    }

    /// A copy of the disk as it is durable now: to put back an old state later.
    pub fn snapshot(&self) -> Snapshot {
        let names = self.0.names.lock();
        Snapshot(names.durable.iter().map(|(n, node)| (n.clone(), node.lock().durable_copy())).collect())
    }
    /// Puts back an old state. Old handles are dead.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.0.generation.fetch_add(1, Ordering::SeqCst);
        self.0.locked.store(0, Ordering::SeqCst);
        let mut names = self.0.names.lock();
        names.pending.clear();
        names.durable = snapshot.0.iter().map(|(n, c)| (n.clone(), Arc::new(Mutex::new(c.copy())))).collect();
        names.now = names.durable.clone();
    }

    /// Flips one bit at rest. False if there is no such file or byte.
    pub fn flip(&self, file: &str, offset: u64, bit: u8) -> bool {
        let names = self.0.names.lock();
        let Some(node) = names.now.get(file) else { return false };
        let mut content = node.lock();
        let Some(sector) = content.durable.get_mut(&(offset / SECTOR as u64)) else { return false };
        sector[offset as usize % SECTOR] ^= 1 << (bit % 8);
        true
    }
    /// The file's current bytes.
    pub fn contents(&self, file: &str) -> Option<Vec<u8>> {
        let names = self.0.names.lock();
        let content = names.now.get(file)?.lock();
        let mut bytes = vec![0; content.len as usize];
        content.read(0, &mut bytes);
        Some(bytes)
    }

    fn step(&self, what: &'static str, name: &str) -> Result<()> {
        self.0.step(what, name, 0, 0)
    }
    fn handle(&self, name: &str, node: Node) -> Arc<dyn File> {
        Arc::new(SimFile {
            shared: self.0.clone(),
            name: name.to_string(),
            node,
            generation: self.0.generation.load(Ordering::SeqCst),
        })
    }
}

/// A disk's durable content at one moment.
pub struct Snapshot(BTreeMap<String, Content>);

impl Content {
    fn copy(&self) -> Content {
        Content {
            durable: self.durable.clone(),
            unsynced: BTreeMap::new(),
            len: self.durable_len,
            durable_len: self.durable_len,
            cut: u64::MAX,
        }
    }
    fn durable_copy(&self) -> Content {
        self.copy()
    }
}

impl Shared {
    /// Bytes of all files.
    fn used(&self) -> u64 {
        self.names.lock().now.values().map(|node| node.lock().len).sum()
    }
    fn failed(&self, what: &'static str, name: &str, offset: u64, len: u64, cause: &str) -> DiskError {
        DiskError::Failed { name: format!("{}/{name}", self.name), what, offset, len, cause: cause.into() }
    }
    fn step(&self, what: &'static str, name: &str, offset: u64, len: u64) -> Result<()> {
        if self.steps.take() { Ok(()) } else { Err(self.failed(what, name, offset, len, "the power is off")) }
    }
}

struct SimLock {
    shared: Arc<Shared>,
    generation: u64,
}
impl DiskLock for SimLock {}
impl Drop for SimLock {
    fn drop(&mut self) {
        let _ = self.shared.locked.compare_exchange(self.generation, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl Disk for SimDisk {
    fn describe(&self) -> String {
        format!("sim:{}", self.0.name)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        self.step("open", name)?;
        match self.0.names.lock().now.get(name) {
            Some(node) => Ok(self.handle(name, node.clone())),
            None => Err(DiskError::Absent { name: name.to_string() }),
        }
    }
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.step("create", name)?;
        let mut names = self.0.names.lock();
        if names.now.contains_key(name) {
            return Err(DiskError::Exists { name: name.to_string() });
        }
        let node = Node::default();
        let change = NameChange::Made(name.to_string(), node.clone());
        apply(&mut names.now, &change);
        names.pending.push(change);
        Ok(self.handle(name, node))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.step("look up", name)?;
        Ok(self.0.names.lock().now.contains_key(name))
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.step("remove", name)?;
        let mut names = self.0.names.lock();
        if !names.now.contains_key(name) {
            return Err(DiskError::Absent { name: name.to_string() });
        }
        let change = NameChange::Removed(name.to_string());
        apply(&mut names.now, &change);
        names.pending.push(change);
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.step("rename", from)?;
        let mut names = self.0.names.lock();
        if !names.now.contains_key(from) {
            return Err(DiskError::Absent { name: from.to_string() });
        }
        let change = NameChange::Renamed(from.to_string(), to.to_string());
        apply(&mut names.now, &change);
        names.pending.push(change);
        Ok(())
    }
    fn list(&self) -> Result<Vec<String>> {
        self.step("list", "")?;
        Ok(self.0.names.lock().now.keys().cloned().collect())
    }
    fn sync_dir(&self) -> Result<()> {
        self.step("sync directory", "")?;
        if self.0.faults.lying_sync.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut names = self.0.names.lock();
        names.pending.clear();
        names.durable = names.now.clone();
        Ok(())
    }
    /// Files come forward side by side, in an order of the seed: one may be synced before another is written.
    fn write_synced(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        let mut results: Vec<Result<()>> = writes.iter().map(|_| Ok(())).collect();
        let mut under_way: Vec<(usize, usize)> = (0..writes.len()).map(|file| (file, 0)).collect();
        while !under_way.is_empty() {
            let turn = match under_way.len() {
                1 => 0,
                many => self.0.random.below(many as u64) as usize,
            };
            let (file, next) = under_way[turn];
            let (write, result) = (&mut writes[file], &mut results[file]);
            match write.ops.get_mut(next) {
                Some(op) => {
                    let written = write.file.batch(class, std::slice::from_mut(op)).into_iter().collect();
                    *result = std::mem::replace(result, Ok(())).and(written);
                    under_way[turn].1 += 1;
                }
                None => {
                    *result = std::mem::replace(result, Ok(())).and_then(|()| write.file.sync(class));
                    under_way.swap_remove(turn);
                }
            }
        }
        results
    }
    fn lock(&self) -> Result<Box<dyn DiskLock>> {
        let generation = self.0.generation.load(Ordering::SeqCst);
        match self.0.locked.compare_exchange(0, generation, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Ok(Box::new(SimLock { shared: self.0.clone(), generation })),
            Err(_) => Err(DiskError::Locked { name: self.0.name.clone(), by: None }),
        }
    }
    fn free_bytes(&self) -> Result<u64> {
        if self.0.faults.full.load(Ordering::SeqCst) {
            return Ok(0);
        }
        match self.0.faults.capacity.load(Ordering::SeqCst) {
            0 => Ok(1 << 40),
            capacity => Ok(capacity.saturating_sub(self.0.used())),
        }
    }
}

struct SimFile {
    shared: Arc<Shared>,
    name: String,
    node: Node,
    generation: u64,
}

impl SimFile {
    fn ready(&self, what: &'static str, offset: u64, len: u64) -> Result<()> {
        self.shared.step(what, &self.name, offset, len)?;
        if self.generation != self.shared.generation.load(Ordering::SeqCst) {
            return Err(self.shared.failed(what, &self.name, offset, len, "a handle from before the crash"));
        }
        assert!(
            offset.is_multiple_of(terrace_io::SECTOR as u64) && len.is_multiple_of(terrace_io::SECTOR as u64),
            "{what} {} of {len} at {offset} is not aligned",
            self.name
        );
        Ok(())
    }
    fn grows(&self, to: u64) -> Result<()> {
        let len = self.node.lock().len;
        let capacity = self.shared.faults.capacity.load(Ordering::SeqCst);
        let full = self.shared.faults.full.load(Ordering::SeqCst)
            || (capacity > 0 && to > len && self.shared.used() + (to - len) > capacity);
        if to > len && full {
            return Err(DiskError::Full { name: self.name.clone(), what: "write" });
        }
        Ok(())
    }
    fn error(&self, what: &'static str, offset: u64, len: u64) -> DiskError {
        self.shared.failed(what, &self.name, offset, len, "input/output error")
    }
    fn requested(&self, class: Class) {
        self.shared.requests[class.index()].fetch_add(1, Ordering::SeqCst);
    }
    fn read_one(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.ready("read", offset, buf.len() as u64)?;
        let len = buf.len() as u64;
        let failed = |cause| self.shared.failed("read", &self.name, offset, len, cause);
        let faults = &self.shared.faults;
        if faults.read_errors.load(Ordering::SeqCst)
            || faults.strikes(class)
            || faults.is_spoiled(&self.name, offset, len)
        {
            return Err(failed("input/output error"));
        }
        if faults.leaves_behind() {
            return Err(DiskError::Overdue { name: self.name.clone(), offset });
        }
        let content = self.node.lock();
        if offset + len > content.len {
            return Err(failed("past the end of the file"));
        }
        let short = faults.short_reads.load(Ordering::SeqCst);
        if short > 0 && self.shared.random.one_in(short) {
            let part = self.shared.random.below(buf.len().max(1) as u64) as usize;
            content.read(offset, &mut buf[..part]);
            return Err(failed("short read"));
        }
        content.read(offset, buf);
        Ok(())
    }
    fn write_one(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        let len = buf.len() as u64;
        self.ready("write", offset, len)?;
        let faults = &self.shared.faults;
        if faults.write_errors.load(Ordering::SeqCst) || faults.strikes(class) {
            return Err(self.error("write", offset, len));
        }
        self.grows(offset + len)?;
        faults.written(&self.name, offset, len);
        self.node.lock().write(offset, buf);
        Ok(())
    }
}

impl File for SimFile {
    fn name(&self) -> &str {
        &self.name
    }
    fn len(&self) -> u64 {
        self.node.lock().len
    }
    fn grow(&self, len: u64, _zero: bool) -> Result<()> {
        self.ready("grow", 0, 0)?;
        self.grows(len)?;
        let mut content = self.node.lock();
        content.len = content.len.max(len);
        Ok(())
    }
    fn shrink(&self, len: u64) -> Result<()> {
        self.ready("shrink", 0, 0)?;
        if self.shared.faults.write_errors.load(Ordering::SeqCst) {
            return Err(self.error("shrink", len, 0));
        }
        self.node.lock().shrink(len);
        Ok(())
    }
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.requested(class);
        self.read_one(class, offset, buf)
    }
    fn write(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        self.requested(class);
        self.write_one(class, offset, buf)
    }
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        self.requested(class);
        ops.iter_mut()
            .map(|op| match op {
                Op::Read { offset, buf } => self.read_one(class, *offset, buf),
                Op::Write { offset, buf } => self.write_one(class, *offset, buf),
            })
            .collect()
    }
    fn sync(&self, class: Class) -> Result<()> {
        self.ready("sync", 0, 0)?;
        let faults = &self.shared.faults;
        if faults.write_errors.load(Ordering::SeqCst) || faults.strikes(class) {
            return Err(self.error("sync", 0, 0));
        }
        self.shared.syncs.fetch_add(1, Ordering::SeqCst);
        if !self.shared.faults.lying_sync.load(Ordering::SeqCst) {
            self.node.lock().sync();
        }
        Ok(())
    }
}
