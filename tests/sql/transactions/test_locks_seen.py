"""SQL shows transactions, locks, waits and the last deadlock correctly."""

import os
import re
import threading
import time
from datetime import datetime, timedelta

import pymysql
import pytest
from conftest import wait_until

DEADLOCK, DENIED = 1213, 1227


class Asks(threading.Thread):
    """A statement that another session runs meanwhile."""

    def __init__(self, connection, statement):
        super().__init__(daemon=True)
        self.connection, self.statement, self.error = connection, statement, None
        self.start()

    def run(self):
        try:
            self.connection.cursor().execute(self.statement)
        except pymysql.Error as error:
            self.error = error.args[0]

    def answer(self):
        self.join(120)
        assert not self.is_alive(), "it waits for ever"
        return self.error


def seen(connection, table, where="TRUE", order="1"):
    cursor = connection.cursor(pymysql.cursors.DictCursor)
    cursor.execute(f"SELECT * FROM information_schema.TERRACE_{table} WHERE {where} ORDER BY {order}")
    return cursor.fetchall()


def of(connection, watcher):
    """The transaction of a connection, as it is seen."""
    rows = seen(watcher, "TRX", f"CONNECTION_ID = {connection.thread_id()}")
    return rows[0] if rows else None


def locks(transaction, watcher):
    rows = seen(watcher, "LOCKS", f"TRX_ID = {transaction['TRX_ID']}", "INDEX_NAME, TYPE, LOCK_KEY")
    return [tuple(row[name] for name in ("STATUS", "MODE", "TYPE", "TABLE_NAME", "INDEX_NAME", "LOCK_KEY", "LOCK_KEY_END")) for row in rows]


def wait_of(connection, watcher):
    """The wait of a connection's transaction, once there is one."""
    rows = wait_until(lambda: seen(watcher, "LOCK_WAITS", f"REQUESTING_CONNECTION_ID = {connection.thread_id()}"))
    assert len(rows) == 1
    return rows[0]


@pytest.fixture
def two(server, db, run):
    """Two sessions, and `db` to watch."""
    run(db, "CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE=Terrace")
    run(db, "INSERT INTO t VALUES (1,10),(2,20),(3,30),(40,400)")
    yield [server.connect(database=db.name) for _ in "ab"]
    # Nothing is left of what the test has ended.
    mine = f"TABLE_SCHEMA = '{db.name}'"
    assert not seen(db, "LOCKS", mine) and not seen(db, "LOCK_WAITS") and not seen(db, "TRX", "STATE <> 'RUNNING'")


def test_a_locked_row_and_its_waiting_transactions_are_shown(db, two, run):
    a, b = two
    before = datetime.now()
    run(a, "BEGIN")
    run(a, "SELECT * FROM t WHERE id = 1 FOR UPDATE")
    # The server forgets a statement a moment after its client has the answer.
    holder = wait_until(lambda: (one := of(a, db)) and one["STATEMENT"] is None and one)
    assert holder["STATE"] == "RUNNING" and holder["ISOLATION_LEVEL"] == "REPEATABLE READ"
    assert (holder["UNDO_RECORDS"], holder["LOCKS"], holder["WAIT_STARTED"], holder["REQUESTED_LOCK_ID"], holder["STATEMENT"]) == (0, 1, None, None, None)
    assert before - timedelta(seconds=2) <= holder["STARTED"] <= datetime.now() + timedelta(seconds=2)
    assert locks(holder, db) == [("GRANTED", "X", "RECORD", "t", "PRIMARY", "80000001", None)]

    run(b, "SET tx_isolation = 'READ-COMMITTED'")
    statement = "UPDATE t SET v = 11 WHERE id = 1 /* höher ☃ */"
    asks = Asks(b, statement)
    wait = wait_of(b, db)
    waiter = of(b, db)
    assert (waiter["STATE"], waiter["ISOLATION_LEVEL"]) == ("LOCK WAIT", "READ COMMITTED")
    assert waiter["STATEMENT"] == statement
    assert (wait["REQUESTING_TRX_ID"], wait["BLOCKING_TRX_ID"], wait["BLOCKING_CONNECTION_ID"]) == (waiter["TRX_ID"], holder["TRX_ID"], a.thread_id())
    assert waiter["STARTED"] <= wait["WAIT_STARTED"] + timedelta(milliseconds=5) and wait["WAIT_STARTED"] - waiter["WAIT_STARTED"] < timedelta(milliseconds=20)
    assert wait["REQUESTED_LOCK_ID"] == waiter["REQUESTED_LOCK_ID"]
    (wanted,) = seen(db, "LOCKS", f"LOCK_ID = '{waiter['REQUESTED_LOCK_ID']}'")
    assert (wanted["STATUS"], wanted["MODE"], wanted["TABLE_SCHEMA"], wanted["LOCK_KEY"]) == ("WAITING", "X", db.name, "80000001")
    run(a, "COMMIT")
    assert asks.answer() is None
    assert of(a, db) is None and of(b, db) is None


