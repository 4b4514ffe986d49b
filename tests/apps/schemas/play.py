"""Applications' schemas on a server: as they come, then table by table to Terrace and back; and all of InnoDB beside all of Terrace.

    play.py PORT ROOT [APP...]

ROOT has a directory for each line of roster.tsv, the unpacked package. What the server says while it loads a text, each SHOW CREATE TABLE
and the tables' checksums must be the same except for the engine's name, foreign keys (which are left out, each with a warning that names
it) and tables with a full-text or spatial index (which are refused, and stay). Any other difference is printed, and the command fails."""

import glob
import gzip
import os
import re
import subprocess
import sys

import pymysql

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINES = r"(?:InnoDB|MyISAM|Aria|Terrace)"
FOREIGN = re.compile(r",\n  CONSTRAINT `[^`]*` FOREIGN KEY [^\n]*?(?=,?\n)")
NO_FULL_TEXT, LEFT_OUT = 1214, 1178
# A text that drops a foreign key again, which was left out.
DROPPED = "Warning (Code 1091): Can't DROP FOREIGN KEY"


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
        settings = f"default_storage_engine={engine}, terrace_foreign_keys=warn, timestamp=1700000000"
        command = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{self.port}", "-uroot", "--force", "--show-warnings", "--default-character-set=utf8mb4",
                   f"--init-command=SET {settings}", database]
        done = subprocess.run(command, input=text.encode("utf-8", "surrogateescape"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return [line for line in done.stdout.decode("utf-8", "replace").splitlines() if re.match(r"(ERROR|Warning|Note|Error) ", line)]

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
    return re.sub(rf"\) ENGINE={ENGINES}", ") ENGINE=*", FOREIGN.sub("", definition), flags=re.I)


def refused(definition):
    return re.search(r"^  (FULLTEXT|SPATIAL) KEY", definition, re.M)


def played(play, app, text):
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
    for one, key in keys:
        play.ask(f"ALTER TABLE `{one}` DROP FOREIGN KEY `{key}`")
    for one in tables:
        error, why, warnings = play.altered(one, "Terrace")
        if bool(error) != (one in stay) or error not in (0, NO_FULL_TEXT, LEFT_OUT):
            differ.append(f"{one} to Terrace: {error} {why}")
        differ += [f"{one} to Terrace: {warning}" for warning in warnings]
    moved = [one for one in tables if one not in stay]
    after = play.shown(moved)
    differ += [f"{one} after ALTER:\n{plain(before[one])}\n{plain(after[one])}" for one in moved if plain(before[one]) != plain(after[one])]
    if play.sums(moved) != {one: sums[one] for one in moved}:
        differ.append("other rows after ALTER")
    differ += [f"CHECK: {row}" for one in moved for row in play.ask(f"CHECK TABLE `{one}` EXTENDED") if row[3] != "OK"]
    for one in moved:
        engine = re.search(rf"\) ENGINE=({ENGINES})", before[one], re.I).group(1)
        error, why, warnings = play.altered(one, engine)
        if error or warnings:
            differ.append(f"{one} back to {engine}: {error} {why} {warnings}")
    back = play.shown(moved)
    differ += [f"{one} there and back:\n{FOREIGN.sub('', before[one])}\n{back[one]}" for one in moved if FOREIGN.sub("", before[one]) != back[one]]
    if play.sums(moved) != {one: sums[one] for one in moved}:
        differ.append("other rows there and back")

    def of(engine):
        return re.sub(rf"(?i)\b(ENGINE|TYPE)(\s*=\s*|\s+)['`\"]?{ENGINES}['`\"]?", f"ENGINE={engine}", text)

    said = play.load(name, "InnoDB", of("InnoDB"))
    before, sums = play.shown(tables), play.sums(tables)
    says = play.load(name, "Terrace", of("Terrace"))
    out = [line for line in says if f"Warning (Code {LEFT_OUT})" in line]
    # The server keeps only the warnings of a procedure's last statement.
    if len(out) < len(keys) and "PROCEDURE" not in text:
        differ.append(f"{len(keys)} foreign keys, and warnings of {len(out)}")
    differ += [f"not named: {line}" for line in out if not re.search(r"FOREIGN KEY .*REFERENCES `", line)]
    theirs, ours = (sorted(re.sub(r" at line \d+", "", line) for line in lines if f"Warning (Code {LEFT_OUT})" not in line and DROPPED not in line) for lines in (said, says))
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
    port, root, *apps = sys.argv[1:]
    play, total, wrong = Play(port), [0, 0, 0, 0, 0], []
    for app, files in roster().items():
        if apps and app not in apps:
            continue
        (tables, rows, keys, acts, stay), differ = played(play, app, text_of(root, app, files))
        print(f"{app}: {tables} tables, {rows} rows, {keys} foreign keys" + (f", {acts} of which change rows" if acts else "") + (f"; with a full-text index: {', '.join(stay)}" if stay else "") + (f"; {len(differ)} differences" if differ else ""), flush=True)
        total = [a + b for a, b in zip(total, (tables, rows, keys, acts, len(stay)))]
        wrong += [f"{app}: {one}" for one in differ]
    print("{} tables with {} rows; {} foreign keys left out, {} of which change rows; {} tables with a full-text index refused".format(*total))
    if wrong:
        sys.exit("\n".join(wrong))


main()
