"""sql-disk: data ten times the memory, on this machine's disk as the volume, flash off: Terrace, InnoDB and MyRocks in the same server, with
the same memory, a sync at each commit, and none of them through the kernel's cache.

sysbench's mixes with rows drawn evenly, and by Zipf 1.2 (`read-write, Zipf`). Beside rates: the CPU of the server's process for a transaction, bytes read and
written for one. Environment: MEMORY (bytes for each engine), TIMES (data by memory), RUNS, TIME, WARM_UP (seconds), THREADS (list), ROUND (rows whose
names contain one of these texts), ENGINES, PORTS, MYROCKS.
"""

import os
import shutil
import statistics
import sys

import report
from engines import ENGINES, cpu, io_bytes, options, size_on_disk
from sysbench import sysbench, timed
from tiers import MIB, end, listed, place, run, server_in, setting

MEMORY, TIMES, RUNS = setting("MEMORY", 256 * MIB), setting("TIMES", 10), setting("RUNS", 3)
TIME, WARM_UP, THREADS, ONLY = setting("TIME", 10), setting("WARM_UP", 10), listed("THREADS", "1,4,16", int), listed("ROUND", "")
TABLES = 2
# A row, its index entry, and what pages leave free.
ROWS = MEMORY * TIMES // TABLES // 260
SIZE = [f"--tables={TABLES}", f"--table-size={ROWS}"]
EVEN = "--rand-type=uniform"
TRANSACTIONS = {
    "point select": ["oltp_point_select", EVEN],
    "read-only": ["oltp_read_only", EVEN],
    "read-write": ["oltp_read_write", EVEN],
    "read-write, Zipf": ["oltp_zipf", "--mix=read-write", "--zipf=1.2"],
    "update-index": ["oltp_update_index", EVEN],
    "update-non-index": ["oltp_update_non_index", EVEN],
    "write-only": ["oltp_write_only", EVEN],
    "insert": ["oltp_insert", EVEN],
}


def one_run(server, engine, name, threads, time):
    """A run's figures, with what the server's process spent for each transaction."""
    spent, (read, written) = cpu(server), io_bytes(server)
    script, *more = TRANSACTIONS[name]
    figures = timed(server, script, f"disk_{engine.lower()}", threads, time, *SIZE, *more)
    count = max(figures["rate"] * time, 1)
    read, written = (after - before for after, before in zip(io_bytes(server), (read, written)))
    return figures | {"cpu": (cpu(server) - spent) / count, "read_bytes": read / count, "written_bytes": written / count}


def show(name, runs):
    for engine, each in runs.items():
        middle = {what: statistics.median(one[what] for one in each) for what in ("p99_ms", "read_bytes", "written_bytes")}
        print(f"    {engine:8} p99 {middle['p99_ms']:.2f} ms, {middle['read_bytes'] / 1024:.1f} KB read, {middle['written_bytes'] / 1024:.1f} KB written for each")


def main():
    out = sys.argv[1]
    directory = place(out, "sql-disk")
    server = server_in(directory, options(directory, MEMORY, max(MEMORY, 96 * MIB), direct=True) + [f"--terrace-object-buffer={3 * TIMES * MEMORY}"])
    server.start()
    figures, ratios, cpu_ratios, sizes = {}, {}, {}, {}
    try:
        for engine in ENGINES:
            database = f"disk_{engine.lower()}"
            run(server.connect(), f"CREATE DATABASE {database} CHARACTER SET latin1")
            sysbench(server, "oltp_read_write", "prepare", database, *SIZE, f"--mysql-storage-engine={engine}", "--threads=2", timeout=7200)
            sizes[engine] = size_on_disk(server, engine, database)
            print(f"loaded {engine}: {sizes[engine] / MIB:.0f} MiB", file=sys.stderr)
        for name in TRANSACTIONS:
            rows = {f"{name}, {threads} thread{'s' * (threads > 1)}": threads for threads in THREADS}
            rows = {row: threads for row, threads in rows.items() if not ONLY or any(text in row for text in ONLY)}
            for engine in ENGINES if rows else []:
                one_run(server, engine, name, max(THREADS), WARM_UP)
            for row, threads in rows.items():
                runs = {engine: [] for engine in ENGINES}
                for _ in range(RUNS):
                    for engine in ENGINES:
                        runs[engine].append(one_run(server, engine, name, threads, TIME))
                figures[row] = runs
                ratios[row], cpu_ratios[row] = report.row_with_cpu(row, runs, 30)
                show(row, runs)
    finally:
        end(server)
        shutil.rmtree(directory, ignore_errors=True)
    report.write(out, "sql-disk", ratios, figures,
                 [f"{TABLES} tables of {ROWS} rows, {TIMES} times the {MEMORY >> 20} MiB of each engine, flash off, a sync at each commit, medians of {RUNS} runs "
                  f"of {TIME} s in turn, {WARM_UP} s of warm-up"], cpu_ratios=cpu_ratios, bytes_on_disk=sizes)


if __name__ == "__main__":
    main()
