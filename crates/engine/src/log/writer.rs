//! Group commit: whoever needs the log durable writes it, for himself and for all who came before.
//!
//! A write takes everything that waits in the partitions that the caller needs, forms blocks, writes
//! all of them and syncs each file. Meanwhile others append, and those who need what is under way wait.
//! A partition has one write at a time; different partitions may be written by different callers.
//! CloudJump §4.1.2, §4.6.1: parallel writers, aligned blocks, padding.
//!
//! No lock is held over the I/O. A failed write or sync poisons the log: the horizon stays where it
//! is for good, and nothing retries the sync.

use super::block::{self, BLOCK, BlockHeader};
use super::partition::{Ring, Taken};
use super::{Log, LogCounters};
use crate::planted;
use std::sync::atomic::Ordering;
use terrace_io::AlignedBuf;
use terrace_io::clock::Nanos;
use terrace_io::disk::{Class, DiskError, FileWrite, Op};
use terrace_io::observe;
use terrace_tier::page::Glsn;
use terrace_tier::redo::{LogError, Redo};

/// After how long a waiter looks again by itself, in nanoseconds.
const PATIENCE: Nanos = 100_000_000;

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
    /// Everything below `upto` is durable when it returns Ok.
    pub(super) fn write_until(&self, upto: Glsn) -> Result<(), LogError> {
        assert!(
            upto <= self.appended(),
            "durability of {upto} is asked for, the log ends at {}",
            self.appended()
        );
        loop {
            let written = self.written.ticket();
            if self.durable() >= upto {
                return Ok(());
            }
            self.healthy()?;
            let (shares, turn) = {
                let mut order = self.order.lock();
                (order.take(|_, ring| ring.can_write(upto)), order.turn(upto))
            };
            if shares.is_empty() {
                let _shown = observe::wait(observe::Wait::LogSync);
                self.world.sched.wait_for(&self.written, written, Some(PATIENCE), turn);
            } else {
                self.write(shares)?;
            }
        }
    }

    /// Takes what waits in the partitions chosen.
    pub(super) fn take(&self, choose: impl Fn(usize, &Ring) -> bool) -> Vec<(usize, Taken)> {
        self.order.lock().take(choose)
    }

    /// Writes and syncs the shares, and moves the horizon.
    pub(super) fn write(&self, shares: Vec<(usize, Taken)>) -> Result<(), LogError> {
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
        let result: Result<Vec<()>, DiskError> = if planted::ACK_BEFORE_SYNC.on() {
            writes.iter_mut().flat_map(|w| w.file.batch(Class::LogWrite, &mut w.ops)).collect()
        } else {
            self.volume.write_synced(Class::LogWrite, &mut writes).into_iter().collect()
        };
        drop(writes);
        if let Err(error) = result {
            let cause = error.to_string();
            self.poison(&cause);
            return Err(LogError::Poisoned(cause));
        }
        let partitions: Vec<usize> = shares.iter().map(|s| s.partition).collect();
        let (horizon, later) = {
            let mut order = self.order.lock();
            for share in shares {
                order.rings[share.partition].synced(share.taken.records, share.image);
            }
            let horizon = order.horizon();
            // Under the lock: horizons must not overtake each other.
            self.horizon.store(horizon, Ordering::Release);
            (horizon, order.next_turn())
        };
        debug_assert!(horizon >= attested);
        // Who needs a write that has not begun sleeps on, but for one, who may have to make it.
        self.written.notify_all_but(later);
        if planted::ACK_BEFORE_SYNC.on() {
            for partition in partitions {
                if let Err(error) = self.files[partition].sync(Class::LogWrite) {
                    self.poison(&error.to_string());
                }
            }
        }
        Ok(())
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
