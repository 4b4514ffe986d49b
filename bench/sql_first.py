"""sql-first: sysbench against Terrace and InnoDB in the same server, in memory, equal durability.

Both engines have 256 MiB, sync at each commit, and their tables stay loaded; the runs take turns. Environment: RUNS,
SECONDS, ROWS (of each of two tables).
"""

import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "sql"))
import report  # noqa: E402
from conftest import Server, end  # noqa: E402

RUNS, SECONDS, ROWS = (int(os.environ.get(name, default)) for name, default in (("RUNS", 3), ("TIME", 8), ("ROWS", 100000)))
MEMORY = 268435456
TESTS = ["oltp_point_select", "oltp_read_only", "oltp_read_write", "oltp_write_only"]
ENGINES = ["Terrace", "InnoDB"]


def sysbench(server, test, engine, command, *more):
    done = subprocess.run(
        ["sysbench", test, "--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={server.port}", "--mysql-user=root",
         f"--mysql-db=sb_{engine.lower()}", f"--mysql-storage-engine={engine}", "--tables=2", f"--table-size={ROWS}",
         "--rand-type=uniform", *more, command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"sysbench {test} {command}: {done.stdout[-2000:]}")
    return done.stdout


def one_run(server, test, engine, threads):
    text = sysbench(server, test, engine, "run", f"--threads={threads}", f"--time={SECONDS}", "--histogram=off", "--percentile=99",
                    "--mysql-ignore-errors=1213,1020,1205")
    rate = float(re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", text)[1])
    return {"rate": rate, "p99_us": 1000 * float(re.search(r"99th percentile:\s+([\d.]+)", text)[1])}


def main():
    out = sys.argv[1]
    directory = os.path.join(os.path.abspath(out), "sql-first.data")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    server = Server(directory, [f"--terrace-memory={MEMORY}", f"--innodb-buffer-pool-size={MEMORY}", "--innodb-flush-log-at-trx-commit=1",
                                "--innodb-log-file-size=100663296", "--skip-log-bin"])
    server.start()
    figures, ratios = {}, {}
    try:
        for engine in ENGINES:
            server.connect().cursor().execute(f"CREATE DATABASE sb_{engine.lower()}")
            sysbench(server, "oltp_read_write", engine, "prepare")
            print(f"loaded {engine}", file=sys.stderr)
        for test in TESTS:
            for threads in (1, 4):
                row = f"{test}, {threads} threads"
                runs = {engine: [] for engine in ENGINES}
                for _ in range(RUNS):
                    for engine in ENGINES:
                        runs[engine].append(one_run(server, test, engine, threads))
                figures[row] = runs
                ratios[row] = report.row(row, {e: [run["rate"] for run in runs[e]] for e in ENGINES}, "/s", 32, 8)
    finally:
        end(server)
    report.write(out, "sql-first", ratios, figures,
                 [f"2 tables of {ROWS} rows, {MEMORY >> 20} MiB for each engine, a sync at each commit, {RUNS} runs of {SECONDS} s"])


if __name__ == "__main__":
    main()
