//! For tests of what stands on pages: a world with real threads and clock, a store of images in
//! memory in place of all tiers below, and a log that only counts.

use crate::address::Tier;
use crate::memory::lower_tiers::{Below, Fetched, ReadError};
use crate::memory::pages::Pages;
use crate::page::{Glsn, PAGE_SIZE, PageId};
use crate::redo;
use crate::sync::{self, Mutexes};
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace_io::World;
use terrace_io::clock::{Clock, Nanos};
use terrace_io::random::Random;
use terrace_io::sched::{Event, Sched, Ticket, Woken, Worker, WorkerHandle};
use terrace_log::{LogError, LogRoom, LsnRange, PageRedo, Redo, Urgency, record_bound};

/// Whose name doesn't matter.
type Mutex<T> = sync::Mutex<T, { Mutexes::Catalog as u8 }>;

#[cfg(test)]
pub mod odd_disk;

struct TestClock(AtomicU64);
impl Clock for TestClock {
    fn now(&self) -> Nanos {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
    fn unix_ms(&self) -> u64 {
        0
    }
}
struct TestRandom(AtomicU64);
impl Random for TestRandom {
    fn next_u64(&self) -> u64 {
        let x = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^ (x >> 27)
    }
}
struct TestSched;
struct NoHandle;
impl WorkerHandle for NoHandle {}
impl Sched for TestSched {
    fn wait(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>) -> Woken {
        event.park(seen, timeout.map(Duration::from_nanos), 0)
    }
    /// Tests step their workers themselves.
    fn spawn(&self, _worker: Box<dyn Worker>) -> Box<dyn WorkerHandle> {
        Box::new(NoHandle)
    }
}

/// A world for tests with real threads.
pub fn world() -> World {
    World {
        clock: Arc::new(TestClock(AtomicU64::new(1))),
        random: Arc::new(TestRandom(AtomicU64::new(7))),
        sched: Arc::new(TestSched),
    }
}

/// All tiers below memory, in memory. Gets an image when [`flush_all`] writes it.
#[derive(Default)]
pub struct MemoryBelow {
    pub images: Mutex<HashMap<PageId, Box<[u8]>>>,
    pub fetches: AtomicU64,
    /// What is fetched comes from the store, else from the volume.
    pub is_far: AtomicBool,
    /// The uses that pages had which left memory last.
    pub left: Mutex<HashMap<PageId, u8>>,
}

impl Below for MemoryBelow {
    fn fetch(&self, id: PageId, image: &mut [u8]) -> Result<Fetched, ReadError> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        match self.images.lock().get(&id) {
            Some(stored) => image.copy_from_slice(stored),
            None => return Err(ReadError::Absent(id)),
        }
        let from = if self.is_far.load(Ordering::Relaxed) { Tier::Object } else { Tier::Volume };
        Ok(Fetched { from, first_change: None })
    }
    fn evicted(&self, id: PageId, _image: &mut [u8], accesses: u8) {
        self.left.lock().insert(id, accesses);
    }
}

/// Assigns ranges, keeps all records, is always durable.
#[derive(Default)]
pub struct MemoryLog {
    end: Mutex<Glsn>,
    /// Every record: page, ops, end of its range.
    pub records: Mutex<Vec<(PageId, Vec<u8>, Glsn)>>,
    pub keep: bool,
}

