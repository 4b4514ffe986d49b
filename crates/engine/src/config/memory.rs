//! What `memory` is spent on. Buffers get their sizes at the start, by the memory that there is then, and keep them; the
//! pool's frames are what is left. Of their memory the pool lends some to work that needs much, as long as it lasts: sorts, the
//! rows that change while an index is built, most locks, and the batches of many open cursors (`tier/src/memory/pool/lend.rs`).
//!
//! An eighth, at most 32 MiB (12 without an object store), is for the work: the flash queue, prefetchers, states of codecs, and `common`,
//! which is what they leave of it but never less than a quarter. With little memory buffers are short, so that they take no more
//! than a few percent beyond the eighth.
//!
//! | part | bytes |
//! | --- | --- |
//! | common | what the threads' allocators keep of memory that was freed (a sixteenth of the memory, at most 2 MiB), the first locks (a sixteenth of the eighth, at least 128 KiB), the first batches of open cursors (a 64th of the memory, at least 256 KiB and at most 4 MiB), the buffers of requests in the foreground (what misses that share a request may bring is a quarter of the eighth) and of the fetchers for purge, and the map, which may grow: a quarter of the eighth is the map's |
//! | map | what the map takes beyond that; but half of the memory stays with the pages, for open tables keep some of them. A map that is larger than that (thousands of tables with a few megabytes of memory) comes on top of the setting |
//! | log | four times what may wait to be written: as it waits, while it is written, and as blocks |
//! | flash index | index and ghost list of flash |
//! | flash queue | images that wait to be written to flash |
//! | sinking | blocks on their way to the object store |
//! | packing | with an object store: states of codecs that compress |
//! | prefetchers | with an object store, for each the bodies of the pages of one request and the state of a codec. Bodies count as half a page, for they are compressed, and twice: as a remote store answers, and as they are taken apart |
//! | archive | if the log is archived: a stretch of it, the same compressed, and for each partition what is read of it |

use super::{Bytes, Config, MIB};
use crate::error::Error;
use terrace_io::AlignedBuf;
use terrace_tier::memory::prefetch::PREFETCH_MAX;
use terrace_tier::objects::object::codec;
use terrace_tier::objects::sink;
use terrace_tier::page::PAGE_SIZE;
use terrace_tier::volume::map::CLEAN_COPY;

/// A frame costs its page and about 200 bytes of table, queues and metadata.
const FRAME: u64 = PAGE_SIZE as u64 + 200;
/// Prefetchers, each of which waits for one request at a time: the fewest, the most, and pages of memory for each where there are more than the
/// fewest.
const PREFETCHERS: (u64, u64) = (4, 16);
const PAGES_A_PREFETCHER: u64 = 4096;
/// The shortest request of a prefetcher, in pages.
const PREFETCH_MIN: u64 = 4;
/// Pages of memory for each fetcher of pages that purge will come to, and the most fetchers. Each has a page's body and one frame.
const PAGES_A_FETCHER: u64 = 96;
const FETCHERS_MAX: u64 = 16;
/// Images that may wait to be written to flash: the fewest and the most.
const FLASH_QUEUE_MIN: u64 = 8;
const FLASH_QUEUE_MAX: u64 = 256;

/// Buffers that keep their sizes while the instance runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// Bytes of log that may wait to be written.
    pub log_waiting: usize,
    /// Images that may wait to be written to flash, each in memory meanwhile.
    pub flash_queue: usize,
    /// Bytes that blocks on their way to the object store take; 0 without one.
    pub sinking: usize,
    /// States of codecs that compress them.
    pub packers: usize,
    /// Workers that fetch what scans will read.
    pub prefetchers: usize,
    /// Pages that each fetches with one request.
    pub prefetch: usize,
    /// Workers that fetch pages which purge will come to.
    pub fetchers: usize,
    /// Whether they pass through buffers: from the volume they are read into their frames.
    pub prefetch_buffered: bool,
}

/// What `memory` is spent on, in bytes; see the table above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    pub common: u64,
    pub map: u64,
    pub log: u64,
    pub flash_index: u64,
    pub flash_queue: u64,
    pub sinking: u64,
    pub packing: u64,
    pub prefetchers: u64,
    pub archive: u64,
    pub frames: u64,
}

