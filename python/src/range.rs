//! Iterators.
//!
//! Outside of a transaction an iterator reads some pairs ahead, so that the GIL is released once for several: they are of its state in any case. In a
//! transaction it does not: the next pair may be one that the caller is about to change.

use crate::slot::Slot;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use std::collections::VecDeque;
use std::sync::Arc;
use terrace::Result;
use terrace::bindings::SharedRange;

pub(crate) const CLOSED: &str = "the iterator, or its database, is closed";

/// Pairs that are read ahead at most.
const AHEAD_MAX: usize = 128;
/// Bytes after which no further pair is read ahead.
const AHEAD_BYTES: usize = 64 << 10;

type Pair = (Vec<u8>, Vec<u8>);

/// What an iterator returns of each pair.
#[derive(Clone, Copy)]
pub(crate) enum Parts {
    Pairs,
    Keys,
    Values,
}

struct Ahead {
    range: SharedRange,
    ready: VecDeque<Pair>,
    /// How many to read next: doubles, so that a short iteration reads few.
    next: usize,
    most: usize,
}

pub(crate) struct Pairs(Mutex<Ahead>);

impl Pairs {
    pub fn new(range: SharedRange, ahead: bool) -> Pairs {
        let most = if ahead { AHEAD_MAX } else { 1 };
        Pairs(Mutex::new(Ahead { range, ready: VecDeque::new(), next: 1, most }))
    }

    fn next(&self, backward: bool) -> Result<Option<Pair>> {
        let Ahead { range, ready, next, most } = &mut *self.0.lock();
        if ready.is_empty() {
            let mut bytes = 0;
            while ready.len() < *next && bytes < AHEAD_BYTES {
                let Some((key, value)) = range.step(backward)? else { break };
                bytes += key.len() + value.len();
                ready.push_back((key.to_vec(), value.to_vec()));
            }
            *next = (*next * 2).min(*most);
        }
        Ok(ready.pop_front())
    }
}

/// An iterator over pairs, keys or values.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Range {
    pairs: Arc<Slot<Pairs>>,
    reverse: bool,
    parts: Parts,
}

impl Range {
    pub fn new(pairs: Arc<Slot<Pairs>>, reverse: bool, parts: Parts) -> Range {
        Range { pairs, reverse, parts }
    }
}

#[pymethods]
impl Range {
    /// `Range[bytes]` in annotations.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.py().import("types")?.call_method1("GenericAlias", (class, item))
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, value)) = self.pairs.with(py, |pairs| pairs.next(self.reverse))? else {
            return Ok(None);
        };
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(Some(match self.parts {
            Parts::Pairs => PyTuple::new(py, [bytes(&key), bytes(&value)])?.into_any(),
            Parts::Keys => bytes(&key).into_any(),
            Parts::Values => bytes(&value).into_any(),
        }))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.pairs.take(py).map(|pairs| py.detach(|| drop(pairs)))
    }
}
