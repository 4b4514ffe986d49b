"""The asynchronous interface of the file system `terrace`.

What waits for the daemon runs on a few threads, each with a connection of its own, so an event loop never waits. A short file that is cached and fresh is
copied from the shared memory by the event loop itself: that asks the daemon nothing and takes less time than handing it to a thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import threading
from typing import TYPE_CHECKING, Any

from fsspec.asyn import AbstractAsyncStreamedFile, AsyncFileSystem

from .files import Client

if TYPE_CHECKING:
    from .fsspec import TerraceFileSystem

__all__ = ["AsyncFiles", "TerraceStreamedFile"]

# Requests of one file system that wait at a time. A list is one request, in which the daemon fetches as many files as it may.
_THREADS = 16
# Bytes that the event loop copies itself.
_SHORT = 1 << 20
_ALL = 2**64 - 1


class AsyncFiles(AsyncFileSystem):
    """The coroutines, by the ordinary methods of the class that is made of it."""

    # They are there already, and ask the daemon directly: not through an event loop in another thread.
    mirror_sync_methods = False
    socket: str | None
    target: str

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._pool_of = 0
        self._pool_lock = threading.Lock()
        # For what is in the shared memory, and for nothing else: no thread asks anything on it.
        self._looks: Client | None = None

    async def _on_thread(self, work: Any, *args: Any, **options: Any) -> Any:
        with self._pool_lock:
            if self._pool is None or self._pool_of != os.getpid():  # After a fork its threads are gone.
                self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS, "terrace-files")
                self._pool_of, self._looks = os.getpid(), None
            pool = self._pool
        return await asyncio.get_running_loop().run_in_executor(pool, functools.partial(work, *args, **options))

    def _look(self) -> None:
        """On a thread: a connection for what is cached, if there is none that lives."""
        looks = self._looks
        if looks is None or looks.pid != os.getpid() or looks.has_ended():
            self._looks = Client(self.socket, self.target)

    def _copied(self, path: str, start: int, end: int | None) -> bytes | None:
        looks = self._looks
        found = looks.cached_size(path) if looks is not None and looks.pid == os.getpid() else None
        if looks is None or found is None or start < 0 or (end or 0) < 0:
            return None
        length = max(0, (found if end is None else min(end, found)) - start)
        # The file may be another one now, and longer: no more is copied than was decided.
        return looks.cached(path, start, length) if length <= _SHORT else None

    def _read_and_look(self, path: str, start: int | None, end: int | None, options: dict[str, Any]) -> bytes:
        data: bytes = self.cat_file(path, start, end, **options)
        self._look()
        return data

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        found = self._copied(self._strip_protocol(path), start or 0, end)
        if found is None:
            data: bytes = await self._on_thread(self._read_and_look, path, start, end, options)
            return data
        return found

    async def _cat(self, path: Any, recursive: bool = False, on_error: str = "raise", batch_size: int | None = None, **options: Any) -> Any:
        return await self._on_thread(self.cat, path, recursive=recursive, on_error=on_error, **options)

    async def _cat_ranges(self, paths: Any, starts: Any, ends: Any, max_gap: int | None = None, batch_size: int | None = None, on_error: str = "return",
                          **options: Any) -> Any:
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        parts = [self._cat_file(path, start, end) for path, start, end in zip(paths, starts, ends, strict=True)]
        return await asyncio.gather(*parts, return_exceptions=on_error == "return")

    async def _info(self, path: str, **options: Any) -> Any:
        return await self._on_thread(self.info, path, **options)

    async def _exists(self, path: str, **options: Any) -> Any:
        return await self._on_thread(self.exists, path, **options)

    async def _isfile(self, path: str) -> Any:
        return await self._on_thread(self.isfile, path)

    async def _isdir(self, path: str) -> Any:
        return await self._on_thread(self.isdir, path)

    async def _ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return await self._on_thread(self.ls, path, detail=detail, **options)

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any) -> Any:
        return await self._on_thread(self.find, path, maxdepth=maxdepth, withdirs=withdirs, **options)

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        await self._on_thread(self.pipe_file, path, value, mode=mode, **options)

    async def _cp_file(self, path1: str, path2: str, **options: Any) -> None:
        await self._on_thread(self.cp_file, path1, path2, **options)

    async def _rm_file(self, path: str, **options: Any) -> None:
        await self._on_thread(self.rm_file, path)

    async def _rm(self, path: Any, recursive: bool = False, batch_size: int | None = None, maxdepth: int | None = None, **options: Any) -> None:
        await self._on_thread(self.rm, path, recursive=recursive, maxdepth=maxdepth)

    async def _get_file(self, rpath: str, lpath: Any, **options: Any) -> None:
        await self._on_thread(self.get_file, rpath, lpath, **options)

    async def _put_file(self, lpath: Any, rpath: str, mode: str = "overwrite", **options: Any) -> None:
        await self._on_thread(self.put_file, lpath, rpath, mode=mode, **options)

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Folders are made by the files in them."""

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Folders are made by the files in them."""

    async def open_async(self, path: str, mode: str = "rb", **options: Any) -> TerraceStreamedFile:
        if mode != "rb":
            raise NotImplementedError(f"mode {mode}: a file is written by _pipe_file or _put_file")
        details = await self._info(path)
        if details["type"] != "file":
            raise FileNotFoundError(2, "there is no such file", path)
        return TerraceStreamedFile(self, self._strip_protocol(path), mode, size=details["size"], version=details.get("version", ""))


class TerraceStreamedFile(AbstractAsyncStreamedFile):
    """A file that coroutines read, at the version that it had when it was opened."""

    fs: TerraceFileSystem

    def __init__(self, fs: Any, path: str, mode: str, size: int, version: str) -> None:
        super().__init__(fs, path, mode, cache_type="none", size=size)
        self._version = version

    async def _fetch_range(self, start: int, end: int) -> bytes:
        def read() -> bytes:
            data: bytes = self.fs._again(lambda client: client.read(self.path, start, max(0, end - start), self._version))
            return data

        data: bytes = await self.fs._on_thread(read)
        return data
