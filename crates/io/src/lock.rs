//! Mutexes and read-write locks with names, so that threads that wait for one can be shown ([`observe`]).
//!
//! They are `parking_lot`'s. A lock is tried first: a thread that gets it at once is not reported, and pays no more than a load of the
//! word that it then exchanges. A thread that does not get it is reported until it has the lock.
//!
//! A name is part of the type ([`Mutexes`], [`RwLocks`]), so a lock is no larger for it. All locks of one name are one to those who look.
//!
//! A mutex that is held while its holder waits for a device, a store or room is taken with [`lock_unless_cancelled`]: a waiting statement
//! then hears a KILL.
//!
//! Locks that are never waited for long or often have no name and are `parking_lot`'s own: those of one statement's work, of a start, of the devices.

use crate::cancel;
use crate::observe;
pub use crate::observe::{Mutexes, RwLocks, Wanted};
use parking_lot::lock_api;
use std::time::{Duration, Instant};

/// A mutex whose name is the one of [`Mutexes`] with this number.
pub type Mutex<T, const NAME: u8> = lock_api::Mutex<RawMutex<NAME>, T>;
pub type MutexGuard<'a, T, const NAME: u8> = lock_api::MutexGuard<'a, RawMutex<NAME>, T>;
/// A lock whose name is the one of [`RwLocks`] with this number.
pub type RwLock<T, const NAME: u8> = lock_api::RwLock<RawRwLock<NAME>, T>;

pub struct RawMutex<const NAME: u8>(parking_lot::RawMutex);

impl<const NAME: u8> RawMutex<NAME> {
    const NAMED: Mutexes = Mutexes::ALL[NAME as usize];

    #[cold]
    fn wait(&self) {
        let _shown = observe::lock(Wanted::Mutex(Self::NAMED));
        lock_api::RawMutex::lock(&self.0);
    }
}

// SAFETY: the holder of this lock holds the inner one, which excludes as it should.
unsafe impl<const NAME: u8> lock_api::RawMutex for RawMutex<NAME> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawMutex(lock_api::RawMutex::INIT);
    type GuardMarker = <parking_lot::RawMutex as lock_api::RawMutex>::GuardMarker;

    #[inline]
    fn lock(&self) {
        if !self.0.try_lock() {
            self.wait();
        }
    }
    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.unlock() }
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as of `RawMutex`.
unsafe impl<const NAME: u8> lock_api::RawMutexTimed for RawMutex<NAME> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        lock_api::RawMutexTimed::try_lock_for(&self.0, timeout)
    }
    #[inline]
    fn try_lock_until(&self, timeout: Instant) -> bool {
        lock_api::RawMutexTimed::try_lock_until(&self.0, timeout)
    }
}

/// Locks the mutex. None: the work of this thread was cancelled while it waited ([`cancel`]).
#[inline]
pub fn lock_unless_cancelled<T, const NAME: u8>(mutex: &Mutex<T, NAME>) -> Option<MutexGuard<'_, T, NAME>> {
    mutex.try_lock().or_else(|| wait_unless_cancelled(mutex))
}

#[cold]
fn wait_unless_cancelled<T, const NAME: u8>(mutex: &Mutex<T, NAME>) -> Option<MutexGuard<'_, T, NAME>> {
    let _shown = observe::lock(Wanted::Mutex(RawMutex::<NAME>::NAMED));
    loop {
        if cancel::asked() {
            return None;
        }
        let Some(look) = cancel::patience() else { return Some(mutex.lock()) };
        if let Some(guard) = mutex.try_lock_for(Duration::from_nanos(look)) {
            return Some(guard);
        }
    }
}

pub struct RawRwLock<const NAME: u8>(parking_lot::RawRwLock);

impl<const NAME: u8> RawRwLock<NAME> {
    const NAMED: RwLocks = RwLocks::ALL[NAME as usize];

    #[cold]
    fn wait_shared(&self) {
        let _shown = observe::lock(Wanted::Shared(Self::NAMED));
        lock_api::RawRwLock::lock_shared(&self.0);
    }

    #[cold]
    fn wait_recursive(&self) {
        let _shown = observe::lock(Wanted::Shared(Self::NAMED));
        lock_api::RawRwLockRecursive::lock_shared_recursive(&self.0);
    }

    #[cold]
    fn wait_exclusive(&self) {
        let _shown = observe::lock(Wanted::Exclusive(Self::NAMED));
        lock_api::RawRwLock::lock_exclusive(&self.0);
    }
}

// SAFETY: as of `RawMutex`.
unsafe impl<const NAME: u8> lock_api::RawRwLock for RawRwLock<NAME> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawRwLock(lock_api::RawRwLock::INIT);
    type GuardMarker = <parking_lot::RawRwLock as lock_api::RawRwLock>::GuardMarker;

    #[inline]
    fn lock_shared(&self) {
        if !self.0.try_lock_shared() {
            self.wait_shared();
        }
    }
    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.0.try_lock_shared()
    }
    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.unlock_shared() }
    }
    #[inline]
    fn lock_exclusive(&self) {
        if !self.0.try_lock_exclusive() {
            self.wait_exclusive();
        }
    }
    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock_exclusive()
    }
    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.unlock_exclusive() }
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as of `RawMutex`.
unsafe impl<const NAME: u8> lock_api::RawRwLockRecursive for RawRwLock<NAME> {
    #[inline]
    fn lock_shared_recursive(&self) {
        if !self.0.try_lock_shared_recursive() {
            self.wait_recursive();
        }
    }
    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.0.try_lock_shared_recursive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_thread_that_waits_for_a_mutex_hears_a_cancel_and_another_waits_on() {
        let mutex = Arc::new(Mutex::<u32, { Mutexes::RowIds as u8 }>::new(0));
        let cancel = Arc::new(cancel::Cancel::default());
        let held = mutex.lock();
        let waiter = |cancel: Option<Arc<cancel::Cancel>>| {
            let mutex = mutex.clone();
            std::thread::spawn(move || {
                let _scope = cancel.as_ref().map(|cancel| cancel.scope());
                lock_unless_cancelled(&mutex).map(|mut value| *value += 1).is_some()
            })
        };
        let cancelled = waiter(Some(cancel.clone()));
        let others = [waiter(None), waiter(Some(Arc::default()))];
        cancel.cancel();
        assert!(!cancelled.join().unwrap());
        assert!(others.iter().all(|other| !other.is_finished()));
        drop(held);
        assert!(others.into_iter().all(|other| other.join().unwrap()));
        assert_eq!(*mutex.lock(), 2);
    }
}
