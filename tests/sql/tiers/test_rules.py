"""Rules of tables: placement, shares of flash, limits of reads and writes. They are shown, kept, changed online, and enforced."""

import itertools
import subprocess
import time

import pytest
from conftest import end, private, wait_until
from test_flash import status

MIB = 1 << 20
FLASH, ROWS, HOT = 32 * MIB, 10000, 2000


@pytest.fixture
def ruled(tmp_path, engine):
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    flash = [f"--terrace-flash={FLASH}", f"--terrace-flash-path={tmp_path}/flash"]
    server = private(["--terrace-memory=8388608"] + flash)
    connection = server.connect()
    connection.cursor().execute("CREATE DATABASE d")
    server.database = "d"
    yield server
    end(server)


def rules(connection, run, table):
    columns = "INDEX_NAME, PLACEMENT, FLASH_MIN, FLASH_MAX, VOLUME_IOPS, OBJECT_BANDWIDTH"
    rows = run(connection, f"SELECT {columns} FROM information_schema.TERRACE_RULES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = '{table}'")
    return {row[0]: tuple(row[1:]) for row in rows}


def test_options_are_kept_shown_and_changed_online(ruled, run, engine):
    connection = ruled.connect(database="d")
    run(
        connection,
        f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, KEY a (a) PLACEMENT=NONE, KEY b (b)) ENGINE={engine} "
        f"PLACEMENT=KEEP FLASH_MIN={4 * MIB} VOLUME_IOPS=500",
    )
    run(connection, "INSERT INTO t SELECT seq, seq, seq FROM seq_1_to_2000")
    said = {"PRIMARY": ("KEEP", 4 * MIB, 0, 500, 0), "a": ("NONE", 4 * MIB, 0, 500, 0), "b": ("KEEP", 4 * MIB, 0, 500, 0)}
    assert rules(connection, run, "t") == said
    [(_, shown)] = run(connection, "SHOW CREATE TABLE t")
    for part in ("`PLACEMENT`=NONE", "`PLACEMENT`=KEEP", f"`FLASH_MIN`={4 * MIB}", "`VOLUME_IOPS`=500"):
        assert part in shown, shown
    dump = ["mariadb-dump", "--no-defaults", f"--socket={ruled.directory}/sock", "-uroot", "d"]
    text = subprocess.run(dump, stdout=subprocess.PIPE, timeout=60, check=True).stdout.decode()
    assert "`PLACEMENT`=KEEP" in text and "`FLASH_MIN`" in text
    # The dump makes a table with the same rules.
    run(connection, "CREATE TABLE same LIKE t")
    assert rules(connection, run, "same") == said
    run(connection, "DROP TABLE same")
    assert rules(connection, run, "same") == {}
    ruled.kill9()
    ruled.start()
    connection = ruled.connect(database="d")
    # Before any session has opened the table.
    assert rules(connection, run, "t") == said
    run(connection, "ALTER TABLE t PLACEMENT=DEFAULT FLASH_MIN=0 FLASH_MAX=8388608, ALGORITHM=INSTANT, LOCK=NONE")
    now = {"PRIMARY": ("DEFAULT", 0, 8 * MIB, 500, 0), "a": ("NONE", 0, 8 * MIB, 500, 0), "b": ("DEFAULT", 0, 8 * MIB, 500, 0)}
    assert rules(connection, run, "t") == now
    run(connection, "TRUNCATE TABLE t")
    run(connection, "RENAME TABLE t TO u")
    assert rules(connection, run, "t") == {} and rules(connection, run, "u") == now
    run(connection, "ALTER TABLE u ADD KEY ab (a, b) PLACEMENT=KEEP, DROP KEY a")
    now = {"PRIMARY": ("DEFAULT", 0, 8 * MIB, 500, 0), "b": ("DEFAULT", 0, 8 * MIB, 500, 0), "ab": ("KEEP", 0, 8 * MIB, 500, 0)}
    assert rules(connection, run, "u") == now
    run(connection, "ALTER TABLE u FLASH_MAX=DEFAULT VOLUME_IOPS=DEFAULT")
    run(connection, "ALTER TABLE u DROP KEY ab")
    assert rules(connection, run, "u") == {}


