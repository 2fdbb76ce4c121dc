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
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic
from numba.extending import models, register_model

__all__ = [
    "LANES", "accumulate", "add", "by_maximum", "by_sum", "call", "combine", "copy_transposed", "fma", "fma1",
    "gather", "intrinsic", "is_maximum", "largest", "load", "lost_digits", "maximum", "peek", "peek_int",
    "plain_arithmetic", "poke", "poke_int", "reduce_lanes", "restore_arithmetic", "scatter", "splat", "store",
    "total", "zero",
]  # fmt: skip

LANES = 8

_F64, _I64, _I1 = ir.DoubleType(), ir.IntType(64), ir.IntType(1)
_I32 = ir.IntType(32)
_VECTOR, _MASK = ir.VectorType(_F64, LANES), ir.VectorType(_I1, LANES)


def intrinsic(function: Any) -> Any:
    """`numba.extending.intrinsic`, typed for callers in compiled code (without the typing context)."""
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
    """Cells ``base[index]`` to ``base[index + n - 1]``, at most eight; zeros in the other lanes."""

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
    """Write the first n lanes to ``base[index]`` and the cells that follow."""

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
def gather(typing: Any, base: Any, index: Any, offsets: Any) -> Any:
    """``base[index + offsets[i]]`` in lane i; `offsets` is the address of eight int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = ir.Constant(_VECTOR, ir.Undefined)
        for i in range(LANES):
            offset = builder.load(_address(builder, args[2], ir.Constant(_I64, i), _I64))
            lane = builder.load(_address(builder, args[0], builder.add(args[1], offset), _F64))
            made = builder.insert_element(made, lane, ir.Constant(_I32, i))
        return made

    return _vector(types.int64, types.int64, types.int64), generate


@intrinsic
def scatter(typing: Any, base: Any, index: Any, offsets: Any, value: Any) -> Any:
    """Write lane i to ``base[index + offsets[i]]``; `offsets` is the address of eight int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for i in range(LANES):
            offset = builder.load(_address(builder, args[2], ir.Constant(_I64, i), _I64))
            lane = builder.extract_element(args[3], ir.Constant(_I32, i))
            builder.store(lane, _address(builder, args[0], builder.add(args[1], offset), _F64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, _vector), generate


@intrinsic
def copy_transposed(typing: Any, base: Any, index: Any, offsets: Any, to: Any, step: Any) -> Any:
    """Copy 4 x 4 cells: ``to[step * t + r] = base[index + offsets[r] + t]``; `offsets` and `to` are addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        four = ir.VectorType(_F64, 4)
        base, index, offsets, to, step = args
        rows = []
        for r in range(4):
            cell = builder.add(index, builder.load(_address(builder, offsets, ir.Constant(_I64, r), _I64)))
            rows.append(builder.load(_address(builder, base, cell, four), align=8))

        def mixed(x: Any, y: Any, lanes: list[int]) -> Any:
            return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_I32, 4), lanes))

        for first, lanes in ((0, [0, 4, 2, 6]), (1, [1, 5, 3, 7])):
            low, high = mixed(rows[0], rows[1], lanes), mixed(rows[2], rows[3], lanes)
            for t, halves in ((first, [0, 1, 4, 5]), (first + 2, [2, 3, 6, 7])):
                cell = builder.mul(step, ir.Constant(_I64, t))
                builder.store(mixed(low, high, halves), _address(builder, to, cell, four), align=8)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


def _reader(kind: Any, typed: Any) -> Any:
    def peeked(typing: Any, base: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(_address(builder, args[0], args[1], kind))

        return typed(types.int64, types.int64), generate

    return intrinsic(peeked)


def _writer(kind: Any, typed: Any) -> Any:
    def poked(typing: Any, base: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[2], _address(builder, args[0], args[1], kind))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, typed), generate

    return intrinsic(poked)


peek, peek_int = _reader(_F64, types.float64), _reader(_I64, types.int64)  # ``base[index]``
poke, poke_int = _writer(_F64, types.float64), _writer(_I64, types.int64)  # set ``base[index]``


class _Operation(types.Type):  # type: ignore[misc,unused-ignore]
    """Type of a tag that says how terms are combined."""

    def __init__(self, maximal: bool) -> None:
        super().__init__(name=f"Operation({'maximum' if maximal else 'sum'})")
        self.maximal = maximal


@register_model(_Operation)
class _OperationModel(models.OpaqueModel):  # type: ignore[misc,unused-ignore]
    pass


def _tag(maximal: bool) -> Any:
    def typed(typing: Any) -> Any:
        kind: Any = _Operation(maximal)  # type: ignore[no-untyped-call,unused-ignore]
        return kind(), lambda context, builder, signature, args: context.get_dummy_value()

    return intrinsic(typed)


by_sum = _tag(False)  # the tag for sums
by_maximum = _tag(True)  # the tag for maxima


@intrinsic
def is_maximum(typing: Any, op: Any) -> Any:
    """Whether a tag is `by_maximum`'s: a constant, so that LLVM drops the branch that is not taken."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(_I1, int(op.maximal))

    return types.boolean(op), generate


@intrinsic
def accumulate(typing: Any, op: Any, a: Any, b: Any, c: Any) -> Any:
    """c + a * b, rounded once where the processor can, or max(c, a * b), lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, x, y, so_far = args
        if op.maximal:
            product = builder.fmul(x, y)
            return builder.select(builder.fcmp_ordered(">", product, so_far), product, so_far)
        return builder.call(_declared(builder, f"llvm.fmuladd.v{LANES}f64", _VECTOR, [_VECTOR] * 3), [x, y, so_far])

    return _vector(op, _vector, _vector, _vector), generate


@intrinsic
def combine(typing: Any, op: Any, a: Any, b: Any) -> Any:
    """a + b or max(a, b) of two numbers >= 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, x, y = args
        if op.maximal:
            return builder.select(builder.fcmp_ordered(">", y, x), y, x)
        return builder.fadd(x, y)

    return types.float64(op, types.float64, types.float64), generate


@intrinsic
def reduce_lanes(typing: Any, op: Any, a: Any) -> Any:
    """The sum or the maximum of a vector's lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _reduced(builder, "fmax" if op.maximal else "fadd", args[1])

    return types.float64(op, _vector), generate


@intrinsic
def call(typing: Any, function: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """Call the function at an address with five int64; returns a float64. See `util.jit.address_of`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_F64, [_I64] * 5)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.float64(*[types.int64] * 6), generate


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
def add(typing: Any, a: Any, b: Any) -> Any:
    """The sum of each lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(args[0], args[1])

    return _vector(_vector, _vector), generate


@intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """The larger of each lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])

    return _vector(_vector, _vector), generate


