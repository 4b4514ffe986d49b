//! Write-back: which replies wait for which record of the log.
//!
//! What the commands of a turn changed is one record, so that a transaction is in one record. A reply that tells of a change waits until the record is
//! promised: it has the durability that `appendfsync` asks for, or, if the log has failed, its rows are stored. Records are promised in their order.
//!
//! Pure. Not here: the log (`storage::journal`), and the rows on their way to storage (`queue`).

use crate::planted;
use crate::storage::Key;
use crate::tiering::queue::GroupId;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// A table of keys that is no larger than this is kept for the next records.
const KEYS_KEPT: usize = 4096;

/// A record whose replies wait.
#[derive(Debug, Default)]
struct Record {
    number: u64,
    group: GroupId,
    keys: Vec<Key>,
    emptied: Vec<u16>,
}

#[derive(Default)]
pub struct Promises {
    /// The number of the newest record that was sealed.
    last: u64,
    open: Option<Record>,
    sealed: VecDeque<Record>,
    /// The newest record that changed a key or emptied a database and is not promised.
    keys: HashMap<Key, GroupId>,
    emptied: HashMap<u16, GroupId>,
}

impl Promises {
    /// `last` is the number of the newest record of the log.
    pub fn new(last: u64) -> Promises {
        Promises { last, ..Promises::default() }
    }

    /// The number of the newest record.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The number of the record that the present turn fills.
    pub fn next(&self) -> u64 {
        self.last + 1
    }

    /// Adds what a command changed to the open record, and returns what its reply waits for. `group` gives out numbers.
    pub fn change<'a>(
        &mut self,
        keys: impl IntoIterator<Item = &'a Key>,
        emptied: &[u16],
        group: impl FnOnce() -> GroupId,
    ) -> GroupId {
        let open = self.open.get_or_insert_with(|| Record { group: group(), ..Record::default() });
        for key in keys {
            if self.keys.insert(key.clone(), open.group) != Some(open.group) {
                open.keys.push(key.clone());
            }
        }
        for &db in emptied {
            if self.emptied.insert(db, open.group) != Some(open.group) {
                open.emptied.push(db);
            }
        }
        open.group
    }

    /// What a reader of these keys waits for, if anything.
    pub fn gate<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) -> Option<GroupId> {
        if planted::READ_BEFORE_WRITTEN.on() || self.is_kept() {
            return None;
        }
        let of_key = |key: &Key| self.keys.get(key).max(self.emptied.get(&key.db)).copied();
        keys.into_iter().filter_map(of_key).max()
    }

    /// Ends the open record: its number, the databases that were emptied, and the keys that were changed, before or after. `None` if nothing was changed.
    pub fn seal(&mut self) -> Option<(u64, &[u16], &[Key])> {
        let mut record = self.open.take()?;
        self.last += 1;
        record.number = self.last;
        if planted::RECORD_DIVIDED.on() && record.keys.len() > 1 {
            let keys = record.keys.split_off(1);
            self.open = Some(Record { keys, group: record.group, ..Record::default() });
        }
        self.sealed.push_back(record);
        self.sealed.back().map(|record| (record.number, &record.emptied[..], &record.keys[..]))
    }

    /// Records up to a number are promised: the groups whose replies may go.
    pub fn keep(&mut self, upto: u64) -> Vec<GroupId> {
        let mut kept = Vec::new();
        if self.open.is_none() && self.sealed.back().is_some_and(|record| record.number <= upto) {
            // Most often: nothing is left that a reader could wait for.
            kept.extend(self.sealed.drain(..).map(|record| record.group));
            self.emptied.clear();
            match self.keys.capacity() > KEYS_KEPT {
                true => self.keys = HashMap::new(),
                false => self.keys.clear(),
            }
            return kept;
        }
        while self.sealed.front().is_some_and(|record| record.number <= upto)
            && let Some(record) = self.sealed.pop_front()
        {
            for key in &record.keys {
                if self.keys.get(key) == Some(&record.group) {
                    self.keys.remove(key);
                }
            }
            self.emptied.retain(|_, group| *group != record.group);
            kept.push(record.group);
        }
        kept
    }

    /// Whether no reply waits.
    pub fn is_kept(&self) -> bool {
        self.open.is_none() && self.sealed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(0, name.as_bytes())
    }

    #[test]
    fn changes_of_a_turn_are_one_record_with_each_key_once() {
        let mut promises = Promises::new(7);
        let one = promises.change(&[key("a"), key("b")], &[], || 1);
        let two = promises.change(&[key("a")], &[3], || unreachable!("the record is open"));
        assert_eq!(one, two);
        assert_eq!(promises.seal(), Some((8, &[3][..], &[key("a"), key("b")][..])));
        assert!(promises.seal().is_none());
        assert_eq!(promises.keep(8), [1]);
        assert!(promises.is_kept());
    }

    #[test]
    fn a_reader_waits_for_the_newest_record_of_its_keys_until_that_is_promised() {
        let mut promises = Promises::new(0);
        promises.change(&[key("a"), key("b")], &[], || 1);
        promises.seal();
        promises.change(&[key("b")], &[], || 2);
        assert_eq!((promises.gate(&[key("a")]), promises.gate(&[key("a"), key("b")])), (Some(1), Some(2)));
        assert_eq!(promises.gate(&[key("c")]), None);
        promises.seal();
        assert_eq!(promises.keep(1), [1]);
        assert_eq!((promises.gate(&[key("a")]), promises.gate(&[key("b")])), (None, Some(2)));
        promises.change(&[], &[0], || 3);
        assert_eq!(promises.gate(&[key("c")]), Some(3));
        promises.seal();
        assert_eq!(promises.keep(9), [2, 3]);
        assert!(promises.is_kept() && promises.gate(&[key("a")]).is_none());
    }
}
