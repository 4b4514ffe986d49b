"""What CloudJump III reports in its text (§5.2 to §5.5), to be shown beside our figures. The paper's machines, data and rates differ from ours: ratios can be compared, rates can't."""

# Figure 6: its curves have no numbers in the text. What it says of them: by mix, from which Zipf exponent to which, sizes of flash in percent, and
# whether it is of the rate on the volume, or of one size to another. What it says of reads alone it says of YCSB with 50 GB, and that sysbench is alike.
FIG6 = [
    {"mix": "read-only", "zipf": (1.4, 2.0), "flash": (20, 50), "of": "volume", "says": "near the ESSD's bound", "color": "tab:green"},
    {"mix": "read-only", "zipf": (0.8, 1.0), "flash": (5, 10), "of": "volume", "says": "a gap", "color": "tab:red"},
    {"mix": "read-write", "zipf": (1.4, 2.0), "flash": (30, 50), "of": "volume", "says": "near the ESSD's bound", "color": "tab:green"},
    {"mix": "write-only", "zipf": (1.6, 2.0), "flash": (10, 50), "of": "each other", "says": "tightly clustered", "color": "tab:blue"},
]
# And throughput for cost is best with so much flash, in percent of the data.
FIG6_BEST_VALUE = (20, 30)

# Figure 7: transactions a second (tiered, all on the volume), and latencies in milliseconds where the text has them.
FIG7 = {
    ("voter", 1): {"rate": (2727, 2321), "p50_ms": (0.347, 0.419)},
    ("voter", 4): {"rate": (8554, 8589), "p50_ms": (0.429, 0.446)},
    ("voter", 16): {"rate": (16902, 18583), "p99_ms": (4.861, 3.205)},
    ("voter", 64): {"rate": (17742, 22328), "p99_ms": (22.145, 14.714)},
    ("game", 4): {"rate": (2899, 2793)},
    ("game", 16): {"rate": (2913, 2820), "p99_ms": (78.9, 90.8)},
    ("game", 64): {"p99_ms": (321, 282)},
}

# Figure 8a: against full-admit: transactions a second, the share of misses that flash answers, its writes a second.
FIG8A = {
    "one-hit-discard": {"rate": 2945, "hit_ratio": 0.151},
    "full-admit": {"rate": 36422 / 1.12, "hit_ratio": 0.634, "flash_pages_written": 22369},
    "ghost": {"rate": 36422, "hit_ratio": 0.727, "flash_pages_written": 2082},
}

# Figures 8b and 8c have no numbers in the text.
FIG8B = {"warm_up_seconds": 180, "excluded": "lower peak bandwidth, and it varies less", "not excluded": "sharp spikes of bandwidth"}
FIG8C = {"bypass": "near the steady rate, with minor variation", "no bypass": "repeated deep drops, with each DDL"}

# Table 2: seconds, with 50 GB of data: all on the volume (ESSD), all in the object store (OSS), tiered.
TABLE2 = {"Snapshot creation": (0.52, 53.73, 0.64), "Backup duration": (49.58, 53.73, 51.22), "Recovery time": (1.15, 57.64, 52.26)}


def fig7(load, clients, key):
    """The paper's ratio of tiered to all on the volume; None where it has no number."""
    tiered, volume = FIG7.get((load, clients), {}).get(key, (None, None))
    return tiered and tiered / volume


def fig8a(policy, key):
    """The paper's value over full-admit's; None where it has no number."""
    value = FIG8A.get(policy, {}).get(key)
    return value and value / FIG8A["full-admit"][key]


# NetCAS, from its text: over the cache alone (Fig. 6: up to 142 % more; the abstract: 174 %), over Orthus without congestion, and through congestion by threads (Fig. 7).
NETCAS = {"over_cache_max": 1.74, "over_cache_fig6": 1.42, "over_orthus_quiet": 1.25, "over_orthus_congested": (1.2, 3.5), "cpu_points": 0.33}
