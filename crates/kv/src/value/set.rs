//! A set: an intset while all members are integers, a listpack while it is small, else a hash table.
//!
//! Redis 7.0 has no listpack encoding for sets and keeps small sets of strings in hash tables. This server keeps
//! them in listpacks to save memory, and `encoding` names them `hashtable`, as clients of 7.0 expect.
//!
//! A large set (`large`) has a table of the members that are in memory.

mod elements;

use super::integer::parse_integer;
use super::intset::Intset;
use super::large::{self, Large};
use super::limits::CollectionLimits;
use super::listpack::{Element, Listpack};
use super::table::Table;

#[derive(Debug, Clone)]
pub enum SetBody {
    Ints(Intset),
    Pack(Listpack),
    Table(Table<()>),
}

#[derive(Debug)]
pub struct Set {
    body: SetBody,
    /// `None`: the set is stored whole.
    large: Option<Box<Large>>,
}

/// A copy is a collection of its own: it is not large yet.
impl Clone for Set {
    fn clone(&self) -> Set {
        self.check_complete();
        Set { body: self.body.clone(), large: None }
    }
}

impl Default for Set {
    fn default() -> Self {
        Self::new()
    }
}

impl Set {
    pub fn new() -> Self {
        Set { body: SetBody::Ints(Intset::new()), large: None }
    }

    pub fn body(&self) -> &SetBody {
        &self.body
    }

    pub fn len(&self) -> usize {
        if let Some(large) = &self.large {
            return large.len();
        }
        match &self.body {
            SetBody::Ints(ints) => ints.len(),
            SetBody::Pack(pack) => pack.len(),
            SetBody::Table(table) => table.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn heap_bytes(&self) -> usize {
        let body = match &self.body {
            SetBody::Ints(ints) => ints.heap_bytes(),
            SetBody::Pack(pack) => pack.heap_bytes(),
            SetBody::Table(table) => table.heap_bytes(),
        };
        body + self.large.as_ref().map_or(0, |large| large.heap_bytes())
    }

    pub fn encoding(&self) -> &'static str {
        match &self.body {
            SetBody::Ints(_) => "intset",
            SetBody::Pack(_) | SetBody::Table(_) => "hashtable",
        }
    }

    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.body {
            SetBody::Ints(ints) => parse_integer(member).is_some_and(|value| ints.contains(value)),
            SetBody::Pack(pack) => pack.first().is_some_and(|first| pack.find(member, first, 1).is_some()),
            SetBody::Table(table) => {
                let found = table.contains(member);
                if let Some(large) = &self.large
                    && !found
                {
                    large.check_absent(member);
                }
                found
            }
        }
    }

    /// Returns whether `member` is new.
    pub fn insert(&mut self, member: &[u8], limits: &CollectionLimits) -> bool {
        match &mut self.body {
            SetBody::Ints(ints) => match parse_integer(member) {
                Some(value) => {
                    let inserted = ints.insert(value);
                    if inserted && ints.len() > limits.set_max_intset_entries {
                        self.to_table();
                    }
                    return inserted;
                }
                None if ints.len() < limits.set_max_listpack_entries
                    && member.len() <= limits.set_max_listpack_value =>
                {
                    self.to_pack()
                }
                None => self.to_table(),
            },
            SetBody::Pack(pack) => {
                if pack.first().is_some_and(|first| pack.find(member, first, 1).is_some()) {
                    return false;
                }
                if pack.len() >= limits.set_max_listpack_entries
                    || member.len() > limits.set_max_listpack_value
                    || !pack.has_room(member.len())
                {
                    self.to_table();
                }
            }
            SetBody::Table(_) => {}
        }
        match &mut self.body {
            SetBody::Ints(_) => false,
            SetBody::Pack(pack) => {
                pack.push_back(member);
                true
            }
            SetBody::Table(table) => {
                if table.contains(member) {
                    return false;
                }
                table.insert_new(member.into(), ());
                if let Some(large) = &mut self.large {
                    large.check_absent(member);
                    large.set(member, true);
                }
                true
            }
        }
    }

