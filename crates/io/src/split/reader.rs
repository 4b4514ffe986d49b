//! A plain block cache over a router: blocks of one size, each on every source, with a tag for each block.
//!
//! It serves the paper's experiments (`terrace bench split`), and shows how a router is used. The last source is the authority.
//!
//! A read asks the router for a device, reads there, and compares the tag of what it got with the block's. A copy that fails, is stale
//! or does not come within its bound is counted, and the next device is asked. So a route changes where bytes are read, never which.
//!
//! A write overwrites in place, the authority first. Until that is done the block keeps its old tag, so that a reader who meets half a write
//! finds that the tag differs and reads the old bytes from the cache. Then the new tag is published with the authority as the only
//! valid copy, the others are rewritten, and they become valid. Tag and set of valid copies are one word, read and written at once. A
//! reader that finds no copy with the tag it knows looks at the word again; after [`ROUNDS`] rounds it takes the block's lock,
//! which writers hold.
//!
//! Shadow probes of suspect devices are read by a thread of the cache's own, over a queue of [`PROBES_MAX`].
//!
//! Locks: a block's stripe, held by writers and by readers that gave up; nothing else is taken under it but a source's own.

use super::planted;
use super::router::{Outcome, Request, Router};
use super::{Mask, members};
use crate::clock::{Clock, Nanos};
use crate::disk::{Class, File};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Rounds through all copies before a reader takes the block's lock.
const ROUNDS: u32 = 4;
const STRIPES: usize = 64;
pub const PROBES_MAX: usize = 4;
/// How long a probe waits for its answer.
const PROBE_PATIENCE: Nanos = 1_000_000_000;

/// Told of a request that its reader left behind: its latency, and whether it was answered.
pub type Late = Arc<dyn Fn(Nanos, bool) + Send + Sync>;

pub enum Answer {
    Whole,
    Failed(String),
    /// No answer within the reader's patience. It is reported later.
    Overdue,
}

/// Something that has blocks of one size.
pub trait Source: Send + Sync {
    /// Fills `buf` with a block. A source that cannot end a read early ignores `patience`, in nanoseconds.
    fn read(&self, block: u64, buf: &mut [u8], patience: Option<Nanos>) -> Answer;
    fn write(&self, block: u64, bytes: &[u8]) -> Result<(), String>;
    /// Whom to tell of late answers. Set once.
    fn on_late(&self, _: Late) {}
}

/// Blocks in a file on a local device. A read there cannot be left behind.
pub struct Local(pub Arc<dyn File>);

impl Source for Local {
    fn read(&self, block: u64, buf: &mut [u8], _: Option<Nanos>) -> Answer {
        match self.0.read(Class::PageRead, block * buf.len() as u64, buf) {
            Ok(()) => Answer::Whole,
            Err(error) => Answer::Failed(error.to_string()),
        }
    }
    fn write(&self, block: u64, bytes: &[u8]) -> Result<(), String> {
        self.0.write(Class::PageFlush, block * bytes.len() as u64, bytes).map_err(|error| error.to_string())
    }
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BlockError {
    #[error("block {block}: there are {blocks} blocks")]
    Absent { block: u64, blocks: u64 },
    #[error("block {block}: no copy is intact and current; the last: {cause}")]
    Lost { block: u64, cause: String },
    #[error("block {block} could not be written: {cause}")]
    NotWritten { block: u64, cause: String },
}

struct Parts {
    router: Router,
    sources: Vec<Arc<dyn Source>>,
    /// Tag (32 bits) and valid copies (8 bits) of each block.
    words: Vec<AtomicU64>,
    stripes: [Mutex<()>; STRIPES],
    clock: Arc<dyn Clock>,
    tag_of: fn(&[u8]) -> u32,
    block_bytes: u32,
}

pub struct Blocks {
    parts: Arc<Parts>,
    probes: Option<SyncSender<(usize, u64)>>,
    prober: Option<JoinHandle<()>>,
}

fn word(tag: u32, valid: Mask) -> u64 {
    u64::from(tag) | u64::from(valid) << 32
}

impl Blocks {
    /// A cache of `blocks` blocks of zeros. The router has one device for each source.
    pub fn new(
        router: Router,
        sources: Vec<Arc<dyn Source>>,
        blocks: u64,
        block_bytes: u32,
        tag_of: fn(&[u8]) -> u32,
        clock: Arc<dyn Clock>,
    ) -> Blocks {
        assert_eq!(router.devices().len(), sources.len());
        let all = ((1u16 << sources.len()) - 1) as Mask;
        let zeros = tag_of(&vec![0; block_bytes as usize]);
        let parts = Arc::new(Parts {
            words: (0..blocks).map(|_| AtomicU64::new(word(zeros, all))).collect(),
            stripes: std::array::from_fn(|_| Mutex::new(())),
            router,
            sources,
            clock,
            tag_of,
            block_bytes,
        });
        for (device, source) in parts.sources.iter().enumerate() {
            let weak = Arc::downgrade(&parts);
            source.on_late(Arc::new(move |latency, is_answered| {
                if let Some(parts) = weak.upgrade() {
                    let outcome = if is_answered { Outcome::Done } else { Outcome::Failed };
                    parts.router.finished(0, device, 0, latency, outcome, parts.clock.now());
                }
            }));
        }
        let (probes, wanted) = sync_channel::<(usize, u64)>(PROBES_MAX);
        let prober = {
            let parts = parts.clone();
            std::thread::spawn(move || {
                let mut buf = crate::AlignedBuf::zeroed(parts.block_bytes as usize);
                while let Ok((device, block)) = wanted.recv() {
                    let answer = parts.sources[device].read(block, &mut buf, Some(PROBE_PATIENCE));
                    parts.router.probed(device, matches!(answer, Answer::Whole), parts.clock.now());
                }
            })
        };
        Blocks { parts, probes: Some(probes), prober: Some(prober) }
    }

