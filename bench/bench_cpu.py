"""The CPU backend compared with pyAgrum's best in one process; answers are compared before anything is timed.

    python bench/bench_cpu.py                              all networks of nets/, all questions, to bench/results
    python bench/bench_cpu.py asia alarm --evidence 0 20   others, or paths
    python bench/bench_cpu.py --questions posteriors       some of the questions
    python bench/bench_cpu.py --questions first --evidence 2 10 30 alarm andes barley
    python bench/bench_cpu.py --smoke                      three small networks, one run, nothing kept

Questions: `posteriors` (all of them; the cases of a row observe the same variables in other states), `patterns` (each
case observes other variables), `target` (one variable's posterior), `session` (one finding changes a call), `batch`
(a table of cases in one call), `first` (the first answer to a new pattern, see first_answers.py), `memory` (of the
whole process), `machine` (what this machine can do at best).
Both engines run with one thread and with two; pyAgrum without evidence runs in two ways (see peers/pyagrum_engine.py)
and the better one counts. Rows are JSON lines: commit, device, network, question, engine, threads, median, quartiles.
Every network runs in a process of its own, one after the other.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from first_answers import first_answers
from numpy.typing import NDArray
from peers import pyagrum_engine
from rows import child, compare, network, parser_of, row, store, timed

import jtgpu
from jtgpu import timing
from jtgpu.formats import bundled
from jtgpu.model.network import BayesianNetwork
from jtgpu.util import system

QUESTIONS = ("posteriors", "patterns", "first", "target", "session", "batch", "memory")
THREADS = (1, 2)
# share of observed variables (%) below which pyAgrum's own trees take more than 10 GB, or minutes a row
TOO_LARGE_FOR_PYAGRUM = {"link": 101.0, "munin1": 101.0}
BATCH_SECONDS = 1.0  # what the cases of a table would take one by one

Rows = Iterator[dict[str, Any]]


class Bench:
    """One network, with the trees of both engines."""

    def __init__(self, path: Path, budget: float, seed: int, smoke: bool):
        net = jtgpu.read(path)
        if not isinstance(net, BayesianNetwork):
            raise SystemExit(f"{path}: no Bayesian network")
        self.net, self.name = net, bundled.stem(path)
        self.budget, self.seed, self.least = budget, seed, 1 if smoke else 5
        self.smoke = smoke
        self.plan = net.plan(memory_limit=None)
        self.trees = {t: self.plan.compile("cpu", threads=t) for t in THREADS}
        self._peer: pyagrum_engine.Peer | None = None

    def peer(self, percent: float) -> pyagrum_engine.Peer | None:
        """pyAgrum, where it is installed and answers."""
        if not pyagrum_engine.available() or percent < TOO_LARGE_FOR_PYAGRUM.get(self.name, 0.0):
            return None
        if self._peer is None:
            self._peer = pyagrum_engine.Peer(self.net)
        return self._peer

    def cases(self, percent: float, n: int = 10) -> list[dict[str, int]]:
        return timing.sample_cases(self.net, n, percent / 100, self.seed) if percent else [{}]

    def other_patterns(self, percent: float, n: int) -> list[dict[str, int]]:
        """Cases that each observe other variables."""
        return [timing.sample_cases(self.net, 1, percent / 100, self.seed + i)[0] for i in range(n)]

    def row(self, question: str, engine: str, spread: timing.Spread | None, percent: float, **more: Any) -> Any:
        version = pyagrum_engine.version() if engine == "pyagrum" else jtgpu.__version__
        return row("cpu", self.name, engine, spread, question=question, percent=percent, version=version, **more)

    def both(
        self,
        question: str,
        percent: float,
        cases: list[Any],
        ours: Callable[[int], Callable[[Any], Any]],
        theirs: dict[str, Callable[[int], Callable[[Any], Any]]],
        resolve: bool = True,
        **more: Any,
    ) -> Rows:
        """Rows of ours for every number of threads, and of pyAgrum's best one."""
        for threads in THREADS:
            solve = ours(threads)
            if resolve:
                self.resolve(solve, cases)
            else:
                solve(cases[0])
            spread = timed(solve, cases, self.budget, self.least)
            yield self.row(question, "jtgpu cpu", spread, percent, threads=threads, **more)
        best: tuple[timing.Spread, str, int] | None = None
        for way, make in theirs.items():
            for threads in THREADS:
                solve = make(threads)
                solve(cases[0])
                spread = timed(solve, cases, self.budget, min(3, self.least), most=50)
                if best is None or spread.median < best[0].median:
                    best = spread, way, threads
        if best is not None:
            yield self.row(question, "pyagrum", best[0], percent, way=best[1], threads=best[2])

    def resolve(self, solve: Callable[[Any], Any], cases: list[Any]) -> None:
        """Run until what comes again and again has been prepared for: plans of its own, zeros left out."""
        started = time.perf_counter()
        for i in range(1 if self.smoke else 2000):
            solve(cases[i % len(cases)])
            if i >= 50 and time.perf_counter() - started > 3 * self.budget:
                break

    # Questions --------------------------------------------------------------------------------------------------

    def posteriors(self, percent: float) -> Rows:
        cases, peer = self.cases(percent), self.peer(percent)
        answer = self.trees[1].posteriors(cases[0])
        timing.check_answers(answer, observed=cases[0])
        theirs: dict[str, Any] = {}
        gap = None
        if peer is not None:
            theirs = {"kept": peer.kept} if percent else {"fresh": peer.fresh, "weighed": peer.weighed}
            gap = max(self._gap(make(1)(cases[0]), cases[0]) for make in theirs.values())
        cost = self.plan.cost()
        sizes: dict[str, Any] = {
            "entries": cost.entries, "largest": cost.largest, "cliques": cost.cliques, "bytes": cost.bytes,
            "terms": self._terms(cases[0]), "observed": len(cases[0]), "gap": gap, "log_evidence": answer.log_evidence,
        }  # fmt: skip
        yield from self.both("posteriors", percent, cases, lambda t: self.trees[t].posteriors, theirs, **sizes)

    def patterns(self, percent: float) -> Rows:
        if not percent:
            return
        cases, peer = self.other_patterns(percent, 300), self.peer(percent)
        self.trees[1].posteriors(cases[0])
        theirs: dict[str, Any] = {} if peer is None else {"kept": peer.kept}

        def ours(threads: int) -> Callable[[Any], Any]:
            tree: jtgpu.JunctionTree = self.plan.compile("cpu", threads=threads)  # one that has seen no pattern
            return tree.posteriors

        yield from self.both("patterns", percent, cases, ours, theirs, resolve=False)

    def first(self, percent: float) -> Rows:
        if percent:
            yield from first_answers(self, percent, THREADS)

    def target(self, percent: float) -> Rows:
        cases, peer = self.cases(percent), self.peer(percent)
        hidden = [v for v in self.net.variables if v not in cases[0]]
        asked = hidden[len(hidden) // 2]
        theirs: dict[str, Any] = {}
        if peer is not None and percent:  # without evidence nothing changes from call to call
            theirs = {"kept": lambda t: peer.kept(t, [asked])}
            compare(self._ours(self.trees[1].posteriors(cases[0])), peer.kept(1, [asked])(cases[0]), self.name)
        yield from self.both(
            "target", percent, cases, lambda t: lambda case: self.trees[t].posterior(asked, case), theirs, asked=asked
        )

    def session(self, percent: float) -> Rows:
        if not percent:
            return
        (case, *others), peer = self.cases(percent, 30), self.peer(percent)
        turns = []  # findings that become others, possible ones, and what they were again
        for v, state in case.items():
            for other in dict.fromkeys(c[v] for c in others):
                if other != state and self._is_possible({**case, v: other}):
                    turns += [(v, other), (v, state)]
                    break
        if not turns:
            return

        def ours(threads: int) -> Callable[[Any], Any]:
            session = self.trees[threads].session(case)

            def solve(finding: tuple[str, int]) -> Any:
                session.observe(*finding)
                return session.posteriors()

            session.posteriors()
            return solve

        theirs: dict[str, Any] = {} if peer is None else {"changing": lambda t: peer.changing(t, case)}
        yield from self.both("session", percent, turns, ours, theirs, changes=len(turns))

    def batch(self, percent: float) -> Rows:
        if not percent:
            return
        one = timed(self.trees[1].posteriors, self.cases(percent), 0.2, 1).median
        n = 32 if self.smoke else int(np.clip(BATCH_SECONDS / one, 32, 100_000))
        peer = self.peer(percent)
        states = self._samples(n)
        random = np.random.default_rng(self.seed)
        same = np.full_like(states, -1)
        columns = random.permutation(len(self.net))[: max(1, round(percent / 100 * len(self.net)))]
        same[:, columns] = states[:, columns]
        mixed = np.where(random.random(states.shape) < percent / 100, states, np.int32(-1)).astype(np.int32)
        for kind, table in (("same", same), ("mixed", mixed)):
            for threads in THREADS:
                tree = self.trees[threads]
                answer = tree.posteriors_batch(table[: min(n, 64)])
                for i in (0, min(n, 64) - 1):
                    case = {v: int(table[i, k]) for k, v in enumerate(self.net.variables) if table[i, k] >= 0}
                    single = tree.posteriors(case)
                    compare(self._ours(single), {v: answer[v][i] for v in self.net.variables}, self.name)
                spread = timed(tree.posteriors_batch, [table], self.budget, min(3, self.least), most=10)
                yield self.row(f"batch {kind}", "jtgpu cpu", spread, percent, threads=threads, cases=n,
                               cases_per_second=n / spread.median)  # fmt: skip
            if peer is not None:
                few = [{v: int(r[k]) for k, v in enumerate(self.net.variables) if r[k] >= 0}
                       for r in table[:200].tolist()]  # fmt: skip
                spreads = [(timed(peer.kept(t), few, self.budget, min(3, self.least)), t) for t in THREADS]
                spread, threads = min(spreads, key=lambda s: s[0].median)
                yield self.row(f"batch {kind}", "pyagrum", spread, percent, threads=threads, cases=1,
                               cases_per_second=1 / spread.median)  # fmt: skip

    # Parts ------------------------------------------------------------------------------------------------------

    def _ours(self, posteriors: Any) -> dict[str, NDArray[np.float64]]:
        return {v: np.asarray(p) for v, p in posteriors.items()}

    def _gap(self, theirs: dict[str, NDArray[np.float64]], case: dict[str, int]) -> float:
        gaps = [compare(self._ours(tree.posteriors(case)), theirs, self.name) for tree in self.trees.values()]
        return max(gaps)

    def _terms(self, case: dict[str, int]) -> int:
        """Multiply-adds of the program that answers a case."""
        backend = self.trees[1]._backend
        assert backend is not None
        seen = np.zeros(len(self.net), np.bool_)
        seen[[self.net.index(v) for v in case]] = True
        return backend.work(seen)

    def _is_possible(self, case: dict[str, int]) -> bool:
        try:
            self.trees[1].log_evidence(case)
        except jtgpu.ImpossibleEvidence:
            return False
        return True

    def _samples(self, n: int) -> NDArray[np.int32]:
        """n full cases; beyond some thousands they come again in another order."""
        few = min(n, 300 if self.smoke else 2000)
        drawn = timing.sample_cases(self.net, few, 1.0, self.seed)
        rows = np.array([[case[v] for v in self.net.variables] for case in drawn], np.int32)
        return rows[np.random.default_rng(self.seed).integers(0, few, n)]


def memory(path: Path, percent: float, engine: str) -> Rows:
    """The whole process: before the network's tree, after five cases, and what the plan promised."""
    net = jtgpu.read(path)
    assert isinstance(net, BayesianNetwork)
    cases = timing.sample_cases(net, 5, percent / 100, 1) if percent else [{}]
    name = bundled.stem(path)
    if engine == "pyagrum":
        if not pyagrum_engine.available() or percent < TOO_LARGE_FOR_PYAGRUM.get(name, 0.0):
            return
        solve = pyagrum_engine.Peer(net).kept(1)
        for case in cases:
            solve(case)
        yield row("cpu", name, engine, None, question="memory", percent=percent, peak=system.peak_memory())
        return
    plan = net.plan(memory_limit=None)
    timing.warm_up("cpu")
    before = system.peak_memory()
    with plan.compile("cpu", threads=2) as tree:
        for case in cases:
            tree.posteriors(case)
        peak = system.peak_memory()
    yield row("cpu", name, "jtgpu cpu", None, question="memory", percent=percent, before=before, peak=peak,
              promised=plan.cost().bytes)  # fmt: skip


def machine() -> Rows:
    """Multiply-adds a second of one core at best (a matrix product), and bytes a second that one core copies."""
    a, b = (np.random.default_rng(i).random((512, 512)) for i in (1, 2))
    products = timed(lambda _: a @ b, [None], 1.0)
    big = np.ones(1 << 23)
    other = np.empty_like(big)
    copies = timed(lambda _: np.copyto(other, big), [None], 1.0)
    yield row("cpu", "-", "numpy", None, question="machine", multiply_adds=512**3 / products.minimum,
              bandwidth=2 * big.nbytes / copies.minimum)  # fmt: skip


def run_one(arguments: argparse.Namespace) -> Rows:
    """All rows of one network, in this process."""
    if arguments.one == "machine":
        yield from machine()
        return
    path, percents = network(arguments.one), arguments.evidence
    if arguments.memory:
        yield from memory(path, percents[0], arguments.memory)
        return
    timing.warm_up("cpu")
    bench = Bench(path, arguments.budget, arguments.seed, arguments.smoke)
    for percent in percents:
        if percent and not round(percent / 100 * len(bench.net)):
            continue  # no variable at all
        for question in arguments.questions:
            if question != "memory":
                yield from getattr(bench, question)(percent)


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Lines for people: ours with one and two threads, pyAgrum's best, the ratio."""
    keys = dict.fromkeys((r["question"], r["percent"]) for r in rows if "median" in r)
    for question, percent in keys:
        these = [r for r in rows if (r["question"], r.get("percent")) == (question, percent)]
        per_case = [(r["median"] / r.get("cases", 1), r["engine"]) for r in these]
        ours = [t for t, engine in per_case if engine != "pyagrum"]
        theirs = next((t for t, engine in per_case if engine == "pyagrum"), None)
        line = f"{these[0]['network']:<12}{question:<13}{percent:>4.0f} %" + "".join(f"{1e6 * t:>13,.1f}" for t in ours)
        yield line if theirs is None else f"{line}{1e6 * theirs:>15,.1f}{theirs / min(ours):>9.1f}"


def main() -> None:
    """Command line."""
    everything = sorted(bundled.stem(p) for p in bundled.networks_folder().iterdir() if ".net" in p.suffixes)
    parser = parser_of(__doc__, "cpu.jsonl", seed=1)
    parser.add_argument("networks", nargs="*", help="default: all of nets/")
    parser.add_argument("--evidence", nargs="+", type=float, default=[0.0, 1.0, 10.0, 20.0], help="%% of the variables")
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--budget", type=float, default=0.5, help="seconds for one measurement, if runs are short")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        for r in run_one(arguments):
            print(json.dumps(r), flush=True)
        return
    if arguments.smoke:
        arguments.networks, arguments.evidence, arguments.budget = ["asia", "alarm", "hailfinder"], [0.0, 10.0], 0.0
    evidence = ["--evidence", *map(str, arguments.evidence)]
    words = ["--questions", *arguments.questions, "--budget", str(arguments.budget), "--seed", str(arguments.seed)]
    words += ["--smoke"] * arguments.smoke
    rows = list(child(__file__, "--one", "machine"))
    print(f"{rows[0]['multiply_adds']:.3g} multiply-adds and {rows[0]['bandwidth']:.3g} bytes a second, one core")
    print(f"{'microseconds a case:':<31}{'1 thread':>13}{'2 threads':>13}{'pyagrum, best':>15}{'ratio':>9}")
    store(arguments, rows)
    for name in arguments.networks or everything:
        rows = list(child(__file__, "--one", name, *evidence, *words))
        if "memory" in arguments.questions and not arguments.smoke:
            for engine in ("jtgpu cpu", "pyagrum"):
                rows += child(__file__, "--one", name, "--evidence", str(arguments.evidence[0]), "--memory", engine)
        for line in summary(rows):
            print(line, flush=True)
        store(arguments, rows)


if __name__ == "__main__":
    main()
