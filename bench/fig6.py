"""fig6: CloudJump III, figure 6: throughput and throughput per unit of storage cost, by mix, skew and size of flash.

Three halves. `sysbench` and `ycsb-sql` (bench/lua/ycsb.lua: records of 1 KB; read-only is YCSB's C, read-write A, write-only updates alone; MIX=read-mostly: B) are on real servers with emulated
tiers: tiered against everything on the volume, and InnoDB on the machine's disk beside it. `ycsb` is the library's own, without SQL, and is measured by
`terrace-bench fig6-ycsb` before. HALF (list) names the halves to measure; table, JSON and plot keep the last figures of the other halves, if OUT has them. Popular rows are neighbours.

Before each row purge and sinking catch up (at most SETTLE seconds). Then the row is warmed up for at most WARM_UP seconds: by a read-only mix with the row's
skew until flash is full or grows no more, then by the mix itself (at least a quarter of WARM_UP) until that holds again and the object buffer fills no further. Flash begins empty with the
first size of each skew; for the next sizes it is resized while the server works, so that only the added part has to be filled. The other sides are warmed up by the same mixes, as long with the
first size; with the next sizes, where they are warm, for half of TIME.

Environment: HALF, ROWS (of each of sysbench's 4 tables), RECORDS (of YCSB), MIX, ZIPF, FLASH (lists by comma), CLIENTS, TIME, WARM_UP, SETTLE (seconds, of each mix), RUNS,
MEMORY and BUFFER (percent of the data), PORTS (the first to listen on), PLOT=0 (no plot). GO_ON=1: rows already measured with the same settings are not measured again;
each row is written as soon as it is measured, so that an interrupted run can be continued.
"""

import json
import os
import shutil
import statistics
import sys

import paper
import report
from sysbench import sysbench, timed
from tiers import GIB, PRICES, PROFILE, OnVolume, Tiered, listed, place, run, setting, settle, status, warm_up

TABLES, ROWS, RECORDS = 4, setting("ROWS", 600_000), setting("RECORDS", 500_000)
MIXES, ZIPFS = listed("MIX", "read-only,read-write,write-only"), listed("ZIPF", "0.8,1.0,1.2,1.4,1.6,1.8,2.0", float)
CACHES = listed("FLASH", "5,10,20,30,50", int)
CLIENTS, TIME, WARM_UP, SETTLE, RUNS = setting("CLIENTS", 64), setting("TIME", 8), setting("WARM_UP", 60), setting("SETTLE", 60), setting("RUNS", 1)
MEMORY, BUFFER = setting("MEMORY", 2), setting("BUFFER", 10)
TIERED, VOLUME, INNODB = "tiered", "all on the volume", "InnoDB"
HALVES = listed("HALF", "sysbench,ycsb-sql,ycsb")
# What rows must agree in to stand beside each other.
SETTINGS = {"rows": ROWS, "records": RECORDS, "clients": CLIENTS, "time": TIME, "warm_up": WARM_UP, "settle": SETTLE, "runs": RUNS, "memory": MEMORY, "buffer": BUFFER}
# Transactions that purge may have before it when a row begins.
HISTORY = 1000


class Half:
    """One workload of sysbench's kind: its script, its options, and its data in pages (bytes)."""

    def __init__(self, name, script, data, size, engine, mixes):
        self.name, self.script, self.data, self.size, self.engine = name, script, data, size, engine
        self.mixes = [mix for mix in MIXES if mix in mixes]

    def load(self, server, engine, database):
        run(server.connect(), f"CREATE DATABASE {database}")
        sysbench(server, self.script, "prepare", database, *self.size, self.engine + engine)
        print(f"{self.name}: loaded {engine} in {database}", file=sys.stderr)

    def play(self, server, database, mix, zipf, seconds):
        return timed(server, self.script, database, CLIENTS, seconds, *self.size, f"--mix={mix}", f"--zipf={zipf}")


