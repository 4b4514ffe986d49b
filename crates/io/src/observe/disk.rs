//! A disk whose transfers are shown.

use super::{Operation, observer, transfer};
use crate::AlignedBuf;
use crate::disk::{Class, Disk, DiskLock, File, FileWrite, Op, Result};
use crate::stats::DiskStats;
use std::any::Any;
use std::sync::Arc;

struct ShownDisk(Arc<dyn Disk>);

struct ShownFile(Arc<dyn File>);

/// `inner`, with its transfers shown to the process's observer; without one, `inner` itself.
pub fn disk(inner: Arc<dyn Disk>) -> Arc<dyn Disk> {
    if observer().is_some() { Arc::new(ShownDisk(inner)) } else { inner }
}

fn shown(file: Arc<dyn File>) -> Arc<dyn File> {
    Arc::new(ShownFile(file))
}

/// The file below one that is shown.
fn below<'a>(file: &'a (dyn File + 'static)) -> &'a (dyn File + 'static) {
    let shown = (file as &dyn Any).downcast_ref::<ShownFile>();
    &*shown.unwrap_or_else(|| panic!("{} is a file of another kind of disk", file.name())).0
}

fn total(ops: &[Op<'_>]) -> u64 {
    ops.iter().map(|op| op.len() as u64).sum()
}

/// What a request, or a batch, has moved: all of it, or as good as nothing.
fn if_ok(bytes: u64) -> impl FnOnce(&Result<()>) -> u64 {
    move |result| if result.is_ok() { bytes } else { 0 }
}

fn if_all(bytes: u64) -> impl FnOnce(&Vec<Result<()>>) -> u64 {
    move |results| if results.iter().all(Result::is_ok) { bytes } else { 0 }
}

impl ShownDisk {
    /// Shows what `write` does with the same writes to the files below.
    fn written(
        &self,
        class: Class,
        writes: &mut [FileWrite<'_>],
        write: impl FnOnce(&mut [FileWrite<'_>]) -> Vec<Result<()>>,
    ) -> Vec<Result<()>> {
        let bytes = writes.iter().map(|write| total(&write.ops)).sum();
        let mut inner: Vec<FileWrite<'_>> = writes
            .iter_mut()
            .map(|write| FileWrite { file: below(write.file), ops: std::mem::take(&mut write.ops) })
            .collect();
        let work = || write(&mut inner);
        let results = transfer(class.target(), Operation::Write, bytes, work, if_all(bytes));
        writes.iter_mut().zip(inner).for_each(|(write, inner)| write.ops = inner.ops);
        results
    }
}

impl Disk for ShownDisk {
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(shown(self.0.open(name)?))
    }
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(shown(self.0.create(name)?))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.0.exists(name)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }
    fn sync_dir(&self) -> Result<()> {
        self.0.sync_dir()
    }
    fn lock(&self) -> Result<Box<dyn DiskLock>> {
        self.0.lock()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.0.free_bytes()
    }
    fn write_all(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        self.written(class, writes, |inner| self.0.write_all(class, inner))
    }
    fn write_handed(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        self.written(class, writes, |inner| self.0.write_handed(class, inner))
    }
    fn sync_all(&self, class: Class, files: &[&(dyn File + 'static)]) -> Vec<Result<()>> {
        let files: Vec<&dyn File> = files.iter().map(|file| below(*file)).collect();
        let work = || self.0.sync_all(class, &files);
        transfer(class.target(), Operation::Sync, 0, work, if_all(0))
    }
    fn batches(&self) -> Option<&'static str> {
        self.0.batches()
    }
    fn stats(&self) -> Option<DiskStats> {
        self.0.stats()
    }
}

impl File for ShownFile {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn grow(&self, len: u64, zero: bool) -> Result<()> {
        self.0.grow(len, zero)
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.0.allocate(len)
    }
    fn shrink(&self, len: u64) -> Result<()> {
        self.0.shrink(len)
    }
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = buf.len() as u64;
        let work = || self.0.read(class, offset, buf);
        transfer(class.target(), Operation::Read, bytes, work, if_ok(bytes))
    }
    fn read_owned(&self, class: Class, offset: u64, buf: AlignedBuf) -> Result<AlignedBuf> {
        let bytes = buf.len() as u64;
        let work = || self.0.read_owned(class, offset, buf);
        let moved = |result: &Result<AlignedBuf>| if result.is_ok() { bytes } else { 0 };
        transfer(class.target(), Operation::Read, bytes, work, moved)
    }
    fn write(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        let bytes = buf.len() as u64;
        let work = || self.0.write(class, offset, buf);
        transfer(class.target(), Operation::Write, bytes, work, if_ok(bytes))
    }
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        let operation = match ops.first() {
            Some(Op::Write { .. }) => Operation::Write,
            _ => Operation::Read,
        };
        let bytes = total(ops);
        let work = || self.0.batch(class, ops);
        transfer(class.target(), operation, bytes, work, if_all(bytes))
    }
    fn sync(&self, class: Class) -> Result<()> {
        transfer(class.target(), Operation::Sync, 0, || self.0.sync(class), if_ok(0))
    }
}
