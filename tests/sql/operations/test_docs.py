"""Compares the documents with a running server (settings, defaults, columns, instruments, threads, purposes) and with the tree (links, file names, length of
README). test_from_innodb.py does the same for docs/from-innodb.md, test_parity_lines.py for the parity table of docs/sql.md."""

import os
import re

import pytest
from conftest import ROOT, end, private

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def text_of(*names):
    return open(os.path.join(ROOT, *names), encoding="utf-8").read()


def spans(text):
    return set(re.findall(r"`([^`\n]+)`", text))


def rows_of(text, *head):
    """The rows of each table with this head, as cells."""
    found, within = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else None
        if cells is None or cells == list(head):
            within = cells is not None
        elif within and not set("".join(cells)) <= set("- "):
            found.append(cells)
    return found


@pytest.fixture(scope="module")
def plain():
    """A server with default settings, except for performance_schema."""
    one = private(["--performance-schema=ON"])
    yield one
    end(one)


@pytest.fixture(autouse=True)
def skipped_with_other_engines(engine):
    if engine != "Terrace":
        pytest.skip("Terrace's own")


def settings(text):
    """Name to (default, when) from the tables of settings. A row may have several names and as many defaults."""
    found = {}
    for names, default, when, _ in rows_of(text, "setting", "default", "when", "what"):
        names, defaults = re.findall(r"`(terrace_\w+)`", names), default.split(", ")
        for at, name in enumerate(names):
            assert name not in found, name
            found[name] = (defaults[at] if len(names) == len(defaults) else default, when)
    return found


def test_settings_md_has_each_setting_and_when_it_changes(plain, run):
    shown = run(plain.connect(), "SELECT LOWER(VARIABLE_NAME), VARIABLE_SCOPE, READ_ONLY FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_NAME LIKE 'terrace\\_%'")
    when = {name: "start" if fixed == "YES" else scope.lower() for name, scope, fixed in shown}
    assert len(when) > 30
    assert {name: said[1] for name, said in settings(text_of("docs", "settings.md")).items()} == when


@pytest.mark.parametrize("page", ["docs/settings.md", "README.md"])
def test_defaults_are_those_in_force(plain, run, page):
    text = text_of(page)
    said = settings(text) if page.startswith("docs") else {}
    if not said:
        for names, default, _ in rows_of(text, "setting", "default", "what"):
            names = re.findall(r"`(terrace_\w+)`", names)
            said |= dict(zip(names, ((one, "") for one in default.split(", "))))
    in_force = dict(run(plain.connect(), "SHOW GLOBAL VARIABLES LIKE 'terrace\\_%'"))
    compared = 0
    for name, (default, _) in said.items():
        value = in_force[name]
        number = re.fullmatch(r"([\d.]+)([KMG]?)( \(.*\))?", default)
        if number:
            assert float(number[1]) * UNITS.get(number[2], 1) == float(value), name
        elif default in ("", "none", "nothing", "the provider's"):
            assert value == "", name
        elif default.startswith("`"):
            assert default[1:].split("`")[0] == value, name
        elif default.startswith("what the machine has"):
            assert int(value) > 1 << 30, name
        else:
            assert default == value, name
        compared += 1
    assert compared == len(said) and compared >= 5


def test_observability_md_has_each_column(plain, run):
    named = spans(text_of("docs", "observability.md")) | spans(text_of("docs", "settings.md"))
    shown = run(plain.connect(), "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'information_schema' AND TABLE_NAME LIKE 'TERRACE\\_%'")
    assert len(shown) > 100
    # `…_BANDWIDTH` stands for all columns with that end.
    ends = tuple(one[1:] for one in named if one.startswith("…_"))
    assert not [one for one in shown if one[1] not in named and not one[1].endswith(ends)]
    assert not {table for table, _ in shown if table not in named and f"information_schema.{table}" not in named}


def test_observability_md_has_each_instrument_thread_and_purpose(plain, run):
    connection, text = plain.connect(), text_of("docs", "observability.md")
    named = {one.rsplit("/", 1)[-1] for one in spans(text)}
    for query in ("SELECT NAME FROM performance_schema.setup_instruments WHERE NAME LIKE '%/terrace/%'",
                  "SELECT DISTINCT NAME FROM performance_schema.threads WHERE NAME LIKE 'thread/terrace/%'"):
        shown = [name.rsplit("/", 1) for name, in run(connection, query)]
        assert len(shown) > 5
        # A row of the table begins with the group (`thread/terrace/…`, or its first name in full) and has all names of it.
        for group, name in shown:
            rows = [spans(line) for line in text.splitlines() if line.startswith(f"| `{group}/")]
            assert any(name in row or f"{group}/{name}" in row for row in rows), (group, name)
    purposes = {purpose for purpose, in run(connection, "SELECT DISTINCT PURPOSE FROM information_schema.TERRACE_IO")}
    assert len(purposes) > 5
    assert not {purpose for purpose in purposes if purpose.removesuffix("_sync") not in named}


