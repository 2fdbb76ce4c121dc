"""Contractions of a table of cases as tiles: outputs that share what they read, and only the products that matter.

A tile is TM x TN outputs of one case: TM places on axes that only A and the output have, TN on axes that only B and
the output have. For each configuration k of the summed axes it reads TM + TN numbers and adds TM * TN products. It sums
only those k in which any of its products is structurally non-zero (see `jtgpu.backends.gpu.batch.sparsity`), so places
with the same zeros are put together. TablePlaces need not be neighbours: a cell of 32 cases is 32 contiguous numbers,
wherever the next cell is (cuda/batch/batch.cu).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..lower import OUT, A, B, Loop, mirrored, offsets
from .sparsity import count_products

if TYPE_CHECKING:
    from numpy.typing import NDArray

# TM x TN, numbered as in the kernel; TN = 0: there is no B. The last one is a diagonal: output i from A's i and B's i,
# for contractions without axes that only one of A and B has.
SHAPES = (
    *((4, 4), (6, 3), (3, 3), (4, 2), (2, 2), (4, 1), (1, 1), (4, 0), (1, 0), (4, 4)),
    *((16, 16), (32, 8), (64, 4), (8, 8)),
)
DIAGONAL, SLIM = 9, range(3, 9)  # SLIM: shapes of few outputs
PRODUCTS, FOUR = (10, 11, 12, 13), 13  # of a block of four warps (cuda/batch/products.cu); four tiles in FOUR
NONE = 0xFFFFFFFF  # place of a product that no output needs
A_SHARED, B_SHARED, FIRST = 16, 32, 64  # bits of a record's `kind`, behind the shape
TILE_WORK, OUT_WORK, ADD_WORK = 10.0, 0.5, 0.12  # cost of a tile, an output and a product, in numbers read
PRODUCT_WORK, STEP_WORK = 200.0, 32.0  # of a block of warps, and of each of its steps in addition to what is read


@dataclass(frozen=True)
class Tiles:
    """The tiles of one contraction, cells counted from the beginning of each table."""

    shape: int  # number in `SHAPES`
    swapped: bool  # whether the tile's A is the contraction's B
    a: NDArray[np.uint32]  # (n, TM)
    b: NDArray[np.uint32]  # (n, TN)
    out_m: NDArray[np.uint32]  # (n, TM)
    out_n: NDArray[np.uint32]  # (n, max(TN, 1)); (n, 1) of a diagonal
    mask: NDArray[np.uint32]  # (n,) bit i * width of `out_n` + j: this output is stored; (n, 8) of a product
    first: NDArray[np.int64]  # (n,) where its steps begin
    count: NDArray[np.int64]  # (n,)
    steps: NDArray[np.uint32]  # (K, 2) what is added to the places in A and B


def _work(shape: int, n_tiles: int, n_steps: int, read: int) -> float:
    """Estimated cost of a case: `n_steps` of all tiles together, in which products read so many numbers."""
    tm, tn = SHAPES[shape]
    if shape in PRODUCTS:
        return n_tiles * PRODUCT_WORK + n_steps * STEP_WORK + read
    outputs = tm if shape == DIAGONAL else tm * max(tn, 1)
    return n_tiles * (TILE_WORK + OUT_WORK * outputs) + n_steps * (tm + tn + ADD_WORK * outputs)


SAMPLE = 64  # places by which the shape of many tiles is chosen


class TileMaker:
    """Makes the tiles of contractions; contractions of equal axes and zeros share them."""

    def __init__(self) -> None:
        self._made: dict[object, Tiles] = {}

    def tiles(
        self, loops: tuple[Loop, ...], alone: bool, used: Sequence[NDArray[np.bool_]] | None, more: tuple[int, ...] = ()
    ) -> Tiles:
        """The cheapest tiles of a contraction."""
        # loops: tuple of (extent, strides): Its joint axes
        # alone: Whether there is no B
        # more: Shapes that may be used besides the first nine
        # used: three arrays of bool: Cells of the output that are used, and those of A and B that are structurally
        #     non-zero. Default: all.
        key = (loops, alone, more, None if used is None else tuple(np.packbits(x).tobytes() for x in used))
        if key not in self._made:
            self._made[key] = _cheapest(loops, alone, used, more)
        return self._made[key]


@np.errstate(invalid="ignore")  # OpenBLAS may set this flag with finite numbers
def _cheapest(
    loops: tuple[Loop, ...], alone: bool, used: Sequence[NDArray[np.bool_]] | None, more: tuple[int, ...]
) -> Tiles:
    only_a = int(np.prod([n for n, s in loops if s[OUT] and s[A] and not s[B]], initial=1))
    only_b = int(np.prod([n for n, s in loops if s[OUT] and s[B] and not s[A]], initial=1))
    swapped = not alone and only_b > only_a
    if swapped:
        loops = mirrored(loops)
        used = None if used is None else (used[OUT], used[B], used[A])
    m, n = max(only_a, only_b), min(only_a, only_b)
    axes = _Axes(loops, used)
    if m == 1 and DIAGONAL in more and not alone:
        diagonal = axes.diagonal_tiles()
        cost = _work(DIAGONAL, len(diagonal.count), int(diagonal.count.sum()), 0)
        return diagonal if cost <= axes.work(6) else axes.tiles(6, swapped)
    if alone:
        fits = [7, 8] if m > 1 else [8]
    else:
        fits = [i for i, (tm, tn) in enumerate(SHAPES[:7]) if tm <= m + (m > 1) and tn <= n + (n > 1)]
        fits += [i for i in PRODUCTS if i in more and m > SHAPES[i][0] // 2 - (i != FOUR) and n > SHAPES[i][1] // 2]
    some = axes if len(axes.out) < 2 * SAMPLE else axes.sampled()
    work = axes.dense_work if used is None else some.work  # without zeros, tiles are alike: their cost is known
    return axes.tiles(min(fits, key=work) if len(fits) > 1 else fits[0], swapped)


class _Axes:
    """The axes of one contraction, sorted by the tables that have them; places with the same zeros side by side."""

    def __init__(self, loops: tuple[Loop, ...], used: Sequence[NDArray[np.bool_]] | None):
        of: dict[str, list[Loop]] = {w: [] for w in "smnk"}
        for x in loops:
            of["k" if not x[1][OUT] else "n" if not x[1][A] else "s" if x[1][B] else "m"].append(x)
        self.at = {(w, t): offsets(of[w], t) for w, t in product("smnk", (OUT, A, B))}
        s, m, n, k = (len(self.at[w, OUT]) for w in "smnk")

        def cells(which: str, table: int, *shape: int) -> NDArray[np.bool_]:
            if used is None or not len(used[table]):
                return np.ones(shape, bool)
            axes = [x for w in which for x in of[w]]
            strides = [x[table] for _, x in axes]
            return np.ndarray([n for n, _ in axes], bool, used[table], 0, strides).reshape(shape)

        self.dense = used is None
        a, b, out = cells("smk", A, s, m, k), cells("snk", B, s, n, k), cells("smn", OUT, s, m, n)
        (self.order_m, self.a), (self.order_n, self.b) = _sorted(a), _sorted(b)  # place m of the axes is order_m's
        each = np.arange(s)[:, None]
        out = out if self.a is a else out[each, self.order_m]
        out = out if self.b is b else out.swapaxes(1, 2)[each, self.order_n].swapaxes(1, 2)
        self.out = np.ascontiguousarray(out)
        self.steps = np.stack([self.at["k", A], self.at["k", B]], axis=1).astype(np.uint32)
        self._any: dict[tuple[int, int, int], NDArray[np.bool_]] = {}

    def sampled(self) -> _Axes:
        """The same of some places of the axes that both inputs and the output have: enough to choose a shape."""
        some, which = copy(self), np.arange(SAMPLE) * len(self.out) // SAMPLE
        some.a, some.b, some.out, some._any = self.a[which], self.b[which], self.out[which], {}
        return some

    def any_of(self, table: int, high: int, wide: int = 1) -> NDArray[np.bool_]:
        """Whether any of `high` places on axis 1 and `wide` on axis 2 is true."""
        key = table, high, wide
        if key not in self._any:
            if high == wide == 1:
                return (self.out, self.a, self.b)[table]
            axis, size = (2, wide) if wide > 1 else (1, high)
            of = 3 if size == 3 else 2
            fewer = self.any_of(table, *((high, wide // of) if wide > 1 else (high // of, wide)))
            self._any[key] = _joined(fewer, axis, of, np.logical_or)
        return self._any[key]

    def dense_work(self, shape: int) -> float:
        """Estimated cost of a case if no cell is structurally zero."""
        (s, m, n), k, (tm, tn) = self.out.shape, len(self.steps), SHAPES[shape]
        high, wide = -(-m // tm), -(-n // max(tn, 1))
        n_tiles = s * high * wide
        n_blocks = -(-n_tiles // 4) if shape == FOUR else n_tiles
        return _work(shape, n_blocks, n_blocks * k, s * k * (m * wide + n * high))

    def work(self, shape: int) -> float:
        """Estimated cost of a case with tiles of a shape, which need not be made."""
        high, wide = SHAPES[shape][0], max(SHAPES[shape][1], 1)
        wanted, a, b = self.any_of(OUT, high, wide), self.any_of(A, high), self.any_of(B, wide)
        read: NDArray[Any] = wanted
        if shape in PRODUCTS:
            m, n = self.any_of(OUT, 1, wide).view(np.uint8), self.any_of(OUT, high).view(np.uint8)
            read = _joined(m, 1, high, np.add) + _joined(n, 2, wide, np.add)
        if shape == FOUR:
            at_s, at_m, at_n = np.nonzero(wanted)
            join, needed = _fours(a[at_s, at_m] & b[at_s, at_n])
            count = needed.sum(axis=1)
            rows = join(read[at_s, at_m, at_n][:, None], 0).sum(axis=1)
            return _work(shape, len(count), int(count.sum()), int((rows * count).sum()))
        counts = count_products(a.astype(np.float32), b.astype(np.float32).swapaxes(1, 2))
        n_steps = int(np.einsum("smn,smn->", counts, wanted, dtype=np.float64))
        n_read = 0 if read is wanted else int(np.einsum("smn,smn->", counts, read, dtype=np.float64))
        return _work(shape, int(np.count_nonzero(wanted)), n_steps, n_read)

    def tiles(self, shape: int, swapped: bool) -> Tiles:
        """The tiles of one shape."""
        tm, tn = SHAPES[shape]
        wide, (_, n_m, n_n) = max(tn, 1), self.out.shape
        at_s, at_m, at_n = np.nonzero(self.any_of(OUT, tm, wide))
        needed = self.any_of(A, tm)[at_s, at_m] & self.any_of(B, wide)[at_s, at_n]  # (n, K)
        m, n = at_m[:, None] * tm + np.arange(tm), at_n[:, None] * wide + np.arange(wide)
        there = (m < n_m)[:, :, None] & (n < n_n)[:, None]
        m, n, s = np.minimum(m, n_m - 1), np.minimum(n, n_n - 1), at_s[:, None]
        stored = self.out.ravel()[((s * n_m + m) * n_n)[:, :, None] + n[:, None]] & there
        m, n = self.order_m[s, m], self.order_n[s, n]

        def cells(table: int, what: str, places: NDArray[np.int64], base: bool) -> NDArray[np.uint32]:
            numbers = self.at[what, table][places]
            return (numbers + self.at["s", table][at_s][:, None] if base else numbers).astype(np.uint32)

        places_of = [cells(A, "m", m, True), cells(B, "n", n, True)[:, :tn], cells(OUT, "m", m, True)]
        places_of.append(cells(OUT, "n", n, False))
        if shape in PRODUCTS:
            for table, axis in ((0, 2), (1, 1)):
                places_of[table][~stored.any(axis=axis)] = NONE
            side = min(tn, 8)
            high = 32 // side  # of a word of the mask: half of a warp's outputs
            stored = stored.reshape(len(stored), tm // (2 * high), 2, high, tn // side, side)
            mask = _packed(stored.transpose(0, 1, 4, 2, 3, 5).reshape(len(stored), tm * tn // 32, 32), 4)
            if shape == FOUR:
                join, needed = _fours(needed)
                places_of = [join(x, f) for x, f in zip(places_of, (NONE, NONE, 0, 0), strict=True)]
                mask = join(mask, 0)
        else:
            mask = _packed(stored.reshape(len(stored), tm * wide), 4)
        first, count, which = _shared_lists(needed, self.dense)
        a, b, out_m, out_n = places_of
        return Tiles(shape, swapped, a, b, out_m, out_n, mask, first, count, self.steps[which])

    def diagonal_tiles(self) -> Tiles:
        """Tiles of outputs that share nothing but their steps."""
        tm, _ = SHAPES[DIAGONAL]
        stored = np.flatnonzero(self.out[:, 0, 0])
        both = (self.a & self.b)[stored, 0]
        order, both = (x[0] for x in _sorted(both[None]))
        slots = np.arange(-(-len(order) // tm) * tm).reshape(-1, tm)
        there, slots = slots < len(order), np.minimum(slots, len(order) - 1)
        rows = np.argsort(order[slots[:, 0]], kind="stable")
        slots, there = slots[rows], there[rows]
        first, count, which = _shared_lists(both[slots].any(axis=1), self.dense)
        out, a, b = (self.at["s", t][stored[order[slots]]].astype(np.uint32) for t in (OUT, A, B))
        none = np.zeros((len(a), 1), np.uint32)
        return Tiles(DIAGONAL, False, a, b, out, none, _packed(there, 4), first, count, self.steps[which])


def _sorted(used: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Places of axis 1 in an order in which those with the same zeros are together, and the same in this order."""
    s, n, k = used.shape
    if n == 1 or used.all():
        return np.broadcast_to(np.arange(n), (s, n)), used
    order = np.argsort(used @ _keys(k), axis=1, kind="stable")
    return order, used[np.arange(s)[:, None], order]