def test_contradictory_options_are_refused_with_both_names(ruled, run, engine):
    connection = ruled.connect(database="d")
    columns = f"(id INT PRIMARY KEY) ENGINE={engine}"
    run(connection, f"CREATE TABLE t {columns} FLASH_MIN={20 * MIB}")
    for options, parts in [
        (f"FLASH_MIN={2 * MIB} FLASH_MAX={MIB}", ("FLASH_MIN = 2097152", "FLASH_MAX = 1048576")),
        (f"PLACEMENT=NONE FLASH_MIN={MIB}", ("PLACEMENT = NONE", "FLASH_MIN = 1048576")),
        (f"PLACEMENT=NONE FLASH_MAX={MIB}", ("PLACEMENT = NONE", "FLASH_MAX = 1048576")),
        ("VOLUME_BANDWIDTH=1000", ("VOLUME_BANDWIDTH = 1000", "a page of 16384")),
        ("OBJECT_WRITE_BANDWIDTH=1000", ("OBJECT_WRITE_BANDWIDTH = 1000", "a page of 16384")),
        (f"FLASH_MIN={15 * MIB}", (f"{35 * MIB} bytes", f"flash = {FLASH}", "d/t")),
        (f"BUFFER_MIN={4 * MIB} BUFFER_MAX={3 * MIB}", ("BUFFER_MIN = 4194304", "BUFFER_MAX = 3145728")),
        (f"BUFFER_MIN={1 << 50}", ("BUFFER_MIN", "object_buffer = 8589934592")),
        (f"BUFFER_MAX={4 * MIB}", ("BUFFER_MAX = 4194304", "object is not set")),
        ("PLACEMENT=SOMEWHERE", ("PLACEMENT", "SOMEWHERE")),
        ("PLACEMENT=KEEP FLASH_MAX=100", ("PLACEMENT = KEEP", "FLASH_MAX = 100")),
        ("FLASH_MIN=200", ("FLASH_MIN = 200", "a page of 16384")),
        ("PLACEMENT=NONE WRITE_POLICY='DUAL'", ("PLACEMENT = NONE", "WRITE_POLICY = DUAL")),
    ]:
        with pytest.raises(Exception) as refused:
            run(connection, f"CREATE TABLE x {columns} {options}")
        assert all(part in str(refused.value) for part in parts), (options, refused.value)
        assert run(connection, "SHOW TABLES") == [("t",)]
    with pytest.raises(Exception) as refused:
        run(connection, "ALTER TABLE t PLACEMENT=NONE")
    assert "PLACEMENT = NONE" in str(refused.value) and "FLASH_MIN" in str(refused.value)
    assert "NONE" not in run(connection, "SHOW CREATE TABLE t")[0][1]
    # What is guaranteed must stay there.
    with pytest.raises(Exception) as refused:
        run(connection, f"SET GLOBAL terrace_flash = {16 * MIB}")
    assert str(20 * MIB) in str(refused.value) and str(16 * MIB) in str(refused.value)


def test_numbers_have_suffixes_or_are_refused_with_name_and_value(ruled, run, engine):
    connection = ruled.connect(database="d")
    columns = f"(id INT PRIMARY KEY, a INT) ENGINE={engine}"
    run(connection, f"CREATE TABLE t {columns} FLASH_MIN='3M' FLASH_MAX=4m VOLUME_IOPS=2k")
    assert rules(connection, run, "t") == {"PRIMARY": ("DEFAULT", 3 * MIB, 4 * MIB, 2048, 0)}
    for value in ("FLASH_MIN=2M", f"FLASH_MIN='{2 * MIB}'", f"FLASH_MIN={2 * MIB}"):
        run(connection, f"ALTER TABLE t {value}, ALGORITHM=INSTANT")
        assert rules(connection, run, "t")["PRIMARY"][1] == 2 * MIB
    kept = run(connection, "SHOW CREATE TABLE t")
    for option, value in [("FLASH_MIN", "'200X'"), ("FLASH_IOPS", "abc"), ("FLASH_MAX", "'-5'"), ("BUFFER_MIN", "''"),
                          ("OBJECT_WRITE_IOPS", "'1MM'"), ("FLASH_MAX", "'99999999999999999999'"), ("FLASH_MAX", "'16E'")]:
        for sql in (f"CREATE TABLE x {columns} {option}={value}", f"ALTER TABLE t {option}={value}", f"ALTER TABLE t {option}={value}, ALGORITHM=COPY",
                    f"CREATE TABLE x {columns} PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9) {option}={value})"):
            with pytest.raises(Exception) as refused:
                run(connection, sql)
            assert refused.value.args[0] == 1912 and option in str(refused.value) and f"'{value.strip(chr(39))}'" in str(refused.value), (sql, refused.value)
    assert run(connection, "SHOW TABLES") == [("t",)] and run(connection, "SHOW CREATE TABLE t") == kept


