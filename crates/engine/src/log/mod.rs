//! The redo log: what makes a commit durable.
//!
//! One stream of positions (GLSN), several rings of blocks. A mini-transaction takes one gapless range of
//! GLSNs while it holds its latches; each of its records goes to the partition of its page (CloudJump
//! §5: partitioned redo). Records wait in their partition's buffer until somebody needs them durable:
//! the first who asks writes for all (group commit), the others wait.
//!
//! The **horizon** is the end of the gapless durable prefix: `order` keeps the ranges in GLSN order, each
//! with the number of partitions that have not synced their part of it; the horizon passes a range
//! when that number is zero and all before it are passed. So an idle partition holds nothing back,
//! and a commit is never released past a hole.
//!
//! **Room**: a mini-transaction charges blocks before it takes a latch (`reserve`), enough for its
//! records in any partition and for the padding of a sync of its own. The charge ends when its
//! records are synced, by when the ring counts their blocks. A reserve is kept for those who free
//! space ([`Urgency::Reserve`]).
//!
//! A failed write or sync poisons the log: nothing after it is acknowledged, nothing retries it.
//!
//! Locks: `order`, then a partition's state; memory work only. I/O is done by the one leader, with no
//! lock held. Crash: see `recovery`.

pub mod block;
mod partition;
pub mod record;

use crate::planted;
use block::PAYLOAD;
use parking_lot::Mutex;
use partition::Partition;
use record::RecordHeader;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::disk::{DiskError, File};
use terrace_io::sched::Event;
use terrace_tier::page::{Glsn, PageId};
use terrace_tier::redo::{LogError, LogRoom, LsnRange, PageRedo, Redo, Urgency};

/// Records that may wait to be written before a reservation writes them itself, in bytes.
const BUFFER_MAX: usize = 4 << 20;
/// How long a reservation waits for log space, in nanoseconds.
const ROOM_WAIT_MAX: Nanos = 60_000_000_000;
/// The share of a ring that only [`Urgency::Reserve`] may use: one in so many blocks.
const KEPT_SHARE: u64 = 8;

/// Name of a partition's file on the volume.
pub fn file_name(partition: usize) -> String {
    format!("log.{partition}")
}

/// A range that is not below the horizon yet.
struct Pending {
    end: Glsn,
    /// Partitions that have not synced their part.
    missing: u32,
    charge: u64,
}

struct Order {
    next: Glsn,
    /// The number of the first entry of `ranges`.
    base: u64,
    ranges: VecDeque<Pending>,
}

#[derive(Default, Debug)]
pub struct LogCounters {
    pub bytes: AtomicU64,
    pub ranges: AtomicU64,
    pub writes: AtomicU64,
    pub blocks: AtomicU64,
    pub room_waits: AtomicU64,
}

pub struct Log {
    world: World,
    epoch: u32,
    blocks: u64,
    partitions: Vec<Partition>,
    order: Mutex<Order>,
    appended: AtomicU64,
    horizon: AtomicU64,
    /// Blocks promised to reservations and to records not yet synced.
    charged: AtomicU64,
    leading: AtomicBool,
    /// The horizon moved, the leader is done, or the log is poisoned.
    flushed: Event,
    /// The checkpoint freed space, or a charge ended.
    space_freed: Event,
    /// For the checkpoint worker: the ring is half full.
    pub checkpoint_wanted: Arc<Event>,
    poisoned: Mutex<Option<String>>,
    is_poisoned: AtomicBool,
    pub counters: LogCounters,
}

/// What the log starts with: one for each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStart {
    /// The oldest block that still counts.
    pub start: u64,
    /// The first block to write.
    pub next: u64,
}

/// The partition of a page.
pub fn partition_of(id: PageId, partitions: usize) -> usize {
    if partitions == 1 {
        return 0;
    }
    let hash = id.as_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> 32) as usize % partitions
}

/// Blocks that a reservation of so many bytes may come to take in one partition.
fn charge(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes.div_ceil(PAYLOAD as u64) + 1 }
}

