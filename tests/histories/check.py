"""Checks a history of transactions over lists for what an isolation level forbids.

Each key holds a list to which transactions append values that are never used twice, so the last list of a key tells the order of all
its versions. The anomalies are Adya's, for items; a key that has no row is an empty list, so keys that a range read did not find count too.

    G0         writes of two transactions interleave: a cycle of ww
    G1a        a value of a transaction that was rolled back, or undone by a crash, was read, or is in the last list
    G1b        a version was read that its writer replaced before its commit
    G1c        a cycle of ww and wr
    lost       a committed value is not in the last list
    skew       the plain reads of one transaction are not a consistent snapshot
    backwards  a later plain read of a transaction saw less of a key than an earlier one
    stale      a value was not seen though its commit was answered before the reader's first statement
    G-single   a cycle with one rw (what snapshot isolation forbids)
    G2         a cycle with several rw (what only serializability forbids)
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass
class Read:
    key: int
    values: tuple
    locking: bool = False


@dataclass
class Append:
    key: int
    value: int


@dataclass
class Transaction:
    """`committed`: None if the client can't know. Times are in seconds of one clock."""

    name: int
    steps: list = field(default_factory=list)
    committed: bool = None
    began: float = 0.0
    answered: float = 0.0


FORBIDDEN = {
    "READ UNCOMMITTED": {"G0", "lost"},
    "READ COMMITTED": {"G0", "G1a", "G1b", "G1c", "lost", "backwards", "stale"},
    "REPEATABLE READ": {"G0", "G1a", "G1b", "G1c", "lost", "backwards", "stale", "skew"},
    "SERIALIZABLE": {"G0", "G1a", "G1b", "G1c", "lost", "backwards", "stale", "skew", "G-single", "G2"},
}
# What REPEATABLE READ forbids, too, with strict snapshot isolation.
SNAPSHOT = FORBIDDEN["REPEATABLE READ"] | {"G-single"}


def settle(transactions, last):
    """After a crash: a transaction whose client got no answer was committed if one of its values is left, and otherwise undone."""
    left = {value for values in last.values() for value in values}
    for t in transactions:
        if t.committed is None:
            appended = [step.value for step in t.steps if isinstance(step, Append)]
            t.committed = any(value in left for value in appended)
            t.answered = float("inf")


def check(transactions, last):
    """`last`: key to its list when all was over. Returns a Counter of anomalies and examples of each."""
    found, examples = Counter(), defaultdict(list)

    def report(name, text):
        found[name] += 1
        if len(examples[name]) < 3:
            examples[name].append(text)

    writer = {step.value: t for t in transactions for step in t.steps if isinstance(step, Append)}
    appended = defaultdict(list)  # transaction and key to its values, in order
    for t in transactions:
        for step in t.steps:
            if isinstance(step, Append):
                appended[t.name, step.key].append(step.value)
    place = {key: {value: at for at, value in enumerate(values)} for key, values in last.items()}

    for t in transactions:
        if t.committed:
            for step in t.steps:
                if isinstance(step, Append) and step.value not in place.get(step.key, {}):
                    report("lost", f"{step.value} of transaction {t.name} is not in key {step.key}")
    for key, values in last.items():
        for value in values:
            if writer[value].committed is False:
                report("G1a", f"{value} of transaction {writer[value].name}, which was rolled back, is left in key {key}")

    ww, wr, rw = defaultdict(set), defaultdict(set), defaultdict(set)
    for values in last.values():
        for before, after in zip(values, values[1:]):
            if writer[before] is not writer[after]:
                ww[writer[before].name].add(writer[after].name)

    skewed = []  # (name, [whom its plain reads saw], [whom they did not])
    for t in transactions:
        # What a transaction was told counts, however it ended.
        for step in t.steps:
            for value in step.values if isinstance(step, Read) else ():
                if writer[value].committed is False and writer[value] is not t:
                    report("G1a", f"transaction {t.name} read {value} of transaction {writer[value].name}, which was rolled back")
        if not t.committed:
            continue
        own, seen, saw, missed = set(), {}, set(), set()
        for step in t.steps:
            if isinstance(step, Append):
                own.add(step.key)
                continue
            others = [value for value in step.values if writer[value] is not t]
            if others and step.key not in own:
                final = appended[writer[others[-1]].name, step.key]
                if others[-1] != final[-1]:
                    report("G1b", f"transaction {t.name} read {others[-1]} as the end of key {step.key}, its writer went on to {final[-1]}")
            if step.key in own:
                continue
            if not step.locking:
                if len(step.values) < len(seen.get(step.key, ())):
                    report("backwards", f"transaction {t.name} read {seen[step.key]}, then {step.values} of key {step.key}")
                seen[step.key] = step.values
                known = set(step.values)
                for value in last.get(step.key, ()):
                    w = writer[value]
                    if value not in known and w.committed and w.answered < t.began:
                        report("stale", f"transaction {t.name} did not see {value} in key {step.key}, committed before it began")
                        break
            order = last.get(step.key, ())
            at = len(step.values)
            if at and writer[step.values[-1]].committed:
                wr[writer[step.values[-1]].name].add(t.name)
                if not step.locking:
                    saw.add(writer[step.values[-1]].name)
            if at < len(order) and writer[order[at]] is not t:
                rw[t.name].add(writer[order[at]].name)
                if not step.locking:
                    missed.add(writer[order[at]].name)
        skewed.append((t.name, saw, missed))

    names = [t.name for t in transactions]
    for group in cycles(names, ww):
        report("G0", f"transactions {group}")
    dependent = {name: ww[name] | wr[name] for name in names}
    for group in cycles(names, dependent):
        report("G1c", f"transactions {group}")
    bit, later = reaches(names, dependent)
    for name, saw, missed in skewed:
        # If a transaction was not seen, no transaction that depends on it may have been seen.
        seen_bits = sum(bit[one] for one in saw)
        for start in missed:
            if not (later[start] | bit[start]) & seen_bits:
                continue
            late = reached(start, dependent, without=name) | {start}
            if late & saw:
                report("skew", f"transaction {name} saw {sorted(late & saw)} and not {start}, on which they depend")
                break
    for name in names:
        for after in rw[name]:
            if bit[name] & later[after]:
                report("G-single", f"transaction {name} did not see {after}, and depends on it")
                break
    everything = {name: dependent[name] | rw[name] for name in names}
    for group in cycles(names, everything):
        report("G2", f"transactions {group}")
    return found, examples


def reached(start, edges, without=None):
    """All nodes on a path from `start` that does not pass `without`."""
    found, pending = set(), [start]
    while pending:
        for to in edges.get(pending.pop(), ()):
            if to not in found and to != without:
                found.add(to)
                pending.append(to)
    return found


def reaches(names, edges):
    """A bit for each node; and for each, the bits of all nodes on a path from it."""
    bit, bits = {name: 1 << at for at, name in enumerate(names)}, {}
    for group in groups_of(names, edges):
        together = 0
        for node in group:
            for to in edges.get(node, ()):
                together |= bit[to] | bits.get(to, 0)
        bits.update((node, together) for node in group)
    return bit, bits


def cycles(names, edges):
    return [sorted(group) for group in groups_of(names, edges) if len(group) > 1]


def groups_of(names, edges):
    """The strongly connected groups, each behind those that it leads to (Tarjan, without recursion)."""
    index, low, stack, on, groups = {}, {}, [], set(), []
    for root in names:
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, following = work[-1]
            for to in following:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on.add(to)
                    work.append((to, iter(edges.get(to, ()))))
                    break
                if to in on:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on.discard(group[-1])
                    groups.append(group)
    return groups
