//! Replaying the archived log on a restored backup.
//!
//! The log's records are physical, but they cannot be put behind the restored volume's log as they are: its map's records name slots of the original's volume, which
//! are not copied. So they are *repeated*: each mini-transaction's changes of pages are made again, in the log's order, as a mini-transaction of the restored
//! instance, through its buffer pool and its own log. The map's records are left out, for the restored instance places its pages itself. What a page is
//! changed from is exactly what it was on the original, because the backup has everything up to the end of its own log and the archive everything from
//! there on; nothing has bypassed the log in between (`storage::archive`).
//!
//! **Where it is** stands in a page of its own ([`PROGRESS`]), which each of these mini-transactions changes, too. So a replay that is cut short, by a crash too, goes on where it
//! was, and changes nothing twice. At the end its space is dropped; before that the file [`REPLAYED`] says that all is done.
//!
//! Nothing is rolled back here: transactions that had not committed by the point are, by the first start, as after a crash.
//!
//! Memory: a stretch and the pool. One thread; workers flush, evict and sink beside it.

use super::{Goal, fetch};
use crate::config::{Bytes, Config};
use crate::error::{Error, Result};
use crate::offline::check::Progress;
use crate::storage::create::{REPLAYED, REPLAYING};
use crate::storage::recovery::worker;
use crate::storage::{Parts, Storage};
use crate::superblock::Superblock;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk};
use terrace_io::store::ObjectStore;
use terrace_log::record::RecordHeader;
use terrace_log::{Glsn, Redo, Urgency, record_bound};
use terrace_tier::address::Located;
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::pages::Pin;
use terrace_tier::memory::pool::Access;
use terrace_tier::objects::archive::Segment;
use terrace_tier::page::{PAGE_SIZE, PageId, PageKind, SpaceId};
use terrace_tier::redo;

/// No instance has this space, except while the log is replayed on it.
const SPACE: SpaceId = SpaceId(4);
const PROGRESS: PageId = PageId::new(SPACE, 0);
/// In the page: the position up to which all was repeated.
const POSITION: usize = 64;

/// What was done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// The point: the end of a mini-transaction.
    pub end: Glsn,
    /// Mini-transactions and bytes of their changes, in this call.
    pub ranges: u64,
    pub bytes: u64,
}

/// What a restore to a point that was cut short on this volume was for. None: there is none, or it is not yet restored.
pub fn unfinished(volume: &dyn Disk) -> Result<Option<Goal>> {
    if !volume.exists(REPLAYING)? || !volume.exists(crate::superblock::FILE)? {
        return Ok(None);
    }
    let file = volume.open(REPLAYING)?;
    let mut buf = AlignedBuf::zeroed(GOAL);
    if file.len() >= GOAL as u64 {
        file.read(Class::Superblock, 0, &mut buf)?;
    }
    let bad = |what| Error::Corrupt(format!("{}: {REPLAYING}: {what}", volume.describe()));
    Goal::decode(&buf).map(Some).map_err(bad)
}

/// Bytes of the file.
const GOAL: usize = 4096;

/// Keeps the goal on the volume; durable when it returns.
pub(in crate::offline) fn keep(volume: &dyn Disk, goal: &Goal) -> Result<()> {
    if volume.exists(REPLAYING)? {
        volume.remove(REPLAYING)?;
    }
    let text = goal.encode();
    let mut buf = AlignedBuf::zeroed(GOAL);
    let room =
        buf.get_mut(..text.len()).ok_or_else(|| Error::Invalid("the backup's name is too long".into()))?;
    room.copy_from_slice(&text);
    let file = volume.create(REPLAYING)?;
    file.grow(GOAL as u64, true)?;
    file.write(Class::Superblock, 0, &buf)?;
    file.sync(Class::Superblock)?;
    Ok(volume.sync_dir()?)
}

/// Brings the restored instance to the goal. Cut short, the same call goes on.
pub fn replay(
    parts: &Parts,
    goal: &Goal,
    segment: &Segment,
    archive: &dyn ObjectStore,
    progress: Progress<'_>,
) -> Result<Replayed> {
    let volume = parts.volume.clone();
    if volume.exists(REPLAYED)? {
        // Only what ends it is left to do.
        finish(&open(parts)?)?;
        unmark(&*volume)?;
        return Ok(Replayed { end: goal.upto, ..Replayed::default() });
    }
    let storage = open(parts)?;
    catch_up(&storage)?;
    let begun = storage.pages.exists(PROGRESS)?;
    let mut position = match begun {
        true => storage.pages.read(PROGRESS, Access::Internal)?.page().u64(POSITION),
        false => goal.base,
    };
    let (from, mut done) = (position, Replayed::default());
    for part in &segment.parts {
        let last = part.end.min(goal.upto);
        if last <= position {
            continue;
        }
        let stretch = fetch(archive, part)?;
        raise(&storage, stretch.transactions, stretch.spaces)?;
        stretch.each_range(&mut |range: &[(RecordHeader, &[u8])]| -> Result<bool> {
            let Some((first, _)) = range.first() else { return Ok(true) };
            if first.end() <= position {
                return Ok(true);
            }
            if first.end() > last {
                return Ok(false);
            }
            if first.first != position {
                return Err(Error::Corrupt(format!(
                    "the archived log goes on at {}, and the backup was brought to {position}",
                    first.first
                )));
            }
            done.bytes += repeat(&storage, range)?;
            (position, done.ranges) = (first.end(), done.ranges + 1);
            Ok(true)
        })?;
        progress("replaying the log", position - from, goal.upto - from);
    }
    if !crate::planted::REPLAYED_TOO_EARLY.on() {
        storage.log.make_durable(storage.log.appended())?;
    }
    let file = volume.create(REPLAYED)?;
    file.sync(Class::Superblock)?;
    volume.sync_dir()?;
    finish(&storage)?;
    drop(storage);
    unmark(&*volume)?;
    done.end = position;
    Ok(done)
}

