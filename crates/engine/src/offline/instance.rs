//! An instance that does not run, opened for looking: nothing is written, and nothing needs to be.
//!
//! Superblock, log and map are read as at any start. A page's current content is its image, checked
//! against the map's tag, with the log's redo applied to a copy each time it is asked for; redo that waits is
//! kept. So there is no buffer pool, no flush, no rollback: what was unfinished is seen as it was left, and whoever
//! cares follows the undo records (`check::undo`).
//!
//! Without its object store an instance can be looked at in part: pages that are only in objects are
//! [`NoPage::OutOfReach`].
//!
//! Pages of an object come one by one; an object asked for twice in a row is read whole and kept, within a
//! budget. Pages that a checker announces are read ahead ([`ahead`]). Memory: the map, the log's redo up
//! to a budget, the objects and pages kept.
//!
//! Locks: for memory work only. One thread uses a `OfflineInstance`; the store's objects are read from several.

mod ahead;

pub(crate) use ahead::{AT_ONCE, side_by_side};

use crate::error::Error;
use crate::storage;
use crate::storage::recovery::pending::Pending;
use crate::superblock::Superblock;
use crate::tree::space::check::{NoPage, Source};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::disk::{Disk, DiskLock};
use terrace_io::store::{ObjectStore, Purpose, StoreError};
use terrace_log::{LogError, LogRoom, LsnRange, PageRedo, Redo, Urgency};
use terrace_tier::address::ObjectKey;
use terrace_tier::address::{Home, InObject, Located};
use terrace_tier::objects::fence::{EpochContent, Fence, FenceError, TakersInMemory, Writer, holder};
use terrace_tier::objects::object::PageObjects;
use terrace_tier::objects::object::format::HEADER;
use terrace_tier::objects::object::{BodyError, ObjectError, Objects};
use terrace_tier::page::{self, Glsn, PAGE_SIZE, PageId, PageRef};
use terrace_tier::volume::map::Map;
use terrace_tier::volume::object_buffer::ObjectBuffer;

/// Redo and objects kept in memory, in bytes each.
const BUDGET: usize = 64 << 20;
/// Requests in a row that the store gave no answer to, after which it is not asked any more.
pub(crate) const SILENT_MAX: u32 = 3;

pub struct OfflineInstance {
    pub volume: Arc<dyn Disk>,
    /// As it is on the volume.
    pub superblock: Superblock,
    pub map: Map,
    pub buffer: ObjectBuffer,
    /// The log ends here.
    pub end: Glsn,
    /// Records that the log has above the checkpoint, the map's not counted.
    pub redo_records: u64,
    /// The store, if it was given and answers.
    pub objects: Option<Objects>,
    /// Why the store that was given is not looked into, if so.
    pub store_trouble: Option<String>,
    /// What the store's epoch object says is wrong.
    pub store_fault: Option<String>,
    /// The store stopped answering: nothing more is asked of it.
    gave_up: AtomicBool,
    /// The store's writer, if the volume does not know it.
    pub passed_by: Option<EpochContent>,
    /// Requests in a row that it gave no answer to.
    silent: AtomicU32,
    pending: Arc<Pending>,
    /// Pages that are known to be damaged.
    bad: Mutex<HashSet<PageId>>,
    recent: Mutex<Recent>,
    _lock: Box<dyn DiskLock>,
}

/// Objects kept, the one used last at the end.
#[derive(Default)]
struct Recent {
    whole: VecDeque<(ObjectKey, Vec<u8>)>,
    bytes: usize,
    /// The object that a single page came from last.
    asked: Option<ObjectKey>,
    /// Pages that are asked for soon, unchecked.
    pages: HashMap<PageId, AlignedBuf>,
}

impl Recent {
    /// Keeps an object, in place of those used longest ago.
    fn keep(&mut self, key: ObjectKey, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.whole.push_back((key, bytes));
        while self.bytes > BUDGET && self.whole.len() > 1 {
            let oldest = self.whole.pop_front();
            self.bytes -= oldest.map_or(0, |(_, bytes)| bytes.len());
        }
    }
    fn has(&self, key: &ObjectKey) -> bool {
        self.whole.iter().any(|(kept, _)| kept == key)
    }
}

