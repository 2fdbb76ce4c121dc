"""The published table of times, measured here: every row, beside the figures of 2014.

`measure` fills one column (one network), `TimeTable` holds the columns and writes them as JSON, CSV and reST. Times
are in milliseconds, as published; the published figures are of a Core i7-3770 and a GTX 680, in double precision.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device.context import open_device
from ...errors import JtgpuError
from ..base import Evidence, Result
from .backend import Indexed, prepare
from .host import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan

__all__ = ["PUBLISHED", "ROWS", "Column", "PhaseClock", "RowSpec", "TimeTable", "measure"]


@dataclass(frozen=True)
class RowSpec:
    """A row of the table.

    Attributes
    ----------
    key : str
        Its key in `Column.values` and `PUBLISHED`.
    label : str
    group : {"tree", "total", "cpu", "gpu, without transfers", "gpu, with transfers", "resident", "tuned"}
    kind : {"count", "ms", "ratio"}
    """

    key: str
    label: str
    group: str
    kind: str


_KERNELS, _WITH = "gpu, without transfers", "gpu, with transfers"
ROWS = (
    RowSpec("cliques", "cliques", "tree", "count"),
    RowSpec("largest", "largest clique table", "tree", "count"),
    RowSpec("smallest", "smallest clique table", "tree", "count"),
    RowSpec("average", "average clique table", "tree", "count"),
    RowSpec("entries", "sum of all clique tables", "tree", "count"),
    RowSpec("largest_separator", "largest separator", "tree", "count"),
    RowSpec("smallest_separator", "smallest separator", "tree", "count"),
    RowSpec("average_separator", "average separator", "tree", "count"),
    RowSpec("cpu", "propagation on CPU", "total", "ms"),
    RowSpec("gpu", "propagation on GPU, transfers included", "total", "ms"),
    RowSpec("speedup", "speed-up", "total", "ratio"),
    RowSpec("cpu_marginalise", "marginalisation, CPU", "cpu", "ms"),
    RowSpec("cpu_scatter", "scattering, CPU", "cpu", "ms"),
    RowSpec("kernels_marginalise", "marginalisation, GPU without transfers", _KERNELS, "ms"),
    RowSpec("kernels_scatter", "scattering, GPU without transfers", _KERNELS, "ms"),
    RowSpec("kernels_marginalise_speedup", "speed-up of marginalisation", _KERNELS, "ratio"),
    RowSpec("kernels_scatter_speedup", "speed-up of scattering", _KERNELS, "ratio"),
    RowSpec("gpu_marginalise", "marginalisation, GPU with transfers", _WITH, "ms"),
    RowSpec("gpu_scatter", "scattering, GPU with transfers", _WITH, "ms"),
    RowSpec("gpu_marginalise_speedup", "speed-up of marginalisation", _WITH, "ratio"),
    RowSpec("gpu_scatter_speedup", "speed-up of scattering", _WITH, "ratio"),
    RowSpec("resident", "propagation, tables resident", "resident", "ms"),
    RowSpec("resident_run", "the same with evidence up and all posteriors down", "resident", "ms"),
    RowSpec("resident_marginalise", "marginalisation, resident", "resident", "ms"),
    RowSpec("resident_scatter", "scattering, resident", "resident", "ms"),
    RowSpec("resident_normalise", "normalisation, resident", "resident", "ms"),
    RowSpec("tuned", "propagation, tables resident, tuned rules", "tuned", "ms"),
    RowSpec("tuned_run", "the same with evidence up and all posteriors down", "tuned", "ms"),
    RowSpec("tuned_marginalise", "marginalisation, resident, tuned rules", "tuned", "ms"),
    RowSpec("tuned_scatter", "scattering, resident, tuned rules", "tuned", "ms"),
)

# A. Gottoli, F. Pettenuzzo (2014), table 2; sums of clique tables recomputed from their orders. Rows in this order:
_PUBLISHED_ROWS = (
    "cliques", "largest", "smallest", "average", "entries", "largest_separator", "smallest_separator",
    "average_separator", "cpu", "gpu", "speedup", "cpu_marginalise", "cpu_scatter", "kernels_marginalise",
    "kernels_scatter", "kernels_marginalise_speedup", "kernels_scatter_speedup", "gpu_marginalise", "gpu_scatter",
    "gpu_marginalise_speedup", "gpu_scatter_speedup",
)  # fmt: skip
_PUBLISHED_COLUMNS: dict[str, tuple[float, ...]] = {
    "mildew": (29, 1_249_280, 336, 117_257, 3_400_464, 62_464, 72, 3_950, 101, 132, 0.765, 40, 59, 5, 5, 8.0, 11.8,
               39, 83, 1.026, 0.711),
    "diabetes": (337, 84_480, 495, 29_157, 9_825_960, 5_280, 16, 1_698, 275, 780, 0.353, 98, 180, 45, 30, 2.018, 6.0,
                 303, 441, 0.323, 0.408),
    "barley": (36, 7_257_600, 216, 476_133, 17_140_796, 907_200, 7, 38_237, 935, 692, 1.351, 378, 511, 30, 36, 12.6,
               14.194, 279, 402, 1.355, 1.271),
    "munin4": (877, 448_000, 4, 10_102, 8_860_074, 56_000, 2, 1_376, 366, 688, 0.532, 157, 236, 36, 28, 4.361, 8.429,
               214, 394, 0.734, 0.599),
    "water": (21, 589_824, 9, 144_205, 3_028_305, 147_456, 3, 28_527, 152, 140, 1.086, 63, 83, 23, 5, 2.73, 16.6, 47,
              99, 1.34, 0.838),
    "munin1": (162, 38_400_000, 4, 516_887, 83_735_758, 2_400_000, 2, 58_691, 5_976, 3_329, 1.796, 2_554, 3_425, 447,
               295, 5.195, 10.86, 1_458, 1_852, 1.593, 1.73),
    "link": (586, 2_097_152, 4, 40_928, 23_983_962, 262_144, 3, 4_418, 1_122, 853, 1.316, 492, 692, 120, 48, 4.1,
             14.417, 331, 534, 1.487, 1.296),
}  # fmt: skip
PUBLISHED: dict[str, dict[str, float]] = {
    name: dict(zip(_PUBLISHED_ROWS, values, strict=True)) for name, values in _PUBLISHED_COLUMNS.items()
}
# Rows of ours that answer to a published one of another name: resident tables have no transfers.
AGAINST = {
    "resident": "gpu", "resident_run": "gpu", "resident_marginalise": "kernels_marginalise",
    "resident_scatter": "kernels_scatter", "tuned": "gpu", "tuned_run": "gpu",
    "tuned_marginalise": "kernels_marginalise", "tuned_scatter": "kernels_scatter",
}  # fmt: skip


@dataclass
class PhaseClock:
    """Adds up the seconds of each phase; a `jtgpu.backends.published.host.Clock`."""

    kernels_only: bool
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, phase: str, seconds: float) -> None:
        """See `jtgpu.backends.published.host.Clock`."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


