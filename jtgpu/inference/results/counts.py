"""`ExpectedCounts`: the distributions of families, summed over a table of cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...model.network import BayesianNetwork
from .frames import make_frame, to_frame_method
from .marginals import distinct_names
from .printed import Lazy, Printed, state_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ExpectedCounts"]


class ExpectedCounts(Printed, Mapping[str, "NDArray[np.float64]"]):
    """Expected counts of a table of B cases: a mapping from variable to an array of the shape of its CPT.

    Parameters
    ----------
    model : BayesianNetwork
    families : list of ndarray
        Counts of each family, in the order of the model's variables.
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
        model: BayesianNetwork,
        families: list[NDArray[np.float64]],
        variables: tuple[int, ...],
        weights: NDArray[np.float64],
        log_evidence: NDArray[np.float64],
        impossible: NDArray[np.bool_],
    ):
        self._model, self.log_evidence, self.impossible = model, log_evidence, impossible
        self._families = {v: families[v] for v in variables}
        possible = ~impossible
        self.log_likelihood = float((weights[possible] * log_evidence[possible]).sum())
        self.rows = len(log_evidence)

    def __getitem__(self, variable: str | int) -> NDArray[np.float64]:
        v = self._model.index(variable)
        if v not in self._families:
            raise KeyError(
                f"{self._model.variables[v]!r} is not among the variables of this query; add it to variables="
            )
        return self._families[v]

    def __iter__(self) -> Iterator[str]:
        return (self._model.variables[v] for v in self._families)

    def __len__(self) -> int:
        return len(self._families)

    @to_frame_method
    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with a row for each entry of each CPT.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame; also any other one that narwhals supports. Default: pandas.

        Returns
        -------
        data frame
            The columns ``variable``, ``given``, ``state`` and ``count``, in the order of the CPTs' entries. ``given``
            is the configuration of the parents, such as ``"smoke = yes, tub = no"``, empty for variables without
            parents.
        """
        columns: dict[str, list[Any]] = {"variable": [], "given": [], "state": []}
        for v, counts in self._families.items():
            n_states = counts.shape[-1]
            n_rows = counts.size // n_states
            columns["variable"] += [self._model.variables[v]] * counts.size
            columns["given"] += [text for row in range(n_rows) for text in [self._given(v, row)] * n_states]
            columns["state"] += distinct_names(self._model.states(v)) * n_rows
        flat = [counts.ravel() for counts in self._families.values()]
        return make_frame({**columns, "count": np.concatenate([*flat, np.zeros(0)])}, backend)

    def _given(self, v: int, row: int) -> str:
        """The configuration of the parents of a row of a CPT."""
        parents, at = self._model.parents(v), np.unravel_index(row, self._families[v].shape[:-1])
        return ", ".join(
            f"{p} = {distinct_names(self._model.states(p))[int(i)]}" for p, i in zip(parents, at, strict=True)
        )

    def _title(self) -> str:
        return (
            f"ExpectedCounts of {len(self)} variables in {self.rows:,} cases, log_likelihood={self.log_likelihood:.9g}"
        )

    def _table(self) -> tuple[list[str], list[Any], int]:
        """A row for each row of each CPT."""
        model, families = self._model, self._families
        ids = [*families]
        first = np.concatenate([[0], np.cumsum([c.size // c.shape[-1] for c in families.values()], dtype=np.int64)])
        n = int(first[-1])

        def place(i: int) -> tuple[int, int]:  # of a row of the table: its variable and the row of its CPT
            at = int(np.searchsorted(first, i, side="right")) - 1
            return ids[at], i - int(first[at])

        def counts(i: int) -> NDArray[np.float64]:
            v, row = place(i)
            found: NDArray[np.float64] = families[v].reshape(-1, families[v].shape[-1])[row]
            return found

        columns = [
            Lazy(n, lambda i: model.variables[place(i)[0]]),
            Lazy(n, lambda i: self._given(*place(i))),
            *state_columns(n, lambda i: distinct_names(model.states(place(i)[0])), counts),
        ]
        return [""] * len(columns), columns, 2
