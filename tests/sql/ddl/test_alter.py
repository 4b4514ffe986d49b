"""ALTER TABLE without a copy: which changes are done in place, beside which other sessions, and the state after a failure or a crash."""

import threading
import time

import pymysql
import pytest
from conftest import contents, run, wait_until


def refused(db, sql):
    with pytest.raises(pymysql.err.Error) as error:
        run(db, sql)
    return error.value.args


def indexes(db, table="t"):
    return sorted({row[2] for row in run(db, f"SHOW INDEX FROM {table}")})


def is_whole(db, table="t"):
    return [row[3] for row in run(db, f"CHECK TABLE {table}")] == ["OK"]


def filled(db, engine, rows=3000):
    run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(40), c VARCHAR(300) COLLATE utf8mb4_unicode_ci, d DOUBLE, j TEXT) ENGINE={engine}")
    run(db, f"INSERT INTO t (a, b, c, d, j) SELECT seq % 100, CONCAT('b', seq), IF(seq % 7, CONCAT('Wert ', seq % 50), NULL), -seq / 3, REPEAT('x', IF(seq % 500, 10, 20000)) FROM seq_1_to_{rows}")


INSTANT = [
    "ALTER COLUMN a SET DEFAULT 7",
    "CHANGE a a2 INT COMMENT 'renamed'",
    "CHANGE a2 a INT",
    "RENAME INDEX ka TO kb",
    "ALTER INDEX kb IGNORED",
    "ALTER INDEX kb NOT IGNORED",
    "COMMENT 'of the table'",
    "AUTO_INCREMENT = 100000",
    "MODIFY c VARCHAR(350) COLLATE utf8mb4_unicode_ci",
]


@pytest.mark.parametrize("how", INSTANT)
def test_definitions_alone_are_instant(db, engine, how):
    filled(db, engine, 300)
    run(db, "ALTER TABLE t ADD KEY ka (a), ADD KEY kc (c, a)")
    if "a2 a" in how:
        run(db, "ALTER TABLE t CHANGE a a2 INT, ALGORITHM=INSTANT")
    if " kb " in how:
        run(db, "ALTER TABLE t RENAME INDEX ka TO kb, ALGORITHM=INSTANT")
    before = contents(db, ["t"])
    run(db, f"ALTER TABLE t {how}, ALGORITHM=INSTANT")
    assert contents(db, ["t"]) == before and is_whole(db)
    run(db, "INSERT INTO t (id) VALUES (NULL)")
    assert ("AUTO" in how) == (run(db, "SELECT MAX(id) FROM t") == [(100000,)])
    assert run(db, "SELECT COUNT(*) FROM t FORCE INDEX (kc) WHERE c LIKE 'Wert 1%'") == run(db, "SELECT COUNT(*) FROM t IGNORE INDEX (kc) WHERE c LIKE 'Wert 1%'")


def test_setting_the_counter_below_the_rows_does_not_copy_the_table(own_server, engine):
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    shapes = {
        "plain": ("id INT AUTO_INCREMENT PRIMARY KEY", ""),
        "other": ("id INT AUTO_INCREMENT, KEY (id DESC)", ""),
        "parts": ("id INT AUTO_INCREMENT PRIMARY KEY", "PARTITION BY HASH (id) PARTITIONS 3"),
    }
    for t, (key, parts) in shapes.items():
        run(db, f"CREATE TABLE {t} (a INT, {key}) ENGINE={engine} {parts}")
        run(db, f"INSERT INTO {t} (a) VALUES (1), (2), (3), (3)")
        for value, more in ((1, ""), (0, ""), (4, ", ADD z INT"), (3, ", ALTER a SET DEFAULT 7")):
            run(db, f"ALTER TABLE {t} AUTO_INCREMENT = {value}{more}, ALGORITHM=INSTANT")
        # What fails leaves it.
        assert refused(db, f"ALTER TABLE {t} AUTO_INCREMENT = 900, ADD UNIQUE (a, id DESC), ADD UNIQUE (id, a), ADD CHECK (a < 3)")[0] == 4025
        run(db, f"INSERT INTO {t} (a) VALUES (5)")
        run(db, "SET auto_increment_increment = 10")
        run(db, f"INSERT INTO {t} (a) VALUES (6), (7)")
        run(db, f"ALTER TABLE {t} AUTO_INCREMENT = 2, ALGORITHM=INSTANT")
        run(db, f"INSERT INTO {t} (a) VALUES (8)")
        run(db, "SET auto_increment_increment = 1")
        assert run(db, f"SELECT a, id FROM {t} ORDER BY id") == [(1, 1), (2, 2), (3, 3), (3, 4), (5, 5), (6, 11), (7, 21), (8, 31)]
    # Without such a column it says nothing.
    run(db, f"CREATE TABLE none (a INT) ENGINE={engine}")
    run(db, "INSERT INTO none VALUES (1)")
    run(db, "ALTER TABLE none AUTO_INCREMENT = 1, ALGORITHM=INSTANT")
    run(db, "ALTER TABLE none AUTO_INCREMENT = 50, ADD b INT, ALGORITHM=INSTANT")
    own_server.restart()
    db = own_server.connect(database="d")
    for t in shapes:
        run(db, f"INSERT INTO {t} (a) VALUES (9)")
        assert run(db, f"SELECT id > 31 AND id <= 41 FROM {t} WHERE a = 9") == [(1,)] and is_whole(db, t)


