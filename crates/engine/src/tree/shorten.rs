//! Values that can be stored shorter by now: they are shortened when their leaf is full, before or while it is split.
//!
//! The tree doesn't know what a value means; its opener may say which are shortened, and how. A value that is shortened means to
//! every reader what it did.

use super::Tree;
use super::build::Image;
use super::edit::Keep;
use super::node::{CAPACITY, Node};
use crate::planted::SHORTENED_AT_ONCE;
use std::ops::Range;
use std::sync::Arc;
use terrace_tier::memory::mtr::{Mtr, PageNo};

/// A full leaf is rewritten, rather than split, if its values give at least this many bytes back.
const WORTH: usize = CAPACITY / 5;

/// Makes values shorter.
pub trait Shorten: Send + Sync {
    /// The value, or a shorter one that says the same, made in `out`.
    fn shorter<'v>(&self, value: &'v [u8], out: &'v mut Vec<u8>) -> &'v [u8];
}

impl Tree {
    /// From now on values of full leaves are shortened so.
    pub fn shorten_by(&self, shortener: Arc<dyn Shorten>) {
        // For a tree that is in use already it is the same one.
        let _ = self.shortener.set(shortener);
    }

    /// Bytes that shortening of these entries would give back.
    fn gain(&self, node: Node<'_>, slots: Range<usize>) -> usize {
        let Some(shortener) = self.shortener.get().filter(|_| node.is_leaf()) else { return 0 };
        let mut out = Vec::new();
        slots
            .map(|slot| {
                let value = node.value(slot);
                value.len() - shortener.shorter(value, &mut out).len()
            })
            .sum()
    }

    /// Whether shortening makes room for an entry of `need` bytes and is worth a new image of the leaf.
    pub(super) fn shortens(&self, node: Node<'_>, need: usize) -> bool {
        let gain = self.gain(node, 0..node.count());
        let worth = if SHORTENED_AT_ONCE.on() { 1 } else { WORTH };
        gain >= worth && node.free() + gain >= need
    }

    /// Whether a test wants it now, though there may be room.
    #[inline]
    pub(super) fn shortens_at_once(&self, node: Node<'_>, need: usize) -> bool {
        SHORTENED_AT_ONCE.on() && self.shortens(node, need)
    }

    /// As [`Image::push_from`], values shortened.
    #[must_use]
    pub(super) fn push_shorter(&self, image: &mut Image, node: Node<'_>, mut slots: Range<usize>) -> bool {
        let Some(shortener) = self.shortener.get().filter(|_| node.is_leaf()) else {
            return image.push_from(node, slots);
        };
        let (mut key, mut out) = (Vec::new(), Vec::new());
        slots.all(|slot| {
            node.key_into(slot, &mut key);
            image.push(&key, shortener.shorter(node.value(slot), &mut out))
        })
    }

    /// Writes the node anew, with what is kept of it, values shortened. False: that would give nothing back, nothing is done.
    pub(super) fn rewrite_shorter(&self, mtr: &mut Mtr<'_>, no: PageNo, keep: &Keep<'_>) -> bool {
        let node = Node::new(mtr.page(no));
        if self.gain(node, 0..keep.count) == 0 {
            return false;
        }
        let (high, right) = keep.of(node);
        let mut image = Image::new(node.level(), node.low(), high, right).with_flags(node.page().flags());
        assert!(self.push_shorter(&mut image, node, 0..keep.count), "part of a node fits a node");
        let id = mtr.id(no);
        image.write_to(&mut mtr.page_mut(no), id);
        true
    }
}
