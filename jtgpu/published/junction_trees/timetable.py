"""The published table of times next to the same measurements on this machine, as JSON, CSV and reST.

Times are in milliseconds, as published; the published figures are of a Core i7-3770 and a GTX 680 in double precision.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...device.context import Device, Launch
from .host import Clock

# Times of one message's phase on a device, by events.

class NoTimer:
    """Replaces a `PhaseTimer` if nothing is measured."""

    def kernels(self) -> None:
        """Copies to the device are queued; kernels follow."""

    def done(self) -> None:
        """The phase's kernels are queued; normalisation or copies back follow."""

    def back(self) -> None:
        """Normalisation is queued; copies back follow."""

    def end(self) -> None:
        """Everything is queued."""


class PhaseTimer(NoTimer):
    """Measures one message's phase with device events and reports it to a clock.

    Without transfers, a kernel that occupies the stream lets the host queue all kernels before the first one starts.
    """
    # hold: Occupies the stream

    def __init__(self, device: Device, stream: Any, clock: Clock, phase: str, hold: Launch):
        self.device, self.stream, self.clock, self.phase, self.hold = device, stream, clock, phase, hold
        self.events: list[Any] = []
        stream.synchronize()
        self._record()

    def _record(self) -> None:
        event = self.device.event(timing=True)
        event.record(self.stream)
        self.events.append(event)

    def kernels(self) -> None:
        if self.clock.kernels_only:
            self.device.launch(self.hold, self.stream)
        self._record()

    def done(self) -> None:
        self._record()

    def back(self) -> None:
        self._record()

    def end(self) -> None:
        """See `NoTimer`; waits, and reports to the clock."""
        self._record()
        self.events[-1].synchronize()
        first, begin, done, *rest, last = self.events
        kernels = done.time_since(begin) * 1e-3
        if rest:
            self.clock.add("normalise", rest[0].time_since(done) * 1e-3)
        back = last.time_since(rest[0] if rest else done) * 1e-3
        there = begin.time_since(first) * 1e-3
        self.clock.add(self.phase, kernels if self.clock.kernels_only else there + kernels + back)


# The rows of the published table of times, and the figures of 2014.

@dataclass(frozen=True)
class RowSpec:
    """A row of the table."""

    key: str  # key in `Column.values` and `PUBLISHED`
    label: str
    group: str  # {"tree", "total", "cpu", "gpu, without transfers", "gpu, with transfers", "resident", "tuned"}
    kind: str  # {"count", "ms", "ratio"}


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
PUBLISHED_ROWS = (
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
    name: dict(zip(PUBLISHED_ROWS, values, strict=True)) for name, values in _PUBLISHED_COLUMNS.items()
}
# Our rows that are compared with a published row of another name: resident tables have no transfers.
AGAINST = {
    "resident": "gpu", "resident_run": "gpu", "resident_marginalise": "kernels_marginalise",
    "resident_scatter": "kernels_scatter", "tuned": "gpu", "tuned_run": "gpu",
    "tuned_marginalise": "kernels_marginalise", "tuned_scatter": "kernels_scatter",
}  # fmt: skip
# Rows that are the ratio of two others.
RATIOS = {
    "speedup": ("cpu", "gpu"),
    "kernels_marginalise_speedup": ("cpu_marginalise", "kernels_marginalise"),
    "kernels_scatter_speedup": ("cpu_scatter", "kernels_scatter"),
    "gpu_marginalise_speedup": ("cpu_marginalise", "gpu_marginalise"),
    "gpu_scatter_speedup": ("cpu_scatter", "gpu_scatter"),
}


@dataclass(frozen=True)
class Column:
    """One network."""

    name: str
    values: dict[str, float]  # measured values by row key; rows that were not measured are absent
    spread: dict[str, float]  # half the range of the repeated runs of each total, in ms
    # list of (n, m): Every index table: configurations of the separator, entries of the clique for each of them
    separators: list[tuple[int, int]]
    clique_sizes: list[int]

    @property
    def published(self) -> Mapping[str, float]:
        """The published column of this network; empty if it is not one of the seven."""
        return PUBLISHED.get(self.name.casefold(), {})

    def gain(self, key: str) -> float | None:
        """How many times faster than the published figure a time is; None without such a figure."""
        then, now = self.published.get(AGAINST.get(key, key)), self.values.get(key)
        return None if then is None or not now else then / now


@dataclass(frozen=True)
class TimeTable:
    """Columns measured on one machine."""

    columns: list[Column]
    machine: dict[str, Any] = field(default_factory=dict)  # device, driver, CPU, commit, date, rules

    def as_dict(self) -> dict[str, Any]:
        """Plain data: every row of every network, measured, published and the gain."""
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
        """The inverse of `to_json`."""
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
        """One line per row and network: network, group, row, unit, measured, published, gain."""
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
        """The table as text, header first: a cell is "here (published)", for times followed by "x times faster"."""
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
