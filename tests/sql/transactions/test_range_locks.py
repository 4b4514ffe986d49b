"""Which rows a range of the primary key locks: those that it reads and the one after its end, as with InnoDB, although rows are locked in
batches where all of them are read."""

import threading

import pymysql
import pytest

from conftest import LOCK_WAIT_TIMEOUT, end, private

ROWS = 600
ENGINES = ("InnoDB", "Terrace")

# What is read of `t`, and which rows of it the reader is given (none: it tells nothing of them).
READS = {
    "between": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350", range(50, 351)),
    "between, some rows": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 AND v % 3 = 0", range(51, 351, 3)),
    "below": ("SELECT id FROM t WHERE id > 50 AND id < 350", range(51, 350)),
    "from": ("SELECT id FROM t WHERE id >= 250", range(250, ROWS + 1)),
    "up to": ("SELECT id FROM t WHERE id <= 250", range(1, 251)),
    "few": ("SELECT id FROM t WHERE id BETWEEN 50 AND 53", range(50, 54)),
    "several": ("SELECT id FROM t WHERE id BETWEEN 50 AND 150 OR id BETWEEN 300 AND 400 OR id > 590",
                [*range(50, 151), *range(300, 401), *range(591, ROWS + 1)]),
    "list": ("SELECT id FROM t WHERE id IN (5, 70, 71, 300)", [5, 70, 71, 300]),
    "range of nothing": ("SELECT id FROM t WHERE id BETWEEN 1000 AND 2000", []),
    "limit": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 LIMIT 100", range(50, 150)),
    "limit, ordered": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 ORDER BY id LIMIT 100", range(50, 150)),
    "down": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 ORDER BY id DESC", range(350, 49, -1)),
    "down, limit": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 ORDER BY id DESC LIMIT 100", range(350, 250, -1)),
    "distinct": ("SELECT DISTINCT id FROM t WHERE id BETWEEN 50 AND 350", range(50, 351)),
    "sum": ("SELECT SUM(id) FROM t WHERE id BETWEEN 50 AND 350", None),
    "groups": ("SELECT id DIV 100, COUNT(*) FROM t WHERE id BETWEEN 50 AND 350 GROUP BY 1", None),
    "least": ("SELECT MIN(id) FROM t WHERE id BETWEEN 50 AND 350", None),
    "greatest": ("SELECT MAX(id) FROM t WHERE id BETWEEN 50 AND 350", None),
    "sorted": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 ORDER BY v DESC", range(350, 49, -1)),
    "rownum": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 AND ROWNUM() <= 100", range(50, 150)),
    "rows examined": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 LIMIT ROWS EXAMINED 100", None),
    "exists": ("SELECT n FROM one WHERE EXISTS (SELECT * FROM t WHERE id BETWEEN 50 AND 350 AND v > 60)", None),
    "join": ("SELECT STRAIGHT_JOIN n, id FROM one JOIN t ON id BETWEEN 50 AND 350", None),
    "left join of nothing": ("SELECT STRAIGHT_JOIN n FROM one LEFT JOIN t ON id BETWEEN 50 AND 350 WHERE id IS NULL", None),
    "union": ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 UNION SELECT id FROM t WHERE id BETWEEN 400 AND 450", None),
    "two parts": ("SELECT a, b FROM p WHERE a = 3", None),
    "two parts, from": ("SELECT a, b FROM p WHERE a = 3 AND b > 20", None),
    "two parts, between": ("SELECT a, b FROM p WHERE a BETWEEN 2 AND 4", None),
}
TABLES = {"t": "id", "p": "a, b"}


@pytest.fixture
def pairs(server, db, run):
    """For each engine two connections to a database with the same tables."""
    made = {}
    for engine in ENGINES:
        run(db, f"CREATE DATABASE {db.name}_{engine} CHARACTER SET utf8mb4")
        a, b = made[engine] = [server.connect(database=f"{db.name}_{engine}") for _ in range(2)]
        run(a, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(60)) ENGINE={engine}")
        run(a, f"INSERT INTO t SELECT seq, seq, REPEAT('x', 60) FROM seq_1_to_{ROWS}")
        run(a, f"CREATE TABLE p (a INT, b INT, PRIMARY KEY (a, b)) ENGINE={engine}")
        run(a, "INSERT INTO p SELECT seq DIV 60, seq % 60 FROM seq_1_to_600")
        run(a, f"CREATE TABLE one (n INT PRIMARY KEY) ENGINE={engine}")
        run(a, "INSERT INTO one VALUES (1)")
        run(a, f"CREATE TABLE copy_1 (n INT) ENGINE={engine}")
        run(a, f"CREATE TABLE copy_2 (n INT, m INT) ENGINE={engine}")
        run(a, "ANALYZE TABLE t, p, one")
        for connection in (a, b):
            run(connection, "SET SESSION innodb_lock_wait_timeout = 1, terrace_lock_wait_timeout_ms = 1000")
    yield made
    for engine in ENGINES:
        for connection in made[engine]:
            connection.close()
        run(db, f"DROP DATABASE {db.name}_{engine}")


