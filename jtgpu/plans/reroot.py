"""The same junction tree with another root, for programs whose answers are about the variables of one factor."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from .arrays import ragged
from .lowering import lay_out, lower, program_arrays
from .plan import Plan


def rerooted(plan: Plan, factor: int) -> Plan:
    """The plan with one more clique, the scope of a factor, as root: its posterior takes the contractions of P(e)."""
    cards, rank = plan.cardinality.tolist(), plan.axis_rank.tolist()
    parent, homes = plan.clique_parent.tolist(), plan.factor_clique.tolist()
    at, above = homes[factor], len(parent)
    homes[factor] = above
    while at >= 0:  # turn the path to the root
        parent[at], above, at = above, at, parent[at]
    parent.append(-1)
    depth = [0] * len(parent)
    for c in range(len(parent)):
        up = parent[c]
        while up >= 0:
            depth[c], up = depth[c] + 1, parent[up]
    scopes = [*plan.cliques, sorted(plan.factor_scopes[factor], key=rank.__getitem__)]
    clique_ptr, clique_var = ragged([list(c) for c in scopes])
    cliques = [frozenset(c) for c in scopes]
    separators = [cliques[c] & cliques[up] if up >= 0 else () for c, up in enumerate(parent)]
    separator_ptr, separator_var = ragged([sorted(s, key=rank.__getitem__) for s in separators])
    sets = plan.evidence_factor[len(cards) :].tolist()
    program = lower(cards, plan.factor_scopes, homes, parent, rank, sets=sets)
    sizes = [math.prod(cards[v] for v in s) for s in program.scopes]
    offsets, cells = lay_out(sizes, plan.n_factors, program.outs, program.posterior_table)
    return replace(
        plan, clique_ptr=clique_ptr, clique_var=clique_var, factor_clique=np.array(homes),
        clique_parent=np.array(parent), clique_depth=np.array(depth), separator_ptr=separator_ptr,
        separator_var=separator_var, **program_arrays(program, offsets, cells),
    )  # fmt: skip
