//! The background pass: reads every page that has redo, so that the checkpoint can go on.
//!
//! Pages that were freed and forgotten (`terrace_tier::volume::flush::forget`) have redo, but are not needed: they stay
//! forgotten. They gave up their room when they were freed, and there may be none for them any more.

use super::pending::Pending;
use crate::planted;
use crate::storage::trouble;
use crate::tree::space;
use std::sync::Arc;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Step, Worker};
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::pages::Pages;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::PageId;
use terrace_tier::read::PendingRedo;

/// Rest after a round in which no page could be read, in nanoseconds: doubled up to the second one.
const REST_MIN: u64 = 50_000_000;
const REST_MAX: u64 = 5_000_000_000;

/// The page whose redo could not be applied in the last round in which no page's could, and why.
#[derive(Default)]
pub struct Trouble(Mutex<Option<(PageId, ReadError)>, { Mutexes::Pending as u8 }>);

impl Trouble {
    /// For people; None: nothing waits for that page any more.
    pub fn why(&self, pending: &Pending) -> Option<trouble::Trouble> {
        let (_, what) = self.0.lock().clone().filter(|(id, _)| pending.has(*id))?;
        let text = format!("the checkpoint waits for redo that can't be applied: {what}");
        Some(match what {
            ReadError::Store { .. } | ReadError::NoFrame { .. } | ReadError::Cancelled => {
                trouble::Trouble::degraded("redo_trouble", text)
            }
            _ => {
                let todo = "the log fills up until this page can be read; check the device it is on, restart, or put the volume back from a copy";
                trouble::Trouble::act("redo_trouble", format!("{text}; {todo}"))
            }
        })
    }
}

pub struct RedoWorker {
    pending: Arc<Pending>,
    pages: Arc<Pages>,
    trouble: Arc<Trouble>,
    wake: Arc<Event>,
    /// Pages in a row that could not be read.
    failed: u64,
    rest: u64,
}

impl RedoWorker {
    pub fn new(pending: Arc<Pending>, pages: Arc<Pages>) -> RedoWorker {
        let (trouble, wake) = Default::default();
        RedoWorker { pending, pages, trouble, wake, failed: 0, rest: REST_MIN }
    }

    /// The same, which says there what is wrong.
    pub fn telling(self, trouble: Arc<Trouble>) -> RedoWorker {
        RedoWorker { trouble, ..self }
    }
}

/// Sees to it that nothing waits for the page any more: its redo is applied, or needless. After an error it cannot be read now. May do
/// I/O and wait; no latch is held.
pub fn finish(pending: &Pending, pages: &Pages, id: PageId) -> Result<(), ReadError> {
    // A header that cannot be read says nothing of the page.
    let is_free = || space::is_free_for_good(pages, id).unwrap_or(false);
    let is_needless = !pages.has_place(id) && is_free() && !planted::FREED_BROUGHT_BACK.on();
    if !is_needless {
        pages.load(id, Access::Internal)?;
    }
    pending.done_with(id);
    Ok(())
}

impl Worker for RedoWorker {
    fn name(&self) -> &'static str {
        "redo"
    }

    fn step(&mut self) -> Step {
        let Some(id) = self.pending.next_page() else { return Step::Idle };
        let Err(error) = finish(&self.pending, &self.pages, id) else {
            (self.failed, self.rest) = (0, REST_MIN);
            return Step::Worked;
        };
        // The store may be dead, or the page damaged: it waits, and so does the checkpoint.
        self.pending.put_back(id);
        self.failed += 1;
        if self.failed < self.pending.pages() as u64 && self.failed < 16 {
            return Step::Worked;
        }
        *self.trouble.0.lock() = Some((id, error));
        self.failed = 0;
        self.rest = (2 * self.rest).min(REST_MAX);
        Step::IdleFor(self.rest)
    }

    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
