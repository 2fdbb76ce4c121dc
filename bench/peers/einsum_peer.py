"""What a user of torch or JAX has on the same card: the network contracted pair by pair, posteriors as a gradient.

ln Z is a function of one evidence vector a variable; its gradient times the vector is the posterior (Darwiche, A
differential approach to inference in Bayesian networks, JACM 50, 2003). CPTs and vectors are contracted two at a time
along the cheapest of three paths: our own elimination order, opt_einsum's greedy one, and the best of its random
greedy ones; the row says which. float64; all vectors of a case are in one array (a list of a thousand arrays would
cost more than the work), which changes between runs. Variants, all of which a user might write:

jax             `jax.jit`; a table of cases by `jax.vmap`
jax-sum         the same with products that are summed instead of dot products, which XLA fuses; cases innermost
torch           eager, recorded once as a CUDA graph and replayed; cases outermost
torch-compile   `torch.compile` forward and backward, then the same
torch-sum       the same with products that are summed; cases innermost

    python bench/peers/einsum_peer.py NETWORK ORDER --engine NAME [--batch B] [--wait]     one JSON line

With ``--wait`` it says ``ready`` once it has compiled and its answers are right, and times when a line comes in: many
can compile at once and be timed one after another.
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.plans import compiler
from jtgpu.plans.plan import Plan

ENGINES = ("jax", "jax-sum", "torch", "torch-compile", "torch-sum")
RANDOM_SECONDS = 3.0  # that the random greedy search may take
WRITTEN = 40  # multiplications that one entry of a result is worth: 1.6e13 of them a second, 3e12 bytes
SETS = 4  # of vectors that take turns
Scope = tuple[int, ...]
Step = tuple[int, int, Scope]  # two tensors, as numbered in the order in which they are made, and the result's axes


class Contraction:
    """The network and one vector a variable as a sequence of products of two tensors that ends in numbers."""

    def __init__(self, plan: Plan, tables: Sequence[np.ndarray]):
        self.plan = plan
        self.cards = plan.cardinality.tolist()
        self.ptr = plan.posterior_ptr.tolist()
        self.factors = [np.ascontiguousarray(t) for t in tables]
        self.inputs: list[Scope] = [tuple(s) for s in plan.factor_scopes] + [(v,) for v in range(plan.n_variables)]
        paths = {"elimination order": self._eliminated()} | self._searched()
        costs = {name: self._cost(path) for name, path in paths.items()}
        self.path = min(paths, key=lambda name: costs[name][0] + WRITTEN * costs[name][1])
        self.multiplications, self.results = costs[self.path]
        self.steps: list[Step] = [(i, j, kept) for i, j, kept, _ in self._walk(paths[self.path])]

    def _eliminated(self) -> list[tuple[int, int]]:
        """Bucket elimination: of the tensors that hold the next variable, always the two smallest."""
        scopes: dict[int, frozenset[int]] = {i: frozenset(s) for i, s in enumerate(self.inputs)}
        pairs: list[tuple[int, int]] = []

        def join(members: list[int], gone: frozenset[int]) -> None:
            heap = [(self._size(scopes[i]), i) for i in members]
            heapq.heapify(heap)
            while len(heap) > 1:
                (_, i), (_, j) = heapq.heappop(heap), heapq.heappop(heap)
                made = len(self.inputs) + len(pairs)
                pairs.append((i, j))
                joint = scopes.pop(i) | scopes.pop(j)
                scopes[made] = joint - gone if not heap else joint
                heapq.heappush(heap, (self._size(scopes[made]), made))

        for v in self.plan.elimination_order.tolist():
            join([i for i, s in scopes.items() if v in s], frozenset([v]))
        join(list(scopes), frozenset())
        return pairs

    def _searched(self) -> dict[str, list[tuple[int, int]]]:
        """opt_einsum's paths, where it is installed."""
        try:
            paths: Any = importlib.import_module("opt_einsum.paths")
            random: Any = importlib.import_module("opt_einsum.path_random")
            symbol = importlib.import_module("opt_einsum").get_symbol
        except ImportError:
            return {}
        inputs = [frozenset(symbol(v) for v in s) for s in self.inputs]
        sizes = {symbol(v): n for v, n in enumerate(self.cards)}
        search = random.RandomGreedy(max_time=RANDOM_SECONDS, max_repeats=256, parallel=False, minimize="flops")
        found = {"opt_einsum greedy": paths.greedy(inputs, frozenset(), sizes)}
        np.random.seed(0)  # noqa: NPY002 - opt_einsum draws from whatever there is
        found["opt_einsum random-greedy"] = search(inputs, frozenset(), sizes)
        return {name: self._numbered(path) for name, path in found.items()}

    def _numbered(self, path: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """From places in a list that shrinks to numbers that last; more than two at once become several pairs."""
        left = list(range(len(self.inputs)))
        pairs: list[tuple[int, int]] = []
        for places in path:
            members = [left[p] for p in places]
            for p in sorted(places, reverse=True):
                del left[p]
            while len(members) > 1:
                pairs.append((members[0], members[1]))
                members = [*members[2:], len(self.inputs) + len(pairs) - 1]
            left += members
        return pairs

    def _size(self, scope: frozenset[int]) -> int:
        return math.prod(self.cards[v] for v in scope)

    def _walk(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int, Scope, frozenset[int]]]:
        """Each pair with the axes that it leaves, and all that it has."""
        holders = [0] * len(self.cards)
        scopes = list(self.inputs)
        for s in scopes:
            for v in s:
                holders[v] += 1
        made = []
        for i, j in pairs:
            joint = frozenset(scopes[i]) | frozenset(scopes[j])
            for s in (scopes[i], scopes[j]):
                for v in s:
                    holders[v] -= 1
            kept = tuple(v for v in dict.fromkeys(scopes[i] + scopes[j]) if holders[v])
            for v in kept:
                holders[v] += 1
            scopes.append(kept)
            made.append((i, j, kept, joint))
        return made

    def _cost(self, pairs: list[tuple[int, int]]) -> tuple[int, int]:
        """Multiplications, and entries of all results, which a gradient keeps."""
        walked = self._walk(pairs)
        return sum(self._size(joint) for *_, joint in walked), sum(self._size(frozenset(k)) for _, _, k, _ in walked)

    def z(self, product: Callable[..., Any], factors: Sequence[Any], flat: Any, cases: bool) -> Any:
        """Z of one case; with cases innermost, of each."""
        made: list[Any] = [*factors]
        made += [flat[self.ptr[v] : self.ptr[v + 1]] for v in range(len(self.cards))]
        scopes = list(self.inputs)
        cased = [False] * len(factors) + [cases] * len(self.cards)
        for i, j, kept in self.steps:
            made.append(product(made[i], scopes[i], cased[i], made[j], scopes[j], cased[j], kept))
            made[i] = made[j] = None
            scopes.append(kept)
            cased.append(cased[i] or cased[j])
        return made[-1]


