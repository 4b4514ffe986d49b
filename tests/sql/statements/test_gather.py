"""UPDATE and DELETE of one table, whose rows the handler gathers and changes in batches: answers, counters and errors equal InnoDB's, however the
statement ends, and so does what other sessions see meanwhile."""

import random
import re
import threading
import time

import pymysql
import pytest

from conftest import end, private, run, wait_until

ROWS = 3000
COLUMNS = "(id INT PRIMARY KEY, k INT NOT NULL, u INT NOT NULL, c VARCHAR(30), t TEXT, g INT AS (k + 1) VIRTUAL, s INT AS (k * 2) STORED, KEY k (k), KEY c (c(5), k), KEY g (g), UNIQUE KEY u (u))"

# One after the other, in one table of each engine: the statement, and whether it fails.
STATEMENTS = [
    "UPDATE t SET k = k + 1 WHERE id BETWEEN 100 AND 1500",
    "UPDATE t SET k = k + 1, c = CONCAT(c, 'x') WHERE id > 2000",
    "UPDATE t SET k = k - 7 WHERE k BETWEEN 100 AND 300",
    "UPDATE t SET k = 5 WHERE id IN (1, 2, 3, 50, 51, 52, 53, 2999)",
    "UPDATE t SET k = 5 WHERE id IN (1, 2, 3, 50, 51, 52, 53, 2999)",
    "UPDATE t SET k = k + 1 ORDER BY id DESC LIMIT 700",
    "UPDATE t SET k = k + 1 ORDER BY id LIMIT 700",
    "UPDATE t SET k = k + 1 WHERE id BETWEEN 10 AND 900 AND c LIKE '%3%'",
    "UPDATE t SET u = u + 100000 WHERE id BETWEEN 300 AND 600",
    "UPDATE t SET k = k + 1, u = -u WHERE id BETWEEN 500 AND 700",
    "UPDATE t SET u = 7 WHERE id BETWEEN 800 AND 1000",  # a duplicate
    "UPDATE t SET k = k + 3, u = IF(id = 1100, 100300 + 1, u) WHERE id BETWEEN 1000 AND 1200",  # a duplicate in the middle of the statement
    "UPDATE IGNORE t SET u = 7, k = k + 1 WHERE id BETWEEN 800 AND 1000",
    "UPDATE t SET c = UPPER(c) WHERE id < 400",  # equal keys, other bytes
    "UPDATE t SET t = REPEAT('z', 20000) WHERE id BETWEEN 1300 AND 1340",
    "UPDATE t SET t = REPEAT(c, 30), k = 9 WHERE id BETWEEN 1320 AND 1400",
    "UPDATE t SET id = id + 100000 WHERE id BETWEEN 40 AND 80",
    "UPDATE t SET id = id + 1 WHERE id BETWEEN 100000 AND 200000 ORDER BY id DESC",
    "UPDATE t SET k = (SELECT n FROM other WHERE n = 3) WHERE id BETWEEN 200 AND 300",
    "UPDATE t SET k = k + (SELECT MAX(k) FROM t x) WHERE id BETWEEN 200 AND 300",
    "UPDATE t SET k = counted(id) WHERE id BETWEEN 310 AND 330",
    "UPDATE t SET k = 18446744073709551615 WHERE id BETWEEN 1400 AND 1500",  # out of range
    "UPDATE t SET k = IF(id = 1490, 'word', 4) WHERE id BETWEEN 1400 AND 1500",  # fails in the middle of the statement
    "UPDATE checked SET k = k - 1500",  # CHECK fails in the middle of the statement
    "UPDATE checked SET k = k + 1",
    "UPDATE parted SET k = k + 1 WHERE id < 2000",
    "DELETE FROM parted WHERE id BETWEEN 500 AND 900",
    "UPDATE hidden SET k = k + 2 WHERE id > 1000",
    "DELETE FROM hidden WHERE id BETWEEN 500 AND 1500",
    "UPDATE watched SET k = k + 1 WHERE id < 700",
    "DELETE FROM watched WHERE id < 300",
    "DELETE FROM t WHERE id BETWEEN 1 AND 30",
    "DELETE FROM t WHERE id BETWEEN 600 AND 1350",
    "DELETE FROM t WHERE k BETWEEN 0 AND 50",
    "DELETE FROM t WHERE c LIKE 'a%' OR k = 77",
    "DELETE FROM t WHERE id IN (1351, 1352, 1353, 2000, 2001, 2002)",
    "DELETE FROM t WHERE id > 2500 ORDER BY k LIMIT 100",
    "DELETE FROM t ORDER BY id LIMIT 100",
    "DELETE FROM t ORDER BY id DESC LIMIT 100",
    "DELETE FROM t WHERE id > 2300 AND u % 3 = 0 RETURNING id",
    "DELETE IGNORE FROM t WHERE id BETWEEN 1700 AND 1750",
    "DELETE FROM t WHERE id IN (SELECT n + 1800 FROM other)",
    "DELETE FROM t WHERE k IN (SELECT k FROM checked) AND id BETWEEN 1850 AND 1900",
    "DELETE x FROM t x JOIN other ON x.id = other.n + 1900",
    "UPDATE t x JOIN other ON x.id = other.n + 1950 SET x.k = 1",
    "DELETE FROM t WHERE id > 2400 AND IF(id = 2450, (SELECT 1 UNION SELECT 2), 1)",  # fails in the middle of the statement
    "DELETE FROM t WHERE id >= 2400",
    "DELETE FROM t",
]
TABLES = ("t", "checked", "parted", "hidden", "watched", "heard")
# Not what is read: with statistics that are a moment older the other engine may go another way.
COUNTERS = ("Handler_update", "Handler_delete", "Handler_write", "Handler_rollback")


