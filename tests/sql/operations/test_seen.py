"""The engine's figures: by table and index, by statement, the miss curve and the advice. Each number is checked against what must be true."""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from decimal import Decimal

import pymysql
import pytest
from conftest import PORTS, TARGET, Server, end
from test_object import ROWS, SIZES, Store, a_store, flashed, is_mostly_far, load, status, wait_for

PAGE = 16384
PRICES = {"memory": 1.6, "flash": 0.05, "volume": 0.152, "object": 0.016, "puts": 0.005, "gets": 0.0004}
MONTH = 730 * 3600  # seconds


@pytest.fixture
def store(tmp_path, monkeypatch, engine):
    yield from a_store("s3", tmp_path, monkeypatch, engine)


@pytest.fixture
def tiered(store, tmp_path):
    yield from flashed(store, tmp_path)


def rows(connection, table, where="TRUE"):
    cursor = connection.cursor(pymysql.cursors.DictCursor)
    cursor.execute(f"SELECT * FROM information_schema.{table} WHERE {where}")
    return cursor.fetchall()


def mine(connection, run):
    """The session's counters."""
    shown = run(connection, "SHOW SESSION STATUS LIKE 'Terrace_session_%'")
    return {name[len("Terrace_session_"):]: int(value) for name, value in shown}


def reads(row):
    return sum(row[f"READS_{place}"] for place in ("MEMORY", "FLASH", "VOLUME", "OBJECT", "LOG"))


