use super::*;

fn commit(ids: &Ids) -> TxnId {
    let id = ids.begin();
    let _order = ids.order.lock();
    let csn = ids.number();
    ids.committed(id, csn);
    id
}

#[test]
fn behind_a_long_reader_any_number_of_commits_is_a_few_entries() {
    let ids = Ids::new(1, Arc::default());
    commit(&ids);
    let view = ids.open_view();
    assert!(ids.settle());
    assert_eq!(ids.known(), 0);
    let active = ids.begin();
    let behind: Vec<TxnId> = (0..100_000)
        .map(|_| {
            ids.settle_if_late();
            assert!(ids.known() < 10_000);
            commit(&ids)
        })
        .collect();
    assert!(ids.wants_settling());
    assert!(ids.settle() && !ids.wants_settling() && !ids.settle());
    assert!(ids.known() < 4);
    assert!(ids.is_active(active) && !ids.sees(view, active));
    assert!(behind.iter().all(|id| !ids.sees(view, *id)));
    let later = ids.open_view();
    ids.rolled_back(active);
    assert!(behind.iter().all(|id| ids.sees(later, *id)));
    assert!(!ids.sees(later, active));
    ids.close_view(view);
    assert!(ids.settle());
    assert_eq!(ids.known(), 2, "the one that was rolled back after the later view was opened");
    assert!(ids.known.read().fates.capacity() < 20_000);
    assert!(!ids.sees(later, active));
    assert!(behind.iter().all(|id| ids.sees(later, *id)));
}

#[test]
fn one_that_is_active_is_remembered_until_no_view_doubts_it() {
    let ids = Ids::new(1, Arc::default());
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

#[test]
fn behind_a_long_reader_any_number_of_rollbacks_is_a_few_entries_and_it_sees_none() {
    let ids = Ids::new(1, Arc::default());
    let view = ids.open_view();
    let mut undone = Vec::new();
    for _ in 0..50_000 {
        commit(&ids);
        let id = ids.begin();
        ids.rolled_back(id);
        ids.settle_if_late();
        undone.push(id);
    }
    ids.settle();
    assert!(ids.known() < 4, "{}", ids.known());
    assert!(undone.iter().all(|id| !ids.sees(view, *id) && !ids.is_active(*id)));
    ids.close_view(view);
    ids.settle();
    assert_eq!(ids.known(), 0);
}
