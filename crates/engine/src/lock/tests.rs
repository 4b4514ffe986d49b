//! Ranges against a set of points; the victim of a deadlock; the order of service.

mod compact;
mod crowd;
mod lines;
mod model;
mod report;

use super::gaps::Ranges;
use super::*;
use crate::txn::cancel::Cancel;
use std::time::Duration;

#[test]
fn ranges_agree_with_a_set_of_keys() {
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for round in 0..2000 {
        let mut ranges = Ranges::default();
        let mut model = [false; 40];
        for _ in 0..12 {
            let from = random(40) as u8;
            let to = (from as u64 + random(8)).min(40) as u8;
            let open = random(12) == 0;
            let end = [to];
            let end = if open { None } else { Some(&end[..]) };
            let keys = usize::from(from)..if open { 40 } else { usize::from(to) };
            assert_eq!(
                ranges.covers(&[from], end),
                model[keys.clone()].iter().all(|kept| *kept) && (!open || ranges.has(&[200]))
                    || keys.is_empty() && !open,
                "round {round}"
            );
            let covered = ranges.covers(&[from], end);
            let count = ranges.count();
            if round % 2 == 0
                && let Some(longer) = end.and_then(|end| ranges.go_on(&[from], end))
            {
                assert_eq!((longer, ranges.count()), (!covered, count), "round {round}");
                model[keys].fill(true);
            } else if !covered {
                let before = ranges.count();
                let touches = ranges.touches(&[from], end);
                ranges.add(&[from], end);
                model[keys].fill(true);
                assert!(
                    if touches { ranges.count() <= before } else { ranges.count() == before + 1 },
                    "round {round}"
                );
            }
            for key in 0..40u8 {
                assert_eq!(ranges.has(&[key]), model[usize::from(key)], "round {round}, key {key}");
            }
        }
    }
}

#[test]
fn a_scan_is_one_range() {
    let mut ranges = Ranges::default();
    for key in 0..100u8 {
        ranges.add(&[key], Some(&[key + 1]));
    }
    assert_eq!(ranges.count(), 1);
    ranges.add(&[200], None);
    assert_eq!(ranges.count(), 2);
    ranges.add(&[50], Some(&[201]));
    assert_eq!(ranges.count(), 1);
    assert!(ranges.has(&[0]) && ranges.has(&[255, 255]));
}

const SPACE: SpaceId = SpaceId(9);

fn locks(max: usize) -> Locks {
    Locks::new(terrace_io::real::world(), max, 1 << 20, 1 << 20, &crate::testing::pool())
}

fn take(
    locks: &Locks,
    session: u64,
    space: SpaceId,
    key: &[u8],
    mode: Mode,
) -> Result<std::result::Result<bool, InTheWay>> {
    locks.take_row(session, space, key, mode, None)
}

fn far() -> u64 {
    60_000_000_000
}

/// Session 1 has `a`, session 2 has `b`; each then asks for the other's, first 1. Returns what 1 and 2 get.
fn circle(weights: [u64; 2]) -> [Result<()>; 2] {
    let locks = locks(100);
    let got = circle_in(&locks, weights);
    assert_eq!(locks.counters.deadlocks.load(Ordering::SeqCst), 1);
    got
}

fn circle_in(locks: &Locks, weights: [u64; 2]) -> [Result<()>; 2] {
    take(locks, 1, SPACE, b"a", Mode::Exclusive).unwrap().unwrap();
    take(locks, 2, SPACE, b"b", Mode::Exclusive).unwrap().unwrap();
    let ask = |session: u64, key: &[u8]| {
        let cancel = Cancel::default();
        let weight = weights[session as usize - 1];
        let mut request =
            Request::new(locks, session, weight, (SPACE, key), WantedLock::EXCLUSIVE, far(), &cancel);
        let mut got = Ok(());
        while let Err(way) = take(locks, session, SPACE, key, Mode::Exclusive).unwrap() {
            got = request.wait(&way, |_| false);
            if got.is_err() {
                break;
            }
        }
        drop(request);
        locks.release_all(session, &[]);
        got
    };
    let got = std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(1, b"b"));
        while locks.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        [ask(2, b"a"), first.join().unwrap()]
    });
    assert_eq!((locks.held(), locks.waiting.load(Ordering::SeqCst)), (0, 0));
    let [second, first] = got;
    [first, second]
}

