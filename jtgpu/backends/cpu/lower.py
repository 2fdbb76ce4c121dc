"""From what remains of a program to the records that the CPU runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...plans.specialise import FlatProgram, pack
from ...util.loops import loops
from .records import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

_loops = loops("jtgpu.backends.cpu.loops.lower")

ROOM = 1 << 18  # numbers of scratch memory at first


class Lowering:
    """A program in the form in which patterns are lowered. Thread-safe."""
    # axis_rank: (V,) int64

    def __init__(self, program: FlatProgram, axis_rank: NDArray[np.int64]):
        self._image, self._axis_rank = pack(program), np.ascontiguousarray(axis_rank)
        lengths = (program.table_end - program.table_ptr + 1)[program.op_in]
        ptr = program.op_in_ptr.tolist()
        each = [(j - i, int(lengths[i:j].sum())) for i, j in pairwise(ptr)]
        self._most = max((k for k, _ in each), default=0) + 2
        self._widest = max((wide for _, wide in each), default=0) + 1
        self._rooms: list[NDArray[np.int64]] = []  # idle scratch memory

    def lower(
        self,
        layout: Layout,
        seen: NDArray[np.bool_],
        soft: tuple[int, ...] = (),
        targets: Sequence[int] | None = None,
        lanes: int = 1,
    ) -> NDArray[np.int64]:
        """The code of a pattern, see `records.Records`.

        With several lanes the program answers as many cases at once: every table that depends on the evidence has one
        more axis, its fastest, that runs over the cases; all others are made once for all.
        """
        # seen: (V,) bool: Observed variables, by number
        # soft: tuple of int: Variables with weights that are not observed
        # targets: sequence of int: Variables whose posteriors are wanted; those of observed ones are never made.
        #     Default: all.
        # lanes: Cases that the program answers at once
        sizes = np.array((self._most, self._widest, layout.first, lanes))
        wanted = _ALL if targets is None else np.array(targets, np.int64)
        weighed = np.array(soft, np.int64) if soft else _NONE
        try:
            room = self._rooms.pop()
        except IndexError:
            room = np.zeros(ROOM, np.int64)
        while True:
            begin, end = _loops.specialise(
                self._image, sizes, self._axis_rank, layout.factor, layout.answer, layout.places, seen, weighed, wanted,
                room,
            )  # fmt: skip
            if begin >= 0:
                break
            room = np.zeros(end, np.int64)
        code = room[begin:end].copy()
        self._rooms.append(room)
        return code

    def clear(self) -> None:
        """Free the scratch memory."""
        self._rooms.clear()


_ALL, _NONE = np.full(1, -1, np.int64), np.zeros(0, np.int64)
