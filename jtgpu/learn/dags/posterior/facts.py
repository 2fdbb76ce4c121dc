"""`Facts` about the computation of a posterior, and the `Source` of its graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Source(Protocol):
    """Where graphs come from: an exact posterior, chains, or a file."""

    def graphs(self, n: int | None = None) -> NDArray[np.int64]:
        """Graphs as bits of the candidates, (T, C, n): T graphs of C chains, or of C groups of independent draws."""

    def property_of_graphs(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities of ``"path"`` or ``"compelled"`` for each pair, and standard errors: 0 where they are exact."""

    def parent_sets(self, v: int) -> list[tuple[tuple[int, ...], float, float]] | None:
        """Exact probabilities of the parent sets of a variable, the largest first; None if they are estimated."""

    def more(self, steps: int | None, seconds: float | None) -> Any:
        """A `StructurePosterior` after more steps."""


class Facts(NamedTuple):
    """What is known about the computation of a posterior."""

    method: str
    prior: str
    log_evidence: float | None = None
    converged: bool = True
    rhat: float = 1.0
    ess_samples: float = math.inf
    max_difference: float = 0.0
    n_steps: int = 0
    n_chains: int = 0
    n_samples: int = 0
    coverage: float | None = None
    low_coverage: str = ""
    candidates: dict[str, list[str]] | None = None
    moves: dict[str, float] | None = None
    notes: tuple[str, ...] = ()
    # betas, swap_rates: list of float: Levels of tempered chains, and the shares of accepted exchanges of neighbouring
    #     levels; else empty
    betas: Sequence[float] = ()
    swap_rates: Sequence[float] = ()
    shortfall: Sequence[str] = ()  # tuple of str: The criteria of convergence that chains do not meet

    def summary(self, largest_error: float) -> str:
        """How precise the posterior is, in one line."""
        if not self.n_chains:
            return "exact probabilities"
        text = f"largest standard error {largest_error:.4f}, R-hat {self.rhat:.3f}"
        if self.converged:
            return f"converged: {text}"
        return f"NOT converged ({'; '.join(self.shortfall)}): {text}" if self.shortfall else f"NOT converged: {text}"

    def describe(self, largest_error: float) -> list[str]:
        """How precise the posterior is, in some lines."""
        lines = []
        if self.n_chains:
            lines.append(
                f"{self.summary(largest_error)}, largest difference between halves of the chains "
                f"{self.max_difference:.4f}"
            )
            lines.append(
                f"{self.n_chains} chains of {self.n_steps:,} steps, {self.n_samples:,} samples after the burn-in, "
                f"effective samples {self.ess_samples:,.0f}"
            )
        if self.moves:
            lines.append("accepted: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.moves.items()))
        if self.betas:
            rates = ", ".join(f"{rate:.2f}" for rate in self.swap_rates)
            lines.append(
                f"tempered: {len(self.betas)} replicas of each chain, beta "
                f"{', '.join(f'{beta:.3g}' for beta in self.betas)}; exchanges accepted {rates}"
            )
        if self.candidates is not None:
            k = max(map(len, self.candidates.values()))
            coverage = "" if self.coverage is None else f", coverage at least {self.coverage:.4f}"
            lines.append(f"{k} candidate parents of each variable{coverage}")
        if self.low_coverage:
            lines.append(self.low_coverage)
        return [*lines, *self.notes]
