//! Which packed block has which file, and which entries of each block are live. Pure; holds no paths: the footer of a block decides.
//!
//! A path is known by 64 bits of a hash. An entry is live as long as the index names it: another version of the path, or its eviction, clears its bit.
//! Of two blocks with the same path the one of the higher generation has it.

use hashbrown::HashMap;
use std::collections::VecDeque;

/// Memory of a file in the index, and of a block, in bytes.
pub const FILE_BYTES: usize = 50;
pub const BLOCK_BYTES: usize = 160;

pub type BlockNumber = u32;

/// Where a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub block: BlockNumber,
    pub at: u32,
}

pub struct Packed {
    pub generation: u64,
    /// Bytes of the value.
    pub len: usize,
    live: Box<[u64]>,
    marks: Box<[u64]>,
    pub live_count: usize,
    pub count: usize,
}

impl Packed {
    pub fn is_live(&self, at: usize) -> bool {
        self.live.get(at / 64).is_some_and(|bits| bits >> (at % 64) & 1 == 1)
    }

    /// The marks of the live files.
    pub fn live_marks(&self) -> impl Iterator<Item = u64> {
        self.marks.iter().enumerate().filter(|(at, _)| self.is_live(*at)).map(|(_, mark)| *mark)
    }

    /// The share of live files, in percent.
    pub fn live_percent(&self) -> usize {
        self.live_count * 100 / self.count.max(1)
    }
}

pub struct Index {
    files: HashMap<u64, Place>,
    blocks: Vec<Option<Packed>>,
    /// The oldest first; may name blocks that are gone.
    order: VecDeque<(BlockNumber, u64)>,
    files_max: usize,
    bytes: usize,
    count: usize,
}

impl Index {
    pub fn new(blocks_max: usize, files_max: usize) -> Index {
        let blocks = std::iter::repeat_with(|| None).take(blocks_max).collect();
        Index { files: HashMap::new(), blocks, order: VecDeque::new(), files_max, bytes: 0, count: 0 }
    }

