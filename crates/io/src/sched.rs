//! Waiting, waking and background workers.
//!
//! A waiter reads an event's ticket ([`Event::ticket`]), checks its condition, and if it does not
//! hold, waits ([`Sched::wait`]) until the ticket has moved on. So no wake-up is lost: the thread that makes
//! the condition true calls [`Event::notify`] afterwards.
//!
//! On real threads a wait parks the thread. In the simulation there is one thread, and a wait runs
//! other workers' steps, chosen by the seed, until the event is notified. Hence the rule: a thread does not
//! wait while holding a latch or a mutex that a worker's step may need.

mod futex;

use crate::clock::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Something that waiters can wait for. Cheap to notify when no thread waits.
///
/// Those who are woken run at once, side by side: no lock is handed from one to the next, and however many they are, one
/// system call wakes them.
#[derive(Default)]
pub struct Event {
    tickets: AtomicU32,
    sleepers: AtomicU32,
}

/// The state of an event when the waiter last looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u32);

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
            futex::wake(&self.tickets, u32::MAX, u32::MAX);
        }
    }

    /// Wakes one of those who wait with an older ticket, for one piece of work that any of them may do: all who wait must be alike, and who is awake
    /// looks for work again before it waits.
    pub fn notify_one(&self) {
        if self.move_on() {
            futex::wake(&self.tickets, u32::MAX, 1);
        }
    }

    /// Wakes all who wait with an older ticket, but of those in group `later` ([`Sched::wait_for`]) only one, who may have
    /// to go on with the work. Groups that are a multiple of 32 apart are one.
    pub fn notify_all_but(&self, later: u64) {
        if self.move_on() {
            futex::wake(&self.tickets, !bit(later), u32::MAX);
            futex::wake(&self.tickets, bit(later), 1);
        }
    }

    /// True if a thread may have to be woken. A sleeper counts itself and then looks at the ticket again, so either
    /// it sees the new ticket or it is seen here.
    fn move_on(&self) -> bool {
        self.tickets.fetch_add(1, Ordering::SeqCst);
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// Parks the thread until the event moves on from `seen` and wakes it, in a group of waiters. It may end sooner. For
    /// `Sched` implementations.
    pub fn park(&self, seen: Ticket, timeout: Option<std::time::Duration>, group: u64) -> Woken {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let timed_out = futex::wait(&self.tickets, seen.0, timeout, bit(group));
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        if timed_out && !self.moved_on(seen) { Woken::TimedOut } else { Woken::Notified }
    }
}

fn bit(group: u64) -> u32 {
    1 << (group % 32)
}

/// What a worker's step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Call again at once.
    Worked,
    /// Nothing to do until the worker's event is notified.
    Idle,
    /// Nothing to do until the event is notified or this many nanoseconds have passed.
    IdleFor(Nanos),
}

/// A background worker: `step` does a bounded piece of work and returns.
pub trait Worker: Send {
    fn name(&self) -> &'static str;
    fn step(&mut self) -> Step;
    /// Notified by the code that gives the worker something to do.
    fn wake_event(&self) -> Arc<Event>;
}

/// Stops and joins its worker when dropped (or, in the simulation, unregisters it).
pub trait WorkerHandle: Send + Sync {
    /// Asks the worker to stop after its step, and does not wait for that: for several that are to be dropped together.
    fn ask_to_stop(&self) {}
}

