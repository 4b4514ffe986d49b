//! The store's fence: one object that names the instance that owns the store and its present writer.
//!
//! The object `epoch` under the store's prefix names the instance, its lineage, the writer epoch, and a random number drawn at
//! each open. It is taken by conditional write when the store can first be reached, before the first put; it is read again before
//! anything is deleted (invariant 8). An instance that finds another writer's epoch there is fenced: from then on it publishes
//! and deletes nothing. A wrong bucket is refused with an error that says so.
//!
//! A volume restored from an older copy raises its epoch at each start and would eventually exceed that of the instance it was
//! copied from. So the epoch does not decide: a volume records in its superblock the last writers that took the store, as far as
//! it knows ([`Takers`]), and takes the store only from one of them. Any other writer found there has superseded the volume,
//! which then stays fenced for ever. The intention to take the store is durable before the store is contacted, so a volume knows
//! its own writers after a crash at any point, and a start that does not reach the store changes nothing.
//!
//! A copy may have been made while the writer held the store, and restored after that writer continued: then the writer found is
//! known. So a *mark* is incremented with it, first on the volume and then in the store, before it publishes or deletes anything
//! when the last increment is [`MARK_EVERY`] ago. If the store's mark is above the volume's, the store was written to after the
//! copy was made. One case is not detected: that after the copy objects were published or deleted only within this time (plus the
//! duration of a request).
//!
//! If the newer copy is lost, an operator can make the volume take the store all the same ([`adopt`]).
//!
//! The start does not wait for the store: before it has taken the store, an instance runs on memory, flash and volume, and reads
//! objects; only puts and deletions need the fence.
//!
//! Crash: the epoch object stays as it was, or names the writer that was recorded before. A lost reply is resolved by reading the
//! object: the number drawn at the open says whether it is ours.
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic `TERRAEPO` |
//! | 8 | 4 | format version: 2 with a mark, else 1 |
//! | 12 | 4 | CRC-32C of the rest |
//! | 16 | 16 | instance |
//! | 32 | 16 | lineage |
//! | 48 | 8 | number drawn at the open |
//! | 56 | 4 | writer epoch |
//! | 60 | 4 | mark |
//!
//! The writer's name, for the message to whom it keeps out, is in an object of its own ([`holder`]).
//!
//! Locks: `state`, for memory work. Two threads that take the store at once do it twice; that is idempotent.

pub mod adopt;
pub mod holder;

use std::sync::Arc;
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::store::{Bytes, ObjectStore, Purpose, StoreError};

/// The key of the epoch object.
pub const KEY: &str = "epoch";
const MAGIC: [u8; 8] = *b"TERRAEPO";
const VERSION: u32 = 2;
const LEN: usize = 64;
/// Number of failed conditional writes after which the store is reported as unavailable.
const TRIES: usize = 8;
/// Maximum age of the mark when anything is published or deleted, in nanoseconds.
pub const MARK_EVERY: Nanos = 10_000_000_000;

/// A writer's identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writer {
    pub instance: u128,
    pub lineage: u128,
    pub epoch: u32,
    /// A random number drawn at each open.
    pub nonce: u64,
}

/// The content of the epoch object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochContent {
    pub writer: Writer,
    /// Incremented while the writer publishes and deletes.
    pub mark: u32,
}

/// A writer that took the store from this volume, or intended to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taker {
    pub epoch: u32,
    /// The number drawn at its open. 0: any writer up to the epoch, for volumes that did not record their takers.
    pub nonce: u64,
    /// The highest mark that it may have reached.
    pub mark: u32,
}

impl Taker {
    fn is(&self, held: &EpochContent) -> bool {
        let writer = &held.writer;
        let same = match self.nonce {
            0 => writer.epoch <= self.epoch,
            nonce => (writer.epoch, writer.nonce) == (self.epoch, nonce),
        };
        same && held.mark <= self.mark
    }

    fn is_same(&self, other: &Taker) -> bool {
        (self.epoch, self.nonce) == (other.epoch, other.nonce)
    }