def counters(connection, run):
    return {name.lower()[len("terrace_row_lock_"):]: int(value) for name, value in run(connection, "SHOW GLOBAL STATUS LIKE 'Terrace_row_lock_%'")}


def test_how_long_rows_are_waited_for_is_counted(db, two, run):
    a, b = two
    before = counters(db, run)
    run(a, "BEGIN")
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    asks = Asks(b, "UPDATE t SET v = 1 WHERE id = 1")
    wait_of(b, db)
    during = counters(db, run)
    assert during["current_waits"] == before["current_waits"] + 1
    time.sleep(0.5)
    run(a, "COMMIT")
    assert asks.answer() is None
    after = counters(db, run)
    assert after["current_waits"] == before["current_waits"] and after["waits"] > before["waits"]
    took = after["wait_microseconds"] - before["wait_microseconds"]
    assert 400_000 < took < 60_000_000 and after["wait_microseconds_max"] + 1 >= took         # both are rounded down
    assert after["wait_microseconds_avg"] == after["wait_microseconds"] // after["waits"] <= after["wait_microseconds_max"]
    kinds = dict(run(db, "SELECT NAME, TYPE FROM information_schema.TERRACE_METRICS WHERE NAME LIKE 'row_lock_%wait%'"))
    assert kinds == {"row_lock_waits": "counter", "row_lock_current_waits": "gauge", "row_lock_wait_microseconds": "counter", "row_lock_wait_microseconds_max": "gauge", "row_lock_wait_microseconds_avg": "gauge"}


def test_a_changed_row_is_shown_as_locked_while_another_transaction_waits_for_it(db, two, run):
    a, b = two
    run(a, "BEGIN")
    run(a, "INSERT INTO t VALUES (9,90)")
    writer = of(a, db)
    assert (writer["UNDO_RECORDS"], writer["LOCKS"]) == (2, 0) and locks(writer, db) == []
    asks = Asks(b, "SELECT * FROM t WHERE id = 9 LOCK IN SHARE MODE")
    wait = wait_of(b, db)
    assert wait["BLOCKING_TRX_ID"] == writer["TRX_ID"]
    assert locks(writer, db) == [("GRANTED", "X", "RECORD", "t", "PRIMARY", "80000009", None)]
    assert [lock[:3] for lock in locks(of(b, db), db)] == [("WAITING", "S", "RECORD")]
    run(a, "INSERT INTO t VALUES (10,100)")
    assert of(a, db)["UNDO_RECORDS"] == 4
    run(a, "ROLLBACK")
    assert asks.answer() is None


def test_a_locked_gap_and_a_waiting_insert_are_shown(db, two, run):
    a, b = two
    run(a, "BEGIN")
    run(a, "SELECT * FROM t WHERE id = 7 FOR UPDATE")
    assert locks(of(a, db), db) == [("GRANTED", "GAP", "GAP", "t", "PRIMARY", "80000007", "80000008")]
    asks = Asks(b, "INSERT INTO t VALUES (7,70)")
    assert wait_of(b, db)["BLOCKING_CONNECTION_ID"] == a.thread_id()
    assert ("WAITING", "X,INSERT_INTENTION", "RECORD", "t", "PRIMARY", "80000007", None) in locks(of(b, db), db)
    run(a, "ROLLBACK")
    assert asks.answer() is None


