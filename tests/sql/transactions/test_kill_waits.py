"""KILL and max_statement_time end a statement at once when it waits for the store: for room in a full object buffer, or
for a page. The statement is rolled back; the transaction and the server stay usable."""

import os
import random
import signal
import threading
import time

import pymysql
import pytest
from test_object import cold_server, is_mostly_far, load, status, store, wait_for  # noqa: F401 (fixtures)

ROWS_A_STATEMENT = 40
# What is far is only in the store.
MORE_OPTIONS = ["--terrace-without=clean-copies"]
KILLED, TIMED_OUT, GONE = 1317, 1969, (1927, 2006, 2013)
# A statement that has been under way for this many seconds is waiting; what it waits for takes a minute and more.
LONG = 1.2
# A directory answers at once.
S3_ALONE = pytest.mark.parametrize("store", ["s3"], indirect=True)


def insert(start):
    end = start + ROWS_A_STATEMENT - 1
    return f"INSERT INTO t SELECT seq, seq, -seq, REPEAT('x', 900) FROM seq_{start}_to_{end}"


class Victim(threading.Thread):
    """Runs statements until one fails; says with what, when, and which was under way since when."""

    def __init__(self, connection, statements):
        super().__init__(daemon=True)
        self.connection, self.statements = connection, statements
        self.error = self.ended = None
        self.done, self.since = 0, time.time()
        self.start()

    def run(self):
        try:
            for statement in self.statements:
                self.since = time.time()
                cursor = self.connection.cursor()
                cursor.execute(statement)
                cursor.fetchall()
                self.done += 1
        except pymysql.Error as error:
            self.error = error.args[0]
        self.ended = time.time()

    def waits(self, least, seconds=LONG):
        """One has been under way for long; on a busy machine one of the first may be, too."""
        assert self.ended is None, f"it ended with {self.error}"
        return self.done >= least and time.time() - self.since > seconds


def kill(control, victim, how, least=0):
    """How the statement ended: long before the minute that it would wait. A writer that is throttled, or has a busy machine, may take long and
    yet succeed. If its statement ends as the KILL arrives, the server forgets the KILL, and the next statement is the one to kill."""
    wait_for(lambda: victim.waits(least))
    while not victim.ended:
        under_way, began = victim.done, time.time()
        control.cursor().execute(f"KILL {how} {victim.connection.thread_id()}")
        while not victim.ended and victim.done == under_way:
            assert time.time() - began < 40, f"the kill was not heard: {under_way} statements done, {where(control, victim)}"
            time.sleep(0.02)
        wait_for(lambda: victim.ended or victim.waits(least))
    assert victim.ended - began < 20, f"{victim.ended - began:.1f} s after the kill"
    return victim.error


def where(control, victim):
    """What the server and the engine say of the victim."""
    cursor = control.cursor()
    cursor.execute(f"SELECT COMMAND, TIME_MS, STATE, INFO FROM information_schema.PROCESSLIST WHERE ID = {victim.connection.thread_id()}")
    found = list(cursor.fetchall())
    cursor.execute("SHOW ENGINE TERRACE STATUS")
    return found, cursor.fetchall()[0][2]