@pytest.mark.parametrize("algorithm", ["INSTANT", "NOCOPY", "INPLACE", "COPY", "DEFAULT"])
def test_a_counter_is_lowered_to_just_past_the_largest_value(db, engine, algorithm):
    filled(db, engine, 10)
    run(db, "DELETE FROM t WHERE id > 5")
    for value, next_id in ((3, 6), (9, 9), (1, 10)):
        run(db, f"ALTER TABLE t AUTO_INCREMENT = {value}, ALGORITHM={algorithm}")
        run(db, "INSERT INTO t (a) VALUES (1)")
        assert run(db, "SELECT MAX(id) FROM t") == [(next_id,)]
    assert is_whole(db)


COUNTERS = {
    "plain": ("id INT AUTO_INCREMENT PRIMARY KEY, a INT", ""),
    "other": ("a INT, id INT AUTO_INCREMENT, KEY (id DESC)", ""),
    "big": ("id BIGINT UNSIGNED AUTO_INCREMENT, a INT, UNIQUE (id, a)", ""),
    "parts": ("id INT AUTO_INCREMENT PRIMARY KEY, a INT", "PARTITION BY HASH (id) PARTITIONS 3"),
    "ranges": ("id INT AUTO_INCREMENT, a INT, KEY (id)", "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN MAXVALUE)"),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_lowered_counter_equals_innodbs(db, engine, name):
    columns, parts = COUNTERS[name]
    found = {}
    for of in (engine, "InnoDB"):
        found[of] = []
        run(db, f"CREATE OR REPLACE TABLE t ({columns}) ENGINE={of} AUTO_INCREMENT = 5000 {parts}")

        def after(change):
            run(db, f"ALTER TABLE t {change}")
            (counter,) = run(db, "SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'")[0]
            run(db, "INSERT INTO t (a) VALUES (1)")
            found[of].append((change, counter, run(db, "SELECT LAST_INSERT_ID(), MAX(id) FROM t")))

        # None, of no row at all, of negative values, of a few.
        after("AUTO_INCREMENT = 100, ALGORITHM=INSTANT")
        run(db, "DELETE FROM t")
        after("AUTO_INCREMENT = 0, ALGORITHM=INSTANT")
        if name != "big":
            run(db, "DELETE FROM t")
            run(db, "INSERT INTO t (id, a) VALUES (-5, 1)")
            after("AUTO_INCREMENT = 1, ALGORITHM=INSTANT")
        run(db, "INSERT INTO t (id, a) VALUES (70, 9), (900, 1), (901, 9)")
        run(db, "DELETE FROM t WHERE id > 100")
        after("AUTO_INCREMENT = 80, ALGORITHM=INSTANT")
        run(db, "DELETE FROM t WHERE id = 80")
        after("AUTO_INCREMENT = 60, ALTER a SET DEFAULT 7, ALGORITHM=INSTANT")
        run(db, "DELETE FROM t WHERE id = 71")
        after("AUTO_INCREMENT = 60, ADD KEY ka (a), ALGORITHM=NOCOPY, LOCK=NONE")
        run(db, "DELETE FROM t WHERE id = 71")
        run(db, "ALTER TABLE t AUTO_INCREMENT = 700")
        after("AUTO_INCREMENT = 60, FORCE, ALGORITHM=INPLACE, LOCK=NONE")
        run(db, "SET auto_increment_increment = 10, auto_increment_offset = 4")
        run(db, "ALTER TABLE t AUTO_INCREMENT = 800")
        after("AUTO_INCREMENT = 2, ALGORITHM=INSTANT")
        run(db, "SET auto_increment_increment = 1, auto_increment_offset = 1")
        after("ADD z INT, AUTO_INCREMENT = 500")
        after("AUTO_INCREMENT = 400")
        assert is_whole(db)
    assert found[engine] == found["InnoDB"]


def test_a_failed_alter_leaves_the_counter(db, engine):
    filled(db, engine, 10)
    run(db, "ALTER TABLE t AUTO_INCREMENT = 1000")
    assert refused(db, "ALTER TABLE t AUTO_INCREMENT = 5, ADD UNIQUE (d, id), ADD UNIQUE (id, a), ADD CHECK (a < 3)")[0] == 4025
    run(db, "UPDATE t SET b = 'same'")
    for change in ("ADD UNIQUE (b)", "ADD UNIQUE (b), FORCE"):
        assert refused(db, f"ALTER TABLE t AUTO_INCREMENT = 5, {change}")[0] == 1062
    run(db, "INSERT INTO t (a) VALUES (1)")
    assert run(db, "SELECT MAX(id) FROM t") == [(1000,)]


def test_a_lowered_counter_survives_a_crash(own_server, engine):
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    for table, (columns, parts) in COUNTERS.items():
        run(db, f"CREATE TABLE {table} ({columns}) ENGINE={engine} AUTO_INCREMENT = 5000 {parts}")
        run(db, f"INSERT INTO {table} (id, a) VALUES (20, 1), (30, 9), (6000, 1)")
        run(db, f"DELETE FROM {table} WHERE id = 6000")
        run(db, f"ALTER TABLE {table} AUTO_INCREMENT = 25, ALGORITHM=INSTANT")
    own_server.kill9()
    own_server.start()
    db = own_server.connect(database="d")
    for table in COUNTERS:
        run(db, f"INSERT INTO {table} (a) VALUES (1)")
        assert run(db, f"SELECT MAX(id) FROM {table}") == [(31,)] and is_whole(db, table)


@pytest.mark.parametrize("left", ["restart", "disconnect"])
def test_a_counter_stays_above_what_a_prepared_transaction_may_bring(own_server, engine, left):
    """The prepared transaction's connection is gone: ALTER meets rows that may be committed, and deleted rows that may be restored."""
    if engine == "InnoDB":
        pytest.skip("ALTER waits for the transaction")
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    for table in ("comes", "goes"):
        run(db, f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, a INT) ENGINE={engine}")
        run(db, f"INSERT INTO {table} VALUES (1, 1), (50, 1)")
    for sql in ("XA START 'x'", "INSERT INTO comes VALUES (100, 1)", "XA END 'x'", "XA PREPARE 'x'"):
        run(db, sql)
    two = own_server.connect(database="d")
    for sql in ("XA START 'y'", "DELETE FROM goes WHERE id = 50", "XA END 'y'", "XA PREPARE 'y'"):
        run(two, sql)
    if left == "restart":
        own_server.kill9()
        own_server.start()
    else:
        db.close()
        two.close()
    db = own_server.connect(database="d")
    wait_until(lambda: len(run(db, "XA RECOVER")) == 2)
    for table in ("comes", "goes"):
        run(db, f"ALTER TABLE {table} AUTO_INCREMENT = 5000")
        run(db, f"ALTER TABLE {table} AUTO_INCREMENT = 2, ALGORITHM=INSTANT")
    run(db, "XA COMMIT 'x'")
    run(db, "XA ROLLBACK 'y'")
    for table, next_id in (("comes", 101), ("goes", 51)):
        run(db, f"INSERT INTO {table} (a) VALUES (2)")
        assert run(db, f"SELECT MAX(id) FROM {table}") == [(next_id,)]


def test_indexes_are_added_and_dropped_in_place(db, engine):
    filled(db, engine)
    run(db, "ALTER TABLE t ADD KEY a (a), ADD UNIQUE b (b), ADD KEY c (c, d DESC), ADD KEY j (j(20)), ALGORITHM=NOCOPY, LOCK=NONE")
    assert is_whole(db)
    assert run(db, "SELECT COUNT(*), MIN(id) FROM t FORCE INDEX (a) WHERE a = 42") == [(30, 42)]
    assert run(db, "SELECT id FROM t FORCE INDEX (b) WHERE b = 'b777'") == [(777,)]
    assert run(db, "SELECT COUNT(*) FROM t FORCE INDEX (c) WHERE c = 'wert 3'") == run(db, "SELECT COUNT(*) FROM t FORCE INDEX (PRIMARY) WHERE c = 'wert 3'")
    assert refused(db, "INSERT INTO t (b) VALUES ('b5')")[0] == 1062
    run(db, "UPDATE t SET a = a + 1, c = CONCAT(c, '!') WHERE id % 3 = 0")
    run(db, "DELETE FROM t WHERE id % 5 = 0")
    run(db, "ALTER TABLE t DROP KEY a, ADD KEY da (d, a), DROP KEY j, RENAME KEY c TO c2, ALGORITHM=INPLACE")
    assert indexes(db) == ["PRIMARY", "b", "c2", "da"] and is_whole(db)
    run(db, "DROP INDEX c2 ON t")
    run(db, "CREATE INDEX c ON t (c)")
    run(db, "UPDATE t SET c = 'x' WHERE id < 100")
    assert is_whole(db)
    assert run(db, "SELECT COUNT(*) FROM t FORCE INDEX (c) WHERE c = 'x'") == [(80,)]


def test_a_table_without_a_primary_key_and_virtual_columns(db, engine):
    run(db, f"CREATE TABLE t (a INT, v INT AS (a * 2) VIRTUAL, s VARCHAR(20) AS (CONCAT('s', a)) STORED) ENGINE={engine}")
    run(db, "INSERT INTO t (a) SELECT seq % 77 FROM seq_1_to_1000")
    run(db, "ALTER TABLE t ADD KEY v (v), ADD KEY s (s), ALGORITHM=NOCOPY")
    assert is_whole(db)
    assert run(db, "SELECT COUNT(*) FROM t FORCE INDEX (v) WHERE v = 20") == run(db, "SELECT COUNT(*) FROM t FORCE INDEX (s) WHERE s = 's10'") == [(13,)]
    run(db, "UPDATE t SET a = a + 100 WHERE a < 10")
    assert is_whole(db)
    # The rows lie under it, each with its number.
    run(db, "ALTER TABLE t DROP KEY v, DROP KEY s, DROP COLUMN v, DROP COLUMN s, ADD id INT AUTO_INCREMENT PRIMARY KEY")
    assert is_whole(db) and run(db, "SELECT COUNT(*) FROM t WHERE id <= 1000") == [(1000,)]


def test_a_duplicate_names_the_key_and_leaves_the_table(db, engine):
    filled(db, engine, 500)
    run(db, "UPDATE t SET b = 'B7' WHERE id = 300")
    before = contents(db, ["t"])
    error = refused(db, "ALTER TABLE t ADD KEY a (a), ADD UNIQUE doppelt (b), ALGORITHM=INPLACE")
    assert error[0] == 1062 and "for key 'doppelt'" in error[1] and "b7" in error[1].lower()
    assert indexes(db) == ["PRIMARY"] and contents(db, ["t"]) == before and is_whole(db)
    # NULLs are no duplicates.
    run(db, "UPDATE t SET b = NULL WHERE id IN (7, 300, 400)")
    run(db, "ALTER TABLE t ADD UNIQUE doppelt (b), ALGORITHM=INPLACE")
    assert is_whole(db)
    run(db, "ALTER TABLE t DROP KEY doppelt")
    run(db, "UPDATE t SET b = 'same' WHERE id < 10")
    run(db, "ALTER IGNORE TABLE t ADD UNIQUE doppelt (b)")
    assert run(db, "SELECT COUNT(*) FROM t WHERE b = 'same'") == [(1,)] and is_whole(db)


def test_what_cannot_be_done_in_place_is_refused_as_innodb_refuses_it(db, engine):
    filled(db, engine, 10)
    reasons = [
        ("MODIFY a VARCHAR(20), ALGORITHM=INPLACE", "Cannot change column type"),
        ("MODIFY a BIGINT, ALGORITHM=INSTANT", "Cannot change column type"),
        ("DROP PRIMARY KEY, MODIFY id INT, ALGORITHM=INPLACE", "Dropping a primary key is not allowed without also adding a new primary key"),
        ("MODIFY a BIGINT, LOCK=NONE", "Cannot change column type"),
    ]
    for how, reason in reasons:
        error = refused(db, f"ALTER TABLE t {how}")
        assert error[0] == 1846 and reason in error[1], error
    error = refused(db, "ALTER IGNORE TABLE t ADD UNIQUE (b), ALGORITHM=INPLACE")
    assert error[0] == 1846 and "IGNORE" in error[1], error
    for how in ("ADD KEY (a)", "ADD UNIQUE (b)", "ADD KEY (a), DROP KEY kd", "MODIFY b VARCHAR(40) COLLATE utf8mb4_bin"):
        run(db, "ALTER TABLE t ADD KEY IF NOT EXISTS kd (d), ADD KEY IF NOT EXISTS kb (b), ALGORITHM=NOCOPY")
        error = refused(db, f"ALTER TABLE t {how}, ALGORITHM=INSTANT")
        assert error == (1846, "ALGORITHM=INSTANT is not supported. Reason: ADD INDEX. Try ALGORITHM=NOCOPY"), error
    run(db, "SET alter_algorithm = 'INSTANT'")
    assert "Reason: ADD INDEX" in refused(db, "CREATE INDEX ka ON t (a)")[1]
    run(db, "SET alter_algorithm = DEFAULT")
    run(db, "ALTER TABLE t MODIFY a BIGINT, ALGORITHM=COPY, LOCK=SHARED")
    assert is_whole(db)


def test_an_index_built_beside_writers_has_all_their_rows(db, server, engine):
    """Several sessions insert, update, delete and roll back while indexes come and go, one of them unique."""
    filled(db, engine, 4000)
    run(db, "ALTER TABLE t ADD KEY a (a)")
    stop, failures, counts = threading.Event(), [], []

    def write(n):
        one = server.connect(database=db.name)
        cursor, count = one.cursor(), 0
        try:
            while not stop.is_set():
                count += 1
                key = (count * 7 + n) % 5000
                cursor.execute("BEGIN")
                try:
                    cursor.execute(f"INSERT INTO t (a, b, c) VALUES ({count % 100}, 'w{n}-{count}', 'neu')")
                    cursor.execute(f"UPDATE t SET a = a + 1, b = CONCAT(b, '-{n}'), c = '{count}' WHERE id = {key}")
                    cursor.execute(f"DELETE FROM t WHERE id = {key + 2500}")
                    cursor.execute("ROLLBACK" if count % 4 == 0 else "COMMIT")
                except pymysql.err.OperationalError as error:
                    if error.args[0] not in (1205, 1213, 1412):
                        raise
                    cursor.execute("ROLLBACK")
        except Exception as error:
            failures.append(error)
        counts.append(count)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for n in range(6):
            run(db, f"ALTER TABLE t ADD UNIQUE b{n} (b), ADD KEY c{n} (c, a), ALGORITHM=NOCOPY, LOCK=NONE")
            if n:
                run(db, f"ALTER TABLE t DROP KEY b{n - 1}, DROP KEY c{n - 1}, ALGORITHM=INSTANT")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures and min(counts) > 20, (failures, counts)
    assert is_whole(db) and indexes(db) == ["PRIMARY", "a", "b5", "c5"]


def test_an_older_view_cannot_use_a_new_index(db, server, engine):
    filled(db, engine, 200)
    old = server.connect(database=db.name)
    run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    run(db, "UPDATE t SET a = 5")
    run(db, "ALTER TABLE t ADD KEY a (a)")
    assert refused(old, "SELECT COUNT(*) FROM t FORCE INDEX (a) WHERE a = 5")[0] == 1412
    assert run(old, "SELECT COUNT(*) FROM t FORCE INDEX (PRIMARY) WHERE a = 5 AND id > 0") == [(2,)]
    run(old, "COMMIT")
    assert run(old, "SELECT COUNT(*) FROM t FORCE INDEX (a) WHERE a = 5") == [(200,)]


def test_a_killed_alter_leaves_the_table(db, server, engine):
    filled(db, engine, 40000)
    victim = server.connect(database=db.name)
    number = run(victim, "SELECT CONNECTION_ID()")[0][0]
    errors = []

    def alter():
        errors.append(refused(victim, "ALTER TABLE t ADD KEY (a, b, c), ADD KEY (c, b), ADD KEY (d, b, c), ADD KEY (b, c, a)"))

    thread = threading.Thread(target=alter)
    thread.start()
    seen = 0
    while thread.is_alive() and seen < 3:
        state = run(db, f"SELECT PROGRESS FROM information_schema.PROCESSLIST WHERE ID = {number} AND INFO LIKE 'ALTER%'")
        seen += bool(state and state[0][0] > 0)
    assert seen, "no progress was shown"
    run(db, f"KILL QUERY {number}")
    thread.join()
    assert errors[0][0] == 1317 and indexes(db) == ["PRIMARY"] and is_whole(db)
    assert refused(victim, "SET STATEMENT max_statement_time = 0.01 FOR ALTER TABLE t ADD KEY (a, b, c), ADD KEY (c, b), ADD KEY (b, c)")[0] == 1969
    assert indexes(db) == ["PRIMARY"] and is_whole(db)
    run(db, "ALTER TABLE t ADD KEY (a)")


PARTITIONS = [
    "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN MAXVALUE)",
    "PARTITION BY LIST (id % 3) (PARTITION p0 VALUES IN (0), PARTITION p1 VALUES IN (1), PARTITION p2 VALUES IN (2))",
    "PARTITION BY HASH (id) PARTITIONS 3",
    "PARTITION BY LINEAR HASH (id) PARTITIONS 3",
    "PARTITION BY KEY (id) PARTITIONS 3",
    "PARTITION BY RANGE COLUMNS (id, a) (PARTITION p0 VALUES LESS THAN (100, 5), PARTITION p1 VALUES LESS THAN (MAXVALUE, MAXVALUE))",
    "PARTITION BY LIST COLUMNS (a) (PARTITION p0 VALUES IN (0, 1, 2), PARTITION p1 DEFAULT)",
    "PARTITION BY RANGE (id) SUBPARTITION BY HASH (a) SUBPARTITIONS 2 (PARTITION p0 VALUES LESS THAN (150), PARTITION p1 VALUES LESS THAN MAXVALUE)",
]


@pytest.mark.parametrize("how", PARTITIONS)
def test_partitions_of_every_kind(db, engine, how):
    run(db, f"CREATE TABLE t (id INT NOT NULL, a INT NOT NULL, b VARCHAR(20), PRIMARY KEY (id, a), KEY b (b)) ENGINE={engine} {how}")
    run(db, "CREATE TABLE m (id INT NOT NULL, a INT NOT NULL, b VARCHAR(20), PRIMARY KEY (id, a)) ENGINE=MEMORY")
    for table in "t", "m":
        run(db, f"INSERT INTO {table} SELECT seq, seq % 10, CONCAT('b', seq % 20) FROM seq_1_to_300")
    run(db, "ALTER TABLE t ADD KEY ab (a, b), DROP KEY b, ALGORITHM=NOCOPY, LOCK=NONE")
    for table in "t", "m":
        run(db, f"UPDATE {table} SET id = id + 1000, b = 'x' WHERE id % 4 = 1")
        run(db, f"DELETE FROM {table} WHERE a = 7")
    assert contents(db, ["t"])["t"] == contents(db, ["m"])["m"] and is_whole(db)
    assert run(db, "SELECT COUNT(*) FROM t FORCE INDEX (ab) WHERE a = 5 AND b = 'x'") == run(db, "SELECT COUNT(*) FROM m WHERE a = 5 AND b = 'x'")
    part = run(db, "SELECT PARTITION_NAME FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't' ORDER BY 1")[0][0]
    rows = run(db, f"SELECT COUNT(*) FROM t PARTITION ({part})")[0][0]
    assert 0 < rows < 270
    if "SUBPARTITION" not in how:
        run(db, f"CREATE TABLE x (id INT NOT NULL, a INT NOT NULL, b VARCHAR(20), PRIMARY KEY (id, a), KEY ab (a, b)) ENGINE={engine}")
        run(db, f"ALTER TABLE t EXCHANGE PARTITION {part} WITH TABLE x")
        assert run(db, "SELECT COUNT(*) FROM x") == [(rows,)] and run(db, f"SELECT COUNT(*) FROM t PARTITION ({part})") == [(0,)]
        assert is_whole(db) and is_whole(db, "x")
        run(db, f"ALTER TABLE t EXCHANGE PARTITION {part} WITH TABLE x")
        assert contents(db, ["t"])["t"] == contents(db, ["m"])["m"]
    run(db, f"ALTER TABLE t TRUNCATE PARTITION {part}")
    assert run(db, "SELECT COUNT(*) FROM t") == [(len(contents(db, ["m"])["m"]) - rows,)]
    run(db, "ALTER TABLE t REMOVE PARTITIONING")
    assert is_whole(db)


def test_an_index_takes_no_virtual_column_that_cannot_be_computed(db, engine):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a INT, d INT AS (1000 DIV (a - 3)) VIRTUAL, s TINYINT AS (a * 100) VIRTUAL) ENGINE={engine}")
    run(db, "INSERT INTO t (id, a) VALUES (1, 1)")
    run(db, "SET SESSION sql_mode = ''")
    run(db, "INSERT INTO t (id, a) VALUES (2, 3), (3, 9)")
    run(db, "SET SESSION sql_mode = DEFAULT")
    assert refused(db, "ALTER TABLE t ADD KEY d (d)")[0] == 1365
    assert refused(db, "ALTER TABLE t ADD KEY s (s)")[0] == 1264
    assert indexes(db) == ["PRIMARY"]
    run(db, "SET SESSION sql_mode = ''")
    run(db, "ALTER TABLE t ADD KEY s (s), ADD KEY d (d)")
    assert run(db, "SELECT id FROM t FORCE INDEX (s) WHERE s = 127 ORDER BY id") == [(2,), (3,)]
    assert run(db, "SELECT id FROM t FORCE INDEX (d) WHERE d IS NULL") == [(2,)]


