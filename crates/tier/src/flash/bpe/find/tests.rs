//! Several pages at once, on a simulated disk and on one where something happens while a batch is under way.

use super::*;
use crate::flash::bpe::tests::{SLOTS, evict, image, page, run, settings};
use crate::page::PAGE_SIZE;
use crate::testing::odd_disk::OddDisk;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::disk::Class;
use terrace_sim::SimWorld;

/// Looks for these versions of pages `0..`; those that are found must be the images asked for.
fn found(bpe: &Bpe, versions: &[u64]) -> Vec<bool> {
    let images: Vec<_> = (0..).zip(versions).map(|(n, version)| image(page(n), *version)).collect();
    let wanted: Vec<(PageId, Tag)> = (0..).zip(&images).map(|(n, (_, tag))| (page(n), *tag)).collect();
    let mut bufs = vec![vec![0; PAGE_SIZE]; versions.len()];
    let found = bpe.find_many(&wanted, &mut bufs.iter_mut().map(|buf| &mut buf[..]).collect::<Vec<_>>());
    for (n, (buf, (image, _))) in bufs.iter().zip(&images).enumerate() {
        assert!(!found[n] || buf == image, "page {n} is not the image asked for");
    }
    found
}

#[test]
fn several_pages_are_one_batch_of_reads_and_each_has_its_own_answer() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let bpe = Bpe::open(&*disk, settings(SLOTS));
    (0..4).for_each(|n| _ = evict(&bpe, page(n), 0));
    run(&bpe);
    evict(&bpe, page(5), 0);
    // On flash, stale there, on flash, on flash, absent, queued.
    assert_eq!(found(&bpe, &[0, 1, 0, 0, 0, 0]), [true, false, true, true, false, true]);
    assert_eq!(disk.requests(Class::BpeRead), 1);
    let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &bpe.counters;
    assert_eq!(
        [&counters.hits, &counters.queue_hits, &counters.stale, &counters.misses].map(get),
        [4, 1, 1, 0]
    );
    assert!(!bpe.seems_to_have(page(1)), "what is stale is not looked at again");
    assert_eq!(found(&bpe, &[0, 1, 0, 0]), [true, false, true, true]);
    assert_eq!(found(&bpe, &[]), [false; 0]);
    bpe.check_invariants();
}

#[test]
fn a_page_whose_fingerprint_another_has_is_found_behind_it() {
    let sim = SimWorld::new(1);
    let bpe = Bpe::open(&*sim.disk("flash"), settings(SLOTS));
    (0..2).for_each(|n| _ = evict(&bpe, page(n), 0));
    run(&bpe);
    let slot = bpe.state.lock().core.index.matches(mark_of(page(0)))[0];
    // The next page that comes is in another slot, and its entry has the first one's fingerprint.
    evict(&bpe, page(7), 0);
    run(&bpe);
    {
        let mut state = bpe.state.lock();
        let other = state.core.index.matches(mark_of(page(7)))[0];
        state.core.index.remove(slot);
        state.core.index.remove(other);
        let again = [mark_of(page(0)); 2].map(|mark| state.core.index.fill(mark, 0).unwrap());
        again.iter().for_each(|slot| state.core.index.settle(*slot));
        assert_eq!(again, [other, slot], "the one that it is not is met first");
    }
    assert_eq!(found(&bpe, &[0, 0]), [true, true]);
    assert_eq!(bpe.counters.false_matches.load(Ordering::Relaxed), 1);
    bpe.check_invariants();
}

#[test]
fn an_error_of_the_device_is_a_miss_of_the_pages_it_struck_and_counts_once() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let bpe = Bpe::open(&*disk, settings(SLOTS));
    (0..14).for_each(|n| _ = evict(&bpe, page(n), 0));
    run(&bpe);
    disk.faults().read_errors.store(true, Ordering::SeqCst);
    assert_eq!(found(&bpe, &[0; 12]), [false; 12]);
    disk.faults().read_errors.store(false, Ordering::SeqCst);
    assert!(bpe.status().off.is_none(), "twelve pages, but one fault");
    assert_eq!(bpe.counters.errors.load(Ordering::Relaxed), 1);
    assert_eq!(found(&bpe, &[0; 14])[11..], [false, true, true]);
    bpe.check_invariants();
}

#[test]
fn a_page_that_is_flushed_while_its_batch_is_under_way_is_not_found_again() {
    let sim = SimWorld::new(1);
    let disk = OddDisk::new(sim.disk("flash"));
    let bpe = Arc::new(Bpe::open(&disk, settings(SLOTS)));
    (0..3).for_each(|n| _ = evict(&bpe, page(n), 0));
    run(&bpe);
    let inside = bpe.clone();
    // Its slot goes to another page, whose image lands before the batch is read.
    disk.once(move || {
        inside.invalidate(page(1));
        evict(&inside, page(20), 0);
        run(&inside);
    });
    assert_eq!(found(&bpe, &[0, 0, 0]), [true, false, true]);
    assert!(!bpe.seems_to_have(page(1)) && bpe.seems_to_have(page(20)));
    bpe.check_invariants();
}
