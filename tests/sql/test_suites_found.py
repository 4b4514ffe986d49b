"""What the server's own test suites found (tests/mtr), in short."""

import pymysql
import pytest
from conftest import end, private


def test_an_update_makes_the_next_partition_by_system_time(db, engine, run):
    """UPDATE made a table while the statement's list of keys was another's, freed: the server fell."""
    run(db, "SET timestamp = UNIX_TIMESTAMP('2000-01-01 00:00:00')")
    run(db, f"CREATE TABLE t (pk INT PRIMARY KEY, a INT) ENGINE={engine} WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME INTERVAL 1 HOUR AUTO")
    run(db, "INSERT INTO t VALUES (1, 0)")
    for hour in range(1, 4):
        run(db, f"SET timestamp = UNIX_TIMESTAMP('2000-01-01 0{hour}:00:00')")
        run(db, "UPDATE t SET a = a + 1")
    assert run(db, "SELECT a FROM t") == [(3,)]
    assert run(db, "SELECT a FROM t FOR SYSTEM_TIME ALL ORDER BY a") == [(0,), (1,), (2,), (3,)]
    assert run(db, "SELECT COUNT(*) FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = DATABASE()") == [(5,)]
    run(db, "SET timestamp = DEFAULT")


def test_a_sequence_works_under_lock_tables(db, engine, run):
    run(db, f"CREATE SEQUENCE s ENGINE={engine}")
    run(db, "LOCK TABLES s WRITE")
    assert run(db, "SELECT NEXTVAL(s)") == [(1,)]
    assert run(db, "SELECT minimum_value, cache_size FROM s") == [(1, 1000)]
    run(db, "COMMIT")
    assert run(db, "SELECT NEXTVAL(s)") == [(2,)]
    assert run(db, "SELECT start_value FROM s") == [(1,)]
    run(db, "UNLOCK TABLES")


def test_check_table_warns_of_indexed_virtual_columns_only(db, engine, run):
    seen = []
    for name in ("InnoDB", engine):
        run(db, "SET sql_mode = ''")
        run(db, f"""CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(10), n INT AS (c + 0) VIRTUAL, m INT AS (c * 2) VIRTUAL,
                o INT AS (m + 1) VIRTUAL, p INT AS (n + id) VIRTUAL, KEY (n), KEY (p)) ENGINE={name}""")
        run(db, "INSERT INTO t (id, c) VALUES (1, '1'), (2, '3y'), (3, '3')")
        checked = run(db, "CHECK TABLE t EXTENDED")
        seen.append((set(checked), run(db, "SELECT id FROM t WHERE n = 3"), run(db, "SELECT id FROM t WHERE p = 5")))
        run(db, "DROP TABLE t")
    assert seen[0] == seen[1]
    assert len(seen[0][0]) == 2


def test_flush_for_export_is_refused(db, engine, run):
    """A Terrace table is no file that could be copied."""
    if engine == "InnoDB":
        pytest.skip("InnoDB's tables are files")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={engine}")
    with pytest.raises(pymysql.err.MySQLError) as error:
        run(db, "FLUSH TABLES t FOR EXPORT")
    assert error.value.args[0] == 1031 and engine in error.value.args[1]
    run(db, "INSERT INTO t VALUES (1)")
    for sql in ("ALTER TABLE t DISCARD TABLESPACE", "ALTER TABLE t IMPORT TABLESPACE"):
        with pytest.raises(pymysql.err.MySQLError) as error:
            run(db, sql)
        assert error.value.args[0] == 1031, sql
    assert run(db, "SELECT * FROM t") == [(1,)]


def test_a_prepared_transaction_of_temporary_tables_alone_ends_with_the_server(engine, run):
    """It was found again after a kill, and nobody could end it but by name."""
    server = private(["--terrace-memory=16777216"])
    try:
        one, other = server.connect(), server.connect()
        run(one, "CREATE DATABASE d")
        run(one, f"CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE={engine}")
        run(one, f"CREATE TEMPORARY TABLE d.tmp (id INT PRIMARY KEY) ENGINE={engine}")
        for sql in ("XA START 'only'", "INSERT INTO d.tmp VALUES (1)", "XA END 'only'", "XA PREPARE 'only'"):
            run(one, sql)
        for sql in ("XA START 'both'", "INSERT INTO d.t VALUES (1)", "XA END 'both'", "XA PREPARE 'both'"):
            run(other, sql)
        run(one, "XA COMMIT 'only'")
        assert run(one, "SELECT * FROM d.tmp") == [(1,)]
        for sql in ("XA START 'only'", "INSERT INTO d.tmp VALUES (2)", "XA END 'only'", "XA PREPARE 'only'"):
            run(one, sql)
        server.kill9()
        server.start()
        again = server.connect()
        assert [row[3] for row in run(again, "XA RECOVER")] == [b"both"]
        run(again, "XA COMMIT 'both'")
        assert run(again, "SELECT * FROM d.t") == [(1,)]
    finally:
        end(server)


def test_a_backup_stage_lets_transactions_go_on(server, db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={engine}")
    other = server.connect(database=db.name)
    run(other, "SET SESSION lock_wait_timeout = 2")
    try:
        run(db, "BACKUP STAGE START")
        run(db, "BACKUP STAGE FLUSH")
        run(other, "INSERT INTO t VALUES (1)")
        run(db, "BACKUP STAGE BLOCK_DDL")
        run(other, "INSERT INTO t VALUES (2)")
        run(db, "BACKUP STAGE BLOCK_COMMIT")
        with pytest.raises(pymysql.err.OperationalError) as error:
            run(other, "INSERT INTO t VALUES (3)")
        assert error.value.args[0] == 1205
    finally:
        run(db, "BACKUP STAGE END")
    assert run(db, "SELECT * FROM t") == [(1,), (2,)]


def test_a_shorter_column_takes_its_kept_statistics_along(db, run, engine):
    """ALTER copied, rightly, but the server was told that the column's values stay as they are."""
    kept = []
    for name in ("InnoDB", engine):
        run(db, f"CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(32), KEY (b)) ENGINE={name}")
        run(db, "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        run(db, "ANALYZE TABLE t PERSISTENT FOR ALL")
        statistics = f"""SELECT (SELECT COUNT(*) FROM mysql.column_stats WHERE db_name = '{db.name}'),
                                (SELECT COUNT(*) FROM mysql.index_stats WHERE db_name = '{db.name}')"""
        counts = []
        for change in ("MODIFY b VARCHAR(40)", "MODIFY b VARCHAR(400)", "MODIFY b VARCHAR(30)"):
            run(db, f"ALTER TABLE t {change}")
            counts += run(db, statistics)
        kept.append(counts)
        run(db, "DROP TABLE t")
    # InnoDB copies where the length takes another byte; there the statistics go, too.
    assert kept[1][0] == kept[0][0] == (2, 3)
    assert kept[1][2] == kept[0][2] == (1, 1)


def test_an_index_directory_is_refused(db, run, engine):
    with pytest.raises(pymysql.err.OperationalError) as error:
        run(db, f"CREATE TABLE t (a INT) ENGINE={engine} INDEX DIRECTORY='/tmp/'")
    assert error.value.args[0] == 1005 and "Wrong create options" in error.value.args[1]
    assert run(db, "SHOW WARNINGS")[0][1:] == (1478, f"{engine}: INDEX DIRECTORY is not supported")
    assert run(db, "SHOW TABLES") == []
