"""Empty tables that are filled in bulk: as if row by row, for the session, for others, for the binary log and after a crash."""

import os
import threading
import time

import pymysql
import pytest
from conftest import binlog_options, contents, end, private, replayed, run, wait_until

ROWS = 20000
COLUMNS = "(id INT PRIMARY KEY, k INT NOT NULL, u INT UNIQUE, c CHAR(40) NOT NULL, j TEXT, v INT AS (k + 1) PERSISTENT, w INT AS (k * 2) VIRTUAL, KEY k (k), KEY c (c), KEY w (w))"
SELECT = "SELECT seq, seq * 7919 % 10007, IF(seq % 50, seq, NULL), MD5(seq), REPEAT('x', IF(seq % 1000, 10, 30000)) FROM seq_1_to_{rows}"
NAMES = "(id, k, u, c, j)"


@pytest.fixture
def source(db):
    """A table of rows that another engine keeps."""
    run(db, f"CREATE TABLE source ENGINE=InnoDB AS {SELECT.format(rows=ROWS)}")


@pytest.fixture
def others(db, server):
    """Makes other connections to the database, which end with the test."""
    made = []

    def other():
        made.append(server.connect(database=db.name))
        return made[-1]

    yield other
    for connection in made:
        connection.close()
    db.rollback()


def passed(db):
    """Pages that were built in bulk."""
    return int(run(db, "SHOW GLOBAL STATUS LIKE 'terrace_bypass_pages'")[0][1])


def made(db, engine, table="t", more=""):
    run(db, f"CREATE TABLE {table} {COLUMNS} ENGINE={engine} {more}")


def fill(db, table="t", order=""):
    before = passed(db)
    run(db, f"INSERT INTO {table} {NAMES} SELECT * FROM source {order}")
    return passed(db) - before


def is_whole(db, table="t"):
    return [row[3] for row in run(db, f"CHECK TABLE {table}")] == ["OK"]


def count(db, table="t"):
    ways = [f"SELECT COUNT(*) FROM {table} FORCE INDEX ({key})" for key in ("PRIMARY", "k", "u", "c", "w")]
    counts = {run(db, way)[0][0] for way in ways}
    assert len(counts) == 1, counts
    return counts.pop()


def refused(db, sql):
    with pytest.raises(pymysql.err.Error) as error:
        run(db, sql)
    return error.value.args


@pytest.mark.parametrize("order", ["ORDER BY 1", "ORDER BY 1 DESC", "ORDER BY 2, 1"])
def test_a_table_is_filled_whatever_the_order(db, engine, source, order):
    made(db, engine)
    assert fill(db, order=order) > 100
    assert count(db) == ROWS and is_whole(db)
    assert run(db, "SELECT SUM(k), SUM(v), SUM(w), SUM(LENGTH(j)) FROM t") == run(db, "SELECT SUM(`seq * 7919 % 10007`), SUM(`seq * 7919 % 10007` + 1), SUM(`seq * 7919 % 10007` * 2), SUM(LENGTH(`REPEAT('x', IF(seq % 1000, 10, 30000))`)) FROM source")
    assert refused(db, f"INSERT INTO t {NAMES} SELECT * FROM source")[0] == 1062
    assert count(db) == ROWS


