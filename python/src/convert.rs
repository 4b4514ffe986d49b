//! Arguments and results.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBool, PyBytes, PyInt, PyMemoryView, PyString};
use std::ops::Bound as Limit;
use std::path::PathBuf;
use terrace::Durability;

/// Bytes of a `bytes`, `bytearray` or `memoryview`.
pub(crate) fn bytes(given: &Bound<'_, PyAny>, what: &str) -> PyResult<PyBackedBytes> {
    if given.is_instance_of::<PyMemoryView>() {
        return Ok(given.call_method0("tobytes")?.extract::<PyBackedBytes>()?);
    }
    given.extract::<PyBackedBytes>().map_err(|_| {
        let kind = given.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        let hint = if given.is_instance_of::<PyString>() { ": encode it" } else { "" };
        PyTypeError::new_err(format!("a {what} is bytes, not {kind}{hint}"))
    })
}

/// The limits of a range.
pub(crate) type Limits = (Limit<PyBackedBytes>, Limit<PyBackedBytes>);

pub(crate) fn limits(
    low: Option<&Bound<'_, PyAny>>,
    high: Option<&Bound<'_, PyAny>>,
    include_low: bool,
    include_high: bool,
) -> PyResult<Limits> {
    let limit = |key: Option<&Bound<'_, PyAny>>, included| {
        Ok::<_, PyErr>(match key {
            None => Limit::Unbounded,
            Some(key) if included => Limit::Included(bytes(key, "key")?),
            Some(key) => Limit::Excluded(bytes(key, "key")?),
        })
    };
    Ok((limit(low, include_low)?, limit(high, include_high)?))
}

/// The same, borrowed.
pub(crate) fn lent(limits: &Limits) -> (Limit<&[u8]>, Limit<&[u8]>) {
    fn one(limit: &Limit<PyBackedBytes>) -> Limit<&[u8]> {
        match limit {
            Limit::Included(key) => Limit::Included(key),
            Limit::Excluded(key) => Limit::Excluded(key),
            Limit::Unbounded => Limit::Unbounded,
        }
    }
    (one(&limits.0), one(&limits.1))
}

pub(crate) fn durability(name: &str) -> PyResult<Durability> {
    match name {
        "wait" => Ok(Durability::Wait),
        "written" => Ok(Durability::Written),
        "none" => Ok(Durability::None),
        _ => Err(PyValueError::new_err(format!("durability is 'wait', 'written' or 'none', not '{name}'"))),
    }
}

/// A setting's value as text.
pub(crate) fn setting(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        return Ok(value.str()?.to_string());
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(text);
    }
    if let Ok(path) = value.extract::<PathBuf>()
        && let Some(text) = path.to_str()
    {
        return Ok(text.to_string());
    }
    Err(PyTypeError::new_err(format!(
        "setting {name} is text, a number or a path, not {}",
        value.get_type().name()?
    )))
}

pub(crate) fn value(py: Python<'_>, value: Option<Vec<u8>>) -> Option<Py<PyBytes>> {
    value.map(|value| PyBytes::new(py, &value).unbind())
}
