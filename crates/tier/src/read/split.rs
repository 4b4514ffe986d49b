//! Split (NetCAS §4, and past it): a page that is both on flash and on the volume is read where a read is served best now, so that a
//! hot set larger than memory gets the bandwidth of both.
//!
//! The router (`terrace_io::split`) names the device; here is what a page's two copies are: the image on flash, and the slot that the map
//! names or the slot that the page left when it sank (`map/clean.rs`). R2 and R3 of the read become one step with two attempts. The map's tag
//! stays the authority (invariant 2): a copy that fails or does not carry it is counted, and the other copy is read. So a route changes where
//! a page is read, never which image. A page with one copy is not routed, nor is a run of pages that a scan reads.
//!
//! A reader leaves a read behind that exceeds its bound (`terrace_io::disk::hedge`), and reads the other copy. Where the system cannot do that, the
//! reader waits; a worker ([`SplitWatcher`]) finds such reads, so that later ones avoid the device. It also probes suspect devices, which no reader
//! waits for.
//!
//! Not here: which pages flash takes (`flash/admission`).

use super::ReadPath;
use crate::address::{Home, Located, Slot, Tier};
use crate::flash::FlashCache;
use crate::memory::lower_tiers::ReadError;
use crate::page::{PAGE_SIZE, PageId};
use crate::sync::{Mutex, Mutexes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::clock::{Clock, Nanos};
use terrace_io::disk::DiskError;
use terrace_io::disk::hedge::{self, LeftRead};
use terrace_io::sched::{Event, Step, Worker};
use terrace_io::split::health::LOST;
use terrace_io::split::router::{LANES, lane};
use terrace_io::split::{Device, Outcome, Policy, Request, Router, Settings};

/// The router's devices, the nearest first.
const FLASH: usize = 0;
const VOLUME: usize = 1;
const BOTH: Request = Request { on: 1 << FLASH | 1 << VOLUME, bytes: PAGE_SIZE as u32 };
/// The watcher's period while pages are read, in nanoseconds.
const WATCH: Nanos = 20_000_000;

/// The setting `split`: how reads are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SplitRule {
    /// Flash first, then the volume.
    #[default]
    Off,
    Knee,
    ShortestWait,
    EqualLatency,
    HillClimbing,
    VolumeOnly,
}

impl SplitRule {
    /// `on` is the first of them: the default policy of the router.
    pub const NAMES: [(&str, SplitRule); 7] = [
        ("off", SplitRule::Off),
        ("knee", SplitRule::Knee),
        ("on", SplitRule::Knee),
        ("shortest-wait", SplitRule::ShortestWait),
        ("equal-latency", SplitRule::EqualLatency),
        ("orthus", SplitRule::HillClimbing),
        ("backend-only", SplitRule::VolumeOnly),
    ];

    pub fn named(name: &str) -> Option<SplitRule> {
        SplitRule::NAMES.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule)
    }

    pub fn name(self) -> &'static str {
        SplitRule::NAMES.iter().find(|(_, rule)| *rule == self).map_or("off", |(name, _)| name)
    }

    fn policy(self) -> Option<Policy> {
        match self {
            SplitRule::Off => None,
            SplitRule::Knee => Some(Policy::Knee),
            SplitRule::ShortestWait => Some(Policy::ShortestWait),
            SplitRule::EqualLatency => Some(Policy::EqualLatency),
            SplitRule::HillClimbing => Some(Policy::HillClimbing),
            SplitRule::VolumeOnly => Some(Policy::BackendOnly),
        }
    }
}

/// A read that is under way: when it began, and on which device. A lane has one such entry; a second read in the lane is not watched.
#[derive(Default)]
#[repr(align(64))]
struct Watched {
    /// 0: none. The lowest bit is the device.
    since: AtomicU64,
}

/// Divides the reads of pages with two copies.
pub struct PageSplit {
    router: Router,
    clock: Arc<dyn Clock>,
    watched: [Watched; LANES],
    /// Pages were read since the watcher looked last.
    active: AtomicBool,
    /// The page whose read is the next probe, and the device.
    probe: Mutex<Option<(usize, PageId)>, { Mutexes::SplitProbe as u8 }>,
    watch: Arc<Event>,
}

