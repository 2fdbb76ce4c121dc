"""Sizes of the boxes of the page's map: as wide as the names and the states of their variables need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..draw.svg import clean, text_width


class BoxStyle(NamedTuple):
    """Measures of boxes, in pixels."""

    rows: float  # size of the rows with bars, as a share of the page's font
    most_rows: int  # states of a box; the last row counts those that are left out
    widths: tuple[int, int]  # least and most
    one_line: int  # width above which a name of several words is broken into two lines


FULL = BoxStyle(1.0, 8, (104, 190), 150)
COMPACT = BoxStyle(0.5, 5, (76, 148), 116)  # rows are to be read when the map is enlarged
SMALL = BoxStyle(0.3, 3, (48, 148), 116)  # names, and bars that show the most probable of few states
TIGHT = (8, 16)  # pixels between small boxes
LINE, PAD, ROW, MARK = 15, 8, 18, 12  # height of a line of the title, distance to the border, height of a row
BAR, NUMBER, LABEL = 46, 42, 84  # widths of a bar and of its number, most of the name of a state
SEPARATORS = "_-. /:"


def title_lines(name: str, style: BoxStyle, others: Sequence[str] = ()) -> list[str]:
    """A name in one or two lines, broken where a word ends; of a longer one, a beginning that others share is cut."""
    # others: Names on the same map
    width, most = (w - 2 * PAD - MARK for w in (style.one_line, style.widths[1]))
    lines = _broken(name, width, most)
    if _wider(lines, most):
        shared = [n for n in _word_ends(name) if n > 2 and sum(o[:n] == name[:n] for o in others) > 1]
        shorter = [_broken(f"\u2026{name[n:]}", width, most) for n in shared]
        lines = next((each for each in shorter if not _wider(each, most)), shorter[-1] if shorter else lines)
    return lines


def _wider(lines: Sequence[str], width: int) -> bool:
    return max(map(_bold_width, lines)) > width


def _broken(name: str, width: int, most: int) -> list[str]:
    """A name in one line if it fits a width, in two if it has several words or does not fit the larger width."""
    ends = _word_ends(name)
    if len(name) < 2 or _bold_width(name) <= (width if ends else most):
        return [name]
    at = min(ends or [len(name) // 2], key=lambda n: (max(_bold_width(name[:n]), _bold_width(name[n:])), n))
    return [name[:at].strip(), name[at:].strip()]


def _word_ends(name: str) -> list[int]:
    """Places at which a name may be broken: after separators, and before a capital or a digit that begins a word."""
    return [
        n for n in range(1, len(name))
        if (name[n - 1] in SEPARATORS and name[n] not in SEPARATORS)
        or (name[n - 1].islower() and (name[n].isupper() or name[n].isdigit()))
    ]  # fmt: skip


def _bold_width(text: str) -> int:
    return text_width(text[:200]) * 11 // 10


def box_size(style: BoxStyle, lines: Sequence[str], states: Sequence[str]) -> tuple[int, int]:
    """Width and height of the box of a variable."""
    label = min(max((text_width(clean(s[:60])) for s in states), default=0), LABEL)
    inside = math.ceil((label + 5 + BAR + NUMBER) * style.rows)
    least, most = style.widths
    width = min(max(least, inside + 2 * PAD, max(map(_bold_width, lines)) + 2 * PAD + MARK), most)
    rows = min(len(states), style.most_rows)
    return width + width % 2, LINE * len(lines) + PAD + math.ceil(rows * ROW * style.rows) + PAD // 2


def curve_size(name: str) -> tuple[int, int]:
    """Width and height of the box of a number: its name, and a curve of its density."""
    return min(max(132, _bold_width(clean(name)) + 2 * PAD + MARK), 190), LINE + PAD + 62


def diamond_size(name: str) -> tuple[int, int]:
    """Width and height of the diamond of a utility: its name fits between the sides."""
    return min(max(96, 2 * (_bold_width(clean(name)) // 2) + 44), 220), 54
