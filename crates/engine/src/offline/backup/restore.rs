//! Restoring a backup into an empty volume and, if it has objects, an object store of its own.
//!
//! The result is a new instance: it has its own id, in the superblock and in each block of the log, and its own lineage. The objects keep
//! their keys, which have the lineage that put them; the store's object `snapshots` says that these are the new instance's, so that it
//! deletes them when they are superseded.
//!
//! 1. `copying` marks the volume as unfinished; no server starts there. The superblock of the new instance is made under another name.
//! 2. The store is taken: its epoch object names the new instance. One that has an epoch object already is refused, unless that is of this restore.
//! 3. Objects are copied, then the volume's files; each is checked against the manifest. All is synced. Or the repository is attached instead of the
//!    objects being copied: its reference and the record in the store are put first (`attach`).
//! 4. The superblock gets its name, and `copying` goes.
//!
//! Interrupted at any point, the same call goes on with the ids of the superblock that it finds.

use super::attach::Attach;
use super::manifest::{FileEntry, Manifest, ObjectEntry};
use super::point::{Goal, replay};
use super::verify::{read_chunk, read_object};
use super::{CHUNK, FOLDER, Repository, in_parts, purpose, put_exactly};
use crate::error::{Error, Result, holder_in_words};
use crate::offline::check::Progress;
use crate::planted;
use crate::storage::create::{COPYING, FRESH, REPLAYING};
use crate::superblock::{self, Superblock};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, DiskError};
use terrace_io::random::Random;
use terrace_io::store::{Bytes, Listed, ObjectStore, StoreError};
use terrace_log::block::{self, BLOCK};
use terrace_tier::objects::attached::record;
use terrace_tier::objects::fence::{self, EpochContent, Writer, holder};
use terrace_tier::objects::snapshots::{self, Registry};

/// What was restored.
#[derive(Clone, Copy, Debug)]
pub struct Restored {
    pub instance: u128,
    pub lineage: u128,
    pub objects: u64,
    pub bytes: u64,
}

/// Restores the backup to the volume, which is empty or has an interrupted restore, and to the store, of which the same holds. With `attach` the objects
/// stay where they are, and the instance copies them while it runs.
pub fn restore(
    repository: &Repository,
    manifest: &Manifest,
    volume: &Arc<dyn Disk>,
    store: Option<&Arc<dyn ObjectStore>>,
    random: &dyn Random,
    attach: Option<&Attach>,
    progress: Progress<'_>,
) -> Result<Restored> {
    restore_for(repository, manifest, (volume, store), random, &Way { attach, goal: None }, progress)
}

/// How a backup is restored.
#[derive(Clone, Copy, Default)]
pub struct Way<'a> {
    /// The objects stay where they are, and the instance copies them while it runs.
    pub attach: Option<&'a Attach>,
    /// No server can start on the instance before it was brought there (`point`).
    pub goal: Option<&'a Goal>,
}

/// As [`restore`].
pub fn restore_for(
    repository: &Repository,
    manifest: &Manifest,
    (volume, store): (&Arc<dyn Disk>, Option<&Arc<dyn ObjectStore>>),
    random: &dyn Random,
    Way { attach, goal }: &Way<'_>,
    progress: Progress<'_>,
) -> Result<Restored> {
    let _lock = volume.lock().map_err(|error| match error {
        DiskError::Locked { name, by } => {
            Error::Busy(format!("an instance runs at {name}{}", holder_in_words(by.as_ref())))
        }
        error => error.into(),
    })?;
    let store = match (store, manifest.objects.len()) {
        (None, 0) => None,
        (None, objects) => {
            let what = format!("backup {} has {objects} objects: into which object store?", manifest.name);
            return Err(Error::Invalid(what));
        }
        (Some(store), _) => Some(store),
    };
    let (superblock, writer) = begin(&|| superblock_of(repository, manifest), volume, store, random)?;
    let mut bytes = 0;
    match goal {
        Some(goal) => replay::keep(&**volume, goal)?,
        None if volume.exists(REPLAYING)? => volume.remove(REPLAYING)?,
        None => {}
    }
    if let Some(store) = store {
        take(store, writer, manifest.objects.iter().map(|one| one.key.lineage).collect())?;
        if planted::RESTORED_TOO_EARLY.on() {
            seal(&**volume)?;
        }
        match attach.filter(|_| !manifest.objects.is_empty()) {
            Some(attach) => refer_to(repository, manifest, superblock.instance, store, attach)?,
            None => bytes += copy_objects(repository, manifest, store, progress)?,
        }
    }
    for file in manifest.files.iter().filter(|file| file.name != superblock::FILE) {
        bytes += write_file(repository, manifest, &**volume, file, superblock.instance as u64, progress)?;
    }
    if !planted::RESTORED_TOO_EARLY.on() || store.is_none() {
        seal(&**volume)?;
    }
    let objects = manifest.objects.len() as u64;
    Ok(Restored { instance: superblock.instance, lineage: superblock.lineage, objects, bytes })
}

