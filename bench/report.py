"""What the SQL benchmarks print and write: each row when it is measured, and all rows as JSON at the end."""

import json
import os
import statistics


def row(name, rates, unit, width, digits):
    """Prints the row's median ratio of Terrace to InnoDB, and returns it. `rates`: each engine's runs, in `unit`."""
    middle = {engine: statistics.median(runs) for engine, runs in rates.items()}
    ratio = middle["Terrace"] / middle["InnoDB"]
    sides = (f"{e} {middle[e]:{digits}.0f} {unit} ±{100 * (max(runs) - min(runs)) / middle[e]:.0f} %" for e, runs in rates.items())
    print(f"{name:{width}}{ratio:6.2f} of InnoDB   " + "   ".join(sides), flush=True)
    return ratio


def row_with_cpu(name, runs, width):
    """As `row`, of rounds in which each engine ran once: a `rate` (statements a second) and `cpu` (seconds a statement) each. Returns
    the ratio of the rates and that of the CPU, Terrace to InnoDB: medians of the rounds' ratios, as the machine's speed drifts from
    one round to the next."""
    def middle(engine, what):
        return statistics.median(run[what] for run in runs[engine])
    rate, cpu = (statistics.median(ours[what] / max(theirs[what], 1e-9) for ours, theirs in zip(runs["Terrace"], runs["InnoDB"]))
                 for what in ("rate", "cpu"))
    sides = []
    for engine, each in runs.items():
        rates = [run["rate"] for run in each]
        spread = 100 * (max(rates) - min(rates)) / middle(engine, "rate")
        sides.append(f"{engine} {middle(engine, 'rate'):.1f} /s ±{spread:.0f} %, {1e6 * middle(engine, 'cpu'):.0f} µs")
    print(f"{name:{width}}{rate:6.2f} of InnoDB, {cpu:5.2f} of its CPU   " + "   ".join(sides), flush=True)
    return rate, cpu


def write(out, name, ratios, figures, notes, **more):
    """Writes `<out>/<name>.json`. `notes`: sentences."""
    cpu = next((line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    report = {"name": name, "of": "Terrace", "against": "InnoDB", "profile": "none: the machine's own disk",
              "machine": f"{cpu}, {os.cpu_count()} cores", "ratios": ratios, "figures": figures, "notes": notes, **more}
    with open(os.path.join(out, f"{name}.json"), "w") as file:
        json.dump(report, file, indent=2)
