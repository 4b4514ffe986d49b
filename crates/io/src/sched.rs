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
use parking_lot_core::{DEFAULT_UNPARK_TOKEN, FilterOp, ParkResult, ParkToken};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Something that waiters can wait for. Cheap to notify when nobody waits.
///
/// Those who are woken run at once, side by side: no lock is handed from one to the next.
#[derive(Default)]
pub struct Event {
    tickets: AtomicU64,
    sleepers: AtomicU32,
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
        if self.move_on() {
            // SAFETY: the key is this event's own memory, and no callback is given.
            unsafe { parking_lot_core::unpark_all(self.key(), DEFAULT_UNPARK_TOKEN) };
        }
    }

    /// What waiters wait for has come to `reached`: wakes those who wait for no more than that
    /// ([`Sched::wait_for`]), and one of the others, who may have to go on with the work.
    pub fn notify_until(&self, reached: u64) {
        if !self.move_on() {
            return;
        }
        let mut one = false;
        let wake = |ParkToken(wanted): ParkToken| {
            if wanted as u64 <= reached || !std::mem::replace(&mut one, true) {
                FilterOp::Unpark
            } else {
                FilterOp::Skip
            }
        };
        // SAFETY: the key is this event's own memory; the callbacks neither panic nor park.
        unsafe { parking_lot_core::unpark_filter(self.key(), wake, |_| DEFAULT_UNPARK_TOKEN) };
    }

    /// True if somebody may have to be woken. A sleeper counts itself and then looks at the ticket again, so either
    /// it sees the new ticket or it is seen here.
    fn move_on(&self) -> bool {
        self.tickets.fetch_add(1, Ordering::SeqCst);
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self.tickets) as usize
    }

    /// Parks the thread until the event moves on from `seen` and wakes it, for something that has come to `wanted`. For
    /// `Sched` implementations.
    pub fn park(&self, seen: Ticket, timeout: Option<std::time::Duration>, wanted: u64) -> Woken {
        let deadline = timeout.map(|timeout| std::time::Instant::now() + timeout);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the key is this event's own memory; the callbacks neither panic nor park.
        let result = unsafe {
            parking_lot_core::park(
                self.key(),
                || !self.moved_on(seen),
                || {},
                |_, _| {},
                ParkToken(wanted as usize),
                deadline,
            )
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        match result {
            ParkResult::TimedOut if !self.moved_on(seen) => Woken::TimedOut,
            _ => Woken::Notified,
        }
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
    /// As [`Sched::wait`], for something that has come to `wanted`: [`Event::notify_until`] with less need not end the wait.
    fn wait_for(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>, wanted: u64) -> Woken {
        let _ = wanted;
        self.wait(event, seen, timeout)
    }
    fn spawn(&self, worker: Box<dyn Worker>) -> Box<dyn WorkerHandle>;
    /// A named point where tests may interleave; does nothing on real threads.
    fn point(&self, name: &'static str) {
        let _ = name;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Waiters without end: a lost wake-up would hang, so the test has a time limit.
    fn within_minutes(work: impl FnOnce() + Send + 'static) {
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            work();
            let _ = done.send(());
        });
        ended.recv_timeout(Duration::from_secs(300)).expect("a waiter was never woken");
    }

    #[test]
    fn whoever_waits_for_no_more_than_what_is_reached_is_woken() {
        within_minutes(|| {
            let (event, reached) = (Event::new(), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for wanted in 1..=64u64 {
                    let (event, reached) = (&event, &reached);
                    scope.spawn(move || {
                        loop {
                            let seen = event.ticket();
                            if reached.load(Ordering::SeqCst) >= wanted {
                                return;
                            }
                            event.park(seen, None, wanted);
                        }
                    });
                }
                for _ in 0..64 {
                    let now = reached.fetch_add(1, Ordering::SeqCst) + 1;
                    event.notify_until(now);
                }
            });
        });
    }

    /// As the log does it: one of those who wait makes the next step for all.
    #[test]
    fn of_those_who_need_more_one_goes_on() {
        within_minutes(|| {
            let (event, reached, busy) = (Event::new(), AtomicU64::new(0), AtomicU32::new(0));
            std::thread::scope(|scope| {
                for thread in 0..32u64 {
                    let (event, reached, busy) = (&event, &reached, &busy);
                    scope.spawn(move || {
                        for round in 0..200 {
                            let wanted = reached.load(Ordering::SeqCst) + 1 + (thread + round) % 5;
                            loop {
                                let seen = event.ticket();
                                if reached.load(Ordering::SeqCst) >= wanted {
                                    break;
                                }
                                if busy.swap(1, Ordering::SeqCst) == 0 {
                                    let now = reached.fetch_add(1, Ordering::SeqCst) + 1;
                                    busy.store(0, Ordering::SeqCst);
                                    event.notify_until(now);
                                } else {
                                    event.park(seen, None, wanted);
                                }
                            }
                        }
                    });
                }
            });
        });
    }

    #[test]
    fn a_wait_has_an_end() {
        let event = Event::new();
        assert_eq!(event.park(event.ticket(), Some(Duration::from_millis(5)), 0), Woken::TimedOut);
        let seen = event.ticket();
        event.notify();
        assert_eq!(event.park(seen, Some(Duration::from_secs(60)), 9), Woken::Notified);
    }
}
