//! Trees: alone, in a transaction, or in a snapshot.

use crate::convert::{Limits, bytes, lent, limits, value};
use crate::db::Home;
use crate::errors::invalid;
use crate::range::{Parts, Range};
use crate::slot::Slot;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::sync::Arc;
use terrace::bindings::SharedTxn;
use terrace::{Error, Snapshot};

/// What a tree's calls are part of.
pub(crate) enum At {
    /// Each is a transaction of its own.
    Alone,
    Txn(Arc<SharedTxn>),
    Snapshot(Snapshot),
}

pub(crate) struct Open {
    pub tree: terrace::Tree,
    pub at: At,
}

impl Open {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match &self.at {
            At::Alone => self.tree.get(key),
            At::Txn(txn) => txn.with(|txn| txn.get(&self.tree, key)),
            At::Snapshot(snapshot) => snapshot.get(&self.tree, key),
        }
    }
}

/// An ordered map of bytes to bytes: alone, in a transaction, or in a snapshot.
#[pyclass(frozen, module = "terrace", mapping)]
pub(crate) struct Tree {
    pub home: Arc<Home>,
    pub open: Arc<Slot<Open>>,
}

/// What a change of a snapshot gets.
enum Refused {
    ReadOnly,
}

impl Tree {
    pub fn new(home: Arc<Home>, open: Arc<Slot<Open>>) -> Tree {
        Tree { home, open }
    }

    /// A change, alone or in a transaction.
    fn change<R: Send>(
        &self,
        py: Python<'_>,
        alone: impl FnOnce(&terrace::Tree) -> Result<R, Error> + Send,
        within: impl FnOnce(&mut terrace::Txn, &terrace::Tree) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let done = self.open.with(py, |open| match &open.at {
            At::Alone => alone(&open.tree).map(Ok),
            At::Txn(txn) => txn.with(|txn| within(txn, &open.tree)).map(Ok),
            At::Snapshot(_) => Ok(Err(Refused::ReadOnly)),
        })?;
        done.map_err(|Refused::ReadOnly| invalid("a snapshot is read-only"))
    }

    fn found(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyBytes>>> {
        let key = bytes(key, "key")?;
        Ok(value(py, self.open.with(py, |open| open.get(&key))?))
    }

    fn remove(&self, py: Python<'_>, key: &PyBackedBytes) -> PyResult<bool> {
        self.change(py, |tree| tree.delete(key), |txn, tree| txn.delete(tree, key))
    }

    fn set(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (bytes(key, "key")?, bytes(value, "value")?);
        self.change(py, |tree| tree.put(&key, &value), |txn, tree| txn.put(tree, &key, &value))
    }

    fn pairs(&self, py: Python<'_>, limits: &Limits, reverse: bool, parts: Parts) -> PyResult<Range> {
        let home = &self.home;
        let pairs = self.open.with(py, |open| {
            let limits = lent(limits);
            let (range, ahead) = match &open.at {
                At::Alone => (open.tree.range::<&[u8]>(limits)?.into(), true),
                At::Txn(txn) => (txn.range::<&[u8]>(&open.tree, limits)?, false),
                At::Snapshot(snapshot) => (snapshot.range::<&[u8]>(&open.tree, limits)?.into(), true),
            };
            Ok(home.handles.keep(crate::range::Pairs::new(range, ahead), crate::range::CLOSED))
        })?;
        Ok(Range::new(pairs, reverse, parts))
    }

    fn everything(&self, py: Python<'_>, reverse: bool, parts: Parts) -> PyResult<Range> {
        self.pairs(py, &limits(None, None, true, false)?, reverse, parts)
    }
}

#[pymethods]
impl Tree {
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        self.open.with(py, |open| Ok(open.tree.name()))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        self.name(py).map_or("<terrace.Tree, closed>".into(), |name| format!("<terrace.Tree {name:?}>"))
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyBytes>> {
        self.found(py, key)?.ok_or_else(|| PyKeyError::new_err((key.clone().unbind(),)))
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(py, key, value)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.remove(py, &bytes(key, "key")?)? {
            true => Ok(()),
            false => Err(PyKeyError::new_err((key.clone().unbind(),))),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.found(py, key)?.is_some())
    }

