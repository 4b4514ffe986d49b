//! The map's two homes: loading at start, redo, writing at checkpoints.

use super::entry::{self, ENTRIES, Entry};
use super::image::Image;
use super::slots::Slots;
use super::{Inner, Map, MapError, MapPage};
use crate::page::{self, BLOCK_PAGES, BlockId, Glsn, PAGE_SIZE, PageId, PageRef, SpaceId};
use crate::redo;
use hashbrown::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, DiskError, File, Op};
use terrace_io::lock::RwLock;
use terrace_io::sched::Event;
use terrace_log::Redo;

/// The map's file on the volume.
pub const FILE: &str = "map";
/// Map pages that fit in a new file, and the step in which it grows.
const GROWTH: u64 = 64;
const BATCH: usize = 32;

/// Size of a file for this number of map pages, in bytes.
pub(super) fn room_for(pages: usize) -> u64 {
    (pages as u64).next_multiple_of(GROWTH) * 2 * PAGE_SIZE as u64
}

/// The map as it was read from its homes, before redo.
pub struct Loading {
    pages: Vec<MapPage>,
    file: Arc<dyn File>,
}

/// Creates the map's file. Durable when it returns.
pub fn create(volume: &dyn Disk) -> Result<(), DiskError> {
    let file = volume.create(FILE)?;
    file.grow(GROWTH * 2 * PAGE_SIZE as u64, true)?;
    file.sync(Class::MapWrite)
}

impl Loading {
    /// Reads both homes of every map page; the newest intact one counts.
    pub fn open(volume: &dyn Disk) -> Result<Loading, DiskError> {
        let file = volume.open(FILE)?;
        let count = file.len() / (2 * PAGE_SIZE as u64);
        let mut pages = Vec::with_capacity(count as usize);
        let mut buf = AlignedBuf::zeroed(2 * PAGE_SIZE);
        for number in 0..count {
            file.read(Class::MapRead, number * 2 * PAGE_SIZE as u64, &mut buf)?;
            pages.push(newest(PageId::new(SpaceId::MAP, number as u32), &buf));
        }
        Ok(Loading { pages, file })
    }

    /// Applies a record of the log to map page `number`.
    pub fn apply(&mut self, number: u32, ops: &[u8], first: Glsn, end: Glsn) -> Result<(), MapError> {
        // A new map page takes the next number, or an existing one.
        if number as usize > self.pages.len() {
            let what = format!("the log has it, but the {} before it are all there is", self.pages.len());
            return Err(MapError::Corrupt { page: number, what });
        }
        if number as usize == self.pages.len() {
            self.pages.push(MapPage {
                image: Image::blank(),
                first_change: None,
                home: 0,
                lost: false,
                torn: false,
                doubtful: false,
            });
        }
        let map_page = &mut self.pages[number as usize];
        let had = map_page.image.page().lsn();
        // If the log reaches back to this version or before it, it has all later changes; if it does not, the gap shows below.
        map_page.doubtful = false;
        if had >= end {
            return Ok(());
        }
        let mut whole = [0; PAGE_SIZE];
        map_page.image.copy_to(&mut whole);
        redo::apply(&mut whole, PageId::new(SpaceId::MAP, number), ops, end)
            .map_err(|e| MapError::Corrupt { page: number, what: e.to_string() })?;
        map_page.image = Image::of(&whole);
        // The home is older than the version that the log continues from: a newer one was lost (invariant 9).
        let gap = entry::before(map_page.image.page()) > had;
        map_page.lost = (map_page.lost || gap) && !redo::starts_with_init(ops);
        map_page.first_change.get_or_insert(first);
        Ok(())
    }

    /// The highest LSN of a map page: the log reaches at least this far (invariant 1).
    pub fn newest(&self) -> Glsn {
        self.pages.iter().map(|p| p.image.page().lsn()).max().unwrap_or(0)
    }

    /// See [`Map::digest`]. Before any redo.
    pub fn digest(&self) -> NonZeroU32 {
        digest(&self.pages)
    }

