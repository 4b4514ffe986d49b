"""`terrace files` while its daemon and its clients are killed with SIGKILL at random: every read gives one whole version of its file, never an older
one than before, and none fails; the daemon is warm again after each start; dead clients leave no leases.

`TERRACE` names the command's binary; SEED and ROUNDS choose the run.
"""

import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from test_files import Daemon

from terrace.files import Client

FILES = 300
READER = pathlib.Path(__file__).parent / "reader.py"


def body(path: str, version: int, size: int) -> bytes:
    """It says whose it is, and cannot be mixed with another."""
    rest = hashlib.shake_128(f"{path} {version}".encode()).digest(size)
    return f"{path} {version} {hashlib.blake2b(rest).hexdigest()}\n".encode() + rest


class Reader:
    """A process that reads without an end and says what was wrong."""

    def __init__(self, socket: str, seed: int) -> None:
        command = [sys.executable, str(READER), socket, str(seed), str(FILES)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline() == "reading\n"

    def end(self, kill: bool) -> str:
        """What was wrong, and the number of its reads."""
        if kill:
            self.process.kill()
        assert self.process.stdin is not None
        said, _ = self.process.communicate()
        return said.strip()


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    yield tmp_path


def test_no_read_is_wrong_or_fails_while_daemon_and_clients_are_killed(place: pathlib.Path) -> None:
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    options = ("--freshness", "ttl=200ms", "--flash", f"{place}/flash:256M")
    daemon = Daemon(place, *options)
    versions = [0] * FILES
    sizes = [chance.choice((100, 10_000, 100_000, 300_000)) if number % 100 else 9_000_000 for number in range(FILES)]
    for number in range(FILES):
        daemon.put(f"f/{number}", body(f"f/{number}", 0, sizes[number]))
    readers = [Reader(daemon.socket, chance.random().__hash__()) for _ in range(4)]
    wrong, reads, restored = [], 0, 0
    rounds = int(os.environ.get("ROUNDS", 16))
    for turn in range(rounds):
        for _ in range(10):
            number = chance.randrange(FILES)
            versions[number] += 1
            daemon.put(f"f/{number}", body(f"f/{number}", versions[number], sizes[number]))
        time.sleep(chance.random() * 0.5)  # Not waited for: the moment of the kill is to be any.
        if turn % 2:
            daemon.process.kill()
            daemon.process.wait()
            daemon = Daemon(place, *options)
            with Client(daemon.socket) as client:
                flash = json.loads(client.status())["flash"]
                while flash["restoring"]:
                    flash = json.loads(client.status())["flash"]
                restored += flash["restored"]
        else:
            which = chance.randrange(len(readers))
            said = readers[which].end(kill=True)
            wrong += [said] if said else []
            readers[which] = Reader(daemon.socket, turn)
    for reader in readers:
        *failures, count = reader.end(kill=False).splitlines()
        wrong += failures
        reads += int(count)
    assert not wrong, "\n".join(wrong)
    assert reads > 0 and restored > 0, "there was no load, or nothing was warm after a crash"
    with Client(daemon.socket) as client:
        until = time.monotonic() + 30
        while json.loads(client.status())["blocks_not_evictable"]:
            assert time.monotonic() < until, "leases of clients that are gone"
    daemon.stop()


def test_files_that_were_in_memory_when_the_daemon_was_killed_are_read_from_flash(place: pathlib.Path) -> None:
    options = ("--freshness", "immutable", "--flash", f"{place}/flash:256M")
    daemon = Daemon(place, *options)
    bodies = {f"f/{number}": body(f"f/{number}", 0, 100_000) for number in range(FILES)}
    for path, one in bodies.items():
        daemon.put(path, one)
    with Client(daemon.socket) as client:
        assert dict(client.read_many(list(bodies))) == bodies
        # What was written to flash; the list of the last few MB of it may be lost. However slow the device is, everything is written.
        while (flash := json.loads(client.status())["flash"])["fills"] < FILES:
            assert flash["off"] is None, flash
    daemon.process.kill()
    daemon.process.wait()
    started = time.monotonic()
    daemon = Daemon(place, *options)
    assert time.monotonic() - started < 10, "a start does not read what flash has"
    with Client(daemon.socket) as client:
        while json.loads(client.status())["flash"]["restoring"]:
            pass
        before = json.loads(client.status())
        assert before["flash"]["restored"] > FILES // 2, before
        assert dict(client.read_many(list(bodies))) == bodies
        after = json.loads(client.status())
        assert after["flash"]["hits"] >= before["flash"]["restored"] > 0
        assert after["store_read_bytes"] < (FILES - before["flash"]["restored"] + 1) * 101_000, "what flash has is not fetched"
    daemon.stop()


def test_a_reader_by_shared_memory_sees_what_a_successor_of_its_daemon_wrote(place: pathlib.Path) -> None:
    daemon = Daemon(place, "--freshness", "immutable")
    daemon.put("f", b"before")
    old = Client(daemon.socket)
    assert old.read("f") == old.read("f") == b"before"
    daemon.process.kill()
    daemon.process.wait()
    daemon = Daemon(place, "--freshness", "immutable")
    with Client(daemon.socket) as client:
        client.write("f", [b"after"])
    with pytest.raises(ConnectionError):
        old.read("f")
    daemon.stop()
