"""Faults that the server's own test suites found (tests/mtr), as short tests."""

import threading
import time

import pymysql
import pytest
from conftest import end, private


def test_an_update_makes_the_next_partition_by_system_time(db, engine, run):
    """UPDATE created a partition while the statement's list of keys pointed to freed memory: the server crashed."""
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


def test_check_table_warns_of_indexed_virtual_columns_only(db, engine, run):
    seen = []
    for name in ("InnoDB", engine):
        run(db, "SET sql_mode = ''")
        run(db, f"""CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(10), n INT AS (c + 0) VIRTUAL, m INT AS (c * 2) VIRTUAL,
                o INT AS (m + 1) VIRTUAL, p INT AS (n + id) VIRTUAL, KEY (n), KEY (p)) ENGINE={name}""")
        run(db, "INSERT INTO t (id, c) VALUES (1, '1'), (2, '3y'), (3, '3')")
        checked = run(db, "CHECK TABLE t EXTENDED")
        seen.append((set(checked), run(db, "SELECT id FROM t WHERE n = 3"), run(db, "SELECT id FROM t WHERE p = 5")))
        run(db, "DROP TABLE t")
    assert seen[0] == seen[1]
    assert len(seen[0][0]) == 2


def test_flush_for_export_is_refused(db, engine, run):
    """A Terrace table is no file that could be copied."""
    if engine == "InnoDB":
        pytest.skip("InnoDB's tables are files")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={engine}")
    with pytest.raises(pymysql.err.MySQLError) as error:
        run(db, "FLUSH TABLES t FOR EXPORT")
    assert error.value.args[0] == 1031 and engine in error.value.args[1]
    run(db, "INSERT INTO t VALUES (1)")
    for sql in ("ALTER TABLE t DISCARD TABLESPACE", "ALTER TABLE t IMPORT TABLESPACE"):
        with pytest.raises(pymysql.err.MySQLError) as error:
            run(db, sql)
        assert error.value.args[0] == 1031, sql
    assert run(db, "SELECT * FROM t") == [(1,)]


def test_a_prepared_transaction_of_temporary_tables_alone_ends_with_the_server(engine, run):
    """It was found again after a kill, and could only be ended by name."""
    server = private(["--terrace-memory=16777216"])
    try:
        one, other = server.connect(), server.connect()
        run(one, "CREATE DATABASE d")
        run(one, f"CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE={engine}")
        run(one, f"CREATE TEMPORARY TABLE d.tmp (id INT PRIMARY KEY) ENGINE={engine}")
        for sql in ("XA START 'only'", "INSERT INTO d.tmp VALUES (1)", "XA END 'only'", "XA PREPARE 'only'"):
            run(one, sql)
        for sql in ("XA START 'both'", "INSERT INTO d.t VALUES (1)", "XA END 'both'", "XA PREPARE 'both'"):
            run(other, sql)
        run(one, "XA COMMIT 'only'")
        assert run(one, "SELECT * FROM d.tmp") == [(1,)]
        for sql in ("XA START 'only'", "INSERT INTO d.tmp VALUES (2)", "XA END 'only'", "XA PREPARE 'only'"):
            run(one, sql)
        server.kill9()
        server.start()
        again = server.connect()
        assert [row[3] for row in run(again, "XA RECOVER")] == [b"both"]
        run(again, "XA COMMIT 'both'")
        assert run(again, "SELECT * FROM d.t") == [(1,)]
    finally:
        end(server)


