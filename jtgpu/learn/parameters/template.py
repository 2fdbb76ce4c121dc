"""The template that `fit` estimates: a dynamic network, or parents of which some are earlier.

Strengths of noisy nodes by EM: the effects of the parents are variables without a column.

A noisy child is the strongest one of the effects of its parents and of a leak, c_0, c_1, ..., each of which depends on
one parent. With the chain a_i = max(a_{i-1}, c_i) in the network, its expected counts N(c_i, parent) are those of an
ordinary CPT, and so is the M-step (Diez and Galan, 2003; Heckerman and Breese, 1996).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...columns import is_frame, open_table
from ...errors import ArgumentError, DataError, NetworkError, closest
from ...interop import from_pgmpy, from_pyagrum
from ...model.dynamic import DynamicNetwork
from ...model.editing import coefficient_name
from ...model.gaussian import Gaussian
from ...model.mixed_dynamic import MixedDynamicNetwork
from ...model.network import BayesianNetwork
from ...model.noisy import NoisyMax
from ...model.states import CodesByVariable
from ...plans.noisy import parent_orders
from ...util.arguments import choice, mapping, names, several, whole_number
from ...util.arrays import Bools, Floats
from .families import GivenStructure
from .numbers import column_kinds
from .result import Fit
from .setup import Model, hidden_states, of_discretiser, states_given
from .sources import open_source


def is_template(structure: object) -> bool:
    """Whether a structure is that of a dynamic network: parents in earlier slices are pairs."""
    if isinstance(structure, Mapping):
        return any(isinstance(p, tuple) for above in structure.values() for p in several(above) or ())
    return isinstance(structure, (DynamicNetwork, MixedDynamicNetwork))


def converted(structure: object) -> Any:
    """A dynamic network of pgmpy or pyAgrum as a `DynamicNetwork`; any other structure as it is."""
    kind = type(structure).__name__
    if kind == "KTBN":
        return from_pyagrum(structure)
    return from_pgmpy(structure) if kind == "DynamicBayesianNetwork" else structure


def with_codes(structure: Any, states: Any, codes: CodesByVariable | None) -> tuple[Any, Any]:
    """A network with codes; or the states that the codes of other structures mean, and those declared."""
    if codes is None or hasattr(structure, "with_codes"):
        return (structure if codes is None else structure.with_codes(codes)), states
    if isinstance(codes, str):
        choice("codes", codes, ("names", "index"))
    if isinstance(codes, str) or not (states is None or isinstance(states, Mapping)):
        return structure, states
    given = {v: mapping(f"codes of {v!r}", own) for v, own in mapping("codes", codes).items()}
    variables = parents_of(structure) if isinstance(structure, Mapping) else given
    if other := [v for v in given if v not in variables]:
        raise ArgumentError(f"codes: there is no variable {other[0]!r}{closest(str(other[0]), variables)}")
    return structure, {**{v: [*dict.fromkeys(own.values())] for v, own in given.items()}, **mapping("states", states)}


def template_of(structure: Any, cases: object, states: Any, hidden: Any, bins: int | None) -> DynamicNetwork:
    """The dynamic network of a structure; that of a mapping has states from the data, and uniform CPTs."""
    if isinstance(structure, DynamicNetwork):
        states, _ = of_discretiser(states, structure.variables)
        for v, given in mapping("states", states).items():
            if v in structure and tuple(map(str, several(given) or ())) != structure.states(v):
                raise ArgumentError(f"states: {v!r} has the states {[*structure.states(v)]} in the network")
        return structure
    if not is_template(structure):
        raise ArgumentError(
            "sequences need a jtgpu.DynamicNetwork, or a mapping of parents of which some are earlier, such as "
            "{'rain': [('rain', 1)]}; without id= and time= rows are cases of their own"
        )
    parents = parents_of(structure)
    states, _ = of_discretiser(states, [*parents])
    known = states_given(states, None, [*parents]) | hidden_states(hidden, None, [*parents])
    known |= states_of([v for v in parents if v not in known], cases, bins)
    labels = {v: known[v] for v in parents}
    cpts, start = uniform_tables(labels, parents)
    return DynamicNetwork(labels, parents, cpts, start=start)


def known_states(structure: object, states: object) -> dict[str, tuple[str, ...]]:
    """The states of a structure, or those that are given: words of a file that are not missing cells."""
    net = getattr(structure, "discrete", structure)
    if isinstance(net, DynamicNetwork):
        return {v: net.states(v) for v in net}
    given, _ = of_discretiser(states, [*structure] if isinstance(structure, Mapping) else [])
    return {v: tuple(map(str, several(s) or ())) for v, s in mapping("states", given).items()}


def parents_of(structure: Mapping[Any, object]) -> dict[str, list[Any]]:
    """The parents of every variable of a mapping, those without an entry among them."""
    parents: dict[str, list[Any]] = {}
    for v, above in structure.items():
        listed = several(above)
        if listed is None:
            raise NetworkError(f"variable {v!r}: its parents must be a list, not {above!r}")
        parents[str(v)] = listed
    for p in [p for above in parents.values() for p in above]:
        parents.setdefault(str(p[0]) if isinstance(p, tuple) and p else str(p), [])
    return parents


def states_of(variables: list[str], cases: object, bins: int | None) -> dict[str, tuple[str, ...]]:
    """States in the columns of a long frame."""
    if not variables:
        return {}
    is_table = is_frame(cases) or (isinstance(cases, Mapping) and not any(np.ndim(x) > 1 for x in cases.values()))
    if not is_table:
        raise DataError(
            f"the states of {variables[0]!r} are read from a long frame only; give them: states={{{variables[0]!r}: "
            "[...]}"
        )
    table = open_table(None, cases)
    labels: dict[str, tuple[str, ...]] = {}
    for v in variables:
        if v not in table.names:
            raise DataError(
                f"the table has no column {v!r}; if the variable is never observed, declare it: hidden={{{v!r}: 2}}"
            )
        labels |= open_source(cases, [v]).schema([v], None if bins is None else whole_number("bins", bins, 2)).states
    return labels


def uniform_tables(
    states: Mapping[str, tuple[str, ...]], parents: Mapping[str, list[Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Uniform CPTs, and those of the first slices."""
    def table(above: list[Any], v: str) -> Any:
        shape = [len(states[p[0] if isinstance(p, tuple) else p]) for p in above] + [len(states[v])]
        return np.full(shape, 1.0 / shape[-1])

    start: dict[str, Any] = {}
    for v, above in parents.items():
        lags = [p[1] if isinstance(p, tuple) and len(p) == 2 and isinstance(p[1], int) else 0 for p in above]
        first = [
            table([p for p, lag in zip(above, lags, strict=True) if lag <= t], v) for t in range(max(lags, default=0))
        ]
        if first:
            start[v] = first[0] if len(first) == 1 else first
    return {v: table(above, v) for v, above in parents.items()}, start


