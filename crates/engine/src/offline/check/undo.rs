//! Undo: its space, each stream from its head to its end, and what the records say about transactions.
//!
//! The trees' check asks here which transactions are unfinished, what a value will be when they are rolled back,
//! and which large values undo still names.

use super::{Report, Tables};
use crate::offline::instance::OfflineInstance;
use crate::row::RollPtr;
use crate::row::off_page;
use crate::row::{Head, TxnId};
use crate::tree::overflow::Large;
use crate::tree::space::HEADER_PAGE;
use crate::tree::space::check::{NoPage, Source, SpaceCheck};
use crate::undo::record::{self, Body, Change, Record, TxnStatus};
use crate::undo::stream::{self, Mark};
use hashbrown::{HashMap, HashSet};
use std::cell::RefCell;
use std::ops::Range;
use terrace_io::AlignedBuf;
use terrace_tier::page::{PAGE_SIZE, PageId, PageKind, PageRef, SpaceId};

#[derive(Default)]
pub struct Undo {
    /// Neither committed nor prepared: the next start rolls them back.
    pub unfinished: HashSet<TxnId>,
    pub prepared: u64,
    /// All transactions that have records.
    pub(super) known: HashSet<TxnId>,
    /// Large values that old versions have, by table id.
    pub(super) named: HashMap<u32, Vec<Large>>,
    /// Page numbers that builds in bulk have taken whose transactions have not ended, with their Load records; and those of
    /// these records that say their tree is published.
    building: Vec<(SpaceId, RollPtr, Range<u32>)>,
    published: HashSet<RollPtr>,
    /// All of it could be read.
    pub(super) whole: bool,
    records: u64,
    /// The page read last, for one version after another.
    last: RefCell<Option<(PageId, AlignedBuf)>>,
}

/// What a value is when the unfinished are rolled back.
pub(in crate::offline) enum Settled {
    /// As it is in the tree.
    AsIs,
    Nothing,
    Older(Vec<u8>),
    /// The undo record that would tell is not there.
    Unknown,
}

/// The transaction whose records are being read.
struct Open {
    txn: TxnId,
    state: TxnStatus,
    last: RollPtr,
}

/// Reads undo, and says nothing about its faults: for `terrace status`.
pub fn read(look: &OfflineInstance) -> Undo {
    check(look, &super::read_tables(look), &mut Report::default())
}

pub(super) fn check(look: &OfflineInstance, tables: &Tables, report: &mut Report) -> Undo {
    report.begin_part();
    let mut undo = Undo { whole: true, ..Undo::default() };
    if !look.knows(PageId::new(SpaceId::UNDO, HEADER_PAGE)) {
        // A crash came before the very first start was done.
        if !tables.listed.is_empty() {
            undo.whole = false;
            report.faults.add("there are tables, but no undo".into());
        }
        return undo;
    }
    let mut pages = SpaceCheck::begin(look, SpaceId::UNDO);
    // A crash may have come between the header and the directory.
    let begun = pages.pages.is_none_or(|pages| pages > stream::DIRECTORY_PAGE);
    let heads = match begun.then(|| pages.copy(stream::DIRECTORY_PAGE)).flatten() {
        None => Vec::new(),
        Some(copy) => {
            pages.meet(stream::DIRECTORY_PAGE);
            if PageRef::new(&copy).kind() != PageKind::System as u8 {
                pages.fault(stream::DIRECTORY_PAGE, "not the directory of undo streams");
                pages.incomplete = true;
            }
            stream::heads(PageRef::new(&copy))
        }
    };
    for (number, head) in heads {
        undo.stream(&mut pages, number, head);
    }
    pages.the_rest(|page| match page.kind() {
        kind if kind == PageKind::Free as u8 => Some("it was freed, but does not count as free"),
        _ => Some("no undo stream leads to it"),
    });
    let faults = pages.faults.first.iter().map(|fault| format!("undo: {fault}"));
    report.faults.add_of(pages.faults.count, faults);
    let leaked = pages.leaked.first.iter().map(|fault| format!("undo: {fault}"));
    report.leaked.add_of(pages.leaked.count, leaked);
    report.undo_records = undo.records;
    report.unfinished = undo.unfinished.len() as u64;
    undo.whole = !pages.incomplete && pages.faults.count == 0;
    if !undo.whole {
        let what = "undo is damaged: secondary entries are matched with rows only where nothing unfinished can be in the way";
        report.unchecked.add(what.into());
    }
    undo
}

