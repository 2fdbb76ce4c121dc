"""Tables as HTML, as much of them as fits a page."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from ..util.text_table import format_cell, shown_rows
from .text import MAX_TITLE, escaped

MAX_COLUMNS = 24
STYLE = {
    "table": "border-collapse:collapse;font-size:13px;margin:4px 0",
    "td,th": "padding:2px 10px;text-align:left;border:0;border-bottom:1px solid rgba(128,128,128,.3);background:none;"
    "color:inherit;unicode-bidi:isolate",
    ".r": "text-align:right;font-variant-numeric:tabular-nums",
    "th": "font-weight:600",
    "i": "display:inline-block;height:9px;margin-right:6px;background:#4a90d9",
}
BAR = 60  # pixels


def html_table(
    title: str, names: Sequence[str], columns: Sequence[Any], *, fixed: int = 0, bars: int | None = None
) -> str:
    """Format columns of cells as an HTML table."""
    # title: A line above the table
    # names: sequence of str: Headers of the columns; if all are empty, there is no line of headers
    # columns: sequence of sequences: Cells of each column. Only cells that are shown are read.
    # fixed: Number of leading columns that are always shown
    # bars: A column of numbers that are drawn as bars, too
    n = len(columns[0]) if columns else 0
    rows = shown_rows(n)
    shown = _columns(len(columns), fixed)
    gap = len(rows) // 2 if len(rows) < n else None
    cells = [_cells(columns[j], rows, j == bars) for j in shown if j is not None]
    pairs = iter(cells)
    blocks = [["<td>\u2026</td>"] * len(rows) if j is None else next(pairs) for j in shown]
    lines = []
    if any(names):
        heads = ["\u2026" if j is None else escaped(names[j][:MAX_TITLE]) for j in shown]
        lines.append("<tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>")
    for i in range(len(rows)):
        if i == gap:
            lines.append("<tr>" + "<td>\u2026</td>" * len(shown) + "</tr>")
        lines.append("<tr>" + "".join(block[i] for block in blocks) + "</tr>")
    if gap is not None or None in shown:
        lines.append(f'<tr><td colspan="{len(shown)}">{n:,} rows, {len(columns) - fixed:,} columns</td></tr>')
    body = f"<div>{escaped(title)}</div><table>{''.join(lines)}</table>"
    name = f"jtgpu-{blake2b(body.encode(), digest_size=6).hexdigest()}"
    style = "".join(
        "".join(f"#{name} {part}," for part in selector.split(",")).rstrip(",") + f"{{{rules}}}"
        for selector, rules in STYLE.items()
    )
    return f'<div id="{name}" style="overflow:auto;max-width:100%"><style>{style}</style>{body}</div>'


def _columns(n: int, fixed: int) -> list[int | None]:
    """Numbers of the columns that are shown; None where columns are left out."""
    if n <= fixed + MAX_COLUMNS:
        return [*range(n)]
    half = MAX_COLUMNS // 2
    return [*range(fixed + half), None, *range(n - half, n)]


def _cells(column: Any, rows: Sequence[int], bars: bool) -> list[str]:
    values = [column[i] for i in rows]
    numbers = [v for v in values if isinstance(v, (int, float, np.number)) and np.isfinite(v)]
    largest = max([abs(float(v)) for v in numbers], default=0.0)
    found = []
    for value in values:
        text = escaped(format_cell(value))
        if not isinstance(value, (int, float, np.number)):
            found.append(f"<td>{text}</td>")
            continue
        bar = ""
        if bars and largest > 0 and np.isfinite(value):
            bar = f'<i style="width:{round(BAR * abs(float(value)) / largest)}px"></i>'
        found.append(f'<td class="r">{bar}{text}</td>')
    return found
