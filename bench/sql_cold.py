"""sql-cold: data that is only in the object store (emulated, profile cloud), by how its pages are compressed: size, a full
scan, point reads, and commits while the sinker cannot keep up. And statements whose rows, or whose rows' entries, lie scattered over
leaves that only the store has, with prefetch and without (`terrace_without`); and full scans by size of memory.

Rows of a kilobyte, a third of it noise; scattered ones of half of that. Environment: ROWS, CLIENTS, TIME (seconds of writing), COMPRESSIONS (names by
comma; `-`: say nothing, for builds that know none; empty: none of these), SCATTERED=0: without the scattered ones, SCANS (MiB of memory by comma; empty: none): the scans.
"""

import contextlib
import json
import os
import random
import shutil
import statistics
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "sql"))
from conftest import Server, end, run  # noqa: E402

ROWS, CLIENTS, SECONDS = (int(os.environ.get(name, default)) for name, default in (("ROWS", 60000), ("CLIENTS", 64), ("TIME", 15)))
COMPRESSIONS = [one for one in os.environ.get("COMPRESSIONS", "none,lz4,zstd").split(",") if one]
SCATTERED = int(os.environ.get("SCATTERED", 1))
SCANS = [int(one) for one in os.environ.get("SCANS", "48,1024").split(",") if one]
# How often each statement is played, each time on rows that none has asked for.
TURNS = 5
POINTS = 200
# Full scans with each size of memory, each after a restart.
SCAN_TURNS = 3


def store_requests(connection):
    """Requests and bytes of each purpose to the store."""
    rows = run(connection, "SELECT purpose, requests, bytes FROM information_schema.TERRACE_IO WHERE tier = 'object' AND requests > 0")
    return {purpose: (int(requests), int(size)) for purpose, requests, size in rows}


def less(now, before):
    changed = {purpose: [a - b for a, b in zip(now[purpose], before.get(purpose, (0, 0)))] for purpose in now}
    return {purpose: {"requests": change[0], "bytes": change[1]} for purpose, change in changed.items() if change[0]}


def status(connection, name):
    rows = run(connection, f"SHOW GLOBAL STATUS LIKE 'terrace_{name}'")
    return int(rows[0][1]) if rows else None


def write(server, number, times, errors, until):
    source, connection = random.Random(number), server.connect()
    while time.monotonic() < until:
        started = time.monotonic()
        try:
            run(connection, f"UPDATE t SET n = n + 1 WHERE id = {source.randrange(ROWS)}")
            times.append(time.monotonic() - started)
        except Exception as error:  # what a client would see
            errors.append(str(error))


def load(connection, rows):
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, n INT, noise VARBINARY(400), text TEXT) ENGINE=Terrace")
    for first in range(0, rows, 5000):
        run(connection, "INSERT INTO t SELECT seq, 0, RANDOM_BYTES(330), REPEAT(CONCAT('order ', seq, ' is on its way; '), 22) "
                        f"FROM seq_{first}_to_{min(first + 4999, rows - 1)}")


def measure_scans(server):
    """A full scan of rows that are only in the store, after a start: seconds, requests and bytes that came; `server` is started here."""
    server.start()
    connection = server.connect()
    run(connection, "CREATE DATABASE c")
    run(connection, "USE c")
    load(connection, 4 * ROWS)
    sunk(connection)
    server.stop()
    server.options += ["--terrace-emulate=cloud"]
    figures = []
    for _ in range(SCAN_TURNS):
        server.start()
        connection = server.connect()
        run(connection, "USE c")
        run(connection, "SELECT 1 FROM t LIMIT 1")
        before, started = store_requests(connection), time.monotonic()
        run(connection, "SELECT SUM(LENGTH(text)) FROM t")
        spent = time.monotonic() - started
        asked = less(store_requests(connection), before).values()
        figures.append({"seconds": spent, "requests": sum(one["requests"] for one in asked), "bytes": sum(one["bytes"] for one in asked)})
        server.stop()
    server.start()
    return figures


