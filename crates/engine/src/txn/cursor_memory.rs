//! The memory of open cursors, bounded for all cursors of an engine together.
//!
//! A cursor copies what it returns next: an entry, the rest of a leaf, or a batch of rows from several leaves. A single cursor may take [`PLENTY`]. An
//! ordered read of a table with 8,192 partitions has that many cursors open at once, so each batch may take a share of the memory that is left
//! ([`CursorMemory::share`]). If that is little, the cursor returns a few rows or one at a time: steps cost more, and nothing fails.
//!
//! A front that buffers rows counts them in an [`Account`], by reserved bytes, also while the buffers wait for their next cursor. The first bytes are within
//! `common` (`config/memory`); the pool lends the rest, up to an eighth of its frames.
//!
//! Not counted: less than [`LEAST`] for each cursor, and a single row beyond the cursor's share, however long.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_tier::memory::pool::{Loan, Pool, Purpose};
use terrace_tier::page::PAGE_SIZE;

/// A batch may take one part in this number of what is left.
const SHARE: usize = 16;
/// Cursors may borrow one part in this number of the pool's frames.
const LENT: usize = 8;

/// The most that a batch needs.
pub const PLENTY: usize = 256 << 10;
/// Changes below this are not counted.
pub const LEAST: usize = 1 << 10;

/// Buffers of at most this many bytes may always wait for their next cursor.
const IDLE_SMALL: usize = 8 << 10;

pub struct CursorMemory {
    pool: Arc<Pool>,
    used: AtomicUsize,
    /// Bytes for which no loan is needed.
    own: AtomicUsize,
    /// Bytes of the loan, to be read without its lock.
    lent: AtomicUsize,
    /// The pool refused the last loan.
    refused: AtomicBool,
    loan: Mutex<Loan, { Mutexes::Cursors as u8 }>,
}

impl CursorMemory {
    pub fn new(pool: &Arc<Pool>, own: usize) -> CursorMemory {
        CursorMemory {
            pool: pool.clone(),
            used: AtomicUsize::new(0),
            own: AtomicUsize::new(own),
            lent: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            loan: Mutex::new(Loan::new(pool, Purpose::Cursors)),
        }
    }

    /// Sets the bytes that need no loan, after a change of the engine's memory.
    pub fn bound(&self, own: usize) {
        self.own.store(own, Ordering::Relaxed);
    }

    /// Bytes that are counted now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The bytes that the batch of a cursor may take that has reserved `held`.
    pub fn share(&self, held: usize) -> usize {
        let lent = match self.refused.load(Ordering::Relaxed) {
            true => self.lent.load(Ordering::Relaxed),
            false => self.pool.frames() / LENT * PAGE_SIZE,
        };
        let left = (self.own.load(Ordering::Relaxed) + lent).saturating_sub(self.used());
        ((left + held) / SHARE).min(PLENTY)
    }

    /// Whether buffers of `held` bytes, counted already, may wait for their next cursor. Borrowed memory is for open cursors: what idle threads
    /// keep of it, sorts and locks could not borrow.
    pub fn may_keep(&self, held: usize) -> bool {
        held <= IDLE_SMALL || self.used() <= self.own.load(Ordering::Relaxed)
    }

    fn change(&self, from: usize, to: usize) {
        let own = self.own.load(Ordering::Relaxed);
        if to > from {
            let used = self.used.fetch_add(to - from, Ordering::AcqRel) + (to - from);
            if used > own + self.lent.load(Ordering::Acquire) {
                self.borrow();
            }
        } else {
            let used = self.used.fetch_sub(from - to, Ordering::AcqRel) - (from - to);
            if used <= own && self.refused.load(Ordering::Relaxed) {
                self.refused.store(false, Ordering::Relaxed);
            }
            // With hysteresis: the next statement may need it again.
            let lent = self.lent.load(Ordering::Acquire);
            if lent > 0 && (used <= own / 2 || used.saturating_sub(own) < lent / 2) {
                self.give_back();
            }
        }
    }

    fn needed(&self) -> usize {
        self.used().saturating_sub(self.own.load(Ordering::Relaxed)).next_multiple_of(self.pool.loan_step())
    }

    #[cold]
    fn borrow(&self) {
        let mut loan = self.loan.lock();
        let more = self.needed().saturating_sub(loan.bytes());
        let lent = more == 0 || loan.take(more);
        self.lent.store(loan.bytes(), Ordering::Release);
        self.refused.store(!lent, Ordering::Relaxed);
    }

