//! The events that a process's observer gets. It is one test, because a process has one observer.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::Mutex;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, FileWrite, Op};
use terrace_io::lock::{self, Mutexes, RwLocks, Wanted};
use terrace_io::observe::{self, IoTarget, Memory, Note, Observer, Operation, TrackedBytes, Wait};
use terrace_io::real::disk::RealDisk;
use terrace_io::real::threads::Threads;
use terrace_io::sched::{Event, Sched, Step, Worker};

#[derive(Clone, PartialEq, Eq, Debug)]
enum Told {
    Begins(String),
    Ends,
    Transfer(IoTarget, Operation, u64),
    /// The begin's place in the list, and the bytes that moved.
    Moved(u64, u64),
    Wait(Wait),
    Waited(u64),
    Locks(Wanted),
    Locked(u64, Wanted),
    Memory(Memory, i64),
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

struct Recorder;

fn tell(told: Told) -> u64 {
    let mut all = TOLD.lock().unwrap();
    all.push(told);
    all.len() as u64 - 1
}

fn noted(note: &Note) -> u64 {
    // SAFETY: written at the begin, which returned true.
    unsafe { note.0[15].assume_init() }
}

impl Observer for Recorder {
    fn thread_begins(&self, name: &str) {
        tell(Told::Begins(name.into()));
    }
    fn thread_ends(&self) {
        tell(Told::Ends);
    }
    fn transfer_begins(&self, target: IoTarget, operation: Operation, bytes: u64, note: &mut Note) -> bool {
        note.0[15] = MaybeUninit::new(tell(Told::Transfer(target, operation, bytes)));
        target != IoTarget::Superblock
    }
    fn transfer_ends(&self, note: &mut Note, bytes: u64) {
        tell(Told::Moved(noted(note), bytes));
    }
    fn wait_begins(&self, wait: Wait, note: &mut Note) -> bool {
        note.0[15] = MaybeUninit::new(tell(Told::Wait(wait)));
        wait != Wait::Purge
    }
    fn wait_ends(&self, note: &mut Note) {
        tell(Told::Waited(noted(note)));
    }
    fn lock_begins(&self, wanted: Wanted, note: &mut Note) -> bool {
        note.0[15] = MaybeUninit::new(tell(Told::Locks(wanted)));
        wanted != Wanted::Mutex(Mutexes::Sink)
    }
    fn lock_ends(&self, wanted: Wanted, note: &mut Note) {
        tell(Told::Locked(noted(note), wanted));
    }
    fn memory(&self, what: Memory, change: i64) {
        tell(Told::Memory(what, change));
    }
}

fn told(work: impl FnOnce()) -> Vec<Told> {
    TOLD.lock().unwrap().clear();
    work();
    TOLD.lock().unwrap().clone()
}

struct Once(Arc<Event>);

impl Worker for Once {
    fn name(&self) -> &'static str {
        "once"
    }
    fn step(&mut self) -> Step {
        Step::Idle
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.clone()
    }
}

/// What the observer is told while one thread waits for a lock that another holds: `hold` takes the lock, `wait` requests it.
fn told_of_a_wait<H>(hold: impl FnOnce() -> H, wait: impl FnOnce() + Send) -> Vec<Told> {
    told(|| {
        std::thread::scope(|scope| {
            let held = hold();
            let waiter = scope.spawn(wait);
            while !TOLD.lock().unwrap().iter().any(|told| matches!(told, Told::Locks(_))) {
                assert!(!waiter.is_finished(), "it did not wait");
                std::thread::yield_now();
            }
            drop(held);
        });
    })
}

fn locks_are_told_of_if_another_thread_has_them() {
    let mutex = lock::Mutex::<u32, { Mutexes::Catalog as u8 }>::new(1);
    let refused = lock::Mutex::<u32, { Mutexes::Sink as u8 }>::new(1);
    let lock = lock::RwLock::<u32, { RwLocks::Page as u8 }>::new(1);
    let free = told(|| {
        *mutex.lock() += 1;
        *lock.write() += 1;
        let (one, other) = (lock.read(), lock.read());
        assert!(*one == *other && lock.try_write().is_none() && mutex.try_lock().is_some());
    });
    assert_eq!(free, [], "nobody waited");

    let both = |wanted| [Told::Locks(wanted), Told::Locked(0, wanted)];
    let of_mutex = told_of_a_wait(|| mutex.lock(), || *mutex.lock() += 1);
    assert_eq!(of_mutex, both(Wanted::Mutex(Mutexes::Catalog)));
    let of_reader = told_of_a_wait(|| lock.write(), || drop(lock.read()));
    assert_eq!(of_reader, both(Wanted::Shared(RwLocks::Page)));
    let of_writer = told_of_a_wait(|| lock.read(), || *lock.write() += 1);
    assert_eq!(of_writer, both(Wanted::Exclusive(RwLocks::Page)));
    // The observer did not ask to be told of the end.
    let of_refused = told_of_a_wait(|| refused.lock(), || *refused.lock() += 1);
    assert_eq!(of_refused, [Told::Locks(Wanted::Mutex(Mutexes::Sink))]);
    assert_eq!((*mutex.lock(), *lock.read(), *refused.lock()), (3, 3, 2));
}

