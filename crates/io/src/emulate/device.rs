//! An emulated disk around a real one.

use super::spread::Draw;
use super::{Device, Share, wait_until};
use crate::AlignedBuf;
use crate::World;
use crate::clock::Nanos;
use crate::disk::{Class, Disk, DiskLock, File, FileWrite, Op, Result};
use crate::share::{PIECE, fitting, places};
use crate::stats::{DiskStats, DiskTally};
use crate::traffic::Urgency;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Speed {
    world: World,
    device: Device,
    share: Share,
    draw: Draw,
    /// Counted here and not below, with the time that passes here.
    tally: DiskTally,
}

impl Speed {
    /// Runs one request, of a mean latency, and counts it.
    fn one(&self, class: Class, mean: Nanos, bytes: u64, request: impl FnOnce() -> Result<()>) -> Result<()> {
        let started = self.world.clock.now();
        let cost = Cost { latency: self.draw.next(mean), requests: 1, bytes };
        let result = self.take(cost, request);
        self.tally.classes[class.index()].note_taken(self.since(started), bytes, result.is_ok());
        result
    }

    /// Counts requests that were in flight together.
    fn note(&self, class: Class, started: Nanos, ops: &[Op<'_>], is_ok: impl Fn(usize) -> bool) {
        let nanos = self.since(started);
        for (i, op) in ops.iter().enumerate() {
            self.tally.classes[class.index()].note_taken(nanos, op.len() as u64, is_ok(i));
        }
    }

    fn note_syncs(&self, class: Class, started: Nanos, results: &[Result<()>]) {
        let nanos = self.since(started);
        let tally = &self.tally.syncs[class.index()];
        results.iter().for_each(|result| tally.note_taken(nanos, 0, result.is_ok()));
    }

    fn since(&self, started: Nanos) -> Nanos {
        self.world.clock.now().saturating_sub(started)
    }

    /// Runs a request; it takes its latency at least.
    fn take<T>(&self, cost: Cost, request: impl FnOnce() -> T) -> T {
        let by_rate = cost.requests * 1_000_000_000 / self.device.rate;
        let by_bytes = (u128::from(cost.bytes) * 1_000_000_000 / u128::from(self.device.bandwidth)) as Nanos;
        let now = self.world.clock.now();
        let done = self.share.serve(now, by_rate.max(by_bytes)) + cost.latency;
        let result = request();
        wait_until(&self.world, done);
        result
    }

    /// A sync of what was handed to the system before: it goes to the device now, in requests as the system makes them.
    fn take_handed<T>(&self, bytes: u64, sync: impl FnOnce() -> T) -> T {
        if bytes == 0 {
            return sync();
        }
        self.take(
            Cost { latency: self.draw.next(self.device.write), requests: bytes.div_ceil(HANDED), bytes },
            sync,
        )
    }
}

/// Bytes of a request that the system makes of what it was handed.
const HANDED: u64 = 256 << 10;

/// What requests that are in flight together ask of the device.
#[derive(Default)]
struct Cost {
    /// Latency of the slowest request, in nanoseconds.
    latency: Nanos,
    requests: u64,
    bytes: u64,
}

impl Cost {
    fn of<'a, 'b: 'a>(speed: &Speed, ops: impl Iterator<Item = &'a Op<'b>>) -> Cost {
        ops.fold(Cost::default(), |sum, op| {
            let mean = match op {
                Op::Read { .. } => speed.device.read,
                Op::Write { .. } => speed.device.write,
            };
            Cost {
                latency: sum.latency.max(speed.draw.next(mean)),
                requests: sum.requests + 1,
                bytes: sum.bytes + op.len() as u64,
            }
        })
    }
}

struct EmulatedDisk {
    inner: Arc<dyn Disk>,
    speed: Arc<Speed>,
}

struct EmulatedFile {
    inner: Arc<dyn File>,
    speed: Arc<Speed>,
    /// Bytes that the system has and the device has not.
    handed: AtomicU64,
}

/// `inner`, as slow as `device`.
pub fn disk(world: World, inner: Arc<dyn Disk>, device: Device) -> Arc<dyn Disk> {
    Arc::new(EmulatedDisk {
        inner,
        speed: Arc::new(Speed {
            world,
            device,
            share: Share::new(),
            draw: Draw::new(device.spread, device.read),
            tally: DiskTally::default(),
        }),
    })
}

impl EmulatedDisk {
    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(EmulatedFile { inner, speed: self.speed.clone(), handed: AtomicU64::new(0) })
    }
}

