//! The cache at work: the catalogue's decisions carried out by a pool of workers, which wait for flash and the store.
//!
//! With peers, flights of files that other nodes own have workers of their own, which may wait for those nodes: the flights of this node's files never wait behind them.
//!
//! A worker takes a flight from the queue, finds the bytes on flash or gets them from the store, puts them into the arena and tells the
//! catalogue, which answers the reads that waited. Bytes are copied without a lock.
//!
//! Limits. Workers are as many as requests to the store may be in flight. The bodies of answers, which the HTTP library keeps outside of
//! the arena, are counted by [`Bodies`]: a request waits until there is room for its answer. A block that finds no room in the arena, as all
//! of it is under lease, waits [`ROOM_WAIT`] and then fails.
//!
//! Locks: `catalogue` or `objects`, for memory work only; then `queue` or `answers`. No I/O under any.

mod ask;
mod beside;
pub mod bodies;
mod fetch;
mod moving;
mod pack;
mod save;
pub mod split;

use crate::catalogue::{Catalogue, Done, Freshness, Meta, PEER, Read, Task};
use crate::flash::Flash;
use crate::groups::Groups;
use crate::memory::arena::Arena;
use crate::memory::extents::Extent;
use crate::memory::index::Index;
use crate::objects::Objects;
use crate::objects::spill::ObjectBytes;
use crate::peers::Peers;
use crate::pins::Pins;
use crate::stores::Store;
use bodies::Bodies;
use parking_lot::Mutex;
use split::BlockSplit;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker, WorkerHandle};

/// How long a block waits for leases to end, in nanoseconds.
const ROOM_WAIT: Nanos = 5_000_000_000;

/// What a flight found out of a file: its first block, if it came with that; when that was true, if another node says so.
type Fetched = (Meta, Option<Extent>, Option<Nanos>);

/// Something for a worker to do.
pub enum Work {
    Flight(Task),
    /// A request that only the store can answer.
    Job(Box<dyn FnOnce(&Files) + Send>),
}

/// What workers have for the event loop.
#[derive(Default)]
pub struct Answers {
    pub done: Vec<Done>,
    /// Whole frames, for a client's request.
    pub replies: Vec<Reply>,
}

pub struct Reply {
    pub client: u64,
    pub request: u64,
    pub outcome: Outcome,
}

pub enum Outcome {
    /// Frames that answer the request.
    Frames(Vec<u8>),
    /// A step of a file that is being written.
    Written(crate::write::Step),
    /// There is room for an object that its client wants to create.
    ObjectRoom { name: Arc<str>, len: u64, at_once: bool },
}

/// Something else that serves the store beside the socket, keeps answers of its own, and is told when they do not hold any more.
pub trait Front: Send + Sync {
    /// The file has another content now, or none.
    fn changed(&self, path: &str);
    /// What is cached of files whose path starts with this is to be dropped.
    fn evicted(&self, prefix: &str);
    /// Its figures, as JSON.
    fn status(&self) -> String;
}

pub struct Files {
    pub world: World,
    pub store: Arc<Store>,
    pub flash: Option<Flash>,
    /// Where blocks that are on flash as well are read.
    pub split: BlockSplit,
    pub arena: Arc<Arena>,
    /// Behind the arena; the catalogue publishes in it.
    pub index: Index,
    /// Files that are written together.
    pub groups: Groups,
    /// Memory objects, and their bytes.
    pub objects: Mutex<Objects>,
    pub object_bytes: ObjectBytes,
    /// Files that are not evicted.
    pub pins: Pins,
    catalogue: Mutex<Catalogue>,
    queue: Mutex<VecDeque<Work>>,
    wake: Arc<Event>,
    /// Flights of files that other nodes own.
    asks: Mutex<VecDeque<Task>>,
    asks_wake: Arc<Event>,
    /// Other daemons that cache the same store.
    peers: OnceLock<Arc<Peers>>,
    freshness: Freshness,
    /// Notified when bytes of the arena were freed.
    room: Event,
    pub bodies: Bodies,
    answers: Mutex<Answers>,
    /// Wakes the event loop.
    notify: OnceLock<Box<dyn Fn() + Send + Sync>>,
    front: OnceLock<Arc<dyn Front>>,
    is_stopping: AtomicBool,
}