def test_a_definition_with_an_ineffective_option_opens_and_is_reported_once(ruled, run, engine):
    connection = ruled.connect(database="d")
    run(connection, "SET sql_mode = 'IGNORE_BAD_TABLE_OPTIONS'")
    run(connection, f"CREATE TABLE old (id INT PRIMARY KEY) ENGINE={engine} FLASH_IOPS=abc FLASH_MIN={MIB}")
    assert (1912, "FLASH_IOPS") in [(code, "FLASH_IOPS" if "FLASH_IOPS" in text else text) for _, code, text in run(connection, "SHOW WARNINGS")]
    ruled.stop()
    ruled.start()
    connection = ruled.connect(database="d")
    for _ in range(2):
        run(connection, "INSERT INTO old SELECT COALESCE(MAX(id), 0) + 1 FROM old")
        run(connection, "FLUSH TABLES")
    run(connection, "ALTER TABLE old ADD COLUMN a INT")
    run(connection, "ALTER TABLE old ADD COLUMN b INT, ALGORITHM=COPY")
    assert run(connection, "SELECT COUNT(*) FROM old") == [(2,)] and rules(connection, run, "old") == {"PRIMARY": ("DEFAULT", MIB, 0, 0, 0)}
    with pytest.raises(Exception):
        run(connection, "ALTER TABLE old FLASH_IOPS=other")
    with open(f"{ruled.directory}/error.log") as log:
        log = log.read()
    told = [line for line in log[log.rindex("as process"):].splitlines() if "d.old has FLASH_IOPS='abc'" in line]
    assert len(told) == 1, told


def test_a_tables_existing_options_are_not_refused_by_a_statement_that_does_not_name_them(ruled, run, engine):
    connection = ruled.connect(database="d")

    def warned(sql):
        run(connection, sql)
        return [code for _, code, _ in run(connection, "SHOW WARNINGS")]

    def refused(sql):
        with pytest.raises(Exception) as error:
            run(connection, sql)
        return error.value.args[0]

    most = {"PRIMARY": ("DEFAULT", 20 * MIB, 0, 0, 0)}
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE={engine} FLASH_MIN='20M'")
    run(connection, "INSERT INTO t VALUES (1, 1)")
    # While the table is copied, its copy guarantees nothing beside it.
    for sql in ("ALTER TABLE t FORCE", "OPTIMIZE TABLE t", "ALTER TABLE t MODIFY a BIGINT"):
        assert 1478 not in warned(sql), sql
        assert rules(connection, run, "t") == most, sql
    run(connection, f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine} FLASH_MIN='6M' PARTITION BY HASH (id) PARTITIONS 2")
    for sql in ("ALTER TABLE p REBUILD PARTITION p0", "ALTER TABLE p FORCE", "OPTIMIZE TABLE p"):
        assert 1478 not in warned(sql), sql
        seen = run(connection, "SELECT FLASH_MIN FROM information_schema.TERRACE_RULES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 'p'")
        assert seen == [(6 * MIB,), (6 * MIB,)], sql
    run(connection, "DROP TABLE p")
    assert rules(connection, run, "t") == most
    assert refused("ALTER TABLE t FLASH_MIN='33M', FORCE") == 1478 == refused("ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2")
    run(connection, "ALTER TABLE t FLASH_MIN='30M', FORCE")
    run(connection, "ALTER TABLE t FLASH_MIN='20M'")
    # There is no room for this twice: made like the other it goes without, and so on.
    assert warned("CREATE TABLE same LIKE t") == [1478] and rules(connection, run, "same") == {}
    for sql in ("ALTER TABLE same ADD COLUMN b INT", "ALTER TABLE same ADD KEY (a)", "CREATE INDEX b ON same (b)", "ALTER TABLE same FORCE"):
        assert warned(sql) == [1478], sql
    assert rules(connection, run, "same") == {} and "FLASH_MIN" in run(connection, "SHOW CREATE TABLE same")[0][1]
    assert refused("ALTER TABLE same FLASH_MIN='19M'") == 1478
    run(connection, "DROP TABLE same")
    # Flash is smaller than what is guaranteed.
    ruled.stop()
    ruled.options = [one.replace(str(FLASH), str(8 * MIB)) for one in ruled.options]
    ruled.start()
    connection = ruled.connect(database="d")
    for sql in ("ALTER TABLE t ADD COLUMN b INT", "ALTER TABLE t ADD KEY (b)", "ALTER TABLE t FORCE", "OPTIMIZE TABLE t", "ALTER TABLE t DROP KEY b"):
        assert 1478 not in warned(sql), sql
        assert rules(connection, run, "t")["PRIMARY"] == most["PRIMARY"], sql
    assert refused("ALTER TABLE t FLASH_MIN='21M'") == 1478
    run(connection, "ALTER TABLE t FLASH_MIN='19M'")
    assert rules(connection, run, "t")["PRIMARY"][1] == 19 * MIB and run(connection, "SELECT id, a FROM t") == [(1, 1)]


