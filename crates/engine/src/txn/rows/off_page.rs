//! Where the bytes of a row go: into its leaf, or parts of it into pages of their own, or all of it; and back.
//!
//! An update reads the present row before it writes: parts that have the same bytes are named again. It holds no latch
//! meanwhile, so under the leaf's latch the row must still name them; if it doesn't, they are written as if nothing had been there.

use super::super::{Txn, TxnState};
use crate::error::TreeError;
use crate::error::{Error, Result};
use crate::row::off_page::{self, Hole, Larges, Row};
use crate::row::{self, APART, Head, LARGE};
use crate::table::Table;
use crate::tree::overflow::{self, Large, Placed, WrittenFor};
use crate::tree::{Tree, max_inline_value};
use std::borrow::Cow;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::PageId;

/// A row as its leaf has it: the flags, and what follows the head.
pub(crate) type Stored<'a> = (u8, Cow<'a, [u8]>);

/// Whether a reader wants a part of a row: it gets what is in the leaf of the row, and the part's name.
pub type PartFilter = dyn Fn(&[u8], u16) -> bool + Send;

/// What of a row is wanted.
#[derive(Clone, Copy)]
pub(crate) struct WantedParts<'a> {
    /// The number of first bytes wanted of a row that is a large value, or has parts that are. For one with parts, 0 is nothing, and anything else
    /// what `parts` says.
    pub enough: usize,
    /// None: all.
    pub parts: Option<&'a PartFilter>,
}

impl WantedParts<'_> {
    pub const ALL: WantedParts<'static> = WantedParts { enough: usize::MAX, parts: None };
}

/// Lays a row out for a leaf in which its key has `key_len` bytes. `write` gets the bytes that are to go elsewhere.
pub(crate) fn lay_out<'a>(
    row: Row<'a>,
    key_len: usize,
    write: &mut dyn FnMut(&[u8]) -> Result<Placed>,
) -> Result<Stored<'a>> {
    let room = max_inline_value(key_len) - row::HEAD;
    if row.bytes.len() <= room {
        return Ok((0, Cow::Borrowed(row.bytes)));
    }
    let Some(spans) = off_page::choose(row, room)? else {
        return Ok((LARGE, Cow::Owned(off_page::encode_whole(&write(row.bytes)?))));
    };
    let parts = spans.iter().map(|span| write(span.of(row.bytes))).collect::<Result<Vec<_>>>()?;
    Ok((APART, Cow::Owned(off_page::encode(row.bytes, &spans, &parts, room))))
}

impl Txn {
    /// The row laid out, its parts written; those that the row at `key` has are in `kept` instead, if there is one.
    pub(super) fn store<'a>(
        &self,
        state: &mut TxnState,
        table: &Table,
        key: &[u8],
        row: Row<'a>,
        mut kept: Option<&mut Larges>,
    ) -> Result<Stored<'a>> {
        let tree = table.tree(0)?;
        let space = tree.space();
        let by = if kept.is_some() { WrittenFor::Update } else { WrittenFor::Statement };
        let mut old: Option<Vec<Placed>> = None;
        lay_out(row, key.len(), &mut |bytes| {
            if let Some(kept) = kept.as_deref_mut().filter(|_| bytes.len() < row.bytes.len()) {
                let old = match &mut old {
                    Some(old) => old,
                    None => old.insert(parts_at(&tree, key)?),
                };
                for at in 0..old.len() {
                    if overflow::equals(space, old[at].large, bytes, Access::Scan)? {
                        let part = old.remove(at);
                        kept.push(part.large);
                        return Ok(part);
                    }
                }
            }
            self.write_large(state, table, space, bytes, by)
        })
    }
}

/// The parts of the row that is at `key` now.
fn parts_at(tree: &Tree, key: &[u8]) -> Result<Vec<Placed>> {
    let parts = tree.get(key, Access::Normal, |value| {
        let (head, rest) = value.and_then(Head::decode)?;
        if head.apart() && !head.deleted() { off_page::placed(head, rest) } else { None }
    })?;
    Ok(parts.unwrap_or_default())
}

/// Whether the value, of which this is the head and what follows, names all of these.
pub(super) fn names(old: Option<(Head, &[u8])>, larges: &[Large]) -> bool {
    let of = old.filter(|(head, _)| head.apart()).and_then(|(_, rest)| off_page::decode(rest));
    let names = |large: &Large| of.as_ref().is_some_and(|(parts, _)| parts.iter().any(|p| p.large == *large));
    larges.iter().all(names)
}

/// What came of opening a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opened {
    Whole,
    /// A large value that it names is gone, so the copy is stale.
    Stale,
    /// A crash has left a large value that it names without its bytes: its writer was not committed, and is being rolled back.
    Hollow(PageId),
}

/// As `open`, for a reader of committed rows, or one that has locked the row. False: it is stale.
pub(crate) fn payload(
    table: &Table,
    value: &[u8],
    want: WantedParts<'_>,
    out: &mut Vec<u8>,
    holes: &mut Vec<Hole>,
) -> Result<bool> {
    match open(table, value, want, out, holes)? {
        Opened::Whole => Ok(true),
        Opened::Stale => Ok(false),
        Opened::Hollow(page) => Err(TreeError::Hollow { page }.into()),
    }
}

/// The row of a primary value, or what is wanted of it: where parts are missing then is added to `holes`.
pub(crate) fn open(
    table: &Table,
    value: &[u8],
    want: WantedParts<'_>,
    out: &mut Vec<u8>,
    holes: &mut Vec<Hole>,
) -> Result<Opened> {
    let Some((head, rest)) = Head::decode(value) else {
        return Err(Error::Corrupt("a value without a head".into()));
    };
    out.clear();
    holes.clear();
    if head.in_leaf() {
        out.extend_from_slice(rest);
        return Ok(Opened::Whole);
    }
    let read = |large: Large, enough: usize, out: &mut Vec<u8>| match overflow::read_start(
        table.tree(0)?.space(),
        large,
        enough,
        Access::Scan,
        out,
    ) {
        Ok(()) => Ok(Opened::Whole),
        Err(TreeError::Gone { .. }) => Ok(Opened::Stale),
        Err(TreeError::Hollow { page }) => Ok(Opened::Hollow(page)),
        Err(error) => Err(error.into()),
    };
    if head.large() {
        let Some(large) = Large::decode(rest) else {
            return Err(Error::Corrupt("a large value without a reference".into()));
        };
        return read(large, want.enough, out);
    }
    let Some((parts, body)) = off_page::decode(rest) else {
        return Err(Error::Corrupt("a row whose parts cannot be told".into()));
    };
    if want.enough == 0 {
        return Ok(Opened::Whole);
    }
    let mut from = 0;
    for part in parts {
        let at = part.at as usize;
        out.extend_from_slice(&body[from..at]);
        from = at;
        if want.parts.is_none_or(|wants| wants(body, part.name)) {
            let opened = read(part.large, ALL, out)?;
            if opened != Opened::Whole {
                return Ok(opened);
            }
        } else {
            holes.push(Hole { at: out.len() as u32, len: part.large.len, name: part.name });
        }
    }
    out.extend_from_slice(&body[from..]);
    Ok(Opened::Whole)
}

/// All bytes of a large value.
const ALL: usize = usize::MAX;