impl PageSplit {
    /// None if the rule is `off`.
    pub fn new(rule: SplitRule, clock: Arc<dyn Clock>) -> Option<Arc<PageSplit>> {
        let settings = Settings { policy: rule.policy()?, ..Settings::default() };
        Some(Arc::new(PageSplit {
            router: Router::new(vec![Device::new("flash"), Device::new("volume")], settings),
            clock,
            watched: Default::default(),
            active: AtomicBool::new(false),
            probe: Mutex::new(None),
            watch: Arc::new(Event::new()),
        }))
    }

    pub fn router(&self) -> &Router {
        &self.router
    }

    fn begin(&self, lane: usize, device: usize, now: Nanos) -> bool {
        if !self.active.load(Ordering::Relaxed) && !self.active.swap(true, Ordering::Relaxed) {
            self.watch.notify();
        }
        let mark = (now & !1 | device as u64).max(2);
        self.watched[lane].since.compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn end(&self, lane: usize, is_watched: bool) {
        if is_watched {
            self.watched[lane].since.store(0, Ordering::Relaxed);
        }
    }

    /// A read was left behind. It counts as in flight until the device answers.
    fn left(self: &Arc<Self>, left: LeftRead, lane: usize, device: usize, now: Nanos) {
        self.router.overdue(device, now);
        let split = self.clone();
        left.on_answer(move |latency, came| {
            let outcome = if came { Outcome::Done } else { Outcome::Failed };
            split.router.finished(lane, device, 0, latency, outcome, split.clock.now());
        });
    }

    fn ask_probe(&self, device: usize, id: PageId) {
        let mut probe = self.probe.lock();
        if probe.is_some() {
            drop(probe);
            self.router.probed(device, false, self.clock.now());
            return;
        }
        *probe = Some((device, id));
        drop(probe);
        self.watch.notify();
    }

    /// Tells the router of reads that exceed their bound. Returns whether reads are under way.
    fn look_for_overdue(&self) -> bool {
        let now = self.clock.now();
        let mut any = false;
        for watched in &self.watched {
            let since = watched.since.load(Ordering::Relaxed);
            if since == 0 {
                continue;
            }
            any = true;
            let device = (since & 1) as usize;
            if now.saturating_sub(since & !1) > self.router.hedge_after(device) {
                self.router.overdue(device, now);
            }
        }
        any
    }
}

impl ReadPath {
    /// Divides reads of pages with two copies from here on. Set once, before the first read.
    pub fn set_split(&self, split: Arc<PageSplit>) {
        assert!(self.split.set(split).is_ok(), "split is set twice");
    }

    pub fn split(&self) -> Option<&Arc<PageSplit>> {
        self.split.get()
    }

    /// Flash does not answer in time now, or fails.
    pub(super) fn avoids_flash(&self) -> bool {
        self.split.get().is_some_and(|split| split.router.is_suspect(FLASH))
    }

    /// The watcher, which a start spawns.
    pub fn split_watcher(self: &Arc<Self>) -> Option<SplitWatcher> {
        self.split.get().map(|split| SplitWatcher { path: self.clone(), split: split.clone(), seen: false })
    }

    /// The slot with a copy of the page, if flash seems to have one, too.
    pub(super) fn second_copy(
        &self,
        id: PageId,
        home: &Home,
    ) -> Option<(&Arc<PageSplit>, &dyn FlashCache, Slot)> {
        let split = self.split.get()?;
        let flash = self.flash.as_deref().filter(|flash| flash.seems_to_have(id))?;
        let slot = home.slot.or_else(|| self.map.clean_copy(id, home.tag))?;
        Some((split, flash, slot))
    }

