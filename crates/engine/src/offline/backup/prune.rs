//! Removing backups: first the manifest of each, then its volume's chunks; at last the objects that no manifest names any more. The chunks of
//! backups that were not completed are removed, too. Interrupted at any point, the next call goes on: what it finds is a backup without a
//! manifest, or objects that nothing names.

use super::attach::Reference;
use super::manifest::Manifest;
use super::{FOLDER, Repository, manifest_key};
use crate::error::{Error, Result};
use crate::offline::check::Progress;
use crate::planted;
use std::collections::HashSet;
use terrace_tier::address::ObjectKey;

const DAY_MS: u64 = 86_400_000;

/// What was removed.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Pruned {
    pub backups: Vec<String>,
    /// Those that were not complete.
    pub incomplete: Vec<String>,
    /// Those that stay because an instance reads them.
    pub attached: Vec<Reference>,
    pub objects: u64,
    pub bytes: u64,
}

/// Which backups are kept, beside those that instances read.
#[derive(Clone, Copy, Default, Debug)]
pub struct Keep {
    /// The newest ones, at least one.
    pub newest: usize,
    /// Those made at this Unix time or later, in milliseconds.
    pub since_ms: Option<u64>,
}

impl Keep {
    pub fn newest(newest: usize) -> Keep {
        Keep { newest, since_ms: None }
    }

    /// Also those of the last `days` days before `now_ms`, which is Unix time.
    pub fn of_days(newest: usize, days: u64, now_ms: u64) -> Keep {
        Keep { newest, since_ms: Some(now_ms.saturating_sub(days.saturating_mul(DAY_MS))) }
    }
}

/// Removes the complete backups that are not to be kept.
pub fn prune(repository: &Repository, keep: Keep, progress: Progress<'_>) -> Result<Pruned> {
    if keep.newest == 0 {
        return Err(Error::Invalid("at least one backup is kept".into()));
    }
    let _lock = repository.lock("backups are being removed")?;
    // All manifests are readable, or nothing is removed: one that is not may name anything.
    let (mut complete, incomplete) = repository.list()?;
    let references = repository.references()?;
    let is_read = |one: &Manifest| {
        references.iter().any(|reference| reference.backup == one.name) && !planted::REFERENCE_IGNORED.on()
    };
    let rest = complete.split_off(complete.len().saturating_sub(keep.newest));
    let is_young = |one: &Manifest| keep.since_ms.is_some_and(|since| one.made_ms >= since);
    let (mut attached, mut old) = (Vec::new(), Vec::new());
    complete.retain(|one| {
        let is_old = !is_young(one);
        if is_old && is_read(one) {
            attached.extend(references.iter().filter(|reference| reference.backup == one.name).cloned());
        } else if is_old {
            old.push(one.name.clone());
        }
        !is_old || is_read(one)
    });
    complete.extend(rest);
    let named: HashSet<ObjectKey> = complete.iter().flat_map(|one| &one.objects).map(|one| one.key).collect();
    let remove = |key: &str| repository.store.delete(repository.purpose, key);
    for name in &old {
        if !planted::MANIFEST_KEPT.on() {
            remove(&manifest_key(name))?;
        }
    }
    for name in old.iter().chain(&incomplete) {
        let chunks = repository.keys(&format!("{FOLDER}/{name}/volume/"))?;
        chunks.iter().try_for_each(|key| remove(key))?;
    }
    let mut unnamed = Vec::new();
    repository.store.list(repository.purpose, "objects/", &mut |key, length| {
        let object = key.strip_prefix("objects/").and_then(ObjectKey::parse);
        if object.is_some_and(|object| !named.contains(&object)) {
            unnamed.push((key.to_string(), length));
        }
    })?;
    let mut done = Pruned { backups: old, incomplete, attached, ..Pruned::default() };
    for (key, length) in &unnamed {
        remove(key)?;
        done.objects += 1;
        done.bytes += length;
        progress("removing objects", done.objects, unnamed.len() as u64);
    }
    Ok(done)
}
