"""What the optimizer hands down to the engine: index conditions, rowid filters, multi-range reads; answers and plans beside InnoDB's."""

import json
import random

import pymysql
import pytest

from conftest import run

TABLE = """CREATE TABLE {name} (
    id INT NOT NULL, a INT, b INT, c VARCHAR(20), d VARCHAR(20) CHARACTER SET latin1, e DOUBLE, f DATE, g INT AS (a + b) VIRTUAL, t TEXT,
    PRIMARY KEY ({primary}), KEY abc (a, b, c), KEY cb (c(4), b), KEY d (d DESC, a), KEY e (e, b), KEY f (f), KEY g (g, b), KEY b (b)
) ENGINE={engine} {options}"""
ROWS = 3000
SHAPES = {
    "plain": ("id", ""),
    "two-columns": ("b, id", ""),
    "text-key": ("d, id", ""),
    "partitions": ("id", "PARTITION BY HASH (id) PARTITIONS 3"),
}


def rows():
    dice = random.Random(7)
    for n in range(ROWS):
        null = lambda value: None if dice.random() < 0.05 else value  # noqa: E731
        yield (n * 7 % ROWS, null(dice.randrange(60)), dice.randrange(300), null(dice.choice("aAbBxyzé") * dice.randrange(1, 7)),
               dice.choice("kKlLm") + str(dice.randrange(40)), null(dice.randrange(500) / 4), null(f"2020-{dice.randrange(1, 13):02}-{dice.randrange(1, 29):02}"),
               None if dice.random() < 0.1 else "t" * dice.randrange(400))


@pytest.fixture(scope="module")
def pair(server):
    """A connection, and of each shape a table by InnoDB and one by Terrace, with the same rows."""
    connection = server.connect()
    for engine in ("InnoDB", "Terrace"):
        run(connection, f"CREATE DATABASE push_{engine.lower()} CHARACTER SET utf8mb4")
        connection.select_db(f"push_{engine.lower()}")
        for name, (primary, options) in SHAPES.items():
            run(connection, TABLE.format(name=f"`{name}`", primary=primary, engine=engine, options=options))
            connection.cursor().executemany(f"INSERT INTO `{name}` (id, a, b, c, d, e, f, t) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", list(rows()))
            run(connection, f"ANALYZE TABLE `{name}`")
        run(connection, f"CREATE TABLE hidden (id INT NOT NULL, a INT, b INT, c VARCHAR(20), f DATE, t TEXT, KEY abc (a, b, c), KEY b (b), KEY f (f)) ENGINE={engine}")
        run(connection, "INSERT INTO hidden SELECT id, a, b, c, f, t FROM plain")
        run(connection, "CREATE TABLE dates (f DATE, n INT, KEY (f)) ENGINE=MyISAM")
        run(connection, "INSERT INTO dates SELECT f, b FROM plain ORDER BY id LIMIT 300")
        run(connection, "ANALYZE TABLE hidden, dates")
    yield connection
    for engine in ("innodb", "terrace"):
        run(connection, f"DROP DATABASE push_{engine}")


def counted(connection, sql, *counters):
    """The statement's rows, and what it added to the session's counters."""
    run(connection, "FLUSH STATUS")
    answer = run(connection, sql)
    status = dict(run(connection, "SHOW SESSION STATUS LIKE 'Handler%'"))
    return answer, [int(status[name]) for name in counters]


def both(connection, sql, *counters):
    """The same of InnoDB and Terrace: (answer, counts)."""
    found = []
    for engine in ("innodb", "terrace"):
        connection.select_db(f"push_{engine}")
        found.append(counted(connection, sql, *counters))
    return found


