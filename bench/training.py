"""The workload of which the handler's profile is recorded (`make profile`): statements that users run, so that the compiler knows their hot paths.

Two servers: one has all data in memory, the other has little memory, flash and a store. Most statements read single rows; scans are short and of
all kinds, because loops dominate the profile anyhow. Argument: an empty directory.
"""

import concurrent.futures
import os
import sys

import pymysql

os.environ.update(ROWS="20000", MYROCKS="", TIME="4")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "sql"))
import sql_memory  # noqa: E402
from conftest import Server, end, run  # noqa: E402

DEADLOCK = 1213
TABLES = [
    """CREATE TABLE account (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, mail VARCHAR(120) NOT NULL, name VARCHAR(80) COLLATE utf8mb4_general_ci, born DATE,
       balance DECIMAL(14,2) NOT NULL DEFAULT 0, seen TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, flags SET('a','b','c'), score DOUBLE, note TEXT, data JSON,
       year INT AS (YEAR(born)) VIRTUAL, UNIQUE KEY (mail), KEY (name, born), KEY (year), KEY (seen DESC), KEY (note(20)))""",
    """CREATE TABLE item (account BIGINT UNSIGNED NOT NULL, line INT NOT NULL, code CHAR(12) NOT NULL, price DECIMAL(10,2) NOT NULL, at DATETIME(6), body BLOB,
       PRIMARY KEY (account, line), KEY (code, price), KEY (at))""",
    "CREATE TABLE part (id INT NOT NULL, region INT NOT NULL, text VARCHAR(100), PRIMARY KEY (id, region), KEY (text)) PARTITION BY HASH (region) PARTITIONS 4",
    "CREATE TABLE bare (a INT, b VARCHAR(30), KEY (a))",
]
FILL = [
    """INSERT INTO account (mail, name, born, balance, seen, flags, score, note, data) SELECT CONCAT('user', seq * 7919 % 10007, '.', seq, '@example.org'),
       IF(seq % 9, CONCAT(ELT(seq % 5 + 1, 'Ann', 'Böb', 'Cem', 'Dana', 'Eve'), ' ', seq % 300), NULL), DATE'1950-01-01' + INTERVAL seq % 20000 DAY, seq % 1000,
       TIMESTAMP'2024-01-01 00:00:00' + INTERVAL seq MINUTE, seq % 8, RAND(seq), IF(seq % 4, REPEAT(CONCAT('note ', seq, ' '), seq % 30), NULL),
       JSON_OBJECT('n', seq, 'tags', JSON_ARRAY(seq % 3, seq % 5)) FROM seq_1_to_8000""",
    """INSERT INTO item SELECT a.seq, l.seq, CONCAT('C', (a.seq * l.seq) % 997), (a.seq + l.seq) % 500, NOW(6), IF(l.seq = 3 AND a.seq % 200 = 0, REPEAT('x', 60000), REPEAT('y', a.seq % 90))
       FROM seq_1_to_4000 a, seq_1_to_4 l""",
    "INSERT INTO part SELECT seq, seq % 16, CONCAT('text ', seq % 100) FROM seq_1_to_8000",
    "INSERT INTO bare SELECT seq % 100, seq FROM seq_1_to_4000",
    "ANALYZE TABLE account, item, part, bare",
]
# {0} is another number each time.
SINGLE = [
    "SELECT * FROM account WHERE id = {0}",
    "SELECT id, balance FROM account WHERE mail = 'user{0}.{0}@example.org'",
    "SELECT id FROM account WHERE mail = CONCAT('user', {0} * 7919 % 10007, '.', {0}, '@example.org')",
    "SELECT name, born FROM account WHERE name = 'Ann {0}' ORDER BY born DESC LIMIT 5",
    "SELECT * FROM item WHERE account = {0} ORDER BY line DESC LIMIT 1",
    "SELECT SUM(price) FROM item WHERE account = {0}",
    "SELECT i.price, a.name FROM item i JOIN account a ON a.id = i.account WHERE i.code = 'C{0}' LIMIT 10",
    "SELECT * FROM part WHERE id = {0}",
    "SELECT * FROM account WHERE year = 1950 + {0} % 54 LIMIT 20",
    "SELECT COUNT(*) FROM bare WHERE a = {0} % 100",
    "UPDATE account SET balance = balance + 1 WHERE id = {0}",
    "UPDATE account SET name = CONCAT('Eve ', {0} % 300), seen = seen + INTERVAL 1 MINUTE WHERE id = {0}",
    "UPDATE account SET note = REPEAT('n', {0} % 300) WHERE id = {0}",
    "UPDATE item SET price = price + 1, at = NOW(6) WHERE account = {0} AND line = 2",
    "UPDATE bare SET b = {0} WHERE a = {0} % 100 LIMIT 1",
    "UPDATE part SET text = 'text {0}' WHERE id = {0}",
    "DELETE FROM item WHERE account = {0} AND line = 4",
    "INSERT IGNORE INTO item VALUES ({0}, 4, 'C4', 4, NOW(6), 'again')",
    "INSERT INTO account (mail, name) VALUES ('user{0}.{0}@example.org', 'Cem {0}') ON DUPLICATE KEY UPDATE score = score + 1",
    "REPLACE INTO part VALUES ({0}, {0} % 16, 'replaced')",
    "INSERT INTO bare VALUES ({0}, 'new')",
    "BEGIN", "SELECT balance FROM account WHERE id = {0} FOR UPDATE", "SAVEPOINT s", "UPDATE account SET balance = balance - 1 WHERE id = {0}",
    "ROLLBACK TO s", "INSERT INTO item VALUES ({0}, 90, 'C9', 1, NULL, NULL) ON DUPLICATE KEY UPDATE price = 2", "COMMIT",
    "BEGIN", "UPDATE account SET score = 1 WHERE id BETWEEN {0} AND {0} + 3", "ROLLBACK",
]
MANY = [
    "SELECT name, COUNT(*), SUM(balance) FROM account GROUP BY name ORDER BY 2 DESC LIMIT 5",
    "SELECT COUNT(*) FROM account WHERE born BETWEEN '1960-01-01' AND '1970-01-01' AND score > 0.5",
    "SELECT COUNT(data), MAX(note) FROM account FORCE INDEX (name) WHERE name LIKE 'B%'",
    "SELECT id FROM account ORDER BY seen DESC LIMIT 200",
    "SELECT DISTINCT year FROM account WHERE year < 1990",
    "SELECT COUNT(*), SUM(i.price) FROM account a JOIN item i ON i.account = a.id WHERE a.balance < 300",
    "SELECT SUM(LENGTH(body)) FROM item WHERE at IS NOT NULL",
    "SELECT code, MIN(price), MAX(price) FROM item GROUP BY code LIMIT 50",
    "SELECT region, COUNT(*) FROM part GROUP BY region",
    "SELECT COUNT(*) FROM account WHERE id IN (SELECT account FROM item WHERE price > 400)",
    "SELECT SUM(LENGTH(note)) FROM account FORCE INDEX (note) WHERE note BETWEEN 'note 1' AND 'note 3'",
    "SELECT COUNT(*) FROM bare a JOIN bare b ON a.a = b.a WHERE a.a < 10",
    "UPDATE item SET price = price + 1 WHERE price < 100",
    "DELETE FROM bare WHERE a % 7 = 3", "INSERT INTO bare SELECT seq % 100, seq FROM seq_1_to_1000",
    "CREATE TABLE other LIKE account", "INSERT INTO other SELECT id, mail, name, born, balance, seen, flags, score, note, data, NULL FROM account", "CHECKSUM TABLE other",
    "ALTER TABLE other ADD COLUMN more INT DEFAULT 3, ALGORITHM=INSTANT", "ALTER TABLE other ADD INDEX (score), ADD INDEX (balance, born)", "ALTER TABLE other FORCE",
    "ALTER TABLE other MODIFY score DECIMAL(10,4), ALGORITHM=COPY", "OPTIMIZE TABLE other", "CHECK TABLE other", "DROP TABLE other",
    "CREATE TEMPORARY TABLE temp AS SELECT * FROM item", "UPDATE temp SET price = 0 WHERE line = 1", "SELECT COUNT(*) FROM temp a JOIN item b USING (account, line)", "DROP TEMPORARY TABLE temp",
    "ALTER TABLE part REBUILD PARTITION ALL", "ALTER TABLE part COALESCE PARTITION 1", "ALTER TABLE part ADD PARTITION PARTITIONS 1",
    "SHOW TABLE STATUS", "SELECT COUNT(*) FROM information_schema.TERRACE_SPACES", "SHOW ENGINE TERRACE STATUS",
]


