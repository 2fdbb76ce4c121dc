"""A whole network in the shared memory of one block: the image that the kernel copies in, and one case at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...plan import Plan
from ..device import Device
from .driver import Arguments, most_shared
from .engine import CaseEngine
from .records import FACTOR
from .schedule import load_factors, make_schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST_CELLS", "FusedEngine", "fused_image"]

THREADS = 512
STATES = 2048  # variables that there is room for beside the image
MOST_CELLS = 28_000  # of the arena, above which nobody looks further: 227 KB hold 29,056 cells


def fused_image(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """What lies in shared memory, and where.

    Returns
    -------
    image : (cells,) uint64
        The arena with the factors, then the records, each from a multiple of 8 bytes on.
    layout : (16,) uint32
        The numbers of `struct Fused`, from ``n_image`` on.
    """
    s = make_schedule(plan, "fused")
    pristine, slots = load_factors(plan, s, factors)
    arena = np.zeros(s.n_cells)
    arena[: len(pristine)] = pristine
    arena[s.table_cell[-1]] = 1.0
    first = s.chunks[s.chunks["from"] == 0]
    holders = np.zeros(len(first), FACTOR)
    for name in ("cell", "table", "known", "n_known"):
        holders[name] = first[name]
    holders["n"] = s.table_size[first["table"]]
    levels = np.array([x.first for x in s.levels] + [len(s.tasks)], np.uint32)
    parts: list[NDArray[np.uint64]] = [arena.view(np.uint64)]
    places = []
    at = len(arena)
    for records in (slots, s.ops, s.digits, s.steps, s.tasks, levels, holders, s.known, s.answers, s.roots):
        raw = records.tobytes()
        cells = np.frombuffer(raw + bytes(-len(raw) % 8), np.uint64)
        places.append(at)
        parts.append(cells)
        at += len(cells)
    counts = [len(s.levels), len(holders), len(s.answers), len(plan.root_table), plan.n_variables]
    return np.concatenate(parts), np.array([at, *places, *counts], np.uint32)


class FusedEngine(CaseEngine):
    """For networks that fit; the image tells whether one does.

    Parameters
    ----------
    image, layout
        See `fused_image`.
    """

    kind = "fused"
    file = "resident/fused"
    names = ("fused",)

    @staticmethod
    def fits(image: NDArray[np.uint64], device: Device) -> bool:
        """Whether a block of the device may take so much shared memory."""
        return image.nbytes + 4 * STATES <= most_shared(device)

    def __init__(self, plan: Plan, image: NDArray[np.uint64], layout: NDArray[np.uint32], device: Device):
        super().__init__(plan, device, lambda: self._load(image, layout))

    def _load(self, image: NDArray[np.uint64], layout: NDArray[np.uint32]) -> None:
        assert self._kernels is not None
        at = self._kernels.device_address
        host = [at(a) for a in (self._state, self._weights, self._posterior, self._root, self._exponent)]
        words = np.array([self._memory.put(image, self.stream), *host], np.uint64)
        padded = np.zeros(-(-len(layout) // 2) * 2, np.uint32)
        padded[: len(layout)] = layout
        self._arguments = Arguments(np.concatenate([words, padded.view(np.uint64)]))
        self._shared = image.nbytes + 8 * (-(-self.plan.n_variables // 2))
        self._kernels.allow_shared("fused", self._shared)

    def queue(self) -> None:
        """See `CaseEngine.queue`."""
        assert self._kernels is not None
        self._kernels.launch("fused", 1, THREADS, self.stream, self._arguments, shared=self._shared)
