"""sql-instructions: what a statement costs the server's process in instructions, Terrace, InnoDB and MEMORY in the same server.

One session under callgrind (part of valgrind), data in memory: the counts are those of the whole process in user mode, background
threads included (on a slow machine these weigh too much if EVENTS is small), and hardly differ from run to run, while processor time on a busy machine differs by tens of percents. System calls
and the costs of caches and locks are not in them: `sql-memory` measures those. A read of the MEMORY engine stands for what
every engine's read costs the SQL layer; the rest of an engine's count is its own.
With CACHES=1 a simulated processor counts what misses its first caches (32 KiB of instructions, 32 KiB of data) and the branches that it guesses wrong, beside
them: what instructions don't show, and as repeatable. It knows no second cache's prefetches and no huge pages.
Environment: EVENTS (transactions of each row, 2000), ROWS (of each table, 20000), ROUND (rows whose names contain one of these texts), CACHES.
"""

import os
import re
import shutil
import subprocess
import sys
import time

os.environ.setdefault("ROWS", "20000")
os.environ["MYROCKS"] = ""
import report  # noqa: E402
from sql_memory import STATEMENTS, TRANSACTIONS, is_wanted, prepare, sysbench  # noqa: E402
from conftest import Server, end, run  # noqa: E402

EVENTS = int(os.environ.get("EVENTS", "2000"))
# MEMORY has hash indexes and no transactions: single rows by their key, and scans, are what it has in common with the others.
FLOOR = {"point select", "full scan"}
MEMORY = 268435456
CACHES = os.environ.get("CACHES") == "1"
SIMULATED = ["--cache-sim=yes", "--branch-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=33554432,16,64"] if CACHES else []
MISSES = {"instructions": ["I1mr"], "data": ["D1mr", "D1mw"], "branches": ["Bcm", "Bim"]}


