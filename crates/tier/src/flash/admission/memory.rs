//! The memory in front of flash, for playing traces: the engine's own queues over pages without content.
//!
//! What flash has does not change what memory does, so one run through memory serves every policy.

use super::slots::Slots;
use crate::memory::frame::{ACCESSES_MAX, FrameNo};
use crate::memory::queues::{FrameReport, Queues};
use crate::page::PageId;

/// Looks at the queues for one page to evict; the engine's pool is as patient.
const TRIES: usize = 64;

#[derive(Clone, Copy, Default)]
struct Frame {
    turn: u32,
    accesses: u8,
    /// The period of the last use that counted.
    period: u32,
    reused: bool,
    dirty: bool,
}

/// A page that leaves memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    pub id: PageId,
    /// Uses in memory, as admission counts them.
    pub accesses: u8,
    /// It was changed there: it is flushed first, and no older copy is current.
    pub dirty: bool,
}

/// What a use of a page came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    Hit,
    /// It was not in memory, and another page leaves for it unless a frame was free.
    Missed(Option<Left>),
}

pub struct Memory {
    queues: Queues,
    /// The queues' time: several uses of a page in one period count as one.
    period: u32,
    frames: Vec<Frame>,
    slots: Slots<PageId>,
}

impl Memory {
    /// Of `frames` pages. With 0 a page leaves as soon as it was used: flash alone.
    pub fn new(frames: usize) -> Memory {
        Memory {
            queues: Queues::new(frames),
            period: 0,
            frames: vec![Frame::default(); frames],
            slots: Slots::new(frames),
        }
    }

    pub fn access(&mut self, id: PageId, write: bool) -> Use {
        if self.frames.is_empty() {
            return Use::Missed(Some(Left { id, accesses: 1, dirty: write }));
        }
        if let Some(slot) = self.slots.find(id) {
            let frame = &mut self.frames[slot as usize];
            if frame.period != self.period {
                (frame.accesses, frame.period) = ((frame.accesses + 1).min(ACCESSES_MAX), self.period);
            }
            frame.dirty |= write;
            return Use::Hit;
        }
        let left = self.slots.is_full().then(|| self.evict());
        let slot = self.slots.insert(id);
        let frame = &mut self.frames[slot as usize];
        *frame = Frame { turn: frame.turn, accesses: 1, period: self.period, reused: false, dirty: write };
        self.queues.push_old(FrameNo(slot), frame.turn);
        self.period = self.queues.arrived();
        Use::Missed(left)
    }

    fn evict(&mut self) -> Left {
        let no = (0..TRIES)
            .find_map(|_| self.next_victim())
            .expect("a memory without pins and writers gives a page");
        let frame = &mut self.frames[no.0 as usize];
        frame.turn += 1;
        let accesses = if frame.reused { ACCESSES_MAX } else { frame.accesses };
        Left { id: self.slots.remove(no.0), accesses, dirty: frame.dirty }
    }

    fn next_victim(&mut self) -> Option<FrameNo> {
        let frames = &self.frames;
        let victim = self.queues.next_victim(|no, turn| {
            let frame = &frames[no.0 as usize];
            FrameReport { stale: frame.turn != turn, accesses: frame.accesses, evictable: true }
        });
        for no in self.queues.cooled.drain(..) {
            let frame = &mut self.frames[no.0 as usize];
            (frame.accesses, frame.reused) = (0, true);
        }
        victim
    }
}
