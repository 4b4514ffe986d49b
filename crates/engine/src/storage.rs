//! Storage: everything below keys, put together and kept running.
//!
//! [`Storage::open`] takes the volume, makes or recovers the instance and starts the workers. What
//! stands on it (catalog, transactions) recovers its own part and then calls [`Storage::start_redo`].
//!
//! Start: lock → superblock → sync and read the log up to its cut, map records into the map, others
//! to be applied later → new writer epoch in the superblock → pages → workers.
//! Shutdown: redo applied, everything flushed, checkpoint at the log's end, clean flag.
//!
//! A crash at any point of a start repeats it: until the new epoch is in the superblock nothing was
//! changed; after it the old log stays as it was read until a checkpoint has passed it.
//!
//! Below it, each in its own room: making a new instance (`create`), recovery, checkpoints, slot reservation and throttling, new sizes
//! while it runs (`resize`), copies of the running volume (`copy`).
//!
//! Beside the usual path:
//!
//! * A dropped table's spaces are reclaimed when the drop is durable; the drop does not wait for that (`dropped_spaces.rs`, `txn/purge.rs`,
//!   `storage.rs`: `DroppedSpaces::take`, `Storage::drop_space`).
//! * Before a volume's first patch object its format version is raised in both copies of the superblock (`checkpoint.rs`: `Patches::note`).
//! * With `archive_interval_ms` the log is copied to the store, and nothing bypasses it (`archive.rs`: `Archiver::round`; `txn/shared.rs`).
//! * The parts of the object store are opened for an instance together (`cold.rs`: `Cold::open`).
//! * An instance that took a store once (the superblock records it) starts without the store. An instance that never did asks the store first, so
//!   that a wrong bucket is found early.
//! * Once the superblock records a store, an empty one is never taken in its place: its directory may not be mounted yet.
//! * A store that another copy of the volume has taken since is never taken back, except with `terrace adopt`. The superblock records which writer of this volume took it, and
//!   the position of its mark, which counts up in both places while blocks sink.
//! * A running volume is copied by `copy.rs`: slots in rounds (`tier/src/volume/object_buffer/written.rs` records which are written), then the map
//!   and the end of the log, with checkpoint and slots held (`tier/src/volume/map/copy.rs`, `checkpoint.rs`). For `mariabackup` a worker follows the
//!   changes until the stages end (`copy/background.rs`, `mariadb/session/backup.cc`).

pub mod archive;
pub(crate) mod bulk_throttle;
pub mod checkpoint;
pub mod cold;
pub mod copy;
pub(crate) mod create;
pub(crate) mod dropped_spaces;
pub mod recovery;
pub mod requests;
pub mod resize;
pub(crate) mod slot_reservation;
pub mod sort_file;
pub mod trouble;
use crate::config::Config;
use crate::error::{Error, holder_in_words};
use crate::storage::archive::{ArchiveParts, ArchiveSettings, ArchiveWorker, Archiver};
use crate::storage::bulk_throttle::BulkThrottle;
use crate::storage::checkpoint::{CheckpointWorker, Checkpointer};
use crate::storage::cold::{Cold, ColdParts};
use crate::storage::dropped_spaces::DroppedSpaces;
use crate::storage::recovery::pending::Pending;
use crate::storage::recovery::worker::{self, RedoWorker};
use crate::storage::resize::Resizing;
use crate::storage::slot_reservation::SlotReservation;
use crate::superblock::{self, Superblock};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_io::clock::Nanos;
use terrace_io::disk::{Class, Disk, DiskError, DiskLock, File};
use terrace_io::observe::{Memory, TrackedBytes};
use terrace_io::sched::{Worker, WorkerHandle};
use terrace_io::store::ObjectStore;
use terrace_io::{World, machine};
use terrace_log::log::background::BackgroundWriter;
use terrace_log::recovery::{LogCut, replay};
use terrace_log::{Log, LogSetup};
use terrace_log::{LogError, Redo};
use terrace_tier::ablation::Mechanism;
use terrace_tier::flash::FlashCache;
use terrace_tier::flash::bpe::{Bpe, BpeSettings, BpeWorker};
use terrace_tier::limits::quota::Rules;
use terrace_tier::memory::misses::Misses;
use terrace_tier::memory::pages::Pages;
use terrace_tier::memory::prefetch::Prefetcher;
use terrace_tier::objects::fence::Takers;
use terrace_tier::objects::object::Objects;
use terrace_tier::objects::object::PageObjects;
use terrace_tier::objects::object::codec::Codecs;
use terrace_tier::objects::sink::Patches;
use terrace_tier::page::SpaceId;
use terrace_tier::read::ReadPath;
use terrace_tier::read::split::PageSplit;
use terrace_tier::volume::flush::{FlushWorker, Flusher};
use terrace_tier::volume::map::{Map, MapError, home};
use terrace_tier::volume::object_buffer::ObjectBuffer;
use terrace_tier::volume::temporary::{self, Spill, Unlogged};

