//! A copy of the running instance's volume, at which a server can be started as after a crash at the moment when the copy ended.
//!
//! Most of it is copied while everything goes on: the slots that are in use, then those that were written meanwhile, and so on until few
//! are left ([`Copier::follow`]), and the log's rings likewise. Only the end ([`Copier::finish`]) holds something, and never commits:
//!
//! 1. The checkpoint stays where it is, and no slot that is given up becomes free: the *holds*.
//! 2. The map is written as it is in memory, and the log made durable so far. Where it ends now, the copy ends.
//! 3. The rest of the rings is copied, from the checkpoint to that end; then checkpoints are made again. The rest of the slots is copied: whatever
//!    the map named at the end is where it was, for slots are written only while they are free, and none that was named since is free.
//! 4. Slots become free again. All is synced, and the superblock comes last, under another name until it is whole.
//!
//! So the copy is the volume of an instance that lost power at the end, and its start redoes the log. Meanwhile the log fills, and free slots
//! become fewer: before a writer has to wait for the log, and as soon as one waits for a slot, the holds are given up, what was written since is
//! copied, and it is tried again, a few times.
//!
//! The copy is an instance of its own: it has its own id, in the superblock and in each block of the log, and its own lineage. So files of
//! the two that get mixed up are found out, and neither takes what the other left on flash, or later in an object store, for its own.
//!
//! A crash, or an error, leaves a place without a superblock and with the file `copying`, which no server starts at (`create`). An error also
//! removes what was made.
//!
//! With an object store the copy names objects, and becomes a *snapshot* of the instance: from before the map is written nothing is deleted
//! from the store, and between steps 4 and the superblock the boundary is recorded there (`cold`: [`Cold::record_snapshot`]). From then on no
//! object that was put up to the boundary is deleted, until the snapshot is removed. Its id is the copy's instance id. The copy does not
//! run on the original's store; `offline::backup` copies the objects that it names, and `offline::backup::restore` makes an instance of both.
//! A crash between the record and the superblock leaves a snapshot without a copy, which an operator removes (`terrace snapshot`).
//!
//! The object buffer keeps its size meanwhile.
//!
//! [`Cold::record_snapshot`]: crate::storage::cold::Cold::record_snapshot

mod background;
mod rings;
mod target;

pub use background::BackgroundCopy;

use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::storage::resize::Size;
use rings::Rings;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use target::{Target, failed};
use terrace_io::AlignedBuf;
use terrace_io::clock::Nanos;
use terrace_io::disk::Disk;
use terrace_log::Redo as _;
use terrace_log::block::BLOCK;
use terrace_tier::address::Slot;
use terrace_tier::memory::pool::{Loan, Purpose};
use terrace_tier::objects::snapshots::Snapshot;
use terrace_tier::page::{Glsn, PAGE_SIZE};
use terrace_tier::volume::object_buffer::{ObjectBuffer, Written};

/// Slots that are read, and then written, at a time.
const CHUNK: usize = 32;
/// The number that is left to the end: 16 MiB.
const FEW: u32 = 1024;
/// Rounds, however much is written meanwhile; and how often the end is tried.
const ROUNDS_MAX: u32 = 20;
const TRIES: u32 = 5;
/// How long a checkpoint that is due is waited for before the end, and between two looks, in nanoseconds.
const PATIENCE: Nanos = 10_000_000_000;
const LOOK: Nanos = 20_000_000;

/// How far a copy has come, in bytes. What is written meanwhile makes `all` more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    pub done: u64,
    pub all: u64,
}

/// Is told of progress every few milliseconds, with nothing locked. False: the copy is to be given up.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> bool;

/// What became of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// The log's end in the copy: every change below is in it, and none above.
    pub end: Glsn,
    /// Bytes of pages and log that were written, those included that were written again.
    pub bytes: u64,
    pub rounds: u32,
    /// How often the end was tried, and how long slots were held the last time, in nanoseconds.
    pub holds: u32,
    pub held: Nanos,
    /// What protects the objects that the copy names, if there is an object store.
    pub snapshot: Option<Snapshot>,
}

