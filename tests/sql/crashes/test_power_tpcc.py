"""Power loss during TPC-C: go-tpc runs, the volume's file system is shut down under it, mounted again and recovered. Then go-tpc's
consistency check, CHECK TABLE and `terrace check` find no fault, and the answered commits of another session are found.

TERRACE_POWER_TPCC: cycles for each file system (none without it: loading takes a minute). WAREHOUSES: how many (1).
"""

import json
import os
import random
import re
import shutil
import subprocess
import threading
import time

import pymysql
import pytest
from conftest import ROOT, TARGET, end, run
from test_power import start, volume  # noqa: F401: a fixture

CYCLES = int(os.environ.get("TERRACE_POWER_TPCC", "0"))
WAREHOUSES = int(os.environ.get("WAREHOUSES", "1"))
# Of TPC-C's twelve conditions the eleventh speaks of the data as they were loaded.
CONDITIONS = 11
TABLES = "warehouse, district, customer, history, new_order, orders, order_line, stock, item"
OPTIONS = ("--default-storage-engine=Terrace", "--terrace-memory=67108864", "--terrace-log=67108864", "--terrace-object-buffer=536870912")


@pytest.fixture(scope="module")
def go_tpc():
    if not CYCLES:
        pytest.skip("on demand: TERRACE_POWER_TPCC=20")
    program = os.path.join(TARGET, "apps", "go-tpc")
    if not os.path.exists(program):
        go = shutil.which("go") or pytest.skip("there is no go here (make apps installs it)")
        os.makedirs(os.path.dirname(program), exist_ok=True)
        built = subprocess.run([go, "build", "-o", program, "github.com/pingcap/go-tpc/cmd/go-tpc"], cwd=os.path.join(ROOT, "tests", "apps", "tpc"),
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert built.returncode == 0, built.stdout
    return program


class Tpcc:
    def __init__(self, program, server):
        self.command = [program, "-H", "127.0.0.1", "-P", str(server.port), "tpcc", "-D", "tpcc", "--warehouses", str(WAREHOUSES)]

    def done(self, *arguments):
        done = subprocess.run(self.command + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
        return done.stdout

    def begin(self, log):
        return subprocess.Popen(self.command + ["run", "-T", "4", "--time", "1h", "--ignore-error"], stdout=log, stderr=subprocess.STDOUT)

    def is_consistent(self, where):
        said = self.done("check")
        assert len(re.findall("begin to check", said)) == CONDITIONS * WAREHOUSES, f"{where}: {said}"
        assert not re.search("(?i)check .*failed|panic", said), f"{where}: {said}"


def checked(volume, where):
    program = os.path.join(TARGET, "debug", "terrace")  # made by `cargo test`
    done = subprocess.run([program, "check", "--json", "--volume", f"{volume.at}/terrace"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.stdout, done.stderr
    assert done.returncode == 0, f"{where}: {json.loads(done.stdout)}"


def orders(connection):
    return run(connection, "SELECT SUM(d_next_o_id), SUM(d_ytd) FROM tpcc.district")


def test_tpcc_is_consistent_after_power_loss(volume, tmp_path, go_tpc):  # noqa: F811
    server = start(volume, tmp_path, *OPTIONS)
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE tpcc")
        run(connection, "CREATE DATABASE test")
        run(connection, "CREATE TABLE test.beside (n INT PRIMARY KEY) ENGINE=Terrace")
        tpcc = Tpcc(go_tpc, server)
        tpcc.done("prepare", "-T", "2", "--no-check")
        run(connection, "ALTER TABLE tpcc.history ADD KEY customer (h_c_w_id, h_c_d_id, h_c_id)")
        tpcc.is_consistent("as loaded")
        acknowledged, next_n, taken = set(), [0], 0
        for cycle in range(CYCLES):
            before, many = orders(connection), len(acknowledged)

            def beside():
                mine = server.connect()
                try:
                    while True:
                        next_n[0] += 1  # whatever comes of the commit, the number is used
                        run(mine, f"INSERT INTO test.beside VALUES ({next_n[0]})")
                        acknowledged.add(next_n[0])
                except pymysql.err.MySQLError:
                    pass  # the volume is gone

            thread = threading.Thread(target=beside)
            with open(tmp_path / "tpcc.log", "w") as log:
                running = tpcc.begin(log)
                thread.start()
                # Some cuts come early, some after checkpoints.
                time.sleep(2 + 6 * random.random())
                assert running.poll() is None, open(tmp_path / "tpcc.log").read()[-2000:]
                counted = set(acknowledged)  # see test_power.py
                volume.cut()
                server.kill9()
                running.kill()
                running.wait()
                thread.join()
            acknowledged &= counted
            where = f"cycle {cycle}"
            volume.again()
            server.start()
            connection = server.connect()
            found = {n for (n,) in run(connection, "SELECT n FROM test.beside")}
            assert len(acknowledged) > many, f"{where}: nothing was written beside it: this proves little"
            assert acknowledged <= found, f"{where}: lost {sorted(acknowledged - found)[:5]}"
            taken += orders(connection) != before
            tpcc.is_consistent(where)
            connection.select_db("tpcc")
            for row in run(connection, f"CHECK TABLE {TABLES}"):
                assert row[3] == "OK", (where, row)
            server.stop()
            checked(volume, where)
            server.start()
            connection = server.connect()
        print(f"{CYCLES} cycles, {taken} with new orders, {len(acknowledged)} commits beside them")
        assert taken > CYCLES / 2, "TPC-C did nothing: this proves little"
    finally:
        end(server)
