"""Numba intrinsics for vectors of eight doubles: masked loads and stores, multiply-add, reductions.

Memory is given by its address, an int64, and an index: Numba passes an array as seven arguments, which costs more than
a small contraction. LLVM maps a vector to what the processor has: one AVX-512 register, two of AVX2, four of NEON or
SSE2. A load of fewer than eight cells fills the other lanes with zeros and reads no cell beyond; a store writes no cell
beyond. Rows of any length need no scalar remainder, and no auto-vectorisation.

The kernels are generic in how terms are combined: `by_sum` and `by_maximum` are tags without data whose *type* selects
the instructions of `accumulate`, `combine` and `reduce_lanes`, so one source compiles to two specialisations.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.manager import DataModelManager
from numba.extending import models, register_model

from ....util.jit import Build, Builder, Operands, Value, intrinsic, operation

__all__ = [
    "LANES", "accumulate", "add", "by_maximum", "by_sum", "call", "combine", "copy_transposed", "fma", "fma1",
    "gather", "is_maximum", "largest", "load", "lost_digits", "maximum", "peek", "peek_int",
    "plain_arithmetic", "poke", "poke_int", "reduce_lanes", "restore_arithmetic", "scatter", "splat", "store",
    "total", "zero",
]  # fmt: skip

LANES = 8

_F64, _I64, _I1 = ir.DoubleType(), ir.IntType(64), ir.IntType(1)
_I32 = ir.IntType(32)
_VECTOR, _MASK = ir.VectorType(_F64, LANES), ir.VectorType(_I1, LANES)
_int, _float = types.int64, types.float64


class _Vector(types.Type):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__(name="Float64x8")


_vector: Any = _Vector()  # type: ignore[no-untyped-call,unused-ignore]


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc,unused-ignore]
    def __init__(self, manager: DataModelManager, front: types.Type) -> None:
        super().__init__(manager, front, _VECTOR)  # type: ignore[no-untyped-call,unused-ignore]


def _address(builder: Builder, base: Value, index: Value, kind: ir.Type) -> Value:
    """``&base[index]`` for an address as a number and cells of eight bytes, as a pointer."""
    cell = builder.gep(builder.inttoptr(base, _F64.as_pointer()), [index])
    return builder.bitcast(cell, kind.as_pointer())


def _mask(builder: Builder, n: Value) -> Value:
    """Lanes 0..n-1."""
    numbers = ir.VectorType(_I64, LANES)
    return builder.icmp_signed("<", ir.Constant(numbers, list(range(LANES))), spread(builder, numbers, n))


def spread(builder: Builder, kind: ir.VectorType, value: Value) -> Value:
    """One value in every lane."""
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count))


def declared(builder: Builder, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    """A function of LLVM, declared once in a module."""
    module = builder.module
    if name in module.globals:
        return module.globals[name]
    return ir.Function(module, ir.FunctionType(result, arguments), name)


@operation(_vector, _int, _int, _int)
def load(builder: Builder, args: Operands) -> Value:
    """Cells ``base[index]`` to ``base[index + n - 1]``, at most eight; zeros in the other lanes."""
    base, index, n = args
    pointer = _address(builder, base, index, _VECTOR)
    function = declared(
        builder, f"llvm.masked.load.v{LANES}f64.p0", _VECTOR, [pointer.type, _I32, _MASK, _VECTOR]
    )
    nothing = ir.Constant(_VECTOR, [0.0] * LANES)
    return builder.call(function, [pointer, ir.Constant(_I32, 8), _mask(builder, n), nothing])


@operation(types.void, _int, _int, _int, _vector)
def store(builder: Builder, args: Operands) -> None:
    """Write the first n lanes to ``base[index]`` and the cells that follow."""
    base, index, n, value = args
    pointer = _address(builder, base, index, _VECTOR)
    function = declared(
        builder, f"llvm.masked.store.v{LANES}f64.p0", ir.VoidType(), [_VECTOR, pointer.type, _I32, _MASK]
    )
    builder.call(function, [value, pointer, ir.Constant(_I32, 8), _mask(builder, n)])


@operation(_vector, _int, _int, _int)
def gather(builder: Builder, args: Operands) -> Value:
    """``base[index + offsets[i]]`` in lane i; `offsets` is the address of eight int64."""
    base, index, offsets = args
    made = ir.Constant(_VECTOR, ir.Undefined)
    for i in range(LANES):
        offset = builder.load(_address(builder, offsets, ir.Constant(_I64, i), _I64))
        lane = builder.load(_address(builder, base, builder.add(index, offset), _F64))
        made = builder.insert_element(made, lane, ir.Constant(_I32, i))
    return made


@operation(types.void, _int, _int, _int, _vector)
def scatter(builder: Builder, args: Operands) -> None:
    """Write lane i to ``base[index + offsets[i]]``; `offsets` is the address of eight int64."""
    base, index, offsets, value = args
    for i in range(LANES):
        offset = builder.load(_address(builder, offsets, ir.Constant(_I64, i), _I64))
        lane = builder.extract_element(value, ir.Constant(_I32, i))
        builder.store(lane, _address(builder, base, builder.add(index, offset), _F64))


@operation(types.void, *[_int] * 5)
def copy_transposed(builder: Builder, args: Operands) -> None:
    """Copy 4 x 4 cells: ``to[step * t + r] = base[index + offsets[r] + t]``; `offsets` and `to` are addresses."""
    four = ir.VectorType(_F64, 4)
    base, index, offsets, to, step = args
    rows = []
    for r in range(4):
        cell = builder.add(index, builder.load(_address(builder, offsets, ir.Constant(_I64, r), _I64)))
        rows.append(builder.load(_address(builder, base, cell, four), align=8))

    def mixed(x: Value, y: Value, lanes: Sequence[int]) -> Value:
        return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_I32, 4), lanes))

    for first, lanes in ((0, [0, 4, 2, 6]), (1, [1, 5, 3, 7])):
        low, high = mixed(rows[0], rows[1], lanes), mixed(rows[2], rows[3], lanes)
        for t, halves in ((first, [0, 1, 4, 5]), (first + 2, [2, 3, 6, 7])):
            cell = builder.mul(step, ir.Constant(_I64, t))
            builder.store(mixed(low, high, halves), _address(builder, to, cell, four), align=8)


def _reader(kind: ir.Type) -> Build:
    def peek(builder: Builder, args: Operands) -> Value:
        return builder.load(_address(builder, args[0], args[1], kind))

    return peek


def _writer(kind: ir.Type) -> Build:
    def poke(builder: Builder, args: Operands) -> None:
        builder.store(args[2], _address(builder, args[0], args[1], kind))

    return poke


# ``base[index]``
peek, peek_int = operation(_float, _int, _int)(_reader(_F64)), operation(_int, _int, _int)(_reader(_I64))
# set ``base[index]``
poke = operation(types.void, _int, _int, _float)(_writer(_F64))
poke_int = operation(types.void, _int, _int, _int)(_writer(_I64))


class _Operation(types.Type):  # type: ignore[misc,unused-ignore]
    """Type of a tag that says how terms are combined."""

    def __init__(self, maximal: bool) -> None:
        super().__init__(name=f"Operation({'maximum' if maximal else 'sum'})")
        self.maximal = maximal


@register_model(_Operation)
class _OperationModel(models.OpaqueModel):  # type: ignore[misc,unused-ignore]
    pass


# the tags for sums and for maxima
by_sum, by_maximum = (
    operation(_Operation(maximal))(lambda builder, args: None)  # type: ignore[no-untyped-call,unused-ignore]
    for maximal in (False, True)
)


# Intrinsics whose code depends on the type of a tag: Numba gives them the types of their arguments.


@intrinsic
def is_maximum(typing: Any, op: Any) -> Any:
    """Whether a tag is `by_maximum`'s: a constant, so that LLVM drops the branch that is not taken."""
    return types.boolean(op), lambda context, builder, signature, args: ir.Constant(_I1, int(op.maximal))