def test_a_failed_alter_leaves_every_partition(db, server, engine):
    """Each partition has its own part of the change, and each part is given up once."""
    run(db, f"CREATE TABLE t (id INT, p INT, v INT, PRIMARY KEY (id, p)) ENGINE={engine} PARTITION BY LIST (p) (PARTITION p0 VALUES IN (0), PARTITION p1 VALUES IN (1), PARTITION p2 VALUES IN (2))")
    run(db, "INSERT INTO t SELECT seq, seq % 3, seq FROM seq_1_to_60000")
    for p in range(3):
        run(db, f"INSERT INTO t VALUES (100000, {p}, {3 + p})")
        assert refused(db, "ALTER TABLE t ADD KEY v (v), ADD UNIQUE KEY u (v, p)")[0] == 1062
        assert indexes(db) == ["PRIMARY"] and is_whole(db)
        run(db, "DELETE FROM t WHERE id = 100000")
    # A duplicate that comes while the index is built, and stays until the last round.
    victim, errors = server.connect(database=db.name), []

    def alter():
        try:
            errors.append(run(victim, "ALTER TABLE t ADD UNIQUE KEY u (v, p)"))
        except pymysql.err.Error as error:
            errors.append(error.args)

    number = run(victim, "SELECT CONNECTION_ID()")[0][0]
    for more in range(1, 7):
        thread = threading.Thread(target=alter)
        thread.start()
        seen = False
        while thread.is_alive() and not seen:
            state = run(db, f"SELECT PROGRESS FROM information_schema.PROCESSLIST WHERE ID = {number} AND INFO LIKE 'ALTER%'")
            seen = bool(state and state[0][0] > 0)
        if seen:
            run(db, "BEGIN")
            run(db, "SET SESSION lock_wait_timeout = 600")
            try:
                run(db, "INSERT INTO t VALUES (100000, 2, 50)")
                break
            except pymysql.err.IntegrityError:
                run(db, "ROLLBACK")
        # It ended before the test looked, or before the row came: with more rows it takes longer.
        thread.join()
        assert errors.pop() == []
        run(db, "ALTER TABLE t DROP KEY u")
        run(db, f"INSERT INTO t SELECT 100000 * {more} + seq, seq % 3, 100000 * {more} + seq FROM seq_1_to_{60000 * 2 ** more}")
    else:
        pytest.fail("no progress was shown, whatever the number of rows")
    while not run(db, f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number} AND STATE LIKE 'Waiting for table metadata lock'"):
        assert thread.is_alive(), errors
        time.sleep(0.01)
    run(db, "COMMIT")
    thread.join()
    assert errors[0][0] == 1062 and indexes(db) == ["PRIMARY"] and is_whole(db)
    run(db, "DELETE FROM t WHERE id = 100000")
    run(db, "ALTER TABLE t ADD UNIQUE KEY u (v, p)")
    assert is_whole(db)