/// What an instance is opened on.
pub struct Parts {
    pub world: World,
    pub volume: Arc<dyn Disk>,
    pub flash: Option<Arc<dyn Disk>>,
    pub store: Option<Arc<dyn ObjectStore>>,
}

pub struct Storage {
    pub world: World,
    pub volume: Arc<dyn Disk>,
    pub pages: Arc<Pages>,
    pub log: Arc<Log>,
    pub map: Arc<Map>,
    /// Spaces that no table names any more.
    pub(crate) dropped_spaces: Arc<DroppedSpaces>,
    pub flusher: Arc<Flusher>,
    /// Temporary pages, in the same memory, and where they go if that has no room for them.
    pub temporary: Arc<Pages>,
    pub spill: Arc<Spill>,
    pub path: Arc<ReadPath>,
    /// Flash, if room there is asked for, and what is kept on it.
    pub flash: Option<Arc<dyn Disk>>,
    pub bpe: Option<Arc<Bpe>>,
    /// The object store's side, if there is a store.
    pub cold: Option<Arc<Cold>>,
    /// Copies the log to the store, if that is wanted.
    pub archiver: Option<Arc<Archiver>>,
    pub pending: Arc<Pending>,
    pub(crate) redo_trouble: Arc<worker::Trouble>,
    pub checkpointer: Arc<Checkpointer>,
    /// As it was at the start; sizes may be others by now (`resize`).
    pub config: Config,
    /// What that asked for and did not get at the start ([`Config::overruled`]).
    pub overruled: Vec<String>,
    pub buffer: Arc<ObjectBuffer>,
    pub resizing: Resizing,
    /// The volume is being copied (`copy`).
    pub copying: AtomicBool,
    /// Quotas, limits and placement of tables.
    pub rules: Arc<Rules>,
    /// The instance was closed cleanly before this start.
    pub was_clean: bool,
    /// The instance was made by this start.
    pub is_new: bool,
    /// When this start was, in nanoseconds of the world's clock.
    pub since: Nanos,
    // Dropped in this order: workers first, the lock last.
    kept: Mutex<Vec<Box<dyn WorkerHandle>>>,
    workers: Mutex<Vec<Box<dyn WorkerHandle>>>,
    _lock: Box<dyn DiskLock>,
    _buffers: TrackedBytes,
}

impl Storage {
    pub fn open(config: &Config, parts: &Parts) -> Result<Storage, Error> {
        Storage::open_as(config, parts, false)
    }

    /// Opens a restored instance on which the archived log is being replayed (`offline::backup::point`).
    pub(crate) fn open_to_replay(config: &Config, parts: &Parts) -> Result<Storage, Error> {
        Storage::open_as(config, parts, true)
    }

