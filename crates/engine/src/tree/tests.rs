//! Tests of whole trees; those of one page are with `node`.

mod beside;
mod copied;
mod crash;
mod cursors;
mod faults;
mod marked;
mod model;
mod pauses;
mod shape;
mod threads;

use super::*;
use crate::tree::check::Report;
use terrace_tier::testing::{self, MemoryBelow, MemoryLog};

const SPACE: SpaceId = SpaceId::FIRST_USER;

/// A tree over memory.
struct World {
    tree: Arc<Tree>,
    pages: Arc<Pages>,
    below: Arc<MemoryBelow>,
    log: Arc<MemoryLog>,
}

fn world(frames: usize) -> World {
    let (pages, below, log) = testing::pages(frames);
    let tree = Arc::new(Tree::create(&pages, SPACE, Urgency::Normal).unwrap());
    World { tree, pages, below, log }
}

/// Deterministic numbers.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn checked(tree: &Tree) -> Report {
    let mut last: Option<Vec<u8>> = None;
    let report = tree
        .check(&mut |key, _| {
            assert!(last.as_deref().is_none_or(|last| last < key));
            last = Some(key.to_vec());
        })
        .unwrap();
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
    report
}

/// The log alone gives the very pages that are in memory.
fn replay_gives_the_same_pages(w: &World) {
    for (id, image) in testing::replay(&w.log) {
        let guard = w.pages.read(id, Access::Internal).unwrap();
        let from = terrace_tier::page::at::MAGIC; // the checksum is stamped on copies only
        assert!(guard.page().all()[from..] == image[from..], "page {id} replays to something else");
    }
}
