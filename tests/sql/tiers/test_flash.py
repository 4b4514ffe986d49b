"""Flash holds only copies: if it is lost, or an old one is restored, no row is lost and no stale row is served. After a restart it is warm."""

import os
import shutil
import time

import pytest
from conftest import wait_until


@pytest.fixture
def flash_server(tmp_path):
    from conftest import end, private

    flash = tmp_path / "flash"
    server = private(["--terrace-memory=8388608", f"--terrace-flash-path={flash}", "--terrace-flash=134217728"])
    yield server, flash
    end(server)


def status(connection, run, name):
    text = run(connection, "SHOW ENGINE TERRACE STATUS")[0][2]
    return int(dict(line.split(" ", 1) for line in text.strip().splitlines())[name])


def warm(connection, run):
    wait_until(lambda: status(connection, run, "flash_pages_restored") >= 500)
    before = status(connection, run, "reads_flash")
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(20000, 200010000)]
    assert status(connection, run, "flash_pages_restored") >= 500
    assert status(connection, run, "reads_flash") > before + 200


def test_flash_may_vanish_or_come_back_old(flash_server, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    server, flash = flash_server
    connection = server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(1000)) ENGINE={engine}")
    for start in range(1, 20001, 2000):
        run(connection, f"INSERT INTO t SELECT seq, seq, REPEAT('x', 900) FROM seq_{start}_to_{start + 1999}")
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(20000, 200010000)]
    # Each page is used twice in memory before it leaves: reuse, so it is admitted.
    for _ in range(2):
        for at in range(1, 20000, 9):
            run(connection, "SELECT v FROM t WHERE id = %s", (at,))
    assert status(connection, run, "flash_pages_max") > 0
    assert status(connection, run, "flash_pages") > 0
    assert status(connection, run, "reads_flash") > 0, "flash must have served something, or this proves nothing"
    server.stop()
    old = f"{flash}.old"
    shutil.copytree(flash, old)

    server.start()
    connection = server.connect(database="d")
    # What flash had is served again, after an orderly end and after a crash.
    warm(connection, run)
    # The index is saved after two quiet seconds, on a busy machine later.
    for quiet in (3, 10, 40):
        time.sleep(quiet)
        server.kill9()
        server.start()
        connection = server.connect(database="d")
        until = time.time() + 20
        while not (saved := status(connection, run, "flash_pages_restored") >= 500) and time.time() < until:
            time.sleep(0.1)
        if saved:
            break
        for at in [*range(1, 20000, 9)] * 2:
            run(connection, "SELECT v FROM t WHERE id = %s", (at,))
    warm(connection, run)
    run(connection, "UPDATE t SET v = v + 1")
    assert run(connection, "SELECT SUM(v) FROM t") == [(200030000,)]
    server.stop()
    shutil.rmtree(flash)

    server.start()
    connection = server.connect(database="d")
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(20000, 200030000)]
    server.stop()
    shutil.rmtree(flash)
    os.rename(old, flash)

    server.start()
    connection = server.connect(database="d")
    # The old copies are there, or this proves nothing.
    wait_until(lambda: status(connection, run, "flash_pages_restored") >= 500)
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM t") == [(20000, 200030000)]
    assert run(connection, "CHECK TABLE t")[0][3] == "OK"
