"""The tests' own teardown: connections and locks that a failed test leaves open do not block the others. And the script that starts and stops servers."""

import os
import signal
import subprocess
import time

import pytest
from conftest import drop_database, end, private, run


def test_a_database_is_dropped_whatever_a_test_has_left_open(server, engine):
    first, second = server.connect(), server.connect()
    run(first, "CREATE DATABASE left_open")
    run(first, f"CREATE TABLE left_open.t (id INT PRIMARY KEY) ENGINE={engine}")
    run(first, "SET SESSION lock_wait_timeout = 86400")
    run(first, "USE left_open")
    run(first, "BEGIN")
    run(first, "INSERT INTO t VALUES (1)")
    run(second, "BEGIN")
    run(second, "SELECT * FROM left_open.t")  # its database is another
    since = time.monotonic()
    drop_database(server, "left_open", patience=1)
    assert time.monotonic() - since < 150
    assert run(server.connect(), "SHOW DATABASES LIKE 'left_open'") == []


def test_a_server_that_does_not_stop_is_killed(monkeypatch):
    one = private(["--terrace-memory=16777216"])
    process = int(open(f"{one.directory}/pid").read())

    def stuck():
        raise AssertionError("it did not end")

    monkeypatch.setattr(one, "stop", stuck)
    with pytest.raises(AssertionError):
        end(one)
    assert not os.path.exists(one.directory)
    for _ in range(600):
        try:
            state = open(f"/proc/{process}/stat").read().rsplit(")")[-1].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the server lives")


def test_a_server_killed_a_moment_ago_is_started_again(own_server):
    first = int(open(f"{own_server.directory}/pid").read())
    os.kill(first, signal.SIGKILL)  # not waited for
    own_server.start()
    assert int(open(f"{own_server.directory}/pid").read()) != first
    assert run(own_server.connect(), "SELECT 1") == [(1,)]


def test_a_process_that_reuses_a_dead_servers_id_is_not_stopped(own_server):
    own_server.kill9()
    other = subprocess.Popen(["sleep", "600"])
    try:
        with open(f"{own_server.directory}/pid", "w") as file:
            file.write(str(other.pid))
        own_server.stop()
        own_server.kill9()
        assert other.poll() is None
        own_server.start()
        assert run(own_server.connect(), "SELECT 1") == [(1,)]
    finally:
        other.kill()
        other.wait()
