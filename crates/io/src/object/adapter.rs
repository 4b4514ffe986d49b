//! The seam's blocking store over the async one of the `object_store` crate.
//!
//! A request takes a place among those in flight, is attempted until it succeeds, is final or
//! patience ends, and is counted under its purpose. The crate's own retries are off: only here is it
//! known whether a put may have taken effect.
//!
//! Not here: the HTTP itself (see `curl`), what an error means (see `verdict`), durability of a local
//! directory (see `local`).

use crate::cancel;
use crate::object::patience::{Budget, Next, Patience};
use crate::object::verdict::{Kind, Verdict, judge};
use crate::object::wire::{self, Wire};
use crate::random::Random;
use crate::real::RealRandom;
use crate::share::Share;
use crate::stats::{StoreStats, StoreTally};
use crate::store::{
    Listed, ObjectStore, Origin, Purpose, Result, Start, StoreError, Upload, UploadPart, Version,
};
use crate::traffic::Urgency;
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ListResult, ObjectStore as Remote, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, PutResult, UpdateVersion,
};
use pollster::block_on;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub(crate) struct Adapter {
    remote: Arc<dyn Remote>,
    /// The same store's uploads in parts.
    uploads: Arc<dyn MultipartStore>,
    /// It refuses to complete an upload whose key exists.
    completes_on_condition: bool,
    /// The URL without credentials.
    name: String,
    prefix: String,
    service: String,
    /// The remote lists keys in their order.
    lists_in_order: bool,
    share: Share,
    /// Requests of one call that are in flight at a time: as many as background work may have.
    parallel_max: usize,
    budget: Budget,
    attempts_max: u32,
    time_max: Duration,
    random: RealRandom,
    tally: StoreTally,
}

pub(crate) struct Plan {
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) uploads: Arc<dyn MultipartStore>,
    pub(crate) completes_on_condition: bool,
    pub(crate) name: String,
    pub(crate) prefix: String,
    /// Provider, server and bucket.
    pub(crate) service: String,
    pub(crate) lists_in_order: bool,
    pub(crate) in_flight_max: usize,
    pub(crate) attempts_max: u32,
    pub(crate) time_max: Duration,
}

impl Adapter {
    pub(crate) fn new(plan: Plan) -> Adapter {
        let places = plan.in_flight_max.max(2);
        Adapter {
            remote: plan.remote,
            uploads: plan.uploads,
            completes_on_condition: plan.completes_on_condition,
            parallel_max: places / 2,
            name: plan.name,
            prefix: plan.prefix,
            service: plan.service,
            lists_in_order: plan.lists_in_order,
            share: Share::new(places, places / 2),
            budget: Budget::new(),
            attempts_max: plan.attempts_max,
            time_max: plan.time_max,
            random: RealRandom,
            tally: StoreTally::default(),
        }
    }

    fn path(&self, key: &str) -> Result<Path> {
        path_below(&self.prefix, key)
    }

    /// Attempts until it is done: the one loop that all requests go through.
    fn request<T>(
        &self,
        purpose: Purpose,
        key: &str,
        kind: Kind,
        bytes_of: impl Fn(&T) -> u64,
        mut attempt: impl FnMut() -> object_store::Result<T>,
    ) -> Result<T> {
        let started = Instant::now();
        // Requests that change objects run to completion: their outcome would be unknown otherwise.
        let _shield = (kind != Kind::Read).then(cancel::shield);
        let result = match self.share.enter(purpose.urgency(), 1) {
            Some(_place) => self.attempts(purpose, key, kind, started, &mut attempt),
            None => Err(StoreError::Cancelled { key: key.into() }),
        };
        let bytes = result.as_ref().map_or(0, bytes_of);
        let is_answer = result.as_ref().err().is_none_or(StoreError::is_answer);
        self.tally.purposes[purpose.index()].note(started, bytes, is_answer);
        result
    }

    fn attempts<T>(
        &self,
        purpose: Purpose,
        key: &str,
        kind: Kind,
        started: Instant,
        attempt: &mut dyn FnMut() -> object_store::Result<T>,
    ) -> Result<T> {
        let patience = Patience {
            budget: &self.budget,
            attempts_max: self.attempts_max,
            time_max: self.time_max,
            waited_for: purpose.urgency() == Urgency::Foreground,
        };
        let mut in_doubt = false;
        for attempts in 1.. {
            let (result, wire) = wire::observe(&mut *attempt);
            let error = match result {
                Ok(value) => {
                    self.budget.succeeded();
                    return Ok(value);
                }
                Err(error) => error,
            };
            if cancel::asked() {
                return Err(StoreError::Cancelled { key: key.into() });
            }
            let (error, after) = match self.judge(key, kind, &error, &wire) {
                Verdict::Final(error) => return Err(settle(error, key, in_doubt)),
                Verdict::Again { error, after, in_doubt: now } => {
                    in_doubt |= now;
                    (error, after)
                }
            };
            match patience.next(attempts, started.elapsed(), after, self.random.next_u64()) {
                Next::GiveUp => return Err(settle(error, key, in_doubt)),
                Next::Wait(wait) => {
                    self.tally.purposes[purpose.index()].note_retry();
                    if !sleep(wait) {
                        return Err(StoreError::Cancelled { key: key.into() });
                    }
                }
            }
        }
        unreachable!("patience ends")
    }

