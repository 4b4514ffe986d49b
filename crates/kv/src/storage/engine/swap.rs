//! Exchanging two databases: their spaces change places by one write, and rows stay where they are.

use super::{EngineStorage, meta_key};
use crate::storage::StorageError;
use terrace::Batch;

impl EngineStorage {
    /// What was not made durable counts as not made, though the next start may find it: the instance takes no writes any more.
    pub(super) fn exchange(
        &self,
        first: u16,
        second: u16,
        log_position: Option<u64>,
    ) -> Result<(), StorageError> {
        let mut meta = self.meta.lock();
        let mut after = meta.clone();
        let (one, other) = (after.spaces.remove(&first), after.spaces.remove(&second));
        let mut batch = Batch::new();
        for (db, space) in [(first, other), (second, one)] {
            match space {
                Some(space) => {
                    batch.put(&self.meta_tree, meta_key(db), space.bytes());
                    after.spaces.insert(db, space);
                }
                None => batch.delete(&self.meta_tree, meta_key(db)),
            }
        }
        if let Some(position) = log_position {
            batch.put(&self.meta_tree, "log", position.to_be_bytes());
            after.log_position = position;
        }
        self.db.write_with(&batch, terrace::Durability::Wait)?;
        *meta = after;
        Ok(())
    }
}
