"""What random interleavings of statements found: sessions step by step, on InnoDB and on the engine (see test_parity_sessions)."""

from beside import differences

WEIGHTS = [
    ("a", "CREATE TABLE b (id INT PRIMARY KEY, v INT) ENGINE=@E"),
    ("a", "INSERT INTO b SELECT seq, 0 FROM seq_1_to_500"),
    ("a", "BEGIN"), ("b", "BEGIN"),
    ("a", "SELECT COUNT(*) FROM b FOR UPDATE"),
    ("b", "UPDATE t SET v = v + 1 WHERE id IN (2, 3, 4)"),
    ("b", "INSERT INTO t VALUES (11, 1, 1), (12, 2, 2), (13, 3, 3), (14, 4, 4)"),
]

SCENARIOS = {
    # NOWAIT looked for circles: an innocent transaction was rolled back, or its own.
    "who does not wait closes no circle": [
        ("a", "BEGIN"), ("b", "BEGIN"),
        ("a", "UPDATE t SET v = v + 1 WHERE id IN (1, 2, 3)"),
        ("b", "UPDATE t SET v = v + 1 WHERE id = 4"),
        ("b", "UPDATE t SET v = v + 1 WHERE id = 1"),
        ("a", "SELECT v FROM t WHERE id = 4 FOR UPDATE NOWAIT"),
        ("a", "SELECT v FROM t WHERE id = 4 FOR UPDATE WAIT 0"),
        ("a", "COMMIT"), ("b?",), ("b", "COMMIT"),
        ("a", "SELECT * FROM t"),
    ],
    "who does not wait is no victim": [
        ("a", "BEGIN"), ("b", "BEGIN"),
        ("a", "UPDATE t SET v = v + 1 WHERE id = 1"),
        ("b", "UPDATE t SET v = v + 1 WHERE id IN (3, 4, 5)"),
        ("b", "UPDATE t SET v = v + 1 WHERE id = 1"),
        ("a", "SELECT v FROM t WHERE id = 4 FOR UPDATE NOWAIT"),
        ("a", "COMMIT"), ("b?",), ("b", "COMMIT"),
        ("a", "SELECT * FROM t"),
    ],
    # Rows that were only read weighed as much as rows that were changed.
    "the victim is who has changed nothing": [*WEIGHTS, ("a", "UPDATE t SET v = 9 WHERE id = 2"), ("b", "UPDATE b SET v = 9 WHERE id = 400"), ("a?",),
                                              ("b", "COMMIT"), ("a", "COMMIT"), ("a", "SELECT * FROM t")],
    "the victim is who has changed nothing, whoever closes the circle": [
        *WEIGHTS, ("b", "UPDATE b SET v = 9 WHERE id = 400"), ("a", "UPDATE t SET v = 9 WHERE id = 2"), ("b?",), ("b", "COMMIT"), ("a", "COMMIT"),
        ("a", "SELECT * FROM t")],
        # A tree with locked gaps and locked rows counted twice, so the transaction with more changes was the victim (main.delete_innodb).
    "the victim is not the transaction with more changes in fewer trees": [
        ("a", "CREATE TABLE c (id INT PRIMARY KEY, v INT) ENGINE=@E"), ("a", "CREATE TABLE d (id INT, v INT) ENGINE=@E"), ("a", "CREATE TABLE e (id INT PRIMARY KEY, v INT) ENGINE=@E"),
        ("a", "INSERT INTO c VALUES (1, 0), (2, 0)"), ("a", "INSERT INTO e VALUES (1, 0)"),
        ("a", "BEGIN"), ("b", "BEGIN"),
        ("a", "DELETE FROM c"),
        ("b", "UPDATE e SET v = 20"),
        ("a", "DELETE FROM e"),
        ("b", "INSERT INTO d (id) VALUES (1), (2)"),
        ("b", "UPDATE c SET v = 7"),
        ("a?",), ("b", "COMMIT"), ("a", "COMMIT"),
        ("a", "SELECT * FROM c"), ("a", "SELECT * FROM e"),
    ],
    # A transaction that had skipped the row seemed to lock its gap.
    "a job that another has skipped can be given back": [
        ("a", "CREATE TABLE j (id INT PRIMARY KEY, state INT, KEY (state)) ENGINE=@E"),
        ("a", "INSERT INTO j VALUES (1, 0), (2, 0), (3, 0), (4, 0)"),
        ("a", "BEGIN"), ("b", "BEGIN"),
        ("a", "SELECT id FROM j FORCE INDEX (state) WHERE state = 0 LIMIT 1 FOR UPDATE SKIP LOCKED"),
        ("a", "UPDATE j SET state = 1 WHERE id = 1"),
        ("b", "SELECT id FROM j FORCE INDEX (state) WHERE state = 0 LIMIT 1 FOR UPDATE SKIP LOCKED"),
        ("a", "UPDATE j SET state = 0 WHERE id = 1"),
        ("a", "COMMIT"), ("b", "COMMIT"),
        ("a", "SELECT * FROM j FORCE INDEX (state)"),
    ],
    # What the update of ON DUPLICATE KEY UPDATE meets is not going to be changed.
    "a duplicate of an update is shared": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (4, 99, 999) ON DUPLICATE KEY UPDATE u = 300"),
        ("b", "UPDATE t SET v = v + 1 WHERE id = 3"),
        ("a", "COMMIT"),
    ],
    # The shorter one of both time-outs, and another variable's SET STATEMENT took lock_wait_timeout for its own.
    "WAIT n is as long as it says": [
        ("b", "SET terrace_lock_wait_timeout_ms = 200"), ("b", "SET innodb_lock_wait_timeout = 1"),
        ("a", "BEGIN"),
        ("a", "UPDATE t SET v = 11 WHERE id = 1"),
        ("b", "SELECT v FROM t WHERE id = 1 FOR UPDATE WAIT 600"),
        ("a", "COMMIT"), ("b?",),
    ],
    "lock_wait_timeout is of metadata locks beside SET STATEMENT, too": [
        ("b", "SET lock_wait_timeout = 0"),
        ("a", "BEGIN"),
        ("a", "UPDATE t SET v = 11 WHERE id = 1"),
        ("b", "SET STATEMENT sort_buffer_size = 100000 FOR UPDATE t SET v = 12 WHERE id = 1"),
        ("a", "COMMIT"), ("b?",),
    ],
}


def test_interleaved_sessions_proceed_as_on_innodb(server, engine):
    wrong, _ = differences(server, engine, SCENARIOS)
    assert not wrong, wrong
