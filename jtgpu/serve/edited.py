"""A network of any kind as the page edits it: a list of nodes, to and from JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from msgspec import Struct, field

from ..model.decisions import DecisionNetwork
from ..model.dynamic import DynamicNetwork
from ..model.gaussian import Gaussian
from ..model.markov import MarkovNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.network import BayesianNetwork
from ..model.noisy import NoisyMax
from .requests import Refusal
from .trees import AnyNetwork

Tables = dict[str, list[float]]


class EditedVariable(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A node with its numbers; the last axis, its own states, varies fastest."""

    name: str
    kind: Literal["chance", "decision", "utility", "number"] = "chance"
    states: list[str] = field(default_factory=list)  # options of a decision; of utilities and numbers none
    parents: list[str] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)  # slices back, of each parent; default: the same slice
    static: bool = False  # of a network over time: exists once
    cpt: list[float] = field(default_factory=list)  # of a utility its table; a number's means for its discrete parents
    start: list[list[float]] = field(default_factory=list)  # CPTs of the first slices
    coefficients: Tables = field(default_factory=dict)  # of a number, by numeric parent
    sd: list[float] = field(default_factory=list)  # of a number
    start_coefficients: list[Tables] = field(default_factory=list)  # of a number, next to `start`, its means
    start_sd: list[list[float]] = field(default_factory=list)
    # of a noisy-OR or noisy-MAX in place of the CPT: a row for each state of each parent, and that of the leak
    noisy: list[list[float]] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)  # of the node in its file, such as the position
    potential: dict[str, Any] = field(default_factory=dict)  # of its numbers in the file


class EditedFactor(Struct, forbid_unknown_fields=True, kw_only=True):
    """A factor of a Markov network; the last variable of its scope varies fastest."""

    scope: list[str]
    table: list[float]


