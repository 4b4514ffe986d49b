"""ALTER TABLE that rebuilds a whole table (OPTIMIZE, FORCE, another PRIMARY KEY, NOT NULL), beside readers and writers."""

import random
import threading
import time

import pymysql
import pytest
from conftest import contents, run, wait_until


def refused(db, sql):
    with pytest.raises(pymysql.err.Error) as error:
        run(db, sql)
    return error.value.args


def is_whole(db, table="t"):
    return [row[3] for row in run(db, f"CHECK TABLE {table} EXTENDED")] == ["OK"]


def indexes(db, table="t"):
    return sorted({row[2] for row in run(db, f"SHOW INDEX FROM {table}")})


def by_each_index(db, columns, table="t"):
    """What the table holds, which must be the same by each of its indexes."""
    held = {tuple(sorted(map(repr, run(db, f"SELECT {columns} FROM {table} FORCE INDEX ({index}) ORDER BY 1")))) for index in indexes(db, table)} or {()}
    assert len(held) == 1
    return held.pop()


def filled(db, engine, rows=3000, key="PRIMARY KEY (id)"):
    run(db, f"CREATE TABLE t (id INT NOT NULL, a INT, b VARCHAR(40) NOT NULL, c VARCHAR(300) COLLATE utf8mb4_unicode_ci, big MEDIUMTEXT, n INT, "
            f"twice INT AS (a * 2) VIRTUAL, {key + ',' if key else ''} UNIQUE ub (b), KEY ka (a DESC, c(20)), KEY kt (twice)) ENGINE={engine}")
    run(db, f"INSERT INTO t (id, a, b, c, big, n) SELECT seq, seq % 100, CONCAT('b', seq), IF(seq % 7, CONCAT('Wert ', seq % 50), NULL), "
            f"REPEAT(CHAR(97 + seq % 26), IF(seq % 50, 10, 40000)), seq FROM seq_1_to_{rows}")


REBUILDS = ["FORCE", "ENGINE = {engine}", "DROP PRIMARY KEY, ADD PRIMARY KEY (b)", "DROP PRIMARY KEY, ADD PRIMARY KEY (n, id)", "MODIFY n INT NOT NULL",
            "MODIFY a INT NOT NULL, ADD KEY kn (n), DROP KEY ub", "DROP PRIMARY KEY, ADD PRIMARY KEY (c(10), id), MODIFY c VARCHAR(300) COLLATE utf8mb4_unicode_ci NOT NULL DEFAULT ''",
            "DROP COLUMN a, DROP COLUMN twice, DROP KEY ka, DROP KEY kt, ADD COLUMN z INT NOT NULL DEFAULT 5 FIRST, FORCE"]


@pytest.mark.parametrize("change", REBUILDS)
def test_a_table_is_rebuilt_in_place(db, engine, change):
    filled(db, engine)
    change = change.format(engine=engine)
    run(db, "UPDATE t SET c = 'none' WHERE c IS NULL")
    run(db, "CREATE TABLE copied LIKE t")
    run(db, "INSERT INTO copied (id, a, b, c, big, n) SELECT id, a, b, c, big, n FROM t")
    run(db, f"ALTER TABLE copied {change}, ALGORITHM=COPY")
    assert refused(db, f"ALTER TABLE t {change}, ALGORITHM=NOCOPY")[0] in (1845, 1846)
    run(db, f"ALTER TABLE t {change}, ALGORITHM=INPLACE, LOCK=NONE")
    assert run(db, "SHOW CREATE TABLE t")[0][1] == run(db, "SHOW CREATE TABLE copied")[0][1].replace("`copied`", "`t`")
    assert is_whole(db)
    assert by_each_index(db, "*") == by_each_index(db, "*", "copied")
    run(db, f"INSERT INTO t (id, {'z' if 'COLUMN z' in change else 'a'}, b, n, c) VALUES (100000, 1, 'new', 100000, 'new')")
    run(db, "DELETE FROM t WHERE id % 3 = 0")
    run(db, "UPDATE t SET big = REPEAT('y', 50000) WHERE id % 100 = 1")
    assert is_whole(db) and run(db, "SELECT COUNT(*) FROM t") == [(2001,)]


def test_optimize_rebuilds_beside_writers_and_gives_space_back(db, server, engine):
    filled(db, engine)
    run(db, "DELETE FROM t WHERE id > 100")
    before = contents(db, ["t"])
    rows = run(db, "OPTIMIZE TABLE t")
    assert ("status", "OK") in [row[2:] for row in rows], rows
    assert contents(db, ["t"]) == before and is_whole(db)


