"""Rows versioned by transaction: BIGINT columns of the transaction that wrote a version and of the one that ended it, and the server's registry."""

import pymysql
import pytest
from conftest import end, private

OPEN_END = 2**64 - 1
COLUMNS = "s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START INVISIBLE, e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END INVISIBLE, PERIOD FOR SYSTEM_TIME (s, e)"
REGISTRY = "mysql.transaction_registry"


def versioned(engine, columns, more="", name="t"):
    return f"CREATE TABLE {name} ({columns}, {COLUMNS}) ENGINE={engine} WITH SYSTEM VERSIONING {more}"


class Names:
    """Numbers of transactions differ from run to run: @1, @2, by the order in which they are met."""

    def __init__(self):
        self.seen = {}

    def answer(self, db, sql):
        cursor = db.cursor()
        cursor.execute(sql)
        numbered = [column[0] in ("s", "e") for column in cursor.description or ()]
        rows = cursor.fetchall()[-1:] if sql.startswith("CHECK") else cursor.fetchall()  # before the verdict come warnings
        return [tuple(self.of(value) if here else value for here, value in zip(numbered, row)) for row in rows]

    def of(self, value):
        return value if value in (None, OPEN_END) else self.seen.setdefault(value, f"@{len(self.seen) + 1}")


def both(db, run, script):
    """What InnoDB and Terrace answer to a script; {E} is the engine, {n} the n-th number that was seen."""
    seen = []
    for engine in ("InnoDB", "Terrace"):
        run(db, "DROP TABLE IF EXISTS t, u")
        names, answers = Names(), []
        for sql in script:
            text = sql.replace("{E}", engine)
            for number, name in list(names.seen.items()):
                text = text.replace("{" + name[1:] + "}", str(number))
            try:
                answers.append((sql, names.answer(db, text)))
            except pymysql.err.MySQLError as error:
                answers.append((sql, error.args[0]))
        seen.append(answers)
    run(db, "DROP TABLE IF EXISTS t, u")
    return seen


ALL = "SELECT *, s, e FROM t FOR SYSTEM_TIME ALL ORDER BY e, s, 1, 2"
WRITES = [
    "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30), (4, 40)", ALL,
    "UPDATE t SET a = a + 1 WHERE id < 3", ALL, "SELECT * FROM t ORDER BY 1",
    "DELETE FROM t WHERE id = 1", ALL,
    "REPLACE INTO t VALUES (2, 99), (9, 90)", ALL,
    "INSERT INTO t VALUES (3, 1) ON DUPLICATE KEY UPDATE a = a + 1", ALL,
    "UPDATE t SET id = id + 100 WHERE id IN (2, 3)", ALL,
    "UPDATE t SET a = a", ALL,
    "BEGIN", "INSERT INTO t VALUES (50, 1)", "UPDATE t SET a = 2 WHERE id = 50", "UPDATE t SET a = 3 WHERE id IN (50, 4)", "UPDATE t SET a = 4 WHERE id IN (50, 4)",
    "DELETE FROM t WHERE id IN (50, 4)", "INSERT INTO t VALUES (4, 5)", "DELETE FROM t WHERE id = 4", "COMMIT", ALL,
    "BEGIN", "UPDATE t SET a = 7", "ROLLBACK", ALL,
    "BEGIN", "SAVEPOINT x", "UPDATE t SET a = 7", "ROLLBACK TO x", "COMMIT", ALL,
    "UPDATE t, (SELECT 9 AS i) x SET a = 8 WHERE id = i", ALL, "DELETE t FROM t, (SELECT 9 AS i) x WHERE id = i", ALL,
    "UPDATE IGNORE t SET id = 102", ALL,
    "DELETE HISTORY FROM t", ALL,
    "TRUNCATE TABLE t", "CHECK TABLE t EXTENDED",
]


@pytest.mark.parametrize("columns, more", [
    ("id INT PRIMARY KEY, a INT", ""), ("id INT UNIQUE, a INT, KEY (a)", ""), ("id INT, a INT", ""), ("id INT PRIMARY KEY, a INT WITHOUT SYSTEM VERSIONING", ""),
    ("id INT PRIMARY KEY, a INT, ended BIGINT UNSIGNED AS (e) VIRTUAL INVISIBLE, KEY (ended)", ""),
    ("id INT PRIMARY KEY, a INT", "PARTITION BY HASH (id) PARTITIONS 3")])
