//! Group commit: a thread that needs the log durable writes it, for itself and for all that came before.
//!
//! A write takes everything that waits in the partitions that the caller needs, forms blocks, writes
//! all of them and syncs each file. Meanwhile others append, and those who need what is under way wait.
//! A partition has one write at a time; different partitions may be written by different callers.
//! CloudJump §4.1.2, §4.6.1: parallel writers, aligned blocks, padding.
//!
//! A thread that only needs it to survive the process writes in the same way, without a sync ([`Until::Written`]). One that then needs it durable and
//! finds it written syncs alone, beside others' writes. Once a second the background writer does.
//!
//! No lock is held over the I/O. A failed write or sync poisons the log: the horizon stays where it
//! is for good, and nothing retries the sync.

use super::{Log, LogCounters};
use crate::block::{self, BLOCK, BlockHeader};
use crate::order::Order;
use crate::partition::{Ring, Taken};
use crate::{Glsn, LogError, Redo, planted};
use std::sync::atomic::Ordering;
use terrace_io::AlignedBuf;
use terrace_io::clock::Nanos;
use terrace_io::disk::{Class, DiskError, File, FileWrite, Op};
use terrace_io::observe;

/// After how long a waiter looks again by itself, in nanoseconds.
const PATIENCE: Nanos = 100_000_000;

/// How far a caller needs the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    /// On the device: it survives the loss of power.
    Durable,
    /// With the operating system: it survives the end of the process.
    Written,
}

/// The next step of a thread that needs the log.
enum Next {
    Write(Vec<(usize, Taken)>, Until),
    /// All records of these partitions are written.
    Sync(Vec<usize>),
    /// Another thread's write or sync is under way: whose turn.
    Wait(u64),
}

/// A partition's share of a write.
struct Share {
    partition: usize,
    taken: Taken,
    /// The blocks are its first `bytes`.
    image: AlignedBuf,
    bytes: usize,
}

impl Share {
    fn blocks(&self) -> &[u8] {
        &self.image[..self.bytes]
    }
}

impl Log {
    /// Everything below `upto` is durable, or written, when it returns Ok.
    pub(super) fn write_until(&self, upto: Glsn, until: Until) -> Result<(), LogError> {
        assert!(
            upto <= self.appended(),
            "{until:?} up to {upto} is asked for, the log ends at {}",
            self.appended()
        );
        loop {
            let written = self.written.ticket();
            if self.reached(until) >= upto {
                return Ok(());
            }
            self.healthy()?;
            match self.next(upto, until) {
                Next::Write(shares, until) => self.write(shares, until)?,
                Next::Sync(partitions) => self.sync(&partitions)?,
                Next::Wait(turn) => {
                    let _shown = observe::wait(observe::Wait::LogSync);
                    self.world.sched.wait_for(&self.written, written, Some(PATIENCE), turn);
                }
            }
        }
    }

    /// How far the log is durable, or written.
    pub(super) fn reached(&self, until: Until) -> Glsn {
        match until {
            Until::Durable => self.durable(),
            Until::Written => self.written_to.load(Ordering::Acquire),
        }
    }

    /// What a thread that needs all below `upto` has to do.
    fn next(&self, upto: Glsn, until: Until) -> Next {
        let mut order = self.order.lock();
        // Threads that need no sync are not made to wait for one: it comes afterwards, beside their writes.
        let how = if order.rings.iter().any(Ring::has_unsynced) { Until::Written } else { until };
        let shares = order.take(how == Until::Durable, |_, ring| ring.can_write(upto));
        if !shares.is_empty() {
            return Next::Write(shares, how);
        }
        if until == Until::Durable {
            let partitions = order.take_unsynced(upto);
            if !partitions.is_empty() {
                return Next::Sync(partitions);
            }
        }
        Next::Wait(order.turn(upto))
    }

    /// Takes what waits in the partitions chosen.
    pub(super) fn take(&self, choose: impl Fn(usize, &Ring) -> bool) -> Vec<(usize, Taken)> {
        self.order.lock().take(true, choose)
    }

