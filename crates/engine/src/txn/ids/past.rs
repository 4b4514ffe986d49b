//! What became of transactions that have ended, in little memory.
//!
//! All that counts of a commit sequence number is its place among the open views: views that are opened later see it anyway.
//! So the numbers between two views are one ([`rounded`]), and transactions whose ids follow each other and whose
//! numbers are one are one entry. Behind a long reader one entry stands for any number of commits; a view costs a few
//! for each transaction that was active when it was opened.
//!
//! A roll back is one of them: views that are older than it may hold copies of what it took back, and do not see that;
//! those that are opened later find nothing of it, whatever is said here.

use crate::row::TxnId;

/// The number of what every view sees.
const SEEN: u64 = 0;
/// Entries that are not worth a pass over all.
const FEW: usize = 1024;

/// One that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub id: TxnId,
    /// Its commit sequence number, or the number of its roll back.
    pub at: u64,
}

pub(super) struct Past {
    /// From this id on up to the next entry's: the least number of views that see it. Ascending by id, neighbours
    /// differ; before the first all are seen. What is said of ids of transactions that have not ended means nothing.
    entries: Vec<(TxnId, u64)>,
    /// The highest id of a transaction that has ended, in this or a former life of the instance.
    highest: TxnId,
    /// Entries that the last pass over all of them left.
    left: usize,
}

/// The least number that the same of the open `views` (ascending) see.
fn rounded(at: u64, views: &[u64]) -> u64 {
    match views.partition_point(|view| *view < at) {
        0 => SEEN,
        below => views[below - 1] + 1,
    }
}

impl Past {
    /// Of ids up to `highest` those that nothing more is said of have ended before every view.
    pub fn new(highest: TxnId) -> Past {
        Past { entries: Vec::new(), highest, left: 0 }
    }

    /// Whether a view sees what `id` wrote; the transaction has ended.
    pub fn sees(&self, view: u64, id: TxnId) -> bool {
        match self.entries.partition_point(|(from, _)| *from <= id) {
            0 => true,
            place => self.entries[place - 1].1 <= view,
        }
    }

    /// Adds transactions, ascending by id. `views` are all that are open, ascending; one that is opened later sees all
    /// of these transactions.
    pub fn add(&mut self, ended: &[End], views: &[u64]) {
        let Some(least) = ended.first() else { return };
        let tail = self.entries.split_off(self.entries.partition_point(|(from, _)| *from < least.id));
        let mut tail = tail.into_iter().peekable();
        // What holds for the entries before.
        let mut around = self.last();
        for end in ended {
            while let Some((from, number)) = tail.next_if(|(from, _)| *from <= end.id) {
                around = number;
                self.push(from, number);
            }
            self.push(end.id, rounded(end.at, views));
            if end.id < self.highest {
                self.push(end.id + 1, around);
            }
        }
        tail.for_each(|(from, number)| self.push(from, number));
        self.highest = self.highest.max(ended.last().map_or(0, |end| end.id));
    }

    /// Makes one entry of those that no open view tells apart any more. With `few_are_well`, only if there are many more
    /// than it left the last time.
    pub fn tidy(&mut self, views: &[u64], few_are_well: bool) {
        if few_are_well && self.entries.len() <= 2 * self.left + FEW {
            return;
        }
        let mut last = SEEN;
        self.entries.retain_mut(|(_, number)| {
            *number = rounded(*number, views);
            std::mem::replace(&mut last, *number) != *number
        });
        self.left = self.entries.len();
        if self.entries.capacity() > 4 * self.left + 2 * FEW {
            self.entries.shrink_to(2 * self.left + FEW);
        }
    }

    /// All below are seen by every view, if they have ended.
    pub fn first(&self) -> Option<TxnId> {
        self.entries.first().map(|(from, _)| *from)
    }
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    fn last(&self) -> u64 {
        self.entries.last().map_or(SEEN, |(_, number)| *number)
    }
    fn push(&mut self, from: TxnId, number: u64) {
        if self.entries.last().is_some_and(|(last, _)| *last == from) {
            self.entries.pop();
        }
        if number != self.last() {
            self.entries.push((from, number));
        }
    }
}

#[cfg(test)]
mod tests;
