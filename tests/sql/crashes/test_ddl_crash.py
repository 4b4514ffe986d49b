"""A crash at each step of a DDL statement: the server is killed before its n-th request to the file system. After the
restart each table, with its rows, has the old or the new state; server and engine name the same tables; nothing is left over.

TERRACE_DDL_KILLS: kills for each statement, spread over its steps (default 1; 0: at every step).
"""

import mmap
import os
import random
import re
import shutil
import struct
import subprocess

import pymysql
import pytest
from conftest import ROOT, Server, end, run

KILLS = int(os.environ.get("TERRACE_DDL_KILLS", "1"))
ROWS = 300
PARTITIONS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN MAXVALUE)"

# What tables there are before: a plain one, one beside it, one of partitions, one that fits into a partition, one of partitions by hash.
BEFORE = [
    "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT, s VARCHAR(100), KEY kv (v)) ENGINE={engine}",
    f"INSERT INTO t SELECT seq, seq % 10, REPEAT('x', seq % 90) FROM seq_1_to_{ROWS}",
    "CREATE TABLE u (id INT, v INT) ENGINE={engine}",
    "INSERT INTO u SELECT seq, seq FROM seq_1_to_10",
    f"CREATE TABLE p (id INT PRIMARY KEY, v INT, KEY kv (v)) ENGINE={{engine}} {PARTITIONS}",
    f"INSERT INTO p SELECT seq, seq % 10 FROM seq_1_to_{ROWS}",
    "CREATE TABLE x (id INT PRIMARY KEY, v INT, KEY kv (v)) ENGINE={engine}",
    "INSERT INTO x SELECT seq + 99, -1 FROM seq_1_to_20",
    "CREATE TABLE h (id INT PRIMARY KEY, v INT, KEY kv (v)) ENGINE={engine} PARTITION BY HASH (id) PARTITIONS 2",
    "INSERT INTO h SELECT seq, seq % 10 FROM seq_1_to_50",
    "CREATE TABLE other (id INT PRIMARY KEY, v INT) ENGINE={other}",
    f"INSERT INTO other SELECT seq, seq % 10 FROM seq_1_to_{ROWS}",
]