impl Files {
    pub fn new(
        world: World,
        store: Arc<Store>,
        flash: Option<Flash>,
        arena: Arc<Arena>,
        catalogue: Catalogue,
        body_bytes: u64,
        index: Index,
        groups: Groups,
        objects: (Objects, ObjectBytes),
        pins: Pins,
        split: BlockSplit,
        freshness: Freshness,
    ) -> Files {
        let (objects, object_bytes) = objects;
        Files {
            bodies: Bodies::new(world.clone(), body_bytes),
            world,
            store,
            flash,
            split,
            arena,
            index,
            groups,
            objects: Mutex::new(objects),
            object_bytes,
            pins,
            catalogue: Mutex::new(catalogue),
            queue: Mutex::default(),
            wake: Arc::new(Event::new()),
            asks: Mutex::default(),
            asks_wake: Arc::default(),
            peers: OnceLock::new(),
            freshness,
            room: Event::new(),
            answers: Mutex::default(),
            notify: OnceLock::new(),
            front: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Called once, before there are answers.
    pub fn on_answer(&self, notify: Box<dyn Fn() + Send + Sync>) {
        let _ = self.notify.set(notify);
    }

    /// Called once, before requests come.
    pub fn stand_before(&self, front: Arc<dyn Front>) {
        let _ = self.front.set(front);
    }

    /// Called once, before requests come.
    pub fn join(&self, peers: Arc<Peers>) {
        let _ = self.peers.set(peers);
    }

    pub fn peers(&self) -> Option<&Peers> {
        self.peers.get().map(|peers| &**peers)
    }

    pub fn front(&self) -> Option<&dyn Front> {
        self.front.get().map(|front| &**front)
    }

    /// Starts `count` workers, or as many as the system has threads for, at least one.
    pub fn spawn(self: &Arc<Files>, count: usize) -> std::io::Result<Vec<Box<dyn WorkerHandle>>> {
        let mut workers = Vec::new();
        for _ in 0..count {
            match self.world.sched.try_spawn(Box::new(Fetcher(self.clone()))) {
                Ok(worker) => workers.push(worker),
                Err(error) if workers.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        for _ in 0..if self.peers().is_some() { count } else { 0 } {
            match self.world.sched.try_spawn(Box::new(Asker(self.clone()))) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        if self.flash.is_some() {
            workers.push(self.world.sched.try_spawn(Box::new(save::Saver::new(self.clone())))?);
            workers.push(self.world.sched.try_spawn(Box::new(pack::Packer::new(self.clone())))?);
        }
        Ok(workers)
    }

    /// Work on the catalogue; the flights that it asks for are made, and the answers that it gives are returned.
    pub fn with<T>(&self, work: impl FnOnce(&mut Catalogue, Nanos) -> T) -> (T, Vec<Done>) {
        let now = self.world.clock.now();
        let (result, tasks, done, freed) = {
            let mut catalogue = self.catalogue.lock();
            let result = work(&mut catalogue, now);
            let (tasks, done) = (std::mem::take(&mut catalogue.tasks), std::mem::take(&mut catalogue.done));
            (result, tasks, done, std::mem::take(&mut catalogue.freed))
        };
        if freed {
            self.room.notify();
        }
        if !tasks.is_empty() {
            self.queue_flights(tasks);
        }
        let Some(peers) = self.peers() else { return (result, done) };
        let (of_peers, done): (Vec<Done>, Vec<Done>) = done.into_iter().partition(|done| done.client == PEER);
        of_peers.into_iter().for_each(|done| peers.deliver(done));
        (result, done)
    }

    fn queue_flights(&self, tasks: Vec<Task>) {
        let is_mine = |task: &Task| self.peers().is_none_or(|peers| peers.is_mine(task.path()));
        let (mine, others): (Vec<Task>, Vec<Task>) = tasks.into_iter().partition(is_mine);
        let counts = (mine.len(), others.len());
        self.queue.lock().extend(mine.into_iter().map(Work::Flight));
        (0..counts.0).for_each(|_| self.wake.notify_one());
        if counts.1 > 0 {
            self.asks.lock().extend(others);
            (0..counts.1).for_each(|_| self.asks_wake.notify_one());
        }
    }

    /// As `with`, for a worker: the event loop delivers the answers.
    pub fn tell<T>(&self, work: impl FnOnce(&mut Catalogue, Nanos) -> T) -> T {
        let (result, done) = self.with(work);
        if !done.is_empty() {
            self.answers.lock().done.extend(done);
            self.notify_loop();
        }
        result
    }

    pub fn begin(&self, reads: impl IntoIterator<Item = Read>) -> Vec<Done> {
        self.with(|catalogue, now| reads.into_iter().for_each(|read| catalogue.begin(read, now))).1
    }

    /// Has a worker do it.
    pub fn submit(&self, job: Box<dyn FnOnce(&Files) + Send>) {
        self.queue.lock().push_back(Work::Job(job));
        self.wake.notify_one();
    }

    pub fn reply(&self, reply: Reply) {
        self.answers.lock().replies.push(reply);
        self.notify_loop();
    }

    pub fn take_answers(&self) -> Answers {
        std::mem::take(&mut self.answers.lock())
    }

    fn notify_loop(&self) {
        if let Some(notify) = self.notify.get() {
            notify();
        }
    }

    pub fn queued(&self) -> usize {
        self.queue.lock().len() + self.asks.lock().len()
    }

    /// Waits for room fail at once from now on.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.room.notify();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}

struct Fetcher(Arc<Files>);

impl Worker for Fetcher {
    fn name(&self) -> &'static str {
        "files-fetch"
    }

    fn step(&mut self) -> Step {
        let work = self.0.queue.lock().pop_front();
        match work {
            None => return Step::Idle,
            Some(Work::Flight(task)) => self.0.fly(task),
            Some(Work::Job(job)) => job(&self.0),
        }
        Step::Worked
    }

    fn wake_event(&self) -> Arc<Event> {
        self.0.wake.clone()
    }
}

/// Carries out flights of files that other nodes own.
struct Asker(Arc<Files>);

impl Worker for Asker {
    fn name(&self) -> &'static str {
        "files-ask"
    }

    fn step(&mut self) -> Step {
        let task = self.0.asks.lock().pop_front();
        let Some(task) = task else { return Step::Idle };
        self.0.fly(task);
        Step::Worked
    }

    fn wake_event(&self) -> Arc<Event> {
        self.0.asks_wake.clone()
    }
}
