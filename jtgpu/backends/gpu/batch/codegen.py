"""Text of the kernels that are generated for one network: a thread a case, straight-line code (cuda/batch/lane.cuh).

Text and integers only; knows no device. `jtgpu.backends.gpu.batch.generated` compiles and runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..lower import evidence_of
from .parts import KernelPart, Piece, partition
from .sparsity import Sparsity

LANE_THREADS = 128
LARGE = 64  # entries of a table from which on those that a later kernel reads are read from memory by this one, too
LATE = 24  # entries of a table from which on they are loaded from scratch memory tile by tile, not at once


@dataclass(frozen=True)
class Kernel:
    """One kernel; those of a network run one after another."""

    source: str
    answers_only: bool  # whether it computes nothing but posteriors
    entries: tuple[tuple[int, int], ...]  # factor and cell of each number that it reads from constant memory


class LaneScratch:
    """Numbers that a later kernel reads, and their cells in the thread's scratch memory."""
    # made, read: Number to the kernel that computes it, and to the last one that reads it

    def __init__(self, made: Mapping[str, int], read: Mapping[str, int]):
        self.cell: dict[str, int] = {}
        self.size = 0
        ending: dict[int, list[str]] = {}
        free: list[int] = []
        for kernel, name in sorted((k, name) for name, k in made.items() if read.get(name, k) > k):
            for k in sorted(k for k in ending if k < kernel):
                free += sorted((self.cell[x] for x in ending.pop(k)), reverse=True)
            if free:
                self.cell[name] = free.pop()
            else:
                self.cell[name] = self.size
                self.size += 1
            ending.setdefault(read[name], []).append(name)


def _scratch(sparsity: Sparsity, parts: Sequence[KernelPart]) -> LaneScratch:
    """Memory that kernels leave for later ones."""
    program = sparsity.program
    steps, roots, answers = program.steps, program.roots, set(program.answers)
    made: dict[str, int] = {}
    read: dict[str, int] = {}
    for k, part in enumerate(parts):
        for piece in part.pieces:
            s = steps[piece.step]
            made |= {f"t{s.out}_{c}": k for c in piece.outs}
            for side, t in enumerate(s.ins):
                read |= {f"t{t}_{c}": k for c in piece.cells(side)}
            if piece.last and s.out in answers:
                read |= {f"t{s.out}_{c}": k for c in np.flatnonzero(sparsity.nonzero[s.out]).tolist()}
                read[f"inverse{program.component[s.out]}"] = k
        if part.has_total:
            made |= {f"inverse{i}": k for i in range(len(roots))}
            read |= {f"t{t}_0": max(read.get(f"t{t}_0", 0), k) for t in roots}
    return LaneScratch(made, read)


