//! Cancelling: ends the waits of one piece of work from another thread.
//!
//! A thread says for whom it works ([`Cancel::scope`]), for as long as its waits may end early; what waits below, in
//! whatever layer, looks at [`asked`] and returns an error of its own. So no call between them carries the handle.
//! Work that must complete whatever happens, such as a rollback, says so by a [`shield`]. A waiting thread does not sleep
//! longer than [`LOOK`] at a time, so a canceller need not know on which event it sleeps.
//!
//! Scopes nest. A statement that asks the engine for a transaction of its own (a sequence, the largest value of an index) enters that
//! transaction's scope within the statement's. Both handles end the waits inside.
//!
//! How each wait of a statement hears a cancel, and within what time, is listed in `docs/observability.md`, "What KILL ends".
//!
//! Work of an event loop must not wait at all: a [`Cancel`] can refuse waits ([`Cancel::refuse_waits`]). Each place that is about to
//! wait then returns as if it was cancelled, and says what it would have waited for ([`refuses`], [`Cancel::refused`]).
//!
//! Background workers have no scope. In the simulation they run inside the waits of others, behind a shield.

use crate::clock::Nanos;
use crate::sched::Event;
use crate::wait::Wait;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// How often a wait that can be cancelled looks whether it is, in nanoseconds.
pub const LOOK: Nanos = 100_000_000;

#[derive(Default)]
pub struct Cancel {
    asked: AtomicBool,
    wake: Arc<Event>,
    refuses: AtomicBool,
    /// What was refused first: 0 is nothing, else one more than the wait's place in [`Wait::ALL`].
    refused: AtomicU8,
    /// The session that holds what it was about.
    holder: AtomicU64,
}

thread_local! {
    /// The scopes that this thread is in, the innermost last. None: a shield, which covers those before it.
    static SCOPES: RefCell<Vec<Option<Arc<Cancel>>>> = const { RefCell::new(Vec::new()) };
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
    /// From now on, or no longer, the work does not wait: what would have to wait fails as if it was cancelled. Forgets what was refused.
    pub fn refuse_waits(&self, on: bool) {
        self.refused.store(0, Ordering::Relaxed);
        self.holder.store(0, Ordering::Relaxed);
        self.refuses.store(on, Ordering::Relaxed);
    }
    /// Whether the work is about to wait and must not. Notes the first such wait, and which session holds it up (0: none).
    pub fn refuses(&self, what: Wait, holder: u64) -> bool {
        if !self.refuses.load(Ordering::Relaxed) {
            return false;
        }
        let first = self.refused.compare_exchange(0, what as u8 + 1, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.holder.store(holder, Ordering::Relaxed);
        }
        true
    }
    /// The first wait that was refused, and the session that holds it up.
    pub fn refused(&self) -> Option<(Wait, u64)> {
        let what = self.refused.load(Ordering::Relaxed).checked_sub(1)?;
        Some((*Wait::ALL.get(usize::from(what))?, self.holder.load(Ordering::Relaxed)))
    }
    /// For those who sleep on nothing else: notified by [`Cancel::cancel`].
    pub fn wake_event(&self) -> &Arc<Event> {
        &self.wake
    }

    /// What this thread does until the scope is dropped can be cancelled: by this handle, and by those of the scopes around it.
    pub fn scope(self: &Arc<Cancel>) -> Scope {
        let is_innermost = |scopes: &Vec<Option<Arc<Cancel>>>| {
            scopes.last().and_then(Option::as_ref).is_some_and(|cancel| Arc::ptr_eq(cancel, self))
        };
        if SCOPES.try_with(|scopes| is_innermost(&scopes.borrow())).unwrap_or(true) {
            return Scope { entered: false, _thread: PhantomData };
        }
        enter(Some(self.clone()))
    }
}

/// The handles that this thread's waits listen to, the outermost first: for a thread that works for it.
pub(crate) fn current() -> Vec<Arc<Cancel>> {
    let listened = |scopes: &RefCell<Vec<Option<Arc<Cancel>>>>| {
        let mut handles: Vec<_> = scopes.borrow().iter().rev().map_while(Clone::clone).collect();
        handles.reverse();
        handles
    };
    SCOPES.try_with(listened).unwrap_or_default()
}

/// What this thread does until the scope is dropped cannot be cancelled.
pub fn shield() -> Scope {
    enter(None)
}

fn enter(new: Option<Arc<Cancel>>) -> Scope {
    let entered = SCOPES.try_with(|scopes| scopes.borrow_mut().push(new)).is_ok();
    Scope { entered, _thread: PhantomData }
}

/// The handles that this thread's waits listen to: those of the scopes inside the innermost shield.
fn any(is: impl Fn(&Cancel) -> bool) -> bool {
    let look = |scopes: &RefCell<Vec<Option<Arc<Cancel>>>>| {
        scopes.borrow().iter().rev().map_while(Option::as_ref).any(|cancel| is(cancel))
    };
    SCOPES.try_with(look).unwrap_or(false)
}

/// Whether the work of this thread is to end.
pub fn asked() -> bool {
    any(Cancel::is_asked)
}

/// Whether the work of this thread is about to wait and must not ([`Cancel::refuse_waits`]).
pub fn refuses(what: Wait) -> bool {
    any(|cancel| cancel.refuses(what, 0))
}

/// How long to wait at a time where nothing else bounds it.
pub fn patience() -> Option<Nanos> {
    any(|_| true).then_some(LOOK)
}

/// Ends what [`Cancel::scope`] or [`shield`] began, when it is dropped. Scopes of a thread are dropped in the reverse order of their beginnings.
#[must_use]
pub struct Scope {
    entered: bool,
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.entered {
            let left = SCOPES.try_with(|scopes| scopes.borrow_mut().pop());
            drop(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refused_wait_is_noted_and_a_shield_lets_work_wait() {
        let cancel = Arc::new(Cancel::default());
        let scope = cancel.scope();
        assert!(!refuses(Wait::Page) && cancel.refused().is_none());
        cancel.refuse_waits(true);
        assert!(cancel.refuses(Wait::RowLock, 7) && refuses(Wait::Page));
        assert_eq!(cancel.refused(), Some((Wait::RowLock, 7)));
        {
            let _shield = shield();
            assert!(!refuses(Wait::Slots));
        }
        cancel.refuse_waits(false);
        assert!(!refuses(Wait::Page) && cancel.refused().is_none());
        drop(scope);
        cancel.refuse_waits(true);
        assert!(!refuses(Wait::Page), "other work may wait");
    }

    #[test]
    fn every_wait_stands_at_its_number() {
        assert!(Wait::ALL.iter().enumerate().all(|(at, wait)| *wait as usize == at));
    }

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

    #[test]
    fn work_inside_another_scope_hears_the_cancel_of_both() {
        let (statement, own) = (Arc::new(Cancel::default()), Arc::new(Cancel::default()));
        let _outer = statement.scope();
        let inner = own.scope();
        assert!(!asked() && patience() == Some(LOOK));
        statement.cancel();
        assert!(asked(), "the outer one is heard within the inner one");
        statement.clear();
        own.cancel();
        assert!(asked());
        drop(inner);
        assert!(!asked());
        statement.cancel();
        let _shield = shield();
        let _inner = Arc::new(Cancel::default()).scope();
        assert!(!asked() && patience().is_some(), "a shield covers what is outside of it");
    }
}