impl OfflineInstance {
    /// Opens the instance on `volume`; no other process uses it as long as the `OfflineInstance` lives.
    pub fn open(
        volume: Arc<dyn Disk>,
        store: Option<Arc<dyn ObjectStore>>,
    ) -> Result<OfflineInstance, Error> {
        let lock = storage::take_lock(&*volume)?;
        let found = storage::read(&*volume, BUDGET)?;
        let redo: Arc<dyn Redo> = Arc::new(NoLog(found.cut.end));
        let map = found.loading.finish(found.superblock.slots, redo)?;
        let buffer = ObjectBuffer::open(&*volume)?;
        let mut look = OfflineInstance {
            volume,
            superblock: found.superblock,
            map,
            buffer,
            end: found.cut.end,
            redo_records: found.cut.records,
            objects: None,
            store_trouble: None,
            store_fault: None,
            passed_by: None,
            gave_up: AtomicBool::new(false),
            silent: AtomicU32::new(0),
            pending: found.pending,
            bad: Mutex::default(),
            recent: Mutex::default(),
            _lock: lock,
        };
        if let Some(store) = store {
            look.take_store(store)?;
        }
        Ok(look)
    }

    /// Err: the store is another instance's, or empty.
    fn take_store(&mut self, store: Arc<dyn ObjectStore>) -> Result<(), Error> {
        let superblock = &self.superblock;
        let (instance, lineage, epoch) = (superblock.instance, superblock.lineage, superblock.epoch);
        let me = Writer { instance, lineage, epoch, nonce: 0 };
        let takers = TakersInMemory::of(&superblock.known_takers());
        let bound = superblock.has_store || !self.map.blocks_with_objects().is_empty();
        let fence = Fence::new(store.clone(), me, bound, takers);
        match fence.look() {
            Ok(Some(held)) if !fence.knows(&held) => {
                let (name, found) = (store.describe(), held.writer.epoch);
                let who = holder::of(&*store, &held.writer).map_or(String::new(), |who| format!(" ({who})"));
                self.passed_by = Some(held);
                self.store_fault = Some(format!(
                    "writer epoch {found}{who} has written to the object store {name}, the volume is at epoch {epoch}: \
                     another copy of this volume was used since"
                ));
            }
            Ok(_) => {}
            Err(FenceError::Store(error)) => {
                self.store_trouble = Some(error.to_string());
                return Ok(());
            }
            Err(error @ FenceError::Corrupt { .. }) => self.store_fault = Some(error.to_string()),
            Err(error) => return Err(error.into()),
        }
        self.objects = Some(Objects::new(store));
        Ok(())
    }

    /// Pages whose redo is not applied on disk yet.
    pub fn redo_pages(&self) -> usize {
        self.pending.pages()
    }

    /// The store does not answer: from now on everything in it is out of reach.
    pub(crate) fn give_up_store(&self) {
        self.gave_up.store(true, Ordering::Relaxed);
    }

    /// Whether the map or the log knows the page.
    pub fn knows(&self, id: PageId) -> bool {
        let mut image = AlignedBuf::zeroed(PAGE_SIZE);
        self.map.locate(id) != Located::Never
            || self.pending.show(id, &mut image).is_err()
            || PageRef::new(&image).lsn() != 0
    }

    /// Whether it is known and said that the page is damaged.
    pub(crate) fn is_reported(&self, id: PageId) -> bool {
        self.bad.lock().contains(&id)
    }

    /// Notes that the page is damaged and that this has been said.
    pub(crate) fn reported(&self, id: PageId) {
        self.bad.lock().insert(id);
    }

    fn read_object(
        &self,
        objects: &Objects,
        id: PageId,
        at: &InObject,
        image: &mut [u8],
    ) -> Result<(), BodyError> {
        let mut recent = self.recent.lock();
        if let Some(page) = recent.pages.remove(&id) {
            image.copy_from_slice(&page);
            return Ok(());
        }
        let kept = recent.whole.iter().position(|(key, _)| *key == at.key);
        if kept.is_none() && recent.asked.replace(at.key) != Some(at.key) {
            return objects.read_page(at, image);
        }
        let whole = match kept.and_then(|i| recent.whole.remove(i)) {
            Some((_, bytes)) => {
                recent.bytes -= bytes.len();
                bytes
            }
            None => match objects.read_block(Purpose::Scrub, &at.key) {
                Ok((_, bytes)) => bytes,
                Err(ObjectError::Store(error)) => return Err(error.into()),
                // Damaged somewhere: the page itself may be whole.
                Err(ObjectError::Corrupt { .. }) => return objects.read_page(at, image),
            },
        };
        let body = HEADER + at.offset;
        let absent = || StoreError::Absent { key: format!("{} (the page at {})", at.key, at.offset) };
        let found = match whole.get(body..body + at.length) {
            Some(body) => objects.packer.unpack(body, image).map_err(BodyError::from),
            None => Err(absent().into()),
        };
        recent.keep(at.key, whole);
        found
    }

