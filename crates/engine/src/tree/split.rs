//! Making room in a node: a repack, or a split with its two steps.
//!
//! Step 1 makes the right page and links it; step 2, the posting, tells the parent, splitting it
//! first if it is full. Posting latches the right page (shared) and then the parent, and looks at the
//! page again: one that was merged meanwhile, or is about to be, is not posted.

use super::build::Image;
use super::descend::{Notes, Target};
use super::edit::{self, Keep};
use super::node::{CAPACITY, FENCE_HEAD, MAX_KEY, MAX_LEVEL, Node, SLOT, common_prefix, prefix_of};
use super::search::SlotPosition;
use super::{Result, Tree, TreeError};
use crate::tree::space::{ALLOCATION_FRAMES, ALLOCATION_LOG, ROOT_PAGE, Ready};
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_log::{Urgency, record_bound};
use terrace_tier::memory::mtr::{Mtr, MtrError, PageNo};
use terrace_tier::memory::pages::{NoRoom, Pin};
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{PAGE_SIZE, PageKind, SpaceId};

const PAGE_LOG: u64 = record_bound(edit::LOG_OF_PAGE);
/// Two pages anew, a small root or a free page, the header.
const SPLIT_LOG: u64 = 2 * PAGE_LOG + record_bound(2 * MAX_KEY + 256) + ALLOCATION_LOG;
const POST_LOG: u64 = PAGE_LOG + record_bound(edit::log_of_entry(MAX_KEY + 4));

/// A page is repacked rather than split if that leaves some room for what comes next.
const REPACK_GAIN: usize = CAPACITY / 32;
/// The same where a value grows: what it took becomes free.
const REPACK_GAIN_OF_GROWTH: usize = CAPACITY / 64;
/// Bytes of neighbours put one after the other that are a run.
const RUN: usize = CAPACITY / 5;
/// Bytes ahead of a run that go along with it to the next leaf, rather than get one of their own.
const GOES_ALONG: usize = CAPACITY / 32;
/// Neighbouring cuts that are looked at for a short separator.
const CUT_WINDOW: usize = 4;
/// Times that a posting searches for the parent. Each time another thread has changed it.
const POST_TRIES: usize = 1000;

/// What there is to gain in a node that lacks room for an entry.
struct LeafRoom {
    /// Bytes that a repack would leave beside it. None: it does not fit, or the page is no such node.
    over: Option<usize>,
    /// How many are worth a repack.
    gain: usize,
    /// Whether shorter values make room for it.
    shortens: bool,
    /// The value is there, and grows.
    grows: bool,
}

/// Where a node is cut: entries below `keep` stay, the right page's low fence is `separator`.
struct Cut {
    keep: usize,
    separator: Vec<u8>,
}

/// The shortest key above `left` and not above `right`.
pub(super) fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    right[..(common_prefix(left, right) + 1).min(right.len())].to_vec()
}

impl Cut {
    /// `key` is what wants in. Keys that ascend leave full pages behind: one that comes after all
    /// entries starts the right page alone, where the left one has room for its new fence.
    fn choose(node: Node<'_>, key: &[u8]) -> Cut {
        let count = node.count();
        let place = node.find(key);
        if place.slot == count && !place.found {
            if node.is_leaf() {
                let separator = separator(&node.key(count - 1), key);
                let room = node.free() + node.high().map_or(0, |high| FENCE_HEAD + high.len());
                if room >= FENCE_HEAD + separator.len() {
                    return Cut { keep: count, separator };
                }
            }
            return Cut::between(node, count - 1);
        }
        if let Some(cut) = Cut::of_run(node, key, place) {
            return cut;
        }
        let half = (0..count).map(|slot| node.entry_len(slot)).sum::<usize>() / 2;
        let mut left = 0;
        let balanced = (0..count - 1)
            .find(|slot| {
                left += node.entry_len(*slot);
                left >= half
            })
            .map_or(count - 1, |slot| slot + 1);
        if count < 4 * CUT_WINDOW {
            return Cut::between(node, balanced);
        }
        let window = balanced.saturating_sub(CUT_WINDOW).max(1)..(balanced + CUT_WINDOW).min(count);
        let mut best = Cut::between(node, balanced);
        for keep in window {
            let cut = Cut::between(node, keep);
            if cut.separator.len() < best.separator.len() {
                best = cut;
            }
        }
        best
    }

