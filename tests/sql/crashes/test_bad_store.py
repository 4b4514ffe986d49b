"""A store that cannot be used, is too slow to free slots, or holds damaged objects: statements that need it fail with an error, work on the
near tiers goes on, and nothing is lost."""

import os
import time

import pymysql
import pytest
from conftest import Server, end
from test_object import ROWS, SIZES, a_store, answers, is_mostly_far, load, status, wait_for

FULL = 1114


@pytest.fixture
def directory(tmp_path, monkeypatch, engine):
    yield from a_store("directory", tmp_path, monkeypatch, engine)


@pytest.fixture
def s3(tmp_path, monkeypatch, engine):
    yield from a_store("s3", tmp_path, monkeypatch, engine)


def server_on(store, tmp_path, *more):
    place = tmp_path / "server"
    os.makedirs(place, exist_ok=True)
    server = Server(str(place), SIZES + store.options() + list(more))
    server.start()
    return server


def objects_of(store):
    """The files of the objects, the largest first; without those of first blocks, which have the roots of the trees."""
    files = [os.path.join(at, name) for at, _, names in os.walk(store.path) for name in names]
    is_first = lambda file: int(os.path.basename(os.path.dirname(file)), 16) == 0
    large = [file for file in files if os.path.getsize(file) > 100_000 and not is_first(file)]
    return sorted(large, key=os.path.getsize, reverse=True)


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 16]))


