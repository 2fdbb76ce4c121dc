"""A propagation without levels: a graph of work, dealt out to warps' queues beforehand; what flow.cu reads.

A node is a factor that evidence is multiplied into, a contraction, one posterior, or P(e); an edge is a table. Nodes
are cut into units, a warp's work each. Units are dealt out by a simulation (list scheduling, Graham 1969): the node
with the longest way to the end first, to the warps that are free first. So every queue holds its units in an order in
which all of them can run, whatever the real times are: where every warp runs, none waits for ever.

Arrays only; knows no device. `jtgpu.backends.gpu.single.dataflow.engine` uploads it, and tests run it on the host.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .....plans.plan import Plan
from ...program.bounds import lowest_answer
from ...program.layout import scaled_factors
from ...program.structs import KNOWN, MOST_AXES, NONE, TASK
from ...program.tiling import OUT, A, B, Binary, Loop, binary_program, loops_of
from .structs import ALWAYS, AWAITED, RecordMaker
from .tiling import READY, FlowTiling, Unit, answer_unit, enter_unit, flow_tiling, parts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..levels.pattern import Whole

    Dealt = list[tuple[int, NDArray[np.int64]]]  # a node, and the queue of each of its units
    _Ways = tuple[list[list[int]], list[float], list[float]]

__all__ = ["FLOW_KERNELS", "FLOW_WARPS", "LEAST", "MOST_GIVEN", "USUAL", "Flow", "FlowWay", "make_flow"]

FLOW_KERNELS = ("flow_plain", "flow_blocks")  # without and with tilings for the tensor cores
FLOW_WARPS = (16, 8)  # of a block, of which a multiprocessor holds one, the usual number first; 16 at most
LEAST = -300.0  # log2 of the smallest P(e) that must not need the engine that scales
MOST_GIVEN = 1792  # variables: their states are a parameter of the kernel
MOST_CELLS = 1 << 27  # beyond, one level fills the card
ALIGNMENT = 4  # cells: a memory sector, which then belongs to one table
START = 6.0  # microseconds before the first unit and after the last
KEPT_NEAR = 4.0  # microseconds to the longest way, up to which a node may use the warps kept for it
QUICK = 3.0  # weight of the card's time where a contraction is on the longest way
SLOW = 8.0  # and elsewhere
KEPT = (0, 4)  # warps of a block kept for the longest ways, whichever the simulation finds quicker
LONGER_GAIN = 0.9  # of the time, from which on longer batches of loads are taken: they load what they do not need
CONTENTION = 1.45  # what the simulation leaves out: everything else on the card, and the slowest of hundreds of units


@dataclass(frozen=True)
class FlowWay:
    """How the work is laid out: what the time model does not know well enough for every network.

    Attributes
    ----------
    warps : int
        Of a block: one of `FLOW_WARPS`. Fewer wait less for each other's loads.
    longer : bool, optional
        Whether longer batches of loads are among the tilings; None: where the simulation promises a tenth.
    kept : int, optional
        Warps of 16 kept for the longest ways; None: as the simulation finds quicker.
    quick, slow : float
        Weights of the card's time against a contraction's own, on the longest way and elsewhere.
    blocks : bool
        Whether blocks for the tensor cores are among the tilings.
    """

    warps: int = FLOW_WARPS[0]
    longer: bool | None = None
    kept: int | None = None
    quick: float = QUICK
    slow: float = SLOW
    blocks: bool = False


USUAL = FlowWay()


@dataclass(frozen=True)
class Flow:
    """What the kernel reads.

    Attributes
    ----------
    n_cells : int
        Of the arena.
    n_given : int
        Variables whose states a run is told.
    ops : (N,) OP
        A record a node.
    digits, steps : arrays
        See `jtgpu.backends.gpu.program.structs`.
    tasks : (U,) TASK
        Of a warp after another.
    starts : (queues + 1,) uint32
        Each warp's first task; queue ``block * warps + warp``.
    warps : int
        Of a block.
    kernel : str
        That reads it.
    known : (K,) KNOWN
    roots : (components, 2) uint32
        Cell of P(e); all ones where it is written in every run.
    arena : (cells,) float64
        The arena's first cells before the first run: factors, and a single 1.
    pristine : (P,) float64
        Factors that evidence is multiplied into.
    exponent : int
        Power of two that was taken out of the factors.
    lowest : float
        P(e) below this asks for an engine that scales.
    microseconds : float
        By the time model.
    """

    n_cells: int
    n_given: int
    ops: NDArray[Any]
    digits: NDArray[Any]
    steps: NDArray[Any]
    tasks: NDArray[Any]
    starts: NDArray[np.uint32]
    warps: int
    kernel: str
    known: NDArray[Any]
    roots: NDArray[np.uint32]
    arena: NDArray[np.float64]
    pristine: NDArray[np.float64]
    exponent: int
    lowest: float
    microseconds: float

    @property
    def n_blocks(self) -> int:
        """Blocks that must be on the card at once."""
        return (len(self.starts) - 1) // self.warps


@dataclass(frozen=True)
class Node:
    """A node of the graph of work: its record, the nodes whose tables it reads, its own table's last cell."""

    op: int
    unit: Unit
    ins: tuple[int, ...]
    last: int


