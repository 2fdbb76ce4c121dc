"""Counters and flags in memory, by which threads of one compiled program communicate, for Numba."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ....util.jit import Builder, Operands, Value, intrinsic

__all__ = ["add", "read", "write"]

_I64 = ir.IntType(64)


def _pointer(context: Any, builder: Builder, kind: types.Array, array: Value, index: Value) -> Value:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


@intrinsic
def add(typing: Any, array: types.Array, index: types.Type, value: types.Type) -> Any:
    """Add to ``array[index]`` (int64) in one step; returns what was there before."""

    def generate(context: Any, builder: Builder, signature: Any, args: Operands) -> Value:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", pointer, args[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic
def read(typing: Any, array: types.Array, index: types.Type) -> Any:
    """``array[index]`` (int64), with everything that its writer wrote before."""

    def generate(context: Any, builder: Builder, signature: Any, args: Operands) -> Value:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(array, types.int64), generate


@intrinsic
def write(typing: Any, array: types.Array, index: types.Type, value: types.Type) -> Any:
    """Set ``array[index]`` (int64) behind everything that was written before."""

    def generate(context: Any, builder: Builder, signature: Any, args: Operands) -> Value:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store_atomic(args[2], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate
