"""Logical backups: mariadb-dump out and in, consistent beside writers; FLUSH TABLES WITH READ LOCK."""

import subprocess
import threading
import time

import pytest

from conftest import run

TABLES = [
    "CREATE TABLE kinds (id INT PRIMARY KEY, j JSON, x INT AS (id * 2) VIRTUAL, y INT AS (id * 3) STORED, b BLOB INVISIBLE, d DATETIME(6), n DECIMAL(20,6), KEY (x), UNIQUE (y)) ENGINE=@E",
    "CREATE TABLE parts (id INT, at INT, b MEDIUMBLOB, PRIMARY KEY (id, at)) ENGINE=@E PARTITION BY RANGE (at) (PARTITION p0 VALUES LESS THAN (50), PARTITION p1 VALUES LESS THAN (100), PARTITION p2 VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE hidden (t TEXT, e ENUM('a','b'), s SET('x','y'), bits BIT(11)) ENGINE=@E CHARSET=utf8mb4",
    "CREATE TABLE large (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB) ENGINE=@E AUTO_INCREMENT=77",
    "CREATE SEQUENCE numbers START WITH 5 INCREMENT BY 3 ENGINE=@E",
    "CREATE VIEW seen AS SELECT id, y FROM kinds WHERE y > 30",
    "CREATE TRIGGER counted BEFORE INSERT ON hidden FOR EACH ROW SET NEW.bits = COALESCE(NEW.bits, 5)",
]
ROWS = [
    "INSERT INTO kinds (id, j, b, d, n) SELECT seq, CONCAT('{\"a\":', seq, ',\"ü\":[1,null]}'), REPEAT(CHAR(seq), 300), '2026-01-01' + INTERVAL seq MICROSECOND, seq / 7 FROM seq_1_to_200",
    "INSERT INTO kinds (id) VALUES (-5)",
    "INSERT INTO parts SELECT seq, seq, UNHEX(REPEAT(HEX(seq), 50)) FROM seq_1_to_150",
    "INSERT INTO hidden VALUES ('ÄÖ€\\0''\"\\\\', 'b', 'x,y', 1025), (NULL, NULL, NULL, NULL), ('', 'a', '', NULL)",
    "INSERT INTO large (b) VALUES (REPEAT(UNHEX('00FF27'), 700000)), (NULL), ('')",
    "DO NEXTVAL(numbers)",
]