    fn judge(&self, key: &str, kind: Kind, error: &Error, wire: &Wire) -> Verdict {
        let verdict = judge(key, kind, error, wire);
        if matches!(verdict, Verdict::Again { error: StoreError::Throttled { .. }, .. }) {
            self.tally.throttled.fetch_add(1, Ordering::Relaxed);
        }
        verdict
    }

    /// Reads a range; the version that the object had.
    fn read_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<Version> {
        let path = self.path(key)?;
        let range = GetRange::Bounded(offset..offset + buf.len() as u64);
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        let get = || {
            block_on(async {
                let result = self.remote.get_opts(&path, options.clone()).await?;
                let version = to_version(result.meta.e_tag.clone(), result.meta.version.clone());
                Ok((result.bytes().await?, version))
            })
        };
        let (bytes, version) =
            self.request(purpose, key, Kind::Read, |got: &(Bytes, _)| got.0.len() as u64, get)?;
        if bytes.len() != buf.len() {
            let cause = format!("{} bytes from {offset} asked for, {} there", buf.len(), bytes.len());
            return Err(StoreError::Refused { key: key.into(), cause });
        }
        buf.copy_from_slice(&bytes);
        Ok(version)
    }

    fn complete(
        &self,
        purpose: Purpose,
        upload: &Upload,
        parts: &[UploadPart],
        creates_only: bool,
    ) -> Result<Version> {
        let path = self.path(&upload.key)?;
        let complete = || {
            let ids = parts.iter().map(|part| PartId { content_id: part.tag.clone() }).collect();
            let attempt = || block_on(self.uploads.complete_multipart(&path, &upload.id, ids));
            if creates_only { wire::creating_only(attempt) } else { attempt() }
        };
        let result = self.request(purpose, &upload.key, Kind::Complete, |_| 0, complete)?;
        Ok(to_version(result.e_tag, result.version))
    }

    fn put(&self, purpose: Purpose, key: &str, payload: PutPayload, mode: PutMode) -> Result<Version> {
        let path = self.path(key)?;
        let length = payload.content_length() as u64;
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = || block_on(self.remote.put_opts(&path, payload.clone(), options.clone()));
        let result: PutResult = self.request(purpose, key, Kind::Put, |_| length, put)?;
        Ok(to_version(result.e_tag, result.version))
    }
}

fn path_below(prefix: &str, key: &str) -> Result<Path> {
    let full = if prefix.is_empty() { key.to_string() } else { format!("{prefix}/{key}") };
    Path::parse(full).map_err(|e| StoreError::Refused { key: key.into(), cause: e.to_string() })
}

/// False: cancelled.
fn sleep(wait: Duration) -> bool {
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if cancel::asked() || left.is_zero() {
            return left.is_zero();
        }
        std::thread::sleep(cancel::patience().map_or(left, |look| left.min(Duration::from_nanos(look))));
    }
}

/// What the caller is told at last, when earlier attempts may have taken effect.
fn settle(error: StoreError, key: &str, in_doubt: bool) -> StoreError {
    match error {
        error if !in_doubt => error,
        StoreError::Conflict { .. } => StoreError::Unknown {
            key: key.into(),
            cause: "an attempt without an answer may have stored it".into(),
        },
        StoreError::Throttled { .. } => {
            StoreError::Unknown { key: key.into(), cause: "the store asks to slow down".into() }
        }
        StoreError::Unavailable { key, cause } | StoreError::Refused { key, cause } => {
            StoreError::Unknown { key, cause }
        }
        error => error,
    }
}

/// S3 and Azure name a version by its ETag, Google by its generation; both are kept.
fn to_version(e_tag: Option<String>, version: Option<String>) -> Version {
    Version(format!("{}\n{}", e_tag.unwrap_or_default(), version.unwrap_or_default()))
}

fn from_version(version: &Version) -> UpdateVersion {
    let (e_tag, version) = version.0.split_once('\n').unwrap_or((&version.0, ""));
    let some = |text: &str| Some(text.to_string()).filter(|t| !t.is_empty());
    UpdateVersion { e_tag: some(e_tag), version: some(version) }
}

