"""With terrace_flush_log_at_trx_commit=1 no answer to a client depends on a commit that a crash can undo: kill -9 under load, on a log whose
sync is slow, so that commits wait in memory most of the time. The rows that each kind of read returned are found after the restart.

TERRACE_READ_KILLS: kills (default 4).
"""

import collections
import os
import random
import shutil
import subprocess
import sys
import threading
import time

import pymysql
import pytest
from conftest import ROOT, binlog_options, end, private, wait_until
from test_object import flashed, status, store  # noqa: F401: a fixture
from test_replication import follow, settle

sys.path.insert(0, os.path.join(ROOT, "tests", "histories"))

from check import FORBIDDEN, SNAPSHOT, check  # noqa: E402
from check import settle as settle_history  # noqa: E402
from record import record  # noqa: E402

KILLS = int(os.environ.get("TERRACE_READ_KILLS", "4"))
SYNC_MS = 40
WRITERS = 4
GIVEN_UP = (1020, 1205, 1213)


@pytest.fixture
def slow_log(tmp_path, monkeypatch):
    """Servers that are started from here on sync the engine's log slowly."""
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler here")
    library = str(tmp_path / "slow_sync.so")
    source = os.path.join(ROOT, "tests", "sql", "slow_sync.c")
    made = subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert made.returncode == 0, made.stdout
    monkeypatch.setenv("LD_PRELOAD", library)
    monkeypatch.setenv("TERRACE_SLOW_SYNC", "*/terrace/log.*")
    monkeypatch.setenv("TERRACE_SLOW_SYNC_MS", str(SYNC_MS))


class Told:
    """The highest number of each row that a client was told, by whom it was told, and the rows of `made` that it was told of."""

    def __init__(self):
        self.guard, self.rows, self.made, self.answers = threading.Lock(), {}, {}, collections.Counter()

    def row(self, way, number, n):
        with self.guard:
            self.answers[way] += 1
            if n > self.rows.get(number, (0, ""))[0]:
                self.rows[number] = (n, way)

    def there(self, way, n):
        with self.guard:
            self.answers[way] += 1
            self.made.setdefault(n, way)


