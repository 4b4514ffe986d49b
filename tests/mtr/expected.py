"""The recorded difference of each test that differs, so that only that difference is accepted.

expected/SUITE/TEST.diff has the difference of Terrace's output from InnoDB's, for all combinations of the test's options, or
TEST,COMBINATION.diff for one. Lines are those of `diff -U0` without line numbers: `-` InnoDB, `+` Terrace, `@` between two places. What
varies from run to run (directories, ports, days, connection numbers in errors) is masked. A file begins with lines of `#`:

  # cut: N lines, SHA-256     the difference is longer than is kept here; the hash is that of the whole difference
  # varies                    the difference varies from run to run: each line must be one of these, except for its numbers
  # ends: TEXT                the test ended here, and not at its last line (`mysqltest` died, or the time was up)

A test runs past a statement that fails (mtr's second `--force`), so the output after a refused statement is compared, too.
"""

import datetime
import difflib
import hashlib
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent / "expected"
KEPT = 250  # lines of a difference, at most
LACKED = 5  # lines of InnoDB's in one place, at most

MORE = re.compile(r"^More results from queries before failure can be found in (\S+)")
DIED = re.compile(r"^(mysqltest: .*|mysqltest failed .*|Test case timeout .*|Server \[.*|.*\btimeout after \d+ seconds.*)$", re.MULTILINE)


