"""TPC-H in Parquet through DuckDB over `terrace files`, with and without prefetch (Gopher §5.2.1), and from the local disk.

    files_tpch.py OUT

DBGEN is a Python with the packages duckdb and duckdb-extension-tpch, which makes the data (SF, default 1: 1 GB, about 350 MB of Parquet in 60 files) and the queries. One S3 server, each of whose
requests takes DELAY more milliseconds (default 20). Each query is run cold, RUNS times (default 3): everything is evicted before. With prefetch, a thread brings the files of the query's
tables while the query runs. Answers are compared with those from the local disk. TERRACE, S3_SERVER and SITE name what was built.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.environ["SITE"])
import duckdb  # noqa: E402
import fsspec  # noqa: E402
import report  # noqa: E402

SF = float(os.environ.get("SF") or 1)
RUNS = int(os.environ.get("RUNS") or 3)
DELAY = int(os.environ.get("DELAY") or 20)
PORT = int(os.environ.get("PORT") or 9341)
ENDPOINT = f"http://127.0.0.1:{PORT}"
TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]

MAKE = """
import duckdb, duckdb_extension_tpch, json, os, sys
out, scale = sys.argv[1], float(sys.argv[2])
base = os.path.join(os.path.dirname(duckdb_extension_tpch.__file__), "extensions", "v" + duckdb.__version__)
db = duckdb.connect()
db.execute(f"load '{os.path.join(base, 'tpch.duckdb_extension')}'")
db.execute(f"call dbgen(sf={scale})")
for (table,) in db.execute("show tables").fetchall():
    os.makedirs(f"{out}/{table}", exist_ok=True)
    (rows,) = db.execute(f"select count(*) from {table}").fetchone()
    parts = max(1, round(rows / 150_000))
    for part in range(parts):
        db.execute(f"copy (select * from {table} where rowid % {parts} = {part}) to '{out}/{table}/part-{part:03}.parquet' (format parquet, row_group_size 30000)")
queries = [query for (_, query) in db.execute("select query_nr, query from tpch_queries() order by 1").fetchall()]
json.dump(queries, open(f"{out}/queries.json", "w"))
"""


def started(line, command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for said in process.stdout:
        if line in said:
            return process
    raise SystemExit(f"{command[0]} did not start")


def database(where, fs=None):
    db = duckdb.connect()
    db.execute("set threads = 2")
    if fs is not None:
        db.register_filesystem(fs)
    for table in TABLES:
        db.execute(f"create view {table} as select * from read_parquet('{where}{table}/*.parquet')")
    return db


def plain(rows):
    """Rows to compare: sums of floating-point numbers depend on the order of their parts, and so do equal rows on that of the threads."""
    return sorted(tuple(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row) for row in rows)


def main():
    out = os.path.abspath(sys.argv[1])
    place = os.path.join(out, "tpch.data")
    shutil.rmtree(place, ignore_errors=True)
    bucket = os.path.join(place, "buckets", "tpch")
    os.makedirs(bucket)
    subprocess.run([os.environ["DBGEN"], "-c", MAKE, bucket, str(SF)], check=True)
    queries = json.load(open(os.path.join(bucket, "queries.json")))
    os.remove(os.path.join(bucket, "queries.json"))
    with open(os.path.join(place, "buckets", "delay-ms"), "w") as file:
        file.write(str(DELAY))
    os.environ.update(AWS_ACCESS_KEY_ID="TESTKEY", AWS_SECRET_ACCESS_KEY="test-secret-that-must-not-show", AWS_REGION="us-east-1")
    socket = os.path.join(place, "socket")
    server = started("listening", [os.environ["S3_SERVER"], os.path.join(place, "buckets"), str(PORT)])
    daemon = started("serving", [os.environ["TERRACE"], "files", "--store", "s3://tpch", "--store-endpoint", ENDPOINT, "--memory", "2G", "--freshness", "ttl=10m", "--socket", socket])
    times = {way: [[] for _ in queries] for way in ("prefetch", "no prefetch", "local disk")}
    try:
        fs = fsspec.filesystem("terrace", socket=socket, skip_instance_cache=True)
        local, through = database(bucket + "/"), database("terrace://", fs)

        def run(way, number, query):
            used = [table for table in TABLES if re.search(rf"\b{table}\b", query)]
            files = [f"{table}/{name}" for table in used for name in sorted(os.listdir(os.path.join(bucket, table)))]
            fs.client.evict("")
            began = time.monotonic()
            brings = threading.Thread(target=fs.prefetch, args=(files,))
            if way == "prefetch":
                brings.start()
            rows = (local if way == "local disk" else through).execute(query).fetchall()
            times[way][number].append(time.monotonic() - began)
            if way == "prefetch":
                brings.join()
            return rows

        for _ in range(RUNS):
            for number, query in enumerate(queries):
                right = run("local disk", number, query)
                for way in ("no prefetch", "prefetch") if number % 2 else ("prefetch", "no prefetch"):
                    assert plain(run(way, number, query)) == plain(right), f"query {number + 1}, {way}"
        status = json.loads(fs.client.status())
    finally:
        daemon.terminate()
        server.terminate()
        daemon.wait()
        server.wait()
    median = {way: [statistics.median(one) for one in of] for way, of in times.items()}
    print(f"TPC-H, scale factor {SF:g}, in seconds, medians of {RUNS}; a request to the store takes {DELAY} ms more than here")
    saved = []
    for number in range(len(queries)):
        without, with_it, disk = (median[way][number] for way in ("no prefetch", "prefetch", "local disk"))
        saved.append(100 * (1 - with_it / without))
        print(f"  Q{number + 1:<3} no prefetch {without:7.3f}   prefetch {with_it:7.3f}   saved {saved[-1]:5.1f} %   local disk {disk:7.3f}")
    sums = {way: sum(of) for way, of in median.items()}
    print(f"  all  no prefetch {sums['no prefetch']:7.3f}   prefetch {sums['prefetch']:7.3f}   saved {100 * (1 - sums['prefetch'] / sums['no prefetch']):5.1f} %   local disk {sums['local disk']:7.3f}")
    print(f"  saved a query: median {statistics.median(saved):.1f} % (paper, 100 GB: 20 to 51 %, and less for two queries); {status['store_requests']} requests to the store in all")
    ratios = {"all queries, no prefetch, to prefetch": sums["no prefetch"] / sums["prefetch"], "all queries, prefetch, to the local disk": sums["prefetch"] / sums["local disk"]}
    notes = [f"scale factor {SF:g}, {RUNS} rounds, {DELAY} ms a request beside the server's own time", "the S3 server, the daemon and DuckDB share the machine's cores"]
    report.write(out, "files-tpch", ratios, median, notes, against="no prefetch, the local disk", bars={}, runs=times)
    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
