//! The lower half of the tier, without trees and transactions: a simulated volume, flash and store, the
//! map with a log whose tail is lost in a crash, and a model of what every page holds.

#![allow(dead_code)] // each test binary uses its part

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::clock::Nanos;
use terrace_io::disk::Disk;
use terrace_io::random::Random;
use terrace_io::sched::{Step, Worker};
use terrace_log::{LogError, LogRoom, LsnRange, PageRedo, Redo, Urgency, record_bound};
use terrace_sim::{SimDisk, SimStore, SimWorld};
use terrace_tier::ablation::{Mechanism, Without};
use terrace_tier::address::Located;
use terrace_tier::flash::admission::filter::Rule;
use terrace_tier::flash::bpe::{Bpe, BpeSettings, BpeWorker};
use terrace_tier::memory::lower_tiers::{Below, ReadError};
use terrace_tier::memory::misses::Misses;
use terrace_tier::memory::pages::Pages;
use terrace_tier::memory::pool::Access;
use terrace_tier::objects::collect::Collector;
use terrace_tier::objects::fence::{Fence, Taker, TakersInMemory, Writer};
use terrace_tier::objects::object::Objects;
use terrace_tier::objects::object::PageObjects;
use terrace_tier::objects::object::codec::Codec;
use terrace_tier::objects::sink::{
    AlwaysNoted, EpochSequences, Patches, SinkParts, SinkSettings, SinkWorker, Sinker,
};
use terrace_tier::objects::snapshots::Snapshots;
use terrace_tier::page::{self, BLOCK_PAGES, BlockId, Glsn, PAGE_SIZE, PageId, PageKind, SpaceId, Tag};
use terrace_tier::read::ReadPath;
use terrace_tier::volume::map::{Map, home};
use terrace_tier::volume::object_buffer::{self, ObjectBuffer};

pub const COOL: Nanos = 10_000_000_000;
pub const LINEAGE: u128 = 0xFACE;

