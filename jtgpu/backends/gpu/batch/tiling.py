"""Contractions of a table of cases as tiles: outputs that share what they read, and only the products that matter.

A tile is TM x TN outputs of one case: TM places on axes that only A and the output have, TN on axes that only B and
the output have. For each configuration k of the summed axes it reads TM + TN numbers and adds TM * TN products. It sums
only those k in which any of its products is structurally non-zero (see `jtgpu.backends.gpu.batch.sparsity`), so places
with the same zeros are put together. Places need not be neighbours: a cell of 32 cases is 32 contiguous numbers,
wherever the next cell is (cuda/batch/batch.cu).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ..program.records import OUT, A, B, Loop, offsets

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
WORDS = 28  # of a record: 8, then the tile's places in A, in B, and in the output twice
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

    @property
    def work(self) -> float:
        """Estimated cost of a case, in numbers read."""
        read = 0
        if self.shape in PRODUCTS:
            rows = (self.a != NONE).sum(axis=1) + (self.b != NONE).sum(axis=1)
            read = int((rows * self.count).sum())
        return _work(self.shape, len(self.count), int(self.count.sum()), read)


def _work(shape: int, n_tiles: int, n_steps: int, read: int) -> float:
    """Estimated cost of a case: `n_steps` of all tiles together, in which products read so many numbers."""
    tm, tn = SHAPES[shape]
    if shape in PRODUCTS:
        return n_tiles * PRODUCT_WORK + n_steps * STEP_WORK + read
    outputs = tm if shape == DIAGONAL else tm * max(tn, 1)
    return n_tiles * (TILE_WORK + OUT_WORK * outputs) + n_steps * (tm + tn + ADD_WORK * outputs)


FEW = 2048  # tiles of a contraction up to which later programs may use them
SAMPLE = 64  # places by which the shape of many tiles is chosen


class TileMaker:
    """Makes the tiles of contractions; contractions of equal axes and zeros share them."""
    # kept: Tiles of few outputs by what they are made of, for several programs

    def __init__(self, kept: dict[object, Tiles] | None = None):
        self._made: dict[object, Tiles] = {}
        self._kept = {} if kept is None else kept

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
        made = self._made.get(key) or self._kept.get(key)
        if made is None:
            made = _cheapest(loops, alone, used, more)
            (self._kept if len(made.count) <= FEW else self._made)[key] = made
        return made


def _cheapest(
    loops: tuple[Loop, ...], alone: bool, used: Sequence[NDArray[np.bool_]] | None, more: tuple[int, ...]
) -> Tiles:
    only_a = int(np.prod([n for n, s in loops if s[OUT] and s[A] and not s[B]], initial=1))
    only_b = int(np.prod([n for n, s in loops if s[OUT] and s[B] and not s[A]], initial=1))
    swapped = not alone and only_b > only_a
    if swapped:
        loops = tuple((n, (s[OUT], s[B], s[A])) for n, s in loops)
        used = None if used is None else (used[OUT], used[B], used[A])
    m, n = max(only_a, only_b), min(only_a, only_b)
    axes = _Axes(loops, used)
    if m == 1 and DIAGONAL in more and not alone:
        return min((axes.diagonal_tiles(), axes.tiles(6, swapped)), key=lambda t: t.work)
    if alone:
        fits = [7, 8] if m > 1 else [8]
    else:
        fits = [i for i, (tm, tn) in enumerate(SHAPES[:7]) if tm <= m + (m > 1) and tn <= n + (n > 1)]
        fits += [i for i in PRODUCTS if i in more and m > SHAPES[i][0] // 2 - (i != FOUR) and n > SHAPES[i][1] // 2]
    if used is None:  # tiles are alike: their cost is known without them
        fits = [min(fits, key=axes.dense_work)]
    elif len(fits) > 1 and len(axes.out) >= 2 * SAMPLE:
        some = axes.sampled()
        fits = [min(fits, key=lambda i: some.tiles(i, swapped).work)]
    return min((axes.tiles(i, swapped) for i in fits), key=lambda t: t.work)


class _Axes:
    """The axes of one contraction, sorted by the tables that have them."""

    def __init__(self, loops: tuple[Loop, ...], used: Sequence[NDArray[np.bool_]] | None):
        def kind(strides: tuple[int, int, int]) -> str:
            if not strides[OUT]:
                return "k"
            return "s" if strides[A] and strides[B] else "m" if strides[A] else "n"

        def walk(which: str, table: int) -> NDArray[np.int64]:
            return np.array(offsets([x for x in loops if kind(x[1]) == which], table), np.int64)

        self.at = {(w, t): walk(w, t) for w, t in product("smnk", (OUT, A, B))}
        s, m, n, k = (len(self.at[w, OUT]) for w in "smnk")
        self.a, self.b, self.out = np.ones((s, m, k), bool), np.ones((s, n, k), bool), np.ones((s, m, n), bool)
        self.dense = used is None
        if used is not None:
            self.a = used[A][self._cells("smk", A)]
            self.b = used[B][self._cells("snk", B)] if len(used[B]) else self.b
            self.out = used[OUT][self._cells("smn", OUT)]
        self.steps = np.stack([self.at["k", A], self.at["k", B]], axis=1).astype(np.uint32)

    def _cells(self, which: str, table: int) -> NDArray[np.int64]:
        summed = np.zeros(1, np.int64)
        for w in which:
            summed = summed[..., None] + self.at[w, table]
        cells: NDArray[np.int64] = summed[0]
        return cells

    def sampled(self) -> _Axes:
        """The same of some places of the axes that both inputs and the output have: enough to choose a shape."""
        some, which = copy(self), np.arange(SAMPLE) * len(self.out) // SAMPLE
        some.a, some.b, some.out = self.a[which], self.b[which], self.out[which]
        some.at = self.at | {("s", t): self.at["s", t][which] for t in (OUT, A, B)}
        return some

    def dense_work(self, shape: int) -> float:
        """Estimated cost of a case if no cell is structurally zero."""
        (s, m, n), k, (tm, tn) = self.out.shape, len(self.steps), SHAPES[shape]
        high, wide = -(-m // tm), -(-n // max(tn, 1))
        n_tiles = s * high * wide
        n_blocks = -(-n_tiles // 4) if shape == FOUR else n_tiles
        return _work(shape, n_blocks, n_blocks * k, s * k * (m * wide + n * high))

    def tiles(self, shape: int, swapped: bool) -> Tiles:
        """The tiles of one shape, places with the same zeros together."""
        tm, tn = SHAPES[shape]
        wide = max(tn, 1)
        order_m, there_m = _grouped(self.a, tm)  # (S, MT, TM)
        order_n, there_n = _grouped(self.b, wide)
        s = np.arange(len(self.out))[:, None, None]
        any_a = np.asarray(self.a[s, order_m].any(axis=2))  # (S, MT, K)
        any_b = np.asarray(self.b[s, order_n].any(axis=2))
        places = (s[..., None, None], order_m[:, :, None, :, None], order_n[:, None, :, None, :])
        there = there_m[:, :, None, :, None] & there_n[:, None, :, None, :]
        wanted = np.logical_and(self.out[places], there)  # (S, MT, NT, TM, TN)
        at_s, at_m, at_n = np.nonzero(wanted.any(axis=(3, 4)))
        needed = any_a[at_s, at_m] & any_b[at_s, at_n]  # (n, K)
        bits = np.uint32(1) << np.arange(min(tm * wide, 32), dtype=np.uint32)
        stored = wanted[at_s, at_m, at_n]
        m, n = order_m[at_s, at_m], order_n[at_s, at_n]

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
            stored = stored.transpose(0, 1, 4, 2, 3, 5).reshape(len(stored), tm * tn // 32, 32)
            mask = (stored * bits).sum(axis=2, dtype=np.uint32)
            if shape == FOUR:
                places_of, mask, needed = _four(places_of, mask, needed)
        else:
            mask = (stored.reshape(len(stored), tm * wide) * bits).sum(axis=1, dtype=np.uint32)
        first, count, which = _shared_lists(needed, self.dense)
        a, b, out_m, out_n = places_of
        return Tiles(shape, swapped, a, b, out_m, out_n, mask, first, count, self.steps[which])

    def diagonal_tiles(self) -> Tiles:
        """Tiles of outputs that share nothing but their steps."""
        tm, _ = SHAPES[DIAGONAL]
        stored = np.flatnonzero(self.out[:, 0, 0])
        both = (self.a & self.b)[stored, 0]
        order, there = (x[0] for x in _grouped(both[None], tm))
        rows = np.argsort(order[:, 0], kind="stable")
        first, count, which = _shared_lists(both[order[rows]].any(axis=1), self.dense)
        mask = (there[rows] * (1 << np.arange(tm))).sum(axis=1, dtype=np.uint32)
        out, a, b = (self.at["s", t][stored[order[rows]]].astype(np.uint32) for t in (OUT, A, B))
        return Tiles(
            DIAGONAL, False, a, b, out, np.zeros((len(a), 1), np.uint32), mask, first, count, self.steps[which]
        )


def _grouped(used: NDArray[np.bool_], size: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Places of axis 1 in groups of a size, those with the same zeros together, and which of them are not padding."""
    s, n, _ = used.shape
    if used.all():
        order = np.broadcast_to(np.arange(n), (s, n))
    else:
        keys = np.random.default_rng(7).integers(1, 2**40, used.shape[2])
        order = np.argsort(np.where(used, keys, 0).sum(axis=2), axis=1, kind="stable")
    groups = -(-n // size)
    slots = np.minimum(np.arange(groups * size), n - 1)
    there = np.broadcast_to((np.arange(groups * size) < n).reshape(groups, size), (s, groups, size))
    return order[:, slots].reshape(s, groups, size), there


def _four(
    places: Sequence[NDArray[np.uint32]], mask: NDArray[np.uint32], needed: NDArray[np.bool_]
) -> tuple[list[NDArray[np.uint32]], NDArray[np.uint32], NDArray[np.bool_]]:
    """Four tiles in one, those that sum the same configurations together: their places, masks and configurations."""
    packed = np.ascontiguousarray(np.packbits(needed, axis=1))
    _, pattern = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_inverse=True)
    order = np.argsort(pattern.reshape(-1), kind="stable")
    n = -(-len(order) // 4)

    def joined(x: NDArray[Any], fill: int) -> NDArray[Any]:
        more = np.full((4 * n - len(x), *x.shape[1:]), fill, x.dtype)
        return np.concatenate([x[order], more]).reshape(n, 4 * x.shape[1])

    blocks = np.asarray(joined(needed, False).reshape(n, 4, needed.shape[1]).any(axis=1))
    return [joined(x, f) for x, f in zip(places, (NONE, NONE, 0, 0), strict=True)], joined(mask, 0), blocks


def _shared_lists(
    needed: NDArray[np.bool_], dense: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each row the start and the length of its list, and the lists themselves, equal ones once."""
    n, k = needed.shape
    if dense:
        return np.zeros(n, np.int64), np.full(n, k), np.arange(k)
    packed = np.ascontiguousarray(np.packbits(needed, axis=1))
    _, distinct, row = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    lists = needed[distinct]
    ends = np.cumsum(lists.sum(axis=1))
    row = row.reshape(-1)
    count = lists.sum(axis=1)
    return (ends - count)[row], count[row].astype(np.int64), np.nonzero(lists)[1]
