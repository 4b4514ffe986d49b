//! What to sink: a pure policy. CloudJump III §4.2.4.
//!
//! Below the low watermark of free slots, enough blocks to come up to the high one: those first whose slots, times how long they will
//! stay free, are most, because a block costs one PUT (and perhaps a GET) however many slots it frees, and what is written again soon
//! takes its slot again ([`worth`]). Above it, blocks that have cooled, and nothing else: putting a
//! warm block early buys nothing and costs requests.

use crate::map::BufferedBlock;
use crate::page::{BlockId, Glsn};
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
fn worth(b: &BufferedBlock, slots: u32) -> u64 {
    let hot = b.rewritten.min(b.slots);
    let [cold, hot, often] = [b.slots - hot, hot, b.rewrites].map(u64::from);
    let free = |time: u64| time.min(TURNS * u64::from(slots));
    cold * free(b.age) + hot * free(b.age * hot / (hot + often).max(1))
}

/// Up to `max` blocks to sink now, best first, and why. Empty: nothing is to be done.
pub fn choose(p: Pressure, blocks: Vec<BufferedBlock>, max: usize) -> (Reason, Vec<BlockId>) {
    let reason = if p.free < low(p.slots) { Reason::Watermark } else { Reason::Cooled };
    let mut able: Vec<BufferedBlock> = blocks;
    able.retain(|b| {
        b.block.space.sinks() && (reason == Reason::Watermark || b.last_change <= p.cooled_before)
    });
    let order = |b: &BufferedBlock| {
        let worth = if p.defers { worth(b, p.slots) } else { 0 };
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
