"""Index entries that have no room for their texts beside their weights: they are bare, and an index-only read gets the row."""

import random
import threading

import pytest
from conftest import run, wait_until

ENGINES = ("InnoDB", "Terrace")
# As long as InnoDB lets a column of an index be. Of 2000 bytes and more there is no room in an entry for the text.
TABLE = """CREATE TABLE {0} (id INT NOT NULL, n INT, a VARCHAR(3072) CHARACTER SET latin1, b VARCHAR(1500) CHARACTER SET latin1, t TEXT,
           {1}, KEY a (a), KEY nb (n, b, id)) ENGINE={0}"""
SHAPES = {
    "primary key": "PRIMARY KEY (id)",
    "none": "KEY (id)",
    "text": "c VARCHAR(20) CHARACTER SET latin1 NOT NULL DEFAULT 'K', PRIMARY KEY (id, c)",
}
READS = [
    "SELECT a FROM {0} FORCE INDEX (a) ORDER BY a, {1}",
    "SELECT a FROM {0} FORCE INDEX (a) ORDER BY a DESC LIMIT 40",
    "SELECT a FROM {0} FORCE INDEX (a) WHERE a BETWEEN 'c' AND 'm' ORDER BY a",
    "SELECT a FROM {0} FORCE INDEX (a) WHERE a BETWEEN 'c' AND 'm' ORDER BY a DESC",
    "SELECT DISTINCT a FROM {0} FORCE INDEX (a)",
    "SELECT MIN(a), MAX(a), COUNT(a), SUM(LENGTH(a)), SUM(CRC32(a)) FROM {0} FORCE INDEX (a)",
    "SELECT LEFT(a, 2), COUNT(*), SUM(LENGTH(a)) FROM {0} FORCE INDEX (a) GROUP BY LEFT(a, 2) ORDER BY 1",
    "SELECT x.a = y.a, COUNT(*) FROM {0} x FORCE INDEX (a) JOIN {0} y FORCE INDEX (a) ON x.a = y.a GROUP BY 1",
    # Conditions that the index suffices for, in an index of which other columns are wanted.
    "SELECT id, t FROM {0} FORCE INDEX (a) WHERE a > 'b' AND a LIKE '%y' ORDER BY id",
    "SELECT id, LENGTH(t) FROM {0} FORCE INDEX (a) WHERE a BETWEEN 'd' AND 'x' AND (LENGTH(a) % 3 = 1 OR a LIKE '%z') ORDER BY a DESC, id",
    "SELECT COUNT(*), SUM(LENGTH(t)) FROM {0} FORCE INDEX (a) WHERE a IN ('q', REPEAT('a', 2500), REPEAT('A', 2500)) OR a BETWEEN 'e' AND 'g' AND a LIKE '%x'",
    "SELECT id, b FROM {0} FORCE INDEX (nb) WHERE n BETWEEN 2 AND 5 AND b LIKE '%y' ORDER BY id",
]


