"""Terrace, InnoDB and MyRocks in one server with the same memory and durability, and what the server's process spends."""

import os
import sys
import threading

from tiers import listed, setting

MYROCKS = setting("MYROCKS", "")  # a path of ha_rocksdb.so; none if it is empty
ENGINES = [one for one in listed("ENGINES", "Terrace,InnoDB,ROCKSDB") if one != "ROCKSDB" or MYROCKS]
TICKS = os.sysconf("SC_CLK_TCK")


def options(directory, memory, log, direct=False):
    """Options of a server in `directory`: `memory` bytes for each engine, a sync at each commit. `direct`: MyRocks, too, bypasses the kernel's cache."""
    base = [f"--terrace-memory={memory}", f"--innodb-buffer-pool-size={memory}", "--innodb-flush-log-at-trx-commit=1",
            f"--innodb-log-file-size={log}", f"--terrace-log={log}", "--innodb-flush-method=O_DIRECT"]
    if "ROCKSDB" not in ENGINES:
        if not MYROCKS:
            print("MyRocks: left out", file=sys.stderr)
        return base
    os.makedirs(os.path.join(directory, "plugins"), exist_ok=True)
    os.symlink(MYROCKS, os.path.join(directory, "plugins", "ha_rocksdb.so"))
    base += ["--plugin-load-add=ha_rocksdb", f"--rocksdb-block-cache-size={memory}", "--rocksdb-flush-log-at-trx-commit=1",
             "--rocksdb-strict-collation-check=OFF", "--rocksdb-commit-in-the-middle=ON", f"--rocksdb-max-total-wal-size={log}"]
    if direct:
        base += ["--rocksdb-use-direct-reads=ON", "--rocksdb-use-direct-io-for-flush-and-compaction=ON",
                 f"--rocksdb-db-write-buffer-size={max(memory // 4, 4 << 20)}"]
    return base


def process(server):
    return open(os.path.join(server.directory, "pid")).read().strip()


def cpu(server):
    """Seconds of the server's process so far, user and system."""
    fields = open(f"/proc/{process(server)}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(server):
    """Bytes of memory that the server's process holds."""
    [line] = [line for line in open(f"/proc/{process(server)}/status") if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


def io_bytes(server):
    """Bytes that the server's process has had read from and written to devices so far."""
    fields = dict(line.split(": ") for line in open(f"/proc/{process(server)}/io").read().splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def stop(server):
    """Stops the server in peace. Returns the bytes that its process had had written when it was last seen, to a few milliseconds of its end."""
    seen, ended = [io_bytes(server)[1]], threading.Event()

    def look():
        while not ended.wait(0.005):
            try:
                seen[0] = max(seen[0], io_bytes(server)[1])
            except (OSError, ValueError, KeyError):
                return

    looking = threading.Thread(target=look)
    looking.start()
    server.stop()
    ended.set()
    looking.join()
    return seen[0]


def size_on_disk(server, engine, database):
    """Bytes of the files that hold the engine's tables, logs of fixed size left out."""
    data = os.path.join(server.directory, "data")
    places = {"Terrace": [os.path.join(data, "terrace")], "InnoDB": [os.path.join(data, database)], "ROCKSDB": [os.path.join(data, "#rocksdb")]}
    def is_log(name):
        return name.startswith("log.") or name.endswith(".log")

    total = 0
    for place in places[engine]:
        for at, _, names in os.walk(place):
            total += sum(os.stat(os.path.join(at, name)).st_blocks * 512 for name in names if not is_log(name))
    return total