    /// Derives the index, the free map pages and the free slots; `slots` is the number of slots.
    pub fn finish(self, slots: u32, redo: Arc<dyn Redo>) -> Result<Map, MapError> {
        let mut inner = Inner {
            pages: self.pages,
            index: HashMap::new(),
            free_pages: Vec::new(),
            dropped: Default::default(),
            slots: Slots::new(slots),
            buffered: Default::default(),
        };
        for number in 0..inner.pages.len() as u32 {
            let map_page = &inner.pages[number as usize];
            if map_page.lost || map_page.doubtful {
                let mut what =
                    "a home is unreadable, and the log does not lead from what is left to the newest"
                        .to_string();
                let more: Vec<usize> = (number as usize + 1..inner.pages.len())
                    .filter(|n| inner.pages[*n].lost || inner.pages[*n].doubtful)
                    .collect();
                if !more.is_empty() {
                    what += &format!(
                        " (so with {} more map pages: {:?})",
                        more.len(),
                        &more[..more.len().min(100)]
                    );
                }
                return Err(MapError::Corrupt { page: number, what });
            }
            let page = map_page.image.page();
            let owner = entry::owner(page);
            if owner.0 == SpaceId::NONE {
                inner.free_pages.push(number);
                continue;
            }
            let corrupt = |what: String| Err(MapError::Corrupt { page: number, what });
            if owner.0 == SpaceId::MAP || owner.1 > (entry::BLOCKS - 1) / ENTRIES {
                return corrupt(format!("it says that it is of group {} of space {}", owner.1, owner.0));
            }
            for index in 0..ENTRIES {
                let entry = Entry::new(page, index);
                if owner.1 * ENTRIES + index >= entry::BLOCKS && !entry.is_unused() {
                    return corrupt(format!("its entry {index} is of a block that has no pages"));
                }
                if let Some((i, what)) = entry.fault() {
                    return corrupt(format!("in its entry {index} page {i} {what}"));
                }
                let block = BlockId { space: owner.0, block: owner.1 * ENTRIES + index };
                for (i, slot) in (0..BLOCK_PAGES as usize).filter_map(|i| Some((i, entry.slot(i)?))) {
                    inner.buffered.flushed(block, i, true, page.lsn());
                    if !inner.slots.claim(slot) {
                        let what = format!(
                            "slot {} is named twice, or lies beyond the object buffer of {slots} slots",
                            slot.0
                        );
                        return Err(MapError::Corrupt { page: number, what });
                    }
                }
                inner.buffered.has_stored(block, entry.stored());
            }
            if let Some(other) = inner.index.insert(owner, number) {
                let what = format!("page {other} holds the same blocks of space {}", owner.0);
                return Err(MapError::Corrupt { page: number, what });
            }
        }
        inner.free_pages.reverse();
        Ok(Map {
            inner: RwLock::new(inner),
            file: self.file,
            goal: u32::MAX.into(),
            redo,
            hold_hinders: false.into(),
            slots_freed: Event::new(),
            sunk: 0.into(),
            newest_home: 0.into(),
            pressure: u64::MAX.into(),
            slots_wanted: Arc::new(Event::new()),
        })
    }
}

/// Over the numbers and LSNs of the pages that were ever written.
fn digest(pages: &[MapPage]) -> NonZeroU32 {
    let lsns = pages.iter().map(|map_page| map_page.image.page().lsn()).enumerate();
    let crc = lsns.filter(|(_, lsn)| *lsn > 0).fold(0, |crc, (number, lsn)| {
        crc32c::crc32c_append(crc32c::crc32c_append(crc, &(number as u32).to_le_bytes()), &lsn.to_le_bytes())
    });
    NonZeroU32::new(crc).unwrap_or(NonZeroU32::MAX)
}

