//! A map page's image in memory: up to the last entry that was ever used. The rest of the page in its home is zeros.
//!
//! A page has room for fifteen blocks of one space, and most spaces have one block: a tree of up to 2 MiB takes 1.1 KiB of memory
//! in the map, not 16. An entry takes memory when it is first written, until the page is freed: a dropped space leaves only the
//! header.
//!
//! Invariant: the length is a header and whole entries. Reading past the end returns zeros (`page::PageRef`), so readers need not
//! know.

use super::entry::{ENTRIES, ENTRY};
use crate::page::{PAGE_HEADER, PAGE_SIZE, PageRef};
use crate::redo::PageMut;

/// See the file's header.
pub(crate) struct Image {
    bytes: Box<[u8]>,
}

static UNUSED: [u8; ENTRY] = [0; ENTRY];

const fn length(entries: usize) -> usize {
    PAGE_HEADER + entries * ENTRY
}

/// The number of entries up to the last one that was used.
fn used(page: &[u8]) -> usize {
    let entries = page[PAGE_HEADER..].chunks_exact(ENTRY);
    entries.rev().position(|entry| entry != UNUSED).map_or(0, |unused| ENTRIES as usize - unused)
}

impl Image {
    /// For a page that was never written.
    pub fn blank() -> Image {
        Image { bytes: vec![0; length(0)].into() }
    }

    /// From a whole page.
    pub fn of(page: &[u8]) -> Image {
        assert_eq!(page.len(), PAGE_SIZE);
        Image { bytes: page[..length(used(page))].into() }
    }

    pub fn page(&self) -> PageRef<'_> {
        PageRef::start_of(&self.bytes)
    }

    /// Bytes of memory.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the whole page over the content of `to`.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert_eq!(to.len(), PAGE_SIZE);
        let (start, rest) = to.split_at_mut(self.bytes.len());
        start.copy_from_slice(&self.bytes);
        if !crate::planted::END_OF_IMAGE_LEFT.on() {
            rest.fill(0);
        }
    }

    /// For a change of the header.
    pub fn head_mut<'a>(&'a mut self, ops: &'a mut Vec<u8>) -> PageMut<'a> {
        PageMut::start_of(&mut self.bytes, ops)
    }

    /// For a change of the header and of entries up to this one.
    pub fn entry_mut<'a>(&'a mut self, index: u32, ops: &'a mut Vec<u8>) -> PageMut<'a> {
        assert!(index < ENTRIES);
        let need = length(index as usize + 1);
        if self.bytes.len() < need {
            let mut longer = vec![0; need];
            longer[..self.bytes.len()].copy_from_slice(&self.bytes);
            self.bytes = longer.into();
        }
        self.head_mut(ops)
    }

    /// Formats the page again: its old content is discarded.
    pub fn clear(&mut self) {
        let mut head = vec![0; length(0)];
        head.copy_from_slice(&self.bytes[..length(0)]);
        self.bytes = head.into();
    }

    pub fn set_lsn(&mut self, lsn: crate::page::Glsn) {
        crate::page::set_lsn(&mut self.bytes, lsn);
    }
}

#[cfg(test)]
mod tests;
