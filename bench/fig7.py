"""fig7: CloudJump III, figure 7: voter and a game-like workload from 1 to 64 clients: throughput and latencies, tiered against everything on
the volume, on emulated tiers; InnoDB on the machine's disk beside them.

Environment: LOADS (voter,game), CLIENTS (list), TIME and WARM_UP (seconds), RUNS, VOTES (voter's at the beginning), PLAYERS and BLOB (game's, bytes),
FLASH, MEMORY, BUFFER (percent of the data), ACTIVE (percent of voter's area codes from which there are calls, and of game's players who are online), INNODB=0: without it, PORTS.
The defaults are those of the table in docs/benchmarks.md. With less data than that, the minimum of 12 MiB of memory distorts the comparison: on the
tiered side half of it is buffers of the sinkers, on the other side it is all pages.
"""

import os
import shutil
import statistics
import sys

import paper
import report
from sysbench import sysbench, timed
from tiers import GIB, MIB, PROFILE, OnVolume, Tiered, listed, place, run, setting, settle

LOADS, CLIENTS = listed("LOADS", "voter,game"), listed("CLIENTS", "1,4,16,64", int)
TIME, WARM_UP, RUNS = setting("TIME", 8), setting("WARM_UP", 60), setting("RUNS", 3)
FLASH, MEMORY, BUFFER = setting("FLASH", 20), setting("MEMORY", 2), setting("BUFFER", 10)
VOTES, PLAYERS, BLOB = setting("VOTES", 20_000_000), setting("PLAYERS", 30_000), setting("BLOB", 65536)
ACTIVE = setting("ACTIVE", 10)
# voter: a row and its index entry; game: a state, in whole pages.
DATA = {"voter": VOTES * 110, "game": PLAYERS * (BLOB + 8192)}
OPTIONS = {"voter": [f"--votes={VOTES}", f"--active={ACTIVE}"], "game": [f"--players={PLAYERS}", f"--blob={BLOB}", f"--active={ACTIVE}"]}
TIERED, VOLUME, INNODB = "tiered", "all on the volume", "InnoDB"


def one_load(out, load, figures, ratios):
    directory = place(out, "fig7")
    packets = "--max-allowed-packet=67108864"
    tiered, volume = Tiered(directory, DATA[load], MEMORY, BUFFER, packets), OnVolume(directory, DATA[load], MEMORY, packets)
    try:
        flash = max(16 * MIB, DATA[load] * FLASH // 100)
        sides = [(TIERED, tiered.start(flash), "d", "Terrace"), (VOLUME, volume.start(), "d", "Terrace"), (INNODB, volume.server, "i", "InnoDB")]
        sides = sides[:2 + setting("INNODB", 1)]
        for name, server, database, engine in sides:
            run(server.connect(), f"CREATE DATABASE {database}")
            sysbench(server, load, "prepare", database, *OPTIONS[load], f"--engine={engine}")
            print(f"{load}: loaded {name}", file=sys.stderr)
        settle(tiered.server)
        tiered.start(flash)
        for name, server, database, _ in sides:
            timed(server, load, database, max(CLIENTS), WARM_UP, *OPTIONS[load])
        for clients in CLIENTS:
            runs = {name: [] for name, *_ in sides}
            for _ in range(RUNS):
                for name, server, database, _ in sides:
                    runs[name].append(timed(server, load, database, clients, TIME, *OPTIONS[load]))
            figures[f"{load}, {clients} clients"] = runs
            show(load, clients, runs, ratios)
    finally:
        tiered.end()
        volume.end()
        shutil.rmtree(directory, ignore_errors=True)


def middle(runs, name, what):
    return statistics.median(one[what] for one in runs[name])


def show(load, clients, runs, ratios):
    name = f"{load}, {clients} clients"
    for what, key in (("throughput", "rate"), ("p50", "p50_ms"), ("p95", "p95_ms"), ("p99", "p99_ms")):
        ratios[f"{name}, {what}"] = middle(runs, TIERED, key) / max(middle(runs, VOLUME, key), 1e-9)
    print(f"{name:20} {ratios[f'{name}, throughput']:5.2f} of all on the volume, p99 {ratios[f'{name}, p99']:5.2f} times   " + "   ".join(
        f"{side} {middle(runs, side, 'rate'):.0f}/s, " + "/".join(f"{middle(runs, side, f'p{p}_ms'):.2f}" for p in (50, 95, 99)) + " ms"
        for side in runs) + "".join(f"   the paper's {what}: {paper.fig7(load, clients, key):.2f}" for what, key in (("ratio", "rate"), ("p99", "p99_ms"))
                                    if paper.fig7(load, clients, key)), flush=True)


def plot(out, figures):
    import plots
    figure, axes = plots.grid(len(LOADS), 6, width=3.6)
    for row, load in enumerate(LOADS):
        of = {clients: figures[f"{load}, {clients} clients"] for clients in CLIENTS}
        for column, (what, key) in enumerate((("transactions/s", "rate"), ("p50, ms", "p50_ms"), ("p95, ms", "p95_ms"), ("p99, ms", "p99_ms"))):
            series = {("-" if name == INNODB else "") + name: [(c, middle(of[c], name, key)) for c in CLIENTS] for name in of[CLIENTS[0]]}
            plots.lines(axes[row][column], series, load, "clients", what, log_x=True, ticks=CLIENTS)
        for column, (what, key) in ((4, ("transactions/s", "rate")), (5, ("p99", "p99_ms"))):
            theirs = [(clients, paper.fig7(load, clients, key)) for clients in (1, 4, 16, 64) if paper.fig7(load, clients, key)]
            series = {"ours": [(c, middle(of[c], TIERED, key) / max(middle(of[c], VOLUME, key), 1e-9)) for c in CLIENTS], "-the paper's": theirs}
            plots.lines(axes[row][column], series, load, "clients", f"{what}, of all on the volume", log_x=True, ticks=CLIENTS)
    plots.save(figure, out, "fig7", f"Flash {FLASH} % of the data, memory {MEMORY} %, object buffer {BUFFER} %; emulated tiers, profile cloud")


def main():
    out = sys.argv[1]
    figures, ratios = {}, {}
    print("latencies: p50/p95/p99")
    for load in LOADS:
        one_load(out, load, figures, ratios)
    plot(out, figures)
    sizes = ", ".join(f"{load} {DATA[load] / GIB:.2f} GiB" for load in LOADS)
    report.write(out, "fig7", ratios, figures,
                 [f"{sizes}; memory {MEMORY} % (at least 12 MiB), flash {FLASH} %, object buffer {BUFFER} % (at least 32 MiB); {RUNS} runs of {TIME} s by "
                  f"turns after {WARM_UP} s of warm-up; a sync at each commit; numbers that call in voter are drawn evenly from {ACTIVE} % of the area codes, players in game from {ACTIVE} % of them by Zipf 1.2"],
                 of=TIERED, against=VOLUME, profile=PROFILE,
                 paper={f"{load}, {clients} clients": of for (load, clients), of in paper.FIG7.items()})


if __name__ == "__main__":
    main()
