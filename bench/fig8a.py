"""fig8a: CloudJump III, figure 8a: which pages are admitted to flash. sysbench on emulated tiers with each policy: transactions a second, the share of
memory's misses that flash answers, flash writes for a hundred misses and a second.

A policy's turn is like any other's: it begins with the data as it was loaded (FRESH=0: with what the last turn left, once purge and sinking have caught
up) and empty flash, a mix that only reads fills flash, then the measured mix goes on until memory has missed ACCESSES times what flash has room for; each step for at most
WARM_UP seconds. The order of the policies moves on by one each round, and ratios are medians of the rounds' ratios.

Beside the rules' names there is `full-admit`: admit-all, with each page written to flash whenever it leaves memory, also if flash has it, or the volume: what the paper's
full-admit does, and what its figures are ratios to. Ratios are to it, where it is measured, else to admit-all.

Environment: POLICIES (list), WITHOUT (mechanisms to leave out, as `terrace_without` names them), ROWS (of each of 4 tables), MIX, ZIPF, FLASH, MEMORY, BUFFER
(percent of the data), CLIENTS, TIME, WARM_UP, SETTLE (seconds), ACCESSES, FRESH, RUNS, PORTS.
"""

import os
import shutil
import statistics
import sys
import time

import paper
import report
from sysbench import sysbench, timed
from tiers import GIB, PROFILE, Tiered, io, listed, place, run, setting, settle, status, warm_up

POLICIES = listed("POLICIES", "one-hit-discard,full-admit,admit-all,ghost,ghost-whole,tiny-lfu,ghost-tiny-lfu")
WITHOUT, FULL = setting("WITHOUT", ""), "full-admit"
TABLES, ROWS = 4, setting("ROWS", 600_000)
DATA = TABLES * ROWS * 260
MIX, ZIPF = setting("MIX", "read-write"), setting("ZIPF", 0.99)
FLASH, MEMORY, BUFFER = setting("FLASH", 20), setting("MEMORY", 2), setting("BUFFER", 10)
CLIENTS, TIME, WARM_UP, SETTLE, RUNS = setting("CLIENTS", 64), setting("TIME", 20), setting("WARM_UP", 60), setting("SETTLE", 300), setting("RUNS", 3)
ACCESSES, FRESH = setting("ACCESSES", 1.0), setting("FRESH", 1)
SIZE = [f"--tables={TABLES}", f"--table-size={ROWS}"]
# Transactions that purge may have before it when a turn begins.
HISTORY = 1000


def play(server, mix, seconds):
    return timed(server, "oltp_zipf", "d", CLIENTS, seconds, *SIZE, f"--mix={mix}", f"--zipf={ZIPF}")


def misses(before, after):
    """What memory missed, by the tier that had it."""
    return {tier: after[f"reads_{tier}"] - before[f"reads_{tier}"] for tier in ("flash", "volume", "object")}


def measure(server, seconds):
    before, asked = status(server), io(server)
    figures = play(server, MIX, seconds)
    after, now = status(server), io(server)
    reads = misses(before, after)
    flash = {what: now["flash", f"flash_{what}"][0] - asked["flash", f"flash_{what}"][0] for what in ("fill", "read")}
    pages = (now["flash", "flash_fill"][1] - asked["flash", "flash_fill"][1]) / 16384
    missed = max(sum(reads.values()), 1)
    return figures | {"hit_ratio": reads["flash"] / missed, "writes_per_100_misses": 100 * pages / missed, "flash_pages_written": pages / seconds,
                      "flash_writes": flash["fill"] / seconds, "flash_reads": flash["read"] / seconds,
                      **{f"reads_{tier}": count / seconds for tier, count in reads.items()}}


def warm(server):
    """Until flash is full and then has been asked often enough; what it came to."""
    filled = warm_up(server, lambda seconds: play(server, "read-only", seconds), WARM_UP)
    began, before, room = time.monotonic(), status(server), status(server)["flash_pages_max"]
    missed = 0
    while missed < ACCESSES * room and (left := WARM_UP - (time.monotonic() - began)) > 0:
        play(server, MIX, max(1, min(5, round(left))))
        missed = sum(misses(before, status(server)).values())
    return {"full": filled["flash"], "fill_seconds": filled["seconds"], "warm_up_misses_per_flash_page": missed / max(room, 1),
            "warm_up_seconds": time.monotonic() - began}


