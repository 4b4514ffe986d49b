"""What the error log says of the engine's states: a state that needs a person is an [ERROR], a degraded one is a [Warning], each written once however
long it lasts and whatever fails meanwhile; the end of either is a [Note]. The table is in docs/observability.md."""

import errno
import os
import random
import shutil
import struct
import subprocess
import time

import pymysql
import pytest
from conftest import ROOT, Server, end, wait_until
from test_bad_store import flip, objects_of, server_on
from test_bad_store import directory, s3  # noqa: F401: fixtures
from test_bad_tiers import FIRST_USER, PAGE
from test_bad_volume import Full
from test_object import SIZES, is_mostly_far, load, status

# The watcher checks every two seconds: in LOOKS seconds it has checked a few times.
LOOKS = 7


def said(server, state):
    """The levels of the lines about a state, and the lines."""
    lines = [line for line in open(os.path.join(server.directory, "error.log"), errors="replace") if f"Terrace: {state}: " in line]
    return [line.split("[")[1].split("]")[0] for line in lines], lines


def stays(server, state, levels):
    """The state is reported with these levels, and not again while the watcher keeps checking."""
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


def test_flash_that_cannot_be_opened_is_one_warning(tmp_path, run, engine):
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


def ended(server, state, level):
    """The state was reported with this level, has ended, and its end is reported too: once each."""
    assert stays(server, state, [level, "Note"])[1].rstrip().endswith("works again")


def with_far_table(server, run):
    """A connection; most of table t is in the store only, and table more can take the memory and the object buffer."""
    connection = server.connect()
    load(connection, run)
    run(connection, "CREATE TABLE more (PRIMARY KEY (id)) ENGINE=Terrace SELECT * FROM t WHERE id > 1000")
    wait_until(lambda: is_mostly_far(connection, run))
    return connection


def sink_all(connection, run):
    """No page of table t is near: all are in the store."""
    near = "SELECT SUM(PAGES_VOLUME + PAGES_MEMORY) FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'"

    def is_far():
        return int(run(connection, near)[0][0]) <= 2

    def is_pushed_out():
        if is_far():
            return True
        run(connection, "UPDATE more SET v = v + 1 WHERE id % 8 = 0")
        return False

    wait_until(is_pushed_out)
    # What is on its way to the store arrives: no more changes keep it there.
    wait_until(lambda: is_far() and int(status(connection, run, "sink_blocks_waiting")) == 0)


def flip_objects(store):
    """One bit of every page of every object, which are not compressed: not of first blocks, which have the roots of the trees."""
    files = [os.path.join(at, name) for at, _, names in os.walk(store.path) for name in names]
    pages = [file for file in files if os.path.getsize(file) > PAGE and int(os.path.basename(os.path.dirname(file)), 16) > 0]
    assert len(pages) > 2
    for file in pages:
        for at in range(1024 + 777, os.path.getsize(file), 16384):
            flip(file, at)


def flip_pages(server, text):
    """One bit of every page on the volume that has the text, and is no page of undo. Returns how many they were."""
    path, count, after = os.path.join(server.directory, "data", "terrace", "pages"), 0, 0
    data = open(path, "rb").read()
    while (at := data.find(text, after)) >= 0:
        page = at // PAGE * PAGE
        if struct.unpack_from("<I", data, page + 8)[0] >= FIRST_USER:
            flip(path, at)
            count += 1
        after = page + PAGE
    return count


def test_a_rollback_that_waits_for_the_store_is_one_warning_and_its_end_a_note(directory, tmp_path, run):  # noqa: F811
    server = server_on(directory, tmp_path)
    try:
        connection = with_far_table(server, run)
        writer = server.connect(database="d")
        writer.begin()
        run(writer, "UPDATE t SET v = -v WHERE id <= 40")
        sink_all(connection, run)
        directory.die()
        assert "the rollback goes on in the background" in fails(run, writer, "ROLLBACK")[1]
        stays(server, "rollback", ["Warning"])
        directory.live()
        ended(server, "rollback", "Warning")
    finally:
        end(server)


def test_a_rollback_that_needs_a_damaged_page_is_one_error(directory, tmp_path, run):  # noqa: F811
    server = server_on(directory, tmp_path, "--terrace-compression=none")
    try:
        connection = with_far_table(server, run)
        writer = server.connect(database="d")
        writer.begin()
        run(writer, "UPDATE t SET v = -v WHERE id BETWEEN 5000 AND 5040")
        sink_all(connection, run)
        server.kill9()
        flip_objects(directory)
        server.start()
        line = stays(server, "rollback", ["ERROR"])[0]
        assert "corrupt" in line and "terrace check" in line, line
    finally:
        end(server)


