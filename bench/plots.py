"""Plots as PNG beside the JSON."""

import os

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def grid(rows, columns, width=4.2, height=3.2):
    figure, axes = pyplot.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    return figure, axes


def lines(axis, series, title, x, y, log_x=False, ticks=None):
    """`series`: name to a list of (x, y). A name that begins with `-` is drawn dashed."""
    for name, points in series.items():
        points = sorted(points)
        axis.plot([p[0] for p in points], [p[1] for p in points], "--" if name.startswith("-") else "-", label=name.lstrip("-"),
                  marker="o" if len(points) < 30 else None, markersize=3, linewidth=1.2)
    if log_x:
        axis.set_xscale("log", base=2)
    if ticks:
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=6)


def bars(axis, values, title, y):
    """`values`: name to a number."""
    axis.bar(list(values), list(values.values()), color="tab:blue")
    axis.set_title(title, fontsize=9)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.tick_params(axis="x", rotation=25)


def points(axis, values, title, x, y, own):
    """`values`: name to (x, y), each with its name beside it; `own` stands out."""
    for name, (at, high) in values.items():
        axis.plot([at], [high], "o", color="tab:red" if name == own else "tab:blue", markersize=4)
        axis.annotate(name, (at, high), textcoords="offset points", xytext=(4, 2), fontsize=5.5)
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.3)


def save(figure, out, name, caption):
    figure.suptitle(caption, fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    path = os.path.join(out, f"{name}.png")
    figure.savefig(path, dpi=110)
    print(f"plot: {path}")
