"""Columns whose character set, collation or type changes instantly: no row is touched, and each reads as if it had been copied."""

import itertools

import pymysql
import pytest

TEXTS = ["", "a", "b  ", "Ä", "ä ", "ß", "ｚ", "€uro", "a b", "zz9", "Straße", "日本語"]
COLUMNS = {
    "one": "CHAR(1)", "c": "CHAR(10) NOT NULL DEFAULT 'ö'", "v": "VARCHAR(80)", "w": "VARCHAR(20) NOT NULL", "x": "TEXT", "y": "TINYTEXT",
    "e": "ENUM('x','Ä','long')", "s": "SET('p','q','r')",
}


def make(db, run, name, engine, charset="utf8mb3", more=""):
    columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
    run(db, f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT, {columns}, b VARBINARY(30), "
            f"KEY one (one), KEY c (c), KEY v (v), KEY w (w, n), KEY x (x(5)), KEY n (n)) ENGINE={engine} CHARACTER SET {charset} {more}")


def fill(db, run, name, low, high):
    rows = []
    for at in range(low, high):
        text = TEXTS[at % len(TEXTS)]
        rows.append((at, at % 7, text[:1] if at % 5 else None, text[:10], text * (at % 6) if at % 4 else None, text + " " * (at % 3), text * (at % 30), text,
                     1 + at % 3 if at % 6 else None, at % 8, bytes([at % 256, 32, 0]) * (at % 10)))
    with db.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {name} VALUES ({','.join(['%s'] * len(rows[0]))})", rows)
    db.commit()


def same(db, run):
    rows = run(db, "SELECT * FROM t ORDER BY id")
    assert rows == run(db, "SELECT * FROM r ORDER BY id")
    assert run(db, "SHOW CREATE TABLE t")[0][1].replace("`t`", "`r`") == run(db, "SHOW CREATE TABLE r")[0][1]
    keys = {row[2]: row[4] for row in run(db, "SHOW KEYS FROM t") if row[3] == 1}
    for key, column in keys.items():
        for query in (f"SELECT id, {column} FROM %s FORCE INDEX ({key}) ORDER BY {column}, id", f"SELECT id FROM %s FORCE INDEX ({key}) WHERE {column} = 'Ä' ORDER BY id",
                      f"SELECT {column}, COUNT(*) FROM %s FORCE INDEX ({key}) WHERE {column} >= 'b' GROUP BY {column}"):
            assert run(db, query % "t") == run(db, query % "r"), query
    assert [row[3] for row in run(db, "CHECK TABLE t EXTENDED")] == ["OK"]


def change_both(db, run, change, algorithm):
    run(db, f"ALTER TABLE t {change}, ALGORITHM={algorithm}")
    run(db, f"ALTER TABLE r {change}, ALGORITHM=COPY")


def begin(db, run, engine, charset="utf8mb3", more=""):
    run(db, "SET NAMES utf8mb4")
    for name in "t", "r":
        make(db, run, name, engine, charset, more)
        fill(db, run, name, 1, 200)


def go_on(db, run, low):
    for name in "t", "r":
        fill(db, run, name, low, low + 50)
        run(db, f"UPDATE {name} SET v = CONCAT(COALESCE(v, ''), 'é'), c = LEFT(w, 10) WHERE id % 5 = 1")
        run(db, f"DELETE FROM {name} WHERE id % 13 = 2")