class Counted:
    """The server of `server`, stopped, once more under callgrind, which counts between `start` and `dump`."""

    def __init__(self, server, command, directory):
        self.out = os.path.join(server.directory, "callgrind")
        self.log = open(f"{self.out}.log", "w")
        # Where valgrind and its control meet, too.
        self.environment = os.environ | {"TMPDIR": os.path.join(server.directory, "tmp")}
        self.process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", "--instr-atstart=no", *SIMULATED, f"--callgrind-out-file={self.out}", *command],
            cwd=directory, stdout=self.log, stderr=self.log, env=self.environment)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"the server ended under callgrind; see {self.out}.log and {server.directory}/error.log")
            time.sleep(0.5)
            try:
                self.connection = server.connect()
                break
            except Exception:  # it does not listen yet
                continue
        else:
            sys.exit("the server did not answer within minutes under callgrind")
        self.dumps = 0

    def control(self, *arguments):
        subprocess.run(["callgrind_control", *arguments, str(self.process.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True,
                       timeout=120, env=self.environment)

    def count(self, work):
        """Instructions while `work` ran; `missed` has what missed, by MISSES."""
        self.control("-z")
        self.control("-i", "on")
        work()
        self.control("-i", "off")
        self.control("--dump=counted")
        self.dumps += 1
        part = f"{self.out}.{self.dumps}"
        for _ in range(300):  # it is written when a thread comes by
            if os.path.exists(part):
                break
            run(self.connection, "DO 0")
            time.sleep(0.1)
        with open(part, errors="replace") as text:
            found = dict(re.findall(r"^(events|totals): (.*)", text.read(), re.MULTILINE))
        os.remove(part)
        counts = dict(zip(found["events"].split(), map(int, found["totals"].split())))
        self.missed = {kind: sum(counts.get(name, 0) for name in names) for kind, names in MISSES.items()}
        return counts["Ir"]

    def end(self):
        try:
            run(self.connection, "SHUTDOWN")
            self.process.wait(timeout=300)
        finally:
            self.process.kill()
            self.process.wait()


def main():
    out = sys.argv[1]
    directory = os.path.join(os.path.abspath(out), "sql-instructions.data")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    files = {name: os.path.join(directory, name) for name in ("sorted", "random")}
    server = Server(directory, [f"--terrace-memory={MEMORY}", f"--innodb-buffer-pool-size={MEMORY}", f"--innodb-buffer-pool-size-max={MEMORY}",
                                "--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=268435456", "--terrace-log=268435456",
                                "--max-heap-table-size=1G", "--skip-log-bin",
                                # callgrind knows no io_uring; Terrace does without where it is refused
                                "--innodb-use-native-aio=0", "--performance-schema=0"])
    server.start()
    try:
        connection = server.connect()
        prepare(server, connection, files)
        pid = open(os.path.join(directory, "pid")).read().strip()
        with open(f"/proc/{pid}/cmdline") as line:
            command = line.read().split("\0")[:-1]
        command[0], place = os.readlink(f"/proc/{pid}/exe"), os.readlink(f"/proc/{pid}/cwd")
        connection.close()
        server.stop()
    except BaseException:
        end(server)
        raise
    figures, ratios, misses = {}, {}, {}

    def row(name, each, engines):
        counts, missed = {}, {}
        for engine in engines:
            counts[engine], of = each(engine), EVENTS if name in TRANSACTIONS else 1
            missed[engine] = {kind: count / of for kind, count in counted.missed.items()}
        ratios[name] = counts["Terrace"] / counts["InnoDB"]
        figures[name] = counts
        print(f"{name:26}{ratios[name]:6.2f} of InnoDB's   " + "   ".join(f"{engine} {count:,.0f}" for engine, count in counts.items()), flush=True)
        if CACHES:
            misses[name] = missed
            for kind in MISSES:
                print(f"    missed {kind:16}" + "   ".join(f"{engine} {missed[engine][kind]:,.0f}" for engine in engines), flush=True)

    # MEMORY's tables would be empty after a start: they are filled under callgrind, uncounted.
    counted = Counted(server, command, place)
    try:
        engines = ["Terrace", "InnoDB", "MEMORY"]
        if any(is_wanted(name) for name in FLOOR):
            run(counted.connection, "CREATE DATABASE memory_memory")
            sysbench(server, "MEMORY", "prepare", "oltp_point_select")
            run(counted.connection, "CREATE TABLE memory_memory.rows_ (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, "
                                    "pad VARCHAR(80) NOT NULL, KEY k (k)) ENGINE=MEMORY")
            run(counted.connection, f"LOAD DATA INFILE '{files['sorted']}' INTO TABLE memory_memory.rows_")

        def transactions(name, engine):
            def work(count):
                sysbench(server, engine, "run", *TRANSACTIONS[name], "--threads=1", "--time=0", f"--events={count}", "--rand-seed=1")
            # Reads all rows once; otherwise reading them from disk would count.
            for table in (1, 2):
                run(counted.connection, f"SELECT SUM(LENGTH(pad)) FROM memory_{engine.lower()}.sbtest{table} IGNORE INDEX (k_{table})")
                run(counted.connection, f"SELECT SUM(k) FROM memory_{engine.lower()}.sbtest{table} FORCE INDEX (k_{table})")
            work(max(EVENTS // 10, 1))
            return counted.count(lambda: work(EVENTS)) / EVENTS

        def statement(name, engine):
            before, sql = STATEMENTS[name]
            counted.connection.select_db(f"memory_{engine.lower()}")
            for again in (False, True):  # the first time everything is met for the first time
                for each in before:
                    run(counted.connection, each)
                if not again and not before:
                    run(counted.connection, sql.format(**files))
            return counted.count(lambda: run(counted.connection, sql.format(**files) if "{" in sql else sql))

        for names, each in ((TRANSACTIONS, transactions), (STATEMENTS, statement)):
            for name in filter(is_wanted, names):
                row(name, lambda engine, name=name, each=each: each(name, engine), engines if name in FLOOR else engines[:2])
    finally:
        counted.end()
    shutil.rmtree(directory)
    beyond = {name: (figures[name]["Terrace"] - figures[name]["MEMORY"]) / (figures[name]["InnoDB"] - figures[name]["MEMORY"])
              for name in FLOOR if name in figures}
    for name, ratio in beyond.items():
        print(f"{name}: what is beyond MEMORY's, {ratio:.2f} of InnoDB's")
    report.write(out, "sql-instructions", ratios, figures,
                 ["instructions of the whole server's process in user mode for one transaction or statement, counted by callgrind, one session",
                  "ratios: fewer is better"], beyond=beyond, misses=misses)


if __name__ == "__main__":
    main()
