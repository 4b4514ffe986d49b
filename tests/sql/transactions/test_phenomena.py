"""The phenomena that define the isolation levels, step by step at each level: InnoDB's answers beside ours, and the level's
promise."""

import pytest

from beside import differences

LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]

PHENOMENA = {
    "dirty write": [
        ("a", "update t set v=11 where id=1"),
        ("b", "update t set v=12 where id=1"),
        ("a", "update t set v=21 where id=2"),
        ("a", "commit"),
        ("b?",),
        ("a", "select * from t where id<3"),
        ("b", "update t set v=22 where id=2"),
        ("b", "commit"),
        ("a", "select * from t where id<3"),
    ],
    "dirty read of what is rolled back": [
        ("a", "update t set v=101 where id=1"),
        ("b", "select v from t"),
        ("a", "rollback"),
        ("b?",),
        ("b", "select v from t"),
        ("b", "commit"),
    ],
    "intermediate read": [
        ("a", "update t set v=101 where id=1"),
        ("b", "select v from t where id<3"),
        ("a", "update t set v=11 where id=1"),
        ("a", "commit"),
        ("b?",),
        ("b", "select v from t where id<3"),
        ("b", "commit"),
    ],
    "circular reads": [
        ("a", "update t set v=11 where id=1"),
        ("b", "update t set v=22 where id=2"),
        ("a", "select v from t where id=2"),
        ("b", "select v from t where id=1"),
        ("b?",),
        ("a?",),
        ("a", "commit"),
        ("b", "commit"),
    ],
    "observed transaction vanishes": [
        ("a", "update t set v=11 where id=1"),
        ("a", "update t set v=19 where id=2"),
        ("b", "update t set v=12 where id=1"),
        ("a", "commit"),
        ("b?",),
        ("a", "select v from t where id=1"),
        ("b", "update t set v=18 where id=2"),
        ("b", "commit"),
        ("a?",),
        ("a", "select v from t where id<3"),
    ],
    "fuzzy read": [
        ("a", "select v from t where id=1"),
        ("b", "update t set v=11 where id=1"),
        ("b", "commit"),
        ("a", "select v from t where id=1"),
        ("a", "commit"),
        ("b?",),
    ],
    "phantom by equality": [
        ("a", "select id from t where v=35"),
        ("b", "insert into t values (6,35,600)"),
        ("b", "commit"),
        ("a", "select id from t where v>=30"),
        ("a", "commit"),
        ("b?",),
    ],
    "phantom in a count": [
        ("a", "select count(*) from t where v>20"),
        ("b", "insert into t values (9,99,900)"),
        ("b", "commit"),
        ("a", "select count(*) from t where v>20"),
        ("a", "update t set u=u+1 where v>20"),
        ("a", "select count(*) from t where v>20"),
        ("a", "commit"),
        ("b?",),
    ],
    "predicate and write": [
        ("a", "update t set v=v+10"),
        ("b", "delete from t where v=20"),
        ("a", "commit"),
        ("b?",),
        ("b", "select id,v from t"),
        ("b", "commit"),
        ("a", "select id,v from t"),
    ],
    "lost update": [
        ("a", "select v from t where id=1"),
        ("b", "select v from t where id=1"),
        ("a", "update t set v=11 where id=1"),
        ("b", "update t set v=12 where id=1"),
        ("a", "commit"),
        ("b?",),
        ("a?",),
        ("b", "commit"),
        ("a", "select v from t where id=1"),
    ],
    "read skew": [
        ("a", "select v from t where id=1"),
        ("b", "select v from t where id<3"),
        ("b", "update t set v=12 where id=1"),
        ("b", "update t set v=18 where id=2"),
        ("b", "commit"),
        ("a", "select v from t where id=2"),
        ("a", "commit"),
        ("b?",),
    ],
    "read skew by predicate": [
        ("a", "select id from t where v%50=0"),
        ("b", "update t set v=12 where v=10"),
        ("b", "commit"),
        ("a", "select id from t where v%3=0"),
        ("a", "commit"),
        ("b?",),
    ],
    "read skew and write": [
        ("a", "select v from t where id=1"),
        ("b", "select v from t"),
        ("b", "update t set v=12 where id=1"),
        ("b", "update t set v=18 where id=2"),
        ("b", "commit"),
        ("a", "delete from t where v=20"),
        ("a?",),
        ("a", "select id,v from t"),
        ("a", "rollback"),
        ("b?",),
    ],
    "write skew": [
        ("a", "select v from t where id in (1,2)"),
        ("b", "select v from t where id in (1,2)"),
        ("a", "update t set v=11 where id=1"),
        ("b", "update t set v=21 where id=2"),
        ("b?",),
        ("a?",),
        ("a", "commit"),
        ("b", "commit"),
        ("a", "select v from t"),
    ],
    "write skew by predicate": [
        ("a", "select id from t where v%3=0"),
        ("b", "select id from t where v%3=0"),
        ("a", "insert into t values (7,33,700)"),
        ("b", "insert into t values (8,42,800)"),
        ("b?",),
        ("a?",),
        ("a", "commit"),
        ("b", "commit"),
        ("a", "select id from t where v%3=0"),
    ],
}