def test_versions_are_those_of_innodb(db, run, columns, more):
    first, second = both(db, run, [versioned("{E}", columns, more)] + WRITES)
    for one, other in zip(first, second):
        assert one == other


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_as_of_transaction_and_time(db, run, level):
    """The registry has each transaction that wrote versions; the past is what its number, or its time, says."""
    history = [f"SET SESSION TRANSACTION ISOLATION LEVEL {level}", versioned("{E}", "id INT PRIMARY KEY, a INT"), "INSERT INTO t VALUES (1, 10), (2, 20)",
               "SELECT s FROM t LIMIT 1", "SELECT SLEEP(0.002)", "UPDATE t SET a = 11 WHERE id = 1", "SELECT s FROM t WHERE id = 1",
               "SELECT commit_timestamp INTO @then FROM mysql.transaction_registry WHERE transaction_id = {2}",
               "SELECT SLEEP(0.002)", "DELETE FROM t WHERE id = 2", "SELECT e FROM t FOR SYSTEM_TIME ALL WHERE id = 2"]
    asks = [f"SELECT * FROM t FOR SYSTEM_TIME {when} ORDER BY id, a" for when in (
        "AS OF TRANSACTION {1}", "AS OF TRANSACTION {2}", "AS OF TRANSACTION {3}", "AS OF TIMESTAMP @then", "AS OF TIMESTAMP '1990-01-01'", "AS OF TIMESTAMP '2037-01-01'",
        "FROM TRANSACTION {1} TO TRANSACTION {2}", "BETWEEN TRANSACTION {2} AND TRANSACTION {3}", "FROM TIMESTAMP '1990-01-01' TO TIMESTAMP @then", "ALL")]
    registry = [f"SELECT isolation_level, commit_id > transaction_id, commit_timestamp >= begin_timestamp FROM {REGISTRY} WHERE transaction_id IN ({{1}}, {{2}}, {{3}})",
                "DELETE HISTORY FROM t BEFORE SYSTEM_TIME TRANSACTION {3}", ALL]
    first, second = both(db, run, history + asks + registry)
    for one, other in zip(first, second):
        assert one == other
    assert [answer for _, answer in second][-len(asks) - len(registry):][:3] == [[(1, 10), (2, 20)], [(1, 11), (2, 20)], [(1, 11)]]


def test_only_transactions_that_write_versions_are_registered(db, run, engine):
    def registered():
        return run(db, f"SELECT COUNT(*) FROM {REGISTRY}")[0][0]

    run(db, versioned(engine, "id INT PRIMARY KEY, a INT"))
    run(db, f"CREATE TABLE u (id INT PRIMARY KEY) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 1)")
    before = registered()
    run(db, "INSERT INTO u VALUES (1)")
    run(db, "SELECT * FROM t")
    for script in (["UPDATE t SET a = 2", "ROLLBACK"], ["SAVEPOINT x", "UPDATE t SET a = 2", "ROLLBACK TO x", "INSERT INTO u VALUES (2)", "COMMIT"]):
        run(db, "BEGIN")
        for sql in script:
            run(db, sql)
    # A statement that fails takes its versions back.
    run(db, "BEGIN")
    with pytest.raises(pymysql.err.IntegrityError):
        run(db, "INSERT INTO t VALUES (5, 5), (1, 1)")
    run(db, "COMMIT")
    assert registered() == before
    run(db, "BEGIN")
    run(db, "UPDATE t SET a = 3")
    run(db, "SAVEPOINT x")
    run(db, "UPDATE t SET a = 4")
    run(db, "ROLLBACK TO x")
    run(db, "COMMIT")
    assert registered() == before + 1


def test_system_versioning_is_added_and_dropped(db, run):
    add = "ALTER TABLE t ADD COLUMN s BIGINT UNSIGNED AS ROW START INVISIBLE, ADD COLUMN e BIGINT UNSIGNED AS ROW END INVISIBLE, ADD PERIOD FOR SYSTEM_TIME(s, e), ADD SYSTEM VERSIONING"
    counted = f"SELECT COUNT(*) FROM {REGISTRY} WHERE transaction_id = {{1}}"
    script = ["CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE={E}", "INSERT INTO t VALUES (1, 1), (2, 2)", add, ALL, counted, "UPDATE t SET a = 3 WHERE id = 1", ALL,
              "ALTER TABLE t ADD COLUMN b INT DEFAULT 7", "SET system_versioning_alter_history = KEEP", "ALTER TABLE t ADD COLUMN b INT DEFAULT 7", ALL,
              "ALTER TABLE t ADD KEY (b)", ALL, "ALTER TABLE t ENGINE=Aria", "ALTER TABLE t DROP SYSTEM VERSIONING", "SELECT * FROM t ORDER BY id",
              "SET system_versioning_alter_history = DEFAULT"]
    first, second = both(db, run, script)
    for one, other in zip(first, second):
        assert one == other