def test_many_row_locks_are_shown_as_a_range(db, two, run):
    a, _ = two
    run(db, "INSERT INTO t SELECT seq, seq FROM seq_100_to_3000")
    run(a, "BEGIN")
    run(a, "SELECT * FROM t WHERE id >= 2 FOR UPDATE")
    held = locks(of(a, db), db)
    assert of(a, db)["LOCKS"] == len(held) <= 4
    gaps = [lock for lock in held if lock[2] == "GAP"]
    assert gaps and min(lock[5] for lock in gaps) <= "80000002" and gaps[-1][6] == "supremum"
    (rows,) = [lock for lock in held if lock[2] == "RANGE"]
    assert rows[:2] == ("GRANTED", "X") and rows[5] <= "80000003" and rows[6] == "80000bb800"  # 3000 and its successor
    run(a, "COMMIT")


def test_the_last_deadlock_is_kept(db, two, run):
    a, b = two
    run(a, "BEGIN")
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    run(b, "BEGIN")
    run(b, "UPDATE t SET v = 0 WHERE id IN (2, 3)")
    transactions = {one.thread_id(): of(one, db)["TRX_ID"] for one in two}
    first = "UPDATE t SET v = 1 WHERE id = 2 /* " + "x" * 2000 + " */"
    asks = Asks(a, first)
    wait_of(a, db)
    second = "UPDATE t SET v = 2 WHERE id = 1"
    closes = Asks(b, second)
    # The transaction with fewer changes is the victim.
    assert (asks.answer(), closes.answer()) == (DEADLOCK, None)
    run(b, "ROLLBACK")
    members = seen(db, "LAST_DEADLOCK", order="MEMBER")
    assert [(one["MEMBER"], one["CONNECTION_ID"], one["GAVE_WAY"]) for one in members] == [(1, b.thread_id(), 0), (2, a.thread_id(), 1)]
    assert [one["TRX_ID"] for one in members] == [transactions[b.thread_id()], transactions[a.thread_id()]]
    assert [one["WAITS_FOR_TRX_ID"] for one in members] == [transactions[a.thread_id()], transactions[b.thread_id()]]
    assert {(one["TABLE_SCHEMA"], one["TABLE_NAME"], one["INDEX_NAME"], one["MODE"], one["TYPE"]) for one in members} == {(db.name, "t", "PRIMARY", "X", "RECORD")}
    assert [one["LOCK_KEY"] for one in members] == ["80000001", "80000002"]
    assert members[0]["STATEMENT"] == second and members[1]["STATEMENT"] == first[:1023]
    assert abs(members[0]["DETECTED"] - datetime.now()) < timedelta(seconds=100)

    status = run(db, "SHOW ENGINE TERRACE STATUS")
    assert [row[1] for row in status] == ["", "latest_deadlock", "activity", "history", "log", "tiers", "transactions"]
    # The first row is what programs read: a name and something on each line.
    assert all(len(line.split(None, 1)) == 2 for line in status[0][2].strip().splitlines())
    text = status[1][2]
    assert text.startswith("LATEST DETECTED DEADLOCK\n") and second in text and first[:1023] in text
    assert f"*** (1) WAITING FOR X RECORD key 80000001 of table {db.name}/t index PRIMARY, which TRANSACTION {transactions[a.thread_id()]} " in text
    assert text.endswith("*** WE ROLL BACK TRANSACTION (2)\n")
    # What its table was called is not kept.
    run(db, "DROP TABLE t")
    assert [one["TABLE_NAME"] for one in seen(db, "LAST_DEADLOCK")] == ["", ""]


