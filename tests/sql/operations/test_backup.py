"""Copies of a running server's files. mariabackup would leave Terrace's rows out and still report success, so it is refused with the reason. A
snapshot of the file system that has both the data directory and the volume is a valid copy.
"""

import os
import shutil
import subprocess
import threading

import pymysql
import pytest
from conftest import ROOT, end, run
from test_power import run_command, volume  # noqa: F401: a fixture
from test_power_ddl import with_its_data


@pytest.fixture(scope="module")
def mariabackup():
    found = subprocess.run([os.path.join(ROOT, "scripts", "mariabackup.sh")], stdout=subprocess.PIPE, text=True, timeout=900).stdout.strip()
    return found or pytest.skip("mariabackup of the server's version is not in the package archive")


def copied(program, server, to, *options):
    """Whether mariabackup says that it has made a copy, and all that it says."""
    done = subprocess.run([program, "--no-defaults", "--backup", f"--target-dir={to}", f"--socket={server.directory}/sock", "--user=root",
                           f"--datadir={server.directory}/data", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert (done.returncode == 0) == ("completed OK!" in done.stdout), done.stdout
    return done.returncode == 0, done.stdout


@pytest.mark.parametrize("partitions", ["", " PARTITION BY HASH (id) PARTITIONS 2"], ids=["whole", "parted"])
def test_mariabackup_is_refused_while_it_would_leave_out_rows(own_server, engine, tmp_path, mariabackup, partitions):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, "CREATE TABLE i (id INT PRIMARY KEY) ENGINE=InnoDB SELECT 1 AS id")
    run(connection, "CREATE TEMPORARY TABLE passing (id INT) ENGINE=Terrace SELECT 1 AS id")
    ok, said = copied(mariabackup, own_server, tmp_path / "without")
    assert ok, said
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE=Terrace{partitions} SELECT seq AS id FROM seq_1_to_20000")
    # The engine keeps what it finds in a table of its own, which stays.
    run(connection, "ANALYZE TABLE t")
    ok, said = copied(mariabackup, own_server, tmp_path / "refused")
    assert not ok and "mariadb-dump" in said and "terrace_backup_stage" in said, said
    # What it held, it holds no longer.
    run(connection, "SET lock_wait_timeout = 10")
    run(connection, "ALTER TABLE i ADD COLUMN v INT")
    # A known limitation (docs/sql.md): without its lock mariabackup asks no engine.
    ok, said = copied(mariabackup, own_server, tmp_path / "unlocked", "--no-lock")
    assert ok, said
    run(connection, "SET GLOBAL terrace_backup_stage = 'allow'")
    ok, said = copied(mariabackup, own_server, tmp_path / "allowed")
    assert ok, said
    assert {name.split(".")[-1] for name in os.listdir(tmp_path / "allowed" / "d") if name.startswith("t")} <= {"frm", "par"}
    run(connection, "SET GLOBAL terrace_backup_stage = DEFAULT")
    run(connection, "DROP TABLE t")
    ok, said = copied(mariabackup, own_server, tmp_path / "dropped")
    assert ok, said


def test_a_session_that_was_refused_is_out_of_the_stage_with_its_end(own_server, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection, other = own_server.connect(), own_server.connect()
    run(connection, "CREATE DATABASE d")
    run(connection, "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=Terrace")
    for _ in range(2):
        with pytest.raises(pymysql.err.MySQLError) as refused:
            run(connection, "BACKUP STAGE START")
        assert refused.value.args[0] == 1178 and "1 of its tables" in refused.value.args[1], refused.value
        run(connection, "BACKUP STAGE END")
    run(other, "SET terrace_backup_stage = 'allow', lock_wait_timeout = 10")
    for stage in ("START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT", "END"):
        run(other, f"BACKUP STAGE {stage}")
    run(connection, "INSERT INTO d.t VALUES (1)")


def test_a_snapshot_of_data_directory_and_volume_beside_writers_is_a_copy(volume, tmp_path):  # noqa: F811
    server = with_its_data(volume, tmp_path)
    stop, done = threading.Event(), []
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        run(connection, "CREATE TABLE d.t (id INT PRIMARY KEY, pad VARCHAR(500)) ENGINE=Terrace")

        def write():
            mine = server.connect(database="d")
            while not stop.is_set():
                run(mine, "INSERT INTO t VALUES (%s, REPEAT('x', 500))", (len(done),))
                done.append(None)

        writer = threading.Thread(target=write)
        writer.start()
        while len(done) < 200 and writer.is_alive():
            stop.wait(0.01)
        run(connection, "SET terrace_backup_stage = 'allow'")
        run(connection, "BACKUP STAGE START")
        run(connection, "BACKUP STAGE BLOCK_COMMIT")
        # One insert may wait for the stage's end with its commit done or not.
        least = len(done)
        assert run_command("fsfreeze", "-f", volume.at).returncode == 0
        shutil.copyfile(volume.image, tmp_path / "copy")
        assert run_command("fsfreeze", "-u", volume.at).returncode == 0
        run(connection, "BACKUP STAGE END")
        while len(done) < least + 50 and writer.is_alive():
            stop.wait(0.01)
        stop.set()
        writer.join()
        assert len(done) >= least + 50
        server.kill9()
        volume.unmount()
        os.replace(tmp_path / "copy", volume.image)
        assert volume.mount().returncode == 0
        server.start()
        connection = server.connect()
        rows = run(connection, "SELECT COUNT(*), MAX(id) + 1 FROM d.t")[0]
        assert rows[0] == rows[1] and least <= rows[0] <= least + 1, (rows, least)
        assert run(connection, "CHECK TABLE d.t")[-1][3] == "OK"
    finally:
        stop.set()
        end(server)
