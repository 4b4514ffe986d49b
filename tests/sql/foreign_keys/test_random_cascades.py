"""Random schemas of foreign keys, with every action, circles and tables that refer to themselves: the same random statements run on InnoDB and on the
engine, one after the other, and after each the answers and all rows are compared. A failure prints the seed, the schema and the statements."""

import os
import random

import pymysql
import pytest
from both_engines import TEXTS, shown

from conftest import run

ACTIONS = ("", "CASCADE", "CASCADE", "CASCADE", "SET NULL", "SET NULL", "RESTRICT", "NO ACTION")
KEYS = 8
# How many seeds; more by hand.
SEEDS = int(os.environ.get("RANDOM_CASCADES", "12"))
STATEMENTS = 120


def foreign_key(random_, table, at, tables):
    parent = random_.choice(tables)
    column, referenced = random_.choice((("a", "id"), ("b", "id"), ("a", "u"), ("b", "k"), ("b", "u"), ("a, b", "id, k"), ("b, a", "k, u"), ("id", "id")))
    options = [(event, random_.choice(ACTIONS)) for event in ("DELETE", "UPDATE")]
    if column == "id":
        options = [(event, action) for event, action in options if action != "SET NULL"]
    text = "".join(f" ON {event} {action}" for event, action in options if action)
    return f"ALTER TABLE {table} ADD CONSTRAINT f{random_.randrange(90)}_{table}_{at} FOREIGN KEY ({column}) REFERENCES {parent} ({referenced}){text}"


def schema(random_):
    tables = [f"t{at}" for at in range(random_.randrange(1, 6))]
    made = []
    for table in tables:
        more = random_.choice(("", ", UNIQUE KEY ab (a, b)", ", v INT AS (a + 1) VIRTUAL, KEY v (v)", ", UNIQUE KEY bu (b, u)", ", w VARCHAR(20) AS (CONCAT(b, 'x')) VIRTUAL, KEY w (w)"))
        made.append(f"CREATE TABLE {table} (id INT PRIMARY KEY, u INT, k INT, a INT, b INT, t TEXT, UNIQUE KEY u (u), KEY k (k, u), KEY idk (id, k){more}) ENGINE=@E")
    for table in tables:
        for at in range(random_.choice((0, 1, 1, 2, 3))):
            made.append(foreign_key(random_, table, at, tables))
    return tables, made


def statement(random_, tables):
    table = random_.choice(tables)
    value = lambda: random_.choice(["NULL"] + [str(at) for at in range(1, KEYS + 1)] * 2)
    row = lambda: f"({random_.randrange(1, KEYS + 1)}, {value()}, {value()}, {value()}, {value()}, REPEAT('t', {random_.choice((1, 30, 9000))}))"
    where = random_.choice((f"id = {random_.randrange(1, KEYS + 1)}", f"id BETWEEN {random_.randrange(1, KEYS)} AND {random_.randrange(1, KEYS + 1)}", f"k = {random_.randrange(1, KEYS + 1)}", "id > 0"))
    ignore = random_.choice(("", "", "", " IGNORE"))
    columns = "(id, u, k, a, b, t)"
    column = random_.choice(("id", "u", "k", "a", "b"))
    other = random_.choice(tables)
    return random_.choice((
        f"INSERT{ignore} INTO {table} {columns} VALUES {row()}",
        f"INSERT{ignore} INTO {table} {columns} VALUES {row()}, {row()}, {row()}",
        f"INSERT INTO {table} {columns} VALUES {row()} ON DUPLICATE KEY UPDATE {column} = {random_.randrange(1, KEYS + 1)}",
        f"REPLACE INTO {table} {columns} VALUES {row()}",
        f"UPDATE{ignore} {table} SET {column} = {value() if column != 'id' else random_.randrange(1, KEYS + 1)} WHERE {where} ORDER BY id",
        f"UPDATE{ignore} {table} SET {column} = {column} + {random_.randrange(1, 4)} WHERE {where} ORDER BY id DESC",
        f"DELETE{ignore} FROM {table} WHERE {where} ORDER BY id",
        f"DELETE{ignore} FROM {table} WHERE {where}",
        f"DELETE FROM {table}, {other} USING {table} JOIN {other} ON {table}.id = {other}.id WHERE {table}.id = {random_.randrange(1, KEYS + 1)}" if other != table else f"DELETE FROM {table}",
        f"UPDATE {table} SET u = {value()}, k = {value()} WHERE {where} ORDER BY id",
    ))


class Side:
    def __init__(self, server, engine, name):
        self.engine, self.name, self.db = engine, name, server.connect(database="mysql")
        run(self.db, f"CREATE DATABASE {name}")
        run(self.db, f"USE {name}")

    def answer(self, text):
        try:
            rows = run(self.db, text.replace("@E", self.engine))
            return shown(rows, self.name, self.engine)
        except pymysql.err.MySQLError as error:
            return (error.args[0], shown(error.args[1], self.name, self.engine) if error.args[0] in TEXTS else "")

    def end(self):
        run(self.db, "SET foreign_key_checks = 0")
        run(self.db, f"DROP DATABASE {self.name}")
        self.db.close()


# Errors of constraints. If a row violates several, the engines may report another one first: they change its entries in another order.
VIOLATED = (1062, 1451, 1452, 1761)


def same(theirs, ours):
    return theirs == ours or (isinstance(theirs, tuple) and isinstance(ours, tuple) and theirs[0] in VIOLATED and ours[0] in VIOLATED)


def compare(server, engine, seed):
    random_ = random.Random(seed)
    tables, made = schema(random_)
    number = random.randrange(10**12)
    sides = [Side(server, "InnoDB", f"fk{number}i"), Side(server, engine, f"fk{number}t")]
    done = []
    try:
        def both(text):
            theirs, ours = (side.answer(text) for side in sides)
            done.append((text, theirs))
            assert same(theirs, ours), f"seed {seed}: {text}\n   InnoDB: {theirs}\n   {engine}: {ours}\n" + "\n".join(f"{one};   -- {answer[0] if isinstance(answer, tuple) else ''}" for one, answer in done if "SELECT" not in one)
        for text in made:
            both(text)
        for at in range(STATEMENTS):
            off = random_.random() < (0.6 if at < 20 else 0.08)
            if off:
                both("SET foreign_key_checks = 0")
            begins = random_.random() < 0.15
            if begins:
                both("BEGIN")
                both("SAVEPOINT s")
            both(statement(random_, tables))
            for table in tables:
                both(f"SELECT *, LENGTH(t) FROM {table} ORDER BY id")
            if begins:
                both(statement(random_, tables))
                both(random_.choice(("COMMIT", "ROLLBACK", "ROLLBACK TO s")))
                both("COMMIT")
            if off:
                both("SET foreign_key_checks = 1")
        for table in tables:
            both(f"SELECT a, b FROM {table} FORCE INDEX (k) ORDER BY k, u, a, b")
            both(f"SELECT u FROM {table} FORCE INDEX (u) ORDER BY u")
            assert sides[1].answer(f"CHECK TABLE {table}").endswith("'status', 'OK')]"), f"seed {seed}"
    finally:
        for side in sides:
            side.end()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_cascades_are_innodbs(server, engine, seed):
    compare(server, engine, seed)
