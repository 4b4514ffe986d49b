//! What ends the time of a cached file: another version, a write, a person.

use super::BlockId;
use super::{Catalogue, Slot};
use crate::planted;
use std::sync::Arc;
use terrace_io::clock::Nanos;

impl Catalogue {
    /// Nothing known of the file holds any more: detaches its blocks. The reads that waited for blocks are returned.
    pub(super) fn void(&mut self, path: &Arc<str>) -> Vec<u64> {
        let mut waiters = Vec::new();
        let Some(file) = self.files.get_mut(path) else { return waiters };
        let known = file.known.take();
        for (_, slot) in std::mem::take(&mut file.slots) {
            match slot {
                Slot::Loading { waiters: of_slot, .. } => waiters.extend(of_slot),
                Slot::Here(block) => self.detach(block),
            }
        }
        if let Some(known) = known {
            self.raise_floor(path, known.checked);
        }
        waiters
    }

    /// The block leaves its file, which has forgotten it already.
    pub(super) fn detach(&mut self, id: BlockId) {
        let Some(Some(block)) = self.blocks.get_mut(id as usize) else { return };
        block.attached = false;
        let (path, number, is_leased) = (block.path.clone(), block.index, block.leases > 0);
        self.withdraw(&path, number);
        if !is_leased {
            self.lru.remove(id);
            self.free(id);
        }
    }

    /// The file was written or deleted through this daemon: what flights under way will say of it may be older than that.
    pub fn written(&mut self, path: &Arc<str>, now: Nanos) {
        self.raise_floor(path, now);
        let Some(file) = self.files.get_mut(path) else { return };
        file.epoch += 1;
        if planted::KNOWN_AFTER_WRITE.on() {
            return;
        }
        self.void(path).into_iter().for_each(|id| self.restart(id, now));
    }

    /// Drops what is cached of files whose path starts with `prefix`, except what is loading. Returns them with their lengths.
    pub fn forget(&mut self, prefix: &str) -> Vec<(Arc<str>, u64)> {
        let paths: Vec<Arc<str>> =
            self.files.keys().filter(|path| path.starts_with(prefix)).cloned().collect();
        let mut forgotten = Vec::new();
        for path in paths {
            let Some(file) = self.files.get_mut(&path) else { continue };
            let Some(length) = file.known.as_ref().map(|known| known.meta.length) else { continue };
            let slots = std::mem::take(&mut file.slots).into_iter();
            let (here, loading): (Vec<_>, Vec<_>) =
                slots.partition(|(_, slot)| matches!(slot, Slot::Here(_)));
            file.slots = loading;
            let known = if file.slots.is_empty() { file.known.take() } else { None };
            if let Some(known) = known {
                self.raise_floor(&path, known.checked);
            }
            for (_, slot) in here {
                if let Slot::Here(block) = slot {
                    self.detach(block);
                }
            }
            forgotten.push((path, length));
        }
        forgotten
    }
}