def mixed_template(structure: object, cases: Any, numbers: Any, states: object, hidden: object, bins: Any) -> Any:
    """The dynamic network with numbers of a structure: uniform CPTs, and standard normal densities."""
    if isinstance(structure, MixedDynamicNetwork):
        return structure
    if not isinstance(structure, Mapping):
        raise ArgumentError(
            "continuous= is for parents, such as {'state': [('state', 1)], 'load': ['state']}, and a "
            f"jtgpu.MixedDynamicNetwork has its numbers; got a {type(structure).__name__}"
        )
    if not is_frame(cases) and not isinstance(cases, Mapping):
        raise DataError("continuous= is read from a long frame only; of other sequences give a MixedDynamicNetwork")
    parents = parents_of(structure)
    given = of_discretiser(states, [*parents])[0]
    known = states_given(given, None, [*parents]) | hidden_states(hidden, None, [*parents])
    table = open_table(None, cases)
    if not table.n:
        raise DataError("there are no rows to fit")
    kinds = column_kinds(table, [v for v in parents if v not in known], numbers, {})
    if cut := [v for v, kind in kinds.items() if kind == "intervals"]:
        raise ArgumentError(
            f"continuous: {cut[0]!r} cannot be made intervals in sequences; use bins=, without continuous="
        )
    own = {v: float for v, kind in kinds.items() if kind == "gaussian"}
    if not own:
        raise DataError("no column of the structure has numbers; leave continuous= out")
    known |= states_of([v for v in parents if v not in known and v not in own], cases, bins)
    cpts, start = uniform_tables(known, {v: above for v, above in parents.items() if v in known})
    for y in own:
        pairs = [p if isinstance(p, tuple) else (p, 0) for p in parents[y]]
        axes = [len(known[p]) for p, _ in pairs if p in known]
        lagged = [(p, lag) for p, lag in pairs if p in own]
        cpts[y], *first = (
            Gaussian(np.zeros(axes), {coefficient_name(*p): 0.0 for p in lagged if p[1] <= t}, 1.0)
            for t in (np.inf, *range(max((lag for _, lag in lagged), default=0)))
        )
        if first:
            start[y] = first
    labels: dict[str, Any] = {v: own.get(v, known.get(v)) for v in parents}
    return MixedDynamicNetwork(labels, parents, cpts, start=start)


