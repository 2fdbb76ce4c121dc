"""Exact samples of the posterior distribution, and imputation of missing cells.

A sum-product sweep to the root, then states drawn from the root outwards, each from the slice of a table at the states
drawn before (Dawid 1992, see `mpe`). Every sample is a draw from P(variables | evidence): none is rejected or weighted,
so samples cost the same however improbable the evidence is. All samples share the sweep, and slices that recur.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..results.configurations import Imputed, Samples
from .messages import messages_of, named
from .mpe import raise_if_impossible

if TYPE_CHECKING:
    from ...backends.sweep import Uniforms
    from ..compiled import CompiledModel
    from ..evidence import KnownCases
    from ..interventions import Settled

__all__ = ["impute", "sample"]


def _uniforms(seed: Any, n_variables: int) -> Uniforms:
    generator = np.random.default_rng(seed)
    return lambda n: generator.random((n, n_variables))


def sample(tree: CompiledModel, settled: Settled, n: int, seed: Any) -> Samples:
    """See `jtgpu.JunctionTree.sample`."""
    if n < 0:
        raise ValueError(f"n, the number of samples, must not be negative, got {n!r}")
    sweep = messages_of(tree, settled.factors).summing()
    uniforms = _uniforms(seed, len(tree.model))
    return Samples(tree.model, named(tree, settled.case, lambda: sweep.draw(settled.case, n, uniforms)))


def impute(tree: CompiledModel, known: KnownCases, how: str, seed: Any, on_impossible: str) -> Imputed:
    """See `jtgpu.JunctionTree.impute`."""
    if how not in ("sample", "mpe"):
        raise ValueError(f"how must be 'sample' or 'mpe', got {how!r}")
    messages = messages_of(tree, tree.intervened(known.intervened).factors)
    if how == "mpe":
        filled = messages.maximal().best_rows(known.states, known.likelihood).states
    else:
        filled = messages.summing().draw_rows(known.states, known.likelihood, _uniforms(seed, len(tree.model)))
    found = Imputed(tree.model, filled, known.states < 0, known.table)
    raise_if_impossible(tree, known, found.impossible, on_impossible)
    return found
