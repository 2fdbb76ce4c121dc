"""Which kernels answer a table, or count it: those generated for the network, or those that read records; and what the
engines of both have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...device.context import Device
from ...errors import BackendUnavailable, JtgpuError
from ...plans.plan import Plan
from .batch.table import Weights
from .host import Host

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PlanKernels(Protocol):
    """A plan and a model's numbers on one GPU, as kernels for tables of cases."""

    kind: str  # "lanes": generated for the network, a thread a case; "tables": by records; "warps": a warp a case

    @property
    def case_bytes(self) -> int:
        """Scratch memory of a case."""

    @property
    def most_cases(self) -> int:
        """Of a chunk."""

    def takes(self, smallest: float) -> bool:
        """Whether weights as small as this (log2) leave every number in range."""

    def close(self) -> None:
        """Unload the kernels."""


P = TypeVar("P", bound=PlanKernels)


class KernelChoice(Generic[P]):
    """An engine's kernels by name, made on first use. Used inside ``device.active()``."""
    # records: Makes those that take any network and any weights
    # generate: Makes those of the network, for tables with weights of states or without; None: there are none

    def __init__(self, records: Callable[[], P], generate: Callable[[bool], P] | None):
        self.made: dict[str, P] = {}
        self._records, self._generate = records, generate

    @property
    def generates(self) -> bool:
        """Whether there are kernels of the network."""
        return self._generate is not None

    def of(self, weights: Weights) -> P:
        """The kernels of a table: generated ones if there are any and numbers stay in range."""
        is_weighted = weights.values.shape[1] > 0
        name = "weighted" if is_weighted else "plain"
        if self._generate is not None and name not in self.made:
            try:
                self.made[name] = self._generate(is_weighted)
            except BackendUnavailable:  # no compiler: the other kernels may be in the cache
                self._generate = None
        program = self.made.get(name)
        return program if program is not None and program.takes(weights.smallest) else self.records()

    def records(self) -> P:
        """The kernels that take any network and any weights."""
        return self.once("tables", self._records)

    def once(self, name: str, make: Callable[[], P]) -> P:
        """Those of a name."""
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    @property
    def kind(self) -> str:
        """Of those made first; empty before the first table."""
        return next((x.kind for x in self.made.values()), "")

    def close(self) -> None:
        """Unload all of them; no others are made."""
        while self.made:
            self.made.popitem()[1].close()
        # an engine in a circle of references would be freed later, in any thread, where its events cannot be destroyed
        vars(self).pop("_records", None)
        self._generate = None


class TableEngine(Generic[P]):
    """A plan and a model's numbers on one GPU. Thread-safe."""
    # device_us: Microseconds that the kernels of the last call took, without copies

    choice: KernelChoice[P]

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device, host: Host):
        self.plan, self.factors, self.device, self.host = plan, list(factors), device, host
        self.lock, self._is_open, self.device_us = threading.RLock(), True, 0.0

    @property
    def kind(self) -> str:
        """The first kernels, see `PlanKernels.kind`; empty before they are made."""
        return self.choice.kind

    @contextmanager
    def using(self) -> Iterator[None]:
        """A block that uses the device, one thread at a time."""
        with self.lock:
            if not self._is_open:
                raise JtgpuError("this backend is closed")
            with self.device.active():
                yield

    def close(self) -> None:
        """Free the device's memory; may be called twice."""
        with self.lock:
            if self._is_open:
                self._is_open = False
                self.host.close()
                with self.device.active():
                    self._release()

    def _release(self) -> None:
        raise NotImplementedError