@lru_cache(1 << 10)
def _keys(n: int) -> NDArray[np.int64]:
    return np.random.default_rng(7).integers(1, 2**40, n)


def _joined(x: NDArray[Any], axis: int, size: int, add: np.ufunc) -> NDArray[Any]:
    """Neighbours on an axis together, two or three at a time."""
    before = (slice(None),) * axis
    while size > 1:
        of = 3 if size == 3 else 2
        made = x[(*before, slice(0, None, of))].copy()
        for i in range(1, of):
            part = x[(*before, slice(i, None, of))]
            some = made[(*before, slice(part.shape[axis]))]
            add(some, part, out=some)
        x, size = made, size // of
    return x


def _packed(bits: NDArray[np.bool_], size: int, order: Literal["little", "big"] = "little") -> NDArray[Any]:
    """Rows of bits as integers of some bytes."""
    short = np.packbits(bits, axis=-1, bitorder=order)
    whole = np.zeros((*short.shape[:-1], size), np.uint8)
    whole[..., : short.shape[-1]] = short
    made: NDArray[Any] = whole.view(f"{'<' if order == 'little' else '>'}u{size}")[..., 0]
    return made


def _patterns(needed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A row of each of the distinct ones, in the order of their bits, and which of these every row is."""
    if needed.shape[1] <= 64:
        rows = _packed(needed, 8, "big").astype(np.uint64)
    else:
        packed = np.packbits(needed, axis=1)
        rows = packed.view(f"V{packed.shape[1]}").ravel()
    _, some, which = np.unique(rows, return_index=True, return_inverse=True)
    return some, which.reshape(-1)


def _fours(needed: NDArray[np.bool_]) -> tuple[Callable[[NDArray[Any], int], NDArray[Any]], NDArray[np.bool_]]:
    """Four tiles in one, those that sum the same configurations together: joins their arrays; its configurations."""
    order = np.argsort(_patterns(needed)[1], kind="stable")
    n = -(-len(order) // 4)

    def join(x: NDArray[Any], fill: int) -> NDArray[Any]:
        more = np.full((4 * n - len(x), *x.shape[1:]), fill, x.dtype)
        return np.concatenate([x[order], more]).reshape(n, 4 * x.shape[1])

    return join, np.asarray(join(needed, False).reshape(n, 4, needed.shape[1]).any(axis=1))


def _shared_lists(
    needed: NDArray[np.bool_], dense: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each row the start and the length of its list, and the lists themselves, equal ones once."""
    n, k = needed.shape
    if dense:
        return np.zeros(n, np.int64), np.full(n, k), np.arange(k)
    distinct, row = _patterns(needed)
    lists = needed[distinct]
    count = lists.sum(axis=1)
    return (np.cumsum(count) - count)[row], count[row].astype(np.int64), np.nonzero(lists)[1]
