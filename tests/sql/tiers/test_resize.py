"""Resizing tiers while the server works: growing, shrinking, refused sizes, and that nothing is lost."""

import os
import re
import threading
import time

import pymysql
import pytest
from conftest import end, private, wait_until
from test_flash import status

MIB = 1 << 20
LOCK_TABLE_FULL = 1206
ROWS = 20000


@pytest.fixture
def sized(tmp_path, engine):
    """A server with flash, and a table larger than its memory."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    options = ["--terrace-memory=33554432", "--terrace-memory-max=402653184", "--terrace-object-buffer=268435456"]
    server = private(options + [f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=67108864"])
    server.flash = tmp_path / "flash"
    connection = server.connect()
    connection.cursor().execute("CREATE DATABASE d")
    connection.select_db("d")
    cursor = connection.cursor()
    cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(2000)) ENGINE={engine}")
    for start in range(1, ROWS + 1, 4000):
        cursor.execute(f"INSERT INTO t SELECT seq, 0, REPEAT('x', 1800) FROM seq_{start}_to_{start + 3999}")
    yield server
    end(server)


class Load:
    """Writers and readers beside what the test does. Each counts what was acknowledged."""

    def __init__(self, server, run):
        self.server, self.run, self.done, self.added, self.slowest, self.errors = server, run, False, [0, 0], 0.0, []
        self.threads = [threading.Thread(target=self.work, args=(n,)) for n in range(2)]

    def work(self, which):
        connection, n = self.server.connect(database="d"), which
        try:
            while not self.done:
                n = (n * 16807 + 12345) % 2147483647
                since = time.monotonic()
                self.run(connection, "UPDATE t SET v = v + 1 WHERE id = %s", (n % ROWS + 1,))
                self.slowest = max(self.slowest, time.monotonic() - since)
                self.added[which] += 1
                self.run(connection, "SELECT v FROM t WHERE id = %s", ((n // 7) % ROWS + 1,))
        except Exception as error:
            self.errors.append(error)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.done = True
        for thread in self.threads:
            thread.join()


def resident(server):
    pid = open(os.path.join(server.directory, "pid")).read().strip()
    [line] = [line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


def resize(connection, run, name, size):
    since = time.monotonic()
    run(connection, f"SET GLOBAL terrace_{name} = {size}")
    took = time.monotonic() - since
    assert run(connection, f"SELECT @@terrace_{name}") == [(size,)]
    assert status(connection, run, f"{name}_bytes") == size
    print(f"{name} to {size // MIB} MiB: {took:.2f} s")
    return took


def test_sizes_change_under_load_within_seconds_and_nothing_is_lost(sized, run):
    connection = sized.connect(database="d")
    with Load(sized, run) as load:
        took = []
        for memory, flash, buffer in [(320, 256, 1024), (64, 64, 192), (256, 512, 512), (32, 32, 128)]:
            took.append(resize(connection, run, "memory", memory * MIB))
            took.append(resize(connection, run, "flash", flash * MIB))
            took.append(resize(connection, run, "object_buffer", buffer * MIB))
            assert os.path.getsize(sized.flash / "bpe") <= max(flash, 64) * MIB
            assert os.path.getsize(os.path.join(sized.directory, "data", "terrace", "pages")) <= buffer * MIB
            time.sleep(0.5)
    assert not load.errors, load.errors
    print(f"{len(took)} changes of sizes took {sum(took):.2f} s, the slowest {max(took):.2f} s; {sum(load.added)} changes beside them, the slowest {load.slowest:.2f} s")
    # The slowest of 60 took 0.1 s, on a machine with ten times as much to do as it has processors.
    assert sum(load.added) > 100 and max(took) < 10, (load.added, took)
    total = [(ROWS, sum(load.added))]
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == total
    sized.kill9()
    found, report = sized.check()
    assert found == 0, report
    sized.start()
    connection = sized.connect(database="d")
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == total
    # The volume's size stays; never less than what is configured.
    assert run(connection, "SELECT @@terrace_memory, @@terrace_flash, @@terrace_object_buffer") == [(32 * MIB, 64 * MIB, 256 * MIB)]


def test_the_lock_limit_follows_the_memory_in_force(sized, run):
    """The locks' limit followed the memory size at the start."""
    connection = sized.connect(database="d")
    run(connection, "CREATE TABLE apart (id INT PRIMARY KEY, k INT, pad INT, KEY (k)) ENGINE=Terrace")
    run(connection, "INSERT INTO apart SELECT seq, seq, 0 FROM seq_1_to_100")

    def lock_all():
        run(connection, "BEGIN")
        # Gaps around every other absent key: gaps of neighbouring keys would join into one range.
        run(connection, "SELECT COUNT(apart.id) FROM seq_1_to_30000 AS s STRAIGHT_JOIN apart ON apart.id = -(2 * s.seq) FOR UPDATE")
        held = int(status(connection, run, "gap_locks"))
        run(connection, "COMMIT")
        return held

    for _ in range(2):
        resize(connection, run, "memory", 12 * MIB)
        with pytest.raises(pymysql.err.OperationalError) as caught:
            lock_all()
        assert caught.value.args[0] == LOCK_TABLE_FULL, caught.value
        resize(connection, run, "memory", 128 * MIB)
        assert lock_all() >= 30000