    #[pyo3(signature = (key, default = None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.found(py, key)?.map(|value| value.into_bound(py).into_any()).or(default))
    }

    fn get_for_update(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyBytes>>> {
        let key = bytes(key, "key")?;
        let found = self.open.with(py, |open| match &open.at {
            At::Txn(txn) => txn.with(|txn| txn.get_for_update(&open.tree, &key)).map(Some),
            _ => Ok(None),
        })?;
        let found = found
            .ok_or_else(|| invalid("get_for_update needs a transaction: txn[tree].get_for_update(key)"))?;
        Ok(value(py, found))
    }

    fn multi_get(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<Py<PyBytes>>>> {
        let keys = keys.try_iter()?.map(|key| bytes(&key?, "key")).collect::<PyResult<Vec<_>>>()?;
        let values = self.open.with(py, |open| match &open.at {
            At::Alone => open.tree.multi_get(&keys),
            At::Txn(txn) => txn.with(|txn| txn.multi_get(&open.tree, &keys)),
            At::Snapshot(snapshot) => snapshot.multi_get(&open.tree, &keys),
        })?;
        Ok(values.into_iter().map(|found| value(py, found)).collect())
    }

    fn put(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(py, key, value)
    }

    fn insert(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (key, value) = (bytes(key, "key")?, bytes(value, "value")?);
        self.change(py, |tree| tree.insert(&key, &value), |txn, tree| txn.insert(tree, &key, &value))
    }

    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.remove(py, &bytes(key, "key")?)
    }

    #[pyo3(signature = (low = None, high = None, *, include_low = true, include_high = false))]
    fn delete_range(
        &self,
        py: Python<'_>,
        low: Option<&Bound<'_, PyAny>>,
        high: Option<&Bound<'_, PyAny>>,
        include_low: bool,
        include_high: bool,
    ) -> PyResult<u64> {
        let limits = limits(low, high, include_low, include_high)?;
        self.change(
            py,
            |tree| tree.delete_range::<&[u8]>(lent(&limits)),
            |txn, tree| txn.delete_range::<&[u8]>(tree, lent(&limits)),
        )
    }

    #[pyo3(signature = (low = None, high = None, *, reverse = false, include_low = true, include_high = false))]
    fn range(
        &self,
        py: Python<'_>,
        low: Option<&Bound<'_, PyAny>>,
        high: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        include_low: bool,
        include_high: bool,
    ) -> PyResult<Range> {
        self.pairs(py, &limits(low, high, include_low, include_high)?, reverse, Parts::Pairs)
    }

    #[pyo3(signature = (prefix, *, reverse = false))]
    fn prefix(&self, py: Python<'_>, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Range> {
        let prefix = bytes(prefix, "prefix")?;
        let home = &self.home;
        let pairs = self.open.with(py, |open| {
            let (range, ahead) = match &open.at {
                At::Alone => (open.tree.prefix(&prefix)?.into(), true),
                At::Txn(txn) => (txn.prefix(&open.tree, &prefix)?, false),
                At::Snapshot(snapshot) => (snapshot.prefix(&open.tree, &prefix)?.into(), true),
            };
            Ok(home.handles.keep(crate::range::Pairs::new(range, ahead), crate::range::CLOSED))
        })?;
        Ok(Range::new(pairs, reverse, Parts::Pairs))
    }

    #[pyo3(signature = (*, reverse = false))]
    fn items(&self, py: Python<'_>, reverse: bool) -> PyResult<Range> {
        self.everything(py, reverse, Parts::Pairs)
    }

    #[pyo3(signature = (*, reverse = false))]
    fn keys(&self, py: Python<'_>, reverse: bool) -> PyResult<Range> {
        self.everything(py, reverse, Parts::Keys)
    }

    #[pyo3(signature = (*, reverse = false))]
    fn values(&self, py: Python<'_>, reverse: bool) -> PyResult<Range> {
        self.everything(py, reverse, Parts::Values)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Range> {
        self.everything(py, false, Parts::Keys)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Range> {
        self.everything(py, true, Parts::Keys)
    }

    fn approximate_len(&self, py: Python<'_>) -> PyResult<u64> {
        self.open.with(py, |open| Ok(open.tree.approximate_len()))
    }
}
