"""The first answer to a new question: every call observes variables that no call before it observed together.

Rows of `bench_cpu`, question `first`: the posteriors of all variables, and of one. 100 patterns (fewer where the
network has fewer), each answered once by a tree that has answered a few others; `median`, `p90` and `maximum` of the
calls, and `cpu`, the median of the time that the process spent on a processor (on a busy machine the better figure).
pyAgrum gets a new engine for each of the same questions (its tree depends on the evidence), for as many of them as fit
the budget. Both take their default number of threads, and end when every posterior has been read as an array.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from peers import pyagrum_engine
from rows import arrays, compare

import jtgpu
from jtgpu import timing
from jtgpu.model.network import BayesianNetwork

PATTERNS, WARM, CHECKED = 100, 5, 3
PEER_SECONDS = 20.0  # per row, at least five questions


class Question(NamedTuple):
    """A case, and the variable whose posterior is the single target."""

    case: dict[str, int]
    target: str


class Bench(Protocol):
    """What `first_answers` needs of `bench_cpu.Bench`."""

    net: BayesianNetwork
    name: str
    plan: Any
    seed: int
    smoke: bool

    def peer(self, percent: float) -> pyagrum_engine.Peer | None: ...

    def row(self, question: str, engine: str, spread: timing.Spread | None, percent: float, **more: Any) -> Any: ...


def questions(net: BayesianNetwork, percent: float, n: int, seed: int) -> list[Question]:
    """Up to n forward samples, each with other variables observed."""
    random = np.random.default_rng(seed)
    observed = max(1, round(percent / 100 * len(net)))
    found: dict[frozenset[str], Question] = {}
    for sample in timing.sample_cases(net, 3 * n, 1.0, seed):
        chosen = [net.variables[v] for v in random.permutation(len(net))[: observed + 1].tolist()]
        question = Question({v: sample[v] for v in chosen[:-1]}, chosen[-1])
        found.setdefault(frozenset(question.case), question)
    return list(found.values())[:n]


def first_answers(bench: Bench, percent: float) -> Iterator[dict[str, Any]]:
    """The rows of a network and a share of observed variables."""
    n = WARM + (5 if bench.smoke else PATTERNS)
    asked, peer = questions(bench.net, percent, n, bench.seed), bench.peer(percent)
    for name, single in (("first", False), ("first target", True)):
        gap = None if peer is None else _check(bench, peer, asked[:CHECKED], single)
        with bench.plan.compile("cpu") as tree:
            solve = _of_tree(tree, single)
            for question in asked[:WARM]:
                solve(question)
            yield _row(bench, name, "jtgpu cpu", percent, _times(solve, asked[WARM:]), gap=gap)
        if peer is not None:
            solve = _of_peer(peer, single)
            solve(asked[0])
            seconds = 0.1 if bench.smoke else PEER_SECONDS
            yield _row(bench, name, "pyagrum", percent, _times(solve, asked[WARM:], seconds))


def _of_tree(tree: jtgpu.JunctionTree, single: bool) -> Callable[[Question], Any]:
    if single:
        return lambda q: {q.target: np.asarray(tree.posterior(q.target, q.case))}
    return lambda q: arrays(tree.posteriors(q.case))


def _of_peer(peer: pyagrum_engine.Peer, single: bool) -> Callable[[Question], Any]:
    return lambda q: peer.kept(targets=[q.target] if single else None)(q.case)


def _check(bench: Bench, peer: pyagrum_engine.Peer, asked: Sequence[Question], single: bool) -> float:
    """Compare answers to pyAgrum's; returns the largest difference."""
    with bench.plan.compile("cpu") as tree:
        return max(compare(_of_tree(tree, single)(q), _of_peer(peer, single)(q), bench.name) for q in asked)


def _times(
    solve: Callable[[Question], Any], asked: Sequence[Question], budget: float = float("inf")
) -> tuple[list[float], list[float]]:
    """Seconds of each call, and seconds on a processor."""
    wall, cpu = [], []
    started = time.perf_counter()
    for question in asked:
        begin, used = time.perf_counter(), time.process_time()
        solve(question)
        cpu.append(time.process_time() - used)
        wall.append(time.perf_counter() - begin)
        if len(wall) >= 5 and time.perf_counter() - started > budget:
            break
    return wall, cpu


def _row(
    bench: Bench, question: str, engine: str, percent: float, times: tuple[list[float], list[float]], **more: Any
) -> dict[str, Any]:
    wall, cpu = times
    made: dict[str, Any] = bench.row(
        question, engine, timing.Spread.of(wall), percent, p90=float(np.quantile(wall, 0.9)), maximum=max(wall),
        cpu=float(np.median(cpu)), cpu_p90=float(np.quantile(cpu, 0.9)), cpu_maximum=max(cpu), **more,
    )  # fmt: skip
    return made
