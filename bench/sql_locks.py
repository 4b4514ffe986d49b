"""sql-locks: what many row locks cost, Terrace and InnoDB in the same server: 1,000, 10,000 and 100,000 of them.

Locks passed with SKIP LOCKED (rows locked, updated or deleted by another session); taken by primary key, by lists of keys, by a secondary
index in another order than the rows', on absent keys (gaps); rows changed in such an order, undone to a savepoint; locks released; and a
deadlock of two sessions that hold them. At REPEATABLE READ, in memory. The engines take turns. Environment: RUNS, COUNTS, MEMORY in MiB (128).

LARGE=1000000,3000000: instead, transactions that lock or change that many rows, whose locks would not fit into the memory one by one; each
transaction is rolled back. LARGE_LIMIT: seconds after which an engine's statement is killed (600).
"""

import glob
import os
import sys
import time

import pymysql
import report
from tiers import MIB, end, listed, place, run, server_in, setting

RUNS, COUNTS, MEMORY = setting("RUNS", 3), listed("COUNTS", "1000,10000,100000", int), setting("MEMORY", 128)
LARGE, LARGE_LIMIT = listed("LARGE", "", int), setting("LARGE_LIMIT", 600)
ENGINES = ["Terrace", "InnoDB"]


def pid_of(server):
    with open(os.path.join(server.directory, "pid")) as file:
        return int(file.read())


