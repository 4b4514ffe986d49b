//! Applies quotas and placement to flash: the class of a page, and what happens to pages when rules change.

use super::{Bpe, BpeState, mark_of};
use crate::address::Tier;
use crate::limits::quota::{Class, Holder, Placement, Rules, SpaceRule};
use crate::page::{PAGE_SIZE, PageId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::clock::Clock;

/// Maximum number of classes, including that of tables without rules.
pub const CLASSES_MAX: usize = 1 << Class::BITS;

fn pages(bytes: u64) -> u32 {
    (bytes / PAGE_SIZE as u64).min(u64::from(u32::MAX)) as u32
}

impl BpeState {
    pub(super) fn class_of(&self, rule: Option<&SpaceRule>) -> Class {
        let named =
            rule.and_then(|rule| self.classes.get(&(rule.table.id, rule.placement == Placement::Keep)));
        named.copied().unwrap_or(0)
    }
}

impl Bpe {
    /// Set once, before pages are admitted.
    pub fn set_rules(&self, rules: Arc<Rules>, clock: Arc<dyn Clock>) {
        assert!(self.rules.set((rules, clock)).is_ok(), "the rules are set twice");
        self.rules_changed();
    }

    /// Set once, before the worker begins. The worker calls it when the pages of the last run are known: only by their
    /// fingerprints, so their tables are unknown until a caller that knows the tables' pages reports them with `classify`.
    pub fn when_restored(&self, act: impl Fn(&Bpe) + Send + Sync + 'static) {
        assert!(self.when_restored.set(Box::new(act)).is_ok(), "what is to be done then is set twice");
    }

    pub(super) fn rule_of(&self, id: PageId) -> Option<SpaceRule> {
        let (rules, _) = self.rules.get()?;
        rules.of(id.space)
    }

    /// Whether the page's table has a token left for a fill, which takes it. Without a token the page is dropped: no thread
    /// waits.
    pub(super) fn may_fill(&self, rule: Option<&SpaceRule>) -> bool {
        let (Some(rule), Some((_, clock))) = (rule, self.rules.get()) else { return true };
        let (table, now, bytes) = (&rule.table, clock.now(), PAGE_SIZE as u64);
        let may = table.write_room(Tier::Flash, now, bytes) > 0;
        if may {
            table.wrote(Tier::Flash, now, 1, bytes);
        } else {
            table.fills_refused.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// The rules have changed. Pages on flash keep their class until `classify`, or until they are hit.
    pub fn rules_changed(&self) {
        let Some((rules, _)) = self.rules.get() else { return };
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.off.is_some() {
            return;
        }
        let mut holders = vec![Holder::default()];
        let mut all = rules.all();
        all.sort_unstable_by_key(|(space, _)| *space);
        let mut classes = hashbrown::HashMap::new();
        for (_, rule) in all.iter().filter(|(_, rule)| rule.placement != Placement::None) {
            let (table, keep) = (&rule.table, rule.placement == Placement::Keep);
            if holders.len() < CLASSES_MAX && !classes.contains_key(&(table.id, keep)) {
                classes.insert((table.id, keep), holders.len() as Class);
                let (min, max) = (pages(table.rule.flash.min), pages(table.rule.flash.max));
                let max = if table.rule.flash.max > 0 { max.max(1) } else { 0 };
                holders.push(Holder { table: table.id, keep, used: 0, min, max });
            }
        }
        let same = classes == state.classes;
        state.classes = classes;
        if !same {
            // The class numbers have new meanings now.
            state.core.index.set_holders(Vec::new());
        }
        state.core.index.set_holders(holders);
    }

    /// Assigns the present rule's class to pages that flash may have: those that the rule keeps off flash are removed.
    pub fn classify(&self, ids: &[PageId]) {
        for ids in ids.chunks(1024) {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            for id in ids {
                let rule = self.rule_of(*id);
                if rule.as_ref().is_some_and(|rule| rule.placement == Placement::None) {
                    let on_flash = state.core.index.matches(mark_of(*id));
                    on_flash
                        .into_iter()
                        .filter(|slot| !state.core.index.is_busy(*slot))
                        .collect::<Vec<_>>()
                        .into_iter()
                        .for_each(|slot| state.core.index.remove(slot));
                } else {
                    let class = state.class_of(rule.as_ref());
                    state.core.index.classify(mark_of(*id), class);
                }
            }
        }
    }

    /// Called when all pages are classified: removes each table's pages beyond its cap.
    pub fn trim(&self) {
        let classes: Vec<Class> = self.state.lock().classes.values().copied().collect();
        for class in classes {
            while !self.state.lock().core.index.trim(class, 1024) {}
        }
    }

    /// The number of pages on flash of each table that has rules.
    pub fn pages_of_tables(&self) -> Vec<(u32, u32)> {
        let state = self.state.lock();
        let mut tables: Vec<(u32, u32)> = state
            .classes
            .iter()
            .map(|((table, _), class)| (*table, state.core.index.shares().holder(*class).used))
            .collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }
}

#[cfg(test)]
mod tests;
