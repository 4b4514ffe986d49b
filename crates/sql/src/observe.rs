//! A front that shows the engine's threads, waits and memory in tables of its own: functions that the library calls.

use crate::bytes::TerraceBytes;
use crate::error::{Code, Fault, guard};
use std::ffi::c_void;
use terrace_io::lock::{Mutexes, RwLocks, Wanted};
use terrace_io::observe::{self, IoTarget, Memory, Note, Observer, Operation, Wait};

/// What is numbered, by `terrace_observed_name`: places that bytes go to and come from; what is waited for beside them; what memory
/// is for; mutexes and read-write locks.
pub const TERRACE_OBSERVED_PLACES: u32 = 0;
pub const TERRACE_OBSERVED_WAITS: u32 = 1;
pub const TERRACE_OBSERVED_MEMORY: u32 = 2;
pub const TERRACE_OBSERVED_MUTEXES: u32 = 3;
pub const TERRACE_OBSERVED_RWLOCKS: u32 = 4;

/// There are no more of a kind.
pub const TERRACE_OBSERVED_MAX: u32 = 64;
const _: () = assert!(Mutexes::ALL.len() <= TERRACE_OBSERVED_MAX as usize);

/// What a thread waits for: a mutex, or a read-write lock to share it or to have it alone.
pub const TERRACE_WANTED_MUTEX: u32 = 0;
pub const TERRACE_WANTED_SHARED: u32 = 1;
pub const TERRACE_WANTED_EXCLUSIVE: u32 = 2;

/// Operations of a transfer; deletions and lists are the object store's.
pub const TERRACE_OPERATION_READ: u32 = 0;
pub const TERRACE_OPERATION_WRITE: u32 = 1;
pub const TERRACE_OPERATION_SYNC: u32 = 2;
pub const TERRACE_OPERATION_DELETE: u32 = 3;
pub const TERRACE_OPERATION_LIST: u32 = 4;
const _: () = assert!(Operation::List as u32 == TERRACE_OPERATION_LIST);

/// What an observer keeps of an event from its begin to its end, in bytes; aligned to 16.
pub const TERRACE_NOTE_BYTES: u32 = 128;
const _: () = assert!(TERRACE_NOTE_BYTES as usize == size_of::<Note>());

pub type TerraceThreadBeginsFn = Option<unsafe extern "C" fn(name: TerraceBytes)>;
pub type TerraceThreadEndsFn = Option<unsafe extern "C" fn()>;
pub type TerraceTransferBeginsFn =
    Option<unsafe extern "C" fn(place: u32, operation: u32, bytes: u64, note: *mut c_void) -> bool>;
pub type TerraceTransferEndsFn = Option<unsafe extern "C" fn(note: *mut c_void, bytes: u64)>;
pub type TerraceWaitBeginsFn = Option<unsafe extern "C" fn(wait: u32, note: *mut c_void) -> bool>;
pub type TerraceWaitEndsFn = Option<unsafe extern "C" fn(note: *mut c_void)>;
pub type TerraceLockBeginsFn =
    Option<unsafe extern "C" fn(wanted: u32, number: u32, note: *mut c_void) -> bool>;
pub type TerraceLockEndsFn = Option<unsafe extern "C" fn(wanted: u32, note: *mut c_void)>;
pub type TerraceMemoryFn = Option<unsafe extern "C" fn(what: u32, change: i64)>;

/// Functions that are told of threads, waits and memory; none is null. Each is called on the thread that it is about: one of the
/// library's, or one that is in a call. It must not wait, nor call the library.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TerraceObserver {
    pub size: usize,
    /// A thread of the library's begins, and ends. Names have letters, digits and `_`; several threads may have the same.
    pub thread_begins: TerraceThreadBeginsFn,
    pub thread_ends: TerraceThreadEndsFn,
    /// Bytes begin to go to a place, or to come: a request, or a batch. `bytes` is 0 if it is not known yet. True: the end is
    /// told, on the same thread, with the same note and with the bytes that went or came, 0 if that failed.
    pub transfer_begins: TerraceTransferBeginsFn,
    pub transfer_ends: TerraceTransferEndsFn,
    /// The same for other waits.
    pub wait_begins: TerraceWaitBeginsFn,
    pub wait_ends: TerraceWaitEndsFn,
    /// The same for the lock `number` that another thread has: one of the names that `wanted` says, `TERRACE_WANTED_…`. It is not
    /// told of a lock that is free. Many locks may have one name.
    pub lock_begins: TerraceLockBeginsFn,
    pub lock_ends: TerraceLockEndsFn,
    /// That many bytes more, or fewer if the number is negative.
    pub memory: TerraceMemoryFn,
}

struct Functions {
    thread_begins: unsafe extern "C" fn(TerraceBytes),
    thread_ends: unsafe extern "C" fn(),
    transfer_begins: unsafe extern "C" fn(u32, u32, u64, *mut c_void) -> bool,
    transfer_ends: unsafe extern "C" fn(*mut c_void, u64),
    wait_begins: unsafe extern "C" fn(u32, *mut c_void) -> bool,
    wait_ends: unsafe extern "C" fn(*mut c_void),
    lock_begins: unsafe extern "C" fn(u32, u32, *mut c_void) -> bool,
    lock_ends: unsafe extern "C" fn(u32, *mut c_void),
    memory: unsafe extern "C" fn(u32, i64),
}

