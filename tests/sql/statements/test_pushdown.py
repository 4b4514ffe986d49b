"""What the optimizer pushes down to the engine: index conditions, rowid filters, multi-range reads; answers and plans are compared with InnoDB's."""

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


def test_rows_of_entries_that_do_not_match_are_not_read(pair):
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


def test_a_filtered_locking_read_releases_unwanted_locks_in_read_committed(pair, server):
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


def test_a_row_that_a_condition_rejects_is_not_locked_in_repeatable_read_and_its_entry_is(db, server, engine):
    """As InnoDB: the index's entries and gaps are locked before they are judged, rows after that."""
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, s VARCHAR(50), KEY ab (a, b)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq % 20, seq % 7, REPEAT('x', 50) FROM seq_1_to_400")
    sql = "SELECT id, s FROM t FORCE INDEX (ab) WHERE a BETWEEN 5 AND 7 AND b % 7 = 3 FOR UPDATE"
    assert "Using index condition" in explained(db, sql)[0]["Extra"]
    other = server.connect(database=db.name)
    run(other, "SET SESSION innodb_lock_wait_timeout = 1")
    run(db, "BEGIN")
    try:
        held = {row[0] for row in run(db, sql)}
        inside = {row[0] for row in run(other, "SELECT id FROM t WHERE a BETWEEN 5 AND 7")}
        assert held and inside > held
        free = {row[0] for row in run(other, "SELECT id FROM t FORCE INDEX (PRIMARY) WHERE id > 0 FOR UPDATE SKIP LOCKED")}
        assert free == set(range(1, 401)) - held
        rejected = min(inside - held)
        run(other, f"UPDATE t SET s = 'y' WHERE id = {rejected}")
        for blocked in (f"UPDATE t SET b = 3 WHERE id = {rejected}", f"DELETE FROM t WHERE id = {rejected}", "INSERT INTO t VALUES (1000, 6, 3, 'new')"):
            with pytest.raises(pymysql.err.OperationalError, match="1205"):
                run(other, blocked)
        assert {row[0] for row in run(db, sql)} == held
    finally:
        run(db, "ROLLBACK")
    run(other, f"UPDATE t SET b = 3 WHERE id = {rejected}")