def test_shrunk_memory_is_returned_to_the_operating_system(sized, run):
    connection = sized.connect(database="d")
    run(connection, "SELECT COUNT(*) FROM t WHERE pad = 'y'")
    small = resident(sized)
    resize(connection, run, "memory", 384 * MIB)
    for _ in range(20):  # a larger table, all of it in memory
        run(connection, "INSERT INTO t SELECT (SELECT MAX(id) FROM t) + seq, 0, REPEAT('z', 1800) FROM seq_1_to_4000")
    run(connection, "SELECT COUNT(*) FROM t WHERE pad = 'y'")
    large = resident(sized)
    resize(connection, run, "memory", 32 * MIB)
    back = resident(sized)
    print(f"resident: {small // MIB}, {large // MIB}, {back // MIB} MiB")
    assert large > small + 100 * MIB and back < small + 48 * MIB
    assert run(connection, "SELECT COUNT(*) FROM t") == [(ROWS + 80000,)]


def test_an_impossible_size_is_refused_with_the_reason_and_the_old_one_stays(sized, run):
    connection = sized.connect(database="d")
    for name, size, words in [
        ("memory", MIB, "memory = 1M is less than 4M"),
        ("memory", 1024 * MIB, "memory = 1G is more than memory_max = 384M"),
        ("object_buffer", MIB, "object_buffer = 1M is less than 4M"),
        ("object_buffer", 16 * MIB, "object_buffer = 16M has room for 1024 pages"),
        ("flash", 1 << 40, "flash = 1T takes"),
        ("flash", 1 << 60, "flash"),
        ("object_buffer", 1, "object_buffer = 1 is less than 4M"),
        ("flash", -5, "'-5'"),
    ]:
        before = run(connection, f"SELECT @@terrace_{name}")
        with pytest.raises(Exception) as refused:
            run(connection, f"SET GLOBAL terrace_{name} = {size}")
        assert words in str(refused.value), refused.value
        assert run(connection, f"SELECT @@terrace_{name}") == before
        assert (status(connection, run, f"{name}_bytes"),) == before[0]
    assert run(connection, "SELECT COUNT(*) FROM t") == [(ROWS,)]


def test_default_and_0_are_the_default(sized, run):
    connection = sized.connect(database="d")
    for value in ("DEFAULT", "0"):
        resize(connection, run, "memory", 64 * MIB)
        run(connection, f"SET GLOBAL terrace_memory = {value}")
        assert run(connection, "SELECT @@terrace_memory") == [(128 * MIB,)] and status(connection, run, "memory_bytes") == 128 * MIB
    run(connection, f"SET GLOBAL terrace_object_buffer = {64 * MIB + 1}")
    assert run(connection, "SELECT @@terrace_object_buffer") == [(64 * MIB,)]
    run(connection, "SET GLOBAL terrace_object_buffer = DEFAULT")
    assert run(connection, "SELECT @@terrace_object_buffer") == [(8192 * MIB,)]


def pin_undo_pages(server, run, count):
    """Transactions that have each changed a row of table t of database d: until it ends, each keeps the page with the end of its undo log in memory."""
    sessions = [server.connect(database="d") for _ in range(count)]
    for n, session in enumerate(sessions):
        run(session, "BEGIN")
        run(session, f"UPDATE t SET v = v + 1 WHERE id = {n + 1}")
    return sessions


def pin_handlers(server, run, count):
    """A session with open HANDLERs on as many pages."""
    session = server.connect(database="d")
    for n in range(count):
        run(session, f"HANDLER t OPEN AS h{n}")
        run(session, f"HANDLER h{n} READ `PRIMARY` = ({n * 16 + 1})")
    return session


