//! The keys of the server in memory: databases, their dictionaries, expiry, and the list of what changed.
//!
//! | file | holds |
//! | --- | --- |
//! | `entry` | a key with its value and metadata, in 48 bytes |
//! | `dictionary` | the hash table, resized a bucket at a time |
//! | `expiry` | when keys expire, and finding those that have |
//! | `changes` | what a command changed, for the clients and rooms that follow changes |
//! | `evict` | candidates for eviction |
//! | `saving`, `sink` | the walk of a save, and copy on write while it goes on; where its records gather |
//! | `database` | a database: the operations that commands use |

pub mod changes;
pub mod database;
pub mod dictionary;
pub mod entry;
pub mod evict;
pub mod expiry;
pub mod saving;
pub mod sink;

pub use changes::{Change, Class};
pub use database::Keyspace;
pub use entry::Key;

use crate::tiering::evict::Policy;

/// The databases that `SELECT` chooses from.
pub struct Databases {
    pub all: Vec<Keyspace>,
}

impl Databases {
    /// `seed` makes the hash function unpredictable for clients.
    pub fn new(count: u16, seed: (u64, u64)) -> Databases {
        Databases { all: (0..count).map(|index| Keyspace::new(index, seed)).collect() }
    }

    pub fn get(&mut self, index: u16) -> Option<&mut Keyspace> {
        self.all.get_mut(usize::from(index))
    }

    /// Unix time in milliseconds, which decides what has expired until the next call.
    pub fn set_now(&mut self, now_ms: i64) {
        for db in &mut self.all {
            db.now_ms = now_ms;
        }
    }

    /// Whether expired keys are kept: while clients are paused.
    pub fn keep_expired(&mut self, keeps: bool) {
        for db in &mut self.all {
            db.keeps_expired = keeps;
        }
    }

    /// Whether [`Keyspace::changed`] records, and does not only count.
    pub fn record_changes(&mut self, record: bool) {
        for db in &mut self.all {
            db.changes.is_recording = record;
        }
    }

    /// Marks keys as `policy` asks, anew where the policy is another one.
    pub fn set_policies(&mut self, policy: impl Fn() -> Option<Box<dyn Policy>>) {
        for db in &mut self.all {
            let wanted = policy();
            if db.policy().map(Policy::name) != wanted.as_deref().map(Policy::name) {
                db.set_policy(wanted);
            }
        }
    }

    /// Exchanges the contents of two databases.
    pub fn swap(&mut self, first: u16, second: u16) {
        let (low, high) = (usize::from(first.min(second)), usize::from(first.max(second)));
        if let Some([one, .., other]) = self.all.get_mut(low..=high) {
            one.exchange(other);
        }
    }

    /// Changes since the start: `rdb_changes_since_last_save`.
    pub fn dirty(&self) -> u64 {
        self.all.iter().map(|db| db.changes.count).sum()
    }
}