def test_the_row_that_ends_a_range_is_unlocked_in_read_committed(db, server, engine):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, s VARCHAR(50), KEY ab (a, b)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq % 20, seq % 7, REPEAT('x', 50) FROM seq_1_to_400")
    run(db, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    sql = "SELECT * FROM t FORCE INDEX (ab) WHERE a BETWEEN 5 AND 7 AND b % 7 = 100 FOR UPDATE"
    assert "Using index condition" in explained(db, sql)[0]["Extra"]
    run(db, "BEGIN")
    found = run(db, sql)
    free = run(server.connect(database=db.name), "SELECT id FROM t FORCE INDEX (PRIMARY) WHERE id > 0 FOR UPDATE SKIP LOCKED")
    run(db, "ROLLBACK")
    assert found == [] and len(free) == 400


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


def test_conditions_beside_a_prefix_of_a_column(db, server, engine):
    """The entry's key decides where a range of a column's prefix ends: the record lacks the column while the condition is evaluated on the entry."""
    keys = "KEY cb (c(3), b), KEY db (d(2) DESC, b), KEY tb (t(4), b), KEY bc (b, c(2))"
    for name, other in ("t", engine), ("m", "MyISAM"):
        run(db, f"CREATE TABLE {name} (id INT PRIMARY KEY, b INT, c VARCHAR(20), d CHAR(10) NOT NULL, t TEXT, {keys}) ENGINE={other}")
        run(db, f"INSERT INTO {name} SELECT seq, seq % 30, IF(seq % 9, CONCAT(ELT(1 + seq % 5, 'a', 'ab', 'abcd', 'b ', 'z'), seq % 7), NULL), ELT(1 + seq % 4, 'a', 'abc', 'ab', 'x'), CONCAT(ELT(1 + seq % 3, 'text', 'tex', 'u'), seq % 11) FROM seq_1_to_2000")
    run(db, "ANALYZE TABLE t, m")
    questions = []
    for key, column, ranges in (
        ("cb", "c", ["= 'a1'", "< 'b'", "> 'ab'", "BETWEEN 'ab' AND 'abcd3'", "IN ('a1', 'abcd2', 'z0')", "IS NULL", "LIKE 'ab%'"]),
        ("db", "d", ["= 'ab'", "< 'b'", "> 'ab'", ">= 'abc'", "IN ('a', 'x')"]),
        ("tb", "t", ["= 'text3'", "< 'text5'", "> 'tex1'", "IN ('text1', 'tex2', 'u')"]),
    ):
        for one in ranges:
            questions += [f"FORCE INDEX ({key}) WHERE {column} {one} AND {also}" for also in ("b < 9", "b IN (3, 12, 25)", "b % 7 = 2")]
    questions += [f"FORCE INDEX (bc) WHERE b BETWEEN 5 AND 9 AND b % 2 = 1 AND c > '{c}'" for c in ("a", "ab", "abcd1", "z")]
    assert "Using index condition" in explained(db, f"SELECT * FROM t {questions[1]}")[0]["Extra"]
    for question in questions:
        for more in "", " ORDER BY id", f" ORDER BY {'c' if '(cb)' in question else 'b'} DESC, id", " FOR UPDATE":
            answers = [sorted(run(db, f"SELECT * FROM {table} {question}{more}")) for table in "mt"]
            assert answers[0] == answers[1], question + more
    # What a writing statement finds.
    for table in "m", "t":
        run(db, f"UPDATE {table} FORCE INDEX (cb) SET d = 'upd' WHERE c >= 'ab' AND c < 'abcd5' AND b IN (4, 8, 15)")
        run(db, f"DELETE FROM {table} WHERE t IN ('text3', 'tex4') AND b < 20")
    assert sorted(run(db, "SELECT * FROM t")) == sorted(run(db, "SELECT * FROM m"))
    # A range that nothing in it matches locks nothing far behind its end.
    other = server.connect(database=db.name)
    run(other, "SET SESSION terrace_lock_wait_timeout_ms = 500")
    run(db, "BEGIN")
    found = run(db, "SELECT * FROM t FORCE INDEX (cb) WHERE c > 'a0' AND c < 'abc' AND b = 77 FOR UPDATE")
    behind = run(other, "SELECT id FROM t WHERE c LIKE 'z%' FOR UPDATE SKIP LOCKED")
    run(db, "ROLLBACK")
    assert found == [] and len(behind) == run(db, "SELECT COUNT(*) FROM t WHERE c LIKE 'z%'")[0][0] > 10


def test_locked_rows_are_left_out_of_merges_and_multi_range_reads(db, server, engine):
    """The second handler, which reads the index, leaves out what the first would."""
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT, KEY a (a), KEY b (b)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq % 20, seq % 7, seq FROM seq_1_to_2000")
    run(db, "ANALYZE TABLE t")
    other = server.connect(database=db.name)
    run(other, "BEGIN")
    run(other, "SELECT * FROM t WHERE id = 25 FOR UPDATE")
    run(db, "SET SESSION terrace_lock_wait_timeout_ms = 500")
    for switch, where, plan in (
        ("mrr=on,mrr_sort_keys=on,mrr_cost_based=off", "FORCE INDEX (a) WHERE a IN (5, 6, 7) AND c > 0", "Rowid-ordered scan"),
        ("index_merge_union=on", "FORCE INDEX (a, b) WHERE a = 5 OR b = 4", "union"),
        ("index_merge_intersection=on", "FORCE INDEX (a, b) WHERE a = 5 AND b = 4", "intersect"),
    ):
        run(db, "SET optimizer_switch = DEFAULT")
        run(db, f"SET optimizer_switch = '{switch}'")
        want = [row for row in run(db, f"SELECT * FROM t {where} ORDER BY id") if row[0] != 25]
        assert plan in explained(db, f"SELECT * FROM t {where} FOR UPDATE SKIP LOCKED")[0]["Extra"]
        assert sorted(run(db, f"SELECT * FROM t {where} FOR UPDATE SKIP LOCKED")) == want
    run(other, "ROLLBACK")


def test_a_merge_reads_many_ranges_of_each_of_its_indexes(db, engine):
    """In a partitioned table the server reads each index of the merge with multi-range reads, one after the other."""
    for name, other in ("t", engine), ("m", "MyISAM"):
        run(db, f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b INT, c VARCHAR(20), KEY ab (a, b), KEY cb (c, b)) ENGINE={other} PARTITION BY HASH (id) PARTITIONS 3")
        run(db, f"INSERT INTO {name} SELECT seq, seq * 7 % 20, seq * 13 % 31, CONCAT('c', seq % 17) FROM seq_1_to_3000")
    run(db, "ANALYZE TABLE t, m")
    run(db, "SET optimizer_switch = 'index_merge_sort_intersection=on,index_merge_intersection=off,mrr=on,mrr_sort_keys=on,mrr_cost_based=off'")
    sql = "SELECT id FROM {} FORCE INDEX (cb, ab) WHERE c = 'c6' AND b > 13 AND a = 18 AND b < 30 ORDER BY id"
    assert "sort_intersect" in explained(db, sql.format("t"))[0]["Extra"]
    assert run(db, sql.format("t")) == run(db, sql.format("m")) != []
