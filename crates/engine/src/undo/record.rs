//! Undo records.
//!
//! `length u16 · kind u8 · transaction id 6 bytes · record before u64 · body`, little-endian. Bodies:
//!
//! * Begin: `state u8 · commit sequence number u64`
//! * Prepare: the XID
//! * Change: `key · old value`, behind a head of its own: `length u16 · kind u8`, and as numbers of variable length
//!   (`terrace_log::varint`): transaction id, record before, table, index, key length. Kind Insert: the key was not
//!   there, and there is no old value. Update: the value was another. Delete: the value was only
//!   marked. Mark: the same, but of the old value the head alone is there, and before it stands `sum u32`, the CRC-32C of what
//!   followed it, and stayed ([`Change::before`]); records of earlier builds have kind Delete and no sum. Delta: an update of a row that is all in its leaf, before
//!   and after, and much of which stayed: `sum u32 · front · back`, the sum of what follows the new value's head and, as numbers of variable length,
//!   how many bytes at the start and at the end of that the old value has, too (`undo::shared`); then the old value without these. Keep: an update that kept parts of
//!   the row (`crate::row::off_page`); before the old value stands `kept u64`, a bit for each of its parts. Dropped: an update or a
//!   delete mark of a row with large values; before the old value stand `kept u64 · marked u8 · length u16 · list`, which pages those have that it drops
//!   (`undo::chains`).
//!   Volumes of before format version 9 have Changes with the head of all others, and then
//!   `table u32 · index u16 · key length u16`: kinds of their own.
//! * Load: `table u32 · index u16 · published u8`: a tree is being built in bulk, or is the index's by now (`txn::fill`).
//! * Extent: `table u32 · index u16 · load u64 · first u32 · count u32 · space u32`: page numbers of the space that the
//!   build of that Load record has taken. Count is written over as they are given back.
//! * Filled: `table u32 · index u16 · load u64`: the tree is the index's; its values carry that Load record's place.
//! * Large: `table u32 · first page u32 · length u32 · serial u64`: a large value, a row or a part of one, is
//!   written for a row that the transaction's next Change, if it comes, puts. The page is the first one written so far.

use super::shared::Shared;
use crate::row::RollPtr;
use crate::row::off_page::{self, Larges};
use crate::row::{self, Head, TxnId};
use crate::tree::overflow::Large;
use terrace_log::varint::{self, Numbers};
use terrace_tier::page::SpaceId;

const BEGIN: u8 = 1;
const PREPARE: u8 = 2;
const INSERT_BEFORE_9: u8 = 3;
const UPDATE_BEFORE_9: u8 = 4;
const DELETE_BEFORE_9: u8 = 5;
const LARGE: u8 = 6;
const LOAD: u8 = 7;
const EXTENT: u8 = 8;
const FILLED: u8 = 9;
const KEEP_BEFORE_9: u8 = 10;
const INSERT: u8 = 12;
const UPDATE: u8 = 13;
const DELETE: u8 = 14;
const KEEP: u8 = 15;
const MARK: u8 = 16;
const DROPPED: u8 = 17;
const DELTA: u8 = 18;

const HEAD: usize = 17;
/// Numbers of 48, 64, 32, 16 and 16 bits.
const CHANGE_HEAD_MAX: usize = 7 + 10 + 5 + 3 + 3;
/// Two numbers of 16 bits.
const SHARED_MAX: usize = 3 + 3;
/// Where in a Begin record the state is.
pub const STATE_AT: usize = HEAD;
/// Where in a Load record it says whether the tree is published.
pub const PUBLISHED_AT: usize = HEAD + 6;
/// Where in an Extent record the count is.
pub const COUNT_AT: usize = HEAD + 18;
/// The largest record that a page takes.
pub const RECORD_MAX: usize = 12_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TxnStatus {
    Active = 0,
    Prepared = 1,
    Committed = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change<'a> {
    pub table: u32,
    /// 0: the primary tree.
    pub index: u16,
    pub key: &'a [u8],
    /// The value before; None if there was none. Perhaps only its head, if it was marked; without what it shares with the new one, if `shared` says so.
    pub old: Option<&'a [u8]>,
    /// The change was a delete mark: old and new share what follows the head.
    pub marked: bool,
    /// For a mark that has only the old head, and where something is shared: [`sum`] of what follows the new head.
    pub sum: Option<u32>,
    /// What follows the heads of the old value and of the new one is the same at its start and at its end, and not in `old`.
    pub shared: Option<Shared>,
    /// Which parts of the old value the new one names, too.
    pub kept: u64,
    /// Which pages the large values have that the change drops (`undo::chains`); empty: that is not known.
    pub chains: &'a [u8],
}

