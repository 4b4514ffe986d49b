//! Removing the rows of emptied databases and of large collections that are gone, some at a time, in the background.
//!
//! What is to be removed is noted in `kv.meta` by the write that makes it needless, so removal goes on after a crash. Emptying a database makes its large
//! collections gone as the removal meets their heads, except those that the write says live on. Nothing is written to an element of a generation that is gone.

use super::REMOVED_TOGETHER;
use crate::planted;
use crate::storage::{StorageError, Write, row};
use crate::value::large::Head;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace::{Batch, Db, Tree};

pub fn gone_space_key(space: u32) -> [u8; 8] {
    let mut key = *b"gone\0\0\0\0";
    key[4..].copy_from_slice(&space.to_be_bytes());
    key
}

/// What the row of an emptied space says: the generations that live on, 8 bytes each.
pub fn alive(write: &Write) -> Vec<u8> {
    write.all_alive().into_iter().flat_map(u64::to_be_bytes).collect()
}

pub fn gone_collection_key(generation: u64) -> Vec<u8> {
    [&b"large"[..], &generation.to_be_bytes()].concat()
}

/// Whether a removal runs, and has to look again when it is through.
#[derive(Default, Clone, Copy, PartialEq)]
pub enum Running {
    #[default]
    No,
    Yes,
    Again,
}

pub struct Removal {
    pub(super) db: Db,
    pub(super) rows: Tree,
    pub(super) expiry: Tree,
    pub(super) elements: Tree,
    pub(super) meta: Tree,
    pub(super) is_closing: AtomicBool,
    pub(super) running: Mutex<Running>,
}

impl Removal {
    /// Removes what is gone. What fails or finds no thread is removed with the next of its kind, or after the next start.
    pub fn begin(self: &Arc<Removal>) {
        let mut running = self.running.lock();
        if *running != Running::No {
            *running = Running::Again;
            return;
        }
        let removal = self.clone();
        let is_taken = self.db.run_soon(move |turn| match turn {
            Ok(()) => removal.run(),
            Err(_) => *removal.running.lock() = Running::No,
        });
        if is_taken {
            *running = Running::Yes;
        }
    }

    fn run(&self) {
        loop {
            let done = self.spaces().and_then(|()| self.collections());
            let mut running = self.running.lock();
            if *running == Running::Again && done.is_ok() && !self.is_closing() {
                *running = Running::Yes;
                continue;
            }
            *running = Running::No;
            return;
        }
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    fn write(&self, batch: &Batch) -> Result<(), StorageError> {
        Ok(self.db.write_with(batch, terrace::Durability::Written)?)
    }

    fn spaces(&self) -> Result<(), StorageError> {
        for pair in self.meta.prefix("gone")? {
            let (gone, alive) = pair?;
            let Some(space) = gone.last_chunk::<4>() else { continue };
            let is_alive = |generation: u64| {
                alive.chunks_exact(8).any(|one| *one == generation.to_be_bytes())
                    && !planted::EMPTIED_TAKES_LIVE_COLLECTIONS.on()
            };
            loop {
                if self.is_closing() {
                    return Ok(());
                }
                let mut batch = Batch::new();
                for pair in self.rows.prefix(space)?.take(REMOVED_TOGETHER) {
                    let (key, value) = pair?;
                    let (expires_ms, form) = row::decode(&value)?;
                    if let Some(expires_ms) = expires_ms {
                        batch.delete(&self.expiry, row::expiry_key(expires_ms, &key));
                    }
                    if let Some(head) = Head::parse(form)?
                        && !is_alive(head.generation)
                    {
                        batch.put(&self.meta, gone_collection_key(head.generation), []);
                    }
                    batch.delete(&self.rows, key);
                }
                if batch.is_empty() {
                    break;
                }
                self.write(&batch)?;
            }
            let mut batch = Batch::new();
            batch.delete(&self.meta, gone);
            self.write(&batch)?;
        }
        Ok(())
    }

    fn collections(&self) -> Result<(), StorageError> {
        for pair in self.meta.prefix("large")? {
            let (gone, _) = pair?;
            let Some(generation) = gone.last_chunk::<8>() else { continue };
            loop {
                if self.is_closing() {
                    return Ok(());
                }
                let mut batch = Batch::new();
                for pair in self.elements.prefix(generation)?.take(REMOVED_TOGETHER) {
                    batch.delete(&self.elements, pair?.0);
                }
                if batch.is_empty() {
                    break;
                }
                self.write(&batch)?;
            }
            let mut batch = Batch::new();
            batch.delete(&self.meta, gone);
            self.write(&batch)?;
        }
        Ok(())
    }
}
