//! Attached sources: where an instance reads objects that are not in its own store.
//!
//! A restored instance can be served before its objects are copied: they stay in the repository of its backup, and are read from there. A clone reads
//! its old objects from the store of the instance that it was made of. In both cases the instance has a store of its own, to which it puts and from which
//! it deletes; a source is opened to read only, and nothing in it changes. What is read where, follows from the key: each lineage other than the
//! instance's own is in one source, or was copied.
//!
//! The object `attached` in the instance's own store lists the sources ([`record`]), so whoever reads the instance's objects with its store (the
//! instance itself, a check, a backup of its copy) finds them. It is read when an object is first found absent, and by the worker that copies
//! ([`fill`]); an instance that never had a source pays one request a start.
//!
//! The objects stay in the source because of a *reference* there that has the instance's id: in a repository the object `attached/<id>`, which names the
//! backup, in an instance's store a snapshot. It is made before the instance is.
//!
//! States: *unknown* → *none*, or *attached*; an attached one that was filled becomes *none* for readers when its record says `releasing`, then the
//! references are removed, and at last the record. A crash in between repeats the rest.
//!
//! While objects are copied, in the order of their keys, those below [`Attached::set_rest`] are read from the own store, the others from their source.
//!
//! Locks: `state`, for memory work only.

pub mod fill;
pub mod record;

