"""The server's definitions in the engine: a whole server comes back from its object store and its backups alone, volume and data directory lost."""

import os
import shutil

from conftest import end, run, wait_until
from test_archive import now_ms, number, utc
from test_attach import notes
from test_backup_store import named, server_on, terrace
from test_copy import volume_of
from test_object import store  # noqa: F401: a fixture

TABLES = ["t", "parts", "parent", "child", "later", "moved"]


def make(connection):
    """Tables of many kinds, a view, triggers, a sequence, and databases with options of their own."""
    for statement in (
            "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_swedish_ci",
            "CREATE DATABASE `odd-name` CHARACTER SET latin1",
            "CREATE TABLE d.t (id INT PRIMARY KEY, pad VARCHAR(200), n INT DEFAULT 7 COMMENT 'seven', KEY (n)) ENGINE=Terrace COMPRESSION='lz4'",
            "CREATE TABLE d.parts (id INT PRIMARY KEY, v INT) ENGINE=Terrace PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (100), PARTITION high VALUES LESS THAN MAXVALUE)",
            "CREATE TABLE d.parent (id INT PRIMARY KEY) ENGINE=Terrace",
            "CREATE TABLE d.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES d.parent (id) ON DELETE CASCADE) ENGINE=Terrace",
            "CREATE TABLE d.other (id INT PRIMARY KEY) ENGINE=Aria",
            "CREATE TABLE `odd-name`.`a/b#c` (id INT PRIMARY KEY) ENGINE=Terrace",
            "CREATE SEQUENCE d.s START 5 ENGINE=Terrace",
            "CREATE VIEW d.shown AS SELECT id, n FROM d.t WHERE id > 1",
            "CREATE TRIGGER d.counts AFTER INSERT ON d.parent FOR EACH ROW INSERT INTO d.child VALUES (NEW.id, NEW.id)",
            "INSERT INTO d.t (id, pad) SELECT seq, REPEAT('p', 100) FROM d.seq_1_to_500",
            "INSERT INTO d.parts SELECT seq, seq FROM d.seq_1_to_200",
            "INSERT INTO d.parent VALUES (1), (2)",
            "INSERT INTO `odd-name`.`a/b#c` VALUES (1), (2)"):
        run(connection, statement)


def change(connection):
    """Changes of definitions after the backup."""
    for statement in (
            "CREATE TABLE d.later (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=Terrace AS SELECT 1 AS id, 'later' AS v",
            "CREATE TABLE d.short (id INT PRIMARY KEY) ENGINE=Terrace",
            "ALTER TABLE d.t ADD COLUMN more INT DEFAULT 3, ADD KEY (more)",
            "ALTER TABLE d.parts ADD COLUMN w INT",
            "ALTER TABLE d.parts REORGANIZE PARTITION high INTO (PARTITION middle VALUES LESS THAN (150), PARTITION high VALUES LESS THAN MAXVALUE)",
            "CREATE TABLE d.passes (id INT PRIMARY KEY, v INT) ENGINE=Terrace",
            "INSERT INTO d.passes VALUES (3, 4)",
            "RENAME TABLE d.passes TO d.moved",
            "ALTER DATABASE d COLLATE utf8mb4_bin",
            "DROP TABLE d.short",
            "SELECT NEXTVAL(d.s)"):
        run(connection, statement)


def state(connection):
    """What the databases have, and how the server shows it."""
    found = {}
    for database in ("d", "odd-name"):
        found[database] = run(connection, f"SHOW CREATE DATABASE `{database}`")
        for name, kind in run(connection, f"SHOW FULL TABLES IN `{database}`"):
            if name == "other":
                continue
            found[database, name] = run(connection, f"SHOW CREATE TABLE `{database}`.`{name}`")
            if kind != "SEQUENCE":
                found[database, name, "rows"] = sorted(run(connection, f"SELECT * FROM `{database}`.`{name}`"))
            if kind == "BASE TABLE":
                assert run(connection, f"CHECK TABLE `{database}`.`{name}`")[-1][3] == "OK"
    found["triggers"] = [(row[0], row[1], row[2], row[3]) for row in run(connection, "SHOW TRIGGERS IN d")]
    found["next"] = run(connection, "SELECT NEXTVAL(d.s)")[0][0] > 5
    return found


