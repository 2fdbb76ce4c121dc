"""The program of a slice as code for this slice alone, and the number of sequences of a block. Knows no device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .blocks import Block
from .contractions import Load, Part
from .generated import Layout, block_text, load_text, source, sums_text
from .program import SliceArrays, SliceParts, Writer
from .sums import Wanted

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_THREADS = 256
MOST_LANES, LEAST_LANES = 32, 4
MOST_HELD = 12  # entries of a message that a thread keeps in registers
OTHER_REGISTERS = 24
MOST_CODES = 8  # columns of evidence that a thread reads ahead
MOST_VALUES = 512  # numbers of loaded factors that shared memory holds
MOST_CONSTANTS = 384  # numbers among a kernel's parameters, which have 4 KiB
SM_BYTES = 232_448  # of shared memory
SM_THREADS = 672  # that have registers enough

TwoParts = tuple[list[Block], list[Block]]


def fixed_arrays(parts: SliceParts, wanted: Wanted) -> SliceArrays | None:
    """The program with as many lanes as pay; None if it is too large for code."""
    room = SM_BYTES // 8
    made = [part.maker.blocks(part, room) for part in (parts.main, parts.second)]
    if made[0] is None or made[1] is None:
        return None
    best: _CodeWriter | None = None
    most, lanes = 0, MOST_LANES
    while lanes >= LEAST_LANES:
        writer = _writer(parts, (made[0], made[1]), wanted, lanes)
        blocks = min(SM_BYTES // (8 * writer.n_cells + 16 * writer.threads // 32 * lanes + 1024), 32)
        busy = min(blocks * writer.busy, SM_THREADS)
        if busy > most:
            best, most = writer, busy
        lanes //= 2
    return best.arrays() if best else None


def _writer(parts: SliceParts, blocks: TwoParts, wanted: Wanted, lanes: int) -> _CodeWriter:
    maker, n = parts.maker, len(parts.way.source.place)
    both = [(maker, b) for b in blocks[0]] + [(parts.second.maker, b) for b in blocks[1]]
    most = max((made.cells_of(frozenset(b.outer)) for made, b in both), default=1)
    threads = min((most * lanes + 31) // 32 * 32, MOST_THREADS)
    held = -(-n // (threads // lanes))
    held = held if held <= MOST_HELD else 0
    over = n if held and len(parts.main.answers) == 1 else 0  # cells of the message that tables may use
    alone = threads == lanes and len(blocks[0]) == 1  # a thread reads all that it needs before it writes
    main = maker.placed(parts.main, blocks[0], 0 if over else n, over, alone)
    placed = replace(parts, main=main, second=parts.second.maker.placed(parts.second, blocks[1], n, 0))
    inner = max((maker.cells_of(maker.axes_of(t) - {*b.outer}) for b in blocks[0] for t in b.mains), default=0)
    registers = 2 * (inner + held) + OTHER_REGISTERS
    return _CodeWriter(placed, blocks, wanted, lanes, (threads, min(most * lanes, threads)), held, registers)


class _CodeWriter(Writer):
    """Writes the text of blocks in place of records."""

    def __init__(
        self, parts: SliceParts, blocks: TwoParts, wanted: Wanted, lanes: int, threads: tuple[int, int], held: int,
        registers: int,
    ):  # fmt: skip
        # threads: Of a block, and those of them that have work
        # held: Entries of the answer that a thread keeps in registers
        super().__init__(parts, wanted, lanes)
        (self.threads, self.busy), self._held, self._registers = threads, held, registers
        self._blocks = {id(parts.main): blocks[0], id(parts.second): blocks[1]}
        self._slots, at = dict.fromkeys(self.shared, -1), 0
        self._constants = np.zeros(MOST_CONSTANTS)
        for key, x in sorted(self.shared.items(), key=lambda item: len(item[1])):
            if at + len(x) <= MOST_CONSTANTS:
                self._slots[key] = at
                self._constants[at : at + len(x)] = x
                at += len(x)
        self._constants = self._constants[: max(at, 1)]
        for part in (parts.main, parts.second):
            for load in part.loads:
                self.value(part, load.factor)
        values: NDArray[np.float64] = np.concatenate([np.zeros(0), *self.values])
        self._values_text, self._first_value = "p.values", 0
        if len(values) <= MOST_VALUES:
            self._values_text, self._first_value = "h.arena", self.n_consts
            self.consts = np.concatenate([self.consts, values, np.zeros(len(values) % 2)])
            self.n_consts = len(self.consts)
        rank = parts.maker.plan.axis_rank
        self._layout = Layout(lanes, self.threads, {}, lambda _: (), lambda _: 0, {}, lambda v: int(rank[v]))
        self._codes = max([0, *(c + 1 for x in (*parts.main.loads, *parts.second.loads) for c in self._columns(x))])
        self._texts: dict[str, str] = {}

    def _columns(self, x: Load) -> list[int]:
        return [self.maker.pattern.column[v] for v in (*x.fixed, *x.axes)]

    def part(self, part: Part) -> tuple[int, int, int, int]:
        """Loads and contractions of a part: the first item and the number of items, which have more than one code."""
        maker, cards = part.maker, dict(enumerate(part.maker.cards.tolist()))

        def scope_of(table: int) -> Sequence[int]:
            return [v for v in maker.scopes[table] if cards[v] > 1]

        slots = {t: self._slots[x.tobytes()] for t, x in part.consts.items()}
        layout = replace(self._layout, cards=cards, scope=scope_of, first=lambda t: self.cell(part, t), consts=slots)
        items, loads, unit = [], [], 0
        for x in part.loads:
            if x.message or self._codes > MOST_CODES or any(maker.pattern.weight[v] >= 0 for v in x.axes):
                items += self.items(part, x)
                continue
            n = maker.size(x.factor)
            unit = unit if unit + n <= layout.units else 0
            strides, scope = maker.strides(x.factor), maker.plan.table_scopes[x.factor]
            cells = [(cards[v], strides[v]) for v in scope if not maker.chosen[v]]
            codes = [(c, strides[v]) for c, v in zip(self._columns(x), x.fixed, strict=False)]
            value, to = self._first_value + self.value(part, x.factor), self.cell(part, x.factor)
            value += int(maker.cells(x.factor)[0])
            inner = {v: math.prod(cards[u] for u in scope[scope.index(v) + 1 :]) for v in x.axes}
            seen = [(maker.pattern.column[v], inner[v], cards[v]) for v in x.axes]
            loads.append(load_text(layout, f"{self._values_text}[{value}u + ", cells, codes, seen, to, unit))
            unit += n
        texts, before = [], -1
        for b in self._blocks[id(part)]:
            texts.append(block_text(b, layout, b.level != before))
            before = b.level
        name = " OF SECOND" if part is self.given.second else ""
        self._texts |= {f"LOADS{name}": "".join(loads), f"BLOCKS{name}": "".join(texts)}
        return self.add("items", items), len(items), 0, 0

    def arrays(self) -> SliceArrays:
        """All of it."""
        made = super().arrays()
        way, main, second = self.way, self.given.main, self.given.second
        macros: dict[str, object] = {
            "FIXED": 1, "FIXED_LANES": f"{self.lanes}u", "FIXED_UNITS": self._layout.units, "FIXED_HELD": self._held,
            "FIXED_ENTRIES": f"{self.n}u", "FIXED_CODES": self._codes if self._codes <= MOST_CODES else 0,
            "FIXED_AHEAD": int(way.ahead), "FIXED_ADDS": int(way.adds), "FIXED_CONSTANTS": len(self._constants),
            "FIXED_ANSWER": ", ".join(map(str, self.answer)),
        }  # fmt: skip
        for name, side in (("FIXED_SOURCE", way.source), ("FIXED_TARGET", way.target)):
            if np.array_equal(side.place, np.arange(self.n)):
                macros[name] = 1
        # Threads that hold the answer have read it when they have its sum: loads and sums may overwrite it.
        if self._held and len(main.answers) == 1 and not second.answers and not any(x.message for x in main.loads):
            macros["FIXED_EASY"] = 1
        work = self.n_consts + self.n * self.lanes
        others = [column + second.maker.size(t) for t, column in zip(second.answers, way.columns, strict=True)]
        width = max([0, *others, *(x.to + len(x.terms) for x in self.singles)])
        texts = [sums_text(self._layout, self.groups, work), sums_text(self._layout, self.singles, work, width)]
        if self.singles and texts[0] is not None and texts[1] is not None:
            macros["FIXED_SUMS"] = 1
            self._texts |= {"SUMS OF GROUPS": texts[0], "SUMS": texts[1]}
        text = source(macros, self._texts)
        return replace(
            made, source=text, constants=self._constants, busy=self.busy, registers=self._registers
        )
