"""A slab's kernel: where the tables of a slice lie in shared memory, what each block does, and the text that says so.

The templates are in cuda/resident/slab.cuh; which contractions, says `jtgpu.backends.gpu.slabs`. Knows no device.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...plan import Plan
from .. import kernels
from .records import SLAB_OUTPUT
from .shape_code import Code, code_of, tiles_of
from .shapes import OUT, A, B, Binary, Loop, Step, loops_of, offsets
from .slabs import Region, regions

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST_BYTES", "THREADS", "Slab", "best_region", "make_slab"]

THREADS = 256  # of a block
RESIDENT = 2  # blocks of an SM
SMS = 132
MOST_CELLS = 14_200  # doubles that a block may have where two share an SM
MOST_BYTES = 8 * MOST_CELLS + 1024  # of shared memory, what a block has besides counted
SUM_THREADS, SUM_WAYS, MANY_RUNS = 256, 8, 24  # sums of a slice from which on a block's warps share them
WARPS = THREADS // 32
BANKS = 16  # of doubles
# The time model, clocks of an SM: a block's way through a contraction, and the instructions of all its warps, which
# hold up the SM's other block.
FIXED, AXIS, LOOP, LOAD, UNEVEN, STORE, EXCHANGE = 50, 8, 6, 1.5, 4, 2, 5  # instructions
PASS, TRIP, TURN, SYNC = 150.0, 35.0, 60.0, 40.0  # clocks of the way: a pass, a batch of loads, an exchange, a barrier
CROWD = 1.5  # clocks of the way that an instruction is worth
COLD = 1.0  # clocks that an instruction is worth which an SM has to fetch: its cache holds 8,000
ISSUED = 2.0  # instructions that an SM issues in a clock
SLICE = 3000.0  # clocks of a slice beside its contractions
CLOCK = 1.75  # in a nanosecond
TOO_LITTLE = 1.34  # times what the above says an H100 took, writing sums aside: Munin1, 151 us with them
SUMS_NS, SUM_BYTES = 7_000.0, 1500.0  # that `slab_sum` takes beside reading; bytes of sums in a nanosecond, either way
TRIED = 100  # tiles that are looked at
MOST_CODE = 40  # outputs of a thread times steps that are written out
LEAST_TOP = 0x10000000  # word_of about 2^-766: a smaller largest entry of what goes out may have lost digits
MOST_RISE = 128.0  # log2 of the products that an entry of what goes out is a sum of: slab.cuh says why


@dataclass(frozen=True)
class Slab:
    """Everything that a region needs on the card.

    Attributes
    ----------
    source : str
        Of the kernels ``slab`` and ``slab_sum``, headers joined in.
    shared_bytes : int
        Dynamic, of a block of ``slab``.
    n_blocks, n_sum_blocks : int
    first, flags, runs, outputs, of_block, places, lists : arrays
        See slab.cuh.
    n_sums : int
        Cells.
    nanoseconds : float
        By the time model, both kernels.
    """

    source: str
    shared_bytes: int
    n_blocks: int
    n_sum_blocks: int
    first: NDArray[np.uint32]
    flags: NDArray[np.uint32]
    runs: NDArray[np.uint32]
    outputs: NDArray[Any]
    of_block: NDArray[np.uint32]
    places: NDArray[np.uint32]
    lists: NDArray[np.uint32]
    n_sums: int
    nanoseconds: float

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """What is put on the card."""
        return [self.first, self.flags, self.runs, self.outputs, self.of_block, self.places, self.lists]

    def least(self, n_tables: int) -> NDArray[np.int32]:
        """(n_tables,) int32, `Finish.least` of single.cu."""
        made = np.zeros(n_tables, np.int32)
        made[self.outputs["table"]] = LEAST_TOP
        return made


def _local(program: Binary, region: Region, table: int) -> tuple[int, ...]:
    """A table's variables but those that are fixed."""
    return tuple(v for v in program.scopes[table] if v not in region.variables)


def _areas(plan: Plan, program: Binary, region: Region) -> tuple[dict[int, int], int]:
    """Where each table of a slice begins, in cells, and the cells of all. What comes in and what goes out stays from
    slice to slice; the others have what is free since the level before, the first place that is large enough."""
    size = {t: plan.size(_local(program, region, t)) for t in _tables(program, region)}
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


