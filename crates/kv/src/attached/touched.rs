//! The keys of the present group, each with what storage had of it before. Up to eight are searched one after another: most groups have one. More have an index.

use super::Noted;
use crate::storage::Key;
use hashbrown::HashMap;

/// The largest number of keys that is searched without the index.
const SEARCHED_MAX: usize = 8;
/// Places that are kept for the next group.
const KEPT: usize = 256;

#[derive(Default)]
pub struct Touched {
    list: Vec<(Key, Noted)>,
    /// Empty up to [`SEARCHED_MAX`] keys.
    index: HashMap<Key, usize>,
}

impl Touched {
    pub fn get(&self, key: &Key) -> Option<Noted> {
        let at = match self.index.is_empty() {
            true => self.list.iter().position(|(one, _)| one == key),
            false => self.index.get(key).copied(),
        };
        at.map(|at| self.list[at].1)
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.get(key).is_some()
    }

    /// Adds a key that is not there yet.
    pub fn add(&mut self, key: Key, before: Noted) {
        debug_assert!(!self.contains(&key));
        if self.list.len() == SEARCHED_MAX {
            self.index = self.list.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
        }
        if !self.index.is_empty() {
            self.index.insert(key.clone(), self.list.len());
        }
        self.list.push((key, before));
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> + Clone {
        self.list.iter().map(|(key, _)| key)
    }

    /// Begins the next group.
    pub fn clear(&mut self) {
        self.index = HashMap::new();
        self.list.clear();
        self.list.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_with_and_without_the_index() {
        let key = |number: u64| Key::new(0, &number.to_be_bytes());
        let before = |number| Noted { generation: Some(number), ..Noted::default() };
        let mut touched = Touched::default();
        for group in 0..2 {
            for number in 0..40 {
                assert!(!touched.contains(&key(number)), "{group} {number}");
                touched.add(key(number), before(number));
                assert!((0..=number).all(|one| touched.get(&key(one)) == Some(before(one))));
            }
            assert_eq!(touched.keys().count(), 40);
            touched.clear();
        }
    }
}