CHANGES = [
    ("CONVERT TO CHARACTER SET utf8mb4", "INSTANT"),
    ("CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", "NOCOPY"),
    ("CONVERT TO CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", "NOCOPY"),
    ("DEFAULT CHARACTER SET utf8mb4", "INSTANT"),
    ("MODIFY v VARCHAR(80) CHARACTER SET utf8mb4", "INSTANT"),
    ("MODIFY v VARCHAR(80) COLLATE utf8mb3_unicode_ci", "NOCOPY"),
    ("MODIFY v VARCHAR(90) CHARACTER SET utf8mb4, MODIFY w VARCHAR(300) NOT NULL", "INSTANT"),
    ("MODIFY v TEXT, DROP KEY v, ADD KEY v (v(9))", "NOCOPY"),
    ("MODIFY c CHAR(40) NOT NULL", "INSTANT"),
    ("MODIFY c VARCHAR(10) NOT NULL", "NOCOPY"),
    ("MODIFY c TEXT NOT NULL, DROP KEY c", "INSTANT"),
    ("MODIFY one CHAR(1) CHARACTER SET utf8mb4", "INSTANT"),
    ("MODIFY one CHAR(7)", "INSTANT"),
    ("MODIFY one VARCHAR(3) CHARACTER SET utf8mb4", "NOCOPY"),
    ("MODIFY x MEDIUMTEXT, MODIFY y LONGTEXT CHARACTER SET utf8mb4", "INSTANT"),
    ("MODIFY b MEDIUMBLOB", "INSTANT"),
    ("MODIFY e ENUM('x','Ä','long','and a longer one')", "INSTANT"),
    ("MODIFY s SET('p','q','r','t','u')", "INSTANT"),
    ("MODIFY e ENUM('x','Ä','long','more') CHARACTER SET utf8mb4, ADD m INT DEFAULT 4 AFTER n", "INSTANT"),
    ("MODIFY w VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL FIRST, DROP y", "INSTANT"),
]


@pytest.mark.parametrize("change,algorithm", CHANGES)
def test_an_instant_change_of_a_text_gives_what_a_copy_gives(db, engine, run, change, algorithm):
    begin(db, run, engine)
    change_both(db, run, change, algorithm if engine == "Terrace" else "DEFAULT")
    same(db, run)
    if "ADD m" not in change and "FIRST" not in change:
        go_on(db, run, 1000)
    same(db, run)


def test_successive_instant_changes_give_what_copies_give(db, engine, run):
    begin(db, run, engine)
    low = itertools.count(1000, 100)
    for change in ("MODIFY one CHAR(1) CHARACTER SET utf8mb4", "MODIFY c CHAR(20) NOT NULL", "CONVERT TO CHARACTER SET utf8mb4", "MODIFY y TEXT", "MODIFY one CHAR(3)",
                   "MODIFY c VARCHAR(30) NOT NULL", "MODIFY one VARCHAR(9)", "MODIFY v VARCHAR(200)", "MODIFY e ENUM('x','Ä','long','l','m')", "MODIFY x LONGTEXT"):
        change_both(db, run, change, "NOCOPY" if engine == "Terrace" else "DEFAULT")
        same(db, run)
        go_on(db, run, next(low))
        same(db, run)
    run(db, "ALTER TABLE t FORCE")
    same(db, run)


def test_the_default_of_an_instantly_added_char_keeps_its_meaning(db, engine, run):
    begin(db, run, engine)
    change_both(db, run, "ADD d CHAR(2) NOT NULL DEFAULT 'é', ADD f CHAR(12) DEFAULT 'xyz'", "INSTANT")
    change_both(db, run, "CONVERT TO CHARACTER SET utf8mb4", "INSTANT" if engine == "Terrace" else "DEFAULT")
    change_both(db, run, "MODIFY d CHAR(9) NOT NULL DEFAULT 'é'", "INSTANT" if engine == "Terrace" else "DEFAULT")
    same(db, run)
    change_both(db, run, "MODIFY d VARCHAR(9) NOT NULL DEFAULT 'é', MODIFY f VARCHAR(12)", "DEFAULT")
    same(db, run)
    assert run(db, "SELECT DISTINCT CONCAT('<', d, '>'), CONCAT('<', f, '>') FROM t") == [("<é>", "<xyz>")]


COPIED = [
    ("utf8mb4", "CONVERT TO CHARACTER SET utf8mb3"),
    ("latin1", "CONVERT TO CHARACTER SET utf8mb4"),
    ("utf8mb3", "MODIFY v VARCHAR(79)"),
    ("utf8mb3", "MODIFY c CHAR(10) CHARACTER SET binary NOT NULL"),
    ("utf8mb3", "MODIFY x TINYTEXT"),
    ("utf8mb3", "MODIFY v CHAR(80)"),
    ("utf8mb3", "MODIFY e ENUM('x','new','Ä','long')"),
    ("utf8mb3", "MODIFY e ENUM('x','new','Ä','long') CHARACTER SET utf8mb4"),
    ("utf8mb3", "MODIFY s SET('p','q','r','4','5','6','7','8','9')"),
    ("utf8mb3", "MODIFY b BLOB, MODIFY v BLOB, DROP KEY v"),
]


