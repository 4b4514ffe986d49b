"""sql-tables: thousands of tables: making them, opening each for the first time after a start, asking each again, listing them, dropping them,
and the memory that the server holds for them. Each engine has a server of its own, so that its memory is its own.

Environment: TABLES, MEMORY (bytes for the engine), THREADS (of the look at each table), ENGINES, PORTS, MYROCKS.
"""

import os
import random
import shutil
import sys
import threading
import time

import report
from engines import ENGINES, MYROCKS, options, resident
from tiers import MIB, end, place, run, server_in, setting

TABLES, MEMORY, THREADS = setting("TABLES", 5000), setting("MEMORY", 256 * MIB), setting("THREADS", 4)
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


def main():
    out = sys.argv[1]
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
