"""Code written for contractions' shapes, run on the host: against sums spelled out, and in whole propagations."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu.program import layout as places
from jtgpu.backends.gpu.program.structs import JOB, SLOT, WARPS
from jtgpu.backends.gpu.program.tiling import OUT, A, B, Loop, offsets
from jtgpu.backends.gpu.single.levels import schedule
from jtgpu.backends.gpu.single.specialised import build as shape_build
from jtgpu.backends.gpu.single.specialised import shape_code, shape_plan
from jtgpu.plans import compiler
from tests.plans.test_plan import chain
from tests.plans.test_program import planned
from tests.support.emulated import host_cuda

needs_compiler = pytest.mark.skipif(host_cuda.compiler() is None, reason="there is no g++ to build the kernels with")
LONG: tuple[Loop, ...] = ((12, (0, 33, 44)), (3, (4, 11, 0)), (11, (0, 1, 4)), (4, (1, 0, 1)))  # 132 products a sum
REAL = {8: "float64", 4: "float32"}


def random_loops(rng: np.random.Generator) -> tuple[tuple[Loop, ...], bool]:
    """A contraction of up to five axes of any kind, tables in the order of the axes, and whether it has two inputs."""
    two = bool(rng.random() < 0.8)
    kinds = [(1, 1, 0), (1, 0, 1), (1, 1, 1), (0, 1, 1), (0, 1, 0)] if two else [(1, 1, 0), (0, 1, 0)]
    axes = [(int(rng.integers(2, 12)), kinds[int(rng.integers(len(kinds)))]) for _ in range(int(rng.integers(1, 6)))]
    strides = [1, 1, 1]
    loops: list[Loop] = []
    for n, kind in reversed(axes):
        loops.append((n, (strides[OUT] * kind[OUT], strides[A] * kind[A], strides[B] * kind[B])))
        strides = [s * n if there else s for s, there in zip(strides, kind, strict=True)]
    return tuple(reversed(loops)), two


def any_code(rng: np.random.Generator, loops: tuple[Loop, ...], two: bool, cell_bytes: int) -> shape_code.Code:
    """One of all codes that might be chosen, the best or not."""
    if rng.random() < 0.3:
        found = list(shape_code.best_codes(loops, two, cell_bytes).values())
        return found[int(rng.integers(len(found)))].code
    tiles = shape_code.tiles_of(loops, two, cell_bytes)
    tile = tiles[int(rng.integers(len(tiles)))][0]
    n_sum = math.prod(n for n, s in loops if not s[OUT])
    log = int(rng.integers(min(5, n_sum.bit_length() - 1) + 1))
    ways = list(shape_code._ways(n_sum, log, math.prod(tile.sizes)))
    share, splits = ways[int(rng.integers(len(ways)))]
    return shape_code.code_of(loops, two, tile, log, share, splits, int(rng.integers(1, 5)))


def contracted(
    loops: tuple[Loop, ...], two: bool, a: NDArray[np.float64], b: NDArray[np.float64]
) -> NDArray[np.float64]:
    at = [np.array(offsets(loops, t)) for t in (OUT, A, B)]
    made = np.zeros(size(loops, OUT))
    np.add.at(made, at[0], a[at[1]] * (b[at[2]] if two else 1.0))
    return made


def size(loops: tuple[Loop, ...], table: int) -> int:
    return math.prod(n for n, s in loops if s[table])


@needs_compiler
@pytest.mark.parametrize("cell_bytes", [8, 4])
def test_every_kind_of_code_sums_what_it_should(cell_bytes: int) -> None:
    """Three dozen random contractions as one kernel, tables of many sizes, one of them far from 1."""
    rng = np.random.default_rng(17)
    wanted = [random_loops(rng) for _ in range(36)]
    codes = [any_code(rng, loops, two, cell_bytes) for loops, two in wanted]
    for log, splits in ((0, 4), (1, 2), (2, 3)):
        tile = shape_code.tiles_of(LONG, True, cell_bytes)[log][0]
        wanted.append((LONG, True))
        codes.append(shape_code.code_of(LONG, True, tile, log, WARPS, splits, 2))
    assert {c.log for c in codes} >= {0, 1, 2}
    assert {c.share for c in codes} == {1, 2, 4, WARPS}
    assert any(c.splits > 1 for c in codes)
    assert any(p[2] != (p[0] - 1) * p[1] for c in codes for p in (*c.m, *c.n, *c.v)), "places that overlap"
    kernel = shape_plan.Kernel(tuple(dict.fromkeys(codes)), 2)
    library = host_cuda.build("shaped", shape_build.source_of(kernel, REAL[cell_bytes]))
    cells, tables, jobs, scratch, counters = 8, [np.ones(8)], [], 0, 0
    slots = np.zeros(3 * len(codes) + 1, SLOT)
    for i, ((loops, _), code) in enumerate(zip(wanted, codes, strict=True)):
        a, b = rng.random(size(loops, A)), rng.random(size(loops, B))
        factor = 2.0 ** (-300 if i % 5 == 0 and cell_bytes == 8 else 0)
        made = [a * factor, b, np.full(size(loops, OUT), np.nan)]
        first = [cells + sum(len(x) for x in made[:k]) for k in range(3)]
        for k, x in enumerate(made[:2]):
            slots[3 * i + k]["top"] = places.word_of(np.dtype(REAL[cell_bytes]).type(x.max()))
        job = (kernel.codes.index(code), 0, *first, 3 * i, 3 * i + 1, 3 * i + 2, scratch, counters, 0, 0)
        jobs += [(job[0], unit, *job[2:]) for unit in range(code.n_blocks)]
        scratch, counters = scratch + code.n_scratch, counters + code.n_groups
        tables += made
        cells += sum(len(x) for x in made)
    arena = np.concatenate(tables).astype(REAL[cell_bytes])
    own = [np.full(scratch + 1, np.nan, REAL[cell_bytes]), np.zeros(counters + 1, np.uint32)]
    none = np.zeros(1, np.uint32)
    program = np.array([x.ctypes.data for x in (arena, slots, none, none, none, none, *own, none, none)], np.uint64)
    records = np.array(jobs, JOB)
    for _ in range(2):  # the first run leaves counters as it found them
        library.run_shaped(len(jobs), *(ctypes.c_void_p(x.ctypes.data) for x in (program, records)), len(jobs), 0)
        at = 8
        for i, (loops, two) in enumerate(wanted):
            sizes = [size(loops, t) for t in (A, B, OUT)]
            a, b, out = np.split(arena[at : at + sum(sizes)].astype(np.float64), np.cumsum(sizes)[:2])
            at += sum(sizes)
            expected = contracted(loops, two, a, b)
            got = np.ldexp(out, int(slots[3 * i + 2]["exponent"]))
            np.testing.assert_allclose(got, expected, rtol=1e-12 if cell_bytes == 8 else 1e-5)
            assert slots[3 * i + 2]["top"] == places.word_of(np.dtype(REAL[cell_bytes]).type(out.max()))


def tables_of(model: jtgpu.DiscreteModel) -> list[NDArray[np.float64]]:
    return [f.table for f in compiler.model_factors(model)]


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every contraction gets code, whether it pays or not."""
    for name, value in (("LEAST_LEVEL", -math.inf), ("LEAST_GAIN", -math.inf), ("WORTH_A_LOOK", 0.0)):
        monkeypatch.setattr(shape_plan, name, value)
    monkeypatch.setattr(shape_plan, "LESS_SHARE", -math.inf)


