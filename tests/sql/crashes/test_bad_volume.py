"""A full volume: statements that need space fail with the disk-full error, all others work, and nothing acknowledged is lost."""

import subprocess
import time

import pymysql
import pytest
from conftest import Server, end

FULL = 1114
ROW = 3000  # bytes of a row, about


class Full:
    """A server whose volume is small, a table on it and its model. `kind`: what is full, the object buffer that was
    configured, or the file system under it."""

    def __init__(self, kind, tmp_path, run):
        self.kind, self.run, self.place = kind, run, tmp_path / "volume"
        self.place.mkdir()
        options = ["--innodb=OFF", "--default-storage-engine=Aria", "--terrace-memory=8388608", "--terrace-log=4194304"]
        self.ballast = self.place / "ballast"
        if kind == "device":
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", self.place], capture_output=True, text=True)
            if mounted.returncode:
                pytest.skip(f"this machine does not allow mounting a file system: {mounted.stderr.strip()}")
            self.ballast.write_bytes(bytes(4 << 20))
        self.small = options + [f"--terrace-volume-path={self.place}/terrace"]
        self.server = Server(str(tmp_path), self.small + (["--terrace-object-buffer=6291456"] if kind == "buffer" else []))
        self.server.start()
        self.rows = {}

    def connect(self):
        return self.server.connect(database="d")

    def make_room(self):
        """From outside: the file system gets room, or the object buffer a larger size at a restart."""
        if self.kind == "device":
            self.ballast.unlink()
        else:
            self.server.stop()
            self.server.options = self.small + ["--terrace-object-buffer=33554432"]
            self.server.start()

    def insert(self, connection, first, last):
        self.run(connection, f"INSERT INTO t SELECT seq, seq % 100, REPEAT(CHAR(97 + seq % 26), {ROW}) FROM seq_{first}_to_{last}")
        self.rows.update((i, i % 100) for i in range(first, last + 1))

    def fill(self, connection, i):
        """Inserts until the volume is full. Returns the error, after how long it came, and the next row."""
        self.run(connection, "BEGIN")  # one commit, for speed
        pending = {}
        while True:
            started = time.time()
            try:
                self.run(connection, f"INSERT INTO t VALUES ({i}, {i % 100}, REPEAT(CHAR({97 + i % 26}), {ROW}))")
            except pymysql.err.MySQLError as error:
                self.run(connection, "COMMIT")  # the statement was rolled back, the transaction is whole
                self.rows.update(pending)
                return error.args[0], time.time() - started, i
            pending[i] = i % 100
            i += 1
            assert len(pending) < 20000, "it never fills"

    def check(self, connection):
        assert dict(self.run(connection, f"SELECT id, v FROM t FORCE INDEX (PRIMARY) WHERE pad = REPEAT(CHAR(97 + id % 26), {ROW})")) == self.rows
        assert dict(self.run(connection, "SELECT id, v FROM t FORCE INDEX (v) WHERE v >= 0")) == self.rows

    def end(self):
        end(self.server)
        if self.kind == "device":
            subprocess.run(["umount", self.place], check=True)


