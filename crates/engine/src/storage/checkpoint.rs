//! The checkpoint: how far back redo must reach.
//!
//! Its position is the minimum over everything that is only in the log yet. The order in which these
//! are read matters, because a change moves from one to the next: the log's end first, then redo not
//! applied, dirty pages, images not mapped, map pages. What has left one before it is read has
//! entered a later one.
//!
//! A checkpoint is one superblock write; it counts, and the ring's blocks before it are released, only
//! after that.
//!
//! Blocks that a reader of the log holds (`archive`) stay although the checkpoint has passed them: the superblock names the first of them as the rings' starts, and
//! recovery passes over what lies below the checkpoint. When the hold moves on, or breaks, another superblock write frees them.
//!
//! Write limits of tables (`terrace_tier::volume::flush::limit`) hold it back only until three quarters of the ring are full, and not where a thread asks.
//!
//! The worker makes one when the ring is half full, when a thread asks, and, while there is something to
//! do, every ten seconds: what was changed before the last round is then flushed, so an idle instance
//! comes to rest with nothing to redo.
//!
//! Locks: `state`, for memory work; superblock writes take turns by a flag and an event.

use crate::error::Error;
use crate::planted;
use crate::storage::recovery::pending::Pending;
use crate::superblock::{Superblock, VERSION_OF_PATCHES};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::disk::File;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Step, Worker};
use terrace_log::HoldState;
use terrace_log::Log;
use terrace_log::Redo;
use terrace_log::block::BLOCK;
use terrace_tier::memory::pool::Pool;
use terrace_tier::objects::fence::{Taker, Takers};
use terrace_tier::objects::sink::Patches;
use terrace_tier::page::Glsn;
use terrace_tier::volume::flush::Flusher;
use terrace_tier::volume::map::Map;

/// Rest between looks while others work towards the target, in nanoseconds; doubled up to the second.
const REST_MIN: Nanos = 2_000_000;
const REST_MAX: Nanos = 100_000_000;
/// Time between the rounds of an instance that has something to do but no need.
const ROUND: Nanos = 10_000_000_000;

/// One block of a ring in this many is worth a write of the superblock.
const FREED_AT: u64 = 16;

/// The superblock as it is on the volume, and whether a write of it is under way.
struct CheckpointState {
    superblock: Superblock,
    writing: bool,
    /// A checkpoint is being made, from the look at its position until the log is released.
    making: bool,
    /// None is to be made.
    held: bool,
}

/// What the checkpoint looks at.
pub struct Checkpointer {
    world: World,
    log: Arc<Log>,
    pool: Arc<Pool>,
    flusher: Arc<Flusher>,
    map: Arc<Map>,
    pending: Arc<Pending>,
    file: Arc<dyn File>,
    state: Mutex<CheckpointState, { Mutexes::Checkpoint as u8 }>,
    /// Both copies of the superblock say that there may be patch objects.
    patches_noted: AtomicBool,
    /// A superblock write ended.
    turn: Event,
    /// Everything below this is asked to be behind a checkpoint.
    target: AtomicU64,
    /// And below this whatever limits tables have.
    urgent: AtomicU64,
    /// A checkpoint was made, or failed.
    pub progress: Event,
    failed: Mutex<Option<Error>, { Mutexes::Checkpoint as u8 }>,
    pub made: AtomicU64,
}