/// The newer of the two homes' intact images.
fn newest(id: PageId, homes: &[u8]) -> MapPage {
    let mut best: Option<(u8, PageRef<'_>)> = None;
    let mut bad: Option<PageRef<'_>> = None;
    for (home, image) in homes.chunks_exact(PAGE_SIZE).enumerate() {
        if page::check(image, id, None).is_ok() {
            let image = PageRef::new(image);
            if best.is_none_or(|(_, b)| b.lsn() < image.lsn()) {
                best = Some((home as u8, image));
            }
        } else if image.iter().any(|b| *b != 0) {
            bad = Some(PageRef::new(image));
        }
    }
    match best {
        Some((home, image)) => MapPage {
            image: Image::of(image.all()),
            first_change: None,
            home,
            lost: false,
            torn: bad.is_some(),
            doubtful: bad.is_some_and(|bad| bad.id() != id || bad.lsn() > image.lsn()),
        },
        // Never written, or torn during its first write: the log has its INIT.
        None => MapPage {
            image: Image::blank(),
            first_change: None,
            home: 0,
            lost: bad.is_some(),
            torn: bad.is_some(),
            doubtful: false,
        },
    }
}

impl Map {
    /// The first change that no home has: no checkpoint may pass it.
    pub fn oldest_unwritten(&self) -> Option<Glsn> {
        self.inner.read().pages.iter().filter_map(|p| p.first_change).min()
    }

    /// A digest of the map's homes, if they have all changes: over each page's number and LSN. With it the next start detects
    /// that the write of any page was lost, or that the file is from another time.
    pub fn digest(&self) -> Option<NonZeroU32> {
        let inner = self.inner.read();
        inner.pages.iter().all(|p| p.first_change.is_none()).then(|| digest(&inner.pages))
    }

    /// LSN of the newest page that was written to its home and synced since the start.
    pub fn newest_home(&self) -> Glsn {
        self.newest_home.load(Ordering::Acquire)
    }

    /// Writes every changed map page to the older of its homes and syncs. One caller at a time; no
    /// lock is held.
    pub fn write_homes(&self) -> Result<(), MapError> {
        let changed: Vec<u32> = {
            let inner = self.inner.read();
            (0..inner.pages.len() as u32)
                .filter(|n| inner.pages[*n as usize].first_change.is_some())
                .collect()
        };
        if changed.is_empty() {
            return Ok(());
        }
        let need = room_for(*changed.iter().max().unwrap_or(&0) as usize + 1);
        if self.file.len() < need {
            self.file.grow(need, true)?;
        }
        let mut written: Vec<(u32, u8, Glsn)> = Vec::new();
        for part in changed.chunks(BATCH) {
            let mut buf = AlignedBuf::zeroed(part.len() * PAGE_SIZE);
            let mut offsets = Vec::with_capacity(part.len());
            {
                let inner = self.inner.read();
                for (number, copy) in part.iter().zip(buf.chunks_exact_mut(PAGE_SIZE)) {
                    let map_page = &inner.pages[*number as usize];
                    map_page.image.copy_to(copy);
                    page::seal(copy);
                    let home =
                        if crate::planted::HOME_OVERWRITTEN.on() { map_page.home } else { 1 - map_page.home };
                    written.push((*number, home, PageRef::new(copy).lsn()));
                    offsets.push((u64::from(*number) * 2 + u64::from(home)) * PAGE_SIZE as u64);
                }
            }
            let newest = written.iter().map(|(_, _, lsn)| *lsn).max().unwrap_or(0);
            if terrace_log::planted::OWN_HORIZON_ONLY.on() {
                let ids: Vec<PageId> = part.iter().map(|n| PageId::new(SpaceId::MAP, *n)).collect();
                self.redo.make_durable_own(&ids, newest)?;
            } else if !crate::planted::PAGE_BEFORE_LOG.on() {
                self.redo.make_durable(newest)?; // invariant 1
            }
            let mut ops: Vec<Op<'_>> = offsets
                .iter()
                .zip(buf.chunks_exact(PAGE_SIZE))
                .map(|(offset, buf)| Op::Write { offset: *offset, buf })
                .collect();
            self.file.batch(Class::MapWrite, &mut ops).into_iter().collect::<Result<Vec<_>, _>>()?;
        }
        self.file.sync(Class::MapWrite)?;
        let mut inner = self.inner.write();
        for (number, home, lsn) in written {
            self.newest_home.fetch_max(lsn, Ordering::AcqRel);
            let map_page = &mut inner.pages[number as usize];
            map_page.home = home;
            let unchanged = map_page.image.page().lsn() == lsn;
            map_page.first_change = if unchanged { None } else { Some(lsn) };
        }
        Ok(())
    }
}
