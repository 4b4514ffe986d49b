"""kv-redis: `terrace kv` beside redis-server 7.0.15, under redis-benchmark, on the same machine in the same run.

Both servers run all the time; rounds alternate between them, and each row is the median of its rounds. A row is a mode, a command, a size, a pipeline:

* memory: data in memory alone, Redis without AOF;
* everysec, always: `terrace kv --dir` with that `appendfsync`, Redis with its AOF;
* bytes: resident memory a key, for a million values of 256 bytes with keys of 16 bytes;
* tiered-writes (only when MODES names it): write-back beside write-through, see kv_writes.py.

The table has commands a second and CPU microseconds of the server a command: the generator takes CPU too, and with two cores it may be the bound.
A turn begins when the server is quiet, and the CPU of what it does in the background afterwards is the turn's.
`mixed` is 45 clients that read beside 5 that write.

Environment: RUNS (rounds), SECONDS (of a cell, about), MODES, COMMANDS, BYTES (sizes of values), PIPELINES, CLIENTS, KEYS, LOADED (keys of `bytes`), IO_THREADS (a number
or list: `terrace kv` with as many event loops at most, each a contestant), REDIS_IO_THREADS, POLICIES (values of `tiering-write-policy`, each a contestant; without it the
default), BASE (another binary, a contestant of the name `base`). A run of everything takes about a quarter of an hour; RUNS=1 SECONDS=0.5 BYTES=64
takes about one.
"""

import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time

import kv_writes


def listed(name, default):
    return os.environ.get(name, default).split(",")


