//! A table's limits of reads: a statement that has none left waits for its turn, before it reads. No latch is held; his claim is, so
//! others who want the very page wait with him.

use super::Path;
use crate::below::{ReadError, Tier, not_cancelled};
use crate::page::{PAGE_SIZE, SpaceId};
use crate::quota::{Rules, Table};
use std::sync::Arc;
use terrace_io::World;
use terrace_io::cancel;
use terrace_io::sched::Event;

pub(super) struct Limits {
    world: World,
    rules: Arc<Rules>,
    /// Nobody notifies it: time goes by.
    turn: Event,
}

impl Path {
    /// Set once, before the first read.
    pub fn set_rules(&self, world: World, rules: Arc<Rules>) {
        let limits = Limits { world, rules, turn: Event::new() };
        assert!(self.limits.set(limits).is_ok(), "the rules are set twice");
    }

    pub(super) fn is_limited(&self, space: SpaceId) -> bool {
        self.limits.get().is_some_and(|limits| limits.rules.of(space).is_some())
    }

    /// Whether reads of the space's pages are limited: then nobody reads them ahead of need, in the background, for he would not
    /// wait for his turn.
    pub(super) fn limits_reads(&self, space: SpaceId) -> bool {
        let rule = self.limits.get().and_then(|limits| limits.rules.of(space));
        rule.is_some_and(|rule| rule.table.has_limits())
    }

    fn is_ruled_by(&self, space: SpaceId, table: &Arc<Table>) -> bool {
        let rule = self.limits.get().and_then(|limits| limits.rules.of(space));
        rule.is_some_and(|rule| Arc::ptr_eq(&rule.table, table))
    }

    /// Waits until the table may read `pages` pages from the tier. A run of pages of one object is one request; of the
    /// volume, one for each.
    pub(super) fn wait_for_turn(&self, space: SpaceId, tier: Tier, pages: u64) -> Result<(), ReadError> {
        let Some(limits) = self.limits.get() else { return Ok(()) };
        let Some(rule) = limits.rules.of(space) else { return Ok(()) };
        let clock = &limits.world.clock;
        let now = clock.now();
        let requests = if tier == Tier::Object { 1 } else { pages };
        let bytes = pages * PAGE_SIZE as u64;
        // Work in the background, which others wait for as well, takes its tokens and goes on.
        let Some(patience) = cancel::patience() else {
            rule.table.owe(tier, now, requests, bytes);
            return Ok(());
        };
        let until = now.saturating_add(rule.table.take(tier, now, requests, bytes));
        loop {
            let now = clock.now();
            // Nobody waits by a limit that was lifted or changed.
            if now >= until || !self.is_ruled_by(space, &rule.table) {
                return Ok(());
            }
            not_cancelled().inspect_err(|_| rule.table.give_back(tier, requests, bytes))?;
            let rest = patience.min(until - now);
            limits.world.sched.wait(&limits.turn, limits.turn.ticket(), Some(rest));
        }
    }
}
