//! Storage: everything below keys, put together and kept running.
//!
//! [`Storage::open`] takes the volume, makes or recovers the instance and starts the workers. What
//! stands on it (catalog, transactions) recovers its own part and then calls [`Storage::start_redo`].
//!
//! Start order: lock → superblock → scan and cut the log → new writer epoch in the superblock → map →
//! pages → workers. Shutdown: flush, checkpoint at the log's end, clean flag.

use crate::checkpoint::{CheckpointWorker, Checkpointer};
use crate::config::Config;
use crate::error::Error;
use crate::log::{self, Log, PartitionStart};
use crate::recovery::cut;
use crate::recovery::pending::{Pending, RedoWorker};
use crate::recovery::scan::{self, Scan};
use crate::superblock::{self, Superblock};
use parking_lot::Mutex;
use std::sync::Arc;
use terrace_io::World;
use terrace_io::disk::{Disk, DiskError, DiskLock, File};
use terrace_io::sched::WorkerHandle;
use terrace_io::store::ObjectStore;
use terrace_tier::flush::{FlushWorker, Flusher};
use terrace_tier::map::{Map, home};
use terrace_tier::object_buffer::{self, ObjectBuffer};
use terrace_tier::page::SpaceId;
use terrace_tier::pages::Pages;
use terrace_tier::path::Path;
use terrace_tier::redo::Redo;

/// The first GLSN of an instance.
const FIRST_GLSN: u64 = 4096;

/// What an instance is opened on.
pub struct Parts {
    pub world: World,
    pub volume: Arc<dyn Disk>,
    pub flash: Option<Arc<dyn Disk>>,
    pub store: Option<Arc<dyn ObjectStore>>,
}

pub struct Storage {
    pub world: World,
    pub pages: Arc<Pages>,
    pub log: Arc<Log>,
    pub map: Arc<Map>,
    pub flusher: Arc<Flusher>,
    pub path: Arc<Path>,
    pub pending: Arc<Pending>,
    pub checkpointer: Arc<Checkpointer>,
    pub config: Config,
    /// The instance was closed cleanly before this start.
    pub was_clean: bool,
    /// The instance was made by this start.
    pub is_new: bool,
    // Dropped in this order: workers first, the lock last.
    workers: Mutex<Vec<Box<dyn WorkerHandle>>>,
    _lock: Box<dyn DiskLock>,
}

impl Storage {
    pub fn open(config: &Config, parts: &Parts) -> Result<Storage, Error> {
        config.check()?;
        let volume = &*parts.volume;
        let lock = volume.lock().map_err(|e| match e {
            DiskError::Locked { .. } => Error::Busy(format!("the volume {} (another instance runs on it)", volume.describe())),
            other => other.into(),
        })?;
        let is_new = !volume.exists(superblock::FILE)?;
        if is_new {
            create(config, parts)?;
        }
        let mut superblock = Superblock::read(volume)?;
        let files: Vec<Arc<dyn File>> =
            (0..superblock.starts.len()).map(|i| volume.open(&log::file_name(i))).collect::<Result<_, _>>()?;

        // Redo: what the log has since the checkpoint.
        let mut scan = Scan::default();
        for (number, file) in files.iter().enumerate() {
            scan::partition(&superblock, number, &**file, &mut scan)?;
        }
        let end = cut::cut(&superblock, &mut scan)?;
        let starts: Vec<PartitionStart> = superblock
            .starts
            .iter()
            .zip(&scan.next)
            .map(|(start, next)| PartitionStart { start: *start, next: *next })
            .collect();

        // The new writer's epoch, durable before its first append.
        let was_clean = superblock.clean;
        superblock.epoch += 1;
        superblock.clean = false;
        superblock.attested = end;
        superblock.history.push((superblock.epoch, end));
        superblock.slots = superblock.slots.max(config.slots());
        superblock.generation += 1;
        let superblock_file = volume.open(superblock::FILE)?;
        superblock.write(&*superblock_file)?;

        let log = Arc::new(Log::new(
            parts.world.clone(),
            superblock.epoch,
            superblock.log_blocks,
            end,
            files,
            &starts,
        ));
        let redo: Arc<dyn Redo> = log.clone();

        // The map, to the end of the log.
        let mut loading = home::Loading::open(volume)?;
        for record in scan.records.iter().filter(|r| r.header.id.space == SpaceId::MAP) {
            let ops = &scan.bytes[record.ops.0..record.ops.1];
            loading.apply(record.header.id.page, ops, record.header.first, record.header.end())?;
        }
        let map = Arc::new(loading.finish(superblock.slots, redo.clone())?);

        let buffer = Arc::new(ObjectBuffer::open(volume)?);
        let path = Arc::new(Path::new(map.clone(), buffer.clone(), None, None));
        let pending = Arc::new(Pending::new(scan));
        path.set_pending(pending.clone());
        let pages = Arc::new(Pages::new(parts.world.clone(), config.frames(), path.clone(), redo.clone()));
        let flusher = Arc::new(Flusher::new(pages.pool().clone(), map.clone(), buffer, redo, None));
        let checkpointer = Arc::new(Checkpointer::new(
            log.clone(),
            pages.pool().clone(),
            flusher.clone(),
            map.clone(),
            pending.clone(),
            superblock_file,
            superblock,
        ));
        let sched = &parts.world.sched;
        let workers = vec![
            sched.spawn(Box::new(pages.evictor())),
            sched.spawn(Box::new(FlushWorker(flusher.clone()))),
            sched.spawn(Box::new(CheckpointWorker(checkpointer.clone()))),
        ];
        Ok(Storage {
            world: parts.world.clone(),
            pages,
            log,
            map,
            flusher,
            path,
            pending,
            checkpointer,
            config: config.clone(),
            was_clean,
            is_new,
            workers: Mutex::new(workers),
            _lock: lock,
        })
    }

