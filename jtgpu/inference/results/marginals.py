"""`Posterior`, `Posteriors` and `CasePosteriors`: marginal distributions, labelled on access."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import TableAnswer, without_rounding
from ...columns import Table
from ...model.discrete import DiscreteModel
from ...util.arguments import check_keywords_of
from ...util.text_table import LazySequence, counted, quoted, shown_rows
from ..evidence import CaseEvidence
from ..sets import Joints
from . import interval_numbers
from .interval_numbers import ends_of
from .result import ByVariable, CaseResult, Columns, Result, as_array, state_columns

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MAX_STATES = 12  # of a posterior that is shown whole in one line


def distinct_names(states: Sequence[str]) -> list[str]:
    """Names of states, with the state's number appended to names that occur more than once."""
    if len(set(states)) == len(states):
        return [*states]
    return [s if states.count(s) == 1 else f"{s}#{i}" for i, s in enumerate(states)]


def joint_names(model: DiscreteModel, scope: Sequence[int]) -> list[str]:
    """Names of columns of a joint posterior, ``lung,bronc=yes,no``; the last variable varies fastest."""
    names = ",".join(model.variables[v] for v in scope)
    return [f"{names}={','.join(s)}" for s in itertools.product(*(distinct_names(model.states(v)) for v in scope))]