/// A log in memory that becomes durable when asked, and loses the rest in a crash.
pub struct LaggingLog {
    state: Mutex<(Glsn, Glsn)>,
    records: Mutex<Vec<(u32, Vec<u8>, LsnRange)>>,
    pub stopped: AtomicBool,
    crashed: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Redo for LaggingLog {
    fn reserve(self: Arc<Self>, bytes: u64, _: Urgency) -> Result<LogRoom, LogError> {
        if self.stopped.load(Ordering::SeqCst) {
            return Err(LogError::Poisoned("it stopped".into()));
        }
        Ok(LogRoom::new(self, bytes))
    }
    fn give_back(&self, _bytes: u64) {}
    fn append(&self, _: &mut LogRoom, pages: &[PageRedo<'_>], stamp: &mut dyn FnMut(LsnRange)) -> LsnRange {
        let mut state = self.state.lock();
        let first = state.0.max(1);
        state.0 = first + pages.iter().map(|p| record_bound(p.ops.len())).sum::<u64>();
        let range = LsnRange { first, end: state.0 };
        stamp(range);
        self.records.lock().extend(pages.iter().map(|p| (p.id.page, p.ops.to_vec(), range)));
        range
    }
    fn durable(&self) -> Glsn {
        self.state.lock().1
    }
    fn appended(&self) -> Glsn {
        self.state.lock().0
    }
    fn make_durable(&self, _upto: Glsn) -> Result<(), LogError> {
        if self.stopped.load(Ordering::SeqCst) || (self.crashed)() {
            return Err(LogError::Poisoned("it stopped".into()));
        }
        let mut state = self.state.lock();
        state.1 = state.0;
        Ok(())
    }
}

/// What runs between two crashes.
pub struct Running {
    pub map: Arc<Map>,
    pub buffer: Arc<ObjectBuffer>,
    pub bpe: Arc<Bpe>,
    pub bpe_worker: BpeWorker,
    pub path: Arc<ReadPath>,
    pub misses: Arc<Misses>,
    pub pages: Arc<Pages>,
    pub objects: Arc<Objects>,
    pub fence: Arc<Fence>,
    pub collector: Arc<Collector>,
    pub sinker: Arc<Sinker>,
    pub worker: SinkWorker,
}

pub struct Rig {
    pub sim: Arc<SimWorld>,
    pub volume: Arc<SimDisk>,
    pub flash: Arc<SimDisk>,
    pub store: Arc<SimStore>,
    pub log: Arc<LaggingLog>,
    pub run: Running,
    slots: u32,
    flash_slots: u64,
    epoch: u32,
    /// Whether patch objects are put.
    patches: bool,
    /// What a superblock keeps.
    takers: Arc<TakersInMemory>,
    model: Arc<Mutex<Model>>,
}

/// Versions of each page, with the end of the record that published each.
type Model = HashMap<PageId, Vec<(Glsn, u64)>>;

/// In place of a version: the page was freed.
const FREE: u64 = 0;

fn newest(model: &Model, id: PageId) -> Option<u64> {
    model.get(&id)?.last().map(|(_, version)| *version).filter(|version| *version != FREE)
}

/// What the flusher does with one dirty page; can be used from a hook in the middle of something else.
#[derive(Clone)]
pub struct Hand {
    map: Arc<Map>,
    buffer: Arc<ObjectBuffer>,
    bpe: Arc<Bpe>,
    model: Arc<Mutex<Model>>,
}

impl Hand {
    /// False: no free slot, or the machine is dead.
    pub fn flush(&self, id: PageId) -> bool {
        let version = {
            let model = self.model.lock();
            model.get(&id).into_iter().flatten().map(|(_, version)| *version).max().unwrap_or(0) + 1
        };
        self.flush_as(id, version)
    }

    /// No image of these pages is needed any more. How many of them had one.
    pub fn free(&self, pages: &[PageId]) -> usize {
        let Ok(mut room) = self.map.room_to_clear(pages.len(), Urgency::Checkpoint) else { return 0 };
        let images: Vec<_> = pages.iter().map(|id| (*id, None)).collect();
        let Some(range) = self.map.clear(&mut room, &images) else { return 0 };
        pages.iter().for_each(|id| self.bpe.invalidate(*id));
        let mut model = self.model.lock();
        let had: Vec<PageId> = pages.iter().copied().filter(|id| newest(&model, *id).is_some()).collect();
        had.iter().for_each(|id| model.entry(*id).or_default().push((range.end, FREE)));
        had.len()
    }

    pub fn flush_as(&self, id: PageId, version: u64) -> bool {
        let (bytes, tag) = image(id, version);
        self.map.settle();
        let Some(slots) = self.map.take_slots(1, 0) else { return false };
        let written = self.buffer.write_many(&slots, &bytes).and_then(|()| self.buffer.sync());
        if written.is_err() {
            self.map.give_back_slots(&slots);
            return false;
        }
        let Ok(range) = self.map.publish_slots(&[(id, slots[0], tag)]) else { return false };
        self.bpe.invalidate(id);
        self.model.lock().entry(id).or_default().push((range.end, version));
        true
    }
}

/// Images of such versions are noise, which no codec makes smaller.
pub const NOISE: u64 = 1 << 40;

/// The `version`th image of a page.
pub fn image(id: PageId, version: u64) -> (AlignedBuf, Tag) {
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    page::format(&mut bytes, id, PageKind::Leaf, 0);
    page::set_lsn(&mut bytes, version);
    if version & NOISE != 0 {
        let mut x = version ^ u64::from(id.page) << 20;
        for word in bytes[64..].chunks_exact_mut(8) {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&(x ^ x >> 29).to_le_bytes());
        }
    }
    bytes[9000..9008].copy_from_slice(&version.to_le_bytes());
    let tag = page::seal(&mut bytes);
    (bytes, tag)
}

pub fn page_of(block: u32, index: u32) -> PageId {
    PageId::new(SpaceId::FIRST_USER, block * BLOCK_PAGES + index)
}

pub fn block_of(block: u32) -> BlockId {
    BlockId { space: SpaceId::FIRST_USER, block }
}

impl Rig {
    /// Little flash: it throws pages out all the time.
    pub fn new(seed: u64, slots: u32) -> Rig {
        Rig::with_flash(seed, slots, 40)
    }

