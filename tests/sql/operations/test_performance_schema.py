"""The engine in performance_schema: threads, files, waits, memory and stages of builds, each in its usual table; progress of
builds in PROCESSLIST; TERRACE_METRICS."""

import os
import threading
import time

import pymysql
import pytest
from conftest import Server, end, wait_until
from test_object import SIZES, a_store, is_mostly_far, load

ON = [
    "--performance-schema=ON",
    "--performance-schema-instrument=wait/%=ON",
    "--performance-schema-instrument=memory/terrace/%=ON",
    "--performance-schema-instrument=stage/terrace/%=ON",
    "--performance-schema-consumer-events-waits-current=ON",
    "--performance-schema-consumer-events-waits-history-long=ON",
    "--performance-schema-consumer-events-stages-current=ON",
    "--performance-schema-consumer-events-stages-history-long=ON",
]
FILES = "SELECT SUBSTRING_INDEX(EVENT_NAME, '/', -1), COUNT_READ, SUM_NUMBER_OF_BYTES_READ, COUNT_WRITE, SUM_NUMBER_OF_BYTES_WRITE, COUNT_MISC FROM performance_schema.file_summary_by_event_name WHERE EVENT_NAME LIKE 'wait/io/file/terrace/%'"


@pytest.fixture
def store(tmp_path, monkeypatch, engine):
    yield from a_store("directory", tmp_path, monkeypatch, engine)