def test_counters_and_settings_that_documents_name_exist(plain, run):
    """In all documents except the decision notes and testing.md, which names environment variables. A name may be the beginning of others."""
    connection = plain.connect()
    known = {name.lower() for query in ("SHOW GLOBAL STATUS LIKE 'terrace\\_%'", "SHOW SESSION STATUS LIKE 'terrace\\_%'", "SHOW GLOBAL VARIABLES LIKE 'terrace\\_%'")
             for name, _ in run(connection, query)}
    known |= {name.lower() for name, in run(connection, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_NAME LIKE 'TERRACE\\_%'")}
    # The C interfaces' names.
    for header in ("crates/sql/include/terrace.h", "crates/capi/include/terrace.h", "crates/files-capi/include/terrace_files.h"):
        known |= {name.lower() for name in re.findall(r"\bterrace_\w+", text_of(*header.split("/")), re.IGNORECASE)}
    # The metrics of `terrace kv`.
    known |= {f"terrace_kv_{name}" for name in re.findall(r'"([a-z_]+)"', text_of("crates", "kv", "src", "command", "metrics.rs"))}
    mentioned = set()
    for name in sorted(os.listdir(os.path.join(ROOT, "docs"))):
        if name.endswith(".md") and name != "testing.md":
            # Prometheus' metrics have other suffixes; names with `::`, `/` and upper-case names with `=` are crates, files and environment variables.
            for span in spans(re.sub(r"(?s)## Prometheus.*?(?=\n## )", "", text_of("docs", name))):
                if "::" not in span and "/" not in span and not re.match(r"[A-Z_]+=", span):
                    mentioned |= {one.lower() for one in re.findall(r"\bterrace_[a-z_]*[a-z]\b", span, re.IGNORECASE)}
    assert len(mentioned) > 80
    assert not {one for one in mentioned if one not in known and not any(other.startswith(one + "_") for other in known)} - {"terrace_lock_waits"}


def test_readme_is_short():
    assert len(text_of("README.md").split()) <= 900


def documents():
    yield "README.md"
    for folder in ("docs", os.path.join("docs", "decisions")):
        yield from (os.path.join(folder, name) for name in sorted(os.listdir(os.path.join(ROOT, folder))) if name.endswith(".md"))


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_links_between_documents_are_valid():
    """Links, their anchors, and decision notes named in a text."""
    broken, seen = [], 0
    for page in documents():
        text = text_of(page)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"\w+:", link):
                continue
            seen += 1
            path, _, place = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(os.path.join(ROOT, target)):
                broken.append((page, link))
            elif place and place not in {anchor(heading) for heading in re.findall(r"(?m)^#+ (.*)$", text_of(target))}:
                broken.append((page, link))
        former = set(re.findall(r"(?m)^Formerly: `([^`]+)`", text))
        for note in set(re.findall(r"`(?:docs/decisions/)?(20\d\d-\d\d-\d\d-[\w-]+\.md)`", text)) - former:
            if not os.path.exists(os.path.join(ROOT, "docs", "decisions", note)):
                broken.append((page, note))
    assert seen > 40
    assert not broken


def test_docs_readme_lists_each_document():
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", text_of("docs", "README.md")))
    assert listed == {name for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md")} - {"README.md"}


def test_files_that_architecture_md_names_exist():
    """Each path and file in a code span, relative to the repository, to crates/ or to a crate's src/."""
    text = text_of("docs", "architecture.md")
    below = [""] + ["crates"] + [os.path.join("crates", crate, "src") for crate in os.listdir(os.path.join(ROOT, "crates"))]
    everything = {name for tree in ["crates", "mariadb"] for _, _, names in os.walk(os.path.join(ROOT, tree)) for name in names}
    checked, missing = 0, []
    for one in sorted(spans(text)):
        if not re.fullmatch(r"[\w./*-]+(\.(rs|cc|h|md)|/[\w-]*)", one) or "::" in one:
            continue
        checked += 1
        if "/" not in one:
            there = one in everything
        elif "*" in one:
            there = any(re.fullmatch(re.escape(os.path.basename(one)).replace(r"\*", ".*"), name) for name in os.listdir(os.path.join(ROOT, os.path.dirname(one))))
        else:
            rooms = [os.path.join(ROOT, base) for base in below] + [path for path, _, _ in os.walk(os.path.join(ROOT, "crates")) if f"{os.sep}src" in path]
            there = any(os.path.exists(os.path.join(room, one)) or os.path.exists(os.path.join(room, one) + ".rs") for room in rooms)
        if not there:
            missing.append(one)
    assert checked > 100
    assert not missing
