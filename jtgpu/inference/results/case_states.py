"""`CaseStates`: configurations of the variables for a table of cases; explanations, samples and filled-in cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...columns import Table
from ...errors import ArgumentError
from ...model.discrete import DiscreteModel
from .interval_numbers import draw_inside
from .printed import LazySequence, Printed, as_array, make_frame, row_labels, unused_name

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CaseStates(Printed, Mapping[str, "NDArray[Any]"]):
    """A table of n full configurations: a mapping from variable name to the names of its states, (n,).

    ``rows.to_frame()`` makes a data frame of state names. ``numpy.asarray(rows)`` and ``pandas.DataFrame(rows)``, in
    which the names would be lost, are errors; ``numpy.asarray(rows, int)`` gives ``states``.

    Attributes
    ----------
    states : (n, V) ndarray of int32
        State numbers, variables in the order of the model; -1 in every cell of an impossible case.
    numbers : dict of str to (n,) ndarray
        Numbers inside intervals, with ``numbers=True``.
    """

    def __init__(self, model: DiscreteModel, states: NDArray[np.int32], table: Table | None = None):
        self._model, self._table_of_cases = model, table
        self.states = states
        self.numbers: dict[str, NDArray[np.float64]] = {}

    def with_numbers(self, seed: Any) -> Self:
        """Draw numbers in the place of states that are intervals."""
        self.numbers = draw_inside(self._model, self.states, seed, self._table_of_cases)
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if dtype is None:  # called by pandas.DataFrame, too
            raise ArgumentError(
                f"an array of {type(self).__name__} would lose the names of variables and states: use .to_frame() for "
                "a data frame, or .states for state numbers"
            )
        return as_array(self.states, dtype, copy)

    def __getitem__(self, variable: str | int) -> NDArray[Any]:
        """Names of one variable's states, (n,) ndarray of object; None in impossible cases."""
        v = self._model.index(variable)
        if self._model.variables[v] in self.numbers:
            return self.numbers[self._model.variables[v]].copy()
        labels = np.array([*self._model.states(v), None], object)  # -1 is the last one
        column: NDArray[Any] = labels[self.states[:, v]]
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.variables)

    def __len__(self) -> int:
        return len(self._model)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with a column of state names for each variable.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame; also any other one that narwhals supports. Default: the library of the table of
            cases, or pandas if there is none.

        Returns
        -------
        data frame
            If the cases were a pandas frame, the result has its index. Cells of impossible cases are null.
        """
        return make_frame({v: self[v] for v in self}, backend, cases=self._table_of_cases)

    def _title(self) -> str:
        return f"{type(self).__name__} of {len(self)} variables in {len(self.states)} rows"

    def _table(self) -> tuple[list[str], list[Any], int]:
        n = len(self.states)

        def column(v: int) -> Sequence[Any]:
            labels = self._model.states(v)
            if self._model.variables[v] in self.numbers:
                values: list[float] = self.numbers[self._model.variables[v]].tolist()
                return values
            return LazySequence(n, lambda i: None if self.states[i, v] < 0 else labels[self.states[i, v]])

        return ["", *self], [row_labels(n, self._table_of_cases), *map(column, range(len(self)))], 1


class CaseExplanations(CaseStates):
    """Most probable explanations of a table of B cases; see `CaseStates`.

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

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with a column of state names for each variable, and ``log_joint``.

        Parameters
        ----------
        backend : str, optional
            See `CaseStates.to_frame`.
        """
        columns: dict[str, Any] = {v: self[v] for v in self}
        columns[unused_name("log_joint", columns)] = self.log_joint
        return make_frame(columns, backend, cases=self._table_of_cases)


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

    def to_frame(self, backend: str | None = None) -> Any:
        """Return the table of cases with its missing cells filled in, as a data frame.

        Parameters
        ----------
        backend : str, optional
            See `CaseStates.to_frame`.

        Returns
        -------
        data frame
            The columns of the cases in their order, those that are not variables as they were, then the variables that
            the cases do not have.
        """
        table = self._table_of_cases
        if table is None:
            return super().to_frame(backend)
        variables = set(self)
        columns = {name: self[name] if name in variables else table.carried(name) for name in table.names}
        return make_frame({**columns, **{v: self[v] for v in self if v not in columns}}, backend, cases=table)
