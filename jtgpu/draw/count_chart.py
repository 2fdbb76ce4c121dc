"""A chart of counts: those of a table as bars, those that a network predicts as ranges."""

from __future__ import annotations

from collections.abc import Sequence

from .drawing import Drawing
from .svg import picture
from .text import escaped, shortened, text_width

PAD, ROW, TITLE = 10, 20, 24
LABEL, CHART = 340, 320  # widths
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