def by_einsum(einsum: Any) -> Callable[..., Any]:
    """The product of two tensors by a library's einsum; the axis of cases has its own letter."""

    def product(a: Any, s: Scope, case_a: bool, b: Any, t: Scope, case_b: bool, kept: Scope) -> Any:
        letter = {v: i for i, v in enumerate(dict.fromkeys(s + t))}
        case = [len(letter)]
        at = [[letter[v] for v in x] + (case if c else []) for x, c in ((s, case_a), (t, case_b))]
        return einsum(a, at[0], b, at[1], [letter[v] for v in kept] + (case if case_a or case_b else []))

    return product


def by_sums(cards: Sequence[int]) -> Callable[..., Any]:
    """The product of two tensors as a product of arrays and a sum, which compilers fuse."""

    def product(a: Any, s: Scope, case_a: bool, b: Any, t: Scope, case_b: bool, kept: Scope) -> Any:
        order = list(kept) + [v for v in dict.fromkeys(s + t) if v not in kept]
        both = []
        for x, scope, cased in ((a, s, case_a), (b, t, case_b)):
            own = [v for v in order if v in scope]
            turn = [scope.index(v) for v in own] + ([len(scope)] if cased else [])
            sizes = [cards[v] if v in scope else 1 for v in order]
            x = x.permute(turn) if hasattr(x, "permute") else x.transpose(turn)
            both.append(x.reshape(sizes + ([x.shape[-1]] if cased else [1] if case_a or case_b else [])))
        summed = tuple(range(len(kept), len(order)))
        made = both[0] * both[1]
        return made.sum(summed) if summed else made

    return product


def evidence(plan: Plan, n: int, seed: int) -> np.ndarray:
    """Weights for every state of every variable, (states, cases) or (states,): any numbers above 0 cost the same."""
    total = int(plan.posterior_ptr[-1])
    return 0.5 + np.random.default_rng(seed).random((total, n) if n else total)


def judge(plan: Plan, tables: list[np.ndarray], flat: np.ndarray, found: np.ndarray) -> float:
    """Largest error of the first case; both (states,) or (states, cases)."""
    first, got = (x[:, 0] if x.ndim == 2 else x for x in (flat, found))
    vectors = {v: first[a:b] for v, (a, b) in enumerate(zip(plan.posterior_ptr, plan.posterior_ptr[1:], strict=False))}
    case = Evidence(np.full(plan.n_variables, -1, np.int32), vectors)
    expected = reference.prepare(plan, tables).run_case(case).posterior
    return float(np.abs(got - expected).max())


Ready = tuple[np.ndarray, Callable[[int], float]]  # posteriors of the first set, and a function that times n runs


