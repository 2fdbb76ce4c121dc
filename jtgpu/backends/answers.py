"""Evidence of cases, posteriors, counts and sessions: the records between the core and backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Evidence:
    """One case: what is known of the variables of one model."""
    state: NDArray[np.int32]  # (V,) observed state of each variable, -1 = not observed
    # variable -> (card,) weights >= 0; V + i, a set variable: (cells,) weights of the plan's set i, in its axis order
    likelihood: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def none(cls, n_variables: int) -> Evidence:
        """Nothing observed."""
        return cls(np.full(n_variables, -1, np.int32))

    def vectors(self, cardinality: NDArray[np.int64]) -> dict[int, NDArray[np.float64]]:
        """Evidence as a weight vector per variable, in ascending order; evidence on sets is left out."""
        by_variable = {int(v): np.asarray(w, np.float64) for v, w in self.likelihood.items() if v < len(cardinality)}
        for v in np.flatnonzero(self.state >= 0).tolist():
            hot = np.zeros(int(cardinality[v]))
            hot[self.state[v]] = 1.0
            by_variable[v] = hot * by_variable[v] if v in by_variable else hot
        return dict(sorted(by_variable.items()))


ROUNDING = 1e-12  # ln P(e) between 0 and this is a rounding error


def without_rounding(log_evidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln P(e) of cases, 0 where a rounding error makes it larger."""
    above = (log_evidence > 0.0) & (log_evidence < ROUNDING)
    return np.where(above, 0.0, log_evidence) if above.any() else log_evidence


@dataclass(frozen=True)
class Result:
    """Posteriors of one case."""
    posterior: NDArray[np.float64]  # (sum of cardinalities,) variable after variable, each summing to 1
    log_evidence: float  # natural logarithm of P(e) (of the partition function for a Markov network)

    def __post_init__(self) -> None:
        if 0.0 < self.log_evidence < ROUNDING:  # of P(e) = 1: no probability is above 1
            object.__setattr__(self, "log_evidence", 0.0)


class Session(Protocol):
    """Successive queries whose evidence changes little; see `Backend.session`."""

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """Propagate one case; see `Backend.run_case`."""

    def close(self) -> None:
        """Free the session's memory. May be called twice."""


class HeldCase(Protocol):
    """One case whose weights change from run to run; for one thread."""

    def set(self, v: int, weights: NDArray[np.float64]) -> None:
        """Replace the weights of a variable or set variable that had some, of all its cells; not all may be 0."""

    def run(self) -> float:
        """ln P(e) with the present weights; -inf if it is zero."""

    def cells(self, v: int) -> NDArray[np.float64]:
        """The posterior of a target as of the last run, which had P(e) > 0."""

    def close(self) -> None:
        """Free what is held."""