    /// The takers to keep when `kept` are recorded and `takers` are to be: marks never decrease. Nor does the writer found in the
    /// store go back within one open, two of whose workers record at once: the store went from older to newer writers, so the
    /// slower worker's put fails, and a later start may drop takers beside an older writer.
    pub fn merged(kept: &[Taker], takers: &[Taker]) -> Vec<Taker> {
        let mark = |taker: &Taker| {
            let same = kept.iter().filter(|k| k.is_same(taker));
            same.map(|k| k.mark).fold(taker.mark, u32::max)
        };
        let is_one_open = kept.last().zip(takers.last()).is_some_and(|(k, t)| k.is_same(t));
        let found = kept.first().filter(|k| is_one_open && takers.first().is_some_and(|t| t.epoch < k.epoch));
        let later = takers.iter().filter(|taker| found.is_none_or(|found| taker.epoch > found.epoch));
        found.into_iter().chain(later).map(|taker| Taker { mark: mark(taker), ..*taker }).collect()
    }
}

/// Maximum number of takers that a volume records.
pub const TAKERS_MAX: usize = 15;

/// Where a volume records which of its writers may be found in the store: first the one found last, then, in order, those that
/// intended to take it since.
pub trait Takers: Send + Sync {
    fn known(&self) -> Vec<Taker>;
    /// Durable when it returns, as [`Taker::merged`] says. An Err gives the reason for failure; it is not retried.
    fn note(&self, takers: &[Taker]) -> Result<(), String>;
}

/// Takers in memory: for offline inspection, and for tests.
#[derive(Default)]
pub struct TakersInMemory(Mutex<Vec<Taker>, { Mutexes::Fence as u8 }>);

impl TakersInMemory {
    pub fn of(takers: &[Taker]) -> Arc<TakersInMemory> {
        Arc::new(TakersInMemory(Mutex::new(takers.to_vec())))
    }
}

impl Takers for TakersInMemory {
    fn known(&self) -> Vec<Taker> {
        self.0.lock().clone()
    }
    fn note(&self, takers: &[Taker]) -> Result<(), String> {
        let mut kept = self.0.lock();
        *kept = Taker::merged(&kept, takers);
        Ok(())
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum FenceError {
    #[error(
        "the object store {store} belongs to instance {found:032x}{holder}, this is instance {mine:032x}: \
         is it the right bucket and prefix?"
    )]
    OtherInstance { store: String, found: u128, mine: u128, holder: String },
    #[error(
        "the object store {store} belongs to lineage {found:032x} of this instance{holder}, this is lineage {mine:032x}: \
         a restored or copied instance needs a prefix of its own"
    )]
    OtherLineage { store: String, found: u128, mine: u128, holder: String },
    #[error(
        "the object store {store} holds nothing of this instance, which has an object store: is it mounted, is it the \
         right bucket and prefix?"
    )]
    Empty { store: String },
    /// Another process opened a copy of the volume. `holder`, here and in others: its name in brackets, or nothing (`holder`).
    #[error("fenced: writer epoch {found}{holder} has taken the object store {store}, this is epoch {mine}")]
    Fenced { store: String, found: u32, mine: u32, holder: String },
    /// Another copy of the volume continued while this one was not running.
    #[error(
        "fenced: another copy of this volume, as writer epoch {found}{holder}, has written to the object store {store} since \
         this one (now epoch {mine}) did: it puts and deletes nothing there, and objects that it needs may be gone; \
         go on with that other copy, or, if it is lost, see `terrace adopt`"
    )]
    Passed { store: String, found: u32, mine: u32, holder: String },
    /// Another copy of the volume writes while this one is to adopt the store.
    #[error(
        "writer epoch {found}{holder} has written to the object store {store} since it was looked at: another copy of this \
         volume runs; stop it first"
    )]
    Moved { store: String, found: u32, holder: String },
    #[error("it cannot be noted on the volume who takes the object store: {0}")]
    Unnoted(String),
    #[error("object epoch in {store} is corrupt: {what}")]
    Corrupt { store: String, what: &'static str },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FenceError {
    /// Whether retrying cannot help. An empty store may be one that is not mounted yet.
    pub fn is_final(&self) -> bool {
        !matches!(self, FenceError::Store(_) | FenceError::Empty { .. })
    }

    /// It stays so until a person mounts, repairs or configures something.
    pub fn needs_person(&self) -> bool {
        match self {
            FenceError::Store(error) => matches!(error, StoreError::Refused { .. }),
            _ => true,
        }
    }
}

