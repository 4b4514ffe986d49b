"""Settings: those in force are shown, all wrong ones are named at once, and the server still starts."""

import fcntl
import os
import socket
import time

import pytest
from conftest import Server, end, quick_once, wait_until

MIB = 1 << 20


@pytest.fixture
def stopped(tmp_path, engine):
    """A server that was not started yet, and whose options a test may change."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    server = Server(str(directory), ["--innodb=OFF", "--default-storage-engine=Aria"])
    yield server
    end(server)


def said(server):
    """What the engine said when it refused to start."""
    return [line for line in open(os.path.join(server.directory, "error.log")) if "Terrace: the engine can't start" in line]


def shown(server, run):
    rows = run(server.connect(), "SHOW GLOBAL VARIABLES LIKE 'terrace%'")
    return {name[len("terrace_"):]: value for name, value in rows}


def test_variables_show_what_is_in_force(stopped, run, tmp_path):
    stopped.start()
    now = shown(stopped, run)
    assert now["memory"] == str(128 * MIB) and now["object_buffer"] == str(8192 * MIB) and now["flash"] == "0"
    assert now["volume_path"] == "terrace" and now["sink_after_ms"] == "300000" and int(now["locks_max"]) >= 1000
    log, partitions = int(now["log"]), int(now["log_partitions"])
    assert log >= 2 * MIB and partitions >= 1
    assert (now["compression"], now["flash_admission"], now["without"], now["object"]) == ("zstd", "ghost", "", "")
    stopped.stop()

    # From a file; the variable goes before it. Log and partitions are the volume's: they stay.
    file = tmp_path / "terrace.toml"
    file.write_text(f'volume_path = "{stopped.directory}/data/terrace"\nmemory = "24M"\nlog = "{2 * log}"\nlog_partitions = 7\nlocks_max = 12345\nlock_wait_timeout_ms = 700\nwithout = "prefetch"\nemulate = "cloud"\ncompression = "lz4"\n')
    base = stopped.options
    stopped.options = base + [f"--terrace-config={file}", "--terrace-memory=16M"]
    stopped.start()
    now = shown(stopped, run)
    assert (now["memory"], now["locks_max"], now["lock_wait_timeout_ms"]) == (str(16 * MIB), "12345", "700")
    assert (int(now["log"]), int(now["log_partitions"])) == (log, partitions)
    assert int(now["object_buffer"]) == 8192 * MIB
    assert (now["compression"], now["without"], now["emulate"]) == ("lz4", "prefetch", "cloud")
    assert now["volume_path"] == f"{stopped.directory}/data/terrace"
    connection = stopped.connect()
    for name in now:
        if name not in ("flush_log_at_trx_commit", "lock_wait_timeout_ms", "snapshot_isolation", "foreign_keys", "backup_stage", "backup_copy_dir", "copy_to", "bypass", "bypass_from", "write_policy", "temporary_unlogged", "print_all_deadlocks", "memory", "flash", "object_buffer"):
            with pytest.raises(Exception) as refused:
                run(connection, f"SET GLOBAL terrace_{name} = 1")
            assert refused.value.args[0] == 1238, name
    run(connection, "SET GLOBAL terrace_flush_log_at_trx_commit = 2")
    # The file's limit is what sessions begin with.
    other = stopped.connect(database="mysql")
    run(connection, "CREATE DATABASE d")
    run(connection, "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=Terrace")
    run(connection, "BEGIN")
    run(connection, "INSERT INTO d.t VALUES (1)")
    since = time.monotonic()
    with pytest.raises(Exception) as late:
        run(other, "INSERT INTO d.t VALUES (1)")
    assert late.value.args[0] == 1205 and 0.6 < time.monotonic() - since < 45
    run(connection, "ROLLBACK")
    run(connection, "SET SESSION terrace_lock_wait_timeout_ms = 10")
    stopped.stop()
    # A variable that is given goes before the file, also with the value of the default.
    stopped.options = base + [f"--terrace-config={file}", "--terrace-lock-wait-timeout-ms=50000"]
    stopped.start()
    assert shown(stopped, run)["lock_wait_timeout_ms"] == "50000"


def test_a_setting_that_the_volume_overrules_is_in_the_error_log_with_what_is_in_force(stopped, run, tmp_path):
    base = stopped.options

    def overruled(*options):
        log = os.path.join(stopped.directory, "error.log")
        before = len(open(log).read()) if os.path.exists(log) else 0
        stopped.options = base + list(options)
        stopped.start()
        stopped.stop()
        new = open(log).read()[before:]
        return [line.split("Terrace: ")[1] for line in new.splitlines() if "[Warning] Terrace: " in line]

    made = ["--terrace-log=8M", "--terrace-log-partitions=2", "--terrace-object-buffer=64M"]
    assert overruled(*made) == []
    assert overruled(*made) == []
    assert overruled("--terrace-object-buffer=64M") == [], "the log's size was not set"
    file = tmp_path / "terrace.toml"
    file.write_text(f'volume_path = "{stopped.directory}/data/terrace"\nlog_partitions = 1\nobject_buffer = "4M"\n')
    # The file and the variables; a value counts as asked for also where it is the default.
    said = overruled(f"--terrace-config={file}", "--terrace-log=96M")
    assert said[:2] == ["log = 96M is not in force: the volume was made with 8M", "log_partitions = 1 is not in force: the volume was made with 2"]
    assert len(said) == 3 and said[2].startswith("object_buffer = 4M is not in force: the volume has 64M"), said


def test_wrong_settings_are_named_at_once_and_the_server_lives(stopped, run):
    base = stopped.options
    wrong = ["memory=1M", "log-partitions=99", "flash=1G", "object=ftp://nowhere/x", "emulate=moon", "flash-admission=never", "split=never", "without=speed"]
    stopped.options = base + [f"--terrace-{one}" for one in wrong]
    stopped.start()
    [line] = said(stopped)
    for part in ("memory = 1M", "log_partitions = 99", "flash_path", "ftp", 'emulate = "moon"', 'flash_admission = "never"', 'split = "never"', 'without = "speed"'):
        assert part in line, (part, line)
    connection = stopped.connect()
    assert run(connection, "SELECT 1") == [(1,)]
    run(connection, "CREATE DATABASE d")
    with pytest.raises(Exception) as refused:
        run(connection, "SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR CREATE TABLE d.t (a INT) ENGINE=Terrace")
    assert refused.value.args[0] == 1286, refused.value


def test_a_port_that_is_taken_costs_the_metrics_and_not_the_tables(stopped, run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        base = stopped.options
        stopped.options = base + [f"--terrace-metrics-listen=127.0.0.1:{port}"]
        stopped.start()
        connection = stopped.connect()
        run(connection, "CREATE DATABASE d")
        run(connection, "CREATE TABLE d.t (a INT) ENGINE=Terrace")
        report = str(run(connection, "SHOW ENGINE TERRACE STATUS"))
        assert "metrics_trouble" in report and str(port) in report
        stopped.stop()
    log = open(os.path.join(stopped.directory, "error.log")).read()
    assert f"Terrace: metrics: none are served: metrics_listen = \"127.0.0.1:{port}\"" in log, log[-2000:]


@pytest.mark.parametrize(
    "option, words",
    [
        ("memory=4096T", "memory = 4096T is more than this machine gives"),
        ("volume-path=/proc/nowhere", "volume_path = /proc/nowhere: create /proc/nowhere: No such file"),
        ("object=/proc/nowhere", "/proc/nowhere"),
        ("flash-path=somewhere", "flash_path = somewhere is set, flash (how much room it has) is not"),
        ("object=s3://key:hush@bucket/p", "(s3://bucket/p): the URL holds more than a place"),
    ],
)
def test_a_resource_that_the_machine_refuses_is_an_error_that_names_it(stopped, run, option, words):
    stopped.options = stopped.options + [f"--terrace-{option}"]
    stopped.start()
    [line] = said(stopped)
    assert words in line and "opened again" not in line and "0 bytes" not in line and "hush" not in line, line
    assert run(stopped.connect(), "SELECT 1") == [(1,)]


def test_flash_in_use_by_another_server_is_in_the_error_log_however_soon_the_server_ends(stopped, tmp_path):
    place = tmp_path / "flash"
    place.mkdir()
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a running instance does
        stopped.options = stopped.options + [f"--terrace-flash-path={place}", "--terrace-flash=67108864"]
        stopped.start()
        stopped.stop()
    lines = [line for line in open(os.path.join(stopped.directory, "error.log")) if "Terrace: flash: " in line]
    assert len(lines) == 1 and f"{place} is locked by another instance" in lines[0], lines


def test_a_lock_wait_ends_when_the_settings_of_innodb_say_so(server, db, run):
    """Scripts written for InnoDB set innodb_lock_wait_timeout; Terrace's own setting takes precedence."""
    run(db, "CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=Terrace")
    run(db, "INSERT INTO t VALUES (1, 1)")
    run(db, "BEGIN")
    run(db, "UPDATE t SET v = 2")

    def waited(*settings, sql="UPDATE t SET v = 3"):
        connection = server.connect(database=db.name)
        for setting in settings:
            run(connection, setting)
        since = time.monotonic()
        with pytest.raises(Exception) as late:
            run(connection, sql)
        assert late.value.args[0] == 1205
        return time.monotonic() - since

    assert 0.9 < waited("SET SESSION innodb_lock_wait_timeout = 1") < 45
    quick_once(lambda: waited("SET SESSION innodb_lock_wait_timeout = 0"), 0.9)
    quick_once(lambda: waited(sql="SET STATEMENT innodb_lock_wait_timeout = 0 FOR UPDATE t SET v = 3"), 0.9)
    assert 0.2 < waited("SET SESSION innodb_lock_wait_timeout = 100", "SET SESSION terrace_lock_wait_timeout_ms = 300") < 80
    assert 1.9 < waited("SET SESSION innodb_lock_wait_timeout = 1", "SET SESSION terrace_lock_wait_timeout_ms = 2000")
    before = run(db, "SELECT @@GLOBAL.innodb_lock_wait_timeout")[0][0]
    try:
        run(db, "SET GLOBAL innodb_lock_wait_timeout = 0")
        quick_once(waited, 0.9)
    finally:
        run(db, f"SET GLOBAL innodb_lock_wait_timeout = {before}")
    run(db, "ROLLBACK")


