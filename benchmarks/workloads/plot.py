"""A picture of a run: for each query, measured seconds over the speed of light."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.workloads.measure import Figures


def plot(path: Path, figures: Sequence[Figures], title: str, light: str, *, h100: bool) -> None:
    """Write a PNG with one bar a query; a query that asked nothing has none.

    `light` names the device whose speed of light is meant: this machine's, or with `h100` that GPU's.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shown = [each for each in figures if each.asks]
    ratios = [each.seconds / (each.sol_seconds_h100 if h100 else each.sol_seconds) for each in shown]
    drawing, axes = pyplot.subplots(figsize=(9, 1 + 0.24 * len(shown)), layout="constrained")
    places = range(len(shown))
    bars = axes.barh(places, ratios, color="#4878a8")
    axes.bar_label(bars, [f" {ratio:,.1f}" for ratio in ratios], fontsize=7)
    axes.set_yticks(places, [f"{each.id}  {each.shape}" for each in shown], fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel(f"measured seconds / speed of light ({light})")
    axes.set_title(title, fontsize=9)
    axes.invert_yaxis()
    drawing.savefig(path, dpi=130)
    pyplot.close(drawing)