class Load:
    """Writers count in rows that they share, and readers ask for rows that were written of late."""

    def __init__(self, server, run, rows):
        self.server, self.run, self.rows = server, run, rows
        self.told, self.stop, self.late = Told(), threading.Event(), collections.deque([1], maxlen=8)
        self.last_made = 0

    def connect(self, level):
        connection = self.server.connect(database="d")
        self.run(connection, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        return connection

    def recent(self):
        return random.choice(list(self.late))

    def write(self, who):
        connection = self.connect("REPEATABLE READ")
        own = random.Random(who)
        while not self.stop.is_set():
            number = own.randint(1, self.rows)
            self.late.append(number)
            with self.told.guard:
                self.last_made += 1
                made = self.last_made
            pair = sorted({number, own.randint(1, self.rows)})
            if own.random() < 0.5:
                connection.begin()
            for one in pair:
                self.run(connection, "UPDATE t SET n = n + 1 WHERE id = %s", (one,))
            self.run(connection, "INSERT INTO made VALUES (%s)", (made,))
            connection.commit()
            self.told.there("acknowledged", made)

    def plain(self, level, way):
        """A view, in a statement by itself and in a transaction."""
        connection = self.connect(level)
        while not self.stop.is_set():
            number = self.recent()
            [(n,)] = self.run(connection, "SELECT n FROM t WHERE id = %s", (number,))
            self.told.row(way, number, n)
            connection.begin()
            for number in (self.recent(), self.recent()):
                [(n,)] = self.run(connection, "SELECT n FROM t WHERE id = %s", (number,))
                self.told.row(way, number, n)
            connection.commit()

    def locking(self, level, way, lock, strict=False):
        connection = self.connect(level)
        self.run(connection, f"SET SESSION terrace_snapshot_isolation = {strict:d}")
        while not self.stop.is_set():
            number = self.recent()
            connection.begin()
            for n in self.run(connection, f"SELECT n FROM t WHERE id = %s {lock}", (number,)):
                self.told.row(way, number, n[0])
            # No answer of its own, which would be waited for: the transaction changes nothing, and is over.
            random.choice([connection.commit, connection.rollback])()

    def scan(self, way, lock):
        connection = self.connect("READ COMMITTED")
        while not self.stop.is_set():
            low = max(1, self.recent() - 5)
            connection.begin()
            for number, n in self.run(connection, f"SELECT id, n FROM t WHERE id BETWEEN %s AND %s {lock}", (low, low + 10)):
                self.told.row(way, number, n)
            connection.commit()

    def own_change(self, way):
        """A transaction's reads see its own changes."""
        connection = self.connect("REPEATABLE READ")
        while not self.stop.is_set():
            number = self.recent()
            connection.begin()
            self.run(connection, "UPDATE t SET n = n + 1000000 WHERE id = %s", (number,))
            [(n,)] = self.run(connection, "SELECT n FROM t WHERE id = %s", (number,))
            self.told.row(way, number, n - 1000000)
            connection.rollback()

    def duplicate(self, way):
        connection = self.connect("REPEATABLE READ")
        while not self.stop.is_set():
            made = self.last_made
            try:
                connection.begin()
                self.run(connection, "INSERT INTO made VALUES (%s)", (made,))
                connection.rollback()
            except pymysql.err.IntegrityError:
                self.told.there(way, made)
                connection.rollback()

    def works(self):
        yield from ((self.write, who) for who in range(WRITERS))
        yield (self.plain, "READ COMMITTED", "READ COMMITTED")
        yield (self.plain, "REPEATABLE READ", "REPEATABLE READ")
        yield (self.locking, "SERIALIZABLE", "SERIALIZABLE", "")
        yield (self.locking, "REPEATABLE READ", "strict", "FOR UPDATE", True)
        yield (self.locking, "READ COMMITTED", "FOR UPDATE", "FOR UPDATE")
        yield (self.locking, "REPEATABLE READ", "SHARE MODE", "LOCK IN SHARE MODE")
        yield (self.scan, "scan", "FOR UPDATE SKIP LOCKED")
        yield (self.own_change, "own change")
        yield (self.duplicate, "duplicate")

    def goes_on(self, work, *arguments):
        """Until the server is gone. A transaction that is given up has told nothing that counts."""
        while not self.stop.is_set():
            try:
                work(*arguments)
            except pymysql.err.OperationalError as error:
                if error.args[0] not in GIVEN_UP:
                    return
            except (pymysql.err.MySQLError, OSError):
                return


def kill_often(server, run, engine, rows, note=0):
    connection = server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, n BIGINT NOT NULL, note VARCHAR(2000)) ENGINE={engine}")
    run(connection, f"CREATE TABLE made (n BIGINT PRIMARY KEY) ENGINE={engine}")
    run(connection, f"INSERT INTO t SELECT seq, 0, REPEAT('x', {note}) FROM seq_1_to_{rows}")
    for kill in range(KILLS):
        load = Load(server, run, rows)
        [(load.last_made,)] = run(server.connect(database="d"), "SELECT COALESCE(MAX(n), 0) FROM made")
        threads = [threading.Thread(target=load.goes_on, args=work, daemon=True) for work in load.works()]
        [thread.start() for thread in threads]
        ways = {"acknowledged", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "strict", "FOR UPDATE", "SHARE MODE", "own change"}
        wait_until(lambda: ways <= set(load.told.answers) and load.told.answers["acknowledged"] > 20)
        time.sleep(random.random() * 0.2)
        server.kill9()
        load.stop.set()
        [thread.join() for thread in threads]
        server.start()
        connection = server.connect(database="d")
        found = dict(run(connection, "SELECT id, n FROM t"))
        lost = {number: (n, way, found[number]) for number, (n, way) in load.told.rows.items() if found[number] < n}
        assert not lost, f"kill {kill}: row: (told, by, found): {lost}"
        there = {n for (n,) in run(connection, "SELECT n FROM made")}
        lost = {n: way for n, way in load.told.made.items() if n not in there}
        assert not lost, f"kill {kill}: {lost}"
        print(dict(load.told.answers))


