"""Memory objects of `terrace files`: results that programs of one machine hand to each other, written once and read by many where they are.

    from terrace.files import Client
    from terrace.objects import Objects

    objects = Objects(Client())
    with objects.create("stage-1/part-0", 4096) as new:     # sealed at the end of the block; given up after an exception
        new.data[:] = result
    with objects.get("stage-1/part-0", timeout=10) as found:
        numpy.frombuffer(found.data)                        # no copy
    objects.delete("stage-1/part-0")

As its client, `Objects` is for one thread at a time and for one process. The memory is shared: the creator of an object writes its bytes until the seal, and
no program writes any others.
"""

from __future__ import annotations

import array
import mmap
import os
import socket
import struct
from types import TracebackType

from .files import Client, Closed, Malformed

__all__ = ["NewObject", "Object", "Objects"]

_MAP, _CREATE, _SEAL, _GET, _RELEASE, _DELETE = range(32, 38)
_HEAD = struct.Struct("<IQB")
_GIVEN = struct.Struct("<QQQ")


class Object:
    """A sealed object. `data` is its bytes, where they are; it is released with the object."""

    def __init__(self, objects: Objects, identity: int, data: memoryview) -> None:
        self._objects, self._identity, self.data = objects, identity, data

    def __enter__(self) -> Object:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Ends the use of the bytes. Fails with BufferError while an array that was made of `data` is alive. A slice of `data` itself
        is not noticed: it must not be used afterwards."""
        if self._identity:
            self.data.release()
            self._objects._let_go(self._identity)
            self._identity = 0


class NewObject:
    """An object that this client writes, at `data`, until it is sealed."""

    def __init__(self, objects: Objects, name: str, identity: int, data: memoryview) -> None:
        self._objects, self.name, self._identity, self.data = objects, name, identity, data

    def __enter__(self) -> NewObject:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.seal()
        else:
            self.abandon()

    def seal(self) -> None:
        """From now on the bytes do not change, and all may get them."""
        if self._identity:
            self.data.release()
            self._objects._named(_SEAL, self.name)
            self._identity = 0

    def abandon(self) -> None:
        """Gives the object up."""
        if self._identity:
            identity, self._identity = self._identity, 0
            self._objects._named(_DELETE, self.name)
            self._objects._let_go(identity)


class Objects:
    """The memory objects of a client's daemon."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._memory = self._map()

    def _map(self) -> mmap.mmap:
        client = self._client
        request = client._send(_MAP, b"")
        fds = array.array("i")
        received, ancillary, _, _ = client._socket.recvmsg(4096, socket.CMSG_SPACE(fds.itemsize))
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        try:
            if not received:
                raise Closed("the daemon closed the connection")
            client._in += received
            _, fields = client._answer(request)
            if not fds:
                raise Malformed("the daemon did not share the memory of objects")
            return mmap.mmap(fds[0], struct.unpack("<Q", fields)[0], mmap.MAP_SHARED)
        finally:
            for fd in fds:
                os.close(fd)

    def _named(self, op: int, name: str) -> None:
        self._client._ask(op, Client._text(name), name)

    def _let_go(self, identity: int) -> None:
        """There is no answer to wait for."""
        self._client._socket.sendall(_HEAD.pack(21, 0, _RELEASE) + struct.pack("<IQ", 1, identity))

    def _given(self, fields: bytes, writes: bool) -> tuple[int, memoryview]:
        identity, offset, size = _GIVEN.unpack_from(fields)
        path, _ = Client._read_text(fields, _GIVEN.size)
        memory = self._memory
        if path and size:
            fd = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_CLOEXEC)
            try:
                protection = mmap.PROT_READ | (mmap.PROT_WRITE if writes else 0)
                memory, offset = mmap.mmap(fd, size, mmap.MAP_SHARED, protection), 0
            finally:
                os.close(fd)
        data = memoryview(memory)[offset : offset + size]
        return identity, data if writes else data.toreadonly()

    def create(self, name: str, size: int, at_once: bool = False) -> NewObject:
        """A new object of `size` bytes. Up to 8 MiB, or if it will be read at once, it is made in memory; a larger one on flash, if the daemon has some."""
        fields = self._client._ask(_CREATE, Client._text(name) + struct.pack("<QB", size, at_once), name)
        return NewObject(self, name, *self._given(fields, True))

    def get(self, name: str, timeout: float = 0.0) -> Object:
        """A sealed object; waits for it for at most `timeout` seconds, then fails with FileNotFoundError."""
        fields = self._client._ask(_GET, Client._text(name) + struct.pack("<Q", int(timeout * 1000)), name)
        return Object(self, *self._given(fields, False))

    def delete(self, name: str) -> None:
        """The name is free at once; readers keep the bytes until they release them."""
        self._named(_DELETE, name)
