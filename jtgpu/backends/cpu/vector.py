"""Eight doubles in one register, for Numba: loads and stores of the first n of them, multiply-add, largest, sum.

Memory is named by its address, an integer, and an index: an array as an argument of a compiled function is seven
arguments, and a contraction of a few numbers should not wait for them. LLVM turns the vectors into what the processor
has: one AVX-512 register, two of AVX2, four of NEON or SSE2. A load of fewer than eight fills up with zeros and touches
no cell beyond; a store writes no cell beyond. So rows of any length are walked without a scalar remainder, and no
compiler has to find out what may be done side by side.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _numba_intrinsic
from numba.extending import models, register_model

__all__ = [
    "LANES", "fma", "fma1", "intrinsic", "largest", "load", "maximum", "note", "number", "peek", "poke", "splat",
    "store", "total", "zero",
]  # fmt: skip

LANES = 8

_F64, _I64, _I1 = ir.DoubleType(), ir.IntType(64), ir.IntType(1)
_I32 = ir.IntType(32)
_VECTOR, _MASK = ir.VectorType(_F64, LANES), ir.VectorType(_I1, LANES)


def intrinsic(function: Any) -> Any:
    """`numba.extending.intrinsic`, to type checkers a function that takes what its compiled callers give."""
    return _numba_intrinsic(function)


class _Vector(types.Type):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__(name="Float64x8")


_vector: Any = _Vector()  # type: ignore[no-untyped-call,unused-ignore]


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc,unused-ignore]
    def __init__(self, manager: Any, front: Any) -> None:
        super().__init__(manager, front, _VECTOR)  # type: ignore[no-untyped-call,unused-ignore]


def _address(builder: Any, base: Any, index: Any, kind: Any) -> Any:
    """``&base[index]`` for an address as a number and cells of eight bytes, as a pointer."""
    cell = builder.gep(builder.inttoptr(base, _F64.as_pointer()), [index])
    return builder.bitcast(cell, kind.as_pointer())


def _mask(builder: Any, n: Any) -> Any:
    """Lanes 0..n-1."""
    numbers = ir.VectorType(_I64, LANES)
    return builder.icmp_signed("<", ir.Constant(numbers, list(range(LANES))), _spread(builder, numbers, n))


def _spread(builder: Any, kind: Any, value: Any) -> Any:
    """One value in every lane."""
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def _declared(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    module = builder.module
    if name in module.globals:
        return module.globals[name]
    return ir.Function(module, ir.FunctionType(result, arguments), name)


@intrinsic
def load(typing: Any, base: Any, index: Any, n: Any) -> Any:
    """The first n of the eight cells from ``base[index]`` on; zeros behind them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _address(builder, args[0], args[1], _VECTOR)
        function = _declared(
            builder,
            f"llvm.masked.load.v{LANES}f64.p0",
            _VECTOR,
            [pointer.type, _I32, _MASK, _VECTOR],
        )
        nothing = ir.Constant(_VECTOR, [0.0] * LANES)
        return builder.call(function, [pointer, ir.Constant(_I32, 8), _mask(builder, args[2]), nothing])

    return _vector(types.int64, types.int64, types.int64), generate


@intrinsic
def store(typing: Any, base: Any, index: Any, n: Any, value: Any) -> Any:
    """Write the first n lanes to ``base[index]`` and on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _address(builder, args[0], args[1], _VECTOR)
        function = _declared(
            builder,
            f"llvm.masked.store.v{LANES}f64.p0",
            ir.VoidType(),
            [_VECTOR, pointer.type, _I32, _MASK],
        )
        builder.call(function, [args[3], pointer, ir.Constant(_I32, 8), _mask(builder, args[2])])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, _vector), generate


@intrinsic
def peek(typing: Any, base: Any, index: Any) -> Any:
    """``base[index]``, a float64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(builder, args[0], args[1], _F64))

    return types.float64(types.int64, types.int64), generate


@intrinsic
def poke(typing: Any, base: Any, index: Any, value: Any) -> Any:
    """Set ``base[index]``, a float64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _address(builder, args[0], args[1], _F64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64), generate


@intrinsic
def number(typing: Any, base: Any, index: Any) -> Any:
    """``base[index]``, an int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(builder, args[0], args[1], _I64))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def note(typing: Any, base: Any, index: Any, value: Any) -> Any:
    """Set ``base[index]``, an int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _address(builder, args[0], args[1], _I64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def splat(typing: Any, x: Any) -> Any:
    """The same number in every lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _spread(builder, _VECTOR, args[0])

    return _vector(types.float64), generate


@intrinsic
def zero(typing: Any) -> Any:
    """Zeros."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(_VECTOR, [0.0] * LANES)

    return _vector(), generate


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = _declared(builder, f"llvm.fmuladd.v{LANES}f64", _VECTOR, [_VECTOR] * 3)
        return builder.call(function, args)

    return _vector(_vector, _vector, _vector), generate


@intrinsic
def fma1(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """`fma` of plain numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(_declared(builder, "llvm.fmuladd.f64", _F64, [_F64] * 3), args)

    return types.float64(types.float64, types.float64, types.float64), generate


@intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """The larger of each lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])

    return _vector(_vector, _vector), generate


def _reduction(name: str, start: tuple[float, ...]) -> Any:
    def typed(typing: Any, a: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = [_F64] * len(start) + [_VECTOR]
            function = _declared(builder, f"llvm.vector.reduce.{name}.v{LANES}f64", _F64, kinds)
            given = [ir.Constant(_F64, x) for x in start]
            return builder.call(function, [*given, args[0]], fastmath=("reassoc", "nnan"))

        return types.float64(_vector), generate

    return intrinsic(typed)


total = _reduction("fadd", (0.0,))  # sum of the lanes
largest = _reduction("fmax", ())
