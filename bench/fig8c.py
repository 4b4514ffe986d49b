"""fig8c: CloudJump III, figure 8c: transactions beside periodic DDL and a stream of BLOBs, with bypass and without, as time series on emulated tiers.

sysbench runs all the time. Each PERIOD seconds a session makes an index on a large table, copies the table and drops both; another inserts BLOBs without pause.
Environment: SWITCH (name of the global variable), ROWS (of each of 4 tables), DDL_ROWS, BLOB (bytes), BLOBS (a second), CLIENTS, PERIOD, TIME, WARM_UP (seconds), MIX,
WITHOUT (mechanisms to leave out in both phases, as `terrace_without` names them: `give-way` is the throttle of builds in favour of small writers), ZIPF, FLASH, MEMORY, BUFFER (percent), PORTS.
"""

import shutil
import statistics
import sys

import paper
import report
from series import TIERS, Again, Watch, spread, turned_on
from sysbench import ended, figures as figures_of, seconds, start, sysbench, timed
from tiers import GIB, PROFILE, Tiered, place, run, setting, settle

SWITCH = setting("SWITCH", "terrace_bypass")
TABLES, ROWS, DDL_ROWS, BLOB, BLOBS = 4, setting("ROWS", 600_000), setting("DDL_ROWS", 300_000), setting("BLOB", 262_144), setting("BLOBS", 20)
DATA = TABLES * ROWS * 260 + DDL_ROWS * 200
FLASH, MEMORY, BUFFER, ZIPF, MIX = setting("FLASH", 20), setting("MEMORY", 4), setting("BUFFER", 20), setting("ZIPF", 1.2), setting("MIX", "read-write")
CLIENTS, PERIOD, TIME, WARM_UP = setting("CLIENTS", 16), setting("PERIOD", 15), setting("TIME", 90), setting("WARM_UP", 60)
WITHOUT = setting("WITHOUT", "")
SIZE = [f"--tables={TABLES}", f"--table-size={ROWS}"]
PHASES = ["bypass", "no bypass"]


def ddl(connection, n):
    run(connection, "ALTER TABLE large ADD KEY c (c), ADD KEY k (k)")
    run(connection, "CREATE TABLE copy (PRIMARY KEY (id)) ENGINE=Terrace AS SELECT * FROM large")
    run(connection, "ALTER TABLE large DROP KEY c, DROP KEY k")
    run(connection, "DROP TABLE copy")


def blobs(connection, n):
    run(connection, f"REPLACE INTO blobs SELECT {n % 200}, RANDOM_BYTES(1024), REPEAT(RANDOM_BYTES(1024), {BLOB // 1024})")


