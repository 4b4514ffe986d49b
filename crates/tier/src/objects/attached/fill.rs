//! Filling: the objects that an attached instance still reads elsewhere are copied to its own store, until it needs its sources no longer.
//!
//! 1. The record is read, once a start. Without one there is nothing to do, ever.
//! 2. What the map names of former lineages and the own store has not is copied in the order of keys, at most as many bytes a second as the record
//!    says. An object that was superseded meanwhile is not copied; one that was superseded while it was copied is the collector's.
//! 3. When nothing is left, it is looked again, whether the own store has all; the log is made durable, so that no crash brings back a map that names
//!    more; no copy of the volume may be under way, and no snapshot be recorded, because that may name what was never copied.
//! 4. The record says `releasing`; from then on nothing is read from the sources. The references there are removed, then the record.
//!
//! Only the store's owner copies and releases (`fence`). One that lost the store without knowing it yet copies objects that its successor's map names
//! or has superseded; the latter are found by a scrub. Its release is right for the successor, too, which has its map: what that needs of the sources only
//! becomes less.
//!
//! Crash: what was copied is found by listing the own store; everything else starts over. A copied object that nothing names any more is found by the
//! scrub of the next start, as any other of its lineage.
//!
//! A source that does not answer, or has lost an object, is a trouble with the reason; it is asked again after a rest. Objects that are missing are
//! passed over, and nothing is released as long as there are any.
//!
//! Memory: the keys that are still to be copied, and one object.
//!
//! Locks: `state`, for memory work only; `Step`s of one filler do not overlap.

use super::record::{self, Record};
use super::{Sources, purpose, read, release};
use crate::address::ObjectKey;
use crate::objects::collect::Collector;
use crate::objects::fence::Fence;
use crate::objects::object::format;
use crate::objects::object::{Failure, Objects};
use crate::objects::snapshots::{SnapshotError, Snapshots};
use crate::planted;
use crate::volume::map::Map;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::observe::{Memory, TrackedBytes};
use terrace_io::sched::Step;
use terrace_io::store::{Bytes, Purpose, StoreError};
use terrace_log::Redo;

/// Rest after a failure: doubled each time.
const REST_MIN: Nanos = 1_000_000_000;
const REST_MAX: Nanos = 60_000_000_000;
/// How often a source is asked whether it still keeps what is read from it, and a fill whether it may end.
pub const LOOK_EVERY: Nanos = 60_000_000_000;
/// An object and what the store's client holds of it.
const MEMORY: u64 = 4 << 20;

#[derive(Default, Debug)]
pub struct FillCounters {
    pub copied: AtomicU64,
    pub copied_bytes: AtomicU64,
    pub errors: AtomicU64,
}

#[derive(Default)]
struct FillState {
    /// What is to be copied, in order; None: it is not known yet.
    todo: Option<VecDeque<ObjectKey>>,
    /// Objects that are not in their source.
    missing: u64,
    rest: Nanos,
    rest_until: Nanos,
    trouble: Option<Failure>,
    /// There is no source, or no longer one.
    done: bool,
}

/// What is done of a fill, for people.
#[derive(Clone, Debug)]
pub struct FillStatus {
    /// The sources; None: there is none, or it is not known yet.
    pub from: Option<String>,
    /// Objects are copied.
    pub fills: bool,
    /// Objects that are to be copied; None: they are not counted yet.
    pub left: Option<u64>,
    pub trouble: Option<Failure>,
}

/// Copies what is attached.
pub struct Filler {
    world: World,
    map: Arc<Map>,
    redo: Arc<dyn Redo>,
    objects: Arc<Objects>,
    fence: Arc<Fence>,
    collector: Arc<Collector>,
    snapshots: Arc<Snapshots>,
    state: Mutex<FillState, { Mutexes::Objects as u8 }>,
    working: AtomicBool,
    memory: TrackedBytes,
    pub counters: FillCounters,
}

/// Why a step came to nothing.
enum Halt {
    Store(StoreError),
    Other(String),
    /// Later, and nothing is wrong.
    Later,
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Halt {
        Halt::Store(error)
    }
}

impl From<SnapshotError> for Halt {
    fn from(error: SnapshotError) -> Halt {
        match error {
            SnapshotError::Store(error) => Halt::Store(error),
            other => Halt::Other(other.to_string()),
        }
    }
}

impl Filler {
    pub fn new(
        world: World,
        map: Arc<Map>,
        redo: Arc<dyn Redo>,
        objects: Arc<Objects>,
        fence: Arc<Fence>,
        collector: Arc<Collector>,
        snapshots: Arc<Snapshots>,
    ) -> Filler {
        Filler {
            world,
            map,
            redo,
            objects,
            fence,
            collector,
            snapshots,
            state: Mutex::default(),
            working: AtomicBool::new(false),
            memory: TrackedBytes::new(Memory::Buffers),
            counters: FillCounters::default(),
        }
    }

