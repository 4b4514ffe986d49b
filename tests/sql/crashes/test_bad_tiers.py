"""Damage to the tiers below SQL: flipped bits, garbage, files of other instances, full and failing devices. Acknowledged
rows are found, or the damage is named; a wrong row is never served.

TERRACE_FLIPS: random flips in the whole volume (default 2; each is a start of the server).
"""

import os
import random
import shutil
import struct

import pymysql
import pytest
from conftest import Server, end
from conftest import run as run_statement

FLIPS = int(os.environ.get("TERRACE_FLIPS", "2"))
ROWS, PAGE, BLOCK, FIRST_USER = 600, 16384, 4096, 16
SIZES = ["--innodb=OFF", "--default-storage-engine=Aria", "--terrace-memory=8388608", "--terrace-log=4194304"]


class Model:
    """The rows that were acknowledged."""

    def __init__(self):
        self.rows = {}

    def put(self, connection, run, first, last, v):
        run(connection, f"REPLACE INTO t SELECT seq, {v} + seq % 7, CONCAT('row-', LPAD(seq, 6, '0'), REPEAT('-', 900)) FROM seq_{first}_to_{last}")
        self.rows.update((i, v + i % 7) for i in range(first, last + 1))

    def check(self, connection, run):
        """All rows by the primary and by the secondary index, and their texts."""
        found = run(connection, "SELECT id, v FROM t FORCE INDEX (PRIMARY) WHERE pad = CONCAT('row-', LPAD(id, 6, '0'), REPEAT('-', 900))")
        assert dict(found) == self.rows and len(found) == len(self.rows)
        assert dict(run(connection, "SELECT id, v FROM t FORCE INDEX (v) WHERE v >= 0")) == self.rows


class Instance:
    def __init__(self, directory, *options, like=None):
        os.makedirs(directory)
        self.server = Server(str(directory), SIZES + list(options))
        self.volume = f"{directory}/data/terrace"
        if like:  # quicker than making a data directory
            like.server.stop()
            shutil.copytree(f"{like.server.directory}/data", f"{directory}/data", ignore=shutil.ignore_patterns("terrace", "d", "ib*"))
        self.server.start()
        self.model, self.is_clean = Model(), False

    def fill(self, run):
        connection = self.server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(1000), KEY (v)) ENGINE=Terrace")
        self.model.put(connection, run, 1, ROWS, 100)
        return connection

    def connect(self):
        return self.server.connect(database="d")

    def file(self, name):
        return os.path.join(self.volume, name)

    def runs(self, run):
        return bool([row for row in run(self.server.connect(), "SHOW ENGINES") if row[0].upper() == "TERRACE"])

    def log_since(self, mark):
        with open(os.path.join(self.server.directory, "error.log"), errors="replace") as file:
            file.seek(mark)
            return file.read()

    def mark(self):
        return os.path.getsize(os.path.join(self.server.directory, "error.log"))

    def starts_not(self, run):
        """The server lives, the engine does not; what it says."""
        mark = self.mark()
        self.server.start()
        assert not self.runs(run), "the engine runs on a damaged volume"
        said = [line for line in self.log_since(mark).splitlines() if "Terrace: the engine can't start" in line]
        self.server.kill9()
        assert len(said) == 1 and "[ERROR]" in said[0], said
        return said[0]


@pytest.fixture(scope="module")
def instances(request, tmp_path_factory):
    """Two instances with the same table: one for all that damage it and put it right again, and another."""
    if request.config.getoption("--engine") == "InnoDB":
        pytest.skip("Terrace's own")
    one = Instance(tmp_path_factory.mktemp("one") / "server")
    one.fill(run_statement)
    both = [one, Instance(tmp_path_factory.mktemp("other") / "server", like=one)]
    both[1].model.put(both[1].fill(run_statement), run_statement, 1, ROWS, 5000)
    both[1].server.stop()
    yield both
    for instance in both:
        end(instance.server)


@pytest.fixture
def one(instances):
    """It runs."""
    instances[0].server.start()
    instances[0].is_clean = False
    return instances[0]