@pytest.mark.parametrize("what", ["the store does not answer", "the pages are damaged"])
def test_a_purge_that_cannot_read_is_reported_once_with_its_severity(directory, tmp_path, run, what):  # noqa: F811
    server = server_on(directory, tmp_path, "--terrace-compression=none")
    try:
        connection = with_far_table(server, run)
        reader = server.connect(database="d")
        run(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        run(connection, "DELETE FROM t WHERE id BETWEEN 5000 AND 5040")
        sink_all(connection, run)
        if what == "the store does not answer":
            directory.die()
            reader.rollback()
            stays(server, "purge", ["Warning"])
            directory.live()
            ended(server, "purge", "Warning")
        else:
            server.kill9()
            flip_objects(directory)
            server.start()
            line = stays(server, "purge", ["ERROR"])[0]
            assert "corrupt" in line and "terrace check" in line, line
    finally:
        end(server)


def test_redo_that_waits_for_the_store_is_one_warning_and_its_end_a_note(directory, tmp_path, run):  # noqa: F811
    server = server_on(directory, tmp_path)
    try:
        connection = with_far_table(server, run)
        on_volume = "SELECT SUM(PAGES_VOLUME) FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'"
        wait_until(lambda: int(run(connection, on_volume)[0][0]) == 0)
        run(connection, "UPDATE t SET v = v + 1 WHERE id % 500 = 0")
        server.kill9()
        directory.die()
        server.start()
        stays(server, "redo", ["Warning"])
        directory.live()
        ended(server, "redo", "Warning")
        assert run(server.connect(database="d"), "SELECT SUM(v), COUNT(*) FROM t") == [(9000 * 9001 // 2 + 18, 9000)]
    finally:
        end(server)


def test_redo_for_a_damaged_page_is_one_error_that_says_what_to_do(tmp_path, run, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    server = Server(str(tmp_path / "server"), SIZES)
    os.makedirs(server.directory)
    server.start()
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(200)) ENGINE=Terrace")
        run(connection, "INSERT INTO t SELECT seq, 0, CONCAT('row-', LPAD(seq, 6, '0'), REPEAT('-', 180)) FROM seq_1_to_2000")
        server.restart()
        run(server.connect(database="d"), "UPDATE t SET v = 1 WHERE id % 50 = 0")
        server.kill9()
        assert flip_pages(server, b"row-00") > 10
        server.start()
        line = stays(server, "redo", ["ERROR"])[0]
        assert "corrupt" in line and "put the volume back from a copy" in line, line
    finally:
        end(server)


def test_a_block_that_cannot_be_sunk_is_one_error(directory, tmp_path, run):  # noqa: F811
    later = [option for option in SIZES if "sink-after" not in option] + directory.options()
    server = Server(str(tmp_path / "server"), later + ["--terrace-sink-after-ms=3600000"])
    os.makedirs(server.directory)
    server.start()
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, pad VARCHAR(200)) ENGINE=Terrace")
        run(connection, "INSERT INTO t SELECT seq, CONCAT('row-', LPAD(seq, 6, '0'), REPEAT('-', 180)) FROM seq_1_to_2000")
        server.stop()
        assert flip_pages(server, b"row-00") > 10
        server.options = later + ["--terrace-sink-after-ms=200"]
        server.start()
        line = stays(server, "sink", ["ERROR"])[0]
        assert "corrupt" in line and "terrace check" in line, line
    finally:
        end(server)


def test_a_store_that_another_copy_of_the_volume_has_taken_is_one_error(directory, tmp_path, run):  # noqa: F811
    server = server_on(directory, tmp_path)
    volume = os.path.join(server.directory, "data", "terrace")
    try:
        connection = server.connect()
        load(connection, run)
        wait_until(lambda: is_mostly_far(connection, run))
        server.stop()
        shutil.copytree(volume, tmp_path / "copy")
        for _ in range(2):
            server.start()
            connection = server.connect(database="d")
            run(connection, "UPDATE t SET v = v + 1 WHERE id <= 20")
            server.stop()
        shutil.rmtree(volume)
        os.rename(tmp_path / "copy", volume)
        server.start()
        line = stays(server, "object_store", ["ERROR"])[0]
        assert "fenced: another copy of this volume" in line and "docs/backup.md" in line, line
    finally:
        end(server)


def test_a_store_that_is_empty_is_one_error_and_its_mount_a_note(directory, tmp_path, run):  # noqa: F811
    server = server_on(directory, tmp_path)
    try:
        connection = server.connect()
        load(connection, run)
        wait_until(lambda: is_mostly_far(connection, run))
        server.stop()
        directory.die()
        os.makedirs(directory.path)  # the mount point, before the mount
        server.start()
        run(server.connect(database="d"), "CREATE TABLE u (id INT PRIMARY KEY) ENGINE=Terrace")
        line = stays(server, "object_store", ["ERROR"])[0]
        assert "holds nothing of this instance" in line and "mounted" in line, line
        directory.live()
        ended(server, "object_store", "ERROR")
    finally:
        end(server)


def test_an_engine_that_cannot_start_is_one_error_with_file_and_cause(tmp_path, run, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    server = Server(str(tmp_path / "server"), SIZES)
    os.makedirs(server.directory)
    server.start()
    server.kill9()
    path = os.path.join(server.directory, "data", "terrace", "superblock")
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.write(bytes(size))
    server.start()
    try:
        log = open(os.path.join(server.directory, "error.log")).read()
        lines = [line for line in log.splitlines() if "Terrace: " in line and "[Note]" not in line]
        assert len(lines) == 1 and "[ERROR] Terrace: the engine can't start: " in lines[0] and "superblock" in lines[0], lines
        assert not [row for row in run(server.connect(), "SHOW ENGINES") if row[0].upper() == "TERRACE"]
    finally:
        end(server)
