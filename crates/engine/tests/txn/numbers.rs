//! Transaction numbers are reserved in the superblock by one of the threads that need them; the others don't write it, too.

use std::sync::{Arc, Barrier};
use terrace_engine::Engine;
use terrace_engine::Parts;
use terrace_engine::config::{Bytes, Config};
use terrace_io::disk::Class;
use terrace_sim::{SimDisk, SimWorld};

const THREADS: usize = 64;

fn open(disk: &Arc<SimDisk>) -> Arc<Engine> {
    let config = Config { memory: Bytes(10 << 20), log: Bytes(8 << 20), ..Config::default() };
    let parts = Parts { world: terrace_io::real::world(), volume: disk.clone(), flash: None, store: None };
    Engine::open(config, parts).unwrap()
}

/// Writes of the superblock while all ask at once.
fn written(engine: &Engine, disk: &SimDisk) -> u64 {
    let before = disk.requests(Class::Superblock);
    let all = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                all.wait();
                engine.core().reserve_numbers().unwrap();
                let reserved = engine.core().storage.checkpointer.superblock().transactions;
                assert!(reserved > engine.core().ids.peek() + 100_000);
            });
        }
    });
    disk.requests(Class::Superblock) - before
}

#[test]
fn one_superblock_write_reserves_transaction_numbers_for_all_threads() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("volume");
    let engine = open(&disk);
    let of_one = {
        let before = disk.requests(Class::Superblock);
        engine.core().storage.checkpointer.write_both(|_| ()).unwrap();
        disk.requests(Class::Superblock) - before
    };
    // After a start there is no number left.
    assert_eq!(written(&engine, &disk), of_one);
    assert_eq!(written(&engine, &disk), 0);
    (0..5).for_each(|_| {
        (0..620_000).for_each(|_| _ = engine.core().ids.number());
        assert_eq!(written(&engine, &disk), of_one);
    });
    engine.shutdown().unwrap();
}
