"""The work graph of a plan: tilings of its contractions, places in the arena, records and nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....plans.plan import Plan
from ..lower import OUT, Loop, Lowered, evidence_of, known_axes, placed
from ..program.records import RecordPool, contraction_record, record_array
from ..tile import TiledStep, Tiling, in_better_order
from .assignment import WorkNode, critical_paths
from .tiling import CRITICAL_WEIGHT, LONGER, OTHER_WEIGHT, Unit, answer_unit, dataflow_tiling, enter_unit, parts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Records that dataflow.cu reads: contractions, evidence, posteriors and P(e), all as struct Op of types.cuh.

ENTER_SHAPE, ANSWER_SHAPE, ROOT_SHAPE = 0x80, 0x81, 0x82  # field `shape` of records that are no contraction
LONG = 0x40  # added to a tile's shape if it has the longer batches of loads
ALWAYS, AWAITED = 0, 0xFFFFFFFF  # an input that never changes; one that every run writes


# Factors of a network without some observed variables: a case selects the parts that belong to its states.
#
# The observed axes of a factor come first, so what belongs to a case's states is contiguous. The kernel reads evidence
# factors from there (`enter_unit` of cuda/single/dataflow.cu); the states are those of the network's own variables.

class RestrictedFactors:
    """A network's factors, arranged for a plan of its unobserved variables."""
    # plan: Of the unobserved variables, numbered in ascending order
    # factors: sequence of float64 arrays: Of the network
    # scopes: sequence of sequences of int: Of the factors, in the network's variables
    # observed: (V,) bool
    # tables: list of arrays: Each factor with its observed axes first, then the others in the plan's order
    # largest: list of arrays: The maximum of each factor over its observed axes, axes as in the plan's
    #     ``factor_scopes``. Bounds that hold for these hold for every case.
    # free: (W,) int64: The unobserved variables
    # posterior_ptr: (V+1,) int64: First cell of each of the network's variables in an answer

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        scopes: Sequence[Sequence[int]],
        observed: NDArray[np.bool_],
    ):
        self.observed = observed
        self.free = np.flatnonzero(~observed)
        card = np.ones(len(observed), np.int64)
        for table, scope in zip(factors, scopes, strict=True):
            card[list(scope)] = table.shape
        self.posterior_ptr = np.concatenate([[0], np.cumsum(card)]).astype(np.int64)
        self.tables: list[NDArray[np.float64]] = []
        self.largest: list[NDArray[np.float64]] = []
        self._observed_axes: list[list[int]] = []
        for f, (table, scope) in enumerate(zip(factors, scopes, strict=True)):
            hard = [v for v in scope if observed[v]]
            others = [int(self.free[w]) for w in plan.table_scopes[f]]
            self._observed_axes.append(hard)
            self.tables.append(np.transpose(table, [scope.index(v) for v in (*hard, *others)]))
            self.largest.append(table.max(axis=tuple(scope.index(v) for v in hard)) if hard else table)

    def axes(self, f: int) -> list[tuple[int, int]]:
        """Variable and stride of each observed axis of a factor."""
        shape = self.tables[f].shape
        return [(v, math.prod(shape[k + 1 :])) for k, v in enumerate(self._observed_axes[f])]


ALIGNMENT = 4  # cells: a memory sector, which then belongs to one table


def choose_tilings(program: Lowered, long_batches: bool, scale: float) -> list[TiledStep]:
    """The tilings of all steps: quick ones on the critical path, elsewhere such as take little of the GPU."""
    # long_batches: Whether longer batches of loads are among the tilings
    # scale: The GPU's time in units of the reference device's

    def choose(i: int, weight: float) -> TiledStep:
        best = partial(dataflow_tiling, longer=long_batches)
        return in_better_order(program.loops[i], program.steps[i].ins, weight * scale, best)

    n = len(program.steps)
    quick = [choose(i, CRITICAL_WEIGHT) for i in range(n)]
    ins = [[program.maker[t] for t in step.ins if t in program.maker] for step in program.steps]
    paths = critical_paths(ins, [x.tiling.whole_latency for x in quick])
    longest = max(paths.tail) - 1e-6
    long = [head + tail >= longest for head, tail in zip(paths.head, paths.tail, strict=True)]
    return [quick[i] if long[i] else choose(i, OTHER_WEIGHT) for i in range(n)]


