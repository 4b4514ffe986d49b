//! The memory that `terrace files` shares: reads that ask the daemon nothing. What they cannot answer, `terrace/files.py` asks for.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyList};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use terrace_files::client::shared::{CachedFile, Layout, Mapping, Shared};
use terrace_files::wire::Fields;

#[pyclass(module = "terrace._terrace", frozen)]
pub struct SharedFiles {
    shared: Shared,
    /// The connection, for what the daemon is told; Python owns it.
    socket: i32,
    #[pyo3(get)]
    store: String,
}

fn refused(cause: impl std::fmt::Display) -> PyErr {
    PyOSError::new_err(format!("the shared memory cannot be used: {cause}"))
}

impl SharedFiles {
    fn copy<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        offset: u64,
        length: u64,
        expected: &str,
    ) -> PyResult<Option<(CachedFile, Bound<'py, PyBytes>)>> {
        let mut made: Option<PyResult<Bound<'py, PyAny>>> = None;
        let place = |len: usize| {
            // SAFETY: a new object with room for `len` bytes, which are written before anything else sees it; null if there is no memory.
            let object = unsafe {
                Bound::from_owned_ptr_or_err(
                    py,
                    pyo3::ffi::PyBytes_FromStringAndSize(std::ptr::null(), len as isize),
                )
            };
            let place = match &object {
                // SAFETY: it is an object of bytes, just made.
                Ok(object) => unsafe { pyo3::ffi::PyBytes_AsString(object.as_ptr()).cast() },
                Err(_) => std::ptr::null_mut(),
            };
            made = Some(object);
            place
        };
        // SAFETY: the place has as many bytes as were asked for, and only this call knows it.
        let found = unsafe { self.shared.copy(path, offset, length, expected, place) };
        match (found, made) {
            (_, Some(Err(error))) => Err(error),
            (Some(found), Some(Ok(bytes))) => Ok(Some((found, bytes.cast_into::<PyBytes>()?))),
            _ => Ok(None),
        }
    }

    /// Tells the daemon what was read, if it is time.
    fn tell(&self) {
        if self.shared.has_news() {
            // SAFETY: Python has the connection open as long as its client uses this object.
            self.shared.tell(unsafe { BorrowedFd::borrow_raw(self.socket) });
        }
    }
}

#[pymethods]
impl SharedFiles {
    /// `memory`: the descriptor that came with the answer to the greeting, whose fields are `greeting`.
    #[new]
    fn new(memory: i32, greeting: &[u8], socket: i32) -> PyResult<SharedFiles> {
        let layout = Layout::of(&mut Fields(greeting)).map_err(refused)?;
        // SAFETY: the caller has the descriptor open for this call.
        let memory = unsafe { BorrowedFd::borrow_raw(memory) };
        let mapping = Mapping::new(memory, layout.mapped as usize).map_err(refused)?;
        let shared = Shared::new(Arc::new(mapping), &layout).map_err(refused)?;
        Ok(SharedFiles { shared, socket, store: layout.store })
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        offset: u64,
        length: u64,
        version: &str,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found = self.copy(py, path, offset, length, version)?;
        self.tell();
        Ok(found.map(|(_, bytes)| bytes))
    }

    fn read_many<'py>(&self, py: Python<'py>, paths: Vec<PyBackedStr>) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for path in &paths {
            all.append(self.copy(py, path, 0, u64::MAX, "")?.map(|(_, bytes)| bytes))?;
            self.tell();
        }
        Ok(all)
    }

    fn stat(&self, path: &str) -> Option<(String, u64)> {
        let found = self.shared.stat(path)?;
        Some((found.version()?, found.length))
    }
}
