//! Temporary tables: a core of their own over the same storage and the same memory.
//!
//! It has its own catalog, undo, ids, locks and purge, all of them in temporary spaces: pages that no log knows, that go to
//! the spill space (`terrace_tier::volume::temporary`) and that are lost with the process. So everything that tables do, temporary ones
//! do too, by the same code: rows, large values, secondary indexes, statements and savepoints rolled back, ALTER, TRUNCATE.
//!
//! A transaction that uses a temporary table has a **side**, which is a transaction of that core: statements and savepoints begin and
//! go back in both, both are committed or rolled back, the side first, for it can fail and is lost with the process anyway. Nothing of
//! the side is prepared or waited for.
//!
//! The core is made with the first temporary table. Table and space ids say which core a table belongs to
//! ([`SpaceId::is_temporary`]).

use crate::error::Result;
use crate::lock::Locks;
use crate::table::Table;
use crate::table::catalog::Catalog;
use crate::txn::Txn;
use crate::txn::ids::Ids;
use crate::txn::orphaned::RollbackWorker;
use crate::txn::purge::PurgeWorker;
use crate::txn::shared::Core;
use crate::undo::stream::{self, Streams};
use parking_lot::Mutex;
use std::iter;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use terrace_tier::objects::object::codec::Codecs;
use terrace_tier::page::{PageId, SpaceId};

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
    pub(crate) fn make_temporary(&self) -> Result<&Arc<Core>> {
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
        core.bypass.on.store(false, Ordering::Relaxed); // to the volume's slab; what it would pass by costs nothing here
        // Both or none: a worker of a core that is given up would go on over what the next one has.
        let purge = self.storage.try_spawn(Box::new(PurgeWorker::new(core.clone(), 0).0))?;
        let rollback = self.storage.try_spawn(Box::new(RollbackWorker::new(core.clone())))?;
        self.storage.keep(purge);
        self.storage.keep(rollback);
        Ok(self.temporary.core.get_or_init(|| core))
    }
}

impl Txn {
    /// The transaction that does the work on this table: the side, if the table is temporary.
    pub(crate) fn side(&self, table: &Table) -> Option<&Arc<Txn>> {
        let core = self.core().of_temporary().filter(|_| table.is_temporary())?;
        Some(self.side_or(|| Txn::beside(self, core)))
    }
}
