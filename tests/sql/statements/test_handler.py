"""HANDLER reads an index in both directions, changes direction, and continues after a read that found no row: it returns what it returns with InnoDB."""

import os
import random

import pymysql
import pytest

TABLES = {
    "u": ("id INT PRIMARY KEY, a INT, KEY a (a)", "(1,10),(3,30),(5,50),(7,50)"),
    "e": ("id INT PRIMARY KEY, a INT, KEY a (a)", None),
    "n": ("id INT, a INT, KEY a (a)", "(1,10),(3,30),(5,50),(7,NULL)"),
    "d": ("id INT, a INT, PRIMARY KEY (id DESC), KEY a (a DESC)", "(1,10),(3,30),(5,50),(7,50)"),
    "t": ("id VARCHAR(9) PRIMARY KEY, a VARCHAR(9), KEY a (a, id)", "('a','1'),('B','3'),('c','5'),('D','5')"),
}
KEYS = {"t": ["'0'", "'1'", "'2'", "'5'", "'A'", "'bb'", "'d'", "'z'"]}
NUMBERS = ["0", "1", "3", "4", "5", "7", "9", "10", "30", "50", "60"]


@pytest.fixture
def tables(db, run, engine):
    for name, (columns, rows) in TABLES.items():
        for one, other in (("InnoDB", "theirs"), (engine, "ours")):
            run(db, f"CREATE TABLE {name}_{other} ({columns}) ENGINE={one}")
            if rows:
                run(db, f"INSERT INTO {name}_{other} VALUES {rows}")
    return db


def told(connection, run, sql):
    try:
        return list(run(connection, sql))
    except pymysql.err.MySQLError as error:
        return error.args[0]


def both(connection, run, table, reads):
    """What InnoDB and the engine find at each of the reads."""
    found = []
    for name in (f"{table}_theirs", f"{table}_ours"):
        run(connection, f"HANDLER {name} OPEN")
        found.append([told(connection, run, f"HANDLER {name} READ {read}") for read in reads])
        run(connection, f"HANDLER {name} CLOSE")
    return found


@pytest.mark.parametrize(
    "table, reads, last",
    [
        ("u", ["`PRIMARY` LAST", "`PRIMARY` NEXT", "`PRIMARY` NEXT", "`PRIMARY` PREV"], [(7, 50)]),
        ("u", ["`PRIMARY` FIRST LIMIT 9", "`PRIMARY` PREV"], [(7, 50)]),
        ("u", ["`PRIMARY` FIRST", "`PRIMARY` PREV", "`PRIMARY` NEXT"], [(1, 10)]),
        ("u", ["`PRIMARY` = (4)", "`PRIMARY` NEXT"], [(5, 50)]),
        ("u", ["`PRIMARY` = (4)", "`PRIMARY` PREV"], [(3, 30)]),
        ("u", ["`PRIMARY` > (7)", "`PRIMARY` PREV"], [(7, 50)]),
        ("u", ["`PRIMARY` < (1)", "`PRIMARY` NEXT"], [(1, 10)]),
        ("u", ["a = (30) LIMIT 5", "a NEXT"], [(5, 50)]),
        ("u", ["a = (30) LIMIT 5", "a PREV"], [(3, 30)]),
        ("d", ["a >= (5)", "a PREV"], [(1, 10)]),
        ("e", ["a FIRST", "a NEXT", "a PREV"], []),
    ],
)
def test_a_handler_continues_after_a_read_that_found_no_row(tables, run, table, reads, last):
    theirs, ours = both(tables, run, table, reads)
    assert ours == theirs and ours[-1] == last


def test_random_reads_of_handlers_find_what_they_find_with_innodb(tables, run):
    seed = int(os.environ.get("TERRACE_SEED", random.randrange(1 << 30)))
    rng = random.Random(seed)
    for _ in range(int(os.environ.get("TERRACE_HANDLERS", 250))):
        table = rng.choice(list(TABLES))
        indexes = ["a"] if table == "n" else ["`PRIMARY`", "a"]
        index, reads = rng.choice(indexes), []
        for _ in range(rng.randint(2, 6)):
            index = index if rng.random() < 0.8 else rng.choice(indexes)
            way = rng.choice(["FIRST", "LAST", "NEXT", "NEXT", "PREV", "PREV", "=", ">", ">=", "<", "<="])
            key = f" ({rng.choice(KEYS.get(table, NUMBERS))})" if way[0] in "=<>" else ""
            reads.append(f"{index} {way}{key}{rng.choice(['', ' LIMIT 2', ' LIMIT 5'])}")
        theirs, ours = both(tables, run, table, reads)
        assert ours == theirs, f"seed {seed}: {table}: {reads}"
