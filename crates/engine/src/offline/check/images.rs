//! Every image that the map names: intact, of its page, the very one, and not ahead of the log.

use super::{Progress, Report, Tables};
use crate::offline::instance::{AT_ONCE, OfflineInstance, SILENT_MAX, no_object, side_by_side};
use crate::tree::space::check::NoPage;
use terrace_io::AlignedBuf;
use terrace_io::store::Purpose;
use terrace_tier::address::InObject;
use terrace_tier::address::ObjectKey;
use terrace_tier::address::Slot;
use terrace_tier::objects::object::format;
use terrace_tier::objects::object::{ObjectError, Objects};
use terrace_tier::page::{self, BlockId, PAGE_SIZE, PageId, PageRef, Tag};

/// Pages read at a time.
const BATCH: usize = 64;

pub(super) fn check(look: &OfflineInstance, tables: &Tables, progress: Progress<'_>, report: &mut Report) {
    report.begin_part();
    volume(look, tables, progress, report);
    report.begin_part();
    objects(look, tables, progress, report);
}

/// What is wrong with an image, if anything.
fn judge(look: &OfflineInstance, image: &[u8], id: PageId, tag: Tag) -> Option<String> {
    if let Err(bad) = page::check(image, id, Some(tag)) {
        return Some(bad.to_string());
    }
    let lsn = PageRef::new(image).lsn();
    (lsn > look.end).then(|| format!("it was written at {lsn}, but the log ends at {}", look.end))
}

fn fault(look: &OfflineInstance, tables: &Tables, report: &mut Report, id: PageId, place: &str, bad: &str) {
    if !look.is_reported(id) {
        look.reported(id);
        report.faults.add(format!("page {id}{} {place} is corrupt: {bad}", tables.of(id)));
    }
}

/// Slots in their order, many at a time.
fn volume(look: &OfflineInstance, tables: &Tables, progress: Progress<'_>, report: &mut Report) {
    let used = look.map.slots_in_use();
    let mut images = AlignedBuf::zeroed(BATCH * PAGE_SIZE);
    for (n, part) in used.chunks(BATCH).enumerate() {
        if n % 16 == 0 {
            progress("reading pages on the volume", (n * BATCH) as u64, used.len() as u64);
        }
        let slots: Vec<Slot> = part.iter().map(|(slot, ..)| *slot).collect();
        let read = look.buffer.read_many(&slots, &mut images[..part.len() * PAGE_SIZE]);
        for (((slot, id, tag), image), read) in part.iter().zip(images.chunks_exact(PAGE_SIZE)).zip(read) {
            report.pages_volume += 1;
            let bad = match read {
                Ok(()) => judge(look, image, *id, *tag),
                Err(error) => Some(error.to_string()),
            };
            if let Some(bad) = bad {
                fault(look, tables, report, *id, &format!("on the volume (slot {})", slot.0), &bad);
            }
        }
    }
}

/// Objects whole, several at a time, in the order of their blocks; those of which every page has a newer image, too.
fn objects(look: &OfflineInstance, tables: &Tables, progress: Progress<'_>, report: &mut Report) {
    let blocks = look.map.blocks_with_objects();
    let Some(objects) = &look.objects else {
        let far: u64 = blocks.iter().map(|block| in_object_only(look, *block).len() as u64).sum();
        report.pages_out_of_reach += far;
        if !blocks.is_empty() {
            let why = match &look.store_trouble {
                Some(trouble) => trouble.clone(),
                None => "give --object".to_string(),
            };
            let all = look.map.objects().len();
            report.unchecked.add(format!("{far} pages in {all} objects, {why}"));
        }
        return;
    };
    let (mut silent, mut far, mut first) = (0, (0, 0), None);
    for (n, part) in blocks.chunks(AT_ONCE).enumerate() {
        progress("reading objects", (n * AT_ONCE) as u64, blocks.len() as u64);
        let mut wanted: Vec<(BlockId, ObjectKey)> = Vec::new();
        for block in part {
            let state = look.map.block(*block);
            wanted.extend(state.object.into_iter().chain(state.patch).map(|key| (*block, key)));
        }
        let mut read = Vec::new();
        if silent < SILENT_MAX {
            read = side_by_side(&wanted, |(_, key)| objects.read_block(Purpose::Scrub, key));
        }
        let mut read = read.into_iter();
        for (block, key) in wanted {
            // Each object that is damaged is named, however many pages of the others are.
            report.begin_part();
            let answer = read.next().map(|read| object(look, objects, tables, (block, key), read, report));
            match answer {
                Some(Ok(())) => silent = 0,
                other => {
                    if let Some(Err(error)) = other {
                        silent += 1;
                        first.get_or_insert(error);
                    }
                    far = (far.0 + in_this_only(look, block, key).len() as u64, far.1 + 1);
                }
            }
        }
    }
    report.pages_out_of_reach += far.0;
    if let Some(error) = first {
        report.unchecked.add(format!("{} pages in {} objects: {error}", far.0, far.1));
    }
    if silent >= SILENT_MAX {
        look.give_up_store();
    }
}