def fill(connection, engine, name):
    run(connection, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    connection.select_db(name)
    run(connection, f"CREATE TABLE t {COLUMNS} ENGINE={engine}")
    run(connection, f"CREATE TABLE hidden (id INT NOT NULL, k INT, KEY k (k)) ENGINE={engine}")
    run(connection, f"CREATE TABLE checked (id INT PRIMARY KEY, k INT CHECK (k > -1000), KEY k (k)) ENGINE={engine}")
    run(connection, f"CREATE TABLE parted (id INT PRIMARY KEY, k INT, KEY k (k)) ENGINE={engine} PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (700), PARTITION b VALUES LESS THAN MAXVALUE)")
    run(connection, f"CREATE TABLE watched (id INT PRIMARY KEY, k INT, KEY k (k)) ENGINE={engine}")
    run(connection, f"CREATE TABLE heard (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20), id INT, seen INT) ENGINE={engine}")
    run(connection, f"CREATE TABLE other (n INT PRIMARY KEY) ENGINE={engine}")
    run(connection, "INSERT INTO other SELECT seq FROM seq_1_to_20")
    source = random.Random(5)
    rows = [(n, source.randrange(ROWS), n, source.choice("abcdefgh") + str(n), None if n % 50 else "t" * n) for n in range(1, ROWS + 1)]
    connection.cursor().executemany("INSERT INTO t (id, k, u, c, t) VALUES (%s, %s, %s, %s, %s)", rows)
    for table in ("hidden", "checked", "parted", "watched"):
        run(connection, f"INSERT INTO {table} SELECT id, k FROM t")
    run(connection, "CREATE TRIGGER changed BEFORE UPDATE ON watched FOR EACH ROW INSERT INTO heard (what, id, seen) VALUES ('before', NEW.id, (SELECT COUNT(*) FROM watched WHERE k = OLD.k))")
    run(connection, "CREATE TRIGGER gone AFTER DELETE ON watched FOR EACH ROW INSERT INTO heard (what, id, seen) VALUES ('after', OLD.id, (SELECT COUNT(*) FROM watched))")
    run(connection, "CREATE FUNCTION counted(n INT) RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM t WHERE k < n)")
    run(connection, f"ANALYZE TABLE {', '.join(TABLES)}")


def played(connection, sql):
    """What the statement did, as a client sees it."""
    run(connection, "FLUSH STATUS")
    cursor = connection.cursor()
    try:
        affected, answer = cursor.execute(sql), sorted(cursor.fetchall())
    except pymysql.err.MySQLError as error:
        affected, answer = None, (error.args[0], re.sub("gather_(innodb|terrace)", "d", str(error.args[1])))
    warnings = [(row[0], row[1]) for row in run(connection, "SHOW WARNINGS")]
    status = dict(run(connection, "SHOW SESSION STATUS LIKE 'Handler%'"))
    return affected, answer, warnings, {name: status[name] for name in COUNTERS}


def contents(connection, tables=TABLES):
    """Each table, by each of its indexes."""
    found = {}
    for table in tables:
        found[table] = run(connection, f"SELECT * FROM {table} ORDER BY 1, 2")
        if table != "heard":
            found[f"{table} by k"] = run(connection, f"SELECT k, id FROM {table} FORCE INDEX (k) ORDER BY k, id")
    for index in ("c", "g", "u") if "t" in tables else ():
        found[f"t by {index}"] = run(connection, f"SELECT {index}, id FROM t FORCE INDEX ({index}) WHERE {index} IS NOT NULL ORDER BY {index}, id")
    return found


def digests(connection, tables):
    """Sums over what `contents` reads. (CHECKSUM TABLE counts the NULL bits of virtual columns, which InnoDB leaves as they are.)"""
    every = {"t": "id, k, u, c, QUOTE(t), g, s", "heard": "n, what, id, QUOTE(seen)"}
    found = {}
    for table in tables:
        found[table] = run(connection, f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS(' ', {every.get(table, 'id, k')}))) FROM {table}")
        if table != "heard":
            found[f"{table} by k"] = run(connection, f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS(' ', k, id))) FROM {table} FORCE INDEX (k)")
    for index in ("c", "g", "u") if "t" in tables else ():
        found[f"t by {index}"] = run(connection, f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS(' ', {index}, id))) FROM t FORCE INDEX ({index}) WHERE {index} IS NOT NULL")
    return found


