//! What the first event loop does beside its sockets: time, and the number of loops.

use super::crew::Crew;
use super::elastic::{Decision, Policy, WINDOW_MS, Window};
use super::event_loop::TICK_MS;
use crate::server::Core;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::sched::WorkerHandle;

/// Time between two looks at the memory of the process.
const WATCH_MEMORY_MS: u64 = 100;
/// Time between two looks for idle clients.
const IDLE_CLIENTS_MS: u64 = 1000;
/// Rounds of the sweep for expired keys in a tick: bounds its time to about a quarter of it.
const SWEEP_ROUNDS: usize = 64;

pub struct Chief {
    last_tick_ms: u64,
    last_watch_ms: u64,
    last_idle_ms: u64,
    policy: Policy,
    /// When the present window began, in nanoseconds, and what each loop had worked and the server had executed then.
    window_start: u64,
    worked: Vec<u64>,
    commands: u64,
    /// The threads of the other loops.
    pub others: Vec<Box<dyn WorkerHandle>>,
}

impl Chief {
    pub fn new(now_ms: u64) -> Chief {
        Chief {
            last_tick_ms: now_ms,
            last_watch_ms: now_ms,
            last_idle_ms: now_ms,
            policy: Policy::default(),
            window_start: 0,
            worked: Vec::new(),
            commands: 0,
            others: Vec::new(),
        }
    }

    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_tick_ms) >= TICK_MS
    }

    /// Work that is due from time to time.
    pub fn tick(&mut self, core: &mut Core, now_ms: u64) {
        self.last_tick_ms = now_ms;
        core.look_at_signals();
        core.look_after_saves();
        core.end_waits();
        core.look_at_pause();
        core.end_pause();
        for db in &mut core.dbs.all {
            db.sweep(SWEEP_ROUNDS);
            for _ in 0..128 {
                if !db.resize_step() {
                    break;
                }
            }
        }
        core.pass_on_changes(None);
        core.finish(None, 0);
        core.ask_expired(now_ms);
        core.tend_write_back();
        core.build_filter();
        if now_ms.saturating_sub(self.last_watch_ms) >= WATCH_MEMORY_MS {
            self.last_watch_ms = now_ms;
            core.watch_memory();
        }
        if now_ms.saturating_sub(self.last_idle_ms) >= IDLE_CLIENTS_MS {
            self.last_idle_ms = now_ms;
            core.server.close_idle(now_ms as i64);
        }
    }

    /// Whether another loop is to start (true), or all others are to end (false).
    pub fn look_at_load(&mut self, crew: &Crew, core: &Arc<Mutex<Core>>, now: u64) -> Option<bool> {
        let length = now.saturating_sub(self.window_start);
        if length < WINDOW_MS * 1_000_000 {
            return None;
        }
        if crew.wanted() == 1 && !self.others.is_empty() {
            self.remove_ended(crew);
        }
        let posts = crew.posts();
        let worked: Vec<u64> = posts.iter().map(|post| post.worked.load(Ordering::Relaxed)).collect();
        let (commands, clients, limits) = {
            let server = &core.lock().server;
            (server.stats.commands, server.clients.len(), server.config.limits)
        };
        let share = |index: usize| {
            let before = self.worked.get(index).copied().unwrap_or(worked[index]);
            worked[index].saturating_sub(before) as f64 / length as f64
        };
        let shares: Vec<f64> = (0..worked.len()).map(share).collect();
        let window = Window {
            loops: worked.len(),
            loops_min: limits.loops_min,
            loops_max: limits.loops_max,
            clients,
            least_worked: shares.iter().copied().fold(f64::MAX, f64::min),
            worked: shares.iter().sum(),
            commands: commands.saturating_sub(self.commands),
        };
        let is_first = self.window_start == 0;
        (self.window_start, self.worked, self.commands) = (now, worked, commands);
        if is_first || !crew.is_settled() || (crew.wanted() == 1) != self.others.is_empty() {
            return None;
        }
        match self.policy.decide(window) {
            Decision::Stay => None,
            Decision::Grow => Some(true),
            Decision::Rest => (window.loops > 1).then_some(false),
        }
    }

    /// Joins the threads of the loops that have ended, if all have.
    pub fn remove_ended(&mut self, crew: &Crew) {
        if crew.posts().iter().skip(1).all(|post| post.has_ended()) {
            self.others.clear();
            crew.remove_ended();
        }
    }
}
