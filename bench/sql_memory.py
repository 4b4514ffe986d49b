"""sql-memory: statements on data in memory, Terrace, InnoDB and MyRocks in the same server, equal durability.

Two ratios a row: throughput, and the CPU seconds that the server's process (user and system) spent for one statement or
transaction, which is the steadier figure on a busy machine. The engines have the same memory, sync at each commit, and take turns in
many short rounds: a row's ratio is the median of the rounds'. A turn begins when the server has gone quiet, and what it does in the
background afterwards (purge, write-back) counts as the turn's CPU: otherwise it would be charged to the next engine.
Environment: MEMORY (bytes, for each engine), RUNS (rounds), TIME (seconds of a sysbench run), ROWS (of each table), THREADS (as
"1,4,16"), ROUND (rows whose names contain one of these texts, separated by commas; all if it is empty), MYROCKS (a path of ha_rocksdb.so; none if it is empty).
"""

import os
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "sql"))
import report  # noqa: E402
from conftest import Server, end, run  # noqa: E402

RUNS, SECONDS, ROWS = (int(os.environ.get(name, default)) for name, default in (("RUNS", 9), ("TIME", 1), ("ROWS", 100000)))
THREADS = [int(count) for count in os.environ.get("THREADS", "1,4,16").split(",")]
ONLY = [text for text in os.environ.get("ROUND", "").split(",") if text]
MYROCKS = os.environ.get("MYROCKS", "")
# Enough for all that the rounds insert.
MEMORY = int(os.environ.get("MEMORY", 1 << 30))
ENGINES = ["Terrace", "InnoDB"] + ["ROCKSDB"] * bool(MYROCKS)
TICKS = os.sysconf("SC_CLK_TCK")

# sysbench's transactions: the script and its options.
NOTHING = ["--skip-trx=on", "--point-selects=0", "--simple-ranges=0", "--sum-ranges=0", "--order-ranges=0", "--distinct-ranges=0"]
TRANSACTIONS = {
    "point select": ["oltp_point_select"],
    "read-only": ["oltp_read_only"],
    "read-write": ["oltp_read_write"],
    "write-only": ["oltp_write_only"],
    "update-index": ["oltp_update_index"],
    "update-non-index": ["oltp_update_non_index"],
    "insert": ["oltp_insert"],
} | {f"{kind} range": ["oltp_read_only", *NOTHING, f"--{kind}-ranges=1"] for kind in ("simple", "sum", "order", "distinct")}

# Statements that are mostly engine: what is run before it, untimed, and what is timed.
TENTH, FIFTH = ROWS // 10, ROWS // 5
EMPTY = "TRUNCATE TABLE copy"
FILL = [EMPTY, "INSERT INTO copy SELECT * FROM rows_"]
STATEMENTS = {
    "full scan": ([], "SELECT COUNT(*) FROM rows_ IGNORE INDEX (k) WHERE pad > c"),
    "covering scan": ([], "SELECT SUM(k) FROM rows_ FORCE INDEX (k)"),
    "secondary range": ([], f"SELECT COUNT(pad) FROM rows_ FORCE INDEX (k) WHERE k BETWEEN {TENTH} AND {2 * TENTH}"),
    "index join": ([], "SELECT STRAIGHT_JOIN COUNT(b.pad) FROM part a JOIN rows_ b FORCE INDEX (k) ON b.k = a.id"),
    "INSERT … SELECT": ([EMPTY], "INSERT INTO copy SELECT * FROM rows_"),
    "range UPDATE": (FILL, f"UPDATE copy SET pad = CONCAT(pad, 'x') WHERE id BETWEEN {FIFTH} AND {3 * FIFTH}"),
    "range UPDATE of an index": (FILL, f"UPDATE copy SET k = k + 1 WHERE id BETWEEN {FIFTH} AND {3 * FIFTH}"),
    "range DELETE": (FILL, f"DELETE FROM copy WHERE id BETWEEN {FIFTH} AND {3 * FIFTH}"),
    "sorted load": ([EMPTY], "LOAD DATA INFILE '{sorted}' INTO TABLE copy"),
    "random load": ([EMPTY], "LOAD DATA INFILE '{random}' INTO TABLE copy"),
}


class Cpu:
    """Seconds of the process from one look to the next."""

    def __init__(self, server):
        self.stat = f"/proc/{open(os.path.join(server.directory, 'pid')).read().strip()}/stat"
        self.rest()
        self.start = self.now()

    def rest(self):
        """Waits until the process hardly does anything any more, at most 5 s."""
        for _ in range(50):
            before = self.now()
            time.sleep(0.1)
            if self.now() - before <= 1.5 / TICKS:
                return

    def now(self):
        fields = open(self.stat).read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def spent(self):
        return self.now() - self.start

    def all_spent(self):
        """With what the process goes on to do in the background."""
        self.rest()
        return self.spent()


