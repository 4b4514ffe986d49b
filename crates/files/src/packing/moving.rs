//! Packed files that move to another node, and such as come from one.
//!
//! A block whose files all move is given as it is; of another one a block of those that move is made. What comes gets a number and a generation of this node, and is
//! live as far as nothing newer is here; each file of it was checked before.

use super::block::{self, Item, Tail};
use super::index::{BlockNumber, Place};
use super::{BLOCK_MAX, Cache, Packs, mark_of};
use crate::planted;
use std::sync::Arc;
use terrace::flash::Offered;

/// A block for another node.
pub struct Moving {
    /// As its footer says.
    pub id: u64,
    pub bytes: Vec<u8>,
    /// The files, in the block's order: paths and versions.
    pub files: Vec<(Arc<str>, u64)>,
}

/// What became of a block that another node gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adopted {
    /// The number of its files that are found here from now on.
    Files(usize),
    /// The cache takes none at the moment.
    Later,
    /// The cache takes none.
    Never,
    /// It is not what was given.
    Corrupt,
}

impl Packs {
    /// The next block, from this number on, with live files whose marks are wanted; and the number after it.
    pub fn give(
        &self,
        cache: &Cache,
        from: BlockNumber,
        wants: impl Fn(u64) -> bool,
    ) -> Option<(BlockNumber, Moving)> {
        let mut next = from;
        loop {
            let (number, generation) = {
                let state = self.state.lock();
                let has_wanted = |(number, block): &(BlockNumber, &super::index::Packed)| {
                    *number >= next && block.live_marks().any(&wants)
                };
                let found = state.index.numbers().find(has_wanted)?;
                (found.0, found.1.generation)
            };
            next = number + 1;
            if let Some(moving) = self.moving(cache, number, generation, &wants) {
                return Some((next, moving));
            }
        }
    }

    fn moving(
        &self,
        cache: &Cache,
        number: BlockNumber,
        generation: u64,
        wants: impl Fn(u64) -> bool,
    ) -> Option<Moving> {
        let value = cache.find(self.key(number), generation);
        let footer = value.as_ref().map(|value| block::decode(u64::from(number), value.len(), value));
        let (Some(value), Some(Tail::Whole(footer))) = (value, footer) else {
            self.drop_block(cache, number, generation);
            return None;
        };
        let mut moves = Vec::with_capacity(footer.len());
        {
            let state = self.state.lock();
            for at in 0..footer.len() {
                let Some(path) = footer.path(at) else { continue };
                let mark = mark_of(&path);
                let is_live = state.index.find(mark) == Some(Place { block: number, at: at as u32 });
                if is_live && wants(mark) {
                    moves.push((at, Arc::<str>::from(path)));
                }
            }
        }
        if moves.len() == footer.len() {
            let version = |at: usize| footer.entry(at).map_or(0, |entry| entry.version);
            let files = moves.into_iter().map(|(at, path)| (path, version(at))).collect();
            return Some(Moving { id: u64::from(number), bytes: value.to_vec(), files });
        }
        let item = |(at, path): (usize, Arc<str>)| {
            let entry = footer.entry(at)?;
            let bytes = value.get(entry.bytes.clone())?;
            let is_right = footer.proves(&entry, &path, bytes);
            is_right.then(|| Item { path, version: entry.version, bytes: bytes.into() })
        };
        Moving::of(moves.into_iter().filter_map(item).collect())
    }

    /// Wanted files that are not packed yet.
    pub fn give_staged(&self, wants: impl Fn(u64) -> bool) -> Option<Moving> {
        let state = self.state.lock();
        let (mut items, mut sum) = (Vec::new(), 0);
        for item in state.stage.items().filter(|item| wants(mark_of(&item.path))) {
            sum += item.packed_bytes();
            if sum > self.shares.block.min(BLOCK_MAX) - self.shares.block / 64 {
                break;
            }
            items.push(item.clone());
        }
        drop(state);
        Moving::of(items)
    }

    /// Another node has this version of the file now.
    pub fn moved(&self, path: &str, version: u64) {
        let mut state = self.state.lock();
        if state.stage.get(path).is_some_and(|item| item.version == version) {
            state.stage.remove(path);
        }
        state.index.remove(mark_of(path));
    }

