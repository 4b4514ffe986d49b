//! Purge: what no view can see any more goes, in the order of the commits.
//!
//! Of a transaction that every view sees: its delete marks become removals (if it is still the last
//! to have touched the value), the large values that it replaced are freed, its undo is forgotten.
//!
//! A mark that another transaction has put a value over is that one's from then on: its commit makes it past,
//! its rollback takes it away if purge has been there (`rollback`).

use crate::btree::overflow::{self, Large};
use crate::btree::{Flow, Hint, Plan, TreeError};
use crate::core::{Core, PURGE_BATCH, Past};
use crate::error::Result;
use crate::row::{Head, TxnId};
use crate::undo::record::{Body, Change};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker};
use terrace_tier::redo::Urgency;

/// Transactions that one step purges at the most.
const BATCH: usize = 32;
/// How long transactions gather after a purge, in nanoseconds, unless there are many.
const GATHER: Nanos = 5_000_000;

pub struct PurgeWorker {
    core: Arc<Core>,
    failed: u64,
    /// When something was purged last.
    purged_at: Nanos,
}

impl PurgeWorker {
    pub fn new(core: Arc<Core>) -> PurgeWorker {
        PurgeWorker { core, failed: 0, purged_at: 0 }
    }
}

impl Worker for PurgeWorker {
    fn name(&self) -> &'static str {
        "purge"
    }
    fn step(&mut self) -> Step {
        let now = self.core.storage.world.clock.now();
        let gathering = now < self.purged_at + GATHER && self.core.history.lock().len() < PURGE_BATCH;
        if gathering && !self.core.ids.wants_settling() {
            return Step::IdleFor(self.purged_at + GATHER - now);
        }
        match step(&self.core) {
            Ok(true) => {
                self.failed = 0;
                self.purged_at = now;
                Step::Worked
            }
            Ok(false) => Step::Idle,
            Err(_) => {
                self.failed = (self.failed + 1).min(50);
                Step::IdleFor(self.failed * 100_000_000)
            }
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.core.purge_wanted.clone()
    }
}

/// Purges a few transactions. False if there is nothing to purge now.
pub fn step(core: &Core) -> Result<bool> {
    core.ids.settle();
    let zombies = std::mem::take(&mut *core.zombies.lock());
    core.drop_spaces(zombies)?;
    let mut any = false;
    for _ in 0..BATCH {
        let oldest = core.ids.oldest_view();
        let next = {
            let mut history = core.history.lock();
            let due = |past: &Past| past.csn <= oldest || crate::planted::VIEW_IGNORED.on();
            let next = history.first().filter(due);
            if next.is_some() {
                history.touch_first();
            }
            next
        };
        let Some(past) = next else { break };
        purge(core, &past)?;
        let last = core.history.lock().pop_first();
        core.streams.forget_before(past.stream, past.end)?;
        if last {
            core.streams.rewind(past.stream, past.end)?;
        }
        core.counters.purged.fetch_add(1, Ordering::Relaxed);
        any = true;
    }
    Ok(any)
}

fn purge(core: &Core, past: &Past) -> Result<()> {
    core.streams.walk(past.begin, Some(past.end), |_, record| {
        if let Body::Change(change) = record.body {
            purge_change(core, past.txn, &change)?;
        }
        Ok(true)
    })?;
    Ok(())
}

fn purge_change(core: &Core, txn: TxnId, change: &Change<'_>) -> Result<()> {
    let Some(old) = change.old else { return Ok(()) };
    let large = Head::decode(old).filter(|(head, _)| head.large() && change.index == 0).and_then(|(_, rest)| Large::decode(rest));
    if !change.marked && large.is_none() {
        return Ok(());
    }
    let Some(table) = core.catalog.by_id(change.table)? else { return Ok(()) };
    let tree = table.tree(usize::from(change.index))?;
    let mut free = large.filter(|_| !change.marked);
    if change.marked {
        let plan = Plan { urgency: Urgency::Reserve, ..Plan::remove() };
        tree.modify(&mut Hint::default(), change.key, plan, |spot| {
            let head = spot.value().and_then(Head::decode).map(|(head, _)| head);
            let is_ours = head.is_some_and(|head| head.deleted() && head.txn == txn);
            if is_ours || crate::planted::REVIVED_ROW_PURGED.on() {
                spot.remove();
                free = large;
            } else if spot.value().is_none() {
                // A purge that was cut by a crash has removed the row, perhaps not yet its large value.
                free = large;
            }
            Ok::<_, TreeError>(Flow::Done)
        })?;
    }
    if let Some(large) = free {
        match overflow::free(tree.space(), large, Urgency::Reserve) {
            // A purge that was cut by a crash comes again: it may be freed already.
            Ok(()) | Err(TreeError::Gone { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
