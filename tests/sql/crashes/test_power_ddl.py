"""Power loss during DDL: a file system is shut down in the middle of a statement, mounted again and recovered. Answered statements
are done; the unanswered one is done whole or not at all; server and engine name the same tables, and nothing is left over. Either
only the engine's volume is lost, while the server, whose data directory is elsewhere, goes on for a moment; or both are on it, as
when power is lost.

TERRACE_POWER_CYCLES: cycles (default 1). TERRACE_DDL_CUTS: cuts of each change of partitions, spread over its steps (default: one of some of
them).
"""

import os
import random
import re
import struct
import threading
import time

import pymysql
import pytest
from conftest import end, run
from test_ddl_crash import ALL, ONE_BY_ONE, PARTITIONS, Steps, agreed, counter, database_of, engines_tables, killed, made, said, summary  # noqa: F401
from test_power import CYCLES, run_command, start, volume  # noqa: F401: a fixture

# InnoDB may leave the copy of its own that an ALTER had begun (seen on xfs: #sql-alter-e91-5.ibd).
INNODBS = (".ibd",)
CUTS = int(os.environ.get("TERRACE_DDL_CUTS", "0"))

# From the database as it is made, and back to it.
ROUND = [
    "ALTER TABLE t ADD COLUMN w INT DEFAULT 3 FIRST, ALGORITHM=COPY",
    "ALTER TABLE t ADD KEY ks (s), ADD KEY kw (w), ALGORITHM=NOCOPY",
    "ALTER TABLE t DROP KEY ks, DROP KEY kw, ALGORITHM=INSTANT",
    "ALTER TABLE t DROP COLUMN w",
    "RENAME TABLE t TO a, u TO t, a TO u",
    "RENAME TABLE t TO a, u TO t, a TO u",
    "CREATE TABLE n (id INT PRIMARY KEY, KEY (v)) ENGINE=Terrace SELECT id, v FROM t",
    "TRUNCATE TABLE n",
    "DROP TABLE n",
    "ALTER TABLE p REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (200))",
    "ALTER TABLE p REORGANIZE PARTITION q INTO (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200))",
    "ALTER TABLE p ADD COLUMN w INT DEFAULT 3 FIRST, ALGORITHM=COPY",
    "ALTER TABLE p DROP COLUMN w",
    "RENAME TABLE p TO n",
    "RENAME TABLE n TO p",
    "ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE x",
    "ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE x",
    f"CREATE TABLE m (id INT PRIMARY KEY) ENGINE=Terrace {PARTITIONS} SELECT id FROM t",
    "ALTER TABLE m DROP PARTITION p1",
    "ALTER TABLE m DROP PARTITION p2",
    "ALTER TABLE m ADD PARTITION (PARTITION p3 VALUES LESS THAN (150), PARTITION p4 VALUES LESS THAN MAXVALUE)",
    "ALTER TABLE m CONVERT PARTITION p4 TO TABLE n",
    "ALTER TABLE m CONVERT TABLE n TO PARTITION p4 VALUES LESS THAN MAXVALUE",
    "TRUNCATE TABLE m",
    "DROP TABLE m",
    f"ALTER TABLE u {PARTITIONS}",
    "ALTER TABLE u REMOVE PARTITIONING",
    "ALTER TABLE h ADD PARTITION PARTITIONS 3",
    "ALTER TABLE h COALESCE PARTITION 2",
    "ALTER TABLE h REORGANIZE PARTITION p0, p1 INTO (PARTITION q0, PARTITION q1)",
    "ALTER TABLE h REMOVE PARTITIONING",
    "ALTER TABLE h PARTITION BY KEY (id) PARTITIONS 2",
    "ALTER TABLE h ADD PARTITION (PARTITION more)",
    "ALTER TABLE h REORGANIZE PARTITION more INTO (PARTITION p2)",
    "ALTER TABLE h COALESCE PARTITION 1",
    "ALTER TABLE h REMOVE PARTITIONING",
    "ALTER TABLE h PARTITION BY HASH (id) PARTITIONS 2",
    "ALTER TABLE other ENGINE=Terrace",
    "ALTER TABLE other ENGINE=InnoDB",
]

