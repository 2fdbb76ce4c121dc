"""What a user of torch or JAX has on the same card: the network contracted pair by pair, posteriors as a gradient.

ln Z is a function of one evidence vector a variable; its gradient times the vector is the posterior (Darwiche, A
differential approach to inference in Bayesian networks, JACM 50, 2003). The path is the plan's own messages to the
root, two tables at a time, so that the peer contracts in the best order that we know. float64; evidence changes between
runs. torch runs as a CUDA graph, JAX under jit; a table of cases adds an axis to every table that evidence reaches.

    python bench/peers/einsum_peer.py NETWORK ORDER --engine jax|torch [--batch B]     one JSON line
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import jtgpu
from jtgpu import compiler
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.plan import COLLECT, Plan

CASE = 51  # the axis of cases, among the letters that an einsum has


class Contraction:
    """The messages to the root as a list of einsums over small integers."""

    def __init__(self, plan: Plan, tables: list[np.ndarray]):
        self.plan = plan
        self.scopes = [list(s) for s in plan.table_scopes]
        self.factors = []
        for f, (table, scope) in enumerate(zip(tables, plan.factor_scopes, strict=True)):
            turned = np.transpose(table, [scope.index(v) for v in plan.table_scopes[f]])
            self.factors.append(np.ascontiguousarray(turned))
        self.steps = []
        for kind, out, ins in zip(plan.op_kind.tolist(), plan.op_out.tolist(), plan.op_inputs, strict=True):
            if kind == COLLECT:
                self.steps.append((out, list(ins)))

    def log_z(self, einsum: Any, log: Any, factors: list[Any], vectors: list[Any], batch: bool) -> Any:
        """ln Z of every case, summed."""
        made: dict[int, Any] = dict(enumerate(factors))
        cased: dict[int, bool] = dict.fromkeys(made, False)
        case = [CASE] if batch else []
        for v, f in enumerate(self.plan.evidence_factor.tolist()):
            letters = {u: i for i, u in enumerate(self.scopes[f])}
            own = list(letters.values())
            left = case + own if cased[f] else own
            made[f] = einsum(made[f], left, vectors[v], [*case, letters[v]], case + own)
            cased[f] = batch
        for out, ins in self.steps:
            letters = {}
            for t in ins:
                for v in self.scopes[t]:
                    letters.setdefault(v, len(letters))
            arguments: list[Any] = []
            for t in ins:
                arguments += [made[t], (case if cased[t] else []) + [letters[v] for v in self.scopes[t]]]
            cased[out] = any(cased[t] for t in ins)
            made[out] = einsum(*arguments, (case if cased[out] else []) + [letters[v] for v in self.scopes[out]])
        return sum(log(made[t]).sum() for t in self.plan.root_table.tolist())


def evidence(plan: Plan, n: int, batch: bool, seed: int) -> list[np.ndarray]:
    """Vectors of weights for every variable: any numbers above 0 cost the same."""
    rng = np.random.default_rng(seed)
    return [0.5 + rng.random((n, int(c)) if batch else int(c)) for c in plan.cardinality]


def judge(plan: Plan, tables: list[np.ndarray], vectors: list[np.ndarray], posterior: list[np.ndarray]) -> float:
    """Largest error of the first case."""
    first = {v: (w[0] if w.ndim == 2 else w) for v, w in enumerate(vectors)}
    expected = reference.prepare(plan, tables).run(Evidence(np.full(plan.n_variables, -1, np.int32), first)).posterior
    got = np.concatenate([(p[0] if p.ndim == 2 else p) for p in posterior])
    return float(np.abs(got - expected).max())


Answer = tuple[list[np.ndarray], float, float]


def with_jax(path: Contraction, sets: list[list[np.ndarray]], batch: bool, runs: int) -> Answer:
    """Posteriors of the first set, seconds of compiling, seconds of a run."""
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    jax.config.update("jax_enable_x64", True)
    factors = [jnp.asarray(f) for f in path.factors]

    def total(vectors: list[Any]) -> Any:
        return path.log_z(jnp.einsum, jnp.log, factors, vectors, batch)

    run = jax.jit(lambda vectors: [g * v for g, v in zip(jax.grad(total)(vectors), vectors, strict=True)])
    given = [[jnp.asarray(v) for v in vectors] for vectors in sets]
    start = time.perf_counter()
    found = jax.block_until_ready(run(given[0]))
    compiled = time.perf_counter() - start
    answer = [np.asarray(p) for p in found]
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for i in range(runs):
            found = run(given[i % len(given)])
        jax.block_until_ready(found)
        times.append((time.perf_counter() - start) / runs)
    return answer, compiled, statistics.median(times)


def with_torch(path: Contraction, sets: list[list[np.ndarray]], batch: bool, runs: int) -> Answer:
    """As `with_jax`; the graph of forward and backward is recorded once and replayed."""
    torch: Any = importlib.import_module("torch")
    card = torch.device("cuda")
    factors = [torch.as_tensor(f, device=card) for f in path.factors]
    given = [[torch.as_tensor(v, device=card) for v in vectors] for vectors in sets]
    inputs = [v.clone().requires_grad_() for v in given[0]]

    def work() -> list[Any]:
        total = path.log_z(torch.einsum, torch.log, factors, inputs, batch)
        return [g * v.detach() for g, v in zip(torch.autograd.grad(total, inputs), inputs, strict=True)]

    start = time.perf_counter()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    graph.replay()
    torch.cuda.synchronize()
    compiled = time.perf_counter() - start
    answer = [p.cpu().numpy() for p in found]
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(runs):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / runs)
    return answer, compiled, statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("order")
    parser.add_argument("--engine", choices=("jax", "torch"), required=True)
    parser.add_argument("--batch", type=int, default=0, help="cases of a table; 0: one case")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    model = jtgpu.read(options.network)
    plan = model.plan(order=options.order, max_table=None, memory_limit=1e15).plan
    tables = [f.table for f in compiler.model_factors(model)]
    batch = options.batch > 0
    sets = [evidence(plan, max(options.batch, 1), batch, seed) for seed in range(1 if batch else 4)]
    work = with_jax if options.engine == "jax" else with_torch
    answer, compiled, seconds = work(Contraction(plan, tables), sets, batch, options.runs)
    row = {
        "engine": options.engine,
        "batch": options.batch,
        "device_us": round(seconds * 1e6, 1),
        "cases_per_s": round(max(options.batch, 1) / seconds),
        "compile_s": round(compiled, 1),
        "error": judge(plan, tables, sets[0], answer),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
