//! Sinking (W3, W4): cooled blocks leave the object buffer for the object store. CloudJump III §4.2.4.
//!
//! A block is picked by the policy (`policy`) and moved by the mover (`mover`), one worker a block at a time.
//! A block is in flight while it is moved; nobody else moves it then.
//!
//! When the store is dead, slow or throttles, or the fence cannot be asked, workers rest: longer each
//! time, up to a limit, spread by chance. Near reads and commits go on meanwhile; the object buffer
//! fills. Nothing here crashes or spins, and `status` says what is wrong. How
//! often the store is asked is bounded (`rate`). A block whose images are
//! corrupt is left where it is until it changes, and counted. A fenced instance sinks nothing any more.
//!
//! Idle instances cost nothing: without a buffered block that could sink, a worker sleeps until the map
//! has one.
//!
//! Locks: `state`, for memory work only.
//!
//! Not here: deleting what was superseded (`collect`), though the same worker does it when it has no block.

mod gather;
pub mod limit;
mod mover;
pub mod policy;
mod rate;
mod room;

use crate::below::{Tier, in_object};
use crate::collect::Collector;
use crate::fence::{Fence, FenceError};
use crate::map::entry::PATCH_MAX;
use crate::map::{BufferedBlock, Map, MapError};
use crate::object::Objects;
use crate::object::key::ObjectKey;
use crate::object_buffer::ObjectBuffer;
use crate::page::{BadImage, BlockId, Glsn, PageId};
use crate::path::FlashCache;
use crate::pool::Pool;
use crate::quota::{self, ByShare, Rules};
use crate::redo::{LogError, Redo};
use hashbrown::{HashMap, HashSet};
use mover::Mover;
pub use mover::Sunk;
use policy::{Ages, Pressure, Reason};
use rate::Rate;
use room::Room;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::disk::DiskError;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Step, Worker};
use terrace_io::store::StoreError;

/// Blocks that one choice plans ahead.
const PLAN: usize = 64;
/// Where tables have a cap, how often to look whether they keep to it, in nanoseconds.
const SHARE_REST: Nanos = 500_000_000;
/// Requests that a block costs: its put, and at times a read of what it had in its old object.
const REQUESTS: u64 = 2;
/// Rests after the first failure and at the most, in nanoseconds.
const REST_MIN: Nanos = 50_000_000;
const REST_MAX: Nanos = 30_000_000_000;
/// A store that says to come later than this is asked by then.
const RETRY_AFTER_MAX: Nanos = 600_000_000_000;
/// The least memory that blocks are moved with, in bytes: what one is packed to and what is got of its old object, where neither
/// is compressed. What is got of its patch object has been given back by then. (The answer of a remote store is a copy more for as long
/// as it is taken apart.)
pub const MEMORY_MIN: usize = 2 * mover::BLOCK_BYTES;
/// The most that is of use.
pub const MEMORY_MAX: usize = WORKERS_MAX * MEMORY_MIN;
/// A block waits for the store and the log most of the time, and then takes what it was packed to: a worker for so many bytes.
/// `Room` sees to it that they don't take more together, whatever they are packed to.
const BYTES_A_WORKER: usize = mover::BLOCK_BYTES / 4;
const WORKERS_MAX: usize = 16;

/// Workers that have enough to do with so many bytes of memory.
pub fn workers(memory: usize) -> usize {
    (memory / BYTES_A_WORKER).clamp(1, WORKERS_MAX)
}

/// Of them, those that have room to pack a block at a time.
pub fn packers(memory: usize) -> usize {
    (memory / mover::BLOCK_BYTES).clamp(1, workers(memory))
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum SinkError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("page {id} on {tier}{} is corrupt: {bad}", in_object(.key.as_deref()))]
    Corrupt { id: PageId, tier: Tier, key: Option<Box<ObjectKey>>, bad: BadImage },
    #[error("page {id} has a tag, but neither slot nor object")]
    Nowhere { id: PageId },
    #[error("block {block} changes faster than it can be read")]
    Moving { block: BlockId },
    #[error("no object sequence: {0}")]
    Sequence(String),
    #[error("the volume's format cannot be noted: {0}")]
    Unnoted(String),
}

