"""Kernels written for one network: a thread a case, every contraction spelled out (cuda/resident/batch_lane.cuh).

Text and integers only; knows no device. `jtgpu.backends.gpu.batch_lane` compiles and runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...plan import Plan
from .batch_live import Live

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LANE_THREADS", "Part", "lane_parts", "lines_of", "step_order"]

LANE_THREADS = 128
MOST_LINES = 6000  # of one kernel: nvcc takes two or three seconds for so many, and more than linearly for more
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


@dataclass(frozen=True)
class Part:
    """One kernel; the parts of a network run one after another."""

    source: str
    factors: NDArray[np.float64]  # what its constant memory holds
    answers: bool  # whether posteriors are all that it is for


@dataclass(frozen=True)
class _Piece:
    """Some outputs of a contraction, and their live multiply-adds."""

    step: int
    outs: list[int]
    bounds: list[int]  # where each output's terms begin, and the end
    a: list[int]
    b: list[int]
    last: bool  # whether no more of the contraction comes


def _pieces(live: Live, order: Sequence[int], lines: Sequence[int]) -> list[list[_Piece]]:
    """The contractions in their order, large ones in pieces that a kernel has room for."""
    found = []
    for step in order:
        terms = live.terms(step)
        outs, first = np.unique(terms.out, return_index=True)
        ends = np.append(first, len(terms.out))
        ways = min(max(-(-lines[step] // MOST_LINES), 1), max(len(outs), 1))
        made = []
        for i in range(ways):
            low, high = i * len(outs) // ways, (i + 1) * len(outs) // ways
            begin, end = int(ends[low]), int(ends[high])
            bounds = (ends[low : high + 1] - begin).tolist()
            a, b = terms.a[begin:end].tolist(), terms.b[begin:end].tolist()
            made.append(_Piece(step, outs[low:high].tolist(), bounds, a, b, i == ways - 1))
        found.append(made)
    return found


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
                for t, cells in zip(s.ins, (piece.a, piece.b), strict=False):
                    if t in maker:
                        last |= {f"t{t}_{c}": p for c in cells}
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
        return name if name in self.made else f"M({self.crossings.place[name]})"

    def keep(self, name: str) -> None:
        """Leave a number for later parts, if any wants it."""
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
        if not piece.outs:
            return
        self.lines.append("double " + ", ".join(f"t{s.out}_{c}" for c in piece.outs) + ";")
        self.lines.append("{")
        known = self.placed(piece.step)
        self.look(sorted({v for members in known.values() for v in members}))
        names: dict[tuple[int, int], str] = {}
        for side, (t, cells) in enumerate(zip(s.ins, (piece.a, piece.b), strict=False)):
            for c in sorted(set(cells)):
                value = self.given(self.cell(t, c), self.digits(scopes[t], c, known[t]))
                names[side, c] = value
                if known[t] or value.startswith("M("):
                    names[side, c] = f"x{side}_{c}"
                    self.lines.append(f"const double x{side}_{c} = {value};")
        a, b = piece.a, piece.b
        for o, first, last in zip(piece.outs, piece.bounds, piece.bounds[1:], strict=False):
            name = f"t{s.out}_{o}"
            for i in range(first, last):
                left, right = names[0, a[i]], names[1, b[i]] if b else ""
                if i == first:
                    text = f"{left} * {right}" if b else left
                else:
                    text = f"fma({left}, {right}, {name})" if b else f"{name} + {left}"
                self.lines.append(f"{name} = {text};")
            if known[s.out]:
                self.lines.append(f"{name} = {self.given(name, self.digits(scopes[s.out], o, known[s.out]))};")
            self.keep(name)
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
        self.lines.append(f"if (b.column[{v}] != NONE) {{ double* out = row + b.column[{v}];")
        for k in range(int(self.plan.cardinality[v])):
            value = f"{self.cell(t, k)} * {inverse}" if self.live.support[t][k] else "0.0"
            self.lines.append(f"out[{k}] = {value};")
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
extern "C" __global__ void __launch_bounds__({LANE_THREADS}, {blocks}) batch_lane(Lane b) {{
const u32 at = blockIdx.x * {LANE_THREADS} + threadIdx.x;
if (at >= b.n_cases) return;
double* const own = b.arena + (u64)blockIdx.x * {LANE_THREADS * max(self.crossings.cells, 1)} + threadIdx.x;
double* const row = b.posterior + (u64)at * b.n_out;
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
