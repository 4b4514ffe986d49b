//! An instance that does not run, opened to read only: its parts, its check, the adoption of its store, and backups.

pub mod adopt;
pub mod backup;
pub mod check;
pub mod instance;
