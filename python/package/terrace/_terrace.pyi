import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Generic, Literal, TypeAlias, TypeVar, final, overload

from typing_extensions import Self

_Bytes: TypeAlias = bytes | bytearray | memoryview
_Durability: TypeAlias = Literal["wait", "written", "none"]
_T = TypeVar("_T")
_Item = TypeVar("_Item", covariant=True)

class Error(Exception):
    """An error of the store. Its subclasses say what to do next."""

class Conflict(Error):
    """Another transaction was first, a deadlock was resolved or a lock wait timed out: run the transaction again."""

class Unavailable(Error): ...
class Full(Error): ...
class Busy(Error): ...
class NotFound(Error): ...
class Invalid(Error): ...
class Corrupt(Error): ...
class Poisoned(Error): ...

def open(path: str | os.PathLike[str], **settings: int | str | os.PathLike[str]) -> Database:
    """Opens the database in a directory. It is made if it does not exist, and recovered if it crashed.

    Settings by name, as in docs/settings.md: memory="1G", object="s3://bucket/app". One process at a time has a database open.
    """

@final
class Database:
    """An open database, for any thread. Use it as a context manager, or close it: an interpreter that ends closes it, too."""

    def tree(self, name: str) -> Tree:
        """The tree of this name, which is made if it does not exist, durably and outside of any transaction."""
    def find_tree(self, name: str) -> Tree | None: ...
    def drop_tree(self, name: str) -> None:
        """Drops a tree and all its pairs, durably. Busy while another Tree of this name, or an iterator, exists."""
    def trees(self) -> list[str]: ...
    def transaction(self, *, serializable: bool = False, durability: _Durability = "wait") -> Transaction:
        """Begins a transaction. As a context manager it commits at the end, or rolls back if an exception leaves it."""
    def transact(
        self, work: Callable[[Transaction], _T], *, serializable: bool = False, durability: _Durability = "wait", tries: int = 100
    ) -> _T:
        """Runs work(txn) and commits; after a Conflict again, up to `tries` times in all. Returns what it returned."""
    def snapshot(self) -> Snapshot:
        """A consistent state of all trees: snapshot[tree].get(key)."""
    def batch(self, *, durability: _Durability = "wait") -> Batch:
        """A write batch. As a context manager it is written at the end, unless an exception leaves it."""
    def write(self, batch: Batch, *, durability: _Durability = "wait") -> None:
        """Writes a batch, all of it or nothing. The batch stays as it is."""
    def sync(self) -> None:
        """Makes all commits so far durable."""
    def status(self) -> dict[str, int]: ...
    def close(self) -> None:
        """Waits for calls that are running, rolls back open transactions and closes. All handles of the database are invalid then."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Tree:
    """An ordered map of bytes to bytes, for any thread.

    From Database.tree() each call is a transaction of its own, durable when it returns. From transaction[tree] calls are part of the
    transaction, from snapshot[tree] they read its state. There is no len(): a count reads all keys. See approximate_len().
    """

    @property
    def name(self) -> str: ...
    def __getitem__(self, key: _Bytes, /) -> bytes: ...
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None: ...
    def __contains__(self, key: _Bytes, /) -> bool: ...
    def __iter__(self) -> Range[bytes]:
        """The keys in order."""
    def __reversed__(self) -> Range[bytes]: ...
    @overload
    def get(self, key: _Bytes, default: None = None, /) -> bytes | None: ...
    @overload
    def get(self, key: _Bytes, default: _T, /) -> bytes | _T: ...
    def get_for_update(self, key: _Bytes) -> bytes | None:
        """In a transaction: the newest committed value. The key, existing or not, is locked until the transaction ends."""
    def multi_get(self, keys: Iterable[_Bytes]) -> list[bytes | None]:
        """The values of several keys. Pages that are not in memory are fetched in parallel."""
    def put(self, key: _Bytes, value: _Bytes) -> None: ...
    def insert(self, key: _Bytes, value: _Bytes) -> bool:
        """Sets a key that does not exist. False: it exists and keeps its value."""
    def delete(self, key: _Bytes) -> bool:
        """Deletes a key. False: it did not exist."""
    def delete_range(
        self, low: _Bytes | None = None, high: _Bytes | None = None, *, include_low: bool = True, include_high: bool = False
    ) -> int:
        """Deletes the keys from `low` up to, but without, `high`. Returns how many. None: no bound on that side."""
    def range(
        self,
        low: _Bytes | None = None,
        high: _Bytes | None = None,
        *,
        reverse: bool = False,
        include_low: bool = True,
        include_high: bool = False,
    ) -> Range[tuple[bytes, bytes]]:
        """The pairs from `low` up to, but without, `high`, in order of their keys. They are of one state: that of the first step."""
    def prefix(self, prefix: _Bytes, *, reverse: bool = False) -> Range[tuple[bytes, bytes]]:
        """The pairs whose keys start with a prefix."""
    def items(self, *, reverse: bool = False) -> Range[tuple[bytes, bytes]]: ...
    def keys(self, *, reverse: bool = False) -> Range[bytes]: ...
    def values(self, *, reverse: bool = False) -> Range[bytes]: ...
    def approximate_len(self) -> int:
        """An estimate of how many keys the tree has."""

@final
class Range(Generic[_Item]):
    """An iterator. While it is open it keeps the old versions that it sees: it is closed at its last step, by close(), or when it is garbage."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _Item: ...
    def close(self) -> None: ...

@final
class Transaction:
    """Reads and writes of several trees: txn[tree][key] = value.

    Reads see the state of the first read, and the transaction's own changes. To write a key that another transaction has changed since is a
    Conflict; the transaction can only be rolled back then. One thread at a time uses it; others wait.
    """

    def __getitem__(self, tree: Tree, /) -> Tree:
        """The tree in this transaction."""
    def savepoint(self) -> Savepoint: ...
    def rollback_to(self, savepoint: Savepoint) -> None:
        """Undoes what was changed since the savepoint, which stays. Locks stay, too."""
    def commit(self, *, durability: _Durability | None = None) -> None: ...
    def rollback(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Savepoint: ...

@final
class Snapshot:
    """A consistent state of all trees, for any thread. While it is open, the old versions that it sees are kept."""

    def __getitem__(self, tree: Tree, /) -> Tree:
        """The tree in this state."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Batch:
    """Puts and deletes that are written together or not at all, in their order. It reads nothing, so it meets no conflict."""

    def put(self, tree: Tree, key: _Bytes, value: _Bytes) -> None: ...
    def delete(self, tree: Tree, key: _Bytes) -> None: ...
    def delete_range(
        self,
        tree: Tree,
        low: _Bytes | None = None,
        high: _Bytes | None = None,
        *,
        include_low: bool = True,
        include_high: bool = False,
    ) -> None: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class SharedFiles:
    """The memory that `terrace files` shares, for `terrace.files`: None where the daemon must be asked."""

    def __new__(cls, memory: int, greeting: bytes, socket: int) -> Self: ...
    @property
    def store(self) -> str: ...
    def read(self, path: str, offset: int, length: int, version: str) -> bytes | None: ...
    def read_many(self, paths: Sequence[str]) -> list[bytes | None]: ...
    def stat(self, path: str) -> tuple[str, int] | None: ...
