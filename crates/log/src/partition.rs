//! One partition: a ring of blocks in one file, and the records that wait to be written to it.
//!
//! The ring's live part is a queue of *batches*, each the blocks of one write. A batch is free when
//! the checkpoint has passed the last range in it. At most one write is under way; what is appended
//! meanwhile waits for the next. A write that is only handed to the operating system is *unsynced* until a later write with a
//! sync, or a sync by itself, beside which writes go on. CloudJump §4.1.1 names the marks of a partition: persisted (PLSN,
//! below [`Ring::first_undurable`]) and buffered (BLSN, the end of what waits).
//!
//! All of it is memory work under the lock of `order`; `writer` does the I/O.

use crate::Glsn;
use crate::block::blocks_for;
use crate::planted;
use crate::record::{self, RecordHeader};
use std::collections::VecDeque;
use terrace_io::AlignedBuf;

/// Buffers of up to this many bytes are kept for the next write.
const KEPT: usize = 1 << 20;

/// Neighbouring blocks of the ring that are freed together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    pub sequence: u64,
    /// The end of the last range that has a record beginning in these blocks.
    pub end: Glsn,
}

/// What a partition starts with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionStart {
    /// What recovery found, ascending. The first is the oldest block that still counts.
    pub batches: Vec<Batch>,
    /// The first block to write.
    pub next: u64,
}

/// Name of a partition's file on the volume.
pub fn file_name(partition: usize) -> String {
    format!("log.{partition}")
}

/// Records taken to be written.
pub(crate) struct Taken {
    pub records: Vec<u8>,
    /// What the write before formed its blocks in, if it was kept.
    pub image: Option<AlignedBuf>,
    /// Where the first record begins: 0, except with a planted bug.
    pub begin: usize,
    /// Where the partition's record before that one ended.
    pub after: Glsn,
    pub sequence: u64,
}

/// Where writes begin: the oldest range in them, and their first block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    first: Glsn,
    sequence: u64,
}

pub(crate) struct Ring {
    blocks: u64,
    /// Records not yet taken.
    waiting: Vec<u8>,
    /// Where the oldest range begins that has a record in `waiting`.
    waiting_first: Glsn,
    /// Where the record before those in `waiting` ended.
    waiting_after: Glsn,
    /// Where the newest record ended, and its range.
    last_own_end: Glsn,
    last_end: Glsn,
    /// The write under way.
    in_flight: Option<Mark>,
    /// It is synced, too, and with it what was handed over before.
    in_flight_syncs: bool,
    /// Writes that the operating system has and no sync was begun for.
    unsynced: Option<Mark>,
    /// Those of which a sync by itself is under way.
    syncing: Option<Mark>,
    next_sequence: u64,
    batches: VecDeque<Batch>,
    spare: Vec<u8>,
    spare_image: Option<AlignedBuf>,
    /// Planted bug only: the unfilled last block, where a record begins in it, and where the one before ended.
    tail: Option<(Vec<u8>, usize, Glsn)>,
}

impl Ring {
    /// `next`: no record will begin before it.
    pub fn new(blocks: u64, start: &PartitionStart, next: Glsn) -> Ring {
        let first = start.batches.first().map_or(start.next, |b| b.sequence);
        assert!(first <= start.next && start.next - first <= blocks);
        Ring {
            blocks,
            waiting: Vec::new(),
            waiting_first: 0,
            waiting_after: next,
            last_own_end: next,
            last_end: 0,
            in_flight: None,
            in_flight_syncs: false,
            unsynced: None,
            syncing: None,
            next_sequence: start.next,
            batches: start.batches.iter().copied().collect(),
            spare: Vec::new(),
            spare_image: None,
            tail: None,
        }
    }

    /// Puts a record behind the others. Returns the bytes that it takes.
    pub fn push(&mut self, header: &RecordHeader, ops: &[u8]) -> usize {
        let before = self.waiting.len();
        if before == 0 {
            self.waiting_first = header.first;
            self.waiting_after = self.last_own_end;
        }
        record::encode(header, ops, self.last_own_end, &mut self.waiting);
        self.last_own_end = header.own_end();
        self.last_end = header.end();
        self.waiting.len() - before
    }

    /// Every range below it has its records of this partition on the device. It is where a range
    /// begins. None: everything appended is on the device.
    pub fn first_undurable(&self) -> Option<Glsn> {
        self.oldest_undurable().map(|mark| mark.first).or(self.first_waiting())
    }

    /// Every range below it has its records of this partition at least with the operating system. None: as above.
    pub fn first_unwritten(&self) -> Option<Glsn> {
        self.in_flight.map(|mark| mark.first).or(self.first_waiting())
    }

    fn first_waiting(&self) -> Option<Glsn> {
        (!self.waiting.is_empty()).then_some(self.waiting_first)
    }

    /// Writes that are not on the device. They are synced in their order.
    fn oldest_undurable(&self) -> Option<Mark> {
        self.syncing.or(self.unsynced).or(self.in_flight)
    }

