"""Differences from InnoDB that random SQL (tests/differ) and compared plans (tests/apps) have found, each with what was wrong."""

import threading
import time

import pymysql
import pytest


def test_a_failed_update_of_primary_keys_undoes_its_earlier_rows(db, engine, run):
    """Going back to the savepoint of the failed row moved the statement's start there."""
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1,1),(5,5),(6,6)")
    run(db, "BEGIN")
    run(db, "UPDATE t SET v = 9 WHERE id = 6")
    with pytest.raises(pymysql.err.IntegrityError):
        run(db, "UPDATE t SET id = id - 1 WHERE id IN (1, 6) ORDER BY id")
    assert run(db, "SELECT * FROM t ORDER BY id") == [(1, 1), (5, 5), (6, 9)]
    run(db, "COMMIT")
    assert run(db, "SELECT * FROM t ORDER BY id") == [(1, 1), (5, 5), (6, 9)]


def test_rows_found_by_an_index_alone_have_a_place_under_a_prefixed_primary_key(db, engine, run):
    """Entries hold a prefix's weights only; the place was made of a column that had not been read (1032)."""
    run(db, f"CREATE TABLE t (a INT, b VARCHAR(30) NOT NULL, c INT, d INT, PRIMARY KEY (b(3), a), KEY k (c), KEY l (d)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, CONCAT('a', seq), seq % 10, seq % 11 FROM seq_1_to_1000")
    sql = "SELECT a FROM t WHERE c = 1 AND d = 1 ORDER BY a"
    assert "intersect" in run(db, "EXPLAIN " + sql)[0][-1]
    assert [a for a, in run(db, sql)] == [a for a in range(1, 1001) if a % 10 == 1 and a % 11 == 1]


def test_an_explicit_value_within_an_insert_skips_no_more_numbers_than_needed(db, engine, run):
    """Behind the given 70 one row was left to number, and two numbers were taken."""
    run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (DEFAULT, 1), (70, 2), (DEFAULT, 3)")
    run(db, "INSERT INTO t (v) VALUES (4)")
    assert run(db, "SELECT * FROM t ORDER BY id") == [(1, 1), (70, 2), (71, 3), (72, 4)]


def test_a_merge_of_indexes_reads_each_index_alone(db, engine, run):
    """Reading by index alone was on for the first index only; the other's virtual column was what an earlier row had left."""
    run(db, f"CREATE TABLE t (a INT NOT NULL, v BIGINT AS (a DIV 2) VIRTUAL, b INT, c VARCHAR(30), KEY v (v), KEY k (b, a, c)) ENGINE={engine}")
    run(db, "INSERT INTO t (a, b, c) SELECT seq % 120, seq % 2, CONCAT('x', seq) FROM seq_1_to_150")
    sql = "SELECT DISTINCT b FROM t WHERE (b BETWEEN 7 AND 29 OR v BETWEEN 1 AND 2) AND (c IS NOT NULL OR v >= 48) ORDER BY b"
    assert "sort_union" in run(db, "EXPLAIN " + sql)[0][-1]
    assert run(db, sql) == [(0,), (1,)]


def test_rows_are_equal_whatever_bytes_a_null_column_has(db, engine, run):
    """A virtual column's null bit, and the bytes behind a NULL, made equal rows count as changed, or changed ones as equal."""
    run(db, f"CREATE TABLE t (a INT PRIMARY KEY, v INT AS (a + 1) VIRTUAL) ENGINE={engine}")
    run(db, "REPLACE INTO t (a) VALUES (1)")
    assert db.cursor().execute("REPLACE INTO t (a) VALUES (1)") == 1
    run(db, f"CREATE TABLE n (a INT PRIMARY KEY, b INT DEFAULT -2, c VARCHAR(9) DEFAULT 'abc') ENGINE={engine}")
    run(db, "INSERT INTO n VALUES (1, 5, 'x')")
    for column in "bc":
        assert db.cursor().execute(f"INSERT INTO n VALUES (1, 6, 'y'), (1, 7, 'z') ON DUPLICATE KEY UPDATE {column} = NULL") == 3
    assert db.cursor().execute("UPDATE n SET b = NULL, c = NULL") == 0


def test_a_full_counter_is_a_value_out_of_range(db, engine, run):
    """It was 1467, which InnoDB gives for BIGINT UNSIGNED only, and INSERT IGNORE failed."""
    run(db, "SET sql_mode='STRICT_TRANS_TABLES'")
    for kind, last, code in [("TINYINT", 126, 167), ("BIGINT", 2**63 - 2, 167), ("BIGINT UNSIGNED", 2**64 - 2, 1467)]:
        run(db, f"CREATE OR REPLACE TABLE t (id {kind} AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
        run(db, f"INSERT INTO t VALUES ({last}, 1)")
        with pytest.raises(pymysql.err.Error) as error:
            run(db, "INSERT INTO t (v) VALUES (2), (3)")
        assert error.value.args[0] == code
        if code == 167:
            run(db, "INSERT IGNORE INTO t (v) VALUES (2), (3), (4)")
        assert run(db, "SELECT MAX(id) FROM t")[0][0] >= last


def test_a_refused_row_of_insert_select_moves_the_counter(db, engine, run):
    """As in InnoDB: REPLACE and INSERT … SELECT go past the values that were given to rows they did not insert."""
    run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT UNIQUE) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 1)")
    run(db, "INSERT IGNORE INTO t SELECT seq, 1 FROM seq_10_to_20")
    run(db, "INSERT INTO t (v) VALUES (2)")
    run(db, "INSERT IGNORE INTO t VALUES (90, 1)")
    run(db, "INSERT INTO t (v) VALUES (3)")
    assert run(db, "SELECT * FROM t ORDER BY id") == [(1, 1), (21, 2), (22, 3)]


