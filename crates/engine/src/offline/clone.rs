//! Clones: a new instance whose volume is copied and whose old objects stay in the store of the instance that it was made of. It is made of a stopped
//! instance, or of a copy that a running one made of its volume; its time does not depend on the number of objects.
//!
//! The clone has a store of its own, to which it puts what changes; nothing of the source is changed but one line in its object `snapshots`, which keeps
//! the objects for the clone (`terrace_tier::objects::attached`). A source that is itself attached to others, a clone or a restored instance whose
//! objects are not copied yet, passes its sources on: the clone gets a reference of its own in each.
//!
//! 1. The superblock of the new instance is made under another name beside `copying`, as a restore does it.
//! 2. The references are recorded. Then it is looked again whether the source's objects were protected until now.
//! 3. The store is taken, and gets the record of what is attached.
//! 4. The volume's files are copied; the superblock gets its name.
//!
//! Interrupted at any point, the same call goes on with the ids of the superblock that it finds. One that is never repeated leaves its references.

use super::backup::create::{is_of_volume, protection};
use super::backup::restore::{begin, restamp, seal, take};
use super::backup::{CHUNK, Repository, purpose, put_exactly};
use super::check::Progress;
use super::instance::OfflineInstance;
use crate::error::{Error, Result, holder_in_words};
use crate::planted;
use crate::superblock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, DiskError};
use terrace_io::random::Random;
use terrace_io::store::{Bytes, ObjectStore};
use terrace_log::block::BLOCK;
use terrace_tier::address::ObjectKey;
use terrace_tier::objects::attached::{
    self,
    record::{self, Kind, Record, Source},
};
use terrace_tier::objects::snapshots::{self, Snapshot};

/// What was made.
#[derive(Clone, Copy, Debug)]
pub struct Cloned {
    pub instance: u128,
    /// Objects that stay in the source.
    pub objects: u64,
    /// Bytes of the volume that were copied.
    pub bytes: u64,
    /// The snapshot of the copy that the clone was made of, which stays.
    pub snapshot: Option<u128>,
}

/// Where the source's objects are, and as what the clone finds that place.
pub struct Objects<'a> {
    pub store: &'a Arc<dyn ObjectStore>,
    pub endpoint: Option<String>,
}

/// Makes a clone of the instance: on `volume`, which is empty or has an interrupted clone, and `store`, of which the same holds.
pub fn clone(
    look: &OfflineInstance,
    from: Option<Objects<'_>>,
    volume: &Arc<dyn Disk>,
    store: Option<&Arc<dyn ObjectStore>>,
    random: &dyn Random,
    made_ms: u64,
    progress: Progress<'_>,
) -> Result<Cloned> {
    let named = look.map.objects();
    let (from, store) = match (from, store, named.len()) {
        (_, store, 0) => (None, store),
        (Some(from), Some(store), _) => (Some(from), Some(store)),
        (None, _, objects) => {
            let place = look.volume.describe();
            return Err(Error::Invalid(format!(
                "{place} names {objects} objects: which object store has them?"
            )));
        }
        (_, None, _) => {
            return Err(Error::Invalid(
                "the clone needs an object store of its own, as its source has".into(),
            ));
        }
    };
    let protected = from.as_ref().map(|from| protection(look, from.store)).transpose()?.flatten();
    let _lock = volume.lock().map_err(|error| match error {
        DiskError::Locked { name, by } => {
            Error::Busy(format!("an instance runs at {name}{}", holder_in_words(by.as_ref())))
        }
        error => error.into(),
    })?;
    let (superblock, writer) = begin(&|| Ok(look.superblock.clone()), volume, store, random)?;
    let id = superblock.instance;
    let record = from.as_ref().map(|from| refer(look, from, &named, protected, id, made_ms)).transpose()?;
    if let Some(store) = store {
        take(store, writer, BTreeSet::new())?;
        if let Some(record) = &record {
            put_exactly(&**store, purpose(), record::KEY, &Bytes::from(record.encode()))?;
        }
    }
    let mut bytes = 0;
    for file in look.volume.list()?.iter().filter(|name| is_of_volume(name) && *name != superblock::FILE) {
        bytes += copy_file(look, &**volume, file, id as u64, progress)?;
    }
    seal(&**volume)?;
    Ok(Cloned { instance: id, objects: named.len() as u64, bytes, snapshot: protected.map(|one| one.id) })
}