def with_its_data(volume, tmp_path):  # noqa: F811
    """A server whose data directory stands on the volume, too."""
    os.makedirs(f"{volume.at}/data")
    os.makedirs(tmp_path / "server")
    os.symlink(f"{volume.at}/data", tmp_path / "server" / "data")
    return start(volume, tmp_path)


@pytest.mark.parametrize("lost", ["volume", "machine"])
def test_ddl_survives_power_loss(volume, tmp_path, lost):  # noqa: F811
    statements = ROUND
    server = start(volume, tmp_path) if lost == "volume" else with_its_data(volume, tmp_path)
    try:
        connection = server.connect()
        made(server, connection, "Terrace")
        states = [database_of(connection)]
        for sql in statements:
            run(connection, sql)
            states.append(database_of(connection))
        assert states[-1] == states[0]
        for cycle in range(CYCLES):
            made(server, connection, "Terrace")
            first = random.randrange(len(statements))
            for sql in statements[:first]:
                run(connection, sql)
            # The other engine's table is not what this is about, nor is its durability.
            assert run_command("sync", "-f", volume.at).returncode == 0
            answered = [first]
            fell = []

            def work():
                mine = server.connect(database="d")
                try:
                    while True:
                        run(mine, statements[answered[0] % len(statements)])
                        answered[0] += 1
                except pymysql.err.MySQLError as error:
                    fell.append(error)  # the volume is gone

            thread = threading.Thread(target=work)
            thread.start()
            enough, since = first + random.randrange(4, 16), time.monotonic()
            while answered[0] < enough and not fell and time.monotonic() < since + 300:
                time.sleep(0.01)
            time.sleep(0.1 * random.random())  # into the next one
            # An answer that comes while the file system is cut does not count (see test_power.py).
            counted = answered[0]
            volume.cut()
            server.kill9()
            thread.join()
            volume.again()
            server.start()
            assert counted > first + 3, "nothing was changed: this proves little"
            may = range(counted, answered[0] + 2)
            connection = server.connect()
            try:
                found = database_of(connection)
                assert [n for n in may if states[n % len(statements)] == found], sorted(found)
                agreed(connection, server, INNODBS)
            except (AssertionError, pymysql.err.MySQLError) as error:
                files = sorted(os.listdir(os.path.join(server.directory, "data", "d")))
                where = f"cycle {cycle}: after {counted} to {answered[0]} of {statements[counted % len(statements)]}, {fell}"
                raise AssertionError(f"{where}: {error}; {files} {sorted(engines_tables(connection))}; {said(server)}") from error
    finally:
        end(server)


# Statements about partitions, of which the server syncs least.
PARTED = ["create-partitions", "drop-partitions", "truncate-partitions", "rename-partitions", "rename-partitions-round", "alter-copy-partitions",
          "alter-partitions", "alter-options-partitions", "exchange", "drop-partition", "reorganize", "hash-add", "hash-coalesce",
          "hash-reorganize", "hash-by-key", "hash-remove", "partition-by", "remove-partitions", "convert-partition", "convert-table", "drop-many",
          "drop-database"]


# Steps that no statement has.
PLENTY = 1 << 40