def test_a_commit_that_is_only_written_waits_for_no_sync(own_server, run, engine):
    """Its log is written before it returns: by itself, or with others'. All is synced within a second or two. With 1 each commit waits for a sync."""
    if engine != "Terrace":
        pytest.skip("a setting of Terrace")
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    run(connection, "CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=Terrace")
    run(connection, "CREATE SEQUENCE d.s NOCACHE ENGINE=Terrace")
    commits = 300
    syncs, writes, seconds = {}, {}, {}
    for setting in (1, 2, 0):
        run(connection, f"SET GLOBAL terrace_flush_log_at_trx_commit = {setting}")
        run(connection, "FLUSH ENGINE LOGS")
        before, since = (figure(connection, run, "volume_syncs"), figure(connection, run, "log_writes")), time.monotonic()
        for n in range(commits):
            run(connection, f"REPLACE INTO d.t VALUES ({n % 50}, {n})")
        run(connection, "SELECT NEXTVAL(d.s)")
        seconds[setting] = time.monotonic() - since
        syncs[setting] = figure(connection, run, "volume_syncs") - before[0]
        writes[setting] = figure(connection, run, "log_writes") - before[1]
    assert syncs[1] >= commits and writes[2] > commits and writes[0] < commits / 2, (syncs, writes, seconds)
    for setting in (2, 0):
        # One a second, and what checkpoints and flushes make.
        assert syncs[setting] < 20 + 4 * seconds[setting], (syncs, seconds)
    run(connection, "SET GLOBAL terrace_flush_log_at_trx_commit = 2")
    run(connection, "REPLACE INTO d.t VALUES (1, 1)")
    until = figure(connection, run, "log_position")
    wait_until(lambda: figure(connection, run, "log_position_durable") >= until, 30)


def figure(connection, run, name):
    return int(run(connection, f"SHOW GLOBAL STATUS LIKE 'Terrace_{name}'")[0][1])