def test_a_transaction_shows_what_innodbs_shows(db, two, run):
    a, b = two
    run(db, "CREATE TABLE other (id INT PRIMARY KEY) ENGINE=Terrace")
    run(db, "INSERT INTO other VALUES (1)")
    run(a, "SET unique_checks = 0, foreign_key_checks = 0")
    run(a, "BEGIN")
    run(a, "SELECT * FROM t WHERE id <= 3 FOR UPDATE")

    def idle():
        return wait_until(lambda: (one := of(a, db)) and one["OPERATION_STATE"] is None and one)

    one = idle()
    assert (one["ROWS_LOCKED"], one["ROWS_MODIFIED"], one["WEIGHT"], one["TABLES_IN_USE"], one["TABLES_LOCKED"]) == (4, 0, 4, 0, 1)
    run(a, "UPDATE t SET v = v + 1 WHERE id = 1")
    run(a, "INSERT INTO t VALUES (50, 500)")
    one = idle()
    assert one["ROWS_MODIFIED"] == 2 and one["WEIGHT"] == one["UNDO_RECORDS"] + one["ROWS_LOCKED"] > 6
    assert (one["UNIQUE_CHECKS"], one["FOREIGN_KEY_CHECKS"], one["IS_READ_ONLY"]) == (0, 0, 0)
    run(a, "SAVEPOINT s")
    run(a, "DELETE FROM t WHERE id IN (2, 3)")
    run(a, "DELETE FROM other")
    one = idle()
    assert (one["ROWS_MODIFIED"], one["TABLES_LOCKED"]) == (5, 2)
    run(a, "ROLLBACK TO s")
    assert idle()["ROWS_MODIFIED"] == 2

    run(b, "START TRANSACTION READ ONLY")
    run(b, "SELECT * FROM t")
    reader = of(b, db)
    assert [reader[name] for name in ("IS_READ_ONLY", "UNIQUE_CHECKS", "FOREIGN_KEY_CHECKS", "TABLES_LOCKED", "ROWS_LOCKED", "ROWS_MODIFIED", "WEIGHT")] == [1, 1, 1, 0, 0, 0, 0]
    run(b, "COMMIT")
    asks = Asks(b, "UPDATE t JOIN other ON other.id = t.id SET t.v = 3 WHERE t.id = 1")
    wait_of(b, db)
    waiter = of(b, db)
    assert (waiter["TABLES_IN_USE"], waiter["TABLES_LOCKED"]) == (2, 2) and waiter["OPERATION_STATE"]
    run(a, "ROLLBACK")
    assert asks.answer() is None


def test_the_documented_view_shows_which_transaction_waits_for_which(server, db, two, run):
    a, b = two
    c = server.connect(database=db.name)
    docs = open(os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "observability.md")).read()

    def in_docs(beginning):
        at = docs.index(f"    {beginning}")
        return docs[at:docs.index(";\n", at)]

    run(db, in_docs("CREATE OR REPLACE SQL SECURITY INVOKER VIEW sys.terrace_lock_waits"))
    try:
        run(a, "BEGIN")
        run(a, "UPDATE t SET v = 0 WHERE id = 1")
        second = Asks(b, "UPDATE t SET v = 1 WHERE id = 1")
        wait_of(b, db)
        third = Asks(c, "UPDATE t SET v = 2 WHERE id = 1")
        wait_of(c, db)
        cursor = db.cursor(pymysql.cursors.DictCursor)
        cursor.execute("SELECT * FROM sys.terrace_lock_waits")
        first, behind = cursor.fetchall()
        assert (first["waiting_pid"], first["blocking_pid"], behind["waiting_pid"], behind["blocking_pid"]) == (b.thread_id(), a.thread_id(), c.thread_id(), b.thread_id())
        assert (first["locked_table"], first["locked_index"], first["locked_type"], first["locked_data"]) == (f"`{db.name}`.`t`", "PRIMARY", "RECORD", "1")
        assert first["waiting_query"] == "UPDATE t SET v = 1 WHERE id = 1" and first["waiting_lock_mode"] == "X" and first["blocking_query"] is None
        assert (first["blocking_trx_state"], behind["blocking_trx_state"], first["blocking_trx_rows_modified"]) == ("RUNNING", "LOCK WAIT", 1)
        assert first["sql_kill_blocking_connection"] == f"KILL {a.thread_id()}" and 0 <= first["wait_age_secs"] < 100
        roots = run(db, in_docs("SELECT blocking_pid, blocking_trx_id"))
        assert [(row[0], row[4]) for row in roots] == [(a.thread_id(), 1)]
        # It has the columns of the server's own view for InnoDB, except two.
        named = lambda view: {row[0] for row in run(db, f"SHOW COLUMNS FROM sys.{view}")}
        assert named("innodb_lock_waits") - named("terrace_lock_waits") == {"blocking_lock_id", "blocking_lock_mode"}
        run(db, first["sql_kill_blocking_connection"])
        assert second.answer() is None and third.answer() is None
    finally:
        run(db, "DROP VIEW sys.terrace_lock_waits")


def data(connection, watcher, where="TYPE = 'RECORD'"):
    """The locks of a connection's transaction: LOCK_DATA by index."""
    rows = seen(watcher, "LOCKS", f"{where} AND TRX_ID = {of(connection, watcher)['TRX_ID']}")
    return {row["INDEX_NAME"]: row["LOCK_DATA"] for row in rows}