def test_a_table_without_a_primary_key_gets_one_and_keeps_its_hidden_one(db, engine):
    filled(db, engine, key="")
    run(db, "ALTER TABLE t FORCE, ALGORITHM=INPLACE, LOCK=NONE")
    run(db, "INSERT INTO t (id, a, b, n) SELECT 10000 + seq, seq, CONCAT('x', seq), seq FROM seq_1_to_100")
    assert run(db, "SELECT COUNT(*) FROM t") == [(3100,)] and is_whole(db)
    run(db, "ALTER TABLE t ADD PRIMARY KEY (id), ALGORITHM=INPLACE, LOCK=NONE")
    assert is_whole(db) and run(db, "SELECT MAX(id) FROM t FORCE INDEX (PRIMARY)") == [(10100,)]
    run(db, f"CREATE TABLE plain (v INT, w INT) ENGINE={engine}")
    run(db, "INSERT INTO plain SELECT seq, seq FROM seq_1_to_1000")
    run(db, "ALTER TABLE plain FORCE, ALGORITHM=INPLACE, LOCK=NONE")
    run(db, "INSERT INTO plain SELECT seq, seq FROM seq_1001_to_2000")
    assert run(db, "SELECT COUNT(*), SUM(v) FROM plain") == [(2000, 2001000)] and is_whole(db, "plain")
    run(db, "ALTER TABLE plain ADD PRIMARY KEY (v), ALGORITHM=INPLACE, LOCK=NONE")
    assert refused(db, "ALTER TABLE plain DROP PRIMARY KEY, ALGORITHM=INPLACE")[0] == 1846 and is_whole(db, "plain")


def test_counters_continue_after_a_rebuild(db, engine):
    run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, "INSERT INTO t (v) SELECT seq FROM seq_1_to_100")
    run(db, "DELETE FROM t WHERE id > 50")
    run(db, "ALTER TABLE t FORCE, ALGORITHM=INPLACE, LOCK=NONE")
    run(db, "INSERT INTO t (v) VALUES (0)")
    (after,) = run(db, "SELECT MAX(id) FROM t")[0]
    assert after > 100
    run(db, "ALTER TABLE t FORCE, AUTO_INCREMENT = 5000")
    run(db, "INSERT INTO t (v) VALUES (0)")
    assert run(db, "SELECT MAX(id) FROM t") == [(5000,)]


