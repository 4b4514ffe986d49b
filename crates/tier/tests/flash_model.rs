//! Flash against a model: whatever happens, only the image that the map names is served.
//!
//! The same runs must find the bugs that are planted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::disk::{Class, Disk};
use terrace_io::random::Random;
use terrace_io::sched::Worker;
use terrace_sim::{SimDisk, SimWorld};
use terrace_tier::flash::Leaving;
use terrace_tier::flash::admission::filter::Rule;
use terrace_tier::flash::bpe::{Bpe, BpeSettings, BpeWorker, Evicted, Lookup, chunk};
use terrace_tier::page::{self, PAGE_SIZE, PageId, PageKind, SpaceId, Tag};

fn page(n: u32) -> PageId {
    PageId::new(SpaceId(20), n)
}

/// The `version`th image of a page.
fn image(id: PageId, version: u64) -> (Vec<u8>, Tag) {
    let mut bytes = vec![0; PAGE_SIZE];
    page::format(&mut bytes, id, PageKind::Leaf, 0);
    page::set_lsn(&mut bytes, version + 1);
    bytes[5000] = version as u8;
    let tag = page::seal(&mut bytes);
    (bytes, tag)
}

struct Flash {
    bpe: Arc<Bpe>,
    worker: BpeWorker,
}

impl Flash {
    fn open(disk: &SimDisk, slots: u64) -> Flash {
        // What is admitted must not matter.
        let admission = Rule::NAMES[slots as usize % Rule::NAMES.len()].1;
        let flash_bytes = slots * PAGE_SIZE as u64;
        let settings = BpeSettings { owner: 1, flash_bytes, queue_pages: 16, admission, warm: true };
        let bpe = Arc::new(Bpe::open(disk, settings));
        Flash { worker: BpeWorker(bpe.clone()), bpe }
    }
    /// The image that it serves for `version`.
    fn find(&self, id: PageId, version: u64) -> Option<Vec<u8>> {
        let mut buf = vec![0; PAGE_SIZE];
        (self.bpe.find(id, image(id, version).1, &mut buf) == Lookup::Hit).then_some(buf)
    }
    /// The same of several pages at once.
    fn find_many(&self, wanted: &[(PageId, u64)]) -> Vec<Option<Vec<u8>>> {
        let pages: Vec<(PageId, Tag)> =
            wanted.iter().map(|(id, version)| (*id, image(*id, *version).1)).collect();
        let mut bufs = vec![vec![0; PAGE_SIZE]; wanted.len()];
        let mut images: Vec<&mut [u8]> = bufs.iter_mut().map(|buf| &mut buf[..]).collect();
        let found = self.bpe.find_many(&pages, &mut images);
        assert_eq!(found.len(), wanted.len());
        bufs.into_iter().zip(found).map(|(buf, found)| found.then_some(buf)).collect()
    }
}

#[derive(Default)]
struct Hits {
    all: u64,
    /// With others.
    together: u64,
    /// Of images that an earlier start wrote.
    warm: u64,
    /// Sizes that came into force.
    resized: u64,
}