    pub fn waiting_bytes(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a write can begin that `upto` needs.
    pub fn can_write(&self, upto: Glsn) -> bool {
        self.in_flight.is_none() && !self.waiting.is_empty() && self.waiting_first < upto
    }

    /// Blocks in use, those included that the waiting records will take.
    pub fn used(&self) -> u64 {
        let written = self.batches.front().map_or(0, |first| self.next_sequence - first.sequence);
        written + blocks_for(self.waiting.len() as u64)
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block that the next write begins with.
    pub fn next_block(&self) -> u64 {
        self.next_sequence
    }

    /// The first block that is not on the device.
    pub fn synced_to(&self) -> u64 {
        self.oldest_undurable().map_or(self.next_sequence, |mark| mark.sequence)
    }

    /// Whether a sync by itself can begin that `upto` needs.
    pub fn can_sync(&self, upto: Glsn) -> bool {
        // A write that is to be synced takes along what was handed over before it.
        let comes_along = self.in_flight.is_some() && self.in_flight_syncs;
        self.syncing.is_none() && !comes_along && self.unsynced.is_some_and(|mark| mark.first < upto)
    }

    /// A sync of all that is unsynced is under way until [`Ring::sync_ended`].
    pub fn sync_begins(&mut self) {
        assert!(self.syncing.is_none() && self.unsynced.is_some());
        self.syncing = self.unsynced.take();
    }

    /// If another sync of the file was begun meanwhile, that one may have been told of an error of write-back and this one not: the kernel
    /// tells each open file once. Then its end decides, for it covers this one's writes as well.
    pub fn sync_ended(&mut self) {
        let ended = self.syncing.take();
        assert!(ended.is_some());
        if self.in_flight.is_some() && self.in_flight_syncs {
            self.unsynced = ended;
        }
    }

    /// A thread wants the log written and not synced.
    pub fn has_unsynced(&self) -> bool {
        self.unsynced.is_some()
    }

    /// Takes what waits: the write is under way until [`Ring::synced`] or [`Ring::handed`].
    pub fn take(&mut self, syncs: bool) -> Taken {
        assert!(self.in_flight.is_none() && !self.waiting.is_empty());
        let first = self.waiting_first;
        let mut records = std::mem::replace(&mut self.waiting, std::mem::take(&mut self.spare));
        let (mut begin, mut after) = (0, self.waiting_after);
        if planted::BLOCK_REWRITTEN.on() {
            (records, begin, after) = self.join_tail(records);
        }
        let sequence = self.next_sequence;
        self.in_flight = Some(Mark { first, sequence });
        self.in_flight_syncs = syncs;
        self.next_sequence += blocks_for(records.len() as u64);
        self.batches.push_back(Batch { sequence, end: self.last_end });
        let used = self.used();
        assert!(used <= self.blocks, "{used} blocks in a ring of {}: room was not reserved", self.blocks);
        Taken { records, image: self.spare_image.take(), begin, after, sequence }
    }

    /// The write is on the device, and with it those before it. Takes its buffers back.
    pub fn synced(&mut self, records: Vec<u8>, image: AlignedBuf) {
        assert!(self.in_flight.take().is_some());
        // None was handed over since: there is one write at a time.
        self.unsynced = None;
        self.keep(records, image);
    }

    /// The operating system has the write. Takes its buffers back.
    pub fn handed(&mut self, records: Vec<u8>, image: AlignedBuf) {
        let mark = self.in_flight.take();
        assert!(mark.is_some());
        self.unsynced = self.unsynced.or(mark);
        self.keep(records, image);
    }

    fn keep(&mut self, mut records: Vec<u8>, image: AlignedBuf) {
        records.clear();
        if records.capacity() <= KEPT {
            self.spare = records;
        }
        self.spare_image = Some(image).filter(|image| image.len() <= KEPT);
    }

    /// Where a scan must start for a checkpoint at `checkpoint`: before every record of a range that
    /// ends above it.
    pub fn start_for(&self, checkpoint: Glsn) -> u64 {
        self.batches.iter().find(|b| b.end > checkpoint).map_or(self.next_sequence, |b| b.sequence)
    }

    /// The superblock names `start` durably: blocks before it are free.
    pub fn release_before(&mut self, start: u64) {
        while self.batches.front().is_some_and(|b| b.sequence < start) {
            self.batches.pop_front();
        }
    }

    /// The planted bug: goes on in the last block of the write before, which is acknowledged.
    fn join_tail(&mut self, records: Vec<u8>) -> (Vec<u8>, usize, Glsn) {
        let (mut joined, begin, after) = self.tail.take().unwrap_or((Vec::new(), 0, self.waiting_after));
        if !joined.is_empty() {
            self.next_sequence -= 1;
        }
        joined.extend_from_slice(&records);
        let last = joined.len() - joined.len() % crate::block::PAYLOAD;
        let mut next = (begin, after);
        while next.0 < last {
            let (len, end) = record::pass(&joined, next.0, next.1);
            next = (next.0 + len, end);
        }
        if last < joined.len() && next.0 < joined.len() {
            self.tail = Some((joined[last..].to_vec(), next.0 - last, next.1));
        }
        (joined, begin, after)
    }
}
