//! Snapshots: which superseded objects must stay, because a copy of the volume names them.
//!
//! A snapshot is a boundary: the writer epoch and the last object sequence that had been given out when the copy's log ended. Every object
//! that the copy's map names has a key at or below the boundary, because sequences only grow and a key is drawn before its object is put.
//! So a snapshot costs a few bytes, whatever the size of the instance, and the collector needs one comparison for each object. It keeps
//! too much rather than too little: an object that was superseded shortly before the boundary, or put and never published, stays as well.
//!
//! The snapshots are recorded in the store, in the object `snapshots` beside the epoch object, because what they protect is there: a volume
//! that is lost, replaced by an older copy or adopted does not take their protection away. The object is changed by conditional write.
//! Every change is by the store's writer, or by an operator's command that removes a snapshot; a writer adds one only while it is the
//! store's owner *after* the object was changed (`engine/src/storage/cold.rs`), and a new owner reads the object only after it has taken
//! the store. So no owner deletes with an older list than the one that names the snapshot.
//!
//! From before the copy's map is written until the snapshot is recorded, nothing is deleted at all ([`Snapshots::hold`]). An object that
//! the map still names at the end of the log can only be superseded after it, so no deletion that was under way when the hold began is of
//! an object that the copy names.
//!
//! An instance that was restored has, under its prefix, objects of the lineage that it was restored from: they were copied there for it
//! alone. The object `snapshots` lists these lineages, and the collector deletes their superseded objects as it does its own.
//!
//! Crash: a snapshot that was recorded for a copy that was not completed stays until an operator removes it. A lost reply is resolved by
//! reading the object.
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic `TERRASNP` |
//! | 8 | 4 | format version: 1 |
//! | 12 | 4 | CRC-32C of the rest |
//! | 16 | 4 | number of snapshots |
//! | 20 | 4 | number of lineages |
//! | 24 | 56 × snapshots | id u128, lineage u128, sequence u64, made (Unix time in milliseconds) u64, writer epoch u32, zero u32 |
//! | | 16 × lineages | lineages whose objects were restored to this prefix |
//!
//! Locks: `state`, for memory work only.

use crate::address::ObjectKey;
use crate::planted;
use std::sync::Arc;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::store::{Bytes, ObjectStore, Purpose, StoreError, Version};

/// The key of the object.
pub const KEY: &str = "snapshots";
const MAGIC: [u8; 8] = *b"TERRASNP";
const VERSION: u32 = 1;
const HEAD: usize = 24;
const ENTRY: usize = 56;
/// Snapshots that a store records at most.
pub const SNAPSHOTS_MAX: usize = 256;
/// Lineages whose objects a prefix has at most, beside its owner's.
pub const LINEAGES_MAX: usize = 64;
/// Conditional writes that fail before the store is reported as unavailable.
const TRIES: usize = 8;

/// A boundary: every object of the store's owner that was put up to it stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The instance id of the copy that it protects.
    pub id: u128,
    /// The owner's lineage.
    pub lineage: u128,
    /// The last key that had been drawn.
    pub epoch: u32,
    pub sequence: u64,
    /// Unix time in milliseconds.
    pub made_ms: u64,
}

impl Snapshot {
    /// Whether the copy may name the object. Those of other lineages are all older: no writer puts them any more.
    pub fn names(&self, key: &ObjectKey) -> bool {
        key.lineage != self.lineage || (key.epoch, key.sequence) <= (self.epoch, self.sequence)
    }
}

/// The content of the object `snapshots`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Registry {
    pub snapshots: Vec<Snapshot>,
    /// Lineages other than the owner's whose objects under this prefix are the owner's.
    pub lineages: Vec<u128>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum SnapshotError {
    #[error(
        "object {KEY} in {store} is corrupt: {what}; nothing is deleted from the store before it is repaired or removed"
    )]
    Corrupt { store: String, what: &'static str },
    #[error(
        "{store} records {SNAPSHOTS_MAX} snapshots already: remove those that nothing needs (terrace snapshot)"
    )]
    Full { store: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Registry {
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(HEAD + ENTRY * self.snapshots.len() + 16 * self.lineages.len());
        b.extend_from_slice(&MAGIC);
        b.extend_from_slice(&VERSION.to_le_bytes());
        b.extend_from_slice(&[0; 4]);
        b.extend_from_slice(&(self.snapshots.len() as u32).to_le_bytes());
        b.extend_from_slice(&(self.lineages.len() as u32).to_le_bytes());
        for one in &self.snapshots {
            b.extend_from_slice(&one.id.to_le_bytes());
            b.extend_from_slice(&one.lineage.to_le_bytes());
            b.extend_from_slice(&one.sequence.to_le_bytes());
            b.extend_from_slice(&one.made_ms.to_le_bytes());
            b.extend_from_slice(&one.epoch.to_le_bytes());
            b.extend_from_slice(&[0; 4]);
        }
        self.lineages.iter().for_each(|lineage| b.extend_from_slice(&lineage.to_le_bytes()));
        let crc = crc32c::crc32c(&b[16..]);
        b[12..16].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Accepts any bytes.
    pub fn decode(b: &[u8]) -> Result<Registry, &'static str> {
        if b.len() < HEAD {
            return Err("it is too short");
        }
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        let u128_at = |i: usize| u128::from(u64_at(i)) | u128::from(u64_at(i + 8)) << 64;
        if b[..8] != MAGIC {
            return Err("it is not ours");
        }
        if u32_at(8) != VERSION {
            return Err("its format version is not known");
        }
        if u32_at(12) != crc32c::crc32c(&b[16..]) {
            return Err("its checksum is wrong");
        }
        let (snapshots, lineages) = (u32_at(16) as usize, u32_at(20) as usize);
        if snapshots > SNAPSHOTS_MAX || lineages > LINEAGES_MAX {
            return Err("it has more entries than there can be");
        }
        if b.len() != HEAD + ENTRY * snapshots + 16 * lineages {
            return Err("its length is wrong");
        }
        let snapshot = |i: usize| {
            let at = HEAD + ENTRY * i;
            let (id, lineage) = (u128_at(at), u128_at(at + 16));
            Snapshot {
                id,
                lineage,
                sequence: u64_at(at + 32),
                made_ms: u64_at(at + 40),
                epoch: u32_at(at + 48),
            }
        };
        let lineage = |i: usize| u128_at(HEAD + ENTRY * snapshots + 16 * i);
        let found = Registry {
            snapshots: (0..snapshots).map(snapshot).collect(),
            lineages: (0..lineages).map(lineage).collect(),
        };
        if found.encode() != b { Err("it has bytes that nobody writes") } else { Ok(found) }
    }

    /// Whether any snapshot may name the object.
    pub fn names(&self, key: &ObjectKey) -> bool {
        self.snapshots.iter().any(|one| one.names(key))
    }
}

/// The store's snapshots; none if it has never had any.
pub fn read(store: &dyn ObjectStore) -> Result<(Registry, Option<Version>), SnapshotError> {
    match store.get(Purpose::Epoch, KEY) {
        Ok((bytes, version)) => match Registry::decode(&bytes) {
            Ok(registry) => Ok((registry, Some(version))),
            Err(what) => Err(SnapshotError::Corrupt { store: store.describe(), what }),
        },
        Err(StoreError::Absent { .. }) => Ok((Registry::default(), None)),
        Err(error) => Err(error.into()),
    }
}

