"""Runs statements against two engines in one server and finds where their answers differ."""

import re
from collections import Counter

import pymysql

LOST = (2006, 2013, 2014, 2055)
# The last is the error of an ALTER whose time is over while it copies; no session sends KILL.
TIMED_OUT = (1969, 3024, 1317)
# An ALTER meets the row that can't be converted or the duplicate first, as it goes by rows or by keys; and in place names another value.
BY_COPY_OR_IN_PLACE = (1062, 1265)
# If a row violates several constraints, which one is reported first is each engine's own: they change its entries in another order.
VIOLATED = (1062, 1451, 1452, 1761)
# How an ALTER is refused that a foreign key doesn't allow: InnoDB finds it as it renames a copy.
REFUSED = (1005, 1025, 1217, 1451, 1553, 1822, 1828, 1829, 1830, 1832, 1833, 1834, 1845, 1846)
# In an UPDATE the server numbers the rows that it read: another plan, another number. InnoDB's own is off after refused inserts, which it
# takes from its count of rows, and so may be its plan.
NUMBERED = re.compile(r" at row \d+$")
# What both engines may call the same thing by their names.
NAMES = re.compile(r"innodb|terrace|myisam|differ_[01]|#sql[-_0-9a-z]*", re.I)


class Died(Exception):
    """The server lost the connection, in a statement on a table of this engine."""

    def __init__(self, engine, text, seed=None):
        super().__init__(text if seed is None else f"seed {seed}: {text}")
        self.engine, self.seed = engine, seed


class TimedOut(Exception):
    """A statement took longer than a scenario may."""


class Side:
    def __init__(self, connect, engine, database):
        self.connect, self.engine, self.database, self.connection = connect, engine, database, None

    def fresh(self):
        """A new session in an empty database."""
        if self.connection:
            self.connection.close()
        self.connection = self.connect()
        cursor = self.connection.cursor()
        for text in (f"DROP DATABASE IF EXISTS {self.database}", f"CREATE DATABASE {self.database} CHARACTER SET utf8mb4", f"USE {self.database}", "SET timestamp=1700000000", "SET max_statement_time=20"):
            cursor.execute(text)

    def has_foreign(self, cursor):
        cursor.execute("SELECT COUNT(*) FROM information_schema.TABLE_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE() AND CONSTRAINT_TYPE = 'FOREIGN KEY'")
        return cursor.fetchone()[0] > 0

    def outcome(self, text, statement):
        """What a client sees of a statement, as (name, value) pairs."""
        cursor = self.connection.cursor()
        try:
            cursor.execute(text.replace("@E", self.engine))
            rows = cursor.fetchall()
        except pymysql.err.Error as error:
            code = error.args[0]
            if code in LOST or isinstance(error, pymysql.err.InterfaceError):
                raise Died(self.engine, f"{self.engine}: {error}") from error
            if code in TIMED_OUT:
                raise TimedOut(text) from error
            if statement.kind == "alter" and code in BY_COPY_OR_IN_PLACE:
                return [("error", (1062, ""))]
            if statement.kind in ("insert", "update", "delete") and code in VIOLATED and self.has_foreign(cursor):
                return [("error", (1452, ""))]
            if statement.kind in ("alter", "drop") and code in REFUSED and self.has_foreign(cursor):
                return [("error", (1005, ""))]
            message = NAMES.sub("ENGINE", str(error.args[1]))
            if statement.kind == "update":
                message = NUMBERED.sub(" at row N", message)
            return [("error", (code, message))]
        seen = [("error", None)]
        result = cursor._result
        if statement.rows is None:
            seen.append(("rows", len(rows)))
        elif statement.kind in ("check", "analyze"):
            # Before the verdict come the warnings of virtual columns that were computed.
            seen.append(("rows", NAMES.sub("ENGINE", rows[-1][-1])))
        elif statement.rows == "bag":
            seen.append(("rows", Counter(rows)))
        elif statement.rows == "list":
            seen.append(("rows", list(rows)))
        else:
            seen.append(("order", [row[:statement.rows] for row in rows]))
            seen.append(("rows", Counter(rows)))
        if statement.counted:
            seen.append(("count", cursor.rowcount))
            seen.append(("message", (result.message or b"").decode()))
        if statement.warned and result.warning_count and not self.has_foreign(cursor):
            cursor.execute("SHOW WARNINGS")
            seen.append(("warnings", [(row[0], row[1], NAMES.sub("ENGINE", row[2])) for row in cursor.fetchall()]))
        elif statement.warned:
            seen.append(("warnings", []))
        return seen


class Difference:
    def __init__(self, statement, name, first, second):
        self.statement, self.name, self.first, self.second = statement, name, first, second

    @property
    def signature(self):
        codes = tuple(value[0] if self.name == "error" and value else None for value in (self.first, self.second))
        bags = ("more", "fewer") if isinstance(self.first, Counter) else ()
        which = tuple(word for word, rest in zip(bags, (self.second - self.first, self.first - self.second)) if rest) if bags else ()
        return (self.statement.kind, self.name, codes, which)

    def text(self):
        first, second = self.first, self.second
        if isinstance(first, Counter):
            first, second = f"only here: {dict(first - second)!r}", f"only here: {dict(second - first)!r}"
        return f"{self.name} of: {self.statement.text()}\n  first : {clip(first)}\n  second: {clip(second)}"


def clip(value):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) < 600 else text[:600] + "…"


class Pair:
    """`engines`: the reference, then the one that is judged."""

    def __init__(self, connect, engines=("InnoDB", "Terrace")):
        self.engines = engines
        self.sides = [Side(connect, engine, f"differ_{at}") for at, engine in enumerate(engines)]

    def fresh(self):
        for side in self.sides:
            side.fresh()

    def compare(self, statement):
        """The difference, or None. Second, whether the statement succeeded."""
        text = statement.text()
        first, second = (dict(side.outcome(text, statement)) for side in self.sides)
        for name in first:
            if first[name] != second.get(name):
                return Difference(statement, name, first[name], second.get(name)), False
        return None, first["error"] is None

    def first_difference(self, statements):
        self.fresh()
        for at, statement in enumerate(statements):
            difference, _ = self.compare(statement)
            if difference:
                return at, difference
        return None
