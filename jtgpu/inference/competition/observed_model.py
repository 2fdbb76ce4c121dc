"""`conditioned`: the model that remains when a case is observed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.discrete import DiscreteModel, Factor
from ...model.markov import MarkovNetwork
from ...model.network import BayesianNetwork

Finding = int | frozenset[int]  # number of a state, or of several states one of which holds


def conditioned(net: DiscreteModel, case: Mapping[str, Finding], *, only_evidence: bool = False) -> MarkovNetwork:
    """Condition a model on a case: the same variables, but observed ones have a single state.

    The partition function of the result is that of `net` times the probability of the case; nothing is normalised.
    """
    # case: Variable to the number of its state, or to a set of numbers one of which holds. The attribute
    #     ``likelihood``, if there is one, maps variables to weights.
    # only_evidence: For a Bayesian network, leave out the CPTs of barren variables: those that are not observed and
    #     have no observed descendants. Their product sums to 1.
    known = {net.index(v): s for v, s in case.items()}
    weights = {net.index(v): np.asarray(w, np.float64) for v, w in getattr(case, "likelihood", {}).items()}
    hard = {v: s for v, s in known.items() if isinstance(s, int)}
    factors = list(net.factors)
    unused: set[int] = set()
    if only_evidence and isinstance(net, BayesianNetwork):
        relevant = _ancestors(net, {*known, *weights})
        factors = [f for f in factors if f.scope[-1] in relevant]
        unused = set(range(len(net))) - relevant
    for v, s in known.items():
        if not isinstance(s, int):
            one_of = np.zeros(int(net.cardinality[v]))
            one_of[sorted(s)] = 1.0
            factors.append(Factor((v,), one_of))
    factors += [Factor((v,), w) for v, w in weights.items()]
    states = {name: ("",) if v in hard or v in unused else net.states(v) for v, name in enumerate(net.variables)}
    return MarkovNetwork.of_checked(states, [_restricted(f, hard) for f in factors], name=net.name)


def _restricted(factor: Factor, hard: Mapping[int, int]) -> Factor:
    """The slice of a factor at the observed states."""
    scope, table = factor
    if hard.keys() & set(scope):
        table = table[tuple(hard.get(v, slice(None)) for v in scope)]
        scope = tuple(v for v in scope if v not in hard)
    table = np.array(table, np.float64, order="C")
    table.flags.writeable = False
    return Factor(scope, table)


def _ancestors(net: BayesianNetwork, observed: set[int]) -> set[int]:
    """The observed variables and all their ancestors."""
    found, ready = set(observed), sorted(observed)
    while ready:
        for p in net.factors[ready.pop()].scope[:-1]:
            if p not in found:
                found.add(p)
                ready.append(p)
    return found
