"""fig8b: CloudJump III, figure 8b: temporary tables kept out of the durable tiers, or not, under complex queries: transactions a second and bytes to each
tier as time series, on emulated tiers. The result is how high the peaks are, and how much they vary.

sysbench runs all the time; after a quiet part, analysts ask. QUERIES (list): `tables`: they put large intermediate results into tables, join and group them and drop them. "Excluded": the tables are
TEMPORARY and the server keeps their pages in memory and on flash. "Not excluded": SWITCH off, if the server has such a switch; else the same queries with tables
that are not TEMPORARY, whose pages go the way of all others. `derived`: they join a derived table whose GROUP BY does not fit into memory. "Excluded": as the server does it, which spills to
a temporary table of its own in its directory for such, past all tiers. "Not excluded": the derived table is made an ordinary table first.

Environment: QUERIES, SWITCH (name of a global variable), ROWS (of each of 4 tables), RESULT (rows of an intermediate result), ANALYSTS, CLIENTS, QUIET, TIME, WARM_UP (the paper has three minutes)
and SETTLE (seconds), FLASH, MEMORY, BUFFER (percent), ZIPF, PORTS.
"""

import shutil
import sys

import paper
import report
from series import TIERS, Again, Watch, spread, turned_on
from sysbench import ended, figures as figures_of, seconds, start, sysbench, timed
from tiers import GIB, PROFILE, Tiered, listed, place, run, setting, settle

QUERIES = listed("QUERIES", "tables,derived")
SWITCH = setting("SWITCH", "terrace_temporary_unlogged")
TABLES, ROWS, RESULT = 4, setting("ROWS", 600_000), setting("RESULT", 20_000)
DATA = TABLES * ROWS * 260
FLASH, MEMORY, BUFFER, ZIPF = setting("FLASH", 20), setting("MEMORY", 2), setting("BUFFER", 10), setting("ZIPF", 1.2)
ANALYSTS, CLIENTS, QUIET, TIME, WARM_UP = setting("ANALYSTS", 2), setting("CLIENTS", 16), setting("QUIET", 20), setting("TIME", 60), setting("WARM_UP", 60)
SETTLE, HISTORY = setting("SETTLE", 120), 1000
SIZE = [f"--tables={TABLES}", f"--table-size={ROWS}"]
PHASES = ["excluded", "not excluded"]


