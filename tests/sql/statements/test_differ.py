"""Random SQL against InnoDB and Terrace in one server (tests/differ): the answers are the same.

TERRACE_DIFFER_SECONDS and TERRACE_SEED take more and other scenarios; `make differ TIME=3600` for an hour, all differences shrunk."""

import os
import pathlib
import shutil
import sys
import time

from conftest import private

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "differ"))

from compare import Died, Pair  # noqa: E402
from differ import search  # noqa: E402

SECONDS = float(os.environ.get("TERRACE_DIFFER_SECONDS", "40"))
SEED = int(os.environ.get("TERRACE_SEED", "1"))
# Commits wait for no disk: nothing here is killed.
OPTIONS = ["--terrace-memory=33554432", "--innodb-flush-log-at-trx-commit=0", "--terrace-flush-log-at-trx-commit=0"]


def judge_fell(server, died):
    """The server ended in a statement on an InnoDB table, and nothing of ours was in its stack."""
    with open(os.path.join(server.directory, "error.log"), errors="replace") as log:
        text = log.read()
    return died.engine == "InnoDB" and "mariadbd got signal" in text and "ha_terrace" not in text


def hunt(engines, seconds, report=print):
    """Searches on a server of its own; on another one behind a seed that ends the judge. Returns how many ran and what was found."""
    until, first, ran, falls = time.monotonic() + seconds, SEED, 0, 0
    while True:
        server = private(OPTIONS)
        try:
            more, found = search(Pair(server.connect, engines), first, max(until - time.monotonic(), 1), 60, report=report)
            return ran + more, found
        except Died as died:
            falls += 1
            if not judge_fell(server, died) or falls > 10:
                raise
            print(f"the server fell in a statement on InnoDB at seed {died.seed}")
            ran, first = ran + died.seed - first, died.seed + 1
        finally:
            server.kill9()
            shutil.rmtree(server.directory, ignore_errors=True)


def test_random_sql_gives_what_innodb_gives(engine):
    # On a busy machine few scenarios fit into the time: then it takes longer.
    for seconds in (SECONDS, 5 * SECONDS):
        ran, found = hunt(("InnoDB", engine), seconds)
        assert not found, found[0].text()
        print(f"{ran} scenarios from seed {SEED}")
        if ran > SECONDS / 20:
            break
    assert ran > SECONDS / 20


def test_the_differ_finds_an_engine_that_does_not_roll_back():
    ran, found = hunt(("InnoDB", "MyISAM"), 600, report=lambda text: None)
    assert found and len(found[0].statements) <= 8, (ran, found and found[0].text())
