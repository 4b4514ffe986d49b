"""traces: which pages flash keeps: real traces of other systems through `terrace bench cache`, every policy, no server and no devices: the share of memory's misses that flash
answers, and the writes to flash, as means over the traces.

The traces are in the jar of Caffeine's simulator, which `make bench` gets from Maven Central. Environment: TRACES (list: names from the table below), SIZES (flash, percent of a trace's
objects), MEMORY (percent), POLICIES (list, as `terrace bench cache --help` has them), BUDGET (flash writes for a hundred misses, of the second half; 0: without it), TERRACE (the program), JAR.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile

import report
from tiers import TARGET, listed, place, setting

# The traces' paths in the jar, and their formats. Left out, as before: `prods`, `address` and `corda` (streams of products, of processor
# addresses and of a ledger's notes), and synthetic traces that show a single pattern, such as loops and scans.
WHERE = "com/github/benmanes/caffeine/cache/simulator/parser/"
ALL = {
    "w106": ("cloud-physics", "cloud_physics/w106.trace.xz"),
    "sprite": ("lirs", "lirs/sprite.trace.gz"),
    "multi1": ("lirs", "lirs/multi1.trace.gz"),
    "multi2": ("lirs", "lirs/multi2.trace.gz"),
    "multi3": ("lirs", "lirs/multi3.trace.gz"),
    "cs": ("lirs", "lirs/cs.trace.gz"),
    "cpp": ("lirs", "lirs/cpp.trace.gz"),
    "gli": ("lirs", "lirs/gli.trace.gz"),
    "ps": ("lirs", "lirs/ps.trace.gz"),
    "orm-busy": ("cache2k", "cache2k/orm-busy.trace.xz"),
    "orm-night": ("cache2k", "cache2k/orm-night.trace.xz"),
    "web07": ("cache2k", "cache2k/web07.trace.xz"),
    "web12": ("cache2k", "cache2k/web12.trace.xz"),
    "recs": ("scarab", "scarab/recs.trace.20160808T073231Z.xz"),
    "scarab-recs": ("scarab", "scarab/scarab-recs.trace.xz"),
    "request": ("adapt-size", "adapt_size/request.trace.xz"),
    "build-cache": ("gradle", "gradle/build-cache.xz"),
}
TRACES, SIZES = listed("TRACES", ",".join(ALL)), listed("SIZES", "5,20,50", float)
MEMORY, BUDGET = setting("MEMORY", 2.0), setting("BUDGET", 10.0)
POLICIES = listed("POLICIES", "fifo,lru,2q,s3-fifo/1,s3-fifo,w-tiny-lfu,admit-all/1,admit-all/2,one-hit-discard/1,one-hit-discard/2,ghost/1,ghost/2,ghost/2@50,tiny-lfu/1,tiny-lfu/2,"
                              "ghost-tiny-lfu/1,ghost-tiny-lfu/2,ghost-tiny-lfu/2@50,optimal")
# What runs, by `tier/src/flash/bpe.rs`.
OURS = "ghost/2@50"
TERRACE, JAR = setting("TERRACE", os.path.join(TARGET, "release", "terrace")), setting("JAR", "")


def play(name, path, policies, budget):
    """What the program says of a trace: a row for each policy and size."""
    sizes = ",".join(f"{size}%" for size in SIZES)
    more = ["--write-budget", str(budget)] if budget else []
    done = subprocess.run([TERRACE, "bench", "cache", "--json", "--trace", f"{ALL[name][0]}:{path}", "--size", sizes, "--memory", f"{MEMORY}%",
                           "--policy", ",".join(policies), *more], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"terrace bench cache on {name} failed")
    return json.loads(done.stdout)[0]


def cells(played, policies):
    """(policy, size) to the percentage of memory's misses that flash answers, flash writes for a hundred misses, bytes of memory a page."""
    rows = iter(played["rows"])
    found = {}
    for size in SIZES:
        for policy in policies:
            row = next(rows)
            misses = max(row["flash_reads"], 1)
            found[policy, size] = {"hits": 100 * row["flash_hit_ratio"], "writes": 100 * row["flash_writes"] / misses, "bytes_a_page": row["memory_bytes_per_page"]}
    return found


