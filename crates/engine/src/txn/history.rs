//! The history: committed transactions whose undo may still be needed, in the order of their commits.
//!
//! Memory holds nothing of each of them, so a long reader may keep any number: a stream's transactions stand in
//! its undo pages one behind the other, in the order of their commits, each with its commit sequence number in its
//! Begin record. Known of a stream are its oldest, how many there are and where the last one ends; the next oldest
//! is read from the pages when the oldest is purged.

use crate::undo::stream::Mark;
use std::collections::{BTreeMap, HashMap};

/// The oldest committed transaction of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Past {
    pub csn: u64,
    pub stream: usize,
    /// Where its Begin record is.
    pub begin: Mark,
    /// Where the stream's last committed transaction ends.
    pub end: Mark,
}

/// What is committed in one stream and not purged.
struct Line {
    count: u64,
    begin: Mark,
    end: Mark,
}

#[derive(Default)]
pub struct History {
    lines: HashMap<usize, Line>,
    /// Streams by the commit sequence numbers of their oldest.
    oldest: BTreeMap<u64, usize>,
    /// Streams whose oldest is to be read from their pages.
    unread: Vec<usize>,
    len: u64,
    /// Undo records of all of them, as far as they are known.
    records: u64,
}

impl History {
    /// Committed transactions.
    pub fn len(&self) -> u64 {
        self.len
    }
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A transaction of `records` undo records commits. Those of one stream come in the order of their numbers.
    pub fn push(&mut self, past: Past, records: u64) {
        self.len += 1;
        self.records += records;
        let line =
            self.lines.entry(past.stream).or_insert(Line { count: 0, begin: past.begin, end: past.end });
        if line.count == 0 {
            line.begin = past.begin;
            self.oldest.insert(past.csn, past.stream);
        }
        line.count += 1;
        line.end = past.end;
    }

    /// A stream whose oldest is not known: where it begins, or the records before it.
    pub fn unread(&self) -> Option<(usize, Mark)> {
        let stream = *self.unread.last()?;
        self.lines.get(&stream).map(|line| (stream, line.begin))
    }
    /// What [`History::unread`] asked for was read.
    pub fn read(&mut self, stream: usize, begin: Mark, csn: u64) {
        self.unread.retain(|one| *one != stream);
        if let Some(line) = self.lines.get_mut(&stream) {
            line.begin = begin;
            self.oldest.insert(csn, stream);
        }
    }

    /// The commit sequence number of each stream's oldest, as far as it is known.
    pub fn oldest_of_streams(&self) -> impl Iterator<Item = u64> {
        self.oldest.keys().copied()
    }

    /// The oldest of all. None while a stream's oldest is unread.
    pub fn first(&self) -> Option<Past> {
        self.oldest().next().filter(|_| self.unread.is_empty())
    }

    /// The oldest of each stream, from the oldest of all on.
    pub fn oldest(&self) -> impl Iterator<Item = Past> {
        self.oldest.iter().filter_map(|(csn, stream)| {
            let line = self.lines.get(stream)?;
            Some(Past { csn: *csn, stream: *stream, begin: line.begin, end: line.end })
        })
    }

    /// The commit sequence number of what is purged next; 0 while it is not known, None if there is nothing.
    pub fn first_csn(&self) -> Option<u64> {
        if !self.unread.is_empty() {
            return Some(0);
        }
        self.oldest.first_key_value().map(|(csn, _)| *csn)
    }

    /// The first, `past`, of `records` undo records, was purged; the stream goes on at `next`, with a transaction of
    /// this commit sequence number if it was seen. True if nothing committed is left in its stream.
    pub fn purged(&mut self, past: &Past, next: Mark, csn: Option<u64>, records: u64) -> bool {
        self.oldest.remove(&past.csn);
        self.len -= 1;
        self.records = if self.len == 0 { 0 } else { self.records.saturating_sub(records) };
        let Some(line) = self.lines.get_mut(&past.stream) else { return true };
        line.count -= 1;
        line.begin = next;
        match csn {
            _ if line.count == 0 => return true,
            Some(csn) => _ = self.oldest.insert(csn, past.stream),
            None => self.unread.push(past.stream),
        }
        false
    }

    /// Undo records that are not needed any more and not purged, about: as many as transactions of even size
    /// have up to the number `oldest`, which every view sees, of all up to `newest`.
    pub fn lag(&self, oldest: u64, newest: u64) -> u64 {
        let Some(first) = self.oldest.first_key_value().map(|(csn, _)| *csn).filter(|csn| *csn <= oldest)
        else {
            return 0;
        };
        let (held, all) = (u128::from(oldest - first + 1), u128::from(newest.max(oldest) - first + 1));
        (u128::from(self.records) * held / all) as u64
    }
}

#[cfg(test)]
mod tests;
