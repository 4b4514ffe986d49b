"""SET GLOBAL terrace_copy_to: the volume is copied while the server works, and a second server goes on from the copy."""

import os
import random
import shutil
import signal
import tempfile
import threading
import time

import pymysql
import pytest
from conftest import Server, end, private, run, wait_until

ACCOUNTS, WRITERS = 500, 4
WRONG_VALUE = 1231


class Transfers:
    """Writers that move money between accounts. Each transaction also writes its number; how many were acknowledged is counted."""

    def __init__(self, server):
        self.server, self.done, self.stop, self.slowest, self.errors = server, [0] * WRITERS, False, 0.0, []
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE d.a (id INT PRIMARY KEY, v INT, KEY (v), pad VARCHAR(200)) ENGINE=Terrace")
        run(connection, f"INSERT INTO d.a SELECT seq, 100, REPEAT('a', 200) FROM seq_1_to_{ACCOUNTS}")
        run(connection, "CREATE TABLE d.n (w INT, n INT, pad LONGTEXT, PRIMARY KEY (w, n)) ENGINE=Terrace PARTITION BY HASH (w) PARTITIONS 2")
        run(connection, "CREATE TABLE d.big (id INT PRIMARY KEY, pad VARCHAR(3000)) ENGINE=Terrace")
        run(connection, "INSERT INTO d.big SELECT seq, REPEAT('b', 3000) FROM seq_1_to_8000")
        self.threads = [threading.Thread(target=self.work, args=(n,)) for n in range(WRITERS)]

    def work(self, which):
        connection, draw = self.server.connect(database="d"), random.Random(which)
        try:
            while not self.stop:
                first, second = sorted(draw.sample(range(1, ACCOUNTS + 1), 2))
                since = time.monotonic()
                connection.begin()
                run(connection, "UPDATE a SET v = v - 1 WHERE id = %s", (first,))
                run(connection, "UPDATE a SET v = v + 1 WHERE id = %s", (second,))
                # Now and then one that passes by the log.
                run(connection, "INSERT INTO n VALUES (%s, %s, REPEAT('n', %s))", (which, self.done[which], 100000 if draw.random() < 0.1 else 100))
                run(connection, "UPDATE big SET pad = REPEAT(%s, 3000) WHERE id = %s", (draw.choice("xyz"), draw.randrange(8000)))
                connection.commit()
                self.slowest = max(self.slowest, time.monotonic() - since)
                self.done[which] += 1
        except pymysql.err.OperationalError as error:
            if not self.stop:
                self.errors.append(error)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        wait_until(lambda: min(self.done) > 20 or self.errors)
        return self

    def __exit__(self, *_):
        self.stop = True
        for thread in self.threads:
            thread.join()


def whole(connection, least, most):
    """The tables are consistent: after `least` of each writer's transactions and before the one after `most`."""
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM d.a") == [(ACCOUNTS, 100 * ACCOUNTS)]
    assert run(connection, "SELECT COUNT(*) FROM d.big WHERE LENGTH(pad) = 3000 AND pad IN (REPEAT('b', 3000), REPEAT('x', 3000), REPEAT('y', 3000), REPEAT('z', 3000))") == [(8000,)]
    for which in range(WRITERS):
        rows, last, bytes_wrong = run(connection, "SELECT COUNT(*), COALESCE(MAX(n) + 1, 0), SUM(pad <> REPEAT('n', LENGTH(pad))) FROM d.n WHERE w = %s", (which,))[0]
        assert rows == last and least[which] <= rows <= most[which] + 1 and not bytes_wrong, (which, rows, last, least, most)
    for table in ("a", "n", "big"):
        assert run(connection, f"CHECK TABLE d.{table} EXTENDED")[-1][3] == "OK"


@pytest.fixture
def second():
    """A server that is not started yet, and has no data but what the test gives it."""
    one = Server(tempfile.mkdtemp(prefix="terrace-sql-"), ["--terrace-memory=33554432"])
    os.makedirs(os.path.join(one.directory, "data"))
    yield one
    end(one)


def volume_of(server):
    return os.path.join(server.directory, "data", "terrace")


def take_definitions(original, copy):
    shutil.copytree(os.path.join(original.directory, "data", "d"), os.path.join(copy.directory, "data", "d"))


