"""One network's column of the table of times, measured on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import Evidence, Result
from ...device.context import open_device
from ...errors import JtgpuError
from ...plans.plan import Plan
from ...util.arrays import Floats
from .backend import Indexed, prepare
from .schedule import Schedule
from .timetable import RATIOS, Column, TimeTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

@dataclass
class PhaseClock:
    """Sums the seconds of each phase; implements `Clock`."""

    kernels_only: bool
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


def measure(
    name: str,
    plan: Plan,
    factors: Sequence[Floats],
    *,
    runs: int = 5,
    cpu_runs: int = 1,
    tuned: Mapping[str, Any] | None = None,
    step: Callable[[str], None] | None = None,
    **options: Any,
) -> Column:
    """Measure one network as published: collect and distribute without evidence."""
    # runs, cpu_runs: Measured propagations after a first one; totals are their median
    # tuned: Rules of the rows "tuned"; None omits these rows
    # step: Called with the name of the next measurement
    # **options: More fields of `Rules`, for all runs
    # raises JtgpuError: If the answers of the device and the CPU differ.
    # raises BackendUnavailable, TableTooLarge: As `prepare` of the backend; without a device, before
    #     anything is measured.
    report = step or (lambda what: None)
    open_device(options.get("device"))
    run = _Measurement(name, Evidence.none(plan.n_variables), tree_figures(plan))
    report("on the CPU")
    host_options = {k: v for k, v in options.items() if k in ("dtype", "max_entries")}
    with closing(prepare(plan, factors, engine="host", **host_options)) as backend:
        schedule = backend.schedule
        run.expected = backend.run_case(run.evidence)
        run.total("cpu", backend, cpu_runs)
        run.phases(backend, False, {"marginalise": "cpu_marginalise", "scatter": "cpu_scatter"})
    report("on the GPU, tables copied for every message")
    with closing(prepare(plan, factors, transfers="each", **options)) as backend:
        run.compare("each", backend)
        run.total("gpu", backend, runs)
        run.phases(backend, True, {"marginalise": "kernels_marginalise", "scatter": "kernels_scatter"})
        run.phases(backend, False, {"marginalise": "gpu_marginalise", "scatter": "gpu_scatter"})
    for mode, rules in (("resident", options), ("tuned", None if tuned is None else {**options, **tuned})):
        if rules is None:
            continue
        report(f"on the GPU, {mode}")
        with closing(prepare(plan, factors, transfers="resident", **rules)) as backend:
            run.compare(mode, backend)
            run.total(mode, backend, runs)
            run.record(f"{mode}_run", [_timed_run(backend, run.evidence) for _ in range(runs)])
            run.phases(backend, True, {phase: f"{mode}_{phase}" for phase in ("marginalise", "scatter", "normalise")})
    return _column(name, run.values, run.spread, schedule)


@dataclass
class _Measurement:
    """The values of one network as they are measured."""

    name: str
    evidence: Evidence
    values: dict[str, float]
    spread: dict[str, float] = field(default_factory=dict)
    expected: Result | None = None

    def compare(self, mode: str, backend: Indexed) -> None:
        """Compare an engine's answers with the CPU's."""
        # raises JtgpuError: If they differ.
        assert self.expected is not None
        answer = backend.run_case(self.evidence)
        tolerance = 1e-10 if backend.rules.dtype == "float64" else 1e-3
        worst = float(np.abs(answer.posterior - self.expected.posterior).max(initial=0.0))
        if not worst <= tolerance or not abs(answer.log_evidence - self.expected.log_evidence) <= tolerance * 100:
            raise JtgpuError(f"{self.name}, {mode}: the device's answers differ from the CPU's by {worst:.3g}")

    def record(self, key: str, seconds: list[float]) -> None:
        """Store the median and half the range of repeated runs, in ms."""
        self.values[key] = median(seconds) * 1e3
        self.spread[key] = (max(seconds) - min(seconds)) / 2 * 1e3

    def total(self, key: str, backend: Indexed, repeats: int) -> None:
        """Measure whole propagations; a first one allocates memory and loads kernels."""
        backend.propagate(self.evidence)
        self.record(key, [backend.timed_propagation(self.evidence) for _ in range(repeats)])

    def phases(self, backend: Indexed, kernels_only: bool, keys: Mapping[str, str]) -> None:
        """Measure each phase: of three propagations, the one with the median sum."""
        clocks = []
        for _ in range(3 if backend.device is not None else 1):
            clock = PhaseClock(kernels_only)
            backend.propagate(self.evidence, clock)
            clocks.append(clock.seconds)
        clocks.sort(key=lambda seconds: sum(seconds.values()))
        for phase, key in keys.items():
            self.values[key] = clocks[len(clocks) // 2].get(phase, 0.0) * 1e3


def _timed_run(backend: Indexed, evidence: Evidence) -> float:
    start = perf_counter()
    backend.run_case(evidence)
    return perf_counter() - start


def tree_figures(plan: Plan) -> dict[str, float]:
    """The rows of the junction tree itself: numbers and sizes of cliques and separators."""
    cost = plan.cost()
    separators = [plan.size(s) for s, up in zip(plan.separators, plan.clique_parent.tolist(), strict=True) if up >= 0]
    return {
        "cliques": cost.cliques,
        "largest": cost.largest,
        "smallest": cost.smallest,
        "average": cost.entries // max(cost.cliques, 1),
        "entries": cost.entries,
        "largest_separator": max(separators, default=0),
        "smallest_separator": min(separators, default=0),
        "average_separator": sum(separators) // max(len(separators), 1),
    }


def _column(name: str, values: dict[str, float], spread: dict[str, float], schedule: Schedule) -> Column:
    for key, (over, under) in RATIOS.items():
        if values.get(over) and values.get(under):
            values[key] = values[over] / values[under]
    used = {s for sweep in schedule.collect for r in sweep for m in r for s in (m.source_shape, m.target_shape)}
    pairs = [(schedule.shapes[s].n, schedule.shapes[s].m) for s in sorted(used)]
    return Column(name, values, spread, pairs, [int(n) for n in schedule.clique_entries])


# The figures of the published report, drawn from a table of times measured on this machine.
#
# (1) n against m of all index tables, (2) sizes of all clique tables, and for each network a bar chart of
# marginalisation and scattering on CPU and GPU, with and without transfers.

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
