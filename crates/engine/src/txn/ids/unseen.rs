//! Commits that views do not take yet, because a crash could undo them.
//!
//! With [`Ids::set_durable`] a commit enters a queue with its number and the log position up to which the log must be durable for it. Numbers
//! ascend, and positions never descend: an entry's is at least its predecessor's. So the entries below the durable horizon are a prefix of the
//! queue, which the next view publishes and removes: no notice of the horizon is needed. A number without a commit record of its own (a
//! rollback, a commit that the binary log has decided) has its predecessor's position.
//!
//! A committer answers its client after [`Ids::see`]: every view that is opened after the answer takes the commit.
//!
//! A reader under locks does not go by a view and finds commits of the queue: [`Ids::standing`] tells it, and it calls [`Ids::see`] before its
//! answer (`Txn::tell`).
//!
//! An entry takes 16 bytes, and its commit record, which is not durable, more than that in the log's buffers, which are bounded; or it is one that a
//! session waits for.
//!
//! If the log has failed the horizon stays, and views with it.

use super::{Fate, Ids};
use crate::row::TxnId;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use terrace_log::LogError;
use terrace_tier::page::Glsn;

/// What a reader under locks has to know of a value's transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Active,
    /// It has committed, and views do not take that yet: its number.
    Unseen(u64),
    /// It has ended, and views see what it did.
    Seen,
}

struct Entry {
    number: u64,
    /// It is published when the log is durable up to here.
    end: Glsn,
}

#[derive(Default)]
pub(super) struct Views {
    /// Open views and how many have each, in order.
    pub open: VecDeque<(u64, u32)>,
    unseen: VecDeque<Entry>,
}

impl Ids {
    /// From here on views take only commits that are durable; or, as at first, all.
    pub fn set_durable(&self, on: bool) {
        let _order = self.order.lock();
        self.durable.store(on, Ordering::Release);
        if !on {
            let mut views = self.views.lock();
            if let Some(last) = views.unseen.back().map(|last| last.number) {
                self.publish_all(&mut views, last);
            }
        }
    }

    /// Publishes the number, or has it published when the log is durable up to `end`. The caller holds `order`.
    pub(super) fn publish(&self, number: u64, end: Glsn) {
        let mut views = self.views.lock();
        let waits = self.durable.load(Ordering::Acquire) && !crate::planted::SEEN_BEFORE_DURABLE.on();
        if !waits || (views.unseen.is_empty() && self.redo.durable() >= end) {
            return self.publish_all(&mut views, number);
        }
        let end = views.unseen.back().map_or(end, |last| last.end.max(end));
        views.unseen.push_back(Entry { number, end });
        self.unseen.store(views.unseen.len() as u64, Ordering::Release);
    }

    fn publish_all(&self, views: &mut Views, number: u64) {
        views.unseen.clear();
        self.published.store(number, Ordering::Release);
        self.unseen.store(0, Ordering::Release);
    }

    /// Publishes what has become durable, and returns the newest number that is published.
    pub(super) fn advance(&self, views: &mut Views) -> u64 {
        if views.unseen.is_empty() {
            return self.published.load(Ordering::Acquire);
        }
        let durable = self.redo.durable();
        let count = views.unseen.partition_point(|entry| entry.end <= durable);
        let last = views.unseen.drain(..count).next_back();
        if let Some(last) = last {
            self.published.store(last.number, Ordering::Release);
            self.unseen.store(views.unseen.len() as u64, Ordering::Release);
        }
        self.published.load(Ordering::Acquire)
    }

    /// What has become of the transaction, for readers that do not go by a view.
    pub fn standing(&self, id: TxnId) -> Standing {
        if id < self.low.load(Ordering::Acquire) {
            return Standing::Seen;
        }
        match self.known.read().fates.get(&id) {
            Some(Fate::Active) => Standing::Active,
            Some(Fate::Committed(number)) if !self.is_seen(*number) => Standing::Unseen(*number),
            _ => Standing::Seen,
        }
    }

    /// Whether every view that is opened from here on takes the number, as far as is known without a look at the horizon.
    #[inline]
    pub fn is_seen(&self, number: u64) -> bool {
        self.unseen.load(Ordering::Acquire) == 0 || self.published.load(Ordering::Acquire) >= number
    }

    /// Where the log must be durable for views to take the number; None: they do.
    pub fn seen_at(&self, number: u64) -> Option<Glsn> {
        if self.is_seen(number) {
            return None;
        }
        let mut views = self.views.lock();
        if self.advance(&mut views) >= number {
            return None;
        }
        let place = views.unseen.partition_point(|entry| entry.number < number);
        views.unseen.get(place).map(|entry| entry.end)
    }

    /// Views that are opened from here on take the number. Waits for the log, and writes it, if need be. The number was given to a commit or a
    /// rollback.
    pub fn see(&self, number: u64) -> Result<(), LogError> {
        while let Some(end) = self.seen_at(number) {
            self.redo.make_durable(end)?;
        }
        Ok(())
    }

    /// Views that are opened from here on take all that was committed by now.
    pub fn see_all(&self) -> Result<(), LogError> {
        let last = self.views.lock().unseen.back().map(|last| last.number);
        last.map_or(Ok(()), |last| self.see(last))
    }

    /// Commits and rollbacks that views do not take yet.
    pub fn unseen(&self) -> u64 {
        self.advance(&mut self.views.lock());
        self.unseen.load(Ordering::Relaxed)
    }
}
