import pymysql
import pytest


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


def test_what_is_not_supported_is_refused_and_said(db, engine, run):
    run(db, f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    if engine == "InnoDB":
        pytest.skip("InnoDB has them")
    for sql in (
        f"CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE={engine}",
        f"CREATE TABLE c (id INT PRIMARY KEY, t TEXT, FULLTEXT (t)) ENGINE={engine}",
    ):
        with pytest.raises(pymysql.err.MySQLError):
            run(db, sql)
        assert run(db, "SHOW TABLES") == [("p",)]


def test_where_the_pages_are_can_be_seen(db, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own tables")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY named (v)) ENGINE={engine}")
    run(db, "INSERT INTO t SELECT seq, seq FROM seq_1_to_5000")
    found = run(db, "SELECT INDEX_NAME, PAGES FROM information_schema.TERRACE_SPACES WHERE TABLE_NAME = %s ORDER BY 1", (f"{db.name}/t",))
    assert [r[0] for r in found] == ["named", "PRIMARY"] and all(int(r[1]) > 2 for r in found)
    assert "pool_frames" in run(db, "SHOW ENGINE TERRACE STATUS")[0][2]


def test_a_foreign_key_is_an_error_or_a_warning(db, engine, run):
    if engine != "Terrace":
        pytest.skip("a setting of Terrace")
    run(db, "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=Terrace")
    child = "CREATE TABLE {} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=Terrace"
    with pytest.raises(pymysql.err.Error) as refused:
        run(db, child.format("a"))
    assert refused.value.args[0] == 1178
    run(db, "SET terrace_foreign_keys = 'warn'")
    run(db, child.format("a"))
    assert [(level, code) for level, code, _ in run(db, "SHOW WARNINGS")] == [("Warning", 1178)]
    run(db, "INSERT INTO a VALUES (1, 100)")
    assert "FOREIGN" not in run(db, "SHOW CREATE TABLE a")[0][1]


def test_a_table_may_have_as_many_indexes_as_the_server_allows(db, engine, run):
    """Their names alone are longer than an entry of a page."""
    columns = [f"c{n} INT" for n in range(64)]
    keys = [f"KEY {'a_long_name_of_an_index_' * 2}{n} (c{n})" for n in range(64)]
    run(db, f"CREATE TABLE t ({', '.join(columns + keys)}) ENGINE={engine}")
    run(db, f"INSERT INTO t VALUES ({', '.join(str(n) for n in range(64))})")
    run(db, "RENAME TABLE t TO u")
    assert run(db, f"SELECT c0 FROM u FORCE INDEX ({'a_long_name_of_an_index_' * 2}63) WHERE c63 = 63") == [(0,)]
    run(db, "TRUNCATE u")
    assert run(db, "SELECT COUNT(*) FROM u") == [(0,)]
    run(db, "DROP TABLE u")


def test_the_engine_is_named_as_users_write_it(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={engine}")
    assert f"ENGINE={engine} " in run(db, "SHOW CREATE TABLE t")[0][1]
