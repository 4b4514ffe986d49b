"""Power loss on a real file system: the volume's file system is cut off under load by its shutdown ioctl, mounted again
and recovered. Acknowledged commits are found, and the binary log, on the same volume, holds the same transactions. So are the
objects of a store in a directory of that file system. The controls, with durability or the store's syncs off, must lose something.

TERRACE_POWER_CYCLES: cycles for each file system (default 1).
"""

import fcntl
import os
import random
import shutil
import struct
import subprocess
import threading
import time

import pymysql
import pytest
from conftest import ROOT, Server, binlog_options, contents, end, replayed, wait_until

CYCLES = int(os.environ.get("TERRACE_POWER_CYCLES", "1"))
WRITERS = 4
# _IOR('X', 125, u32) on ext4 and xfs; 2: without writing the journal first.
SHUTDOWN, NOT_EVEN_THE_JOURNAL = 0x8004587D, 2


def run_command(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)


class Volume:
    """A file system of its own on a loop device."""

    def __init__(self, kind, directory):
        self.image, self.at = os.path.join(directory, "image"), os.path.join(directory, "mount")
        os.makedirs(self.at)
        with open(self.image, "wb") as file:
            file.truncate(1 << 30)
        program = shutil.which(f"mkfs.{kind}") or pytest.skip(f"there is no mkfs.{kind} here")
        made = run_command(program, "-q", self.image)
        assert made.returncode == 0, made.stdout
        mounted = self.mount()
        if mounted.returncode:
            pytest.skip(f"this machine does not allow mounting a {kind} on a loop device: {mounted.stdout.strip()}")

    def mount(self):
        return run_command("mount", "-o", "loop", self.image, self.at)

    def cut(self):
        handle = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", NOT_EVEN_THE_JOURNAL))
        finally:
            os.close(handle)

    def unmount(self):
        # The kernel closes the files of a killed process' rings a while after its end.
        until = time.monotonic() + 30
        while (gone := run_command("umount", self.at)).returncode and "busy" in gone.stdout and time.monotonic() < until:
            time.sleep(0.05)
        return gone

    def again(self):
        gone = self.unmount()
        assert gone.returncode == 0, gone.stdout
        mounted = self.mount()
        assert mounted.returncode == 0, mounted.stdout

    def end(self):
        self.unmount()


@pytest.fixture(params=["ext4", "xfs"])
def volume(request, tmp_path, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    one = Volume(request.param, str(tmp_path))
    yield one
    one.end()


def start(volume, tmp_path, *more):
    directory = str(tmp_path / "server")
    os.makedirs(directory, exist_ok=True)
    server = Server(directory, ["--terrace-memory=16777216", "--terrace-log=16777216", "--terrace-object-buffer=268435456",
                                f"--terrace-volume-path={volume.at}/terrace", *more])
    server.start()
    return server


def cut_under_load(server, volume, run, acknowledged, next_n, seconds, more=None):
    """Writes, cuts the power, starts again. `more` works beside the writers: it is called with a connection, again and again."""
    stop = threading.Event()

    def go_on(one, *arguments):
        try:
            mine = server.connect(database="d")
            mine.autocommit(False)
            while not stop.is_set():
                one(mine, *arguments)
        except pymysql.err.MySQLError:
            pass  # the volume is gone

    def work(mine, who):
        n = next_n[who]
        next_n[who] = n + 1  # whatever comes of the commit, the number is used
        amount = random.randint(1, 9)
        run(mine, "UPDATE account SET v = v - %s WHERE id = %s", (amount, 1 + who))
        run(mine, "INSERT INTO ledger VALUES (%s, %s, REPEAT('x', %s))", (who, n, n % 700))
        run(mine, "UPDATE account SET v = v + %s WHERE id = %s", (amount, 5 + who))
        mine.commit()
        acknowledged.add((who, n))

    threads = [threading.Thread(target=go_on, args=(work, who)) for who in range(WRITERS)]
    threads += [threading.Thread(target=go_on, args=(more,))] if more else []
    [thread.start() for thread in threads]
    enough = len(acknowledged) + 25
    time.sleep(seconds)
    wait_until(lambda: len(acknowledged) > enough or not any(thread.is_alive() for thread in threads))
    # Answers given while the file system is being shut down do not count: a machine without power gives none, but an fsync
    # of the server's binary log that waits while the journal's transaction is aborted may return success.
    # Shown without Terrace: under ext4's shutdown a plain program that appends and calls fdatasync loses acknowledged
    # writes too, in 21 of 150 cuts, if answers after the beginning of the cut are counted.
    counted = set(acknowledged)
    volume.cut()
    stop.set()
    server.kill9()
    [thread.join() for thread in threads]
    acknowledged &= counted
    volume.again()
    server.start()


def one_cycle(server, volume, run, acknowledged, next_n, seconds, more=None):
    """Writes, cuts the power, starts again. Returns the rows found."""
    cut_under_load(server, volume, run, acknowledged, next_n, seconds, more)
    connection = server.connect(database="d")
    found = set(run(connection, "SELECT who, n FROM ledger"))
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM account") == [(8, 8000)], "a transaction is there in part"
    for row in run(connection, "CHECK TABLE account, ledger"):
        assert row[3] == "OK", row
    return found


def prepare(server, run):
    connection = server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, "CREATE TABLE d.account (id INT PRIMARY KEY, v INT NOT NULL) ENGINE=Terrace")
    run(connection, "CREATE TABLE d.ledger (who INT, n INT, note VARCHAR(1000), PRIMARY KEY (who, n), KEY (n)) ENGINE=Terrace")
    run(connection, "INSERT INTO d.account SELECT seq, 1000 FROM seq_1_to_8")