THREE = ["read-only", "read-write", "write-only"]
# A row, its index entry, and what pages leave free; a leaf holds fifteen records of YCSB's.
ON_SERVERS = {
    "sysbench": Half("sysbench", "oltp_zipf", TABLES * ROWS * 260, [f"--tables={TABLES}", f"--table-size={ROWS}"], "--mysql-storage-engine=", THREE),
    "ycsb-sql": Half("YCSB in SQL", "ycsb", RECORDS * 16384 // 15, [f"--records={RECORDS}"], "--engine=", [*THREE, "read-mostly"]),
}


def warm(half, tiered, volume, mix, zipf, anew):
    """The tiered side's warm-up; the other sides' warm-ups take as long if they start cold (`anew`)."""
    settle(tiered.server, SETTLE, HISTORY)
    settle(volume.server, SETTLE, HISTORY)
    def part(mix, seconds, least=0):
        return mix, warm_up(tiered.server, lambda seconds: half.play(tiered.server, "d", mix, zipf, seconds), seconds, least)
    steps = [part("read-only", WARM_UP)]
    if mix != "read-only":
        steps.append(part(mix, max(WARM_UP - steps[0][1]["seconds"], WARM_UP // 4), WARM_UP // 4))
    for database in ("d", "i"):
        for step, seconds in [(step, round(one["seconds"])) for step, one in steps] if anew else [(mix, max(1, TIME // 2))]:
            if seconds:
                half.play(volume.server, database, step, zipf, seconds)
    return {"warm_up_seconds": sum(one["seconds"] for _, one in steps), "flash_full": steps[-1][1]["flash"], "buffer_full": steps[-1][1]["buffer"]}


def one_zipf(half, zipf, tiered, volume, cells, told):
    """All sizes of flash and all mixes at this skew that `cells` lacks; the sides without flash are measured once for each size, in turn. Calls `told()` after each."""
    warmed_up = set()
    for cache in CACHES:
        mixes = [mix for mix in half.mixes if (mix, zipf, cache) not in cells]
        if mixes:
            flash = half.data * cache // 100
            server = tiered.resize(flash) if warmed_up else tiered.start(flash)
        for mix in mixes:
            warmed = warm(half, tiered, volume, mix, zipf, mix not in warmed_up)
            warmed_up.add(mix)
            own = []
            for _ in range(RUNS):
                before = status(server)
                figures = half.play(server, "d", mix, zipf, TIME) | warmed
                after = status(server)
                figures |= {name: after[name] - before[name] for name in
                            ("pool_misses", "reads_flash", "reads_volume", "reads_object", "objects_put", "flush_pages")}
                figures["dollars"] = tiered.cost()
                own.append(figures)
                for name, database, engine in ((VOLUME, "d", "Terrace"), (INNODB, "i", "InnoDB")):
                    figures = half.play(volume.server, database, mix, zipf, TIME)
                    figures["dollars"] = volume.cost(engine)
                    cells.setdefault((mix, zipf, name), []).append(figures)
            cells[mix, zipf, cache] = own
            show(half.name, mix, zipf, cache, cells)
            told()


def rate(cells, *key):
    return statistics.median(one["rate"] for one in cells[key])


def value(cells, *key):
    """Transactions a second for a dollar a month of storage."""
    return statistics.median(one["rate"] / one["dollars"] for one in cells[key])


def show(half, mix, zipf, cache, cells):
    base, innodb, own = ((mix, zipf, name) for name in (VOLUME, INNODB, cache))
    last = cells[own][-1]
    print(f"{half} {mix:10} Zipf {zipf:<4} flash {cache:>2} %   {rate(cells, *own) / rate(cells, *base):5.2f} of all on the volume, per dollar "
          f"{value(cells, *own) / value(cells, *base):5.2f};  {rate(cells, *own) / rate(cells, *innodb):5.2f} of InnoDB   tiered "
          f"{rate(cells, *own):7.0f}/s p99 {last['p99_ms']:.0f} ms, volume {rate(cells, *base):7.0f}/s p99 {cells[base][-1]['p99_ms']:.0f} ms, "
          f"InnoDB {rate(cells, *innodb):7.0f}/s; warmed up for {last['warm_up_seconds']:.0f} s, flash {100 * last['flash_full']:.0f} % full", flush=True)


def measure(out, half, cells, told):
    """The cells of a half on servers, (mix, Zipf, flash percent or a side) to its runs: those that `cells` lacks."""
    if all((mix, zipf, cache) in cells for mix in half.mixes for zipf in ZIPFS for cache in CACHES):
        return
    directory = place(out, "fig6")
    tiered, volume = Tiered(directory, half.data, MEMORY, BUFFER), OnVolume(directory, half.data, MEMORY)
    try:
        tiered.start(half.data * CACHES[0] // 100)
        half.load(tiered.server, "Terrace", "d")
        settle(tiered.server)
        volume.start()
        half.load(volume.server, "Terrace", "d")
        half.load(volume.server, "InnoDB", "i")
        for zipf in ZIPFS:
            one_zipf(half, zipf, tiered, volume, cells, told)
    finally:
        tiered.end()
        volume.end()
        shutil.rmtree(directory, ignore_errors=True)


def kept(out, half, like=None):
    """The half's cells as they were measured the last time; if `like`: with these settings, or none."""
    path = os.path.join(out, "fig6.json")
    cells, last = {}, json.load(open(path)) if os.path.exists(path) else {"figures": {}, "settings": like}
    if like and last.get("settings") != like:
        sys.exit(f"GO_ON: {path} was measured with {last.get('settings', 'other settings')}, this is to be with {like}")
    for name, runs in last["figures"].items():
        if name.startswith(half.name + " "):
            mix, zipf, side = name.removeprefix(half.name + " ").split(", ")
            cells[mix, float(zipf.split(" ")[1]), int(side.split(" ")[1]) if side.startswith("flash") else side] = runs
    return cells


def library_half(out):
    """The rates of the library's half by (mix, Zipf, flash percent or a side), and its costs a month; nothing if it has not been measured."""
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


def beside_paper(half, cells):
    """What the paper says of its curves, and ours in the same corner: least and most ratio to the volume, or how far sizes of flash are apart."""
    lines = []
    for claim in paper.FIG6:
        there = [key for key in cells if isinstance(key[2], int) and key[0] == claim["mix"] and claim["zipf"][0] <= key[1] <= claim["zipf"][1]
                 and claim["flash"][0] <= key[2] <= claim["flash"][1]]
        if claim["of"] == "volume":
            ours = [rate(cells, *key) / rate(cells, *key[:2], VOLUME) for key in there]
            text = "of all on the volume"
        else:
            by_zipf = {zipf: [rate(cells, *key) for key in there if key[1] == zipf] for zipf in {key[1] for key in there}}
            ours = [min(rates) / max(rates) for rates in by_zipf.values() if len(rates) > 1]
            text = "the slowest size of flash to the fastest"
        if ours:
            lines.append(f"{half} {claim['mix']}, Zipf {claim['zipf'][0]} to {claim['zipf'][1]}, flash {claim['flash'][0]} to {claim['flash'][1]} %: the paper: {claim['says']}; ours: "
                         f"{min(ours):.2f} to {max(ours):.2f}, {text}")
    best = {}
    for mix, zipf, cache in cells:
        if isinstance(cache, int) and value(cells, mix, zipf, cache) >= value(cells, mix, zipf, best.get((mix, zipf), cache)):
            best[mix, zipf] = cache
    if len({key[2] for key in cells if isinstance(key[2], int)}) > 1:
        low, high = paper.FIG6_BEST_VALUE
        lines.append(f"{half}, most for a dollar: the paper: with {low} to {high} % of flash; ours: " + "; ".join(
            f"{mix} " + ", ".join(f"{cache} % (Zipf {zipf})" for (of, zipf), cache in best.items() if of == mix) for mix in dict.fromkeys(mix for mix, _ in best)))
    return lines


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
                axis = axes[2 * row + line][column]
                if not series:
                    axis.axis("off")
                    continue
                zipfs = [key[1] for key in cells if key[0] == mix]
                for claim in paper.FIG6 if line == 0 and zipfs else ():
                    low, high = max(claim["zipf"][0], min(zipfs)), min(claim["zipf"][1], max(zipfs))
                    if claim["mix"] == mix and low < high:
                        axis.axvspan(low, high, alpha=0.08, color=claim["color"], label=f"the paper: {claim['flash'][0]} to {claim['flash'][1]} % {claim['says']}")
                plots.lines(axis, series, f"{half}, {mix}", "Zipf exponent", what)
    plots.save(figure, out, "fig6", "Throughput, and throughput per storage cost (Table 1's prices); emulated tiers, profile cloud")


def write(out, halves, whole):
    """Writes all figures measured so far as JSON; returns notes on how they compare with the paper's."""
    ratios, figures, notes = {}, {}, []
    for half, cells in halves.items():
        for (mix, zipf, cache), runs in cells.items():
            if half != "YCSB":
                figures[f"{half} {mix}, Zipf {zipf}, {cache if isinstance(cache, str) else f'flash {cache} %'}"] = runs
            if isinstance(cache, int):
                name, own, base = f"{half} {mix}, Zipf {zipf}, flash {cache} %", (mix, zipf, cache), (mix, zipf, VOLUME)
                ratios[name] = rate(cells, *own) / rate(cells, *base)
                ratios[name + ", per dollar"] = value(cells, *own) / value(cells, *base)
                if (mix, zipf, INNODB) in cells:
                    ratios[name + ", of InnoDB"] = rate(cells, *own) / rate(cells, mix, zipf, INNODB)
        notes += beside_paper(half, cells)
    report.write(out, "fig6", ratios, figures,
                 [f"measured: {', '.join(HALVES)}; halves that were not are as they were measured before. sysbench: {TABLES} tables of {ROWS} rows (about {ON_SERVERS['sysbench'].data / GIB:.2f} GiB in pages); "
                  f"YCSB in SQL: {RECORDS} records (about {ON_SERVERS['ycsb-sql'].data / GIB:.2f} GiB); memory {MEMORY} % (at least 12 MiB), object "
                  f"buffer {BUFFER} % (at least 32 MiB), {CLIENTS} clients, {TIME} s a run, a sync at each commit",
                  f"warm-up of each row: purge and sinking catch up, then reads alone of the same skew until flash is full or grows no more, then the mix until that holds and the object buffer fills no further; "
                  f"at most {WARM_UP} s, but the mix at least {WARM_UP // 4} s; the other sides as long; how long and how full: in each run. Flash begins empty for each skew's first size and is resized for the next",
                  f"dollars a GB a month {PRICES}; counted: flash and object buffer as bought, the store by bytes in objects (compressed), the "
                  "volume without tiers by pages in use; memory and log are the same on all sides and not counted, requests aren't either", *notes],
                 of=TIERED, against=VOLUME, profile=PROFILE, settings=SETTINGS, ycsb=whole, paper=paper.FIG6)
    return notes


def main():
    out = sys.argv[1]
    if unknown := set(HALVES) - {*ON_SERVERS, "ycsb"}:
        sys.exit(f"HALF: there is no {', '.join(sorted(unknown))}; sysbench, ycsb-sql, ycsb")
    go_on = setting("GO_ON", 0)
    halves = {half.name: kept(out, half, SETTINGS if go_on else None) if go_on or name not in HALVES else {} for name, half in ON_SERVERS.items()}
    halves["YCSB"], whole = library_half(out)
    for name, half in ON_SERVERS.items():
        if name in HALVES:
            measure(out, half, halves[half.name], lambda: write(out, halves, whole))
    print("\n".join(write(out, halves, whole)))
    if setting("PLOT", 1):
        plot(out, halves)


if __name__ == "__main__":
    main()