def texts(rng, longest):
    """Texts of every length, in both cases, with ends that conditions distinguish; some occur twice."""
    lengths = [0, 1, 5, 300, longest // 2, longest - 1, longest]
    return (rng.choice("aAbcdeéfgmxz") * rng.choice(lengths))[: longest - 1] + rng.choice("xyz")


@pytest.fixture(scope="module", params=SHAPES)
def pair(server, request):
    connection = server.connect()
    run(connection, "CREATE OR REPLACE DATABASE bare")
    connection.select_db("bare")
    rng = random.Random(3)
    rows = [(n, n % 7, None if n % 31 == 0 else texts(rng, 3072), texts(rng, 1500), "t" * (n % 50)) for n in range(400)]
    for engine in ENGINES:
        run(connection, TABLE.format(engine, SHAPES[request.param]))
        connection.cursor().executemany(f"INSERT INTO {engine} (id, n, a, b, t) VALUES (%s, %s, %s, %s, %s)", rows)
    yield connection
    run(connection, "DROP DATABASE bare")


def same(connection, sql):
    theirs, ours = (run(connection, sql.format(engine, "id")) for engine in ENGINES)
    assert ours == theirs and theirs, sql


def test_reads_give_what_innodb_gives(pair):
    for sql in READS:
        same(pair, sql)
    for condition in ("on", "off"):
        run(pair, f"SET optimizer_switch = 'index_condition_pushdown={condition},mrr=on,mrr_cost_based=off', join_cache_level = 6")
        for sql in READS[-4:]:
            same(pair, sql)
    run(pair, "SET optimizer_switch = DEFAULT, join_cache_level = DEFAULT")
    plan = run(pair, "EXPLAIN SELECT a FROM Terrace FORCE INDEX (a) WHERE a > 'c'")
    assert "Using index" in plan[0][-1]
    plan = run(pair, "EXPLAIN " + READS[8].format("Terrace", ""))
    assert "Using index condition" in plan[0][-1]


def test_changes_and_new_indexes(pair):
    for sql in ("UPDATE {0} SET a = CONCAT(LEFT(a, 3071), 'q') WHERE n = 3", "UPDATE {0} SET a = UPPER(a) WHERE n = 4", "UPDATE {0} SET a = LEFT(a, 10) WHERE n = 5",
                "UPDATE {0} SET n = n + 10 WHERE a BETWEEN 'b' AND 'd' AND a LIKE '%y' ORDER BY id", "DELETE FROM {0} WHERE a LIKE 'z%x' ORDER BY id LIMIT 5"):
        changed = [pair.cursor().execute(sql.format(engine)) for engine in ENGINES]
        assert changed[0] == changed[1] > 0, sql
    for engine in ENGINES:
        run(pair, f"ALTER TABLE {engine} DROP KEY a, ADD KEY a (a), ALGORITHM=INPLACE")
    for sql in READS:
        same(pair, sql)
    run(pair, "BEGIN")
    for sql in READS[:4]:
        same(pair, sql + " FOR UPDATE")
    run(pair, "ROLLBACK")
    assert run(pair, "CHECK TABLE Terrace EXTENDED")[-1][3] == "OK"
    seen = []
    for engine in ENGINES:
        steps = [f"HANDLER {engine} OPEN", f"HANDLER {engine} READ a FIRST LIMIT 30", f"HANDLER {engine} READ a NEXT LIMIT 60", f"HANDLER {engine} READ a PREV LIMIT 5", f"HANDLER {engine} CLOSE"]
        seen.append([sorted(str(row) for row in run(pair, sql)) for sql in steps])
    assert seen[0] == seen[1]


def test_an_older_view_and_a_waiting_reader(pair, server):
    other = server.connect(database="bare")
    reads = [READS[0], READS[4]]
    run(other, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    run(other, "BEGIN")
    before = [run(other, sql.format("Terrace", "id")) for sql in reads]
    run(pair, "BEGIN")
    run(pair, "UPDATE Terrace SET a = CONCAT('new', LEFT(a, 3000)) WHERE n = 1")
    run(pair, "DELETE FROM Terrace WHERE n = 2")
    assert [run(other, sql.format("Terrace", "id")) for sql in reads] == before
    run(other, "COMMIT")
    found = []
    thread = threading.Thread(target=lambda: found.append(run(other, "SELECT COUNT(*), SUM(LENGTH(a)) FROM Terrace FORCE INDEX (a) WHERE a > 'a' LOCK IN SHARE MODE")))
    thread.start()
    wait_until(lambda: run(server.connect(), f"SELECT 1 FROM information_schema.TERRACE_LOCK_WAITS WHERE REQUESTING_CONNECTION_ID = {other.thread_id()}"))
    run(pair, "COMMIT")
    thread.join(60)
    assert found == [run(pair, "SELECT COUNT(*), SUM(LENGTH(a)) FROM Terrace IGNORE INDEX (a) WHERE a > 'a'")]
