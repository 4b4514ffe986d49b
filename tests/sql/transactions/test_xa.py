"""XA and connections that are reset or lost."""

import pymysql
import pytest
from conftest import wait_until

COM_RESET_CONNECTION = 0x1F


def reset(connection):
    """As a pool does it before it hands the connection to another client."""
    connection._execute_command(COM_RESET_CONNECTION, b"")
    connection._read_ok_packet()


def prepared(server, db, run, name, statement="INSERT INTO t VALUES (2, 2)"):
    """A connection that has prepared it."""
    connection = server.connect(database=db.name)
    run(connection, f"XA START '{name}'")
    run(connection, statement)
    run(connection, f"XA END '{name}'")
    run(connection, f"XA PREPARE '{name}'")
    return connection


@pytest.mark.parametrize("then", ["", "SELECT * FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 3)", "START TRANSACTION WITH CONSISTENT SNAPSHOT"])
@pytest.mark.parametrize("how", ["COMMIT", "ROLLBACK"])
def test_a_branch_prepared_before_a_connection_reset_is_decided_only_by_name(server, db, engine, run, how, then):
    """Whatever the connection does next. The branch was committed or rolled back with that, and a session that decided it by name was told that it succeeded."""
    if engine == "InnoDB":
        pytest.skip("InnoDB finds no such name while the connection is there")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 1)")
    name = f"{db.name}-{how}"
    one = prepared(server, db, run, name)
    reset(one)
    if then:
        run(one, then)
    assert (2, 2) not in run(db, "SELECT * FROM t")
    assert [row[3] for row in run(db, "XA RECOVER")] == [name.encode()]
    run(db, "SET SESSION terrace_lock_wait_timeout_ms = 200, lock_wait_timeout = 1")
    with pytest.raises(pymysql.err.OperationalError, match="1205"):
        run(db, "SELECT * FROM t WHERE id = 2 FOR UPDATE")
    run(db, f"XA {how} '{name}'")
    assert ((2, 2) in run(db, "SELECT * FROM t FOR UPDATE")) == (how == "COMMIT")
    assert run(db, "XA RECOVER") == []
    # Neither does what the connection does later touch it, nor its end.
    run(one, "COMMIT")
    run(one, "INSERT INTO t VALUES (4, 4)")
    one.close()
    assert ((2, 2) in run(db, "SELECT * FROM t")) == (how == "COMMIT") and (4, 4) in run(db, "SELECT * FROM t")


def test_a_branch_that_only_read_ends_with_the_connections_next_statement(server, db, engine, run):
    if engine == "InnoDB":
        pytest.skip("InnoDB refuses the connection's next statement")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, "CREATE TABLE other (id INT PRIMARY KEY, v INT) ENGINE=InnoDB")
    run(db, "INSERT INTO t VALUES (1, 1)")
    name = f"{db.name}-read"
    one = server.connect(database=db.name)
    run(one, f"XA START '{name}'")
    run(one, "INSERT INTO other VALUES (1, 1)")
    assert run(one, "SELECT v FROM t") == [(1,)]
    run(one, f"XA END '{name}'")
    run(one, f"XA PREPARE '{name}'")
    run(db, "UPDATE t SET v = 2")
    reset(one)
    assert run(one, "SELECT v FROM t") == [(2,)], "a view of the branch that it left"
    number = one.thread_id()
    one.close()
    # InnoDB finds the name when the connection is gone.
    wait_until(lambda: not run(db, f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number}"))
    run(db, f"XA ROLLBACK '{name}'")
    assert run(db, "SELECT COUNT(*) FROM other FOR UPDATE") == [(0,)]


def test_the_session_that_prepared_a_branch_decides_it_and_continues(server, db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    for how, rows in ("ROLLBACK", []), ("COMMIT", [(2, 2)]):
        one = prepared(server, db, run, f"{db.name}-own")
        run(one, f"XA {how} '{db.name}-own'")
        assert run(one, "SELECT * FROM t") == rows
        run(one, "BEGIN")
        run(one, "INSERT INTO t VALUES (5, 5)")
        run(one, "ROLLBACK")
        assert run(db, "SELECT * FROM t FOR UPDATE") == rows
        one.close()


@pytest.mark.parametrize("change", ["TRUNCATE TABLE t", "DROP TABLE t", "ALTER TABLE p DROP PARTITION p1"])
def test_no_ddl_removes_rows_of_a_branch_prepared_before_a_connection_reset(server, db, engine, run, change):
    """The server has released the metadata locks by then: the DDL was done, and XA COMMIT reported success."""
    if engine == "InnoDB" and "PARTITION" in change:
        pytest.skip("it says 1205, and the rows are gone")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, f"CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE={engine} PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))")
    for table in "tp":
        run(db, f"INSERT INTO {table} VALUES (1, 1), (11, 1)")
    table = "p" if " p " in change else "t"
    one = prepared(server, db, run, db.name, f"UPDATE {table} SET v = 20 WHERE id = 11")
    reset(one)
    other = server.connect(database=db.name)
    run(other, "SET innodb_lock_wait_timeout = 1, lock_wait_timeout = 1")
    with pytest.raises(pymysql.err.OperationalError, match="1205"):
        run(other, change)
    if engine == "InnoDB":
        one.close()
        wait_until(lambda: run(db, "XA RECOVER"))
    run(db, f"XA COMMIT '{db.name}'")
    assert run(other, f"SELECT v FROM {table} WHERE id = 11") == [(20,)]
    run(other, change)
