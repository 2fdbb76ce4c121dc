"""Most probable explanations: the k most probable configurations of all variables given the evidence.

A max-product sweep to the root, then states chosen from the root outwards, each from the slice of a table at the states
chosen before (Dawid, Applications of a general propagation algorithm for probabilistic expert systems, Statistics and
Computing 2, 1992). The answer is therefore one consistent configuration, also if several are equally probable; of
equally probable states the first is chosen. In contrast, the most probable states of the individual posteriors may be
impossible as a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...backends.base import Evidence
from ...errors import ImpossibleEvidence
from ...model.network import DiscreteModel
from ..evidence import KnownCases
from ..results.configurations import CaseExplanations, Explanation
from ..tables import at_row
from .messages import messages_of, named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..compiled import CompiledModel
    from ..interventions import Settled

__all__ = ["check_k", "evidence_of", "explanations", "mpe", "mpe_batch", "raise_if_impossible"]


class _Once:
    """A number that is computed on first use."""

    def __init__(self, compute: Callable[[], float]):
        self._compute: Callable[[], float] | None = compute
        self._value = 0.0

    def __call__(self) -> float:
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        return self._value


def explanations(
    model: DiscreteModel,
    states: NDArray[np.int32],
    log_joint: NDArray[np.float64],
    log_evidence: Callable[[], float],
    variables: Sequence[int] | None = None,
) -> Explanation:
    """The most probable of some configurations, with all of them in its ``ranked``.

    Parameters
    ----------
    model : DiscreteModel
    states : (k, V) array of int32
    log_joint : (k,) array of float64
        ln P(configuration, evidence).
    log_evidence : callable
        Computes ln P(evidence); called at most once.
    variables : sequence of int, optional
        The variables of the query. Default: all.
    """
    once = _Once(log_evidence)
    # rounding may have swapped two configurations that are equally probable
    order = np.argsort(-log_joint, kind="stable")
    found = tuple(Explanation(model, states[i].copy(), float(log_joint[i]), once, variables) for i in order)
    for one in found:
        one.ranked = found
    return found[0]


def mpe(tree: CompiledModel, settled: Settled, k: int) -> Explanation:
    """See `jtgpu.JunctionTree.mpe`."""
    check_k(k)
    sweep = messages_of(tree, settled.factors).maximal()
    best = named(tree, settled.case, lambda: sweep.best(settled.case, k))
    log_joint = sweep.score(best.states, settled.case) + settled.log_shift
    return explanations(tree.model, best.states, log_joint, evidence_of(tree, settled))


def check_k(k: int) -> None:
    """Raise `ValueError` unless `k` is a number of explanations."""
    if k < 1:
        raise ValueError(f"k, the number of explanations, must be at least 1, got {k!r}")


def evidence_of(tree: CompiledModel, settled: Settled) -> Callable[[], float]:
    """A function that computes ln P(evidence)."""
    return lambda: tree.answer(settled.backend.run, settled.case, []).log_evidence + settled.log_shift


def mpe_batch(tree: CompiledModel, known: KnownCases, on_impossible: str) -> CaseExplanations:
    """See `jtgpu.JunctionTree.mpe_batch`."""
    sweep = messages_of(tree, tree.intervened(known.intervened).factors).maximal()
    best = sweep.best_rows(known.states, known.likelihood)
    impossible = np.isneginf(best.log_value)
    raise_if_impossible(tree, known, impossible, on_impossible)
    return CaseExplanations(tree.model, best.states, best.log_value, known.table)


def raise_if_impossible(
    tree: CompiledModel, known: KnownCases, impossible: NDArray[np.bool_], on_impossible: str
) -> None:
    """Raise `ImpossibleEvidence` for the first impossible case of a table, unless ``on_impossible="flag"``."""
    if on_impossible not in ("error", "flag"):
        raise ValueError(f"on_impossible must be 'error' or 'flag', got {on_impossible!r}")
    if on_impossible == "flag" or not impossible.any():
        return
    row = int(np.argmax(impossible))

    def fail() -> None:
        raise ImpossibleEvidence("the evidence has probability 0")

    try:
        named(tree, Evidence(known.states[row], {v: w[row] for v, w in known.likelihood.items()}), fail)
    except ImpossibleEvidence as error:
        raise ImpossibleEvidence(at_row(known.table, row, str(error))) from None