/// The storage's only copier.
struct Turn(Arc<Storage>);

impl Turn {
    fn take(storage: &Arc<Storage>) -> Result<Turn> {
        if storage.copying.swap(true, Ordering::SeqCst) {
            return Err(Error::Busy("the volume is being copied already".into()));
        }
        let turn = Turn(storage.clone());
        match storage.resizing.progress().filter(|resize| resize.what == Size::ObjectBuffer) {
            Some(_) => Err(Error::Busy("object_buffer is being changed: copy when that is done".into())),
            None => Ok(turn),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.buffer.end_watch();
        self.0.copying.store(false, Ordering::SeqCst);
    }
}

/// The checkpoint stays where it is: the log behind it is being copied.
struct HeldLog<'a>(&'a Storage);

impl<'a> HeldLog<'a> {
    fn begin(storage: &'a Storage) -> HeldLog<'a> {
        storage.checkpointer.hold();
        HeldLog(storage)
    }
    /// Whether others would soon wait for it.
    fn hinders(&self) -> bool {
        self.0.log.needs_checkpoint()
    }
}

impl Drop for HeldLog<'_> {
    fn drop(&mut self) {
        self.0.checkpointer.release();
    }
}

/// No slot that is given up becomes free.
struct HeldSlots<'a>(&'a Storage);

impl<'a> HeldSlots<'a> {
    fn begin(storage: &'a Storage) -> HeldSlots<'a> {
        storage.map.hold_slots(true);
        HeldSlots(storage)
    }
    /// Whether a writer waits for one.
    fn hinders(&self) -> bool {
        self.0.map.hold_hinders()
    }
}

impl Drop for HeldSlots<'_> {
    fn drop(&mut self) {
        self.0.map.hold_slots(false);
    }
}

/// Says when what is held hinders others.
type Hinders<'a> = Option<&'a dyn Fn() -> bool>;

/// A copy that is being made. Dropped before its end, it removes what it made.
pub struct Copier {
    storage: Arc<Storage>,
    target: Target,
    written: Arc<Written>,
    rings: Rings,
    images: AlignedBuf,
    /// Slots that are to be copied, whatever is written meanwhile.
    left: Vec<u64>,
    progress: Progress,
    bytes: u64,
    rounds: u32,
    holds: u32,
    _memory: Loan,
    // Dropped last.
    _turn: Turn,
}

/// Why copying ended early.
enum Stop {
    /// What is held hinders others.
    Hindered,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Failed(error.into())
    }
}

impl Copier {
    /// Begins a copy at `to`, which must be empty. May write much: the log's files are as large as the original's.
    pub fn begin(storage: &Arc<Storage>, to: Arc<dyn Disk>) -> Result<Copier> {
        let turn = Turn::take(storage)?;
        let superblock = storage.checkpointer.superblock();
        match &storage.cold {
            // Before anything is copied: with a store that is not ours, or does not answer, there would be no snapshot at the end.
            Some(cold) => cold.fence.check()?,
            None if superblock.has_store => {
                return Err(Error::Invalid(
                    "the instance has an object store, which is not configured now: a copy of its volume would name objects there that \
                     nothing protects. Start the server with its object store"
                        .into(),
                ));
            }
            None => {}
        }
        let slots = storage.map.slots_named();
        let mut memory = Loan::new(storage.pages.pool(), Purpose::Watches);
        // The images, which blocks of the log share; the slots to copy, those that were written, those in use for a moment.
        if !memory.take(CHUNK * PAGE_SIZE + 4 * (slots as usize).div_ceil(8)) {
            return Err(Error::Unavailable("there is no memory for a copy now".into()));
        }
        // First the watch: what is in use then has been written, or is told.
        let written = storage.buffer.watch(slots);
        let left = storage.map.slots_taken();
        let pages = count(&left) * PAGE_SIZE as u64;
        let log = superblock.log_blocks * (BLOCK * superblock.starts.len()) as u64;
        let need = pages + log + storage.map.file_bytes();
        let target = Target::make(to, &superblock, need, &*storage.world.random)?;
        Ok(Copier {
            storage: storage.clone(),
            target,
            written,
            rings: Rings::new(superblock.starts.len()),
            images: AlignedBuf::zeroed(CHUNK * PAGE_SIZE),
            left,
            progress: Progress { done: 0, all: pages },
            bytes: log,
            rounds: 0,
            holds: 0,
            _memory: memory,
            _turn: turn,
        })
    }

