"""Counters and flags in memory, by which threads of one compiled program communicate, for Numba."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .vector import intrinsic

__all__ = ["add", "read", "write"]

_I64 = ir.IntType(64)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


@intrinsic
def add(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Add to ``array[index]`` (int64) in one step; returns what was there before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", pointer, args[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic
def read(typing: Any, array: Any, index: Any) -> Any:
    """``array[index]`` (int64), with everything that its writer wrote before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(array, types.int64), generate


@intrinsic
def write(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set ``array[index]`` (int64) behind everything that was written before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store_atomic(args[2], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate
