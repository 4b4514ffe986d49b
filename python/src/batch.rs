//! Write batches.

use crate::convert::{bytes, lent, limits};
use crate::db::Home;
use crate::errors::invalid;
use crate::slot::Slot;
use crate::tree::{At, Tree};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::sync::Arc;
use terrace::Durability;

/// Puts and deletes that are written together or not at all.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Batch {
    home: Arc<Home>,
    batch: Arc<Slot<Mutex<terrace::Batch>>>,
    durability: Durability,
}

impl Batch {
    pub fn new(home: Arc<Home>, batch: Arc<Slot<Mutex<terrace::Batch>>>, durability: Durability) -> Batch {
        Batch { home, batch, durability }
    }

    fn add(
        &self,
        py: Python<'_>,
        tree: &Tree,
        add: impl FnOnce(&mut terrace::Batch, &terrace::Tree) + Send,
    ) -> PyResult<()> {
        let tree = tree.open.with(py, |open| Ok(matches!(open.at, At::Alone).then(|| open.tree.clone())))?;
        let tree = tree.ok_or_else(|| {
            invalid("a batch is not part of a transaction or snapshot: use the tree itself")
        })?;
        self.batch.with(py, |batch| {
            add(&mut batch.lock(), &tree);
            Ok(())
        })
    }

    pub fn write_to(&self, py: Python<'_>, home: &Home, durability: Durability) -> PyResult<()> {
        let batch = &self.batch;
        let write = |db: &terrace::Db| {
            // Closing empties it after the database: it is there.
            batch.used(|batch| db.write_with(&batch.lock(), durability)).unwrap_or(Ok(()))
        };
        if !std::ptr::eq(home, &*self.home) {
            return Err(invalid("the batch is of another database"));
        }
        home.db.with(py, write)
    }
}

#[pymethods]
impl Batch {
    fn put(
        &self,
        py: Python<'_>,
        tree: &Tree,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, value) = (bytes(key, "key")?, bytes(value, "value")?);
        self.add(py, tree, |batch, tree| batch.put(tree, &key, &value))
    }

    fn delete(&self, py: Python<'_>, tree: &Tree, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = bytes(key, "key")?;
        self.add(py, tree, |batch, tree| batch.delete(tree, &key))
    }

    #[pyo3(signature = (tree, low = None, high = None, *, include_low = true, include_high = false))]
    fn delete_range(
        &self,
        py: Python<'_>,
        tree: &Tree,
        low: Option<&Bound<'_, PyAny>>,
        high: Option<&Bound<'_, PyAny>>,
        include_low: bool,
        include_high: bool,
    ) -> PyResult<()> {
        let limits = limits(low, high, include_low, include_high)?;
        self.add(py, tree, |batch, tree| batch.delete_range::<&[u8]>(tree, lent(&limits)))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.batch.with(py, |batch| Ok(batch.lock().len()))
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.batch.with(py, |batch| {
            batch.lock().clear();
            Ok(())
        })
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
            true => self.write_to(py, &self.home, self.durability).and_then(|()| self.clear(py)),
            false => self.clear(py),
        }
    }
}
