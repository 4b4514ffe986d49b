"""Faults found by comparing plans and the work of single statements with InnoDB's, in the same server."""

import itertools
import random
import string

import pytest

from conftest import run

ENGINES = ("InnoDB", "Terrace")
ROWS = 600

dice = random.Random(1)
LETTERS = "aAäbBzZé ß日😀" + string.digits


def text(length, letters=LETTERS):
    return "".join(dice.choice(letters) for _ in range(dice.randrange(length + 1)))


def several(most):
    return bytes(dice.choice((0, 1, 32, 127, 128, 254, 255)) for _ in range(dice.randrange(most + 1)))


def number(bits, signed):
    low = -(1 << bits - 1) if signed else 0
    return dice.choice((low, low + (1 << bits) - 1, dice.randrange(low, low + (1 << bits)), max(low, dice.randrange(-300, 300))))


TEXT = "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {}"
# Columns of a primary key, the key, and how a row's are made.
KEYS = {
    "tinyint": ("a TINYINT, b SMALLINT UNSIGNED", "a, b", lambda: (number(8, True), number(16, False))),
    "smallint": ("a SMALLINT", "a", lambda: (number(16, True),)),
    "mediumint": ("a MEDIUMINT, b MEDIUMINT UNSIGNED", "a DESC, b", lambda: (number(24, True), number(24, False))),
    "int": ("a INT", "a", lambda: (number(32, True),)),
    "int-unsigned": ("a INT UNSIGNED", "a", lambda: (number(32, False),)),
    "int-desc": ("a INT", "a DESC", lambda: (number(32, True),)),
    "bigint": ("a BIGINT", "a", lambda: (number(64, True),)),
    "bigint-unsigned-desc": ("a BIGINT UNSIGNED", "a DESC", lambda: (number(64, False),)),
    "decimal": ("a DECIMAL(12,3)", "a", lambda: (number(36, True) / 1000,)),
    "double": ("a DOUBLE, b FLOAT", "a, b DESC", lambda: (dice.choice((0.0, -0.0, 1.5, -1.5, dice.gauss(0, 1e9))), dice.gauss(0, 1))),
    "dates": ("a DATE, b TIME(2), c DATETIME(3), d YEAR", "d, a, b DESC, c", lambda: (
        f"20{dice.randrange(10):02}-03-1{dice.randrange(10)}", f"{dice.randrange(-800, 800)}:10:0{dice.randrange(10)}.5",
        f"2001-01-0{dice.randrange(1, 10)} 01:02:03.{dice.randrange(1000):03}", dice.randrange(1990, 2000))),
    "bits": ("a BIT(13), b ENUM('z', 'y', 'a'), c SET('r', 's', 't')", "b, a, c", lambda: (dice.randrange(1 << 13), dice.randrange(1, 4), dice.randrange(8))),
    "binary": ("a BINARY(5), b VARBINARY(9)", "a, b", lambda: (several(5), several(9))),
    "varbinary-desc": ("a VARBINARY(9), b INT", "a DESC, b", lambda: (several(3), number(8, True))),
    "uuid": ("a UUID, b INET6", "a, b", lambda: (f"{dice.randrange(1 << 128):032x}", f"::{dice.randrange(1 << 16):x}")),
    "char": ("a CHAR(8) CHARACTER SET latin1, b CHAR(5) CHARACTER SET utf8mb4", "a, b DESC", lambda: (text(8, "aAbz -\t"), text(5))),
    "general": (f"a {TEXT.format('utf8mb4_general_ci')}", "a", lambda: (text(20),)),
    "unicode-desc": (f"a {TEXT.format('utf8mb4_unicode_ci')}, b INT", "a DESC, b", lambda: (text(6), number(8, True))),
    "nopad": (f"a {TEXT.format('utf8mb4_unicode_520_nopad_ci')}, b CHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", "a, b", lambda: (text(9, "aA \t-z"), text(4))),
    "bin": (f"a {TEXT.format('utf8mb4_bin')}", "a", lambda: (text(20, "aA \t-zé"),)),
    "levels": ("a VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_thai_520_w2, b VARCHAR(9) CHARACTER SET latin2 COLLATE latin2_czech_cs", "a, b", lambda: (text(9), text(9, "aAbz -"))),
    "prefix": ("a VARCHAR(40) CHARACTER SET utf8mb4, b BLOB, c INT", "a(5), b(4), c", lambda: (text(9, "aA "), several(6), number(8, True))),
    "hidden": ("a INT", None, lambda: (number(32, True),)),
}


