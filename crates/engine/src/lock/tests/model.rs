//! Row locks, one by one and on ranges, against a set of single locks: what is in whose way is the same for every row.

use super::*;
use std::collections::BTreeSet;

const KEYS: u8 = 24;
const SESSIONS: u64 = 4;

/// The names of some rows are long.
fn name(key: u8) -> Vec<u8> {
    let mut name = vec![key];
    if key.is_multiple_of(2) {
        name.resize(60, 1);
    }
    name
}

struct Model {
    seed: u64,
    /// The sessions that take locks: the fewer, the more often one is alone in the tree.
    sessions: u64,
    locks: Locks,
    live: BTreeSet<u8>,
    /// Key, session and mode; both modes if the stronger one was taken later.
    held: BTreeSet<(u8, u64, Mode)>,
    joined: usize,
    split: usize,
}

impl Model {
    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 33) % below
    }

    fn others(&self, session: u64, key: u8, mode: Mode) -> BTreeSet<u64> {
        let conflicts = |other: u64, held: Mode| other != session && mode.max(held) == Mode::Exclusive;
        let on_key = self.held.iter().filter(|(at, ..)| *at == key);
        on_key.filter(|(_, other, held)| conflicts(*other, *held)).map(|(_, other, _)| *other).collect()
    }

    /// The strongest mode in which the session has it.
    fn mode(&self, key: u8, session: u64) -> Option<Mode> {
        self.held
            .range((key, session, Mode::Shared)..=(key, session, Mode::Exclusive))
            .last()
            .map(|held| held.2)
    }

    /// Locks a live row; the neighbour below it or above it is named if the session has, or had, that in this mode.
    fn take(&mut self, session: u64, key: u8, mode: Mode, from_below: bool) {
        let below = self.live.range(..key).next_back();
        let above = self.live.range(key + 1..).next();
        let near = if from_below { below } else { above }.copied();
        // It may have given that one back since.
        let stale = self.random(4) == 0;
        let has = |near: &u8| self.mode(*near, session).is_some_and(|held| held >= mode);
        let near = near.filter(|near| stale || has(near));
        let bytes = near.map(name);
        let others = self.others(session, key, mode);
        let with_gap = near.is_some_and(|near| near < key) && self.random(2) == 0;
        let got = match bytes.as_deref() {
            // As a scan does: with the gap that it has come over.
            Some(near) if with_gap => {
                self.locks.take_next_key(session, (SPACE, near), &name(key), mode, Some(near))
            }
            near => self.locks.take_row(session, SPACE, &name(key), mode, near),
        };
        match got.unwrap() {
            Ok(new) => {
                assert!(others.is_empty(), "{session} got {key}, which {others:?} have");
                let mine = self.mode(key, session);
                assert_eq!(new, mine.is_none_or(|mine| mine < mode), "{session} takes {key}");
                if new {
                    self.held.insert((key, session, mode));
                }
                self.joined += usize::from(near.is_some() && new);
            }
            Err(InTheWay::Sessions(way)) => assert_eq!(way.into_iter().collect::<BTreeSet<_>>(), others),
            Err(way) => panic!("{way:?}"),
        }
    }

    fn release(&mut self, session: u64, key: u8, mode: Mode) {
        self.locks.release_row(session, SPACE, &name(key), mode);
        self.held.remove(&(key, session, mode));
    }

    fn end(&mut self, session: u64) {
        self.locks.release_all(session, &[SPACE]);
        self.held.retain(|(_, owner, _)| *owner != session);
    }

    fn step(&mut self) {
        let (session, key) = (1 + self.random(self.sessions), self.random(KEYS.into()) as u8);
        let mode = if self.random(3) == 0 { Mode::Shared } else { Mode::Exclusive };
        let live = self.live.contains(&key);
        match self.random(20) {
            0..=11 if live => {
                let up = self.random(2) == 0;
                self.take(session, key, mode, up);
            }
            // A row of another session is inserted: ranges around it are no obstacle, and don't cover it.
            12..=14 if !live => {
                let inserts = WantedLock { inserts: true, ..WantedLock::EXCLUSIVE };
                let before = self.locks.held();
                if self.locks.admit(SESSIONS + 1, SPACE, &name(key), inserts).unwrap().is_some() {
                    return; // a gap
                }
                self.split += usize::from(self.locks.held() > before);
                self.live.insert(key);
            }
            // A transaction that deletes has it exclusively, and ended before it is gone.
            12..=14 if self.held.iter().all(|(at, ..)| *at != key) => _ = self.live.remove(&key),
            15..=16 if self.held.contains(&(key, session, mode)) => self.release(session, key, mode),
            // Gives back what it has locked to read, as a prepared transaction does.
            17 if self.random(4) == 0 => {
                self.locks.release_reads(session, &[SPACE]);
                self.held.retain(|(_, owner, mode)| *owner != session || *mode == Mode::Exclusive);
            }
            18 if self.random(3) == 0 => self.end(session),
            19 if self.random(3) == 0 => {
                let (from, to) = (name(key), name(key + 1 + self.random(4) as u8));
                _ = self.locks.keep(session, SPACE, &from, Some(&to)).unwrap();
            }
            _ => {}
        }
    }

    fn check(&self) {
        let inner = self.locks.inner.lock();
        assert_eq!(inner.long, inner.gaps.long_by_looking(), "seed {}", self.seed);
        inner.locks.crowds().check_invariants();
        drop(inner);
        self.check_seen();
        for key in &self.live {
            for session in 1..=SESSIONS + 1 {
                for mode in [Mode::Shared, Mode::Exclusive] {
                    let want = WantedLock { mode, ..WantedLock::SHARED };
                    let way = self.locks.admit(session, SPACE, &name(*key), want).unwrap();
                    let Some(InTheWay::Sessions(way)) = way.or(Some(InTheWay::Sessions(Vec::new()))) else {
                        panic!("no transaction");
                    };
                    let others = self.others(session, *key, mode);
                    let way: BTreeSet<u64> = way.into_iter().collect();
                    assert_eq!(way, others, "seed {}: {session} wants {key} {mode:?}", self.seed);
                }
            }
        }
    }

    /// The view from outside shows what is locked: each name once, in the stronger mode, and each range.
    fn check_seen(&self) {
        let mut seen = BTreeSet::new();
        let mut names = BTreeSet::new();
        self.locks.each_seen(usize::MAX, &mut |lock| match lock.kind {
            Kind::Gap => {}
            Kind::Name(mode) => {
                assert!(names.insert((lock.session, lock.from.bytes.to_vec())), "a name is seen once");
                seen.insert((lock.from.bytes[0], lock.session, mode));
            }
            Kind::Rows(mode) => {
                let to = lock.to.as_ref().map(|to| to.bytes.to_vec());
                let inside = |key: &u8| {
                    name(*key)[..] >= lock.from.bytes[..] && to.as_ref().is_none_or(|to| name(*key) < *to)
                };
                seen.extend(self.live.iter().filter(|key| inside(key)).map(|key| (*key, lock.session, mode)));
            }
        });
        for (key, session, _) in &self.held {
            let mode = self.mode(*key, *session);
            let as_seen =
                seen.range((*key, *session, Mode::Shared)..=(*key, *session, Mode::Exclusive)).last();
            assert!(
                !self.live.contains(key) || as_seen.map(|seen| seen.2) == mode,
                "seed {}: {key}",
                self.seed
            );
        }
    }
}