/// Records the references of the clone, and returns what its store records.
fn refer(
    look: &OfflineInstance,
    from: &Objects<'_>,
    named: &[ObjectKey],
    protected: Option<Snapshot>,
    id: u128,
    made_ms: u64,
) -> Result<Record> {
    let own = &**from.store;
    let inherited = attached::read(own)?.map(|(record, _)| record).filter(|record| !record.releasing);
    let mut places: BTreeMap<Option<usize>, BTreeSet<u128>> = BTreeMap::new();
    for key in named {
        let of = |source: &Source| source.lineages.contains(&key.lineage);
        let place = inherited.as_ref().and_then(|record| record.sources.iter().position(of));
        places.entry(place).or_default().insert(key.lineage);
    }
    let mut sources = Vec::new();
    for (place, lineages) in places {
        let source = match (place, &inherited) {
            (Some(place), Some(record)) => {
                let source = &record.sources[place];
                pass_on(own, source, record.id, id)?;
                source.clone()
            }
            _ => {
                let (url, endpoint) = (own.describe(), from.endpoint.clone());
                Source { kind: Kind::Instance, url, endpoint, lineages: Vec::new() }
            }
        };
        sources.push(Source { lineages: lineages.into_iter().collect(), ..source });
    }
    let record = Record { id, fill: None, releasing: false, sources };
    record.check().map_err(|what| Error::Invalid(format!("{} cannot be cloned: {what}", own.describe())))?;
    // In the source's own store in any case: as long as it is there, the source does not let go of its own sources.
    let superblock = &look.superblock;
    let all =
        Snapshot { id, lineage: superblock.lineage, epoch: superblock.epoch, sequence: u64::MAX, made_ms };
    let mine = protected.map_or(all, |one| Snapshot { id, made_ms, ..one });
    if !planted::CLONED_WITHOUT_SNAPSHOT.on() {
        add(own, mine)?;
    }
    // Until here: from here on, the clone's own keeps them.
    let still = protection(look, from.store)?;
    if still.map(|one| one.id) != protected.map(|one| one.id) {
        return Err(Error::Busy(format!(
            "another command removed the snapshot {:032x}: clone again",
            protected.map_or(0, |one| one.id)
        )));
    }
    Ok(record)
}

fn add(store: &dyn ObjectStore, snapshot: Snapshot) -> Result<()> {
    snapshots::change(store, &|registry| {
        if !registry.snapshots.iter().any(|one| one.id == snapshot.id) {
            registry.snapshots.push(snapshot);
        }
    })?;
    Ok(())
}

/// A place from which the source reads, too: what keeps the objects there for the instance `of`, keeps them for the clone.
fn pass_on(own: &dyn ObjectStore, source: &Source, of: u128, id: u128) -> Result<()> {
    let store = own.beside(&source.url, source.endpoint.as_deref(), false)?;
    let gone = || {
        Error::Missing(format!(
            "{} does not keep the objects of instance {of:032x} any more",
            source.describe()
        ))
    };
    match &source.kind {
        Kind::Repository { backup } => {
            let repository = Repository::open(store)?;
            if !repository.references()?.iter().any(|one| one.instance == of) {
                return Err(gone());
            }
            repository.refer(id, &repository.complete(backup)?)
        }
        Kind::Instance => {
            let found = snapshots::read(&*store)?
                .0
                .snapshots
                .into_iter()
                .find(|one| one.id == of)
                .ok_or_else(gone)?;
            add(&*store, Snapshot { id, ..found })?;
            // It may have been removed meanwhile, and with it what it kept.
            let still = snapshots::read(&*store)?.0.snapshots.iter().any(|one| one.id == of);
            if still { Ok(()) } else { Err(gone()) }
        }
    }
}

/// Removes the references of a clone that is deleted, so that its sources need not keep anything for it.
pub fn release(store: &Arc<dyn ObjectStore>) -> Result<bool> {
    match attached::read(&**store)? {
        Some((record, _)) => {
            attached::release(&**store, &record)?;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Copies one of the volume's files; durable when it returns, its name after `sync_dir`. Blocks of the log become the clone's.
fn copy_file(
    look: &OfflineInstance,
    volume: &dyn Disk,
    name: &str,
    instance: u64,
    progress: Progress<'_>,
) -> Result<u64> {
    let from = look.volume.open(name)?;
    let length = from.len();
    if !length.is_multiple_of(BLOCK as u64) {
        return Err(Error::Corrupt(format!("{name} has {length} bytes, which is no multiple of {BLOCK}")));
    }
    if volume.exists(name)? {
        volume.remove(name)?;
    }
    let is_log = name.starts_with("log.");
    let to = volume.create(name)?;
    to.grow(length, is_log)?;
    let (mut buf, mut bytes) = (AlignedBuf::zeroed(CHUNK), 0);
    for start in (0..length).step_by(CHUNK) {
        let part = &mut buf[..(length - start).min(CHUNK as u64) as usize];
        from.read(Class::CopyRead, start, part)?;
        if part.iter().any(|byte| *byte != 0) {
            if is_log {
                restamp(part, instance);
            }
            to.write(Class::PageFlush, start, part)?;
            bytes += part.len() as u64;
        }
        progress(&format!("copying {name}"), start + part.len() as u64, length);
    }
    to.sync(Class::PageFlush)?;
    Ok(bytes)
}
