"""A transaction ten times the memory: rolled back, and killed during its rollback."""

import threading
import time

import pymysql
import pytest
from conftest import end, private

BASE, INSERTED = 2000, 45000


@pytest.fixture
def small(engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    server = private(["--terrace-memory=4194304", "--terrace-log=16777216", "--terrace-object-buffer=536870912"])
    yield server
    end(server)


def seen(run, connection):
    return run(connection, "SELECT COUNT(*), SUM(id), SUM(v), SUM(CRC32(note)) FROM d.t")


def change(run, connection):
    run(connection, "BEGIN")
    run(connection, "UPDATE d.t SET v = v + 1, note = REPEAT('z', 700) WHERE id % 3 > 0")
    run(connection, "DELETE FROM d.t WHERE id % 3 = 0")
    run(connection, f"INSERT INTO d.t SELECT {BASE} + seq, seq % 1000, REPEAT('y', 900) FROM seq_1_to_{INSERTED}")


def test_a_transaction_ten_times_the_memory_is_rolled_back_and_killed_during_its_rollback(small, engine, run):
    connection = small.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, f"CREATE TABLE d.t (id INT PRIMARY KEY, v INT, note VARCHAR(1000), KEY (v)) ENGINE={engine}")
    run(connection, f"INSERT INTO d.t SELECT seq, seq % 100, REPEAT('x', 800) FROM seq_1_to_{BASE}")
    before = seen(run, connection)

    change(run, connection)
    assert seen(run, connection) != before
    began = time.time()
    run(connection, "ROLLBACK")
    took = time.time() - began
    assert seen(run, connection) == before

    # Again, killed in the middle of the rollback; sooner if the machine has become faster meanwhile.
    def roll_back():
        began = time.time()
        try:
            run(connection, "ROLLBACK")
            gone.append(time.time() - began)
        except pymysql.err.MySQLError:
            pass

    for _ in range(6):
        change(run, connection)
        gone = []
        thread = threading.Thread(target=roll_back)
        thread.start()
        time.sleep(took / 3)
        small.kill9()
        thread.join()
        small.start()
        connection = small.connect()
        connection.select_db("d")
        if not gone:
            break
        assert seen(run, connection) == before
        took = min(gone[0], took / 2)
    assert not gone, "the rollback was faster than the kill: this proves nothing"
    # No session sees any of its changes from the start on, and half-way the server is killed once more.
    assert seen(run, connection) == before
    time.sleep(took / 4)
    small.kill9()
    small.start()
    connection = small.connect()
    assert seen(run, connection) == before
    # The row changed first is let go last.
    run(connection, "SET SESSION terrace_lock_wait_timeout_ms = 120000")
    run(connection, "UPDATE d.t SET v = v WHERE id = 1")
    run(connection, "UPDATE d.t SET v = v + 1 WHERE id <= 2")
    run(connection, "UPDATE d.t SET v = v - 1 WHERE id <= 2")
    assert seen(run, connection) == before
    for row in run(connection, "CHECK TABLE d.t"):
        assert row[3] == "OK", row
