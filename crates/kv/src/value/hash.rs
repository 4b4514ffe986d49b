//! A hash: a listpack of field, value, field, value while it is small, else a hash table; and the
//! times at which single fields expire.
//!
//! Expiry times lie beside the fields, so a hash without them pays one pointer. A field whose time has come is
//! still there until `remove_expired` is called: a command calls it before anything else.
//!
//! A large hash (`large`) has a table of the fields that are in memory.
//!
//! Invariant: only fields of the hash have an expiry time, and both indexes of the times agree.

mod elements;

use super::large::{self, Large};
use super::limits::CollectionLimits;
use super::listpack::{Element, Listpack, Pos};
use super::table::Table;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Clone)]
pub enum HashBody {
    Pack(Listpack),
    Table { table: Table<Box<[u8]>>, value_bytes: usize },
}

/// Expiry times of fields, in milliseconds since the epoch.
#[derive(Debug, Clone, Default)]
struct FieldExpiries {
    by_field: HashMap<Box<[u8]>, i64>,
    by_time: BTreeSet<(i64, Box<[u8]>)>,
    bytes: usize,
}

/// What an entry costs in the two indexes beside the field's bytes, about.
const EXPIRY_OVERHEAD: usize = 72;

#[derive(Debug)]
pub struct Hash {
    body: HashBody,
    expiries: Option<Box<FieldExpiries>>,
    /// `None`: the hash is stored whole.
    large: Option<Box<Large>>,
}

/// A copy is a collection of its own: it is not large yet.
impl Clone for Hash {
    fn clone(&self) -> Hash {
        self.check_complete();
        Hash { body: self.body.clone(), expiries: self.expiries.clone(), large: None }
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

impl Hash {
    pub fn new() -> Self {
        Self { body: HashBody::Pack(Listpack::new()), expiries: None, large: None }
    }

    /// A hash of a listpack that holds fields and values in turn. The caller checked that their
    /// number is even and that no field stands twice.
    pub fn from_pack(pack: Listpack) -> Self {
        Self { body: HashBody::Pack(pack), expiries: None, large: None }
    }

    pub fn body(&self) -> &HashBody {
        &self.body
    }

    pub fn len(&self) -> usize {
        if let Some(large) = &self.large {
            return large.len();
        }
        match &self.body {
            HashBody::Pack(pack) => pack.len() / 2,
            HashBody::Table { table, .. } => table.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn heap_bytes(&self) -> usize {
        let body = match &self.body {
            HashBody::Pack(pack) => pack.heap_bytes(),
            HashBody::Table { table, value_bytes } => table.heap_bytes() + value_bytes,
        };
        let large = self.large.as_ref().map_or(0, |large| large.heap_bytes());
        body + large
            + self.expiries.as_ref().map_or(0, |expiries| expiries.bytes + size_of::<FieldExpiries>())
    }

    pub fn encoding(&self) -> &'static str {
        match (&self.body, &self.expiries) {
            (HashBody::Pack(_), None) => "listpack",
            (HashBody::Pack(_), Some(_)) => "listpackex",
            (HashBody::Table { .. }, _) => "hashtable",
        }
    }

    fn find_in_pack(pack: &Listpack, field: &[u8]) -> Option<Pos> {
        pack.first().and_then(|first| pack.find(field, first, 2))
    }

    pub fn get(&self, field: &[u8]) -> Option<Element<'_>> {
        match &self.body {
            HashBody::Pack(pack) => {
                let value = pack.next(Self::find_in_pack(pack, field)?)?;
                Some(pack.get(value))
            }
            HashBody::Table { table, .. } => {
                let found = table.get(field).map(|value| Element::Bytes(value));
                self.check_found(found.is_some(), field);
                found
            }
        }
    }

    pub fn contains(&self, field: &[u8]) -> bool {
        match &self.body {
            HashBody::Pack(pack) => Self::find_in_pack(pack, field).is_some(),
            HashBody::Table { table, .. } => {
                let found = table.contains(field);
                self.check_found(found, field);
                found
            }
        }
    }

    /// Sets a field and forgets its expiry time. Returns whether the field is new.
    pub fn insert(&mut self, field: &[u8], value: &[u8], limits: &CollectionLimits) -> bool {
        let new = self.update(field, value, limits);
        if !new {
            self.persist(field);
        }
        new
    }

    /// Sets a field and keeps its expiry time. Returns whether the field is new.
    pub fn update(&mut self, field: &[u8], value: &[u8], limits: &CollectionLimits) -> bool {
        if let HashBody::Pack(pack) = &mut self.body {
            let largest = field.len().max(value.len());
            if largest > limits.hash_max_listpack_value || !pack.has_room(field.len() + value.len()) {
                self.to_table();
            } else if let Some(pos) = Self::find_in_pack(pack, field) {
                if let Some(old) = pack.next(pos) {
                    pack.replace(old, value);
                }
                return false;
            } else if pack.len() / 2 >= limits.hash_max_listpack_entries {
                self.to_table();
            } else {
                pack.push_back(field);
                pack.push_back(value);
                return true;
            }
        }
        let HashBody::Table { table, value_bytes } = &mut self.body else { return false };
        *value_bytes += value.len();
        let is_new = match table.insert(field, value.into()) {
            Some(old) => {
                *value_bytes -= old.len();
                false
            }
            None => true,
        };
        if let Some(large) = &mut self.large {
            if is_new {
                large.check_absent(field);
            }
            large.set(field, is_new);
        }
        is_new
    }

    /// Returns whether the field was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let removed = match &mut self.body {
            HashBody::Pack(pack) => match Self::find_in_pack(pack, field) {
                Some(pos) => {
                    pack.remove_run(pos, 2);
                    true
                }
                None => false,
            },
            HashBody::Table { table, value_bytes } => match table.remove(field) {
                Some(removed) => {
                    *value_bytes -= removed.value.len();
                    true
                }
                None => false,
            },
        };
        if removed {
            self.forget_expiry(field);
        }
        if let Some(large) = &mut self.large {
            match removed {
                true => large.removed(field),
                false => large.check_absent(field),
            }
        }
        removed
    }