def test_a_row_that_the_new_key_or_column_rejects_ends_a_rebuild(db, engine):
    filled(db, engine, 1000)
    run(db, "UPDATE t SET n = 7 WHERE id IN (7, 900)")
    before = contents(db, ["t"])
    assert refused(db, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (n)") == (1062, "Duplicate entry '7' for key 'PRIMARY'")
    error = refused(db, "ALTER IGNORE TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (n), ALGORITHM=INPLACE")
    assert error[0] == 1846 and "IGNORE" in error[1], error
    assert refused(db, "ALTER TABLE t ADD UNIQUE un (n), FORCE") == (1062, "Duplicate entry '7' for key 'un'")
    run(db, "UPDATE t SET n = NULL WHERE id = 900")
    for change in ("MODIFY n INT NOT NULL", "DROP PRIMARY KEY, ADD PRIMARY KEY (n)"):
        assert refused(db, f"ALTER TABLE t {change}") == (1265, "Data truncated for column 'n' at row 900")
        assert run(db, "SHOW WARNINGS")[-1] == ("Error", 1138, "Invalid use of NULL value")
    run(db, "UPDATE t SET n = 7 WHERE id = 900")
    assert contents(db, ["t"]) == before and is_whole(db)
    assert run(db, "SELECT COUNT(*) FROM t") == [(1000,)]


LOSSES = ["a INT NOT NULL", "a INT NOT NULL DEFAULT 5", "a INT NOT NULL DEFAULT (3 + 4)", "b VARCHAR(10) NOT NULL DEFAULT 'zz'", "c CHAR(5) NOT NULL DEFAULT 'ab'",
          "d DATE NOT NULL", "d DATE NOT NULL DEFAULT '2001-02-03'", "e ENUM('x', 'y') NOT NULL DEFAULT 'y'", "f TEXT NOT NULL", "f TEXT NOT NULL DEFAULT 'text'",
          "g DECIMAL(8, 3) NOT NULL", "h BINARY(3) NOT NULL", "i UUID NOT NULL", "j DATETIME NOT NULL DEFAULT NOW()", "k SET('p', 'q') NOT NULL",
          "late INT NOT NULL", "b VARCHAR(10) NOT NULL, MODIFY a INT NOT NULL, ADD KEY ba (b, a)"]


@pytest.mark.parametrize("mode", ["STRICT_TRANS_TABLES", "", "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE"])
@pytest.mark.parametrize("how", ["INPLACE", "DEFAULT", "COPY"])
def test_nulls_that_a_column_loses_are_innodb_s(db, engine, how, mode):
    """An error that names the row, or a zero and a warning: the copy alone made these."""
    run(db, f"SET sql_mode = '{mode}'")

    def seen(engine, sql):
        run(db, f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(10), c CHAR(5), d DATE, e ENUM('x', 'y'), f TEXT, g DECIMAL(8, 3), h BINARY(3), "
                f"i UUID, j DATETIME, k SET('p', 'q'), KEY (a, b)) ENGINE={engine}")
        run(db, "INSERT INTO t (id, a, b, c, d, e, f) VALUES (1, 1, 'one', 'c', '2020-01-01', 'x', 'text')")
        run(db, "INSERT INTO t (id) VALUES (2), (3)")
        run(db, "ALTER TABLE t ADD COLUMN late INT")
        try:
            run(db, sql)
            error = None
        except pymysql.err.Error as refused:
            error = refused.args
        warnings = run(db, "SHOW WARNINGS")
        return error, warnings, run(db, "SELECT * FROM t ORDER BY id"), run(db, "SHOW CREATE TABLE t")[0][1].replace(engine, "E"), is_whole(db) or run(db, "CHECK TABLE t")

    for loss in LOSSES:
        for ignore in ("", "IGNORE "):
            sql = f"ALTER {ignore}TABLE t MODIFY {loss}, ALGORITHM={how}"
            assert seen(engine, sql) == seen("InnoDB", sql), sql


@pytest.mark.parametrize("ignore", ["", "IGNORE "])
def test_columns_computed_from_a_null_that_becomes_not_null_are_recomputed(db, engine, ignore):
    """Stored values stayed those of the NULL (InnoDB's suite, innodb-alter-nullable)."""
    run(db, "SET sql_mode = ''")
    for columns in ("c INT, g INT AS (c) PERSISTENT", "c INT, v INT AS (c) VIRTUAL", "c INT, v INT AS (c) VIRTUAL, KEY (v)", "c INT, v INT AS (c + 1) VIRTUAL, g VARCHAR(9) AS (CONCAT('g', v)) PERSISTENT, KEY (g, v)"):
        run(db, f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, {columns}) ENGINE={engine}")
        run(db, "INSERT INTO t (id, c) VALUES (1, NULL), (2, 7)")
        run(db, f"ALTER {ignore}TABLE t MODIFY c INT NOT NULL")
        held = run(db, "SELECT * FROM t ORDER BY id")
        assert held == {2: [(1, 0, 0), (2, 7, 7)], 3: [(1, 0, 1, "g1"), (2, 7, 8, "g8")]}[len(held[0]) - 1]
        assert is_whole(db)
        assert len(by_each_index(db, "*")) == 2


@pytest.mark.parametrize("how", ["INPLACE", "INSTANT", "NOCOPY", "COPY"])
def test_a_date_without_a_default_is_added_to_an_empty_table(db, server, engine, how):
    """It would be zero, which the session doesn't allow: in place it was refused though there was no row. InnoDB asks one partition, and makes zeros
    in the others."""
    run(db, "SET sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE'")
    for number, partitions in enumerate(("", " PARTITION BY HASH (id) PARTITIONS 3")[:1 if engine == "InnoDB" else 2]):
        table = f"t{number}"
        run(db, f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT) ENGINE={engine}{partitions}")
        run(db, f"ALTER TABLE {table} ADD c DATE NOT NULL, ALGORITHM={how}")
        run(db, f"INSERT INTO {table} VALUES (1, 1, '2020-01-01')")
        error = refused(db, f"ALTER TABLE {table} ADD e DATETIME NOT NULL, ALGORITHM={how}")
        assert error[0] == (1292 if how == "COPY" else 1845), error
        assert refused(db, f"ALTER TABLE {table} ADD e DATETIME NOT NULL")[0] == 1292
        run(db, f"DELETE FROM {table}")
        run(db, f"ALTER TABLE {table} ADD e DATETIME NOT NULL, ALGORITHM={how}")
        assert refused(db, f"INSERT INTO {table} (id) VALUES (1)")[0] == 1364


def test_alter_ignore_rebuilds_beside_writers(db, engine):
    filled(db, engine, 100)
    for change in ("FORCE", f"ENGINE={engine}", "DROP PRIMARY KEY, ADD KEY (id)"):
        if "KEY" not in change:
            run(db, f"ALTER IGNORE TABLE t {change}, ALGORITHM=INPLACE, LOCK=NONE")
    assert is_whole(db) and run(db, "SELECT COUNT(*) FROM t") == [(100,)]


@pytest.mark.parametrize("change", ["MODIFY d TIMESTAMP NOT NULL", "MODIFY d TIMESTAMP NOT NULL DEFAULT '2020-01-01 00:00:00'", "DROP PRIMARY KEY, ADD PRIMARY KEY (d)"])
def test_a_timestamp_that_loses_null_has_the_time_of_the_statement(db, engine, change):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, d TIMESTAMP NULL) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, NULL), (2, '2021-02-03 04:05:06')")
    error = refused(db, f"ALTER TABLE t {change}, ALGORITHM=INPLACE")
    assert error[0] == 1846 and "cannot convert NULL" in error[1], error
    run(db, f"ALTER TABLE t {change}")
    assert run(db, "SELECT id, d > '2022-01-01' FROM t ORDER BY id") == [(1, 1), (2, 0)] and is_whole(db)


