//! The format of a stretch. Little-endian:
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | CRC-32C of all that follows |
//! | 4 | 4 | magic and version, `TAR1` |
//! | 8 | 16 | lineage |
//! | 24 | 8 | first position |
//! | 32 | 8 | end |
//! | 40 | 4 | the writer's epoch |
//! | 44 | 8 | where that epoch began |
//! | 52 | 8 | time up to which the stretch before reaches, in milliseconds since 1970 |
//! | 60 | 8 | time up to which this one does |
//! | 68 | 8 | upper bound of the transaction ids given out |
//! | 76 | 4 | upper bound of the space ids given out |
//! | 80 | 4 | marks |
//! | 84 | 4 | bytes of records |
//! | 88 | 16 each | marks: milliseconds, position |
//! | .. | .. | the records as one zstd frame: as in the log (`terrace_log::record`), the first one's position counts from the first position |
//!
//! The key has the numbers up to 68 again, in hexadecimal: `log/<lineage>/<first>-<end>-<epoch>-<began>-<since>-<until>`.

use super::FOLDER;
use terrace_log::record::{self, Decoded, RecordHeader};
use terrace_log::{Glsn, Mark};

const MAGIC: [u8; 4] = *b"TAR1";
const HEAD: usize = 88;
const MARK: usize = 16;
/// The most bytes of records that a stretch has.
pub(super) const RECORDS_MAX: usize = 64 << 20;
/// Fast: the log's writers are not to wait for it.
const LEVEL: i32 = 1;

/// What a stretch's key says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StretchKey {
    pub lineage: u128,
    pub first: Glsn,
    pub end: Glsn,
    pub epoch: u32,
    pub began: Glsn,
    pub since_ms: u64,
    /// All that was appended until then is in this stretch or before it.
    pub until_ms: u64,
}

impl std::fmt::Display for StretchKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StretchKey { lineage, first, end, epoch, began, since_ms, until_ms } = self;
        write!(
            f,
            "{FOLDER}{lineage:032x}/{first:016x}-{end:016x}-{epoch:08x}-{began:016x}-{since_ms:012x}-{until_ms:012x}"
        )
    }
}

impl StretchKey {
    /// None: it is no stretch's key.
    pub fn parse(text: &str) -> Option<StretchKey> {
        let (lineage, rest) = text.strip_prefix(FOLDER)?.split_once('/')?;
        let mut numbers = rest.split('-').map(|text| u64::from_str_radix(text, 16).ok());
        let mut next = || numbers.next().flatten();
        let found = StretchKey {
            lineage: u128::from_str_radix(lineage, 16).ok()?,
            first: next()?,
            end: next()?,
            epoch: u32::try_from(next()?).ok()?,
            began: next()?,
            since_ms: next()?,
            until_ms: next()?,
        };
        // The text decides: no sign, no other length, nothing behind it.
        let possible = found.first <= found.end && found.since_ms <= found.until_ms;
        (possible && found.to_string() == text).then_some(found)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("stretch {key} of the archived log {what}")]
pub struct BadStretch {
    pub key: String,
    pub what: &'static str,
}

/// A part of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stretch {
    pub key: StretchKey,
    /// Upper bounds of the ids given out when it was made: no record has a higher one.
    pub transactions: u64,
    pub spaces: u32,
    /// Ascending.
    pub marks: Vec<Mark>,
    records: Vec<u8>,
    /// Where the last record ends.
    after: Glsn,
}

impl Stretch {
    /// An empty one that begins at `key.first`; its end follows what is pushed.
    pub fn new(key: StretchKey) -> Stretch {
        let (after, end) = (key.first, key.first);
        let key = StretchKey { end, ..key };
        Stretch { key, transactions: 0, spaces: 0, marks: Vec::new(), records: Vec::new(), after }
    }

    /// Bytes of records.
    pub fn bytes(&self) -> usize {
        self.records.len()
    }

    /// Adds a mini-transaction's records, which begin where the last one's ended.
    pub fn push(&mut self, range: &[(RecordHeader, Vec<u8>)]) {
        for (header, ops) in range {
            assert!(header.own == self.after, "a stretch has no gaps");
            record::encode(header, ops, self.after, &mut self.records);
            self.after = header.own_end();
        }
        self.key.end = self.after;
    }

