"""sql-foreign-keys: checks and cascades of foreign keys, Terrace and InnoDB in the same server, in memory; one session, the engines take turns.

Children with two parents are inserted row by row in one transaction, and loaded in bulk (INSERT … SELECT) in primary key order; parents without children and
with ten children each are deleted one by one, then many with one statement; one parent with 10,000 children is deleted; a parent's key is updated, which
ten children follow. Environment: RUNS, PARENTS (2000), MEMORY in MiB (256).
"""

import sys
import time

import report
from sql_locks import ENGINES, Session
from tiers import MIB, end, place, server_in, setting

RUNS, PARENTS, MEMORY = setting("RUNS", 5), setting("PARENTS", 2000), setting("MEMORY", 256)
CHILDREN, MANY = 10, 10000


def one_round(session, engine):
    """Rows of the statement's own table a second, and processor seconds, of each step."""
    steps = {}
    at = {"p": "p_" + engine, "q": "q_" + engine, "c": "c_" + engine}

    def step(name, rows, statements, undo=True):
        session.run("BEGIN")
        cpu = seconds = 0
        for statement in statements:
            took, used = session.timed(statement.format(**at))
            seconds, cpu = seconds + took, cpu + used
        session.run("ROLLBACK" if undo else "COMMIT")
        steps[name] = (rows / seconds, cpu)

    session.run("SET foreign_key_checks = 0")
    for table in at.values():
        session.run(f"DROP TABLE IF EXISTS {table}")
    session.run("SET foreign_key_checks = 1")
    for table in ("p", "q"):
        session.run(f"CREATE TABLE {at[table]} (id INT PRIMARY KEY, v VARCHAR(60)) ENGINE={engine}")
        session.run(f"INSERT INTO {at[table]} SELECT seq, REPEAT('x', 50) FROM seq_1_to_{2 * PARENTS}")
    session.run(
        f"CREATE TABLE {at['c']} (id INT PRIMARY KEY, p INT, q INT, v VARCHAR(60), FOREIGN KEY (p) REFERENCES {at['p']} (id) ON DELETE CASCADE ON UPDATE CASCADE,"
        f" FOREIGN KEY (q) REFERENCES {at['q']} (id)) ENGINE={engine}"
    )
    rows = CHILDREN * PARENTS
    step("INSERT of children with two parents, one by one", PARENTS, [f"INSERT INTO {{c}} VALUES ({n}, {n * 7 % PARENTS + 1}, {n * 11 % PARENTS + 1}, 'v')" for n in range(PARENTS)])
    step("INSERT … SELECT of children with two parents", rows, [f"INSERT INTO {{c}} SELECT seq, seq * 7 % {PARENTS} + 1, seq * 11 % {PARENTS} + 1, REPEAT('v', 30) FROM seq_1_to_{rows}"], False)
    step("DELETE of parents without children, one by one", PARENTS, [f"DELETE FROM {{p}} WHERE id = {PARENTS + n}" for n in range(1, PARENTS + 1)])
    step("DELETE of parents without children, one statement", PARENTS, [f"DELETE FROM {{p}} WHERE id > {PARENTS}"])
    step("DELETE of parents with 10 children, one by one", PARENTS // 4, [f"DELETE FROM {{p}} WHERE id = {n}" for n in range(1, PARENTS // 4 + 1)])
    step("DELETE of parents with 10 children, one statement", PARENTS // 2, [f"DELETE FROM {{p}} WHERE id <= {PARENTS // 2}"])
    step("UPDATE of a parent's key that 10 children follow", PARENTS // 4, [f"UPDATE {{p}} SET id = {100000 + n} WHERE id = {n}" for n in range(1, PARENTS // 4 + 1)])
    session.run(f"INSERT INTO {at['c']} SELECT seq, {PARENTS + 1}, 1, REPEAT('v', 30) FROM seq_{rows + 1}_to_{rows + MANY}")
    step("DELETE of a parent with 10,000 children", 1, [f"DELETE FROM {{p}} WHERE id = {PARENTS + 1}"])
    return steps


def main():
    out = sys.argv[1]
    directory = place(out, "sql-foreign-keys")
    server = server_in(directory, [f"--terrace-memory={MEMORY * MIB}", f"--innodb-buffer-pool-size={MEMORY * MIB}", "--innodb-flush-log-at-trx-commit=1",
                                   "--innodb-log-file-size=268435456", "--terrace-log=268435456"])
    server.start()
    rounds = {engine: [] for engine in ENGINES}
    try:
        session = Session(server)
        session.run("CREATE DATABASE IF NOT EXISTS d")
        session.run("USE d")
        started = time.monotonic()
        for _ in range(RUNS):
            for engine in ENGINES:
                rounds[engine].append(one_round(session, engine))
        print(f"{RUNS} rounds in {time.monotonic() - started:.0f} s", file=sys.stderr)
    finally:
        end(server)
    figures, ratios = {}, {}
    for name in rounds["Terrace"][0]:
        figures[name] = {engine: [{"rate": each[name][0], "cpu": each[name][1]} for each in rounds[engine]] for engine in ENGINES}
        ratios[name] = dict(zip(("rate", "cpu"), report.row_with_cpu(name, figures[name], 64)))
    report.write(out, "sql-foreign-keys", ratios, figures,
                 ["rate: rows a second of the table that the statement names; cpu: the server's processor seconds of the step", f"{MEMORY} MiB of memory for each engine, {RUNS} rounds, medians"])


if __name__ == "__main__":
    main()