impl Budget {
    pub fn parts(&self) -> [(&'static str, u64); 10] {
        [
            ("common", self.common),
            ("map", self.map),
            ("log", self.log),
            ("flash_index", self.flash_index),
            ("flash_queue", self.flash_queue),
            ("sinking", self.sinking),
            ("packing", self.packing),
            ("prefetchers", self.prefetchers),
            ("archive", self.archive),
            ("frames", self.frames),
        ]
    }

    pub fn frames_count(&self) -> usize {
        (self.frames / FRAME) as usize
    }
}

impl Config {
    /// The buffers of an instance that starts with this memory.
    pub fn buffers(&self, has_store: bool) -> Buffers {
        let pages = self.memory.0 / PAGE_SIZE as u64;
        let prefetchers = (pages / PAGES_A_PREFETCHER).clamp(PREFETCHERS.0, PREFETCHERS.1);
        // A sixteenth for all prefetchers together.
        let prefetch = (pages / 16 / prefetchers).clamp(PREFETCH_MIN, PREFETCH_MAX as u64);
        Buffers {
            log_waiting: self.log_waiting(),
            flash_queue: (pages / 32).clamp(FLASH_QUEUE_MIN, FLASH_QUEUE_MAX) as usize,
            sinking: if has_store { self.sink_memory() } else { 0 },
            packers: if has_store { sink::packers(self.sink_memory()).min(codec::KEPT) } else { 0 },
            prefetchers: prefetchers as usize,
            prefetch: if has_store { prefetch as usize } else { PREFETCH_MAX },
            fetchers: (pages / PAGES_A_FETCHER).clamp(2, FETCHERS_MAX) as usize,
            prefetch_buffered: has_store,
        }
    }

    /// Bytes that misses which share requests may have on the way.
    pub fn coalescing(&self) -> usize {
        (self.memory.0 / 32).min(8 * MIB) as usize
    }

    /// The number of slots, of `slots`, for which it is remembered what sank from them: at most a sixteenth of the memory.
    pub fn clean_copies(&self, slots: u32) -> u32 {
        u64::from(slots).min(self.memory.0 / 16 / CLEAN_COPY) as u32
    }

    /// What the memory is spent on with these buffers. `map`: bytes of the map.
    pub fn budget(&self, buffers: &Buffers, map: u64) -> Budget {
        let for_work = if buffers.sinking > 0 { 32 * MIB } else { 12 * MIB };
        let prefetcher = buffers.prefetch * PAGE_SIZE + codec::UNPACK_STATE;
        // More prefetchers than the fewest take nothing of what else there is.
        let more = buffers.prefetchers.saturating_sub(PREFETCHERS.0 as usize) * prefetcher;
        let eighth =
            (self.memory.0 / 8).min(for_work + if buffers.prefetch_buffered { more as u64 } else { 0 });
        let mut budget = Budget {
            common: 0,
            map: 0,
            log: 4 * buffers.log_waiting as u64,
            flash_index: self.flash_index(),
            flash_queue: if self.flash.0 > 0 { (buffers.flash_queue * PAGE_SIZE) as u64 } else { 0 },
            sinking: buffers.sinking as u64,
            packing: (buffers.packers * codec::PACK_STATE) as u64,
            prefetchers: if buffers.prefetch_buffered {
                (buffers.prefetchers * prefetcher) as u64
            } else {
                0
            },
            archive: if buffers.sinking > 0 { self.archive_memory() } else { 0 },
            frames: 0,
        };
        let work = budget.flash_queue + budget.packing + budget.prefetchers;
        budget.common = eighth.saturating_sub(work).max(eighth / 4) + (self.memory.0 / 16).min(2 * MIB);
        let left = self.memory.0.saturating_sub(budget.parts().iter().map(|(_, bytes)| bytes).sum());
        budget.map = map.saturating_sub(eighth / 4).min(left / 2);
        budget.frames = (left - budget.map).max(FRAMES_MIN * FRAME);
        budget
    }

    /// Bytes that archiving the log takes: a stretch of it, the same compressed, and for each partition what is read of it.
    fn archive_memory(&self) -> u64 {
        match self.archive_interval_ms {
            0 => 0,
            _ => 2 * self.archive_stretch() as u64 + 2 * MIB * self.log_partitions as u64,
        }
    }

    /// Refuses a memory that is not to be had. `more`: bytes of it that are still to be taken; `limit`: bytes that control
    /// groups allow, beyond which the process would be killed some day.
    pub fn check_machine(&self, more: u64, limit: Option<u64>) -> Result<(), Error> {
        if let Some(limit) = limit.filter(|limit| self.memory.0 > *limit) {
            return Err(Error::Invalid(format!(
                "memory = {} is more than this machine gives: control groups allow this process {}",
                self.memory,
                Bytes(limit)
            )));
        }
        if !AlignedBuf::is_to_be_had(more as usize) {
            return Err(Error::Invalid(format!("memory = {} is more than this machine gives", self.memory)));
        }
        Ok(())
    }

    /// Bytes that locks may take: a statement that needs more fails.
    pub fn locks_memory(&self) -> usize {
        (self.memory.0 / 8) as usize
    }

