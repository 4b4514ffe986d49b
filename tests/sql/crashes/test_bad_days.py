"""Failures of statements and sessions: KILL, dropped connections, refused keys and rows. Each is played on an InnoDB twin
too, and a client must see the same: codes, rows, which session may go on."""

import socket
import struct
import threading
import time

import pymysql
import pytest
from conftest import wait_until as wait_for

ROWS = 600
# Slow enough that a kill always comes in the middle: tens of milliseconds a row, the whole half a minute.
SLOW = "BENCHMARK(100000, MD5(pad))"
GONE = (1927, 2006, 2013)  # a killed connection: the server's word for it, or the network's


class Other(threading.Thread):
    """A statement in a session of its own, and its outcome: rows, or an error code."""

    def __init__(self, connection, sql):
        super().__init__(daemon=True)
        self.connection, self.sql, self.answer = connection, sql, None
        self.start()

    def run(self):
        try:
            cursor = self.connection.cursor()
            cursor.execute(self.sql)
            self.answer = list(cursor.fetchall())
        except (pymysql.err.Error, OSError, AttributeError) as error:
            self.answer = error.args[0] if error.args else 2013

    def end(self):
        self.join(120)
        assert not self.is_alive(), f"{self.sql} did not end"
        return self.answer


def error_of(connection, sql):
    """The error of a statement that must fail, or its rows."""
    cursor = connection.cursor()
    try:
        cursor.execute(sql)
    except pymysql.err.MySQLError as error:
        return error.args
    return list(cursor.fetchall())


def runs(control, connection, sql):
    """The session is in the middle of the statement."""
    cursor = control.cursor()
    cursor.execute("SELECT INFO FROM information_schema.PROCESSLIST WHERE ID = %s", (connection.thread_id(),))
    found = cursor.fetchall()
    return bool(found) and found[0][0] == sql


def kill(control, connection, how):
    control.cursor().execute(f"KILL {how} {connection.thread_id()}")


def abort(connection):
    """The network is gone: a reset, and no word to the server."""
    connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection._force_close()


@pytest.fixture
def twins(db, engine, run):
    """Two equal tables, `t` of the engine and `i` of InnoDB."""
    for table, one in (("t", engine), ("i", "InnoDB")):
        run(db, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT NOT NULL, pad VARCHAR(200), KEY named (v)) ENGINE={one}")
        run(db, f"INSERT INTO {table} SELECT seq, seq, REPEAT('x', 150) FROM seq_1_to_{ROWS}")
    return db


@pytest.fixture
def session(server, db, run):
    opened = []

    def open_one():
        one = server.connect(database=db.name)
        run(one, "SET SESSION innodb_lock_wait_timeout = 10, terrace_lock_wait_timeout_ms = 10000")
        opened.append(one)
        return one

    yield open_one
    for one in opened:
        if one.open:
            one._force_close()


def whole(run, connection, table):
    """Everything that a half-done statement would show, by both indexes."""
    return [
        run(connection, f"SELECT COUNT(*), SUM(v), SUM(id * v) FROM {table} FORCE INDEX ({index}) WHERE v > -1000000") for index in ("PRIMARY", "named")
    ]


def free_at_once(run, connection, table):
    """Every row can be changed: a leaked lock would cause 1205 after the sessions' ten seconds."""
    run(connection, f"UPDATE {table} SET v = v + 1")
    run(connection, f"UPDATE {table} SET v = v - 1")
    return True


