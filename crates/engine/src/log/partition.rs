//! One partition: a ring of blocks in one file, and the records that wait to be written.
//!
//! The ring's live part is a queue of *batches*, each the blocks of one write. A batch is free when
//! the checkpoint has passed the last record in it. The ring never overflows, because room is
//! charged before it is used (`room`).

use super::block::{self, BLOCK, BlockHeader};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, DiskError, File, Op};
use terrace_tier::page::Glsn;

/// The blocks of one write.
#[derive(Clone, Copy, Debug)]
struct Batch {
    sequence: u64,
    blocks: u64,
    /// End of the last range in it.
    end: Glsn,
}

struct State {
    /// Records not yet written, and the entries of the order queue they belong to.
    records: Vec<u8>,
    entries: Vec<u64>,
    last_end: Glsn,
    next_sequence: u64,
    batches: VecDeque<Batch>,
}

pub(super) struct Partition {
    number: u16,
    file: Arc<dyn File>,
    blocks: u64,
    state: Mutex<State>,
}

/// A write under way.
pub(super) struct Writing {
    image: AlignedBuf,
    sequence: u64,
    pub entries: Vec<u64>,
}

impl Partition {
    /// `next_sequence` is the first block to write, `start` the oldest block that still counts, whose
    /// records end at or below `end`.
    pub fn new(number: u16, file: Arc<dyn File>, blocks: u64, start: u64, next_sequence: u64, end: Glsn) -> Partition {
        let mut batches = VecDeque::new();
        if next_sequence > start {
            batches.push_back(Batch { sequence: start, blocks: next_sequence - start, end });
        }
        let state = State { records: Vec::new(), entries: Vec::new(), last_end: 0, next_sequence, batches };
        Partition { number, file, blocks, state: Mutex::new(state) }
    }

    /// Blocks that hold records the checkpoint has not passed.
    pub fn used(&self) -> u64 {
        let state = self.state.lock();
        state.batches.front().map_or(0, |first| state.next_sequence - first.sequence)
    }

    pub fn append(&self, write: impl FnOnce(&mut Vec<u8>), entry: u64, end: Glsn) {
        let mut state = self.state.lock();
        write(&mut state.records);
        if state.entries.last() != Some(&entry) {
            state.entries.push(entry);
        }
        state.last_end = end;
    }

    pub fn waiting_bytes(&self) -> usize {
        self.state.lock().records.len()
    }

    /// Takes what waits and puts it into blocks. None if nothing waits.
    pub fn begin_write(&self, epoch: u32, attested: Glsn) -> Option<Writing> {
        let mut state = self.state.lock();
        if state.records.is_empty() {
            return None;
        }
        let records = std::mem::take(&mut state.records);
        let entries = std::mem::take(&mut state.entries);
        let blocks = block::blocks_for(records.len() as u64);
        let sequence = state.next_sequence;
        state.next_sequence += blocks;
        let end = state.last_end;
        state.batches.push_back(Batch { sequence, blocks, end });
        let used = state.next_sequence - state.batches.front().map_or(sequence, |b| b.sequence);
        assert!(used <= self.blocks, "partition {}: {used} blocks in a ring of {}", self.number, self.blocks);
        drop(state);
        let mut image = AlignedBuf::zeroed((blocks as usize) * BLOCK);
        block::encode(BlockHeader { epoch, partition: self.number, sequence, attested }, &records, &mut image);
        Some(Writing { image, sequence, entries })
    }

    /// Writes the blocks; they are durable after [`Partition::sync`].
    pub fn write(&self, writing: &Writing) -> Result<(), DiskError> {
        let at = writing.sequence % self.blocks;
        let until_end = ((self.blocks - at) as usize * BLOCK).min(writing.image.len());
        let (first, wrapped) = writing.image.split_at(until_end);
        let mut ops = vec![Op::Write { offset: at * BLOCK as u64, buf: first }];
        if !wrapped.is_empty() {
            ops.push(Op::Write { offset: 0, buf: wrapped });
        }
        self.file.batch(Class::LogWrite, &mut ops).into_iter().collect()
    }

    pub fn sync(&self) -> Result<(), DiskError> {
        self.file.sync(Class::LogWrite)
    }

    /// Where a scan must start for a checkpoint at `checkpoint`: the first block with a record that
    /// ends above it.
    pub fn start_for(&self, checkpoint: Glsn) -> u64 {
        let state = self.state.lock();
        state.batches.iter().find(|b| b.end > checkpoint).map_or(state.next_sequence, |b| b.sequence)
    }

    /// The superblock names `start`: blocks before it are free.
    pub fn release_before(&self, start: u64) {
        let mut state = self.state.lock();
        while state.batches.front().is_some_and(|b| b.sequence + b.blocks <= start) {
            state.batches.pop_front();
        }
    }
}
