//! The Python module `terrace`, on crate `terrace`.
//!
//! `package/terrace/_terrace.pyi` has every class with its contract. Rules that hold in all files:
//!
//! * Calls of the store run without the GIL, and never take it while they hold one of this crate's locks.
//! * A handle's content lives in a [`slot::Slot`]: closing a database empties the slots of all its handles, and a process that was forked leaves them alone.
//!
//! | file | holds |
//! | --- | --- |
//! | `slot` | handles: closing, forks, calls without the GIL |
//! | `convert` | arguments and results: bytes, bounds, durability |
//! | `errors` | an exception for each kind of error |
//! | `db`, `tree`, `txn`, `snapshot`, `batch`, `range` | one class each |
//! | `files` | the shared memory of `terrace files` |

mod batch;
mod convert;
mod db;
mod errors;
mod files;
mod range;
mod slot;
mod snapshot;
mod tree;
mod txn;

#[pyo3::pymodule]
mod _terrace {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::db::{Database, open};
    #[pymodule_export]
    use crate::errors::{Busy, Conflict, Corrupt, Error, Full, Invalid, NotFound, Poisoned, Unavailable};
    #[pymodule_export]
    use crate::files::SharedFiles;
    #[pymodule_export]
    use crate::range::Range;
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::tree::Tree;
    #[pymodule_export]
    use crate::txn::{Savepoint, Transaction};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let forked = pyo3::types::PyDict::new(py);
        forked.set_item("after_in_child", pyo3::wrap_pyfunction!(crate::slot::_forked, module)?)?;
        py.import("os")?.call_method("register_at_fork", (), Some(&forked))?;
        let close = pyo3::wrap_pyfunction!(crate::db::_close_all, module)?;
        py.import("atexit")?.call_method1("register", (close,))?;
        Ok(())
    }
}
