//! One partition's records, in order, as they stand in its ring.
//!
//! Reading begins at the block that the superblock names and goes on from block to block by sequence.
//! It ends at the first block that is not the next one: never written, of an earlier lap, torn,
//! garbage, or left by a writer that was cut (its epoch is older than that of the block before).
//! A block counts by its checksum and its numbers; a record counts only if its epoch owned its GLSN
//! and it lies above the checkpoint.
//!
//! What proves damage, rather than the normal end of a log that lost power: a block of an epoch that
//! the superblock does not know yet, or of a later lap (the superblock is older than the ring); records
//! that make no sense inside intact blocks; and, judged by `cut`, a horizon that some intact block
//! attests. So [`Stream::finish`] also looks at the blocks behind the end, as far as one write reaches.

use super::{LogBounds, ReplayError, cut_of};
use crate::block::{self, BLOCK, BlockHeader};
use crate::partition::{Batch, PartitionStart, file_name};
use crate::record::{self, Decoded, RecordHeader};
use crate::{Glsn, planted};
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, File};

/// Blocks read at a time.
const READ_BLOCKS: u64 = 256;
/// How far behind the end a later block is looked for: longer than one write (`waiting_max` and what
/// is reserved meanwhile).
const LOOK_AHEAD: u64 = 4096;
/// Blocks of what is found that the ring frees together.
const BATCH_BLOCKS: u64 = 64;

/// Where a record's ops stand in the log: to read them again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPosition {
    pub partition: u32,
    /// The block in which the ops begin, and where in its payload.
    pub sequence: u64,
    pub offset: u32,
}

/// How a partition ended.
pub struct End {
    pub start: PartitionStart,
    /// The highest horizon that an intact block attests.
    pub attested: Glsn,
    /// The block that broke the sequence although there are intact ones behind it.
    pub hole: Option<u64>,
}

/// Payloads read and not yet used up.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    /// Where in `bytes` the next record begins, and where the record before it ended.
    at: usize,
    after: Glsn,
    /// What the newest block says of the first record in it: where it begins, counted from the scan's start, and where the record
    /// before it ended.
    said: Option<(u64, Glsn)>,
    /// Payload bytes that were read before those in `bytes`.
    before: u64,
    /// Where the payload of each block begins, counted from the scan's start; and its sequence.
    blocks: VecDeque<(u64, u64)>,
}

impl Run {
    fn push(&mut self, sequence: u64, payload: &[u8]) {
        self.blocks.push_back((self.before + self.bytes.len() as u64, sequence));
        self.bytes.extend_from_slice(payload);
    }

    /// Passes the record at `at`.
    fn pass(&mut self, header: &RecordHeader, len: usize) {
        self.at += len;
        self.after = header.own_end();
    }

    /// Whether the next record begins where the blocks say.
    fn is_as_said(&mut self) -> bool {
        let here = self.before + self.at as u64;
        self.said.take_if(|(at, _)| *at <= here).is_none_or(|said| said == (here, self.after))
    }

    /// Lets go of the first `used` bytes, and of blocks that end before the rest.
    fn forget(&mut self, used: usize) {
        self.bytes.drain(..used);
        self.at -= used.min(self.at);
        self.before += used as u64;
        while self.blocks.get(1).is_some_and(|(begin, _)| *begin <= self.before) {
            self.blocks.pop_front();
        }
    }

    /// The block that holds the byte at `from`, and where in its payload.
    fn place(&self, from: usize) -> (u64, u32) {
        let absolute = self.before + from as u64;
        let block = self.blocks.iter().rev().find(|(begin, _)| *begin <= absolute);
        let (begin, sequence) = *block.expect("the blocks of the bytes held are kept");
        (sequence, (absolute - begin) as u32)
    }
}

pub struct Stream<'a> {
    bounds: &'a LogBounds,
    number: usize,
    reader: Reader,
    /// The next block to read.
    sequence: u64,
    epoch: u32,
    run: Run,
    /// The next record that counts, if it was looked for, and how many bytes stand before its ops.
    found: Option<(RecordHeader, usize)>,
    ended: bool,
    batches: Vec<Batch>,
    attested: Glsn,
}