def test_the_minimums_of_a_table_being_replaced_do_not_count_against_the_new_one(ruled, run, engine):
    connection = ruled.connect(database="d")

    def guaranteed(table):
        return [size for (size,) in run(connection, f"SELECT FLASH_MIN FROM information_schema.TERRACE_RULES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = '{table}'")]

    def refused(sql):
        with pytest.raises(Exception) as error:
            run(connection, sql)
        return error.value.args[0]

    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE={engine} FLASH_MIN='12M'")
    run(connection, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    run(connection, "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2")
    assert guaranteed("t") == [12 * MIB] * 2
    run(connection, "ALTER TABLE t FLASH_MIN='15M', FORCE")
    assert guaranteed("t") == [15 * MIB] * 2
    assert refused("ALTER TABLE t FLASH_MIN='17M', FORCE") == 1478
    run(connection, "ALTER TABLE t FLASH_MIN='8M'")
    run(connection, "ALTER TABLE t ADD PARTITION PARTITIONS 1")
    assert guaranteed("t") == [8 * MIB] * 3
    assert refused("ALTER TABLE t ADD PARTITION PARTITIONS 2") == 1478
    run(connection, "ALTER TABLE t FLASH_MIN='20M' REMOVE PARTITIONING")
    assert guaranteed("t") == [20 * MIB]
    # Several tables of one statement: each copy takes the place of its own.
    run(connection, f"CREATE TABLE a (id INT PRIMARY KEY) ENGINE={engine} FLASH_MIN='5M'")
    run(connection, "OPTIMIZE TABLE a, t")
    assert (guaranteed("a"), guaranteed("t")) == ([5 * MIB], [20 * MIB])
    assert run(connection, "SELECT * FROM t ORDER BY id") == [(1, 1), (2, 2), (3, 3)]


def test_create_like_a_table_with_an_ineffective_option_warns(ruled, run, engine):
    connection = ruled.connect(database="d")
    run(connection, "SET sql_mode = 'IGNORE_BAD_TABLE_OPTIONS'")
    run(connection, f"CREATE TABLE old (id INT PRIMARY KEY) ENGINE={engine} FLASH_IOPS=abc FLASH_MIN={MIB}")
    run(connection, "SET sql_mode = DEFAULT")
    run(connection, "CREATE TABLE same LIKE old")
    assert [code for _, code, _ in run(connection, "SHOW WARNINGS")] == [1912]
    assert rules(connection, run, "same") == {"PRIMARY": ("DEFAULT", MIB, 0, 0, 0)}


def test_a_temporary_table_says_that_it_has_no_rules(ruled, run, engine):
    connection = ruled.connect(database="d")
    run(connection, f"CREATE TEMPORARY TABLE x (id INT PRIMARY KEY) ENGINE={engine} PLACEMENT=KEEP FLASH_MIN=1000000000000")
    [(level, code, text)] = run(connection, "SHOW WARNINGS")
    assert (level, code) == ("Warning", 1478) and "PLACEMENT, FLASH_MIN" in text
    run(connection, "ALTER TABLE x FLASH_MAX=2000000000000")
    assert [code for _, code, _ in run(connection, "SHOW WARNINGS")] == [1478]
    run(connection, "ALTER TABLE x ADD COLUMN a INT")
    assert run(connection, "SHOW WARNINGS") == []
    run(connection, f"CREATE TEMPORARY TABLE y (id INT PRIMARY KEY) ENGINE={engine} COMPRESSION=lz4")
    assert run(connection, "SHOW WARNINGS") == []


def test_partitions_are_named_as_in_information_schema_partitions(ruled, run, engine):
    connection = ruled.connect(database="d")
    run(connection, f"CREATE TABLE `a b` (id INT, PRIMARY KEY (id)) ENGINE={engine} PLACEMENT=KEEP PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) "
        "(PARTITION `p-0` VALUES LESS THAN (10) (SUBPARTITION `s 1`, SUBPARTITION s2))")
    run(connection, f"CREATE TABLE plain (id INT PRIMARY KEY) ENGINE={engine} PLACEMENT=NONE")
    run(connection, "INSERT INTO `a b` VALUES (1), (2)")
    names = "TABLE_SCHEMA, TABLE_NAME, PARTITION_NAME, SUBPARTITION_NAME"
    theirs = run(connection, f"SELECT {names} FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = 'd' ORDER BY 2, 3, 4")
    assert theirs == [("d", "a b", "p-0", "s 1"), ("d", "a b", "p-0", "s2"), ("d", "plain", None, None)]
    run(connection, "BEGIN")
    run(connection, "SELECT * FROM `a b` FOR UPDATE")
    for table in ("SPACES", "RULES", "TABLE_STATISTICS", "INDEX_STATISTICS"):
        assert run(connection, f"SELECT {names} FROM information_schema.TERRACE_{table} WHERE TABLE_SCHEMA = 'd' ORDER BY 2, 3, 4") == theirs, table
        assert run(connection, f"SELECT TABLE_NAME FROM information_schema.TERRACE_{table} WHERE TABLE_NAME LIKE '%mysql50%'") == []
    locked = run(connection, f"SELECT DISTINCT {names} FROM information_schema.TERRACE_LOCKS ORDER BY 4")
    assert locked == theirs[:2]


def hot_reads(connection, run):
    """Reads of the hot table's pages, and how many of them flash served."""
    before, flash = status(connection, run, "pool_misses"), status(connection, run, "reads_flash")
    for at in range(1, HOT, 4):
        run(connection, "SELECT v FROM hot WHERE id = %s", (at,))
    misses = status(connection, run, "pool_misses") - before
    return (status(connection, run, "reads_flash") - flash) / max(misses, 1), misses


@pytest.mark.parametrize("rule", ["", f"FLASH_MIN={12 * MIB}", "PLACEMENT=KEEP"])
def test_repeated_scans_of_one_table_do_not_evict_a_hot_one(ruled, run, engine, rule):
    connection = ruled.connect(database="d")
    for table, rows, options in [("hot", HOT, rule), ("big", ROWS, "")]:
        run(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, pad VARCHAR(6000)) ENGINE={engine} {options}")
        for start in range(1, rows + 1, 2000):
            run(connection, f"INSERT INTO {table} SELECT seq, seq, REPEAT('x', 3900) FROM seq_{start}_to_{start + 1999}")
    # A page that flash has no time for at one eviction gets there at a later one: on a busy machine, at a much later one.
    for _ in range(5):
        for _ in range(6):
            hot_reads(connection, run)
        for _ in range(3):
            # Twice in a row, so that admission takes it for used again.
            for at in range(1, ROWS, 4):
                for again in (0, 200):
                    run(connection, "SELECT v FROM big WHERE id = %s", (max(at - again, 1),))
        ratio, misses = hot_reads(connection, run)
        print(f"{rule or 'no rule'}: flash serves {ratio:.1%} of {misses} misses of the hot table after three scans")
        assert misses > 150
        if ratio > 0.9 if rule else ratio < 0.6:
            break
    if rule:
        assert ratio > 0.9
    else:
        assert ratio < 0.6, "the control: without a rule the scans have pushed it out, or this proves nothing"


def points(connection, run, table, ids):
    """Reads these rows, one by one, in one statement."""
    [(count,)] = run(connection, f"SELECT COUNT(v) FROM {table} WHERE id IN ({', '.join(map(str, ids))})")
    assert count == len(ids)


def holds(connection, run, table, tier, option, limit_of=lambda pages: pages):
    """A limit in pages a second holds for reads of that tier, is counted, and ends at once when it is lifted."""
    passes = itertools.count()

    def seconds():
        """Reads pages spread over the table, different ones each time."""
        before, since = status(connection, run, f"reads_{tier}"), time.monotonic()
        points(connection, run, table, range(1 + 4 * (next(passes) % 8), 8000, 32))
        return time.monotonic() - since, status(connection, run, f"reads_{tier}") - before

    # A machine so busy that it makes fewer reads by itself shows nothing: then a lower limit.
    for limit in (100, 40, 15):
        run(connection, f"ALTER TABLE {table} {option}={limit_of(limit)}, ALGORITHM=INSTANT")
        took, reads = seconds()
        [(waits,)] = run(connection, f"SELECT MAX(WAITS) FROM information_schema.TERRACE_RULES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = '{table}'")
        print(f"{option}: {reads} reads in {took:.1f} s with {limit} pages a second, {waits} waits")
        assert reads > 150 and took > (reads - limit / 10 - 5) / limit
        run(connection, f"ALTER TABLE {table} {option}=0, ALGORITHM=INSTANT")
        free, without = seconds()
        print(f"{without} reads in {free:.1f} s without")
        assert without > 150
        if waits > reads / 4 and free < took / 2:
            break
    assert waits > reads / 4 and free < took / 2


def filled(connection, run, table, options, rows=8000):
    """Three rows or four in a page."""
    run(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, pad VARCHAR(6000)) ENGINE=Terrace {options}")
    for start in range(1, rows + 1, 2000):
        run(connection, f"INSERT INTO {table} SELECT seq, seq, REPEAT('x', 3900) FROM seq_{start}_to_{start + 1999}")


def bytes_of(pages):
    return 16384 * pages


def test_a_read_limit_holds(ruled, run):
    connection = ruled.connect(database="d")
    filled(connection, run, "t", "PLACEMENT=NONE VOLUME_IOPS=200")
    holds(connection, run, "t", "volume", "VOLUME_IOPS")
    # KILL ends the wait for one's turn.
    run(connection, "ALTER TABLE t VOLUME_BANDWIDTH=16384, ALGORITHM=INSTANT")
    other = ruled.connect(database="d", read_timeout=120)
    since = time.monotonic()
    with pytest.raises(Exception):
        run(other, "SET STATEMENT max_statement_time = 1 FOR SELECT SUM(v) FROM t")
    assert time.monotonic() - since < 60


def test_read_limits_of_flash_hold(ruled, run):
    connection = ruled.connect(database="d")
    filled(connection, run, "t", "PLACEMENT=KEEP")
    # Whatever left memory is on flash; what the flash filler had no time for gets there later.
    pages = "SELECT PAGES_FLASH + PAGES_MEMORY >= PAGES_VOLUME FROM information_schema.TERRACE_INDEX_STATISTICS WHERE TABLE_NAME = 't'"
    wait_until(lambda: run(connection, "SELECT COUNT(*), MAX(LENGTH(pad)) FROM t") == [(8000, 3900)] and run(connection, pages) == [(1,)])
    holds(connection, run, "t", "flash", "FLASH_IOPS")
    holds(connection, run, "t", "flash", "FLASH_BANDWIDTH", bytes_of)


def seen_of_writes(connection, run, *columns):
    rows = run(connection, f"SELECT {', '.join(columns)} FROM information_schema.TERRACE_RULES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 't'")
    return rows[0]


def test_write_limits_throttle_writers_and_yield_when_a_session_waits_for_a_flush(ruled, run, engine):
    connection = ruled.connect(database="d")
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(6000)) ENGINE={engine} VOLUME_WRITE_IOPS=100 OBJECT_WRITE_BANDWIDTH=50000000")
    run(connection, f"CREATE TABLE free (id INT PRIMARY KEY, v INT, pad VARCHAR(6000)) ENGINE={engine}")
    assert "`VOLUME_WRITE_IOPS`=100" in run(connection, "SHOW CREATE TABLE t")[0][1]
    ruled.kill9()
    ruled.start()
    connection = ruled.connect(database="d")
    limits = ("FLASH_WRITE_IOPS", "VOLUME_WRITE_IOPS", "OBJECT_WRITE_BANDWIDTH", "VOLUME_IOPS")
    assert seen_of_writes(connection, run, *limits) == (0, 100, 50000000, 0)
    run(connection, "INSERT INTO t VALUES (0, 0, '')")  # no bulk: it waits in another place
    flushed, since = status(connection, run, "flush_pages"), time.monotonic()
    for start in range(1, 2001, 100):
        run(connection, f"INSERT INTO t SELECT seq, seq, REPEAT('x', 3900) FROM seq_{start}_to_{start + 99}")
    took, pages = time.monotonic() - since, status(connection, run, "flush_pages") - flushed
    waits, waited, over = (int(n) for n in seen_of_writes(connection, run, "WRITE_WAITS", "WRITE_WAIT_US", "WRITES_OVER"))
    print(f"{pages} pages in {took:.1f} s with 100 a second, {waits} waits of {waited} us, {over} beyond")
    assert waits > 0 and waited > 0
    # Undo and what else is not the table's has no limit: it has a tenth of the pages.
    assert pages - over <= (took + 1) * 100 * 1.3
    run(connection, "INSERT INTO free VALUES (0, 0, '')")
    since = time.monotonic()
    for start in range(1, 2001, 100):
        run(connection, f"INSERT INTO free SELECT seq, seq, REPEAT('x', 3900) FROM seq_{start}_to_{start + 99}")
    print(f"the other table's in {time.monotonic() - since:.1f} s")
    # A build in bulk waits before it writes, and hears KILL.
    run(connection, "CREATE TABLE u LIKE t")
    run(connection, "ALTER TABLE u VOLUME_WRITE_IOPS=5, ALGORITHM=INSTANT")
    with pytest.raises(Exception):
        run(ruled.connect(database="d", read_timeout=120), "SET STATEMENT max_statement_time = 2 FOR INSERT INTO u SELECT * FROM t")
    assert int(run(connection, "SELECT COUNT(*) FROM u")[0][0]) == 0
    # An orderly end does not wait for the limits.
    ruled.stop()
    ruled.start()
    connection = ruled.connect(database="d")
    assert int(run(connection, "SELECT COUNT(*) FROM t")[0][0]) == 2001