def test_an_older_view_is_refused_after_a_rebuild(db, server, engine):
    filled(db, engine, 200)
    old = server.connect(database=db.name)
    run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    run(db, "UPDATE t SET a = 5")
    run(db, "ALTER TABLE t FORCE, ALGORITHM=INPLACE, LOCK=NONE")
    assert refused(old, "SELECT COUNT(*) FROM t FORCE INDEX (PRIMARY) WHERE a = 5")[0] == 1412
    assert refused(old, "SELECT * FROM t WHERE id = 5")[0] == 1412
    run(old, "COMMIT")
    assert run(old, "SELECT COUNT(*) FROM t WHERE a = 5") == [(200,)]


@pytest.mark.parametrize("change", ["FORCE, ALGORITHM=INPLACE", "FORCE, ALGORITHM=COPY", "ADD KEY kn (n), ALGORITHM=NOCOPY"])
def test_a_strict_transaction_locks_no_rebuilt_row_newer_than_its_view(db, server, engine, change):
    """Rows of a rebuilt table, and entries of a rebuilt index, don't tell whether they changed since."""
    if engine == "InnoDB" and "KEY" in change:
        pytest.skip("whether it tells is a matter of the table's other indexes")
    filled(db, engine, 200)
    index = "kn" if "KEY" in change else "PRIMARY"
    for isolation in ("OFF", "ON"):
        old = server.connect(database=db.name)
        run(old, f"SET SESSION innodb_snapshot_isolation = {isolation}, terrace_snapshot_isolation = {isolation}")
        for statement in ("SELECT a FROM t FORCE INDEX ({index}) WHERE n = 5 FOR UPDATE", "SELECT a FROM t FORCE INDEX ({index}) WHERE n = 5 LOCK IN SHARE MODE",
                          "UPDATE t FORCE INDEX ({index}) SET a = 7 WHERE n = 5", "DELETE t FROM t FORCE INDEX ({index}) WHERE n = 5"):
            run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            run(db, "UPDATE t SET n = n + 1000 WHERE n = 5")
            run(db, f"ALTER TABLE t {change}")
            if isolation == "ON" or engine == "InnoDB":
                assert refused(old, statement.format(index=index))[0] == 1412, statement
            else:
                run(old, statement.format(index=index))
            run(old, "ROLLBACK")
            run(old, statement.format(index=index))
            run(db, "UPDATE t SET n = n - 1000 WHERE n = 1005")
            if "KEY" in change:
                run(db, "ALTER TABLE t DROP KEY kn")
    assert is_whole(db)


def test_purge_of_old_rows_frees_no_page_of_rebuilt_ones(db, server, engine):
    filled(db, engine, 500)
    old = server.connect(database=db.name)
    for _ in range(3):
        run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        run(db, "UPDATE t SET big = REPEAT('u', 60000) WHERE id % 50 = 0")
        run(db, "DELETE FROM t WHERE id % 50 = 25")
        run(db, "ALTER TABLE t FORCE, ALGORITHM=INPLACE, LOCK=NONE")
        # As many pages again, under the numbers that the old ones had.
        run(db, "UPDATE t SET big = REPEAT('v', 60000) WHERE id % 50 IN (0, 1, 2)")
        run(db, "INSERT INTO t (id, a, b, n, big) SELECT seq, 1, CONCAT('b', seq), seq, REPEAT('w', 60000) FROM seq_1_to_500 WHERE seq % 50 = 25")
        run(old, "COMMIT")
        if engine != "InnoDB":
            wait_until(lambda: int(run(db, "SHOW GLOBAL STATUS LIKE 'Terrace_history_length'")[0][1]) == 0)
        assert run(db, "SELECT LEFT(big, 1), COUNT(*), MIN(LENGTH(big)) FROM t WHERE LENGTH(big) > 1000 GROUP BY 1 ORDER BY 1") == [("v", 30, 60000), ("w", 10, 60000)]
        assert is_whole(db)


