//! Gap locks: ranges of keys in which only their owners insert.
//!
//! A range is a range of *possible* keys, not of entries: it needs no entry to hang on, so nothing is inherited when
//! an entry is inserted into it or purged from it, and it ends where the read's condition ends instead of at the next
//! entry. Ranges of one owner in one tree that touch are one: a scan holds one range, however long it is.

use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};
use terrace_tier::page::SpaceId;

/// The end of a range, exclusive; None: the end of the tree.
type End = Option<Vec<u8>>;

fn reaches(end: &End, key: &[u8]) -> bool {
    end.as_deref().is_none_or(|end| end >= key)
}

/// What one session holds in one tree: starts (inclusive) and ends. No two touch.
#[derive(Default)]
pub struct Ranges(BTreeMap<Box<[u8]>, End>);

impl Ranges {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The last range that starts at the key or below.
    fn at_or_below(&self, key: &[u8]) -> Option<(&[u8], &End)> {
        self.0.range::<[u8], _>((Unbounded, Included(key))).next_back().map(|(start, end)| (&**start, end))
    }

    pub fn has(&self, key: &[u8]) -> bool {
        self.at_or_below(key).is_some_and(|(_, end)| end.as_deref().is_none_or(|end| end > key))
    }

    /// Whether every key of the range is in one of these.
    pub fn covers(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        if to.is_some_and(|to| to <= from) {
            return true;
        }
        self.at_or_below(from).is_some_and(|(_, end)| match (end, to) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(to)) => &**end >= to,
        })
    }

    /// Whether the range would become part of one that is there.
    pub fn touches(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        let last = match to {
            Some(to) => self.at_or_below(to),
            None => self.0.last_key_value().map(|(start, end)| (&**start, end)),
        };
        last.is_some_and(|(_, end)| reaches(end, from))
    }

    /// The usual case: a scan upward goes on where the last range ends, which becomes longer (true) or reaches as far already
    /// (false). None: it is not that.
    pub fn go_on(&mut self, from: &[u8], to: &[u8]) -> Option<bool> {
        let (start, Some(end)) = self.0.iter_mut().next_back()? else { return None };
        if **start > *from || end[..] < *from {
            return None;
        }
        let longer = end[..] < *to;
        if longer {
            end.clear();
            end.extend_from_slice(to);
        }
        Some(longer)
    }

    pub fn add(&mut self, from: &[u8], to: Option<&[u8]>) {
        let mut end: End = to.map(Into::into);
        // From the right, for the last one that touches may reach further than the new one.
        loop {
            let last = match &end {
                Some(end) => self.0.range_mut::<[u8], _>((Unbounded, Included(&**end))).next_back(),
                None => self.0.iter_mut().next_back(),
            };
            let Some((other, other_end)) = last.filter(|(_, end)| reaches(end, from)) else { break };
            let further = match (&*other_end, &end) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(theirs), Some(ours)) => theirs > ours,
            };
            if further {
                end = other_end.take();
            }
            // As a rule a scan goes on: its range becomes longer where it is.
            if **other <= *from {
                *other_end = end;
                return;
            }
            let other = other.clone();
            self.0.remove(&other);
        }
        self.0.insert(from.into(), end);
    }
}

/// The gap locks of all sessions.
#[derive(Default)]
pub struct Gaps(HashMap<SpaceId, Vec<(u64, Ranges)>>);

impl Gaps {
    pub fn of(&mut self, space: SpaceId, session: u64) -> &mut Ranges {
        let owners = self.0.entry(space).or_default();
        let at = match owners.iter().position(|(owner, _)| *owner == session) {
            Some(at) => at,
            None => {
                owners.push((session, Ranges::default()));
                owners.len() - 1
            }
        };
        &mut owners[at].1
    }

    /// Whether nobody holds anything.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the other sessions that keep the key free of inserts.
    pub fn others_at(&self, session: u64, space: SpaceId, key: &[u8], out: &mut Vec<u64>) {
        let owners = self.0.get(&space).map_or(&[][..], Vec::as_slice);
        out.extend(
            owners
                .iter()
                .filter(|(owner, ranges)| *owner != session && ranges.has(key))
                .map(|(owner, _)| *owner),
        );
    }

    /// The other sessions that hold anything in the tree.
    pub fn others_in(&self, session: u64, space: SpaceId) -> Vec<u64> {
        let owners = self.0.get(&space).map_or(&[][..], Vec::as_slice);
        owners
            .iter()
            .filter(|(owner, ranges)| *owner != session && ranges.count() > 0)
            .map(|(owner, _)| *owner)
            .collect()
    }

    /// Forgets what the session holds in the tree. Returns how many ranges these were.
    pub fn remove(&mut self, space: SpaceId, session: u64) -> usize {
        let Some(owners) = self.0.get_mut(&space) else { return 0 };
        let Some(at) = owners.iter().position(|(owner, _)| *owner == session) else { return 0 };
        let count = owners.swap_remove(at).1.count();
        if owners.is_empty() {
            self.0.remove(&space);
        }
        count
    }
}