class WorkGraph:
    """Places in the arena, records and nodes of a plan, for given tilings."""
    # nodes: list of WorkNode: Each after those that it reads
    # n_cells: Of the arena
    # cells: list of int: First cell of each table
    # one: The cell that holds the constant 1, after the factors
    # known: list of tuples: Rows of KNOWN
    # pristine: The factors whose entries without evidence, or those of all states, are stored one after another
    # restricted: If the plan is one of the unobserved variables: what its factors are selected from

    def __init__(self, program: Lowered, restricted: RestrictedFactors | None, choices: Sequence[TiledStep]):
        self.plan, n = program.plan, program.plan.n_factors
        self._pool = RecordPool()
        self._makers: list[Callable[[], dict[str, Any]]] = []  # of each node's record; of several graphs one is used
        self.nodes: list[WorkNode] = []
        self.cells, self.n_cells = placed([*program.sizes[:n], 1, *program.sizes[n:]], ALIGNMENT)
        self.one = self.cells.pop(n)
        self.known: list[tuple[int, ...]] = []
        self.pristine: list[int] = []
        self._made_by: dict[int, int] = {}  # table -> node
        self._add_evidence(program.sizes, restricted)
        for step, choice in zip(program.steps, choices, strict=True):
            self._add_contraction(step.out, choice)
        self._add_answers(restricted)

    def awaited(self, table: int) -> int:
        """`AWAITED` for a table that every run writes, else `ALWAYS`."""
        return AWAITED if table in self._made_by else ALWAYS

    def records(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """A record of each node, and all digits and summed offsets."""
        ops = record_array([make() for make in self._makers])
        return ops, *self._pool.arrays()

    def _add(self, unit: Unit | Tiling, tables: Sequence[int], last: int, make: Callable[[], dict[str, Any]]) -> None:
        """A node that reads some tables; `last`: the last cell of its own."""
        ins = tuple(self._made_by[t] for t in tables if t in self._made_by)
        self.nodes.append(WorkNode(unit, ins, last))
        self._makers.append(make)

    def _add_evidence(self, sizes: Sequence[int], restricted: RestrictedFactors | None) -> None:
        """Nodes of the factors that evidence is multiplied into, or of which a case selects a part."""
        variables, n_pristine = evidence_of(self.plan), 0
        for f in range(self.plan.n_factors):
            axes = restricted.axes(f) if restricted is not None else []
            if not axes and f not in variables:
                continue
            members, n = known_axes(self.plan, f, variables.get(f, [])), sizes[f]
            op = {"a": n_pristine, "out": self.cells[f], "n_tiles": n, "steps": len(self.known)}
            op |= {"n_steps": len(members), "n_digits": len(axes), "shape": ENTER_SHAPE}
            self.known += [(v if restricted is None else int(restricted.free[v]), *others) for v, *others in members]
            self.known += [(v, stride, 0, 0) for v, stride in axes]
            self.pristine.append(f)
            n_pristine += restricted.tables[f].size if restricted is not None else n
            self._add(enter_unit(n), (), self.cells[f] + n - 1, op.copy)
            self._made_by[f] = len(self.nodes) - 1

    def _add_contraction(self, out: int, choice: TiledStep) -> None:
        """The node of a contraction, or two of them if its sums are divided into parts."""
        tiling, ins = choice.tiling, choice.ins
        a, b = [(self.cells[t], self.awaited(t)) for t in ins] + [(self.one, ALWAYS)] * (2 - len(ins))
        to, size = self.cells[out], math.prod(n for n, s in choice.loops if s[OUT])
        if tiling.again is None:
            self._add(tiling, ins, to + size - 1, partial(self._contraction, choice.loops, tiling, a, b, to, size))
        else:
            at, last = self.n_cells, self.n_cells + size * tiling.splits - 1
            self.n_cells += placed([size * tiling.splits], ALIGNMENT)[1]
            self._add(tiling, ins, last, partial(self._contraction, choice.loops, tiling, a, b, at, size))
            self._made_by[out] = len(self.nodes) - 1
            a, b, loops = (at, AWAITED), (self.one, ALWAYS), parts_of(size, tiling.splits)
            make = partial(self._contraction, loops, tiling.again, a, b, to, 0)
            self._add(tiling.again, (out,), to + size - 1, make)
        self._made_by[out] = len(self.nodes) - 1

    def _contraction(
        self, loops: tuple[Loop, ...], tiling: Tiling, a: tuple[int, int], b: tuple[int, int], to: int, part_cells: int
    ) -> dict[str, Any]:
        """The record of a contraction; of A and B the first cell, and `ALWAYS` or `AWAITED`."""
        # part_cells: Cells from one part's sums to the next part's
        op = contraction_record(self._pool, loops, tiling, (a[0], b[0], to))
        m, n = tiling.shape
        shape = m * 8 + n + LONG * ((m, n, tiling.unroll) in LONGER)  # the number by which the kernel knows its code
        return op | {"slot_a": a[1], "slot_b": b[1], "shape": shape, "scratch": part_cells}

    def _add_answers(self, restricted: RestrictedFactors | None) -> None:
        """Nodes of the posteriors and of P(e)."""
        plan = self.plan
        first = plan.posterior_ptr if restricted is None else restricted.posterior_ptr[restricted.free]
        for v, t in enumerate(plan.posterior_table.tolist()):
            op = {"a": self.cells[t], "slot_a": self.awaited(t), "n_tiles": int(plan.cardinality[v])}
            op |= {"out": int(first[v]), "shape": ANSWER_SHAPE}
            self._add(answer_unit(), (t,), 0, op.copy)
        self._add(answer_unit(), plan.root_table.tolist(), 0, lambda: {"shape": ROOT_SHAPE})