def named(sql):
    """The tables that the statement may change; what a trigger hears is with those that have one."""
    found = [table for table in TABLES if re.search(rf"\b{table}\b", sql)]
    return found + ["heard"] * ("watched" in found and "heard" not in found)


@pytest.fixture(params=["STATEMENT", "ROW", "none"])
def logged(request):
    """A server with a binary log of this format, or without one."""
    options = [] if request.param == "none" else ["--log-bin=binlog", "--server-id=1", f"--binlog-format={request.param}"]
    one = private(["--terrace-memory=33554432", *options])
    yield one
    end(one)


def test_gathered_changes_do_what_innodbs_do(logged):
    both = {engine: logged.connect() for engine in ("InnoDB", "Terrace")}
    for engine, connection in both.items():
        fill(connection, engine, f"gather_{engine.lower()}")
    for number, sql in enumerate(STATEMENTS):
        did = {engine: played(connection, sql) for engine, connection in both.items()}
        assert did["Terrace"] == did["InnoDB"], sql
        tables = TABLES if number % 20 == 19 or sql == STATEMENTS[-1] else named(sql)
        sums = {engine: digests(connection, tables) for engine, connection in both.items()}
        if sums["Terrace"] != sums["InnoDB"]:
            has = {engine: contents(connection, tables) for engine, connection in both.items()}
            for table in has["InnoDB"]:
                assert has["Terrace"][table] == has["InnoDB"][table], (sql, table)
            assert sums["Terrace"] == sums["InnoDB"], sql
    assert all(row[3] == "OK" for row in run(both["Terrace"], f"CHECK TABLE {', '.join(TABLES)}"))


def make(connection, engine, rows=ROWS):
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, KEY k (k)) ENGINE={engine}")
    run(connection, f"INSERT INTO t SELECT seq, seq * 7 % {rows} FROM seq_1_to_{rows}")


@pytest.mark.parametrize("sql", ["UPDATE t SET k = k + 1 WHERE id BETWEEN 10 AND 2500", "DELETE FROM t WHERE id BETWEEN 10 AND 2500"])
def test_a_rollback_undoes_gathered_changes(db, engine, sql):
    make(db, engine)
    before = run(db, "SELECT * FROM t ORDER BY id")
    run(db, "BEGIN")
    run(db, sql)
    run(db, "SAVEPOINT one")
    after = run(db, "SELECT * FROM t ORDER BY id")
    assert after != before and sorted(run(db, "SELECT id, k FROM t FORCE INDEX (k)")) == sorted(after)
    run(db, "UPDATE t SET k = k + 3 WHERE id > 1000")
    run(db, "DELETE FROM t WHERE id > 2000")
    run(db, "ROLLBACK TO one")
    assert run(db, "SELECT * FROM t ORDER BY id") == after
    assert sorted(run(db, "SELECT id, k FROM t FORCE INDEX (k)")) == sorted(after)
    run(db, "ROLLBACK")
    assert run(db, "SELECT * FROM t ORDER BY id") == before
    assert sorted(run(db, "SELECT id, k FROM t FORCE INDEX (k)")) == sorted(before)
    assert run(db, "CHECK TABLE t")[0][3] == "OK"


