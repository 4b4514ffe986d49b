//! A worker's step: which block is next, its move, and the rest after a failure.

use super::mover::Sunk;
use super::policy::{self, Pressure, Reason};
use super::{
    ASIDE, PLAN, REQUESTS, REST_MAX, REST_MIN, RETRY_AFTER_MAX, SHARE_REST, SinkError, SinkState, Sinker,
};
use crate::address::BufferedBlock;
use crate::address::PATCH_MAX;
use crate::limits::quota::{self, ByShare};
use crate::objects::fence::FenceError;
use crate::objects::object::Failure;
use crate::page::BlockId;
use crate::volume::map::MapError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker};
use terrace_io::store::StoreError;
use terrace_log::LogError;

impl Sinker {
    /// Moves a block that the caller has put in flight.
    pub(super) fn run(&self, block: BlockId) -> Result<Sunk, SinkError> {
        let kept_up = self.mover.fence.keep_up(self.world.clock.now());
        let paid = self.pay(block.space);
        let put = kept_up.map_err(SinkError::from).and_then(|()| self.mover.sink(block));
        if paid {
            self.give_back(block.space, put.as_ref().map_or(0, |(_, bytes)| *bytes));
        }
        let result = put.map(|(sunk, _)| sunk);
        {
            let mut state = self.state.lock();
            state.in_flight.remove(&block);
            match &result {
                Ok(_) => {
                    state.rest = 0;
                    state.error = None;
                }
                // Of this block alone, or of the engine, which stopped.
                Err(SinkError::Corrupt { .. } | SinkError::Nowhere { .. } | SinkError::Moving { .. }) => {}
                Err(SinkError::Log(_) | SinkError::Map(MapError::Log(_))) => {}
                Err(error) => state.error = Some(Failure::of(error, error.needs_person())),
            }
        }
        match &result {
            Ok(Sunk::Put { pages, patch }) => {
                self.counters.blocks.fetch_add(1, Ordering::Relaxed);
                self.counters.patches.fetch_add(u64::from(*patch), Ordering::Relaxed);
                self.mover.objects.by_space.of(block.space).sinks.fetch_add(1, Ordering::Relaxed);
                self.counters.pages.fetch_add(u64::from(*pages), Ordering::Relaxed);
                self.mover.map.slots_freed.notify();
                self.mover.pool.flush_wanted.notify(); // a flusher that found no slot
            }
            Ok(Sunk::Nothing | Sunk::Gone) => {}
            Err(_) => _ = self.counters.errors.fetch_add(1, Ordering::Relaxed),
        }
        self.progress.notify();
        result
    }

    /// The next block that the policy names, put in flight.
    pub(super) fn next(&self) -> Option<(BlockId, Reason)> {
        let map = &self.mover.map;
        let (now, end) = (self.world.clock.now(), self.mover.redo.appended());
        let cooled_before = {
            let mut state = self.state.lock();
            if let Some(next) = self.take_planned(&mut state) {
                return Some(next);
            }
            state.ages.sample(now, end)
        };
        let cooled_before = if self.room_only.load(Ordering::Relaxed) { 0 } else { cooled_before };
        let (slots, free) = map.slots_to_aim_at();
        // New pages in memory will take slots. Writers are slowed by what is left after them (the engine's write throttle), so
        // there is work to do as soon as any writer is active.
        let free = free.saturating_sub(self.mover.pool.homeless() as u32);
        let patch =
            self.mover.patches.iter().map(|_| (PATCH_MAX / self.mover.objects.packer.mean()) as u32).sum();
        let pressure = Pressure { slots, free, cooled_before, defers: self.defers, patch };
        let mut blocks = map.buffered_blocks();
        let mut state = self.state.lock();
        let state = &mut *state;
        state.aside.retain(|_, until| now < *until);
        let moving: u32 = blocks.iter().filter(|b| state.in_flight.contains(&b.block)).map(|b| b.slots).sum();
        blocks.retain(|b| {
            !state.in_flight.contains(&b.block)
                && state.corrupt.get(&b.block) != Some(&b.last_change)
                && !state.aside.contains_key(&b.block)
        });
        let needed = if free < policy::low(slots) { policy::high(slots).saturating_sub(free) } else { 0 };
        let in_turn = self.in_turn(blocks, needed, (slots, free));
        (state.yields, state.held) = (in_turn.yields, in_turn.wait);
        // Guarantees hold until there is nothing else left for those who write.
        let lacking = (policy::low(slots) / 2).saturating_sub(free + moving);
        let shares = self.by_share(in_turn.blocks, lacking);
        let (reason, plan) = if shares.over.is_empty() {
            policy::choose(pressure, shares.others, PLAN)
        } else {
            (Reason::Share, shares.over)
        };
        state.reason = reason;
        state.plan = plan.into();
        self.take_planned(state)
    }

    pub(super) fn take_planned(&self, state: &mut SinkState) -> Option<(BlockId, Reason)> {
        while let Some(block) = state.plan.pop_front() {
            if self.takes_turn(block.space, state) && state.in_flight.insert(block) {
                return Some((block, state.reason));
            }
        }
        None
    }

    /// What the tables' shares of the object buffer say.
    pub(super) fn by_share(&self, blocks: Vec<BufferedBlock>, needed: u32) -> ByShare {
        match self.rules.get() {
            Some(rules) if !self.room_only.load(Ordering::Relaxed) => {
                let share = |space| rules.of(space).map(|rule| (rule.table.id, rule.table.rule.buffer));
                quota::by_share(blocks, share, needed)
            }
            _ => ByShare { others: blocks, ..ByShare::default() },
        }
    }

