"""The sessions of the mixed run: each does one kind of work again and again, and checks its own invariant."""

import hashlib
import random
import threading
import time

import pymysql

ACCOUNTS, BLOBS, START = 20_000, 300, 1000
# A deadlock, a lock waited for too long, a row or a table that has changed since the snapshot, a killed statement.
USUAL = {1205, 1213, 1020, 1412, 1317}
# What a server that ends or starts says.
GONE = {2003, 2006, 2013, 2014, 1053, 1927, 0}
SCHEMA = [
    "CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL, pad VARCHAR(400) NOT NULL) ENGINE=Terrace",
    f"INSERT INTO accounts SELECT seq, {START}, REPEAT(MD5(seq), 10) FROM seq_1_to_{ACCOUNTS}",
    "CREATE TABLE ledger (worker INT, n INT, payer INT NOT NULL, payee INT NOT NULL, amount INT NOT NULL, note VARCHAR(200) NOT NULL, PRIMARY KEY (worker, n), "
    "KEY payer (payer)) ENGINE=Terrace",
    "CREATE TABLE blobs (id INT PRIMARY KEY, sum CHAR(32) NOT NULL, data LONGBLOB NOT NULL) ENGINE=Terrace",
    "CREATE TABLE far (id INT PRIMARY KEY, v INT NOT NULL, pad VARCHAR(900) NOT NULL) ENGINE=Terrace",
    "INSERT INTO far SELECT seq, seq, REPEAT(MD5(seq * 3), 28) FROM seq_1_to_60000",
    "CREATE TABLE noise (id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) ENGINE=Terrace",
]


class Wrong(Exception):
    """What was read cannot be."""


class Session:
    """A thread with a connection of its own. `trouble()`: whether the world is being hurt right now, so that errors are no surprise."""

    pause = 0.0
    usual = USUAL

    def __init__(self, server, number, trouble, stop):
        self.server, self.number, self.trouble, self.stop = server, number, trouble, stop
        self.random, self.last = random.Random(number * 1000 + 7), ""
        self.done, self.errors, self.findings, self.slowest = 0, {}, [], 0.0
        self.thread = threading.Thread(target=self.go, name=f"{type(self).__name__} {number}")

    def go(self):
        connection = None
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                connection = connection or self.server.connect(database="d", read_timeout=300)
                self.once(connection)
                self.done += 1
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.stop.wait(self.pause)
            except Wrong as what:
                self.found(str(what))
                self.stop.wait(1)
            except (pymysql.err.MySQLError, ConnectionError, OSError) as error:
                code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
                self.errors[code] = self.errors.get(code, 0) + 1
                if code not in self.usual and not self.trouble(began):
                    self.found(f"{error}, {time.monotonic() - began:.1f} s after it began, last {self.last[:120]}")
                    self.stop.wait(1)
                connection = self.again(connection, code)

    def found(self, what):
        if len(self.findings) < 20:
            self.findings.append(f"{self.thread.name} at {time.strftime('%H:%M:%S')}: {what}")
            print(f"      found: {self.findings[-1]}", flush=True)

    def again(self, connection, code):
        """The connection, rolled back; none if it is no good any more."""
        try:
            if code in GONE:
                raise ConnectionError
            connection.rollback()
            return connection
        except Exception:
            self.stop.wait(0.2)
            return None

    def run(self, connection, sql, arguments=None):
        self.last = sql
        cursor = connection.cursor()
        cursor.execute(sql, arguments)
        return list(cursor.fetchall())


class Payer(Session):
    """Moves money, and writes each move down in the same transaction."""

    def __init__(self, *more):
        super().__init__(*more)
        self.next, self.acknowledged, self.unknown = 0, 0, 0

    def once(self, connection):
        payer, payee = self.random.sample(range(1, ACCOUNTS + 1), 2)
        if self.random.random() < 0.7:
            payer = payer % 200 + 1
        amount = self.random.randrange(1, 50)
        connection.begin()
        self.run(connection, f"UPDATE accounts SET balance = balance - {amount} WHERE id = {payer}")
        self.run(connection, f"UPDATE accounts SET balance = balance + {amount} WHERE id = {payee}")
        self.next += 1
        self.run(connection, f"INSERT INTO ledger (worker, n, payer, payee, amount, note) VALUES ({self.number}, {self.next}, {payer}, {payee}, {amount}, REPEAT('n', 120))")
        if self.random.random() < 0.05:
            connection.rollback()
            return
        self.unknown += 1
        connection.commit()
        self.unknown -= 1
        self.acknowledged += 1


