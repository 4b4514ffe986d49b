"""Records what sessions with random transactions over lists see, at one isolation level."""

import random
import threading
import time

import pymysql

from check import Append, Read, Transaction

GIVEN_UP = (1205, 1213, 1020)
# The server went away: before the statement arrived, or before its answer did.
GONE = (2006, 2013, 1053, 1927)


def parsed(text):
    return tuple(int(value) for value in text.split(",")) if text else ()


class Session(threading.Thread):
    def __init__(self, connect, level, keys, number, seed, until, strict, trusts, mortal):
        super().__init__(daemon=True)
        self.trusts, self.mortal = trusts, mortal
        self.connection, self.keys, self.number, self.until = connect(), keys, number, until
        self.rng = random.Random(f"{seed}-{number}")
        self.done, self.failure = [], None
        cursor = self.connection.cursor()
        for text in (f"SET SESSION TRANSACTION ISOLATION LEVEL {level}", "SET SESSION innodb_lock_wait_timeout = 2", "SET SESSION lock_wait_timeout = 5", "SET SESSION terrace_lock_wait_timeout_ms = 2000", f"SET SESSION innodb_snapshot_isolation = {strict:d}, terrace_snapshot_isolation = {strict:d}"):
            cursor.execute(text)

    def run(self):
        try:
            while time.monotonic() < self.until:
                self.transaction()
        except Exception as error:  # shown by the test
            is_gone = isinstance(error, (OSError, pymysql.err.InterfaceError)) or error.args and error.args[0] in GONE
            if not (self.mortal and is_gone):
                self.failure = error

    def transaction(self):
        rng, cursor = self.rng, self.connection.cursor()
        t = Transaction(name=self.number * 10**6 + len(self.done))
        self.done.append(t)
        rolls_back = rng.random() < 0.1
        t.began = time.monotonic()
        # Whatever goes wrong before COMMIT is sent undoes it.
        t.committed = False
        try:
            cursor.execute("BEGIN")
            for _ in range(rng.randrange(1, 6)):
                self.step(cursor, t)
                if rng.random() < 0.2:
                    time.sleep(0.001)
            if rolls_back:
                cursor.execute("ROLLBACK")
            else:
                t.committed = None
                cursor.execute("COMMIT")
                t.answered = time.monotonic()
                t.committed = True
        except pymysql.err.OperationalError as error:
            if error.args[0] not in GIVEN_UP:
                raise
            cursor.execute("ROLLBACK")
            t.committed = False

    def step(self, cursor, t):
        rng, key = self.rng, self.rng.randrange(self.keys)
        pick = rng.random()
        locking = rng.choice(["", "", " FOR UPDATE", " LOCK IN SHARE MODE"])
        if pick < 0.3:
            cursor.execute(f"SELECT l FROM lists WHERE k = {key}{locking}")
            row = cursor.fetchone()
            t.steps.append(Read(key, parsed(row[0]) if row else (), bool(locking)))
        elif pick < 0.5:
            # By the primary key, by the secondary one, or whole: what is not there counts as read.
            low, high = rng.choice([(key, key + 2), (0, self.keys - 1)])
            high = min(high, self.keys - 1)
            where = rng.choice([f"k BETWEEN {low} AND {high}", f"g BETWEEN {low} AND {high}"])
            cursor.execute(f"SELECT k, l FROM lists WHERE {where}{locking}")
            rows = dict(cursor.fetchall())
            for one in range(low, high + 1):
                t.steps.append(Read(one, parsed(rows.get(one)), bool(locking)))
        elif pick < 0.6:
            # The client makes the new list, of what it has read under a lock; or without, if it trusts its view.
            plain = self.trusts and rng.random() < 0.5
            cursor.execute(f"SELECT l FROM lists WHERE k = {key}{'' if plain else ' FOR UPDATE'}")
            row = cursor.fetchone()
            if row:
                t.steps.append(Read(key, parsed(row[0]), not plain))
                value = self.value()
                cursor.execute("UPDATE lists SET l = %s WHERE k = %s", (",".join(filter(None, [row[0], str(value)])), key))
                t.steps.append(Append(key, value))
        else:
            value = self.value()
            t.steps.append(Append(key, value))
            if rng.random() < 0.5:
                cursor.execute(f"INSERT INTO lists VALUES ({key}, {key}, '{value}') ON DUPLICATE KEY UPDATE l = CONCAT(l, ',{value}')")
            elif not cursor.execute(f"UPDATE lists SET l = CONCAT(l, ',{value}') WHERE {rng.choice('kg')} = {key}"):
                t.steps.pop()

    def value(self):
        self.made = getattr(self, "made", 0) + 1
        return self.number * 10**6 + self.made


def record(connect, engine, level, seconds, seed, sessions=6, keys=6, strict=False, trusts=False, crash=None):
    """All transactions and the last lists. `connect()` gives a connection in a database where the table may be made. `strict`: with
    strict snapshot isolation; `trusts`: some write what they make of a plain read. `crash()` kills the server amid the load and starts it again:
    transactions whose COMMIT got no answer have `committed` None (`check.settle`)."""
    cursor = connect().cursor()
    cursor.execute("DROP TABLE IF EXISTS lists")
    cursor.execute(f"CREATE TABLE lists (k INT PRIMARY KEY, g INT, l MEDIUMTEXT, KEY (g)) ENGINE={engine}")
    until = time.monotonic() + seconds
    if crash:
        until += 600
    running = [Session(connect, level, keys, number + 1, seed, until, strict, trusts, bool(crash)) for number in range(sessions)]
    for session in running:
        session.start()
    if crash:
        time.sleep(seconds)
        crash()
        cursor = connect().cursor()
    for session in running:
        session.join(seconds + 60)
        if session.failure:
            raise session.failure
        assert not session.is_alive(), "a session hangs"
    cursor.execute("SELECT k, l FROM lists")
    last = {key: parsed(text) for key, text in cursor.fetchall()}
    return [t for session in running for t in session.done], last
