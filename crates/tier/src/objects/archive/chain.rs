//! From the keys of a lineage's stretches to what they give together: segments without gaps. Pure.

use super::StretchKey;
use crate::planted;
use terrace_log::Glsn;

/// A stretch, and how far it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    pub key: StretchKey,
    /// Not above its end.
    pub end: Glsn,
}

/// Stretches of one lineage that follow each other without a gap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub lineage: u128,
    pub first: Glsn,
    pub end: Glsn,
    pub since_ms: u64,
    /// All that was appended until then is in it.
    pub until_ms: u64,
    /// In order. They may overlap: what was had before is passed over.
    pub parts: Vec<Part>,
}

/// The segments of these stretches, by lineage and position.
pub fn chain(mut keys: Vec<StretchKey>) -> Vec<Segment> {
    keys.sort_unstable();
    let mut segments: Vec<Segment> = Vec::new();
    for lineage in keys.chunk_by(|a, b| a.lineage == b.lineage) {
        // Where each epoch's writer began to own the log. What an earlier one put beyond that is not of this log.
        let mut began: Vec<(u32, Glsn)> = lineage.iter().map(|key| (key.epoch, key.began)).collect();
        began.sort_unstable();
        began.dedup_by_key(|(epoch, _)| *epoch);
        let limit = |epoch: u32| {
            let later =
                began.iter().filter(|(other, _)| *other > epoch && !planted::FENCED_STRETCH_TAKEN.on());
            later.map(|(_, began)| *began).min().unwrap_or(Glsn::MAX)
        };
        for key in lineage {
            let end = key.end.min(limit(key.epoch));
            if end < key.first || (end == key.first && end < key.end) {
                continue;
            }
            // A stretch that is cut has no time up to which it is whole: that of what comes behind it counts.
            let until_ms = if end == key.end { key.until_ms } else { key.since_ms };
            match segments.last_mut().filter(|last| last.lineage == key.lineage && key.first <= last.end) {
                Some(last) => {
                    if end >= last.end {
                        last.until_ms = last.until_ms.max(until_ms);
                    }
                    last.end = last.end.max(end);
                    last.parts.push(Part { key: *key, end });
                }
                None => segments.push(Segment {
                    lineage: key.lineage,
                    first: key.first,
                    end,
                    since_ms: key.since_ms,
                    until_ms,
                    parts: vec![Part { key: *key, end }],
                }),
            }
        }
    }
    segments
}