def phase(tiered, name):
    server = tiered.start(DATA * FLASH // 100, *([f"--terrace-without={WITHOUT}"] if WITHOUT else []))
    if not turned_on(server.connect(), SWITCH, name == PHASES[0]):
        sys.exit(f"the server has no variable {SWITCH}")
    connection = server.connect(database="d")
    # What the last phase left in the middle.
    run(connection, "ALTER TABLE large DROP KEY IF EXISTS c, DROP KEY IF EXISTS k")
    run(connection, "DROP TABLE IF EXISTS copy")
    options = [*SIZE, f"--mix={MIX}", f"--zipf={ZIPF}"]
    timed(server, "oltp_zipf", "d", CLIENTS, WARM_UP, *options)
    process = start(server, "oltp_zipf", "d", f"--threads={CLIENTS}", f"--time={TIME}", "--report-interval=1", "--histogram=on", *options)
    with Watch(server) as watch, Again(server, "d", ddl, pause=PERIOD, delay=PERIOD) as changes, Again(server, "d", blobs, pause=1 / BLOBS) as stream:
        text = ended(process)
    rates = seconds(text)
    beside = [rate for at, rate in rates if any(a - 1 < at < b + 1 for a, b in changes.spans)]
    quiet = [rate for at, rate in rates if not any(a - 1 < at < b + 1 for a, b in changes.spans)]
    return {"oltp": figures_of(text), "tps": rates, "tiers": watch.points, "ddl": changes.spans, "blobs": len(stream.spans), "all": spread([rate for _, rate in rates]),
            "beside_ddl": spread(beside), "between": spread(quiet), **{tier: spread([point[tier] for point in watch.points]) for tier in TIERS}}


def main():
    out = sys.argv[1]
    directory = place(out, "fig8c")
    tiered = Tiered(directory, DATA, MEMORY, BUFFER, "--max-allowed-packet=67108864")
    figures = {}
    try:
        server = tiered.start(DATA * FLASH // 100)
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        sysbench(server, "oltp_zipf", "prepare", "d", *SIZE, "--mysql-storage-engine=Terrace", "--threads=2")
        run(connection, "CREATE TABLE large (id INT PRIMARY KEY, k INT, c CHAR(100), pad CHAR(60)) ENGINE=Terrace")
        run(connection, f"INSERT INTO large SELECT seq, seq * 7919 % 1000003, CONCAT(MD5(seq), MD5(seq + 1)), MD5(seq) FROM seq_1_to_{DDL_ROWS}")
        run(connection, "CREATE TABLE blobs (id INT PRIMARY KEY, noise BLOB, data LONGBLOB) ENGINE=Terrace")
        settle(server)
        for name in PHASES:
            figures[name] = one = phase(tiered, name)
            took = statistics.median(b - a for a, b in one["ddl"]) if one["ddl"] else 0
            print(f"{name:10} {one['all']['mean']:6.0f} transactions/s, beside DDL {one['beside_ddl']['mean']:.0f} (least {one['beside_ddl']['least']:.0f}), between "
                  f"{one['between']['mean']:.0f}; p99 {one['oltp']['p99_ms']:.0f} ms; seconds below half of the mean {100 * one['all']['below_half']:.0f} %; {len(one['ddl'])} rounds of "
                  f"DDL of {took:.1f} s, {one['blobs']} BLOBs; MB/s " + ", ".join(f"{tier} {one[tier]['mean']:.1f}" for tier in TIERS) +
                  f"; deviation {100 * one['all']['deviation']:.0f} %, deepest drop to {one['beside_ddl']['least'] / max(one['between']['mean'], 1e-9):.2f} of the seconds between; the paper: {paper.FIG8C[name]}", flush=True)
    finally:
        tiered.end()
        shutil.rmtree(directory, ignore_errors=True)
    on, off = (figures[name] for name in PHASES)
    ratios = {what: on[key][part] / max(off[key][part], 1e-9) for what, key, part in (
        ("transactions/s", "all", "mean"), ("beside DDL", "beside_ddl", "mean"), ("least second beside DDL", "beside_ddl", "least"))}
    # What the paper's curves are about: how deep rates drop with DDL, each by what they are between.
    ratios |= {f"deepest drop, {name}": one["beside_ddl"]["least"] / max(one["between"]["mean"], 1e-9) for name, one in figures.items()}
    ratios |= {f"deviation of the rate, {name}": one["all"]["deviation"] for name, one in figures.items()}
    ratios["p99"] = on["oltp"]["p99_ms"] / off["oltp"]["p99_ms"]
    import plots
    figure, axes = plots.grid(1, 3)
    plots.lines(axes[0][0], {name: figures[name]["tps"] for name in PHASES}, "sysbench beside DDL and BLOBs", "second", "transactions/s")
    for name, color in zip(PHASES, ("tab:blue", "tab:orange")):
        for a, b in figures[name]["ddl"]:
            axes[0][0].axvspan(a, b, alpha=0.08, color=color)
    for axis, tier in zip(axes[0][1:], ("object", "volume")):
        plots.lines(axis, {name: [(p["second"], p[tier]) for p in figures[name]["tiers"]] for name in PHASES}, f"to and from {tier}", "second", "MB/s")
    plots.save(figure, out, "fig8c", f"Bypass on and off: DDL each {PERIOD} s (shaded), {BLOBS} BLOBs of {BLOB // 1024} KiB a second; emulated tiers, profile cloud")
    report.write(out, "fig8c", ratios, figures,
                 [f"{TABLES} tables of {ROWS} rows and one of {DDL_ROWS} ({DATA / GIB:.2f} GiB in pages), memory {MEMORY} % (at least 12 MiB), flash {FLASH} %, object buffer {BUFFER} %, {CLIENTS} clients of "
                  f"sysbench {MIX}, Zipf {ZIPF}, {WARM_UP} s of warm-up" + (f"; left out: {WITHOUT}" if WITHOUT else "")], of=PHASES[0], against=PHASES[1], profile=PROFILE, paper=paper.FIG8C)


if __name__ == "__main__":
    main()
