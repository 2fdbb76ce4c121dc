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

from jtgpu.backends import kernels
from jtgpu.backends.base import Evidence, Result
from jtgpu.backends.gpu import answers
from jtgpu.backends.gpu.batch_rows import read_rows
from jtgpu.backends.gpu.batch_tables import answers_of, batch_layout
from jtgpu.backends.gpu.lists import MOST_GIVEN, make_lists
from jtgpu.backends.gpu.products import needed_products
from jtgpu.backends.gpu.schedule import chunks_with_tops, load_factors, make_schedule
from jtgpu.plan import Plan

SHIM = Path(__file__).with_name("host_cuda.hpp")

_CALLS = {
    "single": """
extern "C" void run_enter(unsigned n, Program* p, Entry* e) { host::launch(n, 256, [=] { enter(*p, *e); }); }
extern "C" void run_level(unsigned n, int heavy, Program* p, unsigned first) {
    host::launch(n, 256, [=] { if (heavy) level_heavy(*p, first); else level_light(*p, first); });
}
extern "C" void run_finish(unsigned n, Program* p, Finish* f) { host::launch(n, 256, [=] { finish(*p, *f); }); }
""",
    "lists": """
extern "C" void run_lists(Lists* f) {
    static std::vector<double> memory(1 << 16);
    host_memory = memory.data();
    host::launch(1, LIST_THREADS, [=] { lists_one(*f); });
}
""",
    "batch": """
extern "C" void run_batch_turn(unsigned n, Rows* r) { host::launch(n, 256, [=] { batch_turn(*r); }); }
extern "C" void run_batch_enter(unsigned n, Batch* b) { host::launch(n, 256, [=] { batch_enter(*b); }); }
extern "C" void run_batch_level(unsigned n, Batch* b, unsigned first, unsigned n_tasks, unsigned span) {
    host::launch(n, 256, [=] { batch_level(*b, first, n_tasks, span); });
}
extern "C" void run_batch_finish(unsigned n, Batch* b) { host::launch(n, 256, [=] { batch_finish(*b); }); }
""",
}
_built: dict[str, ctypes.CDLL] = {}


def compiler() -> str | None:
    """The C++ compiler, or None."""
    return shutil.which("g++")


def library(name: str) -> ctypes.CDLL:
    """A kernel file as a shared library of the host; built once a session, kept by content."""
    if name not in _built:
        source = re.sub(r'extern "C" __global__', "__global__", kernels.read_source(f"resident/{name}"))
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
        _built[name] = ctypes.CDLL(str(out))
    return _built[name]