    fn open_as(config: &Config, parts: &Parts, replays: bool) -> Result<Storage, Error> {
        config.check()?;
        config.check_machine(config.memory.0, machine::memory_limit())?;
        let volume = &*parts.volume;
        let lock = take_lock(volume)?;
        let is_new = create::if_absent(config, parts, replays)?;
        crate::storage::sort_file::remove_left(volume)?;
        temporary::remove_left(parts.flash.as_deref(), volume)?;
        let StartState { superblock: read_by, files, loading, pending, cut: found } =
            read(volume, config.redo_budget())?;
        let was_clean = read_by.clean;

        // The new writer's epoch, durable before its first append.
        let archives = config.archive_interval_ms > 0;
        if archives && parts.store.is_none() {
            return Err(archive::refuse_without_store());
        }
        let mut superblock = read_by;
        superblock.begin_epoch(found.end)?;
        superblock.archiving = if archives { superblock.archiving.saturating_add(1) } else { 0 };
        let (began, checkpoint) = (found.end, superblock.checkpoint);
        superblock.slots = superblock.slots.max(config.slots());
        let overruled = config.overruled(&superblock);
        superblock.generation += 1;
        let superblock_file = volume.open(superblock::FILE)?;
        superblock.write(&*superblock_file)?;

        let log = Arc::new(Log::new(LogSetup {
            world: parts.world.clone(),
            volume: parts.volume.clone(),
            files,
            starts: found.starts,
            blocks: superblock.log_blocks,
            instance: superblock.instance as u64,
            epoch: superblock.epoch,
            checkpoint: superblock.checkpoint,
            next: found.end,
            room_wait_max: config.log_wait_timeout_ms.saturating_mul(1_000_000),
            waiting_max: config.log_waiting(),
            holds: archives,
        }));
        let redo: Arc<dyn Redo> = log.clone();
        let map = Arc::new(loading.finish(superblock.slots, redo.clone())?);
        if parts.store.is_some() && !config.without.has(Mechanism::CleanCopies) {
            map.keep_clean_copies(config.clean_copies(superblock.slots));
        }
        let buffer = Arc::new(ObjectBuffer::open(volume)?);
        let bpe = open_flash(config, parts, superblock.instance);
        let flash = bpe.clone().map(|bpe| bpe as Arc<dyn FlashCache>);
        let objects = parts.store.clone().map(|store| {
            let objects = Objects::new(store).timed(parts.world.clock.clone());
            match config.without.has(Mechanism::SharedMisses) {
                true => Arc::new(objects),
                false => Arc::new(objects.coalescing(parts.world.sched.clone(), config.coalescing())),
            }
        });
        objects.iter().for_each(|objects| objects.codecs.set_fallback(config.compression));
        let far = objects.clone().map(|objects| objects as Arc<dyn PageObjects>);
        let misses = Arc::new(Misses::new(parts.world.clock.clone()));
        let path = ReadPath::new(map.clone(), buffer.clone(), flash.clone(), far, misses);
        let path = Arc::new(path.without(config.without));
        path.set_pending(pending.clone());
        if let Some(split) =
            PageSplit::new(config.split, parts.world.clock.clone()).filter(|_| flash.is_some())
        {
            path.set_split(split);
        }
        let rules = Arc::new(Rules::default());
        path.set_rules(parts.world.clone(), rules.clone());
        if let Some(bpe) = &bpe {
            bpe.set_rules(rules.clone(), parts.world.clock.clone());
            let (map, rules) = (map.clone(), rules.clone());
            let classify = move |bpe: &Bpe, space| bpe.classify(&map.pages_of(space));
            bpe.when_restored(move |bpe| {
                rules.all().iter().for_each(|(space, _)| classify(bpe, *space));
                bpe.trim();
            });
        }
        let frames = config.frames(objects.is_some(), map.bytes());
        let buffers = TrackedBytes::new(Memory::Buffers);
        buffers.set(config.beside_frames(objects.is_some(), map.bytes()));
        let most = config.frames_max(objects.is_some());
        let (world, below) = (parts.world.clone(), path.clone());
        let pages = Arc::new(Pages::that_grow(world, frames, most, below, redo.clone()));
        let pool = pages.pool().clone();
        pool.set_prefetch(config.buffers(objects.is_some()).prefetch);
        let flusher =
            Arc::new(Flusher::new(pool.clone(), map.clone(), buffer.clone(), redo.clone(), flash.clone()));
        let checkpointer = Arc::new(Checkpointer::new(
            parts.world.clone(),
            log.clone(),
            pages.pool().clone(),
            flusher.clone(),
            map.clone(),
            pending.clone(),
            superblock_file,
            superblock,
        ));
        let cold = match objects {
            None => None,
            Some(objects) => {
                let (map, buffer, pool) = (map.clone(), buffer.clone(), pool.clone());
                let (redo, flash, world) = (redo.clone(), flash.clone(), parts.world.clone());
                let takers = checkpointer.clone() as Arc<dyn Takers>;
                let patches = checkpointer.clone() as Arc<dyn Patches>;
                let cold = ColdParts { world, objects, map, buffer, pool, redo, flash, takers, patches };
                let superblock = checkpointer.superblock();
                let cold = Cold::open(config, cold, &superblock)?;
                if !superblock.has_store {
                    checkpointer.write_superblock(|s| s.has_store = true)?;
                }
                Some(Arc::new(cold))
            }
        };
        cold.iter().for_each(|cold| cold.sinker.set_rules(rules.clone()));
        let archiver = cold.as_ref().filter(|_| archives).map(|cold| {
            let parts = ArchiveParts {
                world: parts.world.clone(),
                log: log.clone(),
                checkpointer: checkpointer.clone(),
                fence: cold.fence.clone(),
                store: cold.store.clone(),
                began,
                checkpoint,
            };
            let settings = ArchiveSettings {
                interval: config.archive_interval_ms.saturating_mul(1_000_000),
                keep_ms: (config.archive_keep_hours as u64).saturating_mul(3_600_000),
                stretch: config.archive_stretch(),
            };
            Arc::new(Archiver::new(parts, settings))
        });
        let spill = Arc::new(Spill::new(parts.flash.clone(), parts.volume.clone(), config.temporary_pages()));
        path.set_spill(spill.clone());
        flusher.set_spill(spill.clone());
        flusher.writes().set_rules(rules.clone());
        let temporary = Arc::new(pages.beside(Arc::new(Unlogged::default())));
        temporary.set_room(Arc::new(temporary::SpillRoom { pool: pool.clone(), spill: spill.clone() }));
        let dropped_spaces = Arc::new(DroppedSpaces::default());
        pages.set_room(Arc::new(SlotReservation {
            world: parts.world.clone(),
            map: map.clone(),
            dropped_spaces: dropped_spaces.clone(),
            pool,
            flusher: flusher.clone(),
            pending: pending.clone(),
            redo,
            sinks: cold.is_some(),
            patience: config.log_wait_timeout_ms.saturating_mul(1_000_000),
            way: (!config.without.has(Mechanism::BulkThrottle)).then(BulkThrottle::default),
        }));
        let sched = &parts.world.sched;
        let mut workers = vec![
            sched.spawn(Box::new(BackgroundWriter::new(log.clone()))),
            sched.spawn(Box::new(FlushWorker(flusher.clone()))),
            sched.spawn(Box::new(CheckpointWorker::new(checkpointer.clone()))),
        ];
        workers.extend(pages.evictors().into_iter().map(|evictor| sched.spawn(Box::new(evictor))));
        let prefetchers =
            (0..config.buffers(cold.is_some()).prefetchers).map(|_| Prefetcher(pages.pool().clone()));
        workers.extend(prefetchers.map(|one| sched.spawn(Box::new(one))));
        workers.extend(bpe.iter().map(|bpe| sched.spawn(Box::new(BpeWorker(bpe.clone())))));
        workers.extend(archiver.iter().map(|one| sched.spawn(Box::new(ArchiveWorker::new(one.clone())))));
        workers.extend(path.split_watcher().map(|watcher| sched.spawn(Box::new(watcher))));
        workers.extend(cold.iter().flat_map(|cold| cold.workers()).map(|worker| sched.spawn(worker)));
        Ok(Storage {
            world: parts.world.clone(),
            volume: parts.volume.clone(),
            pages,
            log,
            map,
            dropped_spaces,
            flusher,
            temporary,
            spill,
            path,
            flash: parts.flash.clone().filter(|_| config.flash.0 > 0),
            bpe,
            cold,
            archiver,
            pending,
            redo_trouble: Arc::default(),
            checkpointer,
            config: config.clone(),
            overruled,
            buffer,
            resizing: Resizing::new(config),
            copying: AtomicBool::new(false),
            rules,
            was_clean,
            is_new,
            since: parts.world.clock.now(),
            kept: Mutex::new(Vec::new()),
            workers: Mutex::new(workers),
            _lock: lock,
            _buffers: buffers,
        })
    }

