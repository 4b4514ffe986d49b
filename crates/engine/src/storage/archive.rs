//! Archiving the log: copies it to the object store while it is written, stretch by stretch (`terrace_tier::objects::archive`).
//!
//! A round begins every `archive_interval_ms`, or when a sixteenth of a log file was written since the last one. It makes the log durable to its end, reads
//! from where the archive ends, and puts stretches of at most [`Config::archive_stretch`](crate::config::Config) bytes until it has come so far.
//!
//! **Writers never wait for it.** The blocks that are not archived stay in the log (`terrace_log`'s `Hold`), as long as they are at most three
//! eighths of it. If the store takes no more for so long, they are given up: the archive has a *gap*, and goes on behind it. What was backed up before
//! the gap is brought no further than to it, so a new backup is needed; `SHOW ENGINE TERRACE STATUS` says so until a copy of the volume has been made.
//!
//! **What a start continues.** The superblock counts the writer epochs in a row that archive: in these nothing bypasses the log ([`Core`]
//! turns that off). Where the archive ends is looked up in the store, once, in the background, and each epoch's stretches are cut where our own
//! history says that it ended. If the log goes back so far, it goes on there.
//!
//! A crash loses the times of what was not archived, not the records: the next start puts them with one time, that of its own beginning.
//!
//! Locks: `state`, for memory work. One thread at a time makes rounds (`busy`).
//!
//! Not here: replaying (`offline::backup::point`).
//!
//! [`Core`]: crate::txn::shared::Core

use crate::error::Error;
use crate::storage::checkpoint::Checkpointer;
use crate::storage::trouble::Trouble;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Step, Worker};
use terrace_io::store::{Bytes, ObjectStore, StoreError};
use terrace_log::recovery::{ReplayError, cut_of, read_part};
use terrace_log::{Glsn, HoldState, Log, LogError, Mark, Redo};
use terrace_tier::objects::archive::{self, Stretch, StretchKey};
use terrace_tier::objects::fence::{Fence, FenceError};

const REST_MIN: Nanos = 100_000_000;
const REST_MAX: Nanos = 30_000_000_000;
/// How often stretches are looked for that are older than they are kept.
const PRUNE_EVERY: Nanos = 3_600_000_000_000;
/// Stretches deleted after one look at the epoch object.
const PRUNE_BATCH: usize = 1000;

#[derive(Debug, Clone, thiserror::Error)]
enum ArchiveError {
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the log cannot be read: {0}")]
    Read(#[from] ReplayError),
    #[error("{0}")]
    Other(String),
}

/// What the archiver works with.
pub struct ArchiveParts {
    pub world: World,
    pub log: Arc<Log>,
    pub checkpointer: Arc<Checkpointer>,
    pub fence: Arc<Fence>,
    pub store: Arc<dyn ObjectStore>,
    /// Where this writer's epoch began, and the log's checkpoint then.
    pub began: Glsn,
    pub checkpoint: Glsn,
}

#[derive(Clone, Copy)]
pub struct ArchiveSettings {
    pub interval: Nanos,
    /// Stretches that reach no further than so long ago are deleted; 0: none is.
    pub keep_ms: u64,
    /// Bytes of records in a stretch, at most; a mini-transaction more.
    pub stretch: usize,
}

/// A stretch that is to be put.
struct Ready {
    key: StretchKey,
    body: Bytes,
}

/// How far the archive has come.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ArchiveStatus {
    /// Everything from `since` to here is in the archive. 0: not known yet.
    pub end: Glsn,
    pub until_ms: u64,
    /// A backup of since then can be brought to any point up to `until_ms`.
    pub since_ms: u64,
    /// The oldest stretch begins here, before whatever gaps there are; 0: there is none.
    pub first_ms: u64,
    /// Gaps of this start.
    pub gaps: u64,
    /// No copy of the volume was made since the last of them.
    pub needs_base: bool,
}

#[derive(Default)]
struct State {
    status: ArchiveStatus,
    ready: Option<Ready>,
    /// This writer has put something: its predecessors are cut.
    opened: bool,
    /// The time of this start is among the marks.
    start_marked: bool,
    error: Option<(String, bool)>,
    prune_at: Nanos,
}

pub struct Archiver {
    parts: ArchiveParts,
    settings: ArchiveSettings,
    start_ms: u64,
    state: Mutex<State, { Mutexes::Objects as u8 }>,
    busy: AtomicBool,
    /// A round ended.
    progress: Event,
    pub stretches: AtomicU64,
    pub bytes: AtomicU64,
    pub errors: AtomicU64,
}

