//! Verifying a backup: everything that the manifest names is read back and compared with its checksum, and each object with its own content
//! hash. What a restore reads goes through the same checks.

use super::manifest::{ChunkEntry, Manifest, ObjectEntry};
use super::{Repository, chunk_key, in_parts, object_key};
use crate::error::{Error, Result};
use crate::offline::check::Progress;
use terrace_io::store::StoreError;
use terrace_tier::objects::object::format;

/// What was found.
pub struct Verified {
    pub objects: u64,
    pub chunks: u64,
    pub bytes: u64,
    /// What is missing or damaged.
    pub faults: Vec<String>,
}

/// Reads the whole backup.
pub fn verify(repository: &Repository, manifest: &Manifest, progress: Progress<'_>) -> Result<Verified> {
    let mut found = Verified { objects: 0, chunks: 0, bytes: 0, faults: Vec::new() };
    let chunks: Vec<(&str, &ChunkEntry)> =
        manifest.files.iter().flat_map(|file| file.chunks.iter().map(|chunk| (&*file.name, chunk))).collect();
    let parallel = repository.store.parallel_max() > 1;
    let mut take = |what: &str,
                    part: &[std::result::Result<u64, String>],
                    all: usize,
                    count: fn(&mut Verified) -> &mut u64| {
        for one in part {
            match one {
                Ok(bytes) => found.bytes += bytes,
                Err(fault) => found.faults.push(fault.clone()),
            }
        }
        *count(&mut found) += part.len() as u64;
        progress(what, *count(&mut found), all as u64);
    };
    let chunk =
        |(file, chunk): &(&str, &ChunkEntry)| heard(read_chunk(repository, &manifest.name, file, chunk));
    in_parts(&chunks, parallel, chunk, |part| {
        take("verifying the volume", part, chunks.len(), |found| &mut found.chunks)
    })?;
    let object = |one: &ObjectEntry| heard(read_object(repository, one));
    in_parts(&manifest.objects, parallel, object, |part| {
        take("verifying objects", part, manifest.objects.len(), |found| &mut found.objects);
    })?;
    Ok(found)
}

/// A fault of the backup is a finding; that the repository does not answer is an error.
fn heard(read: Result<Vec<u8>>) -> Result<std::result::Result<u64, String>> {
    match read {
        Ok(bytes) => Ok(Ok(bytes.len() as u64)),
        Err(error @ (Error::Missing(_) | Error::Corrupt(_))) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

pub(super) fn read_chunk(
    repository: &Repository,
    name: &str,
    file: &str,
    chunk: &ChunkEntry,
) -> Result<Vec<u8>> {
    read(repository, &chunk_key(name, file, chunk.number), chunk.length, Some(chunk.crc))
}

pub(super) fn read_object(repository: &Repository, one: &ObjectEntry) -> Result<Vec<u8>> {
    let key = object_key(&one.key);
    let bytes = read(repository, &key, one.length, one.crc)?;
    format::check(&one.key, &bytes)
        .map_err(|bad| Error::Corrupt(format!("{key} in {}: {bad}", repository.describe())))?;
    Ok(bytes)
}

fn read(repository: &Repository, key: &str, length: u64, crc: Option<u32>) -> Result<Vec<u8>> {
    let place = || repository.describe();
    repository.take(length);
    let bytes = match repository.store.get(repository.purpose, key) {
        Ok((bytes, _)) => bytes,
        Err(StoreError::Absent { .. }) => return Err(Error::Missing(format!("{key} is not in {}", place()))),
        Err(error) => return Err(error.into()),
    };
    if bytes.len() as u64 != length {
        return Err(Error::Corrupt(format!(
            "{key} in {} has {} bytes, the manifest says {length}",
            place(),
            bytes.len()
        )));
    }
    if crc.is_some_and(|crc| crc32c::crc32c(&bytes) != crc) {
        return Err(Error::Corrupt(format!(
            "{key} in {}: its checksum differs from the manifest's",
            place()
        )));
    }
    Ok(bytes)
}
