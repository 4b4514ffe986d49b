//! The superblock: where everything begins.
//!
//! The file `superblock` on the volume holds two copies of 4 KiB, at 0 and 4096, written alternately
//! and synced each; the intact one with the higher generation counts. Little-endian:
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | CRC-32C of bytes 4..4096 |
//! | 4 | 4 | closed cleanly: digest of the map that was left ([`Map::digest`](terrace_tier::volume::map::Map::digest)), not 0; else 0 |
//! | 8 | 8 | magic `TERRACE1` |
//! | 16 | 4 | format version: 18 if the map has ever named a patch object, else 17. It was 16 and 15 before the superblock told of the map, 14 and 13 before undo told of updates what differs, 12 and 11 before rows named the pages of their values, 10 and 9 before undo named pages of values, 8 with a mark of a taker, 7 with takers, else 6 if flags bit 1 is set, else 5 |
//! | 20 | 4 | page size |
//! | 24 | 16 | instance id |
//! | 40 | 16 | lineage |
//! | 56 | 8 | generation of this copy |
//! | 64 | 4 | writer epoch |
//! | 68 | 4 | flags: bit 0 closed cleanly, bit 1 has taken an object store; bits 16 to 31: number of writer epochs in a row, this one the last, that archive the log |
//! | 72 | 8 | checkpoint: redo starts here |
//! | 80 | 8 | horizon attested when it was written |
//! | 88 | 8 | upper bound of transaction ids given out |
//! | 96 | 8 | upper bound of object sequences given out |
//! | 104 | 4 | upper bound of space ids given out |
//! | 108 | 4 | slots of the object buffer |
//! | 112 | 8 | blocks of each log partition |
//! | 120 | 4 | log partitions |
//! | 124 | 4 | epochs in the history |
//! | 128 | 8 × 64 | start of each partition, a block sequence |
//! | 640 | 16 × 200 | history: epoch u64, first GLSN that it owns u64 |
//! | 3840 | 8 | number of takers |
//! | 3848 | 16 × 15 | takers: writer epoch u32, mark u32, number drawn at its open u64 (`terrace_tier::objects::fence`) |
//! | 4088 | 8 | LSN of the newest map page that was in its home when this was written, or less |

use crate::error::Error;
use std::num::NonZeroU32;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, DiskError, File};
use terrace_log::recovery::{self, LogBounds};
use terrace_tier::address::Slot;
use terrace_tier::objects::fence::{TAKERS_MAX, Taker};
use terrace_tier::page::{Glsn, PAGE_SIZE};

pub const FILE: &str = "superblock";
pub const PARTITIONS_MAX: usize = 64;
const HISTORY_MAX: usize = 200;
pub(crate) const COPY: usize = 4096;
const MAGIC: [u8; 8] = *b"TERRACE1";
pub const VERSION: u32 = 17;
/// From the first patch object on: builds before it would take a place in one for a slot.
pub const VERSION_OF_PATCHES: u32 = 18;
/// The same before undo named the pages of large values, before rows did, before undo told of updates what differs, and before the
/// superblock told of the map.
const FORMER_OF_PATCHES: [u32; 4] = [10, 12, 14, 16];
/// Before it, free pages were a chain.
pub const VERSION_MIN: u32 = 5;
/// No counter gets so far: 18 exabytes of log, or a million objects a second for a hundred thousand years.
const NUMBER_MAX: u64 = 1 << 62;
/// 16 TiB of log in a partition.
pub const LOG_BLOCKS_MAX: u64 = 1 << 32;
/// Records have six bytes for a transaction's id.
const TRANSACTION_MAX: u64 = 1 << 48;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The version that it was read from, until the next epoch begins.
    pub version: u32,
    pub instance: u128,
    pub lineage: u128,
    pub generation: u64,
    pub epoch: u32,
    pub clean: bool,
    /// An object store holds this instance's epoch object: one that doesn't is not its store.
    pub has_store: bool,
    /// How many writer epochs in a row, this one the last, archive the log (at least: it stops at its maximum). Nothing bypassed it in them.
    pub archiving: u16,
    pub checkpoint: Glsn,
    pub attested: Glsn,
    pub transactions: u64,
    pub sequences: u64,
    pub spaces: u32,
    pub slots: u32,
    pub log_blocks: u64,
    /// A block sequence for each partition.
    pub starts: Vec<u64>,
    /// Which epoch owns the log from which GLSN on, ascending.
    pub history: Vec<(u32, Glsn)>,
    /// The writers of this volume that the object store may name: the one that took it last, as known, and those that meant to since.
    pub takers: Vec<Taker>,
    /// LSN of the newest map page that is known to be in its home: the map of a start must come so far.
    pub map_newest: Glsn,
    /// The digest of the map that a clean close left; none otherwise.
    pub map_digest: Option<NonZeroU32>,
}

