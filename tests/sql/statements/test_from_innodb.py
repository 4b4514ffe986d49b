"""docs/from-innodb.md names every setting, counter and table of InnoDB that the server has, and only existing ones of Terrace."""

import os
import re

import pytest


def named():
    """What the page names, as patterns: `_x` behind `A_b` stands for `A_x` and `A_b_x`, … for anything."""
    page = open(os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "from-innodb.md")).read()
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
def test_each_setting_counter_and_table_of_innodb_is_named(server, page, run, what):
    shown = [row[0] for row in run(server.connect(), LISTS[what].format("innodb"))]
    assert len(shown) > 10
    assert not [name for name in shown if not any(pattern.fullmatch(name) for pattern in page[1])]


def test_each_named_part_of_terrace_exists(server, page, run):
    connection = server.connect()
    known = {row[0].lower() for query in LISTS.values() for row in run(connection, query.format("terrace"))}
    known |= {row[0].lower() for row in run(connection, "SHOW SESSION STATUS LIKE 'terrace\\_%'")}
    mentioned = {one.lower() for one in re.findall(r"\b(terrace_[a-z_]*[a-z])\b", page[0], re.IGNORECASE)}
    assert len(mentioned) > 50
    assert not {one for one in mentioned if one not in known and not any(name.startswith(one + "_") for name in known)} - {"terrace_lock_waits"}


def test_the_documented_statements_move_a_schema(db, page, run):
    """As they stand on the page, on a schema with a foreign key, one to the table itself, and a full-text index."""
    text = page[0].split("## A whole schema")[1].split("\n## ")[0]
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ") and not line.strip().startswith("--")]
    keys, stay, tables = (one.replace("'app'", "DATABASE()") for one in re.split(r";$", "\n".join(lines), flags=re.MULTILINE) if one.strip())
    run(db, "CREATE TABLE parent (id INT PRIMARY KEY, up INT, CONSTRAINT above FOREIGN KEY (up) REFERENCES parent (id) ON DELETE SET NULL) ENGINE=InnoDB")
    run(db, "CREATE TABLE child (id INT PRIMARY KEY, p INT, CONSTRAINT of_parent FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE) ENGINE=InnoDB")
    run(db, "CREATE TABLE texts (id INT PRIMARY KEY, t TEXT, FULLTEXT KEY t (t)) ENGINE=InnoDB")
    run(db, "CREATE TABLE other (id INT PRIMARY KEY) ENGINE=MyISAM")
    run(db, "INSERT INTO parent VALUES (1, 1)")
    run(db, "INSERT INTO child VALUES (1, 1)")
    found = run(db, keys)
    assert sorted(rule for _, rule, _ in found) == ["CASCADE", "SET NULL"]
    assert run(db, stay) == [("texts",)]
    for statement, *_ in [*found, *run(db, tables)]:
        run(db, statement)
        assert run(db, "SHOW WARNINGS") == []
    assert run(db, "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY 1") == [
        ("child", "Terrace"), ("other", "MyISAM"), ("parent", "Terrace"), ("texts", "InnoDB")]
    assert run(db, "SELECT child.id FROM child JOIN parent ON p = parent.id") == [(1,)]
