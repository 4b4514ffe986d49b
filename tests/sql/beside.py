"""Scenarios of sessions step by step on InnoDB and on the engine, many at once: waiting sessions cost time, not work."""

import random
from concurrent.futures import ThreadPoolExecutor

from conftest import run
from test_parity_sessions import play

AT_ONCE = 12


def played(server, engine, steps, patience):
    """What the sessions see, in a database of their own."""
    control, name = server.connect(), f"b{random.randrange(10**12)}"
    run(control, f"CREATE DATABASE {name}")
    try:
        return play(server, name, engine, steps, patience)
    finally:
        run(control, f"DROP DATABASE {name}")
        control.close()


def differences(server, engine, scenarios, same=str):
    """The scenarios (by name, see `test_parity_sessions`) that differ from InnoDB: name to the steps and both answers.
    And InnoDB's answers to all, by name. `same` makes of an answer's text what is compared."""
    theirs, wrong = {}, {}
    # On a busy machine an answer may come late, and look like a wait: a difference that is one stays with more patience.
    for patience in (1, 4, 16):
        left = list(wrong or scenarios)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            plays = {(name, one): pool.submit(played, server, one, scenarios[name], patience) for name in left for one in ("InnoDB", engine)}
        wrong = {}
        for name in left:
            theirs[name], ours = plays[name, "InnoDB"].result(), plays[name, engine].result()
            differ = [(step, here, there) for (step, here), (_, there) in zip(theirs[name], ours) if same(str(here)) != same(str(there))]
            if differ or len(ours) != len(theirs[name]):
                wrong[name] = differ
        if not wrong:
            break
    return wrong, theirs
