"""Bulk loads into empty tables and into tables with rows: for the session, for others, in the binary log and after a crash the result is that of row by row."""

import contextlib
import json
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
def test_a_table_is_filled_in_any_input_order(db, engine, source, order):
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


def test_rows_inserted_during_a_load_stay(db, engine, source, others):
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


def test_loads_with_triggers_functions_and_reads_of_the_table(db, engine, source):
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


def killed_in(server, db, seconds, sql):
    """Kills the server a given time after the statement began, and starts it again; returns a connection to it."""
    def statement():
        try:
            run(db, sql)
        except pymysql.err.Error:
            pass

    running = threading.Thread(target=statement)
    running.start()
    time.sleep(seconds)
    server.kill9()
    running.join()
    code, report = server.check()
    assert code == 0, report
    server.start()
    return server.connect(database="d")


UNPROVED = "each was done when the server was killed: this proves nothing"


def leaks_nothing(server):
    server.stop()
    code, report = server.check()
    assert code == 0 and report["leaked"]["count"] == 0, json.dumps(report)
    server.start()


@pytest.mark.parametrize("bypass", [1, 0])
def test_a_server_killed_during_a_load_comes_back_with_an_empty_table(own_server, bypass):
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    run(db, f"SET GLOBAL terrace_bypass = {bypass}")
    made(db, "Terrace")
    undone = 0
    for seconds in (0.3, 1.2, 2.5):
        db = killed_in(own_server, db, seconds, f"INSERT INTO t {NAMES} {SELECT.format(rows=400000)} ORDER BY seq % 3, seq")
        run(db, f"SET GLOBAL terrace_bypass = {bypass}")
        assert count(db) in (0, 400000)
        undone += not count(db)
        run(db, "TRUNCATE t")
    assert undone, UNPROVED
    run(db, f"INSERT INTO t {NAMES} {SELECT.format(rows=20000)}")
    assert count(db) == 20000 and is_whole(db)
    leaks_nothing(own_server)


FILLED = "(id INT PRIMARY KEY, k INT NOT NULL, c CHAR(40) NOT NULL, KEY k (k), UNIQUE c (c)) ENGINE={engine} SELECT seq AS id, seq * 7919 % 10007 AS k, MD5(seq) AS c FROM seq_1_to_{rows}"


