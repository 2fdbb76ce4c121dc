"""The CPU backend compared with pyAgrum's best in one process; answers are compared before anything is timed.

    python bench/bench_cpu.py                              all networks of nets/, to bench/results (some 8 minutes)
    python bench/bench_cpu.py --questions memory           the memory of both, the same (some 3 minutes)
    python bench/bench_cpu.py asia alarm --evidence 0 20   others, or paths
    python bench/bench_cpu.py --questions first --evidence 2 10 30 alarm andes barley
    python bench/bench_cpu.py --smoke                      three small networks, one run, nothing kept

Questions: `posteriors` (all of them; the cases of a row observe the same variables in other states), `patterns` (each
case observes other variables), `target` (one variable's posterior), `session` (one finding changes a call), `batch`
(a table of cases in one call), `first` (the first answer to a new pattern, see first_answers.py), `memory` (of the
whole process).
An answer ends when every requested posterior has been read as an array, for both engines: pyAgrum copies tables, and
jtgpu makes results when they are read. Both take the number of threads that they take by default. pyAgrum without
evidence runs in two ways (see peers/pyagrum_engine.py), and the better one counts. Rows are JSON lines: commit, device,
network, question, engine, median, quartiles. Every network runs in a process of its own, one after the other.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from first_answers import first_answers
from numpy.typing import NDArray
from peers import pyagrum_engine
from rows import Answer, arrays, child, compare, network, parser_of, row, store, timed

import jtgpu
from jtgpu import timing
from jtgpu.formats import bundled
from jtgpu.model.network import BayesianNetwork
from jtgpu.model.states import StateNumber
from jtgpu.util import system

PUBLISHED = ("posteriors", "patterns", "target", "session", "batch")  # in docs/benchmarks.rst, by one run
QUESTIONS = (*PUBLISHED, "first", "memory")
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
        self.tree: jtgpu.JunctionTree = self.plan.compile("cpu")
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
        facts = {"question": question, "percent": percent, "version": version, "until": "arrays", **more}
        return row("cpu", self.name, engine, spread, **facts)

    def both(
        self,
        question: str,
        percent: float,
        cases: list[Any],
        ours: Callable[[Any], Any],
        theirs: dict[str, Callable[[Any], Any]],
        resolve: bool = True,
        **more: Any,
    ) -> Rows:
        """A row of ours, and of pyAgrum's best way."""
        if resolve:
            self.resolve(ours, cases)
        else:
            ours(cases[0])
        yield self.row(question, "jtgpu cpu", timed(ours, cases, self.budget, self.least), percent, **more)
        found: list[tuple[timing.Spread, str]] = []
        for way, solve in theirs.items():
            solve(cases[0])
            found.append((timed(solve, cases, self.budget, min(3, self.least), most=50), way))
        if found:
            best, way = min(found, key=lambda f: f[0].median)
            yield self.row(question, "pyagrum", best, percent, way=way)

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
        answer = self.tree.posteriors(cases[0])
        timing.check_answers(answer, observed=cases[0])
        theirs: dict[str, Any] = {}
        gap = None
        if peer is not None:
            theirs = {"kept": peer.kept()} if percent else {"fresh": peer.fresh(), "weighed": peer.weighed()}
            gap = max(compare(self.solve(cases[0]), solve(cases[0]), self.name) for solve in theirs.values())
        cost = self.plan.cost()
        sizes: dict[str, Any] = {
            "variables": len(self.net), "entries": cost.entries, "largest": cost.largest, "cliques": cost.cliques,
            "bytes": cost.bytes, "terms": self._terms(cases[0]), "observed": len(cases[0]), "gap": gap,
            "log_evidence": answer.log_evidence,
        }  # fmt: skip
        yield from self.both("posteriors", percent, cases, self.solve, theirs, **sizes)

    def patterns(self, percent: float) -> Rows:
        if not percent:
            return
        cases, peer = self.other_patterns(percent, 300), self.peer(percent)
        theirs: dict[str, Any] = {} if peer is None else {"kept": peer.kept()}
        tree: jtgpu.JunctionTree = self.plan.compile("cpu")  # one that has seen no pattern
        yield from self.both(
            "patterns", percent, cases, lambda case: arrays(tree.posteriors(case)), theirs, resolve=False
        )

    def first(self, percent: float) -> Rows:
        if percent:
            yield from first_answers(self, percent)

    def target(self, percent: float) -> Rows:
        cases, peer = self.cases(percent), self.peer(percent)
        hidden = [v for v in self.net.variables if v not in cases[0]]
        asked = hidden[len(hidden) // 2]
        theirs: dict[str, Any] = {}
        if peer is not None and percent:  # without evidence nothing changes from call to call
            theirs = {"kept": peer.kept(targets=[asked])}
            compare(self.solve(cases[0]), theirs["kept"](cases[0]), self.name)
        yield from self.both(
            "target", percent, cases, lambda case: np.asarray(self.tree.posterior(asked, case)), theirs, asked=asked
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
        session = self.tree.session(case)

        def solve(finding: tuple[str, int]) -> Any:
            session.observe(*finding)
            return arrays(session.posteriors())

        session.posteriors()
        theirs: dict[str, Any] = {} if peer is None else {"changing": peer.changing(case)}
        yield from self.both("session", percent, turns, solve, theirs, changes=len(turns))

    def batch(self, percent: float) -> Rows:
        if not percent:
            return
        one = timed(self.solve, self.cases(percent), 0.2, 1).median
        n = 32 if self.smoke else int(np.clip(BATCH_SECONDS / one, 32, 100_000))
        peer = self.peer(percent)
        states = self._samples(n)
        random = np.random.default_rng(self.seed)
        same = np.full_like(states, -1)
        columns = random.permutation(len(self.net))[: max(1, round(percent / 100 * len(self.net)))]
        same[:, columns] = states[:, columns]
        mixed = np.where(random.random(states.shape) < percent / 100, states, np.int32(-1)).astype(np.int32)
        for kind, table in (("same", same), ("mixed", mixed)):
            answer = self.tree.posteriors_batch(table[: min(n, 64)])
            for i in (0, min(n, 64) - 1):
                case = {v: StateNumber(table[i, k]) for k, v in enumerate(self.net.variables) if table[i, k] >= 0}
                compare(self.solve(case), {v: answer[v][i] for v in self.net.variables}, self.name)
            spread = timed(lambda t: arrays(self.tree.posteriors_batch(t)), [table], self.budget, min(3, self.least),
                           most=10)  # fmt: skip
            yield self.row(f"batch {kind}", "jtgpu cpu", spread, percent, cases=n, cases_per_second=n / spread.median)
            if peer is not None:
                few = [{v: int(r[k]) for k, v in enumerate(self.net.variables) if r[k] >= 0}
                       for r in table[:200].tolist()]  # fmt: skip
                spread = timed(peer.kept(), few, self.budget, min(3, self.least))
                yield self.row(f"batch {kind}", "pyagrum", spread, percent, cases=1,
                               cases_per_second=1 / spread.median)  # fmt: skip

    # Parts ------------------------------------------------------------------------------------------------------

    def solve(self, case: Mapping[str, int]) -> Answer:
        """The arrays of all posteriors of a case."""
        return arrays(self.tree.posteriors(case))

    def _terms(self, case: dict[str, int]) -> int:
        """Multiply-adds of the program that answers a case."""
        backend = self.tree._backend
        assert backend is not None
        seen = np.zeros(len(self.net), np.bool_)
        seen[[self.net.index(v) for v in case]] = True
        return backend.work(seen)

    def _is_possible(self, case: dict[str, int]) -> bool:
        try:
            self.tree.log_evidence(case)
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
        solve = pyagrum_engine.Peer(net).kept()
        for case in cases:
            solve(case)
        yield row("cpu", name, engine, None, question="memory", percent=percent, peak=system.peak_memory())
        return
    plan = net.plan(memory_limit=None)
    timing.warm_up("cpu")
    before = system.peak_memory()
    with plan.compile("cpu") as tree:
        for case in cases:
            arrays(tree.posteriors(case))
        peak = system.peak_memory()
    yield row("cpu", name, "jtgpu cpu", None, question="memory", percent=percent, before=before, peak=peak,
              promised=plan.cost().bytes)  # fmt: skip


def run_one(arguments: argparse.Namespace) -> Rows:
    """All rows of one network, in this process."""
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
    """Lines for people: ours, pyAgrum's, the ratio."""
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
    parser.add_argument("--evidence", nargs="+", type=float, default=[10.0, 0.0], help="%% of the variables")
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(PUBLISHED))
    parser.add_argument("--budget", type=float, default=0.25, help="seconds for one measurement, if runs are short")
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
    print(f"{'microseconds a case:':<31}{'jtgpu':>13}{'pyagrum':>15}{'ratio':>9}")
    for name in arguments.networks or everything:
        rows = list(child(__file__, "--one", name, *evidence, *words)) if arguments.questions != ["memory"] else []
        if "memory" in arguments.questions and not arguments.smoke:
            for engine in ("jtgpu cpu", "pyagrum"):
                rows += child(__file__, "--one", name, "--evidence", "0", "--memory", engine)
        for line in summary(rows):
            print(line, flush=True)
        store(arguments, rows)


if __name__ == "__main__":
    main()
