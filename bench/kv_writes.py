"""The mode `tiered-writes` of kv-redis: write-back beside write-through, with another server as storage and with the engine.

* `redis`: `terrace kv --storage redis://…`, a redis-server (appendonly yes, everysec) behind a proxy that delays what passes, half of DELAY_MS each way. Write-back has its log in a
  directory (everysec).
* `engine`: `terrace kv --dir`, appendfsync always.

Workloads as YCSB has them, with CLIENTS_WRITES connections that wait for each reply (16, as TierBase's single-thread runs): load (inserts of distinct keys), A (half reads, half updates, Zipf 0.99).
The generator is one process of Python and the proxy another: the commands a second that they can do stand beside (`generator`: the same load on a `terrace kv` in memory).
A load ends with the last reply; how long write-back takes after that until everything is stored is `drain`. `calls` are calls of storage a command, by INFO.

Environment: RECORDS (300000), OPERATIONS of A (200000), VALUE_BYTES (256), CLIENTS_WRITES, DELAY_MS (1), RUNS, PLACES (redis,engine). TERRACE is the binary.
"""

import itertools
import os
import random
import select
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections import deque

RECORDS, OPERATIONS, VALUE_BYTES, CLIENTS = (
    int(os.environ.get(name, default))
    for name, default in (("RECORDS", 300000), ("OPERATIONS", 200000), ("VALUE_BYTES", 256), ("CLIENTS_WRITES", 16))
)
DELAY_MS = float(os.environ.get("DELAY_MS", 1))
PLACES = os.environ.get("PLACES", "redis,engine").split(",")
POLICIES = ("write-through", "write-back")


def delay(port, below, half_s):
    """Passes connections to `port` on to `below`, all bytes `half_s` late."""
    listener = socket.create_server(("127.0.0.1", port))
    peers, late = {}, deque()
    while True:
        wait = max(0, late[0][0] - time.monotonic()) if late else None
        readable, _, _ = select.select([listener, *peers], [], [], wait)
        now = time.monotonic()
        for one in readable:
            if one is listener:
                near, far = listener.accept()[0], socket.create_connection(("127.0.0.1", below))
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[near], peers[far] = far, near
            elif one in peers:
                late.append((now + half_s, peers[one], one.recv(1 << 20)))
        while late and late[0][0] <= time.monotonic():
            _, to, data = late.popleft()
            if data:
                to.sendall(data)
            elif to in peers:
                for end in (to, peers[to]):
                    peers.pop(end, None)
                    end.close()


