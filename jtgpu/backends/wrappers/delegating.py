"""A backend around another one: whatever a subclass does not change is done by the wrapped backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..base import Backend, Capabilities, CountSums, Evidence, Result, Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..base import Session
    from ..slices import SlicePasses
    from ..state_map import StateMap

A = TypeVar("A")


class DelegatingBackend(Backend):
    """A `Backend` whose methods are those of another one; parameters as of `Backend`."""
    # backend: Closed with this object

    def __init__(self, backend: Backend):
        self.backend = backend

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) first cell of each variable in a result."""
        return self.backend.posterior_ptr

    @property
    def capabilities(self) -> Capabilities:
        return self.backend.capabilities

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        return self.backend.run_case(evidence, targets, states)

    def run(self, table: Table[A]) -> A:
        return self.backend.run(table)

    def hold(self, table: Table[CountSums]) -> Table[CountSums]:
        return self.backend.hold(table)

    def slices(self, *plan: Any) -> SlicePasses | None:
        return self.backend.slices(*plan)

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        return self.backend.work(seen, targets)

    def memory(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        return self.backend.memory(seen, targets)

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        self.backend.reload(factors)

    def session(self) -> Session:
        return self.backend.session()

    def close(self) -> None:
        self.backend.close()