/// The file below an emulated one.
fn emulated<'a>(file: &'a (dyn File + 'static)) -> &'a EmulatedFile {
    let emulated = (file as &dyn Any).downcast_ref::<EmulatedFile>();
    emulated.unwrap_or_else(|| panic!("{} is a file of another kind of disk", file.name()))
}
fn below<'a>(file: &'a (dyn File + 'static)) -> &'a (dyn File + 'static) {
    &*emulated(file).inner
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
    fn write_all(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        let started = self.speed.world.clock.now();
        let cost = Cost::of(&self.speed, writes.iter().flat_map(|w| &w.ops));
        let mut inner: Vec<FileWrite<'_>> = writes
            .iter_mut()
            .map(|w| FileWrite { file: below(w.file), ops: std::mem::take(&mut w.ops) })
            .collect();
        let results = self.speed.take(cost, || self.inner.write_all(class, &mut inner));
        writes.iter_mut().zip(inner).for_each(|(w, inner)| w.ops = inner.ops);
        for (write, result) in writes.iter().zip(&results) {
            self.speed.note(class, started, &write.ops, |_| result.is_ok());
        }
        results
    }
    /// The system takes it: the device has no part in it before a sync, which then takes as long as the write would have.
    fn write_handed(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        let started = self.speed.world.clock.now();
        let mut inner: Vec<FileWrite<'_>> = writes
            .iter_mut()
            .map(|w| FileWrite { file: below(w.file), ops: std::mem::take(&mut w.ops) })
            .collect();
        let results = self.inner.write_handed(class, &mut inner);
        writes.iter_mut().zip(inner).for_each(|(w, inner)| w.ops = inner.ops);
        for (write, result) in writes.iter().zip(&results) {
            let bytes: u64 = write.ops.iter().map(|op| op.len() as u64).sum();
            emulated(write.file).handed.fetch_add(bytes, Ordering::Relaxed);
            self.speed.note(class, started, &write.ops, |_| result.is_ok());
        }
        results
    }
    fn sync_all(&self, class: Class, files: &[&(dyn File + 'static)]) -> Vec<Result<()>> {
        let started = self.speed.world.clock.now();
        let bytes = files.iter().map(|file| emulated(*file).handed.swap(0, Ordering::Relaxed)).sum();
        let inner: Vec<&dyn File> = files.iter().map(|file| below(*file)).collect();
        let results = self.speed.take_handed(bytes, || self.inner.sync_all(class, &inner));
        self.speed.note_syncs(class, started, &results);
        results
    }
    fn batches(&self) -> Option<&'static str> {
        self.inner.batches()
    }
    fn stats(&self) -> Option<DiskStats> {
        Some(self.speed.tally.read())
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
    fn shrink(&self, len: u64) -> Result<()> {
        self.inner.shrink(len)
    }
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mean, bytes) = (self.speed.device.read, buf.len() as u64);
        self.speed.one(class, mean, bytes, || self.inner.read(class, offset, buf))
    }
    fn read_owned(&self, class: Class, offset: u64, buf: AlignedBuf) -> Result<AlignedBuf> {
        let (mean, bytes) = (self.speed.device.read, buf.len() as u64);
        let mut read = None;
        self.speed.one(class, mean, bytes, || {
            self.inner.read_owned(class, offset, buf).map(|buf| read = Some(buf))
        })?;
        Ok(read.expect("a read that succeeds has its buffer"))
    }
    fn write(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        let (mean, bytes) = (self.speed.device.write, buf.len() as u64);
        self.speed.one(class, mean, bytes, || self.inner.write(class, offset, buf))
    }
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        let started = self.speed.world.clock.now();
        // What is served first comes first here: background work leaves the others their turn between its pieces.
        let pieces = |ops: &[Op<'_>]| match class.urgency() {
            Urgency::Foreground | Urgency::Urgent => ops.len(),
            Urgency::Background => fitting(ops, PIECE, |op| places(op.len())),
        };
        let mut results = Vec::with_capacity(ops.len());
        let mut rest = &mut *ops;
        while !rest.is_empty() {
            let (piece, more) = rest.split_at_mut(pieces(rest));
            let cost = Cost::of(&self.speed, piece.iter());
            results.extend(self.speed.take(cost, || self.inner.batch(class, piece)));
            rest = more;
        }
        self.speed.note(class, started, ops, |i| results[i].is_ok());
        results
    }
    fn sync(&self, class: Class) -> Result<()> {
        let started = self.speed.world.clock.now();
        let bytes = self.handed.swap(0, Ordering::Relaxed);
        let result = self.speed.take_handed(bytes, || self.inner.sync(class));
        self.speed.note_syncs(class, started, std::slice::from_ref(&result));
        result
    }
}
