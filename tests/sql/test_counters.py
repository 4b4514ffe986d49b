"""AUTO_INCREMENT counters: what is generated and what the counter shows are InnoDB's, with increments and offsets, for each kind of
column, and to the end of what there is."""

import itertools

import pymysql
import pytest
from conftest import run

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
def test_values_that_are_given_move_the_counter_as_innodbs(db, engine, name):
    for increment, offset in ((1, 1), (1, 4), (2, 2), (5, 1), (5, 3), (10, 7), (10, 10), (3, 9)):
        as_innodb(db, engine, [counting(increment, offset), MADE, *GIVEN[name]])


@pytest.mark.parametrize("kind", ["TINYINT", "TINYINT UNSIGNED", "SMALLINT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED"])
def test_what_comes_at_the_end_is_what_innodb_gives(db, engine, kind):
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
