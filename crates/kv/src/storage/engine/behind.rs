//! Writes that no client waits for: write-back's. They have many rows, so even their batch is made in the background, in the order of the rows in the
//! tree: neighbours share a leaf.

use super::{EngineStorage, Meta, outcome_of_wait, removes};
use crate::storage::{Outcome, Part, Position, StorageError, Write, WriteDone};
use parking_lot::Mutex;
use std::sync::Arc;
use terrace::Batch;

impl EngineStorage {
    /// Makes a write; `done` is called when it is durable or has failed.
    pub(super) fn write_behind(&self, write: Write, done: WriteDone) {
        let place = Arc::new(Mutex::new(Some((write, done))));
        let (late, me) = (place.clone(), self.me.clone());
        let is_taken = self.db.run_soon(move |turn| {
            let Some((write, done)) = late.lock().take() else { return };
            let closed = || StorageError::Unavailable("the storage was closed".into());
            match turn.map_err(StorageError::from).and_then(|()| me.upgrade().ok_or_else(closed)) {
                Ok(storage) => storage.write_here(write, done),
                Err(error) => done(Outcome::NotWritten(error)),
            }
        });
        // Every background thread is taken: this one does it.
        if !is_taken && let Some((write, done)) = place.lock().take() {
            self.write_here(write, done);
        }
    }

    fn write_here(&self, mut write: Write, done: WriteDone) {
        write.rows.sort_by_cached_key(|row| {
            let position = match row.key.part {
                Part::Element(_) => Position::of_element(&row.key.name),
                _ => Position::of(&row.key.name),
            };
            (row.key.db, row.key.part, position)
        });
        let mut after = self.meta.lock().clone();
        let mut batch = Batch::new();
        if let Err(error) = self.add(&write, &mut after, &mut batch) {
            return done(Outcome::NotWritten(error));
        }
        let removes = removes(&write);
        drop(write);
        *self.meta.lock() = after;
        let (meta, meta_tree) = (self.meta.clone(), self.meta_tree.clone());
        let ended = move |durable: terrace::Result<()>| {
            if durable.is_err()
                && let Ok(present) = Meta::read(&meta_tree)
            {
                *meta.lock() = present;
            }
            done(outcome_of_wait(durable));
        };
        match self.db.submit(&batch) {
            Ok(commit) => commit.then(ended),
            Err(error) => return ended(Err(error)),
        }
        if removes {
            self.removal.begin();
        }
    }
}