    /// Bytes of locks that are within `common`; what they take beyond is the pool's.
    pub fn locks_own(&self) -> usize {
        ((self.memory.0 / 8).min(32 * MIB) / 16).clamp(128 << 10, MIB) as usize
    }

    /// Bytes of open cursors' batches that are within `common`; what they take beyond is the pool's.
    pub fn cursors_own(&self) -> usize {
        (self.memory.0 / 64).clamp(256 << 10, 4 * MIB) as usize
    }

    /// The most frames that the pool can come to have while the instance runs.
    pub fn frames_max(&self, has_store: bool) -> usize {
        let most = Config { memory: self.memory_max_bytes(), flash: super::Bytes(0), ..self.clone() };
        most.budget(&self.buffers(has_store), 0).frames_count()
    }

    /// Bytes that are for everything but frames.
    pub fn beside_frames(&self, has_store: bool, map: u64) -> u64 {
        let budget = self.budget(&self.buffers(has_store), map);
        budget.parts().iter().map(|(_, bytes)| bytes).sum::<u64>() - budget.frames
    }

    /// Bytes of the flash extension's index and ghost list.
    pub(super) fn flash_index(&self) -> u64 {
        self.flash.0 / PAGE_SIZE as u64
            * terrace_tier::flash::bpe::bytes_per_page(self.flash_admission) as u64
    }
}

/// No instance works with fewer, whatever its memory.
const FRAMES_MIN: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// A memory of `mib` MiB, with four times as much flash or none.
    fn config(mib: u64, flash: bool) -> Config {
        let flash = Bytes(if flash { 4 * mib * MIB } else { 0 });
        Config { memory: Bytes(mib * MIB), flash, ..Config::default() }
    }

    #[test]
    fn all_buffers_fit_any_memory_size() {
        for mib in [10, 16, 32, 64, 100, 128, 256, 1024, 8192, 65_536] {
            for (has_store, flash) in [(false, false), (false, true), (true, false), (true, true)] {
                let config = config(mib, flash);
                let budget = config.budget(&config.buffers(has_store), mib * MIB / 50);
                let sum: u64 = budget.parts().iter().map(|(_, bytes)| bytes).sum();
                assert_eq!(sum, mib * MIB, "{mib} MiB: {budget:?}");
                assert_eq!(budget.flash_queue > 0, flash);
                assert_eq!([budget.prefetchers > 0, budget.packing > 0, budget.sinking > 0], [has_store; 3]);
            }
        }
    }

    #[test]
    fn clean_copies_are_remembered_as_far_as_a_sixteenth_of_the_memory_goes() {
        let copies = |mib, slots| config(mib, false).clean_copies(slots);
        assert_eq!(copies(128, 524_288), 524_288, "the default: 8 GiB of slots");
        assert_eq!(copies(128, 16_000_000), 128 * (1 << 20) / 16 / 12);
    }

    /// Throughput is the pool's: buffers are scaled down with the memory rather than take its frames.
    #[test]
    fn the_frames_have_most_of_the_memory_with_a_store_and_flash() {
        for (mib, percent) in [(10, 20), (16, 42), (32, 59), (64, 66), (128, 70), (256, 71), (1024, 86)] {
            let config = config(mib, true);
            let budget = config.budget(&config.buffers(true), 0);
            let share = budget.frames_count() as u64 * PAGE_SIZE as u64 * 100 / (mib * MIB);
            println!("{mib} MiB: {share} % in {budget:?}");
            assert!(share >= percent, "{mib} MiB: {share} % in {budget:?}");
        }
    }

    #[test]
    fn memory_beyond_the_control_groups_limit_is_refused_with_the_reason() {
        let check = |mib, limit: u64| config(mib, false).check_machine(mib * MIB, Some(limit * MIB));
        assert!(check(64, 64).is_ok() && config(64, false).check_machine(64 * MIB, None).is_ok());
        let refused = check(65, 64).unwrap_err().to_string();
        assert!(refused.contains("memory = 65M") && refused.contains("allow this process 64M"), "{refused}");
        let refused = config(1 << 40, false).check_machine(MIB << 40, None).unwrap_err().to_string();
        assert!(refused.contains("is more than this machine gives"), "{refused}");
    }

    #[test]
    fn requests_of_prefetchers_get_short_with_little_memory() {
        let prefetch = |mib| config(mib, false).buffers(true).prefetch;
        assert_eq!([10, 16, 32, 64, 1024].map(prefetch), [10, 16, 32, PREFETCH_MAX, PREFETCH_MAX]);
        assert_eq!(config(10, false).buffers(false).prefetch, PREFETCH_MAX, "read into their frames");
    }
}
