"""SVG text: the frame of a picture with its style, and the shapes that mark evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from html import escape
from typing import NamedTuple
from unicodedata import category, east_asian_width

import numpy as np

from ..inference.evidence import CaseEvidence

# Text in pictures: widths without a font, shortening, and what XML allows.

# tenths of a pixel of a wide sans-serif font (DejaVu Sans) of 12 pixels
_NARROW, _WIDE = frozenset("fijlrtI.,:;!|'`()[]{}/\\-\" "), frozenset("mwMW@%&")
MAX_TITLE = 200  # characters of a tooltip

# what XML 1.0 does not allow, line ends, and characters that change the direction of the text after them
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """A text on one line with the characters that XML allows; others become U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return _FORBIDDEN.sub(lambda match: " " if match[0] in "\t\n\r" else "\ufffd", text)


def escaped(text: str) -> str:
    """A text as the contents of an element or a quoted attribute."""
    return escape(clean(text))


def text_width(text: str) -> int:
    """Estimate the width of a text of 12 pixels height, in pixels, rounded up."""
    return -(-sum(map(_char_width, text)) // 10)


@lru_cache(4096)
def _char_width(c: str) -> int:
    if c in _NARROW:
        return 46
    if c in _WIDE:
        return 116
    if c.isascii():
        return 86 if c.isupper() else 76
    if category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 122 if east_asian_width(c) in "WF" or ord(c) > 0xFFFF else 84


@lru_cache(8192)
def shortened(text: str, width: int) -> str:
    """Cut a text to a width in pixels; a text that is cut ends in an ellipsis."""
    text = clean(text[: 2 * width])
    if 122 * len(text) <= 10 * width or text_width(text) <= width:
        return text
    left = 10 * width - 120
    for i, c in enumerate(text):
        left -= _char_width(c)
        if left < 0:
            return text[:i].rstrip() + "\u2026"
    return text


def percent(p: float) -> str:
    """A probability in percent with one decimal; only 0 and 1 appear as 0 and 100."""
    if p <= 0.0:
        return "0"
    if p >= 1.0:
        return "100"
    if p < 0.0005:
        return "<0.1"
    return ">99.9" if p >= 0.9995 else f"{100.0 * p:.1f}"


# Evidence as marks: the kind of evidence on each variable, and the states that it allows.

class Mark(NamedTuple):
    """Evidence on one variable."""

    kind: str  # a key of `jtgpu.draw.svg.MARKS`
    states: frozenset[int] = frozenset()  # numbers of the observed state, or of those that the evidence allows


def marks(known: CaseEvidence) -> dict[int, Mark]:
    """Return the marks of all variables with evidence, by number."""
    marked = {}
    for v, weights in known.case.likelihood.items():
        allowed = frozenset(np.flatnonzero(weights).tolist())
        is_set = bool((weights[weights > 0] == 1.0).all())
        marked[int(v)] = Mark("one of", allowed) if is_set else Mark("likelihood")
    for v in np.flatnonzero(known.case.state >= 0).tolist():
        marked[v] = Mark("observed", frozenset([int(known.case.state[v])]))
    marked.update({v: Mark("soft") for v in known.soft})
    for v in known.intervened:
        marked[v] = Mark("do", marked[v].states if v in marked else frozenset())
    return marked


FONT = "font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
SHEET = "var(--sheet,var(--jp-layout-color0,Canvas))"  # what is behind a picture, in a file, in a notebook, on a page
# text and lines have the colour of the page's text; bars and marks have colours that are visible on light and dark
STYLE = {
    "text": "fill:currentColor;stroke:none",
    ".h": "font-weight:600",
    ".r": "text-anchor:end",
    ".m": "text-anchor:middle",
    ".s": "font-size:11px;fill-opacity:.75",
    ".w": f"fill:{SHEET};stroke:none",
    ".p": f"fill-opacity:1;paint-order:stroke;stroke:{SHEET};stroke-width:4;stroke-linejoin:round",
    ".n": "fill:currentColor;fill-opacity:.05;stroke:currentColor;stroke-opacity:.55",
    ".a": "fill:none;stroke:currentColor;stroke-opacity:.5",
    ".x": "fill:none;stroke:currentColor;stroke-opacity:.3;stroke-dasharray:4 4",
    ".y": "fill:currentColor;fill-opacity:.6",
    ".t": "fill:currentColor;fill-opacity:.1",
    ".b": "fill:#4a90d9",
    ".l": "fill:none;stroke:#4a90d9;stroke-width:2",
    ".k": "stroke:currentColor;stroke-width:1.5;fill:none",
    ".e": "fill:#d9822b;fill-opacity:.12;stroke:#d9822b;stroke-width:2.5",
    ".d": "stroke-dasharray:7 3",
    ".o": "stroke-dasharray:2 3",
    ".z": "stroke-dasharray:10 3 2 3",
    ".f": "fill:#d9822b",
    ".g": "fill:none;stroke:#d9822b;stroke-width:2",
    ".q": "fill:none;stroke:#8e5bd0;stroke-width:2",
    ".c": "fill:#4a90d9;fill-opacity:.18;stroke:currentColor;stroke-opacity:.55",
    ".v": "fill:#5aa469",
    ".u": "fill:#5aa469;fill-opacity:.18;stroke:currentColor;stroke-opacity:.55",
}
# kind of evidence -> its shape in a square of 10 pixels around the origin, class of the shape, class of the border
MARKS = {
    "observed": ("M-4-4h8v8h-8z", "f", ""),
    "one of": ("M-4-4h8v8h-8z", "g", "d"),
    "likelihood": ("M0-5L5 4H-5z", "f", "o"),
    "soft": ("M0-5L5 0L0 5L-5 0z", "f", "o"),
    "do": ("M-5 0L-2.5-4.5h5L5 0L2.5 4.5h-5z", "f", "z"),
}
ARROW = 7  # pixels

Point = tuple[int, int]


def mark(kind: str, x: int, y: int) -> str:
    """The shape of a kind of evidence, its centre at (x, y)."""
    shape, name, _ = MARKS[kind]
    return f'<path class="{name}" transform="translate({x},{y})" d="{shape}"/>'


def curve(line: Sequence[Point], shorter: int = 0) -> str:
    """Path data of a line: vertical where x stays, else a curve with vertical ends; `shorter` pixels at its end."""
    (x, y), *rest = line
    parts = [f"M{x} {y}"]
    for i, (to_x, to_y) in enumerate(rest, 1):
        end = to_y - shorter if i == len(rest) else to_y
        if to_x == x:
            parts.append(f"V{end}")
        else:
            middle = (y + end) // 2
            parts.append(f"C{x} {middle} {to_x} {middle} {to_x} {end}")
        x, y = to_x, to_y
    return "".join(parts)


def picture(body: Iterable[str], width: int, height: int, label: str) -> str:
    """A picture as one ``<svg>`` element with its own style."""
    # body: iterable of str: The elements. Their text must be escaped.
    # label: Description for screen readers
    inside = "".join(body)
    name = f"jtgpu-{blake2b(f'{width} {height} {inside}'.encode(), digest_size=6).hexdigest()}"
    style = "".join(f"#{name} {selector}{{{rules}}}" for selector, rules in STYLE.items() if _is_used(selector, inside))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" role="img" aria-label="{escaped(label)}" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}"><style>#{name}{{{FONT}}}{style}</style>{inside}</svg>'
    )


def _is_used(selector: str, inside: str) -> bool:
    name = selector[1:]
    if selector[0] != ".":
        return True
    return f'"{name}"' in inside or f'"{name} ' in inside or f' {name}"' in inside or f" {name} " in inside
