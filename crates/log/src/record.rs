//! A log record: what one mini-transaction did to one page.
//!
//! `what · gap · back · rest · space · page · ops`: a header of numbers of variable length (`crate::varint`), and the ops.
//!
//! * what: the length of the ops times eight, and bits that say which of the next three are there: those that are not 0.
//! * gap: how far the record's own first GLSN lies from where the partition's record before it ended. What that is for the first
//!   record that begins in a block, the block says (`block`).
//! * back: from the first GLSN of the mini-transaction's range to the record's own.
//! * rest: from the record's end to the range's.
//!
//! **Positions are not bytes.** A record takes as many GLSNs as its ops have bytes, and [`HEAD`] more: that is known
//! before it has a place, while its header's length depends on it. A mini-transaction's range is the sum
//! of its records' shares, and the log is gapless exactly if each record begins where another ends.
//! What a record takes of a ring is its bytes, never more than [`record_bound`].
//!
//! A record has no checksum of its own: it is only ever read out of intact blocks of one epoch that
//! follow each other.

use crate::record_bound;
use crate::varint::{self, NoNumber, Numbers};
use crate::{Glsn, PageId, SpaceId};

/// GLSNs that a record takes beside those of its ops: about what its header has in bytes.
const HEAD: u64 = 8;
/// The longest header: one number of 64 bits and five of 32, of which one has three bits more.
const HEADER_MAX: usize = 10 + 5 * 5;
const _: () = assert!(record_bound(0) >= HEADER_MAX as u64);

const HAS_GAP: u64 = 1;
const HAS_BACK: u64 = 2;
const HAS_REST: u64 = 4;
const BITS: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    pub own: Glsn,
    pub first: Glsn,
    pub length: u32,
    pub ops_len: u32,
    pub id: PageId,
}

/// What stands at the start of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'a> {
    /// A record, its ops, and how many bytes stand before these.
    Record(RecordHeader, &'a [u8], usize),
    /// The bytes end before the record does.
    Short,
    Nonsense,
}

/// GLSNs of a record with `ops_len` bytes of ops: its share of the range.
pub fn share(ops_len: usize) -> u64 {
    HEAD + ops_len as u64
}

impl RecordHeader {
    /// End of the mini-transaction's range.
    pub fn end(&self) -> Glsn {
        self.first + u64::from(self.length)
    }
    pub fn own_end(&self) -> Glsn {
        self.own + share(self.ops_len as usize)
    }
}

/// Puts a record behind what is in `out`. `after`: where the partition's record before it ended.
pub fn encode(header: &RecordHeader, ops: &[u8], after: Glsn, out: &mut Vec<u8>) {
    assert!(ops.len() == header.ops_len as usize && header.own >= after && header.own >= header.first);
    let (gap, back) = (header.own - after, header.own - header.first);
    let rest = header.end() - header.own_end();
    let bit = |number: u64, bit: u64| if number > 0 { bit } else { 0 };
    let bits = bit(gap, HAS_GAP) | bit(back, HAS_BACK) | bit(rest, HAS_REST);
    let mut head = Numbers::<HEADER_MAX>::new();
    head.put(u64::from(header.ops_len) << BITS | bits);
    for number in [gap, back, rest] {
        if number > 0 {
            head.put(number);
        }
    }
    head.put(u64::from(header.id.space.0));
    head.put(u64::from(header.id.page));
    out.extend_from_slice(head.bytes());
    out.extend_from_slice(ops);
}

/// The record at the start of `bytes`, if the partition's record before it ended at `after`.
pub fn decode(bytes: &[u8], after: Glsn) -> Decoded<'_> {
    let mut rest = bytes;
    let header = match header(&mut rest, after) {
        Ok(header) => header,
        Err(NoNumber::Short) => return Decoded::Short,
        Err(NoNumber::Nonsense) => return Decoded::Nonsense,
    };
    match rest.get(..header.ops_len as usize) {
        Some(ops) => Decoded::Record(header, ops, bytes.len() - rest.len()),
        None => Decoded::Short,
    }
}

/// The bytes of the record that begins at `at` of a buffer that we filled ourselves, and where it ends.
pub fn pass(records: &[u8], at: usize, after: Glsn) -> (usize, Glsn) {
    match decode(&records[at..], after) {
        Decoded::Record(header, ops, head) => (head + ops.len(), header.own_end()),
        other => panic!("no record at {at} of {}: {other:?}", records.len()),
    }
}

/// Takes the header at the start of `bytes`.
fn header(bytes: &mut &[u8], after: Glsn) -> Result<RecordHeader, NoNumber> {
    let what = varint::take(bytes)?;
    let mut there = |bit: u64| match what & bit {
        0 => Ok(0),
        _ => varint::take(bytes).and_then(|n| if n > 0 { Ok(n) } else { Err(NoNumber::Nonsense) }),
    };
    let (gap, back, rest) = (there(HAS_GAP)?, there(HAS_BACK)?, there(HAS_REST)?);
    let (space, page) = (small(varint::take(bytes)?)?, small(varint::take(bytes)?)?);
    let ops_len = small(what >> BITS)?;
    let length = back.checked_add(share(ops_len as usize)).and_then(|n| n.checked_add(rest));
    let own = after.checked_add(gap).ok_or(NoNumber::Nonsense)?;
    let header = RecordHeader {
        own,
        first: own.checked_sub(back).filter(|first| *first > 0).ok_or(NoNumber::Nonsense)?,
        length: small(length.unwrap_or(u64::MAX))?,
        ops_len,
        id: PageId::new(SpaceId(space), page),
    };
    let end = header.first.checked_add(u64::from(header.length));
    end.map(|_| header).ok_or(NoNumber::Nonsense)
}

fn small(number: u64) -> Result<u32, NoNumber> {
    u32::try_from(number).map_err(|_| NoNumber::Nonsense)
}
