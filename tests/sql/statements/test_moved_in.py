"""Tables that are altered from another engine and have that engine's options."""

import os

import pymysql
import pytest

from conftest import Server, end, run


@pytest.fixture
def encrypting(tmp_path):
    directory = str(tmp_path)
    keys = os.path.join(directory, "keys")
    with open(keys, "w") as file:
        file.write("1;" + "0123456789abcdef" * 4 + "\n")
    os.chmod(directory, 0o755)
    server = Server(directory, ["--plugin-load-add=file_key_management", f"--file-key-management-filename={keys}", "--innodb=ON"])
    server.start()
    yield server
    end(server)


def test_an_encrypted_table_is_not_silently_rewritten_in_the_clear(encrypting, engine):
    if engine != "Terrace":
        pytest.skip("says what Terrace does not do")
    db = encrypting.connect()
    run(db, "CREATE DATABASE d")
    db.select_db("d")
    run(db, "CREATE TABLE t (id INT PRIMARY KEY, secret TEXT) ENGINE=InnoDB ENCRYPTED=YES")
    run(db, "INSERT INTO t VALUES (1, 'a')")
    for statement in f"ALTER TABLE t ENGINE={engine}", f"CREATE TABLE u (id INT PRIMARY KEY) ENGINE={engine} ENCRYPTED=YES":
        with pytest.raises(pymysql.err.MySQLError) as refused:
            run(db, statement)
        assert "'ENCRYPTED'" in refused.value.args[1] or "IGNORE_BAD_TABLE_OPTIONS" in refused.value.args[1]
    assert run(db, "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_NAME = 't'") == [("InnoDB",)]
    # IGNORE_BAD_TABLE_OPTIONS turns the error into a warning.
    run(db, "SET sql_mode = CONCAT(@@sql_mode, ',IGNORE_BAD_TABLE_OPTIONS')")
    run(db, f"ALTER TABLE t ENGINE={engine}")
    assert any("ENCRYPTED=YES" in row[2] for row in run(db, "SHOW WARNINGS"))
    run(db, "SET sql_mode = DEFAULT")
    assert run(db, "SELECT secret FROM t") == [("a",)]
    run(db, "ALTER TABLE t ADD n INT, ALGORITHM=INSTANT")