impl Redo for MemoryLog {
    fn reserve(self: Arc<Self>, bytes: u64, _: Urgency) -> Result<LogRoom, LogError> {
        Ok(LogRoom::new(self, bytes))
    }
    fn give_back(&self, _bytes: u64) {}
    fn append(&self, _: &mut LogRoom, pages: &[PageRedo<'_>], stamp: &mut dyn FnMut(LsnRange)) -> LsnRange {
        let mut end = self.end.lock();
        let first = (*end).max(1);
        *end = first + pages.iter().map(|p| record_bound(p.ops.len())).sum::<u64>();
        let range = LsnRange { first, end: *end };
        stamp(range);
        if self.keep {
            let mut records = self.records.lock();
            records.extend(pages.iter().map(|p| (p.id, p.ops.to_vec(), range.end)));
        }
        range
    }
    fn durable(&self) -> Glsn {
        *self.end.lock()
    }
    fn appended(&self) -> Glsn {
        *self.end.lock()
    }
    fn make_durable(&self, _upto: Glsn) -> Result<(), LogError> {
        Ok(())
    }
}

/// Pages over memory alone.
pub fn pages(frames: usize) -> (Arc<Pages>, Arc<MemoryBelow>, Arc<MemoryLog>) {
    let below = Arc::new(MemoryBelow::default());
    let log = Arc::new(MemoryLog { keep: true, ..MemoryLog::default() });
    (Arc::new(Pages::new(world(), frames, below.clone(), log.clone())), below, log)
}

/// Writes every dirty page below. Returns how many.
pub fn flush_all(pages: &Pages, below: &MemoryBelow) -> usize {
    let mut buf = vec![0; PAGE_SIZE];
    let mut flushed = 0;
    for no in pages.pool().oldest_dirty_frames(usize::MAX) {
        if let Some(copy) = pages.pool().copy_dirty(no, &mut buf) {
            below.images.lock().insert(copy.id, buf.clone().into_boxed_slice());
            pages.pool().flushed(&copy);
            flushed += 1;
        }
    }
    pages.pool().batch_flushed();
    flushed
}

/// Evicts every page that is clean and not pinned. Returns how many.
pub fn evict_all(pages: &Pages) -> usize {
    let (mut evicted, mut failed) = (0, 0);
    // A walk fails if it meets only hot pages; it cools them.
    while failed < 4 {
        match pages.pool().evict_one() {
            true => (evicted, failed) = (evicted + 1, 0),
            false => failed += 1,
        }
    }
    evicted
}

/// Applies every kept record to empty pages: what recovery would make of the log alone.
pub fn replay(log: &MemoryLog) -> HashMap<PageId, Vec<u8>> {
    let mut images: HashMap<PageId, Vec<u8>> = HashMap::new();
    for (id, ops, end) in log.records.lock().iter() {
        let image = images.entry(*id).or_insert_with(|| vec![0; PAGE_SIZE]);
        redo::apply(image, *id, ops, *end).expect("records that were just made are valid");
    }
    images
}

/// One page's record in a [`HeldLog`].
#[derive(Clone)]
pub struct HeldRecord {
    pub id: PageId,
    pub ops: Vec<u8>,
    pub range: LsnRange,
}

/// A log whose durable horizon the test moves; what is beyond it may be lost at a crash.
#[derive(Default)]
pub struct HeldLog(Mutex<HeldLogState>);

#[derive(Default)]
struct HeldLogState {
    end: Glsn,
    durable: Glsn,
    released: Glsn,
    records: Vec<HeldRecord>,
    /// A request for more bytes than this finds the log full.
    room: Option<u64>,
    /// After this many requests for room the log is full.
    asks: Option<u64>,
}

impl HeldLog {
    /// From now on the log is full for requests for more bytes than this.
    pub fn set_room(&self, room: Option<u64>) {
        self.0.lock().room = room;
    }
    /// After this many more requests the log is full, whatever they ask for; and what `set_room` said is over.
    pub fn set_asks(&self, asks: Option<u64>) {
        let mut held = self.0.lock();
        (held.room, held.asks) = (None, asks);
    }
    /// What a recovery would read.
    pub fn records(&self) -> Vec<HeldRecord> {
        self.0.lock().records.clone()
    }
    pub fn set_durable(&self, upto: Glsn) {
        let mut held = self.0.lock();
        held.durable = held.durable.max(upto.min(held.end));
    }
    /// A checkpoint passed: records that end at or before `upto` are gone.
    pub fn release(&self, upto: Glsn) {
        let mut held = self.0.lock();
        assert!(upto <= held.durable, "a checkpoint beyond the durable horizon");
        held.released = held.released.max(upto);
        let released = held.released;
        held.records.retain(|r| r.range.end > released);
    }
    /// Keeps the durable records and, by `choice`, some whole mini-transactions that follow.
    pub fn crash(&self, choice: u64) {
        let mut held = self.0.lock();
        let mut ends: Vec<Glsn> = held.records.iter().map(|r| r.range.end).collect();
        ends.retain(|end| *end > held.durable);
        ends.dedup();
        let survive = (choice % (ends.len() as u64 + 1)) as usize;
        let end = ends[..survive].last().copied().unwrap_or(held.durable);
        held.records.retain(|r| r.range.end <= end);
        held.end = end;
        held.durable = end;
    }
}

impl Redo for HeldLog {
    fn reserve(self: Arc<Self>, bytes: u64, _: Urgency) -> Result<LogRoom, LogError> {
        let mut held = self.0.lock();
        match held.room {
            Some(room) if bytes > room => return Err(LogError::Full { capacity: room, checkpoint: 0 }),
            _ => {}
        }
        if held.asks == Some(0) {
            return Err(LogError::Full { capacity: 0, checkpoint: 0 });
        }
        held.asks = held.asks.map(|asks| asks - 1);
        drop(held);
        Ok(LogRoom::new(self, bytes))
    }
    fn give_back(&self, _bytes: u64) {}
    fn append(
        &self,
        room: &mut LogRoom,
        pages: &[PageRedo<'_>],
        stamp: &mut dyn FnMut(LsnRange),
    ) -> LsnRange {
        let mut held = self.0.lock();
        let bytes: u64 = pages.iter().map(|p| record_bound(p.ops.len())).sum();
        assert!(bytes <= room.bytes, "{bytes} bytes of records in a room of {}", room.bytes);
        let first = held.end.max(1);
        held.end = first + bytes;
        let range = LsnRange { first, end: held.end };
        stamp(range);
        held.records.extend(pages.iter().map(|p| HeldRecord { id: p.id, ops: p.ops.to_vec(), range }));
        range
    }
    fn durable(&self) -> Glsn {
        self.0.lock().durable
    }
    fn appended(&self) -> Glsn {
        self.0.lock().end
    }
    fn make_durable(&self, upto: Glsn) -> Result<(), LogError> {
        self.set_durable(upto);
        Ok(())
    }
}