def test_create_select_is_built_in_bulk_and_load_data_local_is_not(db, engine, server, shared_directory):
    for create in ("CREATE TABLE s", "CREATE OR REPLACE TABLE s"):
        before = passed(db)
        run(db, f"{create} {FILLED.format(engine=engine, rows=ROWS)}")
        assert passed(db) > before + 100 and is_whole(db, "s")
        assert [run(db, f"SELECT COUNT(*) FROM s FORCE INDEX ({key})") for key in ("PRIMARY", "k", "c")] == [[(ROWS,)]] * 3
    # LOCAL: the client can't be stopped at a duplicate, so it is left out with a warning, and each row goes by itself.
    path = os.path.join(shared_directory, "rows")
    with open(path, "w") as file:
        file.writelines(f"{n % 3000}\t{n}\t{n}\n" for n in range(1, 3002))
    run(db, "CREATE TABLE l LIKE s")
    client = server.connect(database=db.name, local_infile=True)
    before = passed(db)
    cursor = client.cursor()
    assert cursor.execute(f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE l") == 3000
    assert [(code, text) for _, code, text in run(client, "SHOW WARNINGS")] == [(1062, "Duplicate entry '1' for key 'PRIMARY'")]
    assert passed(db) == before and run(db, "SELECT COUNT(*), SUM(k) FROM l") == [(3000, 3000 * 3001 // 2)] and is_whole(db, "l")


@pytest.mark.parametrize("bypass", [1, 0])
def test_a_server_killed_during_create_select_leaves_no_trace_of_the_table(own_server, bypass):
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")

    def free():
        return int(run(db, "SHOW GLOBAL STATUS LIKE 'terrace_object_buffer_slots_free'")[0][1])

    def left():
        return run(db, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA NOT IN ('mysql', 'sys') AND TABLE_NAME != '#statistics'")

    room, undone = free(), 0
    for seconds in (0.3, 1):
        run(db, f"SET GLOBAL terrace_bypass = {bypass}")
        db = killed_in(own_server, db, seconds, f"CREATE TABLE n {FILLED.format(engine='Terrace', rows=200000)}")
        if run(db, "SHOW TABLES"):
            assert run(db, "SELECT COUNT(*) FROM n FORCE INDEX (k)") == [(200000,)] and is_whole(db, "n")
            run(db, "DROP TABLE n")
        else:
            undone += 1
        wait_until(lambda: not left())
        assert os.listdir(os.path.join(own_server.directory, "data", "d")) == ["db.opt"]
        # A few pages are the engine's own: its catalog, undo.
        wait_until(lambda: free() > room - 50)
    assert undone, UNPROVED
    run(db, f"CREATE TABLE n {FILLED.format(engine='Terrace', rows=20000)}")
    assert run(db, "SELECT COUNT(*) FROM n FORCE INDEX (c)") == [(20000,)] and is_whole(db, "n")
    leaks_nothing(own_server)


def test_a_half_filled_table_that_the_server_has_forgotten_is_refused_and_can_be_dropped(own_server):
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")

    def create():
        with contextlib.suppress(pymysql.err.Error):
            run(own_server.connect(database="d"), f"CREATE TABLE n {FILLED.format(engine='Terrace', rows=2000000)}")

    def is_filled():
        return run(db, "SELECT 1 FROM information_schema.TERRACE_SPACES WHERE TABLE_NAME = 'n' AND PAGES > 50")

    running = threading.Thread(target=create)
    running.start()
    wait_until(is_filled)
    # The log goes to the disk with it.
    run(db, "CREATE TABLE other (id INT PRIMARY KEY) ENGINE=Terrace")
    own_server.kill9()
    running.join()
    code, report = own_server.check()
    assert code == 0 and any("d/n was being filled" in what for what in report["leaked"]["first"]), json.dumps(report)
    os.remove(os.path.join(own_server.directory, "data", "ddl_recovery.log"))
    own_server.start()
    db = own_server.connect(database="d")
    assert run(db, "SHOW TABLES") == [("n",), ("other",)]
    for sql in ("SELECT COUNT(*) FROM n", "INSERT INTO n VALUES (1, 1, 'a')", "TRUNCATE n", "ALTER TABLE n ADD KEY x (c)"):
        assert refused(db, sql)[0] == 1034, sql
    run(db, "DROP TABLE n")
    # What stops at once leaves to the next start what purge had no time for.
    own_server.stop()
    own_server.start()
    leaks_nothing(own_server)


# --- into tables that have rows -------------------------------------------------------------------

BESIDE = "SELECT `seq` + {more}, `seq * 7919 % 10007`, `IF(seq % 50, seq, NULL)` + {more}, `MD5(seq)`, `REPEAT('x', IF(seq % 1000, 10, 30000))` FROM source"


def sorted_first(db):
    """Rows and entries that loads have sorted before they inserted them beside others."""
    return int(run(db, "SELECT VALUE FROM information_schema.TERRACE_METRICS WHERE NAME = 'load_values_sorted'")[0][0])


def fill_beside(db, more, order="", table="t"):
    before = sorted_first(db)
    run(db, f"INSERT INTO {table} {NAMES} {BESIDE.format(more=more)} {order}")
    return sorted_first(db) - before


@pytest.fixture
def twin(db, engine, source):
    """A table with rows, and InnoDB's of the same rows."""
    made(db, engine)
    run(db, "CREATE TABLE i LIKE t")
    run(db, "ALTER TABLE i ENGINE=InnoDB")
    for table in ("t", "i"):
        run(db, f"INSERT INTO {table} {NAMES} SELECT * FROM source")
        run(db, f"DELETE FROM {table} WHERE id BETWEEN 3000 AND 9000")


def same(db):
    """Both tables have the same rows, by each index."""
    assert is_whole(db)
    for key in ("PRIMARY", "k", "u", "c", "w"):
        of = [run(db, f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS(',', id, k, u, c, j, v, w))) FROM {table} FORCE INDEX ({key})") for table in ("t", "i")]
        assert of[0] == of[1], key
    covering = [run(db, f"SELECT k, id FROM {table} FORCE INDEX (k) ORDER BY k, id LIMIT 3000") for table in ("t", "i")]
    assert covering[0] == covering[1]


@pytest.mark.parametrize("order", ["ORDER BY 1", "ORDER BY 1 DESC", "ORDER BY 2, 1"])
def test_many_rows_are_loaded_beside_others_in_any_order(db, engine, twin, others, order):
    other = others()
    run(other, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    before = count(other)
    run(db, "BEGIN")
    # Four indexes of which entries are sorted, and the rows that are not in order; the first thousand come one by one.
    sorted_now = fill_beside(db, 1000000, order)
    assert sorted_now >= 4 * (ROWS - 1000) * 0.9 and (sorted_now > 4.5 * (ROWS - 1000)) == (order != "ORDER BY 1")
    assert count(db) == before + ROWS and count(others()) == before
    run(db, "SAVEPOINT a")
    assert fill_beside(db, 2000000, order) > 0
    run(db, "UPDATE t SET k = k + 1, c = 'changed' WHERE id > 2000000 AND id % 7 = 0")
    run(db, "ROLLBACK TO a")
    assert count(db) == before + ROWS
    run(db, "DELETE FROM t WHERE id BETWEEN 1005000 AND 1006000")
    run(db, "COMMIT")
    assert count(other) == before
    run(other, "COMMIT")
    run(db, f"INSERT INTO i {NAMES} {BESIDE.format(more=1000000)}")
    run(db, "DELETE FROM i WHERE id BETWEEN 1005000 AND 1006000")
    # The rows that were deleted, once more.
    for table in ("t", "i"):
        run(db, f"INSERT INTO {table} {NAMES} SELECT * FROM source WHERE `seq` BETWEEN 3000 AND 9000 {order}")
    same(db)


def test_a_duplicate_beside_others_is_named_and_leaves_the_table_as_it_was(db, engine, twin):
    for table in ("t", "i"):
        # A duplicate of an existing row, as the last one, and in the unique index.
        rows = f"INSERT INTO {table} {NAMES} {BESIDE.format(more=1000000)}"
        assert refused(db, f"{rows} UNION ALL SELECT 17, 1, NULL, '', ''") == (1062, "Duplicate entry '17' for key 'PRIMARY'")
        assert refused(db, f"{rows} UNION ALL SELECT 5000000, 1, 17, '', ''") == (1062, "Duplicate entry '17' for key 'u'")
        assert refused(db, f"{rows} UNION ALL SELECT 5000000, 1, 1000021, '', ''") == (1062, "Duplicate entry '1000021' for key 'u'")
    before = sorted_first(db)
    run(db, f"INSERT IGNORE INTO t {NAMES} SELECT * FROM source")
    run(db, f"INSERT INTO t {NAMES} SELECT * FROM source ON DUPLICATE KEY UPDATE c = 'again'")
    run(db, f"REPLACE INTO t {NAMES} SELECT * FROM source WHERE `seq` % 2")
    assert sorted_first(db) == before, "what goes on after a duplicate goes row by row"
    run(db, f"INSERT IGNORE INTO i {NAMES} SELECT * FROM source")
    run(db, f"INSERT INTO i {NAMES} SELECT * FROM source ON DUPLICATE KEY UPDATE c = 'again'")
    run(db, f"REPLACE INTO i {NAMES} SELECT * FROM source WHERE `seq` % 2")
    same(db)


def test_a_statement_beside_others_that_is_killed_or_fails_leaves_nothing(db, engine, twin, server):
    number = run(db, "SELECT CONNECTION_ID()")[0][0]
    killer = threading.Timer(0.7, lambda: run(server.connect(), f"KILL QUERY {number}"))
    killer.start()
    assert refused(db, f"INSERT INTO t {NAMES} {BESIDE.format(more=1000000)} WHERE SLEEP(IF(`seq` = 19000, 5, 0)) = 0")[0] in (1317, 1028)
    killer.join()
    same(db)
    assert refused(db, f"INSERT INTO t {NAMES} SELECT IF(`seq` = 19999, POW(10, 20), `seq` + 1000000), 1, NULL, '', '' FROM source ORDER BY `seq`")[0] in (1264, 1690)
    same(db)


def test_a_load_waits_at_its_end_for_a_lock_that_blocks_its_entries(db, engine, twin, others):
    other = others()
    run(other, "BEGIN")
    assert run(other, "SELECT id FROM t FORCE INDEX (k) WHERE k = 77 FOR UPDATE")
    run(db, "SET terrace_lock_wait_timeout_ms = 100")
    assert refused(db, f"INSERT INTO t {NAMES} {BESIDE.format(more=1000000)}")[0] == 1205
    assert count(db) == count(other)
    run(other, "ROLLBACK")
    assert fill_beside(db, 1000000) > 0
    run(db, f"INSERT INTO i {NAMES} {BESIDE.format(more=1000000)}")
    same(db)


def test_load_data_into_a_table_with_rows_and_partitions(db, engine, shared_directory):
    path = os.path.join(shared_directory, "rows")
    with open(path, "w") as file:
        file.writelines(f"{n * 7919 % 100003}\t{n % 100}\t{'x' * 50}{n}\n" for n in range(1, ROWS + 1))
    os.chmod(path, 0o644)
    for parts in ("", "PARTITION BY HASH (id) PARTITIONS 5"):
        run(db, f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, k INT, c VARCHAR(100), KEY k (k), KEY c (c)) ENGINE={engine} {parts}")
        run(db, "INSERT INTO t SELECT 1000000 + seq, 1, 'old' FROM seq_1_to_2000")
        before = sorted_first(db)
        run(db, f"LOAD DATA INFILE '{path}' INTO TABLE t")
        assert sorted_first(db) > before + ROWS and is_whole(db)
        assert run(db, "SELECT COUNT(*), SUM(k) FROM t FORCE INDEX (k) WHERE k < 50 AND c != 'old'") == [(ROWS // 2, 24.5 * ROWS // 2)]
        assert run(db, "SELECT COUNT(*) FROM t FORCE INDEX (c) WHERE c LIKE 'x%'") == [(ROWS,)]
        assert refused(db, f"LOAD DATA INFILE '{path}' INTO TABLE t")[0] == 1062
        assert run(db, "SELECT COUNT(*) FROM t") == [(ROWS + 2000,)]
    run(db, f"CREATE TABLE h (a INT, b VARCHAR(100), KEY a (a)) ENGINE={engine}")
    for turn in (1, 2, 3):
        run(db, "INSERT INTO h SELECT id % 1000, c FROM t")
        assert run(db, "SELECT COUNT(*) FROM h FORCE INDEX (a)") == [(turn * (ROWS + 2000),)] and is_whole(db, "h")


def test_the_row_that_refused_a_load_stays_locked_for_a_serializable_transaction(db, engine, twin, others):
    """The transaction has read the existing row."""
    other = others()
    run(other, "SET SESSION innodb_lock_wait_timeout = 1, terrace_lock_wait_timeout_ms = 100")
    for table in ("t", "i"):
        run(db, f"INSERT INTO {table} {NAMES} VALUES (9000000, 1, NULL, '', '')")
        # In order, where the row before it was; out of it; in the unique index.
        for last, there in (("9000000, 1, NULL", 9000000), ("17, 1, NULL", 17), ("5000000, 1, 19", 19)):
            run(db, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            run(db, "BEGIN")
            assert refused(db, f"INSERT INTO {table} {NAMES} {BESIDE.format(more=1000000)} UNION ALL SELECT {last}, '', ''")[0] == 1062
            assert refused(other, f"DELETE FROM {table} WHERE id = {there}")[0] == 1205, (table, last)
            run(db, "ROLLBACK")
            run(other, "BEGIN")
            run(other, f"DELETE FROM {table} WHERE id = {there}")
            run(other, "ROLLBACK")
    same(db)


# What rows come into: columns, and what is read by which key. Rows are (n scattered, a number, a text of the first).
KINDS = {
    "no primary key": ("a INT, b INT, c VARCHAR(40), KEY a (a), KEY b (b, a)", "", {"a": "a > 0", "b": "b >= 0"}),
    "descending": ("a INT, b INT, c VARCHAR(40), PRIMARY KEY (a DESC), KEY b (b DESC, c), UNIQUE c (c DESC)", "", {"b": "b >= 0", "c": "c > ''"}),
    "prefixes": (
        "a VARCHAR(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, b BLOB, c TEXT COLLATE utf8mb4_unicode_ci, KEY b (b(3)), KEY c (c(7)), UNIQUE u (c(12))",
        "",
        {"b": "b > ''", "c": "c > ''", "u": "c > ''"},
    ),
    "long unique": ("a INT PRIMARY KEY, b INT, c TEXT, UNIQUE u (c), KEY b (b)", "", {"b": "b >= 0"}),
    "generated": (
        "a INT PRIMARY KEY, b INT, c VARCHAR(40), v INT AS (b % 100) VIRTUAL, w VARCHAR(50) AS (CONCAT(c, a)) PERSISTENT, KEY v (v), UNIQUE w (w), CHECK (b >= 0)",
        "",
        {"v": "v >= 0", "w": "w > ''"},
    ),
    "versioned": ("a INT PRIMARY KEY, b INT, c VARCHAR(40), KEY b (b)", "WITH SYSTEM VERSIONING", {"b": "b >= 0"}),
    "partitions": (
        "a INT, b INT, c VARCHAR(40), PRIMARY KEY (a, b), KEY b (b), KEY c (c)",
        "PARTITION BY RANGE (b) SUBPARTITION BY HASH (a) SUBPARTITIONS 2 (PARTITION p0 VALUES LESS THAN (5000), PARTITION p1 VALUES LESS THAN MAXVALUE)",
        {"b": "b >= 0", "c": "c > ''"},
    ),
    "sequence": ("a INT PRIMARY KEY, b INT, c VARCHAR(40), d INT DEFAULT NEXTVAL(s), UNIQUE d (d), KEY b (b)", "", {"b": "b >= 0", "d": "d > 0"}),
    "null": ("a INT PRIMARY KEY, b INT NULL, c VARCHAR(40), UNIQUE b (b, c)", "", {"b": "b IS NULL OR b >= 0"}),
}
PIECE = "SELECT seq * 7919 % {prime}{more}, {b}, CONCAT('text', seq * 7919 % {prime}{more}) FROM seq_1_to_{rows}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temporary", ["", "TEMPORARY"])
def test_any_table_takes_many_rows_beside_others(db, engine, kind, temporary):
    columns, more, keys = KINDS[kind]
    if temporary and ("PARTITION" in more or "VERSIONING" in more):
        pytest.skip("no temporary table is so")
    if kind == "sequence":
        run(db, "CREATE SEQUENCE s")
    b = "IF(seq % 3, NULL, seq)" if kind == "null" else "seq * 31 % 9973"
    for table, of in (("t", engine), ("i", "InnoDB")):
        run(db, f"CREATE {temporary} TABLE {table} ({columns}) ENGINE={of} {more}")
        if kind == "sequence":
            run(db, "ALTER SEQUENCE s RESTART 1")
        piece = lambda rows, more: f"INSERT INTO {table} (a, b, c) " + PIECE.format(prime=10007, more=more, rows=rows, b=b)
        run(db, piece(3000, " + 0"))
        run(db, "BEGIN")
        before = sorted_first(db)
        run(db, piece(5000, " + 20000"))
        # Sorts of temporary tables have a counter of their own.
        assert temporary or (sorted_first(db) > before) == (table == "t" and kind != "long unique")
        run(db, "SAVEPOINT one")
        run(db, piece(4000, " + 40000"))
        run(db, "ROLLBACK TO one")
        run(db, f"DELETE FROM {table} WHERE a % 3 = 0")
        run(db, piece(4000, " + 60000"))
        if kind != "no primary key":
            # Keys of deleted rows, and one of an existing row.
            twice = f"INSERT INTO {table} (a, b, c) " + PIECE.format(prime=10007, more=" + 20000", rows=5000, b=b)
            assert refused(db, twice)[0] == 1062
            run(db, f"{twice} WHERE (seq * 7919 % 10007 + 20000) % 3 = 0")
        run(db, "COMMIT")
    assert is_whole(db)
    ways = [""] + [f"FORCE INDEX ({key}) WHERE {condition}" for key, condition in keys.items()]
    sums = [[run(db, f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS(',', a, b, c))) FROM {table} {way}") for way in ways] for table in ("t", "i")]
    assert sums[0] == sums[1] and all(one == sums[0][0] for one in sums[0])


def test_statements_that_are_prepared_under_locks_and_in_procedures_take_many_rows_beside_others(db, engine, twin):
    """One that fails leaves nothing behind in the table's handler, which the next one uses."""
    for table in ("t", "i"):
        insert = f"INSERT INTO {table} {NAMES} {BESIDE}"
        run(db, f"PREPARE one FROM '{insert.format(more='?').replace(chr(39), chr(39) * 2)}'")
        for more in (1000000, 2000000):
            run(db, f"SET @more = {more}")
            run(db, "EXECUTE one USING @more, @more")
            assert refused(db, "EXECUTE one USING @more, @more")[0] == 1062
        run(db, f"LOCK TABLES {table} WRITE, source READ")
        for more in (3000000, 4000000):
            run(db, insert.format(more=more))
            assert refused(db, insert.format(more=more))[0] == 1062
        run(db, "UNLOCK TABLES")
        twice = insert.format(more=5000000)
        run(db, f"CREATE PROCEDURE fill_{table}() BEGIN DECLARE CONTINUE HANDLER FOR 1062 SET @met = '{table}'; {twice}; {twice}; {insert.format(more=6000000)}; END")
        before = sorted_first(db)
        run(db, f"CALL fill_{table}()")
        assert run(db, "SELECT @met") == [(table,)] and (sorted_first(db) > before) == (table == "t")
    same(db)

def test_a_load_stops_at_the_partition_that_refuses_a_row_and_names_it(db, engine):
    for table, of in (("t", engine), ("i", "InnoDB")):
        run(db, f"CREATE TABLE {table} (id INT PRIMARY KEY, k INT, KEY k (k)) ENGINE={of} PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (100000), PARTITION b VALUES LESS THAN MAXVALUE)")
        run(db, f"INSERT INTO {table} VALUES (55, 5), (100055, 6)")
        for there in (55, 100055):
            scattered = f"SELECT seq * 7919 % 10007 + IF(seq % 2, 1000, 101000), seq FROM seq_1_to_10000 UNION ALL SELECT {there}, 1"
            run(db, "BEGIN")
            assert refused(db, f"INSERT INTO {table} {scattered}") == (1062, f"Duplicate entry '{there}' for key 'PRIMARY'")
            assert run(db, f"SELECT * FROM {table} FORCE INDEX (k)") == [(55, 5), (100055, 6)]
            run(db, "COMMIT")
    assert is_whole(db)


def test_a_table_is_checked_and_read_while_rows_are_loaded_beside_others(db, engine, twin, others, server):
    """Index entries of the new rows come later, which no other session may notice."""
    other, said = others(), []
    loader = server.connect(database=db.name)
    rows = f"INSERT INTO t {NAMES} {BESIDE.format(more=1000000)} WHERE SLEEP(IF(`seq` IN (5000, 15000), 1, 0)) = 0"
    had = count(db)
    running = threading.Thread(target=lambda: said.append(run(loader, rows)))
    running.start()
    looks = 0
    while running.is_alive():
        assert is_whole(other)
        run(other, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        assert count(other) in (had, had + ROWS)
        run(other, "COMMIT")
        looks += 1
    running.join()
    loader.close()
    assert said == [[]] and looks > 1
    run(db, f"INSERT INTO i {NAMES} {BESIDE.format(more=1000000)}")
    same(db)


def test_a_function_that_reads_the_table_sees_the_rows_loaded_before(db, engine, source):
    """A function that reads the table makes the sorted rows be inserted at once."""
    made(db, engine)
    run(db, "CREATE TABLE i LIKE t")
    run(db, "ALTER TABLE i ENGINE=InnoDB")
    for table in ("t", "i"):
        run(db, f"INSERT INTO {table} {NAMES} SELECT * FROM source WHERE `seq` <= 100")
        run(db, f"CREATE FUNCTION rows_of_{table}() RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM {table} FORCE INDEX (k))")
        run(db, f"INSERT INTO {table} {NAMES} SELECT `seq`, IF(`seq` = 4000, rows_of_{table}(), 3), NULL, '', '' FROM source WHERE `seq` BETWEEN 101 AND 5000 ORDER BY `seq`")
    same(db)


def test_the_binary_log_has_rows_that_were_loaded_beside_others(shared_directory):
    server = private(["--terrace-memory=33554432", *binlog_options(shared_directory)])
    try:
        db = server.connect()
        run(db, "CREATE DATABASE d")
        db.select_db("d")
        made(db, "Terrace")
        for first in (1, 5001):
            rows = SELECT.format(rows=5000).replace("SELECT seq,", f"SELECT seq * 7 % 5000 + {first},").replace("IF(seq % 50, seq, NULL)", "NULL")
            run(db, f"INSERT INTO t {NAMES} {rows}")
        run(db, "BEGIN")
        run(db, f"INSERT INTO t {NAMES} SELECT id + 100000, k, NULL, c, j FROM t")
        run(db, "ROLLBACK")
        refused(db, f"INSERT INTO t {NAMES} SELECT id + 100000, k, NULL, c, j FROM t UNION ALL SELECT 5, 1, NULL, '', ''")
        expected = contents(db, ["t"])
        assert len(expected["t"]) == 10000
        assert replayed(shared_directory, "d", ["t"]) == expected
    finally:
        end(server)


def test_a_server_killed_during_a_load_comes_back_with_the_earlier_rows(own_server):
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    made(db, "Terrace")
    run(db, f"INSERT INTO t {NAMES} {SELECT.format(rows=5000)}")
    had, undone = 5000, 0
    for turn, seconds in enumerate((0.5, 1.5, 3.0), 1):
        more = SELECT.format(rows=200000).replace("SELECT seq,", f"SELECT seq * 7919 % 200003 + {turn}000000,").replace("IF(seq % 50, seq, NULL)", "NULL")
        db = killed_in(own_server, db, seconds, f"INSERT INTO t {NAMES} {more}")
        assert count(db) in (had, had + 200000) and is_whole(db)
        undone += count(db) == had
        had = count(db)
    assert undone, UNPROVED
    leaks_nothing(own_server)