def _reduced(builder: Any, name: str, vector: Any) -> Any:
    start = [ir.Constant(_F64, 0.0)] if name == "fadd" else []
    kinds = [_F64] * len(start) + [_VECTOR]
    function = _declared(builder, f"llvm.vector.reduce.{name}.v{LANES}f64", _F64, kinds)
    return builder.call(function, [*start, vector], fastmath=("reassoc", "nnan"))


def _reduction(name: str) -> Any:
    def typed(typing: Any, a: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _reduced(builder, name, args[0])

        return types.float64(_vector), generate

    return intrinsic(typed)


total = _reduction("fadd")  # sum of the lanes
largest = _reduction("fmax")  # maximum of the lanes


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


def _slot(builder: Any) -> Any:
    """Room for a word on the stack; not `alloca`, which in a loop would take more each time."""
    alloca: Any = cgutils.alloca_once
    return alloca(builder, _I32)


def _read_word(builder: Any, register: str) -> Any:
    """The status word (``fpsr``) or the modes (``fpcr``) of the processor, int64; x86 has both in one."""
    if _is_arm():
        kind = ir.FunctionType(_I64, [])
        return builder.asm(kind, f"mrs $0, {register}", "=r", [], True)
    slot = _slot(builder)
    pointer = builder.bitcast(slot, ir.IntType(8).as_pointer())
    builder.call(_declared(builder, "llvm.x86.sse.stmxcsr", ir.VoidType(), [pointer.type]), [pointer])
    return builder.zext(builder.load(slot), _I64)


def _write_word(builder: Any, register: str, word: Any) -> None:
    if _is_arm():
        builder.asm(ir.FunctionType(ir.VoidType(), [_I64]), f"msr {register}, $0", "r", [word], True)
        return
    slot = _slot(builder)
    builder.store(builder.trunc(word, _I32), slot)
    pointer = builder.bitcast(slot, ir.IntType(8).as_pointer())
    builder.call(_declared(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), [pointer.type]), [pointer])


@intrinsic
def plain_arithmetic(typing: Any) -> Any:
    """Clear what the processor noted, and let it compute with subnormal numbers; returns the modes before (int64)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
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

    return types.int64(), generate


@intrinsic
def lost_digits(typing: Any) -> Any:
    """Whether a number underflowed, overflowed or was invalid since `plain_arithmetic`, so that digits may be lost."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        mask = _ARM["lost"] if _is_arm() else _X86["lost"]
        noted = builder.and_(_read_word(builder, "fpsr"), ir.Constant(_I64, mask))
        return builder.icmp_unsigned("!=", noted, ir.Constant(_I64, 0))

    return types.boolean(), generate


@intrinsic
def restore_arithmetic(typing: Any, word: Any) -> Any:
    """Set the modes that were before `plain_arithmetic`, whose result `word` is."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        modes = _ARM["modes"] if _is_arm() else _X86["modes"]
        changed = builder.and_(args[0], ir.Constant(_I64, modes))
        with builder.if_then(builder.icmp_unsigned("!=", changed, ir.Constant(_I64, 0)), likely=False):
            _write_word(builder, "fpcr", args[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate
