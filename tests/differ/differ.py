"""Random SQL against two engines in one server: the same statements, the same answers.

    differ.py --port N [--seconds S] [--seed FIRST] [--statements N] [--engines InnoDB,Terrace] [--out DIR] [--all]

Each seed is a scenario: a few random tables and some dozens of statements. Rows, error codes and texts, affected-row counts
and warnings are compared. A difference is shrunk and printed; without --all the first one ends the run. Exit code 1: differences.
"""

import argparse
import os
import random
import sys
import time

import pymysql

from compare import Died, Pair, TimedOut
from grammar import Grammar
from shrink import shrink
from statement import of


class Found:
    def __init__(self, seed, difference, statements):
        self.seed, self.difference, self.statements = seed, difference, statements

    def text(self):
        lines = [f"seed {self.seed}: {self.difference.text()}", "by:"]
        return "\n".join(lines + [statement.text() + ";" for statement in self.statements])


def closing(grammar):
    """At the end every table is read whole and through each key."""
    yield of("transaction", "COMMIT")
    for table in grammar.tables.values():
        yield from whole(table)


def whole(table):
    yield of("select", f"SELECT * FROM {table.name}")
    for key in table.keys:
        columns = ", ".join(column for column, _, _ in key.parts)
        yield of("select", f"SELECT {columns} FROM {table.name} FORCE INDEX ({key.name})")
    yield of("check", f"CHECK TABLE {table.name} EXTENDED")


def scenario(pair, seed, statements):
    """Runs one; what differed, as (difference, statements so far), or None."""
    rng = random.Random(seed)
    grammar = Grammar(rng)
    pair.fresh()
    done = []

    def run(statement):
        done.append(statement)
        difference, succeeded = pair.compare(statement)
        if succeeded and hasattr(statement, "done"):
            statement.done()
        if not succeeded or statement.text().startswith("ROLLBACK"):
            # InnoDB 10.11 loses rows of temporary tables when a statement that moved them is rolled back.
            grammar.forget_temporary()
        return difference

    try:
        for statement in grammar.opening():
            if difference := run(statement):
                return difference, done
        for _ in range(statements):
            statement = grammar.statement()
            if difference := run(statement):
                return difference, done
            if statement.text().startswith("ROLLBACK") or rng.random() < 0.03:
                for statement in whole(rng.choice(list(grammar.tables.values()))) if grammar.tables else ():
                    if difference := run(statement):
                        return difference, done
        for statement in closing(grammar):
            if difference := run(statement):
                return difference, done
    except TimedOut:
        return None
    except Died as died:
        raise Died(died.engine, f"{died}, after:\n" + "\n".join(s.text() + ";" for s in done), seed) from died
    return None


def search(pair, first, seconds, statements, every=False, report=print):
    """Runs scenarios for `seconds`. Returns how many ran and the differences found; one difference of each signature is shrunk."""
    until, seed, found, seen = time.monotonic() + seconds, first, [], {}
    while time.monotonic() < until:
        outcome = scenario(pair, seed, statements)
        if outcome:
            difference, done = outcome
            signature = difference.signature
            seen[signature] = seen.get(signature, 0) + 1
            if seen[signature] <= 2:
                short = shrink(pair, done, signature)
                last = pair.first_difference(short)
                found.append(Found(seed, last[1] if last else difference, short))
                report(found[-1].text() + "\n")
            else:
                report(f"seed {seed}: again {signature}")
            if not every:
                break
        seed += 1
    return seed - first, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TERRACE_SEED", "1")))
    parser.add_argument("--statements", type=int, default=60)
    parser.add_argument("--engines", default="InnoDB,Terrace")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()

    def connect(**more):
        return pymysql.connect(host="127.0.0.1", port=options.port, user="root", charset="utf8mb4", autocommit=True, **more)

    pair = Pair(connect, tuple(options.engines.split(",")))
    started = time.monotonic()
    ran, found = search(pair, options.seed, options.seconds, options.statements, options.all, lambda text: print(text, flush=True))
    print(f"{ran} scenarios from seed {options.seed} in {time.monotonic() - started:.0f} s: {len(found)} differences")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
