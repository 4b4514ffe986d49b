//! The objects that a connection writes and has.

use std::cell::RefCell;
use std::collections::HashMap;
use terrace_files::client::{NewObject, Object};

/// They point to the connection's client, before which they are dropped.
#[derive(Default)]
pub(crate) struct Held {
    pub written: RefCell<HashMap<String, NewObject<'static>>>,
    /// Several of one name: an older one may have been deleted.
    pub read: RefCell<HashMap<String, Vec<Object<'static>>>>,
}
