"""Strengths of noisy nodes by EM: the effects of the parents are variables without a column.

A noisy child is the strongest one of the effects of its parents and of a leak, c_0, c_1, ..., each of which depends on
one parent. With the chain a_i = max(a_{i-1}, c_i) in the network, its expected counts N(c_i, parent) are those of an
ordinary CPT, and so is the M-step (Diez and Galan, 2003; Heckerman and Breese, 1996).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ArgumentError
from ...model.network import BayesianNetwork
from ...model.noisy import NoisyMax
from ...model.states import present_state
from ...options.learning import EM
from ...plans.noisy import parent_orders
from ...util.arguments import choice, names
from ...util.arrays import Bools, Floats
from .families import GivenStructure

if TYPE_CHECKING:
    from .result import Fit
    from .setup import Model

MOST_CELLS = 1 << 16  # of a CPT that strengths are fitted to


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
        """What is fitted."""
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


def noisy(
    net: BayesianNetwork, cases: Any, variable: str, *, neutral: Mapping[str, str] | None = None,
    strongest: str | None = None, **options: Any,
) -> Fit[BayesianNetwork]:  # fmt: skip
    """Strengths of a noisy-MAX node that fit cases, or a CPT, best; all other CPTs stay as they are.

    Parameters
    ----------
    net : BayesianNetwork
    cases : table or path, or None
        See `jtgpu.learn.fit`. None: all configurations of the family, weighted by the CPT: the strengths of the
        smallest average Kullback-Leibler divergence from its rows.
    variable : str
        The child. EM starts at its rows in which one parent alone acts.
    neutral : mapping, optional
        The state of a parent that has no effect, by parent. Default: absence, where the names of two states say which
        one that is (see `jtgpu.NoisyOr`), else the first state.
    strongest : {"first", "last"}, optional
        Which state of the child is the strongest effect. Default: presence, in the same way, else the last one.
    **options
        Of `jtgpu.learn.fit`, such as ``pseudo_counts=0``.

    Returns
    -------
    Fit
        ``fit.network.noisy[variable]`` has the strengths; `log_likelihood` may be compared with that of a CPT.

    Raises
    ------
    UnknownVariable, UnknownState, DataError, ArgumentError
        See `jtgpu.learn.fit`; also for a CPT of more than 65,536 entries, if there are no cases.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.network("flu->fever<-cold", "{no|yes}")
    >>> net = net.replace(cpt={"fever": [[[0.99, 0.01], [0.6, 0.4]], [[0.2, 0.8], [0.15, 0.85]]]})
    >>> fit = jtgpu.learn.noisy(net, None, "fever")
    >>> [round(float(rows[1, 1]), 2) for rows in fit.network.noisy["fever"].effects]
    [0.78, 0.39]
    """
    from .fit import fit

    child = net.variables[net.index(variable)]
    if strongest is not None:
        choice("strongest", strongest, ("first", "last"))
    least = 0 if (1 if strongest is None and _present(net, child) != 0 else strongest == "last") else -1
    states = {p: 1 - s if (s := _present(net, p)) is not None else 0 for p in net.parents(child)}
    for p, label in (neutral or {}).items():
        if p not in states:
            raise ArgumentError(f"neutral: {p!r} is no parent of {child!r}")
        states[p] = net.state_index(p, label)
    strengths = net.noisy.get(child)
    if strengths is None:
        table, rest = np.asarray(net.cpt(child)), tuple(states.values())
        none = np.eye(table.shape[-1])[least]
        effects = {}
        for i, (p, s) in enumerate(states.items()):
            at: tuple[Any, ...] = (*rest[:i], slice(None), *rest[i + 1 :])
            rows = np.array(table[at])
            rows[s] = none
            effects[p] = rows
        strengths = NoisyMax(effects, table[rest], strongest="first" if least else "last")
    if cases is None:
        table = np.asarray(net.cpt(child))
        if table.size > MOST_CELLS:
            raise ArgumentError(f"the CPT of {child!r} has {table.size:,} entries; fit the strengths to cases")
        cells = np.indices(table.shape).reshape(table.ndim, -1)
        labels = [net.states(v) for v in (*net.parents(child), child)]
        columns = zip((*net.parents(child), child), labels, cells, strict=True)
        cases = {v: [own[s] for s in at] for v, own, at in columns}
        rule = EM(tolerance=1e-11, iterations=2000)
        options = {"weights": table.flatten(), "pseudo_counts": 0, "em": rule, **options}
    start = net.replace(cpt={child: strengths})
    return fit(start, cases, fixed=[v for v in net if v != child], **options)


def _present(net: BayesianNetwork, v: str) -> int | None:
    labels = net.states(v)
    return present_state(labels) if len(labels) == 2 else None
