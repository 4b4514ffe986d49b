"""Requests to the tiers by purpose: the counters change as they should, and agree wherever they are shown."""

import shutil

import pymysql
import pytest
from test_object import a_store, flashed, is_mostly_far, load, wait_for

COLUMNS = ["requests", "bytes", "errors", "retries", "mean", "p50", "p99"]


@pytest.fixture
def store(tmp_path, monkeypatch, engine):
    yield from a_store("s3", tmp_path, monkeypatch, engine)


@pytest.fixture
def tiered(store, tmp_path):
    yield from flashed(store, tmp_path, "--terrace-compression=none")


def requests(connection, run):
    rows = run(connection, "SELECT TIER, PURPOSE, REQUESTS, BYTES, ERRORS, RETRIES, MEAN_US, P50_US, P99_US FROM information_schema.TERRACE_IO")
    assert len(rows) == len({row[:2] for row in rows}), "one line a tier and purpose"
    return {f"{tier}.{purpose}": dict(zip(COLUMNS, numbers)) for tier, purpose, *numbers in rows}


def test_requests_are_counted_by_purpose_in_each_tier(tiered, store, tmp_path, run):
    connection = tiered.connect()
    load(connection, run)
    run(connection, "CREATE TABLE small (id INT PRIMARY KEY) ENGINE=Terrace")
    # A checkpoint of the load before may fall among them, and write the superblock, too.
    for turn in range(5):
        before = requests(connection, run)
        for i in range(50 * turn, 50 * turn + 50):
            run(connection, f"INSERT INTO small VALUES ({i})")
        after = requests(connection, run)
        if after["volume.superblock"]["requests"] - before["volume.superblock"]["requests"] <= 4:
            break

    def more(name, what="requests"):
        return after[name][what] - before[name][what]

    assert more("volume.log_write") >= 50 and more("volume.log_write_sync") >= 50, "each commit is written and synced"
    assert more("volume.log_write", "bytes") >= 50 * 4096
    assert more("volume.superblock") <= 4, "commits don't write it"

    wait_for(lambda: is_mostly_far(connection, run))
    written = requests(connection, run)
    # With empty flash: what it happened to have would be read there.
    tiered.stop()
    shutil.rmtree(tmp_path / "flash")
    tiered.start()
    connection = tiered.connect(database="d")
    before = requests(connection, run)
    for _ in range(2):
        assert run(connection, "SELECT COUNT(*) FROM t WHERE LENGTH(pad) = 900") == [(9000,)]
    for i in range(1, 9000, 50):
        run(connection, "SELECT pad FROM t WHERE id = %s", (i,))
    after = requests(connection, run)
    # A scan reads ahead, so its requests are few and large.
    assert more("object.page_miss") > 0 and more("object.page_miss", "bytes") > 50 * more("object.page_miss")
    assert more("object.page_miss", "errors") == more("object.page_miss", "retries") == 0
    assert written["object.sink"]["requests"] > 0 and written["object.sink"]["bytes"] > 1_000_000
    assert after["object.epoch"]["requests"] > 0, "the fence was taken"
    wait_for(lambda: requests(connection, run)["flash.flash_fill"]["requests"] > 0)

    for name, line in [*written.items(), *after.items()]:
        assert line["errors"] == 0, (name, line)
        if line["requests"] == 0:
            assert line["mean"] == line["p50"] == line["p99"] == line["bytes"] == 0, (name, line)
        else:
            assert line["p50"] <= line["p99"], (name, line)
    near, far = written["volume.log_write"], after["object.page_miss"]
    assert 0 < near["mean"] < 10_000_000 and 0 < far["mean"] < 10_000_000

    # The same in the text, and by tier in the counters. Between two looks numbers only grow.
    text = run(connection, "SHOW ENGINE TERRACE STATUS")[0][2]
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    assert lines["tier.purpose"][:4] == ["requests", "bytes", "errors", "retries"]
    later = requests(connection, run)
    for name, line in after.items():
        assert line["requests"] <= int(lines[name][0]) <= later[name]["requests"], name
    totals = {name[len("Terrace_"):]: int(value) for name, value in run(connection, "SHOW STATUS LIKE 'Terrace%'") if value.isdigit()}
    last = requests(connection, run)
    for tier in ("volume", "flash", "object"):
        def of(snapshot, what):
            return sum(line[what] for name, line in snapshot.items() if name.startswith(tier + "."))

        assert of(later, "requests") <= totals[f"{tier}_requests"] <= of(last, "requests")
        assert of(later, "bytes") <= totals[f"{tier}_request_bytes"] <= of(last, "bytes")
        assert totals[f"{tier}_request_errors"] == 0


def test_errors_and_retries_of_a_dead_store_are_counted(tiered, store, run):
    connection = tiered.connect()
    load(connection, run)
    wait_for(lambda: is_mostly_far(connection, run))
    before = requests(connection, run)
    assert sum(line["errors"] + line["retries"] for line in before.values()) == 0
    store.die()
    run(connection, "UPDATE t SET v = v + 1 WHERE id > 8900")

    def failed(what):
        return sum(line[what] for name, line in requests(connection, run).items() if name.startswith("object."))

    wait_for(lambda: failed("errors") > 0 and failed("retries") > 0)
    after = requests(connection, run)
    assert all(line["errors"] == 0 for name, line in after.items() if not name.startswith("object."))
    store.live()
    wait_for(lambda: requests(connection, run)["object.sink"]["requests"] > after["object.sink"]["requests"])


def test_only_users_with_the_process_privilege_see_requests(server, engine, run):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection = server.connect()
    assert run(connection, "SELECT COUNT(*) FROM information_schema.TERRACE_IO WHERE TIER = 'volume'") == [(12,)]
    assert run(connection, "SELECT COUNT(*) FROM information_schema.TERRACE_IO WHERE TIER <> 'volume'") == [(0,)], "no such tiers here"
    run(connection, "CREATE USER unprivileged@'127.0.0.1'")
    try:
        other = pymysql.connect(host="127.0.0.1", port=server.port, user="unprivileged")
        assert run(other, "SELECT * FROM information_schema.TERRACE_IO") == []
    finally:
        run(connection, "DROP USER unprivileged@'127.0.0.1'")