def placed(connection, run, table, index="PRIMARY"):
    """The index's pages on flash, on the volume alone, in the store alone."""
    columns = "PAGES_FLASH, PAGES_VOLUME, PAGES_OBJECT"
    [row] = run(connection, f"SELECT {columns} FROM information_schema.TERRACE_INDEX_STATISTICS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = '{table}' AND INDEX_NAME = '{index}'")
    return [int(pages) for pages in row]


def flash_pages(connection, run, table):
    return int(run(connection, f"SELECT MAX(FLASH_PAGES) FROM information_schema.TERRACE_RULES WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = '{table}'")[0][0])


def test_a_table_takes_no_more_flash_than_its_cap(ruled, run):
    connection = ruled.connect(database="d")
    for table, options in ("capped", f"FLASH_MAX={4 * MIB}"), ("free", f"FLASH_MIN={MIB}"):
        filled(connection, run, table, options, 2000)

    def read(cap):
        """Each page is used, leaves, and is used again: so it is admitted."""
        for table in ("capped", "free"):
            points(connection, run, table, range(1, 2000, 3))
            assert flash_pages(connection, run, "capped") <= cap
        return flash_pages(connection, run, "capped"), flash_pages(connection, run, "free")

    wait_until(lambda: read(256)[0] > 240 and read(256)[1] > 400)
    capped, free = read(256)
    assert 240 < capped <= 256 and free > 400, (capped, free)
    # Counts by fingerprint say the same, except for a page or two with equal fingerprints.
    assert placed(connection, run, "capped")[0] <= 256 + 5
    run(connection, f"ALTER TABLE capped FLASH_MAX={8 * MIB}, ALGORITHM=INSTANT")
    wait_until(lambda: read(512)[0] > 450)
    print(f"of {sum(placed(connection, run, 'free')[1:])} pages each: {capped} with a cap of 256, {flash_pages(connection, run, 'capped')} with 512, {free} without one")


