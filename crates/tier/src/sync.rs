//! Locks, latches and atomics of the buffer pool: those of `terrace_io::lock` and the processor or, with the feature `model`,
//! those of a model checker (shuttle), which runs the pool's threads one at a time and chooses at each lock and atomic operation
//! which thread continues. See `pool/model.rs`.
//!
//! The model has one total order of all atomic operations: it finds races, not missing fences.

pub use terrace_io::lock::Mutexes;

#[cfg(not(feature = "model"))]
pub use parking_lot::lock_api::RawRwLock as RawLatch;
#[cfg(not(feature = "model"))]
pub use terrace_io::lock::Mutex;
#[cfg(not(feature = "model"))]
pub type PageLatch = terrace_io::lock::RawRwLock<{ terrace_io::lock::RwLocks::Page as u8 }>;
#[cfg(not(feature = "model"))]
pub use std::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(feature = "model")]
pub use model::{Mutex, PageLatch, RawLatch};
#[cfg(feature = "model")]
pub use shuttle::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(feature = "model")]
mod model {
    use shuttle::sync::{Condvar, MutexGuard};

    // A failed schedule ends there: no thread uses the locks that it poisoned.
    #[derive(Default)]
    pub struct Mutex<T, const NAME: u8>(shuttle::sync::Mutex<T>);

    impl<T, const NAME: u8> Mutex<T, NAME> {
        pub const fn new(value: T) -> Mutex<T, NAME> {
            Mutex(shuttle::sync::Mutex::new(value))
        }
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|e| e.into_inner())
        }
    }

    #[derive(Default)]
    struct Holders {
        readers: u32,
        writer: bool,
        /// Waiting writers: new readers let them go first, as in `parking_lot`.
        waiting: u32,
    }

    pub struct PageLatch {
        holders: Mutex<Holders, 0>,
        freed: Condvar,
    }

    /// The methods that `parking_lot`'s trait gives its own raw lock.
    pub trait RawLatch {
        #[allow(clippy::declare_interior_mutable_const)]
        const INIT: Self;
        fn lock_shared(&self);
        fn try_lock_shared(&self) -> bool;
        /// # Safety
        /// The caller holds it.
        unsafe fn unlock_shared(&self);
        fn lock_exclusive(&self);
        fn try_lock_exclusive(&self) -> bool;
        /// # Safety
        /// The caller holds it.
        unsafe fn unlock_exclusive(&self);
    }

    impl PageLatch {
        fn wait<'a>(&'a self, holders: MutexGuard<'a, Holders>) -> MutexGuard<'a, Holders> {
            self.freed.wait(holders).unwrap_or_else(|e| e.into_inner())
        }
    }

    impl RawLatch for PageLatch {
        const INIT: PageLatch = PageLatch {
            holders: Mutex::new(Holders { readers: 0, writer: false, waiting: 0 }),
            freed: Condvar::new(),
        };
        fn lock_shared(&self) {
            let mut holders = self.holders.lock();
            while holders.writer || holders.waiting > 0 {
                holders = self.wait(holders);
            }
            holders.readers += 1;
        }
        fn try_lock_shared(&self) -> bool {
            let mut holders = self.holders.lock();
            let free = !holders.writer && holders.waiting == 0;
            holders.readers += u32::from(free);
            free
        }
        unsafe fn unlock_shared(&self) {
            let mut holders = self.holders.lock();
            // One panic is enough: a second one, from a guard dropped during the first, would end the process.
            assert!(
                holders.readers > 0 || std::thread::panicking(),
                "a latch was given back that nobody holds"
            );
            holders.readers = holders.readers.saturating_sub(1);
            self.freed.notify_all();
        }
        fn lock_exclusive(&self) {
            let mut holders = self.holders.lock();
            holders.waiting += 1;
            while holders.writer || holders.readers > 0 {
                holders = self.wait(holders);
            }
            holders.waiting -= 1;
            holders.writer = true;
        }
        fn try_lock_exclusive(&self) -> bool {
            let mut holders = self.holders.lock();
            let free = !holders.writer && holders.readers == 0;
            holders.writer |= free;
            free
        }
        unsafe fn unlock_exclusive(&self) {
            let mut holders = self.holders.lock();
            assert!(holders.writer || std::thread::panicking(), "a latch was given back that nobody holds");
            holders.writer = false;
            self.freed.notify_all();
        }
    }
}
