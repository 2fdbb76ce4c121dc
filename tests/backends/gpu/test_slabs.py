"""Which contractions run slice by slice, and that what is left can run without them; no GPU needed.

The kernels themselves: tests/on_gpu/test_slabs.py, also on a GPU that the host plays (tests/backends/gpu/test_emulated.py).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import jtgpu
from jtgpu.backends.gpu.program.layout import make_places
from jtgpu.backends.gpu.program.structs import SLAB_OUTPUT
from jtgpu.backends.gpu.program.tiling import Binary, binary_program
from jtgpu.backends.gpu.single.levels.engine import level_nanoseconds
from jtgpu.backends.gpu.single.levels.schedule import make_schedule
from jtgpu.backends.gpu.single.specialised import slab_code, slabs
from jtgpu.backends.gpu.single.specialised.slabs import Region
from jtgpu.plans.plan import Plan
from tests.conftest import ROOT
from tests.support.examples import examples
from tests.support.random_nets import bayesian_networks


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HEAVY_BYTES": 0, "LEAST_BYTES": 0, "FEWEST": 2}.items():
        monkeypatch.setattr(slabs, name, value)


def hold(plan: Plan, program: Binary, region: Region) -> None:
    """A region can be done slice by slice, and the rest without it."""
    common = set(region.variables)
    have = set(region.inputs)
    for group in region.levels:
        for i in group:
            step = program.steps[i]
            assert set(step.ins) <= have
            assert all(common <= set(program.scopes[t]) for t in step.ins if t not in region.inputs)
        have |= {program.steps[i].out for i in group}
    rest, before = slabs.without(plan, program, region)
    assert len(rest.steps) + len(region.steps) == len(program.steps)
    level = dict.fromkeys(range(plan.n_factors), 0) | dict.fromkeys(region.outputs, before + 2)
    for step, number in zip(rest.steps, rest.level, strict=True):
        assert number == 1 + max(level[t] for t in step.ins)
        level[step.out] = number
    assert max((level[t] for t in region.inputs), default=0) == before
    asked = {*plan.posterior_table.tolist(), *plan.root_table.tolist()}
    assert asked <= set(level)


@pytest.mark.usefixtures("everywhere")
@examples(60, deadline=None)
@given(bayesian_networks())
def test_regions(net: jtgpu.BayesianNetwork) -> None:
    plan = net.plan("min-fill", cache=False, max_table=None).plan
    program = binary_program(plan)
    for region in slabs.regions(plan, program):
        hold(plan, program, region)


@pytest.mark.usefixtures("everywhere")
def test_what_a_slab_writes_and_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slice ends where it should, and every sum is in one place, once."""
    monkeypatch.setattr(slab_code, "SMS", 3)
    plan = jtgpu.read(ROOT / "nets" / "alarm.net").plan("min-fill", cache=False, max_table=None).plan
    program = binary_program(plan)
    region = slab_code.best_region(plan, program)
    assert region is not None
    made = slab_code.make_slab(plan, program, region, make_places(plan, program).table_cell.tolist())
    n_slices = plan.size(region.variables)
    assert made.first.tolist() == [n_slices * b // made.n_blocks for b in range(made.n_blocks + 1)]
    begins = set(made.first[:-1].tolist())
    assert all(made.flags[s, 0] == (1 << len(region.inputs)) - 1 and made.flags[s, 1] == 0 for s in begins)
    for k, output in enumerate(made.outputs):
        ends = (made.flags[:, 2] >> k & 1).astype(bool)
        n_keys = int(output["n_cells"]) // int(output["local"])
        pointers = made.lists[output["runs"] : output["runs"] + n_keys + 1]
        assert sorted(made.runs[ends, k].tolist()) == list(range(int(pointers[-1])))
        where = made.places[output["first_of"] :][: n_keys + int(output["local"])].astype(np.int64)
        cells = (where[:n_keys, None] + where[None, n_keys:]).ravel()
        assert sorted(cells.tolist()) == list(range(int(output["n_cells"])))
    assert made.outputs.dtype == SLAB_OUTPUT
    assert SLAB_OUTPUT.itemsize == 48
    assert made.shared_bytes <= 8 * slab_code.MOST_CELLS


def test_small_networks_have_none() -> None:
    plan = jtgpu.read(ROOT / "nets" / "hailfinder.net").plan("min-fill", cache=False).plan
    assert make_schedule(plan, codes=True, slabs=True).slab is None


def test_a_network_that_is_quicker_without(shared_nets: Path) -> None:
    model = jtgpu.read(shared_nets / "uai2014" / "ObjectDetection_46.uai")
    plan = model.plan("min-fill", cache=False, max_table=None).plan
    made = make_schedule(plan, codes=True, slabs=True)
    assert made.slab is not None
    assert level_nanoseconds(made) > level_nanoseconds(make_schedule(plan, codes=True))


def test_the_published_network_of_the_largest_tables(shared_nets: Path, tmp_path: Path) -> None:
    folder = shared_nets / "RetiEsempio"
    plan = jtgpu.read(folder / "Munin1.net").plan(order=folder / "Munin1.num", max_table=None, memory_limit=None).plan
    made = make_schedule(plan, codes=True, slabs=True)
    usual = make_schedule(plan, codes=True)
    assert made.slab is not None
    assert usual.slab is None
    assert level_nanoseconds(made) < level_nanoseconds(usual)
    assert 90e3 < made.slab.nanoseconds < 172e3  # an H100 took 172 us before there were blocks for the tensor cores
    assert len(made.levels) + 2 < len(usual.levels)
    assert 0 < made.before_slab < len(made.levels)
    again = make_schedule(plan, codes=True, slabs=True)
    assert again.slab is not None
    assert again.slab.source == made.slab.source

    assert make_schedule(plan, real="float32", codes=True, slabs=True).slab is None
    if shutil.which("nvcc") is None:
        return
    source = tmp_path / "slab.cu"
    source.write_text(made.slab.source, encoding="utf-8")
    for arch in ("sm_80", "sm_90"):
        command = ["nvcc", f"-arch={arch}", "-O3", "-std=c++17", "-cubin", "-o", str(tmp_path / "slab.cubin")]
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