/// The superblock of the new instance under its first name, durable, and the writer that its store names first. `of`: the superblock that it is made of.
pub(in crate::offline) fn begin(
    of: &dyn Fn() -> Result<Superblock>,
    volume: &Arc<dyn Disk>,
    store: Option<&Arc<dyn ObjectStore>>,
    random: &dyn Random,
) -> Result<(Superblock, Writer)> {
    let (superblock, nonce) = begin_as(of, volume, store, random)?;
    let Superblock { instance, lineage, epoch, .. } = superblock;
    Ok((superblock, Writer { instance, lineage, epoch, nonce }))
}

fn begin_as(
    of: &dyn Fn() -> Result<Superblock>,
    volume: &Arc<dyn Disk>,
    store: Option<&Arc<dyn ObjectStore>>,
    random: &dyn Random,
) -> Result<(Superblock, u64)> {
    let found = volume.list()?;
    let has = |name: &str| found.iter().any(|one| one == name);
    if has(superblock::FILE) {
        return Err(Error::Invalid(format!(
            "{} has an instance: a backup is restored into an empty directory",
            volume.describe()
        )));
    }
    let is_ours = |name: &String| {
        super::create::is_of_volume(name) || [COPYING, FRESH, REPLAYING].contains(&name.as_str())
    };
    if let Some(other) = found.iter().find(|name| !has(COPYING) || !is_ours(name)) {
        return Err(Error::Invalid(format!("{} is not empty: it has {other}", volume.describe())));
    }
    if !has(COPYING) {
        if let Some(store) = store {
            check_empty(store)?;
        }
        volume.create(COPYING)?.sync(Class::Superblock)?;
        volume.sync_dir()?;
    }
    // What was interrupted goes on under its ids.
    if let Some(file) = has(FRESH).then(|| volume.open(FRESH)).transpose()?
        && let Some(kept) = decode(&read_all(&*file)?)?
    {
        let nonce = kept.takers.last().map_or(0, |taker| taker.nonce);
        return Ok((kept, nonce));
    }
    if has(FRESH) {
        volume.remove(FRESH)?;
    }
    let of_backup = of()?;
    let new_id = || u128::from(random.next_u64()) | u128::from(random.next_u64()) << 64;
    let nonce = random.next_u64().max(1);
    let mut mine = Superblock { instance: new_id(), lineage: new_id(), generation: 1, ..of_backup };
    let writer = Writer { instance: mine.instance, lineage: mine.lineage, epoch: mine.epoch, nonce };
    mine.has_store = store.is_some();
    mine.takers = if mine.has_store { vec![writer.taker()] } else { Vec::new() };
    mine.create_as(&**volume, FRESH)?;
    volume.sync_dir()?;
    Ok((mine, nonce))
}

fn read_all(file: &dyn terrace_io::disk::File) -> Result<Vec<u8>> {
    let length = (file.len() as usize).min(2 * superblock::COPY) / BLOCK * BLOCK;
    // A crash may leave the name of a file without its bytes. (No buffer is empty.)
    if length == 0 {
        return Ok(Vec::new());
    }
    let mut buf = AlignedBuf::zeroed(length);
    file.read(Class::Superblock, 0, &mut buf)?;
    Ok(buf.to_vec())
}

/// The newest intact superblock of a file's bytes.
fn decode(bytes: &[u8]) -> Result<Option<Superblock>> {
    let mut best: Option<Superblock> = None;
    for copy in bytes.chunks_exact(superblock::COPY) {
        if let Some(found) = Superblock::decode(copy)?
            && best.as_ref().is_none_or(|best| best.generation < found.generation)
        {
            best = Some(found);
        }
    }
    Ok(best)
}

fn superblock_of(repository: &Repository, manifest: &Manifest) -> Result<Superblock> {
    let none = || Error::Corrupt(format!("backup {} has no intact superblock", manifest.name));
    let file = manifest.files.iter().find(|file| file.name == superblock::FILE).ok_or_else(none)?;
    let chunk = file.chunks.first().filter(|chunk| chunk.number == 0).ok_or_else(none)?;
    decode(&read_chunk(repository, &manifest.name, &file.name, chunk)?)?.ok_or_else(none)
}

