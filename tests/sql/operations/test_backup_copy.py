"""terrace_backup_stage=copy: the engine copies its volume beside mariabackup, consistent with its copy of InnoDB and with the binary log's position."""

import os
import random
import shutil
import subprocess
import tempfile
import threading

import pymysql
import pytest
import test_copy
from conftest import Server, end, private, run, wait_until
from test_backup import copied, mariabackup  # noqa: F401: a fixture

ACCOUNTS, WRITERS = 200, 3


@pytest.fixture
def server(engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    one = private(["--terrace-memory=33554432", "--terrace-log=16777216", "--log-bin", "--server-id=1"])
    yield one
    end(one)


class Transfers(test_copy.Transfers):
    """Writers that move money between a table of InnoDB and one of Terrace, and note each transaction in both."""

    def __init__(self, server):
        self.server, self.done, self.stop, self.errors = server, [0] * WRITERS, False, []
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        for name, engine in (("i", "InnoDB"), ("t", "Terrace")):
            run(connection, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, pad VARCHAR(2000)) ENGINE={engine}")
            run(connection, f"INSERT INTO {name} SELECT seq, 100, REPEAT('a', 2000) FROM seq_1_to_{ACCOUNTS}")
            parts = " PARTITION BY HASH (w) PARTITIONS 2" if engine == "Terrace" else ""
            run(connection, f"CREATE TABLE n{name} (w INT, n INT, PRIMARY KEY (w, n)) ENGINE={engine}{parts}")
        run(connection, "CREATE TABLE big (id INT PRIMARY KEY, pad VARCHAR(3000)) ENGINE=Terrace SELECT seq AS id, REPEAT('b', 3000) AS pad FROM seq_1_to_8000")
        # From here on each transaction is one of the writers'.
        self.first = int(run(connection, "SELECT @@gtid_binlog_pos")[0][0].split("-")[2])
        self.threads = [threading.Thread(target=self.work, args=(n,)) for n in range(WRITERS)]

    def work(self, which):
        connection, draw = self.server.connect(database="d"), random.Random(which)
        try:
            while not self.stop:
                pair, at = draw.choice(("it", "ti")), sorted(draw.sample(range(1, ACCOUNTS + 1), 2))
                connection.begin()
                run(connection, f"UPDATE {min(pair)} SET v = v {'-' if pair == 'it' else '+'} 1 WHERE id = %s", (at[0],))
                run(connection, f"UPDATE {max(pair)} SET v = v {'+' if pair == 'it' else '-'} 1 WHERE id = %s", (at[1],))
                run(connection, "INSERT INTO ni VALUES (%s, %s)", (which, self.done[which]))
                run(connection, "INSERT INTO nt VALUES (%s, %s)", (which, self.done[which]))
                run(connection, "UPDATE big SET pad = REPEAT(%s, 3000) WHERE id = %s", (draw.choice("xyz"), draw.randrange(8000)))
                connection.commit()
                self.done[which] += 1
        except pymysql.err.OperationalError as error:
            self.errors.append(error)


def noted(connection, table):
    return run(connection, f"SELECT w, COUNT(*), MAX(n) + 1 FROM d.{table} GROUP BY w ORDER BY w")


def test_mariabackup_takes_a_consistent_copy_of_both_engines_and_the_binary_log(server, tmp_path, mariabackup):  # noqa: F811
    target = tmp_path / "backup"
    with Transfers(server) as load:
        connection = server.connect()
        run(connection, "SET GLOBAL terrace_backup_stage = 'copy'")
        run(connection, f"SET GLOBAL terrace_backup_copy_dir = '{target}/terrace'")
        least = list(load.done)
        ok, said = copied(mariabackup, server, target)
        assert ok, said
        most = list(load.done)
        wait_until(lambda: all(now > then + 5 for now, then in zip(load.done, most)) or load.errors)
    assert not load.errors, load.errors
    assert sum(most) > sum(least), "nothing was written beside the copy"
    assert os.path.exists(target / "terrace" / "superblock")
    position = (target / "xtrabackup_binlog_info").read_text().split()
    transactions = int(position[2].split("-")[2]) - load.first

    restored = Server(tempfile.mkdtemp(prefix="terrace-sql-"), ["--terrace-memory=33554432"])
    try:
        data = os.path.join(restored.directory, "data")
        for step in (["--prepare"], ["--copy-back", f"--datadir={data}"]):
            done = subprocess.run([mariabackup, "--no-defaults", *step, f"--target-dir={target}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
            assert done.returncode == 0 and "completed OK!" in done.stdout, done.stdout
        restored.start()
        other = restored.connect()
        assert run(other, "SELECT (SELECT SUM(v) FROM d.i) + (SELECT SUM(v) FROM d.t)") == [(2 * 100 * ACCOUNTS,)]
        rows = noted(other, "nt")
        assert rows == noted(other, "ni")
        assert sum(count for _, count, _ in rows) == transactions, (rows, transactions)
        for which, count, last in rows:
            assert count == last and least[which] <= count <= most[which] + 1, (rows, least, most)
        assert run(other, "SELECT COUNT(*) FROM d.big WHERE LENGTH(pad) = 3000") == [(8000,)]
        for table in ("t", "nt", "big", "i", "ni"):
            assert run(other, f"CHECK TABLE d.{table} EXTENDED")[-1][3] == "OK"
        run(other, "INSERT INTO d.nt VALUES (77, 1)")
        # A replica would go on here: the writers' later transactions are what the binary log has behind the position.
        logs = [name for (name, *_) in run(connection, "SHOW BINARY LOGS")]
        later = logs[logs.index(position[0]):]
        events = subprocess.run(["mariadb-binlog", "--no-defaults", f"--start-position={position[1]}", *(os.path.join(server.directory, "data", name) for name in later)],
                                stdout=subprocess.PIPE, timeout=600, check=True).stdout
        applied = subprocess.run(["mariadb", "--no-defaults", f"--socket={restored.directory}/sock", "-uroot"], input=events, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        assert applied.returncode == 0, applied.stdout
        assert noted(other, "nt")[:WRITERS] == noted(other, "ni") == [(which, done, done) for which, done in enumerate(load.done)]
        for table in ("i", "t", "big"):
            assert run(other, f"CHECKSUM TABLE d.{table}") == run(connection, f"CHECKSUM TABLE d.{table}")
        restored.stop()
        assert restored.check()[0] == 0
    finally:
        end(restored)


def stages(connection, *names):
    for name in names:
        run(connection, f"BACKUP STAGE {name}")


def fails(connection, statement):
    with pytest.raises(pymysql.err.MySQLError) as why:
        run(connection, statement)
    return str(why.value)


@pytest.mark.parametrize("reached", [["START"], ["START", "FLUSH", "BLOCK_DDL"]], ids=["START", "BLOCK_DDL"])
def test_stages_that_end_before_commits_are_blocked_leave_no_copy(server, tmp_path, reached):
    connection = server.connect()
    run(connection, f"SET GLOBAL terrace_backup_copy_dir = '{tmp_path}/copy'")
    run(connection, "SET terrace_backup_stage = 'copy'")
    stages(connection, *reached)
    assert "copying" in os.listdir(tmp_path / "copy")
    stages(connection, "END")
    (level, _, text), = run(connection, "SHOW WARNINGS")
    assert level == "Warning" and "discarded" in text and "BLOCK_COMMIT" in text
    assert not os.path.exists(tmp_path / "copy")
    assert "was discarded: BACKUP STAGE END came before BLOCK_COMMIT" in open(os.path.join(server.directory, "error.log")).read()


def test_a_connection_that_is_lost_leaves_no_copy_and_the_next_one_is_whole(server, tmp_path):
    connection, other = server.connect(), server.connect()
    run(other, "CREATE DATABASE d")
    run(other, "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=Terrace")
    run(other, f"SET GLOBAL terrace_backup_copy_dir = '{tmp_path}/copy', terrace_backup_stage = 'copy'")
    run(connection, "SET terrace_backup_stage = 'copy'")
    stages(connection, "START", "BLOCK_COMMIT")
    assert "copying" in os.listdir(tmp_path / "copy")
    # One copy at a time.
    assert "being copied already" in fails(other, f"SET GLOBAL terrace_copy_to = '{tmp_path}/other'")
    connection.close()
    run(other, "INSERT INTO d.t VALUES (1)")
    wait_until(lambda: not os.path.exists(tmp_path / "copy"))
    wait_until(lambda: "was discarded: the connection ended" in open(os.path.join(server.directory, "error.log")).read())
    connection = server.connect()
    stages(connection, "START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT", "END")
    assert run(connection, "SHOW WARNINGS") == []
    run(other, "INSERT INTO d.t VALUES (2)")
    second = Server(tempfile.mkdtemp(prefix="terrace-sql-"), ["--terrace-memory=33554432"])
    try:
        os.makedirs(os.path.join(second.directory, "data"))
        shutil.copytree(os.path.join(server.directory, "data", "d"), os.path.join(second.directory, "data", "d"))
        shutil.copytree(tmp_path / "copy", os.path.join(second.directory, "data", "terrace"))
        second.start()
        assert run(second.connect(), "SELECT * FROM d.t") == [(1,)]
    finally:
        end(second)


def test_a_copy_that_has_no_place_or_fails_ends_the_stage_in_an_error(server, tmp_path, mariabackup):  # noqa: F811
    connection = server.connect()
    run(connection, "CREATE DATABASE d")
    run(connection, "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=Terrace")
    run(connection, "SET GLOBAL terrace_backup_stage = 'copy'")
    ok, said = copied(mariabackup, server, tmp_path / "nowhere")
    assert not ok and "terrace_backup_copy_dir" in said, said
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    run(connection, f"SET GLOBAL terrace_backup_copy_dir = '{tmp_path}/full'")
    ok, said = copied(mariabackup, server, tmp_path / "in-full")
    assert not ok and "not empty" in said and "notes" in os.listdir(tmp_path / "full"), said
    # Nothing is held, and an error on the way is reported at the end.
    connection = server.connect()
    run(connection, f"SET GLOBAL terrace_backup_copy_dir = '{tmp_path}/copy'")
    stages(connection, "START")
    shutil.rmtree(tmp_path / "copy")
    stages(connection, "BLOCK_COMMIT")
    assert "there is no copy" in fails(connection, "BACKUP STAGE END")
    run(connection, "INSERT INTO d.t VALUES (1)")
    stages(connection, "START", "BLOCK_COMMIT", "END")
    assert "superblock" in os.listdir(tmp_path / "copy")
    run(server.connect(), "ALTER TABLE d.t ADD COLUMN v INT")


def test_a_copy_beside_commits_warns_and_one_by_stages_starts_with_a_binary_log(server, tmp_path):
    """What the copy beside commits holds of transactions in two phases, only the original's binary log could decide: such a server doesn't start."""
    place = tempfile.mkdtemp(dir=tmp_path)
    os.chmod(place, 0o777)
    with Transfers(server) as load:
        connection = server.connect()
        run(connection, "SET GLOBAL terrace_copy_to = %s", (f"{place}/beside",))
        assert "--tc-heuristic-recover" in run(connection, "SHOW WARNINGS")[0][2]
        run(connection, "SET terrace_backup_stage = 'copy', GLOBAL terrace_backup_copy_dir = %s", (f"{place}/stages",))
        run(connection, "BACKUP STAGE START")
        # The definitions do not change any more: they are copied as they are.
        run(connection, "BACKUP STAGE BLOCK_DDL")
        directory = tmp_path / "second"
        definitions = directory / "definitions"
        shutil.copytree(os.path.join(server.directory, "data", "d"), definitions, ignore=shutil.ignore_patterns("*.ibd"))
        run(connection, "BACKUP STAGE BLOCK_COMMIT")
        done = list(load.done)
        run(connection, "BACKUP STAGE END")
    second = Server(str(directory), ["--terrace-memory=33554432", f"--terrace-volume-path={place}/stages", "--log-bin", "--server-id=2"])
    try:
        second.start()
        connection = second.connect()
        run(connection, "CREATE DATABASE d")
        for name in os.listdir(definitions):
            if name.split("#")[0].split(".")[0] in ("t", "nt", "big"):
                shutil.copy(definitions / name, os.path.join(second.directory, "data", "d"))
        rows = {w: count for w, count, last in noted(connection, "nt") if count == last}
        assert all(done[w] <= rows[w] <= done[w] + 1 for w in range(WRITERS)), (done, rows)
        for table in ("t", "nt", "big"):
            assert run(connection, f"CHECK TABLE d.{table} EXTENDED")[-1][3] == "OK"
    finally:
        end(second)


def test_an_engine_that_is_uninstalled_leaves_its_copy_and_can_be_installed_again(engine, tmp_path):
    """The copy's worker kept the volume: the engine could not be had again until a restart. And INSTALL in a server that runs ended it where statistics were
    kept of tables: the engine asked for its place in the session before it had one."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    server = private(["--terrace-memory=33554432"])
    try:
        connection = server.connect()
        place = tempfile.mkdtemp(dir=tmp_path)
        os.chmod(place, 0o777)
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE d.t ENGINE=Terrace SELECT seq FROM seq_1_to_20000")
        run(connection, "ANALYZE TABLE d.t")
        run(connection, "FLUSH TABLES")
        run(connection, "SET terrace_backup_stage = 'copy', GLOBAL terrace_backup_copy_dir = %s", (f"{place}/copy",))
        run(connection, "BACKUP STAGE START")
        other = server.connect()
        run(other, "UNINSTALL SONAME 'ha_terrace'")
        assert not os.path.exists(f"{place}/copy/superblock")
        run(other, "INSTALL SONAME 'ha_terrace'")
        run(connection, "BACKUP STAGE END")
        assert run(other, "SELECT COUNT(*) FROM d.t") == [(20000,)]
    finally:
        end(server)