@intrinsic
def accumulate(typing: Any, op: Any, a: Any, b: Any, c: Any) -> Any:
    """c + a * b, rounded once where the processor can, or max(c, a * b), lane by lane."""

    def generate(context: Any, builder: Builder, signature: Any, args: Operands) -> Value:
        _, x, y, so_far = args
        if op.maximal:
            return _larger(builder, builder.fmul(x, y), so_far)
        return _fma(builder, [x, y, so_far])

    return _vector(op, _vector, _vector, _vector), generate


@intrinsic
def combine(typing: Any, op: Any, a: Any, b: Any) -> Any:
    """a + b or max(a, b) of two numbers >= 0."""

    def generate(context: Any, builder: Builder, signature: Any, args: Operands) -> Value:
        _, x, y = args
        return _larger(builder, y, x) if op.maximal else builder.fadd(x, y)

    return _float(op, _float, _float), generate


@intrinsic
def reduce_lanes(typing: Any, op: Any, a: Any) -> Any:
    """The sum or the maximum of a vector's lanes."""

    def generate(context: Any, builder: Builder, signature: Any, args: Operands) -> Value:
        return _reduced(builder, "fmax" if op.maximal else "fadd", args[1])

    return _float(op, _vector), generate


@operation(_float, *[_int] * 6)
def call(builder: Builder, args: Operands) -> Value:
    """Call the function at an address with five int64; returns a float64. See `util.jit.address_of`."""
    kind = ir.FunctionType(_F64, [_I64] * 5)
    return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])


