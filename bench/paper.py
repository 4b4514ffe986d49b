"""What CloudJump III reports (§5.3, §5.4), to stand beside our figures. Its machines, data and rates are others': ratios compare, rates don't."""

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

# Figure 8a: against admit-all ("full-admit" there): transactions a second, the share of misses that flash answers, its writes a second.
FIG8A = {
    "one-hit-discard": {"rate": 2945, "hit_ratio": 0.151},
    "admit-all": {"rate": 36422 / 1.12, "hit_ratio": 0.634, "flash_pages_written": 22369},
    "ghost": {"rate": 36422, "hit_ratio": 0.727, "flash_pages_written": 2082},
}


def fig7(load, clients, key):
    """The paper's ratio of tiered to all on the volume; None where it has no number."""
    tiered, volume = FIG7.get((load, clients), {}).get(key, (None, None))
    return tiered and tiered / volume


def fig8a(policy, key):
    """The paper's value over admit-all's; None where it has no number."""
    value = FIG8A.get(policy, {}).get(key)
    return value and value / FIG8A["admit-all"][key]
