//! The object buffer's slab: 16 KiB slots in the file `pages` on the volume.
//!
//! The map knows which slots are free (`map::slots`). A slot is only ever written while it is free, so a torn write destroys
//! nothing needed; [`ObjectBuffer::sync`] comes before the map names it.
//!
//! A caller that copies the slab while it is in use learns which slots are written meanwhile ([`ObjectBuffer::watch`]).

use crate::address::Slot;
use crate::page::PAGE_SIZE;
use crate::planted;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::{Class, Disk, DiskError, File, Op};

mod written;

pub use written::Written;

pub const FILE: &str = "pages";
/// The file grows in steps of this many slots (16 MiB); if the device has no space for that, down to the second number.
const GROWTH: u64 = 1024;
const GROWTH_MIN: u64 = 16;

/// Maximum number of neighbouring slots that one request writes: 256 KiB, which cloud volumes count as one request.
const RUN: usize = 16;

/// How many of the first slots are contiguous, at most `RUN`.
fn run_of(slots: &[Slot]) -> usize {
    1 + slots.windows(2).take(RUN - 1).take_while(|two| two[1].0 == two[0].0 + 1).count()
}

pub struct ObjectBuffer {
    file: Arc<dyn File>,
    /// Slots that the file has space for.
    grown: Mutex<u64>,
    /// Records the written slots, if a copy watches.
    watch: RwLock<Option<Arc<Written>>>,
    /// The number of syncs requested.
    asked: AtomicU64,
    synced: Mutex<Synced>,
}

/// One sync at a time: with two at once, the kernel may report a failed write-back to one of them only, and the other would rely
/// on lost data.
#[derive(Default)]
struct Synced {
    /// Writers whose request number is up to this have their writes on the device.
    upto: u64,
    failed: Option<DiskError>,
}

/// Creates the slab's file, empty. Durable when it returns.
pub fn create(volume: &dyn Disk) -> Result<(), DiskError> {
    volume.create(FILE)?.sync(Class::PageFlush)
}

impl ObjectBuffer {
    pub fn open(volume: &dyn Disk) -> Result<ObjectBuffer, DiskError> {
        let file = volume.open(FILE)?;
        let grown = file.len() / PAGE_SIZE as u64;
        Ok(ObjectBuffer {
            file,
            grown: Mutex::new(grown),
            watch: RwLock::default(),
            asked: AtomicU64::new(0),
            synced: Mutex::default(),
        })
    }

    /// Slots that the file has space for.
    pub fn grown(&self) -> u32 {
        *self.grown.lock() as u32
    }

    /// Grows the file for more slots, but no more than `total`. Returns their number.
    pub fn grow(&self, total: u32) -> Result<u32, DiskError> {
        let mut grown = self.grown.lock();
        let mut step = GROWTH;
        loop {
            let to = (*grown + step).min(u64::from(total)).max(*grown);
            match self.file.allocate(to * PAGE_SIZE as u64) {
                Ok(()) => {
                    *grown = to;
                    return Ok(to as u32);
                }
                Err(DiskError::Full { .. }) if step > GROWTH_MIN => step /= 8,
                Err(error) => return Err(error),
            }
        }
    }

    /// Truncates the file after the first `total` slots. No thread reads or writes there. Not durable: after a crash the file may
    /// still be longer.
    pub fn shrink(&self, total: u32) -> Result<(), DiskError> {
        let mut grown = self.grown.lock();
        if *grown > u64::from(total) {
            self.file.shrink(u64::from(total) * PAGE_SIZE as u64)?;
            *grown = u64::from(total);
        }
        Ok(())
    }

    fn offset(slot: Slot) -> u64 {
        u64::from(slot.0) * PAGE_SIZE as u64
    }

    /// Fills `buf` from a slot, without checking it.
    pub fn read(&self, slot: Slot, buf: &mut [u8]) -> Result<(), DiskError> {
        self.file.read(Class::PageRead, ObjectBuffer::offset(slot), buf)
    }

    /// Fills one page-sized part of `buf` from each slot, with many reads in flight.
    pub fn read_many(&self, slots: &[Slot], buf: &mut [u8]) -> Vec<Result<(), DiskError>> {
        self.read_into(slots, buf.chunks_exact_mut(PAGE_SIZE).collect())
    }

    /// Fills one image from each slot, in one batch; one result a slot.
    pub fn read_into(&self, slots: &[Slot], images: Vec<&mut [u8]>) -> Vec<Result<(), DiskError>> {
        let mut ops: Vec<Op<'_>> = slots
            .iter()
            .zip(images)
            .map(|(slot, buf)| Op::Read { offset: ObjectBuffer::offset(*slot), buf })
            .collect();
        self.file.batch(Class::PageRead, &mut ops)
    }

