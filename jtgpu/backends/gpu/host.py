"""Cases so improbable that numbers on the device lose digits: which they are, and the CPU backend that computes them.

Tables on the device have one exponent each, so a number far below the largest one of its table becomes 0, and a state
that other findings favour later is lost with it. Such an error is at most 2^-1074 in a table that has not been scaled
down, and one in a number of a table changes P(e) and what is divided by it by no more than `reach` says: a case whose
P(e) is large compared to that is right. The CPU backend has an exponent for every number.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...errors import TableTooLarge, format_bytes
from ...plans.specialise import conditional_heads
from ...util.system import free_memory
from ...util.text_table import counted
from .. import get
from ..base import Backend, Evidence, Result
from ..table import Feed, RowCases, Table
from .lower import Lowered, flat_factors, lowered
from .program.layout import MOST_REACH, Reach, reach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan

A = TypeVar("A")
LN2 = math.log(2.0)
# log2 of the error of a product that is too small, of a table whose largest number is 1; and digits of right answers
ERRORS = {"float64": (-1074.0, 50.0), "float32": (-206.0, 24.0)}
SPARE = 3.0  # powers of two: plans that were lowered in another way have a few more products
ALL_RIGHT = 114.0  # powers of two between the least product and such an error from which on nothing is lost
LARGE = 1 << 28  # bytes of a plan's tables for which the host's memory is looked at first
EXTENDED = 2.5  # bytes of a number and its exponent, and of the number alone, relative to the latter


class Host:
    """A plan and a model's numbers on the CPU, for the cases that a GPU cannot answer. Thread-safe.

    The backend is made for the first of them.
    """
    # contractions: Those of a plan whose answers are wanted

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], contractions: Callable[[Plan], Lowered] = lowered
    ):
        self.plan, self._factors, self._contractions = plan, list(factors), contractions
        self._lock = threading.Lock()
        self._made: Backend | None = None
        self._is_old = False  # whether the backend has other numbers

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Replace the model's numbers."""
        with self._lock:
            self._factors, self._is_old = list(factors), self._made is not None
            for name in ("_upper", "_lower", "_reach"):
                self.__dict__.pop(name, None)

    # Which cases --------------------------------------------------------------------------------------------------

    @cached_property
    def _upper(self) -> float:
        """log2 of a bound above all numbers: 0 for conditional tables alone, as no sum of products of them exceeds 1.
        A variable without one of its own may add as many numbers as it has states."""
        scopes, cards = self.plan.factor_scopes, self.plan.cardinality
        heads = conditional_heads(self._factors, scopes, self.plan.n_variables)
        others = [float(f.max(initial=0.0)) for f, head in zip(self._factors, heads, strict=True) if head < 0]
        loose = set(range(self.plan.n_variables)).difference(heads)
        return sum(max(0.0, math.log2(x)) for x in others if x > 0) + sum(math.log2(cards[v]) for v in loose)

    @cached_property
    def _lower(self) -> float:
        """log2 of a bound below all products of entries that are not zero."""
        least = [float(f.min(where=f > 0, initial=1.0)) for f in self._factors]
        return sum(math.log2(x) for x in least)

    @cached_property
    def _size(self) -> float:
        """log2 of the number of entries and products, times that of answers."""
        plan = self.plan
        n = 4 * sum(plan.size(s) for s in plan.table_scopes) + plan.cost().flops
        return math.log2(max(n, 1)) + math.log2(plan.n_variables + plan.n_factors + len(plan.root_table) + 1)

    def is_exact(self, smallest: float = 0.0, real: str = "float64") -> bool:
        """Whether no number can be lost, whatever is observed, so that P(e) = 0 is certain as well."""
        # smallest: log2 of a bound below the product of a case's weights
        return self._lower + smallest - 4 * self._upper > ERRORS[real][0] + ALL_RIGHT

    def least(self, real: str = "float64", *, exactly: bool = False) -> float:
        """log2 of a P(e) for which answers are right; weights are divided by their largest one.

        Computed from sizes, or `exactly`, by a propagation on the host, where tables are not conditional.
        """
        error, digits = ERRORS[real]
        if not exactly or not self._upper:
            return error + digits + SPARE + 4 * self._upper + self._size
        bounds, scale = self._reach
        if not bounds.most < MOST_REACH:
            return math.inf
        grown = max(0.0, math.log2(bounds.most)) + math.log2(bounds.moved) + math.log2(bounds.n) + bounds.roots
        return error + digits + SPARE + grown + scale

    @cached_property
    def _reach(self) -> tuple[Reach, float]:
        """The reach of factors that are divided by numbers above 1, and log2 of the product of these."""
        plan, flat = self.plan, flat_factors(self.plan, self._factors)
        by = [max(1.0, float(f.sum()) / math.sqrt(max(len(f), 1))) if len(f) else 1.0 for f in flat]
        factors = [f / x for f, x in zip(flat, by, strict=True)]
        return reach(self._contractions(plan), factors), sum(math.log2(x) for x in by)

    def is_right(self, log2_evidence: float, real: str = "float64") -> bool:
        """Whether the answers of a case with this P(e) are right."""
        return log2_evidence >= self.least(real) or log2_evidence >= self.least(real, exactly=True)

    def lost(self, log_evidence: NDArray[np.float64], real: str = "float64") -> NDArray[np.int64]:
        """The cases whose answers may be wrong, by ln P(e) as the device computed it."""
        least = LN2 * self.least(real)
        if not len(log_evidence) or log_evidence.min() >= least:  # NaN is neither
            return np.zeros(0, np.int64)
        lost = np.flatnonzero(~(log_evidence >= least))
        return lost[~(log_evidence[lost] >= LN2 * self.least(real, exactly=True))]

    # Their answers ------------------------------------------------------------------------------------------------

    def run_case(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """The answer of a case, as `jtgpu.backends.base.Backend.run_case` declares."""
        return self._backend(RowCases(evidence.state[None])).run_case(evidence, targets)

    def run(self, table: Table[A]) -> A:
        """The answers of a table, as `jtgpu.backends.base.Backend.run` declares."""
        return self._backend(table.feed).run(table)

    def _backend(self, feed: Feed) -> Backend:
        """The backend, if there is memory for cases that observe at least what all of these do."""
        # raises TableTooLarge: If there is not.
        with self._lock:
            if self._made is None:
                self._made = get("cpu")(self.plan, self._factors)
            elif self._is_old:
                self._made.reload(self._factors)
            made, self._is_old = self._made, False
        if self.plan.cost().bytes > LARGE:
            needed = int(EXTENDED * made.memory(np.asarray((feed.rows() >= 0).all(axis=0))))
            if needed > (free := free_memory()):
                raise TableTooLarge(
                    f"{counted(feed.n, 'case')} {'are' if feed.n != 1 else 'is'} so improbable that numbers on the "
                    "GPU lose digits; the host has to compute with an exponent for every number, which takes "
                    f"{format_bytes(needed)} of its memory, of which {format_bytes(free)} are free; leave out findings "
                    "that contradict the others, or use a machine with more memory",
                    needed=needed,
                    limit=free,
                )
        return made

    def close(self) -> None:
        """Free the host's memory. May be called twice."""
        with self._lock:
            if self._made is not None:
                self._made.close()
            self._made = None