@pytest.fixture(scope="module")
def keyed(server):
    """A connection, and of each primary key a table by InnoDB and one by Terrace."""
    connection = server.connect()
    for engine in ENGINES:
        run(connection, f"CREATE DATABASE found_{engine} CHARACTER SET utf8mb4")
    run(connection, "SET sql_mode = ''")
    for name, (columns, key, make) in KEYS.items():
        rows = [(*make(), n * 389 % ROWS, dice.randrange(8), dice.randrange(9), "f") for n in range(ROWS)]
        primary = f"PRIMARY KEY ({key})," if key else ""
        for engine in ENGINES:
            table, values = f"found_{engine}.`{name}`", ", ".join(["%s"] * len(rows[0]))
            run(connection, f"CREATE TABLE {table} ({columns}, x INT, y INT, z INT, f CHAR(200), {primary} KEY x (x), KEY y (y), KEY z (z)) ENGINE={engine}")
            connection.cursor().executemany(f"INSERT IGNORE INTO {table} VALUES ({values})", rows)
            run(connection, f"ANALYZE TABLE {table}")
    yield connection
    for engine in ENGINES:
        run(connection, f"DROP DATABASE found_{engine}")


@pytest.mark.parametrize("name", KEYS)
def test_positions_have_the_order_of_their_rows(keyed, name):
    """A multi-range read that sorts by position reads the rows as a scan of the table does."""
    run(keyed, "SET optimizer_switch = 'mrr=on,mrr_cost_based=off,mrr_sort_keys=on,rowid_filter=off', mrr_buffer_size = 1048576")
    columns = ", ".join(column.split()[0] for column in KEYS[name][0].split(", ") if not column.startswith("'"))
    sql = f"SELECT {columns}, x FROM found_Terrace.`{name}` {{}} WHERE x BETWEEN 10 AND {ROWS - 10} AND f = 'f'"
    sorted_by_position = sql.format("FORCE INDEX (x)")
    assert "Rowid-ordered scan" in run(keyed, "EXPLAIN " + sorted_by_position)[0][-1]
    found, scanned = run(keyed, sorted_by_position), run(keyed, sql.format("USE INDEX ()"))
    assert found == scanned and len(found) > 40
    run(keyed, "SET optimizer_switch = DEFAULT")


@pytest.mark.parametrize("name", KEYS)
def test_merges_and_filters_give_what_a_scan_gives(keyed, name):
    merges = {
        "intersect": "y = 3 AND z = 5",
        "union": "y = 3 OR z = 5",
        "sort_union": "y BETWEEN 3 AND 4 OR z BETWEEN 5 AND 6",
        "three": "y = 3 OR z = 5 OR (x < 20 AND f = 'f')",
        "filter": f"x BETWEEN 5 AND {ROWS // 2} AND y = 7",
    }
    switches = "index_merge_sort_intersection=on"
    for switch in (switches, switches + ",rowid_filter=off", switches + ",mrr=on,mrr_cost_based=off"):
        run(keyed, f"SET optimizer_switch = DEFAULT, optimizer_switch = '{switch}'")
        for what, where in merges.items():
            answers = []
            for engine in ENGINES:
                for index in ("", "FORCE INDEX (x, y, z)", "USE INDEX ()"):
                    answers.append(sorted(x for x, in run(keyed, f"SELECT x FROM found_{engine}.`{name}` {index} WHERE {where}")))
            # Each position occurs once: a duplicate, or one that is not found again, shows here.
            assert answers.count(answers[3]) == 6 and answers[3], what
    run(keyed, "SET optimizer_switch = DEFAULT")


