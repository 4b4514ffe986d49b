//! One thread for everything: a wait runs other workers' steps, chosen by the seed.

use crate::clock::SimClock;
use crate::random::SimRandom;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::clock::{Clock, Nanos};
use terrace_io::random::Random;
use terrace_io::sched::{Event, Sched, Step, Ticket, Woken, Worker, WorkerHandle};

struct Slot {
    id: u64,
    name: &'static str,
    wake: Arc<Event>,
    /// None while its step is under way further up this stack.
    worker: Option<Box<dyn Worker>>,
    /// Idle since it saw this ticket, perhaps until this time.
    idle: Option<(Ticket, Option<Nanos>)>,
    gone: Arc<AtomicBool>,
}

type Hook = Box<dyn FnMut() + Send>;

pub struct SimSched {
    seed: u64,
    clock: Arc<SimClock>,
    random: SimRandom,
    slots: Arc<Mutex<Vec<Slot>>>,
    next: Mutex<u64>,
    hooks: Mutex<HashMap<&'static str, Hook>>,
    depth: Mutex<usize>,
    turns_max: AtomicU64,
    one_at_a_time: Mutex<HashSet<&'static str>>,
}

/// Waits nested deeper than this mean that workers wait for each other in a circle.
const DEPTH_MAX: usize = 64;
/// A wait without an end during which others took this many turns means that they get nowhere.
const TURNS_MAX: u64 = 2_000_000;

impl SimSched {
    pub(crate) fn new(seed: u64, clock: Arc<SimClock>) -> SimSched {
        SimSched {
            seed,
            clock,
            random: SimRandom::new(seed ^ 0x5C4E_D000),
            slots: Arc::default(),
            next: Mutex::new(0),
            hooks: Mutex::default(),
            depth: Mutex::new(0),
            turns_max: AtomicU64::new(TURNS_MAX),
            one_at_a_time: Mutex::default(),
        }
    }

    /// A wait during which others took more turns than this panics.
    pub fn set_turns_max(&self, turns: u64) {
        self.turns_max.store(turns, Ordering::SeqCst);
    }

    /// From now on no worker of this name begins a step while another is in its own. For those who wait for what the other holds: that one waits
    /// further up this stack, and would get on only when they have ended.
    pub fn one_at_a_time(&self, name: &'static str) {
        self.one_at_a_time.lock().insert(name);
    }

    /// Whether the worker may begin a step.
    fn may_begin(&self, slots: &[Slot], slot: &Slot) -> bool {
        let is_under_way = |other: &Slot| other.name == slot.name && other.worker.is_none();
        slot.worker.is_some()
            && !(self.one_at_a_time.lock().contains(slot.name) && slots.iter().any(is_under_way))
    }

    /// Runs up to `max` steps of workers that have something to do. Returns how many ran.
    pub fn run_some(&self, max: usize) -> usize {
        (0..max).take_while(|_| self.run_one().is_some()).count()
    }

    /// Sets what happens when the engine passes a named point.
    pub fn hook(&self, name: &'static str, hook: Hook) {
        self.hooks.lock().insert(name, hook);
    }
    pub fn unhook(&self, name: &'static str) {
        self.hooks.lock().remove(name);
    }

    /// Forgets all workers: the machine crashed.
    pub fn drop_workers(&self) {
        let slots = std::mem::take(&mut *self.slots.lock());
        drop(slots);
    }

    /// Runs one step of a worker that has something to do. Returns its name.
    fn run_one(&self) -> Option<&'static str> {
        let (id, mut worker, ticket) = {
            let mut slots = self.slots.lock();
            let now = self.clock.now();
            slots.retain(|s| s.worker.is_none() || !s.gone.load(Ordering::SeqCst));
            let ready: Vec<usize> = (0..slots.len())
                .filter(|i| {
                    let slot = &slots[*i];
                    self.may_begin(&slots, slot)
                        && match slot.idle {
                            None => true,
                            Some((seen, until)) => {
                                slot.wake.moved_on(seen) || until.is_some_and(|u| u <= now)
                            }
                        }
                })
                .collect();
            if ready.is_empty() {
                return None;
            }
            let slot = &mut slots[ready[self.random.below(ready.len() as u64) as usize]];
            let ticket = slot.wake.ticket();
            let worker = slot.worker.take()?;
            (slot.id, worker, ticket)
        };
        let name = worker.name();
        let step = {
            let _shield = terrace_io::cancel::shield();
            terrace_io::disk::hedge::shield(|| worker.step())
        };
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.iter_mut().find(|s| s.id == id) {
            slot.idle = match step {
                Step::Worked => None,
                Step::Idle => Some((ticket, None)),
                Step::IdleFor(nanos) => Some((ticket, Some(self.clock.now() + nanos))),
            };
            slot.worker = Some(worker);
        }
        Some(name)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let slots = self.slots.lock();
        let may_begin = slots.iter().filter(|slot| self.may_begin(&slots, slot));
        may_begin.filter_map(|slot| slot.idle.and_then(|(_, until)| until)).min()
    }
}

impl Sched for SimSched {
    fn wait(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>) -> Woken {
        let deadline = timeout.map(|t| self.clock.now().saturating_add(t));
        {
            let mut depth = self.depth.lock();
            *depth += 1;
            assert!(*depth < DEPTH_MAX, "simulation: waits nested {DEPTH_MAX} deep, seed {}", self.seed);
        }
        let mut turns: BTreeMap<&'static str, u64> = BTreeMap::new();
        let woken = loop {
            if event.moved_on(seen) {
                break Woken::Notified;
            }
            if deadline.is_some_and(|d| d <= self.clock.now()) {
                break Woken::TimedOut;
            }
            if let Some(name) = self.run_one() {
                *turns.entry(name).or_default() += 1;
                let max = self.turns_max.load(Ordering::SeqCst);
                assert!(
                    turns.values().sum::<u64>() <= max,
                    "livelock in simulation, seed {}: {max} turns did not end a wait; turns: {turns:?}",
                    self.seed
                );
                // Time passes while others work.
                self.clock.advance(1_000 + self.random.below(20_000));
                continue;
            }
            match [self.next_deadline(), deadline].into_iter().flatten().min() {
                Some(next) => self.clock.advance_to(next),
                None => {
                    let names: Vec<_> =
                        self.slots.lock().iter().map(|s| (s.name, s.worker.is_none())).collect();
                    panic!(
                        "deadlock in simulation, seed {}: nobody can run; (worker, waits itself): {names:?}",
                        self.seed
                    )
                }
            }
        };
        *self.depth.lock() -= 1;
        woken
    }

    fn spawn(&self, worker: Box<dyn Worker>) -> Box<dyn WorkerHandle> {
        let gone = Arc::new(AtomicBool::new(false));
        let mut next = self.next.lock();
        *next += 1;
        self.slots.lock().push(Slot {
            id: *next,
            name: worker.name(),
            wake: worker.wake_event(),
            worker: Some(worker),
            idle: None,
            gone: gone.clone(),
        });
        Box::new(Handle { gone, slots: self.slots.clone(), id: *next })
    }

    fn point(&self, name: &'static str) {
        let hook = self.hooks.lock().remove(name);
        if let Some(mut hook) = hook {
            hook();
            self.hooks.lock().entry(name).or_insert(hook);
        }
    }
}

struct Handle {
    gone: Arc<AtomicBool>,
    slots: Arc<Mutex<Vec<Slot>>>,
    id: u64,
}
impl WorkerHandle for Handle {}
impl Drop for Handle {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
        let mut slots = self.slots.lock();
        let at = slots.iter().position(|s| s.id == self.id && s.worker.is_some());
        let slot = at.map(|i| slots.remove(i));
        drop(slots);
        drop(slot);
    }
}
