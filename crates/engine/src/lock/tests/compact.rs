//! Compact sets of keys against ordinary ones, and row locks in them against single ones.

use super::super::compact::Set;
use super::*;
use std::collections::BTreeSet;

/// Numbers that are as good as random, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// Kinds of keys, each by a number below this.
const KINDS: usize = 6;

fn key(kind: usize, number: u64) -> Vec<u8> {
    match kind {
        // Dense integers.
        0 => (number as u32 % 200_000).to_be_bytes().to_vec(),
        // Integers far apart.
        1 => (number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes().to_vec(),
        // As UUIDs.
        2 => [number.wrapping_mul(0x9E37_79B9_7F4A_7C15), number].map(u64::to_be_bytes).concat(),
        // Texts of several lengths.
        3 => format!("name{}", number % 50_000).into_bytes(),
        // Integers, and among them keys that are one byte shorter or longer, or none at all.
        4 => {
            let key = (number as u32 % 20_000 + 65_000).to_be_bytes();
            match number % 40_009 {
                0 => [&key[..], &[7]].concat(),
                1 => key[..3].to_vec(),
                2 => Vec::new(),
                _ => key.to_vec(),
            }
        }
        // Two numbers, the second of them small.
        _ => [&(number as u32 % 9000).to_be_bytes()[..], &(number % 5).to_be_bytes()].concat(),
    }
}

fn check(set: &Set, model: &BTreeSet<Vec<u8>>) {
    set.check_invariants();
    assert_eq!(set.len(), model.len());
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        after = set.some(after.as_deref(), 777, |key| all.push(key.to_vec()));
        if after.is_none() {
            break;
        }
    }
    assert!(all.iter().eq(model), "what is enumerated is what is there, in order");
}

fn compact_sets_hold_what_ordinary_sets_hold() {
    let mut bitmaps = [0; KINDS];
    for kind in 0..KINDS {
        for order in 0..2 {
            let mut numbers = Numbers(kind as u64 * 2 + order);
            let (mut set, mut model) = (Set::default(), BTreeSet::new());
            // Grows, shrinks, grows.
            for (phase, steps, removes) in [(0, 60_000u64, 1), (1, 70_000, 8), (2, 20_000, 2)] {
                for step in 0..steps {
                    let number = if order == 0 { numbers.below(1 << 30) } else { phase * 7 + step };
                    let key = key(kind, number);
                    if numbers.below(10) >= removes {
                        assert_eq!(set.insert(&key), model.insert(key.clone()), "{key:?}");
                        assert!(set.has(&key));
                    } else {
                        // An existing one, as a rule.
                        let key = model.range(key.clone()..).next().cloned().unwrap_or(key);
                        assert!(set.has(&key) == model.contains(&key), "{key:?}");
                        assert_eq!(set.remove(&key), model.remove(&key), "{key:?}");
                        assert!(!set.has(&key));
                    }
                    if step % 1000 == 0 {
                        bitmaps[kind] = bitmaps[kind].max(set.bitmaps());
                    }
                }
                check(&set, &model);
            }
            for key in &model {
                assert!(set.has(key) && set.remove(key) && !set.has(key));
            }
            assert_eq!((set.len(), set.bytes()), (0, 0));
            set.check_invariants();
        }
    }
    assert!(bitmaps[0] > 0 && bitmaps[4] > 0 && bitmaps[2] == 0, "{bitmaps:?}");
}

