"""DDL beside a prepared transaction that no connection owns any more: after a restart, or when its connection is gone. A statement that
would drop, truncate or replace a table that the transaction has changed waits as for a row lock and fails with 1205; when the
transaction is decided, the statement goes on. A run with InnoDB confirms the expectations.
"""

import threading
import time

import pymysql
import pytest
from conftest import run, wait_until

PARTITIONS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)"
TABLES = [
    "CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}",
    "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
    f"CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE={{engine}} {PARTITIONS}",
    "INSERT INTO p VALUES (1, 1), (101, 101)",
    "CREATE TABLE untouched (id INT PRIMARY KEY) ENGINE={engine}",
    f"CREATE TABLE s (id INT PRIMARY KEY, v INT) ENGINE={{engine}} {PARTITIONS.replace('(id)', '(id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2', 1)}",
    "INSERT INTO s VALUES (1, 1), (2, 2), (101, 101), (102, 102)",
]
WORK = [
    "XA START 'x'",
    "UPDATE t SET v = 20 WHERE id = 2",
    "INSERT INTO t VALUES (4, 4)",
    "UPDATE p SET v = 7 WHERE id = 101",
    "UPDATE s SET v = 7 WHERE id = 101",
    "XA END 'x'",
    "XA PREPARE 'x'",
]
REFUSED = [
    "TRUNCATE TABLE t",
    "DROP TABLE t",
    "ALTER TABLE t ADD COLUMN w INT, ALGORITHM=COPY",
    "TRUNCATE TABLE p",
    "ALTER TABLE p TRUNCATE PARTITION p1",
    "ALTER TABLE p TRUNCATE PARTITION p0, p1",
    "ALTER TABLE s TRUNCATE PARTITION p1",
    "ALTER TABLE p DROP PARTITION p1",
    "ALTER TABLE p REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN MAXVALUE)",
    "ALTER TABLE p REMOVE PARTITIONING",
]


@pytest.fixture(params=["restart", "disconnect"])
def prepared(request, own_server, engine):
    """A server with a prepared transaction that belongs to no session, and a connection with a short lock wait timeout."""
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    for sql in TABLES:
        run(connection, sql.format(engine=engine))
    for sql in WORK:
        run(connection, sql)
    if request.param == "restart":
        own_server.kill9()
        own_server.start()
    else:
        connection.close()
    connection = own_server.connect(database="d")
    for _ in range(100):
        if run(connection, "XA RECOVER"):
            break
        time.sleep(0.1)
    patience(connection, 1)
    return own_server, connection


def patience(connection, seconds):
    run(connection, f"SET SESSION lock_wait_timeout = {seconds}, innodb_lock_wait_timeout = {seconds}, terrace_lock_wait_timeout_ms = {1000 * seconds}")


def test_ddl_that_would_lose_a_prepared_transactions_changes_is_refused(prepared, engine):
    server, connection = prepared
    run(connection, "TRUNCATE TABLE untouched")
    run(connection, "DROP TABLE untouched")
    for sql in REFUSED:
        try:
            run(connection, sql)
        except pymysql.err.MySQLError as error:
            assert error.args[0] == 1205, (sql, error)
        else:
            pytest.fail(f"{sql}: passed by a prepared transaction")
    run(connection, "ALTER TABLE s TRUNCATE PARTITION p0")
    run(connection, "XA COMMIT 'x'")
    assert run(connection, "SELECT * FROM s ORDER BY id") == [(101, 7), (102, 102)]
    assert run(connection, "SELECT * FROM t ORDER BY id") == [(1, 1), (2, 20), (3, 3), (4, 4)]
    assert run(connection, "SELECT * FROM p ORDER BY id") == [(1, 1), (101, 7)]
    for table in ("t", "p"):
        assert run(connection, f"CHECK TABLE {table}")[-1][3] == "OK"
    for sql in ("ALTER TABLE t ADD COLUMN w INT, ALGORITHM=COPY", "ALTER TABLE p DROP PARTITION p1", "DROP TABLE p", "DROP TABLE t"):
        run(connection, sql)


@pytest.mark.parametrize("decision", ["COMMIT", "ROLLBACK"])
def test_a_table_of_partitions_is_dropped_as_a_whole(prepared, engine, decision):
    """The server has removed the list of partitions before the engine could refuse: InnoDB loses half of the table then."""
    if engine == "InnoDB":
        pytest.skip("it drops some of the partitions and fails")
    server, connection = prepared
    run(connection, "DROP TABLE p")
    run(connection, f"XA {decision} 'x'")
    server.kill9()
    server.start()
    connection = server.connect(database="d")
    assert run(connection, "SELECT v FROM t WHERE id = 2") == [(20 if decision == "COMMIT" else 2,)]
    assert run(connection, "SHOW TABLES LIKE 'p'") == []
    assert not run(connection, "SELECT * FROM information_schema.TERRACE_SPACES WHERE TABLE_NAME = 'p' OR TABLE_SCHEMA LIKE '%dropped%'")


@pytest.mark.parametrize("decision", ["COMMIT", "ROLLBACK"])
def test_ddl_waits_for_the_prepared_transactions_decision(prepared, decision):
    server, connection = prepared
    patience(connection, 300)
    done = []

    def work():
        run(connection, "TRUNCATE TABLE t")
        done.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    assert not done, "it did not wait"
    other = server.connect(database="d")
    run(other, f"XA {decision} 'x'")
    thread.join(120)
    assert done
    assert run(other, "SELECT COUNT(*) FROM t") == [(0,)]
    assert run(other, "SELECT v FROM p WHERE id = 101") == [(7 if decision == "COMMIT" else 101,)]


def test_ddl_that_waits_for_a_prepared_transaction_can_be_killed(prepared):
    server, connection = prepared
    patience(connection, 300)
    (number,) = run(connection, "SELECT CONNECTION_ID()")[0]
    fell = []

    def work():
        try:
            run(connection, "DROP TABLE t")
        except pymysql.err.MySQLError as error:
            fell.append(error.args[0])

    thread = threading.Thread(target=work)
    thread.start()
    other = server.connect(database="d")
    wait_until(lambda: fell or run(other, f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number} AND INFO LIKE 'DROP%'"))
    time.sleep(0.5)
    run(other, f"KILL QUERY {number}")
    thread.join(40)
    assert fell and fell[0] in (1317, 1927), fell
    run(other, "XA ROLLBACK 'x'")
    assert run(other, "SELECT * FROM t ORDER BY id") == [(1, 1), (2, 2), (3, 3)]