use crate::address::ObjectKey;
use crate::objects::snapshots;
use record::{Kind, Record, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::store::{ObjectStore, Purpose, StoreError, Version};
use terrace_io::traffic::Urgency;

/// Requests for copies and of the record, counted apart from others.
pub fn purpose() -> Purpose {
    Purpose::register("attached", Urgency::Background).unwrap_or(Purpose::Scrub)
}

/// A source, opened.
pub struct Opened {
    pub source: Source,
    pub store: Arc<dyn ObjectStore>,
}

impl Opened {
    pub fn has(&self, key: &ObjectKey) -> bool {
        self.source.lineages.contains(&key.lineage)
    }

    /// Fails if the reference that keeps the instance's objects there is gone, or the source does not answer.
    pub fn check(&self, id: u128) -> Result<(), StoreError> {
        let url = &self.source.url;
        let key = self.source.reference(id);
        let gone = |what: String| StoreError::Refused { key: key.clone(), cause: what };
        match self.source.kind {
            Kind::Repository { .. } => match self.store.get(purpose(), &key) {
                Err(StoreError::Absent { .. }) => Err(gone(format!(
                    "{url} has no reference of this instance any more: objects that it still reads from there may be removed"
                ))),
                other => other.map(|_| ()),
            },
            Kind::Instance => match snapshots::read(&*self.store) {
                Ok((registry, _)) if registry.snapshots.iter().any(|one| one.id == id) => Ok(()),
                Ok(_) => Err(gone(format!(
                    "{url} has no snapshot {id:032x} any more: objects that this clone reads from there may be deleted"
                ))),
                Err(snapshots::SnapshotError::Store(error)) => Err(error),
                Err(error) => Err(gone(error.to_string())),
            },
        }
    }
}

/// What is attached, opened.
pub struct Sources {
    pub record: Record,
    pub version: Version,
    pub opened: Vec<Opened>,
}

impl Sources {
    pub fn of(&self, key: &ObjectKey) -> Option<&Opened> {
        self.opened.iter().find(|one| one.has(key))
    }

    /// For people.
    pub fn describe(&self) -> String {
        let names: Vec<String> = self.record.sources.iter().map(Source::describe).collect();
        names.join(" and ")
    }
}

#[derive(Clone, Default)]
enum State {
    #[default]
    Unknown,
    None,
    Some(Arc<Sources>),
}

/// Which objects of former lineages are not in the own store yet.
#[derive(Clone, Copy, Default)]
enum Rest {
    #[default]
    All,
    /// Those with this key or a greater one.
    From(ObjectKey),
    None,
}

#[derive(Default)]
pub struct Attached {
    state: Mutex<State, { Mutexes::Objects as u8 }>,
    rest: Mutex<Rest, { Mutexes::Objects as u8 }>,
    /// The state is not `None`: a read has to look.
    matters: AtomicBool,
}

/// Where an object is read.
pub enum Place {
    Own,
    /// In a source: its number there.
    Source(Arc<Sources>, usize),
}

impl Attached {
    pub fn new() -> Attached {
        Attached { matters: AtomicBool::new(true), ..Attached::default() }
    }

    /// Where the object is to be read.
    pub fn place(&self, key: &ObjectKey) -> Place {
        if !self.matters.load(Ordering::Acquire) {
            return Place::Own;
        }
        let State::Some(sources) = self.state.lock().clone() else { return Place::Own };
        match *self.rest.lock() {
            Rest::From(first) if *key < first => return Place::Own,
            Rest::None => return Place::Own,
            _ => {}
        }
        match sources.opened.iter().position(|one| one.has(key)) {
            Some(number) => Place::Source(sources, number),
            None => Place::Own,
        }
    }

    pub fn is_known(&self) -> bool {
        !matches!(*self.state.lock(), State::Unknown)
    }

    /// What is attached, as far as it is known.
    pub fn sources(&self) -> Option<Arc<Sources>> {
        match &*self.state.lock() {
            State::Some(sources) => Some(sources.clone()),
            _ => None,
        }
    }

    /// Reads the record of the store, and opens the sources, once. None: there is none, or all was copied.
    pub fn load(&self, own: &dyn ObjectStore) -> Result<Option<Arc<Sources>>, StoreError> {
        match &*self.state.lock() {
            State::Unknown => {}
            State::None => return Ok(None),
            State::Some(sources) => return Ok(Some(sources.clone())),
        }
        let found = read(own)?.filter(|(record, _)| !record.releasing);
        let next = match found {
            None => State::None,
            Some((record, version)) => State::Some(Arc::new(open(own, record, version, true)?)),
        };
        let mut state = self.state.lock();
        if matches!(*state, State::Unknown) {
            self.matters.store(!matches!(next, State::None), Ordering::Release);
            *state = next;
        }
        match &*state {
            State::Some(sources) => Ok(Some(sources.clone())),
            _ => Ok(None),
        }
    }

    /// Objects of former lineages with a key below `rest` are in the own store; None: all that are named.
    fn set_rest(&self, rest: Option<ObjectKey>) {
        *self.rest.lock() = rest.map_or(Rest::None, Rest::From);
    }

    /// Everything is in the own store, and the record says so.
    fn detach(&self) {
        *self.state.lock() = State::None;
        self.matters.store(false, Ordering::Release);
    }
}

/// The record in the store; None: there is none.
pub fn read(own: &dyn ObjectStore) -> Result<Option<(Record, Version)>, StoreError> {
    match own.get(purpose(), record::KEY) {
        Ok((bytes, version)) => match Record::decode(&bytes) {
            Ok(record) => Ok(Some((record, version))),
            Err(what) => Err(StoreError::Refused {
                key: record::KEY.into(),
                cause: format!("object {} in {} is corrupt: {what}", record::KEY, own.describe()),
            }),
        },
        Err(StoreError::Absent { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the record's sources as `own` was opened.
pub fn open(
    own: &dyn ObjectStore,
    record: Record,
    version: Version,
    read_only: bool,
) -> Result<Sources, StoreError> {
    let open = |source: &Source| {
        let store = own.beside(&source.url, source.endpoint.as_deref(), read_only)?;
        Ok(Opened { source: source.clone(), store })
    };
    let opened = record.sources.iter().map(open).collect::<Result<_, StoreError>>()?;
    Ok(Sources { record, version, opened })
}

/// Removes the references in the sources: nothing is read from there any more.
pub fn release(own: &dyn ObjectStore, record: &Record) -> Result<(), StoreError> {
    for source in &record.sources {
        let store = own.beside(&source.url, source.endpoint.as_deref(), false)?;
        match source.kind {
            Kind::Repository { .. } => store.delete(purpose(), &source.reference(record.id))?,
            Kind::Instance => match snapshots::remove(&*store, record.id) {
                Ok(_) => {}
                Err(snapshots::SnapshotError::Store(error)) => return Err(error),
                Err(error) => {
                    let key = source.reference(record.id);
                    return Err(StoreError::Refused { key, cause: error.to_string() });
                }
            },
        }
    }
    Ok(())
}