    pub fn with_flash(seed: u64, slots: u32, flash_slots: u64) -> Rig {
        Rig::make(seed, slots, flash_slots, true)
    }

    /// Whole blocks alone are put.
    pub fn without_patches(seed: u64, slots: u32, flash_slots: u64) -> Rig {
        Rig::make(seed, slots, flash_slots, false)
    }

    fn make(seed: u64, slots: u32, flash_slots: u64, patches: bool) -> Rig {
        let sim = Arc::new(SimWorld::new(seed));
        let volume = sim.disk("volume");
        home::create(&*volume).unwrap();
        object_buffer::create(&*volume).unwrap();
        volume.sync_dir().unwrap();
        let flash = sim.disk("flash");
        let store = sim.store("store");
        let world = sim.clone();
        let log = Arc::new(LaggingLog {
            state: Mutex::new((1, 1)),
            records: Mutex::default(),
            stopped: AtomicBool::new(false),
            crashed: Box::new(move || world.crashed()),
        });
        let takers = Arc::default();
        let run = open(&sim, &volume, &flash, &store, &log, slots, flash_slots, 1, patches, &takers);
        let model = Arc::default();
        Rig { sim, volume, flash, store, log, run, slots, flash_slots, epoch: 1, patches, takers, model }
    }

    /// Power is lost and returns: everything in memory is gone, and the log's tail too.
    pub fn crash(&mut self) {
        self.volume.crash();
        self.flash.crash();
        self.sim.power_on();
        let durable = self.log.durable();
        self.log.records.lock().retain(|(_, _, range)| range.end <= durable);
        self.log.state.lock().0 = durable;
        {
            let mut model = self.model.lock();
            model.values_mut().for_each(|versions| versions.retain(|(end, _)| *end <= durable));
            model.retain(|_, versions| !versions.is_empty());
        }
        self.epoch += 1;
        let Rig { sim, volume, flash, store, log, slots, flash_slots, epoch, patches, takers, .. } = self;
        self.run = open(sim, volume, flash, store, log, *slots, *flash_slots, *epoch, *patches, takers);
        assert_eq!(self.run.map.faults(), Vec::<String>::new(), "seed {}", self.sim.seed);
    }

    pub fn hand(&self) -> Hand {
        let Running { map, buffer, bpe, .. } = &self.run;
        let (map, buffer, bpe) = (map.clone(), buffer.clone(), bpe.clone());
        Hand { map, buffer, bpe, model: self.model.clone() }
    }

    pub fn flush(&self, id: PageId) -> bool {
        self.hand().flush(id)
    }

    pub fn version(&self, id: PageId) -> Option<u64> {
        newest(&self.model.lock(), id)
    }

    /// The page as a reader gets it; panics if that is not the newest version.
    pub fn read(&self, id: PageId) -> Result<(), ReadError> {
        let mut buf = AlignedBuf::zeroed(PAGE_SIZE);
        match (self.run.path.fetch(id, &mut buf), self.version(id)) {
            (Ok(_), Some(version)) => {
                let same = buf[..] == image(id, version).0[..];
                assert!(same, "seed {}: page {id} is not version {version}", self.sim.seed);
                Ok(())
            }
            (Err(ReadError::Absent(_)), None) => Ok(()),
            (Ok(_), None) => panic!("seed {}: page {id} was never flushed", self.sim.seed),
            (Err(error), _) => Err(error),
        }
    }

