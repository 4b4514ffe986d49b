"""Idle transactions and waiting statements: other sessions' work goes on as with InnoDB."""

import threading
import time

import pymysql
import pytest
from conftest import end, private, run, wait_until


def history(db):
    return int(run(db, "SHOW GLOBAL STATUS LIKE 'terrace_history_length'")[0][1])


def changes(db, times=300):
    for n in range(times):
        run(db, f"UPDATE t SET v = v + 1 WHERE id = {n % 3 + 1}")


@pytest.fixture
def alone():
    """A server of its own, whose history has no other transactions."""
    server = private(["--terrace-memory=33554432"])
    db = server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    run(db, "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(500) DEFAULT 'x') ENGINE=Terrace")
    run(db, "INSERT INTO t (id, v) VALUES (1, 0), (2, 0), (3, 0)")
    yield server, db
    end(server)


@pytest.mark.parametrize("statements", [
    ["SELECT * FROM t"],
    ["SELECT * FROM t", "UPDATE t SET pad = 'y' WHERE id = 30"],
    ["SELECT * FROM t LIMIT 1", "SELECT * FROM absent"],
    ["INSERT INTO t VALUES (9, 9, 'z')", "SELECT * FROM t", "INSERT INTO t VALUES (9, 9, 'z')"],
])
def test_an_idle_transaction_at_read_committed_does_not_hold_back_purge(alone, statements):
    """The view was kept until the next statement: undo grew, and a pooled connection whose last read was hours ago filled the volume."""
    server, db = alone
    one = server.connect(database="d")
    run(one, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    run(one, "SET autocommit = 0")
    for statement in statements:
        try:
            run(one, statement)
        except pymysql.err.Error:
            pass
    changes(db)
    wait_until(lambda: history(db) < 20)
    assert [v for (v,) in run(one, "SELECT v FROM t WHERE id < 4 ORDER BY id")] == [100, 100, 100]
    run(one, "ROLLBACK")


def test_an_idle_transaction_at_repeatable_read_keeps_its_snapshot(alone):
    server, db = alone
    one = server.connect(database="d")
    run(one, "BEGIN")
    before = run(one, "SELECT id, v FROM t")
    changes(db)
    time.sleep(1)
    assert history(db) > 250
    assert run(one, "SELECT id, v FROM t") == before
    run(one, "COMMIT")
    wait_until(lambda: history(db) < 20)


def test_a_prepared_transaction_does_not_hold_back_purge(alone):
    server, db = alone
    one = server.connect(database="d")
    for statement in ("XA START 'x'", "SELECT * FROM t", "INSERT INTO t VALUES (7, 7, 'p')", "XA END 'x'", "XA PREPARE 'x'"):
        run(one, statement)
    one.close()
    wait_until(lambda: run(db, "XA RECOVER"))
    changes(db)
    wait_until(lambda: history(db) < 20)
    run(db, "XA COMMIT 'x'")
    assert run(db, "SELECT v FROM t WHERE id = 7") == [(7,)]


def test_the_servers_thread_pool_is_told_of_waiting_threads():
    """With one thread a group the next statement, the COMMIT that would end the wait, ran only after the pool's timer had found the group stalled."""
    server = private(["--terrace-memory=33554432", "--thread-handling=pool-of-threads", "--thread-pool-size=1", "--thread-pool-stall-limit=60000",
                      "--thread-pool-oversubscribe=1", "--performance-schema=OFF"])
    try:
        db = server.connect()
        run(db, "CREATE DATABASE d")
        db.select_db("d")
        run(db, "CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=Terrace")
        run(db, "INSERT INTO t VALUES (1, 0)")
        others = [server.connect(database="d") for _ in range(6)]
        for _ in range(3):
            db.begin()
            run(db, "UPDATE t SET v = v + 1")
            waiting = [threading.Thread(target=run, args=(other, "UPDATE t SET v = v + 1")) for other in others]
            for one in waiting:
                one.start()
            time.sleep(0.5)
            began = time.monotonic()
            db.commit()
            for one in waiting:
                one.join(30)
            assert time.monotonic() - began < 25 and not any(one.is_alive() for one in waiting)
        assert run(db, "SELECT v FROM t") == [(21,)]
    finally:
        end(server)


def test_the_timeout_of_metadata_locks_is_not_that_of_rows(server, db, engine):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 0)")
    db.begin()
    run(db, "UPDATE t SET v = 1")
    other = server.connect(database=db.name)
    run(other, "SET lock_wait_timeout = 0")
    done = threading.Thread(target=run, args=(other, "UPDATE t SET v = v + 10"))
    done.start()
    time.sleep(1.5)
    assert done.is_alive()
    db.commit()
    done.join()
    assert run(db, "SELECT v FROM t") == [(11,)]
    # NOWAIT and WAIT n mean both, whatever is set.
    db.begin()
    run(db, "UPDATE t SET v = 1")
    settings = ["innodb_lock_wait_timeout = 50"] + (["terrace_lock_wait_timeout_ms = 50000"] if engine == "Terrace" else [])
    for setting in settings:
        run(other, f"SET {setting}, lock_wait_timeout = 50")
        for how, least, most in (("NOWAIT", 0, 25), ("WAIT 1", 0.9, 25)):
            began = time.monotonic()
            with pytest.raises(pymysql.err.OperationalError) as refused:
                run(other, f"SELECT * FROM t FOR UPDATE {how}")
            assert refused.value.args[0] == 1205 and least <= time.monotonic() - began < most
    db.rollback()
