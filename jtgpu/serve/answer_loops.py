"""Compiled loops that write posteriors as JSON or MessagePack.

The shortest decimal that reads back as the same double follows R. Giulietti, "The Schubfach way to render doubles"
(2021): the double and the bounds of its rounding interval, times a power of ten, in 64 bits of which the last is set if
the value is inexact; the shorter decimal is taken if one of two is between the bounds.
"""

from __future__ import annotations

import numpy as np

from ..util.elementary.loops.functions import as_bits, as_float, high_product
from ..util.jit import compiled

__all__ = ["decimals", "merge", "write"]

ONE = np.uint64(1)
MASK = (1 << 52) - 1
TENS = np.array([10**i for i in range(19)])
PLAIN = 3  # zeros after the point, at most; smaller numbers have an exponent


@compiled(allocates=False)
def _scaled(high, low, x):  # type: ignore[no-untyped-def]
    """``(high * 2^64 + low) * x / 2^128``, whose last bit is set if it is inexact."""
    middle = high * x
    total = middle + high_product(low, x)
    carry = ONE if total < middle else np.uint64(0)
    return (high_product(high, x) + carry) | (ONE if total > ONE else np.uint64(0))


@compiled(allocates=False)
def _shortest(x, powers):  # type: ignore[no-untyped-def]
    """A double, 0 < x < 2, as an integer and an exponent of ten; and the sign of x minus that."""
    # powers: (325, 2) uint64: 10^e in 128 bits, rounded up, the first bit of which is set
    bits = as_bits(x)
    fraction, exponent = bits & MASK, bits >> 52
    c, q = (fraction | (MASK + 1), exponent - 1075) if exponent else (fraction, -1074)
    is_odd = np.uint64(c & 1)
    closer = fraction == 0 and exponent > 1  # the next smaller double
    k = (q * 1262611 - (524031 if closer else 0)) >> 22
    shift = np.uint64(q + ((-k * 1741647) >> 19) + 1)
    high, low = powers[-k, 0], powers[-k, 1]
    four = np.uint64(4 * c)
    lower = _scaled(high, low, (four - np.uint64(1 if closer else 2)) << shift) + is_odd
    value = _scaled(high, low, four << shift)
    upper = _scaled(high, low, (four + np.uint64(2)) << shift) - is_odd
    s = value >> np.uint64(2)
    if s >= 10:
        t = s // np.uint64(10)
        inside, next_inside = lower <= np.uint64(40) * t, np.uint64(40) * (t + ONE) <= upper
        if inside != next_inside:
            t += ONE if next_inside else np.uint64(0)
            rest = np.int64(value) - np.int64(40 * t)
            return np.int64(t), k + 1, rest
    inside, next_inside = lower <= np.uint64(4) * s, np.uint64(4) * (s + ONE) <= upper
    middle = np.uint64(4) * s + np.uint64(2)
    if inside != next_inside:
        s += ONE if next_inside else np.uint64(0)
    elif value > middle or (value == middle and s & ONE):
        s += ONE
    return np.int64(s), k, np.int64(value) - np.int64(4 * s)


