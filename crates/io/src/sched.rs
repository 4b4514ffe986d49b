//! Waiting, waking and background workers.
//!
//! A waiter reads an event's ticket ([`Event::ticket`]), checks its condition, and if it does not
//! hold, waits ([`Sched::wait`]) until the ticket has moved on. So no wake-up is lost: whoever makes
//! the condition true calls [`Event::notify`] afterwards.
//!
//! On real threads a wait parks the thread. In the simulation there is one thread, and a wait runs
//! other workers' steps, chosen by the seed, until the event is notified. Hence the rule: nobody
//! waits while holding a latch or a mutex that a worker's step may need.

use crate::clock::Nanos;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Something that waiters can wait for. Cheap to notify when nobody waits.
#[derive(Default)]
pub struct Event {
    tickets: AtomicU64,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

/// The state of an event when the waiter last looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u64);

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    Notified,
    TimedOut,
}

impl Event {
    pub fn new() -> Event {
        Event::default()
    }

    /// Read before the condition is checked.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.load(Ordering::SeqCst))
    }

    pub fn moved_on(&self, seen: Ticket) -> bool {
        self.tickets.load(Ordering::SeqCst) != seen.0
    }

    /// Wakes all who wait with an older ticket.
    pub fn notify(&self) {
        self.tickets.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }

    /// Parks the thread until the event moves on from `seen`. For `Sched` implementations.
    pub fn park(&self, seen: Ticket, timeout: Option<std::time::Duration>) -> Woken {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock();
        let mut woken = Woken::Notified;
        while !self.moved_on(seen) {
            match timeout {
                None => self.wake.wait(&mut guard),
                Some(limit) => {
                    if self.wake.wait_for(&mut guard, limit).timed_out() {
                        woken = if self.moved_on(seen) { Woken::Notified } else { Woken::TimedOut };
                        break;
                    }
                }
            }
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        woken
    }
}

/// What a worker's step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Call again at once.
    Worked,
    /// Nothing to do until the worker's event is notified.
    Idle,
    /// Nothing to do until the event is notified or so many nanoseconds have passed.
    IdleFor(Nanos),
}

/// A background worker: `step` does a bounded piece of work and returns.
pub trait Worker: Send {
    fn name(&self) -> &'static str;
    fn step(&mut self) -> Step;
    /// Notified by whoever gives the worker something to do.
    fn wake_event(&self) -> Arc<Event>;
}

/// Stops and joins its worker when dropped (or, in the simulation, unregisters it).
pub trait WorkerHandle: Send + Sync {}

pub trait Sched: Send + Sync {
    /// Waits until `event` has moved on from `seen`, at most `timeout` nanoseconds.
    fn wait(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>) -> Woken;
    fn spawn(&self, worker: Box<dyn Worker>) -> Box<dyn WorkerHandle>;
    /// A named point where tests may interleave; does nothing on real threads.
    fn point(&self, name: &'static str) {
        let _ = name;
    }
}
