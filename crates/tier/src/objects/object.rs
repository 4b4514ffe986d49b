//! Objects: one immutable stored version of one block, under a key that is never used again.
//!
//! An object is put with "only if absent" and never changed. So a lost reply is no riddle: the header
//! at that very key says whether the object is there, and its content hash that it is ours. A put that
//! comes late can only put the same object once more. CloudJump III §3.2, §4.2.4; its in-place rewrite
//! (§4.3.1) can't be fenced and is not done (DESIGN §3).
//!
//! Reads are registered while they last: collection leaves an object alone while it is being read. A reader
//! that looked into the map and then comes too late finds the object absent, looks again, and finds
//! the page elsewhere (`read`).
//!
//! Not here: which blocks become objects (`sink`), which objects go (`collect`).

mod coalesce;
pub mod codec;
pub mod format;
mod outage;

use crate::address::{InObject, OBJECT_HEADER as HEADER, ObjectKey};
use crate::limits::by_space::{BySpace, StoreCounts, add};
use crate::objects::attached::{Attached, Place};
use crate::objects::fence;
use crate::page::{BadBody, BadImage, PAGE_SIZE, Tag};
use coalesce::{Coalescer, FetchTurn};
use codec::{Codec, Codecs, Packer};
use format::{BadObject, Header};
use hashbrown::HashMap;
pub use outage::Failure;
use outage::Outage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::clock::Clock;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::Sched;
use terrace_io::store::{Bytes, ObjectStore, Purpose, StoreError};

#[derive(Debug, Clone, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("object {key} is corrupt: {bad}")]
    Corrupt { key: ObjectKey, bad: BadObject },
}

/// Why a page's image does not come from its object.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The object has the page, and its bytes there are no image.
    #[error(transparent)]
    Corrupt(#[from] BadImage),
}

impl From<BadBody> for BodyError {
    fn from(bad: BadBody) -> BodyError {
        BodyError::Corrupt(BadImage::Stored(bad))
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum PutError {
    /// The key has other content: it is not to be tried again.
    #[error("object {key} exists with other content")]
    Taken { key: ObjectKey },
    /// Whether the object is there is not known; the same may be put again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Default, Debug)]
pub struct ObjectCounters {
    pub gets: AtomicU64,
    pub get_bytes: AtomicU64,
    /// Pages that came with another's request.
    pub coalesced: AtomicU64,
    pub puts: AtomicU64,
    pub put_bytes: AtomicU64,
    /// Puts without an answer, resolved by reading the header.
    pub resolved: AtomicU64,
}

/// The object store as pages see it.
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    readers: Mutex<HashMap<ObjectKey, u32>, { Mutexes::Objects as u8 }>,
    /// None: each miss is a request.
    coalescer: Option<Coalescer>,
    /// None: what happens lately is not counted.
    clock: Option<Arc<dyn Clock>>,
    /// Where objects are read that are not in `store`.
    pub attached: Attached,
    /// Reads that a session waits for fail because of the store.
    pub outage: Outage,
    pub packer: Packer,
    /// How each space's pages are compressed in the next object.
    pub codecs: Arc<Codecs>,
    pub counters: ObjectCounters,
    pub by_space: BySpace<StoreCounts>,
}

/// An object on its way into the store.
pub struct Draft {
    header: Header,
    /// The header's bytes, then the bodies.
    parts: Vec<Bytes>,
}

impl Draft {
    /// `pages` are (place in the block, tag, stored body), in order. A sealed image is a body, too.
    pub fn new(key: ObjectKey, snapshot_version: u64, pages: &[(usize, Tag, Bytes)]) -> Draft {
        let header = Header::new(key, snapshot_version, pages);
        let first = Bytes::copy_from_slice(&header.encode());
        let parts = std::iter::once(first).chain(pages.iter().map(|(_, _, body)| body.clone())).collect();
        Draft { header, parts }
    }
    pub fn header(&self) -> &Header {
        &self.header
    }
}

/// While it lives, the object is not collected.
pub struct Reading<'a> {
    objects: &'a Objects,
    key: ObjectKey,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut readers = self.objects.readers.lock();
        if let Some(n) = readers.get_mut(&self.key) {
            *n -= 1;
            if *n == 0 {
                readers.remove(&self.key);
            }
        }
    }
}

