//! What was refused to users, newest first; the same again within a minute counts up one entry.

use std::collections::VecDeque;

/// Entries that are looked at for the same refusal, and how old it may be.
const LOOKED_AT: usize = 10;
const SAME_MS: i64 = 60_000;

pub struct Entry {
    pub count: u64,
    pub reason: &'static str,
    pub context: &'static str,
    pub object: Vec<u8>,
    pub user: Vec<u8>,
    pub at_ms: i64,
    pub client: String,
}

#[derive(Default)]
pub struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    pub fn add(&mut self, entry: Entry, len_max: usize) {
        let is_same = |known: &Entry| {
            known.reason == entry.reason
                && known.context == entry.context
                && known.object == entry.object
                && known.user == entry.user
                && entry.at_ms - known.at_ms <= SAME_MS
        };
        let at = self.entries.iter().take(LOOKED_AT).position(is_same);
        let count = at.and_then(|at| self.entries.remove(at)).map_or(0, |known| known.count);
        self.entries.push_front(Entry { count: count + 1, ..entry });
        self.entries.truncate(len_max);
    }

    pub fn newest(&self, count: usize) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter().take(count)
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
