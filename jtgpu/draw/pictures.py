"""`show`: a picture of a network, a compiled model or a plan. `layout`: the positions alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from .arrange import arrange
from .decisions import check_plain, show_decisions
from .drawing import MAX_NAME, Box, Drawing, box_size, graph_of, hub, neighbourhood
from .network import draw_junction_tree, draw_network
from .svg import Mark, marks, shortened, text_width

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
