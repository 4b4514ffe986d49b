//! Moves pages from the end of the spill file to free slots at its front, so that the file can be truncated.
//!
//! A long-lived table may use the last slots of a file whose front was freed by others. Some of its images are read and written
//! to the front; then, while no thread reads, their pages get the new slots. Until then both slots stay taken, so neither is
//! allocated. If there are readers, or a page was freed meanwhile, it stays as it is.
//!
//! Locks: `reading`, only if it is free at once, then `slots`, for memory work.

use super::slots::{Home, Slot};
use super::{Spill, page};
use crate::address::Tier;
use crate::page::{PAGE_SIZE, PageId};
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, File, Op};

/// Number of pages moved at a time.
const MOVES: usize = 64;

/// One page being moved.
struct Move {
    id: PageId,
    from: Home,
    to: Slot,
}

impl Spill {
    /// Moves some pages from slots at or after `goal` to free ones before it. Returns true if any were moved. Only for the
    /// flusher, which takes slots.
    pub(super) fn move_down(&self, tier: Tier, goal: u32) -> bool {
        let Ok(file) = self.file(tier) else { return false };
        let moves = self.plan(tier, goal);
        if moves.is_empty() {
            return false;
        }
        let mut images = AlignedBuf::zeroed(moves.len() * PAGE_SIZE);
        let copied = copy(&*file, &moves, &mut images);
        // A reader has looked up its page's slot and reads it: the slot must not be reused meanwhile.
        let alone = self.reading.try_write().filter(|_| copied);
        let mut slots = self.slots.lock();
        // The spill space may have switched from flash to the volume meanwhile.
        let now = self.tier();
        let mut moved = 0;
        for Move { id, from, to } in moves {
            let stays = alone.is_none() || slots.home(id).is_none_or(|home| home.slot != from.slot);
            if stays {
                slots.release(to, now);
            } else {
                slots.set(id, Home { slot: to, tag: from.tag });
                slots.release(from.slot, now);
                moved += 1;
            }
        }
        moved > 0
    }

    /// Pages to move, each with its new slot.
    fn plan(&self, tier: Tier, goal: u32) -> Vec<Move> {
        let mut slots = self.slots.lock();
        let mut last: Vec<(PageId, Home)> = Vec::new();
        for (space, homes) in &slots.homes {
            let behind = homes.iter().zip(0u32..).filter_map(|(home, no)| Some(((*home)?, no)));
            let behind = behind.filter(|(home, _)| home.slot.tier == tier && home.slot.no >= goal);
            let room = MOVES - last.len();
            last.extend(behind.take(room).map(|(home, no)| (PageId::new(*space, no), home)));
            if last.len() == MOVES {
                break;
            }
        }
        let mut moves = Vec::with_capacity(last.len());
        for (id, from) in last {
            let Some(no) = slots.free.first().copied().filter(|no| *no < goal) else { break };
            slots.free.remove(&no);
            moves.push(Move { id, from, to: Slot { tier, no } });
        }
        moves
    }
}

/// Copies the images. Returns false, and nothing is moved, if one could not be read or written, or is not intact: a reader of the
/// page will get the error.
fn copy(file: &dyn File, moves: &[Move], images: &mut AlignedBuf) -> bool {
    let offset = |slot: Slot| u64::from(slot.no) * PAGE_SIZE as u64;
    let reads = moves.iter().zip(images.chunks_exact_mut(PAGE_SIZE));
    let mut reads: Vec<Op<'_>> =
        reads.map(|(m, buf)| Op::Read { offset: offset(m.from.slot), buf }).collect();
    let read = file.batch(Class::Spill, &mut reads).iter().all(|result| result.is_ok());
    drop(reads);
    let intact = |(m, image): (&Move, &[u8])| page::check(image, m.id, Some(m.from.tag)).is_ok();
    if !read || !moves.iter().zip(images.chunks_exact(PAGE_SIZE)).all(intact) {
        return false;
    }
    let writes = moves.iter().zip(images.chunks_exact(PAGE_SIZE));
    let mut writes: Vec<Op<'_>> = writes.map(|(m, buf)| Op::Write { offset: offset(m.to), buf }).collect();
    file.batch(Class::Spill, &mut writes).iter().all(|result| result.is_ok())
}
