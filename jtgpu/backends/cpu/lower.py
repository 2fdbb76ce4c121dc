"""From what remains of a program to the records that the CPU runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...plans.specialise import FlatProgram
from ...util.loops import loops
from .records import (
    Layout,
    Records,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_loops = loops("jtgpu.backends.cpu.loops.lower")

__all__ = ["lower"]

_NO_ROOM = np.zeros(0, np.int64)


def lower(
    program: FlatProgram,
    layout: Layout,
    seen: NDArray[np.uint8],
    target: NDArray[np.bool_],
    lanes: int = 1,
    room: NDArray[np.int64] = _NO_ROOM,
) -> Records:
    """The records for a pattern and targets.

    With several lanes the program answers as many cases at once: every table that depends on the evidence has one
    more axis, its fastest, that runs over the cases; all others are made once for all.

    Parameters
    ----------
    program : FlatProgram
    layout : Layout
    seen : (V,) uint8
        `jtgpu.plans.specialise.FREE`, ``HARD`` or ``SOFT`` for each variable, by rank.
    target : (V,) bool
        Variables whose posteriors are wanted, by rank; those of observed ones are never made.
    lanes : int
        Cases that the program answers at once.
    room : int64
        Scratch memory.
    """
    card = program.card.copy()
    card[-1] = lanes
    return Records(
        *_loops.lower(program._replace(card=card), np.append(seen, np.uint8(0)), np.append(target, True), layout, room)
    )