/// By which what follows a head is known again.
pub fn sum(rest: &[u8]) -> u32 {
    crc32c::crc32c(rest)
}

impl Change<'_> {
    /// The large values that the row had before the change, and not behind it. None: there are none.
    pub fn larges_dropped(&self) -> Option<Larges> {
        let (head, rest) = self.old.filter(|_| self.index == 0).and_then(Head::decode)?;
        let mut larges = if head.in_leaf() { return None } else { off_page::larges(head, rest)? };
        if self.kept != 0 && !crate::planted::KEPT_PART_FREED.on() {
            let mut bit = 0;
            larges.retain(|_| {
                bit += 1;
                self.kept & 1 << (bit - 1) == 0
            });
        }
        Some(larges).filter(|larges| !larges.is_empty())
    }

    /// The value before, of which the change made `made`. None: there was none, or the change has not made this.
    pub fn before(&self, made: &[u8]) -> Option<Vec<u8>> {
        let old = self.old?;
        let has_all = self.shared.is_none() && (!self.marked || old.len() > row::head_len(old));
        if has_all {
            return Some(old.to_vec());
        }
        // A reader that copied another value of this transaction, which was undone since, may be led here, too.
        // As may one of a mark of another value of its own, which was at the same place of its undo.
        let is_made = |head: Head, rest: &[u8]| {
            head.deleted() == self.marked && self.sum.is_none_or(|s| s == sum(rest))
        };
        let believed = crate::planted::STALE_COPY_BELIEVED.on();
        let (_, rest) = Head::decode(made).filter(|(head, rest)| believed || is_made(*head, rest))?;
        match self.shared {
            None => Some([old, rest].concat()),
            Some(shared) => {
                let (head, between) = old.split_at_checked(row::head_len(old))?;
                shared.join(head, between, rest)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    Begin { state: TxnStatus, csn: u64 },
    Prepare { xid: &'a [u8] },
    Change(Change<'a>),
    Large { table: u32, large: Large },
    Load { table: u32, index: u16, published: bool },
    Extent { table: u32, index: u16, load: RollPtr, first: u32, count: u32, space: SpaceId },
    Filled { table: u32, index: u16, load: RollPtr },
}

impl Body<'_> {
    /// The table that it is about.
    pub fn table(&self) -> Option<u32> {
        match self {
            Body::Begin { .. } | Body::Prepare { .. } => None,
            Body::Change(Change { table, .. })
            | Body::Large { table, .. }
            | Body::Load { table, .. }
            | Body::Extent { table, .. }
            | Body::Filled { table, .. } => Some(*table),
        }
    }
    /// The commit sequence number, if this begins a committed transaction.
    pub fn commit(&self) -> Option<u64> {
        match self {
            Body::Begin { state: TxnStatus::Committed, csn } => Some(*csn),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    pub txn: TxnId,
    /// The transaction's record before this one.
    pub before: RollPtr,
    pub body: Body<'a>,
}

pub fn encode(record: &Record<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    append(record, &mut out);
    out
}

/// As [`encode`], behind what is in `out`.
pub fn append(record: &Record<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Body::Change(c) = &record.body {
        // At once; what is neither head, key nor value takes less than 16 bytes.
        out.reserve(CHANGE_HEAD_MAX + c.key.len() + c.chains.len() + c.old.map_or(0, <[u8]>::len) + 16);
    }
    out.extend_from_slice(&[0, 0]);
    let kind = match record.body {
        Body::Begin { .. } => BEGIN,
        Body::Prepare { .. } => PREPARE,
        Body::Change(Change { old: None, .. }) => INSERT,
        Body::Change(Change { shared: Some(_), .. }) => DELTA,
        Body::Change(Change { sum: Some(_), .. }) => MARK,
        Body::Change(Change { chains: [_, ..], .. }) => DROPPED,
        Body::Change(Change { marked: true, .. }) => DELETE,
        Body::Change(Change { kept: 1.., .. }) => KEEP,
        Body::Change(_) => UPDATE,
        Body::Large { .. } => LARGE,
        Body::Load { .. } => LOAD,
        Body::Extent { .. } => EXTENT,
        Body::Filled { .. } => FILLED,
    };
    out.push(kind);
    if !matches!(record.body, Body::Change(_)) {
        out.extend_from_slice(&record.txn.to_le_bytes()[..6]);
        out.extend_from_slice(&record.before.0.to_le_bytes());
    }
    match record.body {
        Body::Begin { state, csn } => {
            out.push(state as u8);
            out.extend_from_slice(&csn.to_le_bytes());
        }
        Body::Prepare { xid } => out.extend_from_slice(xid),
        Body::Change(c) => {
            let mut head = Numbers::<CHANGE_HEAD_MAX>::new();
            let (table, index, key_len) = (u64::from(c.table), u64::from(c.index), c.key.len() as u64);
            [record.txn, record.before.0, table, index, key_len].into_iter().for_each(|n| head.put(n));
            out.extend_from_slice(head.bytes());
            out.extend_from_slice(c.key);
            if let Some(sum) = c.sum {
                out.extend_from_slice(&sum.to_le_bytes());
                if let Some(Shared { front, back }) = c.shared {
                    let mut numbers = Numbers::<SHARED_MAX>::new();
                    [front, back].into_iter().for_each(|n| numbers.put(n as u64));
                    out.extend_from_slice(numbers.bytes());
                }
            } else if c.old.is_some() && !c.chains.is_empty() {
                out.extend_from_slice(&c.kept.to_le_bytes());
                out.push(u8::from(c.marked));
                out.extend_from_slice(&(c.chains.len() as u16).to_le_bytes());
                out.extend_from_slice(c.chains);
            } else if c.kept != 0 {
                out.extend_from_slice(&c.kept.to_le_bytes());
            }
            out.extend_from_slice(c.old.unwrap_or(&[]));
        }
        Body::Large { table, large } => {
            out.extend_from_slice(&table.to_le_bytes());
            out.extend_from_slice(&large.encode());
        }
        Body::Load { table, index, published } => {
            out.extend_from_slice(&table.to_le_bytes());
            out.extend_from_slice(&index.to_le_bytes());
            out.push(u8::from(published));
        }
        Body::Extent { table, index, load, first, count, space } => {
            out.extend_from_slice(&table.to_le_bytes());
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&load.0.to_le_bytes());
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&space.0.to_le_bytes());
        }
        Body::Filled { table, index, load } => {
            out.extend_from_slice(&table.to_le_bytes());
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&load.0.to_le_bytes());
        }
    }
    let len = (out.len() - start) as u16;
    out[start..start + 2].copy_from_slice(&len.to_le_bytes());
}

/// The state part of a Begin record, to be written over it.
pub fn encode_state(state: TxnStatus, csn: u64) -> [u8; 9] {
    let mut out = [0; 9];
    out[0] = state as u8;
    out[1..].copy_from_slice(&csn.to_le_bytes());
    out
}

/// The length of the records at the start of `bytes` that are whole and together not much longer than `about`: all of
/// `bytes` where a length makes no sense, for [`decode`] to say so.
pub fn whole(bytes: &[u8], about: usize) -> usize {
    let mut end = 0;
    while end < bytes.len().min(about) {
        let len = bytes.get(end..end + 2).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        if len == 0 || end + len > bytes.len() {
            return bytes.len();
        }
        end += len;
    }
    end
}

/// The record at the start of `bytes` and its length; None if it makes no sense.
pub fn decode(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let len = usize::from(u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?));
    let r = bytes.get(..len)?;
    if let kind @ (INSERT | UPDATE | DELETE | KEEP | MARK | DROPPED | DELTA) = *r.get(2)? {
        let (txn, before, change) = decode_change(kind, r.get(3..)?)?;
        return Some((Record { txn, before, body: Body::Change(change) }, len));
    }
    let mut txn = [0; 8];
    txn[..6].copy_from_slice(r.get(3..9)?);
    let before = RollPtr(u64::from_le_bytes(r.get(9..17)?.try_into().ok()?));
    let rest = r.get(HEAD..)?;
    let body = match *r.get(2)? {
        BEGIN if rest.len() == 9 => Body::Begin {
            state: match *rest.first()? {
                0 => TxnStatus::Active,
                1 => TxnStatus::Prepared,
                2 => TxnStatus::Committed,
                _ => return None,
            },
            csn: u64::from_le_bytes(rest.get(1..9)?.try_into().ok()?),
        },
        PREPARE => Body::Prepare { xid: rest },
        former @ (INSERT_BEFORE_9 | UPDATE_BEFORE_9 | DELETE_BEFORE_9 | KEEP_BEFORE_9) => {
            let table = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?);
            let index = u16::from_le_bytes(rest.get(4..6)?.try_into().ok()?);
            let key_len = u16::from_le_bytes(rest.get(6..8)?.try_into().ok()?);
            let kind = match former {
                INSERT_BEFORE_9 => INSERT,
                UPDATE_BEFORE_9 => UPDATE,
                DELETE_BEFORE_9 => DELETE,
                _ => KEEP,
            };
            Body::Change(change_of(kind, table, index, usize::from(key_len), rest.get(8..)?)?)
        }
        LARGE if rest.len() == 4 + Large::ENCODED => {
            let (table, large) = rest.split_first_chunk::<4>()?;
            Body::Large { table: u32::from_le_bytes(*table), large: Large::decode(large)? }
        }
        kind @ (LOAD | EXTENT | FILLED) => {
            let (table, rest) = rest.split_first_chunk::<4>()?;
            let (index, rest) = rest.split_first_chunk::<2>()?;
            let (table, index) = (u32::from_le_bytes(*table), u16::from_le_bytes(*index));
            if kind == LOAD {
                let published = match rest {
                    [0] => false,
                    [1] => true,
                    _ => return None,
                };
                Body::Load { table, index, published }
            } else {
                let (load, rest) = rest.split_first_chunk::<8>()?;
                let load = RollPtr(u64::from_le_bytes(*load));
                match rest.len() {
                    0 if kind == FILLED => Body::Filled { table, index, load },
                    12 if kind == EXTENT => {
                        let number =
                            |at: usize| Some(u32::from_le_bytes(*rest.get(at..)?.first_chunk::<4>()?));
                        let (first, count, space) = (number(0)?, number(4)?, SpaceId(number(8)?));
                        Body::Extent { table, index, load, first, count, space }
                    }
                    _ => return None,
                }
            }
        }
        _ => return None,
    };
    Some((Record { txn: u64::from_le_bytes(txn), before, body }, len))
}

