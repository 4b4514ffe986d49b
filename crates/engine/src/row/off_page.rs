//! Rows of which some parts are kept apart: long ones, in pages of their own, so that the rest of the row has room in its leaf.
//!
//! A front says which runs of a row's bytes may go ([`Span`]); a row that its leaf has room for keeps them all. The longest go
//! first, and no more than have to. What stays is the *body*, and behind the head ([`crate::row::APART`]) stands
//!
//! `count u8 · count times (place in the body u32 · name u16 · first page u32 · length u32 · serial u64) · body`
//!
//! where the places ascend: a part's bytes belong there in the body. The name is the front's; it says which parts a reader wants.
//! With the count's highest bit, which pages the parts have stands before the body: `length u8 · runs` ([`overflow::runs`](crate::tree::overflow::runs)).
//!
//! In a row that is a large value as a whole, the reference stands behind the head, and the runs behind that.
//!
//! A part lives as long as any version of its row names it. A change that leaves its bytes as they are names the same pages
//! again, and its undo record says so (`undo::record`). So purge frees of the old version what the change did not keep, and a
//! rollback what the transaction wrote. No other row ever names it, and a row that comes over a delete mark keeps nothing.

use crate::error::{Error, Result};
use crate::row::Head;
use crate::tree::overflow::{Large, Placed, runs};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// A row has no more of them: a change notes in 64 bits which it kept.
pub const APART_MAX: usize = 64;
/// Shorter runs stay in the row.
pub const SPAN_MIN: u32 = 256;
/// What a part takes in the leaf.
const REFERENCE: usize = 4 + 2 + Large::ENCODED;
/// Bit of the count: runs stand before the body.
const WITH_RUNS: u8 = 0x80;
/// The most bytes of a row's runs: some thirty for a value whose pages are scattered.
pub const RUNS_MAX: usize = 128;

/// A run of a row's bytes that may be kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub at: u32,
    pub len: u32,
    /// What the front calls it.
    pub name: u16,
}

impl Span {
    fn range(self) -> std::ops::Range<usize> {
        self.at as usize..self.at as usize + self.len as usize
    }
    pub(crate) fn of(self, row: &[u8]) -> &[u8] {
        &row[self.range()]
    }
}

/// A row as a front gives it, and what of it may be kept apart: runs in order, that don't touch.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub bytes: &'a [u8],
    pub spans: &'a [Span],
}

impl<'a> From<&'a [u8]> for Row<'a> {
    fn from(bytes: &'a [u8]) -> Row<'a> {
        Row { bytes, spans: &[] }
    }
}
impl<'a> From<&'a Vec<u8>> for Row<'a> {
    fn from(bytes: &'a Vec<u8>) -> Row<'a> {
        Row { bytes, spans: &[] }
    }
}
impl<'a, const N: usize> From<&'a [u8; N]> for Row<'a> {
    fn from(bytes: &'a [u8; N]) -> Row<'a> {
        Row { bytes, spans: &[] }
    }
}

/// Where bytes of a row are missing that its reader did not want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// In the bytes that were handed over.
    pub at: u32,
    pub len: u32,
    pub name: u16,
}

/// A part of a row, as the leaf names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apart {
    /// In the body.
    pub at: u32,
    pub name: u16,
    pub large: Large,
}

pub type List = SmallVec<[Apart; 4]>;
pub type Larges = SmallVec<[Large; 4]>;

/// The runs to be kept off-page, for a row whose leaf has room for `room` bytes of it; none if that is no way to make it fit, or
/// takes more pages, less one, than the whole row in pages of its own.
pub fn choose(row: Row<'_>, room: usize) -> Result<Option<SmallVec<[Span; 4]>>> {
    let mut end = 0;
    for span in row.spans {
        let range = span.range();
        if range.start < end || range.end > row.bytes.len() {
            return Err(Error::Invalid("spans of a row that are not in it, or not in order".into()));
        }
        end = range.end + 1;
    }
    let mut longest: Vec<Span> = row.spans.iter().copied().filter(|span| span.len >= SPAN_MIN).collect();
    longest.sort_by_key(|span| Reverse(span.len));
    let pages = |len: usize| Large { page: 0, len: len as u32, serial: 0 }.pages();
    let (mut left, mut taken) = (1 + row.bytes.len(), 0);
    let mut chosen = SmallVec::new();
    for span in longest.into_iter().take(APART_MAX) {
        if left <= room {
            break;
        }
        left -= span.len as usize - REFERENCE;
        taken += pages(span.len as usize);
        chosen.push(span);
    }
    if left > room || taken > pages(row.bytes.len()) + 1 {
        return Ok(None);
    }
    chosen.sort_by_key(|span: &Span| span.at);
    Ok(Some(chosen))
}