def test_rename_of_many_tables_swaps_them(db, engine):
    for name in "a", "b", "c":
        run(db, f"CREATE TABLE {name} (v VARCHAR(5)) ENGINE={engine}")
        run(db, f"INSERT INTO {name} VALUES ('{name}')")
    run(db, "RENAME TABLE a TO tmp, b TO a, c TO b, tmp TO c")
    assert [run(db, f"SELECT v FROM {name}")[0][0] for name in "abc"] == ["b", "c", "a"]
    assert refused(db, "RENAME TABLE a TO x, b TO y, c TO x")[0] == 1050
    assert [run(db, f"SELECT v FROM {name}")[0][0] for name in "abc"] == ["b", "c", "a"]


def test_temporary_tables_are_altered_too(db, engine):
    run(db, f"CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, a INT) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq % 7 FROM seq_1_to_500")
    run(db, "ALTER TABLE t ADD KEY a (a), ADD COLUMN b INT DEFAULT 3")
    run(db, "ALTER TABLE t ADD KEY b (b, a)")
    assert run(db, "SELECT COUNT(*) FROM t FORCE INDEX (b) WHERE b = 3 AND a = 2") == [(72,)]
    run(db, "ALTER TABLE t DROP KEY a, RENAME KEY b TO ab")
    assert run(db, "SELECT COUNT(*) FROM t FORCE INDEX (ab) WHERE b = 3 AND a = 2") == [(72,)]


