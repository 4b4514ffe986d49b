//! Rows that a statement changes one after the other, changed together.
//!
//! Each tree is gone through in the order of its keys, so that what one leaf has is changed under one latch. The entries of
//! secondary indexes come first: a reader without a view finds no entry whose row has gone.
//!
//! The rows are locked by their writer: no other session can come between. Not for entries that must be unique.

use super::super::change::Act;
use super::super::{Txn, TxnState};
use super::{There, far};
use crate::error::{Error, Result};
use crate::row::{self, Head};
use crate::table::Table;
use crate::tree::run::Wanted;
use crate::tree::{MAX_KEY, max_inline_value};
use smallvec::SmallVec;
use terrace_tier::limits::meter;

/// A change at one key of one of a table's trees.
#[derive(Clone, Copy, Debug)]
pub struct KeyChange<'a> {
    pub index: usize,
    /// As in [`super::Entry`]; for a row its primary key.
    pub key: &'a [u8],
    /// As in [`super::Entry`]; for a row 0.
    pub primary_at: usize,
    /// What is put: a row in place of the present one, an entry where none is. None: the present one is deleted.
    pub put: Option<&'a [u8]>,
}

/// Entries that are changed before it is looked again for leaves that only the store has: where there are some, and where the store was met since.
const FAR: usize = 16;
const NEAR: usize = 64;

impl KeyChange<'_> {
    /// The key's first bytes, in an order that never contradicts the keys'.
    fn head(&self) -> u64 {
        let mut head = [0; 8];
        let len = self.key.len().min(8);
        head[..len].copy_from_slice(&self.key[..len]);
        u64::from_be_bytes(head)
    }
}

