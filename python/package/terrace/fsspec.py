"""The file system `terrace` of fsspec: files of an object store through `terrace files`.

    fs = fsspec.filesystem("terrace", target="s3://bucket")
    pandas.read_parquet("table/", filesystem=fs)

`target` is the store that the daemon must serve, `socket` where it listens; both may be left out. Paths are keys of the store. A file that is
open for reading stays at the version that it had when it was opened; if it changes, reads fail with `Changed`. A write is in the store when the
file is closed.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import tokenize

from .files import Client

__all__ = ["TerraceFile", "TerraceFileSystem"]

# Seconds for which a request waits for a daemon that cannot be reached.
_PATIENCE = 5.0


class TerraceFileSystem(AbstractFileSystem):
    protocol = "terrace"
    root_marker = ""

    def __init__(self, target: str = "", socket: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.target = target
        self.socket = socket
        self._local = threading.local()

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
        path = self._strip_protocol(path)
        for entry in self.ls(self._parent(path)):
            if entry["name"] == path and "mtime" in entry:
                modified: datetime.datetime = entry["mtime"]
                return modified
        raise FileNotFoundError(2, "there is no such file", path)

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

    def _rm(self, path: str) -> None:
        self.rm_file(path)

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
        super().__init__(fs, path, mode, *args, **options)
        self._version = self.details.get("version", "") if mode == "rb" else ""

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs._again(lambda client: client.read(self.path, start, end - start, self._version))
        return data

    def _initiate_upload(self) -> None:
        # Its own connection: the file may be closed by another thread, and the upload is the connection's.
        self._client = Client(self.fs.socket, self.fs.target)
        self._handle = self._client.open_write(self.path, self.mode == "xb")

    def _upload_chunk(self, final: bool = False) -> bool:
        if self._client is None or self._handle is None:
            raise ValueError("the upload was not begun")
        self._client.write_part(self._handle, self.buffer.getvalue(), self.path)
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        if self._client is not None and self._handle is not None:
            self._client.commit(self._handle, self.path)
            self._handle = None
            self._client.close()

    def discard(self) -> None:
        if self._client is not None and self._handle is not None:
            self._client.abort(self._handle)
            self._handle = None
            self._client.close()