def test_tables_and_indexes_say_where_pages_are_what_was_read_and_what_it_costs(tiered, tmp_path, run):
    connection = tiered.connect()
    load(connection, run)
    run(connection, "CREATE TABLE other (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE=Terrace")
    run(connection, "INSERT INTO other SELECT seq, seq FROM seq_1_to_5000")
    wait_for(lambda: is_mostly_far(connection, run))
    table = run(connection, "SELECT TABLE_NAME FROM information_schema.TERRACE_TABLE_STATISTICS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME <> 'other'")
    assert len(table) == 1
    table = table[0][0]
    # With empty flash: it has room for all that was far, and nothing would be read from the store. What changes sinks again.
    tiered.stop()
    shutil.rmtree(tmp_path / "flash")
    tiered.start()
    connection = tiered.connect(database="d")
    run(connection, f"UPDATE {table} SET v = v + 1 WHERE id % 10 = 0")
    of_rows = f"TABLE_SCHEMA = 'd' AND TABLE_NAME = '{table}' AND INDEX_NAME = 'PRIMARY'"
    wait_for(lambda: is_mostly_far(connection, run) and rows(connection, "TERRACE_INDEX_STATISTICS", of_rows)[0]["STORE_PUT_BYTES"] > rows(connection, "TERRACE_INDEX_STATISTICS", of_rows)[0]["BYTES_OBJECT"] / 2)
    run(connection, f"SELECT COUNT(*), SUM(LENGTH(CONCAT_WS('', {table}.id))) FROM {table} FORCE INDEX (PRIMARY)")
    for at in range(1, 400, 3):
        run(connection, "SELECT v FROM other WHERE id = %s", (at,))

    indexes = rows(connection, "TERRACE_INDEX_STATISTICS", "TABLE_SCHEMA = 'd'")
    tables = {row["TABLE_NAME"]: row for row in rows(connection, "TERRACE_TABLE_STATISTICS", "TABLE_SCHEMA = 'd'")}
    assert {row["INDEX_NAME"] for row in indexes if row["TABLE_NAME"] == "other"} == {"PRIMARY", "v"}
    assert set(tables) == {table, "other"}
    for row in indexes:
        for tier in ("MEMORY", "FLASH", "VOLUME"):
            assert row[f"BYTES_{tier}"] == row[f"PAGES_{tier}"] * PAGE
        # Ratios are what the counts say; nothing asked, nothing said.
        asked = reads(row)
        assert row["HIT_RATIO_MEMORY"] == (None if not asked else pytest.approx(Decimal(row["READS_MEMORY"]) / asked, abs=Decimal("1e-6")))
        below = row["READS_VOLUME"] + row["READS_OBJECT"]
        assert row["HIT_RATIO_VOLUME"] == (None if not below else pytest.approx(Decimal(row["READS_VOLUME"]) / below, abs=Decimal("1e-6")))
        passed = row["READS_FLASH"] + below
        assert row["HIT_RATIO_FLASH"] == (None if not passed else pytest.approx(Decimal(row["READS_FLASH"]) / passed, abs=Decimal("1e-6")))
        assert row["HIT_RATIO_OBJECT"] == (1 if row["READS_OBJECT"] else None), "the store is the last"
        # Money is bytes times price.
        for tier in ("memory", "flash", "volume", "object"):
            cost = row[f"BYTES_{tier.upper()}"] / 2**30 * PRICES[tier]
            assert float(row[f"COST_{tier.upper()}"]) == pytest.approx(cost, abs=1e-6)
        parts = sum(row[f"COST_{part}"] for part in ("MEMORY", "FLASH", "VOLUME", "OBJECT", "REQUESTS"))
        assert float(row["COST_MONTH"]) == pytest.approx(float(parts), abs=1e-5)
        assert (row["COST_REQUESTS"] > 0) == (row["STORE_GETS"] + row["STORE_PUTS"] > 0)
    far = next(row for row in indexes if row["TABLE_NAME"] == table and row["INDEX_NAME"] == "PRIMARY")
    assert far["PAGES_OBJECT"] > 0 and far["BYTES_OBJECT"] > 0 and far["SINKS"] > 0
    assert far["STORE_PUTS"] >= far["SINKS"] and far["STORE_PUT_BYTES"] > far["BYTES_OBJECT"] / 2
    assert far["READS_OBJECT"] > 0 and far["STORE_GETS"] > 0 and far["STORE_GET_BYTES"] > 0
    assert far["FLASH_ADMITTED"] > 0

    # A table is its indexes, and all that is asked of the store is some table's (what sinks between two looks aside).
    for name, row in tables.items():
        parts = [index for index in indexes if index["TABLE_NAME"] == name]
        for column in ("PAGES_OBJECT", "SINKS", "STORE_PUTS", "STORE_PUT_BYTES", "FLASH_ADMITTED"):
            assert row[column] >= sum(part[column] for part in parts), (name, column)
    everywhere = rows(connection, "TERRACE_TABLE_STATISTICS")
    status = {name.lower(): int(value) for name, value in run(connection, "SHOW GLOBAL STATUS LIKE 'Terrace_objects_%'")}
    for column, counter in (("PUTS", "put"), ("PUT_BYTES", "put_bytes"), ("GETS", "got"), ("GET_BYTES", "got_bytes")):
        told = sum(row[f"STORE_{column}"] for row in everywhere)
        assert 0 < told <= status[f"terrace_objects_{counter}"], column

    # What is read of one index is counted there, and is not counted elsewhere.
    def seen():
        return {row["INDEX_NAME"]: reads(row) for row in rows(connection, "TERRACE_INDEX_STATISTICS", "TABLE_SCHEMA = 'd' AND TABLE_NAME = 'other'")}

    before = seen()
    for at in range(1, 200):
        run(connection, "SELECT id FROM other FORCE INDEX (v) WHERE v = %s", (at,))
    after = seen()
    assert after["v"] - before["v"] >= 199 and after["PRIMARY"] - before["PRIMARY"] <= 20

    # Counters go with their table.
    run(connection, "DROP TABLE other")
    assert not rows(connection, "TERRACE_INDEX_STATISTICS", "TABLE_SCHEMA = 'd' AND TABLE_NAME = 'other'")
    run(connection, "CREATE TABLE other (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE=Terrace")
    fresh = rows(connection, "TERRACE_TABLE_STATISTICS", "TABLE_SCHEMA = 'd' AND TABLE_NAME = 'other'")[0]
    assert reads(fresh) < 50 and fresh["STORE_PUTS"] == 0 and fresh["SINKS"] == 0


