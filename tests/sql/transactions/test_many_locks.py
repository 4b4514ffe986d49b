"""Many row locks: rows passed with SKIP LOCKED, rows locked or changed in another order than their keys'; all stay locked through savepoints and
XA PREPARE, are shown, and take part in waits and deadlocks like few locks."""

import threading
import time

import pymysql
import pytest
from conftest import private, end, wait_until

MIB = 1 << 20
ROWS = 60_000
COLUMNS = "(id INT PRIMARY KEY, h BINARY(16), st INT, due INT, p VARCHAR(80), KEY h (h), KEY st (st, due))"
LOCK_WAIT_TIMEOUT, DEADLOCK = 1205, 1213


@pytest.fixture(scope="module")
def crowded(request):
    """A server with little memory (32 MiB: locks may take 4), with the table q of 60,000 rows: single locks of 90 bytes would not fit."""
    server = private([f"--terrace-memory={32 * MIB}", f"--terrace-log={128 * MIB}", f"--innodb-buffer-pool-size={32 * MIB}",
                      "--innodb-lock-wait-timeout=1", "--terrace-lock-wait-timeout-ms=1000"])
    try:
        a = server.connect()
        a.cursor().execute("CREATE DATABASE d")
        a.select_db("d")
        name = request.config.getoption("--engine")
        a.cursor().execute(f"CREATE TABLE q {COLUMNS} ENGINE={name}")
        a.cursor().execute(f"INSERT INTO q SELECT seq, UNHEX(MD5(seq)), seq % 3, seq * 7919 % {ROWS}, REPEAT('x', 40) FROM seq_1_to_{ROWS}")
        yield server
    finally:
        end(server)


@pytest.fixture
def sessions(crowded, run):
    """Two sessions. What they have not committed is rolled back."""
    pair = [crowded.connect(database="d", read_timeout=300), crowded.connect(database="d", read_timeout=300)]
    yield pair
    for connection in pair:
        connection.close()
    # The next test finds nothing locked.
    wait_until(lambda: all(is_free(crowded, run, key) for key in (3, 30_000)))


def is_free(server, run, key):
    """Whether another session can lock the row."""
    other = server.connect(database="d")
    try:
        run(other, "BEGIN")
        run(other, f"SELECT id FROM q WHERE id = {key} FOR UPDATE NOWAIT")
        return True
    except pymysql.err.OperationalError as error:
        assert error.args[0] == LOCK_WAIT_TIMEOUT, error
        return False
    finally:
        other.close()


