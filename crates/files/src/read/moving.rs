//! The daemon as other nodes see it: their reads, and files that move to their new owner.
//!
//! What is given, in this order: packed blocks, files that are to be packed, and what is known of other files, from memory or flash. Given files are dropped when the other node has
//! kept them; a block that a client has under lease stays until it is evicted.

use super::Files;
use crate::catalogue::{BLOCK_BYTES, Catalogue, Leased, Meta, Read, block_len};
use crate::memory::extents::Extent;
use crate::packing::block::{self, Item, Tail};
use crate::packing::{self, Adopted, Moving};
use crate::peers::frame::Broken;
use crate::peers::give::{Given, Giving, Knows, Large, Phase, Sent};
use crate::peers::ring::{Set, partition_of, partition_of_mark};
use crate::peers::{Ask, Cached, Node};
use std::sync::Arc;
use terrace::flash::Offered;
use terrace_io::clock::Nanos;
use terrace_io::sched::Event;

/// Bytes of files that are not packed in one frame, unless one block is longer.
const GIVEN_BYTES: u64 = 4 << 20;
/// How long a block that was given waits for flash, and between two attempts, in nanoseconds.
const KEEP_TIME: Nanos = 5_000_000_000;
const QUEUE_LOOK: Nanos = 2_000_000;

impl Node for Files {
    fn begin(&self, read: Read) {
        self.tell(|catalogue, now| catalogue.begin(read, now));
    }

    fn cached(&self, id: u64, ask: Ask) {
        // May read flash.
        self.submit(Box::new(move |files| {
            let found = files.find_cached(&ask);
            if let Some(peers) = files.peers() {
                peers.cached(id, found);
            }
        }));
    }

    fn release(&self, leases: &[Leased]) {
        self.tell(|catalogue, _| leases.iter().for_each(|lease| catalogue.release(lease.block)));
    }

    fn bytes(&self, extent: Extent) -> &[u8] {
        self.arena.bytes(extent)
    }

    fn changed(&self, path: &Arc<str>) {
        self.changed_elsewhere(path);
    }

    fn give(&self, giving: &mut Giving, set: &Set) -> Given {
        loop {
            let given = match &giving.phase {
                Phase::Begin => {
                    giving.phase = Phase::Packed(0);
                    continue;
                }
                Phase::Packed(from) => {
                    let wants = |mark| set.contains(partition_of_mark(mark));
                    match self.flash.as_ref().and_then(|flash| flash.give(*from, wants)) {
                        Some((next, moving)) => {
                            giving.phase = Phase::Packed(next);
                            self.given(giving, moving)
                        }
                        None => {
                            giving.phase = Phase::Staged;
                            continue;
                        }
                    }
                }
                Phase::Staged => {
                    let wants = |mark| set.contains(partition_of_mark(mark));
                    let packs = self.flash.as_ref().and_then(|flash| flash.packs.as_ref());
                    match packs.and_then(|packs| packs.give_staged(wants)) {
                        Some(moving) => self.given(giving, moving),
                        None => {
                            let wants = |path: &str| set.contains(partition_of(path));
                            let list = self.tell(|catalogue, _| catalogue.known_paths(wants));
                            giving.phase = Phase::Known { list, at: 0, index: 0 };
                            continue;
                        }
                    }
                }
                Phase::Known { .. } => self.give_known(giving),
            };
            return given;
        }
    }

    fn moved(&self, sent: Sent) {
        for (path, version) in &sent.smalls {
            if let Some(packs) = self.flash.as_ref().and_then(|flash| flash.packs.as_ref()) {
                packs.moved(path, *version);
            }
        }
        self.tell(|catalogue, _| {
            let all = sent.smalls.iter().chain(&sent.larges);
            all.for_each(|(path, _)| _ = catalogue.moved(path));
        });
        if let Some(flash) = &self.flash {
            sent.larges.iter().for_each(|(path, length)| flash.forget_all(path, *length));
        }
    }

    fn take(&self, given: Given, began: Nanos) -> Result<u64, Broken> {
        let mut files = 0;
        if !given.packed.is_empty() {
            files += self.take_packed(given.id, given.packed, &given.known, began)?;
        }
        for large in &given.larges {
            files += u64::from(self.take_large(large, began)?);
        }
        Ok(files)
    }
}

impl Files {
    /// What is in memory or on flash of a block, if its version is known here or named.
    fn find_cached(&self, ask: &Ask) -> Cached {
        let held = self.tell(|catalogue, now| {
            let held = catalogue.hold(&ask.path, ask.index)?;
            // What is too old is not said; a named version may be.
            let is_of_use = ask.expected.is_some() || catalogue.may_use(held.checked, now);
            if let Some((block, _)) = held.block.filter(|_| !is_of_use) {
                catalogue.release(block);
            }
            is_of_use.then_some(held)
        });
        let is_it = |meta: &Meta| ask.expected.as_ref().is_none_or(|expected| *expected == meta.version);
        let found = held.map(|held| {
            let bytes = held.block.map(|(block, extent)| {
                let fits = is_it(&held.meta) && extent.len <= ask.max;
                let bytes = if fits { self.arena.bytes(extent).to_vec() } else { Vec::new() };
                self.tell(|catalogue, _| catalogue.release(block));
                bytes
            });
            (held.meta, held.checked, bytes.unwrap_or_default())
        });
        if let Some((meta, checked, bytes)) =
            found.filter(|(meta, _, bytes)| is_it(meta) && (ask.max == 0 || !bytes.is_empty()))
        {
            return Cached::Found { version: meta.version, length: meta.length, checked, bytes };
        }
        let Some(flash) = &self.flash else { return Cached::NotHere };
        let Some(expected) = &ask.expected else {
            return if flash.seems_to_have(&ask.path) { Cached::Seems } else { Cached::NotHere };
        };
        match self.from_flash(&ask.path, ask.index, expected, ask.max) {
            // A node that names the version knows the file's length.
            Some(bytes) => Cached::Found { version: expected.clone(), length: 0, checked: 0, bytes },
            None => Cached::NotHere,
        }
    }

    /// A block from flash, if it has at most `max` bytes.
    fn from_flash(&self, path: &str, index: u32, version: &str, max: u64) -> Option<Vec<u8>> {
        let flash = self.flash.as_ref()?;
        let packed = if index == 0 {
            flash.find_packed(path, version, |bytes| self.bodies.take(bytes as u64))
        } else {
            None
        };
        let bytes = match packed.as_ref().and_then(|found| found.bytes()) {
            Some(bytes) => bytes.to_vec(),
            None => flash.find(path, index, version)?.to_vec(),
        };
        (bytes.len() as u64 <= max).then_some(bytes)
    }

    /// A frame with a packed block, and what is known of its files.
    fn given(&self, giving: &mut Giving, moving: Moving) -> Given {
        let now = self.world.clock.now();
        let known = self.tell(|catalogue, _| catalogue.known_versions(&moving.files));
        let known = known.into_iter().enumerate().filter_map(|(at, known)| {
            let (version, checked) = known?;
            Some(Knows { at: at as u32, age: now.saturating_sub(checked), version })
        });
        let known = known.collect();
        giving.sent.smalls = moving.files;
        Given { packed: moving.bytes, id: moving.id, known, ..Given::default() }
    }

    /// Files that are known, from where the last frame ended: small ones in a block that is made of them, or blocks of longer ones.
    fn give_known(&self, giving: &mut Giving) -> Given {
        let Phase::Known { list, at, index } = &mut giving.phase else { return Given::default() };
        let now = self.world.clock.now();
        let mut given = Given::default();
        let (mut items, mut sum) = (Vec::new(), 0);
        while sum < GIVEN_BYTES
            && let Some(path) = list.get(*at).cloned()
        {
            let held = self.tell(|catalogue, _| catalogue.hold(&path, *index));
            let Some(held) = held else {
                (*at, *index) = (*at + 1, 0);
                continue;
            };
            let len = block_len(held.meta.length, *index);
            let bytes = match held.block {
                Some((block, extent)) => {
                    let bytes = self.arena.bytes(extent).to_vec();
                    self.tell(|catalogue, _| catalogue.release(block));
                    Some(bytes)
                }
                // Small ones on flash were given with their blocks.
                None if held.meta.length < packing::FILE_MAX => None,
                None => self.from_flash(&path, *index, &held.meta.version, BLOCK_BYTES),
            };
            let is_small = held.meta.length < packing::FILE_MAX;
            let is_last = *index + 1 >= Catalogue::blocks_in(held.meta.length);
            let age = now.saturating_sub(held.checked);
            if let Some(bytes) = bytes.filter(|bytes| bytes.len() as u64 == len && len > 0) {
                sum += len;
                match is_small {
                    true => items.push((path.clone(), held.meta.version.clone(), age, bytes)),
                    false => given.larges.push(Large {
                        path: path.clone(),
                        version: held.meta.version.clone(),
                        length: held.meta.length,
                        index: *index,
                        age,
                        bytes,
                    }),
                }
            }
            if is_last && !is_small {
                giving.sent.larges.push((path, held.meta.length));
            }
            (*at, *index) = if is_last { (*at + 1, 0) } else { (*at, *index + 1) };
        }
        // In the order of their paths, as the block has them.
        let item = |(path, version, _, bytes): &(Arc<str>, Arc<str>, Nanos, Vec<u8>)| Item {
            path: path.clone(),
            version: crate::catalogue::number_of(version),
            bytes: bytes.as_slice().into(),
        };
        if let Some(moving) = Moving::of(items.iter().map(item).collect()) {
            let known = items.into_iter().enumerate();
            given.known =
                known.map(|(at, (_, version, age, _))| Knows { at: at as u32, age, version }).collect();
            (given.packed, given.id) = (moving.bytes, moving.id);
            giving.sent.smalls = moving.files;
        }
        given.ended = given.packed.is_empty() && given.larges.is_empty();
        given
    }

