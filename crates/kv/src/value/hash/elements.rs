//! A large hash: which of its fields are in memory.

use super::{FieldExpiries, Hash, HashBody};
use crate::value::large::{self, BYTES_MAX, ELEMENTS_MAX, ElementValue, Head, LARGE_HASH, Large, Resident};
use crate::value::table::Table;

impl Hash {
    pub fn large(&self) -> Option<&Large> {
        self.large.as_deref()
    }

    pub fn large_mut(&mut self) -> Option<&mut Large> {
        self.large.as_deref_mut()
    }

    /// A large hash of which no field is in memory.
    pub fn of_head(head: &Head) -> Hash {
        let mut hash = Hash::new();
        hash.to_table();
        hash.large = Some(Box::new(Large::of(head)));
        hash
    }

    pub fn head(&self) -> Option<Head> {
        let large = self.large.as_ref()?;
        let next_ms = self.next_expiry().into_iter().chain(large.later_ms()).min();
        Some(Head {
            kind: LARGE_HASH,
            generation: large.generation,
            len: large.len() as u64,
            next_ms,
            packs: None,
        })
    }

    pub fn is_to_be_large(&self) -> bool {
        let HashBody::Table { table, value_bytes } = &self.body else { return false };
        self.large.is_none() && (table.len() > ELEMENTS_MAX || table.key_bytes() + value_bytes > BYTES_MAX)
    }

    pub fn become_large(&mut self, generation: u64) {
        let HashBody::Table { table, .. } = &self.body else { return };
        self.large = Some(Box::new(Large::with(generation, table)));
    }

    pub fn end_large(&mut self) {
        self.check_complete();
        self.large = None;
    }

    pub(super) fn check_found(&self, found: bool, field: &[u8]) {
        if let Some(large) = &self.large
            && !found
        {
            large.check_absent(field);
        }
    }

    pub(super) fn check_complete(&self) {
        if let Some(large) = &self.large {
            large.check_complete();
        }
    }

    pub fn has_element(&self, field: &[u8]) -> bool {
        matches!(&self.body, HashBody::Table { table, .. } if table.contains(field))
    }

    /// Whether the hash is large and is known not to have a field.
    pub fn is_known_absent(&self, field: &[u8]) -> bool {
        !self.has_element(field) && self.large.as_ref().is_some_and(|large| large.knows_absent(field))
    }

    pub fn elements_in_memory(&self) -> usize {
        match &self.body {
            HashBody::Table { table, .. } => table.len(),
            HashBody::Pack(_) => 0,
        }
    }

    pub fn stored_element(&self, field: &[u8]) -> Option<ElementValue> {
        let HashBody::Table { table, .. } = &self.body else { return None };
        Some(ElementValue { expires_ms: self.expiry_of(field), value: table.get(field)?.to_vec() })
    }

    pub fn admit(&mut self, field: &[u8], stored: &ElementValue) {
        let Some(large) = &self.large else { return };
        // What memory knows is newer, or the same.
        if self.has_element(field) || large.knows_absent(field) {
            return;
        }
        if let HashBody::Table { table, value_bytes } = &mut self.body {
            *value_bytes += stored.value.len();
            table.insert_new(field.into(), stored.value.as_slice().into());
        }
        if let Some(at_ms) = stored.expires_ms {
            self.note_expiry(field, at_ms);
        }
    }

    pub fn evict_elements(
        &mut self,
        random: u64,
        count: usize,
        may_evict: impl FnMut(&[u8]) -> bool,
    ) -> usize {
        let (Some(large), HashBody::Table { table, value_bytes }) = (&mut self.large, &mut self.body) else {
            return 0;
        };
        let mut fields = Fields { table, value_bytes, expiries: &mut self.expiries };
        large::evict(large, &mut fields, random, count, may_evict)
    }
}

/// The fields that are in memory.
struct Fields<'h> {
    table: &'h mut Table<Box<[u8]>>,
    value_bytes: &'h mut usize,
    expiries: &'h mut Option<Box<FieldExpiries>>,
}

impl Resident for Fields<'_> {
    fn count(&self) -> usize {
        self.table.len()
    }
    fn name_at(&self, place: u32) -> &[u8] {
        self.table.key_at(place)
    }
    fn take(&mut self, field: &[u8]) -> Option<i64> {
        *self.value_bytes -= self.table.remove(field).map_or(0, |removed| removed.value.len());
        let at_ms = self.expiries.as_ref()?.by_field.get(field).copied();
        super::forget_expiry(self.expiries, field);
        at_ms
    }
}