def test_load_data_and_inserts_of_many_rows(db, engine, shared_directory):
    path = os.path.join(shared_directory, "rows")
    with open(path, "w") as file:
        file.writelines(f"{n}\t{n % 100}\t{'x' * 50}{n}\n" for n in range(1, ROWS + 1))
    os.chmod(path, 0o644)
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, k INT, c VARCHAR(100), KEY k (k), UNIQUE c (c)) ENGINE={engine}")
    before = passed(db)
    assert run(db, f"LOAD DATA INFILE '{path}' INTO TABLE t") == []
    assert passed(db) > before + 50 and is_whole(db)
    run(db, "TRUNCATE t")
    before = passed(db)
    run(db, "INSERT INTO t VALUES " + ",".join(f"({n}, {n % 100}, '{'y' * 50}{n}')" for n in range(ROWS)))
    assert passed(db) > before + 50 and is_whole(db)
    assert run(db, "SELECT COUNT(*), SUM(k) FROM t FORCE INDEX (k) WHERE k < 50") == [(ROWS // 2, 24.5 * ROWS // 2)]
    # What goes on after a duplicate, or says what it has inserted, goes row by row.
    for how in ("LOAD DATA INFILE '{}' IGNORE INTO TABLE t", "LOAD DATA INFILE '{}' REPLACE INTO TABLE t"):
        run(db, "TRUNCATE t")
        before = passed(db)
        run(db, how.format(path))
        assert passed(db) == before and run(db, "SELECT COUNT(*) FROM t") == [(ROWS,)]


def test_duplicates_leave_an_empty_table_and_name_key_and_row(db, engine, source):
    made(db, engine)
    run(db, "BEGIN")
    run(db, "INSERT INTO source SELECT 777, 1, NULL, '', ''")
    assert refused(db, f"INSERT INTO t {NAMES} SELECT * FROM source") == (1062, "Duplicate entry '777' for key 'PRIMARY'")
    assert count(db) == 0
    run(db, "COMMIT")
    run(db, "UPDATE source SET `seq` = 99999 WHERE `MD5(seq)` = ''")
    run(db, "UPDATE source SET `IF(seq % 50, seq, NULL)` = 4321 WHERE `seq` = 99999")
    assert refused(db, f"INSERT INTO t {NAMES} SELECT * FROM source") == (1062, "Duplicate entry '4321' for key 'u'")
    assert count(db) == 0 and is_whole(db)
    run(db, f"INSERT IGNORE INTO t {NAMES} SELECT * FROM source")
    assert count(db) == ROWS
    run(db, "TRUNCATE t")
    run(db, f"INSERT INTO t {NAMES} SELECT * FROM source ON DUPLICATE KEY UPDATE k = 0")
    assert count(db) == ROWS
    run(db, "TRUNCATE t")
    run(db, f"REPLACE INTO t {NAMES} SELECT * FROM source")
    assert count(db) == ROWS and is_whole(db)


def test_the_transaction_sees_its_rows_and_others_see_none_before_the_commit(db, engine, source, others):
    made(db, engine)
    other = others()
    run(other, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    run(db, "BEGIN")
    run(db, "SAVEPOINT a")
    assert fill(db) > 100
    assert count(db) == ROWS
    run(db, "UPDATE t SET c = 'changed', u = -id WHERE id <= 100")
    run(db, "DELETE FROM t WHERE id > 100 AND id <= 200")
    assert count(other) == 0
    assert count(others()) == 0
    run(db, "ROLLBACK TO a")
    assert count(db) == 0
    assert fill(db) > 100
    run(db, "SAVEPOINT b")
    run(db, "DELETE FROM t WHERE id < 1000")
    run(db, "ROLLBACK TO b")
    run(db, "INSERT INTO t (id, k, c) VALUES (1000000, 1, '')")
    # Another session's row beside them, and one that must wait.
    third = others()
    run(third, "SET terrace_lock_wait_timeout_ms = 100")
    run(third, "INSERT INTO t (id, k, c) VALUES (2000000, 1, '')")
    assert refused(third, "INSERT INTO t (id, k, c) VALUES (5, 1, '')")[0] == 1205
    run(db, "COMMIT")
    assert count(other) == 0
    run(other, "COMMIT")
    assert count(other) == ROWS + 2 and is_whole(db)
    run(db, "DELETE FROM t")
    run(db, "ANALYZE TABLE t")


def test_rows_that_come_beside_a_load_stay(db, engine, source, others):
    made(db, engine)
    other = others()
    # It stands amid its rows until the other one lets go.
    [(lock, number)] = run(other, "SELECT CONCAT('gate of ', DATABASE()), CONNECTION_ID()")
    assert run(other, f"SELECT GET_LOCK('{lock}', 0)") == [(1,)]
    running = threading.Thread(target=lambda: run(db, f"INSERT INTO t {NAMES} SELECT * FROM source WHERE IF(`seq` = 15000, GET_LOCK('{lock}', 600), 1) = 1"))
    running.start()
    wait_until(lambda: run(other, f"SELECT 1 FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND STATE = 'User lock' AND ID != {number}"))
    run(other, "INSERT INTO t (id, k, c) VALUES (1000000, 1, 'beside')")
    assert count(other) == 1
    run(other, f"DO RELEASE_LOCK('{lock}')")
    running.join()
    run(db, f"DO RELEASE_LOCK('{lock}')")
    assert count(other) == ROWS + 1 and is_whole(other)


def test_triggers_functions_and_what_reads_the_table_meanwhile(db, engine, source):
    made(db, engine)
    run(db, f"CREATE TABLE seen (n INT) ENGINE={engine}")
    run(db, "CREATE TRIGGER one AFTER INSERT ON t FOR EACH ROW INSERT INTO seen SELECT COUNT(*) FROM t WHERE id <= 3")
    run(db, f"INSERT INTO t {NAMES} SELECT * FROM source WHERE seq <= 10")
    assert run(db, "SELECT n FROM seen") == [(n,) for n in (1, 2, 3)] + [(3,)] * 7
    run(db, "DROP TRIGGER one")
    run(db, "TRUNCATE t")
    run(db, "CREATE FUNCTION rows_now() RETURNS INT RETURN (SELECT COUNT(*) FROM t)")
    run(db, f"INSERT INTO t {NAMES} SELECT `seq`, rows_now(), NULL, '', '' FROM source WHERE `seq` <= 5")
    seen = [row[0] for row in run(db, "SELECT k FROM t ORDER BY id")]
    run(db, "CREATE TABLE i LIKE t")
    run(db, "ALTER TABLE i ENGINE=InnoDB")
    run(db, "CREATE FUNCTION rows_of_i() RETURNS INT RETURN (SELECT COUNT(*) FROM i)")
    run(db, f"INSERT INTO i {NAMES} SELECT `seq`, rows_of_i(), NULL, '', '' FROM source WHERE `seq` <= 5")
    assert seen == [row[0] for row in run(db, "SELECT k FROM i ORDER BY id")]
    # The table into itself, twice.
    run(db, "INSERT INTO t (id, k, c) SELECT id + 100000, k, c FROM t")
    assert count(db) == 10
    # RETURNING has told the rows by the time a duplicate would be found.
    run(db, "TRUNCATE t")
    assert len(run(db, f"INSERT INTO t {NAMES} SELECT * FROM source LIMIT 1500 RETURNING id")) == 1500


def test_auto_increment_and_partitions(db, engine, source):
    run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, k INT, KEY k (k)) ENGINE={engine} PARTITION BY HASH (id) PARTITIONS 5")
    run(db, "INSERT INTO t (k) SELECT `seq` FROM source")
    assert run(db, "SELECT COUNT(*), MIN(id), MAX(id), COUNT(DISTINCT k) FROM t") == [(ROWS, 1, ROWS, ROWS)]
    run(db, "INSERT INTO t (k) VALUES (1)")
    assert run(db, "SELECT LAST_INSERT_ID() > %s, COUNT(*) FROM t", (ROWS,)) == [(1, ROWS + 1)]
    run(db, "TRUNCATE t")
    assert refused(db, "INSERT INTO t SELECT IF(`seq` = 19999, 5, `seq`), 1 FROM source ORDER BY `seq`") == (1062, "Duplicate entry '5' for key 'PRIMARY'")
    assert run(db, "SELECT COUNT(*) FROM t") == [(0,)]
    run(db, "INSERT INTO t SELECT `seq` * 2, 1 FROM source")
    run(db, "INSERT INTO t (k) VALUES (7)")
    assert run(db, "SELECT id FROM t WHERE k = 7") == [(2 * ROWS + 1,)] and is_whole(db)
    run(db, f"CREATE TABLE h (a INT, b VARCHAR(100), KEY a (a)) ENGINE={engine}")
    run(db, "INSERT INTO h SELECT `seq`, `MD5(seq)` FROM source")
    assert run(db, "SELECT COUNT(*), SUM(a) FROM h") == [(ROWS, ROWS * (ROWS + 1) // 2)] and is_whole(db, "h")


def test_a_statement_that_is_killed_or_fails_leaves_nothing(db, engine, source, server):
    made(db, engine)
    before = run(db, "SELECT DATA_LENGTH, INDEX_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'")
    number = run(db, "SELECT CONNECTION_ID()")[0][0]
    killer = threading.Timer(0.7, lambda: run(server.connect(), f"KILL QUERY {number}"))
    killer.start()
    assert refused(db, f"INSERT INTO t {NAMES} SELECT * FROM source WHERE SLEEP(IF(`seq` = 19000, 5, 0)) = 0")[0] in (1317, 1028)
    killer.join()
    assert count(db) == 0
    assert refused(db, f"INSERT INTO t {NAMES} SELECT IF(`seq` = 19999, POW(10, 20), `seq`), 1, NULL, '', '' FROM source ORDER BY `seq`")[0] in (1264, 1690)
    assert count(db) == 0 and is_whole(db)
    after = run(db, "SELECT DATA_LENGTH, INDEX_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'")
    assert after == before
    assert fill(db) > 100 and count(db) == ROWS


def test_the_binary_log_has_the_rows(shared_directory):
    server = private(["--terrace-memory=33554432", *binlog_options(shared_directory)])
    try:
        db = server.connect()
        run(db, "CREATE DATABASE d")
        db.select_db("d")
        made(db, "Terrace")
        run(db, f"INSERT INTO t {NAMES} {SELECT.format(rows=5000)}")
        run(db, "CREATE TABLE empty LIKE t")
        run(db, "BEGIN")
        run(db, f"INSERT INTO empty {NAMES} {SELECT.format(rows=5000)}")
        run(db, "ROLLBACK")
        refused(db, f"INSERT INTO empty {NAMES} {SELECT.format(rows=5000)} UNION ALL SELECT 5, 1, NULL, '', ''")
        expected = contents(db, ["t", "empty"])
        assert len(expected["t"]) == 5000 and not expected["empty"]
        assert replayed(shared_directory, "d", ["t", "empty"]) == expected
    finally:
        end(server)


@pytest.mark.parametrize("bypass", [1, 0])
def test_killed_in_mid_load_the_server_comes_back_with_an_empty_table(own_server, bypass):
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    run(db, f"SET GLOBAL terrace_bypass = {bypass}")
    made(db, "Terrace")
    for seconds in (0.3, 1.2, 2.5):
        def load():
            try:
                run(db, f"INSERT INTO t {NAMES} {SELECT.format(rows=400000)} ORDER BY seq % 3, seq")
            except pymysql.err.Error:
                pass
        running = threading.Thread(target=load)
        running.start()
        time.sleep(seconds)
        own_server.kill9()
        running.join()
        code, report = own_server.check()
        assert code == 0, report
        own_server.start()
        db = own_server.connect(database="d")
        run(db, f"SET GLOBAL terrace_bypass = {bypass}")
        assert count(db) in (0, 400000)
        if count(db):
            run(db, "TRUNCATE t")
    run(db, f"INSERT INTO t {NAMES} {SELECT.format(rows=20000)}")
    assert count(db) == 20000 and is_whole(db)
    own_server.stop()
    code, report = own_server.check()
    assert code == 0 and report["leaked"]["count"] == 0, report
    own_server.start()
