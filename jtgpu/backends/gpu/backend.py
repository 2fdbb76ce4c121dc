"""The GPU backend: plan and CPTs stay on the device; a case is one launch, a table of cases is answered in chunks."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ...errors import JtgpuError, closest
from ...plans.plan import Plan
from ..base import Backend, Capabilities, Evidence, Prepare, Result
from ..reference import exponents_of
from ..table import COUNTS, CountSums, Table
from ..wrappers.row_queue import HeldParts, JoinedCases, RowQueue, count
from ..wrappers.workers import Closable, Lazy
from .program.records import REALS
from .select import ENGINES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..slices import SlicePasses
    from ..state_map import StateMap
    from .batch.engine import BatchEngine
    from .batch.table import TableJob
    from .case import CaseEngine
    from .counts.engine import CountEngine
    from .levels.engine import LevelEngine
    from .select import EngineMaker

A = TypeVar("A")
C = TypeVar("C", bound=Closable)


class Gpu(Backend):
    """`jtgpu.backends.base.Backend` on an NVIDIA GPU.

    Safe to use from several threads, which wait for each other. Several backends share a GPU.
    """
    # device: Number of the CUDA device. Default: the best.
    # engine: {"dataflow", "levels"}: What computes single cases: one kernel whose warps wait for single entries, or a
    #     kernel a level. Default: ``"dataflow"`` where it supports the network, else ``"levels"``.
    # dtype: {"float64", "float32"}: What tables of cases are computed in; single cases always in float64. Answers are
    #     float64 either way, and right for any P(e): cases in which numbers may be lost are computed in float64, or by
    #     the CPU (`jtgpu.backends.gpu.host`). float32 takes half of the memory.
    # single: Whether the engine of single cases is prepared at once; False: with the first case
    # stream: A CUDA stream of yours (PyTorch's, CuPy's, PyCUDA's, or a number): work queued on it before a query
    #     finishes before the query starts
    # raises BackendUnavailable: Without a GPU, PyCUDA or cuda-bindings.
    # raises TableTooLarge: If the device has not enough memory. The process stays usable.

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        device: int | None = None,
        *,
        engine: str | None = None,
        dtype: str = "float64",
        single: bool = True,
        stream: Any = None,
    ):
        from ...device.context import open_device
        from ...device.driver import After
        from .select import EngineMaker

        _check_options(engine, dtype)
        self._plan, self.dtype, self._engine_name = plan, dtype, engine
        self.device = open_device(device)
        self._after: After | None = None
        if stream is not None:
            with self.device.active():
                self._after = After(stream)
        self.maker: EngineMaker = EngineMaker(plan, list(factors), self.device, self._after)
        self._lock = threading.Lock()  # of the engines below: made, reloaded, closed
        self._is_open = True
        self._engine: CaseEngine | None = None
        self._fallback: Lazy[LevelEngine] = Lazy(self.maker.fallback)
        self._batch = Lazy(self._made_batch)
        self._counting = Lazy(self._made_counting)
        self._slices: Any = None  # GpuPasses
        if single:
            self._engine = self.maker.chosen(engine)

    @property
    def engine(self) -> CaseEngine:
        """The engine of single cases, made for the first of them."""
        with self._lock:
            self._check_open()
            if self._engine is None:
                self._engine = self.maker.chosen(self._engine_name)
            return self._engine

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            str(self.device.name), self.device.ordinal, native_columns=True, holds_cases=True
        )

    def with_patterns(self, factors: Sequence[NDArray[np.float64]], again: Prepare) -> Backend:
        patterns: Any = import_module(".patterns", __package__)  # which imports this module for its types
        made: Backend = patterns.GpuPatternCache(self._plan, factors, self)
        return made

    @property
    def kind(self) -> str:
        """Engine of single cases: ``"dataflow"`` or ``"levels"``."""
        return self.engine.kind

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        """See `jtgpu.backends.base.Backend.run_case`; computes every variable whatever the targets."""
        engine = self._engine or self.engine
        result = None
        if not exponents_of(evidence):
            result = engine.run(evidence)
            if result is None and engine.log_least_root == math.inf:
                result = self._fallback.get().run(evidence)
        return self.maker.host.run_case(evidence) if result is None else result

    # Tables of cases --------------------------------------------------------------------------------------------

    def run(self, table: Table[A]) -> A:
        """See `jtgpu.backends.base.Backend.run`; answers on a device and counts are always in float64."""
        # raises TableTooLarge: When the answers, or not even 32 cases, fit the device's memory.
        if table.deliver is COUNTS:
            return cast("A", count(self, cast("Table[CountSums]", table)))
        return self.tables.run(table)

    def share(self, table: Table[Any]) -> TableJob:
        return self.tables.share(table)

    def answer(self, job: TableJob, rows: RowQueue) -> None:
        """Answer rows of a job until none are left; see `jtgpu.backends.table.Job.answer`."""
        self.tables.answer(job, rows)

    @property
    def tables(self) -> BatchEngine:
        """The engine of tables of cases, made for the first of them."""
        return self._ready(self._batch)

    def _made_batch(self) -> BatchEngine:
        from .batch.engine import BatchEngine

        return BatchEngine(self._plan, self.maker.factors, self.device, self.dtype)

    def _ready(self, engine: Lazy[C]) -> C:
        """An engine, once what is queued on the user's stream is complete."""
        with self._lock:
            self._check_open()
            made = engine.get()
        if self._after is not None:
            with self.device.active():
                self._after.wait()
        return made

    # Expected counts ------------------------------------------------------------------------------------------------

    def hold(self, table: Table[CountSums]) -> Table[CountSums]:
        """See `jtgpu.backends.base.Backend.hold`; rows that do not fit the device are copied in every pass."""
        return table._replace(feed=JoinedCases(self._plan, table.feed, [self.hold_parts(table, (0, 1))]))

    def hold_parts(self, table: Table[CountSums], share: tuple[int, int]) -> HeldParts:
        """Store every n-th part of a table from the i-th on, ``share=(i, n)``."""
        # raises TableTooLarge: When not even a block of cases fits the device's memory.
        from .counts.held import hold

        return hold(self.counting, table, share)

    def slices(self, *with_sets: Any) -> SlicePasses | None:
        if self.dtype != "float64":
            return None
        from .slices.engine import GpuPasses

        with self._lock:
            self._check_open()
            if self._slices is None:
                plan, factors = with_sets or (self._plan, self.maker.factors)
                self._slices = GpuPasses(plan, factors, [self.device])
            passes: SlicePasses = self._slices
            return passes

    @property
    def counting(self) -> CountEngine:
        """The engine of expected counts, made for the first of them."""
        return self._ready(self._counting)

    def _made_counting(self) -> CountEngine:
        from .counts.engine import CountEngine

        return CountEngine(self._plan, self.maker.factors, self.device)

    # Costs, numbers, end ----------------------------------------------------------------------------------------

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Predicted device nanoseconds of a case, whatever it observes."""
        return self.engine.nanoseconds

    def memory(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Bytes on the device that single cases take."""
        return self.engine.n_bytes

    def measure(self, runs: int, cases: Sequence[Evidence]) -> list[float]:
        """Device microseconds of `runs` propagations; the cases take turns."""
        return self.engine.measure(runs, cases)

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """See `jtgpu.backends.base.Backend.reload`; memory, kernels and graphs stay."""
        shapes = [f.shape for f in self.maker.factors]
        if [f.shape for f in factors] != shapes:
            raise ValueError("reload() takes factors of the same shapes")
        with self._lock:
            self._check_open()
            self.maker.reload(factors)
            if self._engine is not None:
                self._engine.reload(factors)
            if self._counting.made is not None:
                self._counting.made.reload(factors)
            old = (self._fallback, self._slices, self._batch)
            self._fallback, self._slices, self._batch = Lazy(self.maker.fallback), None, Lazy(self._made_batch)
        for engine in old:
            if engine is not None:
                engine.close()

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            for engine in (self._engine, self._fallback, self.maker.host, self._batch, self._counting, self._slices):
                if engine is not None:
                    engine.close()
            if self._after is not None:
                with self.device.active():
                    self._after.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise JtgpuError("this backend is closed")


def _check_options(engine: str | None, dtype: str) -> None:
    if engine not in (None, *ENGINES):
        names = " or ".join(map(repr, ENGINES))
        raise ValueError(f"engine must be {names} or None, not {engine!r}{closest(str(engine), ENGINES)}")
    if dtype not in REALS:
        raise ValueError(f"dtype must be {' or '.join(map(repr, REALS))}, not {dtype!r}")


OPTIONS = ("device", "engine", "dtype", "single", "stream")


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Gpu:
    """Create the backend, as `jtgpu.backends.base.Prepare` declares."""
    # raises TypeError: For an option that `Gpu` does not have.
    for name in options:
        if name not in OPTIONS:
            known = ", ".join(OPTIONS)
            raise TypeError(f"the GPU backend has no option {name!r}{closest(name, OPTIONS)} (it has {known})")
    return Gpu(plan, factors, **options)