    /// Notes whether the store gave an answer. If it is silent again and again, it is given up.
    fn heard(&self, answer: Result<(), BodyError>) -> Result<(), NoPage> {
        let answer = answer.map_err(|error| match error {
            BodyError::Store(error) => no_object(&error),
            BodyError::Corrupt(bad) => NoPage::Wrong(bad.to_string()),
        });
        if !matches!(answer, Err(NoPage::OutOfReach)) {
            self.silent.store(0, Ordering::Relaxed);
        } else if self.silent.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_MAX {
            self.give_up_store();
        }
        answer
    }

    /// The image that the map names, checked.
    fn image(&self, id: PageId, home: &Home, image: &mut [u8]) -> Result<(), NoPage> {
        let wrong = |what: String| NoPage::Wrong(what);
        match (home.slot, home.object, &self.objects) {
            (Some(slot), ..) => self.buffer.read(slot, image).map_err(|error| wrong(error.to_string()))?,
            (None, None, _) => return Err(wrong("it is nowhere".into())),
            (None, Some(_), _) if self.gave_up.load(Ordering::Relaxed) => return Err(NoPage::OutOfReach),
            (None, Some(_), None) => return Err(NoPage::OutOfReach),
            (None, Some(at), Some(objects)) => {
                self.heard(self.read_object(objects, id, &at, image)).map_err(|no| match no {
                    NoPage::Wrong(what) => wrong(format!("in object {}: {what}", at.key)),
                    other => other,
                })?;
            }
        }
        page::check(image, id, Some(home.tag)).map_err(|bad| match (home.slot, home.object) {
            (Some(slot), _) => wrong(format!("on the volume (slot {}) it is corrupt: {bad}", slot.0)),
            (None, at) => wrong(format!(
                "in object {} it is corrupt: {bad}",
                at.map_or(String::new(), |at| at.key.to_string())
            )),
        })
    }
}

/// What a store's failure says of the page that was asked for.
pub(crate) fn no_object(error: &StoreError) -> NoPage {
    match error {
        StoreError::Absent { .. } | StoreError::Conflict { .. } => NoPage::Wrong(error.to_string()),
        _ => NoPage::OutOfReach,
    }
}

impl Source for OfflineInstance {
    fn soon(&self, ids: &[PageId]) {
        self.fetch_ahead(ids);
    }

    fn copy(&self, id: PageId, image: &mut [u8]) -> Result<(), NoPage> {
        if self.bad.lock().contains(&id) {
            return Err(NoPage::Reported);
        }
        let from_tier = match self.map.locate(id) {
            Located::Never => {
                image.fill(0);
                Ok(())
            }
            Located::At(home) => self.image(id, &home, image),
        };
        let shown = from_tier.and_then(|()| {
            self.pending.show(id, image).map_err(|error| NoPage::Wrong(error.to_string()))?;
            match PageRef::new(image).lsn() {
                0 => Err(NoPage::Unwritten),
                _ => Ok(()),
            }
        });
        if matches!(shown, Err(NoPage::Wrong(_) | NoPage::Unwritten)) {
            self.reported(id);
        }
        shown
    }
}

/// The log of an instance that is only looked at.
struct NoLog(Glsn);

impl Redo for NoLog {
    fn reserve(self: Arc<Self>, _bytes: u64, _urgency: Urgency) -> Result<LogRoom, LogError> {
        Err(LogError::Poisoned("the instance was opened for looking".into()))
    }
    fn give_back(&self, _bytes: u64) {}
    fn append(
        &self,
        _room: &mut LogRoom,
        _pages: &[PageRedo<'_>],
        _stamp: &mut dyn FnMut(LsnRange),
    ) -> LsnRange {
        unreachable!("nobody has room in the log of an instance that is only looked at")
    }
    fn durable(&self) -> Glsn {
        self.0
    }
    fn appended(&self) -> Glsn {
        self.0
    }
    fn make_durable(&self, _upto: Glsn) -> Result<(), LogError> {
        Ok(())
    }
}