    /// Keeps a worker running as long as the storage.
    pub fn keep(&self, worker: Box<dyn WorkerHandle>) {
        self.workers.lock().push(worker);
    }

    /// Starts the background pass over redo not applied yet. Redo of spaces that are not `live` is
    /// forgotten, and what the map still has of them is dropped.
    pub fn start_redo(&self, live: impl Fn(SpaceId) -> bool) -> Result<(), Error> {
        let keep = |space: SpaceId| space < SpaceId::FIRST_USER || live(space);
        self.pending.retain_spaces(keep);
        for space in self.map.spaces().into_iter().filter(|s| !keep(*s)) {
            self.map.drop_space(space)?;
        }
        let worker = RedoWorker::new(self.pending.clone(), self.pages.clone());
        self.keep(self.world.sched.spawn(Box::new(worker)));
        Ok(())
    }

    /// Forgets a dropped space in memory and on the volume.
    pub fn drop_space(&self, space: SpaceId) -> Result<(), Error> {
        self.pending.retain_spaces(|s| s != space);
        let mut tries = 0;
        while self.pages.pool().discard_space(space) > 0 {
            // The flusher copies one of its pages, or a reader lets go of its last.
            tries += 1;
            if tries > 1000 {
                return Err(Error::Busy(format!("space {space}")));
            }
            let progress = self.flusher.progress.ticket();
            self.world.sched.wait(&self.flusher.progress, progress, Some(1_000_000));
        }
        self.map.drop_space(space)?;
        Ok(())
    }

    /// Waits until a checkpoint has passed everything appended so far.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let target = self.log.appended();
        self.checkpointer.request(target);
        // What the checkpoint itself logs (map records) lies above the target.
        loop {
            let progress = self.checkpointer.progress.ticket();
            if self.checkpointer.position() >= target {
                return Ok(());
            }
            if let Some(error) = self.checkpointer.failed.lock().clone() {
                return Err(error);
            }
            self.world.sched.wait(&self.checkpointer.progress, progress, Some(20_000_000));
            self.checkpointer.request(target);
        }
    }

    /// Flushes everything and says in the superblock that nothing is to be redone. The storage is
    /// not to be written to any more.
    pub fn close(&self) -> Result<(), Error> {
        self.checkpoint()?;
        // The last checkpoint's own map records: once more, with nothing else going on.
        self.log.make_durable(self.log.appended())?;
        self.map.settle();
        self.map.write_homes()?;
        self.checkpointer.make()?;
        self.checkpointer.write_superblock(|s| s.clean = true)
    }
}

/// Makes a new instance. The superblock comes last: without it, the next start begins anew.
fn create(config: &Config, parts: &Parts) -> Result<(), Error> {
    let volume = &*parts.volume;
    let mut names: Vec<String> = (0..config.log_partitions).map(log::file_name).collect();
    names.extend([home::FILE.to_string(), object_buffer::FILE.to_string()]);
    let found = volume.list()?;
    // Left by a start that did not come to its end; anything else is not ours to remove.
    for name in found.iter().filter(|n| names.contains(n) || n.starts_with("log.")) {
        volume.remove(name)?;
    }
    let blocks = config.log_blocks();
    for partition in 0..config.log_partitions {
        let file = volume.create(&log::file_name(partition))?;
        file.grow(blocks * log::block::BLOCK as u64, true)?;
        file.sync(terrace_io::disk::Class::LogWrite)?;
    }
    home::create(volume)?;
    object_buffer::create(volume)?;
    volume.sync_dir()?;
    let id = || u128::from(parts.world.random.next_u64()) | u128::from(parts.world.random.next_u64()) << 64;
    let superblock = Superblock {
        instance: id(),
        lineage: id(),
        generation: 1,
        epoch: 0,
        clean: true,
        checkpoint: FIRST_GLSN,
        attested: FIRST_GLSN,
        transactions: 1,
        sequences: 1,
        spaces: SpaceId::FIRST_USER.0,
        slots: config.slots(),
        log_blocks: blocks,
        starts: vec![0; config.log_partitions],
        history: vec![],
    };
    // Under another name until it is whole: a name that exists has a superblock in it.
    const FRESH: &str = "superblock.new";
    if found.iter().any(|n| n == FRESH) {
        volume.remove(FRESH)?;
    }
    superblock.create_as(volume, FRESH)?;
    volume.sync_dir()?;
    volume.rename(FRESH, superblock::FILE)?;
    volume.sync_dir()?;
    Ok(())
}
