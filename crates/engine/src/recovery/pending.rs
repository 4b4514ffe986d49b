//! Redo that is not applied yet, by page.
//!
//! The records are as recovery read them, in one buffer; a page's are applied when it is read. Until
//! the page is in memory and known dirty, its first record bounds the checkpoint.
//!
//! Memory: as large as the log since the checkpoint, hence bounded by the log's size.

use super::scan::Scan;
use crate::planted;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::sched::{Event, Step, Worker};
use terrace_tier::below::ReadError;
use terrace_tier::page::{Glsn, PageId, PageRef, SpaceId};
use terrace_tier::pages::Pages;
use terrace_tier::path::PendingRedo;
use terrace_tier::pool::Access;
use terrace_tier::redo;

#[derive(Clone, Copy)]
struct One {
    first: Glsn,
    end: Glsn,
    ops: (usize, usize),
}

#[derive(Default)]
struct Inner {
    pages: HashMap<PageId, Vec<One>>,
    /// First record of each page that is not applied, or applied but not known dirty yet.
    bounds: BTreeSet<(Glsn, PageId)>,
}

pub struct Pending {
    inner: Mutex<Inner>,
    bytes: Vec<u8>,
    pub applied: AtomicU64,
}

impl Pending {
    /// Takes the records of a cut scan, but those of the map.
    pub fn new(scan: Scan) -> Pending {
        let mut inner = Inner::default();
        for record in scan.records.iter().filter(|r| r.header.id.space != SpaceId::MAP) {
            let one = One { first: record.header.first, end: record.header.end(), ops: record.ops };
            let list = inner.pages.entry(record.header.id).or_default();
            if list.is_empty() {
                inner.bounds.insert((one.first, record.header.id));
            }
            list.push(one);
        }
        Pending { inner: Mutex::new(inner), bytes: scan.bytes, applied: AtomicU64::new(0) }
    }

    /// Pages that still have redo.
    pub fn pages(&self) -> usize {
        self.inner.lock().pages.len()
    }

    /// No checkpoint may pass this.
    pub fn oldest(&self) -> Option<Glsn> {
        if planted::PENDING_REDO_PASSED.on() {
            return None;
        }
        self.inner.lock().bounds.first().map(|(first, _)| *first)
    }

    /// Forgets the redo of every space that is not kept: they were dropped.
    pub fn retain_spaces(&self, keep: impl Fn(SpaceId) -> bool) {
        let mut inner = self.inner.lock();
        inner.pages.retain(|id, _| keep(id.space));
        inner.bounds.retain(|(_, id)| keep(id.space));
    }

    fn next_page(&self) -> Option<PageId> {
        let inner = self.inner.lock();
        inner.bounds.iter().map(|(_, id)| *id).find(|id| inner.pages.contains_key(id))
    }
}

impl PendingRedo for Pending {
    fn apply(&self, id: PageId, image: &mut [u8]) -> Result<Option<Glsn>, ReadError> {
        let Some(list) = self.inner.lock().pages.get(&id).cloned() else { return Ok(None) };
        let mut first = None;
        for one in &list {
            let before = PageRef::new(image).lsn();
            let ops = &self.bytes[one.ops.0..one.ops.1];
            if before == 0 && !redo::starts_with_init(ops) {
                let cause = format!("its image is in no tier, and the log does not begin with it ({})", one.first);
                return Err(ReadError::BadRedo { id, cause });
            }
            if before < one.end {
                first = first.or(Some(one.first));
                redo::apply(image, id, ops, one.end)
                    .map_err(|e| ReadError::BadRedo { id, cause: e.to_string() })?;
            }
        }
        self.inner.lock().pages.remove(&id);
        self.applied.fetch_add(1, Ordering::Relaxed);
        if first.is_none() {
            self.admitted(id); // the image had it all
        }
        Ok(first)
    }

    fn admitted(&self, id: PageId) {
        let mut inner = self.inner.lock();
        if !inner.bounds.is_empty() && !inner.pages.contains_key(&id) {
            inner.bounds.retain(|(_, page)| *page != id);
        }
    }
}

/// The background pass: reads every page that has redo.
pub struct RedoWorker {
    pending: Arc<Pending>,
    pages: Arc<Pages>,
    wake: Arc<Event>,
    /// A page that could not be read, and when to try again.
    failed: u64,
}

impl RedoWorker {
    pub fn new(pending: Arc<Pending>, pages: Arc<Pages>) -> RedoWorker {
        RedoWorker { pending, pages, wake: Arc::new(Event::new()), failed: 0 }
    }
}

impl Worker for RedoWorker {
    fn name(&self) -> &'static str {
        "redo"
    }
    fn step(&mut self) -> Step {
        let Some(id) = self.pending.next_page() else { return Step::Idle };
        match self.pages.load(id, Access::Internal) {
            Ok(_) => {
                self.failed = 0;
                Step::Worked
            }
            Err(_) => {
                // The store may be dead: the page waits for it, and so does the checkpoint.
                self.failed = (self.failed + 1).min(10);
                Step::IdleFor(self.failed * 100_000_000)
            }
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
