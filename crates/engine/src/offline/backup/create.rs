//! Making a backup from a copied or stopped volume.
//!
//! 1. The objects that the map names and the repository lacks are copied from the instance's store, each checked. If both are in one bucket, the
//!    store copies them by itself: then lengths are compared, the manifest has no checksum of them, and `verify` checks them by their own hash. What it does not copy is read
//!    and put. An object that the repository has already is not copied; its checksum is taken from an earlier manifest, or else the object is read and checked.
//! 2. The volume's files are copied in chunks.
//! 3. The manifest is put.
//!
//! The volume's lock is held meanwhile, so no server runs on it. Interrupted at any point, the same call goes on.

use super::manifest::{ChunkEntry, FileEntry, Manifest, ObjectEntry};
use super::{
    CHUNK, Repository, check_name, chunk_key, in_parts, manifest_key, object_key, purpose, put_exactly,
};
use crate::error::{Error, Result};
use crate::offline::check::Progress;
use crate::offline::instance::OfflineInstance;
use crate::planted;
use crate::superblock::{self, Superblock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::disk::Class;
use terrace_io::store::{Bytes, ObjectStore, Origin, StoreError};
use terrace_log::block::BLOCK;
use terrace_tier::address::ObjectKey;
use terrace_tier::objects::fence::{Fence, FenceError, TakersInMemory, Writer};
use terrace_tier::objects::object::{Objects, format};
use terrace_tier::objects::snapshots::{self, Snapshot};
use terrace_tier::volume::map::home;
use terrace_tier::volume::object_buffer;

/// What was made.
pub struct Created {
    pub manifest: Manifest,
    /// Objects that were copied now, and their bytes; the others were in the repository.
    pub copied: u64,
    pub copied_bytes: u64,
    /// Those of them that the store copied by itself.
    pub copied_within: u64,
    /// What kept the objects meanwhile; None: the instance was stopped, or names no object.
    pub snapshot: Option<Snapshot>,
}

/// Whether a volume's file of this name is in a backup. A start rebuilds the others.
pub fn is_of_volume(name: &str) -> bool {
    let is_log = |name: &str| {
        name.strip_prefix("log.").is_some_and(|n| n.parse::<u16>().is_ok_and(|k| k.to_string() == n))
    };
    [superblock::FILE, home::FILE, object_buffer::FILE].contains(&name) || is_log(name)
}

/// Makes the backup `name` of the volume, whose objects are in `source`. `made_ms`: Unix time.
pub fn create(
    look: &OfflineInstance,
    source: Option<&Arc<dyn ObjectStore>>,
    repository: &Repository,
    name: &str,
    made_ms: u64,
    progress: Progress<'_>,
) -> Result<Created> {
    check_name(name)?;
    let superblock = &look.superblock;
    let mut named = look.map.objects();
    named.sort_unstable();
    named.dedup();
    let given = source;
    let source = match (source, named.is_empty()) {
        (_, true) => None,
        (Some(source), false) => Some(source),
        (None, false) => {
            let what = format!(
                "{} names {} objects: which object store has them?",
                look.volume.describe(),
                named.len()
            );
            return Err(Error::Invalid(what));
        }
    };
    let log = Some((lineage_of(look, given)?, look.end));
    let snapshot = source.map(|source| protection(look, source)).transpose()?.flatten();
    let _lock = repository.lock(&format!("backup {name} of {:032x} is being made", superblock.instance))?;
    if repository.manifest(name)?.is_some() {
        return Err(Error::Invalid(format!("{} has a backup {name} already", repository.describe())));
    }
    let mut manifest = Manifest {
        name: name.to_string(),
        made_ms,
        instance: superblock.instance,
        lineage: superblock.lineage,
        log,
        files: Vec::new(),
        objects: Vec::new(),
    };
    if planted::MANIFEST_FIRST.on() {
        put_manifest(repository, &manifest)?;
    }
    let (mut copied, mut copied_bytes, mut copied_within) = (0, 0, 0);
    if let Some(source) = source {
        let there = inventory(repository)?;
        let parallel = source.parallel_max() > 1 && repository.store.parallel_max() > 1;
        let all = named.len() as u64;
        let objects = &mut manifest.objects;
        // An attached instance's objects are elsewhere.
        let source = &Objects::new(source.clone());
        let within = &Within::new(&**source.store(), &*repository.store);
        let copy = |key: &ObjectKey| copy_object(source, within, repository, key, there.get(key));
        in_parts(&named, parallel, copy, |part| {
            for (entry, how) in part {
                let is_new = *how != How::There;
                objects.push(*entry);
                copied += u64::from(is_new);
                copied_within += u64::from(*how == How::Within);
                copied_bytes += if is_new { entry.length } else { 0 };
            }
            progress("copying objects", objects.len() as u64, all);
        })?;
    }
    let mut files = look.volume.list()?;
    files.retain(|name| is_of_volume(name));
    for file in files {
        manifest.files.push(copy_file(look, repository, name, &file, progress)?);
    }
    if !planted::MANIFEST_FIRST.on() {
        put_manifest(repository, &manifest)?;
    }
    Ok(Created { manifest, copied, copied_bytes, copied_within, snapshot })
}

/// The lineage whose log the volume has: that of the original if it is a copy (which the snapshot that protects a copy's objects tells), or its own.
fn lineage_of(look: &OfflineInstance, store: Option<&Arc<dyn ObjectStore>>) -> Result<u128> {
    let Superblock { instance, lineage, .. } = look.superblock;
    let Some(store) = store else { return Ok(lineage) };
    let (registry, _) = snapshots::read(&**store)?;
    let of_copy = registry.snapshots.iter().find(|one| one.id == instance);
    Ok(of_copy.map_or(lineage, |one| one.lineage))
}

fn put_manifest(repository: &Repository, manifest: &Manifest) -> Result<()> {
    let body = Bytes::from(manifest.encode());
    put_exactly(&*repository.store, repository.purpose, &manifest_key(&manifest.name), &body)
}

/// What keeps the objects that the volume names: its snapshot, or (None) that the volume is the store's owner and does not run.
pub(in crate::offline) fn protection(
    look: &OfflineInstance,
    source: &Arc<dyn ObjectStore>,
) -> Result<Option<Snapshot>> {
    let superblock = &look.superblock;
    let (registry, _) = snapshots::read(&**source)?;
    if let Some(found) = registry.snapshots.iter().find(|one| one.id == superblock.instance) {
        return Ok(Some(*found));
    }
    let (instance, lineage, epoch) = (superblock.instance, superblock.lineage, superblock.epoch);
    let takers = TakersInMemory::of(&superblock.known_takers());
    let fence = Fence::new(source.clone(), Writer { instance, lineage, epoch, nonce: 0 }, true, takers);
    let refused = |why: String| {
        Error::Invalid(format!(
            "no snapshot in {} keeps the objects that {} names, and that volume is not the store's owner ({why}): if its snapshot was \
             removed, make another copy",
            source.describe(),
            look.volume.describe()
        ))
    };
    match fence.look() {
        Ok(Some(held)) if fence.knows(&held) => Ok(None),
        Ok(Some(held)) => Err(refused(format!("writer epoch {} is", held.writer.epoch))),
        Ok(None) => Err(refused("it has none".into())),
        Err(FenceError::Store(error)) => Err(error.into()),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// An object of the repository: its length, and its checksum, if there is one, if a manifest names it.
type There = (u64, Option<Option<u32>>);

/// The objects in the repository.
fn inventory(repository: &Repository) -> Result<HashMap<ObjectKey, There>> {
    let mut there = HashMap::new();
    repository.store.list(repository.purpose, "objects/", &mut |key, length| {
        if let Some(key) = key.strip_prefix("objects/").and_then(ObjectKey::parse) {
            there.insert(key, (length, None));
        }
    })?;
    if there.is_empty() {
        return Ok(there);
    }
    for manifest in repository.list()?.0 {
        for one in &manifest.objects {
            if let Some(known) = there.get_mut(&one.key).filter(|known| known.0 == one.length) {
                known.1 = Some(one.crc);
            }
        }
    }
    Ok(there)
}

/// How an object came to be in the repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It was there.
    There,
    /// The store copied it by itself.
    Within,
    /// It was read and put.
    Streamed,
}

/// Copies within the service that has both the instance's objects and the repository.
struct Within {
    /// None: they are in two services, or it copies nothing.
    source: Option<Origin>,
    /// It refused once, and is not asked again.
    refused: AtomicBool,
}

impl Within {
    fn new(source: &dyn ObjectStore, repository: &dyn ObjectStore) -> Within {
        let (from, to) = (source.origin(), repository.origin());
        let same = from.as_ref().zip(to).is_some_and(|(from, to)| from.service == to.service);
        Within { source: from.filter(|_| same), refused: AtomicBool::new(false) }
    }

    /// The object's length; None: it was not copied, and is to be read and put. Its own place is looked at again, so an answer that means nothing is not believed.
    fn copy(&self, source: &dyn ObjectStore, repository: &Repository, key: &ObjectKey) -> Option<u64> {
        let origin = self.source.as_ref().filter(|_| !self.refused.load(Ordering::Relaxed))?;
        let (from, to) = (key.to_string(), object_key(key));
        // Absent: an attached instance's object is elsewhere.
        let (length, _) = source.head(purpose(), &from).ok()?;
        repository.take(length);
        let copied = repository.store.copy_within(repository.purpose, origin, &from, &to);
        if matches!(copied, Err(StoreError::Refused { .. })) {
            self.refused.store(true, Ordering::Relaxed);
        }
        copied.ok()?;
        let (found, _) = repository.store.head(repository.purpose, &to).ok()?;
        (found == length).then_some(length)
    }
}

/// The object's entry, and how it came to be there.
fn copy_object(
    source: &Objects,
    within: &Within,
    repository: &Repository,
    key: &ObjectKey,
    there: Option<&There>,
) -> Result<(ObjectEntry, How)> {
    if let Some((length, Some(crc))) = there {
        return Ok((ObjectEntry { key: *key, length: *length, crc: *crc }, How::There));
    }
    let place = object_key(key);
    let checked = |bytes: &[u8], store: &dyn ObjectStore| match format::check(key, bytes) {
        Ok(_) => {
            let crc = Some(crc32c::crc32c(bytes));
            Ok(ObjectEntry { key: *key, length: bytes.len() as u64, crc })
        }
        Err(bad) => Err(Error::Corrupt(format!("object {key} in {}: {bad}", store.describe()))),
    };
    if there.is_some() {
        let (bytes, _) = repository.store.get(repository.purpose, &place)?;
        return Ok((checked(&bytes, &*repository.store)?, How::There));
    }
    if let Some(length) = within.copy(&**source.store(), repository, key) {
        return Ok((ObjectEntry { key: *key, length, crc: None }, How::Within));
    }
    let bytes = match source.read_whole(purpose(), key) {
        Ok(bytes) => Bytes::from(bytes),
        Err(StoreError::Absent { key }) => {
            return Err(Error::Missing(format!(
                "object {key}, which the volume names, is not in {}",
                source.store().describe()
            )));
        }
        Err(error) => return Err(error.into()),
    };
    let entry = checked(&bytes, &**source.store())?;
    repository.take(entry.length);
    put_exactly(&*repository.store, repository.purpose, &place, &bytes)?;
    Ok((entry, How::Streamed))
}

fn copy_file(
    look: &OfflineInstance,
    repository: &Repository,
    name: &str,
    file: &str,
    progress: Progress<'_>,
) -> Result<FileEntry> {
    let from = look.volume.open(file)?;
    let length = from.len();
    if !length.is_multiple_of(BLOCK as u64) {
        return Err(Error::Corrupt(format!("{file} has {length} bytes, which is no multiple of {BLOCK}")));
    }
    let mut entry = FileEntry { name: file.to_string(), length, chunks: Vec::new() };
    let mut buf = AlignedBuf::zeroed(CHUNK);
    for number in 0..length.div_ceil(CHUNK as u64) {
        let start = number * CHUNK as u64;
        let bytes = &mut buf[..(length - start).min(CHUNK as u64) as usize];
        from.read(Class::CopyRead, start, bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            let body = Bytes::copy_from_slice(bytes);
            repository.take(body.len() as u64);
            put_exactly(&*repository.store, repository.purpose, &chunk_key(name, file, number), &body)?;
            entry.chunks.push(ChunkEntry { number, length: body.len() as u64, crc: crc32c::crc32c(&body) });
        }
        progress(&format!("copying {file}"), start + bytes.len() as u64, length);
    }
    Ok(entry)
}
