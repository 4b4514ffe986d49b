//! Several threads on one tree.

use super::*;
use std::sync::atomic::AtomicBool;

fn key(n: u64) -> Vec<u8> {
    format!("some/prefix/{:08}", n.wrapping_mul(7919) % 100_000).into_bytes()
}

/// Each thread owns the keys that are equal to its number modulo the threads, so it knows what it must
/// find; scans see everybody's.
fn stress(frames: usize, threads: u64, steps: u64, seed: u64, flush: bool) {
    let w = world(frames);
    let stop = AtomicBool::new(false);
    let live: u64 = std::thread::scope(|scope| {
        let flusher = flush.then(|| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    testing::flush_all(&w.pages, &w.below);
                    std::thread::yield_now();
                }
            })
        });
        let workers: Vec<_> = (0..threads)
            .map(|me| {
                let w = &w;
                scope.spawn(move || worker(w, me, threads, steps, seed + me))
            })
            .collect();
        let live = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        if let Some(flusher) = flusher {
            flusher.join().unwrap();
        }
        live
    });
    let report = checked(&w.tree);
    assert_eq!(report.rows, live);
    assert_eq!(w.tree.rows(), live);
    testing::flush_all(&w.pages, &w.below);
    replay_gives_the_same_pages(&w);
}

fn worker(w: &World, me: u64, threads: u64, steps: u64, seed: u64) -> u64 {
    let mut dice = Dice(seed);
    let mut mine = std::collections::BTreeMap::new();
    let mut cursor = Cursor::new(w.tree.clone(), Access::Normal);
    let mut hint = Hint::default();
    for step in 0..steps {
        let key = key(dice.below(3_000) * threads + me);
        let shrinking = step / (steps / 6).max(1) % 2 == 1;
        match dice.below(10) {
            0..3 => {
                let found = w.tree.get(&key, Access::Normal, |v| v.map(<[u8]>::to_vec)).unwrap();
                assert_eq!(found.as_ref(), mine.get(&key));
            }
            3 => scan(&mut cursor, &key, &mut dice),
            9 if shrinking && dice.below(16) == 0 => {
                let mut keys: Vec<_> = (0..40).map(|_| self::key(dice.below(3_000) * threads + me)).collect();
                keys.sort();
                let sorted: Vec<_> = keys.iter().map(|key| &key[..]).collect();
                w.tree.sweep(&mut &sorted[..], Urgency::Normal, |_| true).unwrap();
                keys.iter().for_each(|key| _ = mine.remove(key));
            }
            n if (n < 8) == shrinking => {
                assert_eq!(w.tree.remove(&key).unwrap(), mine.remove(&key).is_some());
            }
            _ => {
                let value = vec![dice.next() as u8; 20 + dice.below(300) as usize];
                w.tree
                    .modify(&mut hint, &key, Plan::put(value.len()), |spot| {
                        assert_eq!(spot.value(), mine.get(&key).map(|v: &Vec<u8>| &v[..]));
                        spot.put(&value);
                        Ok::<_, TreeError>(Flow::Done)
                    })
                    .unwrap();
                mine.insert(key, value);
            }
        }
    }
    for (key, value) in &mine {
        let found = w.tree.get(key, Access::Normal, |v| v == Some(&value[..])).unwrap();
        assert!(found, "{:?} is lost", String::from_utf8_lossy(key));
    }
    mine.len() as u64
}

fn scan(cursor: &mut Cursor, key: &[u8], dice: &mut Dice) {
    let forward = dice.below(2) == 0;
    let seek = if forward { Seek::AtLeast(key) } else { Seek::AtMost(key) };
    let mut more = cursor.seek(seek).unwrap();
    let mut last = key.to_vec();
    for step in 0..dice.below(300) {
        if !more {
            break;
        }
        let here = cursor.key().to_vec();
        let moved = if forward { here > last } else { here < last };
        assert!(moved || step == 0 && here == last);
        last = here;
        more = if forward { cursor.next() } else { cursor.prev() }.unwrap();
    }
}

#[test]
fn threads_find_what_they_put_while_others_split_and_merge() {
    for seed in 0..3 {
        stress(4000, 4, 20_000, 100 * seed, false);
    }
}

#[test]
fn threads_find_what_they_put_when_hardly_anything_fits_memory() {
    stress(120, 4, 6_000, 77, true);
}

#[test]
fn a_tree_that_others_split_and_merge_is_whole_whenever_it_is_checked() {
    let w = world(4000);
    let stop = AtomicBool::new(false);
    let change = |me: u64| {
        while !stop.load(Ordering::Relaxed) {
            (0..3_000).for_each(|n| assert!(w.tree.put(&key(2 * n + me), &[1; 200]).unwrap()));
            (0..3_000).for_each(|n| assert!(w.tree.remove(&key(2 * n + me)).unwrap()));
        }
    };
    let found = std::thread::scope(|scope| {
        for me in [0, 1] {
            let change = &change;
            scope.spawn(move || change(me));
        }
        // Slow, so that something changes during each walk that is not alone.
        let count = |rows: &mut u64, _: &[u8], _: &[u8]| {
            *rows += 1;
            if (*rows).is_multiple_of(100) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        let found: Vec<_> = (0..20).map(|_| w.tree.check_beside(count)).collect();
        stop.store(true, Ordering::Relaxed);
        found
    });
    for (rows, report) in found.into_iter().map(|found| found.unwrap()) {
        assert_eq!((report.faults, rows), (Vec::new(), report.rows));
    }
    assert_eq!(checked(&w.tree).rows, 0);
}

#[test]
fn a_split_waits_for_a_walk_that_freezes_the_structure_and_can_be_cancelled() {
    let w = world(400);
    let sched = w.pages.world().sched.clone();
    let fill = |from: u64| (from..from + 1000).try_for_each(|n| w.tree.put(&key(n), &[1; 100]).map(drop));
    fill(0).unwrap();
    let before = w.tree.space().counts().pages;
    let closed = w.tree.space().still().close(&*sched).unwrap();
    let cancel = Arc::new(terrace_io::cancel::Cancel::default());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let _scope = cancel.scope();
            fill(1000)
        });
        while w.tree.rows() == 1000 {
            std::thread::yield_now();
        }
        cancel.cancel();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(
            matches!(error, TreeError::Read(terrace_tier::memory::lower_tiers::ReadError::Cancelled)),
            "{error}"
        );
        assert_eq!(w.tree.space().counts().pages, before);
        let waiting = scope.spawn(|| fill(1000));
        assert!(checked(&w.tree).faults.is_empty());
        drop(closed);
        waiting.join().unwrap().unwrap();
    });
    assert!(w.tree.space().counts().pages > before);
    checked(&w.tree);
}
