"""Charts: the bars of one posterior, and a tornado diagram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..inference.results.marginals import Posterior
from .drawing import Box, Drawing, bars_size, draw_bars
from .svg import escaped, picture, shortened, text_width

if TYPE_CHECKING:
    from ..inference.results.sensitivities import Sensitivity

PAD, ROW, TITLE = 10, 20, 24
LABEL, CHART = 340, 320  # widths
CURVE = 140  # height
MAX_POINTS = 1000  # of a curve


def draw_posterior(posterior: Posterior) -> Drawing:
    """Draw a bar for each state, or for the most probable ones."""
    box = Box(posterior.variable, posterior.states, posterior.probabilities.tolist())
    name = shortened(posterior.variable, LABEL)
    inside, height = bars_size(box)
    width = max(inside, text_width(name) * 11 // 10) + 2 * PAD
    body = [
        f'<text class="h" x="{PAD}" y="16">{escaped(name)}</text>',
        draw_bars(box, PAD, TITLE, inside),
    ]
    height += TITLE + PAD // 2
    title = f"P({posterior.variable[:200]})"
    return Drawing(picture(body, width, height, title), width, height, title)


def draw_tornado(sensitivity: Sensitivity, n: int = 10, spread: float = 0.1) -> Drawing:
    """Draw the parameters that change a probability most; see `jtgpu.inference.results.sensitivities.Sensitivity`."""
    # sensitivity: Result of ``tree.sensitivity(...)``
    # n: Number of parameters
    # spread: Each parameter changes from (1 - spread) to (1 + spread) times its value. Blue is the effect of the lower
    #     end, green that of the higher one.
    bars = [bar for bar in sensitivity.tornado(n, spread) if math.isfinite(bar.at_low) and math.isfinite(bar.at_high)]
    p = sensitivity.probability
    ends = [p, *(end for bar in bars for end in (bar.at_low, bar.at_high))]
    low, high = min(ends), max(ends)
    scale = CHART / (high - low) if high > low else 0.0
    labels = [shortened(str(bar.parameter), LABEL) for bar in bars]
    left = PAD + max(map(text_width, labels), default=0) + PAD

    def x(value: float) -> float:
        return round(left + (value - low) * scale, 1)

    what = f"P({sensitivity.target[0]} = {sensitivity.target[1]})"
    change = f"{100 * spread:g} %"
    title = f"{shortened(what, LABEL)} = {p:.6g}; parameters lowered (blue) and raised (green) by {change}"
    body = [f'<text class="h" x="{PAD}" y="16">{escaped(title)}</text>']
    for i, (bar, label) in enumerate(zip(bars, labels, strict=True)):
        y = TITLE + i * ROW
        body.append(f'<text class="r" x="{left - PAD}" y="{y + 14}">{escaped(label)}</text>')
        for name, end in (("b", bar.at_low), ("v", bar.at_high)):
            start, length = min(x(p), x(end)), abs(x(end) - x(p))
            body.append(f'<rect class="{name}" x="{start:g}" y="{y + 3}" width="{length:.1f}" height="14"/>')
        body.append(
            f'<text class="s" x="{left + CHART + PAD}" y="{y + 14}">{bar.at_low:.6g} to {bar.at_high:.6g}</text>'
        )
    bottom = TITLE + len(bars) * ROW
    body.append(f'<path class="k" d="M{x(p):g} {TITLE}V{bottom}"/>')
    body.append(f'<text class="s" x="{left}" y="{bottom + 16}">{low:.6g}</text>')
    body.append(f'<text class="s r" x="{left + CHART}" y="{bottom + 16}">{high:.6g}</text>')
    width, height = max(left + CHART + 160, text_width(title) * 11 // 10 + 2 * PAD), bottom + 24
    return Drawing(picture(body, width, height, title), width, height, title)


def draw_curve(values: Sequence[float], title: str, axis: str) -> Drawing | None:
    """Draw a quantity over the steps of an iteration as a line; values that are not finite are left out."""
    # values: sequence of float: One for each step
    # axis: Name of the steps
    # returns None if fewer than two values are finite.
    points = [(i, v) for i, v in enumerate(values, 1) if math.isfinite(v)]
    if len(points) < 2:
        return None
    stride = -(-len(points) // MAX_POINTS)
    points = [*points[:-1:stride], points[-1]]
    low, high = min(v for _, v in points), max(v for _, v in points)
    scale = CURVE / (high - low) if high > low else 0.0
    labels = [f"{high:.6g}", f"{low:.6g}"]
    left = PAD + max(map(text_width, labels)) + PAD
    first, last = points[0][0], points[-1][0]
    line = " ".join(
        f"{left + (i - first) * CHART / (last - first):.1f},{TITLE + 6 + (high - v) * scale:.1f}" for i, v in points
    )
    bottom = TITLE + 6 + CURVE
    name = shortened(title, 2 * LABEL)
    body = [
        f'<text class="h" x="{PAD}" y="16">{escaped(name)}</text>',
        f'<text class="s r" x="{left - PAD}" y="{TITLE + 10}">{labels[0]}</text>',
        f'<text class="s r" x="{left - PAD}" y="{bottom + 4}">{labels[1]}</text>',
        f'<path class="a" d="M{left} {TITLE}V{bottom + 6}H{left + CHART}"/>',
        f'<path class="l" d="M{line}"/>',
        f'<text class="s" x="{left}" y="{bottom + 22}">{escaped(axis)} {first}</text>',
        f'<text class="s r" x="{left + CHART}" y="{bottom + 22}">{last}</text>',
    ]
    width, height = max(left + CHART, text_width(name) * 11 // 10) + 2 * PAD, bottom + 32
    return Drawing(picture(body, width, height, title), width, height, title)


# A chart of counts: those of a table as bars, those that a network predicts as ranges.

MAX_ROWS = 40
WIDE = 2.0  # standard deviations of a range


def draw_counts(
    labels: Sequence[str], counts: tuple[Sequence[float], Sequence[float], Sequence[float]], title: str
) -> Drawing:
    """Draw observed counts as bars and predicted ones as ranges of two standard deviations to each side."""
    # labels: sequence of str: One for each configuration
    # counts: (observed, expected, deviation)
    # returns The configurations in which the counts differ most, if there are many.
    rows = [*range(len(labels))]
    if len(rows) > MAX_ROWS:
        rows = sorted(sorted(rows, key=lambda i: -abs(counts[0][i] - counts[1][i]))[:MAX_ROWS])
    most = max((max(counts[0][i], counts[1][i] + WIDE * counts[2][i]) for i in rows), default=0.0)
    scale = CHART / most if most > 0 else 0.0
    names = [shortened(labels[i], LABEL) for i in rows]
    left = PAD + max(map(text_width, names), default=0) + PAD
    head = shortened(title, 2 * LABEL)
    body = [f'<text class="h" x="{PAD}" y="16">{escaped(head)}</text>']
    for k, (i, name) in enumerate(zip(rows, names, strict=True)):
        observed, expected, wide = counts[0][i], counts[1][i], WIDE * counts[2][i]
        y = TITLE + k * ROW
        low, high = (round(left + max(x, 0.0) * scale, 1) for x in (expected - wide, expected + wide))
        middle = round(left + expected * scale, 1)
        body.append(f'<text class="r" x="{left - PAD}" y="{y + 14}">{escaped(name)}</text>')
        body.append(f'<rect class="b" x="{left}" y="{y + 3}" width="{observed * scale:.1f}" height="14"/>')
        body.append(f'<path class="k" d="M{low:g} {y + 10}H{high:g}M{middle:g} {y + 4}V{y + 16}"/>')
        body.append(
            f'<text class="s" x="{left + CHART + PAD}" y="{y + 14}">{observed:.6g}, expected {expected:.6g}</text>'
        )
    n_left_out = len(labels) - len(rows)
    more = f"; {n_left_out:,} configurations that differ less are left out" if n_left_out else ""
    bottom = TITLE + len(rows) * ROW
    note = f"bars: observed; lines: expected, two standard deviations to each side{more}"
    body.append(f'<text class="s" x="{PAD}" y="{bottom + 16}">{escaped(note)}</text>')
    width = max(left + CHART + 200, text_width(head) * 11 // 10 + 2 * PAD, text_width(note) + 2 * PAD)
    return Drawing(picture(body, width, bottom + 26, title), width, bottom + 26, title)
