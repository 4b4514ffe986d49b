//! Cancelling: ends the waits of one piece of work from another thread.
//!
//! A thread says for whom it works ([`Cancel::scope`]), for as long as its waits may end early; what waits below, in
//! whatever layer, looks at [`asked`] and returns an error of its own. So no call between them carries the handle.
//! Work that must come to its end whatever happens, as a roll back, says so by a [`shield`]. Who waits does not sleep
//! longer than [`LOOK`] at a time, so nobody needs to know on which event it sleeps.
//!
//! Background workers have no scope. In the simulation they run inside the waits of others, behind a shield.

use crate::clock::Nanos;
use crate::sched::Event;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a wait that can be cancelled looks whether it is, in nanoseconds.
pub const LOOK: Nanos = 100_000_000;

#[derive(Default)]
pub struct Cancel {
    asked: AtomicBool,
    wake: Arc<Event>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Cancel>>> = const { RefCell::new(None) };
}

impl Cancel {
    /// Ends the wait that the work is in and all later ones, until [`Cancel::clear`].
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.wake.notify();
    }
    pub fn clear(&self) {
        self.asked.store(false, Ordering::SeqCst);
    }
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
    /// For those who sleep on nothing else: notified by [`Cancel::cancel`].
    pub fn wake_event(&self) -> &Arc<Event> {
        &self.wake
    }

    /// What this thread does until the scope is dropped can be cancelled.
    pub fn scope(self: &Arc<Cancel>) -> Scope {
        let is_current = CURRENT.try_with(|c| c.borrow().as_ref().is_some_and(|c| Arc::ptr_eq(c, self)));
        if is_current.unwrap_or(true) {
            return Scope { before: None, _thread: PhantomData };
        }
        enter(Some(self.clone()))
    }
}

/// What this thread does until the scope is dropped cannot be cancelled.
pub fn shield() -> Scope {
    enter(None)
}

fn enter(new: Option<Arc<Cancel>>) -> Scope {
    let before = CURRENT.try_with(|current| current.replace(new)).ok();
    Scope { before, _thread: PhantomData }
}

/// Whether the work of this thread is to end.
pub fn asked() -> bool {
    CURRENT
        .try_with(|current| current.borrow().as_ref().is_some_and(|cancel| cancel.is_asked()))
        .unwrap_or(false)
}

/// How long to wait at a time where nothing else bounds it.
pub fn patience() -> Option<Nanos> {
    CURRENT.try_with(|current| current.borrow().is_some()).unwrap_or(false).then_some(LOOK)
}

/// Ends what [`Cancel::scope`] or [`shield`] began, when it is dropped.
#[must_use]
pub struct Scope {
    /// None: nothing was changed.
    before: Option<Option<Arc<Cancel>>>,
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = CURRENT.try_with(|current| current.replace(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_a_shield_covers_them() {
        let (one, other) = (Arc::new(Cancel::default()), Arc::new(Cancel::default()));
        one.cancel();
        assert!(!asked() && patience().is_none());
        let outer = one.scope();
        assert!(asked() && patience() == Some(LOOK));
        {
            let _again = one.scope();
            assert!(asked());
            let _shield = shield();
            assert!(!asked() && patience().is_none());
            let _other = other.scope();
            assert!(!asked() && patience().is_some());
            other.cancel();
            assert!(asked());
            other.clear();
            assert!(!asked());
        }
        assert!(asked());
        assert!(!std::thread::spawn(asked).join().unwrap());
        drop(outer);
        assert!(!asked());
    }
}
