"""Large values are written to the volume directly, bypassing the log: after a crash they are whole or absent, and their space is freed."""

import hashlib
import threading
import time

import pymysql
import pytest
from conftest import wait_until

MIB = 1 << 20


@pytest.fixture
def connection(own_server, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, "SET GLOBAL max_allowed_packet = 67108864")
    return own_server.connect(database="d")


def counter(connection, run, name):
    return int(run(connection, f"SHOW GLOBAL STATUS LIKE 'terrace_{name}'")[0][1])


def value(serial, length=MIB):
    """Bytes that no other value has, and that don't compress."""
    return hashlib.shake_128(str(serial).encode()).digest(length)


def digest(data):
    return hashlib.md5(data).hexdigest()


def test_a_megabyte_value_logs_a_hundredth_of_itself_unless_the_bypass_is_off(own_server, connection, run):
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB) ENGINE=Terrace")
    assert run(connection, "SELECT @@terrace_bypass, @@terrace_bypass_from") == [(1, 65536)]
    logged = {}
    for at, (bypass, least) in enumerate([(1, 65536), (0, 65536), (1, 2 * MIB)]):
        run(connection, f"SET GLOBAL terrace_bypass = {bypass}, GLOBAL terrace_bypass_from = {least}")
        before, pages = counter(connection, run, "log_bytes_written"), counter(connection, run, "bypass_pages")
        for n in range(8):
            run(connection, "INSERT INTO t VALUES (%s, %s)", (10 * at + n, value(10 * at + n)))
        logged[at] = (counter(connection, run, "log_bytes_written") - before) / 8 / MIB
        passed = counter(connection, run, "bypass_pages") - pages
        assert passed == (8 * 65 if at == 0 else 0), passed
    print("log bytes for each byte of a value:", logged)
    assert logged[0] < 0.03 and logged[1] > 1 and logged[2] > 1, logged
    # A row that is no large value but has a large neighbour in its statement.
    run(connection, "SET GLOBAL terrace_bypass = 1, GLOBAL terrace_bypass_from = 65536")
    run(connection, "INSERT INTO t VALUES (50, %s), (51, 'x'), (52, %s)", (value(50), value(52, 3 * MIB)))
    run(connection, "UPDATE t SET b = %s WHERE id = 51", (value(51, 100_000),))
    # A copy of the table takes its values the same way.
    before = counter(connection, run, "log_bytes_written")
    run(connection, "ALTER TABLE t ADD COLUMN more INT, ALGORITHM=COPY")
    copied = counter(connection, run, "log_bytes_written") - before
    assert copied < 3 * MIB, f"{copied} bytes of log for a copy of 28 MiB"
    found = dict(run(connection, "SELECT id, MD5(b) FROM t"))
    sizes = {50: MIB, 51: 100_000, 52: 3 * MIB}
    assert found == {n: digest(value(n, sizes.get(n, MIB))) for n in found} and len(found) == 27
    own_server.kill9()
    own_server.start()
    connection = own_server.connect(database="d")
    assert dict(run(connection, "SELECT id, MD5(b) FROM t")) == found
    assert [row[3] for row in run(connection, "CHECK TABLE t")] == ["OK"]


def test_statements_savepoints_and_transactions_are_rolled_back_and_their_space_is_reused(own_server, connection, run):
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE, b LONGBLOB) ENGINE=Terrace")
    run(connection, "INSERT INTO t VALUES (1, 1, %s)", (value(1),))
    with pytest.raises(pymysql.err.IntegrityError):  # the second row's; the first one is rolled back with it
        run(connection, "INSERT INTO t VALUES (2, 2, %s), (3, 1, %s)", (value(2), value(3)))
    run(connection, "BEGIN")
    run(connection, "INSERT INTO t VALUES (4, 4, %s)", (value(4),))
    run(connection, "SAVEPOINT s")
    run(connection, "UPDATE t SET b = %s", (value(5, 5 * MIB),))
    run(connection, "ROLLBACK TO SAVEPOINT s")
    run(connection, "COMMIT")
    run(connection, "BEGIN")
    run(connection, "UPDATE t SET b = %s", (value(6, 5 * MIB),))
    run(connection, "ROLLBACK")
    expected = [(1, digest(value(1))), (4, digest(value(4)))]
    assert run(connection, "SELECT id, MD5(b) FROM t ORDER BY id") == expected
    # In two phases, over a crash.
    run(connection, "XA START 'x'")
    run(connection, "INSERT INTO t VALUES (7, 7, %s)", (value(7),))
    run(connection, "XA END 'x'")
    run(connection, "XA PREPARE 'x'")
    own_server.kill9()
    own_server.start()
    connection = own_server.connect(database="d")
    run(connection, "XA COMMIT 'x'")
    assert run(connection, "SELECT id, MD5(b) FROM t ORDER BY id") == expected + [(7, digest(value(7)))]
    for n in range(40):
        run(connection, "UPDATE t SET b = %s WHERE id = 7", (value(n),))
    run(connection, "DELETE FROM t WHERE id < 7")
    until = time.time() + 30
    while counter(connection, run, "history_length") > 0 and time.time() < until:
        time.sleep(0.1)
    pages = run(connection, "SELECT SUM(PAGES) FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'")[0][0]
    assert pages < 15 * 65, f"{pages} pages for a value of 65"
    # Temporary tables are in no log anyway.
    passed = counter(connection, run, "bypass_pages")
    run(connection, "CREATE TEMPORARY TABLE x (b LONGBLOB) ENGINE=Terrace")
    run(connection, "INSERT INTO x VALUES (%s)", (value(8),))
    assert run(connection, "SELECT MD5(b) FROM x") == [(digest(value(8)),)]
    assert counter(connection, run, "bypass_pages") == passed
    own_server.stop()
    code, report = own_server.check()
    assert code == 0 and report["leaked"]["count"] == 0, report


def test_acknowledged_large_values_are_whole_after_kill_9(own_server, connection, run):
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, n INT, b LONGBLOB) ENGINE=Terrace")
    for life in range(3):
        acknowledged = {}
        serial = [0]

        def write(writer, acknowledged=acknowledged, serial=serial, life=life):
            try:
                own = own_server.connect(database="d")
                while True:
                    serial[0] += 1
                    n = 100_000 * life + 10 * serial[0] + writer
                    length = [70_000, 300_000, 1_500_000, 2000][n % 4]
                    run(own, "REPLACE INTO t VALUES (%s, %s, %s)", (writer * 10 + n % 3, n, value(n, length)))
                    acknowledged[writer * 10 + n % 3] = n
            except (pymysql.err.MySQLError, OSError):
                pass

        writers = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
        for one in writers:
            one.start()
        time.sleep(4)
        wait_until(lambda: len(acknowledged) > 3)
        own_server.kill9()
        for one in writers:
            one.join(60)
        assert len(acknowledged) > 3, acknowledged
        own_server.start()
        connection = own_server.connect(database="d")
        found = {}
        for key, n, data in run(connection, "SELECT id, n, b FROM t"):
            assert data == value(n, [70_000, 300_000, 1_500_000, 2000][n % 4]), f"life {life}: value {n} of row {key}"
            found[key] = n
        for key, n in acknowledged.items():
            assert found.get(key, 0) >= n, f"life {life}: row {key} has value {found.get(key)}, {n} was acknowledged"
        assert [row[3] for row in run(connection, "CHECK TABLE t")] == ["OK"]