KEYS = [
    ("TINYINT", "-5", "-5"),
    ("SMALLINT UNSIGNED", "60000", "60000"),
    ("MEDIUMINT", "-70000", "-70000"),
    ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551615"),
    ("BIGINT NOT NULL", "-9223372036854775808", "-9223372036854775808"),
    ("DECIMAL(12,3)", "-1234.5", "-1234.500"),
    ("DOUBLE", "-0.25", "-0.25"),
    ("FLOAT", "1.5", "1.5"),
    ("DATE", "'2026-11-25'", "'2026-11-25'"),
    ("DATETIME(3)", "'2026-11-25 22:30:01.125'", "'2026-11-25 22:30:01.125'"),
    ("TIME", "'-10:20:30'", "'-10:20:30'"),
    ("TIMESTAMP", "'2026-11-25 22:30:01'", "'2026-11-25 22:30:01'"),
    ("YEAR", "2026", "2026"),
    ("ENUM('x','y')", "'y'", "2"),
    ("BINARY(3)", "X'616200'", "0x616200"),
    ("VARBINARY(9)", "X'00ff00'", "0x00ff00"),
    ("BIT(11)", "b'10000000001'", "0x0401"),
    ("INET6", "'::1'", "'::1'"),
    ("INT", "NULL", "NULL"),
    # What can't be turned back is not guessed.
    ("VARCHAR(20)", "'Abc'", None),
    ("CHAR(20)", "'Abc'", None),
]


def test_keys_of_locks_are_shown_as_text(db, two, run):
    a, _ = two
    columns = ", ".join(f"c{at} {kind}" for at, (kind, _, _) in enumerate(KEYS))
    keys = ", ".join(f"KEY k{at} (c{at}), KEY d{at} (c{at} DESC)" for at in range(len(KEYS)))
    run(db, f"CREATE TABLE w (id INT PRIMARY KEY, {columns}, {keys}) ENGINE=Terrace")
    run(db, f"INSERT INTO w VALUES (-7, {', '.join(value for _, value, _ in KEYS)})")
    run(a, "SET tx_isolation = 'READ-COMMITTED'")
    for at, (kind, value, words) in enumerate(KEYS):
        for index in (f"k{at}", f"d{at}"):
            run(a, "BEGIN")
            assert len(run(a, f"SELECT * FROM w FORCE INDEX ({index}) WHERE c{at} <=> {value} FOR UPDATE")) == 1, (kind, index)
            expected = {"PRIMARY": "-7", index: None if words is None else f"{words}, -7"}
            assert data(a, db) == expected, (kind, index)
            run(a, "COMMIT")


def test_keys_of_several_columns_and_ranges_are_shown_as_text(db, two, run):
    a, b = two
    run(db, "CREATE TABLE w (x INT, y INT, z INT, PRIMARY KEY (x, y), KEY z (z, x)) ENGINE=Terrace PARTITION BY HASH (x) PARTITIONS 2")
    run(db, "INSERT INTO w VALUES (1,2,3),(4,5,6)")
    run(a, "BEGIN")
    run(a, "SELECT * FROM w FORCE INDEX (z) WHERE z = 3 FOR UPDATE")
    # A column that the index has already isn't told again.
    assert data(a, db) == {"PRIMARY": "1, 2", "z": "3, 1, 2"}
    run(a, "COMMIT")

    run(db, "CREATE TABLE h (v INT, KEY v (v)) ENGINE=Terrace")
    run(db, "INSERT INTO h VALUES (10),(20)")
    run(a, "BEGIN")
    run(a, "SELECT * FROM h FORCE INDEX (v) WHERE v = 20 FOR UPDATE")
    held = data(a, db)
    number = re.fullmatch(r"20, (0x[0-9a-f]{16})", held["v"]).group(1)
    assert held["(rows)"] == number
    run(a, "COMMIT")

    run(a, "BEGIN")
    run(a, "SELECT * FROM t WHERE id = 7 FOR UPDATE")
    assert data(a, db, "TYPE = 'GAP'") == {"PRIMARY": "7 .. 8"}
    asks = Asks(b, "INSERT INTO t VALUES (7, 70)")
    wait = wait_of(b, db)
    assert [wait[name] for name in ("MODE", "TYPE", "TABLE_SCHEMA", "TABLE_NAME", "INDEX_NAME", "LOCK_KEY", "LOCK_DATA")] == ["X,INSERT_INTENTION", "RECORD", db.name, "t", "PRIMARY", "80000007", "7"]
    run(a, "COMMIT")
    assert asks.answer() is None
    run(a, "BEGIN")
    run(a, "SELECT * FROM t IGNORE INDEX (v) FOR UPDATE")
    assert data(a, db, "TYPE = 'GAP'")["PRIMARY"] == "infimum pseudo-record .. supremum pseudo-record"
    (rows,) = seen(db, "LOCKS", f"TYPE = 'RANGE' AND TRX_ID = {of(a, db)['TRX_ID']}")
    assert rows["LOCK_DATA"].endswith(" .. behind 40")
    run(a, "COMMIT")