@pytest.mark.parametrize("charset,change", COPIED)
def test_a_change_to_other_bytes_or_a_narrower_type_copies_the_table(db, engine, run, charset, change):
    run(db, "SET NAMES utf8mb4")
    make(db, run, "t", engine, charset)
    for algorithm in "INSTANT", "NOCOPY":
        with pytest.raises(pymysql.err.OperationalError) as refused:
            run(db, f"ALTER TABLE t {change}, ALGORITHM={algorithm}")
        assert refused.value.args[0] in (1845, 1846)
    run(db, f"ALTER TABLE t {change}")


def test_stored_columns_computed_from_a_text_keep_their_meaning(db, engine, run):
    """An index, a stored column and a partition that depend on the old collation are invalid under another one."""
    if engine != "Terrace":
        pytest.skip("says which changes are made at once here")
    run(db, "SET NAMES utf8mb4")
    for name, more, partitioned in (("t", "g INT AS (v = 'A') STORED", ""), ("u", "g INT AS (v = 'A') VIRTUAL, KEY (g)", ""),
                                    ("p", "g INT", "PARTITION BY KEY (v) PARTITIONS 3")):
        key = "PRIMARY KEY (id, v)" if partitioned else "PRIMARY KEY (id)"
        run(db, f"CREATE TABLE {name} (id INT, v VARCHAR(20) COLLATE utf8mb3_bin NOT NULL, {more}, {key}) ENGINE={engine} {partitioned}")
        run(db, f"INSERT INTO {name} (id, v) VALUES (1, 'A'), (2, 'a'), (3, 'b')")
        change = f"ALTER TABLE {name} MODIFY v VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL"
        with pytest.raises(pymysql.err.OperationalError) as refused:
            run(db, change + ", ALGORITHM=NOCOPY")
        assert refused.value.args[0] in (1845, 1846)
        run(db, change)
        if name != "p":
            assert sorted(run(db, f"SELECT id FROM {name} WHERE g = 1")) == [(1,), (2,)]
        assert sorted(run(db, f"SELECT id FROM {name} WHERE v = 'a'")) == [(1,), (2,)]
        assert [row[3] for row in run(db, f"CHECK TABLE {name} EXTENDED")] == ["OK"]
    # A virtual column that is not stored in any index is computed again.
    run(db, f"CREATE TABLE w (id INT PRIMARY KEY, v VARCHAR(20) COLLATE utf8mb3_bin, g INT AS (v = 'A') VIRTUAL) ENGINE={engine}")
    run(db, "INSERT INTO w (id, v) VALUES (1, 'A'), (2, 'a')")
    run(db, "ALTER TABLE w MODIFY v VARCHAR(20) CHARACTER SET utf8mb4, ALGORITHM=INSTANT")
    assert run(db, "SELECT id FROM w WHERE g = 1 ORDER BY id") == [(1,), (2,)]


def refused_without_copy(db, run, change):
    with pytest.raises(pymysql.err.OperationalError) as refused:
        run(db, change + ", ALGORITHM=NOCOPY")
    assert refused.value.args[0] in (1845, 1846)


def test_columns_computed_from_computed_columns_keep_their_meaning(db, engine, run):
    """Between the text and what is stored, indexed or partitioned by stands a virtual column that is nowhere."""
    if engine != "Terrace":
        pytest.skip("InnoDB's are wrong afterwards")
    for name, more, partitioned in ("s", "h INT AS (g + 1) STORED", ""), ("i", "h INT AS (g + 1) VIRTUAL, KEY (h)", ""), ("p", "h INT AS (g + 1) VIRTUAL", "PARTITION BY KEY (h) PARTITIONS 5"):
        run(db, f"CREATE TABLE {name} (id INT, v VARCHAR(20) COLLATE utf8mb3_bin, g INT AS (v = 'A') VIRTUAL, {more}) ENGINE={engine} {partitioned}")
        run(db, f"INSERT INTO {name} (id, v) VALUES (1, 'A'), (2, 'a'), (3, 'b')")
        change = f"ALTER TABLE {name} MODIFY v VARCHAR(20) COLLATE utf8mb3_general_ci"
        refused_without_copy(db, run, change)
        run(db, change)
        assert run(db, f"SELECT id FROM {name} WHERE h = 2 ORDER BY id") == [(1,), (2,)]
        assert [row[3] for row in run(db, f"CHECK TABLE {name} EXTENDED")] == ["OK"]


