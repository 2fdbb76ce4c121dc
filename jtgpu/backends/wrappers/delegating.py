"""A backend around another one: whatever a subclass does not change is done by the wrapped backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..base import Backend, BatchResult, Capabilities, ColumnResult, Counts, DeviceResult, Evidence, HeldCases, Result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..base import Session, Tables
    from ..slices import SlicePasses
    from ..state_map import StateMap


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

    @property
    def tables(self) -> Tables:
        """The object that answers tables of cases: the wrapped backend's."""
        return self.backend.tables

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        return self.backend.run_case(evidence, targets, states)

    def run_batch(self, *table: Any, **options: Any) -> BatchResult:
        return self.backend.run_batch(*table, **options)

    def run_few(self, *table: Any, **options: Any) -> BatchResult:
        return self.backend.run_few(*table, **options)

    def run_columns(self, *table: Any, **options: Any) -> ColumnResult:
        return self.backend.run_columns(*table, **options)

    def run_device(self, *table: Any, **options: Any) -> DeviceResult:
        return self.backend.run_device(*table, **options)

    def run_counts(self, *table: Any, **options: Any) -> Counts:
        return self.backend.run_counts(*table, **options)

    def hold_cases(self, *table: Any, **options: Any) -> HeldCases:
        return self.backend.hold_cases(*table, **options)

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