    /// How pages of each space are compressed in objects; not read where there is no store.
    pub fn codecs(&self) -> Arc<Codecs> {
        match &self.cold {
            Some(cold) => cold.objects.codecs.clone(),
            None => Arc::new(Codecs::new(self.config.compression)),
        }
    }

    /// Stops all workers but those that bring pages and checkpoints to disk.
    pub fn stop_workers_but_flush(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        end(kept);
    }

    /// Stops all workers: nothing is written any more.
    pub fn stop(&self) {
        self.stop_workers_but_flush();
        self.cold.iter().for_each(|cold| cold.collector.stop());
        let workers = std::mem::take(&mut *self.workers.lock());
        end(workers);
        self.spill.remove();
        self.log.end_promises();
    }

    /// A worker that begins while the instance runs.
    pub fn try_spawn(&self, worker: Box<dyn Worker>) -> Result<Box<dyn WorkerHandle>, Error> {
        let name = worker.name();
        let spawned = self.world.sched.try_spawn(worker);
        spawned.map_err(|error| Error::Unavailable(format!("no thread can be had for {name}: {error}")))
    }

    /// Keeps a worker running until the storage is closed.
    pub fn keep(&self, worker: Box<dyn WorkerHandle>) {
        self.kept.lock().push(worker);
    }

