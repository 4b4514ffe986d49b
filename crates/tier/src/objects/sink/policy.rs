//! What to sink: a pure policy. CloudJump III §4.2.4.
//!
//! Below the low watermark of free slots, the policy picks enough blocks to reach the high one. Blocks with the largest product
//! of slots and the time that these will stay free go first, because a block costs one PUT (and perhaps a GET) however many slots
//! it frees, and a block that is written again soon takes its slots again ([`worth`]). Whether a block is put whole or only its
//! changed pages, [`form`] decides. Above the low watermark, only blocks that have cooled: putting a warm block early gains
//! nothing and costs requests.

use crate::address::PATCH_MAX;
use crate::address::{BufferedBlock, Stored};
use crate::page::{BLOCK_PAGES, BlockId, Glsn};
use std::cmp::Reverse;
use std::collections::VecDeque;
use terrace_io::clock::Nanos;

/// Numbers that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    pub slots: u32,
    /// Those of them that are free and that no page in memory will take.
    pub free: u32,
    /// A block last changed at or before this position has cooled.
    pub cooled_before: Glsn,
    /// Blocks that are written repeatedly sink later. If not set, the fullest blocks go first.
    pub defers: bool,
    /// Approximate number of pages that fit in a patch object; 0: no patches are put.
    pub patch: u32,
}

/// What is put for a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// All its pages: the block's next object.
    Whole,
    /// Its changed pages: a patch object in addition to the block's object.
    Patch,
}

/// What to put for a block that has an object: `new` bytes of it are in slots, `carried` bytes in its patch object, which the
/// next patch takes over, and all its pages together are `whole` bytes.
///
/// A block with `k` new bytes each time puts `k`, `2 k` and so on until it is put whole: after `n` times, `n² k / 2` plus the
/// whole. That is least for each time when the patches together have reached the size of the whole, which is when `(new +
/// carried)² = 2 whole new`. If the same pages change each time, a patch stops growing and remains best for ever. (Either
/// way the previous patch or the object is read with a GET.) More than half of the block is never put as a patch: the store
/// would keep that much twice, to save little.
pub fn form(new: usize, carried: usize, whole: usize) -> Form {
    let patch = new + carried;
    let pays = (patch as u64).pow(2) < 2 * whole as u64 * new as u64;
    if pays && patch <= PATCH_MAX && 2 * patch <= whole { Form::Patch } else { Form::Whole }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Free slots are low.
    Watermark,
    /// The block has cooled.
    Cooled,
    /// Its table exceeds its share of the object buffer (`quota`).
    Share,
}

/// Slots for pages that arrive while blocks are being sunk, whatever the object buffer's size: 8 MiB.
const SLACK: u32 = 512;

/// The low watermark: sinking begins below this number of free slots. An eighth; in a small object buffer up to a quarter.
pub fn low(slots: u32) -> u32 {
    (slots / 8).max((slots / 4).min(SLACK))
}
/// The high watermark: sinking continues until this number is free.
pub fn high(slots: u32) -> u32 {
    low(slots) / 2 * 3
}

/// The time that a slot stays free is capped at this many turnovers of the object buffer.
const TURNS: u64 = 4;

/// The benefit of sinking the block now: slots times how long they stay free, measured in slots that all blocks take meanwhile.
///
/// A page that was flushed once in the block's time here is expected again after as long a time. For `h` pages that were flushed
/// again, `r` times in all, the rate is `(h + r) / h` times as high. If sinking cost the same for every block, the order by this
/// benefit would need the fewest puts. Costs differ ([`cost`]), so benefit is divided by cost.
fn worth(b: &BufferedBlock, p: &Pressure) -> u64 {
    let hot = b.rewritten.min(b.slots);
    let [cold, hot, often] = [b.slots - hot, hot, b.rewrites].map(u64::from);
    let free = |time: u64| time.min(TURNS * u64::from(p.slots));
    let brings = cold * free(b.age) + hot * free(b.age * hot / (hot + often).max(1));
    brings * COST_OF_ALL / cost(b, p.patch)
}

/// The cost of a request, in pages put.
const REQUEST: u64 = 64;
/// The cost when every page of the block is put for no slot.
const COST_OF_ALL: u64 = REQUEST + BLOCK_PAGES as u64;

/// The cost of sinking the block, in pages, in addition to its pages in slots: the request, and the pages that are put once more.
/// The pages in slots are put whenever the block sinks, so they say nothing about when it should.
fn cost(b: &BufferedBlock, patch: u32) -> u64 {
    if patch == 0 {
        return COST_OF_ALL; // each sink is one of a whole block
    }
    let Stored { pages, patched, has_object } = b.stored;
    let fits = has_object && b.slots + patched <= patch;
    let again = match form(b.slots as usize, patched as usize, pages as usize) {
        Form::Patch if fits => patched,
        _ => pages.saturating_sub(b.slots),
    };
    REQUEST + u64::from(again)
}

/// Up to `max` blocks to sink now, best first, and the reason. Empty: nothing is to be done.
pub fn choose(p: Pressure, blocks: Vec<BufferedBlock>, max: usize) -> (Reason, Vec<BlockId>) {
    let reason = if p.free < low(p.slots) { Reason::Watermark } else { Reason::Cooled };
    let mut able: Vec<BufferedBlock> = blocks;
    able.retain(|b| {
        b.block.space.sinks() && (reason == Reason::Watermark || b.last_change <= p.cooled_before)
    });
    let order = |b: &BufferedBlock| {
        let worth = if p.defers { worth(b, &p) } else { 0 };
        (Reverse(worth), Reverse(b.slots), b.last_change, b.block)
    };
    if able.len() > max {
        able.select_nth_unstable_by_key(max, order);
        able.truncate(max);
    }
    able.sort_unstable_by_key(order);
    let mut wanted = match reason {
        Reason::Watermark => high(p.slots).saturating_sub(p.free),
        Reason::Cooled | Reason::Share => u32::MAX,
    };
    let needed = able.iter().take_while(|b| {
        let more = wanted > 0;
        wanted = wanted.saturating_sub(b.slots);
        more
    });
    let chosen = needed.map(|b| b.block).collect();
    (reason, chosen)
}

/// Pairs of time and log position, to tell how long ago a position was written.
pub struct Ages {
    samples: VecDeque<(Nanos, Glsn)>,
    cool: Nanos,
}

/// Samples in one cooling time.
const SAMPLES: u64 = 8;

impl Ages {
    /// A block cools in `cool` nanoseconds.
    pub fn new(cool: Nanos) -> Ages {
        Ages { samples: VecDeque::new(), cool }
    }

    /// How long until the next sample is worth taking.
    pub fn rest(&self) -> Nanos {
        self.cool / SAMPLES + 1
    }

    /// The log ends at `end` now. Returns the position up to which everything was written at least
    /// one cooling time ago; 0 if that is not known yet.
    pub fn sample(&mut self, now: Nanos, end: Glsn) -> Glsn {
        if self.samples.back().is_none_or(|(at, _)| now >= at + self.cool / SAMPLES) {
            self.samples.push_back((now, end));
        }
        let cooled = |sample: &(Nanos, Glsn)| sample.0 + self.cool <= now;
        while self.samples.get(1).is_some_and(cooled) {
            self.samples.pop_front();
        }
        self.samples.front().filter(|s| cooled(s)).map_or(0, |(_, end)| *end)
    }
}

#[cfg(test)]
mod tests;
