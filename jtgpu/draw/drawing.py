"""`Drawing`: a picture that a notebook shows and that can be saved."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import ArgumentError
from ..formats.files import write_bytes
from ..model.directed import DirectedModel
from ..model.discrete import DiscreteModel
from ..util.arguments import check_keywords, file_path, text
from .svg import MARKS, MAX_TITLE, Mark, clean, escaped, mark, percent, shortened, text_width

# pages and files have their own background: their readers may prefer dark or light
_SCHEME = (
    "{0}{{color:#1f2328;background:#fff}}@media(prefers-color-scheme:dark){{{0}{{color:#e6edf3;background:#0d1117}}}}"
)


@check_keywords()
class Drawing:
    """A picture.

    A notebook shows it with the colour of the page's text. ``str(drawing)`` is the SVG text.

    Attributes
    ----------
    svg : str
        One ``<svg>`` element with its own style, without scripts and without references to other files. The same
        model and options give the same text.
    width, height : int
        Pixels.
    title : str
        What the picture shows, in one line.
    """

    def __init__(self, svg: str, width: int, height: int, title: str):
        self.svg, self.width, self.height, self.title = svg, width, height, title

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, dark or light as its reader prefers.

        Parameters
        ----------
        path : path-like
            The suffix selects the format: ``.svg``, or ``.html`` for a page.

        Raises
        ------
        ArgumentError
            If the file has another suffix.
        FileError
            If the file cannot be written; also an `OSError`.
        """
        name = file_path("path", path)
        write_bytes(name, self.text(Path(name).suffix).encode())

    def text(self, suffix: str = ".svg") -> str:
        """Return the text of a file; see `save`.

        Parameters
        ----------
        suffix : {".svg", ".html"}
        """
        suffix = text("suffix", suffix)
        if suffix.lower() == ".svg":
            return self._standalone()
        if suffix.lower() in (".html", ".htm"):
            return (
                '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
                f'content="width=device-width"><title>{escaped(self.title)}</title><style>body{{margin:16px}}'
                f"{_SCHEME.format('body')}</style></head><body>\n{self.svg}\n</body></html>\n"
            )
        if suffix.lower() in (".png", ".pdf"):
            raise ArgumentError(
                f"a drawing is saved as .svg or .html, not as {suffix!r}: convert the SVG, for example with cairosvg, "
                "or save the picture of the page (jtgpu serve), which is a PNG"
            )
        raise ArgumentError(f"a drawing is saved as .svg or .html, not as {suffix!r}")

    def _standalone(self) -> str:
        """The picture with a background."""
        name = self.svg.partition(' id="')[2].partition('"')[0]
        sheet = '<rect width="100%" height="100%" style="fill:var(--sheet,#fff)"/>'
        scheme = (
            f"#{name}{{color:#1f2328}}@media(prefers-color-scheme:dark){{#{name}{{color:#e6edf3;--sheet:#0d1117}}}}"
        )
        head, style, rest = self.svg.partition("<style>")
        inside, end, body = rest.partition("</style>")
        return f"{head}{style}{scheme}{inside}{end}{sheet}{body}\n"

    def _repr_html_(self) -> str:
        return f'<div style="overflow:auto;max-width:100%">{self.svg}</div>'

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Drawing({self.title!r}, {self.width} x {self.height})"


# The part of a large model that a picture shows: the neighbourhood of some variables.

class DrawnGraph(NamedTuple):
    """The arcs of a model, by number."""

    arcs: list[tuple[int, int]]  # (parent, child)
    parents: list[list[int]]
    children: list[list[int]]
    is_directed: bool

    @classmethod
    def of(cls, n: int, arcs: list[tuple[int, int]], is_directed: bool) -> DrawnGraph:
        """The graph of n variables with these arcs."""
        parents: list[list[int]] = [[] for _ in range(n)]
        children: list[list[int]] = [[] for _ in range(n)]
        for parent, child in arcs:
            parents[child].append(parent)
            children[parent].append(child)
        return cls(arcs, parents, children, is_directed)


def graph_of(model: DiscreteModel) -> DrawnGraph:
    """Return the arcs of a network, or the pairs of variables that share a factor of a Markov network."""
    is_directed = isinstance(model, DirectedModel)
    if isinstance(model, DirectedModel):
        arcs = [(model.index(p), v) for v, name in enumerate(model.variables) for p in model.parents(name)]
    else:
        pairs = {(min(a, b), max(a, b)) for f in model.factors for a in f.scope for b in f.scope if a != b}
        arcs = sorted(pairs)
    return DrawnGraph.of(len(model), arcs, is_directed)


def hub(graph: DrawnGraph) -> int:
    """The node with the most neighbours; the first one in case of a tie."""
    degree = [len(p) + len(c) for p, c in zip(graph.parents, graph.children, strict=True)]
    return degree.index(max(degree))


def neighbourhood(graph: DrawnGraph, start: Sequence[int], hops: int, most: int) -> list[int]:
    """At most `most` nodes that are up to `hops` arcs away from some nodes: the nearest ones, in ascending order."""
    near = dict.fromkeys(start[:most])
    ring: Iterable[int] = list(near)
    for _ in range(hops):
        following: dict[int, None] = {}
        for v in ring:
            following.update(dict.fromkeys(w for w in (*graph.parents[v], *graph.children[v]) if w not in near))
        for w in following:
            if len(near) >= most:
                return sorted(near)
            near[w] = None
        ring = following
    return sorted(near)


# The box of a variable: its name, and a bar for each state.

MAX_ROWS = 8  # states that a box shows
MAX_NAME, MAX_LABEL = 170, 92  # pixels
TITLE, ROW, PAD = 24, 15, 8  # height of the title and of a row, distance to the border
BAR, NUMBER, MARK = 72, 40, 14  # widths
BAR_HEIGHT = 9
CORNER = 4


class Box(NamedTuple):
    """The content of the box of a variable."""

    name: str
    states: Sequence[str] = ()
    p: Sequence[float] | None = None  # probabilities of the states: a bar each
    prior: Sequence[float] | None = None  # a tick each
    mark: Mark | None = None
    is_target: bool = False
    hidden: tuple[int, int] = (0, 0)  # parents and children that the picture leaves out
    is_decision: bool = False


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
    border = f"e {MARKS[box.mark.kind][2]}".rstrip() if box.mark else "c" if box.is_decision else "n"
    corner = "" if box.is_decision else f' rx="{CORNER}"'
    parts.append(f'<rect class="{border}" width="{width}" height="{height}"{corner}/>')
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
    says_more = len(lines) > 1 or shortened(box.name, MAX_NAME) != box.name
    return f"<title>{escaped('; '.join(lines))}</title>" if says_more else ""


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
