"""Loops of every kind of argument and result, for the tests of the extension module."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jtgpu.util.jit import compiled, inlined, use_cache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jtgpu.util.array_types import Matrix

# mypy: disable-error-code="no-untyped-def"

use_cache(False)  # machine code from the cache cannot be linked


class Pair(NamedTuple):
    """A NamedTuple with fields of every kind."""

    numbers: NDArray[np.float64]
    table: Matrix[np.int64]
    scale: float
    n: int
    flag: bool


@inlined
def _half(x):
    return 0.5 * x


@compiled("f8[:], i8, b1")
def scaled(numbers, n, negative):
    """A new array."""
    out = np.empty(len(numbers))
    for i in range(len(numbers)):
        out[i] = -n * numbers[i] if negative else n * numbers[i]
    return out


@compiled("const(f8[:])")
def half_sum(numbers):
    """A number."""
    total = 0.0
    for x in numbers:
        total += _half(x)
    return total


@compiled("Pair, (i8[:], u1)")
def several(pair, more):
    """A tuple of all that it got."""
    ints, small = more
    return pair.numbers.sum() * pair.scale, pair.table.T.copy(), ints + pair.n, pair.flag, np.uint64(small)


@compiled("Pair")
def swapped(pair):
    """A NamedTuple."""
    return Pair(pair.numbers + 1.0, pair.table.copy(), -pair.scale, pair.n + 1, not pair.flag)


@compiled("i4[:], i8")
def fill(numbers, x):
    """Nothing."""
    for i in range(len(numbers)):
        numbers[i] = x


@compiled("i8, f8")
def plain(n, x):
    """Numbers alone: it has an address."""
    return n * x


@compiled("u8, i4")
def unsigned(x, n):
    """A number beyond int64."""
    return x >> np.uint64(n)


@compiled("i8")
def checked(n):
    """An error that the loop raises."""
    if n < 0:
        raise ValueError("n is negative")
    return n


@compiled("i8[:], i8[:]")
def assigned(to, what):
    """An error that NumPy's rules raise, with details that the extension leaves out."""
    to[:] = what


@compiled("f8[:]")
def in_order(numbers):
    """Numba's sort, which uses a list."""
    return np.argsort(numbers, kind="mergesort")


use_cache(True)