def test_an_alter_cut_by_a_killed_server_leaves_the_old_or_the_new_table(own_server, engine):
    """The server is killed during a series of ALTERs, beside writers."""
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    filled(connection, engine, 3000)
    run(connection, f"CREATE TABLE p (id INT PRIMARY KEY, a INT, KEY a (a)) ENGINE={engine} PARTITION BY HASH (id) PARTITIONS 4")
    run(connection, "INSERT INTO p SELECT seq, seq % 10 FROM seq_1_to_1000")
    steps = 0
    for delay in (0.05, 0.4, 0.9, 1.5):
        stop = threading.Event()

        def alter():
            one = own_server.connect(database="d")
            nonlocal steps
            try:
                while not stop.is_set():
                    for table, has in ("t", "da"), ("p", "k"):
                        if has in indexes(one, table):
                            run(one, f"ALTER TABLE {table} DROP KEY {has}")
                        else:
                            run(one, f"ALTER TABLE {table} ADD KEY {has} ({'d, a' if table == 't' else 'a, id'})")
                        steps += 1
            except pymysql.err.Error:
                pass

        def write():
            one = own_server.connect(database="d")
            try:
                while not stop.is_set():
                    run(one, "UPDATE t SET a = a + 1, d = d / 2 WHERE id % 50 = FLOOR(RAND() * 50)")
            except pymysql.err.Error:
                pass

        threads = [threading.Thread(target=work) for work in (alter, write)]
        for thread in threads:
            thread.start()
        enough = steps + 1
        wait_until(lambda: steps > enough or not threads[0].is_alive())
        time.sleep(delay)
        own_server.kill9()
        stop.set()
        for thread in threads:
            thread.join()
        own_server.start()
        connection = own_server.connect(database="d")
        assert is_whole(connection) and is_whole(connection, "p")
        assert run(connection, "SELECT COUNT(*) FROM t") == [(3000,)] and run(connection, "SELECT COUNT(*) FROM p") == [(1000,)]
        for table in "t", "p":
            for index in indexes(connection, table):
                assert run(connection, f"SELECT COUNT(*) FROM {table} FORCE INDEX ({index}) WHERE {'d < 1000 OR d IS NULL' if index == 'da' else 'id > 0'}")[0][0] in (3000, 1000)
        if engine != "InnoDB":
            named = run(connection, "SELECT TABLE_NAME, INDEX_NAME FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd'")
            t_and_p = len(indexes(connection)) + 4 * len(indexes(connection, "p"))
            assert len(named) == t_and_p, named
        run(connection, "ALTER TABLE t ADD KEY after (a)")
        run(connection, "ALTER TABLE t DROP KEY after")
    assert steps > 4, f"{steps} steps prove little"