def part(n):
    """The range of popular rows of an analyst's question number n: a table, its first and last row."""
    first = (n * 7919) % max(ROWS // 10, 1)
    return f"sbtest{n % TABLES + 1}", first, first + RESULT


def intermediate(kind, who):
    """An intermediate result, with an index, joined with itself and grouped."""
    def work(connection, n):
        (table, first, last), name = part(n), f"result_{who}"
        run(connection, f"CREATE {kind} TABLE {name} (id INT, k INT, c CHAR(120), pad CHAR(60), KEY (k)) ENGINE=Terrace")
        run(connection, f"INSERT INTO {name} SELECT id, k % 1000, c, pad FROM {table} WHERE id BETWEEN {first} AND {last}")
        run(connection, f"UPDATE {name} SET k = k + 1 WHERE id % 3 = 0")
        run(connection, f"SELECT a.k, COUNT(*), MAX(b.c) FROM {name} a JOIN {name} b ON a.k = b.k AND b.id % 50 = 0 WHERE a.id % 20 = 0 GROUP BY a.k ORDER BY 2 DESC LIMIT 10")
        run(connection, f"DROP TABLE {name}")
    return work


def derived(excluded, who):
    """A derived table, a group for each text, joined with a few rows."""
    def work(connection, n):
        (table, first, last), name = part(n), f"derived_{who}"
        groups = f"SELECT c, MIN(id) AS id, COUNT(*) AS n, MAX(pad) AS pad FROM {table} WHERE id BETWEEN {first} AND {last} GROUP BY c"
        ask = "SELECT COUNT(*), MAX(d.pad) FROM {0} JOIN " + f"{table} b ON b.id = d.id WHERE d.id % 20 = 0"
        if excluded:
            # Neither what is in memory is enough, nor is the derived table merged into the query.
            run(connection, "SET tmp_memory_table_size = 1048576, max_heap_table_size = 1048576")
            run(connection, ask.format(f"({groups}) d"))
        else:
            run(connection, f"CREATE TABLE {name} ENGINE=Terrace AS {groups}")
            run(connection, ask.format(f"{name} d"))
            run(connection, f"DROP TABLE {name}")
    return work


def spilled(server):
    [(_, count)] = run(server.connect(), "SHOW GLOBAL STATUS LIKE 'Created_tmp_disk_tables'")
    return int(count)


def phase(tiered, queries, name):
    settle(tiered.server, SETTLE, HISTORY)
    server = tiered.start(DATA * FLASH // 100)
    excluded = name == PHASES[0]
    if queries == "tables":
        switched = turned_on(server.connect(), SWITCH, excluded)
        kind = "TEMPORARY" if excluded or switched else ""
        how, work = f"{kind or 'ordinary'} tables" + (f", {SWITCH} {'on' if excluded else 'off'}" if switched else ""), lambda who: intermediate(kind, who)
    else:
        how, work = "spilled by the server" if excluded else "as ordinary tables", lambda who: derived(excluded, who)
    options = [*SIZE, "--mix=read-write", f"--zipf={ZIPF}"]
    timed(server, "oltp_zipf", "d", CLIENTS, WARM_UP, *options)
    before = spilled(server)
    process = start(server, "oltp_zipf", "d", f"--threads={CLIENTS}", f"--time={QUIET + TIME}", "--report-interval=1", "--histogram=on", *options)
    with Watch(server) as watch:
        analysts = [Again(server, "d", work(n), delay=QUIET) for n in range(ANALYSTS)]
        [analyst.__enter__() for analyst in analysts]
        text = ended(process)
        [analyst.__exit__() for analyst in analysts]
    rates = seconds(text)
    busy = [point for point in watch.points if point["second"] > QUIET]
    return {"how": how, "queries": sum(len(analyst.spans) for analyst in analysts), "spilled": spilled(server) - before, "oltp": figures_of(text), "tps": rates,
            "tiers": watch.points, "tps_busy": spread([rate for at, rate in rates if at > QUIET]), **{tier: spread([point[tier] for point in busy]) for tier in TIERS}}


def main():
    out = sys.argv[1]
    directory = place(out, "fig8b")
    tiered = Tiered(directory, DATA, MEMORY, BUFFER)
    figures, ratios = {}, {}
    try:
        server = tiered.start(DATA * FLASH // 100)
        run(server.connect(), "CREATE DATABASE d")
        sysbench(server, "oltp_zipf", "prepare", "d", *SIZE, "--mysql-storage-engine=Terrace", "--threads=2")
        print("MB/s: mean, most, deviation by the mean")
        for queries in QUERIES:
            for name in PHASES:
                figures[f"{queries}, {name}"] = one = phase(tiered, queries, name)
                print(f"{queries:8}{name:14} ({one['how']}): {one['tps_busy']['mean']:.0f} transactions/s beside {one['queries']} queries ({one['spilled']} tables spilled), least "
                      f"{one['tps_busy']['least']:.0f}, deviation {one['tps_busy']['deviation']:.2f}; MB/s " + ", ".join(
                          f"{tier} {one[tier]['mean']:.1f}, {one[tier]['most']:.1f}, {one[tier]['deviation']:.2f}" for tier in TIERS), flush=True)
            compared(queries, *(figures[f"{queries}, {name}"] for name in PHASES), ratios)
    finally:
        tiered.end()
        shutil.rmtree(directory, ignore_errors=True)
    if setting("PLOT", 1):
        plot(out, figures)
    report.write(out, "fig8b", ratios, figures,
                 [f"{TABLES} tables of {ROWS} rows ({DATA / GIB:.2f} GiB in pages), memory {MEMORY} % (at least 12 MiB), flash {FLASH} %, object buffer {BUFFER} %, {CLIENTS} clients of sysbench "
                  f"read-write, Zipf {ZIPF}; {ANALYSTS} sessions with intermediate results of {RESULT} rows; {WARM_UP} s of warm-up; before each phase purge and sinking catch up"],
                 of=PHASES[0], against=PHASES[1], profile=PROFILE, paper=paper.FIG8B)


def compared(queries, on, off, ratios):
    """Excluded to not excluded: rates, and the bandwidth's peaks and deviations (in MB/s), which are the paper's claim."""
    ratios |= {f"{queries}, transactions/s": on["tps_busy"]["mean"] / max(off["tps_busy"]["mean"], 1e-9), f"{queries}, queries": on["queries"] / max(off["queries"], 1)}
    for tier in TIERS:
        ratios[f"{queries}, {tier}, most MB/s"] = on[tier]["most"] / max(off[tier]["most"], 1e-9)
        ratios[f"{queries}, {tier}, deviation in MB/s"] = on[tier]["deviation"] * on[tier]["mean"] / max(off[tier]["deviation"] * off[tier]["mean"], 1e-9)
    print(f"{queries:8}excluded, of not excluded: " + ", ".join(
        f"{tier} peak {ratios[f'{queries}, {tier}, most MB/s']:.2f}, deviation {ratios[f'{queries}, {tier}, deviation in MB/s']:.2f}" for tier in TIERS)
        + f"; the paper: {paper.FIG8B['excluded']}; without: {paper.FIG8B['not excluded']}", flush=True)


def plot(out, figures):
    import plots
    figure, axes = plots.grid(len(QUERIES), 3)
    for row, queries in zip(axes, QUERIES):
        both = {name: figures[f"{queries}, {name}"] for name in PHASES}
        plots.lines(row[0], {name: one["tps"] for name, one in both.items()}, f"sysbench; {queries} from second {QUIET} on", "second", "transactions/s")
        for axis, tier in zip(row[1:], ("object", "volume")):
            plots.lines(axis, {name: [(p["second"], p[tier]) for p in one["tiers"]] for name, one in both.items()}, f"to and from {tier}", "second", "MB/s")
    plots.save(figure, out, "fig8b", "Temporary tables excluded from the durable tiers, or not; emulated tiers, profile cloud")


if __name__ == "__main__":
    main()
