//! What a reader that copies the log elsewhere needs of it (an archive): blocks that stay although the checkpoint has passed them, and when what
//! was appended.
//!
//! **The hold** names a block of each ring; it and the later ones stay until the hold moves. It never stops a writer: when the blocks from
//! the hold on take more than [`HELD_AT_MOST`] of a ring, it *breaks*, and the next checkpoint frees them. The reader finds that out and has a gap. That limit is
//! less than the share of the ring at which a checkpoint is wanted, so a hold neither slows writers nor asks for checkpoints.
//!
//! **Marks** say when: everything below `end` was appended at or before `ms`. There is one for each millisecond in which something was appended. They are in memory
//! only, [`MARKS_MAX`] of them; beyond that the newest one moves, so that what it says stays true, and only a time in between is known less exactly.

use crate::Glsn;
use std::collections::VecDeque;

/// Hundredths of a ring.
const HELD_AT_MOST: u64 = 37;
/// The reader is woken when a ring has one block in this many that it has not looked at.
const READ_AT: u64 = 16;
/// 16 bytes each.
pub const MARKS_MAX: usize = 1 << 14;

/// Everything below `end` was appended at or before `ms`, in milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub ms: u64,
    pub end: Glsn,
}

/// The hold, as a reader finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoldState {
    None,
    Holds,
    /// What it held may be written over.
    Broken,
}

pub(crate) struct Hold {
    /// What is below it may go; 0 until the reader has said.
    at: Glsn,
    /// A block sequence for each ring.
    starts: Vec<u64>,
    broken: bool,
    /// Where each ring stood when the reader looked last.
    looked: Vec<u64>,
    marks: VecDeque<Mark>,
}

impl Hold {
    pub fn new(starts: Vec<u64>) -> Hold {
        Hold { at: 0, looked: starts.clone(), starts, broken: false, marks: VecDeque::new() }
    }

    /// Something was appended up to `end`.
    pub fn note(&mut self, ms: u64, end: Glsn) {
        let full = self.marks.len() >= MARKS_MAX;
        match self.marks.back_mut() {
            // A clock that is put back does not put marks back.
            Some(last) if last.ms >= ms || full => *last = Mark { ms: last.ms.max(ms), end },
            _ => self.marks.push_back(Mark { ms, end }),
        }
    }
}

/// Where a ring is: the block that the next write begins with, and how many blocks it has.
pub(crate) type Place = (u64, u64);

impl Hold {
    /// What stays for the checkpoint's `starts` and the hold.
    pub fn keep(&self, starts: &mut [u64]) {
        if !self.broken && !crate::planted::HOLD_IGNORED.on() {
            starts.iter_mut().zip(&self.starts).for_each(|(start, held)| *start = (*start).min(*held));
        }
    }

    /// A write has ended, after which the rings are there. Whether the reader of the log is to look, and whether the hold broke.
    pub fn look(&mut self, rings: impl Iterator<Item = Place> + Clone) -> (bool, bool) {
        let (mut wanted, was_broken) = (false, self.broken);
        for (i, (next, blocks)) in rings.clone().enumerate() {
            self.broken |= (next - self.starts[i]) * 100 > blocks * HELD_AT_MOST;
            wanted |= (next - self.looked[i]) * READ_AT > blocks;
        }
        // Once, until it looks.
        if wanted {
            self.looked = rings.map(|(next, _)| next).collect();
        }
        (wanted, self.broken && !was_broken)
    }

    /// What lies below is not held.
    pub fn from(&self) -> Glsn {
        if self.broken { Glsn::MAX } else { self.at }
    }

    pub fn state(&self) -> HoldState {
        if self.broken { HoldState::Broken } else { HoldState::Holds }
    }

    /// It names these blocks, which a scan from `at` on needs. It holds again, if it was broken.
    pub fn move_to(&mut self, at: Glsn, starts: Vec<u64>) {
        (self.at, self.starts, self.broken) = (at, starts, false);
    }

    /// The marks up to `upto`, which are forgotten.
    pub fn take_marks(&mut self, upto: Glsn) -> Vec<Mark> {
        let n = self.marks.partition_point(|mark| mark.end <= upto);
        self.marks.drain(..n).collect()
    }
}

#[cfg(test)]
mod tests;
