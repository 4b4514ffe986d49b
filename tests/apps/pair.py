"""An application's use played twice on one server, in two databases: once on InnoDB as it is installed, once after every table was altered to Terrace."""

import re
import subprocess
import sys
import time

import pymysql


class Base:
    """A database of the pair."""

    def __init__(self, port, name, engine):
        self.port, self.name, self.engine = int(port), name, engine
        self.seconds, self.said = [], []
        connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root", charset="utf8mb4", autocommit=True)
        self.cursor = connection.cursor()
        # An application's tables say no engine, or InnoDB.
        self.ask("SET GLOBAL default_storage_engine = InnoDB")
        self.ask(f"DROP DATABASE IF EXISTS {name}")
        self.ask(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        self.ask(f"USE {name}")

    def ask(self, sql):
        self.cursor.execute(sql)
        return list(self.cursor.fetchall())

    def tables(self, engine):
        return [one for (one,) in self.ask(f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND ENGINE = '{engine}' ORDER BY 1")]

    def move(self):
        """Every table of InnoDB to the engine; nothing else is changed."""
        if self.engine == "InnoDB":
            return
        for one in self.tables("InnoDB"):
            self.ask(f"ALTER TABLE `{one}` ENGINE={self.engine}")
            warnings = self.ask("SHOW WARNINGS")
            assert not warnings, (one, warnings)

    def run(self, step, command, heard=lambda line: True, **more):
        """A step of the application: what it says, and how long it takes; `heard` tells of a line whether it is compared."""
        begin = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)
        self.seconds.append((step, time.monotonic() - begin))
        if done.returncode:
            sys.exit(f"{step} on {self.engine} failed:\n{done.stdout[-3000:]}")
        self.said.append((step, "\n".join(line for line in done.stdout.splitlines() if heard(line))))

    def dump(self, without):
        command = ["mariadb-dump", "--no-defaults", "-h127.0.0.1", f"-P{self.port}", "-uroot", "--skip-extended-insert", "--order-by-primary", "--skip-dump-date",
                   "--single-transaction", "--hex-blob", *(f"--ignore-table={self.name}.{one}" for one in without), self.name]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode("utf-8", "replace")


def compare(pair, masks, without):
    """Differences between both sides in the application's output and in the tables, except times and random values."""
    def plain(text, base):
        for pattern, instead in [(re.escape(base.name), "DATABASE"), (r"ENGINE=(InnoDB|Terrace)\b", "ENGINE=*"), *masks]:
            text = re.sub(pattern, instead, text, flags=re.MULTILINE)
        return text.splitlines()

    differ = []
    parts = [(step, (first, second)) for (step, first), (_, second) in zip(*(base.said for base in pair))]
    parts.append(("the tables", [base.dump(without) for base in pair]))
    for step, texts in parts:
        ours, theirs = ([line for line in plain(text, base)] for text, base in zip(texts, pair))
        if sorted(ours) != sorted(theirs):
            differ += [f"{step}, {base.engine} alone: {line[:500]}" for base, lines, others in ((pair[0], ours, set(theirs)), (pair[1], theirs, set(ours))) for line in lines if line not in others] or [f"{step}: lines come another number of times"]
    first, second = pair
    print("{} rows of {} tables compared; {} tables of {}".format(
        sum("INSERT INTO" in line for line in parts[-1][1][0].splitlines()), parts[-1][1][0].count("CREATE TABLE"), len(second.tables(second.engine)), second.engine))
    print("; ".join(f"{step} {one:.1f} and {other:.1f} s" for (step, one), (_, other) in zip(first.seconds, second.seconds)))
    if differ:
        sys.exit("\n".join(differ[:50]))
