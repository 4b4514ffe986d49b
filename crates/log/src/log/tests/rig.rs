//! A log on a simulated disk, with a file that says of it what the superblock does, opened again and again.

use crate::log::{self, Log, LogSetup};
use crate::recovery::{self, LogBounds, ReplayError, VERSION_OF_LOG};
use crate::{Glsn, LogError, LogRoom, LsnRange, PageId, PageRedo, Redo, Urgency, file_name, record_bound};
use std::sync::Arc;
use terrace_io::clock::Nanos;
use terrace_io::disk::{Class, Disk, DiskError, File};
use terrace_io::{AlignedBuf, World};
use terrace_sim::{SimDisk, SimWorld};

pub const FIRST: Glsn = 100;

/// The bounds' file has two copies, written alternately and synced each, as the superblock has.
const BOUNDS: &str = "bounds";
const COPY: usize = 4096;

/// A record as recovery found it: page, ops, range.
pub type Record = (PageId, Vec<u8>, LsnRange);

pub struct Rig {
    pub sim: SimWorld,
    /// What the log gets: the simulation's, or one with real threads.
    pub world: World,
    pub disk: Arc<SimDisk>,
    pub room_wait_max: Nanos,
}

pub struct Opened {
    pub log: Arc<Log>,
    pub records: Vec<Record>,
}

impl Rig {
    pub fn new(seed: u64, partitions: usize, blocks: u64) -> Rig {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        log::create(&*disk, partitions, blocks).unwrap();
        let bounds = LogBounds {
            version: VERSION_OF_LOG,
            clean: true,
            instance: 77,
            epoch: 0,
            checkpoint: FIRST,
            attested: FIRST,
            blocks,
            starts: vec![0; partitions],
            history: vec![],
        };
        let file = disk.create(BOUNDS).unwrap();
        file.grow(2 * COPY as u64, true).unwrap();
        file.write(Class::Superblock, 0, &encode(0, &bounds)).unwrap();
        file.sync(Class::Superblock).unwrap();
        disk.sync_dir().unwrap();
        Rig { world: sim.world(), sim, disk, room_wait_max: 1_000_000_000 }
    }

    pub fn open(&mut self) -> Opened {
        self.try_open().unwrap_or_else(|e| panic!("seed {}: {e}", self.sim.seed))
    }

    pub fn try_open(&mut self) -> Result<Opened, ReplayError> {
        self.open_on(self.disk.clone())
    }

    pub fn open_on(&mut self, disk: Arc<dyn Disk>) -> Result<Opened, ReplayError> {
        let mut bounds = read(&*disk)?.1;
        let files: Vec<Arc<dyn File>> =
            (0..bounds.starts.len()).map(|i| disk.open(&file_name(i))).collect::<Result<_, _>>()?;
        for file in &files {
            file.sync(Class::LogWrite)?;
        }
        let mut records = Vec::new();
        let found = recovery::replay::<ReplayError>(&bounds, &files, &mut |header, ops, _| {
            records.push((header.id, ops.to_vec(), LsnRange { first: header.first, end: header.end() }));
            Ok(())
        })?;
        recovery::begin_epoch(&mut bounds.history, bounds.checkpoint, found.end);
        bounds.epoch += 1;
        bounds.history.push((bounds.epoch, found.end));
        bounds.attested = found.end;
        bounds.clean = false;
        self.write_bounds(&*disk, &bounds)?;
        let log = Arc::new(Log::new(LogSetup {
            world: self.world.clone(),
            volume: disk,
            files,
            starts: found.starts,
            blocks: bounds.blocks,
            instance: bounds.instance,
            epoch: bounds.epoch,
            checkpoint: bounds.checkpoint,
            next: found.end,
            room_wait_max: self.room_wait_max,
            waiting_max: 4 << 20,
            holds: false,
        }));
        Ok(Opened { log, records })
    }

    pub fn checkpoint(&self, log: &Log, at: Glsn, starts: Vec<u64>) {
        self.try_checkpoint(log, at, starts).unwrap();
    }

    /// A checkpoint at `at`, which is durable.
    pub fn try_checkpoint(&self, log: &Log, at: Glsn, starts: Vec<u64>) -> Result<(), DiskError> {
        let mut bounds =
            LogBounds { checkpoint: at, attested: log.durable(), starts, ..read(&*self.disk)?.1 };
        recovery::prune(&mut bounds.history, at);
        self.write_bounds(&*self.disk, &bounds)?;
        log.release(at, &bounds.starts);
        Ok(())
    }

    /// The newer intact copy.
    pub fn bounds(&self) -> LogBounds {
        read(&*self.disk).unwrap().1
    }

    /// Writes over the older copy and syncs.
    pub fn write_bounds(&self, disk: &dyn Disk, bounds: &LogBounds) -> Result<(), DiskError> {
        let generation = read(disk)?.0 + 1;
        let file = disk.open(BOUNDS)?;
        file.write(Class::Superblock, generation % 2 * COPY as u64, &encode(generation, bounds))?;
        file.sync(Class::Superblock)
    }