/// One at a time makes rounds.
struct Busy<'a>(&'a Archiver);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
        self.0.progress.notify();
    }
}

impl Archiver {
    pub fn new(parts: ArchiveParts, settings: ArchiveSettings) -> Archiver {
        let start_ms = parts.world.clock.unix_ms();
        Archiver {
            parts,
            settings,
            start_ms,
            state: Mutex::default(),
            busy: AtomicBool::new(false),
            progress: Event::new(),
            stretches: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }

    pub fn status(&self) -> ArchiveStatus {
        self.state.lock().status
    }

    /// Bytes of the log that are not in the archive, and milliseconds since it was whole.
    pub fn lag(&self) -> (u64, u64) {
        let (status, appended) = (self.status(), self.parts.log.appended());
        let behind = appended.saturating_sub(status.end.max(self.parts.began.min(appended)));
        let since = if status.until_ms > 0 { status.until_ms } else { self.start_ms };
        let late = if behind > 0 { self.parts.world.clock.unix_ms().saturating_sub(since) } else { 0 };
        (behind, late)
    }

    /// A copy of the volume was made: a base behind all gaps.
    pub fn note_copy(&self) {
        self.state.lock().status.needs_base = false;
    }

    /// What is wrong.
    pub fn troubles(&self) -> Vec<Trouble> {
        let state = self.state.lock();
        let status = state.status;
        let failed = state.error.as_ref().map(|(text, needs_person)| {
            let text = format!(
                "the log is not archived: {text}; what is not archived stays in the log up to three eighths of it, then the archive has a gap"
            );
            match needs_person {
                true => Trouble::act("archive_trouble", text),
                false => Trouble::degraded("archive_trouble", text),
            }
        });
        let gap = status.needs_base.then(|| {
            Trouble::act(
                "archive_gap_trouble",
                "the archive of the log has a gap, for the store took too little of it for too long: backups of before cannot be brought beyond it; \
                 make a new backup (docs/backup.md)"
                    .into(),
            )
        });
        failed.into_iter().chain(gap).collect()
    }

    fn try_busy(&self) -> Option<Busy<'_>> {
        (!self.busy.swap(true, Ordering::AcqRel)).then(|| Busy(self))
    }

    /// Archives all that was appended until now, for at most `patience` nanoseconds. False: not all of it.
    pub fn finish(&self, patience: Nanos) -> bool {
        let clock = &self.parts.world.clock;
        let (until, target) = (clock.now().saturating_add(patience), self.parts.log.appended());
        loop {
            let progress = self.progress.ticket();
            if self.state.lock().ready.is_none() && self.status().end >= target {
                return true;
            }
            if clock.now() >= until || self.parts.fence.lost().is_some() {
                return false;
            }
            let rests = match self.try_busy() {
                Some(_busy) => self.round().is_err(),
                None => true,
            };
            if rests {
                self.parts.world.sched.wait(&self.progress, progress, Some(REST_MIN));
            }
        }
    }

