"""Kernels written for one network: a thread a case, every contraction spelled out (cuda/resident/batch_lane.cuh).

Text and integers only; knows no device. `jtgpu.backends.gpu.batch_lane` compiles and runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...plan import Plan
from .batch_live import Live
from .batch_tiles import SHAPES, TileMaker

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LANE_THREADS", "Part", "lane_parts", "lines_of", "step_order"]

LANE_THREADS = 128
MOST_LINES = 6000  # of one kernel: nvcc takes two or three seconds for so many, and more than linearly for more
MOST_ALONE = 8000  # up to which one kernel does everything
BIG = 64  # numbers of a table from which on those that wait for a later part wait for this part's readers there, too
LATE = 24  # numbers of a table from which on they are fetched from scratch memory one by one, where they are used


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


@dataclass(frozen=True)
class Part:
    """One kernel; the parts of a network run one after another."""

    source: str
    factors: NDArray[np.float64]  # what its constant memory holds
    answers: bool  # whether posteriors are all that it is for


@dataclass(frozen=True)
class _Piece:
    """Some outputs of a contraction, and their live multiply-adds in the order in which they are done."""

    step: int
    tiles: list[list[tuple[int, int, int]]]  # (output, cell of A, cell of B; -1: there is none)
    last: bool  # whether no more of the contraction comes

    @property
    def outs(self) -> list[int]:
        """Its outputs, each once, in the order in which they are begun."""
        return list(dict.fromkeys(o for tile in self.tiles for o, _, _ in tile))

    def cells(self, side: int) -> set[int]:
        """The cells of A (0) or B (1) that it reads."""
        return {term[1 + side] for tile in self.tiles for term in tile} - {-1}


def _pieces(live: Live, order: Sequence[int], lines: Sequence[int]) -> list[list[_Piece]]:
    """The contractions in their order, large ones in pieces that a kernel has room for."""
    maker, found = TileMaker(), []
    alone = sum(lines) <= MOST_ALONE  # then all is in registers, and the plain order spills less
    for step in order:
        tiles = _plain(live, step) if alone else _tiled(live, maker, step)
        ways = min(max(-(-lines[step] // MOST_LINES), 1), max(len(tiles), 1))
        cuts = [i * len(tiles) // ways for i in range(ways + 1)]
        found.append([_Piece(step, tiles[cuts[i] : cuts[i + 1]], i == ways - 1) for i in range(ways)])
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


class _Crossings:
    """Which cells a later part reads, and where they wait meanwhile: cells of the thread's scratch memory."""

    def __init__(self, live: Live, parts: Sequence[Sequence[_Piece]], more: Iterable[tuple[str, int, int]]):
        """`more`: (name, part that makes it, last part that reads it) of further numbers; -1: already known."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        steps = live.program.steps
        maker = {s.out for s in steps}
        for p, members in enumerate(parts):
            for piece in members:
                s = steps[piece.step]
                first |= {f"t{s.out}_{c}": p for c in piece.outs}
                for side, t in enumerate(s.ins):
                    if t in maker:
                        last |= {f"t{t}_{c}": p for c in sorted(piece.cells(side))}
        for name, made, read in more:
            first[name] = first[name] if made < 0 else made
            last[name] = max(last.get(name, 0), read)
        crossing = sorted((made, name) for name, made in first.items() if last.get(name, made) > made)
        ends: dict[int, list[str]] = {}
        self.place: dict[str, int] = {}
        free: list[int] = []
        self.cells = 0
        for made, name in crossing:
            for part in sorted(p for p in ends if p < made):
                free += sorted((self.place[x] for x in ends.pop(part)), reverse=True)
            if free:
                self.place[name] = free.pop()
            else:
                self.place[name] = self.cells
                self.cells += 1
            ends.setdefault(last[name], []).append(name)


class _Writer:
    """Writes the contractions of one part one after another."""

    def __init__(self, plan: Plan, live: Live, crossings: _Crossings, *, weights: bool):
        self.plan, self.live, self.crossings, self.weights = plan, live, crossings, weights
        self.constants: dict[tuple[int, int], int] = {}
        self.made: set[str] = set()  # in this part
        self.lines: list[str] = []
        self.evidence: dict[int, list[int]] = {}
        for v, f in enumerate(plan.evidence_factor.tolist()):
            self.evidence.setdefault(f, []).append(v)

    def cell(self, table: int, cell: int) -> str:
        """A number that an earlier line, an earlier part or the model has made."""
        if table < self.plan.n_factors:
            return f"K({self.constants.setdefault((table, cell), len(self.constants))})"
        return self.fetched(f"t{table}_{cell}")

    def fetched(self, name: str) -> str:
        return name if name in self.made else f"L({self.crossings.place[name]})"

    def keep(self, name: str, large: bool = False) -> None:
        """Leave a number for later parts, if any wants it; of a large table that is all that is kept of it."""
        if not large or name not in self.crossings.place:
            self.made.add(name)
        if name in self.crossings.place:
            self.lines.append(f"M({self.crossings.place[name]}) = {name};")

    def look(self, variables: Iterable[int]) -> None:
        """Fetch what is known of some variables."""
        for v in variables:
            self.lines.append(f"const int s{v} = b.state[(u64){v} * b.n_cases + at];")
            if self.weights:
                self.lines.append(f"const u32 r{v} = b.weight_row[{v}];")

    def given(self, x: str, known: Iterable[tuple[int, int]]) -> str:
        """A number times what is known of (variable, state) pairs."""
        for v, k in known:
            x = f"weighed(b, {x}, s{v}, r{v}, {k}, at)" if self.weights else f"observed({x}, s{v}, {k})"
        return x

    def digits(self, scope: tuple[int, ...], cell: int, variables: Iterable[int]) -> list[tuple[int, int]]:
        found = []
        for v in variables:
            inner = self.plan.size(scope[scope.index(v) + 1 :])
            found.append((v, cell // inner % int(self.plan.cardinality[v])))
        return found

    def placed(self, step: int) -> dict[int, list[int]]:
        """For each table of a contraction the variables whose evidence goes onto it: the smallest that has them."""
        s, scopes = self.live.program.steps[step], self.live.program.scopes
        known: dict[int, list[int]] = {t: [] for t in (s.out, *s.ins)}
        for t in s.ins:
            for v in self.evidence.get(t, ()):
                holders = [x for x in known if v in scopes[x]]
                known[min(holders, key=lambda x: (int(self.live.live(x).sum()), x))].append(v)
        return known

    def step(self, piece: _Piece) -> None:
        """One contraction, or a piece of it."""
        s, scopes = self.live.program.steps[piece.step], self.live.program.scopes
        if not piece.tiles:
            return
        self.lines.append("double " + ", ".join(f"t{s.out}_{c}" for c in piece.outs) + ";")
        self.lines.append("{")
        known = self.placed(piece.step)
        self.look(sorted({v for members in known.values() for v in members}))
        names: dict[tuple[int, int], str] = {(1, -1): ""}
        late: dict[tuple[int, int], str] = {}  # fetched where they are used: to wait takes registers
        for side, t in enumerate(s.ins):
            cells = sorted(piece.cells(side))
            for c in cells:
                value = self.given(self.cell(t, c), self.digits(scopes[t], c, known[t]))
                names[side, c] = value
                if known[t] or value.startswith("L("):
                    names[side, c] = f"x{side}_{c}"
                    line = f"const double {names[side, c]} = {value};"
                    if len(cells) >= LATE and "L(" in value:
                        late[side, c] = line
                    else:
                        self.lines.append(line)
        for tile in piece.tiles:
            self.tile(s.out, tile, names, late, known[s.out])
        self.lines.append("}")

    def tile(
        self, table: int, tile: Sequence[tuple[int, int, int]], names: Mapping[tuple[int, int], str],
        late: Mapping[tuple[int, int], str], known: Sequence[int],
    ) -> None:  # fmt: skip
        """Some outputs of a contraction, whole."""
        scope, large = self.live.program.scopes[table], int(self.live.live(table).sum()) >= BIG
        fetched: set[tuple[int, int]] = set()
        begun: set[int] = set()
        self.lines.append("{")
        for o, *cells in tile:
            for key in enumerate(cells):
                if key in late and key not in fetched:
                    fetched.add(key)
                    self.lines.append(late[key])
            name, left, right = f"t{table}_{o}", names[0, cells[0]], names[1, cells[1]]
            if o in begun:
                text = f"fma({left}, {right}, {name})" if right else f"{name} + {left}"
            else:
                text = f"{left} * {right}" if right else left
            begun.add(o)
            self.lines.append(f"{name} = {text};")
        for o in sorted(begun):
            if known:
                value = self.given(f"t{table}_{o}", self.digits(scope, o, known))
                self.lines.append(f"t{table}_{o} = {value};")
            self.keep(f"t{table}_{o}", large)
        self.lines.append("}")

    def total(self, roots: Sequence[int]) -> None:
        """ln P(e), and what posteriors are multiplied by."""
        self.lines.append("double total = 0.0;")
        for i, t in enumerate(roots):
            value = self.cell(t, 0) if self.live.support[t][0] else "0.0"
            self.lines.append(f"const double root{i} = {value}; total += log_of(root{i});")
            self.lines.append(f"const double inverse{i} = root{i} > 0.0 ? 1.0 / root{i} : 0.0;")
            self.keep(f"inverse{i}")
        self.lines.append("b.log_evidence[at] = total;")

    def answer(self, v: int, component: int) -> None:
        """Store a posterior, where it is wanted."""
        t = int(self.plan.posterior_table[v])
        inverse = self.fetched(f"inverse{component}")
        self.lines.append(f"if (b.column[{v}] != NONE) {{ double* out = row + (u64)b.column[{v}] * b.n_cases;")
        for k in range(int(self.plan.cardinality[v])):
            value = f"{self.cell(t, k)} * {inverse}" if self.live.support[t][k] else "0.0"
            self.lines.append(f"out[{k} * (u64)b.n_cases] = {value};" if k else f"*out = {value};")
        self.lines.append("}")

    def part(self, blocks: int, *, answers: bool) -> Part:
        """The kernel of all that was written."""
        body = "\n".join(self.lines)
        source = f"""#include "resident/batch_lane.cuh"
