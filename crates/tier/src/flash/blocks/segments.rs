//! Which segment a value goes to, and which segment is evicted: in memory, no I/O.
//!
//! The file is cut into segments of one size. Values are appended to the open segment; a full one is closed. When no segment is
//! free, the oldest closed one is evicted: of its values those used since they were written are moved to the open segment, up to half a
//! segment of them, and the others are dropped (FIFO with reinsertion). So flash is written in long runs and nothing is compacted
//! in place.
//!
//! Slot `s * per + i` is the `i`th value of segment `s`, so a slot's segment needs no memory. A slot is used again when its segment
//! is.
//!
//! A segment is in one state:
//!
//! | state | in | it |
//! | --- | --- | --- |
//! | free | `free` | was never used, may lie beyond the end of the file |
//! | ready | `ready` | is empty, the file has it, and it is opened next |
//! | open | `open` | takes values |
//! | closed | `closed`, oldest first | takes no more values; some may still be queued (`pending`) |
//! | evicted | nowhere | its used values are being moved; becomes ready, or free |
//!
//! Not here: directories (`directory`), what is written when (`worker`), locks (the owner's).

use crate::flash::core::Slots;
use crate::flash::table::{FlashSlot, Matches, Table};
use std::collections::VecDeque;
use terrace_io::SECTOR;

/// Values begin at multiples of this many bytes.
pub(super) const UNIT: u32 = 512;

/// The shape of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    /// Bytes of a segment, and of the directory at its start.
    pub bytes: u32,
    pub directory: u32,
    /// Values that a segment may have.
    pub per: u32,
    pub segments: u32,
}

impl Geometry {
    pub fn slots(&self) -> u32 {
        self.per * self.segments
    }
    pub fn segment_of(&self, slot: FlashSlot) -> u32 {
        slot / self.per
    }
    /// Where the segment begins in the file.
    pub fn offset(&self, segment: u32) -> u64 {
        u64::from(segment) * u64::from(self.bytes)
    }
    /// The longest record: two of them fit into a segment, so that an evicted segment can always move something.
    pub fn record_max(&self) -> u32 {
        (self.bytes - self.directory) / 2 / SECTOR as u32 * SECTOR as u32
    }
}

/// Where a record is: its start in the segment in units, and its length in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub at: u32,
    pub len: u32,
}

/// A record's room if it is written alone.
fn alone(len: u32) -> u32 {
    len.next_multiple_of(SECTOR as u32)
}

#[derive(Clone, Copy, Default)]
struct Segment {
    /// Counts up each time a segment is opened: the order of age.
    life: u64,
    /// Slots given out.
    taken: u32,
    /// The end of what was laid out, in bytes.
    end: u32,
    /// Values whose write has not ended.
    pending: u32,
    /// Values were written since the directory was.
    unsaved: bool,
    /// The device has no room for it.
    lost: bool,
}

pub(super) struct Segments {
    table: Table,
    extents: Vec<Extent>,
    segments: Vec<Segment>,
    pub geometry: Geometry,
    /// Lowest last.
    free: Vec<u32>,
    ready: Option<u32>,
    open: Option<u32>,
    closed: VecDeque<u32>,
    life: u64,
    /// A value found no room since the last segment was made ready.
    starved: bool,
    /// Segments that the device has no room for.
    lost: usize,
    /// Bytes of the open segment that are laid out, or promised to queued values as if each were written alone.
    promised: u32,
}

impl Segments {
    pub fn new(geometry: Geometry) -> Segments {
        Segments {
            table: Table::new(geometry.slots()),
            extents: vec![Extent::default(); geometry.slots() as usize],
            segments: vec![Segment::default(); geometry.segments as usize],
            geometry,
            free: (0..geometry.segments).rev().collect(),
            ready: None,
            open: None,
            closed: VecDeque::with_capacity(geometry.segments as usize),
            life: 0,
            starved: false,
            lost: 0,
            promised: 0,
        }
    }

    pub fn in_use(&self) -> u32 {
        self.table.in_use()
    }
    pub fn matches_any(&self, mark: u32) -> bool {
        !self.table.matches(mark).is_empty()
    }
    pub fn extent(&self, slot: FlashSlot) -> Extent {
        self.extents[slot as usize]
    }
    pub fn holds(&self, slot: FlashSlot, mark: u32) -> bool {
        self.table.holds(slot, mark)
    }
    fn slots_of(&self, segment: u32) -> std::ops::Range<FlashSlot> {
        segment * self.geometry.per..(segment + 1) * self.geometry.per
    }

    /// Segments without values, of how many that can be used.
    pub fn room(&self) -> (usize, usize) {
        (self.free.len() + usize::from(self.ready.is_some()), self.segments.len() - self.lost)
    }

