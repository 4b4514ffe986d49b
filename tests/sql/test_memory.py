"""One setting bounds the engine: what a server has resident through a load of ten times as much, with compression, flash and
prefetched scans. `TERRACE_MEMORY_MIB` takes other settings, as "64,256". Not here: statements that lock many rows. The locks of an
UPDATE that reads 328,000 rows took 80 MiB (`locks_max` bounds them, `memory` does not)."""

import os
import threading
import time

import pytest
from conftest import end, private
from test_object import status
from test_resize import resident

MIB = 1 << 20
# Statements fill and read while the server is watched; a row is about a kilobyte, half of it does not compress.
BATCH = 8000
PAD = "CONCAT(REPEAT('x', 400), SHA2(seq, 512), SHA2(seq + 1, 512), SHA2(seq + 2, 512), SHA2(seq + 3, 512))"


class Watch:
    """The most that a server has resident, in bytes, from 20 looks a second."""

    def __init__(self, server):
        self.server, self.done, self.most = server, False, 0
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.done:
            self.most = max(self.most, resident(self.server))
            time.sleep(0.05)

    def next(self):
        """The most since the last call."""
        most, self.most = self.most, 0
        return most

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done = True
        self.thread.join()


@pytest.mark.parametrize("mib", [int(mib) for mib in os.environ.get("TERRACE_MEMORY_MIB", "32").split(",")])
def test_resident_memory_stays_within_the_setting_through_a_load_of_ten_times_as_much(mib, tmp_path, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    sizes = {"memory": mib, "object-buffer": 2 * mib, "flash": 4 * mib, "log": 32}
    options = [f"--terrace-{name}={size * MIB}" for name, size in sizes.items()]
    places = [f"--terrace-object={tmp_path}/store", f"--terrace-flash-path={tmp_path}/flash", "--terrace-sink-after-ms=500"]
    server = private(options + places)
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        # What the server itself takes for such statements, before there is anything of the engine's.
        columns = "(id INT PRIMARY KEY, k INT, pad VARCHAR(2000), KEY (k))"
        run(connection, f"CREATE TABLE other {columns} ENGINE=MyISAM")
        run(connection, f"INSERT INTO other SELECT seq, seq, {PAD} FROM seq_1_to_{BATCH}")
        run(connection, "SELECT SUM(LENGTH(pad)) FROM other IGNORE INDEX (k)")
        before = resident(server)
        run(connection, f"CREATE TABLE t {columns} ENGINE=Terrace")
        rows = 10 * mib * MIB // 1000 // BATCH * BATCH
        since = time.monotonic()
        with Watch(server) as watch:
            phases = {}
            for first in range(1, rows, BATCH):
                run(connection, f"INSERT INTO t SELECT seq, seq * 7919 % {rows}, {PAD} FROM seq_{first}_to_{first + BATCH - 1}")
            phases["load"] = watch.next()
            assert run(connection, "SELECT COUNT(*), MIN(LENGTH(pad)) FROM t IGNORE INDEX (k)") == [(rows, 912)]
            phases["scan"] = watch.next()
            run(connection, f"SELECT SUM(LENGTH(pad)) FROM t FORCE INDEX (k) WHERE k < {rows // 50}")
            phases["by key"] = watch.next()
        shares = {phase: round((most - before) / mib / MIB, 2) for phase, most in phases.items()}
        shown = {name: int(status(connection, run, name)) for name in ["pool_prefetched", "objects_pages_compressed", "sink_blocks"]}
        print(f"memory = {mib} MiB: {rows} rows in {time.monotonic() - since:.0f} s, {before // MIB} MiB before; at most more, of the setting: {shares}; {shown}")
        assert all(n > 100 for n in [shown["pool_prefetched"], shown["objects_pages_compressed"]]) and shown["sink_blocks"] > 10, shown
        assert 0.5 < max(shares.values()) < 1.15, shares
    finally:
        end(server)