STATEMENTS = {
    "create": "CREATE TABLE n (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}",
    "create-select": "CREATE TABLE n (id INT PRIMARY KEY, KEY (v)) ENGINE={engine} SELECT id, v FROM t",
    "create-partitions": f"CREATE TABLE n (id INT PRIMARY KEY) ENGINE={{engine}} {PARTITIONS}",
    "create-sequence": "CREATE SEQUENCE n ENGINE={engine}",
    "drop": "DROP TABLE t",
    "drop-partitions": "DROP TABLE p",
    "truncate": "TRUNCATE TABLE t",
    "truncate-partition": "ALTER TABLE p TRUNCATE PARTITION p1",
    "truncate-partitions": "TRUNCATE TABLE p",
    "truncate-some-partitions": "ALTER TABLE p TRUNCATE PARTITION p0, p2",
    "rename": "RENAME TABLE t TO n",
    "rename-many": "RENAME TABLE t TO a, u TO t, p TO u, a TO p",
    "rename-partitions": "RENAME TABLE p TO n",
    "rename-partitions-round": "RENAME TABLE p TO a, h TO p, a TO h",
    "rename-partitions-changed": "RENAME TABLE p TO a, q TO p, a TO q",
    "alter-copy": "ALTER TABLE t ADD COLUMN w INT DEFAULT 3 FIRST, ALGORITHM=COPY",
    "alter-in-place": "ALTER TABLE t ADD KEY ks (s), DROP KEY kv, ALGORITHM=NOCOPY",
    "alter-instant": "ALTER TABLE t CHANGE v w INT DEFAULT 7, ALGORITHM=INSTANT",
    "alter-options": "ALTER TABLE t ADD KEY ks (s) PLACEMENT=NONE, PLACEMENT=KEEP",
    "alter-options-partitions": "ALTER TABLE p WRITE_POLICY='DUAL', ALGORITHM=INSTANT",
    "alter-rename": "ALTER TABLE t ADD KEY ks (s), RENAME TO n",
    "alter-copy-partitions": "ALTER TABLE p ADD COLUMN w INT DEFAULT 3 FIRST, ALGORITHM=COPY",
    "alter-partitions": "ALTER TABLE p ADD KEY kw (v, id)",
    "alter-counter": "ALTER TABLE t AUTO_INCREMENT = 400, COMMENT 'counts', ALGORITHM=INSTANT",
    "alter-numbers": "ALTER TABLE u ADD n INT AUTO_INCREMENT PRIMARY KEY FIRST, ALGORITHM=INPLACE",
    "alter-numbers-partitions": "ALTER TABLE h ADD n INT AUTO_INCREMENT, ADD KEY (n), ALGORITHM=INPLACE",
    "optimize": "OPTIMIZE TABLE t",
    "engine-to": "ALTER TABLE other ENGINE={engine}",
    "engine-from": "ALTER TABLE t ENGINE={other}",
    "exchange": "ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE x",
    "drop-partition": "ALTER TABLE p DROP PARTITION p1",
    "reorganize": "ALTER TABLE p REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (200))",
    "hash-add": "ALTER TABLE h ADD PARTITION PARTITIONS 2",
    "hash-coalesce": "ALTER TABLE h COALESCE PARTITION 1",
    "hash-reorganize": "ALTER TABLE h REORGANIZE PARTITION p0, p1 INTO (PARTITION q0, PARTITION q1)",
    "hash-by-key": "ALTER TABLE h PARTITION BY KEY (id) PARTITIONS 3",
    "hash-remove": "ALTER TABLE h REMOVE PARTITIONING",
    "partition-by": f"ALTER TABLE t {PARTITIONS}",
    "remove-partitions": "ALTER TABLE p REMOVE PARTITIONING",
    "convert-partition": "ALTER TABLE p CONVERT PARTITION p1 TO TABLE n",
    "convert-table": "ALTER TABLE p CONVERT TABLE x TO PARTITION p1 VALUES LESS THAN (200)",
    "foreign-create": "CREATE TABLE n (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id)) ENGINE={engine}",
    "foreign-add": "ALTER TABLE u ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES t (id)",
    "foreign-drop": "ALTER TABLE u DROP FOREIGN KEY f, ALGORITHM=INSTANT",
    "foreign-drop-by-copy": "ALTER TABLE u DROP FOREIGN KEY f, ADD COLUMN w INT, ALGORITHM=COPY",
    "foreign-child-copy": "ALTER TABLE u ADD COLUMN w INT, ALGORITHM=COPY",
    "foreign-parent-copy": "ALTER TABLE t ADD COLUMN w INT, ALGORITHM=COPY",
    "foreign-rename": "RENAME TABLE u TO n",
    "foreign-drop-child": "DROP TABLE u",
    "foreign-add-in-place": "SET STATEMENT foreign_key_checks = 0 FOR ALTER TABLE u ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES t (id), ALGORITHM=INPLACE",
    "foreign-rename-parent": "RENAME TABLE t TO n",
    "foreign-rename-round": "RENAME TABLE t TO a, x TO t, a TO x",
    "foreign-rename-both": "RENAME TABLE t TO n, u TO t",
    "foreign-alter-rename-parent": "ALTER TABLE t ADD KEY ks (s), RENAME TO n, ALGORITHM=INPLACE",
    "foreign-column": "ALTER TABLE t RENAME COLUMN id TO number, ALGORITHM=INPLACE",
}
# What comes before the statement: a table becomes a partition behind all others.
FIRST = {
    # Two tables whose partitions have the same names, and versions other than their definition's.
    "rename-partitions-changed": [
        f"CREATE TABLE q (id INT PRIMARY KEY, v INT, KEY kv (v)) ENGINE={{engine}} {PARTITIONS}",
        f"INSERT INTO q SELECT seq, 7 FROM seq_1_to_{ROWS}",
        "ALTER TABLE p REORGANIZE PARTITION p2 INTO (PARTITION p3 VALUES LESS THAN (250), PARTITION p2 VALUES LESS THAN MAXVALUE)",
        "ALTER TABLE q DROP PARTITION p1",
    ],
    "convert-table": [
        "DROP TABLE p",
        "CREATE TABLE p (id INT PRIMARY KEY, v INT, KEY kv (v)) ENGINE={engine} PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100))",
        "INSERT INTO p SELECT id, v FROM t WHERE id < 100",
    ],
    "alter-counter": ["ALTER TABLE t AUTO_INCREMENT = 5000"],
    **{name: ["ALTER TABLE u ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES t (id)"]
       for name in ("foreign-drop", "foreign-drop-by-copy", "foreign-child-copy", "foreign-parent-copy", "foreign-rename", "foreign-drop-child",
                    "foreign-rename-parent", "foreign-rename-round", "foreign-rename-both", "foreign-alter-rename-parent", "foreign-column")},
}
# Several tables in one statement, which the server does one after the other: each is as before or as after.
ONE_BY_ONE = {"drop-many": "DROP TABLE t, u, p", "drop-database": "DROP DATABASE d"}
# The engine's own steps: options, partitions that are truncated or rebuilt at once, and converted ones, whose table only the server loses.
OWN = ("alter-options", "alter-numbers-partitions", "alter-options-partitions", "truncate-partitions", "truncate-some-partitions", "convert-partition", "convert-table")
# What need not be one or the other, of any engine.
LESS = {"create-or-replace": "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY) ENGINE={engine}"}
ALL = {**STATEMENTS, **ONE_BY_ONE, **LESS}