def kept(connection):
    """Waits until what was defined until now is in the engine, and in the archive."""
    moment = now_ms()
    wait_until(lambda: int(notes(connection)["definitions_kept_ms"]) >= moment)
    wait_until(lambda: number(connection, "archive_lag_bytes") == 0)


def lose_all(server):
    """Volume and data directory are gone; the store stays."""
    server.kill9()
    shutil.rmtree(os.path.join(server.directory, "data"))


def test_a_whole_server_comes_back_of_the_store_alone_at_any_moment(store, tmp_path):  # noqa: F811
    original = server_on(store, "live", "--terrace-archive-interval-ms=200")
    first, last, attached = server_on(store, "first"), server_on(store, "last"), server_on(store, "attached")
    backups, live, log = named(store, "backups", "repository"), named(store, "live"), named(store, "live", "archive")
    try:
        original.start()
        connection = original.connect()
        make(connection)
        copy = str(tmp_path / "copy")
        run(connection, f"SET GLOBAL terrace_copy_to = '{copy}'")
        terrace("backup", "create", "--volume", copy, "--name", "monday", *live, *backups)
        as_backed_up = state(connection)
        change(connection)
        run(connection, "INSERT INTO d.t (id, pad) VALUES (1001, 'before')")
        as_of_last = state(connection)
        kept(connection)
        moment = now_ms()
        wait_until(lambda: now_ms() > moment + 2)
        run(connection, "DELETE FROM d.t")
        kept(connection)
        lose_all(original)

        # The backup itself: its definitions are those of its copy.
        data = os.path.join(first.directory, "data")
        missing = terrace("restore", "--definitions", str(tmp_path / "nowhere"), "--volume", volume_of(first), *named(store, "first"), *backups, code=2)
        assert "mariadb-install-db" in missing and not os.path.exists(volume_of(first)), missing
        done = terrace("restore", "--definitions", data, "--volume", volume_of(first), *named(store, "first"), *backups)
        assert done["definitions"]["troubles"] == [] and done["definitions"]["files"] == 12, done
        assert not os.path.exists(os.path.join(data, "d", "other.frm"))
        # Again changes nothing; a file that is another one is not replaced.
        terrace("definitions", "--into", data, "--volume", volume_of(first), *named(store, "first"))
        view = os.path.join(data, "d", "shown.frm")
        good = open(view).read()
        open(view, "a").write("x")
        assert "is another one" in terrace("definitions", "--into", data, "--volume", volume_of(first), *named(store, "first"), code=2)
        open(view, "w").write(good)
        first.start()
        assert state(first.connect()) == as_backed_up

        # A moment after it, by the archive: also with the objects left in the repository, and served at once.
        at = utc(moment)
        for server, more in ((last, []), (attached, ["--attach"])):
            data, place = os.path.join(server.directory, "data"), "last" if server is last else "attached"
            done = terrace("restore", "--at", at, "--definitions", data, "--volume", volume_of(server), *more, *named(store, place), *backups, *log)
            assert done["definitions"]["troubles"] == [], done
            code, report = server.check(*named(store, place))
            assert code == 0, report
            server.start()
            connection = server.connect()
            assert state(connection) == as_of_last
            run(connection, "INSERT INTO d.parent VALUES (3)")
            assert (3, 3) in run(connection, "SELECT * FROM d.child")
            run(connection, "CREATE TABLE d.goes_on (id INT PRIMARY KEY) ENGINE=Terrace")
            server.restart()
            assert run(server.connect(), "SELECT COUNT(*) FROM d.t") == [(501,)]
    finally:
        for server in (original, first, last, attached):
            end(server)


