"""Yesterday's copy of one tier is restored while the other tiers have gone on: the server works correctly, or refuses with an error; it never mixes old
rows with new ones."""

import os
import shutil
import subprocess
import time

import pymysql
import pytest
from conftest import TARGET, Server, end, quick_once
from test_object import ROWS, SIZES, Store, cold_server, count_objects, is_mostly_far, load, status, store, wait_for  # noqa: F401


def volume_of(server):
    return os.path.join(server.directory, "data", "terrace")


def put_back(what, old):
    shutil.rmtree(what)
    shutil.copytree(old, what)


@pytest.fixture
def server(tmp_path, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    options = ["--terrace-memory=8388608", f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=134217728"]
    one = Server(str(directory), options)
    one.start()
    yield one
    end(one)


def sums(connection, run):
    return run(connection, "SELECT COUNT(*), SUM(v), SUM(v = id), SUM(v = id + 1) FROM t")[0]


YESTERDAY, TODAY = (ROWS, ROWS * (ROWS + 1) // 2, ROWS, 0), (ROWS, ROWS * (ROWS + 3) // 2, 0, ROWS)
# Every thirtieth row has changed.
SOME = (ROWS, YESTERDAY[1] + ROWS // 30, ROWS - ROWS // 30, ROWS // 30)


def warm(connection, run):
    """Uses each page twice, so that it comes to flash."""
    for _ in range(2):
        for at in range(1, ROWS, 12):
            run(connection, "SELECT v FROM t WHERE id = %s", (at,))


def test_an_older_copy_of_the_volume_serves_its_own_rows_and_none_from_newer_flash(server, tmp_path, run):
    connection = server.connect()
    load(connection, run)
    warm(connection, run)
    server.stop()
    yesterday = tmp_path / "yesterday"
    shutil.copytree(volume_of(server), yesterday)
    server.start()
    connection = server.connect(database="d")
    run(connection, "UPDATE t SET v = v + 1")
    run(connection, "CREATE TABLE since (id INT) ENGINE=Terrace")
    run(connection, "INSERT INTO since VALUES (1)")
    assert sums(connection, run) == TODAY
    warm(connection, run)
    time.sleep(3)  # the index of flash is saved after two quiet seconds
    server.stop()

    today = tmp_path / "today"
    shutil.copytree(volume_of(server), today)
    put_back(volume_of(server), yesterday)
    server.start()
    connection = server.connect(database="d")
    wait_for(lambda: int(status(connection, run, "flash_pages_restored")) > 300)
    assert sums(connection, run) == YESTERDAY
    with pytest.raises(pymysql.err.MySQLError) as gone:
        run(connection, "SELECT * FROM since")
    assert gone.value.args[0] in (1932, 1146), gone.value
    assert [row[3] for row in run(connection, "CHECK TABLE t")] == ["OK"]
    # It goes on from there, over a crash, too.
    run(connection, "UPDATE t SET v = v + 1 WHERE id <= 10")
    server.kill9()
    server.start()
    connection = server.connect(database="d")
    assert sums(connection, run) == (ROWS, YESTERDAY[1] + 10, ROWS - 10, 10)
    server.stop()
    put_back(volume_of(server), today)
    server.start()
    connection = server.connect(database="d")
    assert sums(connection, run) == TODAY and run(connection, "SELECT * FROM since") == [(1,)]


@pytest.mark.parametrize("files", ["pages", "map", "log", "superblock"])
def test_an_older_copy_of_single_volume_files_is_refused_or_harmless(files, server, tmp_path, run):
    connection = server.connect()
    load(connection, run)
    server.stop()
    yesterday = tmp_path / "yesterday"
    shutil.copytree(volume_of(server), yesterday)
    server.start()
    connection = server.connect(database="d")
    run(connection, "UPDATE t SET v = v + 1")
    run(connection, "INSERT INTO t SELECT id + 100000, v, k, pad FROM t WHERE id <= 3000")
    run(connection, "DELETE FROM t WHERE id > 100000")
    if files == "log":
        # Until then nothing but the log has what was done today, and yesterday's is as good: the volume is yesterday's.
        made = int(status(connection, run, "checkpoints"))
        wait_for(lambda: int(status(connection, run, "checkpoints")) > made)
        server.kill9()
    else:
        server.stop()  # after an orderly end nothing of the log is needed
    shutil.rmtree(tmp_path / "flash")
    put = [name for name in os.listdir(yesterday) if name.startswith(files)]
    assert put, os.listdir(yesterday)
    for name in put:
        shutil.copy(yesterday / name, os.path.join(volume_of(server), name))
    server.start()
    connection = server.connect(database="d")
    try:
        found = sums(connection, run)
    except pymysql.err.MySQLError as error:
        log = open(os.path.join(server.directory, "error.log")).read()
        print(error, log[-600:])
        assert error.args[0] in (1034, 1286, 1932, 126, 127, 1030, 1712, 1146), error
        # A file of yesterday may also end before the page (`read pages at`).
        words = ("corrupt", "read pages at", "checksum", "tag", "Corrupt", "is damaged", "attested", "log ends", "the map is not the one", "old copy")
        assert any(word in log or word in str(error) for word in words), (error, log[-2000:])
    else:
        assert found == TODAY, f"{files} of yesterday: {found}"


def test_an_older_volume_under_a_newer_store_is_refused_and_deletes_no_objects(tmp_path, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    store = Store("directory", tmp_path)
    directory = tmp_path / "server"
    os.makedirs(directory)
    server = Server(str(directory), SIZES + store.options())
    server.start()
    try:
        connection = server.connect()
        load(connection, run)
        wait_for(lambda: is_mostly_far(connection, run))
        server.stop()
        yesterday = tmp_path / "yesterday"
        shutil.copytree(volume_of(server), yesterday)
        for _ in range(2):  # each start is another writer to the store
            server.start()
            connection = server.connect(database="d")
        run(connection, "UPDATE t SET v = v + 1 WHERE id % 30 = 0")
        assert sums(connection, run) == SOME
        wait_for(lambda: is_mostly_far(connection, run))
        server.stop()
        today, objects = tmp_path / "today", count_objects(store)
        shutil.copytree(volume_of(server), today)

        put_back(volume_of(server), yesterday)
        # Each start raises its writer epoch, in the end above that of today's.
        for n in range(5):
            server.start()
            connection = server.connect(database="d")
            # What objects it knew may have been collected since: then the read says so. Nothing of today is among what it reads.
            try:
                assert sums(connection, run) == YESTERDAY
            except pymysql.err.MySQLError as error:
                print(error)
                assert error.args[0] == 1296 and "is no longer in the object store" in error.args[1], error
            try:
                run(connection, "UPDATE t SET v = v + 5 WHERE id <= 20")
                run(connection, "UPDATE t SET v = v - 5 WHERE id <= 20")
            except pymysql.err.MySQLError as error:
                print(error)
                assert error.args[0] == 1296 and "is no longer in the object store" in error.args[1], error
            wait_for(lambda: "fenced" in (status(connection, run, "object_store_trouble") or ""), 30)
            trouble = status(connection, run, "object_store_trouble")
            print(trouble)
            assert "another copy of this volume" in trouble
            time.sleep(1)
            assert count_objects(store) == objects, f"a volume of yesterday has changed the store at start {n}"
            server.kill9() if n % 2 else server.stop()
        put_back(volume_of(server), today)
        server.start()
        connection = server.connect(database="d")
        assert sums(connection, run) == SOME
        assert [row[3] for row in run(connection, "CHECK TABLE t")] == ["OK"]
    finally:
        end(server)


def adopt(server, place, *more):
    """The exit code and the output of `terrace adopt`."""
    program = os.path.join(TARGET, "debug", "terrace")
    done = subprocess.run([program, "adopt", "--volume", volume_of(server), *place, *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    print(done.stdout)
    return done.returncode, done.stdout


def test_an_older_volume_adopts_the_store_of_a_lost_one(cold_server, store, tmp_path, run):  # noqa: F811
    server = cold_server
    connection = server.connect()
    load(connection, run)
    wait_for(lambda: is_mostly_far(connection, run))
    # What the shutdown writes is sunk too: no object that yesterday's volume names is rewritten tomorrow.
    server.restart()
    connection = server.connect(database="d")
    near = "SELECT SUM(PAGES_VOLUME + PAGES_MEMORY) FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'"
    wait_for(lambda: int(run(connection, near)[0][0]) == 0)
    server.stop()
    yesterday, today = tmp_path / "yesterday", tmp_path / "today"
    shutil.copytree(volume_of(server), yesterday)
    server.start()
    connection = server.connect(database="d")
    run(connection, "CREATE TABLE since ENGINE=Terrace AS SELECT id, pad FROM t WHERE id <= 3000")
    wait_for(lambda: int(run(connection, "SELECT SUM(PAGES_OBJECT) FROM information_schema.TERRACE_TABLE_STATISTICS WHERE TABLE_NAME = 'since'")[0][0]) > 100)
    server.stop()
    shutil.copytree(volume_of(server), today)

    put_back(volume_of(server), yesterday)
    code, said = adopt(server, store.place())
    assert code == 2 and "no terminal" in said
    code, said = adopt(server, store.place(), "--yes")
    assert code == 0 and "the object store is this volume's" in said
    code, said = adopt(server, store.place(), "--yes")
    assert code == 0 and "nothing to adopt" in said
    server.start()
    connection = server.connect(database="d")
    assert sums(connection, run) == YESTERDAY
    run(connection, "UPDATE t SET v = v + 1 WHERE id % 30 = 0")
    assert sums(connection, run) == SOME
    wait_for(lambda: is_mostly_far(connection, run))
    assert not status(connection, run, "object_store_trouble")
    assert [row[3] for row in run(connection, "CHECK TABLE t")] == ["OK"]
    server.stop()
    code, report = server.check(*store.place())
    assert code == 0, report
    adopted = tmp_path / "adopted"
    shutil.copytree(volume_of(server), adopted)

    # The one that was lost comes back: now it is the one that is fenced.
    put_back(volume_of(server), today)
    objects = count_objects(store)
    server.start()
    connection = server.connect(database="d")
    wait_for(lambda: "another copy of this volume" in (status(connection, run, "object_store_trouble") or ""), 60)
    time.sleep(1)
    assert count_objects(store) == objects
    server.kill9()
    put_back(volume_of(server), adopted)
    server.start()
    connection = server.connect(database="d")
    assert sums(connection, run) == SOME


@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_the_first_query_does_not_wait_for_a_large_flash(server, tmp_path, run, ended):
    """64 GiB of flash, of which the images are holes: the index of it is put back while queries are answered."""
    connection = server.connect()
    load(connection, run)
    warm(connection, run)
    server.stop()
    flash, size = tmp_path / "flash", 64 << 30
    os.truncate(flash / "bpe", size)
    # Other bytes there are read and rejected.
    os.truncate(flash / "bpe.index", 4096 * (2 + size // 16384 // 1022))
    without = ["--terrace-memory=268435456"]
    large = [*without, f"--terrace-flash-path={flash}", f"--terrace-flash={size}"]

    def first_query(options):
        """Seconds from the server's start to the first answer."""
        server.stop()
        server.options = options
        if ended == "killed":
            server.start()
            for _ in range(2):
                run(server.connect(database="d"), "UPDATE t SET v = -v WHERE id % 10 = 0")
            server.kill9()
        since = time.monotonic()
        server.start()
        assert run(server.connect(database="d"), "SELECT v FROM t WHERE id = 4711") == [(4711,)]
        return time.monotonic() - since

    plain = min(first_query(without) for _ in range(2))
    restored = []

    def longer():
        took = first_query(large) - plain
        connection = server.connect(database="d")
        wait_for(lambda: int(status(connection, run, "flash_pages_restored")) > 300)
        restored.append(took)
        return took

    quick_once(longer, 1.0)
    print(f"first query after {plain:.2f} s without flash, {restored[-1]:.2f} s later with it")
    connection = server.connect(database="d")
    assert int(status(connection, run, "flash_pages_max")) > 4_000_000
    assert sums(connection, run) == YESTERDAY
