"""The server is killed while sessions delete and move parents with their children: afterwards each parent has all of its children or is not there."""

import random
import threading
import time

import pymysql
import pytest

from conftest import run

PARENTS, CHILDREN = 30, 40
ALLOWED = (1205, 1213, 1020, 1062, 1451, 1452)


def make(db, engine):
    run(db, "CREATE DATABASE d")
    run(db, "USE d")
    run(db, f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    run(db, f"CREATE TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, p INT NOT NULL, v INT, KEY (v), FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE={engine}")
    run(db, f"CREATE TABLE g (id INT PRIMARY KEY AUTO_INCREMENT, c INT, p INT, FOREIGN KEY (c) REFERENCES c (id) ON DELETE SET NULL, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE={engine}")


def family(db, parent):
    run(db, "BEGIN")
    run(db, f"INSERT INTO p VALUES ({parent})")
    run(db, f"INSERT INTO c (p, v) SELECT {parent}, seq FROM seq_1_to_{CHILDREN}")
    run(db, f"INSERT INTO g (c, p) SELECT id, p FROM c WHERE p = {parent}")
    run(db, "COMMIT")


def work(server, seed, done):
    random_ = random.Random(seed)
    try:
        db = server.connect(database="d")
        run(db, "SET innodb_lock_wait_timeout = 2")
        while not done.is_set():
            one, other = random_.randrange(1, PARENTS), random_.randrange(1, PARENTS)
            try:
                match random_.randrange(4):
                    case 0:
                        family(db, one)
                    case 1:
                        run(db, f"DELETE FROM p WHERE id = {one}")
                    case 2:
                        run(db, f"UPDATE p SET id = {other} WHERE id = {one}")
                    case 3:
                        run(db, "BEGIN")
                        run(db, f"DELETE FROM p WHERE id IN ({one}, {other})")
                        run(db, f"UPDATE p SET id = id + 100 WHERE id BETWEEN {one} AND {one + 3}")
                        run(db, f"UPDATE p SET id = id - 100 WHERE id > 100")
                        run(db, random_.choice(("COMMIT", "ROLLBACK")))
            except pymysql.err.MySQLError as error:
                if error.args[0] not in ALLOWED:
                    return
                run(db, "ROLLBACK")
    except (pymysql.err.MySQLError, OSError):
        return                          # the server is gone


def assert_whole(db):
    parents = [row[0] for row in run(db, "SELECT id FROM p ORDER BY id")]
    for table in "cg":
        assert run(db, f"SELECT p, COUNT(*) FROM {table} GROUP BY p ORDER BY p") == [(parent, CHILDREN) for parent in parents]
        assert run(db, f"SELECT COUNT(*) FROM {table} FORCE INDEX (p) WHERE p > 0") == [(CHILDREN * len(parents),)]
    assert run(db, "SELECT COUNT(*) FROM g LEFT JOIN c ON c.id = g.c WHERE c.p IS NULL OR c.p <> g.p") == [(0,)]
    assert [row[3] for row in run(db, "CHECK TABLE p, c, g")] == ["OK"] * 3
    return len(parents)


def test_a_kill_leaves_whole_families(own_server, engine):
    if engine != "Terrace":
        pytest.skip("of this engine's recovery")
    db = own_server.connect(database="mysql")
    make(db, engine)
    found = 0
    for round_ in range(5):
        done = threading.Event()
        workers = [threading.Thread(target=work, args=(own_server, 10 * round_ + at, done)) for at in range(4)]
        for one in workers:
            one.start()
        until = time.monotonic() + 20
        changes = lambda: int(dict(run(db, "SHOW GLOBAL STATUS LIKE 'Com_delete'"))["Com_delete"])
        start = changes()
        while changes() < start + 40 + 13 * round_ and time.monotonic() < until:
            time.sleep(0.005)
        own_server.kill9()
        done.set()
        for one in workers:
            one.join()
        own_server.start()
        db = own_server.connect(database="d")
        found += assert_whole(db)
    assert found