def refused(connection, sql, code):
    with pytest.raises(pymysql.err.OperationalError) as caught:
        run(connection, sql)
    assert caught.value.args[0] == code


@pytest.mark.parametrize("sql", ["UPDATE t SET k = k + 1 WHERE id BETWEEN 10 AND 2500", "DELETE FROM t WHERE id BETWEEN 10 AND 2500"])
def test_a_refused_lock_on_an_entry_ends_the_statement_whole(db, server, engine, sql):
    make(db, engine)
    other = server.connect(database=db.name)
    before = run(db, "SELECT * FROM t ORDER BY id")
    run(other, "BEGIN")
    assert run(other, "SELECT k FROM t FORCE INDEX (k) WHERE k BETWEEN 1000 AND 1003 LOCK IN SHARE MODE")
    run(db, "SET SESSION innodb_lock_wait_timeout = 1, terrace_lock_wait_timeout_ms = 300")
    run(db, "BEGIN")
    run(db, "INSERT INTO t VALUES (100000, 1)")
    refused(db, sql, 1205)
    # The statement has gone, the transaction has not.
    assert run(db, "SELECT * FROM t WHERE id < 100000 ORDER BY id") == before
    assert run(db, "SELECT k FROM t WHERE id = 100000") == ((1,),) or run(db, "SELECT k FROM t WHERE id = 100000") == [(1,)]
    run(other, "COMMIT")
    assert run(db, sql) is not None
    run(db, "ROLLBACK")
    assert run(db, "SELECT * FROM t ORDER BY id") == before
    assert run(db, "CHECK TABLE t")[0][3] == "OK"


def test_a_killed_statement_leaves_nothing(db, server, engine):
    make(db, engine, 30000)
    before = run(db, "SELECT SUM(k), COUNT(*) FROM t")
    victim = server.connect(database=db.name)
    number = victim.thread_id()
    for sql in ("UPDATE t SET k = k + 1", "DELETE FROM t"):
        for delay in (0.0, 0.01, 0.03, 0.06):
            run(victim, "BEGIN")
            failed = []

            def work():
                try:
                    run(victim, sql)
                except pymysql.err.OperationalError as error:
                    failed.append(error.args[0])

            worker = threading.Thread(target=work)
            worker.start()
            time.sleep(delay)
            run(db, f"KILL QUERY {number}")
            worker.join(120)
            if failed:
                assert failed == [1317]
                found = wait_until(lambda: again(victim, "SELECT SUM(k), COUNT(*) FROM t"))
                assert found == before, sql
            again(victim, "ROLLBACK")
    assert run(db, "SELECT SUM(k), COUNT(*) FROM t FORCE INDEX (k)") == before
    assert run(db, "CHECK TABLE t")[0][3] == "OK"


def again(connection, sql):
    """A KILL that came late ends the next statement."""
    try:
        return run(connection, sql) or True
    except pymysql.err.OperationalError as error:
        assert error.args[0] == 1317
        return run(connection, sql) or True


