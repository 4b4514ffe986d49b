//! An object store whose answers get lost, come late, or never come.
//!
//! It never loses what it acknowledged. A put that reports [`StoreError::Unknown`] may have taken
//! effect, may take effect later, or not at all.

use crate::clock::SimClock;
use crate::random::SimRandom;
use crate::steps::Steps;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use terrace_io::random::Random;
use terrace_io::store::{
    Bytes, ObjectStore, Origin, Purpose, ReadOnly, Result, StoreError, Upload, UploadPart, Version,
};

/// Faults, each once in the given number of requests; 0 is never.
#[derive(Default)]
pub struct StoreFaults {
    /// Fails before the effect.
    pub unavailable: AtomicU64,
    /// The reply is lost; the effect happened, or not, or comes late.
    pub unknown: AtomicU64,
    pub throttled: AtomicU64,
    /// Nanoseconds that a request takes on the simulated clock.
    pub delay: AtomicU64,
    /// Parts of uploads that are acknowledged and dropped.
    pub dropped_parts: AtomicU64,
    pub dead: AtomicBool,
    /// The stores of the world are one service, which copies objects by itself.
    pub copies_within: AtomicBool,
    /// It says so, and refuses.
    pub copies_refused: AtomicBool,
    /// A directory without syncs: see [`SimStore::lose_unsynced`].
    pub lying: AtomicBool,
}

/// An upload in parts that has not ended.
struct OpenUpload {
    key: String,
    parts: BTreeMap<u32, (u64, Bytes)>,
}

/// A put or a completion whose reply was lost and that has not landed yet.
struct Late {
    key: String,
    body: Vec<u8>,
    /// The version that it replaces; None: it lands only if the key does not exist.
    expected: Option<u64>,
    /// The upload that it completes.
    upload: Option<String>,
}

struct Object {
    body: Vec<u8>,
    version: u64,
}

#[derive(Default)]
struct Objects {
    map: BTreeMap<String, Object>,
    next_version: u64,
    late: Vec<Late>,
    uploads: BTreeMap<String, OpenUpload>,
    /// Keys of puts that the loss of power cut off: what a directory keeps of them.
    staged: Vec<String>,
    /// Keys put while the store lies.
    unsynced: Vec<String>,
}

impl Objects {
    fn put(&mut self, key: &str, body: Vec<u8>) -> Version {
        self.next_version += 1;
        let version = self.next_version;
        self.map.insert(key.to_string(), Object { body, version });
        Version(version.to_string())
    }

    fn put_noted(&mut self, key: &str, body: Vec<u8>, lying: bool) -> Version {
        if lying {
            self.unsynced.push(key.to_string());
        }
        self.put(key, body)
    }
}

/// The stores of one world, by name, as others name them.
pub(crate) type Stores = Arc<Mutex<BTreeMap<String, Weak<SimStore>>>>;

pub struct SimStore {
    name: String,
    beside: Stores,
    objects: Mutex<Objects>,
    random: SimRandom,
    clock: Arc<SimClock>,
    steps: Arc<Steps>,
    pub faults: StoreFaults,
    requests: [AtomicU64; Purpose::MAX],
}

impl SimStore {
    pub(crate) fn new(
        name: &str,
        beside: Stores,
        random: SimRandom,
        clock: Arc<SimClock>,
        steps: Arc<Steps>,
    ) -> SimStore {
        SimStore {
            name: name.to_string(),
            beside,
            objects: Mutex::default(),
            random,
            clock,
            steps,
            faults: StoreFaults::default(),
            requests: Default::default(),
        }
    }

