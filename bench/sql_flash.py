"""sql-flash: a full scan of a table that local flash has, with a server whose memory has none of it (profile cloud, emulated).

Rows of a kilobyte, without an object store. Environment: ROWS, RUNS (scans, a restart before each).
"""

import json
import os
import shutil
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "sql"))
from conftest import Server, end, run, wait_until  # noqa: E402

ROWS, RUNS = (int(os.environ.get(name, default)) for name, default in (("ROWS", 60000), ("RUNS", 5)))
SCAN = "SELECT SUM(LENGTH(text)) FROM c.t"
SEEN = ("reads_flash", "reads_volume", "pool_misses", "pool_prefetched", "flash_pages", "flash_pages_restored")


def status(connection):
    text = run(connection, "SHOW ENGINE TERRACE STATUS")[0][2]
    lines = dict(line.split(" ", 1) for line in text.strip().splitlines())
    return {name: int(lines[name]) for name in SEEN}


def scan(server):
    connection = server.connect()
    run(connection, "SELECT 1 FROM c.t LIMIT 1")
    before = wait_until(lambda: (seen := status(connection))["flash_pages_restored"] >= 0.9 * seen["flash_pages"] and seen)
    started = time.monotonic()
    run(connection, SCAN)
    seconds, now = time.monotonic() - started, status(connection)
    return {"seconds": seconds, **{name: now[name] - before[name] for name in SEEN[:4]}}


def fill(server):
    """Makes the table, and scans it until flash has what leaves memory."""
    server.start()
    connection = server.connect()
    run(connection, "CREATE DATABASE c")
    connection.select_db("c")
    run(connection, "CREATE TABLE c.t (id INT PRIMARY KEY, n INT, text TEXT) ENGINE=Terrace")
    for first in range(0, ROWS, 5000):
        run(connection, f"INSERT INTO c.t SELECT seq, 0, REPEAT(CONCAT('order ', seq, ' is on its way; '), 34) FROM seq_{first}_to_{min(first + 4999, ROWS - 1)}")
    for _ in range(4):
        run(connection, SCAN)
        time.sleep(1)  # the queue to flash is short
    server.restart()
    run(server.connect(), SCAN)
    time.sleep(1)


def main():
    out = sys.argv[1]
    directory = os.path.join(os.path.abspath(out), "sql-flash.data")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(f"{directory}/server")
    options = ["--terrace-memory=25165824", "--terrace-flash=268435456", f"--terrace-flash-path={directory}/flash"]
    server = Server(f"{directory}/server", ["--innodb=OFF", "--default-storage-engine=Aria", *options])
    try:
        fill(server)
        server.options += ["--terrace-emulate=cloud"]
        scans = []
        for _ in range(RUNS):
            server.restart()
            scans.append(scan(server))
            print(json.dumps(scans[-1]), flush=True)
    finally:
        end(server)
        shutil.rmtree(directory, ignore_errors=True)
    seconds = [one["seconds"] for one in scans]
    figures = {"median_seconds": statistics.median(seconds), "least_seconds": min(seconds), "scans": scans}
    print({name: figures[name] for name in ("median_seconds", "least_seconds")})
    with open(os.path.join(out, "sql-flash.json"), "w") as file:
        json.dump({"name": "sql-flash", "profile": "cloud", "rows": ROWS, "figures": figures}, file, indent=2)


if __name__ == "__main__":
    main()
