"""Propagation times per network: Gottoli and Pettenuzzo (2014), other libraries, jtgpu, and the hardware limit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# microseconds of one propagation by the system of Gottoli and Pettenuzzo on its GTX 680, all seven networks
PUBLISHED = {
    "water": 140_000, "mildew": 132_000, "barley": 692_000, "diabetes": 780_000, "munin4": 688_000, "link": 853_000,
    "munin1": 3_329_000,
}  # fmt: skip
SERIES = (  # label, colour, marker
    ("published 2014, GTX 680", "#d9a441", "s"),
    ("JAX", "#8a6fb0", "v"),
    ("torch", "#c0615a", "^"),
    ("torch or JAX", "#a56685", "<"),
    ("jtgpu, cpu", "#8a8a8a", "D"),
    ("jtgpu, gpu", "#2f7d4f", "o"),
    ("limit", "#222222", "_"),
)


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    text = Path(path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def figure_bench(rows: Iterable[Mapping[str, Any]]) -> Figure:
    """Two panels: time of one case in microseconds, and cases per second for tables; one position per network.

    Of the variants of another library (plain and compiled, dot products and fused sums) the best one is shown. Hollow
    markers were measured on the same kind of GPU by an earlier script.
    """
    # rows: iterable of mappings: As written by ``bench/bench_gpu.py``; the last row of a network and engine counts
    # raises ImportError: If matplotlib is missing (``pip install 'jtgpu[plot]'``).
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    single, many = _points(rows)
    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot, so that the user's matplotlib state is not touched
    left, right = figure.subplots(1, 2)
    _draw_panel(left, single, _ordered(single, largest_first=False))
    left.set(title="One case, all posteriors", ylabel="microseconds")
    _draw_panel(right, many, _ordered(many, largest_first=True))
    right.set(title="Tables of cases, all posteriors", ylabel="cases per second")
    handles: dict[str, Any] = {}
    for axes in (left, right):
        found, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    return figure


def _draw_panel(axes: Axes, points: Points, names: Sequence[str]) -> None:
    """Scatter the points of all series, one position per network."""
    for label, colour, marker in SERIES:
        here = points.get(label, {})
        for hollow in (False, True):
            at = [i for i, name in enumerate(names) if name in here and here[name][1] == hollow]
            if not at:
                continue
            style: dict[str, Any] = (
                {"facecolors": "none", "edgecolors": colour, "linewidths": 1.0} if hollow else {"c": colour}
            )
            axes.scatter(
                at,
                [here[names[i]][0] for i in at],
                s=90 if marker == "_" else 34,
                marker=marker,
                label=f"{label}, earlier" if hollow else label,
                zorder=3,
                **style,
            )
    axes.set_yscale("log")
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    axes.grid(axis="y", which="major", color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)


Points = dict[str, dict[str, tuple[float, bool]]]  # label -> network -> value, whether it was measured earlier


def _points(rows: Iterable[Mapping[str, Any]]) -> tuple[Points, Points]:
    single: Points = {label: {} for label, _, _ in SERIES}
    many: Points = {label: {} for label, _, _ in SERIES}
    peers: dict[tuple[str, str, bool], Mapping[str, Any]] = {}
    for row in rows:
        name = str(row["network"])
        if "peer" in row:
            key = (name, str(row["peer"]), bool(row["batch"]))
            if "failed" not in row and ("earlier" not in row or key not in peers):
                peers[key] = row
        elif row.get("dtype", "float64") != "float64":
            continue
        elif "device_cases_per_s" in row:
            many["jtgpu, gpu"][name] = (float(row["device_cases_per_s"]), False)
            for key_, label in (("cpu_cases_per_s", "jtgpu, cpu"), ("limit_cases_per_s", "limit")):
                if row.get(key_):
                    many[label][name] = (float(row[key_]), False)
        elif "device_us" in row:
            single["jtgpu, gpu"][name] = (float(row["device_us"]["median"]), False)
            single["jtgpu, cpu"][name] = (float(row["cpu_us"]), False)
            single["limit"][name] = (float(row["roofline_us"]), False)
    for (name, engine, batch), row in sorted(peers.items()):
        label, target = _library(engine), many if batch else single
        value = (float(row["cases_per_s" if batch else "device_us"]), "earlier" in row)
        best = target[label].get(name)
        if best is None or (value[0] > best[0] if batch else value[0] < best[0]):
            target[label][name] = value
    ours = single["jtgpu, gpu"]
    single["published 2014, GTX 680"] = {k: (float(v), False) for k, v in PUBLISHED.items() if k in ours}
    return single, many


def _library(engine: str) -> str:
    return "torch or JAX" if engine == "either" else "JAX" if engine.startswith("jax") else "torch"


def _ordered(points: Points, *, largest_first: bool) -> Sequence[str]:
    ours = points["jtgpu, gpu"]
    return sorted(ours, key=lambda name: (-ours[name][0] if largest_first else ours[name][0], name))


def draw_bench(rows: Iterable[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Save `figure_bench` to a file; the suffix selects the format: .svg, .png, .pdf."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "jtgpu"}):  # equal rows give equal files
        metadata = {"Date": None} if os.fspath(path).endswith(".svg") else None
        figure_bench(rows).savefig(path, dpi=150, metadata=metadata)
