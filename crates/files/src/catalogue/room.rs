//! Making room: in the arena for a block, among the files for a new one.

use super::{BlockId, Catalogue, Slot};
use crate::memory::extents::Extent;
use std::sync::Arc;

/// Blocks that one call evicts: the caller moves them to flash.
const VICTIMS_MAX: usize = 64;
/// Files that are looked at to find one that can be forgotten.
const LOOKS_MAX: usize = 64;

/// A block that was evicted. Its extent is the caller's until it is given back.
#[derive(Clone, Debug)]
pub struct Victim {
    pub path: Arc<str>,
    pub version: Arc<str>,
    pub index: u32,
    pub extent: Extent,
    pub accesses: u8,
}

pub enum Room {
    Found(Extent),
    /// These were evicted: when their extents are given back, there may be room.
    Evicted(Vec<Victim>),
    /// All that is left is under lease or loading.
    Full,
}

impl Catalogue {
    /// Room for `len` bytes.
    pub fn allocate(&mut self, len: u64) -> Room {
        if let Some(extent) = self.extents.allocate(len) {
            return Room::Found(extent);
        }
        let mut victims = Vec::new();
        let mut bytes = 0;
        while bytes < len
            && victims.len() < VICTIMS_MAX
            && let Some(victim) = self.lru.oldest().and_then(|id| self.evict(id))
        {
            bytes += victim.extent.taken();
            victims.push(victim);
        }
        if victims.is_empty() { Room::Full } else { Room::Evicted(victims) }
    }

    /// Evicts the blocks that were not used for longest, of about `bytes`.
    pub(super) fn evict_bytes(&mut self, bytes: u64, victims: &mut Vec<Victim>) {
        let mut sum = 0;
        while sum < bytes
            && let Some(victim) = self.lru.oldest().and_then(|id| self.evict(id))
        {
            sum += victim.extent.taken();
            victims.push(victim);
        }
    }

    /// Takes a block without leases out of memory.
    fn evict(&mut self, id: BlockId) -> Option<Victim> {
        self.lru.remove(id);
        let block = self.blocks.get_mut(id as usize).and_then(Option::take)?;
        self.free_blocks.push(id);
        self.withdraw(&block.path, block.index);
        if let Some(file) = self.files.get_mut(&block.path) {
            file.slots.retain(|(_, slot)| !matches!(slot, Slot::Here(here) if *here == id));
        }
        self.counts.evicted += 1;
        self.counts.brought_unused += u64::from(block.brought && block.accesses == 0);
        let super::Block { path, version, index, extent, accesses, .. } = block;
        Some(Victim { path, version, index, extent, accesses })
    }

    /// An extent that was allocated and belongs to no block.
    pub fn give_back(&mut self, extent: Extent) {
        self.extents.free(extent);
        self.freed = true;
    }

    fn remove_file(&mut self, path: &str) {
        if let Some(known) = self.files.remove(path).and_then(|file| file.known) {
            self.raise_floor(path, known.checked);
        }
    }

    /// False: every file is in use.
    pub(super) fn make_room_for_a_file(&mut self) -> bool {
        for _ in 0..2 {
            for _ in 0..LOOKS_MAX {
                if self.files.len() < self.settings.files_max {
                    return true;
                }
                let Some(path) = self.order.pop_front() else { break };
                match self.files.get(&path) {
                    Some(file) if file.slots.is_empty() && file.check.is_none() => {
                        self.remove_file(&path);
                    }
                    Some(_) => self.order.push_back(path),
                    None => {}
                }
            }
            // All hold blocks: the file of the block that was not used for longest is forgotten.
            let Some(victim) = self.lru.oldest().and_then(|id| self.evict(id)) else { break };
            self.give_back(victim.extent);
            if let Some(file) = self.files.get(&victim.path)
                && file.slots.is_empty()
                && file.check.is_none()
            {
                self.remove_file(&victim.path);
                self.order.retain(|path| *path != victim.path);
            }
        }
        self.files.len() < self.settings.files_max
    }
}
