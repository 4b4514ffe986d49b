"""Random histories of DDL in two sessions, each with tables of its own, and a server that is killed in the middle of them. After each
restart every session's tables are what the last answered statement left, or the one that was not answered; server and engine name
the same tables, and nothing is left over.

TERRACE_DDL_SECONDS: how long (default 25). TERRACE_DDL_SEED: a number to begin with (default: another each time).
"""

import copy
import os
import random
import threading
import time

import pymysql
from conftest import end, private, run
from test_ddl_crash import agreed, engines_tables, said

SECONDS = float(os.environ.get("TERRACE_DDL_SECONDS", "25"))
SEED = int(os.environ.get("TERRACE_DDL_SEED", "0")) or random.randrange(10**9)
SESSIONS = 2
EDGES = [100, 200, 300, None]


class Table:
    """What a table is: columns after `id`, indexes, partitions (name, upper bound), rows."""

    def __init__(self, parts=None):
        self.columns, self.keys, self.parts, self.rows = ["v"], set(), parts, {}

    def seen(self):
        return (["id", *self.columns], sorted(self.keys), [name for name, _ in self.parts or []], {key: row for key, row in sorted(self.rows.items())})


class Session:
    """One session's tables as they are after its last answered statement, and what the next one makes of them."""

    def __init__(self, number, seed):
        self.random = random.Random(seed)
        self.names = [f"s{number}_{letter}" for letter in "abcd"]
        self.tables, self.serial = {}, 0
        self.then = self.sql = None

    def fresh(self, prefix):
        self.serial += 1
        return f"{prefix}{self.serial}"

    def bounds(self, parts):
        return ", ".join(f"PARTITION {name} VALUES LESS THAN {'MAXVALUE' if edge is None else f'({edge})'}" for name, edge in parts)

    def partitioning(self):
        parts = [(self.fresh("p"), edge) for edge in EDGES]
        return parts, f"PARTITION BY RANGE (id) ({self.bounds(parts)})"

    def range_of(self, table, at):
        low = table.parts[at - 1][1] if at else 0
        return lambda key: key >= low and (table.parts[at][1] is None or key < table.parts[at][1])

    def next(self):
        """The next statement, and the tables after it."""
        self.then = copy.deepcopy(self.tables)
        self.sql = None
        while self.sql is None:
            self.sql = self.choose(self.random, self.then)
        return self.sql

    def choose(self, pick, tables):
        absent = [name for name in self.names if name not in tables]
        if not tables or (absent and pick.random() < 0.2):
            return self.create(pick, tables, pick.choice(absent))
        name = pick.choice(sorted(tables))
        table = tables[name]
        kind = pick.choice(["insert", "insert", "drop", "rename", "swap", "truncate", "add", "add", "lose", "key", "no-key", "force", "parts", "parts", "parts", "parts"])
        if kind == "parts":
            return self.change_parts(pick, tables, name, table)
        if kind == "insert":
            added = {pick.randrange(400): pick.randrange(1000) for _ in range(pick.randrange(1, 60))}
            table.rows.update({key: (value, *[None] * (len(table.columns) - 1)) for key, value in added.items()})
            return f"REPLACE INTO {name} (id, {table.columns[0]}) VALUES " + ", ".join(f"({key}, {value})" for key, value in added.items())
        if kind == "drop":
            both = [name, *[other for other in tables if other != name][: pick.randrange(2)]]
            if len(both) > 1:
                return None  # several are dropped one after the other
            del tables[name]
            return f"DROP TABLE {name}"
        if kind == "rename" and absent:
            to = pick.choice(absent)
            tables[to] = tables.pop(name)
            return f"RENAME TABLE {name} TO {to}"
        others = [other for other in tables if other != name]
        if kind == "swap" and absent and others:
            other = pick.choice(others)
            tables[name], tables[other] = tables[other], tables[name]
            return f"RENAME TABLE {name} TO {absent[0]}, {other} TO {name}, {absent[0]} TO {other}"
        if kind == "truncate" and not table.parts:
            table.rows.clear()
            return f"TRUNCATE TABLE {name}"
        if kind == "add":
            column = self.fresh("c")
            table.columns.append(column)
            table.rows = {key: (*row, None) for key, row in table.rows.items()}
            return f"ALTER TABLE {name} ADD COLUMN {column} INT, ALGORITHM={pick.choice(['COPY', 'INSTANT', 'DEFAULT'])}"
        if kind == "lose" and len(table.columns) > 1:
            column = table.columns.pop()
            table.rows = {key: row[:-1] for key, row in table.rows.items()}
            table.keys = {key for key in table.keys if not key.endswith(f"_{column}")}
            return f"ALTER TABLE {name} DROP COLUMN {column}"
        if kind == "key":
            column = pick.choice(table.columns)
            key = f"{self.fresh('k')}_{column}"
            table.keys.add(key)
            return f"ALTER TABLE {name} ADD KEY {key} ({column}), ALGORITHM={pick.choice(['COPY', 'NOCOPY'])}"
        if kind == "no-key" and table.keys:
            key = pick.choice(sorted(table.keys))
            table.keys.discard(key)
            return f"ALTER TABLE {name} DROP KEY {key}"
        if kind == "force":
            return pick.choice([f"ALTER TABLE {name} FORCE, ALGORITHM=COPY", f"OPTIMIZE TABLE {name}"])
        return None

    def create(self, pick, tables, name):
        if tables and pick.random() < 0.4:
            source = pick.choice(sorted(tables))
            made = tables[name] = Table()
            made.columns = ["v"]
            made.rows = {key: row[:1] for key, row in tables[source].rows.items()}
            return f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT) ENGINE={{engine}} SELECT id, {tables[source].columns[0]} AS v FROM {source}"
        parts, text = self.partitioning() if pick.random() < 0.5 else (None, "")
        tables[name] = Table(parts)
        return f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT) ENGINE={{engine}} {text}"

    def change_parts(self, pick, tables, name, table):
        if not table.parts:
            table.parts, text = self.partitioning()
            return f"ALTER TABLE {name} {text}"
        at = pick.randrange(len(table.parts))
        inside = self.range_of(table, at)
        kind = pick.choice(["drop", "truncate", "reorganize", "split", "remove", "exchange", "exchange"])
        if kind == "remove":
            table.parts = None
            return f"ALTER TABLE {name} REMOVE PARTITIONING"
        if kind == "truncate":
            table.rows = {key: row for key, row in table.rows.items() if not inside(key)}
            return f"ALTER TABLE {name} TRUNCATE PARTITION {table.parts[at][0]}"
        if kind == "drop" and len(table.parts) > 1 and table.parts[at][1] is not None:
            table.rows = {key: row for key, row in table.rows.items() if not inside(key)}
            part = table.parts.pop(at)[0]
            return f"ALTER TABLE {name} DROP PARTITION {part}"
        if kind == "reorganize" and at + 1 < len(table.parts):
            merged = (self.fresh("p"), table.parts[at + 1][1])
            first, second = table.parts[at][0], table.parts[at + 1][0]
            table.parts[at : at + 2] = [merged]
            return f"ALTER TABLE {name} REORGANIZE PARTITION {first}, {second} INTO ({self.bounds([merged])})"
        if kind == "split":
            low, high = (table.parts[at - 1][1] if at else 0), table.parts[at][1] or 400
            if high - low < 2:
                return None
            halves = [(self.fresh("p"), (low + high) // 2), (self.fresh("p"), table.parts[at][1])]
            old = table.parts[at][0]
            table.parts[at : at + 1] = halves
            return f"ALTER TABLE {name} REORGANIZE PARTITION {old} INTO ({self.bounds(halves)})"
        like = [other for other, one in tables.items() if not one.parts and one.columns == table.columns and not one.keys and not table.keys and all(map(inside, one.rows))]
        if kind == "exchange" and like:
            other = pick.choice(like)
            mine = {key: row for key, row in table.rows.items() if inside(key)}
            kept = {key: row for key, row in table.rows.items() if not inside(key)}
            table.rows, tables[other].rows = {**kept, **tables[other].rows}, mine
            return f"ALTER TABLE {name} EXCHANGE PARTITION {table.parts[at][0]} WITH TABLE {other}"
        return None

    def seen(self, tables):
        return {name: table.seen() for name, table in sorted(tables.items())}

    def found(self, connection):
        """The same as the server says."""
        result = {}
        for (name,) in run(connection, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd'"):
            if name not in self.names:
                continue
            columns = [row[0] for row in run(connection, f"SHOW COLUMNS FROM d.{name}")]
            keys = {row[2] for row in run(connection, f"SHOW INDEX FROM d.{name}")} - {"PRIMARY"}
            parts = run(connection, f"SELECT PARTITION_NAME FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = '{name}' AND PARTITION_NAME IS NOT NULL ORDER BY PARTITION_ORDINAL_POSITION")
            rows = {row[0]: tuple(row[1:]) for row in run(connection, f"SELECT * FROM d.{name} FORCE INDEX (PRIMARY) ORDER BY id")}
            result[name] = (columns, sorted(keys), [part for (part,) in parts], rows)
        return result


def work(server, session, engine, said_no):
    """Statements until the server is gone."""
    connection = server.connect(database="d")
    try:
        while True:
            run(connection, session.next().format(engine=engine))
            session.tables = session.then
    except pymysql.err.MySQLError as error:
        if error.args[0] not in (2006, 2013, 0):
            said_no.append((session.sql, error))


def test_random_changes_of_definitions_survive_crashes(engine):
    print("seed", SEED)
    chance = random.Random(SEED)
    server = private(["--terrace-memory=33554432", "--innodb-buffer-pool-size=8M"])
    try:
        run(server.connect(), "CREATE DATABASE d")
        sessions = [Session(n, chance.random()) for n in range(SESSIONS)]
        until, cycles, old, new = time.monotonic() + SECONDS, 0, 0, 0
        while time.monotonic() < until or not cycles:
            cycles += 1
            said_no = []
            threads = [threading.Thread(target=work, args=(server, one, engine, said_no)) for one in sessions]
            [thread.start() for thread in threads]
            time.sleep(0.3 + 2 * chance.random())
            server.kill9()
            [thread.join() for thread in threads]
            assert not said_no, f"seed {SEED}, cycle {cycles}: {said_no}"
            server.start()
            connection = server.connect()
            for one in sessions:
                where = f"seed {SEED}, cycle {cycles}: {one.sql[:300]}"
                try:
                    found = one.found(connection)
                except pymysql.err.MySQLError as error:
                    files = sorted(os.listdir(os.path.join(server.directory, "data", "d")))
                    raise AssertionError(f"{where}: {error}; {sorted(engines_tables(connection))}; {files}; {said(server)}") from error
                before, after = one.seen(one.tables), one.seen(one.then)
                assert found in (before, after), f"{where}:\n{before}\nor\n{after}\nfound\n{found}\n{said(server)}"
                old, new = old + (found == before), new + (found == after)
                one.tables = one.then if found == after else one.tables
            try:
                agreed(connection, server)
            except AssertionError as error:
                raise AssertionError(f"seed {SEED}, cycle {cycles}: {[one.sql[:300] for one in sessions]}: {error}; {said(server)}") from error
        print(f"{cycles} crashes: {old} statements undone, {new} done")
    finally:
        end(server)
