"""The resident GPU engine: plan and CPTs stay on the card, a case is one graph launch, a table of cases is chunks.

`shapes` chooses how threads lie over a contraction, `schedule` turns a plan into records, `engine` runs one case as
a kernel a level; `products` finds what is never zero, `lists` deals it out where little is left and `list_engine` runs
it as one kernel; `batch` runs many cases. The kernels are in cuda/resident/.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BackendUnavailable, JtgpuError
from ...plan import Plan
from ..base import BatchResult, Evidence, PlainSession, Result, Session
from .schedule import make_schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..device import Device
    from .batch import BatchEngine
    from .engine import CaseEngine

__all__ = ["Gpu", "prepare"]

MOST_LISTED = 60_000_000  # operations of a propagation up to which products that are not zero are counted
LEVEL_US, START_US = 1.4, 6.0  # microseconds that a kernel a level takes at least: a level, and the rest


class Gpu:
    """`jtgpu.backends.base.Backend` on an NVIDIA GPU, for one case at a time or a table of cases.

    Safe to use from several threads; they wait for each other. Several trees share the card.

    Parameters
    ----------
    plan : Plan
    factors : sequence of float64 arrays
    device : int, optional
        Number of the CUDA device; default: the best.
    lists : bool, optional
        Whether one kernel goes through lists of the products that are not zero; default: where it fits and pays.

    Raises
    ------
    BackendUnavailable
        Without a GPU, PyCUDA or cuda-bindings.
    TableTooLarge
        When the card has not enough memory; the process stays usable.
    """

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        device: int | None = None,
        *,
        lists: bool | None = None,
    ):
        from ..device import open_device

        self._plan = plan
        self._factors: list[NDArray[np.float64]] | None = list(factors)
        self.device = open_device(device)
        self._batch: BatchEngine | None = None
        self._lock = threading.Lock()
        self.engine = _single(plan, factors, self.device, lists)

    @property
    def kind(self) -> str:
        """Which engine runs single cases: ``"lists"``, one kernel; ``"levels"``, a kernel a level."""
        return self.engine.kind

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`; answers every variable whatever the targets."""
        return self.engine.run(evidence)

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`.

        Raises
        ------
        EvidenceError
            For an array of another shape, a state that a variable does not have, a weight below zero.
        TableTooLarge
            When not even 32 cases fit the card's memory.
        """
        from .batch import BatchEngine
        from .batch_rows import checked_states

        table = checked_states(states, self._plan.cardinality)
        with self._lock:
            if self._factors is None:
                raise JtgpuError("this backend is closed")
            if self._batch is None:
                self._batch = BatchEngine(self._plan, self._factors, self.device)
        return self._batch.run(table, likelihood, targets)

    def session(self) -> Session:
        """See `jtgpu.backends.base.Backend.session`: every query is one graph launch, whatever changed."""
        return PlainSession(self)

    @property
    def batch_device_us(self) -> float:
        """Microseconds that the kernels of the last `run_batch` took, copies left out; 0 before."""
        return self._batch.device_us if self._batch is not None else 0.0

    @property
    def batch_kind(self) -> str:
        """Which kernels answer tables of cases: ``"lanes"``, written for the network; ``"tables"``; empty before."""
        return self._batch.kind if self._batch is not None else ""

    def measure(self, runs: int, cases: Sequence[Evidence]) -> list[float]:
        """Device microseconds of `runs` propagations, the cases taking turns."""
        return self.engine.measure(runs, cases)

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        with self._lock:
            self._factors = None
            self.engine.close()
            if self._batch is not None:
                self._batch.close()


def _single(plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device, lists: bool | None) -> CaseEngine:
    """The engine for single cases."""
    from .driver import most_shared
    from .engine import Engine
    from .list_engine import ListEngine
    from .lists import CLUSTERS, make_lists
    from .products import needed_products

    listed = needed_products(plan, factors) if plan.cost().flops <= MOST_LISTED else None

    def by_levels() -> CaseEngine:
        return Engine(plan, factors, make_schedule(plan, listed=listed), device)

    clusters = CLUSTERS if device.capability >= (9, 0) else CLUSTERS[:1]
    wanted = listed is not None and lists is not False
    made = make_lists(plan, factors, most_shared(device), clusters, listed) if wanted else None
    least = LEVEL_US * plan.cost().program_levels + START_US
    if made is None or (lists is None and made.microseconds > least):
        if lists:
            raise JtgpuError("this network has too many products that are not zero to be run as lists")
        return by_levels()
    try:
        return ListEngine(plan, made, device, by_levels)
    except BackendUnavailable:  # a card, or a share of one, that cannot hold so many blocks together
        if lists:
            raise
        return by_levels()


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Gpu:
    """See `jtgpu.backends.base.Prepare`."""
    return Gpu(plan, factors, **options)
