"""Terrace as source and replica: the replica has what the source committed, by rows and by statements, with several appliers.

TERRACE_REPLICATION=ROW,MIXED,STATEMENT names the formats of the binary log; ROW alone without it."""

import os
import random
import threading
import time

import pymysql
import pytest
from conftest import contents, end, private, run as execute

TABLES = ("account", "ledger", "kept")
FORMS = os.environ.get("TERRACE_REPLICATION", "ROW").split(",")


def settle(source, replica, seconds=250):
    """Waits until the replica has applied what the source has logged."""
    position = execute(source, "SELECT @@gtid_binlog_pos")[0][0]
    reached = execute(replica, f"SELECT MASTER_GTID_WAIT('{position}', {seconds})")[0][0]
    assert reached == 0, execute(replica, "SHOW SLAVE STATUS")


def pair(engine, form, replica_options=()):
    source = private(["--terrace-memory=16777216", "--log-bin=log", "--server-id=1", f"--binlog-format={form}"])
    replica = private(["--terrace-memory=16777216", "--log-bin=log", "--server-id=2", "--log-slave-updates", f"--binlog-format={form}",
                       f"--default-storage-engine={engine}", f"--gtid-pos-auto-engines={engine}", "--skip-slave-start",
                       "--slave-transaction-retries=100", "--slave-net-timeout=2", "--master-retry-count=0", *replica_options])
    one, other = source.connect(), replica.connect()
    execute(other, "RESET MASTER")
    follow(one, other)
    return source, replica, one, other