class LaneWriter:
    """Writes the lines of one kernel."""

    parameters = "Lane b"

    def __init__(self, sparsity: Sparsity, scratch: LaneScratch, *, weights: bool):
        self.plan, self.sparsity, self.scratch, self.weights = sparsity.program.plan, sparsity, scratch, weights
        self.roots = sparsity.program.roots
        self.constants: dict[tuple[int, int], int] = {}
        self.lines: list[str] = []
        self._variable = {int(t): v for v, t in enumerate(self.plan.posterior_table.tolist())}
        self._registers: set[str] = set()  # numbers that this kernel has computed and not only stored
        self._evidence = evidence_of(self.plan)

    def entry(self, table: int, cell: int) -> str:
        """An entry of a factor, or one that was computed before."""
        if table < self.plan.n_factors:
            return f"K({self.constants.setdefault((table, cell), len(self.constants))})"
        return self._load(f"t{table}_{cell}")

    def _load(self, name: str) -> str:
        return name if name in self._registers else f"L({self.scratch.cell[name]})"

    def _save(self, name: str, *, only_memory: bool = False) -> None:
        """Store a number for later kernels, if any reads it; `only_memory`: and free its register."""
        if name in self.scratch.cell:
            self.lines.append(f"M({self.scratch.cell[name]}) = {name};")
        if not only_memory or name not in self.scratch.cell:
            self._registers.add(name)

    def _with_evidence(self, value: str, states: Iterable[tuple[int, int]]) -> str:
        """A number times the evidence on (variable, state) pairs."""
        for v, k in states:
            if self.weights:
                value = f"weighted(b, {value}, s{v}, r{v}, {k}, at)"
            else:
                value = f"observed({value}, s{v}, {k})"
        return value

    def _states(self, scope: tuple[int, ...], cell: int, variables: Iterable[int]) -> list[tuple[int, int]]:
        """The states of some variables of a table in one of its cells."""
        states = []
        for v in variables:
            inner = self.plan.size(scope[scope.index(v) + 1 :])
            states.append((v, cell // inner % int(self.plan.cardinality[v])))
        return states

    def _placed(self, step: int) -> dict[int, list[int]]:
        """For each table of a contraction the variables whose evidence multiplies it: the smallest that has them."""
        s, scopes = self.sparsity.program.steps[step], self.sparsity.program.scopes
        placed: dict[int, list[int]] = {t: [] for t in (s.out, *s.ins)}
        for t in s.ins:
            for v in self._evidence.get(t, ()):
                holders = [x for x in placed if v in scopes[x]]
                placed[min(holders, key=lambda x: (int(self.sparsity.used(x).sum()), x))].append(v)
        return placed

    def step(self, piece: Piece) -> None:
        """One contraction, or a piece of it."""
        s, scopes = self.sparsity.program.steps[piece.step], self.sparsity.program.scopes
        if not piece.tiles:
            return
        self.lines += ["double " + ", ".join(f"t{s.out}_{c}" for c in piece.outs) + ";", "{"]
        placed = self._placed(piece.step)
        for v in sorted({v for members in placed.values() for v in members}):
            self.lines.append(f"const int s{v} = b.state[(u64){v} * b.n_cases + at];")
            if self.weights:
                self.lines.append(f"const u32 r{v} = b.weight_row[{v}];")
        names: dict[tuple[int, int], str] = {(1, -1): ""}
        late: dict[tuple[int, int], str] = {}  # loads that are written where they are used: waiting takes registers
        for side, t in enumerate(s.ins):
            cells = sorted(piece.cells(side))
            for c in cells:
                value = self._with_evidence(self.entry(t, c), self._states(scopes[t], c, placed[t]))
                names[side, c] = value
                if not placed[t] and not value.startswith("L("):
                    continue
                names[side, c] = f"x{side}_{c}"
                line = f"const double x{side}_{c} = {value};"
                if len(cells) >= LATE and "L(" in value:
                    late[side, c] = line
                else:
                    self.lines.append(line)
        for tile in piece.tiles:
            self._tile(s.out, tile, names, late, placed[s.out])
        self.lines.append("}")

    def _tile(
        self, table: int, tile: Sequence[tuple[int, int, int]], names: Mapping[tuple[int, int], str],
        late: Mapping[tuple[int, int], str], variables: Sequence[int],
    ) -> None:  # fmt: skip
        """Some outputs of a contraction, each summed whole; `variables`: those whose evidence multiplies them."""
        scope, is_large = self.sparsity.program.scopes[table], int(self.sparsity.used(table).sum()) >= LARGE
        loads = [late[key] for key in dict.fromkeys(k for _, *c in tile for k in enumerate(c)) if key in late]
        if loads:
            self.lines += ["{", *loads]
        begun: set[int] = set()
        for o, *cells in tile:
            name, left, right = f"t{table}_{o}", names[0, cells[0]], names[1, cells[1]]
            if o in begun:
                text = f"fma({left}, {right}, {name})" if right else f"{name} + {left}"
            else:
                text = f"{left} * {right}" if right else left
            begun.add(o)
            self.lines.append(f"{name} = {text};")
        for o in sorted(begun):
            name = f"t{table}_{o}"
            if variables:
                self.lines.append(f"{name} = {self._with_evidence(name, self._states(scope, o, variables))};")
            self._save(name, only_memory=is_large)
        if loads:
            self.lines.append("}")

    def total(self) -> None:
        """ln P(e), and what the posteriors of each component are multiplied by."""
        self.lines.append("double total = 0.0;")
        for i, t in enumerate(self.roots):
            value = self.entry(t, 0) if self.sparsity.nonzero[t][0] else "0.0"
            self.lines.append(f"const double root{i} = {value}; total += log_of(root{i});")
            self.lines.append(f"const double inverse{i} = root{i} > 0.0 ? 1.0 / root{i} : 0.0;")
            self._save(f"inverse{i}")
        self.lines += ["b.log_evidence[at] = total;", "if (b.n_out == 0) return;"]

    def answer(self, table: int, component: int) -> None:
        """Store a posterior, if it is wanted."""
        t, v = table, self._variable[table]
        inverse = self._load(f"inverse{component}")
        self.lines.append(f"if (b.column[{v}] != NONE) {{ double* out = row + (u64)b.column[{v}] * b.n_cases;")
        for k in range(int(self.plan.cardinality[v])):
            value = f"{self.entry(t, k)} * {inverse}" if self.sparsity.nonzero[t][k] else "0.0"
            self.lines.append(f"out[{k} * (u64)b.n_cases] = {value};" if k else f"*out = {value};")
        self.lines.append("}")

    def kernel(self, blocks: int, *, answers_only: bool) -> Kernel:
        """The kernel of all lines."""
        body = "\n".join(self.lines)
        source = f"""#include "batch/lane.cuh"
#ifdef __CUDACC__
__constant__ double constants[{max(len(self.constants), 1)}];
#define K(i) constants[i]
#else
#define K(i) b.factors[i]
#endif
#define M(i) own[(i) * {LANE_THREADS}]
#define L(i) load(own + (i) * {LANE_THREADS})
extern "C" __global__ void __launch_bounds__({LANE_THREADS}, {blocks}) batch_lane({self.parameters}) {{
const u32 at = blockIdx.x * {LANE_THREADS} + threadIdx.x;
if (at >= b.n_cases) return;
double* const own = b.arena + (u64)blockIdx.x * {LANE_THREADS * max(self.scratch.size, 1)} + threadIdx.x;
double* const row = b.posterior + at;
{body}
}}
"""
        return Kernel(source, answers_only, tuple(self.constants))


def generate_kernels(sparsity: Sparsity, *, weights: bool, blocks: int) -> tuple[list[Kernel], int]:
    """The kernels that answer a case."""
    # weights: Whether some variables may have weights
    # blocks: Blocks that an SM shall hold: bounds the registers of a thread
    # returns cells: Scratch memory of a thread, in doubles
    return write_kernels(partial(LaneWriter, sparsity, weights=weights), sparsity, blocks)


def write_kernels(
    make_writer: Callable[[LaneScratch], LaneWriter], sparsity: Sparsity, blocks: int
) -> tuple[list[Kernel], int]:
    """The kernels of some contractions, and the scratch memory of a thread, in doubles."""
    # make_writer: Makes the writer of a kernel
    # sparsity: Of the contractions
    # blocks: See `generate_kernels`
    program, parts = sparsity.program, partition(sparsity)
    scratch, answers = _scratch(sparsity, parts), set(program.answers)
    made, has_total = [], False
    for part in parts:
        writer = make_writer(scratch)
        for piece in part.up:
            writer.step(piece)
        if part.has_total:
            writer.total()
        for piece in part.down:
            writer.step(piece)
            table = program.steps[piece.step].out
            if piece.last and table in answers:
                writer.answer(table, program.component[table])
        made.append(writer.kernel(blocks, answers_only=has_total))
        has_total = has_total or part.has_total
    return made, scratch.size
