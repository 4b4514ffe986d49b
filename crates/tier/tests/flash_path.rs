//! Memory, flash, volume and objects together: where a page is found after its eviction from memory.

mod rig;

use rig::{Rig, fill, page_of};
use std::sync::atomic::Ordering;
use terrace_io::clock::Clock as _;
use terrace_io::sched::Sched as _;
use terrace_tier::ablation::Mechanism;
use terrace_tier::flash::Leaving;
use terrace_tier::flash::bpe::BpeWorker;
use terrace_tier::memory::lower_tiers::Below as _;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::PageId;
use terrace_tier::read::ReadPath;

fn page(n: u32) -> PageId {
    page_of(n / 128, n % 128)
}

fn read(rig: &Rig, n: u32, access: Access) {
    drop(rig.run.pages.read(page(n), access).unwrap());
}

/// Fills flash until only reuse is admitted, with pages of a block that no test reads.
fn fill_up(rig: &mut Rig, slots: u64) {
    for n in 0..slots {
        let id = page_of(9 + n as u32 / 128, n as u32 % 128);
        let (image, _) = rig::image(id, 1);
        rig.run.bpe.evicted(id, &image, Leaving::used(1));
        fill(&mut rig.run);
    }
    let pages = rig.run.bpe.status().pages;
    assert!(pages >= slots / 16 * 15, "{pages} of {slots}");
}

/// How many reads below memory found their page on flash, on the volume, in an object.
fn found(rig: &Rig) -> [u64; 3] {
    let c = &rig.run.path.counters;
    [&c.flash, &c.volume, &c.object].map(|n| n.load(Ordering::Relaxed))
}

#[test]
fn pages_reused_in_memory_are_on_flash_after_eviction_and_scanned_ones_are_not() {
    let mut rig = Rig::with_flash(1, 400, 400);
    fill_up(&mut rig, 400);
    (0..300).for_each(|n| assert!(rig.flush(page(n))));
    let before_fills = rig.run.bpe.counters.fills.load(Ordering::Relaxed);
    for n in 0..90 {
        // Each is used again after others have come.
        (0..3).for_each(|ago| read(&rig, u32::saturating_sub(n, ago), Access::Normal));
        fill(&mut rig.run);
    }
    for n in 90..300 {
        read(&rig, n, if n % 2 == 0 { Access::Scan } else { Access::Normal });
        fill(&mut rig.run);
    }
    let fills = rig.run.bpe.counters.fills.load(Ordering::Relaxed) - before_fills;
    assert!((40..=90).contains(&fills), "{fills} of 90 pages that were used again are on flash");
    let before = found(&rig);
    (0..88).for_each(|n| read(&rig, n, Access::Normal)); // all that were used thrice
    let now = found(&rig);
    assert!(now[0] - before[0] >= 40, "they come from flash");
    assert_eq!(now[1], before[1], "and none from the volume: the others had stayed in memory");
}

#[test]
fn a_page_read_again_soon_is_admitted_to_flash_the_second_time() {
    let mut rig = Rig::with_flash(1, 400, 160);
    fill_up(&mut rig, 160);
    (0..60).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.sinker.sink_all().unwrap();
    // What the three rounds found on flash and in objects.
    let rounds = [0; 3].map(|_| {
        let before = found(&rig);
        for n in 0..60 {
            read(&rig, n, Access::Normal);
            fill(&mut rig.run);
        }
        let now = found(&rig);
        [now[0] - before[0], now[2] - before[2]]
    });
    assert_eq!(rounds[0], [0, 60]);
    assert!(rounds[1][1] >= 30, "the first time only identifiers were kept: {rounds:?}");
    assert!(rounds[2][0] >= 30 && rounds[2][1] < 30, "the second time images: {rounds:?}");
}

/// Flash is full, and misses wait for the store. The first half of the pages is only in an object, the others have slots.
fn half_sunk() -> Rig {
    let mut rig = Rig::with_flash(1, 400, 160);
    fill_up(&mut rig, 160);
    (0..64).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.sinker.sink_block(page(0).block()).unwrap();
    (32..64).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.misses.in_store(|| rig.sim.clock.advance(30_000_000));
    rig
}

/// All of them leave memory. How many of each half are on flash then, and how many were left to the volume.
fn leave(rig: &mut Rig, path: &ReadPath) -> (usize, usize, u64) {
    let before = rig.run.bpe.counters.near.load(Ordering::Relaxed);
    for n in 0..64 {
        let (mut bytes, _) = rig::image(page(n), rig.version(page(n)).unwrap());
        path.evicted(page(n), &mut bytes, 3);
        fill(&mut rig.run);
    }
    let on_flash =
        |range: std::ops::Range<u32>| range.filter(|n| rig.run.bpe.seems_to_have(page(*n))).count();
    let near = rig.run.bpe.counters.near.load(Ordering::Relaxed) - before;
    (on_flash(0..32), on_flash(32..64), near)
}

#[test]
fn pages_on_the_volume_are_not_admitted_to_flash_while_misses_wait_for_the_store() {
    let mut rig = half_sunk();
    let path = rig.run.path.clone();
    assert_eq!(leave(&mut rig, &path), (32, 0, 32));
    rig.run.misses.on_volume(|| rig.sim.clock.advance(40_000_000));
    assert_eq!(leave(&mut rig, &path), (32, 32, 0), "now it is the volume that is waited for");
}

#[test]
fn without_flash_for_the_store_pages_on_the_volume_are_admitted_like_others() {
    let mut rig = half_sunk();
    let path = rig.path_without(Mechanism::FlashForTheStore);
    assert_eq!(leave(&mut rig, &path), (32, 32, 0));
    rig.read_all();
    assert!(found(&rig)[0] >= 64);
}

