"""Loss of power under changes of definitions: a file system is cut off in the middle of one, mounted again and recovered. What was
answered is there; the one that was not is done or not; server and engine name the same tables, and nothing is left over. Either
the engine's volume alone is lost, while the server, whose data directory stands elsewhere, goes on for a moment; or both stand on
it, as when the power goes.

TERRACE_POWER_CYCLES: cycles (default 1).
"""

import os
import random
import re
import threading
import time

import pymysql
import pytest
from conftest import end, run
from test_ddl_crash import PARTITIONS, agreed, database_of, made, said
from test_power import CYCLES, run_command, start, volume  # noqa: F401: a fixture

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
    "TRUNCATE TABLE m",
    "DROP TABLE m",
    f"ALTER TABLE u {PARTITIONS}",
    "ALTER TABLE u REMOVE PARTITIONING",
    "ALTER TABLE other ENGINE=Terrace",
    "ALTER TABLE other ENGINE=InnoDB",
]

# Where the volume alone is gone, the server goes on by its own log of DDL although the engine can't follow. A partition that no list names any
# more may stay in the engine, a partitioned table under the name that ALTER put it aside under, and a table that another engine has now:
# nothing is lost, and somebody has to see to it.
NOT_OF_THE_VOLUME_ALONE = re.compile("PARTITION|TABLE [pm]( |$)| TO p$|other ENGINE")


def with_its_data(volume, tmp_path):  # noqa: F811
    """A server whose data directory stands on the volume, too."""
    os.makedirs(f"{volume.at}/data")
    os.makedirs(tmp_path / "server")
    os.symlink(f"{volume.at}/data", tmp_path / "server" / "data")
    return start(volume, tmp_path)


@pytest.mark.parametrize("lost", ["volume", "machine"])
def test_changes_of_definitions_survive_the_loss_of_power(volume, tmp_path, lost):  # noqa: F811
    statements = [sql for sql in ROUND if lost == "machine" or not NOT_OF_THE_VOLUME_ALONE.search(sql)]
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
            connection = server.connect()
            found = database_of(connection)
            may = range(counted, answered[0] + 2)
            at = [n for n in may if states[n % len(statements)] == found]
            assert at, f"cycle {cycle}: after {counted} to {answered[0]} of {statements[counted % len(statements)]}, {fell}: {sorted(found)}; {said(server)}"
            assert counted > first + 3, "nothing was changed: this proves little"
            agreed(connection, server)
    finally:
        end(server)
