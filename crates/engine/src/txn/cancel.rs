//! Cancelling: ends every wait of a transaction from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_io::sched::Event;

#[derive(Default)]
pub struct Cancel {
    asked: AtomicBool,
    /// What the transaction sleeps on when it waits for a lock.
    wake: Arc<Event>,
}

impl Cancel {
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.wake.notify();
    }
    pub(crate) fn clear(&self) {
        self.asked.store(false, Ordering::SeqCst);
    }
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
    pub(crate) fn wake_event(&self) -> &Arc<Event> {
        &self.wake
    }
}
