"""`terrace convert`: the tables of a schema move from InnoDB with the foreign keys among them, whatever the order, and again after an error."""

import os
import re
import subprocess

from conftest import TARGET, run

SCHEMA = """
    CREATE TABLE region (id INT PRIMARY KEY, parent INT, name VARCHAR(20), CONSTRAINT up FOREIGN KEY (parent) REFERENCES region (id) ON DELETE SET NULL) ENGINE=InnoDB;
    CREATE TABLE shop (id INT PRIMARY KEY, region INT NOT NULL, boss INT, KEY (boss), FOREIGN KEY (region) REFERENCES region (id) ON UPDATE CASCADE) ENGINE=InnoDB;
    CREATE TABLE person (id INT PRIMARY KEY, shop INT, FOREIGN KEY (shop) REFERENCES shop (id) ON DELETE CASCADE) ENGINE=InnoDB;
    ALTER TABLE shop ADD CONSTRAINT `the boss` FOREIGN KEY (boss) REFERENCES person (id) ON DELETE SET NULL;
    CREATE TABLE `odd ``name``` (a INT, b VARCHAR(10), c INT, PRIMARY KEY (a, b)) ENGINE=InnoDB;
    CREATE TABLE pair (id INT PRIMARY KEY, b VARCHAR(10), a INT, KEY (a, b), CONSTRAINT both_of FOREIGN KEY (a, b) REFERENCES `odd ``name``` (a, b)) ENGINE=InnoDB;
    CREATE TABLE parts (id INT PRIMARY KEY) ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 3;
    CREATE TABLE other (id INT) ENGINE=Aria;
    INSERT INTO region VALUES (1, NULL, 'world'), (2, 1, 'here');
    INSERT INTO shop VALUES (1, 2, NULL);
    INSERT INTO person VALUES (1, 1);
    UPDATE shop SET boss = 1;
    INSERT INTO `odd ``name``` VALUES (1, 'x', 0);
    INSERT INTO pair VALUES (1, 'x', 1), (2, NULL, 7);
    INSERT INTO parts VALUES (1), (2)
"""


def statements(connection, text):
    for statement in text.split(";"):
        run(connection, statement)


