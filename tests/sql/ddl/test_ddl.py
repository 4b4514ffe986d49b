import os

import pymysql
import pytest
from conftest import end, private


def test_truncate_rename_drop(db, engine, run):
    run(db, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    run(db, "INSERT INTO t (v) SELECT seq FROM seq_1_to_500")
    run(db, "TRUNCATE t")
    assert run(db, "SELECT COUNT(*) FROM t") == [(0,)]
    run(db, "INSERT INTO t (v) VALUES (7)")
    assert run(db, "SELECT id, v FROM t") == [(1, 7)]
    run(db, "RENAME TABLE t TO u")
    assert run(db, "SELECT v FROM u WHERE v = 7") == [(7,)]
    run(db, "DROP TABLE u")
    run(db, f"CREATE TABLE u (id INT PRIMARY KEY) ENGINE={engine}")
    assert run(db, "SELECT * FROM u") == []


def test_alter_keeps_the_rows(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq % 10 FROM seq_1_to_3000")
    run(db, "ALTER TABLE t ADD COLUMN w VARCHAR(20) DEFAULT 'w', ADD KEY (v)")
    assert run(db, "SELECT COUNT(*), MIN(w) FROM t FORCE INDEX (v) WHERE v = 3") == [(300, "w")]
    run(db, "ALTER TABLE t DROP COLUMN v")
    run(db, "ALTER TABLE t ENGINE=InnoDB")
    assert run(db, "SELECT COUNT(*), SUM(id) FROM t") == [(3000, 4501500)]
    run(db, f"ALTER TABLE t ENGINE={engine}")
    assert run(db, "SELECT COUNT(*), SUM(id) FROM t") == [(3000, 4501500)]


def test_unsupported_definitions_are_refused_with_the_reason(db, engine, run):
    run(db, f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    if engine == "InnoDB":
        pytest.skip("InnoDB has them")
    for sql in (
        f"CREATE TABLE c (id INT PRIMARY KEY, t TEXT, FULLTEXT (t)) ENGINE={engine}",
    ):
        with pytest.raises(pymysql.err.MySQLError):
            run(db, sql)
        assert run(db, "SHOW TABLES") == [("p",)]


def test_the_tiers_of_a_tables_pages_are_shown(db, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own tables")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY named (v)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq FROM seq_1_to_5000")
    found = run(db, "SELECT INDEX_NAME, PAGES FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = 't' ORDER BY 1", (db.name,))
    assert [r[0] for r in found] == ["named", "PRIMARY"] and all(int(r[1]) > 2 for r in found)
    assert "pool_frames" in run(db, "SHOW ENGINE TERRACE STATUS")[0][2]


def test_as_many_indexes_as_the_server_allows(db, engine, run):
    """64 indexes, with names as long as people make them: the definition of the table holds them all."""
    columns = [f"column_with_a_long_name_{i} INT" for i in range(64)]
    keys = [f"UNIQUE INDEX {'a_long_name_of_an_index_' * 2}{i} (column_with_a_long_name_{i})" for i in range(64)]
    run(db, f"CREATE TABLE t ({', '.join(columns + keys)}) ENGINE={engine}")
    run(db, f"INSERT INTO t SELECT {', '.join(f'seq + {i}' for i in range(64))} FROM seq_1_to_200")
    run(db, "UPDATE t SET column_with_a_long_name_63 = column_with_a_long_name_63 + 1000 WHERE column_with_a_long_name_0 > 100")
    index = f"{'a_long_name_of_an_index_' * 2}63"
    assert run(db, f"SELECT COUNT(*), MIN(column_with_a_long_name_0) FROM t FORCE INDEX ({index}) WHERE column_with_a_long_name_63 > 1000") == [(100, 101)]
    with pytest.raises(Exception) as refused:
        run(db, "UPDATE t SET column_with_a_long_name_62 = 100")
    assert refused.value.args[0] == 1062 and "an_index_62" in str(refused.value)
    run(db, "RENAME TABLE t TO `a name that is öld`")
    run(db, "TRUNCATE TABLE `a name that is öld`")
    assert run(db, "CHECK TABLE `a name that is öld`")[0][3] == "OK"
    assert run(db, "SELECT COUNT(*) FROM `a name that is öld`") == [(0,)]
    run(db, "DROP TABLE `a name that is öld`")


def test_more_tables_than_memory_could_keep_open(engine, run):
    """The server keeps all of them open, with more indexes than memory has pages; a start opens none."""
    server = private(["--terrace-memory=8388608", "--table-open-cache=400", "--table-definition-cache=400"])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        for i in range(180):
            run(connection, f"CREATE TABLE t{i} (id INT AUTO_INCREMENT PRIMARY KEY, a INT, KEY (a)) ENGINE={engine}")
            run(connection, f"INSERT INTO t{i} (a) VALUES ({i}), ({i}), ({i})")
        for _ in range(2):
            for i in range(180):
                run(connection, f"INSERT INTO t{i} (a) VALUES ({i})")
        for i in range(0, 180, 7):
            assert run(connection, f"SELECT COUNT(*), MAX(id), MIN(a) FROM t{i}") == [(5, 5, i)]
        server.restart()
        connection = server.connect(database="d")
        if engine != "InnoDB":
            before = run(connection, "SHOW STATUS LIKE 'Terrace_pool_frames_free'")
            frames = run(connection, "SHOW STATUS LIKE 'Terrace_pool_frames'")
            assert int(before[0][1]) > int(frames[0][1]) * 3 // 4, (before, frames)
        rows = run(connection, "SELECT TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd'")
        assert len(rows) == 180 and all(count == 5 for _, count in rows), rows
        run(connection, "CREATE TABLE big (id INT PRIMARY KEY, pad VARCHAR(500))" + f" ENGINE={engine}")
        run(connection, "INSERT INTO big SELECT seq, REPEAT('x', 400) FROM seq_1_to_20000")
        assert run(connection, "SELECT COUNT(*) FROM big") == [(20000,)]
    finally:
        end(server)


def test_a_table_that_is_dropped_waits_for_the_log_once(own_server, run, engine):
    """The table is hidden before the server goes on, and removed at the end of the statement: only the first step must be durable."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own counter")
    connection = own_server.connect()
    count = 30
    names = [f"t{n}" for n in range(count)]

    def written_by(*statements):
        before = run(connection, "SHOW GLOBAL STATUS LIKE 'terrace_log_writes'")
        for sql in statements:
            run(connection, sql)
        return int(run(connection, "SHOW GLOBAL STATUS LIKE 'terrace_log_writes'")[0][1]) - int(before[0][1])

    for drop in (["DROP TABLE " + ", ".join(names)], [f"DROP TABLE {name}" for name in names], ["DROP DATABASE d"]):
        run(connection, "CREATE DATABASE IF NOT EXISTS d")
        connection.select_db("d")
        for name in names:
            run(connection, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
            run(connection, f"INSERT INTO {name} VALUES (1, 1)")
        # Others write the log now and then, but not for each table.
        written = written_by(*drop)
        assert count <= written < count + count // 2, (drop[0], written)
    assert run(connection, "SHOW DATABASES LIKE 'd'") == []
    own_server.kill9()
    own_server.start()
    connection = own_server.connect()
    assert run(connection, "SELECT TABLE_NAME FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd' OR TABLE_SCHEMA LIKE '#%'") == []


def test_table_status_shows_innodbs_row_figures(db, engine, run):
    shown = {}
    for one in (engine, "InnoDB"):
        run(db, f"CREATE TABLE of_{one} (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE={one}")
        run(db, f"INSERT INTO of_{one} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        shown[one] = run(db, f"SELECT TABLE_ROWS, ROW_FORMAT, MAX_DATA_LENGTH, VERSION, CHECKSUM, CREATE_OPTIONS FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'of_{one}'")
    assert shown[engine] == shown["InnoDB"]


@pytest.mark.parametrize("strict", [1, 0])
def test_a_wrong_key_block_size_is_refused_or_warned_of(db, engine, run, strict):
    said = {}

    def outcome(of, sql):
        try:
            run(db, sql.format(engine=of))
            done = None
        except pymysql.err.Error as error:
            done = error.args
        warnings = run(db, "SHOW WARNINGS")
        # InnoDB stumbles over partitions that it has not made.
        said[of].append((sql, done, [row for row in warnings if row[1] != 6]))

    run(db, f"SET innodb_strict_mode = {strict}")
    for of in (engine, "InnoDB"):
        said[of] = []
        run(db, f"CREATE OR REPLACE TABLE t (a INT, KEY (a)) ENGINE={of}")
        run(db, "CREATE OR REPLACE TABLE m (a INT) ENGINE=MyISAM KEY_BLOCK_SIZE=3")
        for size in (1, 2, 3, 4, 5, 8, 12, 16, 17, 32, 1024, 65535):
            outcome(of, f"CREATE OR REPLACE TABLE x (a INT) ENGINE={{engine}} KEY_BLOCK_SIZE={size}")
        for format in ("DEFAULT", "DYNAMIC", "COMPACT", "REDUNDANT", "COMPRESSED"):
            outcome(of, f"CREATE OR REPLACE TABLE x (a INT) ENGINE={{engine}} ROW_FORMAT={format} KEY_BLOCK_SIZE=8")
        for more in ("", "PARTITION BY HASH (a) PARTITIONS 2"):
            outcome(of, f"CREATE TABLE p (a INT) ENGINE={{engine}} KEY_BLOCK_SIZE=3 {more}")
            run(db, "DROP TABLE IF EXISTS p")
        outcome(of, "CREATE TABLE p ENGINE={engine} KEY_BLOCK_SIZE=3 SELECT 1 AS a")
        outcome(of, "ALTER TABLE m ENGINE={engine}")
        for change in ("KEY_BLOCK_SIZE=3", "KEY_BLOCK_SIZE=32, ALGORITHM=COPY", "KEY_BLOCK_SIZE=5, ADD b INT", "KEY_BLOCK_SIZE=8", "KEY_BLOCK_SIZE=0, ALGORITHM=COPY", "KEY_BLOCK_SIZE=4 ROW_FORMAT=DYNAMIC"):
            outcome(of, f"ALTER TABLE t {change}")
        run(db, "DROP TABLE IF EXISTS p, x, t, m")
    named = [(sql, repr((done, warnings)).replace("InnoDB", engine)) for sql, done, warnings in said["InnoDB"]]
    assert [(sql, repr((done, warnings))) for sql, done, warnings in said[engine]] == named


def test_a_key_block_size_that_a_table_has_is_no_obstacle(db, engine, run):
    if engine != "Terrace":
        pytest.skip("InnoDB refuses each change of such a table")
    run(db, "SET innodb_strict_mode = 0")
    run(db, "CREATE TABLE t (a INT) ENGINE=Terrace KEY_BLOCK_SIZE=3")
    run(db, "CREATE TABLE p (a INT) ENGINE=Terrace KEY_BLOCK_SIZE=3 PARTITION BY HASH (a) PARTITIONS 2")
    run(db, "SET innodb_strict_mode = 1")
    for table in ("t", "p"):
        for change in ("ADD b INT", "ADD c INT, ALGORITHM=COPY", "ADD KEY (a)", "FORCE"):
            run(db, f"ALTER TABLE {table} {change}")
    run(db, "ALTER TABLE p ADD PARTITION PARTITIONS 1")
    run(db, "TRUNCATE TABLE t")
    run(db, "OPTIMIZE TABLE t")
    assert "KEY_BLOCK_SIZE=3" in run(db, "SHOW CREATE TABLE t")[0][1]
    for sql in ("ALTER TABLE t KEY_BLOCK_SIZE=5", "CREATE TABLE u LIKE t", "ALTER TABLE t ROW_FORMAT=DYNAMIC"):
        with pytest.raises(pymysql.err.Error) as refused:
            run(db, sql)
        assert refused.value.args[0] in (1005, 1478)


@pytest.mark.parametrize("strict", [0, 1])
def test_an_unknown_row_format_is_refused_or_warned_of(db, engine, run, strict):
    """As InnoDB does it. Of partitioned tables InnoDB's other warnings, and how often each comes, are not looked at."""
    said = {}

    def outcome(of, sql, partitioned=False):
        try:
            run(db, sql.format(engine=of))
            done = "ok"
        except pymysql.err.Error as error:
            done = error.args
        warnings = [row for row in run(db, "SHOW WARNINGS") if row[1] not in (6, 1030)]
        said[of].append((sql, done, sorted(set(warnings)) if partitioned else warnings))

    run(db, f"SET innodb_strict_mode = {strict}")
    for of in (engine, "InnoDB"):
        said[of] = []
        run(db, f"CREATE OR REPLACE TABLE t (a INT PRIMARY KEY, b INT) ENGINE={of}")
        run(db, "INSERT INTO t VALUES (1, 1)")
        for format in ("FIXED", "PAGE"):
            outcome(of, f"CREATE TABLE x (a INT) ENGINE={{engine}} ROW_FORMAT={format}")
            said[of].append(run(db, "SHOW CREATE TABLE x") if said[of][-1][1] == "ok" else None)
            run(db, "DROP TABLE IF EXISTS x")
            outcome(of, f"CREATE TEMPORARY TABLE y (a INT) ENGINE={{engine}} ROW_FORMAT={format}")
            run(db, "DROP TEMPORARY TABLE IF EXISTS y")
            outcome(of, f"CREATE TABLE z (a INT) ENGINE={{engine}} ROW_FORMAT={format} PARTITION BY HASH (a) PARTITIONS 2", True)
            run(db, "DROP TABLE IF EXISTS z")
            for more in ("", ", ALGORITHM=COPY", ", ALGORITHM=INPLACE", ", ALGORITHM=INSTANT", f", ADD KEY k{format} (b)"):
                outcome(of, f"ALTER TABLE t ROW_FORMAT={format}{more}")
                said[of].append(run(db, "SELECT ROW_FORMAT, CREATE_OPTIONS FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'"))
            run(db, "ALTER TABLE t ROW_FORMAT=DYNAMIC")
        assert run(db, "SELECT * FROM t") == [(1, 1)]
        run(db, "DROP TABLE t")
    assert repr(said[engine]) == repr(said["InnoDB"]).replace("InnoDB", engine)


def test_a_row_format_that_a_table_has_is_no_obstacle(db, engine, run):
    if engine != "Terrace":
        pytest.skip("InnoDB refuses each change of such a table")
    run(db, "SET innodb_strict_mode = 0")
    run(db, "CREATE TABLE t (a INT) ENGINE=Terrace ROW_FORMAT=FIXED")
    run(db, "SET innodb_strict_mode = 1")
    for sql in ("ALTER TABLE t ADD b INT", "ALTER TABLE t ADD c INT, ALGORITHM=COPY", "ALTER TABLE t FORCE", "OPTIMIZE TABLE t", "TRUNCATE TABLE t", "CREATE TABLE u LIKE t"):
        run(db, sql)
    assert "ROW_FORMAT=FIXED" in run(db, "SHOW CREATE TABLE t")[0][1]
    run(db, "CREATE TABLE m (a INT) ENGINE=MyISAM ROW_FORMAT=FIXED")
    run(db, "ALTER TABLE m ENGINE=Terrace")


def test_a_row_format_change_needs_the_algorithm_that_innodb_needs(db, engine, run):
    """It rebuilds nothing, but ALGORITHM=INSTANT or NOCOPY fails with InnoDB's error."""
    changes = ["ROW_FORMAT=COMPACT", "ROW_FORMAT=DYNAMIC", "ROW_FORMAT=DEFAULT", "ROW_FORMAT=COMPRESSED", "KEY_BLOCK_SIZE=8", "KEY_BLOCK_SIZE=8", "ROW_FORMAT=COMPACT, COMMENT 'x'", "AVG_ROW_LENGTH=10",
               "ROW_FORMAT=COMPACT, ADD c INT", "ROW_FORMAT=COMPACT, RENAME COLUMN b TO bb", "ROW_FORMAT=COMPACT, ADD KEY (b)", "CHECKSUM=1", "STATS_PERSISTENT=1"]
    said = {}
    for of in (engine, "InnoDB"):
        said[of] = []
        for parts in ("", "PARTITION BY HASH (a) PARTITIONS 2"):
            for change in changes:
                run(db, f"CREATE OR REPLACE TABLE t (a INT PRIMARY KEY, b INT) ENGINE={of} {parts}")
                for algorithm in ("INSTANT", "NOCOPY", "INPLACE", "DEFAULT"):
                    for sql in (f"ALTER TABLE t {change}, ALGORITHM={algorithm}",) if algorithm != "DEFAULT" else ("SET alter_algorithm = 'INSTANT'", f"ALTER TABLE t {change}", "SET alter_algorithm = DEFAULT"):
                        try:
                            run(db, sql)
                            said[of].append((parts, sql, "ok"))
                        except pymysql.err.Error as error:
                            said[of].append((parts, sql, error.args))
    assert said[engine] == said["InnoDB"]


def test_a_warning_names_the_foreign_key_that_is_left_out(db, engine, run):
    if engine != "Terrace":
        pytest.skip("a setting of Terrace")
    run(db, "SET terrace_foreign_keys = 'warn'")
    run(db, "CREATE TABLE p (a INT, b INT, PRIMARY KEY (a, b)) ENGINE=Terrace")
    run(db, "CREATE TABLE c (id INT PRIMARY KEY, a INT, b INT, q INT REFERENCES `q``r` (id), CONSTRAINT of_p FOREIGN KEY (a, b) REFERENCES p (a, b) ON DELETE CASCADE ON UPDATE SET NULL,"
            " FOREIGN KEY i (q) REFERENCES other.`q``r` (id) ON UPDATE NO ACTION) ENGINE=Terrace")
    says = "The storage engine for the table doesn't support FOREIGN KEY"
    assert [text[len(says):] for _, code, text in run(db, "SHOW WARNINGS") if code == 1178 and text.startswith(says)] == [
        " (`q`) REFERENCES `q``r` (`id`)",
        " `of_p` (`a`, `b`) REFERENCES `p` (`a`, `b`) ON DELETE CASCADE ON UPDATE SET NULL",
        " `i` (`q`) REFERENCES `other`.`q``r` (`id`) ON UPDATE NO ACTION",
    ]
    run(db, "ALTER TABLE c ADD CONSTRAINT `of d` FOREIGN KEY (b) REFERENCES d (b) ON DELETE RESTRICT")
    assert [text[len(says):] for _, _, text in run(db, "SHOW WARNINGS")] == [" `of d` (`b`) REFERENCES `d` (`b`) ON DELETE RESTRICT"]


def test_a_foreign_key_that_was_left_out_is_dropped_with_a_warning(db, engine, run):
    """An application that has made foreign keys drops them by name when it is upgraded."""
    if engine != "Terrace":
        pytest.skip("a setting of Terrace")
    run(db, "SET terrace_foreign_keys = 'warn'")
    run(db, "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=Terrace")
    made = ("CREATE TABLE c (id INT PRIMARY KEY, a INT, b INT, UNIQUE KEY u (b), CONSTRAINT k CHECK (a < 100), CONSTRAINT f FOREIGN KEY (a) REFERENCES p (id),"
            " CONSTRAINT g FOREIGN KEY (b) REFERENCES p (id)) ENGINE=Terrace")
    run(db, made)
    run(db, "INSERT INTO c VALUES (1, 1, 1)")
    dropped = "Can't DROP FOREIGN KEY `{}`; check that it exists"
    for how, names in [
        ("DROP FOREIGN KEY f, ALGORITHM=INSTANT", "f"), ("DROP FOREIGN KEY f, DROP FOREIGN KEY G, ALGORITHM=COPY", "fG"), ("DROP CONSTRAINT g", "g"),
        ("DROP FOREIGN KEY f, DROP KEY f, ADD COLUMN d INT", "f"), ("DROP FOREIGN KEY g, MODIFY b BIGINT", "g"), ("DROP FOREIGN KEY f, ADD CONSTRAINT h CHECK (b < 5)", "f"),
    ]:
        run(db, f"ALTER TABLE c {how}")
        assert [(level, code, text) for level, code, text in run(db, "SHOW WARNINGS")] == [("Warning", 1091, dropped.format(name)) for name in names], how
    assert run(db, "SELECT id, a, b FROM c") == [(1, 1, 1)]
    # Existing constraints are dropped as usual; a missing one with IF EXISTS is a note.
    run(db, "ALTER TABLE c DROP CONSTRAINT k, DROP CONSTRAINT u")
    assert run(db, "SHOW WARNINGS") == []
    run(db, "ALTER TABLE c DROP FOREIGN KEY IF EXISTS f")
    assert [(level, code) for level, code, _ in run(db, "SHOW WARNINGS")] == [("Note", 1091)]
    shown = run(db, "SHOW CREATE TABLE c")[0][1]
    assert "`k`" not in shown and "`u`" not in shown and "`h`" in shown
    assert run(db, "SELECT * FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = DATABASE() AND REFERENCED_TABLE_NAME IS NOT NULL") == []
    for how in ("DROP KEY f", "DROP COLUMN z"):
        with pytest.raises(pymysql.err.Error) as refused:
            run(db, f"ALTER TABLE c {how}")
        assert refused.value.args[0] == 1091, how
    run(db, "SET terrace_foreign_keys = 'refuse'")
    for how in ("DROP FOREIGN KEY f", "DROP CONSTRAINT f"):
        with pytest.raises(pymysql.err.Error) as refused:
            run(db, f"ALTER TABLE c {how}")
        assert refused.value.args[0] == 1091, how


def test_a_foreign_key_is_an_error_or_a_warning(db, engine, run):
    if engine != "Terrace":
        pytest.skip("a setting of Terrace")
    run(db, "SET terrace_foreign_keys = 'refuse'")
    run(db, "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=Terrace")
    child = "CREATE TABLE {} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=Terrace"
    with pytest.raises(pymysql.err.Error) as refused:
        run(db, child.format("a"))
    assert refused.value.args[0] == 1178
    assert [code for _, code, _ in run(db, "SHOW WARNINGS")] == [1178]
    run(db, "SET terrace_foreign_keys = 'warn'")
    run(db, child.format("a"))
    assert [(level, code) for level, code, _ in run(db, "SHOW WARNINGS")] == [("Warning", 1178)]
    run(db, "INSERT INTO a VALUES (1, 100)")
    assert "FOREIGN" not in run(db, "SHOW CREATE TABLE a")[0][1]
    # What comes to nothing copies no table.
    run(db, "CREATE TABLE b (id INT PRIMARY KEY, p INT, KEY p (p)) ENGINE=Terrace")
    run(db, "INSERT INTO b VALUES (1, 100)")
    for algorithm in ("INSTANT", "INPLACE", "COPY"):
        run(db, f"ALTER TABLE b ADD CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id), ALGORITHM={algorithm}")
        assert [(level, code) for level, code, _ in run(db, "SHOW WARNINGS")] == [("Warning", 1178)], algorithm
    run(db, "ALTER TABLE b DROP KEY p")
    run(db, "ALTER TABLE b ADD COLUMN q INT, ADD FOREIGN KEY (p) REFERENCES p (id), ALGORITHM=NOCOPY")
    shown = run(db, "SHOW CREATE TABLE b")
    run(db, "SET terrace_foreign_keys = 'refuse'")
    for algorithm in ("INSTANT", "INPLACE", "COPY", "DEFAULT"):
        with pytest.raises(pymysql.err.Error) as refused:
            run(db, f"ALTER TABLE b ADD CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id), ALGORITHM={algorithm}")
        assert refused.value.args[0] == 1178, algorithm
    assert run(db, "SHOW CREATE TABLE b") == shown and "FOREIGN" not in shown[0][1] and run(db, "SELECT * FROM b") == [(1, 100, None)]
    # The setting is of declarations: what is declared stays, through copies too, and stays enforced.
    run(db, "SET terrace_foreign_keys = DEFAULT")
    run(db, child.format("kept"))
    for setting in ("refuse", "warn"):
        run(db, f"SET terrace_foreign_keys = '{setting}'")
        for algorithm in ("INPLACE", "COPY"):
            run(db, f"ALTER TABLE kept ADD COLUMN {setting}{algorithm} INT, ALGORITHM={algorithm}")
            assert run(db, "SHOW WARNINGS") == []
        with pytest.raises(pymysql.err.Error) as refused:
            run(db, "INSERT INTO kept (id, p) VALUES (1, 100)")
        assert refused.value.args[0] == 1452 and "FOREIGN KEY (`p`)" in run(db, "SHOW CREATE TABLE kept")[0][1]
    run(db, "ALTER TABLE kept DROP FOREIGN KEY kept_ibfk_1")
    assert run(db, "SHOW WARNINGS") == []


def test_a_foreign_key_of_innodb_is_dropped_before_its_tables_move(db, engine, run):
    if engine != "Terrace":
        pytest.skip("a way to Terrace")
    run(db, "CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB")
    run(db, "CREATE TABLE child (id INT PRIMARY KEY, p INT, CONSTRAINT of_parent FOREIGN KEY (p) REFERENCES parent (id)) ENGINE=InnoDB")
    run(db, "INSERT INTO parent VALUES (1)")
    run(db, "INSERT INTO child VALUES (1, 1)")
    run(db, "SET terrace_foreign_keys = 'warn', foreign_key_checks = 0")
    for table in ("child", "parent"):
        with pytest.raises(pymysql.err.Error) as refused:
            run(db, f"ALTER TABLE {table} ENGINE=Terrace")
        assert refused.value.args[0] == 1217, "InnoDB's own"
    run(db, "ALTER TABLE child DROP FOREIGN KEY of_parent")
    for table in ("child", "parent"):
        run(db, f"ALTER TABLE {table} ENGINE=Terrace")
    assert run(db, "SELECT child.id, parent.id FROM child JOIN parent ON parent.id = p") == [(1, 1)]


def test_the_engine_is_named_as_users_write_it(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={engine}")
    assert f"ENGINE={engine} " in run(db, "SHOW CREATE TABLE t")[0][1]


def test_a_partition_is_not_converted_into_a_table_of_its_own_tables_name(server, run):
    """The server takes it, writes the new table's definition over the old one's, and the partition's rows are in no table any more."""
    connection = server.connect()
    run(connection, "CREATE DATABASE own")
    connection.select_db("own")
    run(connection, "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=Terrace PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)")
    run(connection, "INSERT INTO p SELECT seq FROM seq_1_to_20")
    for name in ("p", "own.p"):
        with pytest.raises(Exception) as refused:
            run(connection, f"ALTER TABLE p CONVERT PARTITION p1 TO TABLE {name}")
        assert refused.value.args[0] == 1050, refused.value
        assert run(connection, "SELECT COUNT(*), SUM(id) FROM p") == [(20, 210)]
    # Under LOCK TABLES it was asked for nowhere.
    run(connection, "LOCK TABLES p WRITE")
    with pytest.raises(Exception) as refused:
        run(connection, "ALTER TABLE p CONVERT PARTITION p1 TO TABLE p")
    assert refused.value.args[0] == 1050, refused.value
    run(connection, "UNLOCK TABLES")
    assert run(connection, "SELECT COUNT(*), SUM(id) FROM p") == [(20, 210)]
    assert run(connection, "CHECK TABLE p EXTENDED")[0][3] == "OK"
    run(connection, "ALTER TABLE p CONVERT PARTITION p1 TO TABLE n")
    assert run(connection, "SELECT COUNT(*) FROM p") == [(9,)] and run(connection, "SELECT COUNT(*) FROM n") == [(11,)]
    run(connection, "DROP DATABASE own")
    assert not os.path.exists(os.path.join(server.directory, "data", "own"))


def test_analyze_corrects_a_row_count_that_a_crash_lost(own_server, run):
    """The count is written with changes of the tree's structure: in a small table a crash loses all counts since the last one."""
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v BLOB) ENGINE=Terrace")
    run(connection, "INSERT INTO t SELECT seq, REPEAT('x', 20000) FROM seq_1_to_69")
    own_server.kill9()
    own_server.start()
    connection = own_server.connect()
    rows = "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd'"
    assert run(connection, rows) != [(69,)], "nothing was lost: the test tests nothing"
    run(connection, "ANALYZE TABLE d.t")
    assert run(connection, rows) == [(69,)]


def test_a_table_replaces_one_whose_list_of_partitions_a_failed_drop_removed(own_server, run, engine):
    """A drop that fails has already removed the partition list: the server then drops only the definition, and the partitions block a new table of that name."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    spaces = "SELECT COUNT(*) FROM information_schema.TERRACE_SPACES WHERE TABLE_NAME = 'p'"
    made = f"TABLE p (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine} PARTITION BY HASH (id) PARTITIONS"
    for dropped in (True, False):
        run(connection, f"CREATE {made} 6")
        run(connection, "INSERT INTO p SELECT seq, seq FROM seq_1_to_60")
        os.remove(os.path.join(own_server.directory, "data", "d", "p.par"))
        if dropped:
            run(connection, "DROP TABLE p")
            with pytest.raises(pymysql.err.OperationalError) as refused:
                run(connection, f"CREATE {made} 4")
            assert refused.value.args[0] == 1050
            assert any("DROP TABLE of that name removes it" in text for _, _, text in run(connection, "SHOW WARNINGS"))
        run(connection, f"CREATE OR REPLACE {made} 4")
        assert run(connection, "SELECT COUNT(*) FROM p") == [(0,)] and run(connection, spaces) == [(8,)]
        run(connection, "INSERT INTO p VALUES (1, 1), (2, 2)")
        own_server.kill9()
        own_server.start()
        connection = own_server.connect(database="d")
        assert run(connection, "SELECT v FROM p ORDER BY id") == [(1,), (2,)] and run(connection, spaces) == [(8,)]
        run(connection, "DROP TABLE p")
        assert run(connection, spaces) == [(0,)]


@pytest.mark.parametrize("before, after", [
    ("TINYINT(1)", "TINYINT"), ("TINYINT", "TINYINT(2)"), ("BIGINT(5)", "BIGINT"), ("INT(5) ZEROFILL", "INT(6) ZEROFILL"),
    ("INT(5) ZEROFILL", "INT UNSIGNED"), ("FLOAT", "FLOAT(10,2)"), ("FLOAT(7,3)", "FLOAT(7,2)"), ("DOUBLE", "DOUBLE(10,2)"),
])
def test_a_numbers_display_width_changes_instantly(db, run, engine, before, after):
    """Each of these copied the table, and rounded what it copied."""
    seen = []
    for name in ("InnoDB", engine):
        run(db, f"CREATE TABLE t (id INT PRIMARY KEY, n {before}, k {before}, KEY (k)) ENGINE={name}")
        run(db, "INSERT INTO t VALUES (1, 2.256, 3.257), (2, NULL, 7)")
        run(db, f"ALTER TABLE t MODIFY n {after}, MODIFY k {after}, ALGORITHM=INSTANT")
        run(db, "INSERT INTO t VALUES (3, 4.256, 5.257)")
        shown = run(db, "SELECT * FROM t ORDER BY k"), run(db, "SELECT id FROM t FORCE INDEX (k) WHERE k > 4 ORDER BY k")
        run(db, f"ALTER TABLE t MODIFY n {before}, MODIFY k {before}, ALGORITHM=INSTANT")
        seen.append((shown, run(db, "SELECT * FROM t ORDER BY id"), run(db, "CHECK TABLE t EXTENDED")[0][2:]))
        run(db, "DROP TABLE t")
    assert seen[0] == seen[1]


def test_an_index_directory_is_a_warning_where_nothing_is_strict(db, run, engine):
    seen = []
    for name in ("InnoDB", engine):
        run(db, "SET SESSION innodb_strict_mode = OFF")
        run(db, f"CREATE TABLE t (a INT) ENGINE={name} INDEX DIRECTORY='/tmp'")
        seen.append(run(db, "SHOW WARNINGS"))
        run(db, "DROP TABLE t")
        run(db, "SET SESSION innodb_strict_mode = ON")
    assert seen[0] == seen[1]


def test_a_table_without_its_definition_blocks_its_name_with_an_error_that_names_it(own_server, run, engine):
    db = own_server.connect()
    run(db, "CREATE DATABASE d")
    seen = []
    for name in ("InnoDB", engine):
        run(db, f"CREATE TABLE d.t (a INT) ENGINE={name}")
        run(db, "FLUSH TABLES")
        os.remove(os.path.join(own_server.directory, "data", "d", "t.frm"))
        with pytest.raises(pymysql.err.MySQLError) as error:
            run(db, f"CREATE TABLE IF NOT EXISTS d.t (a INT) ENGINE={name}")
        seen.append(error.value.args)
        run(db, "DROP TABLE d.t") if name != "InnoDB" else run(db, "DROP DATABASE d") or run(db, "CREATE DATABASE d")
    assert seen[0] == seen[1]