    /// Copies while everything goes on, until little is left or it becomes no less. To be called at least once; later ones catch up.
    pub fn follow(&mut self, tell: OnProgress<'_>) -> Result<()> {
        let mut before = u32::MAX;
        for _ in 0..ROUNDS_MAX {
            self.rounds += 1;
            let result = self.copy_left(None, tell).and_then(|()| self.copy_log(None, tell));
            if let Err(Stop::Failed(error)) = result {
                return Err(error);
            }
            let written = self.written.count();
            if written <= FEW || written > before / 4 * 3 {
                return Ok(());
            }
            before = written;
            self.choose_written();
        }
        Ok(())
    }

    /// Makes durable what was copied so far, so that the end need not.
    fn settle(&self) -> Result<()> {
        self.target.sync().map_err(failed)
    }

    /// The end: the copy is of the moment in which this is called, or of one soon after, and durable when it returns.
    pub fn finish(mut self, tell: OnProgress<'_>) -> Result<Copied> {
        for _ in 0..TRIES {
            self.wait_for_checkpoint(tell)?;
            match self.try_finish(tell) {
                Ok(copied) => return Ok(copied),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Hindered) => self.follow(tell)?,
            }
        }
        let (used, blocks) = self.storage.log.usage();
        Err(Error::Unavailable(format!(
            "the copy was given up: {TRIES} times the log ({used} of {blocks} blocks in use) or the free pages of object_buffer had to be kept for \
             writers before the rest was copied. Copy when less is written, or with a larger log"
        )))
    }

    /// A checkpoint that is due anyhow comes first: then the log has most room while it is held.
    fn wait_for_checkpoint(&mut self, tell: OnProgress<'_>) -> Result<()> {
        let Storage { world, log, checkpointer, .. } = &*self.storage;
        let since = world.clock.now();
        while log.wants_checkpoint() && world.clock.now() - since < PATIENCE {
            if let Some(error) = checkpointer.failure() {
                return Err(error);
            }
            let moved = checkpointer.progress.ticket();
            world.sched.wait(&checkpointer.progress, moved, Some(LOOK));
            if !tell(self.progress) {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }

    fn try_finish(&mut self, tell: OnProgress<'_>) -> std::result::Result<Copied, Stop> {
        let storage = self.storage.clone();
        self.holds += 1;
        let since = storage.world.clock.now();
        // Before the map: see `tier/src/objects/snapshots.rs`.
        let cold = storage.cold.clone();
        let _objects = cold.as_ref().map(|cold| cold.snapshots.hold());
        let (log, slots) = (HeldLog::begin(&storage), HeldSlots::begin(&storage));
        let newest = storage.map.write_copy(self.target.map()).map_err(failed)?;
        storage.log.make_durable(storage.log.appended())?;
        let (end, rings) = storage.log.durable_blocks();
        assert!(newest <= end, "the map in memory has changes at {newest}, the log is durable to {end}");
        // Behind the end: it says of ids how many were given out, at least.
        let mut superblock = storage.checkpointer.superblock();
        self.rings.end_at(rings);
        self.copy_log(Some(&|| log.hinders() || slots.hinders()), tell)?;
        drop(log);
        // A try before this one may have left some, too.
        self.choose_written();
        self.copy_left(Some(&|| slots.hinders()), tell)?;
        drop(slots);
        let held = storage.world.clock.now() - since;
        superblock.attested = end;
        let snapshot = cold.as_ref().map(|cold| cold.record_snapshot(self.target.id())).transpose()?;
        self.storage.archiver.iter().for_each(|archiver| archiver.note_copy());
        if let Err(error) = self.target.finish(superblock, storage.world.random.as_ref()) {
            if let (Some(cold), Some(snapshot)) = (&cold, snapshot) {
                _ = cold.snapshots.remove(snapshot.id);
            }
            return Err(error.into());
        }
        let (bytes, rounds, holds) = (self.bytes, self.rounds, self.holds);
        Ok(Copied { end, bytes, rounds, holds, held, snapshot })
    }

    /// What was written since the last look is to be copied, too.
    fn choose_written(&mut self) {
        let chosen = self.storage.map.taken_of(&self.written);
        if self.left.len() < chosen.len() {
            self.left.resize(chosen.len(), 0);
        }
        self.left.iter_mut().zip(&chosen).for_each(|(left, chosen)| *left |= chosen);
        self.progress.all = self.progress.done + count(&self.left) * PAGE_SIZE as u64;
    }

    /// Whether to go on after a piece.
    fn goes_on(&mut self, hold: Hinders<'_>, tell: OnProgress<'_>) -> std::result::Result<(), Stop> {
        if !tell(self.progress) {
            return Err(Error::Cancelled.into());
        }
        match hold.is_some_and(|hinders| hinders()) {
            true => Err(Stop::Hindered),
            false => Ok(()),
        }
    }

    fn copy_left(&mut self, hold: Hinders<'_>, tell: OnProgress<'_>) -> std::result::Result<(), Stop> {
        self.target.make_room(last(&self.left) as u64 * PAGE_SIZE as u64)?;
        let mut slots = Vec::with_capacity(CHUNK);
        for word in 0..self.left.len() {
            while self.left[word] != 0 {
                let bit = self.left[word].trailing_zeros();
                self.left[word] &= self.left[word] - 1;
                slots.push(Slot(word as u32 * 64 + bit));
                if slots.len() == CHUNK {
                    self.copy_slots(&slots)?;
                    slots.clear();
                    self.goes_on(hold, tell)?;
                }
            }
        }
        self.copy_slots(&slots)?;
        self.goes_on(hold, tell)
    }

    fn copy_slots(&mut self, slots: &[Slot]) -> Result<()> {
        let images = &mut self.images[..slots.len() * PAGE_SIZE];
        let read = self.storage.buffer.read_for_copy(slots, images).map_err(failed)?;
        let bytes = read * PAGE_SIZE;
        ObjectBuffer::write_images(self.target.pages(), &slots[..read], &images[..bytes]).map_err(failed)?;
        self.bytes += bytes as u64;
        self.progress.done += (slots.len() * PAGE_SIZE) as u64;
        Ok(())
    }

    fn copy_log(&mut self, hold: Hinders<'_>, tell: OnProgress<'_>) -> std::result::Result<(), Stop> {
        let starts = self.storage.checkpointer.superblock().starts;
        if hold.is_none() {
            self.rings.end_at(self.storage.log.durable_blocks().1);
        }
        for (partition, start) in starts.into_iter().enumerate() {
            while let Some(blocks) = self.rings.next(partition, start) {
                let copied = self.rings.copy(
                    (&self.storage.log, &self.target),
                    partition,
                    blocks,
                    &mut self.images,
                    hold.is_some(),
                )?;
                self.bytes += copied;
                self.goes_on(hold, tell)?;
            }
        }
        Ok(())
    }
}

/// Slots that are chosen.
fn count(chosen: &[u64]) -> u64 {
    chosen.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// One more than the highest slot that is chosen.
fn last(chosen: &[u64]) -> usize {
    let word = chosen.iter().rposition(|word| *word != 0);
    word.map_or(0, |at| (at + 1) * 64 - chosen[at].leading_zeros() as usize)
}
