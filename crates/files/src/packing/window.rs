//! How much of a packed block is read when one of its files is asked for. Pure.
//!
//! A request to flash costs as much as [`REQUEST_BYTES`] more bytes, so neighbours are cheap to bring, if they are used, and if there is memory for
//! them until then. The window doubles while brought neighbours are used, which is known at the first use of each, and halves when they are evicted unused. It is never more than the share of
//! the memory that falls to each of the blocks that are being read.

use std::collections::VecDeque;
use std::ops::Range;

/// What a request costs, in bytes that the device would transfer meanwhile: 0.1 ms at 1 GB/s.
pub const REQUEST_BYTES: usize = 100 << 10;
/// The window at the start, and the shortest one: it costs a third of a request, and without neighbours it could not grow again. With less memory a
/// file is read alone.
const BEGIN: usize = 512 << 10;
const LEAST: usize = 32 << 10;
/// Neighbours that are looked at before the window changes.
const SEEN: u64 = 64;
/// Reads of blocks that are remembered to find out how many blocks are in use.
const RECENT: usize = 256;

/// Of brought neighbours, those that one in this many is used of are worth it. Clients tell of one in eight of their reads.
const USED_SHARE: u64 = 16;

pub struct Window {
    bytes: usize,
    /// Since the last change: neighbours that were used, and that were evicted before they were.
    used: u64,
    unused: u64,
    recent: VecDeque<u32>,
}

impl Default for Window {
    fn default() -> Window {
        Window { bytes: BEGIN, used: 0, unused: 0, recent: VecDeque::new() }
    }
}

impl Window {
    /// Neighbours were used for the first time since they were brought, or evicted before they were.
    pub fn learn(&mut self, used: u64, unused: u64, block_bytes: usize) {
        self.used += used;
        self.unused += unused;
        let all = self.used + self.unused;
        if all < SEEN {
            return;
        }
        self.bytes = match self.used * USED_SHARE >= all {
            true => (self.bytes * 2).min(block_bytes),
            false => (self.bytes / 2).max(LEAST),
        };
        (self.used, self.unused) = (0, 0);
    }

    /// The range to read for the bytes of a file in `block`, whose body has `body` bytes, with `memory` bytes for all that is brought.
    pub fn range(&mut self, block: u32, file: &Range<usize>, body: usize, memory: usize) -> Range<usize> {
        self.recent.push_back(block);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        let mut blocks: Vec<u32> = self.recent.iter().copied().collect();
        blocks.sort_unstable();
        blocks.dedup();
        part(file, body, self.bytes.min(memory / blocks.len().max(1)))
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The aligned part with the file.
fn part(file: &Range<usize>, body: usize, window: usize) -> Range<usize> {
    // The rest of the block costs less than another request for it.
    if body <= window + REQUEST_BYTES && window >= LEAST {
        return 0..body;
    }
    let window = match window.checked_ilog2() {
        Some(log) if window >= LEAST => 1 << log,
        _ => return file.clone(),
    };
    let begin = file.start / window * window;
    begin..(begin + window).max(file.end).min(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_is_aligned_has_the_file_and_is_the_whole_block_if_little_is_left() {
        let file = 1_000_000..1_010_000;
        assert_eq!(part(&file, 8_000_000, 8_000_000), 0..8_000_000);
        assert_eq!(part(&file, 8_000_000, 7_900_000), 0..8_000_000);
        assert_eq!(part(&file, 8_000_000, 600_000), 524_288..1_048_576);
        assert_eq!(part(&file, 8_000_000, 65_536), 983_040..1_048_576);
        assert_eq!(part(&(1_040_000..1_056_000), 8_000_000, 65_536), 983_040..1_056_000);
        assert_eq!(part(&file, 8_000_000, LEAST - 1), file, "without neighbours");
    }

    #[test]
    fn the_window_follows_the_use_of_what_was_brought_and_the_memory() {
        let mut window = Window::default();
        let file = 5_000_000..5_010_000;
        assert_eq!(window.range(1, &file, 8 << 20, 1 << 30).len(), BEGIN);
        (0..10).for_each(|_| window.learn(32, 32, 8 << 20));
        assert_eq!(window.range(1, &file, 8 << 20, 1 << 30), 0..8 << 20);
        assert_eq!(window.range(1, &file, 8 << 20, 2 << 20).len(), 2 << 20);
        (2..130).for_each(|block| _ = window.range(block, &file, 8 << 20, 64 << 20));
        assert_eq!(
            window.range(1, &file, 8 << 20, 64 << 20).len(),
            256 << 10,
            "many blocks share the memory"
        );
        (0..20).for_each(|_| window.learn(0, 64, 8 << 20));
        assert_eq!(window.range(1, &file, 8 << 20, 1 << 30), 4_980_736..5_013_504);
        (0..20).for_each(|_| window.learn(8, 56, 8 << 20));
        assert!(window.range(1, &file, 8 << 20, 1 << 30).len() > 1 << 20, "it finds back");
    }
}
