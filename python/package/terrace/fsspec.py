"""The file system `terrace` of fsspec: files of an object store through `terrace files`.

    fs = fsspec.filesystem("terrace", target="s3://bucket")
    pandas.read_parquet("table/", filesystem=fs)

`target` is the store that the daemon must serve, `socket` where it listens; both may be left out. Paths are keys of the store. A file that is
open for reading stays at the version that it had when it was opened; if it changes, reads fail with `Changed`. A write is in the store when the
file is closed. In a transaction a file is kept by the daemon when it is closed, and all are in the store when the transaction ends, or none:

    with fs.transaction:
        for path, data in files.items():
            fs.pipe_file(path, data)

Coroutines, as `_cat_file`, do the same without holding their event loop up; with `asynchronous=True` no loop of fsspec's own is started:

    fs = fsspec.filesystem("terrace", asynchronous=True)
    bodies = await asyncio.gather(*(fs._cat_file(path) for path in paths))
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from typing import Any

from fsspec.spec import AbstractBufferedFile
from fsspec.transaction import Transaction
from fsspec.utils import tokenize

from ._asynchronous import AsyncFiles, TerraceStreamedFile
from .files import Client

__all__ = ["TerraceFile", "TerraceFileSystem", "TerraceStreamedFile", "TerraceTransaction"]

# Seconds for which a request waits for a daemon that cannot be reached.
_PATIENCE = 5.0
# Seconds for which a listing says when files were modified, and files whose times are known.
_LISTED = 2.0
_KNOWN = 100_000
# Bytes of a file that are sent at once when it is closed in a transaction.
_SHORT = 8 << 20


class TerraceTransaction(Transaction):
    """Files that are written together: a group, on a connection of its own. While the daemon is started again, it waits."""

    def __init__(self, fs: TerraceFileSystem, **options: Any) -> None:
        super().__init__(fs, **options)
        self._client: Client | None = None
        self._group = ""
        self._lock = threading.Lock()

    def ask(self, ask: Any) -> Any:
        """Asks with the client and the group; if the daemon is gone, again over a new connection."""
        until = time.monotonic() + _PATIENCE
        with self._lock:
            while True:
                try:
                    if self._client is None:
                        self._client = Client(self.fs.socket, self.fs.target)
                        if self._group:
                            self._client.resume_group(self._group)
                        else:
                            self._group = self._client.begin_group()
                    return ask(self._client, self._group)
                except ConnectionError:
                    self.close()
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.02)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def complete(self, commit: bool = True) -> None:
        try:
            if self._group and commit:
                self.ask(lambda client, group: client.commit_group(group))
            elif self._group:
                self.ask(lambda client, group: client.abort_group(group))
        finally:
            self.files.clear()
            self.fs._intrans = False
            self.fs._transaction = None
            self.close()


class TerraceFileSystem(AsyncFiles):
    protocol = "terrace"
    root_marker = ""
    transaction_type = TerraceTransaction

    def __init__(self, target: str = "", socket: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.target = target
        self.socket = socket
        self._local = threading.local()
        # The last listing whose times were asked for: folder, when, times. And the times of versions.
        self._listed: tuple[str, float, dict[str, datetime.datetime]] | None = None
        self._modified: dict[str, tuple[str, datetime.datetime]] = {}

    @property
    def client(self) -> Client:
        """This thread's connection. After a fork, or when the daemon was started again, a new one."""
        client: Client | None = getattr(self._local, "client", None)
        if client is None or client.pid != os.getpid():
            client = self._local.client = Client(self.socket, self.target)
        return client

    def _again(self, ask: Any) -> Any:
        """Asks; if the connection is gone, again over a new one, which a daemon that is being started may take a few seconds to accept. The request
        changes nothing."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return ask(self.client)
            except ConnectionError:
                self._local.client = None
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        return path.removeprefix("terrace://").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return f"terrace://{self._strip_protocol(name)}"

    def _entry(self, name: str, size: int, version: str = "", modified_ms: int = 0) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": name, "size": size, "type": "file"}
        if version:
            entry["version"] = version
        if modified_ms:
            entry["mtime"] = datetime.datetime.fromtimestamp(modified_ms / 1000, datetime.timezone.utc)
        return entry

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        path = self._strip_protocol(path)
        found = [
            {"name": entry.path, "size": 0, "type": "directory"}
            if entry.is_folder
            else self._entry(entry.path, entry.size, modified_ms=entry.modified_ms)
            for entry in self._again(lambda client: client.list(path))
        ]
        if not found and path:
            found = [self.info(path)]
            if found[0]["type"] == "directory":
                found = []
        return found if detail else sorted(entry["name"] for entry in found)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if not path:
            return {"name": "", "size": 0, "type": "directory"}
        try:
            found = self._again(lambda client: client.stat(path))
            return self._entry(path, found.size, found.version)
        except FileNotFoundError:
            if self._again(lambda client: client.list(path)):
                return {"name": path, "size": 0, "type": "directory"}
            raise

    def exists(self, path: str, **options: Any) -> bool:
        try:
            self.info(path)
            return True
        except FileNotFoundError:
            return False

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any) -> Any:
        path = self._strip_protocol(path)
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        entries = self._again(lambda client: client.list(path, True))
        found = {entry.path: self._entry(entry.path, entry.size) for entry in entries}
        if not found and path and self.isfile(path):
            found = {path: self.info(path)}
        return found if detail else sorted(found)

    def modified(self, path: str) -> datetime.datetime:
        """Only a listing says that. One listing of a folder does for all its files that are asked for shortly afterwards, and for each as long as its
        version is the same."""
        path = self._strip_protocol(path)
        version = self.info(path).get("version", "")
        known = self._modified.get(path)
        if known is not None and version and known[0] == version:
            return known[1]
        folder, now = self._parent(path), time.monotonic()
        # What is known of another version shows that the file has changed, perhaps since the listing.
        if known is not None or self._listed is None or self._listed[0] != folder or now - self._listed[1] > _LISTED:
            self._listed = (folder, now, {entry["name"]: entry["mtime"] for entry in self.ls(folder) if "mtime" in entry})
        modified: datetime.datetime | None = self._listed[2].get(path)
        if modified is None:
            self._listed = None
            raise FileNotFoundError(2, "there is no such file", path)
        if len(self._modified) >= _KNOWN:
            self._modified.clear()
        self._modified[path] = (version, modified)
        return modified

    def checksum(self, path: str) -> int:
        return int(tokenize(self.info(path)), 16)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        path = self._strip_protocol(path)
        if (start or 0) < 0 or (end or 0) < 0:
            size = self.info(path)["size"]
            start = max(0, size + start) if start is not None and start < 0 else start
            end = max(0, size + end) if end is not None and end < 0 else end
        begin = start or 0
        length = 2**64 - 1 if end is None else max(0, end - begin)
        data: bytes = self._again(lambda client: client.read(path, begin, length))
        return data

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        """Reads a list or a pattern as one batch, at the store's full parallelism."""
        paths = self.expand_path(path, recursive=recursive) if recursive or not isinstance(path, list) else self._strip_protocol(path)
        if not isinstance(path, list) and len(paths) == 1 and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0], **options)
        if recursive or not isinstance(path, list):
            paths = [one for one in paths if not self.isdir(one)]
        found: dict[str, Any] = {}
        late = []
        for one, data in self._again(lambda client: list(client.read_many(paths))):
            if isinstance(data, OSError):
                late.append(one)
            else:
                found[one] = data
        for one in late:  # Alone, it may be read, or its error is raised.
            try:
                found[one] = self.cat_file(one)
            except OSError as error:
                if on_error == "raise":
                    raise
                if on_error == "return":
                    found[one] = error
        return {one: found[one] for one in paths if one in found}

    def prefetch(self, paths: list[str]) -> int:
        """Brings files into the daemon's memory before they are read; returns how many. From another thread, it goes on while they are read."""
        names = self._strip_protocol(paths)
        count: int = self._again(lambda client: client.prefetch(names))
        return count

    def cat_ranges(self, paths: Any, starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return", **options: Any) -> list[Any]:
        if not isinstance(starts, list):
            starts = [starts] * len(paths)
        if not isinstance(ends, list):
            ends = [ends] * len(paths)
        found: list[Any] = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            try:
                found.append(self.cat_file(path, start, end))
            except OSError as error:
                if on_error != "return":
                    raise
                found.append(error)
        return found

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)
            return
        path = self._strip_protocol(path)
        self.client.write(path, [bytes(value)], exclusive=mode == "create")

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None, **options: Any) -> TerraceFile:
        if mode not in ("rb", "wb", "xb"):
            raise NotImplementedError(f"mode {mode}: files are read, or written from their start")
        if mode == "xb" and self.exists(path):  # Once more when it is committed, by the store.
            raise FileExistsError(17, "the file exists already", path)
        # The daemon caches: a cache of bytes in this process would only copy them once more.
        return TerraceFile(self, self._strip_protocol(path), mode, block_size or "default", autocommit=autocommit, cache_type="none")

    def rm_file(self, path: str) -> None:
        path = self._strip_protocol(path)
        if not self.isfile(path):
            raise FileNotFoundError(2, "there is no such file", path)
        self.client.delete([path])

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = [one for one in self.expand_path(path, recursive=recursive, maxdepth=maxdepth) if self.isfile(one)]
        if not paths and not recursive:
            raise FileNotFoundError(2, "there is no such file", str(path))
        self.client.delete(paths)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        if self.isdir(path1):
            return  # Folders are made by the files in them.
        self.pipe_file(path2, self.cat_file(path1))

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Folders are made by the files in them."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Folders are made by the files in them."""

    def rmdir(self, path: str) -> None:
        """Folders are gone with the files in them."""

    def created(self, path: str) -> datetime.datetime:
        return self.modified(path)


