//! Locks on ranges of keys: gap locks, in which only their owners insert, and row locks of neighbours, on all rows that
//! are in there.
//!
//! A range is a range of *possible* keys, not of entries: it needs no entry to hang on, so nothing is inherited when
//! an entry is inserted into it or purged from it, and it ends where the read's condition ends instead of at the next
//! entry. Ranges of one owner in one tree that touch are one: a scan holds one range, however long it is.
//!
//! The owner of a range of row locks has locked every row that lives in it. A row that another session inserts there, because
//! no gap lock keeps it out, is not locked: its key is left out of the range.

use super::Mode;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use terrace_tier::page::SpaceId;

/// The end of a range, exclusive; None: the end of the tree.
type End = Option<Vec<u8>>;

fn reaches(end: &End, key: &[u8]) -> bool {
    end.as_deref().is_none_or(|end| end >= key)
}

/// Longer ends count by themselves, with what the allocator adds.
const SHORT_END: usize = 32;

fn long(key: &[u8]) -> usize {
    if key.len() > SHORT_END { key.len() + 16 } else { 0 }
}
fn long_end(end: &End) -> usize {
    end.as_deref().map_or(0, long)
}

/// How many ranges, and the bytes of their long ends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Size {
    pub ranges: usize,
    pub long: usize,
}

impl std::ops::Add for Size {
    type Output = Size;
    fn add(self, other: Size) -> Size {
        Size { ranges: self.ranges + other.ranges, long: self.long + other.long }
    }
}

/// What one session holds in one tree: starts (inclusive) and ends. No two touch. And the bytes of long ends.
#[derive(Default)]
pub struct Ranges(BTreeMap<Box<[u8]>, End>, usize);

impl Ranges {
    pub fn count(&self) -> usize {
        self.0.len()
    }
    pub fn size(&self) -> Size {
        Size { ranges: self.0.len(), long: self.1 }
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

    /// Whether the range would become part of an existing one.
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
            self.1 = self.1 + long(to) - long(end);
            end.clear();
            end.extend_from_slice(to);
        }
        Some(longer)
    }

    /// Whether the last range ends just behind the key: with the least key above it.
    fn ends_behind(&self, key: &[u8]) -> bool {
        let last = self.0.last_key_value().and_then(|(_, end)| end.as_deref());
        last.is_some_and(|end| end.split_last().is_some_and(|(last, rest)| *last == 0 && rest == key))
    }

    /// Takes one key out of the range that it is in.
    pub fn leave_out(&mut self, key: &[u8]) {
        let Some((start, end)) = self.0.range_mut::<[u8], _>((Unbounded, Included(key))).next_back() else {
            return;
        };
        let (at_start, rest) = (**start == *key, end.clone());
        match &rest {
            Some(end) if end[..] <= *key => return,
            _ if at_start => {
                self.1 -= long(key) + long_end(end);
                self.0.remove(key);
            }
            _ => {
                self.1 = self.1 + long(key) - long_end(end);
                *end = Some(key.into());
            }
        }
        // What is left above it begins with the next key that there can be.
        let next = [key, &[0]].concat();
        if rest.as_ref() != Some(&next) {
            self.1 += long(&next) + long_end(&rest);
            self.0.insert(next.into(), rest);
        }
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
            let theirs = long_end(other_end);
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
                self.1 = self.1 + long_end(&end) - theirs;
                *other_end = end;
                return;
            }
            let other = other.clone();
            self.1 -= long(&other) + theirs;
            self.0.remove(&other);
        }
        self.1 += long(from) + long_end(&end);
        self.0.insert(from.into(), end);
    }
}

/// What one session holds in one tree.
#[derive(Default)]
pub struct SessionRanges {
    pub gaps: Ranges,
    shared: Ranges,
    exclusive: Ranges,
}

