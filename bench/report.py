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


def write(out, name, ratios, figures, notes):
    """Writes `<out>/<name>.json`. `notes`: sentences."""
    cpu = next((line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    report = {"name": name, "of": "Terrace", "against": "InnoDB", "profile": "none: the machine's own disk",
              "machine": f"{cpu}, {os.cpu_count()} cores", "ratios": ratios, "figures": figures, "notes": notes}
    with open(os.path.join(out, f"{name}.json"), "w") as file:
        json.dump(report, file, indent=2)