def test_a_duplicate_in_another_partition_is_named(db, engine, run):
    """The partition that the row came from was asked which key it was, and did not know (1022)."""
    run(db, f"CREATE TABLE t (a INT PRIMARY KEY) ENGINE={engine} PARTITION BY HASH (a) PARTITIONS 3")
    run(db, "INSERT INTO t VALUES (0), (1)")
    with pytest.raises(pymysql.err.IntegrityError) as error:
        run(db, "UPDATE t SET a = 1 WHERE a = 0")
    assert error.value.args == (1062, "Duplicate entry '1' for key 'PRIMARY'")


def test_a_small_table_is_as_large_after_a_restart(own_server, engine, run):
    """Only the row count at the last page split survived, so small tables seemed empty."""
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    run(connection, "USE d")
    run(connection, f"CREATE TABLE d.t (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    run(connection, "INSERT INTO d.t SELECT seq, seq FROM seq_1_to_25")
    connection.close()
    own_server.restart()
    rows = run(own_server.connect(), "SELECT table_rows FROM information_schema.tables WHERE table_schema = 'd'")
    assert rows == [(25,)]


def test_a_merge_of_indexes_compares_a_prefix_with_the_whole_column(db, engine, run):
    """An index's entry has only a prefix of the text; the end of a range was compared with what the record held before."""
    run(db, f"CREATE TABLE t (id INT, c MEDIUMTEXT, d INT NOT NULL, KEY k (d, c(2)), KEY l (c(1))) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 'aB', 1), (2, 'z', 1), (3, REPEAT('W', 70000), 2), (4, REPEAT('W', 70000), 3)")
    where = "c = 'aaaaaaaaaa' OR (c BETWEEN '10' AND 'aB' OR c = 'z' OR d = 3)"
    assert "sort_union" in run(db, f"EXPLAIN SELECT id FROM t WHERE {where}")[0][9]
    assert sorted(run(db, f"SELECT id FROM t WHERE {where}")) == [(1,), (2,), (4,)]


def test_rows_handed_over_stay_when_deleted_ones_are_passed(db, engine, run):
    """After a batch that ended in the middle of a leaf, the cursor copied its own deleted entries into the next batch, over the row's bytes."""
    run(db, f"CREATE TABLE t (a INT NOT NULL, b INT, KEY k (b, a DESC)) ENGINE={engine}")
    run(db, "BEGIN")
    run(db, "INSERT INTO t (a) SELECT seq FROM seq_1_to_3000")
    run(db, "DELETE FROM t WHERE a % 7 <> 3")
    for hint in ("FORCE INDEX (k)", "IGNORE INDEX (k)"):
        assert sorted(run(db, f"SELECT b, a FROM t {hint}")) == [(None, a) for a in range(1, 3001) if a % 7 == 3]
    run(db, "ROLLBACK")  # or the database can't be dropped


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("statement", ["REPLACE INTO t VALUES (1, 5, 7)", "INSERT INTO t VALUES (1, 5, 7) ON DUPLICATE KEY UPDATE v = v + 1", "REPLACE INTO t VALUES (2, 5, 7)"])
def test_a_duplicate_stays_locked_until_it_is_replaced(server, db, engine, run, isolation, statement):
    """The duplicate was not locked when it was found: if another transaction then deleted it, the statement failed (1032)."""
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, u INT UNIQUE) ENGINE={engine}")
    until, found, done = time.monotonic() + 3, [], []

    def work(sql):
        mine = server.connect(database=db.name)
        run(mine, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        while time.monotonic() < until or len(done) < 20:
            try:
                run(mine, sql)
                done.append(sql)
            except pymysql.err.Error as error:
                if error.args[0] != 1213:
                    return found.append(error.args)

    threads = [threading.Thread(target=work, args=(sql,)) for sql in (statement, statement, "DELETE FROM t", "DELETE FROM t")]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not found


def test_virtual_columns_of_an_index_are_computed_where_partitions_are_merged(db, engine, run):
    """Partitions' rows are merged outside of the server's own record, where virtual columns were not computed: they were NULL, or the previous row's."""
    columns = "c1 VARBINARY(12), c2 INT UNSIGNED DEFAULT 1, c3 BIGINT, c4 BIGINT AS (c3 % 7) VIRTUAL"
    run(db, f"CREATE TABLE t ({columns}, PRIMARY KEY (c1(2), c2), KEY k (c4 DESC)) ENGINE={engine} PARTITION BY HASH (c2) PARTITIONS 3")
    run(db, "INSERT INTO t (c1, c2, c3) VALUES ('', 96, 18), ('abc', 97, 19), ('b', 98, NULL), ('c', 99, 20)")
    assert run(db, "SELECT c4 FROM t FORCE INDEX (k) ORDER BY c4 DESC") == [(6,), (5,), (4,), (None,)]
    columns = "c1 BIT(33) NOT NULL, c2 BIGINT, c5 VARCHAR(5) NOT NULL DEFAULT 'aB', c6 BIGINT AS (c2 % 7) VIRTUAL, c7 BIT(33)"
    run(db, f"CREATE TABLE u ({columns}) ENGINE={engine} PARTITION BY HASH (c6) PARTITIONS 3")
    run(db, "ALTER TABLE u ADD KEY k (c1, c6)")
    run(db, "INSERT INTO u (c1, c2, c7) SELECT b'0', seq * 13 % 5, b'1' FROM seq_1_to_40 ORDER BY seq")
    for order in ("", "ORDER BY c1 DESC, c6 DESC"):
        groups = run(db, f"SELECT c6, COUNT(*), COUNT(c7) FROM u FORCE INDEX (k) GROUP BY c1, c6 {order}")
        assert sorted(groups) == [(n, 8, 8) for n in range(5)]