def test_acknowledged_commits_survive_power_loss(volume, tmp_path, run):
    server = start(volume, tmp_path)
    try:
        prepare(server, run)
        acknowledged, next_n = set(), [0] * WRITERS
        for cycle in range(CYCLES):
            before = len(acknowledged)
            found = one_cycle(server, volume, run, acknowledged, next_n, 1 + 2 * random.random())
            assert len(acknowledged) > before + 20, "nothing was written: this proves little"
            assert acknowledged <= found, f"cycle {cycle}: lost {sorted(acknowledged - found)[:5]}"
    finally:
        end(server)


def test_the_binary_log_and_the_engine_hold_the_same_transactions_after_power_loss(volume, tmp_path, run):
    server = start(volume, tmp_path, *binlog_options(volume.at))
    try:
        prepare(server, run)
        acknowledged, next_n = set(), [0] * WRITERS
        for cycle in range(CYCLES):
            before = len(acknowledged)
            found = one_cycle(server, volume, run, acknowledged, next_n, 1 + 2 * random.random())
            assert len(acknowledged) > before + 20, "nothing was written: this proves little"
            assert acknowledged <= found, f"cycle {cycle}: lost {sorted(acknowledged - found)[:5]}"
        tables = ("account", "ledger")
        assert replayed(volume.at, "d", tables) == contents(server.connect(database="d"), tables)
    finally:
        end(server)


def test_without_durability_the_simulated_power_loss_loses_commits(volume, tmp_path, run):
    server = start(volume, tmp_path, "--terrace-flush-log-at-trx-commit=0")
    try:
        prepare(server, run)
        server.connect().cursor().execute("SET GLOBAL terrace_flush_log_at_trx_commit = 0")
        acknowledged, next_n = set(), [0] * WRITERS
        for _ in range(5):
            found = one_cycle(server, volume, run, acknowledged, next_n, 1)
            if acknowledged - found:
                return
            acknowledged &= found
        pytest.fail("five cuts without durability lost nothing: the harness does not bite")
    finally:
        end(server)