    pub fn keys(&self) -> Vec<String> {
        self.objects.lock().map.keys().cloned().collect()
    }
    /// Keys of puts that never ended and left something.
    pub fn staged(&self) -> Vec<String> {
        let objects = self.objects.lock();
        let uploads = objects.uploads.values().map(|upload| upload.key.clone());
        objects.staged.iter().cloned().chain(uploads).collect()
    }
    pub fn requests(&self, purpose: Purpose) -> u64 {
        self.requests[purpose.index()].load(Ordering::SeqCst)
    }
    /// Flips one bit of an object at rest.
    pub fn flip(&self, key: &str, offset: usize, bit: u8) -> bool {
        match self.objects.lock().map.get_mut(key).and_then(|o| o.body.get_mut(offset)) {
            Some(byte) => {
                *byte ^= 1 << (bit % 8);
                true
            }
            None => false,
        }
    }
    /// Shortens an object at rest. False: there is none.
    pub fn cut(&self, key: &str, len: usize) -> bool {
        let mut objects = self.objects.lock();
        let Some(object) = objects.map.get_mut(key) else { return false };
        object.body.truncate(len);
        true
    }
    /// Lets every late put land, unless its key was taken or its object replaced meanwhile.
    pub fn land_late_puts(&self) {
        let mut objects = self.objects.lock();
        for late in std::mem::take(&mut objects.late) {
            if objects.map.get(&late.key).map(|object| object.version) == late.expected {
                objects.put(&late.key, late.body);
                late.upload.and_then(|id| objects.uploads.remove(&id));
            }
        }
    }

    /// Power was lost: half of the objects put while the store lied are gone.
    pub fn lose_unsynced(&self) {
        let mut objects = self.objects.lock();
        for key in std::mem::take(&mut objects.unsynced) {
            if self.random.one_in(2) {
                objects.map.remove(&key);
            }
        }
    }

    fn strikes(&self, rate: &AtomicU64) -> bool {
        let rate = rate.load(Ordering::SeqCst);
        rate > 0 && self.random.one_in(rate)
    }

    /// The part of a request before its effect. `Ok(true)`: the reply will be lost.
    fn begin(&self, purpose: Purpose, key: &str) -> Result<bool> {
        let key = key.to_string();
        self.requests[purpose.index()].fetch_add(1, Ordering::SeqCst);
        self.clock.advance(self.faults.delay.load(Ordering::SeqCst));
        if !self.steps.take() {
            return Err(StoreError::Unavailable { key, cause: "the power is off".into() });
        }
        if self.faults.dead.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { key, cause: "the store is dead".into() });
        }
        if self.random.one_in(4) {
            self.land_late_puts();
        }
        if self.strikes(&self.faults.throttled) {
            return Err(StoreError::Throttled { key, retry_after_ms: 50 });
        }
        if self.strikes(&self.faults.unavailable) {
            return Err(StoreError::Unavailable { key, cause: "connection refused".into() });
        }
        Ok(self.strikes(&self.faults.unknown))
    }

    fn read_range(
        &self,
        purpose: Purpose,
        key: &str,
        offset: u64,
        buf: &mut [u8],
        expected: Option<&Version>,
    ) -> Result<()> {
        if self.begin(purpose, key)? {
            return Err(StoreError::Unavailable { key: key.to_string(), cause: "the reply was lost".into() });
        }
        let objects = self.objects.lock();
        let object = objects.map.get(key).ok_or_else(|| StoreError::Absent { key: key.to_string() })?;
        if expected.is_some_and(|expected| expected.0 != object.version.to_string()) {
            return Err(StoreError::Conflict { key: key.to_string() });
        }
        let from = offset as usize;
        match object.body.get(from..from + buf.len()) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(StoreError::Refused {
                key: key.to_string(),
                cause: "the range lies past the object".into(),
            }),
        }
    }

    fn lost(&self, key: &str) -> StoreError {
        StoreError::Unknown { key: key.to_string(), cause: "the reply was lost".into() }
    }
}

fn no_upload(upload: &Upload) -> StoreError {
    StoreError::Refused { key: upload.key.clone(), cause: "no such upload".into() }
}