def test_evicted_pages_are_counted_for_their_index(tmp_path, engine, run):
    """While flash is full: turned away at first, with its name kept; by that name it is known the next time, and admitted. Temporary tables write to the spill
    space alone."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    server = Server(str(directory), ["--terrace-memory=6291456"])
    server.start()
    try:
        connection = server.connect()
        load(connection, run)
        run(connection, "CREATE TABLE quiet (id INT PRIMARY KEY) ENGINE=Terrace")
        run(connection, "INSERT INTO quiet VALUES (1)")
        server.stop()
        server.options += [f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=4194304"]
        server.start()
        connection = server.connect(database="d")

        def seen(table="t", index="PRIMARY"):
            return rows(connection, "TERRACE_INDEX_STATISTICS", f"TABLE_NAME = '{table}' AND INDEX_NAME = '{index}'")[0]

        def read(first, last):
            some = ", ".join(map(str, range(first, last, 20)))  # a page has fewer rows than that: each is read once at a time
            run(connection, f"SELECT COUNT(v) FROM t WHERE id IN ({some})")
            return seen()

        wait_for(lambda: read(1, ROWS)["FLASH_REMEMBERED"] > 100)
        # More names than the ghost list has are not to come between two turns of a page, and what flash has already needs none: one part or another of the
        # table has both.
        parts = itertools.cycle([(first, first + width) for width in (2000, 3000, 4000) for first in range(1, ROWS - width, 1500) for _ in range(3)])
        wait_for(lambda: read(*next(parts))["GHOST_HITS"] > 100)
        now, dropped = seen(), int(status(connection, run, "flash_fill_dropped"))
        assert now["GHOST_HITS"] <= now["FLASH_REMEMBERED"] + dropped and now["GHOST_HITS"] <= now["FLASH_ADMITTED"] + dropped, (now, dropped)
        assert now["FLASH_REMEMBERED"] + now["FLASH_ADMITTED"] <= int(status(connection, run, "pool_evictions"))
        wait_for(lambda: read(*next(parts))["HIT_RATIO_FLASH"] > 0)
        # The indexes' numbers add up to the engine's, except for pages of no index (undo, the catalog).
        told = sum(row["FLASH_REMEMBERED"] for row in rows(connection, "TERRACE_INDEX_STATISTICS"))
        everywhere = int(status(connection, run, "flash_remembered"))
        assert 0.8 * everywhere < told <= everywhere, (told, everywhere)
        quiet = seen("quiet")
        assert (quiet["FLASH_REMEMBERED"], quiet["GHOST_HITS"], quiet["WRITES_SINGLE"]) == (0, 0, 0) and now["WRITES_SINGLE"] == 0

        run(connection, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY, k INT, p VARCHAR(2000), KEY k (k)) ENGINE=Terrace")
        run(connection, "INSERT INTO x SELECT seq, seq * 7919 % 10007, REPEAT('p', 1000) FROM seq_1_to_12000")
        of_x = {row["INDEX_NAME"]: row for row in rows(connection, "TERRACE_INDEX_STATISTICS", "WRITE_POLICY = 'single'")}
        assert set(of_x) == {"PRIMARY", "k"} and of_x["PRIMARY"]["WRITES_SINGLE"] > 200, of_x
        for row in of_x.values():
            assert (row["WRITES_CLEAN"], row["WRITES_DUAL"], row["PAGES_VOLUME"], row["PAGES_OBJECT"]) == (0, 0, 0, 0), row
        written = sum(row["WRITES_SINGLE"] for row in of_x.values())
        spilled = int(status(connection, run, "temporary_spill_writes"))
        assert 0.9 * spilled <= written <= spilled, (written, spilled)
        run(connection, "DROP TEMPORARY TABLE x")
        assert not rows(connection, "TERRACE_INDEX_STATISTICS", "WRITE_POLICY = 'single'")
    finally:
        end(server)


BELOW = ("flash", "volume", "object", "log")


def by_tier(counters):
    """Pages that readers got from each tier below memory, prefetched or not."""
    return {tier: counters[f"pages_{tier}"] + counters[f"pages_ahead_{tier}"] for tier in BELOW}


def test_a_statement_says_what_it_read_from_each_tier_and_how_long_that_took(tiered, run):
    connection = tiered.connect()
    load(connection, run)
    wait_for(lambda: is_mostly_far(connection, run))
    table = run(connection, "SELECT TABLE_NAME FROM information_schema.TERRACE_TABLE_STATISTICS WHERE TABLE_SCHEMA = 'd'")[0][0]
    other = tiered.connect(database="d")
    run(other, "SELECT 1")
    silent = mine(other, run)
    tiered.restart()
    connection, other = tiered.connect(database="d"), tiered.connect(database="d")
    silent = mine(other, run)
    before, started = mine(connection, run), time.time()
    run(connection, f"SELECT COUNT(*) FROM {table} FORCE INDEX (PRIMARY) WHERE LENGTH(id) > 0")
    took = time.time() - started
    first = {name: value - before[name] for name, value in mine(connection, run).items()}
    below = sum(by_tier(first).values())
    pages = rows(connection, "TERRACE_INDEX_STATISTICS", f"TABLE_NAME = '{table}' AND INDEX_NAME = 'PRIMARY'")[0]
    assert below > 20 and first["pages_object"] > 0
    assert below >= min(pages["PAGES_VOLUME"] + pages["PAGES_OBJECT"], 20), "a cold scan reads its pages from below"
    assert 0 < first["object_microseconds"] <= took * 1e6
    spent = sum(value for name, value in first.items() if name.endswith("microseconds"))
    assert spent <= took * 1e6, "a statement spends no more time than it takes"
    # The same point read again is in memory: no other tier is asked, and no time is spent there.
    key = run(connection, f"SELECT id FROM {table} LIMIT 1")[0][0]
    for _ in range(20):  # frames are freed ahead of need: it may be gone, but not each time
        run(connection, f"SELECT * FROM {table} WHERE id = %s", (key,))
        before = mine(connection, run)
        run(connection, f"SELECT * FROM {table} WHERE id = %s", (key,))
        again = {name: value - before[name] for name, value in mine(connection, run).items()}
        assert 1 <= again.pop("pages_memory") <= 20 and again.pop("rows_read") == 1
        if not any(again.values()):
            break
    assert set(again.values()) == {0}, again
    # A session that read nothing has counted nothing; the counters are the session's own, so the server has none of these reads.
    assert mine(other, run) == silent
    assert not run(connection, "SHOW GLOBAL STATUS LIKE 'Terrace_session_%'")


def test_rows_are_counted_that_statements_read_and_change(server, db, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    other = server.connect(database=db.name)

    def counted(connection, scope, of):
        shown = dict(run(connection, f"SHOW {scope} STATUS LIKE 'Terrace_{of}%'"))
        return [int(shown[f"Terrace_{of}_{name}"]) for name in ("read", "inserted", "updated", "deleted")]

    def does(statements, connection=db):
        before = counted(other, "GLOBAL", "rows"), counted(connection, "SESSION", "session_rows")
        for statement in statements.split(";"):
            run(connection, statement)
        after = counted(other, "GLOBAL", "rows"), counted(connection, "SESSION", "session_rows")
        everywhere, own = [[now - then for now, then in zip(*pair)] for pair in zip(after, before)]
        assert everywhere == own, statements
        return own

    run(db, "CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE=Terrace")
    assert does("INSERT INTO t VALUES (1,10),(2,20),(3,30),(4,40),(5,50)") == [0, 5, 0, 0]
    assert does("SELECT * FROM t") == [5, 0, 0, 0]
    assert does("SELECT * FROM t LIMIT 2") == [2, 0, 0, 0]
    assert does("SELECT * FROM t WHERE id = 3") == [1, 0, 0, 0]
    assert does("SELECT * FROM t WHERE id = 77") == [0, 0, 0, 0]
    assert does("SELECT v FROM t FORCE INDEX (v) WHERE v >= 30") == [3, 0, 0, 0]
    assert does("UPDATE t SET v = v + 1") == [5, 0, 5, 0]
    assert does("UPDATE t SET v = v") == [5, 0, 0, 0]
    assert does("UPDATE t SET id = 100 WHERE id = 1")[1:] == [0, 1, 0]
    assert does("DELETE FROM t WHERE id IN (2, 3)")[1:] == [0, 0, 2]
    assert sum(does("REPLACE INTO t VALUES (4,44)")[1:]) in (1, 2)  # an update, or a row for another
    # What is rolled back was done; a row that is refused was not.
    assert does("BEGIN; INSERT INTO t VALUES (6,6); ROLLBACK") == [0, 1, 0, 0]
    with pytest.raises(pymysql.err.IntegrityError):
        does("INSERT INTO t VALUES (7,7),(4,4)")
    assert run(db, "SELECT COUNT(*) FROM t WHERE id = 7") == [(0,)]
    assert does("INSERT INTO t SELECT seq + 1000, seq FROM seq_1_to_3000") == [0, 3000, 0, 0]
    assert does("SELECT SUM(v) FROM t IGNORE INDEX (v)") == [3003, 0, 0, 0]
    assert does("LOCK TABLES t WRITE; DELETE FROM t WHERE id > 2000; UNLOCK TABLES")[3] == 2000
    run(db, "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=Terrace PARTITION BY HASH (id) PARTITIONS 3")
    assert does("INSERT INTO p SELECT seq FROM seq_1_to_10; SELECT * FROM p") == [10, 10, 0, 0]
    assert not run(db, "SHOW GLOBAL STATUS LIKE 'Terrace_session_%'")


def test_log_positions_advance(server, db, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")

    def positions():
        shown = {name.lower(): int(value) for name, value in run(db, "SHOW GLOBAL STATUS LIKE 'Terrace_log_%'")}
        end, durable, checkpoint = [shown[f"terrace_log_position{which}"] for which in ("", "_durable", "_checkpoint")]
        assert checkpoint <= durable <= end and shown["terrace_log_checkpoint_age"] == end - checkpoint
        return end, durable, checkpoint

    before = positions()
    run(db, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(100)) ENGINE=Terrace")
    run(db, "INSERT INTO t VALUES (1, REPEAT('a', 100))")
    after = positions()
    assert after[0] > before[0] + 100 and after[1] > before[0] + 100
    wait_for(lambda: positions()[2] > before[0])


@pytest.mark.parametrize("tier", ["flash", "volume", "object"])
def test_the_pages_of_a_cold_scan_add_up_by_tier(tier, tmp_path, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    small, large = "--terrace-memory=10485760", "--terrace-memory=67108864"
    tiers = {
        "flash": [f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=67108864", "--terrace-flash-admission=admit-all"],
        "volume": [],
        "object": SIZES[1:] + Store("directory", tmp_path).options() + ["--terrace-without=clean-copies"],
    }[tier]
    server = Server(str(directory), [small, *tiers])
    server.start()
    try:
        connection = server.connect()
        load(connection, run)
        sql = "SELECT COUNT(*), SUM(LENGTH(pad)) FROM t FORCE INDEX (PRIMARY)"
        if tier == "flash":
            # What a scan has pushed out of memory is there.
            run(connection, sql)
            wait_for(lambda: run(connection, sql) and int(status(connection, run, "flash_pages")) > 400)
        if tier == "object":
            wait_for(lambda: is_mostly_far(connection, run))
        server.stop()
        server.options[0] = large
        server.start()
        connection = server.connect(database="d")
        if tier == "flash":
            wait_for(lambda: int(status(connection, run, "flash_pages_restored")) > 400)
        run(connection, "SELECT * FROM t LIMIT 0")

        def seen():
            row = rows(connection, "TERRACE_INDEX_STATISTICS", "TABLE_SCHEMA = 'd' AND INDEX_NAME = 'PRIMARY'")[0]
            return row, mine(connection, run)

        def is_settled():
            """For a second: what is asked for may be in coming for a while on a busy machine."""
            looks = []
            for _ in range(6):
                looks.append(seen()[0]["PAGES_MEMORY"])
                time.sleep(0.2)
            return len(set(looks)) == 1

        # What opening the table has asked for ahead is counted at once, and in memory when it has come.
        wait_for(is_settled)

        def scan():
            (row, session), started = seen(), time.time()
            assert run(connection, sql) == [(ROWS, 900 * ROWS)]
            took, (row_after, session_after) = time.time() - started, seen()
            counted = {name: row_after[name] - value for name, value in row.items() if name.startswith(("READS_", "PAGES_"))}
            return counted, {name: session_after[name] - value for name, value in session.items()}, row_after, took

        counted, read, row, took = scan()
        pages = by_tier(read)
        below = sum(pages.values())
        # The statement and the index count the same, and a prefetched page is no hit of memory.
        assert {place: counted[f"READS_{place.upper()}"] for place in BELOW} == pages
        assert counted["READS_MEMORY"] == read["pages_memory"]
        assert read["pages_ahead"] == sum(read[f"pages_ahead_{place}"] for place in BELOW) > below / 2
        assert row["HIT_RATIO_MEMORY"] == pytest.approx(Decimal(row["READS_MEMORY"]) / reads(row), abs=Decimal("1e-6"))
        # Each page was fetched once: a page in memory now was read, or was prefetched and not read (a few were prefetched before); and these are all pages, except a few
        # that no scan needs. A page being fetched holds memory, and is counted as prefetched when it arrives: one may be under way at either look.
        unused = counted["PAGES_AHEAD"] - read["pages_ahead"]
        assert abs(counted["PAGES_MEMORY"] - below - unused) <= 2 and -5 <= unused <= 5, (counted, read)
        everything = row["PAGES_VOLUME"] + row["PAGES_OBJECT"]
        assert everything > 500 and everything - 5 <= row["PAGES_MEMORY"] <= everything
        # From where it should have come; all of it, where there is no other place.
        assert pages[tier] == below if tier == "volume" else pages[tier] > below / 2, pages
        # Time is where pages came from, and nowhere else.
        assert 0 < read[f"{tier}_microseconds"] <= took * 1e6
        assert all(pages[place] or not read[f"{place}_microseconds"] for place in BELOW) and not read["wait_microseconds"], read
        # The next one finds all in memory.
        counted, read, row, took = scan()
        assert counted["READS_MEMORY"] == read["pages_memory"] >= below
        assert not any(by_tier(read).values()) and not read["pages_ahead"] and not any(value for name, value in read.items() if name.endswith("microseconds")), read
    finally:
        end(server)


def test_sessions_that_read_the_same_pages_count_each_once_and_show_their_wait_times(tmp_path, engine, run):
    """One of them brings a page, and the others wait for it: their time is that of no tier."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    server = Server(str(directory), ["--terrace-memory=67108864"])
    server.start()

    def waits():
        server.restart()
        sessions, got = [server.connect(database="d") for _ in range(4)], []
        run(sessions[0], "SELECT * FROM t LIMIT 0")

        def scan(session):
            got.extend(run(session, "SELECT COUNT(*), SUM(LENGTH(pad)) FROM t FORCE INDEX (PRIMARY)"))

        def index():
            return rows(sessions[0], "TERRACE_INDEX_STATISTICS", "TABLE_SCHEMA = 'd' AND INDEX_NAME = 'PRIMARY'")[0]

        at_first, before, started = [mine(one, run) for one in sessions], index(), time.time()
        threads = [threading.Thread(target=scan, args=(one,)) for one in sessions]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        took, after = time.time() - started, index()
        assert got == [(ROWS, 900 * ROWS)] * 4
        spent = [{name: value - first[name] for name, value in mine(one, run).items()} for one, first in zip(sessions, at_first)]
        for place in BELOW:
            assert sum(by_tier(one)[place] for one in spent) == after[f"READS_{place.upper()}"] - before[f"READS_{place.upper()}"], place
        for one in spent:
            assert one["pages_memory"] + sum(by_tier(one).values()) >= 400
            assert sum(value for name, value in one.items() if name.endswith("microseconds")) <= took * 1e6, one
        return any(one["wait_microseconds"] for one in spent) and any(one["volume_microseconds"] for one in spent)

    try:
        load(server.connect(), run)
        wait_for(waits)
    finally:
        end(server)


