//! Purge: versions that no view can see any more are removed, in the order of the commits.
//!
//! For a transaction that every view sees: its delete marks become removals (if it is still the last
//! to have touched the value), the large values that it replaced are freed, its undo is forgotten.
//!
//! A transaction is purged, and its undo forgotten, before the next one is: so a crash leaves at most the oldest of a stream
//! purged in part, and no other.
//!
//! What it can't read for good it passes by ([`trouble`]).
//!
//! A mark that another transaction has put a value over is that one's from then on: its commit makes it past,
//! its rollback takes it away if purge has been there (`rollback`).

mod ahead;
pub mod state;
pub mod trouble;

use self::ahead::{Ahead, Fetcher};
use super::history::{History, Past};
use crate::error::TreeError;
use crate::error::{Error, Result};
use crate::row::{Head, TxnId};
use crate::tree::overflow::{self, Large};
use crate::tree::{Flow, Hint, Plan, Tree};
use crate::txn::shared::{Core, PURGE_BATCH};
use crate::undo::chains;
use crate::undo::record::{Body, Change};
use crate::undo::stream::Mark;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker};
use terrace_log::Urgency;

/// The most transactions that one step purges.
const BATCH: usize = 32;
/// How long transactions gather after a purge, in nanoseconds, unless there are many.
const GATHER: Nanos = 5_000_000;
/// Bytes of keys of marks that go together, about.
const MARKS_BYTES: usize = 128 << 10;

pub struct PurgeWorker {
    core: Arc<Core>,
    failed: u64,
    /// When something was purged last.
    purged_at: Nanos,
    ahead: Ahead,
}

impl PurgeWorker {
    /// With this number of fetchers for pages that it will come to.
    pub fn new(core: Arc<Core>, fetchers: usize) -> (PurgeWorker, Vec<Fetcher>) {
        let (ahead, fetchers) = Ahead::with(fetchers);
        (PurgeWorker { core, failed: 0, purged_at: 0, ahead }, fetchers)
    }
}

impl Worker for PurgeWorker {
    fn name(&self) -> &'static str {
        "purge"
    }
    fn step(&mut self) -> Step {
        let now = self.core.storage.world.clock.now();
        let gathering = now < self.purged_at + GATHER && self.core.purge.history.lock().len() < PURGE_BATCH;
        if gathering && !self.core.ids.wants_settling() {
            return Step::IdleFor(self.purged_at + GATHER - now);
        }
        let (trouble, before) = (&self.core.purge.trouble, self.core.counters.purged.load(Ordering::Relaxed));
        let done = step_with(&self.core, &mut self.ahead);
        match &done {
            Err(error) => {
                let came_on = self.core.counters.purged.load(Ordering::Relaxed) > before;
                self.failed = if came_on { 1 } else { (self.failed + 1).min(50) };
                trouble.failed(self.failed, error);
            }
            Ok(_) => {
                self.failed = 0;
                trouble.over();
            }
        }
        self.core.set_purge_throttle();
        match done {
            Ok(true) => {
                self.purged_at = now;
                Step::Worked
            }
            Ok(false) => {
                let storage = &self.core.storage;
                let rest = storage.dropped_spaces.look_again(storage.pages.redo().durable());
                rest.map_or(Step::Idle, |rest| if rest == 0 { Step::Worked } else { Step::IdleFor(rest) })
            }
            Err(_) => {
                self.ahead.give_up();
                Step::IdleFor(self.failed * 100_000_000)
            }
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.core.purge.wanted.clone()
    }
}

/// Purges a few transactions. False if there is nothing to purge now.
pub fn step(core: &Core) -> Result<bool> {
    step_with(core, &mut Ahead::default())
}

