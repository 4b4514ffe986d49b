"""One setting bounds the engine's memory: the resident size of a server through a load of ten times as much, with compression, flash and
prefetched scans, and through statements that lock many rows. `TERRACE_MEMORY_MIB` takes other settings, as "32,256"."""

import os
import threading
import time

import pymysql
import pytest
from conftest import end, private, wait_until
from test_object import status
from test_resize import resident

MIB = 1 << 20
# Statements fill and read while the server is watched; a row is about a kilobyte, half of it does not compress.
BATCH = 8000
PAD = "CONCAT(REPEAT('x', 400), SHA2(seq, 512), SHA2(seq + 1, 512), SHA2(seq + 2, 512), SHA2(seq + 3, 512))"


class Watch:
    """The most that a server has resident, in bytes, from 20 looks a second."""

    def __init__(self, server):
        self.server, self.done, self.most = server, False, 0
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.done:
            self.most = max(self.most, resident(self.server))
            time.sleep(0.05)

    def next(self):
        """The most since the last call."""
        most, self.most = self.most, 0
        return most

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done = True
        self.thread.join()


@pytest.mark.parametrize("mib", [int(mib) for mib in os.environ.get("TERRACE_MEMORY_MIB", "64").split(",")])
def test_resident_memory_stays_within_the_setting_through_a_load_of_ten_times_as_much(mib, tmp_path, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    sizes = {"memory": mib, "object-buffer": 2 * mib, "flash": 4 * mib, "log": 32}
    options = [f"--terrace-{name}={size * MIB}" for name, size in sizes.items()]
    places = [f"--terrace-object={tmp_path}/store", f"--terrace-flash-path={tmp_path}/flash", "--terrace-sink-after-ms=500"]
    server = private(options + places)
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        # What the server itself takes for such statements, before there is anything of the engine's.
        columns = "(id INT PRIMARY KEY, k INT, pad VARCHAR(2000), KEY (k))"
        run(connection, f"CREATE TABLE other {columns} ENGINE=MyISAM")
        run(connection, f"INSERT INTO other SELECT seq, seq, {PAD} FROM seq_1_to_{BATCH}")
        run(connection, "SELECT SUM(LENGTH(pad)) FROM other IGNORE INDEX (k)")
        before = resident(server)
        run(connection, f"CREATE TABLE t {columns} ENGINE=Terrace")
        rows = 10 * mib * MIB // 1000 // BATCH * BATCH
        since = time.monotonic()
        with Watch(server) as watch:
            phases = {}
            for first in range(1, rows, BATCH):
                run(connection, f"INSERT INTO t SELECT seq, seq * 7919 % {rows}, {PAD} FROM seq_{first}_to_{first + BATCH - 1}")
            phases["load"] = watch.next()
            assert run(connection, "SELECT COUNT(*), MIN(LENGTH(pad)) FROM t IGNORE INDEX (k)") == [(rows, 912)]
            phases["scan"] = watch.next()
            run(connection, f"SELECT SUM(LENGTH(pad)) FROM t FORCE INDEX (k) WHERE k < {rows // 50}")
            phases["by key"] = watch.next()
        shares = {phase: round((most - before) / mib / MIB, 2) for phase, most in phases.items()}
        shown = {name: int(status(connection, run, name)) for name in ["pool_prefetched", "objects_pages_compressed", "sink_blocks"]}
        print(f"memory = {mib} MiB: {rows} rows in {time.monotonic() - since:.0f} s, {before // MIB} MiB before; at most more, of the setting: {shares}; {shown}")
        assert all(n > 100 for n in [shown["pool_prefetched"], shown["objects_pages_compressed"]]) and shown["sink_blocks"] > 10, shown
        assert 0.5 < max(shares.values()) < 1.15, shares
    finally:
        end(server)


LOCK_TABLE_FULL = 1206


def test_statements_that_lock_many_rows_stay_within_the_setting(engine, run):
    """328,000 rows at 32 MiB. As single locks they took 80 MiB beside it: now neighbours are one lock, others are in compact
    sets, and separate gaps are limited to an eighth of the memory."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    mib, rows = 32, 328_000
    server = private([f"--terrace-memory={mib * MIB}", f"--terrace-log={64 * MIB}"])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        statements = {
            "update": "UPDATE {} SET pad = CONCAT('y', pad) WHERE pad LIKE 'x%'",
            "update of nothing": "UPDATE {} SET pad = 'z' WHERE pad = 'none'",
            "for update": "SELECT id FROM {} WHERE pad = 'none' FOR UPDATE",
            "share mode": "SELECT id FROM {} WHERE pad = 'none' LOCK IN SHARE MODE",
            "delete": "DELETE FROM {} WHERE id > 1000",
        }
        fill = f"SELECT seq, seq * 7919 % {rows}, REPEAT('x', 40) FROM seq_1_to_{rows}"
        columns = "(id INT PRIMARY KEY, k INT, pad VARCHAR(60), KEY (k))"
        # What the server itself takes for such statements.
        run(connection, f"CREATE TABLE other {columns} ENGINE=MyISAM")
        run(connection, f"INSERT INTO other {fill}")
        for statement in statements.values():
            run(connection, statement.format("other"))
        before = resident(server)
        run(connection, f"CREATE TABLE t {columns} ENGINE=Terrace")
        with Watch(server) as watch:
            run(connection, f"INSERT INTO t {fill}")
            phases = {"load": watch.next()}
            # Gaps around every other absent key behind the last row, each a lock of its own: more than there is room for. The transaction rolls back.
            run(connection, "BEGIN")
            run(connection, "UPDATE t SET pad = 'changed' WHERE id <= 10")
            with pytest.raises(pymysql.err.OperationalError) as caught:
                run(connection, f"SELECT COUNT(t.id) FROM seq_1_to_{rows} AS s STRAIGHT_JOIN t ON t.id = {rows} + 2 * s.seq FOR UPDATE")
            assert caught.value.args[0] == LOCK_TABLE_FULL, caught.value
            phases["gaps"] = watch.next()
            assert status(connection, run, "row_locks") == "0"
            assert run(connection, "SELECT COUNT(*), SUM(pad = 'changed') FROM t") == [(rows, 0)]
            # In the order of the other index the rows are scattered.
            run(connection, "BEGIN")
            run(connection, "SELECT id FROM t FORCE INDEX (k) WHERE k >= 0 AND pad = 'none' FOR UPDATE")
            assert int(status(connection, run, "row_locks")) >= rows
            run(connection, "ROLLBACK")
            phases["by key"] = watch.next()
            for phase, statement in statements.items():
                run(connection, "BEGIN")
                run(connection, statement.format("t"))
                assert 0 < int(status(connection, run, "row_locks")) < 100, phase
                run(connection, "COMMIT" if phase != "delete" else "ROLLBACK")
                phases[phase] = watch.next()
            assert run(connection, "SELECT COUNT(*), SUM(pad LIKE 'yx%') FROM t") == [(rows, rows)]
        shares = {phase: round((most - before) / mib / MIB, 2) for phase, most in phases.items()}
        print(f"memory = {mib} MiB: {rows} rows, {before // MIB} MiB before; at most more, of the setting: {shares}")
        assert 0.5 < max(shares.values()) < 1.15, shares
    finally:
        end(server)


def test_builds_and_locks_at_once_borrow_their_memory_from_the_pool(engine, run):
    """Three sorts, row locks up to their bound and pages, at 64 MiB. What the sorts and the locks took came on top of the setting; then
    what the C library kept of the sorts' buffers did (1.2 of the setting)."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    mib, rows = 64, 300_000
    server = private([f"--terrace-memory={mib * MIB}", f"--terrace-log={128 * MIB}"])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        sessions = [server.connect() for _ in range(3)]
        for session in [connection, *sessions]:
            session.select_db("d")

        def at_once(statement):
            """In three sessions; `{}` is which. Returns when all have ended."""
            failed = []

            def work(which):
                try:
                    run(sessions[which], statement.format(which=which))
                except Exception as error:
                    failed.append(error)

            threads = [threading.Thread(target=work, args=(which,)) for which in range(3)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert not failed, failed

        def lent():
            return {name: int(status(connection, run, name)) for name in ["pool_frames_lent", "memory_lent_sorts", "memory_lent_locks", "memory_lent_watches"]}

        columns = "(id INT PRIMARY KEY, k INT, pad VARCHAR(160)"
        # Not in order: each goes through a sort.
        fill = f"SELECT seq * 7919 % 1000003, seq * 104729 % 999983, REPEAT(CHAR(65 + seq % 26), 120) FROM seq_1_to_{rows}"
        # What the server itself takes for such statements.
        at_once(f"CREATE TABLE other{{which}} {columns}) ENGINE=MyISAM")
        at_once(f"INSERT INTO other{{which}} {fill}")
        before = resident(server)
        at_once(f"CREATE TABLE t{{which}} {columns}, KEY (k)) ENGINE=Terrace")
        looks, phases, done = [], {}, False

        def look():
            with server.connect() as watcher:
                while not done:
                    text = run(watcher, "SHOW ENGINE TERRACE STATUS")[0][2]
                    values = dict(line.split(" ", 1) for line in text.strip().splitlines())
                    looks.append({name: int(values[name]) for name in ["pool_frames", "pool_frames_lent", "memory_lent_sorts", "memory_lent_locks"]})
                    time.sleep(0.05)

        looker = threading.Thread(target=look)
        with Watch(server) as watch:
            looker.start()
            try:
                at_once(f"INSERT INTO t{{which}} {fill}")
                phases["loads"] = watch.next()
                run(connection, "SELECT COUNT(*) FROM t0 WHERE pad = 'none'")
                # Gap locks that do not touch, up to the bound; the statement that is refused gives them back. Then most of that, to stay.
                gaps = "SELECT COUNT(t0.id) FROM seq_1_to_{} AS s STRAIGHT_JOIN t0 ON t0.id = -(2 * s.seq) FOR UPDATE"
                run(connection, "BEGIN")
                with pytest.raises(pymysql.err.OperationalError) as caught:
                    run(connection, gaps.format(mib * 5000))
                assert caught.value.args[0] == LOCK_TABLE_FULL, caught.value
                phases["too many locks"] = watch.next()
                run(connection, "BEGIN")
                run(connection, gaps.format(mib * 400))
                run(connection, "SELECT id FROM t0 FORCE INDEX (k) WHERE k < 200000 AND pad = 'none' FOR UPDATE")
                held, with_locks = int(status(connection, run, "row_locks")), lent()
                assert held > 30_000 and with_locks["memory_lent_locks"] > 3 * MIB, (held, with_locks)
                phases["locks"] = watch.next()
                # Beside them, three tables are copied, and then indexed.
                at_once("CREATE TABLE u{which} (PRIMARY KEY (k, id), KEY (pad(20))) ENGINE=Terrace SELECT * FROM other{which}")
                phases["copies"] = watch.next()
                at_once("ALTER TABLE u{which} ADD KEY (id, k), ADD KEY (pad, k), ALGORITHM=NOCOPY")
                phases["indexes"] = watch.next()
                # A statement that goes over all rows in their order locks them all, and few locks are enough.
                run(connection, "SELECT id FROM t1 WHERE pad = 'none' FOR UPDATE")
                phases["all rows"] = watch.next()
                assert lent()["memory_lent_locks"] == with_locks["memory_lent_locks"]
                run(connection, "COMMIT")
            finally:
                done = True
                looker.join()
        for which in range(3):
            assert run(connection, f"SELECT COUNT(*), SUM(k), MIN(LENGTH(pad)) FROM u{which} FORCE INDEX (id)") == run(
                connection, f"SELECT COUNT(*), SUM(k), MIN(LENGTH(pad)) FROM t{which} IGNORE INDEX (k)")
            run(connection, f"CHECK TABLE u{which}")
        wait_until(lambda: not any(lent().values()), seconds=60)
        most = {name: max(look[name] for look in looks) for name in looks[0]}
        shares = {phase: round((most - before) / mib / MIB, 2) for phase, most in phases.items()}
        print(f"memory = {mib} MiB: {rows} rows a table, {before // MIB} MiB before; at most more, of the setting: {shares}; {len(looks)} looks: {most}; {held} locks: {with_locks}")
        assert most["memory_lent_sorts"] > MIB and 256 < most["pool_frames_lent"] <= most["pool_frames"] // 2, most
        assert 0.5 < max(shares.values()) < 1.15, shares
    finally:
        end(server)


def huge(server):
    """Bytes of huge pages that a server has."""
    pid = open(os.path.join(server.directory, "pid")).read().strip()
    [line] = [line for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("AnonHugePages:")]
    return int(line.split()[1]) << 10


def test_frames_are_in_huge_pages_and_returned_loans_are_again(engine, run):
    """The server turns huge pages off when its engines have started; frames are touched later."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    setting = "/sys/kernel/mm/transparent_hugepage/enabled"
    if not os.path.exists(setting) or "[never]" in open(setting).read():
        pytest.skip("this kernel gives no huge pages")
    mib, rows = 128, 150_000
    server = private([f"--terrace-memory={mib * MIB}", f"--terrace-log={64 * MIB}"])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, "CREATE TABLE t (id INT PRIMARY KEY, k INT, pad VARCHAR(2000), KEY (k)) ENGINE=Terrace")
        run(connection, f"INSERT INTO t SELECT seq, seq * 7919 % {rows}, {PAD} FROM seq_1_to_{rows}")
        # Sorts borrowed frames: the count starts again.
        server.stop()
        server.start()
        connection = server.connect(database="d")
        before = huge(server)
        scan = "SELECT SUM(LENGTH(pad)) FROM t IGNORE INDEX (k)"
        run(connection, scan)
        full = huge(server)
        assert full - before > 0.6 * mib * MIB, (before, full)
        # A sort borrows up to a quarter of the frames; parts that it had as a whole are made whole again.
        with Watch(server) as watch:
            thread = threading.Thread(target=lambda: run(server.connect(database="d"), "ALTER TABLE t ADD KEY (pad(300))"))
            thread.start()
            lent = 0
            while thread.is_alive():
                lent = max(lent, int(status(connection, run, "pool_frames_lent")))
            thread.join()
            most = watch.next()
        assert lent > 256, lent
        run(connection, scan)
        again = huge(server)
        print(f"huge pages: {full // MIB} MiB, {lent} frames lent, {(most - resident(server)) // MIB} MiB more meanwhile, then {again // MIB} MiB")
        assert again - before > 0.6 * mib * MIB, (before, full, again)
    finally:
        end(server)