def test_answered_rows_survive_kill_9(engine, run, slow_log):
    server = private(["--terrace-memory=16777216"])
    try:
        kill_often(server, run, engine, 12)
    finally:
        end(server)


def test_answered_rows_survive_kill_9_with_a_binary_log(engine, run, slow_log, tmp_path):
    server = private(["--terrace-memory=16777216", *binlog_options(tmp_path)])
    try:
        kill_often(server, run, engine, 12)
    finally:
        end(server)


@pytest.fixture
def tiered(slow_log, store, tmp_path):  # noqa: F811
    yield from flashed(store, tmp_path)


def test_rows_answered_from_cold_pages_survive_kill_9(tiered, engine, run):
    kill_often(tiered, run, engine, 20000, note=1000)
    [(volume, objects)] = run(tiered.connect(), "SELECT SUM(PAGES_VOLUME), SUM(PAGES_OBJECT) FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'")
    assert objects > volume, (volume, objects)


def histories(server, run, engine, level, strict=False, durable=True):
    """What the checker finds in histories that kill -9 ends: a Counter for each. `durable`: commits wait for the log, so that kills meet some."""
    run(server.connect(), "CREATE DATABASE d")

    def crash():
        server.kill9()
        server.start()

    for kill in range((KILLS + 1) // 2):
        seconds = 0.5 + random.random() / 2
        for longer in (1, 5, 25):
            transactions, last = record(lambda: server.connect(database="d"), engine, level, longer * seconds, random.random(), strict=strict, crash=crash)
            unknown = sum(t.committed is None for t in transactions)
            committed = sum(t.committed is True for t in transactions)
            if committed > 10 and (unknown or not durable):
                break
        settle_history(transactions, last)
        found, examples = check(transactions, last)
        print(f"kill {kill}: {committed} committed, {unknown} without an answer, {dict(found)}")
        assert committed > 10 and (unknown or not durable)
        yield found, examples


@pytest.mark.parametrize("level, strict", [("READ COMMITTED", False), ("REPEATABLE READ", True), ("SERIALIZABLE", False)])
@pytest.mark.parametrize("log", ["alone", "with a binary log"])
def test_no_read_before_kill_9_saw_a_commit_that_it_undid(engine, run, slow_log, tmp_path, level, strict, log):
    server = private(["--terrace-memory=16777216", *(binlog_options(tmp_path) if log != "alone" else [])])
    try:
        for found, examples in histories(server, run, engine, level, strict):
            wrong = {name: examples[name] for name in found if name in (SNAPSHOT if strict else FORBIDDEN[level])}
            assert not wrong
    finally:
        end(server)


def test_the_checker_finds_answers_that_kill_9_undoes_with_0(engine, run, slow_log):
    """With 0 the log is written once a second, so that a kill undoes commits that were answered, and what others read of them."""
    server = private(["--terrace-memory=16777216", "--terrace-flush-log-at-trx-commit=0"])
    try:
        found = sum((found for found, _ in histories(server, run, engine, "READ COMMITTED", durable=False)), collections.Counter())
        assert found["lost"], found
    finally:
        end(server)


class Gate:
    """While it is closed no sync of the engine's log returns. Commits that are not durable, and reads that wait, are counted by the engine."""

    def __init__(self, path, server, run):
        self.path, self.server, self.run = path, server, run
        self.connection = server.connect()
        self.waits = 0

    def count(self, name):
        # Not SHOW STATUS, which needs a mutex that START TRANSACTION WITH CONSISTENT SNAPSHOT holds.
        return int(status(self.connection, self.run, name))

    def close_before(self, *commits):
        """Each is committed by a client of its own, and none is durable when it returns."""
        self.path.touch()
        threads = []
        for statement in commits:
            threads.append(threading.Thread(target=lambda: self.run(self.server.connect(database="d"), statement)))
            threads[-1].start()
            wait_until(lambda: self.count("commits_not_visible") == len(threads))
        self.waits = self.count("read_log_waits")
        return threads

    def waits_for_it(self, connection, statement):
        """The statement waits until the gate is open; returns what it answers then."""
        answers = []

        def ask():
            try:
                answers.append(self.run(connection, statement))
            except pymysql.err.MySQLError as error:
                answers.append(error)
        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: self.count("read_log_waits") > self.waits)
        assert not answers and self.count("commits_not_visible") > 0
        self.path.unlink()
        thread.join()
        return answers[0]


