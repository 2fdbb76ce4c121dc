"""Programs that are run for queries by a backward pass or by derivatives, cached with their numbers.

The backend "reference" runs them in NumPy, the definition. All others use the CPU's compiled loops: a backward pass
visits one small slice after the other, each of which depends on the one before, so a GPU finds no parallelism, and the
run to the roots alone takes a fraction of a propagation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ...backends.cpu.queries import CpuSweep
from ...backends.reference import ReferenceSweep
from ...backends.sweep import Sweep
from ...plans.program import Program, collect_program, derivative_program
from ...util.lru import LRU

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backends.base import Evidence
    from ...plans.plan import Plan
    from ..compiled import CompiledModel

T = TypeVar("T")

MOST_MESSAGES = 4  # sets of numbers: the model's own, and those of the last interventions
MOST_SWEEPS = 16  # programs that are cached for one set of numbers


class Messages:
    """The sweeps of one plan and one set of numbers, each made on first use. Thread-safe."""
    # factors: sequence of arrays: In the order of ``plan.factor_var``
    # backend: Name of the tree's backend
    # threads: Cores that a sweep may use

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], backend: str, threads: int | None = None
    ):
        self._plan, self.factors, self._backend, self._threads = plan, factors, backend, threads
        self._sweeps: LRU[Hashable, Sweep] = LRU(MOST_SWEEPS)

    def get(self, key: Hashable, program: Callable[[], Program]) -> Sweep:
        """The sweep of a program that is identified by `key`."""
        return self._sweeps.get_or_make(key, lambda: self._prepare(program()))

    def _prepare(self, program: Program) -> Sweep:
        if self._backend == "reference":
            return ReferenceSweep(program, self.factors)
        return CpuSweep(program, self.factors, self._threads)

    def maximal(self) -> Sweep:
        """From the factors to the roots by maximum."""
        return self.get("maximal", lambda: collect_program(self._plan, maximal=True))

    def summing(self) -> Sweep:
        """From the factors to the roots by sum."""
        return self.get("summing", lambda: collect_program(self._plan, maximal=False))

    def derivative(self) -> Sweep:
        """Derivatives by every entry of every factor."""
        return self.get("derivative", lambda: derivative_program(self._plan))


def messages_of(tree: CompiledModel, factors: Sequence[NDArray[np.float64]]) -> Messages:
    """The sweeps for the numbers of a query: the model's, or those under interventions."""
    # the value holds the factors, so no other list has this id while the value is cached
    return tree.cached(
        "messages", id(factors), lambda: Messages(tree.plan.whole, factors, tree.backend, tree.threads), MOST_MESSAGES
    )


def named(tree: CompiledModel, case: Evidence, run: Callable[[], T]) -> T:
    """Call `run`; if it raises `ImpossibleEvidence`, the message names the evidence."""
    return cast(T, tree.answer(cast(Any, lambda *_: run()), case, None))
