"""The resident engine's kernels compiled by g++ and run on the host, over the arrays that the card would get."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jtgpu.backends.base import Evidence, Result
from jtgpu.backends.gpu.batch.records import answers_of, batch_layout
from jtgpu.backends.gpu.batch.table import scale_weights
from jtgpu.backends.gpu.program import encoding as answers
from jtgpu.backends.gpu.program.layout import chunks_with_tops, load_factors
from jtgpu.backends.gpu.program.nonzero import needed_products
from jtgpu.backends.gpu.single.levels.pattern import Whole, left_of, scaled_whole, with_cuts
from jtgpu.backends.gpu.single.levels.schedule import Schedule, make_schedule
from jtgpu.backends.gpu.single.sparse.lists import MOST_GIVEN, make_lists
from jtgpu.backends.gpu.single.specialised.build import source_of
from jtgpu.device import nvcc as kernels
from jtgpu.plans.plan import Plan

SHIM = Path(__file__).with_name("host_cuda.hpp")

SOURCES = {
    "single": "single/levels", "shaped": "single/shaped", "lists": "single/lists", "flow": "single/dataflow",
    "batch": "batch/batch",
}  # fmt: skip
_CALLS = {
    "single": """
extern "C" void run_enter(unsigned n, Program* p, Entry* e) { host::launch(n, 256, [=] { enter(*p, *e); }); }
extern "C" void run_enter_cut(unsigned n, Program* p, Entry* e, CutEntry* c) {
    host::launch(n, 256, [=] { enter_cut(*p, *e, *c); });
}
extern "C" void run_level(unsigned n, int heavy, Program* p, unsigned first) {
    host::launch(n, 256, [=] { if (heavy) level_heavy(*p, first); else level_light(*p, first); });
}
extern "C" void run_finish(unsigned n, Program* p, Finish* f) { host::launch(n, 256, [=] { finish(*p, *f); }); }
""",
    "shaped": """
extern "C" void run_shaped(unsigned n, Program* p, const Job* jobs, unsigned n_blocks, unsigned task) {
    host::launch(n, 256, [=] { level_shaped(*p, jobs, n_blocks, task); });
}
""",
    "lists": """
extern "C" void run_lists(Lists* f) {
    static std::vector<double> memory(1 << 16);
    host_memory = memory.data();
    host::launch(1, LIST_THREADS, [=] { lists_one(*f); });
}
""",
    "flow": """
extern "C" void run_flow_plain(unsigned warps, Flow* f) { host::launch(1, 32 * warps, [=] { flow_plain(*f); }); }
extern "C" void run_flow_blocks(unsigned warps, Flow* f) { host::launch(1, 32 * warps, [=] { flow_blocks(*f); }); }
""",
    "batch": """