def test_a_backup_stage_lets_transactions_go_on(server, db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={engine}")
    other = server.connect(database=db.name)
    run(other, "SET SESSION lock_wait_timeout = 2")
    run(db, "SET terrace_backup_stage = allow")
    try:
        run(db, "BACKUP STAGE START")
        run(db, "BACKUP STAGE FLUSH")
        run(other, "INSERT INTO t VALUES (1)")
        run(db, "BACKUP STAGE BLOCK_DDL")
        run(other, "INSERT INTO t VALUES (2)")
        run(db, "BACKUP STAGE BLOCK_COMMIT")
        with pytest.raises(pymysql.err.OperationalError) as error:
            run(other, "INSERT INTO t VALUES (3)")
        assert error.value.args[0] == 1205
    finally:
        run(db, "BACKUP STAGE END")
    assert run(db, "SELECT * FROM t") == [(1,), (2,)]


def test_a_shorter_column_takes_its_kept_statistics_along(db, run, engine):
    """ALTER copied, rightly, but the server was told that the column's values stay as they are."""
    kept = []
    for name in ("InnoDB", engine):
        run(db, f"CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(32), KEY (b)) ENGINE={name}")
        run(db, "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        run(db, "ANALYZE TABLE t PERSISTENT FOR ALL")
        statistics = f"""SELECT (SELECT COUNT(*) FROM mysql.column_stats WHERE db_name = '{db.name}'),
                                (SELECT COUNT(*) FROM mysql.index_stats WHERE db_name = '{db.name}')"""
        counts = []
        for change in ("MODIFY b VARCHAR(40)", "MODIFY b VARCHAR(400)", "MODIFY b VARCHAR(30)"):
            run(db, f"ALTER TABLE t {change}")
            counts += run(db, statistics)
        kept.append(counts)
        run(db, "DROP TABLE t")
    # InnoDB copies where the length takes another byte; there the statistics go, too.
    assert kept[1][0] == kept[0][0] == (2, 3)
    assert kept[1][2] == kept[0][2] == (1, 1)


def test_load_data_local_goes_on_after_a_duplicate(server, db, run, engine, tmp_path):
    """It ended with error 1296 where the table was empty: the rows were to be built sorted, and a duplicate ended that."""
    file = tmp_path / "rows"
    file.write_text("1,a\n2,b\n2,c\n3,d\n1,e\n4,f\n")
    local = server.connect(database=db.name, local_infile=True)
    loaded = []
    for name in ("InnoDB", engine):
        run(local, f"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9)) ENGINE={name}")
        run(local, f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE t FIELDS TERMINATED BY ','")
        loaded.append(run(local, "SELECT * FROM t ORDER BY id"))
        run(local, "DROP TABLE t")
    local.close()
    assert loaded[0] == loaded[1] == [(1, "a"), (2, "b"), (3, "d"), (4, "f")]


def test_an_index_directory_is_refused(db, run, engine):
    with pytest.raises(pymysql.err.OperationalError) as error:
        run(db, f"CREATE TABLE t (a INT) ENGINE={engine} INDEX DIRECTORY='/elsewhere/'")
    assert error.value.args[0] == 1005 and "Wrong create options" in error.value.args[1]
    assert run(db, "SHOW WARNINGS")[0][1:] == (1478, f"{engine}: INDEX DIRECTORY is not supported")
    assert run(db, "SHOW TABLES") == []


@pytest.mark.parametrize("how", ["make", "make again", "empty", "make of rows", "rename"])
def test_an_older_view_is_refused_for_a_table_created_since(db, server, run, engine, how):
    """In an older view, a recreated or truncated table was empty; a table created from a SELECT had rows from after the view."""
    asked = []
    for name in ("InnoDB", engine):
        made = f"CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE={name}"
        old = server.connect(database=db.name)
        if how in ("make again", "empty", "rename"):
            run(db, made if how != "rename" else made.replace("t (", "u (", 1))
            run(db, f"INSERT INTO {'u' if how == 'rename' else 't'} VALUES (1, 1)")
        run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        for sql in {"make": [made], "make again": ["DROP TABLE t", made], "empty": ["TRUNCATE t"],
                    "make of rows": [f"CREATE TABLE t (PRIMARY KEY (id), KEY (a)) ENGINE={name} AS SELECT 5 AS id, 5 AS a"],
                    "rename": ["RENAME TABLE u TO t"]}[how]:
            run(db, sql)
        if how in ("make", "make again", "empty"):
            run(db, "INSERT INTO t VALUES (5, 5)")
        answers = []
        for sql in ("SELECT * FROM t", "SELECT a FROM t FORCE INDEX (a)", "INSERT INTO t VALUES (9, 9)", "SELECT id FROM t"):
            try:
                answers.append(run(old, sql))
            except pymysql.err.MySQLError as error:
                answers.append(error.args[0])
        run(old, "COMMIT")
        answers.append(sorted(run(old, "SELECT * FROM t")))
        asked.append(answers)
        old.close()
        run(db, "DROP TABLE t")
    assert asked[0] == asked[1]
    assert (1412 in asked[1]) == (how != "rename")


def test_an_older_view_can_read_a_new_temporary_table(db, run, engine):
    run(db, f"CREATE TABLE u (id INT PRIMARY KEY) ENGINE={engine}")
    run(db, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    assert run(db, "SELECT * FROM u") == []
    run(db, f"CREATE TEMPORARY TABLE t (id INT PRIMARY KEY) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1)")
    assert run(db, "SELECT * FROM t") == [(1,)]
    run(db, "TRUNCATE t")
    assert run(db, "SELECT * FROM t") == []
    run(db, "ROLLBACK")


def test_a_partition_by_system_time_is_made_within_a_transaction(db, run, engine):
    seen = []
    for name in ("InnoDB", engine):
        run(db, "SET timestamp = UNIX_TIMESTAMP('2000-01-01 00:00:00')")
        run(db, f"CREATE TABLE t (pk INT PRIMARY KEY, a INT) ENGINE={name} WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME INTERVAL 1 HOUR AUTO")
        run(db, "INSERT INTO t VALUES (1, 0)")
        answers = []
        for sql in ("BEGIN", "SELECT * FROM t", "SET timestamp = UNIX_TIMESTAMP('2000-01-01 03:00:00')", "UPDATE t SET a = a + 1", "SELECT * FROM t",
                    "SELECT a FROM t FOR SYSTEM_TIME ALL", "COMMIT", "SELECT * FROM t"):
            try:
                answers.append(run(db, sql))
            except pymysql.err.MySQLError as error:
                answers.append(error.args[0])
        seen.append(answers)
        run(db, "DROP TABLE t")
    run(db, "SET timestamp = DEFAULT")
    assert seen[0] == seen[1]


DUPLICATES = [
    ("INSERT IGNORE INTO t VALUES (3, 9)", "DELETE FROM t WHERE id = 3"),
    ("INSERT IGNORE INTO t VALUES (9, 30)", "UPDATE t SET u = 31 WHERE id = 3"),
    ("INSERT INTO t VALUES (3, 9)", "DELETE FROM t WHERE id = 3"),
    ("UPDATE IGNORE t SET id = 3 WHERE id = 5", "DELETE FROM t WHERE id = 3"),
    ("UPDATE IGNORE t SET u = 30 WHERE id = 5", "UPDATE t SET u = 31 WHERE id = 3"),
]


@pytest.mark.parametrize("level, statements", [("SERIALIZABLE", False), ("REPEATABLE READ", True)])
def test_a_duplicate_stays_locked_until_the_transaction_that_met_it_ends(run, engine, level, statements):
    """The duplicate could be deleted and committed before the statement that it had refused: replayed from a statement log, that statement wrote its row."""
    server = private(["--terrace-memory=16777216", "--innodb-lock-wait-timeout=1", "--lock-wait-timeout=9"]
                     + (["--log-bin=log", "--binlog-format=STATEMENT", "--server-id=1"] if statements else []))
    try:
        db, second = server.connect(), server.connect()
        run(db, "CREATE DATABASE d")
        for one in (db, second):
            one.select_db("d")
            run(one, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        for name in ("InnoDB", engine):
            for write, other in DUPLICATES:
                run(db, f"CREATE TABLE t (id INT PRIMARY KEY, u INT, UNIQUE (u)) ENGINE={name}")
                run(db, "INSERT INTO t VALUES (3, 30), (5, 50)")
                run(db, "BEGIN")
                try:
                    run(db, write)
                except pymysql.err.IntegrityError as error:
                    assert error.args[0] == 1062
                assert run(second, "SELECT * FROM t WHERE id = 3 LOCK IN SHARE MODE") == [(3, 30)]
                with pytest.raises(pymysql.err.OperationalError) as error:
                    run(second, other)
                assert error.value.args[0] == 1205, (name, write)
                run(db, "COMMIT")
                run(second, other)
                assert run(db, "SELECT COUNT(*) FROM t WHERE u = 30") == [(0,)]
                run(db, "DROP TABLE t")
        # A transaction that waits for a duplicate writes its row when the duplicate goes.
        run(db, f"CREATE TABLE t (id INT PRIMARY KEY, u INT, UNIQUE (u)) ENGINE={engine}")
        run(second, "SET SESSION innodb_lock_wait_timeout = 9")
        for write in ("INSERT INTO t VALUES (4, 30)", "INSERT INTO t VALUES (3, 9)"):
            run(db, "REPLACE INTO t VALUES (3, 30)")
            run(db, "BEGIN")
            run(db, "DELETE FROM t")
            thread = threading.Thread(target=run, args=(second, write))
            thread.start()
            thread.join(0.3)
            assert thread.is_alive()
            run(db, "COMMIT")
            thread.join(120)
            assert not thread.is_alive()
            assert len(run(db, "SELECT * FROM t")) == 1
    finally:
        end(server)


def test_values_that_alter_generates_follow_those_of_existing_rows(db, engine, run):
    """The counter moved at the end of the copy: a NULL got a value that a row before it had, which is a duplicate, or, where the key allows it, the same value twice."""
    seen = []
    for name in ("InnoDB", engine):
        run(db, "SET sql_mode = ''")
        run(db, f"CREATE TABLE t (a BIGINT, b INT) ENGINE={name}")
        run(db, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (NULL, 4), (0, 5), (-7, 6), (20, 7), (NULL, 8), (9, 9), (0, 10)")
        run(db, "ALTER TABLE t MODIFY a BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY")
        run(db, "INSERT INTO t (b) VALUES (11)")
        rows = run(db, "SELECT b, a FROM t WHERE b < 11 ORDER BY b")
        # Where it is no unique key nothing else would tell.
        run(db, f"CREATE TABLE u (a INT, b INT, KEY (a)) ENGINE={name}")
        run(db, "INSERT INTO u SELECT seq, seq FROM seq_1_to_2000")
        run(db, "INSERT INTO u VALUES (NULL, 2001), (0, 2002)")
        run(db, "ALTER TABLE u MODIFY a INT NOT NULL AUTO_INCREMENT")
        seen.append((rows, run(db, "SELECT a FROM u WHERE b > 2000 ORDER BY b")))
        run(db, "DROP TABLE t, u")
    assert seen[0] == seen[1]
    assert seen[0][0][3:5] == [(4, 4), (5, 5)] and seen[0][1] == [(2001,), (2002,)]


def test_cardinality_is_not_doubled_if_the_optimizer_setting_says_so(db, engine, run):
    seen = []
    for name in ("InnoDB", engine):
        run(db, f"CREATE TABLE t (a INT PRIMARY KEY, b INT, KEY (b)) ENGINE={name}")
        run(db, "INSERT INTO t SELECT seq, seq % 10 FROM seq_1_to_1000")
        run(db, "ANALYZE TABLE t")
        for setting in ("", "fix_innodb_cardinality"):
            run(db, f"SET optimizer_adjust_secondary_key_costs = '{setting}'")
            run(db, "FLUSH TABLES")
            seen.append(run(db, "SELECT CARDINALITY FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND COLUMN_NAME = 'b'")[0][0])
        run(db, "SET optimizer_adjust_secondary_key_costs = DEFAULT")
        run(db, "DROP TABLE t")
    assert seen == [20, 10, 20, 10]


def test_a_table_is_opened_after_partitions_that_could_not_be_added(db, engine, server, run):
    """The server left the new partition's freed options in the shared definition: the next session that opened the table crashed."""
    other = server.connect(database=run(db, "SELECT DATABASE()")[0][0])
    run(db, "SET lock_wait_timeout = 0")
    for option in ("", "OBJECT_IOPS='5'" if engine == "Terrace" else ""):
        run(db, f"CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE={engine} {option} PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))")
        run(db, "INSERT INTO t VALUES (1, 1)")
        run(other, "LOCK TABLE t READ")
        for n in range(20):
            with pytest.raises(pymysql.err.OperationalError) as error:
                run(db, f"ALTER TABLE t ADD PARTITION (PARTITION p1 VALUES LESS THAN ({20 + n}) {option})")
            assert error.value.args[0] == 1205
        assert run(db, "SELECT * FROM t") == [(1, 1)]
        run(other, "UNLOCK TABLES")
        run(db, f"ALTER TABLE t ADD PARTITION (PARTITION p1 VALUES LESS THAN (20) {option})")
        assert (option in run(db, "SHOW CREATE TABLE t")[0][1].replace("`", "")) or not option
        run(db, "INSERT INTO t VALUES (11, 11)")
        assert run(db, "CHECK TABLE t")[0][3] == "OK"
        run(db, "DROP TABLE t")
    run(db, "SET lock_wait_timeout = DEFAULT")


def test_a_unique_key_of_a_table_that_was_sampled_empty_has_a_row_for_each_value(db, engine, run):
    """All its rows were taken for one value: a look-up by the whole primary key was thought to find half of the table."""
    if engine == "InnoDB":
        pytest.skip("its own thread counts, when it is time")
    run(db, f"CREATE TABLE t (a INT, b INT, c INT, PRIMARY KEY (a, b), KEY (c)) ENGINE={engine}")
    assert run(db, "SELECT COUNT(*) FROM t") == [(0,)]
    run(db, "INSERT INTO t SELECT 1, seq, seq FROM seq_1_to_90")
    cardinality = "SELECT INDEX_NAME, SEQ_IN_INDEX, CARDINALITY FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'"
    seen = {(name, part): count for name, part, count in run(db, cardinality)}
    assert seen["PRIMARY", 2] == 90 and seen["c", 1] == 90
    run(db, "ANALYZE TABLE t")
    seen = {(name, part): count for name, part, count in run(db, cardinality)}
    assert seen == {("PRIMARY", 1): 2, ("PRIMARY", 2): 90, ("c", 1): 90}


def test_a_counter_whose_increment_exceeds_its_range_is_out_of_range(db, engine, run):
    """The values that are left aren't what the session asks for: 167, which names column and row, and not 1467."""
    run(db, "SET auto_increment_increment = 300")
    run(db, f"CREATE TABLE t (a SERIAL) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (18446744073709551612)")
    with pytest.raises(pymysql.err.MySQLError) as error:
        run(db, "INSERT INTO t VALUES (NULL)")
    assert error.value.args == (167, "Out of range value for column 'a' at row 1")
    assert run(db, "SELECT * FROM t") == [(18446744073709551612,)]
    run(db, f"CREATE TABLE u (a SERIAL) ENGINE={engine}")
    run(db, "INSERT INTO u VALUES (18446744073709551614)")
    with pytest.raises(pymysql.err.MySQLError) as error:
        run(db, "INSERT INTO u VALUES (NULL)")
    assert error.value.args[0] == 1467


@pytest.mark.parametrize("first", ["the light one", "the heavy one"])
def test_a_session_that_changed_a_nontransactional_table_is_not_the_deadlock_victim(server, db, engine, run, first):
    """In a deadlock of two transactions the one with fewer changes is the victim, but changes of MyISAM tables can't be rolled back."""
    for table in "abc":
        run(db, f"CREATE TABLE {table} (id INT PRIMARY KEY) ENGINE={engine}")
        run(db, f"INSERT INTO {table} VALUES (1)")
    run(db, "CREATE TABLE aside (id INT) ENGINE=MyISAM")
    heavy, light = (server.connect(database=db.name) for _ in range(2))
    for one, mine in ((heavy, "a"), (light, "b")):
        run(one, "BEGIN")
        run(one, f"SELECT * FROM {mine} FOR UPDATE")
    run(heavy, "INSERT INTO aside VALUES (1)")
    run(light, "INSERT INTO c SELECT seq + 1 FROM seq_1_to_100")
    waits, closes = (light, heavy) if first == "the light one" else (heavy, light)
    ended = {}

    def ask(one, table):
        try:
            run(one, f"UPDATE {table} SET id = 2")
            ended[one] = 0
        except pymysql.err.MySQLError as error:
            ended[one] = error.args[0]

    thread = threading.Thread(target=ask, args=(waits, "a" if waits is light else "b"))
    thread.start()
    time.sleep(0.5)
    ask(closes, "a" if closes is light else "b")
    thread.join()
    assert ended == {heavy: 0, light: 1213}
    run(heavy, "ROLLBACK")
    heavy.close()
    light.close()


@pytest.mark.parametrize("statement", [
    "DELETE FROM t PARTITION (p2)", "DELETE FROM t PARTITION (p2) WHERE a = 2 ORDER BY b LIMIT 2", "UPDATE t PARTITION (p2) SET b = b + 1",
    "UPDATE t PARTITION (p2) SET b = b + 1 ORDER BY b", "UPDATE t PARTITION (p2) AS one JOIN (SELECT 2 a) AS other USING (a) SET b = 0",
    "DELETE one FROM t PARTITION (p2) AS one JOIN (SELECT 2 a) AS other USING (a)", "INSERT INTO t PARTITION (p2) VALUES (2, 7), (5, 8)",
    "INSERT INTO t PARTITION (p2) (b) VALUES (1)", "REPLACE INTO t PARTITION (p2) VALUES (2, 3)", "INSERT INTO t PARTITION (p2) SELECT 2, seq FROM seq_5_to_9",
    "INSERT INTO t PARTITION (p2) VALUES (2, 2) ON DUPLICATE KEY UPDATE b = 9", "SELECT * FROM t PARTITION (p2) ORDER BY b DESC, a",
    "SELECT a, MAX(b) FROM t PARTITION (p2) WHERE b > 1 GROUP BY a ORDER BY 2", "SELECT * FROM t PARTITION (p2) WHERE b IN (2, 3) FOR UPDATE",
    "CREATE TABLE u AS SELECT * FROM t PARTITION (p2)", "ALTER TABLE t TRUNCATE PARTITION p2", "ALTER TABLE t CHECK PARTITION p2",
    "DELETE FROM t PARTITION (p2) RETURNING a, b",
])
def test_partitions_that_a_statement_does_not_name_are_not_open(db, run, engine, statement):
    """DELETE FROM t PARTITION (p) accessed other partitions, which the server had not opened, and the server crashed."""
    seen = []
    for name in ("InnoDB", engine):
        run(db, f"CREATE TABLE t (a INT, b INT, KEY (b), UNIQUE (a, b)) ENGINE={name} PARTITION BY HASH (a) PARTITIONS 3")
        run(db, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (5, 2), (5, 3), (8, 3), (4, 5)")
        run(db, "FLUSH TABLES")
        try:
            answer = run(db, statement)
        except pymysql.err.MySQLError as error:
            answer = error.args
        seen.append((answer, run(db, "SELECT * FROM t ORDER BY a, b")))
        run(db, "DROP TABLE IF EXISTS t, u")
    assert seen[0] == seen[1]


def test_ddl_counts_no_commit(db, run, engine):
    """CREATE TABLE and RENAME counted one each in Handler_commit, which InnoDB's don't (main.commit_1innodb)."""
    seen = []
    for name in ("InnoDB", engine):
        counts = []
        for statement in (f"CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE={name}", "INSERT INTO t VALUES (1, 1)", "ALTER TABLE t RENAME u",
                          "RENAME TABLE u TO t", "BEGIN", f"CREATE TEMPORARY TABLE v (a INT) ENGINE={name}", "INSERT INTO t VALUES (2, 2)",
                          "DROP TEMPORARY TABLE v", "COMMIT", f"CREATE TABLE u ENGINE={name} AS SELECT * FROM t", "ALTER TABLE u ADD COLUMN c INT",
                          "ALTER TABLE u ADD COLUMN d INT, ALGORITHM=COPY", f"CREATE TABLE t (a INT) ENGINE={name}", "TRUNCATE TABLE u", "DROP TABLE t, u"):
            run(db, "FLUSH STATUS")
            try:
                run(db, statement)
            except pymysql.err.MySQLError:
                pass
            told = run(db, "SHOW STATUS WHERE Variable_name IN ('Handler_commit', 'Handler_rollback')")
            counts.append((statement.replace(name, ""), told))
        seen.append(counts)
    assert seen[0] == seen[1]
