//! A large set: which of its members are in memory.

use super::{Set, SetBody};
use crate::value::large::{self, BYTES_MAX, ELEMENTS_MAX, ElementValue, Head, LARGE_SET, Large};
use crate::value::table::Table;

impl Set {
    pub fn large(&self) -> Option<&Large> {
        self.large.as_deref()
    }

    pub fn large_mut(&mut self) -> Option<&mut Large> {
        self.large.as_deref_mut()
    }

    /// A large set of which no member is in memory.
    pub fn of_head(head: &Head) -> Set {
        Set { body: SetBody::Table(Table::new()), large: Some(Box::new(Large::of(head))) }
    }

    pub fn head(&self) -> Option<Head> {
        let large = self.large.as_ref()?;
        let (generation, len) = (large.generation, large.len() as u64);
        Some(Head { kind: LARGE_SET, generation, len, next_ms: None, packs: None })
    }

    pub fn is_to_be_large(&self) -> bool {
        let SetBody::Table(table) = &self.body else { return false };
        self.large.is_none() && (table.len() > ELEMENTS_MAX || table.key_bytes() > BYTES_MAX)
    }

    pub fn become_large(&mut self, generation: u64) {
        let SetBody::Table(table) = &self.body else { return };
        self.large = Some(Box::new(Large::with(generation, table)));
    }

    pub fn end_large(&mut self) {
        self.check_complete();
        self.large = None;
    }

    pub(super) fn check_complete(&self) {
        if let Some(large) = &self.large {
            large.check_complete();
        }
    }

    pub fn has_element(&self, member: &[u8]) -> bool {
        matches!(&self.body, SetBody::Table(table) if table.contains(member))
    }

    /// Whether the set is large and is known not to have a member.
    pub fn is_known_absent(&self, member: &[u8]) -> bool {
        !self.has_element(member) && self.large.as_ref().is_some_and(|large| large.knows_absent(member))
    }

    pub fn elements_in_memory(&self) -> usize {
        match &self.body {
            SetBody::Table(table) => table.len(),
            _ => 0,
        }
    }

    pub fn stored_element(&self, member: &[u8]) -> Option<ElementValue> {
        self.has_element(member).then(ElementValue::default)
    }

    pub fn admit(&mut self, member: &[u8]) {
        let (Some(large), SetBody::Table(table)) = (&self.large, &mut self.body) else { return };
        // What memory knows is newer, or the same.
        if !table.contains(member) && !large.knows_absent(member) {
            table.insert_new(member.into(), ());
        }
    }

    pub fn evict_elements(
        &mut self,
        random: u64,
        count: usize,
        may_evict: impl FnMut(&[u8]) -> bool,
    ) -> usize {
        let (Some(large), SetBody::Table(table)) = (&mut self.large, &mut self.body) else { return 0 };
        large::evict(large, table, random, count, may_evict)
    }
}
