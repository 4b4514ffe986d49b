#!/usr/bin/env python3
"""The server's own test suites (mtr), with InnoDB and with Terrace, and a table of what differs.

This repository has no copy of the server's suites. They are unpacked from its packages; each engine has a private copy:

  InnoDB   as shipped; where the shipped result no longer matches InnoDB's output, it is recorded again (mtr's `--record`)
  Terrace  the copy of InnoDB, rewritten: what names InnoDB as an engine, in tests and in results, names Terrace

So a test passes with Terrace if its output is InnoDB's except for the name. Differences that are accepted are listed with their reasons in
differences.txt, and their texts in expected/ (see expected.py): any other difference is new, and a failure.
The outcome of each test is kept in OUT/results/SUITE.json from run to run, all of them in results.tsv and skipped.tsv
(see outcomes.py). The exit code is 0 if each test that InnoDB passes passes, or differs as it is known to.
"""

import argparse
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from expected import MORE, Expected, Masks, diff_lines, said
from outcomes import ENGINES, NEVER, Results, differences, plain, reason_of, short, skipped_before, table, written

HERE = pathlib.Path(__file__).resolve().parent
TESTS = pathlib.Path("usr/share/mysql/mysql-test")

# What the server runs with: as little memory as mtr gives InnoDB, more or less.
SERVER = {"InnoDB": ["--innodb"],
          "Terrace": ["--innodb", "--plugin-load-add=ha_terrace", "--loose-terrace-memory=33554432",
                      "--loose-terrace-log=67108864",
                      # Tests of the stages look at the other engines' answer.
                      "--loose-terrace-backup-stage=allow"]}

# START TRANSACTION WITH CONSISTENT SNAPSHOT starts in all engines: there is to be one that says something.
ALONE = {"InnoDB": [], "Terrace": ["--skip-innodb"]}

# Suites of the bar, then those that are engine-independent only in part.
SUITES = {
    "engines/iuds": {}, "engines/funcs": {"rpl": False},
    "storage_engine": {"engine_by_environment": True, "record": True},
    "storage_engine/parts": {"engine_by_environment": True, "record": True},
    "storage_engine/trx": {"engine_by_environment": True, "record": True, "alone": True,
                           "options": ["--loose-innodb-lock-wait-timeout=1", "--loose-terrace-lock-wait-timeout-ms=1000"]},
    "parts": {"only_if_named": True}, "gcol": {"only_if_named": True}, "vcol": {"only_if_named": True}, "sql_sequence": {"default_engine": True},
    "versioning": {}, "period": {}, "jp": {"only_if_named": True},
    "main": {"only_if_named": True}, "binlog": {"only_if_named": True}, "rpl": {"only_if_named": True},
    # InnoDB's own suite, as far as it is about foreign keys and speaks SQL only.
    "innodb": {"tests": """
        add_constraint alter_copy_bulk alter_partitioned alter_table cascade_lock_wait dropdb fk_col_alter fk_drop_alter foreign-keys foreign_key foreign_key_not_windows
        foreign_null foreign_sql_mode innodb innodb-alter innodb-fk innodb-fk-virtual innodb-fk-warnings innodb-fkcheck innodb-get-fk innodb-index innodb-mdev-7513
        innodb-on-duplicate-update innodb-truncate innodb-wl5980-alter innodb_bug12661768 innodb_bug21704 innodb_bug46676 innodb_bug47621 innodb_bug48024
        innodb_bug53046 innodb_bug53592 innodb_bug56143 innodb_bug57255 innodb_bug57904 innodb_bug60196 innodb_bug60229 innodb_bug68148 innodb_mysql
        instant_alter_bugs lock_insert_into_empty rename_table stored_fk truncate_foreign update-cascade xa_recovery""".split()},
}

# Tests of them that name no engine: with the engine as the default one, against what InnoDB says.
SUITES |= {f"{suite}/any": {"of": suite, "only_if_not_named": True, "default_engine": True, "once": True}
           for suite in ("main", "binlog", "rpl", "vcol", "gcol", "parts", "versioning", "period")}

# Tests that print the directory they run in, which is another one for each engine and each of mtr's workers: one place for these.
ALONE_IN_PLACE = {"storage_engine": ["tbl_opt_data_dir", "tbl_opt_index_dir"]}

