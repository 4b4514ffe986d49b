"""AUTO_INCREMENT counters: generated values and the counter shown are InnoDB's, with increments and offsets, for each column type, and up to
the end of its range."""

import itertools
import threading
import time

import pymysql
import pytest
from conftest import contents, end, private, replayed, run, wait_until

COUNTER = "SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'"
TOP = (1 << 64) - 1


def played(db, engine, statements):
    """Each statement's answer, and the counter after it."""
    run(db, "DROP TABLE IF EXISTS t")
    said = []
    for sql in statements:
        try:
            answer = run(db, sql.format(engine=engine))
        except pymysql.err.Error as error:
            answer = error.args
        said.append((sql, repr(answer).replace(engine, "…"), run(db, COUNTER)))
    run(db, "SET auto_increment_increment = 1, auto_increment_offset = 1")
    return said


def as_innodb(db, engine, statements):
    assert played(db, engine, statements) == played(db, "InnoDB", statements)


def counting(increment, offset):
    return f"SET auto_increment_increment = {increment}, auto_increment_offset = {offset}"


MADE = "CREATE TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, b INT) ENGINE={engine}"
NEW, ALL = "INSERT INTO t (b) VALUES (0)", "SELECT * FROM t"
GIVEN = {
    "first": ["INSERT INTO t VALUES (12,0)", NEW, "INSERT INTO t VALUES (33,0)", "INSERT INTO t (b) VALUES (1),(2)", ALL],
    "after others": [NEW, "INSERT INTO t VALUES (12,0)", NEW, "INSERT INTO t VALUES (3,0)", NEW, ALL],
    "within": [NEW, "INSERT INTO t VALUES (41,0),(NULL,1),(77,2)", "INSERT INTO t VALUES (NULL,0),(90,0),(NULL,1),(NULL,1)", NEW, ALL],
    "by updates": [NEW, "UPDATE t SET a = 22", "UPDATE t SET b = 7", "UPDATE t SET a = a", NEW, "UPDATE t SET a = a + 40 ORDER BY a DESC", NEW, ALL],
    "by replacing": [NEW, "REPLACE INTO t VALUES (1,1),(58,2),(NULL,3)", "REPLACE INTO t VALUES (58,3)", NEW, ALL],
    "by duplicates": [NEW, "INSERT IGNORE INTO t VALUES (1,1),(50,1)", "INSERT INTO t VALUES (50,1) ON DUPLICATE KEY UPDATE a = 66", NEW, ALL],
    "by rows selected": ["INSERT INTO t SELECT seq * 4, 0 FROM seq_1_to_9", "INSERT INTO t (b) SELECT seq FROM seq_1_to_5", NEW, ALL],
    "another increment": [NEW, counting(1, 1), "INSERT INTO t VALUES (50,0)", NEW, "UPDATE t SET a = 80 WHERE a = 50", NEW, ALL],
    "altered": [NEW, "ALTER TABLE t AUTO_INCREMENT = 100", NEW, "ALTER TABLE t AUTO_INCREMENT = 1", NEW, "ALTER TABLE t FORCE", NEW, "TRUNCATE t", NEW, ALL],
    "below zero": ["INSERT INTO t VALUES (-5,0)", NEW, "INSERT INTO t VALUES (-100,0),(NULL,1)", ALL],
}


@pytest.mark.parametrize("name", GIVEN)
def test_explicit_values_move_the_counter_as_in_innodb(db, engine, name):
    for increment, offset in ((1, 1), (1, 4), (2, 2), (5, 1), (5, 3), (10, 7), (10, 10), (3, 9)):
        as_innodb(db, engine, [counting(increment, offset), MADE, *GIVEN[name]])


@pytest.mark.parametrize("kind", ["TINYINT", "TINYINT UNSIGNED", "SMALLINT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED"])
def test_a_counter_at_its_end_behaves_as_innodbs(db, engine, kind):
    bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}[kind.split()[0]]
    top = (1 << (bits if "UNSIGNED" in kind else bits - 1)) - 1
    made = f"CREATE TABLE t (a {kind} AUTO_INCREMENT PRIMARY KEY, b INT) ENGINE={{engine}}"
    for (increment, offset), left in itertools.product([(1, 1), (2, 1), (5, 5), (10, 1), (3, 3)], (0, 1, 2, 5, 10, 21)):
        end = [NEW] * 4 + ["INSERT IGNORE INTO t (b) VALUES (0)", "INSERT INTO t (b) VALUES (0),(1)", "REPLACE INTO t (b) VALUES (0)", ALL]
        as_innodb(db, engine, [counting(increment, offset), made, f"INSERT INTO t VALUES ({top - left}, 0)", *end])


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "DOUBLE UNSIGNED", "FLOAT UNSIGNED"])
def test_numbers_that_are_not_whole_count_as_innodbs(db, engine, kind):
    """Up to where each whole number is one: 2^24 of a FLOAT, 2^53 of a DOUBLE. What is larger and given leaves the counter."""
    top = 1 << (24 if kind.startswith("FLOAT") else 53)
    made = f"CREATE TABLE t (a {kind} AUTO_INCREMENT PRIMARY KEY, b INT) ENGINE={{engine}}"
    for given in (top - 2, top - 1, top, top + 1, top * 4, "1e17", "2.4", "5.5", "-3.5", "0.2", "1e30", "-1e30"):
        as_innodb(db, engine, [made, NEW, f"INSERT INTO t VALUES ({given}, 0)", NEW, NEW, NEW, "INSERT IGNORE INTO t (b) VALUES (0)", ALL])
        as_innodb(db, engine, [counting(5, 3), made, NEW, f"UPDATE t SET a = {given}", NEW, NEW, ALL])
    as_innodb(db, engine, [made, NEW, "INSERT INTO t VALUES (7.5, 0)", "ALTER TABLE t AUTO_INCREMENT = 100", NEW, "ALTER TABLE t AUTO_INCREMENT = 1", "ALTER TABLE t MODIFY a BIGINT AUTO_INCREMENT",
                           f"ALTER TABLE t MODIFY a {kind} AUTO_INCREMENT", NEW, "TRUNCATE t", NEW, ALL])


