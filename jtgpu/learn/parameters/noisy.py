"""`noisy`: the strengths of one noisy node from cases, or from a CPT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError
from ...model.network import BayesianNetwork
from ...model.noisy import NoisyMax
from ...model.states import present_state
from ...options.learning import EM
from ...util.arguments import choice
from .fit import fit

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .result import Fit

MOST_CELLS = 1 << 16  # of a CPT that strengths are fitted to


def noisy(  # noqa: PLR0913
    net: BayesianNetwork, cases: Any, variable: str, *, neutral: Mapping[str, str] | None = None,
    strongest: str | None = None, weights: ArrayLike | str | None = None, pseudo_counts: Any = 1.0,
    em: EM | None = None,
) -> Fit[BayesianNetwork]:  # fmt: skip
    """Strengths of a noisy-MAX node that fit cases, or a CPT, best; all other CPTs stay as they are.

    Parameters
    ----------
    net : BayesianNetwork
    cases : table or path, or None
        See `jtgpu.learn.fit`. None: all configurations of the family, weighted by the CPT: the strengths of the
        smallest average Kullback-Leibler divergence from its rows.
    variable : str
        The child. EM starts at its strengths, else at its rows in which one parent alone acts.
    neutral : mapping, optional
        The state of a parent that has no effect, by parent. Default: absence, where the names of two states say which
        one that is (see `jtgpu.NoisyOr`), else the first state.
    strongest : {"first", "last"}, optional
        Which state of the child is the strongest effect. Default: presence, in the same way, else the last one.
    weights, pseudo_counts, em
        See `jtgpu.learn.fit`; a CPT has weights of its own, and counts as it is.

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
    if strengths is None or neutral or strongest is not None:
        table, rest = np.asarray(net.cpt(child)), tuple(states.values())
        none = np.eye(table.shape[-1])[least]
        effects = {}
        for i, (p, s) in enumerate(states.items()):
            at: tuple[Any, ...] = (*rest[:i], slice(None), *rest[i + 1 :])
            rows = np.array(table[at])
            rows[s] = none
            effects[p] = rows
        strengths = NoisyMax(effects, table[rest], strongest="first" if least else "last")
    start, others = net.replace(cpt={child: strengths}), [v for v in net if v != child]
    if cases is not None:
        return fit(start, cases, fixed=others, weights=weights, pseudo_counts=pseudo_counts, em=em or EM())
    table, own = np.asarray(net.cpt(child)), (*states, child)
    if table.size > MOST_CELLS:
        raise ArgumentError(f"the CPT of {child!r} has {table.size:,} entries; fit the strengths to cases")
    if weights is not None:
        raise ArgumentError("weights are those of cases: without any, the configurations have those of the CPT")
    labels = {v: net.states(v) for v in own}
    columns = zip(own, np.indices(table.shape).reshape(table.ndim, -1), strict=True)
    family = BayesianNetwork(  # what else there is in the network has no column
        labels, {child: tuple(states)},
        {child: strengths, **{p: np.full(len(labels[p]), 1 / len(labels[p])) for p in states}},
    )  # fmt: skip
    made = fit(
        family, {v: [labels[v][s] for s in at] for v, at in columns}, fixed=[*states], weights=table.flatten(),
        pseudo_counts=0, em=em or EM(tolerance=1e-11, iterations=2000),
    )  # fmt: skip
    return replace(made, network=start.replace(cpt={child: made.network.noisy[child]}), fixed=tuple(others))


def _present(net: BayesianNetwork, v: str) -> int | None:
    labels = net.states(v)
    return present_state(labels) if len(labels) == 2 else None
