"""CREATE_TIME and UPDATE_TIME of information_schema.TABLES: set where InnoDB sets them, to the current time."""

import datetime

from conftest import run

PARTITIONS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)"

# What is done, and the table that is looked at then.
STEPS = [
    ("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}", "t"),
    ("SELECT * FROM t", "t"),
    ("INSERT INTO t SELECT seq, seq FROM seq_1_to_5", "t"),
    ("FLUSH TABLES", "t"),
    ("TRUNCATE TABLE t", "t"),
    ("ALTER TABLE t ALTER v SET DEFAULT 3, ALGORITHM=INSTANT", "t"),
    ("INSERT INTO t VALUES (1, 1)", "t"),
    ("RENAME TABLE t TO u", "u"),
    ("RENAME TABLE u TO t", "t"),
    ("DROP TABLE t", "t"),
    ("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}", "t"),
    ("BEGIN", "t"),
    ("INSERT INTO t VALUES (1, 1)", "t"),
    ("ROLLBACK", "t"),
    ("UPDATE t SET v = 2", "t"),
    ("BEGIN", "t"),
    ("INSERT INTO t VALUES (1, 1)", "t"),
    ("COMMIT", "t"),
    ("ALTER TABLE t ADD COLUMN w INT, ALGORITHM=COPY", "t"),
    ("DROP TABLE t", "t"),
    ("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}", "t"),
    ("XA START 'x'", "t"),
    ("INSERT INTO t VALUES (7, 7)", "t"),
    ("XA END 'x'", "t"),
    ("XA PREPARE 'x'", "t"),
    ("XA COMMIT 'x'", "t"),
    ("DELETE FROM t", "t"),
    (f"CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE={{engine}} {PARTITIONS}", "p"),
    ("INSERT INTO p VALUES (3, 3)", "p"),
    ("INSERT INTO p VALUES (30, 3)", "p"),
]


def times(connection, table):
    return run(connection, f"SELECT CREATE_TIME, UPDATE_TIME, CHECK_TIME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'times' AND TABLE_NAME = '{table}'")


def seen(server, engine):
    """Which times there are after each step."""
    connection, other = server.connect(), server.connect()
    run(connection, "DROP DATABASE IF EXISTS times")
    run(connection, "CREATE DATABASE times")
    connection.select_db("times")
    found = []
    for step, table in STEPS:
        run(connection, step.format(engine=engine))
        rows = times(other, table)
        [(now,)] = run(other, "SELECT NOW()")
        for time in (time for row in rows for time in row if time is not None):
            assert now - datetime.timedelta(minutes=10) < time <= now, (step, time, now)
        found.append((step, [[time is not None for time in row] for row in rows]))
    return found


def test_table_times_equal_innodbs(own_server, engine):
    assert seen(own_server, engine) == seen(own_server, "InnoDB")
    connection = own_server.connect()
    [(created, _, _)] = times(connection, "t")
    # No session has changed it since the start.
    own_server.restart()
    assert times(own_server.connect(), "t") == [(created, None, None)]


def test_update_time_advances_with_each_change(own_server, engine):
    connection = own_server.connect()
    run(connection, "CREATE DATABASE times")
    run(connection, f"CREATE TABLE times.t (id INT PRIMARY KEY) ENGINE={engine}")
    run(connection, "INSERT INTO times.t VALUES (1)")
    [(created, first, _)] = times(connection, "t")
    run(connection, "DO SLEEP(1.1)")
    assert times(connection, "t") == [(created, first, None)]
    run(connection, "DELETE FROM times.t")
    [(same, second, _)] = times(connection, "t")
    assert same == created and second > first