    /// Every page's entry leads to its newest image: in its slot, in its block's patch object or in its object.
    pub fn check_entries(&self) {
        let seed = self.sim.seed;
        for (id, versions) in &*self.model.lock() {
            let Some((_, version)) = versions.last() else { continue };
            let home = match self.run.map.locate(*id) {
                Located::At(home) => home,
                Located::Never if *version == FREE => continue,
                Located::Never => panic!("seed {seed}: page {id} is nowhere"),
            };
            assert!(*version != FREE, "seed {seed}: page {id} was freed, and is somewhere");
            let mut found = AlignedBuf::zeroed(PAGE_SIZE);
            match (home.slot, home.object) {
                (Some(slot), _) => self.run.buffer.read(slot, &mut found).map_err(|e| e.to_string()),
                (None, Some(at)) => self.run.objects.read_page(&at, &mut found).map_err(|e| e.to_string()),
                (None, None) => Err("it is in neither slot nor object".into()),
            }
            .unwrap_or_else(|e| panic!("seed {seed}: page {id}: {e}"));
            assert!(
                found[..] == image(*id, *version).0[..],
                "seed {seed}: {id}'s entry leads to an older image"
            );
        }
    }

    /// Reads every page; all must be there.
    pub fn read_all(&self) {
        let mut pages: Vec<PageId> = self.model.lock().keys().copied().collect();
        pages.sort_unstable();
        for id in pages {
            self.read(id).unwrap_or_else(|e| panic!("seed {}: {e}", self.sim.seed));
        }
    }

    /// A clean page leaves memory.
    pub fn evict(&self, id: PageId) {
        if let Some(version) = self.version(id) {
            let mut bytes = image(id, version).0;
            self.run.path.evicted(id, &mut bytes, 1 + (self.sim.random.below(3) as u8));
        }
    }

    /// Brings the page into the buffer pool, where it may grow old: this rig flushes past the pool.
    pub fn cache(&self, id: PageId) {
        drop(self.run.pages.load(id, Access::Normal));
    }

    /// Lets the sinker and the collector work until both rest. Returns how long they want to rest.
    pub fn work(&mut self) -> Step {
        for _ in 0..10_000 {
            match (self.run.worker.step(), self.run.collector.step()) {
                (Step::Worked, _) | (_, Step::Worked) => {}
                (Step::IdleFor(a), Step::IdleFor(b)) => return Step::IdleFor(a.min(b)),
                (Step::IdleFor(n), _) | (_, Step::IdleFor(n)) => return Step::IdleFor(n),
                _ => return Step::Idle,
            }
        }
        panic!("seed {}: the sinker does not come to rest", self.sim.seed);
    }

    pub fn heal(&self) {
        let faults = &self.store.faults;
        for rate in [&faults.unavailable, &faults.unknown, &faults.throttled] {
            rate.store(0, Ordering::SeqCst);
        }
        faults.dead.store(false, Ordering::SeqCst);
        self.store.land_late_puts();
    }

    /// The patch object that the map names for a block.
    pub fn patch(&self, block: u32) -> Option<String> {
        self.run.map.block(block_of(block)).patch.map(|key| key.to_string())
    }

    /// The object that the map names for a block.
    pub fn object(&self, block: u32) -> Option<String> {
        self.run.map.block(block_of(block)).object.map(|key| key.to_string())
    }

    /// The keys of objects in the store.
    pub fn stored(&self) -> Vec<String> {
        self.store.keys().into_iter().filter(|key| key != terrace_tier::objects::fence::KEY).collect()
    }

    pub fn tag(&self, id: PageId) -> Tag {
        match self.run.map.locate(id) {
            Located::At(home) => home.tag,
            Located::Never => 0,
        }
    }

    /// Another way to the same tiers, without one mechanism.
    pub fn path_without(&self, one: Mechanism) -> Arc<ReadPath> {
        let Running { map, buffer, bpe, objects, misses, .. } = &self.run;
        let (flash, objects) = (Some(bpe.clone() as _), Some(objects.clone() as _));
        let path = ReadPath::new(map.clone(), buffer.clone(), flash, objects, misses.clone());
        Arc::new(path.without(Without::default().and(one)))
    }

