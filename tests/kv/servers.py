"""Servers for the tests of `terrace kv`: ours and a real redis-server, each in a process of its own."""

import os
import pathlib
import signal
import socket
import subprocess
import time

import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TERRACE = os.environ.get("TERRACE", str(TARGET / "debug" / "terrace"))


class Server:
    """A running server. `lines` are what it wrote before it was ready."""

    def __init__(self, process, port, lines):
        self.process, self.port, self.lines = process, port, lines

    def client(self, **options):
        return redis.Redis(port=self.port, socket_timeout=30, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        """As `kill -9`."""
        self.process.kill()
        self.process.wait()

    def stop(self, how=signal.SIGTERM):
        """By a signal; returns the exit code and what it wrote to standard error."""
        self.process.send_signal(how)
        rest = self.process.stderr.read() if self.process.stderr else ""
        return self.process.wait(), rest


def terrace(*args, **options):
    process = subprocess.Popen(
        [TERRACE, "kv", "--port", "0", *map(str, args)], stderr=subprocess.PIPE, text=True, **options
    )
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "ready to accept connections on" in line:
            return Server(process, int(line.split(" on ")[1].split(";")[0].rsplit(":", 1)[1]), lines)
    raise RuntimeError("the server did not start: " + "".join(lines))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def real_redis(directory, *args, port=None):
    program = subprocess.run(
        [ROOT / "scripts" / "redis-server.sh"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    port = port or free_port()
    process = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", *map(str, args)],
        cwd=directory,
        stdout=open(directory / "redis.log", "w"),
    )
    server = Server(process, port, [])
    while True:
        try:
            server.client().ping()
            return server
        except redis.exceptions.AuthenticationError:
            return server
        except redis.exceptions.BusyLoadingError:
            time.sleep(0.01)
        except redis.exceptions.ConnectionError:
            if process.poll() is not None:
                raise RuntimeError((directory / "redis.log").read_text()) from None
            time.sleep(0.01)


LIBRARY = "#!lua name=lib\nredis.register_function('seven', function() return 7 end)"


def fill(client, keys=300):
    """Values of every type, small and large, and a library of functions."""
    pipe = client.pipeline(transaction=False)
    for number in range(keys):
        pipe.set(f"string:{number}", f"value {number} " * (number % 50))
        pipe.rpush(f"list:{number % 20}", *range(number), "x" * number)
        pipe.sadd(f"set:{number % 20}", *range(number + 1))
        pipe.sadd(f"words:{number % 20}", f"word {number}")
        pipe.hset(f"hash:{number % 20}", f"field {number}", f"value {number}" * (number % 9))
        pipe.zadd(f"zset:{number % 20}", {f"member {number}": number / 3})
        pipe.xadd(f"stream:{number % 5}", {"number": number}, id=f"{number + 1}-1")
    pipe.set("int", 12345)
    pipe.set("expires", "late", px=10_000_000)
    pipe.setbit("bits", 70_000, 1)
    pipe.pfadd("hyperloglog", *range(2000))
    pipe.xgroup_create("stream:0", "group", "0")
    pipe.xreadgroup("group", "reader", {"stream:0": ">"}, count=7)
    pipe.execute_command("SELECT", 3)
    pipe.set("of database 3", "x")
    pipe.execute_command("SELECT", 0)
    pipe.function_load(LIBRARY, replace=True)
    pipe.execute()


def value(client, key):
    kind = client.type(key)
    if kind == b"string":
        return client.get(key)
    if kind == b"list":
        return client.lrange(key, 0, -1)
    if kind == b"set":
        return client.smembers(key)
    if kind == b"hash":
        return client.hgetall(key)
    if kind == b"zset":
        return client.zrange(key, 0, -1, withscores=True)
    assert kind == b"stream", kind
    groups = client.xinfo_groups(key)
    pending = [client.xpending_range(key, group["name"], "-", "+", 100) for group in groups]
    for entry in sum(pending, []):
        del entry["time_since_delivered"]
    return client.xrange(key), [(group["name"], group["last-delivered-id"]) for group in groups], pending


def contents(server):
    """Everything that a server has: each key's value and expiry time in each database."""
    found = {}
    for db in (0, 3):
        client = server.client(db=db)
        for key in client.scan_iter(count=1000):
            found[db, key] = value(client, key), client.pexpiretime(key)
    functions = server.client().function_list(withcode=True)
    return found, functions