fn step_with(core: &Core, ahead: &mut Ahead) -> Result<bool> {
    core.ids.settle();
    let storage = &core.storage;
    let gone = storage.dropped_spaces.take(&**storage.pages.redo(), storage.world.clock.now());
    // Those that cannot be dropped now stay among those that go.
    let _ = core.drop_spaces(gone);
    let mut any = false;
    let mut marks = Marks { list: Vec::new(), keys: Vec::new(), ahead };
    for _ in 0..BATCH {
        forget(core)?;
        read_oldest(core)?;
        let oldest = core.ids.oldest_view();
        let next = core
            .purge
            .history
            .lock()
            .first()
            .filter(|past| past.csn <= oldest || crate::planted::VIEW_IGNORED.on());
        let Some(past) = next else { break };
        marks.ahead.look(core, oldest);
        let Purged { end, next, records } =
            purge(core, &past, &mut marks).inspect_err(|_| _ = core.purge.in_part.lock().insert(past.csn))?;
        let last = core.purge.history.lock().purged(&past, end, next, records);
        *core.purge.unforgotten.lock() = Some(Unforgotten { stream: past.stream, end, last });
        forget(core)?;
        core.purge.in_part.lock().remove(&past.csn);
        marks.ahead.purged(past.csn);
        core.counters.purged.fetch_add(1, Ordering::Relaxed);
        any = true;
    }
    Ok(any)
}

/// A transaction that was purged.
pub(crate) struct Unforgotten {
    stream: usize,
    /// Where its undo ends.
    end: Mark,
    /// Nothing committed is left in the stream.
    last: bool,
}

/// Forgets the undo of what was purged last, if that failed so far.
fn forget(core: &Core) -> Result<()> {
    let Some(Unforgotten { stream, end, last }) = core.purge.unforgotten.lock().take() else { return Ok(()) };
    let done = core.streams.forget_before(stream, end).and_then(|()| match last {
        true => core.streams.rewind(stream, end),
        false => Ok(()),
    });
    done.inspect_err(|_| *core.purge.unforgotten.lock() = Some(Unforgotten { stream, end, last }))
}

/// Reads where the oldest transactions of streams begin, as far as it is not known.
fn read_oldest(core: &Core) -> Result<()> {
    loop {
        let Some((stream, from)) = core.purge.history.lock().unread() else { return Ok(()) };
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
        core.purge.history.lock().read(stream, begin, csn);
    }
}

/// One transaction that was purged.
struct Purged {
    end: Mark,
    /// The commit sequence number of the one behind it, if it was met there.
    next: Option<u64>,
    records: u64,
}

impl Core {
    /// The content of the streams is known: the oldest of each may have been purged in part before the crash.
    pub(crate) fn purge_begins_with(&self, history: &History) {
        self.purge.in_part.lock().extend(history.oldest_of_streams());
    }

    /// Whether nothing of the transaction can have been purged before. Else what it dropped is looked at before it is freed.
    fn is_purged_once(&self, past: &Past) -> bool {
        !self.purge.in_part.lock().contains(&past.csn) || crate::planted::PURGED_TWICE_UNSEEN.on()
    }
}

fn purge(core: &Core, past: &Past, marks: &mut Marks<'_>) -> Result<Purged> {
    let (mut records, mut next) = (0, None);
    let once = core.is_purged_once(past);
    let mut of = 0;
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
                of = record.txn;
                if let Some(larges) = change.larges_dropped() {
                    purge_larges(core, (record.txn, once), &change, &larges)?;
                } else if change.marked {
                    marks.push(&change);
                }
                if marks.keys.len() >= MARKS_BYTES {
                    marks.purge(core, past.csn, of)?;
                }
            }
        }
        Ok(true)
    })?;
    marks.purge(core, past.csn, of)?;
    Ok(Purged { end, next, records })
}

/// Delete marks of one transaction that are to go: gathered, so that neighbours go together.
struct Marks<'a> {
    /// Table, index, and where in `keys` the key is.
    list: Vec<(u32, u16, Range<usize>)>,
    keys: Vec<u8>,
    ahead: &'a mut Ahead,
}

