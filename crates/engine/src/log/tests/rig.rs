//! A log on a simulated disk, with its superblock, opened again and again.

use crate::error::Error;
use crate::log::{self, Log, LogSetup};
use crate::storage::recovery::cut;
use crate::superblock::{self, Superblock};
use std::sync::Arc;
use terrace_io::World;
use terrace_io::disk::{Class, Disk, File};
use terrace_sim::{SimDisk, SimWorld};
use terrace_tier::page::{Glsn, PageId};
use terrace_tier::redo::{LogError, LogRoom, LsnRange, PageRedo, Redo, Urgency, record_bound};

pub const FIRST: Glsn = 100;

/// A record as recovery found it: page, ops, range.
pub type Record = (PageId, Vec<u8>, LsnRange);

pub struct Rig {
    pub sim: SimWorld,
    /// What the log gets: the simulation's, or one with real threads.
    pub world: World,
    pub disk: Arc<SimDisk>,
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
        let superblock = Superblock {
            version: superblock::VERSION,
            instance: 77,
            lineage: 78,
            generation: 1,
            epoch: 0,
            clean: true,
            has_store: false,
            checkpoint: FIRST,
            attested: FIRST,
            transactions: 1,
            sequences: 1,
            spaces: 16,
            slots: 0,
            log_blocks: blocks,
            starts: vec![0; partitions],
            takers: vec![],
            map_newest: 0,
            map_digest: None,
            history: vec![],
        };
        superblock.create_as(&*disk, superblock::FILE).unwrap();
        disk.sync_dir().unwrap();
        Rig { world: sim.world(), sim, disk }
    }

    pub fn open(&mut self) -> Opened {
        self.try_open().unwrap_or_else(|e| panic!("seed {}: {e}", self.sim.seed))
    }

    pub fn try_open(&mut self) -> Result<Opened, Error> {
        self.open_on(self.disk.clone())
    }

    pub fn open_on(&mut self, disk: Arc<dyn Disk>) -> Result<Opened, Error> {
        let mut superblock = Superblock::read(&*disk)?;
        let files: Vec<Arc<dyn File>> =
            (0..superblock.starts.len()).map(|i| disk.open(&log::file_name(i))).collect::<Result<_, _>>()?;
        for file in &files {
            file.sync(Class::LogWrite)?;
        }
        let mut records = Vec::new();
        let found = cut::replay(&superblock, &files, &mut |header, ops, _| {
            records.push((header.id, ops.to_vec(), LsnRange { first: header.first, end: header.end() }));
            Ok(())
        })?;
        superblock.begin_epoch(found.end)?;
        superblock.generation += 1;
        superblock.write(&*disk.open(superblock::FILE)?)?;
        let log = Arc::new(Log::new(LogSetup {
            world: self.world.clone(),
            volume: disk,
            files,
            starts: found.starts,
            blocks: superblock.log_blocks,
            instance: superblock.instance as u64,
            epoch: superblock.epoch,
            checkpoint: superblock.checkpoint,
            next: found.end,
            room_wait_max: 1_000_000_000,
            waiting_max: 4 << 20,
        }));
        Ok(Opened { log, records })
    }

    pub fn checkpoint(&self, log: &Log, at: Glsn, starts: Vec<u64>) {
        self.try_checkpoint(log, at, starts).unwrap();
    }

    /// A checkpoint at `at`, which is durable.
    pub fn try_checkpoint(&self, log: &Log, at: Glsn, starts: Vec<u64>) -> Result<(), Error> {
        let mut superblock = Superblock::read(&*self.disk)?;
        superblock.checkpoint = at;
        superblock.attested = log.durable();
        superblock.starts = starts;
        superblock.prune_history();
        superblock.generation += 1;
        superblock.write(&*self.disk.open(superblock::FILE)?)?;
        log.release(at, &superblock.starts);
        Ok(())
    }

    /// The power goes and comes back.
    pub fn crash(&mut self) {
        self.disk.crash();
        self.sim.power_on();
    }
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