class Masks:
    """What is another one at each run, as one word."""

    def __init__(self, roots):
        today = datetime.date.today()
        days = "|".join(str(today - datetime.timedelta(days=n)) for n in range(3))
        self.pairs = [(re.compile(re.escape(str(root))), "ROOT") for root in sorted(map(str, roots), key=len, reverse=True)]
        self.pairs += [(re.compile(r"ROOT/var-\w+/(?:\d+(?:/|(?=\s)))?"), "VAR/"), (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
                       (re.compile(r"\bpid: \d+, winpid: \d+"), "pid: n"), (re.compile(r"\b1[6-9]\d\d\d\b(?=['\)]|$)"), "PORT"),
                       # Which foreign key a warning names is the statement's, above it.
                       (re.compile(r"(?<=doesn't support FOREIGN KEY)(?: `.*?`)? \(.*"), " constraints in Terrace tables"),
                       # Where a client has its end, and how many statements the server has had.
                       (re.compile(r"(?<=\tlocalhost):\d+(?=\t)"), ":PORT"), (re.compile(r"\b([Xx]id ?= ?)\d+"), r"\1n"),
                       # A line of SHOW PROCESSLIST: the thread's id and its seconds.
                       (re.compile(r"^([-+])\d+(\t[^\t]+\t[^\t]*\t[^\t]*\t(?:Query|Sleep|Binlog Dump)\t)\d+\t"), r"\1n\2n\t"),
                       (re.compile(rf"\b(?:{days})\b(?:[ T]\d\d:\d\d:\d\d(?:\.\d+)?)?"), "NOW")]

    def __call__(self, line):
        for pattern, word in self.pairs:
            line = pattern.sub(word, line)
        return line.rstrip()


def diff_lines(text):
    """The lines of a unified diff in what mtr prints of a test, without those around them. None: it has none."""
    lines, inside, found = [], False, False
    for line in text.split("\n"):
        if line.startswith("--- ") and not found:
            inside = found = True
        elif inside and (re.match(r"^@@ .* @@", line) or line.startswith("+++ ") and not lines):
            lines.append("@")
        elif inside and line[:1] in ("-", "+"):
            lines.append(line)
        elif inside and (not line or line[0] not in " \\"):
            inside = False
        elif inside and lines and lines[-1] != "@":
            lines.append("@")  # a line that both have: another place
    return tidy(lines) if found else None


def tidy(lines):
    """Without marks between places that are empty."""
    out = []
    for line in lines:
        if line != "@" or out and out[-1] != "@":
            out.append(line)
    return out[:-1] if out and out[-1] == "@" else out


def so_far(log, result):
    """What the log of a test that died says otherwise than the result, as far as it got."""
    if not log.exists() or not result.exists():
        return []
    whole = result.read_bytes().count(b"\n")
    text = subprocess.run(["diff", "-a", "-U0", result, log], stdout=subprocess.PIPE).stdout.decode("latin-1")
    hunks = re.split(r"^(?=@@ )", text, flags=re.MULTILINE)[1:]
    lines = []
    for hunk in hunks:
        start, count = re.match(r"@@ -(\d+)(?:,(\d+))? ", hunk).groups()
        last = int(start) + int(count or 1) - 1 >= whole
        lines.append("@")
        lines += [l for l in hunk.split("\n")[1:] if l[:1] == "+" or l[:1] == "-" and not last]
    return tidy(lines)


def said(text, masks, log=None, result=None):
    """What a failed test says otherwise: (its end, or "" for a whole run; lines)."""
    lines, end = diff_lines(text), ""
    if lines is None:
        died = DIED.search(text)
        end = died.group(1) if died else text.strip().split("\n")[0]
        lines = so_far(log, result) if log and result else []
    return masks(re.sub(r"after \d+ seconds", "after its time", end)), shortened(without_same([masks(l) for l in lines]))


def shortened(lines):
    """Of many lines of InnoDB's that are missing, the first, and how many others, with their sum."""
    out, run = [], []
    for line in lines + ["@"]:
        if line[0] == "-":
            run.append(line)
            continue
        out += run[:LACKED] + ([f"-… {sum_of(run[LACKED:])}"] if len(run) > LACKED + 1 else run[LACKED:])
        run = []
        out.append(line)
    return out[:-1]


def without_same(lines):
    """Without places where both say the same, except for what is masked."""
    places = [[]]
    for line in lines:
        if line == "@":
            places.append([])
        else:
            places[-1].append(line)
    kept = [p for p in places if [l[1:] for l in p if l[0] == "-"] != [l[1:] for l in p if l[0] == "+"]]
    return [line for place in kept for line in ["@"] + place][1:]


class Expected:
    def __init__(self, suite):
        self.directory = HERE / suite

    def file(self, test):
        """That of the combination, or of all of them."""
        name = test.split(".", 1)[1]
        for one in (self.directory / f"{name}.diff", self.directory / f"{name.split(',')[0]}.diff"):
            if one.exists():
                return one
        return None

    def new(self, test, end, lines):
        """What a test says that is not expected, as lines; empty: nothing."""
        file = self.file(test)
        if not file:
            return ["no difference is expected"]
        head, body = read(file)
        if end != head.get("ends", ""):
            return [f"ended: {end or 'at its last line'}", f"expected: {head.get('ends', 'its last line')}"]
        if "varies" in head:
            known = {shape(l) for l in body}
            return [l for l in lines if shape(l) not in known]
        if "cut" in head:
            if head["cut"] == sum_of(lines):
                return []
            return against(body, lines[:len(body)]) or [f"the same as expected in {len(body)} lines, and another one beyond them"]
        return against(body, lines)

    def keep(self, test, end, lines, varies=False):
        """Writes what is expected of a test. A difference of two runs is kept as one that varies."""
        name = test.split(".", 1)[1]
        file = self.directory / f"{name}.diff"
        if file.exists():
            head, body = read(file)
            if "varies" in head:
                varies, lines = True, body + [l for l in lines if shape(l) not in {shape(b) for b in body}]
        head = [f"# ends: {end}"] * bool(end) + ["# varies"] * varies
        if len(lines) > KEPT and not varies:
            head.append(f"# cut: {sum_of(lines)}")
            lines = lines[:KEPT]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(l + "\n" for l in head + lines), encoding="utf-8")

    def fold(self):
        """One file where all combinations of a test differ alike."""
        some = {}
        for file in sorted(self.directory.glob("*,*.diff")):
            some.setdefault(file.name.split(",")[0], []).append(file)
        for test, files in some.items():
            whole = self.directory / f"{test}.diff"
            texts = {f.read_text() for f in files + [whole] * whole.exists()}
            if len(texts) == 1:
                whole.write_text(texts.pop())
                for f in files:
                    f.unlink()


def read(file):
    head, body = {}, []
    for line in file.read_text(encoding="utf-8").split("\n")[:-1]:
        if line.startswith("# ") and not body:
            key, _, value = line[2:].partition(": ")
            head[key] = value
        else:
            body.append(line)
    return head, body


def shape(line):
    """A line without its numbers."""
    return re.sub(r"\d+", "0", line)


def sum_of(lines):
    return f"{len(lines)} lines, {hashlib.sha256(''.join(l + chr(10) for l in lines).encode()).hexdigest()[:16]}"


def against(expected, lines):
    """How a difference differs from the expected one: `>` is new, `<` is gone."""
    changes = list(difflib.unified_diff(expected, lines, n=0, lineterm=""))[2:]
    return [{"+": "> ", "-": "< "}[l[0]] + l[1:] for l in changes if l[0] in "+-"]
