//! Sinking (W3, W4): cooled blocks leave the object buffer for the object store. CloudJump III §4.2.4.
//!
//! A block is picked by the policy (`policy`) and moved by the mover (`mover`), one worker a block at a time.
//! A block is in flight while it is moved; no other worker moves it then.
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
//! Not here: a worker's step (`work`); deleting what was superseded (`collect`), which other workers do.

mod gather;
pub mod limit;
mod mover;
pub mod policy;
mod rate;
mod room;
mod work;

use crate::address::ObjectKey;
use crate::address::Tier;
use crate::flash::FlashCache;
use crate::limits::quota::Rules;
use crate::memory::lower_tiers::in_object;
use crate::memory::pool::Pool;
use crate::objects::collect::Collector;
use crate::objects::fence::{Fence, FenceError};
use crate::objects::object::{Failure, Objects};
use crate::page::{BadImage, BlockId, Glsn, PageId};
use crate::volume::map::{Map, MapError};
use crate::volume::object_buffer::ObjectBuffer;
use hashbrown::{HashMap, HashSet};
use mover::Mover;
pub use mover::Sunk;
use policy::{Ages, Reason};
use rate::Rate;
use room::SinkMemory;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::disk::DiskError;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::Event;
use terrace_io::store::StoreError;
use terrace_log::{LogError, Redo};
pub use work::SinkWorker;

/// Blocks that one choice plans ahead.
const PLAN: usize = 64;
/// Where tables have a cap, how often to look whether they keep to it, in nanoseconds.
const SHARE_REST: Nanos = 500_000_000;
/// Requests that a block costs: its put, and at times a read of what it had in its old object.
const REQUESTS: u64 = 2;
/// The rest after the first failure and the longest one, in nanoseconds.
const REST_MIN: Nanos = 50_000_000;
const REST_MAX: Nanos = 30_000_000_000;
/// How long a block is left alone of which something could not be read.
const ASIDE: Nanos = 60_000_000_000;
/// A store that says to come later than this is asked by then.
const RETRY_AFTER_MAX: Nanos = 600_000_000_000;
/// The least memory that blocks are moved with, in bytes: what one is packed to and what is got of its old object, where neither
/// is compressed. What is got of its patch object has been given back by then. (The answer of a remote store is a copy more for as long
/// as it is taken apart.)
pub const MEMORY_MIN: usize = 2 * mover::BLOCK_BYTES;
/// The most that is of use.
pub const MEMORY_MAX: usize = WORKERS_MAX * MEMORY_MIN;
/// A block waits for the store and the log most of the time, and then takes what it was packed to: one worker for each this many bytes.
/// `SinkMemory` ensures that together they don't take more, whatever they are packed to.
const BYTES_A_WORKER: usize = mover::BLOCK_BYTES / 4;
const WORKERS_MAX: usize = 16;

/// The number of workers that `bytes` of memory keep busy.
pub fn workers(memory: usize) -> usize {
    (memory / BYTES_A_WORKER).clamp(1, WORKERS_MAX)
}

/// The number of those that have memory to pack a block at a time.
pub fn packers(memory: usize) -> usize {
    (memory / mover::BLOCK_BYTES).clamp(1, workers(memory))
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum SinkError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the block has in an object can't be read.
    #[error(transparent)]
    Unread(StoreError),
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

impl SinkError {
    /// Sinking will not go on before a person acts.
    fn needs_person(&self) -> bool {
        match self {
            SinkError::Store(StoreError::Refused { .. }) | SinkError::Unread(StoreError::Refused { .. }) => {
                true
            }
            SinkError::Fence(error) => error.needs_person(),
            _ => false,
        }
    }
}

/// Patch objects, of which builds of former formats know nothing.
pub trait Patches: Send + Sync {
    /// From when this returns on the volume says, durably, that its map may name patch objects. Called before each put of one.
    fn note(&self) -> Result<(), String>;
}

/// For a volume that no other process opens.
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

    /// The last one that was given out; 0: none was.
    pub fn last(&self) -> u64 {
        self.0.load(Ordering::SeqCst) - 1
    }
}

impl Default for EpochSequences {
    fn default() -> EpochSequences {
        EpochSequences::new()
    }
}

impl Sequences for EpochSequences {
    fn next(&self) -> Result<u64, SinkError> {
        Ok(self.0.fetch_add(1, Ordering::SeqCst))
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
    /// The number of those for which only a patch object was put.
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
    pub error: Option<Failure>,
    /// Why a block that is still on the volume can't be sunk: an image is corrupt.
    pub corrupt: Option<String>,
    /// Nothing is published any more, and why.
    pub fenced: Option<String>,
}

struct SinkState {
    plan: VecDeque<BlockId>,
    reason: Reason,
    in_flight: HashSet<BlockId>,
    /// Blocks with a corrupt image, and their last change when that was found.
    corrupt: HashMap<BlockId, Glsn>,
    /// What was found in the last of them.
    corrupt_last: String,
    /// Blocks of which something could not be read, and until when they are left alone.
    aside: HashMap<BlockId, Nanos>,
    ages: Ages,
    rest: Nanos,
    rest_until: Nanos,
    rate: Rate,
    error: Option<Failure>,
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
    state: Mutex<SinkState, { Mutexes::Sink as u8 }>,
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
        let room = SinkMemory::new(sched.clone(), settings.memory.max(MEMORY_MIN));
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
            state: Mutex::new(SinkState {
                plan: VecDeque::new(),
                reason: Reason::Cooled,
                in_flight: HashSet::new(),
                corrupt: HashMap::new(),
                corrupt_last: String::new(),
                aside: HashMap::new(),
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
        let is_corrupt = !state.corrupt.is_empty()
            && buffered.iter().any(|b| state.corrupt.get(&b.block) == Some(&b.last_change));
        SinkStatus {
            blocks_buffered: buffered.iter().filter(|b| b.block.space.sinks()).count() as u64,
            blocks_in_flight: state.in_flight.len() as u64,
            error: state.error.clone(),
            corrupt: is_corrupt.then(|| state.corrupt_last.clone()),
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

    /// Set once, before the first block sinks.
    pub fn set_rules(&self, rules: Arc<Rules>) {
        assert!(self.rules.set(rules).is_ok(), "the rules are set twice");
    }
}
