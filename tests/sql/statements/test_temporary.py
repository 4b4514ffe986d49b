"""Temporary tables: they support all that tables do, are kept in memory and on flash, and leave nothing behind."""

import os
import time

import pymysql
import pytest
from conftest import end, private, wait_until

MIB = 1 << 20


def run(connection, statement, *arguments):
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments or None)
        return list(cursor.fetchall())


def status(server):
    """All numbers of the engine."""
    connection = server.connect()
    lines = run(connection, "SHOW ENGINE TERRACE STATUS")[0][2].strip().splitlines()
    connection.close()
    pairs = (line.split(" ", 1) for line in lines)
    return {name: int(value) for name, value in pairs if value.isdigit()}


def refused(connection, statement):
    with pytest.raises(pymysql.MySQLError) as caught:
        run(connection, statement)
    return caught.value.args[0]


@pytest.fixture
def small(tmp_path, engine):
    """A server with little memory, flash, and little room for temporary tables; row-based binary log."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    options = ["--terrace-memory=16777216", "--terrace-object-buffer=134217728", f"--terrace-flash-path={tmp_path}/flash"]
    options += ["--terrace-flash=33554432", "--terrace-temporary-max=134217728", "--log-bin=binary", "--server-id=1", "--binlog-format=ROW"]
    server = private(options)
    server.flash = tmp_path / "flash"
    run(server.connect(), "CREATE DATABASE d")
    yield server
    end(server)


def file_bytes(server):
    files = [server.flash / "temporary", os.path.join(server.directory, "data", "terrace", "temporary")]
    return [os.path.getsize(file) if os.path.exists(file) else None for file in files]


def test_transactions_are_rolled_back_in_temporary_tables_too(db, engine):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, f"CREATE TEMPORARY TABLE x (id INT PRIMARY KEY AUTO_INCREMENT, v INT, b LONGBLOB, KEY v (v)) ENGINE={engine}")
    run(db, "INSERT INTO x (v, b) SELECT seq % 10, REPEAT('b', seq * 20) FROM seq_1_to_2000")
    total = run(db, "SELECT COUNT(*), SUM(LENGTH(b)) FROM x FORCE INDEX (v) WHERE v < 5")
    assert total == [(1000, sum(20 * n for n in range(1, 2001) if n % 10 < 5))]
    run(db, "BEGIN")
    run(db, "UPDATE x SET v = 77, b = 'small' WHERE id <= 100")
    run(db, "INSERT INTO t SELECT id, v FROM x WHERE id <= 10")
    run(db, "SAVEPOINT s")
    run(db, "DELETE FROM x WHERE id > 50")
    run(db, "INSERT INTO t VALUES (99, 1)")
    assert refused(db, "INSERT INTO x (id, v) VALUES (1000, 1), (1001, 2), (1, 1)") == 1062
    assert run(db, "SELECT COUNT(*) FROM x") == [(50,)]
    run(db, "ROLLBACK TO s")
    assert run(db, "SELECT COUNT(*), SUM(v = 77) FROM x") == [(2000, 100)]
    assert run(db, "SELECT COUNT(*) FROM t") == [(10,)]
    run(db, "ROLLBACK")
    assert run(db, "SELECT COUNT(*), SUM(v = 77) FROM x") == [(2000, 0)]
    assert run(db, "SELECT COUNT(*), SUM(LENGTH(b)) FROM x FORCE INDEX (v) WHERE v < 5") == total
    assert run(db, "SELECT COUNT(*) FROM t") == [(0,)]
    run(db, "BEGIN")
    run(db, "DELETE FROM x WHERE id % 2 = 0")
    run(db, "INSERT INTO t SELECT id, v FROM x WHERE id < 8")
    run(db, "COMMIT")
    assert run(db, "SELECT (SELECT COUNT(*) FROM x), COUNT(*) FROM t") == [(1000, 4)]


def test_temporary_tables_are_altered_truncated_and_renamed(db, engine):
    run(db, f"CREATE TEMPORARY TABLE x ENGINE={engine} AS SELECT seq AS id, seq % 7 AS v, REPEAT('p', 300) AS p FROM seq_1_to_5000")
    run(db, "ALTER TABLE x ADD PRIMARY KEY (id), ADD KEY v (v), ADD COLUMN w INT DEFAULT 3")
    assert run(db, "SELECT COUNT(*), SUM(w) FROM x FORCE INDEX (v) WHERE v = 2") == [(715, 2145)]
    assert refused(db, "ALTER TABLE x ADD UNIQUE (v)") == 1062
    run(db, "ALTER TABLE x RENAME TO y, DROP KEY v")
    assert run(db, "CHECK TABLE y")[0][3] == "OK"
    run(db, "TRUNCATE y")
    run(db, "INSERT INTO y (id, v, p) VALUES (1, 2, 'x')")
    assert run(db, "SELECT id, v, p, w FROM y") == [(1, 2, "x", 3)]
    assert refused(db, "SELECT * FROM x") == 1146
    run(db, "DROP TEMPORARY TABLE y")
    assert refused(db, "SELECT * FROM y") == 1146


def test_a_temporary_table_spills_to_flash_and_leaves_nothing(small):
    db = small.connect(database="d")
    run(db, "CREATE TABLE t (id INT PRIMARY KEY, p VARCHAR(2000)) ENGINE=Terrace")
    run(db, "INSERT INTO t VALUES (1, 'a')")
    before = status(small)
    run(db, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY, v INT, p VARCHAR(2000), KEY v (v)) ENGINE=Terrace")
    run(db, "INSERT INTO x SELECT seq, seq % 100, REPEAT('p', 1000) FROM seq_1_to_30000")
    run(db, "UPDATE x SET v = v + 1 WHERE id % 3 = 0")
    assert run(db, "SELECT COUNT(*), SUM(LENGTH(p)), SUM(v) FROM x") == [(30000, 30_000_000, sum(n % 100 + (n % 3 == 0) for n in range(1, 30001)))]
    now = status(small)
    assert now["temporary_pages_spilled"] > 1000 and now["temporary_spill_reads"] > 1000, now
    assert now["temporary_bytes"] > 30 * MIB and now["temporary_tables"] == 1
    assert now["bypass_pages"] == before["bypass_pages"] and now["flush_pages"] - before["flush_pages"] < 50
    assert now["log_bytes_written"] - before["log_bytes_written"] < MIB
    spaces = run(db, "SELECT SUM(PAGES_FLASH), SUM(PAGES_VOLUME), SUM(PAGES_OBJECT) FROM information_schema.TERRACE_SPACES WHERE TABLE_NAME LIKE '%#sql%'")
    assert spaces[0][0] > 1000 and spaces[0][1:] == (0, 0), run(db, "SELECT * FROM information_schema.TERRACE_SPACES")
    flash, volume = file_bytes(small)
    assert flash > 16 * MIB and volume is None
    small.kill9()
    small.start()
    assert file_bytes(small) == [None, None]
    db = small.connect(database="d")
    assert refused(db, "SELECT * FROM x") == 1146
    assert status(small)["temporary_pages"] == 0 and run(db, "SELECT * FROM t") == [(1, "a")]
    run(db, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY, p VARCHAR(2000)) ENGINE=Terrace")
    run(db, "INSERT INTO x SELECT seq, REPEAT('p', 1000) FROM seq_1_to_30000")
    db.close()
    small.stop()
    assert file_bytes(small) == [None, None]
    code, report = small.check()
    assert code == 0, report
    small.start()


def test_temporary_tables_beyond_their_limit_fail_with_table_full(small):
    db = small.connect(database="d")
    run(db, "CREATE TABLE t (id INT PRIMARY KEY, p VARCHAR(2000)) ENGINE=Terrace")
    run(db, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY AUTO_INCREMENT, p VARCHAR(2000)) ENGINE=Terrace")
    run(db, "INSERT INTO x (p) SELECT REPEAT('p', 1500) FROM seq_1_to_20000")
    run(db, "INSERT INTO x (p) VALUES ('last')")
    assert refused(db, "INSERT INTO x (p) SELECT REPEAT('p', 1500) FROM seq_1_to_90000") == 1114
    assert run(db, "SELECT COUNT(*) FROM x") == [(20001,)]
    run(db, "INSERT INTO t SELECT id, 'x' FROM x WHERE id <= 5000")
    run(db, "DROP TEMPORARY TABLE x")
    run(db, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY AUTO_INCREMENT, p VARCHAR(2000)) ENGINE=Terrace")
    run(db, "INSERT INTO x (p) SELECT REPEAT('p', 1500) FROM seq_1_to_20000")
    assert run(db, "SELECT (SELECT COUNT(*) FROM x), COUNT(*) FROM t") == [(20000, 5000)]


def test_the_binary_log_of_temporary_tables_equals_innodbs(small):
    """Row and mixed: the events of the same session with each engine."""
    db = small.connect(database="d")

    def events(engine, form):
        run(db, f"SET SESSION binlog_format = {form}")
        run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
        run(db, "FLUSH BINARY LOGS")
        run(db, f"CREATE TEMPORARY TABLE x (id INT PRIMARY KEY, v INT) ENGINE={engine}")
        run(db, "INSERT INTO x VALUES (1, 1), (2, 2)")
        run(db, "BEGIN")
        run(db, "UPDATE x SET v = v + 1")
        run(db, "INSERT INTO t SELECT * FROM x")
        run(db, "SAVEPOINT s")
        run(db, "INSERT INTO x VALUES (3, 3)")
        run(db, "INSERT INTO t VALUES (3, 3)")
        run(db, "ROLLBACK TO s")
        run(db, "COMMIT")
        run(db, "BEGIN")
        run(db, "DELETE FROM x")
        run(db, "ROLLBACK")
        assert run(db, "SELECT x.id, x.v, t.v FROM x JOIN t USING (id) ORDER BY 1") == [(1, 2, 2), (2, 3, 3)]
        run(db, "DROP TEMPORARY TABLE x")
        log = run(db, "SHOW BINARY LOGS")[-1][0]
        found = [(kind, text.split(" GTID ")[0]) for _, _, kind, _, _, text in run(db, f"SHOW BINLOG EVENTS IN '{log}'")]
        run(db, "DROP TABLE t")
        noise = ("Format_desc", "Gtid_list", "Binlog_checkpoint", "Xid", "Gtid", "Table_map")
        return [(kind, text.replace(engine, "E") if kind == "Query" else "") for kind, text in found if kind not in noise]

    for form in "ROW", "MIXED":
        assert events("Terrace", form) == events("InnoDB", form), form


def test_a_dropped_connection_frees_its_temporary_tables(small):
    for _ in range(6):
        db = small.connect(database="d")
        run(db, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY, p VARCHAR(2000)) ENGINE=Terrace")
        run(db, "BEGIN")
        run(db, "INSERT INTO x SELECT seq, REPEAT('p', 1500) FROM seq_1_to_20000")
        db.close()
    db = small.connect(database="d")
    run(db, "CREATE TEMPORARY TABLE y (id INT PRIMARY KEY, p VARCHAR(2000)) ENGINE=Terrace")
    run(db, "INSERT INTO y SELECT seq, REPEAT('p', 1500) FROM seq_1_to_20000")
    assert run(db, "SELECT COUNT(*) FROM y") == [(20000,)]
    run(db, "XA START 'a'")
    run(db, "INSERT INTO y VALUES (0, '')")
    run(db, "XA END 'a'")
    run(db, "XA ROLLBACK 'a'")
    assert run(db, "SELECT COUNT(*) FROM y") == [(20000,)]


def test_temporary_tables_can_be_created_in_every_way(small):
    """For comparison: then they are logged and take the volume's slots, and the next start drops what a kill left."""
    db = small.connect(database="d")
    run(db, "SET GLOBAL terrace_temporary_unlogged = OFF")
    before = status(small)
    run(db, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY, p VARCHAR(2000)) ENGINE=Terrace")
    run(db, "INSERT INTO x SELECT seq, REPEAT('p', 1000) FROM seq_1_to_20000")
    run(db, "UPDATE x SET p = REPEAT('q', 1000)")
    now = status(small)
    assert now["log_bytes_written"] - before["log_bytes_written"] > 16 * MIB and now["temporary_tables"] == 0
    free = before["object_buffer_slots_free"]
    assert now["object_buffer_slots_free"] < free - 500
    small.kill9()
    small.start()
    assert run(small.connect(), "SELECT @@terrace_temporary_unlogged") == [(1,)]
    assert run(small.connect(), "SELECT COUNT(*) FROM information_schema.TERRACE_SPACES WHERE TABLE_NAME LIKE '%#sql%'") == [(0,)]


