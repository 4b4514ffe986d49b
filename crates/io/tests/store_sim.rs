//! The simulated store keeps the contract, and bends it only where faults are switched on.

mod store_contract;

use std::sync::atomic::Ordering;
use terrace_io::store::{Bytes, ObjectStore, Purpose, StoreError, Version};
use terrace_sim::SimWorld;

#[test]
fn the_simulated_store_keeps_the_contract() {
    let sim = SimWorld::new(1);
    let store = sim.store("objects");
    store_contract::all(&*store);
    store_contract::one_of_many_wins(&*store);
}

#[test]
fn what_was_acknowledged_is_never_lost_whatever_else_happens() {
    let (mut unknown, mut late) = (0, 0);
    for seed in 0..100 {
        let sim = SimWorld::new(seed);
        let store = sim.store("objects");
        store.faults.unknown.store(3, Ordering::SeqCst);
        store.faults.unavailable.store(5, Ordering::SeqCst);
        store.faults.throttled.store(7, Ordering::SeqCst);
        let mut kept = Vec::new();
        let mut doubtful = Vec::new();
        for i in 0..30u8 {
            let key = format!("k/{i}");
            match store.put_if_absent(Purpose::Sink, &key, &[Bytes::from(vec![i; 10])]) {
                Ok(_) => kept.push((key, i)),
                Err(StoreError::Unknown { .. }) => doubtful.push(key),
                Err(StoreError::Unavailable { .. } | StoreError::Throttled { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        store.faults.unknown.store(0, Ordering::SeqCst);
        store.faults.unavailable.store(0, Ordering::SeqCst);
        store.faults.throttled.store(0, Ordering::SeqCst);
        unknown += doubtful.len();
        let before = doubtful.iter().filter(|key| store.keys().contains(key)).count();
        store.land_late_puts();
        late += doubtful.iter().filter(|key| store.keys().contains(key)).count() - before;
        for (key, i) in kept {
            assert_eq!(store.get(Purpose::Merge, &key).unwrap().0, [i; 10], "seed {seed}");
        }
    }
    assert!(unknown > 500 && late > 10, "the harness must bite: {unknown} unknown, {late} late");
}

#[test]
fn a_replacement_that_lands_late_is_one_of_the_version_that_it_was_meant_for() {
    let (mut landed, mut came_to_nothing) = (0, 0);
    for seed in 0..100 {
        let store = SimWorld::new(seed).store("objects");
        let put = |body: &[u8], expected: &Version| store.put_if_match(Purpose::Epoch, "e", body, expected);
        let first = store.put_if_absent(Purpose::Epoch, "e", &[Bytes::from_static(b"first")]).unwrap();
        store.faults.unknown.store(1, Ordering::SeqCst);
        assert!(matches!(put(b"late", &first), Err(StoreError::Unknown { .. })));
        store.faults.unknown.store(0, Ordering::SeqCst);
        let replaced = seed % 2 == 0 && put(b"second", &first).is_ok();
        let before = store.get(Purpose::Epoch, "e").unwrap().0;
        store.land_late_puts();
        let after = store.get(Purpose::Epoch, "e").unwrap().0;
        assert!(!replaced || after == b"second", "seed {seed}");
        landed += u32::from(before != after);
        came_to_nothing += u32::from(replaced);
    }
    assert!(landed > 5 && came_to_nothing > 10, "{landed} landed late, {came_to_nothing} came to nothing");
}