@pytest.fixture(scope="session")
def counter(tmp_path_factory):
    """The preloaded library, and the page that it shares with us."""
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler here")
    directory = tmp_path_factory.mktemp("steps")
    library, page = str(directory / "steps.so"), str(directory / "page")
    made = subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, os.path.join(ROOT, "tests", "sql", "steps.c"), "-ldl"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert made.returncode == 0, made.stdout
    with open(page, "wb") as file:
        file.truncate(512)
    return library, page


class Steps:
    def __init__(self, page):
        self.file = open(page, "r+b")
        self.page = mmap.mmap(self.file.fileno(), 512)

    def set(self, left, only=""):
        self.page[:] = struct.pack("q440s64s", left, b"", only.encode())

    def left(self):
        return struct.unpack("q", self.page[:8])[0]

    def last(self):
        return self.page[8:].split(b"\0")[0].decode(errors="replace")


@pytest.fixture(scope="module")
def stepped(counter, tmp_path_factory):
    """A server that can be killed at a step."""
    library, page = counter
    before = {name: os.environ.get(name) for name in ("LD_PRELOAD", "TERRACE_STEPS")}
    directory = str(tmp_path_factory.mktemp("stepped"))
    server = Server(directory, ["--terrace-memory=16777216", "--innodb-buffer-pool-size=8M"])
    server.start()
    server.stop()
    os.environ.update(LD_PRELOAD=library, TERRACE_STEPS=page)
    server.start()
    yield server, Steps(page)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    end(server)


def database_of(connection):
    """What each table is: its definition without the next number, and its rows."""
    found = {}
    if not run(connection, "SHOW DATABASES LIKE 'd'"):
        return found
    for table, kind in run(connection, "SHOW FULL TABLES FROM d"):
        definition = run(connection, f"SHOW CREATE TABLE d.{table}")[0][1]
        definition = " ".join(word for word in definition.split() if not word.startswith("AUTO_INCREMENT=")).replace(f"`{table}`", "``", 1)
        rows = sorted(map(repr, run(connection, f"SELECT * FROM d.{table}"))) if kind == "BASE TABLE" else []
        found[table] = (definition, rows)
    return found


