//! The tree against `BTreeMap`.

use super::*;
use crate::tree::run::{Run, Step, Wanted};
use std::collections::BTreeMap;
use std::ops::Bound;
use terrace_log::record_bound;
use terrace_tier::memory::mtr::Mtr;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Kinds of keys: short, with shared prefixes, up to the longest.
#[derive(Clone, Copy, Debug)]
enum Keys {
    Numbers,
    Prefixed,
    Wild,
    Long,
}

fn key(kind: Keys, dice: &mut Dice, range: u64) -> Vec<u8> {
    let n = dice.below(range);
    match kind {
        Keys::Numbers => n.to_be_bytes().to_vec(),
        Keys::Prefixed => format!("customer/{:03}/order/{:06}", n % 17, n).into_bytes(),
        Keys::Wild => {
            let mut d = Dice(n);
            let len = d.below(40) as usize;
            (0..len).map(|_| (d.below(3) * 127) as u8).collect()
        }
        Keys::Long => {
            let mut d = Dice(n);
            let shared = [0, 100, 3000, 3490][d.below(4) as usize];
            let len = (shared + d.below(3500 - shared as u64 + 1) as usize).clamp(8, MAX_KEY);
            let mut key = vec![(d.below(2) * 255) as u8; len];
            key[len - 8..].copy_from_slice(&n.to_be_bytes());
            key
        }
    }
}

fn value(dice: &mut Dice, key_len: usize) -> Vec<u8> {
    let max = max_inline_value(key_len);
    let len = match dice.below(10) {
        0 => 0,
        1 => dice.below(max as u64 + 1) as usize,
        _ => dice.below(120) as usize,
    };
    let fill = dice.next() as u8;
    let mut value = vec![fill; len.min(max)];
    if let Some(first) = value.first_mut() {
        *first = dice.next() as u8;
    }
    value
}

fn seek_agrees(cursor: &mut Cursor, model: &Model, key: &[u8], dice: &mut Dice) {
    let up = |bound: Bound<&[u8]>| model.range::<[u8], _>((bound, Bound::Unbounded)).next();
    let down = |bound: Bound<&[u8]>| model.range::<[u8], _>((Bound::Unbounded, bound)).next_back();
    let (seek, expected) = match dice.below(6) {
        0 => (Seek::First, model.first_key_value()),
        1 => (Seek::Last, model.last_key_value()),
        2 => (Seek::AtLeast(key), up(Bound::Included(key))),
        3 => (Seek::After(key), up(Bound::Excluded(key))),
        4 => (Seek::AtMost(key), down(Bound::Included(key))),
        _ => (Seek::Before(key), down(Bound::Excluded(key))),
    };
    let found = cursor.seek(seek).unwrap();
    let mut expected = expected.map(|(k, v)| (k.clone(), v.clone()));
    assert_eq!(found, expected.is_some(), "{seek:?}");
    for _ in 0..dice.below(30) {
        let Some((k, v)) = &expected else { break };
        assert!(cursor.key() == k && cursor.value() == v);
        let forward = dice.below(4) > 0;
        expected = if forward { up(Bound::Excluded(k)) } else { down(Bound::Excluded(k)) }
            .map(|(k, v)| (k.clone(), v.clone()));
        let moved = if forward { cursor.next() } else { cursor.prev() }.unwrap();
        assert_eq!(moved, expected.is_some());
    }
}

/// Puts values, and now and then ends a run, or fails.
struct Puts<'a> {
    values: &'a [Vec<u8>],
    old: Vec<Option<Vec<u8>>>,
    dice: &'a mut Dice,
}

impl Run for Puts<'_> {
    type Error = TreeError;

    fn decide(
        &mut self,
        number: usize,
        spot: &mut LeafPosition<'_, '_>,
        log: u64,
    ) -> std::result::Result<Step, TreeError> {
        let needs = record_bound(spot.key().len() + self.values[number].len() + 200);
        match self.dice.below(40) {
            _ if number > 0 && needs > log => return Ok(Step::Full),
            0 if number > 0 => return Ok(Step::Full),
            1 => return Err(TreeError::Bulk("no")),
            _ => {}
        }
        self.old.push(spot.value().map(<[u8]>::to_vec));
        spot.put(&self.values[number]);
        Ok(Step::Done)
    }
    fn finish(&mut self, _: &mut Mtr<'_>) {}
}

/// Some keys get values in runs.
fn put_together(
    tree: &Tree,
    hint: &mut Hint,
    model: &mut Model,
    (kind, range): (Keys, u64),
    dice: &mut Dice,
    most: u64,
) {
    let mut keys: Vec<_> = (0..1 + dice.below(most)).map(|_| key(kind, dice, range)).collect();
    keys.sort();
    let values: Vec<_> = keys.iter().map(|key| value(dice, key.len())).collect();
    let wanted = keys.iter().zip(&values).map(|(key, value)| Wanted { key, value_max: Some(value.len()) });
    let wanted: Vec<_> = wanted.collect();
    let mut from = 0;
    while from < keys.len() {
        let mut puts = Puts { values: &values[from..], old: Vec::new(), dice };
        let made = tree.modify_run(hint, &wanted[from..], (16 << 10, Urgency::Normal), &mut puts);
        let old = puts.old;
        assert_eq!(made.as_ref().map_or(0, |made| *made), old.len(), "an error is of the first key alone");
        for old in old {
            assert_eq!(model.insert(keys[from].clone(), values[from].clone()), old);
            from += 1;
        }
    }
}

