//! What purge will come to, fetched before it does.
//!
//! Marks lie scattered. Where the store has their leaves, purge would wait for one after the other, 30 ms each, and fall behind a handful of
//! writers: what it leaves is undo, which takes the slots and the memory of everything else. So it looks at the oldest transactions of all
//! streams, and at the keys ahead of it in a long one, and [`Fetcher`]s bring the pages that are missing, side by side. They stay
//! in memory until the transaction is purged: in little memory an unpinned page is gone again before its turn.
//!
//! It is advice: nothing is locked or changed, and a page that does not come in time is waited for as before. As long as all is in memory
//! nothing is looked at twice.

use super::super::history::Past;
use super::tree_of;
use crate::error::Result;
use crate::tree::Tree;
use crate::txn::shared::Core;
use crate::undo::record::Body;
use crate::undo::stream::Mark;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Step, Worker};
use terrace_tier::limits::meter;
use terrace_tier::memory::pages::{Pages, Pin};
use terrace_tier::memory::pool::Access;
use terrace_tier::page::PageId;

/// It continues for this many transactions after a page was missing.
const GOES_ON: u32 = 256;
/// Undo records of one transaction that are looked at before it is its turn.
const RECORDS: usize = 512;
/// Streams looked at.
const STREAMS: usize = 128;
/// Pages held, or asked for: a part of the frames, the minimum, the maximum.
const FRAMES_A_PAGE: usize = 16;
const PAGES: (usize, usize) = (4, 64);

/// For whom a page is: a transaction, by its commit sequence number, and which part of its keys; those that are looked at before it is its turn are
/// part 0.
type Whose = (u64, u32);

/// A page that is wanted, of a tree or of undo.
struct Wanted {
    whose: Whose,
    id: PageId,
    pages: Arc<Pages>,
}

/// What purge asks of the fetchers, and what they have brought.
#[derive(Default)]
pub struct Fetches(Mutex<FetchState, { Mutexes::History as u8 }>);

#[derive(Default)]
struct FetchState {
    wanted: VecDeque<Wanted>,
    /// On their way.
    under_way: Vec<(Whose, PageId)>,
    held: Vec<(Whose, Pin)>,
    /// The events of fetchers that have nothing to do: for one page one of them is woken.
    idle: Vec<Arc<Event>>,
}

impl Fetches {
    fn ask(&self, whose: Whose, id: PageId, pages: &Arc<Pages>) {
        let mut state = self.0.lock();
        state.wanted.push_back(Wanted { whose, id, pages: pages.clone() });
        let idle = state.idle.pop();
        drop(state);
        if let Some(fetcher) = idle {
            fetcher.notify();
        }
    }

    /// Those for whom `is_over` need nothing any more.
    fn give_back(&self, is_over: impl Fn(Whose) -> bool) {
        let mut state = self.0.lock();
        state.wanted.retain(|one| !is_over(one.whose));
        state.under_way.retain(|(whose, _)| !is_over(*whose));
        let (over, held) =
            std::mem::take(&mut state.held).into_iter().partition(|(whose, _)| is_over(*whose));
        state.held = held;
        drop(state);
        drop::<Vec<_>>(over);
    }

    /// Pages on their way or held.
    fn count(&self) -> usize {
        let state = self.0.lock();
        state.wanted.len() + state.under_way.len() + state.held.len()
    }
}

/// Brings pages that purge asked for, one at a time.
pub struct Fetcher {
    fetches: Arc<Fetches>,
    wake: Arc<Event>,
}

impl Worker for Fetcher {
    fn name(&self) -> &'static str {
        "purge fetcher"
    }
    fn step(&mut self) -> Step {
        let mut state = self.fetches.0.lock();
        let Some(Wanted { whose, id, pages }) = state.wanted.pop_front() else {
            if !state.idle.iter().any(|one| Arc::ptr_eq(one, &self.wake)) {
                state.idle.push(self.wake.clone());
            }
            return Step::Idle;
        };
        state.under_way.push((whose, id));
        drop(state);
        // What can't be read is for purge to find, in its turn.
        let pin = pages.load(id, Access::Internal).ok();
        let mut state = self.fetches.0.lock();
        // Else its turn is over.
        if let Some(at) = state.under_way.iter().position(|one| *one == (whose, id)) {
            state.under_way.swap_remove(at);
            if let Some(pin) = pin {
                state.held.push((whose, pin));
            }
        }
        Step::Worked
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}

/// How far purge has looked ahead.
#[derive(Default)]
pub struct Ahead {
    fetches: Arc<Fetches>,
    /// Those who fetch. Without any nothing is looked at.
    fetchers: usize,
    /// Transactions whose turn is still to come, by their commit sequence numbers: whether their marks were looked at, else their undo is
    /// fetched.
    seen: BTreeMap<u64, bool>,
    goes_on: u32,
    /// The part of the keys of the transaction whose turn it is.
    part: u32,
}

impl Ahead {
    /// With `fetchers` fetchers.
    pub fn with(fetchers: usize) -> (Ahead, Vec<Fetcher>) {
        let ahead = Ahead { fetchers, ..Ahead::default() };
        let all = (0..fetchers).map(|_| Fetcher { fetches: ahead.fetches.clone(), wake: Arc::default() });
        let all = all.collect();
        (ahead, all)
    }

    fn most(core: &Core) -> usize {
        (core.storage.pages.pool().frames() / FRAMES_A_PAGE).clamp(PAGES.0, PAGES.1)
    }

    fn is_off(&self) -> bool {
        self.goes_on == 0 || self.fetchers == 0 || crate::planted::PURGE_LOOKS_NOT_AHEAD.on()
    }