    /// The power goes and comes back.
    pub fn crash(&mut self) {
        self.disk.crash();
        self.sim.power_on();
    }
}

fn encode(generation: u64, bounds: &LogBounds) -> AlignedBuf {
    let LogBounds { version, clean, instance, epoch, checkpoint, attested, blocks, starts, history } = bounds;
    let mut words = vec![generation, u64::from(*version), u64::from(*clean), *instance, u64::from(*epoch)];
    words.extend([*checkpoint, *attested, *blocks, starts.len() as u64, history.len() as u64]);
    words.extend(starts);
    words.extend(history.iter().flat_map(|(epoch, first)| [u64::from(*epoch), *first]));
    let mut copy = AlignedBuf::zeroed(COPY);
    for (to, word) in copy[8..].chunks_exact_mut(8).zip(&words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    assert!(words.len() < COPY / 8);
    let sum = crc32c::crc32c(&copy[8..]);
    copy[..4].copy_from_slice(&sum.to_le_bytes());
    copy
}

/// The newer intact copy, with its generation.
fn read(disk: &dyn Disk) -> Result<(u64, LogBounds), DiskError> {
    let mut copies = AlignedBuf::zeroed(2 * COPY);
    disk.open(BOUNDS)?.read(Class::Superblock, 0, &mut copies)?;
    let newest = copies.chunks_exact(COPY).filter_map(decode).max_by_key(|(generation, _)| *generation);
    Ok(newest.expect("an intact copy"))
}

fn decode(copy: &[u8]) -> Option<(u64, LogBounds)> {
    let mut words = copy.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let sum = words.next()?;
    if sum != u64::from(crc32c::crc32c(&copy[8..])) {
        return None;
    }
    let mut next = || words.next().unwrap();
    let (generation, version, clean, instance, epoch) =
        (next(), next() as u32, next() == 1, next(), next() as u32);
    let (checkpoint, attested, blocks, starts, history) = (next(), next(), next(), next(), next());
    let starts = (0..starts).map(|_| next()).collect();
    let history = (0..history).map(|_| (next() as u32, next())).collect();
    Some((
        generation,
        LogBounds { version, clean, instance, epoch, checkpoint, attested, blocks, starts, history },
    ))
}

/// Log bytes that some pages' records take at most, each with ops of the length given.
pub fn bytes(pages: &[(PageId, usize)]) -> u64 {
    pages.iter().map(|(_, len)| record_bound(*len)).sum()
}

pub fn append(log: &Arc<Log>, pages: &[(PageId, usize)], urgency: Urgency) -> Result<LsnRange, LogError> {
    let room = log.clone().reserve(bytes(pages), urgency)?;
    Ok(append_in(log, room, pages))
}

/// The ops of a test's record tell which range they belong to.
pub fn ops(first: Glsn, index: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (first as usize ^ index.wrapping_mul(31) ^ i) as u8).collect()
}

pub fn append_in(log: &Arc<Log>, mut room: LogRoom, pages: &[(PageId, usize)]) -> LsnRange {
    let first = log.appended();
    let all: Vec<Vec<u8>> = pages.iter().enumerate().map(|(i, (_, len))| ops(first, i, *len)).collect();
    let records: Vec<PageRedo<'_>> =
        pages.iter().zip(&all).map(|((id, _), ops)| PageRedo { id: *id, ops }).collect();
    let range = log.append(&mut room, &records, &mut |_| {});
    assert_eq!(range.first, first);
    range
}

/// What a disk of the tests leaves to the one below it, its field of this name.
macro_rules! as_below {
    ($disk:tt) => {
        fn describe(&self) -> String {
            self.$disk.describe()
        }
        fn open(&self, name: &str) -> terrace_io::disk::Result<Arc<dyn File>> {
            self.$disk.open(name)
        }
        fn create(&self, name: &str) -> terrace_io::disk::Result<Arc<dyn File>> {
            self.$disk.create(name)
        }
        fn exists(&self, name: &str) -> terrace_io::disk::Result<bool> {
            self.$disk.exists(name)
        }
        fn remove(&self, name: &str) -> terrace_io::disk::Result<()> {
            self.$disk.remove(name)
        }
        fn rename(&self, from: &str, to: &str) -> terrace_io::disk::Result<()> {
            self.$disk.rename(from, to)
        }
        fn list(&self) -> terrace_io::disk::Result<Vec<String>> {
            self.$disk.list()
        }
        fn sync_dir(&self) -> terrace_io::disk::Result<()> {
            self.$disk.sync_dir()
        }
        fn lock(&self) -> terrace_io::disk::Result<Box<dyn terrace_io::disk::DiskLock>> {
            self.$disk.lock()
        }
        fn free_bytes(&self) -> terrace_io::disk::Result<u64> {
            self.$disk.free_bytes()
        }
    };
}
pub(crate) use as_below;
