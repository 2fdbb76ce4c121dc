"""Numba intrinsics for 16 lanes: depths (int16), numbers (float64) and masks, for a source in each lane.

Memory is given by its address and the number of a row of 16 lanes. LLVM maps the depths of a row to one AVX2 register,
and the numbers to four. A mask is an int16 in each lane, 0 or -1.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel.manager import DataModelManager
from numba.extending import models, register_model

from ..backends.cpu.loops.vector import declared, spread
from ..util.jit import Builder, Operands, Value, operation
from .records import LANES

__all__ = [
    "add", "any_above", "any_lane", "both", "divide", "drop", "equal", "everywhere", "keep", "larger",
    "load_depths", "load_numbers", "mix_depths", "multiply", "only_lane", "splat", "store_depths",
    "store_numbers", "total", "zeros",
]  # fmt: skip

_F64, _I64, _I32, _I16 = ir.DoubleType(), ir.IntType(64), ir.IntType(32), ir.IntType(16)
_DEPTHS, _NUMBERS = ir.VectorType(_I16, LANES), ir.VectorType(_F64, LANES)
_BITS, _QUADS = ir.VectorType(_I64, LANES), ir.VectorType(_I64, LANES // 4)


class _Depths(types.Type):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__(name="Int16x16")


class _Numbers(types.Type):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__(name="Float64x16")


@register_model(_Depths)
class _DepthsModel(models.PrimitiveModel):  # type: ignore[misc,unused-ignore]
    def __init__(self, manager: DataModelManager, front: types.Type) -> None:
        super().__init__(manager, front, _DEPTHS)  # type: ignore[no-untyped-call,unused-ignore]


@register_model(_Numbers)
class _NumbersModel(models.PrimitiveModel):  # type: ignore[misc,unused-ignore]
    def __init__(self, manager: DataModelManager, front: types.Type) -> None:
        super().__init__(manager, front, _NUMBERS)  # type: ignore[no-untyped-call,unused-ignore]


_depths: Any = _Depths()  # type: ignore[no-untyped-call,unused-ignore]
_numbers: Any = _Numbers()  # type: ignore[no-untyped-call,unused-ignore]
_int, _float = types.int64, types.float64


def _row(builder: Builder, base: Value, row: Value, kind: ir.Type) -> Value:
    """Pointer to a row of lanes."""
    return builder.gep(builder.inttoptr(base, kind.as_pointer()), [row])


@operation(_depths, _int, _int)
def load_depths(builder: Builder, args: Operands) -> Value:
    """The depths of a row."""
    return builder.load(_row(builder, args[0], args[1], _DEPTHS), align=32)


@operation(_numbers, _int, _int)
def load_numbers(builder: Builder, args: Operands) -> Value:
    """The numbers of a row."""
    return builder.load(_row(builder, args[0], args[1], _NUMBERS), align=64)


@operation(types.void, _int, _int, _numbers)
def store_numbers(builder: Builder, args: Operands) -> None:
    """Write the numbers of a row."""
    builder.store(args[2], _row(builder, args[0], args[1], _NUMBERS), align=64)


@operation(types.void, _int, _int, _depths)
def store_depths(builder: Builder, args: Operands) -> None:
    """Write the depths of a row."""
    builder.store(args[2], _row(builder, args[0], args[1], _DEPTHS), align=32)


@operation(_depths, _int)
def everywhere(builder: Builder, args: Operands) -> Value:
    """A level in every lane."""
    return spread(builder, _DEPTHS, builder.trunc(args[0], _I16))


@operation(_depths, _int)
def only_lane(builder: Builder, args: Operands) -> Value:
    """Mask of one lane."""
    index = builder.trunc(args[0], _I32)
    return builder.insert_element(ir.Constant(_DEPTHS, [0] * LANES), ir.Constant(_I16, -1), index)


@operation(_depths, _depths, _depths, _depths)
def mix_depths(builder: Builder, args: Operands) -> Value:
    """The first depths in the lanes of a mask, the second ones elsewhere."""
    mask, yes, no = args
    return builder.or_(builder.and_(mask, yes), builder.and_(builder.not_(mask), no))


@operation(_depths, _depths, _depths)
def equal(builder: Builder, args: Operands) -> Value:
    """Mask of the lanes where depths are equal."""
    return builder.sext(builder.icmp_signed("==", *args), _DEPTHS)


@operation(_depths, _depths, _depths)
def larger(builder: Builder, args: Operands) -> Value:
    """Mask of the lanes where the first depth is larger."""
    return builder.sext(builder.icmp_signed(">", *args), _DEPTHS)


@operation(_depths, _depths, _depths)
def both(builder: Builder, args: Operands) -> Value:
    """Intersection of two masks."""
    return builder.and_(*args)


@operation(types.boolean, _depths)
def any_lane(builder: Builder, args: Operands) -> Value:
    """Whether a mask has any lane."""
    quads = builder.bitcast(args[0], _QUADS)
    name = f"llvm.vector.reduce.or.v{LANES // 4}i64"
    joined = builder.call(declared(builder, name, _I64, [_QUADS]), [quads])
    return builder.icmp_signed("!=", joined, ir.Constant(_I64, 0))


def _wide(builder: Builder, mask: Value) -> Value:
    """A mask of 64 bits a lane. LLVM would extend it from one bit a lane, in twice as many instructions."""
    places = [lane for lane in range(LANES) for _ in range(4)]
    order = ir.Constant(ir.VectorType(_I32, len(places)), places)
    return builder.bitcast(builder.shuffle_vector(mask, ir.Constant(_DEPTHS, ir.Undefined), order), _BITS)


@operation(_numbers, _depths, _numbers)
def keep(builder: Builder, args: Operands) -> Value:
    """Numbers of the lanes of a mask, zeros elsewhere."""
    bits = builder.and_(_wide(builder, args[0]), builder.bitcast(args[1], _BITS))
    return builder.bitcast(bits, _NUMBERS)


@operation(_numbers, _depths, _numbers)
def drop(builder: Builder, args: Operands) -> Value:
    """Zeros in the lanes of a mask, numbers elsewhere."""
    bits = builder.and_(builder.not_(_wide(builder, args[0])), builder.bitcast(args[1], _BITS))
    return builder.bitcast(bits, _NUMBERS)


@operation(_numbers)
def zeros(builder: Builder, args: Operands) -> Value:
    """A zero in every lane."""
    return ir.Constant(_NUMBERS, [0.0] * LANES)


@operation(_numbers, _float)
def splat(builder: Builder, args: Operands) -> Value:
    """The same number in every lane."""
    return spread(builder, _NUMBERS, args[0])


@operation(_numbers, _numbers, _numbers)
def add(builder: Builder, args: Operands) -> Value:
    """Sums, lane by lane."""
    return builder.fadd(*args)


@operation(_numbers, _numbers, _numbers)
def multiply(builder: Builder, args: Operands) -> Value:
    """Products, lane by lane."""
    return builder.fmul(*args)


@operation(_numbers, _numbers, _numbers)
def divide(builder: Builder, args: Operands) -> Value:
    """Quotients, lane by lane."""
    return builder.fdiv(*args)


@operation(types.boolean, _numbers, _float)
def any_above(builder: Builder, args: Operands) -> Value:
    """Whether any lane exceeds a number."""
    flags = builder.fcmp_ordered(">", args[0], spread(builder, _NUMBERS, args[1]))
    return builder.icmp_unsigned("!=", builder.bitcast(flags, _I16), ir.Constant(_I16, 0))


@operation(_float, _numbers)
def total(builder: Builder, args: Operands) -> Value:
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