/// The parts of a listing as one, in the order of names, without the first `skip` bytes of each key.
pub(super) fn each_in_order(found: ListResult, skip: usize, each: &mut dyn FnMut(Listed)) {
    let below = |path: &Path| path.as_ref().get(skip..).unwrap_or_default().to_string();
    let folders = found.common_prefixes.iter().map(|path| Listed::Folder(below(path)));
    let objects = found.objects.iter().map(|meta| Listed::Object {
        key: below(&meta.location),
        length: meta.size,
        modified_ms: meta.last_modified.timestamp_millis().max(0) as u64,
    });
    let mut all: Vec<Listed> = folders.chain(objects).collect();
    all.sort_unstable_by(|a, b| name_of(a).cmp(name_of(b)));
    all.into_iter().for_each(each);
}

fn name_of(listed: &Listed) -> &str {
    match listed {
        Listed::Folder(name) | Listed::Object { key: name, .. } => name,
    }
}

impl ObjectStore for Adapter {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        let payload = parts.iter().cloned().collect();
        self.put(purpose, key, payload, PutMode::Create)
    }

    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        let payload = PutPayload::from_bytes(Bytes::copy_from_slice(body));
        self.put(purpose, key, payload, PutMode::Update(from_version(expected)))
    }

    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_range(purpose, key, offset, buf).map(|_| ())
    }

    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        let path = self.path(key)?;
        let head = || block_on(self.remote.head(&path));
        let meta = self.request(purpose, key, Kind::Read, |_| 0, head)?;
        Ok((meta.size, to_version(meta.e_tag, meta.version)))
    }

    /// The answer's version is compared here: not every store that speaks S3 honours a condition on a read.
    fn get_range_of(
        &self,
        purpose: Purpose,
        key: &str,
        offset: u64,
        buf: &mut [u8],
        expected: &Version,
    ) -> Result<()> {
        match self.read_range(purpose, key, offset, buf) {
            Ok(version) if version == *expected => Ok(()),
            Ok(_) => Err(StoreError::Conflict { key: key.into() }),
            // A shorter object in its place has another version, too.
            Err(StoreError::Refused { .. }) if self.head(purpose, key)?.1 != *expected => {
                Err(StoreError::Conflict { key: key.into() })
            }
            Err(error) => Err(error),
        }
    }

    fn begin_upload(&self, purpose: Purpose, key: &str) -> Result<Upload> {
        let path = self.path(key)?;
        let begin = || block_on(self.uploads.create_multipart(&path));
        let id = self.request(purpose, key, Kind::Part, |_| 0, begin)?;
        Ok(Upload { key: key.into(), id })
    }

    fn put_part(
        &self,
        purpose: Purpose,
        upload: &Upload,
        number: u32,
        offset: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        let path = self.path(&upload.key)?;
        let bytes = body.len() as u64;
        let put = || {
            let payload = PutPayload::from_bytes(body.clone());
            block_on(self.uploads.put_part(&path, &upload.id, number as usize, payload))
        };
        let id = self.request(purpose, &upload.key, Kind::Part, |_| bytes, put)?;
        Ok(UploadPart { number, offset, bytes, tag: id.content_id })
    }

    fn complete_upload(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        let key = upload.key.as_str();
        UploadPart::check(key, parts)?;
        if !self.completes_on_condition {
            match self.head(purpose, key) {
                Ok(_) => return Err(StoreError::Conflict { key: key.into() }),
                Err(StoreError::Absent { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.complete(purpose, upload, parts, self.completes_on_condition)
    }

    fn complete_replacing(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        UploadPart::check(&upload.key, parts)?;
        self.complete(purpose, upload, parts, false)
    }

    fn origin(&self) -> Option<Origin> {
        Some(Origin { service: self.service.clone(), prefix: self.prefix.clone() })
    }

    fn copy_within(&self, purpose: Purpose, source: &Origin, from: &str, to: &str) -> Result<()> {
        if source.service != self.service {
            let cause = format!("{} cannot copy from {}", self.service, source.service);
            return Err(StoreError::Refused { key: from.into(), cause });
        }
        let (source, path) = (path_below(&source.prefix, from)?, self.path(to)?);
        let copy = || block_on(self.remote.copy(&source, &path));
        self.request(purpose, to, Kind::Copy, |()| 0, copy)
    }

    fn replace(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        self.put(purpose, key, parts.iter().cloned().collect(), PutMode::Overwrite)
    }

    fn get_start(&self, purpose: Purpose, key: &str, max: usize) -> Result<Start> {
        let path = self.path(key)?;
        let range = Some(GetRange::Bounded(0..max as u64));
        let options = GetOptions { range, ..GetOptions::default() };
        let get = || {
            block_on(async {
                let result = self.remote.get_opts(&path, options.clone()).await?;
                let version = to_version(result.meta.e_tag.clone(), result.meta.version.clone());
                let length = result.meta.size;
                Ok(Start { bytes: result.bytes().await?, length, version })
            })
        };
        match self.request(purpose, key, Kind::Read, |start: &Start| start.bytes.len() as u64, get) {
            // No range lies in an empty object.
            Err(refused @ StoreError::Refused { .. }) => match self.head(purpose, key)? {
                (0, version) => Ok(Start { bytes: Bytes::new(), length: 0, version }),
                _ => Err(refused),
            },
            answer => answer,
        }
    }

    fn list_folder(&self, purpose: Purpose, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        let full = [self.prefix.as_str(), folder].into_iter().filter(|part| !part.is_empty());
        let path = Path::parse(full.collect::<Vec<_>>().join("/"))
            .map_err(|e| StoreError::Refused { key: folder.into(), cause: e.to_string() })?;
        let list = || block_on(self.remote.list_with_delimiter(Some(&path)));
        match self.request(purpose, folder, Kind::Read, |_| 0, list) {
            Ok(found) => {
                each_in_order(found, if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 }, each)
            }
            Err(StoreError::Absent { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn abort_upload(&self, purpose: Purpose, upload: &Upload) -> Result<()> {
        let path = self.path(&upload.key)?;
        let abort = || block_on(self.uploads.abort_multipart(&path, &upload.id));
        match self.request(purpose, &upload.key, Kind::Delete, |()| 0, abort) {
            Err(StoreError::Absent { .. }) => Ok(()),
            other => other,
        }
    }

    fn parallel_max(&self) -> usize {
        self.parallel_max
    }

    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        let path = self.path(key)?;
        let get = || {
            block_on(async {
                let result = self.remote.get_opts(&path, GetOptions::default()).await?;
                let version = to_version(result.meta.e_tag.clone(), result.meta.version.clone());
                Ok((result.bytes().await?, version))
            })
        };
        let (bytes, version) =
            self.request(purpose, key, Kind::Read, |got: &(Bytes, _)| got.0.len() as u64, get)?;
        Ok((bytes.into(), version))
    }

    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        let path = self.path(key)?;
        let delete = || block_on(self.remote.delete(&path));
        match self.request(purpose, key, Kind::Delete, |()| 0, delete) {
            Err(StoreError::Absent { .. }) => Ok(()),
            other => other,
        }
    }

    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        // The crate lists by whole segments: the last one, if it is a part, is compared here.
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder =
            [self.prefix.as_str(), folder].iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>();
        let folder = Path::parse(folder.join("/"))
            .map_err(|e| StoreError::Refused { key: prefix.into(), cause: e.to_string() })?;
        let skip = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        let mut last: Option<Path> = None;
        let mut unordered = Vec::new();
        // A listing cut off in the middle goes on after the last key that was told; one that has come further is a request of its own, for what
        // a request may take is for a part of the keys, however many there are.
        loop {
            let before = last.clone();
            let listing = || {
                block_on(async {
                    let mut stream = match &last {
                        Some(after) if self.lists_in_order => {
                            self.remote.list_with_offset(Some(&folder), after)
                        }
                        _ => self.remote.list(Some(&folder)),
                    };
                    unordered.clear();
                    while let Some(meta) = stream.next().await {
                        let meta = meta?;
                        let Some(key) =
                            meta.location.as_ref().get(skip..).filter(|key| key.starts_with(prefix))
                        else {
                            continue;
                        };
                        if self.lists_in_order {
                            each(key, meta.size);
                            last = Some(meta.location);
                        } else {
                            unordered.push((key.to_string(), meta.size));
                        }
                    }
                    Ok(())
                })
            };
            match self.request(purpose, prefix, Kind::Read, |()| 0, listing) {
                Ok(()) | Err(StoreError::Absent { .. }) => break,
                Err(StoreError::Unavailable { .. } | StoreError::Throttled { .. }) if last != before => {}
                Err(error) => return Err(error),
            }
        }
        unordered.sort_unstable();
        unordered.iter().for_each(|(key, size)| each(key, *size));
        Ok(())
    }

    fn beside(&self, url: &str, endpoint: Option<&str>, read_only: bool) -> Result<Arc<dyn ObjectStore>> {
        super::open_beside(url, endpoint, read_only)
    }
    fn stats(&self) -> Option<StoreStats> {
        Some(self.tally.read())
    }
}
