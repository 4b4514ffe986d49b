//! Copying blocks to flash when they have come, so that they are there after a crash. A block that flash has already is not written again
//! when it is evicted.
//!
//! Only while flash has free segments: then a block takes no other's place. Later, blocks are written when they are evicted, if they were
//! used more than once, and at a clean stop. The saver holds a lease on what it copies.

use super::Files;
use crate::catalogue::Victim;
use crate::flash::{Flash, Room};
use std::sync::Arc;
use terrace::flash::Offered;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker};

/// Bytes that one step copies.
const STEP_BYTES: u64 = 4 << 20;
/// Between two looks, in nanoseconds: at what has come, and at a queue that is long.
const LOOK: Nanos = 50_000_000;
const QUEUE_LOOK: Nanos = 2_000_000;

pub(super) struct Saver {
    files: Arc<Files>,
    wake: Arc<Event>,
}

impl Saver {
    pub fn new(files: Arc<Files>) -> Saver {
        Saver { files, wake: Arc::new(Event::new()) }
    }
}

impl Files {
    /// Copies a block, if the file is this node's; waits while flash's queue is full, until `until`. False: it had no room until then.
    pub(crate) fn save(&self, flash: &Flash, victim: &Victim, until: Nanos) -> bool {
        if !self.keeps(&victim.path) {
            return true;
        }
        let never = Event::new();
        while flash.evicted(victim, self.arena.bytes(victim.extent)) == Offered::Dropped {
            if self.world.clock.now() >= until {
                return false;
            }
            if self.is_stopping() {
                // The worker that packs has ended.
                flash.pack_all(until);
            }
            self.world.sched.wait(&never, never.ticket(), Some(QUEUE_LOOK));
        }
        true
    }
}

impl Worker for Saver {
    fn name(&self) -> &'static str {
        "files-save"
    }

    fn step(&mut self) -> Step {
        let files = &self.files;
        let Some(flash) = &files.flash else { return Step::Idle };
        match flash.has_room() {
            Room::Now => {}
            Room::Later => return Step::IdleFor(QUEUE_LOOK),
            Room::None => return Step::IdleFor(LOOK),
        }
        let taken = files.tell(|catalogue, _| catalogue.take_unsaved(STEP_BYTES));
        if taken.is_empty() {
            return Step::IdleFor(LOOK);
        }
        for (at, (block, victim)) in taken.iter().enumerate() {
            if files.save(flash, victim, files.world.clock.now() + LOOK) {
                files.tell(|catalogue, _| catalogue.release(*block));
                continue;
            }
            // A device that is slow for a while: memory may hold these blocks for long, so they are not left to their eviction.
            let left = taken[at..].iter().map(|(block, _)| *block);
            files.tell(|catalogue, _| catalogue.put_back_unsaved(left));
            return Step::IdleFor(LOOK);
        }
        Step::Worked
    }

    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
