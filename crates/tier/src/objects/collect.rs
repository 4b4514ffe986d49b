//! Collection: objects that nothing names any more are deleted.
//!
//! An object goes only when the record that superseded it is durable (the map hands it out then), no
//! snapshot names it, no reader uses it, its key is of our own lineage (or of one whose objects were restored to our prefix), and the
//! store's epoch object, read again just before, still names us (invariants 3, 5 and 8).
//!
//! What a snapshot names is *retained*: its keys are kept in memory, up to [`RETAINED_MAX`], and looked at again when a snapshot was
//! removed, which is asked every [`REFRESH_EVERY`] while there are any. Keys beyond that number are forgotten; a later scrub finds them.
//!
//! What waits to be deleted is in memory. A crash forgets it, and leaves objects that were put and never
//! published. Both are found by [`Collector::scrub_orphans`], which lists the store: a key of an earlier
//! writer epoch that the map does not name can never be named again, because a writer publishes only
//! keys of its own epoch. So nothing needs to be logged before a put. Recovery itself never lists. The same
//! goes for what a put leaves that a kill cut off, in stores that leave something (a directory).
//!
//! Workers of their own delete ([`CollectWorker`]): a delete is a round trip, as a put is, and sinkers that delete don't make room. A clean
//! stop goes on deleting for a moment ([`Collector::finish`]), any stop ends with the requests that are under way; what is left then is found
//! by the next start's scrub.
//!
//! A dead or throttling store: the rest is tried again later, after longer and longer rests. While it is only those who read that
//! meet a dead store, it is asked from time to time whether it is there again.
//!
//! Locks: `state`, for memory work only.

use crate::address::ObjectKey;
use crate::objects::fence::{Fence, FenceError};
use crate::objects::object::{Failure, Objects};
use crate::objects::snapshots::{SnapshotError, Snapshots};
use crate::planted;
use crate::volume::map::Map;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, MutexGuard, Mutexes};
use terrace_io::sched::{Event, Step, Worker};
use terrace_io::store::{Purpose, StoreError};
use terrace_log::{LogError, Redo};

/// Objects deleted after one look at the epoch object. Few, so that other workers find some, too.
const BATCH: usize = 16;
/// How long to wait for records to become durable, or for readers, in nanoseconds.
const PATIENCE: Nanos = 1_000_000_000;
const REST_MIN: Nanos = 100_000_000;
const REST_MAX: Nanos = 60_000_000_000;
/// How often the store is asked whether it answers again, while reads fail.
const ASK_EVERY: Nanos = 5_000_000_000;

/// Superseded objects that snapshots name, of which the keys are kept in memory: 2.5 MiB.
pub const RETAINED_MAX: usize = 1 << 16;
/// How often it is asked whether a snapshot was removed, while there are retained objects, in nanoseconds.
pub const REFRESH_EVERY: Nanos = 60_000_000_000;
/// How long a worker rests that finds that nothing may be deleted now.
const HELD_REST: Nanos = 20_000_000;

