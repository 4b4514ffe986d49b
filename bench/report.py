"""What the SQL benchmarks print and write: a row as it is measured, all of it as JSON at the end."""

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
    """As `row`, of runs that have a `rate` (statements a second) and `cpu` (seconds a statement). Returns the ratio of the rates and
    that of the CPU, Terrace to InnoDB."""
    def middle(engine, what):
        return statistics.median(run[what] for run in runs[engine])
    rate, cpu = (middle("Terrace", what) / max(middle("InnoDB", what), 1e-9) for what in ("rate", "cpu"))
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