def turn(tiered, policy, loaded):
    """One turn of a policy, from the same beginning as any other's."""
    if FRESH:
        tiered.put_back(loaded)
    else:
        settle(tiered.server, SETTLE, HISTORY)
    without = ",".join(one for one in (WITHOUT, "kept-copies,flash-for-the-store" if policy == FULL else "") if one)
    options = [f"--terrace-flash-admission={'admit-all' if policy == FULL else policy}"] + ([f"--terrace-without={without}"] if without else [])
    server = tiered.start(DATA * FLASH // 100, *options)
    left = settle(server, SETTLE, HISTORY)
    warmed = warm(server)
    return measure(server, TIME) | warmed | {f"{what}_left": count for what, count in left.items()}


def main():
    out = sys.argv[1]
    directory = place(out, "fig8a")
    tiered, loaded = Tiered(directory, DATA, MEMORY, BUFFER), os.path.join(directory, "loaded")
    figures = {policy: [] for policy in POLICIES}
    try:
        server = tiered.start(DATA * FLASH // 100)
        run(server.connect(), "CREATE DATABASE d")
        sysbench(server, "oltp_zipf", "prepare", "d", *SIZE, "--mysql-storage-engine=Terrace", "--threads=2")
        settle(server, SETTLE, HISTORY)
        if FRESH:
            os.makedirs(loaded)
            tiered.keep(loaded)
        for round_ in range(RUNS):
            first = round_ % len(POLICIES)
            for policy in POLICIES[first:] + POLICIES[:first]:
                one = turn(tiered, policy, loaded)
                figures[policy].append(one)
                print(f"round {round_ + 1} of {RUNS}, {policy}: flash {100 * one['full']:.0f} % full after {one['fill_seconds']:.0f} s, "
                      f"{one['warm_up_misses_per_flash_page']:.1f} misses for each of its pages in {one['warm_up_seconds']:.0f} s; {one['rate']:.0f}/s", file=sys.stderr)
    finally:
        tiered.end()
        shutil.rmtree(directory, ignore_errors=True)

    base = next((one for one in (FULL, "admit-all") if one in POLICIES), POLICIES[0])

    def middle(policy, what):
        return statistics.median(one[what] for one in figures[policy])

    def against(policy, what):
        """The median of the rounds' ratios to the base."""
        return statistics.median(one[what] / max(other[what], 1e-9) for one, other in zip(figures[policy], figures[base]))

    shown = {"rate": "transactions/s", "hit_ratio": "of the misses that flash answers", "writes_per_100_misses": "pages written to flash for 100 misses",
             "flash_pages_written": "pages written to flash/s"}
    ratios = {f"{policy}, {what}": against(policy, what) for policy in POLICIES for what in shown}
    for policy in POLICIES:
        theirs = [f"{what} {paper.fig8a(policy, key):.2f}" for what, key in (("rate", "rate"), ("hits", "hit_ratio"), ("flash writes", "flash_pages_written"))
                  if policy != base == FULL and paper.fig8a(policy, key)]
        rates = [one["rate"] for one in figures[policy]]
        print(f"{policy:16} {middle(policy, 'rate'):7.0f}/s ({ratios[f'{policy}, rate']:.2f} of {base}; {min(rates):.0f} to {max(rates):.0f}), p99 {middle(policy, 'p99_ms'):.0f} ms, flash answers "
              f"{100 * middle(policy, 'hit_ratio'):.1f} % of the misses, {middle(policy, 'writes_per_100_misses'):.1f} pages written for 100 of them "
              f"({100 * (ratios[f'{policy}, writes_per_100_misses'] - 1):+.0f} %), {middle(policy, 'flash_pages_written'):.0f} a second "
              f"({100 * (ratios[f'{policy}, flash_pages_written'] - 1):+.0f} %)" + (f"; the paper's, of {base}: {', '.join(theirs)}" if theirs else ""))
    if setting("PLOT", 1):
        plot(out, shown, ratios, middle, base)
    report.write(out, "fig8a", ratios, figures,
                 [f"sysbench {MIX}, {TABLES} tables of {ROWS} rows ({DATA / GIB:.2f} GiB in pages), Zipf {ZIPF}, memory {MEMORY} % (at least 12 MiB), flash {FLASH} %, object buffer "
                  f"{BUFFER} %, {CLIENTS} clients, {RUNS} rounds of {TIME} s for each policy, in an order that moves on by one each round; a turn begins with "
                  + ("the data as loaded" if FRESH else "what the last one left, settled") + f" and empty flash, and is warmed up until flash is full and memory has missed {ACCESSES} times its pages, "
                  f"at most twice {WARM_UP} s; ratios are medians of the rounds' ratios" + (f"; left out: {WITHOUT}" if WITHOUT else "")],
                 of="each policy", against=base, profile=PROFILE, paper=paper.FIG8A)


def plot(out, shown, ratios, middle, base):
    import plots
    figure, axes = plots.grid(2, len(shown))
    for column, (what, name) in enumerate(shown.items()):
        plots.bars(axes[0][column], {policy: middle(policy, what) for policy in POLICIES}, name, "")
        theirs = {f"{policy}, the paper's": paper.fig8a(policy, what) for policy in POLICIES if base == FULL and paper.fig8a(policy, what)}
        plots.bars(axes[1][column], {policy: ratios[f"{policy}, {what}"] for policy in POLICIES} | theirs, name, f"of {base}")
    plots.save(figure, out, "fig8a", f"sysbench {MIX}, Zipf {ZIPF}, flash {FLASH} % of the data; emulated tiers, profile cloud")


if __name__ == "__main__":
    main()