def drive(port, requests):
    """Sends the requests, one at a time on each connection; returns commands a second and the p99 in milliseconds. Each reply is shorter than a read."""
    poll = select.epoll()
    connections, sent_at, took = {}, {}, []
    requests = iter(requests)
    for request in itertools.islice(requests, CLIENTS):
        one = socket.create_connection(("127.0.0.1", port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections[one.fileno()] = one
        poll.register(one.fileno(), select.EPOLLIN)
        sent_at[one.fileno()] = time.perf_counter()
        one.send(request)
    began, left = time.perf_counter(), len(connections)
    while left:
        for number, _ in poll.poll():
            one = connections[number]
            reply = one.recv(65536)
            assert reply[-2:] == b"\r\n" and reply[:1] != b"-", reply
            now = time.perf_counter()
            took.append(now - sent_at[number])
            request = next(requests, None)
            if request is None:
                left -= 1
                continue
            sent_at[number] = now
            one.send(request)
    seconds = time.perf_counter() - began
    for one in connections.values():
        one.close()
    return len(took) / seconds, statistics.quantiles(took, n=100)[98] * 1e3


def inserts(request):
    value = b"v" * VALUE_BYTES
    return (request(("SET", b"user%012d" % (number * 2654435761 % (1 << 40)), value)) for number in range(RECORDS))


def updates(request, seed):
    """Half reads, half updates."""
    chance = random.Random(seed)
    weights = list(itertools.accumulate(1 / rank**0.99 for rank in range(1, RECORDS + 1)))
    places = list(range(RECORDS))
    random.Random(1).shuffle(places)
    value = b"w" * VALUE_BYTES
    ops = []
    for rank in chance.choices(range(RECORDS), cum_weights=weights, k=OPERATIONS):
        key = b"user%012d" % (places[rank] * 2654435761 % (1 << 40))
        ops.append(request(("GET", key)) if chance.random() < 0.5 else request(("SET", key, value)))
    return ops


def tiering(server):
    lines = server.ask("INFO", "tiering").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def calls(server):
    fields = tiering(server)
    return int(fields.get("tiering_writes", 0)) + int(fields.get("tiering_read_calls", 0))


def drained(server):
    began = time.monotonic()
    while tiering(server).get("tiering_dirty_keys", "0") != "0":
        time.sleep(0.01)
    return time.monotonic() - began


def start(place, policy, data, kv_redis):
    """Starts a contestant; returns it and what has to end with it."""
    os.makedirs(data)
    port, others, more = kv_redis.free_port(), [], ""
    if place == "redis":
        redis_server, below, proxy = os.path.join(data, "redis-server"), kv_redis.free_port(), kv_redis.free_port()
        os.symlink(shutil.which("redis-check-rdb"), redis_server)
        os.makedirs(f"{data}/below")
        line = [redis_server, "--port", str(below), "--save", "", "--appendonly", "yes", "--dir", f"{data}/below"]
        others.append(kv_redis.Server("redis", line, below, f"{data}/redis.log"))
        half_s = DELAY_MS / 2000
        line = [sys.executable, os.path.abspath(__file__), "delay", str(proxy), str(below), str(half_s)]
        others.append(kv_redis.Server("proxy", line, proxy, f"{data}/proxy.log"))
        more = f"storage redis://127.0.0.1:{proxy}\nappendfsync everysec\n"
        if policy == "write-back":
            more += f"dir {data}/log\n"
    elif place == "engine":
        more = f"dir {data}/data\nappendfsync always\n"
    settings = f"{data}/kv.conf"
    with open(settings, "w") as file:
        file.write(f'port {port}\nsave ""\n{more}')
        if place != "memory":
            file.write(f"tiering-write-policy {policy}\n")
    server = kv_redis.Server(f"{place}-{policy}", [os.environ["TERRACE"], "kv", settings], port, f"{data}/kv.log")
    return server, [server, *others]


def run(directory, runs, kv_redis):
    """Rounds of both policies in turn, on empty servers. Returns the rows."""
    rows, ended = [], []
    for place in PLACES:
        found = {policy: {"load": [], "A": []} for policy in POLICIES}
        for number in range(runs):
            operations = updates(kv_redis.request, number)
            for policy in POLICIES if number % 2 == 0 else POLICIES[::-1]:
                data = os.path.join(directory, f"{place}-{policy}-{number}")
                server, ended = start(place, policy, data, kv_redis)
                try:
                    for workload, requests, count in (("load", inserts(kv_redis.request), RECORDS), ("A", operations, OPERATIONS)):
                        before = calls(server)
                        rate, p99 = drive(server.port, requests)
                        drain = drained(server)
                        made = calls(server) - before
                        found[policy][workload].append({"rate": rate, "p99_ms": p99, "drain_s": drain, "calls": made / count})
                    assert tiering(server)["tiering_mode"] == policy
                finally:
                    for one in ended:
                        one.stop()
                shutil.rmtree(data)
        for workload in ("load", "A"):
            row = {"mode": "tiered-writes", "place": place, "workload": workload, "runs": {policy: found[policy][workload] for policy in POLICIES}}
            text = f"tiered-writes {place:7}{workload:5}"
            for policy in POLICIES:
                middle = {field: statistics.median(one[field] for one in found[policy][workload]) for field in ("rate", "p99_ms", "drain_s", "calls")}
                row[policy] = middle
                text += f"  {policy} {middle['rate']:8,.0f}/s p99 {middle['p99_ms']:6.2f} ms calls {middle['calls']:.5f} drain {middle['drain_s']:.2f} s"
            through, back = (found[policy][workload] for policy in POLICIES)
            row["ratio"] = statistics.median(b["rate"] / a["rate"] for a, b in zip(through, back))
            print(f"{text}  ratio {row['ratio']:.2f}", flush=True)
            rows.append(row)
    data = os.path.join(directory, "memory")
    server, ended = start("memory", "", data, kv_redis)
    try:
        rate = drive(server.port, inserts(kv_redis.request))[0]
    finally:
        for one in ended:
            one.stop()
    print(f"tiered-writes generator {rate:,.0f}/s", flush=True)
    rows.append({"mode": "tiered-writes", "generator": rate})
    return rows


if __name__ == "__main__":
    assert sys.argv[1] == "delay"
    delay(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
