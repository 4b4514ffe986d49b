"""Long values of a row are stored off-page: changes of other columns write and move none of them, reads of other columns read none,
old views keep theirs. The results of statements are compared with InnoDB's; TERRACE_SEEDS: random runs of each shape (default 2)."""

import hashlib
import os
import random
import threading

import pymysql
import pytest

from conftest import binlog_options, contents, end, private, replayed, run

BIG = 100_000
PAGE = 16320
PAGES = -(-BIG // PAGE)
TABLE = """CREATE TABLE {name} (
    id INT NOT NULL, v INT NOT NULL, doc LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin CHECK (JSON_VALID(doc)), name VARCHAR(50),
    note MEDIUMTEXT, bytes BLOB, word VARCHAR(3000), tail INT,
    PRIMARY KEY (id), KEY v (v){keys}
) ENGINE={engine} DEFAULT CHARSET=utf8mb4 {options}"""
COLUMNS = "id, v, doc, name, note, bytes, word, tail"


def text(serial, length):
    """Text that no other has."""
    return (hashlib.sha256(str(serial).encode()).hexdigest() * (length // 64 + 1))[:length]


def doc(serial, length=BIG):
    return '{"a": "' + text(serial, length - 9) + '"}'


def row(n):
    """Rows of many shapes: some without anything long, some with one or several long values, some that are too long without any."""
    shape = n % 6
    return (n, n % 7, doc(n) if shape in (0, 1) else doc(n, 5000) if shape == 2 else None, f"name {n}",
            text(-n, 20_000) if shape == 1 else None, text(n, 3000).encode() if shape in (2, 3) else None,
            text(n + 1000, 3000) if shape == 3 else f"w{n}", n)


def make(connection, name, engine, rows=24, keys="", options=""):
    run(connection, TABLE.format(name=name, engine=engine, keys=keys, options=options))
    connection.cursor().executemany(f"INSERT INTO {name} ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", [row(n) for n in range(1, rows + 1)])


def status(connection, scope, pattern):
    return sum(int(value) for name, value in run(connection, f"SHOW {scope} STATUS LIKE 'Terrace_{pattern}'") if not name.endswith("ahead"))


def pages_read(connection, sql):
    run(connection, sql)
    before = status(connection, "SESSION", "session_pages_%")
    answer = run(connection, sql)
    return answer, status(connection, "SESSION", "session_pages_%") - before


def digest(connection, table):
    return run(connection, f"SELECT id, v, MD5(doc), name, MD5(note), MD5(bytes), MD5(word), tail FROM {table} ORDER BY id")


def is_sound(connection, table):
    assert run(connection, f"CHECK TABLE {table} EXTENDED")[0][3] == "OK"


@pytest.fixture
def documents(db, engine):
    """Rows of nothing but a number and a document."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    run(db, "CREATE TABLE d (id INT PRIMARY KEY, v INT NOT NULL, doc JSON, w INT) ENGINE=Terrace")
    db.cursor().executemany("INSERT INTO d VALUES (%s, 0, %s, %s)", [(n, doc(n), n) for n in range(40)])
    return db


@pytest.mark.parametrize("change", ["UPDATE d SET v = v + 1", "UPDATE d SET w = w + 1 WHERE id = {n}", "UPDATE d SET v = v + 1, doc = doc WHERE id = {n}",
                                    "INSERT INTO d VALUES ({n}, 1, NULL, 1) ON DUPLICATE KEY UPDATE v = v + 1",
                                    "UPDATE d a JOIN d b ON a.id = b.id SET a.v = a.v + b.w + 1 WHERE a.id = {n}"])
def test_a_change_beside_a_document_writes_none_of_it(documents, change):
    before = run(documents, "SELECT id, MD5(doc) FROM d")
    written = status(documents, "GLOBAL", "log_bytes_written"), status(documents, "GLOBAL", "bypass_pages")
    for n in range(40 if "{n}" in change else 1):
        run(documents, change.format(n=n))
    log = status(documents, "GLOBAL", "log_bytes_written") - written[0]
    assert status(documents, "GLOBAL", "bypass_pages") == written[1]
    assert log < 40 * BIG / 10, f"{log} bytes of log"
    assert run(documents, "SELECT id, MD5(doc) FROM d") == before
    assert run(documents, "SELECT SUM(v > 0 OR w > id) FROM d") == [(40,)]
    is_sound(documents, "d")


def test_a_change_of_one_document_writes_that_one(documents):
    run(documents, "ALTER TABLE d ADD COLUMN more JSON")
    run(documents, "UPDATE d SET more = doc")
    written = status(documents, "GLOBAL", "bypass_pages")
    run(documents, "UPDATE d SET more = %s WHERE id = 3", (doc(77),))
    assert status(documents, "GLOBAL", "bypass_pages") - written == PAGES
    assert run(documents, "SELECT id, doc, more FROM d WHERE id IN (3, 4)") == [(3, doc(3), doc(77)), (4, doc(4), doc(4))]
    # They change places: each is another column's now.
    run(documents, "UPDATE d SET doc = more, more = %s WHERE id = 3", (doc(3),))
    assert run(documents, "SELECT doc, more FROM d WHERE id = 3") == [(doc(77), doc(3))]
    assert status(documents, "GLOBAL", "bypass_pages") - written == PAGES
    run(documents, "UPDATE d SET more = doc WHERE id = 3")
    assert status(documents, "GLOBAL", "bypass_pages") - written == 2 * PAGES
    assert run(documents, "SELECT doc, more FROM d WHERE id = 3") == [(doc(77), doc(77))]
    is_sound(documents, "d")


@pytest.mark.parametrize("columns, most", [("v", 10), ("w", 10), ("id, w, v", 10), ("COUNT(*)", 10), ("SUM(w)", 10), ("more", 40 + 10), ("w, more", 40 + 10)])
def test_a_read_reads_the_documents_that_it_asks_for(documents, columns, most):
    run(documents, "ALTER TABLE d ADD COLUMN more JSON AFTER v, ADD COLUMN last VARCHAR(10) DEFAULT 'l'")
    run(documents, "UPDATE d SET more = %s", (doc(1, 10_000),))
    for where in ("", "WHERE id BETWEEN 0 AND 39", "WHERE last = 'l'"):
        answer, read = pages_read(documents, f"SELECT {columns} FROM d {where}")
        assert read <= most + (10 if where else 0), where
        expected = dict(w=[*range(40)], v=[0] * 40, id=[*range(40)], more=[doc(1, 10_000)] * 40) | {"COUNT(*)": [40], "SUM(w)": [780]}
        assert sorted(answer) == sorted(zip(*(expected[name] for name in columns.split(", "))))
    assert pages_read(documents, "SELECT SUM(LENGTH(doc)) FROM d") == ([(sum(len(doc(n)) for n in range(40)),)], pytest.approx(40 * PAGES, abs=10))


def test_old_views_see_documents_that_were_changed_deleted_and_purged_behind_them(server, documents):
    other = server.connect(database=documents.name)
    before = run(documents, "SELECT id, MD5(doc) FROM d")
    run(other, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    run(documents, "UPDATE d SET v = v + 1")
    run(documents, "UPDATE d SET doc = %s WHERE id %% 4 = 1", (doc(100),))
    third = server.connect(database=documents.name)
    run(third, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    between = run(third, "SELECT id, v, MD5(doc) FROM d")
    run(documents, "UPDATE d SET v = v + 1, doc = IF(id % 4 = 2, '[]', doc)")
    run(documents, "DELETE FROM d WHERE id % 4 = 3")
    run(documents, "REPLACE INTO d SELECT id, v, doc, w + 1 FROM d WHERE id % 4 = 0")
    now = run(documents, "SELECT id, v, MD5(doc) FROM d")
    assert run(other, "SELECT id, MD5(doc) FROM d") == before
    assert run(other, "SELECT SUM(v), SUM(w), COUNT(*) FROM d") == [(0, 780, 40)]
    run(other, "COMMIT")
    # What only the first view needed is purged, and its room used again.
    run(documents, "UPDATE d SET v = v + 1")
    run(documents, "INSERT INTO d SELECT id + 100, 0, JSON_QUOTE(REPEAT('1', 60000)), 0 FROM d")
    assert run(third, "SELECT id, v, MD5(doc) FROM d") == between
    run(third, "COMMIT")
    run(documents, "UPDATE d SET v = v - 1 WHERE id < 100")
    assert run(third, "SELECT id, v, MD5(doc) FROM d WHERE id < 100") == now
    is_sound(documents, "d")


def test_a_rollback_leaves_documents_unchanged(documents):
    before = run(documents, "SELECT * FROM d")
    run(documents, "BEGIN")
    run(documents, "UPDATE d SET v = v + 1")
    run(documents, "UPDATE d SET doc = %s WHERE id < 20", (doc(200),))
    run(documents, "SAVEPOINT s")
    there = run(documents, "SELECT * FROM d")
    run(documents, "UPDATE d SET w = w + 1, doc = IF(id % 2, doc, '{}')")
    run(documents, "DELETE FROM d WHERE id % 3 = 0")
    run(documents, "INSERT INTO d SELECT id, 9, %s, 9 FROM (SELECT seq AS id FROM seq_0_to_39 WHERE seq %% 3 = 0) x", (doc(5),))
    run(documents, "ROLLBACK TO s")
    assert run(documents, "SELECT * FROM d") == there
    with pytest.raises(pymysql.err.IntegrityError):
        run(documents, "UPDATE d SET doc = %s, id = IF(id = 37, 38, id) ORDER BY id", (doc(201),))
    assert run(documents, "SELECT * FROM d") == there
    run(documents, "ROLLBACK")
    assert run(documents, "SELECT * FROM d") == before
    is_sound(documents, "d")


STATEMENTS = [
    "UPDATE {} SET v = v + 1 WHERE id = {n}", "UPDATE {} SET v = v + 1 WHERE v = {small}", "UPDATE {} SET tail = tail + 1, name = 'x'",
    "UPDATE {} SET doc = {doc} WHERE id = {n}", "UPDATE {} SET doc = NULL WHERE id = {n}", "UPDATE {} SET note = doc WHERE id = {n}",
    "UPDATE {} SET note = {text}, word = LEFT(note, 2500) WHERE v = {small}", "UPDATE {} SET bytes = {bytes}, tail = NULL WHERE id > {n} LIMIT 3",
    "UPDATE {} SET doc = CONCAT('[', doc, ']') WHERE v = {small}", "UPDATE {} SET id = id + 100 WHERE id = {n}", "DELETE FROM {} WHERE id = {n}",
    "REPLACE INTO {} (id, v, doc, tail) VALUES ({n}, {small}, {doc}, 3)", "REPLACE INTO {} (id, v, note) SELECT id, v + 1, note FROM {} WHERE id = {n}",
    "INSERT INTO {} (id, v, doc) VALUES ({n}, 1, {doc}) ON DUPLICATE KEY UPDATE v = v + 1, tail = 5",
    "INSERT INTO {} (id, v, doc, note) VALUES ({n}, 1, {doc}, {text}) ON DUPLICATE KEY UPDATE doc = VALUES(doc), word = 'k'",
    "INSERT IGNORE INTO {} (id, v, doc, note) VALUES ({n}, 1, {doc}, {text}), ({n} + 1, 2, {doc}, NULL)",
    "UPDATE {} a JOIN {} b ON a.id = b.id + 1 SET a.note = b.note, b.v = b.v + 1 WHERE b.id = {n}",
    "DELETE a FROM {} a JOIN {} b ON a.id = b.id + 1 WHERE b.v = {small} AND a.id % 3 = 0",
    "UPDATE {} SET word = {text3} ORDER BY v, id LIMIT 4", "BEGIN; UPDATE {} SET v = v + 1, note = {text}; ROLLBACK", "BEGIN; DELETE FROM {} WHERE v = {small}; UPDATE {} SET tail = 1; ROLLBACK",
    "BEGIN; UPDATE {} SET v = 2 WHERE id = {n}; SAVEPOINT s; UPDATE {} SET doc = {doc}, tail = 2 WHERE id <= {n}; ROLLBACK TO s; UPDATE {} SET tail = 4 WHERE id = {n}; COMMIT",
    "INSERT INTO {} (id, v, doc, name, note, bytes, word, tail) SELECT id + 1000, v, doc, name, note, bytes, word, tail FROM {} WHERE v = {small} AND id < 1000",
]
ALTERS = [
    "ALTER TABLE {} ADD COLUMN a{n} VARCHAR(500) DEFAULT 'later' AFTER id", "ALTER TABLE {} ADD COLUMN t{n} TEXT FIRST", "ALTER TABLE {} DROP COLUMN bytes",
    "ALTER TABLE {} ADD KEY (doc(20))", "ALTER TABLE {} ADD KEY (note(5), v)", "ALTER TABLE {} MODIFY name VARCHAR(80) AFTER word", "ALTER TABLE {} FORCE",
    "ALTER TABLE {} ADD COLUMN g{n} INT AS (LENGTH(doc)) VIRTUAL, ADD KEY (g{n})", "OPTIMIZE TABLE {}",
]


@pytest.mark.parametrize("keys, options", [("", ""), (", KEY doc (doc(30)), KEY note (note(10), tail)", ""), ("", "PARTITION BY HASH (id) PARTITIONS 3"),
                                           (", g INT AS (LENGTH(doc)) VIRTUAL, KEY g (g), s VARCHAR(40) AS (LEFT(note, 40)) STORED", "")])
@pytest.mark.parametrize("seed", range(int(os.environ.get("TERRACE_SEEDS", "2"))))
def test_random_statements_do_what_innodbs_do(server, db, engine, keys, options, seed):
    rng = random.Random(f"{keys}{options}{seed}")
    for name, kind in (("theirs", "InnoDB"), ("ours", engine)):
        make(db, name, kind, keys=keys, options=options)
    other = server.connect(database=db.name)
    names = [column for column, in run(db, "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ours'")]
    alters = rng.sample(ALTERS, 5)
    view = None
    for step in range(60):
        values = dict(n=rng.randint(1, 30), small=rng.randint(0, 8), doc=repr(doc(rng.random(), rng.choice([300, 5000, 40_000, BIG]))), text=repr(text(rng.random(), rng.choice([10, 900, 4000, 70_000]))),
                      text3=repr(text(rng.random(), rng.choice([10, 2000, 3000]))), bytes=repr(text(rng.random(), rng.choice([50, 2500, 60_000]))))
        sql = alters.pop() if alters and step % 12 == 11 else rng.choice(STATEMENTS)
        if "bytes" in sql and "bytes" not in names or "ALTER" in sql and ("FIRST" in sql or "bytes" in sql) and options:
            continue
        if sql.startswith(("ALTER", "OPTIMIZE")) and view:
            run(other, "COMMIT")
            view = None
        outcomes = []
        for name in ("theirs", "ours"):
            outcome = []
            for one in sql.split("; "):
                try:
                    found = db.cursor().execute(one.replace("{}", name).format(**values))
                    outcome.append(0 if one.startswith(("ALTER", "OPTIMIZE")) else found)
                except Exception as error:
                    outcome.append(error.args[0])
            outcomes.append(outcome)
        assert outcomes[0] == outcomes[1], (step, sql, values["n"])
        names = [column for column, in run(db, "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ours'")]
        if step % 4 == 3:
            columns = rng.sample(names, rng.randint(1, len(names)))
            for ordered in ("id", "v, id"):
                asked = f"SELECT {', '.join(columns)} FROM {{}} ORDER BY {ordered}"
                assert run(db, asked.format("ours")) == run(db, asked.format("theirs")), (step, sql, asked)
        if view:
            assert run(other, "SELECT * FROM ours ORDER BY id") == view, step
        if step % 15 == 5:
            run(other, "COMMIT")
            run(other, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            view = run(other, "SELECT * FROM ours ORDER BY id")
    run(other, "COMMIT")
    assert run(db, "SELECT * FROM ours ORDER BY id") == run(db, "SELECT * FROM theirs ORDER BY id")
    is_sound(db, "ours")


def test_bulk_loads_of_long_rows(db, engine, shared_directory):
    make(db, "t", engine, rows=2000 if engine != "InnoDB" else 50)
    run(db, "CREATE TABLE copied LIKE t")
    run(db, "INSERT INTO copied SELECT * FROM t")
    assert digest(db, "copied") == digest(db, "t")
    run(db, f"SELECT {COLUMNS} FROM t INTO OUTFILE '{shared_directory}/rows'")
    run(db, "CREATE TABLE loaded LIKE t")
    run(db, f"LOAD DATA INFILE '{shared_directory}/rows' INTO TABLE loaded")
    assert digest(db, "loaded") == digest(db, "t")
    run(db, "TRUNCATE copied")
    run(db, "BEGIN")
    run(db, "INSERT INTO copied SELECT * FROM t")
    run(db, "UPDATE copied SET v = v + 1")
    run(db, "ROLLBACK")
    assert run(db, "SELECT COUNT(*) FROM copied") == [(0,)]
    run(db, "ALTER TABLE t FORCE, ALGORITHM=COPY")
    assert digest(db, "loaded") == digest(db, "t")
    for table in ("t", "copied", "loaded"):
        is_sound(db, table)


@pytest.mark.parametrize("image", ["FULL", "MINIMAL", "NOBLOB"])
def test_a_binary_log_of_any_row_image_makes_the_same_rows(engine, shared_directory, image):
    server = private(["--terrace-memory=33554432", f"--binlog-row-image={image}", *binlog_options(shared_directory)])
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        make(connection, "t", engine, keys=", KEY note (note(9))")
        rng = random.Random(image)
        # REPLACE is logged as an update of the columns that it names.
        statements = [one for one in STATEMENTS if ";" not in one and not one.startswith("REPLACE")]
        for step in range(80):
            sql = rng.choice(statements)
            values = dict(n=rng.randint(1, 30), small=rng.randint(0, 8), doc=repr(doc(rng.random(), rng.choice([300, 5000, BIG]))), text=repr(text(rng.random(), 6000)),
                          text3=repr(text(rng.random(), 2900)), bytes=repr(text(rng.random(), 2500)))
            try:
                run(connection, sql.replace("{}", "t").format(**values))
            except Exception as error:
                assert error.args[0] in (1062, 4025, 1406), error
        expected = contents(connection, ["t"])
        is_sound(connection, "t")
        server.stop()
        assert replayed(shared_directory, "d", ["t"]) == expected
    finally:
        end(server)


def test_changes_beside_documents_survive_kill_9(own_server, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection = own_server.connect()
    run(connection, "CREATE DATABASE d")
    connection.select_db("d")
    run(connection, "CREATE TABLE d (id INT PRIMARY KEY, n INT NOT NULL, doc JSON, note TEXT, w INT NOT NULL, KEY (w)) ENGINE=Terrace")
    connection.cursor().executemany("INSERT INTO d VALUES (%s, 0, %s, %s, 0)", [(n, doc(f"{n} 0"), text(f"{n} 0", 5000)) for n in range(12)])
    # What each session has acknowledged of its rows, and what may have come after it.
    known = {n: {(0, 0, 0)} for n in range(12)}
    for life in range(4):
        stop = threading.Event()

        def work(who):
            rng = random.Random(f"{life} {who}")
            mine = own_server.connect(database="d")
            try:
                while not stop.is_set():
                    n = rng.randrange(3) * 4 + who
                    (now,) = known[n]
                    count, of_doc = now[0] + 1, now[2]
                    rewrites = rng.random() < 0.3
                    after = (count, count, count if rewrites else of_doc)
                    known[n] = {now, after}
                    if rng.random() < 0.3:
                        run(mine, "BEGIN")
                        run(mine, "UPDATE d SET n = n + 7, doc = %s, note = NULL WHERE id = %s", (doc("none"), n))
                        run(mine, "ROLLBACK")
                    if rewrites:
                        run(mine, "UPDATE d SET n = %s, w = %s, doc = %s WHERE id = %s", (count, count, doc(f"{n} {count}"), n))
                    else:
                        run(mine, "UPDATE d SET n = %s, w = %s WHERE id = %s", (count, count, n))
                    known[n] = {after}
            except Exception:
                return

        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        [thread.start() for thread in threads]
        stop.wait(3)
        own_server.kill9()
        stop.set()
        [thread.join() for thread in threads]
        own_server.start()
        connection = own_server.connect(database="d")
        for n, count, found, note, w in run(connection, "SELECT id, n, doc, note, w FROM d"):
            may = {one for one in known[n] if one[0] == count == one[1] == w and found == doc(f"{n} {one[2]}")}
            assert len(may) == 1 and note == text(f"{n} 0", 5000), (life, n, count, w, known[n])
            known[n] = may
        is_sound(connection, "d")
    assert sum(one[0] for may in known.values() for one in may) > 50
    own_server.stop()
    code, report = own_server.check()
    assert code == 0, report
    own_server.start()
