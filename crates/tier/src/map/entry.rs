//! One block's entry in the map: 1088 bytes, fifteen to a map page.
//!
//! The map page's owned header bytes: space u32 (0 = a free map page), group u32 (block / 15), and
//! the LSN u64 that the page had before its last change (0 in its first).
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 16 | lineage of the current object |
//! | 16 | 4 | its space (clones may share objects of another) |
//! | 20 | 4 | its block |
//! | 24 | 4 | its writer epoch |
//! | 28 | 4 | flags: bit 0 modified since the last backup |
//! | 32 | 8 | its sequence; 0 = no object |
//! | 40 | 8 | its snapshot version |
//! | 48 | 16 | a bit for each page that the object has |
//! | 64 | 512 | a tag for each page; 0 = never written, or free |
//! | 576 | 128 | stored length of each page in the object, in units of 64 bytes, less one |
//! | 704 | 384 | slot of each page, plus one, 24 bits; 0 = none |

use crate::object::key::ObjectKey;
use crate::page::{BLOCK_PAGES, Glsn, PAGE_HEADER, PageRef, SpaceId, Tag, at::OWNED};
use crate::redo::PageMut;

pub const ENTRY: usize = 1088;
pub const ENTRIES: u32 = 15;
/// Blocks of a space whose pages have numbers.
pub const BLOCKS: u32 = u32::MAX / BLOCK_PAGES + 1;
/// Stored lengths are multiples of this, in bytes.
pub const LENGTH_UNIT: usize = 64;
const PAGES: usize = BLOCK_PAGES as usize;

const EPOCH: usize = 24;
const FLAGS: usize = 28;
const SEQUENCE: usize = 32;
const SNAPSHOT: usize = 40;
const PRESENT: usize = 48;
const TAGS: usize = 64;
const LENGTHS: usize = TAGS + 4 * PAGES;
const SLOTS: usize = LENGTHS + PAGES;

const MODIFIED: u32 = 1;

const _: () = assert!(SLOTS + 3 * PAGES == ENTRY);
const _: () = assert!(PAGE_HEADER + ENTRIES as usize * ENTRY == crate::page::PAGE_SIZE);

/// A place of 16 KiB in the object buffer's slab.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Slot(pub u32);

impl Slot {
    /// More slots than this cannot be named.
    pub const COUNT_MAX: u32 = (1 << 24) - 2;
}

/// The owner of a map page: which entries it holds.
pub fn owner(page: PageRef<'_>) -> (SpaceId, u32) {
    (SpaceId(page.u32(OWNED)), page.u32(OWNED + 4))
}

pub fn set_owner(page: &mut PageMut<'_>, space: SpaceId, group: u32) {
    page.write_u32(OWNED, space.0);
    page.write_u32(OWNED + 4, group);
}

/// The LSN that the map page had before its last change.
pub fn before(page: PageRef<'_>) -> Glsn {
    page.u64(OWNED + 8)
}

pub fn set_before(page: &mut PageMut<'_>, lsn: Glsn) {
    page.write_u64(OWNED + 8, lsn);
}

/// An object as the entry describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectShape {
    pub key: ObjectKey,
    pub snapshot_version: u64,
    /// Stored length of each page in bytes; 0 = not in the object.
    pub lengths: [u16; PAGES],
}

/// Reads one entry.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    page: PageRef<'a>,
    at: usize,
}