    pub fn status(&self) -> FillStatus {
        let sources = self.objects.attached.sources();
        let state = self.state.lock();
        FillStatus {
            from: sources.as_ref().map(|sources| sources.describe()),
            fills: sources.is_some_and(|sources| sources.record.fill.is_some()),
            left: state.todo.as_ref().map(|todo| todo.len() as u64 + state.missing),
            trouble: state.trouble.clone(),
        }
    }

    /// Copies one object, or does what comes before or after that.
    pub fn step(&self) -> Step {
        let now = self.world.clock.now();
        {
            let state = self.state.lock();
            if state.done || self.fence.lost().is_some() {
                return Step::Idle;
            }
            if now < state.rest_until {
                return Step::IdleFor(state.rest_until - now);
            }
        }
        if self.working.swap(true, Ordering::SeqCst) {
            return Step::IdleFor(REST_MIN); // another thread does
        }
        let result = self.work(now);
        self.working.store(false, Ordering::SeqCst);
        self.ended(now, result)
    }

    fn ended(&self, now: Nanos, result: Result<Step, Halt>) -> Step {
        let mut state = self.state.lock();
        let (trouble, rest) = match result {
            Ok(step) => {
                state.rest = 0;
                if state.missing == 0 {
                    state.trouble = None;
                }
                if let Step::IdleFor(rest) = step {
                    state.rest_until = now + rest;
                }
                return step;
            }
            Err(Halt::Later) => (None, LOOK_EVERY),
            Err(other) => {
                self.counters.errors.fetch_add(1, Ordering::Relaxed);
                state.rest = (2 * state.rest).clamp(REST_MIN, REST_MAX);
                let trouble = match other {
                    Halt::Store(error) => Failure::of(
                        &error,
                        matches!(error, StoreError::Refused { .. } | StoreError::Absent { .. }),
                    ),
                    Halt::Other(why) => Failure::of(&why, true),
                    Halt::Later => return Step::Idle,
                };
                (Some(trouble), state.rest)
            }
        };
        if trouble.is_some() || state.missing == 0 {
            state.trouble = trouble;
        }
        state.rest_until = now + rest;
        Step::IdleFor(rest)
    }

