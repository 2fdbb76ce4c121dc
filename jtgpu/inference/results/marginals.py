"""`Posterior`, `Posteriors` and `CasePosteriors`: marginal distributions, labelled on access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import BatchResult
from ...model.network import DiscreteModel
from ..tables import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CasePosteriors", "Posterior", "Posteriors", "as_array"]


def as_array(array: NDArray[Any], dtype: Any, copy: bool | None) -> NDArray[Any]:
    """`array` as ``__array__`` must return it: the array itself, unless another dtype or a copy is requested."""
    if dtype is None or np.dtype(dtype) == array.dtype:
        return array.copy() if copy else array
    return array.astype(dtype)


def _not_a_target(model: DiscreteModel, v: int) -> KeyError:
    return KeyError(f"{model.variables[v]!r} is not among the targets of this query; add it to targets=")


class Posterior:
    """P(variable | evidence) of one variable.

    ``p["yes"]`` and ``p[0]`` give the probability of a state by name or number; ``numpy.asarray(p)`` gives all, in the
    order of the states.

    Attributes
    ----------
    variable : str
    states : tuple of str
        Names of the states, in order.
    probabilities : (n_states,) ndarray of float64
        Read-only; sums to 1.
    """

    __slots__ = ("probabilities", "states", "variable")

    def __init__(self, variable: str, states: tuple[str, ...], probabilities: NDArray[np.float64]):
        self.variable = variable
        self.states = states
        self.probabilities = probabilities

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return as_array(self.probabilities, dtype, copy)

    def __getitem__(self, state: str | int) -> float:
        """Return the probability of one state.

        Parameters
        ----------
        state : str or int
            Name or number of the state.

        Raises
        ------
        UnknownState
            If the variable has no such state; also a `KeyError`.
        """
        if isinstance(state, str) and self.states.count(state) == 1:
            return float(self.probabilities[self.states.index(state)])
        model = DiscreteModel({self.variable: self.states})
        return float(self.probabilities[model.state_index(0, state)])

    def __iter__(self) -> Iterator[float]:
        return iter(self.probabilities.tolist())

    def __len__(self) -> int:
        return len(self.states)

    def as_dict(self) -> dict[str, float]:
        """Return a dictionary from state name to probability. If two states share a name, it has the last one."""
        return dict(zip(self.states, self.probabilities.tolist(), strict=True))

    @property
    def mode(self) -> str:
        """Name of the most probable state; the first one in case of a tie."""
        return self.states[int(self.probabilities.argmax())]

    def __repr__(self) -> str:
        inner = ", ".join(f"{s}: {p:.6g}" for s, p in zip(self.states, self.probabilities.tolist(), strict=True))
        return f"P({self.variable}) = {{{inner}}}"


class Posteriors(Mapping[str, Posterior]):
    """Posteriors of several variables: a mapping from variable name to `Posterior`.

    Attributes
    ----------
    log_evidence : float
        ln P(evidence), 0 without evidence; for a Markov network, ln of the partition function.
    """

    def __init__(
        self,
        model: DiscreteModel,
        flat: NDArray[np.float64],
        ptr: NDArray[np.int64],
        log_evidence: float,
        targets: Sequence[int] | None = None,
    ):
        flat.flags.writeable = False
        self._model, self._flat, self._ptr = model, flat, ptr
        self._targets = None if targets is None else dict.fromkeys(targets)
        self.log_evidence = log_evidence

    def __getitem__(self, variable: str | int) -> Posterior:
        v = self._model.index(variable)
        if self._targets is not None and v not in self._targets:
            raise _not_a_target(self._model, v)
        return Posterior(
            self._model.variables[v], self._model.states(v), self._flat[self._ptr[v] : self._ptr[v + 1]]
        )

    def __iter__(self) -> Iterator[str]:
        ids: Iterable[int] = range(len(self._model)) if self._targets is None else self._targets
        return (self._model.variables[v] for v in ids)

    def __len__(self) -> int:
        return len(self._model) if self._targets is None else len(self._targets)

    def __repr__(self) -> str:
        return f"Posteriors of {len(self)} variables, log_evidence={self.log_evidence:.9g}"


class CasePosteriors(Mapping[str, "NDArray[np.float64]"]):
    """Posteriors of a table of B cases: a mapping from variable name to a (B, n_states) array of float64.

    Attributes
    ----------
    flat : (B, n) ndarray of float64
        All posteriors; the columns of each variable are contiguous, in the order of the mapping.
    log_evidence : (B,) ndarray of float64
        ln P(evidence) of each case; -inf if the case is impossible.
    impossible : (B,) ndarray of bool
        Cases whose evidence has probability zero; their posteriors are zeros.
    """

    def __init__(
        self,
        model: DiscreteModel,
        result: BatchResult,
        targets: Sequence[int] | None = None,
        table: Table | None = None,
    ):
        self._model, self._table = model, table
        self.flat, self.log_evidence, self.impossible = result.posterior, result.log_evidence, result.impossible
        self._columns: dict[int, slice] = {}  # of each variable in `flat`
        first = 0
        for v in range(len(model)) if targets is None else targets:
            end = first + int(model.cardinality[v])
            self._columns[v] = slice(first, end)
            first = end

    def __getitem__(self, variable: str | int) -> NDArray[np.float64]:
        v = self._model.index(variable)
        if v not in self._columns:
            raise _not_a_target(self._model, v)
        return self.flat[:, self._columns[v]]

    def __iter__(self) -> Iterator[str]:
        return (self._model.variables[v] for v in self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"CasePosteriors of {len(self)} variables in {len(self.flat)} cases"
