//! Transactions.

use crate::convert::durability;
use crate::db::Home;
use crate::errors::invalid;
use crate::slot::{CLOSED, Slot};
use crate::tree::{At, Open, Tree};
use pyo3::prelude::*;
use std::sync::{Arc, Weak};
use terrace::Durability;
use terrace::bindings::SharedTxn;

/// Reads and writes of several trees: txn[tree][key] = value.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Transaction {
    home: Arc<Home>,
    txn: Arc<Slot<Arc<SharedTxn>>>,
    durability: Durability,
}

/// A place in a transaction to go back to.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Savepoint {
    of: Weak<SharedTxn>,
    savepoint: terrace::Savepoint,
}

impl Transaction {
    pub fn new(home: Arc<Home>, txn: Arc<Slot<Arc<SharedTxn>>>, durability: Durability) -> Transaction {
        Transaction { home, txn, durability }
    }

    pub fn commit_if_open(&self, py: Python<'_>) -> PyResult<()> {
        self.txn.with(py, |txn| txn.take().map_or(Ok(()), |txn| txn.commit_with(self.durability)))
    }

    pub fn rollback_if_open(&self, py: Python<'_>) -> PyResult<()> {
        self.txn.with_if_there(py, |txn| txn.take().map_or(Ok(()), terrace::Txn::rollback))
    }
}

#[pymethods]
impl Transaction {
    fn __getitem__(&self, py: Python<'_>, tree: &Tree) -> PyResult<Tree> {
        let home = &self.home;
        let txn = self.txn.with(py, |txn| Ok(txn.clone()))?;
        let open = tree.open.with(py, move |one| {
            let open = Open { tree: one.tree.clone(), at: At::Txn(txn) };
            Ok(home.handles.keep(open, CLOSED))
        })?;
        Ok(Tree::new(home.clone(), open))
    }

    fn savepoint(&self, py: Python<'_>) -> PyResult<Savepoint> {
        self.txn.with(py, |shared| {
            let savepoint = shared.with(|txn| Ok(txn.savepoint()))?;
            Ok(Savepoint { of: Arc::downgrade(shared), savepoint })
        })
    }

    fn rollback_to(&self, py: Python<'_>, savepoint: &Savepoint) -> PyResult<()> {
        let is_own = self.txn.with(py, |shared| {
            let is_own = std::ptr::eq(savepoint.of.as_ptr(), Arc::as_ptr(shared));
            if is_own {
                shared.with(|txn| txn.rollback_to(&savepoint.savepoint))?;
            }
            Ok(is_own)
        })?;
        if is_own { Ok(()) } else { Err(invalid("the savepoint is of another transaction")) }
    }

    #[pyo3(signature = (*, durability = None))]
    fn commit(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<()> {
        let durability = durability.map_or(Ok(self.durability), self::durability)?;
        self.txn.with(py, |txn| txn.end()?.commit_with(durability))
    }

    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.rollback_if_open(py)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match kind.is_none() {
            true => self.commit_if_open(py),
            false => self.rollback_if_open(py),
        }
    }
}
