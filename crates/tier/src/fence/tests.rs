use super::*;
use std::sync::atomic::Ordering;
use terrace_io::random::Random;
use terrace_sim::{SimStore, SimWorld};

fn writer(epoch: u32) -> Writer {
    Writer { instance: 1, lineage: 2, epoch, nonce: 100 + u64::from(epoch) }
}

fn fence(store: &Arc<SimStore>, writer: Writer) -> Fence {
    Fence::new(store.clone(), writer, false)
}

fn store() -> Arc<SimStore> {
    SimWorld::new(1).store("store")
}

#[test]
fn each_open_takes_the_store_from_the_one_before() {
    let store = store();
    let first = fence(&store, writer(1));
    first.take().unwrap();
    first.check().unwrap();
    let second = fence(&store, writer(2));
    second.take().unwrap();
    let error = first.check().unwrap_err();
    assert!(matches!(error, FenceError::Fenced { found: 2, mine: 1, .. }), "{error}");
    assert!(first.take().is_err() && first.lost().is_some(), "and it stays fenced");
    second.check().unwrap();
}

#[test]
fn an_older_writer_cannot_take_it_back() {
    let store = store();
    fence(&store, writer(5)).take().unwrap();
    assert!(matches!(fence(&store, writer(4)).take(), Err(FenceError::Fenced { .. })));
    let copy = Writer { nonce: 7, ..writer(5) };
    assert!(matches!(fence(&store, copy).take(), Err(FenceError::Fenced { .. })), "a copy of the volume");
}

#[test]
fn a_wrong_bucket_is_refused_with_a_sentence() {
    let store = store();
    fence(&store, writer(1)).take().unwrap();
    let stranger = fence(&store, Writer { instance: 9, ..writer(2) }).take().unwrap_err();
    assert!(stranger.to_string().contains("is it the right bucket"), "{stranger}");
    let clone = fence(&store, Writer { lineage: 9, ..writer(2) }).take().unwrap_err();
    assert!(clone.to_string().contains("needs a prefix of its own"), "{clone}");
    let other = SimWorld::new(1).store("other");
    let lost = Fence::new(other.clone(), writer(2), true).take().unwrap_err();
    assert!(lost.to_string().contains("holds nothing of this instance"), "{lost}");
    assert!(other.keys().is_empty(), "nothing was written to the wrong bucket");
    fence(&store, writer(2)).take().unwrap();
}

#[test]
fn a_dead_store_is_taken_when_it_returns() {
    let store = store();
    let fence = fence(&store, writer(1));
    store.faults.dead.store(true, Ordering::SeqCst);
    assert!(!fence.take().unwrap_err().is_final());
    store.faults.dead.store(false, Ordering::SeqCst);
    fence.take().unwrap();
    store.faults.dead.store(true, Ordering::SeqCst);
    assert!(!fence.check().unwrap_err().is_final(), "no answer is not a fence");
    store.faults.dead.store(false, Ordering::SeqCst);
    fence.check().unwrap();
}

#[test]
fn of_two_copies_at_most_one_holds_the_store_whatever_replies_are_lost() {
    for seed in 0..300 {
        let store = SimWorld::new(seed).store("store");
        store.faults.unknown.store(3, Ordering::SeqCst);
        store.faults.unavailable.store(6, Ordering::SeqCst);
        let writers = [writer(1), Writer { nonce: 9, ..writer(1) }, writer(2)];
        let fences: Vec<Fence> = writers.iter().map(|w| fence(&store, *w)).collect();
        let random = terrace_sim::SimWorld::new(seed + 1000).random;
        for _ in 0..30 {
            let fence = &fences[random.below(3) as usize];
            _ = if random.one_in(2) { fence.take() } else { fence.check() };
        }
        store.land_late_puts();
        store.faults.unknown.store(0, Ordering::SeqCst);
        store.faults.unavailable.store(0, Ordering::SeqCst);
        fences.iter().for_each(|f| _ = f.check()); // whoever had not taken it yet tries now
        let holding = fences.iter().filter(|f| f.check().is_ok()).count();
        assert!(holding <= 1, "seed {seed}: {holding} hold the store");
    }
}

#[test]
fn garbage_is_corrupt_and_final() {
    let store = store();
    fence(&store, writer(1)).take().unwrap();
    store.flip(KEY, 20, 1);
    let error = fence(&store, writer(2)).take().unwrap_err();
    assert!(matches!(error, FenceError::Corrupt { .. }) && error.is_final());
    for len in 0..80 {
        assert!(Writer::decode(&vec![7; len]).is_err());
    }
}