impl Log {
    /// A log that goes on at `next`, in rings of `blocks` blocks.
    pub fn new(world: World, epoch: u32, blocks: u64, next: Glsn, files: Vec<Arc<dyn File>>, starts: &[PartitionStart]) -> Log {
        assert_eq!(files.len(), starts.len());
        let partitions = files
            .into_iter()
            .zip(starts)
            .enumerate()
            .map(|(i, (file, at))| Partition::new(i as u16, file, blocks, at.start, at.next, next))
            .collect();
        Log {
            world,
            epoch,
            blocks,
            partitions,
            order: Mutex::new(Order { next, base: 0, ranges: VecDeque::new() }),
            appended: AtomicU64::new(next),
            horizon: AtomicU64::new(next),
            charged: AtomicU64::new(0),
            leading: AtomicBool::new(false),
            flushed: Event::new(),
            space_freed: Event::new(),
            checkpoint_wanted: Arc::new(Event::new()),
            poisoned: Mutex::new(None),
            is_poisoned: AtomicBool::new(false),
            counters: LogCounters::default(),
        }
    }

    fn poison(&self, cause: impl Into<String>) {
        self.poisoned.lock().get_or_insert(cause.into());
        self.is_poisoned.store(true, Ordering::Release);
        self.flushed.notify();
        self.space_freed.notify();
    }

    fn healthy(&self) -> Result<(), LogError> {
        if !self.is_poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(LogError::Poisoned(self.poisoned.lock().clone().unwrap_or_default()))
    }

    /// Why the log stopped, if it did.
    pub fn failure(&self) -> Option<String> {
        self.poisoned.lock().clone()
    }

    /// Bytes of one ring.
    pub fn capacity(&self) -> u64 {
        self.blocks * block::BLOCK as u64
    }
    /// Blocks in use of the fullest ring, and blocks of a ring.
    pub fn usage(&self) -> (u64, u64) {
        (self.partitions.iter().map(Partition::used).max().unwrap_or(0), self.blocks)
    }
    /// Whether a checkpoint is due.
    pub fn wants_checkpoint(&self) -> bool {
        let (used, blocks) = self.usage();
        used * 2 > blocks
    }

    /// Where scans start for a checkpoint at `checkpoint`, a block sequence for each partition.
    pub fn starts_for(&self, checkpoint: Glsn) -> Vec<u64> {
        self.partitions.iter().map(|p| p.start_for(checkpoint)).collect()
    }
    /// The superblock names these starts durably: what lies before is free.
    pub fn release(&self, starts: &[u64]) {
        self.partitions.iter().zip(starts).for_each(|(p, start)| p.release_before(*start));
        self.space_freed.notify();
    }

    /// Takes room if there is any.
    fn try_charge(&self, blocks: u64, urgency: Urgency) -> bool {
        let keep = if urgency == Urgency::Reserve { 0 } else { self.blocks / KEPT_SHARE };
        let (used, total) = self.usage();
        let mut charged = self.charged.load(Ordering::Acquire);
        loop {
            if used + charged + blocks + keep > total {
                return false;
            }
            match self.charged.compare_exchange_weak(charged, charged + blocks, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => charged = now,
            }
        }
    }

    /// Writes and syncs what waits in all partitions. Only the leader calls it.
    fn write_waiting(&self) -> Result<(), DiskError> {
        let attested = self.horizon.load(Ordering::Acquire);
        let mut writings: Vec<_> =
            self.partitions.iter().filter_map(|p| Some((p, p.begin_write(self.epoch, attested)?))).collect();
        for (partition, writing) in &writings {
            partition.write(writing)?;
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
        }
        let early = planted::ACK_BEFORE_SYNC.on();
        if early {
            writings.iter_mut().for_each(|(_, w)| self.synced(&std::mem::take(&mut w.entries)));
        }
        for (partition, writing) in writings {
            partition.sync()?;
            if !early {
                self.synced(&writing.entries);
            }
        }
        Ok(())
    }

    /// A partition has synced its part of these ranges.
    fn synced(&self, entries: &[u64]) {
        let mut ended = 0;
        let mut order = self.order.lock();
        let base = order.base;
        for entry in entries {
            order.ranges[(entry - base) as usize].missing -= 1;
        }
        let mut horizon = None;
        while order.ranges.front().is_some_and(|r| r.missing == 0) {
            if let Some(range) = order.ranges.pop_front() {
                order.base += 1;
                ended += range.charge;
                horizon = Some(range.end);
            }
        }
        if let Some(horizon) = horizon {
            self.horizon.store(horizon, Ordering::Release);
        }
        drop(order);
        self.charged.fetch_sub(ended, Ordering::AcqRel);
        if ended > 0 {
            self.space_freed.notify();
        }
    }
}

