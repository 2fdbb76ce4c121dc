"""The GPU benchmark's parts that need no GPU: what its peers contract, what its words mean, how ncu is read."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.plans import compiler
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import bench_gpu
import profile_gpu
from peers.einsum_peer import Contraction, by_einsum, by_sums, evidence


@pytest.mark.parametrize("name", ["asia", "alarm", "hailfinder"])
def test_peers_contract_the_whole_network(name: str) -> None:
    model = jtgpu.read(ROOT / "nets" / f"{name}.net")
    plan = model.plan(order="min-fill").plan
    tables = [f.table for f in compiler.model_factors(model)]
    path = Contraction(plan, tables)
    assert len(path.steps) == 2 * len(model) - 1
    flat = evidence(plan, 3, 5)
    expected = []
    for case in range(3):
        parts = zip(plan.posterior_ptr.tolist(), plan.posterior_ptr.tolist()[1:], strict=False)
        given = {v: flat[a:b, case] for v, (a, b) in enumerate(parts)}
        unknown = np.full(plan.n_variables, -1, np.int32)
        expected.append(reference.prepare(plan, tables).run_case(Evidence(unknown, given)).log_evidence)
    for product in (by_einsum(np.einsum), by_sums(path.cards)):
        np.testing.assert_allclose(np.log(path.z(product, path.factors, flat, True)), expected, rtol=1e-12)
        alone = path.z(product, path.factors, np.ascontiguousarray(flat[:, 1]), False)
        assert np.log(alone) == pytest.approx(expected[1], rel=1e-12)


def test_words_that_name_peers() -> None:
    chosen = [("alarm", Path("a.net"), "min-fill"), ("link", Path("b.net"), "min-fill")]
    jobs = bench_gpu.peer_jobs(["jax-sum=link", "torch@case", "jax@table=alarm"], chosen, [0, 7])
    assert [(j.engine, j.network, j.batch) for j in jobs] == [
        ("jax-sum", "link", 0), ("jax-sum", "link", 7), ("torch", "alarm", 0), ("torch", "link", 0),
        ("jax", "alarm", bench_gpu.PEER_BATCH),
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="torch-compile"):
        bench_gpu.peer_jobs(["tensorflow"], chosen, [0])


def test_networks_come_as_named_or_the_heavy_ones_first() -> None:
    nets = str(ROOT / "nets")
    assert [n for n, *_ in bench_gpu.networks(nets, ["asia", "alarm"])] == ["asia", "alarm"]
    names = [n for n, *_ in bench_gpu.networks(nets, [])]
    assert names[0] == "alarm"
    assert names.index("link") < names.index("asia")


NCU = """==PROF== Connected to process 7
"ID","Kernel Name","gpu__time_duration.sum","launch__grid_size","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","","ns","",""
"0","level_light(Program, unsigned int)","5,860","78","n/a"
"1","level_heavy(Program, unsigned int)","50110","1,563","34.2"
"""


def test_what_ncu_writes(tmp_path: Path) -> None:
    log = tmp_path / "ncu.csv"
    log.write_text(NCU, encoding="utf-8")
    first, second = profile_gpu.read_csv(log, profile_gpu.METRICS)
    assert (first["kernel"], first["us"], first["blocks"]) == ("level_light", 5.86, 78.0)
    assert np.isnan(first["sm"])
    assert second["sm"] == 34.2
    assert [profile_gpu.size_class(r) for r in (first, second)] == ["up to 1 block an SM", "more than 4"]


def test_a_summary_weighs_by_time() -> None:
    same = ("l2", "dram", "issue", "occupancy", "registers", "instructions", "fp64", "blocks")
    plain = dict.fromkeys(same, 8.0) | {"kernel": "level_light", "wait": 1.0, "barrier": 3.0}
    rows = [plain | {"place_us": 2.0, "us": 1.0, "sm": 10.0}, plain | {"place_us": 3.0, "us": 3.0, "sm": 30.0}]
    (line,) = profile_gpu.summary(rows, profile_gpu.size_class).splitlines()[3:-1]
    assert line.split("  ")[0] == "up to 1 block an SM 2"
    assert "5.0" in line
    assert " 25 " in line
    assert line.endswith("barrier 75 %, wait 25 %")
