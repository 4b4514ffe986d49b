//! Huge pages for the pool's frames.
//!
//! Frames get memory when they are first used, and lend it in pieces smaller than a huge page. So the thread that takes a frame
//! first has the kernel build the huge page around it (a *part*, 128 frames), and otherwise the frames' memory refuses huge
//! pages: the kernel must not take lent memory back by completing a part. A part that was lent as a whole gets its huge page
//! again; one that was lent in pieces continues with small pages in those places.

use crate::memory::frame::FrameNo;
use crate::page::PAGE_SIZE;
use crate::stable_array::Growing;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use terrace_io::memory::reserve::{HUGE, HUGE_MIN, Reserved};

/// Frames in a part.
const FRAMES: usize = HUGE / PAGE_SIZE;

#[derive(Default)]
struct HugePart {
    /// One of its frames was used since the part had no memory at all.
    touched: AtomicBool,
    /// The number of its frames whose memory is given up.
    given_up: AtomicU32,
}

pub(crate) struct Parts(Growing<HugePart>);

impl Parts {
    /// For up to `max` frames. Returns None if the addresses cannot be reserved.
    pub fn new(max: usize) -> Option<Parts> {
        Growing::new(max.div_ceil(FRAMES)).map(Parts)
    }

    /// Creates parts for `frames` frames. Returns false if the operating system does not give the memory.
    pub fn make(&self, frames: usize) -> bool {
        self.0.make(frames.div_ceil(FRAMES), HugePart::default)
    }

    fn of(&self, no: FrameNo) -> &HugePart {
        self.0.get(no.0 as usize / FRAMES)
    }

    /// Called before a frame's first use; `memory` is that of all frames, `frames` their number.
    #[inline]
    pub fn prepare(&self, no: FrameNo, memory: &Reserved, frames: usize) {
        if !self.of(no).touched.load(Ordering::Acquire) {
            self.touch(no, memory, frames);
        }
    }

    #[cold]
    fn touch(&self, no: FrameNo, memory: &Reserved, frames: usize) {
        let part = self.of(no);
        let first = no.0 as usize / FRAMES * FRAMES;
        if frames < HUGE_MIN / PAGE_SIZE || first + FRAMES > frames {
            part.touched.store(true, Ordering::Release);
        } else if part.given_up.load(Ordering::Acquire) == 0 {
            // Other threads that come meanwhile do the same, one after the other: none touches the memory before the first has
            // built the huge page.
            memory.take_huge(first * PAGE_SIZE);
            part.touched.store(true, Ordering::Release);
        }
    }

    /// A frame's memory was returned to the kernel.
    pub fn given_up(&self, no: FrameNo) {
        let part = self.of(no);
        if part.given_up.fetch_add(1, Ordering::AcqRel) + 1 == FRAMES as u32 {
            part.touched.store(false, Ordering::Release);
        }
    }

    /// A frame whose memory was given up may be used again.
    pub fn returned(&self, no: FrameNo) {
        self.of(no).given_up.fetch_sub(1, Ordering::AcqRel);
    }

    /// The memory of the frames from `from` on is released. Those of them that were given up have been returned before.
    pub fn released(&self, from: usize) {
        for part in self.0.iter().skip(from.div_ceil(FRAMES)) {
            debug_assert_eq!(part.given_up.load(Ordering::Acquire), 0);
            part.touched.store(false, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    const ALL: usize = HUGE_MIN / PAGE_SIZE;

    fn touched(parts: &Parts, no: usize) -> bool {
        parts.of(FrameNo(no as u32)).touched.load(Ordering::Relaxed)
    }

    #[test]
    fn a_part_gets_a_huge_page_at_its_first_use_and_again_after_all_of_it_was_lent() {
        let memory = Reserved::new(4 * HUGE_MIN).unwrap();
        let parts = Parts::new(4 * ALL).unwrap();
        assert!(parts.make(ALL + 1) && memory.commit(0, HUGE_MIN + PAGE_SIZE));
        let prepare = |no: usize| parts.prepare(FrameNo(no as u32), &memory, ALL + 1);
        prepare(FRAMES + 3);
        assert!(touched(&parts, FRAMES) && touched(&parts, 2 * FRAMES - 1));
        assert!(!touched(&parts, 0) && !touched(&parts, 2 * FRAMES));
        // The last part ends before its huge page would.
        prepare(ALL);
        assert!(touched(&parts, ALL));
        // All frames except one lent: the part stays as it is.
        for no in 1..FRAMES {
            parts.given_up(FrameNo((FRAMES + no) as u32));
        }
        assert!(touched(&parts, FRAMES));
        // All frames lent; and returning the first does not bring back the memory of the rest.
        parts.given_up(FrameNo(FRAMES as u32));
        assert!(!touched(&parts, FRAMES));
        parts.returned(FrameNo(FRAMES as u32));
        prepare(FRAMES);
        assert!(!touched(&parts, FRAMES));
        (1..FRAMES).for_each(|no| parts.returned(FrameNo((FRAMES + no) as u32)));
        prepare(FRAMES + 9);
        assert!(touched(&parts, FRAMES));
        // Released parts come back untouched.
        parts.released(FRAMES);
        assert!(!touched(&parts, FRAMES) && !touched(&parts, ALL));
    }
}