/// All single locks are entries of the table, however many a session has.
fn without_crowds(locks: &Locks) {
    locks.inner.lock().locks.crowds_mut().from = u32::MAX;
}

fn model(seed: u64) -> Model {
    let locks = locks(10_000);
    // From the first lock on, from the third, or never.
    locks.inner.lock().locks.crowds_mut().from = [0, 2, 1024][seed as usize % 3];
    Model {
        seed,
        sessions: 1 + seed % SESSIONS,
        locks,
        live: (0..KEYS).filter(|key| key % 3 > 0).collect(),
        held: BTreeSet::new(),
        joined: 0,
        split: 0,
    }
}

#[test]
fn ranges_of_rows_agree_with_single_locks() {
    let (mut joined, mut split) = (0, 0);
    for seed in 0..40 {
        let mut model = model(seed);
        for _ in 0..400 {
            model.step();
            model.check();
        }
        for session in 1..=SESSIONS {
            model.end(session);
        }
        assert_eq!((model.locks.held(), model.locks.gaps_held()), (0, 0), "seed {seed}");
        let inner = model.locks.inner.lock();
        assert!(
            inner.locks.is_empty() && inner.gaps.is_empty() && inner.ranges == 0 && inner.long == 0,
            "seed {seed}"
        );
        (joined, split) = (joined + model.joined, split + model.split);
    }
    assert!(joined > 200 && split > 20, "{joined} joined, {split} split");
}

