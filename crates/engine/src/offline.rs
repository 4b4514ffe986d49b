//! An instance that does not run, opened to read only: its parts, its check, and the adoption of its store.

pub mod adopt;
pub mod check;
pub mod instance;
