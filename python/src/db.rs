//! Databases.

use crate::batch::Batch;
use crate::convert::{self, durability};
use crate::errors::{Conflict, raised};
use crate::slot::{CLOSED, Handles, Slot};
use crate::snapshot::Snapshot;
use crate::tree::{At, Open, Tree};
use crate::txn::Transaction;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use terrace::bindings::SharedTxn;
use terrace::{Config, Db, Isolation};

/// Databases that may be open, to be closed when the interpreter ends.
static OPEN: Mutex<Vec<Weak<Home>>> = Mutex::new(Vec::new());

/// What the handles of a database share.
pub(crate) struct Home {
    pub db: Slot<Db>,
    pub handles: Handles,
}

impl Home {
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(db) = self.db.take(py)? else { return Ok(()) };
        py.detach(|| {
            self.handles.empty();
            db.close()
        })
        .map_err(raised)
    }
}

#[pyfunction]
pub(crate) fn _close_all(py: Python<'_>) -> PyResult<()> {
    let open = std::mem::take(&mut *OPEN.lock());
    for home in open.iter().filter_map(Weak::upgrade).filter(|home| !home.db.is_of_parent()) {
        home.close(py)?;
    }
    Ok(())
}

/// Opens the database in a directory, with settings by name.
#[pyfunction]
#[pyo3(signature = (path, **settings))]
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Database> {
    let mut config = Config::new(&path);
    for (name, value) in settings.into_iter().flatten() {
        let name: String = name.extract()?;
        config = config.set(&name, &convert::setting(&name, &value)?);
    }
    let db = py.detach(|| Db::open_with(config)).map_err(raised)?;
    let home = Arc::new(Home { db: Slot::new(db, CLOSED), handles: Handles::default() });
    let mut open = OPEN.lock();
    open.retain(|home| home.strong_count() > 0);
    open.push(Arc::downgrade(&home));
    Ok(Database { home, path })
}

/// An open database, for any thread.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Database {
    home: Arc<Home>,
    path: PathBuf,
}

#[pymethods]
impl Database {
    fn __repr__(&self) -> String {
        format!("<terrace.Database {:?}>", self.path)
    }

    fn tree(&self, py: Python<'_>, name: &str) -> PyResult<Tree> {
        let home = &self.home;
        let open = home.db.with(py, |db| {
            let tree = db.tree(name)?;
            Ok(home.handles.keep(Open { tree, at: At::Alone }, CLOSED))
        })?;
        Ok(Tree::new(home.clone(), open))
    }

    fn find_tree(&self, py: Python<'_>, name: &str) -> PyResult<Option<Tree>> {
        let home = &self.home;
        let open = home.db.with(py, |db| {
            let tree = db.find_tree(name)?;
            Ok(tree.map(|tree| home.handles.keep(Open { tree, at: At::Alone }, CLOSED)))
        })?;
        Ok(open.map(|open| Tree::new(home.clone(), open)))
    }

    fn drop_tree(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.home.db.with(py, |db| db.drop_tree(name))
    }

    fn trees(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.home.db.with(py, |db| Ok(db.trees()))
    }

    #[pyo3(signature = (*, serializable = false, durability = "wait"))]
    fn transaction(&self, py: Python<'_>, serializable: bool, durability: &str) -> PyResult<Transaction> {
        let durability = convert::durability(durability)?;
        let isolation = if serializable { Isolation::Serializable } else { Isolation::Snapshot };
        let home = &self.home;
        let txn =
            home.db.with(py, |db| Ok(home.handles.keep(SharedTxn::new(db.begin_with(isolation)), CLOSED)))?;
        Ok(Transaction::new(home.clone(), txn, durability))
    }

    #[pyo3(signature = (work, *, serializable = false, durability = "wait", tries = 100))]
    fn transact<'py>(
        &self,
        py: Python<'py>,
        work: &Bound<'py, PyAny>,
        serializable: bool,
        durability: &str,
        tries: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        for tried in 1.. {
            let txn = Py::new(py, self.transaction(py, serializable, durability)?)?;
            let done = work.call1((txn.clone_ref(py),)).and_then(|done| {
                txn.get().commit_if_open(py)?;
                Ok(done)
            });
            match done {
                Ok(done) => return Ok(done),
                Err(error) => {
                    // The first error is the one to raise.
                    let _ = txn.get().rollback_if_open(py);
                    if tried >= tries || !error.is_instance_of::<Conflict>(py) {
                        return Err(error);
                    }
                }
            }
            // The transaction that won is to go on: microseconds at first, up to some milliseconds later.
            let random: f64 = py.import("random")?.call_method0("random")?.extract()?;
            let most = 10e-6 * f64::from(1u32 << tried.min(10));
            py.import("time")?.call_method1("sleep", (random * most,))?;
        }
        Err(Conflict::new_err("too many conflicts"))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let home = &self.home;
        let snapshot =
            home.db.with(py, |db| Ok(home.handles.keep(db.snapshot(), "the snapshot is closed")))?;
        Ok(Snapshot::new(home.clone(), snapshot))
    }

    #[pyo3(signature = (*, durability = "wait"))]
    fn batch(&self, py: Python<'_>, durability: &str) -> PyResult<Batch> {
        let durability = convert::durability(durability)?;
        let home = &self.home;
        let batch = home.db.with(py, |_| Ok(home.handles.keep(Mutex::default(), CLOSED)))?;
        Ok(Batch::new(home.clone(), batch, durability))
    }

    #[pyo3(signature = (batch, *, durability = "wait"))]
    fn write(&self, py: Python<'_>, batch: &Batch, durability: &str) -> PyResult<()> {
        batch.write_to(py, &self.home, self::durability(durability)?)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.home.db.with(py, Db::sync)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = PyDict::new(py);
        for (name, number) in self.home.db.with(py, |db| Ok(db.status()))? {
            status.set_item(name, number)?;
        }
        Ok(status)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.home.close(py)
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
        self.home.close(py)
    }
}
