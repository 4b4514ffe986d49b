"""What can be seen of foreign keys: the tables that stand beside InnoDB's, and the latest error in the engine's status."""

import pymysql
import pytest

from conftest import run

TABLES = [
    "CREATE TABLE p (id INT PRIMARY KEY, k INT, KEY (k, id)) ENGINE=@E",
    "CREATE TABLE c (id INT PRIMARY KEY, a INT, b INT, FOREIGN KEY (a) REFERENCES p (id) ON DELETE CASCADE ON UPDATE SET NULL, CONSTRAINT two FOREIGN KEY (b, a) REFERENCES p (k, id) ON UPDATE CASCADE)"
    " ENGINE=@E",
    "CREATE TABLE d (a INT, FOREIGN KEY (a) REFERENCES c (id) ON DELETE NO ACTION ON UPDATE NO ACTION, FOREIGN KEY (a) REFERENCES p (id) ON DELETE SET NULL ON UPDATE RESTRICT) ENGINE=@E",
]
COLUMNS = {"": "ID, FOR_NAME, REF_NAME, N_COLS, TYPE", "_COLS": "ID, FOR_COL_NAME, REF_COL_NAME, POS"}


def seen(db, engine, name):
    prefix = "INNODB_SYS" if engine == "InnoDB" else "TERRACE"
    run(db, f"CREATE DATABASE {name}")
    try:
        run(db, f"USE {name}")
        for statement in TABLES:
            run(db, statement.replace("@E", engine))
        rows = {which: run(db, f"SELECT {columns} FROM information_schema.{prefix}_FOREIGN{which} WHERE ID LIKE '{name}/%' ORDER BY 1, 2, 3") for which, columns in COLUMNS.items()}
        return str(rows).replace(name, "@D")
    finally:
        run(db, f"DROP DATABASE {name}")


def test_the_tables_have_what_innodbs_have(server, engine):
    db = server.connect(database="mysql")
    theirs = seen(db, "InnoDB", "fkseen1")
    assert theirs.count("@D/two") == 3
    assert seen(db, engine, "fkseen2") == theirs


def latest(db):
    return {row[1]: row[2] for row in run(db, "SHOW ENGINE TERRACE STATUS")}.get("latest_foreign_key_error", "")


def test_the_status_has_the_latest_foreign_key_error(own_server, engine):
    if engine != "Terrace":
        pytest.skip("of the engine's status")
    db = own_server.connect(database="mysql")
    assert latest(db) == ""
    run(db, "CREATE DATABASE d")
    run(db, "USE d")
    run(db, "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=Terrace")
    run(db, "CREATE TABLE c (id INT PRIMARY KEY, p INT, CONSTRAINT of_p FOREIGN KEY (p) REFERENCES p (id)) ENGINE=Terrace")
    run(db, "INSERT INTO p VALUES (1)")
    run(db, "INSERT INTO c VALUES (1, 1)")
    for statement, error, text in (
        ("INSERT INTO c VALUES (2, 7)", 1452, "A child row has no parent: `d`.`c`, CONSTRAINT `of_p` FOREIGN KEY (`p`) REFERENCES `p` (`id`)"),
        ("DELETE FROM p WHERE id = 1", 1451, "A parent row has a child, or a child cannot be changed with it: `d`.`c`, CONSTRAINT `of_p`"),
        ("CREATE TABLE x (p BIGINT, CONSTRAINT bad FOREIGN KEY (p) REFERENCES p (id)) ENGINE=Terrace", 1005, "with foreign key `bad` constraint failed. Field type or character set for column 'p'"),
        ("CREATE TABLE x (p INT, CONSTRAINT bad FOREIGN KEY (p) REFERENCES nothing (id)) ENGINE=Terrace", 1005, "Referenced table `d`.`nothing` not found"),
        ("SET STATEMENT foreign_key_checks = 0 FOR ALTER TABLE c ADD CONSTRAINT bad FOREIGN KEY (p) REFERENCES c (p, id), ALGORITHM=INPLACE", 1239, ""),
        ("SET STATEMENT foreign_key_checks = 0 FOR ALTER TABLE c ADD CONSTRAINT bad FOREIGN KEY (p) REFERENCES p (none), ALGORITHM=INPLACE", 1822, "There is no index of comparable columns in the referenced table"),
    ):
        with pytest.raises(pymysql.err.MySQLError) as refused:
            run(db, statement)
        assert refused.value.args[0] == error, (statement, refused.value.args)
        if text:
            assert text in latest(db) and statement in latest(db) and f"connection {db.thread_id()}\n" in latest(db)
    kept = latest(db)
    run(db, "INSERT INTO c VALUES (3, 1)")
    assert latest(db) == kept