/// The range of an object's body that spans pages that are in it.
struct Extent {
    key: ObjectKey,
    from: usize,
    to: usize,
}

/// For each object that has some of the pages, the range that spans them; in the order of their first page.
fn extents(homes: &[InObject]) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for InObject { key, offset, length } in homes.iter().copied() {
        let (from, to) = (offset, offset + length);
        match all.iter_mut().find(|extent| extent.key == key) {
            Some(extent) => (extent.from, extent.to) = (extent.from.min(from), extent.to.max(to)),
            None => all.push(Extent { key, from, to }),
        }
    }
    all
}

/// Bytes that [`Objects::read_bodies`] gets for these pages: what lies between them is among them.
pub fn bytes_of_bodies(homes: &[InObject]) -> usize {
    extents(homes).iter().map(|extent| extent.to - extent.from).sum()
}

impl Objects {
    pub fn new(store: Arc<dyn ObjectStore>) -> Objects {
        let codecs = Arc::new(Codecs::new(Codec::default()));
        let (readers, counters) = (Mutex::default(), ObjectCounters::default());
        Objects {
            store,
            readers,
            coalescer: None,
            clock: None,
            attached: Attached::new(),
            outage: Outage::default(),
            packer: Packer::default(),
            codecs,
            counters,
            by_space: BySpace::default(),
        }
    }

    /// From now on, misses of neighbours share requests where there are many. `memory`: bytes that such requests may bring at
    /// a time.
    pub fn coalescing(self, sched: Arc<dyn Sched>, memory: usize) -> Objects {
        Objects { coalescer: Some(Coalescer::new(sched, memory)), ..self }
    }