/// Err: the store is an instance's, or has backups.
fn check_empty(store: &Arc<dyn ObjectStore>) -> Result<()> {
    let describe = store.describe();
    match store.get(purpose(), fence::KEY) {
        Ok((bytes, _)) => {
            let whose = EpochContent::read(&bytes).map_or(String::new(), |held| {
                let who = holder::of(&**store, &held.writer).map_or(String::new(), |who| format!(": {who}"));
                format!(" (instance {:032x}, writer epoch {}{who})", held.writer.instance, held.writer.epoch)
            });
            return Err(Error::Invalid(format!(
                "{describe} is the object store of an instance{whose}: a restored instance needs a place of its own"
            )));
        }
        Err(StoreError::Absent { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut has_backups = false;
    store.list_folder(purpose(), FOLDER, &mut |listed| has_backups |= matches!(listed, Listed::Folder(_)))?;
    match has_backups {
        true => Err(Error::Invalid(format!(
            "{describe} has backups: a restored instance needs a place of its own"
        ))),
        false => Ok(()),
    }
}

/// Makes the store the new instance's, unless it is another's by now. `lineages`: those of objects that are copied there.
pub(in crate::offline) fn take(
    store: &Arc<dyn ObjectStore>,
    writer: Writer,
    lineages: BTreeSet<u128>,
) -> Result<()> {
    let epoch = Bytes::from(EpochContent { writer, mark: 0 }.bytes());
    if !matches!(store.get(purpose(), fence::KEY), Ok((found, _)) if found == epoch) {
        check_empty(store)?;
    }
    put_exactly(&**store, purpose(), fence::KEY, &epoch)?;
    if lineages.is_empty() {
        return Ok(());
    }
    if lineages.len() > snapshots::LINEAGES_MAX {
        let (found, max) = (lineages.len(), snapshots::LINEAGES_MAX);
        return Err(Error::Full(format!(
            "the backup's objects are of {found} lineages, a store records {max} at most"
        )));
    }
    let registry = Registry { snapshots: Vec::new(), lineages: lineages.into_iter().collect() };
    put_exactly(&**store, purpose(), snapshots::KEY, &Bytes::from(registry.encode()))
}

/// Lets the instance read the repository's objects.
fn refer_to(
    repository: &Repository,
    manifest: &Manifest,
    instance: u128,
    store: &Arc<dyn ObjectStore>,
    attach: &Attach,
) -> Result<()> {
    let record = super::attach::record(repository, manifest, instance, attach)?;
    if !planted::ATTACHED_WITHOUT_REFERENCE.on() {
        repository.refer(instance, manifest)?;
    }
    put_exactly(&**store, purpose(), record::KEY, &Bytes::from(record.encode()))
}

/// Copies what is not there yet. Returns the bytes of all.
fn copy_objects(
    repository: &Repository,
    manifest: &Manifest,
    store: &Arc<dyn ObjectStore>,
    progress: Progress<'_>,
) -> Result<u64> {
    let mut there: HashMap<String, u64> = HashMap::new();
    let lineages: BTreeSet<u128> = manifest.objects.iter().map(|one| one.key.lineage).collect();
    for lineage in lineages {
        store.list(purpose(), &format!("{lineage:032x}/"), &mut |key, length| {
            _ = there.insert(key.into(), length)
        })?;
    }
    let parallel = store.parallel_max() > 1 && repository.store.parallel_max() > 1;
    let copy = |one: &ObjectEntry| {
        let key = one.key.to_string();
        // Only this restore puts here, and whole.
        if there.get(&key) != Some(&one.length) {
            let body = Bytes::from(read_object(repository, one)?);
            put_exactly(&**store, purpose(), &key, &body)?;
        }
        Ok(one.length)
    };
    let (mut done, mut bytes, all) = (0, 0, manifest.objects.len() as u64);
    in_parts(&manifest.objects, parallel, copy, |part| {
        (done, bytes) = (done + part.len() as u64, bytes + part.iter().sum::<u64>());
        progress("restoring objects", done, all);
    })?;
    Ok(bytes)
}

/// Writes one of the volume's files; durable when it returns, its name after `sync_dir`. Blocks of the log become the new instance's.
fn write_file(
    repository: &Repository,
    manifest: &Manifest,
    volume: &dyn Disk,
    file: &FileEntry,
    instance: u64,
    progress: Progress<'_>,
) -> Result<u64> {
    if volume.exists(&file.name)? {
        volume.remove(&file.name)?;
    }
    let is_log = file.name.starts_with("log.");
    let to = volume.create(&file.name)?;
    to.grow(file.length, is_log)?;
    let (mut buf, mut bytes) = (AlignedBuf::zeroed(CHUNK), 0);
    for chunk in &file.chunks {
        let body = read_chunk(repository, &manifest.name, &file.name, chunk)?;
        let buf = &mut buf[..body.len()];
        buf.copy_from_slice(&body);
        if is_log {
            restamp(buf, instance);
        }
        to.write(Class::PageFlush, chunk.number * CHUNK as u64, buf)?;
        bytes += chunk.length;
        progress(
            &format!("restoring {}", file.name),
            chunk.number * CHUNK as u64 + chunk.length,
            file.length,
        );
    }
    to.sync(Class::PageFlush)?;
    Ok(bytes)
}

/// Blocks of a log become the new instance's.
pub(in crate::offline) fn restamp(blocks: &mut [u8], instance: u64) {
    for one in blocks.chunks_exact_mut(BLOCK) {
        if block::decode(one).is_some() {
            block::restamp(one, instance);
        }
    }
}

/// All is there and synced: this is an instance from here on.
pub(in crate::offline) fn seal(volume: &dyn Disk) -> Result<()> {
    volume.sync_dir()?;
    volume.rename(FRESH, superblock::FILE)?;
    volume.sync_dir()?;
    volume.remove(COPYING)?;
    Ok(volume.sync_dir()?)
}
