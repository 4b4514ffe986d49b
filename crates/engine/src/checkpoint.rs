//! The checkpoint: how far back redo must reach.
//!
//! Its position is the minimum over everything that is only in the log yet. The order in which these
//! are read matters, because a change moves from one to the next: the log's end first, then redo not
//! applied, dirty pages, images not mapped, map pages. What has left one before it is read has
//! entered a later one.
//!
//! A checkpoint is one superblock write. The ring's blocks before it are released only after that.

use crate::error::Error;
use crate::log::Log;
use crate::recovery::pending::Pending;
use crate::superblock::Superblock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::File;
use terrace_io::sched::{Event, Step, Worker};
use terrace_tier::flush::Flusher;
use terrace_tier::map::Map;
use terrace_tier::page::Glsn;
use terrace_tier::pool::Pool;
use terrace_tier::redo::Redo;

/// Rest between looks while the flusher works towards a target, in nanoseconds.
const REST: u64 = 5_000_000;

pub struct Checkpointer {
    pub log: Arc<Log>,
    pub pool: Arc<Pool>,
    pub flusher: Arc<Flusher>,
    pub map: Arc<Map>,
    pub pending: Arc<Pending>,
    pub file: Arc<dyn File>,
    pub superblock: Mutex<Superblock>,
    /// Everything first changed below this is asked to be behind a checkpoint.
    pub target: AtomicU64,
    /// A checkpoint was made, or failed.
    pub progress: Event,
    pub failed: Mutex<Option<Error>>,
    pub made: AtomicU64,
    /// One superblock write at a time.
    writing: Mutex<()>,
}

impl Checkpointer {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        log: Arc<Log>,
        pool: Arc<Pool>,
        flusher: Arc<Flusher>,
        map: Arc<Map>,
        pending: Arc<Pending>,
        file: Arc<dyn File>,
        superblock: Superblock,
    ) -> Checkpointer {
        Checkpointer {
            log,
            pool,
            flusher,
            map,
            pending,
            file,
            superblock: Mutex::new(superblock),
            target: AtomicU64::new(0),
            progress: Event::new(),
            failed: Mutex::new(None),
            made: AtomicU64::new(0),
            writing: Mutex::new(()),
        }
    }

    /// The position that a checkpoint made now has.
    pub fn bound(&self) -> Glsn {
        let appended = self.log.appended();
        let parts = [
            self.pending.oldest(),
            self.pool.oldest_dirty(),
            self.flusher.oldest_bound(),
            self.map.oldest_unwritten(),
        ];
        // Nothing above the durable horizon may be called done: the log up to here must be readable.
        let durable = self.log.durable();
        parts.into_iter().flatten().fold(appended.min(durable), Glsn::min)
    }

    /// Asks for a checkpoint at or past `target`. Does not wait.
    pub fn request(&self, target: Glsn) {
        self.target.fetch_max(target, Ordering::AcqRel);
        self.log.checkpoint_wanted.notify();
    }

    pub fn position(&self) -> Glsn {
        self.superblock.lock().checkpoint
    }

    /// Changes the superblock and writes it. No lock that a worker needs is held over the write but
    /// `writing`, which orders the writes.
    pub fn write_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<(), Error> {
        let _one = self.writing.lock();
        let next = {
            let mut superblock = self.superblock.lock();
            let mut next = superblock.clone();
            change(&mut next);
            next.generation += 1;
            *superblock = next.clone();
            next
        };
        next.write(&*self.file)?;
        Ok(())
    }

    /// Makes a checkpoint where one can be made now.
    pub fn make(&self) -> Result<(), Error> {
        let bound = self.bound();
        if bound <= self.position() {
            return Ok(());
        }
        let starts = self.log.starts_for(bound);
        let attested = self.log.durable();
        self.write_superblock(|s| {
            s.checkpoint = bound;
            s.attested = attested;
            s.starts = starts.clone();
            s.prune_history();
        })?;
        self.log.release(&starts);
        self.made.fetch_add(1, Ordering::Relaxed);
        self.progress.notify();
        Ok(())
    }

    fn step(&self) -> Result<Step, Error> {
        if self.log.wants_checkpoint() {
            // Half of the ring is full: what is older than a quarter of it goes.
            let (used, blocks) = self.log.usage();
            let keep = (blocks / 4) * crate::log::block::BLOCK as u64;
            let _ = used;
            self.target.fetch_max(self.log.appended().saturating_sub(keep).max(self.position() + 1), Ordering::AcqRel);
        }
        let target = self.target.load(Ordering::Acquire);
        if self.position() >= target {
            return Ok(Step::Idle);
        }
        if let Some(error) = self.flusher.failure() {
            return Err(error.into());
        }
        self.flusher.request(target);
        self.log.make_durable(target.min(self.log.appended()))?;
        if self.map.oldest_unwritten().is_some_and(|oldest| oldest < target) {
            self.map.write_homes()?;
        }
        let before = self.position();
        self.make()?;
        Ok(if self.position() >= target {
            Step::Idle
        } else if self.position() > before {
            Step::Worked
        } else {
            Step::IdleFor(REST)
        })
    }
}

pub struct CheckpointWorker(pub Arc<Checkpointer>);

impl Worker for CheckpointWorker {
    fn name(&self) -> &'static str {
        "checkpoint"
    }
    fn step(&mut self) -> Step {
        if self.0.failed.lock().is_some() {
            return Step::Idle;
        }
        match self.0.step() {
            Ok(step) => step,
            Err(error) => {
                *self.0.failed.lock() = Some(error);
                self.0.progress.notify();
                Step::Idle
            }
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.log.checkpoint_wanted.clone()
    }
}
