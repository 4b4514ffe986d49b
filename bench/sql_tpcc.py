"""sql-tpcc: go-tpc's TPC-C on Terrace, InnoDB and MyRocks in the same server, equal durability and memory, with go-tpc's own check of
consistency before and after.

Environment: WAREHOUSES, THREADS (as "1,4,16"), TIME (seconds of a run), RUNS, MEMORY (bytes for each engine), ENGINES, PORTS, MYROCKS (a path of
ha_rocksdb.so; none if it is empty), CHECK=load (only before the runs), none or all (the default).
"""

import os
import re
import shutil
import subprocess
import sys

import report
from engines import ENGINES, options
from tiers import end, listed, place, run, server_in, setting

WAREHOUSES, TIME, RUNS, MEMORY = setting("WAREHOUSES", 10), setting("TIME", 60), setting("RUNS", 3), setting("MEMORY", 1 << 30)
THREADS, CHECK = listed("THREADS", "1,4,16", int), setting("CHECK", "all")
# go-tpc's conditions for each warehouse: eleven are asked of loaded data, and those without the eleventh of data at work.
CONDITIONS = 12


def tpc(out, server, engine, *arguments):
    """go-tpc's text. What it could not do it says and ends with 0: the caller looks."""
    done = subprocess.run([os.path.join(out, "go-tpc"), "-P", str(server.port), "tpcc", *arguments, "-D", f"tpcc_{engine.lower()}", "--warehouses",
                           str(WAREHOUSES)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=7200)
    if done.returncode:
        sys.exit(f"go-tpc {arguments}: {done.stdout[-2000:]}")
    return done.stdout


def check(out, server, engine, *more):
    text = tpc(out, server, engine, "check", *more)
    asked = len(re.findall("begin to check", text))
    if asked < WAREHOUSES * (CONDITIONS - 1) or re.search(r"check .*failed|panic", text, re.I):
        sys.exit(f"TPC-C's data are not consistent on {engine} ({asked} conditions were looked at): {text[-2000:]}")
    return asked


def prepare(out, server, engine):
    connection = server.connect()
    run(connection, f"SET GLOBAL default_storage_engine = {engine}")
    run(connection, f"CREATE DATABASE tpcc_{engine.lower()} CHARACTER SET latin1")
    tpc(out, server, engine, "prepare", "-T", "2", "--no-check")
    connection.select_db(f"tpcc_{engine.lower()}")
    # The check's last condition sums a customer's payments.
    run(connection, "ALTER TABLE history ADD KEY customer (h_c_w_id, h_c_d_id, h_c_id)")
    engines = run(connection, f"SELECT DISTINCT UPPER(engine) FROM information_schema.tables WHERE table_schema = 'tpcc_{engine.lower()}'")
    assert engines == [(engine.upper(),)], engines
    asked = check(out, server, engine, "--check-all") if CHECK != "none" else 0
    print(f"loaded {engine}, {asked} conditions hold", file=sys.stderr)


def one_run(out, server, engine, threads):
    text = tpc(out, server, engine, "run", "-T", str(threads), "--time", f"{TIME}s")
    summary = re.search(r"tpmC: ([\d.]+), tpmTotal: ([\d.]+)", text)
    new_order = re.findall(r"\[Summary\] NEW_ORDER - .*?50th\(ms\): ([\d.]+).*?95th\(ms\): ([\d.]+).*?99th\(ms\): ([\d.]+)", text)
    if not summary or not new_order:
        sys.exit(f"go-tpc did not finish on {engine}: {text[-2000:]}")
    errors = sum(int(count) for count in re.findall(r"\[Summary\] \w+_ERR - .*?Count: (\d+)", text))
    p50, p95, p99 = (float(one) for one in new_order[-1])
    return {"rate": float(summary[1]), "tpm_total": float(summary[2]), "p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "errors": errors}


def main():
    out = os.path.abspath(sys.argv[1])
    directory = place(out, "sql-tpcc")
    server = server_in(directory, options(directory, MEMORY, 512 << 20))
    server.start()
    figures, ratios, conditions = {}, {}, {}
    try:
        for engine in ENGINES:
            prepare(out, server, engine)
        for threads in THREADS:
            name = f"TPC-C, {threads} thread{'s' * (threads > 1)}"
            runs = {engine: [] for engine in ENGINES}
            for _ in range(RUNS):
                for engine in ENGINES:
                    runs[engine].append(one_run(out, server, engine, threads))
            figures[name] = runs
            ratios[name] = report.row(name, {engine: [one["rate"] for one in each] for engine, each in runs.items()}, "tpmC", 22, 7)
            for engine, each in runs.items():
                if any(one["errors"] for one in each):
                    print(f"    {engine}: {sum(one['errors'] for one in each)} transactions ended in an error")
        if CHECK == "all":
            for engine in ENGINES:
                conditions[engine] = check(out, server, engine)
                print(f"{engine}: {conditions[engine]} conditions hold after the runs")
    finally:
        end(server)
        shutil.rmtree(directory, ignore_errors=True)
    report.write(out, "sql-tpcc", ratios, figures,
                 [f"go-tpc 1.0.12, {WAREHOUSES} warehouses, {MEMORY >> 20} MiB for each engine, a sync at each commit, {RUNS} runs of {TIME} s each, in turn",
                  "history has an index on customer on all engines"], conditions=conditions)


if __name__ == "__main__":
    main()
