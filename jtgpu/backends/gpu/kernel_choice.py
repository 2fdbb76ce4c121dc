"""Which kernels answer a table, or count it: those generated for the network, or those that read records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ...errors import BackendUnavailable
from .batch.table import Weights


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
        """Unload all of them."""
        while self.made:
            self.made.popitem()[1].close()
