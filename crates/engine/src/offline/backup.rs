//! Backups: a copy of an instance's volume and the objects that it names, in a repository, which is a directory, a bucket or a prefix.
//!
//! A running instance is first copied by itself (`storage::copy`): the copied volume is frozen, and the snapshot that is recorded in the
//! instance's object store keeps every object that it names. Everything here works from that copy, takes its time, and can be interrupted
//! and repeated. A stopped instance is its own copy.
//!
//! A repository holds any number of backups:
//!
//! | key | what |
//! | --- | --- |
//! | `backups/<name>/manifest` | everything that the backup consists of, with lengths and checksums ([`manifest`]); put last |
//! | `backups/<name>/volume/<file>/<number>` | the volume's files, in chunks of 4 MiB; chunks of zeros are omitted |
//! | `objects/<object key>` | objects, byte for byte; shared by all backups that name them |
//! | `attached/<instance>` | the reference of a restored instance that still reads objects here: the name of the backup ([`attach`]) |
//! | `lock` | the command that changes the repository |
//!
//! An object never changes under its key, so a later backup copies only objects that are not there yet: it is as large as what changed, and
//! yet whole without any other. Without its manifest a backup does not count: a command that makes it again uses the parts in the repository, and
//! [`prune`] removes them.
//!
//! Invariants
//! * A manifest is put when all that it names is in the repository, and removed before any of it is.
//! * An object is removed only if no manifest names it and no command makes a backup (`lock`). A backup that an attached instance reads is not removed.
//!
//! [`prune`]: prune::prune

pub mod attach;
pub mod create;
pub mod manifest;
pub mod point;
pub mod prune;
pub mod restore;
pub mod verify;

use crate::error::{Error, Result};
use crate::offline::instance::{AT_ONCE, side_by_side};
use manifest::Manifest;
use parking_lot::Mutex;
use std::sync::Arc;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::Event;
use terrace_io::store::{Bytes, Listed, ObjectStore, Purpose, StoreError};
use terrace_io::traffic::Urgency;
use terrace_tier::address::ObjectKey;
use terrace_tier::objects::attached::record::key_in_repository;
use terrace_tier::objects::fence;

/// Bytes of a volume's file in a chunk.
pub const CHUNK: usize = 4 << 20;
pub(crate) const FOLDER: &str = "backups";
const LOCK: &str = "lock";
/// Attempts of a put whose reply is lost.
const TRIES: usize = 8;
const NAME_MAX: usize = 64;

/// Where backups are.
pub struct Repository {
    pub store: Arc<dyn ObjectStore>,
    purpose: Purpose,
    pace: Option<Pace>,
}

/// Bytes a second that a command moves at most, so that it leaves room beside it.
struct Pace {
    world: World,
    rate: u64,
    /// When the bytes that were taken are through.
    free_at: Mutex<Nanos>,
}

impl Pace {
    /// Waits until the bytes before these are through.
    fn take(&self, bytes: u64) {
        let clock = &self.world.clock;
        let until = {
            let mut free_at = self.free_at.lock();
            let from = (*free_at).max(clock.now());
            *free_at = from + (u128::from(bytes) * 1_000_000_000 / u128::from(self.rate)) as Nanos;
            from
        };
        let never = Event::new();
        loop {
            let now = clock.now();
            if now >= until {
                return;
            }
            self.world.sched.wait(&never, never.ticket(), Some(until - now));
        }
    }
}

/// The repository is being changed by us.
pub struct Locked<'a>(&'a Repository);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        _ = self.0.store.delete(self.0.purpose, LOCK);
    }
}

fn object_key(key: &ObjectKey) -> String {
    key_in_repository(key)
}

fn chunk_key(name: &str, file: &str, number: u64) -> String {
    format!("{FOLDER}/{name}/volume/{file}/{number:08x}")
}

fn manifest_key(name: &str) -> String {
    format!("{FOLDER}/{name}/manifest")
}

/// Requests of backups, counted apart from others.
pub(crate) fn purpose() -> Purpose {
    Purpose::register("backup", Urgency::Background).unwrap_or(Purpose::Scrub)
}

