//! Write policies: what happens to a page's copy on flash when the page is flushed. CloudJump III §4.1.2.
//!
//! * **Clean-write**: the copy is invalidated. The least wear; the page's next eviction may bring it back.
//! * **Dual-write**: the copy is rewritten with the flushed image, so the page stays on flash. Only a page that flash has is
//!   rewritten: admission is decided at eviction, and nowhere else.
//! * **Single-write**: the page is written to its spill space and nowhere else (`temporary`).
//!
//! Temporary pages are written once. For all other pages the table's policy applies, then the instance's. `Auto`, the default of
//! both, is the paper's rule: clean-write under normal load; dual-write while the flush persists pages for a checkpoint. These
//! pages come in the order of their changes and not of their coldness, so their copies on flash are as useful as before. No
//! dual-write while flash is behind with its writes.
//!
//! Under every policy, an image on flash is served only if its tag is the map's: the map and the log decide, and a crash between
//! the steps leaves at most a copy that is never served.

use crate::limits::by_space::{BySpace, add};
use crate::limits::quota::{Rules, Table};
use crate::page::SpaceId;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The policy option of a table, or of the instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum WritePolicy {
    /// For a table: as the instance. For the instance: as `Auto`.
    #[default]
    Default = 0,
    Auto = 1,
    Clean = 2,
    Dual = 3,
}

impl WritePolicy {
    pub const ALL: [WritePolicy; 4] =
        [WritePolicy::Default, WritePolicy::Auto, WritePolicy::Clean, WritePolicy::Dual];

    pub fn numbered(number: u8) -> Option<WritePolicy> {
        WritePolicy::ALL.get(usize::from(number)).copied()
    }
    /// The effective policy of a table with this option, in an instance whose option is `all`.
    pub fn in_force(self, all: WritePolicy) -> WritePolicy {
        [self, all].into_iter().find(|said| *said != WritePolicy::Default).unwrap_or(WritePolicy::Auto)
    }
    pub fn name(self) -> &'static str {
        match self {
            WritePolicy::Default => "default",
            WritePolicy::Auto => "auto",
            WritePolicy::Clean => "clean",
            WritePolicy::Dual => "dual",
        }
    }
}

/// The action for one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write {
    Clean,
    Dual,
    Single,
}

/// The inputs of the choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances {
    pub temporary: bool,
    /// The flush is for a checkpoint that waits.
    pub for_checkpoint: bool,
    /// Flash is behind with its writes.
    pub flash_is_behind: bool,
}

/// The rule: a pure function.
pub fn choose(table: WritePolicy, all: WritePolicy, now: Circumstances) -> Write {
    match table.in_force(all) {
        _ if now.temporary => Write::Single,
        WritePolicy::Clean => Write::Clean,
        WritePolicy::Dual => Write::Dual,
        _ if now.for_checkpoint && !now.flash_is_behind => Write::Dual,
        _ => Write::Clean,
    }
}

/// Flushed pages of a space, by action.
#[derive(Default, Debug)]
pub struct WriteCounts {
    pub clean: AtomicU64,
    /// Their copy on flash was rewritten.
    pub dual: AtomicU64,
    pub single: AtomicU64,
}

/// An instance's write policies in use.
#[derive(Default)]
pub struct Writes {
    all: AtomicU8,
    rules: OnceLock<Arc<Rules>>,
    pub by_space: BySpace<WriteCounts>,
}

impl Writes {
    pub fn set_rules(&self, rules: Arc<Rules>) {
        assert!(self.rules.set(rules).is_ok(), "the rules are set twice");
    }
    /// Sets the policy of all tables without their own, from the next batch on.
    pub fn set(&self, policy: WritePolicy) {
        self.all.store(policy as u8, Ordering::Relaxed);
    }
    pub fn all(&self) -> WritePolicy {
        WritePolicy::numbered(self.all.load(Ordering::Relaxed)).unwrap_or_default()
    }
    /// Whether writes of any table are limited.
    pub(crate) fn limit(&self) -> bool {
        self.rules.get().is_some_and(|rules| rules.limit_writes())
    }
    /// The space's table, if its writes are limited.
    pub(crate) fn limiting(&self, space: SpaceId) -> Option<Arc<Table>> {
        self.rules.get()?.limiting_writes(space)
    }
    /// Tables whose writes are limited: each at least once.
    pub(crate) fn each_limiting(&self, each: impl Fn(&Table)) {
        let all = self.rules.get().filter(|rules| rules.limit_writes()).map(|rules| rules.all());
        all.iter().flatten().for_each(|(_, rule)| each(&rule.table));
    }
    pub(crate) fn said_of(&self, space: SpaceId) -> WritePolicy {
        let rule = self.rules.get().and_then(|rules| rules.of(space));
        rule.map_or(WritePolicy::Default, |rule| rule.table.rule.write)
    }
    /// The effective policy of the space, by name.
    pub fn in_force(&self, space: SpaceId) -> &'static str {
        if space.is_temporary() { "single" } else { self.said_of(space).in_force(self.all()).name() }
    }
    /// A page was flushed, and its copy on flash is invalid.
    pub(crate) fn count_clean(&self, space: SpaceId) {
        add(&self.by_space.of(space).clean, 1);
    }
    /// This number of pages was flushed to the spill space alone.
    pub(crate) fn count_single(&self, space: SpaceId) {
        add(&self.by_space.of(space).single, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_goes_before_the_instance_and_both_before_the_load() {
        use WritePolicy::*;
        let usual = Circumstances::default();
        let checkpoint = Circumstances { for_checkpoint: true, ..usual };
        let behind = Circumstances { flash_is_behind: true, ..checkpoint };
        let temporary = Circumstances { temporary: true, ..checkpoint };
        for (table, all, expected) in [
            (Default, Default, [Write::Clean, Write::Dual, Write::Clean]),
            (Default, Auto, [Write::Clean, Write::Dual, Write::Clean]),
            (Auto, Dual, [Write::Clean, Write::Dual, Write::Clean]),
            (Default, Clean, [Write::Clean; 3]),
            (Default, Dual, [Write::Dual; 3]),
            (Clean, Dual, [Write::Clean; 3]),
            (Dual, Clean, [Write::Dual; 3]),
        ] {
            assert_eq!(
                [usual, checkpoint, behind].map(|now| choose(table, all, now)),
                expected,
                "{table:?}, {all:?}"
            );
            assert_eq!(choose(table, all, temporary), Write::Single);
        }
        assert!(WritePolicy::ALL.iter().all(|one| WritePolicy::numbered(*one as u8) == Some(*one)));
        assert_eq!(WritePolicy::numbered(4), None);
    }
}