class HostEngine:
    """`jtgpu.backends.gpu.engine.Engine` with the host in place of the card."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], lists: bool = False):
        listed = needed_products(plan, factors) if lists else None
        self.plan, self.schedule = plan, make_schedule(plan, listed=listed)
        s = self.schedule
        self.library = library("single")
        self.pristine, self.slots = load_factors(plan, s, factors)
        self.arena = np.full(s.n_cells, np.nan)
        self.arena[: s.factor_cells] = self.pristine
        if lists:  # always zero, and never written
            self.arena[s.factor_cells :] = 0.0
        self.arena[s.table_cell[-1]] = 1.0
        self.state = np.zeros(plan.n_variables, np.int32)
        self.weights = np.full(int(plan.posterior_ptr[-1]), np.nan)
        self.posterior = np.zeros(int(plan.posterior_ptr[-1]))
        self.root, self.exponent = np.zeros(len(plan.root_table)), np.zeros(len(plan.root_table), np.int32)
        self.own = [
            np.full(max(s.n_scratch, 1), np.nan), np.zeros(s.n_counters + 1, np.uint32),
            np.zeros(len(s.chunks) + 1, np.uint32), chunks_with_tops(s, self.pristine),
        ]  # fmt: skip
        scratch, counters, dirty, chunks = self.own
        self.slots["top"][s.chunks["table"]] = 0
        self.program = _pointers(
            self.arena, self.slots, s.ops, s.digits, s.steps, s.tasks, scratch, counters, s.rounds, s.rows
        )
        self.entry = _pointers(chunks, s.known, self.pristine, self.state, self.weights, dirty)
        sizes = np.array([len(s.answers), len(plan.root_table), s.n_factors, s.n_tables, len(chunks), 0], np.uint32)
        self.finish = np.concatenate(
            [_pointers(s.answers, s.roots, self.posterior, self.root, self.exponent, chunks), sizes.view(np.uint64)]
        )

    def run(self, evidence: Evidence) -> Result:
        more = answers.write_evidence(self.plan, evidence, self.state, self.weights)
        lib, s = self.library, self.schedule
        lib.run_enter(len(s.chunks), _at(self.program), _at(self.entry))
        for x in s.levels:
            lib.run_level(x.n_blocks, int(x.heavy), _at(self.program), x.first)
        lib.run_finish(2, _at(self.program), _at(self.finish))
        log_evidence = answers.log_evidence(self.root, self.exponent, more)
        return Result(self.posterior.copy(), log_evidence)


def _pointers(*arrays: NDArray[Any]) -> NDArray[np.uint64]:
    return np.array([a.ctypes.data for a in arrays], np.uint64)


def _at(a: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(a.ctypes.data)


class HostLists:
    """`jtgpu.backends.gpu.list_engine.ListEngine` with the host in place of the card; a block alone."""

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
    lists: bool = True,
    span: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What `jtgpu.backends.gpu.batch.BatchEngine` does with one chunk: posteriors (B, cells) and ln P(e) (B,)."""
    layout = batch_layout(plan, factors if lists else None)
    s = layout.schedule
    pristine, shared_slots = load_factors(plan, s, factors)
    size = -(-len(states) // 32) * 32
    records, n_out = answers_of(plan, layout, range(plan.n_variables))
    rows = read_rows(states, likelihood, plan.cardinality, merge=False)
    given = np.full((size, plan.n_variables), -1, np.int32)
    given[: len(states)] = states
    weights = np.ones((size, rows.weights.shape[1]))
    if rows.place is None:
        weights[: len(states)] = rows.weights
    else:
        weights[: len(states)] = rows.weights[rows.place]
    state, weight = np.full((plan.n_variables, size), -7, np.int32), np.full(weights.T.shape, np.nan)
    counts = np.array([size, plan.n_variables, weights.shape[1], 0], np.uint32)
    turn = np.concatenate([_pointers(given, weights, state, weight), counts.view(np.uint64)])
    posterior, log_evidence = np.full((size, n_out), np.nan), np.full(size, np.nan)
    arena = np.full((layout.n_cells, size), np.nan)
    slots = np.zeros((s.n_tables, size), shared_slots.dtype)
    arrays = (
        arena, np.append(pristine, 1.0), slots, shared_slots, layout.ops, s.digits, s.steps, layout.tasks,
        layout.rows, layout.terms, layout.factors, s.known, state, weight, rows.weight_row, records, layout.roots,
        posterior, log_evidence,
    )  # fmt: skip
    counts = np.array([size, len(layout.factors), len(records), len(layout.roots), n_out, s.n_tables], np.uint32)
    struct = np.concatenate([_pointers(*arrays), counts.view(np.uint64)])
    lib, groups = library("batch"), size // 32
    lib.run_batch_turn(-(-(plan.n_variables + weights.shape[1]) * groups // 8), _at(turn))
    lib.run_batch_enter(-(-len(layout.factors) * groups // 8), _at(struct))
    for first, n_tasks, _ in layout.levels:
        lib.run_batch_level(-(-n_tasks * -(-groups // span) // 8), _at(struct), first, n_tasks, span)
    lib.run_batch_finish(-(-(len(records) + 1) * groups // 8), _at(struct))
    scale = rows.log_scale if rows.place is None else rows.log_scale[rows.place]
    return posterior[: len(states)], log_evidence[: len(states)] + scale
