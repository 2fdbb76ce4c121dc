"""Which kernels are written for a network: in what order, cut where, and by whom (`batch_code`, `batch_kept`).

Text and integers only; knows no device. `jtgpu.backends.gpu.batch.generated` compiles and runs them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....plans.plan import Plan
from .codegen import Part, Piece, PlainWriter
from .live import Live
from .register_plan import kept_parts
from .tiling import SHAPES, TileMaker

__all__ = ["lane_parts", "lines_of", "step_order"]

MOST_LINES = 6000  # of one kernel: nvcc takes two to four seconds for so many, and more than linearly for more
MOST_ALONE = 8000  # up to which one kernel does everything


def step_order(live: Live, roots: Sequence[int]) -> tuple[list[int], int]:
    """An order of the steps in which few tables wait: messages to the roots depth-first, then away from them
    likewise; and how many steps the first are."""
    steps = live.program.steps
    maker = {s.out: i for i, s in enumerate(steps)}
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

    for t in roots:
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


def _pieces(live: Live, order: Sequence[int], lines: Sequence[int]) -> list[list[Piece]]:
    """The contractions in their order, large ones in pieces that a kernel has room for."""
    maker, found = TileMaker(), []
    alone = sum(lines) <= MOST_ALONE  # then the compiler says what waits where, and spills less in the plain order
    for step in order:
        tiles = _plain(live, step) if alone else _tiled(live, maker, step)
        ways = min(max(-(-lines[step] // MOST_LINES), 1), max(len(tiles), 1))
        cuts = [i * len(tiles) // ways for i in range(ways + 1)]
        found.append([Piece(step, tiles[cuts[i] : cuts[i + 1]], i == ways - 1) for i in range(ways)])
    return found


def _plain(live: Live, step: int) -> list[list[tuple[int, int, int]]]:
    """The live multiply-adds of a contraction, output after output."""
    t = live.terms(step)
    b = t.b.tolist() if len(t.b) else [-1] * len(t.out)
    made: dict[int, list[tuple[int, int, int]]] = {}
    for term in zip(t.out.tolist(), t.a.tolist(), b, strict=True):
        made.setdefault(term[0], []).append(term)
    return list(made.values())


def _tiled(live: Live, maker: TileMaker, step: int) -> list[list[tuple[int, int, int]]]:
    """The live multiply-adds of a contraction, outputs that share what they read side by side."""
    ins = live.program.steps[step].ins
    wanted, first = live.live(live.program.steps[step].out), live.support[ins[0]]
    second = live.support[ins[1]] if len(ins) == 2 else np.zeros(0, np.bool_)
    t = maker.tiles(live.loops[step], len(ins) == 1, [wanted, first, second])
    tm, tn = SHAPES[t.shape]
    there_a, there_b = (second, first) if t.swapped else (first, second)
    made = []
    for n in range(len(t.a)):
        terms: dict[tuple[int, int, int], None] = {}  # places that fill a tile up stand twice
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


def _components(live: Live, roots: Sequence[int], tables: Sequence[int]) -> list[int]:
    """The root whose component each table belongs to."""
    ins = {s.out: s.ins for s in live.program.steps}

    def factor_of(table: int) -> int:
        while table in ins:
            table = ins[table][0]
        return table

    home: dict[int, int] = {}
    for i, root in enumerate(roots):
        stack = [root]
        while stack:
            t = stack.pop()
            if t in ins:
                stack += ins[t]
            else:
                home[t] = i
    return [home[factor_of(t)] for t in tables]


def lines_of(live: Live) -> list[int]:
    """About how many lines of code each step takes: a term, an output, an input each."""
    cells = [int(live.live(t).sum()) for t in range(len(live.support))]
    return [
        int(n) + cells[s.out] + sum(cells[t] for t in s.ins)
        for n, s in zip(live.count.tolist(), live.program.steps, strict=True)
    ]


def _cut(pieces: Sequence[Sequence[Piece]], lines: Sequence[int], n_up: int) -> list[list[Piece]]:
    """The pieces of each part. The messages to the roots end a part, so that ln P(e) alone costs no more."""
    if sum(lines) <= MOST_ALONE:
        return [[x for members in pieces for x in members]]
    parts: list[list[Piece]] = []
    for half in (pieces[:n_up], pieces[n_up:]):
        sized = [(x, lines[x.step] / len(members)) for members in half for x in members]
        whole = sum(size for _, size in sized)
        share = whole / max(1, -(-int(whole) // MOST_LINES))
        filled = 0.0
        here: list[Piece] = []
        for x, size in sized:
            if here and filled + size / 2 > share:
                parts.append(here)
                filled, here = filled - share, []
            here.append(x)
            filled += size
        if here:
            parts.append(here)
    return parts


def lane_parts(plan: Plan, live: Live, *, weights: bool, blocks: int, slots: int) -> tuple[list[Part], int]:
    """The kernels that answer a case.

    Parameters
    ----------
    plan : Plan
    live : Live
    weights : bool
        Whether some variables may have weights.
    blocks : int
        Blocks that an SM shall hold: bounds the registers of a thread.
    slots : int
        Numbers of a thread that there is room for in shared memory.

    Returns
    -------
    parts : list of Part
    cells : int
        Scratch memory of a thread, in doubles.
    """
    roots, steps = plan.root_table.tolist(), live.program.steps
    order, n_up = step_order(live, roots)
    lines = lines_of(live)
    parts = _cut(_pieces(live, order, lines), lines, n_up)
    up = set(order[:n_up])
    halves = [([x for x in members if x.step in up], [x for x in members if x.step not in up]) for members in parts]
    home = _components(live, roots, plan.posterior_table.tolist())
    if len(parts) > 1:
        return kept_parts(
            plan, live, halves, home, weights=weights, blocks=blocks, slots=slots, most_lines=MOST_LINES
        )
    answered = {int(t): v for v, t in enumerate(plan.posterior_table.tolist())}
    writer = PlainWriter(plan, live, weights=weights)
    for members, rest in halves:
        for x in members:
            writer.step(x)
        writer.total(roots)
        writer.lines.append("if (b.n_out == 0) return;")
        for x in rest:
            writer.step(x)
            if x.last and steps[x.step].out in answered:
                v = answered[steps[x.step].out]
                writer.answer(v, home[v])
    return [writer.kernel(blocks, 0, answers=False)], 0
