//! Removing many keys: those of one leaf go together, under one latch, in one mini-transaction.

use super::descend::Restarts;
use super::edit;
use super::modify::{Hint, Leaf, Trip};
use super::node::Node;
use super::{Result, Tree};
use terrace_log::{Urgency, record_bound};

/// The most keys that one mini-transaction removes, and log bytes for them.
const TOGETHER: usize = 64;
const LOG: u64 = record_bound(TOGETHER * edit::LOG_OF_REMOVAL);

impl Tree {
    /// Removes those of the keys, which ascend, whose values `goes` says of, seeing each under its leaf's latch. Those that are done
    /// are taken off: what was removed before an error stays removed, and the error is the first one's that is left.
    pub fn sweep(&self, rest: &mut &[&[u8]], urgency: Urgency, goes: impl Fn(&[u8]) -> bool) -> Result<()> {
        let mut trip = Trip::default();
        while let Some(first) = rest.first() {
            let begin = || self.pages.begin(LOG, 0, urgency);
            let (mut mtr, leaf) = self.latched_leaf(begin, &mut Hint::default(), first, &mut trip)?;
            let was = Leaf::of(Node::new(mtr.page(leaf)));
            let (mut removed, mut marked) = (0, 0);
            let mut looked = 0;
            for key in rest.iter().take(TOGETHER) {
                let node = Node::new(mtr.page(leaf));
                if !node.contains(key) {
                    break;
                }
                looked += 1;
                let place = node.find(key);
                if !place.found {
                    continue;
                }
                if !node.entry_is_sound(place.slot) {
                    let error = self.corrupt(mtr.id(leaf).page, "an entry leaves the heap");
                    if removed == 0 {
                        return Err(error);
                    }
                    looked -= 1; // met again, as the first of those that are left
                    break;
                }
                let value = node.value(place.slot);
                if goes(value) {
                    marked += i64::from(self.is_marked(value));
                    edit::remove(&mut mtr.page_mut(leaf), place.slot);
                    removed += 1;
                }
            }
            let sparse = removed > 0 && was.is_worth_merging(mtr.id(leaf), Node::new(mtr.page(leaf)));
            if removed > 0 {
                mtr.commit();
                self.count_changed(-removed, -marked);
            } else {
                drop(mtr);
            }
            self.finish_noted(&mut trip.notes);
            if sparse {
                self.follow_up(|| self.shrink(0, first));
            }
            trip.kept.clear();
            trip.restarts = Restarts::default();
            *rest = &rest[looked..];
        }
        Ok(())
    }
}