def with_jax(path: Contraction, sets: list[np.ndarray], engine: str) -> Ready:
    """One jitted function from the array of vectors to the array of posteriors."""
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    jax.config.update("jax_enable_x64", True)
    factors = [jnp.asarray(f) for f in path.factors]
    inner = sets[0].ndim == 2 and engine == "jax-sum"
    product = by_sums(path.cards) if engine == "jax-sum" else by_einsum(jnp.einsum)

    def posterior(flat: Any) -> Any:
        gradient = jax.grad(lambda x: jnp.log(path.z(product, factors, x, inner)).sum())
        return gradient(flat) * flat

    outer = sets[0].ndim == 2 and not inner
    run = jax.jit(jax.vmap(posterior) if outer else posterior)
    given = [jnp.asarray(np.ascontiguousarray(s.T) if outer else s) for s in sets]
    first = np.asarray(jax.block_until_ready(run(given[0])))

    def timed(n: int) -> float:
        jax.block_until_ready(run(given[-1]))
        found = None
        start = time.perf_counter()
        for i in range(n):
            found = run(given[i % len(given)])
        jax.block_until_ready(found)
        return (time.perf_counter() - start) / n

    return first.T if outer else first, timed


def with_torch(path: Contraction, sets: list[np.ndarray], engine: str) -> Ready:
    """A CUDA graph of forward and backward; the vectors are copied into its input before each replay."""
    torch: Any = importlib.import_module("torch")
    card = torch.device("cuda")
    factors = [torch.as_tensor(f, device=card) for f in path.factors]
    many = sets[0].ndim == 2
    inner = many and engine == "torch-sum"
    plain = by_einsum(torch.einsum)

    def outermost(a: Any, s: Scope, case_a: bool, b: Any, t: Scope, case_b: bool, kept: Scope) -> Any:
        letter = {v: i + 1 for i, v in enumerate(dict.fromkeys(s + t))}
        at = [([0] if c else []) + [letter[v] for v in x] for x, c in ((s, case_a), (t, case_b))]
        return torch.einsum(a, at[0], b, at[1], ([0] if case_a or case_b else []) + [letter[v] for v in kept])

    def total(flat: Any) -> Any:
        if engine == "torch-sum":
            return torch.log(path.z(by_sums(path.cards), factors, flat, inner)).sum()
        if not many:
            return torch.log(path.z(plain, factors, flat, False)).sum()
        return torch.log(path.z(outermost, factors, _Columns(flat), True)).sum()

    given = [torch.as_tensor(np.ascontiguousarray(s.T) if many and not inner else s, device=card) for s in sets]
    into = given[0].clone().requires_grad_()
    log_z = total if engine == "torch" else torch.compile(total, dynamic=False, fullgraph=True)

    def work() -> Any:
        return torch.autograd.grad(log_z(into), into)[0] * into.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    graph.replay()
    torch.cuda.synchronize()
    first = found.cpu().numpy()

    def timed(n: int) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for i in range(n):
            with torch.no_grad():
                into.copy_(given[i % len(given)])
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / n

    return (first.T if many and not inner else first), timed


class _Columns:
    """An array of cases whose slices go along the states."""

    def __init__(self, flat: Any):
        self._flat = flat

    def __getitem__(self, part: slice) -> Any:
        return self._flat[:, part]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("order")
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--batch", type=int, default=0, help="cases of a table; 0: one case")
    parser.add_argument("--cells", type=int, default=0, help="of all results of all cases: makes the batch smaller")
    parser.add_argument("--seconds", type=float, default=0.2, help="of timing")
    parser.add_argument("--wait", action="store_true", help="say ready, and time when a line comes in")
    options = parser.parse_args()
    model = jtgpu.read(options.network)
    plan = model.plan(order=options.order, max_table=None, memory_limit=1e15).plan
    tables = [f.table for f in compiler.model_factors(model)]
    path = Contraction(plan, tables)
    batch = options.batch
    if batch and options.cells:
        batch = max(64, min(batch, options.cells // max(1, path.results)))
    sets = [evidence(plan, batch, seed) for seed in range(2 if batch else SETS)]
    start = time.perf_counter()
    answer, timed = (with_jax if options.engine.startswith("jax") else with_torch)(path, sets, options.engine)
    compiled = time.perf_counter() - start
    error = judge(plan, tables, sets[0], answer)
    if options.wait:
        print("ready" if error < 1e-9 else f"wrong by {error:g}", flush=True)
        sys.stdin.readline()
    runs = max(3, min(200, int(options.seconds / 5 / max(timed(2), 1e-6))))
    times = sorted(timed(runs) for _ in range(5))
    row = {
        "engine": options.engine,
        "batch": batch,
        "device_us": round(statistics.median(times) * 1e6, 1),
        "low_us": round(times[0] * 1e6, 1),
        "high_us": round(times[-1] * 1e6, 1),
        "cases_per_s": round(max(batch, 1) / statistics.median(times)),
        "compile_s": round(compiled, 1),
        "steps": len(path.steps),
        "path": path.path,
        "multiplications": path.multiplications,
        "results": path.results,
        "error": error,
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
