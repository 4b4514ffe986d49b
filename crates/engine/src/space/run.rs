//! Runs of page numbers for who builds many pages at a time that nothing leads to yet: taken at once, and what is
//! unused or was in vain given back.
//!
//! A run belongs to who took it until its pages are part of a structure. What a crash leaves is the taker's to know:
//! `note` is called in each mini-transaction that changes how much of the run is taken.

use super::{ALLOCATION_LOG, Space, at};
use crate::btree::TreeError;
use crate::error::Result;
use std::ops::Range;
use terrace_tier::below::ReadError;
use terrace_tier::mtr::Mtr;
use terrace_tier::page::PageKind;
use terrace_tier::pool::Access;
use terrace_tier::redo::{Urgency, record_bound};

/// Pages that one mini-transaction frees.
const BATCH: u32 = 8;

/// Takes so many numbers that no page ever had, and returns the first. `note` adds at most `log` bytes.
pub fn take(
    space: &Space,
    count: u32,
    log: u64,
    urgency: Urgency,
    note: impl FnOnce(&mut Mtr<'_>, u32),
) -> Result<u32> {
    let mut mtr = space.pages().begin(ALLOCATION_LOG + log, 0, urgency).map_err(TreeError::from)?;
    let header = space.latch_header(&mut mtr);
    space.can_allocate(&mtr, header, count)?;
    let first = mtr.page(header).u32(at::NEXT);
    mtr.page_mut(header).write_u32(at::NEXT, first + count);
    note(&mut mtr, first);
    mtr.commit();
    Ok(first)
}

/// Gives back numbers at a run's end that were never used. `note` is told where the run ends then.
pub fn give_back(
    space: &Space,
    unused: Range<u32>,
    log: u64,
    mut note: impl FnMut(&mut Mtr<'_>, u32),
) -> Result<()> {
    {
        let mut mtr =
            space.pages().begin(ALLOCATION_LOG + log, 0, Urgency::Reserve).map_err(TreeError::from)?;
        let header = space.latch_header(&mut mtr);
        if mtr.page(header).u32(at::NEXT) == unused.end {
            mtr.page_mut(header).write_u32(at::NEXT, unused.start);
            note(&mut mtr, unused.start);
            mtr.commit();
            return Ok(());
        }
    }
    free(space, unused, log, note)
}

/// Frees the pages of a run, from its end on, whether they were ever written or not. Nothing leads to them. `note` is
/// told where the run ends then.
pub fn free(
    space: &Space,
    mut run: Range<u32>,
    log: u64,
    mut note: impl FnMut(&mut Mtr<'_>, u32),
) -> Result<()> {
    while !run.is_empty() {
        let from = run.end.saturating_sub(BATCH).max(run.start);
        let mut pins = Vec::with_capacity(BATCH as usize);
        for page in from..run.end {
            let id = space.page_id(page);
            match space.pages().load(id, Access::Internal) {
                Ok(pin) => pins.push((id, Some(pin))),
                Err(ReadError::Absent(_)) => pins.push((id, None)),
                Err(error) => return Err(error.into()),
            }
        }
        let missing = pins.iter().filter(|(_, pin)| pin.is_none()).count();
        let bytes = u64::from(BATCH) * (record_bound(64) + ALLOCATION_LOG) + log;
        let mut mtr = space.pages().begin(bytes, missing, Urgency::Reserve).map_err(TreeError::from)?;
        let pages: Vec<_> = pins
            .iter()
            .map(|(id, pin)| match pin {
                Some(pin) => mtr.write_pinned(pin),
                None => mtr.create(*id, PageKind::Free, 0),
            })
            .collect();
        let header = space.latch_header(&mut mtr);
        for page in pages {
            space.free(&mut mtr, header, page);
        }
        note(&mut mtr, from);
        mtr.commit();
        run.end = from;
    }
    Ok(())
}