impl Superblock {
    /// Whether the map may name patch objects.
    pub fn has_patches(&self) -> bool {
        self.version == VERSION_OF_PATCHES || FORMER_OF_PATCHES.contains(&self.version)
    }

    /// What the log's reader must know.
    pub fn log_bounds(&self) -> LogBounds {
        LogBounds {
            version: self.version,
            clean: self.clean,
            instance: self.instance as u64,
            epoch: self.epoch,
            checkpoint: self.checkpoint,
            attested: self.attested,
            blocks: self.log_blocks,
            starts: self.starts.clone(),
            history: self.history.clone(),
        }
    }

    /// Forgets epochs whose log lies wholly below `position`, which is not above the checkpoint.
    pub fn prune_history(&mut self, position: Glsn) {
        recovery::prune(&mut self.history, position.min(self.checkpoint));
    }

    /// From here on the log has every change: in all epochs before this position nothing is known of what bypassed it.
    pub fn archivable_from(&self) -> Glsn {
        let since = (u64::from(self.epoch) + 1).saturating_sub(u64::from(self.archiving));
        let before = self.history.iter().rposition(|(epoch, _)| u64::from(*epoch) < since);
        match before {
            Some(before) => self.history.get(before + 1).map_or(Glsn::MAX, |(_, first)| *first),
            None => 0,
        }
    }

    /// The next writer's epoch, which owns the log from `end` on: where the one before was cut.
    pub fn begin_epoch(&mut self, end: Glsn) -> Result<(), Error> {
        // An archive may still read what lies before the checkpoint, as long as there is room for knowing whose it is.
        let long = self.history.len() > HISTORY_MAX / 2;
        let keep_from = if self.archiving > 0 && !long { 0 } else { self.checkpoint };
        recovery::begin_epoch(&mut self.history, keep_from, end);
        if self.history.len() == HISTORY_MAX {
            return Err(Error::Full(format!(
                "the instance was started {HISTORY_MAX} times since its last checkpoint at {}; start it with its \
                 object store reachable",
                self.checkpoint
            )));
        }
        self.takers = self.known_takers();
        self.version = if self.has_patches() { VERSION_OF_PATCHES } else { VERSION };
        let next = self.epoch.checked_add(1);
        self.epoch = next.ok_or_else(|| Error::Full("there are no more writer epochs".into()))?;
        self.history.push((self.epoch, end));
        self.attested = end;
        self.clean = false;
        self.map_digest = None;
        Ok(())
    }

    /// An object buffer of a former build may have more slots than can be named by now.
    pub fn check_slots(&self) -> Result<(), Error> {
        let (slots, max) = (self.slots, Slot::COUNT_MAX);
        if slots <= max {
            return Ok(());
        }
        let gib = |slots: u32| (u64::from(slots) * PAGE_SIZE as u64) >> 30;
        Err(Error::Invalid(format!(
            "the volume's object buffer has {slots} slots ({} GiB), and this build names at most {max} ({} GiB), because the numbers from there \
             on say where in a patch object a page is: make it smaller with the build that made it (object_buffer), and then start this one",
            gib(slots),
            gib(max)
        )))
    }

    /// The takers; for a volume that took its store before they were kept, every writer up to its epoch.
    pub fn known_takers(&self) -> Vec<Taker> {
        match &self.takers[..] {
            [] if self.has_store => vec![Taker { epoch: self.epoch, nonce: 0, mark: 0 }],
            takers => takers.to_vec(),
        }
    }

