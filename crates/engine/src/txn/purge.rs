//! Purge: what no view can see any more goes, in the order of the commits.
//!
//! Of a transaction that every view sees: its delete marks become removals (if it is still the last
//! to have touched the value), the large values that it replaced are freed, its undo is forgotten.
//!
//! A mark that another transaction has put a value over is that one's from then on: its commit makes it past,
//! its rollback takes it away if purge has been there (`rollback`).

use super::history::Past;
use crate::btree::overflow::{self, Large};
use crate::btree::{Flow, Hint, Plan, TreeError};
use crate::core::{Core, PURGE_BATCH};
use crate::error::{Error, Result};
use crate::row::{Head, TxnId};
use crate::undo::record::{Body, Change};
use crate::undo::stream::Mark;
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
        let done = step(&self.core);
        self.core.set_brake();
        match done {
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
    // Those that cannot be dropped now are zombies still.
    let _ = core.drop_spaces(zombies);
    let mut any = false;
    for _ in 0..BATCH {
        read_oldest(core)?;
        let oldest = core.ids.oldest_view();
        let next = core
            .history
            .lock()
            .first()
            .filter(|past| past.csn <= oldest || crate::planted::VIEW_IGNORED.on());
        let Some(past) = next else { break };
        let Purged { end, next, records } = purge(core, &past)?;
        let last = core.history.lock().purged(&past, end, next, records);
        core.streams.forget_before(past.stream, end)?;
        if last {
            core.streams.rewind(past.stream, end)?;
        }
        core.counters.purged.fetch_add(1, Ordering::Relaxed);
        any = true;
    }
    Ok(any)
}

/// Reads where the oldest transactions of streams begin, as far as it is not known.
fn read_oldest(core: &Core) -> Result<()> {
    loop {
        let Some((stream, from)) = core.history.lock().unread() else { return Ok(()) };
        let mut found = None;
        core.streams.walk(from, None, |at, record| {
            found = Some((Mark { page: at.page(), end: at.at() }, record.body.commit()));
            Ok(false)
        })?;
        let Some((begin, Some(csn))) = found else {
            return Err(Error::Corrupt(format!(
                "undo stream {stream} has no committed transaction at {from:?}"
            )));
        };
        core.history.lock().read(stream, begin, csn);
    }
}

/// One transaction that was purged.
struct Purged {
    end: Mark,
    /// The commit sequence number of the one behind it, if it was met there.
    next: Option<u64>,
    records: u64,
}

fn purge(core: &Core, past: &Past) -> Result<Purged> {
    let (mut records, mut next) = (0, None);
    let end = core.streams.walk(past.begin, Some(past.end), |at, record| {
        match record.body {
            Body::Begin { .. } if Mark { page: at.page(), end: at.at() } != past.begin => {
                next = record.body.commit();
                return Ok(false);
            }
            Body::Begin { .. } => {}
            Body::Prepare { .. }
            | Body::Large { .. }
            | Body::Load { .. }
            | Body::Extent { .. }
            | Body::Filled { .. } => records += 1,
            Body::Change(change) => {
                records += 1;
                purge_change(core, record.txn, &change)?;
            }
        }
        Ok(true)
    })?;
    Ok(Purged { end, next, records })
}

fn purge_change(core: &Core, txn: TxnId, change: &Change<'_>) -> Result<()> {
    let Some(old) = change.old else { return Ok(()) };
    let large = Head::decode(old)
        .filter(|(head, _)| head.large() && change.index == 0)
        .and_then(|(_, rest)| Large::decode(rest));
    if !change.marked && large.is_none() {
        return Ok(());
    }
    let Some(table) = core.catalog.by_id(change.table)? else { return Ok(()) };
    let Some(tree) = table.numbered(change.index) else { return Ok(()) };
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
