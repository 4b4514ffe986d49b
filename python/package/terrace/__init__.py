"""Terrace, embedded: ordered trees of bytes with transactions, in one process, without a server.

    import terrace

    with terrace.open("/srv/app.db") as db:
        users = db.tree("users")
        users[b"ada"] = b"1815"
        for key, value in users.prefix(b"a"):
            print(key, value)

See docs/embedding.md of the repository; `_terrace.pyi`, beside this file, has the contract of every method.
"""

from ._terrace import (
    Batch,
    Busy,
    Conflict,
    Corrupt,
    Database,
    Error,
    Full,
    Invalid,
    NotFound,
    Poisoned,
    Range,
    Savepoint,
    Snapshot,
    Transaction,
    Tree,
    Unavailable,
    open,
)

__all__ = [
    "Batch",
    "Busy",
    "Conflict",
    "Corrupt",
    "Database",
    "Error",
    "Full",
    "Invalid",
    "NotFound",
    "Poisoned",
    "Range",
    "Savepoint",
    "Snapshot",
    "Transaction",
    "Tree",
    "Unavailable",
    "open",
]