def follow(one, other):
    """Makes `other` a replica of `one`, from here on."""
    execute(one, "RESET MASTER")
    execute(other, f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={one.port}, MASTER_USER='root', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1")
    execute(other, "START SLAVE")


def fill(one, engine):
    execute(one, "CREATE DATABASE d")
    one.select_db("d")
    execute(one, f"CREATE TABLE account (id INT PRIMARY KEY, v INT NOT NULL, KEY (v)) ENGINE={engine}")
    execute(one, f"CREATE TABLE ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, who INT, note VARCHAR(200), UNIQUE (who, id)) ENGINE={engine}")
    execute(one, f"CREATE SEQUENCE numbers CACHE 5 ENGINE={engine}")
    execute(one, f"CREATE TABLE kept (n BIGINT PRIMARY KEY, b BLOB) ENGINE={engine}")
    execute(one, "INSERT INTO account SELECT seq, 100 FROM seq_1_to_20")


def work(source, who, rounds, form):
    """Transactions over few rows, so that those of several sessions meet. (No sequence by statement: the server refuses that.)"""
    mine, rng = source.connect(database="d"), random.Random(who)
    done = 0
    while done < rounds:
        try:
            a, b = rng.sample(range(1, 21), 2)
            execute(mine, "BEGIN")
            execute(mine, "UPDATE account SET v = v - 1 WHERE id = %s", (a,))
            if rng.random() < 0.3:
                execute(mine, "SAVEPOINT s")
                execute(mine, "DELETE FROM ledger WHERE who = %s ORDER BY id LIMIT 2", (who,))
                execute(mine, "ROLLBACK TO s")
            execute(mine, "UPDATE account SET v = v + 1 WHERE id = %s", (b,))
            execute(mine, "INSERT INTO ledger (who, note) VALUES (%s, REPEAT('x', %s)), (%s, 'two')", (who, a, who))
            if rng.random() < 0.3:
                next_value = "NEXT VALUE FOR numbers" if form != "STATEMENT" else str(who * 10**6 + rng.randrange(10**6))
                execute(mine, f"INSERT INTO kept VALUES ({next_value}, REPEAT('b', 20000))")
            if rng.random() < 0.2:
                execute(mine, "DELETE FROM ledger WHERE who = %s ORDER BY id LIMIT 3", (who,))
            execute(mine, "ROLLBACK" if rng.random() < 0.1 else "COMMIT")
            done += 1
        except pymysql.err.OperationalError as error:
            assert error.args[0] in (1205, 1213), error


def compare(one, other):
    other.select_db("d")
    theirs, ours = contents(one, TABLES), contents(other, TABLES)
    assert theirs == ours
    assert sum(v for _, v in ours["account"]) == 2000 and ours["ledger"]
    for table in TABLES:
        assert execute(other, f"CHECK TABLE {table} EXTENDED")[0][3] == "OK"


@pytest.mark.parametrize("form", FORMS)
def test_a_replica_has_what_the_source_committed(engine, form):
    """Several appliers run transactions side by side that their source ran one after the other. An earlier one then waits for a later
    one's row lock, and the later one for the earlier one's commit: the server must be told of the wait, or both stand until a
    timeout. And the replica is killed in between: it goes on where it was, for its position is in the engine, too."""
    source, replica, one, other = pair(engine, form, ["--slave-parallel-threads=6", "--slave-parallel-mode=optimistic",
                                                      "--terrace-lock-wait-timeout-ms=600000"])
    try:
        fill(one, engine)
        began = time.time()
        for kill in (True, False):
            threads = [threading.Thread(target=work, args=(source, who + 4 * kill, 60, form)) for who in range(4)]
            [t.start() for t in threads]
            if kill:
                time.sleep(0.3)
                replica.kill9()
                replica.start()
                other = replica.connect()
                execute(other, "START SLAVE")
            [t.join() for t in threads]
            settle(one, other)
        compare(one, other)
        positions = execute(other, "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema = 'mysql' AND table_name LIKE 'gtid_slave_pos%'")
        assert (engine,) in positions
        status = dict(execute(other, "SHOW GLOBAL STATUS LIKE 'Slave%'"))
        # Two that stood until the time-out of their lock would stand for ten minutes.
        assert time.time() - began < 500, status
    finally:
        end(replica)
        end(source)


def test_a_replica_rolls_back_a_later_transaction_that_blocks_an_earlier_one(engine):
    """Two transactions change one row; the replica is made to apply both at once: the server's counter of retries shows the retry."""
    source, replica, one, other = pair(engine, "ROW", ["--slave-parallel-threads=8", "--slave-parallel-mode=aggressive",
                                                       "--terrace-lock-wait-timeout-ms=600000", "--innodb-lock-wait-timeout=600"])
    try:
        execute(one, "CREATE DATABASE d")
        one.select_db("d")
        execute(one, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT) ENGINE={engine}")
        execute(one, "INSERT INTO t VALUES (1, 0, 0), (2, 0, 0)")
        settle(one, other)
        # On a busy machine they may happen to come one after the other: then once more.
        for turn in range(1, 9):
            execute(other, "STOP SLAVE SQL_THREAD")
            for n in range(1, 151):
                execute(one, "BEGIN")
                execute(one, "UPDATE t SET w = w + 1 WHERE id = %s", (1 + n % 2,))
                execute(one, "UPDATE t SET v = v + %s", (n,))
                execute(one, "COMMIT")
            execute(other, "START SLAVE SQL_THREAD")
            settle(one, other)
            other.select_db("d")
            assert execute(other, "SELECT * FROM t") == [(1, 11325 * turn, 75 * turn), (2, 11325 * turn, 75 * turn)]
            retried = int(dict(execute(other, "SHOW GLOBAL STATUS LIKE 'Slave_retried_transactions'"))["Slave_retried_transactions"])
            if retried > 0:
                break
        assert retried > 0
    finally:
        end(replica)
        end(source)


@pytest.mark.parametrize("form", ["ROW", "STATEMENT"])
def test_counters_and_numbers_that_alter_generates_are_the_same_on_the_replica(engine, form):
    """A counter that comes down, and a column that is numbered with the source's step: each is the one statement in the log."""
    source, replica, one, other = pair(engine, form)
    try:
        execute(one, "CREATE DATABASE d")
        one.select_db("d")
        execute(one, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine}")
        execute(one, f"CREATE TABLE n (a INT PRIMARY KEY) ENGINE={engine}")
        execute(one, "INSERT INTO t (v) SELECT seq FROM seq_1_to_100")
        execute(one, "DELETE FROM t WHERE id > 50")
        execute(one, "INSERT INTO n SELECT seq * 37 % 101 FROM seq_1_to_100")
        execute(one, "ALTER TABLE t AUTO_INCREMENT = 10, ALGORITHM=INSTANT")
        execute(one, "SET auto_increment_increment = 10, auto_increment_offset = 3")
        execute(one, "ALTER TABLE n ADD id INT AUTO_INCREMENT UNIQUE, ALGORITHM=INPLACE")
        settle(one, other)
        other.select_db("d")
        for table in ("t", "n"):
            assert execute(one, f"SHOW CREATE TABLE {table}") == execute(other, f"SHOW CREATE TABLE {table}")
        execute(one, "INSERT INTO t (v) VALUES (0)")
        execute(one, "INSERT INTO n (a) VALUES (1000)")
        settle(one, other)
        assert contents(one, ["t", "n"]) == contents(other, ["t", "n"])
        logged = [row[5] for row in execute(one, "SHOW BINLOG EVENTS") if "ALTER" in row[5]]
        assert len(logged) == 2, logged
    finally:
        end(replica)
        end(source)


@pytest.mark.parametrize("key", ["PRIMARY KEY (a)", "KEY (a)"], ids=["its primary key", "another index"])
def test_a_large_change_of_rows_that_fits_the_source_fits_the_replica(engine, key):
    """A scan that changes 82,000 rows is one lock on its source; the replica, which looks up row after row, had a lock for each, and stopped with 1206."""
    memory = ["--innodb-buffer-pool-size=16777216"] if engine == "InnoDB" else ["--terrace-memory=16777216"]
    source, replica, one, other = pair(engine, "ROW", memory)
    try:
        execute(one, "CREATE DATABASE d")
        one.select_db("d")
        execute(one, f"CREATE TABLE t (a INT NOT NULL, b INT, {key}, KEY (b)) ENGINE={engine}")
        execute(one, "INSERT INTO t SELECT seq, NULL FROM seq_1_to_81920")
        execute(one, "UPDATE t SET b = a / 2")
        execute(one, "DELETE FROM t WHERE a % 3 = 0")
        settle(one, other)
        assert execute(other, "CHECKSUM TABLE d.t") == execute(one, "CHECKSUM TABLE d.t")
        assert execute(other, "CHECK TABLE d.t EXTENDED")[0][3] == "OK"
    finally:
        end(replica)
        end(source)
