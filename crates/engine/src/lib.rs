//! What a key is, what a commit is: trees, transactions, log, recovery.

pub mod btree;
pub mod space;
