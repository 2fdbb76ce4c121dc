"""`ExpectedCounts`: the distributions of families, summed over a table of cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...model.network import DiscreteModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ExpectedCounts"]


class ExpectedCounts(Mapping[str, "NDArray[np.float64]"]):
    """Expected counts of a table of B cases: a mapping from variable to an array of the shape of its CPT.

    Parameters
    ----------
    model : DiscreteModel
    families : list of arrays
        One array a factor.
    variables : sequence of int
        The variables of the mapping.
    weights, log_evidence, impossible : (B,) ndarrays

    Attributes
    ----------
    log_evidence : (B,) ndarray of float64
        ln P(case); -inf for a case of probability zero, which adds nothing to the counts.
    impossible : (B,) ndarray of bool
        Cases of probability zero.
    log_likelihood : float
        Weighted sum of `log_evidence` over the possible cases.
    rows : int
        Number of cases, B.
    """

    def __init__(
        self,
        model: DiscreteModel,
        families: list[NDArray[np.float64]],
        variables: tuple[int, ...],
        weights: NDArray[np.float64],
        log_evidence: NDArray[np.float64],
        impossible: NDArray[np.bool_],
    ):
        self.model, self.log_evidence, self.impossible = model, log_evidence, impossible
        self._families = {model.variables[v]: families[v] for v in variables}
        possible = ~impossible
        self.log_likelihood = float((weights[possible] * log_evidence[possible]).sum())
        self.rows = len(log_evidence)

    def __getitem__(self, variable: str | int) -> NDArray[np.float64]:
        name = self.model.variables[self.model.index(variable)]
        return self._families[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)

    def __repr__(self) -> str:
        return f"ExpectedCounts({len(self)} variables, {self.rows:,} cases, ln P = {self.log_likelihood:.6g})"