@dataclass(frozen=True)
class _Choice:
    """A step's threads: the axes, the inputs in the order A, B, the tiling."""

    loops: tuple[Loop, ...]
    ins: tuple[int, ...]
    tiling: FlowTiling


def make_flow(
    plan: Plan,
    factors: Sequence[NDArray[np.float64]],
    n_blocks: int,
    way: FlowWay = USUAL,
    whole: Whole | None = None,
) -> Flow | None:
    """The work dealt out to so many blocks; None where the engine cannot take the plan.

    Parameters
    ----------
    plan : Plan
    factors : sequence of float64 arrays
        Of a plan of what is left the largest entries over the observed states: the bound for P(e) is that of all.
    n_blocks : int
    way : FlowWay
    whole : Whole, optional
        Of a plan of what is left: what its factors are cut from in every run.
    """
    n_given = plan.n_variables if whole is None else len(whole.seen)
    if n_given > MOST_GIVEN or int(plan.arena_cells[0]) > MOST_CELLS or not len(plan.op_out):
        return None
    program = binary_program(plan)
    loops = [loops_of(plan, program.scopes, step) for step in program.steps]
    scaled, shifts = zip(*scaled_factors(plan, factors), strict=True)
    lowest = lowest_answer(plan, program, loops, scaled)
    if lowest > LEAST:
        return None
    batches = (False, True) if way.longer is None else (way.longer,)
    sources = _Sources(plan, scaled, shifts, whole)
    usual, *others = (_worked_out(plan, program, loops, sources, n_blocks, replace(way, longer=x)) for x in batches)
    work = others[0] if others and others[0].end < LONGER_GAIN * usual.end else usual
    layout, nodes = work.layout, work.nodes
    tasks, starts = _queues(nodes, work.dealt, n_blocks * way.warps)
    ops, digits, steps = layout.maker.finished()
    ops["counter"][[n.op for n in nodes]] = _hints(nodes, work.ends)
    arena = np.zeros(layout.first_made)
    for f, table in enumerate(scaled):
        arena[layout.cells[f] : layout.cells[f] + len(table)] = table
    arena[layout.one] = 1.0
    return Flow(
        n_cells=layout.n_cells,
        n_given=n_given,
        ops=ops,
        digits=digits,
        steps=steps,
        tasks=tasks,
        starts=starts,
        warps=way.warps,
        kernel=FLOW_KERNELS[way.blocks],
        known=np.array(layout.known, KNOWN),
        roots=np.array([(layout.cells[t], layout.awaited(t)) for t in plan.root_table.tolist()], np.uint32),
        arena=arena,
        pristine=np.concatenate([np.zeros(0), *layout.pristine]),
        exponent=sum(shifts),
        lowest=math.ldexp(1.0, math.ceil(lowest)),
        microseconds=START + CONTENTION * work.end,
    )