extern "C" void run_batch_transpose(unsigned n, Rows* r) { host::launch(n, 256, [=] { batch_transpose(*r); }); }
extern "C" void run_batch_scatter(unsigned n, Columns* c) { host::launch(n, 256, [=] { batch_scatter(*c); }); }
extern "C" void run_batch_clear(unsigned n, unsigned long long* words, unsigned each, unsigned times) {
    host::launch(n, 256, [=] { batch_clear(words, each, times); });
}
extern "C" void run_batch_enter(unsigned n, Batch* b) { host::launch(n, 256, [=] { batch_enter(*b); }); }
extern "C" void run_batch_level(unsigned n, unsigned warps, Batch* b, unsigned first, unsigned n_tiles) {
    host::launch(n, warps * 32, [=] { batch_level(*b, first, n_tiles); });
}
extern "C" void run_batch_check(unsigned n, Batch* b, Check* checks, unsigned n_checks) {
    host::launch(n, 256, [=] { batch_check(*b, checks, n_checks); });
}
extern "C" void run_batch_rows(unsigned n, Answers* a) { host::launch(n, 256, [=] { batch_rows(*a); }); }
extern "C" void run_batch_finish(unsigned n, Batch* b) { host::launch(n, 256, [=] { batch_finish(*b); }); }
""",
}
_built: dict[tuple[str, str], ctypes.CDLL] = {}


def compiler() -> str | None:
    """The C++ compiler, or None."""
    return shutil.which("g++")


def library(name: str, real: str = "float64") -> ctypes.CDLL:
    """A kernel file as a shared library of the host; built once a session, kept by content."""
    if (name, real) not in _built:
        _built[name, real] = build(name, kernels.read_source(SOURCES[name], real=real))
    return _built[name, real]


def build(name: str, source: str) -> ctypes.CDLL:
    """A source, joined with the calls of a file of kernels, as a shared library; kept by content."""
    source = re.sub(r'extern "C" __global__', "__global__", source)
    text = f"{SHIM.read_text(encoding='utf-8')}\n{source}\n{_CALLS[name]}"
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    out = Path(tempfile.gettempdir(), f"jtgpu-host-{name}-{key}.so")
    if not out.exists():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kernel.cpp")
            path.write_text(text, encoding="utf-8")
            part = Path(folder, "kernel.so")
            command = ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", "-w", "-o", str(part), str(path)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            shutil.move(part, out)
    return ctypes.CDLL(str(out))


class HostEngine:
    """`jtgpu.backends.gpu.single.levels.engine.Engine` with the host in place of the card."""

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        lists: bool = False,
        real: str = "float64",
        codes: bool = False,
    ):
        listed = needed_products(plan, factors) if lists else None
        self.plan, self.schedule = plan, self.settled(make_schedule(plan, listed=listed, real=real, codes=codes))
        s = self.schedule
        self.shaped = s.shaped
        if self.shaped is not None:
            self.shaped_libraries = [build("shaped", source_of(k, real)) for k in self.shaped.kernels]
        self.library = library("single", real)
        self.pristine, self.slots = load_factors(plan, s, factors)
        self.arena = np.full(s.n_cells, np.nan, real)
        self.arena[: s.factor_cells] = self.pristine
        if lists:  # always zero, and never written
            self.arena[s.factor_cells :] = 0.0
        self.arena[s.table_cell[-1]] = 1.0
        self.state = np.zeros(plan.n_variables, np.int32)
        self.weights = np.full(int(plan.posterior_ptr[-1]), np.nan)
        self.posterior = np.zeros(self.answer_cells())
        self.root, self.exponent = np.zeros(len(plan.root_table)), np.zeros(len(plan.root_table), np.int32)
        self.own = [
            np.full(max(s.n_scratch, 1), np.nan, real), np.zeros(s.n_counters + 1, np.uint32),
            np.zeros(len(s.chunks) + 1, np.uint32), chunks_with_tops(s, self.pristine),
        ]  # fmt: skip
        scratch, counters, dirty, chunks = self.own
        self.slots["top"][s.chunks["table"]] = 0
        self.program = _pointers(
            self.arena, self.slots, s.ops, s.digits, s.steps, s.tasks, scratch, counters, s.rounds, s.rows
        )
        self.entry = _pointers(chunks, s.known, self.pristine, self.state, self.weights, dirty)
        counts = [len(s.answers), len(plan.root_table), s.n_factors, s.n_tables - 1, len(chunks), 0]
        sizes = np.array(counts, np.uint32)
        self.doubt = np.zeros(1, np.int32)
        written = (self.posterior, self.root, self.exponent)
        given = _pointers(s.answers, s.roots, *written, chunks, s.checks, self.doubt)
        self.finish = np.concatenate([given, np.zeros(1, np.uint64), sizes.view(np.uint64)])  # no slab: null

    def run(self, evidence: Evidence) -> Result:
        more = answers.write_evidence(self.plan, evidence, self.state, self.weights)
        self.doubt[0] = 0
        lib, s = self.library, self.schedule
        self.enter()
        for i, x in enumerate(s.levels):
            mine = self.shaped.levels[i] if self.shaped is not None else None
            if mine is None:
                lib.run_level(x.n_blocks, int(x.heavy), _at(self.program), x.first)
                continue
            run = self.shaped_libraries[mine.kernel].run_shaped
            assert self.shaped is not None
            jobs = _at(self.shaped.jobs[mine.first :])
            run(mine.n_blocks + x.n_blocks, _at(self.program), jobs, mine.n_blocks, x.first)
        lib.run_finish(2, _at(self.program), _at(self.finish))
        log_evidence = answers.log_evidence(self.root, self.exponent, more)
        return Result(self.posterior.copy(), log_evidence)


    def answer_cells(self) -> int:
        return int(self.plan.posterior_ptr[-1])

    def settled(self, schedule: Schedule) -> Schedule:
        """The schedule that runs."""
        return schedule

    def enter(self) -> None:
        """Bring the evidence in."""
        self.library.run_enter(len(self.schedule.chunks), _at(self.program), _at(self.entry))


class HostCut(HostEngine):
    """`jtgpu.backends.gpu.single.levels.pattern.CutEngine` with the host in place of the card."""

    def __init__(self, plan: Plan, whole: Whole, lists: bool = False, real: str = "float64"):
        self.whole, self.kept = whole, np.flatnonzero(~whole.seen)
        self.observed = np.full(len(whole.seen), -7, np.int32)
        super().__init__(plan, whole.largest, lists, real)
        self.cells = scaled_whole(whole, self.slots, real)
        self.cut_entry = _pointers(self.cuts, self.axes, self.cells, self.observed)

    nanoseconds = 1
    n_bytes = 100

    def answer_cells(self) -> int:
        return int(self.whole.posterior_ptr[-1])

    def settled(self, schedule: Schedule) -> Schedule:
        made, self.cuts, self.axes = with_cuts(schedule, self.whole)
        return made

    def enter(self) -> None:
        n = len(self.schedule.chunks)
        self.library.run_enter_cut(n, _at(self.program), _at(self.entry), _at(self.cut_entry))

    def run(self, evidence: Evidence) -> Result:
        self.observed[:] = evidence.state
        return super().run(left_of(evidence, self.kept, {int(v): w for w, v in enumerate(self.kept)}))

    def close(self) -> None:
        self.closed = True

    closed = False


def _pointers(*arrays: NDArray[Any]) -> NDArray[np.uint64]:
    return np.array([a.ctypes.data for a in arrays], np.uint64)


def _at(a: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(a.ctypes.data)


class HostLists:
    """`jtgpu.backends.gpu.single.sparse.engine.ListEngine` with the host in place of the card; a block alone."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]]):
        self.plan = plan
        made = make_lists(plan, factors, 1 << 19, (1,))
        assert made is not None
        self.lists = made
        self.state = np.zeros(plan.n_variables, np.int32)
        self.weights = np.full(int(plan.posterior_ptr[-1]), np.nan)
        self.posterior = np.zeros(int(plan.posterior_ptr[-1]))
        self.root, self.exponent = np.zeros(len(plan.root_table)), np.zeros(len(plan.root_table), np.int32)
        arrays = (made.image, made.axes, self.weights, self.posterior, self.root)
        head = [_pointers(*arrays).view(np.uint8), made.layout.view(np.uint8)]
        self.struct = np.concatenate([*head, np.zeros(2 * MOST_GIVEN + 4, np.uint8)])
        first = sum(len(x) for x in head)
        self.given = self.struct[first : first + 2 * plan.n_variables].view(np.int16)

    def run(self, evidence: Evidence) -> Result | None:
        """None where an engine that scales is wanted."""
        more = answers.write_evidence(self.plan, evidence, self.state, self.weights) + self.lists.exponent
        self.given[:] = self.state
        library("lists").run_lists(_at(self.struct))
        if self.root.min(initial=1.0) < self.lists.lowest:
            return None
        return Result(self.posterior.copy(), answers.log_evidence(self.root, self.exponent, more))