#[test]
fn a_scan_of_rows_takes_one_lock_more_than_its_first() {
    let locks = locks(3);
    for (session, down) in [(1, false), (2, true)] {
        let keys: Vec<u8> = if down { (0..200).rev().collect() } else { (0..200).collect() };
        let mut last = None;
        for key in keys {
            let beside = last.map(|last: u8| [last]);
            let beside = beside.as_ref().map(|key| &key[..]);
            assert!(locks.take_row(session, SPACE, &[key], Mode::Shared, beside).unwrap().unwrap());
            last = Some(key);
        }
        assert_eq!(locks.held(), 2);
        locks.release_all(session, &[SPACE]);
        assert_eq!(locks.held(), 0);
    }
}

/// An undisturbed scan continues in few steps, and locks the same in the end.
#[test]
fn a_scan_with_gaps_is_one_range_of_rows_and_one_of_gaps() {
    let locks = locks(10);
    let scan = |keys: std::ops::Range<u8>| {
        let mut last: Option<Vec<u8>> = None;
        for key in keys {
            let (from, key) = (last.clone().unwrap_or_default(), name(key));
            let got = locks.take_next_key(1, (SPACE, &from), &key, Mode::Exclusive, last.as_deref());
            assert!(got.unwrap().unwrap());
            last = Some(key);
        }
    };
    let is_free = |key: &[u8], inserts| {
        let want = WantedLock { inserts, ..WantedLock::EXCLUSIVE };
        locks.admit(2, SPACE, key, want).unwrap().is_none()
    };
    scan(0..101);
    assert_eq!((locks.held(), locks.gaps_held()), (2, 1));
    for key in 0..101 {
        assert!(!is_free(&name(key), false) && !is_free(&[key, 0], true), "{key}");
    }
    assert!(is_free(&name(101), false) && is_free(&[100, 200], true));
    let inner = locks.inner.lock();
    assert_eq!(inner.long, inner.gaps.long_by_looking());
    drop(inner);
    // What is locked in another mode, or by others, is looked at.
    assert_eq!(take(&locks, 2, SPACE, &name(103), Mode::Shared).unwrap(), Ok(true));
    let (near, key) = (name(100), name(103));
    let got = locks.take_next_key(1, (SPACE, &near), &key, Mode::Exclusive, Some(&near)).unwrap();
    assert_eq!(got, Err(InTheWay::Sessions(vec![2])));
    locks.release_all(1, &[SPACE]);
    locks.release_all(2, &[SPACE]);
    assert_eq!((locks.held() + locks.gaps_held(), locks.inner.lock().long), (0, 0));
}

/// Keys may be a hundred times longer than what a range itself takes.
#[test]
fn ranges_with_long_ends_are_bounded_by_their_memory() {
    let locks = Locks::new(terrace_io::real::world(), usize::MAX, 1 << 20, 1 << 20, &crate::testing::pool());
    for rows in [false, true] {
        let mut taken = 0u64;
        let error = loop {
            let key = [&taken.to_be_bytes()[..], &[7; 2000]].concat();
            let next = [&key[..], &[1]].concat();
            let got = match rows {
                true => locks.take_row(1, SPACE, &next, Mode::Shared, Some(&key)).map(|got| got.unwrap()),
                false => locks.keep(1, SPACE, &key, Some(&next)),
            };
            match got {
                Ok(new) => assert!(new),
                Err(error) => break error,
            }
            taken += 1;
        };
        assert!(matches!(error, Error::TooManyLocks { bytes, .. } if bytes >= 1 << 20), "{error}");
        assert!((200..300).contains(&taken), "{taken} ranges of 4000 bytes and more in a MiB");
        locks.release_all(1, &[SPACE]);
        assert_eq!((locks.held() + locks.gaps_held(), locks.inner.lock().long), (0, 0));
    }
}

#[test]
fn single_locks_are_bounded_by_their_memory_and_leave_none() {
    let locks = Locks::new(terrace_io::real::world(), usize::MAX, 1 << 20, 1 << 20, &crate::testing::pool());
    without_crowds(&locks);
    for round in 0..3 {
        let mut taken = 0u64;
        let error = loop {
            let key =
                [&taken.to_be_bytes()[..], &[7; 40][..if taken.is_multiple_of(4) { 40 } else { 0 }]].concat();
            match locks.take_row(1 + taken % 3, SPACE, &key, Mode::Exclusive, None) {
                Ok(got) => assert!(got.unwrap()),
                Err(error) => break error,
            }
            taken += 1;
        };
        assert!(matches!(error, Error::TooManyLocks { bytes, .. } if bytes >= 1 << 20), "{error}");
        assert!((8_000..20_000).contains(&taken), "{taken} locks in a MiB in round {round}");
        assert_eq!(locks.held() as u64, taken);
        (1..=3).for_each(|session| locks.release_all(session, &[]));
        assert_eq!((locks.held(), locks.inner.lock().locks.bytes()), (0, 0));
    }
}

