//! Looking without touching: a disk and a store whose changes stay in memory.
//!
//! Reads come from what is below, unless they were written here; nothing below is ever changed. So a
//! whole engine can recover an instance in order to look at it. Memory grows with what is written.
//!
//! Locks: each its own, for memory work only. The real disk's lock is taken, so that nobody writes
//! to it meanwhile.

use crate::SECTOR;
use crate::disk::{Class, Disk, DiskError, DiskLock, File, Op, Result};
use crate::store::{self, ObjectStore, Purpose, StoreError, Version};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// `inner`, with all changes kept in memory.
pub fn disk(inner: Arc<dyn Disk>) -> Result<Arc<dyn Disk>> {
    let names = inner.list()?.into_iter().map(|name| (name, None)).collect();
    Ok(Arc::new(OverlayDisk { inner, names: Mutex::new(names) }))
}

struct OverlayDisk {
    inner: Arc<dyn Disk>,
    /// The files there are; None: not opened yet, as below.
    names: Mutex<BTreeMap<String, Option<Arc<OverlayFile>>>>,
}

struct OverlayFile {
    name: String,
    inner: Option<Arc<dyn File>>,
    written: RwLock<Written>,
}

struct Written {
    len: u64,
    sectors: HashMap<u64, Box<[u8]>>,
}

impl OverlayDisk {
    fn absent(&self, name: &str) -> DiskError {
        DiskError::Absent { name: name.to_string() }
    }
}

impl Disk for OverlayDisk {
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        let mut names = self.names.lock();
        let file = names.get_mut(name).ok_or_else(|| self.absent(name))?;
        if file.is_none() {
            let inner = self.inner.open(name)?;
            let written = RwLock::new(Written { len: inner.len(), sectors: HashMap::new() });
            *file = Some(Arc::new(OverlayFile { name: name.to_string(), inner: Some(inner), written }));
        }
        match file {
            Some(file) => Ok(file.clone()),
            None => Err(self.absent(name)),
        }
    }
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let mut names = self.names.lock();
        if names.contains_key(name) {
            return Err(DiskError::Exists { name: name.to_string() });
        }
        let written = RwLock::new(Written { len: 0, sectors: HashMap::new() });
        let file = Arc::new(OverlayFile { name: name.to_string(), inner: None, written });
        names.insert(name.to_string(), Some(file.clone()));
        Ok(file)
    }
    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.names.lock().contains_key(name))
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.names.lock().remove(name).map(|_| ()).ok_or_else(|| self.absent(name))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.open(from)?; // by its old name, as long as it is known below by it
        let mut names = self.names.lock();
        let file = names.remove(from).ok_or_else(|| self.absent(from))?;
        names.insert(to.to_string(), file);
        Ok(())
    }
    fn list(&self) -> Result<Vec<String>> {
        Ok(self.names.lock().keys().cloned().collect())
    }
    fn sync_dir(&self) -> Result<()> {
        Ok(())
    }
    fn lock(&self) -> Result<Box<dyn DiskLock>> {
        self.inner.lock()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }
}

impl File for OverlayFile {
    fn name(&self) -> &str {
        &self.name
    }
    fn len(&self) -> u64 {
        self.written.read().len
    }
    fn grow(&self, len: u64, _zero: bool) -> Result<()> {
        let mut written = self.written.write();
        written.len = written.len.max(len);
        Ok(())
    }
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        let written = self.written.read();
        if offset + buf.len() as u64 > written.len {
            let cause = "it lies past the end".to_string();
            return Err(DiskError::Failed { what: "read", name: self.name.clone(), offset, len: buf.len() as u64, cause });
        }
        let below = self.inner.as_ref().map_or(0, |inner| inner.len()).saturating_sub(offset);
        let from_below = (below as usize).min(buf.len());
        if let Some(inner) = self.inner.as_ref().filter(|_| from_below > 0) {
            inner.read(class, offset, &mut buf[..from_below])?;
        }
        buf[from_below..].fill(0);
        for (i, part) in buf.chunks_mut(SECTOR).enumerate() {
            if let Some(sector) = written.sectors.get(&(offset / SECTOR as u64 + i as u64)) {
                part.copy_from_slice(sector);
            }
        }
        Ok(())
    }
    fn write(&self, _class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        let mut written = self.written.write();
        written.len = written.len.max(offset + buf.len() as u64);
        for (i, part) in buf.chunks(SECTOR).enumerate() {
            written.sectors.insert(offset / SECTOR as u64 + i as u64, part.into());
        }
        Ok(())
    }
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        ops.iter_mut()
            .map(|op| match op {
                Op::Read { offset, buf } => self.read(class, *offset, buf),
                Op::Write { offset, buf } => self.write(class, *offset, buf),
            })
            .collect()
    }
    fn sync(&self, _class: Class) -> Result<()> {
        Ok(())
    }
}

/// `inner`, with all changes kept in memory.
pub fn store(inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
    Arc::new(OverlayStore { inner, changed: Mutex::default() })
}

struct OverlayStore {
    inner: Arc<dyn ObjectStore>,
    /// What was put here; None: deleted.
    changed: Mutex<BTreeMap<String, Option<Vec<u8>>>>,
}

/// The version of everything that was put here.
const HERE: &str = "overlay";

impl OverlayStore {
    /// None: as below. Err: deleted here.
    fn here(&self, key: &str) -> store::Result<Option<Vec<u8>>> {
        match self.changed.lock().get(key) {
            None => Ok(None),
            Some(Some(body)) => Ok(Some(body.clone())),
            Some(None) => Err(StoreError::Absent { key: key.to_string() }),
        }
    }
}

impl ObjectStore for OverlayStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[&[u8]]) -> store::Result<Version> {
        match self.get(purpose, key) {
            Ok(_) => return Err(StoreError::Conflict { key: key.to_string() }),
            Err(StoreError::Absent { .. }) => {}
            Err(error) => return Err(error),
        }
        self.changed.lock().insert(key.to_string(), Some(parts.concat()));
        Ok(Version(HERE.into()))
    }
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> store::Result<Version> {
        if self.get(purpose, key)?.1 != *expected {
            return Err(StoreError::Conflict { key: key.to_string() });
        }
        self.changed.lock().insert(key.to_string(), Some(body.to_vec()));
        Ok(Version(HERE.into()))
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> store::Result<()> {
        let Some(body) = self.here(key)? else { return self.inner.get_range(purpose, key, offset, buf) };
        let from = offset as usize;
        let bytes = body.get(from..from + buf.len()).ok_or_else(|| StoreError::Refused {
            key: key.to_string(),
            cause: "the range lies past the object".into(),
        })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
    fn get(&self, purpose: Purpose, key: &str) -> store::Result<(Vec<u8>, Version)> {
        match self.here(key)? {
            Some(body) => Ok((body, Version(HERE.into()))),
            None => self.inner.get(purpose, key),
        }
    }
    fn delete(&self, _purpose: Purpose, key: &str) -> store::Result<()> {
        self.changed.lock().insert(key.to_string(), None);
        Ok(())
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> store::Result<()> {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        self.inner.list(purpose, prefix, &mut |key, len| _ = found.insert(key.to_string(), len))?;
        for (key, body) in self.changed.lock().iter().filter(|(key, _)| key.starts_with(prefix)) {
            match body {
                Some(body) => _ = found.insert(key.clone(), body.len() as u64),
                None => _ = found.remove(key),
            }
        }
        found.iter().for_each(|(key, len)| each(key, *len));
        Ok(())
    }
}
