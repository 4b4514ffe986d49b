"""Django's own tests on a server, with InnoDB as the default engine and with Terrace, compared test by test.

    suite.py PORT SOURCE OUT [APP...]

SOURCE is the unpacked source of Django, OUT a directory for the outcomes. A test that passes with InnoDB passes with Terrace, or is
listed with its reason in differences.txt; a listed test that passes is an error, too."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Those that reach the database most; others can be named.
APPS = (
    "aggregation aggregation_regress annotations backends basic bulk_create constraints custom_columns datetimes db_functions delete expressions "
    "expressions_case expressions_window get_or_create indexes inspectdb introspection lookup many_to_many many_to_one migrations model_fields ordering "
    "queries raw_query schema select_for_update timezones transaction_hooks transactions update"
).split()


# Two threads have met too late, on a busy machine.
LATE = "Database took too long to lock the row"


def played(engine, port, source, out, apps):
    """Each test's outcome and, where it did not pass, why."""
    results = os.path.join(out, f"{engine}.json")
    if os.path.exists(results):
        os.remove(results)
    environment = dict(
        os.environ, TERRACE_DJANGO_ENGINE=engine, TERRACE_DJANGO_PORT=port, TERRACE_DJANGO_OUT=results, PYTHONPATH=os.pathsep.join([source, HERE]),
        RUNNING_DJANGOS_TEST_SUITE="true",
    )
    command = [sys.executable, "runtests.py", "--settings=terrace_settings", "--parallel=1", "--noinput", *apps]
    with open(os.path.join(out, f"{engine}.log"), "w") as log:
        subprocess.run(command, cwd=os.path.join(source, "tests"), env=environment, stdout=log, stderr=subprocess.STDOUT)
    if not os.path.exists(results):
        sys.exit(f"Django's tests did not run to their end: {log.name}")
    with open(results) as found:
        return json.load(found)


def accepted():
    with open(os.path.join(HERE, "differences.txt")) as lines:
        return dict(line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))


def main():
    port, source, out, *apps = sys.argv[1:]
    innodb, terrace = (played(engine, port, source, out, apps or APPS) for engine in ("InnoDB", "Terrace"))
    reasons, wrong, differ = accepted(), [], 0
    for test, (theirs, why) in sorted(innodb.items()):
        ours, because = terrace.get(test, ("is not there", ""))
        if LATE in (why, because):
            continue
        if theirs == "fails":
            print(f"{test} fails with InnoDB: {why}")
        if ours == theirs and test in reasons:
            wrong.append(f"{test} stands in differences.txt and {ours}")
        elif ours != theirs and theirs != "fails":
            differ += 1
            if test not in reasons:
                wrong.append(f"{test} {theirs} with InnoDB and {ours} with Terrace: {because}")
    wrong += [f"{test} is of Terrace's run alone" for test in sorted(set(terrace) - set(innodb))]
    passes = [sum(outcome == "passes" for outcome, _ in one.values()) for one in (innodb, terrace)]
    print(f"{len(innodb)} tests: {passes[0]} pass with InnoDB, {passes[1]} with Terrace; {differ} differ, of which {differ - len([one for one in wrong if ' with InnoDB and ' in one])} have a reason")
    if wrong:
        sys.exit("\n".join(wrong))


main()
