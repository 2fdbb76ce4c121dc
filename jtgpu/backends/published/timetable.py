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

from .figures import AGAINST, PUBLISHED, ROWS, RowSpec


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