def test_a_statement_that_waits_for_room_in_the_object_buffer_is_killed_at_once(cold_server, store, run):
    control = cold_server.connect()
    run(control, "CREATE DATABASE d")
    control.select_db("d")
    run(control, "CREATE TABLE t (id INT PRIMARY KEY, v INT, k INT, pad VARCHAR(1000), KEY (k)) ENGINE=Terrace")
    store.die()
    connection = cold_server.connect(database="d")
    victim = Victim(connection, (insert(1 + n * ROWS_A_STATEMENT) for n in range(1000)))
    assert kill(control, victim, "QUERY", least=26) == KILLED
    rows = victim.done * ROWS_A_STATEMENT
    assert rows > 1000 and run(control, "SELECT COUNT(*), SUM(v) FROM t") == [(rows, rows * (rows + 1) // 2)]
    # In a transaction: the statement goes, what was before it stays, and a roll back takes all.
    connection.cursor().execute("BEGIN")
    connection.cursor().execute("UPDATE t SET v = v + 1 WHERE id = 7")
    victim = Victim(connection, [insert(100_001 + n * ROWS_A_STATEMENT) for n in range(100)])
    assert kill(control, victim, "QUERY") == KILLED
    assert run(connection, "SELECT v FROM t WHERE id = 7") == [(8,)]
    connection.rollback()
    assert run(control, "SELECT COUNT(*), SUM(v) FROM t") == [(rows, rows * (rows + 1) // 2)]
    # A statement's own time.
    began = time.time()
    with pytest.raises(pymysql.Error) as raised:
        for n in range(100):
            began = time.time()
            run(connection, f"SET STATEMENT max_statement_time=1 FOR {insert(100_001 + n * ROWS_A_STATEMENT)}")
    assert raised.value.args[0] == TIMED_OUT and time.time() - began < 30
    rows = run(control, "SELECT COUNT(*) FROM t")[0][0]
    # The connection.
    victim = Victim(connection, [insert(200_001 + n * ROWS_A_STATEMENT) for n in range(100)])
    assert kill(control, victim, "CONNECTION") in GONE
    # The client hears of it before the server's thread has ended; a statement that was about to commit may do so after the KILL.
    mine = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {connection.thread_id()}"
    wait_for(lambda: not run(control, mine))
    answered = rows + victim.done * ROWS_A_STATEMENT
    rows = run(control, "SELECT COUNT(*) FROM t")[0][0]
    assert rows in (answered, answered + ROWS_A_STATEMENT)
    store.live()
    connection = cold_server.connect(database="d")
    wait_for(lambda: int(status(control, run, "object_buffer_slots_free")) > 20)
    connection.cursor().execute(insert(300_001))
    connection.commit()
    cold_server.restart()
    found = run(cold_server.connect(database="d"), "SELECT COUNT(*) FROM t")
    assert found == [(rows + ROWS_A_STATEMENT,)]


@pytest.mark.parametrize("store", ["directory"], indirect=True)
def test_definitions_that_wait_for_room_are_killed_at_once_and_leave_nothing(cold_server, store, run):
    """A statement queued behind another one's wait notices its KILL, too. Such statements waited for a minute, and then failed with a full object buffer."""
    control = cold_server.connect()
    run(control, "CREATE DATABASE d")
    control.select_db("d")
    for table in "tu":
        run(control, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, k INT, pad VARCHAR(1000), KEY (k)) ENGINE=Terrace")
    run(control, "INSERT INTO u VALUES (1, 1, 1, 'x')")
    store.die()
    assert kill(control, Victim(cold_server.connect(database="d"), (insert(1 + n * ROWS_A_STATEMENT) for n in range(1000))), "QUERY", least=26) == KILLED
    create, truncate = "CREATE TABLE n{} LIKE u", "TRUNCATE TABLE u"
    # The throttle has held the rows back before all room was taken.
    holder = Victim(cold_server.connect(database="d"), (create.format(n) for n in range(1000)))
    wait_for(lambda: holder.waits(0, 5))
    there = [("t",), ("u",)] + [(f"n{n}",) for n in range(holder.done)]
    for second in (truncate, create.format("more")):
        behind = Victim(cold_server.connect(database="d"), [second])
        assert kill(control, behind, "QUERY") == KILLED, second
        assert kill(control, holder, "QUERY") == KILLED
        assert sorted(run(control, "SHOW TABLES")) == sorted(there) and run(control, "SELECT * FROM u") == [(1, 1, 1, "x")]
        holder = Victim(cold_server.connect(database="d"), [truncate])
        wait_for(lambda: holder.waits(0, 5))
    assert kill(control, holder, "QUERY") == KILLED
    store.live()
    wait_for(lambda: int(status(control, run, "object_buffer_slots_free")) > 20)
    run(control, create.format("more"))
    run(control, truncate)
    assert run(control, "SELECT COUNT(*) FROM nmore") == run(control, "SELECT COUNT(*) FROM u") == [(0,)]


WHOLE = "SELECT COUNT(*), SUM(v), SUM(LENGTH(pad)) FROM t FORCE INDEX (PRIMARY)"


def all_far(server, run):
    """A table whose pages are only in the store, and a server that has just started and has not opened it. Returns the answer to WHOLE."""
    control = server.connect()
    load(control, run)
    wait_for(lambda: is_mostly_far(control, run))
    control.select_db("d")
    answer = run(control, WHOLE)
    server.restart()
    control = server.connect()
    # What the shutdown wrote sinks, too.
    near = "SELECT SUM(PAGES_VOLUME + PAGES_MEMORY) FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'"
    wait_for(lambda: int(run(control, near)[0][0]) == 0)
    return answer


@S3_ALONE
def test_a_statement_that_waits_for_a_page_from_the_store_is_killed_at_once(cold_server, store, run):
    whole, answer = WHOLE, all_far(cold_server, run)
    control, connection = cold_server.connect(database="d"), cold_server.connect(database="d")
    run(control, "SELECT id FROM t LIMIT 0")
    store.s3.process.send_signal(signal.SIGSTOP)
    try:
        assert kill(control, Victim(connection, [whole]), "QUERY") == KILLED
        began = time.time()
        with pytest.raises(pymysql.Error) as raised:
            run(connection, f"SET STATEMENT max_statement_time=1 FOR {whole}")
        assert raised.value.args[0] == TIMED_OUT and time.time() - began < 25
        # What is near is served; a roll back of what was changed there needs nothing that is far.
        assert run(connection, "SELECT 1") == [(1,)]
        assert kill(control, Victim(connection, [whole]), "CONNECTION") in GONE
    finally:
        store.s3.process.send_signal(signal.SIGCONT)
    assert run(control, whole) == answer


# All waits for the store outside of a transaction, not a random sample.
ALL = os.environ.get("TERRACE_ALL_WAITS") == "1"


@S3_ALONE
def test_a_statement_that_waits_for_the_store_outside_of_a_transaction_is_killed_at_once(cold_server, store, run):
    """Opening a table, statistics, CHECK, what the optimizer asks: nothing of it is half done afterwards."""
    whole, answer = WHOLE, all_far(cold_server, run)
    control = cold_server.connect(database="d")
    table = "information_schema.TABLES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'"
    opening = ["SELECT id FROM t LIMIT 0", "SHOW TABLE STATUS LIKE 't'", f"SELECT TABLE_ROWS FROM {table}", "CHECK TABLE t", "ANALYZE TABLE t",
               "INSERT INTO t VALUES (0, 0, 0, '')"]
    opened = ["ANALYZE TABLE t", "CHECK TABLE t", "CHECK TABLE t QUICK", "EXPLAIN SELECT * FROM t WHERE k BETWEEN 4000 AND 4007",
              "SELECT * FROM t WHERE k BETWEEN 5000 AND 5007"]

    def killed(statements):
        for statement in statements:
            connection = cold_server.connect(database="d")
            # Those that answer with rows may say there that they were interrupted.
            assert kill(control, Victim(connection, [statement]), "QUERY") in (KILLED, None), statement
            assert run(connection, "SELECT 1") == [(1,)]
            # Two at once wait for each other, too.
            both = [Victim(cold_server.connect(database="d"), [statement]) for _ in range(2)]
            wait_for(lambda: all(victim.waits(0) for victim in both))
            for victim in reversed(both):
                assert kill(control, victim, "QUERY") in (KILLED, None), statement
            print(statement, [victim.error for victim in both])
            began = time.time()
            try:
                run(connection, f"SET STATEMENT max_statement_time=1 FOR {statement}")
            except pymysql.Error as error:
                assert error.args[0] == TIMED_OUT, statement
            assert time.time() - began < 25, statement

    for statements in (opening, opened):
        some = statements if ALL else random.sample(statements, 2)
        store.s3.process.send_signal(signal.SIGSTOP)
        try:
            killed(some)
            victim = Victim(cold_server.connect(database="d"), statements[:1])
            assert kill(control, victim, "CONNECTION") in GONE
        finally:
            store.s3.process.send_signal(signal.SIGCONT)
        if statements is opening:
            assert run(control, "SELECT id FROM t LIMIT 0") == []
    assert run(control, whole) == answer
    assert run(control, "CHECK TABLE t")[-1][3] == "OK" and run(control, "ANALYZE TABLE t")[-1][3] == "OK"
    assert run(control, "SELECT COUNT(*) FROM t FORCE INDEX (k)") == [answer[0][:1]]


@S3_ALONE
def test_a_statement_whose_time_is_over_waits_for_nothing_more(cold_server, store, run):
    """Its time ends one wait. The waits that the statement would come to after that, for pages or for another session that samples the
    table, it begins no more."""
    # Statistics are kept, so that opening the table makes none.
    all_far(cold_server, run)
    control = cold_server.connect(database="d")
    run(control, "SELECT id FROM t LIMIT 0")
    ranges = " OR ".join(f"k BETWEEN {n * 700} AND {n * 700 + 7}" for n in range(1, 12))
    store.s3.process.send_signal(signal.SIGSTOP)
    try:
        sampler = Victim(cold_server.connect(database="d"), ["ANALYZE TABLE t"])
        wait_for(lambda: sampler.waits(0))
        for statement in ("ANALYZE TABLE t", f"EXPLAIN SELECT * FROM t WHERE {ranges}"):
            connection = cold_server.connect(database="d", read_timeout=60)
            began = time.time()
            try:
                run(connection, f"SET STATEMENT max_statement_time=2 FOR {statement}")
            except pymysql.Error as error:
                assert error.args[0] == TIMED_OUT, statement
            assert time.time() - began < 12, statement
            assert run(connection, "SELECT 1") == [(1,)]
        assert kill(control, sampler, "QUERY") in (KILLED, None)
    finally:
        store.s3.process.send_signal(signal.SIGCONT)
    assert run(control, "ANALYZE TABLE t")[-1][3] == "OK"