    /// Where keys ascend or descend within the leaf, as those of many writers do that each append to a range of their own, the
    /// cut is at `key`, and what the run leaves behind is full. What lies ahead of the run is cut off from it, unless it is so
    /// little that it can go along.
    ///
    /// The heap tells a run, for what was put last lies lowest. It has to be long, but at the leaf's ends: cuts at random
    /// places would leave emptier leaves than halves do.
    fn of_run(node: Node<'_>, key: &[u8], place: SlotPosition) -> Option<Cut> {
        let (slot, count) = (place.slot, node.count());
        if !node.is_leaf() || place.found {
            return None;
        }
        let bytes = |slots: Range<usize>| slots.map(|slot| SLOT + node.entry_len(slot)).sum::<usize>();
        let goes_right = if is_run(node, (0..slot).rev()) {
            bytes(slot..count) <= GOES_ALONG
        } else if is_run(node, slot..count) || slot == 0 && node.offset(0) == node.heap() {
            bytes(0..slot) > GOES_ALONG
        } else {
            return None;
        };
        let (keep, separator) = match (goes_right, slot) {
            (true, 0) => return None,
            (true, _) => (slot, separator(&node.key(slot - 1), key)),
            // The right page's new fence may be longer than what it had: there is room for it without the first entry.
            (false, 0) if count > 1 => (1, separator(&node.key(0), &node.key(1))),
            (false, _) => (slot, separator(key, &node.key(slot))),
        };
        let fences = 2 * FENCE_HEAD + separator.len();
        let fits = bytes(0..keep) + node.low().len() + fences <= CAPACITY
            && bytes(keep..count) + node.high().map_or(0, <[u8]>::len) + fences <= CAPACITY;
        fits.then_some(Cut { keep, separator })
    }

    fn between(node: Node<'_>, keep: usize) -> Cut {
        let right = node.key(keep);
        let separator = if node.is_leaf() { separator(&node.key(keep - 1), &right) } else { right };
        Cut { keep, separator }
    }
}

/// Whether these are what was put last, the latest first, and at least [`RUN`] bytes.
fn is_run(node: Node<'_>, slots: impl Iterator<Item = usize>) -> bool {
    let mut at = node.heap();
    for slot in slots {
        if node.offset(slot) != at {
            break;
        }
        at += node.entry_len(slot);
    }
    at - node.heap() >= RUN
}

fn kind(level: u8) -> PageKind {
    if level == 0 { PageKind::Leaf } else { PageKind::Inner }
}