def cpu(connection, sql, tries=7):
    """Seconds of its thread that a statement takes, at its best."""
    (pid,), = run(connection, "SELECT @@pid_file")
    (thread,), = run(connection, "SELECT TID FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")
    path, best = f"/proc/{open(pid).read().strip()}/task/{thread}/schedstat", []
    for _ in range(tries):
        before = int(open(path).read().split()[0])
        run(connection, sql)
        best.append((int(open(path).read().split()[0]) - before) / 1e9)
    return min(best)


@pytest.fixture(scope="module")
def orders(server):
    connection = server.connect()
    for engine in ENGINES:
        run(connection, f"CREATE DATABASE orders_{engine} CHARACTER SET utf8mb4")
        connection.select_db(f"orders_{engine}")
        run(connection, f"CREATE TABLE o (id INT PRIMARY KEY, clerk INT NOT NULL, day DATE NOT NULL, st CHAR(1) NOT NULL, cm VARCHAR(60), KEY clerk (clerk), KEY day (day)) ENGINE={engine}")
        run(connection, "INSERT INTO o SELECT seq, seq * 7919 % 500, DATE '2020-01-01' + INTERVAL seq * 104729 % 1000 DAY, 'O', REPEAT('c', 50) FROM seq_1_to_60000")
        run(connection, f"CREATE TABLE c (id INT PRIMARY KEY) ENGINE={engine}")
        run(connection, "INSERT INTO c SELECT seq FROM seq_1_to_400")
        run(connection, f"CREATE TABLE n (id VARCHAR(40) PRIMARY KEY, clerk INT, st VARCHAR(20), cm VARCHAR(60), KEY st (clerk, st)) ENGINE={engine}")
        run(connection, "INSERT INTO n SELECT CONCAT('a word-another ', id), clerk, CONCAT('word', clerk), cm FROM o")
        run(connection, "ANALYZE TABLE o, c, n")
    yield connection
    for engine in ENGINES:
        run(connection, f"DROP DATABASE orders_{engine}")


def takes_about_as_much(connection, sql, shows, bound):
    """The statement has a plan that says so, the same answer, and takes less than `bound` times InnoDB's time."""
    for _ in range(4):
        took = []
        for engine in ENGINES:
            connection.select_db(f"orders_{engine}")
            assert shows in " ".join(map(str, run(connection, "EXPLAIN " + sql)[-1])), engine
            took.append((run(connection, sql), cpu(connection, sql)))
        (answer, theirs), (same, ours) = took
        assert same == answer
        if ours < bound * theirs:
            return
    raise AssertionError(f"{ours * 1000:.1f} ms, InnoDB {theirs * 1000:.1f}")


def test_a_rowid_filter_costs_no_more_than_innodbs(orders):
    """Each comparison of positions made two keys: two to four times as much."""
    takes_about_as_much(orders, "SELECT COUNT(o.cm) FROM c STRAIGHT_JOIN o ON o.clerk = c.id AND o.day BETWEEN '2020-01-05' AND '2020-03-05'", "|filter", 1.7)


