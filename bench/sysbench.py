"""sysbench as the benchmarks run it: its own scripts and those in `bench/lua`, what it prints as numbers."""

import os
import re
import subprocess
import sys

LUA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lua")
# A deadlock, a row that has changed, a lock that was waited for too long: the transaction is tried again.
AGAIN = "--mysql-ignore-errors=1213,1020,1205"


def arguments(server, script, database, *more):
    """The command. `script`: a name in bench/lua, or one of sysbench's own."""
    own = os.path.join(LUA, script + ".lua")
    return ["sysbench", own if os.path.exists(own) else script, "--db-driver=mysql", "--mysql-host=127.0.0.1",
            f"--mysql-port={server.port}", "--mysql-user=root", f"--mysql-db={database}", AGAIN, *more]


def environment():
    return {**os.environ, "LUA_PATH": os.path.join(LUA, "?.lua") + ";;"}


def sysbench(server, script, command, database, *more, timeout=3600):
    """Runs it to its end; returns what it printed. Ends the benchmark if it fails."""
    done = subprocess.run([*arguments(server, script, database, *more), command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=timeout, env=environment())
    if done.returncode:
        sys.exit(f"sysbench {script} {command} in {database} of {server.directory}: {first_fault(done.stdout)}")
    return done.stdout


def first_fault(text):
    """What it says of the first error, without the long texts of statements."""
    faults = re.findall(r"^FATAL: .*$", text, re.M) or text.splitlines()[-5:]
    return "; ".join(fault[:300] for fault in sorted(faults, key=len)[:2])


def start(server, script, database, *more):
    """Begins a run beside what the caller does; `ended` waits for it."""
    return subprocess.Popen([*arguments(server, script, database, *more), "run"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, env=environment())


def ended(process):
    text = process.communicate(timeout=3600)[0]
    if process.returncode:
        sys.exit(f"sysbench {' '.join(process.args[1:])}: {first_fault(text)}")
    return text


def percentile(histogram, share):
    """Of (value, count) pairs in ascending order."""
    left = share * sum(count for _, count in histogram)
    for value, count in histogram:
        left -= count
        if left <= 0:
            return value
    return histogram[-1][0] if histogram else 0.0


def figures(text):
    """Transactions a second, and latencies in milliseconds, of a run with --histogram=on."""
    rate = float(re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", text)[1])
    histogram = [(float(value), int(count)) for value, count in re.findall(r"^\s*([\d.]+) \|\**\s+(\d+)$", text, re.M)]
    again = re.search(r"ignored errors:\s+(\d+)", text)
    return {"rate": rate, **{f"p{p}_ms": percentile(histogram, p / 100) for p in (50, 95, 99)},
            "max_ms": float(re.search(r"max:\s+([\d.]+)", text)[1]), "tried_again": int(again[1]) if again else 0}


def seconds(text):
    """(second, transactions in it) from the output of a run with --report-interval=1."""
    return [(int(at), float(tps)) for at, tps in re.findall(r"^\[ (\d+)s \].*? tps: ([\d.]+)", text, re.M)]


def timed(server, script, database, threads, time, *more):
    """A run of `time` seconds; its figures."""
    return figures(sysbench(server, script, "run", database, f"--threads={threads}", f"--time={time}", "--histogram=on", *more))
