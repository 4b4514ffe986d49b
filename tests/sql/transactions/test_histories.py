"""Histories of random transactions at every isolation level have no anomaly that the level forbids; InnoDB's histories are checked beside ours."""

import copy
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "histories"))

from check import FORBIDDEN, SNAPSHOT, Append, Read, Transaction, check, settle  # noqa: E402
from record import record  # noqa: E402

SECONDS = float(os.environ.get("TERRACE_HISTORY_SECONDS", "4"))
SEED = int(os.environ.get("TERRACE_SEED", "1"))


@pytest.mark.parametrize("level", list(FORBIDDEN))
@pytest.mark.parametrize("judged", ["InnoDB", "ours"])
def test_a_level_forbids_its_anomalies(server, db, engine, level, judged):
    one = engine if judged == "ours" else "InnoDB"
    # On a busy machine little is done in a few seconds: then the test takes longer.
    for longer in (1, 5, 25):
        transactions, last = record(lambda: server.connect(database=db.name), one, level, longer * SECONDS, SEED)
        committed = sum(t.committed is True for t in transactions)
        if committed > 30:
            break
    found, examples = check(transactions, last)
    print(f"{one}, {level}: {committed} committed, {len(transactions) - committed} rolled back, {dict(found)}")
    assert committed > 30
    wrong = {name: examples[name] for name in found if name in FORBIDDEN[level]}
    assert not wrong


@pytest.mark.parametrize("judged", ["InnoDB", "ours"])
def test_strict_snapshot_isolation_loses_no_update(server, db, engine, judged):
    """Of clients that write what they make of a plain read. Without it, REPEATABLE READ lets them lose updates: so they do try."""
    one = engine if judged == "ours" else "InnoDB"
    for strict in (False, True):
        for longer in (1, 5, 25):
            transactions, last = record(lambda: server.connect(database=db.name), one, "REPEATABLE READ", longer * SECONDS, SEED, strict=strict, trusts=True)
            found, examples = check(transactions, last)
            committed = sum(t.committed is True for t in transactions)
            if committed > 30 and (strict or (found["lost"] and found["G-single"])):
                break
        print(f"{one}, strict {strict}: {committed} committed, {len(transactions) - committed} rolled back, {dict(found)}")
        assert committed > 30
        if not strict:
            assert found["lost"] and found["G-single"]
    wrong = {name: examples[name] for name in found if name in SNAPSHOT}
    assert not wrong


def history(*transactions):
    """Each: name, committed, steps; a step is (key, list) for a read and (key, value) for an append."""
    made = []
    for name, committed, steps in transactions:
        steps = [Read(key, tuple(what)) if isinstance(what, (list, tuple)) else Append(key, what) for key, what in steps]
        made.append(Transaction(name, steps, committed, began=name, answered=10**9))
    return made


PLANTED = {
    "G0": (history((1, True, [(1, 11), (2, 12)]), (2, True, [(1, 21), (2, 22)])), {1: (11, 21), 2: (22, 12)}),
    "G1a": (history((1, False, [(1, 11)]), (2, True, [(1, [11])])), {1: ()}),
    "G1b": (history((1, True, [(1, 11), (1, 12)]), (2, True, [(1, [11])])), {1: (11, 12)}),
    "G1c": (history((1, True, [(1, 11), (2, [21])]), (2, True, [(2, 21), (1, [11])])), {1: (11,), 2: (21,)}),
    "lost": (history((1, True, [(1, 11)]), (2, True, [(1, 21)])), {1: (21,)}),
    "skew": (history((1, True, [(1, 11), (2, 12)]), (2, True, [(1, []), (2, [12])])), {1: (11,), 2: (12,)}),
    "backwards": (history((1, True, [(1, 11)]), (2, True, [(1, [11]), (1, [])])), {1: (11,)}),
    "G-single": (history((1, True, [(1, 11)]), (2, True, [(1, []), (1, 21)])), {1: (11, 21)}),
    "G2": (history((1, True, [(1, []), (2, 12)]), (2, True, [(2, []), (1, 21)])), {1: (21,), 2: (12,)}),
}


@pytest.mark.parametrize("name", list(PLANTED))
def test_the_checker_names_each_anomaly(name):
    found, _ = check(*PLANTED[name])
    assert found[name], found


# Histories with a transaction whose COMMIT got no answer before a crash.
UNDONE = {
    "G1a": (history((1, None, [(1, 11)]), (2, True, [(1, [11])])), {1: ()}),
    "lost": (history((1, None, [(1, 11), (2, 12)])), {1: (11,), 2: ()}),
}


@pytest.mark.parametrize("name", list(UNDONE))
def test_the_checker_names_reads_of_commits_that_a_crash_undid(name):
    transactions, last = UNDONE[name]
    settle(transactions, last)
    found, _ = check(transactions, last)
    assert found[name], found


def test_the_checker_counts_reads_of_transactions_that_a_crash_has_undone():
    transactions, last = history((1, None, [(1, 11)]), (2, False, [(1, [11])])), {1: ()}
    settle(transactions, last)
    assert check(transactions, last)[0]["G1a"]


def test_a_fault_planted_in_a_recorded_history_is_found(server, db, engine):
    transactions, last = record(lambda: server.connect(database=db.name), engine, "SERIALIZABLE", 2, SEED)
    assert not check(transactions, last)[0]
    readers = [(t, at) for t in transactions if t.committed for at, step in enumerate(t.steps) if isinstance(step, Read) and step.values and not step.locking]
    # A read that missed the last value it saw; a committed value that vanished; a value of a rolled-back transaction that was seen.
    planted = copy.deepcopy(transactions)
    writers = {(s.key, s.value): t for t in transactions if t.committed for s in t.steps if isinstance(s, Append)}
    # Only reads of a value that was committed before the reader began: otherwise the reader may precede its writer.
    stale = ((t, at) for t, at in readers if writers[t.steps[at].key, t.steps[at].values[0]].answered < t.began)
    t, at = next((planted[transactions.index(t)], at) for t, at in stale if not any(isinstance(s, Append) for s in t.steps))
    t.steps[at].values = ()
    assert check(planted, last)[0]
    key = max(last, key=lambda k: len(last[k]))
    value = last[key][-1]
    planted = [t for t in copy.deepcopy(transactions) if t.committed]
    for t in planted:
        t.steps = [s for s in t.steps if isinstance(s, Append)]
    assert check(planted, {**last, key: last[key][:-1]})[0]["lost"] == 1
    rolled_back = {s.key: s.value for t in transactions if t.committed is False for s in t.steps if isinstance(s, Append)}
    planted = copy.deepcopy(transactions)
    t, at = next((planted[transactions.index(t)], at) for t, at in readers if t.steps[at].key in rolled_back)
    t.steps[at].values += (rolled_back[t.steps[at].key],)
    assert check(planted, last)[0]["G1a"]
