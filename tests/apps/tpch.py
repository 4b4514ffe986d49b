"""TPC-H on InnoDB and Terrace in one server: the same answers, and the same plans.

    tpch.py --port N --csv DIR --module DIR [--part 20] --load        then, after a restart of the server:
    tpch.py --port N --csv DIR --module DIR [--plans FILE]

The data are those that `go-tpc tpch prepare --output-type csv` wrote, of each table a twentieth; the queries and tables are those in
go-tpc's source. The foreign keys' columns have indexes, so that the optimizer has something to choose from.

InnoDB gets exact statistics. An order has four lines on average, and if a sample finds a little less, InnoDB reports one line instead of
two (it truncates half of the average): with its own samples its plans of six queries change from ANALYZE to ANALYZE. Terrace samples as
it does by default.

Exit code 1: an answer or a plan (order of tables, access, key) is another one."""

import argparse
import os
import re
import sys
import tempfile
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
# The view of TPC-H's fifteenth query; go-tpc's query reads it, but go-tpc does not create it.
VIEW = """CREATE OR REPLACE VIEW revenue0 (supplier_no, total_revenue) AS
    SELECT l_suppkey, SUM(l_extendedprice * (1 - l_discount)) FROM lineitem
    WHERE l_shipdate >= '1997-07-01' AND l_shipdate < DATE_ADD('1997-07-01', INTERVAL 3 MONTH) GROUP BY l_suppkey"""
ENGINES = ("InnoDB", "Terrace")
# InnoDB's tables: ANALYZE reads all pages, and nothing else writes statistics.
EXACT = " STATS_PERSISTENT=1 STATS_AUTO_RECALC=0 STATS_SAMPLE_PAGES=65535"
# Then it writes that an index has one leaf, and a look-up in the primary key counts for as much as a scan. How many it read stands beside.
# In force once the tables are opened again, by a restarted server.
LEAVES = """UPDATE mysql.innodb_index_stats leaves JOIN mysql.innodb_index_stats seen USING (database_name, table_name, index_name)
    SET leaves.stat_value = seen.sample_size
    WHERE database_name = DATABASE() AND leaves.stat_name = 'n_leaf_pages' AND seen.stat_name = 'n_diff_pfx01'"""


def source(module):
    """Tables and queries of go-tpc: name to SQL."""
    ddl = open(os.path.join(module, "tpch", "ddl.go")).read()
    tables = {name: re.search(rf"CREATE TABLE IF NOT EXISTS {name} \(.*?\n\s*\)", ddl, re.S).group(0) for name in TABLES}
    text = open(os.path.join(module, "tpch", "query.go")).read()
    queries = {name: sql.replace("/*PLACEHOLDER*/", "").strip() for name, sql in re.findall(r"\b(q\d+)\s*=\s*`(.*?)`", text, re.S)}
    assert len(tables) == 8 and len(queries) == 22, (len(tables), len(queries))
    return tables, queries


def rows_of(path, part, name):
    """The file's lines, or one `part`-th of each table: the first customers, parts and suppliers, and every `part`-th order, with keys mapped
    to rows that are kept, so that each line still has its part, its supplier and an offer of theirs, and a third of the customers no order."""
    customers, parts, suppliers = (count // part for count in (150_000, 200_000, 10_000))
    first = {"customer": customers, "part": parts, "partsupp": parts, "supplier": suppliers}

    def offered(key, at):
        """The supplier of one of a part's four offers, as TPC-H numbers them."""
        return str((key + at * (suppliers // 4 + (key - 1) // suppliers)) % suppliers + 1)

    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            key = int(line[: line.index("|")])
            # These orders have four lines on average and a hair more, as the whole has: below four the server is told of half as many.
            if key > first.get(name, key) or name in ("orders", "lineitem") and (key // 32 + 13) % part:
                continue
            fields = line.split("|", 4)
            if part == 1:
                pass
            elif name == "partsupp":
                fields[1] = offered(key, number % 4)
            elif name == "orders":
                fields[1] = str(int(fields[1]) % customers)
            elif name == "lineitem":
                of = (int(fields[1]) - 1) % parts + 1
                fields[1:3] = str(of), offered(of, int(fields[3]) % 4)
            yield "|".join(fields)


def write_tables(options, directory):
    """The tables' files, as they are loaded."""
    for name in TABLES:
        with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
            out.writelines(rows_of(os.path.join(options.csv, f"tpch.{name}.csv"), options.part, name))


def connect(options, engine):
    return pymysql.connect(host="127.0.0.1", port=options.port, user="root", autocommit=True, local_infile=True, database=f"tpch_{engine.lower()}")


def load(options, tables, engine, directory):
    database = f"tpch_{engine.lower()}"
    with pymysql.connect(host="127.0.0.1", port=options.port, user="root") as connection:
        cursor = connection.cursor()
        cursor.execute(f"DROP DATABASE IF EXISTS {database}")
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET latin1")
    cursor, started, count = connect(options, engine).cursor(), time.monotonic(), 0
    for name in TABLES:
        create = re.sub(r"\n\s*\)$", ",\n" + ", ".join(INDEXES[name]) + ")" if name in INDEXES else "\n)", tables[name])
        cursor.execute(create + f" ENGINE={engine}" + EXACT * (engine == "InnoDB"))
        count += cursor.execute(f"LOAD DATA LOCAL INFILE '{os.path.join(directory, name)}' INTO TABLE {name} FIELDS TERMINATED BY '|'")
    for name in TABLES:
        cursor.execute(f"ANALYZE TABLE {name}")
        cursor.fetchall()
    if engine == "InnoDB":
        cursor.execute(LEAVES)
    cursor.execute(VIEW)
    print(f"{engine}: {count} rows loaded in {time.monotonic() - started:.0f} s", flush=True)


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
    parser.add_argument("--part", type=int, default=20)
    parser.add_argument("--load", action="store_true", help="only load the tables")
    parser.add_argument("--explain", action="store_true", help="only the plans")
    parser.add_argument("--plans", help="a file for the plans that differ")
    options = parser.parse_args()
    tables, queries = source(options.module)
    if options.load:
        with tempfile.TemporaryDirectory(dir=options.csv) as directory:
            write_tables(options, directory)
            for engine in ENGINES:
                load(options, tables, engine, directory)
        return
    connections = [connect(options, engine) for engine in ENGINES]
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
    sys.exit(1 if wrong or differing else 0)


if __name__ == "__main__":
    main()
