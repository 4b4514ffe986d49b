//! Values too large for a leaf: a chain of overflow pages.
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 48 | 4 | next page of the chain, 0 at its end |
//! | 52 | 4 | the page's place in the chain, from 0 |
//! | 56 | 8 | the value's serial number, never used again in its space |
//! | 64 | | the value's bytes; all pages but the last are full |
//!
//! The entry in the leaf keeps a [`Large`]: first page, length, serial. Every page of the chain is
//! checked against it, so a reader that comes too late, or a second attempt to free, never takes another
//! value's page for its own.
//!
//! A value is written before the row that names it, from its end to its start, and freed from its end to
//! its start, a few pages a mini-transaction. Pages that are freed stay as they are until they are used again, and may be gone
//! before that. So at any moment what hangs together from the first page on
//! can be walked, and a free cut short by a crash is simply done again: what is free already is left alone. A *write* cut short, or one
//! whose row was never written, is the transaction's to free: each mini-transaction notes in its undo how far
//! the value has come ([`write_noted`], `txn::large`).
//!
//! A value may bypass the log ([`ValueLogging::Past`], CloudJump III §3.3): then all of a page is logged except the value's bytes,
//! with the flag [`HOLLOW`]; the page itself has the bytes, and not the flag. A commit of the value writes the pages through
//! first (`terrace_tier::volume::flush`). So a hollow page is met only where a crash came before the commit; it is freed as others are.
//!
//! To free a value its pages must be known, and each is named by the one before it only: a value that only the store has would be
//! read for no more than that. So the writer of a value lists its pages, and its row has the list beside the reference ([`runs`]); a transaction that drops it notes it in undo
//! (`undo::chains`), and purge frees unread what is not in memory ([`free_known`]). Only once: a page that may have been freed before is read first.
//!
//! Latches: the header, then each page, then the undo page of the note. Never together with a tree's
//! pages.

pub mod runs;

use super::{Result, TreeError};
use crate::tree::space::{ALLOCATION_FRAMES, ALLOCATION_LOG, Space};
use terrace_log::{Urgency, record_bound};
use terrace_tier::address::Home;
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::mtr::Mtr;
use terrace_tier::memory::pages::Freed;
use terrace_tier::memory::pages::{Pin, ReadGuard};
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{self, PAGE_HEADER, PAGE_SIZE, PageId, PageKind, PageRef};

mod at {
    pub const NEXT: usize = 48;
    pub const INDEX: usize = 52;
    pub const SERIAL: usize = 56;
}

/// Bytes of a value in one page.
pub const PAYLOAD: usize = PAGE_SIZE - PAGE_HEADER;
/// Flag of a page that redo has made, which lacks its bytes of the value.
pub const HOLLOW: u16 = 1;
/// Pages that one mini-transaction writes.
const BATCH: usize = 4;
/// Pages that one frees.
const BATCH_FREED: usize = 16;
/// Pages that it writes of a value that passes by the log.
const BATCH_PAST: usize = 8;
/// Pages on each side of one of a chain that are fetched with it.
const AROUND: u32 = 32;
const PAGE_LOG: u64 = record_bound(PAGE_SIZE + 64) + ALLOCATION_LOG;
const PAGE_LOG_PAST: u64 = record_bound(64) + ALLOCATION_LOG;

/// A large value, as its entry names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Large {
    pub page: u32,
    pub len: u32,
    pub serial: u64,
}

impl Large {
    pub const ENCODED: usize = 16;

    pub fn encode(self) -> [u8; Large::ENCODED] {
        let mut bytes = [0; Large::ENCODED];
        bytes[..4].copy_from_slice(&self.page.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..].copy_from_slice(&self.serial.to_le_bytes());
        bytes
    }

    /// None if the bytes are too few.
    pub fn decode(bytes: &[u8]) -> Option<Large> {
        let (page, rest) = bytes.split_first_chunk::<4>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let serial = rest.first_chunk::<8>()?;
        Some(Large {
            page: u32::from_le_bytes(*page),
            len: u32::from_le_bytes(*len),
            serial: u64::from_le_bytes(*serial),
        })
    }

    pub(crate) fn pages(self) -> u32 {
        self.len.div_ceil(PAYLOAD as u32).max(1)
    }

    /// The number in its value that the page says it has.
    pub(super) fn index(page: PageRef<'_>) -> u32 {
        page.u32(at::INDEX)
    }

    /// Whether the page is number `index` of this value.
    pub(super) fn owns(self, page: PageRef<'_>, index: u32) -> bool {
        page.kind() == PageKind::Overflow as u8
            && page.u64(at::SERIAL) == self.serial
            && page.u32(at::INDEX) == index
    }
}

