"""A mixed run on all tiers: money is moved, BLOBs are written, tables change, sizes and rules change, the store fails now and then, and flash has noise in it;
with KILLS, the server is killed, and sometimes flash fails until then. In the end the sums must be right, `terrace check` clean, and memory as at the beginning.

    torture.py DIRECTORY    TIME (seconds), PAYERS, KILLS (seconds between two; 0: none), TROUBLE (seconds between two failures of the store), PORTS (the
                            first to listen on)

Prints a line a minute, and what was found; ends with 1 if anything was.
"""

import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "sql"))
from conftest import TARGET, Server, run  # noqa: E402
from sessions import ACCOUNTS, SCHEMA, START, Auditor, Blobs, Ddl, Far, Noise, Payer, Rules, Sizes, Temporary  # noqa: E402

TIME, PAYERS, KILLS, TROUBLE, PORTS = (int(os.environ.get(name) or default) for name, default in
                                       (("TIME", 7200), ("PAYERS", 4), ("KILLS", 0), ("TROUBLE", 120), ("PORTS", 3310)))
MIB = 1 << 20
PAGE = 16384
# So long after the store has come back errors of statements that met its absence may still come.
AFTERMATH = 20
# A tick that comes so late says that the whole run was stopped (SIGSTOP) or starved: what waited meanwhile may have run out of time.
LATE = 15


