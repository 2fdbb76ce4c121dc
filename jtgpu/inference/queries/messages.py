"""Messages kept for the questions that go back down the tree: who sweeps a contraction forest for which backend.

The backend "reference" has its own sweep in NumPy, the definition. All others use the CPU's compiled one: a way back
down visits one small slice after the other, each of which depends on the one before, so there is nothing for a GPU to
do side by side, and the sweep to the roots alone takes a fraction of a propagation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ...backends.forest import Forest, Sweep, collect_forest, derivative_forest
from ...backends.reference import ReferenceSweep

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backends.base import Evidence
    from ...plans.plan import Plan
    from ..compiled import CompiledModel

__all__ = ["Messages", "messages_of", "named"]

T = TypeVar("T")

MOST_MESSAGES = 4  # sets of numbers whose sweeps a tree keeps: its own, and those of the last interventions
MOST_SWEEPS = 16  # forests besides those of the plan, kept for one set of numbers


class Messages:
    """The sweeps of one plan and one set of numbers, each made on first use.

    Parameters
    ----------
    plan : Plan
    factors : sequence of arrays
        In the order of ``plan.factor_var``.
    backend : str
        Name of the tree's backend.
    threads : int, optional
        Cores that it may use.
    """

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], backend: str, threads: int | None = None
    ):
        self._plan, self.factors, self._backend, self._threads = plan, factors, backend, threads
        self._kept: OrderedDict[Hashable, Sweep] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, forest: Callable[[], Forest]) -> Sweep:
        """The sweep of a forest that is known by `key`."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._prepare(forest())
                while len(self._kept) > MOST_SWEEPS:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _prepare(self, forest: Forest) -> Sweep:
        if self._backend == "reference":
            return ReferenceSweep(forest, self.factors)
        from ...backends.cpu.collect import CpuSweep  # imports numba

        return CpuSweep(forest, self.factors, self._threads)

    def maximal(self) -> Sweep:
        """The plan's collecting half, by maximum."""
        return self.get("maximal", lambda: collect_forest(self._plan, maximal=True))

    def summing(self) -> Sweep:
        """The plan's collecting half, by sum."""
        return self.get("summing", lambda: collect_forest(self._plan, maximal=False))

    def derivative(self) -> Sweep:
        """The plan's collecting half, and the way down to every factor."""
        return self.get("derivative", lambda: derivative_forest(self._plan))


def messages_of(tree: CompiledModel, factors: Sequence[NDArray[np.float64]]) -> Messages:
    """The sweeps for the numbers of a query: the model's, or those under interventions."""
    # the value holds the factors, so no other list has this id while the value is cached
    return tree.cached(
        "messages", id(factors), lambda: Messages(tree.plan.whole, factors, tree.backend, tree.threads), MOST_MESSAGES
    )


def named(tree: CompiledModel, case: Evidence, run: Callable[[], T]) -> T:
    """What `run` returns; where it finds the case impossible, the error names the evidence."""
    return cast(T, tree.answer(cast(Any, lambda *_: run()), case, None))