def statements(server, database, rounds):
    """From three sessions at once, each in its own part of the numbers."""
    def session(number):
        connection = server.connect(database=database)
        for level in ("REPEATABLE READ", "READ COMMITTED"):
            run(connection, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            for round_ in range(rounds):
                for statement in SINGLE:
                    try:
                        run(connection, statement.format(1 + round_ * 7919 % 1300 + number * 1300))
                    except pymysql.OperationalError as error:
                        if error.args[0] != DEADLOCK:
                            raise

    with concurrent.futures.ThreadPoolExecutor(3) as sessions:
        list(sessions.map(session, range(3)))
    connection = server.connect(database=database)
    for statement in MANY:
        run(connection, statement)


def ordinary(server, rounds):
    connection = server.connect()
    run(connection, "CREATE DATABASE ordinary CHARACTER SET utf8mb4")
    connection.select_db("ordinary")
    for statement in TABLES:
        run(connection, statement.replace(" PARTITION BY", " ENGINE=Terrace PARTITION BY") if "PARTITION" in statement else statement + " ENGINE=Terrace")
    for statement in FILL:
        run(connection, statement)
    statements(server, "ordinary", rounds)


def in_memory(directory):
    server = Server(directory, ["--terrace-memory=1G", "--terrace-log=256M", "--log-bin", "--binlog-format=ROW"])
    server.start()
    try:
        connection = server.connect()
        files = {name: os.path.join(directory, name) for name in ("sorted", "random")}
        sql_memory.ENGINES = ["Terrace"]
        sql_memory.prepare(server, connection, files)
        for name in sql_memory.TRANSACTIONS:
            for threads in (1, 8):
                sql_memory.transactions(server, name, "Terrace", threads)
        connection.select_db("memory_terrace")
        for name in sql_memory.STATEMENTS:
            sql_memory.statement(server, connection, name, files)
        ordinary(server, 150)
    finally:
        end(server)


def on_tiers(directory):
    """Most reads miss memory, some flash, too."""
    server = Server(directory, ["--terrace-memory=16M", "--terrace-log=64M", f"--terrace-flash-path={directory}/flash", "--terrace-flash=64M",
                                f"--terrace-object={directory}/objects", "--terrace-object-buffer=64M", "--skip-log-bin"])
    server.start()
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE memory_terrace CHARACTER SET latin1")
        sql_memory.ROWS = 150000
        sql_memory.sysbench(server, "Terrace", "prepare", "oltp_read_write")
        for name in ("point select", "read-only", "read-write", "write-only", "insert", "read-write"):
            sql_memory.transactions(server, name, "Terrace", 16)
        connection.select_db("memory_terrace")
        run(connection, "SELECT SUM(LENGTH(pad)) FROM sbtest1")
        ordinary(server, 40)
    finally:
        end(server)


def main():
    for work in (in_memory, on_tiers):
        directory = os.path.join(os.path.abspath(sys.argv[1]), work.__name__)
        os.makedirs(directory)
        print(work.__name__, file=sys.stderr)
        work(directory)


if __name__ == "__main__":
    main()