    /// Writes one image from `images` to each slot, and grows the file if needed. Not durable yet.
    pub fn write_many(&self, slots: &[Slot], images: &[u8]) -> Result<(), DiskError> {
        let need = slots.iter().map(|s| u64::from(s.0) + 1).max().unwrap_or(0);
        {
            let mut grown = self.grown.lock();
            if need > *grown {
                let to = need.next_multiple_of(GROWTH);
                self.file.grow(to * PAGE_SIZE as u64, false)?;
                *grown = to;
            }
        }
        let written = ObjectBuffer::write_images(&*self.file, slots, images);
        // After the write: a copy that reads before it gets the old content, and is told to read again.
        self.watch
            .read()
            .iter()
            .filter(|_| !planted::WRITTEN_NOT_NOTED.on())
            .for_each(|watch| watch.note(slots));
        written
    }

    /// From now on every written slot is recorded, when it is written and before anything names it. `slots`: the number of slots.
    /// One watcher at a time.
    pub fn watch(&self, slots: u32) -> Arc<Written> {
        let written = Arc::new(Written::new(slots));
        *self.watch.write() = Some(written.clone());
        written
    }
    pub fn end_watch(&self) {
        *self.watch.write() = None;
    }

    /// Fills `images` from the slots, ascending, for a copy of them: neighbours in one request, at lower priority than reads that
    /// a thread waits for. Slots beyond the file's end were never written: they are left out, from the end. Returns how many were
    /// read. A slot that is written meanwhile may be torn.
    pub fn read_for_copy(&self, slots: &[Slot], images: &mut [u8]) -> Result<usize, DiskError> {
        let room = self.file.len() / PAGE_SIZE as u64;
        let there = slots.partition_point(|slot| u64::from(slot.0) < room);
        let mut ops = Vec::new();
        let (mut rest, mut images) = (&slots[..there], images);
        while !rest.is_empty() {
            let run = run_of(rest);
            let (buf, more) = images.split_at_mut(run * PAGE_SIZE);
            ops.push(Op::Read { offset: ObjectBuffer::offset(rest[0]), buf });
            (rest, images) = (&rest[run..], more);
        }
        self.file.batch(Class::CopyRead, &mut ops).into_iter().collect::<Result<(), DiskError>>()?;
        Ok(there)
    }

    /// Writes one image from `images` to each slot of a slab's file that is long enough: this volume's, or a copy's. Not durable
    /// yet.
    pub fn write_images(file: &dyn File, slots: &[Slot], images: &[u8]) -> Result<(), DiskError> {
        let mut ops = Vec::new();
        let (mut rest, mut images) = (slots, images);
        while !rest.is_empty() {
            let run = run_of(rest);
            let (buf, more) = images.split_at(run * PAGE_SIZE);
            ops.push(Op::Write { offset: ObjectBuffer::offset(rest[0]), buf });
            (rest, images) = (&rest[run..], more);
        }
        file.batch(Class::PageFlush, &mut ops).into_iter().collect()
    }

    /// Makes completed writes durable. A failure is final, whatever the cause, and for all later callers: nothing retries a sync.
    /// Callers that arrive while a sync is in progress share the next one.
    pub fn sync(&self) -> Result<(), DiskError> {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut synced = self.synced.lock();
        if let Some(error) = &synced.failed {
            return Err(error.clone());
        }
        if synced.upto >= mine {
            return Ok(());
        }
        let covers = self.asked.load(Ordering::SeqCst);
        let done = self.file.sync(Class::PageFlush).map_err(|error| match error {
            DiskError::Full { name, what } => {
                DiskError::Failed { name, what, offset: 0, len: 0, cause: "the device is full".into() }
            }
            error => error,
        });
        match &done {
            Ok(()) => synced.upto = covers,
            Err(error) => synced.failed = Some(error.clone()),
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failed_sync_no_write_is_reported_durable() {
        let disk = terrace_sim::SimWorld::new(1).disk("volume");
        create(&*disk).unwrap();
        let buffer = ObjectBuffer::open(&*disk).unwrap();
        buffer.sync().unwrap();
        disk.faults().fail_class(Class::PageFlush, true);
        assert!(buffer.sync().is_err());
        disk.faults().fail_class(Class::PageFlush, false);
        // The disk would report success.
        buffer.file.sync(Class::PageFlush).unwrap();
        assert!(buffer.sync().is_err());
    }

    #[test]
    fn slots_side_by_side_are_one_request_each_image_in_its_place() {
        let disk = terrace_sim::SimWorld::new(1).disk("volume");
        create(&*disk).unwrap();
        let buffer = ObjectBuffer::open(&*disk).unwrap();
        let slots: Vec<Slot> = (5..40).chain([50, 49, 60, 61]).map(Slot).collect();
        let mut runs = Vec::new();
        let mut rest = &slots[..];
        while !rest.is_empty() {
            runs.push(run_of(rest));
            rest = &rest[run_of(rest)..];
        }
        assert_eq!(runs, [16, 16, 3, 1, 1, 2]);
        let images: Vec<u8> = slots.iter().flat_map(|slot| [slot.0 as u8; PAGE_SIZE]).collect();
        buffer.write_many(&slots, &images).unwrap();
        for slot in slots {
            let mut image = [0; PAGE_SIZE];
            buffer.read(slot, &mut image).unwrap();
            assert!(image == [slot.0 as u8; PAGE_SIZE], "slot {}", slot.0);
        }
    }
}
