//! Reading a large object as a stream of chunks, in order, several of them fetched at a time.
//!
//! All chunks are of the version that the object had at the start; if it is replaced meanwhile, the stream ends with `Conflict`.
//!
//! Memory: at most [`StreamPlan::buffer_bytes_max`]: a chunk is only fetched when it is among the next `ahead` that the caller wants.
//!
//! Locks: `Window::state`; not held over a request or a call of the caller.

use super::{Bytes, ObjectStore, Purpose, Result, StoreError, Version};
use crate::cancel;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// How a large object is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPlan {
    pub chunk_bytes: usize,
    /// Chunks that are fetched or held at a time; the store may allow fewer.
    pub ahead: usize,
}

impl Default for StreamPlan {
    fn default() -> StreamPlan {
        StreamPlan { chunk_bytes: 4 << 20, ahead: 4 }
    }
}

impl StreamPlan {
    /// Memory for chunks while an object is read: those ahead and the one that the caller has.
    pub fn buffer_bytes_max(&self) -> usize {
        self.chunk_bytes * (self.ahead.max(1) + 1)
    }
}

/// The chunks between the caller and the threads that fetch.
#[derive(Default)]
struct StreamState {
    /// The next chunk to be fetched.
    next: u64,
    /// Chunks given to the caller.
    delivered: u64,
    ready: BTreeMap<u64, Result<Bytes>>,
    /// The caller wants no more, or a thread has died.
    stop: bool,
}

#[derive(Default)]
struct Window {
    state: Mutex<StreamState>,
    changed: Condvar,
}

impl Window {
    /// The number of a chunk to fetch; None: there is no more to do.
    fn take(&self, chunks: u64, ahead: u64) -> Option<u64> {
        let mut state = self.state.lock();
        loop {
            if state.stop || state.next == chunks {
                return None;
            }
            if state.next < state.delivered + ahead {
                state.next += 1;
                return Some(state.next - 1);
            }
            self.changed.wait(&mut state);
        }
    }

    fn put(&self, number: u64, chunk: Result<Bytes>) {
        self.state.lock().ready.insert(number, chunk);
        self.changed.notify_all();
    }

    /// Waits for a chunk. None: a thread has died.
    fn get(&self, number: u64) -> Option<Result<Bytes>> {
        let mut state = self.state.lock();
        loop {
            if let Some(chunk) = state.ready.remove(&number) {
                return Some(chunk);
            }
            if state.stop {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn delivered(&self, count: u64) {
        self.state.lock().delivered = count;
        self.changed.notify_all();
    }
}

/// Stops the others when the caller is done, and when a thread dies.
struct StopOnDrop<'a>(&'a Window, bool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        if self.1 || std::thread::panicking() {
            self.0.state.lock().stop = true;
            self.0.changed.notify_all();
        }
    }
}

/// One object of one version, in chunks.
struct Chunks<'a> {
    store: &'a (dyn ObjectStore + 'a),
    purpose: Purpose,
    key: &'a str,
    version: Version,
    length: u64,
    chunk_bytes: u64,
}

impl Chunks<'_> {
    fn count(&self) -> u64 {
        self.length.div_ceil(self.chunk_bytes)
    }

    fn fetch(&self, number: u64) -> Result<Bytes> {
        let offset = number * self.chunk_bytes;
        let mut buf = vec![0; self.chunk_bytes.min(self.length - offset) as usize];
        self.store.get_range_of(self.purpose, self.key, offset, &mut buf, &self.version)?;
        Ok(buf.into())
    }

    fn one_by_one(&self, each: &mut dyn FnMut(Bytes) -> ControlFlow<()>) -> Result<()> {
        for number in 0..self.count() {
            if each(self.fetch(number)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// With `width` threads, or as many as can be started.
    fn side_by_side(&self, width: usize, each: &mut dyn FnMut(Bytes) -> ControlFlow<()>) -> Result<()> {
        let window = Window::default();
        let handles = cancel::current();
        let work = || {
            let _scopes: Vec<_> = handles.iter().map(cancel::Cancel::scope).collect();
            let _stop = StopOnDrop(&window, false);
            while let Some(number) = window.take(self.count(), width as u64) {
                window.put(number, self.fetch(number));
            }
        };
        std::thread::scope(|threads| {
            let _stop = StopOnDrop(&window, true);
            let start = |_| {
                let builder = std::thread::Builder::new().name("terrace-chunk".into());
                builder.spawn_scoped(threads, work).is_ok()
            };
            if (0..width).map(start).filter(|started| *started).count() == 0 {
                return self.one_by_one(each);
            }
            for number in 0..self.count() {
                let Some(chunk) = window.get(number) else { break };
                if each(chunk?).is_break() {
                    break;
                }
                window.delivered(number + 1);
            }
            Ok(())
        })
    }
}

impl dyn ObjectStore + '_ {
    /// Calls `each` with the object's chunks, in order, until it breaks off. Returns the object's length and version, both of the
    /// start. `Conflict`: the object was replaced meanwhile.
    pub fn get_stream(
        &self,
        purpose: Purpose,
        key: &str,
        plan: &StreamPlan,
        each: &mut dyn FnMut(Bytes) -> ControlFlow<()>,
    ) -> Result<(u64, Version)> {
        if plan.chunk_bytes == 0 {
            let cause = "a chunk must have at least one byte".into();
            return Err(StoreError::Refused { key: key.into(), cause });
        }
        let (length, version) = self.head(purpose, key)?;
        let chunk_bytes = plan.chunk_bytes as u64;
        let chunks = Chunks { store: self, purpose, key, version, length, chunk_bytes };
        let width = plan.ahead.min(self.parallel_max()).min(chunks.count() as usize);
        match width {
            0 | 1 => chunks.one_by_one(each)?,
            width => chunks.side_by_side(width, each)?,
        }
        Ok((length, chunks.version))
    }
}