def shell(server, program, *arguments, input=None):
    command = [program, "--no-defaults", f"--socket={server.directory}/sock", "-uroot", "--default-character-set=utf8mb4", *arguments]
    done = subprocess.run(command, input=input, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture
def other(server, db):
    name = f"{db.name}_in"
    run(db, f"CREATE DATABASE {name}")
    yield name
    run(db, f"DROP DATABASE {name}")


def tables(connection, database):
    return [name for name, kind in run(connection, f"SHOW FULL TABLES FROM {database}") if kind != "VIEW"]


@pytest.mark.parametrize("options", [["--single-transaction"], ["--lock-all-tables"], ["--single-transaction", "--hex-blob", "--skip-extended-insert"]], ids=" ".join)
def test_a_dump_read_in_again_is_the_same(server, db, engine, other, options):
    for statement in TABLES + ROWS:
        run(db, statement.replace("@E", engine))
    shell(server, "mariadb", other, input=shell(server, "mariadb-dump", "--max-allowed-packet=64M", *options, db.name))
    names = tables(db, db.name)
    assert names == tables(db, other) and len(names) == 5
    for name in names:
        sums = [run(db, f"CHECKSUM TABLE {database}.{name}")[0][1] for database in (db.name, other)]
        assert sums[0] == sums[1] and sums[0] is not None, name
        texts = [run(db, f"SHOW CREATE TABLE {database}.{name}")[0][1] for database in (db.name, other)]
        assert texts[0] == texts[1]
    # What CHECKSUM leaves to the definition: the invisible column, and what comes next.
    for sql in ("SELECT id, b, x, y FROM {}.kinds ORDER BY id", "SELECT * FROM {}.seen ORDER BY id", "SELECT * FROM {}.numbers"):
        assert run(db, sql.format(db.name)) == run(db, sql.format(other))
    for database in (db.name, other):
        run(db, f"INSERT INTO {database}.large (b) VALUES ('next')")
        run(db, f"INSERT INTO {database}.hidden (t) VALUES ('next')")
    for sql in ("SELECT MAX(id) FROM {}.large", "SELECT bits FROM {}.hidden WHERE t = 'next'"):
        assert run(db, sql.format(db.name)) == run(db, sql.format(other))


def test_a_dump_is_consistent_while_others_write(server, db, engine, other):
    for name in ("aa", "zz"):
        run(db, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT NOT NULL, filler CHAR(200) DEFAULT 'x') ENGINE={engine}")
        run(db, f"INSERT INTO {name} (id, v) SELECT seq, 100 FROM seq_1_to_3000")
    stop, moved, failures = threading.Event(), [0], []

    def move():
        try:
            one = server.connect(database=db.name)
            while not stop.is_set():
                moved[0] += 1
                run(one, "BEGIN")
                run(one, f"UPDATE aa SET v = v - 1 WHERE id = {moved[0] * 7 % 3000 + 1}")
                run(one, f"UPDATE zz SET v = v + 1 WHERE id = {moved[0] * 11 % 3000 + 1}")
                run(one, f"INSERT INTO aa (id, v) VALUES ({3000 + moved[0]}, 5)")
                run(one, f"INSERT INTO zz (id, v) VALUES ({3000 + moved[0]}, -5)")
                run(one, "COMMIT")
        except Exception as error:  # shown by the test
            failures.append(error)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        during = []
        for _ in range(5):
            before = moved[0]
            text = shell(server, "mariadb-dump", "--single-transaction", db.name)
            during.append(moved[0] - before)
            shell(server, "mariadb", other, input=text)
            counts = run(db, f"SELECT (SELECT COUNT(*) FROM {other}.aa), (SELECT COUNT(*) FROM {other}.zz), (SELECT SUM(v) FROM {other}.aa) + (SELECT SUM(v) FROM {other}.zz)")[0]
            assert counts[0] == counts[1] and counts[2] == 600000
            if max(during) > 5:
                break
    finally:
        stop.set()
        thread.join(60)
    assert not failures
    # Writers went on meanwhile.
    assert max(during) > 5


def held_commit(server, database, engine):
    """What others see of a commit that comes while all tables are locked to read, and whether it comes before they are unlocked."""
    control, writer = server.connect(database=database), server.connect(database=database)
    run(control, f"CREATE OR REPLACE TABLE held (a INT PRIMARY KEY) ENGINE={engine}")
    run(writer, "BEGIN")
    run(writer, "INSERT INTO held VALUES (1)")
    run(control, "FLUSH TABLES WITH READ LOCK")
    done = []
    thread = threading.Thread(target=lambda: (run(writer, "COMMIT"), done.append("committed")))
    thread.start()
    until = time.monotonic() + 60
    state = "SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = %s"
    while not done and not any(text and text.startswith("Waiting for") for (text,) in run(control, state, (writer.thread_id(),))):
        assert time.monotonic() < until
        time.sleep(0.02)
    seen = [list(done), run(control, "SELECT COUNT(*) FROM held"), run(control, state, (writer.thread_id(),))]
    run(control, "UNLOCK TABLES")
    thread.join(60)
    seen += [list(done), run(control, "SELECT COUNT(*) FROM held")]
    run(control, "DROP TABLE held")
    return seen


def test_flush_tables_with_read_lock_holds_back_a_commit_as_in_innodb(server, db, engine):
    theirs, ours = held_commit(server, db.name, "InnoDB"), held_commit(server, db.name, engine)
    assert ours == theirs
    assert ours[:2] == [[], [(0,)]] and ours[3:] == [["committed"], [(1,)]]