# Tests of a thousand round trips between source and replica take minutes with any engine: the limit in minutes for each.
MINUTES, MANY_MINUTES = 2, 60
LONG = {"rpl": ["rpl_mixed_mixing_engines", "rpl_stm_mixing_engines", "rpl_row_mixing_engines", "rpl_non_direct_mixed_mixing_engines",
                "rpl_non_direct_row_mixing_engines", "rpl_non_direct_stm_mixing_engines"]}

# Tests that end at the first statement that is refused: past it they come to no end.
NOT_PAST = {"main": ["flush-innodb"]}

# Where a test waits in vain it prints the list of connections: their numbers and seconds are other ones each time, with any engine.
MASKED = """if ($show_statement == SHOW PROCESSLIST)
  {
    --replace_column 1 # 6 #
    eval $show_statement;
  }
  if ($show_statement != SHOW PROCESSLIST)
  {
    eval $show_statement;
  }"""

# A DDL statement on a parent waits for a child's transaction in both engines: in Terrace for a metadata lock.
WAITS = "connection default;\n--error ER_TRUNCATE_ILLEGAL_FK\nTRUNCATE TABLE parent;\n--error ER_ROW_IS_REFERENCED_2"

# What both engines' copies have otherwise: file, what it has, what it gets. How many bytes a table takes is each engine's own affair.
CHANGED = (("include/wait_show_condition.inc", "eval $show_statement;", MASKED),
           ("suite/innodb/t/foreign_key.test", WAITS, WAITS.replace("default;", "default;\nSET lock_wait_timeout=1;")),
           ("include/column_compression_rpl.inc", "SELECT DATA_LENGTH FROM", "SELECT DATA_LENGTH > 0 FROM"),
           ("suite/vcol/inc/vcol_partition.inc", "table_rows,data_length from", "table_rows,data_length > 0 from"))

# Raise it when the copies are made differently: then they are made again, and recorded results are lost.
COPIES = 7

# InnoDB as the name of an engine: a word of its own, and not part of a path, an option or a variable.
NAME = re.compile(r"(?<![\w/\-\[.@])innodb(?![\w/\-\].])", re.IGNORECASE)
# Lines where the name is no engine's: a word of a setting, a column.
NO_ENGINE = re.compile(r"log_slow_verbosity|Unknown column", re.IGNORECASE)
# The server's table of replicas' positions has the engine's name in its own.
POSITIONS = re.compile(r"(gtid_slave_pos_)(innodb)\b", re.IGNORECASE)
# The tables of foreign keys have the same columns.
FOREIGN = re.compile(r"\binnodb_sys_(foreign(?:_cols)?)\b", re.IGNORECASE)
# What a test waits for in InnoDB's list of transactions, in Terrace's.
TRX = re.compile(r"information_schema\.innodb_(?:trx|lock_waits)", re.IGNORECASE)
TRX_WORDS = ((r"(information_schema\.)innodb_(trx|lock_waits)", r"\1TERRACE_\2"), (r"trx_operation_state = 'inserting' AND\s+", ""),
             (r"\btrx_mysql_thread_id\b", "connection_id"), (r"\btrx_state\b", "state"), (r"\btrx_query\b", "statement"))
LOCK_WAIT = re.compile(r"(?:loose[-_])?innodb[-_]lock[-_]wait[-_]timeout\s*=\s*(\d+)", re.IGNORECASE)
TEXTS = (".test", ".inc", ".result", ".rdiff", ".opt", ".cnf", ".combinations")
MISMATCH = re.compile("Result (?:content|length) mismatch|Got errors while running test")
OUTCOME = re.compile(r"^(\S+\.\S+)(?: '([^']*)')?(?:\s+w\d+)?\s+\[ ([\w-]+) \]\s*(.*)$")


def rewritten(text, name):
    """The text of a test's file with Terrace where InnoDB was."""
    if name.endswith((".opt", ".cnf")) or name.endswith("combinations"):
        text = re.sub(r"(?<==)\s*innodb\b", "Terrace", text, flags=re.IGNORECASE)
        # A test's timeout of row lock waits is set for both engines.
        between = " --" if name.endswith(".opt") else "\n"
        return LOCK_WAIT.sub(lambda found: f"{found.group(0)}{between}loose-terrace-lock-wait-timeout-ms={found.group(1)}000", text)
    if name.endswith((".test", ".inc")) and TRX.search(text):
        for there, here in TRX_WORDS:
            text = re.sub(there, here, text, flags=re.IGNORECASE)
    text = FOREIGN.sub(lambda found: ("TERRACE_" if found.group(0).isupper() else "terrace_") + found.group(1), text)
    text = POSITIONS.sub(lambda found: found.group(1) + ("terrace" if found.group(2).islower() else "Terrace"), text)
    return "".join(line if NO_ENGINE.search(line) else NAME.sub("Terrace", line) for line in text.splitlines(keepends=True))