#ifdef __CUDACC__
__constant__ double constants[{max(len(self.constants), 1)}];
#define K(i) constants[i]
#else
#define K(i) b.factors[i]
#endif
#define M(i) own[(i) * {LANE_THREADS}]
#define L(i) fetch(own + (i) * {LANE_THREADS})
extern "C" __global__ void __launch_bounds__({LANE_THREADS}, {blocks}) batch_lane(Lane b) {{
const u32 at = blockIdx.x * {LANE_THREADS} + threadIdx.x;
if (at >= b.n_cases) return;
double* const own = b.arena + (u64)blockIdx.x * {LANE_THREADS * max(self.crossings.cells, 1)} + threadIdx.x;
double* const row = b.posterior + at;
{body}
}}
"""
        values = np.array([self.live.factors[f][c] for f, c in self.constants] or [0.0])
        return Part(source, values, answers)


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


def _cut(pieces: Sequence[Sequence[_Piece]], lines: Sequence[int], n_up: int) -> list[list[_Piece]]:
    """The pieces of each part. The messages to the roots end a part, so that ln P(e) alone costs no more."""
    if sum(lines) <= MOST_ALONE:
        return [[x for members in pieces for x in members]]
    parts: list[list[_Piece]] = []
    for half in (pieces[:n_up], pieces[n_up:]):
        sized = [(x, lines[x.step] / len(members)) for members in half for x in members]
        whole = sum(size for _, size in sized)
        share = whole / max(1, -(-int(whole) // MOST_LINES))
        filled = 0.0
        here: list[_Piece] = []
        for x, size in sized:
            if here and filled + size / 2 > share:
                parts.append(here)
                filled, here = filled - share, []
            here.append(x)
            filled += size
        if here:
            parts.append(here)
    return parts


def lane_parts(plan: Plan, live: Live, *, weights: bool, blocks: int) -> tuple[list[Part], int]:
    """The kernels that answer a case.

    Parameters
    ----------
    plan : Plan
    live : Live
    weights : bool
        Whether some variables may have weights.
    blocks : int
        Blocks that an SM shall hold: bounds the registers of a thread.

    Returns
    -------
    parts : list of Part
    cells : int
        Scratch memory of a thread that lives from part to part, in doubles.
    """
    roots, steps = plan.root_table.tolist(), live.program.steps
    order, n_up = step_order(live, roots)
    lines = lines_of(live)
    parts = _cut(_pieces(live, order, lines), lines, n_up)
    up = set(order[:n_up])
    with_total = max((p for p, members in enumerate(parts) if any(x.step in up for x in members)), default=0)
    home = _components(live, roots, plan.posterior_table.tolist())
    answered = {int(t): v for v, t in enumerate(plan.posterior_table.tolist())}
    more = [(f"inverse{i}", with_total, len(parts) - 1) for i in range(len(roots))]
    more += [(f"t{t}_0", -1, with_total) for t in roots if t >= plan.n_factors and live.support[t][0]]
    for p, members in enumerate(parts):
        for t in (steps[x.step].out for x in members if x.last and steps[x.step].out in answered):
            more += [(f"t{t}_{c}", -1, p) for c in np.flatnonzero(live.support[t]).tolist()]
    crossings = _Crossings(live, parts, more)
    made = []
    for p, members in enumerate(parts):
        writer = _Writer(plan, live, crossings, weights=weights)
        for x in members:
            if x.step in up:
                writer.step(x)
        if p == with_total:
            writer.total(roots)
            writer.lines.append("if (b.n_out == 0) return;")
        for x in members:
            if x.step not in up:
                writer.step(x)
                if x.last and steps[x.step].out in answered:
                    v = answered[steps[x.step].out]
                    writer.answer(v, home[v])
        made.append(writer.part(blocks, answers=p > with_total))
    return made, crossings.cells
