//! Which evicted pages are written to flash: the named rules, and what they remember.

use super::sketch::Sketch;
use super::{Admission, choose};
use crate::flash::ghost::Ghost;
use crate::flash::key::{Key, mark};
use crate::page::PageId;

/// Which evidence justifies a flash write, once flash is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// No evidence is needed.
    AdmitAll,
    /// More than one use in memory.
    OneHitDiscard,
    /// That, or the ghost list has the identifier (CloudJump III).
    Ghost,
    /// It was requested more often than the page that it would replace (TinyLFU).
    TinyLfu,
    /// Both of the last two.
    GhostTinyLfu,
    /// As `Ghost`, with a ghost list as long as flash has pages (CloudJump III); `bpe` gives the others one half as long.
    GhostWhole,
}

impl Rule {
    /// All rules, as settings and traces name them.
    pub const NAMES: [(&str, Rule); 6] = [
        ("admit-all", Rule::AdmitAll),
        ("one-hit-discard", Rule::OneHitDiscard),
        ("ghost", Rule::Ghost),
        ("tiny-lfu", Rule::TinyLfu),
        ("ghost-tiny-lfu", Rule::GhostTinyLfu),
        ("ghost-whole", Rule::GhostWhole),
    ];

    pub fn named(name: &str) -> Option<Rule> {
        Rule::NAMES.iter().find(|(n, _)| *n == name).map(|(_, rule)| *rule)
    }
    pub fn name(self) -> &'static str {
        Rule::NAMES.iter().find(|(_, rule)| *rule == self).map_or("", |(name, _)| name)
    }

    fn remembers(self) -> bool {
        matches!(self, Rule::Ghost | Rule::GhostTinyLfu | Rule::GhostWhole)
    }
    /// Whether it needs the sketch.
    pub fn counts(self) -> bool {
        matches!(self, Rule::TinyLfu | Rule::GhostTinyLfu)
    }
}

/// Numbers of a filter, in multiples of the pages that flash holds.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Identifiers of the ghost list, in hundredths.
    pub ghost_percent: usize,
    /// Misses of memory after which a count of the sketch has halved.
    pub window: usize,
}

impl Default for Memory {
    /// The ghost list as the paper bounds it.
    fn default() -> Memory {
        Memory { ghost_percent: 100, window: 10 }
    }
}

pub struct Filter<K = PageId> {
    rule: Rule,
    ghost: Ghost<K>,
    /// Pages that were judged while the ghost list had their name.
    ghost_hits: u64,
    sketch: Option<Sketch>,
}

impl<K: Key> Filter<K> {
    /// For a flash of `pages`.
    pub fn new(rule: Rule, pages: usize, memory: Memory) -> Filter<K> {
        let ghost = if rule.remembers() { pages * memory.ghost_percent / 100 } else { 0 };
        let sketch = rule.counts().then(|| Sketch::new(pages, memory.window));
        Filter { rule, ghost: Ghost::new(ghost), ghost_hits: 0, sketch }
    }

    /// Memory missed the page, wherever it was then.
    pub fn missed(&mut self, id: K) {
        if let Some(sketch) = &mut self.sketch {
            sketch.note(mark(id));
        }
    }

    /// A page that flash does not have is evicted from memory after `accesses` uses there. `victim` returns the mark of the page
    /// that it would replace on flash, and may use the sketch; it is called only if the rule needs it, and returns None if no
    /// page would be replaced.
    pub fn judge(
        &mut self,
        id: K,
        accesses: u8,
        has_room: bool,
        victim: impl FnOnce(&Sketch) -> Option<u32>,
    ) -> Admission {
        let reused = self.is_reused(id, accesses, has_room);
        let worth = |sketch: &Sketch| {
            victim(sketch).is_none_or(|victim| sketch.estimate(mark(id)) > sketch.estimate(victim))
        };
        let admitted = reused && (has_room || self.sketch.as_ref().is_none_or(worth));
        if !admitted {
            self.remember(id);
            return Admission::Remember;
        }
        Admission::Admit
    }

    /// Whether there is the evidence of reuse that the rule asks for. The ghost list forgets the name.
    pub fn is_reused(&mut self, id: K, accesses: u8, has_room: bool) -> bool {
        let in_ghost = self.ghost.take(id);
        self.ghost_hits += u64::from(in_ghost);
        match self.rule {
            Rule::AdmitAll | Rule::TinyLfu => true,
            Rule::OneHitDiscard | Rule::Ghost | Rule::GhostWhole | Rule::GhostTinyLfu => {
                choose(accesses, in_ghost, has_room) == Admission::Admit
            }
        }
    }

    /// The page was to be written or had a copy on flash, and has none: remembers that it was worth one.
    pub fn remember(&mut self, id: K) {
        self.ghost.remember(id);
    }

    /// Pages that were judged while the ghost list had their name.
    pub fn ghost_hits(&self) -> u64 {
        self.ghost_hits
    }

    /// Memory that it has, in bytes.
    pub fn bytes(&self) -> usize {
        self.ghost.capacity() * size_of::<u32>() + self.sketch.as_ref().map_or(0, Sketch::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;

    fn page(n: u32) -> PageId {
        PageId::new(SpaceId(20), n)
    }

    fn judged(filter: &mut Filter, n: u32, accesses: u8, victim: u32) -> bool {
        filter.judge(page(n), accesses, false, |_| Some(mark(page(victim)))) == Admission::Admit
    }

    #[test]
    fn each_rule_asks_for_its_evidence() {
        for (rule, once, twice, again) in [
            (Rule::AdmitAll, true, true, true),
            (Rule::OneHitDiscard, false, true, false),
            (Rule::Ghost, false, true, true),
            (Rule::GhostWhole, false, true, true),
            (Rule::TinyLfu, false, false, false),
            (Rule::GhostTinyLfu, false, false, false),
        ] {
            let mut filter = Filter::new(rule, 1000, Memory::default());
            assert_eq!(judged(&mut filter, 1, 1, 9), once, "{rule:?}: one use");
            assert_eq!(judged(&mut filter, 2, 2, 9), twice, "{rule:?}: two uses");
            assert_eq!(judged(&mut filter, 1, 1, 9), again, "{rule:?}: one use, after it was turned away");
            let room = filter.judge(page(3), 1, true, |_| panic!("nobody has to leave"));
            assert!(room == Admission::Admit, "{rule:?}: there is room");
        }
    }

    #[test]
    fn the_sketch_compares_with_the_page_that_would_leave() {
        for rule in [Rule::TinyLfu, Rule::GhostTinyLfu] {
            let mut filter = Filter::new(rule, 1000, Memory::default());
            (0..3).for_each(|_| filter.missed(page(1)));
            (0..2).for_each(|_| filter.missed(page(2)));
            assert!(judged(&mut filter, 1, 2, 2), "{rule:?}: 3 against 2");
            assert!(!judged(&mut filter, 2, 2, 1), "{rule:?}: 2 against 3");
            assert!(!judged(&mut filter, 2, 2, 2), "{rule:?}: who has the slot keeps it");
            assert_eq!(judged(&mut filter, 1, 1, 3), rule == Rule::TinyLfu, "{rule:?}: without reuse");
        }
    }
}
