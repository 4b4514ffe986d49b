"""Applications' schemas on a server: as they come, then table by table to Terrace and back; and all of InnoDB beside all of Terrace.

    play.py PORT ROOT TERRACE [APP...]

ROOT has a directory for each line of roster.tsv, the unpacked package. TERRACE is the program, whose `convert` moves a schema with its foreign
keys. What the server says while it loads a text, each SHOW CREATE TABLE and the tables' checksums must be the same except for the engine's name
and tables with a full-text or spatial index (which are refused, and stay; `convert` refuses their schema, so their tables move one by one). Any
other difference is printed, and the command fails."""

import glob
import gzip
import os
import re
import subprocess
import sys

import pymysql

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINES = r"(?:InnoDB|MyISAM|Aria|Terrace)"
FOREIGN = re.compile(r"^  (CONSTRAINT `([^`]*)` FOREIGN KEY [^\n]*?),?$", re.M)
NO_FULL_TEXT, LEFT_OUT = 1214, 1178


def roster():
    with open(os.path.join(HERE, "roster.tsv")) as lines:
        return dict(line.rstrip("\n").split("\t") for line in lines if not line.startswith("#"))


def text_of(root, app, files):
    """What the application's installation would run, as one text."""
    found, parts = [], []
    for pattern in files.split():
        found += [one for one in sorted(glob.glob(os.path.join(root, app, pattern))) if one not in found]
    for name in found:
        with (gzip.open if name.endswith(".gz") else open)(name, "rb") as read:
            parts.append(read.read().decode("utf-8", "surrogateescape"))
    assert parts, f"{app} has none of {files}"
    # Into the database that it is given.
    return re.sub(r"(?im)^\s*(use\s+\S+|(create|drop)\s+(database|schema)\b[^;]*);", "", "\n".join(parts))


