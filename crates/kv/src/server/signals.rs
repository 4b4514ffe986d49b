//! SIGTERM and SIGINT: the first asks the server to end in order, as `SHUTDOWN` does; a second one ends the process at once.

use std::sync::atomic::{AtomicI32, Ordering};

static RECEIVED: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: libc::c_int) {
    if RECEIVED.swap(signal, Ordering::SeqCst) != 0 {
        // SAFETY: `_exit` is allowed in a signal handler.
        unsafe { libc::_exit(1) };
    }
}

/// Whether a signal has asked the server to end.
#[derive(Clone, Copy)]
pub struct Signals(&'static AtomicI32);

impl Signals {
    /// Takes over SIGTERM and SIGINT of the process.
    pub fn install() -> Signals {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: the handler stores to an atomic or ends the process, which a signal may do at any moment.
            unsafe { libc::signal(signal, on_signal as *const () as libc::sighandler_t) };
        }
        Signals(&RECEIVED)
    }

    /// The name of the signal that was received.
    pub fn received(self) -> Option<&'static str> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            libc::SIGINT => Some("SIGINT"),
            _ => Some("SIGTERM"),
        }
    }

    /// The server cannot end: the next signal counts as the first again.
    pub fn forget(self) {
        self.0.store(0, Ordering::SeqCst);
    }
}