/// A Change, behind its kind.
fn decode_change(kind: u8, mut rest: &[u8]) -> Option<(TxnId, RollPtr, Change<'_>)> {
    let mut number = || varint::take(&mut rest).ok();
    let (txn, before) = (number()?, RollPtr(number()?));
    let table = u32::try_from(number()?).ok()?;
    let index = u16::try_from(number()?).ok()?;
    let key_len = u16::try_from(number()?).ok()?;
    if txn >> 48 != 0 {
        return None;
    }
    Some((txn, before, change_of(kind, table, index, usize::from(key_len), rest)?))
}

/// The Change of this kind whose key and old value are `rest`.
fn change_of(kind: u8, table: u32, index: u16, key_len: usize, rest: &[u8]) -> Option<Change<'_>> {
    let (key, mut old) = rest.split_at_checked(key_len)?;
    let (mut kept, mut sum, mut shared) = (0, None, None);
    let (mut chains, mut marks) = (&[][..], matches!(kind, DELETE | MARK));
    if kind == KEEP {
        let (bits, value) = old.split_first_chunk::<8>()?;
        (kept, old) = (u64::from_le_bytes(*bits), value);
    }
    if matches!(kind, MARK | DELTA) {
        let (stored, rest) = old.split_first_chunk::<4>()?;
        (sum, old) = (Some(u32::from_le_bytes(*stored)), rest);
    }
    if kind == DELTA {
        let mut number = || varint::take(&mut old).ok().filter(|n| *n < 1 << 16);
        let (front, back) = (number()? as usize, number()? as usize);
        shared = Some(Shared { front, back });
        Head::decode(old)?;
    }
    if kind == DROPPED {
        let (bits, rest) = old.split_first_chunk::<8>()?;
        let (marked, rest) = rest.split_first()?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        (chains, old) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        (kept, marks) = (u64::from_le_bytes(*bits), *marked == 1);
        if *marked > 1 || chains.is_empty() || old.len() < row::head_len(old) {
            return None;
        }
    }
    if kind == INSERT && !old.is_empty()
        || kind == DELETE && old.len() < row::head_len(old)
        || kind == KEEP && kept == 0
        || kind == MARK && (old.is_empty() || old.len() != row::head_len(old))
    {
        return None;
    }
    let old = (kind != INSERT).then_some(old);
    Some(Change { table, index, key, old, marked: marks, sum, shared, kept, chains })
}