def test_analyze_and_the_slow_log_tell_pages_and_time(tiered, run, tmp_path):
    connection = tiered.connect()
    load(connection, run)
    wait_for(lambda: is_mostly_far(connection, run))
    table = run(connection, "SELECT TABLE_NAME FROM information_schema.TERRACE_TABLE_STATISTICS WHERE TABLE_SCHEMA = 'd'")[0][0]
    tiered.restart()
    connection = tiered.connect(database="d")
    sql = f"SELECT COUNT(*) FROM {table} FORCE INDEX (PRIMARY) WHERE LENGTH(id) > 0"

    def analyzed():
        plan = json.loads(run(connection, f"ANALYZE FORMAT=JSON {sql}")[0][0])
        text = json.dumps(plan)
        return json.loads(re.search(r'"r_engine_stats": (\{[^}]*\})', text).group(1)), text

    cold, text = analyzed()
    assert cold["pages_accessed"] >= cold["pages_read_count"] + cold.get("pages_prefetch_read_count", 0) > 0 and cold["pages_read_time_ms"] > 0, text

    log = tmp_path / "slow.log"
    run(connection, f"SET GLOBAL slow_query_log_file = '{log}'")
    run(connection, "SET GLOBAL slow_query_log = 1")
    run(connection, "SET SESSION slow_query_log = 1, long_query_time = 0, log_slow_verbosity = 'engine'")
    run(connection, sql)
    run(connection, "SET SESSION long_query_time = 10")
    entry = log.read_text().split(sql)[0]
    accessed = re.findall(r"Pages_accessed: (\d+)\s+Pages_read: (\d+)", entry)
    assert accessed and int(accessed[-1][0]) > 0, entry