def test_each_deadlock_is_in_the_error_log_if_that_is_asked_for(server, db, two, run):
    a, b = two
    path = os.path.join(server.directory, "error.log")

    def said_of_a_deadlock(mark):
        before = os.path.getsize(path)
        for one, row in ((a, 1), (b, 2)):
            run(one, "BEGIN")
            run(one, f"UPDATE t SET v = 0 WHERE id = {row}")
        asks = Asks(a, f"UPDATE t SET v = 1 WHERE id = 2 /* {mark} {'x' * 900} */")
        wait_of(a, db)
        closes = Asks(b, "UPDATE t SET v = 2 WHERE id = 1")
        assert {asks.answer(), closes.answer()} == {DEADLOCK, None}
        run(a, "ROLLBACK")
        run(b, "ROLLBACK")
        with open(path, errors="replace") as file:
            file.seek(before)
            return file.read()

    assert run(db, "SELECT @@GLOBAL.terrace_print_all_deadlocks") == [(0,)]
    assert "deadlock" not in said_of_a_deadlock("unsaid").lower()
    run(db, "SET GLOBAL terrace_print_all_deadlocks = ON")
    try:
        for mark in ("first", "second"):
            said = said_of_a_deadlock(mark)
            (shown,) = [text for _, name, text in run(db, "SHOW ENGINE TERRACE STATUS") if name == "latest_deadlock"]
            assert mark in said and "Terrace: a deadlock was found\n" in said and said.endswith(shown), said
    finally:
        run(db, "SET GLOBAL terrace_print_all_deadlocks = OFF")
    assert "deadlock" not in said_of_a_deadlock("unsaid").lower()


def test_show_engine_status_describes_transactions_locks_and_waits(db, two, run):
    def sections():
        return {name: text for _, name, text in run(db, "SHOW ENGINE TERRACE STATUS")}

    a, b = two
    sections()
    run(a, "BEGIN")
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    run(a, "INSERT INTO t SELECT seq + 100, seq FROM seq_1_to_500")
    asks = Asks(b, "UPDATE t SET v = 1 WHERE id = 1 /* asks */")
    wait_of(b, db)
    time.sleep(1.1)
    looked = time.monotonic()
    words = sections()
    holder, waiter = of(a, db)["TRX_ID"], of(b, db)["TRX_ID"]
    first, last = words["transactions"].index(f"TRANSACTION {holder}, RUNNING, "), words["transactions"].index(f"TRANSACTION {waiter}, LOCK WAIT, ")
    assert re.match(rf"TRANSACTION {holder}, RUNNING, [1-9]\d*\.\d{{3}} s old, REPEATABLE READ, connection {a.thread_id()}\n1 rows locked by 1 locks, 501 rows changed, \d{{4}} undo records\n", words["transactions"][first:])
    wait = rf"waits [1-9]\d*\.\d{{3}} s for X RECORD key 80000001 of table {db.name}/t index PRIMARY, which TRANSACTION {holder} \(connection {a.thread_id()}\) has or asked for before\n"
    assert first < last and re.search(wait + r"UPDATE t SET v = 1 WHERE id = 1 /\* asks \*/\n", words["transactions"][last:])
    seconds = float(re.match(r"averages a second, of the last (\d+\.\d) seconds\n", words["activity"]).group(1))
    inserted = float(re.search(r"rows: \S+ read, (\S+) inserted", words["activity"]).group(1))
    assert seconds >= 1 and 450 < inserted * seconds < 600
    # The next look is of the time since this one.
    assert float(re.search(r"last (\S+) seconds", sections()["activity"]).group(1)) <= time.monotonic() - looked + 0.1
    time.sleep(1.1)
    run(a, "COMMIT")
    assert asks.answer() is None
    again = sections()
    assert float(re.search(r"(\S+) microseconds of waiting", again["activity"]).group(1)) > 100_000
    assert "0.00 inserted" in again["activity"] and str(holder) not in again["transactions"]
    assert "committed transactions have undo that is kept" in again["history"] and "has its checkpoint at" in again["log"]
    assert [line.split(":")[0] for line in again["tiers"].splitlines()[:4]] == ["memory", "flash", "object buffer on the volume", "object store"]