@pytest.mark.parametrize("columns", ["row_start TIMESTAMP(6) AS ROW START INVISIBLE, row_end TIMESTAMP(6) AS ROW END INVISIBLE, PERIOD FOR SYSTEM_TIME (row_start, row_end)", COLUMNS, ""])
def test_columns_are_added_and_dropped_beside_history(db, run, columns):
    """History is rows as others are: they keep the layout they were written in."""
    create = f"CREATE TABLE t (id INT PRIMARY KEY, a INT, c VARCHAR(10), KEY (a){', ' if columns else ''}{columns}) ENGINE={{E}} WITH SYSTEM VERSIONING"
    script = [create, "SET system_versioning_alter_history = KEEP", "INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')", "SELECT SLEEP(0.002)", "UPDATE t SET a = 3 WHERE id = 1"]
    for change in ("ADD COLUMN b INT DEFAULT 7", "ADD COLUMN d VARCHAR(5) NOT NULL DEFAULT 'new' FIRST", "DROP COLUMN a", "MODIFY c VARCHAR(20)", "MODIFY b INT AFTER id",
                   "MODIFY b INT DEFAULT 7 WITHOUT SYSTEM VERSIONING", "ADD KEY (c)", "RENAME COLUMN c TO cc"):
        script += [f"ALTER TABLE t {change}, ALGORITHM=NOCOPY", "SELECT * FROM t FOR SYSTEM_TIME ALL ORDER BY id, b, d", "SELECT SLEEP(0.002)", "UPDATE t SET b = b + 1 WHERE id = 2", "SELECT * FROM t FOR SYSTEM_TIME ALL ORDER BY id, b, d"]
    script += ["DELETE FROM t WHERE id = 1", "SELECT *, row_end > '2037-01-01' FROM t FOR SYSTEM_TIME ALL ORDER BY id, b, d" if not columns else ALL.replace("1, 2", "id, b"), "CHECK TABLE t EXTENDED"]
    script += ["ALTER TABLE t DROP SYSTEM VERSIONING, LOCK=NONE", "ALTER TABLE t ADD COLUMN z INT AUTO_INCREMENT UNIQUE, ALGORITHM=COPY", "SELECT COUNT(*) FROM t FOR SYSTEM_TIME ALL", "SET system_versioning_alter_history = DEFAULT"]
    if columns.startswith("row_start"):
        script = [sql.replace("*, s, e", "*").replace("e, s, id", "row_end, row_start, id") for sql in script]
    first, second = both(db, run, script)
    for one, other in zip(first, second):
        assert one == other
    assert not [answer for sql, answer in second if "NOCOPY" in sql and answer]


def test_numbers_grow_over_restarts_and_crashes(run):
    server = private()
    try:
        db = server.connect()
        run(db, "CREATE DATABASE v")
        run(db, versioned("Terrace", "id INT PRIMARY KEY, a INT", name="v.t"))
        run(db, "INSERT INTO v.t VALUES (1, 0)")
        for turn in range(4):
            run(db, "UPDATE v.t SET a = a + 1")
            server.kill9() if turn % 2 else server.stop()
            server.start()
            db = server.connect()
        rows = run(db, "SELECT a, s, e FROM v.t FOR SYSTEM_TIME ALL ORDER BY a")
        assert [row[0] for row in rows] == [0, 1, 2, 3, 4]
        numbers = [number for row in run(db, f"SELECT transaction_id, commit_id FROM {REGISTRY} ORDER BY commit_id") for number in row]
        assert numbers == sorted(set(numbers)) and len(numbers) == 10
        assert [row[1] for row in rows] == numbers[::2]
        assert [row[2] for row in rows] == numbers[2::2] + [OPEN_END]
        # InnoDB counts from 1: what both engines write stands in one registry.
        assert numbers[0] > 2**48
        run(db, versioned("InnoDB", "id INT PRIMARY KEY, a INT", name="v.u"))
        run(db, "INSERT INTO v.u VALUES (1, 0)")
        assert run(db, f"SELECT COUNT(*) FROM {REGISTRY}") == [(6,)]
    finally:
        end(server)


