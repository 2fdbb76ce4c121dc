"""Logarithm and exponential for compiled loops: see `jtgpu.util.elementary`."""

from __future__ import annotations

import math

from llvmlite import ir
from numba import types

from ... import elementary as series
from ...jit import Builder, Operands, Value, compiled, operation
from .. import LN2_HIGH, LN2_LOW, LOG2E

__all__ = [
    "as_bits",
    "as_float",
    "exp",
    "exps",
    "high_product",
    "log",
    "log_sum",
    "logs",
    "popcount",
]

# Numba intrinsics on the bits of 64-bit words and doubles.

@operation(types.int64, types.uint64)
def popcount(builder: Builder, args: Operands) -> Value:
    """Number of bits that are set in a uint64, as int64."""
    return builder.ctpop(args[0])


@operation(types.float64, types.int64)
def as_float(builder: Builder, args: Operands) -> Value:
    """The double of 64 bits, an int64."""
    return builder.bitcast(args[0], ir.DoubleType())


@operation(types.int64, types.float64)
def as_bits(builder: Builder, args: Operands) -> Value:
    """The 64 bits of a double, as int64."""
    return builder.bitcast(args[0], ir.IntType(64))


@operation(types.uint64, types.uint64, types.uint64)
def high_product(builder: Builder, args: Operands) -> Value:
    """The upper 64 bits of the product of two uint64."""
    wide = ir.IntType(128)
    product = builder.mul(*(builder.zext(x, wide) for x in args))
    return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))


_log_of_parts = compiled(allocates=False, inline="always")(series.log_of_parts)
_exp_of_rest = compiled(allocates=False, inline="always")(series.exp_of_rest)
_SQRT_HALF = 0x3FE6A09E667F3BCD  # its bits
_SMALLEST, _LARGEST = -746.0, 709.782712893384


@compiled(allocates=False)
def log(x):  # type: ignore[no-untyped-def]
    """Natural logarithm; -inf of 0, NaN of negative numbers."""
    if not 0.0 < x < math.inf:
        return -math.inf if x == 0.0 else x if x > 0.0 else math.nan
    bits, shift = as_bits(x), 0
    if bits < 1 << 52:  # subnormal
        bits, shift = as_bits(x * 18014398509481984.0), 54
    e = (bits - _SQRT_HALF) >> 52
    return _log_of_parts(as_float(bits - (e << 52)), e - shift)


@compiled(allocates=False)
def exp(x):  # type: ignore[no-untyped-def]
    """The exponential; inf above 709.78."""
    if not _SMALLEST < x < _LARGEST:
        return 0.0 if x < 0.0 else x if x != x else math.inf
    k = math.floor(x * LOG2E + 0.5)
    power = _exp_of_rest((x - k * LN2_HIGH) - k * LN2_LOW)
    if k < -1021:
        return power * as_float((k + 1077) << 52) * 5.551115123125783e-17  # 2**-54: the only rounding
    return power * 2.0 * as_float((k + 1022) << 52)


@compiled(allocates=False)
def log_sum(x, y):  # type: ignore[no-untyped-def]
    """ln(exp(x) + exp(y)) without overflow."""
    high, low = max(x, y), min(x, y)
    return high + log(1.0 + exp(low - high)) if low > -math.inf else high


@compiled("const(f8[:]), f8[:]", allocates=False)
def logs(x, out):  # type: ignore[no-untyped-def]
    """Natural logarithms of an array."""
    for i in range(len(x)):
        out[i] = log(x[i])


@compiled("const(f8[:]), f8[:]", allocates=False)
def exps(x, out):  # type: ignore[no-untyped-def]
    """Exponentials of an array."""
    for i in range(len(x)):
        out[i] = exp(x[i])