fn run(kind: Keys, seed: u64, frames: usize, steps: usize, range: u64) {
    let w = world(frames);
    let mut dice = Dice(seed);
    let mut model = Model::new();
    let mut cursor = Cursor::new(w.tree.clone(), Access::Normal);
    let mut hint = Hint::default();
    for step in 0..steps {
        let key = key(kind, &mut dice, range);
        // Phases of growth and of shrinking.
        let removes = if (step / (steps / 4).max(1)).is_multiple_of(2) { 2 } else { 7 };
        match dice.below(10) {
            0 if dice.below(20) == 0 => {
                let mut keys: Vec<_> =
                    (0..dice.below(200)).map(|_| self::key(kind, &mut dice, range)).collect();
                keys.sort();
                let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
                let goes = |value: &[u8]| value.first().is_none_or(|first| first % 4 != 0);
                w.tree.sweep(&mut &keys[..], Urgency::Normal, goes).unwrap();
                for key in keys {
                    if model.get(key).is_some_and(|value| goes(value)) {
                        model.remove(key);
                    }
                }
            }
            // Nothing is flushed meanwhile: no more than half of the frames are dirty before, and each change takes two or three.
            1 if dice.below(20) == 0 => {
                let most = (frames as u64 / 10).min(100);
                put_together(&w.tree, &mut hint, &mut model, (kind, range), &mut dice, most);
            }
            n if n < removes => {
                assert_eq!(
                    w.tree.remove(&key).unwrap(),
                    model.remove(&key).is_some(),
                    "seed {seed} step {step}"
                );
            }
            8 => {
                let found = w.tree.get(&key, Access::Normal, |v| v.map(<[u8]>::to_vec)).unwrap();
                assert_eq!(found.as_ref(), model.get(&key), "seed {seed} step {step}");
            }
            9 => seek_agrees(&mut cursor, &model, &key, &mut dice),
            _ => {
                let value = value(&mut dice, key.len());
                let mut next = Vec::new();
                let mut old = None;
                w.tree
                    .modify(&mut hint, &key, Plan::put(value.len()), |spot| {
                        old = spot.value().map(<[u8]>::to_vec);
                        match spot.next_key(&mut next)? {
                            NextKey::Missing(page) => return Ok::<_, TreeError>(Flow::Load(page)),
                            NextKey::End => next.clear(),
                            NextKey::Found => {}
                        }
                        spot.put(&value);
                        Ok(Flow::Done)
                    })
                    .unwrap();
                let above = model.range::<[u8], _>((Bound::Excluded(&key[..]), Bound::Unbounded)).next();
                assert_eq!(above.map_or(&[][..], |(k, _)| k), next, "seed {seed} step {step}");
                assert_eq!(model.insert(key, value), old, "seed {seed} step {step}");
            }
        }
        if frames < 200 && step % 7 == 0 {
            testing::flush_all(&w.pages, &w.below);
        }
    }
    let mut entries = model.iter();
    let report =
        w.tree.check(&mut |k, v| assert_eq!(entries.next(), Some((&k.to_vec(), &v.to_vec())))).unwrap();
    assert!(report.faults.is_empty(), "seed {seed}: {:#?}", report.faults);
    assert_eq!(report.rows, model.len() as u64);
    assert!(report.unposted.is_empty(), "alone, nothing is left between two steps");
    assert_eq!(w.tree.rows(), model.len() as u64);
    w.tree.save_rows(Urgency::Normal).unwrap();
    assert_eq!(w.tree.space().counts().rows, model.len() as u64);
    drop(cursor);
    testing::flush_all(&w.pages, &w.below);
    replay_gives_the_same_pages(&w);
    // And empty again: everything is given back.
    for key in model.keys() {
        if w.pages.pool().dirty_frames() > frames / 2 {
            testing::flush_all(&w.pages, &w.below);
        }
        assert!(w.tree.remove(key).unwrap());
    }
    let report = checked(&w.tree);
    assert_eq!(report.rows, 0);
}

#[test]
fn random_changes_agree_with_a_map_for_numbers() {
    run(Keys::Numbers, 1, 4000, 40_000, 8_000);
}

#[test]
fn random_changes_agree_with_a_map_for_shared_prefixes() {
    run(Keys::Prefixed, 2, 4000, 40_000, 8_000);
}

#[test]
fn random_changes_agree_with_a_map_for_wild_keys() {
    for seed in 0..5 {
        run(Keys::Wild, seed, 2000, 6_000, 3_000);
    }
}

#[test]
fn random_changes_agree_with_a_map_for_the_longest_keys() {
    for seed in 0..5 {
        run(Keys::Long, seed, 2000, 4_000, 700);
    }
}

#[test]
fn random_changes_agree_with_a_map_when_hardly_anything_fits_memory() {
    run(Keys::Prefixed, 7, 40, 8_000, 3_000);
    run(Keys::Long, 8, 40, 2_000, 300);
}