    /// Writes the shares, for `Durable` syncs them, and moves the marks.
    pub(super) fn write(&self, shares: Vec<(usize, Taken)>, until: Until) -> Result<(), LogError> {
        let attested = self.durable();
        let shares: Vec<Share> = shares
            .into_iter()
            .map(|(partition, mut taken)| {
                let blocks = block::blocks_for(taken.records.len() as u64) as usize;
                let bytes = blocks * BLOCK;
                let kept = taken.image.take().filter(|image| image.len() >= bytes);
                let mut image = kept.unwrap_or_else(|| AlignedBuf::zeroed(bytes.next_power_of_two()));
                let header = BlockHeader {
                    instance: self.instance,
                    epoch: self.epoch,
                    partition: partition as u16,
                    sequence: taken.sequence,
                    attested,
                    first: None,
                    after: taken.after,
                };
                block::encode(header, &taken.records, taken.begin, &mut image[..bytes]);
                LogCounters::add(&self.counters.blocks, blocks as u64);
                LogCounters::add(&self.counters.writes, 1);
                Share { partition, taken, image, bytes }
            })
            .collect();
        let mut writes: Vec<FileWrite<'_>> = shares
            .iter()
            .map(|s| FileWrite {
                file: &*self.files[s.partition],
                ops: ring_writes(s.taken.sequence % self.blocks, self.blocks, s.blocks()),
            })
            .collect();
        let result: Result<Vec<()>, DiskError> = if until == Until::Written {
            self.volume.write_handed(Class::LogWrite, &mut writes).into_iter().collect()
        } else if planted::ACK_BEFORE_SYNC.on() {
            writes.iter_mut().flat_map(|w| w.file.batch(Class::LogWrite, &mut w.ops)).collect()
        } else {
            self.volume.write_synced(Class::LogWrite, &mut writes).into_iter().collect()
        };
        drop(writes);
        result.map_err(|error| self.stopped_by(&error))?;
        let partitions: Vec<usize> = shares.iter().map(|s| s.partition).collect();
        self.advance(|order| {
            for share in shares {
                let ring = &mut order.rings[share.partition];
                match until {
                    Until::Durable => ring.synced(share.taken.records, share.image),
                    Until::Written => ring.handed(share.taken.records, share.image),
                }
            }
        });
        debug_assert!(self.durable() >= attested);
        if until == Until::Durable && planted::ACK_BEFORE_SYNC.on() {
            for partition in partitions {
                if let Err(error) = self.files[partition].sync(Class::LogWrite) {
                    self.poison(&error.to_string());
                }
            }
        }
        Ok(())
    }
}

impl Log {
    /// Syncs partitions whose writes the operating system has, and moves the horizon.
    fn sync(&self, partitions: &[usize]) -> Result<(), LogError> {
        let files: Vec<&dyn File> = partitions.iter().map(|partition| self.file(*partition)).collect();
        let result: Result<Vec<()>, DiskError> =
            self.volume.sync_all(Class::LogWrite, &files).into_iter().collect();
        result.map_err(|error| self.stopped_by(&error))?;
        self.advance(|order| partitions.iter().for_each(|partition| order.rings[*partition].sync_ended()));
        Ok(())
    }

    fn stopped_by(&self, error: &DiskError) -> LogError {
        let cause = error.to_string();
        self.poison(&cause);
        LogError::Poisoned(cause)
    }

    /// A write or a sync has ended: moves the marks and wakes the waiting threads.
    fn advance(&self, ended: impl FnOnce(&mut Order)) {
        let (later, (read, broke)) = {
            let mut order = self.order.lock();
            ended(&mut order);
            // Under the lock: they must not overtake each other.
            self.written_to.store(order.written(), Ordering::Release);
            self.horizon.store(order.horizon(), Ordering::Release);
            (order.next_turn(), order.look_at_hold())
        };
        // Threads that need a write that has not begun sleep on, except for one, which may have to make it.
        self.written.notify_all_but(later);
        if read {
            self.much_to_read.notify();
        }
        if broke {
            self.checkpoint_wanted.notify();
        }
    }
}

/// The writes of an image that begins at block `place` of a ring: two if it goes over its end.
fn ring_writes(place: u64, blocks: u64, image: &[u8]) -> Vec<Op<'_>> {
    let until_end = ((blocks - place) as usize).saturating_mul(BLOCK).min(image.len());
    let (head, wrapped) = image.split_at(until_end);
    let mut ops = vec![Op::Write { offset: place * BLOCK as u64, buf: head }];
    if !wrapped.is_empty() {
        ops.push(Op::Write { offset: 0, buf: wrapped });
    }
    ops
}