def test_a_flipped_bit_in_an_object_is_named_and_never_served(directory, tmp_path, run):
    server = server_on(directory, tmp_path, "--terrace-compression=none")
    try:
        connection = server.connect()
        load(connection, run)
        wait_for(lambda: is_mostly_far(connection, run) and int(status(connection, run, "sink_blocks_waiting")) == 0)
        server.stop()
        # One bit of each page of some objects: the bodies begin behind a header of 1024 bytes.
        hurt = objects_of(directory)[:2]
        assert len(hurt) == 2
        pages = [(file, at) for file in hurt for at in range(1024 + 777, os.path.getsize(file), 16384)]
        [flip(*one) for one in pages]
        server.start()
        connection = server.connect(database="d")
        with pytest.raises(pymysql.err.MySQLError) as refused:
            run(connection, "SELECT COUNT(*), SUM(v), SUM(LENGTH(pad)) FROM t FORCE INDEX (PRIMARY)")
        assert refused.value.args[0] in (1034, 1194, 1296), refused.value
        assert "corrupt" in open(os.path.join(server.directory, "error.log")).read()
        # Row by row: right or an error, and not all are errors.
        right = 0
        for i in range(1, ROWS, 97):
            try:
                right += run(connection, "SELECT v FROM t WHERE id = %s", (i,)) == [(i,)] or pytest.fail("a wrong row was served")
            except pymysql.err.MySQLError as error:
                assert error.args[0] in (1034, 1194, 1296), error
        assert right > 10
        # What is written and near goes on.
        run(connection, "CREATE TABLE near (id INT PRIMARY KEY) ENGINE=Terrace")
        run(connection, "INSERT INTO near VALUES (1), (2)")
        server.stop()
        code, report = server.check(*directory.place())
        named = " ".join(report["faults"]["first"])
        assert code == 1 and all(os.path.basename(file) in named for file in hurt), report
        [flip(*one) for one in pages]
        server.start()
        connection = server.connect(database="d")
        assert run(connection, "SELECT COUNT(*), SUM(v) FROM t FORCE INDEX (PRIMARY)") == [(ROWS, ROWS * (ROWS + 1) // 2)]
        assert [row[3] for row in run(connection, "CHECK TABLE t, near")] == ["OK", "OK"]
    finally:
        end(server)


def test_writes_fail_with_1114_when_a_dead_store_fills_the_object_buffer_until_it_returns(directory, tmp_path, run):
    server = server_on(directory, tmp_path, "--terrace-log-wait-timeout-ms=2000")
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT, k INT, pad VARCHAR(1000), KEY (k)) ENGINE=Terrace")
        row = "INSERT INTO t SELECT seq, seq, seq % 100, REPEAT('x', 900) FROM seq_{}_to_{}"
        # An instance that has objects knows at its next start that an empty directory isn't their store.
        rows = 0
        while int(status(connection, run, "objects_put")) == 0:
            run(connection, row.format(rows + 1, rows + 500))
            rows += 500
        directory.die()
        while True:
            began = time.time()
            try:
                run(connection, row.format(rows + 1, rows + 100))
            except pymysql.err.MySQLError as error:
                assert error.args[0] == FULL and time.time() - began < 50, (error, time.time() - began)
                break
            rows += 100
            assert rows < 100_000, "it never fills"
        last = f"id > {rows - 20}"
        near = [(20, sum(range(rows - 19, rows + 1)))]
        assert rows > 1000 and run(connection, f"SELECT COUNT(*), SUM(v) FROM t WHERE {last}") == near
        # What grows fails again in bounded time; what does not goes on; a roll back always works.
        connection.begin()
        run(connection, f"UPDATE t SET v = v + 1 WHERE {last}")
        began = time.time()
        with pytest.raises(pymysql.err.MySQLError) as refused:
            run(connection, row.format(rows + 1, rows + 100))
        assert refused.value.args[0] == FULL and time.time() - began < 50
        connection.rollback()
        run(connection, f"UPDATE t SET v = v + 5 WHERE {last}")
        run(connection, f"UPDATE t SET v = v - 5 WHERE {last}")
        server.kill9()
        server.start()
        connection = server.connect(database="d")
        directory.live()
        wait_for(lambda: int(status(connection, run, "object_buffer_slots_free")) > 50)
        run(connection, row.format(rows + 1, rows + 100))
        rows += 100
        assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(rows, rows * (rows + 1) // 2)]
        assert [line[3] for line in run(connection, "CHECK TABLE t")] == ["OK"]
    finally:
        end(server)


def test_a_rollback_that_a_dead_store_fails_resumes_when_it_answers(directory, tmp_path, run):
    server = server_on(directory, tmp_path)
    try:
        connection = server.connect()
        load(connection, run)
        run(connection, "CREATE TABLE near (id INT PRIMARY KEY) ENGINE=Terrace")
        wait_for(lambda: is_mostly_far(connection, run))

        writer = server.connect(database="d")
        writer.begin()
        run(writer, "INSERT INTO near VALUES (1)")
        run(writer, "UPDATE t SET v = -v WHERE id <= 40")
        # Other rows take memory and the object buffer.
        run(connection, "CREATE TABLE more (PRIMARY KEY (id)) ENGINE=Terrace SELECT * FROM t WHERE id > 1000")
        for start in range(1000, ROWS, 1000):
            run(connection, f"UPDATE more SET v = v + 1 WHERE id BETWEEN {start} AND {start + 999}")
        wait_for(lambda: int(status(connection, run, "sink_blocks_waiting")) == 0)
        assert run(connection, "SELECT COUNT(*) FROM more WHERE pad IS NOT NULL") == [(ROWS - 1000,)]
        directory.die()
        with pytest.raises(pymysql.err.MySQLError) as failed:
            run(writer, "ROLLBACK")
        assert "Terrace: the rollback goes on in the background" in failed.value.args[1], failed.value
        assert status(connection, run, "rollbacks_left") == "1"
        directory.live()
        # It has ended for the session that began it: the session's next transaction is another one, and commits.
        run(writer, "INSERT INTO near VALUES (2)")
        wait_for(lambda: status(connection, run, "rollbacks_left") == "0", 30)
        assert run(writer, "SELECT id FROM near") == [(2,)]
        run(writer, "SET innodb_lock_wait_timeout = 1, lock_wait_timeout = 1")
        run(writer, "UPDATE t SET v = v + 1 WHERE id <= 40")
        assert run(writer, "SELECT COUNT(*), SUM(v) FROM t") == [(ROWS, ROWS * (ROWS + 1) // 2 + 40)]
        server.kill9()
        server.start()
        assert run(server.connect(database="d"), "SELECT COUNT(*), SUM(v) FROM t") == [(ROWS, ROWS * (ROWS + 1) // 2 + 40)]
    finally:
        end(server)


def without_keys(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_missing_and_wrong_keys_are_refused_with_an_error_that_does_not_show_them(s3, tmp_path, monkeypatch, run):
    with monkeypatch.context() as wrong:
        wrong.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
        server = server_on(s3, tmp_path)
        try:
            said = open(os.path.join(server.directory, "error.log")).read()
            line = next(line for line in said.splitlines() if "Terrace: the engine can't start" in line)
            assert "/bucket/prefix/" in line and "denied" in line and "hush-hush" not in said, line
            assert run(server.connect(), "SELECT 1") == [(1,)]
        finally:
            server.stop()
    with monkeypatch.context() as missing:
        without_keys(missing, tmp_path)
        began = time.time()
        server.start()
        try:
            said = open(os.path.join(server.directory, "error.log")).read()
            lines = [line for line in said.splitlines() if "Terrace: the engine can't start" in line]
            assert len(lines) == 2 and "the object store" in lines[1], lines
            assert time.time() - began < 150
        finally:
            server.stop()
    # With the right ones the place is as good as new.
    server.start()
    try:
        connection = server.connect()
        load(connection, run)
        wait_for(lambda: is_mostly_far(connection, run))
        # An instance whose data is in the store starts without its keys; what is far says so, and comes back with them.
        server.stop()
        with monkeypatch.context() as missing:
            without_keys(missing, tmp_path)
            server.start()
            connection = server.connect(database="d")
            with pytest.raises(pymysql.err.MySQLError) as refused:
                run(connection, "SELECT SUM(v) FROM t FORCE INDEX (PRIMARY)")
            assert refused.value.args[0] in (1296, 1030) and "s3://" in str(refused.value) or "store" in str(refused.value), refused.value
            server.stop()
        server.start()
        connection = server.connect(database="d")
        wait_for(lambda: answers(connection, run))
    finally:
        end(server)


def test_tables_are_dropped_and_renamed_over_a_dead_store_and_leave_no_objects(directory, tmp_path, run):
    """DROP read each table's header first, which may be only in the store: it failed, for a partitioned table when its list was already removed."""
    server = server_on(directory, tmp_path, "--terrace-without=clean-copies")
    partitioned = """(id INT PRIMARY KEY, v INT, pad VARCHAR(1000), KEY (v)) ENGINE=Terrace PARTITION BY RANGE (id)
        (PARTITION low VALUES LESS THAN (100), PARTITION middle VALUES LESS THAN (200), PARTITION high VALUES LESS THAN MAXVALUE)"""
    try:
        connection = server.connect()
        load(connection, run)
        statements = (
            ("DROP TABLE p",),
            ("CREATE OR REPLACE TABLE p (id INT) ENGINE=Terrace", "DROP TABLE p"),
            ("CREATE TABLE near (id INT PRIMARY KEY) ENGINE=Terrace", "DROP TABLE near, p"),
            ("RENAME TABLE p TO q", "CREATE TABLE p (id INT) ENGINE=Terrace", "DROP TABLE p, q"),
            ("DROP DATABASE e",),
        )
        for work in statements:
            run(connection, "CREATE DATABASE IF NOT EXISTS e")
            connection.select_db("e")
            run(connection, f"CREATE TABLE p {partitioned}")
            run(connection, "INSERT INTO p SELECT seq, seq, REPEAT('x', 900) FROM seq_1_to_300")
            wait_for(lambda: is_mostly_far(connection, run) and int(status(connection, run, "sink_blocks_waiting")) == 0)
            server.restart()
            connection = server.connect(database="e")
            for _ in range(2):
                run(connection, "SELECT SUM(v) FROM d.t")
            wait_for(lambda: int(status(connection, run, "sink_blocks_waiting")) == 0 and int(status(connection, run, "objects_to_delete")) == 0)
            spaces = [f"{space:08x}" for (space,) in run(connection, "SELECT SPACE FROM information_schema.TERRACE_SPACES WHERE TABLE_NAME = 'p'")]
            there = lambda: [name for _, names, _ in os.walk(directory.path) for name in names if name in spaces]  # noqa: E731, B023
            assert len(there()) >= len(spaces) / 2, (there(), spaces)
            directory.die()
            with pytest.raises(pymysql.err.MySQLError):
                run(connection, "SELECT SUM(v) FROM p")
            for statement in work:
                run(connection, statement)
            assert run(connection, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'e'") == [(0,)], work
            directory.live()
            wait_for(lambda: not there())
            server.kill9()
            server.start()
            connection = server.connect(database="d")
            assert run(connection, "SELECT COUNT(*) FROM information_schema.TERRACE_SPACES WHERE TABLE_NAME IN ('p', 'q', 'near')") == [(0,)], work
        assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(ROWS, ROWS * (ROWS + 1) // 2)]
        server.stop()
        code, report = server.check(*directory.place())
        assert code == 0 and report["leaked"]["count"] == 0, report
    finally:
        end(server)
