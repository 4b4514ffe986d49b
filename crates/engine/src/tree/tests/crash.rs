//! Every prefix of the log, cut between two mini-transactions, is a whole tree.

use super::*;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use terrace_tier::page::{Glsn, PAGE_SIZE, PageId};
use terrace_tier::redo;

type Images = HashMap<PageId, Vec<u8>>;

/// A world that starts with what recovery made of the log.
fn recovered(images: &Images) -> World {
    let (pages, below, log) = testing::pages(500);
    for (id, image) in images {
        below.images.lock().insert(*id, image.clone().into_boxed_slice());
    }
    let tree = Arc::new(Tree::open(&pages, SPACE).unwrap());
    World { tree, pages, below, log }
}

/// Random puts and removes with wide entries, so that structure changes are frequent. Returns, for each, the
/// end of the log after it, the key, and its value from then on.
fn history(w: &World, seed: u64) -> Vec<(Glsn, Vec<u8>, Option<Vec<u8>>)> {
    let mut dice = Dice(seed);
    let mut history = Vec::new();
    for step in 0..1200 {
        let n = dice.below(150);
        let mut key = vec![b'k'; 1 + (n as usize * 37) % 1200];
        key.extend_from_slice(&n.to_be_bytes());
        let value = (dice.below(10) < if step / 300 % 2 == 0 { 9 } else { 1 })
            .then(|| vec![n as u8; dice.below(900) as usize]);
        match &value {
            Some(value) => drop(w.tree.put(&key, value).unwrap()),
            None => drop(w.tree.remove(&key).unwrap()),
        }
        history.push((w.log.appended_now(), key, value));
    }
    history
}

trait Appended {
    fn appended_now(&self) -> Glsn;
}
impl Appended for MemoryLog {
    fn appended_now(&self) -> Glsn {
        terrace_log::Redo::appended(self)
    }
}

#[test]
fn every_prefix_of_the_log_is_a_whole_tree_that_heals_when_it_is_written() {
    let mut unposted = 0;
    for seed in 0..3 {
        let w = world(500);
        let created = w.log.appended_now();
        let history = history(&w, seed);
        assert!(w.tree.counters.merges.load(Ordering::Relaxed) > 5, "{:?}", w.tree.counters);
        let records = w.log.records.lock().clone();
        let mut images = Images::new();
        let mut ops = history.iter().peekable();
        let mut model = BTreeMap::new();
        for (i, (id, bytes, end)) in records.iter().enumerate() {
            let image = images.entry(*id).or_insert_with(|| vec![0; PAGE_SIZE]);
            redo::apply(image, *id, bytes, *end).unwrap();
            let is_boundary = records.get(i + 1).is_none_or(|next| next.2 != *end);
            if !is_boundary || *end < created {
                continue;
            }
            while let Some((_, key, value)) = ops.next_if(|(after, ..)| after <= end) {
                match value {
                    Some(value) => drop(model.insert(key.clone(), value.clone())),
                    None => drop(model.remove(key)),
                }
            }
            // A change's own mini-transaction comes before those that follow it up.
            let mut now = model.clone();
            if let Some((_, key, value)) = ops.peek() {
                let is_in = tree_value(&images, key);
                if is_in == *value {
                    match value {
                        Some(value) => drop(now.insert(key.clone(), value.clone())),
                        None => drop(now.remove(key)),
                    }
                }
            }
            unposted += check_recovered(&images, &now, i % 5 == 0);
        }
    }
    assert!(unposted > 50, "only {unposted} crashes fell between two steps");
}

fn tree_value(images: &Images, key: &[u8]) -> Option<Vec<u8>> {
    recovered(images).tree.get(key, Access::Normal, |v| v.map(<[u8]>::to_vec)).unwrap()
}

/// Returns how many pages were between two steps.
fn check_recovered(images: &Images, model: &BTreeMap<Vec<u8>, Vec<u8>>, also_write: bool) -> usize {
    let w = recovered(images);
    let mut entries = model.iter();
    let report =
        w.tree.check(&mut |k, v| assert_eq!(entries.next(), Some((&k.to_vec(), &v.to_vec())))).unwrap();
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
    assert_eq!(report.rows, model.len() as u64);
    if also_write && !report.unposted.is_empty() {
        for key in model.keys() {
            w.tree.put(key, b"").unwrap();
        }
        // A page without entries is not come by: put something into each.
        for n in 0..150u64 {
            let mut key = vec![b'k'; 1 + (n as usize * 37) % 1200];
            key.extend_from_slice(&n.to_be_bytes());
            w.tree.put(&key, b"").unwrap();
        }
        assert!(checked(&w.tree).unposted.is_empty());
        assert!(w.tree.counters.finished_for_others.load(Ordering::Relaxed) > 0);
    }
    report.unposted.len()
}