def cpu_of(server):
    """Seconds of processor time that the server's threads have had."""
    total = 0
    for task in glob.glob(f"/proc/{pid_of(server)}/task/*/schedstat"):
        try:
            total += int(open(task).read().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total / 1e9


class Session:
    def __init__(self, server):
        self.server, self.connection = server, server.connect()

    def run(self, sql):
        return run(self.connection, sql)

    def timed(self, sql):
        """Seconds, and seconds of the server's processor time."""
        cpu, started = cpu_of(self.server), time.monotonic()
        self.run(sql)
        return time.monotonic() - started, cpu_of(self.server) - cpu


def deadlock(a, b, table):
    """Seconds until a deadlock of two sessions is resolved, one of which holds all rows except the last two."""
    count = a.run(f"SELECT COUNT(*) FROM {table}")[0][0]
    a.run("BEGIN")
    b.run("BEGIN")
    b.run(f"SELECT id FROM {table} WHERE id > {2 * (count - 2)} FOR UPDATE")
    a.run(f"SELECT COUNT(p) FROM {table} FORCE INDEX (h) WHERE h > '' FOR UPDATE SKIP LOCKED")
    sql = f"SELECT id FROM {table} WHERE id = %s FOR UPDATE"
    started = time.monotonic()
    b.connection._execute_command(3, sql % 2)
    time.sleep(0.05)
    victims = 0
    for last in (lambda: a.run(sql % (2 * count)), lambda: b.connection._read_query_result()):
        try:
            last()
        except pymysql.Error as error:
            victims += error.args[0] == 1213
        # The other session may wait for a lock that this one holds.
        a.run("ROLLBACK")
    assert victims == 1, "one of the two is the victim"
    took = time.monotonic() - started
    b.run("ROLLBACK")
    return took, took


def one_round(a, b, table, count):
    """Seconds of each step, by name."""
    steps = {}

    def passed(name, sql):
        a.run("BEGIN")
        a.run(sql)
        b.run("BEGIN")
        steps[f"SKIP LOCKED past rows that are {name}"] = b.timed(f"SELECT id FROM {table} ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
        b.run("COMMIT")
        a.run("ROLLBACK")

    passed("locked", f"SELECT COUNT(*) FROM {table} FOR UPDATE")
    passed("updated", f"UPDATE {table} SET p = 'y'")
    passed("deleted", f"DELETE FROM {table}")

    def lock(name, sql):
        a.run("BEGIN")
        steps[name] = a.timed(sql)
        steps[f"{name}: commit"] = a.timed("COMMIT")

    lock("FOR UPDATE, primary key", f"SELECT COUNT(p) FROM {table} FOR UPDATE")
    lock("FOR UPDATE, second index", f"SELECT COUNT(p) FROM {table} FORCE INDEX (h) WHERE h > '' FOR UPDATE")
    lock("LOCK IN SHARE MODE, second index", f"SELECT COUNT(p) FROM {table} FORCE INDEX (h) WHERE h > '' LOCK IN SHARE MODE")
    lock("FOR UPDATE, every other key of a list", f"SELECT COUNT(p) FROM {table} WHERE id IN ({','.join(str(4 * n) for n in range(1, count // 2))}) FOR UPDATE")
    lock("FOR UPDATE, keys of a list that are not there",
         f"SELECT COUNT(p) FROM {table} WHERE id IN ({','.join(str(2 * n + 1) for n in range(1, count))}) FOR UPDATE")
    hashes = ",".join(f"UNHEX(MD5({2 * n}))" for n in range(1, count, 2))
    lock("FOR UPDATE, list of a second index", f"SELECT COUNT(p) FROM {table} FORCE INDEX (h) WHERE h IN ({hashes}) FOR UPDATE")

    a.run("BEGIN")
    a.run("SAVEPOINT s")
    steps["UPDATE, second index"] = a.timed(f"UPDATE {table} FORCE INDEX (h) SET due = due + 1 WHERE h > ''")
    steps["UPDATE, second index: to a savepoint"] = a.timed("ROLLBACK TO SAVEPOINT s")
    steps["UPDATE, second index: rollback"] = a.timed("ROLLBACK")
    steps["a deadlock"] = deadlock(a, b, table)
    return steps


# Transactions over a large table: the level of isolation and the statement.
LARGE_STEPS = {
    "FOR UPDATE of a third, by st": ("REPEATABLE READ", "SELECT COUNT(*) FROM {} WHERE st = 2 FOR UPDATE"),
    "FOR UPDATE of all, by h": ("REPEATABLE READ", "SELECT COUNT(p) FROM {} FORCE INDEX (h) WHERE h > '' FOR UPDATE"),
    "UPDATE of all, by h": ("REPEATABLE READ", "UPDATE {} FORCE INDEX (h) SET due = due + 1 WHERE h > ''"),
    "UPDATE of a third, by st": ("REPEATABLE READ", "UPDATE {} SET p = 'y' WHERE st = 1"),
    "DELETE of a third, by st, READ COMMITTED": ("READ COMMITTED", "DELETE FROM {} WHERE st = 1"),
}


def large(session, engine, count):
    """What each step took, or the error with which it ended."""
    table = f"{engine.lower()}_{count}"
    session.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, h BINARY(16), st INT, due INT, p VARCHAR(80), KEY h (h), KEY st (st, due)) ENGINE={engine}")
    session.run(f"INSERT INTO {table} SELECT seq, UNHEX(MD5(seq)), seq % 3, seq % 1000, REPEAT('x', 60) FROM seq_1_to_{count}")
    steps = {}
    for name, (isolation, sql) in LARGE_STEPS.items():
        session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        session.run("BEGIN")
        try:
            took, cpu = session.timed(f"SET STATEMENT max_statement_time={LARGE_LIMIT} FOR " + sql.format(table))
            steps[name] = {"rate": 1 / took, "cpu": cpu}
            said = f"{took:.2f} s, CPU {cpu:.2f} s"
        except pymysql.Error as error:
            steps[name] = {"error": error.args[0]}
            said = f"error {error.args[0]}"
        rollback, _ = session.timed("ROLLBACK")
        print(f"{name}, {count}: {engine} {said}; rollback {rollback:.2f} s", flush=True)
    session.run(f"DROP TABLE {table}")
    return steps


def measure_large(out, a):
    figures = {f"{name}, {count}": {} for count in LARGE for name in LARGE_STEPS}
    for count in LARGE:
        for engine in ENGINES:
            for name, step in large(a, engine, count).items():
                figures[f"{name}, {count}"][engine] = [step]
    ratios = {}
    for name, runs in figures.items():
        if not any("error" in step for steps in runs.values() for step in steps):
            ratios[name] = dict(zip(("rate", "cpu"), report.row_with_cpu(name, runs, 64)))
    report.write(out, "sql-locks-large", ratios, figures,
                 ["rate: statements a second; cpu: the server's processor seconds for one; error: the statement's", f"{MEMORY} MiB of memory for each engine, one round"])


def main():
    out = sys.argv[1]
    directory = place(out, "sql-locks")
    server = server_in(directory, [f"--terrace-memory={MEMORY * MIB}", f"--innodb-buffer-pool-size={MEMORY * MIB}", "--innodb-flush-log-at-trx-commit=1",
                                   "--innodb-log-file-size=268435456", "--terrace-log=268435456", "--innodb-lock-wait-timeout=60",
                                   "--transaction-isolation=REPEATABLE-READ", "--max-allowed-packet=67108864", "--in-predicate-conversion-threshold=0",
                                   "--eq-range-index-dive-limit=10", "--optimizer-max-sel-arg-weight=0"])
    server.start()
    figures, ratios = {}, {}
    try:
        a, b = Session(server), Session(server)
        for session in (a, b):
            session.run("CREATE DATABASE IF NOT EXISTS d")
            session.run("USE d")
        if LARGE:
            return measure_large(out, a)
        for count in COUNTS:
            rounds = {engine: [] for engine in ENGINES}
            for engine in ENGINES:
                table = f"{engine.lower()}_{count}"
                a.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, h BINARY(16), st INT, due INT, p VARCHAR(80), KEY h (h), KEY st (st, due)) ENGINE={engine}")
                a.run(f"INSERT INTO {table} SELECT 2 * seq, UNHEX(MD5(2 * seq)), seq % 3, seq % 1000, REPEAT('x', 60) FROM seq_1_to_{count}")
            for _ in range(RUNS):
                for engine in ENGINES:
                    rounds[engine].append(one_round(a, b, f"{engine.lower()}_{count}", count))
            for step in rounds["Terrace"][0]:
                name = f"{step}, {count}"
                runs = {engine: [{"rate": 1 / each[step][0], "cpu": each[step][1]} for each in rounds[engine]] for engine in ENGINES}
                figures[name] = runs
                ratios[name] = dict(zip(("rate", "cpu"), report.row_with_cpu(name, runs, 64)))
            for engine in ENGINES:
                a.run(f"DROP TABLE {engine.lower()}_{count}")
    finally:
        end(server)
    report.write(out, "sql-locks", ratios, figures,
                 ["rate: statements a second; cpu: the server's processor seconds for one", f"{MEMORY} MiB of memory for each engine, {RUNS} rounds, medians"])


if __name__ == "__main__":
    main()