def sysbench(server, engine, command, *more):
    done = subprocess.run(
        ["sysbench", more[0], "--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={server.port}", "--mysql-user=root",
         f"--mysql-db=memory_{engine.lower()}", f"--mysql-storage-engine={engine}", "--tables=2", f"--table-size={ROWS}",
         "--rand-type=uniform", "--mysql-ignore-errors=1213,1020,1205", *more[1:], command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"sysbench {more[0]} {command}: {done.stdout[-2000:]}")
    return done.stdout


def transactions(server, name, engine, threads):
    """One run: the rate, and CPU seconds of a transaction."""
    cpu = Cpu(server)
    text = sysbench(server, engine, "run", *TRANSACTIONS[name], f"--threads={threads}", f"--time={SECONDS}", "--histogram=off")
    count, rate = re.search(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec", text).groups()
    return {"rate": float(rate), "cpu": cpu.all_spent() / max(int(count), 1)}


def statement(server, connection, name, files):
    before, sql = STATEMENTS[name]
    for each in before:
        run(connection, each)
    cpu, started, times = Cpu(server), time.monotonic(), 0
    while not times or (not before and cpu.spent() < 0.5):  # the clock of CPU seconds ticks a hundred times a second
        run(connection, sql.format(**files) if "{" in sql else sql)
        times += 1
    rate = times / (time.monotonic() - started)
    return {"rate": rate, "cpu": cpu.all_spent() / times}


def write_rows(path, order):
    source = random.Random(1)
    with open(path, "w") as file:
        for number in order:
            file.write(f"{number}\t{source.randrange(ROWS)}\t{source.getrandbits(300):0100d}\t{'p' * 50}{number}\n")


def prepare(server, connection, files):
    numbers = list(range(1, ROWS + 1))
    write_rows(files["sorted"], numbers)
    random.Random(3).shuffle(numbers)
    write_rows(files["random"], numbers)
    for engine in ENGINES:
        run(connection, f"CREATE DATABASE memory_{engine.lower()} CHARACTER SET latin1")
        connection.select_db(f"memory_{engine.lower()}")
        sysbench(server, engine, "prepare", "oltp_read_write")
        for table in ("rows_", "copy", "part"):
            run(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad VARCHAR(80) NOT NULL, "
                            f"KEY k (k)) ENGINE={engine}")
        run(connection, f"LOAD DATA INFILE '{files['sorted']}' INTO TABLE rows_")
        run(connection, f"INSERT INTO part SELECT * FROM rows_ WHERE id <= {TENTH}")
        for table in ("rows_", "part", "sbtest1", "sbtest2"):
            run(connection, f"ANALYZE TABLE {table}")
        print(f"loaded {engine}", file=sys.stderr)


def is_wanted(row):
    return not ONLY or any(text in row for text in ONLY)


def main():
    out = sys.argv[1]
    directory = os.path.join(os.path.abspath(out), "sql-memory.data")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(os.path.join(directory, "plugins"))
    options = [f"--terrace-memory={MEMORY}", f"--innodb-buffer-pool-size={MEMORY}", "--innodb-flush-log-at-trx-commit=1",
               "--innodb-log-file-size=268435456", "--skip-log-bin", "--terrace-log=268435456"]
    if MYROCKS:
        os.symlink(MYROCKS, os.path.join(directory, "plugins", "ha_rocksdb.so"))
        options += ["--plugin-load-add=ha_rocksdb", f"--rocksdb-block-cache-size={MEMORY}", "--rocksdb-flush-log-at-trx-commit=1",
                    "--rocksdb-strict-collation-check=OFF"]
    else:
        print("MyRocks: left out", file=sys.stderr)
    files = {name: os.path.join(directory, name) for name in ("sorted", "random")}
    server = Server(directory, options)
    server.start()
    figures, ratios, cpu_ratios = {}, {}, {}

    def measure(row, one_run):
        if not is_wanted(row):
            return
        runs = {engine: [] for engine in ENGINES}
        for turn in range(RUNS):
            for engine in ENGINES[::-1] if turn % 2 else ENGINES:
                runs[engine].append(one_run(engine))
        figures[row] = runs
        ratios[row], cpu_ratios[row] = report.row_with_cpu(row, runs, 28)

    try:
        connection = server.connect()
        prepare(server, connection, files)

        def one_statement(name, engine):
            connection.select_db(f"memory_{engine.lower()}")
            return statement(server, connection, name, files)

        for name in TRANSACTIONS:
            for threads in THREADS:
                measure(f"{name}, {threads} thread{'s' * (threads > 1)}", lambda engine: transactions(server, name, engine, threads))
        for name in STATEMENTS:
            measure(name, lambda engine: one_statement(name, engine))
    finally:
        end(server)
    report.write(out, "sql-memory", ratios, figures,
                 [f"tables of {ROWS} rows, {MEMORY >> 20} MiB for each engine, a sync at each commit, medians of {RUNS} rounds' ratios",
                  "cpu: seconds of the server's process for each transaction or statement"], cpu_ratios=cpu_ratios)


if __name__ == "__main__":
    main()
