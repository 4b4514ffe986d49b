"""Write policies: set by a table or the instance, shown, and in effect on flash."""

import pytest
from conftest import end, private

MIB = 1 << 20


@pytest.fixture
def flashed(tmp_path, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    server = private(["--terrace-memory=8388608", f"--terrace-flash={64 * MIB}", f"--terrace-flash-path={tmp_path}/flash"])
    server.connect().cursor().execute("CREATE DATABASE d")
    yield server
    end(server)


def test_the_write_policy_of_a_table_or_the_instance_decides_what_a_flush_does_to_flash(flashed, run, engine):
    db = flashed.connect(database="d")

    def seen(table):
        columns = "WRITE_POLICY, WRITES_CLEAN, WRITES_DUAL, WRITES_SINGLE"
        return run(db, f"SELECT {columns} FROM information_schema.TERRACE_TABLE_STATISTICS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = '{table}'")[0]

    works = {"plain": 0, "twice": 0, "clean": 0}

    def worked(table, policy):
        """Works until enough pages were written by the policy: on a busy machine fewer get to flash in time."""
        totals = [0, 0, 0]
        for _ in range(8):
            totals = [total + more for total, more in zip(totals, work(table))]
            if totals[policy] > 100:
                break
        return totals

    def work(table):
        """Brings pages to flash, changes pages that flash has, and flushes them. Returns how many of each by the policy."""
        works[table] += 1
        before = seen(table)
        for n in range(6):
            assert run(db, f"SELECT COUNT(*), SUM(LENGTH(pad)) FROM {table}") == [(8000, 8000 * 1800)]
            run(db, f"UPDATE {table} SET v = v + 1 WHERE id % 40 = {n}")
        now = seen(table)
        assert now[0] == before[0]
        return now[1] - before[1], now[2] - before[2], now[3] - before[3]

    for table, option in ("plain", ""), ("twice", "WRITE_POLICY='DUAL'"), ("clean", "WRITE_POLICY=CLEAN"):
        run(db, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, pad VARCHAR(2000)) ENGINE={engine} {option}")
        run(db, f"INSERT INTO {table} SELECT seq, 0, REPEAT('x', 1800) FROM seq_1_to_8000")
    assert [seen(table)[0] for table in ("plain", "twice", "clean")] == ["auto", "dual", "clean"]
    assert run(db, "SELECT @@GLOBAL.terrace_write_policy") == [("auto",)]
    rules = "SELECT WRITE_POLICY FROM information_schema.TERRACE_RULES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 'twice'"
    assert run(db, rules) == [("DUAL",)] and "`WRITE_POLICY`='DUAL'" in run(db, "SHOW CREATE TABLE twice")[0][1]
    clean, dual, single = worked("twice", 1)
    assert dual > 100 and single == 0, (clean, dual, single)
    clean, dual, single = worked("clean", 0)
    assert clean > 100 and (dual, single) == (0, 0)
    run(db, "SET GLOBAL terrace_write_policy = 'dual'")
    assert seen("plain")[0] == "dual" and seen("clean")[0] == "clean"
    assert worked("plain", 1)[1] > 100
    run(db, "SET GLOBAL terrace_write_policy = 'clean'")
    work("plain")  # a flush that was under way still is by the former
    assert work("plain")[1] == 0
    run(db, "ALTER TABLE twice WRITE_POLICY=CLEAN, ALGORITHM=INSTANT")
    assert work("twice")[1] == 0
    run(db, "SET GLOBAL terrace_write_policy = 'auto'")
    assert seen("plain")[0] == "auto"
    # What the tables hold is the same under each of them.
    flashed.kill9()
    flashed.start()
    db = flashed.connect(database="d")
    total = "SELECT COUNT(*), SUM(v), SUM(LENGTH(pad)) FROM "
    for table, times in works.items():
        assert run(db, total + table) == [(8000, times * 6 * 200, 8000 * 1800)]
    assert seen("clean")[0] == "clean"
