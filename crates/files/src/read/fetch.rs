//! One flight: where the bytes come from. Flash first, then the node that owns the file (`ask`), then the store; for a block that flash and the store both have, `split`
//! decides.
//!
//! A file that nothing is known of is asked for by one GET of its first [`START_BYTES`], which tells its length and version as well: a
//! small file takes one request. If flash seems to have it, a HEAD is asked first, as its answer may save the GET.

use super::split::Wanted;
use super::{Fetched, Files, ROOM_WAIT};
use crate::catalogue::{BLOCK_BYTES, Fault, Meta, Room, Task, Victim, block_len};
use crate::flash::Flash;
use crate::memory::arena::Loading;
use crate::memory::extents::Extent;
use crate::packing::{FILE_MAX, Found};
use std::sync::Arc;
use terrace_io::clock::Nanos;

/// Files up to this length are fetched whole by their first request.
const START_BYTES: u64 = 1 << 20;
/// Times that a file is fetched again because it changed between two requests for its first block.
const CHANGES_MAX: u32 = 3;

enum Filled {
    Whole(Extent),
    InPart,
}

fn whole(filled: Filled) -> Result<Extent, Fault> {
    match filled {
        Filled::Whole(extent) => Ok(extent),
        Filled::InPart => Err(Fault::Changed),
    }
}

impl Files {
    pub(super) fn fly(&self, task: Task) {
        match task {
            Task::Head { path, epoch } => {
                let (result, at) = self.head(&path);
                let result = result.map(|meta| (meta, None));
                self.tell(|catalogue, now| catalogue.checked_at(&path, epoch, result, at, now));
            }
            Task::Start { path, epoch, first } => {
                let (result, at) = match self.start(&path, first) {
                    Ok((meta, extent, at)) => (Ok((meta, extent)), at),
                    Err(fault) => (Err(fault), None),
                };
                self.tell(|catalogue, now| catalogue.checked_at(&path, epoch, result, at, now));
            }
            Task::Block { path, version, index, len, flight } => {
                let result = self.block(&path, &version, index, len);
                self.tell(|catalogue, now| catalogue.loaded(&path, flight, result, now));
            }
        }
    }

    /// What is said of the file, and when that was true if another node says it.
    fn head(&self, path: &Arc<str>) -> (Result<Meta, Fault>, Option<Nanos>) {
        match self.start_by_peer(path, 0) {
            Some((meta, _, at)) => (Ok(meta), at),
            None => (self.store.head(path), None),
        }
    }

    /// What is said of the file, and its first block if it is wanted or the whole file.
    fn start(&self, path: &Arc<str>, first: bool) -> Result<Fetched, Fault> {
        let mut changes = 0;
        loop {
            let seems_here = self.flash.as_ref().is_some_and(|flash| flash.seems_to_have(path));
            let result = match seems_here {
                true => self.start_by_head(path, first),
                false => match self.start_by_peer(path, START_BYTES) {
                    Some(fetched) => self.with_first(path, first, fetched),
                    None => self.start_by_get(path, first).map(|(meta, extent)| (meta, extent, None)),
                },
            };
            match result {
                Err(Fault::Changed) if changes < CHANGES_MAX => changes += 1,
                result => return result,
            }
        }
    }

    fn start_by_head(&self, path: &Arc<str>, first: bool) -> Result<Fetched, Fault> {
        let (meta, at) = self.head(path);
        self.with_first(path, first, (meta?, None, at))
    }

    /// The first block, if it did not come and is to come with what is known.
    fn with_first(&self, path: &str, first: bool, fetched: Fetched) -> Result<Fetched, Fault> {
        let (meta, extent, at) = fetched;
        let len = block_len(meta.length, 0);
        if extent.is_some() || len == 0 || !first && meta.length > BLOCK_BYTES {
            return Ok((meta, extent, at));
        }
        let extent = self.block(path, &meta.version, 0, len)?;
        Ok((meta, Some(extent), at))
    }

