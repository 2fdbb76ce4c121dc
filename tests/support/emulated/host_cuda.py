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

from jtgpu.backends.gpu.batch.records import answers_of, batch_layout
from jtgpu.backends.gpu.batch.table import scale_weights
from jtgpu.backends.gpu.program.layout import load_factors
from jtgpu.device import nvcc as kernels
from jtgpu.plans.plan import Plan

SHIM = Path(__file__).with_name("host_cuda.hpp")

SOURCES = {"batch": "batch/batch"}
_CALLS = {
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


def _pointers(*arrays: NDArray[Any]) -> NDArray[np.uint64]:
    return np.array([a.ctypes.data for a in arrays], np.uint64)


def _at(a: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(a.ctypes.data)


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
