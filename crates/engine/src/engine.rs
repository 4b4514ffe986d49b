//! The engine: what fronts open.

pub mod inspect;
pub mod rules;
mod temporary;

pub use inspect::status::SpaceInfo;

use crate::config::{Bytes, Config};
use crate::cursor::{Buffers, Cursor};
use crate::engine::inspect::info_tables::{self, Value};
use crate::engine::inspect::kept_curve::KeptCurve;
use crate::engine::inspect::metrics;
use crate::error::{Error, Result};
use crate::lock::Isolation;
use crate::lock::{Locks, OnDeadlock, OnWait, StatementOf};
use crate::storage::copy::{BackgroundCopy, Copied, Copier, OnProgress};
use crate::storage::resize::Size;
use crate::storage::{Parts, Storage};
use crate::table::catalog::Catalog;
use crate::table::catalog::Redefined;
use crate::table::catalog::rules::{TableRules, WritePolicy};
use crate::table::row_counters::Rows;
use crate::table::{Table, TableDef};
use crate::txn::ids::Ids;
use crate::txn::orphaned::{OrphanedTxn, RollbackWorker};
use crate::txn::purge::PurgeWorker;
use crate::txn::recover::read_streams;
use crate::txn::shared::Core;
use crate::txn::{Lock, Txn};
use crate::undo::stream::{self, Streams};
use hashbrown::HashSet;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::disk::Disk;
use terrace_tier::memory::pool::Access;
use terrace_tier::objects::object::codec::Codec;
use terrace_tier::page::{PageId, SpaceId};

/// Takes the rows of something that happened.
pub type TellRows = Box<dyn Fn(&[Vec<Value>]) + Send + Sync>;

pub struct Engine {
    core: Arc<Core>,
    prepared: Mutex<Vec<(Vec<u8>, OrphanedTxn)>>,
    /// The numbers at the last report.
    looked: Mutex<inspect::report::Numbers>,
}

impl Engine {
    /// Opens the instance on `parts`, makes it if there is none, recovers it if it crashed.
    pub fn open(config: Config, parts: Parts) -> Result<Arc<Engine>> {
        let storage = Arc::new(Storage::open(&config, &parts)?);
        stream::create(&storage.pages, SpaceId::UNDO)?;
        if !storage.pages.exists(PageId::new(SpaceId::CATALOG, 0))? {
            Catalog::create(&storage.pages, SpaceId::CATALOG)?;
        }
        let catalog = Catalog::open(&storage.pages, storage.checkpointer.clone(), storage.codecs())?;
        let (streams, found) = Streams::open(&storage.pages, SpaceId::UNDO)?;
        let recovered = read_streams(&streams, found)?;
        let bound = storage.checkpointer.superblock().transactions;
        let bound = if crate::planted::ID_REUSED.on() { 0 } else { bound };
        let redo = storage.pages.redo().clone();
        let ids = Ids::new(bound.max(recovered.highest), catalog.seen_by_all(), redo);
        let locks = Locks::of(storage.world.clone(), &config, storage.pages.pool());
        let left = recovered.unfinished.iter().chain(recovered.prepared.iter().map(|(_, l)| l));
        left.for_each(|one| ids.revive(one.id()));
        let live = catalog.spaces();
        storage.start_redo(|space| live.contains(&space))?;
        let core = Arc::new(Core::new(storage, config, ids, locks, streams, catalog));
        core.purge_begins_with(&recovered.history);
        *core.purge.history.lock() = recovered.history;
        core.push_rules();
        let sched = core.storage.world.sched.clone();
        recovered
            .unfinished
            .iter()
            .chain(recovered.prepared.iter().map(|(_, left)| left))
            .for_each(|left| left.show(&core));
        recovered.unfinished.into_iter().for_each(|left| core.rollbacks.add(left));
        core.storage.keep(sched.spawn(Box::new(RollbackWorker::new(core.clone()))));
        let fetchers = core.config.buffers(core.storage.cold.is_some()).fetchers;
        let (purge, fetchers) = PurgeWorker::new(core.clone(), fetchers);
        core.storage.keep(sched.spawn(Box::new(purge)));
        fetchers.into_iter().for_each(|one| core.storage.keep(sched.spawn(Box::new(one))));
        let looked = Mutex::new(inspect::report::Numbers::at_start(core.storage.since));
        Ok(Arc::new(Engine { core, prepared: Mutex::new(recovered.prepared), looked }))
    }

