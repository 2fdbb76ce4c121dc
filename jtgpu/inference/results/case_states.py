"""States of cases: samples, completed and explained ones; and the explanations of one case, ranked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...columns import Table
from ...errors import ArgumentError, JtgpuError
from ...model.discrete import DiscreteModel
from ...util.text_table import LazySequence, counted
from .frames import unused_name
from .interval_numbers import draw_inside
from .result import ByVariable, CaseResult, Columns, Result, as_array

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

    def with_numbers(self, seed: object) -> Self:
        """Draw numbers in the place of states that are intervals."""
        self.numbers = draw_inside(self._model, self.states, seed, self._cases)
        return self

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[Any]:
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

    def _columns(self) -> dict[str, object]:
        return {name: self._column(v) for v, name in enumerate(self._model.variables)}

    def _column(self, v: int) -> Any:
        if self._model.variables[v] in self.numbers:
            return self._part(v)
        labels = [*self._model.states(v), None]
        return LazySequence(len(self.states), lambda i: labels[self.states[i, v]], lambda: self._part(v))

    def _title(self) -> str:
        return f"{type(self).__name__} of {counted(len(self), 'variable')} in {counted(len(self.states), 'row')}"


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

    def _columns(self) -> dict[str, object]:
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


class RankedExplanations:
    """Configurations of one query, most probable first: the arrays that its `Explanation` objects refer to."""

    # states: (k, V) array of int32
    # log_joint: (k,) array of float64: ln P(configuration, evidence)
    # log_evidence: Computes ln P(evidence); called at most once
    # variables: sequence of int: The variables of the query. Default: all.

    def __init__(
        self,
        model: DiscreteModel,
        states: NDArray[np.int32],
        log_joint: NDArray[np.float64],
        log_evidence: Callable[[], float],
        variables: Sequence[int] | None = None,
    ):
        states.flags.writeable = False
        self.model, self.states, self.log_joint = model, states, log_joint
        self.variables = None if variables is None else dict.fromkeys(variables)
        self._compute: Callable[[], float] | None = log_evidence
        self._log_evidence = math.nan
        self._explanations: tuple[Explanation, ...] = ()

    @property
    def explanations(self) -> tuple[Explanation, ...]:
        """All configurations."""
        if not self._explanations:
            self._explanations = tuple(Explanation(self, i) for i in range(len(self.states)))
        return self._explanations

    @property
    def log_evidence(self) -> float:
        """ln P(evidence), computed on first access."""
        if self._compute is not None:
            self._log_evidence, self._compute = self._compute(), None
        return self._log_evidence

    def __getstate__(self) -> dict[str, object]:
        """Everything but the tree: ln P(evidence) is computed now, if the tree is open."""
        try:
            value = self.log_evidence
        except JtgpuError:
            value = math.nan
        return {**self.__dict__, "_compute": None, "_log_evidence": value, "_explanations": ()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.states.flags.writeable = False
        if math.isnan(self._log_evidence):
            self._compute = _raise_closed


def _raise_closed() -> float:
    raise JtgpuError("ln P(evidence) is not known: the tree was closed before this explanation was pickled")


def _explanation(ranking: RankedExplanations, i: int) -> Explanation:
    return ranking.explanations[i]


class Explanation(Result, ByVariable[str]):
    """A most probable configuration: a mapping from variable name to state name.

    ``print(explanation)`` shows a table with one line for each variable. The data frame has a row for each explanation
    of `ranked`: a column of state names for each variable, and ``log_joint``.

    Attributes
    ----------
    states : (V,) ndarray of int32
        Number of each variable's state, in the order of the model; -1 for variables that are not part of the query.
    log_joint : float
        ln P(configuration, evidence); unnormalised for a Markov network.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> best = tree.mpe({"xray": "yes", "smoke": "yes"})
    >>> best["lung"], round(best.log_joint, 3)
    ('yes', -3.652)
    """

    _argument = "variables"

    def __init__(self, ranking: RankedExplanations, i: int):
        self._ranking, self._i = ranking, i
        self._model, self._labels, self._targets = ranking.model, ranking.model.labels, ranking.variables
        self.states = ranking.states[i]
        self.log_joint = float(ranking.log_joint[i])

    def __reduce__(self) -> tuple[object, ...]:
        return _explanation, (self._ranking, self._i)

    @property
    def ranked(self) -> tuple[Explanation, ...]:
        """The k best configurations, most probable first; this one is among them."""
        return self._ranking.explanations

    @property
    def log_evidence(self) -> float:
        """ln P(evidence), computed on first access, while the tree must still be open."""
        return self._ranking.log_evidence

    @property
    def log_posterior(self) -> float:
        """ln P(configuration | evidence); see `log_evidence`."""
        return min(self.log_joint - self.log_evidence, 0.0)  # not 1e-16 above 1

    @property
    def probability(self) -> float:
        """P(configuration | evidence)."""
        return math.exp(self.log_posterior)

    def _part(self, v: int) -> str:
        state: str = self._labels.states[v][int(self.states[v])]
        return state

    def _columns(self) -> dict[str, object]:
        columns: dict[str, Any] = {v: [one[v] for one in self.ranked] for v in self}
        return columns | {unused_name("log_joint", columns): [one.log_joint for one in self.ranked]}

    def _title(self) -> str:
        at = next(i for i, one in enumerate(self.ranked) if one is self)
        of = f", {at + 1} of the {len(self.ranked)} in .ranked" if len(self.ranked) > 1 else ""
        return f"Explanation of {counted(len(self), 'variable')}, log_joint={self.log_joint:.6g}{of}"

    def _table(self) -> Columns:
        return Columns(["", ""], [[*self], [*self.values()]], 2)

    def __repr__(self) -> str:  # one line: explanations are also elements of `ranked`
        shown = ", ".join(f"{v}={s}" for v, s in itertools.islice(self.items(), 6))
        more = f", ... ({len(self)} in total)" if len(self) > 6 else ""
        return f"Explanation({shown}{more}; log_joint={self.log_joint:.6g})"
