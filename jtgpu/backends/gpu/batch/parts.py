"""A network's contractions in the order of the generated code, partitioned into kernels that compile soon enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..lower import Lowered
from .sparsity import Sparsity
from .tiling import SHAPES, TileMaker

MOST_PART_LINES = 6000  # of one kernel: nvcc takes two to four seconds for so many, and more than linearly for more
MOST_ALONE = 8000  # up to which one kernel does everything


@dataclass(frozen=True)
class Piece:
    """Some outputs of a contraction, and the multiply-adds that make them, in order."""

    step: int
    tiles: list[list[tuple[int, int, int]]]  # (output, cell of A, cell of B; -1: there is none)
    last: bool  # whether no more of the contraction follows

    @property
    def outs(self) -> list[int]:
        """Its outputs, each once, in order."""
        return list(dict.fromkeys(o for tile in self.tiles for o, _, _ in tile))

    def cells(self, side: int) -> set[int]:
        """The cells of A (0) or B (1) that it reads."""
        return {term[1 + side] for tile in self.tiles for term in tile} - {-1}


@dataclass(frozen=True)
class KernelPart:
    """The contractions of one kernel."""

    up: list[Piece]  # messages to the roots
    down: list[Piece]  # messages away from them, and posteriors
    has_total: bool  # whether ln P(e) is computed between the two

    @property
    def pieces(self) -> list[Piece]:
        """All of them, in order."""
        return self.up + self.down


def step_order(program: Lowered) -> tuple[list[int], int]:
    """An order of the steps with few tables alive at a time: messages to the roots depth-first, then those away from
    them; and the number of the former."""
    steps, maker = program.steps, program.maker
    made: set[int] = set()
    order: list[int] = []
    weight = [0] * len(steps)
    for i, s in enumerate(steps):
        weight[i] = 1 + sum(weight[maker[t]] for t in s.ins if t in maker)

    def demand(step: int) -> None:
        stack = [(step, False)]
        while stack:
            i, ready = stack.pop()
            if i in made:
                continue
            if ready:
                made.add(i)
                order.append(i)
                continue
            stack.append((i, True))
            waiting = [maker[t] for t in steps[i].ins if t in maker and maker[t] not in made]
            stack += [(j, False) for j in sorted(waiting, key=lambda j: (weight[j], j))]  # the largest first

    for t in program.roots:
        if t in maker:
            demand(maker[t])
    up = frozenset(made)
    children: dict[int, list[int]] = {}
    size = [1] * len(steps)
    for i in range(len(steps) - 1, -1, -1):
        if i in up:
            continue
        above = max((maker[t] for t in steps[i].ins if t in maker and maker[t] not in up), default=-1)
        children.setdefault(above, []).append(i)
        if above >= 0:
            size[above] += size[i]
    stack = sorted(children.get(-1, ()), key=lambda i: (-size[i], i))
    while stack:
        i = stack.pop()
        demand(i)
        stack += sorted(children.get(i, ()), key=lambda j: (-size[j], j))
    return order, len(up)


def _pieces(sparsity: Sparsity, order: Sequence[int], lines: Sequence[int]) -> list[list[Piece]]:
    """The contractions in order, large ones in pieces that fit a kernel."""
    maker, pieces = TileMaker(), []
    alone = sum(lines) <= MOST_ALONE  # then the compiler spills less in the plain order
    for step in order:
        tiles = _plain(sparsity, step) if alone else _tiled(sparsity, maker, step)
        ways = min(max(-(-lines[step] // MOST_PART_LINES), 1), max(len(tiles), 1))
        cuts = [i * len(tiles) // ways for i in range(ways + 1)]
        pieces.append([Piece(step, tiles[cuts[i] : cuts[i + 1]], i == ways - 1) for i in range(ways)])
    return pieces


def _plain(sparsity: Sparsity, step: int) -> list[list[tuple[int, int, int]]]:
    """The multiply-adds of a contraction, output after output."""
    t = sparsity.terms(step)
    b = t.b.tolist() if len(t.b) else [-1] * len(t.out)
    made: dict[int, list[tuple[int, int, int]]] = {}
    for term in zip(t.out.tolist(), t.a.tolist(), b, strict=True):
        made.setdefault(term[0], []).append(term)
    return list(made.values())


def _tiled(sparsity: Sparsity, maker: TileMaker, step: int) -> list[list[tuple[int, int, int]]]:
    """The multiply-adds of a contraction, outputs that share inputs together."""
    ins = sparsity.program.steps[step].ins
    wanted, first = sparsity.used(sparsity.program.steps[step].out), sparsity.nonzero[ins[0]]
    second = sparsity.nonzero[ins[1]] if len(ins) == 2 else np.zeros(0, np.bool_)
    t = maker.tiles(sparsity.program.loops[step], len(ins) == 1, [wanted, first, second])
    tm, tn = SHAPES[t.shape]
    there_a, there_b = (second, first) if t.swapped else (first, second)
    made = []
    for n in range(len(t.a)):
        terms: dict[tuple[int, int, int], None] = {}  # padding repeats places
        for x, y in t.steps[t.first[n] : t.first[n] + t.count[n]].tolist():
            for i in range(tm):
                a = int(t.a[n, i]) + x
                for j in range(max(tn, 1)):
                    b = int(t.b[n, j]) + y if tn else -1
                    if t.mask[n] >> (i * max(tn, 1) + j) & 1 and there_a[a] and (not tn or there_b[b]):
                        out = int(t.out_m[n, i] + t.out_n[n, j])
                        terms[(out, b, a) if t.swapped else (out, a, b)] = None
        made.append(list(terms))
    return [tile for tile in made if tile]


def code_lines(sparsity: Sparsity) -> list[int]:
    """Estimated lines of code of each step: one a term, an output and an input."""
    cells = [int(sparsity.used(t).sum()) for t in range(len(sparsity.nonzero))]
    return [
        int(n) + cells[s.out] + sum(cells[t] for t in s.ins)
        for n, s in zip(sparsity.count.tolist(), sparsity.program.steps, strict=True)
    ]


def partition(sparsity: Sparsity) -> list[KernelPart]:
    """The contractions of each kernel.

    Messages to the roots end a kernel, so that ln P(e) alone costs nothing more.
    """
    order, n_up = step_order(sparsity.program)
    lines = code_lines(sparsity)
    pieces = _pieces(sparsity, order, lines)
    up, down = ([x for members in half for x in members] for half in (pieces[:n_up], pieces[n_up:]))
    if sum(lines) <= MOST_ALONE:
        return [KernelPart(up, down, True)]
    size = {order[i]: lines[order[i]] / len(members) for i, members in enumerate(pieces)}
    parts = [KernelPart(x, [], False) for x in _balanced(up, size)] or [KernelPart([], [], False)]
    parts[-1] = KernelPart(parts[-1].up, [], True)
    return parts + [KernelPart([], x, False) for x in _balanced(down, size)]


def _balanced(pieces: Sequence[Piece], size: Mapping[int, float]) -> list[list[Piece]]:
    """Pieces in runs of about equal numbers of lines."""
    whole = sum(size[x.step] for x in pieces)
    share = whole / max(1, -(-int(whole) // MOST_PART_LINES))
    runs: list[list[Piece]] = []
    filled = 0.0
    run: list[Piece] = []
    for x in pieces:
        if run and filled + size[x.step] / 2 > share:
            runs.append(run)
            filled, run = filled - share, []
        run.append(x)
        filled += size[x.step]
    return [*runs, run] if run else runs