def _tables(program: Binary, region: Region) -> set[int]:
    return {*region.inputs, *(program.steps[i].out for i in region.steps)}


def cells_of(plan: Plan, program: Binary, region: Region) -> int:
    """Doubles of shared memory that a block needs."""
    return _areas(plan, program, region)[1]


def _rise(plan: Plan, program: Binary, region: Region) -> float:
    """log2 of the products that the largest sum of what goes out has, slices and all: what comes in is at most 1, so
    nothing within the slab is larger."""
    made = dict.fromkeys(region.inputs, 0.0)
    for step in (program.steps[i] for i in region.steps):
        summed = set().union(*(program.scopes[t] for t in step.ins)) - set(program.scopes[step.out])
        made[step.out] = sum(made[t] for t in step.ins) + math.log2(plan.size(tuple(summed - set(region.variables))))
    return max(made[t] for t in region.outputs) + math.log2(plan.size(region.variables))


def best_region(plan: Plan, program: Binary) -> Region | None:
    """The region that takes least time, of those with the fewest slices that leave room for two blocks on an SM and
    whose numbers cannot rise far; None where there is none."""
    sizes = [
        (plan.size(r.variables), r)
        for r in regions(plan, program)
        if cells_of(plan, program, r) <= MOST_CELLS and _rise(plan, program, r) <= MOST_RISE
    ]
    fewest = min((n for n, _ in sizes), default=0)
    found = [(_contractions(plan, program, r)[1], r.variables, r) for n, r in sizes if n == fewest]
    return min(found, key=lambda f: f[:2])[2] if found else None


def _wavefronts(lanes: Sequence[int]) -> int:
    """Clocks that shared memory takes for a warp's load of doubles: half a warp at a time, a cell of each bank."""
    made = 0
    for half in (lanes[:16], lanes[16:]):
        made += max(Counter(x % BANKS for x in set(half)).values(), default=0)
    return made