@pytest.mark.parametrize("what", ["SELECT COUNT(*) FROM q WHERE id <= {} FOR UPDATE", "UPDATE q SET p = 'y' WHERE id <= {}", "DELETE FROM q WHERE id <= {}"])
def test_a_job_queue_passes_many_locked_rows(what, sessions, run):
    """Each passed row made the next one slower: 8,000 of them took over 20 seconds."""
    a, b = sessions
    took = {}
    for rows in (2_000, 40_000):
        run(a, "BEGIN")
        run(a, what.format(rows))
        run(b, "BEGIN")
        times = []
        for _ in range(3):
            started = time.monotonic()
            [(job,)] = run(b, "SELECT id FROM q ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
            times.append(time.monotonic() - started)
            assert job in (rows + 1, rows + 2)  # a range locks the row behind it, too
        took[rows] = min(times)
        # What it has looked through is closed to others' inserts, as before.
        run(b, "COMMIT")
        run(a, "ROLLBACK")
    assert took[40_000] < 20 * 20 * took[2_000] / 4, took
    assert took[40_000] < 20, took


def test_many_rows_are_locked_in_another_indexs_order(crowded, sessions, run):
    a, _ = sessions
    run(a, "BEGIN")
    assert run(a, f"SELECT COUNT(p) FROM q FORCE INDEX (h) WHERE h > '' FOR UPDATE") == [(ROWS,)]
    assert not any(is_free(crowded, run, key) for key in (1, 47_777, ROWS))
    run(a, "ROLLBACK")
    # Rows in a mode in which others may have them too.
    run(a, "BEGIN")
    assert run(a, "SELECT COUNT(p) FROM q FORCE INDEX (st) WHERE st = 1 LOCK IN SHARE MODE") == [(ROWS // 3,)]
    assert not is_free(crowded, run, 1) and is_free(crowded, run, 2)
    run(a, "COMMIT")
    assert is_free(crowded, run, 1)


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "READ COMMITTED"])
def test_many_rows_are_changed_in_another_indexs_order(isolation, crowded, sessions, run):
    a, _ = sessions
    run(a, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
    before = run(a, "SELECT SUM(due), COUNT(*) FROM q")
    run(a, "BEGIN")
    # A savepoint before an engine has a part in the transaction is undone by rolling that back.
    run(a, "SELECT id FROM q WHERE id = 5 FOR UPDATE")
    run(a, "SAVEPOINT s")
    run(a, "UPDATE q FORCE INDEX (h) SET due = due + 1 WHERE h > ''")
    assert not any(is_free(crowded, run, key) for key in (1, 47_777, ROWS))
    run(a, "DELETE FROM q WHERE st = 1")
    assert not any(is_free(crowded, run, key) for key in (1, 47_776, ROWS - 2))
    # Locked before, and by the changes that are undone: they are locked.
    run(a, "ROLLBACK TO SAVEPOINT s")
    assert run(a, "SELECT SUM(due), COUNT(*) FROM q") == before
    assert not any(is_free(crowded, run, key) for key in (1, 2, 3, 47_776, 47_777, ROWS))
    run(a, "ROLLBACK")
    assert is_free(crowded, run, 47_777)
    assert run(a, "SELECT SUM(due), COUNT(*) FROM q") == before


def test_a_wait_for_a_row_lasts_when_the_row_is_changed_and_when_the_change_is_undone(crowded, sessions, run):
    a, b = sessions
    run(a, "BEGIN")
    run(a, "SELECT COUNT(p) FROM q FORCE INDEX (h) WHERE h > '' FOR UPDATE")
    run(a, "SAVEPOINT s")
    run(b, "SET SESSION innodb_lock_wait_timeout = 100, terrace_lock_wait_timeout_ms = 100000")
    answer = []

    def wait():
        answer.append(run(b, "SELECT st FROM q WHERE id = 30000 FOR UPDATE"))

    waiter = threading.Thread(target=wait)
    waiter.start()
    waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT st FROM q WHERE id = 30000%'"
    other = crowded.connect(database="d")
    wait_until(lambda: run(other, waits) == [(1,)])
    run(a, "UPDATE q SET st = 8 WHERE st = 0")
    assert run(other, waits) == [(1,)] and not answer
    run(a, "ROLLBACK TO SAVEPOINT s")
    assert not is_free(crowded, run, 30_000)
    assert run(other, waits) == [(1,)] and not answer
    run(a, "UPDATE q SET st = 9 WHERE id = 30000")
    run(a, "COMMIT")
    waiter.join(100)
    assert answer == [[(9,)]]
    run(b, "ROLLBACK")
    run(a, "UPDATE q SET st = 0 WHERE id = 30000")


def test_a_deadlock_is_found_among_many_locks(sessions, run):
    a, b = sessions
    run(a, "BEGIN")
    run(b, "BEGIN")
    run(b, "SELECT id FROM q WHERE id IN (30, 31) FOR UPDATE")
    run(a, "SELECT COUNT(p) FROM q FORCE INDEX (h) WHERE h > '' FOR UPDATE SKIP LOCKED")
    outcome = {}

    def lock(name, connection, key):
        try:
            outcome[name] = run(connection, f"SELECT id FROM q WHERE id = {key} FOR UPDATE")
        except pymysql.err.OperationalError as error:
            outcome[name] = error.args[0]
            run(connection, "ROLLBACK")

    for connection in sessions:
        run(connection, "SET SESSION innodb_lock_wait_timeout = 100, terrace_lock_wait_timeout_ms = 100000")
    threads = [threading.Thread(target=lock, args=one) for one in (("a", a, 30), ("b", b, 47_777))]
    [thread.start() for thread in threads]
    [thread.join(100) for thread in threads]
    # The transaction with fewer locks is the victim.
    assert outcome == {"a": ((30,),) and [(30,)], "b": DEADLOCK}
    run(a, "ROLLBACK")


def test_many_locks_are_shown(engine, sessions, run):
    if engine == "InnoDB":
        pytest.skip("its table shows those that are waited for")
    a, b = sessions
    run(a, "BEGIN")
    run(a, f"SELECT COUNT(p) FROM q FORCE INDEX (h) WHERE h > '' FOR UPDATE")
    seen = run(b, "SELECT INDEX_NAME, MODE, COUNT(*), COUNT(DISTINCT LOCK_KEY) FROM information_schema.TERRACE_LOCKS "
                  "WHERE INDEX_NAME = 'PRIMARY' GROUP BY 1, 2")
    assert [row[2:] for row in seen] == [(ROWS, ROWS)], seen
    run(a, "ROLLBACK")
    assert run(b, "SELECT COUNT(*) FROM information_schema.TERRACE_LOCKS") == [(0,)]


def test_a_prepared_transaction_keeps_its_changed_and_locked_rows(crowded, sessions, run):
    a, _ = sessions
    run(a, "XA START 'many'")
    run(a, "SELECT COUNT(p) FROM q FORCE INDEX (h) WHERE h > '' FOR UPDATE")
    run(a, "UPDATE q SET p = 'z' WHERE st = 2")
    run(a, "XA END 'many'")
    run(a, "XA PREPARE 'many'")
    try:
        assert not any(is_free(crowded, run, key) for key in (1, 2, 47_777, ROWS))
    finally:
        run(a, "XA ROLLBACK 'many'")
    assert is_free(crowded, run, 47_777)
