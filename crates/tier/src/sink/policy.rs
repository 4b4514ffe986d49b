//! What to sink: a pure policy. CloudJump III §4.2.4.
//!
//! Below the low watermark of free slots, enough blocks to come up to the high one: those first whose slots, times how long they will
//! stay free, are most, because a block costs one PUT (and perhaps a GET) however many slots it frees, and what is written again soon
//! takes its slot again ([`worth`]). What is put of a block, all or its changed pages, is [`form`]. Above it, blocks that have cooled, and nothing else: putting a
//! warm block early buys nothing and costs requests.

use crate::map::entry::PATCH_MAX;
use crate::map::{BufferedBlock, Stored};
use crate::page::{BLOCK_PAGES, BlockId, Glsn};
use std::cmp::Reverse;
use std::collections::VecDeque;
use terrace_io::clock::Nanos;

/// Numbers that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    pub slots: u32,
    /// Of them, those that are free and that no page in memory will take.
    pub free: u32,
    /// A block last changed at or before this position has cooled.
    pub cooled_before: Glsn,
    /// Blocks that are written again and again are put off. If not, the fullest go first.
    pub defers: bool,
    /// Pages that a patch object has room for, about; 0: none are put.
    pub patch: u32,
}

/// What is put of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// All its pages: its next object.
    Whole,
    /// Its changed pages: a patch object beside the one that it has.
    Patch,
}

/// What to put of a block that has an object: `new` bytes of it are in slots, `carried` ones in its patch object, which the next one takes over,
/// and all its pages are `whole`.
///
/// A block that brings `k` new bytes each time puts `k`, `2 k` and so on until it is put whole: after `n` times, `n² k / 2` and the whole, so least for
/// each time when the patches have come to as much as the whole together. That is when `(new + carried)² = 2 whole new`. Where the same pages
/// change each time, a patch grows no more and is good for ever. (A GET costs either way: of the patch before, or of the object.) More than half of
/// the block is no patch: the store would keep that much twice, to put little less.
pub fn form(new: usize, carried: usize, whole: usize) -> Form {
    let patch = new + carried;
    let pays = (patch as u64).pow(2) < 2 * whole as u64 * new as u64;
    if pays && patch <= PATCH_MAX && 2 * patch <= whole { Form::Patch } else { Form::Whole }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Slots run low.
    Watermark,
    /// The block has cooled.
    Cooled,
    /// Its table has more of the object buffer than it may (`quota`).
    Share,
}

/// Room for what comes while blocks are on the move, whatever the object buffer's size: 8 MiB.
const SLACK: u32 = 512;

/// Fewer free slots than this: sink. An eighth; of a small object buffer up to a quarter.
pub fn low(slots: u32) -> u32 {
    (slots / 8).max((slots / 4).min(SLACK))
}
/// And go on until so many are free.
pub fn high(slots: u32) -> u32 {
    low(slots) / 2 * 3
}

/// A slot stays free no longer than this many turns of the object buffer are looked ahead.
const TURNS: u64 = 4;

/// What sinking the block now brings: slots times how long they stay free, in slots that all blocks take meanwhile.
///
/// A page that came once in the block's time here will come again after as long a time. Those that were flushed again, `h` of them and
/// `r` times in all, come `(h + r) / h` times as often. If each block came to the same worth whenever it sinks, no other order would do with fewer puts.
/// They cost more or less ([`cost`]), so it is the worth of what they cost.
fn worth(b: &BufferedBlock, p: &Pressure) -> u64 {
    let hot = b.rewritten.min(b.slots);
    let [cold, hot, often] = [b.slots - hot, hot, b.rewrites].map(u64::from);
    let free = |time: u64| time.min(TURNS * u64::from(p.slots));
    let brings = cold * free(b.age) + hot * free(b.age * hot / (hot + often).max(1));
    brings * COST_OF_ALL / cost(b, p.patch)
}

/// What a request costs, in pages that are put.
const REQUEST: u64 = 64;
/// What it costs to put every page of a block for none.
const COST_OF_ALL: u64 = REQUEST + BLOCK_PAGES as u64;

/// What a sink of the block costs beside its pages in slots, in pages: the request, and the pages that are put once more. The others are put whenever it
/// sinks, and say nothing about when it should.
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

/// Up to `max` blocks to sink now, best first, and why. Empty: nothing is to be done.
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
