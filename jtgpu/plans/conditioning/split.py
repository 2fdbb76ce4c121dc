"""A network in which some variables, observed in every case, are taken apart: each factor has a copy of its own.

All copies of a variable are observed in its state, so the answers are those of the network; and since a copy stands in
one factor, it connects nothing: the graph is what is left of the network's own one without these variables. A plan for
it depends on which variables are observed, not on their states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...backends.base import Backend, BatchResult, Evidence, Result, Session, columns_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...model.network import MarkovNetwork

__all__ = ["Apart", "ApartBackend"]


class Apart:
    """Which new variable stands for which.

    Parameters
    ----------
    cardinality : (V,) int64
    scopes : sequence of sequences of int
        Of the factors.
    seen : (V,) bool
        What is observed in every case.

    Attributes
    ----------
    of : (W,) int64
        The variable that a new one stands for.
    first : (V,) int64
        A new one that stands for a variable; the only one of those that are not `seen`.
    scopes : list of list of int
        Of the factors, in new variables.
    """

    def __init__(self, cardinality: NDArray[np.int64], scopes: Sequence[Sequence[int]], seen: NDArray[np.bool_]):
        self.cardinality, self.seen = cardinality, seen
        of: list[int] = []
        first = np.full(len(cardinality), -1, np.int64)
        self.scopes: list[list[int]] = []
        for scope in scopes:
            new = []
            for v in scope:
                if seen[v] or first[v] < 0:
                    if first[v] < 0:
                        first[v] = len(of)
                    new.append(len(of))
                    of.append(v)
                else:
                    new.append(int(first[v]))
            self.scopes.append(new)
        for v in np.flatnonzero(first < 0).tolist():  # in no factor at all
            first[v] = len(of)
            of.append(v)
        self.of, self.first = np.array(of, np.int64), first

    def model(self, factors: Sequence[NDArray[np.float64]]) -> MarkovNetwork:
        """The network taken apart; shares the factors' numbers."""
        from ...model.network import Factor, MarkovNetwork

        states = {str(i): list(map(str, range(n))) for i, n in enumerate(self.cardinality[self.of].tolist())}
        return MarkovNetwork.of_checked(
            states, [Factor(tuple(scope), table) for scope, table in zip(self.scopes, factors, strict=True)]
        )


class ApartBackend:
    """A backend of the network taken apart, asked about the variables of the network as it was.

    Parameters
    ----------
    apart : Apart
    backend : Backend
        Of a plan of ``apart.model(...)``; closed with this one.
    """

    def __init__(self, apart: Apart, backend: Backend):
        self.apart, self.backend = apart, backend
        cards = apart.cardinality
        ptr, new_ptr = (np.concatenate([[0], np.cumsum(c)]).astype(np.int64) for c in (cards, cards[apart.of]))
        others = ~apart.seen
        self._n_cells = int(ptr[-1])
        self._cells = columns_of(ptr, np.flatnonzero(others).tolist())
        self._new_cells = columns_of(new_ptr, apart.first[others].tolist())
        self._hard = np.flatnonzero(apart.seen)
        self._hard_cells = ptr[self._hard]

    def targets(self, targets: Sequence[int] | None) -> list[int]:
        """The new variables that have to be asked for: none that is observed in every case."""
        seen, first = self.apart.seen, self.apart.first
        asked = np.flatnonzero(~seen) if targets is None else np.array([*targets], np.int64)
        return list(dict.fromkeys(first[asked[~seen[asked]]].tolist()))

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None, session: Session | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`; `session`: one of the backend's to ask in its place."""
        first = self.apart.first
        case = Evidence(evidence.state[self.apart.of], {int(first[v]): w for v, w in evidence.likelihood.items()})
        found = (self.backend if session is None else session).run(case, self.targets(targets))
        posterior = np.zeros(self._n_cells)
        posterior[self._cells] = found.posterior[self._new_cells]
        posterior[self._hard_cells + evidence.state[self._hard]] = 1.0
        return Result(posterior, found.log_evidence)

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`."""
        apart, asked = self.apart, self.targets(targets)
        weights = {int(apart.first[v]): w for v, w in (likelihood or {}).items()}
        found = self.backend.run_batch(np.ascontiguousarray(states[:, apart.of]), weights, asked)
        cards = apart.cardinality
        begins = np.cumsum([0, *cards[apart.of[asked]].tolist()]).tolist()
        at = dict(zip(asked, begins, strict=False))
        wanted = range(len(cards)) if targets is None else targets
        posterior = np.zeros((len(states), int(sum(cards[v] for v in wanted))))
        rows = np.flatnonzero(~found.impossible)
        column = 0
        for v in wanted:
            card = int(cards[v])
            if apart.seen[v]:
                posterior[rows, column + states[rows, v]] = 1.0
            else:
                begin = at[int(apart.first[v])]
                posterior[:, column : column + card] = found.posterior[:, begin : begin + card]
            column += card
        return BatchResult(posterior, found.log_evidence, found.impossible)

    def close(self) -> None:
        """Give memory back."""
        self.backend.close()