/// Patch objects, of which builds of former formats know nothing.
pub trait Patches: Send + Sync {
    /// From when this returns on the volume says, durably, that its map may name patch objects. Called before each put of one.
    fn note(&self) -> Result<(), String>;
}

/// For a volume that nobody else opens.
pub struct AlwaysNoted;

impl Patches for AlwaysNoted {
    fn note(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Gives out object sequences, each once in a writer epoch.
pub trait Sequences: Send + Sync {
    fn next(&self) -> Result<u64, SinkError>;
}

/// Sequences from 1. The writer epoch in the key makes them unique: no two opens share an epoch.
pub struct EpochSequences(AtomicU64);

impl EpochSequences {
    pub fn new() -> EpochSequences {
        EpochSequences(AtomicU64::new(1))
    }
}

impl Default for EpochSequences {
    fn default() -> EpochSequences {
        EpochSequences::new()
    }
}

impl Sequences for EpochSequences {
    fn next(&self) -> Result<u64, SinkError> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SinkSettings {
    /// A block that was not flushed to for so long has cooled, in nanoseconds.
    pub cool: Nanos,
    /// Requests a second that blocks may cost in the store; 0: no limit.
    pub requests_max: u64,
    /// Bytes that the blocks on the move may take together, at least `MEMORY_MIN`.
    pub memory: usize,
    /// Blocks that are written again and again sink later.
    pub defers: bool,
}

impl Default for SinkSettings {
    fn default() -> SinkSettings {
        SinkSettings { cool: 300_000_000_000, requests_max: 0, memory: 4 * MEMORY_MIN, defers: true }
    }
}

#[derive(Default, Debug)]
pub struct SinkCounters {
    pub blocks: AtomicU64,
    /// Of them, those of which only a patch object was put.
    pub patches: AtomicU64,
    /// Pages that were only in slots before.
    pub pages: AtomicU64,
    pub by_watermark: AtomicU64,
    pub by_cooling: AtomicU64,
    /// Of tables with more of the object buffer than they may have.
    pub by_share: AtomicU64,
    pub errors: AtomicU64,
    pub throttled: AtomicU64,
    /// Blocks that cannot be sunk because an image is corrupt.
    pub corrupt: AtomicU64,
}

/// What there is, for people.
#[derive(Clone, Debug)]
pub struct SinkStatus {
    pub blocks_buffered: u64,
    pub blocks_in_flight: u64,
    /// What went wrong last, while nothing has gone well since.
    pub error: Option<String>,
    /// Nothing is published any more, and why.
    pub fenced: Option<String>,
}

struct State {
    plan: VecDeque<BlockId>,
    reason: Reason,
    in_flight: HashSet<BlockId>,
    /// Blocks with a corrupt image, and their last change when that was found.
    corrupt: HashMap<BlockId, Glsn>,
    ages: Ages,
    rest: Nanos,
    rest_until: Nanos,
    rate: Rate,
    error: Option<String>,
    /// The log has stopped: nothing can be published any more.
    stopped: bool,
    /// The plan is of blocks that sink beyond their tables' limits.
    yields: bool,
    /// How long until a block that a limit holds back may sink.
    held: Option<Nanos>,
}

/// What the sinker works with.
pub struct SinkParts {
    pub world: World,
    pub map: Arc<Map>,
    pub buffer: Arc<ObjectBuffer>,
    pub pool: Arc<Pool>,
    pub redo: Arc<dyn Redo>,
    pub flash: Option<Arc<dyn FlashCache>>,
    pub objects: Arc<Objects>,
    pub fence: Arc<Fence>,
    pub sequences: Arc<dyn Sequences>,
    /// None: always whole blocks.
    pub patches: Option<Arc<dyn Patches>>,
    pub collector: Arc<Collector>,
}

pub struct Sinker {
    world: World,
    mover: Mover,
    state: Mutex<State, { Mutexes::Sink as u8 }>,
    /// Blocks go only for want of slots.
    room_only: AtomicBool,
    /// Blocks that are written again and again wait.
    defers: bool,
    rules: OnceLock<Arc<Rules>>,
    /// A block's move has ended, well or not.
    pub progress: Event,
    pub counters: SinkCounters,
}

impl Sinker {
    pub fn new(parts: SinkParts, settings: SinkSettings) -> Sinker {
        let SinkParts {
            world,
            map,
            buffer,
            pool,
            redo,
            flash,
            objects,
            fence,
            sequences,
            patches,
            collector,
        } = parts;
        let sched = world.sched.clone();
        let room = Room::new(sched.clone(), settings.memory.max(MEMORY_MIN));
        let repaired = AtomicU64::new(0);
        let mover = Mover {
            map,
            buffer,
            pool,
            redo,
            flash,
            objects,
            fence,
            sequences,
            patches,
            collector,
            sched,
            room,
            repaired,
        };
        Sinker {
            world,
            mover,
            state: Mutex::new(State {
                plan: VecDeque::new(),
                reason: Reason::Cooled,
                in_flight: HashSet::new(),
                corrupt: HashMap::new(),
                ages: Ages::new(settings.cool),
                rest: 0,
                rest_until: 0,
                rate: Rate::new(settings.requests_max),
                error: None,
                stopped: false,
                yields: false,
                held: None,
            }),
            room_only: AtomicBool::new(false),
            defers: settings.defers,
            rules: OnceLock::new(),
            progress: Event::new(),
            counters: SinkCounters::default(),
        }
    }

    /// From now on blocks that have cooled stay: the instance is about to be closed, and each sink would
    /// add to the log that is to be passed.
    pub fn sink_for_room_only(&self) {
        self.room_only.store(true, Ordering::Relaxed);
    }

    /// Images that were bad in their slots or in the old object, and were taken from a copy with the map's tag (invariant 9).
    pub fn repaired(&self) -> u64 {
        self.mover.repaired.load(Ordering::Relaxed)
    }

    pub fn status(&self) -> SinkStatus {
        let buffered = self.mover.map.buffered_blocks();
        let state = self.state.lock();
        SinkStatus {
            blocks_buffered: buffered.iter().filter(|b| b.block.space.sinks()).count() as u64,
            blocks_in_flight: state.in_flight.len() as u64,
            error: state.error.clone(),
            fenced: self.mover.fence.lost().map(|e| e.to_string()),
        }
    }

    /// Bytes that blocks on the move take now.
    pub fn memory_taken(&self) -> usize {
        self.mover.room.taken()
    }

    /// Sinks one block now, whatever the policy says. Waits for a worker that has it in hand.
    pub fn sink_block(&self, block: BlockId) -> Result<Sunk, SinkError> {
        loop {
            let progress = self.progress.ticket();
            if let Some(sunk) = self.try_sink_block(block)? {
                return Ok(sunk);
            }
            self.world.sched.wait(&self.progress, progress, None);
        }
    }

    /// As `sink_block`, but None if another has it in hand.
    pub fn try_sink_block(&self, block: BlockId) -> Result<Option<Sunk>, SinkError> {
        if !self.state.lock().in_flight.insert(block) {
            return Ok(None);
        }
        self.run(block).map(Some)
    }

    /// Sinks every block that has pages in slots now. Stops at the first error. Returns how many were put.
    pub fn sink_all(&self) -> Result<u64, SinkError> {
        let mut put = 0;
        let mut blocks = self.mover.map.buffered_blocks();
        blocks.sort_unstable_by_key(|b| b.block);
        for block in blocks.iter().map(|b| b.block).filter(|b| b.space.sinks()) {
            put += u64::from(matches!(self.sink_block(block)?, Sunk::Put { .. }));
        }
        Ok(put)
    }

    /// Moves a block that the caller has put in flight.
    fn run(&self, block: BlockId) -> Result<Sunk, SinkError> {
        let kept_up = self.mover.fence.keep_up(self.world.clock.now());
        let paid = self.pay(block.space);
        let put = kept_up.map_err(SinkError::from).and_then(|()| self.mover.sink(block));
        if paid {
            self.give_back(block.space, put.as_ref().map_or(0, |(_, bytes)| *bytes));
        }
        let result = put.map(|(sunk, _)| sunk);
        {
            let mut state = self.state.lock();
            state.in_flight.remove(&block);
            match &result {
                Ok(_) => {
                    state.rest = 0;
                    state.error = None;
                }
                Err(error) => state.error = Some(error.to_string()),
            }
        }
        match &result {
            Ok(Sunk::Put { pages, patch }) => {
                self.counters.blocks.fetch_add(1, Ordering::Relaxed);
                self.counters.patches.fetch_add(u64::from(*patch), Ordering::Relaxed);
                self.mover.objects.by_space.of(block.space).sinks.fetch_add(1, Ordering::Relaxed);
                self.counters.pages.fetch_add(u64::from(*pages), Ordering::Relaxed);
                self.mover.map.slots_freed.notify();
                self.mover.pool.flush_wanted.notify(); // a flusher that found no slot
            }
            Ok(Sunk::Nothing | Sunk::Gone) => {}
            Err(_) => _ = self.counters.errors.fetch_add(1, Ordering::Relaxed),
        }
        self.progress.notify();
        result
    }

    /// The next block that the policy names, put in flight.
    fn next(&self) -> Option<(BlockId, Reason)> {
        let map = &self.mover.map;
        let (now, end) = (self.world.clock.now(), self.mover.redo.appended());
        let cooled_before = {
            let mut state = self.state.lock();
            if let Some(next) = self.take_planned(&mut state) {
                return Some(next);
            }
            state.ages.sample(now, end)
        };
        let cooled_before = if self.room_only.load(Ordering::Relaxed) { 0 } else { cooled_before };
        let (slots, free) = map.slots_to_aim_at();
        // New pages in memory will take slots. Writers are slowed by what is left after them (the engine's pace), so
        // there is work to do as soon as anybody is.
        let free = free.saturating_sub(self.mover.pool.homeless() as u32);
        let patch =
            self.mover.patches.iter().map(|_| (PATCH_MAX / self.mover.objects.packer.mean()) as u32).sum();
        let pressure = Pressure { slots, free, cooled_before, defers: self.defers, patch };
        let mut blocks = map.buffered_blocks();
        let mut state = self.state.lock();
        let state = &mut *state;
        blocks.retain(|b| {
            !state.in_flight.contains(&b.block) && state.corrupt.get(&b.block) != Some(&b.last_change)
        });
        let needed = if free < policy::low(slots) { policy::high(slots).saturating_sub(free) } else { 0 };
        let in_turn = self.in_turn(blocks, needed, (slots, free));
        (state.yields, state.held) = (in_turn.yields, in_turn.wait);
        let shares = self.by_share(in_turn.blocks, needed);
        let (reason, plan) = if shares.over.is_empty() {
            policy::choose(pressure, shares.others, PLAN)
        } else {
            (Reason::Share, shares.over)
        };
        state.reason = reason;
        state.plan = plan.into();
        self.take_planned(state)
    }

    fn take_planned(&self, state: &mut State) -> Option<(BlockId, Reason)> {
        while let Some(block) = state.plan.pop_front() {
            if self.takes_turn(block.space, state) && state.in_flight.insert(block) {
                return Some((block, state.reason));
            }
        }
        None
    }

    /// What the tables' shares of the object buffer say.
    fn by_share(&self, blocks: Vec<BufferedBlock>, needed: u32) -> ByShare {
        match self.rules.get() {
            Some(rules) if !self.room_only.load(Ordering::Relaxed) => {
                let share = |space| rules.of(space).map(|rule| (rule.table.id, rule.table.rule.buffer));
                quota::by_share(blocks, share, needed)
            }
            _ => ByShare { others: blocks, ..ByShare::default() },
        }
    }

    /// Set once, before the first block sinks.
    pub fn set_rules(&self, rules: Arc<Rules>) {
        assert!(self.rules.set(rules).is_ok(), "the rules are set twice");
    }

    /// One block, if there is need. Workers call it.
    fn step(&self) -> Step {
        let now = self.world.clock.now();
        let (rest_until, stopped) = {
            let state = self.state.lock();
            (state.rest_until.max(now + state.rate.wait(now)), state.stopped)
        };
        if stopped || self.mover.fence.lost().is_some() {
            return Step::Idle;
        }
        if now < rest_until {
            return Step::IdleFor(rest_until - now);
        }
        let Some((block, reason)) = self.next() else { return self.idle() };
        self.state.lock().rate.spend(now, REQUESTS);
        match self.run(block) {
            Ok(Sunk::Put { .. }) => {
                self.state.lock().rate.succeeded();
                let counter = match reason {
                    Reason::Watermark => &self.counters.by_watermark,
                    Reason::Cooled => &self.counters.by_cooling,
                    Reason::Share => &self.counters.by_share,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                Step::Worked
            }
            Ok(_) => Step::Worked,
            Err(error) => self.failed(now, block, &error),
        }
    }

    /// How long to sleep when there is nothing to sink.
    fn idle(&self) -> Step {
        let cooling = self.mover.map.buffered_blocks().iter().any(|b| b.block.space.sinks());
        let capped = self.rules.get().is_some_and(|rules| rules.cap_the_buffer());
        let rest = if capped { SHARE_REST } else { Nanos::MAX };
        let state = self.state.lock();
        let rest = rest.min(state.held.unwrap_or(Nanos::MAX));
        if cooling { Step::IdleFor(state.ages.rest().min(rest)) } else { Step::Idle }
    }

    /// `began`: when the move did.
    fn failed(&self, began: Nanos, block: BlockId, error: &SinkError) -> Step {
        let mut throttled = None;
        match error {
            SinkError::Corrupt { .. } | SinkError::Nowhere { .. } => {
                self.counters.corrupt.fetch_add(1, Ordering::Relaxed);
                let seen = self.mover.map.buffered_blocks().into_iter().find(|b| b.block == block);
                self.state.lock().corrupt.extend(seen.map(|b| (block, b.last_change)));
                return Step::Worked;
            }
            SinkError::Moving { .. } => return Step::IdleFor(REST_MIN),
            SinkError::Log(LogError::Poisoned(_)) | SinkError::Map(MapError::Log(LogError::Poisoned(_))) => {
                self.state.lock().stopped = true;
                return Step::Idle;
            }
            SinkError::Fence(error) if error.is_final() => return Step::Idle,
            SinkError::Store(StoreError::Throttled { retry_after_ms, .. })
            | SinkError::Fence(FenceError::Store(StoreError::Throttled { retry_after_ms, .. })) => {
                self.counters.throttled.fetch_add(1, Ordering::Relaxed);
                self.state.lock().rate.throttled(self.world.clock.now());
                throttled = Some(retry_after_ms.saturating_mul(1_000_000).min(RETRY_AFTER_MAX));
            }
            _ => {}
        }
        let mut state = self.state.lock();
        // Half of it by chance, so that many instances do not come back at once.
        let spread = |rest: Nanos| rest / 2 + self.world.random.below(rest / 2);
        let rest = match throttled {
            // The store is there, and said when: what it takes is found by the rate.
            Some(after) => after + spread(state.rate.spacing().max(REST_MIN)),
            // Another worker's move failed while this one was under way: that is one failure, not two.
            None if began < state.rest_until => {
                return Step::IdleFor(state.rest_until.saturating_sub(self.world.clock.now()));
            }
            None => {
                state.rest = (2 * state.rest).clamp(REST_MIN, REST_MAX);
                spread(state.rest)
            }
        };
        state.rest_until = self.world.clock.now() + rest;
        state.plan.clear();
        Step::IdleFor(rest)
    }
}

/// Sinks blocks; when there is none to sink, collects objects.
pub struct SinkWorker(pub Arc<Sinker>);

impl Worker for SinkWorker {
    fn name(&self) -> &'static str {
        "sinker"
    }
    fn step(&mut self) -> Step {
        let sunk = self.0.step();
        if sunk == Step::Worked {
            return sunk;
        }
        match (sunk, self.0.mover.collector.step()) {
            (_, Step::Worked) => Step::Worked,
            (Step::IdleFor(a), Step::IdleFor(b)) => Step::IdleFor(a.min(b)),
            (Step::IdleFor(n), _) | (_, Step::IdleFor(n)) => Step::IdleFor(n),
            _ => Step::Idle,
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.mover.map.slots_wanted.clone()
    }
}