def test_a_commit_that_waits_for_its_sync_is_in_no_view_and_locking_reads_wait_with_it(engine, run, slow_log, tmp_path, monkeypatch):
    gate_file = tmp_path / "gate"
    monkeypatch.setenv("TERRACE_SLOW_SYNC_MS", "0")
    monkeypatch.setenv("TERRACE_SYNC_GATE", str(gate_file))
    server = private(["--terrace-memory=16777216"])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, n INT) ENGINE={engine}")
        run(connection, "INSERT INTO t VALUES (1, 0)")
        gate, add = Gate(gate_file, server, run), "UPDATE t SET n = n + 1"

        threads = gate.close_before(add)
        assert run(connection, "SELECT n FROM t") == [(0,)]
        assert gate.waits_for_it(connection, "SELECT n FROM t FOR UPDATE") == [(1,)]
        [thread.join() for thread in threads]
        assert run(connection, "SELECT n FROM t") == [(1,)]

        # One that was committed later is not seen before an earlier one.
        threads = gate.close_before(add, add)
        assert run(connection, "SELECT n FROM t") == [(1,)]
        assert gate.waits_for_it(connection, "SELECT n FROM t LOCK IN SHARE MODE") == [(3,)]
        [thread.join() for thread in threads]

        threads = gate.close_before("INSERT INTO t VALUES (2, 0)")
        assert gate.waits_for_it(connection, "INSERT INTO t VALUES (2, 7)").args[0] == 1062
        [thread.join() for thread in threads]
        threads = gate.close_before("DELETE FROM t WHERE id = 2")
        assert run(connection, "SELECT n FROM t WHERE id = 2") == [(0,)]
        assert gate.waits_for_it(connection, "SELECT n FROM t WHERE id = 2 FOR UPDATE") == []
        [thread.join() for thread in threads]

        threads = gate.close_before("INSERT INTO t VALUES (3, 0)")
        assert gate.waits_for_it(connection, "DELETE FROM t WHERE id = 3 RETURNING n") == [(0,)]
        [thread.join() for thread in threads]

        # A snapshot that is asked for holds all that is committed.
        threads = gate.close_before(add)
        gate.waits_for_it(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        assert run(connection, "SELECT n FROM t") == [(4,)]
        connection.commit()
        [thread.join() for thread in threads]

        # A change in a transaction that goes on is answered at once; what it reads next is not, nor its rollback.
        for statement, answer in (("SELECT n FROM t", [(15,)]), ("ROLLBACK", [])):
            threads = gate.close_before(add)
            connection.begin()
            run(connection, "UPDATE t SET n = n + 10")
            assert gate.count("commits_not_visible") == 1
            assert gate.waits_for_it(connection, statement) == answer
            connection.rollback()
            [thread.join() for thread in threads]

        # With 2, and from then on, what is committed is seen at once.
        threads = gate.close_before(add)
        assert run(connection, "SELECT n FROM t") == [(6,)]
        run(connection, "SET GLOBAL terrace_flush_log_at_trx_commit = 2")
        assert run(connection, "SELECT n FROM t") == [(7,)]
        gate_file.unlink()
        [thread.join() for thread in threads]
    finally:
        gate_file.unlink(missing_ok=True)
        end(server)


@pytest.fixture
def gated(slow_log, tmp_path, monkeypatch):
    """A file: while it exists, no sync of the log of servers that are started from here on returns."""
    monkeypatch.setenv("TERRACE_SLOW_SYNC_MS", "0")
    monkeypatch.setenv("TERRACE_SYNC_GATE", str(tmp_path / "gate"))
    yield tmp_path / "gate"
    (tmp_path / "gate").unlink(missing_ok=True)


def a_table(connection, run, engine):
    run(connection, "CREATE DATABASE IF NOT EXISTS d")
    connection.select_db("d")
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, n INT) ENGINE={engine}")
    run(connection, "INSERT INTO t VALUES (1, 0)")