def test_concurrent_writers_of_versions_keep_their_order(server, db, run, engine):
    """Neither sees the other: the later one began before the first had committed, and the first has its number from before."""
    run(db, versioned(engine, "id INT PRIMARY KEY, a INT"))
    other = server.connect(database=run(db, "SELECT DATABASE()")[0][0])
    run(db, "BEGIN")
    run(db, "INSERT INTO t VALUES (1, 1)")
    run(other, "INSERT INTO t VALUES (2, 2)")
    run(db, "COMMIT")
    (early,), (late,) = run(db, "SELECT s FROM t ORDER BY id")
    assert early < late
    ids = dict(run(db, f"SELECT transaction_id, commit_id FROM {REGISTRY} WHERE transaction_id IN ({early}, {late})"))
    assert early < late < ids[late] < ids[early]
    assert run(db, f"SELECT * FROM t FOR SYSTEM_TIME AS OF TRANSACTION {late}") == [(2, 2)]
    assert run(db, f"SELECT * FROM t FOR SYSTEM_TIME AS OF TRANSACTION {early}") == [(1, 1)]
    other.close()


def test_a_transaction_that_wrote_versions_ends(db, run, engine):
    """InnoDB, which has the registry, joins at the commit; the session was left in a transaction that it had not begun."""
    run(db, versioned(engine, "id INT PRIMARY KEY, a INT"))
    run(db, "BEGIN")
    run(db, "INSERT INTO t VALUES (1, 1)")
    run(db, "COMMIT")
    assert run(db, "SELECT @@in_transaction") == [(0,)]
    run(db, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    run(db, "SET autocommit = 0")
    run(db, "INSERT INTO t VALUES (2, 2)")
    run(db, "COMMIT")
    assert run(db, "SELECT @@in_transaction") == [(0,)]
    run(db, "SET autocommit = 1")
    run(db, "BEGIN")
    run(db, "INSERT INTO t VALUES (3, 3)")
    run(db, "COMMIT AND CHAIN")
    assert run(db, "SELECT @@in_transaction") == [(1,)]
    run(db, "ROLLBACK")
    run(db, "SET system_versioning_alter_history = KEEP")
    run(db, "ALTER TABLE t DROP SYSTEM VERSIONING, DROP COLUMN s, DROP COLUMN e, DROP PERIOD FOR SYSTEM_TIME")
    run(db, f"ALTER TABLE t {', '.join('ADD COLUMN ' + c for c in COLUMNS.split(', PERIOD')[0].split(', '))}, ADD PERIOD FOR SYSTEM_TIME (s, e), ADD SYSTEM VERSIONING")
    run(db, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert run(db, "SELECT COUNT(*) FROM t") == [(3,)]


def test_virtual_columns_independent_of_transaction_numbers_are_computed_once(db, run):
    """They were computed again with the transaction's number, and what is a warning in a comparison failed the statement."""
    columns = "c1 VARCHAR(300), c3 BIGINT AS (IF(c1 > 5, 1, NULL)) VIRTUAL, c5 INT, KEY (c5, c3), UNIQUE KEY u (c5)"
    script = [versioned("{E}", columns), "INSERT INTO t (c1, c5) SELECT CONCAT('b', seq), seq % 7 FROM seq_1_to_6 ORDER BY seq", "UPDATE t SET c1 = '9' WHERE c5 = 1",
              "INSERT INTO t (c1, c5) SELECT CONCAT('b', seq), seq % 7 FROM seq_7_to_20 ORDER BY seq", "DELETE FROM t WHERE c5 = 2", "SELECT *, s, e FROM t FOR SYSTEM_TIME ALL ORDER BY e, s, c5", "CHECK TABLE t EXTENDED"]
    first, second = both(db, run, script)
    for one, other in zip(first, second):
        assert one == other
    # Of one another and of the number: both follow it.
    columns = "id INT PRIMARY KEY, one BIGINT UNSIGNED AS (e % 2) VIRTUAL INVISIBLE, two BIGINT UNSIGNED AS (one + 0) VIRTUAL INVISIBLE, KEY (two)"
    script = [versioned("{E}", columns), "INSERT INTO t VALUES (1), (2)", "UPDATE t SET id = 3 WHERE id = 1", "DELETE FROM t", "CHECK TABLE t EXTENDED",
              "SELECT COUNT(*) FROM t FOR SYSTEM_TIME ALL FORCE INDEX (two) WHERE two < 2", "SELECT COUNT(*) FROM t FOR SYSTEM_TIME ALL WHERE two <> e % 2"]
    first, second = both(db, run, script)
    assert first == second and first[-3:-1] == [(script[-3], [(f"{db.name}.t", "check", "status", "OK")]), (script[-2], [(3,)])]