#[test]
fn transfers_waits_threads_and_memory_are_told_with_their_ends() {
    let directory = std::env::temp_dir().join(format!("terrace-observe-{}", std::process::id()));
    let real: Arc<dyn Disk> = Arc::new(RealDisk::open(&directory).unwrap());
    let nobody = observe::disk(real.clone());
    assert!(Arc::ptr_eq(&real, &nobody), "without an observer a disk is what it is");
    assert!(observe::wait(Wait::Page).is_none() && observe::thread("x").is_none());

    assert!(observe::set(Box::new(Recorder)) && !observe::set(Box::new(Recorder)));
    let disk = observe::disk(real);
    let file = disk.create("a").unwrap();
    let other = disk.create("b").unwrap();
    let mut bytes = AlignedBuf::zeroed(8192);

    let seen = told(|| {
        file.write(Class::PageFlush, 0, &bytes).unwrap();
        file.read(Class::BpeRead, 0, &mut bytes[..4096]).unwrap();
        file.sync(Class::MapWrite).unwrap();
        file.write(Class::Superblock, 0, &bytes).unwrap();
        file.read(Class::LogRead, 1 << 20, &mut bytes).unwrap_err();
    });
    use Told::{Moved, Transfer};
    let wanted = [
        Transfer(IoTarget::Pages, Operation::Write, 8192),
        Moved(0, 8192),
        Transfer(IoTarget::Flash, Operation::Read, 4096),
        Moved(2, 4096),
        Transfer(IoTarget::Map, Operation::Sync, 0),
        Moved(4, 0),
        // The observer did not ask to be told of the end.
        Transfer(IoTarget::Superblock, Operation::Write, 8192),
        Transfer(IoTarget::Log, Operation::Read, 8192),
        Moved(7, 0),
    ];
    assert_eq!(seen, wanted);

    let seen = told(|| {
        let mut ops = [Op::Write { offset: 0, buf: &bytes[..4096] }, Op::Write { offset: 8192, buf: &bytes }];
        assert!(file.batch(Class::Spill, &mut ops).iter().all(Result::is_ok));
        let mut writes = [&file, &other]
            .map(|file| FileWrite { file: &**file, ops: vec![Op::Write { offset: 0, buf: &bytes }] });
        assert!(disk.write_synced(Class::LogWrite, &mut writes).iter().all(Result::is_ok));
        assert!(writes.iter().all(|write| write.ops.len() == 1), "what was asked is there afterwards");
    });
    let wanted = [
        Transfer(IoTarget::Spill, Operation::Write, 12288),
        Moved(0, 12288),
        Transfer(IoTarget::Log, Operation::Write, 16384),
        Moved(2, 16384),
        Transfer(IoTarget::Log, Operation::Sync, 0),
        Moved(4, 0),
    ];
    assert_eq!(seen, wanted);
    assert_eq!(disk.stats().unwrap().of(Class::LogWrite).requests, 2, "counters are the disk's");

    let seen = told(|| {
        drop(observe::wait(Wait::RowLock));
        assert!(observe::wait(Wait::Purge).is_none());
        drop(Threads.spawn(Box::new(Once(Arc::new(Event::new())))));
        let held = TrackedBytes::new(Memory::Frames);
        held.set(100);
        held.set(60);
        drop(held);
    });
    use Told::{Begins, Ends, Waited};
    let wanted = [
        Told::Wait(Wait::RowLock),
        Waited(0),
        Told::Wait(Wait::Purge),
        Begins("once".into()),
        Ends,
        Told::Memory(Memory::Frames, 100),
        Told::Memory(Memory::Frames, -40),
        Told::Memory(Memory::Frames, -60),
    ];
    assert_eq!(seen, wanted);

    locks_are_told_of_if_another_thread_has_them();
    std::fs::remove_dir_all(&directory).unwrap();
}