DEADLOCK = 1213


def beginning(level, *more):
    texts = (f"set session transaction isolation level {level}", "set innodb_lock_wait_timeout=30", *more, "begin")
    return [(who, text) for text in texts for who in "ab"]


def answers(seen, who, statement):
    """The session `who`'s answers to this statement, each time that it ran it, at once or later."""
    found, waits = [], False
    for step, answer in seen:
        if step == (who, statement):
            waits = answer == "waits"
            if not waits:
                found.append(answer)
        elif waits and step == (who + "?",):
            found.append(answer)
            waits = False
    return found


def values(rows):
    return [row[0] for row in rows]


@pytest.fixture(scope="module")
def at_level(server, request):
    engine, seen = request.config.getoption("--engine"), {}

    def at(level):
        if level not in seen:
            seen[level] = differences(server, engine, {name: beginning(level) + steps for name, steps in PHENOMENA.items()})
        return seen[level]

    return at


@pytest.mark.parametrize("level", LEVELS)
def test_the_phenomena_of_a_level_are_innodbs(at_level, level):
    wrong, _ = at_level(level)
    assert not wrong


def test_a_level_allows_the_anomalies_it_is_known_for(at_level):
    """What InnoDB was seen to do above, so that the scenarios are known to show their phenomena."""
    shown = {}
    for level in LEVELS:
        seen = at_level(level)[1]
        last_of_a = values(seen["lost update"][-1][1])
        failed = any(isinstance(answer, tuple) and answer[:2] == ("error", DEADLOCK) for _, answer in seen["write skew"])
        shown[level] = {
            "dirty write": seen["dirty write"][-1][1] not in (((1, 12, 100), (2, 22, 200)), ((1, 11, 100), (2, 21, 200))),
            "dirty read": 101 in values(answers(seen["dirty read of what is rolled back"], "b", "select v from t")[0]),
            "fuzzy read": len(set(answers(seen["fuzzy read"], "a", "select v from t where id=1"))) > 1,
            "read skew": answers(seen["read skew"], "a", "select v from t where id=2") != [((20,),)],
            "phantom": len(set(answers(seen["phantom in a count"], "a", "select count(*) from t where v>20")[:2])) > 1,
            "lost update": last_of_a == [12] and not any(isinstance(answer, tuple) and answer[:1] == ("error",) for _, answer in seen["lost update"]),
            "write skew": not failed,
        }
    none = dict.fromkeys(shown["SERIALIZABLE"], False)
    weakest = {**dict.fromkeys(none, True), "dirty write": False}
    assert shown == {
        "READ UNCOMMITTED": weakest,
        "READ COMMITTED": {**weakest, "dirty read": False},
        "REPEATABLE READ": {**none, "lost update": True, "write skew": True},
        "SERIALIZABLE": none,
    }
