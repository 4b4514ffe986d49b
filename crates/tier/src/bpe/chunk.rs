//! The flash file: slots of one page image each, grown sparsely in chunks of 64 MiB.
//!
//! A slot is the page's image alone; which slot is used stands in the index, in memory and, as a hint for the
//! next start, in a file (`saved`). Nothing is ever synced: what a crash leaves is served only if it is intact and
//! current. CloudJump III §4.1.3.

use super::index::FlashSlot;
use crate::page::PAGE_SIZE;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::{Class, Disk, DiskError, DiskLock, File, Op};

pub const FILE: &str = "bpe";
/// The file grows by so many bytes at a time.
pub const CHUNK: u64 = 64 << 20;

pub(crate) struct Chunks {
    file: Arc<dyn File>,
    /// Length of the file in bytes. Only the fill worker makes it longer.
    grown: AtomicU64,
    _lock: Box<dyn DiskLock>,
}

impl Chunks {
    /// Takes the flash directory. With `keep`, what is in the file stays if there is one; else it begins empty.
    pub fn open(flash: &dyn Disk, lock: Box<dyn DiskLock>, keep: bool) -> Result<Chunks, DiskError> {
        let kept = if keep { flash.open(FILE).ok() } else { None };
        let file = match kept {
            Some(file) => file,
            None => {
                if flash.exists(FILE)? {
                    flash.remove(FILE)?;
                }
                flash.create(FILE)?
            }
        };
        Ok(Chunks { grown: AtomicU64::new(file.len()), file, _lock: lock })
    }

    /// Slots that the file has whole.
    pub fn slots(&self) -> u64 {
        self.grown() / PAGE_SIZE as u64
    }

    fn offset(slot: FlashSlot) -> u64 {
        u64::from(slot) * PAGE_SIZE as u64
    }

    /// Bytes of flash that the file spans.
    pub fn grown(&self) -> u64 {
        self.grown.load(Ordering::Relaxed)
    }

    /// Gives back what lies beyond the first `slots`, whole chunks of it. Nobody writes there.
    pub fn shrink(&self, slots: u32) -> Result<(), DiskError> {
        let end = Chunks::offset(slots).next_multiple_of(CHUNK);
        if end < self.grown() {
            self.file.shrink(end)?;
            self.grown.store(end, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Fills `image` from a slot that was written, unchecked.
    pub fn read(&self, slot: FlashSlot, image: &mut [u8]) -> Result<(), DiskError> {
        self.file.read(Class::BpeRead, Chunks::offset(slot), image)
    }

    /// Fills each image from its slot, unchecked, in one batch; one result each.
    pub fn read_many(&self, parts: Vec<(FlashSlot, &mut [u8])>) -> Vec<Result<(), DiskError>> {
        let mut ops: Vec<Op<'_>> = parts
            .into_iter()
            .map(|(slot, image)| Op::Read { offset: Chunks::offset(slot), buf: image })
            .collect();
        self.file.batch(Class::BpeRead, &mut ops)
    }

    /// Writes images side by side; one result each.
    pub fn write(&self, images: &[(FlashSlot, &[u8])]) -> Vec<Result<(), DiskError>> {
        let need = images.iter().map(|(slot, _)| Chunks::offset(slot + 1)).max().unwrap_or(0);
        let mut full = None;
        if need > self.grown() {
            match self.file.grow(need.next_multiple_of(CHUNK), false) {
                Ok(()) => self.grown.store(need.next_multiple_of(CHUNK), Ordering::Relaxed),
                Err(error) => full = Some(error),
            }
        }
        let fits = |slot: FlashSlot| Chunks::offset(slot + 1) <= self.grown();
        let mut ops: Vec<Op<'_>> = images
            .iter()
            .filter(|(slot, _)| fits(*slot))
            .map(|(slot, image)| Op::Write { offset: Chunks::offset(*slot), buf: image })
            .collect();
        let mut written = self.file.batch(Class::BpeFill, &mut ops).into_iter();
        images
            .iter()
            .map(|(slot, _)| match (&full, fits(*slot)) {
                (Some(error), false) => Err(error.clone()),
                _ => written.next().unwrap_or(Ok(())),
            })
            .collect()
    }
}