def test_a_kept_index_is_on_flash_while_its_table_never_is(ruled, run):
    connection = ruled.connect(database="d")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, k CHAR(200) CHARACTER SET latin1, pad VARCHAR(6000), KEY k (k) PLACEMENT=KEEP) ENGINE=Terrace PLACEMENT=NONE")
    for start in range(1, 8001, 2000):
        run(connection, f"INSERT INTO t SELECT seq, RPAD(MD5(seq), 200, 'k'), REPEAT('x', 1900) FROM seq_{start}_to_{start + 1999}")
    filled(connection, run, "big", "", 6000)

    def use(sql):
        """The index alone, and then what pushes it out of memory."""
        run(connection, "SELECT COUNT(k) FROM t FORCE INDEX (k) WHERE k >= ''")
        run(connection, sql)

    rows = "SELECT COUNT(pad) FROM t FORCE INDEX (PRIMARY)"
    wait_until(lambda: use(rows) or placed(connection, run, "t", "k")[0] > 0.9 * sum(placed(connection, run, "t", "k")[1:]))
    # Another table's pages, used again and again, fill the rest.
    for _ in range(2):
        points(connection, run, "big", range(1, 6000, 3))
    use("SELECT COUNT(pad) FROM big")
    (kept, *of_k), (none, *of_rows), (others, *_) = (placed(connection, run, *which) for which in (("t", "k"), ("t",), ("big",)))
    print(f"on flash: {kept} of {sum(of_k)} pages of the kept index, {none} of {sum(of_rows)} of its rows, {others} of the other table's")
    assert sum(of_k) > 100 and kept > 0.9 * sum(of_k) and others > 100
    assert none <= 3 and sum(of_rows) > 900, "a page or two may look alike"
    before = [status(connection, run, f"reads_{tier}") for tier in ("flash", "volume")]
    assert run(connection, "SELECT COUNT(k) FROM t FORCE INDEX (k) WHERE k >= ''") == [(8000,)]
    flash, volume = (status(connection, run, f"reads_{tier}") - had for tier, had in zip(("flash", "volume"), before))
    assert flash > 0.7 * sum(of_k) and volume < 0.1 * sum(of_k), (flash, volume)


