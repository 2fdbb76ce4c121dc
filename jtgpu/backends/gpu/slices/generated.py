"""Contractions of a slice as text: their cells become constants of the code (`run_fixed` of cuda/batch/slices.cu).

A kernel of records reads eight instructions for one of arithmetic; one compiled for the network reads two. The sums are
those of the records, in the same order, so the bits are, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ....device import nvcc
from ..program.records import OUT, A, B, Loop

MOST_SUM = 32  # configurations of a sum that is written out
MOST_SIDE, MOST_TILE = 6, 12  # outputs of a thread along an axis of one input, and in all
Digit = tuple[int, tuple[int, ...]]  # extent; strides in A, B and the output


class Fixed(NamedTuple):
    """A contraction as a struct that `run_fixed` takes."""

    text: str
    n_tiles: int


def fixed_contraction(
    name: str, loops: Sequence[Loop], first: Sequence[int], scale: Sequence[int], sync: bool
) -> Fixed | None:
    """The text of a contraction; None if a sum is too long."""
    # loops: Its joint axes
    # first, scale: Of A, B and the output: first number in the arena; numbers from one cell to the next, 1: a constant
    kinds: dict[str, list[Digit]] = {"s": [], "m": [], "n": [], "k": []}
    for extent, strides in loops:
        kind = "k" if not strides[OUT] else "s" if strides[A] and strides[B] else "m" if strides[A] else "n"
        by_table = (strides[A], strides[B], strides[OUT])
        kinds[kind].append((extent, tuple(x * y for x, y in zip(by_table, scale, strict=True))))
    n_sum = math.prod(extent for extent, _ in kinds["k"])
    if n_sum > MOST_SUM:
        return None
    tm, tn = _tile(*(kinds[k][-1][0] if kinds[k] else 1 for k in "mn"))
    digits = [*kinds["s"]]
    steps: dict[str, tuple[int, ...]] = {}
    for kind, tile in (("m", tm), ("n", tn)):
        steps[kind] = kinds[kind][-1][1] if kinds[kind] else (0, 0, 0)
        digits += kinds[kind][:-1]
        if kinds[kind]:
            extent, last = kinds[kind][-1]
            digits.append((extent // tile, tuple(tile * x for x in last)))
    constants = {
        "N": math.prod(extent for extent, _ in digits), "TM": tm, "TN": tn, "K": n_sum, "SYNC": int(sync),
        "CONST_A": int(scale[0] == 1), "CONST_B": int(scale[1] == 1), "ALONE": int(first[1] < 0),
        "MA": steps["m"][0], "MO": steps["m"][2], "NB": steps["n"][1], "NO": steps["n"][2],
    }  # fmt: skip
    lines = [f"static constexpr u32 {key}_ = {value};" for key, value in constants.items()]
    for t, table in enumerate(("a", "b", "o")):
        lines.append(_function(table, "i", max(first[t], 0), [(e, s[t]) for e, s in digits]))
    for t, table in enumerate(("ka", "kb")):
        lines.append(_function(table, "k", 0, [(e, s[t]) for e, s in kinds["k"]]))
    return Fixed(f"struct {name} {{\n" + "\n".join(lines) + "\n};\n", constants["N"])


def _tile(m: int, n: int) -> tuple[int, int]:
    """Outputs of a thread along two axes: divisors of their extents."""
    sides = [[d for d in range(1, MOST_SIDE + 1) if extent % d == 0] for extent in (m, n)]
    fits = [(x, y) for x in sides[0] for y in sides[1] if x * y <= MOST_TILE]
    return max(fits, key=lambda t: (t[0] * t[1] / (t[0] + t[1]), t))


def _function(name: str, variable: str, first: int, digits: Sequence[tuple[int, int]]) -> str:
    """Text of a function of a mixed-radix number, the last digit fastest."""
    terms, inner = [f"{first}u"], 1
    for extent, stride in reversed(digits):
        if stride and extent > 1:
            terms.append(f"{variable} / {inner}u % {extent}u * {stride}u")
        inner *= extent
    return f"static __device__ __forceinline__ constexpr u32 {name}(u32 {variable}) {{ return {' + '.join(terms)}; }}"


def source(lanes: int, ahead: bool, parts: Sequence[Sequence[tuple[int, Fixed | None]]]) -> str:
    """The text of the kernels of a program."""
    # parts: Of the main and the second one: the number of each contraction and its text; None: by records
    structs, calls = [], []
    for part in parts:
        structs += [fixed.text for _, fixed in part if fixed is not None]
        call = [f"run_fixed<Op{i}>(h);" if fixed is not None else f"run_record(p, p.ops[{i}], h);" for i, fixed in part]
        calls.append(" ".join(call))
    head = f'#include "common/types.cuh"\n#define FIXED_LANES {lanes}u\n#define FIXED_AHEAD {int(ahead)}\n'
    return head + "".join(structs) + f"#define FIXED_MAIN {calls[0]}\n#define FIXED_SECOND {calls[1]}\n" + _kernels()


def _kernels() -> str:
    return (nvcc.source_folder() / "batch/slices.cu").read_text(encoding="utf-8")