impl Repository {
    /// Fails if the place is the object store of an instance.
    pub fn open(store: Arc<dyn ObjectStore>) -> Result<Repository> {
        let purpose = purpose();
        match store.get(purpose, fence::KEY) {
            Ok(_) => Err(Error::Invalid(format!(
                "{} is the object store of an instance: backups need a place of their own",
                store.describe()
            ))),
            Err(StoreError::Absent { .. }) => Ok(Repository { store, purpose, pace: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// From now on, at most `rate` bytes a second (above 0) are copied to or from it.
    pub fn paced(self, world: World, rate: u64) -> Repository {
        Repository { pace: Some(Pace { world, rate: rate.max(1), free_at: Mutex::new(0) }), ..self }
    }

    /// Before bytes are copied.
    fn take(&self, bytes: u64) {
        self.pace.iter().for_each(|pace| pace.take(bytes));
    }

    fn describe(&self) -> String {
        self.store.describe()
    }

    /// Names of backups, complete or not, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        self.store.list_folder(self.purpose, FOLDER, &mut |listed| {
            if let Listed::Folder(folder) = listed {
                names.push(folder[FOLDER.len() + 1..].to_string());
            }
        })?;
        Ok(names)
    }

    /// None: there is no such backup, or it is not complete.
    pub fn manifest(&self, name: &str) -> Result<Option<Manifest>> {
        match self.store.get(self.purpose, &manifest_key(name)) {
            Ok((bytes, _)) => Manifest::decode(&bytes)
                .map(Some)
                .map_err(|what| Error::Corrupt(format!("the manifest of backup {name}: {what}"))),
            Err(StoreError::Absent { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The manifest of a complete backup.
    pub fn complete(&self, name: &str) -> Result<Manifest> {
        if let Some(manifest) = self.manifest(name)? {
            return Ok(manifest);
        }
        let started = self.names()?.iter().any(|one| one == name);
        let why = match started {
            true => "it has no manifest, so it was not completed: make it again under this name",
            false => "there is none of this name",
        };
        Err(Error::Invalid(format!("backup {name} in {}: {why}", self.describe())))
    }

    /// Complete backups, the oldest first, and names of others.
    pub fn list(&self) -> Result<(Vec<Manifest>, Vec<String>)> {
        let (mut complete, mut others) = (Vec::new(), Vec::new());
        for name in self.names()? {
            match self.manifest(&name)? {
                Some(manifest) => complete.push(manifest),
                // The directory of a removed backup may be left.
                None if self.keys(&format!("{FOLDER}/{name}/"))?.is_empty() => {}
                None => others.push(name),
            }
        }
        complete.sort_by(|a, b| (a.made_ms, &a.name).cmp(&(b.made_ms, &b.name)));
        Ok((complete, others))
    }

    fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        self.store.list(self.purpose, prefix, &mut |key, _| keys.push(key.to_string()))?;
        Ok(keys)
    }

    /// No other command changes the repository. `by` says which one does; a command that gives the same text goes on where that one was
    /// interrupted.
    fn lock(&self, by: &str) -> Result<Locked<'_>> {
        let body = Bytes::copy_from_slice(by.as_bytes());
        for _ in 0..TRIES {
            match self.store.put_if_absent(self.purpose, LOCK, std::slice::from_ref(&body)) {
                Ok(_) => return Ok(Locked(self)),
                Err(StoreError::Conflict { .. } | StoreError::Unknown { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            match self.store.get(self.purpose, LOCK) {
                Ok((found, _)) if found == by.as_bytes() => return Ok(Locked(self)),
                Ok((found, _)) => {
                    let holder = String::from_utf8_lossy(&found).into_owned();
                    return Err(Error::Busy(format!(
                        "the repository {} is locked: {holder}. If that does not run any more, terrace backup unlock",
                        self.describe()
                    )));
                }
                Err(StoreError::Absent { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Unavailable(format!("no answer from {} to the lock", self.describe())))
    }

    /// Removes the lock of a process that does not run any more. Returns what it said.
    pub fn unlock(&self) -> Result<Option<String>> {
        match self.store.get(self.purpose, LOCK) {
            Ok((found, _)) => {
                self.store.delete(self.purpose, LOCK)?;
                Ok(Some(String::from_utf8_lossy(&found).into_owned()))
            }
            Err(StoreError::Absent { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Stores exactly these bytes under the key. If the key has an object with the same content already, that is success; with other content it is an
/// error; so a put whose reply was lost, or one that is repeated after a crash, has one outcome.
pub(in crate::offline) fn put_exactly(
    store: &dyn ObjectStore,
    purpose: Purpose,
    key: &str,
    body: &Bytes,
) -> Result<()> {
    let mut last = None;
    for _ in 0..TRIES {
        match store.put_if_absent(purpose, key, std::slice::from_ref(body)) {
            Ok(_) => return Ok(()),
            Err(error @ (StoreError::Conflict { .. } | StoreError::Unknown { .. })) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
        match store.get(purpose, key) {
            Ok((found, _)) if found == *body => return Ok(()),
            Ok(_) => {
                let store = store.describe();
                return Err(Error::Invalid(format!("{key} in {store} exists already, with other content")));
            }
            Err(StoreError::Absent { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Unavailable(last.map_or(String::new(), |error| error.to_string())))
}

/// Whether a backup can have this name: it is a part of keys.
pub fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with('.') || !name.chars().all(fits) {
        return Err(Error::Invalid(format!(
            "\"{name}\" cannot be the name of a backup: 1 to {NAME_MAX} letters, digits, '-', '_' and '.', not beginning with '.'"
        )));
    }
    Ok(())
}

/// Works on a few at a time, side by side if the store can, and stops at the first part with an error.
fn in_parts<T: Sync, R: Send>(
    items: &[T],
    parallel: bool,
    work: impl Fn(&T) -> Result<R> + Sync,
    mut done: impl FnMut(&[R]),
) -> Result<()> {
    for part in items.chunks(AT_ONCE) {
        let results = match parallel {
            true => side_by_side(part, &work).into_iter().collect::<Result<Vec<R>>>()?,
            false => part.iter().map(&work).collect::<Result<Vec<R>>>()?,
        };
        done(&results);
    }
    Ok(())
}
