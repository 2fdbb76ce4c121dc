"""The figures of the published report, drawn from a table of times measured on this machine.

(1) n against m of all index tables, (2) sizes of all clique tables, and for each network a bar chart of marginalisation
and scattering on CPU and GPU, with and without transfers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..backends.published.timetable import Column, TimeTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CPU, GPU, THEN = "#8a8a8a", "#2f7d4f", "#d9a441"  # this machine's CPU and GPU, the published GPU
_PHASES = ("marginalise", "scatter")
_LABELS = ("marginalisation", "scattering")


def _figure(width: float = 6.4, height: float = 4.4) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot, so that the user's matplotlib state is not touched
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def figure_separators(table: TimeTable) -> Figure:
    """n against m of all index tables, both axes logarithmic, one colour per network."""
    figure, axes = _figure()
    for column in table.columns:
        n, m = zip(*column.separators, strict=True) if column.separators else ((), ())
        axes.scatter(n, m, s=12, alpha=0.6, linewidths=0, label=column.name)
    axes.set(xscale="log", yscale="log", title="Index tables")
    axes.set_xlabel("n: configurations of the separator")
    axes.set_ylabel("m: entries of the clique for each")
    axes.axvline(512, color="#555555", linewidth=0.8, linestyle=":")
    axes.text(512, 0.98, " n = 512", transform=axes.get_xaxis_transform(), va="top", fontsize=8, color="#555555")
    axes.legend(frameon=False, fontsize=8)
    return figure


def figure_sizes(table: TimeTable) -> Figure:
    """Sizes of all clique tables, largest first, on a logarithmic scale."""
    figure, axes = _figure()
    for column in table.columns:
        sizes = sorted(column.clique_sizes, reverse=True)
        axes.plot(range(1, len(sizes) + 1), sizes, marker=".", markersize=3, linewidth=1, label=column.name)
    axes.set(xscale="log", yscale="log", title="Clique tables")
    axes.set_xlabel("clique, largest first")
    axes.set_ylabel("entries")
    axes.axhline(5000, color="#555555", linewidth=0.8, linestyle=":")
    axes.text(1, 5000, "5000: below, the CPU", va="bottom", fontsize=8, color="#555555")
    axes.legend(frameon=False, fontsize=8)
    return figure


def figure_bars(column: Column, *, transfers: bool) -> Figure:
    """Marginalisation and scattering of one network: CPU, GPU, and the published GPU; in ms, on a logarithmic scale."""
    figure, axes = _figure(5.0, 3.8)
    kind = "gpu" if transfers else "kernels"
    series = [
        ("CPU, here", CPU, [column.values.get(f"cpu_{p}") for p in _PHASES]),
        ("GPU, here", GPU, [column.values.get(f"{kind}_{p}") for p in _PHASES]),
        ("GPU, published 2014", THEN, [column.published.get(f"{kind}_{p}") for p in _PHASES]),
    ]
    if not transfers:
        resident = [column.values.get(f"resident_{p}") for p in _PHASES]
        series.insert(2, ("GPU, tables resident, here", "#7fc29b", resident))
    shown = [s for s in series if any(v for v in s[2])]
    width = 0.8 / max(len(shown), 1)
    for i, (label, colour, heights) in enumerate(shown):
        at = [p + (i - (len(shown) - 1) / 2) * width for p in range(len(_PHASES))]
        bars = axes.bar(at, [h or 0.0 for h in heights], width * 0.92, color=colour, label=label)
        axes.bar_label(bars, [f"{h:.3g}" if h else "" for h in heights], fontsize=7, padding=1)
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    axes.set_xticks(range(len(_PHASES)), _LABELS)
    axes.set_title(f"{column.name}, {'with' if transfers else 'without'} transfers")
    axes.margins(y=0.15)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=7)
    return figure


def draw(table: TimeTable, folder: Path | str, suffix: str = "png") -> list[Path]:
    """Save all figures to a folder, which is created if it is missing; their paths."""
    # suffix: {"png", "svg", "pdf"}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"index-tables": figure_separators(table), "clique-tables": figure_sizes(table)}
    for transfers in (False, True):
        for column in table.columns:
            name = re.sub(r"[^A-Za-z0-9]+", "-", column.name).strip("-").lower()
            figures[f"{name}-{'with' if transfers else 'without'}-transfers"] = figure_bars(column, transfers=transfers)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.{suffix}")
        figure.savefig(paths[-1], dpi=150)
    return paths