@dataclass(frozen=True)
class Column:
    """One network.

    Attributes
    ----------
    name : str
    values : dict
        What was measured, by row key; a row that was not measured is absent.
    spread : dict
        Half the range of the repeated runs of each total, in ms.
    separators : list of (n, m)
        Every index table: configurations of the separator, entries of the clique for each.
    clique_sizes : list of int
    """

    name: str
    values: dict[str, float]
    spread: dict[str, float]
    separators: list[tuple[int, int]]
    clique_sizes: list[int]

    @property
    def published(self) -> Mapping[str, float]:
        """The published column of this network; empty where it is not one of the seven."""
        return PUBLISHED.get(self.name.casefold(), {})

    def gain(self, key: str) -> float | None:
        """How many times faster than the published figure a time is; None where there is none."""
        then, now = self.published.get(AGAINST.get(key, key)), self.values.get(key)
        return None if then is None or not now else then / now


def measure(
    name: str,
    plan: Plan,
    factors: Sequence[NDArray[np.float64]],
    *,
    runs: int = 5,
    cpu_runs: int = 1,
    tuned: Mapping[str, Any] | None = None,
    step: Callable[[str], None] | None = None,
    **options: Any,
) -> Column:
    """Measure one network: no evidence, collect and distribute, as published.

    Parameters
    ----------
    name : str
    plan : Plan
    factors : sequence of float64 arrays
    runs, cpu_runs : int
        Propagations that a total is the median of, after a first one.
    tuned : mapping, optional
        Rules of the rows "tuned"; None leaves them out.
    step : callable, optional
        Told what comes next.
    **options
        Further rules of all runs (`jtgpu.backends.published.backend.Rules`).

    Raises
    ------
    JtgpuError
        When the device's answers are not the CPU's: nothing is timed that is wrong.
    BackendUnavailable, TableTooLarge
        See `jtgpu.backends.published.backend.prepare`; without a device, before anything is measured.
    """
    tell = step or (lambda what: None)
    none = Evidence.none(plan.n_variables)
    open_device(options.get("device"))
    values = _tree(plan)
    spread: dict[str, float] = {}

    def total(key: str, backend: Indexed, repeats: int) -> None:
        backend.propagate(none)  # the first one touches memory and loads kernels
        _record(key, [backend.timed_propagation(none) for _ in range(repeats)], values, spread)

    tell("on the CPU")
    backend = prepare(
        plan, factors, engine="host", **{k: v for k, v in options.items() if k in ("dtype", "max_entries")}
    )
    schedule = backend.schedule
    expected = backend.run(none)
    tolerance = 1e-10 if backend.rules.dtype == "float64" else 1e-3
    total("cpu", backend, cpu_runs)
    _phases(backend, none, False, {"marginalise": "cpu_marginalise", "scatter": "cpu_scatter"}, values)
    backend.close()

    tell("on the GPU, tables copied for every message")
    backend = prepare(plan, factors, transfers="each", **options)
    _compare(name, "each", backend.run(none), expected, tolerance)
    total("gpu", backend, runs)
    _phases(backend, none, True, {"marginalise": "kernels_marginalise", "scatter": "kernels_scatter"}, values)
    _phases(backend, none, False, {"marginalise": "gpu_marginalise", "scatter": "gpu_scatter"}, values)
    backend.close()
    for mode, rules in (("resident", options), ("tuned", None if tuned is None else {**options, **tuned})):
        if rules is None:
            continue
        tell(f"on the GPU, {mode}")
        backend = prepare(plan, factors, transfers="resident", **rules)
        _compare(name, mode, backend.run(none), expected, tolerance)
        total(mode, backend, runs)
        _record(f"{mode}_run", [_timed_run(backend, none) for _ in range(runs)], values, spread)
        keys = {phase: f"{mode}_{phase}" for phase in ("marginalise", "scatter", "normalise")}
        _phases(backend, none, True, keys, values)
        backend.close()
    return _column(name, values, spread, schedule)