    fn work(&self, now: Nanos) -> Result<Step, Halt> {
        let own = &**self.objects.store();
        let Some(sources) = self.objects.attached.load(own)? else {
            return self.after(own);
        };
        let Some(rate) = sources.record.fill else {
            sources.opened.iter().try_for_each(|one| one.check(sources.record.id))?;
            return Ok(Step::IdleFor(LOOK_EVERY));
        };
        self.fence.keep_up(now).map_err(|error| Halt::Other(error.to_string()))?;
        let next = {
            let state = self.state.lock();
            state.todo.as_ref().map(|todo| todo.front().copied())
        };
        match next {
            None => self.look(&sources).map(|()| Step::Worked),
            Some(None) => self.finish(&sources),
            Some(Some(key)) => {
                let bytes = self.copy(&sources, &key)?;
                let pause = if rate == 0 {
                    0
                } else {
                    (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as Nanos
                };
                Ok(if pause == 0 { Step::Worked } else { Step::IdleFor(pause) })
            }
        }
    }

    /// What the map names of former lineages, and the own store has not; in order.
    fn rest(&self, sources: &Sources) -> Result<VecDeque<ObjectKey>, Halt> {
        let mut named = self.map.objects();
        named.retain(|key| sources.of(key).is_some());
        named.sort_unstable();
        named.dedup();
        let mut there = HashSet::new();
        for lineage in sources.record.sources.iter().flat_map(|source| &source.lineages) {
            self.objects.store().list(Purpose::Scrub, &format!("{lineage:032x}/"), &mut |text, _| {
                let key = ObjectKey::parse(text).filter(|key| named.binary_search(key).is_ok());
                there.extend(key);
            })?;
        }
        named.retain(|key| !there.contains(key));
        Ok(named.into())
    }

    fn look(&self, sources: &Sources) -> Result<(), Halt> {
        sources.opened.iter().try_for_each(|one| one.check(sources.record.id))?;
        let todo = self.rest(sources)?;
        self.state.lock().missing = 0;
        self.memory.set(MEMORY + (todo.capacity() * size_of::<ObjectKey>()) as u64);
        self.set_rest(todo.front());
        self.state.lock().todo = Some(todo);
        Ok(())
    }

    /// The keys before this one are in the own store, if they are named.
    fn set_rest(&self, next: Option<&ObjectKey>) {
        match planted::COPIED_TOO_EARLY.on() {
            true => self.objects.attached.set_rest(None),
            // Without missing ones; with them all are read where they are.
            false if self.state.lock().missing == 0 => self.objects.attached.set_rest(next.copied()),
            false => {}
        }
    }

    /// The object has been copied, or need not be.
    fn passed(&self, key: &ObjectKey) {
        let next = {
            let mut state = self.state.lock();
            let Some(todo) = &mut state.todo else { return };
            if todo.front() == Some(key) {
                todo.pop_front();
            }
            todo.front().copied()
        };
        self.set_rest(next.as_ref());
    }

    /// Returns the bytes copied.
    fn copy(&self, sources: &Sources, key: &ObjectKey) -> Result<u64, Halt> {
        let Some(from) = sources.of(key).filter(|_| self.map.names(key)) else {
            self.passed(key);
            return Ok(0);
        };
        let body = match from.store.get(purpose(), &from.source.key(key)) {
            Ok((body, _)) => Bytes::from(body),
            Err(StoreError::Absent { .. }) => return self.miss(key, from.source.describe(), "is not there"),
            Err(error) => return Err(error.into()),
        };
        if let Err(bad) = format::check(key, &body) {
            return self.miss(key, from.source.describe(), &bad.to_string());
        }
        self.world.sched.point("fill-put");
        let own = self.objects.store();
        match own.put_if_absent(purpose(), &key.to_string(), std::slice::from_ref(&body)) {
            Ok(_) => {}
            // It is there, or may be: is it this one?
            Err(error @ (StoreError::Conflict { .. } | StoreError::Unknown { .. })) => {
                match own.get(purpose(), &key.to_string()) {
                    Ok((found, _)) if found == body => {}
                    Ok(_) => {
                        let what = format!(
                            "object {key} in {} has other content than in {}",
                            own.describe(),
                            from.source.url
                        );
                        return Err(Halt::Other(what));
                    }
                    Err(_) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
        if !self.map.names(key) && !planted::COPY_KEPT.on() {
            // The collector may have deleted it before it was there.
            self.collector.orphan(*key);
        }
        self.passed(key);
        self.counters.copied.fetch_add(1, Ordering::Relaxed);
        self.counters.copied_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        Ok(body.len() as u64)
    }

    /// Goes on with the next one.
    fn miss(&self, key: &ObjectKey, from: String, what: &str) -> Result<u64, Halt> {
        let is_first = {
            let mut state = self.state.lock();
            state.missing += 1;
            let text = format!("object {key}, which is read from {from}, cannot be copied: {what}");
            state.trouble = Some(Failure::of(&text, true));
            state.missing == 1
        };
        if is_first {
            self.objects.attached.set_rest(Some(*key));
        }
        self.passed(key);
        Ok(0)
    }

    /// Nothing is left to be copied: the sources are no longer needed, if nothing stands against it.
    fn finish(&self, sources: &Sources) -> Result<Step, Halt> {
        {
            let mut state = self.state.lock();
            if state.missing > 0 {
                // Someone may put the objects back.
                state.todo = None;
                return Err(Halt::Later);
            }
        }
        let early = planted::RELEASED_TOO_EARLY.on();
        let left = self.rest(sources)?;
        if !left.is_empty() && !early {
            self.set_rest(left.front());
            self.state.lock().todo = Some(left);
            return Ok(Step::Worked);
        }
        self.world.sched.point("fill-complete");
        if !planted::RELEASED_BEFORE_DURABLE.on() {
            let appended = self.redo.appended();
            self.redo.make_durable(appended).map_err(|error| Halt::Other(error.to_string()))?;
        }
        self.snapshots.refresh()?;
        if (self.snapshots.is_held() || !self.snapshots.list().is_empty()) && !early {
            return Err(Halt::Later);
        }
        self.fence.check().map_err(|error| Halt::Other(error.to_string()))?;
        let own = self.objects.store();
        let releasing = Record { releasing: true, ..sources.record.clone() };
        match own.put_if_match(Purpose::Epoch, record::KEY, &releasing.encode(), &sources.version) {
            Ok(_) => {}
            Err(error @ (StoreError::Conflict { .. } | StoreError::Unknown { .. })) => match read(&**own)? {
                Some((found, _)) if !found.releasing => return Err(error.into()),
                _ => {}
            },
            Err(error) => return Err(error.into()),
        }
        self.objects.attached.detach();
        self.memory.set(0);
        Ok(Step::Worked)
    }

    /// Nothing is attached: what is left of it goes.
    fn after(&self, own: &dyn terrace_io::store::ObjectStore) -> Result<Step, Halt> {
        if let Some((record, _)) = read(own)?.filter(|(record, _)| record.releasing) {
            self.fence.check().map_err(|error| Halt::Other(error.to_string()))?;
            release(own, &record)?;
            own.delete(purpose(), record::KEY)?;
        }
        let mut state = self.state.lock();
        (state.done, state.todo, state.trouble) = (true, None, None);
        Ok(Step::Idle)
    }
}