class Play:
    def __init__(self, port):
        self.port = int(port)
        self.connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root", charset="utf8mb4", autocommit=True)

    def ask(self, sql):
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def load(self, database, engine, text):
        """Makes a database of the text; returns what the server says meanwhile."""
        self.ask(f"DROP DATABASE IF EXISTS {database}")
        self.ask(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        self.ask(f"USE {database}")
        settings = f"default_storage_engine={engine}, timestamp=1700000000"
        said = self.client(text, "--force", "--show-warnings", "--default-character-set=utf8mb4", f"--init-command=SET {settings}", database)
        return [line for line in said[1].splitlines() if re.match(r"(ERROR|Warning|Note|Error) ", line)]

    def client(self, text, *options):
        """The exit code of the client program, and what it shows."""
        command = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{self.port}", "-uroot", *options]
        done = subprocess.run(command, input=text.encode("utf-8", "surrogateescape"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def convert(self, program, database):
        """Moves the whole schema. What went wrong."""
        printed = subprocess.run([program, "convert", database], stdout=subprocess.PIPE, text=True, check=True).stdout
        code, shown = self.client(printed, "--batch")
        return [f"terrace convert: {shown}"] if code else []

    def bind(self, keys):
        """Adds foreign keys, which were dropped, to their tables."""
        for table, texts in keys.items():
            if texts:
                self.ask(f"ALTER TABLE `{table}` " + ", ".join(f"ADD {text}" for text, _ in texts))

    def release(self, keys):
        for table, texts in keys.items():
            for _, name in texts:
                self.ask(f"ALTER TABLE `{table}` DROP FOREIGN KEY `{name}`")

    def tables(self):
        return [name for (name,) in self.ask(f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND ENGINE RLIKE '^{ENGINES}$' AND TABLE_TYPE = 'BASE TABLE' ORDER BY 1".replace("(?:", "("))]

    def shown(self, tables):
        return {one: self.ask(f"SHOW CREATE TABLE `{one}`")[0][1] for one in tables}

    def sums(self, tables):
        return {one: self.ask(f"CHECKSUM TABLE `{one}` EXTENDED")[0][1] for one in tables}

    def altered(self, table, engine):
        """The warnings of a table's way to an engine, or the error's number and text."""
        try:
            self.ask(f"ALTER TABLE `{table}` ENGINE={engine}")
        except pymysql.err.Error as error:
            return error.args[0], error.args[1], []
        return 0, "", [(code, text) for _, code, text in self.ask("SHOW WARNINGS")]


def plain(definition):
    return re.sub(rf"\) ENGINE={ENGINES}", ") ENGINE=*", definition, flags=re.I)


def in_any_order(definition):
    """Where a foreign key was dropped and added again, the index that the server made for it stands at another place."""
    return sorted(line.rstrip(",") for line in definition.splitlines())


def refused(definition):
    return re.search(r"^  (FULLTEXT|SPATIAL) KEY", definition, re.M)


def played(play, program, app, text):
    """Numbers, and what differs."""
    differ, name = [], "app_" + re.sub(r"\W", "_", app)
    play.load(name, "InnoDB", text)
    tables = play.tables()
    before, sums = play.shown(tables), play.sums(tables)
    stay = [one for one in tables if refused(before[one])]
    # What the application may count on: that rows go, or are changed, with those that they refer to.
    acts = play.ask("SELECT COUNT(*) FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE() AND (DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL'))")[0][0]
    keys = play.ask("SELECT TABLE_NAME, CONSTRAINT_NAME FROM information_schema.TABLE_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE() AND CONSTRAINT_TYPE = 'FOREIGN KEY'")
    rows = sum(play.ask(f"SELECT COUNT(*) FROM `{one}`")[0][0] for one in tables)
    bound = {one for one, _ in keys} | {one for (one,) in play.ask("SELECT REFERENCED_TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE()")}
    for one in sorted(bound):
        error, why, _ = play.altered(one, "Terrace")
        if error != 1217:
            differ.append(f"{one}, which has a foreign key: {error} {why}")
    # Those of tables that stay, or that refer to one, can't move.
    declared = {one: [(text, key) for text, key in FOREIGN.findall(before[one])] for one in tables}
    moved = [one for one in tables if one not in stay]
    foreign = [one for one in moved if not re.search(r"\) ENGINE=InnoDB", before[one], re.I)]
    if not stay:
        differ += play.convert(program, name)
    else:
        play.release(declared)
    # `convert` moves the tables of InnoDB.
    for one in tables if stay else foreign:
        error, why, warnings = play.altered(one, "Terrace")
        if bool(error) != (one in stay) or error not in (0, NO_FULL_TEXT, LEFT_OUT):
            differ.append(f"{one} to Terrace: {error} {why}")
        differ += [f"{one} to Terrace: {warning}" for warning in warnings]
    if stay:
        play.bind(declared)
    after = play.shown(moved)
    differ += [f"{one} after ALTER:\n{plain(before[one])}\n{plain(after[one])}" for one in moved if in_any_order(plain(before[one])) != in_any_order(plain(after[one]))]
    if play.sums(moved) != {one: sums[one] for one in moved}:
        differ.append("other rows after ALTER")
    kept = play.ask(f"SELECT COUNT(*) FROM information_schema.TERRACE_FOREIGN WHERE ID LIKE '{name}/%'")[0][0]
    if kept != len(keys):
        differ.append(f"{kept} foreign keys of {len(keys)}")
    differ += [f"CHECK: {row}" for one in moved for row in play.ask(f"CHECK TABLE `{one}` EXTENDED") if row[3] != "OK"]
    play.release(declared)
    for one in moved:
        engine = re.search(rf"\) ENGINE=({ENGINES})", before[one], re.I).group(1)
        error, why, warnings = play.altered(one, engine)
        if error or warnings:
            differ.append(f"{one} back to {engine}: {error} {why} {warnings}")
    play.bind(declared)
    back = play.shown(moved)
    differ += [f"{one} there and back:\n{before[one]}\n{back[one]}" for one in moved if in_any_order(before[one]) != in_any_order(back[one])]
    if play.sums(moved) != {one: sums[one] for one in moved}:
        differ.append("other rows there and back")

    def of(engine):
        return re.sub(rf"(?i)\b(ENGINE|TYPE)(\s*=\s*|\s+)['`\"]?{ENGINES}['`\"]?", f"ENGINE={engine}", text)

    said = play.load(name, "InnoDB", of("InnoDB"))
    before, sums = play.shown(tables), play.sums(tables)
    says = play.load(name, "Terrace", of("Terrace"))
    theirs, ours = (sorted(re.sub(r" at line \d+", "", line) for line in lines) for lines in (said, says))
    if not stay and theirs != ours:
        differ += [f"InnoDB alone says: {line}" for line in theirs if line not in ours] + [f"Terrace alone says: {line}" for line in ours if line not in theirs]
    made = play.tables()
    if [one for one in made if one not in stay] != moved:
        differ.append(f"tables: {set(made) ^ set(moved)}")
    shown = play.shown(made)
    # AUTO_INCREMENT goes on where a statement's values end, which InnoDB counts in powers of two.
    same = lambda definition: re.sub(r" AUTO_INCREMENT=\d+", "", plain(definition))
    differ += [f"{one} made with Terrace:\n{same(before[one])}\n{same(shown[one])}" for one in moved if one in shown and same(before[one]) != same(shown[one])]
    differ += [f"{one} is of another engine" for one in moved if one in shown and ") ENGINE=Terrace" not in shown[one]]
    fresh = play.sums([one for one in moved if one in shown])
    differ += [f"{one}: other rows with Terrace" for one in fresh if fresh[one] != sums[one]]
    play.ask(f"DROP DATABASE {name}")
    return (len(tables), rows, len(keys), acts, stay), differ


def main():
    port, root, program, *apps = sys.argv[1:]
    play, total, wrong = Play(port), [0, 0, 0, 0, 0], []
    for app, files in roster().items():
        if apps and app not in apps:
            continue
        (tables, rows, keys, acts, stay), differ = played(play, program, app, text_of(root, app, files))
        print(f"{app}: {tables} tables, {rows} rows, {keys} foreign keys" + (f", {acts} of which change rows" if acts else "") + (f"; with a full-text index: {', '.join(stay)}" if stay else "") + (f"; {len(differ)} differences" if differ else ""), flush=True)
        total = [a + b for a, b in zip(total, (tables, rows, keys, acts, len(stay)))]
        wrong += [f"{app}: {one}" for one in differ]
    print("{} tables with {} rows; {} foreign keys, {} of which change rows; {} tables with a full-text index refused".format(*total))
    if wrong:
        sys.exit("\n".join(wrong))


main()