fn open(parts: &Parts) -> Result<Storage> {
    let superblock = Superblock::read(&*parts.volume)?;
    let slots = Bytes(u64::from(superblock.slots) * PAGE_SIZE as u64);
    let least = Bytes(crate::config::OBJECT_BUFFER_MIN);
    let config = Config { object_buffer: slots.max(least), ..Config::default() };
    Storage::open_to_replay(&config, parts)
}

/// Applies the redo of the backup's own log. That of pages that are gone is needless: their spaces were dropped.
fn catch_up(storage: &Storage) -> Result<()> {
    while let Some(id) = storage.pending.next_page() {
        match worker::finish(&storage.pending, &storage.pages, id) {
            Ok(()) => {}
            Err(ReadError::BadRedo { .. }) if matches!(storage.map.locate(id), Located::Never) => {
                storage.pending.done_with(id)
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Ids that the records have are never given out again.
fn raise(storage: &Storage, transactions: u64, spaces: u32) -> Result<()> {
    let now = storage.checkpointer.superblock();
    if now.transactions >= transactions && now.spaces >= spaces {
        return Ok(());
    }
    storage.checkpointer.write_both(|s| {
        s.transactions = s.transactions.max(transactions);
        s.spaces = s.spaces.max(spaces);
    })
}

/// A page's changes, and what they make of it.
struct Change {
    id: PageId,
    ops: Vec<u8>,
    image: AlignedBuf,
    /// None: the page is created.
    pin: Option<Pin>,
}

/// Repeats a mini-transaction. Returns the bytes of its changes.
fn repeat(storage: &Storage, range: &[(RecordHeader, &[u8])]) -> Result<u64> {
    let pages = &storage.pages;
    let end = range.first().map_or(0, |(header, _)| header.end());
    let mut changes: Vec<Change> = Vec::with_capacity(range.len());
    for (header, ops) in range.iter().filter(|(header, _)| header.id.space != SpaceId::MAP) {
        let bad = |error: redo::BadRedo| {
            Error::Corrupt(format!("the archived log's record at {}: {error}", header.own))
        };
        if let Some(known) = changes.iter_mut().find(|change| change.id == header.id) {
            redo::apply_all(&mut known.image, header.id, ops).map_err(bad)?;
            known.ops.extend_from_slice(ops);
            continue;
        }
        let mut image = AlignedBuf::zeroed(PAGE_SIZE);
        let pin = match pages.load(header.id, Access::Normal) {
            Ok(pin) => {
                image.copy_from_slice(pin.read().page().bytes(0, PAGE_SIZE));
                Some(pin)
            }
            Err(ReadError::Absent(_)) if redo::starts_with_init(ops) => None,
            Err(error) => return Err(error.into()),
        };
        redo::apply_all(&mut image, header.id, ops).map_err(bad)?;
        changes.push(Change { id: header.id, ops: ops.to_vec(), image, pin });
    }
    if changes.is_empty() {
        return Ok(0);
    }
    let progress = match pages.exists(PROGRESS)? {
        true => Some(pages.load(PROGRESS, Access::Normal)?),
        false => None,
    };
    let mut created = usize::from(progress.is_none());
    for change in changes.iter().filter(|change| change.pin.is_none()) {
        pages.ask_room(1, change.id.space, Urgency::Normal).map_err(Error::from)?;
        created += 1;
    }
    let bytes: u64 = changes.iter().map(|change| change.ops.len() as u64).sum();
    let room: u64 = changes.iter().map(|change| record_bound(change.ops.len())).sum();
    let mut mtr = pages.begin(room + record_bound(64), created, Urgency::Normal)?;
    for change in &changes {
        let page = match &change.pin {
            Some(pin) => mtr.write_pinned(pin),
            None => mtr.create(change.id, PageKind::Free, 0),
        };
        mtr.replay(page, &change.image, &change.ops);
    }
    let page = match &progress {
        Some(pin) => mtr.write_pinned(pin),
        None => mtr.create(PROGRESS, PageKind::System, 0),
    };
    if !crate::planted::PROGRESS_NOT_KEPT.on() || progress.is_none() {
        mtr.page_mut(page).write_u64(POSITION, end);
    }
    mtr.commit();
    Ok(bytes)
}

/// The replay is done: closes the instance.
fn finish(storage: &Storage) -> Result<()> {
    catch_up(storage)?;
    storage.drop_space(SPACE)?;
    storage.close()?;
    storage.stop();
    Ok(())
}

/// The volume is an instance like any other from here on.
fn unmark(volume: &dyn Disk) -> Result<()> {
    volume.remove(REPLAYING)?;
    volume.sync_dir()?;
    volume.remove(REPLAYED)?;
    Ok(volume.sync_dir()?)
}
