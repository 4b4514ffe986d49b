//! What is shown of locks, waits and deadlocks is true.

use super::*;
use std::sync::Mutex as StdMutex;

/// What is seen, as session, kind, start and end, in order.
fn all(locks: &Locks, max: usize) -> Vec<(u64, Kind, Vec<u8>, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    locks.each_seen(max, &mut |lock| {
        assert!(!lock.from.is_cut && lock.space == SPACE);
        let to = lock.to.as_ref().map(|to| to.bytes.to_vec());
        all.push((lock.session, lock.kind, lock.from.bytes.to_vec(), to));
    });
    all.sort_by(|a, b| (a.0, &a.2, format!("{:?}", a.1)).cmp(&(b.0, &b.2, format!("{:?}", b.1))));
    all
}

#[test]
fn the_report_shows_exactly_the_held_locks() {
    let locks = locks(100);
    take(&locks, 1, SPACE, b"a", Mode::Exclusive).unwrap().unwrap();
    take(&locks, 1, SPACE, b"b", Mode::Shared).unwrap().unwrap();
    take(&locks, 2, SPACE, b"b", Mode::Shared).unwrap().unwrap();
    take(&locks, 3, SPACE, b"gone", Mode::Shared).unwrap().unwrap();
    // Both modes of one lock, of which one is given back.
    take(&locks, 3, SPACE, b"m", Mode::Shared).unwrap().unwrap();
    take(&locks, 3, SPACE, b"m", Mode::Exclusive).unwrap().unwrap();
    locks.release_row(3, SPACE, b"gone", Mode::Shared);
    locks.take_row(2, SPACE, b"f", Mode::Exclusive, Some(b"e")).unwrap().unwrap();
    assert!(locks.keep(2, SPACE, b"x", None).unwrap());
    let owned = |bytes: &[u8]| bytes.to_vec();
    assert_eq!(
        all(&locks, 100),
        [
            (1, Kind::Name(Mode::Exclusive), owned(b"a"), None),
            (1, Kind::Name(Mode::Shared), owned(b"b"), None),
            (2, Kind::Name(Mode::Shared), owned(b"b"), None),
            (2, Kind::Rows(Mode::Exclusive), owned(b"e\0"), Some(owned(b"f\0"))),
            (2, Kind::Gap, owned(b"x"), None),
            (3, Kind::Name(Mode::Exclusive), owned(b"m"), None),
        ]
    );
    assert_eq!(
        locks.counts_seen().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        [(1, 2), (2, 3), (3, 1)].into()
    );
    locks.release_all(1, &[]);
    locks.release_all(2, &[SPACE]);
    assert_eq!(all(&locks, 100).len(), 1);
    locks.release_all(3, &[]);
    assert!(all(&locks, 100).is_empty() && locks.counts_seen().is_empty());
}

#[test]
fn each_of_many_locks_is_reported_once_up_to_the_requested_number() {
    let locks = Locks::new(terrace_io::real::world(), 100_000, 64 << 20, 64 << 20, &crate::testing::pool());
    // More than a portion of each kind.
    for n in 0..5000u32 {
        let key = n.to_be_bytes();
        take(&locks, 1, SPACE, &key, Mode::Shared).unwrap().unwrap();
        let end = [&key[..], &[7]].concat();
        assert!(locks.keep(2, SPACE, &key, Some(&end)).unwrap());
        locks
            .take_row(3, SPACE, &[&key[..], &[2]].concat(), Mode::Exclusive, Some(&[&key[..], &[1]].concat()))
            .unwrap()
            .unwrap();
    }
    let seen = all(&locks, usize::MAX);
    for (session, at) in [(1, 0), (2, 5000), (3, 10_000)] {
        for n in 0..5000u32 {
            let lock = &seen[at + n as usize];
            assert_eq!((lock.0, &lock.2[..4]), (session, &n.to_be_bytes()[..]));
        }
    }
    assert_eq!(seen.len(), 15_000);
    assert_eq!(locks.counts_seen().values().copied().collect::<Vec<_>>(), [5000; 3]);
    for max in [0, 1, 1024, 1025, 5000, 5001, 14_999] {
        assert_eq!(all(&locks, max).len(), max);
    }
    let long = [9; 1000];
    locks.release_all(1, &[]);
    locks.release_all(2, &[SPACE]);
    locks.release_all(3, &[SPACE]);
    take(&locks, 1, SPACE, &long, Mode::Shared).unwrap().unwrap();
    locks.each_seen(9, &mut |lock| assert!(lock.from.is_cut && *lock.from.bytes == long[..256]));
}

#[test]
fn a_wait_is_reported_with_its_blocker_until_it_ends() {
    let locks = locks(100);
    take(&locks, 1, SPACE, b"k", Mode::Exclusive).unwrap().unwrap();
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut request = Request::new(&locks, 2, 0, (SPACE, b"k"), WantedLock::SHARED, far(), &cancel);
            while let Err(way) = take(&locks, 2, SPACE, b"k", Mode::Shared).unwrap() {
                request.wait(&way, |_| false).unwrap();
            }
        });
        while locks.waits_seen().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let [wait] = &locks.waits_seen()[..] else { panic!("one waits") };
        assert_eq!((wait.session, &wait.targets[..], &wait.key.bytes[..]), (2, &[1][..], &b"k"[..]));
        assert_eq!((wait.want, wait.is_changed), (WantedLock::SHARED, false));
        assert!(wait.since <= locks.world.clock.now());
        locks.release_all(1, &[]);
        waiter.join().unwrap();
    });
    assert!(locks.waits_seen().is_empty());
}

