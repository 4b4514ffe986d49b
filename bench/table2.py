"""table2: CloudJump III, Table 2: snapshots, backups, restores and clones of a server on emulated tiers, under a read-write load.

For each of SIZES: sysbench's read-write mix runs all the time, and a session beside it updates one row of a small table again and again. The load is measured alone, then beside a
snapshot (`SET GLOBAL terrace_copy_to`, whose time is that of the whole statement: all of the volume is copied) and a full backup (`terrace backup create`). Then a share of all rows is
changed and sinks, and a second snapshot and an incremental backup follow, for each of SHARES. At last the newest backup is restored with `--attach` and with all objects, and a copy is cloned; each until a
server on the result has answered one row by its primary key.

The server's tiers are emulated. The command's requests are not: it reads and writes directories as fast as they are. RATE limits it.
Environment: SIZES (GB of rows, by comma), SHARES (percent of the rows that change), CLIENTS, TIME (seconds of the load alone), WARM_UP, FLASH, MEMORY, BUFFER (percent of the data), SINK_AFTER (ms), RATE (as 50M), PORTS.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time

import paper
import report
from sysbench import sysbench, start
from tiers import PROFILE, TARGET, Tiered, end, listed, place, run, server_in, setting, settle

SIZES, SHARES = listed("SIZES", "0.2,1", float), listed("SHARES", "1,10", float)
CLIENTS, TIME, WARM_UP = setting("CLIENTS", 4), setting("TIME", 20), setting("WARM_UP", 20)
FLASH, MEMORY, BUFFER, RATE, SINK_AFTER = setting("FLASH", 20), setting("MEMORY", 10), setting("BUFFER", 20), setting("RATE", ""), setting("SINK_AFTER", 1000)
TABLES, ROW, LOAD = 4, 220, "oltp_read_write"
TERRACE = os.environ.get("TERRACE") or os.path.join(TARGET, "release", "terrace")
MB = 1e6


def terrace(*arguments):
    """The command's answer, and the seconds that it took."""
    since = time.monotonic()
    done = subprocess.run([TERRACE, *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=3600)
    if done.returncode:
        sys.exit(f"terrace {' '.join(arguments)}: {done.stderr or done.stdout}")
    return json.loads(done.stdout), time.monotonic() - since


class Beside:
    """The load: sysbench, and a session that updates a row and notes when each update began and how long it took."""

    def __init__(self, server, options):
        self.server, self.options, self.updates, self.over, self.fault = server, options, [], False, None

    def __enter__(self):
        self.sysbench = start(self.server, LOAD, "d", f"--threads={CLIENTS}", "--time=0", "--rand-type=uniform", *self.options)
        self.thread = threading.Thread(target=self.update)
        self.thread.start()
        return self

    def update(self):
        try:
            connection, n = self.server.connect(database="d"), 0
            while not self.over:
                since = time.monotonic()
                run(connection, f"UPDATE probe SET v = v + 1 WHERE id = {n % 100 + 1}")
                self.updates.append((since, time.monotonic() - since))
                n += 1
        except Exception as fault:
            self.fault = fault

    def __exit__(self, *_):
        self.over = True
        self.thread.join()
        died = self.sysbench.poll()
        self.sysbench.terminate()
        text = self.sysbench.communicate()[0]
        if died is not None or self.fault:
            sys.exit(f"the load ended early: {self.fault or text[-2000:]}")

    def commits(self):
        return sum(int(value) for _, value in run(self.server.connect(), "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_commit', 'Com_update')"))

    def window(self, work):
        """What `work` returns, its seconds, and how the load did meanwhile."""
        before, since = self.commits(), time.monotonic()
        found = work()
        until, after = time.monotonic(), self.commits()
        taken = [took for began, took in list(self.updates) if began + took >= since and began <= until]
        seconds = max(until - since, 1e-9)
        return found, {"seconds": seconds, "rate": (after - before) / seconds, "stall_ms": 1000 * max(taken, default=seconds), "updates": len(taken)}


def first_query(directory, objects, definitions_of, more):
    """A server on a restored or cloned instance, from the restore on until it has answered. `more(data, volume)` makes the instance. Its seconds by step."""
    server = server_in(directory, ["--innodb=OFF", "--default-storage-engine=Aria", f"--terrace-object={objects}", "--terrace-emulate=cloud", *definitions_of])
    data = os.path.join(directory, "data")
    os.makedirs(data)
    since = time.monotonic()
    try:
        made = more(data, os.path.join(data, "terrace"))
        restored = time.monotonic()
        server.start()
        started = time.monotonic()
        [(found,)] = run(server.connect(), "SELECT COUNT(*) FROM d.sbtest1 WHERE id = 7")
        answered = time.monotonic()
        assert found == 1
    finally:
        end(server)
        shutil.rmtree(objects, ignore_errors=True)
    return {"made": made, "command": restored - since, "start": started - restored, "query": answered - started, "all": answered - since}


def one_size(out, gigabytes):
    directory = place(out, "table2")
    data = int(gigabytes * 1e9)
    rows = data // TABLES // ROW
    options = [f"--tables={TABLES}", f"--table-size={rows}"]
    tiered = Tiered(directory, data, MEMORY, BUFFER)
    beside_objects = tiered.objects + "-beside"
    repository, rate = os.path.join(beside_objects, "backups"), [f"--rate={RATE}"] if RATE else []
    object_options = ["--object", tiered.objects]
    found = {"rows": TABLES * rows, "incremental": {}}

    def snapshot(name):
        # The server's user must be able to write where it copies to.
        copy = os.path.join(directory, name)
        run(tiered.server.connect(), f"SET GLOBAL terrace_copy_to = '{copy}'")
        return copy

    def backup(copy, name, *more):
        return terrace("backup", "create", "--volume", copy, "--name", name, "--repository", repository, *object_options, *rate, *more)[0]

    try:
        os.makedirs(repository)
        server = tiered.start(data * FLASH // 100)
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        sysbench(server, LOAD, "prepare", "d", *options, "--mysql-storage-engine=Terrace", "--threads=2")
        run(connection, "CREATE TABLE d.probe (id INT PRIMARY KEY, v INT) ENGINE=Terrace SELECT seq AS id, 0 AS v FROM d.seq_1_to_100")
        settle(server)
        # Changed blocks sink soon: an incremental backup has them as objects, not as a part of the volume.
        server = tiered.start(data * FLASH // 100, f"--terrace-sink-after-ms={SINK_AFTER}")
        with Beside(server, options) as load:
            time.sleep(WARM_UP)
            _, found["alone"] = load.window(lambda: time.sleep(TIME))
            copy, found["snapshot"] = load.window(lambda: snapshot("full"))
            made, found["backup"] = load.window(lambda: backup(copy, "full"))
            found["backup"] |= {key: made[key] for key in ("objects", "object_bytes", "volume_bytes", "copied_objects", "copied_bytes")}
            shutil.rmtree(copy)
        for share in SHARES:
            # Rows side by side, as a table that is appended to or whose recent part changes has them: a share of the rows is a share of the objects.
            connection = server.connect(database="d")
            for table in range(1, TABLES + 1):
                upto = max(1, int(rows * share / 100))
                for low in range(0, upto, 20_000):
                    run(connection, f"UPDATE sbtest{table} SET c = REVERSE(c) WHERE id > {low} AND id <= {min(low + 20_000, upto)}")
            settle(server)
            with Beside(server, [f"--tables={TABLES}", f"--table-size={max(1, int(rows * share / 100))}"]) as load:
                copy, snap = load.window(lambda: snapshot(f"share-{share:g}"))
                made, took = load.window(lambda: backup(copy, f"share-{share:g}", "--keep-snapshot"))
            found["incremental"][f"{share:g} %"] = took | {key: made[key] for key in ("objects", "copied_objects", "copied_bytes", "volume_bytes")} | {"snapshot": snap}
            last = copy
        tiered.server.stop()
        tiered.runs = False
        restore = ["restore", "--repository", repository, *rate]

        def attach(data_directory, volume):
            return terrace(*restore, "--attach", "--definitions", data_directory, "--volume", volume, "--object", beside_objects + "/attached")[0]["objects"]

        def whole(data_directory, volume):
            return terrace(*restore, "--definitions", data_directory, "--volume", volume, "--object", beside_objects + "/whole")[0]["bytes"]

        def clone(data_directory, volume):
            _, took = terrace("clone", "--volume", last, *object_options, "--to-volume", volume, "--to-object", beside_objects + "/clone")
            found["clone_seconds"] = took
            terrace("definitions", "--into", data_directory, "--volume", volume, "--object", beside_objects + "/clone")
            return took

        buffer = [f"--terrace-object-buffer={tiered.buffer}"]
        found["attach"] = first_query(os.path.join(directory, "attached"), beside_objects + "/attached", buffer, attach)
        found["restore"] = first_query(os.path.join(directory, "whole"), beside_objects + "/whole", buffer, whole)
        found["clone"] = first_query(os.path.join(directory, "clone"), beside_objects + "/clone", buffer, clone)
        return found
    finally:
        if tiered.runs:
            tiered.end()
        shutil.rmtree(tiered.objects, ignore_errors=True)
        shutil.rmtree(beside_objects, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


def show(gigabytes, found):
    """The table's rows of one size. Returns the ratios."""
    alone, snapshot, backup = found["alone"], found["snapshot"], found["backup"]
    ratio = {"throughput beside the snapshot": snapshot["rate"] / max(alone["rate"], 1e-9), "throughput beside the backup": backup["rate"] / max(alone["rate"], 1e-9)}
    lines = [
        ("snapshot creation", f"{snapshot['seconds']:.2f} s, longest update {snapshot['stall_ms']:.0f} ms (alone {alone['stall_ms']:.0f} ms), throughput {ratio['throughput beside the snapshot']:.2f}", "Snapshot creation"),
        ("backup", f"{backup['seconds']:.2f} s of {(backup['copied_bytes'] + backup['volume_bytes']) / MB:.0f} MB, longest update {backup['stall_ms']:.0f} ms, throughput {ratio['throughput beside the backup']:.2f}", "Backup duration"),
        *((f"incremental, {share} changed", f"{one['seconds']:.2f} s of {one['copied_objects']} of {one['objects']} objects, {(one['copied_bytes'] + one['volume_bytes']) / MB:.0f} MB; snapshot {one['snapshot']['seconds']:.2f} s, longest update {one['snapshot']['stall_ms']:.0f} ms", None)
          for share, one in found["incremental"].items()),
        ("restore, attached", "{command:.2f} s + start {start:.2f} s + first query {query:.3f} s = {all:.2f} s".format(**found["attach"]), None),
        ("restore, all objects", "{command:.2f} s + start {start:.2f} s + first query {query:.3f} s = {all:.2f} s".format(**found["restore"]), "Recovery time"),
        ("clone", f"{found['clone_seconds']:.2f} s; until the first query {found['clone']['all']:.2f} s", None),
    ]
    for name, text, theirs in lines:
        beside = ""
        if theirs:
            essd, oss, tiered = paper.TABLE2[theirs]
            beside = f"   [paper, 50 GB: {tiered} s; ESSD only {essd} s, OSS only {oss} s]"
        print(f"{gigabytes:g} GB  {name:24} {text}{beside}", flush=True)
    return ratio


def main(out):
    figures, ratios = {}, {}
    for gigabytes in SIZES:
        figures[f"{gigabytes:g} GB"] = found = one_size(out, gigabytes)
        ratios.update({f"{gigabytes:g} GB, {name}": value for name, value in show(gigabytes, found).items()})
    notes = [PROFILE, "the command's own requests are not emulated: it reads and writes directories" + (f", at most {RATE} a second" if RATE else ""),
             "a snapshot's time is that of the statement terrace_copy_to, which copies all of the volume", "the paper's machines and its 50 GB differ from ours: see bench/paper.py"]
    report.write(out, "table2", ratios, figures, notes, against="the same load alone", profile="cloud", paper=paper.TABLE2, clients=CLIENTS)


if __name__ == "__main__":
    main(sys.argv[1])