def test_nulls_of_a_unique_index_are_many_rows_of_one_value(server):
    """A unique index counted as one row for each value; rows that have NULL in it share theirs, as InnoDB says, too."""
    connection, found, plans = server.connect(), [], []
    rows = random.Random(9)
    taken, made = set(), []
    for n in range(1, 60001):
        grp, deleted = rows.randrange(1, 501), None if rows.random() < 0.98 else f"2020-01-01 00:{rows.randrange(60):02}:{rows.randrange(60):02}"
        if deleted is None or (grp, deleted) not in taken:
            taken.add((grp, deleted))
            made.append((n, grp, deleted, rows.randrange(1, 10001), "s" * 30))
    for engine in ENGINES:
        run(connection, f"CREATE DATABASE nulls_{engine}")
        connection.select_db(f"nulls_{engine}")
        run(connection, f"CREATE TABLE m (id INT PRIMARY KEY, grp INT NOT NULL, del DATETIME, v INT, s VARCHAR(40), UNIQUE KEY u (grp, del), KEY v (v)) ENGINE={engine}")
        run(connection, f"CREATE TABLE g (id INT PRIMARY KEY, grp INT NOT NULL, v INT NOT NULL, KEY (grp)) ENGINE={engine}")
        connection.cursor().executemany("INSERT INTO m VALUES (%s, %s, %s, %s, %s)", made)
        run(connection, "INSERT INTO g SELECT seq, seq % 500 + 1, seq * 3 FROM seq_1_to_2000")
        run(connection, "ANALYZE TABLE m, g")
        found.append(run(connection, "SELECT CARDINALITY FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND INDEX_NAME = 'u' ORDER BY SEQ_IN_INDEX"))
        plans.append([(one[2], one[5]) for where in ("", " WHERE g.id < 1500")
                      for one in run(connection, f"EXPLAIN SELECT COUNT(m.s) FROM g JOIN m ON m.grp = g.grp AND m.del IS NULL AND m.v = g.v{where}")])
    for engine in ENGINES:
        run(connection, f"DROP DATABASE nulls_{engine}")
    (_, (theirs,)), (_, (ours,)) = found
    assert theirs / 2 <= ours <= theirs * 2
    assert plans[0] == plans[1]


def test_a_condition_that_rejects_entries_costs_no_more_than_innodbs(orders):
    """Each entry was decoded whole, with its primary key, which the condition does not read."""
    takes_about_as_much(orders, "SELECT COUNT(cm) FROM n FORCE INDEX (st) WHERE clerk >= 0 AND st = 'nothing'", "Using index condition", 1.6)


@pytest.mark.parametrize("primary", ["p, q", "q, p", "b, p, q", "q DESC, a"])
def test_entries_are_decoded_only_as_far_as_needed(db, primary):
    """Whatever columns are asked for: in a condition on entries, and of entries alone."""
    conditions = {"a": "a LIKE '%a%'", "b": "(b % 3 = 1 OR b IS NULL)", "c": "c > 'b'", "d": "(d > 0.5 OR d IS NULL)", "p": "p LIKE '%a%'", "q": "q % 2 = 0"}
    rows = [(text(5, "aAbzé "), None if n % 7 == 0 and primary[0] != "b" else number(32, True), None if n % 5 == 0 else several(4), None if n % 3 == 0 else dice.random(), text(6, "aAbz "), n) for n in range(600)]
    for engine in ENGINES:
        null = "" if primary[0] != "b" else " NOT NULL"
        run(db, f"""CREATE TABLE {engine} (a VARCHAR(20){" NOT NULL" if "a" in primary else ""}, b INT{null}, c VARBINARY(9), d DOUBLE, p VARCHAR(20), q INT, f CHAR(100) DEFAULT 'f',
            PRIMARY KEY ({primary}), KEY k (a, b DESC, c, d), KEY l (c DESC, a), KEY m (b, d)) ENGINE={engine}""")
        db.cursor().executemany(f"INSERT INTO {engine} (a, b, c, d, p, q) VALUES (%s, %s, %s, %s, %s, %s)", rows)
    for index, first in (("k", "a >= ''"), ("l", "c >= ''"), ("m", "b > -2000000000")):
        for wanted in ("f", "COUNT(*)", "a, c", "b", "d", "p", "q", "a, b, c, d, p, q"):
            for one, two in itertools.combinations_with_replacement(conditions, 2):
                sql = f"SELECT {wanted} FROM {{}} FORCE INDEX ({index}) WHERE {first} AND {conditions[one]} AND {conditions[two]}"
                theirs, ours = (sorted(run(db, sql.format(engine)), key=repr) for engine in ENGINES)
                assert ours == theirs, sql