@pytest.fixture(params=["buffer", "device"])
def volume(request, tmp_path, run, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    one = Full(request.param, tmp_path, run)
    yield one
    one.end()


def until_it_works(what, seconds=120):
    until = time.time() + seconds
    while True:
        try:
            return what()
        except pymysql.err.MySQLError as error:
            assert error.args[0] == FULL and time.time() < until, error
            time.sleep(0.1)


def test_a_full_volume_refuses_growth_and_nothing_else(volume, run):
    connection = volume.server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(4000), KEY (v)) ENGINE=Terrace")
    run(connection, "CREATE TABLE other (id INT PRIMARY KEY, pad VARCHAR(4000)) ENGINE=Terrace")
    run(connection, f"INSERT INTO other SELECT seq, REPEAT('o', {ROW}) FROM seq_1_to_100")
    run(connection, "CREATE TABLE small (id INT PRIMARY KEY, pad VARCHAR(1000)) ENGINE=Terrace")
    run(connection, "INSERT INTO small SELECT seq, REPEAT('o', 290 + seq % 17) FROM seq_1_to_1000")
    run(connection, "UPDATE small SET pad = LEFT(pad, 100) WHERE id % 3 = 0")
    code, seconds, i = volume.fill(connection, 1)
    assert code == FULL and seconds < 45, (code, seconds)
    assert "full" in [row for row in run(connection, "SHOW WARNINGS") if row[0] == "Warning"][0][2]
    volume.check(connection)
    # Again and again: neither is a row half there, nor do failures use anything up.
    for _ in range(3):
        with pytest.raises(pymysql.err.MySQLError) as error:
            run(connection, f"INSERT INTO t SELECT seq, 1, REPEAT('x', {ROW}) FROM seq_100001_to_100050")
        assert error.value.args[0] == FULL
    # What does not grow goes on: updates in place, rollback, reads, other sessions.
    run(connection, "UPDATE t SET pad = REPEAT(CHAR(97 + id % 26), 3000) WHERE id BETWEEN 5 AND 9")
    # Rows grow into what others of their pages have left: pages are repacked, none is made.
    run(connection, "UPDATE small SET pad = RPAD(pad, 295, 'o') WHERE id % 6 = 0")
    assert run(connection, "SELECT COUNT(*), SUM(LENGTH(pad) = 295) FROM small WHERE id % 6 = 0") == [(166, 166)]
    run(connection, "BEGIN")
    run(connection, "UPDATE t SET v = v + 1 WHERE id <= 20")
    run(connection, "DELETE FROM t WHERE id BETWEEN 21 AND 40")
    run(connection, "ROLLBACK")
    volume.check(connection)
    # kill -9 in it, with a transaction under way.
    run(connection, "BEGIN")
    run(connection, "DELETE FROM t WHERE id <= 30")
    volume.server.kill9()
    volume.server.start()
    connection = volume.connect()
    volume.check(connection)
    # DELETE makes room for rows of the table, DROP and TRUNCATE for all.
    for first in range(1, 200, 50):
        until_it_works(lambda: run(connection, f"DELETE FROM t WHERE id BETWEEN {first} AND {first + 49}"))
    volume.rows = {k: v for k, v in volume.rows.items() if k > 200}
    until_it_works(lambda: volume.insert(connection, 50000, 50050))
    until_it_works(lambda: run(connection, "TRUNCATE other"))
    until_it_works(lambda: volume.insert(connection, 60000, 60020))
    volume.check(connection)
    code, seconds, i = volume.fill(connection, 70000)
    assert code == FULL
    # A clean stop does not wait for room that never comes: a wait for it takes a minute.
    started = time.time()
    volume.server.stop()
    assert time.time() - started < 55
    volume.server.start()
    # Room from outside: writing goes on.
    volume.make_room()
    connection = volume.connect()
    until_it_works(lambda: volume.insert(connection, 80000, 80300))
    volume.check(connection)
    volume.server.kill9()
    volume.server.start()
    connection = volume.connect()
    volume.check(connection)
    assert [row[3] for row in run(connection, "CHECK TABLE t, other, small")] == ["OK", "OK", "OK"]


def test_a_large_insert_that_fails_leaves_room_to_rebuild_its_table(volume, run):
    connection = volume.server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(4000), KEY (v)) ENGINE=Terrace")
    volume.insert(connection, 1, 300)
    # In the order of the keys, and in none.
    for key in ("100000 + seq", "100000 + seq * 7919 % 99991"):
        with pytest.raises(pymysql.err.MySQLError) as error:
            run(connection, f"INSERT INTO t SELECT {key}, 1, REPEAT('x', {ROW}) FROM seq_1_to_20000")
        assert error.value.args[0] == FULL
        assert [row[3] for row in run(connection, "OPTIMIZE TABLE t")][-1] == "OK", run(connection, "SHOW WARNINGS")
        volume.check(connection)
    assert [row[3] for row in run(connection, "CHECK TABLE t EXTENDED")] == ["OK"]


def test_ddl_that_finds_no_room_leaves_the_old_table_and_frees_its_pages(volume, run):
    connection = volume.server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(4000), KEY (v)) ENGINE=Terrace")
    code, _, i = volume.fill(connection, 1)
    assert code == FULL
    tables = run(connection, "SHOW TABLES")
    for statement in ("ALTER TABLE t FORCE", "ALTER TABLE t ADD KEY wide (pad(700))", "ALTER TABLE t ADD n INT DEFAULT 1, ALGORITHM=COPY", "CREATE TABLE u ENGINE=Terrace SELECT * FROM t") * 2:
        with pytest.raises(pymysql.err.MySQLError) as error:
            run(connection, statement)
        assert error.value.args[0] == FULL, (statement, error.value)
        assert run(connection, "SHOW TABLES") == tables, statement
        volume.check(connection)
    definition = run(connection, "SHOW CREATE TABLE t")
    assert "wide" not in definition[0][1] and "`n`" not in definition[0][1]
    # After a kill, too: and then with room they go.
    volume.server.kill9()
    volume.server.start()
    volume.make_room()
    if volume.kind == "device":  # a copy needs as much as the table
        subprocess.run(["mount", "-o", "remount,size=64m", volume.place], check=True)
    connection = volume.connect()
    until_it_works(lambda: run(connection, "ALTER TABLE t FORCE"))
    until_it_works(lambda: run(connection, "ALTER TABLE t ADD KEY wide (pad(700))"))
    volume.check(connection)
    assert [row[3] for row in run(connection, "CHECK TABLE t EXTENDED")] == ["OK"]
