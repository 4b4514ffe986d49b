"""A client of `terrace files`: reads through the memory that the daemon shares.

    from terrace.files import Client

    with Client() as client:
        data = client.read("table/part-0.parquet")
        for path, data in client.read_many(paths):
            ...

A client is for one thread at a time and for one process: after a fork, connect again. The protocol is in docs/files.md.
"""

from __future__ import annotations

import array
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple

from ._terrace import SharedFiles

__all__ = ["Busy", "Changed", "Client", "Closed", "Entry", "FilesError", "Info", "Malformed", "Unavailable", "default_socket"]

_MAGIC = int.from_bytes(b"TFS1", "little")
_VERSION = 2
_HELLO, _READ, _READ_MANY, _RELEASE, _STAT, _LIST, _PUT, _OPEN_WRITE, _WRITE, _COMMIT, _ABORT, _DELETE, _STATUS, _EVICT, _WARM = range(1, 16)
_BEGIN_GROUP, _RESUME_GROUP, _OPEN_IN_GROUP, _COMMIT_GROUP, _ABORT_GROUP = range(17, 22)
_OK, _MORE = 0, 1
_ALL = 2**64 - 1
_HEAD = struct.Struct("<IQB")
_PART = struct.Struct("<IQI")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
# Paths in one request of a batch, and requests of it in flight: their files are in memory together, under lease.
_BATCH = 100
_AHEAD = 6
# Bytes of a block, in which long files are brought.
_BLOCK = 8 << 20
# Times that a read of several parts begins because the file changed between two of them.
_ATTEMPTS = 5
# Files that are looked for in the shared memory at a time: a caller that takes them one by one holds the bytes of these.
_LOOK = 64
# Bytes of one write.
_WRITE_BYTES = 1 << 20
# Seconds for which a write waits for room in the daemon.
_PATIENCE = 30.0


class FilesError(OSError):
    """The daemon refused a request; the message says why."""


class Unavailable(FilesError):
    """The object store does not answer."""


class Changed(FilesError):
    """The file changed while it was read."""


class Busy(FilesError):
    """A limit of the daemon is reached: its memory is under lease, or too many requests wait. Try again later."""


class Closed(FilesError, ConnectionError):
    """The daemon cannot be reached, or closed the connection."""


class Malformed(FilesError):
    """The other end does not speak this protocol."""


def _error(status: int, message: str, path: str) -> OSError:
    if status == 16:
        return FileNotFoundError(2, message, path)
    if status == 22:
        return FileExistsError(17, message, path)
    kinds: dict[int, type[FilesError]] = {17: Changed, 18: Unavailable, 20: Busy, 23: Malformed}
    return kinds.get(status, FilesError)(f"{path}: {message}" if path else message)


class Info(NamedTuple):
    version: str
    size: int


class Entry(NamedTuple):
    is_folder: bool
    path: str
    size: int
    modified_ms: int