class Writers:
    """Threads that change the table meanwhile: each has rows of its own and knows their values."""

    def __init__(self, server, database, count=2, seed=1):
        self.stop, self.failures, self.rows = threading.Event(), [], {}
        self.done = 0
        self.threads = [threading.Thread(target=self.work, args=(server, database, n, count, random.Random(seed * 10 + n))) for n in range(count)]

    def work(self, server, database, mine, count, chance):
        db = server.connect(database=database)
        run(db, "SET innodb_lock_wait_timeout = 100")
        rows = self.rows.setdefault(mine, {})
        new = 100000 + mine
        while not self.stop.is_set():
            try:
                changed, gone = {}, []
                run(db, "BEGIN")
                for _ in range(chance.randint(1, 5)):
                    what = chance.random()
                    if what < 0.3 or not rows:
                        new += count
                        changed[new] = (chance.randint(0, 99), chance.choice("xyz") * chance.choice((5, 50, 40000)))
                        run(db, f"INSERT INTO t (id, a, b, n, big) VALUES ({new}, {changed[new][0]}, 'w{new}', {new}, '{changed[new][1]}')")
                        continue
                    id = chance.choice(list(rows))
                    if id in gone or id in changed:
                        continue
                    if what < 0.5:
                        run(db, f"DELETE FROM t WHERE id = {id}")
                        gone.append(id)
                    else:
                        changed[id] = (chance.randint(0, 99), chance.choice("xyz") * chance.choice((5, 50, 40000)))
                        run(db, f"UPDATE t SET a = {changed[id][0]}, big = '{changed[id][1]}' WHERE id = {id}")
                if chance.random() < 0.2:
                    run(db, "ROLLBACK")
                    continue
                run(db, "COMMIT")
                rows.update(changed)
                for id in gone:
                    del rows[id]
                self.done += 1
            except pymysql.err.Error as error:
                if error.args[0] != 1213:
                    self.failures.append(error)
                    return

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def all(self):
        return sorted((id, a, big) for rows in self.rows.values() for id, (a, big) in rows.items())


@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", ""])
def test_no_row_written_during_a_rebuild_is_lost(db, server, engine, key):
    filled(db, engine, 4000, key)
    changes = ["FORCE", "DROP PRIMARY KEY, ADD PRIMARY KEY (b)", "MODIFY n INT NOT NULL", "DROP PRIMARY KEY, ADD PRIMARY KEY (n, id), MODIFY n INT NOT NULL",
               "DROP PRIMARY KEY, ADD PRIMARY KEY (id), MODIFY n INT"] if key else ["FORCE", "FORCE, ADD KEY kn (n)", "ADD PRIMARY KEY (id)"]
    run(db, "SET lock_wait_timeout = 100")
    with Writers(server, db.name) as writers:
        for change in changes * 2 if key else changes:
            before = writers.done
            run(db, f"ALTER TABLE t {change}, ALGORITHM=INPLACE, LOCK=NONE")
            wait_until(lambda: writers.done > before + 20 or writers.failures)
    assert not writers.failures and writers.done > 50
    assert is_whole(db)
    assert list(run(db, "SELECT id, a, big FROM t WHERE id > 50000 ORDER BY id")) == writers.all()
    assert run(db, "SELECT COUNT(*), SUM(id) FROM t WHERE id < 50000") == [(4000, 8002000)]
    by_each_index(db, "id, a, b, twice")


def test_nulls_written_during_a_rebuild_to_not_null_become_zeros(db, server, engine):
    filled(db, engine, 4000)
    run(db, "SET lock_wait_timeout = 100, sql_mode = ''")
    run(db, "UPDATE t SET a = NULL WHERE id % 100 = 7")
    stop, failures = threading.Event(), []

    def write(number):
        one, chance = server.connect(database=db.name), random.Random(number)
        run(one, "SET sql_mode = '', innodb_lock_wait_timeout = 100")
        while not stop.is_set():
            try:
                id = chance.randrange(1, 4001) // 2 * 2 + number
                run(one, f"UPDATE t SET a = IF({chance.random()} < 0.5, NULL, 5), n = n + 1 WHERE id = {id}")
                run(one, f"UPDATE t SET a = 6 WHERE id = {id} AND a IS NULL AND {chance.random()} < 0.5")
            except pymysql.err.Error as error:
                if error.args[0] not in (1213, 1048):
                    failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            run(db, "ALTER TABLE t MODIFY a INT NOT NULL, ALGORITHM=INPLACE, LOCK=NONE")
            assert run(db, "SELECT COUNT(*), SUM(a IS NULL) FROM t") == [(4000, 0)]
            run(db, "ALTER TABLE t MODIFY a INT")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures and is_whole(db)
    by_each_index(db, "id, a, b, twice")


def test_a_row_written_during_a_rebuild_that_the_new_key_rejects_ends_it(db, server, engine):
    """While the rebuild reads the rows, a session inserts one that the new key or column rejects."""
    filled(db, engine, 20000)
    for change, row, codes in (("MODIFY n INT NOT NULL", "(50000, 1, 'late', NULL)", (1265, 1048)), ("DROP PRIMARY KEY, ADD PRIMARY KEY (n)", "(50000, 1, 'late', 77)", (1062,)),
                               ("DROP PRIMARY KEY, ADD PRIMARY KEY (a, n, id), ADD UNIQUE un (n)", "(50000, 1, 'late', 77)", (1062,))):
        ended = []

        def alter():
            one = server.connect(database=db.name)
            try:
                run(one, f"ALTER TABLE t {change}, ALGORITHM=INPLACE, LOCK=NONE")
                ended.append(0)
            except pymysql.err.Error as error:
                ended.append(error.args[0])

        if "PRIMARY" in change and "un" in change:
            run(db, "UPDATE t SET a = 0 WHERE a IS NULL")
        thread = threading.Thread(target=alter)
        thread.start()
        wait_until(lambda: ended or any(row[4] == "Query" and "ALTER" in (row[7] or "") and "alter" in (row[6] or "") for row in run(db, "SHOW PROCESSLIST")))
        failure = None
        try:
            run(db, f"INSERT INTO t (id, a, b, n) VALUES {row}")
        except pymysql.err.Error as error:      # InnoDB's DML fails if the new table already has the column
            failure = error.args[0]
        thread.join()
        assert ended[0] in codes or failure in codes or failure == 1048 or ended == [0], (change, ended, failure)
        run(db, "DELETE FROM t WHERE id = 50000")
        assert is_whole(db) and run(db, "SELECT COUNT(*) FROM t") == [(20000,)]
        run(db, "ALTER TABLE t MODIFY n INT, DROP PRIMARY KEY, ADD PRIMARY KEY (id), DROP KEY IF EXISTS un") if ended == [0] else None