/// A random run; `Err` names an image that was served wrongly.
fn one_run(seed: u64) -> Result<Hits, String> {
    let sim = SimWorld::new(seed);
    let random = sim.random.clone();
    let disk = sim.disk("flash");
    let mut slots = 1 + random.below(40);
    let mut flash = Flash::open(&disk, slots);
    let mut current: HashMap<PageId, u64> = HashMap::new();
    let (mut hits, mut old_flash) = (Hits::default(), None);
    for _ in 0..400 {
        let id = page(random.below(60) as u32);
        let version = *current.entry(id).or_insert(0);
        match random.below(100) {
            // A clean page leaves memory.
            0..30 => _ = flash.bpe.evicted(id, &image(id, version).0, Leaving::used(random.below(4) as u8)),
            // It was changed and flushed.
            30..50 => {
                current.insert(id, version + 1);
                // By one policy or the other.
                if version % 3 == 2 {
                    flash.bpe.rewrite(id, &image(id, version + 1).0);
                } else {
                    flash.bpe.invalidate(id);
                }
            }
            // One page is wanted, or several.
            look @ 50..85 => {
                let count = if look < 70 { 1 } else { 2 + random.below(6) as u32 };
                let wanted: Vec<(PageId, u64)> = (id.page..id.page + count)
                    .map(|n| (page(n), current.get(&page(n)).copied().unwrap_or(0)))
                    .collect();
                let served = match count {
                    1 => vec![flash.find(id, version)],
                    _ => flash.find_many(&wanted),
                };
                for ((id, version), served) in wanted.into_iter().zip(served) {
                    let Some(served) = served else { continue };
                    hits.all += 1;
                    hits.together += u64::from(count > 1);
                    hits.warm += u64::from(flash.bpe.counters.fills.load(Ordering::Relaxed) == 0);
                    if served != image(id, version).0 {
                        return Err(format!("page {id} is served as it was"));
                    }
                }
            }
            85..94 => _ = flash.worker.step(),
            // More flash, or less: given up now and then, and refused once flash is off.
            94 => {
                let (other, patience) = (1 + random.below(40), random.below(30));
                let mut looks = 0;
                let (bpe, worker) = (flash.bpe.clone(), &mut flash.worker);
                let resized = bpe.resize(other * PAGE_SIZE as u64, &mut |_| {
                    looks += 1;
                    worker.step();
                    looks < patience
                });
                hits.resized += u64::from(resized.is_ok());
                slots = if resized.is_ok() { other } else { slots };
                let status = bpe.status();
                assert!(status.off.is_some() || status.pages_max <= slots, "{status:?}: {slots}");
            }
            95 => disk.faults().write_errors.store(random.one_in(2), Ordering::SeqCst),
            96 => disk.faults().read_errors.store(random.one_in(3), Ordering::SeqCst),
            97 => old_flash = Some(disk.snapshot()),
            // The machine loses power, or shuts down cleanly; sometimes an old flash directory is restored.
            98 => {
                let orderly = random.one_in(2);
                if orderly {
                    flash.bpe.save();
                }
                drop(flash);
                if !orderly {
                    disk.crash();
                }
                if let (Some(old), true) = (&old_flash, random.one_in(2)) {
                    disk.restore(old);
                }
                flash = Flash::open(&disk, slots);
            }
            _ => {
                if let Ok(file) = disk.open(chunk::FILE) {
                    _ = file.sync(Class::BpeFill);
                }
                disk.flip(chunk::FILE, random.below(slots * PAGE_SIZE as u64), 1);
            }
        }
        flash.bpe.check_invariants();
    }
    Ok(hits)
}

/// A device that acknowledges a write and loses it still has the older image of the very same page,
/// intact.
fn lost_write_is_served() -> bool {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let mut flash = Flash::open(&disk, 1);
    let evict = |flash: &mut Flash, version| {
        assert_eq!(flash.bpe.evicted(page(1), &image(page(1), version).0, Leaving::used(2)), Evicted::Queued);
        flash.worker.step();
    };
    evict(&mut flash, 0);
    assert!(flash.find(page(1), 0).is_some());
    flash.bpe.invalidate(page(1));
    evict(&mut flash, 1);
    assert!(flash.find(page(1), 1).is_some());
    let old = terrace_io::AlignedBuf::from_slice(&image(page(1), 0).0);
    disk.open(chunk::FILE).unwrap().write(Class::BpeFill, 0, &old).unwrap();
    flash.find(page(1), 1).is_some()
}

mod sound {
    use super::*;

    #[test]
    fn only_the_current_image_is_ever_served() {
        let runs = (0..300).map(|seed| one_run(seed).unwrap_or_else(|e| panic!("seed {seed}: {e}")));
        let (mut all, mut together, mut warm, mut resized) = (0, 0, 0, 0);
        for hits in runs {
            (all, together) = (all + hits.all, together + hits.together);
            (warm, resized) = (warm + hits.warm, resized + hits.resized);
        }
        assert!(together > 2000, "only {together} hits of several: this proves little");
        assert!(all > 2000 && warm > 100, "only {all} hits, {warm} after a restart: this proves little");
        assert!(resized > 500, "only {resized} sizes: this proves little");
    }

    #[test]
    fn a_lost_write_is_not_served() {
        assert!(!lost_write_is_served());
    }
}

mod planted {
    use super::*;
    use terrace_tier::planted::{FILL_AFTER_INVALIDATION, FLASH_TAG_IGNORED};

    #[test]
    #[ignore = "plants a bug in the whole process: make planted"]
    fn each_planted_bug_is_found_within_twenty_seeds() {
        assert!(!lost_write_is_served());
        FLASH_TAG_IGNORED.set(true);
        assert!(lost_write_is_served(), "a checksum proves that an image is intact, not that it is current");
        FLASH_TAG_IGNORED.set(false);

        assert!((0..20).all(|seed| one_run(seed).is_ok()));
        FILL_AFTER_INVALIDATION.set(true);
        let bitten = (0..20).find(|seed| one_run(*seed).is_err());
        FILL_AFTER_INVALIDATION.set(false);
        assert!(bitten.is_some(), "a fill that lands after its invalidation was not found");
    }
}
