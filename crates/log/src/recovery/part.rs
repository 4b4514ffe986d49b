//! Reads a part of the log, beside the log's writer: what is durable between two positions, mini-transaction by mini-transaction.
//!
//! The caller sees to it that the blocks stay (`crate::hold`). If they did not, what is read makes no sense somewhere, and is an error; the caller looks
//! again whether they stayed before it believes what it was given.

use super::cut::next;
use super::scan::Stream;
use super::{LogBounds, ReplayError};
use crate::Glsn;
use crate::record::RecordHeader;
use std::sync::Arc;
use terrace_io::disk::File;

/// Takes a mini-transaction's records in their order. False: no more.
pub type EachRange<'a> = dyn FnMut(&[(RecordHeader, Vec<u8>)]) -> bool + 'a;

/// Reads from the checkpoint of `bounds`, where a range begins, up to `upto`, where one ends, or until `each` wants no more. Returns how far it came.
pub fn read_part(
    bounds: &LogBounds,
    files: &[Arc<dyn File>],
    upto: Glsn,
    each: &mut EachRange<'_>,
) -> Result<Glsn, ReplayError> {
    let mut streams: Vec<Stream<'_>> =
        files.iter().enumerate().map(|(i, file)| Stream::new(bounds, i, file.clone())).collect();
    let mut at = bounds.checkpoint;
    let mut range = Vec::new();
    while at < upto {
        let missing =
            || ReplayError::Corrupt(format!("the log has no record at {at}, and is durable to {upto}"));
        let stream = next(&mut streams, at)?.ok_or_else(missing)?;
        let (header, ops, _) = stream.take().ok_or_else(missing)?;
        if range.first().map_or(header.own, |(first, _): &(RecordHeader, Vec<u8>)| first.first)
            != header.first
        {
            return Err(ReplayError::Corrupt(format!(
                "the log's record at {at} does not belong to the one before"
            )));
        }
        range.push((header, ops.to_vec()));
        at = header.own_end();
        if at == header.end() {
            let more = each(&range);
            range.clear();
            if !more {
                break;
            }
        }
    }
    Ok(at)
}
