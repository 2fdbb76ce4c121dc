"""What compute-sanitizer watches: every kernel and every engine on small tables, in parts of a few seconds each.

    python tests/on_gpu/sanitize.py [PART ...]                        the answers alone
    python tests/on_gpu/sanitize.py [PART ...] --tools [TOOL ...]   each part under each tool, a process each

Exit code 1 when an answer is wrong or a tool finds something. Needs no files: the networks are made here. What the
tools can see: memcheck everything; racecheck shared memory, not what blocks of the whole GPU exchange;
synccheck barriers; initcheck device memory. PyCUDA asks for attributes that a driver may not
know, hence ``--report-api-errors no``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from jtgpu.backends.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import jtgpu
from jtgpu.backends import get
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu_backend
from jtgpu.backends.gpu.batch import engine as batch_engine
from jtgpu.backends.gpu.patterns import GpuPatternCache
from jtgpu.backends.gpu.select import ENGINES
from jtgpu.device.context import Device, open_device
from jtgpu.plans.compiler import model_factors
from jtgpu.published.junction_trees.backend import prepare
from jtgpu.published.junction_trees.indextables import Shape
from jtgpu.published.junction_trees.rules import Rules
from jtgpu.published.junction_trees.tuning import Workbench

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


def indexed() -> float:
    """Largest error of any posterior of a small random network, by the published engine."""
    net = random_network(14, 3)
    plan = net.plan(order="min-fill").plan
    factors = [f.table for f in model_factors(net)]
    state = np.full(plan.n_variables, -1, np.int32)
    state[[1, 5]] = 0
    evidence = Evidence(state)
    answer = get("reference")(plan, factors).run_case(evidence)
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
            found = backend.run_case(evidence)
            worst = max(worst, float(np.abs(found.posterior - answer.posterior).max()))
            worst = max(worst, abs(found.log_evidence - answer.log_evidence))
        backend.close()
    return worst


class Small:
    """A random network with cases, and what the definition says of them."""

    def __init__(self) -> None:
        net = random_network(12, 2)
        self.plan = net.plan(order="min-fill").plan
        self.factors = [f.table for f in model_factors(net)]
        rng = np.random.default_rng(3)
        self.states = np.where(rng.random((40, self.plan.n_variables)) < 0.2, 0, -1).astype(np.int32)
        soft = {11: np.array([0.25, 1.0])}
        self.cases = [Evidence(self.states[0], soft), *(Evidence(s) for s in self.states[:3]), Evidence(self.states[0])]
        judge = get("reference")(self.plan, self.factors)
        self.answers = [judge.run_case(case).posterior for case in self.cases]
        self.table = judge.run(Table.of(self.states)).posterior


def single(**options: Any) -> float:
    """Largest error of a single-case engine of the resident backend; some cases come again and again."""
    small = Small()
    backend = gpu_backend.prepare(small.plan, small.factors, **options)
    worst = 0.0
    for case, answer in [*zip(small.cases, small.answers, strict=True)] * 3:
        worst = max(worst, float(np.abs(backend.run_case(case).posterior - answer).max()))
    backend.close()
    return worst


def pattern() -> float:
    """Largest error of the engine of an evidence pattern, which selects parts of the factors."""
    small = Small()
    cache = GpuPatternCache(small.plan, small.factors, gpu_backend.prepare(small.plan, small.factors))
    case, answer = small.cases[1], small.answers[1]
    own = cache.make(case.state >= 0)
    error = max(float(np.abs(own.run_case(case).posterior - answer).max()) for _ in range(2))
    own.close()
    cache.close()
    return error


def reloaded() -> float:
    """Largest error of both engines after their numbers were replaced, and of a table of cases."""
    small = Small()
    error = 0.0
    for engine in ENGINES:
        backend = gpu_backend.prepare(small.plan, [np.ones_like(f) for f in small.factors], engine=engine)
        backend.run_case(small.cases[0])
        backend.reload(small.factors)
        for case, answer in zip(small.cases, small.answers, strict=True):
            error = max(error, float(np.abs(backend.run_case(case).posterior - answer).max()))
        error = max(error, float(np.abs(backend.run(Table.of(small.states)).posterior - small.table).max()))
        backend.close()
    return error


def batch(written: bool, dtype: str = "float64") -> float:
    """Largest error of tables of cases, by kernels written for the network or by those for any."""
    small = Small()
    worst = 0.0
    with changed(batch_engine, GENERATED_FLOPS=batch_engine.GENERATED_FLOPS if written else 0):
        backend = gpu_backend.prepare(small.plan, small.factors, single=False, dtype=dtype)
        for _ in range(2):
            worst = max(worst, float(np.abs(backend.run(Table.of(small.states)).posterior - small.table).max()))
    assert backend.tables.kind == ("lanes" if written else "tables")
    backend.close()
    return worst


@contextmanager
def changed(module: ModuleType, **values: float) -> Iterator[None]:
    """Other numbers in place of a module's, for a while."""
    before = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


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


PARTS: dict[str, Callable[[], float]] = {
    "kernels": lambda: kernels(open_device()),
    "indexed": indexed,
    "dataflow": lambda: single(engine="dataflow"),
    "levels": lambda: single(engine="levels"),
    "pattern": pattern,
    "reload": reloaded,
    "batch-written": lambda: batch(True),
    "batch-tables": lambda: batch(False),
    "batch-float32": lambda: batch(False, "float32"),
}
SECONDS = 150  # that a part may take under a tool
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")


def watched(tool: str, part: str) -> tuple[str, str, int, str]:
    """One part under one tool: its exit code, and its last words."""
    words = ["--report-api-errors", "no", "--error-exitcode", "9"] if tool else []
    command = ["compute-sanitizer", "--tool", tool, *words] if tool else []
    try:
        done = subprocess.run(
            [*command, sys.executable, __file__, part], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return tool, part, -1, f"not done in {SECONDS} s"
    said = [x for x in (done.stdout + done.stderr).splitlines() if x.strip("= ")]
    if done.returncode:
        return tool, part, done.returncode, "\n".join(said[-40:])
    return tool, part, 0, next((x for x in reversed(said) if "SUMMARY" in x), said[-1]).strip("= ")


def main() -> int:
    """Run the parts, or have them watched."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--tools", nargs="*", choices=TOOLS, help="none named: all four")
    options = parser.parse_args()
    parts = options.parts or list(PARTS)
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if options.tools is None:
        errors = {part: PARTS[part]() for part in parts}
        print(open_device().name, errors)
        return int(any(not e < (1e-4 if part.endswith("float32") else 1e-11) for part, e in errors.items()))
    tools = options.tools or list(TOOLS)
    with ThreadPoolExecutor(max(2, (os.cpu_count() or 4) // 2)) as pool:
        alone = list(pool.map(watched, [""] * len(parts), parts))  # compiles what is not in the cache yet
        pairs = [(tool, part) for part in parts for tool in tools]
        found = alone + list(pool.map(watched, *zip(*pairs, strict=True)))
    for tool, part, code, said in found:
        print(f"{tool or 'alone':10} {part:16} {'ok' if code == 0 else f'exit code {code}'}: {said}")
    return int(any(code for *_, code, _ in found))


if __name__ == "__main__":
    sys.exit(main())
