use super::*;

fn commit(ids: &Ids) -> TxnId {
    let id = ids.begin();
    let _order = ids.order.lock();
    let csn = ids.number();
    ids.committed(id, csn);
    id
}

#[test]
fn behind_a_long_reader_nothing_is_settled_and_no_look_passes_over_it_again() {
    let ids = Ids::new(1);
    commit(&ids);
    let view = ids.open_view();
    assert!(ids.settle());
    assert_eq!(ids.known(), 0);
    let behind: Vec<TxnId> = (0..100_000).map(|_| commit(&ids)).collect();
    assert!(ids.wants_settling());
    assert!(!ids.settle() && !ids.wants_settling());
    assert_eq!(ids.known(), behind.len());
    assert!(behind.iter().all(|id| !ids.sees(view, *id)));
    let later = ids.open_view();
    assert!(behind.iter().all(|id| ids.sees(later, *id)));
    ids.close_view(view);
    assert!(ids.settle());
    assert_eq!(ids.known(), 0);
    assert!(ids.fates.read().capacity() < 10_000);
    assert!(behind.iter().all(|id| ids.sees(later, *id)));
}

#[test]
fn one_that_is_active_is_remembered_until_no_view_doubts_it() {
    let ids = Ids::new(1);
    let (active, undone) = (ids.begin(), ids.begin());
    commit(&ids);
    ids.rolled_back(undone);
    assert!(ids.settle());
    assert_eq!(ids.known(), 1);
    let view = ids.open_view();
    assert!(ids.is_active(active) && !ids.sees(view, active));
    ids.rolled_back(active);
    ids.settle();
    assert!(!ids.sees(view, active) && !ids.is_active(active));
    ids.close_view(view);
    assert!(ids.settle());
    assert_eq!(ids.known(), 0);
}
