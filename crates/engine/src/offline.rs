//! An instance that does not run, opened to read only: its parts, its check, the adoption of its store, backups and clones; the definitions that a server kept in it; and the probing of a store (`doctor`).

pub mod adopt;
pub mod backup;
pub mod check;
pub mod clone;
pub mod definitions;
pub mod doctor;
pub mod instance;