@pytest.mark.parametrize("statement", ["LOAD DATA LOCAL INFILE '{file}' INTO TABLE l (w)", "INSERT INTO l (w) SELECT CONCAT('row', seq) FROM seq_1_to_20000",
                                       "REPLACE INTO l (w) SELECT CONCAT('row', seq) FROM seq_1_to_20000"])
@pytest.mark.parametrize("transaction", [False, True])
def test_a_statement_logged_as_text_gets_consecutive_values(engine, tmp_path, statement, transaction):
    """Others' values lay between: the replica gave them to other rows, or stopped with a duplicate."""
    (tmp_path / "rows.txt").write_text("".join(f"row{n}\n" for n in range(20000)))
    server = private([f"--log-bin={tmp_path}/binlog", "--binlog-format=STATEMENT", "--server-id=1", "--local-infile=1"])
    try:
        one, other = server.connect(local_infile=True), server.connect()
        run(one, "CREATE DATABASE d")
        run(one, f"CREATE TABLE d.l (id INT AUTO_INCREMENT PRIMARY KEY, w VARCHAR(20)) ENGINE={engine}")
        run(one, "USE d"), run(other, "USE d")
        ended, between = threading.Event(), []

        def insert():
            while not ended.is_set():
                run(other, "INSERT INTO l (w) VALUES ('other'), ('other')")
                between.append(time.monotonic())

        inserter = threading.Thread(target=insert)
        inserter.start()
        wait_until(lambda: len(between) > 5)
        if transaction:
            run(one, "BEGIN")
        began = time.monotonic()
        run(one, statement.format(file=tmp_path / "rows.txt"))
        done = time.monotonic()
        # Its statement has ended, not its transaction: others have their values again.
        count = len(between)
        wait_until(lambda: len(between) > count + 5)
        run(one, "COMMIT")
        ended.set(), inserter.join()
        span = run(one, "SELECT COUNT(*), MAX(id) - MIN(id) + 1 FROM l WHERE w LIKE 'row%'")
        assert span == [(20000, 20000)], (span, sum(began < at < done for at in between))
        ours = contents(one, ["l"])
        run(one, "FLUSH LOGS")
        assert "LOAD" in statement or replayed(tmp_path, "d", ["l"]) == ours
    finally:
        end(server)


def test_a_deadlock_of_a_counter_and_a_row_lock_is_found(engine):
    """A statement that holds the counter waits for a row lock of a transaction that waits for the counter."""
    server = private(["--log-bin", "--binlog-format=STATEMENT", "--server-id=1"])
    try:
        one, other = server.connect(), server.connect()
        run(one, "CREATE DATABASE d")
        run(one, "USE d"), run(other, "USE d")
        run(one, f"CREATE TABLE l (id INT AUTO_INCREMENT PRIMARY KEY, w INT) ENGINE={engine}")
        run(one, f"CREATE TABLE s (id INT PRIMARY KEY, w INT) ENGINE={engine}")
        run(one, "INSERT INTO s SELECT seq, seq FROM seq_1_to_10")
        run(other, "BEGIN")
        run(other, "UPDATE s SET w = 0 WHERE id = 9")
        said = []

        def copy():
            try:
                said.append(run(one, "INSERT INTO l (w) SELECT w FROM s"))
            except pymysql.err.MySQLError as error:
                said.append(error.args[0])

        copier = threading.Thread(target=copy)
        copier.start()
        wait_until(lambda: run(other, "SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'INSERT INTO l (w) SELECT%' AND TIME_MS > 300"))
        try:
            run(other, "INSERT INTO l (w) VALUES (1)")
            run(other, "COMMIT")
        except pymysql.err.MySQLError as error:
            said.append(error.args[0])
        copier.join()
        # InnoDB says 1467, and keeps the deadlock for itself.
        assert ({1213, 1467} & {one for one in said if isinstance(one, int)}) and len(said) <= 2, said
        run(other, "ROLLBACK")
        run(other, "INSERT INTO l (w) VALUES (2)")
    finally:
        end(server)


def test_a_failed_create_select_has_released_its_counter(engine):
    """The table is closed before the statement ends: what kept the counter must not look at it then."""
    server = private(["--log-bin", "--binlog-format=STATEMENT", "--server-id=1"])
    try:
        db = server.connect()
        run(db, "CREATE DATABASE d")
        run(db, "USE d")
        for _ in range(20):
            with pytest.raises(pymysql.err.MySQLError) as error:
                run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, w INT, UNIQUE (w)) ENGINE={engine} SELECT NULL AS id, seq DIV 2 AS w FROM seq_1_to_900")
            assert error.value.args[0] == 1062
        run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, w INT) ENGINE={engine} SELECT NULL AS id, seq AS w FROM seq_1_to_900")
        run(db, "INSERT INTO t (w) SELECT w FROM t")
        assert run(db, "SELECT COUNT(*), COUNT(DISTINCT id) FROM t") == [(1800, 1800)]
    finally:
        end(server)
