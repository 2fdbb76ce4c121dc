"""What compute-sanitizer watches: every kernel and every engine on small tables, a few seconds without it.

    compute-sanitizer --report-api-errors no --tool memcheck  python tests/gpu/sanitize.py

Likewise racecheck, synccheck and initcheck.

Exit code 1 when an answer is wrong. Needs no files: the networks are made here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import jtgpu
from jtgpu.backends import get
from jtgpu.backends import gpu as resident
from jtgpu.backends.base import Evidence
from jtgpu.backends.device import Device, open_device
from jtgpu.backends.gpu.driver import most_shared
from jtgpu.backends.gpu.engine import CaseEngine
from jtgpu.backends.gpu.list_engine import ListEngine
from jtgpu.backends.gpu.lists import make_lists
from jtgpu.backends.indexed import prepare
from jtgpu.backends.indexed_launch import Rules
from jtgpu.backends.tuning import Workbench
from jtgpu.compiler import model_factors
from jtgpu.indextables import Shape

SIDES = [(1, 1), (1, 3000), (3, 700), (33, 65), (100, 40), (512, 5), (1500, 3)]  # (n, m)
SHAPES = [*(Shape((m, n), (False, True)) for n, m in SIDES), Shape((5, 300, 4), (True, False, True))]
MARGINALISATIONS: list[dict[str, Any]] = [
    *(
        {"split_n": 1025, "marginalise_m": kind, "marginalise_threads": t, "ways": w}
        for kind in ("syncwarp", "shuffle")
        for t, w in ((32, 2), (128, 2), (512, 2), (64, 8))
    ),
    *({"split_n": 1, "ways": w} for w in (2, 4, 8, 16)),
]
SCATTERINGS: list[dict[str, Any]] = [{"scatter": s, "scatter_ways": w} for s in ("two_phase", "fused") for w in (1, 4)]


def kernels(device: Device) -> float:
    """Largest relative error of any kernel variant."""
    worst = 0.0
    rng = np.random.default_rng(1)
    with device.active():
        for shape in SHAPES:
            psi = rng.random(shape.entries)
            axes = tuple(a for a, kept in enumerate(shape.kept) if not kept)
            sums = psi.reshape(shape.extents).sum(axis=axes).reshape(-1)
            bench = Workbench(device, shape, Rules())
            for options in MARGINALISATIONS:
                if options["split_n"] > 1 and shape.n > 1024:
                    continue
                bench.use(Rules(**options))
                bench.load(psi)
                worst = max(worst, float(np.abs(bench.marginalise()[0] / sums - 1).max()))
            for options in SCATTERINGS:
                bench.use(Rules(**options))
                bench.load(psi)
                found, _ = bench.scatter(np.full(shape.n, 3.0), np.full(shape.n, 2.0))
                worst = max(worst, float(np.abs(found / (1.5 * psi) - 1).max()))
            worst = max(worst, abs(bench.normalise()[1] / (1.5 * psi.sum()) - 1))
            bench.close()
    return worst


def engines() -> float:
    """Largest error of any posterior of a small random network."""
    net = random_network(14, 3)
    plan = net.plan(order="min-fill").plan
    factors = [f.table for f in model_factors(net)]
    state = np.full(plan.n_variables, -1, np.int32)
    state[[1, 5]] = 0
    evidence = Evidence(state)
    answer = get("reference")(plan, factors).run(evidence)
    worst = 0.0
    choices: tuple[dict[str, Any], ...] = (
        {"transfers": "resident", "graph": False},
        {"transfers": "resident", "ways": 8, "scatter": "fused", "marginalise_m": "shuffle"},
        {"transfers": "each", "min_entries": 20, "normalise": "kernel"},
        {"transfers": "each", "min_entries": 0, "index_transfers": "each"},
    )
    for options in choices:
        backend = prepare(plan, factors, **options)
        for _ in range(2):
            found = backend.run(evidence)
            worst = max(worst, float(np.abs(found.posterior - answer.posterior).max()))
            worst = max(worst, abs(found.log_evidence - answer.log_evidence))
        backend.close()
    return worst


def _none_needed() -> CaseEngine:
    raise AssertionError("a case of usual probability needs no second engine")


def residents() -> float:
    """Largest error of the resident engine: whole networks in one kernel, levels, tables of cases."""
    net = random_network(12, 2)
    plan = net.plan(order="min-fill").plan
    factors = [f.table for f in model_factors(net)]
    rng = np.random.default_rng(3)
    states = np.where(rng.random((40, plan.n_variables)) < 0.2, 0, -1).astype(np.int32)
    evidence = Evidence(states[0], {11: np.array([0.25, 1.0])})
    judge = get("reference")(plan, factors)
    answer, table = judge.run(evidence), judge.run_batch(states)
    worst = 0.0
    for lists in (None, False):
        backend = resident.prepare(plan, factors, lists=lists)
        for _ in range(2):
            worst = max(worst, float(np.abs(backend.run(evidence).posterior - answer.posterior).max()))
            worst = max(worst, float(np.abs(backend.run_batch(states).posterior - table.posterior).max()))
        if lists is None:
            listed = make_lists(plan, factors, most_shared(backend.device), (8,))
            assert listed is not None
            engine = ListEngine(plan, listed, backend.device, _none_needed)
            worst = max(worst, float(np.abs(engine.run(evidence).posterior - answer.posterior).max()))
            engine.close()
        backend.close()
    return worst


def random_network(n: int, card: int) -> jtgpu.BayesianNetwork:
    """A network of `n` variables with up to four parents each."""
    rng = np.random.default_rng(2)
    states, parents, cpts = {}, {}, {}
    for i in range(n):
        above = sorted(rng.choice(i, min(i, 4), replace=False).tolist())
        states[f"v{i}"] = [f"s{k}" for k in range(card)]
        parents[f"v{i}"] = [f"v{p}" for p in above]
        cpts[f"v{i}"] = rng.dirichlet(np.ones(card), size=(card,) * len(above)).reshape((card,) * (len(above) + 1))
    return jtgpu.BayesianNetwork(states, parents, cpts)


def main() -> int:
    """Run everything once."""
    device = open_device()
    errors = {"kernels": kernels(device), "engines": engines(), "residents": residents()}
    print(device.name, errors)
    return 0 if max(errors.values()) < 1e-11 else 1


if __name__ == "__main__":
    sys.exit(main())