def test_power_loss_loses_written_commits_except_those_that_a_later_sync_covers(volume, tmp_path, run):
    """Transactions stay whole, only the last ones of each writer are lost, and FLUSH LOGS, or a commit that waits, makes all earlier ones durable."""
    server = start(volume, tmp_path, "--terrace-flush-log-at-trx-commit=2")
    try:
        prepare(server, run)
        acknowledged, next_n, synced, counted, lost = set(), [0] * WRITERS, set(), set(), False
        cut = volume.cut

        def count_and_cut():
            counted.update(synced)  # what is answered while it is cut does not count, as above
            cut()

        volume.cut = count_and_cut
        for cycle in range(5):
            covers = [lambda one: run(one, "FLUSH ENGINE LOGS"), lambda one: run(one, "CREATE OR REPLACE TABLE d.made (a INT) ENGINE=Terrace")][cycle % 2]

            def sync(one, covers=covers):
                before = set(acknowledged)
                covers(one)
                synced.update(before)
                time.sleep(0.2)

            found = one_cycle(server, volume, run, acknowledged, next_n, 0.5 + random.random(), sync)
            synced &= counted
            assert len(counted) > 20 and counted <= found, f"cycle {cycle}: lost {sorted(counted - found)[:5]}"
            for who in range(WRITERS):
                gone = [n for w, n in acknowledged - found if w == who]
                assert not gone or min(gone) > max((n for w, n in found if w == who), default=-1), f"cycle {cycle}: a gap in the rows found"
            lost |= bool(acknowledged - found)
            acknowledged &= found
        assert lost, "five cuts lost nothing: were commits synced?"
    finally:
        end(server)


COLD = 6000


def start_with_store(volume, tmp_path, run):
    """A server whose object store is on the volume's file system, with a table most of which is only in the store."""
    server = start(volume, tmp_path, "--terrace-memory=10485760", "--terrace-log=8388608", "--terrace-object-buffer=4194304",
                   f"--terrace-object={volume.at}/objects", "--terrace-sink-after-ms=200")
    prepare(server, run)
    connection = server.connect(database="d")
    run(connection, "CREATE TABLE cold (id INT PRIMARY KEY, v INT, pad VARCHAR(1000)) ENGINE=Terrace")
    for first in range(1, COLD + 1, 1500):
        run(connection, f"INSERT INTO cold SELECT seq, 1, REPEAT('x', 900) FROM seq_{first}_to_{first + 1499}")
    far = "SELECT SUM(PAGES_OBJECT) > 0.9 * SUM(PAGES) FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 'cold'"
    wait_until(lambda: run(connection, far) == [(1,)])
    return server


def change_cold(run):
    """Moves something between rows of cold blocks, which are sunk again."""
    def change(connection):
        one, other = random.sample(range(1, COLD + 1), 2)
        run(connection, "UPDATE cold SET v = v - 1 WHERE id = %s", (one,))
        run(connection, "UPDATE cold SET v = v + 1 WHERE id = %s", (other,))
        connection.commit()
    return change


def cold_is_whole(server, run):
    """The rows of the cold table, and the result of CHECK TABLE."""
    connection = server.connect(database="d")
    try:
        found = run(connection, "SELECT COUNT(*), SUM(v), MIN(LENGTH(pad)) FROM cold")
        said = [row[3] for row in run(connection, "CHECK TABLE cold")]
    except pymysql.err.MySQLError as error:
        return False, error
    return (found, said) == ([(COLD, COLD, 900)], ["OK"]), (found, said)


def test_objects_in_a_directory_survive_power_loss(volume, tmp_path, run):
    server = start_with_store(volume, tmp_path, run)
    try:
        acknowledged, next_n = set(), [0] * WRITERS
        for cycle in range(CYCLES):
            found = one_cycle(server, volume, run, acknowledged, next_n, 1 + 2 * random.random(), change_cold(run))
            assert acknowledged <= found, f"cycle {cycle}: lost {sorted(acknowledged - found)[:5]}"
            whole, what = cold_is_whole(server, run)
            assert whole, what
    finally:
        end(server)


def test_without_the_stores_syncs_objects_are_lost(volume, tmp_path, run, monkeypatch):
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler here")
    library = str(tmp_path / "unsynced.so")
    made = run_command(compiler, "-O1", "-shared", "-fPIC", "-o", library, os.path.join(ROOT, "tests", "sql", "unsynced.c"), "-ldl")
    assert made.returncode == 0, made.stdout
    monkeypatch.setenv("LD_PRELOAD", library)
    monkeypatch.setenv("TERRACE_UNSYNCED", "*/objects/*/*")  # the object `epoch` stays: whose the store is shall be no question
    server = start_with_store(volume, tmp_path, run)
    try:
        for _ in range(5):
            cut_under_load(server, volume, run, set(), [0] * WRITERS, 0.5, change_cold(run))
            whole, what = cold_is_whole(server, run)
            print(what)
            if not whole:
                return
        pytest.fail("five cuts lost no object that was not synced: the harness does not bite")
    finally:
        end(server)
