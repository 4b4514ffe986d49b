"""kill -9 under load: acknowledged commits survive, sums hold, the structures are sound; and the binary log holds the
same transactions as the engine. On a server of its own, and over flash and an object store, where most pages are only in objects.

TERRACE_KILLS: kills (default 5).
"""

import itertools
import os
import random
import shutil
import threading
import time

import pymysql
import pytest
from conftest import binlog_options, contents, end, private, replayed, wait_until
from test_object import flashed, store  # noqa: F401: a fixture

KILLS = int(os.environ.get("TERRACE_KILLS", "5"))
ACCOUNTS = 50


def written_only(engine):
    """Options with which a commit writes the log to the operating system without a sync."""
    return [f"--{engine.lower()}-flush-log-at-trx-commit=2"]


def kill_often(server, engine, run, kills, place=(), cold=0):
    """Works, kills the server, starts it again and checks, `kills` times. `place`: where `terrace check` finds the store. `cold`: rows
    of a table most of which are never read; each transaction counts in one of them."""
    connection = server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, f"CREATE TABLE d.account (id INT PRIMARY KEY, v INT NOT NULL) ENGINE={engine}")
    run(connection, f"CREATE TABLE d.ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, who INT, n INT, note VARCHAR(200), UNIQUE (who, n)) ENGINE={engine}")
    run(connection, f"INSERT INTO d.account SELECT seq, 1000 FROM seq_1_to_{ACCOUNTS}")
    if cold:
        run(connection, f"CREATE TABLE d.cold (id INT PRIMARY KEY, n INT NOT NULL, note VARCHAR(1000)) ENGINE={engine}")
        run(connection, f"INSERT INTO d.cold SELECT seq, 0, REPEAT(MD5(seq), 31) FROM seq_1_to_{cold}")
    acknowledged, next_n = set(), [0] * 4
    rng = random.Random(1)
    for kill in range(kills):
        stop = threading.Event()

        def work(who):
            try:
                mine = server.connect(database="d")
                mine.autocommit(False)
                while not stop.is_set():
                    a, b = random.sample(range(1, ACCOUNTS + 1), 2)
                    n = next_n[who]
                    try:
                        run(mine, "UPDATE account SET v = v - 5 WHERE id = %s", (min(a, b),))
                        run(mine, "UPDATE account SET v = v + 5 WHERE id = %s", (max(a, b),))
                        run(mine, "INSERT INTO ledger (who, n, note) VALUES (%s, %s, REPEAT('x', %s))", (who, n, n % 200))
                        if cold:
                            run(mine, "UPDATE cold SET n = n + 1 WHERE id = %s", (random.randint(1, cold),))
                        next_n[who] = n + 1  # whatever comes of the commit, the number is used
                        mine.commit()
                        acknowledged.add((who, n))
                    except pymysql.err.OperationalError as error:
                        if error.args[0] not in (1205, 1213):
                            return  # the server is gone
                        mine.rollback()
            except pymysql.err.MySQLError:
                return

        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        [t.start() for t in threads]
        # Some time, and longer on a machine where little is done in it.
        time.sleep(0.5 + rng.random())
        wait_until(lambda: len(acknowledged) > 25 * (kill + 1) or not any(t.is_alive() for t in threads))
        before = len(acknowledged)
        server.kill9()
        stop.set()
        [t.join() for t in threads]
        if engine == "Terrace":
            code, report = server.check(*place)
            assert code == 0, f"kill {kill}: {report}"
        server.start()
        connection = server.connect(database="d")
        found = set(run(connection, "SELECT who, n FROM ledger"))
        assert acknowledged <= found, f"kill {kill}: lost {sorted(acknowledged - found)[:5]}"
        assert before > 0
        assert run(connection, "SELECT COUNT(*), SUM(v) FROM account") == [(ACCOUNTS, 1000 * ACCOUNTS)]
        if cold:
            assert run(connection, "SELECT COUNT(*), SUM(n) FROM cold") == [(cold, len(found))], f"kill {kill}"
        for row in run(connection, "CHECK TABLE account, ledger" + ", cold" * bool(cold)):
            assert row[3] == "OK", row
    assert len(acknowledged) > 20 * kills


def test_acknowledged_commits_survive_kill_9(own_server, engine, run):
    kill_often(own_server, engine, run, KILLS)


def test_commits_that_are_only_written_survive_kill_9(engine, run):
    server = private(["--terrace-memory=16777216", *written_only(engine)])
    try:
        kill_often(server, engine, run, KILLS)
    finally:
        end(server)


@pytest.fixture
def tiered(store, tmp_path):  # noqa: F811
    yield from flashed(store, tmp_path)


def test_acknowledged_commits_survive_kill_9_on_all_tiers(tiered, store, engine, run):  # noqa: F811
    kill_often(tiered, engine, run, KILLS, store.place(), cold=9000)
    [(volume, objects)] = run(tiered.connect(), "SELECT SUM(PAGES_VOLUME), SUM(PAGES_OBJECT) FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 'cold'")
    assert objects > 2 * volume, (volume, objects)