#[test]
fn a_compact_set_holds_what_an_ordinary_one_does() {
    compact_sets_hold_what_ordinary_sets_hold();
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_a_key_that_is_forgotten_by_a_conversion_is_found_by_one_run() {
    crate::planted::CONVERSION_FORGETS.set(true);
    let found = std::panic::catch_unwind(compact_sets_hold_what_ordinary_sets_hold).is_err();
    crate::planted::CONVERSION_FORGETS.set(false);
    assert!(found);
}

/// Bytes for each key, of a million in random order.
#[test]
fn keys_in_a_compact_set_take_few_bytes() {
    const KEYS: u64 = 300_000;
    for (name, kind, most) in [("dense", 0, 1), ("far apart", 1, 13), ("as UUIDs", 2, 22), ("texts", 3, 9)] {
        let mut numbers = Numbers(9);
        let mut set = Set::default();
        for _ in 0..KEYS {
            set.insert(&key(kind, numbers.below(1 << 30)));
        }
        let bytes = set.bytes() / set.len();
        assert!(bytes <= most, "{name}: {bytes} bytes a key");
    }
}

fn row(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

/// A MiB is enough for 13,000 locks by name.
#[test]
fn a_session_locks_a_million_rows_in_a_mebibyte() {
    let locks = locks(20_000);
    let free = |key: u64, mode| {
        locks.admit(2, SPACE, &row(key), WantedLock { mode, ..WantedLock::SHARED }).unwrap().is_none()
    };
    for number in 0..1_000_000u64 {
        let key = number * 700_001 % 1_000_003;
        let mode = if key % 2 == 0 { Mode::Shared } else { Mode::Exclusive };
        assert!(locks.take_row(1, SPACE, &row(key), mode, None).unwrap().unwrap());
    }
    assert_eq!(locks.held(), 1_000_000);
    let way = locks.take_row(2, SPACE, &row(700_001), Mode::Exclusive, None).unwrap();
    assert_eq!(way, Err(InTheWay::Sessions(vec![1])));
    let mut locked = 0;
    for key in 0..1_000_003 {
        let is_locked = !free(key, Mode::Exclusive);
        assert_eq!(!free(key, Mode::Shared), is_locked && key % 2 > 0, "{key}");
        locked += usize::from(is_locked);
    }
    assert_eq!(locked, 1_000_000);
    // Both modes, each given back by itself; a second session that shares.
    let shared = 700_001 * 2 % 1_000_003 / 2 * 2;
    assert!(!free(shared, Mode::Exclusive) && free(shared, Mode::Shared));
    assert_eq!(locks.take_row(1, SPACE, &row(shared), Mode::Exclusive, None).unwrap(), Ok(true));
    assert!(!free(shared, Mode::Shared));
    locks.release_row(1, SPACE, &row(shared), Mode::Exclusive);
    assert!(free(shared, Mode::Shared) && !free(shared, Mode::Exclusive));
    assert_eq!(locks.take_row(2, SPACE, &row(shared), Mode::Shared, None).unwrap(), Ok(true));
    locks.release_row(1, SPACE, &row(shared), Mode::Shared);
    assert!(free(shared, Mode::Exclusive));
    assert_eq!(locks.counts_seen()[&1], 999_999);
    // A prepared transaction keeps what it has locked to change.
    locks.release_reads(1, &[]);
    assert!((0..1_000_003).step_by(97).all(|key| free(key, Mode::Exclusive) || key % 2 > 0));
    locks.release_all(1, &[]);
    assert_eq!((locks.held(), locks.inner.lock().locks.crowds().bytes()), (1, 0));
}

#[test]
fn locks_of_changed_rows_are_released_if_there_are_many() {
    let locks = locks(20_000);
    for rows in [63u64, 64, 5000] {
        (0..rows).for_each(|key| {
            assert!(locks.take_row(1, SPACE, &row(key), Mode::Exclusive, None).unwrap().unwrap());
        });
        let keys: Vec<[u8; 4]> = (0..rows).map(row).collect();
        let given = locks.release_changed(1, SPACE, keys.iter().map(|key| &key[..]));
        assert_eq!(given as u64, if rows < 64 { 0 } else { rows });
        assert_eq!(locks.held() as u64, rows - given as u64);
        // Undone: the rows are locked as before and are not counted twice.
        for _ in 0..2 {
            keys.iter().for_each(|key| locks.take_again(1, SPACE, key).unwrap());
        }
        assert_eq!(locks.held() as u64, rows);
        for key in &keys {
            assert!(locks.admit(2, SPACE, key, WantedLock::SHARED).unwrap().is_some());
        }
        locks.release_all(1, &[]);
        assert_eq!(locks.held(), 0);
    }
}