@pytest.mark.parametrize("phases", ["one phase", "two phases"])
def test_an_xa_commit_that_waits_for_its_sync_is_in_no_view_and_locking_reads_wait_with_it(engine, run, gated, phases):
    server = private(["--terrace-memory=16777216"])
    try:
        connection, other = server.connect(), server.connect()
        a_table(connection, run, engine)
        other.select_db("d")
        gate = Gate(gated, server, run)
        run(other, "XA START 'x'")
        run(other, "UPDATE t SET n = 1")
        run(other, "XA END 'x'")
        if phases == "two phases":
            run(other, "XA PREPARE 'x'")
        gated.touch()
        commit = threading.Thread(target=run, args=(other, "XA COMMIT 'x'" + (" ONE PHASE" if phases == "one phase" else "")))
        commit.start()
        wait_until(lambda: gate.count("commits_not_visible") == 1)
        gate.waits = gate.count("read_log_waits")
        assert run(connection, "SELECT n FROM t") == [(0,)]
        assert gate.waits_for_it(connection, "SELECT n FROM t FOR UPDATE") == [(1,)]
        commit.join()
        assert run(connection, "SELECT n FROM t") == [(1,)]
    finally:
        gated.unlink(missing_ok=True)
        end(server)


def test_a_replicas_views_see_a_transaction_once_its_own_log_is_durable(engine, run, gated, monkeypatch):
    # The source's log is another matter: its syncs return.
    with monkeypatch.context() as of_source:
        of_source.delenv("TERRACE_SYNC_GATE")
        source = private(["--terrace-memory=16777216", "--log-bin=log", "--server-id=1", "--binlog-format=ROW"])
    replica = private(["--terrace-memory=16777216", "--server-id=2", f"--gtid-pos-auto-engines={engine}"])
    try:
        one, other = source.connect(), replica.connect()
        follow(one, other)
        a_table(one, run, engine)
        settle(one, other)
        # Until the replica keeps its position in a table of the engine, its transactions are of two engines.
        kept = f"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'gtid_slave_pos_{engine}'"
        wait_until(lambda: run(other, kept) == [(1,)])
        other.select_db("d")
        gate = Gate(gated, replica, run)
        gated.touch()
        run(one, "UPDATE t SET n = 1")
        wait_until(lambda: gate.count("commits_not_visible") > 0, 60)
        gate.waits = gate.count("read_log_waits")
        assert run(one, "SELECT n FROM t") == [(1,)] and run(other, "SELECT n FROM t") == [(0,)]
        assert gate.waits_for_it(other, "SELECT n FROM t FOR UPDATE") == [(1,)]
        settle(one, other)
        assert run(other, "SELECT n FROM t") == [(1,)]
    finally:
        gated.unlink(missing_ok=True)
        end(replica)
        end(source)


def test_setting_flush_log_back_to_1_returns_once_all_visible_commits_are_durable(engine, run, gated):
    """From then on no answer depends on a commit that a crash can undo."""
    server = private(["--terrace-memory=16777216", "--terrace-flush-log-at-trx-commit=2"])
    try:
        connection = server.connect()
        a_table(connection, run, engine)
        gated.touch()
        run(connection, "UPDATE t SET n = 1")
        assert run(connection, "SELECT n FROM t") == [(1,)]
        setter, answers = server.connect(database="d"), []

        def back():
            run(setter, "SET GLOBAL terrace_flush_log_at_trx_commit = 1")
            answers.append(run(setter, "SELECT n FROM t"))

        thread = threading.Thread(target=back)
        thread.start()
        wait_until(lambda: run(connection, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SET GLOBAL%'") == [(1,)])
        time.sleep(0.5)
        assert not answers
        gated.unlink()
        thread.join()
        assert answers == [[(1,)]]
        server.kill9()
        server.start()
        assert run(server.connect(database="d"), "SELECT n FROM t") == [(1,)]
    finally:
        gated.unlink(missing_ok=True)
        end(server)
