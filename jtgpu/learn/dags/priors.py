"""Prior weights of parent sets, by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError
from ...util.arguments import described
from ...util.elementary import log, logs

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRIORS = ("uniform", "fair", "order", "edge")


class StructurePrior:
    """Prior weights of parent sets; a graph's weight is their product, not normalised.

    ``"uniform"`` weighs all graphs alike. ``"fair"`` weighs a set of k parents by 1 / C(n - 1, k), so that each number
    of parents has the same total. ``("edge", p)`` multiplies p / (1 - p) for each arc, where p is a number or an (n, n)
    matrix [parent, child]. ``"order"`` weighs a graph by the number of orders of the variables that it allows.
    """
    # name: One of `PRIORS`

    def __init__(self, name: str, log_odds: NDArray[np.float64] | None = None):
        self.name, self._log_odds = name, log_odds

    def log_weights(self, v: int, members: NDArray[np.int64], n: int) -> NDArray[np.float64]:
        """ln weight of parent sets of v."""
        # v, n: The child, and the number of variables
        # members: (M, k) ndarray of int64: Members of the sets, -1 where a set has fewer; not squeezed
        present = members >= 0
        if self.name == "fair":
            of_size = [-log(math.comb(n - 1, k)) for k in range(min(members.shape[1], n - 1) + 1)]
            return np.asarray(np.array(of_size)[present.sum(axis=1)], np.float64)
        if self._log_odds is not None:
            return np.asarray(np.where(present, self._log_odds[members, v], 0.0).sum(axis=1), np.float64)
        return np.zeros(len(members))

    def parts(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """ln weights of the number of parents, (n,), and of each arc, (n, n): a set's weight is their sum."""
        of_size = np.zeros(n)
        if self.name == "fair":
            of_size = np.array([-log(math.comb(n - 1, k)) for k in range(n)])
        return of_size, np.zeros((n, n)) if self._log_odds is None else self._log_odds


def make_prior(prior: Any, n: int) -> StructurePrior:
    """Check a prior over structures."""
    # prior: {"uniform", "fair", "order"} or ("edge", p)
    # n: Number of variables
    # raises ArgumentError: If there is no prior of that name, or a probability is not between 0 and 1.
    if isinstance(prior, str) and prior in ("uniform", "fair", "order"):
        return StructurePrior(prior)
    if isinstance(prior, tuple) and len(prior) == 2 and prior[0] == "edge":
        try:
            p = np.asarray(prior[1], np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(f"the probabilities of arcs must be numbers, not {described(prior[1])}") from None
        if p.shape not in ((), (n, n)):
            raise ArgumentError(f"the probabilities of arcs have shape {p.shape}; expected a number or ({n}, {n})")
        of_arcs = p if p.shape == () else p[~np.eye(n, dtype=np.bool_)]
        if not ((of_arcs > 0) & (of_arcs < 1)).all():
            raise ArgumentError("probabilities of arcs must be above 0 and below 1; else use forbidden= and required=")
        full = np.broadcast_to(p, (n, n)).copy()
        np.fill_diagonal(full, 0.5)
        return StructurePrior("edge", logs(full) - logs(1.0 - full))
    raise ArgumentError(f"prior must be 'uniform', 'fair', 'order' or ('edge', p), not {prior!r}")
