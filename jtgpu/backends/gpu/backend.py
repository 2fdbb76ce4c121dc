"""The resident GPU engine: plan and CPTs stay on the card, a case is one graph launch, a table of cases is chunks.

`shapes` chooses how threads lie over a contraction, `places` where tables lie, `schedule` turns a plan into records,
`engine` runs one case as a kernel a level; `slabs` finds contractions of many megabytes that can run state by state of
what they have in common, `slab_code` writes the kernel that does; `products` finds what is never zero, `lists` deals it
out where little is left and `list_engine` runs it as one kernel; `flow` deals work out to warps that wait for single
entries, and `flow_engine` runs that; `single` chooses among them, `ways` keeps what was measured; `cut_engine` and
`cut_flow` run what evidence patterns leave of a network, `cut_ways` chooses; `batch` runs many cases. The kernels are
in cuda/single/ and cuda/batch/.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import JtgpuError
from ...plans.plan import Plan
from ..base import BackendDefaults, BatchResult, ColumnResult, Evidence, PlainSession, Result, Session
from ..wrappers.workers import Once
from .program.structs import REALS
from .single.configs import ENGINES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...device.driver import After
    from ..wrappers.row_queue import RowQueue
    from .batch.engine import BatchEngine
    from .batch.table import ColumnTable, RowTable, Table
    from .single.levels.engine import CaseEngine
    from .single.pattern_configs import CutWay
    from .single.select import Maker

__all__ = ["Gpu", "prepare"]

WARMING, LEAST_RUNS, MOST_RUNS = 3, 5, 30  # propagations of which a time is made
HOLD_NS, MEASURING = 60_000, 6_000_000  # nanoseconds that measuring takes round each of them; that all may take


class Gpu(BackendDefaults):
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
    engine : {"lists", "flow", "levels"}, optional
        What answers single cases: lists; one kernel whose warps wait for single entries instead of levels; a kernel a
        level. Default: what a model of their time finds quickest.
    dtype : {"float64", "float32"}
        What tables are made of. Answers are float64 either way, and P(e) of 1e-300 and below is right. float32 takes
        half of the card's memory, and less time where tables are large; it gains nothing where a propagation waits for
        its levels. It costs digits: of the published networks posteriors are right to 4e-7 and P(e) to 5e-6 of itself
        (Diabetes, of 60 levels; most to 1e-7: ``bench/bench_precision.py``).
        A case in which float32 lost what P(e) is made of (numbers 1e-60 of the largest in their table, that later
        evidence asks for) is noticed, as is P(e) = 0, and answered in float64 by an engine that is made for the first
        of them. Where lists of products are quicker, single cases are answered by them, in float64.
    single : bool
        Whether what answers single cases is made at once; False: for the first of them.
    stream : int or object, optional
        A CUDA stream of yours (PyTorch's, CuPy's, PyCUDA's, or a number): what is queued on it when a question is
        asked is done before the propagation begins. What you queue after the answer runs after it in any case.
    tune : bool
        Measure first what answers single cases quickest, and keep it: seconds, once a network and kind of card. From
        then on that is what answers wherever neither `engine` nor `lists` is given and `dtype` is float64.
    once : Once, optional
        What is laid out on the host alone, shared with backends of the same plan and numbers on other cards.

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
        engine: str | None = None,
        dtype: str = "float64",
        single: bool = True,
        stream: Any = None,
        tune: bool = False,
        once: Once | None = None,
    ):
        from ...device.context import open_device

        if engine not in (None, *ENGINES):
            raise ValueError(f"engine is one of {', '.join(map(repr, ENGINES))} or None, not {engine!r}")
        if dtype not in REALS:
            raise ValueError(f"dtype is {' or '.join(map(repr, REALS))}, not {dtype!r}")
        self._plan, self.dtype = plan, dtype
        self._flows = engine in (None, "flow")  # whether an engine without levels may answer single cases
        self._factors: list[NDArray[np.float64]] | None = list(factors)
        self.device = open_device(device)
        self._batch: BatchEngine | None = None
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._engine: CaseEngine | None = None
        self._after: After | None = None
        shared = once or Once()

        def maker() -> Maker:
            from .single.select import Maker

            return Maker(plan, factors, self.device, dtype, shared)

        self._make_engine: Callable[[], CaseEngine] = lambda: maker().chosen(engine, lists)
        if stream is not None:
            from ...device.driver import After

            with self.device.active():
                self._after = After(stream)
        if tune and dtype == "float64":
            shared(("tuned", self.device.name), lambda: maker().tune())
        if single:
            self._engine = self._ordered(self._make_engine())

    @property
    def engine(self) -> CaseEngine:
        """What answers single cases."""
        with self._making:
            if self._factors is None:
                raise JtgpuError("this backend is closed")
            if self._engine is None:
                self._engine = self._ordered(self._make_engine())
            return self._engine

    def _ordered(self, engine: CaseEngine) -> CaseEngine:
        engine.after = self._after
        return engine

    @property
    def device_name(self) -> str:
        """See `jtgpu.backends.base.Backend.device_name`."""
        return str(self.device.name)

    @property
    def native_columns(self) -> bool:
        """See `jtgpu.backends.base.Backend.native_columns`."""
        return True

    @property
    def kind(self) -> str:
        """Which engine runs single cases: ``"lists"`` or ``"flow"``, one kernel; ``"levels"``, a kernel a level."""
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
        TableTooLarge
            When not even 32 cases fit the card's memory.
        """
        return self._batches().run(states, likelihood, targets)

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        """See `jtgpu.backends.base.Backend.run_columns`.

        Raises
        ------
        TableTooLarge
            When not even 32 cases fit the card's memory.
        """
        return self._batches().run_columns(variables, codes, targets)

    def share(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None,
        targets: Sequence[int] | None,
    ) -> RowTable:
        """See `jtgpu.backends.wrappers.devices.SharesTables.share`."""
        return self._batches().row_table(states, likelihood, targets)

    def share_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None
    ) -> ColumnTable:
        """See `jtgpu.backends.wrappers.devices.SharesTables.share_columns`."""
        return self._batches().column_table(variables, codes, targets)

    def answer(self, table: Table[Any], queue: RowQueue) -> None:
        """See `jtgpu.backends.gpu.batch.table.TableWorker`."""
        self._batches().answer(table, queue)

    def _batches(self) -> BatchEngine:
        """What answers tables of cases, made for the first of them."""
        from .batch.engine import BatchEngine

        with self._lock:
            if self._factors is None:
                raise JtgpuError("this backend is closed")
            if self._batch is None:
                self._batch = BatchEngine(self._plan, self._factors, self.device, self.dtype)
            made, after = self._batch, self._after
        if after is not None:
            with self.device.active():
                after.wait()
        return made

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Nanoseconds that a case should take, whatever it observes."""
        return self.engine.nanoseconds

    def memory(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Bytes on the card that single cases take."""
        return self.engine.n_bytes

    def cut_ways(self, plans: Sequence[Plan], seen: NDArray[np.bool_]) -> Iterator[CutWay]:
        """Engines that could answer cases that observe these variables, (V,) bool, of plans of what is left of the
        network: see `jtgpu.backends.gpu.single.pattern_configs`. What is made is closed by who asked for it."""
        from .single.pattern_configs import cut_ways

        factors = self._factors
        if factors is None:
            raise JtgpuError("this backend is closed")
        scopes = self._plan.factor_scopes
        for way in cut_ways(plans, factors, scopes, seen, self.device, self.dtype, self._flows):

            def make(way: CutWay = way) -> CaseEngine:
                return self._ordered(way.make())

            yield replace(way, make=make)

    def timed(self, seen: NDArray[np.bool_], engine: CaseEngine | None = None) -> float:
        """Nanoseconds that a case takes on the card which observes these variables, (V,) bool: measured, of what
        answers single cases here, or of another engine, for which that rests some milliseconds."""
        own = self.engine
        asked = engine or own
        case = [Evidence(np.where(seen, 0, -1).astype(np.int32))]
        with self.device.active():
            self.device.function("common/hold", "hold")  # compiled here, if it has to be: nobody may wait for that
        asked.measure(WARMING, case)  # the clocks are up, and all kernels on the card
        runs = max(LEAST_RUNS, min(MOST_RUNS, MEASURING // (asked.nanoseconds + HOLD_NS)))
        with contextlib.nullcontext() if asked is own else own.lock:
            times = sorted(asked.measure(runs, case))
        return 1000.0 * times[len(times) // 4]  # others on the card make a run slower, and none quicker

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
            with self._making:
                if self._engine is not None:
                    self._engine.close()
            if self._batch is not None:
                self._batch.close()
            if self._after is not None:
                with self.device.active():
                    self._after.close()


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Gpu:
    """See `jtgpu.backends.base.Prepare`."""
    return Gpu(plan, factors, **options)