class EditedNetwork(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A network as the page edits it."""

    title: str = ""
    combine: str = "sum"  # of utilities
    slices: bool = False  # whether it is a template of slices
    attributes: dict[str, Any] = field(default_factory=dict)
    variables: list[EditedVariable]
    renamed: list[str] = field(default_factory=list)  # variables whose states had equal names; these are numbered here
    factors: list[EditedFactor] | None = None  # of a Markov network, whose variables have no tables


def edited_network(net: AnyNetwork) -> EditedNetwork:
    """A network in the form that `network_of_page` takes; where a file gave states equal names, they are numbered."""
    made = _edited_factors(net) if isinstance(net, MarkovNetwork) else _edited_nodes(net)
    for v in made.variables:
        if len({*v.states}) < len(v.states):
            made.renamed.append(v.name)
            numbered = [f"{s or 'state'} ({k})" for k, s in enumerate(v.states)]
            some = [t if v.states.count(s) > 1 else s for s, t in zip(v.states, numbered, strict=True)]
            v.states = some if len({*some}) == len(some) else numbered
    return made


def _edited_nodes(net: AnyNetwork) -> EditedNetwork:
    if isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        return EditedNetwork(title=net.name, slices=True, variables=[_edited_over_time(net, v) for v in net])
    assert isinstance(net, (BayesianNetwork, DecisionNetwork, MixedNetwork))
    made = EditedNetwork(title=net.name, variables=[])
    about = net.discrete.attributes if isinstance(net, MixedNetwork) else net.attributes
    made.attributes = dict(about.get("net", {}))
    names = [*net]
    if isinstance(net, DecisionNetwork):
        made.combine = net.combine
        names += net.utilities
    for v in names:
        one = EditedVariable(name=v, parents=[*net.parents(v)])
        one.attributes = dict(about.get("node", {}).get(v, {}))
        one.potential = dict(about.get("potential", {}).get(v, {}))
        if isinstance(net, DecisionNetwork) and v in net.utilities:
            one.kind, one.cpt = "utility", _flat(net.utility(v))
        elif isinstance(net, MixedNetwork) and net.is_number(v):
            shape = [len(net.states(p)) for p in net.discrete_parents(v)]
            one.kind, (one.cpt, one.coefficients, one.sd) = "number", _parts(net.gaussian(v), shape)
        else:
            one.states = [*net.states(v)]
            if isinstance(net, DecisionNetwork) and v in net.decisions:
                one.kind = "decision"
            else:
                one.noisy = _noisy_rows(one.potential, [len(net.states(p)) for p in one.parents], len(one.states))
                one.cpt = [] if one.noisy else _flat(net.cpt(v))  # the table may be too large
        made.variables.append(one)
    return made


def _flat(table: Any) -> list[float]:
    return np.asarray(table).ravel().tolist()


def _noisy_rows(kept: dict[str, Any], cards: list[int], k: int) -> list[list[float]]:
    """The rows of a noisy-OR or noisy-MAX that a file or the page stored, in the order of the parents' states."""
    numbers, order = kept.get("noisy_max"), kept.get("noisy_strengths")
    if numbers is None or order is None or len(order) != sum(cards) or len(numbers) != (sum(cards) + 1) * k:
        return []
    rows = np.reshape(numbers, (-1, k)).tolist()
    first = np.repeat(np.cumsum([0, *cards])[:-1], cards)  # number of the first row of each row's parent
    made = [*rows]
    for row, at, state in zip(rows, first, order, strict=False):
        made[at + state] = row
    return made


def _parts(x: Gaussian, shape: list[int]) -> tuple[list[float], Tables, list[float]]:
    """Means, coefficients and standard deviations of a number, for the states of its discrete parents."""
    mean, sd = (_flat(np.broadcast_to(table, shape)) for table in (x.mean, x.sd))
    return mean, {p: _flat(np.broadcast_to(c, shape)) for p, c in x.coefficients.items()}, sd


def _edited_over_time(net: DynamicNetwork | MixedDynamicNetwork, v: str) -> EditedVariable:
    above = net.parents(v)
    lags = [lag for _, lag in above]
    one = EditedVariable(
        name=v, states=[*net.states(v)], parents=[p for p, _ in above], lags=lags if any(lags) else [],
        static=v in net.static,
    )  # fmt: skip
    if isinstance(net, MixedDynamicNetwork) and net.is_number(v):
        shape = [len(net.states(p)) for p in net.discrete_parents(v)]
        *first, (one.cpt, one.coefficients, one.sd) = (_parts(x, shape) for x in net.gaussians(v))
        one.kind, one.start, one.start_sd = "number", [x[0] for x in first], [x[2] for x in first]
        one.start_coefficients = [x[1] for x in first]
    else:
        one.cpt, one.start = _flat(net.cpt(v)), [_flat(table) for table in net.start(v)]
    return one


def _edited_factors(net: MarkovNetwork) -> EditedNetwork:
    nodes = getattr(net, "attributes", {}).get("node", {})
    variables = [EditedVariable(name=v, states=[*net.states(v)], attributes=dict(nodes.get(v, {}))) for v in net]
    factors = [EditedFactor(scope=[net.variables[i] for i in f.scope], table=_flat(f.table)) for f in net.factors]
    return EditedNetwork(title=net.name, variables=variables, factors=factors)


def network_of_page(edited: EditedNetwork) -> AnyNetwork:
    """Check and build a network."""
    # raises Refusal: If names repeat, a table has another number of entries than its states and parents need, or the
    #     kinds of nodes do not go together.
    nodes = _checked_nodes(edited.variables)
    kinds = {v.kind for v in edited.variables}
    if edited.factors is not None:
        return _markov(edited, edited.factors, nodes)
    with_decisions = kinds & {"decision", "utility"}
    if "number" in kinds and with_decisions:
        raise Refusal("invalid-body", "a network with decisions cannot have numbers: make intervals of them")
    if edited.slices:
        if with_decisions:
            raise Refusal("invalid-body", f"a network over time cannot have a {min(with_decisions)} here")
        return _over_time(edited, nodes)
    states: dict[str, Any] = {v.name: v.states for v in nodes.values() if v.kind != "utility"}
    parents = {v.name: v.parents for v in nodes.values()}
    tables: dict[str, Any] = {}
    potential = {v.name: _tuples(v.potential) for v in nodes.values() if v.potential}
    for v in nodes.values():
        if v.kind == "number":
            states[v.name], tables[v.name] = float, _gaussian(v, nodes)
        elif v.kind != "decision":
            tables[v.name], noisy = _table(v, nodes)
            if noisy:
                potential[v.name] = potential.get(v.name, {}) | noisy
    attributes = {
        "net": _tuples(edited.attributes), "potential": potential,
        "node": {v.name: _tuples(v.attributes) for v in nodes.values() if v.attributes},
    }  # fmt: skip
    more: dict[str, Any] = {"name": edited.title, "attributes": {kind: x for kind, x in attributes.items() if x}}
    if "number" in kinds:
        return MixedNetwork(states, parents, tables, **more)
    if not with_decisions:
        return BayesianNetwork(states, parents, tables, **more)
    return DecisionNetwork(
        states, parents, {v: table for v, table in tables.items() if nodes[v].kind == "chance"},
        utilities={v: table for v, table in tables.items() if nodes[v].kind == "utility"},
        decisions=[v.name for v in nodes.values() if v.kind == "decision"], combine=edited.combine, **more,
    )  # fmt: skip


def _checked_nodes(variables: Sequence[EditedVariable]) -> dict[str, EditedVariable]:
    nodes: dict[str, EditedVariable] = {}
    for v in variables:
        if v.name in nodes:
            raise Refusal("invalid-body", f"there are two variables {v.name!r}", variable=v.name)
        nodes[v.name] = v
        has_states = v.kind in ("chance", "decision")
        if has_states and not v.states:
            raise Refusal("invalid-body", f"variable {v.name!r} has no states", variable=v.name)
        for s, n in Counter(v.states).items():
            if n > 1:
                what = f"variable {v.name!r} has {n} states named {s!r}; give each its own name"
                raise Refusal("invalid-body", what, variable=v.name)
        if not has_states and v.states:
            raise Refusal("invalid-body", f"the {v.kind} {v.name!r} cannot have states", variable=v.name)
    return nodes


def _markov(edited: EditedNetwork, factors: list[EditedFactor], nodes: dict[str, EditedVariable]) -> MarkovNetwork:
    for v in nodes.values():
        if v.kind != "chance" or v.parents or v.cpt:
            raise Refusal("invalid-body", f"a Markov network has variables with states and factors, not {v.name!r}")
    made = []
    for k, f in enumerate(factors):
        shape = [len(nodes[v].states) for v in f.scope if v in nodes]
        n = int(np.prod(shape, dtype=object))
        if len(shape) == len(f.scope) and len(f.table) != n:
            what = f"factor {k} ({', '.join(f.scope)}) has {len(f.table):,} entries, expected {n:,}"
            raise Refusal("invalid-body", what)
        made.append((f.scope, np.array(f.table).reshape(shape if len(f.table) == n else -1)))
    net = MarkovNetwork({v.name: v.states for v in nodes.values()}, made, name=edited.title)
    # no file of factors has them: they are known to the page, and to the map
    vars(net)["attributes"] = {"node": {v.name: _tuples(v.attributes) for v in nodes.values() if v.attributes}}
    return net


def _tuples(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as readers of files make them, which have no lists."""

    def made(value: Any) -> Any:
        return tuple(map(made, value)) if isinstance(value, list) else value

    return {key: made(value) for key, value in attributes.items()}


def _shaped(v: EditedVariable, numbers: list[float], parents: Sequence[str], nodes: dict[str, EditedVariable]) -> Any:
    """Numbers with an axis for each parent that is known, and one for the node's own states."""
    shape = [len(nodes[p].states) for p in parents if p in nodes] + [len(v.states)] * bool(v.states)
    n = int(np.prod(shape, dtype=object))
    what = {"utility": "table", "number": "Gaussian"}.get(v.kind, "CPT")
    if any(p not in nodes for p in parents):
        return np.array(numbers)  # the network names the parent
    if len(numbers) != n:
        raise Refusal(
            "invalid-body", f"the {what} of {v.name!r} has {len(numbers):,} entries, expected {n:,}", variable=v.name
        )
    return np.array(numbers).reshape(shape)


def _table(v: EditedVariable, nodes: dict[str, EditedVariable]) -> tuple[Any, dict[str, Any]]:
    """The CPT of a node, or the table of a utility; and what is stored of a noisy one."""
    if not v.noisy or v.kind != "chance":
        return _shaped(v, v.cpt, v.parents, nodes), {}
    cards = [len(nodes[p].states) if p in nodes else 0 for p in v.parents]
    if len(v.noisy) != sum(cards) + 1:
        raise Refusal(
            "invalid-body", f"the strengths of {v.name!r} have {len(v.noisy):,} rows, expected {sum(cards) + 1:,}: one "
            "for each state of each parent, and the leak", variable=v.name,
        )  # fmt: skip
    ends = np.cumsum([0, *cards]).tolist()
    made = NoisyMax([v.noisy[a:b] for a, b in pairwise(ends)], v.noisy[-1])
    return made, made.attributes


def _gaussian(v: EditedVariable, nodes: dict[str, EditedVariable], t: int | None = None) -> Gaussian:
    """The density of a number, or that in slice t."""
    discrete = [p for p in v.parents if p not in nodes or nodes[p].kind != "number"]
    mean, terms, sd = v.cpt, v.coefficients, v.sd
    if t is not None:
        if not len(v.start) == len(v.start_sd) == len(v.start_coefficients):
            what = f"the first slices of {v.name!r} need as many means, standard deviations and coefficients"
            raise Refusal("invalid-body", what, variable=v.name)
        mean, terms, sd = v.start[t], v.start_coefficients[t], v.start_sd[t]
    coefficients = {p: _shaped(v, numbers, discrete, nodes) for p, numbers in terms.items()}
    return Gaussian(_shaped(v, mean, discrete, nodes), coefficients, _shaped(v, sd, discrete, nodes))


def _over_time(edited: EditedNetwork, nodes: dict[str, EditedVariable]) -> DynamicNetwork | MixedDynamicNetwork:
    cpts: dict[str, Any] = {}
    start: dict[str, Any] = {}
    parents: dict[str, Any] = {}
    for v in nodes.values():
        lags = v.lags or [0] * len(v.parents)
        if len(lags) != len(v.parents):
            what = f"{v.name!r} has {len(lags)} lags for {len(v.parents)} parents"
            raise Refusal("invalid-body", what, variable=v.name)
        parents[v.name] = [(p, lag) if lag else p for p, lag in zip(v.parents, lags, strict=True)]
        is_number = v.kind == "number"
        cpts[v.name] = _gaussian(v, nodes) if is_number else _shaped(v, v.cpt, v.parents, nodes)
        there = [[p for p, lag in zip(v.parents, lags, strict=True) if lag <= t] for t in range(len(v.start))]
        firsts: list[Any] = [
            _gaussian(v, nodes, t) if is_number else _shaped(v, numbers, there[t], nodes)
            for t, numbers in enumerate(v.start)
        ]
        if firsts:
            start[v.name] = firsts[0] if len(firsts) == 1 else firsts
    static = [v.name for v in nodes.values() if v.static]
    states: dict[str, Any] = {v.name: float if v.kind == "number" else v.states for v in nodes.values()}
    kind = MixedDynamicNetwork if float in states.values() else DynamicNetwork
    return kind(states, parents, cpts, start=start, static=static, name=edited.title)