@pytest.fixture
def tiered(store, tmp_path):
    """With a store, flash, and performance_schema."""
    directory = tmp_path / "server"
    os.makedirs(directory)
    flash = [f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=16777216"]
    server = Server(str(directory), SIZES + flash + store.options() + ON)
    server.start()
    yield server
    end(server)


@pytest.fixture(scope="module")
def shown(tmp_path_factory, request):
    if request.config.getoption("--engine") == "InnoDB":
        pytest.skip("Terrace's own")
    server = Server(str(tmp_path_factory.mktemp("server")), ["--terrace-memory=33554432", *ON])
    server.start()
    run(server.connect(), "CREATE DATABASE d")
    yield server
    end(server)


def run(connection, sql):
    cursor = connection.cursor()
    cursor.execute(sql)
    return list(cursor.fetchall())


def files(connection):
    return {name: dict(zip(("reads", "read", "writes", "written", "misc"), map(int, rest))) for name, *rest in run(connection, FILES)}


def waits(connection, name):
    return int(run(connection, f"SELECT COUNT_STAR FROM performance_schema.events_waits_summary_global_by_event_name WHERE EVENT_NAME = 'wait/synch/cond/terrace/{name}'")[0][0])


def test_each_tiers_reads_and_writes_match_the_engines_counters(tiered):
    connection = tiered.connect()
    load(connection, run)
    wait_until(lambda: is_mostly_far(connection, run))
    for _ in range(2):
        run(connection, "SELECT COUNT(*), SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY)")
    seen = files(connection)
    assert set(seen) == {"log", "pages", "map", "superblock", "flash", "spill", "object"}
    for place in ("log", "pages", "flash", "object"):
        assert seen[place]["writes"] and seen[place]["written"], (place, seen)
    for place in ("pages", "object"):
        assert seen[place]["reads"] and seen[place]["read"], (place, seen)
    assert seen["log"]["misc"] and seen["map"]["writes"] and seen["superblock"]["writes"], seen
    # The bytes are those of TERRACE_IO; what is asked for later has more.
    counted = {(tier, purpose): int(bytes) for tier, purpose, bytes in run(connection, "SELECT TIER, PURPOSE, BYTES FROM information_schema.TERRACE_IO")}
    later = files(connection)
    for place, what, purposes in [
        ("log", "written", [("volume", "log_write")]),
        ("pages", "written", [("volume", "page_flush")]),
        ("pages", "read", [("volume", "page_read")]),
        ("flash", "written", [("flash", "flash_fill")]),
        ("object", "read", [pair for pair in counted if pair[0] == "object" and pair[1] not in ("sink", "epoch", "collect")]),
    ]:
        there = sum(counted[pair] for pair in purposes)
        assert seen[place][what] <= there * 1.05 and later[place][what] >= there * 0.95, (place, what, seen, there, later)
    # Reads of statements are the session's own, nested in the statement.
    mine = run(connection, "SELECT COUNT(*) FROM performance_schema.events_waits_summary_by_thread_by_event_name s JOIN performance_schema.threads t USING (THREAD_ID) WHERE t.PROCESSLIST_ID = CONNECTION_ID() AND s.EVENT_NAME LIKE 'wait/io/file/terrace/%' AND s.COUNT_STAR > 0")
    assert mine[0][0] >= 1
    events = run(connection, "SELECT OPERATION, NUMBER_OF_BYTES, OBJECT_NAME, TIMER_WAIT FROM performance_schema.events_waits_history_long WHERE EVENT_NAME = 'wait/io/file/terrace/pages'")
    assert events and {operation for operation, *_ in events} <= {"read", "write", "sync"}
    assert all(name.endswith("Terrace (pages)") and taken > 0 for _, _, name, taken in events)


def test_background_threads_are_in_threads_with_their_activity(shown):
    connection = shown.connect(database="d")
    names = [name for (name,) in run(connection, "SELECT NAME FROM performance_schema.threads WHERE NAME LIKE 'thread/terrace/%'")]
    assert {f"thread/terrace/{name}" for name in ("log", "flusher", "checkpoint", "evictor", "purge", "watch")} <= set(names)
    types = run(connection, "SELECT DISTINCT TYPE, INSTRUMENTED, THREAD_OS_ID IS NOT NULL FROM performance_schema.threads WHERE NAME LIKE 'thread/terrace/%'")
    assert types == [("BACKGROUND", "YES", 1)]
    run(connection, "CREATE TABLE d.written (id INT PRIMARY KEY, v VARCHAR(1000)) ENGINE=Terrace")
    run(connection, "INSERT INTO d.written SELECT seq, REPEAT('x', 900) FROM seq_1_to_20000")
    run(connection, "UPDATE d.written SET v = REPEAT('y', 900)")
    theirs = "SELECT SUM(COUNT_STAR) FROM performance_schema.events_waits_summary_by_thread_by_event_name s JOIN performance_schema.threads t USING (THREAD_ID) WHERE t.NAME = 'thread/terrace/flusher' AND EVENT_NAME = 'wait/io/file/terrace/pages'"
    wait_until(lambda: int(run(connection, theirs)[0][0] or 0) > 0)


def test_a_wait_for_a_row_is_a_wait_for_a_condition(shown):
    one, other, looks = shown.connect(database="d"), shown.connect(database="d"), shown.connect()
    run(one, "CREATE TABLE waited (id INT PRIMARY KEY, v INT) ENGINE=Terrace")
    run(one, "INSERT INTO waited VALUES (1, 0)")
    before = waits(looks, "row_lock")
    run(one, "BEGIN")
    run(one, "UPDATE waited SET v = 1")
    waiter = threading.Thread(target=run, args=(other, "UPDATE waited SET v = v + 1"))
    waiter.start()
    current = f"SELECT OPERATION, TIMER_END FROM performance_schema.events_waits_current w JOIN performance_schema.threads t USING (THREAD_ID) WHERE EVENT_NAME = 'wait/synch/cond/terrace/row_lock' AND PROCESSLIST_ID = {other.thread_id()}"
    found = wait_until(lambda: run(looks, current))
    assert found[0][0] == "timed_wait"
    time.sleep(0.3)
    run(one, "COMMIT")
    waiter.join()
    assert waits(looks, "row_lock") == before + 1
    taken = run(looks, f"SELECT SUM_TIMER_WAIT / 1e12 FROM performance_schema.events_waits_summary_by_thread_by_event_name s JOIN performance_schema.threads t USING (THREAD_ID) WHERE EVENT_NAME = 'wait/synch/cond/terrace/row_lock' AND PROCESSLIST_ID = {other.thread_id()}")
    assert float(taken[0][0]) > 0.25


def test_commits_together_wait_for_one_anothers_log_writes(shown):
    setup = shown.connect(database="d")
    run(setup, "CREATE TABLE many (id INT PRIMARY KEY, v INT) ENGINE=Terrace")

    def write(low):
        mine = shown.connect(database="d")
        for at in range(100):
            run(mine, f"INSERT INTO many VALUES ({low + at}, 0)")

    def play():
        before, low = waits(setup, "log_sync"), 1000 * int(time.monotonic() * 1000) % 2_000_000_000
        writers = [threading.Thread(target=write, args=(low + 100 * number,)) for number in range(8)]
        [writer.start() for writer in writers]
        [writer.join() for writer in writers]
        return waits(setup, "log_sync") > before

    wait_until(play)


def test_memory_matches_the_engines_account_and_loans_appear_and_end(shown):
    connection = shown.connect(database="d")
    held = "SELECT SUBSTRING_INDEX(EVENT_NAME, '/', -1), CURRENT_NUMBER_OF_BYTES_USED, HIGH_NUMBER_OF_BYTES_USED FROM performance_schema.memory_summary_global_by_event_name WHERE EVENT_NAME LIKE 'memory/terrace/%'"

    def memory():
        return {name: (int(now), int(high)) for name, now, high in run(connection, held)}

    def frames():
        status = dict(run(connection, "SHOW GLOBAL STATUS LIKE 'Terrace_pool_frames%'"))
        return 16384 * (int(status["Terrace_pool_frames"]) - int(status["Terrace_pool_frames_lent"]))

    seen = memory()
    assert set(seen) == {"frames", "buffers", "sorts", "watches", "locks", "cursors"}
    wait_until(lambda: memory()["frames"][0] == frames())
    total = seen["frames"][0] + seen["buffers"][0]
    assert 0.9 * 33554432 < total <= 1.05 * 33554432, seen
    run(connection, "CREATE TABLE sorted (id INT PRIMARY KEY, v VARCHAR(100)) ENGINE=Terrace")
    run(connection, "INSERT INTO sorted SELECT seq, MD5(seq) FROM seq_1_to_30000")
    run(connection, "CREATE INDEX v ON sorted (v)")
    after = memory()
    assert after["sorts"][1] >= 1 << 20 and after["sorts"][0] == 0, after
    run(connection, f"SET GLOBAL terrace_memory = {24 << 20}")
    wait_until(lambda: memory()["frames"][0] == frames() < seen["frames"][0])
    run(connection, f"SET GLOBAL terrace_memory = {32 << 20}")


LOCKS = "SELECT EVENT_NAME, COUNT_STAR, SUM_TIMER_WAIT FROM performance_schema.events_waits_summary_global_by_event_name WHERE EVENT_NAME LIKE 'wait/synch/%lock/terrace/%' OR EVENT_NAME LIKE 'wait/synch/mutex/terrace/%'"


def locks(connection):
    return {name[len("wait/synch/"):].replace("/terrace", ""): (int(count), int(taken)) for name, count, taken in run(connection, LOCKS)}


def all_at_once(server, statements):
    failed = []

    def play(statement):
        try:
            run(server.connect(database="d"), statement)
        except pymysql.err.Error as error:
            failed.append(error)

    threads = [threading.Thread(target=play, args=(statement,)) for statement in statements]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failed


def define(server):
    """Sessions that make tables: a definition is changed by one after the other."""
    loop = "BEGIN NOT ATOMIC FOR i IN 1..10 DO CREATE TABLE made{0} (id INT PRIMARY KEY) ENGINE=Terrace; DROP TABLE made{0}; END FOR; END"
    all_at_once(server, [loop.format(number) for number in range(4)])


def test_mutexes_and_latches_are_instruments_without_an_owner(shown):
    connection = shown.connect()
    seen = locks(connection)
    assert {f"mutex/{name}" for name in ("catalog", "definitions", "row_locks", "views", "log_order", "pool_table", "pool_free", "flush", "flash", "sink")} <= set(seen)
    assert {f"rwlock/{name}" for name in ("page", "map", "transactions", "table")} <= set(seen)
    lost = dict(run(connection, "SHOW GLOBAL STATUS LIKE 'Performance_schema_%_lost'"))
    assert lost["Performance_schema_mutex_classes_lost"] == lost["Performance_schema_rwlock_classes_lost"] == "0", lost
    for kind, owner in ("mutex", "LOCKED_BY_THREAD_ID"), ("rwlock", "WRITE_LOCKED_BY_THREAD_ID"):
        there = run(connection, f"SELECT NAME, {owner} FROM performance_schema.{kind}_instances WHERE NAME LIKE 'wait/synch/{kind}/terrace/%'")
        assert sorted(there) == sorted((f"wait/synch/{kind}/terrace/{name.split('/')[1]}", None) for name in seen if name.startswith(kind + "/"))


@pytest.fixture
def only_ours(shown):
    """Of waits, those in the engine: the others would fill the history."""
    looks = shown.connect()
    others = "UPDATE performance_schema.setup_instruments SET ENABLED = '{}' WHERE NAME LIKE 'wait/%' AND NAME NOT LIKE '%/terrace/%'"
    run(looks, others.format("NO"))
    run(looks, "TRUNCATE TABLE performance_schema.events_waits_history_long")
    yield
    run(looks, others.format("YES"))


def test_a_thread_that_waits_for_a_mutex_is_seen_unless_the_instrument_is_off(shown, only_ours):
    looks = shown.connect()
    rounds = 0

    def waited():
        nonlocal rounds
        rounds, before = rounds + 1, locks(looks)["mutex/definitions"]
        define(shown)
        after = locks(looks)["mutex/definitions"]
        return after[0] > before[0] and after[1] > before[1]

    wait_until(waited)
    events = run(looks, "SELECT DISTINCT OPERATION, TIMER_WAIT > 0 FROM performance_schema.events_waits_history_long WHERE EVENT_NAME LIKE 'wait/synch/mutex/terrace/%'")
    assert events == [("lock", 1)]
    switch = "UPDATE performance_schema.setup_instruments SET ENABLED = '{}' WHERE NAME = 'wait/synch/mutex/terrace/definitions'"
    run(looks, switch.format("NO"))
    before = locks(looks)["mutex/definitions"]
    for _ in range(2 * rounds):
        define(shown)
    assert locks(looks)["mutex/definitions"] == before
    run(looks, switch.format("YES"))
    wait_until(waited)


def test_a_thread_that_waits_for_a_latch_of_a_page_is_seen(shown, only_ours):
    looks = shown.connect(database="d")
    run(looks, "CREATE TABLE hot (id INT PRIMARY KEY, v INT) ENGINE=Terrace")
    run(looks, "INSERT INTO hot SELECT seq, 0 FROM seq_1_to_8")
    loop = "BEGIN NOT ATOMIC START TRANSACTION; FOR i IN 1..2000 DO UPDATE hot SET v = v + 1 WHERE id = {}; END FOR; COMMIT; END"
    reads = "BEGIN NOT ATOMIC FOR i IN 1..2000 DO DO (SELECT v FROM hot WHERE id = {}); END FOR; END"

    def waited():
        before = locks(looks)["rwlock/page"]
        all_at_once(shown, [loop.format(number) for number in range(1, 5)] + [reads.format(number) for number in range(5, 9)])
        after = locks(looks)["rwlock/page"]
        return after[0] > before[0] and after[1] > before[1]

    wait_until(waited)
    operations = {operation for (operation,) in run(looks, "SELECT OPERATION FROM performance_schema.events_waits_history_long WHERE EVENT_NAME LIKE 'wait/synch/rwlock/terrace/%'")}
    assert operations and operations <= {"read_lock", "write_lock"}
    owners = "SELECT COUNT(*) FROM performance_schema.rwlock_instances WHERE NAME LIKE '%/terrace/%' AND (WRITE_LOCKED_BY_THREAD_ID IS NOT NULL OR READ_LOCKED_BY_COUNT > 0)"
    assert run(looks, owners) == [(0,)]


STAGES = "SELECT SUBSTRING_INDEX(EVENT_NAME, '/', -1), MAX(WORK_COMPLETED), MAX(WORK_ESTIMATED) FROM performance_schema.events_stages_history_long WHERE EVENT_NAME LIKE 'stage/terrace/%' AND THREAD_ID = (SELECT THREAD_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = {}) GROUP BY 1"


def stages(looks, connection):
    return {name: (done, all) for name, done, all in run(looks, STAGES.format(connection.thread_id()))}


def test_builds_are_stages_with_their_work(shown):
    looks, rows = shown.connect(), 20000
    connection = shown.connect(database="d")
    run(connection, "CREATE TABLE built (id INT PRIMARY KEY, v INT, w VARCHAR(40), KEY (w)) ENGINE=Terrace")
    run(connection, f"INSERT INTO built SELECT seq, seq % 77, MD5(seq) FROM seq_1_to_{rows}")
    # Rows that come in order may be in their tree by then; told is every so often.
    done, all = stages(looks, connection)["Building the table"]
    assert rows <= all <= 2 * rows and 0.9 * all < done <= all
    connection = shown.connect(database="d")
    run(connection, "ALTER TABLE built ADD KEY v (v)")
    seen = stages(looks, connection)
    assert seen["Building an index"] == (rows, rows) and seen["Reading rows for new indexes"][0] == rows
    assert "Following changes of rows" in seen and "Building the table" not in seen
    connection = shown.connect(database="d")
    run(connection, "ALTER TABLE built ADD COLUMN x INT, ALGORITHM=COPY")
    done, all = stages(looks, connection)["Building the table"]
    assert 2 * rows <= all <= 3 * rows and 0.9 * all < done <= all
    assert run(connection, "CHECK TABLE built")[0][3] == "OK"


@pytest.mark.parametrize("statement", ["ALTER TABLE copied FORCE, ALGORITHM=COPY", "INSERT INTO filled SELECT * FROM copied"])
def test_the_end_of_a_build_shows_its_progress(shown, statement):
    """What a statement builds after its last row goes forward in SHOW PROCESSLIST, and a KILL ends it."""
    connection, looks = shown.connect(database="d"), shown.connect()
    run(connection, "DROP TABLE IF EXISTS copied, filled")
    for name in ("copied", "filled"):
        run(connection, f"CREATE TABLE {name} (id INT PRIMARY KEY, a CHAR(32), b CHAR(32), KEY (a), KEY (b), KEY (a, b), KEY (b, a)) ENGINE=Terrace")
    rows = 40000
    run(connection, f"INSERT INTO copied SELECT seq, MD5(seq), MD5(seq * 7) FROM seq_1_to_{rows}")

    def watched(kills):
        worker = threading.Thread(target=lambda: failed.extend(attempt()))
        failed, seen = [], []

        def attempt():
            try:
                run(connection, statement)
                return []
            except pymysql.err.OperationalError as error:
                return [error.args[0]]

        worker.start()
        while worker.is_alive():
            for state, progress in run(looks, f"SELECT STATE, PROGRESS FROM information_schema.PROCESSLIST WHERE ID = {connection.thread_id()}"):
                if state == "Building the table":
                    seen.append(float(progress))
            if kills and seen:
                run(looks, f"KILL QUERY {connection.thread_id()}")
                kills = False
        worker.join()
        return failed, seen

    def sees_a_killed_one():
        failed, _ = watched(kills=True)
        assert failed in ([], [1317])
        if not failed:
            run(connection, "TRUNCATE TABLE filled")
        return failed

    def sees_progress():
        failed, seen = watched(kills=False)
        assert not failed
        run(connection, "TRUNCATE TABLE filled")
        return len({progress for progress in seen if 0 < progress < 100}) >= 2 and seen == sorted(seen)

    wait_until(sees_a_killed_one)
    wait_until(sees_progress)


def test_a_table_shows_all_metrics(shown):
    connection = shown.connect(database="d")
    # Definitions are no commits, and this may be the first test of its server.
    run(connection, "CREATE OR REPLACE TABLE committed (id INT PRIMARY KEY) ENGINE=Terrace")
    run(connection, "INSERT INTO committed VALUES (1)")
    columns = "NAME, SUBSYSTEM, VALUE, TYPE, COMMENT"
    seen = {row[0]: row[1:] for row in run(connection, f"SELECT {columns} FROM information_schema.TERRACE_METRICS")}
    status = {name[len("Terrace_"):]: int(value) for name, value in run(connection, "SHOW GLOBAL STATUS LIKE 'Terrace%'")}
    assert set(seen) == set(status)
    for name, (subsystem, value, kind, comment) in seen.items():
        assert kind in ("counter", "gauge") and subsystem and comment, f"{name} is not in the engine's list of metrics"
        if kind == "counter":
            assert value <= status[name], name
    assert seen["pool_frames"][1] == status["pool_frames"] and seen["pool_frames"][2] == "gauge"
    assert seen["transactions_committed"][1] > 0
    admin = shown.connect()
    run(admin, "CREATE USER IF NOT EXISTS unprivileged@'%'")
    other = pymysql.connect(host="127.0.0.1", port=shown.port, user="unprivileged")
    with pytest.raises(pymysql.err.OperationalError) as refused:
        run(other, "SELECT * FROM information_schema.TERRACE_METRICS")
    assert refused.value.args[0] == 1227


def test_without_performance_schema_nothing_is_instrumented(server, db, run, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    assert run(db, "SELECT @@performance_schema")[0][0] == 0
    for table in ("threads WHERE NAME", "file_summary_by_event_name WHERE EVENT_NAME", "setup_instruments WHERE NAME"):
        assert run(db, f"SELECT COUNT(*) FROM performance_schema.{table} LIKE '%terrace%'")[0][0] == 0
