//! What a front shows of an engine's threads, waits and memory, in its own way: a server has tables for that.
//!
//! There is one [`Observer`] a process, set before an engine is opened. It is called on the thread that begins, waits or takes memory.
//! Without one, disks and stores are as they are, and what may wait or borrow looks at one pointer that is null.
//!
//! A request of several pieces is one event, and so is a batch; the events of a disk have the time that passes at its
//! outermost (an emulated device's latency is in them).
//!
//! Not here: counters (`stats`), which are kept in any case; the locks that are shown (`lock`).

mod disk;
mod lock_names;
mod store;

pub use crate::wait::Wait;
pub use disk::disk;
pub use lock_names::{Mutexes, RwLocks, Wanted};
pub use store::store;

pub use crate::traffic::IoTarget;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    Read,
    Write,
    Sync,
    /// The request is about an object.
    Delete,
    List,
}

/// What memory is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Memory {
    /// Frames of the buffer pool, without those whose memory is lent.
    Frames,
    /// Everything else that `memory` is spent on from the start.
    Buffers,
    /// Lent, as long as the work lasts.
    Sorts,
    Watches,
    Locks,
    Cursors,
}

impl Memory {
    pub const ALL: [Memory; 6] =
        [Memory::Frames, Memory::Buffers, Memory::Sorts, Memory::Watches, Memory::Locks, Memory::Cursors];

    pub fn name(self) -> &'static str {
        match self {
            Memory::Frames => "frames",
            Memory::Buffers => "buffers",
            Memory::Sorts => "sorts",
            Memory::Watches => "watches",
            Memory::Locks => "locks",
            Memory::Cursors => "cursors",
        }
    }
}

/// What an observer keeps of an event between its begin and its end.
#[repr(C, align(16))]
pub struct Note(pub [MaybeUninit<u64>; 16]);

/// Shows waits to an operator. A call neither waits nor comes back to the engine.
pub trait Observer: Send + Sync {
    fn thread_begins(&self, name: &str);
    fn thread_ends(&self);
    /// False: this wait is not to be shown, and its end is not reported.
    fn transfer_begins(&self, target: IoTarget, operation: Operation, bytes: u64, note: &mut Note) -> bool;
    /// `bytes`: that came or went; 0 if it failed.
    fn transfer_ends(&self, note: &mut Note, bytes: u64);
    /// As [`Observer::transfer_begins`].
    fn wait_begins(&self, wait: Wait, note: &mut Note) -> bool;
    fn wait_ends(&self, note: &mut Note);
    /// As [`Observer::transfer_begins`]: another thread has the lock.
    fn lock_begins(&self, wanted: Wanted, note: &mut Note) -> bool;
    /// The thread has it.
    fn lock_ends(&self, wanted: Wanted, note: &mut Note);
    /// `change` bytes more, or fewer if it is negative.
    fn memory(&self, what: Memory, change: i64);
}

static OBSERVER: OnceLock<Box<dyn Observer>> = OnceLock::new();

/// Sets the process's observer. False: it has one, which stays.
pub fn set(observer: Box<dyn Observer>) -> bool {
    OBSERVER.set(observer).is_ok()
}

fn observer() -> Option<&'static dyn Observer> {
    OBSERVER.get().map(|observer| &**observer)
}

fn empty() -> Note {
    Note([MaybeUninit::uninit(); 16])
}

/// While it lives, the thread is shown.
pub struct Thread(&'static dyn Observer);

/// Shows the calling thread from here on.
pub fn thread(name: &str) -> Option<Thread> {
    let observer = observer()?;
    observer.thread_begins(name);
    Some(Thread(observer))
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.0.thread_ends();
    }
}

/// While it lives, the thread waits.
pub struct Waiting {
    observer: &'static dyn Observer,
    note: Note,
}

/// The calling thread waits from here on.
#[inline]
pub fn wait(what: Wait) -> Option<Waiting> {
    let observer = observer()?;
    let mut note = empty();
    observer.wait_begins(what, &mut note).then(|| Waiting { observer, note })
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.observer.wait_ends(&mut self.note);
    }
}

/// While it lives, the thread waits for a lock.
pub(crate) struct Locking {
    observer: &'static dyn Observer,
    wanted: Wanted,
    note: Note,
}

/// The calling thread waits for a lock from here on.
pub(crate) fn lock(wanted: Wanted) -> Option<Locking> {
    let observer = observer()?;
    let mut note = empty();
    observer.lock_begins(wanted, &mut note).then(|| Locking { observer, wanted, note })
}

impl Drop for Locking {
    fn drop(&mut self) {
        self.observer.lock_ends(self.wanted, &mut self.note);
    }
}

/// A transfer under way; what is not told of its end failed.
struct Transfer {
    observer: &'static dyn Observer,
    note: Note,
    moved: u64,
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.observer.transfer_ends(&mut self.note, self.moved);
    }
}

/// Shows a transfer of `bytes`, as far as that is known before; `moved` tells how many came or went.
fn transfer<T>(
    target: IoTarget,
    operation: Operation,
    bytes: u64,
    work: impl FnOnce() -> T,
    moved: impl FnOnce(&T) -> u64,
) -> T {
    let Some(observer) = observer() else { return work() };
    let mut note = empty();
    let begun = observer.transfer_begins(target, operation, bytes, &mut note);
    let mut shown = begun.then(|| Transfer { observer, note, moved: 0 });
    let done = work();
    if let Some(shown) = &mut shown {
        shown.moved = moved(&done);
    }
    done
}

/// Reports a change, in bytes.
#[inline]
pub fn memory(what: Memory, change: i64) {
    if let Some(observer) = observer().filter(|_| change != 0) {
        observer.memory(what, change);
    }
}

/// Memory in use, reported as a number that changes. It is given back with the value.
pub struct TrackedBytes {
    what: Memory,
    bytes: AtomicU64,
}

impl TrackedBytes {
    pub const fn new(what: Memory) -> TrackedBytes {
        TrackedBytes { what, bytes: AtomicU64::new(0) }
    }
    pub fn set(&self, bytes: u64) {
        if observer().is_some() {
            let before = self.bytes.swap(bytes, Ordering::AcqRel);
            memory(self.what, bytes as i64 - before as i64);
        }
    }
}

impl Drop for TrackedBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}