impl SessionRanges {
    pub fn rows(&mut self, mode: Mode) -> &mut Ranges {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }
    /// The usual case: a scan upward has locked `beside` last, and nothing above, and locks the next row, with the gap from
    /// `from` up to it. Returns how many bytes long ends have more, and had; None: it is not that, and nothing is changed.
    pub fn go_on(&mut self, mode: Mode, from: &[u8], beside: &[u8], key: &[u8]) -> Option<(usize, usize)> {
        let (rows, others) = match mode {
            Mode::Shared => (&mut self.shared, &self.exclusive),
            Mode::Exclusive => (&mut self.exclusive, &self.shared),
        };
        if others.count() > 0 || beside >= key || !rows.ends_behind(beside) {
            return None;
        }
        let before = self.gaps.1 + rows.1;
        self.gaps.go_on(from, key)?;
        if let Some((_, Some(end))) = rows.0.iter_mut().next_back() {
            rows.1 -= long(end);
            end.clear();
            end.extend_from_slice(key);
            end.push(0);
            rows.1 += long(end);
        }
        Some((self.gaps.1 + rows.1, before))
    }
    /// Ranges of row locks.
    fn rows_size(&self) -> Size {
        self.shared.size() + self.exclusive.size()
    }
    fn is_empty(&self) -> bool {
        self.gaps.count() + self.rows_size().ranges == 0
    }
    /// The strongest mode in which a row at the key is locked.
    pub fn mode_at(&self, key: &[u8]) -> Option<Mode> {
        if self.exclusive.has(key) {
            return Some(Mode::Exclusive);
        }
        self.shared.has(key).then_some(Mode::Shared)
    }
    fn ranges(&self, held: RangeKind) -> &Ranges {
        match held {
            RangeKind::Gaps => &self.gaps,
            RangeKind::Rows(Mode::Shared) => &self.shared,
            RangeKind::Rows(Mode::Exclusive) => &self.exclusive,
        }
    }
    fn leave_out(&mut self, key: &[u8]) {
        self.shared.leave_out(key);
        self.exclusive.leave_out(key);
    }
}

/// Which of a session's ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeKind {
    Gaps,
    Rows(Mode),
}

impl RangeKind {
    pub const ALL: [RangeKind; 3] =
        [RangeKind::Rows(Mode::Exclusive), RangeKind::Rows(Mode::Shared), RangeKind::Gaps];
}

/// The ranges of all sessions.
#[derive(Default)]
pub struct Gaps(HashMap<SpaceId, Vec<(u64, SessionRanges)>>);

impl Gaps {
    pub fn of(&mut self, space: SpaceId, session: u64) -> &mut SessionRanges {
        let owners = self.0.entry(space).or_default();
        let at = match owners.iter().position(|(owner, _)| *owner == session) {
            Some(at) => at,
            None => {
                owners.push((session, SessionRanges::default()));
                owners.len() - 1
            }
        };
        &mut owners[at].1
    }

    /// What the session holds in the tree, if no other session holds anything there.
    pub fn only(&mut self, space: SpaceId, session: u64) -> Option<&mut SessionRanges> {
        match &mut self.0.get_mut(&space)?[..] {
            [(owner, kept)] if *owner == session => Some(kept),
            _ => None,
        }
    }

    /// Whether no session holds anything.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of all long ends, counted anew.
    #[cfg(test)]
    pub fn long_by_looking(&self) -> usize {
        let kept = self.0.values().flatten().map(|(_, kept)| kept);
        let ranges = kept.flat_map(|kept| [&kept.gaps, &kept.shared, &kept.exclusive]);
        ranges.flat_map(|ranges| &ranges.0).map(|(start, end)| long(start) + long_end(end)).sum()
    }

    fn in_tree(&self, space: SpaceId) -> &[(u64, SessionRanges)] {
        self.0.get(&space).map_or(&[][..], Vec::as_slice)
    }

    /// The strongest mode in which the session has locked rows at the key as a part of a range.
    pub fn mode_at(&self, session: u64, space: SpaceId, key: &[u8]) -> Option<Mode> {
        self.in_tree(space).iter().find(|(owner, _)| *owner == session)?.1.mode_at(key)
    }

    /// Adds the other sessions whose row locks on a range with the key conflict with a lock in this mode.
    pub fn others_lock(&self, session: u64, (space, key): (SpaceId, &[u8]), mode: Mode, out: &mut Vec<u64>) {
        let conflicts = |kept: &SessionRanges| {
            kept.exclusive.has(key) || (mode == Mode::Exclusive && kept.shared.has(key))
        };
        let others = self.in_tree(space).iter().filter(|(owner, _)| *owner != session);
        out.extend(others.filter(|(_, kept)| conflicts(kept)).map(|(owner, _)| *owner));
    }

    /// Whether another session has locked rows on a range with the key.
    pub fn others_lock_any(&self, session: u64, space: SpaceId, key: &[u8]) -> bool {
        self.in_tree(space).iter().any(|(owner, kept)| *owner != session && kept.mode_at(key).is_some())
    }

