"""sql-tables: thousands of tables: making them, opening each for the first time after a start, asking each again, listing them, dropping them,
and the memory that the server holds for them. And ordered reads of one table with thousands of partitions, in little memory: a cursor is open in each
partition, and each reads a row before the first is returned. Each engine has a server of its own, so that its memory is its own.

Environment: TABLES (0: only the partitions), MEMORY (bytes for the engine), THREADS (of the look at each table), PARTITIONS (0: only the tables),
PARTITIONS_MEMORY (bytes for the engine), SESSIONS (that read partitions at once), ENGINES, PORTS, MYROCKS.
"""

import os
import random
import shutil
import statistics
import sys
import threading
import time

import report
from engines import ENGINES, MYROCKS, options, resident
from tiers import MIB, end, place, run, server_in, setting

TABLES, MEMORY, THREADS = setting("TABLES", 5000), setting("MEMORY", 256 * MIB), setting("THREADS", 4)
PARTITIONS, PARTITIONS_MEMORY, SESSIONS = setting("PARTITIONS", 8192), setting("PARTITIONS_MEMORY", 32 * MIB), setting("SESSIONS", 64)
STEPS = ["create", "insert", "first look", "second look", "update", "list", "drop"]


def each_table(server, sql):
    """Runs a statement for each table, in an order of its own, with several clients; tables a second."""
    order = list(range(TABLES))
    random.Random(4).shuffle(order)
    failed = []

    def work(mine):
        try:
            connection = server.connect(database="d")
            for table in mine:
                run(connection, sql.format(table))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(order[n::THREADS],)) for n in range(THREADS)]
    started = time.monotonic()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if failed:
        raise failed[0]
    return TABLES / (time.monotonic() - started)


def timed(connection, sql):
    started = time.monotonic()
    run(connection, sql)
    return TABLES / (time.monotonic() - started)


def measure(out, engine):
    directory = place(out, "sql-tables")
    more = options(directory, MEMORY, 256 * MIB) + [f"--table-open-cache={TABLES + 2000}", f"--table-definition-cache={TABLES + 2000}",
                                                    f"--innodb-open-files={TABLES + 2000}", f"--open-files-limit={4 * TABLES + 10000}"]
    server = server_in(directory, more)
    server.start()
    figures = {}
    try:
        run(server.connect(), "CREATE DATABASE d")
        figures["create"] = each_table(server, f"CREATE TABLE t{{}} (id INT PRIMARY KEY, a INT, b VARCHAR(100), KEY (a), KEY (b)) ENGINE={engine}")
        figures["insert"] = each_table(server, "INSERT INTO t{0} VALUES (1, {0}, 'one'), (2, {0}, 'two')")
        server.restart()
        connection = server.connect(database="d")
        run(connection, "SELECT a FROM t0 WHERE id = 1")
        before = resident(server)
        figures["first look"] = each_table(server, "SELECT b FROM t{} WHERE id = 1")
        figures["bytes held for a table"] = (resident(server) - before) / TABLES
        figures["second look"] = each_table(server, "SELECT b FROM t{} WHERE id = 2")
        figures["update"] = each_table(server, "UPDATE t{} SET a = a + 1 WHERE id = 1")
        figures["list"] = timed(connection, "SELECT COUNT(*), SUM(table_rows) FROM information_schema.tables WHERE table_schema = 'd'")
        figures["bytes in all"] = resident(server)
        figures["drop"] = timed(connection, "DROP DATABASE d")
    finally:
        end(server)
        shutil.rmtree(directory, ignore_errors=True)
    return figures


# How the partitions are read: of one item the last and the first values, the first ones of all items, the covering index alone, and far into the merge.
ORDERED = {
    "last three of an item": "SELECT * FROM h WHERE itemid = 7 ORDER BY clock DESC LIMIT 3",
    "first three of an item": "SELECT * FROM h WHERE itemid = 7 ORDER BY clock LIMIT 3",
    "first five in the index": "SELECT * FROM h FORCE INDEX (h1) ORDER BY itemid, clock LIMIT 5",
    "last three, covering": "SELECT clock FROM h WHERE itemid = 7 ORDER BY clock DESC LIMIT 3",
    "20,000 in the index": "SELECT * FROM h FORCE INDEX (h1) ORDER BY itemid, clock LIMIT 20000",
}
ROUNDS, ROWS = 5, 120000


def at_once(server, answers):
    """Reads of one partition table by many sessions at once, each with a cursor in each partition; reads a second."""
    failed = []
    began = threading.Barrier(SESSIONS + 1)

    def work(number):
        try:
            connection = server.connect(database="d", read_timeout=3600)
            began.wait()
            for n in range(2):
                sql = list(ORDERED.values())[(number + n) % 3]
                if run(connection, sql) != answers[sql]:
                    raise AssertionError(f"another answer: {sql}")
        except Exception as error:
            failed.append(error)
            began.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(SESSIONS)]
    [thread.start() for thread in threads]
    try:
        began.wait()
    except threading.BrokenBarrierError:
        pass
    started = time.monotonic()
    [thread.join() for thread in threads]
    if failed:
        raise failed[0]
    return 2 * SESSIONS / (time.monotonic() - started)


def measure_partitions(out, engine):
    directory = place(out, "sql-tables")
    more = options(directory, PARTITIONS_MEMORY, 256 * MIB) + ["--table-open-cache=2000", f"--innodb-open-files={2 * PARTITIONS + 1000}",
                                                               f"--open-files-limit={2 * PARTITIONS + 10000}"]
    if engine == "Terrace":
        more += [f"--terrace-object={directory}/store", f"--terrace-flash-path={directory}/flash", f"--terrace-flash={1024 * MIB}"]
    server = server_in(os.path.join(directory, "server"), more)
    server.start()
    figures, answers, plans = {}, {}, {}
    try:
        connection = server.connect(read_timeout=3600)
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        ranges = ", ".join(f"PARTITION p{n} VALUES LESS THAN ({1000 * (n + 1)})" for n in range(PARTITIONS))
        run(connection, f"CREATE TABLE h (itemid BIGINT UNSIGNED NOT NULL, clock INT NOT NULL, value DOUBLE, ns INT, KEY h1 (itemid, clock)) ENGINE={engine} PARTITION BY RANGE (clock) ({ranges})")
        run(connection, f"INSERT INTO h SELECT seq % 20, seq * {1000 * PARTITIONS} DIV {ROWS + 1}, seq, seq FROM seq_1_to_{ROWS}")
        for name, sql in ORDERED.items():
            plans[name] = [row[:4] + row[5:8] for row in run(connection, "EXPLAIN " + sql)]
            took = []
            for _ in range(ROUNDS):
                started = time.monotonic()
                answers[sql] = run(connection, sql)
                took.append(time.monotonic() - started)
            figures[name] = took
        figures["at once"] = at_once(server, answers)
        figures["bytes in all"] = resident(server)
    finally:
        end(server)
        shutil.rmtree(directory, ignore_errors=True)
    return figures, answers, plans


def read_partitions(out):
    """The figures of each engine, and Terrace's times as shares of InnoDB's."""
    measured = {engine: measure_partitions(out, engine) for engine in ENGINES}
    figures = {engine: each for engine, (each, _, _) in measured.items()}
    for engine, (_, answers, plans) in measured.items():
        if (answers, plans) != measured["Terrace"][1:]:
            print(f"{engine} answers or plans otherwise: {plans}", file=sys.stderr)
    ratios = {}
    for name in ORDERED:
        middle = {engine: statistics.median(figures[engine][name]) for engine in ENGINES}
        ratios[name] = middle["InnoDB"] / middle["Terrace"] if "InnoDB" in middle else None
        print(f"{name:32}" + "   ".join(f"{engine} {1000 * seconds:.0f} ms" for engine, seconds in middle.items()))
    ratios["at once"] = report.row(f"{SESSIONS} sessions at once", {engine: [figures[engine]["at once"]] for engine in ENGINES}, "/s", 32, 8) if "InnoDB" in ENGINES else None
    return figures, ratios


def main():
    out = sys.argv[1]
    if PARTITIONS:
        figures, ratios = read_partitions(out)
        report.write(out, "sql-partitions", ratios, figures,
                     [f"one table of {PARTITIONS} partitions by range and {ROWS} rows, {PARTITIONS_MEMORY >> 20} MiB for the engine, flash and a directory as the object store; "
                      f"medians of {ROUNDS}; ratios are of speed; at once: {SESSIONS} sessions, two reads each"])
    if TABLES:
        each_engine(out)


def each_engine(out):
    figures = {}
    for engine in ENGINES:
        figures[engine] = measure(out, engine)
        print(f"measured {engine}", file=sys.stderr)
    ratios = {step: report.row(f"{step}, tables a second", {engine: [figures[engine][step]] for engine in ENGINES}, "/s", 32, 8) for step in STEPS}
    for what, unit, size in (("bytes held for a table", "KiB", 1024), ("bytes in all", "MiB", MIB)):
        ratios[what] = figures["Terrace"][what] / figures["InnoDB"][what] if "InnoDB" in figures else None
        print(f"{what:32}" + "   ".join(f"{engine} {figures[engine][what] / size:.1f} {unit}" for engine in ENGINES))
    report.write(out, "sql-tables", ratios, figures,
                 [f"{TABLES} tables of two rows and two indexes, {MEMORY >> 20} MiB for the engine, each engine in a server of its own, {THREADS} clients; one run",
                  "first look: after a start of the server" + ("" if MYROCKS else "; without MyRocks")])


if __name__ == "__main__":
    main()
