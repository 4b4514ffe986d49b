//! A table's limits of reads: a reader that finds no tokens waits for the page's turn, before it claims the page. It holds no
//! latch, no claim and no frame, so it does not delay background work or unlimited readers.
//!
//! The turn belongs to the page, not to a reader. The first reader of the page takes its tokens and knows when they will have
//! arrived. Later readers wait for the same time, and the one that then reads the page spends them. If all readers have left
//! before (the page was loaded without a limit, or they were cancelled), the tokens are returned.
//!
//! What a read takes beyond its turn (pages read along, another tier than expected) is taken without waiting: the next turn is
//! later for it. The same holds for background reads, with at most a second's debt.
//!
//! Locks: `turns`, then a table's buckets; for memory work only.

use super::ReadPath;
use crate::address::Located;
use crate::address::Tier;
use crate::limits::quota::{Rules, Table};
use crate::memory::lower_tiers::TurnNo;
use crate::page::{PAGE_SIZE, PageId, SpaceId};
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
    /// One entry for each page that is waited for.
    pages: HashMap<PageId, TokenTurn>,
    last: TurnNo,
}

/// Tokens for one page from one tier.
struct TokenTurn {
    no: TurnNo,
    table: Arc<Table>,
    tier: Tier,
    /// When they will have arrived.
    at: Nanos,
    readers: usize,
}

const PAGE: u64 = PAGE_SIZE as u64;

impl ReadPath {
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

    /// Whether reads of the space's pages are limited: then they are not prefetched in the background, because a prefetcher would
    /// not wait for its turn.
    pub(super) fn limits_reads(&self, space: SpaceId) -> bool {
        self.limited(space).is_some()
    }

    /// The tier from which the page will probably be read.
    fn expected(&self, id: PageId) -> Option<Tier> {
        match self.map.locate(id) {
            Located::At(_) if self.on_flash(id) => Some(Tier::Flash),
            Located::At(home) if home.slot.is_some() => Some(Tier::Volume),
            Located::At(home) if self.map.clean_copy(id, home.tag).is_some() => Some(Tier::Volume),
            Located::At(home) => home.object.map(|_| Tier::Object),
            Located::Never => None,
        }
    }

    /// See [`crate::memory::lower_tiers::Below::turn`].
    pub(super) fn wait_for_turn(&self, id: PageId, mine: &mut Option<TurnNo>) -> Nanos {
        let Some((limits, table)) = self.limited(id.space) else { return 0 };
        // Background work does not wait, because other threads wait for it.
        if cancel::patience().is_none() {
            return 0;
        }
        let now = limits.world.clock.now();
        let mut turns = limits.turns.lock();
        let turns = &mut *turns;
        // A limit that was lifted or changed makes no reader wait.
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
        let turn = TokenTurn { no: turns.last, table, tier, at: now.saturating_add(wait), readers: 1 };
        *mine = Some(turn.no);
        if let Some(changed) = turns.pages.insert(id, turn) {
            changed.give_back();
        }
        wait
    }

    /// See [`crate::memory::lower_tiers::Below::end_turn`].
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

    /// Takes the tokens of a read of `pages` pages, `first` among them, that is about to begin; its turn is over. A run of pages
    /// of one object is one request; on the volume each page is one.
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

impl TokenTurn {
    fn give_back(self) {
        self.table.give_back(self.tier, 1, PAGE);
    }
}
