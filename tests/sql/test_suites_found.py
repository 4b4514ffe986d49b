"""What the server's own test suites found (tests/mtr), in short."""

import pymysql
import pytest


def test_an_update_makes_the_next_partition_by_system_time(db, engine, run):
    """UPDATE made a table while the statement's list of keys was another's, freed: the server fell."""
    run(db, "SET timestamp = UNIX_TIMESTAMP('2000-01-01 00:00:00')")
    run(db, f"CREATE TABLE t (pk INT PRIMARY KEY, a INT) ENGINE={engine} WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME INTERVAL 1 HOUR AUTO")
    run(db, "INSERT INTO t VALUES (1, 0)")
    for hour in range(1, 4):
        run(db, f"SET timestamp = UNIX_TIMESTAMP('2000-01-01 0{hour}:00:00')")
        run(db, "UPDATE t SET a = a + 1")
    assert run(db, "SELECT a FROM t") == [(3,)]
    assert run(db, "SELECT a FROM t FOR SYSTEM_TIME ALL ORDER BY a") == [(0,), (1,), (2,), (3,)]
    assert run(db, "SELECT COUNT(*) FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = DATABASE()") == [(5,)]
    run(db, "SET timestamp = DEFAULT")


def test_a_sequence_works_under_lock_tables(db, engine, run):
    run(db, f"CREATE SEQUENCE s ENGINE={engine}")
    run(db, "LOCK TABLES s WRITE")
    assert run(db, "SELECT NEXTVAL(s)") == [(1,)]
    assert run(db, "SELECT minimum_value, cache_size FROM s") == [(1, 1000)]
    run(db, "COMMIT")
    assert run(db, "SELECT NEXTVAL(s)") == [(2,)]
    assert run(db, "SELECT start_value FROM s") == [(1,)]
    run(db, "UNLOCK TABLES")
