"""Power is lost while sessions delete and move parents with their children: afterwards each parent has all of its children or is not there.

TERRACE_POWER_CYCLES: losses on each file system (default 1)."""

import threading
import time

from conftest import end, run
from test_cascade_crashes import assert_whole, make, work
from test_power import CYCLES, start, volume  # noqa: F401: a fixture

SESSIONS = 4


def test_a_loss_of_power_leaves_whole_families(volume, tmp_path, engine):  # noqa: F811
    server = start(volume, tmp_path)
    try:
        db = server.connect(database="mysql")
        make(db, engine)
        found = 0
        for cycle in range(2 * CYCLES):
            done = threading.Event()
            workers = [threading.Thread(target=work, args=(server, 1000 + 10 * cycle + at, done)) for at in range(SESSIONS)]
            for one in workers:
                one.start()
            deletes = lambda: int(dict(run(db, "SHOW GLOBAL STATUS LIKE 'Com_delete'"))["Com_delete"])
            enough = deletes() + 40 + 13 * cycle
            until = time.monotonic() + 60
            while deletes() < enough and time.monotonic() < until:
                time.sleep(0.005)
            volume.cut()
            done.set()
            server.kill9()
            for one in workers:
                one.join()
            volume.again()
            server.start()
            db = server.connect(database="d")
            found += assert_whole(db)
        assert found
    finally:
        end(server)