@pytest.fixture
def far(tmp_path, engine, request):
    """A server with a store, to which blocks sink only for want of room; the parameter is the object buffer's size."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    sizes = [f"--terrace-object-buffer={request.param}", "--terrace-memory=10485760", "--terrace-log=8388608", "--terrace-sink-after-ms=3600000"]
    server = private(sizes + [f"--terrace-object={tmp_path}/store", "--terrace-without=clean-copies"])
    server.connect().cursor().execute("CREATE DATABASE d")
    yield server
    end(server)


@pytest.mark.parametrize("far", [64 * MIB], indirect=True)
def test_a_table_above_its_cap_sinks_before_the_slots_are_needed(far, run):
    connection = far.connect(database="d")
    filled(connection, run, "capped", f"BUFFER_MAX={4 * MIB}", 4000)
    filled(connection, run, "free", "", 4000)
    wait_until(lambda: placed(connection, run, "capped")[1] <= 256)
    _, near, sunk = placed(connection, run, "capped")
    assert sunk > 700 and status(connection, run, "sink_blocks_by_share") > 0, (near, sunk)
    assert placed(connection, run, "free")[2] == 0 == status(connection, run, "sink_blocks_by_watermark")
    # Without the cap what comes back to the volume stays there.
    run(connection, "ALTER TABLE capped BUFFER_MAX=0, ALGORITHM=INSTANT")
    run(connection, "UPDATE capped SET v = v + 1")
    wait_until(lambda: placed(connection, run, "capped")[1] > 600)
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM capped") == [(4000, 4000 * 4001 // 2 + 4000)]


@pytest.mark.parametrize("far", [64 * MIB], indirect=True)
def test_a_tables_object_buffer_minimum_stays_while_others_sink(far, run):
    connection = far.connect(database="d")
    filled(connection, run, "guaranteed", f"BUFFER_MIN={12 * MIB}", 2000)
    filled(connection, run, "plain", "", 2000)
    for n in range(4):
        filled(connection, run, f"more{n}", "", 4000)
        wait_until(lambda: status(connection, run, "object_buffer_slots_free") > 100)
    (_, stayed, sunk), (_, control, _) = placed(connection, run, "guaranteed"), placed(connection, run, "plain")
    print(f"on the volume: {stayed} pages of the table with a guarantee, {control} of one without")
    assert stayed > 450 and sunk == 0, (stayed, sunk)
    assert run(connection, "SELECT BUFFER_MIN, BUFFER_PAGES FROM information_schema.TERRACE_RULES") == [(12 * MIB, stayed)]
    assert control < 250, "the control: without a guarantee the others have pushed it out, or this proves nothing"
    assert run(connection, "SELECT COUNT(*), SUM(v) FROM plain") == run(connection, "SELECT COUNT(*), SUM(v) FROM guaranteed")


@pytest.mark.parametrize("far", [8 * MIB], indirect=True)
def test_read_limits_of_the_store_hold(far, run):
    connection = far.connect(database="d")
    filled(connection, run, "t", "")
    wait_until(lambda: placed(connection, run, "t")[2] > 1500)
    holds(connection, run, "t", "object", "OBJECT_IOPS")
    holds(connection, run, "t", "object", "OBJECT_BANDWIDTH", bytes_of)


def test_minimums_take_precedence_over_kept_tables_and_a_lower_cap_is_met_at_once(ruled, run, engine):
    connection = ruled.connect(database="d")

    def pages(table):
        [(pages,)] = run(connection, f"SELECT FLASH_PAGES FROM information_schema.TERRACE_RULES WHERE TABLE_NAME = '{table}'")
        return pages

    def scan(table):
        run(connection, f"SELECT SUM(LENGTH(v)) FROM {table}")
        return pages(table)

    for table, options, rows in (("kept", "PLACEMENT=KEEP", 5000), ("owed", "FLASH_MIN=8M", 1400)):
        run(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(8000)) ENGINE={engine} {options}")
        run(connection, f"INSERT INTO {table} SELECT seq, REPEAT(MD5(seq * 7), 200) FROM seq_1_to_{rows}")
        scan(table)
        # A page that is evicted while many others wait to be written to flash does not get there. The next scan evicts it again.
        wait_until(lambda: scan(table) > 1900 or table == "owed")

    def read():
        for key in range(1, 1400, 2):
            run(connection, f"SELECT LENGTH(v) FROM owed WHERE id = {key}")
        return pages("owed") >= 400

    wait_until(read)
    assert pages("owed") <= 512 + 16 and pages("kept") > 1400
    run(connection, "ALTER TABLE kept PLACEMENT=DEFAULT FLASH_MAX=4M")
    assert pages("kept") <= 256 + 16
    assert run(connection, "SELECT COUNT(*), SUM(LENGTH(v)) FROM kept") == [(5000, 5000 * 6400)]


def test_a_rule_about_an_absent_tier_is_a_note(db, run, engine):
    """The fixture's server has neither flash nor a store: once for a statement, partitioned or not, and only where it says rules."""
    if engine == "InnoDB":
        pytest.skip("Terrace's own")
    connection = db

    def notes(sql):
        run(connection, sql)
        return [(level, code, text) for level, code, text in run(connection, "SHOW WARNINGS")]

    flash, store = "there is no flash, so {} does nothing", "there is no object store, so {} does nothing"
    for options, expected in [
        ("PLACEMENT=KEEP FLASH_IOPS=100", [flash.format("PLACEMENT=KEEP, FLASH_IOPS")]),
        ("WRITE_POLICY='DUAL' OBJECT_IOPS=5", [flash.format("WRITE_POLICY=DUAL"), store.format("OBJECT_IOPS")]),
        ("PLACEMENT=NONE VOLUME_IOPS=100 COMPRESSION=lz4", []),
    ]:
        for partitions in ("", " PARTITION BY HASH (id) PARTITIONS 3"):
            found = notes(f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY) ENGINE=Terrace {options}{partitions}")
            assert [(level, code) for level, code, _ in found] == [("Note", 1478)] * len(expected), found
            assert all(words in text for words, (_, _, text) in zip(expected, found)), found
    run(connection, "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY) ENGINE=Terrace PLACEMENT=KEEP")
    assert notes("ALTER TABLE t ADD v INT") == [] and notes("CREATE TABLE u LIKE t") == []
    assert len(notes("ALTER TABLE t OBJECT_BANDWIDTH=1M")) == 2
    run(connection, "DROP TABLE t, u")