@compiled("const(f8[:]), i8, const(u8[:, :]), i8[:, :]")
def decimals(values, digits, powers, out):  # type: ignore[no-untyped-def]
    """Numbers, 0 <= x < 2, as integers without final zeros, and exponents of ten."""
    # digits: Significant digits, at most; 17: the fewest that read back as the same number
    # out: (n, 2) int64
    for i in range(len(values)):
        x = values[i]
        if x == 0.0 or x == 1.0:
            out[i, 0], out[i, 1] = np.int64(x), 0
            continue
        s, e, rest = _shortest(x, powers)
        n = _length(s)
        if n > digits:
            unit = TENS[n - digits]
            above, s = s, np.int64(np.uint64(s) // np.uint64(unit))
            above -= s * unit
            e += n - digits
            half = unit // 2
            # at half the decimal may be the rounded double, and the double on either side of it
            if above > half or (above == half and (rest > 0 or (rest == 0 and s & 1))):
                s += 1
        while s % 10 == 0:
            s //= 10
            e += 1
        out[i, 0], out[i, 1] = s, e


@compiled("const(i8[:]), i8[:], f8, const(i8[:]), const(i8[:]), i8[:], i8[:]")
def merge(now, merged, tolerance, variables, ptr, others, cells):  # type: ignore[no-untyped-def]
    """Put variables that differ by more than a tolerance into `merged`, and list them; how many they and cells are."""
    # now, merged: Of the variables, one after another; with a tolerance above 0 bits of doubles
    first = n = n_cells = 0
    for j in range(len(variables)):
        v = variables[j]
        last, differs = first + ptr[v + 1] - ptr[v], False
        for i in range(first, last):
            if now[i] != merged[i]:
                differs |= tolerance == 0.0 or abs(as_float(now[i]) - as_float(merged[i])) > tolerance
        if differs:
            others[n] = v
            n += 1
            for i in range(first, last):
                merged[i] = now[i]
                cells[n_cells] = i
                n_cells += 1
        first = last
    return n, n_cells


@compiled(allocates=False)
def _copy(source, first, last, out, at):  # type: ignore[no-untyped-def]
    for i in range(last - first):
        out[np.uint64(at + i)] = source[np.uint64(first + i)]
    return at + last - first


@compiled(allocates=False)
def _length(s):  # type: ignore[no-untyped-def]
    """Number of digits of an integer, 0 < s < 10^18."""
    n = ((((as_bits(np.float64(s)) >> 52) - 1023) * 1233) >> 12) + 1
    return n + 1 if s >= TENS[n] else n


@compiled(allocates=False)
def _put(word, n, out, at):  # type: ignore[no-untyped-def]
    """Write the first n bytes of a word; the compiler makes it one instruction."""
    first = np.uint64(at)  # an index that cannot be negative
    for i in range(n):
        out[first + np.uint64(i)] = (word >> (8 * i)) & 255


@compiled(allocates=False)
def _eight(x):  # type: ignore[no-untyped-def]
    """Eight digits as text, the first one in the lowest byte."""
    fours = x // 10_000 | (x % 10_000) << 32  # all quotients at once, each in bits of its own
    hundreds = ((fours * 10_486) >> 20) & 0x7F_0000_007F
    twos = hundreds | (fours - 100 * hundreds) << 16
    tens = ((twos * 103) >> 10) & 0xF_000F_000F_000F
    return (tens | (twos - 10 * tens) << 8) + 0x3030_3030_3030_3030


@compiled(allocates=False)
def _digits(s, n, out, at):  # type: ignore[no-untyped-def]
    """Write the n digits of an integer, then zeros up to 17 digits, which what follows replaces."""
    s *= TENS[17 - n]
    out[at] = 48 + s // TENS[16]
    s %= TENS[16]
    _put(_eight(s // TENS[8]), 8, out, at + 1)
    _put(_eight(s % TENS[8]), 8, out, at + 9)


@compiled(allocates=False)
def _write_decimal(s, e, out, at):  # type: ignore[no-untyped-def]
    """``s * 10^e`` as JSON, 0 <= s * 10^e < 2."""
    if e == 0:
        _put(0x302E30 + s, 3, out, at)
        return at + 3
    n = _length(s)
    zeros = -e - n  # after the point
    if 0 <= zeros <= PLAIN:
        _put(0x3030_3030_3030_2E30, 8, out, at)  # 0.000000
        _digits(s, n, out, at + 2 + zeros)
        return at + 2 + zeros + n
    _digits(s, n, out, at + 1)
    out[at], out[at + 1] = out[at + 1], 46
    at += n + 1 if n > 1 else 1
    if zeros < 0:
        return at
    out[at], out[at + 1] = 101, 45
    power = zeros + 1
    size = 1 if power < 10 else 2 if power < 100 else 3
    for i in range(size):
        out[at + 1 + size - i] = 48 + power % 10
        power //= 10
    return at + 2 + size


@compiled("const(i8[:, :]), const(i8[:]), const(i8[:]), const(u1[:]), const(i8[:]), i8, i8, u1[:]")
def write(numbers, variables, ptr, heads, head_ptr, between, end, out):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the posteriors of some variables; the number of bytes written."""
    # numbers: Of the variables, one after another: `decimals`, or (n, 1) bits of doubles for MessagePack
    # ptr: (V+1,) first cell of every variable
    # heads, head_ptr: (bytes,), (cells+1,) what precedes each cell
    # between: What separates variables; 0: nothing
    # end: What follows the last cell of a variable; 0: nothing
    at = i = 0
    binary = numbers.shape[1] == 1
    for j in range(len(variables)):
        if j and between:
            out[at] = between
            at += 1
        for cell in range(ptr[variables[j]], ptr[variables[j] + 1]):
            at = _copy(heads, head_ptr[cell], head_ptr[cell + 1], out, at)
            if binary:
                out[at] = 0xCB
                for b in range(8):  # the highest first
                    out[np.uint64(at + 1 + b)] = (numbers[i, 0] >> (56 - 8 * b)) & 255
                at += 9
            else:
                at = _write_decimal(numbers[i, 0], numbers[i, 1], out, at)
            i += 1
        if end:
            out[at] = end
            at += 1
    return at