def explained(connection, sql):
    cursor = connection.cursor()
    cursor.execute("EXPLAIN " + sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


@pytest.mark.parametrize("table", ["plain", "two-columns", "text-key", "partitions", "hidden"])
def test_conditions_are_judged_before_rows_are_read(pair, table):
    sql = f"SELECT id, a, b, c, LENGTH(t) FROM `{table}` FORCE INDEX (abc) WHERE a BETWEEN 10 AND 20 AND b % 7 = 3 AND c LIKE '%x%' ORDER BY id"
    (theirs, want), (ours, got) = both(pair, sql, "Handler_icp_attempts", "Handler_icp_match", "Handler_read_next")
    assert ours == theirs and len(ours) > 3
    assert got == want
    if table == "partitions":
        assert got[0] == 0  # the server hands partitions nothing down
        return
    assert got[1] == len(ours) < got[0]
    assert "Using index condition" in explained(pair, sql)[0]["Extra"]


def test_the_row_is_not_read_for_what_does_not_match(pair):
    """By the pages asked for: a condition that nothing matches costs no look into the primary tree."""
    pair.select_db("push_terrace")

    def pages(sql):
        at = lambda: int(run(pair, "SHOW GLOBAL STATUS LIKE 'terrace_pool_read_requests'")[0][1])  # noqa: E731
        before = at()
        run(pair, sql)
        return at() - before

    nothing = "SELECT t FROM plain FORCE INDEX (abc) WHERE a BETWEEN 1 AND 50 AND b = 1000"
    run(pair, "SET optimizer_switch = 'index_condition_pushdown=off'")
    without = pages(nothing)
    run(pair, "SET optimizer_switch = 'index_condition_pushdown=on'")
    assert pages(nothing) < without / 5


def test_a_virtual_columns_index_gets_no_condition(pair):
    sql = "SELECT id, g, t FROM plain FORCE INDEX (g) WHERE g BETWEEN 10 AND 200 AND b % 5 = 2 ORDER BY id"
    (theirs, _), (ours, _) = both(pair, sql)
    assert ours == theirs and ours
    assert "index condition" not in explained(pair, sql)[0]["Extra"]


def test_a_filtered_read_that_locks_gives_unwanted_locks_back_in_read_committed(pair, server):
    pair.select_db("push_terrace")
    sql = "SELECT id FROM plain FORCE INDEX (abc) WHERE a BETWEEN 10 AND 30 AND c LIKE '%x%' FOR UPDATE"
    assert "Using index condition" in explained(pair, sql.replace("id FROM", "t FROM"))[0]["Extra"]
    other = server.connect(database="push_terrace")
    run(other, "SET SESSION terrace_lock_wait_timeout_ms = 500")
    run(pair, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    run(pair, "BEGIN")
    held = {row[0] for row in run(pair, sql.replace("SELECT id", "SELECT id, t"))}
    free = [row[0] for row in run(other, "SELECT id FROM plain WHERE a BETWEEN 10 AND 30 AND NOT c LIKE '%x%'")]
    assert held and free
    assert len(run(other, f"SELECT id FROM plain WHERE id IN ({','.join(map(str, free[:40]))}) FOR UPDATE")) == len(free[:40])
    with pytest.raises(pymysql.err.OperationalError, match="1205"):
        run(other, f"SELECT id FROM plain WHERE id = {min(held)} FOR UPDATE")
    run(pair, "ROLLBACK")
    run(other, "ROLLBACK")


def test_rowid_filters(pair):
    """A filter by the range of one index over the rows of another, as InnoDB has it."""
    found = []
    for engine in ("innodb", "terrace"):
        pair.select_db(f"push_{engine}")
        for table in ("plain", "two-columns", "text-key", "hidden"):
            sql = f"SELECT SUM(LENGTH(t)), COUNT(*) FROM dates STRAIGHT_JOIN `{table}` r ON r.f = dates.f WHERE r.b BETWEEN 3 AND 9"
            plan = explained(pair, sql)[1]
            told = json.loads(run(pair, f"ANALYZE FORMAT=JSON {sql}")[0][0])
            found.append((engine, table, plan["type"], plan["key"], "rowid_filter" in json.dumps(told), run(pair, sql)))
    assert [one[1:] for one in found[:4]] == [one[1:] for one in found[4:]]
    assert any(one[2] == "ref|filter" and one[4] for one in found), found


@pytest.mark.parametrize("table", ["plain", "two-columns", "text-key", "partitions", "hidden"])
def test_many_ranges_are_read_in_an_order(pair, table):
    run(pair, "SET optimizer_switch = 'mrr=on,mrr_sort_keys=on,mrr_cost_based=off,join_cache_bka=on', join_cache_level = 8, join_buffer_size = 4096")
    try:
        seen = set()
        for sql in (
            f"SELECT id, a, LENGTH(t) FROM `{table}` r FORCE INDEX (abc) WHERE a IN (3, 9, 14) AND b > 20",
            f"SELECT id, a, LENGTH(t) FROM `{table}` r FORCE INDEX (b) WHERE b BETWEEN 17 AND 60",
            f"SELECT r.id, dates.n, LENGTH(t) FROM dates STRAIGHT_JOIN `{table}` r ON r.f = dates.f AND r.b > dates.n",
            f"SELECT r.id, dates.n, LENGTH(t) FROM dates STRAIGHT_JOIN `{table}` r ON r.id = dates.n",
        ):
            (theirs, want), (ours, got) = both(pair, sql, "Handler_mrr_init", "Handler_mrr_key_refills", "Handler_mrr_rowid_refills")
            assert sorted(ours) == sorted(theirs) and ours
            assert bool(got[0]) == bool(want[0]), sql
            seen.add(explained(pair, sql)[-1]["Extra"])
        if table != "partitions":
            assert any("Rowid-ordered scan" in extra for extra in seen), seen
        assert any("Key-ordered" in extra for extra in seen), seen
    finally:
        run(pair, "SET optimizer_switch = DEFAULT, join_cache_level = DEFAULT, join_buffer_size = DEFAULT")


def test_merges_and_loose_scans(pair):
    for sql, what in (
        ("SELECT id, LENGTH(t) FROM plain WHERE a = 5 OR b = 7 ORDER BY id", "union"),
        ("SELECT id, LENGTH(t) FROM plain WHERE f < '2020-01-20' OR b < 5 ORDER BY id", "sort_union"),
        ("SELECT a, MIN(b), MAX(b) FROM plain GROUP BY a", "group-by"),
        ("SELECT DISTINCT a FROM plain ORDER BY a DESC", "a"),
    ):
        (theirs, _), (ours, _) = both(pair, sql)
        assert ours == theirs and ours
        plans = []
        for engine in ("innodb", "terrace"):
            pair.select_db(f"push_{engine}")
            plans.append([(line["type"], line["key"], line["Extra"]) for line in explained(pair, sql)])
        assert plans[0] == plans[1], (sql, what)


def test_covering_reads_and_ranges_from_the_end(pair):
    for sql in (
        "SELECT a, b, c FROM plain FORCE INDEX (abc) WHERE a BETWEEN 5 AND 9 ORDER BY a DESC, b DESC, c DESC",
        "SELECT a, b, id FROM plain FORCE INDEX (abc) WHERE a = 5 AND b <= 100 ORDER BY b DESC LIMIT 5",
        "SELECT d, a, id FROM plain FORCE INDEX (d) WHERE d BETWEEN 'k3' AND 'L2' ORDER BY d, a, id",
        "SELECT d, a, id FROM plain FORCE INDEX (d) WHERE d > 'k3' AND a % 3 = 0 ORDER BY d DESC, a DESC, id DESC",
        "SELECT id, LENGTH(t) FROM plain WHERE id > 100 AND id <= 700 ORDER BY id",
        "SELECT id, LENGTH(t) FROM plain WHERE id >= 100 AND id < 700 ORDER BY id DESC LIMIT 20",
        "SELECT id, LENGTH(t) FROM plain FORCE INDEX (cb) WHERE c >= 'aaaaa' AND c < 'xxxxx' AND b > 50 ORDER BY id",
        "SELECT id, LENGTH(t) FROM plain FORCE INDEX (e) WHERE e BETWEEN 1.5 AND 20.25 AND b < 100 ORDER BY id",
        "SELECT id, LENGTH(t) FROM plain FORCE INDEX (e) WHERE (e < 3 OR e BETWEEN 7 AND 8 OR e IS NULL) AND b IN (1, 2, 3, 50, 51) ORDER BY id",
    ):
        (theirs, _), (ours, _) = both(pair, sql)
        assert ours == theirs and ours, sql


def test_a_large_tables_sample_outlives_a_restart_and_not_its_table(own_server):
    """Values that came since the sample change nothing until ANALYZE: only a kept sample can say the old number."""
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    run(db, "CREATE TABLE d.t (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE=Terrace")
    run(db, "INSERT INTO d.t SELECT seq, seq % 50 FROM seq_1_to_5000")
    run(db, "ANALYZE TABLE d.t")
    cardinality = lambda: [row[6] for row in run(own_server.connect(), "SHOW INDEX FROM d.t")]  # noqa: E731
    assert cardinality() == [5000, 100]
    run(db, "UPDATE d.t SET v = id")
    run(db, "RENAME TABLE d.t TO d.u, d.u TO d.t")
    own_server.restart()
    assert cardinality() == [5000, 100]
    db = own_server.connect(database="d")
    run(db, "ANALYZE TABLE d.t")
    assert cardinality() == [5000, 5000]
    run(db, "DROP TABLE d.t")
    run(db, "CREATE TABLE d.t (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE=Terrace")
    run(db, "INSERT INTO d.t SELECT seq, seq % 50 FROM seq_1_to_5000")
    own_server.restart()
    assert cardinality() == [5000, 100]