    /// Starts the background pass over redo not applied yet. Redo of spaces that are not `live` is
    /// forgotten, and what the map still has of them is dropped.
    pub fn start_redo(&self, live: impl Fn(SpaceId) -> bool) -> Result<(), Error> {
        let keep = |space: SpaceId| space < SpaceId::FIRST_USER || live(space);
        self.pending.retain_spaces(keep);
        // The worker first: what is left over may have to wait for room in the log, which a checkpoint makes when redo has been applied.
        let worker =
            RedoWorker::new(self.pending.clone(), self.pages.clone()).telling(self.redo_trouble.clone());
        self.keep(self.world.sched.spawn(Box::new(worker)));
        for space in self.map.spaces().into_iter().filter(|s| !keep(*s)) {
            match self.map.drop_space(space) {
                Err(MapError::Log(LogError::Full { .. })) => self.dropped_spaces.in_use(space),
                dropped => _ = dropped?,
            }
        }
        Ok(())
    }

    /// Forgets a dropped space in memory and on the volume.
    pub fn drop_space(&self, space: SpaceId) -> Result<(), Error> {
        self.pending.retain_spaces(|s| s != space);
        let mut tries = 0;
        while self.pages.pool().discard_space(space) > 0 {
            // The flusher copies one of its pages, or a reader lets go of its last.
            tries += 1;
            if tries > 3 {
                return Err(Error::Busy(format!("space {space} is in use")));
            }
            let progress = self.flusher.progress.ticket();
            self.world.sched.wait(&self.flusher.progress, progress, Some(1_000_000));
        }
        if space.is_temporary() {
            self.spill.drop_space(space);
            self.pages.pool().flush_wanted.notify(); // the flusher gives the file's end back
        } else {
            self.map.drop_space(space)?;
        }
        self.pages.pool().retain_reads(|s| s != space);
        self.bpe.iter().for_each(|bpe| bpe.by_space.forget(space));
        self.flusher.writes().by_space.forget(space);
        self.cold.iter().for_each(|cold| cold.objects.by_space.forget(space));
        Ok(())
    }

    /// Drops a space that no table names any more, durably. If that fails, it is among those that go, and tried again.
    pub(crate) fn let_space_go(&self, space: SpaceId) -> Result<(), Error> {
        let dropped = self.drop_space(space);
        match dropped {
            Ok(()) => self.dropped_spaces.gone(space),
            Err(_) => self.dropped_spaces.in_use(space),
        }
        dropped
    }