/// Whether the page lacks its part of the value.
pub(super) fn is_hollow(page: PageRef<'_>) -> bool {
    page.flags() & HOLLOW != 0
}

/// The page after this one in its value's chain, 0 at the end.
pub(super) fn next(page: PageRef<'_>) -> u32 {
    page.u32(at::NEXT)
}

/// A large value, and its pages in its order; none if they are not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    pub large: Large,
    pub pages: Vec<u32>,
}

/// How a value's bytes become durable.
pub enum ValueLogging<'a> {
    Logged,
    /// Past the log. The value's pages are added: their owner has them written through before anything durable relies
    /// on the value.
    Past(&'a mut Vec<PageId>),
}

impl ValueLogging<'_> {
    fn batch(&self) -> (usize, u64) {
        match self {
            ValueLogging::Logged => (BATCH, PAGE_LOG),
            ValueLogging::Past(_) => (BATCH_PAST, PAGE_LOG_PAST),
        }
    }
}

/// For whom a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrittenFor {
    Statement,
    /// In the place of another value, or of none, in an existing row: it was used before, and so its pages leave memory as such.
    Update,
    /// Gives way to small writers where slots run low.
    Build,
}

/// Writes a value of a build into pages of its own. Durable with, or before, any later mini-transaction. A crash on the
/// way, or before something names it, leaks its pages.
pub fn write(space: &Space, value: &[u8], mut way: ValueLogging<'_>, urgency: Urgency) -> Result<Placed> {
    write_noted(space, value, &mut way, (WrittenFor::Build, urgency), &mut |_, _| ())
}

/// What notes, in the mini-transaction that writes a few of its pages, how far a value has come: at most
/// [`NOTE_LOG`] bytes of log.
pub type Note<'a> = dyn FnMut(&mut Mtr<'_>, Large) + 'a;
pub const NOTE_LOG: u64 = record_bound(128);

/// The same, and what is written can be found by what `note` was told last: see [`free_written`].
pub fn write_noted(
    space: &Space,
    value: &[u8],
    way: &mut ValueLogging<'_>,
    (by, urgency): (WrittenFor, Urgency),
    note: &mut Note<'_>,
) -> Result<Placed> {
    let Ok(len) = u32::try_from(value.len()) else {
        return Err(TreeError::EntryTooLarge { len: value.len(), max: u32::MAX as usize });
    };
    let serial = space.take_serial(urgency)?;
    let mut large = Large { page: 0, len, serial };
    let mut end = large.pages();
    let mut placed = vec![0; end as usize];
    while end > 0 {
        let start = end.saturating_sub(way.batch().0 as u32);
        let pages = if by == WrittenFor::Build { end - start } else { 0 };
        let ready = (0..pages).try_for_each(|_| Ok(space.pages().give_way(urgency)?));
        let batch = &mut placed[start as usize..end as usize];
        match ready.and_then(|()| write_batch(space, value, (large, batch), start, way, (by, urgency), note))
        {
            Ok(()) => large.page = batch[0],
            Err(error) => {
                // Best effort: what was written is given back.
                let written = Large { page: large.page, len, serial };
                let _ = free_from(space, written, end, Urgency::Reserve);
                return Err(error);
            }
        }
        end = start;
    }
    Ok(Placed { large, pages: placed })
}

/// Writes pages of a value, from its page `start` on, as many as `placed` has room for; the next one is `large.page`.
fn write_batch(
    space: &Space,
    value: &[u8],
    (large, placed): (Large, &mut [u32]),
    start: u32,
    way: &mut ValueLogging<'_>,
    (by, urgency): (WrittenFor, Urgency),
    note: &mut Note<'_>,
) -> Result<()> {
    let (batch, page_log) = way.batch();
    let count = placed.len();
    let ready = space.ready_together(count, urgency)?;
    let mut mtr =
        space.pages().begin(page_log * batch as u64 + NOTE_LOG, count + ALLOCATION_FRAMES, urgency)?;
    let header = ready.latch_header(&mut mtr);
    space.can_allocate(&mtr, header, count as u32)?;
    let mut pages = Vec::with_capacity(batch);
    for place in placed.iter_mut() {
        let no = space.allocate(&mut mtr, header, &ready, PageKind::Overflow, 0)?;
        *place = mtr.id(no).page;
        pages.push(no);
    }
    let mut next = large.page;
    for (at, no) in pages.into_iter().enumerate().rev() {
        let index = start + at as u32;
        let from = index as usize * PAYLOAD;
        let id = mtr.id(no);
        if by == WrittenFor::Update {
            mtr.note_reused(no);
        }
        let bytes = &value[from..value.len().min(from + PAYLOAD)];
        let mut page = mtr.page_mut(no);
        let mut owned = [0; PAGE_HEADER - at::NEXT];
        owned[..4].copy_from_slice(&next.to_le_bytes());
        owned[4..8].copy_from_slice(&index.to_le_bytes());
        owned[8..].copy_from_slice(&large.serial.to_le_bytes());
        page.write(at::NEXT, &owned);
        match way {
            ValueLogging::Logged => page.write(PAGE_HEADER, bytes),
            ValueLogging::Past(pages) => {
                page.write_u16(page::at::FLAGS, HOLLOW);
                page.write_past_log(page::at::FLAGS, &0u16.to_le_bytes());
                page.write_past_log(PAGE_HEADER, bytes);
                pages.push(id);
            }
        }
        next = id.page;
    }
    note(&mut mtr, Large { page: next, ..large });
    mtr.commit();
    Ok(())
}

