"""Queries other than posteriors, compared with pyAgrum where it has them; answers are compared first.

    python bench/bench_queries.py                              the networks below, all questions, to bench/results
    python bench/bench_queries.py asia alarm --evidence 0 20   others of nets/, or paths
    python bench/bench_queries.py --questions mi mpe           some of the questions
    python bench/bench_queries.py --smoke                      two small networks, one run, nothing kept

Questions: `joint2`, `joint4` (joint posteriors of variables chosen at random), `mi` (mutual information of one target
and every other variable), `voi` (what to observe next), `soft` (two variables with soft evidence), `do` (posteriors
under an intervention), `likelihood` (a table of 1000 cases), `sets` (the same with a likelihood and the joint posterior
of two variables, and what it takes where that factor is constant), `mpe`, `sample` (10,000 posterior samples),
`sensitivity` (of one state to every parameter) and `contributions` (Shapley values of 15 findings). The cases of a row
observe the same variables in other states; pyAgrum keeps one engine. Both take their default number of threads, and
posteriors are read as arrays. Rows are JSON lines as those of bench_cpu.py.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from peers import pyagrum_engine
from rows import arrays, child, network, parser_of, row, store, timed

import jtgpu
from jtgpu import timing
from jtgpu.formats import bundled
from jtgpu.model.network import BayesianNetwork
from jtgpu.model.states import StateNumber

NETWORKS = ("asia", "alarm", "hailfinder", "water", "diabetes")
QUESTIONS = (
    "joint2", "joint4", "mi", "voi", "soft", "do", "likelihood", "sets", "mpe", "sample", "sensitivity",
    "contributions",
)  # fmt: skip
TOLERANCE = 1e-9  # largest difference of a probability, or of a logarithm of one
SAMPLES = 10_000
TABLE = 1000  # rows of a table of cases

Rows = Iterator[dict[str, Any]]
Case = dict[str, int]


class Bench:
    """One network, with the trees of both engines."""

    def __init__(self, path: Path, percent: float, budget: float, seed: int, smoke: bool):
        net = jtgpu.read(path)
        if not isinstance(net, BayesianNetwork):
            raise SystemExit(f"{path}: no Bayesian network")
        self.net, self.name, self.percent = net, bundled.stem(path), percent
        self.budget, self.least = budget, 1 if smoke else 5
        self.tree: jtgpu.JunctionTree = net.plan(memory_limit=None).compile("cpu")
        self.sampled: list[Case] = timing.sample_cases(net, 10, percent / 100, seed) if percent else [{}]
        self.cases = self.sampled
        free = [v for v in net.variables if v not in self.cases[0] and len(net.states(v)) > 1]
        self.some: list[str] = np.random.default_rng(seed).permutation(free)[:4].tolist()
        self.library: Any = importlib.import_module("pyagrum") if pyagrum_engine.available() else None
        self.peer = pyagrum_engine.Peer(net) if self.library is not None else None

    def engine(self) -> Any:
        """A new inference engine of pyAgrum."""
        assert self.peer is not None
        return self.peer._engine(None)

    def rows(
        self, question: str, ours: Callable[[Case], Any], theirs: Callable[[], Callable[[Case], Any]] | None = None,
        gap: float | None = None, **more: Any,
    ) -> Rows:  # fmt: skip
        """Ours, and theirs."""
        ours(self.cases[0])
        spread = timed(ours, self.cases, self.budget, self.least)
        facts = {"question": question, "percent": self.percent, "observed": len(self.cases[0]), **more}
        yield row("queries", self.name, "jtgpu cpu", spread, version=jtgpu.__version__, gap=gap, **facts)
        if theirs is None or self.library is None:
            return
        solve = theirs()
        solve(self.cases[0])
        spread = timed(solve, self.cases, self.budget, min(3, self.least), most=50)
        yield row("queries", self.name, "pyagrum", spread, version=pyagrum_engine.version(), **facts)

    def check(self, gap: float, question: str) -> float:
        """Refuse to time answers that differ."""
        if not gap <= TOLERANCE:
            raise SystemExit(f"{self.name}, {question}: the answers differ by {gap:g}; nothing is timed")
        return gap

    # Questions --------------------------------------------------------------------------------------------------

    def joint(self, n: int) -> Rows:
        some = self.some[:n]
        if len(some) < n:
            return
        cost = self.tree.joint_cost(some, self.cases[0])

        def theirs() -> Callable[[Case], Any]:
            kept = self.engine()
            kept.addJointTarget(set(some))

            def solve(case: Case) -> Any:
                engine = kept
                if not case:  # the same question again it answers from memory
                    engine = self.engine()
                    engine.addJointTarget(set(some))
                engine.setEvidence(case)
                engine.makeInference()
                table = engine.jointPosterior(set(some))
                return table.names, table.toarray()

            return solve

        gap = None
        if self.library is not None:
            names, table = theirs()(self.cases[0])
            axes = [list(reversed(names)).index(v) for v in some]
            mine = np.asarray(self.tree.joint(some, self.cases[0]))
            gap = self.check(float(np.abs(table.transpose(axes) - mine).max()), f"joint{n}")
        facts = {"variables": some, "entries": cost.entries, "how": cost.how, "cases": cost.cases}
        yield from self.rows(f"joint{n}", lambda case: np.asarray(self.tree.joint(some, case)), theirs, gap, **facts)

    def joint2(self) -> Rows:
        """Two variables."""
        yield from self.joint(2)

    def joint4(self) -> Rows:
        """Four."""
        yield from self.joint(4)

    def mi(self) -> Rows:
        """One target against all others."""
        target = self.some[0]
        others = [v for v in self.net.variables if v != target and v not in self.cases[0]]

        def theirs() -> Callable[[Case], Any]:
            assert self.peer is not None
            ask = self.peer.kept()  # all posteriors for each state of the target: quicker than a pair at a time

            def solve(case: Case) -> dict[str, float]:
                prior = ask(case)[target]
                given = {t: ask({**case, target: t}) for t in np.flatnonzero(prior).tolist()}
                found = {}
                for v in others:
                    both = np.array([prior[t] * given[t][v] for t in given])
                    apart = both.sum(axis=1, keepdims=True) * both.sum(axis=0)
                    at = both > 0
                    found[v] = float((both[at] * np.log(both[at] / apart[at])).sum())
                return found

            return solve

        gap = None
        if self.library is not None:
            mine, other = self.tree.mutual_information(target, others, self.cases[0]), theirs()(self.cases[0])
            gap = self.check(max(abs(mine[v] - other[v]) for v in others), "mi")
        yield from self.rows(
            "mi", lambda case: self.tree.mutual_information(target, others, case), theirs, gap, others=len(others)
        )

    def voi(self) -> Rows:
        """What to observe next."""
        yield from self.rows("voi", lambda case: self.tree.value_of_information(self.some[0], None, case))

    def contributions(self) -> Rows:
        """Shapley values of 15 findings, or fewer, which add up to the change of the target; pyAgrum has all states."""
        target = self.some[0]
        chosen = [v for v in np.random.default_rng(0).permutation(self.net.variables).tolist() if v != target][:15]
        whole = timing.sample_cases(self.net, 10, 1.0, 0)
        self.cases = [{v: case[v] for v in chosen} for case in whole]
        why = self.tree.contributions(target, self.cases[0])
        gap = self.check(abs(why.base + sum(why.values()) - why.total), "contributions")

        def theirs() -> Callable[[Case], Any]:
            make = importlib.import_module("pyagrum.explain").ConditionalShapValues
            assert self.peer is not None
            engine = make(self.peer._theirs, target, logit=False)
            return lambda case: engine.compute((case, False))

        if self.library is not None:
            other = theirs()(self.cases[0])[self.net.states(target).index(why.state)]
            gap = self.check(max(abs(why[v] - other[v]) for v in chosen), "contributions")
        yield from self.rows("contributions", lambda case: self.tree.contributions(target, case), theirs, gap)

    def soft(self) -> Rows:
        """Two soft findings, fitted, and all posteriors."""
        goal = {}
        for v in self.some[:2]:  # half-way to uniform: surely possible
            p = np.asarray(self.tree.posterior(v, self.cases[0]))
            goal[v] = np.where(p > 0, 0.5 * p + 0.5 / np.count_nonzero(p), 0.0)
        self.cases = [c for c in self.cases if self._possible(c, soft=goal)]
        post = self.tree.posteriors(self.cases[0], soft=goal)
        gap = self.check(max(float(np.abs(np.asarray(post[v]) - q).max()) for v, q in goal.items()), "soft")
        yield from self.rows("soft", lambda case: arrays(self.tree.posteriors(case, soft=goal)), gap=gap)

    def _possible(self, case: Case, **more: Any) -> bool:
        try:
            self.tree.posteriors(case, **more)
        except jtgpu.EvidenceError:
            return False
        return True

    def do(self) -> Rows:
        """All posteriors where one variable is set from outside, as in pyAgrum's network without its arcs."""
        v = max(self.some, key=lambda v: len(self.net.parents(v)))
        do = {v: StateNumber(np.asarray(self.tree.posterior(v, self.cases[0])).argmax())}  # surely possible
        names = self.net.variables
        uniform = np.full(len(self.net.states(v)), 1 / len(self.net.states(v)))
        cut = BayesianNetwork(
            {u: self.net.states(u) for u in names},
            {u: () if u == v else self.net.parents(u) for u in names},
            {u: uniform if u == v else self.net.cpt(u) for u in names},
        )
        self.cases = [c for c in self.cases if self._possible(c, do=do)]
        mine, other = self.tree.posteriors(self.cases[0], do=do), cut.compile("reference")
        expected = other.posteriors({**self.cases[0], **do})
        gap = self.check(max(float(np.abs(np.asarray(p) - expected[u]).max()) for u, p in mine.items()), "do")
        theirs = None
        if self.library is not None:
            peer = pyagrum_engine.Peer(cut)

            def theirs() -> Callable[[Case], Any]:
                solve = peer.kept()
                return lambda case: solve({**case, **do})

        yield from self.rows("do", lambda case: arrays(self.tree.posteriors(case, do=do)), theirs, gap, variable=v)

    def likelihood(self) -> Rows:
        """ln P of a table of cases, a third of the cells missing."""
        whole = self.tree.model
        sampled = timing.sample_cases(self.net, TABLE, 1.0, 3)
        states = np.array([[c[v] for v in whole.variables] for c in sampled], np.int32)
        states[np.random.default_rng(3).random(states.shape) < 1 / 3] = -1
        found = self.tree.log_likelihood(states)
        gap = None
        if self.peer is not None:
            engine, gap = self.engine(), 0.0
            for i in range(5):
                engine.setEvidence({v: int(s) for v, s in zip(whole.variables, states[i], strict=True) if s >= 0})
                engine.makeInference()
                gap = max(gap, abs(math.log(engine.evidenceProbability()) - found[i]))
            self.check(gap, "likelihood")

        def theirs() -> Callable[[Case], Any]:
            engine = self.engine()

            def solve(_: Case) -> None:
                for line in states.tolist():
                    engine.setEvidence({v: s for v, s in zip(whole.variables, line, strict=True) if s >= 0})
                    engine.makeInference()
                    engine.evidenceProbability()

            return solve

        self.cases = [{}]
        yield from self.rows("likelihood", lambda _: self.tree.log_likelihood(states), theirs, gap, rows=TABLE)

    def sets(self) -> Rows:
        """A likelihood and the joint posterior of two variables in a table of cases; no peer has them."""
        pair = tuple(self.some[:2])
        with self.net.plan(memory_limit=None, together=[pair]).compile("cpu") as tree:
            states = tree.sample(TABLE, seed=2).states.astype(np.int32)
            states[np.random.default_rng(3).random(states.shape) < 2 / 3] = -1
            states[:, [self.net.index(v) for v in pair]] = -1
            shape = tuple(len(self.net.states(v)) for v in pair)
            weights = np.random.default_rng(4).random((TABLE, *shape))
            self.cases, cells = [{}], math.prod(shape)
            more: dict[str, Any] = {"rows": TABLE, "cells": cells}
            yield from self.rows("sets", lambda _: arrays(tree.posteriors_batch(states)), factor="constant", **more)
            given = {pair: weights}
            yield from self.rows("sets", lambda _: arrays(tree.posteriors_batch(states, likelihood=given)), **more)
            yield from self.rows(
                "sets", lambda _: arrays(tree.posteriors_batch(states, likelihood=given, joints=[pair])), joint=True,
                **more,
            )  # fmt: skip

    def mpe(self) -> Rows:
        """The most probable explanation. pyAgrum's refuses most networks, and then is left out."""

        def theirs() -> Callable[[Case], Any]:
            engine = self.engine()

            def solve(case: Case) -> tuple[Any, float]:
                engine.setEvidence(case)
                engine.makeInference()
                return engine.mpe(), engine.mpeLog2Posterior() * math.log(2)

            return solve

        gap, refused = None, ""
        if self.library is not None:
            try:
                gap = abs(theirs()(self.cases[0])[1] - self.tree.mpe(self.cases[0]).log_posterior)
            except Exception as error:  # whatever it raises is what the row tells
                refused = f"{type(error).__name__}: {error}"[:200]
            if gap is not None and not gap <= 1e-6:
                refused, gap = f"its logarithm of the posterior is off by {gap:.3g}", None
        mine = self.tree.mpe
        yield from self.rows("mpe", mine, theirs if gap is not None else None, gap, peer_refused=refused)
        yield from self.rows("mpe of 10", lambda case: mine(case, k=10))

    def sample(self) -> Rows:
        """Posterior samples; pyAgrum has forward sampling, which takes no evidence."""
        found = self.tree.sample(SAMPLES, self.cases[0], seed=1)
        post = self.tree.posteriors(self.cases[0])
        for i, v in enumerate(self.net.variables):
            p = np.asarray(post[v])
            share = np.bincount(np.asarray(found.states)[:, i], minlength=len(p)) / SAMPLES
            if not (np.abs(share - p) <= 6 * np.sqrt(p * (1 - p) / SAMPLES) + 1e-12).all():
                raise SystemExit(f"{self.name}: samples of {v} do not follow its posterior; nothing is timed")
        theirs = None
        if self.library is not None and not self.percent:

            def theirs() -> Callable[[Case], Any]:
                generator = self.library.BNDatabaseGenerator(self.peer._theirs)  # type: ignore[union-attr]
                return lambda case: generator.drawSamples(SAMPLES)

        for r in self.rows("sample", lambda case: self.tree.sample(SAMPLES, case, seed=1), theirs):
            yield {**r, "samples": SAMPLES, "samples_per_second": SAMPLES / r["median"]}

    def sensitivity(self) -> Rows:
        """Of one state to every parameter: one pass. Checked by a finite difference."""
        target = (self.some[0], StateNumber(0))
        found = self.tree.sensitivity(target, self.cases[0])
        top = found.top(1)[0]
        step = 1e-6 if top.value + 1e-6 <= 1 else -1e-6
        moved = found.at(top.variable, top.entry, top.value + step)
        gap = abs((moved - found.probability) / step - top.derivative)
        if not gap <= 1e-3 * max(1.0, abs(top.derivative)):
            raise SystemExit(f"{self.name}: a derivative is off by {gap:g}; nothing is timed")
        parameters = sum(self.net.cpt(v).size for v in self.net.variables)
        yield from self.rows(
            "sensitivity", lambda case: self.tree.sensitivity(target, case).top(10), parameters=parameters
        )


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__, "queries.jsonl", seed=1)
    parser.add_argument("networks", nargs="*", help=f"default: {' '.join(NETWORKS)}")
    parser.add_argument("--evidence", nargs="+", type=float, default=[0.0, 10.0], help="percent of the variables")
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for a row")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        timing.warm_up("cpu")
        bench = Bench(network(given.one), given.evidence[0], given.budget, given.seed, given.smoke)
        for question in given.questions:
            bench.cases = bench.sampled
            for r in getattr(bench, question)():
                print(json.dumps(r), flush=True)
        return
    names = given.networks or list(NETWORKS)
    more = ["--questions", *given.questions, "--seed", str(given.seed)]
    if given.smoke:
        names, more = given.networks or ["asia", "alarm"], [*more, "--smoke", "--budget", "0"]
    else:
        more += ["--budget", str(given.budget)]
    print(f"{'network':<12}{'evidence':>9}  {'question':<12}{'engine':<11}{'median, ms':>12}{'quartiles':>24}")
    for name in names:
        for percent in given.evidence:
            rows = list(child(__file__, "--one", name, "--evidence", str(percent), *more))
            for r in rows:
                spread = f"({1e3 * r['low']:.3f} - {1e3 * r['high']:.3f})"
                print(f"{r['network']:<12}{percent:>7.0f} %  {r['question']:<12}{r['engine']:<11}"
                      f"{1e3 * r['median']:>12.3f}{spread:>24}", flush=True)  # fmt: skip
            store(given, rows)


if __name__ == "__main__":
    main()
