//! One block's entry in the map: 1088 bytes, fifteen to a map page.
//!
//! The map page's owned header bytes: space u32 (0 = a free map page), group u32 (block / 15), and the LSN u64 that the page had
//! before its last change (0 in its first).
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 16 | lineage of the current object |
//! | 16 | 4 | its space (clones may share objects of another); with a patch object, that one's writer epoch |
//! | 20 | 4 | its block; with a patch object, bits 0 to 31 of that one's sequence |
//! | 24 | 4 | its writer epoch |
//! | 28 | 4 | flags: bit 0 modified since the last backup; bit 1 the block has a patch object, then in bits 2 to 14 the length of its body in units of 64 bytes, less one, and in bits 16 to 31 bits 32 to 47 of its sequence |
//! | 32 | 8 | its sequence; 0 = no object |
//! | 40 | 8 | its snapshot version |
//! | 48 | 16 | a bit for each page that the object has |
//! | 64 | 512 | a tag for each page; 0 = never written, or free |
//! | 576 | 128 | stored length of each page in the object, in units of 64 bytes, less one |
//! | 704 | 384 | slot of each page, plus one, 24 bits; 0 = none; from 0xE00001 on: the page is in the patch object |
//!
//! A patch object has the newest images of some of the block's pages; the block's object may have older images of them. A block
//! with a patch object also has an object, which belongs to the block itself and has the same lineage. For a page in the patch,
//! its place in the patch's body stands where its slot would: 0xE00001 + offset × 256 + length − 1, both in units of 64 bytes. So
//! a page is in its slot, or in the patch, or in the object, and the entry keeps its size. Patch objects exist from format
//! version 10 on.

use crate::address::{LENGTH_UNIT, ObjectKey, ObjectShape, PATCH_MAX, Slot, Stored};
use crate::page::{BLOCK_PAGES, BlockId, Glsn, PAGE_HEADER, PageRef, SpaceId, Tag, at::OWNED};
use crate::redo::PageMut;

pub const ENTRY: usize = 1088;
pub const ENTRIES: u32 = 15;
/// Blocks of a space whose pages have page numbers.
pub const BLOCKS: u32 = u32::MAX / BLOCK_PAGES + 1;

const PAGES: usize = BLOCK_PAGES as usize;

const SPACE: usize = 16;
const BLOCK: usize = 20;
const EPOCH: usize = 24;
const FLAGS: usize = 28;
const SEQUENCE: usize = 32;
const SNAPSHOT: usize = 40;
const PRESENT: usize = 48;
const TAGS: usize = 64;
const LENGTHS: usize = TAGS + 4 * PAGES;
const SLOTS: usize = LENGTHS + PAGES;

const MODIFIED: u32 = 1;
const PATCHED: u32 = 2;

const PATCH_UNITS: u32 = (PATCH_MAX / LENGTH_UNIT) as u32;
/// From this value on, a slot field is a place in the patch object.
const IN_PATCH: u32 = Slot::COUNT_MAX + 1;

const _: () = assert!(SLOTS + 3 * PAGES == ENTRY);
const _: () = assert!((PATCH_UNITS << 8) + IN_PATCH == 1 << 24 | 1 && PATCH_UNITS == 1 << 13);
const _: () = assert!(PAGE_HEADER + ENTRIES as usize * ENTRY == crate::page::PAGE_SIZE);

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

/// Where a page is in a patch object's body, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyRange {
    pub offset: usize,
    pub length: usize,
}

