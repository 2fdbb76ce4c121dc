"""One case at a time by lists of products: one kernel, whose parameters carry the evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .....device.context import Device, Graph
from .....device.driver import Arguments
from .....plans.plan import Plan
from ....base import Evidence
from ..levels.engine import CaseEngine
from .lists import MOST_GIVEN, Lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ListEngine"]

THREADS = 256


class ListEngine(CaseEngine):
    """For networks with few products that are not zero.

    Parameters
    ----------
    lists : Lists
    second : callable
        Makes the engine that answers cases whose P(e) is too small for unscaled doubles, or zero; called when the
        first of them comes.
    """

    kind = "lists"
    file = "single/lists"
    names = ("lists_one", "lists_many")

    def __init__(self, plan: Plan, lists: Lists, device: Device, second: Callable[[], CaseEngine]):
        self._lists = lists
        super().__init__(plan, device, self._load, second)

    def _load(self) -> None:
        lists, kernels = self._lists, self._kernels
        assert kernels is not None
        at = kernels.device_address
        words = [self._memory.put(lists.image, self.stream), self._memory.put(lists.axes, self.stream)]
        words += [at(self._weights), at(self._posterior), at(self._root)]
        parameters = np.zeros(8 * len(words) + 4 * len(lists.layout) + 2 * MOST_GIVEN + 4, np.uint8)
        parameters[: 8 * len(words)] = np.array(words, np.uint64).view(np.uint8)
        first = 8 * len(words) + 4 * len(lists.layout)
        parameters[8 * len(words) : first] = lists.layout.view(np.uint8)
        self._arguments = Arguments(parameters)
        kept = self._arguments.kept(0)
        self._given: NDArray[np.int16] = kept[first : first + 2 * self.plan.n_variables].view(np.int16)
        name = "lists_one" if lists.n_blocks == 1 else "lists_many"
        kernels.allow_shared(name, lists.shared_bytes)
        if lists.n_blocks > 8:
            kernels.allow_wide_clusters(name)
        self._launch = kernels.ready(
            name, lists.n_blocks, THREADS, self.stream, self._arguments,
            shared=lists.shared_bytes, cluster=lists.n_blocks,
        )  # fmt: skip

    def _capture(self) -> Graph | None:
        self._launch()  # fails here, not at the first case, where the card cannot hold the cluster
        self.stream.synchronize()
        return None

    def write(self, evidence: Evidence) -> int:
        """See `CaseEngine.write`."""
        more = super().write(evidence)
        self._given[:] = self._state
        return more + self._lists.exponent

    @property
    def nanoseconds(self) -> int:
        """See `CaseEngine.nanoseconds`."""
        return round(1000 * self._lists.microseconds)

    def launch(self, evidence: Evidence) -> None:
        """See `CaseEngine.launch`; one kernel needs no graph."""
        self._launch()

    def trusted(self) -> bool:
        """See `CaseEngine.trusted`."""
        return self._least_root() >= self._lists.lowest
