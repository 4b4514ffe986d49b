//! A large sorted set: which of its members are in memory. They are ordered among themselves; a rank is known when all of them are there.

use super::{Body, Ordered, Zset};
use crate::value::large::{
    self, BYTES_MAX, BadElement, ELEMENTS_MAX, ElementValue, Head, LARGE_ZSET, Large, Resident,
};

impl Zset {
    pub fn large(&self) -> Option<&Large> {
        self.large.as_deref()
    }

    pub fn large_mut(&mut self) -> Option<&mut Large> {
        self.large.as_deref_mut()
    }

    /// A large sorted set of which no member is in memory.
    pub fn of_head(head: &Head) -> Zset {
        Zset { body: Body::Ordered(Box::default()), large: Some(Box::new(Large::of(head))) }
    }

    pub fn head(&self) -> Option<Head> {
        let large = self.large.as_ref()?;
        let (generation, len) = (large.generation, large.len() as u64);
        Some(Head { kind: LARGE_ZSET, generation, len, next_ms: None, packs: None })
    }

    pub fn is_to_be_large(&self) -> bool {
        let Body::Ordered(ordered) = &self.body else { return false };
        let bytes = ordered.table.key_bytes() + ordered.table.len() * size_of::<f64>();
        self.large.is_none() && (ordered.table.len() > ELEMENTS_MAX || bytes > BYTES_MAX)
    }

    pub fn become_large(&mut self, generation: u64) {
        let Body::Ordered(ordered) = &self.body else { return };
        self.large = Some(Box::new(Large::with(generation, &ordered.table)));
    }

    pub fn end_large(&mut self) {
        self.check_complete();
        self.large = None;
    }

    pub(super) fn check_found(&self, found: bool, member: &[u8]) {
        if let Some(large) = &self.large
            && !found
        {
            large.check_absent(member);
        }
    }

    pub(super) fn check_complete(&self) {
        if let Some(large) = &self.large {
            large.check_complete();
        }
    }

    pub fn has_element(&self, member: &[u8]) -> bool {
        matches!(&self.body, Body::Ordered(ordered) if ordered.table.contains(member))
    }

    /// Whether the sorted set is large and is known not to have a member.
    pub fn is_known_absent(&self, member: &[u8]) -> bool {
        !self.has_element(member) && self.large.as_ref().is_some_and(|large| large.knows_absent(member))
    }

    pub fn elements_in_memory(&self) -> usize {
        match &self.body {
            Body::Ordered(ordered) => ordered.table.len(),
            Body::Pack(_) => 0,
        }
    }

    pub fn stored_element(&self, member: &[u8]) -> Option<ElementValue> {
        let Body::Ordered(ordered) = &self.body else { return None };
        let score = ordered.table.get(member)?;
        Some(ElementValue { expires_ms: None, value: large::score_bytes(*score).into() })
    }

    /// Takes a member of storage into memory: no change.
    pub fn admit(&mut self, member: &[u8], stored: &ElementValue) -> Result<(), BadElement> {
        let (Some(large), Body::Ordered(ordered)) = (&self.large, &mut self.body) else { return Ok(()) };
        // What memory knows is newer, or the same.
        if !ordered.table.contains(member) && !large.knows_absent(member) {
            ordered.insert_new(member.into(), large::parse_score(&stored.value)?);
        }
        Ok(())
    }

    pub fn evict_elements(
        &mut self,
        random: u64,
        count: usize,
        may_evict: impl FnMut(&[u8]) -> bool,
    ) -> usize {
        let (Some(large), Body::Ordered(ordered)) = (&mut self.large, &mut self.body) else { return 0 };
        large::evict(large, &mut **ordered, random, count, may_evict)
    }
}

impl Resident for Ordered {
    fn count(&self) -> usize {
        self.table.len()
    }
    fn name_at(&self, place: u32) -> &[u8] {
        self.table.key_at(place)
    }
    fn take(&mut self, member: &[u8]) -> Option<i64> {
        self.remove(member);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::limits::CollectionLimits;

    /// Members leave memory and come back in any order: ranks are right when all are there.
    #[test]
    fn evicted_members_come_back_to_their_places() {
        let limits = CollectionLimits::default();
        let mut zset = Zset::new();
        let score = |at: u32| f64::from(at * 7919 % 1000) - 500.0;
        let name = |at: u32| format!("m{at}").into_bytes();
        (0..1000).for_each(|at| _ = zset.insert(&name(at), score(at), &limits));
        assert!(zset.is_to_be_large());
        let before: Vec<(Vec<u8>, f64)> =
            zset.iter_from(0).map(|(member, score)| (member.to_vec(), score)).collect();
        zset.become_large(1);
        assert_eq!(zset.large_mut().unwrap().take_changed().len(), 1000);
        for round in 0..20 {
            assert!(zset.evict_elements(round * 37, 30, |member| member != b"m7") > 0);
        }
        assert!(zset.has_element(b"m7") && !zset.large().unwrap().is_complete());
        assert_eq!((zset.len(), zset.elements_in_memory()), (1000, 400));
        for at in 0..1000 {
            let stored = ElementValue { expires_ms: None, value: large::score_bytes(score(at)).into() };
            zset.admit(&name(at), &stored).unwrap();
        }
        zset.large_mut().unwrap().completed();
        let after: Vec<(Vec<u8>, f64)> =
            zset.iter_from(0).map(|(member, score)| (member.to_vec(), score)).collect();
        assert_eq!(after, before);
        assert_eq!(zset.remove_ranks(0..5), 5);
        assert_eq!((zset.len(), zset.large_mut().unwrap().take_changed().len()), (995, 5));
        zset.evict_elements(0, 10, |_| true);
        assert_eq!(zset.admit(&before[500].0, &ElementValue::default()), Ok(()), "a member that is there");
        zset.evict_elements(0, 2000, |_| true);
        assert_eq!(zset.admit(&before[500].0, &ElementValue::default()), Err(BadElement));
    }
}