    #[cold]
    fn give_back(&self) {
        let mut loan = self.loan.lock();
        loan.keep(self.needed());
        self.lent.store(loan.bytes(), Ordering::Release);
        self.refused.store(false, Ordering::Relaxed);
    }
}

/// The reserved bytes of one cursor's buffers. Dropping it uncounts them.
#[derive(Default)]
pub struct Account {
    room: Weak<CursorMemory>,
    counted: usize,
}

impl Account {
    /// The buffers serve a cursor of this engine from now on.
    pub fn enter(&mut self, room: &Arc<CursorMemory>) {
        if self.room.as_ptr() != Arc::as_ptr(room) {
            let counted = std::mem::take(&mut self.counted);
            self.tell(counted, 0);
            self.room = Arc::downgrade(room);
        }
    }
    pub fn counted(&self) -> usize {
        self.counted
    }
    /// Sets the reserved bytes.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes.abs_diff(self.counted) >= LEAST {
            let before = std::mem::replace(&mut self.counted, bytes);
            self.tell(before, bytes);
        }
    }
    fn tell(&self, from: usize, to: usize) {
        if from != to
            && let Some(room) = self.room.upgrade()
        {
            room.change(from, to);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.tell(self.counted, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pool_of;

    const OWN: usize = 256 << 10;
    const BOUND: usize = OWN + 1024 / LENT * PAGE_SIZE;

    fn room() -> Arc<CursorMemory> {
        Arc::new(CursorMemory::new(&pool_of(1024), OWN))
    }
    fn account(room: &Arc<CursorMemory>) -> Account {
        let mut account = Account::default();
        account.enter(room);
        account
    }

    #[test]
    fn any_number_of_cursors_stay_within_the_bound() {
        let room = room();
        let mut open = Vec::new();
        for _ in 0..8192 {
            let mut account = account(&room);
            account.set(room.share(0));
            open.push(account);
        }
        assert!(room.used() <= BOUND && room.used() > BOUND * 3 / 4, "{} of {BOUND}", room.used());
        assert!(room.share(0) < LEAST, "others get hardly anything");
        let lent = room.pool.lent_for(Purpose::Cursors);
        assert!(lent + OWN >= room.used(), "{lent} is lent");
        drop(open);
        assert_eq!((room.used(), room.pool.lent_for(Purpose::Cursors)), (0, 0));
        assert_eq!(room.share(0), BOUND / SHARE);
    }

    #[test]
    fn a_cursor_with_much_memory_gets_less_when_others_need_some() {
        let room = room();
        let mut first = account(&room);
        first.set(room.share(0));
        let mut others: Vec<_> = (0..600).map(|_| account(&room)).collect();
        for _ in 0..20 {
            others.iter_mut().for_each(|one| one.set(room.share(one.counted())));
            first.set(room.share(first.counted()));
        }
        let most = others.iter().map(Account::counted).max().unwrap_or(0);
        assert!(first.counted() <= 2 * most, "{} and {most}", first.counted());
    }

    #[test]
    fn where_the_pool_lends_nothing_more_batches_are_small() {
        let room = room();
        let mut others = Loan::new(&room.pool, Purpose::Locks);
        assert!(others.take(1024 / 2 * PAGE_SIZE));
        let mut one = account(&room);
        one.set(OWN + LEAST);
        assert_eq!(room.share(0), 0);
        drop(one);
        drop(others);
        assert_eq!(room.share(0), BOUND / SHARE);
    }

    #[test]
    fn buffers_that_wait_for_their_next_cursor_use_no_borrowed_memory() {
        let room = room();
        let mut kept = Vec::new();
        for _ in 0..200 {
            let mut account = account(&room);
            account.set(40_000);
            if room.may_keep(account.counted()) {
                kept.push(account);
            }
        }
        assert_eq!((kept.len(), room.pool.lent_for(Purpose::Cursors)), (OWN / 40_000, 0));
        assert!(room.may_keep(IDLE_SMALL));
    }

    #[test]
    fn an_account_that_outlives_its_engine_reports_nothing() {
        let (old, new) = (room(), room());
        let mut account = account(&old);
        account.set(100_000);
        drop(old);
        account.enter(&new);
        assert_eq!((account.counted(), new.used()), (0, 0));
        account.set(50_000);
        assert_eq!(new.used(), 50_000);
    }
}
