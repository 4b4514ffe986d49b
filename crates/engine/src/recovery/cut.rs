//! Where the log ends: the gapless prefix, at the end of a mini-transaction.

use super::scan::{Kept, Scan};
use crate::error::Error;
use crate::planted;
use crate::superblock::Superblock;
use terrace_tier::page::Glsn;

/// Sorts the scan's records, drops what lies past the end, and returns the end.
pub fn cut(superblock: &Superblock, scan: &mut Scan) -> Result<Glsn, Error> {
    scan.records.sort_unstable_by_key(|r| r.header.own);
    scan.records.dedup_by_key(|r| r.header.own);
    let attested = scan.attested.max(superblock.attested);
    let end = end_of_prefix(superblock.checkpoint, &scan.records);
    if end < attested {
        return Err(Error::Corrupt(format!(
            "the log ends at {end}, but everything up to {attested} was acknowledged: a part of the log is damaged or missing"
        )));
    }
    if !planted::HALF_RANGE_KEPT.on() {
        scan.records.retain(|r| r.header.end() <= end);
    }
    Ok(end)
}

/// The end of the last whole range that joins the ones before without a gap. Ranges that straddle
/// the checkpoint are on disk already below it; the prefix begins at the first range that starts at
/// or above it, or with what is known of an older one.
fn end_of_prefix(checkpoint: Glsn, records: &[Kept]) -> Glsn {
    let mut end = checkpoint;
    let mut at = checkpoint;
    for record in records {
        let h = &record.header;
        if h.own_end() <= at {
            continue;
        }
        if h.own > at {
            break;
        }
        at = h.own_end();
        if at == h.end() {
            end = at;
        }
    }
    end
}
