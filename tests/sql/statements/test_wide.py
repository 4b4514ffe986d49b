"""Rows too large for a leaf: a query that reads no column, or not the large one, doesn't fetch the large one; if a row is large without a large
column, a query of columns at its start fetches only the start.
Answers are compared with InnoDB's, or with those of a read of all columns."""

import re

import pytest

from conftest import run

ROWS, BIG = 40, 100_000
PAGES = BIG // 16320 + 1  # of a large value
LARGE = [n for n in range(1, ROWS + 1) if n % 7 and n % 3]
TABLE = """CREATE TABLE {name} (
    id {id}, v INT NOT NULL, n INT, name VARCHAR(50), code CHAR(20), big LONGTEXT, tail VARCHAR(20), last DATE,
    g INT AS (v * 2) VIRTUAL, h INT AS (LENGTH(big)) VIRTUAL, s INT AS (v + 1) STORED, {keys}
) ENGINE={engine} {options}"""
SHAPES = {
    "plain": ("INT NOT NULL", "PRIMARY KEY (id), KEY v (v)", ""),
    "descending": ("BIGINT NOT NULL", "PRIMARY KEY (v DESC, id DESC), KEY name (name(3))", ""),
    "text": ("VARCHAR(30) NOT NULL", "PRIMARY KEY (id), KEY v (v), KEY g (g)", ""),
    "real": ("DOUBLE NOT NULL", "PRIMARY KEY (id, v), KEY v (v), KEY last (last)", ""),
    "start": ("VARCHAR(30) NOT NULL", "PRIMARY KEY (id(8)), KEY v (v), KEY big (big(10))", ""),
    "hidden": ("INT NOT NULL", "KEY v (v), KEY last (last)", ""),
    "parts": ("INT NOT NULL", "PRIMARY KEY (id), KEY v (v), KEY n (n)", "PARTITION BY HASH (id) PARTITIONS 3"),
}
COLUMNS = "id, v, n, name, code, big, tail, last"


def row(n):
    """Of three rows one is small; some columns are NULL."""
    big = None if n % 7 == 0 else "s" * n if n % 3 == 0 else chr(97 + n % 26) * (BIG + n)
    return (n, n % 11, None if n % 5 == 0 else n * n, None if n % 4 == 0 else f"name {n} " * (n % 5), f"c{n}", big, f"tail {n}", f"2020-01-{n % 28 + 1:02}")


def make(connection, name, shape, engine):
    kind, keys, options = SHAPES[shape]
    run(connection, TABLE.format(name=name, id=kind, keys=keys, engine=engine, options=options))
    insert(connection, name, range(1, ROWS + 1))


def insert(connection, table, numbers):
    connection.cursor().executemany(f"INSERT INTO {table} ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", [row(n) for n in numbers])


def pages_read(connection, sql):
    """The statement's answer, and how many pages it read."""
    def pages():
        counters = run(connection, "SHOW SESSION STATUS LIKE 'Terrace_session_pages_%'")
        return sum(int(value) for name, value in counters if not name.endswith("ahead"))

    run(connection, sql)  # its tables are open, and their statistics read
    before = pages()
    answer = run(connection, sql)
    return answer, pages() - before


@pytest.fixture
def plain(db):
    make(db, "t", "plain", "Terrace")
    run(db, "CREATE TABLE k (id INT NOT NULL PRIMARY KEY) ENGINE=Terrace AS SELECT id FROM t WHERE id % 2")
    return db