impl Undo {
    /// Walks one stream. What cannot be followed is noted in `pages`.
    fn stream(&mut self, pages: &mut SpaceCheck<'_>, number: usize, head: Mark) {
        let (mut page, mut before, mut from) = (head.page, 0, head.end);
        let mut open: Option<Open> = None;
        while page != 0 {
            if !pages.meet(page) {
                pages.incomplete = true;
                return;
            }
            let Some(copy) = pages.copy(page) else { return };
            let copy = PageRef::new(&copy);
            let Some((start, bytes)) =
                stream::records(copy).filter(|(start, bytes)| (*start..=start + bytes.len()).contains(&from))
            else {
                pages.incomplete = true;
                return pages.fault(
                    page,
                    format!("not a page of undo stream {number}, or its records end before they begin"),
                );
            };
            let (says, next) = stream::neighbours(copy);
            if says != before {
                pages.fault(
                    page,
                    format!("in undo stream {number} it follows page {before}, but says {says}"),
                );
            }
            let mut at = from - start;
            while at < bytes.len() {
                let Some((record, len)) = record::decode(&bytes[at..]).filter(|(_, len)| *len > 0) else {
                    pages.incomplete = true;
                    return pages
                        .fault(page, format!("the undo record at byte {} cannot be read", start + at));
                };
                self.record(pages, number, RollPtr::new(page, (start + at) as u16), &record, &mut open);
                at += len;
            }
            (before, page, from) = (page, next, start);
        }
        match open {
            Some(open) if open.state == TxnStatus::Active => _ = self.unfinished.insert(open.txn),
            Some(open) if open.state == TxnStatus::Prepared => self.prepared += 1,
            _ => {}
        }
    }

    fn record(
        &mut self,
        pages: &mut SpaceCheck<'_>,
        number: usize,
        at: RollPtr,
        record: &Record<'_>,
        open: &mut Option<Open>,
    ) {
        self.records += 1;
        if let Body::Begin { state, .. } = record.body {
            if let Some(before) = open.take().filter(|open| open.state != TxnStatus::Committed) {
                let txn = before.txn;
                pages.fault(
                    at.page(),
                    format!("transaction {txn} did not end, but its undo stream {number} goes on"),
                );
                self.unfinished.insert(txn);
            }
            self.known.insert(record.txn);
            *open = Some(Open { txn: record.txn, state, last: at });
            return;
        }
        match open {
            Some(open) if open.txn == record.txn && open.last == record.before => open.last = at,
            // Purge goes page by page: the stream begins amid a transaction that is purged already.
            None => *open = Some(Open { txn: record.txn, state: TxnStatus::Committed, last: at }),
            _ => {
                let what = format!("the undo record at byte {} does not follow the one before it", at.at());
                return pages.fault(at.page(), what);
            }
        }
        let is_open = open.as_ref().is_some_and(|open| open.state != TxnStatus::Committed);
        if let Body::Large { table, large } = record.body
            && is_open
        {
            self.named.entry(table).or_default().push(large);
        }
        match record.body {
            Body::Load { published: true, .. } if is_open => _ = self.published.insert(at),
            Body::Extent { load, first, count, space, .. } if is_open && count > 0 => {
                self.building.push((space, load, first..first.saturating_add(count)));
            }
            _ => {}
        }
        if let Body::Change(Change { table, index: 0, old: Some(old), .. }) = record.body
            && let Some((head, rest)) = Head::decode(old).filter(|(head, _)| !head.in_leaf())
        {
            self.named.entry(table).or_default().extend(off_page::larges(head, rest).unwrap_or_default());
        }
    }

    /// Pages of the space that the next start gives back: nothing leads to them.
    pub(super) fn building(&self, space: SpaceId) -> impl Iterator<Item = Range<u32>> {
        let mine =
            self.building.iter().filter(move |(of, load, _)| *of == space && !self.published.contains(load));
        mine.map(|(.., pages)| pages.clone())
    }

    /// What the value at `key` is when the unfinished are rolled back.
    pub(in crate::offline) fn settle(
        &self,
        look: &OfflineInstance,
        table: u32,
        index: u16,
        key: &[u8],
        value: &[u8],
    ) -> Settled {
        let mut older: Option<Vec<u8>> = None;
        loop {
            let Some((head, _)) = Head::decode(older.as_deref().unwrap_or(value)) else {
                return Settled::Unknown;
            };
            if !self.unfinished.contains(&head.txn) {
                return older.map_or(Settled::AsIs, Settled::Older);
            }
            if head.roll.is_fresh() || head.roll.is_none() {
                return Settled::Nothing;
            }
            let made = older.as_deref().unwrap_or(value);
            match self.old_value(look, head, (table, index, key), made) {
                Some(old) => older = Some(old),
                None => return Settled::Unknown,
            }
        }
    }

    /// The value before the one of which this is the head, as undo and `made`, the value itself, say.
    fn old_value(
        &self,
        look: &OfflineInstance,
        head: Head,
        name: (u32, u16, &[u8]),
        made: &[u8],
    ) -> Option<Vec<u8>> {
        let id = PageId::new(SpaceId::UNDO, head.roll.page());
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|(have, _)| *have != id) {
            let mut image = AlignedBuf::zeroed(PAGE_SIZE);
            look.copy(id, &mut image).map_err(|_: NoPage| ()).ok()?;
            *last = Some((id, image));
        }
        let (_, image) = last.as_ref()?;
        let (start, bytes) = stream::records(PageRef::new(image))?;
        let (found, _) = record::decode(bytes.get(head.roll.at().checked_sub(start)?..)?)?;
        match found.body {
            Body::Change(change)
                if found.txn == head.txn && (change.table, change.index, change.key) == name =>
            {
                change.before(made)
            }
            _ => None,
        }
    }
}
