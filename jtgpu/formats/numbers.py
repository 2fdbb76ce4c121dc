"""Numbers in network files: what readers collect of them, the `MixedNetwork` they make, and its writers.

Readers list a continuous node among the nodes that cannot be read (`Draft.refused`) and its densities in
`Draft.numbers`; `accept` removes it from the former if every node of the file can be read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..model.discrete import MAX_AXES
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork

if TYPE_CHECKING:
    from ..model.network import BayesianNetwork
    from .draft import Draft


def accept(draft: Draft) -> bool:
    """Whether the file is a mixed network; its numbers are then no longer refused."""
    # raises ParseError: If a number has a child with states.
    if not draft.numbers or draft.decisions or draft.utilities or set(draft.refused) - set(draft.numbers):
        return False
    if any(not node.densities for node in draft.numbers.values()):
        return False
    for family in draft.families.values():
        for p, at in family.parents:
            if p in draft.numbers:
                raise draft.source.error(
                    at, f"the number {p!r} is a parent of {family.child!r}, which has states: exact answers need arcs "
                    "from states to numbers only"
                )  # fmt: skip
    draft.refused.clear()
    return True


def mixed_network(draft: Draft, discrete: BayesianNetwork) -> MixedNetwork:
    """The network of a draft whose numbers were accepted, with the finished network of its states."""
    # raises ParseError, NetworkError: If parents are not declared, or a density does not fit them.
    gaussians: dict[str, Gaussian] = {}
    parents = {v: discrete.parents(v) for v in discrete}
    for v, node in draft.numbers.items():
        for p, at in node.parents:
            if p not in draft.numbers and p not in draft.states:
                raise draft.source.error(at, f"{v!r} has the parent {p!r}, which is not declared")
        parents[v] = tuple(p for p, _ in node.parents)
        numeric = [p for p in parents[v] if p in draft.numbers]
        shape = tuple(len(draft.states[p]) for p in parents[v] if p not in draft.numbers)
        if len(shape) >= MAX_AXES:
            raise draft.source.error(node.at, f"{v!r} has {len(shape)} parents, more than an array has axes")
        if len(node.densities) != math.prod(shape):
            axes = " x ".join(str(c) for c in shape) or "1"
            raise draft.source.error(
                node.data_at, f"found {len(node.densities)} densities for {v!r}, expected {math.prod(shape)} = {axes}"
            )
        for row in node.densities:
            odd = next((p for p in row.coefficients if p not in numeric), None)
            if odd is not None:
                raise draft.source.error(
                    node.data_at, f"the density of {v!r} depends on {odd!r}; its numeric parents are {numeric}"
                )
        gaussians[v] = Gaussian(
            np.reshape([row.constant for row in node.densities], shape),
            {p: np.reshape([row.coefficients.get(p, 0.0) for row in node.densities], shape) for p in numeric},
            np.reshape([row.sd for row in node.densities], shape),
        )
    at_of = {v: draft.declared[v] for v in draft.states} | {v: node.at for v, node in draft.numbers.items()}
    order = draft.order if set(draft.order) == set(at_of) and len(draft.order) == len(at_of) else ()
    names = order or sorted(at_of, key=lambda v: at_of[v])
    net = MixedNetwork(
        {v: float if v in gaussians else draft.states[v] for v in names},
        parents,
        {v: gaussians[v] if v in gaussians else discrete.cpt(v) for v in names},
        name=draft.name,
    )
    if net.discrete == discrete:
        net.discrete = discrete  # with its attributes and the report of its rows
    return net