def run_batch(
    plan: Plan,
    factors: Sequence[NDArray[np.float64]],
    states: NDArray[np.int32],
    likelihood: Mapping[int, NDArray[np.float64]] | None = None,
    *,
    zeros: bool = True,
    warps: int = 4,
    by_row: bool = True,
    real: str = "float64",
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What `jtgpu.backends.gpu.batch.engine.BatchEngine` does with one chunk: posteriors (B, cells) and ln P(e) (B,).

    `zeros`: what is never zero is looked for; `warps` of a block of a level; `by_row`: a kernel turns the answers.
    """
    layout = batch_layout(plan, factors if zeros else None, real)
    s = layout.places
    pristine, shared_slots = load_factors(plan, s, factors)
    size = -(-len(states) // 32) * 32
    records, n_out = answers_of(plan, layout, range(plan.n_variables))
    scaled = scale_weights(likelihood, len(states), plan.cardinality)
    given = np.full((size, plan.n_variables), -1, np.int32)
    given[: len(states)] = states
    weights = np.ones((size, scaled.values.shape[1]))
    weights[: len(states)] = scaled.values
    state, weight = np.full((plan.n_variables, size), -7, np.int32), np.full(weights.T.shape, np.nan)
    counts = np.array([size, plan.n_variables, weights.shape[1], 0], np.uint32)
    turn = np.concatenate([_pointers(given, weights, state, weight), counts.view(np.uint64)])
    posterior, log_evidence = np.full((n_out, size), np.nan), np.full(size, np.nan)
    arena, slots = np.full(layout.n_cells * size, np.nan, real), np.zeros(s.n_tables * size, shared_slots.dtype)
    arrays = (
        arena, np.append(pristine, pristine.dtype.type(1.0)), slots, shared_slots, layout.tiles, layout.steps,
        layout.factors, s.known, state, weight, scaled.first, records, layout.roots, posterior, log_evidence,
    )  # fmt: skip
    counts = np.array([size, len(layout.factors), len(records), len(layout.roots), layout.n_cells], np.uint32)
    struct = np.concatenate([_pointers(*arrays), np.append(counts, np.uint32(s.n_tables)).view(np.uint64)])
    lib, groups = library("batch", real), size // 32
    lib.run_batch_clear(3, _at(arena), layout.n_cells * arena.itemsize * 4, groups)
    lib.run_batch_transpose(groups * (-(-plan.n_variables // 32) + -(-weights.shape[1] // 32)), _at(turn))
    lib.run_batch_enter(-(-len(layout.factors) * groups // 8), _at(struct))
    for first, n_tiles in layout.levels:
        lib.run_batch_level(n_tiles * -(-groups // warps), warps, _at(struct), first, n_tiles)
    lib.run_batch_finish(-(-(len(records) + 1) * groups // 8), _at(struct))
    if real == "float32":
        n = len(layout.checks)
        lib.run_batch_check(-(-n * groups // 8), _at(struct), _at(layout.checks), n)
    answers = np.ascontiguousarray(posterior.T)
    if by_row:
        answers = np.full((size, n_out), np.nan)
        counts = np.array([size, n_out], np.uint32)
        turned = np.concatenate([_pointers(posterior, answers), counts.view(np.uint64)])
        lib.run_batch_rows(groups * -(-n_out // 32), _at(turned))
    return answers[: len(states)], log_evidence[: len(states)] + scaled.log_scale
