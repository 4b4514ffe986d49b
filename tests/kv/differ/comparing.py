"""When two replies mean the same.

Redis leaves the order of some replies open, chooses some at random, and shows times that have passed. Such replies are compared as sets, by their size, or
without the times.
"""

from connection import Error

AS_SET = {"SMEMBERS", "SPOP", "SINTER", "SUNION", "SDIFF", "HKEYS", "HVALS", "KEYS"}
AS_PAIRS = {"HGETALL"}
BY_SIZE = {"SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER"}
SCANS = {"SCAN": 1, "SSCAN": 1, "HSCAN": 2, "ZSCAN": 2}
# Fields of XINFO's replies that name the layout in memory, or a time that has passed.
UNCOMPARED = {b"radix-tree-keys", b"radix-tree-nodes", b"idle", b"inactive", b"seen-time", b"active-time"}


def items(reply, size):
    """The elements, in groups of `size`, in one order."""
    frozen = list(map(repr, reply))
    return sorted(zip(*[frozen[at::size] for at in range(size)]))


def without_times(reply):
    """XINFO's reply without what may differ."""
    if not isinstance(reply, list):
        return reply
    kept, at = [reply[0]], 1
    while at < len(reply):
        if isinstance(reply[at], bytes) and reply[at] in UNCOMPARED:
            at += 2
            continue
        kept.append(without_times(reply[at]))
        at += 1
    return kept


def pending(reply):
    """XPENDING's entries without the time that they have been pending."""
    return [entry[:3] + entry[4:] if isinstance(entry, list) and len(entry) == 5 else entry for entry in reply]


def comparable(command, reply):
    """A form of a reply that is equal whenever the replies mean the same."""
    name = command[0].upper()
    if name == "OBJECT" and reply == b"skiplist":
        # SORT leaves a skip list behind in Redis, however small the sorted set.
        return b"listpack"
    if isinstance(reply, Error) or not isinstance(reply, list):
        return "something" if name in BY_SIZE | {"RANDOMKEY"} and isinstance(reply, bytes) else reply
    if name in SCANS:
        return items(reply[2][1:], SCANS[name])
    if name.startswith("SORT") and "nosort" in command and "LIMIT" in command:
        return [reply[0], len(reply)]
    if name in AS_SET or name.startswith("SORT") and "nosort" in command:
        return [reply[0]] + items(reply[1:], 1)
    if name in AS_PAIRS:
        return [reply[0]] + items(reply[1:], 2)
    if name in BY_SIZE:
        return [reply[0], len(reply)]
    if name == "XINFO":
        return without_times(reply)
    if name == "XPENDING":
        return pending(reply)
    if name.startswith("GEO") and name != "GEOPOS" and "ASC" not in command and "DESC" not in command:
        if "COUNT" in command:
            return [reply[0], len(reply)] if "ANY" in command else reply
        return [reply[0]] + items(reply[1:], 1)
    return reply
