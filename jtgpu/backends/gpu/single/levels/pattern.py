"""An evidence pattern's own engine: a plan without the observed variables, factors cut to their states on the card.

The observed axes of a factor are its slowest ones where it is kept whole, so what belongs to a case's states is one
contiguous part of it, which ``enter_cut`` copies into the arena. Everything else is `jtgpu.backends.gpu.single.levels.engine.Engine`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .....device.context import Device
from .....device.driver import Arguments
from .....plans.plan import Plan
from ....base import Evidence
from ...program.layout import CHUNK_ENTRIES
from ...program.nonzero import needed_products
from ...program.structs import CHUNK, CUT, OBSERVED
from ..select import MOST_LISTED
from .engine import CaseEngine, Engine
from .schedule import Schedule, make_schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CutEngine", "Whole", "cut_schedule", "left_of", "scaled_whole", "with_cuts"]


class Whole:
    """The factors, whole, beside a plan of what is left of them.

    Parameters
    ----------
    plan : Plan
        Of what is left; its variables are the others, in ascending order.
    factors : sequence of arrays
    scopes : sequence of sequences of int
        Of the factors, in the network's variables.
    seen : (V,) bool

    Attributes
    ----------
    tables : list of arrays
        Each factor with its observed axes first, then the others as the plan has them.
    largest : list of arrays
        The largest entry of each factor over its observed states, axes as in the plan's ``factor_scopes``: zero only
        where every state has zero.
    cut : list of int
        The factors that have observed axes.
    posterior_ptr : (V+1,) int64
        Where each variable's cells begin in an answer, the observed ones' too.
    starts : (W,) int64
        The same of the variables that are left.
    """

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        scopes: Sequence[Sequence[int]],
        seen: NDArray[np.bool_],
    ):
        self.seen = seen
        kept = np.flatnonzero(~seen)
        card = np.ones(len(seen), np.int64)
        for table, scope in zip(factors, scopes, strict=True):
            card[list(scope)] = table.shape
        self.posterior_ptr = np.concatenate([[0], np.cumsum(card)])
        self.starts = self.posterior_ptr[kept]
        self.tables: list[NDArray[np.float64]] = []
        self.largest: list[NDArray[np.float64]] = []
        self.observed: list[list[int]] = []
        for f, (table, scope) in enumerate(zip(factors, scopes, strict=True)):
            hard = [v for v in scope if seen[v]]
            left = [int(kept[w]) for w in plan.table_scopes[f]]
            self.observed.append(hard)
            self.tables.append(np.transpose(table, [scope.index(v) for v in (*hard, *left)]))
            self.largest.append(table.max(axis=tuple(scope.index(v) for v in hard)) if hard else table)
        self.cut = [f for f, hard in enumerate(self.observed) if hard]

    def axes(self, f: int) -> list[tuple[int, int]]:
        """Of each observed axis of a factor the variable, and the stride in its table."""
        shape = self.tables[f].shape
        return [(v, math.prod(shape[k + 1 :])) for k, v in enumerate(self.observed[f])]


def with_cuts(schedule: Schedule, whole: Whole) -> tuple[Schedule, NDArray[Any], NDArray[Any]]:
    """The schedule in which every factor that is cut is brought in for every case, and answers have their places among
    those of all variables; CUT records, OBSERVED records.

    A chunk's ``pad`` is 1 + the number of its factor's record, 0 where it is not cut.
    """
    record = {f: i for i, f in enumerate(whole.cut)}
    there = set(schedule.chunks["table"].tolist())
    more: list[tuple[int, ...]] = []
    for f in whole.cut:
        if f not in there:
            cell, n = int(schedule.table_cell[f]), int(schedule.table_size[f])
            starts = range(0, n, CHUNK_ENTRIES)
            more += [(cell, start, min(CHUNK_ENTRIES, n - start), f, 0, 0, 0, 0) for start in starts]
    chunks = np.concatenate([schedule.chunks, np.array(more, CHUNK)]) if more else schedule.chunks.copy()
    for chunk in chunks:
        chunk["pad"] = 1 + record.get(int(chunk["table"]), -1)
    cuts = np.zeros(len(whole.cut), CUT)
    axes: list[tuple[int, int]] = []
    at = 0
    for i, f in enumerate(whole.cut):
        cuts[i] = at, len(axes), len(whole.observed[f]), 0
        axes += whole.axes(f)
        at += whole.tables[f].size
    answers = schedule.answers.copy()
    answers["at"] = whole.starts
    return replace(schedule, chunks=chunks, answers=answers), cuts, np.array(axes, OBSERVED)


class CutEngine(Engine):
    """Cases that observe the same variables; asked with the network's own evidence. Its answers have zeros where the
    observed variables' would be.

    Parameters
    ----------
    plan : Plan
        Of what is left.
    whole : Whole
    schedule : Schedule
        See `cut_schedule`.
    device : Device
    second : callable, optional
        See `CaseEngine`.
    """

    kind = "cut"
    names = (*Engine.names, "enter_cut")
    entered = "enter_cut"

    def __init__(
        self,
        plan: Plan,
        whole: Whole,
        schedule: Schedule,
        device: Device,
        second: Callable[[], CaseEngine] | None = None,
    ):
        self._whole = whole
        self._kept = np.flatnonzero(~whole.seen)
        self._number = {int(v): w for w, v in enumerate(self._kept)}
        schedule, self._cuts, self._axes = with_cuts(schedule, whole)
        super().__init__(plan, whole.largest, schedule, device, second)

    def _entry(self, program: NDArray[np.uint64], entry: NDArray[np.uint64], slots: NDArray[Any]) -> Arguments:
        assert self._kernels is not None
        memory, stream = self._memory, self.stream
        self._observed = memory.host(len(self._whole.seen), np.int32)
        cells = scaled_whole(self._whole, slots, self.real)
        words = [memory.put(x, stream) for x in (self._cuts, self._axes, cells)]
        given = np.array([*words, self._kernels.device_address(self._observed)], np.uint64)
        return Arguments(program, entry, given)

    def _answer_cells(self) -> int:
        return int(self._whole.posterior_ptr[-1])

    def _whole_factors(self, factors: Sequence[NDArray[np.float64]]) -> Sequence[NDArray[np.float64]]:
        return self._whole.tables

    def write(self, evidence: Evidence) -> int:
        """See `CaseEngine.write`."""
        self._observed[:] = evidence.state
        return super().write(left_of(evidence, self._kept, self._number))


def cut_schedule(plan: Plan, whole: Whole, dtype: str = "float64") -> Schedule:
    """The levels of a plan of what is left, before anything is cut.

    Parameters
    ----------
    plan : Plan
    whole : Whole
    dtype : {"float64", "float32"}
    """
    needed = needed_products(plan, whole.largest) if plan.cost().flops <= MOST_LISTED else None
    return make_schedule(plan, listed=needed, real=dtype)


def scaled_whole(whole: Whole, slots: NDArray[Any], real: str) -> NDArray[Any]:
    """The factors that are cut, one after the other, divided by the powers of two that their slots remember."""
    parts = [np.ldexp(whole.tables[f].ravel(), -int(slots["exponent"][f])).astype(real) for f in whole.cut]
    return np.concatenate(parts) if parts else np.zeros(0, real)


def left_of(evidence: Evidence, kept: NDArray[np.int64], number: dict[int, int]) -> Evidence:
    """What is known of the variables that are left."""
    soft = {number[v]: w for v, w in evidence.likelihood.items() if v in number}
    return Evidence(evidence.state[kept], soft)
