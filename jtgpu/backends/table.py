"""A table of cases, as a backend gets it in one call, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendUnavailable

if TYPE_CHECKING:
    Floats = NDArray[np.float64]

A = TypeVar("A")

# variable -> finite weights >= 0, (B, card); ones where a case has none; a set variable: (B, cells)
Likelihood = Mapping[int, NDArray[np.float64]]
BLOCK = 4096  # cases that are turned from columns to rows at a time: their part of both arrays stays in the cache

# Evidence ---------------------------------------------------------------------------------------------------------


class Feed(Protocol):
    """The states of B cases, trusted to be valid; -1 = not observed."""

    @property
    def n(self) -> int:
        """B."""

    def rows(self) -> NDArray[np.int32]:
        """(B, V) states in C order."""

    def some(self, which: Any) -> Feed:
        """Some of the cases."""

    def close(self) -> None:
        """Free what a backend holds; see `Backend.hold`. May be called twice."""


class RowCases(NamedTuple):
    """A `Feed` by rows."""

    states: NDArray[Any]  # (B, V) signed integers; int32 in C order is not copied

    @property
    def n(self) -> int:
        return len(self.states)

    def rows(self) -> NDArray[np.int32]:
        return np.ascontiguousarray(self.states, np.int32)

    def some(self, which: Any) -> RowCases:
        return RowCases(self.states[which])

    def close(self) -> None:
        """Nothing is held."""


class ColumnCases(NamedTuple):
    """A `Feed` by columns, as data frames store cases."""

    variables: Sequence[int]  # the E variables that some case observes
    codes: NDArray[Any]  # (E, B) signed integers; int8 is fastest
    n_variables: int  # V

    @property
    def n(self) -> int:
        return int(self.codes.shape[1])

    def rows(self) -> NDArray[np.int32]:
        states = np.full((self.n, self.n_variables), -1, np.int32)
        for first in range(0, self.n, BLOCK):
            block = slice(first, first + BLOCK)
            states[block, list(self.variables)] = self.codes[:, block].T
        return states

    def some(self, which: Any) -> ColumnCases:
        return self._replace(codes=self.codes[:, which])

    def close(self) -> None:
        """Nothing is held."""


class DeviceCases(NamedTuple):
    """A `Feed` in the memory of a device."""

    states: Any  # (B, V) signed integers on the device `Capabilities.device_number`, which checks them

    @property
    def n(self) -> int:
        return int(self.states.shape[0])

    def rows(self) -> NDArray[np.int32]:
        raise BackendUnavailable("cases on a device are not read here; pass an array")

    def some(self, which: Any) -> DeviceCases:
        return DeviceCases(self.states[which])

    def close(self) -> None:
        """Nothing is held."""


# Answers ----------------------------------------------------------------------------------------------------------


class TableAnswer(NamedTuple):
    """Posteriors of B cases. A case whose evidence has probability zero is flagged, not fatal."""

    posterior: NDArray[np.float64]  # (B, C), target after target; 0 if impossible. By columns: (C, B)
    log_evidence: NDArray[np.float64]  # (B,) natural logarithms of P(e); -inf if impossible
    impossible: NDArray[np.bool_]  # (B,)

    @classmethod
    def impossible_cases(cls, n: int, columns: int) -> TableAnswer:
        """Answers of n cases, to be filled in: all are impossible."""
        return cls(np.zeros((n, columns)), np.full(n, -np.inf), np.ones(n, np.bool_))

    def put(self, rows: Any, other: TableAnswer) -> None:
        """Fill in some rows."""
        for own, given in zip(self, other, strict=True):
            own[rows] = given


class DeviceAnswer(NamedTuple):
    """Posteriors of B cases in the memory of a device, as arrays with ``__dlpack__`` and ``to_host()``."""

    posterior: Any  # (B, sum of the targets' cardinalities) float64, target after target; 0 if impossible
    log_evidence: Any  # (B,) float64; -inf if impossible
    device_us: float = 0.0  # microseconds that the kernels took


class CountSums(NamedTuple):
    """Expected counts of every family, summed over B cases; one of probability zero adds nothing."""

    # ``sum_b weight[b] * P(x | case b)``: one array a factor, of the factor's shape, in the order of plan.factor_var
    families: list[NDArray[np.float64]]
    log_likelihood: float  # sum of ln P(e) times weight over the possible cases
    n_impossible: int  # cases of probability zero
    # (B,) ln P(e) of each case, -inf if impossible; a function where a backend holds the cases, right until it runs
    # them again
    each: NDArray[np.float64] | Callable[[], NDArray[np.float64]]

    @classmethod
    def of(cls, families: list[Floats], log_evidence: Floats, weights: Floats) -> CountSums:
        """The sums, from the counts and ln P(e) of each case."""
        possible = log_evidence > -np.inf
        score = float(weights[possible] @ log_evidence[possible])
        return cls(families, score, len(possible) - int(np.count_nonzero(possible)), log_evidence)

    @property
    def log_evidence(self) -> NDArray[np.float64]:
        """(B,) ln P(e) of each case; -inf if impossible."""
        return self.each() if callable(self.each) else self.each

    @property
    def impossible(self) -> NDArray[np.bool_]:
        """(B,)"""
        return np.isneginf(self.log_evidence)


# Questions --------------------------------------------------------------------------------------------------------


class Delivery(Generic[A]):
    """The kind of an answer, and where it is put; one of the four constants below. `A`: the type of the answer."""

    def __init__(self, name: str, refusal: str = ""):
        self.name, self.refusal = name, refusal  # of a backend that does not support it

    def __reduce__(self) -> str:
        return self.name  # the same object after pickling


ROWS = Delivery[TableAnswer]("ROWS")
COLUMNS = Delivery[TableAnswer]("COLUMNS")
ON_DEVICE = Delivery[DeviceAnswer]("ON_DEVICE", "does not leave answers on a device; use backend='gpu'")
COUNTS = Delivery[CountSums]("COUNTS", "does not support expected counts; use backend='cpu'")
_NOTHING: Likelihood = {}


class Table(NamedTuple, Generic[A]):
    """A table of cases and what is wanted of it; see `Backend.run`."""

    feed: Feed
    deliver: Delivery[A]
    likelihood: Likelihood = _NOTHING
    # variables whose posteriors are computed, in the order of the answer's columns, sets as V + i; None: all variables
    targets: Sequence[int] | None = None
    weights: Floats | None = None  # (B,) of cases that are counted: finite, of any sign; None: ones
    recurs: bool = True  # False: a few cases whose patterns will not recur, as a server gets them

    @property
    def n(self) -> int:
        """B."""
        return self.feed.n

    @classmethod
    def of(
        cls, states: NDArray[Any], likelihood: Likelihood | None = None, targets: Sequence[int] | None = None, *,
        recurs: bool = True,
    ) -> Table[TableAnswer]:  # fmt: skip
        """Posteriors of cases by rows, (B, V)."""
        return Table(RowCases(states), ROWS, likelihood or _NOTHING, targets, None, recurs)

    @classmethod
    def by_columns(
        cls, variables: Sequence[int], codes: NDArray[Any], n_variables: int, targets: Sequence[int] | None = None
    ) -> Table[TableAnswer]:
        """Posteriors by columns of cases by columns; see `ColumnCases`."""
        return Table(ColumnCases(variables, codes, n_variables), COLUMNS, _NOTHING, targets)

    @classmethod
    def on_device(
        cls, states: Any, likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> Table[DeviceAnswer]:
        """Posteriors that stay on the device, of an array or of a tensor there, which is not copied if contiguous."""
        feed = RowCases(states) if isinstance(states, np.ndarray) else DeviceCases(states)
        return Table(feed, ON_DEVICE, likelihood or _NOTHING, targets)

    @classmethod
    def counts(
        cls, states: NDArray[Any], weights: Floats | None = None, likelihood: Likelihood | None = None
    ) -> Table[CountSums]:
        """Expected counts of cases by rows, (B, V)."""
        return Table(RowCases(states), COUNTS, likelihood or _NOTHING, None, weights)

    def some(self, which: Any) -> Table[A]:
        """Some of the cases."""
        return self._replace(
            feed=self.feed.some(which), likelihood={v: w[which] for v, w in self.likelihood.items()},
            weights=None if self.weights is None else self.weights[which],
        )  # fmt: skip

    def delivered(self, answer: TableAnswer) -> A:
        """Posteriors by rows as they are wanted."""
        if self.deliver is COLUMNS:
            answer = answer._replace(posterior=np.ascontiguousarray(answer.posterior.T))
        return cast("A", answer)

    @property
    def weights_or_ones(self) -> Floats:
        """(B,) weights of the cases."""
        return np.ones(self.n) if self.weights is None else np.ascontiguousarray(self.weights, np.float64)


def refuse(backend: object, table: Table[Any], *deliveries: Delivery[Any]) -> None:
    """Raise if a table wants something that a backend does not support."""
    if table.deliver in deliveries:
        raise BackendUnavailable(f"{type(backend).__name__} {table.deliver.refusal}")


class Job(Protocol):
    """A table that several workers answer together; made by `Backend.share`."""

    @property
    def n(self) -> int:
        """Rows to answer; equal rows may count once."""

    def answer(self, worker: Any, rows: Any) -> None:
        """Answer rows from a `RowQueue` on one worker, until none is left, into the common result.

        On an error, rows that were taken and not answered are put back before it is raised.
        """

    def result(self) -> TableAnswer:
        """The answer as the table wants it, once all rows are answered."""
