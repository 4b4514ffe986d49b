//! The counts of entries and of delete marks, put right: a crash takes what it has changed of the first since the header was written, and the second
//! begins at none when a tree is opened.

use super::descend::{Notes, Target};
use super::node::Node;
use super::{Result, Tree};
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::pages::ReadGuard;
use terrace_tier::memory::pool::Access;

/// A tree of at most this many leaves is counted whole; in a larger one as many are counted.
const LEAVES: u64 = 256;
/// Levels above the leaves of a tree whose leaves are counted: in a higher one, what crashes take does not matter.
const LEVELS_MAX: u8 = 2;
/// Entries, and how many of them are marked deleted.
type Counts = (u64, u64);

/// A count by sample is taken if it differs by more than one part in this number.
const DIFFERS: u64 = 10;

impl Tree {
    /// Counts the rows anew, of a large tree those of some leaves. Reads up to [`LEAVES`] leaves and the nodes above the leaves.
    /// What others change meanwhile may be missed.
    pub fn recount(&self) -> Result<()> {
        if self.root_level()? > LEVELS_MAX {
            return Ok(());
        }
        let Some(leaves) = self.leaves()? else { return Ok(()) };
        let counted = if leaves <= LEAVES { self.count_all()? } else { Some(self.count_some(leaves)?) };
        let Some((entries, marked)) = counted else { return Ok(()) };
        let (known, known_marked) = (self.entries(), self.marked());
        let is_off = |known: u64, found: u64| leaves <= LEAVES || known.abs_diff(found) > entries / DIFFERS;
        if is_off(known, entries) {
            self.count_changed(entries as i64 - known as i64, 0);
        }
        if is_off(known_marked, marked) {
            self.count_changed(0, marked as i64 - known_marked as i64);
        }
        Ok(())
    }

    /// Calls `each` with every node of a level that the tree has, left to right. False: others have changed the level meanwhile, and it was not called with all.
    fn each_node(&self, level: u8, mut each: impl FnMut(Node<'_>)) -> Result<bool> {
        let first = self.descend(Target::At(&[]), level, Access::Scan, &mut Notes::default())?;
        let mut guard: Option<ReadGuard<'_>> = first;
        if guard.is_none() {
            return Ok(false);
        }
        while let Some(here) = guard {
            let node = Node::new(here.page());
            if !node.is_live() || node.level() != level {
                return Ok(false); // merged into its neighbour meanwhile
            }
            each(node);
            let right = node.right();
            drop(here);
            guard =
                match right.map(|page| self.pages.read(self.space.page_id(page), Access::Scan)).transpose() {
                    Err(ReadError::Absent(_)) => return Ok(false), // the same, and let go of
                    read => read?,
                };
        }
        Ok(true)
    }

    /// None: others have changed the tree meanwhile.
    fn leaves(&self) -> Result<Option<u64>> {
        if self.root_level()? == 0 {
            return Ok(Some(1));
        }
        let mut leaves = 0;
        let all = self.each_node(1, |node| leaves += node.count() as u64)?;
        Ok(all.then_some(leaves))
    }

    fn count_all(&self) -> Result<Option<Counts>> {
        let mut counts = (0, 0);
        let all = self.each_node(0, |node| self.add_counts(node, &mut counts))?;
        Ok(all.then_some(counts))
    }

    fn count_some(&self, leaves: u64) -> Result<Counts> {
        let mut counts = (0, 0);
        for place in 0..LEAVES {
            let leaf = self.leaf_at((place as f64 + 0.5) / LEAVES as f64)?;
            self.add_counts(Node::new(leaf.page()), &mut counts);
        }
        Ok((counts.0 * leaves / LEAVES, counts.1 * leaves / LEAVES))
    }

    fn add_counts(&self, node: Node<'_>, counts: &mut Counts) {
        counts.0 += node.count() as u64;
        counts.1 += self.marked_in(node, 0..node.count());
    }
}