#[derive(Debug, Clone, thiserror::Error)]
pub enum CollectError {
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Snapshots(#[from] SnapshotError),
    #[error(transparent)]
    Log(#[from] LogError),
}

#[derive(Default, Debug)]
pub struct CollectCounters {
    pub deleted: AtomicU64,
    /// Objects that were put and never published.
    pub orphans: AtomicU64,
    /// Not deleted: of another lineage.
    pub foreign: AtomicU64,
    /// Not deleted: the map names it. Never happens unless something is wrong.
    pub named: AtomicU64,
    pub errors: AtomicU64,
}

/// What a scrub found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Scrubbed {
    /// Objects of our lineages.
    pub listed: u64,
    pub deleted: u64,
    /// Left by puts of earlier writer epochs that never ended, and removed.
    pub staged: u64,
    /// Keys under our lineage that are no object keys; they are left alone.
    pub strangers: u64,
}

struct CollectState {
    pending: VecDeque<ObjectKey>,
    /// Snapshots name them.
    retained: Vec<ObjectKey>,
    /// The same, but too many: a scrub finds them when a snapshot was removed.
    forgotten: bool,
    /// When it is asked next whether a snapshot was removed.
    refresh_at: Option<Nanos>,
    /// The store is to be listed for objects that were put and never published.
    scrub: bool,
    /// When the log is made durable for what waits.
    hurry_at: Option<Nanos>,
    rest: Nanos,
    rest_until: Nanos,
    error: Option<Failure>,
    /// When the store is asked next, while reads fail.
    ask_at: Option<Nanos>,
}

pub struct Collector {
    world: World,
    map: Arc<Map>,
    redo: Arc<dyn Redo>,
    objects: Arc<Objects>,
    fence: Arc<Fence>,
    snapshots: Arc<Snapshots>,
    state: Mutex<CollectState, { Mutexes::Objects as u8 }>,
    /// There may be something to delete.
    wanted: Arc<Event>,
    /// Batches that are being deleted, and the end of one.
    deleting: AtomicUsize,
    progress: Event,
    stopped: AtomicBool,
    pub counters: CollectCounters,
}

/// What became of one object.
enum Fate {
    Deleted,
    /// It stays, and not for us to delete.
    Kept,
    /// A reader uses it.
    Later,
    /// A snapshot names it.
    Retained,
}

impl Collector {
    pub fn new(
        world: World,
        map: Arc<Map>,
        redo: Arc<dyn Redo>,
        objects: Arc<Objects>,
        fence: Arc<Fence>,
        snapshots: Arc<Snapshots>,
    ) -> Collector {
        let state = CollectState {
            pending: VecDeque::new(),
            retained: Vec::new(),
            forgotten: false,
            refresh_at: None,
            scrub: false,
            hurry_at: None,
            rest: 0,
            rest_until: 0,
            error: None,
            ask_at: None,
        };
        let wanted = Arc::new(Event::new());
        objects.outage.wakes(wanted.clone());
        let state = Mutex::new(state);
        Collector {
            world,
            map,
            redo,
            objects,
            fence,
            snapshots,
            state,
            wanted,
            deleting: AtomicUsize::new(0),
            progress: Event::new(),
            stopped: AtomicBool::new(false),
            counters: CollectCounters::default(),
        }
    }

    /// An object that may be in the store and will never be published.
    pub(crate) fn orphan(&self, key: ObjectKey) {
        self.counters.orphans.fetch_add(1, Ordering::Relaxed);
        self.state.lock().pending.push_back(key);
    }

    /// Wakes who deletes, if there is something to delete. Sinkers call it: they are told of what takes objects' places.
    pub(crate) fn look(&self) {
        let wanted = self.map.has_collectable() || {
            let state = self.state.lock();
            state.scrub || !state.pending.is_empty()
        };
        if wanted {
            self.wanted.notify();
        }
    }

