"""fig-split: reads of a hot set larger than memory, divided between flash and the volume (`terrace_split=on`) against flash first (`off`).

Two servers with the same data, no store, all of it on the volume and, after the warm-up, on flash too; sysbench's point selects by uniform keys.
The servers take turns; each figure is the median of the rounds, each ratio that of the rounds' ratios. The devices are emulated: profile `small`
(flash 8,000 requests/s, volume 3,000) by default, whose sum is 1.375 times flash alone; `cloud`, whose flash two cores do not fill, shows what split costs.

Environment: PROFILES (small,cloud), POLICIES (on), CLIENTS (1,8,32), ROWS, MEMORY (MiB), TIME and WARM_UP (seconds), RUNS, PLOT, PORTS.
"""

import os
import shutil
import statistics
import sys

import report
from sysbench import sysbench, timed
from tiers import MIB, end, listed, place, run, server_in, setting, status, warm_up

PROFILES, POLICIES, CLIENTS = listed("PROFILES", "small,cloud"), listed("POLICIES", "on"), listed("CLIENTS", "1,8,32", int)
ROWS, MEMORY = setting("ROWS", 400_000), setting("MEMORY", 16)
TIME, WARM_UP, RUNS = setting("TIME", 6), setting("WARM_UP", 60), setting("RUNS", 3)
DESCRIBED = {
    "small": "small: flash read 90 µs, 125 MB/s, 8000 requests/s; volume read 500 µs, 125 MB/s, 3000 requests/s",
    "cloud": "cloud: flash read 80 µs, 2000 MB/s, 400000 requests/s; volume read 250 µs, 1000 MB/s, 50000 requests/s",
}
LOAD, OPTIONS = "oltp_point_select", ["--tables=1", f"--table-size={ROWS}", "--rand-type=uniform", "--mysql-storage-engine=Terrace"]


def one_server(directory, name, profile, split):
    flash = os.path.join(directory, f"{name}-flash")
    os.makedirs(flash)
    server = server_in(os.path.join(directory, name), [
        "--innodb=OFF", "--default-storage-engine=Aria", f"--terrace-memory={MEMORY * MIB}", f"--terrace-emulate={profile}", f"--terrace-flash-path={flash}",
        f"--terrace-flash={ROWS * 400 + 64 * MIB}", "--terrace-flash-admission=admit-all", f"--terrace-split={split}"])
    server.start()
    run(server.connect(), "CREATE DATABASE d")
    sysbench(server, LOAD, "prepare", "d", *OPTIONS)
    return server


def shares(server, before):
    """Which part of the divided reads each device served since."""
    now = status(server)
    reads = {device: now[f"split_{device}_reads"] - before[f"split_{device}_reads"] for device in ("flash", "volume")}
    return reads["volume"] / max(sum(reads.values()), 1)


def one_profile(out, profile, figures, ratios):
    directory = place(out, "fig-split")
    servers = {}
    try:
        for split in ["off", *POLICIES]:
            servers[split] = one_server(directory, split, profile, split)
            full = warm_up(servers[split], lambda seconds, s=servers[split]: timed(s, LOAD, "d", max(CLIENTS), seconds, *OPTIONS), WARM_UP, least=WARM_UP // 3)
            print(f"{profile}, {split}: warm, flash {100 * full['flash']:.0f} % full", file=sys.stderr)
        for clients in CLIENTS:
            rounds = {split: [] for split in servers}
            for _ in range(RUNS):
                for split, server in servers.items():
                    before = status(server)
                    one = timed(server, LOAD, "d", clients, TIME, *OPTIONS)
                    rounds[split].append({**one, "volume": shares(server, before)})
            name = f"{profile}, {clients} clients"
            figures[name] = rounds
            for policy in POLICIES:
                ratio = statistics.median(a["rate"] / max(b["rate"], 1e-9) for a, b in zip(rounds[policy], rounds["off"]))
                late = statistics.median(a["p99_ms"] / max(b["p99_ms"], 1e-9) for a, b in zip(rounds[policy], rounds["off"]))
                ratios[f"{name}, {policy}"], ratios[f"{name}, {policy}, p99"] = ratio, late
                middle = {split: statistics.median(one["rate"] for one in rounds[split]) for split in ("off", policy)}
                volume = statistics.median(one["volume"] for one in rounds[policy])
                print(f"{name:22} {policy}: {ratio:5.2f} of off, p99 {late:5.2f} times   off {middle['off']:.0f}/s, {policy} {middle[policy]:.0f}/s, {100 * volume:.0f} % from the volume", flush=True)
    finally:
        for server in servers.values():
            end(server)
        shutil.rmtree(directory, ignore_errors=True)


def plot(out, ratios):
    import plots
    figure, axes = plots.grid(1, len(PROFILES))
    for column, profile in enumerate(PROFILES):
        series = {policy: [(c, ratios[f"{profile}, {c} clients, {policy}"]) for c in CLIENTS] for policy in POLICIES}
        plots.lines(axes[0][column], series, DESCRIBED.get(profile, profile).split(":")[0], "clients", "rate, of off", log_x=True, ticks=CLIENTS)
    plots.save(figure, out, "fig-split", "Point selects with split, of flash first; emulated devices")


def main(out):
    figures, ratios = {}, {}
    for profile in PROFILES:
        one_profile(out, profile, figures, ratios)
    report.write(out, "fig-split", ratios, figures, [DESCRIBED.get(profile, profile) for profile in PROFILES], against="off", profile=", ".join(PROFILES))
    if setting("PLOT", 1):
        plot(out, ratios)


if __name__ == "__main__":
    main(sys.argv[1])