@pytest.mark.parametrize("sql, answer, most", [
    ("SELECT COUNT(*) FROM t IGNORE INDEX (v)", ROWS, 10),
    ("SELECT SUM(id) FROM t IGNORE INDEX (v)", ROWS * (ROWS + 1) // 2, 10),
    ("SELECT SUM(id) FROM t IGNORE INDEX (v, PRIMARY)", ROWS * (ROWS + 1) // 2, 10),
    ("SELECT COUNT(*) FROM t WHERE id BETWEEN 3 AND 30", 28, 10),
    ("SELECT COUNT(*) FROM t IGNORE INDEX (v) LOCK IN SHARE MODE", ROWS, ROWS),
    ("SELECT EXISTS (SELECT * FROM t IGNORE INDEX (v) WHERE id > 20)", 1, 10),
    ("SELECT COUNT(*) FROM k WHERE EXISTS (SELECT 1 FROM t WHERE t.id = k.id)", ROWS // 2, ROWS),
    ("SELECT COUNT(*) FROM k STRAIGHT_JOIN t ON t.id = k.id", ROWS // 2, ROWS),
    ("SELECT GROUP_CONCAT(id ORDER BY id DESC LIMIT 2) = '40,39' FROM t IGNORE INDEX (v)", 1, 10),
])
def test_columns_of_the_key_are_read_from_the_key(plain, sql, answer, most):
    found, read = pages_read(plain, sql)
    assert found == [(answer,)]
    assert read <= most
    assert pages_read(plain, "SELECT SUM(LENGTH(big)) FROM t")[1] >= len(LARGE) * PAGES


@pytest.mark.parametrize("columns", ["v, id", "n, last", "name, code, id", "id, s", "code", "tail, v"])
def test_columns_beside_a_large_value_are_read_without_its_pages(plain, columns):
    expected = dict(zip(COLUMNS.split(", ") + ["s"], zip(*run(plain, f"SELECT {COLUMNS}, s FROM t ORDER BY id"))))
    for where, most in (("IGNORE INDEX (v)", 10), ("FORCE INDEX (v) WHERE v >= 0", 4 * ROWS)):
        found, read = pages_read(plain, f"SELECT {columns} FROM t {where}")
        assert sorted(map(str, found)) == sorted(map(str, zip(*(expected[name] for name in columns.split(", "))))), where
        assert read <= most, where
    found, read = pages_read(plain, f"SELECT {columns}, big FROM t IGNORE INDEX (v)")
    assert sorted(map(str, found)) == sorted(map(str, zip(*(expected[name] for name in columns.split(", ") + ["big"]))))
    assert read >= len(LARGE) * PAGES


@pytest.mark.parametrize("columns, most", [("id", 10), ("id, first", ROWS + 10), ("first, n3", ROWS + 10), ("last", 3 * ROWS + 10)])
def test_only_the_start_is_read_of_rows_with_many_short_columns(db, engine, columns, most):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    many = [f"n{n}" for n in range(150)]
    run(db, f"CREATE TABLE m (id INT PRIMARY KEY, first INT, {', '.join(f'{name} VARCHAR(250)' for name in many)}, last INT) ENGINE=Terrace CHARSET=latin1")
    rows = [(n, n * 2, *(f"{n} {name} " * 20 for name in many), n * 3) for n in range(ROWS)]
    db.cursor().executemany(f"INSERT INTO m VALUES ({', '.join(['%s'] * 153)})", rows)
    run(db, "UPDATE m SET first = first + 1, last = last + 1 WHERE id % 2")
    of = {"id": 0, "first": 1, "n3": 5, "last": 152}
    found, read = pages_read(db, f"SELECT {columns} FROM m")
    changed = [tuple(value + 1 if at in (1, 152) and one[0] % 2 else value for at, value in enumerate(one)) for one in rows]
    assert found == [tuple(one[of[name]] for name in columns.split(", ")) for one in changed]
    assert read <= most
    assert run(db, "SELECT * FROM m ORDER BY id") == changed


NARROW = ["id", "v", "id, v", "n, last", "name", "code, id", "COUNT(*)", "SUM(id)", "SUM(v), MAX(name)", "s, id", "tail"]


def is_seen(connection, where=""):
    """Reads of some columns see the rows that a read of all columns sees, which it returns."""
    names = COLUMNS.split(", ") + ["s"]
    rows = run(connection, f"SELECT {COLUMNS}, s FROM t IGNORE INDEX (v) ORDER BY id {where}")
    of = {name: [one[at] for one in rows] for at, name in enumerate(names)}
    of |= {"COUNT(*)": [len(rows)], "SUM(id)": [sum(of["id"]) if rows else None], "SUM(v)": [sum(of["v"]) if rows else None],
           "MAX(name)": [max((name for name in of["name"] if name is not None), default=None)]}
    for hint in ("IGNORE INDEX (v)", "FORCE INDEX (v)", "IGNORE INDEX (v, PRIMARY)"):
        for columns in NARROW:
            condition = "WHERE v > -1" if hint.startswith("FORCE") else ""
            order = "" if "(" in columns else "ORDER BY id"
            found = run(connection, f"SELECT {columns} FROM t {hint} {condition} {order} {where}")
            assert found == list(zip(*(of[name] for name in columns.split(", ")))), (columns, hint)
    return rows


@pytest.mark.parametrize("level", ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_view_sees_its_versions_of_large_rows(server, plain, level):
    other = server.connect(database=plain.name)
    run(plain, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    run(plain, "START TRANSACTION")
    before = is_seen(plain)
    if level == "SERIALIZABLE":
        run(plain, "COMMIT")
    run(other, "START TRANSACTION")
    run(other, "UPDATE t SET v = v + 100, name = 'another' WHERE id % 4 = 1")
    run(other, f"UPDATE t SET big = REPEAT('z', {BIG // 2}) WHERE id % 4 = 2")
    run(other, "UPDATE t SET big = 'small now' WHERE id % 8 = 3")
    run(other, "DELETE FROM t WHERE id % 8 = 4")
    insert(other, "t", [50, 52])
    if level in ("READ COMMITTED", "REPEATABLE READ"):
        assert is_seen(plain) == before
    elif level == "READ UNCOMMITTED":
        assert len(is_seen(plain)) == len(before) - 5 + 2
    run(other, "COMMIT")
    if level == "SERIALIZABLE":
        run(plain, "START TRANSACTION")
    now = is_seen(other)
    assert len(now) == len(before) - 5 + 2
    assert is_seen(plain) == (before if level == "REPEATABLE READ" else now)
    # One's own changes are seen, over those of others.
    run(plain, f"UPDATE t SET big = REPEAT('y', {BIG}), n = 7 WHERE id % 5 = 0")
    run(plain, "UPDATE t SET id = id + 1000 WHERE id IN (7, 8, 50)")
    run(plain, "DELETE FROM t WHERE id IN (1, 2, 3)")
    insert(plain, "t", [60, 61])
    own = {one[0]: one for one in is_seen(plain)}
    assert own[10][2] == 7 and own[1008][5] and not {1, 2, 3, 7, 8, 50} & own.keys() and {60, 61} <= own.keys()
    run(plain, "SAVEPOINT here")
    run(plain, "DELETE FROM t WHERE id > 20")
    assert not {21, 22, 23, 60, 61} & {one[0] for one in is_seen(plain)}
    run(plain, "ROLLBACK TO here")
    assert {one[0]: one for one in is_seen(plain)} == own
    run(plain, "ROLLBACK")
    run(plain, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert is_seen(plain) == now


def test_a_handler_reads_whole_rows(plain):
    run(plain, "HANDLER t OPEN")
    assert run(plain, "HANDLER t READ FIRST WHERE v = 4")[0][5] == row(4)[5]
    assert [one[:6] for one in run(plain, "HANDLER t READ `PRIMARY` > (4) LIMIT 3")] == [row(n)[:6] for n in (5, 6, 7)]
    assert run(plain, "SELECT COUNT(*) FROM t IGNORE INDEX (v)") == [(ROWS,)]
    assert [one[:6] for one in run(plain, "HANDLER t READ `PRIMARY` NEXT LIMIT 2")] == [row(n)[:6] for n in (8, 9)]
    assert [one[:6] for one in run(plain, "HANDLER t READ `v` >= (10) LIMIT 2")] == [row(n)[:6] for n in (10, 21)]
    run(plain, "HANDLER t CLOSE")


READS = [
    "SELECT COUNT(*) FROM t", "SELECT id FROM t", "SELECT v FROM t", "SELECT n, name FROM t", "SELECT tail FROM t", "SELECT g, v FROM t", "SELECT h FROM t", "SELECT s FROM t",
    "SELECT id, LENGTH(big), MD5(big) FROM t WHERE v BETWEEN 3 AND 6", "SELECT DISTINCT v FROM t", "SELECT v, COUNT(*), MAX(n) FROM t GROUP BY v",
    "SELECT * FROM t ORDER BY n DESC, id LIMIT 7", "SELECT id, v FROM t ORDER BY name, id", "SELECT MD5(big) FROM t ORDER BY n + v, id LIMIT 5",
    "SELECT a.id, b.v, b.n FROM t a JOIN t b ON b.id = a.v ORDER BY 1", "SELECT a.id FROM t a LEFT JOIN t b ON b.v = a.n AND b.id <> a.id WHERE b.id IS NULL",
    "SELECT COUNT(*) FROM t WHERE id IN (SELECT v FROM t)", "SELECT id FROM t WHERE NOT EXISTS (SELECT * FROM t x WHERE x.v = t.id)",
    "SELECT id, n FROM t WHERE v = 3 OR id = 17", "SELECT id FROM t WHERE v = 3 AND id > 5 ORDER BY id", "SELECT MIN(id), MAX(id), MAX(v) FROM t",
    "SELECT id, ROW_NUMBER() OVER (ORDER BY v, id) FROM t", "SELECT code FROM t WHERE name LIKE 'name 1%'", "SELECT n IS NULL, COUNT(*) FROM t GROUP BY 1",
    "SELECT last, v FROM t WHERE last > '2020-01-20' ORDER BY last, v, id", "SELECT COUNT(*) FROM t WHERE big LIKE 'a%'", "SELECT v FROM t WHERE g = 6",
    "WITH RECURSIVE r AS (SELECT MIN(id) AS id FROM t UNION SELECT t.id + 0 FROM t JOIN r ON t.v = r.id) SELECT COUNT(*) FROM r",
]


@pytest.mark.parametrize("shape", SHAPES)
def test_answers_are_innodbs(db, engine, shape):
    make(db, "theirs", shape, "InnoDB")
    make(db, "ours", shape, engine)

    def compare():
        for sql in READS:
            ordered = "ORDER BY" in sql and "OVER" not in sql
            named = (re.sub(r"(FROM|JOIN) t( [abx]\b)?", lambda found: f"{found[1]} {name}{found[2] or ' t'}", sql) for name in ("theirs", "ours"))
            theirs, ours = ([str(one) for one in run(db, one)] for one in named)
            assert (theirs if ordered else sorted(theirs)) == (ours if ordered else sorted(ours)), sql

    def change(sql):
        for name in ("theirs", "ours"):
            run(db, sql.format(name))

    compare()
    change("UPDATE {} SET v = v + 20 WHERE n > 900")
    change("UPDATE {} SET big = CONCAT(big, 'more'), tail = LEFT(name, 20) WHERE v < 3")
    change("DELETE FROM {} WHERE v = 5")
    change("UPDATE {} a, (SELECT 4 AS v) b SET a.n = NULL WHERE a.v = b.v")
    compare()
    # Rows of an earlier layout.
    more = ", DROP COLUMN last, ALGORITHM=INSTANT" if "last" not in SHAPES[shape][1] and "g (g)" not in SHAPES[shape][1] else ""
    change("ALTER TABLE {} ADD COLUMN early VARCHAR(30) NOT NULL DEFAULT 'e' AFTER v, ADD COLUMN late INT DEFAULT 5" + more)
    change("UPDATE {} SET early = REPEAT('x', v), late = v WHERE v IN (6, 7)")
    for sql in ("SELECT early, v FROM {}", "SELECT late FROM {}", "SELECT v, late, early, code FROM {}", "SELECT id, tail, late FROM {}", "SELECT COUNT(*), SUM(late) FROM {}"):
        assert sorted(map(str, run(db, sql.format("theirs")))) == sorted(map(str, run(db, sql.format("ours")))), sql


def test_triggers_changes_and_checks_read_whole_large_rows(db, engine):
    """Triggers, INSERT … SELECT, multi-table changes, CHECKSUM, CHECK."""
    for name, kind in (("theirs", "InnoDB"), ("ours", engine)):
        make(db, name, "plain", kind)
        run(db, f"CREATE TABLE log_{name} (id INT, old LONGTEXT, v INT) ENGINE=InnoDB")
        run(db, f"CREATE TRIGGER a_{name} AFTER UPDATE ON {name} FOR EACH ROW INSERT INTO log_{name} VALUES (OLD.id, MD5(OLD.big), NEW.v)")
        run(db, f"CREATE TRIGGER b_{name} BEFORE DELETE ON {name} FOR EACH ROW INSERT INTO log_{name} VALUES (OLD.id, MD5(OLD.big), OLD.v)")
        run(db, f"UPDATE {name} SET v = v + 1 WHERE id < 20")
        run(db, f"DELETE FROM {name} WHERE v = 9")
        run(db, f"INSERT INTO {name} ({COLUMNS}) SELECT id + 100, v, n, name, code, big, tail, last FROM {name} WHERE v < 3")
        run(db, f"INSERT INTO {name} (id, v) SELECT id + 200, v FROM {name} WHERE v > 8")
        run(db, f"INSERT INTO {name} (id, v) VALUES (4, 1) ON DUPLICATE KEY UPDATE n = VALUES(v) + v, tail = LEFT(big, 3)")
        run(db, f"REPLACE INTO {name} (id, v, big) SELECT id, v, n FROM {name} WHERE id = 5")
        run(db, f"DELETE a FROM {name} a JOIN {name} b ON a.id = b.id + 1 WHERE b.v = 2")
        run(db, f"UPDATE {name} a JOIN {name} b ON a.id = b.id + 2 SET a.n = b.v WHERE b.n > 100")
    for sql in ("SELECT * FROM {} ORDER BY id", "SELECT * FROM log_{} ORDER BY id, v, old", "SELECT COUNT(*), SUM(id), SUM(v) FROM {}"):
        assert run(db, sql.format("theirs")) == run(db, sql.format("ours")), sql
    run(db, "CREATE TABLE copied LIKE ours")
    run(db, f"INSERT INTO copied ({COLUMNS}) SELECT {COLUMNS} FROM ours")
    assert run(db, "CHECKSUM TABLE ours")[0][1] == run(db, "CHECKSUM TABLE copied")[0][1] != 0
    assert run(db, "CHECK TABLE ours")[0][3] == "OK"
