use crate::address::Tier;
use crate::limits::meter::{self, Reads};
use crate::memory::lower_tiers::{Below, Fetched, ReadError};
use crate::memory::pages::Pages;
use crate::memory::pool::scans::Stretch;
use crate::memory::pool::{Access, ScanDirection};
use crate::page::{PageId, SpaceId};
use crate::testing::{MemoryLog, world};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::yield_now;

const SPACE: SpaceId = SpaceId(20);
const COUNT: u32 = 4;

/// A store that answers when it may.
#[derive(Default)]
struct Slow {
    asked: AtomicBool,
    may: AtomicBool,
    again: AtomicU64,
}

impl Below for Slow {
    fn fetch(&self, _: PageId, image: &mut [u8]) -> Result<Fetched, ReadError> {
        self.asked.store(true, Ordering::SeqCst);
        while !self.may.load(Ordering::SeqCst) {
            yield_now();
        }
        image.fill(0);
        Ok(Fetched { from: Tier::Object, first_change: None })
    }
    fn fetch_again(&self, _: PageId) {
        self.again.fetch_add(1, Ordering::SeqCst);
    }
    fn stretch(&self, from: PageId, max: usize) -> Vec<Vec<PageId>> {
        vec![(from.page..).take(max).map(|page| PageId::new(SPACE, page)).collect()]
    }
    fn evicted(&self, _: PageId, _: &mut [u8], _: u8) {}
}

#[test]
fn what_a_scan_waits_for_pages_on_their_way_is_time_of_their_tier() {
    let below = Arc::new(Slow::default());
    let pages = Pages::new(world(), 64, below.clone(), Arc::new(MemoryLog::default()));
    let read_all = || {
        meter::take();
        (0..COUNT).for_each(|page| drop(pages.read(PageId::new(SPACE, page), Access::Scan).unwrap()));
        meter::take()
    };
    let waits = || pages.pool().counters.claim_waits.load(Ordering::SeqCst);
    let (first, prefetched) = std::thread::scope(|scope| {
        let prefetcher = scope.spawn(|| {
            pages.pool().prefetch(Stretch {
                from: PageId::new(SPACE, 0),
                count: COUNT,
                way: ScanDirection::Up,
            });
            meter::take()
        });
        while !below.asked.load(Ordering::SeqCst) {
            yield_now();
        }
        let reader = scope.spawn(read_all);
        while waits() == 0 {
            yield_now();
        }
        below.may.store(true, Ordering::SeqCst);
        (reader.join().unwrap(), prefetcher.join().unwrap())
    });
    let (count, again) = (u64::from(COUNT), below.again.load(Ordering::SeqCst));
    assert!(
        (1..=count).contains(&again),
        "each of {count} pages that are waited for may be asked for again, once: {again}"
    );
    assert_eq!((first.pages, first.ahead), ([0; 5], [0, 0, 0, count, 0]));
    assert!(first.nanos[3] > 0);
    assert_eq!(first.nanos.iter().sum::<u64>(), first.nanos[3], "no other's time: {first:?}");
    // A prefetcher has read no pages, and spends time.
    assert_eq!((prefetched.pages, prefetched.ahead), ([0; 5], [0; 5]));
    assert!(prefetched.nanos[3] > 0);
    assert_eq!(read_all(), Reads { pages: [count, 0, 0, 0, 0], ..Reads::default() });
    let seen = pages.pool().reads_by_space(&[SPACE])[&SPACE];
    assert_eq!((seen.memory, seen.object, seen.ahead), (count, count, count));
    assert_eq!(pages.pool().hits(), count);
}
