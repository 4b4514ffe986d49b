//! Single blocks, records and values.

use super::{Sample, sample, sized};
use crate::row::RollPtr;
use crate::row::off_page::{self, Span};
use crate::row::{self, Head};
use crate::superblock::{COPY, Superblock, VERSION};
use crate::table::catalog;
use crate::tree::overflow::{Large, Placed};
use crate::undo::chains;
use crate::undo::record::{self as undo, Body, Change, Record, TxnStatus};
use crate::undo::shared::Shared;
use std::sync::LazyLock;
use terrace_log::block::{self, BLOCK, BlockHeader, PAYLOAD};
use terrace_log::record::{self, Decoded, RecordHeader};
use terrace_tier::objects::fence::Taker;
use terrace_tier::page::{PageId, SpaceId};

const ID: PageId = PageId::new(SpaceId(16), 5);

/// Puts the CRC-32C of what follows into the first four bytes.
pub(super) fn reseal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

// --- the log ---------------------------------------------------------------------------------

/// The records of a mini-transaction at `first`, for a partition whose record before ended at `after`; and where they end.
pub(super) fn records(mut after: u64, first: u64, lens: &[usize]) -> (Vec<u8>, u64) {
    let mut out = Vec::new();
    let length: u64 = lens.iter().map(|len| record::share(*len)).sum();
    let mut own = first;
    for len in lens {
        let header = RecordHeader { own, first, length: length as u32, ops_len: *len as u32, id: ID };
        record::encode(&header, &vec![*len as u8; *len], after, &mut out);
        own = header.own_end();
        after = own;
    }
    (out, own)
}

pub fn block_samples() -> Vec<Sample> {
    let (records, _) = records(90, 100, &[20, 9000, 3]);
    let mut out = vec![0; block::blocks_for(records.len() as u64) as usize * BLOCK];
    let header = BlockHeader {
        instance: 77,
        epoch: 3,
        partition: 1,
        sequence: 9,
        attested: 55,
        first: None,
        after: 90,
    };
    block::encode(header, &records, 0, &mut out);
    out.chunks(BLOCK).map(|block| sample(block.to_vec(), (BLOCK, 80))).collect()
}

pub fn block(bytes: &[u8]) {
    let mut whole = sized(bytes, BLOCK);
    if bytes.len() != BLOCK {
        assert!(block::decode(bytes).is_none(), "a block of another length");
    }
    reseal(&mut whole);
    if let Some((header, payload)) = block::decode(&whole) {
        assert!(payload.len() <= PAYLOAD && header.first.is_none_or(|f| usize::from(f) < payload.len()));
        record(payload);
    }
    whole[bytes.first().map_or(4, |at| 4 + usize::from(*at))] ^= 1;
    assert!(block::decode(&whole).is_none(), "a block with a wrong checksum");
}

pub fn record_samples() -> Vec<Sample> {
    vec![sample(records(AFTER, 101, &[20, 300, 0, 3]).0, (6, 6))]
}

/// Where the record before ended.
const AFTER: u64 = 100;

/// Reads records one after the other, as a scan does.
pub fn record(mut bytes: &[u8]) {
    let mut after = AFTER;
    while let Decoded::Record(header, ops, head) = record::decode(bytes, after) {
        assert!(header.first > 0 && header.own >= header.first && header.own_end() <= header.end());
        let size = head + ops.len();
        let mut again = Vec::new();
        record::encode(&header, ops, after, &mut again);
        assert!(again == bytes[..size], "a record was accepted that nobody writes");
        assert_eq!(record::pass(bytes, 0, after), (size, header.own_end()));
        (bytes, after) = (&bytes[size..], header.own_end());
    }
}

// --- undo ------------------------------------------------------------------------------------

/// A row that is a large value of three pages.
static LARGE_ROW: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let head = Head { flags: row::LARGE, txn: 5, roll: RollPtr::NONE };
    row::value(head, &Large { page: 9, len: 40_000, serial: 3 }.encode())
});

pub(super) fn undo_bodies() -> Vec<Body<'static>> {
    let change = Change {
        table: 7,
        index: 1,
        key: b"some key",
        old: Some(b"an old value, longer"),
        marked: false,
        sum: None,
        shared: None,
        kept: 0,
        chains: &[],
    };
    vec![
        Body::Begin { state: TxnStatus::Active, csn: 0 },
        Body::Prepare { xid: b"xid" },
        Body::Change(change),
        Body::Change(Change { old: None, ..change }),
        Body::Change(Change { kept: 5, ..change }),
        Body::Change(Change { marked: true, ..change }),
        Body::Change(Change { marked: true, chains: b"list", ..change }),
        Body::Change(Change { kept: 5, chains: b"list", ..change }),
        // Space 16, one run, from the first page on, of three pages.
        Body::Change(Change { index: 0, old: Some(&LARGE_ROW), chains: &[16, 1, 0, 2], ..change }),
        Body::Change(Change { marked: true, old: Some(b"only the head.."), ..change }),
        Body::Change(Change { marked: true, old: Some(b"only the head.."), sum: Some(77), ..change }),
        Body::Change(Change { sum: Some(77), shared: Some(Shared { front: 300, back: 9 }), ..change }),
        Body::Large { table: 7, large: Large { page: 9, len: 40_000, serial: 3 } },
        Body::Load { table: 7, index: 0, published: true },
        Body::Extent {
            table: 7,
            index: 0,
            load: RollPtr::new(2, 80),
            first: 64,
            count: 32,
            space: SpaceId(16),
        },
        Body::Filled { table: 7, index: 0, load: RollPtr::new(2, 80) },
        Body::Begin { state: TxnStatus::Committed, csn: 99 },
    ]
}