    /// Closes cleanly: everything is flushed and the next start has nothing to redo.
    pub fn shutdown(&self) -> Result<()> {
        self.core.storage.stop_workers_but_flush();
        self.core.catalog.save_rows();
        self.core.storage.close()?;
        // Advice is no reason to fail: without it there is only none.
        let _ = KeptCurve::of(&self.core).save(&*self.core.storage.volume);
        self.core.storage.stop();
        Ok(())
    }

    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Calls `on_wait` before each lock wait with the owners (`Txn::set_owner`) of the waiting transaction and of the one it waits for, if both
    /// have one. It must not call the engine, but it may cause a transaction to be cancelled by another thread. The first
    /// call of this function counts.
    pub fn tell_lock_waits(&self, on_wait: OnWait) {
        self.core.locks.owners.tell(on_wait);
    }

    /// Calls `tell` with the rows of each deadlock from now on, as `last_deadlock` has them ([`Engine::each_seen`]); None: of none any more. It is
    /// called by the thread that found it, which goes on then. It must not call the engine.
    pub fn tell_deadlocks(&self, tell: Option<TellRows>) {
        let core = Arc::downgrade(&self.core);
        self.core.locks.deadlocks.tell(tell.map(|tell| -> OnDeadlock {
            Arc::new(move |deadlock| {
                let Some(core) = core.upgrade() else { return };
                let mut rows = Vec::new();
                info_tables::locks::deadlock(&core, deadlock, &mut |row| rows.push(row.to_vec()));
                tell(&rows);
            })
        }));
    }

    /// Whether pages of trees that are built in bulk pass by the log and memory (`terrace_tier::volume::bypass`), for builds that begin
    /// from here on; and whether large values pass by the log (`txn::large`), for rows from here on. Nothing does while the log is archived.
    pub fn set_bypass(&self, on: bool) {
        let on = on && self.core.storage.archiver.is_none();
        self.core.bypass.on.store(on, Ordering::Relaxed);
    }

    /// Rows of at least this many bytes bypass the log, if they are too large for a leaf.
    pub fn set_bypass_from(&self, bytes: u64) {
        self.core.bypass.least.store(bytes, Ordering::Relaxed);
    }

    /// What becomes of flash copies of pages that are flushed, in tables that do not say it themselves; from now on.
    pub fn set_write_policy(&self, policy: WritePolicy) {
        self.core.storage.flusher.writes().set(policy);
    }

    /// A session has read and changed rows, which it counts itself.
    pub fn count_rows(&self, session: u64, rows: &Rows) {
        self.core.rows.add(session, rows);
    }

    pub fn begin(&self, isolation: Isolation) -> Arc<Txn> {
        Txn::begin(&self.core, isolation)
    }

    /// From now on views, and answers to reads under locks, hold only commits that are durable, and a ticket's wait includes that they hold
    /// that commit; or, as at first, all that is committed. With true everything committed so far is durable on return. Not of temporary tables.
    pub fn set_durable_reads(&self, on: bool) -> Result<()> {
        self.core.ids.set_durable(on);
        if on { self.make_durable() } else { Ok(()) }
    }

    /// Everything committed so far is durable on return.
    pub fn make_durable(&self) -> Result<()> {
        let redo = self.core.storage.pages.redo();
        Ok(redo.make_durable(redo.appended())?)
    }

    // --- tables ------------------------------------------------------------------------------