class World:
    """The server, its store, and when they were hurt."""

    def __init__(self, directory):
        self.directory, self.hurt, self.since, self.lock = directory, False, float("-inf"), threading.Lock()
        self.ticked, self.stops = time.monotonic(), 0
        self.bucket = os.path.join(directory, "store")
        os.makedirs(os.path.join(self.bucket, "bucket"))
        self.start_store()
        self.place = ["--object=s3://bucket/torture", f"--object-endpoint=http://127.0.0.1:{PORTS + 1}"]
        os.makedirs(os.path.join(directory, "server"))
        self.server = Server(os.path.join(directory, "server"), [
            "--skip-log-bin", "--innodb=OFF", "--default-storage-engine=Aria", "--max-connections=200", "--max-allowed-packet=67108864",
            f"--terrace-memory={96 * MIB}", f"--terrace-memory-max={256 * MIB}", f"--terrace-object-buffer={256 * MIB}", f"--terrace-log={128 * MIB}",
            f"--terrace-flash-path={directory}/flash", f"--terrace-flash={128 * MIB}", "--terrace-sink-after-ms=2000", "--terrace-log-wait-timeout-ms=20000",
            *[option.replace("--object", "--terrace-object") for option in self.place]])
        self.server.port = PORTS
        self.server.start()

    def start_store(self):
        program = os.path.join(TARGET, "debug", "examples", "s3_server")
        self.store = subprocess.Popen([program, self.bucket, str(PORTS + 1)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.store.stdout.readline()
        assert line.startswith("listening on"), line
        os.environ.update(dict(pair.split("=", 1) for pair in line.split() if "=" in pair), AWS_REGION="us-east-1")

    def trouble(self, began):
        """Whether something was wrong at some moment since `began`, or shortly before."""
        self.tick()
        with self.lock:
            return self.hurt or self.since > began - AFTERMATH

    def tick(self):
        """Called each second or more often, so that a stop of the whole run is noticed."""
        with self.lock:
            now = time.monotonic()
            if now - self.ticked > LATE:
                self.since, self.stops = now, self.stops + 1
            self.ticked = now

    def set_hurt(self, hurt):
        with self.lock:
            self.hurt, self.since = hurt, time.monotonic()

    def store_fails(self, seconds, stop):
        self.set_hurt(True)
        self.store.kill()
        self.store.wait()
        stop.wait(seconds)
        self.start_store()
        self.set_hurt(False)

    def flash_is_noise(self, source):
        """Overwrites a part of the images on flash: their checks reject them, and no session notices."""
        with open(os.path.join(self.directory, "flash", "bpe"), "r+b") as device:
            size = device.seek(0, os.SEEK_END)
            for _ in range(size // PAGE // 4):
                device.seek(source.randrange(max(size // PAGE, 1)) * PAGE + source.randrange(8192))
                device.write(source.randbytes(8192))

    def flash_fails(self, stop):
        """What flash had is gone, again and again, until it turns itself off."""
        for _ in range(5):
            os.truncate(os.path.join(self.directory, "flash", "bpe"), 0)
            stop.wait(1)

    def server_dies(self):
        self.set_hurt(True)
        self.server.kill9()
        self.server.start()
        self.set_hurt(False)

    def pid(self):
        """The server's process; 0 if there is none just now."""
        try:
            return int(open(os.path.join(self.server.directory, "pid")).read())
        except (FileNotFoundError, ValueError):
            return 0

    def lives(self):
        return self.hurt or os.path.exists(f"/proc/{self.pid() or 'none'}")

    def memory(self):
        """Resident bytes of the server above what the engine may have."""
        [line] = [line for line in open(f"/proc/{self.pid()}/status") if line.startswith("VmRSS:")]
        [(setting,)] = run(self.server.connect(), "SELECT @@terrace_memory")
        return (int(line.split()[1]) << 10) - int(setting)


def hurt_now_and_then(world, stop, done):
    """Counts what it did in `done`; what went wrong while it did it ends the run."""
    source, next_kill = random.Random(11), time.monotonic() + (KILLS or float("inf"))
    try:
        while not stop.wait(TROUBLE * source.uniform(0.7, 1.3)):
            world.store_fails(source.uniform(3, 15), stop)
            done["store failures"] += 1
            if source.random() < 0.5:
                world.flash_is_noise(source)
                done["noise on flash"] += 1
            elif KILLS and source.random() < 0.3:
                world.flash_fails(stop)
                done["failures of flash"] += 1
            if time.monotonic() > next_kill and not stop.is_set():
                world.server_dies()
                done["kills"] += 1
                next_kill = time.monotonic() + KILLS
    except Exception as error:
        done["failed"] = f"hurting failed: {error!r}"


def watch(world, sessions, stop, began):
    """Looks at memory, each five seconds, and says each minute how it goes: what is done, and the slowest of the minute."""
    samples, said = [], began
    while not stop.wait(5):
        try:
            samples.append((time.monotonic() - began, world.memory()))
        except Exception:
            continue  # the server starts
        if time.monotonic() - said > 60:
            said = time.monotonic()
            done = {}
            for one in sessions:
                count, slowest = done.get(type(one).__name__, (0, 0.0))
                done[type(one).__name__] = count + one.done, max(slowest, one.slowest)
                one.slowest = 0.0
            found = sum(len(one.findings) for one in sessions)
            print(f"{(said - began) / 60:5.0f} min, {samples[-1][1] / MIB:.0f} MiB above the setting, {found} findings; " 
                  + ", ".join(f"{kind} {count} ({slowest:.1f} s)" for kind, (count, slowest) in done.items()), flush=True)
    return samples


def growth(samples):
    """How much memory has grown: the median of the last quarter and that of the second, in bytes."""
    quarter = max(len(samples) // 4, 1)
    middle = [statistics.median(size for _, size in part) for part in (samples[quarter:2 * quarter] or samples, samples[-quarter:])]
    return middle


def look_at_the_end(world, sessions, findings):
    connection = world.server.connect(database="d")
    [(count, total)] = run(connection, "SELECT COUNT(*), SUM(balance) FROM accounts")
    if (count, total) != (ACCOUNTS, ACCOUNTS * START):
        findings.append(f"{count} accounts with {total} in all")
    wrong = run(connection, f"""SELECT id, balance, {START} - COALESCE(paid, 0) + COALESCE(got, 0) AS due FROM accounts
        LEFT JOIN (SELECT payer, SUM(amount) paid FROM ledger GROUP BY payer) p ON payer = id
        LEFT JOIN (SELECT payee, SUM(amount) got FROM ledger GROUP BY payee) g ON payee = id HAVING balance <> due LIMIT 5""")
    if wrong:
        findings.append(f"accounts and their ledger differ: {wrong}")
    for payer in (one for one in sessions if isinstance(one, Payer)):
        [(count,)] = run(connection, f"SELECT COUNT(*) FROM ledger WHERE worker = {payer.number}")
        if not payer.acknowledged <= count <= payer.acknowledged + payer.unknown:
            findings.append(f"payer {payer.number}: {count} moves are there, {payer.acknowledged} were acknowledged and {payer.unknown} may be")
    tables = [name for (name,) in run(connection, "SHOW TABLES")]
    for row in run(connection, "CHECK TABLE " + ", ".join(f"`{name}`" for name in tables)):
        if row[3] != "OK":
            findings.append(f"CHECK TABLE: {row}")


def main():
    directory = os.path.abspath(sys.argv[1])
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    world, stop, calm = World(directory), threading.Event(), threading.Event()
    connection = world.server.connect()
    run(connection, "CREATE DATABASE d CHARACTER SET utf8mb4")
    connection.select_db("d")
    for sql in SCHEMA:
        run(connection, sql)
    kinds = [Payer] * PAYERS + [Auditor, Blobs, Blobs, Far, Far, Noise, Ddl, Temporary, Rules, Sizes]
    sessions = [kind(world.server, n + 1, world.trouble, stop) for n, kind in enumerate(kinds)]
    began, samples, hurts = time.monotonic(), [], {"store failures": 0, "noise on flash": 0, "failures of flash": 0, "kills": 0}
    hurter = threading.Thread(target=hurt_now_and_then, args=(world, calm, hurts))
    watcher = threading.Thread(target=lambda: samples.extend(watch(world, sessions, stop, began)))
    [one.thread.start() for one in sessions]
    hurter.start()
    watcher.start()
    died, told = None, threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())  # ends it sooner, and in order
    while time.monotonic() - began < TIME and not died and not told.is_set():
        time.sleep(1)
        world.tick()
        died = hurts.get("failed")
        if not world.lives():
            time.sleep(5)  # a start that has just begun
            died = None if world.lives() else "the server ended by itself: see its error.log"
    calm.set()
    hurter.join()
    stop.set()
    for thread in [watcher] + [one.thread for one in sessions]:
        thread.join(400)
    findings = [died] if died else []
    findings += [f"{one.thread.name} hangs" for one in sessions if one.thread.is_alive()]
    findings += [what for one in sessions for what in one.findings]
    if not died:
        look_at_the_end(world, sessions, findings)
        world.server.stop()
        code, report = world.server.check(*world.place)
        print(f"terrace check ends with {code}")
        if code:
            findings.append(f"terrace check: {report}")
    world.store.kill()
    world.store.wait()
    early, late = growth(samples)
    print(f"{hurts['store failures']} failures of the store, {hurts['noise on flash']} times noise on flash, which failed {hurts['failures of flash']} times, {hurts['kills']} kills; stopped or starved {world.stops} times")
    print(f"memory above the setting: {early / MIB:.0f} MiB in the second quarter, {late / MIB:.0f} in the last")
    if late > early + max(24 * MIB, abs(early) // 10):
        findings.append(f"memory grows: {early / MIB:.0f} to {late / MIB:.0f} MiB above the setting")
    for kind in dict.fromkeys(type(one).__name__ for one in sessions):
        of = [one for one in sessions if type(one).__name__ == kind]
        errors = {}
        for one in of:
            for code, count in one.errors.items():
                errors[code] = errors.get(code, 0) + count
        print(f"{kind:8} {sum(one.done for one in of):>9} done, errors by code {errors}")
        if not any(one.done for one in of):
            findings.append(f"{kind} did nothing")
    print(f"{len(findings)} findings in {time.monotonic() - began:.0f} s")
    for what in findings[:50]:
        print("  " + what)
    if not findings:
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
