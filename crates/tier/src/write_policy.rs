//! Write policies: what becomes of a page's copy on flash when the page is flushed. CloudJump III §4.1.2.
//!
//! * **Clean-write**: the copy is invalidated. The least wear; the page's next eviction may bring it back.
//! * **Dual-write**: the copy is rewritten with what was flushed, so the page stays on flash. Only a page that flash has is rewritten:
//!   what is admitted is decided at eviction, and nowhere else.
//! * **Single-write**: the page is written to its spill space and nowhere else (`temporary`).
//!
//! Temporary pages are written once; for all others the table's word counts, then the instance's. `Auto`, the default of both, is
//! the paper's rule: clean under normal load; dual while the flush persists pages for a checkpoint, which come in the order of their changes and not of
//! their coldness, so what flash has of them is as much wanted as before. Not while flash is behind with its writes.
//!
//! Whatever is chosen, an image on flash is served only if its tag is the map's: the map and the log decide, and a crash between the
//! steps leaves at most a copy that nobody is given.

use crate::by_space::{BySpace, add};
use crate::flush::Flusher;
use crate::page::{PageId, SpaceId, Tag};
use crate::quota::{Rules, Table};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What a table, or the instance, says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum WritePolicy {
    /// Of a table: as the instance. Of the instance: as `Auto`.
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
    /// What holds for a table that says this, in an instance that says `all`.
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

/// What is done with one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write {
    Clean,
    Dual,
    Single,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances {
    pub temporary: bool,
    /// The flush is for a checkpoint that waits.
    pub for_checkpoint: bool,
    /// Flash is behind with what it is to write.
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

/// Pages of a space that were flushed, by what was done.
#[derive(Default, Debug)]
pub struct WriteCounts {
    pub clean: AtomicU64,
    /// Their copy on flash was rewritten.
    pub dual: AtomicU64,
    pub single: AtomicU64,
}

/// The policies of an instance at work.
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
    /// For all tables that say nothing, from the next batch on.
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
    /// Tables whose writes are limited: each once or more.
    pub(crate) fn each_limiting(&self, each: impl Fn(&Table)) {
        let all = self.rules.get().filter(|rules| rules.limit_writes()).map(|rules| rules.all());
        all.iter().flatten().for_each(|(_, rule)| each(&rule.table));
    }
    fn said_of(&self, space: SpaceId) -> WritePolicy {
        let rule = self.rules.get().and_then(|rules| rules.of(space));
        rule.map_or(WritePolicy::Default, |rule| rule.table.rule.write)
    }
    /// What holds for the space, by name.
    pub fn in_force(&self, space: SpaceId) -> &'static str {
        if space.is_temporary() { "single" } else { self.said_of(space).in_force(self.all()).name() }
    }
    /// A page was flushed, and its copy on flash is invalid.
    pub(crate) fn count_clean(&self, space: SpaceId) {
        add(&self.by_space.of(space).clean, 1);
    }
    /// So many pages were flushed to the spill space alone.
    pub(crate) fn count_single(&self, space: SpaceId) {
        add(&self.by_space.of(space).single, 1);
    }
}

impl Flusher {
    /// The flash's part of a page's flush (W5), after its new image is mapped.
    pub(crate) fn write_to_flash(&self, id: PageId, tag: Tag, image: &[u8], for_checkpoint: bool) {
        let writes = self.writes();
        let mut rewritten = false;
        if let Some(flash) = self.flash() {
            let now = Circumstances { for_checkpoint, flash_is_behind: flash.is_behind(), temporary: false };
            match choose(writes.said_of(id.space), writes.all(), now) {
                Write::Dual => rewritten = flash.rewrite(id, tag, image),
                Write::Clean | Write::Single => flash.invalidate(id),
            }
        }
        let counts = writes.by_space.of(id.space);
        add(if rewritten { &counts.dual } else { &counts.clean }, 1);
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
