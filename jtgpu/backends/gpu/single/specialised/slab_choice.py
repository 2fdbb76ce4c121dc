"""How the warps of a block do the contractions of a slab's slice: a time model, and the quickest code by it.

Small ones as `shape_code` has it, a thread a tile of outputs; where both sides are long, blocks for the tensor cores.

Knows no device. `jtgpu.backends.gpu.single.specialised.slab_code` writes the kernel of the codes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations, product
from typing import NamedTuple

from .....plans.plan import Plan
from ...program.tiling import OUT, A, B, Binary, Loop, Step, loops_of
from .shape_code import Axis, Code, code_of, nest, tiles_of
from .slab_layout import local_scope, tables_of
from .slabs import Region

__all__ = ["RESIDENT", "THREADS", "WARPS", "Blocks", "Work", "chosen_codes", "quickest"]

THREADS = 256  # of a block
RESIDENT = 2  # blocks of an SM
WARPS = THREADS // 32
BANKS = 16  # of doubles
# The time model, clocks of an SM: a block's way through a contraction, and the instructions of all its warps, which
# hold up the SM's other block.
FIXED, AXIS, LOOP, LOAD, UNEVEN, STORE, EXCHANGE = 50, 8, 6, 1.5, 4, 2, 5  # instructions
DIVIDE = 6  # instructions of a step of a sum over several axes whose places are not always as far
PASS, TRIP, TURN, SYNC = 150.0, 35.0, 60.0, 40.0  # clocks of the way: a pass, a batch of loads, an exchange, a barrier
CROWD = 1.5  # clocks of the way that an instruction is worth
COLD = 1.0  # clocks that an instruction is worth which an SM has to fetch: its cache holds 8,000
ISSUED = 2.0  # instructions that an SM issues in a clock
SLICE = 3000.0  # clocks of a slice beside its contractions
BLOCK_FIXED, MULTIPLY, MULTIPLY_WAIT = 60, 2, 35.0  # instructions of a unit of blocks; of a product; clocks of its way
LEAST_SIDE, LEAST_SUM = 5, 3  # of contractions of which blocks are looked at
MOST_BLOCKS, MOST_HELD = 8, 20  # of a unit; entries that fly together
TRIED = 100  # tiles that are looked at
MOST_CODE = 40  # outputs of a thread times steps that are written out


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


@dataclass(frozen=True)
class Blocks:
    """A contraction's code in blocks of 8 x 8 outputs; equal ones are one function.

    Attributes
    ----------
    rows, columns, same, summed : axes
        Of A and the output; of B and the output; of all three; summed over.
    bm, bn : int
        Blocks of a warp's unit.
    unroll : int
        Steps of four whose loads may fly together.
    """

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    same: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    bm: int
    bn: int
    unroll: int

    @property
    def text(self) -> str:
        """The type that stands for it."""
        sides = (nest(f"Axis<{', '.join(map(str, x))}>" for x in s) for s in self._sides)
        return f"Blocks<{', '.join(sides)}, {self.bm}, {self.bn}, {self.unroll}>"

    @property
    def _sides(self) -> tuple[tuple[Axis, ...], ...]:
        return self.rows, self.columns, self.same, self.summed


class Work(NamedTuple):
    """A contraction of a slice."""

    code: Code | Blocks
    passes: int  # of a warp
    tables: tuple[int, int, int]  # A, B (or A again), output


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
def quickest(loops: tuple[Loop, ...], two: bool, adds: bool) -> tuple[Code | Blocks, _Passes]:
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
            steps = -(-n_sum >> log)
            passes = -(-n_tiles // per_warp)
            most = max(1, min(steps, MOST_CODE // max(cells, loads)))
            order, unroll = _batches(summed, log, most)
            if not unroll:
                unroll = next((u for u in range(most, 0, -1) if steps % u == 0 and u > most // 2), most)
            batches = -(-steps // unroll)
            turn = unroll if order is not summed else 1  # steps from a lane that shares a sum to the next
            lanes = []
            for table in (OUT, A, B):
                mine = _first([(x, s[table]) for x, s in kept], per_warp)
                ways = _first([(x, s[table]) for x, s in order], turn << log)[::turn]
                lanes.append(_wavefronts([x + y for y in ways for x in mine]))
            even = n_sum == (unroll << log) * batches
            exchanges = cells + log if log else 0
            served = m * v * lanes[A] + (n * v * lanes[B] if two else 0)
            divided = DIVIDE if len(summed) > 1 and order is summed else 0
            body = LOOP + unroll * ((LOAD if even else UNEVEN) * loads + cells + divided)
            issued = FIXED + AXIS * len(kept) + batches * body
            issued += STORE * max(1, cells >> log) * (1 + adds) + EXCHANGE * exchanges
            code = issued - (batches - 1) * body
            way = PASS + batches * (TRIP + unroll * (served + 2 * cells)) + TURN * log
            made = _Passes(passes, way, issued, code)
            if best is None or made.cost < best[0].cost:
                best = made, replace(code_of(loops, two, tile, log, 1, 1, unroll), summed=_as_axes(order))
    assert best is not None  # a tile of one output always fits
    blocks = min(_blocks(loops, adds), key=lambda x: x[1].cost, default=None) if two else None
    return blocks if blocks is not None and blocks[1].cost < best[0].cost else (best[1], best[0])


def _batches(summed: list[Loop], log: int, most: int) -> tuple[list[Loop], int]:
    """An order of several summed axes, and the steps of a batch, of at most so many, that goes through all axes but the
    first; the axes as they are, and 0, where there is none: see `Batches` in slab.cuh."""
    n_sum = math.prod(n for n, _ in summed)
    found = [
        (unroll, list(order))
        for order in (permutations(summed) if len(summed) > 1 else ())
        for unroll in range(1, most + 1)
        if unroll % math.prod(n for n, _ in order[1:]) == 0 and n_sum % (unroll << log) == 0
    ]
    unroll, order = max(found, key=lambda x: x[0], default=(0, summed))
    return order, unroll


def _as_axes(loops: Sequence[Loop]) -> tuple[Axis, ...]:
    return tuple((n, *s) for n, s in loops)


def _orders(axes: Sequence[Axis], divide: int) -> list[tuple[Axis, ...]]:
    """Orders of axes in which `divide` configurations further is always as far."""
    return [x for x in permutations(axes) if divide % math.prod(n for n, *_ in x[1:]) == 0]


def _blocks(loops: tuple[Loop, ...], adds: bool) -> Iterator[tuple[Blocks, _Passes]]:
    """Every code in blocks that a contraction of two tables could have."""
    sides: dict[tuple[bool, bool, bool], list[Axis]] = {}
    for n, s in loops:
        sides.setdefault((bool(s[OUT]), bool(s[A]) or not s[OUT], bool(s[B]) or not s[OUT]), []).append((n, *s))
    rows, columns, same, summed = (
        tuple(sides.get(x, ())) for x in ((True, True, False), (True, False, True), (True,) * 3, (False, True, True))
    )
    m, n, v, k = (math.prod(x[0] for x in side) for side in (rows, columns, same, summed))
    if min(m, n) < LEAST_SIDE or k < LEAST_SUM:
        return
    m, n, steps = -(-m // 8), -(-n // 8), -(-k // 4)
    for r, c, t in product(_orders(rows, 8), _orders(columns, 8), _orders(summed, 4)):
        along, across, down = (tuple((x[0], x[1:]) for x in side) for side in (r, c, t))
        of = [(_first([(x, s[table]) for x, s in side], 8), _first([(x, s[table]) for x, s in down], 4))
              for side, table in ((along, A), (across, B))]  # fmt: skip
        lanes_a, lanes_b = (_wavefronts([line + step for line in lines for step in first]) for lines, first in of)
        for bm, bn in product(range(1, m + 1), range(1, n + 1)):
            if m % bm or n % bn or bm * bn > MOST_BLOCKS:
                continue
            whole = k // 4
            unroll = next((u for u in range(whole, 0, -1) if whole % u == 0 and u * (bm + bn) <= MOST_HELD), 1)
            batches = -(-steps // unroll)
            body = (bm + bn) * LOAD + bm * bn * MULTIPLY
            issued = BLOCK_FIXED + AXIS * len(same) + steps * body + batches * LOOP + STORE * 2 * bm * bn * (1 + adds)
            code = issued - (batches - 1) * (unroll * body + LOOP)
            served = bm * lanes_a + bn * lanes_b
            way = PASS + batches * TRIP + steps * max(served, MULTIPLY_WAIT, 4 * MULTIPLY * bm * bn) + 4 * bm * bn
            yield Blocks(r, c, same, t, bm, bn, unroll), _Passes(m // bm * (n // bn) * v, way, issued, code)


def chosen_codes(plan: Plan, program: Binary, region: Region) -> tuple[list[list[Work]], float]:
    """The contractions by level; clocks of a slice."""
    scopes: list[tuple[int, ...]] = [()] * len(program.scopes)
    for t in tables_of(program, region):
        scopes[t] = local_scope(program, region, t)
    made = []
    clocks = issued = 0.0
    for level in region.levels:
        works: list[Work] = []
        ways = []
        for step in (program.steps[i] for i in level):
            tries = []
            for ins in {step.ins, step.ins[::-1]}:
                loops = loops_of(plan, scopes, Step(step.out, ins, False))
                tries.append((*quickest(loops, len(ins) == 2, step.out in region.outputs), ins))
            code, passes, ins = min(tries, key=lambda x: (x[1].cost, x[2]))
            works.append(Work(code, passes.n, (ins[0], ins[-1], step.out)))
            ways.append(passes)
        made.append(works)
        clocks += max(math.fsum(w.way * w.n for w in ways) / WARPS, max(w.way for w in ways)) + SYNC
        issued += math.fsum(w.issued * w.n for w in ways)
    return made, SLICE + max(clocks, RESIDENT * issued / ISSUED)
