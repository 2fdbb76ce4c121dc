"""Structural zeros of a plan's contractions, propagated forward and backward: which multiply-adds ever matter.

An entry is used if it is structurally non-zero and some answer depends on it. The zeros of the factors decide both,
and evidence only adds zeros, so an entry that is not used is not used by any case: of its multiply-adds Water keeps
1 %, Munin4 a quarter, Barley all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..lower import OUT, A, B, Loop, Lowered, flat_factors, offsets

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Terms:
    """The multiply-adds of one contraction that matter, by ascending cell of the output."""

    out: NDArray[np.int32]
    a: NDArray[np.int32]
    b: NDArray[np.int32]  # empty where there is one input


@dataclass(frozen=True)
class Sparsity:
    """Contractions, and which of their entries are used."""

    program: Lowered
    factors: tuple[NDArray[np.float64], ...]  # flat, axes in the plan's order
    nonzero: tuple[NDArray[np.bool_], ...]  # (T,) entries of each table that evidence may leave other than zero
    needed: tuple[NDArray[np.bool_], ...]  # (T,) entries on which some answer depends
    count: NDArray[np.int64]  # (S,) multiply-adds of every step that matter

    @cached_property
    def lower(self) -> float:
        """log2 of a bound below every number that is not zero, whatever is observed."""
        return -sum(max(0.0, -math.log2(float(f[f > 0].min()))) for f in self.factors if (f > 0).any())

    @property
    def upper(self) -> float:
        """log2 of a bound above every number: of the product of all factors summed over everything."""
        top = sum(max(0.0, math.log2(float(f.max()))) for f in self.factors if (f > 0).any())
        return top + sum(math.log2(max(len(f), 1)) for f in self.factors)

    def used(self, table: int) -> NDArray[np.bool_]:
        """Entries of a table that are structurally non-zero and needed."""
        return self.nonzero[table] & self.needed[table]

    def terms(self, step: int) -> Terms:
        """The multiply-adds of a step that matter."""
        s, loops = self.program.steps[step], self.program.loops[step]
        a = offsets(loops, A)
        keep = self.nonzero[s.ins[0]][a]
        b = offsets(loops, B) if len(s.ins) == 2 else np.zeros(0, np.int32)
        if len(s.ins) == 2:
            keep &= self.nonzero[s.ins[1]][b]
        out = offsets(loops, OUT)
        keep &= self.needed[s.out][out]
        which = np.flatnonzero(keep)
        which = which[np.argsort(out[which], kind="stable")]
        return Terms(out[which], a[which], b[which] if len(b) else b)


@np.errstate(invalid="ignore")  # OpenBLAS may set this flag with finite numbers
def find_sparsity(program: Lowered, factors: Sequence[NDArray[np.float64]]) -> Sparsity:
    """Find the entries that are used, one pass forward and one backward over all contractions."""
    plan, loops, sizes = program.plan, program.loops, program.sizes
    flat = tuple(flat_factors(plan, factors))
    nonzero = [f != 0 for f in flat] + [np.zeros(n, np.bool_) for n in sizes[len(flat) :]]
    for x, walks in zip(program.steps, map(_walks, loops), strict=True):
        a, b = _inputs(nonzero, x.ins, walks)
        made = walks[OUT].of(nonzero[x.out])
        made[...] = (count_products(_total(a), _total(b)) > 0).reshape(made.shape)
    needed = [np.zeros(n, np.bool_) for n in sizes]
    for t in (*program.answers, *program.roots):
        needed[t][:] = True
    count = np.zeros(len(loops), np.int64)
    for i in range(len(loops) - 1, -1, -1):
        x, walks = program.steps[i], _walks(loops[i])
        a, b = _inputs(nonzero, x.ins, walks)
        out = walks[OUT].numbers(needed[x.out])
        by_a = a * count_products(out, _total(b).swapaxes(1, 2))[..., None]
        count[i] = int(by_a.sum(dtype=np.float64))
        there = walks[A].of(needed[x.ins[0]])
        there |= (by_a > 0).reshape(there.shape)
        if len(x.ins) == 2:
            by_b = b * count_products(_total(a).swapaxes(1, 2), out)[..., None]
            there = walks[B].of(needed[x.ins[1]])
            there |= (by_b > 0).reshape(there.shape)
    return Sparsity(program, flat, tuple(nonzero), tuple(needed), count)


ONE_CORE = (1 << 18, 9215)  # multiply-adds up to which OpenBLAS uses one core; with a vector
NARROW = 4  # least rows of a block


def count_products(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Products of matrices of counts, in blocks of rows that OpenBLAS computes on one core.

    Its threads wait for each other in every small product: while others use the cores, that takes 100 times as long.
    """
    (s, m, k), n = x.shape, y.shape[2]
    if n > m:
        return count_products(y.swapaxes(1, 2), x.swapaxes(1, 2)).swapaxes(1, 2)
    high = ONE_CORE[n == 1] // max(n * k, 1)
    if high >= m:
        return x @ y
    if high < NARROW and k >= n:
        return count_products(x[:, :, : k // 2], y[:, : k // 2]) + count_products(x[:, :, k // 2 :], y[:, k // 2 :])
    if high < NARROW:
        return np.concatenate([count_products(x, part) for part in (y[:, :, : n // 2], y[:, :, n // 2 :])], axis=2)
    high = -(-m // -(-m // high))
    whole, made = m // high * high, np.empty((s, m, n), np.float32)
    np.matmul(x[:, :whole].reshape(s, -1, high, k), y[:, None], out=made[:, :whole].reshape(s, -1, high, n))
    if whole < m:  # again a whole block: one row would be a product with a vector
        np.matmul(x[:, -high:], y, out=made[:, -high:])
    return made


# Axes by the tables that have them: s both inputs and the output, m and n one input and the output, k both inputs,
# a and b one input.
KINDS: dict[tuple[int, ...], str]
KINDS = {(1, 1, 1): "s", (1, 1, 0): "m", (1, 0, 1): "n", (0, 1, 1): "k", (0, 1, 0): "a", (0, 0, 1): "b"}
AXES = ("smn", "smka", "sknb")  # of the output, A and B


class _Walk(NamedTuple):
    """A table's axes in the order of their kinds."""

    extents: list[int]
    strides: list[int]
    shape: list[int]  # an axis a kind

    def of(self, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """A view of a table's cells."""
        return np.ndarray(self.extents, np.bool_, cells, 0, self.strides)

    def numbers(self, cells: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The same as ones and zeros, an axis a kind: counts of them are exact up to 2^24."""
        return self.of(cells).reshape(self.shape).astype(np.float32)


@lru_cache(1 << 14)
def _walks(loops: tuple[Loop, ...]) -> list[_Walk]:
    """How a contraction walks the output, A and B."""
    made, of = [], {kind: [x for x in loops if KINDS[tuple(s > 0 for s in x[1])] == kind] for kind in KINDS.values()}
    for table, kinds in enumerate(AXES):
        axes = [x for kind in kinds for x in of[kind]]
        shape = [math.prod(n for n, _ in of[kind]) for kind in kinds]
        made.append(_Walk([n for n, _ in axes], [s[table] for _, s in axes], shape))
    return made


def _inputs(
    cells: Sequence[NDArray[np.bool_]], ins: Sequence[int], walks: Sequence[_Walk]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    a = walks[A].numbers(cells[ins[0]])
    return a, walks[B].numbers(cells[ins[1]]) if len(ins) == 2 else np.ones((1, 1, 1, 1), np.float32)


def _total(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """An input without the axes that only it has."""
    total: NDArray[np.float32] = x.sum(axis=3) if x.shape[3] > 1 else x[..., 0]
    return total

