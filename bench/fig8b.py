"""fig8b: CloudJump III, figure 8b: temporary tables kept out of the durable tiers, or not, under complex queries: transactions a second and bytes to each
tier as time series, on emulated tiers.

sysbench runs all the time; after a quiet part, sessions put large intermediate results into tables, join and group them and drop them. "Excluded": the tables are
TEMPORARY and the server keeps their pages in memory and on flash. "Not excluded": SWITCH off, if the server has such a switch; else the same queries with tables
that are not TEMPORARY, whose pages go the way of all others. Environment: SWITCH (name of a global variable), ROWS (of each of 4 tables), RESULT (rows of an
intermediate result), ANALYSTS, CLIENTS, QUIET and TIME (seconds), FLASH, MEMORY, BUFFER (percent), ZIPF, PORTS.
"""

import shutil
import sys

import report
from series import TIERS, Again, Watch, spread, turned_on
from sysbench import ended, figures as figures_of, seconds, start, sysbench, timed
from tiers import GIB, PROFILE, Tiered, place, run, setting, settle

SWITCH = setting("SWITCH", "terrace_temporary_unlogged")
TABLES, ROWS, RESULT = 4, setting("ROWS", 600_000), setting("RESULT", 20_000)
DATA = TABLES * ROWS * 260
FLASH, MEMORY, BUFFER, ZIPF = setting("FLASH", 20), setting("MEMORY", 2), setting("BUFFER", 10), setting("ZIPF", 1.2)
ANALYSTS, CLIENTS, QUIET, TIME, WARM_UP = setting("ANALYSTS", 2), setting("CLIENTS", 16), setting("QUIET", 20), setting("TIME", 60), setting("WARM_UP", 60)
SIZE = [f"--tables={TABLES}", f"--table-size={ROWS}"]
PHASES = ["excluded", "not excluded"]


def complex_query(kind, who):
    """What an analyst does: an intermediate result of a range of popular rows, with an index, joined with itself and grouped."""
    def work(connection, n):
        table, first = n % TABLES + 1, (n * 7919) % max(ROWS // 10, 1)
        name = f"result_{who}"
        run(connection, f"CREATE {kind} TABLE {name} (id INT, k INT, c CHAR(120), pad CHAR(60), KEY (k)) ENGINE=Terrace")
        run(connection, f"INSERT INTO {name} SELECT id, k % 1000, c, pad FROM sbtest{table} WHERE id BETWEEN {first} AND {first + RESULT}")
        run(connection, f"UPDATE {name} SET k = k + 1 WHERE id % 3 = 0")
        run(connection, f"SELECT a.k, COUNT(*), MAX(b.c) FROM {name} a JOIN {name} b ON a.k = b.k AND b.id % 50 = 0 WHERE a.id % 20 = 0 GROUP BY a.k ORDER BY 2 DESC LIMIT 10")
        run(connection, f"DROP TABLE {name}")
    return work


def phase(tiered, name):
    server = tiered.start(DATA * FLASH // 100)
    switched = turned_on(server.connect(), SWITCH, name == PHASES[0])
    kind = "TEMPORARY" if name == PHASES[0] or switched else ""
    options = [*SIZE, "--mix=read-write", f"--zipf={ZIPF}"]
    timed(server, "oltp_zipf", "d", CLIENTS, WARM_UP, *options)
    process = start(server, "oltp_zipf", "d", f"--threads={CLIENTS}", f"--time={QUIET + TIME}", "--report-interval=1", "--histogram=on", *options)
    with Watch(server) as watch:
        analysts = [Again(server, "d", complex_query(kind, n), delay=QUIET) for n in range(ANALYSTS)]
        [analyst.__enter__() for analyst in analysts]
        text = ended(process)
        [analyst.__exit__() for analyst in analysts]
    rates = seconds(text)
    busy = [point for point in watch.points if point["second"] > QUIET]
    return {"how": f"{kind or 'ordinary'} tables" + (f", {SWITCH} {'on' if name == PHASES[0] else 'off'}" if switched else ""),
            "queries": sum(len(analyst.spans) for analyst in analysts), "oltp": figures_of(text), "tps": rates, "tiers": watch.points,
            "tps_busy": spread([rate for at, rate in rates if at > QUIET]), **{tier: spread([point[tier] for point in busy]) for tier in TIERS}}


def main():
    out = sys.argv[1]
    directory = place(out, "fig8b")
    tiered = Tiered(directory, DATA, MEMORY, BUFFER)
    figures = {}
    try:
        server = tiered.start(DATA * FLASH // 100)
        run(server.connect(), "CREATE DATABASE d")
        sysbench(server, "oltp_zipf", "prepare", "d", *SIZE, "--mysql-storage-engine=Terrace", "--threads=2")
        settle(server)
        for name in PHASES:
            figures[name] = one = phase(tiered, name)
            print(f"{name:14} ({one['how']}): {one['tps_busy']['mean']:.0f} transactions/s beside {one['queries']} queries, least {one['tps_busy']['least']:.0f}; MB/s, mean "
                  "and most: " + ", ".join(f"{tier} {one[tier]['mean']:.1f} and {one[tier]['most']:.1f}" for tier in TIERS), flush=True)
    finally:
        tiered.end()
        shutil.rmtree(directory, ignore_errors=True)
    on, off = (figures[name] for name in PHASES)
    ratios = {"transactions/s": on["tps_busy"]["mean"] / max(off["tps_busy"]["mean"], 1e-9), "queries": on["queries"] / max(off["queries"], 1)}
    ratios |= {f"{tier}, most MB/s": on[tier]["most"] / max(off[tier]["most"], 1e-9) for tier in TIERS}
    import plots
    figure, axes = plots.grid(1, 3)
    plots.lines(axes[0][0], {name: figures[name]["tps"] for name in PHASES}, f"sysbench; complex queries from second {QUIET} on", "second", "transactions/s")
    for axis, tier in zip(axes[0][1:], ("object", "volume")):
        plots.lines(axis, {name: [(p["second"], p[tier]) for p in figures[name]["tiers"]] for name in PHASES}, f"to and from {tier}", "second", "MB/s")
    plots.save(figure, out, "fig8b", "Temporary tables excluded from the durable tiers, or not; emulated tiers, profile cloud")
    report.write(out, "fig8b", ratios, figures,
                 [f"{TABLES} tables of {ROWS} rows ({DATA / GIB:.2f} GiB in pages), memory {MEMORY} %, flash {FLASH} %, object buffer {BUFFER} %, {CLIENTS} clients of sysbench "
                  f"read-write, Zipf {ZIPF}; {ANALYSTS} sessions with intermediate results of {RESULT} rows; {WARM_UP} s of warm-up"],
                 of=PHASES[0], against=PHASES[1], profile=PROFILE)


if __name__ == "__main__":
    main()
