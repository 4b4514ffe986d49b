//! A store on real threads that is slow for page misses, and counts how many requests for them are in flight at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use terrace_io::store::{Bytes, ObjectStore, Purpose, Result, Version};
use terrace_sim::{SimStore, SimWorld};

pub struct Slow {
    pub store: Arc<SimStore>,
    pub slow: AtomicBool,
    takes: Duration,
    pub now: AtomicUsize,
    pub most: AtomicUsize,
}

impl Slow {
    /// Not slow yet.
    pub fn new(sim: &SimWorld, takes: Duration) -> Arc<Slow> {
        let (slow, zero) = (AtomicBool::new(false), || AtomicUsize::new(0));
        Arc::new(Slow { store: sim.store("store"), slow, takes, now: zero(), most: zero() })
    }
}

impl ObjectStore for Slow {
    fn describe(&self) -> String {
        self.store.describe()
    }
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        self.store.put_if_absent(purpose, key, parts)
    }
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        self.store.put_if_match(purpose, key, body, expected)
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let is_slow = purpose == Purpose::PageMiss && self.slow.load(Ordering::SeqCst);
        if is_slow {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(self.takes);
        }
        let done = self.store.get_range(purpose, key, offset, buf);
        if is_slow {
            self.now.fetch_sub(1, Ordering::SeqCst);
        }
        done
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        self.store.get(purpose, key)
    }
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        self.store.delete(purpose, key)
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.store.list(purpose, prefix, each)
    }
}