    /// Waits until a checkpoint has passed everything appended so far. `Unavailable` if it does not move for
    /// long: a page cannot be read now whose redo must be applied first, or the object buffer is full.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let target = self.log.appended();
        if self.checkpoint_past(target, CHECKPOINT_PATIENCE)? {
            return Ok(());
        }
        let (position, pages) = (self.checkpointer.position(), self.pending.pages());
        Err(Error::Unavailable(format!(
            "the checkpoint stays at {position} and does not come to {target}: {pages} pages wait for their redo"
        )))
    }

    /// False: `patience` nanoseconds have passed without the checkpoint moving.
    fn checkpoint_past(&self, target: u64, patience: Nanos) -> Result<bool, Error> {
        self.checkpointer.request(target);
        let clock = &self.world.clock;
        let (mut position, mut since) = (self.checkpointer.position(), clock.now());
        loop {
            let progress = self.checkpointer.progress.ticket();
            let now = self.checkpointer.position();
            if now >= target {
                return Ok(true);
            }
            if now > position {
                (position, since) = (now, clock.now());
            }
            if clock.now() - since > patience {
                return Ok(false);
            }
            if let Some(error) = self.checkpointer.failure() {
                return Err(error);
            }
            self.world.sched.wait(&self.checkpointer.progress, progress, Some(20_000_000));
        }
    }

    /// Flushes everything and says in the superblock that nothing is to be redone. The storage is
    /// not to be written to any more. If a page's redo cannot be applied now, or the object buffer is full
    /// and nothing sinks (the object store is dead), everything is made durable, and the next start redoes.
    pub fn close(&self) -> Result<(), Error> {
        self.stop_workers_but_flush();
        self.bpe.iter().for_each(|bpe| bpe.save());
        self.cold.iter().for_each(|cold| cold.sinker.sink_for_room_only());
        while let Some(id) = self.pending.next_page() {
            if worker::finish(&self.pending, &self.pages, id).is_err() {
                self.pending.put_back(id);
                return Ok(self.log.make_durable(self.log.appended())?);
            }
        }
        // What a checkpoint itself logs lies above it: the next one needs to log no more.
        while self.checkpointer.position() < self.log.appended() {
            if !self.checkpoint_past(self.log.appended(), CLOSE_PATIENCE)? {
                return Ok(self.log.make_durable(self.log.appended())?);
            }
        }
        self.cold.iter().for_each(|cold| cold.collector.finish(DELETE_PATIENCE));
        // What is not archived stays in the log.
        self.archiver.iter().for_each(|archiver| _ = archiver.finish(ARCHIVE_PATIENCE));
        let (digest, newest) = (self.map.digest(), self.map.newest_home());
        let starts = self.log.kept_starts_for(self.checkpointer.position());
        self.checkpointer.write_superblock(|s| {
            s.clean = true;
            s.starts.clone_from(&starts);
            s.map_digest = digest;
            s.map_newest = s.map_newest.max(newest);
        })
    }
}

/// What a start reads, before it changes anything.
pub(crate) struct StartState {
    pub superblock: Superblock,
    /// The log's.
    pub files: Vec<Arc<dyn File>>,
    /// The map, with its redo applied.
    pub loading: home::Loading,
    /// The redo of all other pages.
    pub pending: Arc<Pending>,
    pub cut: LogCut,
}

/// A map that leads to images of the past would show them as if they were today's: their slots may not have been given away since.
const MAP_OF_ANOTHER_TIME: &str = "the map is not the one that the superblock speaks of: `map` or `superblock` was put back from a copy of \
                                   another time, or writes to one were lost; put back all files of one copy";