#[test]
fn without_kept_copies_a_page_on_flash_is_rewritten_at_each_eviction() {
    let mut rig = Rig::with_flash(1, 400, 160);
    assert!(rig.flush(page(3)));
    rig.run.sinker.sink_all().unwrap();
    let leave = |rig: &mut Rig, path: &ReadPath, version: u64| {
        let (mut image, _) = rig::image(page(3), version);
        path.evicted(page(3), &mut image, 2);
        fill(&mut rig.run);
        assert!(rig.run.bpe.seems_to_have(page(3)));
        rig.run.bpe.counters.rewritten.load(Ordering::Relaxed)
    };
    let now = rig.version(page(3)).unwrap();
    let (kept, anew) = (rig.run.path.clone(), rig.path_without(Mechanism::KeptCopies));
    assert_eq!([leave(&mut rig, &kept, now), leave(&mut rig, &kept, now)], [0, 0]);
    assert_eq!([leave(&mut rig, &anew, now), leave(&mut rig, &anew, now)], [1, 2]);
    assert_eq!(leave(&mut rig, &anew, now + 1), 2, "one that is not current is not written");
    rig.read_all();
    assert!(found(&rig)[0] >= 1);
}

/// Pages are left to their slots when they leave memory; which of them were worth a copy is remembered until their block sinks.
#[test]
fn a_page_admitted_at_its_eviction_is_on_flash_when_its_block_has_sunk() {
    let mut rig = Rig::with_flash(1, 400, 160);
    fill_up(&mut rig, 160);
    (0..60).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.misses.in_store(|| rig.sim.clock.advance(30_000_000));
    let leave = |rig: &mut Rig, n: u32, uses: u8| {
        let (mut bytes, _) = rig::image(page(n), rig.version(page(n)).unwrap());
        rig.run.path.evicted(page(n), &mut bytes, uses);
        fill(&mut rig.run);
    };
    let on_flash = |rig: &Rig| (0..60).filter(|n| rig.run.bpe.seems_to_have(page(*n))).collect::<Vec<u32>>();
    let sink = |rig: &mut Rig| {
        rig.run.sinker.sink_block(page(0).block()).unwrap();
        fill(&mut rig.run);
    };
    // Twice and once.
    leave(&mut rig, 3, 2);
    leave(&mut rig, 4, 1);
    assert_eq!(on_flash(&rig), [0u32; 0], "flash has better use for its room");
    sink(&mut rig);
    assert_eq!(on_flash(&rig), [3]);
    // What flash had was used again, however little since it changed.
    assert!(rig.flush(page(3)) && rig.flush(page(4)));
    assert_eq!(on_flash(&rig), [0u32; 0]);
    leave(&mut rig, 3, 1);
    leave(&mut rig, 4, 1);
    sink(&mut rig);
    assert_eq!(on_flash(&rig), [3]);
    // What was so before is forgotten with the slot.
    assert!(rig.flush(page(3)));
    sink(&mut rig);
    assert_eq!(on_flash(&rig), [0u32; 0]);
}

#[test]
fn a_page_that_was_read_in_its_slot_is_on_flash_when_its_block_has_sunk() {
    let mut rig = Rig::with_flash(1, 400, 160);
    fill_up(&mut rig, 160);
    (0..60).for_each(|n| assert!(rig.flush(page(n))));
    for n in [3, 50] {
        rig.read(page(n)).unwrap();
    }
    rig.run.sinker.sink_block(page(0).block()).unwrap();
    fill(&mut rig.run);
    let on_flash: Vec<u32> = (0..60).filter(|n| rig.run.bpe.seems_to_have(page(*n))).collect();
    assert_eq!(on_flash, [3, 50]);
    let before = found(&rig);
    rig.read(page(3)).unwrap();
    assert_eq!(found(&rig)[0], before[0] + 1);
    // What was read before is forgotten with the slot.
    assert!(rig.flush(page(3)));
    rig.run.sinker.sink_block(page(0).block()).unwrap();
    assert!(!rig.run.bpe.seems_to_have(page(3)));
}

/// Sixteen may wait to be written.
#[test]
fn a_block_has_more_pages_for_flash_than_may_wait_to_be_written_and_none_is_dropped() {
    let mut rig = Rig::with_flash(1, 400, 160);
    fill_up(&mut rig, 160);
    (0..100).for_each(|n| assert!(rig.flush(page(n))));
    (0..100).for_each(|n| rig.read(page(n)).unwrap());
    let _filler = rig.sim.sched.spawn(Box::new(BpeWorker(rig.run.bpe.clone())));
    rig.run.sinker.sink_block(page(0).block()).unwrap();
    rig.sim.sched.run_some(100);
    let on_flash = (0..100).filter(|n| rig.run.bpe.seems_to_have(page(*n))).count();
    assert_eq!((on_flash, rig.run.bpe.counters.fill_dropped.load(Ordering::Relaxed)), (100, 0));
}

#[test]
fn stalled_flash_delays_a_sinking_block_only_once() {
    let mut rig = Rig::with_flash(1, 400, 160);
    fill_up(&mut rig, 160);
    (0..100).for_each(|n| assert!(rig.flush(page(n))));
    (0..100).for_each(|n| rig.read(page(n)).unwrap());
    let before = rig.sim.clock.now();
    rig.run.sinker.sink_block(page(0).block()).unwrap();
    let took = rig.sim.clock.now() - before;
    assert!((5_000_000..10_000_000).contains(&took), "{took} ns");
    assert!(rig.run.bpe.counters.fill_dropped.load(Ordering::Relaxed) >= 80);
}