def default_socket() -> str:
    """Where the daemon listens unless it is told otherwise."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(runtime, "terrace-files.sock") if runtime else f"/tmp/terrace-files-{os.getuid()}.sock"


class Client:
    """A connection to the daemon. `target` is the store that it must serve; without one, any."""

    def __init__(self, socket_path: str | None = None, target: str = "") -> None:
        self.pid = os.getpid()
        self._in = bytearray()
        self._released = bytearray()
        self._next = 1
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            try:
                self._socket.connect(socket_path or default_socket())
            except OSError as error:
                raise Closed(f"no daemon listens at {socket_path or default_socket()}: {error}") from error
            # The daemon is this user's, or root's: another's would see paths and give bytes of its own.
            owner = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if owner not in (0, os.getuid()):
                raise FilesError(f"the daemon at {socket_path or default_socket()} is run by user {owner}")
            hello = _U32.pack(_MAGIC) + _U32.pack(_VERSION) + self._text(target)
            self._socket.sendall(_HEAD.pack(9 + len(hello), 0, _HELLO) + hello)
            fds = array.array("i")
            received, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(fds.itemsize))
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
            try:
                self._in += received
                if not received:
                    raise Closed("the daemon closed the connection")
                _, fields = self._answer(0)
                _, size, _, _, _ = struct.unpack_from("<IQIII", fields)
                if not fds:
                    raise Malformed("the daemon did not share its memory")
                self._arena = mmap.mmap(fds[0], size, mmap.MAP_SHARED, mmap.PROT_READ)
                self._shared = SharedFiles(fds[0], fields, self._socket.fileno())
                self.store = self._shared.store
            finally:
                for fd in fds:
                    os.close(fd)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def has_ended(self) -> bool:
        """Whether the daemon has closed the connection. For one on which no answer is on its way."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def cached_size(self, path: str) -> int | None:
        """The file's size, if its first block is cached and fresh. Asks the daemon nothing."""
        found = self._shared.stat(path)
        return None if found is None else found[1]

    def cached(self, path: str, offset: int, length: int) -> bytes | None:
        """Bytes of the file, all of one version, if they are cached and fresh. Asks the daemon nothing."""
        return self._shared.read(path, offset, length, "")

    @staticmethod
    def _text(text: str) -> bytes:
        data = text.encode()
        return _U32.pack(len(data)) + data

    @staticmethod
    def _read_text(fields: bytes, at: int) -> tuple[str, int]:
        (size,) = _U32.unpack_from(fields, at)
        return fields[at + 4 : at + 4 + size].decode(), at + 4 + size

    def _send(self, op: int, fields: bytes) -> int:
        """Sends a request, and before it the leases that have ended."""
        request, self._next = self._next, self._next + 1
        frame = _HEAD.pack(9 + len(fields), request, op) + fields
        if self._released:
            count = _U32.pack(len(self._released) // 4)
            frame = _HEAD.pack(13 + len(self._released), 0, _RELEASE) + count + self._released + frame
            self._released = bytearray()
        self._socket.sendall(frame)
        return request

    def _release(self) -> None:
        """Sends the leases that have ended now, not with the next request. There is no answer to wait for."""
        if self._released:
            count = _U32.pack(len(self._released) // 4)
            self._socket.sendall(_HEAD.pack(13 + len(self._released), 0, _RELEASE) + count + self._released)
            self._released = bytearray()

    def _answer(self, request: int, path: str = "") -> tuple[int, bytes]:
        """The next frame, which is an answer to `request`: its status and its fields."""
        data = self._in
        while True:
            if len(data) >= 4:
                size = 4 + int.from_bytes(data[:4], "little")
                if len(data) >= size:
                    break
            received = self._socket.recv(1 << 18)
            if not received:
                raise Closed("the daemon closed the connection")
            data += received
        _, answers, status = _HEAD.unpack_from(data)
        fields = bytes(memoryview(data)[13:size])
        del data[:size]
        if status > _MORE:
            raise _error(status, self._read_text(fields, 0)[0], path)
        if answers != request:
            raise Malformed("the daemon answers no request")
        return status, fields

    def _ask(self, op: int, fields: bytes, path: str = "") -> bytes:
        return self._answer(self._send(op, fields), path)[1]

    def _take(self, fields: bytes, at: int) -> tuple[Info, bytes, int]:
        """Copies the bytes of a read, and ends their leases."""
        version, at = self._read_text(fields, at)
        size, count = struct.unpack_from("<QI", fields, at)
        at += 12
        if count == 1:
            lease, offset, length = _PART.unpack_from(fields, at)
            self._released += _U32.pack(lease)
            return Info(version, size), self._arena[offset : offset + length], at + 16
        pieces = []
        for lease, offset, length in _PART.iter_unpack(fields[at : at + 16 * count]):
            pieces.append(self._arena[offset : offset + length])
            self._released += _U32.pack(lease)
        return Info(version, size), b"".join(pieces), at + 16 * count

    def read_part(self, path: str, offset: int = 0, length: int = _ALL, version: str = "") -> tuple[Info, bytes]:
        """Bytes from `offset`, as many as the daemon leases at a time, and the file's version and size. Fails with `Changed` if the file is
        not `version`, unless that is empty."""
        fields = self._text(path) + struct.pack("<QQ", offset, length) + self._text(version)
        info, data, _ = self._take(self._ask(_READ, fields, path), 0)
        if len(data) > _WRITE_BYTES:
            self._release()
        return info, data

    def read(self, path: str, offset: int = 0, length: int = _ALL, version: str = "") -> bytes:
        """Bytes from `offset`, all of one version. What is cached and fresh is copied from the shared memory without a question to the daemon."""
        found = self._shared.read(path, offset, length, version)
        if found is not None:
            return found
        for attempt in range(_ATTEMPTS):
            try:
                return self._read_parts(path, offset, length, version)
            except Changed:
                if version or attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError

    def _read_parts(self, path: str, offset: int, length: int, version: str) -> bytes:
        info, data = self.read_part(path, offset, length, version)
        wanted = min(length, max(0, info.size - offset))
        if len(data) == wanted:
            return data
        parts, got = [data], len(data)
        while got < wanted:
            _, data = self.read_part(path, offset + got, wanted - got, info.version)
            if not data:
                raise Malformed(f"{path}: the daemon gave fewer bytes than the file has")
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_many(self, paths: Sequence[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """The whole of each file, in the order in which they come: first what is cached and fresh, from the shared memory, then the others, fetched at
        the store's full parallelism. A file that cannot be read has its error in place of its bytes."""
        missing: list[str] = []
        for at in range(0, len(paths), _LOOK):
            some = list(paths[at : at + _LOOK])
            for path, copied in zip(some, self._shared.read_many(some), strict=True):
                if copied is None:
                    missing.append(path)
                else:
                    yield path, copied
        paths = missing
        chunks = [paths[at : at + _BATCH] for at in range(0, len(paths), _BATCH)]
        waiting: dict[int, Sequence[str]] = {}
        sent = 0
        rest = struct.pack("<QQI", 0, _ALL, 0)
        while sent < len(chunks) or waiting:
            while sent < len(chunks) and len(waiting) < _AHEAD:
                fields = b"".join([_U32.pack(len(chunks[sent])), *(self._text(path) + rest for path in chunks[sent])])
                waiting[self._send(_READ_MANY, fields)] = chunks[sent]
                sent += 1
            request, status, group = self._group(waiting)
            if status == _OK:
                del waiting[request]
            for path, info, data in group:
                if info is not None and isinstance(data, bytes) and len(data) < info.size:
                    # Longer than what is leased at a time. Not now: other answers are on their way.
                    yield path, Busy(f"{path}: it is too long for a batch; read it alone")
                else:
                    yield path, data
        self._release()

    def prefetch(self, paths: Sequence[str]) -> int:
        """Brings files into the daemon's memory, at the store's full parallelism, and copies nothing; returns how many are there. A file that cannot be
        had is left out: a read of it says why."""
        count = 0
        ranges = [(path, 0) for path in paths]
        waiting: dict[int, Sequence[str]] = {}
        while ranges or waiting:
            while ranges and len(waiting) < _AHEAD:
                chunk, ranges = ranges[:_BATCH], ranges[_BATCH:]
                fields = b"".join([_U32.pack(len(chunk)), *(self._text(path) + struct.pack("<QQI", at, _BLOCK, 0) for path, at in chunk)])
                # The first block of a file tells of the others: those that are asked for are no paths to report.
                waiting[self._send(_WARM, fields)] = [path if at == 0 else "" for path, at in chunk]
            request, status, group = self._group(waiting)
            if status == _OK:
                del waiting[request]
            for path, info, _ in group:
                if path and info is not None:
                    count += 1
                    ranges.extend((path, at) for at in range(_BLOCK, info.size, _BLOCK))
        return count

    def _group(self, waiting: dict[int, Sequence[str]]) -> tuple[int, int, list[tuple[str, Info | None, bytes | OSError]]]:
        while len(self._in) < 4 or len(self._in) < 4 + int.from_bytes(self._in[:4], "little"):
            received = self._socket.recv(1 << 18)
            if not received:
                raise Closed("the daemon closed the connection")
            self._in += received
        (request,) = _U64.unpack_from(self._in, 4)
        paths = waiting.get(request)
        if paths is None:
            raise Malformed("the daemon answers no request")
        try:
            status, fields = self._answer(request)
        except OSError as error:
            return request, _OK, [(path, None, error) for path in paths]
        (count,) = _U32.unpack_from(fields)
        at = 4
        group: list[tuple[str, Info | None, bytes | OSError]] = []
        for _ in range(count):
            index, code = struct.unpack_from("<IB", fields, at)
            path = paths[index]
            if code == _OK:
                info, data, at = self._take(fields, at + 5)
                group.append((path, info, data))
            else:
                message, at = self._read_text(fields, at + 5)
                group.append((path, None, _error(code, message, path)))
        return request, status, group

    def stat(self, path: str) -> Info:
        found = self._shared.stat(path)
        if found is not None:
            return Info(*found)
        fields = self._ask(_STAT, self._text(path), path)
        version, at = self._read_text(fields, 0)
        return Info(version, _U64.unpack_from(fields, at)[0])

    def list(self, folder: str = "", recursive: bool = False) -> list[Entry]:
        """What lies directly in the folder, or every file below it."""
        request = self._send(_LIST, self._text(folder) + bytes([recursive]))
        status, found = _MORE, []
        while status == _MORE:
            status, fields = self._answer(request, folder)
            (count,) = _U32.unpack_from(fields)
            at = 4
            for _ in range(count):
                kind = fields[at]
                path, at = self._read_text(fields, at + 1)
                size, modified = struct.unpack_from("<QQ", fields, at)
                at += 16
                found.append(Entry(kind == 0, path, size, modified))
        return found

    def write(self, path: str, pieces: Iterable[bytes], exclusive: bool = False) -> str:
        """Writes a file: when it returns, the store has it. Returns its version. Exclusive: fails if the file exists."""
        handle = self.open_write(path, exclusive)
        try:
            for piece in pieces:
                self.write_part(handle, piece, path)
        except BaseException:
            self.abort(handle)
            raise
        return self.commit(handle, path)

    def open_write(self, path: str, exclusive: bool = False, group: str = "") -> int:
        """Begins a file. In a group, its `commit` returns when the daemon keeps it, and makes nothing visible."""
        fields = self._text(path) + bytes([exclusive])
        answer = self._ask(_OPEN_IN_GROUP, self._text(group) + fields, path) if group else self._ask(_OPEN_WRITE, fields, path)
        return int(_U64.unpack(answer)[0])

    def begin_group(self) -> str:
        """Begins a group of files, which `commit_group` makes visible together, or not at all. Its name. The daemon needs flash for that."""
        return self._read_text(self._ask(_BEGIN_GROUP, b""), 0)[0]

    def resume_group(self, group: str) -> int:
        """Goes on with a group over a new connection, after the daemon was started again. The number of files that it has."""
        return int(_U64.unpack(self._ask(_RESUME_GROUP, self._text(group)))[0])

    def commit_group(self, group: str) -> int:
        """When it returns, the store has all files of the group; after an error, none of them is visible. Their number."""
        return int(_U64.unpack(self._ask(_COMMIT_GROUP, self._text(group)))[0])

    def abort_group(self, group: str) -> None:
        self._ask(_ABORT_GROUP, self._text(group))

    def write_part(self, handle: int, data: bytes, path: str = "") -> None:
        """While the daemon has no room, as the store is slower than its writers, this waits."""
        for at in range(0, len(data), _WRITE_BYTES):
            pause, until = 0.002, time.monotonic() + _PATIENCE
            while True:
                try:
                    self._ask(_WRITE, _U64.pack(handle) + data[at : at + _WRITE_BYTES], path)
                    break
                except Busy:
                    if time.monotonic() > until:
                        raise
                    time.sleep(pause)
                    pause = min(0.1, pause * 2)

    def commit(self, handle: int, path: str = "") -> str:
        return self._read_text(self._ask(_COMMIT, _U64.pack(handle), path), 0)[0]

    def abort(self, handle: int) -> None:
        try:
            self._ask(_ABORT, _U64.pack(handle))
        except FilesError:
            pass  # It failed before, and is gone already.

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files; one that does not exist is no error."""
        for at in range(0, len(paths), _BATCH):
            chunk = paths[at : at + _BATCH]
            fields = self._ask(_DELETE, b"".join([_U32.pack(len(chunk)), *map(self._text, chunk)]))
            place = 4
            for path in chunk:
                code = fields[place]
                message, place = self._read_text(fields, place + 1)
                if code != _OK:
                    raise _error(code, message, path)

    def status(self) -> str:
        """The daemon's figures, as JSON."""
        return self._read_text(self._ask(_STATUS, b""), 0)[0]

    def evict(self, prefix: str) -> int:
        """Drops what is cached of files whose path starts with `prefix`; of how many."""
        return int(_U64.unpack(self._ask(_EVICT, self._text(prefix)))[0])