fn place_of(note: &mut Note) -> *mut c_void {
    (&raw mut *note).cast()
}

/// As `TERRACE_WANTED_…`, and the number of the name.
fn numbered(wanted: Wanted) -> (u32, u32) {
    match wanted {
        Wanted::Mutex(name) => (TERRACE_WANTED_MUTEX, name as u32),
        Wanted::Shared(name) => (TERRACE_WANTED_SHARED, name as u32),
        Wanted::Exclusive(name) => (TERRACE_WANTED_EXCLUSIVE, name as u32),
    }
}

impl Observer for Functions {
    fn thread_begins(&self, name: &str) {
        let name = name.replace(' ', "_");
        // SAFETY: the promise of `terrace_observe`'s caller; the name lives during the call.
        unsafe { (self.thread_begins)(TerraceBytes::of(name.as_bytes())) }
    }
    fn thread_ends(&self) {
        // SAFETY: as above.
        unsafe { (self.thread_ends)() }
    }
    fn transfer_begins(&self, target: IoTarget, operation: Operation, bytes: u64, note: &mut Note) -> bool {
        // SAFETY: as above; the note has its room and lives until the end.
        unsafe { (self.transfer_begins)(target as u32, operation as u32, bytes, place_of(note)) }
    }
    fn transfer_ends(&self, note: &mut Note, bytes: u64) {
        // SAFETY: as above.
        unsafe { (self.transfer_ends)(place_of(note), bytes) }
    }
    fn wait_begins(&self, wait: Wait, note: &mut Note) -> bool {
        // SAFETY: as above.
        unsafe { (self.wait_begins)(wait as u32, place_of(note)) }
    }
    fn wait_ends(&self, note: &mut Note) {
        // SAFETY: as above.
        unsafe { (self.wait_ends)(place_of(note)) }
    }
    fn lock_begins(&self, wanted: Wanted, note: &mut Note) -> bool {
        let (wanted, number) = numbered(wanted);
        // SAFETY: as above.
        unsafe { (self.lock_begins)(wanted, number, place_of(note)) }
    }
    fn lock_ends(&self, wanted: Wanted, note: &mut Note) {
        // SAFETY: as above.
        unsafe { (self.lock_ends)(numbered(wanted).0, place_of(note)) }
    }
    fn memory(&self, what: Memory, change: i64) {
        // SAFETY: as above.
        unsafe { (self.memory)(what as u32, change) }
    }
}

/// Sets the process's observer: once, before an engine is opened. Without one nothing is observed.
///
/// # Safety
/// `observer` is valid; its functions may be called from any thread until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_observe(observer: *const TerraceObserver) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let observer = unsafe { &*observer };
        if observer.size != size_of::<TerraceObserver>() {
            return Err(Fault::invalid("terrace_observer of another version".into()));
        }
        let functions = || {
            Some(Functions {
                thread_begins: observer.thread_begins?,
                thread_ends: observer.thread_ends?,
                transfer_begins: observer.transfer_begins?,
                transfer_ends: observer.transfer_ends?,
                wait_begins: observer.wait_begins?,
                wait_ends: observer.wait_ends?,
                lock_begins: observer.lock_begins?,
                lock_ends: observer.lock_ends?,
                memory: observer.memory?,
            })
        };
        let functions = functions().ok_or_else(|| Fault::invalid("no function to call".into()))?;
        match observe::set(Box::new(functions)) {
            true => Ok(Code::Ok),
            false => Err(Fault::invalid("there is an observer".into())),
        }
    })
}

/// The name of what an observer is told by its number, `kind` being one of `TERRACE_OBSERVED_…`; empty behind the last. It lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_observed_name(kind: u32, number: u32) -> TerraceBytes {
    let at = number as usize;
    let name = match kind {
        TERRACE_OBSERVED_PLACES => IoTarget::ALL.get(at).map(|place| place.name()),
        TERRACE_OBSERVED_WAITS => Wait::ALL.get(at).map(|wait| wait.name()),
        TERRACE_OBSERVED_MEMORY => Memory::ALL.get(at).map(|memory| memory.name()),
        TERRACE_OBSERVED_MUTEXES => Mutexes::ALL.get(at).map(|mutex| mutex.name()),
        TERRACE_OBSERVED_RWLOCKS => RwLocks::ALL.get(at).map(|lock| lock.name()),
        _ => None,
    };
    name.map_or(TerraceBytes::EMPTY, |name| TerraceBytes::of(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_names() {
        assert!(IoTarget::ALL.iter().zip(0..).all(|(place, number)| *place as u32 == number));
        assert!(Wait::ALL.iter().zip(0..).all(|(wait, number)| *wait as u32 == number));
        assert!(Memory::ALL.iter().zip(0..).all(|(memory, number)| *memory as u32 == number));
        for (kind, count) in [
            (TERRACE_OBSERVED_PLACES, IoTarget::ALL.len()),
            (TERRACE_OBSERVED_WAITS, Wait::ALL.len()),
            (TERRACE_OBSERVED_MEMORY, Memory::ALL.len()),
            (TERRACE_OBSERVED_MUTEXES, Mutexes::ALL.len()),
            (TERRACE_OBSERVED_RWLOCKS, RwLocks::ALL.len()),
        ] {
            let named = (0..).take_while(|number| terrace_observed_name(kind, *number).len > 0);
            assert_eq!(named.count(), count);
        }
    }
}
