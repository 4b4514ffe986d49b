"""Locks of statements that run within others: in functions and triggers, and under LOCK TABLES. They equal InnoDB's."""

import threading

import pymysql
import pytest
from conftest import wait_until


@pytest.fixture
def two(server, db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, f"CREATE TABLE other (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 1), (2, 2)")
    a, b = server.connect(database=db.name), server.connect(database=db.name)
    for connection in (a, b):
        run(connection, "SET SESSION lock_wait_timeout = 60, innodb_lock_wait_timeout = 1, terrace_lock_wait_timeout_ms = 1000")
    yield a, b
    [connection.close() for connection in (a, b) if connection.open]


def waits(run, connection, statement):
    with pytest.raises(pymysql.err.OperationalError, match="1205"):
        run(connection, statement)


def test_a_serializable_read_that_calls_a_function_locks_what_it_reads(two, run):
    a, b = two
    run(a, "CREATE FUNCTION f() RETURNS INT DETERMINISTIC NO SQL RETURN 1")
    run(a, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    run(a, "BEGIN")
    assert run(a, "SELECT f(), SUM(v) FROM t") == [(1, 3)]
    waits(run, b, "UPDATE t SET v = 0 WHERE id = 1")
    run(a, "ROLLBACK")
    run(b, "UPDATE t SET v = 0 WHERE id = 1")


def test_rows_that_a_function_reads_before_it_changes_their_table_are_locked(two, run):
    a, b = two
    run(a, "CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN INSERT INTO other SELECT * FROM t WHERE id = 1; UPDATE t SET v = 7 WHERE id = 2; RETURN 1; END")
    run(a, "BEGIN")
    run(a, "SELECT f()")
    waits(run, b, "SELECT v FROM t WHERE id = 1 LOCK IN SHARE MODE")
    run(a, "ROLLBACK")


@pytest.mark.parametrize("how", ["trigger", "function"])
def test_a_plain_read_within_a_change_of_another_table_locks_and_waits_for_nothing(two, run, how):
    a, b = two
    if how == "trigger":
        run(a, "CREATE TRIGGER r BEFORE INSERT ON other FOR EACH ROW SELECT v INTO @x FROM t WHERE id = 1")
        change = "INSERT INTO other VALUES (1, 1)"
    else:
        run(a, "CREATE FUNCTION f() RETURNS INT READS SQL DATA BEGIN DECLARE x INT; SELECT v INTO x FROM t WHERE id = 1; SET @x = x; RETURN x; END")
        change = "INSERT INTO other VALUES (1, f())"
    run(a, "BEGIN")
    run(a, "UPDATE t SET v = 2 WHERE id = 1")
    run(b, "BEGIN")
    run(b, change)
    assert run(b, "SELECT @x") == [(1,)]
    run(a, "COMMIT")
    # The view is of before the commit, and nothing is locked.
    run(b, change.replace("(1,", "(2,"))
    assert run(b, "SELECT @x") == [(1,)]
    run(a, "UPDATE t SET v = 3 WHERE id = 1")
    run(b, "ROLLBACK")


def test_under_lock_tables_a_read_passes_prepared_rows(two, server, db, run):
    a, b = two
    name = f"{db.name}-lock"
    run(a, f"XA START '{name}'")
    run(a, "UPDATE t SET v = 9 WHERE id = 1")
    run(a, f"XA END '{name}'")
    run(a, f"XA PREPARE '{name}'")
    a.close()
    run(b, "LOCK TABLES t READ")
    assert run(b, "SELECT * FROM t") == [(1, 1), (2, 2)]
    run(b, "UNLOCK TABLES")
    # The other connection's end may come later than the lock.
    wait_until(lambda: not run(db, f"SELECT 1 FROM information_schema.PROCESSLIST WHERE DB = '{db.name}' AND ID NOT IN ({db.thread_id()}, {b.thread_id()})"))
    run(db, f"XA ROLLBACK '{name}'")


@pytest.mark.parametrize("change", ["UPDATE other o JOIN t ON t.id = o.id SET o.v = 1 WHERE t.v > 0", "DELETE o FROM other o JOIN t ON t.id = o.id WHERE t.v > 0"])
def test_rows_read_by_a_multi_table_change_are_locked_at_read_committed_too(two, run, change):
    a, b = two
    run(a, "INSERT INTO other VALUES (1, 0)")
    run(a, "BEGIN")
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    run(b, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    waits(run, b, change)
    run(a, "COMMIT")
    run(b, change)
    assert run(b, "SELECT * FROM other") == [(1, 0)]


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_concurrent_inserts_of_a_long_unique_value_or_period_leave_one(server, db, engine, run, level):
    """Two sessions that check first and then write do not see each other's row, because gaps are not locked."""
    run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, b BLOB, UNIQUE (b)) ENGINE={engine}")
    run(db, f"CREATE TABLE p (id INT, f DATE, e DATE, PERIOD FOR p (f, e), UNIQUE (id, p WITHOUT OVERLAPS)) ENGINE={engine}")
    rounds, barrier, faults = 150, threading.Barrier(2), []

    def insert(who):
        connection = server.connect(database=db.name)
        run(connection, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        for n in range(rounds):
            barrier.wait(60)
            for statement in (f"INSERT INTO t (b) VALUES ('{n}')", f"INSERT INTO p VALUES ({n}, '2000-01-0{who + 1}', '2000-02-01')"):
                try:
                    run(connection, statement)
                except pymysql.err.MySQLError as error:
                    # Two sessions that wait for each other's row are a deadlock.
                    if error.args[0] not in (1062, 1213):
                        faults.append(error)
        connection.close()

    threads = [threading.Thread(target=insert, args=(who,)) for who in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not faults, faults
    assert run(db, "SELECT COUNT(*), COUNT(DISTINCT b) FROM t") == [(rounds, rounds)]
    assert run(db, "SELECT COUNT(*), COUNT(DISTINCT id) FROM p") == [(rounds, rounds)]
    # As with InnoDB.
    run(db, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    ignored = "UPDATE IGNORE t SET b = '0' WHERE b = '1'"
    if level == "READ COMMITTED":
        with pytest.raises(pymysql.err.MySQLError, match="1235"):
            run(db, ignored)
    else:
        run(db, ignored)
    assert run(db, "SELECT COUNT(*), COUNT(DISTINCT b) FROM t") == [(rounds, rounds)]