INTERNAL = {
    "derived": "SELECT COUNT(*), SUM(LENGTH(p)) FROM (SELECT DISTINCT id, p FROM t) d JOIN (SELECT DISTINCT id FROM t) e USING (id)",
    "group by": "SELECT COUNT(*), SUM(l) FROM (SELECT CONCAT(p, id) AS k, MAX(LENGTH(p)) AS l FROM t GROUP BY k) d",
    "union": "SELECT COUNT(*), SUM(LENGTH(p)) FROM (SELECT id, p FROM t UNION SELECT id, p FROM t) d",
    "order by": "SELECT COUNT(*), SUM(l) FROM (SELECT LENGTH(p) AS l, ROW_NUMBER() OVER (ORDER BY p, id DESC) AS n FROM t) d WHERE n > 0",
}


def test_the_servers_own_spills_for_derived_tables_and_groups_reach_no_tier(tmp_path, engine):
    """Its own temporary tables are not the engine's: what is read from below for them is read, and nothing is written there."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    options = ["--terrace-memory=10485760", "--terrace-object-buffer=8388608", "--terrace-log=8388608", f"--terrace-object={tmp_path}/store", "--terrace-sink-after-ms=500"]
    server = private(options + ["--tmp-memory-table-size=16384", "--max-heap-table-size=16384", "--sort-buffer-size=65536"])
    try:
        db = server.connect()
        run(db, "CREATE DATABASE d")
        db.select_db("d")
        run(db, "CREATE TABLE t (id INT PRIMARY KEY, p VARCHAR(1000)) ENGINE=Terrace")
        run(db, "INSERT INTO t SELECT seq, REPEAT('p', 900) FROM seq_1_to_10000")
        run(db, INTERNAL["derived"])  # what a first use writes is written: samples
        names = ["flush_pages", "bypass_pages", "objects_put", "objects_put_bytes", "sink_blocks", "log_bytes_written", "log_writes", "log_mini_transactions"]
        names += ["object_buffer_slots_free", "object_buffer_bytes_file", "volume_log_bytes", "volume_flush_bytes", "temporary_pages", "temporary_spill_writes"]

        def written():
            seen = status(server)
            return {name: seen[name] for name in names}

        def spilled():
            shown = dict(run(db, "SHOW SESSION STATUS WHERE Variable_name IN ('Created_tmp_disk_tables', 'Sort_merge_passes')"))
            return sum(int(number) for number in shown.values())

        def is_quiet():
            before = written()
            time.sleep(1)
            return status(server)["sink_blocks_waiting"] == 0 and before == written()

        wait_until(is_quiet)
        before = written()
        assert before["objects_put"] > 0 and before["flush_pages"] + before["bypass_pages"] > 500, before
        for name, sql in INTERNAL.items():
            disk = spilled()
            assert run(db, sql) == [(10000, 9_000_000)], name
            assert spilled() > disk, f"{name} did not spill, or this proves nothing"
            assert written() == before, name
        time.sleep(1)  # and what comes late
        assert written() == before
    finally:
        end(server)