#[test]
fn the_lighter_transaction_is_the_deadlock_victim_and_among_equals_the_last() {
    assert!(matches!(circle([1, 5]), [Err(Error::Deadlock), Ok(())]));
    assert!(matches!(circle([5, 1]), [Ok(()), Err(Error::Deadlock)]));
    assert!(matches!(circle([3, 3]), [Ok(()), Err(Error::Deadlock)]));
}

#[test]
fn a_waiter_is_overtaken_a_few_times_only() {
    let locks = locks(100);
    let cancel = Cancel::default();
    let done = std::sync::atomic::AtomicBool::new(false);
    take(&locks, 1, SPACE, b"k", Mode::Exclusive).unwrap().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut request =
                Request::new(&locks, 2, 0, (SPACE, b"k"), WantedLock::EXCLUSIVE, far(), &cancel);
            while let Err(way) = take(&locks, 2, SPACE, b"k", Mode::Exclusive).unwrap() {
                request.wait(&way, |_| false).unwrap();
            }
            done.store(true, Ordering::SeqCst);
        });
        // Others take and give back as fast as they can: each at once has it again.
        let mut turns = 0u64;
        let since = std::time::Instant::now();
        let mut session = 3;
        let mut owner = 1;
        while !done.load(Ordering::SeqCst) {
            locks.release_row(owner, SPACE, b"k", Mode::Exclusive);
            match take(&locks, session, SPACE, b"k", Mode::Exclusive).unwrap() {
                Ok(_) => owner = session,
                Err(InTheWay::Sessions(first)) => {
                    assert_eq!(first, [2]);
                    owner = 0;
                    std::thread::yield_now();
                }
                Err(other) => panic!("{other:?}"),
            }
            session += 1;
            turns += 1;
            assert!(turns < 50_000_000 || since.elapsed() < Duration::from_secs(20), "passed for ever");
        }
    });
    assert_eq!(locks.starving.load(Ordering::SeqCst), 0);
}

#[test]
fn the_bound_counts_rows_and_gaps() {
    let locks = locks(2);
    take(&locks, 1, SPACE, b"k", Mode::Shared).unwrap().unwrap();
    assert!(locks.keep(1, SPACE, b"a", Some(b"b")).unwrap());
    assert!(!locks.keep(1, SPACE, b"a", Some(b"b")).unwrap());
    assert!(locks.keep(1, SPACE, b"b", Some(b"c")).unwrap(), "grows what is there");
    assert!(matches!(locks.keep(2, SPACE, b"x", None), Err(Error::TooManyLocks { held: 2, max: 2, .. })));
    assert!(matches!(
        take(&locks, 2, SPACE, b"x", Mode::Shared),
        Err(Error::TooManyLocks { held: 2, max: 2, .. })
    ));
    let inserts = WantedLock { inserts: true, ..WantedLock::EXCLUSIVE };
    let way = |session, want| locks.admit(session, SPACE, b"bb", want).unwrap();
    assert_eq!(way(2, inserts), Some(InTheWay::Sessions(vec![1])));
    assert_eq!(way(2, WantedLock::EXCLUSIVE), None);
    assert_eq!(way(1, inserts), None);
    locks.release_all(1, &[SPACE]);
    assert_eq!((locks.held(), locks.gaps_held()), (0, 0));
    assert_eq!(way(2, inserts), None);
}

#[test]
fn a_shared_lock_outlives_an_exclusive_one_taken_and_released_beside_it() {
    let locks = locks(100);
    let way = |session, key: &[u8], mode| {
        locks.admit(session, SPACE, key, WantedLock { mode, ..WantedLock::SHARED }).unwrap()
    };
    let blocks = |key: &[u8]| (way(2, key, Mode::Shared).is_some(), way(2, key, Mode::Exclusive).is_some());
    for (key, beside) in [(&b"b"[..], None), (&b"d"[..], Some(&b"c"[..]))] {
        let take = |mode| locks.take_row(1, SPACE, key, mode, beside).unwrap().unwrap();
        assert!(take(Mode::Shared) && take(Mode::Exclusive) && !take(Mode::Shared) && !take(Mode::Exclusive));
        assert_eq!(blocks(key), (true, true));
        locks.release_row(1, SPACE, key, Mode::Exclusive);
        assert_eq!(blocks(key), (false, true));
        // The other way round: the transaction that took it to read gives it back, the one that took it to write has it still.
        assert!(take(Mode::Exclusive));
        locks.release_row(1, SPACE, key, Mode::Shared);
        assert_eq!(blocks(key), (true, true));
        locks.release_row(1, SPACE, key, Mode::Exclusive);
        assert_eq!(blocks(key), (false, false));
    }
    locks.release_all(1, &[SPACE]);
    assert_eq!(locks.held(), 0);
    assert!(locks.inner.lock().gaps.is_empty() && locks.inner.lock().locks.is_empty());
}

#[test]
fn a_lock_for_a_repeated_read_is_released_and_one_for_a_change_is_kept() {
    let locks = locks(1000);
    let keys: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n * 4; 1 + usize::from(n)]).collect();
    let take =
        |key: &[u8], mode, beside| assert!(locks.take_row(1, SPACE, key, mode, beside).unwrap().unwrap());
    for (n, key) in keys.iter().enumerate() {
        let beside = (n / 4 % 2 == 1).then(|| &key[..key.len() - 1]);
        if n % 4 < 2 {
            take(key, Mode::Shared, beside);
        }
        if n % 2 == 1 {
            take(key, Mode::Exclusive, beside);
        }
    }
    assert!(locks.keep(1, SPACE, b"a", Some(b"z")).unwrap());
    take(b"other", Mode::Shared, None);
    locks.release_reads(1, &[SPACE]);
    let blocks = |key: &[u8], mode| {
        locks.admit(2, SPACE, key, WantedLock { mode, ..WantedLock::SHARED }).unwrap().is_some()
    };
    for (n, key) in keys.iter().enumerate() {
        let stays = n % 2 == 1;
        assert_eq!((blocks(key, Mode::Shared), blocks(key, Mode::Exclusive)), (stays, stays), "{n}");
    }
    assert!(!blocks(b"other", Mode::Exclusive) && locks.gaps_held() == 0);
    locks.release_all(1, &[SPACE]);
    assert_eq!(locks.held(), 0);
    assert!(locks.inner.lock().gaps.is_empty() && locks.inner.lock().locks.is_empty());
}

#[test]
fn the_end_of_an_owner_wakes_one_of_those_that_wait() {
    const WAITERS: u64 = 60;
    let locks = locks(100);
    take(&locks, 1000, SPACE, b"k", Mode::Exclusive).unwrap().unwrap();
    std::thread::scope(|scope| {
        for session in 1..=WAITERS {
            let locks = &locks;
            scope.spawn(move || {
                let cancel = Cancel::default();
                let mut request =
                    Request::new(locks, session, 0, (SPACE, b"k"), WantedLock::EXCLUSIVE, far(), &cancel);
                while let Err(way) = take(locks, session, SPACE, b"k", Mode::Exclusive).unwrap() {
                    request.wait(&way, |_| false).unwrap();
                }
                drop(request);
                locks.release_all(session, &[]);
            });
        }
        while locks.waiting.load(Ordering::SeqCst) < WAITERS as usize {
            std::thread::sleep(Duration::from_millis(1));
        }
        locks.release_all(1000, &[]);
    });
    // Each waits for the one before it, and then perhaps for it as the owner. All waking all would be 1800 and more.
    let waits = locks.counters.waits.load(Ordering::SeqCst);
    assert!(waits <= 4 * WAITERS, "{waits} waits of {WAITERS}");
    assert_eq!((locks.held(), locks.waiting.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn a_range_without_keys_leaves_nothing_behind() {
    let locks = locks(100);
    for session in 1..100 {
        assert!(!locks.keep(session, SPACE, b"k", Some(b"k")).unwrap());
        assert!(!locks.keep(session, SPACE, b"k", Some(b"a")).unwrap());
    }
    assert!(
        locks.inner.lock().gaps.is_empty(),
        "each session that only looked at a row made every later look slower"
    );
    assert!(locks.keep(1, SPACE, b"a", Some(b"b")).unwrap());
    locks.release_all(1, &[SPACE]);
    assert!(locks.inner.lock().gaps.is_empty());
}