    pub fn create_table(&self, name: &str, def: &TableDef) -> Result<Arc<Table>> {
        self.core.catalog.create_table(name, def).inspect_err(|_| self.core.drop_abandoned())
    }
    /// Views that are open now are too old for the table: it was made or emptied after them, and has not what they would see. Not durable:
    /// no view outlives the engine.
    pub fn outdate_views(&self, table: &Table) {
        self.core.catalog.set_built(table, self.core.ids.pass_views());
    }
    pub fn open_table(&self, name: &str) -> Result<Arc<Table>> {
        self.core_of(name).catalog.open_table(name)
    }
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let core = self.core_of(name);
        let spaces = core.catalog.drop_table(name, true)?;
        // The catalog names them no more: what fails here purge tries again, or the next start does.
        let _ = core.drop_spaces(spaces);
        core.push_rules();
        core.purge.wanted.notify();
        Ok(())
    }
    /// As [`Engine::drop_table`], without waiting for the log: after a crash the table may exist, as it was. For a caller that would drop it again then, because
    /// its name says so. Its room is free a little later, or when a session needs it.
    pub fn drop_table_unwaited(&self, name: &str) -> Result<()> {
        let core = self.core_of(name);
        if core.is_temporary() {
            return self.drop_table(name); // nothing of it outlives the process
        }
        let spaces = core.catalog.drop_table(name, false)?;
        let storage = &core.storage;
        storage.dropped_spaces.when_durable(
            spaces,
            storage.pages.redo().appended(),
            storage.world.clock.now(),
        );
        core.push_rules();
        // Purge of temporary tables as well: the other may be in the middle of a large transaction.
        core.purge.wanted.notify();
        core.of_temporary().into_iter().for_each(|core| core.purge.wanted.notify());
        Ok(())
    }
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.core_of(from).catalog.rename_table(from, to)
    }
    /// Gives the table a name, which may be the one that it has, and other properties, in one change. Durable when it returns.
    pub fn redefine_table(&self, from: &str, to: &str, properties: &[u8]) -> Result<()> {
        self.redefine_tables(&[Redefined { from, to, properties: Some(properties) }])
    }
    /// Gives tables other names and properties, all of them or none after a crash. Durable when it returns.
    pub fn redefine_tables(&self, all: &[Redefined<'_>]) -> Result<()> {
        self.core.catalog.redefine_tables(all)
    }
    /// How the table's pages are compressed in objects from now on; None: as the instance's are. Durable when it returns.
    pub fn set_compression(&self, name: &str, codec: Option<Codec>) -> Result<()> {
        self.core_of(name).catalog.set_compression(name, codec)
    }
    /// Empties tables, all of them or none after a crash. Durable when it returns. They are all temporary, or none is.
    pub fn truncate_tables(&self, names: &[&str]) -> Result<()> {
        let Some(first) = names.first() else { return Ok(()) };
        let core = self.core_of(first);
        let spaces = core.catalog.truncate_tables(names).inspect_err(|_| core.drop_abandoned())?;
        // The catalog names them no more: what fails here purge tries again, or the next start does.
        let _ = core.drop_spaces(spaces);
        core.push_rules();
        core.purge.wanted.notify();
        Ok(())
    }
    /// What the front keeps of the table, without opening it.
    pub fn table_properties(&self, name: &str) -> Result<Vec<u8>> {
        self.core_of(name).catalog.properties(name).ok_or_else(|| Error::Absent(format!("table {name}")))
    }
    /// Temporary tables are not among them.
    pub fn list_tables(&self) -> Vec<String> {
        self.core.catalog.names()
    }

    // --- prepared transactions ---------------------------------------------------------------

    /// XIDs of the transactions that a crash left prepared.
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        self.prepared.lock().iter().map(|(xid, _)| xid.clone()).collect()
    }
    /// The tables in which prepared transactions have changes or locks: those that a crash left, and `others`.
    pub fn tables_of_prepared(&self, others: &[Arc<Txn>]) -> Result<Vec<String>> {
        let (mut tables, mut spaces) = (HashSet::new(), HashSet::new());
        for (_, left) in self.prepared.lock().iter() {
            tables.extend(left.tables.iter().copied());
        }
        for txn in others {
            let (changed, locked) = txn.touched()?;
            tables.extend(changed);
            spaces.extend(locked);
        }
        Ok(if tables.is_empty() && spaces.is_empty() {
            Vec::new()
        } else {
            self.core.catalog.named(&tables, &spaces)
        })
    }
    /// Decides a prepared transaction. One whose end fails stays prepared, and can be decided again, unless it is being rolled back by
    /// then, which continues in the background; meanwhile it cannot be taken again.
    fn decide(&self, xid: &[u8], end: impl FnOnce(&mut OrphanedTxn) -> Result<()>) -> Result<()> {
        let taken = {
            let mut prepared = self.prepared.lock();
            let at = prepared.iter().position(|(x, _)| x == xid);
            at.map(|at| prepared.remove(at))
        };
        let absent = || Error::Absent("a prepared transaction with this XID".into());
        let (xid, mut left) = taken.ok_or_else(absent)?;
        let ended = end(&mut left);
        match ended {
            Err(_) if left.is_rolling_back() => left.leave(&self.core),
            Err(_) => self.prepared.lock().push((xid, left)),
            Ok(()) => {}
        }
        ended
    }
    /// Durable when it returns.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<()> {
        self.decide(xid, |left| left.commit(&self.core))
    }
    /// Once begun it is rolled back, also by a crash; if it fails in the middle, as [`Txn::rollback`] may, it goes on in the background, and has no
    /// name any more.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        self.decide(xid, |left| left.roll_back(&self.core))
    }

    // --- what an operator sees ---------------------------------------------------------------------------

    /// One of the information tables, by name (`inspect::info_tables`). None: no table has that name.
    pub fn seen(&self, name: &str) -> Option<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        self.each_seen(name, &mut |row| rows.push(row.to_vec())).then_some(rows)
    }
    /// As [`Engine::seen`], row by row. False: there is none of that name.
    pub fn each_seen(&self, name: &str, each: &mut dyn FnMut(&[Value])) -> bool {
        if info_tables::locks::each(&self.core, name, each) {
            return true;
        }
        let rows = match name {
            "metrics" => Some(metrics::rows(self)),
            _ => info_tables::rows(&self.core, &self.spaces(), name),
        };
        rows.inspect(|rows| rows.iter().for_each(|row| each(row))).is_some()
    }
    /// Says which statement a connection runs ([`StatementOf`]); the first call counts.
    pub fn ask_statements(&self, statement_of: StatementOf) {
        self.core.locks.deadlocks.ask(statement_of);
    }

    /// Gives memory, flash or object buffer another size; see [`Storage::resize`].
    pub fn resize(&self, what: Size, to: Bytes, stop: &dyn Fn() -> bool) -> Result<()> {
        if what != Size::Memory {
            self.core.check_guaranteed(&[], &[], &TableRules::default(), what, to)?;
        }
        self.core.storage.resize(what, to, &|| {
            self.core.with_temporary().for_each(|core| core.streams.make_way());
            stop()
        })?;
        if what == Size::Memory {
            let config = self.core.storage.in_force();
            for core in self.core.with_temporary() {
                core.locks.bound(&config);
                core.cursors.bound(config.cursors_own());
            }
        }
        Ok(())
    }

    /// Copies the volume to an empty place; see [`Copier`]. Commits go on.
    pub fn copy(&self, to: Arc<dyn Disk>, tell: OnProgress<'_>) -> Result<Copied> {
        let mut copier = Copier::begin(&self.core.storage, to)?;
        copier.follow(tell)?;
        copier.finish(tell)
    }

    /// As `copy`, in the background until its end is asked for.
    pub fn copy_in_background(&self, to: Arc<dyn Disk>) -> Result<BackgroundCopy> {
        BackgroundCopy::begin(&self.core.storage, to)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.core.storage.stop();
    }
}

impl Txn {
    /// A cursor over what the transaction sees of one of the table's indexes.
    pub fn cursor(
        self: &Arc<Txn>,
        table: &Arc<Table>,
        index: usize,
        lock: Lock,
        access: Access,
    ) -> Result<Cursor> {
        let mut place = None;
        self.cursor_in(table, index, lock, access, &mut Buffers::default(), &mut place)?;
        place.ok_or_else(|| Error::Invalid("no cursor was made".into()))
    }
    /// As [`Txn::cursor`], in the memory of an earlier one, and put there: it is large.
    pub fn cursor_in(
        self: &Arc<Txn>,
        table: &Arc<Table>,
        index: usize,
        lock: Lock,
        access: Access,
        memory: &mut Buffers,
        place: &mut Option<Cursor>,
    ) -> Result<()> {
        let txn = self.side(table).unwrap_or(self).clone();
        Cursor::put(txn, table.clone(), index, lock, access, memory, place)
    }
}
