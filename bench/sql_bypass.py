"""sql-bypass: small commits beside a big load, and beside large values, with and without bypass.

Two sessions change a row and commit, durably, as fast as they can; a third fills an empty table of three indexes again and again, or inserts values
of 1 MiB at a steady rate, or rests. Latency of the commits, by what goes on beside them. Environment: SECONDS of each phase, ROUNDS, ROWS of the
load, VALUES a second.
"""

import json
import os
import random
import shutil
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "sql"))
from conftest import Server, end, run  # noqa: E402

KNOBS = (("SECONDS", 10), ("ROUNDS", 3), ("ROWS", 300000), ("VALUES", 10))
SECONDS, ROUNDS, ROWS, VALUES = (int(os.environ.get(name, default)) for name, default in KNOBS)
PHASES = ["nothing beside", "a load, bypass on", "a load, bypass off", "values, bypass on", "values, bypass off"]


def commits(server, until, latencies):
    connection = server.connect(database="d")
    cursor = connection.cursor()
    source = random.Random(threading.get_ident())
    while time.monotonic() < until:
        started = time.monotonic()
        cursor.execute(f"UPDATE small SET n = n + 1 WHERE id = {source.randrange(1000)}")
        latencies.append(time.monotonic() - started)


def loads(server, until, done):
    connection = server.connect(database="d")
    while time.monotonic() < until:
        run(connection, "CREATE OR REPLACE TABLE big (id INT PRIMARY KEY, k INT, c CHAR(80), KEY k (k), KEY c (c)) ENGINE=Terrace")
        started = time.monotonic()
        run(connection, "INSERT INTO big SELECT * FROM source")
        done.append(ROWS / (time.monotonic() - started))


def values(server, until, done):
    connection = server.connect(database="d")
    run(connection, "CREATE OR REPLACE TABLE large (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB) ENGINE=Terrace")
    began, count = time.monotonic(), 0
    while time.monotonic() < until:
        run(connection, "INSERT INTO large (b) VALUES (%s)", (os.urandom(1 << 20),))
        count += 1
        time.sleep(max(0, began + count / VALUES - time.monotonic()))
    done.append(count / (time.monotonic() - began))


def phase(server, name):
    if name != PHASES[0]:
        run(server.connect(), f"SET GLOBAL terrace_bypass = {int(name.endswith('on'))}")
    latencies, done = [], []
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=commits, args=(server, until, latencies)) for _ in range(2)]
    if name != PHASES[0]:
        beside = values if name.startswith("values") else loads
        threads.append(threading.Thread(target=beside, args=(server, until, done)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies, done


def at(latencies, share):
    return sorted(latencies)[min(int(len(latencies) * share), len(latencies) - 1)] * 1000


def main():
    out = sys.argv[1]
    directory = os.path.join(os.path.abspath(out), "sql-bypass.data")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    server = Server(directory, ["--terrace-memory=268435456", "--terrace-log=134217728", "--skip-log-bin"])
    server.start()
    found = {name: ([], []) for name in PHASES}
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE small (id INT PRIMARY KEY, n INT) ENGINE=Terrace")
        run(connection, "INSERT INTO small SELECT seq, 0 FROM seq_0_to_999")
        run(connection, f"CREATE TABLE source ENGINE=Aria AS SELECT seq, seq * 7919 % 100003, MD5(seq) FROM seq_1_to_{ROWS}")
        for _ in range(ROUNDS):
            for name in PHASES:
                latencies, done = phase(server, name)
                found[name][0].extend(latencies)
                found[name][1].extend(done)
    finally:
        end(server)
        shutil.rmtree(directory, ignore_errors=True)
    result = {}
    for name, (latencies, done) in found.items():
        figures = {f"p{share}": at(latencies, share / 100) for share in (50, 95, 99)} | {"max": max(latencies) * 1000}
        figures["commits/s"] = len(latencies) / (SECONDS * ROUNDS)
        figures["rows/s beside"] = sum(done) / len(done) if done else 0
        result[name] = figures
        text = "   ".join(f"{key} {value:.1f}" for key, value in figures.items())
        print(f"{name:22} {text} (ms)")
    with open(os.path.join(out, "sql-bypass.json"), "w") as file:
        json.dump({"seconds": SECONDS, "rounds": ROUNDS, "rows": ROWS, "phases": result}, file, indent=1)


if __name__ == "__main__":
    main()
