//! What a tree's value holds besides the user's bytes: who touched it last, and where its past is.
//!
//! Rows (primary tree): `flags u8 · transaction id 6 bytes · roll pointer u64 · row`, where the row is the
//! bytes themselves or, with [`LARGE`], the reference to a large value, or, with [`APART`], what is left of the row and the references to
//! its parts (`apart`).
//!
//! Entries (secondary trees): the same head, then `offset of the primary key in the entry's key u16 ·
//! extra bytes`. An entry has its own past, as a row has; so a reader of a secondary tree needs no
//! look at the primary (see `docs/decisions`).

use crate::undo::RollPtr;
use smallvec::SmallVec;

pub const DELETED: u8 = 1;
pub const LARGE: u8 = 2;
pub const APART: u8 = 4;
pub const HEAD: usize = 15;
/// What stands before an entry's extra bytes: the head and the primary key's offset.
pub const ENTRY_HEAD: usize = HEAD + 2;

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
        let (head, rest) = value.split_at_checked(HEAD)?;
        let mut txn = [0; 8];
        txn[..6].copy_from_slice(&head[1..7]);
        let roll = RollPtr(u64::from_le_bytes(head[7..15].try_into().ok()?));
        Some((Head { flags: head[0], txn: u64::from_le_bytes(txn), roll }, rest))
    }
}

/// A head and what follows it, as one value.
pub fn value(head: Head, rest: &[u8]) -> Vec<u8> {
    [&head.encode()[..], rest].concat()
}

/// As [`value`], in place of what is in `out`.
pub fn value_into(head: Head, rest: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&head.encode());
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
    let (at, extra) = rest.split_at_checked(2)?;
    Some((usize::from(u16::from_le_bytes([at[0], at[1]])), extra))
}
