"""TPC-H on InnoDB and Terrace in one server: the same answers, and their plans side by side.

    tpch.py --port N --csv DIR --module DIR [--part 10] [--plans FILE]

The data are those that `go-tpc tpch prepare --output-type csv` wrote, of orders and their lines every tenth; the queries and tables are
those in go-tpc's source. The foreign keys' columns have indexes, so that the optimizer has something to choose from."""

import argparse
import os
import re
import sys
import time

import pymysql

TABLES = ["nation", "region", "part", "supplier", "partsupp", "customer", "orders", "lineitem"]
INDEXES = {
    "supplier": ["KEY (S_NATIONKEY)"],
    "partsupp": ["KEY (PS_SUPPKEY)"],
    "customer": ["KEY (C_NATIONKEY)"],
    "orders": ["KEY (O_CUSTKEY)", "KEY (O_ORDERDATE)"],
    "lineitem": ["KEY (L_PARTKEY, L_SUPPKEY)", "KEY (L_SUPPKEY)", "KEY (L_SHIPDATE)"],
}
# Of the fifteenth query, as TPC-H has it; go-tpc asks for it and does not make it.
VIEW = """CREATE OR REPLACE VIEW revenue0 (supplier_no, total_revenue) AS
    SELECT l_suppkey, SUM(l_extendedprice * (1 - l_discount)) FROM lineitem
    WHERE l_shipdate >= '1997-07-01' AND l_shipdate < DATE_ADD('1997-07-01', INTERVAL 3 MONTH) GROUP BY l_suppkey"""
ENGINES = ("InnoDB", "Terrace")


def source(module):
    """Tables and queries of go-tpc: name to SQL."""
    ddl = open(os.path.join(module, "tpch", "ddl.go")).read()
    tables = {name: re.search(rf"CREATE TABLE IF NOT EXISTS {name} \(.*?\n\s*\)", ddl, re.S).group(0) for name in TABLES}
    text = open(os.path.join(module, "tpch", "query.go")).read()
    queries = {name: sql.replace("/*PLACEHOLDER*/", "").strip() for name, sql in re.findall(r"\b(q\d+)\s*=\s*`(.*?)`", text, re.S)}
    assert len(tables) == 8 and len(queries) == 22, (len(tables), len(queries))
    return tables, queries


def rows_of(path, part, name):
    """The file's lines: of orders and lines those of every `part`-th order, of the others all."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if part == 1 or name not in ("orders", "lineitem") or int(line.split("|", 1)[0]) // 32 % part == 0:
                yield line


def load(options, tables, engine):
    connection = pymysql.connect(host="127.0.0.1", port=options.port, user="root", autocommit=True, local_infile=True)
    cursor = connection.cursor()
    database = f"tpch_{engine.lower()}"
    if options.loaded:
        connection.select_db(database)
        return connection
    cursor.execute(f"DROP DATABASE IF EXISTS {database}")
    cursor.execute(f"CREATE DATABASE {database} CHARACTER SET latin1")
    connection.select_db(database)
    started, count = time.monotonic(), 0
    for name in TABLES:
        create = re.sub(r"\n\s*\)$", ",\n" + ", ".join(INDEXES[name]) + ")" if name in INDEXES else "\n)", tables[name])
        cursor.execute(create + f" ENGINE={engine}")
        pipe = os.path.join(options.csv, f"part-{os.getpid()}.csv")
        with open(pipe, "w", encoding="utf-8") as out:
            out.writelines(rows_of(os.path.join(options.csv, f"tpch.{name}.csv"), options.part, name))
        count += cursor.execute(f"LOAD DATA LOCAL INFILE '{pipe}' INTO TABLE {name} FIELDS TERMINATED BY '|'")
        os.remove(pipe)
    for name in TABLES:
        cursor.execute(f"ANALYZE TABLE {name}")
        cursor.fetchall()
    cursor.execute(VIEW)
    print(f"{engine}: {count} rows loaded in {time.monotonic() - started:.0f} s", flush=True)
    return connection


def run(cursor, sql):
    """The rows of the one statement of a query that gives some: q15 makes a view and drops it."""
    rows = []
    for statement in filter(None, (s.strip() for s in sql.split(";"))):
        cursor.execute(statement)
        rows = list(cursor.fetchall()) or rows
    return rows


def plan(cursor, sql):
    """EXPLAIN's lines, without the engine's numbers: (table, type, key, rows)."""
    lines = []
    for statement in filter(None, (s.strip() for s in sql.split(";"))):
        if re.match(r"(create|drop)\b", statement, re.I):
            cursor.execute(statement)
        else:
            cursor.execute("EXPLAIN " + statement)
            names = [column[0] for column in cursor.description]
            for row in cursor.fetchall():
                row = dict(zip(names, row))
                lines.append((row["table"], row["type"], row["key"], row["rows"], row["Extra"]))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--csv", required=True)
    parser.add_argument("--module", required=True)
    parser.add_argument("--part", type=int, default=10)
    parser.add_argument("--loaded", action="store_true", help="the tables are there")
    parser.add_argument("--explain", action="store_true", help="only the plans")
    parser.add_argument("--plans", help="a file for the plans that differ")
    options = parser.parse_args()
    tables, queries = source(options.module)
    connections = [load(options, tables, engine) for engine in ENGINES]
    wrong, differing, spent = [], [], [0.0, 0.0]
    out = open(options.plans, "w") if options.plans else sys.stdout
    for name in sorted(queries, key=lambda q: int(q[1:])):
        answers, plans, took = [], [], []
        for at, connection in enumerate(connections):
            cursor = connection.cursor()
            plans.append(plan(cursor, queries[name]))
            if options.explain:
                answers.append([])
                took.append(0)
                continue
            started = time.monotonic()
            answers.append(run(cursor, queries[name]))
            took.append(time.monotonic() - started)
            spent[at] += took[at]
        if answers[0] != answers[1]:
            wrong.append(name)
        same = [line[:3] for line in plans[0]] == [line[:3] for line in plans[1]]
        if not same:
            differing.append(name)
        print(f"{name}: {len(answers[0])} rows, {'same' if answers[0] == answers[1] else 'DIFFERENT'} answer, {'same' if same else 'other'} plan, {took[0]:.2f} s and {took[1]:.2f} s", flush=True)
        if not same:
            for engine, lines in zip(ENGINES, plans):
                print(f"{name} {engine}", *lines, sep="\n    ", file=out, flush=True)
    print(f"22 queries, in {spent[0]:.1f} s ({ENGINES[0]}) and {spent[1]:.1f} s ({ENGINES[1]}); other plans: {', '.join(differing) or 'none'}; wrong: {', '.join(wrong) or 'none'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