/// A page of a chain, of which `left` pages are still to be read with this one. If it has to be fetched, so has what is next most
/// likely, and pages that were allocated together lie together: its neighbours come with it, as many to each side as may be the
/// value's, and as far as they are in the same tier: a value that is near waits for no other pages in the store. So a value that is far
/// costs a few requests, not one for each page. None: it was freed, and no tier has it any more.
fn chained(space: &Space, page: u32, left: u32, access: Access) -> Result<Option<ReadGuard<'_>>> {
    let (pages, id) = (space.pages(), space.page_id(page));
    if let Some(guard) = pages.try_read(id, access) {
        return Ok(Some(guard));
    }
    if left > 1 {
        let around = (left - 1).min(AROUND);
        pages.bring_with(id, around, around);
    }
    match pages.read(id, access) {
        Ok(guard) => Ok(Some(guard)),
        Err(ReadError::Absent(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Appends the value's bytes to `out`.
pub fn read(space: &Space, large: Large, access: Access, out: &mut Vec<u8>) -> Result<()> {
    read_start(space, large, large.len as usize, access, out)
}

/// The same of its first `bytes` bytes, from as many pages as have them; of none, if it is 0.
pub fn read_start(
    space: &Space,
    large: Large,
    bytes: usize,
    access: Access,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (mut page, mut left) = (large.page, bytes.min(large.len as usize));
    // One of no bytes has a page, too.
    let whole = bytes >= large.len as usize;
    let pages = if whole { large.pages() } else { left.div_ceil(PAYLOAD) as u32 };
    for index in 0..pages {
        let guard = chained(space, page, pages - index, access)?;
        let Some(guard) = guard.filter(|guard| large.owns(guard.page(), index)) else {
            return Err(TreeError::Gone { page: space.page_id(page) });
        };
        if is_hollow(guard.page()) {
            return Err(TreeError::Hollow { page: space.page_id(page) });
        }
        let here = left.min(PAYLOAD);
        out.extend_from_slice(guard.page().bytes(PAGE_HEADER, here));
        left -= here;
        page = guard.page().u32(at::NEXT);
    }
    Ok(())
}

/// Appends the value's bytes to `out` if all its pages are in memory and have them. Does no I/O. False: `out` may have some of them.
pub fn try_read(space: &Space, large: Large, access: Access, out: &mut Vec<u8>) -> bool {
    let (mut page, mut left) = (large.page, large.len as usize);
    for index in 0..large.pages() {
        let Some(guard) = space.pages().try_read(space.page_id(page), access) else { return false };
        if !large.owns(guard.page(), index) || is_hollow(guard.page()) {
            return false;
        }
        let here = left.min(PAYLOAD);
        out.extend_from_slice(guard.page().bytes(PAGE_HEADER, here));
        left -= here;
        page = guard.page().u32(at::NEXT);
    }
    true
}

/// Whether the value is these bytes. One that is gone is not, nor one that a crash has left without them: its row is going back.
pub fn equals(space: &Space, large: Large, bytes: &[u8], access: Access) -> Result<bool> {
    let (mut page, pages) = (large.page, large.pages());
    if large.len as usize != bytes.len() {
        return Ok(false);
    }
    for index in 0..pages {
        if !is_there(space, page) {
            return Ok(false);
        }
        let guard = chained(space, page, pages - index, access)?;
        let Some(guard) = guard.filter(|guard| large.owns(guard.page(), index) && !is_hollow(guard.page()))
        else {
            return Ok(false);
        };
        let from = index as usize * PAYLOAD;
        let here = &bytes[from..bytes.len().min(from + PAYLOAD)];
        if guard.page().bytes(PAGE_HEADER, here.len()) != here {
            return Ok(false);
        }
        page = guard.page().u32(at::NEXT);
    }
    Ok(true)
}

/// Gives the value's pages back. Freeing again what is free, wholly or in part, is harmless; so is freeing what
/// was in the space that this one follows (a truncated table's), whose serial numbers are others.
pub fn free(space: &Space, large: Large, urgency: Urgency) -> Result<()> {
    free_from(space, large, 0, urgency)
}

/// The same of a value that has these pages, all of them, and was not freed since it was known: what is not in memory is not read.
pub fn free_known(space: &Space, large: Large, pages: &[u32], urgency: Urgency) -> Result<()> {
    let _shield = terrace_io::cancel::shield();
    free_chain(space, large, pages.iter().copied().zip(0..).collect(), true, urgency)
}

/// Whether the space has ever had that page.
fn is_there(space: &Space, page: u32) -> bool {
    page < space.counts().pages
}

/// Frees what is written of a value whose first page so far is `large.page`: all of it, or its end.
pub fn free_written(space: &Space, large: Large, urgency: Urgency) -> Result<()> {
    if !is_there(space, large.page) {
        return Ok(());
    }
    let first = {
        let Some(guard) = chained(space, large.page, 1, Access::Scan)? else { return Ok(()) };
        let index = Large::index(guard.page());
        if !large.owns(guard.page(), index) {
            return Ok(());
        }
        index
    };
    free_from(space, large, first, urgency)
}

fn is_to_free(large: Large, page: PageRef<'_>, index: u32) -> bool {
    large.owns(page, index) || crate::planted::OTHERS_PAGE_FREED.on()
}

/// The pages of the value from page `first` on, as far as they hang together, each with its number in the value.
fn chain_to_free(space: &Space, large: Large, first: u32) -> Result<Vec<(u32, u32)>> {
    let mut chain = Vec::new();
    let mut page = large.page;
    for index in first..large.pages() {
        if page == 0 || !is_there(space, page) {
            break;
        }
        let guard = chained(space, page, large.pages() - index, Access::Scan)?;
        let Some(guard) = guard.filter(|guard| is_to_free(large, guard.page(), index)) else { break };
        chain.push((page, index));
        page = guard.page().u32(at::NEXT);
    }
    Ok(chain)
}

/// A page that is about to be freed.
enum ToFree {
    /// With its number in the value.
    Here(Pin, u32),
    /// It is the value's, and not in memory.
    Below(PageId, Home),
}

/// Frees what hangs together from page `large.page`, number `first` of the value.
fn free_from(space: &Space, large: Large, first: u32, urgency: Urgency) -> Result<()> {
    // What a cancelled change wrote must go, too.
    let _shield = terrace_io::cancel::shield();
    let chain = chain_to_free(space, large, first)?;
    free_chain(space, large, chain, false, urgency)
}

/// Frees pages of the value, from the last to the first, a few a mini-transaction. `known`: they are the value's, whatever they look like.
fn free_chain(
    space: &Space,
    large: Large,
    mut chain: Vec<(u32, u32)>,
    known: bool,
    urgency: Urgency,
) -> Result<()> {
    while !chain.is_empty() {
        let batch = chain.split_off(chain.len().saturating_sub(BATCH_FREED));
        let mut pages: Vec<ToFree> = Vec::with_capacity(BATCH_FREED);
        for (page, index) in &batch {
            let id = space.page_id(*page);
            if let Some(home) = known.then(|| space.pages().home_below(id)).flatten() {
                pages.push(ToFree::Below(id, home));
                continue;
            }
            match space.pages().load(id, Access::Scan) {
                Ok(pin) => pages.push(ToFree::Here(pin, *index)),
                Err(ReadError::Absent(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let homes = space.ready_to_free(batch.iter().map(|(page, _)| *page))?;
        let mut mtr = space.pages().begin(BATCH_FREED as u64 * ALLOCATION_LOG, 0, urgency)?;
        let header = homes.latch_header(&mut mtr);
        let mut freed = Vec::with_capacity(BATCH_FREED);
        for page in pages {
            let (pin, index) = match page {
                ToFree::Here(pin, index) => (pin, index),
                // No thread changes it before it is another's, which takes the header.
                ToFree::Below(id, home) => {
                    space.free_numbers(&mut mtr, header, id.page..id.page + 1, &homes);
                    freed.push(Freed::Below { id, home });
                    continue;
                }
            };
            let page = pin.id().page;
            // No other thread frees it now, or makes it another's: that takes the header.
            let no = mtr.write_pinned(&pin);
            let (is_to_free, lsn) = (is_to_free(large, mtr.page(no), index), mtr.page(no).lsn());
            mtr.unlatch_unchanged(no);
            if is_to_free {
                space.free_numbers(&mut mtr, header, page..page + 1, &homes);
                freed.push(Freed::Here { pin, lsn });
            }
        }
        let range = mtr.commit();
        space.pages().freed(&freed, range);
    }
    Ok(())
}
