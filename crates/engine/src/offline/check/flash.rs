//! The copies on flash. A start begins with an empty flash, so nothing depends on what a stopped instance left
//! there: a damaged copy is worth a note (the device may be failing), never a fault.

use super::{Progress, Report};
use crate::offline::instance::OfflineInstance;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, DiskError};
use terrace_tier::address::Located;
use terrace_tier::flash::bpe::chunk;
use terrace_tier::page::{self, PAGE_SIZE, PageRef};

#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub struct FlashReport {
    /// Slots that hold something.
    pub copies: u64,
    /// Intact and the very image that the map names.
    pub current: u64,
    /// Intact and of another time.
    pub stale: u64,
    pub damaged: u64,
}

const BATCH: usize = 64;

pub(super) fn check(look: &OfflineInstance, flash: &dyn Disk, progress: Progress<'_>, report: &mut Report) {
    let mut found = FlashReport::default();
    if let Err(error) = read(look, flash, progress, &mut found, report) {
        report.unchecked.add(format!("the flash {}: {error}", flash.describe()));
    }
    report.flash = Some(found);
}

fn read(
    look: &OfflineInstance,
    flash: &dyn Disk,
    progress: Progress<'_>,
    found: &mut FlashReport,
    report: &mut Report,
) -> Result<(), DiskError> {
    let _lock = flash.lock()?;
    if !flash.exists(chunk::FILE)? {
        return Ok(());
    }
    let file = flash.open(chunk::FILE)?;
    let all = file.len() / PAGE_SIZE as u64;
    let mut images = AlignedBuf::zeroed(BATCH * PAGE_SIZE);
    let mut at = 0;
    while at < all {
        if at % (16 * BATCH as u64) == 0 {
            progress("reading copies on flash", at, all);
        }
        let here = (all - at).min(BATCH as u64);
        let part = &mut images[..here as usize * PAGE_SIZE];
        if file.read(Class::BpeRead, at * PAGE_SIZE as u64, part).is_ok() {
            part.chunks_exact(PAGE_SIZE)
                .zip(at..)
                .for_each(|(image, slot)| one(look, image, slot, found, report));
        } else {
            for slot in at..at + here {
                let image = &mut images[..PAGE_SIZE];
                match file.read(Class::BpeRead, slot * PAGE_SIZE as u64, image) {
                    Ok(()) => one(look, image, slot, found, report),
                    Err(error) => {
                        found.copies += 1;
                        found.damaged += 1;
                        report.notes.add(format!("the copy in slot {slot} on flash: {error}"));
                    }
                }
            }
        }
        at += here;
    }
    Ok(())
}

fn one(look: &OfflineInstance, image: &[u8], slot: u64, found: &mut FlashReport, report: &mut Report) {
    if image.iter().all(|b| *b == 0) {
        return; // never written: the file is sparse
    }
    found.copies += 1;
    let id = PageRef::new(image).id();
    match page::check(image, id, None) {
        Ok(()) => match look.map.locate(id) {
            Located::At(home) if home.tag == PageRef::new(image).tag() => found.current += 1,
            _ => found.stale += 1,
        },
        Err(bad) => {
            found.damaged += 1;
            report
                .notes
                .add(format!("the copy in slot {slot} on flash is damaged or was torn by a crash: {bad}"));
        }
    }
}
