#!/usr/bin/env python3
"""Sends random commands to redis-server 7.0 and to `terrace kv`, and compares every answer.

    run.py [--seconds 60] [--seed N] [--modes memory,write-through,write-back,redis-through,redis-back]

Starts both servers itself, one pair after another: in memory, with a directory, and with another redis-server as storage, with a memory so small that values are evicted and fetched again. A round
is a thousand commands, one by one or in pipelines, as RESP2 or RESP3, some within MULTI and some from a script. After it the values of all keys are compared,
and each value goes to the other server by DUMP and RESTORE. With a storage tier our server is killed and started again now and then. A round that differs is run
again without ever more of its commands as long as it still differs; what is left is printed. The exit code is then 1.
"""

import argparse
import pathlib
import random
import shutil
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]

from collection_commands import KEYS as COLLECTION_KEYS, CollectionCommands
from comparing import comparable
from connection import Connection, Error
from plain_commands import KEYS as PLAIN_KEYS, PlainCommands
from servers import real_redis, terrace

# A position made of any score means nothing in either server, nor does an order by members where scores differ.
KEYS = [key for key in COLLECTION_KEYS + PLAIN_KEYS if key != "g1"]
PLAIN_NAMES = [key for key in KEYS if key not in ("x1", "x2")]
# What a script says that it uses.
DECLARED = [*KEYS, "g1"]
MODES = {
    "memory": None,
    "write-through": "maxmemory 64mb\nappendfsync always\ntiering-write-policy write-through\n",
    "write-back": "maxmemory 64mb\nappendfsync always\ntiering-write-policy write-back\n",
    "redis-through": "maxmemory 64mb\n",
    "redis-back": "maxmemory 64mb\nappendfsync always\ntiering-dirty-max-ms 50\n",
}
# Not sent within MULTI or from scripts, or never.
OUTSIDE = {"SELECT", "MULTI", "EXEC", "FLUSHALL", "FLUSHDB", "MOVE", "KEYS", "SCAN", "RANDOMKEY", "DBSIZE"}
BLOCKING = {"BLPOP", "BRPOP", "BLMOVE", "BLMPOP", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX", "BZMPOP"}
SCRIPT = "local r = redis.pcall(unpack(ARGV)) return r"


class Steps:
    """A round: a list of steps, each a list of commands that go out together."""

    def __init__(self, seed, stored):
        self.random, self.stored = random.Random(seed), stored
        self.collections, self.plain = CollectionCommands(self.random), PlainCommands(self.random)

    def refused(self, command):
        """With a storage tier, keys must be named that a command within MULTI or a script reads."""
        return self.stored and command[0].startswith("SORT") and ("GET" in command or "BY" in command)

    def command(self):
        command = self.collections.next() if self.random.random() < 0.5 else self.plain.next(PLAIN_NAMES)
        # A SCAN that loses its COUNT returns a part of the keys, another one in each server.
        if self.random.random() < 0.01 and command[0] != "SCAN":
            command = command[: self.random.randint(1, len(command))]
        return command

    def inner(self):
        while True:
            command = self.command()
            if command[0] not in OUTSIDE | BLOCKING and not self.refused(command):
                return command

    def step(self):
        roll = self.random.random()
        if roll < 0.05:
            return [["MULTI"], *[self.inner() for _ in range(self.random.randint(1, 6))], [self.random.choice(["EXEC", "EXEC", "DISCARD"])]]
        if roll < 0.08:
            inner = self.inner()
            return [["EVAL", SCRIPT, str(len(DECLARED)), *DECLARED, *inner]]
        if roll < 0.2:
            return [self.command() for _ in range(self.random.randint(2, 20))]
        return [self.command()]


def answers(connection, step):
    for command in step:
        connection.send(command)
    return [connection.read() for _ in step]


def from_script(reply):
    """Lua's numbers are floats: what an integer beyond their precision becomes is the processor's affair."""
    is_large = isinstance(reply, tuple) and reply[0] == ":" and abs(int(reply[1])) > 1 << 53
    return "a large integer" if is_large else reply


def comparable_step(step, replies):
    """The replies' forms: those within EXEC and EVAL belong to the commands that are run there."""
    forms, queued = [], []
    for command, reply in zip(step, replies):
        name = command[0].upper()
        if name == "EVAL":
            forms.append(from_script(comparable(command[3 + len(DECLARED) :], reply)))
        elif name == "EXEC" and isinstance(reply, list) and len(reply) == len(queued) + 1:
            forms.append([comparable(*pair) for pair in zip(queued, reply[1:])])
        else:
            if reply == ("+", b"QUEUED"):
                queued.append(command)
            forms.append(comparable(command, reply))
    return forms


READS = {
    b"string": [["GET"]], b"list": [["LRANGE", 0, -1]], b"set": [["SMEMBERS"]], b"hash": [["HGETALL"]], b"zset": [["ZRANGE", 0, -1, "WITHSCORES"]],
    b"stream": [["XRANGE", "-", "+"], ["XINFO", "GROUPS"]],
}


def value(connection, key):
    """A key's type, expiry time and value, in a comparable form."""
    kind = connection.call("TYPE", key)[1]
    found = [kind, connection.call("PEXPIRETIME", key)]
    for read in READS.get(kind, []):
        command = [read[0], read[1], key] if read[0] == "XINFO" else [read[0], key, *read[1:]]
        reply = connection.call(*command)
        if kind == b"string" and reply.startswith(b"HYLL"):
            # The cached count is not stored: PFCOUNT is a read.
            reply = reply[:8] + reply[16:]
        found.append(comparable(command, reply))
    return found


class Difference(Exception):
    pass


def compare_values(pair):
    for db in (0, 1):
        for connection in pair:
            connection.call("SELECT", db)
        listed = [sorted(connection.call("KEYS", "*")[1:]) for connection in pair]
        if listed[0] != listed[1]:
            raise Difference(f"keys of database {db}: {listed}")
        for key in listed[0]:
            values = [value(connection, key) for connection in pair]
            if values[0] != values[1]:
                raise Difference(f"the value of {key} in database {db}:\nreference: {values[0]!s:.1500}\nserver:    {values[1]!s:.1500}")
            for giver, taker in (pair, pair[::-1]):
                dumped = giver.call("DUMP", key)
                restored = taker.call("RESTORE", "restored", 0, dumped, "REPLACE")
                carried = value(taker, "restored")
                if isinstance(restored, Error) or carried[2:] != values[0][2:]:
                    raise Difference(f"{key} by DUMP and RESTORE: {restored}, {carried!s:.1500}\nwas {values[0]!s:.1500}")
            for connection in pair:
                connection.call("DEL", "restored")
    for connection in pair:
        connection.call("SELECT", 0)


def play(pair, steps, resp3):
    """Plays the steps on two empty servers; raises at the first difference."""
    for connection in pair:
        connection.call("HELLO", "3" if resp3 else "2")
        for command in (["DISCARD"], ["SELECT", 0], ["FLUSHALL"]):
            connection.call(*command)
    for number, step in enumerate(steps):
        replies = [answers(connection, step) for connection in pair]
        forms = [comparable_step(step, found) for found in replies]
        if forms[0] != forms[1]:
            at = next(at for at in range(len(step)) if forms[0][at] != forms[1][at])
            raise Difference(f"step {number}, {shown(step[at])}\nreference: {replies[0][at]!s:.1500}\nserver:    {replies[1][at]!s:.1500}")
    compare_values(pair)


def shown(command):
    return " ".join(arg if len(arg) < 60 else f"{arg[:8]}…({len(arg)})" for arg in command)


def fails(pair, steps, resp3):
    try:
        play(pair, steps, resp3)
    except Difference as difference:
        return difference
    return None


def shrunk(pair, steps, resp3, until):
    """The steps without those that the difference does not need, as far as the time reaches."""
    apart = [part for step in steps for part in ([step] if step[0] == ["MULTI"] else [[command] for command in step])]
    steps = apart if fails(pair, apart, resp3) else steps
    size = max(len(steps) // 2, 1)
    while size and time.monotonic() < until:
        at = 0
        while at < len(steps) and time.monotonic() < until:
            fewer = steps[:at] + steps[at + size :]
            if fails(pair, fewer, resp3):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


class Pair:
    """Both servers of a mode."""

    def __init__(self, mode, directory):
        self.mode, self.settings, self.directory = mode, MODES[mode], directory
        (directory / "redis").mkdir(parents=True)
        self.reference, self.ours, self.below = real_redis(directory / "redis"), None, None
        if mode.startswith("redis"):
            (directory / "below").mkdir()
            self.below = real_redis(directory / "below")
        self.start()

    def start(self):
        options = []
        if self.settings:
            file = self.directory / "settings.conf"
            file.write_text(self.settings)
            options = [file]
            if self.below:
                options += ["--storage", f"redis://127.0.0.1:{self.below.port}"]
            if self.mode != "redis-through":
                options += ["--dir", self.directory / "ours"]
        self.ours = terrace(*options)

    def connections(self):
        return Connection(self.reference.port), Connection(self.ours.port)

    def kill_ours(self):
        if self.settings:
            self.ours.kill()
            self.start()

    def end(self):
        self.reference.kill()
        self.ours.kill()
        if self.below:
            self.below.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def run(mode, seed, until, length, shrink_seconds):
    """Plays rounds until the time has come. Returns the number of commands, and the number of rounds that differ."""
    pair = Pair(mode, pathlib.Path(tempfile.mkdtemp(prefix="terrace-differ-")) / "servers")
    commands = differing = 0
    try:
        while time.monotonic() < until:
            made, resp3 = Steps(seed, pair.settings is not None), seed % 3 == 0
            steps = [made.step() for _ in range(length)]
            connections = pair.connections()
            try:
                difference = fails(connections, steps, resp3)
                if not difference and seed % 4 == 1:
                    pair.kill_ours()
                    connections = pair.connections()
                    try:
                        if pair.settings:
                            compare_values(connections)
                    except Difference as after:
                        difference = Difference(f"after a kill: {after}")
                if difference:
                    differing += 1
                    print(f"{mode}, seed {seed}, RESP{3 if resp3 else 2} differs: {difference}", flush=True)
                    if "after a kill" not in str(difference):
                        left = shrunk(connections, steps, resp3, time.monotonic() + shrink_seconds)
                        print(f"{fails(connections, left, resp3)}\nby:")
                        for step in left[-40:]:
                            print("   ", " | ".join(map(shown, step)), flush=True)
            except (ConnectionError, OSError) as error:
                differing += 1
                print(f"{mode}, seed {seed}: {error!r}; {''.join(pair.ours.lines)}", flush=True)
                pair.end()
                pair = Pair(mode, pathlib.Path(tempfile.mkdtemp(prefix="terrace-differ-")) / "servers")
            commands += sum(map(len, steps))
            seed += 1
    finally:
        pair.end()
    return commands, differing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--length", type=int, default=1000, help="steps of a round")
    parser.add_argument("--shrink-seconds", type=float, default=30)
    options = parser.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    modes = options.modes.split(",")
    failed = False
    for mode in modes:
        commands, differing = run(mode, seed, time.monotonic() + options.seconds / len(modes), options.length, options.shrink_seconds)
        print(f"{mode}: {commands} commands compared from seed {seed}, {differing} rounds differ", flush=True)
        failed |= differing > 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
