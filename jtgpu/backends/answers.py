"""Evidence of cases, posteriors, counts and sessions: the records between the core and backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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


@dataclass(frozen=True)
class BatchResult:
    """Posteriors of a table of B cases. A case whose evidence has probability zero is flagged, not fatal."""

    posterior: NDArray[np.float64]  # (B, sum of the targets' cardinalities), target after target; 0 if impossible
    log_evidence: NDArray[np.float64]  # (B,) natural logarithms of P(e); -inf if impossible
    impossible: NDArray[np.bool_]  # (B,)


@dataclass(frozen=True)
class ColumnResult:
    """A `BatchResult` by columns: each column of a frame is one piece of memory."""
    posterior: NDArray[np.float64]  # (sum of the targets' cardinalities, B), target after target; 0 if impossible
    log_evidence: NDArray[np.float64]  # (B,) natural logarithms of P(e); -inf if impossible
    impossible: NDArray[np.bool_]  # (B,)


@dataclass(frozen=True)
class Counts:
    """Expected counts of every family, summed over a table of cases; one of probability zero adds nothing."""

    # ``sum_b weight[b] * P(x | case b)``: one array a factor, of the factor's shape, in the order of plan.factor_var
    families: list[NDArray[np.float64]]
    log_evidence: NDArray[np.float64]  # (B,) natural logarithms of P(e); -inf if impossible
    impossible: NDArray[np.bool_]  # (B,)


@dataclass(frozen=True)
class CountSums:
    """Expected counts of a table of cases that a backend holds; see `HeldCases`."""
    families: list[NDArray[np.float64]]  # as of `Counts`
    log_likelihood: float  # sum of ln P(e) times weight over the possible cases
    n_impossible: int  # cases of probability zero


class HeldCases(Protocol):
    """A table of cases in a backend's memory, whose expected counts are wanted repeatedly; see `Backend.hold_cases`."""

    def sums(self) -> CountSums:
        """Expected counts with the present numbers."""

    def log_evidence(self) -> NDArray[np.float64]:
        """(B,) ln P(e) of each case as of the last `sums`; -inf if impossible."""

    def close(self) -> None:
        """Free the memory. May be called twice."""


@dataclass(frozen=True)
class DeviceResult:
    """Posteriors of a table of B cases in the memory of a device, as arrays with ``__dlpack__`` and ``to_host()``."""

    posterior: Any  # (B, sum of the targets' cardinalities) float64, target after target; 0 if impossible
    log_evidence: Any  # (B,) float64; -inf if impossible
    device_us: float = 0.0  # microseconds that the kernels took


class Session(Protocol):
    """Successive queries whose evidence changes little; see `Backend.session`."""

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """Propagate one case; see `Backend.run_case`."""

    def close(self) -> None:
        """Free the session's memory. May be called twice."""


# variable -> finite weights >= 0, (B, card); ones where a case has none; a set variable: (B, cells)
Likelihood = Mapping[int, "NDArray[np.float64]"]


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