    /// Looks at those that come next, `upto` a commit sequence number.
    pub(super) fn look(&mut self, core: &Core, upto: u64) {
        let mut room = Ahead::most(core).saturating_sub(self.fetches.count());
        if self.is_off() || room == 0 {
            return;
        }
        let coming: Vec<Past> =
            core.purge.history.lock().oldest().take_while(|past| past.csn <= upto).take(STREAMS).collect();
        for past in coming {
            if room == 0 {
                break;
            }
            let is_near = core.streams.is_near(past.begin);
            match self.seen.get(&past.csn) {
                Some(true) => continue,
                Some(false) if !is_near => continue,
                None if !is_near => {
                    self.fetches.ask((past.csn, 0), core.streams.id(past.begin.page), core.streams.pages());
                    self.seen.insert(past.csn, false);
                    room -= 1;
                    self.goes_on = GOES_ON;
                }
                _ => {
                    // An error is for purge to find.
                    let pages = self.look_at(core, &past, room).unwrap_or(0);
                    self.seen.insert(past.csn, true);
                    room -= pages;
                    if pages > 0 {
                        self.goes_on = GOES_ON;
                    }
                }
            }
        }
    }

    /// Asks for pages that the marks of a transaction need, at most `most`. Returns how many.
    fn look_at(&self, core: &Core, past: &Past, most: usize) -> Result<usize> {
        let (mut pages, mut records, mut last) = (0, 0, None);
        core.streams.walk(past.begin, Some(past.end), |at, record| {
            match record.body {
                Body::Begin { .. } => return Ok(Mark { page: at.page(), end: at.at() } == past.begin),
                Body::Change(change) if change.marked => {
                    if let Some(tree) = tree_of(core, change.table, change.index)? {
                        pages += usize::from(self.fetch((past.csn, 0), &tree, change.key, &mut last));
                    }
                }
                _ => {}
            }
            records += 1;
            Ok(pages < most && records < RECORDS)
        })?;
        Ok(pages)
    }

    /// Asks for the page that is missing on the way to the key, unless it is the `last` one. True if it did.
    fn fetch(&self, whose: Whose, tree: &Tree, key: &[u8], last: &mut Option<PageId>) -> bool {
        let Some(id) = tree.missing(key).filter(|id| Some(*id) != *last) else { return false };
        *last = Some(id);
        self.fetches.ask(whose, id, tree.space().pages());
        true
    }

    /// The transaction was purged.
    pub(super) fn purged(&mut self, csn: u64) {
        self.goes_on = self.goes_on.saturating_sub(1);
        let asked = std::mem::take(&mut self.part) > 0;
        self.note();
        if self.seen.remove(&csn).is_some() || asked {
            self.fetches.give_back(|(of, _)| of <= csn);
        }
    }

    /// Whether purge had to wait, says what it has read.
    pub(super) fn note(&mut self) {
        if meter::take().pages[1..].iter().any(|pages| *pages > 0) {
            self.goes_on = GOES_ON;
        }
    }

    /// Purge comes to these keys of a transaction in one tree now, in order: asks for what those from `from` on need, up to half of what may be
    /// asked for. Returns the first key that was not looked at.
    pub(super) fn ask(&mut self, core: &Core, csn: u64, tree: &Tree, keys: &[&[u8]], from: usize) -> usize {
        if self.is_off() || keys.len() == from {
            return keys.len();
        }
        self.part += 1;
        // At least one, so that it makes progress.
        let most = Ahead::most(core);
        let most = most.saturating_sub(self.fetches.count()).min(most / 2).max(1);
        let (mut pages, mut last) = (0, None);
        for (at, key) in keys.iter().enumerate().skip(from) {
            pages += usize::from(self.fetch((csn, self.part), tree, key, &mut last));
            if pages >= most {
                return at + 1;
            }
        }
        keys.len()
    }

    /// All parts but the last that was asked for are done.
    pub(super) fn done_but_last(&self, csn: u64) {
        if self.part > 1 {
            self.fetches.give_back(|(of, part)| of == csn && part > 0 && part < self.part);
        }
    }

    /// Purge can't go on: what was asked for others may have.
    pub(super) fn give_up(&mut self) {
        self.fetches.give_back(|_| true);
        self.seen.clear();
        self.part = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use crate::IndexDef;
    use crate::Isolation;
    use crate::Parts;
    use crate::Row;
    use crate::TableDef;
    use crate::config::{Bytes, Config};
    use terrace_sim::SimWorld;

    #[test]
    fn where_nothing_is_missing_it_ends() {
        let sim = SimWorld::new(1);
        let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
        let config = Config { memory: Bytes(16 << 20), log: Bytes(8 << 20), ..Config::default() };
        let engine = Engine::open(config, parts).unwrap();
        let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
        let table = engine.create_table("d/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
        let core = engine.core();
        let (mut ahead, fetchers) = Ahead::with(2);
        meter::take();
        ahead.goes_on = GOES_ON;
        for key in 0..GOES_ON {
            for deletes in [false, true] {
                let txn = engine.begin(Isolation::RepeatableRead);
                match deletes {
                    false => txn.insert(&table, &key.to_be_bytes(), Row::from(&[1; 100]), &[]).unwrap(),
                    true => txn.delete(&table, &key.to_be_bytes(), &[]).unwrap(),
                }
                txn.commit().unwrap();
            }
            assert!(!ahead.is_off() || key == GOES_ON - 1, "{key}");
            super::super::step_with(core, &mut ahead).unwrap();
        }
        assert!(ahead.is_off());
        assert_eq!((ahead.seen.len(), ahead.fetches.count(), fetchers.len()), (0, 0, 2));
    }
}
