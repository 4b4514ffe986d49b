//! The engine: what fronts open.

use crate::catalog::Catalog;
use crate::catalog::rules::{TableRules, WritePolicy};
use crate::config::{Bytes, Config};
use crate::copy::{BackgroundCopy, Copied, Copier, Tell};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::kept_curve::Kept;
use crate::lock::{Locks, OnWait, StatementOf};
use crate::metrics;
use crate::requests::{self, Requests};
use crate::resize::Size;
use crate::row_cursor::{Buffers, Cursor};
use crate::seen::{self, Value};
use crate::storage::{Parts, Storage};
use crate::table::{Table, TableDef};
use crate::txn::ids::Ids;
use crate::txn::purge::PurgeWorker;
use crate::txn::recover::{Left, RollbackWorker, read_streams};
use crate::txn::{Isolation, Lock, Txn};
use crate::undo::stream::{self, Streams};
use hashbrown::HashSet;
use parking_lot::Mutex;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::{Class, Disk};
use terrace_tier::collect::CollectCounters;
use terrace_tier::object::ObjectCounters;
use terrace_tier::object::codec::{Codec, PackCounters};
use terrace_tier::page::{PAGE_SIZE, PageId, SpaceId};
use terrace_tier::pool::{Access, Purpose};
use terrace_tier::sink::SinkCounters;

/// One tree and where its pages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceInfo {
    pub space: u32,
    pub table: String,
    pub index: String,
    pub pages: u64,
    pub memory: u64,
    pub flash: u64,
    pub volume: u64,
    pub object: u64,
}