impl Redo for Log {
    fn reserve(self: Arc<Self>, bytes: u64, urgency: Urgency) -> Result<LogRoom, LogError> {
        let blocks = charge(bytes);
        let mut waited = 0;
        loop {
            self.healthy()?;
            let freed = self.space_freed.ticket();
            let waiting: usize = self.partitions.iter().map(Partition::waiting_bytes).sum();
            if waiting > BUFFER_MAX {
                self.make_durable(self.appended())?;
            }
            if self.try_charge(blocks, urgency) {
                if self.wants_checkpoint() {
                    self.checkpoint_wanted.notify();
                }
                return Ok(LogRoom::new(self, bytes));
            }
            // Charges of records that only wait to be written end when they are.
            if self.durable() < self.appended() {
                self.make_durable(self.appended())?;
                continue;
            }
            self.counters.room_waits.fetch_add(1, Ordering::Relaxed);
            self.checkpoint_wanted.notify();
            const PATIENCE: Nanos = 100_000_000;
            self.world.sched.wait(&self.space_freed, freed, Some(PATIENCE));
            waited += PATIENCE;
            if waited > ROOM_WAIT_MAX {
                return Err(LogError::Full { capacity: self.capacity(), checkpoint: self.durable() });
            }
        }
    }

    fn give_back(&self, bytes: u64) {
        let blocks = charge(bytes);
        if blocks > 0 {
            let before = self.charged.fetch_sub(blocks, Ordering::AcqRel);
            assert!(before >= blocks, "log room is given back twice");
            self.space_freed.notify();
        }
    }

    fn append(&self, room: &mut LogRoom, pages: &[PageRedo<'_>], stamp: &mut dyn FnMut(LsnRange)) -> LsnRange {
        let length: u64 = pages.iter().map(|p| record::size(p.ops.len())).sum();
        assert!(length > 0 && length <= room.bytes, "{length} bytes of records in room for {}", room.bytes);
        let mut touched: Vec<usize> = pages.iter().map(|p| partition_of(p.id, self.partitions.len())).collect();
        let mut distinct = touched.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut order = self.order.lock();
        let first = order.next;
        let range = LsnRange { first, end: first + length };
        order.next = range.end;
        let entry = order.base + order.ranges.len() as u64;
        order.ranges.push_back(Pending { end: range.end, missing: distinct.len() as u32, charge: charge(room.bytes) });
        room.bytes = 0; // the charge is the range's now
        stamp(range);
        let mut own = first;
        for (page, partition) in pages.iter().zip(touched.drain(..)) {
            let header = RecordHeader {
                own,
                first,
                length: length as u32,
                ops_len: page.ops.len() as u32,
                id: page.id,
            };
            own = header.own_end();
            self.partitions[partition].append(|out| record::encode(&header, page.ops, out), entry, range.end);
        }
        self.appended.store(range.end, Ordering::Release);
        drop(order);
        self.counters.bytes.fetch_add(length, Ordering::Relaxed);
        self.counters.ranges.fetch_add(1, Ordering::Relaxed);
        range
    }

    fn durable(&self) -> Glsn {
        self.horizon.load(Ordering::Acquire)
    }

    fn appended(&self) -> Glsn {
        self.appended.load(Ordering::Acquire)
    }

    fn make_durable(&self, upto: Glsn) -> Result<(), LogError> {
        loop {
            let flushed = self.flushed.ticket();
            if self.durable() >= upto {
                return Ok(());
            }
            self.healthy()?;
            if self.leading.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                let written = self.write_waiting();
                if let Err(error) = written {
                    self.poison(error.to_string());
                }
                self.leading.store(false, Ordering::Release);
                self.flushed.notify();
                continue;
            }
            self.world.sched.wait(&self.flushed, flushed, None);
        }
    }
}

#[cfg(test)]
mod tests;