    /// Returns whether `member` was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.body {
            SetBody::Ints(ints) => parse_integer(member).is_some_and(|value| ints.remove(value)),
            SetBody::Pack(pack) => match pack.first().and_then(|first| pack.find(member, first, 1)) {
                Some(pos) => {
                    pack.remove(pos);
                    true
                }
                None => false,
            },
            SetBody::Table(table) => {
                let removed = table.remove(member).is_some();
                if let Some(large) = &mut self.large {
                    match removed {
                        true => large.removed(member),
                        false => large.check_absent(member),
                    }
                }
                removed
            }
        }
    }

    fn to_pack(&mut self) {
        let mut pack = Listpack::new();
        for member in self.iter() {
            pack.push_back(member.bytes(&mut itoa::Buffer::new()));
        }
        self.body = SetBody::Pack(pack);
    }

    fn to_table(&mut self) {
        let mut table = Table::with_capacity(self.len() + 1);
        for member in self.iter() {
            table.insert_new(member.to_box(), ());
        }
        self.body = SetBody::Table(table);
    }

    /// The member at `index` in an order that holds while the set doesn't change.
    pub fn nth(&self, index: usize) -> Option<Element<'_>> {
        self.check_complete();
        match &self.body {
            SetBody::Ints(ints) => ints.get(index).map(Element::Int),
            SetBody::Pack(pack) => pack.at(index).map(|pos| pack.get(pos)),
            SetBody::Table(table) => {
                (index < table.len()).then(|| Element::Bytes(table.key_at(index as u32)))
            }
        }
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = Element<'_>> + '_> {
        self.check_complete();
        match &self.body {
            SetBody::Ints(ints) => Box::new(ints.iter().map(Element::Int)),
            SetBody::Pack(pack) => Box::new(pack.iter()),
            SetBody::Table(table) => Box::new(table.iter().map(|(key, ())| Element::Bytes(key))),
        }
    }

    /// Visits members from `cursor` on and returns the next cursor; 0 is the end. Compact encodings are
    /// visited whole.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'_>)) -> u64 {
        match &self.body {
            SetBody::Table(table) if self.large.is_some() => {
                self.check_complete();
                large::scan_by_position(table, cursor, count, |member, ()| visit(Element::Bytes(member)))
            }
            SetBody::Table(table) => table.scan(cursor, count, |key, ()| visit(Element::Bytes(key))),
            SetBody::Ints(_) | SetBody::Pack(_) => {
                self.iter().for_each(visit);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn encodings_change_at_the_limits_of_redis() {
        let limits = CollectionLimits::default();
        let mut set = Set::new();
        for value in 0..512 {
            set.insert(value.to_string().as_bytes(), &limits);
        }
        assert_eq!(set.encoding(), "intset");
        set.insert(b"512", &limits);
        assert_eq!(set.encoding(), "hashtable");
        let mut set = Set::new();
        set.insert(b"1", &limits);
        set.insert(b"a", &limits);
        assert!(matches!(set.body(), SetBody::Pack(_)));
        assert_eq!(set.encoding(), "hashtable");
        set.insert(&[b'x'; 65], &limits);
        assert!(matches!(set.body(), SetBody::Table(_)));
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (0u16..300).prop_map(|value| value.to_string().into_bytes()),
            1 => (0u16..300).prop_map(|value| format!("m{value}").into_bytes()),
            1 => (60usize..70).prop_map(|len| vec![b'k'; len]),
        ]
    }

    proptest! {
        #[test]
        fn a_set_equals_a_sorted_set(steps in prop::collection::vec((0u8..3, member()), 0..500)) {
            let limits = CollectionLimits { set_max_intset_entries: 40, set_max_listpack_entries: 60, ..CollectionLimits::default() };
            let (mut set, mut model) = (Set::new(), BTreeSet::new());
            for (kind, member) in steps {
                if kind > 0 {
                    prop_assert_eq!(set.insert(&member, &limits), model.insert(member.clone()));
                } else {
                    prop_assert_eq!(set.remove(&member), model.remove(&member));
                }
                prop_assert_eq!(set.contains(&member), model.contains(&member));
                prop_assert_eq!(set.len(), model.len());
            }
            let all: BTreeSet<Vec<u8>> = set.iter().map(Element::to_vec).collect();
            prop_assert_eq!(&all, &model);
            let by_index: BTreeSet<Vec<u8>> = (0..set.len()).map(|at| set.nth(at).unwrap().to_vec()).collect();
            prop_assert_eq!(&by_index, &model);
            let mut scanned = BTreeSet::new();
            let mut cursor = 0;
            loop {
                cursor = set.scan(cursor, 7, |member| { scanned.insert(member.to_vec()); });
                if cursor == 0 { break; }
            }
            prop_assert_eq!(&scanned, &model);
        }
    }
}
