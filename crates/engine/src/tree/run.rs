//! Changes at several keys: those of one leaf are made under one latch, in one mini-transaction.

use super::modify::{Hint, LeafPosition, Trip, check_sizes};
use super::node::{Node, compare};
use super::search::SlotPosition;
use super::{Result, Tree, TreeError};
use smallvec::SmallVec;
use terrace_log::Urgency;
use terrace_tier::memory::mtr::Mtr;

/// A change that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'k> {
    pub key: &'k [u8],
    /// The longest value that may be put; None if none is put that is longer than the one there.
    pub value_max: Option<usize>,
}

/// What comes of a decision about one of several changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// On to the next key.
    Done,
    /// Nothing was changed at this key, which is not the first: it begins the next run.
    Full,
}

/// The caller that makes changes in a run.
pub trait Run {
    type Error: From<TreeError>;

    /// Decides at the key of `wanted[number]`, its leaf being latched; `log` bytes are left for it and for what [`Run::finish`] writes.
    /// An error changes nothing, and ends the run before this key.
    fn decide(
        &mut self,
        number: usize,
        spot: &mut LeafPosition<'_, '_>,
        log: u64,
    ) -> std::result::Result<Step, Self::Error>;

    /// The run ends: what belongs to it on other pages is written.
    fn finish(&mut self, mtr: &mut Mtr<'_>);
}

impl Tree {
    /// Changes the values at the first keys of `wanted`, which ascend, as far as one leaf has them, and returns how many: at least one.
    /// `log` bytes suffice for any one of them. An error is of the first, and changes nothing.
    pub fn modify_run<R: Run>(
        &self,
        hint: &mut Hint,
        wanted: &[Wanted<'_>],
        (log, urgency): (u64, Urgency),
        run: &mut R,
    ) -> std::result::Result<usize, R::Error> {
        assert!(!wanted.is_empty());
        let mut trip = Trip::default();
        loop {
            let begin = || self.pages.begin(log, 0, urgency);
            let (mut mtr, leaf) = self.latched_leaf(begin, hint, wanted[0].key, &mut trip)?;
            let (mut done, mut rows, mut marked, mut slot, mut lacks_room) = (0, 0, 0, None, None);
            for Wanted { key, value_max } in wanted {
                let (key, value_max) = (*key, *value_max);
                let node = Node::new(mtr.page(leaf));
                if done > 0 && !node.below_high(key) {
                    break;
                }
                let place = next_place(node, slot, key);
                let page = mtr.id(leaf).page;
                if let Err(error) = self.check_wanted(page, node, place, key, value_max) {
                    if done == 0 {
                        return Err(error.into());
                    }
                    break;
                }
                if let Some(len) = value_max.and_then(|len| self.lacks_room(node, place, key, len)) {
                    lacks_room = (done == 0).then_some(len);
                    break;
                }
                let left = log.saturating_sub(mtr.log_bytes());
                let right_of_leaf = SmallVec::new();
                let mut spot = LeafPosition {
                    tree: self,
                    mtr: &mut mtr,
                    leaf,
                    key,
                    place,
                    value_max,
                    rows: 0,
                    marked: 0,
                    right_of_leaf,
                };
                match run.decide(done, &mut spot, left) {
                    Ok(Step::Done) => {}
                    Ok(Step::Full) => break,
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => break, // met again, as the first of those that are left
                }
                rows += spot.rows;
                marked += spot.marked;
                slot = Some(place.slot);
                done += 1;
            }
            if done == 0 {
                assert!(lacks_room.is_some(), "a single change does not fit its log");
                let page = mtr.id(leaf).page;
                drop(mtr);
                if let Some(leaf) = self.load_if_there(page)? {
                    self.make_room(&leaf, 0, wanted[0].key, lacks_room.unwrap_or(0), urgency)?;
                }
                continue;
            }
            run.finish(&mut mtr);
            hint.note(&mtr, leaf);
            if mtr.changed() {
                mtr.commit();
            }
            self.count_changed(rows, marked);
            self.finish_noted(&mut trip.notes);
            return Ok(done);
        }
    }

    fn check_wanted(
        &self,
        page: u32,
        node: Node<'_>,
        place: SlotPosition,
        key: &[u8],
        value_max: Option<usize>,
    ) -> Result<()> {
        check_sizes(key, value_max.unwrap_or(0))?;
        match place.found && !node.entry_is_sound(place.slot) {
            true => Err(self.corrupt(page, "an entry leaves the heap")),
            false => Ok(()),
        }
    }
}

/// Where the key is: often behind the one before it, which is at `slot` or was put there.
#[inline]
fn next_place(node: Node<'_>, slot: Option<usize>, key: &[u8]) -> SlotPosition {
    if let Some(next) = slot.map(|slot| slot + 1).filter(|next| *next < node.count())
        && key.get(node.prefix_len()..).is_some_and(|suffix| compare(suffix, node.suffix(next)).is_eq())
    {
        return SlotPosition { slot: next, found: true };
    }
    node.find(key)
}
