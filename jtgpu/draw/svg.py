"""SVG text: the frame of a picture with its style, and the shapes that mark evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from .text import escaped

FONT = "font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
# text and lines have the colour of the page's text; bars and marks have colours that are visible on light and dark
STYLE = {
    "text": "fill:currentColor;stroke:none",
    ".h": "font-weight:600",
    ".r": "text-anchor:end",
    ".m": "text-anchor:middle",
    ".s": "font-size:11px;fill-opacity:.75",
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
