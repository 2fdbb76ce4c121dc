"""The definition: the plan's contractions one after the other, in NumPy float64, with nothing clever.

The fast backends are held to what this one answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ImpossibleEvidence
from ..plan import POSTERIOR, Plan
from .base import CaseByCase, Evidence, Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Reference", "contract", "prepare"]


def contract(
    tables: Sequence[NDArray[np.float64]], scopes: Sequence[Sequence[int]], out: Sequence[int]
) -> NDArray[np.float64]:
    """``out[s] = sum_r prod_t tables[t][r, s]``: the one primitive of propagation.

    Parameters
    ----------
    tables : float64 arrays
    scopes : sequences of int
        Variables of each table's axes.
    out : sequence of int
        Variables of the result's axes; the others are summed out.
    """
    # einsum takes at most 52 labels and 32 axes; axes of length one need neither
    wide = sorted({v for t, s in zip(tables, scopes, strict=True) for v, n in zip(s, t.shape, strict=True) if n > 1})
    label = {v: i for i, v in enumerate(wide)}
    operands: list[Any] = []
    for table, scope in zip(tables, scopes, strict=True):
        operands += [table.reshape([n for n in table.shape if n > 1]), [label[v] for v in scope if v in label]]
    result = np.einsum(*operands, [label[v] for v in out if v in label])
    shape = {v: n for t, s in zip(tables, scopes, strict=True) for v, n in zip(s, t.shape, strict=True)}
    return np.asarray(result, np.float64).reshape([shape[v] for v in out])


def _scaled(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """The table divided by the power of two that brings its largest entry into [0.5, 1), and the exponent."""
    top = float(table.max())
    if not top > 0:
        raise ImpossibleEvidence("the evidence has probability 0")
    shift = math.frexp(top)[1]
    return np.ldexp(table, -shift), shift


class Reference(CaseByCase):
    """`jtgpu.backends.base.Backend` in NumPy. Every table is scaled by a power of two, which rounds nothing."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]]):
        self._plan = plan
        self._factors = [
            np.transpose(table, [scope.index(v) for v in axes])
            for table, scope, axes in zip(factors, plan.factor_scopes, plan.table_scopes, strict=False)
        ]  # in axis order

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`; answers every variable whatever the targets."""
        plan = self._plan
        tables, exponent = {}, {}  # table t stands for tables[t] * 2**exponent[t]
        for f, factor in enumerate(self._factors):
            tables[f], exponent[f] = _scaled(factor)
        for v, given in evidence.vectors(plan.cardinality).items():
            f = int(plan.evidence_factor[v])
            axes = [1] * len(plan.table_scopes[f])
            axes[plan.table_scopes[f].index(v)] = -1
            weights, shift = _scaled(given)
            tables[f], more = _scaled(tables[f] * weights.reshape(axes))
            exponent[f] += shift + more
        posterior = np.empty(int(plan.posterior_ptr[-1]))
        variable = {int(t): v for v, t in enumerate(plan.posterior_table)}
        for kind, out, ins in zip(plan.op_kind.tolist(), plan.op_out.tolist(), plan.op_inputs, strict=True):
            scopes = [plan.table_scopes[t] for t in ins]
            tables[out], shift = _scaled(contract([tables[t] for t in ins], scopes, plan.table_scopes[out]))
            exponent[out] = shift + sum(exponent[t] for t in ins)
            if kind == POSTERIOR:
                v = variable[out]
                posterior[plan.posterior_ptr[v] : plan.posterior_ptr[v + 1]] = tables[out] / tables[out].sum()
        log_evidence = sum(
            math.log(float(tables[t])) + exponent[t] * math.log(2.0) for t in plan.root_table.tolist()
        )
        return Result(posterior, log_evidence)

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        self._factors = []


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Reference:
    """See `jtgpu.backends.base.Prepare`."""
    return Reference(plan, factors)
