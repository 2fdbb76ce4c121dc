"""The published GPU engine (A. Gottoli, F. Pettenuzzo, 2014) on today's devices: ``backend="indexed"``.

Explicit index tables; marginalisation in parallel over m or over n; scattering; normalisation; small tables on the CPU.
Every field of `jtgpu.published.junction_trees.rules.Rules` is an option of `prepare`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend, Evidence, Result
from ...backends.state_map import StateMap
from ...device.context import Device, open_device
from ...errors import BackendUnavailable, ImpossibleEvidence, JtgpuError, TableTooLarge, format_bytes
from ...plans.plan import Plan
from ...util.arrays import Floats
from ...util.system import free_memory
from .host import Clock, HostEngine
from .indextables import IndexTable, build_all, layout
from .resident import ResidentEngine
from .rules import Rules
from .schedule import Schedule
from .streamed import HostTables, StreamedEngine
from .tuning import saved_rules


def prepare(plan: Plan, factors: Sequence[Floats], **options: Any) -> Indexed:
    """Prepare the published engine for a plan and the numbers of a model."""
    # factors: sequence of float64 arrays: As in `jtgpu.backends.base.Prepare`
    # **options: The fields of `Rules`. ``thresholds="tuned"`` replaces the published defaults by those that
    #     `tuning.save` stored for this device. ``engine="host"`` runs the same algorithm on the CPU without a device.
    # raises BackendUnavailable: If PyCUDA, the driver or the device is missing.
    # raises TableTooLarge: Before memory is allocated, if a clique has more than `max_entries` entries or the tables do
    #     not fit into the free memory of the host or the device.
    return Indexed(plan, factors, **options)


class Indexed(Backend):
    """Implements `jtgpu.backends.base.Backend`; made by `prepare`."""
    # device: None with ``engine="host"``
    # uses_blas: Whether cuBLAS normalises

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[Floats],
        *,
        engine: str = "device",
        thresholds: str = "published",
        **options: Any,
    ):
        if engine not in ("device", "host"):
            raise ValueError(f'engine must be "device" or "host", not {engine!r}')
        if thresholds not in ("published", "tuned"):
            raise ValueError(f'thresholds must be "published" or "tuned", not {thresholds!r}')
        self._lock = threading.Lock()
        self._engine: HostEngine | StreamedEngine | ResidentEngine | None = None
        self._pinned: list[NDArray[Any]] = []
        self.device: Device | None = None
        self.uses_blas = False
        self._plan = plan
        self.schedule = Schedule(plan)
        rules = Rules(**options)
        self.schedule.check_entries(rules.max_entries)
        if engine == "device":
            self.device = open_device(rules.device)
            if thresholds == "tuned":
                rules = Rules(**{**saved_rules(self.device, rules.transfers), **options})
        self.rules = rules
        if self.device is None:
            self._start_host(factors)
        else:
            with self.device.active():
                try:
                    self._start_device(factors)
                except BaseException:
                    self._release()
                    raise

    def _array(self, cells: int, *, pin: bool = False) -> NDArray[Any]:
        if pin and self.device is not None:
            self._pinned.append(self.device.pinned(cells, self.rules.dtype))
            return self._pinned[-1][:cells]
        return np.empty(cells, self.rules.dtype)

    def _check_memory(self, *, in_work: bool) -> None:
        """Check the host's memory before it is allocated."""
        real = np.dtype(self.rules.dtype).itemsize
        cells = int(self.schedule.clique_off[-1]) * (2 if in_work else 1) + 2 * int(self.schedule.separator_off[-1])
        index = layout(self.schedule.shapes)[1]
        needed, free = cells * real + index, free_memory()
        if needed > free:
            raise TableTooLarge(
                f"the tables need {format_bytes(cells * real)} and their index tables {format_bytes(index)} of memory; "
                f"{format_bytes(free)} are free",
                entries=max(self.schedule.clique_entries, default=0),
                needed=needed,
                limit=free,
            )

    def _start_host(self, factors: Sequence[Floats]) -> None:
        self._check_memory(in_work=True)
        tables = build_all(self.schedule.shapes, max_entries=None)
        initial, work = (self._array(int(self.schedule.clique_off[-1])) for _ in range(2))
        self.schedule.initial_tables(factors, initial)
        self._engine = HostEngine(self.schedule, tables, initial, work)

    def _start_device(self, factors: Sequence[Floats]) -> None:
        assert self.device is not None
        each = self.rules.transfers == "each"
        self._check_memory(in_work=each)
        tables = self._index_tables(pin=each and self.rules.index_transfers == "each")
        cells, separators = int(self.schedule.clique_off[-1]), int(self.schedule.separator_off[-1])
        initial = self._array(cells, pin=each)
        self.schedule.initial_tables(factors, initial)
        self.uses_blas = self._choose_blas()
        if each:
            pair = self._array(separators, pin=True), self._array(separators, pin=True)
            work = self._array(cells, pin=True)
            host = HostTables(tables, initial, work, pair)
            self._engine = StreamedEngine(self.schedule, host, self.device, self.rules, self.uses_blas)
        else:
            self._engine = ResidentEngine(self.schedule, tables, initial, self.device, self.rules)

    def _index_tables(self, *, pin: bool) -> list[IndexTable]:
        buffer = None
        if pin and self.device is not None:
            self._pinned.append(self.device.pinned(layout(self.schedule.shapes)[1], np.uint8))
            buffer = self._pinned[-1]
        return build_all(self.schedule.shapes, max_entries=None, buffer=buffer)

    def _choose_blas(self) -> bool:
        """Whether cuBLAS normalises: ``"cublas"`` requires it, ``"auto"`` uses it if it is installed."""
        if self.rules.transfers == "resident" and self.rules.normalise == "cublas":
            raise ValueError(
                "normalise='cublas' needs transfers='each': cuBLAS returns its sum to the host"
            )
        if self.rules.transfers == "resident" or self.rules.normalise == "kernel":
            return False
        assert self.device is not None
        try:
            self.device.blas(self.device.stream(), self.rules.dtype).close()
        except BackendUnavailable:
            if self.rules.normalise == "cublas":
                raise
            return False
        return True

    # Queries ---------------------------------------------------------------------------------------------------

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        plan = self._plan
        wanted = range(plan.n_variables) if targets is None else [int(v) for v in targets]
        out = np.zeros(int(plan.posterior_ptr[-1]))
        with self._lock, self._active() as engine:
            log_scale = engine.load(evidence.vectors(plan.cardinality))
            engine.propagate()
            log_evidence = engine.log_evidence() + log_scale
            engine.posteriors(wanted, out)
        for v in wanted:
            cells = out[plan.posterior_ptr[v] : plan.posterior_ptr[v + 1]]
            total = cells.sum()
            if not total > 0.0:
                raise ImpossibleEvidence("the evidence has probability 0")
            cells /= total
        return Result(out, log_evidence)

    def propagate(self, evidence: Evidence, clock: Clock | None = None) -> None:
        """Collect and distribute only; the published times measure this."""
        with self._lock, self._active() as engine:
            engine.load(evidence.vectors(self._plan.cardinality))
            engine.propagate(clock)

    def timed_propagation(self, evidence: Evidence) -> float:
        """Seconds of one propagation by the host's clock, from initial to calibrated tables."""
        with self._lock, self._active() as engine:
            engine.load(evidence.vectors(self._plan.cardinality))
            if self.device is not None:
                self.device.synchronize()
            start = perf_counter()
            engine.propagate()
            return perf_counter() - start

    @contextmanager
    def _active(self) -> Iterator[Any]:
        """The engine, with its device's context current."""
        if self._engine is None:
            raise JtgpuError("this backend is closed")
        with nullcontext() if self.device is None else self.device.active():
            yield self._engine

    def reload(self, factors: Sequence[Floats]) -> None:
        """See `jtgpu.backends.base.Backend.reload`: builds the engine again."""
        with self._lock, self._active():
            if self.device is None:
                self._start_host(factors)
            else:
                self._release()
                self._start_device(factors)

    def close(self) -> None:
        with self._lock:
            if self._engine is None:
                return
            if self.device is None:
                self._engine = None
                return
            with self.device.active():
                self._release()

    def _release(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        del engine  # it has views of the pinned arrays
        while self._pinned:
            assert self.device is not None
            self.device.unpin(self._pinned.pop())
