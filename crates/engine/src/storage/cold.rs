//! The cold side of an instance: its object store, the fence that says whose it is, sinking and
//! collection.
//!
//! Start: an instance that never took a store asks it at once, so a wrong bucket, missing credentials or an
//! unreachable store are found before anything is trusted to it; that it took one is then in the superblock. From then
//! on it starts without an answer from the store (it may be dead, or its directory not be mounted yet); the sinker takes
//! the fence when it first can, and what it finds is in `status`. An empty store is then never made its own, also while
//! it has no object: what is put below a mount is gone when the mount comes.
//!
//! After each start the store is listed once, in the background, for objects that were put and never
//! published or superseded and not yet deleted (`Collector::scrub_orphans`): what waits for deletion is
//! kept in memory only.
//!
//! A copy of the volume (`copy`) names objects. [`Cold::record_snapshot`] records its boundary in the store, so that they stay.

use crate::calendar;
use crate::config::{Bytes, Config};
use crate::error::Error;
use crate::storage::trouble::{REBUILD, Trouble};
use crate::superblock::Superblock;
use std::sync::Arc;
use terrace_io::World;
use terrace_io::sched::{Event, Step, Worker};
use terrace_io::store::ObjectStore;
use terrace_log::Redo;
use terrace_tier::ablation::Mechanism;
use terrace_tier::flash::FlashCache;
use terrace_tier::memory::pool::Pool;
use terrace_tier::objects::attached::fill::Filler;
use terrace_tier::objects::collect::{CollectWorker, Collector};
use terrace_tier::objects::fence::{Fence, Takers, Writer};
use terrace_tier::objects::object::Objects;
use terrace_tier::objects::sink::{
    self, EpochSequences, Patches, SinkParts, SinkSettings, SinkWorker, Sinker,
};
use terrace_tier::objects::snapshots::{Snapshot, Snapshots};
use terrace_tier::volume::map::Map;
use terrace_tier::volume::object_buffer::ObjectBuffer;

/// The least memory of an instance with an object store: a sinker's buffers are among it.
pub const MEMORY_MIN: Bytes = Bytes(10 << 20);

pub struct Cold {
    world: World,
    pub store: Arc<dyn ObjectStore>,
    pub objects: Arc<Objects>,
    pub fence: Arc<Fence>,
    pub sinker: Arc<Sinker>,
    pub collector: Arc<Collector>,
    pub snapshots: Arc<Snapshots>,
    pub filler: Arc<Filler>,
    sequences: Arc<EpochSequences>,
    workers: usize,
}

/// Collects, and in its spare time copies what is attached.
struct ColdWorker(CollectWorker, Arc<Filler>);

impl Worker for ColdWorker {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn step(&mut self) -> Step {
        match self.0.step() {
            Step::Worked => Step::Worked,
            rest if self.0.0.is_stopped() => rest,
            rest => match (rest, self.1.step()) {
                (_, Step::Worked) => Step::Worked,
                (Step::IdleFor(one), Step::IdleFor(other)) => Step::IdleFor(one.min(other)),
                (Step::Idle, rest) | (rest, _) => rest,
            },
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.wake_event()
    }
}

/// What the cold side works with.
pub struct ColdParts {
    pub world: World,
    pub objects: Arc<Objects>,
    pub map: Arc<Map>,
    pub buffer: Arc<ObjectBuffer>,
    pub pool: Arc<Pool>,
    pub redo: Arc<dyn Redo>,
    pub flash: Option<Arc<dyn FlashCache>>,
    pub takers: Arc<dyn Takers>,
    pub patches: Arc<dyn Patches>,
}

impl Cold {
    /// `superblock` has this start's epoch already.
    pub fn open(config: &Config, parts: ColdParts, superblock: &Superblock) -> Result<Cold, Error> {
        if config.memory < MEMORY_MIN {
            let (memory, store) = (config.memory, parts.objects.store().describe());
            let what = "is too little beside the object store";
            return Err(Error::Invalid(format!("memory = {memory} {what} {store}: at least {MEMORY_MIN}")));
        }
        let ColdParts { world, objects, map, buffer, pool, redo, flash, takers, patches } = parts;
        let writer = Writer {
            instance: superblock.instance,
            lineage: superblock.lineage,
            epoch: superblock.epoch,
            nonce: world.random.next_u64().max(1),
        };
        let bound = superblock.has_store || !map.objects().is_empty();
        let store = objects.store().clone();
        let since = calendar::seconds(world.clock.unix_ms());
        let who = format!("{}, since {since}", world.sched.process());
        let fence = Arc::new(Fence::new(store.clone(), writer, bound, takers).named(who));
        if !bound {
            fence.take()?;
        }
        let snapshots = Arc::new(Snapshots::new(store.clone()));
        let collector = Arc::new(Collector::new(
            world.clone(),
            map.clone(),
            redo.clone(),
            objects.clone(),
            fence.clone(),
            snapshots.clone(),
        ));
        collector.want_scrub();
        let filler = Arc::new(Filler::new(
            world.clone(),
            map.clone(),
            redo.clone(),
            objects.clone(),
            fence.clone(),
            collector.clone(),
            snapshots.clone(),
        ));
        let sequences = Arc::new(EpochSequences::new());
        let (objects_too, fence_too, collector_too) = (objects.clone(), fence.clone(), collector.clone());
        let sinking = SinkParts {
            world: world.clone(),
            map,
            buffer,
            pool,
            redo,
            flash,
            objects: objects_too,
            fence: fence_too,
            sequences: sequences.clone(),
            patches: Some(patches).filter(|_| !config.without.has(Mechanism::Patches)),
            collector: collector_too,
        };
        let cool = config.sink_after_ms.saturating_mul(1_000_000);
        let memory = config.sink_memory();
        let (requests_max, defers) =
            (config.sink_requests_max as u64, !config.without.has(Mechanism::Deferral));
        let settings = SinkSettings { cool, requests_max, memory, defers };
        let sinker = Arc::new(Sinker::new(sinking, settings));
        let workers = sink::workers(memory);
        Ok(Cold { world, store, objects, fence, sinker, collector, snapshots, filler, sequences, workers })
    }