    /// From now on, requests are counted by when they are, too.
    pub fn timed(self, clock: Arc<dyn Clock>) -> Objects {
        Objects { clock: Some(clock), ..self }
    }

    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Registers a read.
    pub fn reading(&self, key: ObjectKey) -> Reading<'_> {
        *self.readers.lock().entry(key).or_insert(0) += 1;
        Reading { objects: self, key }
    }

    /// Whether it is being read.
    pub fn is_read(&self, key: &ObjectKey) -> bool {
        self.readers.lock().contains_key(key)
    }

    fn count_get(&self, key: &ObjectKey, bytes: usize) {
        let of_space = self.by_space.of(key.space);
        for (count, sum) in
            [(&self.counters.gets, &self.counters.get_bytes), (&of_space.gets, &of_space.get_bytes)]
        {
            add(count, 1);
            add(sum, bytes as u64);
        }
        self.clock.iter().for_each(|clock| of_space.lately_gets.add(clock.now()));
    }

    fn get_range(
        &self,
        purpose: Purpose,
        key: &ObjectKey,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), StoreError> {
        self.count_get(key, buf.len());
        let result = self.ask_for(key, &mut |store, at| store.get_range(purpose, at, offset, buf));
        match &result {
            Ok(()) => self.outage.end(),
            Err(error) if matches!(purpose, Purpose::PageMiss | Purpose::BlockRead) => self.failed(error),
            Err(_) => {} // whose request it was tells of it
        }
        result
    }

    /// Asks the store that has the object: our own, or one that is attached.
    fn ask_for<T>(
        &self,
        key: &ObjectKey,
        request: &mut dyn FnMut(&dyn ObjectStore, &str) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // Again if what is attached became known meanwhile, or was copied.
        loop {
            let was_known = self.attached.is_known();
            if let Place::Source(sources, number) = self.attached.place(key) {
                let at = &sources.opened[number];
                return match request(&*at.store, &at.source.key(key)) {
                    Err(StoreError::Absent { .. }) if matches!(self.attached.place(key), Place::Own) => {
                        continue;
                    }
                    Err(StoreError::Absent { key }) => {
                        let cause = format!(
                            "it is read from {} and is not there: is that the right place, and mounted?",
                            at.source.describe()
                        );
                        Err(StoreError::Unavailable { key, cause })
                    }
                    other => other,
                };
            }
            return match request(&*self.store, &key.to_string()) {
                Err(StoreError::Absent { .. }) if !was_known => {
                    self.attached.load(&*self.store)?;
                    continue;
                }
                other => other.map_err(|error| self.explain(error)),
            };
        }
    }

    /// The object's bytes, unchecked.
    pub fn read_whole(&self, purpose: Purpose, key: &ObjectKey) -> Result<Vec<u8>, StoreError> {
        let _reading = self.reading(*key);
        let bytes = self.ask_for(key, &mut |store, at| store.get(purpose, at))?.0;
        self.count_get(key, bytes.len());
        Ok(bytes)
    }

    /// A read failed: is it the store?
    fn failed(&self, error: &StoreError) {
        let is_outage = match error {
            StoreError::Unavailable { .. } | StoreError::Unknown { .. } | StoreError::Throttled { .. } => {
                true
            }
            // It may be this object alone: one that is too short, or that may not be read.
            StoreError::Refused { .. } => {
                let is_known = self.outage.is_there();
                !is_known && matches!(self.ask(), Err(StoreError::Refused { .. }))
            }
            _ => false,
        };
        if is_outage {
            self.outage.begin(error);
        }
    }

    /// Asks the store for what every store in use has.
    pub fn ask(&self) -> Result<(), StoreError> {
        self.store.get(Purpose::Epoch, fence::KEY)?;
        if let Some(sources) = self.attached.sources() {
            sources.opened.iter().try_for_each(|one| one.check(sources.record.id))?;
        }
        self.outage.end();
        Ok(())
    }

    /// An object that is absent from a store without this instance's epoch object is no loss: the store is
    /// another one, or its directory is not mounted. That may change, so the data is unavailable.
    fn explain(&self, error: StoreError) -> StoreError {
        let StoreError::Absent { key } = &error else { return error };
        match self.store.get(Purpose::Epoch, fence::KEY) {
            Err(StoreError::Absent { .. }) => {
                let store = self.store.describe();
                let cause =
                    format!("{store} holds nothing of this instance: is it the right place, and mounted?");
                StoreError::Unavailable { key: key.clone(), cause }
            }
            Err(other) => other,
            Ok(_) => error,
        }
    }

    /// Puts the object. Ok means that it is in the store, whole and durable.
    pub fn put(&self, draft: &Draft) -> Result<(), PutError> {
        let key = draft.header.key;
        let of_space = self.by_space.of(key.space);
        for (count, bytes) in
            [(&self.counters.puts, &self.counters.put_bytes), (&of_space.puts, &of_space.put_bytes)]
        {
            add(count, 1);
            add(bytes, draft.header.object_len() as u64);
        }
        self.clock.iter().for_each(|clock| of_space.lately_puts.add(clock.now()));
        let error = match self.store.put_if_absent(Purpose::Sink, &key.to_string(), &draft.parts) {
            Ok(_) => {
                self.outage.end();
                return Ok(());
            }
            Err(error @ (StoreError::Unknown { .. } | StoreError::Conflict { .. })) => error,
            Err(error) => return Err(error.into()),
        };
        if matches!(error, StoreError::Unknown { .. }) && crate::planted::REPLY_GUESSED.on() {
            return Ok(());
        }
        // A time-out is not an answer, and a conflict may be with ourselves: what is at the key?
        self.counters.resolved.fetch_add(1, Ordering::Relaxed);
        match self.header(Purpose::Resolve, &key) {
            Ok(found) if found == draft.header => Ok(()),
            Ok(_) | Err(ObjectError::Corrupt { .. } | ObjectError::Store(StoreError::Refused { .. })) => {
                Err(PutError::Taken { key })
            }
            Err(ObjectError::Store(_)) => {
                let cause = error.to_string();
                Err(StoreError::Unknown { key: key.to_string(), cause }.into())
            }
        }
    }

    /// The object's header.
    pub fn header(&self, purpose: Purpose, key: &ObjectKey) -> Result<Header, ObjectError> {
        let mut bytes = [0; HEADER];
        self.get_range(purpose, key, 0, &mut bytes)?;
        let header = Header::decode(&bytes).map_err(|bad| ObjectError::Corrupt { key: *key, bad })?;
        if header.key != *key {
            return Err(ObjectError::Corrupt { key: *key, bad: BadObject::Name(header.key) });
        }
        Ok(header)
    }

    /// The whole object, checked: its header and its bytes, in which bodies begin at
    /// [`crate::address::OBJECT_HEADER`].
    pub fn read_block(&self, purpose: Purpose, key: &ObjectKey) -> Result<(Header, Vec<u8>), ObjectError> {
        let bytes = self.read_whole(purpose, key)?;
        let header = format::check(key, &bytes).map_err(|bad| ObjectError::Corrupt { key: *key, bad })?;
        Ok((header, bytes))
    }

    /// Stored bodies of pages, in order, each or the reason why it is missing. From each object that has some of them (a block has its object and its patch), with
    /// one request for the range that spans them.
    pub fn read_bodies(&self, purpose: Purpose, homes: &[InObject]) -> Vec<Result<Bytes, StoreError>> {
        let spans: Vec<(Extent, Result<Bytes, StoreError>)> = extents(homes)
            .into_iter()
            .map(|extent| {
                let Extent { key, from, to } = extent;
                // What is large goes back to the kernel when it is done with: workers' allocators would keep it.
                let mut span = AlignedBuf::zeroed(to - from);
                let _reading = self.reading(key);
                let got = self.get_range(purpose, &key, (HEADER + from) as u64, &mut span[..to - from]);
                (extent, got.map(|()| Bytes::from_owner(span)))
            })
            .collect();
        let body = |home: &InObject| {
            let (extent, span) = spans.iter().find(|(extent, _)| extent.key == home.key)?;
            let from = home.offset - extent.from;
            Some(span.clone().map(|span| span.slice(from..from + home.length)))
        };
        homes.iter().filter_map(body).collect()
    }

    /// As `read_bodies`, for a scan that will use the pages between: fills a page-sized part of `images` for each of
    /// `homes`. What image it is, is not looked at.
    pub fn read_run(
        &self,
        purpose: Purpose,
        homes: &[InObject],
        images: Vec<&mut [u8]>,
    ) -> Vec<Result<(), BodyError>> {
        assert_eq!(images.len(), homes.len());
        let bodies = self.read_bodies(purpose, homes).into_iter();
        bodies.zip(images).map(|(body, image)| Ok(self.packer.unpack(&body?, image)?)).collect()
    }

    /// One page, with a request of its own.
    fn read_one(&self, at: &InObject, image: &mut [u8]) -> Result<(), BodyError> {
        let (purpose, offset) = (Purpose::PageMiss, (HEADER + at.offset) as u64);
        if at.length == PAGE_SIZE {
            return Ok(self.get_range(purpose, &at.key, offset, image)?);
        }
        let mut body = vec![0; at.length];
        self.get_range(purpose, &at.key, offset, &mut body)?;
        Ok(self.packer.unpack(&body, image)?)
    }
}