RUNS, CLIENTS, KEYS, LOADED = (
    int(os.environ.get(name, default)) for name, default in (("RUNS", 5), ("CLIENTS", 50), ("KEYS", 100000), ("LOADED", 1000000))
)
SECONDS = float(os.environ.get("SECONDS", 1))
MODES = listed("MODES", "memory,everysec,always,bytes")
COMMANDS = listed("COMMANDS", "get,set,incr,hset,lpush,zadd,mixed")
SIZES = [int(size) for size in listed("BYTES", "64,1024")]
PIPELINES = [int(depth) for depth in listed("PIPELINES", "1,16")]
IO_THREADS = [int(count) for count in listed("IO_THREADS", "1")]
POLICIES = [policy for policy in listed("POLICIES", "") if policy]
REDIS_IO_THREADS = int(os.environ.get("REDIS_IO_THREADS", 1))
# Commands whose values have no size.
UNSIZED = ("incr", "zadd")
TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """One contestant."""

    def __init__(self, name, command, port, log):
        self.name, self.port = name, port
        self.log = open(log, "wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        while True:
            try:
                assert self.ask("PING") == b"+PONG\r\n"
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{name} did not start: {log}") from None
                time.sleep(0.05)

    def ask(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            connection.sendall(request(words))
            return connection.recv(1 << 16)

    def load(self, count, size):
        """Sets `count` keys of the names that redis-benchmark uses."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            value = b"x" * size
            for first in range(0, count, 500):
                last = min(first + 500, count)
                connection.sendall(b"".join(request(("SET", b"key:%012d" % n, value)) for n in range(first, last)))
                left = 5 * (last - first)
                while left:
                    left -= len(connection.recv(left))

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def settle(self):
        """Waits until the server has gone quiet: what it does in the background for one command is not charged to the next."""
        until = time.monotonic() + 20
        before = self.cpu_seconds()
        while time.monotonic() < until:
            time.sleep(0.1)
            now = self.cpu_seconds()
            if now - before <= 0.01:
                return
            before = now

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def request(words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def generator(port, command, size, pipeline, clients, count):
    line = ["redis-benchmark", "-p", str(port), "-t", command, "-d", str(size), "-P", str(pipeline), "-c", str(clients), "-n", str(count), "-r", str(KEYS), "--csv"]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def rate_of(process):
    """Commands a second, and the p99 in milliseconds."""
    lines = process.communicate(timeout=600)[0].decode().splitlines()
    fields = [field.strip('"') for field in lines[-1].split(",")]
    return float(fields[1]), float(fields[6])


def measure(server, command, size, pipeline, count):
    server.ask("FLUSHALL")
    if command in ("get", "mixed"):
        server.load(KEYS, size)
    server.settle()
    before, started = server.cpu_seconds(), time.monotonic()
    if command == "mixed":
        readers, writers = CLIENTS * 9 // 10, CLIENTS - CLIENTS * 9 // 10
        both = [generator(server.port, "get", size, pipeline, readers, count * 9 // 10), generator(server.port, "set", size, pipeline, writers, count // 10)]
        p99 = max(rate_of(process)[1] for process in both)
        rate = count / (time.monotonic() - started)
    else:
        rate, p99 = rate_of(generator(server.port, command, size, pipeline, CLIENTS, count))
    server.settle()
    return {"rate": rate, "p99_ms": p99, "cpu_us": (server.cpu_seconds() - before) / count * 1e6}


def contestants(mode, directory):
    redis_server = os.path.join(directory, "redis-server")
    if not os.path.lexists(redis_server):
        # Debian's redis-check-rdb is the server too, by the name that it is called with.
        os.symlink(shutil.which("redis-check-rdb"), redis_server)
    data = os.path.join(directory, mode)
    shutil.rmtree(data, ignore_errors=True)
    is_durable = mode in ("everysec", "always")
    port = free_port()
    os.makedirs(f"{data}/redis")
    line = [redis_server, "--port", str(port), "--save", "", "--dir", f"{data}/redis", "--io-threads", str(REDIS_IO_THREADS)]
    if is_durable:
        line += ["--appendonly", "yes", "--appendfsync", mode]
    servers = [Server("redis", line, port, f"{data}/redis.log")]
    binaries = {"terrace": os.environ["TERRACE"], **({"base": os.environ["BASE"]} if "BASE" in os.environ else {})}
    for binary, threads, policy in itertools.product(binaries, IO_THREADS, POLICIES if is_durable and POLICIES else [""]):
        port = free_port()
        name = "-".join([binary] + [str(threads)] * (len(IO_THREADS) > 1) + [policy] * (len(POLICIES) > 1 and is_durable))
        settings = f"{data}/{name}.conf"
        with open(settings, "w") as file:
            file.write(f"port {port}\nsave \"\"\nio-threads {threads}\n")
            if is_durable:
                file.write(f"dir {data}/{name}\nappendonly yes\nappendfsync {mode}\n")
            if policy:
                file.write(f"tiering-write-policy {policy}\n")
        servers.append(Server(name, [binaries[binary], "kv", settings], port, f"{data}/{name}.log"))
    return servers


def bytes_a_key(servers):
    found = {}
    for server in servers:
        before = server.resident_bytes()
        server.load(LOADED, 256)
        found[server.name] = (server.resident_bytes() - before) / LOADED
    return found


def cells():
    for command in COMMANDS:
        for size in SIZES if command not in UNSIZED else SIZES[:1]:
            for pipeline in PIPELINES:
                yield command, size, pipeline


def median(rounds, field):
    return statistics.median(one[field] for one in rounds)


def throughput(mode, servers):
    runs = {cell: {server.name: [] for server in servers} for cell in cells()}
    # Each cell is as long as its own first rate says; the first round is a warm-up too.
    counts = {}
    for number in range(RUNS):
        for cell, of_cell in runs.items():
            if cell not in counts:
                rough = measure(servers[0], *cell, 2000 * cell[2] if mode != "always" else 500 * cell[2])
                counts[cell] = max(1000, int(rough["rate"] * SECONDS))
            for server in servers if number % 2 == 0 else reversed(servers):
                of_cell[server.name].append(measure(server, *cell, counts[cell]))
    rows = []
    for (command, size, pipeline), of_cell in runs.items():
        base = median(of_cell["redis"], "rate")
        row = {"mode": mode, "command": command, "bytes": size, "pipeline": pipeline, "runs": of_cell}
        text = f"{mode:9}{command:7}{size if command not in UNSIZED else '-':>6} P{pipeline:<3}"
        for server in servers:
            rate, cpu, p99 = (median(of_cell[server.name], field) for field in ("rate", "cpu_us", "p99_ms"))
            # Round by round, so that what slows the machine for a while slows both sides.
            ratio = statistics.median(a["rate"] / b["rate"] for a, b in zip(of_cell[server.name], of_cell["redis"]))
            row[server.name] = {"rate": rate, "cpu_us": cpu, "p99_ms": p99, "ratio": ratio}
            text += f"  {server.name} {rate:9,.0f}/s {cpu:6.2f} us p99 {p99:7.2f} ms"
            if server.name != "redis":
                text += f"  ratio {ratio:5.2f}"
        assert base > 0
        print(text, flush=True)
        rows.append(row)
    return rows


def main():
    out = os.path.abspath(sys.argv[1])
    directory = os.path.join(out, "kv-redis.data")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    load = os.getloadavg()
    rows, sizes = [], {}
    for mode in MODES:
        servers = []
        if mode == "tiered-writes":
            rows += kv_writes.run(os.path.join(directory, mode), RUNS, sys.modules[__name__])
            continue
        try:
            servers = contestants(mode, directory)
            if mode == "bytes":
                sizes = bytes_a_key(servers)
                for name, count in sizes.items():
                    print(f"bytes a key: {name} {count:.0f}, of Redis's {count / sizes['redis']:.2f}", flush=True)
            else:
                rows += throughput(mode, servers)
        finally:
            for server in servers:
                server.stop()
    print(f"load average at the start: {load[0]:.2f}, at the end: {os.getloadavg()[0]:.2f}")
    with open(os.path.join(out, "kv-redis.json"), "w") as file:
        figures = {"clients": CLIENTS, "keys": KEYS, "runs": RUNS, "seconds": SECONDS, "rows": rows, "bytes_a_key": sizes}
        json.dump({"name": "kv-redis", "load": [load[0], os.getloadavg()[0]], "cores": os.cpu_count(), "figures": figures}, file, indent=2)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
