//! The owner that runs a session, for code outside the engine that has to know of waits.
//!
//! Replication that applies transactions side by side commits them in their source's order: one that has its lock and waits for
//! its turn may be waited for, by row lock, by the one whose turn it is. Only the outside knows the order, so each wait is
//! told to it, and it kills the one that came too early.

use hashbrown::HashMap;
use std::sync::OnceLock;
use terrace_io::lock::{Mutex, Mutexes};

/// Called with the owner of the waiting session and the owner of the one it waits for.
pub type OnWait = Box<dyn Fn(u64, u64) + Send + Sync>;

#[derive(Default)]
pub struct Owners {
    on_wait: OnceLock<OnWait>,
    /// Session → the owner's own number for itself.
    owners: Mutex<HashMap<u64, u64>, { Mutexes::Sessions as u8 }>,
}

impl Owners {
    /// From now on waits are told; the first call counts.
    pub fn tell(&self, on_wait: OnWait) {
        let _ = self.on_wait.set(on_wait);
    }
    pub fn is_told(&self) -> bool {
        self.on_wait.get().is_some()
    }
    /// Whether the owner has to know for which sessions this one waits.
    pub fn has(&self, session: u64) -> bool {
        self.is_told() && self.owners.lock().contains_key(&session)
    }
    pub fn set(&self, session: u64, owner: u64) {
        self.owners.lock().insert(session, owner);
    }
    /// When it returns, the owner is not named any more, and no call that names it is under way.
    pub fn forget(&self, session: u64) {
        self.owners.lock().remove(&session);
    }

    /// Tells of a wait, unless an owner isn't known. No lock of this crate but the owners' own is held in the call.
    pub fn report(&self, session: u64, targets: &[u64]) {
        let Some(on_wait) = self.on_wait.get() else { return };
        let owners = self.owners.lock();
        let Some(waiter) = owners.get(&session) else { return };
        for holder in targets.iter().filter_map(|target| owners.get(target)) {
            on_wait(*waiter, *holder);
        }
    }
}
