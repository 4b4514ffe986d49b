"""Plans over data with skew, for InnoDB and Terrace on the same rows: after the load, after ANALYZE, and after many changes.

    skew.py --port N [--rows 200000]

Printed: each plan that has another order of tables, access, key or way of sorting, and estimates that differ widely. Both engines sample a few pages of
each key, so plans of about the same cost may differ. Exit code 1: more than a sixth differ right after both engines took their samples.
"""

import argparse
import random
import re
import sys

import pymysql

STATES = ("loaded", "analyzed", "changed", "analyzed again")
QUESTIONS = [
    # Equality, from common to rare.
    "SELECT COUNT(*) FROM f WHERE kind = 0", "SELECT COUNT(*) FROM f WHERE kind = 7", "SELECT * FROM f WHERE kind = 0", "SELECT * FROM f WHERE kind = 7",
    "SELECT * FROM f WHERE kind = 59", "SELECT * FROM f WHERE who = 5", "SELECT * FROM f WHERE who = 4000", "SELECT * FROM f WHERE who = 5 AND kind = 0",
    "SELECT * FROM f WHERE who = 5 AND kind = 7", "SELECT * FROM f WHERE code = 'c00001'", "SELECT * FROM f WHERE code LIKE 'c0000%'", "SELECT * FROM f WHERE code LIKE 'c%'",
    "SELECT * FROM f WHERE maybe IS NULL", "SELECT * FROM f WHERE maybe IS NOT NULL", "SELECT * FROM f WHERE maybe = 3",
    # Ranges.
    "SELECT * FROM f WHERE at BETWEEN '2024-03-01' AND '2024-03-02'", "SELECT * FROM f WHERE at BETWEEN '2024-03-01' AND '2024-06-01'", "SELECT * FROM f WHERE at > '2024-01-02'",
    "SELECT * FROM f WHERE id BETWEEN 1000 AND 3000", "SELECT * FROM f WHERE id > 150000", "SELECT * FROM f WHERE who IN (1, 2, 3, 4000, 4001)", "SELECT * FROM f WHERE who < 3",
    "SELECT * FROM f WHERE who > 4990", "SELECT SUM(amount) FROM f WHERE who BETWEEN 100 AND 200", "SELECT COUNT(*) FROM f WHERE who BETWEEN 100 AND 2000",
    "SELECT * FROM f WHERE who BETWEEN 100 AND 200 AND at > '2024-11-01'", "SELECT * FROM f WHERE kind IN (3, 4) AND at BETWEEN '2024-03-01' AND '2024-03-03'",
    "SELECT * FROM f WHERE kind = 0 AND at BETWEEN '2024-03-01' AND '2024-03-02'", "SELECT * FROM f WHERE kind = 30 AND at > '2024-03-01'",
    # Merges.
    "SELECT * FROM f WHERE who = 4000 OR code = 'c00001'", "SELECT * FROM f WHERE who = 5 OR maybe = 3", "SELECT * FROM f WHERE who < 2 OR at > '2024-12-30'",
    "SELECT * FROM f WHERE maybe = 3 AND who = 1", "SELECT id FROM f WHERE maybe = 3 AND kind = 2", "SELECT COUNT(*) FROM f WHERE who = 1 AND maybe = 0", "SELECT * FROM f WHERE kind = 45 OR who = 4900",
    "SELECT COUNT(*) FROM f WHERE kind = 40 OR kind = 41 OR maybe = 5", "SELECT * FROM f WHERE (who = 3 OR code = 'c00003') AND kind < 5",
    # Order and limit.
    "SELECT * FROM f ORDER BY at LIMIT 10", "SELECT * FROM f ORDER BY at DESC LIMIT 10", "SELECT * FROM f WHERE kind = 0 ORDER BY at LIMIT 10", "SELECT * FROM f WHERE kind = 7 ORDER BY at LIMIT 10",
    "SELECT * FROM f WHERE kind = 59 ORDER BY at LIMIT 10", "SELECT * FROM f WHERE kind = 0 ORDER BY id LIMIT 10", "SELECT * FROM f WHERE kind = 59 ORDER BY id DESC LIMIT 10",
    "SELECT * FROM f WHERE who = 1 ORDER BY at DESC LIMIT 5", "SELECT * FROM f WHERE who = 4000 ORDER BY at DESC LIMIT 5", "SELECT * FROM f WHERE who BETWEEN 10 AND 50 ORDER BY at LIMIT 20",
    "SELECT * FROM f ORDER BY who, at LIMIT 10", "SELECT * FROM f ORDER BY who LIMIT 1000", "SELECT * FROM f ORDER BY who LIMIT 100000", "SELECT * FROM f WHERE amount > 990 ORDER BY at LIMIT 10",
    "SELECT * FROM f WHERE code LIKE 'c0%' ORDER BY id LIMIT 3", "SELECT id FROM f ORDER BY code LIMIT 50", "SELECT * FROM f WHERE maybe IS NULL ORDER BY id LIMIT 10",
    # Groups, loose scans.
    "SELECT kind, COUNT(*) FROM f GROUP BY kind", "SELECT DISTINCT kind FROM f", "SELECT DISTINCT who FROM f", "SELECT kind, MIN(at) FROM f GROUP BY kind", "SELECT kind, MAX(at) FROM f GROUP BY kind",
    "SELECT who, MIN(at), MAX(at) FROM f GROUP BY who", "SELECT kind, MIN(at) FROM f WHERE at > '2024-06-01' GROUP BY kind", "SELECT who, MAX(at) FROM f WHERE who > 4000 GROUP BY who",
    "SELECT COUNT(DISTINCT kind) FROM f", "SELECT COUNT(DISTINCT who) FROM f", "SELECT MIN(at), MAX(at) FROM f", "SELECT MAX(at) FROM f WHERE kind = 7", "SELECT DISTINCT kind, at FROM f WHERE kind < 3",
    "SELECT code, COUNT(*) FROM f GROUP BY code ORDER BY 2 DESC LIMIT 5", "SELECT COUNT(*) FROM f", "SELECT COUNT(*) FROM f WHERE amount > 10",
    # Joins.
    "SELECT * FROM d JOIN f ON f.who = d.id WHERE d.name = 'n17'", "SELECT * FROM d JOIN f ON f.who = d.id WHERE d.class = 3", "SELECT COUNT(*) FROM d JOIN f ON f.who = d.id WHERE f.kind = 59",
    "SELECT COUNT(*) FROM d JOIN f ON f.who = d.id WHERE f.kind = 0 AND d.class = 3", "SELECT d.class, COUNT(*) FROM d JOIN f ON f.who = d.id GROUP BY d.class",
    "SELECT * FROM d WHERE EXISTS (SELECT 1 FROM f WHERE f.who = d.id AND f.kind = 59)", "SELECT * FROM d WHERE id IN (SELECT who FROM f WHERE at > '2024-12-30')",
    "SELECT * FROM d WHERE id NOT IN (SELECT who FROM f WHERE kind = 0)", "SELECT * FROM d LEFT JOIN f ON f.who = d.id AND f.kind = 59 WHERE d.class = 4",
    "SELECT * FROM d JOIN f ON f.who = d.id WHERE d.class = 3 ORDER BY f.at LIMIT 10", "SELECT * FROM f JOIN d ON d.id = f.who ORDER BY f.at DESC LIMIT 20",
    "SELECT * FROM f a JOIN f b ON a.code = b.code WHERE a.who = 4000", "SELECT COUNT(*) FROM f a JOIN f b ON a.who = b.who AND a.kind = b.kind WHERE a.maybe = 5", "SELECT * FROM d a JOIN d b ON a.class = b.class WHERE a.id = 5",
    "UPDATE f SET amount = 1 WHERE who = 4000", "UPDATE f SET amount = 1 WHERE kind = 0", "DELETE FROM f WHERE at < '2024-01-02'", "DELETE FROM f WHERE kind = 59 ORDER BY id LIMIT 5",
]
LINE = ("table", "type", "key", "key_len", "ref")
# What decides how the rows come, without what says how they are looked at.
WAYS = ("filesort", "temporary", "group-by", "intersect", "union", "Rowid-ordered", "Key-ordered", "FirstMatch", "LooseScan", "Materialize", "join buffer", "Using index")