def test_definitions_are_forgotten_with_their_tables_and_never_while_the_engine_has_rows(store, tmp_path):  # noqa: F811
    if store.kind == "s3":
        return  # once is enough
    server = server_on(store, "live", "--terrace-archive-interval-ms=200")
    into = tmp_path / "into"
    try:
        server.start()
        connection = server.connect()
        make(connection)
        run(connection, "DROP VIEW d.shown")
        run(connection, "DROP DATABASE `odd-name`")
        run(connection, "DROP TABLE d.parts")
        # A long definition, in several parts, and then a shorter one.
        run(connection, "CREATE TABLE d.wide (id INT PRIMARY KEY, %s) ENGINE=Terrace" % ", ".join(f"column_{n} INT COMMENT '{'c' * 100}'" for n in range(100)))
        kept(connection)
        run(connection, "ALTER TABLE d.wide %s" % ", ".join(f"DROP COLUMN column_{n}" for n in range(99)))
        kept(connection)
        server.stop()
        os.makedirs(into)
        terrace("definitions", "--into", str(into), "--volume", volume_of(server), *named(store, "live"))
        assert sorted(os.listdir(into)) == ["d"]
        found = set(os.listdir(into / "d"))
        assert {"t.frm", "child.frm", "s.frm", "wide.frm", "db.opt", "parent.TRG", "counts.TRN"} <= found and not {"shown.frm", "parts.frm", "parts.par", "other.frm"} & found, found
        assert (into / "d" / "wide.frm").read_bytes() == open(os.path.join(server.directory, "data", "d", "wide.frm"), "rb").read()

        # The data directory is lost, and the server is started with the volume: it keeps what it knows.
        data = os.path.join(server.directory, "data")
        shutil.rmtree(os.path.join(data, "d"))
        server.start()
        kept(server.connect())
        server.stop()
        again = tmp_path / "again"
        os.makedirs(again)
        terrace("definitions", "--into", str(again), "--volume", volume_of(server), *named(store, "live"))
        assert set(os.listdir(again / "d")) == found
        terrace("definitions", "--into", data, "--volume", volume_of(server), *named(store, "live"))
        server.start()
        assert run(server.connect(), "SELECT COUNT(*) FROM d.t") == [(500,)]
        assert run(server.connect(), "CHECK TABLE d.wide")[-1][3] == "OK"
    finally:
        end(server)


def test_a_definition_that_is_not_that_of_its_rows_is_named(store, tmp_path):  # noqa: F811
    if store.kind == "s3":
        return  # once is enough
    server = server_on(store, "live")
    try:
        server.start()
        connection = server.connect()
        make(connection)
        server.stop()  # keeps them
        # Without archiving, what is defined afterwards is kept at the next shutdown only.
        server.start()
        connection = server.connect()
        run(connection, "ALTER TABLE d.t ADD COLUMN more INT, ADD KEY (more)")
        run(connection, "CREATE TABLE d.unknown (id INT PRIMARY KEY) ENGINE=Terrace")
        server.kill9()
        into = tmp_path / "into"
        os.makedirs(into)
        found = terrace("definitions", "--into", str(into), "--volume", volume_of(server), *named(store, "live"), code=1)
        assert len(found["troubles"]) == 2, found
        assert any("d/t is not the one of its rows" in one for one in found["troubles"]) and any("d/unknown has rows" in one for one in found["troubles"]), found
    finally:
        end(server)


def test_the_stages_of_a_backup_keep_the_definitions_of_the_copys_end(store, tmp_path):  # noqa: F811
    if store.kind == "s3":
        return  # once is enough
    server = server_on(store, "live")
    into = tmp_path / "into"
    try:
        server.start()
        connection = server.connect()
        make(connection)
        run(connection, f"SET GLOBAL terrace_backup_stage = 'copy', GLOBAL terrace_backup_copy_dir = '{tmp_path}/copy'")
        run(connection, "SET terrace_backup_stage = 'copy'")
        run(connection, "BACKUP STAGE START")
        # The copy has begun, and definitions change.
        change(server.connect())
        run(connection, "BACKUP STAGE BLOCK_DDL")
        run(connection, "BACKUP STAGE BLOCK_COMMIT")
        run(connection, "BACKUP STAGE END")
        os.makedirs(into)
        backups = named(store, "backups", "repository")
        terrace("backup", "create", "--volume", f"{tmp_path}/copy", *named(store, "live"), *backups)
        found = terrace("restore", "--definitions", str(into), "--volume", f"{tmp_path}/restored", *named(store, "restored"), *backups)
        assert found["definitions"]["troubles"] == [], found
        assert {"later.frm", "moved.frm"} <= set(os.listdir(into / "d"))
    finally:
        end(server)