def killed_in_update(server, session, run, table, how, in_transaction):
    """UPDATE is killed in its middle. Returns all that can be seen of it."""
    victim, control = session(), session()
    seen = []
    if in_transaction:
        run(victim, "BEGIN")
        run(victim, f"UPDATE {table} SET v = v + 1000000 WHERE id = {ROWS}")
    sql = f"UPDATE {table} SET v = v + 5000 + {SLOW}"
    statement = Other(victim, sql)
    wait_for(lambda: runs(control, victim, sql))
    time.sleep(0.15)
    assert runs(control, victim, sql), "it ended before it could be killed"
    kill(control, victim, how)
    code = statement.end()
    seen.append("gone" if how == "CONNECTION" and code in GONE + (1317,) else code)
    if how == "QUERY":
        seen.append(whole(run, victim, table))
        run(victim, "COMMIT")
    else:
        wait_for(lambda: not run(control, f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {victim.thread_id()}"))
    seen.append(whole(run, control, table))
    seen.append(free_at_once(run, control, table))
    return seen


@pytest.mark.parametrize("in_transaction", [False, True], ids=["autocommit", "transaction"])
@pytest.mark.parametrize("how", ["QUERY", "CONNECTION"])
def test_a_killed_update_is_rolled_back_whole(server, twins, session, run, how, in_transaction):
    theirs = killed_in_update(server, session, run, "i", how, in_transaction)
    ours = killed_in_update(server, session, run, "t", how, in_transaction)
    assert ours == theirs
    assert ours[0] == (1317 if how == "QUERY" else "gone") and ours[-1] is True
    assert [row[3] for row in run(twins, "CHECK TABLE t")] == ["OK"]


@pytest.mark.parametrize("how", ["QUERY", "CONNECTION"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM {0} a, {0} b, {0} c, {0} d WHERE a.v + b.v + c.v + d.v = -1",
        "SELECT a.id FROM {0} a JOIN {0} b FORCE INDEX (named) ON b.v > a.v JOIN {0} c JOIN {0} d ON d.v + c.v + b.v < 0",
        "SELECT COUNT(*) FROM {0} WHERE v + " + SLOW + " < 0 FOR UPDATE",
    ],
    ids=["scan", "index", "locking"],
)
def test_a_killed_select_ends(server, twins, session, run, how, sql):
    def play(table):
        victim, control = session(), session()
        text = sql.format(table)
        statement = Other(victim, text)
        wait_for(lambda: runs(control, victim, text))
        time.sleep(0.1)
        # By itself it would end with rows, and most of them after hours.
        kill(control, victim, how)
        code = statement.end()
        after = run(victim, "SELECT COUNT(*) FROM " + table) if how == "QUERY" else None
        wait_for(lambda: not runs(control, victim, text))
        return ["gone" if how == "CONNECTION" and code in GONE + (1317,) else code, after, free_at_once(run, control, table)]

    theirs, ours = play("i"), play("t")
    assert ours == theirs
    assert ours[0] == (1317 if how == "QUERY" else "gone")


@pytest.mark.parametrize("how", ["QUERY", "CONNECTION", "network"])
@pytest.mark.parametrize("in_transaction", [False, True], ids=["autocommit", "transaction"])
def test_a_session_that_waits_for_a_lock_is_ended(server, twins, session, run, how, in_transaction):
    """It has changed half of the rows when it meets the lock."""

    def play(table):
        holder, victim, control = session(), session(), session()
        seen = []
        run(holder, "BEGIN")
        run(holder, f"UPDATE {table} SET v = 0 WHERE id = 50")
        if in_transaction:
            run(victim, "BEGIN")
            run(victim, f"UPDATE {table} SET v = v + 1 WHERE id = 400")
        # The server hears of a lost network when the wait has ended by itself. A killed session would wait longer than `end` does.
        seconds = 1 if how == "network" else 600
        run(victim, f"SET SESSION innodb_lock_wait_timeout = {seconds}, terrace_lock_wait_timeout_ms = {1000 * seconds}")
        sql = f"UPDATE {table} SET v = v + 7 WHERE id <= 100"
        statement = Other(victim, sql)
        wait_for(lambda: runs(control, victim, sql))
        time.sleep(0.1)
        if how == "network":
            abort(victim)
        else:
            kill(control, victim, how)
            code = statement.end()
            seen.append("gone" if how == "CONNECTION" and code in GONE + (1317,) else code)
        if how == "QUERY":
            seen.append(run(victim, f"SELECT SUM(v) FROM {table}"))
            run(victim, "COMMIT")
        else:
            gone = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {victim.thread_id()}"
            wait_for(lambda: not run(control, gone))
        run(holder, "COMMIT")
        seen.append(whole(run, control, table))
        seen.append(free_at_once(run, control, table))
        return seen

    theirs, ours = play("i"), play("t")
    assert ours == theirs


@pytest.mark.parametrize("how", ["QUIT", "reset", "KILL"])
def test_a_connection_lost_between_statements_leaves_nothing(server, twins, session, run, how):
    def play(table):
        victim, control = session(), session()
        run(victim, "BEGIN")
        run(victim, f"INSERT INTO {table} VALUES (100000, 1, 'new')")
        run(victim, f"UPDATE {table} SET v = v * 2 WHERE id < 300")
        run(victim, f"DELETE FROM {table} WHERE id BETWEEN 501 AND {ROWS}")
        assert run(victim, f"SELECT COUNT(*) FROM {table}") == [(501,)]
        number = victim.thread_id()
        {"QUIT": victim.close, "reset": lambda: abort(victim), "KILL": lambda: kill(control, victim, "CONNECTION")}[how]()
        wait_for(lambda: not run(control, f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number}"))
        return [whole(run, control, table), free_at_once(run, control, table), error_of(control, f"INSERT INTO {table} VALUES (100000, 1, '')")]

    theirs, ours = play("i"), play("t")
    assert ours == theirs
    assert ours[0][0] == [(ROWS, ROWS * (ROWS + 1) // 2, ROWS * (ROWS + 1) * (2 * ROWS + 1) // 6)]


COPIES = {
    "create select": "CREATE TABLE {0}_copy ENGINE={1} SELECT id, v + " + SLOW + " AS w FROM {0}",
    "alter": "ALTER TABLE {0} ADD COLUMN w VARCHAR(200) AS (SHA2(REPEAT(pad, 50000), 512)) STORED, ALGORITHM=COPY",
    "insert select": "INSERT INTO {0} SELECT id + 100000, v + " + SLOW + ", pad FROM {0}",
}


@pytest.mark.parametrize("how", ["QUERY", "CONNECTION"])
@pytest.mark.parametrize("copy", list(COPIES))
def test_an_alter_killed_while_it_copies_leaves_the_table_and_no_files(server, twins, session, run, engine, copy, how):
    def play(table, one):
        victim, control = session(), session()
        sql = COPIES[copy].format(table, one)
        statement = Other(victim, sql)
        wait_for(lambda: runs(control, victim, sql))
        time.sleep(0.15)
        assert runs(control, victim, sql), "it ended before it could be killed"
        kill(control, victim, how)
        code = statement.end()
        wait_for(lambda: not runs(control, victim, sql))
        seen = ["gone" if how == "CONNECTION" and code in GONE + (1317,) else code, run(control, "SHOW TABLES")]
        return seen + [whole(run, control, table), free_at_once(run, control, table)]

    theirs, ours = play("i", "InnoDB"), play("t", engine)
    assert ours == theirs
    if engine != "InnoDB":
        left = run(twins, "SELECT DISTINCT TABLE_NAME FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = %s", (twins.name,))
        assert list(left) == [("t",)], "the engine kept a table that the server dropped"


REFUSED = {
    "a primary key too long": ["CREATE TABLE {0} (a VARCHAR(4000) PRIMARY KEY) ENGINE={1} CHARACTER SET latin1"],
    "a unique prefix too long": ["CREATE TABLE {0} (a TEXT, UNIQUE (a(4000))) ENGINE={1} CHARACTER SET latin1"],
    "a composite key too long": ["CREATE TABLE {0} (a VARCHAR(2000), b VARCHAR(2000), KEY (a, b)) ENGINE={1} CHARACTER SET latin1"],
    "a wide character's key too long": ["CREATE TABLE {0} (a VARCHAR(769) PRIMARY KEY) ENGINE={1} CHARACTER SET utf8mb4"],
    "long keys": [
        "CREATE TABLE {0} (a VARCHAR(300) PRIMARY KEY, b VARCHAR(300), UNIQUE (b)) ENGINE={1} CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        "INSERT INTO {0} VALUES (REPEAT('\u4e2d', 300), REPEAT('\u0436', 300)), (REPEAT('\u00df', 150), REPEAT('\u0416', 299))",
        "INSERT INTO {0} VALUES ('new', REPEAT('\u0416', 300))",
        "INSERT INTO {0} VALUES (REPEAT('ss', 150), 'new')",
        "SELECT LENGTH(a), LENGTH(b) FROM {0} FORCE INDEX (b) WHERE b > '' ORDER BY 1",
    ],
    "a row too large": ["CREATE TABLE {0} (a VARCHAR(30000), b VARCHAR(30000), c VARCHAR(30000)) ENGINE={1} CHARACTER SET latin1"],
    "a column too long": ["CREATE TABLE {0} (a VARCHAR(70000)) ENGINE={1} CHARACTER SET latin1"],
    "too many keys": ["CREATE TABLE {0} (" + ", ".join(f"c{i} INT, KEY (c{i})" for i in range(65)) + ") ENGINE={1}"],
    "a value too long": ["CREATE TABLE {0} (a VARCHAR(5)) ENGINE={1}", "INSERT INTO {0} VALUES ('123456')", "SELECT * FROM {0}"],
    "duplicates, by name": [
        "CREATE TABLE {0} (id INT PRIMARY KEY, a INT, b VARCHAR(9) COLLATE utf8mb4_general_ci, UNIQUE one (a), UNIQUE two (b, a)) ENGINE={1}",
        "INSERT INTO {0} VALUES (1, 1, 'x'), (2, 2, 'y')",
        "INSERT INTO {0} VALUES (1, 9, 'z')",
        "INSERT INTO {0} VALUES (3, 1, 'z')",
        "INSERT INTO {0} VALUES (3, 3, 'z'), (4, 4, 'z'), (5, 2, 'X')",
        "UPDATE {0} SET a = 2 WHERE id = 1",
        "UPDATE {0} SET id = 2 WHERE id = 1",
        "UPDATE {0} SET a = a + 1 ORDER BY a",
        "UPDATE {0} SET a = a + 1 ORDER BY a DESC",
        "INSERT IGNORE INTO {0} VALUES (1, 50, 'q'), (6, 3, 'q'), (7, 7, 'q')",
        "SELECT * FROM {0} ORDER BY id",
        "SELECT a FROM {0} FORCE INDEX (two) WHERE b > '' ORDER BY b, a",
    ],
    "duplicates met by ALTER": [
        "CREATE TABLE {0} (id INT PRIMARY KEY, a INT) ENGINE={1}",
        "INSERT INTO {0} VALUES (1, 1), (2, 1)",
        "ALTER TABLE {0} ADD UNIQUE late (a)",
        "CREATE UNIQUE INDEX late ON {0} (a)",
        "ALTER TABLE {0} DROP PRIMARY KEY, ADD PRIMARY KEY (a)",
        "INSERT INTO {0} VALUES (3, 1)",
        "SELECT * FROM {0} ORDER BY id",
    ],
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused_statements_fail_with_innodbs_error(db, engine, name):
    def play(table, one):
        return [[str(part).replace(f"{db.name}.{table}", "T") for part in error_of(db, sql.format(table, one))] for sql in REFUSED[name]]

    assert play("t", engine) == play("i", "InnoDB")


def test_an_entry_of_two_texts_at_their_longest_is_stored(db, engine):
    """A secondary entry holds the primary key as well: both are more than a node takes, and are cut."""
    error_of(db, f"CREATE TABLE t (a VARCHAR(3072) PRIMARY KEY, b VARCHAR(3072), KEY (b)) ENGINE={engine} CHARACTER SET latin1")
    error_of(db, "INSERT INTO t VALUES ('one', 'one')")
    assert error_of(db, "INSERT INTO t VALUES ('two', 'two'), (REPEAT('a', 3072), REPEAT('b', 3072))") == []
    assert error_of(db, "UPDATE t SET a = REPEAT('a', 3000), b = REPEAT('b', 3000) WHERE a = 'one'") == []
    assert error_of(db, "SELECT LENGTH(a), LENGTH(b) FROM t FORCE INDEX (b) ORDER BY b") == [(3000, 3000), (3072, 3072), (3, 3)]
    assert error_of(db, "SELECT LENGTH(a), LENGTH(b) FROM t FORCE INDEX (PRIMARY) ORDER BY a DESC") == [(3, 3), (3072, 3072), (3000, 3000)]
    assert error_of(db, "INSERT INTO t VALUES (REPEAT('a', 1000), REPEAT('b', 300))") == []
    assert error_of(db, "SELECT LENGTH(a) FROM t FORCE INDEX (b) WHERE b < 'c' AND LENGTH(b) = 300") == [(1000,)]
    assert error_of(db, "CHECK TABLE t")[0][3] == "OK"


def test_lock_timeouts_and_deadlocks_roll_back_as_much_as_innodbs(twins, session, run):
    """1205 rolls the statement back, 1213 the transaction: the rows of the table show it."""

    def play(table):
        a, b, control = session(), session(), session()
        seen = []
        run(b, "SET SESSION innodb_lock_wait_timeout = 1, terrace_lock_wait_timeout_ms = 1000")
        run(a, "BEGIN")
        run(a, f"UPDATE {table} SET v = 0 WHERE id = 20")
        run(b, "BEGIN")
        run(b, f"UPDATE {table} SET v = v + 100000 WHERE id = 30")
        seen.append(error_of(b, f"UPDATE {table} SET v = v + 1 WHERE id BETWEEN 10 AND 25")[0])
        seen.append(run(b, f"SELECT SUM(v) FROM {table}"))
        run(a, "ROLLBACK")
        run(b, "COMMIT")
        seen.append(whole(run, control, table))
        # A deadlock. Whose it is may differ: the victim's transaction is gone whole, the other's stays whole.
        run(a, "BEGIN")
        run(b, "BEGIN")
        run(a, f"UPDATE {table} SET v = v + 1 WHERE id IN (1, 2, 3)")
        run(b, f"UPDATE {table} SET v = v + 1 WHERE id IN (4, 5, 6)")
        waits = Other(a, f"UPDATE {table} SET v = v + 1 WHERE id = 4")
        wait_for(lambda: runs(control, a, waits.sql))
        time.sleep(0.2)
        mine = error_of(b, f"UPDATE {table} SET v = v + 1 WHERE id = 1")
        seen.append(sorted([str(waits.end()), str(mine[0] if mine else [])]))
        run(a, "COMMIT")
        run(b, "COMMIT")
        changed = run(control, f"SELECT SUM(v - id) FROM {table} WHERE id <= 6")
        seen += [changed, free_at_once(run, control, table)]
        return seen

    theirs, ours = play("i"), play("t")
    assert ours == theirs
    assert ours[0] == 1205 and "1213" in ours[3] and ours[4] == [(4,)]