class Posterior(Result, Mapping[str, float]):
    """P(variable | evidence) of one variable: a mapping from the name of a state to its probability.

    ``p["yes"]`` and ``p[0]`` give the probability of a state by name or number, ``dict(p)`` makes a dictionary, and
    ``numpy.asarray(p)`` an array in the order of the states. If several states share a name, the mapping has them as
    ``name#number``. The data frame has the columns ``state`` and ``probability``.

    Attributes
    ----------
    variable : str
    states : tuple of str
        Names of the states, in order.
    probabilities : (n_states,) ndarray of float64
        Read-only; sums to 1.

    Examples
    --------
    >>> import jtgpu
    >>> print(jtgpu.load("asia").compile("cpu").posterior("lung", {"xray": "yes"}))
    lung  probability
    yes      0.488711
    no       0.511289
    """

    __slots__ = ("_ends", "probabilities", "states", "variable")
    _picture = "bars"

    def __init__(
        self, variable: str, states: tuple[str, ...], probabilities: NDArray[np.float64],
        ends: tuple[float, float] | None = None,
    ):  # fmt: skip
        self._ends = ends  # least and greatest number, where states are intervals
        self.variable = variable
        self.states = states
        self.probabilities = probabilities

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[Any]:
        return as_array(self.probabilities, dtype, copy)

    def __getitem__(self, state: str | int) -> float:
        """Return the probability of one state."""
        # state: Name or number of the state
        # raises UnknownState: If the variable has no such state; also a `KeyError`.
        if isinstance(state, str):
            if self.states.count(state) == 1:
                return float(self.probabilities[self.states.index(state)])
            names = distinct_names(self.states)
            if state in names:
                return float(self.probabilities[names.index(state)])
        model = DiscreteModel({self.variable: self.states})
        return float(self.probabilities[model.state_position(0, state)])

    def __contains__(self, state: object) -> bool:
        return state in distinct_names(self.states)

    def __iter__(self) -> Iterator[str]:
        return iter(distinct_names(self.states))

    def __len__(self) -> int:
        return len(self.states)

    def as_dict(self) -> dict[str, float]:
        """Return a dictionary from state name to probability, like ``dict(p)``."""
        return dict(zip(self, self.probabilities.tolist(), strict=True))

    @property
    def mode(self) -> str:
        """Name of the most probable state; the first one in case of a tie."""
        return self.states[int(self.probabilities.argmax())]

    @property
    def mean(self) -> float:
        """Mean of a variable whose states are intervals such as ``"[2.5, 4)"``, uniform inside each."""
        # raises ArgumentError: If the states are not intervals, or one of positive probability has no bound.
        return interval_numbers.moments(self.variable, self.states, self.probabilities, self._ends)[0]

    @property
    def sd(self) -> float:
        """Standard deviation of a variable whose states are intervals; see `mean`."""
        return interval_numbers.moments(self.variable, self.states, self.probabilities, self._ends)[1]

    @check_keywords_of()
    def quantiles(self, q: ArrayLike = (0.05, 0.95)) -> NDArray[np.float64]:
        """Return quantiles (Q,) of a variable whose states are intervals, uniform inside each."""
        levels = interval_numbers.checked_probabilities(q)
        return interval_numbers.quantiles(self.variable, self.states, self.probabilities, self._ends, levels)

    def _title(self) -> str:
        return ""

    def _columns(self) -> dict[str, object]:
        return {"state": [*self], "probability": self.probabilities}

    def _table(self) -> Columns:
        return Columns([self.variable, "probability"], [[*self], self.probabilities])

    def __repr__(self) -> str:  # one line: posteriors are also elements of lists and dictionaries
        return f"{self:.6g}"

    def __format__(self, spec: str) -> str:
        """The table for an empty `spec`; else one line, with every probability in this format: ``f"{p:.3f}"``."""
        if not spec:
            return str(self)
        rows = shown_rows(len(self.states), MAX_STATES)
        parts = [f"{quoted(self.states[i])}: {self.probabilities[i]:{spec}}" for i in rows]
        if len(rows) < len(self.states):
            parts.insert(len(rows) // 2, "...")
        return f"P({quoted(self.variable)}) = {{{', '.join(parts)}}}"


class Posteriors(Result, ByVariable[Posterior]):
    """Posteriors of several variables: a mapping from variable name to `Posterior`.

    ``print(posteriors)`` shows a table with one line for each variable. The data frame has a row for each state of each
    variable, and the columns ``variable``, ``state`` and ``probability``.

    Attributes
    ----------
    log_evidence : float
        ln P(evidence), 0 without evidence; for a Markov network, ln of the partition function.
    joint : mapping of tuples of str to Joint
        Joint posteriors of the sets that ``joints=`` named: ``posteriors.joint["lung", "bronc"]``.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> print(tree.posteriors({"xray": "yes"}, targets=["lung", "tub"]))
    Posteriors of 2 variables, log_evidence=-2.20464
    lung  yes 0.488711  no 0.511289
    tub   yes 0.092411  no 0.907589
    """

    _picture = "network"

    def __init__(
        self,
        model: DiscreteModel,
        flat: NDArray[np.float64],
        ptr: NDArray[np.int64],
        log_evidence: float,
        targets: Sequence[int] | None = None,
        known: CaseEvidence | None = None,
        joints: Joints[Any] | None = None,
    ):
        flat.flags.writeable = False
        self._model, self._labels, self._flat, self._ptr = model, model.labels, flat, ptr
        self._known = known  # the evidence, for pictures
        self._targets = None if targets is None else dict.fromkeys(targets)
        self.log_evidence = log_evidence
        self.joint: Joints[Any] = Joints(model, {}) if joints is None else joints

    def _part(self, v: int) -> Posterior:
        _, names, states, ends = self._labels
        name, ptr = names[v], self._ptr
        return Posterior(
            name, states[v], self._flat[ptr[v] : ptr[v + 1]], ends_of(self._model, name) if ends else None
        )

    def _columns(self) -> dict[str, object]:
        ids = self._ids()
        cards = self._model.cardinality[ids]
        flat = [self._flat[self._ptr[v] : self._ptr[v + 1]] for v in ids]
        return {
            "variable": np.repeat(np.array([self._model.variables[v] for v in ids], object), cards),
            "state": [s for v in ids for s in distinct_names(self._model.states(v))],
            "probability": np.concatenate([*flat, np.zeros(0)]),
        }

    def _ids(self) -> list[int]:
        return [*range(len(self._model))] if self._targets is None else [*self._targets]

    def _title(self) -> str:
        return f"Posteriors of {counted(len(self), 'variable')}, log_evidence={self.log_evidence:.6g}"

    def _table(self) -> Columns:
        model, ids = self._model, self._ids()
        n = len(ids)
        columns = [
            LazySequence(n, lambda i: model.variables[ids[i]]),
            *state_columns(
                n, lambda i: model.states(ids[i]), lambda i: self._flat[self._ptr[ids[i]] : self._ptr[ids[i] + 1]]
            ),
        ]
        return Columns([""] * len(columns), columns)


class CasePosteriors(CaseResult, ByVariable["NDArray[np.float64]"]):
    """Posteriors of a table of B cases: a mapping from variable name to a (B, n_states) array of float64.

    The data frame has the columns ``variable=state``, as that of `JunctionTree.predict_proba`, and ``log_evidence``;
    probabilities of impossible cases are null.

    Attributes
    ----------
    flat : (B, n) ndarray of float64
        All posteriors; the columns of each variable are contiguous, in the order of the mapping.
    log_evidence : (B,) ndarray of float64
        ln P(evidence) of each case; -inf if the case is impossible.
    impossible : (B,) ndarray of bool
        Cases whose evidence has probability zero; their posteriors are zeros.
    joint : mapping of tuples of str to ndarray of float64
        Joint posteriors of the sets that ``joints=`` named: ``joint["lung", "bronc"]`` has shape (B, states of lung,
        states of bronc).

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> post = tree.posteriors_batch([{"xray": "yes"}, {"xray": "no"}], targets=["lung"])
    >>> post["lung"].round(3).tolist()
    [[0.489, 0.511], [0.001, 0.999]]
    """

    def __init__(
        self,
        model: DiscreteModel,
        result: TableAnswer,
        targets: Sequence[int] | None = None,
        table: Table | None = None,
        joints: Joints[NDArray[np.float64]] | None = None,
    ):
        self._model, self._labels, self._cases = model, model.labels, table
        self.joint: Joints[Any] = Joints(model, {}) if joints is None else joints
        self.flat, self.impossible = result.posterior, result.impossible
        self.log_evidence = without_rounding(result.log_evidence)
        self._targets: dict[int, slice] = {}  # columns of each variable in `flat`
        first = 0
        for v in range(len(model)) if targets is None else targets:
            end = first + int(model.cardinality[v])
            self._targets[v] = slice(first, end)
            first = end

    def _part(self, v: int) -> NDArray[np.float64]:
        return self.flat[:, self._targets[v]]

    def _title(self) -> str:
        return f"CasePosteriors of {counted(len(self), 'variable')} in {counted(len(self.flat), 'case')}"

    def _columns(self) -> dict[str, object]:
        model = self._model
        names = [f"{model.variables[v]}={s}" for v in self._targets for s in distinct_names(model.states(v))]
        columns = dict(zip(names, self.flat.T, strict=True))
        for scope, table in self.joint.tables.items():
            columns |= dict(zip(joint_names(model, scope), table.reshape(len(table), -1).T, strict=True))
        if self.impossible.any():
            columns = {name: np.ma.masked_array(column, self.impossible) for name, column in columns.items()}
        return {**columns, "log_evidence": self.log_evidence}