    pub fn find(&self, mark: u64) -> Option<Place> {
        self.files.get(&mark).copied()
    }
    pub fn block(&self, number: BlockNumber) -> Option<&Packed> {
        self.blocks.get(number as usize)?.as_ref()
    }
    pub fn blocks_max(&self) -> usize {
        self.blocks.len()
    }
    /// Files that can be found, blocks, and their bytes.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.files.len(), self.count, self.bytes)
    }
    pub fn numbers(&self) -> impl Iterator<Item = (BlockNumber, &Packed)> {
        self.blocks.iter().enumerate().filter_map(|(number, block)| Some((number as u32, block.as_ref()?)))
    }

    /// A block with these files, by their marks in its order; None for one that is dead already. Files that a block of a higher generation has stay that
    /// block's. Returns the blocks that were dropped, as files or numbers are bounded.
    pub fn insert(
        &mut self,
        number: BlockNumber,
        generation: u64,
        len: usize,
        marks: &[Option<u64>],
    ) -> Vec<BlockNumber> {
        self.drop_block(number);
        let mut dropped = Vec::new();
        while self.files.len() + marks.len() > self.files_max
            && let Some((oldest, generation)) = self.order.pop_front()
        {
            if self.block(oldest).is_some_and(|block| block.generation == generation) {
                self.drop_block(oldest);
                dropped.push(oldest);
            }
        }
        let Some(place) = self.blocks.get_mut(number as usize) else { return dropped };
        let live = vec![0; marks.len().div_ceil(64)].into();
        let of_block = marks.iter().map(|mark| mark.unwrap_or(0)).collect();
        *place = Some(Packed { generation, len, live, marks: of_block, live_count: 0, count: marks.len() });
        self.count += 1;
        self.bytes += len;
        self.order.push_back((number, generation));
        for (at, mark) in marks.iter().enumerate() {
            let Some(mark) = mark else { continue };
            let newer = |place: &Place| self.block(place.block).is_some_and(|b| b.generation > generation);
            if self.files.get(mark).is_some_and(newer) {
                continue;
            }
            self.remove(*mark);
            self.files.insert(*mark, Place { block: number, at: at as u32 });
            if let Some(Some(block)) = self.blocks.get_mut(number as usize)
                && let Some(bits) = block.live.get_mut(at / 64)
            {
                *bits |= 1 << (at % 64);
                block.live_count += 1;
            }
        }
        dropped
    }

    /// The path has no packed file any more: its bit is cleared.
    pub fn remove(&mut self, mark: u64) -> bool {
        let Some(Place { block, at }) = self.files.remove(&mark) else { return false };
        if let Some(Some(block)) = self.blocks.get_mut(block as usize)
            && block.is_live(at as usize)
            && let Some(bits) = block.live.get_mut(at as usize / 64)
        {
            *bits &= !(1 << (at % 64));
            block.live_count -= 1;
        }
        true
    }

    /// As `remove`, if the path is there still.
    pub fn remove_from(&mut self, mark: u64, place: Place) -> bool {
        self.find(mark) == Some(place) && self.remove(mark)
    }

    /// The block is gone, and what it had with it.
    pub fn drop_block(&mut self, number: BlockNumber) -> bool {
        let Some(block) = self.blocks.get_mut(number as usize).and_then(Option::take) else { return false };
        self.count -= 1;
        self.bytes -= block.len;
        for (at, mark) in block.marks.iter().enumerate().filter(|(at, _)| block.is_live(*at)) {
            if self.files.get(mark) == Some(&Place { block: number, at: at as u32 }) {
                self.files.remove(mark);
            }
        }
        true
    }

    /// Panics if a bit and a place disagree. For tests.
    pub fn check_invariants(&self) {
        let mut live = HashMap::<u32, usize>::new();
        for place in self.files.values() {
            let block = self.block(place.block).expect("a place names a block that is there");
            assert!(block.is_live(place.at as usize), "{place:?} is found and not live");
            *live.entry(place.block).or_default() += 1;
        }
        for (number, block) in self.numbers() {
            assert_eq!(live.get(&number).copied().unwrap_or(0), block.live_count, "block {number}");
        }
        assert!(self.files.len() <= self.files_max.max(1));
        assert_eq!(self.numbers().map(|(_, block)| block.len).sum::<usize>(), self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_file_is_where_the_highest_generation_put_it_unless_it_was_removed(
            ops in prop::collection::vec((0u8..6, 0u32..6, 0u64..30, 1u64..12), 1..120)
        ) {
            let mut index = Index::new(6, 40);
            let mut model: HashMap<u64, (u64, Place)> = HashMap::new();
            for (what, number, mark, generation) in ops {
                match what {
                    0..3 => {
                        let marks: Vec<Option<u64>> =
                            (0..10).map(|at| (at != 3).then_some((mark + at * 7) % 30)).collect();
                        model.retain(|_, (_, place)| place.block != number);
                        let dropped = index.insert(number, generation, 100, &marks);
                        model.retain(|_, (_, place)| !dropped.contains(&place.block));
                        for (at, mark) in marks.iter().enumerate() {
                            let Some(mark) = mark else { continue };
                            let place = Place { block: number, at: at as u32 };
                            if model.get(mark).is_none_or(|(newest, _)| *newest <= generation) {
                                model.insert(*mark, (generation, place));
                            }
                        }
                    }
                    3 | 4 => prop_assert_eq!(index.remove(mark), model.remove(&mark).is_some()),
                    _ => {
                        index.drop_block(number);
                        model.retain(|_, (_, place)| place.block != number);
                    }
                }
                index.check_invariants();
                for mark in 0..30 {
                    prop_assert_eq!(index.find(mark), model.get(&mark).map(|(_, place)| *place), "mark {}", mark);
                }
            }
        }
    }
}
