"""Servers whose devices are emulated, as the paper's figures need them: one on memory, flash, a small object buffer and a store,
one with everything on the volume and InnoDB on the machine's own disk in it. And what their storage costs."""

import os
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "sql"))
from conftest import TARGET, Server, end, run  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
# Dollars for a GB for a month: CloudJump III, Table 1.
PRICES = {"memory": 1.6, "flash": 0.05, "volume": 0.152, "object": 0.016}
# As crates/io/src/emulate.rs has it.
PROFILE = ("cloud: flash read 80 µs, write 30 µs, 2000 MB/s, 400000 requests/s; volume read 250 µs, write 250 µs, 1000 MB/s, 50000 requests/s; "
           "object store GET 30 ms, PUT 60 ms, 100 MB/s a stream, 5500 GET/s, 3500 PUT/s. InnoDB, which cannot be emulated: the machine's own disk")


def setting(name, default):
    """A number from the environment."""
    return type(default)(os.environ.get(name) or default)


def listed(name, default, kind=str):
    """Several, by comma."""
    return [kind(one) for one in (os.environ.get(name) or default).split(",") if one]


def place(out, name):
    """An empty directory for the benchmark's data."""
    directory = os.path.join(os.path.abspath(out), f"{name}.data")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    return directory


NEXT_PORT = [setting("PORTS", 0)]


def server_in(directory, options):
    """A server in `directory`, not started. PORTS in the environment: the first of the ports to use."""
    os.makedirs(directory, exist_ok=True)
    server = Server(directory, ["--skip-log-bin", "--max-connections=500", *options])
    if NEXT_PORT[0]:
        server.port, NEXT_PORT[0] = NEXT_PORT[0], NEXT_PORT[0] + 1
    return server