    pub fn in_slot(&self, id: PageId) -> bool {
        matches!(self.run.map.locate(id), Located::At(home) if home.slot.is_some())
    }
}

#[allow(clippy::too_many_arguments)]
fn open(
    sim: &SimWorld,
    volume: &Arc<SimDisk>,
    flash: &Arc<SimDisk>,
    store: &Arc<SimStore>,
    log: &Arc<LaggingLog>,
    slots: u32,
    flash_slots: u64,
    epoch: u32,
    patches: bool,
    takers: &Arc<TakersInMemory>,
) -> Running {
    let world = sim.world();
    let redo: Arc<dyn Redo> = log.clone();
    let mut loading = home::Loading::open(&**volume).unwrap();
    for (number, ops, range) in log.records.lock().iter() {
        loading.apply(*number, ops, range.first, range.end).unwrap();
    }
    let map = Arc::new(loading.finish(slots, redo.clone()).unwrap());
    let buffer = Arc::new(ObjectBuffer::open(&**volume).unwrap());
    let settings = BpeSettings {
        owner: 1,
        flash_bytes: flash_slots * PAGE_SIZE as u64,
        queue_pages: 16,
        admission: Rule::Ghost,
        warm: true,
    };
    let bpe = Arc::new(Bpe::open(&**flash, settings));
    let objects = Arc::new(Objects::new(store.clone()));
    // Another codec each life: objects of all of them stand side by side.
    objects.codecs.set_fallback(Codec::NAMES[epoch as usize % Codec::NAMES.len()].1);
    let writer = Writer { instance: 1, lineage: LINEAGE, epoch, nonce: world.random.next_u64() };
    let fence = Arc::new(Fence::new(store.clone(), writer, !map.objects().is_empty(), takers.clone()));
    let snapshots = Arc::new(Snapshots::new(store.clone()));
    let collector = Arc::new(Collector::new(
        world.clone(),
        map.clone(),
        redo.clone(),
        objects.clone(),
        fence.clone(),
        snapshots,
    ));
    let misses = Arc::new(Misses::new(world.clock.clone()));
    let path =
        ReadPath::new(map.clone(), buffer.clone(), Some(bpe.clone()), Some(objects.clone()), misses.clone());
    let path = Arc::new(path);
    let pages = Arc::new(Pages::new(world.clone(), 48, path.clone(), redo.clone()));
    let parts = SinkParts {
        world,
        map: map.clone(),
        buffer: buffer.clone(),
        pool: pages.pool().clone(),
        redo,
        flash: Some(bpe.clone()),
        objects: objects.clone(),
        fence: fence.clone(),
        sequences: Arc::new(EpochSequences::new()),
        patches: patches.then(|| Arc::new(AlwaysNoted) as Arc<dyn Patches>),
        collector: collector.clone(),
    };
    let sinker = Arc::new(Sinker::new(parts, SinkSettings { cool: COOL, ..SinkSettings::default() }));
    Running {
        map,
        buffer,
        bpe_worker: BpeWorker(bpe.clone()),
        bpe,
        path,
        misses,
        pages,
        objects,
        fence,
        collector,
        worker: SinkWorker(sinker.clone()),
        sinker,
    }
}

/// Steps of the flash worker until it has nothing to do.
pub fn fill(run: &mut Running) {
    while run.bpe_worker.step() == Step::Worked {}
}

/// A later open of the same volume, elsewhere, takes the store.
pub fn take_from(fence: &Fence, store: Arc<SimStore>) {
    let writer = Writer { epoch: 9, nonce: 1, ..fence.writer() };
    let before = Taker { mark: u32::MAX, ..fence.writer().taker() };
    Fence::new(store, writer, true, TakersInMemory::of(&[before])).take().unwrap();
}
