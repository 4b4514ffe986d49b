//! The background writer: writes the log when much of it waits, once a second, and for those who want to be
//! called when their commit is durable.
//!
//! Commits that wait for their durability write the log themselves and find little left here. Those that
//! don't (a relaxed setting, a bulk load) would else stop and write whenever the memory for waiting
//! records is full; and they are durable within about a second.

use super::Log;
use crate::Redo;
use std::sync::Arc;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker};

/// After how long all is made durable unasked, in nanoseconds.
const OLD: Nanos = 1_000_000_000;

pub struct BackgroundWriter {
    log: Arc<Log>,
    /// When that was last done, or there was nothing to do.
    looked: Nanos,
}

impl BackgroundWriter {
    pub fn new(log: Arc<Log>) -> BackgroundWriter {
        let looked = log.world.clock.now();
        BackgroundWriter { log, looked }
    }
}

impl Worker for BackgroundWriter {
    fn name(&self) -> &'static str {
        "log"
    }

    fn step(&mut self) -> Step {
        let log = &self.log;
        if log.keep_promises() {
            return Step::Worked;
        }
        let now = log.world.clock.now();
        let much = log.order.lock().waiting > log.waiting_max / super::WRITE_AT;
        let old = now >= self.looked + OLD;
        let upto = log.appended();
        if much || old {
            self.looked = now;
        }
        if (much || old) && log.durable() < upto {
            return match log.make_durable(upto) {
                Ok(()) => Step::Worked,
                Err(_) => Step::Idle, // the log has stopped
            };
        }
        Step::IdleFor((self.looked + OLD).saturating_sub(now).max(1))
    }

    fn wake_event(&self) -> Arc<Event> {
        self.log.much_waits.clone()
    }
}