def is_text(path):
    return path.suffix in TEXTS or path.name == "combinations"


class Tree:
    """A private installation: the server's programs by link, its tests as a copy."""

    def __init__(self, engine, packages, plugin, out):
        self.engine, self.root = engine, out / f"tree-{engine.lower()}"
        self.tests = self.root / TESTS
        self.packages, self.plugin, self.out = packages, plugin, out
        self.var = pathlib.Path(os.environ.get("TERRACE_SUITES_VAR", out))

    def make(self, origin=None):
        stamp = self.root / "made"
        want = f"{self.packages} {COPIES} {os.environ.get('REMAKE', '')}"
        if stamp.exists() and stamp.read_text() == want:
            self.link_plugin()
            self.lay_over()
            return
        shutil.rmtree(self.root, ignore_errors=True)
        usr = self.root / "usr"
        for directory in ("bin", "sbin", "lib/mysql/plugin", "share/mysql"):
            (usr / directory).mkdir(parents=True)
        for directory in ("bin", "sbin"):
            for source in (self.packages / "usr" / directory, pathlib.Path("/usr") / directory):
                for program in source.glob("*") if source.exists() else ():
                    wanted = source != pathlib.Path("/usr") / directory or \
                        program.name.startswith(("maria", "mysql", "my_", "aria", "myisam", "inno", "perror", "replace", "resolve", "wsrep"))
                    if wanted and not (usr / directory / program.name).exists():
                        (usr / directory / program.name).symlink_to(program.resolve())
        for source in (self.packages / "usr/lib/mysql/plugin", packaged_plugins()):
            for plugin in source.glob("*.so"):
                if not (usr / "lib/mysql/plugin" / plugin.name).exists():
                    (usr / "lib/mysql/plugin" / plugin.name).symlink_to(plugin)
        self.link_plugin()
        for file in pathlib.Path("/usr/share/mysql").iterdir():
            if file.name != "mysql-test":
                (usr / "share/mysql" / file.name).symlink_to(file)
        shutil.copytree(origin or self.packages / TESTS, self.tests, symlinks=True)
        # One engine for suites that come in combinations of engines.
        for file in self.tests.glob("suite/engines/*/combinations"):
            file.write_text(re.sub(r"\[myisam\][^\[]*", "", file.read_text()))
        for name, old, new in CHANGED:
            file = self.tests / name
            text = file.read_text(encoding="latin-1")
            if new not in text:
                assert old in text, name
                file.write_text(text.replace(old, new), encoding="latin-1")
        if self.engine == "Terrace":
            for file in self.tests.rglob("*"):
                if is_text(file) and file.is_file():
                    self.rewrite(file, file)
        self.lay_over()
        stamp.write_text(want)

    def lay_over(self):
        """What Terrace says and InnoDB doesn't, as differences from InnoDB's result."""
        if self.engine == "Terrace":
            shutil.copytree(HERE / "suite", self.tests / "suite", dirs_exist_ok=True)

    def link_plugin(self):
        link = self.root / "usr/lib/mysql/plugin/ha_terrace.so"
        link.unlink(missing_ok=True)
        link.symlink_to(self.plugin)

    def rewrite(self, source, target):
        text = source.read_bytes().decode("latin-1")
        new = rewritten(text, source.name)
        if new != text or source != target:
            target.write_bytes(new.encode("latin-1"))

    def directory(self, suite):
        suite = SUITES[suite].get("of", suite)
        return self.tests / "main" if suite == "main" else self.tests / "suite" / suite

    def names(self, suite):
        directory = self.directory(suite)
        inner = directory / "t"
        return sorted(f.stem for f in (inner if inner.is_dir() else directory).glob("*.test"))

    def chosen(self, suite):
        """Those of a suite's tests that are to run."""
        traits = SUITES[suite]
        if "tests" in traits:
            return traits["tests"]
        if not traits.get("only_if_named") and not traits.get("only_if_not_named"):
            return self.names(suite)
        return [t for t in self.names(suite) if self.names_engine(suite, t) == bool(traits.get("only_if_named"))]

    def names_engine(self, suite, test):
        """Does the test, or what it includes, name InnoDB as an engine?"""
        directory = self.directory(suite)
        seen, todo = set(), [directory / "t" / f"{test}.test", directory / f"{test}.test"]
        while todo:
            file = todo.pop()
            if file in seen or not file.is_file():
                continue
            seen.add(file)
            text = file.read_text(encoding="latin-1")
            ways = file.with_suffix(".combinations")
            if NAME.search(text) and "have_innodb" not in file.name or ways.exists() and "[innodb" in ways.read_text():
                return True
            for name in re.findall(r"^\s*(?:--\s*)?source\s+(\S+?);?\s*$", text, re.MULTILINE | re.IGNORECASE):
                todo += [file.parent / name, self.tests / name, directory / name]
        return False

    def run(self, suite, tests, traits, record=False):
        """Runs tests; yields (name, outcome, text) as they end."""
        alone = [t for t in tests if t in ALONE_IN_PLACE.get(suite, ())]
        long = [t for t in tests if t in LONG.get(suite, ())]
        ends = [t for t in tests if t in NOT_PAST.get(suite, ())]
        rest = [t for t in tests if t not in alone and t not in long and t not in ends]
        # Those of thousands of round trips make as many connections, and one that TLS fails, or that a busy machine keeps from being made
        # in ten seconds, is the test's end.
        patient = ["--skip-ssl", "--mysqld=--connect-timeout=600"]
        # Past a statement that fails: what is refused doesn't hide what comes after it.
        past = ["--force"] if self.engine == "Terrace" or traits.get("once") else []
        for some, workers, minutes, more in ((rest, 2, MINUTES, past), (long, 2, MANY_MINUTES, patient + past), (alone, 1, MINUTES, past),
                                             (ends, 2, MINUTES, [])):
            if some:
                yield from self.run_some(suite, some, traits, record, workers, minutes, more)

    def run_some(self, suite, tests, traits, record, workers, minutes, more):
        where = self.var / (f"var-{self.engine.lower()}" if workers > 1 else "var-alone")
        named, suite = suite, traits.get("of", suite)
        command = ["perl", "./mysql-test-run.pl", f"--vardir={where}", f"--parallel={workers}", "--force", "--max-test-fail=0", "--retry=0",
                   f"--suite={suite}", "--nowarnings", "--skip-test-list=/dev/null", f"--testcase-timeout={minutes}", "--suite-timeout=600",
                   "--mysqld=--loose-innodb-flush-log-at-trx-commit=2", "--mysqld=--loose-terrace-flush-log-at-trx-commit=2"]
        command += [f"--mysqld={option}" for option in SERVER[self.engine] + traits.get("options", []) + (ALONE[self.engine] if traits.get("alone") else [])]
        command += [f"--mysqld=--default-storage-engine={self.engine}"] if traits.get("default_engine") else []
        command += ["--record"] if record else []
        command += more
        command += [] if traits.get("rpl", True) else ["--skip-rpl"]
        # Tests disabled because the shipped results have drifted run, too, where results are recorded again.
        command += ["--enable-disabled"] if traits.get("record") else []
        environment = dict(os.environ)
        if traits.get("engine_by_environment"):
            environment["ENGINE"] = self.engine
        process = subprocess.Popen(command + [f"{suite}.{t}" for t in tests], cwd=self.tests, env=environment, text=True,
                                   encoding="latin-1", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        log = open(self.out / f"last-{self.engine.lower()}.log", "w", encoding="latin-1")
        current = None
        for line in process.stdout:
            log.write(line)
            log.flush()
            more = MORE.match(line)
            if more and current and pathlib.Path(more.group(1)).exists():
                # The next test of that name writes there, too.
                shutil.copyfile(more.group(1), self.log_of(current[0]))
            found = OUTCOME.match(line)
            if found:
                if current:
                    yield current[0], current[1], "".join(current[2])
                name = found.group(1) + (f",{found.group(2)}" if found.group(2) else "")
                self.log_of(name).unlink(missing_ok=True)
                self.keep_reject(named, name)
                current = (name, found.group(3), [found.group(4) + "\n"])
            elif current:
                current[2].append(line)
        if current:
            yield current[0], current[1], "".join(current[2])
        process.wait()


    def log_of(self, name):
        """What a test that died had written."""
        logs = self.out / "logs"
        logs.mkdir(exist_ok=True)
        return logs / f"{name.replace('/', '-')}.{self.engine.lower()}.log"

    def keep_reject(self, suite, test):
        """What a test said: its next combination writes there, too."""
        rejects = [f for f in (file.with_suffix(".reject") for file in self.results_of(suite, test)) if f.exists()]
        self.log_of(test).with_suffix(".reject").unlink(missing_ok=True)
        if rejects:
            shutil.copyfile(max(rejects, key=lambda f: f.stat().st_mtime), self.log_of(test).with_suffix(".reject"))

    def results_of(self, suite, test):
        """Where mtr looks for a test's result, the combination's own first."""
        directory = self.directory(suite)
        name, *ways = test.split(".", 1)[1].split(",")
        place = directory / "r" if (directory / "r").is_dir() else directory
        return [place / f"{','.join((name, *some))}.result" for n in range(len(ways), -1, -1) for some in itertools.combinations(ways, n)]

    def result_of(self, suite, test):
        """What is expected of a test."""
        files = self.results_of(suite, test)
        return next((f for f in files if f.exists()), files[-1])


def says_no_other(text):
    """Has a test failed for statements that fail with either engine only?"""
    return "Got errors while running test" in text and diff_lines(text) is None


def packaged_plugins():
    files = subprocess.run(["dpkg", "-L", "mariadb-server"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return pathlib.Path(next(f for f in files if "/plugin/" in f and f.endswith(".so"))).parent


def run_innodb(tree, suite, tests, traits, results):
    """InnoDB as shipped; what it says otherwise is recorded and run again."""
    drifted = set()
    todo = list(tests)
    if traits.get("once"):
        # What it says is its word at once; where Terrace says something else it is asked again.
        for name, outcome, text in tree.run(suite, tests, traits):
            reject = tree.log_of(name).with_suffix(".reject")
            if outcome == "fail" and MISMATCH.search(text) and reject.exists():
                # Each combination says its own.
                shutil.move(reject, tree.results_of(suite, name)[0])
                outcome = "pass"
            results.put("InnoDB", name, outcome, text)
        return
    if traits.get("record"):
        for _ in tree.run(suite, tests, traits, record=True):
            pass
    for name, outcome, text in tree.run(suite, todo, traits):
        results.put("InnoDB", name, outcome, text)
        if outcome == "fail" and MISMATCH.search(text):
            drifted.add(name.split(",")[0].split(".", 1)[1])
    if drifted:
        for _ in tree.run(suite, sorted(drifted), traits, record=True):
            pass
        for name, outcome, text in tree.run(suite, sorted(drifted), traits):
            results.put("InnoDB", name, outcome, text)
            if outcome == "pass":
                results.tests[name]["InnoDB"]["recorded"] = True


def run_terrace(tree, suite, tests, traits, results, reasons, options):
    """Terrace, beside what InnoDB said and what is known to differ."""
    expected = Expected(suite)
    masks = Masks([tree.root, tree.root.with_name("tree-innodb"), tree.var, tree.packages])
    for name, outcome, text in tree.run(suite, tests, traits):
        new = []
        if traits.get("once") and says_no_other(text):
            outcome = "pass"
        if outcome == "fail":
            end, lines = said(text, masks, tree.log_of(name), tree.result_of(suite, name))
            tree.log_of(name).with_suffix(".diff").write_text("".join(f"{l}\n" for l in [f"# ends: {end}", *lines]))
            if options.record and reason_of(name, reasons):
                expected.keep(name, end, lines, options.varies)
            new = expected.new(name, end, lines) if end or lines else []
            # But for what is masked it says what InnoDB says.
            outcome = outcome if end or lines else "pass"
        results.put("Terrace", name, outcome, text, new)
        if new and results.outcome("InnoDB", name) in ("pass", "-"):
            print(f"   {name}: NEW: {reason_of(name, reasons) or short(outcome, text)}", flush=True)
            print("".join(f"      {line}\n" for line in new[:20]), end="", flush=True)
    if options.record:
        expected.fold()


def copy_results(innodb, terrace, suite, tests):
    """What InnoDB's run recorded is what is expected of Terrace."""
    directory = innodb.directory(suite)
    for test in tests:
        for file in list(directory.glob(f"{test}.result")) + list(directory.glob(f"r/{test}.result")) + \
                list(directory.glob(f"{test},*.r*")) + list(directory.glob(f"r/{test},*.r*")):
            terrace.rewrite(file, terrace.tests / file.relative_to(innodb.tests))
        # The suite says itself where a result depends on the engine; what Terrace has otherwise is a difference from InnoDB's words.
        changes = HERE / "suite" / suite / f"{test}.diff"
        if changes.exists():
            where = terrace.directory(suite)
            subprocess.run(["patch", "-s", (where / "r" if (where / "r").is_dir() else where) / f"{test}.result", changes], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(SUITES)}; none: all of them")
    parser.add_argument("--packages", type=pathlib.Path, required=True)
    parser.add_argument("--plugin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--engine", choices=ENGINES, action="append", help="one engine only; the other's last results stay")
    parser.add_argument("--test", action="append", help="these tests of the suite only")
    parser.add_argument("--piece", default="1/1", help="i/n: the i-th n-th of the tests")
    parser.add_argument("--missing", action="store_true", help="only tests of which neither results.tsv nor skipped.tsv says anything")
    parser.add_argument("--again", action="store_true", help="only what failed the last time with Terrace, and not with InnoDB as far as known")
    parser.add_argument("--record", action="store_true", help="keep how tests that have a reason differ now, as what is expected")
    parser.add_argument("--varies", action="store_true", help="with --record: beside what was expected; it is not the same at each run")
    parser.add_argument("--table", action="store_true", help="only write the table of all results known")
    options = parser.parse_args()
    reasons = differences()
    trees = {engine: Tree(engine, options.packages, options.plugin, options.out) for engine in ENGINES}
    if not options.table:
        trees["InnoDB"].make()
        trees["Terrace"].make(trees["InnoDB"].tests)
    bad = 0
    for suite in (options.suites or SUITES) if not options.table else ():
        traits, results = SUITES[suite], Results(options.out, suite)
        piece, pieces = map(int, options.piece.split("/"))
        tests = options.test or trees["InnoDB"].chosen(suite)
        if options.missing:
            known = {plain(t) for s, t in [*written(), *(k for k, why in skipped_before().items() if why != NEVER)] if s == suite} | {plain(t) for t in results.tests}
            tests = [t for t in tests if f"{traits.get('of', suite)}.{t}" not in known]
        if options.again:
            tests = sorted({t.split(",")[0].split(".", 1)[1] for t, r in results.tests.items()
                            if r.get("Terrace", {}).get("outcome") == "fail" and r.get("InnoDB", {}).get("outcome", "pass") == "pass"})
        tests = tests[piece - 1::pieces]
        for engine in (options.engine or ENGINES) if tests else ():
            started = time.time()
            print(f"== {suite}, {engine}: {len(tests)} tests", flush=True)
            if engine == "InnoDB":
                run_innodb(trees[engine], suite, tests, traits, results)
            else:
                # Those of InnoDB's run that came to no end, too.
                copy_results(trees["InnoDB"], trees["Terrace"], suite, tests)
                run_terrace(trees[engine], suite, tests, traits, results, reasons, options)
                doubted = sorted({t.split(",")[0].split(".", 1)[1] for t in results.differing()} & set(tests)) if traits.get("once") else []
                for name, outcome, text in trees["InnoDB"].run(suite, doubted, traits) if doubted else ():
                    results.put("InnoDB", name, "pass" if says_no_other(text) else outcome, text)
            ours = [t for t in results.tests if t.split(",")[0].split(".", 1)[1] in set(tests)]
            outcomes = [results.outcome(engine, t) for t in ours]
            print(f"   {outcomes.count('pass')} pass, {outcomes.count('fail')} fail, {outcomes.count('skipped')} skipped, "
                  f"{outcomes.count('disabled')} disabled; {time.time() - started:.0f} s", flush=True)
        bad += sum(1 for t in results.differing() if not reason_of(t, reasons) or results.tests[t].get("Terrace", {}).get("new"))
    looked = set(options.suites or SUITES)
    for suite, count in table(options.out, SUITES, reasons, lambda suite: trees["InnoDB"].chosen(suite) if suite in looked else []).items():
        print(f"{suite}: of {count['tests']} InnoDB passes {count['InnoDB']}, Terrace {count['Terrace']}; "
              f"{count['reason']} differ with a reason, {count['open']} without")
        bad += count["open"] if options.table else 0
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
