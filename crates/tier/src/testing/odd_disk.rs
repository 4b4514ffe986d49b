//! A disk that does something else in the middle of a request.

use parking_lot::Mutex;
use std::sync::Arc;
use terrace_io::disk::{Class, Disk, DiskLock, File, Op, Result};
use terrace_sim::SimDisk;

type Hook = Box<dyn FnOnce() + Send>;

/// Every batch of writes, and every read, runs the hook in its middle.
struct Odd {
    disk: Arc<SimDisk>,
    hook: Mutex<Option<Hook>>,
}

struct OddFile {
    odd: Arc<Odd>,
    file: Arc<dyn File>,
}

pub struct OddDisk(Arc<Odd>);

impl OddDisk {
    pub fn new(disk: Arc<SimDisk>) -> OddDisk {
        OddDisk(Arc::new(Odd { disk, hook: Mutex::new(None) }))
    }
    fn wrap(&self, file: Result<Arc<dyn File>>) -> Result<Arc<dyn File>> {
        Ok(Arc::new(OddFile { odd: self.0.clone(), file: file? }))
    }
    /// Runs `hook` in the middle of the next request.
    pub fn once(&self, hook: impl FnOnce() + Send + 'static) {
        *self.0.hook.lock() = Some(Box::new(hook));
    }
}

impl Disk for OddDisk {
    fn describe(&self) -> String {
        "odd".into()
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        self.wrap(self.0.disk.open(name))
    }
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.wrap(self.0.disk.create(name))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.0.disk.exists(name)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.disk.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.disk.rename(from, to)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.0.disk.list()
    }
    fn sync_dir(&self) -> Result<()> {
        self.0.disk.sync_dir()
    }
    fn lock(&self) -> Result<Box<dyn DiskLock>> {
        self.0.disk.lock()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.0.disk.free_bytes()
    }
}

impl File for OddFile {
    fn name(&self) -> &str {
        self.file.name()
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn grow(&self, len: u64, zero: bool) -> Result<()> {
        self.file.grow(len, zero)
    }
    fn shrink(&self, len: u64) -> Result<()> {
        self.file.shrink(len)
    }
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        let hook = self.odd.hook.lock().take();
        self.file.read(class, offset, buf)?;
        hook.into_iter().for_each(|hook| hook());
        Ok(())
    }
    fn write(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        self.file.write(class, offset, buf)
    }
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        let hook = self.odd.hook.lock().take();
        hook.into_iter().for_each(|hook| hook());
        self.file.batch(class, ops)
    }
    fn sync(&self, class: Class) -> Result<()> {
        self.file.sync(class)
    }
}
