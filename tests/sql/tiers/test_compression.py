"""Pages in objects, compressed: by the instance's setting, by a table's option, changed online, and back again."""

import os

import pytest
from conftest import Server, end, wait_until
from test_object import status

ROWS = 12000
SIZES = ["--terrace-memory=10485760", "--terrace-object-buffer=4194304", "--terrace-log=8388608", "--terrace-sink-after-ms=300"]


@pytest.fixture
def stopped(tmp_path, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    server = Server(str(directory), ["--innodb=OFF", "--default-storage-engine=Aria", *SIZES, f"--terrace-object={tmp_path / 'store'}"])
    yield server
    end(server)


def counter(connection, run, name):
    return int(run(connection, f"SHOW GLOBAL STATUS LIKE 'terrace_{name}'")[0][1])


def sunk(connection, run):
    """Bytes in objects, raw and stored, when nothing waits to sink any more."""
    wait_until(lambda: int(status(connection, run, "sink_blocks_waiting")) == 0)
    return [counter(connection, run, name) for name in ("objects_raw_bytes", "objects_stored_bytes")]


def fill(connection, run, table, option):
    """Rows of a kilobyte that look alike. Returns the share of their bytes that objects keep."""
    before = sunk(connection, run)
    run(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, t TEXT) ENGINE=Terrace {option}")
    for first in range(0, ROWS, 2000):
        run(connection, f"INSERT INTO {table} SELECT seq, REPEAT(CONCAT('row ', seq, ' of many; '), 60) FROM seq_{first}_to_{first + 1999}")
    now = sunk(connection, run)
    return (now[1] - before[1]) / (now[0] - before[0])


def read(connection, run, table):
    found = run(connection, f"SELECT COUNT(*), SUM(t = REPEAT(CONCAT('row ', id, ' of many; '), 60)) FROM {table}")
    assert found[0] == (ROWS, ROWS), found


def test_tables_choose_how_their_pages_are_compressed(stopped, run):
    stopped.options.append("--terrace-compression=lz4")
    stopped.start()
    connection = stopped.connect()
    run(connection, "CREATE DATABASE c")
    run(connection, "USE c")
    shares = {option: fill(connection, run, f"t{n}", option) for n, option in enumerate(["", "COMPRESSION=none", "COMPRESSION=zstd", "COMPRESSION=lz4"])}
    print(shares)
    # What sinks late of one table is in the figures of the next.
    assert shares["COMPRESSION=none"] > 0.5 and shares[""] < 0.3 and shares["COMPRESSION=zstd"] < 0.45
    assert counter(connection, run, "objects_pages_compressed") > 500
    for n in range(4):
        read(connection, run, f"t{n}")
    assert counter(connection, run, "objects_pages_decompressed") > 300
    assert "COMPRESSION=zstd" in run(connection, "SHOW CREATE TABLE t2")[0][1].replace("`", "").replace("'", "")
    with pytest.raises(Exception) as refused:
        run(connection, "CREATE TABLE bad (a INT) ENGINE=Terrace COMPRESSION=bzip2")
    assert refused.value.args[0] == 1912, refused.value

    # Changed at once, without a copy, and kept over a restart and a truncation.
    run(connection, "ALTER TABLE t1 COMPRESSION=zstd, ALGORITHM=INSTANT")
    run(connection, "ALTER TABLE t2 COMPRESSION=none, ALGORITHM=INSTANT")
    run(connection, "TRUNCATE TABLE t1")
    seen = "SELECT TABLE_NAME, COMPRESSION, WRITE_POLICY, FLASH_MIN, WAITS FROM information_schema.TERRACE_RULES WHERE TABLE_SCHEMA = 'c' ORDER BY 1"
    rules = [("t1", "zstd", "DEFAULT", 0, 0), ("t2", "none", "DEFAULT", 0, 0), ("t3", "lz4", "DEFAULT", 0, 0)]
    assert run(connection, seen) == rules
    stopped.kill9()
    stopped.start()
    connection = stopped.connect()
    assert run(connection, seen) == rules
    run(connection, "USE c")
    for n in (0, 2, 3):
        read(connection, run, f"t{n}")
    before = sunk(connection, run)
    for first in range(0, ROWS, 2000):
        run(connection, f"INSERT INTO t1 SELECT seq, REPEAT(CONCAT('row ', seq, ' of many; '), 60) FROM seq_{first}_to_{first + 1999}")
    now = sunk(connection, run)
    assert (now[1] - before[1]) / (now[0] - before[0]) < 0.5
    read(connection, run, "t1")
    stopped.stop()
    place = next(option for option in stopped.options if option.startswith("--terrace-object="))
    code, report = stopped.check(place.replace("--terrace-", "--"))
    assert code == 0, report
