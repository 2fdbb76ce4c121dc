"""Code written for a contraction's shape: which tile, which lanes share, and the text that says so to the compiler.

The templates are in cuda/single/shape.cuh. Knows no device; `jtgpu.backends.gpu.single.specialised.shape_plan` decides which
contractions of a plan get code, `jtgpu.backends.gpu.single.specialised.build` compiles it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...program.structs import WARPS
from ...program.tiling import OUT, SECTOR, A, B, Loop

__all__ = ["Axis", "Chosen", "Code", "Tile", "Variant", "best_codes", "code_of", "longest", "nest", "tiles_of"]

Axis = tuple[int, int, int, int]  # extent; strides in the output, A and B
Places = tuple[int, int, int, int, int, int]  # how many, steps between them, the last one; strides

MOST_PLACES = 8  # of a side of a tile
MOST_CELLS = 36  # outputs of a thread
MOST_WASTE = 1.15  # of outputs that are computed twice
FLYING = 24  # loads of a thread that fly together
REGISTERS = {2: 92, 3: 48}  # for sums and loads, where so many blocks share an SM
SHARED_CELLS = 4096  # as in shape.cuh
MOST_SPLITS = 64
LINE = 128  # bytes that L1 serves at once
TRIED = 6  # tiles that are looked at closely, of those that leave room for so many blocks

# The time model: clocks of an SM at 1.75 GHz, fitted to 573 levels of six networks on an H100. A warp's instructions
# over its four schedulers, the lines that its loads touch over the one L1, sectors over an SM's share of L2, and a
# block's way from its first instruction to its last over the blocks that an SM holds. The longest counts, and something
# of the others.
CLOCK = 1.75  # in a nanosecond
SMS = 132
SECTORS = 0.478  # of L2 in an SM's clock
FIXED, PER_AXIS, PER_STORE, PER_EXCHANGE, PER_LOAD = 119, 7, 5, 61, 3  # instructions
START, TRIP, WAIT, SHARE_WAIT, SPLIT_WAIT = 2000.0, 573.0, 1.24, 300.0, 2200.0  # clocks of the way
EXCHANGE_WAIT, LINE_WAIT = 22.0, 1.0  # clocks of the way for an exchange, for a line that the block's warps want
POWER = 2.0  # of the norm that stands for "the longest"
CROWDED = 0.4  # of its way that counts for a contraction that has the card not for itself
THREADS = 4 * 132 * 2 * 256  # beyond which nobody shares a sum


@dataclass(frozen=True)
class Code:
    """A contraction's code; equal ones are one function.

    Attributes
    ----------
    tiles : axes
        Of the output, counting tiles.
    m, n, v : places
        A thread's tile along axes of A and the output, of B and the output, of all three.
    summed : axes
    two : bool
        Whether there is a B.
    log, share, splits
        Who shares a sum: 2^log lanes; warps of a block; blocks.
    unroll : int
        Steps whose loads fly together.
    """

    tiles: tuple[Axis, ...]
    m: tuple[Places, ...]
    n: tuple[Places, ...]
    v: tuple[Places, ...]
    summed: tuple[Axis, ...]
    two: bool
    log: int
    share: int
    splits: int
    unroll: int

    @property
    def cells(self) -> int:
        """Outputs of a thread."""
        return math.prod(p[0] for p in (*self.m, *self.n, *self.v))

    @property
    def n_tiles(self) -> int:
        """Threads, but for those that share a sum."""
        return math.prod(x[0] for x in self.tiles)

    @property
    def n_groups(self) -> int:
        """Blocks, but for those that share a sum."""
        return -(-self.n_tiles // (WARPS // self.share * (32 >> self.log)))

    @property
    def n_blocks(self) -> int:
        """All of them."""
        return self.n_groups * self.splits

    @property
    def n_scratch(self) -> int:
        """Cells for the sums of blocks that share."""
        return self.n_blocks * WARPS // self.share * (32 >> self.log) * self.cells if self.splits > 1 else 0

    @property
    def text(self) -> str:
        """The type that stands for it."""
        places = (nest(f"Places<{', '.join(map(str, p))}>" for p in side) for side in (self.m, self.n, self.v))
        tiles, summed = (nest(f"Axis<{', '.join(map(str, x))}>" for x in axes) for axes in (self.tiles, self.summed))
        how = f"{str(self.two).lower()}, {self.log}, {self.share}, {self.splits}, {self.unroll}"
        return f"Contraction<{tiles}, {', '.join(places)}, {summed}, {how}>"


def nest(parts: Iterator[str]) -> str:
    """The type of axes one inside the other."""
    return f"Nest<{', '.join(parts)}>"


@dataclass(frozen=True)
class Chosen:
    """A code and what the model says of it, in nanoseconds.

    Attributes
    ----------
    code : Code
    latency : float
        Of the slowest block.
    busy : (4,) floats
        How long the whole machine's schedulers, L1, L2 and places for blocks are taken.
    """

    code: Code
    latency: float
    busy: tuple[float, float, float, float]


def _sides(axes: Sequence[int], loops: Sequence[Loop], most: int) -> list[tuple[tuple[int, int], ...]]:
    """Ways to lay a side's places on one or two axes: (axis, places)."""
    single: list[tuple[tuple[int, int], ...]] = [()]
    single += [
        ((i, t),)
        for i in axes
        for t in range(2, most + 1)
        if t <= loops[i][0] and -(-loops[i][0] // t) * t <= MOST_WASTE * loops[i][0]
    ]
    pairs = [
        ((i, loops[i][0]), (j, t))
        for i, j in itertools.permutations(axes, 2)
        for t in range(2, loops[j][0] + 1)
        if loops[i][0] * t <= most and loops[j][0] % t == 0 and (t < loops[j][0] or i < j)
    ]
    return [*single, *pairs]


def _places(side: Sequence[tuple[int, int]], loops: Sequence[Loop]) -> tuple[Places, ...]:
    made = []
    for i, t in side:
        n, strides = loops[i]
        step = -(-n // t)
        made.append((t, step, n - step, *strides))
    return tuple(made)


@dataclass(frozen=True)
class Tile:
    m: tuple[tuple[int, int], ...]
    n: tuple[tuple[int, int], ...]
    v: tuple[tuple[int, int], ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        m, n, v = (math.prod(t for _, t in side) for side in (self.m, self.n, self.v))
        return m, n, v


def tiles_of(loops: Sequence[Loop], two: bool, cell_bytes: int, tried: int = TRIED) -> list[tuple[Tile, int]]:
    """The tiles worth a look, and how many there are of each: those that load and store least."""
    kinds: dict[tuple[bool, bool], list[int]] = {}
    for i, (_, s) in enumerate(loops):
        if s[OUT]:
            kinds.setdefault((bool(s[A]), bool(s[B])), []).append(i)
    n_sum = math.prod(n for n, s in loops if not s[OUT])
    ms, ns = (_sides(kinds.get(k, ()), loops, MOST_PLACES) for k in ((True, False), (False, True)))
    vs = _sides(kinds.get((True, True), ()), loops, 4)
    found = []
    for m, n, v in itertools.product(ms, ns, vs):
        tile = Tile(m, n, v)
        a, b, c = tile.sizes
        loads = (a + (b if two else 0)) * c
        if a * b * c > MOST_CELLS or (c > 1 and a * b * c > 12):
            continue
        tiles = math.prod(x for x, s in loops if s[OUT])
        for i, t in (*m, *n, *v):
            tiles = tiles // loops[i][0] * -(-loops[i][0] // t)
        cost = tiles * (n_sum * (3.0 * loads + 2.0 * a * b * c + 6) + 300 + 4 * a * b * c)
        found.append((cost, tile, tiles, a * b * c + loads if a * b * c > 1 else 0))
    found.sort(key=lambda x: (x[0], x[1].m, x[1].n, x[1].v))
    picked: dict[Tile, int] = {}
    for room in REGISTERS.values():
        fits = [(tile, tiles) for _, tile, tiles, needs in found if needs * 2 * cell_bytes <= 8 * room]
        picked.update(fits[:tried])
    return list(picked.items())


def _lines(loops: Sequence[Loop], steps: Mapping[int, int], table: int, log: int, cell_bytes: int) -> float:
    """Lines that L1 serves for a warp's load from a table."""
    kept = [(steps.get(i, n), s[table]) for i, (n, s) in enumerate(loops) if s[OUT]]
    summed = [(n, s[table]) for n, s in loops if not s[OUT]]
    lanes = {x + y for x in _first(kept, 32 >> log) for y in _first(summed, 1 << log)}
    line = LINE // cell_bytes
    return max(len({x // line for x in lanes}), len(lanes) / line)


def _sectors(
    loops: Sequence[Loop], steps: Mapping[int, int], places: bool, table: int, tiles: int, ways: int, cell_bytes: int
) -> float:
    """Sectors of a table that so many neighbouring tiles touch over so many steps of the sum.

    Parameters
    ----------
    loops : axes
    steps : mapping
        Of the axes with places of a tile: how far these lie apart.
    places : bool
        Whether all places of a tile count, or one.
    table : {OUT, A, B}
    tiles, ways : int
    cell_bytes : int
    """
    left = {True: float(tiles), False: float(ways)}
    axes = []
    for i in range(len(loops) - 1, -1, -1):
        n, s = loops[i]
        kept = bool(s[OUT])
        step = steps.get(i, n)
        there = min(step, math.ceil(left[kept]))
        left[kept] = max(1.0, left[kept] / step)
        if s[table]:
            axes.append((s[table], n, there, there * -(-n // step) if places else there))
    cells, run, full, whole = 1, 1, 1, True
    for stride, n, together, there in sorted(axes):
        cells *= min(there, n)
        if whole and stride == full:
            run *= n if there >= n else together
            whole = there >= n
        else:
            whole = False
        full *= n
    sector = SECTOR // cell_bytes
    return cells / run * max(1.0, run / sector + (0.5 if run % sector else 0.0))


def _first(axes: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Offsets of the first so many configurations, the last axis fastest."""
    at = [0]
    for n, s in reversed(axes):
        if len(at) >= count:
            break
        at = [x + i * s for i in range(min(n, -(-count // len(at)))) for x in at]
    return at[:count]


@dataclass(frozen=True)
class _Work:
    """What a tile and the lanes that share a sum make of a contraction, for the time model."""

    tiles: int
    n_sum: int
    cells: int
    loads: int  # of a step
    axes: int  # of the output
    summed: int  # axes
    log: int
    lines: float  # of a step
    stored: float  # sectors of a warp


Variant = tuple[int, bool]  # blocks that share an SM; whether other contractions want the card at the same time


@lru_cache(maxsize=8192)
def best_codes(loops: tuple[Loop, ...], two: bool, cell_bytes: int = 8) -> dict[Variant, Chosen]:
    """The cheapest codes for a contraction by the time model."""
    n_sum = math.prod(n for n, s in loops if not s[OUT])
    axes = sum(1 for _, s in loops if s[OUT])
    tables = (A, B) if two else (A,)
    best: dict[Variant, tuple[float, float, tuple[float, float, float, float], Tile, tuple[int, int, int, int]]] = {}
    for tile, tiles in tiles_of(loops, two, cell_bytes):
        m, n, v = tile.sizes
        cells, loads = m * n * v, (m + (n if two else 0)) * v
        steps = {i: -(-loops[i][0] // t) for side in (tile.m, tile.n, tile.v) for i, t in side}
        loads_of: dict[tuple[int, int], float] = {}  # sectors, by tiles and ways of a block
        for log in range(6):
            if n_sum < 1 << log or (log and tiles << log > THREADS):
                break
            lines = m * v * _lines(loops, steps, A, log, cell_bytes)
            lines += n * v * _lines(loops, steps, B, log, cell_bytes) if two else 0.0
            stored = cells * _sectors(loops, steps, False, OUT, 32 >> log, 1, cell_bytes)
            work = _Work(tiles, n_sum, cells, loads, axes, len(loops) - axes, log, lines, stored)
            for share, splits in _ways(n_sum, log, cells):
                if share > 1 and (tiles << log) * share * splits > THREADS:
                    break
                block = (WARPS // share * (32 >> log), -(-n_sum // splits))
                if block not in loads_of:
                    loads_of[block] = sum(_sectors(loops, steps, True, t, *block, cell_bytes) for t in tables)
                for resident, room in REGISTERS.items():
                    room = room * 4 // cell_bytes
                    if cells > 1 and cells + loads > room:
                        continue
                    most = max(1, min(FLYING // loads, (room - cells) // loads))
                    unroll = _unroll(-(-n_sum // (share * splits << log)), most)
                    latency, busy = _price(work, resident, share, splits, unroll, loads_of[block])
                    for crowded in (False, True):
                        ways = (CROWDED * latency if crowded else latency,)
                        cost = longest(*busy, *ways)
                        if (resident, crowded) not in best or cost < best[resident, crowded][0]:
                            best[resident, crowded] = (cost, latency, busy, tile, (log, share, splits, unroll))
    return {
        variant: Chosen(code_of(loops, two, tile, *how), latency, busy)
        for variant, (_, latency, busy, tile, how) in best.items()
    }


def code_of(loops: Sequence[Loop], two: bool, tile: Tile, log: int, share: int, splits: int, unroll: int) -> Code:
    steps = {i: -(-loops[i][0] // t) for side in (tile.m, tile.n, tile.v) for i, t in side}
    kept = tuple((steps.get(i, x), *s) for i, (x, s) in enumerate(loops) if s[OUT] and steps.get(i, x) > 1)
    summed = tuple((x, *s) for x, s in loops if not s[OUT])
    places = (_places(tile.m, loops), _places(tile.n, loops), _places(tile.v, loops))
    return Code(kept, *places, summed, two, log, share, splits, unroll)


def _ways(n_sum: int, log: int, cells: int) -> Iterator[tuple[int, int]]:
    """(warps, blocks) that may share a sum."""
    yield 1, 1
    if WARPS * (32 >> log) * cells > SHARED_CELLS:
        return
    for share in (2, 4, WARPS):
        if n_sum >= share << log:
            yield share, 1
    splits = 2
    while splits <= MOST_SPLITS and n_sum >= 2 * WARPS * splits << log:
        yield WARPS, splits
        splits *= 2


def _unroll(steps: int, most: int) -> int:
    """Steps of a batch: as many as may be, fewer where that saves steps that do nothing."""
    if steps <= most:
        return steps
    return min(range(1, most + 1), key=lambda u: (-(-steps // u) * (u + 1.5), -u))


def longest(*times: float, power: float = POWER) -> float:
    """Of times that run beside each other: a little more than the longest."""
    top = max(times)
    return top * math.fsum((t / top) ** power for t in times) ** (1 / power) if top > 0 else 0.0


def _price(
    work: _Work, resident: int, share: int, splits: int, unroll: int, loaded: float
) -> tuple[float, tuple[float, float, float, float]]:
    """Nanoseconds of the slowest block, and of the machine's parts; `loaded`: sectors of a block."""
    blocks = -(-work.tiles // (WARPS // share * (32 >> work.log))) * splits
    batches = -(-work.n_sum // ((share * splits << work.log) * unroll))
    steps = batches * unroll
    held = max(1, -(-work.cells // (1 << work.log)))
    exchanges = work.cells + work.log if work.log else 0
    code = float(FIXED + PER_AXIS * work.axes + held * PER_STORE)
    code += steps * (PER_LOAD * work.loads + 2 * work.cells + 3 * work.summed)
    served = steps * work.lines + 2 * exchanges
    if share > 1:
        read = (32 >> work.log) * work.cells / share / 32  # outputs that a thread adds up
        code += 2 * held + read * (share + 12)
        served += 2 * held + 2 * read * share
    stored = work.stored / (share * splits)
    way = START + TRIP * batches + WAIT * code + EXCHANGE_WAIT * exchanges
    way += LINE_WAIT * WARPS * (served + stored)
    code += PER_EXCHANGE * exchanges
    way += SHARE_WAIT if share > 1 else 0.0
    way += SPLIT_WAIT if splits > 1 else 0.0
    warps = blocks * WARPS
    sectors = blocks * loaded + warps * stored
    clocks = (warps * code / 4, warps * (served + stored), sectors / SECTORS, blocks * way / resident)
    issue, lines, l2, places = (x / SMS / CLOCK for x in clocks)
    return way / CLOCK, (issue, lines, l2, places)
