"""The object store below SQL: a local directory, and a real S3 server. Most of the data is only there."""

import errno
import os
import shutil
import socket
import subprocess
import time

import pymysql
import pytest
from conftest import ROOT, Server, end

ROWS = 9000
SIZES = ["--terrace-memory=10485760", "--terrace-object-buffer=4194304", "--terrace-log=8388608", "--terrace-sink-after-ms=500"]


class S3:
    """The s3s-fs server of the io crate's tests. AWS's own variables name the keys."""

    def __init__(self, directory):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.directory = directory
        os.makedirs(directory / "bucket", exist_ok=True)
        self.start()

    def start(self):
        program = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "debug", "examples", "s3_server")
        self.process = subprocess.Popen([program, self.directory, str(self.port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("listening on"), line
        self.keys = dict(pair.split("=", 1) for pair in line.split() if "=" in pair)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Store:
    """A store, its options for the server, and ways to hurt it."""

    def __init__(self, kind, tmp_path):
        self.kind, self.path = kind, tmp_path / "store"
        os.makedirs(self.path)
        self.s3 = S3(self.path) if kind == "s3" else None

    def options(self, place="prefix"):
        if self.s3:
            return [f"--terrace-object=s3://bucket/{place}", f"--terrace-object-endpoint=http://127.0.0.1:{self.s3.port}"]
        return [f"--terrace-object={self.path / place}"]

    def place(self):
        """The same for `terrace check`."""
        return [option.replace("--terrace-", "--") for option in self.options()]

    def die(self):
        if self.s3:
            self.s3.kill()
        else:
            os.rename(self.path, f"{self.path}.away")

    def live(self):
        if self.s3:
            self.s3.start()
        else:
            is_back = False
            while not is_back:  # A server may make its directory again at this moment, too.
                shutil.rmtree(self.path, ignore_errors=True)
                try:
                    os.rename(f"{self.path}.away", self.path)
                    is_back = True
                except OSError as error:
                    assert error.errno == errno.ENOTEMPTY, error

    def slow_down(self, one_in, seconds):
        """From now on S3 refuses one in `one_in` requests, to be retried after `seconds` seconds."""
        (self.path / "new").write_text(f"{one_in} {seconds}")
        os.rename(self.path / "new", self.path / "slow-down")

    def at_ease(self):
        os.unlink(self.path / "slow-down")

    def end(self):
        if self.s3:
            self.s3.kill()


def a_store(kind, tmp_path, monkeypatch, engine):
    """A store of the kind, and its keys in the environment; ended with the test. For fixtures."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    one = Store(kind, tmp_path)
    if one.s3:
        for name, value in one.s3.keys.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
    yield one
    one.end()


@pytest.fixture(params=["directory", "s3"])
def store(request, tmp_path, monkeypatch, engine):
    yield from a_store(request.param, tmp_path, monkeypatch, engine)


def flashed(store, tmp_path, *more):
    """A server on the store with room on flash for all. For fixtures."""
    directory = tmp_path / "server"
    os.makedirs(directory)
    flash = [f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=67108864"]
    server = Server(str(directory), SIZES + flash + store.options() + list(more))
    server.start()
    yield server
    end(server)


@pytest.fixture
def cold_server(store, tmp_path, request):
    directory = tmp_path / "server"
    os.makedirs(directory)
    server = Server(str(directory), SIZES + store.options() + getattr(request.module, "MORE_OPTIONS", []))
    server.start()
    yield server
    end(server)


def status(connection, run, name):
    text = run(connection, "SHOW ENGINE TERRACE STATUS")[0][2]
    return dict(line.split(" ", 1) for line in text.strip().splitlines()).get(name)


def load(connection, run):
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT, k INT, pad VARCHAR(1000), KEY (k)) ENGINE=Terrace")
    for start in range(1, ROWS + 1, 1500):
        run(connection, f"INSERT INTO t SELECT seq, seq, {ROWS} - seq, REPEAT('x', 900) FROM seq_{start}_to_{start + 1499}")


def wait_for(what, seconds=300):
    until = time.time() + seconds
    while not what():
        assert time.time() < until, "waited too long"
        time.sleep(0.1)


def is_mostly_far(connection, run):
    pages, far = run(connection, "SELECT SUM(PAGES), SUM(PAGES_OBJECT) FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'")[0]
    return float(far) > 0.6 * float(pages) > 200


def test_an_update_of_a_number_in_wide_rows_needs_little_undo(cold_server, store, run):
    """The rows' bytes are twice the object buffer, from which undo does not sink."""
    connection = cold_server.connect()
    load(connection, run)
    old = cold_server.connect(database="d")
    run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    total = ROWS * (ROWS + 1) // 2
    connection.begin()
    run(connection, "UPDATE t SET v = v + 1")
    assert run(connection, "SELECT SUM(v), SUM(LENGTH(pad)) FROM t") == [(total + ROWS, 900 * ROWS)]
    assert run(old, "SELECT SUM(v), SUM(LENGTH(pad)) FROM t") == [(total, 900 * ROWS)]
    connection.rollback()
    assert run(connection, "SELECT SUM(v), SUM(LENGTH(pad)) FROM t") == [(total, 900 * ROWS)]
    run(connection, "UPDATE t SET v = v + 2")
    cold_server.kill9()
    cold_server.start()
    connection = cold_server.connect(database="d")
    assert run(connection, "SELECT SUM(v), SUM(LENGTH(pad)) FROM t") == [(total + 2 * ROWS, 900 * ROWS)]


def test_data_ten_times_the_near_tiers_lives_in_the_store(cold_server, store, run):
    connection = cold_server.connect()
    load(connection, run)
    wait_for(lambda: is_mostly_far(connection, run))
    total = ROWS * (ROWS + 1) // 2
    assert run(connection, "SELECT COUNT(*), SUM(v), MIN(LENGTH(pad)) FROM t") == [(ROWS, total, 900)]
    assert int(status(connection, run, "reads_object")) > 200
    # Changes of all rows: blocks in objects are merged with their new pages and put again.
    run(connection, "UPDATE t SET v = v + 1 WHERE id % 50 = 0")
    cold_server.kill9()
    code, report = cold_server.check(*store.place())
    assert code == 0 and report["pages_object"] > 200, report
    code, report = cold_server.check()
    assert code == 3 and report["pages_not_checked"] > 200, report
    cold_server.start()
    connection = cold_server.connect(database="d")
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(ROWS, total + ROWS // 50)]
    run(connection, "DELETE FROM t WHERE id % 3 = 0")
    assert run(connection, "SELECT COUNT(*) FROM t FORCE INDEX (k) WHERE k >= 0") == [(ROWS - ROWS // 3,)]
    assert [row[3] for row in run(connection, "CHECK TABLE t")] == ["OK"]
    cold_server.restart()
    connection = cold_server.connect(database="d")
    assert run(connection, "SELECT COUNT(*) FROM t") == [(ROWS - ROWS // 3,)]
    # What was superseded, and a dropped table's objects, are deleted.
    run(connection, "DROP TABLE t")
    # There stay the objects `epoch` and `holder`, and the blocks of the samples that statistics are made of and of the kept definitions, each of which may have a patch.
    wait_for(lambda: count_objects(store) <= 6)


def count_objects(store):
    place = store.path / "bucket" / "prefix" if store.s3 else store.path / "prefix"
    # Among them what a put leaves that a kill cut off (`<key>#<number>`): the next start removes it.
    return sum(not name.startswith(".") for _, _, names in os.walk(place) for name in names)


def test_work_on_near_tiers_goes_on_while_the_store_is_dead_and_reads_of_it_fail(cold_server, store, run):
    connection = cold_server.connect()
    load(connection, run)
    run(connection, "CREATE TABLE near (id INT PRIMARY KEY, v INT) ENGINE=Terrace")
    run(connection, "INSERT INTO near SELECT seq, 0 FROM seq_1_to_500")
    wait_for(lambda: int(status(connection, run, "sink_blocks_waiting")) < 4)
    wait_for(lambda: is_mostly_far(connection, run))
    run(connection, "SELECT SUM(v) FROM near")
    store.die()
    try:
        for _ in range(50):
            run(connection, "UPDATE near SET v = v + 1")
        assert run(connection, "SELECT SUM(v) FROM near") == [(500 * 50,)]
        # Far pages: an error in bounded time, and the connection lives.
        before = time.time()
        with pytest.raises(pymysql.err.MySQLError) as error:
            run(connection, "SELECT SUM(v) FROM t")
        assert time.time() - before < 150
        assert "prefix" in str(error.value) or "store" in str(error.value), error.value
        # Nor is the table corrupt, whatever asks.
        (_, _, kind, text), last = run(connection, "CHECK TABLE t")[0], run(connection, "CHECK TABLE t")[-1]
        assert (kind.lower(), last[2:]) == ("warning", ("status", "Operation failed")) and "orrupt" not in text, (kind, text, last)
        # A transaction that meets it can be rolled back.
        connection.begin()
        run(connection, "UPDATE near SET v = 0 WHERE id = 1")
        with pytest.raises(pymysql.err.MySQLError):
            run(connection, "UPDATE t SET v = 0")
        connection.rollback()
        assert run(connection, "SELECT SUM(v) FROM near") == [(500 * 50,)]
        wait_for(lambda: "object_store:" in open(os.path.join(cold_server.directory, "error.log")).read())
        # Killed and started without its store: what never sank is there.
        run(connection, "CREATE TABLE new (id INT PRIMARY KEY, v INT) ENGINE=Terrace")
        run(connection, "INSERT INTO new SELECT * FROM near")
        cold_server.kill9()
        cold_server.start()
        connection = cold_server.connect(database="d")
        assert run(connection, "SELECT SUM(v) FROM new") == [(500 * 50,)]
    finally:
        store.live()
    wait_for(lambda: answers(connection, run))
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(ROWS, ROWS * (ROWS + 1) // 2)]
    assert run(connection, "SELECT SUM(v) FROM near") == [(500 * 50,)]
    assert [row[3] for row in run(connection, "CHECK TABLE t, near, new")] == ["OK", "OK", "OK"]


def test_a_store_that_asks_to_slow_down_is_retried_later_and_nothing_is_lost(cold_server, store, run):
    if not store.s3:
        pytest.skip("a directory never asks")
    connection = cold_server.connect()
    load(connection, run)
    wait_for(lambda: is_mostly_far(connection, run))

    def counted(name):
        return int(status(connection, run, name))

    total, throttled = ROWS * (ROWS + 1) // 2, counted("object_requests_throttled")
    store.slow_down(3, 1)
    assert run(connection, "SELECT COUNT(*), SUM(v), MIN(LENGTH(pad)) FROM t") == [(ROWS, total, 900)]
    run(connection, "UPDATE t SET v = v + 1 WHERE id % 100 = 0")
    puts = counted("objects_put")
    wait_for(lambda: counted("objects_put") > puts and counted("sink_blocks_waiting") < 4)
    refused = counted("object_requests_throttled") - throttled
    assert refused > 3, refused
    cold_server.kill9()
    cold_server.start()
    connection = cold_server.connect(database="d")
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(ROWS, total + ROWS // 100)]
    store.at_ease()
    assert [row[3] for row in run(connection, "CHECK TABLE t")] == ["OK"]
    cold_server.stop()
    code, report = cold_server.check(*store.place())
    assert code == 0 and report["pages_object"] > 200, report
    cold_server.start()


def test_an_unmounted_directory_at_a_start_does_not_become_a_new_store(tmp_path, engine, run):
    """Also for an instance that has no object yet: objects put there would be hidden by the later mount."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory, place = tmp_path / "server", tmp_path / "mount" / "store"
    os.makedirs(directory)
    os.makedirs(place)
    options = [option for option in SIZES if "sink-after" not in option]
    server = Server(str(directory), options + [f"--terrace-object={place}", "--terrace-sink-after-ms=3600000"])
    try:
        server.start()
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=Terrace")
        run(connection, "INSERT INTO t SELECT seq, 0 FROM seq_1_to_500")
        assert sorted(os.listdir(place)) == ["epoch", "holder"], "this shows nothing about an instance without objects"
        server.kill9()
        os.rename(place, tmp_path / "away")  # as unmounted: once with the directory to mount on, once without
        for made in [True, False]:
            if made:
                os.makedirs(place)
            else:
                shutil.rmtree(tmp_path / "mount")
            server.options = [option for option in server.options if "sink-after" not in option] + ["--terrace-sink-after-ms=200"]
            server.start()
            connection = server.connect(database="d")
            run(connection, "UPDATE t SET v = v + 1")
            wait_for(lambda: "holds nothing of this instance" in (status(connection, run, "object_store_trouble") or ""))
            assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(500, 500 if made else 1000)]
            assert not os.path.exists(place) or os.listdir(place) == [], os.listdir(place)
            server.kill9()
        # It is mounted while the server runs.
        server.start()
        connection = server.connect(database="d")
        shutil.rmtree(place, ignore_errors=True)
        os.rename(tmp_path / "away", place)
        wait_for(lambda: int(status(connection, run, "sink_blocks")) > 0)
        wait_for(lambda: not status(connection, run, "object_store_trouble"))
        assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(500, 1000)]
    finally:
        end(server)


def answers(connection, run):
    try:
        return run(connection, "SELECT COUNT(*) FROM t") == [(ROWS,)]
    except pymysql.err.MySQLError as error:
        print(error)
        return False


def test_another_instances_store_and_an_unreachable_one_are_refused(cold_server, store, tmp_path, run):
    connection = cold_server.connect()
    load(connection, run)
    wait_for(lambda: int(status(connection, run, "sink_blocks")) > 0)
    other = Server(str(tmp_path / "other"), SIZES + store.options())
    os.makedirs(other.directory)
    other.start()  # the server lives, the engine does not
    try:
        engines = run(other.connect(), "SHOW ENGINES")
        assert not [row for row in engines if row[0].upper() == "TERRACE"]
        log = open(os.path.join(other.directory, "error.log")).read()
        assert "belongs to instance" in log and "right bucket" in log, log[-2000:]
    finally:
        end(other)
    # The first one, pointed at an empty place: refused to publish, and it says why.
    cold_server.stop()
    cold_server.options = SIZES + store.options("elsewhere")
    cold_server.start()
    connection = cold_server.connect(database="d")
    wait_for(lambda: "holds nothing of this instance" in (status(connection, run, "object_store_trouble") or ""))
    with pytest.raises(pymysql.err.MySQLError):
        run(connection, "SELECT SUM(v) FROM t")
    cold_server.stop()
    cold_server.options = SIZES + store.options()
    cold_server.start()
    assert run(cold_server.connect(database="d"), "SELECT COUNT(*) FROM t") == [(ROWS,)]


def object_reads(connection, run):
    sql = "SELECT SUM(REQUESTS), SUM(BYTES) FROM information_schema.TERRACE_IO WHERE TIER = 'object' AND PURPOSE IN ('page_miss', 'block_read')"
    return [int(number) for number in run(connection, sql)[0]]


def test_a_large_value_in_the_store_is_read_with_few_requests(cold_server, run):
    connection = cold_server.connect()
    run(connection, "CREATE DATABASE d CHARACTER SET utf8mb4")
    connection.select_db("d")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, sum CHAR(32), data LONGBLOB) ENGINE=Terrace")
    # A hundred kilobytes of noise, in seven pages.
    noise = ", ".join(["RANDOM_BYTES(1000)"] * 100)
    run(connection, f"INSERT INTO t SELECT seq, '', CONCAT({noise}) FROM seq_1_to_200")
    # Anew, in pages that others have left.
    for first in range(1, 200, 40):
        run(connection, f"UPDATE t SET data = CONCAT({noise}) WHERE id BETWEEN {first} AND {first + 19}")
    run(connection, "UPDATE t SET sum = MD5(data)")
    wait_for(lambda: is_mostly_far(connection, run) and int(status(connection, run, "sink_blocks_waiting")) == 0)
    cold_server.restart()
    connection = cold_server.connect(database="d")
    wait_for(lambda: int(status(connection, run, "history_length")) == 0)
    run(connection, "SELECT sum FROM t WHERE id = 100")
    before = object_reads(connection, run)
    for i in range(7, 200, 8):
        assert run(connection, "SELECT LENGTH(data), MD5(data) = sum FROM t WHERE id = %s", (i,)) == [(100_000, 1)]
    requests, size = (after - before for after, before in zip(object_reads(connection, run), before))
    # Page by page they would be seven each.
    # Two to four, by how the pages that others left lie.
    assert requests < 5 * 25, f"{requests} requests for 25 values"
    assert size < 25 * 3 * 100_000, size


@pytest.mark.parametrize("without", ["", "clean-copies,prefetch"])
def test_sunk_pages_are_read_from_their_old_slots_unless_ablated(tmp_path, engine, run, without):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    server = Server(str(directory), SIZES + Store("directory", tmp_path).options() + [f"--terrace-without={without}"])
    server.start()
    try:
        connection = server.connect()
        assert run(connection, "SELECT @@terrace_without") == [(without,)]
        load(connection, run)
        wait_for(lambda: is_mostly_far(connection, run))
        for pass_ in range(2):
            for at in range(1, ROWS, 7):
                assert run(connection, "SELECT v, LENGTH(pad) FROM t WHERE id = %s", (at,)) == [(at, 900)]
        clean, far = (int(status(connection, run, name)) for name in ("reads_volume_clean", "reads_object"))
        print(clean, far, status(connection, run, "object_buffer_slots_clean"))
        assert clean == 0 if without else clean > 50, (clean, far)
        assert int(status(connection, run, "object_buffer_slots_clean")) == 0 if without else True
        # What is put back into slots is not read from those that are given out.
        run(connection, "UPDATE t SET v = -v WHERE id % 30 = 0")
        assert run(connection, "SELECT SUM(v < 0), SUM(v = -id), COUNT(*) FROM t") == [(ROWS // 30, ROWS // 30, ROWS)]
        assert [row[3] for row in run(connection, "CHECK TABLE t")] == ["OK"]
    finally:
        end(server)


def scattered(number):
    """A primary key anywhere among the others."""
    return number * 2654435761 % 2**32


@pytest.mark.parametrize("without", ["", "prefetch"])
def test_cold_rows_of_a_secondary_index_and_entries_of_rows_are_fetched_in_parallel(tmp_path, engine, run, without):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    options = SIZES + Store("directory", tmp_path).options() + ["--terrace-memory=33554432"]
    server = Server(str(directory), options + [f"--terrace-without=clean-copies,{without}".rstrip(",")])
    server.start()
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id BIGINT PRIMARY KEY, k INT, a BIGINT, b BIGINT, pad VARCHAR(400), KEY k (k), KEY a (a), KEY b (b)) ENGINE=Terrace")
        for start in range(0, 24000, 3000):
            run(connection, f"INSERT INTO t SELECT seq * 2654435761 % 4294967296, seq, seq * 2246822519 % 4294967296, seq * 3266489917 % 4294967296, REPEAT('x', 400) FROM seq_{start}_to_{start + 2999}")
        wait_for(lambda: is_mostly_far(connection, run))

        def read():
            status = dict(run(connection, "SHOW SESSION STATUS LIKE 'Terrace_session_pages_%'"))
            return [int(status[f"Terrace_session_pages_{name}"]) for name in ("object", "ahead_object")]

        server.options += ["--terrace-emulate=cloud"]  # a store that takes 30 ms

        def cold():
            server.restart()
            new = server.connect(database="d")
            run(new, "SELECT * FROM t LIMIT 0")
            return new

        condition = "FROM t FORCE INDEX (k) WHERE k BETWEEN 5000 AND 5079"
        expected = [(scattered(number),) for number in range(5000, 5080)]
        for statement, rows in [
            (f"SELECT id, pad {condition} ORDER BY k", expected), (f"SELECT id, pad {condition} ORDER BY k DESC", expected[::-1]),
            (f"SELECT id, pad {condition} ORDER BY k FOR UPDATE", expected), (f"SELECT id, pad {condition} ORDER BY k DESC LOCK IN SHARE MODE", expected[::-1]),
        ]:
            connection = cold()
            assert [row[:1] for row in run(connection, statement)] == rows
            own, ahead = read()
            print(statement, own, ahead)
            assert own + ahead > 40 and (ahead == 0 if without else ahead > 15), (own, ahead)
        connection = cold()
        assert run(connection, f"SELECT COUNT(*) {condition}") == [(80,)]
        run(connection, "UPDATE t FORCE INDEX (k) SET a = -k, b = b + 1 WHERE k BETWEEN 5000 AND 5079")
        own, ahead = read()
        print("update", own, ahead)
        assert ahead == 0 if without else ahead > 15, (own, ahead)
        assert run(connection, "SELECT COUNT(*), MIN(a), MAX(a) FROM t FORCE INDEX (a) WHERE a < 0") == [(80, -5079, -5000)]
        assert [row[3] for row in run(connection, "CHECK TABLE t")] == ["OK"]
    finally:
        end(server)


def test_long_ranges_of_cold_rows_and_entries_are_read_ahead_and_short_ones_are_not(tmp_path, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    # Memory with frames to spare, without which nothing is read ahead.
    server = Server(str(directory), SIZES + Store("directory", tmp_path).options() + ["--terrace-memory=33554432"])
    server.start()
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, name CHAR(200) CHARACTER SET latin1, pad VARCHAR(400), KEY name (name)) ENGINE=Terrace")
        for start in range(1, ROWS + 1, 1500):
            run(connection, f"INSERT INTO t SELECT seq, RPAD(LPAD(seq, 6, '0'), 200, 'x'), REPEAT('x', 400) FROM seq_{start}_to_{start + 1499}")
        wait_for(lambda: is_mostly_far(connection, run))

        def ahead(index):
            return run(connection, f"SELECT PAGES_AHEAD FROM information_schema.TERRACE_INDEX_STATISTICS WHERE TABLE_SCHEMA = 'd' AND INDEX_NAME = '{index}'")[0][0]

        def waited():
            status = dict(run(connection, "SHOW SESSION STATUS LIKE 'Terrace_session_pages_%'"))
            return sum(int(status[f"Terrace_session_pages_{tier}"]) for tier in ("volume", "object"))

        def name(number):
            return f"{number:06}".ljust(200, "x")

        for index, short, long in [
            ("PRIMARY", "SELECT COUNT(*) FROM (SELECT pad FROM t WHERE id >= 7000 ORDER BY id LIMIT 10) AS some", "SELECT COUNT(pad) FROM t FORCE INDEX (PRIMARY) WHERE id BETWEEN 1000 AND 6999"),
            ("name", f"SELECT COUNT(*) FROM (SELECT name FROM t WHERE name >= '{name(7000)}' ORDER BY name LIMIT 10) AS some", f"SELECT COUNT(name) FROM t FORCE INDEX (name) WHERE name BETWEEN '{name(1000)}' AND '{name(6999)}'"),
        ]:
            server.restart()
            connection = server.connect(database="d")
            run(connection, "SELECT * FROM t LIMIT 0")
            before = ahead(index)
            assert run(connection, short) == [(10,)]
            assert ahead(index) == before, f"ten of {index} brought others along"
            pages = run(connection, f"SELECT PAGES_VOLUME + PAGES_OBJECT FROM information_schema.TERRACE_INDEX_STATISTICS WHERE TABLE_SCHEMA = 'd' AND INDEX_NAME = '{index}'")[0][0]
            before = waited()
            assert run(connection, long) == [(6000,)]
            print(index, pages, waited() - before, ahead(index))
            assert pages > 80 and waited() - before < pages / 6, f"{waited() - before} of {pages} pages of {index} were waited for"
            # The same from the last row to the first.
            server.restart()
            connection = server.connect(database="d")
            run(connection, "SELECT * FROM t LIMIT 0")
            before = waited()
            down = long.replace("SELECT COUNT(pad)", "SELECT pad").replace("SELECT COUNT(name)", "SELECT name") + f" ORDER BY {'id' if index == 'PRIMARY' else 'name'} DESC"
            assert len(run(connection, down)) == 6000
            assert waited() - before < pages / 6, f"{waited() - before} of {pages} pages of {index} were waited for on the way down"
    finally:
        end(server)


def cold_with_numbers(server, run):
    """A connection, and a table whose counter is in the store alone, opened."""
    connection = server.connect()
    load(connection, run)
    run(connection, "CREATE TABLE numbered (id INT AUTO_INCREMENT PRIMARY KEY, pad VARCHAR(1000)) ENGINE=Terrace")
    run(connection, "INSERT INTO numbered (pad) SELECT REPEAT('x', 900) FROM seq_1_to_1000")
    wait_for(lambda: is_mostly_far(connection, run) and int(status(connection, run, "sink_blocks_waiting")) == 0)
    server.restart()
    connection = server.connect(database="d")
    run(connection, "SELECT * FROM numbered LIMIT 0")
    for _ in range(2):
        run(connection, "SELECT SUM(v) FROM t")
    # What a start leaves to be done in the store is done.
    wait_for(lambda: int(status(connection, run, "sink_blocks_waiting")) == 0 and int(status(connection, run, "objects_to_delete")) == 0)
    return connection


def refused(connection, run, sql):
    with pytest.raises(pymysql.err.MySQLError) as error:
        run(connection, sql)
    return error.value.args


def test_an_insert_that_needs_an_auto_increment_value_reports_an_unreachable_store(tmp_path, engine, run):
    """The error was 1467, without a reason."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    store = Store("directory", tmp_path)
    place = "ô" * 100
    server = Server(str(directory), SIZES + store.options(place) + ["--terrace-without=clean-copies"])
    server.start()
    try:
        connection = cold_with_numbers(server, run)
        store.die()
        code, text = refused(connection, run, "INSERT INTO numbered (pad) VALUES ('new')")
        assert code == 1297 and "object store" in text, (code, text)
        assert (code, text.split("(")[0].split(":")[-1]) == (1297, refused(connection, run, "SELECT SUM(id) FROM numbered")[1].split("(")[0].split(":")[-1])
        # The server limits an engine's text to two hundred bytes. A longer word is cut to the room left.
        said = text[text.index("'") + 1:text.rindex("'")]
        assert said.endswith("…") and 196 <= len(said.encode()) <= 200 and "/ô" in said, said
        for statement in ("INSERT INTO numbered (pad) SELECT 'new' FROM seq_1_to_3", "INSERT IGNORE INTO numbered (pad) VALUES ('new')", "REPLACE INTO numbered (pad) VALUES ('new')"):
            assert refused(connection, run, statement)[0] == 1297, statement
        store.live()
        wait_for(lambda: not status(connection, run, "object_store_trouble"))
        run(connection, "INSERT INTO numbered (pad) VALUES ('new')")
        assert run(connection, "SELECT COUNT(*), MAX(id) > 1000 FROM numbered") == [(1001, 1)]
    finally:
        end(server)


def test_reads_that_fail_because_of_the_store_are_reported_as_trouble(cold_server, store, run):
    """No block has to sink, so only the statements' errors showed the trouble."""
    connection = cold_with_numbers(cold_server, run)
    log = os.path.join(cold_server.directory, "error.log")
    lines = lambda what: [line for line in open(log) if "Terrace: object_store: " + what in line]
    troubled = lambda: run(connection, "SHOW GLOBAL STATUS LIKE 'Terrace_object_store_troubled'")[0][1]
    assert troubled() == "0" and not lines("")
    for _ in range(3):
        store.die()
        for _ in range(2):
            assert refused(connection, run, "SELECT SUM(v) FROM t")[0] == 1297
        assert troubled() == "1"
        trouble = status(connection, run, "object_store_trouble")
        if trouble.startswith("reads fail: "):
            break
        # A sinker has probed the store just then, as it does now and then, and its trouble is reported first.
        assert "(epoch)" in trouble, trouble
        store.live()
        wait_for(lambda: troubled() == "0" and len(lines("the object store is unavailable")) == len(lines("works again")))
    before = len(lines("works again"))
    wait_for(lambda: lines("reads fail: "))
    store.live()
    # No session reads.
    wait_for(lambda: len(lines("works again")) > before)
    assert troubled() == "0" and not status(connection, run, "object_store_trouble")
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(ROWS, ROWS * (ROWS + 1) // 2)]
    # An answer in flight when the store died ends the trouble for a moment: then another read reports it a second time.
    assert len(lines("reads fail: ")) in (1, 2) and len(lines("works again")) == before + 1, lines("")
