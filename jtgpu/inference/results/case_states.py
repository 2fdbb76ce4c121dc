"""`CaseStates`: configurations of the variables for a table of cases; explanations, samples and filled-in cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...columns import Table
from ...errors import ArgumentError
from ...model.discrete import DiscreteModel
from ...util.lazy_sequence import LazySequence
from .frames import unused_name
from .interval_numbers import draw_inside
from .result import ByVariable, CaseResult, as_array

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CaseStates(CaseResult, ByVariable["NDArray[Any]"]):
    """A table of n full configurations: a mapping from variable name to the names of its states, (n,).

    ``rows.to_frame()`` makes a data frame of state names; cells of impossible cases are null. ``numpy.asarray(rows)``
    and ``pandas.DataFrame(rows)``, in which the names would be lost, are errors; ``numpy.asarray(rows, int)`` gives
    ``states``.

    Attributes
    ----------
    states : (n, V) ndarray of int32
        State numbers, variables in the order of the model; -1 in every cell of an impossible case.
    numbers : dict of str to (n,) ndarray
        Numbers inside intervals, with ``numbers=True``.
    """

    _targets = None

    def __init__(self, model: DiscreteModel, states: NDArray[np.int32], table: Table | None = None):
        self._model, self._labels, self._cases = model, model.labels, table
        self.states = states
        self.numbers: dict[str, NDArray[np.float64]] = {}

    def with_numbers(self, seed: Any) -> Self:
        """Draw numbers in the place of states that are intervals."""
        self.numbers = draw_inside(self._model, self.states, seed, self._cases)
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if dtype is None:  # called by pandas.DataFrame, too
            raise ArgumentError(
                f"an array of {type(self).__name__} would lose the names of variables and states: use .to_frame() for "
                "a data frame, or .states for state numbers"
            )
        return as_array(self.states, dtype, copy)

    def _part(self, v: int) -> NDArray[Any]:
        """Names of one variable's states, (n,) ndarray of object; None in impossible cases."""
        if self._model.variables[v] in self.numbers:
            return self.numbers[self._model.variables[v]].copy()
        labels = np.array([*self._model.states(v), None], object)  # -1 is the last one
        column: NDArray[Any] = labels[self.states[:, v]]
        return column

    def _columns(self) -> dict[str, Any]:
        return {name: self._column(v) for v, name in enumerate(self._model.variables)}

    def _column(self, v: int) -> Any:
        if self._model.variables[v] in self.numbers:
            return self._part(v)
        labels = [*self._model.states(v), None]
        return LazySequence(len(self.states), lambda i: labels[self.states[i, v]], lambda: self._part(v))

    def _title(self) -> str:
        return f"{type(self).__name__} of {len(self)} variables in {len(self.states)} rows"


class CaseExplanations(CaseStates):
    """Most probable explanations of a table of B cases; see `CaseStates`. Its data frame has ``log_joint``, too.

    Attributes
    ----------
    log_joint : (B,) ndarray of float64
        ln P(configuration, case); -inf for an impossible case.
    impossible : (B,) ndarray of bool
        Cases of probability zero.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> best = tree.mpe_batch([{"xray": "yes"}, {"xray": "no"}])
    >>> best["lung"].tolist()
    ['yes', 'no']
    """

    def __init__(
        self,
        model: DiscreteModel,
        states: NDArray[np.int32],
        log_joint: NDArray[np.float64],
        table: Table | None = None,
    ):
        super().__init__(model, states, table)
        self.log_joint = log_joint
        self.impossible = np.isneginf(log_joint)

    def _columns(self) -> dict[str, Any]:
        columns = super()._columns()
        return columns | {unused_name("log_joint", columns): self.log_joint}


class Samples(CaseStates):
    """Samples of the posterior distribution; see `CaseStates`.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> samples = tree.sample(3, {"xray": "yes"}, seed=1)
    >>> samples["smoke"].tolist()
    ['yes', 'no', 'yes']
    """


class Imputed(CaseStates):
    """A table of B cases whose missing cells have been filled in; see `CaseStates`.

    The data frame has the columns of the cases in their order, those that are not variables as they were, then the
    variables that the cases do not have.

    Attributes
    ----------
    missing : (B, V) ndarray of bool
        Cells that were filled in.
    impossible : (B,) ndarray of bool
        Cases of probability zero; their cells are -1.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> full = tree.impute([{"smoke": "yes", "xray": None}], seed=1)
    >>> full["xray"].tolist()
    ['no']
    """

    _is_filled_in = True

    def __init__(
        self,
        model: DiscreteModel,
        states: NDArray[np.int32],
        missing: NDArray[np.bool_],
        table: Table | None = None,
    ):
        super().__init__(model, states, table)
        self.missing = missing
        self.impossible: NDArray[np.bool_] = np.asarray((states < 0).any(axis=1))