@operation(_vector, _float)
def splat(builder: Builder, args: Operands) -> Value:
    """The same number in every lane."""
    return spread(builder, _VECTOR, args[0])


@operation(_vector)
def zero(builder: Builder, args: Operands) -> Value:
    """Zeros."""
    return ir.Constant(_VECTOR, [0.0] * LANES)


def _fma(builder: Builder, args: Operands) -> Value:
    return builder.call(declared(builder, f"llvm.fmuladd.v{LANES}f64", _VECTOR, [_VECTOR] * 3), args)


@operation(_vector, _vector, _vector, _vector)
def fma(builder: Builder, args: Operands) -> Value:
    """a * b + c, rounded once where the processor can."""
    return _fma(builder, args)


@operation(_float, _float, _float, _float)
def fma1(builder: Builder, args: Operands) -> Value:
    """`fma` of plain numbers."""
    return builder.call(declared(builder, "llvm.fmuladd.f64", _F64, [_F64] * 3), args)


@operation(_vector, _vector, _vector)
def add(builder: Builder, args: Operands) -> Value:
    """The sum of each lane."""
    return builder.fadd(*args)


def _larger(builder: Builder, x: Value, y: Value) -> Value:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


@operation(_vector, _vector, _vector)
def maximum(builder: Builder, args: Operands) -> Value:
    """The larger of each lane."""
    return _larger(builder, *args)


def _reduced(builder: Builder, name: str, vector: Value) -> Value:
    start = [ir.Constant(_F64, 0.0)] if name == "fadd" else []
    kinds = [_F64] * len(start) + [_VECTOR]
    function = declared(builder, f"llvm.vector.reduce.{name}.v{LANES}f64", _F64, kinds)
    return builder.call(function, [*start, vector], fastmath=("reassoc", "nnan"))


@operation(_float, _vector)
def total(builder: Builder, args: Operands) -> Value:
    """Sum of the lanes."""
    return _reduced(builder, "fadd", args[0])


@operation(_float, _vector)
def largest(builder: Builder, args: Operands) -> Value:
    """Maximum of the lanes."""
    return _reduced(builder, "fmax", args[0])


