use super::*;
use terrace_log::LogError;

fn log() -> Arc<dyn Redo> {
    Arc::new(terrace_tier::testing::MemoryLog::default())
}

fn commit(ids: &Ids) -> TxnId {
    let id = ids.begin();
    let _order = ids.order.lock();
    let csn = ids.number();
    ids.committed(id, csn, 0);
    id
}

#[test]
fn behind_a_long_reader_any_number_of_commits_is_a_few_entries() {
    let ids = Ids::new(1, Arc::default(), log());
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
fn an_active_transaction_is_remembered_until_every_view_knows_its_end() {
    let ids = Ids::new(1, Arc::default(), log());
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
    let ids = Ids::new(1, Arc::default(), log());
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

/// A log of which only the horizon counts; the test that needs it moves it.
#[derive(Default)]
struct Horizon(AtomicU64);

impl Redo for Horizon {
    fn reserve(
        self: Arc<Self>,
        bytes: u64,
        _: terrace_log::Urgency,
    ) -> Result<terrace_log::LogRoom, LogError> {
        Ok(terrace_log::LogRoom::new(self, bytes))
    }
    fn give_back(&self, _: u64) {}
    fn append(
        &self,
        _: &mut terrace_log::LogRoom,
        _: &[terrace_log::PageRedo<'_>],
        _: &mut dyn FnMut(terrace_log::LsnRange),
    ) -> terrace_log::LsnRange {
        unreachable!("nothing is appended")
    }
    fn durable(&self) -> Glsn {
        self.0.load(Ordering::Relaxed)
    }
    fn appended(&self) -> Glsn {
        Glsn::MAX
    }
    fn make_durable(&self, upto: Glsn) -> Result<(), LogError> {
        self.0.fetch_max(upto, Ordering::Relaxed);
        Ok(())
    }
}

fn commit_at(ids: &Ids, end: Glsn) -> (TxnId, u64) {
    let id = ids.begin();
    let _order = ids.order.lock();
    let csn = ids.number();
    ids.committed(id, csn, end);
    (id, csn)
}

#[test]
fn views_take_commits_in_their_order_as_the_horizon_passes_them() {
    let log = Arc::new(Horizon::default());
    let ids = Ids::new(1, Arc::default(), log.clone());
    ids.set_durable(true);
    let (one, number) = commit_at(&ids, 100);
    let (two, _) = commit_at(&ids, 200);
    // It is durable by itself, and not seen before those before it.
    let (decided, _) = commit_at(&ids, 50);
    let undone = ids.begin();
    ids.rolled_back(undone);
    assert_eq!(ids.unseen(), 4);
    let view = ids.open_view();
    assert!([one, two, decided, undone].iter().all(|id| !ids.sees(view, *id) && !ids.is_active(*id)));
    assert_eq!(ids.standing(one), Standing::Unseen(number));
    assert_eq!(ids.standing(undone), Standing::Seen, "nothing of it is left");
    assert_eq!(ids.seen_at(number), Some(100));
    log.make_durable(150).unwrap();
    let later = ids.open_view();
    assert!(ids.sees(later, one) && !ids.sees(later, two) && !ids.sees(later, decided));
    assert!(!ids.sees(view, one), "a view stays as it is");
    assert_eq!((ids.standing(one), ids.unseen()), (Standing::Seen, 3));
    // What is settled is only what is seen.
    ids.settle();
    assert!(matches!(ids.standing(two), Standing::Unseen(_)) && !ids.sees(later, two));
    ids.see_all().unwrap();
    assert_eq!(log.durable(), 200);
    let last = ids.open_view();
    assert!([one, two, decided].iter().all(|id| ids.sees(last, *id)) && !ids.sees(last, undone));
    assert_eq!((ids.unseen(), ids.oldest_view()), (0, view));
}

#[test]
fn a_commit_is_seen_when_it_was_waited_for_and_all_are_when_they_need_not_be_durable() {
    let log = Arc::new(Horizon::default());
    let ids = Ids::new(1, Arc::default(), log.clone());
    ids.set_durable(true);
    let (one, number) = commit_at(&ids, 100);
    let (two, _) = commit_at(&ids, 200);
    ids.see(number).unwrap();
    assert_eq!(log.durable(), 100);
    let view = ids.open_view();
    assert!(ids.sees(view, one) && !ids.sees(view, two));
    assert_eq!(ids.oldest_view(), view, "purge leaves what the next view sees");
    ids.set_durable(false);
    let (three, _) = commit_at(&ids, 300);
    let view = ids.open_view();
    assert!(ids.sees(view, two) && ids.sees(view, three));
    assert_eq!(log.durable(), 100);
    ids.set_durable(true);
    let (four, number) = commit_at(&ids, 400);
    let past = ids.pass_views();
    assert!(past > number && log.durable() >= 400);
    let view = ids.open_view();
    assert!(ids.sees(view, four) && view >= past);
}
