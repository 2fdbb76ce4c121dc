"""Kernels written for one network: a thread a case, every contraction spelled out (cuda/batch/lane.cuh).

Text and integers only; knows no device. `jtgpu.backends.gpu.batch.generated` compiles and runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....plans.plan import Plan
from .live import Live

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LANE_THREADS", "Part", "Piece", "PlainWriter", "Writer"]

LANE_THREADS = 128


@dataclass(frozen=True)
class Part:
    """One kernel; the parts of a network run one after another."""

    source: str
    factors: NDArray[np.float64]  # what its constant memory holds
    answers: bool  # whether posteriors are all that it is for
    shared: int = 0  # bytes of shared memory that a block takes


@dataclass(frozen=True)
class Piece:
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


class Writer:
    """Writes the lines of one kernel; where numbers wait is a subclass's matter."""

    def __init__(self, plan: Plan, live: Live, *, weights: bool):
        self.plan, self.live, self.weights = plan, live, weights
        self.constants: dict[tuple[int, int], int] = {}
        self.lines: list[str] = []
        self._placed: dict[int, dict[int, list[int]]] = {}
        self.evidence: dict[int, list[int]] = {}
        for v, f in enumerate(plan.evidence_factor.tolist()):
            self.evidence.setdefault(f, []).append(v)

    def cell(self, table: int, cell: int) -> str:
        """A number of the model, or one that was made before."""
        if table < self.plan.n_factors:
            return f"K({self.constants.setdefault((table, cell), len(self.constants))})"
        return self.made(table, cell)

    def made(self, table: int, cell: int) -> str:
        """The name of a number that was made before."""
        return f"t{table}_{cell}"

    def inverse(self, component: int) -> str:
        """The name of what posteriors of a component are multiplied by."""
        return f"inverse{component}"

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
        if step in self._placed:
            return self._placed[step]
        s, scopes = self.live.program.steps[step], self.live.program.scopes
        known: dict[int, list[int]] = {t: [] for t in (s.out, *s.ins)}
        for t in s.ins:
            for v in self.evidence.get(t, ()):
                holders = [x for x in known if v in scopes[x]]
                known[min(holders, key=lambda x: (int(self.live.live(x).sum()), x))].append(v)
        self._placed[step] = known
        return known

    def total(self, roots: Sequence[int]) -> None:
        """ln P(e), and what posteriors are multiplied by."""
        self.lines.append("double total = 0.0;")
        for i, t in enumerate(roots):
            value = self.cell(t, 0) if self.live.support[t][0] else "0.0"
            self.lines.append(f"const double root{i} = {value}; total += log_of(root{i});")
            self.lines.append(f"const double inverse{i} = root{i} > 0.0 ? 1.0 / root{i} : 0.0;")
        self.lines.append("b.log_evidence[at] = total;")

    def answer(self, v: int, component: int) -> None:
        """Store a posterior, where it is wanted."""
        t = int(self.plan.posterior_table[v])
        inverse = self.inverse(component)
        self.lines.append(f"if (b.column[{v}] != NONE) {{ double* out = row + (u64)b.column[{v}] * b.n_cases;")
        for k in range(int(self.plan.cardinality[v])):
            value = f"{self.cell(t, k)} * {inverse}" if self.live.support[t][k] else "0.0"
            self.lines.append(f"out[{k} * (u64)b.n_cases] = {value};" if k else f"*out = {value};")
        self.lines.append("}")

    def kernel(self, blocks: int, cells: int, slots: int = 0, *, answers: bool) -> Part:
        """The kernel of all that was written; `cells`: of a thread's scratch memory, `slots`: of its shared memory."""
        body = "\n".join(self.lines)
        source = f"""#define KEPT {slots * LANE_THREADS}
#include "batch/lane.cuh"
#ifdef __CUDACC__
__constant__ double constants[{max(len(self.constants), 1)}];
#define K(i) constants[i]
#else
#define K(i) b.factors[i]
#endif
#define M(i) own[(i) * {LANE_THREADS}]
#define L(i) fetch(own + (i) * {LANE_THREADS})
#define S(i) kept(memory + threadIdx.x + (i) * {LANE_THREADS})
#define KEEP(i, value) keep(memory + threadIdx.x + (i) * {LANE_THREADS}, value)
extern "C" __global__ void __launch_bounds__({LANE_THREADS}, {blocks}) batch_lane(Lane b) {{
const u32 at = blockIdx.x * {LANE_THREADS} + threadIdx.x;
if (at >= b.n_cases) return;
double* const own = b.arena + (u64)blockIdx.x * {LANE_THREADS * max(cells, 1)} + threadIdx.x;
double* const row = b.posterior + at;
{body}
}}
"""
        values = np.array([self.live.factors[f][c] for f, c in self.constants] or [0.0])
        return Part(source, values, answers, 8 * slots * LANE_THREADS)


class PlainWriter(Writer):
    """Writes a network small enough for one kernel; the compiler says what waits where."""

    def step(self, piece: Piece) -> None:
        """One contraction."""
        s, scopes = self.live.program.steps[piece.step], self.live.program.scopes
        if not piece.tiles:
            return
        self.lines.append("double " + ", ".join(f"t{s.out}_{c}" for c in piece.outs) + ";")
        self.lines.append("{")
        known = self.placed(piece.step)
        self.look(sorted({v for members in known.values() for v in members}))
        names: dict[tuple[int, int], str] = {(1, -1): ""}
        for side, t in enumerate(s.ins):
            for c in sorted(piece.cells(side)):
                names[side, c] = value = self.given(self.cell(t, c), self.digits(scopes[t], c, known[t]))
                if known[t]:
                    names[side, c] = f"x{side}_{c}"
                    self.lines.append(f"const double {names[side, c]} = {value};")
        for tile in piece.tiles:
            begun: set[int] = set()
            for o, *cells in tile:
                name, left, right = self.made(s.out, o), names[0, cells[0]], names[1, cells[1]]
                if o in begun:
                    text = f"fma({left}, {right}, {name})" if right else f"{name} + {left}"
                else:
                    text = f"{left} * {right}" if right else left
                begun.add(o)
                self.lines.append(f"{name} = {text};")
            for o in sorted(begun if known[s.out] else ()):
                value = self.given(self.made(s.out, o), self.digits(scopes[s.out], o, known[s.out]))
                self.lines.append(f"{self.made(s.out, o)} = {value};")
        self.lines.append("}")
