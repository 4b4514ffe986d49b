//! Trouble of the store that readers meet: from the first read that fails for the store until a request succeeds.
//!
//! An object that is missing or damaged is no trouble: the store answered. The first failure's text stays as long as
//! the trouble does, so that it is told of once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::Event;
use terrace_io::store::StoreError;

/// A request, or work that needs it, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub text: String,
    /// The store refuses it, or is the wrong one: trying again will not help before a person acts.
    pub needs_person: bool,
}

impl Failure {
    pub(crate) fn of(error: &impl std::fmt::Display, needs_person: bool) -> Failure {
        Failure { text: error.to_string(), needs_person }
    }
}

#[derive(Default)]
pub struct Outage {
    is_there: AtomicBool,
    why: Mutex<Option<Failure>, { Mutexes::Objects as u8 }>,
    wake: OnceLock<Arc<Event>>,
}

impl Outage {
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// For people; None: there is no trouble.
    pub fn why(&self) -> Option<Failure> {
        self.why.lock().clone()
    }

    /// The prober of the store is to be woken when trouble begins.
    pub fn wakes(&self, event: Arc<Event>) {
        let _ = self.wake.set(event);
    }

    pub(super) fn begin(&self, error: &StoreError) {
        {
            let mut why = self.why.lock();
            if why.is_some() {
                return;
            }
            *why = Some(Failure::of(
                &format!("reads fail: {error}"),
                matches!(error, StoreError::Refused { .. }),
            ));
            self.is_there.store(true, Ordering::Release);
        }
        self.wake.get().iter().for_each(|event| event.notify());
    }

    pub(super) fn end(&self) {
        if self.is_there() {
            let mut why = self.why.lock();
            *why = None;
            self.is_there.store(false, Ordering::Release);
        }
    }
}
