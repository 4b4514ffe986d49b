//! Attaching: a restored instance is served before its objects are copied, and reads them here (`terrace_tier::objects::attached`).
//!
//! Its reference is put under the repository's lock, after the manifest was read again: so no removal of backups is under way, and each later one finds
//! the reference and keeps that backup. The instance removes the reference when it has copied everything; an operator does it for an instance that is lost.

use super::manifest::Manifest;
use super::{Repository, put_exactly};
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use terrace_io::store::{Bytes, StoreError};
use terrace_tier::objects::attached::record::{Kind, REFERENCES, Record, Source};

/// An instance that reads objects of a backup here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    pub instance: u128,
    pub backup: String,
}

/// Where a repository is, so that the instance finds it.
#[derive(Clone, Debug)]
pub struct Attach {
    /// URL of its server, if it is not the provider's own.
    pub endpoint: Option<String>,
    /// Bytes a second at which objects are copied; 0: as fast as they come.
    pub rate: u64,
}

fn key(instance: u128) -> String {
    format!("{REFERENCES}/{instance:032x}")
}

impl Repository {
    /// The instances that read here.
    pub fn references(&self) -> Result<Vec<Reference>> {
        let mut found = Vec::new();
        for at in self.keys(&format!("{REFERENCES}/"))? {
            let id =
                at.strip_prefix(REFERENCES).and_then(|rest| u128::from_str_radix(rest.get(1..)?, 16).ok());
            let (body, _) = match self.store.get(self.purpose, &at) {
                Err(StoreError::Absent { .. }) => continue, // it was removed since
                other => other?,
            };
            let backup = String::from_utf8(body).ok().filter(|name| super::check_name(name).is_ok());
            match (id.filter(|id| key(*id) == at), backup) {
                (Some(instance), Some(backup)) => found.push(Reference { instance, backup }),
                _ => return Err(Error::Corrupt(format!("{at} in {} is no reference", self.describe()))),
            }
        }
        Ok(found)
    }

    /// Keeps the backup for the instance.
    pub(in crate::offline) fn refer(&self, instance: u128, manifest: &Manifest) -> Result<()> {
        let _lock = self.lock(&format!("backup {} is being attached to {instance:032x}", manifest.name))?;
        if self.complete(&manifest.name)? != *manifest {
            let (name, place) = (&manifest.name, self.describe());
            return Err(Error::Invalid(format!(
                "backup {name} in {place} was made anew meanwhile: restore again"
            )));
        }
        put_exactly(&*self.store, self.purpose, &key(instance), &Bytes::from(manifest.name.clone()))
    }

    /// Forgets an instance that is lost. False: there is no such reference.
    pub fn forget(&self, instance: u128) -> Result<bool> {
        match self.store.get(self.purpose, &key(instance)) {
            Ok(_) => Ok(self.store.delete(self.purpose, &key(instance)).map(|()| true)?),
            Err(StoreError::Absent { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// What the instance's store records.
pub(super) fn record(
    repository: &Repository,
    manifest: &Manifest,
    instance: u128,
    attach: &Attach,
) -> Result<Record> {
    let lineages: BTreeSet<u128> = manifest.objects.iter().map(|one| one.key.lineage).collect();
    let source = Source {
        kind: Kind::Repository { backup: manifest.name.clone() },
        url: repository.describe(),
        endpoint: attach.endpoint.clone(),
        lineages: lineages.into_iter().collect(),
    };
    let record = Record { id: instance, fill: Some(attach.rate), releasing: false, sources: vec![source] };
    record
        .check()
        .map_err(|what| Error::Invalid(format!("{} cannot be attached: {what}", repository.describe())))?;
    Ok(record)
}
