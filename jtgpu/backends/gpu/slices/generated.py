"""Blocks of contractions as text: the part of cuda/batch/slices.cu that is compiled for one slice.

Cells are constants of the code, constants are operands from the kernel's parameters, tables inside a block are
registers. The sums are those of the records, in the same order, so the bits are, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ....device import nvcc
from .blocks import Block
from .sums import Sums

Digits = Sequence[tuple[int, int]]  # extent and stride, the last digit fastest


@dataclass(frozen=True)
class Layout:
    """Where tables stand."""

    lanes: int
    threads: int
    cards: Mapping[int, int]
    scope: Callable[[int], Sequence[int]]  # axes of a table, slowest first
    first: Callable[[int], int]  # number of a table in the arena
    consts: Mapping[int, int]  # first number of each table of constants among the parameters, -1: not there
    rank: Callable[[int], int]  # of axes, in the order of sums

    @property
    def units(self) -> int:
        return self.threads // self.lanes

    def strides(self, table: int) -> dict[int, int]:
        """Cells from one state to the next."""
        at, of = 1, {}
        for v in reversed(self.scope(table)):
            of[v] = at
            at *= self.cards[v]
        return of

    def scale(self, table: int) -> int:
        """Numbers from one cell to the next."""
        return 1 if table in self.consts else self.lanes


def mixed_radix(variable: str, digits: Digits) -> str:
    """The text of a sum of digits times strides."""
    terms, inner = [], 1
    for extent, stride in reversed(digits):
        if stride and extent > 1:
            terms.append(f"{variable} / {inner}u % {extent}u * {stride}u")
        inner *= extent
    return " + ".join(terms) or "0u"


class _BlockText:
    def __init__(self, block: Block, layout: Layout):
        self.block, self.layout = block, layout
        self.lines: list[str] = []

    def text(self) -> str:
        """Statements for outer configuration i."""
        block, layout = self.block, self.layout
        main, out = block.mains[0], block.steps[-1].out
        values = self._loaded(main, "x")
        for number, (s, through) in enumerate(zip(block.steps, block.mains, strict=True)):
            values = self._step(number, s.out, through, [t for t in s.ins if t != through][:1], values)
        self.lines.append(f"double* const out = h.arena + ({self._base(out)});")
        self.lines += [f"out[{self._cell(out, at)}u] = {name};" for at, name in values.items()]
        n = math.prod(layout.cards[v] for v in block.outer)
        body = "\n".join(self.lines)
        if n == 1 and layout.units == 1:
            return f"{{\nconst u32 i = 0;\n{body}\n}}\n"
        if n <= layout.units:
            return f"if (h.unit < {n}u) {{\nconst u32 i = h.unit;\n{body}\n}}\n"
        return f"for (u32 i = h.unit; i < {n}u; i += {layout.units}u) {{\n{body}\n}}\n"

    def _inner(self, table: int) -> list[int]:
        return [v for v in self.layout.scope(table) if v not in self.block.outer]

    def _places(self, table: int) -> list[tuple[int, ...]]:
        return list(itertools.product(*(range(self.layout.cards[v]) for v in self._inner(table))))

    def _cell(self, table: int, at: Sequence[int]) -> int:
        of = self.layout.strides(table)
        return self.layout.scale(table) * sum(of[v] * s for v, s in zip(self._inner(table), at, strict=True))

    def _base(self, table: int) -> str:
        layout, of = self.layout, self.layout.strides(table)
        digits = [(layout.cards[v], of.get(v, 0) * layout.scale(table)) for v in self.block.outer]
        lane = "" if table in layout.consts else " + h.lane"
        return f"{layout.first(table)}u + {mixed_radix('i', digits)}{lane}"

    def _loaded(self, table: int, name: str) -> dict[tuple[int, ...], str]:
        """The numbers of an input."""
        layout, places = self.layout, self._places(table)
        slot = layout.consts.get(table, -1)
        if slot >= 0 and len(places) == math.prod(layout.cards[v] for v in layout.scope(table)):
            return {at: f"k.c[{slot + self._cell(table, at)}]" for at in places}
        self.lines.append(f"const double* const {name} = h.arena + ({self._base(table)});")
        made = {at: name + "".join(f"_{s}" for s in at) for at in places}
        self.lines += [f"const double {n}_ = {name}[{self._cell(table, at)}u];" for at, n in made.items()]
        return {at: n + "_" for at, n in made.items()}

    def _step(
        self, number: int, out: int, main: int, side: Sequence[int], values: Mapping[tuple[int, ...], str]
    ) -> dict[tuple[int, ...], str]:
        """The numbers of a contraction."""
        tables = [main, *side]
        joint = sorted({v for t in tables for v in self._inner(t)}, key=self.layout.rank)
        summed = [v for v in joint if v not in self._inner(out)]
        kept = [v for v in joint if v in self._inner(out)]
        other = self._loaded(side[0], f"y{number}") if side else {}
        made = {}
        for at in itertools.product(*(range(self.layout.cards[v]) for v in kept)):
            states, name = dict(zip(kept, at, strict=True)), ""
            for k in itertools.product(*(range(self.layout.cards[v]) for v in summed)):
                states |= dict(zip(summed, k, strict=True))
                x = values[tuple(states[v] for v in self._inner(main))]
                if side:
                    y = other[tuple(states[v] for v in self._inner(side[0]))]
                    name = f"fma({x}, {y}, {name})" if name else f"{x} * {y}"
                else:
                    name = f"{name} + {x}" if name else x
            place = tuple(states[v] for v in self._inner(out))
            made[place] = f"t{number}_" + "_".join(map(str, place))
            self.lines.append(f"const double {made[place]} = {name};")
        return made


def block_text(block: Block, layout: Layout, sync: bool) -> str:
    """A block; `sync`: it waits for others."""
    return ("together();\n" if sync else "") + _BlockText(block, layout).text()


def load_text(
    layout: Layout, values: str, cells: Digits, codes: Sequence[tuple[int, int]], seen: Sequence[tuple[int, int, int]],
    to: int, first_unit: int,
) -> str:  # fmt: skip
    """A factor of which evidence chooses a part, or leaves a part."""
    # values: Text before the place of a number
    # codes: Column and stride of each variable that is observed
    # seen: Column, inner extent and states of each variable that may be observed
    n = math.prod(extent for extent, _ in cells)
    at = " + ".join([mixed_radix("i", cells), *(f"{s}u * (u32)h.code[{c}]" for c, s in codes)])
    kept = [f"(h.code[{c}] < 0 || (u32)h.code[{c}] == i / {inner}u % {card}u)" for c, inner, card in seen]
    number = f"{' && '.join(kept)} ? {values}{at}] : 0.0" if kept else f"{values}{at}]"
    return over_units(layout, n, first_unit, f"h.arena[{to}u + i * {layout.lanes}u + h.lane] = {number};")


def over_units(layout: Layout, n: int, first_unit: int, body: str) -> str:
    """Statements for i from 0 to n, each by a unit."""
    if layout.units == 1:
        return f"#pragma unroll\nfor (u32 i = 0; i < {n}u; i++) {{ {body} }}\n"
    if first_unit + n <= layout.units:
        return f"if (h.unit - {first_unit}u < {n}u) {{ const u32 i = h.unit - {first_unit}u; {body} }}\n"
    return f"for (u32 i = h.unit; i < {n}u; i += {layout.units}u) {{ {body} }}\n"


def sums_text(layout: Layout, sums: Sequence[Sums], work: int, width: int = 0) -> str | None:
    """Sums of a table that begins at `work`; None if they are not regular."""
    # width: Of a row of answers, to which they are written; 0: behind the table
    text, unit, rows = "", 0, width > 0
    for x in sums:
        if x.walk is None:
            return None
        first, step, offsets = x.walk
        unit = unit if unit + len(x.terms) <= layout.units else 0
        source = f"const double* const x = h.arena + ({work}u + ({first}u + i * {step}u) * {layout.lanes}u + h.lane);"
        total = " + ".join(f"x[{layout.lanes * o}u]" for o in offsets)
        to = f"h.arena[{work}u + ({x.to}u + i) * {layout.lanes}u + h.lane] = {total};"
        n = len(x.terms)
        if rows:
            to = f"row[{x.to}u + i] = ({total}) * inverse;"
        if rows and layout.units == 1 and width % 2 == x.to % 2 == n % 2 == 0:  # half as many transactions
            pair = f"make_double2(({total}) * inverse, ({total.replace('x[', 'y[')}) * inverse)"
            second = f"const double* const y = x + {step * layout.lanes}u;"
            to = f"{second} *(double2*)(row + {x.to}u + 2 * i) = {pair};"
            source, n = source.replace("i *", "2 * i *"), n // 2
        text += over_units(layout, n, unit, f"{source} {to}")
        unit += len(x.terms)
    return text


def source(constants: Mapping[str, object], texts: Mapping[str, str]) -> str:
    """The text of a kernel."""
    # constants: Macros
    # texts: Bodies of the functions that load and contract, by name
    head = ['#include "common/types.cuh"']
    head += [f"#define {name} {value}" for name, value in constants.items()]
    kernels = (nvcc.source_folder() / "batch/slices.cu").read_text(encoding="utf-8")
    for name, text in texts.items():
        assert f"/* {name} */" in kernels
        kernels = kernels.replace(f"/* {name} */", text)
    return "\n".join(head) + "\n" + kernels
