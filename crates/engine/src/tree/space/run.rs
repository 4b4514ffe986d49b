//! Runs of page numbers for builds of many pages that nothing leads to yet: taken at once, and given back if
//! they are unused or the build fails.
//!
//! A run belongs to its taker until its pages are part of a structure. What a crash leaves is the taker's to know:
//! `note` is called in each mini-transaction that changes how much of the run is taken.
//!
//! Pages that are freed keep no slot (`terrace_tier::volume::flush`, `forget`): a build writes each page once, past the log or as one record that
//! makes it.

use super::{ALLOCATION_FRAMES, ALLOCATION_LOG, Space, at, bits};
use crate::error::Result;
use crate::error::TreeError;
use std::ops::Range;
use terrace_log::Urgency;
use terrace_tier::memory::mtr::Mtr;
use terrace_tier::memory::pages::Freed;
use terrace_tier::memory::pool::Access;

/// Pages that one mini-transaction frees.
const BATCH: u32 = 16;

/// Takes `count` numbers that no page ever had, and returns the first. `note` adds at most `log` bytes.
pub fn take(
    space: &Space,
    count: u32,
    log: u64,
    urgency: Urgency,
    note: impl FnOnce(&mut Mtr<'_>, u32),
) -> Result<u32> {
    loop {
        let homes = space.ready_to_free([space.counts().pages.saturating_sub(1)])?;
        let begun = space.pages().begin(ALLOCATION_LOG + log, ALLOCATION_FRAMES, urgency);
        let mut mtr = begun.map_err(TreeError::from)?;
        let header = homes.latch_header(&mut mtr);
        space.can_allocate(&mtr, header, count)?;
        // None: the space has grown into another group meanwhile.
        let Some(first) = space.take_numbers(&mut mtr, header, count, &homes) else { continue };
        note(&mut mtr, first);
        mtr.commit();
        return Ok(first);
    }
}

/// Gives back numbers at a run's end that were never used. `note` is told where the run ends then.
pub fn give_back(
    space: &Space,
    unused: Range<u32>,
    log: u64,
    mut note: impl FnMut(&mut Mtr<'_>, u32),
) -> Result<()> {
    {
        let pin = space.header()?;
        let _inside = space.enter()?;
        let mut mtr =
            space.pages().begin(ALLOCATION_LOG + log, 0, Urgency::Reserve).map_err(TreeError::from)?;
        let header = mtr.write_pinned(&pin);
        if mtr.page(header).u32(at::NEXT) == unused.end {
            space.set_pages(&mut mtr, header, unused.start);
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
        let last = run.end - 1;
        let from = bits::home_of(last).max(last / BATCH * BATCH).max(run.start);
        // No other thread changes them before they are free.
        let freed: Vec<Freed> = (from..run.end).filter_map(|page| written(space, page)).collect();
        let homes = space.ready_to_free([from])?;
        let begun = space.pages().begin(ALLOCATION_LOG + log, 0, Urgency::Reserve);
        let mut mtr = begun.map_err(TreeError::from)?;
        let header = homes.latch_header(&mut mtr);
        space.free_numbers(&mut mtr, header, from..run.end, &homes);
        note(&mut mtr, from);
        let range = mtr.commit();
        space.pages().freed(&freed, range);
        run.end = from;
    }
    Ok(())
}

/// What there is of a page of a run. None: it was never written, or cannot be read; then it keeps its slot until it is used again.
fn written(space: &Space, page: u32) -> Option<Freed> {
    let (pages, id) = (space.pages(), space.page_id(page));
    if let Some(home) = pages.home_below(id) {
        return Some(Freed::Below { id, home });
    }
    let pin = pages.load(id, Access::Scan).ok()?;
    let lsn = pin.read().page().lsn();
    Some(Freed::Here { pin, lsn })
}