    /// Converts to a hash table, for instance because a command is about to add large fields.
    pub fn to_table(&mut self) {
        let HashBody::Pack(pack) = &self.body else { return };
        let mut table = Table::with_capacity(pack.len() / 2 + 1);
        let mut value_bytes = 0;
        let mut elements = pack.iter();
        while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
            let value = value.to_box();
            value_bytes += value.len();
            table.insert_new(field.to_box(), value);
        }
        self.body = HashBody::Table { table, value_bytes };
    }

    /// The field and value at `index` in an order that holds while the hash doesn't change.
    pub fn nth(&self, index: usize) -> Option<(Element<'_>, Element<'_>)> {
        self.check_complete();
        match &self.body {
            HashBody::Pack(pack) => {
                let field = pack.at(index.checked_mul(2)?)?;
                Some((pack.get(field), pack.get(pack.next(field)?)))
            }
            HashBody::Table { table, .. } => {
                let place = u32::try_from(index).ok().filter(|_| index < table.len())?;
                Some((Element::Bytes(table.key_at(place)), Element::Bytes(table.value_at(place))))
            }
        }
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = (Element<'_>, Element<'_>)> + '_> {
        self.check_complete();
        match &self.body {
            HashBody::Pack(pack) => {
                let mut elements = pack.iter();
                Box::new(std::iter::from_fn(move || Some((elements.next()?, elements.next()?))))
            }
            HashBody::Table { table, .. } => {
                Box::new(table.iter().map(|(field, value)| (Element::Bytes(field), Element::Bytes(value))))
            }
        }
    }

    /// Visits fields from `cursor` on and returns the next cursor; 0 is the end.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'_>, Element<'_>)) -> u64 {
        match &self.body {
            HashBody::Table { table, .. } if self.large.is_some() => {
                self.check_complete();
                large::scan_by_position(table, cursor, count, |field, value| {
                    visit(Element::Bytes(field), Element::Bytes(value))
                })
            }
            HashBody::Table { table, .. } => {
                table.scan(cursor, count, |field, value| visit(Element::Bytes(field), Element::Bytes(value)))
            }
            HashBody::Pack(_) => {
                self.iter().for_each(|(field, value)| visit(field, value));
                0
            }
        }
    }

    /// Sets when a field of the hash expires.
    pub fn expire_at(&mut self, field: &[u8], at_ms: i64) {
        debug_assert!(self.contains(field), "the caller found the field");
        self.note_expiry(field, at_ms);
        if let Some(large) = &mut self.large {
            large.set(field, false);
        }
    }

    fn note_expiry(&mut self, field: &[u8], at_ms: i64) {
        self.forget_expiry(field);
        let expiries = self.expiries.get_or_insert_default();
        expiries.by_field.insert(field.into(), at_ms);
        expiries.by_time.insert((at_ms, field.into()));
        expiries.bytes += 2 * field.len() + EXPIRY_OVERHEAD;
    }

    /// Forgets when a field expires. Returns whether it would have.
    pub fn persist(&mut self, field: &[u8]) -> bool {
        let persisted = self.forget_expiry(field);
        if let Some(large) = &mut self.large
            && persisted
        {
            large.set(field, false);
        }
        persisted
    }

    fn forget_expiry(&mut self, field: &[u8]) -> bool {
        forget_expiry(&mut self.expiries, field)
    }

    pub fn expiry_of(&self, field: &[u8]) -> Option<i64> {
        self.expiries.as_ref()?.by_field.get(field).copied()
    }

    /// When the first field expires that is in memory.
    pub fn next_expiry(&self) -> Option<i64> {
        self.expiries.as_ref()?.by_time.first().map(|(at_ms, _)| *at_ms)
    }

    /// Removes at most `limit` fields whose time has come, and returns how many.
    pub fn remove_expired(&mut self, now_ms: i64, limit: usize) -> usize {
        let mut removed = 0;
        while removed < limit {
            let Some((at_ms, field)) = self.expiries.as_ref().and_then(|expiries| expiries.by_time.first())
            else {
                break;
            };
            if *at_ms > now_ms {
                break;
            }
            let field = field.clone();
            self.remove(&field);
            removed += 1;
        }
        removed
    }
}

