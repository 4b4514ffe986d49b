//! An exception for each kind of error.

use pyo3::exceptions::PyException;
use pyo3::{PyErr, create_exception};
use terrace::ErrorKind;

create_exception!(terrace, Error, PyException, "An error of the store. Its subclasses say what to do next.");
create_exception!(
    terrace,
    Conflict,
    Error,
    "Another transaction was first, a deadlock was resolved or a lock wait timed out: run the transaction again."
);
create_exception!(
    terrace,
    Unavailable,
    Error,
    "The object store does not answer, or too many locks are held: try later."
);
create_exception!(terrace, Full, Error, "The log or the volume has no room.");
create_exception!(terrace, Busy, Error, "Another process has the database, or a tree is in use.");
create_exception!(terrace, NotFound, Error, "There is no such tree.");
create_exception!(terrace, Invalid, Error, "The call is wrong: the text says what.");
create_exception!(
    terrace,
    Corrupt,
    Error,
    "Bytes on a device or in the object store are not what was written: run `terrace check`."
);
create_exception!(terrace, Poisoned, Error, "A write or sync failed: close and open again.");

pub(crate) fn raised(error: terrace::Error) -> PyErr {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Conflict => Conflict::new_err(text),
        ErrorKind::Unavailable => Unavailable::new_err(text),
        ErrorKind::Full => Full::new_err(text),
        ErrorKind::Busy => Busy::new_err(text),
        ErrorKind::NotFound => NotFound::new_err(text),
        ErrorKind::Invalid => Invalid::new_err(text),
        ErrorKind::Corrupt => Corrupt::new_err(text),
        ErrorKind::Poisoned => Poisoned::new_err(text),
        _ => Error::new_err(text),
    }
}

pub(crate) fn invalid(text: &str) -> PyErr {
    Invalid::new_err(text.to_string())
}