    /// Nothing is deleted any more, after the requests that are under way.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Deletes what may be deleted, for `patience` nanoseconds and what is left of a batch then, and not if the store makes trouble: before a clean stop.
    pub fn finish(&self, patience: Nanos) {
        let until = self.world.clock.now() + patience;
        loop {
            let ticket = self.progress.ticket();
            let step = self.step();
            let left = self.map.has_collectable() || self.deleting.load(Ordering::SeqCst) > 0 || {
                let state = self.state.lock();
                !state.pending.is_empty() && state.error.is_none()
            };
            if !left || self.world.clock.now() >= until {
                return;
            }
            if step != Step::Worked {
                self.world.sched.wait(&self.progress, ticket, Some(patience / 100));
            }
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Asks for a scrub ([`Collector::scrub_orphans`]) in the background.
    pub fn want_scrub(&self) {
        self.state.lock().scrub = true;
    }

    /// Objects that wait to be deleted, and what went wrong last.
    pub fn status(&self) -> (usize, Option<Failure>) {
        let state = self.state.lock();
        (state.pending.len(), state.error.clone())
    }

    /// Superseded objects that stay because snapshots name them, as far as they are known.
    pub fn retained(&self) -> usize {
        self.state.lock().retained.len()
    }

    /// Deletes a batch, if there is one. [`CollectWorker`]s call it.
    pub fn step(&self) -> Step {
        if self.is_stopped() {
            return Step::Idle;
        }
        if self.snapshots.is_held() {
            return Step::IdleFor(HELD_REST);
        }
        let collectable = self.map.collectable();
        let now = self.world.clock.now();
        let batch: Vec<ObjectKey> = {
            let mut state = self.state.lock();
            state.pending.extend(collectable);
            if self.fence.lost().is_some() {
                return Step::Idle;
            }
            if now < state.rest_until {
                return Step::IdleFor(state.rest_until - now);
            }
            let n = state.pending.len().min(BATCH);
            self.deleting.fetch_add(1, Ordering::SeqCst);
            state.pending.drain(..n).collect()
        };
        let step = self.delete_some(batch, now);
        self.deleting.fetch_sub(1, Ordering::SeqCst);
        self.progress.notify();
        step
    }

    fn delete_some(&self, batch: Vec<ObjectKey>, now: Nanos) -> Step {
        if batch.is_empty() {
            if std::mem::take(&mut self.state.lock().scrub) {
                return self.scrub_step(now);
            }
            return match (self.look_at_retained(now), self.hurry(now)) {
                (Step::Worked, _) | (_, Step::Worked) => Step::Worked,
                (Step::IdleFor(one), Step::IdleFor(other)) => Step::IdleFor(one.min(other)),
                (Step::Idle, rest) | (rest, Step::Idle) => rest,
            };
        }
        let (mut later, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|key| self.is_read(key));
        if batch.is_empty() {
            self.state.lock().pending.extend(later);
            return Step::IdleFor(PATIENCE);
        }
        let result = self.delete_batch(&batch, &mut later);
        let mut state = self.state.lock();
        state.pending.extend(later);
        self.ended(state, now, result)
    }

    /// While objects are retained, asks from time to time whether a snapshot was removed.
    fn look_at_retained(&self, now: Nanos) -> Step {
        {
            let mut state = self.state.lock();
            if state.retained.is_empty() {
                state.refresh_at = None;
                return Step::Idle;
            }
            let at = *state.refresh_at.get_or_insert(now + REFRESH_EVERY);
            if now < at {
                return Step::IdleFor(at - now);
            }
            state.refresh_at = Some(now + REFRESH_EVERY);
        }
        let before = self.snapshots.list();
        let read = self.snapshots.refresh();
        let retained = std::mem::take(&mut self.state.lock().retained);
        let (stay, go): (Vec<_>, Vec<_>) = retained.into_iter().partition(|key| self.snapshots.name(key));
        let mut state = self.state.lock();
        state.retained.extend(stay);
        state.pending.extend(&go);
        let fewer = self.snapshots.list().len() < before.len();
        state.scrub |= fewer && std::mem::take(&mut state.forgotten);
        match read {
            Ok(()) if go.is_empty() => Step::IdleFor(REFRESH_EVERY),
            read => self.ended(state, now, read.map_err(CollectError::from)),
        }
    }

    /// When superseded objects wait for their record to be durable: others' commits make it so; on an idle
    /// instance, after a while, we do.
    fn hurry(&self, now: Nanos) -> Step {
        if !self.map.has_collectable() {
            self.state.lock().hurry_at = None;
            return Step::Idle;
        }
        let at = *self.state.lock().hurry_at.get_or_insert(now + PATIENCE);
        if now < at {
            return Step::IdleFor(at - now);
        }
        self.state.lock().hurry_at = None;
        match self.redo.make_durable(self.redo.appended()) {
            Ok(()) => Step::Worked,
            Err(_) => Step::Idle,
        }
    }

    fn scrub_step(&self, now: Nanos) -> Step {
        let found = self.find_orphans();
        let mut state = self.state.lock();
        state.scrub |= found.is_err();
        // They are deleted as all others are, by all who do: a stop need not wait for them.
        let result = found.map(|(_, unnamed)| state.pending.extend(unnamed));
        self.ended(state, now, result)
    }

    /// After an attempt: a rest if it failed, longer each time.
    fn ended(
        &self,
        mut state: MutexGuard<'_, CollectState, { Mutexes::Objects as u8 }>,
        now: Nanos,
        result: Result<(), CollectError>,
    ) -> Step {
        match result {
            Ok(()) => {
                state.rest = 0;
                state.error = None;
                Step::Worked
            }
            Err(error) => {
                self.counters.errors.fetch_add(1, Ordering::Relaxed);
                let needs_person = match &error {
                    CollectError::Store(error) => matches!(error, StoreError::Refused { .. }),
                    CollectError::Fence(error) => error.needs_person(),
                    CollectError::Snapshots(SnapshotError::Store(error)) => {
                        matches!(error, StoreError::Refused { .. })
                    }
                    CollectError::Snapshots(_) => true,
                    CollectError::Log(_) => false,
                };
                if !matches!(error, CollectError::Log(_)) {
                    state.error = Some(Failure::of(&error, needs_person));
                }
                state.rest = (2 * state.rest).clamp(REST_MIN, REST_MAX);
                let rest = state.rest / 2 + self.world.random.below(state.rest / 2);
                state.rest_until = now + rest;
                Step::IdleFor(rest)
            }
        }
    }

    /// While reads fail, the store is probed from time to time, because the failed readers may not come again. How long until
    /// the next time; None: there is no trouble.
    fn ask_again(&self) -> Option<Nanos> {
        if self.is_stopped() {
            return None;
        }
        let now = self.world.clock.now();
        {
            let mut state = self.state.lock();
            if !self.objects.outage.is_there() {
                state.ask_at = None;
                return None;
            }
            let at = *state.ask_at.get_or_insert(now + ASK_EVERY);
            if now < at {
                return Some(at - now);
            }
            state.ask_at = Some(now + ASK_EVERY);
        }
        self.objects.ask().is_err().then_some(ASK_EVERY)
    }

    /// Whether a reader uses it.
    fn is_read(&self, key: &ObjectKey) -> bool {
        let ignored = planted::OBJECT_DELETED_EARLY.on() || planted::READER_IGNORED.on();
        self.objects.is_read(key) && !ignored
    }

    /// Are we still the writer? Then we know the snapshots.
    fn check_fence(&self) -> Result<(), CollectError> {
        if planted::FENCE_NOT_READ.on() {
            self.fence.take()?;
        } else {
            self.fence.keep_up(self.world.clock.now())?;
            self.fence.check()?;
        }
        Ok(self.snapshots.load()?)
    }

    /// Whether objects of the lineage are ours to delete.
    fn is_ours(&self, lineage: u128) -> bool {
        lineage == self.fence.writer().lineage || self.snapshots.own(lineage)
    }

    fn retain(&self, key: ObjectKey) {
        let mut state = self.state.lock();
        match state.retained.len() < RETAINED_MAX {
            true => state.retained.push(key),
            false => state.forgotten = true,
        }
    }

    /// Those that are not deleted, and are to be tried again, are in `later`.
    fn delete_batch(&self, batch: &[ObjectKey], later: &mut Vec<ObjectKey>) -> Result<(), CollectError> {
        if let Err(error) = self.check_fence() {
            later.extend(batch);
            return Err(error);
        }
        for (i, key) in batch.iter().enumerate() {
            if self.is_stopped() {
                later.extend(&batch[i..]);
                return Ok(());
            }
            match self.delete(key) {
                Ok(Fate::Deleted | Fate::Kept) => {}
                Ok(Fate::Later) => later.push(*key),
                Ok(Fate::Retained) => self.retain(*key),
                Err(error) => {
                    later.extend(&batch[i..]);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// The fence was checked. Deletes the object if nothing stands against it.
    fn delete(&self, key: &ObjectKey) -> Result<Fate, StoreError> {
        if !self.is_ours(key.lineage) && !planted::LINEAGE_IGNORED.on() {
            self.counters.foreign.fetch_add(1, Ordering::Relaxed);
            return Ok(Fate::Kept);
        }
        if self.map.names(key) {
            self.counters.named.fetch_add(1, Ordering::Relaxed);
            return Ok(Fate::Kept);
        }
        if self.is_read(key) || self.snapshots.is_held() {
            return Ok(Fate::Later);
        }
        if self.snapshots.name(key) {
            return Ok(Fate::Retained);
        }
        self.world.sched.point("collect-delete");
        self.objects.store().delete(Purpose::Collect, &key.to_string())?;
        self.counters.deleted.fetch_add(1, Ordering::Relaxed);
        Ok(Fate::Deleted)
    }

    /// Lists the store and deletes the objects of earlier writer epochs that the map does not name.
    /// For after an unclean stop, and on request.
    pub fn scrub_orphans(&self) -> Result<Scrubbed, CollectError> {
        let (mut scrubbed, unnamed) = self.find_orphans()?;
        for batch in unnamed.chunks(BATCH) {
            self.check_fence()?;
            for key in batch {
                match self.delete(key)? {
                    Fate::Deleted => scrubbed.deleted += 1,
                    Fate::Retained => self.retain(*key),
                    Fate::Kept | Fate::Later => {}
                }
            }
        }
        Ok(scrubbed)
    }

    /// Objects that may be deleted, and what else was found.
    fn find_orphans(&self) -> Result<(Scrubbed, Vec<ObjectKey>), CollectError> {
        let writer = self.fence.writer();
        self.check_fence()?;
        let mut scrubbed = Scrubbed::default();
        let mut unnamed = Vec::new();
        let prefixes = match planted::LINEAGE_IGNORED.on() {
            true => vec![String::new()],
            false => {
                let lineages = std::iter::once(writer.lineage).chain(self.snapshots.lineages());
                lineages.map(|lineage| format!("{lineage:032x}/")).collect()
            }
        };
        let is_dead = |text: &str| {
            let key = ObjectKey::parse(text).filter(|_| !planted::STAGED_KEPT.on());
            key.is_some_and(|key| self.is_ours(key.lineage) && key.epoch < writer.epoch)
        };
        for prefix in &prefixes {
            self.objects.store().list(Purpose::Scrub, prefix, &mut |text, _size| {
                scrubbed.listed += 1;
                match ObjectKey::parse(text) {
                    Some(key) if key.epoch < writer.epoch && !self.map.names(&key) => unnamed.push(key),
                    Some(_) => {}
                    None => scrubbed.strangers += 1,
                }
            })?;
            scrubbed.staged += self.objects.store().remove_staged(Purpose::Scrub, prefix, &is_dead)?;
        }
        if !unnamed.is_empty() {
            // What the map in memory no longer names, the log may still: until this.
            self.redo.make_durable(self.redo.appended())?;
        }
        Ok((scrubbed, unnamed))
    }
}

/// Deletes what nothing names any more.
pub struct CollectWorker(pub Arc<Collector>);

impl Worker for CollectWorker {
    fn name(&self) -> &'static str {
        "collector"
    }
    fn step(&mut self) -> Step {
        match (self.0.step(), self.0.ask_again()) {
            (Step::Worked, _) => Step::Worked,
            (Step::IdleFor(rest), Some(after)) => Step::IdleFor(rest.min(after)),
            (_, Some(after)) => Step::IdleFor(after),
            (rest, None) => rest,
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.wanted.clone()
    }
}