def _first(axes: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Offsets of the first so many configurations, the last axis fastest; those behind the last are the last."""
    made: list[int] = []
    for i in range(count):
        rest, at = i, 0
        for n, s in reversed(axes):
            at += rest % n * s
            rest //= n
        made.append(at if not rest else made[-1])
    return made


class _Passes(NamedTuple):
    """What warps do with a contraction."""

    n: int
    way: float  # clocks of each, by itself
    issued: float  # instructions of each
    code: float  # instructions that are written down

    @property
    def cost(self) -> float:
        """What the choice minimises."""
        return -(-self.n // WARPS) * self.way + CROWD * self.n * self.issued + COLD * self.code


@lru_cache(maxsize=4096)
def _best(loops: tuple[Loop, ...], two: bool, adds: bool) -> tuple[Code, _Passes]:
    """The quickest code for a contraction of a slice."""
    n_sum = math.prod(n for n, s in loops if not s[OUT])
    summed = [(n, s) for n, s in loops if not s[OUT]]
    best: tuple[_Passes, Code] | None = None
    for tile, n_tiles in tiles_of(loops, two, 8, TRIED):
        sides = (tile.m, tile.n, tile.v)
        if adds and any(loops[i][0] % t for side in sides for i, t in side):
            continue  # an output would be added twice
        m, n, v = tile.sizes
        cells, loads = m * n * v, (m + (n if two else 0)) * v
        steps_of = {i: -(-loops[i][0] // t) for side in sides for i, t in side}
        kept = [(steps_of.get(i, x), s) for i, (x, s) in enumerate(loops) if s[OUT]]
        for log in range(6):
            if n_sum < 1 << log:
                break
            if adds and cells % (1 << log):
                continue  # lanes would hold the same output
            per_warp = 32 >> log
            lanes = []
            for table in (OUT, A, B):
                mine = _first([(x, s[table]) for x, s in kept], per_warp)
                ways = _first([(x, s[table]) for x, s in summed], 1 << log)
                lanes.append(_wavefronts([x + y for y in ways for x in mine]))
            steps = -(-n_sum >> log)
            passes = -(-n_tiles // per_warp)
            most = max(1, min(steps, MOST_CODE // max(cells, loads)))
            unroll = next((u for u in range(most, 0, -1) if steps % u == 0 and u > most // 2), most)
            batches = -(-steps // unroll)
            even = n_sum == (unroll << log) * batches
            exchanges = cells + log if log else 0
            served = m * v * lanes[A] + (n * v * lanes[B] if two else 0)
            body = LOOP + unroll * ((LOAD if even else UNEVEN) * loads + cells)
            issued = FIXED + AXIS * len(kept) + batches * body
            issued += STORE * max(1, cells >> log) * (1 + adds) + EXCHANGE * exchanges
            code = issued - (batches - 1) * body
            way = PASS + batches * (TRIP + unroll * (served + 2 * cells)) + TURN * log
            made = _Passes(passes, way, issued, code)
            if best is None or made.cost < best[0].cost:
                best = made, code_of(loops, two, tile, log, 1, 1, unroll)
    assert best is not None  # a tile of one output always fits
    return best[1], best[0]


def _contractions(
    plan: Plan, program: Binary, region: Region
) -> tuple[list[list[tuple[Code, tuple[int, ...]]]], float]:
    """By level, every contraction's code and its tables A, B (or A again) and output; clocks of a slice."""
    scopes: list[tuple[int, ...]] = [()] * len(program.scopes)
    for t in _tables(program, region):
        scopes[t] = _local(program, region, t)
    made = []
    clocks = issued = 0.0
    for level in region.levels:
        codes: list[tuple[Code, tuple[int, ...]]] = []
        ways = []
        for step in (program.steps[i] for i in level):
            tries = []
            for ins in {step.ins, step.ins[::-1]}:
                loops = loops_of(plan, scopes, Step(step.out, ins, False))
                tries.append((*_best(loops, len(ins) == 2, step.out in region.outputs), ins))
            code, passes, ins = min(tries, key=lambda x: (x[1].cost, x[2]))
            codes.append((code, (ins[0], ins[-1], step.out)))
            ways.append(passes)
        made.append(codes)
        clocks += max(math.fsum(w.way * w.n for w in ways) / WARPS, max(w.way for w in ways)) + SYNC
        issued += math.fsum(w.issued * w.n for w in ways)
    return made, SLICE + max(clocks, RESIDENT * issued / ISSUED)


def _strides(plan: Plan, scope: Sequence[int]) -> dict[int, int]:
    at, made = 1, {}
    for v in reversed(scope):
        made[v] = at
        at *= int(plan.cardinality[v])
    return made


def _states(plan: Plan, region: Region) -> dict[int, NDArray[np.int64]]:
    """The state of each fixed variable in every slice."""
    cards = [int(plan.cardinality[v]) for v in region.variables]
    return dict(zip(region.variables, np.indices(cards).reshape(len(cards), -1), strict=True))


def make_slab(plan: Plan, program: Binary, region: Region, table_cell: Sequence[int]) -> Slab:
    """The kernels of a region, and all that they read.

    Parameters
    ----------
    plan : Plan
    program : Binary
        With the region's contractions.
    region : Region
    table_cell : sequence of int
        First cell of every table in the arena.
    """
    areas, cells = _areas(plan, program, region)
    codes, clocks = _contractions(plan, program, region)
    n_slices = plan.size(region.variables)
    n_blocks = min(n_slices, SMS * RESIDENT)
    first = np.array([n_slices * b // n_blocks for b in range(n_blocks + 1)], np.uint32)
    sums = _Sums(plan, program, region, table_cell, first)
    text = _text(plan, program, region, table_cell, areas, codes, sums)
    rounds = int(np.diff(first).max())
    return Slab(
        source=text,
        shared_bytes=8 * cells,
        n_blocks=n_blocks,
        n_sum_blocks=len(sums.of_block),
        first=first,
        flags=sums.flags(),
        runs=np.stack(sums.runs, axis=1).astype(np.uint32),
        outputs=np.array(sums.records, SLAB_OUTPUT),
        of_block=np.array(sums.of_block, np.uint32),
        places=np.concatenate(sums.places).astype(np.uint32),
        lists=np.array(sums.lists, np.uint32),
        n_sums=sums.n_cells,
        nanoseconds=TOO_LITTLE * rounds * clocks / CLOCK + SUMS_NS + 2 * 8 * sums.n_cells / SUM_BYTES,
    )


class _Sums:
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
        strides, card = _strides(self._plan, self._program.scopes[table]), self._plan.cardinality
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


def _text(
    plan: Plan, program: Binary, region: Region, table_cell: Sequence[int], areas: dict[int, int],
    codes: Sequence[Sequence[tuple[Code, tuple[int, ...]]]], sums: _Sums,
) -> str:  # fmt: skip
    size = {t: plan.size(_local(program, region, t)) for t in _tables(program, region)}
    kinds: dict[str, int] = {}
    for code, _ in itertools.chain(*codes):
        kinds.setdefault(code.text, len(kinds))
    types = [f"using Shape{i} = {text};" for text, i in kinds.items()]
    loads, flushes = [], []
    for k, t in enumerate(region.inputs):
        scope = program.scopes[t]
        strides = _strides(plan, scope)
        kept, local = [v for v in scope if v in region.variables], _local(program, region, t)
        inner = _strides(plan, local)
        axes = ", ".join(f"Axis<{plan.cardinality[v]}, {inner[v]}, {strides[v]}, 0>" for v in local)
        base = [f"{table_cell[t]}u", *(f"d{v} * {strides[v]}u" for v in kept)]
        loads.append(
            f"        if (flags.x >> {k} & 1)\n"
            f"            slab_load<Nest<{axes}>, {THREADS}>(memory + {areas[t]}, p.arena + ({' + '.join(base)}), "
            f"scales[{k}], thread);"
        )
    for k, t in enumerate(region.outputs):
        flushes.append(
            f"        if (flags.z >> {k} & 1)\n"
            f"            slab_store<{size[t]}, {THREADS}>(f.sums + ({sums.begin[k]}u + {size[t]}u * runs[{k}]), "
            f"memory + {areas[t]}, thread);"
        )
    number = {t: k for k, t in enumerate(region.outputs)}
    body: list[str] = []
    warp = 0
    for level in codes:
        if body:
            body.append("        __syncthreads();")
        for code, (a, b, out) in level:
            adds, more = ("true", f"flags.y >> {number[out]} & 1") if out in number else ("false", "false")
            body.append(
                f"        slab_contract<Shape{kinds[code.text]}, {WARPS}, {warp}, {adds}>"
                f"(memory + {areas[out]}, memory + {areas[a]}, memory + {areas[b]}, warp, lane, {more});"
            )
            warp = (warp + -(-code.n_tiles // (32 >> code.log))) % WARPS
    digits, behind = [], 1
    for v in reversed(region.variables):
        n = int(plan.cardinality[v])
        digits.append(f"        const u32 d{v} = slice / {behind}u % {n}u;")
        behind *= n
    return kernels.with_headers(
        _SOURCE.format(
            types="\n".join(types), threads=THREADS, resident=RESIDENT, digits="\n".join(digits),
            loads="\n".join(loads), body="\n".join(body), flushes="\n".join(flushes), n_outputs=len(number),
            n_inputs=len(region.inputs), inputs=", ".join(map(str, region.inputs)),
        )
    )  # fmt: skip


_SOURCE = """#define JT_REAL double
#include "resident/slab.cuh"

{types}

extern "C" __global__ void __launch_bounds__({threads}, {resident}) slab(Program p, Slab f) {{
    SLAB_MEMORY
    __shared__ real scales[{n_inputs}];
    const u32 inputs[{n_inputs}] = {{{inputs}}};
    const u32 thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
    const u32 first = f.first[blockIdx.x], behind = f.first[blockIdx.x + 1];
    let_next_start();
    wait_for_previous();
    for (u32 k = thread; k < {n_inputs}; k += {threads}) scales[k] = power_of_two(-slab_shift(p.slots[inputs[k]]));
    __syncthreads();
    for (u32 slice = first; slice < behind; slice++) {{
        const uint4 flags = f.flags[slice];
        const u32* runs = f.runs + slice * {n_outputs}u;
{digits}
{loads}
        slab_loaded();
        __syncthreads();
{body}
        __syncthreads();
{flushes}
    }}
}}
"""
