"""Cases of mixed networks whose weights are no ordinary numbers, one by one: mantissas and exponents of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.reference import ExtendedEvidence, Reference
from ..errors import EvidenceError
from ..inference.evidence_table import read_known_cases
from ..inference.queries.counts import counts_of_case, host_backend
from ..inference.queries.posteriors import Messages, messages_of
from ..inference.queries.reduced import question_backend
from .rows import extended

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..backends.base import Backend
    from ..inference.tree import JunctionTree
    from .evidence import MixedCases

    Floats = NDArray[np.float64]

WIDE = -(1 << 29)  # log2 of products of weights from which exponents of 32 bits do not suffice
WIDEST = -(1 << 38)  # and those of the reference


class ExtendedCase:
    """One of some cases with weights of sets of variables, relative to the largest of each set."""

    def __init__(self, tree: JunctionTree, sets: Sequence[tuple[int, ...]], cases: MixedCases, row: int, logs: Any):
        """`logs`: of each set, ln of the weights, (B, K)."""
        self.tree, model = tree, tree.model
        given = {model.variables[v]: w[row] for v, w in cases.likelihood.items()}
        known = read_known_cases(model, cases.states[[row]], given, do=cases.do or None)
        self._intervened = tree.intervened(known.intervened)  # keeps its numbers
        tables: list[tuple[int, Any, Any]] = [(v, *np.frexp(w[0])) for v, w in known.likelihood.items()]
        lowest = 0
        for scope, values in zip(sets, logs, strict=True):
            top = values[row].max()
            own = extended(values[row] - (top if np.isfinite(top) else 0.0))
            lowest += int(own[1].min())
            tables.append((self.number(scope), *(self._of_set(scope, x) for x in own)))
        if lowest < WIDEST:
            raise EvidenceError(
                "the numbers are so many standard deviations from their means that float64 cannot tell which states "
                "are more probable; check their units"
            )
        self._is_wide = lowest < WIDE
        weights: dict[int, Floats] = {}
        powers: dict[int, NDArray[np.int64]] = {}
        for v, mantissa, power in tables:
            weights[v] = weights.get(v, 1.0) * mantissa
            powers[v] = powers.get(v, 0) + np.asarray(power, np.int64)
        self._case = ExtendedEvidence(known.states[0], weights, powers)

    def number(self, scope: tuple[int, ...]) -> int:
        """The number of a variable, or of a set."""
        return scope[0] if len(scope) == 1 else self.tree.plan.sets.number(scope, "likelihood")

    def _of_set(self, scope: tuple[int, ...], cells: Any) -> Any:
        if len(scope) == 1:
            return cells
        shape = [int(self.tree.model.cardinality[v]) for v in scope]
        return self.tree.plan.sets.cells(self.number(scope), scope, cells.reshape(shape))

    @property
    def _messages(self) -> Messages:
        tree, factors = self.tree, self._intervened.factors
        if not self._is_wide:
            return messages_of(tree, factors)
        if tree.whole:
            return Messages(tree.plan.plan, factors, "reference")
        return Messages(None, factors, "reference", questions=question_backend(tree, factors, "reference"))

    def posteriors(self, targets: Sequence[int], sets: Sequence[tuple[int, ...]]) -> tuple[list[Floats], float]:
        """Posteriors of variables, and joint posteriors of sets, flat; and ln P(e)."""
        tree, factors = self.tree, self._intervened.factors
        backend: Backend
        if not self._is_wide:
            backend = host_backend(tree, factors)
        elif tree.whole:
            backend = Reference(tree.plan.plan, factors)
        else:
            backend = question_backend(tree, factors, "reference")
        result, ptr = backend.run(self._case, [*targets, *map(self.number, sets)]), backend.cell_ptr
        cells = {v: result.posterior[ptr[v] : ptr[v + 1]] for v in [*targets, *map(self.number, sets)]}
        joints = [
            cells[s[0]] if len(s) == 1 else tree.plan.sets.joint(v, s, cells[v]).ravel()
            for s, v in zip(sets, map(self.number, sets), strict=True)
        ]
        return [*(cells[v] for v in targets), *joints], result.log_evidence

    def counts(self) -> list[Floats]:
        """Expected counts of all variables' families."""
        factors = self._intervened.factors
        return counts_of_case(self._messages.derivative(), factors, self._case)[: len(self.tree.model)]

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """(n, V) states."""
        width = len(self.tree.model)
        return self._messages.summing().draw(self._case, n, lambda rows: rng.random((rows, width)))
