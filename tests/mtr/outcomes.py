"""Each engine's outcome of each test, and the tables of outcomes that the repository keeps.

  OUT/results/SUITE.json   what mtr said of each test, kept from run to run
  results.tsv              both outcomes of each test that ran, and why they differ
  skipped.tsv              the reason that mtr gives for each test that did not run, and tests that have never been run
  differences.txt          the reasons, written by hand
"""

import json
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
ENGINES = ("InnoDB", "Terrace")
NOT_RUN = {"skipped", "disabled", "-"}
NEVER = "has not been run"


def plain(test):
    """A test's name without its combination."""
    return test.split(",")[0]


def differences():
    """Test to the reason why it may differ, from differences.txt; a test's name may end with *."""
    reasons = {}
    for line in (HERE / "differences.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            test, reason = line.split(None, 1)
            reasons[test] = reason.strip()
    return reasons


def reason_of(test, reasons):
    for pattern, reason in reasons.items():
        if pattern in (test, plain(test)) or pattern.endswith("*") and test.startswith(pattern[:-1]):
            return reason
    return ""


def short(outcome, text):
    """Why a test failed, in a line: what mtr says of it, or the first lines that differ."""
    lines = text.splitlines()
    notes = [l for l in lines if re.search(r"' (failed|succeeded)[ :]", l) or "Server [" in l or "timeout" in l.lower() or "signal" in l] or \
        [l for l in lines if l.startswith("mysqltest:")]
    diff = [l for l in lines if re.match(r"^[-+](?![-+])", l)]
    return " | ".join((notes[:1] + diff[:3]) or lines[:1])[:300] if outcome != "pass" else ""


class Results:
    def __init__(self, out, suite):
        self.file = out / "results" / (suite.replace("/", "-") + ".json")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.tests = json.loads(self.file.read_text()) if self.file.exists() else {}

    def put(self, engine, test, outcome, text, new=()):
        self.tests.setdefault(test, {})[engine] = {"outcome": outcome, "why": short(outcome, text), "new": list(new)[:100],
                                                   "text": text[-6000:] if outcome == "fail" else ""}
        self.file.write_text(json.dumps(self.tests, indent=1, sort_keys=True))

    def differing(self):
        """Tests that InnoDB passes and Terrace doesn't."""
        return [t for t in self.tests if self.outcome("InnoDB", t) == "pass" and self.outcome("Terrace", t) != "pass"]

    def outcome(self, engine, test):
        return self.tests.get(test, {}).get(engine, {}).get("outcome", "-")


def written():
    """What results.tsv has from former runs, perhaps elsewhere: (suite, test) to both outcomes."""
    file = HERE / "results.tsv"
    rows = [line.split("\t") for line in file.read_text().splitlines()[1:]] if file.exists() else []
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def skipped_before():
    """What skipped.tsv has from former runs: (suite, test) to why."""
    file = HERE / "skipped.tsv"
    rows = [line.split("\t") for line in file.read_text().splitlines()[1:]] if file.exists() else []
    return {(row[0], row[1]): row[2] for row in rows}


def table(out, suites, reasons, names):
    """All results known into the tables, those of this machine before those that stand there. Returns counts by suite.

    * `names` gives the tests of a suite that are to run, without their combinations.
    """
    lines, counts, before = [], {}, written()
    skipped, skipped_then = [], skipped_before()
    for suite in suites:
        results = Results(out, suite)
        count = counts.setdefault(suite, {"tests": 0, "InnoDB": 0, "Terrace": 0, "reason": 0, "open": 0})
        ran = set()
        for test in sorted(set(results.tests) | {t for s, t in before if s == suite}):
            here = [results.outcome(e, test) for e in ENGINES]
            innodb, terrace = (h if h != "-" else b for h, b in zip(here, before.get((suite, test), ("-", "-"))))
            if {innodb, terrace} <= NOT_RUN:
                why = next((w for w in (results.tests.get(test, {}).get(e, {}).get("why", "") for e in ENGINES) if w), "")
                if why:
                    skipped_then[suite, test] = re.sub(r"\s+", " ", why)
                continue
            ran.add(plain(test))
            skipped_then.pop((suite, test), None)
            count["tests"] += 1
            count["InnoDB"] += innodb == "pass"
            count["Terrace"] += terrace == "pass"
            why = ""
            if innodb == "pass" and terrace != "pass" or innodb == "-" and terrace == "fail":
                why = reason_of(test, reasons)
                count["reason" if why else "open"] += 1
                new = results.tests.get(test, {}).get("Terrace", {}).get("new")
                why = f"NEW beside: {why}" if why and new else why or "not run with Terrace" * (terrace == "-") or "OPEN: " + results.tests.get(test, {}).get("Terrace", {}).get("why", "")
            lines.append("\t".join((suite, test, innodb, terrace, re.sub(r"\s+", " ", why))))
        if not count["tests"]:
            del counts[suite]
        there = names(suite)
        skipped += [(suite, t, why) for (s, t), why in skipped_then.items() if s == suite and (why != NEVER or not there)]
        known = ran | {plain(t) for s, t, why in skipped if s == suite}
        prefix = suites[suite].get("of", suite)
        never = NEVER if suites[suite].get("rpl", True) else "its replication is left out (mtr's --skip-rpl)"
        skipped += [(suite, f"{prefix}.{name}", never) for name in there if f"{prefix}.{name}" not in known]
    (HERE / "results.tsv").write_text("suite\ttest\tInnoDB\tTerrace\twhy they differ\n" + "".join(l + "\n" for l in lines))
    (HERE / "skipped.tsv").write_text("suite\ttest\twhy it did not run\n" + "".join("\t".join(row) + "\n" for row in sorted(skipped)))
    return counts