impl Checkpointer {
    /// `superblock` is what the file holds; `file` the superblock's.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        world: World,
        log: Arc<Log>,
        pool: Arc<Pool>,
        flusher: Arc<Flusher>,
        map: Arc<Map>,
        pending: Arc<Pending>,
        file: Arc<dyn File>,
        superblock: Superblock,
    ) -> Checkpointer {
        // The newer copy said so when it was read, and this one was written over the older.
        let patches_noted = AtomicBool::new(superblock.has_patches());
        Checkpointer {
            world,
            log,
            pool,
            flusher,
            map,
            pending,
            file,
            patches_noted,
            state: Mutex::new(CheckpointState { superblock, writing: false, making: false, held: false }),
            turn: Event::new(),
            target: AtomicU64::new(0),
            urgent: AtomicU64::new(0),
            progress: Event::new(),
            failed: Mutex::new(None),
            made: AtomicU64::new(0),
        }
    }

    /// The superblock as it is durable.
    pub fn superblock(&self) -> Superblock {
        self.state.lock().superblock.clone()
    }

    pub fn position(&self) -> Glsn {
        self.state.lock().superblock.checkpoint
    }

    /// Why no more checkpoints are made, if so.
    pub fn failure(&self) -> Option<Error> {
        self.failed.lock().clone()
    }

    /// Asks for a checkpoint at or past `target`. Does not wait.
    pub fn request(&self, target: Glsn) {
        self.target.fetch_max(target, Ordering::AcqRel);
        self.urgent.fetch_max(target, Ordering::AcqRel);
        self.log.checkpoint_wanted.notify();
    }

    /// The position that a checkpoint made now has. See the header for the order.
    pub fn bound(&self) -> Glsn {
        let appended = self.log.appended();
        let parts = [
            self.pending.oldest(),
            self.pool.oldest_dirty().filter(|_| !planted::DIRTY_PAGE_PASSED.on()),
            self.flusher.oldest_bound().filter(|_| !planted::DIRTY_PAGE_PASSED.on()),
            self.map.oldest_unwritten().filter(|_| !planted::MAP_PASSED.on()),
        ];
        // Never above the durable horizon: the log must be readable up to the checkpoint.
        parts.into_iter().flatten().fold(appended.min(self.log.durable()), Glsn::min)
    }

    /// Changes the superblock and writes it; the change counts when it is durable. May wait.
    pub fn write_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<(), Error> {
        let mut next = loop {
            let turn = self.turn.ticket();
            let mut state = self.state.lock();
            if !state.writing {
                state.writing = true;
                break state.superblock.clone();
            }
            drop(state);
            self.world.sched.wait(&self.turn, turn, None);
        };
        change(&mut next);
        next.generation += 1;
        let written = next.write(&*self.file);
        let mut state = self.state.lock();
        state.writing = false;
        if written.is_ok() {
            state.superblock = next;
        }
        drop(state);
        self.turn.notify();
        if let Err(error) = &written {
            self.log.poison(&format!("the superblock cannot be written: {error}"));
        }
        Ok(written?)
    }

    /// As `write_superblock`, in both copies: for what must not go back if the newer copy is damaged
    /// (ids that were given out). The change is applied twice.
    pub fn write_both(&self, change: impl Fn(&mut Superblock)) -> Result<(), Error> {
        self.write_superblock(&change)?;
        self.write_superblock(&change)
    }

    /// Holds the checkpoint where it is: from its position on the log stays readable, until `release`. One at a time holds it. May wait.
    pub fn hold(&self) {
        loop {
            let turn = self.turn.ticket();
            let mut state = self.state.lock();
            assert!(!state.held, "the checkpoint is held twice");
            if !state.making {
                state.held = true;
                return;
            }
            drop(state);
            self.world.sched.wait(&self.turn, turn, None);
        }
    }

    /// Checkpoints are made again.
    pub fn release(&self) {
        self.state.lock().held = false;
        self.log.checkpoint_wanted.notify();
    }

    /// Makes a checkpoint where one can be made now. Only the worker calls it.
    fn make(&self) -> Result<(), Error> {
        {
            let mut state = self.state.lock();
            if state.held && !planted::COPIED_LOG_RELEASED.on() {
                return Ok(());
            }
            state.making = true;
        }
        let made = self.make_now();
        self.state.lock().making = false;
        self.turn.notify();
        made
    }

    fn make_now(&self) -> Result<(), Error> {
        let bound = self.bound().max(self.position());
        let starts = self.log.kept_starts_for(bound);
        if bound == self.position() && !self.frees(&starts) {
            return Ok(());
        }
        let attested = self.log.durable();
        let (map_newest, held_from) = (self.map.newest_home(), self.log.held_from());
        self.write_superblock(|s| {
            s.checkpoint = bound;
            s.attested = attested;
            s.starts.clone_from(&starts);
            s.map_newest = s.map_newest.max(map_newest);
            s.prune_history(held_from);
        })?;
        self.log.release(bound, &starts);
        self.made.fetch_add(1, Ordering::Relaxed);
        self.progress.notify();
        Ok(())
    }

    /// Whether these starts free enough for a write of the superblock, of what a reader held (`terrace_log::HoldState`).
    fn frees(&self, starts: &[u64]) -> bool {
        let state = self.state.lock();
        let least = state.superblock.log_blocks / FREED_AT;
        starts.iter().zip(&state.superblock.starts).any(|(start, before)| *start >= before + least)
    }

    /// How far the checkpoint is to come.
    fn goal(&self) -> Glsn {
        if self.log.wants_checkpoint() {
            // All but the newest quarter of the log goes.
            let (_, blocks) = self.log.usage();
            let newest = blocks / 4 * (BLOCK * self.log.partitions()) as u64;
            let position = self.position();
            let old = self.log.appended().saturating_sub(newest);
            // Blocks are padded, so positions say less than the ring does: at least half of it.
            let half = position + (self.log.appended() - position).div_ceil(2);
            self.target.fetch_max(old.max(half), Ordering::AcqRel);
            if self.log.needs_checkpoint() {
                self.urgent.fetch_max(old.max(half), Ordering::AcqRel);
            }
        }
        self.target.load(Ordering::Acquire)
    }

    /// One look, and a checkpoint if there is need.
    fn work(&self) -> Result<Outcome, Error> {
        if let Some(error) = self.flusher.failure() {
            return Err(error.into());
        }
        self.log.checkpoint_heard();
        let goal = self.goal();
        let before = self.position();
        if before >= goal {
            let held = self.log.hold_state() != HoldState::None;
            if held && self.frees(&self.log.kept_starts_for(before)) {
                self.make()?;
                let left = self.frees(&self.log.kept_starts_for(self.position()));
                return Ok(if left { Outcome::Stuck } else { Outcome::Moved });
            }
            return Ok(Outcome::Nothing);
        }
        self.flusher.request(goal.min(self.urgent.load(Ordering::Acquire)));
        self.flusher.wish(goal);
        if self.pool.oldest_dirty().is_some_and(|oldest| oldest < goal) {
            // Redo makes pages dirty with an old first change, after the flusher was done.
            self.pool.flush_wanted.notify();
        }
        if self.map.oldest_unwritten().is_some_and(|oldest| oldest < goal) {
            self.map.write_homes()?;
        }
        self.log.make_durable(goal)?;
        if self.flusher.oldest_bound().is_some_and(|oldest| oldest < goal) {
            // Images wait for their map records, which lie above the goal.
            self.log.make_durable(self.log.appended())?;
        }
        self.make()?;
        Ok(if self.position() > before { Outcome::Moved } else { Outcome::Stuck })
    }
}