/// Changes the store's snapshots as `change` does, which may be called several times, each time with the present content. Returns the new
/// content.
pub fn change(store: &dyn ObjectStore, change: &dyn Fn(&mut Registry)) -> Result<Registry, SnapshotError> {
    let mut last = None;
    for _ in 0..TRIES {
        let (found, version) = read(store)?;
        let mut next = found.clone();
        change(&mut next);
        if next == found {
            return Ok(found); // also: the reply was lost, the effect was not
        }
        if next.snapshots.len() > SNAPSHOTS_MAX || next.lineages.len() > LINEAGES_MAX {
            return Err(SnapshotError::Full { store: store.describe() });
        }
        let body = next.encode();
        let put = match &version {
            Some(version) => store.put_if_match(Purpose::Epoch, KEY, &body, version),
            None => store.put_if_absent(Purpose::Epoch, KEY, &[Bytes::copy_from_slice(&body)]),
        };
        match put {
            Ok(_) => return Ok(next),
            Err(error @ (StoreError::Conflict { .. } | StoreError::Unknown { .. })) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    let cause = last.map_or(String::new(), |error| error.to_string());
    Err(StoreError::Unavailable { key: KEY.to_string(), cause }.into())
}

/// Removes a snapshot. False: there was none. The store's owner notices within a minute, and deletes what no other one names.
pub fn remove(store: &dyn ObjectStore, id: u128) -> Result<bool, SnapshotError> {
    let had = read(store)?.0.snapshots.iter().any(|one| one.id == id);
    change(store, &|registry| registry.snapshots.retain(|one| one.id != id))?;
    Ok(had)
}

#[derive(Default)]
struct State {
    /// What the store records; None: it was not read yet.
    known: Option<Registry>,
    /// Number of changes by this instance: what was read before one is out of date.
    changes: u64,
    held: u32,
}

/// The snapshots of the store that an instance writes to.
pub struct Snapshots {
    store: Arc<dyn ObjectStore>,
    state: Mutex<State, { Mutexes::Objects as u8 }>,
}

/// Nothing is deleted from the store as long as this lives.
pub struct Held(Arc<Snapshots>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state.lock().held -= 1;
    }
}

impl Snapshots {
    pub fn new(store: Arc<dyn ObjectStore>) -> Snapshots {
        Snapshots { store, state: Mutex::new(State::default()) }
    }

    pub fn hold(self: &Arc<Snapshots>) -> Held {
        self.state.lock().held += 1;
        Held(self.clone())
    }

    pub fn is_held(&self) -> bool {
        self.state.lock().held > 0 && !planted::SNAPSHOT_HOLD_IGNORED.on()
    }

    /// Whether the object must stay. What is not known is taken for named.
    pub fn name(&self, key: &ObjectKey) -> bool {
        let state = self.state.lock();
        state.known.as_ref().is_none_or(|known| known.names(key) && !planted::SNAPSHOT_IGNORED.on())
    }

    /// Whether objects of this lineage, which is not the owner's, are the owner's all the same.
    pub fn own(&self, lineage: u128) -> bool {
        self.state.lock().known.as_ref().is_some_and(|known| known.lineages.contains(&lineage))
    }

    pub fn lineages(&self) -> Vec<u128> {
        self.state.lock().known.as_ref().map_or(Vec::new(), |known| known.lineages.clone())
    }

    /// As last read.
    pub fn list(&self) -> Vec<Snapshot> {
        self.state.lock().known.as_ref().map_or(Vec::new(), |known| known.snapshots.clone())
    }

    /// Reads them from the store, once. To be called when the store has been taken, and before anything is deleted.
    pub fn load(&self) -> Result<(), SnapshotError> {
        let is_known = self.state.lock().known.is_some();
        if is_known { Ok(()) } else { self.refresh() }
    }

    /// Reads them again: an operator may have removed some.
    pub fn refresh(&self) -> Result<(), SnapshotError> {
        let before = self.state.lock().changes;
        let (found, _) = read(&*self.store)?;
        let mut state = self.state.lock();
        if state.changes == before {
            state.known = Some(found);
        }
        Ok(())
    }

    /// Records a snapshot; durable when it returns. After an error it may be recorded all the same.
    pub fn add(&self, snapshot: Snapshot) -> Result<(), SnapshotError> {
        let recorded = change(&*self.store, &|registry| {
            if !registry.snapshots.contains(&snapshot) {
                registry.snapshots.push(snapshot);
            }
        })?;
        self.note(recorded);
        Ok(())
    }

    pub fn remove(&self, id: u128) -> Result<(), SnapshotError> {
        let recorded = change(&*self.store, &|registry| registry.snapshots.retain(|one| one.id != id))?;
        self.note(recorded);
        Ok(())
    }

    fn note(&self, recorded: Registry) {
        let mut state = self.state.lock();
        state.changes += 1;
        state.known = Some(recorded);
    }
}

#[cfg(test)]
mod tests;
