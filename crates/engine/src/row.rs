//! What a tree's value holds besides the user's bytes: the transaction that changed it last, and where its older version is.
//!
//! Rows (primary tree): `flags u8 · transaction id 6 bytes · roll pointer u64 · row`, where the row is the
//! bytes themselves or, with [`LARGE`], the reference to a large value, or, with [`APART`], what is left of the row and the references to
//! its parts (`off_page`).
//!
//! Entries (secondary trees): the same head, then `offset of the primary key in the entry's key u16 ·
//! extra bytes`. An entry has its own past, as a row has; so a reader of a secondary tree needs no
//! look at the primary (see `docs/decisions`).
//!
//! A head that is visible to every view, and has no other use, is written as its flags alone, with [`SHORT`]: those of entries once their leaf
//! is full ([`Shortener`]), and those that an index is built of. Rows, which are changed where they are, keep theirs whole.
//!
//! Beside the usual path:
//!
//! * A row that does not fit into its leaf: its longest values go off-page. An update keeps the references of values that it leaves unchanged; purge
//!   and rollback free values that no version references (`off_page.rs`, `txn/rows/off_page.rs`, `txn/purge.rs`: `choose`, `Txn::store`,
//!   `Change::larges_dropped`).

pub mod off_page;
use crate::tree::Shorten;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const DELETED: u8 = 1;
pub const LARGE: u8 = 2;
pub const APART: u8 = 4;
/// The head is these flags alone. Not among those of a [`Head`].
const SHORT: u8 = 8;
/// The longest head. What is put into a tree may come to have it, so it counts wherever lengths are bounded.
pub const HEAD: usize = 15;
/// Bytes of the primary key's offset, which stands before an entry's extra bytes.
pub const PRIMARY_AT: usize = 2;

/// A transaction's number, below 2^48. 0: before all.
pub type TxnId = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub flags: u8,
    pub txn: TxnId,
    pub roll: RollPtr,
}

impl Head {
    pub fn deleted(self) -> bool {
        self.flags & DELETED != 0
    }
    /// All of the row is a large value.
    pub fn large(self) -> bool {
        self.flags & LARGE != 0
    }
    /// Parts of the row are large values.
    pub fn apart(self) -> bool {
        self.flags & APART != 0
    }
    /// The row is where its head is, all of it.
    pub fn in_leaf(self) -> bool {
        self.flags & (LARGE | APART) == 0
    }

    pub fn encode(self) -> [u8; HEAD] {
        let mut out = [0; HEAD];
        out[0] = self.flags;
        out[1..7].copy_from_slice(&self.txn.to_le_bytes()[..6]);
        out[7..15].copy_from_slice(&self.roll.0.to_le_bytes());
        out
    }

    /// The head and what follows it; None if the value is too short.
    #[inline]
    pub fn decode(value: &[u8]) -> Option<(Head, &[u8])> {
        if let Some((flags, rest)) = value.split_first()
            && flags & SHORT != 0
        {
            return Some((Head { flags: flags & !SHORT, txn: 0, roll: RollPtr::NONE }, rest));
        }
        let (head, rest) = value.split_at_checked(HEAD)?;
        let mut txn = [0; 8];
        txn[..6].copy_from_slice(&head[1..7]);
        let roll = RollPtr(u64::from_le_bytes(head[7..15].try_into().ok()?));
        Some((Head { flags: head[0], txn: u64::from_le_bytes(txn), roll }, rest))
    }
}

/// Bytes of the head that a value begins with, if it begins with one.
#[inline]
pub fn head_len(value: &[u8]) -> usize {
    if value.first().is_some_and(|flags| flags & SHORT != 0) { 1 } else { HEAD }
}

/// The value's head says that its row or entry is deleted.
#[inline]
pub fn is_marked(value: &[u8]) -> bool {
    value.first().is_some_and(|flags| flags & DELETED != 0)
}

/// A value that everybody sees, and that has no past: its head is short.
pub fn old_value(rest: &[u8]) -> Vec<u8> {
    [&[SHORT][..], rest].concat()
}

/// Shortens the heads of entries that are older than every view, in the order of [`crate::txn::ids::Ids`].
pub struct Shortener {
    /// Transactions below this are seen by every view.
    seen: Arc<AtomicU64>,
}

impl Shortener {
    pub fn new(seen: Arc<AtomicU64>) -> Shortener {
        Shortener { seen }
    }
    pub fn seen(&self) -> Arc<AtomicU64> {
        self.seen.clone()
    }
}

impl Shorten for Shortener {
    /// What is marked is left to purge, which tells by the head whether the mark is the one it means.
    fn shorter<'v>(&self, value: &'v [u8], out: &'v mut Vec<u8>) -> &'v [u8] {
        let seen = self.seen.load(Ordering::Acquire);
        let is_seen = |head: Head| head.txn < seen || crate::planted::SHORTENED_UNSEEN.on();
        let is_old = |head: Head| is_seen(head) && !head.deleted() && head.in_leaf();
        match Head::decode(value) {
            Some((head, rest)) if rest.len() + HEAD == value.len() && is_old(head) => {
                out.clear();
                out.push(head.flags | SHORT);
                out.extend_from_slice(rest);
                out
            }
            _ => value,
        }
    }
}

/// A head and what follows it, as one value.
pub fn value(head: Head, rest: &[u8]) -> Vec<u8> {
    [&head.encode()[..], rest].concat()
}

/// As [`value`], in place of what is in `out`.
pub fn value_into(head: Head, rest: &[u8], out: &mut Vec<u8>) {
    let head = head.encode();
    out.clear();
    out.reserve(head.len() + rest.len());
    out.extend_from_slice(&head);
    out.extend_from_slice(rest);
}

/// What follows an entry's head.
pub fn entry_rest(primary_at: usize, extra: &[u8]) -> SmallVec<[u8; 32]> {
    let mut rest = SmallVec::from_slice(&(primary_at as u16).to_le_bytes());
    rest.extend_from_slice(extra);
    rest
}

/// Where the primary key begins in an entry's key, and the extra bytes.
#[inline]
pub fn entry_parts(rest: &[u8]) -> Option<(usize, &[u8])> {
    let (at, extra) = rest.split_at_checked(PRIMARY_AT)?;
    Some((usize::from(u16::from_le_bytes([at[0], at[1]])), extra))
}

/// Names an undo record: page and byte. The highest bit says that there is no older version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Default)]
pub struct RollPtr(pub u64);

impl RollPtr {
    pub const NONE: RollPtr = RollPtr(0);
    const FRESH: u64 = 1 << 63;

    pub fn new(page: u32, at: u16) -> RollPtr {
        RollPtr(u64::from(page) << 16 | u64::from(at))
    }
    /// The same record, as the pointer of a version that nothing precedes.
    pub fn fresh(self) -> RollPtr {
        RollPtr(self.0 | RollPtr::FRESH)
    }
    pub fn is_fresh(self) -> bool {
        self.0 & RollPtr::FRESH != 0
    }
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
    /// Without the mark.
    pub fn record(self) -> RollPtr {
        RollPtr(self.0 & !RollPtr::FRESH)
    }
    pub fn page(self) -> u32 {
        (self.record().0 >> 16) as u32
    }
    pub fn at(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }
}