/// A Change as builds before format version 9 wrote it; they had no Mark.
#[cfg(test)]
pub(crate) fn encode_former(record: &Record<'_>) -> Vec<u8> {
    let now = encode(record);
    let Body::Change(c) = record.body else { return now };
    let kind = match now[2] {
        INSERT => INSERT_BEFORE_9,
        UPDATE => UPDATE_BEFORE_9,
        DELETE => DELETE_BEFORE_9,
        KEEP => KEEP_BEFORE_9,
        _ => return now,
    };
    let mut out = vec![0, 0, kind];
    out.extend_from_slice(&record.txn.to_le_bytes()[..6]);
    out.extend_from_slice(&record.before.0.to_le_bytes());
    out.extend_from_slice(&c.table.to_le_bytes());
    out.extend_from_slice(&c.index.to_le_bytes());
    out.extend_from_slice(&(c.key.len() as u16).to_le_bytes());
    out.extend_from_slice(c.key);
    if c.kept != 0 {
        out.extend_from_slice(&c.kept.to_le_bytes());
    }
    out.extend_from_slice(c.old.unwrap_or(&[]));
    let len = (out.len() as u16).to_le_bytes();
    out[..2].copy_from_slice(&len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: Change<'static> = Change {
        table: 7,
        index: 0,
        key: b"key",
        old: None,
        marked: false,
        sum: None,
        shared: None,
        kept: 0,
        chains: &[],
    };

    #[test]
    fn changes_of_before_format_9_are_read() {
        let head = row::value(Head { flags: 0, txn: 5, roll: RollPtr::NONE }, b"");
        let insert = Change { index: 300, ..CHANGE };
        let changes = [
            insert,
            Change { old: Some(b"old"), ..insert },
            Change { old: Some(b"old"), kept: 5, ..insert },
            Change { old: Some(&head), marked: true, ..insert },
            Change { old: Some(&head), marked: true, chains: b"list", ..insert },
            Change { old: Some(&head), kept: 3, chains: b"list", ..insert },
            Change { old: Some(&head), marked: true, sum: Some(9), ..insert },
        ];
        for change in changes {
            let record = Record { txn: 1 << 40, before: RollPtr::new(3, 80), body: Body::Change(change) };
            let (former, now) = (encode_former(&record), encode(&record));
            assert_eq!(decode(&former), Some((record, former.len())));
            assert_eq!(decode(&now), Some((record, now.len())));
            assert!(now.len() < former.len() || change.sum.is_some() || !change.chains.is_empty());
        }
        let usual = Record { txn: 900_000, before: RollPtr::new(900, 80), body: Body::Change(insert) };
        assert_eq!((encode_former(&usual).len(), encode(&usual).len()), (28, 17));
    }

    #[test]
    fn an_update_names_the_off_page_parts_it_kept() {
        let old = row::value(Head { flags: row::APART, txn: 5, roll: RollPtr::NONE }, b"parts");
        let change = Change { old: Some(&old), ..CHANGE };
        for kept in [0, 5, u64::MAX] {
            let record =
                Record { txn: 6, before: RollPtr::new(3, 80), body: Body::Change(Change { kept, ..change }) };
            let bytes = encode(&record);
            assert_eq!(decode(&bytes), Some((record, bytes.len())));
        }
    }

    #[test]
    fn undo_of_an_update_restores_only_the_value_it_replaced() {
        let head = |flags, txn| Head { flags, txn, roll: RollPtr::new(3, 100) };
        let (old_row, new_row) =
            (&b"a row of some length, 1, its end"[..], &b"a row of some length, 22, its end"[..]);
        let shared = Shared::of(old_row, new_row).unwrap();
        let made = row::value(head(0, 6), new_row);
        for old_head in [&head(0, 5).encode()[..], &row::old_value(b"")[..], &head(row::DELETED, 5).encode()]
        {
            let old = [old_head, old_row].concat();
            let whole = Change { old: Some(&old), ..CHANGE };
            let between = [old_head, shared.between(old_row)].concat();
            let delta =
                Change { old: Some(&between), sum: Some(sum(new_row)), shared: Some(shared), ..whole };
            let record = |change| Record { txn: 6, before: RollPtr::new(3, 80), body: Body::Change(change) };
            let (long, short) = (encode(&record(whole)), encode(&record(delta)));
            assert_eq!(decode(&short), Some((record(delta), short.len())));
            assert_eq!((delta.before(&made).as_deref(), long.len() - short.len()), (Some(&old[..]), 25));
            // What the transaction had put there before, at the same place of its undo; and its mark.
            let other = row::value(head(0, 6), b"a row of some length, 23, its end");
            let mark = row::value(head(row::DELETED, 6), new_row);
            assert!([other, mark].iter().all(|undone| delta.before(undone).is_none()));
            assert!((7..short.len()).all(|len| {
                let mut cut = short[..len].to_vec();
                cut[..2].copy_from_slice(&(len as u16).to_le_bytes());
                decode(&cut).is_none_or(|(record, _)| encode(&record) == cut)
            }));
        }
    }

    #[test]
    fn undo_of_a_delete_mark_restores_only_the_value_it_marked() {
        let head = |flags, txn| Head { flags, txn, roll: RollPtr::new(3, 100) };
        let (old, marked) = (row::value(head(0, 5), b"row"), row::value(head(row::DELETED, 6), b"row"));
        let whole = Change { old: Some(&old), marked: true, ..CHANGE };
        let mark = Change { old: Some(&old[..row::HEAD]), sum: Some(sum(b"row")), ..whole };
        for change in [whole, mark, Change { sum: None, ..mark }] {
            let bytes = encode(&Record { txn: 6, before: RollPtr::new(3, 80), body: Body::Change(change) });
            let Some((Record { body: Body::Change(change), .. }, _)) = decode(&bytes) else { panic!() };
            assert_eq!(change.before(&marked).as_deref(), Some(&old[..]));
        }
        // What the transaction had put there before, at the same place of its undo.
        for flags in [0, row::DELETED] {
            let undone = row::value(head(flags, 6), b"another row");
            assert_eq!(mark.before(&undone), None);
        }
        assert_eq!(Change { old: None, marked: false, ..mark }.before(&marked), None);
    }
}
