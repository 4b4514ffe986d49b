//! Temporary tables as the engine offers them: made, found by name, listed, counted. Their core is `txn::temporary`.

use super::Engine;
use super::SpaceInfo;
use crate::error::{Error, Result};
use crate::table::{Table, TableDef};
use crate::txn::shared::Core;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_tier::page::{PAGE_SIZE, SpaceId};

impl Engine {
    /// Makes a table that ends with the process: unlogged, and never on the volume's slab nor in the object store.
    pub fn create_temporary_table(&self, name: &str, def: &TableDef) -> Result<Arc<Table>> {
        if self.core().catalog.has(name) {
            return Err(Error::Exists(format!("table {name}")));
        }
        let core = self.core().make_temporary()?;
        core.catalog.create_table(name, def).inspect_err(|_| core.drop_abandoned())
    }

    /// The core that the table of this name belongs to.
    pub(crate) fn core_of(&self, name: &str) -> &Arc<Core> {
        let core = self.core();
        core.of_temporary().filter(|temporary| temporary.catalog.has(name)).unwrap_or(core)
    }

    /// The core that the table belongs to.
    pub(crate) fn core_of_table(&self, table: &Table) -> &Arc<Core> {
        let core = self.core();
        core.of_temporary().filter(|_| table.is_temporary()).unwrap_or(core)
    }

    /// Every tree of every temporary table, and where its pages are.
    pub(crate) fn temporary_spaces(&self) -> Vec<SpaceInfo> {
        let Some(core) = self.core().of_temporary() else { return Vec::new() };
        let memory = core.storage.pages.pool().pages_by_space();
        let one = |(space, table, index): (SpaceId, String, String)| {
            let spilled = core.storage.spill.of_space(space);
            let memory = memory.get(&space).copied().unwrap_or(0);
            let pages = (spilled.flash + spilled.volume).max(memory);
            let (flash, volume) = (spilled.flash, spilled.volume);
            SpaceInfo { space: space.0, table, index, pages, memory, flash, volume, object: 0 }
        };
        core.catalog.list().into_iter().map(one).collect()
    }

    /// Counters of temporary tables, by name.
    pub(crate) fn temporary_status(&self) -> Vec<(&'static str, u64)> {
        let storage = &self.core().storage;
        let (spill, pool) = (&storage.spill, storage.pages.pool());
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let pages = pool.unspilled() as u64 + spill.used();
        vec![
            (
                "temporary_tables",
                self.core().of_temporary().map_or(0, |core| core.catalog.names().len() as u64),
            ),
            ("temporary_pages", pages),
            ("temporary_bytes", pages * PAGE_SIZE as u64),
            ("temporary_bytes_max", spill.max() * PAGE_SIZE as u64),
            ("temporary_pages_spilled", spill.used()),
            ("temporary_spill_file_bytes", spill.file_bytes()),
            ("temporary_spill_writes", get(&spill.counters.written)),
            ("temporary_spill_reads", get(&spill.counters.read)),
            ("temporary_spill_errors", get(&spill.counters.errors)),
            ("temporary_full", get(&spill.counters.full)),
        ]
    }
}