#[test]
fn wait_times_are_counted() {
    const PAUSE: u64 = 30_000_000;
    let locks = locks(100);
    let counted = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    assert_eq!((locks.waiting(), locks.mean_wait()), (0, 0));
    take(&locks, 1, SPACE, b"k", Mode::Exclusive).unwrap().unwrap();
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut request = Request::new(&locks, 2, 0, (SPACE, b"k"), WantedLock::SHARED, far(), &cancel);
            while let Err(way) = take(&locks, 2, SPACE, b"k", Mode::Shared).unwrap() {
                request.wait(&way, |_| false).unwrap();
            }
        });
        while locks.waits_seen().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_nanos(PAUSE));
        // Not before it is over.
        assert_eq!((locks.waiting(), counted(&locks.counters.nanos)), (1, 0));
        locks.release_all(1, &[]);
        waiter.join().unwrap();
    });
    let LockCounters { waits, nanos, nanos_max, .. } = &locks.counters;
    let (first, longest) = (counted(nanos), counted(nanos_max));
    assert!(first >= PAUSE - PAUSE / 10 && locks.waiting() == 0, "{first}");
    assert_eq!((longest, locks.mean_wait()), (first, first / counted(waits)));
    // One that ends with an error counts, and is not the longest.
    take(&locks, 1, SPACE, b"x", Mode::Exclusive).unwrap().unwrap();
    let way = take(&locks, 2, SPACE, b"x", Mode::Shared).unwrap().unwrap_err();
    let mut request = Request::new(&locks, 2, 0, (SPACE, b"x"), WantedLock::SHARED, 1_000_000, &cancel);
    assert!(matches!(request.wait(&way, |_| false), Err(Error::LockTimeout)));
    assert!(counted(nanos) >= first + 1_000_000);
    assert!(counted(nanos_max) >= longest && locks.mean_wait() < counted(nanos_max));
}

#[test]
fn a_deadlock_is_reported_with_statements_before_its_victim_goes_on() {
    let asked = Arc::new(StdMutex::new(Vec::new()));
    let locks = Arc::new(locks(100));
    let (weak, seen) = (Arc::downgrade(&locks), asked.clone());
    locks.deadlocks.ask(Box::new(move |connection| {
        // No mutex of the table is held; and the victim still has its lock.
        let locks = weak.upgrade()?;
        seen.lock().unwrap().push((connection, locks.held()));
        Some(format!("statement of {connection}"))
    }));
    for session in [1, 2] {
        let face = locks.running.add();
        face.begins(session, None, 0);
        face.set_connection(session + 10);
    }
    assert!(locks.deadlocks.last().is_none());
    // The one that waited first is the lighter one.
    assert!(matches!(circle_in(&locks, [1, 5]), [Err(Error::Deadlock), Ok(())]));
    let last = locks.deadlocks.last().unwrap();
    let members: Vec<_> = last.members.iter().collect();
    let [closed, other] = members[..] else { panic!("two of them") };
    assert_eq!((closed.session, &closed.name.key[..], closed.gave_way), (2, &b"a"[..], false));
    assert_eq!((other.session, &other.name.key[..], other.gave_way), (1, &b"b"[..], true));
    assert_eq!((closed.connection, other.connection), (Some(12), Some(11)));
    assert_eq!(other.statement.as_deref(), Some("statement of 11"));
    assert_eq!(*asked.lock().unwrap(), [(12, 2), (11, 2)]);
    // The next one takes its place; now the one that closed it. The listener is told of it.
    let told = Arc::new(StdMutex::new(Vec::new()));
    let all = told.clone();
    locks.deadlocks.tell(Some(Arc::new(move |one| all.lock().unwrap().push(one.members[0].session))));
    assert!(matches!(circle_in(&locks, [5, 1]), [Ok(()), Err(Error::Deadlock)]));
    let last = locks.deadlocks.last().unwrap();
    assert_eq!(
        last.members.iter().map(|one| (one.session, one.gave_way)).collect::<Vec<_>>(),
        [(2, true), (1, false)]
    );
    locks.deadlocks.tell(None);
    assert!(matches!(circle_in(&locks, [5, 1]), [Ok(()), Err(Error::Deadlock)]));
    assert_eq!(*told.lock().unwrap(), [2]);
}

#[test]
fn a_sessions_entry_shows_its_running_transaction() {
    let running = Running::default();
    let (one, two) = (running.add(), running.add());
    assert!(running.all().is_empty());
    two.begins(8, Some(crate::lock::Isolation::Serializable), 70);
    one.begins(7, None, 60);
    one.set_connection(3);
    one.set_changes(4, Some(3));
    one.set_locked(2);
    one.set_phase(Phase::Prepared);
    let seven = Runs {
        session: 7,
        connection: Some(3),
        started: 60,
        changes: 4,
        rows: Some(3),
        locked: 2,
        phase: Phase::Prepared,
        isolation: None,
    };
    let eight = Runs {
        session: 8,
        connection: None,
        started: 70,
        changes: 0,
        rows: Some(0),
        locked: 0,
        phase: Phase::Active,
        isolation: Some(crate::lock::Isolation::Serializable),
    };
    assert_eq!(running.all(), [seven, eight]);
    assert_eq!(
        (running.connection_of(7), running.connection_of(8), running.connection_of(9)),
        (Some(3), None, None)
    );
    one.ends();
    assert_eq!(running.all(), [eight]);
    one.begins(9, None, 80);
    assert_eq!((running.all()[1].changes, running.all()[1].phase), (0, Phase::Active));
    one.set_changes(7, None);
    assert_eq!((running.all()[1].changes, running.all()[1].rows, running.all()[1].locked), (7, None, 0));
    running.forget(&one);
    running.forget_session(8);
    assert!(running.all().is_empty());
}