impl<'a> Stream<'a> {
    pub fn new(bounds: &'a LogBounds, number: usize, file: Arc<dyn File>) -> Stream<'a> {
        Stream {
            bounds,
            number,
            reader: Reader::new(bounds, number, file, READ_BLOCKS),
            sequence: bounds.starts[number],
            epoch: 0,
            run: Run::default(),
            found: None,
            ended: false,
            batches: Vec::new(),
            attested: 0,
        }
    }

    /// The next record that counts. None at the end.
    pub fn peek(&mut self) -> Result<Option<RecordHeader>, ReplayError> {
        while self.found.is_none() && !self.ended {
            let read = match self.run.is_as_said() {
                true => record::decode(&self.run.bytes[self.run.at..], self.run.after),
                false => Decoded::Nonsense,
            };
            match read {
                Decoded::Record(header, _, head) if self.counts(&header) => {
                    self.note_end(header.end());
                    self.found = Some((header, head));
                }
                Decoded::Record(header, ops, head) => {
                    let len = head + ops.len();
                    self.run.pass(&header, len);
                }
                Decoded::Short if self.run.said.is_none() => self.next_block()?,
                // A record that goes on where another is said to begin, too.
                Decoded::Short | Decoded::Nonsense => {
                    let before = self.sequence.saturating_sub(1);
                    return Err(self.damage("holds a record that makes no sense", before));
                }
            }
        }
        Ok(self.found.map(|(header, _)| header))
    }

    /// The record that `peek` found, its ops and their place; goes on behind it.
    pub fn take(&mut self) -> Option<(RecordHeader, &[u8], LogPosition)> {
        let (header, head) = self.found.take()?;
        let from = self.run.at + head;
        self.run.pass(&header, head + header.ops_len as usize);
        let (sequence, offset) = self.run.place(from);
        let place = LogPosition { partition: self.number as u32, sequence, offset };
        Some((header, &self.run.bytes[from..self.run.at], place))
    }

    fn counts(&self, header: &RecordHeader) -> bool {
        // What reaches past the cut was not acknowledged: a later epoch owns those positions.
        let owned = header.end() <= cut_of(&self.bounds.history, self.epoch) || planted::EPOCH_IGNORED.on();
        header.end() > self.bounds.checkpoint && owned
    }

    /// The record begins in the newest batch or, if it goes on into it, in the one before.
    fn note_end(&mut self, end: Glsn) {
        for batch in self.batches.iter_mut().rev().take(2) {
            batch.end = batch.end.max(end);
        }
    }

    /// Reads one more block into the run, or ends.
    fn next_block(&mut self) -> Result<(), ReplayError> {
        if self.run.at >= 1 << 20 || self.run.at == self.run.bytes.len() {
            self.run.forget(self.run.at);
        }
        let sequence = self.sequence;
        let in_lap = sequence - self.bounds.starts[self.number] < self.bounds.blocks;
        let block = if in_lap { self.reader.block(sequence)? } else { None };
        // A block of an older epoch was left by a writer that was cut.
        let Some((header, payload)) = block.filter(|(header, _)| header.epoch >= self.epoch) else {
            self.ended = true;
            return Ok(());
        };
        self.attested = self.attested.max(header.attested);
        self.sequence += 1;
        if header.epoch > self.epoch {
            // A new writer begins with a new record; what the old one left unfinished is cut. So does
            // the scan's own start.
            self.run.forget(self.run.bytes.len());
            let Some(first) = header.first else { return Ok(()) };
            (self.run.at, self.run.after) = (usize::from(first), header.after);
            self.epoch = header.epoch;
        }
        let begin = self.run.before + self.run.bytes.len() as u64;
        self.run.said = header.first.map(|first| (begin + u64::from(first), header.after));
        self.run.push(sequence, payload);
        let fresh = self.batches.last().is_none_or(|b| sequence - b.sequence >= BATCH_BLOCKS);
        if header.first.is_some() && fresh {
            let end = self.batches.last().map_or(self.bounds.checkpoint, |b| b.end);
            self.batches.push(Batch { sequence, end });
        }
        Ok(())
    }

    fn damage(&self, what: &str, sequence: u64) -> ReplayError {
        let place = sequence % self.bounds.blocks.max(1) * BLOCK as u64;
        ReplayError::Corrupt(format!("{} at {place}: block {sequence} {what}", file_name(self.number)))
    }

    /// Reads to the end, whatever is left, and looks behind it.
    pub fn finish(mut self) -> Result<End, ReplayError> {
        while self.peek()?.is_some() {
            self.take();
        }
        let start = self.bounds.starts[self.number];
        let behind = (self.sequence + LOOK_AHEAD).min(start + self.bounds.blocks);
        let mut hole = None;
        for sequence in self.sequence + 1..behind {
            if let Some((header, _)) = self.reader.block(sequence)? {
                self.attested = self.attested.max(header.attested);
                if header.epoch >= self.epoch {
                    hole = Some(self.sequence);
                }
            }
        }
        let start = PartitionStart { batches: self.batches, next: self.sequence };
        Ok(End { start, attested: self.attested, hole })
    }
}

/// Reads blocks of one ring, many at a time.
pub struct Reader {
    file: Arc<dyn File>,
    number: usize,
    blocks: u64,
    instance: u64,
    epoch_max: u32,
    buf: AlignedBuf,
    window: u64,
    /// The first place in `buf` and how many blocks it holds.
    held: Option<(u64, u64)>,
}

impl Reader {
    /// `window`: blocks read at a time.
    pub fn new(bounds: &LogBounds, number: usize, file: Arc<dyn File>, window: u64) -> Reader {
        Reader {
            file,
            number,
            blocks: bounds.blocks,
            instance: bounds.instance,
            epoch_max: bounds.epoch,
            buf: AlignedBuf::zeroed(window as usize * BLOCK),
            window,
            held: None,
        }
    }

