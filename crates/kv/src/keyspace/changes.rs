//! What commands changed: one list that all who follow changes are driven by (WATCH, notices, blocked clients, client-side caches, storage).
//!
//! The dispatcher takes the list after each command; EXEC and scripts count as one. While no client follows changes they are only counted.

use super::entry::Key;

/// Classes of keyspace notices: the letters of `notify-keyspace-events`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Class {
    /// No notice is published.
    Unnoticed = 0,
    Generic = 1 << 2,
    String = 1 << 3,
    List = 1 << 4,
    Set = 1 << 5,
    Hash = 1 << 6,
    Zset = 1 << 7,
    Expired = 1 << 8,
    Evicted = 1 << 9,
    Stream = 1 << 10,
    Module = 1 << 13,
    New = 1 << 14,
}

#[derive(Clone, Debug)]
pub struct Change {
    pub key: Key,
    pub class: Class,
    /// As the notice names it.
    pub event: &'static str,
}

/// A key that was deleted as it had expired.
pub struct Expired {
    pub key: Key,
    pub at_ms: i64,
    /// The generation of a large collection.
    pub generation: Option<u64>,
}

#[derive(Default)]
pub struct Changes {
    pub list: Vec<Change>,
    /// All keys were deleted or exchanged with another database's: everything of the database counts as changed.
    pub all: bool,
    pub expired: Vec<Expired>,
    pub is_recording: bool,
    pub count: u64,
}

impl Changes {
    pub fn record(&mut self, key: &[u8], class: Class, event: &'static str) {
        self.count += 1;
        if self.is_recording {
            self.list.push(Change { key: Key::new(key), class, event });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && !self.all
    }
}