def test_a_copy_has_all_rows_in_any_input_order(db, engine):
    filled(db, engine, 5000)
    run(db, "ALTER TABLE t ADD KEY a (a), ADD UNIQUE b (b), ADD KEY c (c)")
    before = contents(db, ["t"])
    run(db, "ALTER TABLE t FORCE, ALGORITHM=COPY")
    assert contents(db, ["t"]) == before and is_whole(db)
    # Another key than the one they lie under: first in its order, then not at all, then the rest of it.
    run(db, "ALTER TABLE t ADD e INT NOT NULL DEFAULT 0")
    run(db, "UPDATE t SET e = IF(id < 3000, id, 5001 - id + 3000)")
    run(db, "ALTER TABLE t MODIFY id INT, DROP PRIMARY KEY, ADD PRIMARY KEY (e, id), MODIFY a BIGINT")
    run(db, "ALTER TABLE t ENGINE=InnoDB")
    run(db, f"ALTER TABLE t ENGINE={engine}")
    run(db, "ALTER TABLE t DROP COLUMN e, DROP PRIMARY KEY, MODIFY id INT AUTO_INCREMENT PRIMARY KEY")
    assert contents(db, ["t"]) == before and is_whole(db)
    run(db, "INSERT INTO t (a) VALUES (1)")
    assert run(db, "SELECT MAX(id) FROM t") > [(5000,)]
    run(db, f"CREATE TABLE s (KEY (c), UNIQUE (b)) ENGINE={engine} SELECT * FROM t")
    assert contents(db, ["s"])["s"] == contents(db, ["t"])["t"] and is_whole(db, "s")


