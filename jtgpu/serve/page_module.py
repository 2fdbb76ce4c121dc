"""The modules of the page as one: a browser sends one request for it, and a notebook takes only one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import hypot, inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from ..draw.arrange import arrange
from ..draw.drawing import graph_of
from ..draw.network import arrange_stacked
from ..draw.svg import ARROW, curve
from ..errors import ArgumentError, JtgpuError
from ..formats.number_cursor import whole_numbers
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork

# The form of ``jtgpu serve --page``: which questions a page asks, and which variables it shows the posteriors of.
#
# Who fills in a form needs no picture of the network. The file is JSON: a title, groups of questions, and targets;
# every text is optional.

MOST = 1 << 20  # bytes of a file
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors write it


class FormQuestion(Struct, forbid_unknown_fields=True, kw_only=True):
    """A variable that the reader may observe."""

    variable: str
    text: str = ""  # the question; default: the label or the name of the variable
    help: str = ""
    states: dict[str, str] = field(default_factory=dict)  # mapping of str to str: Texts in place of the names of states


class FormGroup(Struct, forbid_unknown_fields=True, kw_only=True):
    """Questions under a title."""

    title: str = ""
    text: str = ""
    questions: list[FormQuestion]


class FormTarget(Struct, forbid_unknown_fields=True, kw_only=True):
    """A variable whose posterior is shown."""

    variable: str
    text: str = ""
    states: dict[str, str] = field(default_factory=dict)
    shown: list[str] | None = None  # list of str: Names of the states that are shown, at least one. Default: all.


class FormPage(Struct, forbid_unknown_fields=True, kw_only=True):
    """A form."""

    title: str
    network: str = ""  # name of the network, as the server names it. Default: the first one.
    # text, note: Above the questions, and below the targets
    text: str = ""
    note: str = ""
    # groups, targets: A variable may be in both: until the question is answered, the target shows its posterior
    groups: list[FormGroup]
    targets: list[FormTarget]


def read_form(path: str, models: Mapping[str, DiscreteModel]) -> dict[str, Any]:
    """Read a form and check it against the networks."""
    # models: By the names of the networks
    # returns What the page reads.
    # raises ArgumentError: If the file cannot be read, has an unknown field, names what the network does not have, or
    #     has a question or a target twice.
    try:
        with open(path, "rb") as file:
            data = file.read(MOST + 1)
        if len(data) > MOST:
            raise OSError(f"more than {MOST:,} bytes")
        page = msgspec.json.decode(data.removeprefix(BYTE_ORDER_MARK), type=FormPage)
    except (OSError, ValueError, msgspec.MsgspecError) as error:  # ValueError: NUL in the path, text that is not UTF-8
        raise ArgumentError(f"page {path!r}: {getattr(error, 'strerror', None) or error}") from None
    page.network = page.network or next(iter(models))
    if page.network not in models:
        raise ArgumentError(f"page {path!r}: there is no network {page.network!r}; there is {', '.join(models)}")
    if not page.targets:
        raise ArgumentError(f"page {path!r} has no targets")
    model = models[page.network]
    questions = [question for group in page.groups for question in group.questions]
    try:
        entries: list[FormQuestion | FormTarget] = [*questions, *page.targets]
        for entry in entries:
            model.index(entry.variable)
            shown = entry.shown or [] if isinstance(entry, FormTarget) else []
            for state in (*entry.states, *shown):
                model.state_index(entry.variable, state)
    except JtgpuError as error:
        raise ArgumentError(f"page {path!r}: {error}") from None
    for doing, variables in (
        ("asks for", [question.variable for question in questions]),
        ("shows", [target.variable for target in page.targets]),
    ):
        if (twice := _repeated(variables)) is not None:
            raise ArgumentError(f"page {path!r} {doing} {twice!r} twice")
    for target in page.targets:
        if target.shown == []:
            raise ArgumentError(f"page {path!r} shows no state of {target.variable!r}; without 'shown', all are")
    form: dict[str, Any] = msgspec.to_builtins(page)
    return form


def _repeated(names: Iterable[str]) -> str | None:
    """The first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


# The folder of the page.

FOLDER = Path(__file__).resolve().parent / "page"


_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=class|function|const|async)", re.MULTILINE)