pub fn undo_record_samples() -> Vec<Sample> {
    let of = |body| undo::encode(&Record { txn: 3, before: RollPtr::new(2, 80), body });
    undo_bodies().into_iter().map(|body| sample(of(body), (1, 1))).collect()
}

pub fn undo_record(mut bytes: &[u8]) {
    while let Some((record, len)) = undo::decode(bytes) {
        let again = undo::encode(&record);
        let is_former = matches!(bytes[2], 3 | 4 | 5 | 10 | 11);
        let same = again == bytes[..len] || is_former && undo::decode(&again) == Some((record, again.len()));
        assert!(same, "an undo record was accepted that nobody writes");
        if let Body::Change(change) = record.body
            && let Some(larges) = change.larges_dropped()
            && let Some(pages) = chains::decode(SpaceId(16), &larges, change.chains)
        {
            let fits = |(large, pages): (&Large, &Vec<u32>)| pages.first().is_none_or(|p| *p == large.page);
            assert!(pages.len() == larges.len() && larges.iter().zip(&pages).all(fits));
        }
        bytes = &bytes[len..];
    }
}

// --- superblock, catalog, rows ---------------------------------------------------------------

pub(super) fn a_superblock() -> Superblock {
    Superblock {
        version: VERSION,
        instance: 77,
        lineage: 2,
        generation: 1,
        epoch: 3,
        clean: true,
        has_store: true,
        archiving: 1,
        checkpoint: 100,
        attested: 100,
        transactions: 6,
        sequences: 7,
        spaces: 18,
        slots: 9,
        log_blocks: 16,
        starts: vec![0, 5],
        history: vec![(2, 10), (3, 20)],
        takers: vec![Taker { epoch: 2, nonce: 1 << 60, mark: 0 }, Taker { epoch: 3, nonce: 9, mark: 5 }],
        map_newest: 90,
        map_digest: std::num::NonZeroU32::new(5),
    }
}

pub fn superblock_samples() -> Vec<Sample> {
    vec![sample(a_superblock().encode().to_vec(), (1 << 20, 700))]
}

pub fn superblock(bytes: &[u8]) {
    let mut copy = sized(bytes, COPY);
    reseal(&mut copy);
    let Ok(Some(mut found)) = Superblock::decode(&copy) else { return };
    assert!(found.encode()[..] == copy[..], "a superblock was accepted that nobody writes");
    // A start's arithmetic.
    let _ = (0..4).map(|epoch| terrace_log::recovery::cut_of(&found.history, epoch)).max();
    let _ = found.begin_epoch(found.checkpoint);
    found.prune_history(u64::MAX);
}

pub fn catalog_samples() -> Vec<Sample> {
    catalog::entry::samples().into_iter().map(|bytes| sample(bytes, (1, 1))).collect()
}

pub fn catalog(bytes: &[u8]) {
    if let Some((name, known)) = catalog::entry::decode(9, bytes) {
        assert!(
            catalog::entry::encode(&name, &known) == bytes,
            "a definition was accepted that nobody writes"
        );
    }
}

pub fn row_samples() -> Vec<Sample> {
    let head = Head { flags: row::LARGE, txn: 77, roll: RollPtr::new(4, 99).fresh() };
    let large = Large { page: 3, len: 50_000, serial: 6 };
    let entry = row::value(Head { flags: 0, ..head }, &row::entry_rest(3, b"extra"));
    let span = |at| Span { at, len: 300, name: 5 };
    let values = [vec![], vec![3, 4, 9, 10]].map(|pages| {
        let placed = Placed { large, pages };
        let parts =
            off_page::encode(&[7; 1000], &[span(20), span(400)], &[placed.clone(), placed.clone()], 2000);
        let parts = row::value(Head { flags: row::APART, ..head }, &parts);
        [row::value(head, &off_page::encode_whole(&placed)), parts]
    });
    std::iter::once(entry).chain(values.into_iter().flatten()).map(|bytes| sample(bytes, (1, 1))).collect()
}

pub fn row(bytes: &[u8]) {
    let Some((head, rest)) = Head::decode(bytes) else { return };
    let again = if row::head_len(bytes) < row::HEAD { row::old_value(rest) } else { row::value(head, rest) };
    assert!(again[1..] == bytes[1..] && head.txn < 1 << 48);
    let _ = (head.roll.page(), head.roll.at(), off_page::kept(rest, rest));
    let (larges, placed) = (off_page::larges(head, rest), off_page::placed(head, rest).unwrap_or_default());
    for (at, one) in placed.iter().enumerate() {
        assert!(larges.as_ref().is_some_and(|larges| larges[at] == one.large));
        assert!(one.pages.is_empty() || one.pages.len() == one.large.pages() as usize);
    }
    if let Some((parts, body)) = off_page::decode(rest) {
        let mut from = 0;
        for part in parts {
            let _ = &body[from..part.at as usize];
            from = part.at as usize;
        }
    }
    if let Some((at, extra)) = row::entry_parts(rest) {
        assert!(row::entry_rest(at, extra)[..] == *rest);
    }
}
