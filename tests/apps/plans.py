"""EXPLAIN of the demo's queries of flights, for InnoDB and Terrace on the same data.

    plans.py --port N

Exit code 1: a plan has another order of tables, access or key."""

import argparse
import os
import sys

import pymysql

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "demo"))

from demo import QUESTIONS, TABLES, load  # noqa: E402

MORE = [
    ("One day of one airline", "SELECT COUNT(*) FROM flights WHERE carrier = 'UA' AND year = 2013 AND month = 3 AND day = 7"),
    ("A month of a route", "SELECT * FROM flights WHERE origin = 'JFK' AND dest = 'LAX' AND year = 2013 AND month = 5 ORDER BY id LIMIT 10"),
    ("Either of two planes", "SELECT SUM(distance) FROM flights WHERE tailnum IN ('N14228', 'N24211')"),
    ("A plane or an airline", "SELECT COUNT(*) FROM flights WHERE tailnum = 'N14228' OR carrier = 'OO'"),
    ("A range of ids", "SELECT SUM(distance) FROM flights WHERE id BETWEEN 1000 AND 5000"),
    ("The last days", "SELECT day, COUNT(*) FROM flights WHERE year = 2013 AND month = 12 AND day > 28 GROUP BY day"),
    ("Carriers", "SELECT DISTINCT carrier FROM flights"),
    ("First and last", "SELECT origin, MIN(dest), MAX(dest) FROM flights GROUP BY origin"),
    ("Planes without flights", "SELECT COUNT(*) FROM planes p WHERE NOT EXISTS (SELECT 1 FROM flights f WHERE f.tailnum = p.tailnum)"),
    ("Planes of a maker", "SELECT COUNT(*) FROM planes p JOIN flights f ON f.tailnum = p.tailnum WHERE p.manufacturer = 'CESSNA'"),
    ("By weather", "SELECT COUNT(*) FROM weather w JOIN flights f ON f.origin = w.origin AND f.time_hour = w.time_hour WHERE w.wind_speed > 30"),
]


def explained(connection, database, sql):
    connection.select_db(database)
    cursor = connection.cursor()
    cursor.execute("EXPLAIN " + sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    connection = pymysql.connect(host="127.0.0.1", port=options.port, user="root", charset="utf8mb4", autocommit=True)
    cursor = connection.cursor()
    cursor.execute("CREATE DATABASE IF NOT EXISTS plans_innodb")
    cursor.execute("DROP DATABASE IF EXISTS plans_terrace")
    cursor.execute("CREATE DATABASE plans_terrace")
    for name in TABLES:
        load(connection, "plans_innodb", "InnoDB", name)
        cursor.execute(f"CREATE TABLE plans_terrace.{name} LIKE plans_innodb.{name}")
        cursor.execute(f"ALTER TABLE plans_terrace.{name} ENGINE=Terrace")
        cursor.execute(f"INSERT INTO plans_terrace.{name} SELECT * FROM plans_innodb.{name}")
        cursor.execute(f"ANALYZE TABLE plans_innodb.{name}, plans_terrace.{name}")
        cursor.fetchall()
    other = 0
    for title, sql in QUESTIONS + MORE:
        plans = [explained(connection, database, sql) for database in ("plans_innodb", "plans_terrace")]
        shapes = [[(line["table"], line["type"], line["key"]) for line in plan] for plan in plans]
        rows = [[line["rows"] for line in plan] for plan in plans]
        print(f"{title}: {'same' if shapes[0] == shapes[1] else 'OTHER'} plan; rows {rows[0]} and {rows[1]}")
        if shapes[0] != shapes[1]:
            other += 1
            for plan in plans:
                print("   ", *((line["table"], line["type"], line["key"], line["rows"], line["Extra"]) for line in plan))
    print(f"{len(QUESTIONS + MORE)} questions, {other} other plans")
    sys.exit(1 if other else 0)


if __name__ == "__main__":
    main()