    /// Tries until flash has room for it, for a while.
    fn keep<T: PartialEq>(&self, later: T, mut attempt: impl FnMut() -> T) -> Result<T, Broken> {
        let until = self.world.clock.now() + KEEP_TIME;
        loop {
            let outcome = attempt();
            if outcome != later {
                return Ok(outcome);
            }
            if self.world.clock.now() >= until || self.is_stopping() {
                return Err(Broken::Io("flash has no room at the moment".into()));
            }
            let never = Event::new();
            self.world.sched.wait(&never, never.ticket(), Some(QUEUE_LOOK));
        }
    }

    fn take_packed(&self, id: u64, bytes: Vec<u8>, known: &[Knows], began: Nanos) -> Result<u64, Broken> {
        let Tail::Whole(footer) = block::decode(id, bytes.len(), &bytes) else { return Err(Broken::Corrupt) };
        let mut learned = Vec::new();
        for knows in known {
            let at = knows.at as usize;
            let (Some(entry), Some(path)) = (footer.entry(at), footer.path(at)) else {
                return Err(Broken::Corrupt);
            };
            if crate::catalogue::number_of(&knows.version) != entry.version {
                return Err(Broken::Corrupt);
            }
            let meta = Meta { version: knows.version.clone(), length: entry.bytes.len() as u64 };
            learned.push((Arc::<str>::from(path), meta, began.saturating_sub(knows.age), entry));
        }
        let wants = |mark| self.peers().is_none_or(|peers| peers.is_mine_by_mark(mark));
        let adopted = match &self.flash {
            Some(flash) => {
                let copy = || flash.adopt(id, bytes.clone(), wants);
                self.keep(Adopted::Later, copy)?
            }
            None => Adopted::Never,
        };
        if adopted == Adopted::Corrupt {
            return Err(Broken::Corrupt);
        }
        let is_here: Vec<bool> = self.tell(|catalogue, now| {
            learned.iter().map(|(path, meta, at, _)| catalogue.learn(path, meta, *at, now)).collect()
        });
        if let Adopted::Files(count) = adopted {
            return Ok(count as u64);
        }
        // Without flash: those of which the version is known, as far as there is room in memory.
        let mut count = 0;
        for ((path, meta, _, entry), _) in learned.iter().zip(is_here).filter(|(_, is_here)| *is_here) {
            let part = bytes.get(entry.bytes.clone()).unwrap_or_default();
            if !footer.proves(entry, path, part) {
                return Err(Broken::Corrupt);
            }
            count += u64::from(self.take_into_memory(path, meta, 0, part));
        }
        Ok(count)
    }

    fn take_into_memory(&self, path: &Arc<str>, meta: &Meta, index: u32, bytes: &[u8]) -> bool {
        let room = self.tell(|catalogue, _| catalogue.room_for_taken(bytes.len() as u64));
        let Some(extent) = room else { return false };
        let mut loading = self.arena.loading(extent);
        loading.bytes_mut().copy_from_slice(bytes);
        let extent = loading.loaded();
        self.tell(|catalogue, _| catalogue.taken(path, meta, index, extent))
    }

    /// True for the first block of a file that is kept.
    fn take_large(&self, large: &Large, began: Nanos) -> Result<bool, Broken> {
        let Large { path, version, length, index, age, bytes } = large;
        let len = block_len(*length, *index);
        if bytes.len() as u64 != len || crate::wire::check_path(path).is_err() {
            return Err(Broken::Malformed("a block has not its file's length"));
        }
        if !self.keeps(path) {
            return Ok(false);
        }
        let meta = Meta { version: version.clone(), length: *length };
        let at = began.saturating_sub(*age);
        let is_known = self.tell(|catalogue, now| catalogue.learn(path, &meta, at, now));
        let kept = match &self.flash {
            Some(flash) => {
                let keep = || flash.keep(path, *index, version, bytes);
                matches!(self.keep(Offered::Dropped, keep)?, Offered::Queued | Offered::Kept)
            }
            None => false,
        };
        let kept = kept || is_known && self.take_into_memory(path, &meta, *index, bytes);
        Ok(kept && *index == 0)
    }
}
