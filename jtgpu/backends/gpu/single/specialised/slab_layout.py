"""Where a slab's numbers lie: the tables of a slice in shared memory, and what blocks add up of each that goes out.

Arrays only; knows no device. `jtgpu.backends.gpu.single.specialised.slab_code` writes the kernel that reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .....plans.plan import Plan
from ...program.tiling import OUT, Binary, offsets
from .slabs import Region

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Sums", "areas_of", "cells_of", "local_scope", "rise_of", "strides_of", "tables_of"]

SUM_THREADS, SUM_WAYS, MANY_RUNS = 256, 8, 24  # sums of a slice from which on a block's warps share them


def local_scope(program: Binary, region: Region, table: int) -> tuple[int, ...]:
    """A table's variables but those that are fixed."""
    return tuple(v for v in program.scopes[table] if v not in region.variables)


def areas_of(plan: Plan, program: Binary, region: Region) -> tuple[dict[int, int], int]:
    """Where each table of a slice begins, in cells, and the cells of all. What comes in and what goes out stays from
    slice to slice; the others have what is free since the level before, the first place that is large enough."""
    size = {t: plan.size(local_scope(program, region, t)) for t in tables_of(program, region)}
    at: dict[int, int] = {}
    end = 0
    for t in (*region.inputs, *region.outputs):
        at[t] = end
        end += size[t]
    last = {t: k for k, level in enumerate(region.levels) for i in level for t in program.steps[i].ins}
    taken: list[tuple[int, int, int]] = []  # begin, end, table
    top = end
    for k, level in enumerate(region.levels):
        for out in (program.steps[i].out for i in level):
            if out in at:
                continue
            place = end
            for begin, behind, _ in sorted(taken):
                if begin - place >= size[out]:
                    break
                place = max(place, behind)
            at[out] = place
            taken.append((place, place + size[out], out))
            top = max(top, place + size[out])
        taken = [x for x in taken if last.get(x[2], -1) > k]  # nobody writes what others still read
    return at, top


def tables_of(program: Binary, region: Region) -> set[int]:
    return {*region.inputs, *(program.steps[i].out for i in region.steps)}


def cells_of(plan: Plan, program: Binary, region: Region) -> int:
    """Doubles of shared memory that a block needs."""
    return areas_of(plan, program, region)[1]


def rise_of(plan: Plan, program: Binary, region: Region) -> float:
    """log2 of the products that the largest sum of what goes out has, slices and all: what comes in is at most 1, so
    nothing within the slab is larger."""
    made = dict.fromkeys(region.inputs, 0.0)
    for step in (program.steps[i] for i in region.steps):
        summed = set().union(*(program.scopes[t] for t in step.ins)) - set(program.scopes[step.out])
        made[step.out] = sum(made[t] for t in step.ins) + math.log2(plan.size(tuple(summed - set(region.variables))))
    return max(made[t] for t in region.outputs) + math.log2(plan.size(region.variables))


def strides_of(plan: Plan, scope: Sequence[int]) -> dict[int, int]:
    at, made = 1, {}
    for v in reversed(scope):
        made[v] = at
        at *= int(plan.cardinality[v])
    return made


def _states(plan: Plan, region: Region) -> dict[int, NDArray[np.int64]]:
    """The state of each fixed variable in every slice."""
    cards = [int(plan.cardinality[v]) for v in region.variables]
    return dict(zip(region.variables, np.indices(cards).reshape(len(cards), -1), strict=True))


class Sums:
    """What blocks add up of each table that goes out: a sum for each run of slices of a block that differ in other
    variables only. Those that make the same part of the table lie one behind the other."""

    def __init__(
        self, plan: Plan, program: Binary, region: Region, table_cell: Sequence[int], first: NDArray[np.uint32]
    ):
        self._plan, self._program, self._region = plan, program, region
        self._begins = np.zeros(int(first[-1]), np.bool_)  # slices that are their block's first
        self._begins[first[:-1]] = True
        self._states = _states(plan, region)
        self.records: list[tuple[int, ...]] = []
        self.of_block: list[int] = []
        self.places: list[NDArray[np.int64]] = []
        self.lists: list[int] = []
        self.runs: list[NDArray[np.int64]] = []  # by output, of each slice
        self.begin: list[int] = []  # by output, the first cell of its sums
        self.n_cells = 0
        leaves = _leaves(program, region)
        n_places = 0
        for k, t in enumerate(region.outputs):
            kept = [v for v in program.scopes[t] if v in region.variables]
            local = [v for v in program.scopes[t] if v not in region.variables]
            run = np.cumsum(self._changes(t)) - 1  # in the order of the slices
            key_of_run = self._keys(t)[self._changes(t)]
            order = np.argsort(key_of_run, kind="stable")
            number = np.empty(len(order), np.int64)
            number[order] = np.arange(len(order))
            n_runs = np.bincount(key_of_run, minlength=plan.size(tuple(kept)))
            size, whole = plan.size(tuple(local)), plan.size(program.scopes[t])
            where = np.array([*self._offsets(t, kept), *self._offsets(t, local)], np.int64)
            wide = int(n_runs.max()) >= MANY_RUNS
            record = (table_cell[t], t, size, whole, self.n_cells, n_places, len(self.lists) + len(leaves[t]))
            self.records.append((*record, len(self.lists), len(leaves[t]), len(self.of_block), int(wide), 0))
            self.lists += [*leaves[t], 0, *np.cumsum(n_runs).tolist()]
            self.of_block += [k] * -(-whole // (SUM_THREADS // SUM_WAYS if wide else SUM_THREADS))
            self.places.append(where)
            n_places += len(where)
            self.runs.append(number[run])
            self.begin.append(self.n_cells)
            self.n_cells += len(order) * size

    def _keys(self, table: int) -> NDArray[np.int64]:
        """Which part of a table each slice has to do with."""
        key = np.zeros(len(self._begins), np.int64)
        for v in self._program.scopes[table]:
            if v in self._region.variables:
                key = key * int(self._plan.cardinality[v]) + self._states[v]
        return key

    def _changes(self, table: int) -> NDArray[np.bool_]:
        """Slices with another part of a table than the one before in the same block."""
        key = self._keys(table)
        changes = self._begins.copy()
        changes[1:] |= key[1:] != key[:-1]
        return changes

    def _offsets(self, table: int, variables: Sequence[int]) -> list[int]:
        strides, card = strides_of(self._plan, self._program.scopes[table]), self._plan.cardinality
        return offsets([(int(card[v]), (strides[v], 0, 0)) for v in variables], OUT)

    def flags(self) -> NDArray[np.uint32]:
        """(slices, 4): bits of the tables to load before each, of the sums that it adds to, of those that end."""
        made = np.zeros((len(self._begins), 4), np.uint32)
        for k, t in enumerate(self._region.inputs):
            made[:, 0] |= self._changes(t).astype(np.uint32) << np.uint32(k)
        for k, t in enumerate(self._region.outputs):
            changes = self._changes(t)
            made[:, 1] |= (~changes).astype(np.uint32) << np.uint32(k)
            made[:, 2] |= np.append(changes[1:], True).astype(np.uint32) << np.uint32(k)
        return made


def _leaves(program: Binary, region: Region) -> dict[int, list[int]]:
    """Of every table, the tables that came in and that it is a product of."""
    made = {t: [t] for t in region.inputs}
    for i in region.steps:
        step = program.steps[i]
        made[step.out] = [t for x in step.ins for t in made[x]]
    return made