    pub fn router(&self) -> &Router {
        &self.parts.router
    }

    /// Fills `buf` with the block's current bytes. `lane` is the thread's number.
    pub fn read(&self, lane: usize, block: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        let parts = &*self.parts;
        let place = parts.words.get(block as usize);
        let place = place.ok_or(BlockError::Absent { block, blocks: parts.words.len() as u64 })?;
        let mut cause = String::new();
        for _ in 0..ROUNDS {
            let known = place.load(Acquire);
            match self.read_once(lane, block, known, buf) {
                Ok(()) => return Ok(()),
                Err(last) => cause = last,
            }
            if place.load(Acquire) == known {
                break;
            }
        }
        let _writers = parts.stripes[block as usize % STRIPES].lock();
        self.read_once(lane, block, place.load(Acquire), buf)
            .map_err(|last| BlockError::Lost { block, cause: if last.is_empty() { cause } else { last } })
    }

    /// Tries all valid copies of the word that is known. The error says what was wrong with the last.
    fn read_once(&self, lane: usize, block: u64, known: u64, buf: &mut [u8]) -> Result<(), String> {
        let parts = &*self.parts;
        let request = Request { on: (known >> 32) as Mask, bytes: parts.block_bytes };
        let mut route = parts.router.route(lane, &request, parts.clock.now());
        if let Some(shadow) = route.shadow
            && self.probes.as_ref().is_none_or(|probes| probes.try_send((shadow, block)).is_err())
        {
            parts.router.probed(shadow, false, parts.clock.now());
        }
        let mut tried = 0;
        loop {
            let (device, started) = (route.device, parts.clock.now());
            tried |= 1 << device;
            let is_last = members(request.on & !tried).next().is_none();
            // The last copy is waited for.
            let patience = (!is_last).then_some(route.hedge_after);
            let answer = parts.sources[device].read(block, buf, patience);
            let now = parts.clock.now();
            let ended =
                |bytes, outcome| parts.router.finished(lane, device, bytes, now - started, outcome, now);
            let cause = match answer {
                Answer::Whole if (parts.tag_of)(buf) == known as u32 || planted::TAG_NOT_CHECKED.on() => {
                    ended(parts.block_bytes, Outcome::Done);
                    return Ok(());
                }
                Answer::Whole => {
                    ended(parts.block_bytes, Outcome::Stale);
                    "its tag is not the current one".to_string()
                }
                Answer::Failed(cause) => {
                    ended(0, Outcome::Failed);
                    cause
                }
                Answer::Overdue => {
                    parts.router.overdue(device, now);
                    "it did not answer in time".to_string()
                }
            };
            match parts.router.fall_back(tried, &request) {
                Some(next) => route = next,
                None => return Err(format!("{}: {cause}", parts.router.devices()[device].name)),
            }
        }
    }

    /// Overwrites a block. Readers get the old bytes or the new ones; after this returned, the new ones.
    pub fn write(&self, block: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let parts = &*self.parts;
        let place = parts.words.get(block as usize);
        let place = place.ok_or(BlockError::Absent { block, blocks: parts.words.len() as u64 })?;
        let not_written = |cause| BlockError::NotWritten { block, cause };
        let (authority, tag) = (parts.sources.len() - 1, (parts.tag_of)(bytes));
        let _stripe = parts.stripes[block as usize % STRIPES].lock();
        if let Err(cause) = parts.sources[authority].write(block, bytes) {
            // Half of it may be there: only the other copies are the old block.
            let others = (place.load(Relaxed) >> 32) as Mask & !(1 << authority);
            place.store(word(place.load(Relaxed) as u32, others), Release);
            return Err(not_written(cause));
        }
        let mut valid = 1 << authority;
        place.store(word(tag, valid), Release);
        for cache in 0..authority {
            // A copy that could not be written stays invalid.
            if parts.sources[cache].write(block, bytes).is_ok() {
                valid |= 1 << cache;
            }
        }
        place.store(word(tag, valid), Release);
        Ok(())
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.probes = None;
        if let Some(prober) = self.prober.take() {
            let _ = prober.join();
        }
    }
}