impl ObjectStore for SimStore {
    fn describe(&self) -> String {
        format!("sim:{}", self.name)
    }
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        let begun = self.begin(purpose, key);
        let mut objects = self.objects.lock();
        if begun.is_err() && self.steps.crashed() {
            objects.staged.push(key.to_string());
        }
        if begun? {
            match self.random.below(3) {
                0 => {}
                1 => objects.late.push(Late {
                    key: key.to_string(),
                    body: parts.concat(),
                    expected: None,
                    upload: None,
                }),
                _ if !objects.map.contains_key(key) => {
                    objects.put(key, parts.concat());
                }
                _ => {}
            }
            return Err(self.lost(key));
        }
        if objects.map.contains_key(key) {
            return Err(StoreError::Conflict { key: key.to_string() });
        }
        let lying = self.faults.lying.load(Ordering::SeqCst);
        Ok(objects.put_noted(key, parts.concat(), lying))
    }
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        let lost = self.begin(purpose, key)?;
        let mut objects = self.objects.lock();
        let current = objects.map.get(key).map(|object| object.version);
        if current.map(|version| version.to_string()).as_ref() != Some(&expected.0) {
            return Err(StoreError::Conflict { key: key.to_string() });
        }
        if lost {
            match self.random.below(3) {
                0 => {}
                1 => objects.late.push(Late {
                    key: key.to_string(),
                    body: body.to_vec(),
                    expected: current,
                    upload: None,
                }),
                _ => _ = objects.put(key, body.to_vec()),
            }
            return Err(self.lost(key));
        }
        Ok(objects.put(key, body.to_vec()))
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_range(purpose, key, offset, buf, None)
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        if self.begin(purpose, key)? {
            return Err(StoreError::Unavailable { key: key.to_string(), cause: "the reply was lost".into() });
        }
        let objects = self.objects.lock();
        match objects.map.get(key) {
            Some(object) => Ok((object.body.clone(), Version(object.version.to_string()))),
            None => Err(StoreError::Absent { key: key.to_string() }),
        }
    }
    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        if self.begin(purpose, key)? {
            return Err(StoreError::Unavailable { key: key.to_string(), cause: "the reply was lost".into() });
        }
        match self.objects.lock().map.get(key) {
            Some(object) => Ok((object.body.len() as u64, Version(object.version.to_string()))),
            None => Err(StoreError::Absent { key: key.to_string() }),
        }
    }
    fn get_range_of(
        &self,
        purpose: Purpose,
        key: &str,
        offset: u64,
        buf: &mut [u8],
        expected: &Version,
    ) -> Result<()> {
        self.read_range(purpose, key, offset, buf, Some(expected))
    }
    fn begin_upload(&self, purpose: Purpose, key: &str) -> Result<Upload> {
        let lost = self.begin(purpose, key)?;
        let mut objects = self.objects.lock();
        objects.next_version += 1;
        let id = objects.next_version.to_string();
        if !lost || self.random.one_in(2) {
            objects.uploads.insert(id.clone(), OpenUpload { key: key.to_string(), parts: BTreeMap::new() });
        }
        if lost { Err(self.lost(key)) } else { Ok(Upload { key: key.to_string(), id }) }
    }
    fn put_part(
        &self,
        purpose: Purpose,
        upload: &Upload,
        number: u32,
        offset: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        let lost = self.begin(purpose, &upload.key)?;
        let mut objects = self.objects.lock();
        let open = objects.uploads.get_mut(&upload.id).ok_or_else(|| no_upload(upload))?;
        if !(lost && self.random.one_in(2) || self.strikes(&self.faults.dropped_parts)) {
            open.parts.insert(number, (offset, body.clone()));
        }
        if lost {
            return Err(self.lost(&upload.key));
        }
        Ok(UploadPart { number, offset, bytes: body.len() as u64, tag: format!("{}.{number}", upload.id) })
    }
    fn complete_upload(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        let key = upload.key.as_str();
        UploadPart::check(key, parts)?;
        let lost = self.begin(purpose, key)?;
        let mut objects = self.objects.lock();
        let open = objects.uploads.get(&upload.id).ok_or_else(|| no_upload(upload))?;
        let mut body = Vec::new();
        for part in parts {
            match open.parts.get(&part.number) {
                Some((offset, bytes)) if (*offset, bytes.len() as u64) == (part.offset, part.bytes) => {
                    body.extend_from_slice(bytes);
                }
                _ => {
                    let cause = format!("part {} was not stored as it is listed", part.number);
                    return Err(StoreError::Refused { key: key.to_string(), cause });
                }
            }
        }
        if objects.map.contains_key(key) {
            return Err(if lost { self.lost(key) } else { StoreError::Conflict { key: key.to_string() } });
        }
        if lost {
            match self.random.below(3) {
                0 => {}
                1 => {
                    let (key, upload) = (key.to_string(), Some(upload.id.clone()));
                    objects.late.push(Late { key, body, expected: None, upload });
                }
                _ => {
                    objects.uploads.remove(&upload.id);
                    objects.put(key, body);
                }
            }
            return Err(self.lost(key));
        }
        objects.uploads.remove(&upload.id);
        let lying = self.faults.lying.load(Ordering::SeqCst);
        Ok(objects.put_noted(key, body, lying))
    }
    fn abort_upload(&self, purpose: Purpose, upload: &Upload) -> Result<()> {
        let lost = self.begin(purpose, &upload.key)?;
        if lost && self.random.one_in(2) {
            return Err(self.lost(&upload.key));
        }
        let mut objects = self.objects.lock();
        objects.uploads.remove(&upload.id);
        objects.late.retain(|late| late.upload.as_ref() != Some(&upload.id));
        if lost { Err(self.lost(&upload.key)) } else { Ok(()) }
    }
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        let lost = self.begin(purpose, key)?;
        if lost && self.random.one_in(2) {
            return Err(self.lost(key));
        }
        self.objects.lock().map.remove(key);
        if lost { Err(self.lost(key)) } else { Ok(()) }
    }
    fn origin(&self) -> Option<Origin> {
        let copies = self.faults.copies_within.load(Ordering::SeqCst);
        copies.then(|| Origin { service: "sim".into(), prefix: self.name.clone() })
    }
    fn copy_within(&self, purpose: Purpose, source: &Origin, from: &str, to: &str) -> Result<()> {
        let lost = self.begin(purpose, to)?;
        if self.faults.copies_refused.load(Ordering::SeqCst) {
            return Err(StoreError::Refused { key: to.to_string(), cause: "not implemented".into() });
        }
        let other = self.beside.lock().get(&source.prefix).and_then(|store| store.upgrade());
        let found = other.and_then(|store| Some(store.objects.lock().map.get(from)?.body.clone()));
        let body = found.ok_or_else(|| StoreError::Absent { key: from.to_string() })?;
        if !lost || self.random.one_in(2) {
            self.objects.lock().put(to, body);
        }
        if lost { Err(self.lost(to)) } else { Ok(()) }
    }
    fn beside(&self, url: &str, _endpoint: Option<&str>, read_only: bool) -> Result<Arc<dyn ObjectStore>> {
        let named = url.strip_prefix("sim:").and_then(|name| self.beside.lock().get(name)?.upgrade());
        let found =
            named.ok_or_else(|| StoreError::Refused { key: url.into(), cause: "no such store".into() })?;
        Ok(if read_only { Arc::new(ReadOnly(found)) } else { found })
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.begin(purpose, prefix)?;
        for (key, object) in self.objects.lock().map.range(prefix.to_string()..) {
            if !key.starts_with(prefix) {
                break;
            }
            each(key, object.body.len() as u64);
        }
        Ok(())
    }
    fn remove_staged(&self, purpose: Purpose, prefix: &str, is_dead: &dyn Fn(&str) -> bool) -> Result<u64> {
        let goes = |key: &str| key.starts_with(prefix) && is_dead(key);
        if !self.staged().iter().any(|key| goes(key)) {
            return Ok(0);
        }
        self.begin(purpose, prefix)?;
        let mut objects = self.objects.lock();
        let before = objects.staged.len() + objects.uploads.len();
        objects.staged.retain(|key| !goes(key));
        objects.uploads.retain(|_, upload| !goes(&upload.key));
        Ok((before - objects.staged.len() - objects.uploads.len()) as u64)
    }
}