    fn start_by_get(&self, path: &str, first: bool) -> Result<(Meta, Option<Extent>), Fault> {
        let room = self.bodies.take(START_BYTES);
        let (meta, bytes) = self.store.start(path, START_BYTES)?;
        let len = block_len(meta.length, 0);
        if len == 0 || !first && meta.length > BLOCK_BYTES {
            return Ok((meta, None));
        }
        let begun = bytes.len();
        let filled = self.fill(len, |place| {
            let (start, rest) = place.split_at_mut(begun);
            start.copy_from_slice(&bytes);
            drop((bytes, room));
            // Not waited for, as this has room in the arena, for which others wait that have room for bodies.
            if !rest.is_empty() && !self.bodies.try_take(rest.len() as u64) {
                return Ok(false);
            }
            let result = match rest.is_empty() {
                true => return Ok(true),
                false => self.store.range(path, &meta.version, begun as u64, rest),
            };
            self.bodies.give_back(rest.len() as u64);
            result.map(|()| true)
        });
        let extent = match filled? {
            Filled::Whole(extent) => extent,
            Filled::InPart => self.block(path, &meta.version, 0, len)?,
        };
        Ok((meta, Some(extent)))
    }

    fn block(&self, path: &str, version: &str, index: u32, len: u64) -> Result<Extent, Fault> {
        let wanted = Wanted { path, version, index, len };
        match &self.flash {
            Some(flash) if flash.seems_to_have_block(path, index) => self.block_of_two(flash, wanted),
            _ => self.block_in_store(wanted),
        }
    }

    /// None: flash does not have this version of the block.
    pub(super) fn block_on_flash(&self, flash: &Flash, wanted: Wanted<'_>) -> Result<Option<Extent>, Fault> {
        let Wanted { path, version, index, len } = wanted;
        let copied = |bytes: &[u8]| {
            let filled = self.fill(len, |place| {
                place.copy_from_slice(bytes);
                Ok(true)
            });
            whole(filled?)
        };
        if index == 0
            && len < FILE_MAX
            && let Some(found) = flash.find_packed(path, version, |bytes| self.bodies.take(bytes as u64))
            && let Some(bytes) = found.bytes().filter(|bytes| bytes.len() as u64 == len)
        {
            let extent = copied(bytes);
            if let Found::Packed { loaded, is_new: true, .. } = &found {
                self.bring(flash, loaded, path);
            }
            return extent.map(Some);
        }
        let value = flash.find(path, index, version).filter(|value| value.len() as u64 == len);
        value.map(|value| copied(&value)).transpose()
    }

    /// From the node that owns the file, or from the store.
    pub(super) fn block_in_store(&self, wanted: Wanted<'_>) -> Result<Extent, Fault> {
        let Wanted { path, version, index, len } = wanted;
        if let Some(extent) = self.block_by_peer(path, version, index, len) {
            return Ok(extent);
        }
        let _room = self.bodies.take(len);
        let filled = self.fill(len, |place| {
            self.store.range(path, version, u64::from(index) * BLOCK_BYTES, place).map(|()| true)
        });
        whole(filled?)
    }

    /// Allocates `len` bytes and fills them. `fill` returns false if it could not do all of it and they are to be freed.
    fn fill(&self, len: u64, fill: impl FnOnce(&mut [u8]) -> Result<bool, Fault>) -> Result<Filled, Fault> {
        let mut loading = self.allocate(len)?;
        let result = fill(loading.bytes_mut());
        let extent = loading.loaded();
        if matches!(result, Ok(true)) {
            return Ok(Filled::Whole(extent));
        }
        self.tell(|catalogue, _| catalogue.give_back(extent));
        result.map(|_| Filled::InPart)
    }

    /// A block leaves memory: flash may keep it, if the file is this node's.
    pub(super) fn to_flash(&self, victim: &Victim) {
        if let Some(flash) = &self.flash
            && self.keeps(&victim.path)
        {
            flash.evicted(victim, self.arena.bytes(victim.extent));
        }
    }

    /// Evicts what it takes, down to flash.
    pub(super) fn allocate(&self, len: u64) -> Result<Loading, Fault> {
        let began = self.world.clock.now();
        loop {
            let seen = self.room.ticket();
            match self.tell(|catalogue, _| catalogue.allocate(len)) {
                Room::Found(extent) => return Ok(self.arena.loading(extent)),
                Room::Evicted(victims) => {
                    for victim in victims {
                        self.to_flash(&victim);
                        self.tell(|catalogue, _| catalogue.give_back(victim.extent));
                    }
                }
                Room::Full => {
                    let waited = self.world.clock.now().saturating_sub(began);
                    if waited >= ROOM_WAIT || self.is_stopping() {
                        let cause = format!(
                            "no room for {len} bytes: all of the memory is under lease or being filled"
                        );
                        return Err(Fault::Busy(cause));
                    }
                    self.world.sched.wait(&self.room, seen, Some(ROOM_WAIT - waited));
                }
            }
        }
    }
}
