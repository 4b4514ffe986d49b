//! An emulated disk around a real one.

use super::{Device, Share, wait_until};
use crate::World;
use crate::clock::Nanos;
use crate::disk::{Class, Disk, DiskLock, File, Op, Result};
use crate::stats::DiskStats;
use std::sync::Arc;

struct Speed {
    world: World,
    device: Device,
    share: Share,
}

impl Speed {
    /// Runs a request of `count` reads or writes with so many bytes; it takes `latency` at least.
    fn take<T>(&self, latency: Nanos, count: u64, bytes: u64, request: impl FnOnce() -> T) -> T {
        let by_rate = count * 1_000_000_000 / self.device.rate;
        let by_bytes = (u128::from(bytes) * 1_000_000_000 / u128::from(self.device.bandwidth)) as Nanos;
        let now = self.world.clock.now();
        let done = self.share.serve(now, by_rate.max(by_bytes)) + latency;
        let result = request();
        wait_until(&self.world, done);
        result
    }
}

struct EmulatedDisk {
    inner: Arc<dyn Disk>,
    speed: Arc<Speed>,
}

struct EmulatedFile {
    inner: Arc<dyn File>,
    speed: Arc<Speed>,
}

/// `inner`, as slow as `device`.
pub fn disk(world: World, inner: Arc<dyn Disk>, device: Device) -> Arc<dyn Disk> {
    Arc::new(EmulatedDisk { inner, speed: Arc::new(Speed { world, device, share: Share::new() }) })
}

impl EmulatedDisk {
    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(EmulatedFile { inner, speed: self.speed.clone() })
    }
}

impl Disk for EmulatedDisk {
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.inner.open(name)?))
    }
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.inner.create(name)?))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn sync_dir(&self) -> Result<()> {
        self.inner.sync_dir()
    }
    fn lock(&self) -> Result<Box<dyn DiskLock>> {
        self.inner.lock()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }
    fn stats(&self) -> Option<DiskStats> {
        self.inner.stats()
    }
}

impl File for EmulatedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.inner.allocate(len)
    }
    fn grow(&self, len: u64, zero: bool) -> Result<()> {
        self.inner.grow(len, zero)
    }
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = buf.len() as u64;
        self.speed.take(self.speed.device.read, 1, bytes, || self.inner.read(class, offset, buf))
    }
    fn write(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        let bytes = buf.len() as u64;
        self.speed.take(self.speed.device.write, 1, bytes, || self.inner.write(class, offset, buf))
    }
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        let device = &self.speed.device;
        let (mut latency, mut bytes) = (0, 0);
        for op in ops.iter() {
            let (one, len) = match op {
                Op::Read { buf, .. } => (device.read, buf.len()),
                Op::Write { buf, .. } => (device.write, buf.len()),
            };
            latency = latency.max(one);
            bytes += len as u64;
        }
        self.speed.take(latency, ops.len() as u64, bytes, || self.inner.batch(class, ops))
    }
    fn sync(&self, class: Class) -> Result<()> {
        self.inner.sync(class)
    }
}
