"""What the error log says of the engine's states: one in which a person must act is an [ERROR], one in which the engine does with less is a [Warning],
each written once however long it lasts and whatever fails meanwhile; the end of either is a [Note]. The table is in docs/observability.md."""

import errno
import os
import random
import shutil
import subprocess
import time

import pymysql
import pytest
from conftest import ROOT, Server, end, wait_until
from test_bad_store import flip, objects_of, server_on
from test_bad_store import directory, s3  # noqa: F401: fixtures
from test_bad_volume import Full
from test_object import SIZES, is_mostly_far, load, status

# The watcher looks every two seconds: in so many it has looked a few times more.
LOOKS = 7


def said(server, state):
    """The levels of the lines about a state, and the lines."""
    lines = [line for line in open(os.path.join(server.directory, "error.log"), errors="replace") if f"Terrace: {state}: " in line]
    return [line.split("[")[1].split("]")[0] for line in lines], lines


def stays(server, state, levels):
    """The state comes to be told of with these levels, and is told of no more while the watcher looks again."""
    wait_until(lambda: len(said(server, state)[0]) >= len(levels), 120)
    time.sleep(LOOKS)
    assert said(server, state)[0] == levels, said(server, state)[1]
    return said(server, state)[1]


def fails(run, connection, statement):
    with pytest.raises(pymysql.err.MySQLError) as error:
        run(connection, statement)
    return error.value.args


@pytest.fixture
def failing_syncs(tmp_path, monkeypatch, engine):
    """A file: once it exists, syncs of the log fail with EIO."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler here")
    library = str(tmp_path / "unsynced.so")
    source = os.path.join(ROOT, "tests", "sql", "unsynced.c")
    made = subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    monkeypatch.setenv("LD_PRELOAD", library)
    monkeypatch.setenv("TERRACE_UNSYNCED", "*/log.0")
    monkeypatch.setenv("TERRACE_SYNC_FAILS", str(tmp_path / "fails"))
    return tmp_path / "fails"


def test_a_log_that_fails_is_one_error_with_device_file_and_what_to_do(failing_syncs, tmp_path, run):
    server = Server(str(tmp_path / "server"), SIZES + [f"--terrace-volume-path={tmp_path}/volume"])
    os.makedirs(server.directory)
    server.start()
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=Terrace")
        run(connection, "INSERT INTO t VALUES (1)")
        failing_syncs.touch()
        for i in range(2, 12):
            assert fails(run, connection, f"INSERT INTO t VALUES ({i})")[0] in (1296, 1030, 1105, 1180), i
        assert run(connection, "SELECT id FROM t WHERE id = 1") == [(1,)], "reads of what is in memory go on"
        line = stays(server, "engine", ["ERROR"])[0]
        assert "log.0" in line and os.strerror(errno.EIO) in line, line
        assert f"{tmp_path}/volume" in line and "restart the server" in line, line
        # Nothing else is trouble: what fails because the engine stopped is in no state of its own.
        text = open(os.path.join(server.directory, "error.log")).read()
        assert len([one for one in text.splitlines() if "Terrace: " in one and "[Note]" not in one]) == 1, text[-3000:]
        failing_syncs.unlink()
        server.kill9()
        server.start()
        assert (1,) in run(server.connect(database="d"), "SELECT id FROM t")
        assert said(server, "engine")[0] == ["ERROR"]
    finally:
        end(server)


def test_a_full_device_is_one_error_and_its_end_a_note(tmp_path, run, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    volume = Full("device", tmp_path, run)
    try:
        connection = volume.server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(4000), KEY (v)) ENGINE=Terrace")
        assert volume.fill(connection, 1)[0] == 1114
        line = stays(volume.server, "volume", ["ERROR"])[0]
        assert "the device is full" in line and str(volume.place) in line and "make room" in line, line
        volume.make_room()
        wait_until(lambda: not status(connection, run, "volume_trouble") or not fails_to_grow(run, connection), 120)
        assert stays(volume.server, "volume", ["ERROR", "Note"])
    finally:
        volume.end()


def fails_to_grow(run, connection):
    try:
        run(connection, f"INSERT INTO t VALUES ({random.randrange(1 << 20, 1 << 30)}, 1, REPEAT('x', 3000))")
        return False
    except pymysql.err.MySQLError:
        return True


def test_flash_that_cannot_be_had_is_one_warning(tmp_path, run, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    (tmp_path / "flash").write_text("not a directory")
    server = Server(str(tmp_path / "server"), SIZES + [f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=67108864"])
    os.makedirs(server.directory)
    server.start()
    try:
        assert f"{tmp_path}/flash" in stays(server, "flash", ["Warning"])[0]
    finally:
        end(server)


def test_a_store_that_does_not_answer_is_one_warning_and_its_end_a_note(directory, tmp_path, run):  # noqa: F811
    server = server_on(directory, tmp_path)
    try:
        connection = server.connect()
        load(connection, run)
        wait_until(lambda: is_mostly_far(connection, run))
        directory.die()
        # Reads fail, and sinks do: what is wrong changes, and it is one state.
        fails(run, connection, "SELECT SUM(v) FROM t")
        stays(server, "object_store", ["Warning"])
        directory.live()
        stays(server, "object_store", ["Warning", "Note"])
    finally:
        end(server)


def test_a_store_that_refuses_the_keys_is_one_error(s3, tmp_path, monkeypatch, run):  # noqa: F811
    server = server_on(s3, tmp_path)
    try:
        connection = server.connect()
        load(connection, run)
        wait_until(lambda: is_mostly_far(connection, run))
        server.stop()
        with monkeypatch.context() as wrong:
            wrong.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
            server.start()
        connection = server.connect(database="d")
        fails(run, connection, "SELECT SUM(v) FROM t FORCE INDEX (PRIMARY)")
        line = stays(server, "object_store", ["ERROR"])[0]
        assert "credentials" in line and "hush-hush" not in line, line
    finally:
        end(server)


def test_a_damaged_object_is_one_error_however_often_it_is_read(directory, tmp_path, run):  # noqa: F811
    server = server_on(directory, tmp_path, "--terrace-compression=none")
    try:
        connection = server.connect()
        load(connection, run)
        wait_until(lambda: is_mostly_far(connection, run) and int(status(connection, run, "sink_blocks_waiting")) == 0)
        server.stop()
        for at in range(1024 + 777, os.path.getsize(objects_of(directory)[0]), 16384):
            flip(objects_of(directory)[0], at)
        server.start()
        connection = server.connect(database="d")
        for _ in range(5):
            fails(run, connection, "SELECT COUNT(pad) FROM t FORCE INDEX (PRIMARY)")
        lines = [line for line in open(os.path.join(server.directory, "error.log")) if "Terrace: " in line and "corrupt" in line]
        assert lines and all("[ERROR]" in line for line in lines) and len(lines) == len({line.split("Terrace: ")[1] for line in lines}), lines
    finally:
        end(server)


def test_metrics_that_cannot_be_listened_for_are_one_warning(tmp_path, run, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    server = Server(str(tmp_path / "server"), SIZES)
    os.makedirs(server.directory)
    server.start()
    other = Server(str(tmp_path / "other"), SIZES + [f"--terrace-metrics-listen=127.0.0.1:{server.port}"])
    os.makedirs(other.directory)
    other.start()
    try:
        stays(other, "metrics", ["Warning"])
    finally:
        end(other)
        end(server)