    pub(crate) fn encode(&self) -> AlignedBuf {
        assert!(self.starts.len() <= PARTITIONS_MAX && self.history.len() <= HISTORY_MAX);
        assert!(self.takers.len() <= TAKERS_MAX);
        let flags = u32::from(self.clean) | u32::from(self.has_store) << 1 | u32::from(self.archiving) << 16;
        let mut b = AlignedBuf::zeroed(COPY);
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        put(4, &self.map_digest.map_or(0, NonZeroU32::get).to_le_bytes());
        put(8, &MAGIC);
        put(16, &self.version.to_le_bytes());
        put(20, &(PAGE_SIZE as u32).to_le_bytes());
        put(24, &self.instance.to_le_bytes());
        put(40, &self.lineage.to_le_bytes());
        put(56, &self.generation.to_le_bytes());
        put(64, &self.epoch.to_le_bytes());
        put(68, &flags.to_le_bytes());
        put(72, &self.checkpoint.to_le_bytes());
        put(80, &self.attested.to_le_bytes());
        put(88, &self.transactions.to_le_bytes());
        put(96, &self.sequences.to_le_bytes());
        put(104, &self.spaces.to_le_bytes());
        put(108, &self.slots.to_le_bytes());
        put(112, &self.log_blocks.to_le_bytes());
        put(120, &(self.starts.len() as u32).to_le_bytes());
        put(124, &(self.history.len() as u32).to_le_bytes());
        self.starts.iter().enumerate().for_each(|(i, s)| put(128 + 8 * i, &s.to_le_bytes()));
        for (i, (epoch, first)) in self.history.iter().enumerate() {
            put(640 + 16 * i, &u64::from(*epoch).to_le_bytes());
            put(648 + 16 * i, &first.to_le_bytes());
        }
        put(3840, &(self.takers.len() as u64).to_le_bytes());
        for (i, taker) in self.takers.iter().enumerate() {
            put(3848 + 16 * i, &taker.epoch.to_le_bytes());
            put(3852 + 16 * i, &taker.mark.to_le_bytes());
            put(3856 + 16 * i, &taker.nonce.to_le_bytes());
        }
        put(4088, &self.map_newest.to_le_bytes());
        let crc = crc32c::crc32c(&b[4..]);
        b[..4].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// None: not an intact superblock. `Err`: intact, but of another format.
    pub(crate) fn decode(b: &[u8]) -> Result<Option<Superblock>, Error> {
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        let u128_at = |i: usize| u128::from(u64_at(i)) | u128::from(u64_at(i + 8)) << 64;
        if b[8..16] != MAGIC || u32_at(0) != crc32c::crc32c(&b[4..COPY]) {
            return Ok(None);
        }
        let (version, page_size) = (u32_at(16), u32_at(20));
        if !(VERSION_MIN..=VERSION_OF_PATCHES).contains(&version) || page_size as usize != PAGE_SIZE {
            let instead = match version {
                0..VERSION_MIN => {
                    "; it is older than that: dump its tables with the build that made it (mariadb-dump), and load them into a \
                     new volume"
                }
                VERSION_MIN..=VERSION_OF_PATCHES => "",
                _ => "; a later build made it: use that one",
            };
            return Err(Error::Invalid(format!(
                "the volume has format version {version} with pages of {page_size} bytes; this build reads versions \
                 {VERSION_MIN} to {VERSION_OF_PATCHES} with {PAGE_SIZE}{instead}"
            )));
        }
        let (partitions, epochs) = (u32_at(120) as usize, u32_at(124) as usize);
        if partitions == 0 || partitions > PARTITIONS_MAX || epochs > HISTORY_MAX {
            return Ok(None);
        }
        let takers = u64_at(3840) as usize;
        if takers > TAKERS_MAX {
            return Ok(None);
        }
        let taker = |i: usize| {
            let (epoch, mark) = (u32_at(3848 + 16 * i), u32_at(3852 + 16 * i));
            Taker { epoch, nonce: u64_at(3856 + 16 * i), mark }
        };
        let found = Superblock {
            version,
            instance: u128_at(24),
            lineage: u128_at(40),
            generation: u64_at(56),
            epoch: u32_at(64),
            clean: u32_at(68) & 1 == 1,
            has_store: u32_at(68) & 2 == 2,
            archiving: (u32_at(68) >> 16) as u16,
            checkpoint: u64_at(72),
            attested: u64_at(80),
            transactions: u64_at(88),
            sequences: u64_at(96),
            spaces: u32_at(104),
            slots: u32_at(108),
            log_blocks: u64_at(112),
            starts: (0..partitions).map(|i| u64_at(128 + 8 * i)).collect(),
            history: (0..epochs).map(|i| (u64_at(640 + 16 * i) as u32, u64_at(648 + 16 * i))).collect(),
            takers: (0..takers).map(taker).collect(),
            map_newest: u64_at(4088),
            map_digest: NonZeroU32::new(u32_at(4)),
        };
        Ok((found.is_possible() && found.encode()[..] == *b).then_some(found))
    }

    /// Whether an instance can have come so far: what is built upon it does arithmetic.
    fn is_possible(&self) -> bool {
        let numbers = [self.generation, self.checkpoint, self.attested, self.sequences, self.map_newest];
        let ascend = self.history.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        numbers.iter().chain(&self.starts).all(|n| *n < NUMBER_MAX)
            && self.history.iter().all(|(epoch, first)| *epoch <= self.epoch && *first < NUMBER_MAX)
            && ascend
            && (self.clean || self.map_digest.is_none())
            && self.takers.iter().all(|taker| taker.epoch <= self.epoch)
            && self.takers.windows(2).all(|pair| pair[0].epoch < pair[1].epoch)
            && (1..=LOG_BLOCKS_MAX).contains(&self.log_blocks)
            && self.transactions < TRANSACTION_MAX
    }

    /// The newer intact copy.
    pub fn read(volume: &dyn Disk) -> Result<Superblock, Error> {
        let file = volume.open(FILE)?;
        let mut buf = AlignedBuf::zeroed(2 * COPY);
        if file.len() < buf.len() as u64 {
            return Err(Error::Corrupt(format!(
                "{}: the superblock has {} bytes of {}: it is damaged, or not Terrace's",
                volume.describe(),
                file.len(),
                buf.len()
            )));
        }
        file.read(Class::Superblock, 0, &mut buf)?;
        let mut best: Option<Superblock> = None;
        for copy in buf.chunks_exact(COPY) {
            if let Some(found) = Superblock::decode(copy)?
                && best.as_ref().is_none_or(|b| b.generation < found.generation)
            {
                best = Some(found);
            }
        }
        best.ok_or_else(|| {
            Error::Corrupt(format!("{}: neither copy of the superblock is intact", volume.describe()))
        })
    }

    /// Which of the two copies are intact. One may be torn or not written yet.
    pub fn intact(volume: &dyn Disk) -> Result<[bool; 2], Error> {
        let mut buf = AlignedBuf::zeroed(2 * COPY);
        volume.open(FILE)?.read(Class::Superblock, 0, &mut buf)?;
        let (first, second) = buf.split_at(COPY);
        Ok([Superblock::decode(first)?.is_some(), Superblock::decode(second)?.is_some()])
    }

    /// Makes the file `name` with its first copy; durable when it returns, the name after `sync_dir`.
    pub fn create_as(&self, volume: &dyn Disk, name: &str) -> Result<(), DiskError> {
        let file = volume.create(name)?;
        file.grow(2 * COPY as u64, true)?;
        file.sync(Class::Superblock)?;
        self.write(&*file)
    }

    /// Writes over the older copy and syncs. The generation says which that is.
    pub fn write(&self, file: &dyn File) -> Result<(), DiskError> {
        let copy = if crate::planted::SUPERBLOCK_OVERWRITTEN.on() { 0 } else { self.generation % 2 };
        file.write(Class::Superblock, copy * COPY as u64, &self.encode())?;
        file.sync(Class::Superblock)
    }
}

#[cfg(test)]
mod tests;
