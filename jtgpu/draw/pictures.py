"""`show`: a picture of a network, a compiled model or a plan. `layout`: the positions alone.

The picture of a network with decisions: rectangles for decisions, diamonds for utilities, dashed arcs for
information.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..decisions.tree import DecisionTree
from ..errors import ArgumentError, EvidenceError
from ..inference.compiled import CompiledModel
from ..inference.compiled_network import CompiledNetwork
from ..inference.evidence import EvidenceOptions, Findings, one_case, read_known
from ..inference.network_plan import NetworkPlan
from ..inference.queries.posteriors import posteriors as answer
from ..inference.results.marginals import Posteriors
from ..model.decisions import DecisionNetwork
from ..model.directed import DirectedModel
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..util.arguments import check_keywords_of, described, flag, having, several, whole_number
from ..util.text_table import counted
from .arrange import arrange
from .drawing import MAX_NAME, TITLE, Box, Drawing, DrawnGraph, box_size, draw_box, graph_of, hub, neighbourhood
from .network import LEGEND, LEGEND_TEXT, MARGIN, MAX_WIDTH, draw_junction_tree, draw_network, known_probabilities
from .svg import ARROW, MARKS, Mark, curve, escaped, mark, marks, picture, shortened, text_width

if TYPE_CHECKING:
    from typing import Unpack

MOST = 150  # variables of a picture
MOST_AUTOMATIC = 60  # of a part of a network that the user did not choose

Names = str | int | Iterable[str | int]


@dataclass(frozen=True)
class Layout:
    """Positions in pixels, integers, the origin at the top left.

    Attributes
    ----------
    nodes : tuple of str
        Names of the variables.
    boxes : tuple of (x, y, width, height)
        The box of each variable.
    arcs : tuple of (int, int)
        Positions of the parent and the child of each arc in `nodes`.
    lines : tuple of tuples of (x, y)
        For each arc, points from the bottom of its parent down to the top of its child.
    width, height : int
    """

    nodes: tuple[str, ...]
    boxes: tuple[tuple[int, int, int, int], ...]
    arcs: tuple[tuple[int, int], ...]
    lines: tuple[tuple[tuple[int, int], ...], ...]
    width: int
    height: int

    def __repr__(self) -> str:
        return f"<Layout: {len(self.nodes)} nodes, {len(self.arcs)} arcs, {self.width} x {self.height} pixels>"


@check_keywords_of()
def layout(
    model: DiscreteModel | MixedNetwork,
    nodes: Names | None = None,
    size: tuple[int, int] | Mapping[str, tuple[int, int]] | None = None,
) -> Layout:
    """Compute positions for the variables of a network, in layers with arcs downwards.

    Layers are longest paths, the order within layers has few crossings (median sweeps), and coordinates are those of
    Brandes and Koepf. The result depends on the arguments alone.

    Parameters
    ----------
    model : DiscreteModel or MixedNetwork
        The variables of a Markov network that share a factor are joined from the lower to the higher number.
    nodes : str, int or iterable of these, optional
        The variables to place. Default: all.
    size : (int, int) or mapping from name to (int, int), optional
        Width and height of the boxes in pixels. Default: room for the name.

    Raises
    ------
    UnknownVariable
        If the model has no such variable.
    ArgumentError
        If a size is not a pair of positive integers.

    Examples
    --------
    >>> import jtgpu
    >>> placed = jtgpu.draw.layout(jtgpu.load("asia"))
    >>> placed.width, placed.height, placed.boxes[0]
    (196, 226, (0, 0, 46, 24))
    """
    if isinstance(model, MixedNetwork):
        model = model.graph
    if not isinstance(model, DiscreteModel):
        raise ArgumentError(f"model must be a network, not {described(model)}")
    ids = [*range(len(model))] if nodes is None else sorted(_numbers(model, nodes))
    number = {v: i for i, v in enumerate(ids)}
    graph = graph_of(model)
    arcs = tuple((number[a], number[b]) for a, b in graph.arcs if a in number and b in number)
    made = arrange([_size(model.variables[v], size) for v in ids], arcs)
    return Layout(tuple(model.variables[v] for v in ids), made.boxes, arcs, made.lines, made.width, made.height)


def _size(name: str, given: object) -> tuple[int, int]:
    size = given.get(name) if isinstance(given, Mapping) else given
    if size is None:
        return box_size(Box(name))
    pair = several(size)
    if pair is None or len(pair) != 2:
        raise ArgumentError(
            f"size must be a pair (width, height) or a mapping from names to pairs, not {described(given)}"
        )
    return whole_number("width", pair[0], least=1), whole_number("height", pair[1], least=1)


@check_keywords_of({"Unpack[EvidenceOptions]": EvidenceOptions.__annotations__})
def show(  # noqa: PLR0913 (public API)
    model: DiscreteModel | CompiledModel | NetworkPlan | CompiledNetwork[Any] | MixedNetwork | MixedDynamicNetwork,
    evidence: Findings | None = None,
    *,
    posteriors: Posteriors | None = None,
    targets: Names | None = None,
    around: Names | None = None,
    hops: int = 2,
    most: int = MOST,
    tree: bool = False,
    **more: Unpack[EvidenceOptions],
) -> Drawing:
    """Draw a network with its posteriors and evidence, or a junction tree.

    Parameters
    ----------
    model : network of any kind, what its compile() returns, or NetworkPlan
        A network is drawn with names only, unless there is evidence. A compiled model (`jtgpu.JunctionTree`) is drawn
        with a bar for each state; with evidence, priors are ticks. A plan is drawn as its junction tree, a
        network over time as its first slices, in which every arc occurs. A number has its mean and standard deviation
        behind its name. Decisions are rectangles, utilities diamonds,
        and arcs to decisions, which are information, dashed; a compiled one is drawn with the posteriors and the
        expected utilities under the best policy.
    evidence, likelihood, soft, do : mapping, optional
        See `jtgpu.JunctionTree.posteriors`. Each kind of evidence has its own colour and shape.
    posteriors : Posteriors, optional
        Bars to draw, computed before. Default: computed here.
    targets : str, int or iterable of these, optional
        Variables to draw with a ring.
    around : str, int or iterable of these, optional
        Draw the neighbourhood of these variables only. Default: all variables; of a network with more than `most`, the
        neighbourhood of the evidence and the targets, or else of the variable with the most neighbours, up to 60
        variables.
    hops : int, default 2
        Arcs from `around` to the farthest variable.
    most : int, default 150
        Variables, or cliques, to draw.
    tree : bool
        Draw the junction tree: cliques as boxes, separators between them.

    Returns
    -------
    Drawing
        A notebook shows it; ``.svg`` is its text and ``.save(path)`` writes it to an SVG or HTML file.

    Raises
    ------
    UnknownVariable, UnknownState, EvidenceError, ImpossibleEvidence
        See `jtgpu.JunctionTree.posteriors`.
    ArgumentError
        If an option has a wrong value, or `model` is none of these objects.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.network("smoke->lung->xray; smoke->bronc", "{yes|no}")
    >>> jtgpu.draw.show(net).title
    'Bayesian network, 4 variables'
    """
    if isinstance(model, (DecisionNetwork, DecisionTree)):
        check_plain(flag("tree", tree), more)
        hops, most = whole_number("hops", hops, least=0), whole_number("most", most, least=1)
        return show_decisions(model, evidence, posteriors, _names(targets), _names(around), hops, most)
    slices = getattr(model, "network", model)
    if isinstance(slices, (DynamicNetwork, MixedDynamicNetwork)):
        model = slices.unroll(slices.order + 1)
    if isinstance(getattr(model, "network", model), MixedNetwork):
        hops, most = whole_number("hops", hops, least=0), whole_number("most", most, least=1)
        if flag("tree", tree):
            raise ArgumentError("a network with numbers has no junction tree of its own; net.discrete has one")
        return _show_values(model, evidence, posteriors, (targets, around), (hops, most), more)
    if not isinstance(model, (DiscreteModel, CompiledModel, NetworkPlan)):
        raise ArgumentError(f"show draws a network, a compiled model or a plan, not {described(model)}")
    hops, most = whole_number("hops", hops, least=0), whole_number("most", most, least=1)
    if not isinstance(model, NetworkPlan):
        evidence = one_case(model if isinstance(model, DiscreteModel) else model.model, evidence)
    if posteriors is not None:
        having("posteriors", posteriors, "log_evidence", "the result of posteriors() of a compiled network")
    observed = bool(several(evidence))
    if flag("tree", tree) or isinstance(model, NetworkPlan):
        if observed or posteriors is not None or any(more.values()):
            raise ArgumentError("a junction tree is drawn without evidence and posteriors")
        plan = model.plan if isinstance(model, CompiledModel) else model
        plan = plan.plan() if isinstance(plan, DiscreteModel) else plan
        if not plan.plan.is_planned:
            raise ArgumentError(f"there is no junction tree to draw: {plan.describe()}")
        return draw_junction_tree(plan, sorted(_numbers(plan.model, around)), hops=hops, most=most)
    if isinstance(model, DiscreteModel) and posteriors is None and (observed or any(more.values())):
        with model.compile() as compiled:
            return show(compiled, evidence, targets=targets, around=around, hops=hops, most=most, **more)
    net = model.model if isinstance(model, CompiledModel) else model
    known = read_known(net, evidence, **more)
    marked = marks(known)
    ids, note = _shown(net, (_numbers(net, targets), _numbers(net, around)), [*marked], hops, most)
    priors = None
    if isinstance(model, CompiledModel):
        posteriors = _answer(model, ids, evidence, **more) if posteriors is None else posteriors
        priors = _answer(model, ids) if marked else None
    return draw_network(
        net, ids, posteriors=posteriors, priors=priors, marks=marked, targets=_numbers(net, targets), note=note
    )


def _show_values(
    model: Any, evidence: Any, posteriors: Any, chosen: tuple[Names | None, Names | None], limits: tuple[int, int],
    more: Mapping[str, object],
) -> Drawing:  # fmt: skip
    """The picture of a network with numbers."""
    if isinstance(model, MixedNetwork) and posteriors is None and (several(evidence) or any(more.values())):
        with model.compile() as compiled:
            return _show_values(compiled, evidence, posteriors, chosen, limits, more)
    net = model if isinstance(model, MixedNetwork) else model.network
    marked = marks_of_values(net, evidence, more)
    targets, around = (_numbers(net.graph, names) for names in chosen)
    ids, note = _shown(net.graph, (targets, around), [*marked], *limits)
    priors = None
    if not isinstance(model, MixedNetwork):
        nodes = [net.variables[v] for v in ids]
        posteriors = model.posteriors(evidence, targets=nodes, **more) if posteriors is None else posteriors
        priors = model.posteriors(targets=nodes) if marked else None
    return draw_values(net, ids, posteriors, priors, marked, targets, note)


def _answer(
    model: CompiledModel, nodes: Sequence[int], evidence: Findings | None = None, **more: Unpack[EvidenceOptions]
) -> Posteriors:
    return answer(model, model.resolve(evidence, **more), nodes if len(nodes) < len(model.model) else None)


def _shown(
    model: DiscreteModel, chosen: tuple[Sequence[int], Sequence[int]], marked: Sequence[int], hops: int, most: int
) -> tuple[list[int], str]:
    """The variables to draw, and a note that says which part of the network they are."""
    targets, around = chosen
    if not around and len(model) <= most:
        return [*range(len(model))], ""
    graph = graph_of(model)
    start = [*around] or [*dict.fromkeys([*targets, *marked])] or [hub(graph)]
    nodes = neighbourhood(graph, start, hops, most if around else min(most, MOST_AUTOMATIC))
    names = ", ".join(model.variables[v][:60] for v in start[:4]) + (", ..." if len(start) > 4 else "")
    arcs = "1 arc" if hops == 1 else f"{hops} arcs"
    return nodes, f"{len(nodes):,} of {len(model):,} variables: the nearest to {names}, up to {arcs} away"


def _names(given: Names | None) -> list[str | int]:
    if given is None:
        return []
    return [given] if isinstance(given, (str, int)) else [*given]


def _numbers(model: DiscreteModel, given: Names | None) -> list[int]:
    """Numbers of the variables that an argument names, without repetitions."""
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, Iterable):
        given = [given]
    numbers = dict.fromkeys(model.index(v) for v in given)
    if not numbers:
        raise EvidenceError("expected the name of a variable, or several, not an empty collection")
    return [*numbers]


# The picture of a network that has numbers: their means and standard deviations follow their names.

def marks_of_values(net: MixedNetwork, evidence: Mapping[Any, Any] | None, more: Mapping[str, Any]) -> dict[int, Mark]:
    """The marks of all variables with evidence, by their number among all variables."""
    given = {"evidence": evidence, **more}
    by_name = {kind: {net.variables[net.index(v)]: x for v, x in (own or {}).items()} for kind, own in given.items()}
    states: dict[str, Any] = {
        kind: {v: x for v, x in own.items() if not net.is_number(v)} for kind, own in by_name.items()
    }
    marked = {net.index(net.discrete.variables[v]): m for v, m in marks(read_known(net.discrete, **states)).items()}
    for kind, own in by_name.items():
        marked |= {net.index(v): Mark("do" if kind == "do" else "observed") for v in own if net.is_number(v)}
    return marked


def draw_values(
    net: MixedNetwork, ids: Sequence[int], posteriors: Any, priors: Any, marked: Mapping[int, Mark],
    targets: Sequence[int], note: str,
) -> Drawing:  # fmt: skip
    """Draw some variables, with their posteriors if there are some."""
    values = [] if posteriors is None else [v for v in posteriors if net.is_number(v)]
    names: dict[str, str] = {}
    for v in net:
        label = _label(v, posteriors[v]) if v in values else v
        while label in names.values():  # of names that were shortened
            label += " "
        names[v] = label
    graph = DirectedModel(
        {names[v]: net.graph.states(v) for v in net}, {names[v]: [names[p] for p in net.parents(v)] for v in net},
        name=net.name,
    )  # fmt: skip
    bars, ticks = (
        None if all_of is None else {net.index(v): p for v, p in all_of.items() if not net.is_number(v)}
        for all_of in (posteriors, priors)
    )
    return draw_network(graph, ids, posteriors=bars, priors=ticks, marks=marked, targets=targets, note=note)


def _label(name: str, posterior: Any) -> str:
    value = f": {posterior.mean:.4g}, sd {posterior.sd:.3g}" if posterior.sd else f" = {posterior.mean:.4g}"
    return shortened(name, MAX_NAME - text_width(value) - 8) + value


LINE = 16  # height of a line of text in a diamond


def decision_graph(net: DecisionNetwork) -> DrawnGraph:
    """The arcs among variables and utilities, which follow the variables."""
    names = [*net.variables, *net.utilities]
    number = {v: i for i, v in enumerate(names)}
    arcs = [(number[p], v) for v, name in enumerate(names) for p in net.parents(name)]
    parents: list[list[int]] = [[] for _ in names]
    children: list[list[int]] = [[] for _ in names]
    for parent, child in arcs:
        parents[child].append(parent)
        children[parent].append(child)
    return DrawnGraph(arcs, parents, children, True)


def show_decisions(
    model: DecisionNetwork | DecisionTree, evidence: Findings | None, posteriors: Posteriors | None,
    targets: Sequence[object], around: Sequence[object], hops: int, most: int,
) -> Drawing:  # fmt: skip
    """The picture of a network, or of its posteriors and expected utilities under the best policy."""
    if isinstance(model, DecisionNetwork) and evidence:
        model = model.compile()
    net = model.network if isinstance(model, DecisionTree) else model
    names = [*net.variables, *net.utilities]
    number = {v: i for i, v in enumerate(names)}
    ringed, start = ([_numbered(net, number, v) for v in given] for given in (targets, around))
    marked = marks(read_known(net, evidence)) if evidence else {}
    expected: Mapping[str, float] = {}
    if isinstance(model, DecisionTree):
        posteriors = model.posteriors(evidence) if posteriors is None else posteriors
        expected = model.utility(evidence).by_node
    nodes, note = [*range(len(names))], ""
    if start or len(names) > most:
        graph = decision_graph(net)
        limit = most if start else min(most, MOST_AUTOMATIC)
        nodes = neighbourhood(graph, start or [*dict.fromkeys([*ringed, *marked])] or [hub(graph)], hops, limit)
        note = f"{len(nodes):,} of {len(names):,} nodes"
    return draw_decisions(net, nodes, posteriors, expected, marked, frozenset(ringed), note)


def _numbered(net: DecisionNetwork, number: Mapping[str, int], v: Any) -> int:
    return number[v] if v in net.utilities else net.index(v)


def draw_decisions(
    net: DecisionNetwork, nodes: Sequence[int], posteriors: Posteriors | None = None,
    expected: Mapping[str, float] | None = None, marked: Mapping[int, Mark] | None = None,
    targets: frozenset[int] = frozenset(), note: str = "",
) -> Drawing:  # fmt: skip
    """Draw some nodes, with their arcs."""
    # nodes: sequence of int: Variables by number, then utilities
    # expected: mapping from utility to float: Written in its diamond
    names, graph, marked = [*net.variables, *net.utilities], decision_graph(net), marked or {}
    number, decided = {v: i for i, v in enumerate(nodes)}, {net.index(d) for d in net.decisions}
    shapes: list[Box | _Diamond] = []
    for v in nodes:
        if v >= len(net.variables):
            shapes.append(_Diamond(names[v], None if not expected else expected[names[v]], v in targets))
            continue
        hidden = (sum(u not in number for u in graph.parents[v]), sum(u not in number for u in graph.children[v]))
        p = known_probabilities(posteriors, v)
        mine = marked.get(v)
        shapes.append(Box(names[v], net.states(names[v]), p, None, mine, v in targets, hidden, v in decided))
    arcs = [(number[a], number[b]) for a, b in graph.arcs if a in number and b in number]
    sizes = [shape.size() if isinstance(shape, _Diamond) else box_size(shape) for shape in shapes]
    made = arrange(sizes, arcs, MAX_WIDTH)
    lines: dict[str, list[str]] = {"a": [], "a d": []}
    heads = []
    for (_, child), line in zip(arcs, made.lines, strict=True):
        x, y = line[-1]
        lines["a d" if nodes[child] in decided else "a"].append(curve(line, ARROW - 1))
        heads.append(f"M{x} {y}l-4-{ARROW}h8z")
    body = [f'<path class="{name}" d="{"".join(data)}"/>' for name, data in lines.items() if data]
    body += [f'<path class="y" d="{"".join(heads)}"/>'] if heads else []
    for shape, (x, y, w, h) in zip(shapes, made.boxes, strict=True):
        body.append(shape.draw(x, y, w, h) if isinstance(shape, _Diamond) else draw_box(shape, x, y, w, h))
    shown = [f'<g transform="translate({MARGIN},{MARGIN})">', *body, "</g>"]
    width, y = made.width, made.height + 2 * MARGIN
    for text, w in _legend([m.kind for v, m in marked.items() if v in number], note):
        shown.append(f'<g transform="translate({MARGIN},{y})">{text}</g>')
        width, y = max(width, w), y + LEGEND
    width, y = width + 2 * MARGIN, y + MARGIN // 2
    title = _title(net, posteriors is not None)
    return Drawing(picture(shown, width, y, title), width, y, title)


def _title(net: DecisionNetwork, with_posteriors: bool) -> str:
    name = f" {shortened(net.name, 200)}" if net.name else ""
    n = len(net.utilities)
    parts = [counted(len(net), "variable"), counted(len(net.decisions), "decision")]
    parts.append(f"{n} {'utility' if n == 1 else 'utilities'}")
    return f"Decision network{name}, {', '.join(parts)}{' with posteriors' if with_posteriors else ''}"


class _Diamond:
    """A utility: its name, and its expectation."""

    def __init__(self, name: str, expected: float | None, is_target: bool):
        self.lines = [shortened(name, MAX_NAME), *([] if expected is None else [f"{expected:.6g}"])]
        self.name, self.is_target = name, is_target

    def size(self) -> tuple[int, int]:
        """Width and height of the diamond around its lines."""
        inside, height = max(map(text_width, self.lines)) * 11 // 10, LINE * len(self.lines)
        total = 3 * height if len(self.lines) == 1 else 5 * height // 2
        width = inside * total // (total - height) + 12
        return width + width % 2, max(total, TITLE)

    def draw(self, x: int, y: int, w: int, h: int) -> str:
        """The elements of the diamond in a box."""
        cut = self.lines[0] != self.name
        parts = [f'<g transform="translate({x},{y})">']
        parts.append(f"<title>{escaped(self.name[:200])}</title>" if cut else "")
        if self.is_target:
            parts.append(f'<path class="q" d="M{w // 2} -6L{w + 8} {h // 2}L{w // 2} {h + 6}L-8 {h // 2}z"/>')
        parts.append(f'<path class="u" d="M{w // 2} 0L{w} {h // 2}L{w // 2} {h}L0 {h // 2}z"/>')
        first = h // 2 - LINE * len(self.lines) // 2 + 12
        for i, text in enumerate(self.lines):
            kind = "m" if i else "h m"
            parts.append(f'<text class="{kind}" x="{w // 2}" y="{first + LINE * i}">{escaped(text)}</text>')
        return "".join([*parts, "</g>"])


def _legend(kinds: Sequence[str], note: str) -> Iterator[tuple[str, int]]:
    """Lines of the legend with their widths."""
    entries = [
        ('<rect class="c" x="0" y="3" width="11" height="11"/>', "decision"),
        ('<path class="u" d="M6 2L12 8L6 14L0 8z"/>', "utility"),
        ('<path class="a d" d="M0 8h12"/>', "known when deciding"),
        *((mark(kind, 5, 8), LEGEND_TEXT[kind]) for kind in MARKS if kind in kinds),
    ]
    parts, x = [], 0
    for shape, text in entries:
        parts.append(f'<g transform="translate({x},0)">{shape}<text x="17" y="12">{text}</text></g>')
        x += 17 + text_width(text) + 20
    yield "".join(parts), x
    if note:
        yield f'<text class="s" y="12">{escaped(note)}</text>', text_width(note)


def check_plain(tree: bool, more: Mapping[str, object]) -> None:
    """Raise `ArgumentError` for options of `show` that decisions do not have."""
    if tree:
        raise ArgumentError("a network with decisions has no junction tree of its own; net.with_policy(policy) has one")
    given = next((name for name, value in more.items() if value), None)
    if given:
        raise ArgumentError(f"a network with decisions is drawn with findings only, not with {given}=")
