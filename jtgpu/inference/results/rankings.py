"""`Ranking` and `Scores`: results with one row for each variable, best first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...errors import format_bytes
from ...model.network import BayesianNetwork
from ...util.text_table import LazySequence, counted
from .marginals import distinct_names
from .result import ByVariable, Columns, Result, state_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ExpectedCounts",
    "JointCost",
    "MapCost",
    "QuestionCost",
    "Ranking",
    "Scores",
]

T = TypeVar("T")


class Ranking(Result, list[T]):
    """A list of records, best first, that prints as a table and converts to a data frame.

    The columns are the fields of the records, except arrays.

    Parameters
    ----------
    records : iterable of dataclass instances
    kind : type
        Class of the records.
    title : str
        First line of the printed table.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> print(tree.mutual_information("lung", ["smoke", "either", "dysp"], {"xray": "yes"}))
    Mutual information of 3 variables, in nats, largest first
    either  0.447801
    smoke   0.118189
    dysp    0.064866
    """

    _picture = "ranking"

    def __init__(self, records: Iterable[T], kind: type[T], title: str):
        super().__init__(records)
        self._kind, self._title_text = kind, title

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), ([*self], self._kind, self._title_text)

    def _columns(self) -> dict[str, list[Any]]:
        columns = {}
        for field in fields(self._kind):  # type: ignore[arg-type]
            cells = [getattr(record, field.name) for record in self]
            if not any(isinstance(cell, np.ndarray) for cell in cells):
                columns[field.name] = [" or ".join(c) if isinstance(c, tuple) else c for c in cells]
        return columns

    def _title(self) -> str:
        return self._title_text

    def _table(self) -> Columns:
        columns = self._columns()
        return Columns([name.replace("_", " ") for name in columns], [*columns.values()])


class Scores(Result, dict[str, float]):
    """A dictionary from variable name to a number, best first, that prints as a table and converts to a data frame.

    Parameters
    ----------
    scores : mapping
    quantity : str
        Name of the number, which is the name of its column.
    unit : {"nats", "bits"}
        Unit of the number.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> print(tree.value_of_information("lung", ["smoke", "xray", "dysp"]))
    Value of information about lung, in nats, best first
    variable  expected entropy      gain  expected accuracy
    xray              0.084884  0.128099           0.945000
    smoke             0.190542  0.022440           0.945000
    dysp              0.195388  0.017594           0.945000
    """

    _picture = "ranking"

    def __init__(self, scores: dict[str, float], quantity: str, unit: str = "nats"):
        super().__init__(scores)
        self._quantity, self.unit = quantity, unit

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (dict(self), self._quantity, self.unit)

    def _columns(self) -> dict[str, object]:
        return {"variable": [*self], self._quantity: [*self.values()]}

    def _title(self) -> str:
        quantity = self._quantity.replace("_", " ").capitalize()
        return f"{quantity} of {counted(len(self), 'variable')}, in {self.unit}, largest first"

    def _table(self) -> Columns:
        return Columns(["", ""], [[*self], [*self.values()]])


# `ExpectedCounts`: the distributions of families, summed over a table of cases.

class ExpectedCounts(Result, ByVariable["NDArray[np.float64]"]):
    """Expected counts of a table of B cases: a mapping from variable to an array of the shape of its CPT.

    The data frame has a row for each entry of each CPT: ``variable``, ``given``, ``state`` and ``count``. ``given`` is
    the configuration of the parents, such as ``"smoke = yes, tub = no"``, empty for variables without parents.

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

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> counts = tree.expected_counts([{"smoke": "yes"}, {"smoke": "no", "lung": "no"}])
    >>> counts["lung"].round(2).tolist()
    [[0.1, 0.9], [0.0, 1.0]]
    """

    _model: BayesianNetwork
    _targets: dict[int, NDArray[np.float64]]
    _argument = "variables"

    def __init__(
        self,
        model: BayesianNetwork,
        families: list[NDArray[np.float64]],
        variables: tuple[int, ...],
        weights: NDArray[np.float64],
        log_evidence: NDArray[np.float64],
        impossible: NDArray[np.bool_],
    ):
        self._model, self._labels, self.log_evidence, self.impossible = model, model.labels, log_evidence, impossible
        self._targets = {v: families[v] for v in variables}
        possible = ~impossible
        self.log_likelihood = float((weights[possible] * log_evidence[possible]).sum())
        self.rows = len(log_evidence)

    def _part(self, v: int) -> NDArray[np.float64]:
        return self._targets[v]

    def _columns(self) -> dict[str, object]:
        columns: dict[str, list[Any]] = {"variable": [], "given": [], "state": []}
        for v, counts in self._targets.items():
            n_states = counts.shape[-1]
            n_rows = counts.size // n_states
            columns["variable"] += [self._model.variables[v]] * counts.size
            columns["given"] += [text for row in range(n_rows) for text in [self._given(v, row)] * n_states]
            columns["state"] += distinct_names(self._model.states(v)) * n_rows
        flat = [counts.ravel() for counts in self._targets.values()]
        return {**columns, "count": np.concatenate([*flat, np.zeros(0)])}

    def _given(self, v: int, row: int) -> str:
        """The configuration of the parents of a row of a CPT."""
        parents, at = self._model.parents(v), np.unravel_index(row, self._targets[v].shape[:-1])
        return ", ".join(
            f"{p} = {distinct_names(self._model.states(p))[int(i)]}" for p, i in zip(parents, at, strict=True)
        )

    def _title(self) -> str:
        return (
            f"ExpectedCounts of {counted(len(self), 'variable')} in {counted(self.rows, 'case')}, "
            f"log_likelihood={self.log_likelihood:.6g}"
        )

    def _table(self) -> Columns:
        """A row for each row of each CPT."""
        model, families = self._model, self._targets
        ids = [*families]
        first = np.concatenate([[0], np.cumsum([c.size // c.shape[-1] for c in families.values()], dtype=np.int64)])
        n = int(first[-1])

        def place(i: int) -> tuple[int, int]:  # of a row of the table: its variable and the row of its CPT
            at = int(np.searchsorted(first, i, side="right")) - 1
            return ids[at], i - int(first[at])

        def counts(i: int) -> NDArray[np.float64]:
            v, row = place(i)
            row_counts: NDArray[np.float64] = families[v].reshape(-1, families[v].shape[-1])[row]
            return row_counts

        columns = [
            LazySequence(n, lambda i: model.variables[place(i)[0]]),
            LazySequence(n, lambda i: self._given(*place(i))),
            *state_columns(n, lambda i: distinct_names(model.states(place(i)[0])), counts),
        ]
        return Columns([""] * len(columns), columns, 2)


# `JointCost`, `QuestionCost` and `MapCost`: the work and the memory of a query.

@dataclass(frozen=True)
class JointCost:
    """Cost of a joint posterior.

    Attributes
    ----------
    how : str
        Method: ``"cases"`` or ``"together"``.
    entries : int
        Configurations of the variables, which are the entries of the result.
    cases : int
        Cases that the backend computes; 0 for ``"together"``.
    operations : int
        Multiplications and additions; an estimate for ``"cases"``.
    largest : int
        Entries of the largest table, the result included.
    bytes : int
        Memory of the result and all intermediate tables, in float64. What the tree already holds is not counted.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> tree.joint_cost(["tub", "lung"]).operations
    2472
    """

    how: str
    entries: int
    cases: int
    operations: int
    largest: int
    bytes: int


@dataclass(frozen=True)
class QuestionCost:
    """Cost of a question that is planned by itself.

    Attributes
    ----------
    variables, left : int
        Variables of the model, and those that neither relevance nor the findings fix.
    entries, largest : int
        Sum of the sizes of the clique tables, and the largest table; of a search, the edges of its trace.
    flops, bytes : int
        Multiplications and additions of one propagation, and its memory.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> print(tree.question_cost({"smoke": "yes"}, targets=["lung"]))
    8 variables: 7 fixed or irrelevant, 1 left; largest table 2; 192 B
    """

    variables: int
    left: int
    entries: int
    largest: int
    flops: int
    bytes: int

    def __str__(self) -> str:
        return (
            f"{counted(self.variables, 'variable')}: {self.variables - self.left:,} fixed or irrelevant, {self.left:,} "
            f"left; largest table {self.largest:,}; {format_bytes(self.bytes)}"
        )


@dataclass(frozen=True)
class MapCost:
    """Cost of a marginal MAP query.

    Attributes
    ----------
    how : str
        Method: ``"order"``, by a constrained elimination order, or ``"joint"``, from the joint posterior.
    variables, summed, barren : int
        Variables that are maximised, summed out, and irrelevant to the query; observed variables are not counted.
    largest : int
        Entries of the largest intermediate table.
    table_entries : int
        Entries of all tables, the model's included.
    operations : int
        Multiplications, additions and comparisons.
    bytes : int
        Memory of all tables, in float64.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> tree.map_cost(["tub", "lung"]).operations
    20
    """

    how: str
    variables: int
    summed: int
    barren: int
    largest: int
    table_entries: int
    operations: int
    bytes: int

    def __str__(self) -> str:
        method = "an elimination order" if self.how == "order" else "the joint posterior"
        return (
            f"by {method}: {self.variables} variables maximised, {self.summed} summed out, {self.barren} irrelevant; "
            f"{self.operations:,} operations, largest table {self.largest:,} entries, memory {format_bytes(self.bytes)}"
        )
