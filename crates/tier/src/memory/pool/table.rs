//! The page table: which page is in which frame.
//!
//! Buckets of frames chained through [`Frame::next`]. Changes are made under the lock of the bucket's shard. [`Table::find`]
//! walks without any lock, so that a hit never waits for a thread that was descheduled while holding a lock, and writes nothing
//! but the frame's pin. A walk may meet a frame that is moved meanwhile, and be led into another bucket: it then misses a page
//! that is in memory, or returns a frame that holds another page by now. So the caller pins a found frame and compares its page
//! again, and looks up a page that was not found again under the lock.
//!
//! Locks: a shard's, for memory work only.

use crate::memory::frame::{Arena, Frame, FrameNo};
use crate::page::PageId;
use crate::stable_array::Growing;
use crate::sync::{AtomicU32, Mutex, Mutexes};
use std::sync::atomic::Ordering;

/// A power of two.
pub(super) const SHARDS: usize = 64;
const END: u32 = u32::MAX;
/// Maximum number of steps of a walk without a lock: more means that it was led astray.
const STEPS_MAX: usize = 64;

pub(super) struct Table {
    heads: Growing<AtomicU32>,
    /// Bits of the hash that select a bucket. Changed under all locks together; a walk without a lock may still use the previous
    /// value.
    shift: AtomicU32,
    locks: Box<[Lock]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Lock(Mutex<(), { Mutexes::PoolTable as u8 }>);

fn hash(id: PageId) -> u64 {
    id.as_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The page's shard, one of [`SHARDS`].
pub(super) fn shard(id: PageId) -> usize {
    (hash(id) >> (64 - SHARDS.trailing_zeros())) as usize
}

fn buckets(frames: usize) -> usize {
    (2 * frames).next_power_of_two().max(SHARDS)
}

impl Table {
    /// A table for `frames` frames, 8 to 16 bytes a frame, that can grow to `max` frames.
    ///
    /// Panics if the operating system does not give the memory.
    pub(super) fn new(frames: usize, max: usize) -> Table {
        let heads = Growing::new(buckets(max.max(frames))).or_else(|| Growing::new(buckets(frames)));
        let table = Table {
            heads: heads.unwrap_or_else(|| panic!("there are no addresses for a table of {frames} frames")),
            shift: AtomicU32::new(64 - buckets(frames).trailing_zeros()),
            locks: (0..SHARDS).map(|_| Lock::default()).collect(),
        };
        let made = table.heads.make(buckets(frames), || AtomicU32::new(END));
        assert!(made, "the machine does not give memory for a table of {frames} frames");
        table
    }

    /// Resizes the table for this number of frames. All threads that want a lock wait meanwhile. Returns false if the operating
    /// system does not give the memory. One caller at a time.
    pub(super) fn resize(&self, arena: &Arena, frames: usize) -> bool {
        let (now, then) = (1 << (64 - self.shift.load(Ordering::Relaxed)), buckets(frames));
        if now == then {
            return true;
        }
        if !self.heads.make(then, || AtomicU32::new(END)) {
            return false;
        }
        let _locks: Vec<_> = self.locks.iter().map(|lock| lock.0.lock()).collect();
        let mut linked = Vec::new();
        for bucket in 0..now {
            let mut no = self.heads.get(bucket).swap(END, Ordering::AcqRel);
            while no != END {
                linked.push(no);
                no = arena.frame(FrameNo(no)).next.load(Ordering::Acquire);
            }
        }
        self.shift.store(64 - then.trailing_zeros(), Ordering::Release);
        for no in linked {
            let frame = arena.frame(FrameNo(no));
            let head = self.head(frame.id());
            frame.next.store(head.load(Ordering::Relaxed), Ordering::Release);
            head.store(no, Ordering::Release);
        }
        true
    }

    #[inline]
    fn head(&self, id: PageId) -> &AtomicU32 {
        self.heads.get((hash(id) >> self.shift.load(Ordering::Acquire)) as usize)
    }

    #[inline]
    fn walk<'a>(&self, arena: &'a Arena, id: PageId, steps: usize) -> Option<(FrameNo, &'a Frame)> {
        let mut no = self.head(id).load(Ordering::Acquire);
        for _ in 0..steps {
            if no == END {
                return None;
            }
            let frame = arena.frame(FrameNo(no));
            if frame.is_of(id) {
                return Some((FrameNo(no), frame));
            }
            no = frame.next.load(Ordering::Acquire);
        }
        None
    }

    /// The frame that probably holds the page: a hint, see above.
    #[inline]
    pub(super) fn find<'a>(&self, arena: &'a Arena, id: PageId) -> Option<(FrameNo, &'a Frame)> {
        self.walk(arena, id, STEPS_MAX)
    }

    /// Calls `f` with the page's frame; the page is neither mapped nor unmapped meanwhile.
    pub(super) fn with<R>(&self, arena: &Arena, id: PageId, f: impl FnOnce(Option<FrameNo>) -> R) -> R {
        let _lock = self.locks[shard(id)].0.lock();
        f(self.walk(arena, id, usize::MAX).map(|(no, _)| no))
    }

    /// Maps the page to a frame, which `prepare` gives to the page. Returns false if the page is mapped already.
    pub(super) fn insert(&self, arena: &Arena, id: PageId, no: FrameNo, prepare: impl FnOnce()) -> bool {
        let _lock = self.locks[shard(id)].0.lock();
        if self.walk(arena, id, usize::MAX).is_some() {
            return false;
        }
        prepare();
        let head = self.head(id);
        arena.frame(no).next.store(head.load(Ordering::Relaxed), Ordering::Release);
        head.store(no.0, Ordering::Release);
        true
    }

    /// Maps the page, so far mapped to `from`, to `to`.
    pub(super) fn replace(&self, arena: &Arena, id: PageId, from: FrameNo, to: FrameNo) {
        let _lock = self.locks[shard(id)].0.lock();
        self.unlink(arena, id, from);
        let head = self.head(id);
        arena.frame(to).next.store(head.load(Ordering::Relaxed), Ordering::Release);
        head.store(to.0, Ordering::Release);
    }

    /// Unmaps the page, which is mapped to `no`.
    pub(super) fn remove(&self, arena: &Arena, id: PageId, no: FrameNo) {
        let _lock = self.locks[shard(id)].0.lock();
        self.unlink(arena, id, no);
    }

    /// The caller holds the page's lock.
    fn unlink(&self, arena: &Arena, id: PageId, no: FrameNo) {
        let next = arena.frame(no).next.load(Ordering::Acquire);
        let mut link = self.head(id);
        loop {
            let at = link.load(Ordering::Acquire);
            assert_ne!(at, END, "page {id} is not in the page table");
            if at == no.0 {
                return link.store(next, Ordering::Release);
            }
            link = &arena.frame(FrameNo(at)).next;
        }
    }

    /// The number of mapped pages. For tests, at rest.
    pub(super) fn count(&self, arena: &Arena) -> usize {
        let chain = |head: &AtomicU32| {
            let next = |no: &u32| {
                Some(arena.frame(FrameNo(*no)).next.load(Ordering::Acquire)).filter(|no| *no != END)
            };
            let first = Some(head.load(Ordering::Acquire)).filter(|no| *no != END);
            std::iter::successors(first, next).count()
        };
        self.heads.iter().map(chain).sum()
    }
}
