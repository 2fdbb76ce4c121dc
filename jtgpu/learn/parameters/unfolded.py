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
from ...plans.noisy import parent_orders
from ...util.arguments import names
from ...util.arrays import Bools, Floats
from .families import GivenStructure

if TYPE_CHECKING:
    from .result import Fit
    from .setup import Model


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