class TerraceFile(AbstractBufferedFile):
    """A file that is read, at the version that it had when it was opened, or written."""

    fs: TerraceFileSystem

    def __init__(self, fs: TerraceFileSystem, path: str, mode: str, *args: Any, **options: Any) -> None:
        self._client: Client | None = None
        self._handle: int | None = None
        self._whole = b""
        # It is a file of a transaction.
        self._is_kept = False
        super().__init__(fs, path, mode, *args, **options)
        self._version = self.details.get("version", "") if mode == "rb" else ""

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs._again(lambda client: client.read(self.path, start, end - start, self._version))
        return data

    def _initiate_upload(self) -> None:
        self._is_kept = not self.autocommit and self.fs._intrans
        if not self._is_kept:
            # Its own connection: the file may be closed by another thread, and the upload is the connection's.
            self._client = Client(self.fs.socket, self.fs.target)
            self._handle = self._client.open_write(self.path, self.mode == "xb")

    def _upload_chunk(self, final: bool = False) -> bool:
        data = self.buffer.getvalue()
        if self._is_kept:
            self.fs.transaction.ask(lambda client, group: self._keep(client, group, data, final))
            return True
        if self._client is None or self._handle is None:
            raise ValueError("the upload was not begun")
        self._client.write_part(self._handle, data, self.path)
        if final and self.autocommit:
            self.commit()
        return True

    def _keep(self, client: Client, group: str, data: bytes, final: bool) -> None:
        """In a transaction: a short file is sent when it is whole, so that it can be sent again after a start of the daemon."""
        handle, begins = self._handle, self._handle is None
        if handle is None:
            if len(self._whole) + len(data) <= _SHORT and not final:
                self._whole += data
                return
            handle = client.open_write(self.path, self.mode == "xb", group)
            self._handle, self._client, data = handle, client, self._whole + data
        try:
            if self._client is not client:
                raise ValueError("the daemon was started again while the file was written")
            client.write_part(handle, data, self.path)
            if final:
                client.commit(handle, self.path)
        except ConnectionError:
            if not begins:
                raise ValueError("the daemon was started again while the file was written") from None
            self._handle = self._client = None
            raise
        if final:
            self._handle = self._client = None

    def commit(self) -> None:
        """A file of a transaction is committed with it."""
        if not self._is_kept and self._client is not None and self._handle is not None:
            self._client.commit(self._handle, self.path)
            self._handle = None
            self._client.close()

    def discard(self) -> None:
        if not self._is_kept and self._client is not None and self._handle is not None:
            self._client.abort(self._handle)
            self._handle = None
            self._client.close()
