import threading

import pymysql
import pytest


def test_rows_come_back_as_they_went_in(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(50), b DECIMAL(12,3), c DATETIME(6), d LONGTEXT) ENGINE={engine}")
    rows = [(1, "x", "1.500", "2024-01-02 03:04:05.678901", "z" * 100_000), (2, None, None, None, None), (3, "", "-7.250", "1999-12-31 23:59:59.000000", "")]
    for row in rows:
        run(db, "INSERT INTO t VALUES (%s,%s,%s,%s,%s)", row)
    found = [tuple(None if v is None else v if isinstance(v, (int, str)) else str(v) for v in row) for row in run(db, "SELECT id,a,b,CAST(c AS CHAR),d FROM t ORDER BY id")]
    assert found == rows
    run(db, "UPDATE t SET d = REPEAT('q', 50000), a = 'changed' WHERE id = 2")
    run(db, "DELETE FROM t WHERE id = 1")
    assert run(db, "SELECT id, a, LENGTH(d) FROM t ORDER BY id") == [(2, "changed", 50000), (3, "", 0)]


def test_a_transaction_is_whole_or_nothing(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq FROM seq_1_to_1000")
    run(db, "BEGIN")
    run(db, "UPDATE t SET v = v + 1")
    run(db, "DELETE FROM t WHERE id <= 500")
    run(db, "INSERT INTO t VALUES (5000, 1)")
    assert run(db, "SELECT COUNT(*), SUM(v) FROM t") == [(501, sum(range(502, 1002)) + 1)]
    run(db, "ROLLBACK")
    assert run(db, "SELECT COUNT(*), SUM(v) FROM t") == [(1000, 500500)]
    assert run(db, "SELECT COUNT(*) FROM t FORCE INDEX (v) WHERE v BETWEEN 1 AND 1000") == [(1000,)]


def test_savepoints_go_back_to_where_they_were_set(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={engine}")
    run(db, "BEGIN")
    run(db, "INSERT INTO t VALUES (1)")
    run(db, "SAVEPOINT one")
    run(db, "INSERT INTO t VALUES (2)")
    run(db, "SAVEPOINT two")
    run(db, "INSERT INTO t VALUES (3)")
    run(db, "ROLLBACK TO two")
    run(db, "INSERT INTO t VALUES (4)")
    run(db, "ROLLBACK TO one")
    run(db, "INSERT INTO t VALUES (5)")
    run(db, "COMMIT")
    assert run(db, "SELECT id FROM t ORDER BY id") == [(1,), (5,)]


def test_a_failed_statement_leaves_the_transaction_as_it_was(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 1), (2, 2)")
    run(db, "BEGIN")
    run(db, "INSERT INTO t VALUES (3, 3)")
    with pytest.raises(pymysql.err.IntegrityError) as error:
        run(db, "INSERT INTO t VALUES (4, 4), (5, 5), (6, 2)")
    assert error.value.args[0] == 1062
    run(db, "COMMIT")
    assert run(db, "SELECT id, u FROM t ORDER BY id") == [(1, 1), (2, 2), (3, 3)]


def test_two_sessions_write_the_same_table_at_once(server, db, engine, run):
    run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, who INT, n INT, KEY (who)) ENGINE={engine}")
    run(db, f"CREATE TABLE c (id INT PRIMARY KEY, n INT) ENGINE={engine}")
    run(db, "INSERT INTO c VALUES (1, 0)")
    faults = []

    def work(who):
        try:
            connection = server.connect(database=db.name)
            for n in range(200):
                run(connection, "INSERT INTO t (who, n) VALUES (%s, %s)", (who, n))
                run(connection, "UPDATE c SET n = n + 1 WHERE id = 1")
        except Exception as error:  # noqa: BLE001
            faults.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not faults
    assert run(db, "SELECT n FROM c") == [(800,)]
    assert run(db, "SELECT who, COUNT(*), SUM(n) FROM t GROUP BY who ORDER BY who") == [(w, 200, 19900) for w in range(4)]
    assert run(db, "CHECK TABLE t")[0][3] == "OK"


def test_joins_and_aggregates(db, engine, run):
    run(db, f"CREATE TABLE a (id INT PRIMARY KEY, g INT, KEY (g)) ENGINE={engine}")
    run(db, f"CREATE TABLE b (id INT PRIMARY KEY, a_id INT, w INT, KEY (a_id)) ENGINE={engine}")
    run(db, "INSERT INTO a SELECT seq, seq % 10 FROM seq_1_to_500")
    run(db, "INSERT INTO b SELECT seq, seq % 500 + 1, seq FROM seq_1_to_5000")
    found = run(db, "SELECT g, COUNT(*), SUM(w) FROM a JOIN b ON b.a_id = a.id GROUP BY g ORDER BY g")
    expected = {}
    for seq in range(1, 5001):
        g = (seq % 500 + 1) % 10
        n, s = expected.get(g, (0, 0))
        expected[g] = (n + 1, s + seq)
    assert found == [(g, *expected[g]) for g in sorted(expected)]


def test_a_blob_read_by_a_constant_key_is_there_when_it_is_used(db, engine, run):
    """Found by attack: the row's buffer went with its cursor before the server used the value."""
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB, n INT, KEY (n)) ENGINE={engine}")
    sizes = [0, 1, 255, 256, 4000, 8100, 16383, 16384, 16385, 65536, 1 << 20]
    for n, size in enumerate(sizes):
        run(db, "INSERT INTO t VALUES (%s, REPEAT(CHAR(97 + %s), %s), %s)", (n, n, size, n))
    for n, size in enumerate(sizes):
        for key in ("id", "n"):
            for _ in range(3):
                found = run(db, f"SELECT MD5(b) = MD5(REPEAT(CHAR(97 + %s), %s)), LENGTH(b), MD5(b) = MD5(REPEAT(CHAR(97 + %s), %s)) FROM t WHERE {key} = %s", (n, size, n, size, n))
                assert found == [(1, size, 1)], (key, size)


def test_the_volume_in_the_data_directory_is_no_database(server, run):
    assert ("terrace",) not in run(server.connect(), "SHOW DATABASES")