impl Writer {
    /// With the writer's initial mark.
    pub fn taker(&self) -> Taker {
        EpochContent { writer: *self, mark: 0 }.taker()
    }
}

impl EpochContent {
    fn taker(&self) -> Taker {
        Taker { epoch: self.writer.epoch, nonce: self.writer.nonce, mark: self.mark }
    }

    /// The bytes of the epoch object.
    pub fn bytes(&self) -> Vec<u8> {
        self.encode().to_vec()
    }

    /// The content of an epoch object; None if it is not one.
    pub fn read(bytes: &[u8]) -> Option<EpochContent> {
        EpochContent::decode(bytes).ok()
    }

    pub(crate) fn encode(&self) -> [u8; LEN] {
        let (mut b, writer) = ([0; LEN], &self.writer);
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&(if self.mark > 0 { VERSION } else { 1 }).to_le_bytes());
        b[16..32].copy_from_slice(&writer.instance.to_le_bytes());
        b[32..48].copy_from_slice(&writer.lineage.to_le_bytes());
        b[48..56].copy_from_slice(&writer.nonce.to_le_bytes());
        b[56..60].copy_from_slice(&writer.epoch.to_le_bytes());
        b[60..].copy_from_slice(&self.mark.to_le_bytes());
        let crc = crc32c::crc32c(&b[16..]);
        b[12..16].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Accepts any bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<EpochContent, &'static str> {
        let Ok(b) = <[u8; LEN]>::try_from(bytes) else { return Err("its length is wrong") };
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        let u128_at = |i: usize| u128::from(u64_at(i)) | u128::from(u64_at(i + 8)) << 64;
        if b[..8] != MAGIC {
            return Err("it is not ours");
        }
        if !(1..=VERSION).contains(&u32_at(8)) {
            return Err("its format version is not known");
        }
        if u32_at(12) != crc32c::crc32c(&b[16..]) {
            return Err("its checksum is wrong");
        }
        let writer =
            Writer { instance: u128_at(16), lineage: u128_at(32), nonce: u64_at(48), epoch: u32_at(56) };
        let held = EpochContent { writer, mark: u32_at(60) };
        if held.encode() != b { Err("it has bytes that nobody writes") } else { Ok(held) }
    }
}

#[derive(Clone)]
enum FenceState {
    Untaken,
    Taken {
        mark: u32,
        /// When the mark was incremented to that value.
        at: Nanos,
        /// A thread is incrementing it.
        moving: bool,
    },
    /// Final: nothing is published or deleted any more.
    Lost(FenceError),
}

/// What to do about the epoch object found.
enum EpochAction {
    Put,
    /// It is as it should be.
    Done,
}

pub struct Fence {
    store: Arc<dyn ObjectStore>,
    writer: Writer,
    /// The instance has taken a store before: an empty one is the wrong one.
    bound: bool,
    takers: Arc<dyn Takers>,
    /// As at the open.
    known: Vec<Taker>,
    /// Our name; empty: we have none.
    who: String,
    state: Mutex<FenceState, { Mutexes::Fence as u8 }>,
}

impl Fence {
    /// Touches nothing yet. `bound`: the instance has taken a store before, or its map names objects.
    pub fn new(store: Arc<dyn ObjectStore>, writer: Writer, bound: bool, takers: Arc<dyn Takers>) -> Fence {
        let known = takers.known();
        let who = String::new();
        Fence { store, writer, bound, takers, known, who, state: Mutex::new(FenceState::Untaken) }
    }

    /// As [`Fence::new`], with a name that is told to others.
    pub fn named(self, who: String) -> Fence {
        Fence { who, ..self }
    }

    /// Its name in brackets, with a space before it; empty if it has none.
    fn holder(&self, found: &Writer) -> String {
        holder::of(&*self.store, found).map_or(String::new(), |who| format!(" ({who})"))
    }

    pub fn writer(&self) -> Writer {
        self.writer
    }