    /// One block, if there is need. Workers call it.
    pub(super) fn step(&self) -> Step {
        let now = self.world.clock.now();
        let (rest_until, stopped) = {
            let state = self.state.lock();
            (state.rest_until.max(now + state.rate.wait(now)), state.stopped)
        };
        if stopped || self.mover.fence.lost().is_some() {
            return Step::Idle;
        }
        if now < rest_until {
            return Step::IdleFor(rest_until - now);
        }
        let Some((block, reason)) = self.next() else { return self.idle() };
        self.state.lock().rate.spend(now, REQUESTS);
        match self.run(block) {
            Ok(Sunk::Put { .. }) => {
                self.state.lock().rate.succeeded();
                let counter = match reason {
                    Reason::Watermark => &self.counters.by_watermark,
                    Reason::Cooled => &self.counters.by_cooling,
                    Reason::Share => &self.counters.by_share,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                Step::Worked
            }
            Ok(_) => Step::Worked,
            Err(error) => self.failed(now, block, &error),
        }
    }

    /// How long to sleep when there is nothing to sink.
    pub(super) fn idle(&self) -> Step {
        let cooling = self.mover.map.buffered_blocks().iter().any(|b| b.block.space.sinks());
        let capped = self.rules.get().is_some_and(|rules| rules.cap_the_buffer());
        let rest = if capped { SHARE_REST } else { Nanos::MAX };
        let state = self.state.lock();
        let now = self.world.clock.now();
        let aside = state.aside.values().map(|until| until.saturating_sub(now)).min();
        let rest = rest.min(state.held.unwrap_or(Nanos::MAX)).min(aside.unwrap_or(Nanos::MAX));
        if cooling { Step::IdleFor(state.ages.rest().min(rest)) } else { Step::Idle }
    }

    /// Whether the error says nothing about other blocks. May ask the store.
    fn is_its_own(&self, error: &SinkError) -> bool {
        match error {
            SinkError::Disk(_) | SinkError::Unread(StoreError::Absent { .. }) => true,
            // It may be this object alone: one that is too short, in an archive, or on a bad sector of a directory's disk.
            SinkError::Unread(
                StoreError::Refused { .. } | StoreError::Unavailable { .. } | StoreError::Unknown { .. },
            ) => self.mover.objects.ask().is_ok(),
            _ => false,
        }
    }

    /// `began`: when the move did.
    pub(super) fn failed(&self, began: Nanos, block: BlockId, error: &SinkError) -> Step {
        let mut throttled = None;
        match error {
            SinkError::Corrupt { .. } | SinkError::Nowhere { .. } => {
                self.counters.corrupt.fetch_add(1, Ordering::Relaxed);
                let seen = self.mover.map.buffered_blocks().into_iter().find(|b| b.block == block);
                let mut state = self.state.lock();
                state.corrupt.extend(seen.map(|b| (block, b.last_change)));
                state.corrupt_last = error.to_string();
                return Step::Worked;
            }
            // One of its slots, or its object, can't be read now: the others have nothing to do with that.
            error if self.is_its_own(error) => {
                self.state.lock().aside.insert(block, self.world.clock.now() + ASIDE);
                return Step::Worked;
            }
            SinkError::Moving { .. } => return Step::IdleFor(REST_MIN),
            SinkError::Log(LogError::Poisoned(_)) | SinkError::Map(MapError::Log(LogError::Poisoned(_))) => {
                self.state.lock().stopped = true;
                return Step::Idle;
            }
            SinkError::Fence(error) if error.is_final() => return Step::Idle,
            SinkError::Store(StoreError::Throttled { retry_after_ms, .. })
            | SinkError::Unread(StoreError::Throttled { retry_after_ms, .. })
            | SinkError::Fence(FenceError::Store(StoreError::Throttled { retry_after_ms, .. })) => {
                self.counters.throttled.fetch_add(1, Ordering::Relaxed);
                self.state.lock().rate.throttled(self.world.clock.now());
                throttled = Some(retry_after_ms.saturating_mul(1_000_000).min(RETRY_AFTER_MAX));
            }
            _ => {}
        }
        let mut state = self.state.lock();
        // Half of it by chance, so that many instances do not come back at once.
        let spread = |rest: Nanos| rest / 2 + self.world.random.below(rest / 2);
        let rest = match throttled {
            // The store is there, and said when: what it takes is found by the rate.
            Some(after) => after + spread(state.rate.spacing().max(REST_MIN)),
            // Another worker's move failed while this one was under way: that is one failure, not two.
            None if began < state.rest_until => {
                return Step::IdleFor(state.rest_until.saturating_sub(self.world.clock.now()));
            }
            None => {
                state.rest = (2 * state.rest).clamp(REST_MIN, REST_MAX);
                spread(state.rest)
            }
        };
        // A store that said later to another worker meant all of them.
        state.rest_until = state.rest_until.max(self.world.clock.now() + rest);
        state.plan.clear();
        Step::IdleFor(rest)
    }
}

/// Sinks blocks.
pub struct SinkWorker(pub Arc<Sinker>);

impl Worker for SinkWorker {
    fn name(&self) -> &'static str {
        "sinker"
    }
    fn step(&mut self) -> Step {
        let step = self.0.step();
        self.0.mover.collector.look();
        step
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.mover.map.slots_wanted.clone()
    }
}
