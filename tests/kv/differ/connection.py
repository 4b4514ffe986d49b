"""A connection that shows replies as they are: RESP2 and RESP3, types kept apart."""

import socket


class Error(str):
    """An error that a server replied."""


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, args):
        parts = [b"*%d\r\n" % len(args)]
        for arg in args:
            data = arg if isinstance(arg, bytes) else str(arg).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
        self.socket.sendall(b"".join(parts))

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind in b"+:,(#":
            return (kind.decode(), rest)
        if kind == b"-":
            return Error(rest.decode("latin1"))
        if kind == b"_":
            return None
        count = int(rest)
        if kind in b"$=":
            if count < 0:
                return None
            return self.file.read(count + 2)[:-2]
        if count < 0:
            return ("nil array",)
        if kind == b"%":
            count *= 2
        return [kind.decode()] + [self.read() for _ in range(count)]

    def call(self, *args):
        self.send(args)
        return self.read()