def test_a_column_of_an_index_may_be_null_again(db, server, engine):
    """The rows stay; the indexes with the column must tell NULLs from other values, and are rebuilt."""
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(40) NOT NULL, n INT NOT NULL, big MEDIUMTEXT, twice INT AS (a * 2) VIRTUAL, "
            f"KEY ka (a, b(5)), UNIQUE ub (b), KEY kn (n), KEY kt (twice)) ENGINE={engine}")
    run(db, "INSERT INTO t (id, a, b, n) SELECT seq, seq % 100, CONCAT('b', seq), seq FROM seq_1_to_3000")
    how = "INPLACE, LOCK=SHARED" if engine == "InnoDB" else "NOCOPY, LOCK=NONE"
    with Writers(server, db.name) as writers:
        for change in ("MODIFY a INT", "MODIFY b VARCHAR(40), MODIFY n INT"):
            before = writers.done
            run(db, f"ALTER TABLE t {change}, ALGORITHM={how}")
            wait_until(lambda: writers.done > before + 20 or writers.failures)
    assert not writers.failures and is_whole(db)
    assert list(run(db, "SELECT id, a, big FROM t WHERE id > 50000 ORDER BY id")) == writers.all()
    by_each_index(db, "id, a, b, n, twice")
    run(db, "UPDATE t SET a = NULL, b = NULL, n = NULL WHERE id IN (5, 6)")
    for index, column in (("ka", "a"), ("ub", "b"), ("kn", "n"), ("kt", "twice")):
        assert run(db, f"SELECT id FROM t FORCE INDEX ({index}) WHERE {column} IS NULL ORDER BY id") == [(5,), (6,)]
    assert refused(db, "UPDATE t SET b = 'b7' WHERE id = 8")[0] == 1062 and is_whole(db)


def test_partitions_are_rebuilt_in_place(db, server, engine):
    run(db, f"CREATE TABLE t (id INT NOT NULL, a INT, b VARCHAR(40) NOT NULL, big MEDIUMTEXT, n INT, twice INT AS (a * 2) VIRTUAL, PRIMARY KEY (id), KEY ka (a)) "
            f"ENGINE={engine} PARTITION BY HASH (id) PARTITIONS 4")
    run(db, "INSERT INTO t (id, a, b, big, n) SELECT seq, seq % 100, CONCAT('b', seq), 'x', seq FROM seq_1_to_4000")
    with Writers(server, db.name) as writers:
        for change in ("FORCE", "MODIFY n INT NOT NULL", "FORCE"):
            before = writers.done
            run(db, f"ALTER TABLE t {change}, ALGORITHM=INPLACE, LOCK=NONE")
            wait_until(lambda: writers.done > before + 20 or writers.failures)
    assert not writers.failures and is_whole(db)
    assert list(run(db, "SELECT id, a, big FROM t WHERE id > 50000 ORDER BY id")) == writers.all()
    assert run(db, "SELECT COUNT(*), SUM(id) FROM t WHERE id < 50000") == [(4000, 8002000)]


