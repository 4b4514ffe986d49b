//! What a key is, what a commit is: trees, transactions, log, recovery.