/// Returns whether the field had an expiry time.
fn forget_expiry(of: &mut Option<Box<FieldExpiries>>, field: &[u8]) -> bool {
    let Some(expiries) = of else { return false };
    let Some((field, at_ms)) = expiries.by_field.remove_entry(field) else { return false };
    expiries.bytes -= 2 * field.len() + EXPIRY_OVERHEAD;
    expiries.by_time.remove(&(at_ms, field));
    if expiries.by_field.is_empty() {
        *of = None;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn encodings_change_at_the_limits_of_redis() {
        let limits = CollectionLimits::default();
        let mut hash = Hash::new();
        for at in 0..limits.hash_max_listpack_entries {
            hash.insert(format!("f{at}").as_bytes(), b"v", &limits);
        }
        assert_eq!(hash.encoding(), "listpack");
        hash.expire_at(b"f1", 5);
        assert_eq!(hash.encoding(), "listpackex");
        hash.persist(b"f1");
        assert_eq!(hash.encoding(), "listpack");
        hash.insert(b"f1", b"w", &limits);
        assert_eq!(hash.encoding(), "listpack");
        hash.insert(b"new", b"v", &limits);
        assert_eq!(hash.encoding(), "hashtable");
        let mut hash = Hash::new();
        hash.insert(b"f", &[b'v'; 65], &limits);
        assert_eq!(hash.encoding(), "hashtable");
    }

    proptest! {
        #[test]
        fn a_hash_equals_a_map_with_times(
            steps in prop::collection::vec((0u8..7, 0u8..60, 0usize..80, 0i64..100), 0..400),
        ) {
            let limits = CollectionLimits { hash_max_listpack_entries: 30, ..CollectionLimits::default() };
            let mut hash = Hash::new();
            let mut model = BTreeMap::<Vec<u8>, (Vec<u8>, Option<i64>)>::new();
            for (kind, field, len, time) in steps {
                let field = if field % 2 == 0 { field.to_string().into_bytes() } else { format!("f{field}").into_bytes() };
                let value = vec![b'v'; len];
                match kind {
                    0 | 1 => prop_assert_eq!(hash.insert(&field, &value, &limits), model.insert(field.clone(), (value, None)).is_none()),
                    2 => {
                        let time = model.get(&field).and_then(|entry| entry.1);
                        prop_assert_eq!(hash.update(&field, &value, &limits), model.insert(field.clone(), (value, time)).is_none());
                    }
                    3 => prop_assert_eq!(hash.remove(&field), model.remove(&field).is_some()),
                    4 => if let Some(entry) = model.get_mut(&field) {
                        hash.expire_at(&field, time);
                        entry.1 = Some(time);
                    },
                    5 => prop_assert_eq!(hash.persist(&field), model.get_mut(&field).is_some_and(|entry| entry.1.take().is_some())),
                    _ => {
                        let before = model.len();
                        model.retain(|_, entry| entry.1.is_none_or(|at| at > time / 2));
                        prop_assert_eq!(hash.remove_expired(time / 2, usize::MAX), before - model.len());
                    }
                }
                prop_assert_eq!(hash.expiry_of(&field), model.get(&field).and_then(|entry| entry.1));
                prop_assert_eq!(hash.next_expiry(), model.values().filter_map(|entry| entry.1).min());
                prop_assert_eq!(hash.get(&field).map(Element::to_vec), model.get(&field).map(|entry| entry.0.clone()));
            }
            let all: BTreeMap<Vec<u8>, Vec<u8>> = hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
            prop_assert_eq!(all, model.iter().map(|(field, entry)| (field.clone(), entry.0.clone())).collect());
            for at in 0..hash.len() {
                let (field, value) = hash.nth(at).unwrap();
                prop_assert_eq!(&model[&field.to_vec()].0, &value.to_vec());
            }
        }
    }
}
