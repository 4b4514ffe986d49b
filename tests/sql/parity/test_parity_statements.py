"""The statements of parity/statements.sql, one after the other, give what InnoDB gives: rows, counts, error codes."""

import pathlib
import re

import pymysql

SOURCE = pathlib.Path(__file__).parent / "statements.sql"

# How many rows a rebuild copied is the engine's own affair.
UNCOUNTED = ("alter", "drop", "create", "optimize")


def statements():
    delimiter, pending = ";", ""
    for line in SOURCE.read_text().split("\n"):
        change = re.search(r"delimiter (\S+)\s*$", line)
        if change:
            line = line[:change.start()]
        while delimiter in line:
            head, line = line.split(delimiter, 1)
            yield (pending + head).strip()
            pending = ""
        pending += line + "\n"
        if change:
            delimiter = change.group(1)


def outcome(cursor, statement):
    try:
        cursor.execute(statement)
        rows = cursor.fetchall()
        while cursor.nextset():
            pass
    except pymysql.err.Error as error:
        return ("error",) + error.args
    word = statement.split()[0].lower()
    if word in ("check", "analyze", "optimize"):
        return [row[-1] for row in rows]
    if rows:
        return rows
    return "done" if word in UNCOUNTED else cursor.rowcount


def test_statements_give_what_innodb_gives(server, engine):
    seen = {}
    for name in ("InnoDB", engine):
        connection = server.connect()
        cursor = connection.cursor()
        cursor.execute(f"DROP DATABASE IF EXISTS parity")
        cursor.execute("CREATE DATABASE parity CHARACTER SET latin1")
        connection.select_db("parity")
        seen[name] = []
        for statement in filter(None, statements()):
            text = repr(outcome(cursor, statement.replace("@E", name)))
            seen[name].append((statement, re.sub(r"innodb|terrace", "ENGINE", text, flags=re.I)))
        cursor.execute("DROP DATABASE parity")
        connection.close()
    assert len(seen[engine]) > 200
    different = [(s, theirs, ours) for (s, theirs), (_, ours) in zip(seen["InnoDB"], seen[engine]) if theirs != ours]
    assert different == []