    /// Records that a copy of the volume with the instance id `id`, whose log has ended, names objects that were put until now; durable when
    /// it returns. The caller has held the snapshots since before the copy's map was written. If we are no longer the store's
    /// owner when it is recorded, the next owner may not have seen it: then it is an error.
    pub fn record_snapshot(&self, id: u128) -> Result<Snapshot, Error> {
        self.fence.keep_up(self.world.clock.now())?;
        let Writer { lineage, epoch, .. } = self.fence.writer();
        let made_ms = self.world.clock.unix_ms();
        let snapshot = Snapshot { id, lineage, epoch, sequence: self.sequences.last(), made_ms };
        let added = self.snapshots.add(snapshot);
        self.world.sched.point("snapshot-recorded");
        let recorded = added.map_err(Error::from).and_then(|()| Ok(self.fence.check()?));
        if recorded.is_err() {
            _ = self.snapshots.remove(id);
        }
        recorded.map(|()| snapshot)
    }

    /// The workers that sink and collect.
    pub fn workers(&self) -> Vec<Box<dyn Worker>> {
        let sinker = |_| Box::new(SinkWorker(self.sinker.clone())) as Box<dyn Worker>;
        // A sink leaves an object or two to delete, each a round trip as its put was.
        let collector = |_| Box::new(CollectWorker(self.collector.clone())) as Box<dyn Worker>;
        let first = Box::new(ColdWorker(CollectWorker(self.collector.clone()), self.filler.clone()));
        let sinkers = (0..self.workers).map(sinker);
        sinkers.chain([first as Box<dyn Worker>]).chain((1..self.workers).map(collector)).collect()
    }

    /// What is wrong with the store, if anything: of several the most urgent.
    pub fn trouble(&self) -> Option<Trouble> {
        const NAME: &str = "object_store_trouble";
        let sinking = self.sinker.status();
        let fenced = sinking.fenced.map(|why| {
            let todo = "nothing sinks any more and the object buffer fills up; see docs/backup.md, or stop the instance that took the store";
            Trouble::act(NAME, format!("{why}; {todo}"))
        });
        let failed = [sinking.error, self.collector.status().1, self.objects.outage.why()];
        let failed = failed.into_iter().flatten().map(|failure| match failure.needs_person {
            true => {
                let todo =
                    "check that this is the right store, and mounted, and its credentials and settings";
                Trouble::act(NAME, format!("{}; {todo}", failure.text))
            }
            false => Trouble::degraded(NAME, failure.text),
        });
        // The first of those that are alike.
        fenced
            .into_iter()
            .chain(failed)
            .reduce(|one, other| if other.severity > one.severity { other } else { one })
    }

    /// What is wrong with the places from which objects are read that are not in the own store.
    pub fn attached_trouble(&self) -> Option<Trouble> {
        const NAME: &str = "attached_trouble";
        let status = self.filler.status();
        let failure = status.trouble?;
        let text = match &status.from {
            Some(from) => format!("{}; objects are still read from {from}; see docs/backup.md", failure.text),
            None => failure.text,
        };
        Some(if failure.needs_person { Trouble::act(NAME, text) } else { Trouble::degraded(NAME, text) })
    }

    /// Blocks that can't be sunk, if there are some.
    pub fn unsinkable(&self) -> Option<Trouble> {
        let corrupt = self.sinker.status().corrupt?;
        Some(Trouble::act("sink_trouble", format!("a block stays on the volume: {corrupt}; {REBUILD}")))
    }
}