class Cut:
    """A server on the volume, and power that goes at a step of a statement."""

    def __init__(self, volume, tmp_path, counter, monkeypatch):  # noqa: F811
        library, page = counter
        self.volume, self.server = volume, with_its_data(volume, tmp_path)
        self.server.stop()
        monkeypatch.setenv("LD_PRELOAD", library)
        monkeypatch.setenv("TERRACE_STEPS", page)
        self.server.start()
        self.steps = Steps(page)

    def play(self, name, only=""):
        """How many steps the statement has, of files with `only` in their name; the database before and after it."""
        connection = self.made(name)
        before = database_of(connection)
        self.steps.set(PLENTY, only)
        run(connection, self.sql(name))
        count = PLENTY - self.steps.left()
        self.steps.set(0)
        return count, before, database_of(connection)

    def made(self, name):
        connection = self.server.connect()
        made(self.server, connection, "Terrace", name)
        if name == "drop-database":
            # InnoDB's own table may come back without its file.
            run(connection, "DROP TABLE d.other")
        return connection

    def sql(self, name):
        return ALL[name].format(engine="Terrace", other="InnoDB")

    def at(self, name, left, before, after, forced, only=""):
        """`forced`: another process's fsync writes the journal to the disk just before, with names and lengths, and no bytes of other files."""
        self.made(name)
        assert run_command("sync", "-f", self.volume.at).returncode == 0
        met = killed(self.server, self.steps, self.sql(name), left, only)
        if forced:
            with open(f"{self.volume.at}/other", "w") as other:
                os.fsync(other.fileno())
        self.volume.cut()
        self.server.kill9()
        self.volume.again()
        self.server.start()
        connection = self.server.connect()
        try:
            found = database_of(connection)
            each = all(found.get(table) in (before.get(table), after.get(table)) for table in {*before, *after, *found})
            assert found in (before, after) or (name in ONE_BY_ONE and each), f"{summary(before)} or {summary(after)}, found {summary(found)}"
            agreed(connection, self.server, INNODBS)
        except (AssertionError, pymysql.err.MySQLError) as error:
            files = sorted(os.listdir(os.path.join(self.server.directory, "data", "d")))
            raise AssertionError(f"{name}, step {left} ({met}): {error}; {files} {sorted(engines_tables(connection))}; {said(self.server)}") from error


@pytest.fixture
def cut(volume, tmp_path, counter, monkeypatch):  # noqa: F811
    one = Cut(volume, tmp_path, counter, monkeypatch)
    yield one
    end(one.server)