/// Reads superblock, log and map. `budget` bounds the redo kept in memory, in bytes.
pub(crate) fn read(volume: &dyn Disk, budget: usize) -> Result<StartState, Error> {
    let superblock = Superblock::read(volume)?;
    superblock.check_slots()?;
    let files = open_logs(volume, &superblock)?;
    // Redo: the map's at once, the rest by page.
    let mut loading = load_map(volume)?;
    let digest = loading.digest();
    let bounds = superblock.log_bounds();
    let pending = Arc::new(Pending::new(bounds.clone(), files.clone(), budget));
    let cut = replay(&bounds, &files, &mut |header, ops, place| -> Result<(), Error> {
        if header.id.space == SpaceId::MAP {
            loading.apply(header.id.page, ops, header.first, header.end())?;
        } else {
            pending.add(header, ops, place);
        }
        Ok(())
    })?;
    if loading.newest() > cut.end {
        let (newest, end) = (loading.newest(), cut.end);
        return Err(Error::Corrupt(format!("the map was written at {newest}, but the log ends at {end}")));
    }
    // After the log: whose files they are is told first.
    if superblock.map_digest.is_some_and(|closed| closed != digest) {
        return Err(Error::Corrupt(format!("{}: {MAP_OF_ANOTHER_TIME}", volume.describe())));
    }
    if loading.newest() < superblock.map_newest {
        let (found, written) = (loading.newest(), superblock.map_newest);
        let volume = volume.describe();
        return Err(Error::Corrupt(format!(
            "{volume}: {MAP_OF_ANOTHER_TIME} (its newest page is of {found}, one of {written} was written)"
        )));
    }
    Ok(StartState { superblock, files, loading, pending, cut })
}

/// Stops workers, all at once: each may be in a request that takes a while.
fn end(workers: Vec<Box<dyn WorkerHandle>>) {
    workers.iter().for_each(|worker| worker.ask_to_stop());
    drop(workers);
}

pub(crate) fn take_lock(volume: &dyn Disk) -> Result<Box<dyn DiskLock>, Error> {
    volume.lock().map_err(|error| match error {
        DiskError::Locked { by, .. } => Error::Busy(format!(
            "the volume {} is in use: another instance runs on it{}",
            volume.describe(),
            holder_in_words(by.as_ref())
        )),
        other => other.into(),
    })
}

/// Opens the log's files. What a killed process wrote but never synced becomes durable here, before
/// anything is built upon it.
pub(crate) fn open_logs(volume: &dyn Disk, superblock: &Superblock) -> Result<Vec<Arc<dyn File>>, Error> {
    let need = superblock.log_blocks * terrace_log::block::BLOCK as u64;
    let mut files = Vec::with_capacity(superblock.starts.len());
    for partition in 0..superblock.starts.len() {
        let file = volume.open(&terrace_log::file_name(partition))?;
        if file.len() < need {
            let (name, len) = (file.name(), file.len());
            return Err(Error::Corrupt(format!("{name} has {len} bytes, the superblock says {need}")));
        }
        file.sync(Class::LogWrite)?;
        files.push(file);
    }
    Ok(files)
}

/// Reads the map's homes, durable as they are read.
fn load_map(volume: &dyn Disk) -> Result<home::Loading, Error> {
    volume.open(home::FILE)?.sync(Class::MapWrite)?;
    Ok(home::Loading::open(volume)?)
}

/// How long a close waits for a checkpoint that does not move, in nanoseconds.
const CLOSE_PATIENCE: Nanos = 20_000_000_000;
/// How long closing goes on deleting objects that are not needed. What is left the next start's scrub finds.
const DELETE_PATIENCE: Nanos = 2_000_000_000;

/// How long closing goes on archiving the log.
const ARCHIVE_PATIENCE: Nanos = 5_000_000_000;

/// As long for one who asked for a checkpoint.
const CHECKPOINT_PATIENCE: Nanos = 60_000_000_000;

/// The flash extension, if there is a device and room on it is asked for. A device that
/// does not work is a cache that is off.
fn open_flash(config: &Config, parts: &Parts, owner: u128) -> Option<Arc<Bpe>> {
    let flash = parts.flash.as_ref().filter(|_| config.flash.0 > 0)?;
    let queue_pages = config.buffers(parts.store.is_some()).flash_queue;
    let (flash_bytes, admission) = (config.flash.0, config.flash_admission);
    let warm = !config.without.has(Mechanism::WarmFlash);
    Some(Arc::new(Bpe::open(&**flash, BpeSettings { owner, flash_bytes, queue_pages, admission, warm })))
}
