"""The k best configurations of a contraction forest, one after the other, from one sweep."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from ...util.loops import loops
from .backward import Steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

_backward = loops("jtgpu.backends.cpu.loops.backward")


def further(
    arena: NDArray[np.float64],
    steps: Steps,
    scratch: tuple[NDArray[np.float64], NDArray[np.int64]],
    found: list[NDArray[np.int32]],
    logs: list[float],
    k: int,
) -> None:
    """Add the next best configurations to the best one, each once and in order.

    What is left after the best configuration falls into parts: one for each step, in which all steps before it stay as
    they are and it chooses another cell. The best of a part is the step's second cell, with the best of what follows:
    its value is known from the step's slice alone, and a configuration is made only when its turn comes. It splits its
    own part in the same way (Nilsson, An efficient algorithm for finding the M most probable configurations in
    probabilistic expert systems, Statistics and Computing 8, 1998).
    """
    waiting: list[tuple[float, int, int, int]] = []  # -ln value, number, configuration, place in its list
    splits: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], int]] = []
    numbered = 0

    def split(first: int, barred: NDArray[np.int64]) -> None:
        states = found[-1]
        cells, loss = np.zeros(first + 1, np.int64), np.full(first + 1, -np.inf)
        _backward.alternatives(arena, *steps[:2], first, barred, states, cells, loss, *scratch)
        order = np.argsort(-loss, kind="stable")[: k - len(found)]
        order = order[loss[order] > -np.inf]
        splits.append((order, cells, loss, barred, first))
        push(len(found) - 1, 0)

    def push(parent: int, place: int) -> None:
        nonlocal numbered
        order, _, loss, _, _ = splits[parent]
        if place < len(order):
            heappush(waiting, (-(logs[parent] + float(loss[order[place]])), numbered, parent, place))
            numbered += 1

    n_steps = len(steps.step_ptr) - 1
    if n_steps:
        split(n_steps - 1, np.zeros(0, np.int64))
    while waiting and len(found) < k:
        value, _, parent, place = heappop(waiting)
        order, cells, _, barred, first = splits[parent]
        step = int(order[place])
        push(parent, place + 1)
        states = found[parent].copy()
        chosen = _backward.cell_of(steps.steps, steps.step_ptr[step], states)
        _backward.retrace(arena, *steps[:2], step, int(cells[step]), states, *scratch)
        found.append(states)
        logs.append(-value)
        more = np.append(barred, chosen) if step == first else np.array([chosen])
        split(step, more)