def test_a_killed_rebuild_ends_and_leaves_no_pages(db, server, engine):
    filled(db, engine, 20000)
    spaces = "SELECT COUNT(*) FROM information_schema.TERRACE_SPACES" if engine != "InnoDB" else "SELECT 1"
    before, named = contents(db, ["t"]), run(db, spaces)
    for delay in (0.02, 0.1, 0.3):
        one, ended = server.connect(database=db.name), []
        id = one.thread_id()
        thread = threading.Thread(target=lambda: ended.append(refused_or_not(one, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b), ALGORITHM=INPLACE")))
        thread.start()
        time.sleep(delay)
        try:
            run(db, f"KILL QUERY {id}")
        except pymysql.err.Error:
            pass
        thread.join()
        assert ended[0] in (None, 1317), ended
        if ended[0] is None:
            run(db, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)")
        assert contents(db, ["t"]) == before and is_whole(db)
        wait_until(lambda: run(db, spaces) == named)


def refused_or_not(db, sql):
    try:
        run(db, sql)
    except pymysql.err.Error as error:
        return error.args[0]


def test_a_crash_during_a_rebuild_leaves_the_old_or_the_new_table(own_server, engine):
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    run(connection, "USE d")
    filled(connection, engine, 3000)
    done = 0
    for delay in (0.05, 0.15, 0.3, 0.5, 0.8):
        def alter():
            nonlocal done
            one = own_server.connect(database="d")
            try:
                while True:
                    for change in ("DROP PRIMARY KEY, ADD PRIMARY KEY (b)", "FORCE", "DROP PRIMARY KEY, ADD PRIMARY KEY (id)"):
                        run(one, f"ALTER TABLE t {change}, ALGORITHM=INPLACE, LOCK=NONE")
                        done += 1
            except pymysql.err.Error:
                pass

        def write():
            one = own_server.connect(database="d")
            try:
                while True:
                    run(one, "UPDATE t SET a = a + 1, big = REPEAT('n', RAND() * 30000) WHERE id % 200 = FLOOR(RAND() * 200)")
            except pymysql.err.Error:
                pass

        threads = [threading.Thread(target=work) for work in (alter, write)]
        for thread in threads:
            thread.start()
        before = done
        wait_until(lambda: done > before or not threads[0].is_alive())
        time.sleep(delay)
        own_server.kill9()
        for thread in threads:
            thread.join()
        own_server.start()
        connection = own_server.connect(database="d")
        assert is_whole(connection) and run(connection, "SELECT COUNT(*), SUM(id) FROM t") == [(3000, 4501500)]
        by_each_index(connection, "id, a, b, LENGTH(big)")
        if engine != "InnoDB":
            named = run(connection, "SELECT TABLE_NAME, INDEX_NAME FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd'")
            assert len(named) == 4, named
        if run(connection, "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = 'd' AND INDEX_NAME = 'PRIMARY'") == [("b",)]:
            run(connection, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)")
    assert done > 5


def test_a_table_with_the_most_row_layouts_is_rebuilt_in_place(db, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY ka (a)) ENGINE={engine}")
    refusals = []
    for n in range(300):
        run(db, f"INSERT INTO t (id, a) VALUES ({n}, {n % 7})")
        change = f"ADD COLUMN c{n} INT DEFAULT {n}" + (f", DROP COLUMN c{n - 3}" if n > 2 else "")
        try:
            run(db, f"ALTER TABLE t {change}, ALGORITHM=INSTANT")
        except pymysql.err.Error as error:
            refusals.append((n, error.args[0]))
            run(db, f"ALTER TABLE t {change}, ALGORITHM=INPLACE, LOCK=NONE")
    assert len(refusals) == 1 and refusals[0][1] in (1845, 1846), refusals
    assert run(db, "SELECT COUNT(*), SUM(a), MIN(c297), MAX(c297), MIN(c299) FROM t") == [(300, sum(n % 7 for n in range(300)), 297, 297, 299)]
    assert is_whole(db) and by_each_index(db, "*")


PLACED = {"HASH (a) PARTITIONS 3": True, "KEY (a) PARTITIONS 3": True, "KEY () PARTITIONS 3": False, "RANGE (a) (PARTITION p0 VALUES LESS THAN (50), PARTITION p1 VALUES LESS THAN MAXVALUE)": True,
          "RANGE COLUMNS (a) SUBPARTITION BY KEY (a) SUBPARTITIONS 2 (PARTITION p0 VALUES LESS THAN (50), PARTITION p1 VALUES LESS THAN MAXVALUE)": True,
          "LIST (a) (PARTITION p0 VALUES IN (1,2,3), PARTITION p1 DEFAULT)": True}


@pytest.mark.parametrize("by", PLACED)
def test_a_partitioned_table_changes_its_primary_key_in_place(db, engine, by):
    """Unless the key says which partition a row is in. Which of it InnoDB, or the server, takes for in place is another matter."""
    run(db, f"CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, c VARCHAR(20), UNIQUE ua (a, b), KEY kc (c)) ENGINE={engine} PARTITION BY {by}")
    run(db, "INSERT INTO t SELECT seq, 200 - seq, CONCAT('c', seq % 10) FROM seq_1_to_120")
    parts = [row[0] for row in run(db, "SELECT COALESCE(SUBPARTITION_NAME, PARTITION_NAME) FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'")]
    where = {part: sorted(run(db, f"SELECT a, b FROM t PARTITION ({part})")) for part in parts}
    changes = ["ADD PRIMARY KEY (a, b)", "DROP PRIMARY KEY, ADD PRIMARY KEY (b, a)"]
    if PLACED[by]:
        changes.append("DROP PRIMARY KEY, ADD PRIMARY KEY (a, b, c), MODIFY c VARCHAR(20) NOT NULL")
    for change in changes:
        try:
            run(db, f"ALTER TABLE t {change}, ALGORITHM=INPLACE")
            # A key of the same columns as the one that counts as primary without it.
            assert PLACED[by] or change == "ADD PRIMARY KEY (a, b)"
        except pymysql.err.Error as error:
            # The server itself rebuilds partitions where it is not sure.
            assert error.args[0] in (1845, 1846)
            assert engine == "InnoDB" or not PLACED[by] or "DROP" in change, (by, change)
            run(db, f"ALTER TABLE t {change}")
        if PLACED[by]:
            assert {part: sorted(run(db, f"SELECT a, b FROM t PARTITION ({part})")) for part in parts} == where
        assert is_whole(db) and len(by_each_index(db, "a, b, c")) == 120
        assert run(db, "SELECT c FROM t WHERE a = 7 AND b = 193") == [("c7",)]


@pytest.mark.parametrize("parts", ["", "PARTITION BY SYSTEM_TIME (PARTITION p0 HISTORY, PARTITION pn CURRENT)", "PARTITION BY HASH (a) PARTITIONS 2"])
def test_a_versioned_table_is_rebuilt_in_place_with_its_past(db, engine, parts):
    run(db, "SET system_versioning_alter_history = KEEP")
    for name in "t", "copied":
        run(db, f"CREATE TABLE {name} (a INT PRIMARY KEY, b INT, c VARCHAR(20), UNIQUE ub (b, a), KEY kc (c)) ENGINE={engine} WITH SYSTEM VERSIONING {parts}")
        run(db, "SET timestamp = 1700000000")
        run(db, f"INSERT INTO {name} SELECT seq, seq, CONCAT('c', seq % 10) FROM seq_1_to_200")
        for step in range(3):
            run(db, f"SET timestamp = {1700000010 + step}")
            run(db, f"UPDATE {name} SET b = b + 1000 WHERE a % 3 = {step}")
            run(db, f"DELETE FROM {name} WHERE a % 50 = {step}")
        run(db, "SET timestamp = DEFAULT")

    def held(name):
        return [run(db, f"SELECT *, ROW_START, ROW_END FROM {name} FOR SYSTEM_TIME {of} ORDER BY a, ROW_END") for of in ("ALL", "AS OF FROM_UNIXTIME(1700000010)", "AS OF FROM_UNIXTIME(1700000011)")] + \
               [run(db, f"SELECT * FROM {name} ORDER BY a")]

    was = held("t")
    assert was == held("copied") and len(was[0]) > len(was[3])
    changes = ["FORCE", "ENGINE={engine}", "MODIFY b INT NOT NULL", "ADD d INT DEFAULT 4, FORCE"] + ([] if parts else ["DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)", "DROP PRIMARY KEY, ADD PRIMARY KEY (b, a), DROP c"])
    for change in changes:
        change = change.format(engine=engine)
        lock = "" if "ADD d" in change else ", LOCK=NONE"
        run(db, f"ALTER TABLE t {change}, ALGORITHM=INPLACE{lock}")
        run(db, f"ALTER TABLE copied {change}, ALGORITHM=COPY")
        assert held("t") == held("copied"), change
        assert is_whole(db)
        # The past goes on.
        for name in "t", "copied":
            run(db, f"SET timestamp = {1700000100 + changes.index(change.replace(engine, '{engine}') if 'ENGINE' in change else change)}")
            run(db, f"UPDATE {name} SET b = b + 7 WHERE a % 7 = 1")
            run(db, f"DELETE FROM {name} WHERE a % 60 = {changes.index(change.replace(engine, '{engine}') if 'ENGINE' in change else change)}")
            run(db, "SET timestamp = DEFAULT")
        assert held("t") == held("copied"), change


def test_a_versioned_table_is_rebuilt_beside_writers(db, server, engine):
    run(db, "SET system_versioning_alter_history = KEEP")
    run(db, f"CREATE TABLE t (a INT PRIMARY KEY, b INT, pad VARCHAR(200), KEY (b)) ENGINE={engine} WITH SYSTEM VERSIONING")
    run(db, "INSERT INTO t SELECT seq, 0, REPEAT('x', 150) FROM seq_1_to_5000")
    stop, done = threading.Event(), [0, 0]

    def write(who):
        mine = server.connect(database=db.name)
        rng = random.Random(who)
        while not stop.is_set():
            run(mine, f"UPDATE t SET b = b + 1 WHERE a = {rng.randint(1, 2500) * 2 - who}")
            done[who] += 1

    threads = [threading.Thread(target=write, args=(who,)) for who in range(2)]
    [thread.start() for thread in threads]
    try:
        for change in ("FORCE", "DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)", "FORCE"):
            wait_until(lambda at=sum(done): sum(done) > at + 30)
            run(db, f"ALTER TABLE t {change}, ALGORITHM=INPLACE, LOCK=NONE")
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert run(db, "SELECT SUM(b) FROM t") == [(sum(done),)]
    # Each change has left a history row, except changes with the same timestamp.
    [(past,)] = run(db, "SELECT COUNT(*) FROM t FOR SYSTEM_TIME ALL WHERE ROW_END < NOW(6)")
    assert past == sum(done) and is_whole(db)
