"""A column with AUTO_INCREMENT is added: the rebuild numbers the rows, beside readers, with InnoDB's numbers."""

import itertools
import threading

import pymysql
import pytest
from conftest import run
from test_rebuild import is_whole, refused


SHAPES = {
    "key": ("a INT, k VARCHAR(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, KEY (a)", "", "UNIQUE"),
    "descending": ("a INT, k VARCHAR(20), PRIMARY KEY (a DESC, k), UNIQUE (k)", "", ", ADD KEY (id)"),
    "hidden": ("a INT, k VARCHAR(20), KEY (k)", "", "PRIMARY KEY"),
    "another": ("a INT PRIMARY KEY, k VARCHAR(20)", "", "UNIQUE, DROP PRIMARY KEY, ADD PRIMARY KEY (id)"),
    "first": ("a INT, k VARCHAR(20), KEY (a, k)", "", "PRIMARY KEY FIRST"),
    "parts": ("a INT PRIMARY KEY, k VARCHAR(20)", "PARTITION BY HASH (a) PARTITIONS 3", ", ADD KEY (id)"),
    "ranges": ("a INT, k VARCHAR(20)", "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (30), PARTITION p1 VALUES LESS THAN (60), PARTITION p2 VALUES LESS THAN MAXVALUE)", ", ADD KEY (id), DROP k"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_rows_get_innodbs_numbers(db, engine, name):
    columns, parts, key = SHAPES[name]
    found = {}
    for of in (engine, "InnoDB"):
        run(db, f"CREATE OR REPLACE TABLE t ({columns}) ENGINE={of} {parts}")
        run(db, "INSERT INTO t (a, k) SELECT seq * 37 % 101, CONCAT('k', seq * 53 % 101) FROM seq_1_to_100")
        run(db, "DELETE FROM t WHERE a % 10 = 3")
        run(db, "UPDATE t SET k = CONCAT('z', k) WHERE a % 7 = 1")
        found[of] = []
        for (step, offset), start in itertools.product([(1, 1), (1, 5), (10, 1), (10, 3), (10, 10), (3, 7)], ["", ", AUTO_INCREMENT = 0", ", AUTO_INCREMENT = 4", ", AUTO_INCREMENT = 103"]):
            run(db, f"CREATE OR REPLACE TABLE u ({columns}) ENGINE={of} {parts}")
            run(db, "INSERT INTO u (a, k) SELECT a, k FROM t ORDER BY a DESC")
            run(db, f"SET auto_increment_increment = {step}, auto_increment_offset = {offset}")
            run(db, f"ALTER TABLE u ADD id INT AUTO_INCREMENT {key}{start}, ALGORITHM=INPLACE, LOCK=SHARED")
            rows, made = run(db, "SELECT * FROM u ORDER BY id"), run(db, "SHOW CREATE TABLE u")[0][1].replace(of, "")
            run(db, "INSERT INTO u (a) VALUES (1000)" if name != "key" and name != "descending" else "INSERT INTO u (a, k) VALUES (1000, 'new')")
            found[of].append((step, offset, start, rows, made, run(db, "SELECT id FROM u WHERE a = 1000")))
            assert is_whole(db, "u") and len(rows) == 90
            run(db, "SET auto_increment_increment = 1, auto_increment_offset = 1")
    assert found[engine] == found["InnoDB"]


def test_an_added_counter_needs_the_algorithm_and_lock_that_innodb_needs(db, engine):
    run(db, f"CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq FROM seq_1_to_10")
    add = "ALTER TABLE t ADD id INT AUTO_INCREMENT UNIQUE"
    assert refused(db, f"{add}, LOCK=NONE") == (1846, "LOCK=NONE is not supported. Reason: Adding an auto-increment column requires a lock. Try LOCK=SHARED")
    assert refused(db, f"{add}, ALGORITHM=INPLACE, LOCK=NONE")[0] == 1846
    for algorithm in ("NOCOPY", "INSTANT"):
        assert refused(db, f"{add}, ALGORITHM={algorithm}") == (1845, f"ALGORITHM={algorithm} is not supported for this operation. Try ALGORITHM=INPLACE")
    assert "Cannot change column type" in refused(db, f"{add}, MODIFY b BIGINT, LOCK=NONE")[1]
    for more in ("", ", LOCK=SHARED", ", LOCK=EXCLUSIVE", ", ADD c VARCHAR(10) DEFAULT 'c', DROP b"):
        run(db, f"{add}, ALGORITHM=INPLACE{more}")
        assert run(db, "SELECT a, id FROM t ORDER BY id") == [(n, n) for n in range(1, 11)] and is_whole(db)
        # Another one in its place.
        run(db, "ALTER TABLE t DROP id, ADD other BIGINT UNSIGNED AUTO_INCREMENT UNIQUE FIRST, ALGORITHM=INPLACE")
        assert run(db, "SELECT other, a FROM t ORDER BY a") == [(n, n) for n in range(1, 11)] and is_whole(db)
        run(db, "ALTER TABLE t DROP other")
    # A column that there is gets numbers for zeros: by copy.
    assert refused(db, "ALTER TABLE t DROP PRIMARY KEY, MODIFY a INT AUTO_INCREMENT PRIMARY KEY, ALGORITHM=INPLACE")[0] == 1846
    # Beside virtual columns InnoDB copies.
    run(db, f"CREATE TABLE v (a INT, twice INT AS (a * 2) VIRTUAL, s INT AS (a * 3) STORED, KEY (twice)) ENGINE={engine}")
    run(db, "INSERT INTO v (a) VALUES (3), (1), (2)")
    run(db, f"ALTER TABLE v ADD id INT AUTO_INCREMENT PRIMARY KEY, ALGORITHM={'INPLACE' if engine != 'InnoDB' else 'COPY'}")
    assert run(db, "SELECT id, a, twice, s FROM v FORCE INDEX (twice) WHERE twice > 0 ORDER BY id") == [(1, 3, 6, 9), (2, 1, 2, 3), (3, 2, 4, 6)] and is_whole(db, "v")
    # A temporary table is rebuilt, too.
    run(db, f"CREATE TEMPORARY TABLE x (v INT) ENGINE={engine}")
    run(db, "INSERT INTO x VALUES (3), (1), (2)")
    run(db, "ALTER TABLE x ADD id INT AUTO_INCREMENT PRIMARY KEY")
    assert run(db, "SELECT id, v FROM x ORDER BY id") == [(1, 3), (2, 1), (3, 2)]


def test_too_few_numbers_or_a_duplicate_leave_the_table(db, engine):
    run(db, f"CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq % 150 FROM seq_1_to_200")
    before = run(db, "SHOW CREATE TABLE t"), run(db, "SELECT * FROM t")
    if engine != "InnoDB":  # whose numbers restart below zero
        assert refused(db, "ALTER TABLE t ADD id TINYINT AUTO_INCREMENT UNIQUE, ALGORITHM=INPLACE")[0] == 1467
        assert refused(db, "ALTER TABLE t ADD id TINYINT UNSIGNED AUTO_INCREMENT UNIQUE, AUTO_INCREMENT = 57, ALGORITHM=INPLACE")[0] == 1467
    assert refused(db, "ALTER TABLE t ADD id INT AUTO_INCREMENT UNIQUE, ADD UNIQUE ub (b), ALGORITHM=INPLACE") == (1062, "Duplicate entry '1' for key 'ub'")
    assert (run(db, "SHOW CREATE TABLE t"), run(db, "SELECT * FROM t")) == before and is_whole(db)
    run(db, "ALTER TABLE t ADD id TINYINT UNSIGNED AUTO_INCREMENT UNIQUE, AUTO_INCREMENT = 56, ALGORITHM=INPLACE")
    assert run(db, "SELECT MIN(id), MAX(id) FROM t") == [(56, 255)] and is_whole(db)
    assert refused(db, "INSERT INTO t (a) VALUES (1000)")[0] == 167


def test_readers_go_on_and_writers_wait(server, db, engine):
    run(db, f"CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(200)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, REPEAT('b', 150) FROM seq_1_to_40000")
    writer, other = server.connect(database=db.name), server.connect(database=db.name)
    run(writer, "SET lock_wait_timeout = 0")
    seen, tries = False, 0
    while not seen and tries < 20:
        tries += 1
        added = threading.Thread(target=run, args=(other, "ALTER TABLE t ADD id INT AUTO_INCREMENT UNIQUE, ALGORITHM=INPLACE, LOCK=SHARED"))
        added.start()
        while added.is_alive() and not seen:
            try:
                run(writer, "UPDATE t SET b = 'changed' WHERE a = 7")
            except pymysql.err.OperationalError as error:
                assert error.args[0] == 1205
                # Reads while no session can write, unless the ALTER has just ended.
                rows = []
                try:
                    rows = run(writer, "SELECT COUNT(*) FROM t")
                    run(writer, "UPDATE t SET b = 'changed' WHERE a = 8")
                except pymysql.err.OperationalError as error:
                    assert error.args[0] == 1205
                    seen = added.is_alive() and rows == [(40000,)]
        added.join()
        # InnoDB leaves out a few.
        assert is_whole(db) and run(db, f"SELECT COUNT(DISTINCT id), MIN(id), {'MAX(id)' if engine != 'InnoDB' else 40000} FROM t") == [(40000, 1, 40000)]
        run(db, "ALTER TABLE t DROP id")
    assert seen


def test_rows_are_numbered_as_before_a_transaction_orphaned_by_a_crash(own_server, engine):
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    run(db, f"CREATE TABLE d.t (a INT PRIMARY KEY, b INT, KEY (b)) ENGINE={engine}")
    run(db, "INSERT INTO d.t SELECT seq, 1 FROM seq_1_to_20000")
    other = own_server.connect(database="d")
    for sql in ("BEGIN", "UPDATE t SET b = 2 WHERE a % 2", "DELETE FROM t WHERE a % 3 = 0", "INSERT INTO t SELECT seq, 3 FROM seq_20001_to_30000"):
        run(other, sql)
    run(db, f"CREATE TABLE other (a INT) ENGINE={engine}")  # what is above is in the log before it
    own_server.kill9()
    own_server.start()
    db = own_server.connect(database="d")
    run(db, "ALTER TABLE t ADD id INT AUTO_INCREMENT UNIQUE, ALGORITHM=INPLACE")
    assert run(db, "SELECT COUNT(*), SUM(id = a), SUM(b) FROM t") == [(20000, 20000, 20000)] and is_whole(db)
    run(db, "INSERT INTO t (a) VALUES (-1)")
    own_server.kill9()
    own_server.start()
    db = own_server.connect(database="d")
    assert run(db, "SELECT id FROM t WHERE a = -1") == [(20001,)] and is_whole(db)
    run(db, "INSERT INTO t (a) VALUES (-2)")
    assert run(db, "SELECT id FROM t WHERE a = -2") == [(20002,)]