    /// Why nothing is published any more, if that is so.
    pub fn lost(&self) -> Option<FenceError> {
        match &*self.state.lock() {
            FenceState::Lost(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// Ensures that the store is ours to write to. The store is contacted once; later calls answer from memory.
    pub fn take(&self) -> Result<(), FenceError> {
        match &*self.state.lock() {
            FenceState::Taken { .. } => return Ok(()),
            FenceState::Lost(error) => return Err(error.clone()),
            FenceState::Untaken => {}
        }
        let result = self.try_take();
        if result.is_ok() && !self.who.is_empty() {
            // Without the name others are refused all the same.
            _ = holder::put(&*self.store, &self.writer, &self.who);
        }
        self.note(result)
    }

    /// To be called before anything is published or deleted: ensures that the store is ours, and that copies of the volume made
    /// before can be detected. Contacts the store every [`MARK_EVERY`].
    pub fn keep_up(&self, now: Nanos) -> Result<(), FenceError> {
        self.take()?;
        let next = match &mut *self.state.lock() {
            FenceState::Taken { mark, at, moving } if !*moving && now >= at.saturating_add(MARK_EVERY) => {
                *moving = true;
                mark.saturating_add(1)
            }
            _ => return Ok(()),
        };
        let result = if crate::planted::MARK_STANDS.on() { Ok(()) } else { self.move_mark(next) };
        if let FenceState::Taken { mark, at, moving } = &mut *self.state.lock() {
            *moving = false;
            if result.is_ok() {
                (*mark, *at) = (next, now);
            }
        }
        self.note(result)
    }

    /// First on the volume, then in the store.
    fn move_mark(&self, mark: u32) -> Result<(), FenceError> {
        let mine = EpochContent { writer: self.writer, mark };
        let mut takers = self.takers.known();
        takers.retain(|taker| !taker.is_same(&mine.taker()));
        takers.push(mine.taker());
        self.note_takers(&takers)?;
        self.put(&mine, &|found| match found {
            Some(found) if found.writer != self.writer => Err(self.fenced(found.writer)),
            Some(found) if found.mark >= mark => Ok(EpochAction::Done),
            Some(_) => Ok(EpochAction::Put),
            None => Err(FenceError::Empty { store: self.store.describe() }),
        })
    }

    /// Reads the epoch object again, as before any deletion, to check that we are still the writer.
    pub fn check(&self) -> Result<(), FenceError> {
        self.take()?;
        let found = match self.store.get(Purpose::Epoch, KEY) {
            Ok((bytes, _)) => self.read(&bytes),
            Err(StoreError::Absent { .. }) => Err(FenceError::Empty { store: self.store.describe() }),
            Err(error) => return Err(error.into()),
        };
        let is_mine = |found: EpochContent| match found.writer == self.writer {
            true => Ok(()),
            false => Err(self.fenced(found.writer)),
        };
        self.note(found.and_then(is_mine))
    }

    /// The present writer of the store, without taking it; None: no instance has ever taken it. For inspecting a stopped
    /// instance: an error for which [`FenceError::is_final`] holds says that the store is not this instance's.
    pub fn look(&self) -> Result<Option<EpochContent>, FenceError> {
        match self.store.get(Purpose::Epoch, KEY) {
            Ok((bytes, _)) => self.read(&bytes).map(Some),
            Err(StoreError::Absent { .. }) if self.bound => {
                Err(FenceError::Empty { store: self.store.describe() })
            }
            Err(StoreError::Absent { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the writer is one of this volume: this one, or one before it.
    pub fn knows(&self, found: &EpochContent) -> bool {
        found.writer == self.writer || self.known.iter().any(|taker| taker.is(found))
    }

    /// Records that we are about to take the store, in which `found` was. If two threads do this at once, one known taker too
    /// many may be recorded, which is harmless.
    fn note_intention(&self, found: Option<&EpochContent>) -> Result<(), FenceError> {
        let mut takers = match found {
            // None of them can take it any more: they intended to take it from an earlier writer.
            Some(found) if !self.known.first().is_some_and(|first| first.is(found)) => vec![found.taker()],
            // A put of one of the others may be in flight.
            _ => self.known.clone(),
        };
        if takers.len() == TAKERS_MAX {
            takers.remove(1); // that many starts ago: no put of it is in flight
        }
        takers.push(self.writer.taker());
        self.note_takers(&takers)
    }

    fn note_takers(&self, takers: &[Taker]) -> Result<(), FenceError> {
        if self.takers.known() == takers || crate::planted::TAKER_NOT_NOTED.on() {
            return Ok(());
        }
        self.takers.note(takers).map_err(FenceError::Unnoted)
    }

    fn note(&self, result: Result<(), FenceError>) -> Result<(), FenceError> {
        let mut state = self.state.lock();
        match &result {
            Ok(()) if matches!(*state, FenceState::Untaken) => {
                *state = FenceState::Taken { mark: 0, at: 0, moving: false };
            }
            Err(error) if error.is_final() => *state = FenceState::Lost(error.clone()),
            _ => {}
        }
        result
    }

    fn fenced(&self, found: Writer) -> FenceError {
        let holder = self.holder(&found);
        FenceError::Fenced {
            store: self.store.describe(),
            found: found.epoch,
            mine: self.writer.epoch,
            holder,
        }
    }

    /// The content of the epoch object, if the store is this instance's.
    fn read(&self, bytes: &[u8]) -> Result<EpochContent, FenceError> {
        let store = self.store.describe();
        let found =
            EpochContent::decode(bytes).map_err(|what| FenceError::Corrupt { store: store.clone(), what })?;
        let (writer, mine) = (found.writer, self.writer);
        if writer.instance != mine.instance {
            let holder = self.holder(&writer);
            return Err(FenceError::OtherInstance {
                store,
                found: writer.instance,
                mine: mine.instance,
                holder,
            });
        }
        if writer.lineage != mine.lineage {
            let holder = self.holder(&writer);
            return Err(FenceError::OtherLineage {
                store,
                found: writer.lineage,
                mine: mine.lineage,
                holder,
            });
        }
        Ok(found)
    }

    fn try_take(&self) -> Result<(), FenceError> {
        self.put(&EpochContent { writer: self.writer, mark: 0 }, &|found| {
            let Some(found) = found else {
                if self.bound {
                    return Err(FenceError::Empty { store: self.store.describe() });
                }
                return self.note_intention(None).map(|()| EpochAction::Put);
            };
            if found.writer == self.writer {
                return Ok(EpochAction::Done); // the reply was lost, the effect was not
            }
            if !self.knows(found) && !crate::planted::PASSED_IGNORED.on() {
                let (store, mine) = (self.store.describe(), self.writer.epoch);
                let holder = self.holder(&found.writer);
                return Err(FenceError::Passed { store, found: found.writer.epoch, mine, holder });
            }
            if found.writer.epoch >= self.writer.epoch {
                return Err(self.fenced(found.writer));
            }
            self.note_intention(Some(found)).map(|()| EpochAction::Put)
        })
    }

    /// Replaces the existing epoch object, as `turn` decides for it.
    fn put(
        &self,
        held: &EpochContent,
        turn: &dyn Fn(Option<&EpochContent>) -> Result<EpochAction, FenceError>,
    ) -> Result<(), FenceError> {
        let body = held.encode();
        let mut last = None;
        for _ in 0..TRIES {
            let (found, version) = match self.store.get(Purpose::Epoch, KEY) {
                Ok((bytes, version)) => (Some(self.read(&bytes)?), Some(version)),
                Err(StoreError::Absent { .. }) => (None, None),
                Err(error) => return Err(error.into()),
            };
            if let EpochAction::Done = turn(found.as_ref())? {
                return Ok(());
            }
            let put = match &version {
                Some(version) => self.store.put_if_match(Purpose::Epoch, KEY, &body, version),
                None => self.store.put_if_absent(Purpose::Epoch, KEY, &[Bytes::copy_from_slice(&body)]),
            };
            match put {
                Ok(_) => return Ok(()),
                // Another writer was faster, or there was no answer: read it again.
                Err(error @ (StoreError::Conflict { .. } | StoreError::Unknown { .. })) => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        let cause = last.map_or(String::new(), |e| e.to_string());
        Err(StoreError::Unavailable { key: KEY.to_string(), cause }.into())
    }
}

#[cfg(test)]
mod tests;