    /// Gives a value a slot in the open segment, or in the ready one, which is opened then. The slot is in the table and busy. Returns None
    /// if neither has room.
    pub fn place(&mut self, mark: u32, len: u32) -> Option<FlashSlot> {
        let fits = |segment: &Segment, promised: u32, geometry: &Geometry| {
            segment.taken < geometry.per && promised + alone(len) <= geometry.bytes
        };
        let open = match self.open {
            Some(open) if fits(&self.segments[open as usize], self.promised, &self.geometry) => open,
            _ => {
                let Some(next) = self.ready.take() else {
                    self.starved = true;
                    return None;
                };
                self.close();
                self.life += 1;
                self.segments[next as usize] =
                    Segment { life: self.life, end: self.geometry.directory, ..Segment::default() };
                self.promised = self.geometry.directory;
                self.open = Some(next);
                next
            }
        };
        let segment = &mut self.segments[open as usize];
        let slot = open * self.geometry.per + segment.taken;
        segment.taken += 1;
        segment.pending += 1;
        self.promised += alone(len);
        self.extents[slot as usize] = Extent { at: 0, len };
        self.table.busy.set(slot, true);
        self.table.link(slot, mark);
        Some(slot)
    }

    /// The open segment takes no more values.
    pub fn close(&mut self) {
        self.closed.extend(self.open.take());
    }

    /// Lays out the records of these slots, all of one segment, one behind the other. Returns where they begin in the file and the
    /// length of all, in whole sectors. `queued` are the slots whose records are still to be laid out.
    pub fn lay_out(&mut self, slots: &[FlashSlot], queued: impl Iterator<Item = FlashSlot>) -> (u64, u32) {
        let Some(number) = slots.first().map(|slot| self.geometry.segment_of(*slot)) else { return (0, 0) };
        let begin = self.segments[number as usize].end;
        let mut end = begin;
        for slot in slots {
            let extent = &mut self.extents[*slot as usize];
            extent.at = end / UNIT;
            end += extent.len.next_multiple_of(UNIT);
        }
        let end = end.next_multiple_of(SECTOR as u32);
        assert!(end <= self.geometry.bytes, "segment {number} is laid out beyond its end");
        self.segments[number as usize].end = end;
        if self.open == Some(number) {
            let queued = queued.filter(|slot| self.geometry.segment_of(*slot) == number);
            self.promised = end + queued.map(|slot| alone(self.extents[slot as usize].len)).sum::<u32>();
        }
        (self.geometry.offset(number) + u64::from(begin), end - begin)
    }

    /// A record of the segment was written.
    pub fn written(&mut self, slot: FlashSlot) {
        self.segments[self.geometry.segment_of(slot) as usize].unsaved = true;
    }

    /// Whether a segment has to be made ready.
    pub fn needs_ready(&self) -> bool {
        self.ready.is_none()
    }
    /// The lowest free segment, which is no longer free.
    pub fn take_free(&mut self) -> Option<u32> {
        self.free.pop()
    }
    /// The empty segment can be opened.
    pub fn set_ready(&mut self, segment: u32) {
        self.starved = false;
        match self.ready {
            None => self.ready = Some(segment),
            Some(_) => self.free.push(segment),
        }
    }
    /// The device has no room for the segment, nor for more: those that were never used never will be.
    pub fn no_room(&mut self, segment: u32) {
        for free in self.free.drain(..).chain([segment]) {
            let lost = std::mem::replace(&mut self.segments[free as usize].lost, true);
            self.lost += usize::from(!lost);
        }
        if self.open == Some(segment) {
            self.close();
        }
    }

    /// Evicts the oldest closed segment: its values without uses are gone. Returns it with the others, as many as half a segment takes,
    /// which may be moved until `release`. None if no segment is closed, or the oldest still has queued values.
    pub fn evict(&mut self) -> Option<(u32, Vec<FlashSlot>)> {
        // Where only one segment can be used, it makes room for itself.
        if self.closed.is_empty() && self.starved {
            self.close();
        }
        let number = *self.closed.front()?;
        if self.segments[number as usize].pending > 0 {
            return None;
        }
        self.closed.pop_front();
        let (mut kept, mut room) = (Vec::new(), (self.geometry.bytes - self.geometry.directory) / 2);
        for slot in self.slots_of(number) {
            if !self.table.used.get(slot) {
                continue;
            }
            let needed = alone(self.extents[slot as usize].len);
            if self.table.uses(slot) > 0 && needed <= room {
                room -= needed;
                kept.push(slot);
            } else {
                self.remove(slot);
            }
        }
        Some((number, kept))
    }

    /// The fingerprint of a slot in use.
    pub fn mark_of(&self, slot: FlashSlot) -> Option<u32> {
        self.table.used.get(slot).then(|| self.table.marks[slot as usize])
    }

    /// What was not moved of an evicted segment is gone; the segment is ready.
    pub fn release(&mut self, segment: u32) {
        for slot in self.slots_of(segment) {
            self.remove(slot);
        }
        if !self.segments[segment as usize].lost {
            self.segments[segment as usize] = Segment::default();
            self.set_ready(segment);
        }
    }

    /// The fingerprint of the next value that would be evicted for a new one, as far as one can be named; None if none would be.
    pub fn candidate(&self) -> Option<u32> {
        if !self.free.is_empty() || self.ready.is_some() {
            return None;
        }
        let mut slots = self.slots_of(*self.closed.front()?);
        slots
            .find(|slot| self.table.used.get(*slot) && self.table.uses(*slot) == 0)
            .and_then(|slot| self.mark_of(slot))
    }

    /// A segment whose directory is older than its values: a closed one whose values are all written, or the open one if it is
    /// `due`. It counts as saved now.
    pub fn take_unsaved(&mut self, due: bool) -> Option<u32> {
        let closed = |number: &&u32| {
            let segment = &self.segments[**number as usize];
            segment.unsaved && (due || segment.pending == 0)
        };
        let open = self.open.filter(|open| due && self.segments[*open as usize].unsaved);
        let number = open.or_else(|| self.closed.iter().rev().find(closed).copied())?;
        self.segments[number as usize].unsaved = false;
        Some(number)
    }
    pub fn has_unsaved(&self) -> bool {
        self.segments.iter().any(|segment| segment.unsaved)
    }

    /// What the segment's directory says: its life, and for each slot the fingerprint and the place of a value on flash.
    pub fn directory(&self, segment: u32) -> (u64, Vec<Option<(u32, Extent)>>) {
        let entry = |slot: FlashSlot| {
            let on_flash = self.table.used.get(slot) && !self.table.busy.get(slot);
            on_flash.then(|| (self.table.marks[slot as usize], self.extents[slot as usize]))
        };
        (self.segments[segment as usize].life, self.slots_of(segment).map(entry).collect())
    }

    /// From now on segments are known only as far as `restore` tells.
    pub fn begin_restore(&mut self) {
        self.free.clear();
    }
    /// A segment's directory was read, or has none. Places outside the segment are ignored. Returns the number of values.
    pub fn restore(&mut self, segment: u32, found: Option<(u64, Vec<Option<(u32, Extent)>>)>) -> u32 {
        let Some((life, entries)) = found else {
            self.free.push(segment);
            return 0;
        };
        let before = self.table.in_use();
        self.life = self.life.max(life);
        self.segments[segment as usize] =
            Segment { life, taken: self.geometry.per, end: self.geometry.bytes, ..Segment::default() };
        for (slot, entry) in self.slots_of(segment).zip(entries) {
            let Some((mark, extent)) = entry else { continue };
            let begin = u64::from(extent.at) * u64::from(UNIT);
            let inside = begin >= u64::from(self.geometry.directory)
                && begin + u64::from(extent.len) <= u64::from(self.geometry.bytes);
            if inside && (super::record::HEADER as u32..=self.geometry.record_max()).contains(&extent.len) {
                self.extents[slot as usize] = extent;
                self.table.link(slot, mark);
            }
        }
        self.closed.push_back(segment);
        self.table.in_use() - before
    }
    /// All segments are known.
    pub fn end_restore(&mut self) {
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        let segments = &self.segments;
        self.closed.make_contiguous().sort_unstable_by_key(|number| segments[*number as usize].life);
    }

    /// Panics if the structures disagree. For tests.
    pub fn check_invariants(&self) {
        self.table.check_invariants();
        let mut seen = vec![false; self.segments.len()];
        for number in self.free.iter().chain(&self.ready).chain(&self.open).chain(&self.closed) {
            assert!(
                !std::mem::replace(&mut seen[*number as usize], true),
                "segment {number} is in two states"
            );
        }
        for number in self.free.iter().chain(&self.ready) {
            let empty =
                self.slots_of(*number).all(|slot| !self.table.used.get(slot) && !self.table.busy.get(slot));
            assert!(empty, "segment {number} is free and has values");
        }
        for (number, segment) in (0..).zip(&self.segments) {
            let busy = self.slots_of(number).filter(|slot| self.table.busy.get(*slot)).count();
            assert_eq!(busy, segment.pending as usize, "segment {number}: writes that have not ended");
        }
        if self.geometry.segments > 0 {
            assert!(self.promised <= self.geometry.bytes);
        }
    }
}

impl Slots for Segments {
    fn table(&mut self) -> &mut Table {
        &mut self.table
    }
    fn matches(&self, mark: u32) -> Matches {
        self.table.matches(mark)
    }
    fn is_busy(&self, slot: FlashSlot) -> bool {
        self.table.busy.get(slot)
    }
    fn remove(&mut self, slot: FlashSlot) {
        if self.table.used.get(slot) {
            self.table.unlink(slot);
        }
    }
    fn settle(&mut self, slot: FlashSlot) {
        assert!(self.table.busy.get(slot), "a write ended in flash slot {slot} that nobody writes");
        self.table.busy.set(slot, false);
        self.segments[self.geometry.segment_of(slot) as usize].pending -= 1;
    }
}