def test_a_resize_blocked_by_pinned_pages_says_what_to_do(run, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    server = private(["--terrace-resize-wait-timeout-ms=2000", "--terrace-memory=33554432", "--max-connections=1000"])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(2000)) ENGINE={engine}")
        run(connection, "INSERT INTO t SELECT seq, 0, REPEAT('x', 1800) FROM seq_1_to_12000")
        sessions = pin_undo_pages(server, run, 400)
        with pytest.raises(pymysql.err.OperationalError) as refused:
            run(connection, f"SET GLOBAL terrace_memory = {8 * MIB}")
        text = refused.value.args[1]
        match = re.search(r"of (\d+) pages of memory to give up (\d+) are in use, (\d+) of them pinned \(reads and changes that go on", text)
        assert match and "transactions" in text and "let them end, or give more memory" in text, text
        given_up, used, pinned = (int(number) for number in match.groups())
        assert 0 < pinned <= 400 and pinned <= used < given_up and "HANDLER" not in text, text
        assert run(connection, "SELECT @@terrace_memory") == [(32 * MIB,)]
        # What the message advises helps.
        [session.close() for session in sessions]
        resize(connection, run, "memory", 8 * MIB)
        assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(12000, 0)]
    finally:
        end(server)


def test_open_handlers_pin_no_memory(sized, run):
    """1,200 of them kept as many pages in memory, and a shrink waited for all."""
    connection = sized.connect(database="d")
    resize(connection, run, "memory", 64 * MIB)
    holder = pin_handlers(sized, run, 1200)
    resize(connection, run, "memory", 12 * MIB)
    # Each still is where it was: at a row that another session changed, before one that it deleted.
    run(connection, "UPDATE t SET v = 7 WHERE id = 16 * 1000 + 2")
    run(connection, "DELETE FROM t WHERE id = 16 * 1001 + 2")
    assert [row[:2] for row in run(holder, "HANDLER h1000 READ `PRIMARY` NEXT")] == [(16002, 7)]
    assert [row[0] for row in run(holder, "HANDLER h1001 READ `PRIMARY` NEXT")] == [16019]
    for n in range(0, 1000, 100):
        assert [row[0] for row in run(holder, f"HANDLER h{n} READ `PRIMARY` NEXT")] == [n * 16 + 2]
        assert [row[0] for row in run(holder, f"HANDLER h{n} READ `PRIMARY` PREV")] == [n * 16 + 1]


def test_pages_in_use_are_waited_for_and_kill_ends_the_wait(sized, run):
    connection = sized.connect(database="d")
    resize(connection, run, "memory", 64 * MIB)
    run(connection, "SET GLOBAL max_connections = 1000")
    holders = pin_undo_pages(sized, run, 800)
    other = sized.connect()
    [(other_id,)] = run(other, "SELECT CONNECTION_ID()")
    outcome = []

    def shrink():
        try:
            run(other, f"SET GLOBAL terrace_memory = {12 * MIB}")
            outcome.append("done")
        except Exception as error:
            outcome.append(error.args)

    thread = threading.Thread(target=shrink)
    thread.start()
    wait_until(lambda: outcome or "memory from 64M to 12M" in run(connection, "SHOW ENGINE TERRACE STATUS")[0][2])
    time.sleep(1)
    assert not outcome, outcome
    # The resize is visible, and blocks neither other variables nor other work.
    assert "memory from 64M to 12M" in run(connection, "SHOW ENGINE TERRACE STATUS")[0][2]
    assert run(connection, "SELECT COUNT(*) FROM t") == [(ROWS,)]
    with pytest.raises(Exception) as busy:
        run(connection, f"SET GLOBAL terrace_flash = {128 * MIB}")
    assert "memory is being changed" in str(busy.value)
    since = time.monotonic()
    run(connection, f"KILL QUERY {other_id}")
    thread.join()
    assert time.monotonic() - since < 40 and outcome[0][0] == 1317, outcome
    assert run(connection, "SELECT @@terrace_memory") == [(64 * MIB,)]
    [holder.close() for holder in holders]
    resize(connection, run, "memory", 12 * MIB)
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(ROWS, 0)]


def test_flash_needs_a_place(server, run, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    with pytest.raises(Exception) as refused:
        run(server.connect(), f"SET GLOBAL terrace_flash = {64 * MIB}")
    assert "started without flash (flash_path" in str(refused.value)
