import random
import threading
import time

import pymysql
import pytest


@pytest.fixture
def two(server, db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
    a, b = server.connect(database=db.name), server.connect(database=db.name)
    for connection in (a, b):
        run(connection, "SET SESSION lock_wait_timeout = 60")
        run(connection, "SET SESSION innodb_lock_wait_timeout = 60")
        run(connection, "SET SESSION terrace_lock_wait_timeout_ms = 60000")
    yield a, b
    a.close()
    b.close()


def test_repeatable_read_sees_one_snapshot(two, run):
    a, b = two
    run(a, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    run(a, "BEGIN")
    assert run(a, "SELECT SUM(v) FROM t") == [(60,)]
    run(b, "UPDATE t SET v = 11 WHERE id = 1")
    run(b, "DELETE FROM t WHERE id = 2")
    run(b, "INSERT INTO t VALUES (4, 40)")
    assert run(a, "SELECT id, v FROM t ORDER BY id") == [(1, 10), (2, 20), (3, 30)]
    assert run(a, "SELECT id FROM t FORCE INDEX (v) WHERE v >= 0 ORDER BY v") == [(1,), (2,), (3,)]
    run(a, "COMMIT")
    assert run(a, "SELECT id, v FROM t ORDER BY id") == [(1, 11), (3, 30), (4, 40)]


READS = [
    "SELECT v, id FROM {t} FORCE INDEX (kv) ORDER BY v, id",
    "SELECT id, v, s FROM {t} FORCE INDEX (kv) WHERE v BETWEEN 2 AND 7 ORDER BY v DESC, id DESC",
    "SELECT COUNT(*), SUM(v), SUM(s) FROM {t} FORCE INDEX (kv) WHERE v > 0",
    "SELECT id, u FROM {t} FORCE INDEX (ku) WHERE u > 0 ORDER BY u",
    "SELECT id, v, u, s FROM {t} FORCE INDEX (PRIMARY)",
]


@pytest.mark.parametrize("seed", range(4))
def test_own_changes_of_rows_that_others_changed_since_are_seen_once_by_every_index(server, db, run, seed):
    """As in InnoDB: a transaction that changes a row newer than its view sees its own version of the row, and once."""
    dice, tables = random.Random(seed), {"InnoDB": "ti", "Terrace": "tt"}
    for engine, t in tables.items():
        run(db, f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT, u INT, s INT, KEY kv (v), UNIQUE ku (u)) ENGINE={engine}")
        run(db, f"INSERT INTO {t} SELECT seq, seq % 10, seq, 0 FROM seq_1_to_12")
    a, b = server.connect(database=db.name), server.connect(database=db.name)
    fresh, there = 100, set(range(1, 13))
    for _ in range(6):
        run(a, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        run(a, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        mine, before, saved = set(), set(there), None
        for step in range(30):
            who = dice.choice([a, b, b])
            fresh += 1
            free = sorted(there if who is a else there - mine)
            row, v = dice.choice(free or [0]), dice.randrange(10)
            kind = dice.choice(["v", "v", "u", "s", "delete", "insert", "back"])
            if kind == "back" and who is a:
                sql = "SAVEPOINT one" if saved is None else "ROLLBACK TO one"
                (there, saved) = (there, set(there)) if saved is None else ((there - mine) | (saved & mine), saved)
            elif kind == "insert":
                sql = f"INSERT INTO {{t}} VALUES ({fresh}, {v}, {fresh}, 0)"
                there = there | {fresh}
                mine |= {fresh} if who is a else set()
            elif not free or kind == "back":
                continue
            else:
                sql = "DELETE FROM {t} WHERE id = %d" % row if kind == "delete" else "UPDATE {t} SET %s WHERE id = %d" % ({"v": f"v = {v}", "u": f"u = {fresh}", "s": "s = s + 1"}[kind], row)
                there = there - {row} if kind == "delete" else there
                mine |= {row} if who is a else set()
            for t in tables.values():
                run(who, sql.format(t=t))
            for read in READS:
                found = [run(a, read.format(t=t)) for t in tables.values()]
                assert found[0] == found[1], f"seed {seed}, step {step}, {sql}: {read}"
        if dice.randrange(2):
            run(a, "COMMIT")
        else:
            run(a, "ROLLBACK")
            there = {row for (row,) in run(b, "SELECT id FROM ti")}
    a.close()
    b.close()


def test_read_committed_sees_a_new_snapshot_for_each_statement(two, run):
    a, b = two
    run(a, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    run(a, "BEGIN")
    assert run(a, "SELECT SUM(v) FROM t") == [(60,)]
    run(b, "UPDATE t SET v = 11 WHERE id = 1")
    assert run(a, "SELECT SUM(v) FROM t") == [(61,)]
    run(b, "BEGIN")
    run(b, "UPDATE t SET v = 1000 WHERE id = 3")
    assert run(a, "SELECT SUM(v) FROM t") == [(61,)]
    run(b, "ROLLBACK")


def test_no_update_is_lost(two, run):
    a, b = two
    run(a, "BEGIN")
    assert run(a, "SELECT v FROM t WHERE id = 1 FOR UPDATE") == [(10,)]
    done = []

    def other():
        run(b, "UPDATE t SET v = v + 1 WHERE id = 1")
        done.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    time.sleep(0.3)
    assert not done, "the other one must wait"
    run(a, "UPDATE t SET v = v + 5 WHERE id = 1")
    run(a, "COMMIT")
    thread.join()
    assert run(a, "SELECT v FROM t WHERE id = 1") == [(16,)]


def test_a_lock_wait_ends_with_1205(two, run):
    a, b = two
    run(a, "BEGIN")
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    run(b, "SET SESSION innodb_lock_wait_timeout = 1, terrace_lock_wait_timeout_ms = 1000")
    with pytest.raises(pymysql.err.OperationalError) as error:
        run(b, "UPDATE t SET v = 1 WHERE id = 1")
    assert error.value.args[0] == 1205
    run(a, "ROLLBACK")


@pytest.mark.parametrize("locks", ["SELECT v FROM t WHERE id = 1 FOR UPDATE", "SELECT v FROM t WHERE id = 9 LOCK IN SHARE MODE", "SELECT v FROM t WHERE v > 5 FOR UPDATE"])
def test_a_table_whose_rows_or_gaps_stay_locked_past_a_savepoint_is_not_emptied(two, run, locks):
    """A rollback to a savepoint releases no row locks, so no other session may lock the whole table afterwards."""
    a, b = two
    run(b, "CREATE TABLE other LIKE t")
    run(b, "SET SESSION lock_wait_timeout = 1")
    run(a, "BEGIN")
    run(a, "SELECT * FROM other")
    run(a, "SAVEPOINT s")
    run(a, locks)
    run(a, "ROLLBACK TO s")
    with pytest.raises(pymysql.err.OperationalError, match="1205"):
        run(b, "TRUNCATE TABLE t")
    # What was only read is free again.
    run(a, "ROLLBACK")
    run(a, "BEGIN")
    run(a, "SELECT * FROM other")
    run(a, "SAVEPOINT s")
    run(a, "SELECT * FROM t")
    run(a, "ROLLBACK TO s")
    run(b, "TRUNCATE TABLE t")
    run(a, "ROLLBACK")


def test_locking_statements_obey_nowait_and_their_wait_timeouts(two, run):
    """Also where the transaction, or the statement itself, has read without a lock before."""
    a, b = two
    run(b, "CREATE TABLE other LIKE t")
    run(a, "BEGIN")
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    for level in ("READ COMMITTED", "REPEATABLE READ"):
        run(b, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        run(b, "BEGIN")
        for _ in range(2):
            assert run(b, "SELECT v FROM t WHERE id = 1") == [(10,)]
            for statement in ("SELECT v FROM t WHERE id = 1 FOR UPDATE NOWAIT", "SELECT v FROM t WHERE id = 1 LOCK IN SHARE MODE WAIT 1",
                              "SET STATEMENT terrace_lock_wait_timeout_ms = 200, innodb_lock_wait_timeout = 1 FOR "
                              "UPDATE t JOIN (SELECT COUNT(*) n FROM other) o SET t.v = o.n WHERE t.id = 1"):
                started = time.monotonic()
                with pytest.raises(pymysql.err.OperationalError, match="1205"):
                    run(b, statement)
                assert time.monotonic() - started < 20, statement
            done = []
            thread = threading.Thread(target=lambda: done.append(run(b, "SELECT v FROM t WHERE id = 1 FOR UPDATE WAIT 60")))
            thread.start()
            time.sleep(2)
            assert not done, "it waits as it says, not as the one before it did"
            run(a, "ROLLBACK")
            thread.join()
            assert done == [[(10,)]]
            run(b, "ROLLBACK")
            run(a, "BEGIN")
            run(a, "UPDATE t SET v = 0 WHERE id = 1")
            run(b, "BEGIN")
        run(b, "ROLLBACK")
    run(a, "ROLLBACK")


def test_a_deadlock_is_found_at_once_with_1213(two, run):
    a, b = two
    run(a, "BEGIN")
    run(b, "BEGIN")
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    run(b, "UPDATE t SET v = 0 WHERE id = 2")
    faults = []

    def other():
        try:
            run(a, "UPDATE t SET v = 0 WHERE id = 2")
        except pymysql.err.OperationalError as error:
            faults.append(error.args[0])

    thread = threading.Thread(target=other)
    thread.start()
    time.sleep(0.2)
    started = time.time()
    try:
        run(b, "UPDATE t SET v = 0 WHERE id = 1")
    except pymysql.err.OperationalError as error:
        faults.append(error.args[0])
    assert time.time() - started < 40, "that is nearly the time-out"
    thread.join()
    assert faults == [1213]
    run(a, "ROLLBACK")
    run(b, "ROLLBACK")


def test_a_scan_locks_the_rows_that_it_reads_and_no_other(two, run):
    """Also where rows are locked some at a time, because all of them are read."""
    a, b = two
    rows = list(range(1, 501))
    run(a, "INSERT INTO t VALUES " + ", ".join(f"({row}, {10 * row})" for row in rows[3:]))
    run(a, "CREATE TABLE other LIKE t")
    for connection in (a, b):
        run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def left(*statements):
        run(a, "BEGIN")
        for statement in statements:
            run(a, statement)
        run(b, "BEGIN")
        ids = [row for (row,) in run(b, "SELECT id FROM t IGNORE INDEX (v) WHERE v > 0 FOR UPDATE SKIP LOCKED")]
        run(b, "ROLLBACK")
        run(a, "ROLLBACK")
        return ids

    scan = "SELECT v FROM t IGNORE INDEX (v) WHERE v > 0"
    assert left(f"{scan} LIMIT 100 FOR UPDATE") == rows[100:]
    assert left("SELECT v FROM t IGNORE INDEX (v) WHERE v > 2000 LIMIT 1 FOR UPDATE") == rows[201:]
    assert left("SET sql_select_limit = 50", f"{scan} FOR UPDATE", "SET sql_select_limit = DEFAULT") == rows[50:]
    assert left(f"INSERT INTO other {scan.replace('v', 'id, v', 1)} LIMIT 100") == rows[100:]
    assert left("SELECT v FROM t IGNORE INDEX (v) WHERE id BETWEEN 50 AND 150 FOR UPDATE")[:49] == rows[:49]
    for whole in (f"{scan} FOR UPDATE", f"{scan} LOCK IN SHARE MODE", "SELECT COUNT(*) FROM t IGNORE INDEX (v) WHERE v < 0 FOR UPDATE",
                  f"INSERT INTO other {scan.replace('v', 'id, v', 1)}"):
        assert left(whole) == []
        assert left() == rows
    run(b, "SET SESSION innodb_lock_wait_timeout = 1, terrace_lock_wait_timeout_ms = 1000")
    run(a, "BEGIN")
    run(a, f"{scan} FOR UPDATE")
    with pytest.raises(pymysql.err.OperationalError, match="1205"):
        run(b, "INSERT INTO t VALUES (501, 1)")
    run(a, "ROLLBACK")
    run(b, "INSERT INTO t VALUES (501, 1)")


def test_read_uncommitted_passes_entries_whose_rows_are_removed(server, db, engine, run):
    """Beside deletes and inserts. It was told that the index is corrupt: the entry was read, and then there was no row."""
    run(db, f"CREATE TABLE r (id INT PRIMARY KEY, k INT, pad VARCHAR(100), KEY (k)) ENGINE={engine}")
    run(db, "INSERT INTO r SELECT seq, seq * 7919 % 2003, REPEAT('x', 100) FROM seq_1_to_2000")
    until, failed = time.monotonic() + 4, []

    def work(which):
        connection = server.connect(database=db.name)
        source = random.Random(which)
        while time.monotonic() < until:
            first = source.randrange(2000)
            try:
                run(connection, f"DELETE FROM r WHERE id BETWEEN {first} AND {first + 50}")
                run(connection, f"INSERT IGNORE INTO r SELECT seq, seq * 7919 % 2003, REPEAT('y', 100) FROM seq_{first}_to_{first + 50}")
            except pymysql.Error as error:
                if error.args[0] not in (1205, 1213):
                    failed.append(error)
        connection.close()

    writers = [threading.Thread(target=work, args=(which,)) for which in range(3)]
    [writer.start() for writer in writers]
    reader = server.connect(database=db.name)
    run(reader, "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
    while time.monotonic() < until:
        assert run(reader, "SELECT COUNT(pad), SUM(LENGTH(pad)) FROM r FORCE INDEX (k) WHERE k >= 0")[0][0] > 0
    [writer.join() for writer in writers]
    reader.close()
    assert not failed, failed
    assert run(db, "CHECK TABLE r")[0][3] == "OK"