def rows_of(count):
    """Few values are common and most are rare; where they lie follows the time."""
    rng = random.Random(7)
    for at in range(1, count + 1):
        kind = min(int(rng.paretovariate(0.8)) - 1, 59)
        who = min(int(rng.paretovariate(0.35)), 5000)
        day, maybe = at * 365 // count, rng.choice([None] * 30 + [0, 0, 0, 1, 1, 2, 3, 5])
        code = f"c{min(int(rng.paretovariate(0.5)), 99999):05d}"
        yield f"({at}, {kind}, {who}, '2024-01-01' + INTERVAL {day} DAY + INTERVAL {rng.randrange(86400)} SECOND, {rng.randrange(1000)}, '{code}', {'NULL' if maybe is None else maybe}, REPEAT('x', {rng.randrange(60)}))"


def make(cursor, database, engine, count):
    cursor.execute(f"DROP DATABASE IF EXISTS {database}")
    cursor.execute(f"CREATE DATABASE {database}")
    cursor.execute(f"USE {database}")
    cursor.execute(f"CREATE TABLE d (id INT PRIMARY KEY, name VARCHAR(20), class INT, KEY (name), KEY (class)) ENGINE={engine}")
    cursor.execute(f"""CREATE TABLE f (id INT PRIMARY KEY, kind INT NOT NULL, who INT NOT NULL, at DATETIME NOT NULL, amount INT NOT NULL, code VARCHAR(12) NOT NULL, maybe INT, filler VARCHAR(60),
        KEY k_kind (kind, at), KEY k_who (who, at), KEY k_at (at), KEY k_code (code), KEY k_maybe (maybe), KEY k_both (kind, who)) ENGINE={engine}""")
    cursor.execute("INSERT INTO d SELECT seq, CONCAT('n', seq), LEAST(FLOOR(10000 / seq), 40) FROM seq_1_to_5000")
    batch = []
    for row in rows_of(count):
        batch.append(row)
        if len(batch) == 5000:
            cursor.execute("INSERT INTO f VALUES " + ", ".join(batch))
            batch.clear()
    if batch:
        cursor.execute("INSERT INTO f VALUES " + ", ".join(batch))


