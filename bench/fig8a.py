"""fig8a: CloudJump III, figure 8a: which pages are admitted to flash. sysbench on emulated tiers with each policy: transactions a second, the share of
memory's misses that flash answers, flash writes and reads a second.

Environment: POLICIES (list), ROWS (of each of 4 tables), MIX, ZIPF, FLASH, MEMORY, BUFFER (percent of the data), CLIENTS, TIME, WARM_UP (seconds), RUNS, PORTS.
"""

import os
import shutil
import statistics
import sys

import paper
import report
from sysbench import sysbench, timed
from tiers import GIB, PROFILE, Tiered, io, listed, place, run, setting, settle, status

POLICIES = listed("POLICIES", "one-hit-discard,admit-all,ghost,tiny-lfu,ghost-tiny-lfu")
TABLES, ROWS = 4, setting("ROWS", 600_000)
DATA = TABLES * ROWS * 260
MIX, ZIPF = setting("MIX", "read-write"), setting("ZIPF", 0.99)
FLASH, MEMORY, BUFFER = setting("FLASH", 20), setting("MEMORY", 2), setting("BUFFER", 10)
CLIENTS, TIME, WARM_UP, RUNS = setting("CLIENTS", 64), setting("TIME", 20), setting("WARM_UP", 40), setting("RUNS", 3)
SIZE = [f"--tables={TABLES}", f"--table-size={ROWS}"]


def measure(server, time):
    before, asked = status(server), io(server)
    figures = timed(server, "oltp_zipf", "d", CLIENTS, time, *SIZE, f"--mix={MIX}", f"--zipf={ZIPF}")
    after, now = status(server), io(server)
    reads = {tier: after[f"reads_{tier}"] - before[f"reads_{tier}"] for tier in ("flash", "volume", "object")}
    flash = {what: now["flash", f"flash_{what}"][0] - asked["flash", f"flash_{what}"][0] for what in ("fill", "read")}
    pages = now["flash", "flash_fill"][1] - asked["flash", "flash_fill"][1]
    misses = max(sum(reads.values()), 1)
    return figures | {"hit_ratio": reads["flash"] / misses, "flash_writes": flash["fill"] / time, "flash_pages_written": pages / 16384 / time,
                      "flash_reads": flash["read"] / time, **{f"reads_{tier}": count / time for tier, count in reads.items()}}


def main():
    out = sys.argv[1]
    directory = place(out, "fig8a")
    tiered = Tiered(directory, DATA, MEMORY, BUFFER)
    figures = {policy: [] for policy in POLICIES}
    try:
        server = tiered.start(DATA * FLASH // 100)
        run(server.connect(), "CREATE DATABASE d")
        sysbench(server, "oltp_zipf", "prepare", "d", *SIZE, "--mysql-storage-engine=Terrace", "--threads=2")
        settle(server)
        for round_ in range(RUNS):
            for policy in POLICIES:
                server = tiered.start(DATA * FLASH // 100, f"--terrace-flash-admission={policy}")
                measure(server, WARM_UP)
                figures[policy].append(measure(server, TIME))
            print(f"round {round_ + 1} of {RUNS}", file=sys.stderr)
    finally:
        tiered.end()
        shutil.rmtree(directory, ignore_errors=True)

    def middle(policy, what):
        return statistics.median(one[what] for one in figures[policy])

    ratios = {}
    base = "admit-all" if "admit-all" in POLICIES else POLICIES[0]
    for policy in POLICIES:
        for what in ("rate", "hit_ratio", "flash_pages_written"):
            ratios[f"{policy}, {what}"] = middle(policy, what) / max(middle(base, what), 1e-9)
        print(f"{policy:16} {middle(policy, 'rate'):7.0f}/s ({ratios[f'{policy}, rate']:.2f} of {base}), p99 {middle(policy, 'p99_ms'):.0f} ms, flash answers "
              f"{100 * middle(policy, 'hit_ratio'):.1f} % of the misses, {middle(policy, 'flash_pages_written'):.0f} pages written "
              f"({100 * (ratios[f'{policy}, flash_pages_written'] - 1):+.0f} %) in {middle(policy, 'flash_writes'):.0f} writes and "
              f"{middle(policy, 'flash_reads'):.0f} reads a second" + "".join(
                  f"; the paper's {name}: {paper.fig8a(policy, what):.2f}" for what, name in (("rate", "rate"), ("flash_pages_written", "flash writes"))
                  if policy != base and paper.fig8a(policy, what)))
    import plots
    figure, axes = plots.grid(2, 3)
    for column, (what, name) in enumerate((("rate", "transactions/s"), ("hit_ratio", "of the misses that flash answers"), ("flash_pages_written", "pages written to flash/s"))):
        plots.bars(axes[0][column], {policy: middle(policy, what) for policy in POLICIES}, name, "")
        theirs = {f"{policy}, the paper's": paper.fig8a(policy, what) for policy in POLICIES if paper.fig8a(policy, what)}
        plots.bars(axes[1][column], {policy: ratios[f"{policy}, {what}"] for policy in POLICIES} | theirs, name, f"of {base}")
    plots.save(figure, out, "fig8a", f"sysbench {MIX}, Zipf {ZIPF}, flash {FLASH} % of the data; emulated tiers, profile cloud")
    report.write(out, "fig8a", ratios, figures,
                 [f"sysbench {MIX}, {TABLES} tables of {ROWS} rows ({DATA / GIB:.2f} GiB in pages), Zipf {ZIPF}, memory {MEMORY} %, flash {FLASH} %, object buffer "
                  f"{BUFFER} %, {CLIENTS} clients, medians of {RUNS} runs of {TIME} s, each after {WARM_UP} s from empty flash"],
                 of="each policy", against=base, profile=PROFILE, paper=paper.FIG8A)


if __name__ == "__main__":
    main()