@needs_compiler
@pytest.mark.usefixtures("everything")
def test_probabilities_far_below_the_smallest_double() -> None:
    n = 400
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    state = (np.arange(n) % 3).astype(np.int32)
    engine = host_cuda.HostEngine(plan, tables_of(net), codes=True)
    assert engine.shaped is not None
    assert all(engine.shaped.levels)
    expected = math.log(1 / 3) + (n - 1) * math.log(0.1)
    assert engine.run(Evidence(state)).log_evidence == pytest.approx(expected, rel=1e-13)


@needs_compiler
@pytest.mark.usefixtures("everything")
def test_a_whole_network_of_codes() -> None:
    asia = jtgpu.read(Path(__file__).parents[2] / "nets" / "asia.net")
    plan = planned(asia, list(range(len(asia))), "clique")
    engine = host_cuda.HostEngine(plan, tables_of(asia), codes=True)
    definition = reference.prepare(plan, tables_of(asia))
    state = np.full(plan.n_variables, -1, np.int32)
    for v in (None, 2, 5):
        if v is not None:
            state[v] = 1
        got, expected = engine.run(Evidence(state)), definition.run(Evidence(state))
        np.testing.assert_allclose(got.posterior, expected.posterior, atol=1e-12)
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)


@needs_compiler
def test_a_published_network_agrees_with_the_definition(shared_nets: Path) -> None:
    """Mildew: codes, lists and records, some of them in one level."""
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Mildew.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Mildew.num").plan
    engine = host_cuda.HostEngine(plan, tables_of(net), lists=True, codes=True)
    assert engine.shaped is not None
    assert any(engine.shaped.levels)
    definition = reference.prepare(plan, tables_of(net))
    state = np.full(plan.n_variables, -1, np.int32)
    for _ in range(2):
        got, expected = engine.run(Evidence(state)), definition.run(Evidence(state))
        np.testing.assert_allclose(got.posterior, expected.posterior, atol=1e-12)
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)
        state[[3, 7, 11]] = 0


def test_the_same_plan_gives_the_same_codes(shared_nets: Path) -> None:
    """And every contraction of a level runs once: as code, or in the level's tasks."""
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Barley.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Barley.num").plan
    first, second = (schedule.make_schedule(plan, codes=True) for _ in range(2))
    assert first.shaped is not None
    assert second.shaped is not None
    assert first.shaped.kernels == second.shaped.kernels
    assert first.shaped.jobs.tobytes() == second.shaped.jobs.tobytes()
    busy = np.unique(first.tasks["op"][first.tasks["op"] != 0xFFFFFFFF])
    out_of_tasks = set(first.ops["slot_out"][busy].tolist())
    out_of_codes = set(first.shaped.jobs["slot_out"].tolist())
    assert not out_of_tasks & out_of_codes
    assert len(out_of_tasks | out_of_codes) == len(first.ops)
    for x in first.shaped.levels:
        if x is not None:
            jobs = first.shaped.jobs[x.first : x.first + x.n_blocks]
            for shape in np.unique(jobs["shape"]).tolist():
                assert shape < len(first.shaped.kernels[x.kernel].codes)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_kernels_of_a_published_network_compile_without_spills(shared_nets: Path, tmp_path: Path) -> None:
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Mildew.net")
    made = schedule.make_schedule(net.plan(order=shared_nets / "RetiEsempio" / "Mildew.num").plan, codes=True)
    assert made.shaped is not None
    for kernel in made.shaped.kernels:
        source = tmp_path / "kernel.cu"
        source.write_text(shape_build.source_of(kernel), encoding="utf-8")
        command = ["nvcc", "-cubin", "-arch=sm_90", "-Xptxas", "-v", "-O3", "-std=c++17"]
        done = subprocess.run(
            [*command, "-o", str(tmp_path / "out.cubin"), str(source)], capture_output=True, text=True, check=True
        )
        assert " 0 bytes spill stores, 0 bytes spill loads" in done.stderr
