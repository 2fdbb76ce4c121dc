"""The contractions of tables of cases level by level: records of their tiles, and the kernels that compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....device.context import Device
from ....device.driver import Arguments, Kernels, loaded_kernels
from ....device.structs import struct
from ..lower import Lowered
from ..program.layout import TablePlaces
from .buffers import GROUP, THREADS
from .side_by_side import ForkedStreams, parts_of
from .sparsity import Sparsity
from .tiling import A_SHARED, B_SHARED, DIAGONAL, FIRST, NONE, PRODUCTS, SLIM, TileMaker, Tiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVEL_WARPS = 4  # of a block of the tiles' kernel
GROUPS, STEPS, MANY = 8, 160, 2000  # a block of products computes so many groups if sums are short and blocks many
SLIM_WARPS = 20_000  # least warps of tiles of few outputs for which a launch of their own pays
PRODUCT_THREADS = 128  # of a block of products
TILE = struct("batch/batch.cuh", "Tile")
PRODUCT = struct("batch/products.cu", "Product")
AHEAD = 4  # steps that may be read behind the last one
WAITING = (8192, 12288)  # numbers in the block's shared memory before compute capability 8.0, and from there on
PARTS, PART_GROUPS = 2, 8  # of a chunk, side by side; least groups of a part
MOST_CASES = 1 << 14  # of a chunk
MOST_BLOCKS, MOST_THREADS = 2**31 - 1, 2**32 - THREADS


class Level(NamedTuple):
    """Contractions that are independent of each other."""

    first: int  # of its tiles
    n_tiles: int
    n_slim: int  # the last of them
    products: int  # the first
    n_products: int
    sum: int  # steps of a product, on average


def most_cases(levels: Sequence[Level], n_entered: int) -> int:
    """Of a chunk: blocks of a level are numbered in 31 bits, threads that enter evidence in 32."""
    n_blocks = max((max(x.n_tiles, x.n_products) for x in levels), default=1)
    return min(MOST_CASES, MOST_BLOCKS // n_blocks // GROUP * GROUP, MOST_THREADS // max(n_entered, 1) // GROUP * GROUP)


SHARED_CELLS = 1024  # least cells of a table whose readers run side by side
Part = tuple[int, set[int], Any]  # a contraction: longest sum, large tables that it reads, records


def level_tiles(
    program: Lowered, sparsity: Sparsity | None, s: TablePlaces, where: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint32], tuple[Level, ...]]:
    """Tiles, products, steps and levels; contractions with long sums come first in a level."""
    maker, first_step = TileMaker(), dict[int, int]()
    made: dict[int, tuple[list[Part], list[Part], list[Part]]] = {}
    steps: list[NDArray[np.uint32]] = [np.zeros((1, 2), np.uint32)]
    n_steps = 1
    for i, x in enumerate(program.steps):
        alone = len(x.ins) == 1
        more = (DIAGONAL, *PRODUCTS) if all(where[t] >= 0 for t in x.ins) else (DIAGONAL,)
        tiles = maker.tiles(program.loops[i], alone, _used_cells(sparsity, i), more)
        if id(tiles) not in first_step:
            first_step[id(tiles)] = n_steps
            steps.append(tiles.steps)
            n_steps += len(tiles.steps)
        ins = (x.ins[0], s.n_tables - 1 if alone else x.ins[1])
        records = _records(tiles, ins, x.out, s, where)
        records[:, 0] += first_step[id(tiles)]
        large = {t for t in x.ins if where[t] >= 0 and s.table_size[t] >= SHARED_CELLS}
        kinds = made.setdefault(program.level[i], ([], [], []))
        kind = 2 if tiles.shape in PRODUCTS else int(tiles.shape in SLIM)
        kinds[kind].append((int(tiles.count.max(initial=0)), large, records))
    levels, (tiled, blocks) = [], ([np.zeros((0, of.itemsize // 4), np.uint32)] for of in (TILE, PRODUCT))
    first, products = 0, 0
    for level in sorted(made):
        here = [_in_order(x) for x in made[level]]
        tiled += [*here[0], *here[1]]
        blocks += here[2]
        full, slim, n_products = (sum(map(len, x)) for x in here)
        mean = sum(int(x[:, 1].sum()) for x in here[2]) // max(n_products, 1)
        levels.append(Level(first, full + slim, slim, products, n_products, mean))
        first, products = first + levels[-1].n_tiles, products + levels[-1].n_products
    steps.append(np.zeros((AHEAD, 2), np.uint32))
    used = tuple(x for x in levels if x.n_tiles or x.n_products)
    joined = np.concatenate(tiled).view(TILE).ravel(), np.concatenate(blocks).view(PRODUCT).ravel()
    return *joined, np.concatenate(steps), used


def _in_order(parts: Sequence[Part]) -> list[NDArray[np.uint32]]:
    """The tiles of a level: contractions with long sums first, those that read the same large table side by side, since
    its cells are then still in the cache."""
    groups: list[list[Part]] = []
    home: dict[int, list[Part]] = {}  # of a large table: the group of its readers
    for part in parts:
        groups.append(group := [part])
        for t in sorted(part[1]):
            if (other := home.get(t, group)) is not group:
                group += other
                home |= dict.fromkeys((u for p in other for u in p[1]), group)
                other.clear()
            home[t] = group
    made = []
    for group in sorted(filter(None, groups), key=lambda g: -max(p[0] for p in g)):
        at = np.concatenate([(np.arange(len(p[2])) + 0.5) / len(p[2]) for p in group])
        made.append(np.concatenate([p[2] for p in group])[np.argsort(at, kind="stable")])
    return made


def _used_cells(sparsity: Sparsity | None, step: int) -> list[NDArray[np.bool_]] | None:
    """Used cells of the output and structurally non-zero ones of the inputs, for `TileMaker.tiles`."""
    if sparsity is None:
        return None
    s = sparsity.program.steps[step]
    second = sparsity.nonzero[s.ins[1]] if len(s.ins) == 2 else np.zeros(0, np.bool_)
    cells = [sparsity.used(s.out), sparsity.nonzero[s.ins[0]], second]
    return None if all(x.all() for x in cells) else cells


def _records(
    tiles: Tiles, ins: tuple[int, int], out: int, s: TablePlaces, where: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """struct Tile, or Product, of one contraction, steps counted from 0; as words, which NumPy joins quickly."""
    a, b = ins[::-1] if tiles.swapped else ins
    kind = tiles.shape | (A_SHARED if where[a] < 0 else 0) | (B_SHARED if where[b] < 0 else 0)
    made = np.zeros(len(tiles.a), PRODUCT if tiles.shape in PRODUCTS else TILE)
    made["steps"], made["n_steps"], made["kind"], made["mask"] = tiles.first, tiles.count, kind, tiles.mask
    made["slot_a"], made["slot_b"], made["slot_out"] = a, b, out
    made["kind"][:1] |= FIRST

    def first(t: int) -> int:
        return int(s.table_cell[t]) if where[t] < 0 else int(where[t])

    at = 0
    for base, cells in ((first(a), tiles.a), (first(b), tiles.b), (first(out), tiles.out_m), (0, tiles.out_n)):
        part = made["at"][:, at : at + cells.shape[1]]
        np.add(cells, np.uint32(base), out=part)
        if tiles.shape in PRODUCTS:
            part[cells == NONE] = NONE
        at += cells.shape[1]
    return made.view(np.uint32).reshape(len(made), made.itemsize // 4)


class LevelKernels:
    """The kernels of all levels."""

    def __init__(self, device: Device, kernels: Kernels, products: int, levels: Sequence[Level], real: str = "float64"):
        self._kernels, self._records, self._levels = kernels, products, levels
        self._cell_bytes = np.dtype(real).itemsize
        self._products: Kernels | None = None
        self._parts = ForkedStreams(device, PARTS)
        self._of_part = [ForkedStreams(device, 3) for _ in range(PARTS)]
        if any(x.n_products for x in levels):
            self._products = loaded_kernels(device, "batch/products", ("batch_products",), real=real)
            self._shared = WAITING[device.capability >= (8, 0)] * self._cell_bytes
            self._products.allow_shared("batch_products", self._shared)

    def queue(self, struct: NDArray[Any], groups: int, stream: Any) -> None:
        """Queue them for groups of cases: parts of the groups, and the kernels of a level, side by side."""
        parts = parts_of(struct, groups, min(PARTS, max(groups // PART_GROUPS, 1)), self._cell_bytes)
        works = [partial(self._queue_part, *x, lanes) for x, lanes in zip(parts, self._of_part, strict=False)]
        self._parts.queue(works, stream)

    def _queue_part(self, struct: NDArray[Any], groups: int, lanes: ForkedStreams, stream: Any) -> None:
        for x in self._levels:
            lanes.queue(self._of_level(x, struct, groups), stream)

    def _of_level(self, x: Level, struct: NDArray[Any], groups: int) -> list[Callable[[Any], None]]:
        """Calls that queue the kernels of a level, those with the longest blocks first."""
        warps = min(LEVEL_WARPS, groups)
        made: list[Callable[[Any], None]] = []

        def add(kernels: Kernels, name: str, blocks: int, threads: int, arguments: Arguments, shared: int = 0) -> None:
            made.append(lambda stream: kernels.launch(name, blocks, threads, stream, arguments, shared=shared))

        if x.n_products and self._products is not None:
            records = np.array([self._records + PRODUCT.itemsize * x.products], np.uint64)
            high = max(min(groups * x.n_products // MANY, STEPS // max(x.sum, 1), GROUPS), 1)
            arguments, blocks = Arguments(struct, records, x.n_products, high), x.n_products * -(-groups // high)
            add(self._products, "batch_products", blocks, PRODUCT_THREADS, arguments, self._shared)
        slim = x.n_slim if x.n_slim * groups >= SLIM_WARPS else 0
        for name, at, n in (("level", x.first, x.n_tiles - slim), ("slim", x.first + x.n_tiles - slim, slim)):
            if n:
                arguments, blocks = Arguments(struct, at, n), n * -(-groups // warps)
                add(self._kernels, f"batch_{name}", blocks, warps * GROUP, arguments)
        return made

    def close(self) -> None:
        for lanes in (self._parts, *self._of_part):
            lanes.close()