@pytest.fixture
def stopped(instances):
    """Stopped cleanly, everything on the volume; whole again afterwards, and not running."""
    one = instances[0]
    if not one.is_clean:
        one.server.start()
        one.server.stop()
    copy = f"{one.volume}.copy"
    shutil.copytree(one.volume, copy)
    yield one
    one.server.kill9()
    shutil.rmtree(one.volume)
    os.rename(copy, one.volume)
    one.is_clean = True


def flip(path, at, bit=3):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def blocks(path):
    """(sequence, place) of every log block that looks like one."""
    found = []
    with open(path, "rb") as file:
        for place in range(os.path.getsize(path) // BLOCK):
            block = file.read(BLOCK)
            if block[4:8] == b"TLG2":
                found.append((struct.unpack_from("<Q", block, 24)[0], place * BLOCK))
    return sorted(found)


def scan_start(instance):
    """The log block at which recovery begins."""
    data = open(instance.file("superblock"), "rb").read()
    copies = [(struct.unpack_from("<Q", data, at + 56)[0], struct.unpack_from("<Q", data, at + 128)[0]) for at in (0, BLOCK)]
    return max(copies)[1]


def blocks_above(instance):
    start = scan_start(instance)
    return [(sequence, place) for sequence, place in blocks(instance.file("log.0")) if sequence >= start]


def error_code(connection, run, sql):
    try:
        return run(connection, sql)
    except pymysql.err.MySQLError as error:
        return error.args[0]


def test_a_second_server_on_a_running_volume_is_refused(one, instances, run):
    second = instances[1]
    own = second.server.options
    second.server.options = own + [f"--terrace-volume-path={one.volume}"]
    said = second.starts_not(run)
    second.server.options = own
    assert f"the volume {one.volume} is in use: another instance runs on it" in said, said
    one.model.put(one.connect(), run, 1, 10, 3)
    one.model.check(one.connect(), run)


def test_garbage_behind_the_last_record_ends_the_log(one, run):
    connection = one.connect()
    one.model.put(connection, run, 20, 60, 7)
    run(connection, "BEGIN")
    run(connection, "DELETE FROM t")
    one.server.kill9()
    newest, place = blocks(one.file("log.0"))[-1]
    with open(one.file("log.0"), "r+b") as file:
        size = os.path.getsize(one.file("log.0"))
        for after in range(1, 30):
            file.seek((place + after * BLOCK) % size)
            file.write(random.Random(after).randbytes(BLOCK))
    one.server.start()
    assert one.runs(run)
    one.model.check(one.connect(), run)
    assert run(one.connect(), "CHECK TABLE t")[0][3] == "OK"


def test_a_flipped_bit_in_the_middle_of_the_log_is_reported_as_damage(one, run):
    above, connection = [], one.connect()
    while len(above) < 60:  # a checkpoint may have passed it all
        one.model.put(connection, run, 61, 260, 11)
        above = blocks_above(one)
    # What the last write has could be a torn one. The next one's blocks say that those before were durable.
    before = set(blocks_above(one))
    one.model.put(connection, run, 20, 60, 7)
    one.server.kill9()
    above = [block for block in blocks_above(one) if block in before]
    sequence, place = above[len(above) // 2]
    flip(one.file("log.0"), place + 1000)
    said = one.starts_not(run)
    assert "corrupt" in said and f"block {sequence} of log.0" in said, said
    flip(one.file("log.0"), place + 1000)
    one.server.start()
    one.model.check(one.connect(), run)


def test_a_flipped_bit_in_a_page_is_an_error_where_it_is_needed_and_nowhere_else(stopped, run):
    text, path = b"row-000300", stopped.file("pages")
    data = open(path, "rb").read()
    at = data.find(text)
    assert at > 0
    hurt = set()
    while at >= 0:  # old images too, but not what undo has of it
        space, page = struct.unpack_from("<II", data, at // PAGE * PAGE + 8)
        if space >= FIRST_USER:
            flip(path, at + 2)
            hurt.add(f"{space}:{page}")
        at = data.find(text, at + 1)
    mark = stopped.mark()
    stopped.server.start()
    connection = stopped.connect()
    assert error_code(connection, run, "SELECT v FROM t WHERE id = 300") in (1034, 1194)
    assert error_code(connection, run, "UPDATE t SET v = 0 WHERE id = 300") in (1034, 1194)
    assert error_code(connection, run, "SELECT SUM(LENGTH(pad)) FROM t") in (1034, 1194)
    model = stopped.model.rows
    for i in list(range(1, 250, 10)) + list(range(350, ROWS, 10)):
        assert run(connection, f"SELECT v FROM t WHERE id = {i}") == [(model[i],)]
    assert dict(run(connection, "SELECT id, v FROM t FORCE INDEX (v) WHERE v >= 0")) == model
    rows = run(connection, "CHECK TABLE t")
    assert rows[-1][3] != "OK" and any(f"page {name} on volume is corrupt" in row[3] for row in rows for name in hurt), (rows, hurt)
    run(connection, "CREATE TABLE u (id INT PRIMARY KEY, v INT) ENGINE=Terrace")  # other tables go on
    run(connection, "INSERT INTO u SELECT seq, seq FROM seq_1_to_500")
    assert run(connection, "SELECT SUM(v) FROM u") == [(125250,)]
    assert any(f"page {name} on volume is corrupt" in stopped.log_since(mark) for name in hurt)


def test_a_file_of_another_instance_is_refused(stopped, instances, run):
    for name, named in (("log.0", "log.0"), ("map", "map"), ("superblock", "log.0"), ("pages", "on volume")):
        shutil.move(stopped.file(name), stopped.file("own"))
        shutil.copy(instances[1].file(name), stopped.file(name))
        if name == "pages":
            mark = stopped.mark()
            stopped.server.start()
            if stopped.runs(run):
                # The few pages that a start reads are the same in both. Those of the table are not.
                assert isinstance(error_code(stopped.connect(), run, "SELECT SUM(LENGTH(pad)), SUM(v) FROM t"), int)
                assert "on volume is corrupt" in stopped.log_since(mark)
                return
            stopped.server.kill9()
        said = stopped.starts_not(run)
        # If the map is damaged, a page that it points to may be found wrong before the map itself.
        assert "corrupt: " in said and (named in said or name == "map" and "on volume" in said), said
        shutil.move(stopped.file("own"), stopped.file(name))
    # Looking at the wrong files changed none of the right ones.
    stopped.server.start()
    stopped.model.check(stopped.connect(), run)


def damage(path, rng):
    """Damages the file in one of several ways; returns how."""
    size = os.path.getsize(path)
    data = open(path, "rb").read()
    used = [at for at in range(0, size, 512) if any(data[at : at + 512])]
    how = rng.choice(["flips", "cut", "zeros", "garbage", "swap", "removed"])
    if how == "flips":
        for _ in range(3):
            flip(path, rng.choice(used) + rng.randrange(512), rng.randrange(8))
    elif how == "cut":
        os.truncate(path, rng.randrange(size) // 512 * 512)
    elif how == "removed":
        os.remove(path)
    else:
        with open(path, "r+b") as file:
            at, to = rng.choice(used), rng.choice(used)
            file.seek(at)
            file.write({"zeros": bytes(4096), "garbage": rng.randbytes(4096), "swap": data[to : to + 4096]}[how][: size - at])
    return how


@pytest.mark.parametrize("seed", range(FLIPS))
def test_any_damage_is_refused_or_an_error_or_harmless(stopped, seed, run):
    rng = random.Random(seed * 7 + FLIPS)
    name = rng.choice(["log.0", "map", "superblock", "pages"])
    how = damage(stopped.file(name), rng)
    mark = stopped.mark()
    stopped.server.start()
    if not stopped.runs(run):
        said = stopped.log_since(mark)
        assert "Terrace: the engine can't start: " in said and "internal error" not in said, (name, how, said[-2000:])
        return
    if name == "superblock" and how == "removed":
        pytest.fail("a volume without its superblock was taken for a new one")
    connection, model = stopped.server.connect(), stopped.model.rows
    for sql in ("SELECT id, v FROM d.t FORCE INDEX (PRIMARY) WHERE pad > ''", "SELECT id, v FROM d.t FORCE INDEX (v) WHERE v >= 0"):
        found = error_code(connection, run, sql)
        assert found in (1034, 1194, 1296, 1932) if isinstance(found, int) else dict(found) == model, (name, how, sql, found)