def convert(server, *schemas):
    """The code of the client, and what it showed."""
    program = os.path.join(TARGET, "debug", "terrace")
    printed = subprocess.run([program, "convert", *schemas], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    client = ["mariadb", "--no-defaults", f"--socket={server.directory}/sock", "--user=root", "--batch"]
    done = subprocess.run(client, input=printed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    return done.returncode, done.stdout


def definitions(connection, schema):
    names = [name for name, in run(connection, f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{schema}' ORDER BY 1")]
    shown = {name: run(connection, f"SHOW CREATE TABLE {schema}.`{name.replace('`', '``')}`")[0][1] for name in names}
    # The order of foreign keys is that in which they were added.
    return {name: sorted(re.sub(r"ENGINE=\w+", "", text).replace(",\n", "\n").splitlines()) for name, text in shown.items()}


def engines(connection, *schemas):
    listed = ", ".join(f"'{schema}'" for schema in schemas)
    return {engine.upper() for engine, in run(connection, f"SELECT DISTINCT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA IN ({listed}) AND TABLE_NAME <> 'other'")}


def test_a_schema_moves_with_its_foreign_keys_and_they_are_enforced(server):
    connection = server.connect()
    run(connection, "CREATE OR REPLACE DATABASE moved")
    run(connection, "USE moved")
    statements(connection, SCHEMA)
    before = definitions(connection, "moved")
    code, shown = convert(server, "moved")
    assert code == 0 and "all foreign keys are there" in shown, shown
    assert definitions(connection, "moved") == before
    assert engines(connection, "moved") == {"TERRACE"}
    assert run(connection, "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'moved' AND TABLE_NAME = 'other'") == [("Aria",)]
    assert not run(connection, "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'moved'")
    run(connection, "DELETE FROM person")
    assert run(connection, "SELECT boss FROM shop") == [(None,)]
    run(connection, "UPDATE region SET id = 9 WHERE id = 2")
    assert run(connection, "SELECT region FROM shop") == [(9,)]
    code, shown = convert(server, "moved")
    assert code == 0, shown
    assert definitions(connection, "moved") == before
    run(connection, "DROP DATABASE moved")


def test_keys_that_lead_out_of_the_schemas_and_tables_that_cannot_move_change_nothing(server):
    connection = server.connect()
    for schema in ("moved_one", "moved_two"):
        run(connection, f"CREATE OR REPLACE DATABASE {schema}")
    statements(connection, """
        CREATE TABLE moved_one.p (id INT PRIMARY KEY) ENGINE=InnoDB;
        CREATE TABLE moved_two.c (id INT PRIMARY KEY, p INT, CONSTRAINT away FOREIGN KEY (p) REFERENCES moved_one.p (id)) ENGINE=InnoDB;
        INSERT INTO moved_one.p VALUES (1);
        INSERT INTO moved_two.c VALUES (1, 1)
    """)
    for schema in ("moved_one", "moved_two"):
        code, shown = convert(server, schema)
        assert code != 0 and "nothing was changed: foreign key away of moved_two.c refers to moved_one.p: name both schemas" in shown, shown
    run(connection, "ALTER TABLE moved_two.c ADD t TEXT, ADD FULLTEXT KEY (t)")
    code, shown = convert(server, "moved_one", "moved_two")
    assert code != 0 and "moved_two.c has a full-text or spatial index" in shown, shown
    assert engines(connection, "moved_one", "moved_two") == {"INNODB", "TERRACE"}, "only the list of keys is of Terrace, and it is empty"
    assert run(connection, "SELECT COUNT(*) FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = 'moved_two'") == [(1,)]
    run(connection, "ALTER TABLE moved_two.c DROP KEY t")
    code, shown = convert(server, "moved_one", "moved_two")
    assert code == 0, shown
    assert engines(connection, "moved_one", "moved_two") == {"TERRACE"}
    for schema in ("moved_two", "moved_one"):
        run(connection, f"DROP DATABASE {schema}")


def test_a_move_that_was_interrupted_goes_on(server):
    """A table that cannot be moved now stands for a crash: what was done before stays, and the next run does the rest."""
    connection = server.connect()
    run(connection, "CREATE OR REPLACE DATABASE moved_on")
    run(connection, "USE moved_on")
    statements(connection, SCHEMA)
    before = definitions(connection, "moved_on")
    other = server.connect(database="moved_on")
    run(other, "LOCK TABLES person READ")
    printed = subprocess.run([os.path.join(TARGET, "debug", "terrace"), "convert", "moved_on"], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    client = ["mariadb", "--no-defaults", f"--socket={server.directory}/sock", "--user=root", "--batch", "--init-command=SET lock_wait_timeout = 1"]
    done = subprocess.run(client, input=printed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert done.returncode != 0 and "Lock wait timeout" in done.stdout, done.stdout
    assert run(connection, "SELECT COUNT(*) > 0 FROM terrace_convert_keys") == [(1,)]
    run(other, "UNLOCK TABLES")
    # Someone leaves a row without a parent while its key is not there.
    run(connection, "SET foreign_key_checks = 0")
    run(connection, "INSERT INTO pair VALUES (3, 'y', 3)")
    code, shown = convert(server, "moved_on")
    assert code != 0 and "1 rows of moved_on.pair have no parent by foreign key both_of" in shown, shown
    run(connection, "DELETE FROM pair WHERE id = 3")
    code, shown = convert(server, "moved_on")
    assert code == 0, shown
    assert definitions(connection, "moved_on") == before
    run(connection, "SET foreign_key_checks = 1")
    run(connection, "DROP DATABASE moved_on")


def test_a_versioned_table_is_refused_before_any_foreign_key_is_dropped(server):
    connection = server.connect()
    run(connection, "CREATE OR REPLACE DATABASE moved_past")
    run(connection, "USE moved_past")
    statements(connection, """
        CREATE TABLE p (id INT PRIMARY KEY) ENGINE=InnoDB;
        CREATE TABLE c (id INT PRIMARY KEY, p INT, CONSTRAINT up FOREIGN KEY (p) REFERENCES p (id)) ENGINE=InnoDB;
        CREATE TABLE past (id INT PRIMARY KEY) ENGINE=InnoDB WITH SYSTEM VERSIONING
    """)
    before = definitions(connection, "moved_past")
    code, shown = convert(server, "moved_past")
    assert code != 0 and "nothing was changed: moved_past.past is system-versioned" in shown, shown
    after = definitions(connection, "moved_past")
    assert {name: after[name] for name in before} == before
    run(connection, "DROP TABLE past")
    code, shown = convert(server, "moved_past")
    assert code == 0 and engines(connection, "moved_past") == {"TERRACE"}, shown
    run(connection, "DROP DATABASE moved_past")