impl<'a> Entry<'a> {
    /// `index` is below [`ENTRIES`].
    pub fn new(page: PageRef<'a>, index: u32) -> Entry<'a> {
        Entry { page, at: PAGE_HEADER + index as usize * ENTRY }
    }
    pub fn tag(self, i: usize) -> Tag {
        self.page.u32(self.at + TAGS + 4 * i)
    }
    pub fn slot(self, i: usize) -> Option<Slot> {
        let b = self.page.bytes(self.at + SLOTS + 3 * i, 3);
        let stored = b.first().map_or(0, |_| u32::from_le_bytes([b[0], b[1], b[2], 0]));
        stored.checked_sub(1).map(Slot)
    }
    pub fn modified(self) -> bool {
        self.page.u32(self.at + FLAGS) & MODIFIED != 0
    }
    pub fn in_object(self, i: usize) -> bool {
        self.page.u8(self.at + PRESENT + i / 8) >> (i % 8) & 1 == 1
    }
    /// Stored length in bytes of a page that the object has.
    pub fn length(self, i: usize) -> usize {
        (usize::from(self.page.u8(self.at + LENGTHS + i)) + 1) * LENGTH_UNIT
    }
    pub fn object(self) -> Option<ObjectKey> {
        let sequence = self.page.u64(self.at + SEQUENCE);
        (sequence != 0).then(|| ObjectKey {
            lineage: u128::from(self.page.u64(self.at)) | u128::from(self.page.u64(self.at + 8)) << 64,
            space: SpaceId(self.page.u32(self.at + 16)),
            block: self.page.u32(self.at + 20),
            epoch: self.page.u32(self.at + EPOCH),
            sequence,
        })
    }
    pub fn snapshot_version(self) -> u64 {
        self.page.u64(self.at + SNAPSHOT)
    }
    /// Where the page's bytes begin in the object's body.
    pub fn offset(self, i: usize) -> usize {
        (0..i).filter(|j| self.in_object(*j)).map(|j| self.length(j)).sum()
    }
    /// No page of the block has a current image.
    pub fn is_empty(self) -> bool {
        self.page.bytes(self.at + TAGS, 4 * PAGES).iter().all(|b| *b == 0)
    }
    pub fn is_unused(self) -> bool {
        self.page.bytes(self.at, ENTRY).iter().all(|b| *b == 0)
    }
    /// What is wrong with the entry by itself, and with which of its pages.
    pub fn fault(self) -> Option<(usize, &'static str)> {
        let has_object = self.object().is_some();
        (0..PAGES).find_map(|i| {
            let what = match (self.tag(i) != 0, self.slot(i).is_some(), self.in_object(i)) {
                (_, _, true) if !has_object => "is said to be in an object, but the block has none",
                (false, true, _) => "has a slot and no tag",
                (true, false, false) => "has a tag but neither slot nor object",
                _ => return None,
            };
            Some((i, what))
        })
    }
}

/// The page's new image is in this slot.
pub fn set_slot(page: &mut PageMut<'_>, index: u32, i: usize, slot: Slot, tag: Tag) {
    assert!(tag != 0 && slot.0 <= Slot::COUNT_MAX);
    let at = PAGE_HEADER + index as usize * ENTRY;
    page.write_u32(at + TAGS + 4 * i, tag);
    write_slot(page, at, i, slot.0 + 1);
    if !Entry::new(page.get(), index).modified() {
        page.write_u32(at + FLAGS, MODIFIED);
    }
}

/// The page's image in the object is current: it needs no slot.
pub fn clear_slot(page: &mut PageMut<'_>, index: u32, i: usize) {
    write_slot(page, PAGE_HEADER + index as usize * ENTRY, i, 0);
}

/// No image of the page is current: it is free.
pub fn clear_page(page: &mut PageMut<'_>, index: u32, i: usize) {
    let at = PAGE_HEADER + index as usize * ENTRY;
    page.write_u32(at + TAGS + 4 * i, 0);
    write_slot(page, at, i, 0);
}

/// No page of the block needs its object.
pub fn clear_object(page: &mut PageMut<'_>, index: u32) {
    let at = PAGE_HEADER + index as usize * ENTRY;
    page.write_u64(at + SEQUENCE, 0);
    page.write(at + PRESENT, &[0; PAGES / 8]);
}

fn write_slot(page: &mut PageMut<'_>, at: usize, i: usize, stored: u32) {
    page.write(at + SLOTS + 3 * i, &stored.to_le_bytes()[..3]);
}

/// The block's current object becomes this one.
pub fn set_object(page: &mut PageMut<'_>, index: u32, object: &ObjectShape) {
    let at = PAGE_HEADER + index as usize * ENTRY;
    let mut head = [0; TAGS];
    head[..16].copy_from_slice(&object.key.lineage.to_le_bytes());
    head[16..20].copy_from_slice(&object.key.space.0.to_le_bytes());
    head[20..24].copy_from_slice(&object.key.block.to_le_bytes());
    head[EPOCH..EPOCH + 4].copy_from_slice(&object.key.epoch.to_le_bytes());
    head[FLAGS..FLAGS + 4].copy_from_slice(&MODIFIED.to_le_bytes());
    head[SEQUENCE..SEQUENCE + 8].copy_from_slice(&object.key.sequence.to_le_bytes());
    head[SNAPSHOT..SNAPSHOT + 8].copy_from_slice(&object.snapshot_version.to_le_bytes());
    let mut lengths = [0; PAGES];
    for (i, len) in object.lengths.iter().map(|l| usize::from(*l)).enumerate().filter(|(_, l)| *l > 0) {
        assert!(len.is_multiple_of(LENGTH_UNIT) && len <= crate::page::PAGE_SIZE);
        head[PRESENT + i / 8] |= 1 << (i % 8);
        lengths[i] = (len / LENGTH_UNIT - 1) as u8;
    }
    page.write(at, &head);
    page.write(at + LENGTHS, &lengths);
}