    /// Leaves the key out of all row locks on ranges, but this session's own. Returns what its owners had in the tree,
    /// and what they have.
    pub fn leave_out(&mut self, session: u64, space: SpaceId, key: &[u8]) -> (Size, Size) {
        let (mut before, mut after) = (Size::default(), Size::default());
        let owners = self.0.get_mut(&space).map_or(&mut [][..], Vec::as_mut_slice);
        for (_, kept) in
            owners.iter_mut().filter(|(owner, kept)| *owner != session && kept.mode_at(key).is_some())
        {
            before = before + kept.rows_size();
            kept.leave_out(key);
            after = after + kept.rows_size();
        }
        (before, after)
    }

    /// The session gives back the row lock on one key of its ranges, in this mode. Returns what it had in the tree, and has.
    pub fn give_back(&mut self, session: u64, space: SpaceId, key: &[u8], mode: Mode) -> (Size, Size) {
        let owners = self.0.get_mut(&space).map_or(&mut [][..], Vec::as_mut_slice);
        let Some((_, kept)) = owners.iter_mut().find(|(owner, _)| *owner == session) else {
            return Default::default();
        };
        let before = kept.rows_size();
        kept.rows(mode).leave_out(key);
        (before, kept.rows_size())
    }

    /// Adds the other sessions that keep the key free of inserts.
    pub fn others_at(&self, session: u64, space: SpaceId, key: &[u8], out: &mut Vec<u64>) {
        let others = self.in_tree(space).iter().filter(|(owner, _)| *owner != session);
        out.extend(others.filter(|(_, kept)| kept.gaps.has(key)).map(|(owner, _)| *owner));
    }

    /// Adds the other sessions that keep any of the tree's keys free of inserts.
    pub fn others_in(&self, session: u64, space: SpaceId, out: &mut Vec<u64>) {
        let others = self.in_tree(space).iter().filter(|(owner, _)| *owner != session);
        out.extend(others.filter(|(_, kept)| kept.gaps.count() > 0).map(|(owner, _)| *owner));
    }

    /// Which session holds something, and in which tree.
    pub fn owners(&self) -> Vec<(SpaceId, u64)> {
        let owners =
            self.0.iter().flat_map(|(space, owners)| owners.iter().map(|(owner, _)| (*space, *owner)));
        owners.collect()
    }
    /// How many ranges a session holds, tree by tree.
    pub fn counts(&self) -> impl Iterator<Item = (u64, usize)> {
        let count = |kept: &SessionRanges| kept.gaps.count() + kept.rows_size().ranges;
        self.0.values().flatten().map(move |(owner, kept)| (*owner, count(kept)))
    }
    /// Calls `each` with starts and ends of up to `max` ranges that the session holds in the tree, those that start above `after`. Returns the
    /// start of the last one, if there may be more.
    pub fn some(
        &self,
        (space, session): (SpaceId, u64),
        held: RangeKind,
        after: Option<&[u8]>,
        max: usize,
        mut each: impl FnMut(&[u8], Option<&[u8]>),
    ) -> Option<Box<[u8]>> {
        let (_, kept) = self.in_tree(space).iter().find(|(owner, _)| *owner == session)?;
        let above = after.map_or(Unbounded, Excluded);
        let mut ranges = kept.ranges(held).0.range::<[u8], _>((above, Unbounded)).take(max);
        let mut last = None;
        let mut count = 0;
        for (start, end) in &mut ranges {
            each(start, end.as_deref());
            (last, count) = (Some(start), count + 1);
        }
        last.filter(|_| count == max).cloned()
    }

    /// A session that holds nothing in the tree makes no later look slower.
    pub fn forget_if_empty(&mut self, session: u64, space: SpaceId) {
        let Some(owners) = self.0.get_mut(&space) else { return };
        owners.retain(|(owner, kept)| *owner != session || !kept.is_empty());
        if owners.is_empty() {
            self.0.remove(&space);
        }
    }

    /// Forgets what the session holds in the tree: its gaps, and its rows in these modes. Returns how large these were.
    pub fn remove(&mut self, space: SpaceId, session: u64, rows: &[Mode]) -> (Size, Size) {
        let Some(owners) = self.0.get_mut(&space) else { return Default::default() };
        let Some(at) = owners.iter().position(|(owner, _)| *owner == session) else {
            return Default::default();
        };
        let kept = &mut owners[at].1;
        let mut gone = SessionRanges { gaps: std::mem::take(&mut kept.gaps), ..SessionRanges::default() };
        for mode in rows {
            *gone.rows(*mode) = std::mem::take(kept.rows(*mode));
        }
        if kept.is_empty() {
            owners.swap_remove(at);
        }
        if owners.is_empty() {
            self.0.remove(&space);
        }
        (gone.gaps.size(), gone.rows_size())
    }
}