    /// A block that another node gave. Of its files those are kept whose marks are wanted and of which nothing is here.
    pub fn adopt(&self, cache: &Cache, id: u64, mut bytes: Vec<u8>, wants: impl Fn(u64) -> bool) -> Adopted {
        let Tail::Whole(footer) = block::decode(id, bytes.len(), &bytes) else { return Adopted::Corrupt };
        let mut files = Vec::with_capacity(footer.len());
        for at in 0..footer.len() {
            let (Some(path), Some(entry)) = (footer.path(at), footer.entry(at)) else {
                return Adopted::Corrupt;
            };
            let part = bytes.get(entry.bytes.clone());
            let is_right = part.is_some_and(|part| footer.proves(&entry, &path, part));
            if !is_right && !planted::GIVEN_BLOCK_NOT_VERIFIED.on() {
                return Adopted::Corrupt;
            }
            files.push((Arc::<str>::from(path), entry));
        }
        if bytes.len() > self.block_bytes(cache) {
            return self.adopt_in_parts(cache, &bytes, &files, wants);
        }
        let marks = self.missing(files.iter().map(|(path, entry)| (&**path, entry.is_live)), wants);
        let count = marks.iter().flatten().count();
        if count == 0 {
            return Adopted::Files(0);
        }
        let Some(number) = self.free_number(cache) else { return Adopted::Never };
        let generation = self.next_generation();
        block::renumber(&mut bytes, &footer, u64::from(number), generation, |at| {
            marks.get(at).is_some_and(Option::is_some)
        });
        self.insert_adopted(cache, number, generation, &bytes, &marks, count)
    }

    /// The blocks of this node are shorter: the files of one that came make several.
    fn adopt_in_parts(
        &self,
        cache: &Cache,
        bytes: &[u8],
        files: &[(Arc<str>, block::Entry)],
        wants: impl Fn(u64) -> bool,
    ) -> Adopted {
        let block_bytes = self.block_bytes(cache);
        let (mut kept, mut items, mut sum) = (0, Vec::new(), 0);
        let put = |items: &mut Vec<Item>| {
            let marks = self.missing(items.iter().map(|item| (&*item.path, true)), &wants);
            let count = marks.iter().flatten().count();
            if count == 0 {
                items.clear();
                return Adopted::Files(0);
            }
            let Some(sealing) = self.make(cache, std::mem::take(items)) else { return Adopted::Never };
            self.insert_adopted(cache, sealing.number, sealing.generation, &sealing.bytes, &marks, count)
        };
        for (path, entry) in files.iter().filter(|(_, entry)| entry.is_live) {
            let item = Item {
                path: path.clone(),
                version: entry.version,
                bytes: bytes.get(entry.bytes.clone()).unwrap_or_default().into(),
            };
            if sum + item.packed_bytes() > block_bytes - block_bytes / 64 && !items.is_empty() {
                match put(&mut items) {
                    Adopted::Files(count) => kept += count,
                    // What is kept already is not kept again when the block comes once more.
                    other => return other,
                }
                sum = 0;
            }
            sum += item.packed_bytes();
            items.push(item);
        }
        match put(&mut items) {
            Adopted::Files(count) => Adopted::Files(kept + count),
            other => other,
        }
    }

    /// The marks of those that are live, wanted, and not here in any version.
    fn missing<'a>(
        &self,
        files: impl Iterator<Item = (&'a str, bool)>,
        wants: impl Fn(u64) -> bool,
    ) -> Vec<Option<u64>> {
        let state = self.state.lock();
        files
            .map(|(path, is_live)| {
                let mark = mark_of(path);
                let is_here = state.index.find(mark).is_some() || state.stage.get(path).is_some();
                (is_live && wants(mark) && !is_here).then_some(mark)
            })
            .collect()
    }

    fn insert_adopted(
        &self,
        cache: &Cache,
        number: BlockNumber,
        generation: u64,
        bytes: &[u8],
        marks: &[Option<u64>],
        count: usize,
    ) -> Adopted {
        match cache.evicted(self.key(number), generation, bytes, u8::MAX) {
            Offered::Queued => {}
            Offered::Kept | Offered::Dropped => return Adopted::Later,
            Offered::TooLong | Offered::Off | Offered::Remembered => return Adopted::Never,
        }
        let dropped = self.state.lock().index.insert(number, generation, bytes.len(), marks);
        dropped.into_iter().for_each(|number| cache.invalidate(self.key(number)));
        Adopted::Files(count)
    }
}

impl Moving {
    /// None: there are no files.
    pub fn of(mut items: Vec<Item>) -> Option<Moving> {
        if items.is_empty() {
            return None;
        }
        items.sort_by(|a, b| a.path.cmp(&b.path));
        let bytes = block::encode(0, 0, &items, |_| true);
        Some(Moving {
            id: 0,
            bytes,
            files: items.into_iter().map(|item| (item.path, item.version)).collect(),
        })
    }
}
