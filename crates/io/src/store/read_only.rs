//! A store that is only looked at: whatever would change it is refused before it is asked.

use crate::stats::StoreStats;
use crate::store::{
    Bytes, Listed, ObjectStore, Origin, Purpose, Result, Start, StoreError, Upload, UploadPart, Version,
};
use std::sync::Arc;

pub struct ReadOnly(pub Arc<dyn ObjectStore>);

fn refused<T>(key: &str) -> Result<T> {
    Err(StoreError::Refused { key: key.into(), cause: "the store was opened to read only".into() })
}

impl ObjectStore for ReadOnly {
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn put_if_absent(&self, _purpose: Purpose, key: &str, _parts: &[Bytes]) -> Result<Version> {
        refused(key)
    }
    fn put_if_match(
        &self,
        _purpose: Purpose,
        key: &str,
        _body: &[u8],
        _expected: &Version,
    ) -> Result<Version> {
        refused(key)
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.get_range(purpose, key, offset, buf)
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        self.0.get(purpose, key)
    }
    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        self.0.head(purpose, key)
    }
    fn get_range_of(
        &self,
        purpose: Purpose,
        key: &str,
        offset: u64,
        buf: &mut [u8],
        expected: &Version,
    ) -> Result<()> {
        self.0.get_range_of(purpose, key, offset, buf, expected)
    }
    fn get_start(&self, purpose: Purpose, key: &str, max: usize) -> Result<Start> {
        self.0.get_start(purpose, key, max)
    }
    fn origin(&self) -> Option<Origin> {
        self.0.origin()
    }
    fn copy_within(&self, _purpose: Purpose, _source: &Origin, _from: &str, to: &str) -> Result<()> {
        refused(to)
    }
    fn replace(&self, _purpose: Purpose, key: &str, _parts: &[Bytes]) -> Result<Version> {
        refused(key)
    }
    fn complete_replacing(&self, _: Purpose, upload: &Upload, _parts: &[UploadPart]) -> Result<Version> {
        refused(&upload.key)
    }
    fn list_folder(&self, purpose: Purpose, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.0.list_folder(purpose, folder, each)
    }
    fn begin_upload(&self, _purpose: Purpose, key: &str) -> Result<Upload> {
        refused(key)
    }
    fn put_part(&self, _: Purpose, upload: &Upload, _: u32, _: u64, _: &Bytes) -> Result<UploadPart> {
        refused(&upload.key)
    }
    fn complete_upload(&self, _purpose: Purpose, upload: &Upload, _parts: &[UploadPart]) -> Result<Version> {
        refused(&upload.key)
    }
    fn abort_upload(&self, _purpose: Purpose, upload: &Upload) -> Result<()> {
        refused(&upload.key)
    }
    fn parallel_max(&self) -> usize {
        self.0.parallel_max()
    }
    fn delete(&self, _purpose: Purpose, key: &str) -> Result<()> {
        refused(key)
    }
    fn remove_staged(&self, _purpose: Purpose, prefix: &str, _is_dead: &dyn Fn(&str) -> bool) -> Result<u64> {
        refused(prefix)
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.0.list(purpose, prefix, each)
    }
    fn beside(&self, url: &str, endpoint: Option<&str>, _read_only: bool) -> Result<Arc<dyn ObjectStore>> {
        self.0.beside(url, endpoint, true)
    }
    fn stats(&self) -> Option<StoreStats> {
        self.0.stats()
    }
}
