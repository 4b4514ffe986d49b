//! The row locks of sessions that hold many: beyond the first [`CROWD`] of a session, which are entries of a table (`names`), its locks
//! on single rows are keys in compact sets, one for each tree and for each way of having a row (`compact`).
//!
//! A row is in at most one set: in that of its modes. A check whether a row is locked asks each session that has sets in the tree;
//! there are few, for each holds many locks.

use super::compact::Set;
use super::names::Modes;
use super::{Mode, NameRef};
use hashbrown::HashMap;
use terrace_tier::page::SpaceId;

/// The number of a session's locks that are entries of the table of names; the next ones are in sets.
pub const CROWD: u32 = 1024;

/// What one session holds in one tree, by [`Modes::number`].
#[derive(Default)]
struct Sets([Set; 3]);

impl Sets {
    fn modes(&self, key: &[u8]) -> Modes {
        let sets = Modes::ANY.into_iter().zip(&self.0);
        sets.filter(|(_, set)| set.len() > 0 && set.has(key))
            .map(|(modes, _)| modes)
            .next()
            .unwrap_or_default()
    }
    fn len(&self) -> usize {
        self.0.iter().map(Set::len).sum()
    }
    fn bytes(&self) -> usize {
        self.0.iter().map(Set::bytes).sum()
    }
    /// From these modes to those.
    fn change(&mut self, key: &[u8], from: Modes, to: Modes) {
        if let Some(set) = from.number() {
            self.0[set].remove(key);
        }
        if let Some(set) = to.number() {
            self.0[set].insert(key);
        }
    }
}

pub struct Crowds {
    trees: HashMap<SpaceId, Vec<(u64, Sets)>>,
    bytes: usize,
    /// [`CROWD`], but in tests.
    pub from: u32,
}

impl Default for Crowds {
    fn default() -> Crowds {
        Crowds { trees: HashMap::new(), bytes: 0, from: CROWD }
    }
}

impl Crowds {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }
    /// What the sets take in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn in_tree(&self, space: SpaceId) -> &[(u64, Sets)] {
        if self.trees.is_empty() {
            return &[];
        }
        self.trees.get(&space).map_or(&[][..], Vec::as_slice)
    }

    /// Which session has the row, and in which mode: the stronger one, if in both.
    pub fn owners(&self, name: NameRef<'_>) -> impl Iterator<Item = (u64, Mode)> {
        let owners = self.in_tree(name.space).iter().map(move |(owner, sets)| (*owner, sets.modes(name.key)));
        owners.filter(|(_, modes)| !modes.is_empty()).map(|(owner, modes)| (owner, modes.strongest()))
    }

    pub fn modes(&self, session: u64, name: NameRef<'_>) -> Modes {
        let mine = self.in_tree(name.space).iter().find(|(owner, _)| *owner == session);
        mine.map_or(Modes::default(), |(_, sets)| sets.modes(name.key))
    }

    /// The session has the row in these modes, which may be none, and had it in those.
    pub fn change(&mut self, session: u64, name: NameRef<'_>, from: Modes, to: Modes) {
        let owners = self.trees.entry(name.space).or_default();
        let at = owners.iter().position(|(owner, _)| *owner == session).unwrap_or_else(|| {
            owners.push((session, Sets::default()));
            owners.len() - 1
        });
        let sets = &mut owners[at].1;
        let before = sets.bytes();
        sets.change(name.key, from, to);
        self.bytes = self.bytes + sets.bytes() - before;
        if sets.len() == 0 {
            owners.swap_remove(at);
            if owners.is_empty() {
                self.trees.remove(&name.space);
            }
        }
    }

    /// Takes the session's rows away that it has in shared mode alone, and that mode of the others: how many it has not any more.
    pub fn remove_all_shared(&mut self, session: u64) -> usize {
        let mut count = 0;
        self.each_of(session, |sets| {
            let shared = Modes::of(Mode::Shared);
            if let Some(set) = shared.number() {
                count += std::mem::take(&mut sets.0[set]).len();
            }
            let mut after = None;
            loop {
                let mut some = Vec::new();
                let next = sets.0[Modes::BOTH].some(after.as_deref(), 1024, |key| some.push(key.to_vec()));
                for key in &some {
                    sets.change(key, Modes::ANY[Modes::BOTH], Modes::of(Mode::Exclusive));
                }
                after = next;
                if after.is_none() {
                    break;
                }
            }
        });
        count
    }

    /// Takes all of the session's rows away: how many they were.
    pub fn remove_all(&mut self, session: u64) -> usize {
        let mut count = 0;
        self.each_of(session, |sets| count += std::mem::take(sets).len());
        count
    }

    fn each_of(&mut self, session: u64, mut change: impl FnMut(&mut Sets)) {
        if self.trees.is_empty() {
            return;
        }
        for owners in self.trees.values_mut() {
            for (_, sets) in owners.iter_mut().filter(|(owner, _)| *owner == session) {
                let before = sets.bytes();
                change(sets);
                self.bytes = self.bytes + sets.bytes() - before;
            }
            owners.retain(|(_, sets)| sets.len() > 0);
        }
        self.trees.retain(|_, owners| !owners.is_empty());
    }

    /// The trees in which the session has rows.
    pub fn spaces_of(&self, session: u64) -> impl Iterator<Item = SpaceId> {
        let has = move |owners: &[(u64, Sets)]| owners.iter().any(|(owner, _)| *owner == session);
        self.trees.iter().filter(move |(_, owners)| has(owners)).map(|(space, _)| *space)
    }

    /// The sessions with rows in compact sets, and the tree of each.
    pub fn owners_of_all(&self) -> Vec<(SpaceId, u64)> {
        let owners =
            self.trees.iter().flat_map(|(space, owners)| owners.iter().map(|(owner, _)| (*space, *owner)));
        owners.collect()
    }
    /// How many rows a session has, tree by tree.
    pub fn counts(&self) -> impl Iterator<Item = (u64, usize)> {
        self.trees.values().flatten().map(|(owner, sets)| (*owner, sets.len()))
    }
    /// Calls `each` with up to `max` rows above `after` that the session has in the tree in these modes. Returns the last, if there may be more.
    pub fn some(
        &self,
        (space, session): (SpaceId, u64),
        modes: Modes,
        after: Option<&[u8]>,
        max: usize,
        each: impl FnMut(&[u8]),
    ) -> Option<Vec<u8>> {
        let (_, sets) = self.in_tree(space).iter().find(|(owner, _)| *owner == session)?;
        sets.0[modes.number()?].some(after, max, each)
    }

    #[cfg(test)]
    pub fn check_invariants(&self) {
        let sets = || self.trees.values().flatten().map(|(_, sets)| sets);
        sets().flat_map(|sets| &sets.0).for_each(Set::check_invariants);
        assert!(sets().all(|sets| sets.len() > 0));
        assert_eq!(sets().map(Sets::bytes).sum::<usize>(), self.bytes);
    }
}