def made(server, connection, engine, name=""):
    """The database as it is before the statement of this name."""
    try:
        run(connection, "DROP DATABASE IF EXISTS d")
    except pymysql.err.OperationalError:  # an earlier test failed, and files are left
        shutil.rmtree(os.path.join(server.directory, "data", "d"))
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    for sql in BEFORE + FIRST.get(name, []):
        run(connection, sql.format(engine=engine, other=other_than(engine)))


def other_than(engine):
    return "InnoDB" if engine == "Terrace" else "Aria"


def engines_tables(connection):
    rows = run(connection, "SELECT DISTINCT TABLE_NAME, PARTITION_NAME FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'd'")
    return {f"d/{table}" + (f"#P#{partition}" if partition else "") for table, partition in rows}


def agreed(connection, server, theirs=()):
    """Server and engine name the same tables, and no file of another table is left, except files with the suffixes `theirs`."""
    served = {(name, engine) for name, engine in run(connection, "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd'")}
    parts = run(connection, "SELECT TABLE_NAME, PARTITION_NAME FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = 'd' AND PARTITION_NAME IS NOT NULL")
    parted = {table for table, _ in parts}
    wanted = {f"d/{name}" for name, engine in served if engine == "Terrace" and name not in parted}
    wanted |= {f"d/{table}#P#{part}" for table, part in parts if (table, "Terrace") in served}
    assert engines_tables(connection) == wanted
    hidden = run(connection, "SELECT DISTINCT TABLE_NAME FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA LIKE '%dropped%'")
    assert not hidden, f"dropped and still there: {hidden}"
    # The engine goes by the options that the definitions have.
    options = {name: run(connection, f"SHOW CREATE TABLE d.`{name}`")[0][1] for name, engine in served if engine == "Terrace"}
    ruled = {name for name, definition in options.items() if "`PLACEMENT`" in definition or "`WRITE_POLICY`" in definition}
    rules = {row[0] for row in run(connection, "SELECT DISTINCT TABLE_NAME FROM information_schema.TERRACE_RULES WHERE TABLE_SCHEMA = 'd'")}
    assert rules == ruled
    directory = os.path.join(server.directory, "data", "d")
    files = set(os.listdir(directory)) if os.path.isdir(directory) else set()
    stems = {name for name, _ in served}
    # The server's list of a table's partitions (.par) may be left with other engines: it is made before what undoes it is noted.
    others = ".par" if not any(engine == "Terrace" for _, engine in served) else "none"
    left = {file for file in files if file != "db.opt" and file.split(".")[0].split("#P#")[0] not in stems and not file.endswith((others, *theirs))}
    assert not left, f"left over: {sorted(left)}"
    for name, engine in served:
        if engine != "Terrace" or name in parted or f"d/{name}" in wanted:
            checked = run(connection, f"CHECK TABLE d.`{name}`")[-1]
            assert checked[3] == "OK" or "doesn't support check" in checked[3], checked


def killed(server, steps, sql, left, only=""):
    """Runs the statement until the step. What that was."""
    connection = server.connect(database="d")
    steps.set(left, only)
    try:
        run(connection, sql)
    except pymysql.err.MySQLError as error:
        if error.args[0] not in (2006, 2013, 0):
            raise
    met, last = steps.left() <= 0, steps.last()
    steps.set(0)
    return last if met else "not met"