def test_a_new_constraint_is_checked_for_existing_rows(db, engine, run):
    if engine != "Terrace":
        pytest.skip("InnoDB does not look at them")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) COLLATE utf8mb3_bin, w VARCHAR(20) COLLATE utf8mb3_bin CHECK (w <> 'A'), j TEXT CHARACTER SET utf8mb3, "
            f"x VARCHAR(9) CHARACTER SET utf8mb3 CHECK (x <> 'A'), g INT AS (v = 'A') VIRTUAL, CHECK (g < 1)) ENGINE={engine}")
    run(db, "INSERT INTO t (id, v, w, j) VALUES (1, 'a', 'a', '{')")
    for change in "v VARCHAR(20) COLLATE utf8mb3_general_ci", "w VARCHAR(20) COLLATE utf8mb3_general_ci CHECK (w <> 'A')", "j JSON", "j TEXT CHARACTER SET utf8mb4 CHECK (j <> '{')":
        refused_without_copy(db, run, f"ALTER TABLE t MODIFY {change}")
        with pytest.raises(pymysql.err.OperationalError) as refused:
            run(db, f"ALTER TABLE t MODIFY {change}")
        assert refused.value.args[0] == 4025
    # What compares as before needs no look.
    run(db, "ALTER TABLE t DROP v, DROP w, DROP g, DROP CONSTRAINT CONSTRAINT_1")
    run(db, "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, ALGORITHM=INSTANT")
    with pytest.raises(pymysql.err.OperationalError):
        run(db, "UPDATE t SET x = 'a'")


def test_json_columns_change_instantly(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, j JSON, k LONGTEXT CHECK (JSON_VALID(k))) ENGINE={engine} CHARACTER SET utf8mb3")
    run(db, """INSERT INTO t VALUES (1, '{"a": "ö"}', '[1]')""")
    run(db, "ALTER TABLE t MODIFY k JSON, ALGORITHM=INSTANT")
    run(db, "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, ALGORITHM=INSTANT")
    assert run(db, "SELECT JSON_VALUE(j, '$.a'), JSON_VALUE(k, '$[0]') FROM t") == [("ö", "1")]
    with pytest.raises(pymysql.err.OperationalError) as refused:
        run(db, "INSERT INTO t VALUES (2, '{', NULL)")
    assert refused.value.args[0] == 4025


@pytest.mark.parametrize("collation", ["latin1_nopad_bin", "utf8mb3_general_nopad_ci", "utf8mb3_uca1400_nopad_as_cs"])
def test_the_spaces_of_a_longer_char_are_in_its_key_if_its_collation_does_not_pad(db, engine, run, collation):
    for name, key in ("t", "UNIQUE KEY c (c)"), ("p", "PRIMARY KEY (c)"), ("b", "KEY c (c(2) DESC, id)"):
        run(db, f"CREATE TABLE {name} (id INT NOT NULL, c CHAR(5) COLLATE {collation}, {key}) ENGINE={engine}")
        run(db, f"INSERT INTO {name} VALUES (1, 'ab'), (2, 'ab\t'), (3, 'ac'), (4, '')")
        algorithm = {"t": "NOCOPY", "p": "COPY", "b": "INSTANT"}[name] if engine == "Terrace" else "DEFAULT"
        run(db, f"ALTER TABLE {name} MODIFY c CHAR(10) COLLATE {collation}, ALGORITHM={algorithm}")
        assert run(db, f"SELECT id FROM {name} WHERE c = 'ab'") == [(1,)]
        assert run(db, f"SELECT id FROM {name} FORCE INDEX (c) WHERE c >= 'ab' ORDER BY id" if name != "p" else "SELECT id FROM p WHERE c >= 'ab' ORDER BY id") in ([(1,), (3,)], [(1,), (2,), (3,)])
        if name != "b":
            with pytest.raises(pymysql.err.IntegrityError):
                run(db, f"INSERT INTO {name} VALUES (5, 'ab')")
        assert [row[3] for row in run(db, f"CHECK TABLE {name} EXTENDED")] == ["OK"]