def log_size(data):
    """The same for all sides: a quarter of the data, at least 64 MiB."""
    return max(64 * MIB, min(data // 4, 1 * GIB))


def memory_size(data, percent):
    """The engine needs 10 MiB."""
    return max(12 * MIB, data * percent // 100)


class Tiered:
    """A server on all tiers. `flash`: bytes; it may be another size at the next start. At the first start, which loads, blocks sink as soon as they
    are left alone; later when the object buffer runs low, or as the engine's default says."""

    def __init__(self, directory, data, memory_percent, buffer_percent, *more):
        self.objects = self.store(directory)
        self.flash_path = os.path.join(directory, "flash")
        self.buffer = max(32 * MIB, data * buffer_percent // 100)
        self.base = ["--innodb=OFF", "--default-storage-engine=Aria", f"--terrace-memory={memory_size(data, memory_percent)}",
                     f"--terrace-log={log_size(data)}", f"--terrace-object-buffer={self.buffer}", f"--terrace-object={self.objects}",
                     "--terrace-emulate=cloud", f"--terrace-flash-path={self.flash_path}", *more]
        self.server, self.flash, self.runs, self.loads = server_in(os.path.join(directory, "tiered"), []), 0, False, True

    @staticmethod
    def store(directory):
        """In memory, where there is such a place: a real store's syncs don't hold up the volume's."""
        if os.path.isdir("/dev/shm"):
            return f"/dev/shm/terrace-bench-{os.getpid()}"
        return os.path.join(directory, "objects")

    def start(self, flash, *more):
        """Starts with empty flash of that size."""
        if self.runs:
            self.server.stop()
        shutil.rmtree(self.flash_path, ignore_errors=True)
        os.makedirs(self.flash_path)
        self.flash = flash
        at_once = ["--terrace-sink-after-ms=500"] * self.loads
        self.server.options = ["--skip-log-bin", "--max-connections=500", *self.base, f"--terrace-flash={flash}", *at_once, *more]
        self.server.start()
        self.runs, self.loads = True, False
        return self.server

    def resize(self, flash):
        """Flash of that size from now on, with what is in it."""
        run(self.server.connect(), f"SET GLOBAL terrace_flash={flash}")
        self.flash = flash
        return self.server

    def kept(self, place):
        """The directories that hold its data, and where copies of them are in `place`."""
        return [(one, os.path.join(place, name)) for name, one in (("server", self.server.directory), ("objects", self.objects))]

    def keep(self, place):
        """Stops, and copies aside what volume and store have now, to be put back before a start."""
        self.server.stop()
        self.runs = False
        for one, copy in self.kept(place):
            subprocess.run(["cp", "-a", "--reflink=auto", "--sparse=always", one, copy], check=True)

    def put_back(self, place):
        """Stops, and has what `keep` copied."""
        if self.runs:
            self.server.stop()
            self.runs = False
        for one, copy in self.kept(place):
            shutil.rmtree(one)
            subprocess.run(["cp", "-a", "--reflink=auto", "--sparse=always", copy, one], check=True)

    def cost(self):
        """Dollars a month of what is bought (flash, object buffer) and what is stored in the store."""
        [(stored,)] = run(self.server.connect(), "SELECT SUM(BYTES_OBJECT) FROM information_schema.TERRACE_TABLE_STATISTICS")
        return (self.flash * PRICES["flash"] + self.buffer * PRICES["volume"] + float(stored or 0) * PRICES["object"]) / GIB

    def end(self):
        end(self.server)
        shutil.rmtree(self.objects, ignore_errors=True)
        shutil.rmtree(self.flash_path, ignore_errors=True)


class OnVolume:
    """A server with everything on the volume (emulated), and InnoDB with as much memory on the machine's disk."""

    def __init__(self, directory, data, memory_percent, *more):
        memory, log = memory_size(data, memory_percent), log_size(data)
        self.server = server_in(os.path.join(directory, "volume"), [
            f"--terrace-memory={memory}", f"--terrace-log={log}", f"--terrace-object-buffer={3 * data + GIB}", "--terrace-emulate=cloud",
            f"--innodb-buffer-pool-size={memory}", f"--innodb-log-file-size={log}", "--innodb-flush-log-at-trx-commit=1",
            "--innodb-flush-method=O_DIRECT", *more])

    def start(self):
        self.server.start()
        return self.server

    def cost(self, engine):
        connection = self.server.connect()
        if engine == "Terrace":
            sql = "SELECT SUM(BYTES_VOLUME) FROM information_schema.TERRACE_TABLE_STATISTICS"
        else:
            sql = "SELECT SUM(FILE_SIZE) FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME LIKE '_/%'"
        [(stored,)] = run(connection, sql)
        # Little data may be in memory and the log alone.
        return max(float(stored or 0), 16384) * PRICES["volume"] / GIB

    def end(self):
        end(self.server)


def status(server):
    """The engine's counters and gauges."""
    rows = run(server.connect(), "SHOW GLOBAL STATUS LIKE 'terrace\\_%'")
    return {name.lower().removeprefix("terrace_"): int(value) for name, value in rows if value.lstrip("-").isdigit()}


def settle(server, seconds=300, history=None):
    """Waits until the blocks of a load have sunk, so that the runs don't pay for it, or none has sunk for two seconds; with `history`, also until purge (InnoDB's, too) has at
    most that many transactions left. Returns what is left of both."""
    until = time.monotonic() + seconds
    sunk, since = None, 0
    while True:
        now = status(server)
        if now.get("sink_blocks") != sunk:
            sunk, since = now.get("sink_blocks"), time.monotonic()
        rests = now.get("sink_blocks_waiting", 0) <= 8 or time.monotonic() - since > 2
        theirs = run(server.connect(), "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'")
        left = {"blocks": now.get("sink_blocks_waiting", 0), "history": now.get("history_length", 0) + sum(int(length) for _, length in theirs)}
        if rests and (history is None or left["history"] <= history) or time.monotonic() >= until:
            return left
        time.sleep(0.2)


def warm_up(server, play, seconds, least=0, step=5):
    """`play(seconds)` in short rounds, `least` seconds and then until flash is full, or has grown by less than a hundredth of what it has room for in each of two
    rounds, and the object buffer fills no further, or `seconds` are over. Returns how long it took and how full both are."""
    def full():
        now = status(server)
        return now["flash_pages"] / max(now["flash_pages_max"], 1), 1 - now["object_buffer_slots_free"] / max(now["object_buffer_slots"], 1)
    began, (flash, buffer), steady = time.monotonic(), full(), 0
    while (left := seconds - (time.monotonic() - began)) > 0:
        play(max(1, min(step, round(left))))
        before, (flash, buffer) = (flash, buffer), full()
        steady = steady + 1 if flash - before[0] < 0.01 else 0
        if (flash >= 0.98 or steady >= 2) and buffer - before[1] < 0.02 and time.monotonic() - began >= least:
            break
    return {"seconds": time.monotonic() - began, "flash": flash, "buffer": buffer}


def io(server):
    """Requests and bytes by tier and purpose."""
    rows = run(server.connect(), "SELECT TIER, PURPOSE, REQUESTS, BYTES FROM information_schema.TERRACE_IO")
    return {(tier, purpose): (int(requests), int(size)) for tier, purpose, requests, size in rows}


def moved(now, before, tier):
    """Requests and bytes of a tier between two looks of `io`."""
    keys = [key for key in now if key[0] == tier]
    return tuple(sum(now[key][i] - before.get(key, (0, 0))[i] for key in keys) for i in (0, 1))