impl Tree {
    /// Makes room for an entry in the node, unless it changed meanwhile: the caller looks again.
    pub(super) fn make_room(
        &self,
        pin: &Pin,
        level: u8,
        key: &[u8],
        value_len: usize,
        urgency: Urgency,
    ) -> Result<()> {
        // A repack takes no page: none is asked for where it is enough, and where there is none it does without gain.
        let LeafRoom { over, gain, shortens, grows } = self.room_over(pin, level, key, value_len);
        let (ready, gain) = match over {
            Some(over) if over >= gain => (None, gain),
            _ if shortens => (None, gain),
            _ => match self.space.ready_as(self.leaves_room_like(grows), 2, urgency) {
                Ok(ready) => (Some(ready), gain),
                Err(TreeError::Mtr(MtrError::Room(NoRoom::Full(_)))) if over.is_some() => (None, 0),
                Err(error) => return Err(error),
            },
        };
        let mut mtr = self.pages.begin(SPLIT_LOG, 2 + ALLOCATION_FRAMES, urgency)?;
        let no = mtr.write_pinned(pin);
        let node = Node::new(mtr.page(no));
        if !node.is_live() || node.level() != level || !node.contains(key) {
            return Ok(());
        }
        let need = node.need(key.len(), value_len);
        let at_once = self.shortens_at_once(node, need);
        if node.gap() >= need && !at_once {
            return Ok(());
        }
        node.verify().map_err(|what| self.corrupt(pin.id().page, what))?;
        let keep = Keep { count: node.count(), cut: None, prefix: prefix_of(node.low(), node.high()) };
        if (node.free() >= need + gain || node.count() < 2) && !at_once {
            repack_or_rewrite(&mut mtr, no, &keep);
            mtr.commit();
            return Ok(());
        }
        if self.shortens(node, need) {
            self.rewrite_shorter(&mut mtr, no, &keep);
            mtr.commit();
            return Ok(());
        }
        let Some(ready) = ready else { return Ok(()) };
        let cut = Cut::choose(node, key);
        self.counters.splits.fetch_add(1, Ordering::Relaxed);
        if pin.id().page == ROOT_PAGE {
            self.split_root(&mut mtr, no, &cut, &ready)?;
            mtr.commit();
            return Ok(());
        }
        let right = self.split_off(&mut mtr, no, &cut, &ready)?;
        mtr.commit();
        // Posting may have to make room, too.
        drop(ready);
        self.pages.world().sched.point("split: not posted");
        self.post(right, level, &cut.separator, urgency)
    }

    fn room_over(&self, pin: &Pin, level: u8, key: &[u8], value_len: usize) -> LeafRoom {
        let guard = pin.read();
        let node = Node::new(guard.page());
        if !node.is_live() || node.level() != level || node.verify().is_err() {
            return LeafRoom { over: None, gain: REPACK_GAIN, shortens: false, grows: false };
        }
        let grows = node.is_leaf() && node.contains(key) && node.find(key).found;
        let gain = if grows { REPACK_GAIN_OF_GROWTH } else { REPACK_GAIN };
        let need = node.need(key.len(), value_len);
        LeafRoom { over: node.free().checked_sub(need), gain, shortens: self.shortens(node, need), grows }
    }

    /// What was shortened grows again so that it can be deleted, which is to make room: it goes on as far as undo does.
    fn leaves_room_like(&self, grows: bool) -> SpaceId {
        if grows && self.shortener.get().is_some() { SpaceId::UNDO } else { self.space.id() }
    }

    /// Step 1. Returns the right page.
    fn split_off(&self, mtr: &mut Mtr<'_>, no: PageNo, cut: &Cut, ready: &Ready<'_>) -> Result<u32> {
        let header = ready.latch_header(mtr);
        let node = Node::new(mtr.page(no));
        let level = node.level();
        let mut image = Image::new(level, &cut.separator, node.high(), node.right());
        assert!(self.push_shorter(&mut image, node, cut.keep..node.count()), "part of a node fits a node");
        let prefix = prefix_of(node.low(), Some(&cut.separator));
        let right = self.space.allocate(mtr, header, ready, kind(level), level)?;
        let id = mtr.id(right);
        image.write_to(&mut mtr.page_mut(right), id);
        let keep = Keep { count: cut.keep, cut: Some((&cut.separator, id.page)), prefix };
        if !self.rewrite_shorter(mtr, no, &keep) {
            repack_or_rewrite(mtr, no, &keep);
        }
        self.write_rows(mtr, header);
        Ok(id.page)
    }

