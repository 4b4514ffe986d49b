import random

import pymysql
import pytest

COLLATIONS = ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin", "utf8mb4_nopad_bin", "latin1_swedish_ci"]


def test_tables_without_a_primary_key(db, engine, run):
    run(db, f"CREATE TABLE t (a INT, b VARCHAR(20), KEY (a)) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1,'x'),(1,'x'),(NULL,NULL)")
    run(db, "UPDATE t SET b = 'y' WHERE a = 1 LIMIT 1")
    run(db, "DELETE FROM t WHERE a IS NULL")
    assert run(db, "SELECT a, b FROM t ORDER BY b") == [(1, "x"), (1, "y")]


def test_unique_keys_take_many_nulls_and_refuse_a_second_value(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, UNIQUE (a, b)) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1,1,NULL),(2,1,NULL),(3,1,1)")
    with pytest.raises(pymysql.err.IntegrityError) as error:
        run(db, "INSERT INTO t VALUES (4,1,1)")
    assert error.value.args[0] == 1062 and "'1-1'" in error.value.args[1]
    run(db, "INSERT IGNORE INTO t VALUES (4,1,1),(5,2,2)")
    run(db, "INSERT INTO t VALUES (6,1,1) ON DUPLICATE KEY UPDATE b = 9")
    run(db, "REPLACE INTO t VALUES (7,2,2)")
    assert run(db, "SELECT * FROM t ORDER BY id") == [(1, 1, None), (2, 1, None), (3, 1, 9), (7, 2, 2)]


def test_a_covering_index_answers_alone(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b INT, c TEXT, KEY (a, b)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, CONCAT('Name', seq % 50), seq, REPEAT('x', 100) FROM seq_1_to_2000")
    plan = run(db, "EXPLAIN SELECT a, b, id FROM t WHERE a = 'name7'")
    assert "Using index" in plan[0][-1], plan
    assert run(db, "SELECT a, COUNT(*) FROM t WHERE a = 'name7' GROUP BY a") == [("Name7", 40)]


def test_descending_scans(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq * 7 % 1000 FROM seq_1_to_3000")
    assert [r[0] for r in run(db, "SELECT a FROM t WHERE a < 500 ORDER BY a DESC LIMIT 5")] == [499, 499, 499, 498, 498]
    assert [r[0] for r in run(db, "SELECT id FROM t WHERE id <= 2500 ORDER BY id DESC LIMIT 3")] == [2500, 2499, 2498]


@pytest.mark.parametrize("collation", COLLATIONS)
def test_order_and_ranges_are_those_of_innodb(db, engine, run, collation):
    charset = collation.split("_")[0]
    letters = "aAbBäÄzZ \t!ßsS0é" if charset == "utf8mb4" else "aAbBäÄzZ \t!ßsS0"
    rng = random.Random(collation)
    words = ["".join(rng.choice(letters) for _ in range(rng.randrange(6))) for _ in range(400)]
    for table, one in [("t", engine), ("i", "InnoDB")]:
        run(db, f"CREATE TABLE {table} (id INT PRIMARY KEY, a VARCHAR(10) COLLATE {collation}, KEY (a), KEY p (a(2))) ENGINE={one} CHARACTER SET {charset}")
        db.cursor().executemany(f"INSERT INTO {table} VALUES (%s, %s)", list(enumerate(words)))
    for key in ("a", "p"):
        for sql in (
            f"SELECT HEX(a), id FROM {{}} FORCE INDEX ({key}) ORDER BY a, id",
            f"SELECT id FROM {{}} FORCE INDEX ({key}) WHERE a >= 'b' ORDER BY id",
            f"SELECT id FROM {{}} FORCE INDEX ({key}) WHERE a BETWEEN 'a' AND 's' ORDER BY id",
            f"SELECT id FROM {{}} FORCE INDEX ({key}) WHERE a = 'a' ORDER BY id",
        ):
            assert run(db, sql.format("t")) == run(db, sql.format("i")), sql


NUMBERS = {
    "TINYINT": (-128, 127),
    "INT UNSIGNED": (0, 2**32 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "BIGINT UNSIGNED": (0, 2**64 - 1),
    "DOUBLE": (-1e300, 1e300),
    "FLOAT": (-1e30, 1e30),
    "DECIMAL(20,5)": (-(10**14), 10**14),
    "YEAR": (1901, 2155),
    "BIT(17)": (0, 2**17 - 1),
}
OTHERS = {
    "DATE": ["1000-01-01", "2024-02-29", "9999-12-31", "1970-01-01"],
    "TIME(3)": ["-838:59:59.000", "00:00:00.001", "838:59:59.000", "12:34:56.789"],
    "DATETIME(6)": ["1000-01-01 00:00:00.000001", "2024-02-29 23:59:59.999999"],
    "TIMESTAMP(2)": ["1971-01-01 00:00:01.25", "2037-12-31 23:59:59.99"],
    "ENUM('b','a','c')": ["a", "b", "c"],
    "SET('x','y','z')": ["x", "y,z", "", "x,y,z"],
    "BINARY(5)": ["", "a", "a\0b"],
    "VARBINARY(20)": ["", "a", "a\0", "a\0b", "\xff\xff"],
    "CHAR(7)": ["", "A", "a", "b  c"],
    "UUID": ["123e4567-e89b-12d3-a456-426655440000", "00000000-0000-0000-0000-000000000001"],
    "INET6": ["::1", "::ffff:1.2.3.4", "fe80::1"],
}


@pytest.mark.parametrize("kind", list(NUMBERS) + list(OTHERS))
def test_every_type_orders_and_compares_as_in_innodb(db, engine, run, kind):
    rng = random.Random(kind)
    if kind in NUMBERS:
        low, high = NUMBERS[kind]
        pick = (lambda: rng.uniform(low, high)) if kind in ("DOUBLE", "FLOAT") else (lambda: rng.randint(low, high))
        values = [None, low, high] + [pick() for _ in range(60)]
        if low < 0:
            values += [0, -1, 1]
    else:
        values = [None] + [rng.choice(OTHERS[kind]) for _ in range(40)]
    for table, one in [("t", engine), ("i", "InnoDB")]:
        run(db, f"CREATE TABLE {table} (id INT PRIMARY KEY, a {kind} NULL, KEY (a)) ENGINE={one}")
        db.cursor().executemany(f"INSERT INTO {table} VALUES (%s, %s)", list(enumerate(values)))
    pivot = values[len(values) // 2]
    queries = [("SELECT id, a FROM {} FORCE INDEX (a) ORDER BY a, id", ()), ("SELECT id, a FROM {} ORDER BY id", ()), ("SELECT id FROM {} FORCE INDEX (a) WHERE a IS NULL", ())]
    if pivot is not None:
        queries += [("SELECT id FROM {} FORCE INDEX (a) WHERE a > %s ORDER BY id", (pivot,)), ("SELECT id FROM {} FORCE INDEX (a) WHERE a <= %s ORDER BY a DESC, id", (pivot,))]
    for sql, arguments in queries:
        assert run(db, sql.format("t"), arguments) == run(db, sql.format("i"), arguments), sql


def test_auto_increment_survives_a_restart(own_server, engine, run):
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    run(connection, f"CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
    run(connection, "INSERT INTO d.t (v) VALUES (1),(2),(3)")
    run(connection, "DELETE FROM d.t WHERE id = 3")
    connection.close()
    own_server.restart()
    connection = own_server.connect()
    run(connection, "INSERT INTO d.t (v) VALUES (4)")
    assert run(connection, "SELECT id, v FROM d.t ORDER BY id") == [(1, 1), (2, 2), (4, 4)]