    /// Puts a stretch if there is one to put. True: there may be more.
    fn round(&self) -> Result<bool, ArchiveError> {
        let result = self.stretch();
        let mut state = self.state.lock();
        match &result {
            Ok(_) => state.error = None,
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                let needs_person = match error {
                    ArchiveError::Fence(error) => error.needs_person(),
                    ArchiveError::Store(error) => matches!(error, StoreError::Refused { .. }),
                    _ => false,
                };
                state.error = Some((error.to_string(), needs_person));
            }
        }
        result
    }

    fn stretch(&self) -> Result<bool, ArchiveError> {
        let ArchiveParts { world, log, fence, .. } = &self.parts;
        fence.keep_up(world.clock.now())?;
        if self.status().end == 0 {
            self.find()?;
        }
        if self.state.lock().ready.is_none() {
            let built = if log.hold_state() == HoldState::Broken { self.skip()? } else { self.build()? };
            if !built {
                self.prune()?;
                return Ok(false);
            }
        }
        self.put()?;
        Ok(true)
    }

    /// Looks where the archive ends, as far as it is of the log that we go on with.
    fn find(&self) -> Result<(), ArchiveError> {
        let ArchiveParts { log, checkpointer, fence, store, began, checkpoint, .. } = &self.parts;
        let (writer, superblock) = (fence.writer(), checkpointer.superblock());
        let mut found = ArchiveStatus::default();
        archive::list(&**store, Some(writer.lineage), &mut |key| {
            let cut =
                if key.epoch < writer.epoch { cut_of(&superblock.history, key.epoch) } else { Glsn::MAX };
            let end = key.end.min(cut);
            if end < key.first {
                return;
            }
            if found.first_ms == 0 {
                found.first_ms = key.since_ms;
            }
            if key.first > found.end || found.end == 0 {
                found.since_ms = key.since_ms;
            }
            if end >= found.end {
                let until = if end == key.end { key.until_ms } else { key.since_ms };
                (found.end, found.until_ms) = (end, found.until_ms.max(until));
            }
        })?;
        let from = superblock.archivable_from();
        let continues =
            found.end > 0 && found.end >= from && found.end <= *began && self.is_readable(found.end);
        let mut state = self.state.lock();
        state.status = found;
        if !continues {
            let now = self.start_ms.max(found.until_ms);
            state.status.end = from.max(*checkpoint);
            (state.status.since_ms, state.status.until_ms) = (now, now);
            if found.first_ms > 0 {
                (state.status.gaps, state.status.needs_base) = (1, true);
            } else {
                state.status.first_ms = now;
            }
        }
        let end = state.status.end;
        drop(state);
        if log.hold_state() == HoldState::Holds {
            log.hold_from(end);
        }
        Ok(())
    }

    /// Whether the log still has what follows `at`.
    fn is_readable(&self, at: Glsn) -> bool {
        at == self.parts.began || self.read(at, self.parts.began, &mut |_| false).is_ok()
    }

    fn read(
        &self,
        from: Glsn,
        upto: Glsn,
        each: &mut terrace_log::recovery::EachRange<'_>,
    ) -> Result<Glsn, ReplayError> {
        let ArchiveParts { log, checkpointer, .. } = &self.parts;
        let mut bounds = checkpointer.superblock().log_bounds();
        (bounds.checkpoint, bounds.starts) = (from, log.starts_for(from));
        read_part(&bounds, log.files(), upto, each)
    }

    /// The key of the stretch that comes next.
    fn next_key(&self, status: &ArchiveStatus) -> StretchKey {
        let writer = self.parts.fence.writer();
        let (first, since_ms) = (status.end, status.until_ms);
        StretchKey {
            lineage: writer.lineage,
            first,
            end: first,
            epoch: writer.epoch,
            began: self.parts.began,
            since_ms,
            until_ms: since_ms,
        }
    }

    /// Reads a stretch. False: there is nothing new.
    fn build(&self) -> Result<bool, ArchiveError> {
        let ArchiveParts { world, log, .. } = &self.parts;
        // In this order: all that was appended until then is below `upto`.
        let now = world.clock.unix_ms();
        let upto = log.appended();
        log.make_durable(upto)?;
        let (status, opened) = {
            let state = self.state.lock();
            (state.status, state.opened)
        };
        if upto == status.end && opened {
            return Ok(false);
        }
        let mut stretch = Stretch::new(self.next_key(&status));
        let most = self.settings.stretch;
        let read = self.read(status.end, upto, &mut |range| {
            stretch.push(range);
            stretch.bytes() < most
        });
        world.sched.point("archive-read");
        // What was read may have been written over meanwhile.
        if log.hold_state() == HoldState::Broken {
            return self.skip();
        }
        if let Err(error) = read {
            // The hold was broken, and set again, before the blocks went; or the log is damaged, of which the next start tells.
            return match error {
                ReplayError::Disk(_) => Err(error.into()),
                _ => self.skip(),
            };
        }
        self.finish_stretch(stretch, upto, now)?;
        Ok(true)
    }

    /// Completes a stretch; `now` is a time until which all was appended that lies below `upto`.
    fn finish_stretch(&self, mut stretch: Stretch, upto: Glsn, now: u64) -> Result<(), ArchiveError> {
        let ArchiveParts { log, checkpointer, began, .. } = &self.parts;
        let (since, end) = (stretch.key.since_ms, stretch.key.end);
        let mut marks = log.take_marks(end);
        let mut state = self.state.lock();
        if end >= *began && !state.start_marked {
            state.start_marked = true;
            // All that an earlier writer appended.
            marks.insert(0, Mark { ms: self.start_ms, end: *began });
        }
        let mut last = since;
        for mark in &mut marks {
            mark.ms = mark.ms.max(last);
            last = mark.ms;
        }
        stretch.key.until_ms = if end == upto { now.max(last) } else { last };
        stretch.marks = marks;
        // Read now: they are above all that the records have.
        let superblock = checkpointer.superblock();
        (stretch.transactions, stretch.spaces) = (superblock.transactions, superblock.spaces);
        let body = stretch.encode().map_err(|error| ArchiveError::Other(error.to_string()))?;
        state.ready = Some(Ready { key: stretch.key, body: Bytes::from(body) });
        Ok(())
    }

    /// Goes on at the log's end: what is not archived is given up. An empty stretch, which says where it goes on, is ready.
    fn skip(&self) -> Result<bool, ArchiveError> {
        let ArchiveParts { world, log, .. } = &self.parts;
        let now = world.clock.unix_ms();
        let upto = log.appended();
        log.make_durable(upto)?;
        log.hold_from(upto);
        log.checkpoint_wanted.notify();
        log.take_marks(upto);
        let key = {
            let mut state = self.state.lock();
            let status = &mut state.status;
            let now = now.max(status.until_ms);
            (status.end, status.since_ms, status.until_ms) = (upto, now, now);
            (status.gaps, status.needs_base) = (status.gaps + 1, true);
            state.start_marked = true;
            self.next_key(&state.status)
        };
        self.finish_stretch(Stretch::new(key), upto, now)?;
        Ok(true)
    }

    fn put(&self) -> Result<(), ArchiveError> {
        let ArchiveParts { world, log, store, .. } = &self.parts;
        let Some((key, body)) = self.state.lock().ready.as_ref().map(|ready| (ready.key, ready.body.clone()))
        else {
            return Ok(());
        };
        let bytes = body.len() as u64;
        match store.put_if_absent(archive::purpose(), &key.to_string(), &[body]) {
            // No other writer has this epoch: it is the same, put before an answer was lost.
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        world.sched.point("archive-put");
        {
            let mut state = self.state.lock();
            (state.ready, state.opened) = (None, true);
            (state.status.end, state.status.until_ms) = (key.end, key.until_ms);
        }
        // A hold that broke meanwhile stays so: the next round finds it.
        if log.hold_state() == HoldState::Holds {
            log.hold_from(key.end);
            log.checkpoint_wanted.notify();
        }
        self.stretches.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Deletes stretches that are older than they are kept.
    fn prune(&self) -> Result<(), ArchiveError> {
        let ArchiveParts { world, fence, store, .. } = &self.parts;
        let now = world.clock.now();
        if self.settings.keep_ms == 0 || now < self.state.lock().prune_at {
            return Ok(());
        }
        let before = world.clock.unix_ms().saturating_sub(self.settings.keep_ms);
        let (mut old, mut first_ms, mut more) = (Vec::new(), 0, false);
        archive::list(&**store, Some(fence.writer().lineage), &mut |key| {
            if key.until_ms >= before {
                first_ms = if first_ms == 0 { key.since_ms } else { first_ms };
            } else if old.len() < PRUNE_BATCH {
                old.push(key);
            } else {
                more = true;
            }
        })?;
        if !old.is_empty() {
            fence.check()?;
        }
        for key in old {
            store.delete(archive::purpose(), &key.to_string())?;
        }
        let mut state = self.state.lock();
        if first_ms > 0 {
            state.status.first_ms = first_ms;
            state.status.since_ms = state.status.since_ms.max(first_ms);
        }
        state.prune_at = if more { now } else { now + PRUNE_EVERY };
        Ok(())
    }
}

pub struct ArchiveWorker {
    archiver: Arc<Archiver>,
    rest: Nanos,
}

impl ArchiveWorker {
    pub fn new(archiver: Arc<Archiver>) -> ArchiveWorker {
        ArchiveWorker { archiver, rest: REST_MIN }
    }
}

impl Worker for ArchiveWorker {
    fn name(&self) -> &'static str {
        "archiver"
    }

    fn step(&mut self) -> Step {
        let archiver = &self.archiver;
        if archiver.parts.fence.lost().is_some() || archiver.parts.log.failure().is_some() {
            return Step::Idle;
        }
        let Some(_busy) = archiver.try_busy() else { return Step::IdleFor(REST_MIN) };
        match archiver.round() {
            Ok(true) => {
                self.rest = REST_MIN;
                Step::Worked
            }
            Ok(false) => {
                self.rest = REST_MIN;
                Step::IdleFor(archiver.settings.interval)
            }
            Err(_) => {
                let rest = self.rest;
                self.rest = (2 * self.rest).min(REST_MAX);
                Step::IdleFor(rest.min(archiver.settings.interval.max(REST_MIN)))
            }
        }
    }

    fn wake_event(&self) -> Arc<Event> {
        self.archiver.parts.log.much_to_read.clone()
    }
}

/// An archive needs a store.
pub(crate) fn refuse_without_store() -> Error {
    Error::Invalid(
        "archive_interval_ms is set, and there is no object store (object) to archive the log in".into(),
    )
}