impl PageObjects for Objects {
    /// A miss (R4): one request for one page, or for those that others miss at the same time.
    fn read_page(&self, at: &InObject, image: &mut [u8]) -> Result<(), BodyError> {
        let _reading = self.reading(at.key);
        let flight = match self.coalescer.as_ref().map(|coalescer| coalescer.turn(at)) {
            Some(FetchTurn::Come(span)) => {
                add(&self.counters.coalesced, 1);
                return Ok(self.packer.unpack(span.body(at), image)?);
            }
            Some(FetchTurn::Go(flight)) => Some(flight),
            None => None,
        };
        if let Some((from, to)) = flight.as_ref().and_then(|flight| flight.range(at))
            && let Some(flight) = flight
        {
            let mut bytes = AlignedBuf::zeroed(to - from);
            let offset = (HEADER + from) as u64;
            self.get_range(Purpose::PageMiss, &at.key, offset, &mut bytes[..to - from])?;
            return Ok(self.packer.unpack(flight.come(from, bytes).body(at), image)?);
        }
        self.read_one(at, image)
    }

    fn read_pages(&self, at: &[InObject], images: Vec<&mut [u8]>) -> Vec<Result<(), BodyError>> {
        self.read_run(Purpose::BlockRead, at, images)
    }
}

/// The objects, as the path sees them.
pub trait PageObjects: Send + Sync {
    /// Fills `image` with the page's image from its object: one range GET.
    fn read_page(&self, at: &InObject, image: &mut [u8]) -> Result<(), BodyError>;
    /// Fills the images of pages of one object: one range GET. One result a page.
    fn read_pages(&self, at: &[InObject], images: Vec<&mut [u8]>) -> Vec<Result<(), BodyError>>;
}

#[cfg(test)]
mod tests;