    /// R2 and R3 for a page that both have. None: neither copy could be served; the usual path reads again and reports why.
    pub(super) fn split_image(
        &self,
        (split, flash, slot): (&Arc<PageSplit>, &dyn FlashCache, Slot),
        id: PageId,
        home: &Home,
        image: &mut [u8],
    ) -> Option<Tier> {
        let (lane, mut tried) = (lane(), 0);
        let mut route = split.router.route(lane, &BOTH, split.clock.now());
        if let Some(shadow) = route.shadow {
            split.ask_probe(shadow, id);
        }
        loop {
            let (device, started) = (route.device, split.clock.now());
            tried |= 1 << device;
            let is_watched = split.begin(lane, device, started);
            // The last copy is waited for.
            let bound = (tried != BOTH.on).then_some(route.hedge_after);
            let (outcome, left) = hedge::bounded(bound, || match device {
                FLASH => self.from_flash_copy(flash, id, home, image),
                _ => self.from_slot_copy(id, home, slot, image),
            });
            split.end(lane, is_watched);
            let now = split.clock.now();
            match left {
                Some(left) if outcome != Outcome::Done => split.left(left, lane, device, now),
                _ => {
                    let bytes = if outcome == Outcome::Done { PAGE_SIZE as u32 } else { 0 };
                    split.router.finished(lane, device, bytes, now - started, outcome, now);
                }
            }
            if outcome == Outcome::Done {
                return Some(if device == FLASH { Tier::Flash } else { Tier::Volume });
            }
            route = split.router.fall_back(tried, &BOTH)?;
        }
    }

    fn from_flash_copy(&self, flash: &dyn FlashCache, id: PageId, home: &Home, image: &mut [u8]) -> Outcome {
        if self.limits_reads(id.space) {
            self.spend(id, Tier::Flash, 1);
        }
        if !flash.find(id, home.tag, image) {
            return Outcome::Stale;
        }
        self.counters.flash.fetch_add(1, Ordering::Relaxed);
        Outcome::Done
    }

    fn from_slot_copy(&self, id: PageId, home: &Home, slot: Slot, image: &mut [u8]) -> Outcome {
        self.spend(id, Tier::Volume, 1);
        let tag = if crate::planted::SPLIT_TAG_NOT_CHECKED.on() { None } else { Some(home.tag) };
        match self.misses.on_volume(|| self.from_volume(id, slot, tag, image)) {
            Ok(_) => {
                self.counters.volume.fetch_add(1, Ordering::Relaxed);
                if home.slot.is_none() {
                    self.counters.clean.fetch_add(1, Ordering::Relaxed);
                }
                Outcome::Done
            }
            Err(ReadError::Disk { error: DiskError::Overdue { .. }, .. }) => Outcome::Stale,
            Err(ReadError::Disk { .. }) => Outcome::Failed,
            // A slot that the page left was usually allocated again meanwhile; the page's own slot may have been freed during the read.
            Err(error) => {
                match home.slot {
                    None => self.map.no_clean_copy(id, home.tag, slot),
                    Some(_) if self.map.locate(id) == Located::At(*home) => _ = self.counted(error),
                    Some(_) => {}
                }
                Outcome::Stale
            }
        }
    }

    /// Reads a copy that only the router asked for. True: the device answered.
    fn probe(&self, device: usize, id: PageId, image: &mut [u8]) -> bool {
        let Located::At(home) = self.map.locate(id) else { return false };
        let Some((_, flash, slot)) = self.second_copy(id, &home) else { return false };
        let (answered, left) = hedge::bounded(Some(LOST), || match device {
            FLASH => flash.find(id, home.tag, image),
            _ => !matches!(self.from_volume(id, slot, Some(home.tag), image), Err(ReadError::Disk { .. })),
        });
        answered && left.is_none()
    }
}

/// Finds reads that exceed their bound, and makes the probes of suspect devices.
pub struct SplitWatcher {
    path: Arc<ReadPath>,
    split: Arc<PageSplit>,
    /// The step before saw reads.
    seen: bool,
}

impl Worker for SplitWatcher {
    fn name(&self) -> &'static str {
        "split watcher"
    }

    fn step(&mut self) -> Step {
        let probe = self.split.probe.lock().take();
        if let Some((device, id)) = probe {
            let answered = self.path.probe(device, id, &mut AlignedBuf::zeroed(PAGE_SIZE));
            self.split.router.probed(device, answered, self.split.clock.now());
            return Step::Worked;
        }
        let busy = self.split.look_for_overdue() | self.split.active.swap(false, Ordering::Relaxed);
        let was_busy = std::mem::replace(&mut self.seen, busy);
        if busy || was_busy { Step::IdleFor(WATCH) } else { Step::Idle }
    }

    fn wake_event(&self) -> Arc<Event> {
        self.split.watch.clone()
    }
}
