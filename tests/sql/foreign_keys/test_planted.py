"""Tests find the bugs that are planted in the handler's foreign keys. scripts/planted-handler.sh builds a handler with these bugs and runs this file on it."""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
HAS_BUGS = "mariadb-planted" in os.environ.get("TERRACE_PLUGIN", "")

FOUND_BY = {
    "LOOKS_BY_VIEW": "test_foreign_sessions.py::test_no_interleaving_leaves_a_child_without_its_parent",
    "CASCADE_KEPT": "test_random_cascades.py",
    "CHILD_PASSED": "test_cascade_crashes.py",
    "LAST_UNCHECKED": "test_foreign_loads.py",
}


def play(bug, test):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | {"TERRACE_PLANTED_BUG": bug}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", os.path.join(HERE, test)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)


@pytest.mark.skipif(not HAS_BUGS, reason="the handler has no planted bugs")
@pytest.mark.parametrize("bug", FOUND_BY)
def test_a_planted_bug_is_found(bug):
    assert play("none", FOUND_BY[bug]).returncode == 0
    found = play(bug, FOUND_BY[bug])
    assert found.returncode == 1 and "AssertionError" in found.stdout, found.stdout
