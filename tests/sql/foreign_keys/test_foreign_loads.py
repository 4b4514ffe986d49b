"""Foreign keys of rows that come in bulk: parents are looked for together, with the answers that rows which come one by one get."""

import os

import pymysql
import pytest
from both_engines import assert_same
from test_object import SIZES, Store, is_mostly_far, wait_for

from conftest import Server, end, run

PARENTS = """
    CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE=@E;
    CREATE TABLE q (a INT, b VARCHAR(20), PRIMARY KEY (a, b), UNIQUE KEY u (b)) ENGINE=@E;
    INSERT INTO p SELECT seq, 0 FROM seq_1_to_5000;
    INSERT INTO q SELECT seq, CONCAT('q', seq) FROM seq_1_to_5000;
    CREATE TABLE c (id INT PRIMARY KEY, p INT, b VARCHAR(20), CONSTRAINT of_p FOREIGN KEY (p) REFERENCES p (id), CONSTRAINT of_q FOREIGN KEY (b) REFERENCES q (b)) ENGINE=@E
"""
# Where the load goes: into an empty table; into one that has rows.
TARGETS = {"empty": "", "filled": "INSERT INTO c SELECT -seq, 1, NULL FROM seq_1_to_10"}
SCRIPTS = {
    "the first row without a parent names its foreign key": """
        INSERT INTO c SELECT seq, IF(seq = 4200, 9999, seq), IF(seq = 3500, 'none', CONCAT('q', seq)) FROM seq_1_to_5000;
        INSERT INTO c SELECT seq, IF(seq = 3500, 9999, seq), IF(seq = 4200, 'none', CONCAT('q', seq)) FROM seq_1_to_5000;
        INSERT INTO c SELECT seq, IF(seq = 3500, 9999, seq), IF(seq = 3500, 'none', CONCAT('q', seq)) FROM seq_1_to_5000;
        INSERT INTO c SELECT seq, seq, IF(seq = 5000, 'none', CONCAT('q', seq)) FROM seq_1_to_5000
    """,
    "parents in any order, again and again, and none": """
        INSERT INTO c SELECT seq, IF(seq % 3, seq * 7919 % 5000 + 1, NULL), IF(seq % 5, CONCAT('Q', seq * 31 % 50 + 1), NULL) FROM seq_1_to_20000;
        SELECT COUNT(*), COUNT(p), COUNT(b), SUM(p), COUNT(DISTINCT b) FROM c
    """,
    "a value that no parent can have": """
        CREATE TABLE w (id INT PRIMARY KEY, p BIGINT, CONSTRAINT of_w FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
        INSERT INTO c SELECT seq, IF(seq = 3000, -1, seq), NULL FROM seq_1_to_5000
    """,
    "a parent that the same transaction made or deleted": """
        BEGIN;
        INSERT INTO p VALUES (6000, 0);
        DELETE FROM p WHERE id = 7;
        INSERT INTO c SELECT seq, IF(seq = 4000, 6000, 8), NULL FROM seq_1_to_5000;
        INSERT INTO c SELECT seq + 5000, IF(seq = 4000, 7, 8), NULL FROM seq_1_to_5000;
        SELECT COUNT(*) FROM c;
        ROLLBACK
    """,
    "no checks": """
        SET foreign_key_checks = 0;
        INSERT INTO c SELECT seq, 9999, 'none' FROM seq_1_to_5000;
        SET foreign_key_checks = 1;
        SELECT COUNT(*) FROM c
    """,
    "a duplicate and rows with parents": """
        INSERT INTO c SELECT IF(seq = 4900, 5, seq), seq, NULL FROM seq_1_to_5000;
        SELECT COUNT(*) FROM c
    """,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_rows_that_come_in_bulk_are_answered_as_by_innodb(server, engine, name, target):
    assert_same(server, engine, PARENTS + ";" + TARGETS[target] + ";" + SCRIPTS[name] + "; SELECT COUNT(*), SUM(id) FROM c")


def test_a_loaded_row_keeps_its_parent_until_its_transaction_ends(db, server, engine):
    for statement in PARENTS.replace("@E", engine).split(";"):
        run(db, statement)
    db.begin()
    run(db, "INSERT INTO c SELECT seq, seq, CONCAT('q', seq) FROM seq_1_to_4000")
    other = server.connect(database=db.name)
    run(other, "SET innodb_lock_wait_timeout = 1, terrace_lock_wait_timeout_ms = 200" if engine == "Terrace" else "SET innodb_lock_wait_timeout = 1")
    for statement in ("DELETE FROM p WHERE id = 3999", "UPDATE q SET b = 'other' WHERE a = 1"):
        with pytest.raises(pymysql.err.OperationalError) as refused:
            run(other, statement)
        assert refused.value.args[0] == 1205
    run(other, "DELETE FROM p WHERE id = 4001")
    db.rollback()
    run(other, "DELETE FROM p WHERE id = 3999")


def test_parents_that_only_the_store_has_are_asked_for_together(tmp_path, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    directory = tmp_path / "server"
    os.makedirs(directory)
    options = SIZES + Store("directory", tmp_path).options() + ["--terrace-memory=33554432", "--terrace-without=clean-copies"]
    server = Server(str(directory), options)
    server.start()
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE, pad VARCHAR(900)) ENGINE=Terrace")
        for start in range(0, 24000, 3000):
            run(connection, f"INSERT INTO t SELECT seq, seq * 7919 % 1000003, REPEAT('x', 800) FROM seq_{start}_to_{start + 2999}")
        run(connection, "CREATE TABLE c (id INT PRIMARY KEY, p INT, u INT, FOREIGN KEY (p) REFERENCES t (id), FOREIGN KEY (u) REFERENCES t (u)) ENGINE=Terrace")
        wait_for(lambda: is_mostly_far(connection, run))
        server.options += ["--terrace-emulate=cloud"]  # a store that takes 30 ms
        server.restart()
        connection = server.connect(database="d")
        run(connection, "SELECT * FROM t LIMIT 0")
        run(connection, "INSERT INTO c SELECT seq, seq * 12345 % 24000, seq * 321 % 24000 * 7919 % 1000003 FROM seq_1_to_1500")
        status = dict(run(connection, "SHOW SESSION STATUS LIKE 'Terrace_session_pages_%'"))
        own, ahead = (int(status[f"Terrace_session_pages_{name}"]) for name in ("object", "ahead_object"))
        assert own + ahead > 200 and ahead > 4 * own, (own, ahead)
    finally:
        end(server)
