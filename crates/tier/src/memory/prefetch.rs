//! The prefetchers: fetch the pages that scans will read (`pool/scans.rs`), and single pages that an operation is known to need
//! soon, so that it does not wait for them one after the other.

use crate::memory::pool::Pool;
use std::sync::Arc;
use terrace_io::sched::{Event, Step, Worker};

/// Maximum number of pages that a prefetcher fetches with one request: a megabyte.
pub const PREFETCH_MAX: usize = 64;

pub struct Prefetcher(pub Arc<Pool>);

impl Worker for Prefetcher {
    fn name(&self) -> &'static str {
        "prefetcher"
    }
    fn step(&mut self) -> Step {
        match self.0.scans.take() {
            Some(stretch) => {
                self.0.prefetch(stretch);
                Step::Worked
            }
            None => Step::Idle,
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.scans.wanted.clone()
    }
}