@pytest.mark.parametrize("name", ALL)
def test_a_crash_at_any_step_of_ddl_leaves_the_old_or_the_new_definition(stepped, engine, name):
    if engine == "InnoDB" and name in OWN:
        pytest.skip("Terrace's own")
    server, steps = stepped
    sql = ALL[name].format(engine=engine, other=other_than(engine))
    connection = server.connect()
    made(server, connection, engine, name)
    before = database_of(connection)
    plenty = 1 << 40
    steps.set(plenty)
    run(connection, sql)
    count = plenty - steps.left()
    steps.set(0)
    after = database_of(connection)
    assert count > 1 and (before != after or name == "optimize"), "the statement does nothing"
    at = range(1, count + 1)
    if KILLS and count > KILLS:
        # One in each part of the same length, elsewhere each time.
        edges = [1 + count * i // KILLS for i in range(KILLS + 1)]
        at = [random.randrange(low, max(low + 1, high)) for low, high in zip(edges, edges[1:])]
    seen = {"before": 0, "after": 0, "between": 0}
    for left in at:
        made(server, connection, engine, name)
        met = killed(server, steps, sql, left)
        where = f"{name}: before step {left} of {count} ({met})"
        server.kill9()
        if engine == "Terrace":
            code, report = server.check()
            assert code == 0, f"{where}: {report}"
        server.start()
        connection = server.connect()
        try:
            found = database_of(connection)
        except pymysql.err.MySQLError as error:
            files = sorted(os.listdir(os.path.join(server.directory, "data", "d")))
            raise AssertionError(f"{where}: {error}; {files} {sorted(engines_tables(connection))}; {said(server)}") from error
        if found in (before, after):
            seen["before" if found == before else "after"] += 1
        else:
            seen["between"] += 1
            each = all(found.get(table) in (before.get(table), after.get(table)) for table in {*before, *after, *found})
            lost = name in LESS and found == {table: what for table, what in before.items() if table != "t"}
            assert (name in ONE_BY_ONE and each) or lost, f"{where}: {summary(before)} or {summary(after)}, found {summary(found)}; {said(server)}"
        try:
            agreed(connection, server)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error
        if name == "alter-counter":
            (next_id,) = run(connection, "SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'")[0]
            assert next_id == 400 or (next_id == 5000 and found == before), f"{where}: {next_id}"
        if found == before:
            run(connection, "USE d")
            run(connection, sql)
            assert database_of(connection) == after, where
    print(name, count, seen)


RENAMES = {"swap": "t a, u t, a u", "turn": "t a, u t, x u, a x", "chain": "t a, u b, x t"}


@pytest.mark.parametrize("name", RENAMES)
def test_a_rename_of_tables_whose_last_definition_is_lost_is_done_whole_or_not_at_all(stepped, engine, name):
    """The power goes after the server's log of DDL was written and before the directory was: on ext4 a rename in it is undone. The
    server's recovery then takes the next rename back, which was never made, and renames one definition over another."""
    if engine == "InnoDB":
        pytest.skip("the server's recovery loses a definition, whatever the engine")
    server, steps = stepped
    log, plenty, undone = "ddl_recovery", 1 << 40, {}
    pairs = [pair.split() for pair in RENAMES[name].split(", ")]
    sql = "RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in pairs)
    # The names that exist after each rename except the last: when all are renamed the directory may be synced already.
    stages, names = {}, {"t", "u", "x"}
    for old, new in pairs[:-1]:
        names = names - {old} | {new}
        stages[frozenset(names)] = old, new
    connection = server.connect()
    made(server, connection, engine)
    before = database_of(connection)
    steps.set(plenty, log)
    run(connection, sql)
    count = plenty - steps.left()
    after = database_of(connection)
    directory = os.path.join(server.directory, "data", "d")
    every = KILLS == 0 or name == "swap"
    for left in range(1, count + 1) if every else random.sample(range(1, count + 1), min(count, 4 * KILLS)):
        made(server, connection, engine)
        met = killed(server, steps, sql, left, log)
        server.kill9()
        found = {file[:-4] for file in os.listdir(directory) if file.endswith(".frm")}
        lost = stages.get(frozenset(found & set("tuxab")))
        if lost:
            old, new = (os.path.join(directory, f"{name}.frm") for name in lost)
            os.rename(new, old)
            undone[lost] = undone.get(lost, 0) + 1
        server.start()
        connection = server.connect()
        where = f"before step {left} of {count} ({met}), undone {lost}"
        try:
            assert database_of(connection) in (before, after)
            agreed(connection, server)
        except (AssertionError, pymysql.err.MySQLError) as error:
            raise AssertionError(f"{where}: {error}; {said(server)}") from error
    assert not every or len(undone) == len(stages), undone


def test_a_crash_before_the_definition_of_changed_partitions_is_renamed_parts_nothing(stepped, engine):
    """A change of some partitions gives the definition a version that the others do not have. The server's recovery takes a rename of partitions
    back only if their definition was renamed, too: one table's partitions came under the other's name, and its list was lost."""
    if engine == "InnoDB":
        pytest.skip("the server's recovery leaves the partitions, whatever the engine")
    server, steps = stepped
    name = "rename-partitions-changed"
    for file in ("/d/p.frm", "/d/q.frm", "/d/a.frm"):
        met, left, seen = "", 0, set()
        while met != "not met":
            connection = server.connect()
            made(server, connection, engine, name)
            before = database_of(connection)
            left += 1
            met = killed(server, steps, ALL[name], left, file)
            seen.add(met.split()[0])
            server.kill9()
            server.start()
            connection = server.connect()
            if met != "not met":
                assert database_of(connection) == before, f"{met}: {said(server)}"
            agreed(connection, server)
        assert "rename" in seen, seen


@pytest.mark.parametrize("name", ["convert-partition", "convert-table"])
def test_a_crash_just_before_alter_renames_the_old_definition_away_keeps_it(stepped, engine, name):
    """The server logs that the definition is to be restored, and then renames it; its recovery first removes the file of the original name. The partition list likewise."""
    if engine == "InnoDB":
        pytest.skip("the server's recovery loses the table, whatever the engine")
    server, steps = stepped
    for file in ("/d/p.frm", "/d/p.par"):
        met, left = "", 0
        while not met.startswith("rename"):
            connection = server.connect()
            made(server, connection, engine, name)
            before = database_of(connection)
            left += 1
            met = killed(server, steps, ALL[name].format(engine=engine, other=other_than(engine)), left, file)
            server.kill9()
            server.start()
            connection = server.connect()
            assert database_of(connection) == before, f"{met}: {said(server)}"
            agreed(connection, server)


@pytest.mark.parametrize("lost", [("frm", "par"), ("par",)], ids=["both", "list"])
def test_partitions_are_added_though_the_directory_lost_the_definition_that_the_ddl_log_names(stepped, engine, lost):
    """As for renames, above: the log entry that the new definition and list have their final names is durable, and their renames are not."""
    if engine == "InnoDB":
        pytest.skip("the server's recovery loses the table, whatever the engine")
    server, steps = stepped
    log, plenty = "ddl_recovery", 1 << 40
    sql = "ALTER TABLE p ADD PARTITION (PARTITION p3 VALUES LESS THAN (350), PARTITION p4 VALUES LESS THAN MAXVALUE)"
    directory = os.path.join(server.directory, "data", "d")

    def fresh():
        connection = server.connect()
        made(server, connection, engine)
        run(connection, "ALTER TABLE p DROP PARTITION p2")
        return connection

    connection = fresh()
    before = database_of(connection)
    steps.set(plenty, log)
    run(connection, sql)
    count = plenty - steps.left()
    steps.set(0)
    after = database_of(connection)
    undone = 0
    for left in range(count - 3, count + 1):
        fresh()
        with open(os.path.join(directory, "p.frm"), "rb") as file:
            old = file.read()
        met = killed(server, steps, sql, left, log)
        server.kill9()
        with open(os.path.join(server.directory, "data", "ddl_recovery.log"), "rb") as file:
            shadow = re.findall(rb"d/(#sql-shadow-[0-9a-f]+-p)", file.read())[-1].decode()
        now = open(os.path.join(directory, "p.frm"), "rb").read() if os.path.exists(os.path.join(directory, "p.frm")) else old
        if now != old and not os.path.exists(os.path.join(directory, f"{shadow}.frm")):
            for kind in lost:
                os.rename(os.path.join(directory, f"p.{kind}"), os.path.join(directory, f"{shadow}.{kind}"))
            undone += 1
        server.start()
        connection = server.connect()
        where = f"before step {left} of {count} ({met}), undone {undone}"
        try:
            assert database_of(connection) in (before, after)
            agreed(connection, server)
        except (AssertionError, pymysql.err.MySQLError) as error:
            raise AssertionError(f"{where}: {error}; {said(server)}") from error
    assert undone


def test_the_old_table_of_an_alter_does_not_take_a_partition_list_of_another_table(stepped, engine):
    """An ALTER by copy drops its old table, whose partition list is already removed; another session's ALTER in place has just written the list of
    its table, without a definition, and some partitions of the two tables have the same names."""
    if engine == "InnoDB":
        pytest.skip("it keeps no names apart from the server's")
    server, steps = stepped
    sql, directory = ALL["alter-copy-partitions"], os.path.join(server.directory, "data", "d")
    met, left = "", 0
    while not (met.startswith("unlink") and met.endswith(".par")):
        connection = server.connect()
        made(server, connection, engine)
        left += 1
        met = killed(server, steps, sql, left, "#sql-backup")
        assert met != "not met"
        server.kill9()
        if met.startswith("unlink") and met.endswith(".par"):
            os.remove(os.path.join(directory, os.path.basename(met.split()[1])))
            shutil.copy(os.path.join(directory, "p.par"), os.path.join(directory, "#sql-alter-1-9.par"))
        server.start()
    connection = server.connect()
    assert "`w`" in database_of(connection)["p"][0]
    agreed(connection, server)


def test_definitions_orphaned_by_alter_are_removed_and_no_others(own_server, engine):
    """ALTER by copy drops its old table, and power loss undoes the removal of its definition."""
    if engine == "InnoDB":
        pytest.skip("it keeps no definition apart from the server's")
    connection = own_server.connect()
    made(own_server, connection, engine)
    directory = os.path.join(own_server.directory, "data", "d")
    for table in "tp":
        shutil.copy(os.path.join(directory, f"{table}.frm"), os.path.join(directory, f"#sql-backup-1-{table}.frm"))
        run(connection, f"ALTER TABLE {table} ADD COLUMN w INT FIRST, ALGORITHM=COPY")
    before = database_of(connection)
    # An engine's table has this version; another engine's; and one that is no definition.
    shutil.copy(os.path.join(directory, "u.frm"), os.path.join(directory, "#sql-alter-1-u.frm"))
    shutil.copy(os.path.join(directory, "other.frm"), os.path.join(directory, "#sql-backup-1-other.frm"))
    open(os.path.join(directory, "#sql-backup-1-none.frm"), "w").close()
    own_server.kill9()
    own_server.start()
    left = {name for name in os.listdir(directory) if name.startswith("#")}
    assert left == {"#sql-alter-1-u.frm", "#sql-backup-1-other.frm", "#sql-backup-1-none.frm"}
    connection = own_server.connect()
    assert database_of(connection) == before
    for name in left:
        os.remove(os.path.join(directory, name))
    agreed(connection, own_server)


def said(server):
    """What the server said since its last start."""
    text = open(os.path.join(server.directory, "error.log"), errors="replace").read()
    return text[text.rfind("[Note] Starting MariaDB"):][-8000:]


def summary(tables):
    return {table: (definition[:60], len(rows), hash(tuple(rows)) % 1000) for table, (definition, rows) in tables.items()}