class Auditor(Session):
    """One snapshot: no money is made or lost, at any moment."""

    pause = 1.0

    def once(self, connection):
        self.run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        [(count, total)] = self.run(connection, "SELECT COUNT(*), SUM(balance) FROM accounts")
        if (count, total) != (ACCOUNTS, ACCOUNTS * START):
            raise Wrong(f"{count} accounts with {total} in all")
        one = self.random.randrange(1, 200)
        [(paid,)] = self.run(connection, f"SELECT COALESCE(SUM(amount), 0) FROM ledger FORCE INDEX (payer) WHERE payer = {one}")
        [(got,)] = self.run(connection, f"SELECT COALESCE(SUM(amount), 0) FROM ledger IGNORE INDEX (payer) WHERE payee = {one}")
        [(balance,)] = self.run(connection, f"SELECT balance FROM accounts WHERE id = {one}")
        connection.rollback()
        if balance != START - paid + got:
            raise Wrong(f"account {one} has {balance}, its ledger {START - paid + got}")


class Blobs(Session):
    """Large values, written and read: each has its sum beside it."""

    def once(self, connection):
        which = self.random.randrange(BLOBS)
        if self.random.random() < 0.5:
            data = self.random.randbytes(4096) * self.random.randrange(1, 60)
            self.run(connection, "REPLACE INTO blobs VALUES (%s, %s, %s)", (which, hashlib.md5(data).hexdigest(), data))
        for total, data in self.run(connection, f"SELECT sum, data FROM blobs WHERE id = {which}"):
            if hashlib.md5(data).hexdigest() != total:
                raise Wrong(f"BLOB {which} of {len(data)} bytes is not what was put")


