"""Archiving the log, and bringing a backup to a moment (`terrace restore --at`): the volume is lost, and the store has all that is needed."""

import os
import shutil
import time

from conftest import binlog_options, contents, end, replayed, run, wait_until
from test_attach import notes
from test_backup_store import named, server_on, terrace
from test_copy import take_definitions, volume_of
from test_object import store  # noqa: F401: a fixture

ROWS = 24


def number(connection, name):
    return int(run(connection, f"SHOW STATUS LIKE 'Terrace_{name}'")[0][1])


def now_ms():
    return time.time_ns() // 1_000_000


def utc(ms):
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03}"


def commit_rows(connection, first, count):
    """A row in each commit, and others with large values and many rows. Returns a moment after each commit and before the next, in milliseconds."""
    moments = []
    for n in range(first, first + count):
        run(connection, "BEGIN")
        run(connection, f"INSERT INTO d.t VALUES ({n}, REPEAT('a', 200)), ({n + 1000000}, REPEAT(CHAR(65 + {n} % 26), {100000 if n % 4 == 0 else 10}))")
        if n % 5 == 0:
            run(connection, f"UPDATE d.t SET pad = REPEAT('u', 300) WHERE id >= 0 AND id < {n}")
        run(connection, "COMMIT")
        moment = now_ms()
        wait_until(lambda: now_ms() > moment + 2)  # so that the moment lies between the two
        moments.append(moment + 1)
    return moments


def archived_until(connection, moment):
    wait_until(lambda: number(connection, "archive_until_ms") >= moment)


def lose(server):
    """The volume is gone; the store stays."""
    server.kill9()
    shutil.rmtree(volume_of(server))


def rows(connection):
    return run(connection, "SELECT id, LENGTH(pad), MD5(pad) FROM d.t ORDER BY id")


def test_a_lost_volume_comes_back_as_of_any_moment(store, tmp_path):  # noqa: F811
    archive = ["--terrace-archive-interval-ms=200"]
    original = server_on(store, "live", *archive, *binlog_options(str(tmp_path)))
    second, third = server_on(store, "restored"), server_on(store, "latest")
    backups, live = named(store, "backups", "repository"), named(store, "live")
    log = named(store, "live", "archive")
    try:
        original.start()
        connection = original.connect()
        run(connection, "CREATE DATABASE d")
        run(connection, "CREATE TABLE d.t (id INT PRIMARY KEY, pad MEDIUMTEXT, KEY (pad(20))) ENGINE=Terrace")
        run(connection, "CREATE TABLE d.bulk (id INT PRIMARY KEY, pad VARCHAR(200)) ENGINE=Terrace")
        commit_rows(connection, 0, 8)
        copy = str(tmp_path / "copy")
        run(connection, f"SET GLOBAL terrace_copy_to = '{copy}'")
        take_definitions(original, second)
        take_definitions(original, third)
        before = now_ms()
        terrace("backup", "create", "--volume", copy, "--name", "monday", *live, *backups)
        # A load that would bypass the log, a transaction that never commits, and rows.
        run(connection, "INSERT INTO d.bulk SELECT seq, REPEAT('b', 150) FROM d.seq_1_to_20000")
        other = original.connect()
        run(other, "BEGIN")
        run(other, "INSERT INTO d.t VALUES (-1, REPEAT('never', 30000))")
        half = commit_rows(connection, 100, ROWS // 2)
        expected = rows(connection)
        moment = half[-1]
        commit_rows(connection, 200, ROWS // 2)
        last = now_ms()
        at_last = rows(connection)
        archived_until(connection, last)
        assert number(connection, "archive_gaps") == 0 and number(connection, "archive_stretches") > 1
        assert number(connection, "bypass_pages") == 0
        said = notes(connection)["archive"]
        assert said.startswith("the log from 20") and "archive_trouble" not in notes(connection)
        lose(original)

        # Where nothing leads to is refused, with what is possible.
        volume = volume_of(second)
        to = ["--volume", volume, *named(store, "restored"), *backups, *log]
        for point in ("2001-01-01 00:00:00", "2101-01-01 00:00:00", "12"):
            refused = terrace("restore", "--at", point, *to, code=2)
            assert "no backup can be brought to that point" in refused and "backup monday from" in refused, refused
        assert "is no time" in terrace("restore", "--at", "yesterday", *to, code=2)
        nothing = named(store, "backups", "archive")
        assert "has no archived log" in terrace("restore", "--at", utc(moment), "--volume", volume, *named(store, "restored"), *backups, *nothing, code=2)

        done = terrace("restore", "--at", utc(moment), *to)
        assert done["name"] == "monday" and half[-1] - 1000 < done["time_ms"] <= moment and done["rolled_back"] >= 1, done
        assert done["time_ms"] >= half[-2]
        code, report = second.check(*named(store, "restored"))
        assert code == 0, report
        second.start()
        restored = second.connect()
        assert rows(restored) == expected
        assert run(restored, "SELECT COUNT(*) FROM d.bulk") == [(20000,)]
        for table in ("t", "bulk"):
            assert run(restored, f"CHECK TABLE d.{table}")[-1][3] == "OK"
        run(restored, "INSERT INTO d.t VALUES (-1, 'goes on')")
        second.restart()
        assert len(rows(second.connect())) == len(expected) + 1

        # As far as the archive goes.
        done = terrace("restore", "--at", "latest", "--volume", volume_of(third), *named(store, "latest"), *backups, *log)
        assert done["time_ms"] >= before
        third.start()
        assert rows(third.connect()) == at_last
        # The binary log of the server that was lost says the same.
        assert contents(third.connect(database="d"), ["t", "bulk"]) == replayed(str(tmp_path), "d", ["t", "bulk"])
    finally:
        end(original)
        end(second)
        end(third)