pub trait Sched: Send + Sync {
    /// Waits until `event` has moved on from `seen`, at most `timeout` nanoseconds.
    fn wait(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>) -> Woken;
    /// As [`Sched::wait`], in a group of waiters: [`Event::notify_all_but`] that group need not end the wait.
    fn wait_for(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>, group: u64) -> Woken {
        let _ = group;
        self.wait(event, seen, timeout)
    }
    /// For a start: panics where no worker can be had.
    fn spawn(&self, worker: Box<dyn Worker>) -> Box<dyn WorkerHandle>;
    /// As [`Sched::spawn`], for callers that can do without the worker: the system may have no thread left.
    fn try_spawn(&self, worker: Box<dyn Worker>) -> std::io::Result<Box<dyn WorkerHandle>> {
        Ok(self.spawn(worker))
    }
    /// What the operating system calls this process, as "process 4711 on db1".
    fn process(&self) -> String {
        "a simulation".into()
    }
    /// A named point where tests may interleave; does nothing on real threads.
    fn point(&self, name: &'static str) {
        let _ = name;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
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
    fn whoever_is_not_in_the_later_group_is_woken() {
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
                    event.notify_all_but(now + 1);
                }
            });
        });
    }

    #[test]
    fn of_the_later_group_one_is_woken_and_one_of_all() {
        within_minutes(|| {
            let (event, threads) = (Event::new(), std::sync::Mutex::new(Vec::new()));
            std::thread::scope(|scope| {
                for group in [7, 7, 7, 7, 8, 8, 8, 40] {
                    let (event, threads) = (&event, &threads);
                    let seen = event.ticket();
                    scope.spawn(move || {
                        // SAFETY: it has no conditions.
                        threads.lock().unwrap().push(unsafe { libc::gettid() });
                        event.park(seen, None, group);
                    });
                }
                let sleeps = |thread: &i32| {
                    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
                    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
                };
                let wait_for_sleepers = |count: u32| {
                    while event.sleepers.load(Ordering::SeqCst) != count
                        || threads.lock().unwrap().iter().filter(|thread| sleeps(thread)).count()
                            != count as usize
                    {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                };
                wait_for_sleepers(8);
                // Those of group 7, and one of group 8, which 40 is too.
                event.notify_all_but(8);
                wait_for_sleepers(3);
                std::thread::sleep(Duration::from_millis(20));
                wait_for_sleepers(3);
                event.notify_one();
                wait_for_sleepers(2);
                std::thread::sleep(Duration::from_millis(20));
                wait_for_sleepers(2);
                event.notify();
            });
        });
    }

    /// As prefetchers do it: each piece of work wakes one of those who are alike, and none is left lying.
    #[test]
    fn whoever_is_woken_alone_finds_the_work_of_all() {
        within_minutes(|| {
            const PIECES: u64 = 20_000;
            let (event, queue, done) = (Event::new(), AtomicU64::new(0), AtomicU64::new(0));
            let take =
                || queue.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        loop {
                            let seen = event.ticket();
                            if take() {
                                done.fetch_add(1, Ordering::SeqCst);
                            } else if done.load(Ordering::SeqCst) == PIECES {
                                event.notify();
                                return;
                            } else {
                                event.park(seen, None, 0);
                            }
                        }
                    });
                }
                for piece in 0..PIECES {
                    queue.fetch_add(1, Ordering::SeqCst);
                    event.notify_one();
                    // Now and then all of them sleep.
                    while piece % 100 == 0 && done.load(Ordering::SeqCst) <= piece {
                        std::thread::yield_now();
                    }
                }
            });
        });
    }

    /// As the log does it: one of those who wait makes the next step for all.
    #[test]
    fn of_those_who_need_more_one_goes_on() {
        within_minutes(|| {
            // Steps that were begun, and whether one is under way.
            let (event, reached, state) =
                (Event::new(), AtomicU64::new(0), std::sync::Mutex::new((0, false)));
            std::thread::scope(|scope| {
                for thread in 0..32u64 {
                    let (event, reached, state) = (&event, &reached, &state);
                    scope.spawn(move || {
                        for round in 0..200 {
                            let wanted = reached.load(Ordering::SeqCst) + 1 + (thread + round) % 5;
                            loop {
                                let seen = event.ticket();
                                if reached.load(Ordering::SeqCst) >= wanted {
                                    break;
                                }
                                let group = {
                                    let mut state = state.lock().unwrap();
                                    let group = if wanted <= state.0 { state.0 } else { state.0 + 1 };
                                    if !state.1 {
                                        *state = (state.0 + 1, true);
                                        None
                                    } else {
                                        Some(group)
                                    }
                                };
                                if let Some(group) = group {
                                    event.park(seen, None, group);
                                } else {
                                    let later = {
                                        let mut state = state.lock().unwrap();
                                        state.1 = false;
                                        reached.store(state.0, Ordering::SeqCst);
                                        state.0 + 1
                                    };
                                    event.notify_all_but(later);
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
