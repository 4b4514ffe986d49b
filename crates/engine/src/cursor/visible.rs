//! What a reader without locks sees of an entry: as a rule what the tree's cursor copied, where it lies.

use super::{Cursor, EntryVisibility};
use crate::error::TreeError;
use crate::error::{Error, Result};
use crate::planted;
use crate::row::{self, Head};
use crate::txn::Lock;
use crate::txn::rows::STALE_MAX;
use crate::txn::rows::off_page::{self, Opened, WantedParts};
use crate::txn::version::{Reader, VisibleVersion, head_of, seen};
use terrace_tier::memory::pool::Access;

impl Cursor {
    /// Hands over the rows behind the one at hand, upward, and goes on to the last of them: up to the first that is not simply there, or until
    /// `take` says that it wants no more. It is given key, place of the primary key, value. For who has just read a row in place, locks
    /// nothing and judges no entries.
    pub fn take_in_place(&mut self, mut take: impl FnMut(&[u8], usize, &[u8]) -> bool) {
        if !self.in_place || self.lock != Lock::None || self.cursor.may_pass_end() {
            return;
        }
        let reader = self.reader();
        let (mut seen, mut taken) = (None, 0);
        for (key, value) in self.cursor.following() {
            let Some((head, rest)) =
                Head::decode(value).filter(|(head, _)| !head.deleted() && head.in_leaf())
            else {
                break;
            };
            // What the reader sees of a transaction it sees of all its rows.
            let known = seen == Some(head.txn) || planted::SEEN_WITH_NEIGHBOUR.on();
            if !known && !reader.sees(self.txn.core(), head.txn) {
                break;
            }
            seen = Some(head.txn);
            if !self.prefix.is_empty() && !key.starts_with(&self.prefix) {
                break;
            }
            let (at, value) = match self.index {
                0 => (0, rest),
                _ => match row::entry_parts(rest) {
                    Some((at, extra)) if at <= key.len() => (at, extra),
                    _ => break,
                },
            };
            (self.primary_at, taken) = (at, taken + 1);
            if !take(key, at, value) {
                break;
            }
        }
        self.cursor.skip(taken);
    }

    /// Whether what was copied says that the prefix ends with the entry at hand, upward. Never of a cursor that locks: it locks up to the end.
    pub fn prefix_ends_here(&self) -> bool {
        let mut following = self.cursor.following();
        self.lock == Lock::None
            && !self.prefix.is_empty()
            && following.next().is_some_and(|(key, _)| !key.starts_with(&self.prefix))
    }

    /// What the view sees of the current entry.
    pub(super) fn look(&mut self) -> Result<EntryVisibility> {
        let reader = self.reader();
        if self.look_in_place(reader)? {
            return Ok(EntryVisibility::Seen);
        }
        let _scope = self.txn.cancellable();
        self.take_key();
        self.value.clear();
        self.value.extend_from_slice(self.cursor.value());
        self.look_closely(reader)
    }

    /// What the reader sees of the entry whose key and value were copied.
    pub(super) fn look_closely(&mut self, reader: Reader) -> Result<EntryVisibility> {
        for _ in 0..STALE_MAX {
            if self.is_of_own_row(reader)? {
                // The row as the reader sees it is the newest, and so are its entries.
                let there = self.read_again()? && !head_of(&self.value)?.deleted();
                return Ok(if there && self.open_value()? == Opened::Whole {
                    EntryVisibility::Seen
                } else {
                    EntryVisibility::Nothing
                });
            }
            match seen(
                self.txn.core(),
                reader,
                self.table.id,
                self.table.number(self.index),
                &self.key,
                &self.value,
            )? {
                VisibleVersion::Current => {}
                VisibleVersion::Past(past) => self.value = past,
                VisibleVersion::Nothing => return Ok(EntryVisibility::Nothing),
                VisibleVersion::Stale => {
                    if !self.read_again()? {
                        return Ok(EntryVisibility::Nothing);
                    }
                    continue;
                }
            }
            match self.open_value()? {
                Opened::Whole => return Ok(EntryVisibility::Seen),
                Opened::Stale => {}
                // A reader of uncommitted data reads it as it will be after a rollback.
                Opened::Hollow(_) if reader.view.is_none() => {
                    let txn = self.txn.clone();
                    return txn.with_view_of_now(|now| match self.read_again()? {
                        true => self.look_closely(now),
                        false => Ok(EntryVisibility::Nothing),
                    });
                }
                Opened::Hollow(page) => return Err(TreeError::Hollow { page }.into()),
            }
            if !self.read_again()? {
                return Ok(EntryVisibility::Nothing);
            }
        }
        // Each try needs another writer, unless the history that the view needs is gone.
        let name = self.table.name();
        let why = "a row changes faster than it can be read, or a version that is needed is not there";
        Err(Error::Unavailable(format!("table {name}: index {}: {why}", self.index)))
    }

    /// Whether others have changed the secondary entry past the reader's view, and the reader's transaction then changed the row. It sees
    /// its own row, so neither the entry's past nor that it is too new tells whether the entry is that row's.
    fn is_of_own_row(&self, reader: Reader) -> Result<bool> {
        let head = head_of(&self.value)?;
        if self.index == 0 || reader.me == 0 || reader.sees(self.txn.core(), head.txn) {
            return Ok(false);
        }
        let parts = Head::decode(&self.value).and_then(|(_, rest)| row::entry_parts(rest));
        let Some(key) = parts.and_then(|(at, _)| self.key.get(at..)) else { return Ok(false) };
        let newest = |row: Option<&[u8]>| row.and_then(Head::decode).map(|(head, _)| head.txn);
        Ok(self.table.tree(0)?.get(key, Access::Normal, newest)? == Some(reader.me))
    }

    /// The usual case: the entry that the tree's cursor copied is the version seen, and holds all of
    /// it that is wanted. False: it is to be looked at more closely.
    fn look_in_place(&mut self, reader: Reader) -> Result<bool> {
        let Some((head, rest)) = Head::decode(self.cursor.value()) else { return Ok(false) };
        if head.deleted() || (!head.in_leaf() && self.enough > 0) || !reader.sees(self.txn.core(), head.txn) {
            return Ok(false);
        }
        self.primary_at = match self.index {
            0 => 0,
            _ => match row::entry_parts(rest) {
                Some((at, _)) if at <= self.cursor.key().len() => at,
                _ => return Ok(false),
            },
        };
        self.in_place = true;
        Ok(true)
    }

    pub(super) fn read_again(&mut self) -> Result<bool> {
        let value =
            self.table.tree(self.index)?.get(&self.key, Access::Normal, |value| value.map(<[u8]>::to_vec))?;
        Ok(value.map(|value| self.value = value).is_some())
    }

    /// Takes the value apart.
    pub(super) fn open_value(&mut self) -> Result<Opened> {
        if self.index == 0 {
            self.primary_at = 0;
            let asked = WantedParts { enough: self.enough, parts: self.parts.as_deref() };
            return off_page::open(&self.table, &self.value, asked, &mut self.rest, &mut self.holes);
        }
        let parts = Head::decode(&self.value).and_then(|(_, rest)| row::entry_parts(rest));
        let Some((at, extra)) = parts.filter(|(at, _)| *at <= self.key.len()) else {
            return Err(Error::Corrupt(format!(
                "table {}: an entry of index {}",
                self.table.name(),
                self.index
            )));
        };
        self.primary_at = at;
        self.rest.clear();
        self.rest.extend_from_slice(extra);
        Ok(Opened::Whole)
    }
}