class Far(Session):
    """Rows that no session has touched for long."""

    def once(self, connection):
        first = self.random.randrange(1, 59_000)
        if self.random.random() < 0.02:
            if self.run(connection, "SELECT COUNT(*), SUM(v) FROM far") != [(60_000, 60_000 * 60_001 // 2)]:
                raise Wrong("rows of `far` are gone")
        rows = self.run(connection, f"SELECT id, v, pad = REPEAT(MD5(id * 3), 28) FROM far WHERE id BETWEEN {first} AND {first + 9}")
        if rows != [(n, n, 1) for n in range(first, first + 10)]:
            raise Wrong(f"rows of `far` from {first} on: {rows[:3]}")


class Noise(Session):
    """Inserts in bursts and deletes what is old, so that pages come and go."""

    def once(self, connection):
        rows = ", ".join(f"({self.random.randrange(1000)}, REPEAT('b', {self.random.randrange(100)}))" for _ in range(50))
        self.run(connection, f"INSERT INTO noise (a, b) VALUES {rows}")
        if self.random.random() < 0.2:
            self.run(connection, "DELETE FROM noise ORDER BY id LIMIT 1000")


class Ddl(Session):
    """Changes of tables that are at work, and tables that come and go."""

    pause = 2.0

    def once(self, connection):
        what = self.random.choice([self.index, self.column, self.copy, self.load, self.rename, self.partition, self.rebuild])
        what(connection)

    def index(self, connection):
        self.run(connection, "ALTER TABLE ledger ADD KEY IF NOT EXISTS payee (payee, amount)")
        self.run(connection, "ALTER TABLE ledger DROP KEY IF EXISTS payee")

    def column(self, connection):
        self.run(connection, f"ALTER TABLE noise ADD COLUMN IF NOT EXISTS c INT DEFAULT {self.random.randrange(9)}")
        self.run(connection, "ALTER TABLE noise DROP COLUMN IF EXISTS c")

    def copy(self, connection):
        self.run(connection, "CREATE OR REPLACE TABLE copy (PRIMARY KEY (id)) ENGINE=Terrace AS SELECT * FROM accounts")
        [(count, total)] = self.run(connection, "SELECT COUNT(*), SUM(balance) FROM copy")
        if count != ACCOUNTS or total != ACCOUNTS * START:
            raise Wrong(f"a copy of accounts has {count} rows with {total} in all")
        self.run(connection, "TRUNCATE TABLE copy")
        self.run(connection, "DROP TABLE copy")

    def load(self, connection):
        self.run(connection, "CREATE OR REPLACE TABLE loaded (id INT PRIMARY KEY, v INT, c CHAR(60), KEY v (v), KEY c (c)) ENGINE=Terrace")
        self.run(connection, "INSERT INTO loaded SELECT seq, seq * 31 % 1009, MD5(seq) FROM seq_1_to_60000")
        if self.run(connection, "SELECT COUNT(*) FROM loaded FORCE INDEX (c) WHERE c >= ''") != [(60_000,)]:
            raise Wrong("rows of a load are not in its index")
        self.run(connection, "DROP TABLE loaded")

    def rename(self, connection):
        self.run(connection, "CREATE TABLE IF NOT EXISTS a1 (id INT PRIMARY KEY) ENGINE=Terrace")
        self.run(connection, "RENAME TABLE a1 TO a2, a2 TO a3")
        self.run(connection, "DROP TABLE IF EXISTS a1, a2, a3")

    def partition(self, connection):
        self.run(connection, "CREATE OR REPLACE TABLE parts (id INT PRIMARY KEY, v INT) ENGINE=Terrace PARTITION BY HASH (id) PARTITIONS 4")
        self.run(connection, "INSERT INTO parts SELECT seq, seq FROM seq_1_to_4000")
        self.run(connection, "ALTER TABLE parts ADD PARTITION PARTITIONS 2")
        if self.run(connection, "SELECT COUNT(*), SUM(v) FROM parts") != [(4000, 4000 * 4001 // 2)]:
            raise Wrong("rows of `parts` are gone")
        self.run(connection, "DROP TABLE parts")

    def rebuild(self, connection):
        self.run(connection, f"ALTER TABLE {self.random.choice(['blobs', 'accounts'])} FORCE, LOCK=NONE")
        self.run(connection, f"ALTER TABLE ledger DROP PRIMARY KEY, ADD PRIMARY KEY ({self.random.choice(['worker, n', 'n, worker'])}), LOCK=NONE")
        self.run(connection, "OPTIMIZE TABLE noise")
        self.run(connection, "ANALYZE TABLE noise, far")


class Temporary(Session):
    """A temporary table that is filled from far rows, spilled when it is large, changed and rolled back: it has what was put there."""

    pause = 1.0

    def once(self, connection):
        rows = self.random.choice([100, 4000, 30_000])
        expected = [(rows, sum(n % 100 for n in range(1, rows + 1)))]
        self.run(connection, "CREATE OR REPLACE TEMPORARY TABLE side (id INT PRIMARY KEY, v INT NOT NULL, pad VARCHAR(900) NOT NULL, KEY v (v)) ENGINE=Terrace")
        self.run(connection, f"INSERT INTO side SELECT id, v % 100, pad FROM far WHERE id <= {rows}")
        self.holds(connection, expected)
        connection.begin()
        self.run(connection, "UPDATE side SET v = v + 1, pad = '' WHERE id % 3 = 0")
        self.run(connection, "DELETE FROM side WHERE id % 7 = 0")
        if self.random.random() < 0.7:
            connection.rollback()
        else:
            connection.commit()
            left = [n for n in range(1, rows + 1) if n % 7]
            expected = [(len(left), sum(n % 100 + (n % 3 == 0) for n in left))]
        self.holds(connection, expected)
        if self.random.random() < 0.5:
            self.run(connection, "DROP TEMPORARY TABLE side")

    def holds(self, connection, expected):
        for key in ("PRIMARY", "v"):
            found = self.run(connection, f"SELECT COUNT(*), SUM(v) FROM side FORCE INDEX ({key}) WHERE v >= 0")
            if found != expected:
                raise Wrong(f"by {key} a temporary table has {found}, not {expected}")


class Rules(Session):
    """Shares of flash and object buffer, limits, places, policies and codecs that change while they are in force. Some contradict what is in force: they
    are refused."""

    pause = 1.0
    usual = USUAL | {1478}
    OF_TABLES = {
        "FLASH_MIN": [16 << 20, 4 << 20, 0], "FLASH_MAX": [32 << 20, 16 << 20, 4 << 20, 0], "BUFFER_MIN": [16 << 20, 0], "BUFFER_MAX": [32 << 20, 0], "PLACEMENT": ["KEEP", "DEFAULT", "NONE"],
        "WRITE_POLICY": ["AUTO", "CLEAN", "'DUAL'", "DEFAULT"], "COMPRESSION": ["zstd", "lz4", "none", "default"],
        "FLASH_IOPS": [5000, 0], "VOLUME_IOPS": [2000, 0], "OBJECT_BANDWIDTH": [50_000_000, 0],
        "FLASH_WRITE_IOPS": [200, 0], "VOLUME_WRITE_IOPS": [500, 0], "OBJECT_WRITE_IOPS": [5, 0],
    }
    KEYS = {"ledger": "payer", "noise": "a"}

    def once(self, connection):
        what = self.random.random()
        if what < 0.1:
            self.run(connection, f"SET GLOBAL terrace_write_policy = '{self.random.choice(['auto', 'clean', 'dual'])}'")
        elif what < 0.25:
            # Rebuilds an index under another placement, beside writers.
            (table, key), place = self.random.choice(list(self.KEYS.items())), self.random.choice(["KEEP", "NONE", "DEFAULT", "'TABLE'"])
            self.run(connection, f"ALTER TABLE {table} DROP KEY {key}, ADD KEY {key} ({key}) PLACEMENT={place}, LOCK=NONE")
        else:
            table, (option, values) = self.random.choice(["accounts", "far", "noise", "blobs"]), self.random.choice(list(self.OF_TABLES.items()))
            self.run(connection, f"ALTER TABLE {table} {option}={self.random.choice(values)}")


class Sizes(Session):
    """Memory, flash and object buffer of other sizes, online."""

    pause = 4.0
    MIB = 1 << 20
    CHOICES = {"memory": [64, 96, 160], "flash": [64, 128, 256], "object_buffer": [256, 320, 512]}

    def once(self, connection):
        name = self.random.choice(list(self.CHOICES))
        try:
            self.run(connection, f"SET GLOBAL terrace_{name} = {self.random.choice(self.CHOICES[name]) * self.MIB}")
        except pymysql.err.MySQLError as error:
            # It failed too often, and is used again after a restart.
            if "flash is not used: 8 errors" not in str(error):
                raise