@lru_cache
def page_module(entry: str = "widget.js") -> str:
    """The modules of the page as one module: imports are dropped, and what a module needs stands before it.

    The modules import names without renaming and have distinct names at their top level, which a test checks.
    """
    order: dict[str, str] = {}

    def add(name: str) -> None:
        if name in order:
            return
        text = (FOLDER / name).read_text(encoding="utf-8")
        order[name] = ""  # circular imports are an error of the page
        for needed in _IMPORT.findall(text):
            add(needed)
        del order[name]
        order[name] = _IMPORT.sub("", text)

    add(entry)
    *before, last = order.values()
    return "\n".join([*(_EXPORT.sub("", text) for text in before), last])


def page_style() -> str:
    """The style of the page, which changes nothing outside of it."""
    return (FOLDER / "page.css").read_text(encoding="utf-8")


# The map of a network whose file gives the position of each variable.

GAP = 20  # pixels between boxes
MAX_SIDE = 6000  # pixels of a map

Box = tuple[int, int, int, int]  # x, y, width, height


def positions(model: DiscreteModel) -> list[list[int] | None]:
    """Positions that the file gives, y downwards; None for variables without one."""
    if not isinstance(model, BayesianNetwork):
        return [None] * len(model)
    attributes = model.attributes.get("node", {})
    given = [whole_numbers(attributes.get(v, {}).get("position"), 2) for v in model.variables]
    places = [[*p] if p else None for p in given]
    graph = graph_of(model)
    # y grows upwards in some formats and programs, and downwards in others: most arcs point down
    down = 0
    for a, b in graph.arcs:
        first, second = places[a], places[b]
        if first is not None and second is not None:
            down += (second[1] > first[1]) - (second[1] < first[1])
    return places if down >= 0 else [None if p is None else [p[0], -p[1]] for p in places]


