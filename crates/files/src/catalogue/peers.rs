//! What the catalogue knows for other nodes, and of them.
//!
//! Another node's word on a file's version is as old as that node says. It is believed if the version was current late enough: after all writes of the file here, and
//! not before what was known here of the path and is forgotten. For the latter two the catalogue remembers times by a hash of the path, which only grow (`floors`): two
//! paths with one hash make another node be asked for something newer than was necessary, no more.

use super::{BLOCK_BYTES, BlockId, Catalogue, File, Known, Meta, Slot, block_len, number_of};
use crate::memory::extents::Extent;
use std::sync::Arc;
use terrace_io::clock::Nanos;

pub(super) const FLOORS: usize = 4096;

fn floor_of(path: &str) -> usize {
    number_of(path) as usize % FLOORS
}

/// What is known of a file, and a block of it under lease if it is in memory.
pub struct Held {
    pub meta: Meta,
    pub checked: Nanos,
    pub block: Option<(BlockId, Extent)>,
}

impl Catalogue {
    pub(super) fn raise_floor(&mut self, path: &str, to: Nanos) {
        if let Some(floor) = self.floors.get_mut(floor_of(path)) {
            *floor = (*floor).max(to);
        }
    }

    /// A version of the path that was current before this time is older than what is or was known here.
    pub fn since(&self, path: &str) -> Nanos {
        let known =
            self.files.get(path).and_then(|file| file.known.as_ref()).map_or(0, |known| known.checked);
        let floor = self.floors.get(floor_of(path)).copied().unwrap_or(0);
        if crate::planted::PEER_VERSION_OF_ANY_AGE.on() { 0 } else { known.max(floor) }
    }

    /// A file's block, which gets a lease if it is in memory. None: nothing is known of the file.
    pub fn hold(&mut self, path: &str, index: u32) -> Option<Held> {
        let file = self.files.get(path)?;
        let known = file.known.as_ref().filter(|known| !known.is_doubted)?;
        let (meta, checked) = (known.meta.clone(), known.checked);
        let here = match file.slot(index) {
            Some(Slot::Here(id)) => Some(*id),
            _ => None,
        };
        let block = here.and_then(|id| {
            self.lease(id);
            self.blocks.get(id as usize)?.as_ref().map(|block| (id, block.extent))
        });
        Some(Held { meta, checked, block })
    }

    /// Whether what is known of a file since `checked` may be used now.
    pub fn may_use(&self, checked: Nanos, now: Nanos) -> bool {
        self.settings.freshness.holds(checked, now)
    }

    /// The version that is known of each file, and since when, if it is the one that flash names so.
    pub fn known_versions(&self, files: &[(Arc<str>, u64)]) -> Vec<Option<(Arc<str>, Nanos)>> {
        let known = |(path, number): &(Arc<str>, u64)| {
            let known = self.files.get(path)?.known.as_ref().filter(|known| !known.is_doubted)?;
            let is_it = number_of(&known.meta.version) == *number;
            is_it.then(|| (known.meta.version.clone(), known.checked))
        };
        files.iter().map(known).collect()
    }

    /// Paths of known files, in their order.
    pub fn known_paths(&self, wants: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        let known = self.files.iter().filter(|(path, file)| file.known.is_some() && wants(path));
        let mut paths: Vec<Arc<str>> = known.map(|(path, _)| path.clone()).collect();
        paths.sort_unstable();
        paths
    }

    /// Another node knew this at `checked`. True: it is what is known here now.
    pub fn learn(&mut self, path: &Arc<str>, meta: &Meta, checked: Nanos, now: Nanos) -> bool {
        if !self.settings.freshness.holds(checked, now) {
            return false;
        }
        match self.files.get(path) {
            Some(file) if file.check.is_some() => return false,
            Some(File { known: Some(known), .. }) => return known.meta == *meta,
            Some(_) => {}
            None if self.files.len() >= self.settings.files_max => return false,
            None => {}
        }
        if checked < self.since(path) {
            return false;
        }
        if !self.files.contains_key(path) {
            self.order.push_back(path.clone());
        }
        let file = self.files.entry(path.clone()).or_default();
        file.known = Some(Known { meta: meta.clone(), checked, is_doubted: false });
        true
    }

    /// Room for a block that another node gives, if nothing has to make way for it.
    pub fn room_for_taken(&mut self, len: u64) -> Option<Extent> {
        self.extents.allocate(len)
    }

    /// The block that another node gave is in the extent.
    pub fn taken(&mut self, path: &Arc<str>, meta: &Meta, index: u32, extent: Extent) -> bool {
        let file = self.files.get(path);
        let is_wanted = file.is_some_and(|file| {
            file.known.as_ref().is_some_and(|known| known.meta == *meta)
                && file.slot(index).is_none()
                && extent.len == block_len(meta.length, index)
        });
        let attached = is_wanted && self.attach(path, &meta.version, index, extent, false).is_some();
        if !attached {
            self.give_back(extent);
        }
        attached
    }

    /// Another node has the file now: its blocks leave memory, unless something has a lease on one of them. Its length, if it is known.
    pub fn moved(&mut self, path: &str) -> Option<u64> {
        let file = self.files.get_mut(path)?;
        let length = file.known.as_ref()?.meta.length;
        let blocks = &self.blocks;
        let is_idle = |slot: &Slot| match slot {
            Slot::Loading { .. } => false,
            Slot::Here(id) => {
                blocks.get(*id as usize).and_then(Option::as_ref).is_some_and(|block| block.leases == 0)
            }
        };
        if !file.slots.iter().all(|(_, slot)| is_idle(slot)) {
            return Some(length);
        }
        for (_, slot) in std::mem::take(&mut file.slots) {
            if let Slot::Here(id) = slot {
                self.detach(id);
            }
        }
        Some(length)
    }

    /// Blocks of a file of this length.
    pub fn blocks_in(length: u64) -> u32 {
        length.div_ceil(BLOCK_BYTES) as u32
    }
}