    pub fn encode(&self) -> std::io::Result<Vec<u8>> {
        let StretchKey { lineage, first, end, epoch, began, since_ms, until_ms } = self.key;
        let mut out = vec![0; 4];
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&lineage.to_le_bytes());
        for number in [first, end] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&epoch.to_le_bytes());
        for number in [began, since_ms, until_ms, self.transactions] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.spaces, self.marks.len() as u32, self.records.len() as u32] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for mark in &self.marks {
            out.extend_from_slice(&mark.ms.to_le_bytes());
            out.extend_from_slice(&mark.end.to_le_bytes());
        }
        out.extend_from_slice(&zstd::bulk::compress(&self.records, LEVEL)?);
        let crc = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        Ok(out)
    }

    /// The stretch of this key. Accepts any bytes.
    pub fn decode(key: StretchKey, bytes: &[u8]) -> Result<Stretch, BadStretch> {
        let bad = |what| BadStretch { key: key.to_string(), what };
        read(key, bytes).map_err(bad)
    }

    /// The mini-transactions, in their order. False from `each` ends it.
    pub fn each_range<E: From<BadStretch>>(
        &self,
        each: &mut dyn FnMut(&[(RecordHeader, &[u8])]) -> Result<bool, E>,
    ) -> Result<(), E> {
        let bad = || BadStretch { key: self.key.to_string(), what: "has records that make no sense" };
        let (mut at, mut after) = (0, self.key.first);
        let mut range: Vec<(RecordHeader, &[u8])> = Vec::new();
        while at < self.records.len() {
            let Decoded::Record(header, ops, head) = record::decode(&self.records[at..], after) else {
                return Err(bad().into());
            };
            let first = range.first().map_or(header.own, |(first, _)| first.first);
            if header.own != after || header.first != first || header.own_end() > header.end() {
                return Err(bad().into());
            }
            (at, after) = (at + head + ops.len(), header.own_end());
            range.push((header, ops));
            if after == header.end() {
                if !each(&range)? {
                    return Ok(());
                }
                range.clear();
            }
        }
        if !range.is_empty() || after != self.key.end {
            return Err(bad().into());
        }
        Ok(())
    }
}

fn read(key: StretchKey, bytes: &[u8]) -> Result<Stretch, &'static str> {
    let cut = "is cut off";
    let u32_at =
        |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes).ok_or(cut);
    let u64_at =
        |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes).ok_or(cut);
    if bytes.get(4..8).ok_or(cut)? != MAGIC {
        return Err("has a format that is not known");
    }
    if u32_at(0)? != crc32c::crc32c(&bytes[4..]) {
        return Err("is damaged: its checksum is wrong");
    }
    let found = StretchKey {
        lineage: u128::from(u64_at(8)?) | u128::from(u64_at(16)?) << 64,
        first: u64_at(24)?,
        end: u64_at(32)?,
        epoch: u32_at(40)?,
        began: u64_at(44)?,
        since_ms: u64_at(52)?,
        until_ms: u64_at(60)?,
    };
    if found != key {
        return Err("is another one than its key says");
    }
    let (transactions, spaces) = (u64_at(68)?, u32_at(76)?);
    let (count, length) = (u32_at(80)? as usize, u32_at(84)? as usize);
    let body = count.checked_mul(MARK).and_then(|n| n.checked_add(HEAD)).filter(|at| *at <= bytes.len());
    let body = body.ok_or(cut)?;
    let mut marks = Vec::with_capacity(count);
    for at in (HEAD..body).step_by(MARK) {
        marks.push(Mark { ms: u64_at(at)?, end: u64_at(at + 8)? });
    }
    if !marks.is_sorted_by(|a, b| a.ms <= b.ms && a.end <= b.end) {
        return Err("has times that do not ascend");
    }
    if length > RECORDS_MAX {
        return Err("says that it is larger than one can be");
    }
    let records = zstd::bulk::decompress(&bytes[body..], length).map_err(|_| "cannot be decompressed")?;
    if records.len() != length {
        return Err("has another length than it says");
    }
    Ok(Stretch { key, transactions, spaces, marks, records, after: key.end })
}