/// What stands behind the head of a row that is a large value.
pub fn encode_whole(placed: &Placed) -> Vec<u8> {
    let mut out = placed.large.encode().to_vec();
    runs::append([(placed.large, &placed.pages[..])].into_iter(), RUNS_MAX, &mut out);
    out
}

/// What stands behind the head: the row without `spans`, which `parts` have. Their runs, if these fit into `room` with the rest.
pub fn encode(row: &[u8], spans: &[Span], parts: &[Placed], room: usize) -> Vec<u8> {
    let gone: usize = spans.iter().map(|span| span.len as usize).sum();
    let len = 1 + spans.len() * REFERENCE + row.len() - gone;
    let mut known = Vec::new();
    let most = RUNS_MAX.min(room.saturating_sub(len + 1));
    runs::append(parts.iter().map(|part| (part.large, &part.pages[..])), most, &mut known);
    let mut out = Vec::with_capacity(len + 1 + known.len());
    out.push(spans.len() as u8 | if known.is_empty() { 0 } else { WITH_RUNS });
    let mut before = 0;
    for (span, part) in spans.iter().zip(parts) {
        out.extend_from_slice(&(span.at - before).to_le_bytes());
        out.extend_from_slice(&span.name.to_le_bytes());
        out.extend_from_slice(&part.large.encode());
        before += span.len;
    }
    if !known.is_empty() {
        out.push(known.len() as u8);
        out.extend_from_slice(&known);
    }
    let mut from = 0;
    for span in spans {
        out.extend_from_slice(&row[from..span.at as usize]);
        from = span.range().end;
    }
    out.extend_from_slice(&row[from..]);
    out
}

/// The parts, their runs and the body; None if it makes no sense.
fn decode_all(rest: &[u8]) -> Option<(List, &[u8], &[u8])> {
    let (count, rest) = rest.split_first()?;
    let (count, with_runs) = (usize::from(*count & !WITH_RUNS), count & WITH_RUNS != 0);
    if count == 0 || count > APART_MAX {
        return None;
    }
    let (list, rest) = rest.split_at_checked(count * REFERENCE)?;
    let (runs, body) = match with_runs {
        true => rest.split_first().and_then(|(len, rest)| rest.split_at_checked(usize::from(*len)))?,
        false => (&[][..], rest),
    };
    let mut parts = List::new();
    let mut before = 0;
    for one in list.chunks_exact(REFERENCE) {
        let (at, one) = one.split_first_chunk::<4>()?;
        let (name, large) = one.split_first_chunk::<2>()?;
        let at = u32::from_le_bytes(*at);
        if at < before || at as usize > body.len() {
            return None;
        }
        before = at;
        parts.push(Apart { at, name: u16::from_le_bytes(*name), large: Large::decode(large)? });
    }
    Some((parts, runs, body))
}

/// The parts and the body; None if it makes no sense.
pub fn decode(rest: &[u8]) -> Option<(List, &[u8])> {
    decode_all(rest).map(|(parts, _, body)| (parts, body))
}

/// All large values that a row's value names: `rest` follows its head. None if it makes no sense.
pub fn larges(head: Head, rest: &[u8]) -> Option<Larges> {
    match (head.large(), head.apart()) {
        (false, false) => Some(Larges::new()),
        (true, false) => Some(Larges::from_iter([Large::decode(rest)?])),
        (false, true) => Some(decode(rest)?.0.iter().map(|part| part.large).collect()),
        (true, true) => None,
    }
}

/// The same, with their pages as far as the row says them. None if it makes no sense.
pub fn placed(head: Head, rest: &[u8]) -> Option<Vec<Placed>> {
    let larges = larges(head, rest)?;
    let list = match head.apart() {
        true => decode_all(rest)?.1,
        false if head.large() => rest.get(Large::ENCODED..)?,
        false => &[],
    };
    let pages = runs::decode(&larges, list)?;
    Some(larges.into_iter().zip(pages).map(|(large, pages)| Placed { large, pages }).collect())
}

/// Which parts of an old value the value put in its place keeps, one bit for each.
pub fn kept(old: &[u8], new: &[u8]) -> u64 {
    let (Some((old, _)), Some((new, _))) = (decode(old), decode(new)) else { return 0 };
    let is_kept = |part: &Apart| new.iter().any(|other| other.large == part.large);
    old.iter().enumerate().filter(|(_, part)| is_kept(part)).fold(0, |bits, (at, _)| bits | 1 << at)
}

#[cfg(test)]
mod tests;
