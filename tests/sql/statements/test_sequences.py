"""Sequences: values are handed out as with InnoDB, none is repeated after a kill, and a rollback returns none."""

import threading
import time

import pymysql
import pytest
from conftest import end, private, wait_until


def test_a_rollback_returns_no_sequence_value(db, engine, run):
    run(db, f"CREATE SEQUENCE s START WITH 10 INCREMENT BY 5 CACHE 3 ENGINE={engine}")
    assert run(db, "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()") == [(engine,)]
    run(db, f"CREATE TABLE t (id BIGINT PRIMARY KEY DEFAULT (NEXT VALUE FOR s), v INT) ENGINE={engine}")
    run(db, "BEGIN")
    run(db, "INSERT INTO t (v) VALUES (1), (2), (3), (4)")
    assert run(db, "SELECT id FROM t") == [(10,), (15,), (20,), (25,)]
    run(db, "ROLLBACK")
    assert run(db, "SELECT NEXTVAL(s), LASTVAL(s)") == [(30, 30)]
    run(db, "BEGIN")
    assert run(db, "SELECT SETVAL(s, 100)") == [(100,)]
    run(db, "ROLLBACK")
    assert run(db, "SELECT NEXT VALUE FOR s") == [(105,)]


def test_reads_see_what_is_committed_now(server, db, engine, run):
    run(db, f"CREATE SEQUENCE s CACHE 2 ENGINE={engine}")
    run(db, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    run(db, "BEGIN")
    assert run(db, "SELECT next_not_cached_value FROM s") == [(1,)]
    other = server.connect(database=db.name)
    assert [run(other, "SELECT NEXTVAL(s)")[0][0] for _ in range(3)] == [1, 2, 3]
    assert run(db, "SELECT next_not_cached_value FROM s") == [(5,)]
    assert run(db, "SELECT next_not_cached_value FROM s LOCK IN SHARE MODE") == [(5,)]
    run(db, "COMMIT")


def test_two_sessions_take_different_values_without_waiting(server, db, engine, run):
    run(db, f"CREATE SEQUENCE s NOCACHE ENGINE={engine}")
    run(db, "BEGIN")
    assert run(db, "SELECT NEXTVAL(s)") == [(1,)]
    seen, lock = [1], threading.Lock()

    def take():
        mine = server.connect(database=db.name)
        for _ in range(50):
            run(mine, "BEGIN")
            value = run(mine, "SELECT NEXTVAL(s)")[0][0]
            run(mine, "ROLLBACK")
            with lock:
                seen.append(value)

    threads = [threading.Thread(target=take) for _ in range(4)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert sorted(seen) == list(range(1, 202))
    run(db, "ROLLBACK")


def test_definitions_change_as_in_innodb(db, engine, run):
    seen = {}
    for name in ("InnoDB", engine):
        answers = seen[name] = []
        for sql in (
            f"CREATE SEQUENCE s MINVALUE -3 MAXVALUE 3 START 1 CACHE 2 CYCLE ENGINE={name}",
            *["SELECT NEXTVAL(s)"] * 9,
            "ALTER SEQUENCE s NOCYCLE RESTART 3",
            *["SELECT NEXTVAL(s)"] * 2,
            "SELECT SETVAL(s, -2, 0)",
            "SELECT NEXTVAL(s), PREVIOUS VALUE FOR s",
            "SELECT * FROM s",
            "INSERT INTO s VALUES (5, 1, 9, 1, 1, 4, 0, 0)",
            "SELECT NEXTVAL(s)",
            "UPDATE s SET cycle_option = 1",
            "DELETE FROM s",
            "TRUNCATE s",
            "RENAME TABLE s TO r",
            "SELECT NEXTVAL(r)",
            "FLUSH TABLES",
            "SELECT NEXTVAL(r)",
            "CHECK TABLE r",
            "CREATE TEMPORARY SEQUENCE tmp ENGINE=" + name,
            "SELECT NEXTVAL(tmp)",
            "DROP SEQUENCE tmp",
            "ALTER TABLE r ENGINE=" + ("Aria" if name == engine else "MyISAM"),
            "SELECT NEXTVAL(r)",
            "ALTER TABLE r ENGINE=" + name,
            "SELECT NEXTVAL(r)",
            "CREATE OR REPLACE SEQUENCE r START 7 ENGINE=" + name,
            "SELECT NEXTVAL(r)",
            "SELECT NEXTVAL(r) FROM seq_1_to_3",
            "DROP SEQUENCE r",
        ):
            try:
                answers.append((sql.replace(name, "E").replace("MyISAM", "Aria"), run(db, sql)))
            except pymysql.err.MySQLError as error:
                answers.append((sql.replace(name, "E"), error.args[0]))
    assert seen[engine] == seen["InnoDB"]


def test_a_sequence_is_altered_in_place(server, db, engine, run):
    """The sequence was copied, and ALGORITHM=INPLACE was refused."""
    run(db, f"CREATE SEQUENCE s CACHE 3 COMMENT 'a' ENGINE={engine}")
    seen, failures, stop = [], [], threading.Event()

    def take():
        connection = server.connect(database=db.name)
        while not stop.is_set():
            try:
                seen.append(run(connection, "SELECT NEXTVAL(s)")[0][0])
            except pymysql.err.MySQLError as error:
                failures.append(error)

    threads = [threading.Thread(target=take) for _ in range(2)]
    [t.start() for t in threads]
    try:
        for number in range(20):
            run(db, f"ALTER TABLE s COMMENT='c{number}', ALGORITHM=INSTANT")
            run(db, f"ALTER TABLE s FORCE, ALGORITHM={'INPLACE, LOCK=NONE' if number % 2 else 'COPY'}")
    finally:
        stop.set()
        [t.join(60) for t in threads]
    assert not failures and len(seen) > 20 and len(set(seen)) == len(seen)
    assert run(db, "SELECT NEXTVAL(s)")[0][0] > max(seen)
    assert "COMMENT='c19'" in run(db, "SHOW CREATE SEQUENCE s")[0][1]
    for to in (0, 1):
        with pytest.raises(pymysql.err.OperationalError, match="SEQUENCE") as refused:
            run(db, f"ALTER TABLE s SEQUENCE={to}, ALGORITHM=INPLACE")
        assert refused.value.args[0] == 1846
        run(db, f"ALTER TABLE s SEQUENCE={to}")
    assert run(db, "SELECT NEXTVAL(s)")[0][0] > max(seen)


def test_no_sequence_value_is_repeated_after_a_kill(engine, run):
    """Values are taken by several while the server is killed: what was answered before is never answered again."""
    server = private(["--terrace-memory=16777216"])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        for name, cache in (("one", 0), ("few", 7), ("many", 1000)):
            run(connection, f"CREATE SEQUENCE d.{name} CACHE {cache} ENGINE={engine}")
        seen, lock = {"one": [], "few": [], "many": []}, threading.Lock()
        for _ in range(2):
            ended = threading.Event()

            def take(name):
                try:
                    mine = server.connect(database="d")
                    while not ended.is_set():
                        value = run(mine, f"SELECT NEXTVAL({name})")[0][0]
                        with lock:
                            seen[name].append(value)
                except pymysql.err.MySQLError:
                    return

            threads = [threading.Thread(target=take, args=(name,)) for name in list(seen) * 2]
            [t.start() for t in threads]
            enough = min(len(values) for values in seen.values()) + 15
            wait_until(lambda: min(len(values) for values in seen.values()) > enough)
            time.sleep(0.3)
            server.kill9()
            ended.set()
            [t.join(30) for t in threads]
            server.start()
        for name, values in seen.items():
            assert len(values) > 20 and len(values) == len(set(values)), name
    finally:
        end(server)
