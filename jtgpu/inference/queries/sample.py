"""Exact samples of the posterior, and cells of a table filled in.

A sweep by sum towards the root, then states drawn from the root on, each from the slice of a table at the states drawn
before (Dawid 1992, see `mpe`): every sample is one of P(variables | evidence), none is thrown away or weighed, so
evidence of probability 1e-30 costs what any other does. All samples share the sweep, and slices that they meet again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .messages import CaseStates, messages_of, named
from .mpe import refuse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backends.forest import Uniforms
    from ...model.network import DiscreteModel
    from ..compiled import CompiledModel
    from ..evidence import KnownCases
    from ..interventions import Settled

__all__ = ["Samples", "impute", "sample"]


class Samples(CaseStates):
    """n samples; see `CaseStates`."""


class Imputed(CaseStates):
    """A table of cases without missing cells; see `CaseStates`.

    Attributes
    ----------
    missing : (B, V) bool
        Cells that were filled in.
    impossible : (B,) bool
        Cases of probability zero: their cells are -1.
    """

    def __init__(self, model: DiscreteModel, states: NDArray[np.int32], missing: NDArray[np.bool_]):
        super().__init__(model, states)
        self.missing = missing
        self.impossible: NDArray[np.bool_] = np.asarray((states < 0).any(axis=1))


def _uniforms(seed: Any, n_variables: int) -> Uniforms:
    generator = np.random.default_rng(seed)
    return lambda n: generator.random((n, n_variables))


def sample(tree: CompiledModel, settled: Settled, n: int, seed: Any) -> Samples:
    """See `jtgpu.JunctionTree.sample`."""
    if n < 0:
        raise ValueError(f"n is a number of samples, not {n!r}")
    sweep = messages_of(tree, settled.factors).summing()
    uniforms = _uniforms(seed, len(tree.model))
    return Samples(tree.model, named(tree, settled.case, lambda: sweep.draw(settled.case, n, uniforms)))


def impute(tree: CompiledModel, known: KnownCases, how: str, seed: Any, on_impossible: str) -> Imputed:
    """See `jtgpu.JunctionTree.impute`."""
    if how not in ("sample", "mpe"):
        raise ValueError(f"how is 'sample' or 'mpe', not {how!r}")
    messages = messages_of(tree, tree.intervened(known.cut).factors)
    if how == "mpe":
        filled = messages.maximal().best_rows(known.states, known.likelihood).states
    else:
        filled = messages.summing().draw_rows(known.states, known.likelihood, _uniforms(seed, len(tree.model)))
    found = Imputed(tree.model, filled, known.states < 0)
    refuse(tree, known, found.impossible, on_impossible)
    return found
