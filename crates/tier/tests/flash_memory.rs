//! What the flash costs in memory, counted by the allocator: at most 16 bytes for each page's room, ghost
//! list and hash table included; and a cache of blocks takes the memory that its settings give. CloudJump III §4.1.3 has 46; DESIGN §9.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use terrace_sim::SimWorld;
use terrace_tier::flash::admission::filter::Rule;
use terrace_tier::flash::blocks::{BlockCache, BlockKey, BlockSettings, Offered};
use terrace_tier::flash::bpe::index::Index;
use terrace_tier::flash::bpe::{Bpe, BpeSettings, bytes_per_page, filter_of};
use terrace_tier::page::{PAGE_SIZE, PageId, SpaceId};

struct Counting;

static IN_USE: AtomicI64 = AtomicI64::new(0);

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: by the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: by the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: by the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FLASH: u64 = 64 << 30;
const PAGES: u64 = FLASH / PAGE_SIZE as u64;

#[test]
fn a_page_of_flash_costs_at_most_16_bytes_of_memory() {
    // One after the other: all of them count in the same allocator.
    [Rule::Ghost, Rule::GhostWhole, Rule::GhostTinyLfu].into_iter().for_each(costs_at_most_16_bytes);
    [Rule::Ghost, Rule::GhostWhole, Rule::GhostTinyLfu].into_iter().for_each(blocks_cost_what_is_said);
}

fn costs_at_most_16_bytes(rule: Rule) {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let before = IN_USE.load(Ordering::SeqCst);
    let settings =
        BpeSettings { owner: 1, flash_bytes: FLASH, queue_pages: 256, admission: rule, warm: true };
    let bpe = Bpe::open(&*disk, settings);
    let opened = IN_USE.load(Ordering::SeqCst) - before;
    drop(bpe);

    // The same structures, full: with as many pages and as many ghosts as there is room for.
    let before = IN_USE.load(Ordering::SeqCst);
    let mut index = Index::new(PAGES as u32);
    let mut filter = filter_of(rule, PAGES as usize);
    for n in 0..2 * PAGES {
        let mark = (n as u32).wrapping_mul(0x9E37_79B1);
        let slot = index.fill(mark, 0).expect("no slot is busy");
        index.settle(slot);
        filter.remember(PageId::new(SpaceId(20), n as u32));
    }
    assert_eq!(u64::from(index.in_use()), PAGES);
    let full = IN_USE.load(Ordering::SeqCst) - before;

    let per_page = |bytes: i64| bytes as f64 / PAGES as f64;
    println!(
        "64 GiB of flash, {rule:?}: {:.2} bytes a page opened, {:.2} full",
        per_page(opened),
        per_page(full)
    );
    assert!(per_page(opened) <= 16.0 && per_page(full) <= 16.0);
    assert!(per_page(full) <= bytes_per_page(rule) as f64, "the ledger counts too little");
}

fn blocks_cost_what_is_said(rule: Rule) {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let settings = BlockSettings { admission: rule, ..BlockSettings::new(1, FLASH) };
    let before = IN_USE.load(Ordering::SeqCst);
    let cache = BlockCache::<BlockKey>::open(&*disk, settings);
    let opened = IN_USE.load(Ordering::SeqCst) - before;
    // Its queue is full, and no worker empties it.
    let value = vec![1; 60_000];
    let put = |n| cache.evicted(BlockKey { object: 1, block: n }, 0, &value, 2);
    let queued = (0..).take_while(|n| put(*n) == Offered::Queued).count();
    let full = IN_USE.load(Ordering::SeqCst) - before - value.len() as i64;
    println!(
        "64 GiB of flash for blocks, {rule:?}: {opened} bytes opened, {full} with {queued} values queued"
    );
    assert!(queued > 400, "only {queued} values are queued");
    let said = settings.memory_bytes() as i64;
    assert!(full <= said && full > said * 3 / 4, "{full} bytes are used, {said} are said");
}