def placed_boxes(model: DiscreteModel, sizes: Sequence[tuple[int, int]]) -> list[Box] | None:
    """Boxes at the positions of the file; None where a position is missing or boxes overlap at any sensible scale."""
    places = [p for p in positions(model) if p is not None]
    if len(places) < len(model) or not places:
        return None
    left, top = min(x for x, _ in places), min(y for _, y in places)
    scale = 0.0
    for i, (x, y) in enumerate(places):
        for j in range(i):
            across, down = abs(x - places[j][0]), abs(y - places[j][1])
            width, height = ((sizes[i][k] + sizes[j][k]) // 2 + GAP for k in (0, 1))
            # boxes are apart if they are so in one direction
            scale = max(scale, min(width / across if across else inf, height / down if down else inf))
    if scale == inf:
        return None
    scale = scale or 1.0
    centres = [(round((x - left) * scale), round((y - top) * scale)) for x, y in places]
    if max(max(x, y) for x, y in centres) > MAX_SIDE:
        return None
    least = min(y - h // 2 for (_, y), (_, h) in zip(centres, sizes, strict=True))
    return [(x, y - h // 2 - least, w, h) for (x, y), (w, h) in zip(centres, sizes, strict=True)]


def straight_arc(parent: Box, child: Box, has_head: bool) -> tuple[str, str]:
    """Path data of a straight line between the borders of two boxes, and of its head."""
    start, end = _border(parent, child), _border(child, parent)
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max(hypot(dx, dy), 1.0)
    ux, uy = dx / length, dy / length
    if not has_head:
        return f"M{start[0]} {start[1]}L{end[0]} {end[1]}", ""
    back_x, back_y = end[0] - ARROW * ux, end[1] - ARROW * uy
    corners = [(back_x - 4 * uy, back_y + 4 * ux), (back_x + 4 * uy, back_y - 4 * ux)]
    head = "".join(f"L{x:.1f} {y:.1f}" for x, y in corners)
    return f"M{start[0]} {start[1]}L{back_x:.1f} {back_y:.1f}", f"M{end[0]} {end[1]}{head}z"


def _border(box: Box, other: Box) -> tuple[int, int]:
    """Where the line between the centres of two boxes leaves the first one."""
    x, y, w, h = box
    cx, cy = x + w / 2, y + h / 2
    dx, dy = other[0] + other[2] / 2 - cx, other[1] + other[3] / 2 - cy
    t = min(w / 2 / abs(dx) if dx else 1.0, h / 2 / abs(dy) if dy else 1.0)
    return round(cx + t * dx), round(cy + t * dy)


# Positions of the boxes and arcs of the page's map, and of the dots of its overview.

MAX_NODES = 400  # boxes of a map
MAX_OVERVIEW = 5000  # dots
# pixels; page/map.js has the same numbers
WIDTH, TITLE, ROW, BOTTOM = 168, 26, 20, 6
MAX_ROWS = 8  # states of a box; the last row counts those that are left out
MAX_WIDTH = 1900  # of a layer


def box_size(n_states: int) -> tuple[int, int]:
    """Width and height of the box of a variable."""
    return WIDTH, TITLE + ROW * min(n_states, MAX_ROWS) + BOTTOM


def map_layout(model: DiscreteModel, nodes: Sequence[int] | None = None) -> dict[str, Any]:
    """Place the boxes of some variables in layers, arcs downwards.

    A whole network whose file gives the position of each variable has these positions, at the smallest scale at which
    no boxes overlap.
    """
    # nodes: sequence of int: Numbers of the variables. Default: all.
    # returns ``nodes``, their numbers, ascending; ``boxes``, [x, y, width, height] of each; ``arcs``, [parent, child,
    #     path data of the line, path data of its head] by numbers of variables; ``spines``, [parent, path data] of the
    #     lines between a parent and columns of its children, and ``heads``, path data of their arrow heads; ``hidden``,
    #     [parents, children] of each node that are not among the nodes; ``width``, ``height``. Integers in pixels.
    # raises ArgumentError: If the model has no such variable, or there are more than 400.
    ids = sorted(set(range(len(model)) if nodes is None else nodes))
    if ids and not 0 <= ids[0] <= ids[-1] < len(model):
        raise ArgumentError(f"nodes must be numbers of variables, 0 to {len(model) - 1}")
    if len(ids) > MAX_NODES:
        raise ArgumentError(f"a map has at most {MAX_NODES} variables, not {len(ids):,}")
    graph = graph_of(model)
    number = {v: i for i, v in enumerate(ids)}
    inside = [(number[a], number[b]) for a, b in graph.arcs if a in number and b in number]
    sizes = [box_size(len(model.states(v))) for v in ids]
    hidden = [[sum(u not in number for u in side[v]) for side in (graph.parents, graph.children)] for v in ids]
    placed = placed_boxes(model, sizes) if len(ids) == len(model) else None
    if placed is not None:
        return {
            "nodes": ids,
            "boxes": [list(box) for box in placed],
            "arcs": [[a, b, *straight_arc(placed[a], placed[b], graph.is_directed)] for a, b in inside],
            "spines": [], "heads": "", "hidden": hidden,
            "width": max((x + w for x, _, w, _ in placed), default=0),
            "height": max((y + h for _, y, _, h in placed), default=0),
        }  # fmt: skip
    drawn = arrange_stacked(sizes, inside, MAX_WIDTH)
    arcs, spines = [], []
    columns = iter(drawn.spines)
    for (parent, child), line in zip(drawn.arcs, drawn.made.lines, strict=True):
        x, y = line[-1]
        if child < 0:
            spines.append([ids[parent], curve(line) + next(columns)])
        else:
            head = f"M{x} {y}l-4-{ARROW}h8z" if graph.is_directed else ""
            arcs.append([ids[parent], ids[child], curve(line, ARROW - 1 if head else 0), head])
    return {
        "nodes": ids, "boxes": [list(box) for box in drawn.made.boxes], "arcs": arcs, "spines": spines,
        "heads": "".join(drawn.heads) if graph.is_directed else "", "hidden": hidden, "width": drawn.made.width,
        "height": drawn.made.height,
    }


def overview(model: DiscreteModel) -> dict[str, Any]:
    """Place a dot for each variable."""
    # returns ``x`` and ``y``, per mille of the width and the height, in the order of the variables; empty if there are
    #     more than 5,000.
    n = len(model)
    if n > MAX_OVERVIEW:
        return {"x": [], "y": []}
    whole = arrange([(8, 8)] * n, graph_of(model).arcs)
    across, down = max(whole.width, 1), max(whole.height, 1)
    return {
        "x": [1000 * (x + 4) // across for x, _, _, _ in whole.boxes],
        "y": [1000 * (y + 4) // down for _, y, _, _ in whole.boxes],
    }
