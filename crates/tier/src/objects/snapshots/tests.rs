use super::*;
use crate::page::SpaceId;
use std::sync::atomic::Ordering;
use terrace_sim::SimWorld;

fn key(lineage: u128, epoch: u32, sequence: u64) -> ObjectKey {
    ObjectKey { lineage, space: SpaceId(16), block: 0, epoch, sequence }
}

fn snapshot(id: u128, epoch: u32, sequence: u64) -> Snapshot {
    Snapshot { id, lineage: 1, epoch, sequence, made_ms: 5 }
}

#[test]
fn a_boundary_names_what_was_put_up_to_it_and_nothing_later() {
    let one = snapshot(7, 3, 10);
    for (epoch, sequence, named) in
        [(1, 99, true), (3, 1, true), (3, 10, true), (3, 11, false), (4, 1, false)]
    {
        assert_eq!(one.names(&key(1, epoch, sequence)), named, "{epoch}-{sequence}");
    }
    assert!(one.names(&key(2, 9, 99)), "objects of a former lineage are not put any more");
}

#[test]
fn a_registry_is_read_as_it_was_written_and_garbage_is_refused() {
    let registry = Registry { snapshots: vec![snapshot(7, 3, 10), snapshot(8, 4, 2)], lineages: vec![5, 6] };
    let bytes = registry.encode();
    assert_eq!(Registry::decode(&bytes), Ok(registry));
    assert_eq!(Registry::decode(&Registry::default().encode()), Ok(Registry::default()));
    for i in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[i] ^= 1;
        assert!(Registry::decode(&bad).is_err(), "a flipped bit in byte {i} is not noticed");
        assert!(Registry::decode(&bytes[..i]).is_err());
    }
}

#[test]
fn changes_of_several_at_once_are_all_recorded_whatever_replies_are_lost() {
    for seed in 0..100 {
        let store = SimWorld::new(seed).store("store");
        store.faults.unknown.store(3, Ordering::SeqCst);
        let all: Vec<Arc<Snapshots>> = (0..3).map(|_| Arc::new(Snapshots::new(store.clone()))).collect();
        let mut recorded = Vec::new();
        for id in 0..9u128 {
            if all[id as usize % 3].add(snapshot(id, 1, id as u64)).is_ok() {
                recorded.push(id);
            }
        }
        // After an error the snapshot may be gone all the same.
        let removed = remove(&*store, 0);
        recorded.retain(|id| *id != 0);
        store.faults.unknown.store(0, Ordering::SeqCst);
        store.land_late_puts();
        let found = read(&*store).unwrap().0;
        let has = |id: &u128| found.snapshots.iter().any(|one| one.id == *id);
        assert!(recorded.iter().all(has), "seed {seed}: {recorded:?} were recorded, {found:?} are found");
        assert!(removed.is_err() || !has(&0), "seed {seed}: a removed snapshot is there again");
    }
}

#[test]
fn a_list_read_before_a_snapshot_was_added_does_not_replace_the_newer_one() {
    let store = SimWorld::new(1).store("store");
    let snapshots = Arc::new(Snapshots::new(store.clone()));
    assert!(snapshots.name(&key(1, 1, 1)), "what is not known is taken for named");
    snapshots.load().unwrap();
    assert!(!snapshots.name(&key(1, 1, 1)));
    snapshots.add(snapshot(7, 1, 4)).unwrap();
    assert!(snapshots.name(&key(1, 1, 4)) && !snapshots.name(&key(1, 1, 5)));
    remove(&*store, 7).unwrap();
    assert!(snapshots.name(&key(1, 1, 4)), "until it is read again");
    snapshots.refresh().unwrap();
    assert!(!snapshots.name(&key(1, 1, 4)));
    store.flip(KEY, 20, 1);
    let corrupt = snapshots.refresh().unwrap_err();
    assert!(corrupt.to_string().contains("is corrupt"), "{corrupt}");
}

#[test]
fn a_full_registry_refuses_one_more() {
    let store = SimWorld::new(1).store("store");
    let snapshots = Arc::new(Snapshots::new(store));
    for id in 0..SNAPSHOTS_MAX as u128 {
        snapshots.add(snapshot(id, 1, 1)).unwrap();
    }
    let full = snapshots.add(snapshot(9999, 1, 1)).unwrap_err();
    assert!(matches!(full, SnapshotError::Full { .. }), "{full}");
    snapshots.remove(3).unwrap();
    snapshots.add(snapshot(9999, 1, 1)).unwrap();
}