impl Patches for Checkpointer {
    fn note(&self) -> Result<(), String> {
        // The superblock in memory says so when the first copy does: another sinker may be about to write the second.
        if self.patches_noted.load(Ordering::Acquire) {
            return Ok(());
        }
        self.write_both(|s| s.version = VERSION_OF_PATCHES).map_err(|error| error.to_string())?;
        self.patches_noted.store(true, Ordering::Release);
        Ok(())
    }
}

impl Takers for Checkpointer {
    fn known(&self) -> Vec<Taker> {
        self.state.lock().superblock.takers.clone()
    }

    /// In both copies: a volume that forgot its own writer would be fenced.
    fn note(&self, takers: &[Taker]) -> Result<(), String> {
        self.write_both(|s| s.takers = Taker::merged(&s.takers, takers)).map_err(|error| error.to_string())
    }
}

enum Outcome {
    /// There is no need.
    Nothing,
    Moved,
    /// Others must work first: the flusher, the background pass.
    Stuck,
}

pub struct CheckpointWorker {
    checkpointer: Arc<Checkpointer>,
    /// The next round, and where the log ended at the last one.
    round_at: Nanos,
    round_end: Glsn,
    rest: Nanos,
}

impl CheckpointWorker {
    pub fn new(checkpointer: Arc<Checkpointer>) -> CheckpointWorker {
        let round_at = checkpointer.world.clock.now() + ROUND;
        CheckpointWorker { checkpointer, round_at, round_end: 0, rest: REST_MIN }
    }

    /// The light checkpoint of an instance that has time.
    fn round(&mut self) -> Step {
        let c = &self.checkpointer;
        let position = c.position();
        if position >= c.log.appended() && c.log.checkpoint_rests(position) {
            self.round_end = 0;
            return Step::Idle;
        }
        let now = c.world.clock.now();
        if now < self.round_at {
            return Step::IdleFor(self.round_at - now);
        }
        c.target.fetch_max(self.round_end, Ordering::AcqRel);
        self.round_end = c.log.appended();
        self.round_at = now + ROUND;
        Step::Worked
    }
}

impl Worker for CheckpointWorker {
    fn name(&self) -> &'static str {
        "checkpoint"
    }

    fn step(&mut self) -> Step {
        if self.checkpointer.failure().is_some() {
            return Step::Idle;
        }
        match self.checkpointer.work() {
            Ok(Outcome::Nothing) => self.round(),
            Ok(Outcome::Moved) => {
                self.rest = REST_MIN;
                Step::Worked
            }
            Ok(Outcome::Stuck) => {
                self.rest = (2 * self.rest).min(REST_MAX);
                Step::IdleFor(self.rest)
            }
            // The map's file finds no room on the device: others may make some.
            Err(Error::Full(_)) => Step::IdleFor(REST_MAX),
            Err(error) => {
                // Without checkpoints the log would fill up: better to stop now and say why.
                self.checkpointer.log.poison(&format!("no checkpoint can be made: {error}"));
                *self.checkpointer.failed.lock() = Some(error);
                self.checkpointer.progress.notify();
                Step::Idle
            }
        }
    }

    fn wake_event(&self) -> Arc<Event> {
        self.checkpointer.log.checkpoint_wanted.clone()
    }
}
