"""A private server for the SQL tests, and ways to kill it."""

import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time

import pymysql
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
SCRIPT = os.path.join(ROOT, "scripts", "server.sh")


def pytest_addoption(parser):
    parser.addoption("--engine", default="Terrace", help="the engine to test; InnoDB proves the tests themselves, ROCKSDB measures MyRocks")


# The library of MyRocks, for every server of a run with `--engine ROCKSDB`.
MYROCKS = []


def pytest_configure(config):
    if config.getoption("--engine") == "ROCKSDB":
        found = subprocess.run([os.path.join(ROOT, "scripts", "myrocks.sh")], stdout=subprocess.PIPE, text=True, timeout=900).stdout.strip()
        if not found:
            raise pytest.UsageError("MyRocks of the server's version is not in the package archive")
        MYROCKS.append(found)


def ports():
    """Ports that are free now, below those of outgoing connections; each of the processes that test has its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    low, count = 10000 + 2000 * (worker % 10), 2000
    at = random.randrange(count)
    while True:
        at = (at + 1) % count
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", low + at))
            except OSError:
                continue
        yield low + at


PORTS = ports()
LOCK_WAIT_TIMEOUT = 1205

# The error logs of servers that this test started and that came up without the engine, as some tests want: a failure shows them, as their directories may be gone by then.
WITHOUT_ENGINE = []


def pytest_runtest_setup(item):
    WITHOUT_ENGINE.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        report.sections += [("a server that came up without the engine", text) for text in WITHOUT_ENGINE]


class Server:
    def __init__(self, directory, options=()):
        self.directory, self.options = directory, list(options)
        self.port = next(PORTS)

    def _run(self, *arguments):
        done = subprocess.run([SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
        assert done.returncode == 0, done.stdout

    def start(self):
        # The server must not hold our pipe.
        log = open(os.path.join(self.directory, "start.log"), "w")
        options = list(self.options)
        for library in MYROCKS:
            os.makedirs(os.path.join(self.directory, "plugins"), exist_ok=True)
            link = os.path.join(self.directory, "plugins", "ha_rocksdb.so")
            if not os.path.lexists(link):
                os.symlink(library, link)
            options += ["--plugin-load-add=ha_rocksdb", "--rocksdb-strict-collation-check=OFF"]
        errors = os.path.join(self.directory, "error.log")
        before = os.path.getsize(errors) if os.path.exists(errors) else 0
        done = subprocess.run([SCRIPT, "start", self.directory, str(self.port), *options], stdout=log, stderr=log, timeout=400)
        text = ""
        if os.path.exists(errors):
            with open(errors, "rb") as file:
                file.seek(before)
                text = file.read().decode(errors="replace")
        if done.returncode != 0:
            raise AssertionError(open(log.name).read() + "\n--- the end of the error log ---\n" + text[-20_000:])
        if "Plugin 'Terrace' registration as a STORAGE ENGINE failed" in text:
            WITHOUT_ENGINE.append(text[-20_000:])

    def stop(self):
        self._run("stop", self.directory)

    def kill9(self):
        self._run("kill9", self.directory)

    def check(self, *options):
        """What `terrace check` says of the stopped server's instance: its exit code and its report."""
        volume = os.path.join(self.directory, "data", "terrace")
        program = os.path.join(TARGET, "debug", "terrace")  # made by `cargo test`
        done = subprocess.run([program, "check", "--json", "--volume", volume, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def restart(self):
        self.stop()
        self.start()

    def connect(self, **more):
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", charset="utf8mb4", autocommit=True, **more)


def private(options=()):
    directory = tempfile.mkdtemp(prefix="terrace-sql-")
    server = Server(directory, options)
    server.start()
    return server


def end(server):
    """Stops the server; one that does not stop is killed, and that is an error."""
    try:
        server.stop()
    except BaseException:
        server.kill9()
        raise
    finally:
        shutil.rmtree(server.directory, ignore_errors=True)


@pytest.fixture
def shared_directory():
    """A directory into which any server may write and from which it may read."""
    with tempfile.TemporaryDirectory(prefix="terrace-shared-") as directory:
        os.chmod(directory, 0o777)
        yield directory


def wait_until(what, seconds=300):
    """Waits until a condition holds, and returns what it gave; a busy machine may take long."""
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)
    return found


def quick_once(play, bound, tries=8):
    """An action faster than `bound` seconds is so in one of several tries, however busy the machine; an action that waits for
    something never is. `play` returns the seconds that it took."""
    took = []
    while len(took) < tries:
        took.append(play())
        if took[-1] < bound:
            return
    raise AssertionError(f"{bound} s and more each time: {took}")


# How long a drop at the end of a test waits for what the test left open, in seconds, before it ends that.
PATIENCE = 10


def drop_database(server, name, patience=PATIENCE):
    """Drops a test's database, whatever connections and locks a test that failed has left in it."""
    connection = server.connect(read_timeout=120)
    run(connection, f"SET SESSION lock_wait_timeout = {patience}, innodb_lock_wait_timeout = {patience}, terrace_lock_wait_timeout_ms = {1000 * patience}")
    for where in (f"DB = '{name}'", "USER = 'root'"):
        try:
            return run(connection, f"DROP DATABASE {name}")
        except pymysql.err.OperationalError as error:
            if error.args[0] != LOCK_WAIT_TIMEOUT:
                raise
        for (one,) in run(connection, f"SELECT ID FROM information_schema.PROCESSLIST WHERE ID != CONNECTION_ID() AND {where}"):
            try:
                run(connection, f"KILL CONNECTION {one}")
            except pymysql.err.OperationalError:
                pass  # it ended by itself
    for (xid,) in [(row[3],) for row in run(connection, "XA RECOVER")]:
        run(connection, f"XA ROLLBACK '{xid.decode()}'")
    return run(connection, f"DROP DATABASE {name}")


@pytest.fixture(scope="session")
def server():
    one = private(["--terrace-memory=33554432"])
    yield one
    end(one)


@pytest.fixture
def own_server():
    """A server for tests that kill it."""
    one = private(["--terrace-memory=16777216"])
    yield one
    end(one)


@pytest.fixture
def engine(request):
    return request.config.getoption("--engine")


@pytest.fixture
def db(server):
    """A connection to a database of the test's own."""
    name = f"t{random.randrange(10**9)}"
    connection = server.connect()
    connection.cursor().execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    connection.select_db(name)
    connection.name = name
    yield connection
    drop_database(server, name)


def run(connection, sql, arguments=None):
    """Runs a statement and returns its rows as a list."""
    cursor = connection.cursor()
    cursor.execute(sql, arguments)
    return list(cursor.fetchall())


def binlog_options(directory):
    """The server's options for a binary log that is durable with every commit."""
    return [f"--log-bin={directory}/binlog", "--binlog-format=ROW", "--sync-binlog=1", "--server-id=1"]


def replayed(directory, database, tables):
    """Replays a binary log into a fresh server. Returns what its tables hold, by name."""
    names = [line.strip() for line in open(f"{directory}/binlog.index")]
    logs = [os.path.join(directory, os.path.basename(name)) for name in names]
    other = private(["--terrace-memory=16777216"])
    try:
        text = subprocess.run(["mariadb-binlog", "--no-defaults", *logs], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
        assert text.returncode == 0, text.stderr.decode()
        client = ["mariadb", "--no-defaults", f"--socket={other.directory}/sock", "-uroot", "--binary-mode"]
        done = subprocess.run(client, input=text.stdout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        assert done.returncode == 0, done.stdout.decode()
        return contents(other.connect(database=database), tables)
    finally:
        end(other)


def contents(connection, tables):
    """All rows of the tables, by name, in an order of their own."""
    return {table: sorted(run(connection, f"SELECT * FROM {table}")) for table in tables}


@pytest.fixture(name="run")
def run_fixture():
    return run
