"""The seam between what users hold and what computes: `Evidence` in, `Result` out, integers and floats only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..plan import Plan

__all__ = ["Backend", "Evidence", "Prepare", "Result"]


@dataclass(frozen=True)
class Evidence:
    """One case: what is known of the variables of one model."""

    state: NDArray[np.int32]  # (V,) observed state of each variable, -1 = not observed
    likelihood: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # variable -> (card,) weights >= 0

    @classmethod
    def none(cls, n_variables: int) -> Evidence:
        """Nothing observed."""
        return cls(np.full(n_variables, -1, np.int32))

    def vectors(self, cardinality: NDArray[np.int64]) -> dict[int, NDArray[np.float64]]:
        """Everything known as one weight vector a variable (hard evidence one-hot), by ascending variable."""
        found = {int(v): np.asarray(w, np.float64) for v, w in self.likelihood.items()}
        for v in np.flatnonzero(self.state >= 0).tolist():
            hot = np.zeros(int(cardinality[v]))
            hot[self.state[v]] = 1.0
            found[v] = hot * found[v] if v in found else hot
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class Result:
    """Posteriors of one case."""

    posterior: NDArray[np.float64]  # (sum of cardinalities,) variable after variable, each summing to 1
    log_evidence: float  # natural logarithm of P(e) (of the partition function for a Markov network)


class Backend(Protocol):
    """A plan and a model's numbers, ready to run; made by a backend module's ``prepare``."""

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """Propagate one case.

        Parameters
        ----------
        evidence : Evidence
        targets : sequence of int, optional
            Variables whose posteriors are wanted; the others' cells of the result are then undefined. None: all.

        Raises
        ------
        ImpossibleEvidence
            When P(e) = 0.
        """

    def close(self) -> None:
        """Give memory back; the object answers no more. May be called twice."""


class Prepare(Protocol):
    """What a backend module's ``prepare`` looks like."""

    def __call__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Backend:
        """`factors`: the model's tables in the order and the axes of ``plan.factor_var``."""