def test_others_read_by_either_index_while_rows_are_changed(db, server, engine):
    """At each level; without a view, too, no row is missed by its entry in a way that is an error."""
    make(db, engine, 4000)
    stop, wrong = threading.Event(), []

    def read(level):
        mine = server.connect(database=db.name)
        run(mine, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        run(mine, "CREATE TEMPORARY TABLE x (n INT)")
        while not stop.is_set():
            try:
                by_entry = run(mine, "SELECT COUNT(*), COUNT(DISTINCT id), SUM(k IS NULL) FROM (SELECT id, k FROM t FORCE INDEX (k) WHERE k >= 0) y")[0]
                row = run(mine, "SELECT COUNT(*) FROM (SELECT id, k + 0 FROM t IGNORE INDEX (k) WHERE id >= 0) y")[0]
                if level != "READ UNCOMMITTED" and (by_entry[0] != 4000 or by_entry[1] != 4000 or row[0] != 4000):
                    wrong.append((level, by_entry, row))
            except pymysql.err.MySQLError as error:
                wrong.append((level, error.args))

    readers = [threading.Thread(target=read, args=(level,)) for level in ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ")]
    for reader in readers:
        reader.start()
    for turn in range(12):
        run(db, "BEGIN")
        run(db, "UPDATE t SET k = k + 1 WHERE id BETWEEN 100 AND 3900")
        run(db, "DELETE FROM t WHERE id BETWEEN 1000 AND 3000")
        run(db, "ROLLBACK" if turn % 2 else "INSERT INTO t SELECT seq, seq FROM seq_1000_to_3000")
        run(db, "COMMIT")
    stop.set()
    for reader in readers:
        reader.join(120)
    assert not wrong, wrong[:3]


def test_no_row_beyond_the_range_is_locked(db, server, engine):
    make(db, engine)
    other = server.connect(database=db.name)
    run(other, "SET SESSION innodb_lock_wait_timeout = 1, terrace_lock_wait_timeout_ms = 200")
    for sql in ("UPDATE t SET k = k + 1 WHERE id BETWEEN 100 AND 1000", "DELETE FROM t WHERE id BETWEEN 100 AND 1000",
                "UPDATE t SET k = k + 1 WHERE id BETWEEN 100 AND 500 OR id BETWEEN 900 AND 1000", "DELETE FROM t WHERE id >= 100 ORDER BY id LIMIT 500"):
        run(db, "BEGIN")
        run(db, sql)
        for free in (1, 99, 1002, 1003, 1040, 2900):
            assert run(other, f"SELECT id FROM t WHERE id = {free} FOR UPDATE"), (sql, free)
        for held in (100, 101, 450):
            refused(other, f"SELECT id FROM t WHERE id = {held} FOR UPDATE", 1205)
        run(db, "ROLLBACK")


def test_committed_gathered_changes_survive_a_crash(own_server):
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    make(connection, "Terrace")
    run(connection, "UPDATE t SET k = k + 1 WHERE id <= 2000")
    run(connection, "DELETE FROM t WHERE id BETWEEN 500 AND 1500")
    committed = run(connection, "SELECT * FROM t ORDER BY id")
    run(connection, "BEGIN")
    run(connection, "UPDATE t SET k = k + 1")
    run(connection, "DELETE FROM t WHERE id > 1800")
    own_server.kill9()
    own_server.start()
    connection = own_server.connect(database="d")
    assert run(connection, "SELECT * FROM t ORDER BY id") == committed
    assert sorted(run(connection, "SELECT id, k FROM t FORCE INDEX (k)")) == sorted(committed)
    assert run(connection, "CHECK TABLE t")[0][3] == "OK"


@pytest.mark.parametrize("sql", ["UPDATE t SET k = k + 1 WHERE id BETWEEN 1 AND 1000", "DELETE FROM t WHERE id BETWEEN 1 AND 1000"])
def test_a_reader_by_an_entry_of_a_row_locked_long_ago_waits_without_deadlock(db, server, engine, sql):
    """The statement waits for a row; the entries of rows that it came to long before are changed, not only their rows locked."""
    make(db, engine)
    blocker, writer, reader = (server.connect(database=db.name) for _ in range(3))
    for connection in (writer, reader):
        run(connection, "SET SESSION innodb_lock_wait_timeout = 60, terrace_lock_wait_timeout_ms = 60000")
    run(blocker, "BEGIN")
    run(blocker, "SELECT id FROM t WHERE id = 600 FOR UPDATE")
    results = {}

    def work(name, connection, what):
        try:
            results[name] = run(connection, what)
        except pymysql.err.OperationalError as error:
            results[name] = error.args

    threads = []
    for name, connection, what in (("writer", writer, sql), ("reader", reader, "SELECT id FROM t WHERE k = 350 FOR UPDATE")):  # the row 50
        threads.append(threading.Thread(target=work, args=(name, connection, what)))
        threads[-1].start()
        time.sleep(1)
    assert not results
    run(blocker, "COMMIT")
    for thread in threads:
        thread.join(120)
    found = [] if sql.startswith("DELETE") else [(907,)]  # what was 349
    assert not results["writer"] and list(results["reader"]) == found, results
