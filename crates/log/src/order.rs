//! The order of the log: which GLSNs belong to which record, and how far everything is durable.
//!
//! Ranges are given out under one short lock and their records go to their partitions' buffers under
//! the same lock, in GLSN order. So in each partition GLSNs ascend, and the **horizon** — the end of
//! the gapless durable prefix (CloudJump's GPLSN) — is simply where the oldest range begins
//! of which some partition has not synced its part, or the log's end if there is none. So it always lies
//! between two ranges, as a checkpoint must. A partition with nothing to write
//! holds nothing back; a hole in one holds everything behind it.

use crate::hold::Hold;
use crate::partition::{PartitionStart, Ring, Taken};
use crate::record::{self, RecordHeader};
use crate::space::LogSpace;
use crate::{Glsn, PageId};
use crate::{LsnRange, PageRedo};

pub(crate) struct Order {
    pub next: Glsn,
    pub rings: Vec<Ring>,
    pub room: LogSpace,
    /// Bytes of records that no writer has taken yet.
    pub waiting: usize,
    /// What stays for a reader that copies the log.
    pub hold: Option<Hold>,
    /// Writes that were begun, and where the log ended at the last beginning.
    begun: u64,
    begun_at: Glsn,
}

/// The partition of a page.
pub fn partition_of(id: PageId, partitions: usize) -> usize {
    if partitions == 1 {
        return 0;
    }
    let hash = id.as_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> 32) as usize % partitions
}

impl Order {
    pub fn new(next: Glsn, blocks: u64, starts: &[PartitionStart]) -> Order {
        assert!(next > 0 && !starts.is_empty());
        Order {
            next,
            rings: starts.iter().map(|start| Ring::new(blocks, start, next)).collect(),
            room: LogSpace::new(blocks),
            waiting: 0,
            hold: None,
            begun: 0,
            begun_at: 0,
        }
    }

    /// Takes what waits in the partitions chosen, for one write.
    pub fn take(&mut self, syncs: bool, choose: impl Fn(usize, &Ring) -> bool) -> Vec<(usize, Taken)> {
        let mut taken = Vec::new();
        for (partition, ring) in self.rings.iter_mut().enumerate() {
            if choose(partition, ring) {
                self.waiting -= ring.waiting_bytes();
                taken.push((partition, ring.take(syncs)));
            }
        }
        if !taken.is_empty() {
            (self.begun, self.begun_at) = (self.begun + 1, self.next);
        }
        taken
    }

    /// The write for which a thread waits that needs all below `upto`: one that has begun, or the next.
    pub fn turn(&self, upto: Glsn) -> u64 {
        if upto <= self.begun_at { self.begun } else { self.next_turn() }
    }

    /// Those who wait for this turn need a write that has not begun.
    pub fn next_turn(&self) -> u64 {
        self.begun + 1
    }

    /// Everything below is on the device.
    pub fn horizon(&self) -> Glsn {
        self.rings.iter().filter_map(Ring::first_undurable).min().unwrap_or(self.next)
    }

    /// Everything below is at least with the operating system.
    pub fn written(&self) -> Glsn {
        self.rings.iter().filter_map(Ring::first_unwritten).min().unwrap_or(self.next)
    }

    /// Begins a sync by itself in the partitions in which `upto` needs one that can begin.
    pub fn take_unsynced(&mut self, upto: Glsn) -> Vec<usize> {
        let mut taken = Vec::new();
        for (partition, ring) in self.rings.iter_mut().enumerate().filter(|(_, ring)| ring.can_sync(upto)) {
            ring.sync_begins();
            taken.push(partition);
        }
        taken
    }

    /// What stays for a checkpoint with these starts, and for the reader of the log.
    pub fn kept(&self, mut starts: Vec<u64>) -> Vec<u64> {
        self.hold.iter().for_each(|hold| hold.keep(&mut starts));
        starts
    }

    /// A write has ended. Whether the reader of the log is to look, and whether the hold broke.
    pub fn look_at_hold(&mut self) -> (bool, bool) {
        let Order { hold: Some(hold), rings, .. } = self else { return (false, false) };
        hold.look(rings.iter().map(|ring| (ring.next_block(), ring.blocks())))
    }

    pub fn starts_for(&self, at: Glsn) -> Vec<u64> {
        self.rings.iter().map(|ring| ring.start_for(at)).collect()
    }

    /// Blocks in use of the fullest ring.
    pub fn used(&self) -> u64 {
        self.rings.iter().map(Ring::used).max().unwrap_or(0)
    }

    /// The range that the next mini-transaction takes.
    pub fn range(&self, pages: &[PageRedo<'_>]) -> LsnRange {
        let length: u64 = pages.iter().map(|p| record::share(p.ops.len())).sum();
        LsnRange { first: self.next, end: self.next + length }
    }

    /// Gives `range` its records. Returns the bytes that they take.
    pub fn push(&mut self, range: LsnRange, pages: &[PageRedo<'_>]) -> usize {
        assert!(range.first == self.next && range.end - range.first <= u64::from(u32::MAX));
        let length = (range.end - range.first) as u32;
        let mut own = range.first;
        let partitions = self.rings.len();
        let mut bytes = 0;
        for PageRedo { id, ops } in pages {
            let header = RecordHeader { own, first: range.first, length, ops_len: ops.len() as u32, id: *id };
            own = header.own_end();
            bytes += self.rings[partition_of(*id, partitions)].push(&header, ops);
        }
        self.next = range.end;
        self.waiting += bytes;
        bytes
    }
}
