//! Temporary tables: a core of their own over the same storage and the same memory.
//!
//! It has its own catalog, undo, ids, locks and purge, all of them in temporary spaces: pages that no log knows, that go to
//! the spill space (`terrace_tier::volume::temporary`) and that nobody finds after the process. So everything that tables do, temporary ones
//! do too, by the same code: rows, large values, secondary indexes, statements and savepoints rolled back, ALTER, TRUNCATE.
//!
//! A transaction that uses a temporary table has a **side**, which is a transaction of that core: statements and savepoints begin and
//! go back in both, both are committed or rolled back, the side first, for it can fail and is lost with the process anyway. Nothing of
//! the side is prepared or waited for.
//!
//! The core is made with the first temporary table. Table and space ids say which core a table belongs to
//! ([`SpaceId::is_temporary`]).

use crate::catalog::Catalog;
use crate::core::Core;
use crate::engine::{Engine, SpaceInfo};
use crate::error::{Error, Result};
use crate::lock::Locks;
use crate::table::{Table, TableDef};
use crate::txn::Txn;
use crate::txn::ids::Ids;
use crate::txn::orphaned::RollbackWorker;
use crate::txn::purge::PurgeWorker;
use crate::undo::stream::{self, Streams};
use parking_lot::Mutex;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_tier::objects::object::codec::Codecs;
use terrace_tier::page::{PAGE_SIZE, PageId, SpaceId};

/// The way from an instance's core to that of its temporary tables.
#[derive(Default)]
pub struct Temporary {
    core: OnceLock<Arc<Core>>,
    /// Held while it is made.
    making: Mutex<()>,
}

impl Core {
    /// Whether this is the core of temporary tables.
    pub fn is_temporary(&self) -> bool {
        Arc::ptr_eq(self.streams.pages(), &self.storage.temporary)
    }

    /// The core of temporary tables, if there was one yet.
    pub(crate) fn of_temporary(&self) -> Option<&Arc<Core>> {
        self.temporary.core.get()
    }

    /// This core and, if there was one yet, that of temporary tables.
    pub(crate) fn with_temporary(self: &Arc<Core>) -> impl Iterator<Item = &Arc<Core>> {
        iter::once(self).chain(self.of_temporary())
    }

    /// The core of temporary tables.
    fn make_temporary(&self) -> Result<&Arc<Core>> {
        let _making = self.temporary.making.lock();
        if let Some(core) = self.of_temporary() {
            return Ok(core);
        }
        let (storage, config) = (self.storage.clone(), self.config.clone());
        let pages = &storage.temporary;
        stream::create(pages, SpaceId::TEMPORARY_UNDO)?;
        // An attempt before this one may have got so far.
        if !pages.exists(PageId::new(SpaceId::TEMPORARY_CATALOG, 0))? {
            Catalog::create(pages, SpaceId::TEMPORARY_CATALOG)?;
        }
        let catalog = Catalog::open_temporary(pages, Arc::new(Codecs::new(config.compression)))?;
        let (streams, _) = Streams::open(pages, SpaceId::TEMPORARY_UNDO)?;
        let locks = Locks::of(storage.world.clone(), &storage.in_force(), storage.pages.pool());
        let ids = Ids::new(1, catalog.seen_by_all(), pages.redo().clone());
        let core = Arc::new(Core::new(storage, config, ids, locks, streams, catalog));
        core.bypass.store(false, Ordering::Relaxed); // to the volume's slab; what it would pass by costs nothing here
        // Both or none: a worker of a core that is given up would go on over what the next one has.
        let purge = self.storage.try_spawn(Box::new(PurgeWorker::new(core.clone(), 0).0))?;
        let rollback = self.storage.try_spawn(Box::new(RollbackWorker::new(core.clone())))?;
        self.storage.keep(purge);
        self.storage.keep(rollback);
        Ok(self.temporary.core.get_or_init(|| core))
    }
}

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

impl Txn {
    /// Who works for the transaction on this table: its side, if the table is temporary.
    pub(crate) fn side(&self, table: &Table) -> Option<&Arc<Txn>> {
        let core = self.core().of_temporary().filter(|_| table.is_temporary())?;
        Some(self.side_or(|| Txn::beside(self, core)))
    }
}
