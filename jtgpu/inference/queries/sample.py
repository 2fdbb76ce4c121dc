"""Exact samples of the posterior distribution, and imputation of missing cells.

A sum-product sweep to the root, then states drawn from the root outwards, each from the slice of a table at the states
drawn before (Dawid 1992, see `mpe`). Every sample is a draw from P(variables | evidence): none is rejected or weighted,
so samples cost the same however improbable the evidence is. All samples share the sweep, and slices that recur.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, TableTooLarge, format_bytes
from ...util.arguments import choice, described, whole_number
from ...util.system import free_memory
from ..results.configurations import Imputed, Samples
from .messages import messages_of, named
from .mpe import raise_if_impossible

if TYPE_CHECKING:
    from ...backends.sweep import Uniforms
    from ..compiled import CompiledModel
    from ..evidence import KnownCases
    from ..interventions import Settled

ALWAYS_FREE = 1 << 24  # bytes that are allocated without a look at the free memory
MEMORY_SHARE = 0.8  # of the free memory


def _uniforms(seed: Any, n_variables: int) -> Uniforms:
    try:
        generator = np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"seed must be None, an integer of at least 0, or a numpy.random.Generator, not {described(seed)}"
        ) from None
    return lambda n: generator.random((n, n_variables))


def _check_memory(n: int, n_variables: int) -> None:
    """Raise `TableTooLarge` for more samples than fit into the free memory."""
    needed = 4 * n * n_variables
    if needed <= ALWAYS_FREE:
        return
    free = int(MEMORY_SHARE * free_memory())
    if needed > free:
        raise TableTooLarge(
            f"n={n:,} samples of {n_variables} variables need {format_bytes(needed)}, more than the "
            f"{format_bytes(free)} that are free (80 % of the free memory); draw at most {free // (4 * n_variables):,} "
            "in one call, from a numpy.random.Generator as the seed of all calls, or write any number to a file with "
            "jtgpu sample",
            n * n_variables,
            needed,
            free,
        )


def sample(tree: CompiledModel, settled: Settled, n: int, seed: Any) -> Samples:
    n = whole_number("n", n, least=0)
    _check_memory(n, len(tree.model))
    sweep = messages_of(tree, settled.factors).summing()
    uniforms = _uniforms(seed, len(tree.model))
    return Samples(tree.model, named(tree, settled.case, lambda: sweep.draw(settled.case, n, uniforms)))


def impute(tree: CompiledModel, known: KnownCases, how: str, seed: Any, on_impossible: str) -> Imputed:
    choice("how", how, ("sample", "mpe"))
    messages = messages_of(tree, tree.intervened(known.intervened).factors)
    if how == "mpe":
        filled = messages.maximal().best_rows(known.states, known.likelihood).states
    else:
        filled = messages.summing().draw_rows(known.states, known.likelihood, _uniforms(seed, len(tree.model)))
    found = Imputed(tree.model, filled, known.states < 0, known.table)
    raise_if_impossible(tree, known, found.impossible, on_impossible)
    return found