/// The block's pages that are in its object, or in its patch object, alone.
pub(crate) fn in_object_only(look: &OfflineInstance, block: BlockId) -> Vec<(PageId, Tag, InObject)> {
    let homes = look.map.block(block).homes;
    let only = homes.into_iter().enumerate().filter_map(|(i, home)| {
        let home = home.filter(|home| home.slot.is_none())?;
        Some((block.page(i), home.tag, home.object?))
    });
    only.collect()
}

/// The number of those that are in this one of the block's objects.
pub(crate) fn in_this_only(
    look: &OfflineInstance,
    block: BlockId,
    key: ObjectKey,
) -> Vec<(PageId, Tag, InObject)> {
    let mut pages = in_object_only(look, block);
    pages.retain(|(.., at)| at.key == key);
    pages
}

/// Err: the store gives no answer, which says nothing about the object.
fn object(
    look: &OfflineInstance,
    objects: &Objects,
    tables: &Tables,
    (block, key): (BlockId, ObjectKey),
    read: Result<(format::Header, Vec<u8>), ObjectError>,
    report: &mut Report,
) -> Result<(), String> {
    let pages = in_this_only(look, block, key);
    match read {
        Ok((_, bytes)) => {
            report.objects += 1;
            each_page(look, objects, tables, &pages, &bytes, report);
            return Ok(());
        }
        Err(ObjectError::Store(error)) if no_object(&error) == NoPage::OutOfReach => {
            return Err(error.to_string());
        }
        Err(error) => {
            report.objects += 1;
            let lost = match pages.first() {
                Some((first, ..)) => {
                    format!("{} pages from page {first}{} on are only there", pages.len(), tables.of(*first))
                }
                None => format!("newer images of all its pages{} are elsewhere", tables.of(block.page(0))),
            };
            report.faults.add(format!("{error} ({lost})"));
            if matches!(error, ObjectError::Store(_)) {
                pages.iter().for_each(|(id, ..)| look.reported(*id));
                return Ok(());
            }
        }
    }
    // The object is damaged somewhere: which of its pages are?
    if let Ok(bytes) = objects.read_whole(Purpose::Scrub, &key) {
        each_page(look, objects, tables, &pages, &bytes, report);
    }
    Ok(())
}

fn each_page(
    look: &OfflineInstance,
    objects: &Objects,
    tables: &Tables,
    pages: &[(PageId, Tag, InObject)],
    bytes: &[u8],
    report: &mut Report,
) {
    let mut image = AlignedBuf::zeroed(PAGE_SIZE);
    for (id, tag, at) in pages {
        report.pages_object += 1;
        let begin = format::HEADER + at.offset;
        let bad = match bytes.get(begin..begin + at.length) {
            None => Some("the object is too short for it".to_string()),
            Some(stored) => match objects.packer.unpack(stored, &mut image) {
                Ok(()) => judge(look, &image, *id, *tag),
                Err(bad) => Some(bad.to_string()),
            },
        };
        if let Some(bad) = bad {
            fault(look, tables, report, *id, &format!("in object {}", at.key), &bad);
        }
    }
}