def test_the_curve_and_the_advice_fit_what_is_measured(tmp_path, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    flash = [f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=8388608", "--terrace-price-memory=3", "--terrace-price-flash=0"]
    server = Server(str(directory), ["--terrace-memory=8388608", *flash])
    server.start()
    try:
        connection = server.connect()
        assert dict(run(connection, "SHOW GLOBAL VARIABLES LIKE 'terrace_price_%'"))["terrace_price_memory"].startswith("3.0")
        assert "Too few reads" in rows(connection, "TERRACE_ADVICE")[0]["ADVICE"]
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, pad VARCHAR(4000)) ENGINE=Terrace")
        for start in range(1, 6001, 1000):
            run(connection, f"INSERT INTO t SELECT seq, REPEAT('x', 3500) FROM seq_{start}_to_{start + 999}")
        # About 24 MB, again and again: memory and this flash have less than all of it.
        for _ in range(8):
            for at in range(1, 6001, 4):
                run(connection, "SELECT LENGTH(pad) FROM t WHERE id = %s", (at,))
        curve = rows(connection, "TERRACE_MISS_RATIO_CURVE")
        now = [row for row in curve if row["IS_CURRENT"]]
        assert len(now) == 1 and now[0]["FLASH_BYTES"] == 8388608
        for memory in {row["MEMORY_BYTES"] for row in curve}:
            column = sorted((row for row in curve if row["MEMORY_BYTES"] == memory), key=lambda row: row["FLASH_BYTES"])
            misses = [row["MISS_RATIO"] for row in column]
            assert misses == sorted(misses, reverse=True) and len(column) >= 5
            for row in column:
                assert row["MISS_RATIO"] <= row["MISS_RATIO_MEMORY"]
                storage = memory / 2**30 * 3 + 0 * row["FLASH_BYTES"]
                assert float(row["COST_STORAGE"]) >= storage - 1e-6
        # With flash for all of it, hardly anything is missed; with none, most of the leaves are.
        largest = max((row for row in curve if row["MEMORY_BYTES"] == now[0]["MEMORY_BYTES"]), key=lambda row: row["FLASH_BYTES"])
        none = min((row for row in curve if row["MEMORY_BYTES"] == now[0]["MEMORY_BYTES"]), key=lambda row: row["FLASH_BYTES"])
        assert largest["MISS_RATIO"] < Decimal("0.05") and none["MISS_RATIO"] > Decimal("0.15")
        # What was measured below memory is near what the curve says of it.
        table = rows(connection, "TERRACE_TABLE_STATISTICS", "TABLE_NAME = 't'")[0]
        measured = 1 - table["READS_MEMORY"] / reads(table)
        assert abs(measured - float(now[0]["MISS_RATIO_MEMORY"])) < 0.2
        advice = [row["ADVICE"] for row in rows(connection, "TERRACE_ADVICE")]
        assert any(line.startswith("Flash of 32 MB instead of 8 MB would miss") for line in advice), advice
        assert advice[-1].startswith("Advice: flash of ") and "would take away" in advice[-1], advice
    finally:
        end(server)


def test_prices_are_validated(tmp_path, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    file = tmp_path / "terrace.toml"
    file.write_text(f'volume_path = "{directory}/data/terrace"\nprice_memory = -1\nprice_gets = "cheap"\n')
    server = Server(str(directory), ["--innodb=OFF", "--default-storage-engine=Aria", f"--terrace-config={file}"])
    server.start()
    try:
        said = open(directory / "error.log").read()
        assert "price_memory = -1" in said and 'price_gets = "cheap"' in said
    finally:
        end(server)


def families(text):
    """What a real parser makes of the metrics: families by name."""
    from prometheus_client import parser  # scripts/python.sh brings it

    found = list(parser.text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found), "a family comes once"
    for family in found:
        series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(set(series)) == len(series), f"{family.name}: a series comes once"
        if family.type == "counter":
            assert all(sample.name.endswith("_total") and sample.value >= 0 for sample in family.samples), family.name
        assert family.documentation, family.name
    return {family.name: family for family in found}


def value(family, **labels):
    return sum(sample.value for sample in family.samples if all(sample.labels.get(name) == text for name, text in labels.items()) and not sample.name.endswith(("_bucket", "_sum", "_created")))


def test_metrics_are_prometheus_and_say_what_sql_says(store, tmp_path, run):
    directory = tmp_path / "server"
    os.makedirs(directory)
    port = next(PORTS)
    flash = [f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=4194304"]
    server = Server(str(directory), SIZES + flash + store.options() + [f"--terrace-metrics-listen=127.0.0.1:{port}"])
    server.start()
    try:
        connection = server.connect()
        load(connection, run)
        wait_for(lambda: is_mostly_far(connection, run))
        run(connection, "SELECT SUM(v) FROM t")
        for _ in range(2):
            run(connection, f"SELECT COUNT(v) FROM t WHERE id IN ({', '.join(map(str, range(1, ROWS, 15)))})")

        def scrape():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                return families(answer.read().decode())

        before = scrape()
        row = rows(connection, "TERRACE_INDEX_STATISTICS", "TABLE_SCHEMA = 'd' AND INDEX_NAME = 'PRIMARY'")[0]
        after = scrape()
        # What only grows lies between two looks at it.
        for tier in ("memory", "flash", "volume", "object"):
            low, high = (value(seen["terrace_index_reads"], table="d.t", index="PRIMARY", tier=tier) for seen in (before, after))
            assert low <= row[f"READS_{tier.upper()}"] <= high
        for metric, column in (("sinks", "SINKS"), ("pages_ahead", "PAGES_AHEAD")):
            low, high = (value(seen[f"terrace_index_{metric}"], table="d.t", index="PRIMARY") for seen in (before, after))
            assert low <= row[column] <= high and (metric != "sinks" or high > 0)
        for metric, column in (("flash_admissions", "FLASH_ADMITTED"), ("flash_remembered", "FLASH_REMEMBERED"), ("ghost_hits", "GHOST_HITS"), ("writes_clean", "WRITES_CLEAN")):
            low, high = (value(seen[f"terrace_index_{metric}"], table="d.t", index="PRIMARY") for seen in (before, after))
            assert 0 < low <= row[column] <= high, metric
        for method in ("get", "put"):
            for metric, column in (("requests", f"STORE_{method.upper()}S"), ("bytes", f"STORE_{method.upper()}_BYTES")):
                low, high = (value(seen[f"terrace_index_store_{metric}"], table="d.t", index="PRIMARY", method=method) for seen in (before, after))
                assert 0 < low <= row[column] <= high, (method, metric)
        # Costs by hand: requests of the time since the start, as if a month went on like that, and bytes.
        requests = (row["STORE_GETS"] * PRICES["gets"] + row["STORE_PUTS"] * PRICES["puts"]) / 1000 * MONTH
        uptimes = [value(seen["terrace_uptime_seconds"]) for seen in (before, after)]
        assert requests / uptimes[1] * 0.99 <= float(row["COST_REQUESTS"]) <= requests / uptimes[0] * 1.01 and requests > 0, (requests, uptimes, row)
        for seen in (before, after):
            of = {"table": "d.t", "index": "PRIMARY"}
            costs = {part: value(seen["terrace_index_cost_dollars_per_month"], **of, part=part) for part in ("memory", "flash", "volume", "object", "requests")}
            sizes = {tier: PAGE * value(seen["terrace_index_pages"], **of, tier=tier) for tier in ("memory", "flash", "volume")}
            sizes["object"] = value(seen["terrace_index_object_bytes"], **of)
            asked = sum(value(seen["terrace_index_store_requests"], **of, method=method) * PRICES[f"{method}s"] for method in ("get", "put")) / 1000 * MONTH
            by_hand = {tier: size / 2**30 * PRICES[tier] for tier, size in sizes.items()} | {"requests": asked / value(seen["terrace_uptime_seconds"])}
            assert costs == {part: pytest.approx(cost, rel=0.01, abs=1e-9) for part, cost in by_hand.items()}, (costs, by_hand)
            assert all(cost > 0 for part, cost in costs.items() if part != "volume"), costs  # all of it has sunk
        assert value(after["terrace_index_pages"], table="d.t", tier="object") > 0
        assert after["terrace_object_requests_throttled"].type == "counter", "no family of terrace_io tells it"
        assert after["terrace_pool_misses"].type == "counter" and after["terrace_pool_frames"].type == "gauge"
        assert not [name for name, family in after.items() if family.type in ("untyped", "unknown")], "every metric has a type"
        # A histogram's buckets grow, and end with the count.
        histogram = after["terrace_io_duration_seconds"]
        buckets = [sample.value for sample in histogram.samples if sample.name.endswith("_bucket") and sample.labels["tier"] == "volume" and sample.labels["purpose"] == "log_write"]
        count = next(sample.value for sample in histogram.samples if sample.name.endswith("_count") and sample.labels == {"tier": "volume", "purpose": "log_write"})
        assert buckets == sorted(buckets) and buckets[-1] == count > 0
        for path, code in (("/", 404), ("/metrics/x", 404)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30)
            assert refused.value.code == code
        # Garbage and silent connections harm no other client.
        for text in (b"\\0" * 100, b"GET /metrics", b"a" * 100000):
            with socket.create_connection(("127.0.0.1", port)) as rude:
                try:
                    rude.sendall(text)
                except OSError:
                    pass
        assert scrape()
        server.stop()

        # The same of the stopped instance, by the command; and what it advises.
        volume = os.path.join(server.directory, "data", "terrace")
        program = os.path.join(TARGET, "debug", "terrace")
        done = subprocess.run([program, "status", "--prometheus", "--volume", volume], stdout=subprocess.PIPE, text=True, timeout=180)
        stopped = families(done.stdout)
        assert done.returncode == 0 and value(stopped["terrace_closed_cleanly"]) == 1
        assert value(stopped["terrace_index_pages"], table="d.t", tier="object") > 0
        done = subprocess.run([program, "advise", "--volume", volume], stdout=subprocess.PIPE, text=True, timeout=180)
        assert done.returncode == 0 and "Advice: " in done.stdout and " reads, memory (" in done.stdout, done.stdout
        done = subprocess.run([program, "advise", "--json", "--volume", volume], stdout=subprocess.PIPE, text=True, timeout=180)
        assert len(json.loads(done.stdout)["curve"]) >= 9
        assert server.check(*store.place())[0] == 0
        server.start()
    finally:
        end(server)
