"""The box of a variable: its name, and a bar for each state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .marks import Mark
from .svg import MARKS, mark
from .text import MAX_TITLE, clean, escaped, percent, shortened, text_width

MAX_ROWS = 8  # states that a box shows
MAX_NAME, MAX_LABEL = 170, 92  # pixels
TITLE, ROW, PAD = 24, 15, 8  # height of the title and of a row, distance to the border
BAR, NUMBER, MARK = 72, 40, 14  # widths
BAR_HEIGHT = 9
CORNER = 4


class Box(NamedTuple):
    """What the box of a variable shows."""

    name: str
    states: Sequence[str] = ()
    p: Sequence[float] | None = None  # probabilities of the states: a bar each
    prior: Sequence[float] | None = None  # a tick each
    mark: Mark | None = None
    is_target: bool = False
    hidden: tuple[int, int] = (0, 0)  # parents and children that the picture leaves out


def box_size(box: Box) -> tuple[int, int]:
    """Width and height in pixels."""
    width = text_width(shortened(box.name, MAX_NAME)) * 11 // 10 + 2 * PAD + (MARK if box.mark else 0)
    if box.p is None:
        return width + width % 2, TITLE
    inside, height = bars_size(box)
    width = max(width, inside + 2 * PAD)
    return width + width % 2, TITLE + height + PAD // 2


def bars_size(box: Box) -> tuple[int, int]:
    """Width and height of the rows of a box with probabilities."""
    rows = shown_states(box)
    label = max([text_width(shortened(box.states[i], MAX_LABEL)) for i in rows], default=0)
    n = len(rows) + (len(rows) < len(box.states))
    return (MARK if box.mark and box.mark.states else 0) + label + 6 + BAR + NUMBER, n * ROW


def shown_states(box: Box, most: int = MAX_ROWS) -> list[int]:
    """Numbers of the states that are shown: all, or the most probable ones; those of evidence first of all."""
    n = len(box.states)
    if n <= most or box.p is None:
        return [*range(n)]
    p, observed = box.p, box.mark.states if box.mark else frozenset[int]()
    ranked = sorted(range(n), key=lambda i: (i not in observed, -p[i], i))
    return sorted(ranked[: most - 1])


def draw_box(box: Box, x: int, y: int, width: int, height: int) -> str:
    """The elements of a box whose top left corner is at (x, y)."""
    parts = [f'<g transform="translate({x},{y})">', _tooltip(box)]
    if box.is_target:
        parts.append(f'<rect class="q" x="-4" y="-4" width="{width + 8}" height="{height + 8}" rx="{CORNER + 4}"/>')
    border = f"e {MARKS[box.mark.kind][2]}".rstrip() if box.mark else "n"
    parts.append(f'<rect class="{border}" width="{width}" height="{height}" rx="{CORNER}"/>')
    left = PAD
    if box.mark:
        parts.append(mark(box.mark.kind, PAD + 5, TITLE // 2))
        left += MARK
    parts.append(f'<text class="h" x="{left}" y="16">{escaped(shortened(box.name, MAX_NAME))}</text>')
    if box.p is not None:
        parts.append(draw_bars(box, PAD, TITLE, width - 2 * PAD))
    parts += _hidden(box, width, height)
    parts.append("</g>")
    return "".join(parts)


def _tooltip(box: Box) -> str:
    lines = [clean(box.name[:MAX_TITLE])]
    if box.mark:
        states = ", ".join(clean(box.states[i][:40]) for i in sorted(box.mark.states)[:8])
        lines.append(f"{box.mark.kind}{': ' if states else ''}{states}")
    if any(box.hidden):
        lines.append(f"not shown: {box.hidden[0]} parents, {box.hidden[1]} children")
    return f"<title>{escaped('; '.join(lines))}</title>" if len(lines) > 1 or _is_cut(box) else ""


def _is_cut(box: Box) -> bool:
    return shortened(box.name, MAX_NAME) != box.name


def draw_bars(box: Box, x: int, y: int, width: int) -> str:
    """A row for each shown state: its name, its bar with the prior as a tick, and its probability in percent."""
    assert box.p is not None
    rows = shown_states(box)
    left = x + width - NUMBER - BAR
    texts, track, bars, ticks, allowed = [], [], [], [], []
    states = box.mark.states if box.mark else frozenset[int]()
    label_x = x + (MARK if states else 0)
    for k, i in enumerate(rows):
        base = y + k * ROW + 11
        top = base - BAR_HEIGHT
        name = shortened(box.states[i], MAX_LABEL)
        texts.append(f'<text x="{label_x}" y="{base}">{escaped(name)}</text>' if name else "")
        texts.append(f'<text class="r" x="{x + width}" y="{base}">{escaped(percent(float(box.p[i])))}</text>')
        track.append(f"M{left} {top}h{BAR}v{BAR_HEIGHT}h-{BAR}z")
        length = round(BAR * min(max(float(box.p[i]), 0.0), 1.0), 1)
        if length > 0:
            bars.append(f"M{left} {top}h{length:g}v{BAR_HEIGHT}h-{length:g}z")
        if box.prior is not None:
            ticks.append(
                f"M{left + round(BAR * min(max(float(box.prior[i]), 0.0), 1.0), 1):g} {top - 1}v{BAR_HEIGHT + 2}"
            )
        if i in states and box.mark:
            allowed.append(mark(box.mark.kind, x + 5, top + BAR_HEIGHT // 2))
    if len(rows) < len(box.states):
        base = y + len(rows) * ROW + 11
        texts.append(f'<text class="s" x="{label_x}" y="{base}">{len(box.states) - len(rows):,} more states</text>')
    paths = (("t", track), ("f" if box.mark and states else "b", bars), ("k", ticks))
    drawn = "".join(f'<path class="{name}" d="{"".join(data)}"/>' for name, data in paths if data)
    return f"{drawn}{''.join(texts)}{''.join(allowed)}"


def _hidden(box: Box, width: int, height: int) -> list[str]:
    """Stubs of arcs to the parents and children that the picture leaves out, with their number."""
    parts = []
    parents, children = box.hidden
    if parents:  # on the left, and children on the right: boxes of a column are close to each other
        parts.append(f'<path class="x" d="M10 0V-10"/><text class="s" x="14" y="-2">+{parents}</text>')
    if children:
        parts.append(f'<path class="x" d="M{width - 10} {height}v10"/>')
        parts.append(f'<text class="s r" x="{width - 14}" y="{height + 11}">+{children}</text>')
    return parts
