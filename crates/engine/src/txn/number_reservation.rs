//! Transaction numbers are reserved in the superblock before they are used, many at a time: after a crash numbering goes on above
//! what was reserved, so no number is used twice, and no start has to read the whole log for the highest one.
//!
//! A thread that finds few left reserves more; the others go on until hardly any are left, and then wait for it.

use crate::error::Result;
use crate::storage::Storage;
use crate::txn::ids::Ids;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::sched::Event;

/// Numbers that are reserved ahead; how many are left when a thread reserves more; below which number other threads wait for that: the one
/// that reserves takes some that are not counted here.
const RESERVE: u64 = 1_100_000;
const RESERVE_EARLY: u64 = 500_000;
const RESERVE_LEAST: u64 = 100_000;

pub struct NumberReservation {
    /// Numbers below this are reserved in the superblock.
    bound: AtomicU64,
    /// A thread reserves more.
    busy: AtomicBool,
    /// Notified when it has, or has failed.
    done: Event,
}

impl NumberReservation {
    /// With what the superblock says.
    pub fn new(bound: u64) -> NumberReservation {
        NumberReservation { bound: AtomicU64::new(bound), busy: AtomicBool::new(false), done: Event::new() }
    }

    fn left(&self, ids: &Ids) -> u64 {
        self.bound.load(Ordering::Acquire).saturating_sub(ids.peek())
    }

    /// Makes sure that the next numbers are reserved. May write the superblock or wait for a thread that does: no latch or lock is held.
    pub fn ensure(&self, ids: &Ids, storage: &Storage) -> Result<()> {
        loop {
            let ticket = self.done.ticket();
            if self.left(ids) >= RESERVE_EARLY {
                return Ok(());
            }
            if !self.busy.swap(true, Ordering::AcqRel) {
                let done = if self.left(ids) >= RESERVE_EARLY { Ok(()) } else { self.more(ids, storage) };
                self.busy.store(false, Ordering::Release);
                self.done.notify();
                return done;
            }
            if self.left(ids) >= RESERVE_LEAST {
                return Ok(());
            }
            storage.world.sched.wait(&self.done, ticket, None);
        }
    }

    fn more(&self, ids: &Ids, storage: &Storage) -> Result<()> {
        let bound = ids.peek() + RESERVE;
        storage.checkpointer.write_both(|s| s.transactions = s.transactions.max(bound))?;
        self.bound.fetch_max(bound, Ordering::AcqRel);
        Ok(())
    }
}