@pytest.mark.parametrize("durable", [True, False])
def test_the_binary_log_and_the_engine_hold_the_same_transactions_after_kill_9(engine, run, tmp_path, durable):
    server = private(["--terrace-memory=16777216", *binlog_options(tmp_path), *([] if durable else written_only(engine))])
    try:
        kill_often(server, engine, run, max(2, KILLS // 2))
        tables = ("account", "ledger")
        ours = contents(server.connect(database="d"), tables)
        assert replayed(tmp_path, "d", tables) == ours
    finally:
        end(server)


def test_the_binary_log_forgets_no_more_than_the_engine_keeps(engine, run, tmp_path):
    """Recovery reads the binary log from its last checkpoint on, which comes when the engine says that all before is durable: also where commits don't wait for that."""
    server = private(["--terrace-memory=16777216", *binlog_options(tmp_path), f"--{engine.lower()}-flush-log-at-trx-commit=0"])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        run(connection, f"CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE={engine}")
        for n in range(6):
            run(connection, f"INSERT INTO d.t VALUES ({n})")
            run(connection, "FLUSH BINARY LOGS")
            newest = run(connection, "SHOW BINARY LOGS")[-1][0]

            def begins_there():
                events = run(connection, f"SHOW BINLOG EVENTS IN '{newest}'")
                return newest in [event[5] for event in events if event[2] == "Binlog_checkpoint"]
            wait_until(begins_there)
            server.kill9()
            server.start()
            connection = server.connect()
            assert run(connection, "SELECT COUNT(*) FROM d.t") == [(n + 1,)]
    finally:
        end(server)


def test_transactions_over_both_engines_are_whole_after_kill_9_with_a_binary_log(engine, run, tmp_path):
    """Without a binary log the server's own log of transactions (tc.log) should decide, but does not: 10.11.18 rolls back all prepared transactions
    (`sql/handler.cc`, `xarecover_handlerton`), whatever the engines are; InnoDB with MyRocks loses the same."""
    if engine != "Terrace":
        pytest.skip("needs another engine beside InnoDB")
    server = private(["--terrace-memory=16777216", *binlog_options(tmp_path)])
    numbers, acknowledged, rng = itertools.count(1), set(), random.Random(11)
    tables = ("theirs", "ours")

    def work(who, connection):
        order = [f"INSERT INTO {table} VALUES (%s)" for table in tables] + [f"UPDATE last_of_{table} SET n = %s WHERE who = {who}" for table in tables]
        own = random.Random(who)
        while True:
            number = next(numbers)
            try:
                connection.begin()
                for statement in own.sample(order, len(order)):
                    run(connection, statement, (number,))
                connection.commit()
            except (pymysql.err.MySQLError, OSError):
                return
            acknowledged.add(number)

    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        for table, one in zip(tables, ("InnoDB", "Terrace")):
            run(connection, f"CREATE TABLE {table} (n BIGINT PRIMARY KEY) ENGINE={one}")
            run(connection, f"CREATE TABLE last_of_{table} (who INT PRIMARY KEY, n BIGINT) ENGINE={one}")
            run(connection, f"INSERT INTO last_of_{table} SELECT seq, 0 FROM seq_0_to_3")
        for kill in range(KILLS):
            threads = [threading.Thread(target=work, args=(who, server.connect(database="d"))) for who in range(4)]
            [thread.start() for thread in threads]
            time.sleep(0.3 + rng.random())
            wait_until(lambda: len(acknowledged) > 40 * (kill + 1) or not any(thread.is_alive() for thread in threads))
            server.kill9()
            [thread.join() for thread in threads]
            server.start()
            held = contents(server.connect(database="d"), (*tables, "last_of_theirs", "last_of_ours"))
            assert held["theirs"] == held["ours"] and held["last_of_theirs"] == held["last_of_ours"], kill
            assert acknowledged <= {number for (number,) in held["ours"]}, kill
        assert len(acknowledged) > 40 * KILLS
    finally:
        end(server)


def test_the_comparison_with_the_binary_log_notices_an_extra_and_a_lost_transaction(engine, run, tmp_path):
    """The control: the comparison above must be able to fail, in both directions."""
    if engine != "Terrace":
        pytest.skip("the control puts a volume of Terrace back")
    server = private(["--terrace-memory=16777216", *binlog_options(tmp_path)])
    volume = os.path.join(server.directory, "data", "terrace")

    def differences(database="d", tables=("ledger",)):
        ours = {row for rows in contents(server.connect(database=database), tables).values() for row in rows}
        log = {row for rows in replayed(tmp_path, database, tables).values() for row in rows}
        return ours - log, log - ours

    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        run(connection, "CREATE TABLE d.ledger (id INT PRIMARY KEY, note VARCHAR(20)) ENGINE=Terrace")
        run(connection, "INSERT INTO d.ledger VALUES (1, 'both'), (2, 'both')")
        assert differences() == (set(), set())
        # In the engine, not in the log.
        run(connection, "SET SESSION sql_log_bin = 0")
        run(connection, "INSERT INTO d.ledger VALUES (3, 'extra')")
        run(connection, "SET SESSION sql_log_bin = 1")
        server.kill9()
        server.start()
        assert differences() == ({(3, "extra")}, set())
        # In the log, but not in the engine, which is restored to its earlier state.
        server.stop()
        shutil.copytree(volume, f"{volume}.before")
        server.start()
        run(server.connect(database="d"), "INSERT INTO ledger VALUES (4, 'lost')")
        server.kill9()
        shutil.rmtree(volume)
        os.rename(f"{volume}.before", volume)
        server.start()
        assert differences() == ({(3, "extra")}, {(4, "lost")})
    finally:
        end(server)
