//! An emulated object store around another one.

use super::spread::Draw;
use super::{Remote, Share, wait_until};
use crate::World;
use crate::clock::Nanos;
use crate::stats::{StoreStats, StoreTally};
use crate::store::{
    Bytes, Listed, ObjectStore, Origin, Purpose, Result, Start, StoreError, Upload, UploadPart, Version,
};
use std::sync::Arc;

struct EmulatedStore {
    inner: Arc<dyn ObjectStore>,
    world: World,
    remote: Remote,
    gets: Share,
    puts: Share,
    draw: Draw,
    /// Counted here, with the time that passes here; retries are known below only.
    tally: StoreTally,
}

/// `inner`, as slow as `remote`.
pub fn store(world: World, inner: Arc<dyn ObjectStore>, remote: Remote) -> Arc<dyn ObjectStore> {
    let draw = Draw::new(remote.spread, remote.get);
    Arc::new(EmulatedStore {
        inner,
        world,
        remote,
        gets: Share::new(),
        puts: Share::new(),
        draw,
        tally: StoreTally::default(),
    })
}

impl EmulatedStore {
    /// Runs the request, then waits until the emulated one would have been answered with `bytes`.
    fn take<T>(
        &self,
        purpose: Purpose,
        is_get: bool,
        request: impl FnOnce() -> Result<T>,
        bytes: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let (share, rate, latency) = match is_get {
            true => (&self.gets, self.remote.gets, self.remote.get),
            false => (&self.puts, self.remote.puts, self.remote.put),
        };
        let started = self.world.clock.now();
        let served = share.serve(started, 1_000_000_000 / rate);
        let result = request();
        let bytes = result.as_ref().map_or(0, bytes);
        let stream = (u128::from(bytes) * 1_000_000_000 / u128::from(self.remote.stream)) as Nanos;
        wait_until(&self.world, served + self.draw.next(latency) + stream);
        let nanos = self.world.clock.now().saturating_sub(started);
        self.tally.purposes[purpose.index()].note_taken(
            nanos,
            bytes,
            result.as_ref().err().is_none_or(StoreError::is_answer),
        );
        result
    }
}

impl ObjectStore for EmulatedStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.take(purpose, false, || self.inner.put_if_absent(purpose, key, parts), |_| bytes)
    }
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        self.take(
            purpose,
            false,
            || self.inner.put_if_match(purpose, key, body, expected),
            |_| body.len() as u64,
        )
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = buf.len() as u64;
        self.take(purpose, true, || self.inner.get_range(purpose, key, offset, buf), |()| bytes)
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        self.take(purpose, true, || self.inner.get(purpose, key), |(body, _)| body.len() as u64)
    }
    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        self.take(purpose, true, || self.inner.head(purpose, key), |_| 0)
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
        let get = || self.inner.get_range_of(purpose, key, offset, buf, expected);
        self.take(purpose, true, get, |()| bytes)
    }
    fn get_start(&self, purpose: Purpose, key: &str, max: usize) -> Result<Start> {
        let get = || self.inner.get_start(purpose, key, max);
        self.take(purpose, true, get, |start| start.bytes.len() as u64)
    }
    fn origin(&self) -> Option<Origin> {
        self.inner.origin()
    }
    fn copy_within(&self, purpose: Purpose, source: &Origin, from: &str, to: &str) -> Result<()> {
        self.take(purpose, false, || self.inner.copy_within(purpose, source, from, to), |()| 0)
    }
    fn replace(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.take(purpose, false, || self.inner.replace(purpose, key, parts), |_| bytes)
    }
    fn complete_replacing(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        self.take(purpose, false, || self.inner.complete_replacing(purpose, upload, parts), |_| 0)
    }
    fn list_folder(&self, purpose: Purpose, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.take(purpose, false, || self.inner.list_folder(purpose, folder, each), |()| 0)
    }
    fn begin_upload(&self, purpose: Purpose, key: &str) -> Result<Upload> {
        self.take(purpose, false, || self.inner.begin_upload(purpose, key), |_| 0)
    }
    fn put_part(
        &self,
        purpose: Purpose,
        upload: &Upload,
        number: u32,
        offset: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        let put = || self.inner.put_part(purpose, upload, number, offset, body);
        self.take(purpose, false, put, |_| body.len() as u64)
    }
    fn complete_upload(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        self.take(purpose, false, || self.inner.complete_upload(purpose, upload, parts), |_| 0)
    }
    fn abort_upload(&self, purpose: Purpose, upload: &Upload) -> Result<()> {
        self.take(purpose, false, || self.inner.abort_upload(purpose, upload), |()| 0)
    }
    fn parallel_max(&self) -> usize {
        self.inner.parallel_max()
    }
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        self.take(purpose, false, || self.inner.delete(purpose, key), |()| 0)
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.take(purpose, false, || self.inner.list(purpose, prefix, each), |()| 0)
    }
    fn remove_staged(&self, purpose: Purpose, prefix: &str, is_dead: &dyn Fn(&str) -> bool) -> Result<u64> {
        self.inner.remove_staged(purpose, prefix, is_dead)
    }
    fn beside(&self, url: &str, endpoint: Option<&str>, read_only: bool) -> Result<Arc<dyn ObjectStore>> {
        let inner = self.inner.beside(url, endpoint, read_only)?;
        Ok(store(self.world.clone(), inner, self.remote))
    }
    fn stats(&self) -> Option<StoreStats> {
        let mut stats = self.tally.read();
        if let Some(below) = self.inner.stats() {
            stats.throttled = below.throttled;
            stats.purposes.iter_mut().zip(below.purposes).for_each(|(to, from)| to.retries = from.retries);
        }
        Some(stats)
    }
}