def mean(traces, key, what):
    return sum(one[key][what] for one in traces.values()) / len(traces)


def main():
    out = sys.argv[1]
    directory = place(out, "traces")
    # Budgets: none, and the given one, which the policy that knows the future does not need.
    budgets = {0.0: POLICIES} | ({BUDGET: [policy for policy in POLICIES if policy != "optimal"]} if BUDGET else {})
    figures, about = {budget: {} for budget in budgets}, {}
    try:
        with zipfile.ZipFile(JAR) as jar:
            for name in TRACES:
                began, path = time.monotonic(), jar.extract(WHERE + ALL[name][1], directory)
                for budget, policies in budgets.items():
                    played = play(name, path, policies, budget)
                    figures[budget][name] = cells(played, policies)
                about[name] = {what: played[what] for what in ("accesses", "objects", "changes", "memory_pages", "memory_hits")}
                print(f"{name}: {played['accesses']} uses of {played['objects']} objects, {time.monotonic() - began:.1f} s", file=sys.stderr)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    columns = [(budget, size) for budget in budgets for size in SIZES]
    print(f"means of {len(TRACES)} traces, memory {MEMORY:g} % of the objects: of memory's misses flash answers % / flash writes for 100 misses; * is what runs")
    print(f"{'policy':24}" + "".join(f"{f'{size:g} %' + (f', at most {budget:g}' if budget else ''):>18}" for budget, size in columns))
    means = {}
    for policy in POLICIES:
        line = f"{policy + ('*' if policy == OURS else ''):24}"
        for budget, size in columns:
            if policy in budgets[budget]:
                hits, writes = (mean(figures[budget], (policy, size), what) for what in ("hits", "writes"))
                means[policy, budget, size] = hits, writes
                line += f"{f'{hits:.1f} / {writes:.1f}':>18}"
            else:
                line += f"{'':18}"
        print(line.rstrip())
    if setting("PLOT", 1):
        plot(out, means, budgets)
    def named(policy, budget, size):
        return f"{policy}, flash {size:g} %" + (f", at most {budget:g} writes" if budget else "")
    base = OURS if OURS in POLICIES else POLICIES[0]
    report.write(out, "traces", {named(*key): means[key][0] / max(means[(base, *key[1:])][0], 1e-9) for key in means if (base, *key[1:]) in means},
                 {"means": {named(*key): {"hits": hits, "writes": writes} for key, (hits, writes) in means.items()}, "traces": about}
                 | {name: {named(policy, budget, size): one for budget in budgets for (policy, size), one in figures[budget][name].items()} for name in TRACES},
                 [f"{len(TRACES)} traces from {os.path.basename(JAR)}, each from cold; memory {MEMORY:g} % of the objects before flash; hits: percentage of memory's misses that flash answers, writes: "
                  "pages written to flash for a hundred misses; ratios: hits over those of what runs; the sketch of ghost-tiny-lfu was tuned on five of these traces"],
                 of="each policy", against=base, profile="none: nothing is stored")


def plot(out, means, budgets):
    import plots
    figure, axes = plots.grid(len(budgets), len(SIZES), width=5, height=4)
    for row, (budget, policies) in zip(axes, budgets.items()):
        for axis, size in zip(row, SIZES):
            plots.points(axis, {policy: means[policy, budget, size][::-1] for policy in policies}, f"flash {size:g} %" + (f", at most {budget:g} writes for 100 misses" if budget else ""),
                         "flash writes for 100 misses of memory", "% of the misses that flash answers", OURS)
    plots.save(figure, out, "traces", f"Which pages flash keeps: means of {len(TRACES)} traces, memory {MEMORY:g} % of the objects; up and to the left is better")


if __name__ == "__main__":
    main()
