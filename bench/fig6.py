"""fig6: CloudJump III, figure 6: throughput and throughput per unit of storage cost, by mix, skew and size of flash.

sysbench on real servers with emulated tiers: tiered against everything on the volume, and InnoDB on the machine's disk beside it.
YCSB's half of the figure is measured by `terrace-bench fig6-ycsb` before; if its JSON lies there, table, JSON and plot have both.
Popular rows are neighbours. Environment: HALF (ycsb or sysbench: only that one is measured, the other is as it was), ROWS (of each of 4 tables), MIX, ZIPF, FLASH (lists by comma), CLIENTS, TIME and WARM_UP
(seconds, of each mix), RUNS, MEMORY and BUFFER (percent of the data), PORTS (the first to listen on).
"""

import json
import os
import shutil
import statistics
import sys

import report
from sysbench import sysbench, timed
from tiers import GIB, PRICES, PROFILE, OnVolume, Tiered, listed, place, run, setting, settle, status

TABLES, ROWS = 4, setting("ROWS", 600_000)
# A row, its index entry, and what pages leave free.
DATA = TABLES * ROWS * 260
MIXES, ZIPFS = listed("MIX", "read-only,read-write,write-only"), listed("ZIPF", "0.8,1.0,1.2,1.4,1.6,2.0", float)
CACHES = listed("FLASH", "5,10,20,30,50", int)
CLIENTS, TIME, WARM_UP, RUNS = setting("CLIENTS", 64), setting("TIME", 8), setting("WARM_UP", 40), setting("RUNS", 1)
MEMORY, BUFFER = setting("MEMORY", 2), setting("BUFFER", 10)
SIZE = [f"--tables={TABLES}", f"--table-size={ROWS}"]
TIERED, VOLUME, INNODB = "tiered", "all on the volume", "InnoDB"


def load(server, engine, database):
    run(server.connect(), f"CREATE DATABASE {database}")
    sysbench(server, "oltp_zipf", "prepare", database, *SIZE, f"--mysql-storage-engine={engine}", "--threads=2")
    print(f"loaded {engine} in {database}", file=sys.stderr)


def measure(server, database, mix, zipf, time):
    return timed(server, "oltp_zipf", database, CLIENTS, time, *SIZE, f"--mix={mix}", f"--zipf={zipf}")