impl Marks<'_> {
    fn push(&mut self, change: &Change<'_>) {
        let from = self.keys.len();
        self.keys.extend_from_slice(change.key);
        self.list.push((change.table, change.index, from..self.keys.len()));
    }

    /// Removes what is still marked by the transaction.
    fn purge(&mut self, core: &Core, csn: u64, txn: TxnId) -> Result<()> {
        let Marks { list, keys, ahead } = self;
        list.sort_unstable_by(|a, b| {
            (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| keys[a.2.clone()].cmp(&keys[b.2.clone()]))
        });
        let is_ours = |value: &[u8]| {
            Head::decode(value).is_some_and(|(head, _)| head.deleted() && head.txn == txn)
                || crate::planted::REVIVED_ROW_PURGED.on()
        };
        let mut done = Ok(());
        for one_tree in list.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let keys: Vec<&[u8]> = one_tree.iter().map(|(.., key)| &keys[key.clone()]).collect();
            done = match tree_of(core, one_tree[0].0, one_tree[0].1) {
                Ok(Some(tree)) => {
                    let (mut from, mut upto) = (0, ahead.ask(core, csn, &tree, &keys, 0));
                    let mut swept = Ok(());
                    while from < keys.len() && swept.is_ok() {
                        let next = ahead.ask(core, csn, &tree, &keys, upto);
                        swept = sweep(core, &tree, &keys[from..upto], is_ours);
                        ahead.done_but_last(csn);
                        (from, upto) = (upto, next);
                    }
                    swept
                }
                Ok(None) => Ok(()),
                Err(error) => core.purge.trouble.pass_by(core, error, keys.len()),
            };
            if done.is_err() {
                break;
            }
        }
        list.clear();
        keys.clear();
        ahead.note();
        done
    }
}

/// Removes those of the keys that can be read.
fn sweep(core: &Core, tree: &Tree, keys: &[&[u8]], is_ours: impl Fn(&[u8]) -> bool) -> Result<()> {
    let mut rest = keys;
    while let Err(error) = tree.sweep(&mut rest, Urgency::Reserve, &is_ours) {
        let lost = error.page();
        // Its neighbours' way leads there, too.
        let leads_there = |key: &&&[u8]| lost.is_some() && tree.missing(key) == lost;
        let count = 1 + rest[1..].iter().take_while(leads_there).count();
        core.purge.trouble.pass_by(core, error, count)?;
        rest = &rest[count..];
    }
    Ok(())
}

fn tree_of(core: &Core, table: u32, index: u16) -> Result<Option<Arc<Tree>>> {
    Ok(core.catalog.by_id(table)?.and_then(|table| table.numbered(index)))
}

/// A row had large values: they are freed, with the row if that is marked still. Whatever has become of a mark, no reader needs what is
/// behind it any more, and no value keeps a part of it; a transaction that put a row over it, or rolls back to it, frees them again, which is harmless where they
/// are read first: undo's list of their pages is trusted only if no other transaction can have freed them, nor purge itself.
fn purge_larges(
    core: &Core,
    (txn, mut once): (TxnId, bool),
    change: &Change<'_>,
    larges: &[Large],
) -> Result<()> {
    let pass_by = |error: Error| core.purge.trouble.pass_by(core, error, larges.len());
    let tree = match tree_of(core, change.table, change.index) {
        Ok(Some(tree)) => tree,
        Ok(None) => return Ok(()),
        Err(error) => return pass_by(error),
    };
    if change.marked {
        let plan = Plan { urgency: Urgency::Reserve, ..Plan::remove() };
        let mut is_its_own = false;
        let removed = tree.modify(&mut Hint::default(), change.key, plan, |spot| {
            let head = spot.value().and_then(Head::decode).map(|(head, _)| head);
            // Another transaction has put a row over the mark and rolled back: the row is gone, and the values with it.
            is_its_own = head.is_some_and(|head| head.txn == txn);
            let is_ours = head.is_some_and(|head| head.deleted() && head.txn == txn);
            if is_ours || crate::planted::REVIVED_ROW_PURGED.on() {
                spot.remove();
            }
            Ok::<_, TreeError>(Flow::Done)
        });
        if let Err(error) = removed {
            return pass_by(error.into());
        }
        once &= is_its_own || crate::planted::LOST_MARK_BELIEVED.on();
    }
    let known = chains::decode(tree.space().id(), larges, change.chains).filter(|_| once);
    for (at, large) in larges.iter().enumerate() {
        let freed = match known.as_ref().and_then(|known| known.get(at)).filter(|pages| !pages.is_empty()) {
            Some(pages) => overflow::free_known(tree.space(), *large, pages, Urgency::Reserve),
            None => overflow::free(tree.space(), *large, Urgency::Reserve),
        };
        match freed {
            // A purge that was cut by a crash comes again: it may be freed already.
            Ok(()) | Err(TreeError::Gone { .. }) => {}
            Err(error) => core.purge.trouble.pass_by(core, error, 1)?,
        }
    }
    Ok(())
}
