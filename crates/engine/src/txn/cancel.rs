//! Cancelling: ends every wait of a transaction from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_io::sched::Event;

pub struct Cancel {
    asked: AtomicBool,
    wake: Arc<Event>,
}

impl Cancel {
    pub(crate) fn new(wake: Arc<Event>) -> Cancel {
        Cancel { asked: AtomicBool::new(false), wake }
    }
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
}
