"""Random SQL against InnoDB and Terrace in one server (tests/differ): the answers are the same.

TERRACE_DIFFER_SECONDS and TERRACE_SEED take more and other scenarios; `make differ TIME=3600` for an hour, all differences shrunk."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "differ"))

from compare import Pair  # noqa: E402
from differ import search  # noqa: E402

SECONDS = float(os.environ.get("TERRACE_DIFFER_SECONDS", "60"))
SEED = int(os.environ.get("TERRACE_SEED", "1"))


@pytest.fixture
def relaxed(server):
    """Commits that wait for no disk: nothing here is killed."""
    cursor = server.connect().cursor()
    names = ("innodb_flush_log_at_trx_commit", "terrace_flush_log_at_trx_commit")
    for name in names:
        cursor.execute(f"SET GLOBAL {name} = 0")
    yield
    for name in names:
        cursor.execute(f"SET GLOBAL {name} = 1")


def test_random_sql_gives_what_innodb_gives(server, engine, relaxed):
    ran, found = search(Pair(server.connect, ("InnoDB", engine)), SEED, SECONDS, 60)
    assert not found, found[0].text()
    print(f"{ran} scenarios from seed {SEED}")
    assert ran > SECONDS / 20


def test_the_differ_finds_an_engine_that_does_not_roll_back(server, relaxed):
    ran, found = search(Pair(server.connect, ("InnoDB", "MyISAM")), SEED, 60, 60, report=lambda text: None)
    assert found and len(found[0].statements) <= 8, (ran, found and found[0].text())
