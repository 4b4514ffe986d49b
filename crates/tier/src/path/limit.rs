//! A table's limits of reads: a statement that has none left waits for its turn, before it reads. No latch is held; his claim is, so
//! others who want the very page wait with him.

use super::Path;
use crate::below::{ReadError, Tier, not_cancelled};
use crate::page::{PAGE_SIZE, SpaceId};
use crate::quota::Rules;
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

    /// Waits until the table may read `pages` pages from the tier. A run of pages of one object is one request; of the
    /// volume, one for each.
    pub(super) fn wait_for_turn(&self, space: SpaceId, tier: Tier, pages: u64) -> Result<(), ReadError> {
        let Some(limits) = self.limits.get() else { return Ok(()) };
        let Some(rule) = limits.rules.of(space) else { return Ok(()) };
        let clock = &limits.world.clock;
        let now = clock.now();
        let requests = if tier == Tier::Object { 1 } else { pages };
        let until = now + rule.table.take(tier, now, requests, pages * PAGE_SIZE as u64);
        // Work in the background, which others wait for as well, takes its tokens and goes on.
        let Some(patience) = cancel::patience() else { return Ok(()) };
        loop {
            let now = clock.now();
            if now >= until {
                return Ok(());
            }
            not_cancelled()?;
            let rest = patience.min(until - now);
            limits.world.sched.wait(&limits.turn, limits.turn.ticket(), Some(rest));
        }
    }
}
