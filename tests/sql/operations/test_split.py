"""`terrace_split`: pages that are both on flash and on the volume are read from both, and answers stay what they are."""

import pytest
from conftest import end, private, run, wait_until

ROWS = 30000


def numbers(connection, prefix):
    return {name.lower(): int(value) for name, value in run(connection, f"SHOW GLOBAL STATUS LIKE 'terrace_{prefix}%'")}


def tiers(connection):
    return next(text for _, name, text in run(connection, "SHOW ENGINE TERRACE STATUS") if name == "tiers")


def filled(tmp_path, split):
    """A server whose table is larger than its memory; after a few rounds of reads much of it is on flash, too. No store: the volume has every page."""
    server = private(["--terrace-memory=8M", f"--terrace-flash-path={tmp_path}/flash", "--terrace-flash=256M", f"--terrace-split={split}", "--terrace-flash-admission=admit-all"])
    connection = server.connect()
    run(connection, "CREATE DATABASE d CHARACTER SET utf8mb4")
    connection.select_db("d")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT, c VARCHAR(400), d VARCHAR(400)) ENGINE=Terrace")
    run(connection, f"INSERT INTO t SELECT seq, seq * 3, REPEAT(MD5(seq), 12), REPEAT(SHA1(seq), 9) FROM seq_1_to_{ROWS}")
    return server, connection


def point_reads(connection, seed, count=1500):
    ids = [(seed + n * 7919) % ROWS + 1 for n in range(count)]
    for id in ids:
        assert run(connection, f"SELECT v, c = REPEAT(MD5(id), 12) FROM t WHERE id = {id}") == [(id * 3, 1)]


@pytest.mark.parametrize("split, policy", [("on", "knee"), ("backend-only", "backend-only"), ("shortest-wait", "shortest-wait")])
def test_pages_with_two_copies_are_read_from_both_and_the_answers_stay(tmp_path, split, policy):
    server, connection = filled(tmp_path, split)
    try:
        assert run(connection, "SELECT @@terrace_split") == [(policy,)]

        def divided():
            point_reads(connection, numbers(connection, "split")["terrace_split_flash_reads"] * 13)
            seen = numbers(connection, "split")
            # One client leaves the volume to probes, unless the policy says otherwise.
            least = {"backend-only": (0, 200)}.get(split, (200, 0))
            return seen["terrace_split_flash_reads"] > least[0] and seen["terrace_split_volume_reads"] > least[1]

        wait_until(divided)
        text = tiers(connection)
        assert f"split: {policy}; " in text and "volume: " in text.split("split:")[1], text
        # Changed and flushed pages have other copies.
        run(connection, "UPDATE t SET v = v + 0, d = REPEAT(SHA1(id + 1), 9)")
        point_reads(connection, 5)
        assert run(connection, "SELECT COUNT(*), SUM(v = id * 3), SUM(c = REPEAT(MD5(id), 12)), SUM(d = REPEAT(SHA1(id + 1), 9)) FROM t") == [(ROWS,) * 4]
        assert run(connection, "CHECK TABLE t")[0][3] == "OK"
        assert numbers(connection, "split")["terrace_split_failed"] == 0
    finally:
        end(server)


def test_without_it_no_read_is_divided(tmp_path):
    server, connection = filled(tmp_path, "off")
    try:
        point_reads(connection, 1)
        assert set(numbers(connection, "split").values()) == {0} and "split:" not in tiers(connection)
    finally:
        end(server)