def one_zipf(zipf, tiered, volume, cells):
    """All sizes of flash and all mixes at this skew; the sides without flash are measured once for each size, by turns."""
    for cache in CACHES:
        server = tiered.start(DATA * cache // 100)
        for mix in MIXES:
            # Flash begins empty, and what one mix uses another doesn't: the index, for one.
            measure(server, "d", mix, zipf, WARM_UP)
            for database in ("d", "i"):
                measure(volume.server, database, mix, zipf, max(2, WARM_UP // 8))
            for _ in range(RUNS):
                before = status(server)
                figures = measure(server, "d", mix, zipf, TIME)
                after = status(server)
                figures |= {name: after[name] - before[name] for name in
                            ("pool_misses", "reads_flash", "reads_volume", "reads_object", "objects_put", "flush_pages")}
                figures["dollars"] = tiered.cost()
                cells.setdefault((mix, zipf, cache), []).append(figures)
                for name, database, engine in ((VOLUME, "d", "Terrace"), (INNODB, "i", "InnoDB")):
                    figures = measure(volume.server, database, mix, zipf, TIME)
                    figures["dollars"] = volume.cost(engine)
                    cells.setdefault((mix, zipf, name), []).append(figures)
            show(mix, zipf, cache, cells)


def rate(cells, *key):
    return statistics.median(one["rate"] for one in cells[key])


def value(cells, *key):
    """Transactions a second for a dollar a month of storage."""
    return statistics.median(one["rate"] / one["dollars"] for one in cells[key])


def show(mix, zipf, cache, cells):
    base, innodb, own = ((mix, zipf, name) for name in (VOLUME, INNODB, cache))
    print(f"sysbench {mix:10} Zipf {zipf:<4} flash {cache:>2} %   {rate(cells, *own) / rate(cells, *base):5.2f} of all on the volume, per dollar "
          f"{value(cells, *own) / value(cells, *base):5.2f};  {rate(cells, *own) / rate(cells, *innodb):5.2f} of InnoDB   tiered "
          f"{rate(cells, *own):7.0f}/s p99 {cells[own][-1]['p99_ms']:.0f} ms, volume {rate(cells, *base):7.0f}/s p99 {cells[base][-1]['p99_ms']:.0f} ms, "
          f"InnoDB {rate(cells, *innodb):7.0f}/s", flush=True)


def sysbench_half(out):
    directory = place(out, "fig6")
    tiered, volume = Tiered(directory, DATA, MEMORY, BUFFER), OnVolume(directory, DATA, MEMORY)
    cells = {}
    try:
        tiered.start(DATA * CACHES[0] // 100)
        load(tiered.server, "Terrace", "d")
        settle(tiered.server)
        volume.start()
        load(volume.server, "Terrace", "d")
        load(volume.server, "InnoDB", "i")
        for zipf in ZIPFS:
            one_zipf(zipf, tiered, volume, cells)
    finally:
        tiered.end()
        volume.end()
        shutil.rmtree(directory, ignore_errors=True)
    return cells


def ycsb_half(out):
    """The rates of the other half by (mix, Zipf, flash percent or a side), and its costs a month; nothing if it has not been measured."""
    path = os.path.join(out, "fig6-ycsb.json")
    if not os.path.exists(path):
        return {}, None
    whole = json.load(open(path))
    cells = {}
    for row, sides in whole["figures"].items():
        mix, zipf, cache = (part.split(" ")[-1] for part in row.replace(" %", "").split(", "))
        for side, figures in sides.items():
            key = mix, float(zipf), int(cache) if side == TIERED else VOLUME
            dollars = whole["extra"][f"flash {cache} %"]["dollars"][side]
            cells.setdefault(key, []).extend({"rate": rate, "dollars": dollars} for rate in figures["rate"])
    return cells, whole


def plot(out, halves):
    import plots
    halves = {name: cells for name, cells in halves.items() if cells}
    mixes = list(dict.fromkeys(key[0] for cells in halves.values() for key in cells))
    figure, axes = plots.grid(len(halves) * 2, len(mixes))
    for row, (half, cells) in enumerate(halves.items()):
        for column, mix in enumerate(mixes):
            for line, (what, of) in enumerate((("operations/s", rate), ("operations/s for a dollar a month", value))):
                series = {}
                for key in cells:
                    if key[0] == mix:
                        name = f"flash {key[2]} %" if isinstance(key[2], int) else f"-{key[2]}"
                        series.setdefault(name, []).append((key[1], of(cells, *key)))
                plots.lines(axes[2 * row + line][column], series, f"{half}, {mix}", "Zipf exponent", what)
    plots.save(figure, out, "fig6", "Throughput, and throughput per storage cost (Table 1's prices); emulated tiers, profile cloud")


def kept_half(out):
    """sysbench's half as it was measured the last time."""
    path = os.path.join(out, "fig6.json")
    cells = {}
    for name, runs in json.load(open(path))["figures"].items() if os.path.exists(path) else ():
        mix, zipf, side = name.removeprefix("sysbench ").split(", ")
        cells[mix, float(zipf.split(" ")[1]), int(side.split(" ")[1]) if side.startswith("flash") else side] = runs
    return cells


def main():
    out = sys.argv[1]
    cells = kept_half(out) if setting("HALF", "") == "ycsb" else sysbench_half(out)
    ycsb, whole = ycsb_half(out)
    ratios, figures = {}, {}
    for (mix, zipf, cache), runs in cells.items():
        figures[f"sysbench {mix}, Zipf {zipf}, {cache if isinstance(cache, str) else f'flash {cache} %'}"] = runs
        if isinstance(cache, int):
            name = f"sysbench {mix}, Zipf {zipf}, flash {cache} %"
            base = mix, zipf, VOLUME
            ratios[name] = rate(cells, mix, zipf, cache) / rate(cells, *base)
            ratios[name + ", per dollar"] = value(cells, mix, zipf, cache) / value(cells, *base)
            ratios[name + ", of InnoDB"] = rate(cells, mix, zipf, cache) / rate(cells, mix, zipf, INNODB)
    for (mix, zipf, cache) in ycsb:
        if isinstance(cache, int):
            name, base = f"YCSB {mix}, Zipf {zipf}, flash {cache} %", (mix, zipf, VOLUME)
            ratios[name] = rate(ycsb, mix, zipf, cache) / rate(ycsb, *base)
            ratios[name + ", per dollar"] = value(ycsb, mix, zipf, cache) / value(ycsb, *base)
    plot(out, {"YCSB": ycsb, "sysbench": cells})
    report.write(out, "fig6", ratios, figures,
                 [f"sysbench: {TABLES} tables of {ROWS} rows (about {DATA / GIB:.2f} GiB in pages), memory {MEMORY} % (at least 12 MiB), object "
                  f"buffer {BUFFER} % (at least 32 MiB), {CLIENTS} clients, {TIME} s a run after {WARM_UP} s of warm-up, a sync at each commit",
                  f"dollars a GB a month {PRICES}; counted: flash and object buffer as bought, the store by bytes in objects (compressed), the "
                  "volume without tiers by pages in use; memory and log are the same on all sides and not counted, requests aren't either"],
                 of=TIERED, against=VOLUME, profile=PROFILE, ycsb=whole)


if __name__ == "__main__":
    main()