def change(cursor, database, count):
    """A third goes, a third moves, and as much comes with other values."""
    cursor.execute(f"USE {database}")
    for sql in ("DELETE FROM f WHERE id % 3 = 0", "UPDATE f SET who = 4000 + who % 1000, at = at + INTERVAL 30 DAY WHERE id % 3 = 1",
                f"INSERT INTO f SELECT {count} + seq, seq % 60, seq % 50, '2025-02-01' + INTERVAL seq SECOND, seq % 1000, CONCAT('z', seq % 7), seq % 3, '' FROM seq_1_to_{count // 3}",
                "DELETE FROM d WHERE id > 2500"):
        cursor.execute(sql)


def plan(cursor, database, sql):
    cursor.execute(f"USE {database}")
    cursor.execute("EXPLAIN " + sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def shape(lines):
    return [tuple(re.sub(r"skew_\w+?\.", "", line[name] or "") for name in LINE) + tuple(way for way in WAYS if way in (line["Extra"] or "")) for line in lines]


def row_count(line):
    """A filter by row ids shows what it leaves behind the number: "3482 (14%)"."""
    return int(str(line["rows"] or 1).split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rows", type=int, default=200000)
    options = parser.parse_args()
    cursor = pymysql.connect(host="127.0.0.1", port=options.port, user="root", charset="utf8mb4", autocommit=True).cursor()
    engines = {"skew_innodb": "InnoDB", "skew_terrace": "Terrace"}
    for database, engine in engines.items():
        make(cursor, database, engine, options.rows)
    bad = 0
    for state in STATES:
        for database in engines if state == "changed" else ():
            change(cursor, database, options.rows)
        for database in engines if state.startswith("analyzed") else ():
            cursor.execute(f"ANALYZE TABLE {database}.d, {database}.f")
            cursor.fetchall()
        other, far = 0, 0
        for sql in QUESTIONS:
            first, second = (plan(cursor, database, sql) for database in engines)
            if shape(first) != shape(second):
                other += 1
                print(f"{state}: OTHER plan of {sql}")
                for lines in (first, second):
                    print("   ", *(tuple(line[name] for name in (*LINE, "rows", "Extra")) for line in lines))
            else:
                rows = [(row_count(one), row_count(two)) for one, two in zip(first, second)]
                if any(max(pair) > 2 * min(pair) + 10 for pair in rows):
                    far += 1
                    print(f"{state}: rows {rows} of {sql}")
        print(f"{state}: {len(QUESTIONS)} questions, {other} other plans, {far} with estimates more than twice apart", flush=True)
        bad += state.startswith("analyzed") and other > len(QUESTIONS) // 6
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
