"""Numba intrinsics on the bits of 64-bit words and doubles."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _numba_intrinsic

__all__ = ["as_bits", "as_float", "popcount"]


def _intrinsic(function: Any) -> Any:
    """`numba.extending.intrinsic`, typed for callers in compiled code (without the typing context)."""
    return _numba_intrinsic(function)


@_intrinsic
def popcount(typing: Any, x: Any) -> Any:
    """Number of bits that are set in a uint64, as int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


@_intrinsic
def as_float(typing: Any, bits: Any) -> Any:
    """The double of 64 bits, an int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@_intrinsic
def as_bits(typing: Any, x: Any) -> Any:
    """The 64 bits of a double, as int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate
