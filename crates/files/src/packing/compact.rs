//! Compaction: blocks with few live files, and short ones, are made one.
//!
//! The live files of the chosen blocks are read, checked, and written as a new block of a higher generation. A file that was packed anew or evicted while
//! that went on is not live in the new block: its place in the index is no longer the one it was read from. The chosen blocks stay on flash until the new
//! one is written (`Packs::retire`).

use super::block::{self, Item, Tail};
use super::index::{BlockNumber, Index, Place};
use super::seal::Sealing;
use super::{Cache, Packs, count, mark_of};
use crate::planted;
use terrace::flash::Offered;

/// Blocks with fewer live files than this, of a hundred, are rebuilt.
const LIVE_PERCENT: usize = 50;
/// Short blocks that are worth a compaction by their number alone, and the most that one takes.
const SHORT_BLOCKS: usize = 8;
const BLOCKS_MAX: usize = 64;

/// What to make one block of. Pure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Chosen {
    Nothing,
    /// These have no live file.
    Empty(Vec<BlockNumber>),
    Blocks(Vec<(BlockNumber, u64)>),
}

pub(super) fn choose(index: &Index, block_bytes: usize) -> Chosen {
    let empty: Vec<BlockNumber> =
        index.numbers().filter(|(_, block)| block.live_count == 0).map(|(number, _)| number).collect();
    if !empty.is_empty() {
        return Chosen::Empty(empty);
    }
    let mut candidates: Vec<_> = index
        .numbers()
        .filter(|(_, block)| block.live_percent() < LIVE_PERCENT || block.len < block_bytes / 2)
        .collect();
    // What was packed one after the other is near by its paths, too.
    candidates.sort_by_key(|(_, block)| block.generation);
    let (mut chosen, mut live, mut all) = (Vec::new(), 0, 0);
    for (number, block) in candidates.into_iter().take(BLOCKS_MAX) {
        let of_block = block.len * block.live_percent().max(1) / 100;
        if live + of_block > block_bytes && !chosen.is_empty() {
            break;
        }
        live += of_block;
        all += block.len;
        chosen.push((number, block.generation));
    }
    let frees_much = live * 100 < all * LIVE_PERCENT;
    let fills_much = chosen.len() > 1 && (live * 2 >= block_bytes || chosen.len() >= SHORT_BLOCKS);
    if frees_much || fills_much { Chosen::Blocks(chosen) } else { Chosen::Nothing }
}

/// A block that is made of others, and where its files were.
pub(super) struct Compacting {
    pub sealing: Sealing,
    places: Vec<Place>,
    chosen: Vec<(BlockNumber, u64)>,
}

impl Packs {
    /// Makes one block of several, if there is a reason. Returns true if it did something.
    pub(super) fn compact(&self, cache: &Cache) -> bool {
        let block_bytes = self.shares.block.min(cache.value_bytes_max());
        let chosen = choose(&self.state.lock().index, block_bytes);
        match chosen {
            Chosen::Nothing => false,
            Chosen::Empty(numbers) => {
                let mut state = self.state.lock();
                let is_empty = |number: &BlockNumber| {
                    state.index.block(*number).is_some_and(|block| block.live_count == 0)
                };
                let gone: Vec<BlockNumber> = numbers.into_iter().filter(is_empty).collect();
                for number in gone {
                    state.index.drop_block(number);
                    state.retired.push_back(number);
                }
                true
            }
            Chosen::Blocks(chosen) => {
                let Some(compacting) = self.begin_compaction(cache, &chosen, block_bytes) else {
                    return false;
                };
                match self.offer(cache, &compacting.sealing) {
                    Offered::Queued => {
                        self.end_compaction(cache, compacting);
                        true
                    }
                    _ => false,
                }
            }
        }
    }

    /// Reads the live files of the blocks. None: nothing of them is left.
    pub(super) fn begin_compaction(
        &self,
        cache: &Cache,
        chosen: &[(BlockNumber, u64)],
        block_bytes: usize,
    ) -> Option<Compacting> {
        let mut found: Vec<(Item, Place)> = Vec::new();
        let (mut taken, mut sum) = (Vec::new(), 0);
        for (number, generation) in chosen {
            let live = self.live_files(cache, *number, *generation);
            let bytes: usize = live.iter().map(|(item, _)| item.packed_bytes()).sum();
            // Those that do not fit stay for another time.
            if !taken.is_empty() && sum + bytes > block_bytes - block_bytes / 64 {
                break;
            }
            sum += bytes;
            taken.push((*number, *generation));
            found.extend(live);
        }
        found.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        let (items, places): (Vec<Item>, Vec<Place>) = found.into_iter().unzip();
        if items.is_empty() {
            taken.iter().for_each(|(number, generation)| self.drop_block(cache, *number, *generation));
            return None;
        }
        Some(Compacting { sealing: self.make(cache, items)?, places, chosen: taken })
    }

    /// The files of a block that are live and intact. A block that is not is dropped.
    fn live_files(&self, cache: &Cache, number: BlockNumber, generation: u64) -> Vec<(Item, Place)> {
        let value = cache.find(self.key(number), generation);
        let footer = value.as_ref().map(|value| block::decode(u64::from(number), value.len(), value));
        let (Some(value), Some(Tail::Whole(footer))) = (value, footer) else {
            self.drop_block(cache, number, generation);
            return Vec::new();
        };
        let live = |at: usize| {
            let place = Place { block: number, at: at as u32 };
            let (path, entry) = (footer.path(at)?, footer.entry(at)?);
            let is_live = self.state.lock().index.find(mark_of(&path)) == Some(place);
            let bytes = value.get(entry.bytes.clone()).filter(|_| is_live)?;
            let item = Item { path: path.into(), version: entry.version, bytes: bytes.into() };
            footer.proves(&entry, &item.path, bytes).then_some((item, place))
        };
        (0..footer.len()).filter_map(live).collect()
    }

    /// The cache has the new block.
    pub(super) fn end_compaction(&self, cache: &Cache, compacting: Compacting) {
        let Compacting { sealing, places, chosen } = compacting;
        count(&self.counters.compacted, chosen.len() as u64);
        let dropped = {
            let mut state = self.state.lock();
            let mark = |(item, place): (&Item, &Place)| {
                let mark = mark_of(&item.path);
                let is_current = state.index.find(mark) == Some(*place);
                (is_current || planted::COMPACTED_OVER_NEWER.on()).then_some(mark)
            };
            let marks: Vec<Option<u64>> = sealing.items.iter().zip(&places).map(mark).collect();
            let dropped = state.index.insert(sealing.number, sealing.generation, sealing.bytes.len(), &marks);
            for (number, generation) in chosen {
                if state.index.block(number).is_some_and(|block| block.generation == generation) {
                    state.index.drop_block(number);
                    state.retired.push_back(number);
                }
            }
            dropped
        };
        dropped.into_iter().for_each(|number| cache.invalidate(self.key(number)));
        if planted::COMPACTED_BLOCK_DROPPED_EARLY.on() {
            self.retire(cache, true);
        }
    }
}