def test_a_duplicate_in_a_copy_is_named(db, engine):
    filled(db, engine, 3000)
    run(db, "UPDATE t SET b = 'b7' WHERE id = 2500")
    before = contents(db, ["t"])
    error = refused(db, "ALTER TABLE t MODIFY a BIGINT, ADD UNIQUE b (b), ALGORITHM=COPY")
    assert error[0] == 1062 and "'b7' for key 'b'" in error[1], error
    error = refused(db, "ALTER TABLE t MODIFY id INT, DROP PRIMARY KEY, MODIFY b VARCHAR(40) PRIMARY KEY")
    assert error[0] == 1062 and "'b7' for key 'PRIMARY'" in error[1], error
    error = refused(db, f"CREATE TABLE s (UNIQUE u (b)) ENGINE={engine} SELECT * FROM t")
    assert error[0] == 1062 and "'b7' for key 'u'" in error[1], error
    assert contents(db, ["t"]) == before and is_whole(db) and run(db, "SHOW TABLES") == [("t",)]
    run(db, "ALTER IGNORE TABLE t MODIFY a BIGINT, ADD UNIQUE b (b), ALGORITHM=COPY")
    assert run(db, "SELECT COUNT(*) FROM t") == [(2999,)] and is_whole(db)


def test_an_older_view_cannot_read_a_copied_table(db, server, engine):
    filled(db, engine, 200)
    run(db, f"CREATE TABLE other (id INT PRIMARY KEY) ENGINE={engine}")
    old = server.connect(database=db.name)
    run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    run(db, "UPDATE t SET a = 5")
    run(db, "ALTER TABLE t MODIFY a BIGINT, ALGORITHM=COPY")
    assert refused(old, "SELECT COUNT(*) FROM t WHERE a = 5")[0] == 1412
    run(old, "COMMIT")
    assert run(old, "SELECT COUNT(*) FROM t WHERE a = 5") == [(200,)]


def test_virtual_columns_are_added_and_dropped_in_place(db, engine):
    """Rows have nothing of them; an index of a new one is built in the same statement."""
    filled(db, engine)
    run(db, "ALTER TABLE t ADD COLUMN twice INT AS (a * 2) VIRTUAL, ALGORITHM=INSTANT")
    assert run(db, "SELECT COUNT(*), SUM(twice = a * 2) FROM t") == [(3000, 3000)]
    run(db, "ALTER TABLE t ADD COLUMN low VARCHAR(40) AS (LOWER(b)) VIRTUAL, ADD KEY kl (low, twice), ALGORITHM=NOCOPY, LOCK=NONE")
    assert run(db, "SELECT id, low FROM t FORCE INDEX (kl) WHERE low = 'b77'") == [(77, "b77")] and is_whole(db)
    run(db, "UPDATE t SET a = a + 1, b = CONCAT('c', id) WHERE id > 2900")
    run(db, "INSERT INTO t (a, b) VALUES (-1, 'Z')")
    assert run(db, "SELECT a, twice FROM t FORCE INDEX (kl) WHERE low = 'z'") == [(-1, -2)] and is_whole(db)
    code, text = refused(db, "ALTER TABLE t ADD COLUMN tens INT AS (a DIV 10) VIRTUAL, ADD UNIQUE KEY ku (tens), ALGORITHM=NOCOPY")
    assert code == 1062 and "'ku'" in text
    assert indexes(db) == ["PRIMARY", "kl"]
    run(db, "ALTER TABLE t DROP COLUMN low, ALGORITHM=COPY")
    before = contents(db, ["t"])
    run(db, "ALTER TABLE t DROP COLUMN twice, DROP KEY kl, ALGORITHM=INSTANT")
    run(db, "ALTER TABLE t ADD COLUMN twice INT AS (a * 2) VIRTUAL, ALGORITHM=INSTANT")
    assert contents(db, ["t"]) == before and is_whole(db)
    # Where the bits of NULL would lie elsewhere in stored rows, they are copied.
    run(db, f"CREATE TABLE bits (id INT PRIMARY KEY, {', '.join(f'n{i} INT' for i in range(7))}) ENGINE={engine}")
    run(db, "INSERT INTO bits (id, n0, n6) VALUES (1, NULL, 6), (2, 0, NULL)")
    run(db, "ALTER TABLE bits ADD COLUMN v0 INT AS (id) VIRTUAL FIRST, ADD COLUMN v1 INT AS (n6) VIRTUAL")
    assert run(db, "SELECT v0, n0, n6, v1 FROM bits") == [(1, None, 6, 6), (2, 0, None, None)]
    run(db, "ALTER TABLE bits DROP COLUMN v0")
    assert run(db, "SELECT id, n0, n6, v1 FROM bits") == [(1, None, 6, 6), (2, 0, None, None)] and is_whole(db, "bits")


def test_alterations_that_copy_the_table_are_refused_with_lock_none(db, engine):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, -seq FROM seq_1_to_100")
    for change in ("MODIFY v BIGINT", "DROP PRIMARY KEY"):
        assert refused(db, f"ALTER TABLE t {change}, LOCK=NONE")[0] in (1845, 1846)
        run(db, f"ALTER TABLE t {change}")
        assert run(db, "SELECT COUNT(*), SUM(v) FROM t") == [(100, -5050)]


@pytest.mark.parametrize("before, after", [("VARCHAR(3000) COMPRESSED", "VARCHAR(3100)"), ("VARCHAR(3000)", "VARCHAR(3000) COMPRESSED"), ("VARCHAR(100)", "VARCHAR(200) COMPRESSED"),
                                           ("VARCHAR(200) COMPRESSED", "VARCHAR(300)"), ("TEXT COMPRESSED", "TEXT"), ("TEXT", "TEXT COMPRESSED")])
def test_turning_a_columns_compression_on_or_off_rewrites_the_table(db, engine, before, after):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, c {before}, d INT) ENGINE={engine} DEFAULT CHARSET=latin1")
    run(db, "INSERT INTO t VALUES (1, REPEAT('a', 90), 1), (2, 'x', 2), (3, '', 3), (4, NULL, 4)")
    rows = run(db, "SELECT * FROM t")
    assert refused(db, f"ALTER TABLE t MODIFY c {after}, ALGORITHM=INPLACE")[0] == 1846
    run(db, f"ALTER TABLE t MODIFY c {after}")
    assert run(db, "SELECT * FROM t") == rows and is_whole(db)


def test_a_compressed_column_is_made_longer_at_once(db, engine):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(3000) COMPRESSED) ENGINE={engine} DEFAULT CHARSET=latin1")
    run(db, "INSERT INTO t VALUES (1, REPEAT('a', 90)), (2, 'x'), (3, '')")
    rows = run(db, "SELECT * FROM t")
    run(db, "ALTER TABLE t MODIFY c VARCHAR(3100) COMPRESSED, ALGORITHM=INSTANT")
    assert run(db, "SELECT * FROM t") == rows and is_whole(db)