impl Txn {
    /// Changes and deletes rows, and the entries that come and go with them. All rows are there, and locked by this transaction; no entry
    /// must be unique. Of one key several changes are made in the order given. On an error nothing is changed.
    pub fn change_rows(&self, table: &Table, changes: &mut [KeyChange<'_>]) -> Result<()> {
        if let Some(side) = self.side(table) {
            return side.change_rows(table, changes);
        }
        self.row_operation(table, |state| {
            // Rows last; equal keys stay in order.
            changes.sort_by_cached_key(|change| (change.index.wrapping_sub(1), change.head()));
            state.has_past = true;
            changes.chunk_by_mut(|a, b| a.index == b.index).try_for_each(|of_tree| {
                of_tree.sort_by(|a, b| a.key.cmp(b.key));
                match of_tree[0].index {
                    0 => self.change_sorted_rows(state, table, of_tree),
                    index => self.change_far_entries(state, table, index, of_tree),
                }
            })
        })
    }

    /// Inserts entries as a load has sorted them: keys that ascend, each with its value behind it, of such lengths. None of them must be
    /// unique. On an error none is inserted.
    pub(crate) fn insert_sorted_entries(
        &self,
        table: &Table,
        index: usize,
        mut bytes: &[u8],
        lens: &[(usize, usize)],
    ) -> Result<()> {
        let (mut wanted, mut rests) = (Vec::with_capacity(lens.len()), Vec::with_capacity(lens.len()));
        for (key_len, value_len) in lens {
            let (key, after) = bytes.split_at(*key_len);
            let (value, after) = after.split_at(*value_len);
            bytes = after;
            let Some((_, rest)) = Head::decode(value) else {
                return Err(Error::Corrupt("a value without a head".into()));
            };
            wanted.push(self::wanted(key, Some(rest)));
            rests.push(rest);
        }
        self.row_operation(table, |state| {
            rests.iter().skip(1).try_for_each(|_| self.pay(state, table))?;
            let mut past = false;
            let done = self.change_several(state, table, index, &wanted, |number, old| {
                past |= old.is_some();
                match old {
                    Some((head, _)) if !head.deleted() => Err(Error::Duplicate { index }),
                    _ => Ok(Act::Put(0, rests[number])),
                }
            });
            state.has_past |= past;
            done
        })
    }

    fn change_sorted_rows(
        &self,
        state: &mut TxnState,
        table: &Table,
        changes: &[KeyChange<'_>],
    ) -> Result<()> {
        let is_large = |change: &KeyChange<'_>| {
            change.put.is_some_and(|row| row.len() + row::HEAD > max_inline_value(change.key.len()))
        };
        for run in changes.chunk_by(|a, b| is_large(a) == is_large(b)) {
            run.iter().try_for_each(|_| self.pay(state, table))?;
            if is_large(&run[0]) {
                for KeyChange { key, put, .. } in run {
                    self.put_row(state, table, key, put.unwrap_or(&[]).into(), There::Yes)?;
                }
                continue;
            }
            let wanted: Vec<Wanted<'_>> = run.iter().map(|change| wanted(change.key, change.put)).collect();
            self.change_several(state, table, 0, &wanted, |number, old| match (old, run[number].put) {
                (Some((head, _)), _) if head.deleted() => Err(Error::Absent("the row".into())),
                (None, _) => Err(Error::Absent("the row".into())),
                (Some(_), Some(row)) => Ok(Act::Put(0, row)),
                (Some(_), None) => Ok(Act::Mark),
            })?;
        }
        Ok(())
    }

    /// Marks the existing rows at these keys, which ascend, as deleted. Returns how many there were.
    pub(super) fn mark_sorted_rows(
        &self,
        state: &mut TxnState,
        table: &Table,
        keys: &[&[u8]],
    ) -> Result<u64> {
        let wanted: Vec<Wanted<'_>> = keys.iter().map(|key| wanted(key, None)).collect();
        keys.iter().skip(1).try_for_each(|_| self.pay(state, table))?;
        state.has_past |= !crate::planted::MARKS_WITHOUT_PAST.on();
        let mut were = vec![false; keys.len()];
        self.change_several(state, table, 0, &wanted, |number, old| {
            were[number] = old.is_some_and(|(head, _)| !head.deleted());
            Ok(if were[number] { Act::Mark } else { Act::Keep })
        })?;
        Ok(were.into_iter().filter(|was| *was).count() as u64)
    }

    /// Entries of a tree. Where only the store has their leaves, those of the next ones are asked for before some are changed.
    fn change_far_entries(
        &self,
        state: &mut TxnState,
        table: &Table,
        index: usize,
        mut changes: &[KeyChange<'_>],
    ) -> Result<()> {
        let has_store = self.core.storage.cold.is_some();
        let mut looks = has_store && changes.len() > 1 && far::is_far(table, index, changes[0].key);
        while has_store && changes.len() > 1 {
            let next = changes.iter().take(2 * FAR).map(|change| (index, change.key));
            let some = if looks && far::ask(table, next) { FAR } else { NEAR };
            let (some, rest) = changes.split_at(some.min(changes.len()));
            let before = meter::far();
            self.change_sorted_entries(state, table, index, some)?;
            looks = meter::far() != before;
            changes = rest;
        }
        self.change_sorted_entries(state, table, index, changes)
    }

    fn change_sorted_entries(
        &self,
        state: &mut TxnState,
        table: &Table,
        index: usize,
        changes: &[KeyChange<'_>],
    ) -> Result<()> {
        if let Some(long) = changes.iter().find(|change| change.key.len() > MAX_KEY) {
            return Err(Error::TooLarge { what: "a key", len: long.key.len(), max: MAX_KEY });
        }
        let rest = |change: &KeyChange<'_>| change.put.map(|value| row::entry_rest(change.primary_at, value));
        let rests: Vec<Option<SmallVec<[u8; 32]>>> = changes.iter().map(rest).collect();
        let wanted: Vec<Wanted<'_>> =
            changes.iter().zip(&rests).map(|(change, rest)| wanted(change.key, rest.as_deref())).collect();
        let decide = |number: usize, old: Option<(Head, &[u8])>| match (old, rests[number].as_deref()) {
            (Some((head, _)), Some(_)) if !head.deleted() => Err(Error::Duplicate { index }),
            (_, Some(rest)) => Ok(Act::Put(0, rest)),
            (Some((head, _)), None) if !head.deleted() => Ok(Act::Mark),
            (_, None) => Err(Txn::lacks_entry(table, index)),
        };
        self.change_several(state, table, index, &wanted, decide)
    }
}

fn wanted<'a>(key: &'a [u8], rest: Option<&[u8]>) -> Wanted<'a> {
    Wanted { key, value_max: rest.map(|rest| row::HEAD + rest.len()) }
}
