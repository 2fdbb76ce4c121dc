"""Numba intrinsics for 16 lanes: depths (int16), numbers (float64) and masks, for a source in each lane.

Memory is given by its address and the number of a row of 16 lanes. LLVM maps the depths of a row to one AVX2 register,
and the numbers to four. A mask is an int16 in each lane, 0 or -1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import models, register_model

from ..backends.cpu.loops.vector import intrinsic
from .records import LANES

__all__ = [
    "add", "any_above", "any_lane", "both", "divide", "drop", "equal", "everywhere", "keep", "larger",
    "load_depths", "load_numbers", "mix_depths", "multiply", "only_lane", "splat", "store_depths",
    "store_numbers", "total", "zeros",
]  # fmt: skip

_F64, _I64, _I32, _I16 = ir.DoubleType(), ir.IntType(64), ir.IntType(32), ir.IntType(16)
_DEPTHS, _NUMBERS = ir.VectorType(_I16, LANES), ir.VectorType(_F64, LANES)
_BITS, _QUADS = ir.VectorType(_I64, LANES), ir.VectorType(_I64, LANES // 4)

Build = Callable[[Any, Any], Any]


class _Depths(types.Type):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__(name="Int16x16")


class _Numbers(types.Type):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__(name="Float64x16")


@register_model(_Depths)
class _DepthsModel(models.PrimitiveModel):  # type: ignore[misc,unused-ignore]
    def __init__(self, manager: Any, front: Any) -> None:
        super().__init__(manager, front, _DEPTHS)  # type: ignore[no-untyped-call,unused-ignore]


@register_model(_Numbers)
class _NumbersModel(models.PrimitiveModel):  # type: ignore[misc,unused-ignore]
    def __init__(self, manager: Any, front: Any) -> None:
        super().__init__(manager, front, _NUMBERS)  # type: ignore[no-untyped-call,unused-ignore]


_depths: Any = _Depths()  # type: ignore[no-untyped-call,unused-ignore]
_numbers: Any = _Numbers()  # type: ignore[no-untyped-call,unused-ignore]
_int, _float = types.int64, types.float64


def _operation(result: Any, *arguments: Any) -> Callable[[Build], Any]:
    """A decorator: an intrinsic of these types from a function of an LLVM builder and the values of the arguments."""

    def decorate(build: Build) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = build(builder, args)
            return context.get_dummy_value() if made is None else made

        pair = result(*arguments), generate
        # Numba inspects the names of the arguments
        typed: Any = (
            lambda typing: pair,
            lambda typing, a: pair,
            lambda typing, a, b: pair,
            lambda typing, a, b, c: pair,
            lambda typing, a, b, c, d: pair,
        )[len(arguments)]
        typed.__name__, typed.__doc__ = build.__name__, build.__doc__
        return intrinsic(typed)

    return decorate


def _row(builder: Any, base: Any, row: Any, kind: Any) -> Any:
    """Pointer to a row of lanes."""
    return builder.gep(builder.inttoptr(base, kind.as_pointer()), [row])


def _spread(builder: Any, kind: Any, value: Any) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


@_operation(_depths, _int, _int)
def load_depths(builder: Any, args: Any) -> Any:
    """The depths of a row."""
    return builder.load(_row(builder, args[0], args[1], _DEPTHS), align=32)


@_operation(_numbers, _int, _int)
def load_numbers(builder: Any, args: Any) -> Any:
    """The numbers of a row."""
    return builder.load(_row(builder, args[0], args[1], _NUMBERS), align=64)


@_operation(types.void, _int, _int, _numbers)
def store_numbers(builder: Any, args: Any) -> Any:
    """Write the numbers of a row."""
    builder.store(args[2], _row(builder, args[0], args[1], _NUMBERS), align=64)


@_operation(types.void, _int, _int, _depths)
def store_depths(builder: Any, args: Any) -> Any:
    """Write the depths of a row."""
    builder.store(args[2], _row(builder, args[0], args[1], _DEPTHS), align=32)


@_operation(_depths, _int)
def everywhere(builder: Any, args: Any) -> Any:
    """A level in every lane."""
    return _spread(builder, _DEPTHS, builder.trunc(args[0], _I16))


@_operation(_depths, _int)
def only_lane(builder: Any, args: Any) -> Any:
    """Mask of one lane."""
    index = builder.trunc(args[0], _I32)
    return builder.insert_element(ir.Constant(_DEPTHS, [0] * LANES), ir.Constant(_I16, -1), index)


@_operation(_depths, _depths, _depths, _depths)
def mix_depths(builder: Any, args: Any) -> Any:
    """The first depths in the lanes of a mask, the second ones elsewhere."""
    mask, yes, no = args
    return builder.or_(builder.and_(mask, yes), builder.and_(builder.not_(mask), no))


@_operation(_depths, _depths, _depths)
def equal(builder: Any, args: Any) -> Any:
    """Mask of the lanes where depths are equal."""
    return builder.sext(builder.icmp_signed("==", *args), _DEPTHS)


@_operation(_depths, _depths, _depths)
def larger(builder: Any, args: Any) -> Any:
    """Mask of the lanes where the first depth is larger."""
    return builder.sext(builder.icmp_signed(">", *args), _DEPTHS)


@_operation(_depths, _depths, _depths)
def both(builder: Any, args: Any) -> Any:
    """Intersection of two masks."""
    return builder.and_(*args)


@_operation(types.boolean, _depths)
def any_lane(builder: Any, args: Any) -> Any:
    """Whether a mask has any lane."""
    quads = builder.bitcast(args[0], _QUADS)
    name = f"llvm.vector.reduce.or.v{LANES // 4}i64"
    function = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(_I64, [_QUADS]), name)
    return builder.icmp_signed("!=", builder.call(function, [quads]), ir.Constant(_I64, 0))


def _wide(builder: Any, mask: Any) -> Any:
    """A mask of 64 bits a lane. LLVM would extend it from one bit a lane, in twice as many instructions."""
    places = [lane for lane in range(LANES) for _ in range(4)]
    order = ir.Constant(ir.VectorType(_I32, len(places)), places)
    return builder.bitcast(builder.shuffle_vector(mask, ir.Constant(_DEPTHS, ir.Undefined), order), _BITS)


@_operation(_numbers, _depths, _numbers)
def keep(builder: Any, args: Any) -> Any:
    """Numbers of the lanes of a mask, zeros elsewhere."""
    bits = builder.and_(_wide(builder, args[0]), builder.bitcast(args[1], _BITS))
    return builder.bitcast(bits, _NUMBERS)


@_operation(_numbers, _depths, _numbers)
def drop(builder: Any, args: Any) -> Any:
    """Zeros in the lanes of a mask, numbers elsewhere."""
    bits = builder.and_(builder.not_(_wide(builder, args[0])), builder.bitcast(args[1], _BITS))
    return builder.bitcast(bits, _NUMBERS)


@_operation(_numbers)
def zeros(builder: Any, args: Any) -> Any:
    """A zero in every lane."""
    return ir.Constant(_NUMBERS, [0.0] * LANES)


@_operation(_numbers, _float)
def splat(builder: Any, args: Any) -> Any:
    """The same number in every lane."""
    return _spread(builder, _NUMBERS, args[0])


@_operation(_numbers, _numbers, _numbers)
def add(builder: Any, args: Any) -> Any:
    """Sums, lane by lane."""
    return builder.fadd(*args)


@_operation(_numbers, _numbers, _numbers)
def multiply(builder: Any, args: Any) -> Any:
    """Products, lane by lane."""
    return builder.fmul(*args)


@_operation(_numbers, _numbers, _numbers)
def divide(builder: Any, args: Any) -> Any:
    """Quotients, lane by lane."""
    return builder.fdiv(*args)


@_operation(types.boolean, _numbers, _float)
def any_above(builder: Any, args: Any) -> Any:
    """Whether any lane exceeds a number."""
    flags = builder.fcmp_ordered(">", args[0], _spread(builder, _NUMBERS, args[1]))
    return builder.icmp_unsigned("!=", builder.bitcast(flags, _I16), ir.Constant(_I16, 0))


@_operation(_float, _numbers)
def total(builder: Any, args: Any) -> Any:
    """Sum of all lanes, halves first: the order is part of the result's bits."""
    value, n = args[0], LANES
    while n > 1:
        n //= 2
        low, high = (ir.Constant(ir.VectorType(_I32, n), [*range(i, i + n)]) for i in (0, n))
        undefined = ir.Constant(value.type, ir.Undefined)
        value = builder.fadd(
            builder.shuffle_vector(value, undefined, low), builder.shuffle_vector(value, undefined, high)
        )
    return builder.extract_element(value, ir.Constant(_I32, 0))