    /// The intact block with this sequence; None if the ring has another there, or garbage.
    pub fn block(&mut self, sequence: u64) -> Result<Option<(BlockHeader, &[u8])>, ReplayError> {
        let place = sequence % self.blocks;
        if !self.held.is_some_and(|(first, n)| (first..first + n).contains(&place)) {
            let n = self.window.min(self.blocks - place);
            self.held = None;
            self.file.read(Class::LogRead, place * BLOCK as u64, &mut self.buf[..n as usize * BLOCK])?;
            self.held = Some((place, n));
        }
        let first = self.held.map_or(place, |(first, _)| first);
        let from = (place - first) as usize * BLOCK;
        let Some((header, payload)) = block::decode(&self.buf[from..from + BLOCK]) else { return Ok(None) };
        if header.instance != self.instance || usize::from(header.partition) != self.number {
            return Err(ReplayError::Corrupt(format!(
                "{} holds blocks of partition {} of instance {:016x}; this is partition {} of {:016x}",
                file_name(self.number),
                header.partition,
                header.instance,
                self.number,
                self.instance,
            )));
        }
        if header.epoch > self.epoch_max || header.sequence > sequence {
            return Err(ReplayError::Corrupt(format!(
                "{}: block {} of epoch {} is newer than the superblock (epoch {}, block {sequence} expected): \
                 the superblock is an old copy",
                file_name(self.number),
                header.sequence,
                header.epoch,
                self.epoch_max,
            )));
        }
        Ok((header.sequence == sequence).then_some((header, payload)))
    }

    /// The `len` bytes of ops that stand at `place`; None if they are not there.
    pub fn ops(&mut self, place: LogPosition, len: usize) -> Result<Option<Vec<u8>>, ReplayError> {
        let mut ops = Vec::with_capacity(len);
        let (mut sequence, mut offset) = (place.sequence, place.offset as usize);
        while ops.len() < len {
            let Some((_, payload)) = self.block(sequence)? else { return Ok(None) };
            let rest = payload.get(offset..).unwrap_or_default();
            ops.extend_from_slice(&rest[..rest.len().min(len - ops.len())]);
            (sequence, offset) = (sequence + 1, 0);
        }
        Ok(Some(ops))
    }
}
