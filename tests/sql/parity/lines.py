"""The lines of the parity table (docs/sql.md) as statements: lines.tsv has each with what InnoDB, MyRocks and Terrace answer.

A scenario is a name and its steps; a step is a session and a statement, in which @E is the engine. A statement that has no answer after a while `waits`;
a step `a?` is its answer later, and a statement of a step `a!` may take long but waits for no lock. Each scenario has a database and sessions of its own.
"""

import pathlib
import random
import re

import pymysql
from patient import Patient

FILE = pathlib.Path(__file__).parent / "lines.tsv"
ENGINES = ("InnoDB", "ROCKSDB", "Terrace")
# Seconds within which any statement ends that waits for no lock.
LONG = 120
# The column of EXPLAIN that has the estimated rows, which are others each time with MyRocks.
ESTIMATE = 8
HEAD = ("line", "session", "statement", *ENGINES)


def scenarios():
    """Name to its rows, each (session, statement, answers by engine), as they stand in the file."""
    found = {}
    for text in FILE.read_text().splitlines()[1:]:
        if text:
            name, who, statement, *answers = text.split("\t")
            found.setdefault(name, []).append((who, statement, dict(zip(ENGINES, answers))))
    return found


def write(found):
    """The file with other answers."""
    lines = ["\t".join(HEAD)]
    for name, rows in found.items():
        lines += [""] + ["\t".join((name, who, statement, *(answers.get(e, "") for e in ENGINES))) for who, statement, answers in rows]
    FILE.write_text("\n".join(lines) + "\n")


class Session(Patient):
    def __init__(self, server, database):
        self.connection = server.connect(database=database)
        for setting in ("innodb_lock_wait_timeout = 30", "terrace_lock_wait_timeout_ms = 30000", "rocksdb_lock_wait_timeout = 30"):
            try:
                self.connection.cursor().execute(f"SET SESSION {setting}")
            except pymysql.err.MySQLError:
                pass  # of an engine that is not there

    def _run(self, statement):
        try:
            cursor = self.connection.cursor()
            cursor.execute(statement)
            rows = cursor.fetchall()
            if statement.startswith("EXPLAIN"):
                rows = [row[:ESTIMATE] + ("rows",) + row[ESTIMATE + 1:] for row in rows]
            self.answer = shown(rows) if rows or cursor.description else "ok"
        except pymysql.err.Error as error:
            self.answer = f"error {error.args[0]}"
        except AttributeError:
            self.answer = "the connection was closed"


def shown(rows):
    text = "; ".join(",".join("NULL" if v is None else v.decode("latin-1") if isinstance(v, bytes) else str(v) for v in row) for row in rows)
    return re.sub(r"\s+", " ", text) or "no rows"


def play(server, engine, rows, patience):
    """What an engine answers to each step."""
    name = f"p{random.randrange(10**12)}"
    control = server.connect()
    control.cursor().execute(f"CREATE DATABASE {name} CHARACTER SET latin1 COLLATE latin1_bin")
    sessions, answers = {}, []
    try:
        for who, statement, _ in rows:
            session = sessions.get(who[0]) or sessions.setdefault(who[0], Session(server, name))
            answer = session.wait() if who.endswith("?") else session.run(statement.replace("@E", engine).replace("@D", name), LONG if who.endswith("!") else patience)
            answers.append(answer.replace(name, "@D"))
    finally:
        for session in sessions.values():
            if not (session.thread and session.thread.is_alive()):
                session.connection.close()
        control.cursor().execute(f"DROP DATABASE {name}")
        control.close()
    return answers
