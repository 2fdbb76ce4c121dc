"""pyAgrum as the outside judge: the same network through its API, the same evidence, its posteriors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jtgpu.model.network import BayesianNetwork
from jtgpu.model.states import StateNumber


def to_pyagrum(net: BayesianNetwork) -> Any:
    """A `pyagrum.BayesNet` with float64 CPTs (pyAgrum's own BIF reader rounds to float32). States are numbered."""
    import pyagrum

    gum: Any = pyagrum
    bn = gum.BayesNet()
    for v in net.variables:
        bn.add(gum.RangeVariable(v, v, 0, len(net.states(v)) - 1))
    for v in net.variables:
        for p in reversed(net.parents(v)):  # pyAgrum's first axis is the fastest: child, last parent, ..., first parent
            bn.addArc(p, v)
    for v in net.variables:
        bn.cpt(v).fillWith(net.cpt(v).ravel().tolist())
    return bn


def posteriors(bn: Any, evidence: Mapping[str, int], threads: int = 2) -> dict[str, NDArray[np.float64]]:
    """Posterior of every variable by pyAgrum's lazy propagation."""
    import pyagrum

    gum: Any = pyagrum
    engine = gum.LazyPropagation(bn)
    engine.setNumberOfThreads(threads)
    engine.setEvidence({v: int(s) for v, s in evidence.items()})
    engine.makeInference()
    return {v: engine.posterior(v).toarray() for v in bn.names()}


def sampled_evidence(net: BayesianNetwork, share: float, seed: int) -> dict[str, int]:
    """A random part of one forward sample: never impossible, as real evidence is."""
    rng = np.random.default_rng(seed)
    sample: dict[str, int] = {}
    for v in net.topological_order():
        row = net.cpt(v)[tuple(sample[p] for p in net.parents(v))]
        sample[v] = StateNumber(rng.choice(len(row), p=row / row.sum()))
    chosen = sorted(rng.choice(len(net), size=round(share * len(net)), replace=False).tolist())
    return {net.variables[v]: sample[net.variables[v]] for v in chosen}
