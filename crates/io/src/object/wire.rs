//! What an attempt did on the wire, told by the HTTP connector to the adapter around it.
//!
//! The object store crate folds every failure into an error text; whether a PUT may have taken
//! effect is decided by what was sent and answered. The connector runs on the thread that made the
//! request, so a thread-local carries it.

use std::cell::{Cell, RefCell};
use std::time::Duration;

/// One attempt: usually one HTTP request, more when credentials are fetched first.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    /// Bytes of a request that changes objects may have reached the server.
    pub(crate) wrote: bool,
    /// The last answer's status. None: the last request got no answer.
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    /// The request was cut off by a time-out.
    pub(crate) timed_out: bool,
    /// The last request was to a cloud's metadata service, for credentials.
    pub(crate) asked_metadata: bool,
    /// Requests made at all.
    pub(crate) requests: u32,
}

thread_local! {
    /// The completion of an upload is to fail if the key exists.
    static CREATES_ONLY: Cell<bool> = const { Cell::new(false) };
    static WIRE: RefCell<Wire> = RefCell::default();
}

/// Runs an attempt and tells what it did.
pub(crate) fn observe<T>(attempt: impl FnOnce() -> T) -> (T, Wire) {
    WIRE.with_borrow_mut(|wire| *wire = Wire::default());
    let result = attempt();
    (result, WIRE.take())
}

/// For the connector: notes what happened.
pub(crate) fn note(change: impl FnOnce(&mut Wire)) {
    WIRE.with_borrow_mut(change);
}

/// Runs an attempt that completes an upload, on condition that the key does not exist. The crate has no way to say so; the connector
/// adds the header. (S3 does not ask that it be signed.)
pub(crate) fn creating_only<T>(attempt: impl FnOnce() -> T) -> T {
    CREATES_ONLY.set(true);
    let result = attempt();
    CREATES_ONLY.set(false);
    result
}

/// For the connector: whether a completion is to be made on that condition.
pub(crate) fn creates_only() -> bool {
    CREATES_ONLY.get()
}