def test_prepared_transactions_and_rollbacks_are_shown(db, two, server, run):
    a, b = two
    run(a, f"XA START '{db.name}'")
    run(a, "UPDATE t SET v = 1 WHERE id = 1")
    run(a, f"XA END '{db.name}'")
    run(a, f"XA PREPARE '{db.name}'")
    assert of(a, db)["STATE"] == "PREPARED"
    number = of(a, db)["TRX_ID"]
    a.close()
    # Its connection is gone, and it is there.
    left = wait_until(lambda: seen(db, "TRX", f"TRX_ID = {number} AND CONNECTION_ID IS NULL"))
    assert left[0]["STATE"] == "PREPARED" and left[0]["STATEMENT"] is None
    asks = Asks(b, "UPDATE t SET v = 2 WHERE id = 1")
    assert wait_of(b, db)["BLOCKING_TRX_ID"] == number
    run(db, f"XA COMMIT '{db.name}'")
    assert asks.answer() is None
    assert not seen(db, "TRX", f"TRX_ID = {number}")

    for rows in (20_000, 80_000, 320_000):
        run(b, "BEGIN")
        run(b, f"INSERT INTO t SELECT seq + 1000, seq FROM seq_1_to_{rows}")
        done = of(b, db)["UNDO_RECORDS"]
        rolls = Asks(b, "ROLLBACK")
        states = []
        while rolls.is_alive():
            states += [(one["STATE"], one["UNDO_RECORDS"]) for one in [of(b, db)] if one]
        assert rolls.answer() is None
        if any(state == "ROLLING BACK" and records < done for state, records in states):
            return
    raise AssertionError("no roll-back was seen")


def test_a_prepared_transaction_found_at_recovery_is_shown_and_waited_for(own_server, run):
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    run(connection, "CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=Terrace")
    run(connection, "INSERT INTO d.t VALUES (1,1)")
    run(connection, "XA START 'left'")
    run(connection, "UPDATE d.t SET v = 2")
    run(connection, "XA END 'left'")
    run(connection, "XA PREPARE 'left'")
    own_server.kill9()
    own_server.start()
    watcher, other = own_server.connect(), own_server.connect()
    (left,) = seen(watcher, "TRX")
    assert (left["STATE"], left["CONNECTION_ID"], left["ISOLATION_LEVEL"]) == ("PREPARED", None, None) and left["UNDO_RECORDS"] >= 1
    asks = Asks(other, "UPDATE d.t SET v = 3")
    assert wait_of(other, watcher)["BLOCKING_TRX_ID"] == left["TRX_ID"]
    run(watcher, "XA ROLLBACK 'left'")
    assert asks.answer() is None
    assert not seen(watcher, "TRX") and not seen(watcher, "LOCKS")


def test_users_without_the_process_privilege_see_no_locks_as_with_innodb(server, db, run):
    run(db, "CREATE OR REPLACE USER seer@'127.0.0.1'")
    try:
        plain = pymysql.connect(host="127.0.0.1", port=server.port, user="seer")
        for table in ("INNODB_TRX", "TERRACE_TRX", "TERRACE_LOCKS", "TERRACE_LOCK_WAITS", "TERRACE_LAST_DEADLOCK"):
            with pytest.raises(pymysql.err.OperationalError) as error:
                run(plain, f"SELECT * FROM information_schema.{table}")
            assert error.value.args[0] == DENIED, table
        run(db, "GRANT PROCESS ON *.* TO seer@'127.0.0.1'")
        allowed = pymysql.connect(host="127.0.0.1", port=server.port, user="seer")
        run(allowed, "SELECT * FROM information_schema.TERRACE_LOCKS")
    finally:
        run(db, "DROP USER seer@'127.0.0.1'")