def test_a_copy_keeps_a_chars_padding_if_the_sql_mode_says_so(db, engine, run):
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, c CHAR(4)) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 'a')")
    run(db, "SET sql_mode = CONCAT(@@sql_mode, ',PAD_CHAR_TO_FULL_LENGTH')")
    run(db, "ALTER TABLE t MODIFY c VARCHAR(4)")
    assert run(db, "SELECT LENGTH(c) FROM t") == [(4,)]


def test_a_unique_key_refuses_what_the_new_collation_finds_equal(db, engine, run):
    run(db, "SET NAMES utf8mb4")
    run(db, f"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) COLLATE utf8mb3_bin, UNIQUE KEY v (v)) ENGINE={engine}")
    run(db, "INSERT INTO t VALUES (1, 'a'), (2, 'A')")
    with pytest.raises(pymysql.err.IntegrityError) as refused:
        run(db, "ALTER TABLE t MODIFY v VARCHAR(20) CHARACTER SET utf8mb4")
    assert refused.value.args[0] == 1062
    assert run(db, "SELECT id FROM t WHERE v = 'a'") == [(1,)]
    run(db, "DELETE FROM t WHERE id = 2")
    run(db, "ALTER TABLE t MODIFY v VARCHAR(20) CHARACTER SET utf8mb4, ALGORITHM=" + ("NOCOPY" if engine == "Terrace" else "DEFAULT"))
    assert run(db, "SELECT id FROM t FORCE INDEX (v) WHERE v = 'A'") == [(1,)]


def test_partitions_change_all_together(db, engine, run):
    begin(db, run, engine, more="PARTITION BY HASH (id) PARTITIONS 3")
    change_both(db, run, "CONVERT TO CHARACTER SET utf8mb4", "INSTANT" if engine == "Terrace" else "DEFAULT")
    same(db, run)
    change_both(db, run, "MODIFY c VARCHAR(50) NOT NULL, MODIFY e ENUM('x','Ä','long','m')", "NOCOPY" if engine == "Terrace" else "DEFAULT")
    same(db, run)
    go_on(db, run, 1000)
    same(db, run)


def test_an_index_changes_its_placement_and_stays(db, engine, run):
    if engine != "Terrace":
        pytest.skip("an option of Terrace's")
    begin(db, run, engine)
    trees = "SELECT INDEX_NAME, SPACE FROM information_schema.TERRACE_INDEX_STATISTICS WHERE TABLE_NAME = 't' ORDER BY 1"
    columns = [row[0] for row in run(db, "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_NAME = 'TERRACE_INDEX_STATISTICS'")]
    if "SPACE" not in columns:
        trees = None
    before = trees and run(db, trees)
    run(db, "ALTER TABLE t DROP KEY v, ADD KEY v (v) PLACEMENT=KEEP, ALGORITHM=INSTANT")
    assert "`v` (`v`) `PLACEMENT`=KEEP" in run(db, "SHOW CREATE TABLE t")[0][1] or "PLACEMENT" in run(db, "SHOW CREATE TABLE t")[0][1]
    assert not trees or run(db, trees) == before
    run(db, "ALTER TABLE t DROP KEY v, ADD UNIQUE KEY v (id, v) PLACEMENT=KEEP, ALGORITHM=NOCOPY")
    with pytest.raises(pymysql.err.OperationalError):
        run(db, "ALTER TABLE t DROP KEY v, ADD KEY v (v) PLACEMENT=NONE, ALGORITHM=INSTANT")
    assert [row[3] for row in run(db, "CHECK TABLE t EXTENDED")] == ["OK"]