pub struct Engine {
    core: Arc<Core>,
    prepared: Mutex<Vec<(Vec<u8>, Left)>>,
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
        let ids = Ids::new(bound.max(recovered.highest), catalog.seen_by_all());
        let locks = Locks::of(storage.world.clone(), &config, storage.pages.pool());
        let left = recovered.unfinished.iter().chain(recovered.prepared.iter().map(|(_, l)| l));
        left.for_each(|one| ids.revive(one.id()));
        let live = catalog.spaces();
        storage.start_redo(|space| live.contains(&space))?;
        let core = Arc::new(Core::new(storage, config, ids, locks, streams, catalog));
        *core.history.lock() = recovered.history;
        core.push_rules();
        let sched = core.storage.world.sched.clone();
        recovered
            .unfinished
            .iter()
            .chain(recovered.prepared.iter().map(|(_, left)| left))
            .for_each(|left| left.show(&core));
        if !recovered.unfinished.is_empty() {
            let worker = RollbackWorker::new(core.clone(), recovered.unfinished);
            core.storage.keep(sched.spawn(Box::new(worker)));
        }
        core.storage.keep(sched.spawn(Box::new(PurgeWorker::new(core.clone()))));
        Ok(Arc::new(Engine { core, prepared: Mutex::new(recovered.prepared) }))
    }

    /// Closes cleanly: everything is flushed and the next start has nothing to redo.
    pub fn shutdown(&self) -> Result<()> {
        self.core.storage.stop_workers_but_flush();
        self.core.catalog.save_rows();
        self.core.storage.close()?;
        // Advice is no reason to fail: without it there is only none.
        let _ = Kept::of(&self.core).save(&*self.core.storage.volume);
        self.core.storage.stop();
        Ok(())
    }

    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Calls `on_wait` before each lock wait with the owners (`Txn::set_owner`) of who waits and of whom it waits for, if both
    /// have one. It must not call the engine, but it may cause a transaction to be cancelled by another thread. The first
    /// call of this function counts.
    pub fn tell_lock_waits(&self, on_wait: OnWait) {
        self.core.locks.owners.tell(on_wait);
    }

    /// Whether pages of trees that are built in bulk pass by the log and memory (`terrace_tier::bypass`), for builds that begin
    /// from here on; and whether large values pass by the log (`txn::large`), for rows from here on.
    pub fn set_bypass(&self, on: bool) {
        self.core.bypass.store(on, Ordering::Relaxed);
    }

    /// Rows of so many bytes and more pass by the log, if they are too large for a leaf.
    pub fn set_bypass_from(&self, bytes: u64) {
        self.core.bypass_from.store(bytes, Ordering::Relaxed);
    }

    /// What becomes of flash copies of pages that are flushed, in tables that do not say it themselves; from now on.
    pub fn set_write_policy(&self, policy: WritePolicy) {
        self.core.storage.flusher.writes().set(policy);
    }

    pub fn begin(&self, isolation: Isolation) -> Arc<Txn> {
        Txn::begin(&self.core, isolation)
    }

    /// Everything committed so far is durable on return.
    pub fn make_durable(&self) -> Result<()> {
        let redo = self.core.storage.pages.redo();
        Ok(redo.make_durable(redo.appended())?)
    }

    // --- tables ------------------------------------------------------------------------------

    pub fn create_table(&self, name: &str, def: &TableDef) -> Result<Arc<Table>> {
        self.core.catalog.create_table(name, def)
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
        core.purge_wanted.notify();
        Ok(())
    }
    /// As [`Engine::drop_table`], and waits for no log: after a crash the table may be there, as it was. For who would drop it again then, as one
    /// that has a name by which that is known. Its room is free a little later, or when somebody needs it.
    pub fn drop_table_unwaited(&self, name: &str) -> Result<()> {
        let core = self.core_of(name);
        if core.is_temporary() {
            return self.drop_table(name); // nothing of it outlives the process
        }
        let spaces = core.catalog.drop_table(name, false)?;
        let storage = &core.storage;
        storage.going.when_durable(spaces, storage.pages.redo().appended(), storage.world.clock.now());
        core.push_rules();
        // Who purges temporary tables as well: the other may be in the middle of a large transaction.
        core.purge_wanted.notify();
        core.of_temporary().into_iter().for_each(|core| core.purge_wanted.notify());
        Ok(())
    }
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.core_of(from).catalog.rename_table(from, to)
    }
    /// Gives the table a name, which may be the one that it has, and other properties, in one change. Durable when it returns.
    pub fn redefine_table(&self, from: &str, to: &str, properties: &[u8]) -> Result<()> {
        self.core.catalog.redefine_table(from, to, Some(properties))
    }
    /// How the table's pages are compressed in objects from now on; None: as the instance's are. Durable when it returns.
    pub fn set_compression(&self, name: &str, codec: Option<Codec>) -> Result<()> {
        self.core_of(name).catalog.set_compression(name, codec)
    }
    /// Empties tables, all of them or none after a crash. Durable when it returns. They are all temporary, or none is.
    pub fn truncate_tables(&self, names: &[&str]) -> Result<()> {
        let Some(first) = names.first() else { return Ok(()) };
        let core = self.core_of(first);
        let spaces = core.catalog.truncate_tables(names)?;
        // The catalog names them no more: what fails here purge tries again, or the next start does.
        let _ = core.drop_spaces(spaces);
        core.push_rules();
        core.purge_wanted.notify();
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
    /// Decides a prepared transaction. One whose end fails stays prepared, and can be decided again; meanwhile it is nobody
    /// else's.
    fn decide(&self, xid: &[u8], end: impl FnOnce(&mut Left) -> Result<()>) -> Result<()> {
        let taken = {
            let mut prepared = self.prepared.lock();
            let at = prepared.iter().position(|(x, _)| x == xid);
            at.map(|at| prepared.remove(at))
        };
        let absent = || Error::Absent("a prepared transaction with this XID".into());
        let (xid, mut left) = taken.ok_or_else(absent)?;
        let ended = end(&mut left);
        if ended.is_err() {
            self.prepared.lock().push((xid, left));
        }
        ended
    }
    /// Durable when it returns.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<()> {
        self.decide(xid, |left| left.commit(&self.core))
    }
    /// Once begun it is rolled back, also by a crash; if it fails in the middle, it goes on when it is called again.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        self.decide(xid, |left| left.roll_back(&self.core))
    }

    // --- seeing it ---------------------------------------------------------------------------

    /// A table of what there is to see, by name (`seen`). None: there is none of that name.
    pub fn seen(&self, name: &str) -> Option<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        self.each_seen(name, &mut |row| rows.push(row.to_vec())).then_some(rows)
    }
    /// As [`Engine::seen`], row by row. False: there is none of that name.
    pub fn each_seen(&self, name: &str, each: &mut dyn FnMut(&[Value])) -> bool {
        if seen::locks::each(&self.core, name, each) {
            return true;
        }
        let rows = match name {
            "metrics" => Some(metrics::rows(self)),
            _ => seen::rows(&self.core, &self.spaces(), name),
        };
        rows.inspect(|rows| rows.iter().for_each(|row| each(row))).is_some()
    }
    /// Who says which statement a connection runs ([`StatementOf`]); the first call counts.
    pub fn ask_statements(&self, statement_of: StatementOf) {
        self.core.locks.deadlocks.ask(statement_of);
    }

    pub fn spaces(&self) -> Vec<SpaceInfo> {
        let storage = &self.core.storage;
        let memory = storage.pages.pool().pages_by_space();
        let counts = storage.map.counts();
        self.core
            .catalog
            .list()
            .into_iter()
            .map(|(space, table, index)| {
                let c = counts.get(&space).copied().unwrap_or_default();
                let memory = memory.get(&space).copied().unwrap_or(0);
                SpaceInfo {
                    space: space.0,
                    table,
                    index,
                    pages: c.pages.max(memory),
                    memory,
                    flash: storage.bpe.as_ref().map_or(0, |bpe| {
                        let pages = storage.map.pages_of(space);
                        pages.into_iter().filter(|id| bpe.seems_to_have(*id)).count() as u64
                    }),
                    volume: c.volume,
                    object: c.object,
                }
            })
            .chain(self.temporary_spaces())
            .collect()
    }

    /// Counters and gauges by name.
    pub fn status(&self) -> Vec<(String, u64)> {
        let core = &self.core;
        let s = &core.storage;
        let pool = s.pages.pool();
        let (used, blocks) = s.log.usage();
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let flash = s.bpe.as_ref().map(|bpe| (bpe.status(), bpe.clone()));
        let flash_count = |of: fn(&terrace_tier::bpe::BpeCounters) -> &AtomicU64| {
            flash.as_ref().map_or(0, |(_, bpe)| get(of(&bpe.counters)))
        };
        let cold = s.cold.as_deref();
        let sunk = |of: fn(&SinkCounters) -> &AtomicU64| cold.map_or(0, |c| get(of(&c.sinker.counters)));
        let object = |of: fn(&ObjectCounters) -> &AtomicU64| cold.map_or(0, |c| get(of(&c.objects.counters)));
        let packed =
            |of: fn(&PackCounters) -> &AtomicU64| cold.map_or(0, |c| get(of(&c.objects.packer.counters)));
        let collected =
            |of: fn(&CollectCounters) -> &AtomicU64| cold.map_or(0, |c| get(of(&c.collector.counters)));
        // Before the list, and apart: what is locked in a statement stays so to its end.
        let history_length = core.history.lock().len();
        let purge_lag = core.purge_lag();
        let list: Vec<(&str, u64)> = vec![
            ("objects_put", object(|c| &c.puts)),
            ("objects_put_bytes", object(|c| &c.put_bytes)),
            ("objects_got", object(|c| &c.gets)),
            ("objects_got_bytes", object(|c| &c.get_bytes)),
            ("objects_get_coalesced", object(|c| &c.coalesced)),
            ("objects_put_resolved", object(|c| &c.resolved)),
            ("objects_pages_put", packed(|c| &c.pages)),
            ("objects_pages_compressed", packed(|c| &c.compressed)),
            ("objects_raw_bytes", packed(|c| &c.raw_bytes)),
            ("objects_stored_bytes", packed(|c| &c.stored_bytes)),
            ("objects_pages_decompressed", packed(|c| &c.unpacked)),
            ("objects_deleted", collected(|c| &c.deleted)),
            ("map_bytes", s.map.bytes()),
            ("objects_to_delete", cold.map_or(0, |c| c.collector.status().0 as u64)),
            ("collect_errors", collected(|c| &c.errors)),
            ("sink_blocks", sunk(|c| &c.blocks)),
            ("sink_patches", sunk(|c| &c.patches)),
            ("sink_pages", sunk(|c| &c.pages)),
            ("sink_blocks_by_watermark", sunk(|c| &c.by_watermark)),
            ("sink_blocks_by_cooling", sunk(|c| &c.by_cooling)),
            ("sink_blocks_by_share", sunk(|c| &c.by_share)),
            ("sink_blocks_waiting", cold.map_or(0, |c| c.sinker.status().blocks_buffered)),
            ("sink_errors", sunk(|c| &c.errors)),
            ("sink_throttled", sunk(|c| &c.throttled)),
            ("sink_corrupt", sunk(|c| &c.corrupt)),
            ("sink_repaired", cold.map_or(0, |c| c.sinker.repaired())),
            ("object_store_troubled", cold.map_or(0, |c| u64::from(c.trouble().is_some()))),
            ("flash_pages", flash.as_ref().map_or(0, |(status, _)| status.pages)),
            ("flash_pages_max", flash.as_ref().map_or(0, |(status, _)| status.pages_max)),
            ("flash_pages_restored", flash.as_ref().map_or(0, |(status, _)| status.restored)),
            ("flash_off", flash.as_ref().map_or(0, |(status, _)| u64::from(status.off.is_some()))),
            ("flash_remembered", flash_count(|c| &c.remembered)),
            ("flash_refused", flash_count(|c| &c.refused)),
            ("flash_left_on_volume", flash_count(|c| &c.near)),
            ("flash_invalidated", flash_count(|c| &c.invalidated)),
            ("flash_rewritten", flash_count(|c| &c.rewritten)),
            ("flash_fill_dropped", flash_count(|c| &c.fill_dropped)),
            ("flash_corrupt", flash_count(|c| &c.corrupt)),
            ("memory_bytes", s.memory().0),
            ("memory_bytes_max", s.config.memory_max_bytes().0),
            ("flash_bytes", s.flash_size().0),
            ("flash_bytes_file", flash.as_ref().map_or(0, |(status, _)| status.file_bytes)),
            ("object_buffer_bytes", s.object_buffer_size().0),
            ("object_buffer_bytes_file", u64::from(s.buffer.grown()) * PAGE_SIZE as u64),
            ("resize_pages_moved", get(&s.resizing.moved)),
            ("resize_bytes_left", s.resizing.progress().map_or(0, |resize| resize.left.0)),
            ("pool_frames", pool.frames() as u64),
            ("pool_frames_free", pool.free_frames() as u64),
            ("pool_frames_dirty", pool.dirty_frames() as u64),
            ("pool_frames_lent", pool.frames_lent() as u64),
            ("memory_lent_sorts", pool.lent_for(Purpose::Sorts) as u64),
            ("memory_lent_watches", pool.lent_for(Purpose::Watches) as u64),
            ("memory_lent_locks", pool.lent_for(Purpose::Locks) as u64),
            ("pool_read_requests", pool.hits()),
            ("pool_misses", get(&pool.counters.misses)),
            ("pool_read_ahead", get(&pool.counters.read_ahead)),
            ("pool_prefetched", get(&pool.counters.prefetched)),
            ("pool_evictions", get(&pool.counters.evictions)),
            ("pool_foreground_evictions", get(&pool.counters.foreground_evictions)),
            ("pool_frame_waits", get(&pool.counters.frame_waits)),
            ("pool_writer_waits", get(&pool.counters.writer_waits)),
            ("pool_promotions", get(&pool.counters.promoted)),
            ("reads_flash", get(&s.path.counters.flash)),
            ("reads_volume", get(&s.path.counters.volume)),
            ("reads_volume_clean", get(&s.path.counters.clean)),
            ("reads_object", get(&s.path.counters.object)),
            ("reads_corrupt", get(&s.path.counters.corrupt)),
            ("flush_pages", get(&s.flusher.counters.pages)),
            ("flush_batches", get(&s.flusher.counters.batches)),
            ("flush_full", get(&s.flusher.counters.full)),
            ("bypass_pages", get(&s.flusher.bypass.pages)),
            ("bypass_syncs", get(&s.flusher.bypass.syncs)),
            ("object_buffer_slots", u64::from(s.map.slots_total())),
            ("object_buffer_slots_free", u64::from(s.map.slots_free())),
            ("object_buffer_slots_clean", u64::from(s.map.clean_copies())),
            ("log_bytes_written", get(&s.log.counters.bytes)),
            ("log_mini_transactions", get(&s.log.counters.ranges)),
            ("log_writes", get(&s.log.counters.writes)),
            ("log_room_waits", get(&s.log.counters.room_waits)),
            ("log_blocks", blocks),
            ("log_blocks_used", used),
            ("checkpoints", get(&s.checkpointer.made)),
            ("redo_pages_pending", s.pending.pages() as u64),
            ("transactions_begun", get(&core.counters.begun)),
            ("transactions_committed", get(&core.counters.committed)),
            ("transactions_rolled_back", get(&core.counters.rolled_back)),
            ("purge_transactions", get(&core.counters.purged)),
            ("load_values_sorted", get(&core.counters.sorted)),
            ("history_length", history_length),
            ("purge_lag", purge_lag),
            ("slot_writer_waits", get(&core.pace.waits)),
            ("slot_writer_wait_microseconds", get(&core.pace.nanos) / 1000),
            ("purge_writer_waits", get(&core.brake.waits)),
            ("purge_writer_wait_microseconds", get(&core.brake.nanos) / 1000),
            ("read_views", core.ids.views() as u64),
            ("row_locks", core.locks.held() as u64),
            ("gap_locks", core.locks.gaps_held() as u64),
            ("row_lock_waits", get(&core.locks.counters.waits)),
            ("row_lock_deadlocks", get(&core.locks.counters.deadlocks)),
            ("row_lock_timeouts", get(&core.locks.counters.timeouts)),
        ];
        let mut list: Vec<(String, u64)> =
            list.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        if let Some(device) = s.volume.stats() {
            let classes = [("log", Class::LogWrite), ("flush", Class::PageFlush), ("page", Class::PageRead)];
            for (name, class) in classes {
                let count = device.of(class);
                list.push((format!("volume_{name}_requests"), count.requests));
                list.push((format!("volume_{name}_bytes"), count.bytes));
                list.push((format!("volume_{name}_microseconds"), count.nanos / 1000));
            }
            let syncs = device.syncs();
            list.push(("volume_syncs".into(), syncs.requests));
            list.push(("volume_sync_microseconds".into(), syncs.nanos / 1000));
        }
        list.extend(self.temporary_status().into_iter().map(|(name, value)| (name.to_string(), value)));
        list.extend(requests::totals(s));
        list
    }

    /// Gives memory, flash or object buffer another size; see [`Storage::resize`].
    pub fn resize(&self, what: Size, to: Bytes, stop: &dyn Fn() -> bool) -> Result<()> {
        if what != Size::Memory {
            self.core.check_guaranteed(&[], &[], &TableRules::default(), what, to)?;
        }
        self.core.storage.resize(what, to, &|| {
            iter::once(&self.core).chain(self.core.of_temporary()).for_each(|core| core.streams.make_way());
            stop()
        })?;
        if what == Size::Memory {
            let config = self.core.storage.in_force();
            for core in iter::once(&self.core).chain(self.core.of_temporary()) {
                core.locks.bound(&config);
            }
        }
        Ok(())
    }

    /// Copies the volume to an empty place; see [`Copier`]. Commits go on.
    pub fn copy(&self, to: Arc<dyn Disk>, tell: Tell<'_>) -> Result<Copied> {
        let mut copier = Copier::begin(&self.core.storage, to)?;
        copier.follow(tell)?;
        copier.finish(tell)
    }

    /// As `copy`, in the background until its end is asked for.
    pub fn copy_in_background(&self, to: Arc<dyn Disk>) -> Result<BackgroundCopy> {
        BackgroundCopy::begin(&self.core.storage, to)
    }

    /// The settings in force, by name. Of the log and the object buffer what the volume has, which may be more
    /// than what was asked for.
    pub fn settings(&self) -> Vec<(&'static str, u64)> {
        let s = &self.core.storage;
        let superblock = s.checkpointer.superblock();
        let partitions = superblock.starts.len();
        let log = superblock.log_blocks * crate::log::block::BLOCK as u64 * partitions as u64;
        let in_force = Config {
            memory: s.memory(),
            memory_max: s.config.memory_max_bytes(),
            flash: s.flash_size(),
            log: Bytes(log),
            log_partitions: partitions,
            object_buffer: s.object_buffer_size(),
            ..s.config.clone()
        };
        in_force.values()
    }

    /// What was asked of the devices and the store, by tier and purpose.
    pub fn requests(&self) -> Vec<Requests> {
        requests::by_purpose(&self.core.storage)
    }

    /// What counters can't say, by name: which instance this is, where its tiers are, and what is wrong.
    /// A name that ends in `_trouble` is there only while there is trouble.
    pub fn notes(&self) -> Vec<(&'static str, String)> {
        let s = &self.core.storage;
        let superblock = s.checkpointer.superblock();
        let mut notes = vec![
            ("instance", format!("{:032x}", superblock.instance)),
            ("lineage", format!("{:032x}", superblock.lineage)),
            ("volume", s.volume.describe()),
        ];
        notes.extend(s.overruled.iter().map(|what| ("setting_overruled", what.clone())));
        notes.extend(s.resizing.progress().map(|resize| {
            let (name, seconds) = (resize.what.name(), (s.world.clock.now() - resize.since) as f64 / 1e9);
            let (from, to, left) = (resize.from, resize.to, resize.left);
            ("resize", format!("{name} from {from} to {to}: {left} left after {seconds:.1} s"))
        }));
        notes.extend(s.volume.batches().map(|how| ("disk_batches", how.to_string())));
        notes.extend(s.cold.iter().map(|cold| ("object_store", cold.store.describe())));
        notes.extend(self.failure().map(|what| ("engine_trouble", what)));
        let off = s.bpe.as_ref().and_then(|bpe| bpe.status().off);
        notes.extend(off.map(|what| ("flash_trouble", what)));
        let (slots, _) = s.map.slots_pressure();
        notes.extend((slots < s.map.slots_total()).then(|| {
            (
                "volume_trouble",
                format!(
                    "the device is full: it has room for {slots} pages of the object buffer's {}",
                    s.map.slots_total()
                ),
            )
        }));
        notes.extend(
            s.cold.iter().filter_map(|cold| cold.trouble()).map(|what| ("object_store_trouble", what)),
        );
        notes
    }

    /// Why the engine has stopped writing, if it has.
    pub fn failure(&self) -> Option<String> {
        let s = &self.core.storage;
        s.log
            .failure()
            .or_else(|| s.flusher.failure().map(|e| e.to_string()))
            .or_else(|| s.checkpointer.failure().map(|e| e.to_string()))
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
        self.cursor_in(table, index, lock, access, Buffers::default())
    }
    /// As [`Txn::cursor`], in the memory of an earlier one.
    pub fn cursor_in(
        self: &Arc<Txn>,
        table: &Arc<Table>,
        index: usize,
        lock: Lock,
        access: Access,
        buffers: Buffers,
    ) -> Result<Cursor> {
        let txn = self.side(table).unwrap_or(self).clone();
        Cursor::new(txn, table.clone(), index, lock, access, buffers)
    }
}
