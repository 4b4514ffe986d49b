"""sql-load: rows into a table and indexes onto it, Terrace, InnoDB and MyRocks in the same server, equal durability.

LOAD DATA in key order and in random order, INSERT of a hundred rows a statement, INSERT … SELECT, ALTER ADD INDEX (one and
three), ALTER … FORCE (a copy), DROP INDEX. Each engine has 256 MiB and syncs at each commit; the runs take turns.
Environment: RUNS, ROWS, ENGINES, PORTS, MYROCKS. BIG=100000000: that many small rows instead, or as many as an hour allows; see load_big.py.
"""

import os
import random
import shutil
import sys
import time

import report
from engines import ENGINES, options
from tiers import MIB, end, place, run, server_in, setting

RUNS, ROWS, MEMORY = setting("RUNS", 3), setting("ROWS", 400000), 256 * MIB
COLUMNS = "(id BIGINT PRIMARY KEY, k INT NOT NULL, c CHAR(60) NOT NULL, pad VARCHAR(100) NOT NULL{keys})"
KEYS = ", KEY k (k), KEY c (c)"


def write_rows(path, order):
    source = random.Random(1)
    with open(path, "w") as file:
        for number in order:
            file.write(f"{number}\t{source.randrange(ROWS)}\t{source.getrandbits(190):060d}\t{'p' * 60}{number}\n")


def timed(connection, sql):
    started = time.monotonic()
    run(connection, sql)
    return time.monotonic() - started


def insert_in_hundreds(connection, engine):
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE t " + COLUMNS.format(keys=KEYS) + f" ENGINE={engine}")
    source, count = random.Random(2), ROWS // 4
    statements = []
    for first in range(0, count, 100):
        rows = ((first + n, source.randrange(ROWS), f"{source.getrandbits(190):060d}") for n in range(100))
        statements.append("INSERT INTO t VALUES " + ",".join(f"({i},{k},'{c}','{'p' * 60}')" for i, k, c in rows))
    started = time.monotonic()
    cursor.execute("BEGIN")
    for statement in statements:
        cursor.execute(statement)
    cursor.execute("COMMIT")
    return count, time.monotonic() - started


def one_round(connection, engine, files):
    """Seconds and rows of each step, by name."""
    steps = {}

    def load(name, file, keys):
        run(connection, "DROP TABLE IF EXISTS t")
        run(connection, "CREATE TABLE t " + COLUMNS.format(keys=keys) + f" ENGINE={engine}")
        steps[name] = ROWS, timed(connection, f"LOAD DATA INFILE '{files[file]}' INTO TABLE t")

    load("LOAD DATA, random keys, 2 indexes", "random", KEYS)
    load("LOAD DATA, ascending keys, 2 indexes", "ascending", KEYS)
    run(connection, "DROP TABLE t")
    steps["INSERT of 100 rows, 2 indexes"] = insert_in_hundreds(connection, engine)
    load("LOAD DATA, ascending keys", "ascending", "")
    steps["ADD INDEX on numbers"] = ROWS, timed(connection, "ALTER TABLE t ADD KEY k (k)")
    steps["ADD INDEX on texts"] = ROWS, timed(connection, "ALTER TABLE t ADD KEY c (c)")
    steps["DROP INDEX of two"] = ROWS, timed(connection, "ALTER TABLE t DROP KEY k, DROP KEY c")
    steps["ADD INDEX of three"] = ROWS, timed(connection, "ALTER TABLE t ADD KEY k (k), ADD UNIQUE c (c, id), ADD KEY p (pad(20))")
    steps["ALTER by copy, 3 indexes"] = ROWS, timed(connection, "ALTER TABLE t FORCE, ALGORITHM=COPY")
    run(connection, "CREATE TABLE s " + COLUMNS.format(keys=KEYS) + f" ENGINE={engine}")
    steps["INSERT … SELECT, 2 indexes"] = ROWS, timed(connection, "INSERT INTO s SELECT * FROM t")
    run(connection, "DROP TABLE s, t")
    return steps


def main():
    out = sys.argv[1]
    if os.environ.get("BIG"):
        import load_big
        return load_big.main(out)
    directory = place(out, "sql-load")
    numbers = list(range(1, ROWS + 1))
    files = {name: os.path.join(directory, name) for name in ("ascending", "random")}
    write_rows(files["ascending"], numbers)
    random.Random(3).shuffle(numbers)
    write_rows(files["random"], numbers)
    server = server_in(directory, options(directory, MEMORY, 256 * MIB))
    server.start()
    rounds = {engine: [] for engine in ENGINES}
    try:
        connection = server.connect()
        for engine in ENGINES:
            run(connection, f"CREATE DATABASE load_{engine.lower()} CHARACTER SET utf8mb4")
        for _ in range(RUNS):
            for engine in ENGINES:
                connection.select_db(f"load_{engine.lower()}")
                rounds[engine].append(one_round(connection, engine, files))
                print(f"one round of {engine}", file=sys.stderr)
    finally:
        end(server)
        shutil.rmtree(directory, ignore_errors=True)
    figures, ratios = {}, {}
    for step in rounds["Terrace"][0]:
        rates = {e: [steps[step][0] / max(steps[step][1], 1e-6) for steps in rounds[e]] for e in ENGINES}
        figures[step], ratios[step] = rates, report.row(step, rates, "rows/s", 38, 9)
    report.write(out, "sql-load", ratios, figures,
                 [f"{ROWS} rows of about 140 bytes, {MEMORY >> 20} MiB for each engine, a sync at each commit, medians of {RUNS} rounds"])


if __name__ == "__main__":
    main()
