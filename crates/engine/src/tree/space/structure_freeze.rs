//! Freezes the structure of a space for a walk over it.
//!
//! A thread that takes pages or gives them back is inside from before the first latch until the mini-transaction is committed ([`StructureFreeze::enter`]).
//! A walk during which no thread was inside has seen one structure ([`StructureFreeze::stamp`]); where changes don't stop, [`StructureFreeze::close`] waits for
//! those inside and keeps others out. They wait with no latch held, so readers and changes of entries in place continue, and the walk
//! finds every page; what only tidies up is put off instead.
//!
//! A thread that has closed it is let in itself: in the simulation background workers run inside the waits of others, so
//! within the walk.

use crate::error::tree::Result;
use std::sync::Arc;
use std::thread::ThreadId;
use terrace_io::cancel;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Sched};
use terrace_tier::memory::lower_tiers::ReadError;

#[derive(Default)]
pub struct StructureFreeze(Mutex<FreezeState, { Mutexes::SpacePages as u8 }>);

#[derive(Default)]
struct FreezeState {
    inside: u32,
    entered: u64,
    closed: Option<Arc<FrozenBy>>,
}

struct FrozenBy {
    thread: ThreadId,
    /// A change has ended, or changes may begin again.
    moved: Event,
}

/// Changes the structure as long as it lives. No thread enters twice: one that closes it waits for the first to leave.
pub struct Inside<'s>(&'s StructureFreeze);

/// No other change begins as long as it lives.
pub struct Closed<'s>(&'s StructureFreeze, Arc<FrozenBy>);

/// Changes that had begun and not ended at that moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    inside: u32,
    entered: u64,
}

impl StructureFreeze {
    /// Waits while a walk keeps it closed. No latch is held.
    pub fn enter(&self, sched: &dyn Sched) -> Result<Inside<'_>> {
        loop {
            let (by, seen) = {
                let mut state = self.0.lock();
                match &state.closed {
                    Some(by) if by.thread != std::thread::current().id() => (by.clone(), by.moved.ticket()),
                    _ => {
                        state.inside += 1;
                        state.entered += 1;
                        return Ok(Inside(self));
                    }
                }
            };
            wait(&by, seen, sched)?;
        }
    }

    /// Whether who can put a change off should.
    pub fn is_closed(&self) -> bool {
        self.0.lock().closed.is_some()
    }

    pub fn stamp(&self) -> Stamp {
        let FreezeState { inside, entered, .. } = *self.0.lock();
        Stamp { inside, entered }
    }

    /// Whether nothing has changed since, nor was about to.
    pub fn was_still(&self, since: Stamp) -> bool {
        since.inside == 0 && self.stamp().entered == since.entered
    }

    /// Waits for another walk, and for changes that have begun.
    pub fn close(&self, sched: &dyn Sched) -> Result<Closed<'_>> {
        let by = Arc::new(FrozenBy { thread: std::thread::current().id(), moved: Event::new() });
        let closed = loop {
            let (other, seen) = {
                let mut state = self.0.lock();
                match &state.closed {
                    Some(other) => (other.clone(), other.moved.ticket()),
                    None => {
                        state.closed = Some(by.clone());
                        break Closed(self, by);
                    }
                }
            };
            wait(&other, seen, sched)?;
        };
        loop {
            let seen = closed.1.moved.ticket();
            if self.0.lock().inside == 0 {
                return Ok(closed);
            }
            wait(&closed.1, seen, sched)?;
        }
    }
}

fn wait(by: &FrozenBy, seen: terrace_io::sched::Ticket, sched: &dyn Sched) -> Result<()> {
    if cancel::asked() {
        return Err(ReadError::Cancelled.into());
    }
    sched.wait(&by.moved, seen, Some(cancel::LOOK));
    Ok(())
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let by = {
            let mut state = self.0.0.lock();
            state.inside -= 1;
            state.closed.clone()
        };
        if let Some(by) = by {
            by.moved.notify();
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.0.lock().closed = None;
        self.1.moved.notify();
    }
}
