"""The server's query cache returns only what the transaction would read itself."""

import threading
import time

import pytest
from conftest import end, private, wait_until


@pytest.fixture
def caching():
    server = private(["--terrace-memory=16777216", "--query-cache-type=1", "--query-cache-size=1048576"])
    yield server
    end(server)


@pytest.fixture
def sessions(caching, run, engine):
    """Three connections and two tables of one row each."""
    made = [caching.connect() for _ in range(3)]
    run(made[0], "CREATE DATABASE d")
    for table in "tu":
        run(made[0], f"CREATE TABLE d.{table} (id INT PRIMARY KEY, a INT) ENGINE={engine}")
        run(made[0], f"INSERT INTO d.{table} VALUES (1, 0)")
    for one in made:
        one.select_db("d")
    return made


def hits(connection, run):
    return int(run(connection, "SHOW GLOBAL STATUS LIKE 'Qcache_hits'")[0][1])


def close(connection, control, run):
    """Closes it, and waits until the server has: its prepared transaction is another session's to end from then on."""
    number = connection.thread_id()
    connection.close()
    wait_until(lambda: not run(control, f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number}"))


READ = "SELECT a FROM t"


def test_cached_answers_are_reused_until_a_write(sessions, run):
    one, other, _ = sessions
    run(one, READ)
    before = hits(one, run)
    assert run(one, READ) == [(0,)] and run(other, READ) == [(0,)]
    assert hits(one, run) == before + 2
    run(other, "UPDATE t SET a = 1")
    assert run(one, READ) == [(1,)]
    assert hits(one, run) == before + 2
    assert run(one, READ) == [(1,)] and hits(one, run) == before + 3


def test_an_answer_is_not_kept_beside_an_open_transaction(sessions, run):
    one, other, third = sessions
    run(other, "BEGIN")
    run(other, "UPDATE t SET a = 1")
    before = hits(one, run)
    # What is read now is from before: the commit must not find it kept.
    assert run(one, READ) == [(0,)] and run(one, READ) == [(0,)]
    assert run(other, READ) == [(1,)]
    assert hits(one, run) == before
    run(other, "COMMIT")
    # Kept when the next statement of the same connection starts; the client has the answer before.
    assert run(one, READ) == [(1,)] and hits(one, run) == before
    assert run(third, READ) == [(1,)]
    assert hits(one, run) == before + 1


def test_a_transaction_is_not_given_what_its_view_does_not_see(sessions, run):
    one, other, third = sessions
    run(one, "BEGIN")
    assert run(one, "SELECT a FROM u") == [(0,)]
    run(other, "UPDATE t SET a = 1")
    # A second transaction as new as the change fills the cache with what the first one doesn't see.
    run(third, "BEGIN")
    assert run(third, READ) == [(1,)] and run(third, READ) == [(1,)]
    assert run(one, READ) == [(0,)]
    run(third, "COMMIT")
    run(one, "COMMIT")
    run(one, "BEGIN")
    assert run(one, READ) == [(1,)]
    run(one, "COMMIT")


def test_an_answer_from_the_cache_fixes_the_view(sessions, run):
    one, other, third = sessions
    run(third, "BEGIN")
    assert run(third, READ) == [(0,)]
    run(third, "COMMIT")
    before = hits(one, run)
    run(one, "BEGIN")
    assert run(one, READ) == [(0,)] and hits(one, run) == before + 1
    run(other, "UPDATE t SET a = 1")
    run(other, "UPDATE u SET a = 1")
    assert run(one, "SELECT a FROM u") == [(0,)] and run(one, READ) == [(0,)]
    run(one, "COMMIT")


def test_a_prepared_transaction_ended_by_name_ends_old_answers(caching, sessions, run):
    one, other, _ = sessions
    for sql in ("XA START 'x'", "UPDATE t SET a = 1", "XA END 'x'", "XA PREPARE 'x'"):
        run(other, sql)
    close(other, one, run)
    assert run(one, READ) == [(0,)] and run(one, READ) == [(0,)]
    run(one, "XA COMMIT 'x'")
    assert run(one, READ) == [(1,)]


def test_read_uncommitted_answers_are_not_cached(caching, sessions, run):
    one, other, third = sessions
    for sql in ("XA START 'x'", "UPDATE t SET a = 1", "XA END 'x'", "XA PREPARE 'x'"):
        run(other, sql)
    close(other, one, run)
    run(third, "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
    assert run(third, READ) == [(1,)] and run(third, READ) == [(1,)]
    assert run(one, READ) == [(0,)]
    run(one, "XA ROLLBACK 'x'")
    assert run(one, READ) == [(0,)] and run(third, READ) == [(0,)]


def test_truncate_and_partitions(sessions, run, engine):
    one, other, _ = sessions
    assert run(one, READ) == [(0,)]
    run(other, "TRUNCATE t")
    assert run(one, READ) == []
    run(one, f"CREATE TABLE p (id INT PRIMARY KEY, a INT) ENGINE={engine} PARTITION BY HASH (id) PARTITIONS 3")
    run(one, "INSERT INTO p VALUES (1, 0), (2, 0), (3, 0)")
    read = "SELECT SUM(a) FROM p"
    run(one, read)
    before = hits(one, run)
    assert run(one, read) == [(0,)] and hits(one, run) == before + 1
    run(other, "BEGIN")
    run(other, "UPDATE p SET a = 1 WHERE id = 2")
    assert run(one, read) == [(0,)]
    run(other, "COMMIT")
    assert run(one, read) == [(1,)]
    assert hits(one, run) == before + 1


def test_readers_beside_writers_see_no_old_answer(caching, sessions, run):
    """Two rows are changed together, and what has been committed or seen once is not unseen."""
    least, most = time.time() + 4, time.time() + 120
    known = [0]                              # what is committed for sure
    wrong = []

    def goes_on():
        return not wrong and (time.time() < least or known[0] <= 20 and time.time() < most)

    def write(connection):
        while goes_on():
            run(connection, "BEGIN")
            run(connection, "UPDATE t SET a = a + 1")
            run(connection, "UPDATE u SET a = a + 1")
            mine = run(connection, "SELECT a FROM t")[0][0]
            run(connection, "COMMIT")
            known[0] = max(known[0], mine)
            time.sleep(0.002)

    def read(connection, begins):
        last = 0
        while goes_on():
            floor = max(last, known[0])
            if begins:
                run(connection, "BEGIN")
            here = run(connection, "SELECT a FROM t")[0][0]
            both = run(connection, "SELECT t.a, u.a FROM t, u")[0]
            if begins:
                run(connection, "COMMIT")
            if here < floor or both[0] != both[1] or both[0] < here or (begins and both[0] != here):
                wrong.append((floor, here, both))
            last = both[0]

    before = hits(sessions[0], run)
    connections = [caching.connect(database="d") for _ in range(5)]
    threads = [threading.Thread(target=write, args=(connections[0],))]
    threads += [threading.Thread(target=read, args=(one, at % 2 == 1)) for at, one in enumerate(connections[1:])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert known[0] > 20 and hits(sessions[0], run) > before
