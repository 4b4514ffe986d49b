//! The system can start no more threads: an operation that needs one while the instance runs fails, leaves nothing, and succeeds later.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::storage::copy::BackgroundCopy;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::disk::Disk;
use terrace_io::sched::{Event, Sched, Ticket, Woken, Worker, WorkerHandle};
use terrace_sim::SimWorld;

/// A scheduler that can start only a limited number of workers.
struct Scarce {
    inner: Arc<dyn Sched>,
    left: AtomicUsize,
}

impl Sched for Scarce {
    fn wait(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>) -> Woken {
        self.inner.wait(event, seen, timeout)
    }
    fn spawn(&self, worker: Box<dyn Worker>) -> Box<dyn WorkerHandle> {
        self.try_spawn(worker).unwrap()
    }
    fn try_spawn(&self, worker: Box<dyn Worker>) -> std::io::Result<Box<dyn WorkerHandle>> {
        let took = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        took.map_err(|_| ErrorKind::WouldBlock)?;
        Ok(self.inner.spawn(worker))
    }
}

fn open(sim: &SimWorld) -> (Arc<Engine>, Arc<Scarce>) {
    let sched = Arc::new(Scarce { inner: sim.world().sched, left: AtomicUsize::new(1000) });
    let world = World { sched: sched.clone(), ..sim.world() };
    let parts = Parts { world, volume: sim.disk("volume"), flash: None, store: None };
    let config = Config {
        memory: Bytes(4 << 20),
        log: Bytes(8 << 20),
        object_buffer: Bytes(32 << 20),
        ..Config::default()
    };
    (Engine::open(config, parts).unwrap(), sched)
}

fn is_without_thread<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Unavailable(what)) if what.contains("no thread can be had for"))
}

#[test]
fn the_first_temporary_table_fails_while_no_thread_can_start_and_succeeds_later() {
    let sim = SimWorld::new(1);
    let (engine, sched) = open(&sim);
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    let def = TableDef { indexes, properties: Vec::new() };
    for left in [0, 1] {
        sched.left.store(left, Ordering::SeqCst);
        assert!(is_without_thread(engine.create_temporary_table("tmp/a", &def)));
        sim.sched.run_some(100);
    }
    sched.left.store(2, Ordering::SeqCst);
    let table = engine.create_temporary_table("tmp/a", &def).unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.insert(&table, b"key", b"row", &[]).unwrap();
    assert!(txn.get(&table, b"key", Lock::None, &mut Vec::new()).unwrap());
    txn.commit().unwrap().wait().unwrap();
    engine.shutdown().unwrap();
}

#[test]
fn a_background_copy_fails_while_no_thread_can_start_and_succeeds_later() {
    let sim = SimWorld::new(2);
    let (engine, sched) = open(&sim);
    let storage = &engine.core().storage;
    let copy = sim.disk("copy");
    sched.left.store(0, Ordering::SeqCst);
    assert!(is_without_thread(BackgroundCopy::begin(storage, copy.clone())));
    assert_eq!(copy.list().unwrap(), Vec::<String>::new());
    sched.left.store(1, Ordering::SeqCst);
    BackgroundCopy::begin(storage, copy).unwrap().finish(&mut |_| true).unwrap();
    engine.shutdown().unwrap();
}
