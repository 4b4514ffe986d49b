//! Where a transaction changed its trees last: its next change is often in the same leaf.

use crate::tree::Hint;
use terrace_tier::page::SpaceId;

/// Trees whose leaf is remembered.
const TREES: usize = 16;

/// The leaves of the last changes in each of some trees.
#[derive(Default)]
pub(super) struct Hints(Vec<(SpaceId, Hint)>);

impl Hints {
    pub fn take(&mut self, space: SpaceId) -> Hint {
        match self.0.iter().position(|(s, _)| *s == space) {
            Some(i) => self.0.swap_remove(i).1,
            None => Hint::default(),
        }
    }
    pub fn put(&mut self, space: SpaceId, hint: Hint) {
        if self.0.len() >= TREES {
            self.0.remove(0);
        }
        self.0.push((space, hint));
    }
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