# The processor notes underflow, overflow and invalid operations until somebody clears the note. If numbers >= 0 are
# only added and multiplied and none was noted, every operation has a relative error of at most 2**-53: no digit was
# lost, however small the numbers became. The note belongs to the thread; NumPy's functions clear it, so an entry of
# compiled code reads what it did itself:
#
#     word = plain_arithmetic()   # clears old notes; subnormal numbers count as what they are
#     ...                         # contractions, which store to memory: LLVM keeps stores on their side of both calls
#     lost = lost_digits()
#     restore_arithmetic(word)    # the caller's modes

# underflow, overflow, invalid; all notes; flush to zero and subnormal inputs as zero
_X86, _ARM = {"lost": 0x19, "old": 0x3F, "modes": 0x8040}, {"lost": 0x0D, "modes": 1 << 24}


def _is_arm() -> bool:
    return platform.machine().lower() in ("arm64", "aarch64")


def _slot(builder: Builder) -> Value:
    """Room for a word on the stack; not `alloca`, which in a loop would take more each time."""
    alloca: Any = cgutils.alloca_once
    return alloca(builder, _I32)


def _read_word(builder: Builder, register: str) -> Value:
    """The status word (``fpsr``) or the modes (``fpcr``) of the processor, int64; x86 has both in one."""
    if _is_arm():
        kind = ir.FunctionType(_I64, [])
        return builder.asm(kind, f"mrs $0, {register}", "=r", [], True)
    slot = _slot(builder)
    pointer = builder.bitcast(slot, ir.IntType(8).as_pointer())
    builder.call(declared(builder, "llvm.x86.sse.stmxcsr", ir.VoidType(), [pointer.type]), [pointer])
    return builder.zext(builder.load(slot), _I64)


def _write_word(builder: Builder, register: str, word: Value) -> None:
    if _is_arm():
        builder.asm(ir.FunctionType(ir.VoidType(), [_I64]), f"msr {register}, $0", "r", [word], True)
        return
    slot = _slot(builder)
    builder.store(builder.trunc(word, _I32), slot)
    pointer = builder.bitcast(slot, ir.IntType(8).as_pointer())
    builder.call(declared(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), [pointer.type]), [pointer])


@operation(_int)
def plain_arithmetic(builder: Builder, args: Operands) -> Value:
    """Clear what the processor noted, and let it compute with subnormal numbers; returns the modes before (int64)."""
    word = _read_word(builder, "fpcr")
    if _is_arm():
        _write_word(builder, "fpsr", ir.Constant(_I64, 0))
        _write_word(builder, "fpcr", builder.and_(word, ir.Constant(_I64, ~_ARM["modes"])))
        return word
    # writing takes as long as a small contraction: not where nothing is to be changed
    wrong = builder.and_(word, ir.Constant(_I64, _X86["modes"] | _X86["lost"]))
    with builder.if_then(builder.icmp_unsigned("!=", wrong, ir.Constant(_I64, 0)), likely=False):
        _write_word(builder, "", builder.and_(word, ir.Constant(_I64, ~(_X86["modes"] | _X86["old"]))))
    return word


@operation(types.boolean)
def lost_digits(builder: Builder, args: Operands) -> Value:
    """Whether a number underflowed, overflowed or was invalid since `plain_arithmetic`, so that digits may be lost."""
    mask = _ARM["lost"] if _is_arm() else _X86["lost"]
    noted = builder.and_(_read_word(builder, "fpsr"), ir.Constant(_I64, mask))
    return builder.icmp_unsigned("!=", noted, ir.Constant(_I64, 0))


@operation(types.void, _int)
def restore_arithmetic(builder: Builder, args: Operands) -> None:
    """Set the modes that were before `plain_arithmetic`, whose result `word` is."""
    modes = _ARM["modes"] if _is_arm() else _X86["modes"]
    changed = builder.and_(args[0], ir.Constant(_I64, modes))
    with builder.if_then(builder.icmp_unsigned("!=", changed, ir.Constant(_I64, 0)), likely=False):
        _write_word(builder, "fpcr", args[0])