#[test]
fn many_locks_borrow_memory_and_return_it() {
    let pool = crate::testing::pool_of(1024);
    let locks = Locks::new(terrace_io::real::world(), usize::MAX, 64 << 20, 256 << 10, &pool);
    without_crowds(&locks);
    let lent = || pool.lent_for(Purpose::Locks);
    let take = |from: u64, to: u64| {
        (from..to).try_for_each(|key| {
            locks.take_row(1 + key % 2, SPACE, &key.to_be_bytes(), Mode::Exclusive, None).map(drop)
        })
    };
    for _ in 0..3 {
        take(0, 1000).unwrap();
        assert_eq!(lent(), 0, "so few are within `common`");
        take(1000, 30_000).unwrap();
        let kept = locks.inner.lock().bytes_kept(0);
        assert!(
            kept > 2 << 20 && (kept..kept + (1 << 20)).contains(&(lent() + (256 << 10))),
            "{kept} and {}",
            lent()
        );
        locks.release_all(1, &[]);
        assert!(lent() > 1 << 20, "one session has its locks still");
        locks.release_all(2, &[]);
        assert_eq!(lent(), 0);
    }
    // No more than the pool has to lend: half of 16 MiB.
    let error = take(0, u64::MAX).unwrap_err();
    assert!(matches!(error, Error::TooManyLocks { .. }), "{error}");
    assert!(lent() > 6 << 20 && lent() <= 8 << 20, "{}", lent());
    (1..=2).for_each(|session| locks.release_all(session, &[]));
    assert_eq!(lent(), 0);
    // Ranges, too.
    for key in 0..10_000u64 {
        assert!(locks.keep(3, SPACE, &(2 * key).to_be_bytes(), Some(&(2 * key + 1).to_be_bytes())).unwrap());
    }
    assert!(lent() > 1 << 20);
    locks.release_gaps(3, SPACE);
    assert_eq!(lent(), 0);
}

/// Row locks of other sessions come and go, and there is always one: the memory stayed with the locks for ever.
#[test]
fn many_locks_return_their_memory_while_others_hold_a_few() {
    let pool = crate::testing::pool_of(1024);
    let locks = Locks::new(terrace_io::real::world(), usize::MAX, 64 << 20, 256 << 10, &pool);
    without_crowds(&locks);
    let lent = || pool.lent_for(Purpose::Locks);
    let take = |session: u64, key: u64, mode| {
        locks.take_row(session, SPACE, &key.to_be_bytes(), mode, None).map(drop).unwrap()
    };
    for round in 1..4 {
        (0..200).for_each(|key| take(7, key, Mode::Exclusive));
        (200..300).for_each(|key| take(7, key, Mode::Shared));
        (200..300).for_each(|key| take(8, key, Mode::Shared));
        (250..300u64).for_each(|key| locks.release_row(8, SPACE, &key.to_be_bytes(), Mode::Shared));
        (250..260).for_each(|key| take(7, key, Mode::Exclusive));
        (1000..40_000).for_each(|key| take(1, key, Mode::Exclusive));
        assert!(lent() > 2 << 20);
        locks.release_all(1, &[]);
        assert_eq!((lent(), locks.held()), (0, 350), "round {round}");
        // What is left is held as before.
        let inner = locks.inner.lock();
        for key in 0..300u64 {
            let key = key.to_be_bytes();
            let name = NameRef { space: SPACE, key: &key };
            let number = u64::from_be_bytes(key);
            let seven =
                if number < 200 || (250..260).contains(&number) { Mode::Exclusive } else { Mode::Shared };
            assert_eq!(inner.locks.held_by(7, name), Some(seven));
            assert_eq!(inner.locks.held_by(8, name), (200..250).contains(&number).then_some(Mode::Shared));
            assert_eq!(inner.locks.held_by(1, name), None);
        }
        drop(inner);
        // Both modes of a lock are each given back by themselves.
        (250..260u64).for_each(|key| locks.release_row(7, SPACE, &key.to_be_bytes(), Mode::Exclusive));
        let name = 255u64.to_be_bytes();
        assert_eq!(
            locks.inner.lock().locks.held_by(7, NameRef { space: SPACE, key: &name }),
            Some(Mode::Shared)
        );
        locks.release_all(7, &[]);
        assert_eq!(locks.held(), 50);
        locks.release_all(8, &[]);
        assert_eq!(locks.held(), 0);
    }
}
