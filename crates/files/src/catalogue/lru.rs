//! Blocks without leases in the order of their last use: a list through an array, by block.

use super::BlockId;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Links {
    older: u32,
    newer: u32,
}

#[derive(Default)]
pub struct Lru {
    links: Vec<Option<Links>>,
    /// The oldest and the newest.
    ends: Option<(BlockId, BlockId)>,
    len: usize,
}

impl Lru {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn oldest(&self) -> Option<BlockId> {
        self.ends.map(|(oldest, _)| oldest)
    }

    /// As the newest. It is not in the list.
    pub fn push(&mut self, id: BlockId) {
        if self.links.len() <= id as usize {
            self.links.resize(id as usize + 1, None);
        }
        assert!(self.links[id as usize].is_none(), "block {id} is in the list already");
        let older = self.ends.map_or(NONE, |(_, newest)| newest);
        self.links[id as usize] = Some(Links { older, newer: NONE });
        if let Some(Some(links)) = self.links.get_mut(older as usize) {
            links.newer = id;
        }
        self.ends = Some((self.ends.map_or(id, |(oldest, _)| oldest), id));
        self.len += 1;
    }

    /// Does nothing if it is not in the list.
    pub fn remove(&mut self, id: BlockId) {
        let Some(Links { older, newer }) = self.links.get_mut(id as usize).and_then(Option::take) else {
            return;
        };
        if let Some(Some(links)) = self.links.get_mut(older as usize) {
            links.newer = newer;
        }
        if let Some(Some(links)) = self.links.get_mut(newer as usize) {
            links.older = older;
        }
        self.ends = self.ends.and_then(|(oldest, newest)| {
            let oldest = if oldest == id { newer } else { oldest };
            let newest = if newest == id { older } else { newest };
            (oldest != NONE && newest != NONE).then_some((oldest, newest))
        });
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_list_is_in_the_order_of_pushes(ops in prop::collection::vec((any::<bool>(), 0u32..20), 0..200)) {
            let (mut lru, mut model) = (Lru::default(), Vec::new());
            for (pushes, id) in ops {
                model.retain(|other| *other != id);
                lru.remove(id);
                if pushes {
                    lru.push(id);
                    model.push(id);
                }
                prop_assert_eq!(lru.len(), model.len());
                prop_assert_eq!(lru.oldest(), model.first().copied());
            }
            for id in model {
                prop_assert_eq!(lru.oldest(), Some(id));
                lru.remove(id);
            }
            prop_assert_eq!(lru.oldest(), None);
        }
    }
}