@pytest.fixture
def original(engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    one = private(["--terrace-memory=33554432", "--terrace-log=16777216", "--terrace-object-buffer=268435456"])
    yield one
    end(one)


def test_a_copy_beside_writers_and_ddl_is_consistent(original, second):
    with Transfers(original) as load:
        connection, names = original.connect(), iter(range(10**9))

        def define():
            mine = original.connect(database="d")
            while not load.stop:
                name = f"t{next(names)}"
                run(mine, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT) ENGINE=Terrace SELECT seq AS id, 1 AS v FROM seq_1_to_50")
                run(mine, f"ALTER TABLE {name} ADD INDEX (v)")
                if random.random() < 0.7:
                    run(mine, f"DROP TABLE {name}")

        ddl = threading.Thread(target=define)
        ddl.start()
        load.threads.append(ddl)
        # Definitions and rows are consistent unless a definition changes in between.
        run(connection, "SET terrace_backup_stage = 'allow'")
        run(connection, "BACKUP STAGE START")
        run(connection, "BACKUP STAGE BLOCK_DDL")
        least = list(load.done)
        run(connection, f"SET GLOBAL terrace_copy_to = '{volume_of(second)}'")
        most = list(load.done)
        take_definitions(original, second)
        run(connection, "BACKUP STAGE END")
        assert run(connection, "SELECT @@terrace_copy_to") == [(None,)]
        after = list(load.done)
        wait_until(lambda: all(now > then + 5 for now, then in zip(load.done, after)) or load.errors)
    assert not load.errors, load.errors
    assert sum(most) > sum(least), "nothing was written beside the copy"
    print(f"slowest transaction {load.slowest:.3f} s, beside the copy {sum(most) - sum(least)} of them")
    second.start()
    whole(second.connect(), least, most)
    tables = {name for (name,) in run(second.connect(), "SHOW TABLES FROM d")}
    assert {"a", "n", "big"} <= tables
    for name in sorted(tables - {"a", "n", "big"}):
        assert run(second.connect(), f"CHECK TABLE d.{name}")[-1][3] == "OK"
    run(second.connect(), "INSERT INTO d.n VALUES (77, 1, 'more')")
    second.stop()
    assert second.check() == (0, second.check()[1])
    second.start()
    assert run(second.connect(), "SELECT COUNT(*) FROM d.n WHERE w = 77") == [(1,)]
    # The original has gone on.
    whole(original.connect(), load.done, load.done)
    original.restart()
    whole(original.connect(), load.done, load.done)


def test_a_server_killed_during_a_copy_is_whole_and_the_copy_is_no_instance(original, second):
    with Transfers(original) as load:
        connection = original.connect(database="d")
        # So much that the copy is not over before the kill comes.
        run(connection, "CREATE TABLE d.more (id INT PRIMARY KEY, pad VARCHAR(3000)) ENGINE=Terrace SELECT seq AS id, REPEAT('m', 3000) AS pad FROM seq_1_to_30000")
        pid = int(open(os.path.join(original.directory, "pid")).read())

        def copy():
            with pytest.raises(pymysql.err.OperationalError):
                run(connection, f"SET GLOBAL terrace_copy_to = '{volume_of(second)}'")

        copying = threading.Thread(target=copy)
        copying.start()
        until = time.monotonic() + 300
        while not os.path.exists(os.path.join(volume_of(second), "pages")):
            assert time.monotonic() < until, "the copy does not begin"
        load.stop = True
        os.kill(pid, signal.SIGKILL)
        original.kill9()
        copying.join()
    assert "copying" in os.listdir(volume_of(second)) and "superblock" not in os.listdir(volume_of(second))
    original.start()
    whole(original.connect(), load.done, load.done)
    # It runs without the engine, which says why.
    second.start()
    assert "cut short" in open(os.path.join(second.directory, "error.log")).read()
    second.stop()
    shutil.rmtree(volume_of(second))
    run(original.connect(), f"SET GLOBAL terrace_copy_to = '{volume_of(second)}'")
    take_definitions(original, second)
    second.start()
    whole(second.connect(), load.done, load.done)


def refused(connection, path):
    with pytest.raises(pymysql.err.MySQLError) as why:
        run(connection, f"SET GLOBAL terrace_copy_to = '{path}'")
    return why.value.args


def test_a_copy_that_is_killed_or_has_no_place_leaves_nothing(original, tmp_path):
    with Transfers(original) as load:
        connection, other = original.connect(), original.connect()
        number, said = connection.thread_id(), []
        thread = threading.Thread(target=lambda: said.append(refused(connection, tmp_path / "killed")))
        thread.start()
        wait_until(lambda: os.path.exists(tmp_path / "killed" / "map") or said)
        run(other, f"KILL QUERY {number}")
        thread.join()
        assert said[0][0] == 1317 and not os.path.exists(tmp_path / "killed"), said
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes").write_text("mine")
        code, text = refused(connection, tmp_path / "full")
        assert code == WRONG_VALUE and "not empty" in text and os.listdir(tmp_path / "full") in (["notes"], ["lock", "notes"], ["notes", "lock"])
        code, text = refused(connection, tmp_path / "no" / "such")
        assert code == WRONG_VALUE and "create" in text and not os.path.exists(tmp_path / "no")
        code, text = refused(connection, volume_of(original))
        assert code == WRONG_VALUE and "instance runs" in text
        run(other, "CREATE USER u@localhost")
        with pytest.raises(pymysql.err.MySQLError) as denied:
            run(original.connect(), "SET SESSION terrace_copy_to = '/tmp/x'")
        assert denied.value.args[0] == 1229
        run(connection, "SET GLOBAL terrace_copy_to = ''")
    assert not load.errors
