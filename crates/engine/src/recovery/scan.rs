//! Reading one partition's ring from its start to the last block that counts.

use crate::error::Error;
use crate::log::block::{self, BLOCK, BlockHeader};
use crate::log::record::{self, RecordHeader};
use crate::superblock::Superblock;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, File};
use terrace_tier::page::Glsn;

/// Blocks read at a time.
const READ_BLOCKS: u64 = 256;
/// How far behind a broken block a later write is looked for: more than one write can be long.
const LOOK_AHEAD: u64 = 4096;

/// One kept record; its ops stand in `Scan::bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub header: RecordHeader,
    pub ops: (usize, usize),
}

#[derive(Default)]
pub struct Scan {
    pub records: Vec<Kept>,
    pub bytes: Vec<u8>,
    /// For each partition, the first block to write.
    pub next: Vec<u64>,
    /// The highest horizon that an intact block attests.
    pub attested: Glsn,
}

/// Reads partition `number` and adds what it holds to `scan`.
pub fn partition(superblock: &Superblock, number: usize, file: &dyn File, scan: &mut Scan) -> Result<(), Error> {
    let mut reader = Reader { superblock, number, file, buf: AlignedBuf::zeroed(READ_BLOCKS as usize * BLOCK), at: None };
    let start = superblock.starts[number];
    let mut sequence = start;
    let mut epoch = 0;
    let mut run: Vec<u8> = Vec::new();
    while sequence - start < superblock.log_blocks {
        let Some((header, payload)) = reader.block(sequence)? else { break };
        if header.epoch < epoch {
            break; // left over from a writer that was cut
        }
        if header.epoch > epoch {
            // A new writer begins with a new record; what the old one left unfinished is cut.
            keep(superblock, epoch, &run, scan)?;
            run.clear();
            epoch = header.epoch;
        }
        run.extend_from_slice(payload);
        scan.attested = scan.attested.max(header.attested);
        sequence += 1;
    }
    keep(superblock, epoch, &run, scan)?;
    // A broken block before an intact later one is damage, not the end, if the later one attests it.
    let end = (sequence + LOOK_AHEAD).min(start + superblock.log_blocks);
    for ahead in sequence + 1..end {
        if let Some((header, _)) = reader.block(ahead)? {
            if header.epoch >= epoch {
                scan.attested = scan.attested.max(header.attested);
            }
        }
    }
    scan.next.push(sequence);
    Ok(())
}

/// Splits a run of payloads of one epoch into records. The end may be cut short.
fn keep(superblock: &Superblock, epoch: u32, run: &[u8], scan: &mut Scan) -> Result<(), Error> {
    let cut = superblock.cut_of(epoch);
    let mut at = 0;
    while let Some((header, ops)) = record::decode(&run[at..]) {
        let size = record::size(ops.len()) as usize;
        // A range that reaches past the cut was not acknowledged; its epoch does not own it.
        if header.end() <= cut && header.end() > superblock.checkpoint {
            let from = scan.bytes.len();
            scan.bytes.extend_from_slice(ops);
            scan.records.push(Kept { header, ops: (from, scan.bytes.len()) });
        }
        at += size;
    }
    Ok(())
}

struct Reader<'a> {
    superblock: &'a Superblock,
    number: usize,
    file: &'a dyn File,
    buf: AlignedBuf,
    /// The first sequence in `buf` and how many blocks it holds.
    at: Option<(u64, u64)>,
}

impl Reader<'_> {
    /// The intact block with this sequence; None if the ring has another there, or garbage.
    fn block(&mut self, sequence: u64) -> Result<Option<(BlockHeader, &[u8])>, Error> {
        let blocks = self.superblock.log_blocks;
        let held = self.at.is_some_and(|(first, n)| sequence >= first && sequence < first + n);
        if !held {
            let place = sequence % blocks;
            let n = READ_BLOCKS.min(blocks - place);
            let bytes = n as usize * BLOCK;
            self.file.read(Class::LogRead, place * BLOCK as u64, &mut self.buf[..bytes])?;
            self.at = Some((sequence, n));
        }
        let first = self.at.map_or(sequence, |(first, _)| first);
        let from = (sequence - first) as usize * BLOCK;
        let decoded = block::decode(&self.buf[from..from + BLOCK]);
        Ok(decoded.filter(|(h, _)| {
            h.sequence == sequence && usize::from(h.partition) == self.number && h.epoch <= self.superblock.epoch
        }))
    }
}