impl BodyRange {
    fn of(stored: u32) -> Option<BodyRange> {
        let at = stored.checked_sub(IN_PATCH)?;
        let (offset, length) = ((at >> 8) as usize, (at & 0xFF) as usize + 1);
        Some(BodyRange { offset: offset * LENGTH_UNIT, length: length * LENGTH_UNIT })
    }
    fn stored(self) -> u32 {
        assert!(self.offset.is_multiple_of(LENGTH_UNIT) && self.length.is_multiple_of(LENGTH_UNIT));
        assert!(self.length > 0 && self.offset + self.length <= PATCH_MAX);
        IN_PATCH + ((self.offset / LENGTH_UNIT) << 8 | (self.length / LENGTH_UNIT - 1)) as u32
    }
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
    fn stored_slot(self, i: usize) -> u32 {
        let b = self.page.bytes(self.at + SLOTS + 3 * i, 3);
        b.first().map_or(0, |_| u32::from_le_bytes([b[0], b[1], b[2], 0]))
    }
    pub fn slot(self, i: usize) -> Option<Slot> {
        self.stored_slot(i).checked_sub(1).map(Slot).filter(|slot| slot.0 < Slot::COUNT_MAX)
    }
    /// Where the page is in the patch object, if its newest image is there.
    pub fn in_patch(self, i: usize) -> Option<BodyRange> {
        BodyRange::of(self.stored_slot(i))
    }
    /// The patch object.
    pub fn patch(self) -> Option<ObjectKey> {
        let flags = self.flags();
        let object = self.object().filter(|_| flags & PATCHED != 0)?;
        let low = u64::from(self.page.u32(self.at + BLOCK));
        let (epoch, sequence) = (self.page.u32(self.at + SPACE), u64::from(flags >> 16) << 32 | low);
        Some(ObjectKey { epoch, sequence, ..object })
    }
    /// Bytes of everything in the patch object, including images that are no longer current; 0 if there is no patch.
    pub fn patch_body(self) -> usize {
        match self.flags() {
            flags if flags & PATCHED != 0 => ((flags >> 2 & (PATCH_UNITS - 1)) as usize + 1) * LENGTH_UNIT,
            _ => 0,
        }
    }
    fn flags(self) -> u32 {
        self.page.u32(self.at + FLAGS)
    }
    pub fn modified(self) -> bool {
        self.flags() & MODIFIED != 0
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
        let block = match self.flags() & PATCHED {
            0 => BlockId {
                space: SpaceId(self.page.u32(self.at + SPACE)),
                block: self.page.u32(self.at + BLOCK),
            },
            _ => self.block(),
        };
        (sequence != 0).then(|| ObjectKey {
            lineage: u128::from(self.page.u64(self.at)) | u128::from(self.page.u64(self.at + 8)) << 64,
            space: block.space,
            block: block.block,
            epoch: self.page.u32(self.at + EPOCH),
            sequence,
        })
    }
    /// The block that the entry describes.
    fn block(self) -> BlockId {
        let (space, group) = owner(self.page);
        let index = ((self.at - PAGE_HEADER) / ENTRY) as u32;
        BlockId { space, block: group.wrapping_mul(ENTRIES).wrapping_add(index) }
    }
    pub fn snapshot_version(self) -> u64 {
        self.page.u64(self.at + SNAPSHOT)
    }
    /// Where the page's bytes begin in the object's body.
    pub fn offset(self, i: usize) -> usize {
        (0..i).filter(|j| self.in_object(*j)).map(|j| self.length(j)).sum()
    }
    /// What the store has of the block.
    pub fn stored(self) -> Stored {
        let count = |has: &dyn Fn(usize) -> bool| (0..PAGES).filter(|i| has(*i)).count() as u32;
        Stored {
            pages: count(&|i| self.tag(i) != 0),
            patched: count(&|i| self.in_patch(i).is_some()),
            has_object: self.object().is_some(),
        }
    }
    /// Whether no page of the block has a current image.
    pub fn is_empty(self) -> bool {
        self.page.bytes(self.at + TAGS, 4 * PAGES).iter().all(|b| *b == 0)
    }
    pub fn is_unused(self) -> bool {
        self.page.bytes(self.at, ENTRY).iter().all(|b| *b == 0)
    }
    /// The inconsistencies of the entry by itself, and which of its pages they concern.
    pub fn fault(self) -> Option<(usize, &'static str)> {
        let has_object = self.object().is_some();
        let patch_body = self.patch_body();
        let of_page = (0..PAGES).find_map(|i| {
            let place = self.in_patch(i);
            let what = match (self.tag(i) != 0, self.slot(i).is_some() || place.is_some(), self.in_object(i))
            {
                (_, _, true) if !has_object => "is said to be in an object, but the block has none",
                (false, true, _) => "has a slot, or a place in a patch object, and no tag",
                (true, false, false) => "has a tag but neither slot nor object",
                _ if place.is_some_and(|at| at.offset + at.length > patch_body) => {
                    "is said to be in a patch object where there is none, or beyond its end"
                }
                _ => return None,
            };
            Some((i, what))
        });
        let patched = self.flags() & PATCHED != 0;
        let unnamed = patched && self.patch().is_none_or(|patch| patch.sequence == 0);
        of_page.or_else(|| unnamed.then_some((0, "is of a block whose patch object has no name")))
    }
}

/// The page's new image is in this slot.
pub fn set_slot(page: &mut PageMut<'_>, index: u32, i: usize, slot: Slot, tag: Tag) {
    assert!(tag != 0 && slot.0 < Slot::COUNT_MAX);
    let at = PAGE_HEADER + index as usize * ENTRY;
    page.write_u32(at + TAGS + 4 * i, tag);
    write_slot(page, at, i, slot.0 + 1);
    let entry = Entry::new(page.get(), index);
    if !entry.modified() {
        let flags = entry.flags() | MODIFIED;
        page.write_u32(at + FLAGS, flags);
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

/// The page's newest image is at this place in the patch object.
pub fn set_place(page: &mut PageMut<'_>, index: u32, i: usize, place: BodyRange) {
    write_slot(page, PAGE_HEADER + index as usize * ENTRY, i, place.stored());
}

/// The block's patch object becomes this one, in addition to its object.
pub fn set_patch(page: &mut PageMut<'_>, index: u32, patch: &ObjectShape) {
    let at = PAGE_HEADER + index as usize * ENTRY;
    let base = Entry::new(page.get(), index).object();
    assert!(base.is_some_and(|base| patch.can_patch(&base)), "no patch of this block: {}", patch.key);
    let units = (patch.body() / LENGTH_UNIT - 1) as u32;
    let flags = MODIFIED | PATCHED | units << 2 | ((patch.key.sequence >> 32) as u32) << 16;
    page.write_u32(at + FLAGS, flags);
    page.write_u32(at + SPACE, patch.key.epoch);
    page.write_u32(at + BLOCK, patch.key.sequence as u32);
}

/// No page of the block needs its objects any more.
pub fn clear_object(page: &mut PageMut<'_>, index: u32) {
    let at = PAGE_HEADER + index as usize * ENTRY;
    page.write_u64(at + SEQUENCE, 0);
    if Entry::new(page.get(), index).flags() & PATCHED != 0 {
        page.write_u32(at + FLAGS, MODIFIED);
    }
    page.write(at + PRESENT, &[0; PAGES / 8]);
}

fn write_slot(page: &mut PageMut<'_>, at: usize, i: usize, stored: u32) {
    page.write(at + SLOTS + 3 * i, &stored.to_le_bytes()[..3]);
}

/// The block's current object becomes this one; it has no patch object any more. The caller takes care of pages that were in the
/// patch.
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
