"""docs/from-innodb.md names every setting, counter and table of InnoDB that the server has, and of Terrace's only those that there are."""

import os
import re

import pytest


def named():
    """What the page names, as patterns: `_x` behind `A_b` stands for `A_x` and `A_b_x`, … for anything."""
    page = open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "from-innodb.md")).read()
    patterns, last = set(), ""
    for one in re.findall(r"`([^`\s]+)`", page):
        if one.startswith("_"):
            ends = [at for at, letter in enumerate(last) if letter == "_"] + [len(last)]
            patterns |= {last[:end] + one for end in ends}
            continue
        last = one
        patterns.add(one)
    return page, [re.compile(re.escape(one).replace("…", ".*"), re.IGNORECASE) for one in patterns]


@pytest.fixture
def page(engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    return named()


LISTS = {
    "settings": "SHOW GLOBAL VARIABLES LIKE '{}\\_%'",
    "counters": "SHOW GLOBAL STATUS LIKE '{}\\_%'",
    "tables": "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'information_schema' AND TABLE_NAME LIKE '{}\\_%'",
}


@pytest.mark.parametrize("what", LISTS)
def test_all_that_innodb_has_is_named(server, page, run, what):
    shown = [row[0] for row in run(server.connect(), LISTS[what].format("innodb"))]
    assert len(shown) > 10
    assert not [name for name in shown if not any(pattern.fullmatch(name) for pattern in page[1])]


def test_what_is_named_of_terrace_is_there(server, page, run):
    connection = server.connect()
    known = {row[0].lower() for query in LISTS.values() for row in run(connection, query.format("terrace"))}
    known |= {row[0].lower() for row in run(connection, "SHOW SESSION STATUS LIKE 'terrace\\_%'")}
    mentioned = {one.lower() for one in re.findall(r"\b(terrace_[a-z_]*[a-z])\b", page[0], re.IGNORECASE)}
    assert len(mentioned) > 50
    assert not {one for one in mentioned if one not in known and not any(name.startswith(one + "_") for name in known)} - {"terrace_lock_waits"}
