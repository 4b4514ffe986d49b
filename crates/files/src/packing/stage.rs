//! Small files that wait to be packed, in the order of their paths, and which of them make the next block. Pure.
//!
//! A block is a run of this order: so the files of a directory come into one block, and small directories with their neighbours. A file that is
//! staged can be found here until its block is in the flash cache.

use super::block::Item;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use terrace_io::clock::Nanos;

/// Memory of a staged file beside its bytes and its path.
const OVERHEAD: usize = 128;

fn memory_bytes(item: &Item) -> usize {
    item.bytes.len() + item.path.len() + OVERHEAD
}

pub struct Stage {
    items: BTreeMap<Arc<str>, (Item, Nanos)>,
    bytes: usize,
    bytes_max: usize,
}

/// Where a directory's paths begin.
fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

impl Stage {
    pub fn new(bytes_max: usize) -> Stage {
        Stage { items: BTreeMap::new(), bytes: 0, bytes_max }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// In the order of their paths.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.values().map(|(item, _)| item)
    }

    pub fn get(&self, path: &str) -> Option<&Item> {
        self.items.get(path).map(|(item, _)| item)
    }

    /// Another version of the path is replaced. False: there is no room.
    pub fn add(&mut self, item: Item, now: Nanos) -> bool {
        let before = self.get(&item.path).map_or(0, memory_bytes);
        let after = self.bytes - before + memory_bytes(&item);
        if after > self.bytes_max {
            return false;
        }
        self.bytes = after;
        self.items.insert(item.path.clone(), (item, now));
        true
    }

    pub fn remove(&mut self, path: &str) -> bool {
        let removed = self.items.remove(path);
        self.bytes -= removed.as_ref().map_or(0, |(item, _)| memory_bytes(item));
        removed.is_some()
    }

    /// Whether this very item is still staged; it is not any longer then.
    pub fn take(&mut self, item: &Item) -> bool {
        let is_it = self.get(&item.path).is_some_and(|staged| Arc::ptr_eq(&staged.bytes, &item.bytes));
        is_it && self.remove(&item.path)
    }

    /// When the oldest item came.
    pub fn oldest(&self) -> Option<Nanos> {
        self.items.values().map(|(_, came)| *came).min()
    }

    /// A run of about `block_bytes` around the directory that has the most bytes here. It is empty if nothing is staged.
    pub fn run(&self, block_bytes: usize) -> Vec<Item> {
        let mut best: (usize, &str) = (0, "");
        let mut current: (usize, &str) = (0, "");
        for (item, _) in self.items.values() {
            let directory = directory_of(&item.path);
            if directory != current.1 {
                current = (0, directory);
            }
            current.0 += item.packed_bytes();
            if current.0 > best.0 {
                best = current;
            }
        }
        let Some(start) = self.items.keys().find(|path| directory_of(path) == best.1) else {
            return Vec::new();
        };
        let mut run = Vec::new();
        let mut sum = 0;
        let mut take = |item: &Item| {
            let fits = run.is_empty() || sum + item.packed_bytes() <= block_bytes;
            if fits {
                sum += item.packed_bytes();
                run.push(item.clone());
            }
            fits
        };
        let mut after = self.items.range::<str, _>((Bound::Included(&**start), Bound::Unbounded));
        let ended = !after.all(|(_, (item, _))| take(item));
        if !ended {
            // All up to the end fit: the rest of the block is for what is before them.
            let before = self.items.range::<str, _>((Bound::Unbounded, Bound::Excluded(&**start)));
            let _ = before.rev().all(|(_, (item, _))| take(item));
            run.sort_by(|a, b| a.path.cmp(&b.path));
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(path: &str, version: u64, len: usize) -> Item {
        Item { path: path.into(), version, bytes: vec![version as u8; len].into() }
    }

    fn stage(items: &[(&str, usize)]) -> Stage {
        let mut stage = Stage::new(1 << 20);
        items.iter().for_each(|(path, len)| assert!(stage.add(item(path, 1, *len), 5)));
        stage
    }

    fn paths(run: &[Item]) -> Vec<&str> {
        run.iter().map(|item| &*item.path).collect()
    }

    #[test]
    fn a_block_is_the_fullest_directory_with_its_neighbours_in_the_order_of_paths() {
        let stage = stage(&[("b/1", 900), ("b/2", 900), ("a/1", 100), ("c/1", 300), ("d/1", 100)]);
        assert_eq!(paths(&stage.run(1 << 20)), ["a/1", "b/1", "b/2", "c/1", "d/1"]);
        assert_eq!(paths(&stage.run(2200)), ["b/1", "b/2", "c/1"]);
        assert_eq!(paths(&stage.run(1000)), ["b/1"], "a directory may take several blocks");
        assert_eq!(paths(&stage.run(10)), ["b/1"], "a block has a file at least");
        assert!(Stage::new(9).run(10).is_empty());
    }

    #[test]
    fn the_limit_holds_and_a_replaced_item_is_not_taken_for_its_successor() {
        let mut stage = Stage::new(2 * (1000 + 1 + OVERHEAD));
        let old = item("a", 1, 1000);
        assert!(stage.add(old.clone(), 1) && stage.add(item("b", 1, 1000), 2));
        assert!(!stage.add(item("c", 1, 1), 3));
        assert!(stage.add(item("a", 2, 900), 4), "a new version takes the old one's room");
        assert!(!stage.take(&old), "what was packed is the old version");
        let new = stage.get("a").unwrap().clone();
        assert!(stage.take(&new) && stage.len() == 1 && stage.oldest() == Some(2));
        assert!(stage.remove("b") && !stage.remove("b"));
        assert_eq!(stage.bytes(), 0);
    }
}