class _Sources:
    """What the factors are made of in a run: themselves, and what is cut from whole ones.

    Attributes
    ----------
    factors : list of arrays
        Scaled, flat.
    number : list of int
        Of every variable of the plan, among the states that a run is told.
    starts : list of int
        Where every variable's posterior begins in an answer.
    cut : dict
        Of every factor that is cut: whole, scaled and flat, its observed axes the slowest; of each of these the
        variable and the stride.
    """

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], shifts: Sequence[int], whole: Whole | None
    ):
        self.factors = factors
        self.number: list[int] = list(range(plan.n_variables))
        self.starts: list[int] = plan.posterior_ptr.tolist()
        self.cut: dict[int, tuple[NDArray[np.float64], list[tuple[int, int]]]] = {}
        if whole is not None:
            self.number = np.flatnonzero(~whole.seen).tolist()
            self.starts = whole.starts.tolist()
            for f in whole.cut:
                self.cut[f] = np.ldexp(whole.tables[f].ravel(), -shifts[f]), whole.axes(f)


@dataclass(frozen=True)
class _Work:
    """One way to lay warps over everything, and when it ends by the simulation."""

    layout: _Layout
    nodes: list[Node]
    dealt: Dealt
    ends: list[float]  # of every node
    end: float


def _worked_out(
    plan: Plan,
    program: Binary,
    loops: Sequence[tuple[Loop, ...]],
    sources: _Sources,
    n_blocks: int,
    way: FlowWay,
) -> _Work:
    """Tilings with or without longer batches of loads, dealt out."""
    layout = _Layout(plan, program, sources)
    nodes = layout.nodes(_choices(program, loops, way))
    keep = [n * way.warps // FLOW_WARPS[0] for n in (KEPT if way.kept is None else (way.kept,))]
    ways = _ways(nodes)
    dealt, ends = min((deal(nodes, n_blocks, n, way.warps, ways) for n in keep), key=lambda made: max(made[1]))
    return _Work(layout, nodes, dealt, ends, max(max(ends), sum(n.unit.share for n in nodes)))


def _mirrored(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    return tuple((n, (s[OUT], s[B], s[A])) for n, s in loops)


def _choices(program: Binary, loops: Sequence[tuple[Loop, ...]], way: FlowWay) -> list[_Choice]:
    """The tilings of all steps: quick ones on the longest way from the factors to the end, such as take little of the
    card elsewhere."""

    longer = bool(way.longer)

    def choose(i: int, of: float) -> _Choice:
        ins, two = program.steps[i].ins, len(program.steps[i].ins) == 2
        one = flow_tiling(loops[i], two, of, longer, way.blocks)
        if two:
            other = flow_tiling(_mirrored(loops[i]), two, of, longer, way.blocks)
            if other.latency + of * other.share < one.latency + of * one.share:
                return _Choice(_mirrored(loops[i]), ins[::-1], other)
        return _Choice(loops[i], ins, one)

    n = len(program.steps)
    quick = [choose(i, way.quick) for i in range(n)]
    maker = {step.out: i for i, step in enumerate(program.steps)}
    head, tail = [0.0] * n, [0.0] * n  # microseconds before a step's inputs are there, and after
    for i, step in enumerate(program.steps):
        made = [maker[t] for t in step.ins if t in maker]
        head[i] = max((head[m] + quick[m].tiling.latency for m in made), default=0.0)
    for i in range(n - 1, -1, -1):
        tail[i] += quick[i].tiling.latency
        for t in program.steps[i].ins:
            if t in maker:
                tail[maker[t]] = max(tail[maker[t]], tail[i])
    longest = max(tail) - 1e-6
    return [quick[i] if head[i] + tail[i] >= longest else choose(i, way.slow) for i in range(n)]


class _Layout:
    """Where everything lies, and the records."""

    def __init__(self, plan: Plan, program: Binary, sources: _Sources):
        self.plan, self.program = plan, program
        self.maker = RecordMaker()
        self.n_cells = 0
        self.cells = [self._place(len(t)) for t in sources.factors]
        self.one = self._place(1)
        self.first_made = self.n_cells
        self.cells += [self._place(plan.size(s)) for s in program.scopes[plan.n_factors :]]
        self.known: list[tuple[int, ...]] = []
        self.pristine: list[NDArray[np.float64]] = []
        self._sources = sources
        self._made_by: dict[int, int] = {}  # table -> node

    def _place(self, n: int) -> int:
        at = self.n_cells
        self.n_cells += -(-n // ALIGNMENT) * ALIGNMENT
        return at

    def awaited(self, table: int) -> int:
        """Whether a table is written in every run."""
        return AWAITED if table in self._made_by else ALWAYS

    def nodes(self, choices: Sequence[_Choice]) -> list[Node]:
        """The graph of work, every node after those that it reads."""
        made = self._entries()
        for step, choice in zip(self.program.steps, choices, strict=True):
            self._step(made, step.out, choice)
        for v, t in enumerate(self.plan.posterior_table.tolist()):
            card, at = int(self.plan.cardinality[v]), self._sources.starts[v]
            op = self.maker.answer(self.cells[t], self.awaited(t), card, at)
            made.append(Node(op, answer_unit(), self._makers([t]), 0))
        made.append(Node(self.maker.roots(), answer_unit(), self._makers(self.plan.root_table.tolist()), 0))
        return made

    def _makers(self, tables: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._made_by[t] for t in tables if t in self._made_by)

    def _entries(self) -> list[Node]:
        """Factors that evidence is multiplied into, or that are cut to the observed states."""
        plan, sources = self.plan, self._sources
        variables: dict[int, list[int]] = {}
        for v, f in enumerate(plan.evidence_factor.tolist()):
            variables.setdefault(f, []).append(v)
        made: list[Node] = []
        n_pristine = 0
        for f in sorted({*variables, *sources.cut}):
            members = variables.get(f, [])
            if len(members) > MOST_AXES:  # 2^64 entries at least, or variables of one state
                members = [v for v in members if plan.cardinality[v] > 1]
            scope, n = plan.table_scopes[f], len(sources.factors[f])
            source, axes = sources.cut.get(f, (sources.factors[f], []))
            op = self.maker.enter(n_pristine, self.cells[f], n, len(self.known), len(members), len(axes))
            for v in members:
                inner, card = plan.size(scope[scope.index(v) + 1 :]), int(plan.cardinality[v])
                self.known.append((sources.number[v], inner, card, int(plan.posterior_ptr[v])))
            self.known += [(v, stride, 0, 0) for v, stride in axes]
            self.pristine.append(source)
            n_pristine += len(source)
            self._made_by[f] = len(made)
            made.append(Node(op, enter_unit(n), (), self.cells[f] + n - 1))
        return made

    def _step(self, made: list[Node], out: int, choice: _Choice) -> None:
        """The node of a contraction, or two of them where its sums are cut into parts."""
        ins, tiling = choice.ins, choice.tiling
        cells = [self.cells[t] for t in ins]
        awaited = [self.awaited(t) for t in ins]
        if len(ins) == 1:
            cells.append(self.one)
            awaited.append(ALWAYS)
        to, size = self.cells[out], math.prod(n for n, s in choice.loops if s[OUT])
        if tiling.again is not None:
            to = self._place(size * tiling.splits)
        where = (cells[0], cells[1], to)
        op = self.maker.contraction(choice.loops, tiling, where, (awaited[0], awaited[1]), size)
        made.append(Node(op, tiling.unit, self._makers(ins), to + size * tiling.splits - 1))
        if tiling.again is not None:
            parts = (to, self.one, self.cells[out])
            op = self.maker.contraction(parts_of(size, tiling.splits), tiling.again, parts, (AWAITED, ALWAYS))
            made.append(Node(op, tiling.again.unit, (len(made) - 1,), self.cells[out] + size - 1))
        self._made_by[out] = len(made) - 1


def _ways(nodes: Sequence[Node]) -> _Ways:
    """Who reads each node; the longest way to it, and from its beginning to the end, in microseconds."""
    users: list[list[int]] = [[] for _ in nodes]
    head, tail = [0.0] * len(nodes), [0.0] * len(nodes)
    for i, node in enumerate(nodes):
        for m in set(node.ins):
            users[m].append(i)
        head[i] = max((head[m] + nodes[m].unit.latency for m in node.ins), default=0.0)
    for i in range(len(nodes) - 1, -1, -1):
        tail[i] = nodes[i].unit.latency + max((tail[u] for u in users[i]), default=0.0)
    return users, head, tail


def deal(
    nodes: Sequence[Node], n_blocks: int, n_kept: int = 0, warps: int = FLOW_WARPS[0], ways: _Ways | None = None
) -> tuple[Dealt, list[float]]:
    """Units to warps: in the order of dealing, a node and the queue of each of its units; when every node ends.

    A node is dealt out when all that it reads has been, so this order is one in which everything can run. `n_kept`
    warps of each block are kept for nodes on the longest ways, and do not wait behind others.
    """
    n_slots = n_blocks * warps
    users, head, tail = _ways(nodes) if ways is None else ways
    missing, ready, ends = [len(set(n.ins)) for n in nodes], [0.0] * len(nodes), [0.0] * len(nodes)
    longest = max(tail) - KEPT_NEAR
    # a node's units on as many multiprocessors as there are: slot s is warp s // n_blocks of block s % n_blocks
    slots = np.arange(n_slots)
    queue = slots % n_blocks * warps + slots // n_blocks
    free = np.zeros(n_slots)
    kept = n_kept * n_blocks  # the first slots
    spread = slots // n_blocks * 0.02
    ties = np.stack([(slots + turn) % n_blocks * 1e-6 for turn in range(n_blocks)])
    dealt: Dealt = []
    coming = [(0.0, i) for i in range(len(nodes)) if not missing[i]]
    heapq.heapify(coming)
    waiting: list[tuple[float, int]] = []
    now = 0.0
    turn = 0
    while coming or waiting:
        if not waiting:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            i = heapq.heappop(coming)[1]
            heapq.heappush(waiting, (-tail[i], i))
        i = heapq.heappop(waiting)[1]
        unit = nodes[i].unit
        taken, last = [], 0.0
        part = slice(kept, n_slots)
        if kept and head[i] + tail[i] >= longest:
            part = slice(0, kept if unit.n_units <= kept else n_slots)
        size = len(slots[part])
        for first in range(0, unit.n_units, size):
            n = min(size, unit.n_units - first)
            begin = np.maximum(free[part], ready[i] - READY)
            key = begin + spread[part] + ties[turn % n_blocks, part]
            chosen = np.sort(np.argpartition(key, n - 1)[:n])
            begin = begin[chosen] + READY + unit.latency
            chosen += part.start
            free[chosen] = begin
            last = max(last, float(begin.max()))
            taken.append(queue[chosen])
            turn -= n
        dealt.append((i, np.concatenate(taken)))
        now = max(now, float(free[kept:].min()))
        ends[i] = last
        for u in users[i]:
            ready[u] = max(ready[u], last)
            missing[u] -= 1
            if not missing[u]:
                heapq.heappush(coming, (ready[u], u))
    return dealt, ends


def _hints(nodes: Sequence[Node], ends: Sequence[float]) -> list[int]:
    """A cell whose arrival says that a node's inputs are soon there: the last one of what the last of its inputs is
    made of. `NONE` where that is made of nothing."""

    def latest(node: Node) -> int:
        return max(node.ins, key=lambda m: (ends[m], m), default=-1)

    made = []
    for node in nodes:
        before = latest(node)
        first = latest(nodes[before]) if before >= 0 else -1
        made.append(nodes[first].last if first >= 0 else NONE)
    return made


def _queues(nodes: Sequence[Node], dealt: Dealt, n_queues: int) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """Every queue's tasks, one queue after another, and where each begins."""
    queue = np.concatenate([q for _, q in dealt])
    tasks = np.zeros(len(queue), TASK)
    counts = [len(q) for _, q in dealt]
    tasks["op"] = np.repeat([nodes[i].op for i, _ in dealt], counts)
    tasks["unit"] = np.concatenate([np.arange(n) for n in counts])
    starts = np.concatenate([[0], np.cumsum(np.bincount(queue, minlength=n_queues))])
    return tasks[np.argsort(queue, kind="stable")], starts.astype(np.uint32)