class Unfolded(NamedTuple):
    """A network whose noisy children have their chains as variables."""

    net: BayesianNetwork
    chains: BayesianNetwork
    effects: dict[str, list[str]]  # by child: the variable of the effect of each parent, in order, and of the leak
    hidden: dict[str, tuple[str, ...]]  # states of all variables that were added
    maxima: list[str]  # of which these are the largest ones of two, and the children: their CPTs do not change

    @classmethod
    def of(cls, net: BayesianNetwork, start: object) -> Unfolded:
        """Add the chains to a network, with the numbers of `start` if it is one."""
        if isinstance(start, BayesianNetwork):
            if start.noisy.keys() != net.noisy.keys() or {v: start.parents(v) for v in start} != {
                v: net.parents(v) for v in net
            }:
                raise ArgumentError("start: the network has other variables, parents or noisy nodes than the structure")
            net = start
        states = {v: net.states(v) for v in net}
        parents = {v: net.parents(v) for v in net}
        cpts: dict[str, Any] = {v: net.cpt(v) for v in net if v not in net.noisy}
        effects: dict[str, list[str]] = {}
        maxima = []

        def added(name: str, child: str, above: tuple[str, ...], cpt: Floats) -> str:
            while name in states:
                name += "'"
            states[name], parents[name], cpts[name] = net.states(child), above, cpt
            return name

        families = [[net.index(p) for p in net.parents(v)] for v in net.noisy]
        for (v, noisy), order in zip(net.noisy.items(), parent_orders(families), strict=True):
            k, own = noisy.shape[-1], net.parents(v)
            links = [added(f"effect of {p} on {v}", v, (p,), noisy.effects[i]) for i, p in enumerate(own)]
            last = added(f"leak of {v}", v, (), noisy.leak_row)
            effects[v] = [*links, last]
            rank = np.abs(np.arange(k) - noisy.least)
            strongest = np.where(rank[:, None] >= rank, np.arange(k)[:, None], np.arange(k))
            largest = np.eye(k)[strongest]
            for i in order[:-1]:
                last = added(f"effects on {v}, with {own[i]}", v, (last, links[i]), largest)
                maxima.append(last)
            parents[v] = (last, *(links[i] for i in order[-1:]))
            cpts[v] = largest if order else np.eye(k)
            maxima.append(v)
        chains = BayesianNetwork(states, parents, cpts, name=net.name, attributes=net.attributes)
        return cls(net, chains, effects, {v: states[v] for v in states if v not in net}, maxima)

    @property
    def structure(self) -> GivenStructure:
        """The structure that is fitted."""
        return GivenStructure({v: self.chains.parents(v) for v in self.chains}, self.chains)

    @property
    def strengths(self) -> dict[str, tuple[Floats, Bools]]:
        """By effect: the strengths of the network, and which rows may change: not those of states without effect."""
        given: dict[str, tuple[Floats, Bools]] = {}
        for v, added in self.effects.items():
            noisy = self.net.noisy[v]
            for effect, rows in zip(added, (*noisy.effects, noisy.leak_row), strict=True):
                free: Bools = rows[..., noisy.least, None] < 1
                given[effect] = rows, free | (rows.ndim == 1)
        return given

    def asked(self, model: Model) -> Model:
        """The arguments of `fit` about the model with the chains."""
        if model.start in ("uniform", "counts"):
            raise ArgumentError(f"start={model.start!r} is not for strengths; use start='auto', 'given' or 'random'")
        held, prior = names("fixed", model.fixed), model.prior
        for members in model.tied or ():
            if not isinstance(members, str) and (noisy := [v for v in members if v in self.effects]):
                raise ArgumentError(f"tied: {noisy[0]!r} is a noisy node, whose strengths are its own")
        if isinstance(prior, Mapping):
            own = {v: n for v, n in prior.items() if v in self.effects}
            if wrong := [v for v, n in own.items() if np.ndim(n)]:
                raise ArgumentError(f"pseudo_counts: {wrong[0]!r} is a noisy node, and needs one number")
            more = {effect: n for v, n in own.items() for effect in self.effects[v]}
            prior = {v: n for v, n in prior.items() if v not in own} | more
        held = [u for v in held for u in self.effects.get(v, [v])]
        given = model.hidden
        hidden = dict(given if isinstance(given, Mapping) else dict.fromkeys(names("hidden", given)))
        return model._replace(
            prior=prior, hidden=hidden | self.hidden, fixed=[*held, *self.maxima],
            start="given" if isinstance(model.start, BayesianNetwork) else model.start,
        )  # fmt: skip

    def folded(self, fit: Fit[BayesianNetwork]) -> Fit[BayesianNetwork]:
        """The result about the network."""

        def own(by_variable: Mapping[str, Any]) -> dict[str, Any]:
            kept = {v: x for v, x in by_variable.items() if v in self.net and v not in self.effects}
            rows = {
                v: np.concatenate([np.atleast_2d(by_variable[effect]) for effect in added])
                for v, added in self.effects.items() if all(effect in by_variable for effect in added)
            }  # fmt: skip
            return {v: (kept | rows)[v] for v in self.net if v in kept or v in rows}

        cpts: dict[str, Any] = {v: fit.network.cpt(v) for v in self.net if v not in self.effects}
        for v, added in self.effects.items():
            *effects, leak = (np.asarray(fit.network.cpt(effect)) for effect in added)
            cpts[v] = NoisyMax(effects, leak, strongest="first" if self.net.noisy[v].least else "last")
        held = {*fit.fixed}
        fixed = [v for v in self.net if (held.issuperset(self.effects[v]) if v in self.effects else v in held)]
        return replace(
            fit, network=self.net.replace(cpt=cpts), counts=own(fit.counts), fixed=tuple(fixed),
            hidden=tuple(v for v in fit.hidden if v in self.net), _posteriors=(),
            _errors=None if fit._errors is None else own(fit._errors),
        )  # fmt: skip