def _compare(name: str, mode: str, found: Result, expected: Result, tolerance: float) -> None:
    worst = float(np.abs(found.posterior - expected.posterior).max(initial=0.0))
    if not worst <= tolerance or not abs(found.log_evidence - expected.log_evidence) <= tolerance * 100:
        raise JtgpuError(f"{name}, {mode}: the device's answers differ from the CPU's by {worst:.3g}")


def _record(key: str, seconds: list[float], values: dict[str, float], spread: dict[str, float]) -> None:
    values[key] = median(seconds) * 1e3
    spread[key] = (max(seconds) - min(seconds)) / 2 * 1e3


def _timed_run(backend: Indexed, evidence: Evidence) -> float:
    from time import perf_counter

    start = perf_counter()
    backend.run(evidence)
    return perf_counter() - start


def _phases(
    backend: Indexed, evidence: Evidence, kernels_only: bool, keys: Mapping[str, str], values: dict[str, float]
) -> None:
    """Times of the phases: of three measured propagations, the one of median sum."""
    clocks = []
    for _ in range(3 if backend.device is not None else 1):
        clock = PhaseClock(kernels_only)
        backend.propagate(evidence, clock)
        clocks.append(clock.seconds)
    clocks.sort(key=lambda seconds: sum(seconds.values()))
    for phase, key in keys.items():
        values[key] = clocks[len(clocks) // 2].get(phase, 0.0) * 1e3


def _tree(plan: Plan) -> dict[str, float]:
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


_RATIOS = {
    "speedup": ("cpu", "gpu"),
    "kernels_marginalise_speedup": ("cpu_marginalise", "kernels_marginalise"),
    "kernels_scatter_speedup": ("cpu_scatter", "kernels_scatter"),
    "gpu_marginalise_speedup": ("cpu_marginalise", "gpu_marginalise"),
    "gpu_scatter_speedup": ("cpu_scatter", "gpu_scatter"),
}


def _column(name: str, values: dict[str, float], spread: dict[str, float], schedule: Schedule) -> Column:
    for key, (over, under) in _RATIOS.items():
        if values.get(over) and values.get(under):
            values[key] = values[over] / values[under]
    used = {s for sweep in schedule.collect for r in sweep for m in r for s in (m.source_shape, m.target_shape)}
    pairs = [(schedule.shapes[s].n, schedule.shapes[s].m) for s in sorted(used)]
    return Column(name, values, spread, pairs, [int(n) for n in schedule.clique_entries])


@dataclass(frozen=True)
class TimeTable:
    """Columns measured on one machine.

    Attributes
    ----------
    columns : list of Column
    machine : dict
        What they were measured on: device, driver, CPU, commit, date, rules.
    """

    columns: list[Column]
    machine: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: every row of every network, ours, published and the gain."""
        return {
            "machine": self.machine,
            "networks": [
                {
                    "network": c.name,
                    "values": c.values,
                    "half_range_ms": c.spread,
                    "published": dict(c.published),
                    "gain": {r.key: g for r in ROWS if r.kind == "ms" and (g := c.gain(r.key)) is not None},
                    "separators": c.separators,
                    "clique_sizes": c.clique_sizes,
                }
                for c in self.columns
            ],
        }

    def to_json(self) -> str:
        """`as_dict` as text."""
        return json.dumps(self.as_dict(), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> TimeTable:
        """The opposite of `to_json`."""
        data = json.loads(text)
        columns = [
            Column(
                n["network"],
                n["values"],
                n["half_range_ms"],
                [(int(a), int(b)) for a, b in n["separators"]],
                n["clique_sizes"],
            )
            for n in data["networks"]
        ]
        return cls(columns, data["machine"])

    def to_csv(self) -> str:
        """One line a row and network: network, group, row, unit, ours, published, gain."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["network", "group", "row", "unit", "here", "published", "times_faster"])
        for column in self.columns:
            for row in ROWS:
                if row.key not in column.values:
                    continue
                then, gain = column.published.get(AGAINST.get(row.key, row.key)), column.gain(row.key)
                writer.writerow(
                    [
                        column.name,
                        row.group,
                        row.key,
                        row.kind,
                        f"{column.values[row.key]:.6g}",
                        "" if then is None else f"{then:g}",
                        "" if gain is None or row.kind != "ms" else f"{gain:.3g}",
                    ]
                )
        return text.getvalue()

    def rows(self) -> list[list[str]]:
        """The table as text, headings first: a cell is "here (published)", and for times "x times faster"."""
        lines = [["", *(c.name for c in self.columns)]]
        shown = [row for row in ROWS if any(row.key in c.values for c in self.columns)]
        lines += [[row.label, *(_cell(row, c) for c in self.columns)] for row in shown]
        return lines

    def to_rst(self) -> str:
        """A reST list table, with the machine above it."""
        lines = [f"{key}: {value}" for key, value in self.machine.items()]
        text = "\n".join(f"| {line}" for line in lines)
        out = [
            text,
            "",
            ".. list-table:: milliseconds here (published, GTX 680), times faster",
            "   :header-rows: 1",
            "",
        ]
        for row in self.rows():
            out.append("   * - " + row[0])
            out += ["     - " + cell for cell in row[1:]]
        return "\n".join(out).replace("* - \n", "* -\n") + "\n"


def _cell(row: RowSpec, column: Column) -> str:
    now, then = column.values.get(row.key), column.published.get(AGAINST.get(row.key, row.key))
    if now is None:
        return "-"
    shown = f"{now:,.0f}" if row.kind == "count" else f"{now:.3g}"
    if row.kind == "ms" and now >= 100:
        shown = f"{now:,.0f}"
    if then is None:
        return shown
    if row.kind == "count":
        return shown if then == now else f"{shown} ({then:,.0f})"
    gain = column.gain(row.key)
    faster = "" if row.kind == "ratio" or gain is None else f" {gain:.3g}x"
    return f"{shown} ({then:,g}){faster}"
