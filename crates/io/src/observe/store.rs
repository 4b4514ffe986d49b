//! An object store whose requests are shown.

use super::{IoTarget, Operation, observer, transfer};
use crate::stats::StoreStats;
use crate::store::{Bytes, Listed, ObjectStore, Origin, Purpose, Result, Start, Upload, UploadPart, Version};
use std::sync::Arc;

struct ShownStore(Arc<dyn ObjectStore>);

/// `inner`, with its requests shown to the process's observer; without one, `inner` itself.
pub fn store(inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
    if observer().is_some() { Arc::new(ShownStore(inner)) } else { inner }
}

fn show<T>(operation: Operation, bytes: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    transfer(IoTarget::Object, operation, bytes, work, |result| if result.is_ok() { bytes } else { 0 })
}

impl ObjectStore for ShownStore {
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        show(Operation::Write, bytes, || self.0.put_if_absent(purpose, key, parts))
    }
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        show(Operation::Write, body.len() as u64, || self.0.put_if_match(purpose, key, body, expected))
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        show(Operation::Read, buf.len() as u64, || self.0.get_range(purpose, key, offset, buf))
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        let len =
            |result: &Result<(Vec<u8>, Version)>| result.as_ref().map_or(0, |(body, _)| body.len() as u64);
        transfer(IoTarget::Object, Operation::Read, 0, || self.0.get(purpose, key), len)
    }
    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        show(Operation::Read, 0, || self.0.head(purpose, key))
    }
    fn get_range_of(
        &self,
        purpose: Purpose,
        key: &str,
        offset: u64,
        buf: &mut [u8],
        expected: &Version,
    ) -> Result<()> {
        let bytes = buf.len() as u64;
        show(Operation::Read, bytes, || self.0.get_range_of(purpose, key, offset, buf, expected))
    }
    fn get_start(&self, purpose: Purpose, key: &str, max: usize) -> Result<Start> {
        let len = |result: &Result<Start>| result.as_ref().map_or(0, |start| start.bytes.len() as u64);
        transfer(IoTarget::Object, Operation::Read, 0, || self.0.get_start(purpose, key, max), len)
    }
    fn origin(&self) -> Option<Origin> {
        self.0.origin()
    }
    fn copy_within(&self, purpose: Purpose, source: &Origin, from: &str, to: &str) -> Result<()> {
        show(Operation::Write, 0, || self.0.copy_within(purpose, source, from, to))
    }
    fn replace(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        show(Operation::Write, bytes, || self.0.replace(purpose, key, parts))
    }
    fn complete_replacing(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        show(Operation::Write, 0, || self.0.complete_replacing(purpose, upload, parts))
    }
    fn list_folder(&self, purpose: Purpose, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        show(Operation::List, 0, || self.0.list_folder(purpose, folder, each))
    }
    fn begin_upload(&self, purpose: Purpose, key: &str) -> Result<Upload> {
        show(Operation::Write, 0, || self.0.begin_upload(purpose, key))
    }
    fn put_part(
        &self,
        purpose: Purpose,
        upload: &Upload,
        number: u32,
        offset: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        let bytes = body.len() as u64;
        show(Operation::Write, bytes, || self.0.put_part(purpose, upload, number, offset, body))
    }
    fn complete_upload(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        show(Operation::Write, 0, || self.0.complete_upload(purpose, upload, parts))
    }
    fn abort_upload(&self, purpose: Purpose, upload: &Upload) -> Result<()> {
        show(Operation::Delete, 0, || self.0.abort_upload(purpose, upload))
    }
    fn parallel_max(&self) -> usize {
        self.0.parallel_max()
    }
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        show(Operation::Delete, 0, || self.0.delete(purpose, key))
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        show(Operation::List, 0, || self.0.list(purpose, prefix, each))
    }
    fn remove_staged(&self, purpose: Purpose, prefix: &str, is_dead: &dyn Fn(&str) -> bool) -> Result<u64> {
        self.0.remove_staged(purpose, prefix, is_dead)
    }
    fn beside(&self, url: &str, endpoint: Option<&str>, read_only: bool) -> Result<Arc<dyn ObjectStore>> {
        Ok(Arc::new(ShownStore(self.0.beside(url, endpoint, read_only)?)))
    }
    fn stats(&self) -> Option<StoreStats> {
        self.0.stats()
    }
}
