//! Loading many keys into an instance that no server has open: `terrace kv import`.

use super::{EngineStorage, gone_collection_key, kept_key};
use crate::storage::row;
use crate::storage::{Key, Row, StorageError, Stored, Write};
use crate::value::large::Head;
use std::collections::BTreeMap;
use terrace::Batch;

impl EngineStorage {
    /// Writes keys, in place of those that exist, as one durable write. `note` is a name and what is kept under it from the same moment on.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn load(&self, keys: BTreeMap<Key, Stored>, note: (&str, &[u8])) -> Result<(), StorageError> {
        let mut write = Write::default();
        // Large collections that are replaced.
        let mut replaced = Vec::new();
        let before = self.meta.lock().clone();
        for (key, value) in keys {
            let space = before.spaces.get(&key.db).filter(|space| space.count > 0);
            let old = match space {
                Some(space) => self.rows.get(row::row_key(space.id, &key.name))?,
                None => None,
            };
            let (mut expired_ms, existed) = (None, old.is_some());
            if let Some(old) = old {
                let (time, form) = row::decode(&old)?;
                expired_ms = time;
                replaced.extend(Head::parse(form)?.map(|head| head.generation));
            }
            write.rows.push(Row { key, value: Some(value), existed, expired_ms });
        }
        let mut batch = Batch::new();
        let removes = !replaced.is_empty();
        for generation in replaced {
            batch.put(&self.meta_tree, gone_collection_key(generation), []);
        }
        let mut after = before;
        self.add(&write, &mut after, &mut batch)?;
        batch.put(&self.meta_tree, kept_key(note.0), note.1);
        self.db.write(&batch)?;
        *self.meta.lock() = after;
        if removes {
            self.removal.begin();
        }
        Ok(())
    }

    /// Forgets what is kept under a name.
    pub fn forget_kept(&self, name: &str) -> Result<(), StorageError> {
        let mut batch = Batch::new();
        batch.delete(&self.meta_tree, kept_key(name));
        Ok(self.db.write(&batch)?)
    }

    /// How many keys all databases have.
    pub fn count_all(&self) -> u64 {
        self.meta.lock().spaces.values().map(|space| space.count).sum()
    }
}
