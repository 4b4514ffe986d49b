"""split: which device reads go to, when several have the bytes: NetCAS's figures 1 and 4 to 8 on simulated machines, and real devices if there are any.

Runs `terrace bench split --json`, prints the worst ratio of each policy to the oracle, and draws the figures. Environment: TERRACE (the program), MACHINE, BLOCK, DEPTH, THREADS
(lists), TRIAL (simulated milliseconds), REAL (a directory on this machine's disk: cells on it beside a shaped TCP server; empty: none), PLOT.
"""

import json
import os
import subprocess
import sys

import report
from paper import NETCAS
from tiers import TARGET, setting

TERRACE = setting("TERRACE", os.path.join(TARGET, "release", "terrace"))
OURS, CACHE = "knee", "cache-only"


def measure(out):
    arguments = [TERRACE, "bench", "split", "--json"]
    for name in ("MACHINE", "BLOCK", "DEPTH", "THREADS", "TRIAL"):
        if value := os.environ.get(name):
            arguments += ["--" + name.lower(), value]
    if real := os.environ.get("REAL", os.path.join(out, "split.data")):
        arguments += ["--directory", real]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("terrace bench split failed")
    return json.loads(done.stdout)


def name(cell):
    return f"{cell['machine']}, {cell['block_bytes'] >> 10} KiB, {cell['threads']} threads, {cell['in_flight_each']} in flight"


def beside_paper(whole):
    """A line for each claim of the paper: its number, and ours."""
    cells = [cell for cell in whole["cells"] if cell["machine"] == "paper" and cell["block_bytes"] == 65536]
    lines = []
    if cells:
        for policy in ("netcas-printed", OURS):
            best = max(cells, key=lambda cell: cell["rates"][policy] / cell["rates"][CACHE])
            lines.append(f"most over the cache alone: the paper {1 + NETCAS['over_cache_max']:.2f}; {policy} {best['rates'][policy] / best['rates'][CACHE]:.2f} ({name(best)})")
    for one in (one for one in whole["congestion"] if one["machine"] == "paper"):
        for policy, (low, high) in (("orthus", NETCAS["over_orthus_congested"]),):
            rates = {of: line["during"] for of, line in one["policies"].items()}
            lines.append(f"through congestion, {one['threads']} threads, over {policy}: the paper {low} to {high}; netcas-printed {rates['netcas-printed'] / rates[policy]:.2f}, "
                         f"{OURS} {rates[OURS] / rates[policy]:.2f}")
    return lines


def plot(out, whole):
    import plots
    machines = list(dict.fromkeys(cell["machine"] for cell in whole["cells"]))
    figure, axes = plots.grid(5, max(len(machines), 1), width=5.5, height=3.2)
    for column, machine in enumerate(machines):
        cells = [cell for cell in whole["cells"] if cell["machine"] == machine and cell["block_bytes"] == max(c["block_bytes"] for c in whole["cells"])]
        deepest = sorted({cell["in_flight_each"] for cell in cells})
        depth = 16 if 16 in deepest else deepest[-1]
        threads = sorted({cell["threads"] for cell in cells})
        row = [cell for cell in cells if cell["in_flight_each"] == depth]
        series = {of: [(cell["threads"], cell["rates"][of]) for cell in row] for of in (CACHE, "backend-only", OURS) if of in row[0]["rates"]}
        series["-best ratio"] = [(cell["threads"], cell["best_ratio_rate"]) for cell in row]
        plots.lines(axes[0][column], series, f"Fig. 1, {machine}: {depth} in flight a thread", "threads", "requests/s", log_x=True, ticks=threads)
        one = [cell for cell in cells if cell["threads"] == threads[len(threads) // 2]]
        plots.lines(axes[1][column], {of: [(cell["in_flight_each"], cell["rates"][of] / cell["oracle"]) for cell in one] for of in one[0]["rates"]},
                    f"Fig. 4 and 6, {machine}: {one[0]['threads']} threads", "in flight a thread", "of the oracle", log_x=True, ticks=deepest)
        sent = [cell for cell in whole["dispatch"] if cell["machine"] == machine]
        if sent:
            for of in sent[0]["rates"]:
                axes[2][column].plot([f"{c['in_flight_each']}×{c['threads']}" for c in sent], [c["rates"][of] / c["oracle"] for c in sent], marker="o", label=of)
            axes[2][column].set_title(f"Fig. 5, {machine}: one ratio, three ways to enforce it", fontsize=9)
            axes[2][column].legend(fontsize=6)
        for one in [one for one in whole["congestion"] if one["machine"] == machine][-1:]:
            step = one["bucket_ms"] / 1000
            plots.lines(axes[3][column], {of: [(i * step, v) for i, v in enumerate(line["series"])] for of, line in one["policies"].items()},
                        f"Fig. 7, {machine}: {one['threads']} threads, congestion from {one['congested_ms'][0] // 1000} to {one['congested_ms'][1] // 1000} s", "seconds", "requests/s")
        levels = [cell for cell in whole["levels"] if cell["machine"] == machine]
        if levels:
            plots.lines(axes[4][column], {of: [(cell["flows"], cell["rates"][of]) for cell in levels] for of in levels[0]["rates"]} | {"-oracle": [(c["flows"], c["oracle"]) for c in levels]},
                        f"Fig. 8, {machine}: uncapped flows beside", "flows", "requests/s")
    plots.save(figure, out, "split", "Reads split between a cache and a backend; simulated machines")


def main():
    out = sys.argv[1]
    whole = measure(out)
    ratios = {f"{policy}, {name(cell)}": rate / cell["oracle"] for cell in whole["cells"] for policy, rate in cell["rates"].items()}
    policies = list(whole["cells"][0]["rates"]) if whole["cells"] else []
    print(f"{'policy':18}{'worst cell':>12}{'median':>10}   of the oracle, {len(whole['cells'])} cells")
    for policy in policies:
        found = sorted(cell["rates"][policy] / cell["oracle"] for cell in whole["cells"])
        print(f"{policy:18}{found[0]:>12.3f}{found[len(found) // 2]:>10.3f}")
    for one in whole["congestion"]:
        print(f"congestion, {one['machine']}, {one['threads']} threads: before, during, after, recovery")
        for policy, line in one["policies"].items():
            print(f"{policy:18}{line['before']:>8.3f}{line['during']:>8.3f}{line['after']:>8.3f}   {line['recovery_ms']} ms")
    for cell in whole["real"]:
        best = max(rate for of, rate in cell["rates"].items())
        print(f"real, {cell['block_bytes'] >> 10} KiB, {cell['threads']} threads, {cell['what']}: " + ", ".join(f"{of} {rate / best:.2f}" for of, rate in cell["rates"].items()))
    lines = beside_paper(whole)
    print("\n".join(lines))
    report.write(out, "split", ratios, whole, ["ratios: requests a second over the oracle's, the best of every static ratio and every limit of one device; the second half of each run counts", *lines],
                 of="each policy", against="the oracle", profile="simulated machines `paper` and `cloud`; real: this machine's disk beside a shaped TCP server", paper=NETCAS)
    if setting("PLOT", 1):
        plot(out, whole)


if __name__ == "__main__":
    main()