    /// The root's entries go to two new pages; the root becomes their parent.
    fn split_root(&self, mtr: &mut Mtr<'_>, root: PageNo, cut: &Cut, ready: &Ready<'_>) -> Result<()> {
        let header = ready.latch_header(mtr);
        let node = Node::new(mtr.page(root));
        let (level, count) = (node.level(), node.count());
        if level >= MAX_LEVEL {
            return Err(self.corrupt(ROOT_PAGE, "its level is out of range"));
        }
        let mut upper = Image::new(level, &cut.separator, None, None);
        assert!(self.push_shorter(&mut upper, node, cut.keep..count), "part of a node fits a node");
        self.space.can_allocate(mtr, header, 2)?;
        let right = self.space.allocate(mtr, header, ready, kind(level), level)?;
        let right_id = mtr.id(right);
        upper.write_to(&mut mtr.page_mut(right), right_id);
        let left = match self.space.allocate(mtr, header, ready, kind(level), level) {
            Ok(left) => left,
            Err(error) => panic!("two pages could be allocated, and nobody else has the header: {error}"),
        };
        let left_id = mtr.id(left);
        let mut lower = Image::new(level, &[], Some(&cut.separator), Some(right_id.page));
        assert!(
            self.push_shorter(&mut lower, Node::new(mtr.page(root)), 0..cut.keep),
            "part of a node fits a node"
        );
        lower.write_to(&mut mtr.page_mut(left), left_id);
        let mut above = Image::new(level + 1, &[], None, None);
        let children = [(&[][..], left_id.page), (&cut.separator[..], right_id.page)];
        let fits = children.iter().all(|(key, page)| above.push(key, &page.to_le_bytes()));
        assert!(fits, "two children fit a node");
        above.write_to(&mut mtr.page_mut(root), self.space.page_id(ROOT_PAGE));
        self.write_rows(mtr, header);
        Ok(())
    }

    /// Step 2: the parent learns that `page`, of `level`, begins at `separator`; unless it knows, or
    /// the page is not what it was.
    pub(super) fn post(&self, page: u32, level: u8, separator: &[u8], urgency: Urgency) -> Result<()> {
        for _ in 0..POST_TRIES {
            let target = Target::At(separator);
            let parent = self.descend(target, level + 1, Access::Normal, &mut Notes::default())?;
            let Some(parent) = parent.map(|guard| guard.pin()) else { return Ok(()) };
            let Some(child) = self.load_if_there(page)? else { return Ok(()) };
            let mut mtr = self.pages.begin(POST_LOG, 0, urgency)?;
            let below = child.read();
            let node = Node::new(below.page());
            let same = node.is_live() && node.level() == level && node.low() == separator;
            if !same || node.is_merging() {
                return Ok(());
            }
            let no = mtr.write_pinned(&parent);
            let node = Node::new(mtr.page(no));
            if !node.is_live() || node.level() != level + 1 || !node.contains(separator) {
                continue;
            }
            node.verify().map_err(|what| self.corrupt(parent.id().page, what))?;
            let place = node.find(separator);
            // The first child begins where the node does, and its entry's key is empty: a node that was cut at the separator has it.
            let known = if node.low() == separator { Some(0) } else { place.found.then_some(place.slot) };
            if let Some(slot) = known {
                return match node.child(slot) == page {
                    true => Ok(()),
                    false => Err(self.corrupt(parent.id().page, "two children begin at the same key")),
                };
            }
            if place.slot == 0 {
                return Err(self.corrupt(parent.id().page, "a child begins left of the first"));
            }
            if node.gap() >= node.need(separator.len(), 4) {
                edit::insert(&mut mtr.page_mut(no), place.slot, separator, &page.to_le_bytes());
                mtr.commit();
                return Ok(());
            }
            drop(below);
            drop(mtr);
            self.make_room(&parent, level + 1, separator, 4, urgency)?;
        }
        Ok(()) // another thread will: the tree is whole as it is
    }
}

/// Repacks, or, where that would log as much, writes the node anew.
pub(super) fn repack_or_rewrite(mtr: &mut Mtr<'_>, no: PageNo, keep: &Keep<'_>) {
    let node = Node::new(mtr.page(no));
    if edit::repack_log(node, keep) < PAGE_SIZE / 2 {
        edit::repack(&mut mtr.page_mut(no), keep);
        return;
    }
    let (high, right) = keep.of(node);
    let mut image = Image::new(node.level(), node.low(), high, right).with_flags(node.page().flags());
    assert!(image.push_from(node, 0..keep.count), "part of a node fits a node");
    let id = mtr.id(no);
    image.write_to(&mut mtr.page_mut(no), id);
}
