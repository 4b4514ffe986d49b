//! Where the log ends: the gapless prefix, up to the end of a mini-transaction.
//!
//! The partitions' streams are merged by GLSN: the next record is the one that begins where the last
//! one ended. When no partition has it, that is the gap, and the end. A mini-transaction is handed on
//! when its last record is there, so nothing of one that was lost in part is ever seen, and nothing
//! but it is held in memory.

use super::scan::{LogPosition, Stream};
use super::{LogBounds, ReplayError, legacy_format};
use crate::partition::file_name;
use crate::record::RecordHeader;
use crate::{Glsn, PartitionStart, planted};
use std::sync::Arc;
use terrace_io::disk::File;

/// What the log holds above the checkpoint.
#[derive(Debug)]
pub struct LogCut {
    /// The log goes on here.
    pub end: Glsn,
    pub starts: Vec<PartitionStart>,
    /// Records handed on.
    pub records: u64,
}

/// Takes a record: its header, its ops, and where they stand in the log. Its error ends the replay.
pub type Each<'a, E> = dyn FnMut(&RecordHeader, &[u8], LogPosition) -> Result<(), E> + 'a;

/// A record's ops, and where they stand in the log.
type HeldRecord = (RecordHeader, Vec<u8>, LogPosition);

/// Reads the log from the superblock's checkpoint to its end; `each` gets the records in GLSN order.
pub fn replay<E: From<ReplayError>>(
    bounds: &LogBounds,
    files: &[Arc<dyn File>],
    each: &mut Each<'_, E>,
) -> Result<LogCut, E> {
    legacy_format::refuse(bounds, files)?;
    let mut streams: Vec<Stream<'_>> =
        files.iter().enumerate().map(|(i, file)| Stream::new(bounds, i, file.clone())).collect();
    let mut at = bounds.checkpoint;
    let mut end = at;
    let mut records = 0;
    let mut held: Vec<HeldRecord> = Vec::new();
    while let Some(stream) = next(&mut streams, at)? {
        let Some((header, ops, place)) = stream.take() else { break };
        if held
            .first()
            .map_or(header.own != header.first, |(h, ..)| h.end() != header.end() || h.first != header.first)
        {
            let what = format!("the log's record at {at} does not belong to the one before");
            return Err(ReplayError::Corrupt(what).into());
        }
        at = header.own_end();
        if at < header.end() {
            held.push((header, ops.to_vec(), place));
            continue;
        }
        for (header, ops, place) in held.drain(..) {
            each(&header, &ops, place)?;
            records += 1;
        }
        each(&header, ops, place)?;
        records += 1;
        end = at;
    }
    if planted::HALF_RANGE_KEPT.on() {
        for (header, ops, place) in held.drain(..) {
            each(&header, &ops, place)?;
            end = header.end();
        }
    }
    let starts = finish(bounds, streams, end)?;
    Ok(LogCut { end, starts, records })
}

/// The stream whose next record begins at `at`.
pub(super) fn next<'s, 'a>(
    streams: &'s mut [Stream<'a>],
    at: Glsn,
) -> Result<Option<&'s mut Stream<'a>>, ReplayError> {
    for stream in streams {
        match stream.peek()? {
            Some(header) if header.own == at => return Ok(Some(stream)),
            Some(header) if header.own < at => {
                return Err(ReplayError::Corrupt(format!("the log has two records at {}", header.own)));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Where each partition goes on. An end below what was acknowledged is damage.
fn finish(
    bounds: &LogBounds,
    streams: Vec<Stream<'_>>,
    end: Glsn,
) -> Result<Vec<PartitionStart>, ReplayError> {
    let mut attested = bounds.attested;
    let mut holes = Vec::new();
    let mut starts = Vec::new();
    for (partition, stream) in streams.into_iter().enumerate() {
        let found = stream.finish()?;
        attested = attested.max(found.attested);
        holes.extend(found.hole.map(|block| format!("block {block} of {}", file_name(partition))));
        starts.push(found.start);
    }
    if end < attested && !planted::ATTESTED_IGNORED.on() {
        let suspects =
            if holes.is_empty() { String::new() } else { format!("; look at {}", holes.join(", ")) };
        return Err(ReplayError::Corrupt(format!(
            "the log ends at {end}, but everything up to {attested} was acknowledged: a part of it is damaged \
             or missing{suspects}"
        )));
    }
    Ok(starts)
}
