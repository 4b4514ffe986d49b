//! Snapshots.

use crate::db::Home;
use crate::slot::{CLOSED, Slot};
use crate::tree::{At, Open, Tree};
use pyo3::prelude::*;
use std::sync::Arc;

/// A consistent state of all trees, to read.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Snapshot {
    home: Arc<Home>,
    snapshot: Arc<Slot<terrace::Snapshot>>,
}

impl Snapshot {
    pub fn new(home: Arc<Home>, snapshot: Arc<Slot<terrace::Snapshot>>) -> Snapshot {
        Snapshot { home, snapshot }
    }
}

#[pymethods]
impl Snapshot {
    fn __getitem__(&self, py: Python<'_>, tree: &Tree) -> PyResult<Tree> {
        let home = &self.home;
        let open = self.snapshot.with(py, |snapshot| Ok(snapshot.clone()))?;
        let open = tree.open.with(py, move |one| {
            let open = Open { tree: one.tree.clone(), at: At::Snapshot(open) };
            Ok(home.handles.keep(open, CLOSED))
        })?;
        Ok(Tree::new(home.clone(), open))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.snapshot.take(py).map(|snapshot| py.detach(|| drop(snapshot)))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }
}
