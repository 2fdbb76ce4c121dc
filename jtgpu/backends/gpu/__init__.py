"""The resident GPU engine: plan and CPTs stay on the card, a case is one graph launch, a table of cases is chunks.

`shapes` chooses how threads lie over a contraction, `schedule` turns a plan into records, `engine` runs one case as
a kernel a level, `fused` as one kernel where the network fits shared memory, `batch` many cases; the kernels are in
cuda/resident/.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import EvidenceError, JtgpuError
from ...plan import Plan
from ..base import Evidence, Result
from .schedule import make_schedule

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..device import Device
    from .batch import BatchEngine, BatchResult
    from .engine import CaseEngine

__all__ = ["Gpu", "prepare"]

MOST_FUSED_WORK = 30_000  # operations of a propagation up to which one block is faster than a kernel a level


class Gpu:
    """`jtgpu.backends.base.Backend` on an NVIDIA GPU, for one case at a time or a table of cases.

    Safe to use from several threads; they wait for each other. Several trees share the card.

    Parameters
    ----------
    plan : Plan
    factors : sequence of float64 arrays
    device : int, optional
        Number of the CUDA device; default: the best.
    fused : bool, optional
        Whether the whole network runs in the shared memory of one block; default: where it fits and pays.

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
        fused: bool | None = None,
    ):
        from ..device import open_device

        self._plan = plan
        self._factors: list[NDArray[np.float64]] | None = list(factors)
        self.device = open_device(device)
        self._batch: BatchEngine | None = None
        self._lock = threading.Lock()
        self.engine = _single(plan, factors, self.device, fused)

    @property
    def kind(self) -> str:
        """Which engine runs single cases: ``"fused"``, one block; ``"levels"``, a kernel a level."""
        return self.engine.kind

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`; answers every variable whatever the targets."""
        return self.engine.run(evidence)

    def run_batch(self, states: ArrayLike, targets: Sequence[int] | None = None) -> BatchResult:
        """Answer a table of cases.

        Parameters
        ----------
        states : (B, V) integers
            Observed state of each variable in each case, -1 = not observed.
        targets : sequence of int, optional
            Variables whose posteriors are wanted; None: all.

        Returns
        -------
        BatchResult
            With impossible cases flagged, not raised.

        Raises
        ------
        EvidenceError
            For an array of another shape, or a state that a variable does not have.
        TableTooLarge
            When not even 32 cases fit the card's memory.
        """
        from .batch import BatchEngine

        table = np.asarray(states)
        cards = self._plan.cardinality
        if table.ndim != 2 or table.shape[1] != len(cards) or table.dtype.kind not in "iu":
            raise EvidenceError(
                f"cases are integers of shape (B, {len(cards)}), not {table.dtype} of shape {table.shape}"
            )
        if table.size and (bool((table < -1).any()) or bool((table >= cards).any())):
            row, v = np.argwhere((table < -1) | (table >= cards))[0].tolist()
            raise EvidenceError(f"case {row}: variable {v} has {cards[v]} states, not a state {table[row, v]}")
        with self._lock:
            if self._factors is None:
                raise JtgpuError("this backend is closed")
            if self._batch is None:
                self._batch = BatchEngine(self._plan, self._factors, self.device)
        return self._batch.run(table.astype(np.int32, copy=False), targets)

    @property
    def batch_device_us(self) -> float:
        """Microseconds that the kernels of the last `run_batch` took, copies left out; 0 before."""
        return self._batch.device_us if self._batch is not None else 0.0

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


def _single(plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device, fused: bool | None) -> CaseEngine:
    """The engine for single cases."""
    from .engine import Engine
    from .fused import MOST_CELLS, STATES, FusedEngine, fused_image

    small = int(plan.arena_cells[0]) <= MOST_CELLS
    if fused or (fused is None and small and plan.cost().flops <= MOST_FUSED_WORK):
        image, layout = fused_image(plan, factors)
        if fused or (plan.n_variables <= STATES and FusedEngine.fits(image, device)):
            return FusedEngine(plan, image, layout, device)
    return Engine(plan, factors, make_schedule(plan), device)


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Gpu:
    """See `jtgpu.backends.base.Prepare`."""
    return Gpu(plan, factors, **options)
