//! A table's limits of reads: who finds none left waits for the page's turn, before the page is claimed. He holds no latch, no claim and
//! no frame: who works in the background, or may read without limits, is not held up by him.
//!
//! The turn is the page's, not a reader's. The first who wants the page takes its tokens and knows when they will have come;
//! who wants it meanwhile waits for the same moment, and the one who then reads it spends them. If all have gone
//! before (somebody brought the page without a limit, or they were cancelled), the tokens are given back.
//!
//! What a read takes beyond its turn (pages that come along, another tier than was expected) is taken without waiting: the next
//! turn is later for it. So is what is read in the background, with no more than a second's debt.
//!
//! Locks: `turns`, then a table's buckets; for memory work only.

use super::Path;
use crate::below::{Tier, TurnNo};
use crate::map::Located;
use crate::page::{PAGE_SIZE, PageId, SpaceId};
use crate::quota::{Rules, Table};
use crate::sync::{Mutex, Mutexes};
use hashbrown::HashMap;
use std::sync::Arc;
use terrace_io::World;
use terrace_io::cancel;
use terrace_io::clock::Nanos;

pub(super) struct Limits {
    world: World,
    rules: Arc<Rules>,
    turns: Mutex<Turns, { Mutexes::Limits as u8 }>,
}

#[derive(Default)]
struct Turns {
    /// As many as pages that are waited for.
    pages: HashMap<PageId, Turn>,
    last: TurnNo,
}

/// Tokens for one page from one tier.
struct Turn {
    no: TurnNo,
    table: Arc<Table>,
    tier: Tier,
    /// When they will have come.
    at: Nanos,
    readers: usize,
}

const PAGE: u64 = PAGE_SIZE as u64;

impl Path {
    /// Set once, before the first read.
    pub fn set_rules(&self, world: World, rules: Arc<Rules>) {
        let limits = Limits { world, rules, turns: Mutex::new(Turns::default()) };
        assert!(self.limits.set(limits).is_ok(), "the rules are set twice");
    }

    /// The space's table, if it has limits of reads.
    fn limited(&self, space: SpaceId) -> Option<(&Limits, Arc<Table>)> {
        let limits = self.limits.get()?;
        let table = limits.rules.of(space)?.table;
        table.has_limits().then_some((limits, table))
    }

    /// Whether reads of the space's pages are limited: then nobody reads them ahead of need, in the background, for he would not
    /// wait for his turn.
    pub(super) fn limits_reads(&self, space: SpaceId) -> bool {
        self.limited(space).is_some()
    }

    /// The tier that a page seems to be read from.
    fn expected(&self, id: PageId) -> Option<Tier> {
        match self.map.locate(id) {
            Located::At(_) if self.on_flash(id) => Some(Tier::Flash),
            Located::At(home) if home.slot.is_some() => Some(Tier::Volume),
            Located::At(home) if self.map.clean_copy(id, home.tag).is_some() => Some(Tier::Volume),
            Located::At(home) => home.object.map(|_| Tier::Object),
            Located::Never => None,
        }
    }

    /// See [`crate::below::Below::turn`].
    pub(super) fn wait_for_turn(&self, id: PageId, mine: &mut Option<TurnNo>) -> Nanos {
        let Some((limits, table)) = self.limited(id.space) else { return 0 };
        // Work in the background does not wait, for others wait for it.
        if cancel::patience().is_none() {
            return 0;
        }
        let now = limits.world.clock.now();
        let mut turns = limits.turns.lock();
        let turns = &mut *turns;
        // Nobody waits by a limit that was lifted or changed.
        let found = turns.pages.get_mut(&id).filter(|turn| Arc::ptr_eq(&turn.table, &table));
        if let Some(turn) = found {
            if mine.replace(turn.no) != Some(turn.no) {
                turn.readers += 1;
            }
            return turn.at.saturating_sub(now);
        }
        let Some(tier) = self.expected(id).filter(|tier| table.limits(*tier)) else { return 0 };
        let wait = table.take(tier, now, 1, PAGE);
        turns.last += 1;
        let turn = Turn { no: turns.last, table, tier, at: now.saturating_add(wait), readers: 1 };
        *mine = Some(turn.no);
        if let Some(changed) = turns.pages.insert(id, turn) {
            changed.give_back();
        }
        wait
    }

    /// See [`crate::below::Below::end_turn`].
    pub(super) fn leave_turn(&self, id: PageId, no: TurnNo) {
        let Some(limits) = self.limits.get() else { return };
        let mut turns = limits.turns.lock();
        let Some(turn) = turns.pages.get_mut(&id).filter(|turn| turn.no == no) else { return };
        turn.readers -= 1;
        if turn.readers == 0
            && let Some(turn) = turns.pages.remove(&id)
        {
            turn.give_back();
        }
    }

    /// Takes the tokens of a read of `pages` pages that is about to begin, `first` among them; its turn is over. A run of pages of one
    /// object is one request; of the volume, one for each.
    pub(super) fn spend(&self, first: PageId, tier: Tier, pages: u64) {
        let Some((limits, table)) = self.limited(first.space) else { return };
        let now = limits.world.clock.now();
        let requests = if tier == Tier::Object { 1 } else { pages };
        if cancel::patience().is_none() {
            table.owe(tier, now, requests, pages * PAGE);
            return;
        }
        let paid = match limits.turns.lock().pages.remove(&first) {
            Some(turn) if turn.tier == tier && Arc::ptr_eq(&turn.table, &table) => 1,
            Some(turn) => {
                turn.give_back();
                0
            }
            None => 0,
        };
        table.charge(tier, now, requests - paid, (pages - paid) * PAGE);
    }
}

impl Turn {
    fn give_back(self) {
        self.table.give_back(self.tier, 1, PAGE);
    }
}