def locked(run, b, table):
    """The rows that others have locked."""
    names = TABLES[table]
    run(b, "BEGIN")
    free = set(run(b, f"SELECT {names} FROM {table} FOR UPDATE SKIP LOCKED"))
    run(b, "ROLLBACK")
    return set(run(b, f"SELECT {names} FROM {table}")) - free


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("how", ["{} FOR UPDATE", "{} LOCK IN SHARE MODE", "INSERT INTO copy_{columns} {}", "SET sql_select_limit = 40; {} FOR UPDATE"])
def test_a_range_locks_what_innodbs_does_and_no_more(pairs, run, how, level):
    for name, (read, given) in READS.items():
        columns = read.split(" FROM ")[0].count(",") + 1
        found, rows = {}, {}
        for engine, (a, b) in pairs.items():
            run(a, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            run(a, "BEGIN")
            try:
                for statement in how.format(read, columns=columns).split("; "):
                    rows[engine] = run(a, statement)
            except pymysql.err.ProgrammingError:
                rows[engine] = "refused"  # there are places where no lock can be asked for
            found[engine] = {table: locked(run, b, table) for table in TABLES}
            run(a, "ROLLBACK")
            run(a, "SET sql_select_limit = DEFAULT")
            assert not any(locked(run, b, table) for table in TABLES)
        assert rows["Terrace"] == rows["InnoDB"], name
        for table in TABLES:
            assert found["Terrace"][table] <= found["InnoDB"][table], (name, table)
        if given is not None and how.endswith("{} FOR UPDATE") and rows["Terrace"] != "refused":
            assert [row for (row,) in rows["Terrace"]] == list(given)[:40 if "limit" in how and "LIMIT" not in read else None], name
            assert found["Terrace"]["t"] >= set(rows["Terrace"]), name


def test_a_range_lock_meets_conflicting_locks_in_key_order(pairs, run):
    for a, b in pairs.values():
        run(a, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        run(b, "BEGIN")
        run(b, "UPDATE t SET v = 0 WHERE id = 200")
        run(a, "BEGIN")
        assert run(a, "SELECT id FROM t WHERE id BETWEEN 50 AND 350 FOR UPDATE SKIP LOCKED") == [(n,) for n in range(50, 351) if n != 200]
        run(a, "ROLLBACK")
        for read in ("SELECT id FROM t WHERE id BETWEEN 50 AND 350 FOR UPDATE NOWAIT", "SELECT id FROM t WHERE id BETWEEN 50 AND 350 FOR UPDATE"):
            run(a, "BEGIN")
            with pytest.raises(pymysql.err.OperationalError) as caught:
                run(a, read)
            assert caught.value.args[0] == LOCK_WAIT_TIMEOUT
            run(a, "ROLLBACK")
        # Waited for, and then read as it has become.
        seen = []
        thread = threading.Thread(target=lambda: seen.extend(run(a, "SELECT v FROM t WHERE id BETWEEN 50 AND 350 FOR UPDATE")))
        run(a, "SET SESSION innodb_lock_wait_timeout = 60, terrace_lock_wait_timeout_ms = 60000")
        run(a, "BEGIN")
        thread.start()
        run(b, "DELETE FROM t WHERE id = 300")
        run(b, "COMMIT")
        thread.join()
        assert seen == [(0 if n == 200 else n,) for n in range(50, 351) if n != 300]
        # No row is inserted into the range that was read, and its rows are not changed.
        for change in ("INSERT INTO t VALUES (300, 1, '')", "UPDATE t SET v = 1 WHERE id = 349"):
            with pytest.raises(pymysql.err.OperationalError) as caught:
                run(b, change)
            assert caught.value.args[0] == LOCK_WAIT_TIMEOUT
        run(a, "ROLLBACK")


def test_rows_are_changed_as_they_are_read_in_one_transaction(pairs, run):
    """Locked by range, then changed, and read again by range: with what has become of them."""
    answers = {}
    for engine, (a, _) in pairs.items():
        run(a, "BEGIN")
        answer = run(a, "SELECT SUM(v), COUNT(*) FROM t WHERE id BETWEEN 50 AND 350 FOR UPDATE")
        for change in ("UPDATE t SET v = v + 1 WHERE id BETWEEN 60 AND 250", "DELETE FROM t WHERE id BETWEEN 100 AND 110",
                       "INSERT INTO t VALUES (105, 7, 'y')", "UPDATE t SET pad = REPEAT('z', 59) WHERE id > 300", "UPDATE t SET v = 3 WHERE id = 77",
                       "UPDATE t SET id = id + 10000 WHERE id BETWEEN 340 AND 345"):
            run(a, change)
            answer += run(a, "SELECT id, v, pad FROM t WHERE id BETWEEN 50 AND 350 FOR UPDATE")
            answer += run(a, "SELECT id, v FROM t WHERE id > 90 AND v % 2 LOCK IN SHARE MODE")
        answers[engine] = answer
        run(a, "COMMIT")
        assert run(a, "CHECK TABLE t")[0][3] == "OK"
    assert answers["Terrace"] == answers["InnoDB"]


def test_insert_ignore_passes_more_duplicates_than_the_lock_limit(run, engine):
    """INSERT IGNORE locks what it meets, as InnoDB's; where the locks are used up it goes on without."""
    server = private(["--terrace-locks-max=1000"] if engine == "Terrace" else [])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
        run(connection, "INSERT INTO t SELECT seq, seq FROM seq_0_to_4999")
        connection.begin()
        run(connection, "UPDATE t SET v = 1 WHERE id = 1")
        run(connection, "INSERT IGNORE INTO t SELECT seq * 1237 % 5000, 0 FROM seq_1_to_5000")
        connection.commit()
        assert run(connection, "SELECT COUNT(*), SUM(id = v) FROM t") == [(5000, 5000)]
        run(connection, "INSERT IGNORE INTO t SELECT seq * 1237 % 5000, 0 FROM seq_1_to_5000")
    finally:
        end(server)