def measure(server):
    figures = {}
    server.start()
    connection = server.connect()
    run(connection, "CREATE DATABASE c")
    run(connection, "USE c")
    started = time.monotonic()
    load(connection, ROWS)
    figures["load_seconds"] = time.monotonic() - started
    sunk(connection)
    figures["objects"] = {name: status(connection, f"objects_{name}") for name in ("put", "put_bytes", "raw_bytes", "stored_bytes")}
    server.stop()
    server.options += ["--terrace-emulate=cloud"]
    server.start()
    connection = server.connect()
    run(connection, "USE c")
    run(connection, "SELECT 1 FROM t LIMIT 1")
    source = random.Random(5)
    before, times = store_requests(connection), []
    for _ in range(POINTS):
        started = time.monotonic()
        run(connection, f"SELECT LENGTH(text) FROM t WHERE id = {source.randrange(ROWS)}")
        times.append(time.monotonic() - started)
    times.sort()
    figures["points"] = {"p50_ms": 1000 * times[POINTS // 2], "p99_ms": 1000 * times[POINTS * 99 // 100],
                         "store": less(store_requests(connection), before)}
    server.restart()
    connection = server.connect()
    run(connection, "USE c")
    before, started = store_requests(connection), time.monotonic()
    run(connection, "SELECT SUM(LENGTH(text)) FROM t")
    figures["scan"] = {"seconds": time.monotonic() - started, "store": less(store_requests(connection), before),
                       "prefetched": status(connection, "pool_prefetched")}
    times, errors, until = [], [], time.monotonic() + SECONDS
    before = store_requests(connection)
    clients = [threading.Thread(target=write, args=(Database(server), n, times, errors, until)) for n in range(CLIENTS)]
    started = time.monotonic()
    [client.start() for client in clients]
    [client.join() for client in clients]
    spent = time.monotonic() - started
    times.sort()
    figures["writing"] = {"a_second": len(times) / spent, "seconds": spent, "errors": len(errors), "error": errors[:1],
                          **{f"p{p}_ms": 1000 * times[int(len(times) * p / 100)] for p in (50, 95, 99)}, "max_ms": 1000 * times[-1],
                          "slot_waits": status(connection, "slot_writer_waits"), "store": less(store_requests(connection), before)}
    return figures


def sunk(connection):
    for _ in range(600):
        if status(connection, "sink_blocks_waiting") == 0:
            return
        time.sleep(0.1)


def measure_scattered(server, without):
    """Seconds of statements on cold rows, medians; `server` is started here for the second time."""
    server.start()
    connection = server.connect()
    run(connection, "CREATE DATABASE c")
    run(connection, "USE c")
    run(connection, "CREATE TABLE s (id BIGINT PRIMARY KEY, k INT, a BIGINT, b BIGINT, c BIGINT, noise VARBINARY(400), KEY (k), KEY (a), KEY (b), KEY (c)) ENGINE=Terrace")
    hashed = [f"(seq * {factor}) % 4294967296" for factor in (2654435761, 2246822519, 3266489917, 668265263)]
    for first in range(0, 2 * ROWS, 5000):
        run(connection, f"INSERT INTO s SELECT {hashed[0]}, seq, {', '.join(hashed[1:])}, RANDOM_BYTES(400) FROM seq_{first}_to_{first + 4999}")
    sunk(connection)
    server.stop()
    server.options += ["--terrace-emulate=cloud", "--terrace-sink-after-ms=3600000"] + ([f"--terrace-without={without}"] if without else [])
    server.start()
    connection = server.connect()
    run(connection, "USE c")
    run(connection, "SELECT 1 FROM s LIMIT 1")
    place, figures = 1000, {}
    for name, statement in {
        "read 100 rows by a secondary index": "SELECT SUM(LENGTH(noise)) FROM s FORCE INDEX (k) WHERE k BETWEEN {0} AND {0} + 99",
        "the same, descending": "SELECT LENGTH(noise) FROM s FORCE INDEX (k) WHERE k BETWEEN {0} AND {0} + 99 ORDER BY k DESC",
        "the same, FOR UPDATE": "SELECT LENGTH(noise) FROM s FORCE INDEX (k) WHERE k BETWEEN {0} AND {0} + 99 FOR UPDATE",
        "change two indexed columns of 100 rows": "UPDATE s FORCE INDEX (k) SET a = a + 1, b = b + 1 WHERE k BETWEEN {0} AND {0} + 99",
        "delete 100 rows": "DELETE FROM s WHERE k BETWEEN {0} AND {0} + 99",
        "insert a row": "INSERT INTO s SELECT {0} * 2654435761 % 4294967296 + 1, {0}, {0} * 7919177 % 4294967296, {0} * 104729177 % 4294967296, {0} * 1548586301 % 4294967296, RANDOM_BYTES(400)",
    }.items():
        times = []
        for _ in range(TURNS):
            started = time.monotonic()
            run(connection, statement.format(place))
            times.append(time.monotonic() - started)
            place += 1500
        figures[name] = statistics.median(times)
    return figures


class Database:
    """Connections that use the benchmark's database."""

    def __init__(self, server):
        self.server = server

    def connect(self):
        connection = self.server.connect()
        run(connection, "USE c")
        return connection


@contextlib.contextmanager
def place(out, *options):
    """A server of its own, with a store, not started; nothing is left of it."""
    directory = os.path.join(os.path.abspath(out), "sql-cold.data")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(f"{directory}/server")
    server = Server(f"{directory}/server", ["--innodb=OFF", "--default-storage-engine=Aria", *options, "--terrace-log=33554432", "--terrace-sink-after-ms=500",
                                            f"--terrace-object={directory}/store"])
    try:
        yield server
    finally:
        end(server)
        shutil.rmtree(directory, ignore_errors=True)


def main():
    out = sys.argv[1]
    results = {}
    for compression in COMPRESSIONS:
        options = [] if compression == "-" else [f"--terrace-compression={compression}"]
        with place(out, "--terrace-memory=25165824", "--terrace-object-buffer=16777216", *options) as server:
            results[compression] = measure(server)
        print(compression, json.dumps(results[compression]), flush=True)
    scattered = {}
    for name, without in (("with prefetch", ""), ("without", "prefetch")) if SCATTERED else ():
        with place(out, "--terrace-memory=50331648", "--terrace-object-buffer=67108864") as server:
            scattered[name] = measure_scattered(server, without)
    for what, seconds in scattered.get("with prefetch", {}).items():
        other = scattered["without"][what]
        print(f"{what}: {1000 * seconds:.0f} ms, without prefetch {1000 * other:.0f} ms ({other / seconds:.1f} times)", flush=True)
    scans = {}
    for memory in SCANS:
        with place(out, f"--terrace-memory={memory << 20}", "--terrace-object-buffer=67108864") as server:
            scans[memory] = measure_scans(server)
        middle = {what: statistics.median(one[what] for one in scans[memory]) for what in ("seconds", "requests", "bytes")}
        print(f"full scan of {4 * ROWS} rows with {memory} MiB of memory: {middle['seconds']:.2f} s, {middle['requests']:.0f} requests, {middle['bytes'] / 1e6:.0f} MB", flush=True)
    with open(os.path.join(out, "sql-cold.json"), "w") as file:
        json.dump({"name": "sql-cold", "profile": "cloud", "rows": ROWS, "clients": CLIENTS, "figures": results, "scattered": scattered, "scans": scans}, file, indent=2)


if __name__ == "__main__":
    main()
