//! The background pass: reads every page that has redo, so that the checkpoint can go on.

use super::pending::Pending;
use std::sync::Arc;
use terrace_io::sched::{Event, Step, Worker};
use terrace_tier::pages::Pages;
use terrace_tier::pool::Access;

/// Rest after a round in which no page could be read, in nanoseconds: doubled up to the second one.
const REST_MIN: u64 = 50_000_000;
const REST_MAX: u64 = 5_000_000_000;

pub struct RedoWorker {
    pending: Arc<Pending>,
    pages: Arc<Pages>,
    wake: Arc<Event>,
    /// Pages in a row that could not be read.
    failed: u64,
    rest: u64,
}

impl RedoWorker {
    pub fn new(pending: Arc<Pending>, pages: Arc<Pages>) -> RedoWorker {
        RedoWorker { pending, pages, wake: Arc::new(Event::new()), failed: 0, rest: REST_MIN }
    }
}

impl Worker for RedoWorker {
    fn name(&self) -> &'static str {
        "redo"
    }

    fn step(&mut self) -> Step {
        let Some(id) = self.pending.next_page() else { return Step::Idle };
        if self.pages.load(id, Access::Internal).is_ok() {
            self.pending.in_memory(id);
            (self.failed, self.rest) = (0, REST_MIN);
            return Step::Worked;
        }
        // The store may be dead, or the page damaged: it waits, and so does the checkpoint.
        self.pending.put_back(id);
        self.failed += 1;
        if self.failed < self.pending.pages() as u64 && self.failed < 16 {
            return Step::Worked;
        }
        self.failed = 0;
        self.rest = (2 * self.rest).min(REST_MAX);
        Step::IdleFor(self.rest)
    }

    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
