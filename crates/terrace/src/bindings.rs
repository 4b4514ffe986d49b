//! For bindings to languages without lifetimes: a transaction and its ranges behind one lock.
//!
//! [`Txn::range`] ties a range to its transaction with a lifetime. A binding cannot, so each step of a [`SharedRange`] locks the transaction and fails
//! with [`ErrorKind::Invalid`] once that has ended: a range never reads or locks for a transaction that is gone.
//!
//! Locks: the transaction's, held during each call, which may wait for row locks or I/O.

use crate::db::range::Range;
use crate::db::tree::Tree;
use crate::db::txn::Txn;
use crate::error::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A transaction that several owners share.
pub struct SharedTxn {
    txn: Mutex<Option<Txn>>,
}

fn ended() -> Error {
    Error::new(ErrorKind::Invalid, "the transaction has ended")
}

impl SharedTxn {
    pub fn new(txn: Txn) -> Arc<SharedTxn> {
        Arc::new(SharedTxn { txn: Mutex::new(Some(txn)) })
    }

    /// Does something with the transaction. [`ErrorKind::Invalid`] if it has ended.
    pub fn with<T>(&self, work: impl FnOnce(&mut Txn) -> Result<T>) -> Result<T> {
        work(self.txn.lock().as_mut().ok_or_else(ended)?)
    }

    /// Takes the transaction out, to commit it or roll it back. Later calls, and steps of its ranges, fail. None: it has ended.
    pub fn take(&self) -> Option<Txn> {
        self.txn.lock().take()
    }

    /// As `take`; [`ErrorKind::Invalid`] if it has ended.
    pub fn end(&self) -> Result<Txn> {
        self.take().ok_or_else(ended)
    }

    pub fn range<K: AsRef<[u8]>>(
        self: &Arc<Self>,
        tree: &Tree,
        range: impl RangeBounds<K>,
    ) -> Result<SharedRange> {
        self.with(|txn| Ok(SharedRange { range: txn.range_unscoped(tree, range)?, txn: Some(self.clone()) }))
    }

    pub fn prefix(self: &Arc<Self>, tree: &Tree, prefix: &[u8]) -> Result<SharedRange> {
        self.with(|txn| {
            Ok(SharedRange { range: txn.prefix_unscoped(tree, prefix)?, txn: Some(self.clone()) })
        })
    }
}

/// A range of a shared transaction, of a tree or of a snapshot.
pub struct SharedRange {
    range: Range<'static>,
    txn: Option<Arc<SharedTxn>>,
}

impl From<Range<'static>> for SharedRange {
    fn from(range: Range<'static>) -> SharedRange {
        SharedRange { range, txn: None }
    }
}

fn step<'r>(range: &'r mut Range<'static>, backward: bool) -> Result<Option<(&'r [u8], &'r [u8])>> {
    if backward { range.advance_back() } else { range.advance() }
}

impl SharedRange {
    /// As [`Range::advance`], or [`Range::advance_back`].
    pub fn step(&mut self, backward: bool) -> Result<Option<(&[u8], &[u8])>> {
        match &self.txn {
            None => step(&mut self.range, backward),
            Some(txn) => txn.with(|txn| txn.noted(step(&mut self.range, backward))),
        }
    }
}