def test_power_loss_at_any_step_of_a_partition_change_leaves_the_old_or_the_new(cut):
    pairs = [(name, forced) for name in PARTED for forced in (True, False)]
    for name, forced in pairs if CUTS else random.sample(pairs, 3):
        count, before, after = cut.play(name)
        edges = [1 + count * i // (CUTS or 1) for i in range((CUTS or 1) + 1)]
        for low, high in zip(edges, edges[1:]):
            cut.at(name, random.randrange(low, max(low + 1, high)), before, after, forced)
        cut.at(name, PLENTY, after, after, forced)  # it was answered


@pytest.mark.parametrize(
    "name, forced",
    [
        ("alter-partitions", True),
        ("drop-partitions", True),
        ("drop-partitions", False),
        ("alter-copy", False),
        ("partition-by", False),
        ("rename-partitions-round", False),
        ("convert-partition", False),
        ("convert-table", False),
    ],
)
def test_power_loss_between_the_ddl_log_and_its_files_is_recovered(cut, name, forced):
    """The server syncs neither the partition list that it makes for an ALTER in place, nor, in DROP, the entries of its log that name the table.
    At the end of an ALTER by copy, or of a DROP, its log may say that all is done while the old definition exists again. In a RENAME of several
    tables the log has the next rename while the definition of the one before is lost; in CONVERT, it has a renamed definition that was not renamed."""
    count, before, after = cut.play(name, "ddl_recovery")
    steps = range(1, count + 1)
    for left in steps if CUTS else sorted(random.sample(steps, min(count, 3))):
        cut.at(name, left, before, after, forced, "ddl_recovery")


def aside(table):
    return f"`#mysql50##sql-backup-1-{table}`"


def test_the_old_table_of_an_interrupted_alter_is_back_under_its_name(own_server, engine):
    """The volume was lost between the two renames of an ALTER by copy, and the server could not take back the first."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection = own_server.connect()
    made(own_server, connection, engine)
    # Partitions that came with another version of the definition.
    run(connection, "ALTER TABLE p REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (200))")
    before = database_of(connection)
    for table in "tp":
        run(connection, f"RENAME TABLE {table} TO {aside(table)}")
    assert database_of(connection) == {name: what for name, what in before.items() if name not in "tp"}
    own_server.kill9()
    own_server.start()
    connection = own_server.connect()
    assert database_of(connection) == before
    agreed(connection, own_server)


@pytest.mark.parametrize("other", ["Terrace", "InnoDB"])
def test_an_old_table_whose_name_is_taken_is_reported_with_the_statement_that_restores_it(own_server, engine, other):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection = own_server.connect()
    made(own_server, connection, engine)
    before = database_of(connection)
    for table in "tp":
        run(connection, f"RENAME TABLE {table} TO {aside(table)}")
        run(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY) ENGINE={other} SELECT 1 AS id")
    for _ in range(2):
        own_server.kill9()
        own_server.start()
    connection = own_server.connect(database="d")
    ways = sorted(re.findall("(RENAME TABLE `.*` TO) another name", said(own_server)))
    assert len(ways) == 2, said(own_server)
    assert run(connection, "SELECT t.id, p.id FROM t, p") == [(1, 1)]
    run(connection, "DROP TABLE t, p")
    for way, table in zip(ways, "pt"):
        run(connection, f"{way} d.{table}")
    assert database_of(connection) == before
    agreed(connection, own_server)


@pytest.mark.parametrize(
    "table, change",
    [
        ("p", "REORGANIZE PARTITION p2 INTO (PARTITION p2 VALUES LESS THAN (250), PARTITION p3 VALUES LESS THAN MAXVALUE)"),
        ("p", "REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (200))"),
        ("h", "REORGANIZE PARTITION p0, p1 INTO (PARTITION q0, PARTITION q1)"),
        ("h", "PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 (PARTITION `a b` VALUES LESS THAN (9), PARTITION c VALUES LESS THAN MAXVALUE)"),
    ],
)
def test_a_partition_list_of_another_definition_is_an_error_and_no_crash(own_server, engine, table, change):
    """The server never compares the list with the definition: with too few partitions it crashes in information_schema.PARTITIONS, with others rows are missed."""
    if engine == "InnoDB":
        pytest.skip("it ends the server, whatever the engine")
    connection = own_server.connect()
    made(own_server, connection, engine)
    parts = "SELECT TABLE_NAME, COUNT(PARTITION_NAME) FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = 'd' AND PARTITION_NAME IS NOT NULL GROUP BY 1"
    list_file = os.path.join(own_server.directory, "data", "d", f"{table}.par")
    before = open(list_file, "rb").read()
    run(connection, f"ALTER TABLE {table} {change}")
    after, rows, counts = open(list_file, "rb").read(), run(connection, f"SELECT * FROM {table}"), run(connection, parts)
    assert before != after and dict(counts)[table] >= 2
    # Named alone, one that lies past the end of a shorter list ends the server before any partition is opened.
    by_place = f"SELECT PARTITION_NAME FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = '{table}' ORDER BY PARTITION_ORDINAL_POSITION, SUBPARTITION_ORDINAL_POSITION"
    named = {name for (name,) in run(connection, by_place)[: struct.unpack_from("<I", before, 8)[0]]}
    run(connection, "FLUSH TABLES")
    with open(list_file, "wb") as file:
        file.write(before)
    for _ in range(2):
        assert run(connection, parts) == [one for one in counts if one[0] != table]
        with pytest.raises(pymysql.err.MySQLError) as refused:
            run(connection, f"SELECT * FROM {table}")
        assert refused.value.args[0] == 1484, refused.value
    # A statement that names partitions opens those alone, whichever come first.
    for part in sorted(named):
        run(connection, "FLUSH TABLES")
        with pytest.raises(pymysql.err.MySQLError) as refused:
            run(connection, f"SELECT * FROM {table} PARTITION (`{part}`)")
        assert refused.value.args[0] == 1484, (part, refused.value)
    assert f"d/{table} can't be opened: its list of partitions" in said(own_server)
    with open(list_file, "wb") as file:
        file.write(after)
    run(connection, "FLUSH TABLES")  # the server remembers of a table how many there are
    assert run(connection, f"SELECT * FROM {table}") == rows
    # The number of the engine, which each start gives out, was another one when the list was written.
    run(connection, "FLUSH TABLES")
    count, number = struct.unpack_from("<I", after, 8)[0], after[12] ^ 1
    head = after[:4] + bytes(4) + after[8:12] + bytes([number] * count) + after[12 + count :]
    words = struct.unpack_from(f"<{struct.unpack_from('<I', after)[0]}I", head)
    checksum = 0
    for word in words:
        checksum ^= word
    with open(list_file, "wb") as file:
        file.write(head[:4] + struct.pack("<I", checksum) + head[8:])
    assert run(connection, f"SELECT * FROM {table}") == rows and run(connection, parts) == counts


@pytest.mark.parametrize("lost", [("frm", "par"), ("par",)], ids=["both", "list"])
def test_partitions_are_added_to_a_table_whose_file_names_are_encoded(own_server, engine, lost):
    """The server names the new files with the table's name as the user wrote it, not with its encoded file name."""
    if engine == "InnoDB":
        pytest.skip("the server's recovery loses the table, whatever the engine")
    connection = own_server.connect()
    run(connection, "CREATE DATABASE `d d`")
    connection.select_db("d d")
    run(connection, f"CREATE TABLE `p-é p` (id INT PRIMARY KEY) ENGINE={engine} PARTITION BY RANGE (id) (PARTITION `a b` VALUES LESS THAN (10))")
    run(connection, "INSERT INTO `p-é p` VALUES (1), (2)")
    run(connection, "ALTER TABLE `p-é p` ADD PARTITION (PARTITION `c-d` VALUES LESS THAN (20))")
    own_server.kill9()
    directory = os.path.join(own_server.directory, "data", "d@0020d")
    stem = next(name for name in os.listdir(directory) if name.endswith(".par"))[: -len(".par")]
    assert stem != "p-é p"
    for kind in lost:
        os.rename(os.path.join(directory, f"{stem}.{kind}"), os.path.join(directory, f"#sql-shadow-5-p-é p.{kind}"))
    own_server.start()
    connection = own_server.connect()
    connection.select_db("d d")
    run(connection, "INSERT INTO `p-é p` VALUES (11)")
    assert sorted(run(connection, "SELECT * FROM `p-é p`")) == [(1,), (2,), (11,)], said(own_server)
    assert not [name for name in os.listdir(directory) if name.startswith("#sql")]


def test_tables_dropped_while_the_volume_was_missing_are_removed_and_no_others(own_server, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection = own_server.connect()
    made(own_server, connection, engine)
    run(connection, "DROP TABLE other")
    run(connection, "CREATE TABLE again (id INT) ENGINE=Terrace")
    old = open(os.path.join(own_server.directory, "data", "d", "p.frm"), "rb").read()[66:82]
    run(connection, "ALTER TABLE p REORGANIZE PARTITION p2 INTO (PARTITION p2 VALUES LESS THAN (250), PARTITION p3 VALUES LESS THAN MAXVALUE)")
    data = os.path.join(own_server.directory, "data")

    def version(table):
        return open(f"{data}/d/{table}.frm", "rb").read()[66:82]

    def entry(table, its):
        return struct.pack("<H", len(table) + 2) + b"d/" + table.encode() + struct.pack("<H", len(its)) + its

    assert version("p") != old
    own_server.kill9()
    # One whose definition is there, one that is gone, one that is gone of another version; a partition that the list names, of a version
    # that no definition has any more; a torn entry.
    noted = [entry("u", version("u")), entry("x", version("x")), entry("again", version("u")), entry("p#P#p1", old)]
    with open(f"{data}/terrace-failed-drops", "wb") as file:
        file.write(b"".join(noted) + entry("t", version("t"))[:-1])
    kept = {table: open(f"{data}/d/{table}.frm", "rb").read() for table in ("x", "again")}
    for table in kept:
        os.remove(f"{data}/d/{table}.frm")
    own_server.start()
    connection = own_server.connect()
    assert engines_tables(connection) == {"d/again", "d/t", "d/u", *(f"d/p#P#p{n}" for n in range(4)), *(f"d/h#P#p{n}" for n in range(2))}
    assert "d/again has rows" in said(own_server)
    assert not os.path.exists(f"{data}/terrace-failed-drops")
    with open(f"{data}/d/again.frm", "wb") as file:
        file.write(kept["again"])
    run(connection, "SELECT * FROM d.again")
    agreed(connection, own_server)
