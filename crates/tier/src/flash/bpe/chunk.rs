//! The flash file: slots of one page image each, grown sparsely in chunks of 64 MiB.
//!
//! A slot holds the page's image alone. Which slot is used is recorded in the index: in memory and, as a hint for the next start,
//! in a file (`saved`). Nothing is ever synced: an image found after a crash is served only if it is intact and current.
//! CloudJump III §4.1.3.

use super::index::FlashSlot;
use crate::page::PAGE_SIZE;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::{Class, Disk, DiskError, DiskLock, File, Op};

pub const FILE: &str = "bpe";
/// The file grows in steps of this many bytes.
pub const CHUNK: u64 = 64 << 20;

pub(crate) struct Chunks {
    file: Arc<dyn File>,
    /// Length of the file in bytes. Only the fill worker makes it longer.
    grown: AtomicU64,
    _lock: Box<dyn DiskLock>,
}

impl Chunks {
    /// Opens the flash directory. With `keep`, an existing file keeps its content; otherwise the file starts empty.
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

    /// The number of slots that lie fully within the file.
    pub fn slots(&self) -> u64 {
        self.grown() / PAGE_SIZE as u64
    }

    fn offset(slot: FlashSlot) -> u64 {
        u64::from(slot) * PAGE_SIZE as u64
    }

    /// The length of the file in bytes.
    pub fn grown(&self) -> u64 {
        self.grown.load(Ordering::Relaxed)
    }

    /// Truncates the file after the first `slots`, in whole chunks. No write is in progress there.
    pub fn shrink(&self, slots: u32) -> Result<(), DiskError> {
        let end = Chunks::offset(slots).next_multiple_of(CHUNK);
        if end < self.grown() {
            self.file.shrink(end)?;
            self.grown.store(end, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Fills `image` from a written slot, without checking it.
    pub fn read(&self, slot: FlashSlot, image: &mut [u8]) -> Result<(), DiskError> {
        self.file.read(Class::BpeRead, Chunks::offset(slot), image)
    }

    /// Fills each image from its slot, without checking, in one batch; one result each.
    pub fn read_many(&self, parts: Vec<(FlashSlot, &mut [u8])>) -> Vec<Result<(), DiskError>> {
        let mut ops: Vec<Op<'_>> = parts
            .into_iter()
            .map(|(slot, image)| Op::Read { offset: Chunks::offset(slot), buf: image })
            .collect();
        self.file.batch(Class::BpeRead, &mut ops)
    }

    /// Writes images in parallel; one result each.
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
