"""Tables of cases from frame to frame: cases a second, and where the time goes.

    python bench/bench_frames.py                                alarm hailfinder andes pigs munin2, to bench/results
    python bench/bench_frames.py alarm --engines gpu --frames pandas
    python bench/bench_frames.py --smoke                        asia, a thousand cases, nothing kept

Cases are sampled from the network (as many as `SAMPLED`, then again and again). Three in ten variables, chosen at
random, are columns of evidence; one cell in twenty is empty, so that hardly two cases observe the same variables.
Targets: the posteriors of all variables, or of three that are not columns. Frames: ``pandas`` and ``polars`` with
categories, ``arrow`` with dictionaries, ``text`` a pandas frame of text.

``cases_per_second`` is that of a whole call of `predict_proba`, the median of several after one that makes everything
ready. ``encode_s`` and ``answer_s`` are the seconds that its two first stages take by themselves, cells to numbers and
numbers to posteriors; what is left of the call makes the frame. ``device_cases_per_s`` leaves out everything but
kernels; ``share`` is the part of it that the call reaches. The first rows are compared with those of the engine
`reference` before anything is timed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from rows import network, parser_of, row, store, timed

import jtgpu
from jtgpu.cases.files import MAX_THREADS
from jtgpu.cases.query import resolve_query
from jtgpu.cases.solver import CaseSolver
from jtgpu.columns.memory import NativeFrame
from jtgpu.formats import bundled
from jtgpu.model.network import BayesianNetwork
from jtgpu.options.tables import TableOptions
from jtgpu.util.options import BackendName

NETWORKS = ("alarm", "hailfinder", "andes", "pigs", "munin2")
FRAMES = ("pandas", "polars", "arrow", "text")
SHARE, HOLES = 0.3, 0.05
CHECKED = 40
SAMPLED = 10_000_000  # cells of all variables of the cases that are sampled
ANSWERS = 3 << 30  # bytes of one call's answers at most
MOST = {"gpu": 10_000_000, "cpu": 200_000}
WORK = {"gpu": 1e12, "cpu": 1e10}  # operations of one call at most
TEXT = 1_000_000  # rows of text at most

Rows = Iterator[dict[str, Any]]


class Bench:
    """One network and its cases."""

    def __init__(self, name: str, seed: int):
        path = network(name)
        net = jtgpu.read(path)
        if not isinstance(net, BayesianNetwork):
            raise SystemExit(f"{path}: no Bayesian network")
        order = path.parent / f"{bundled.stem(path)}.num"
        plan = net.plan(order=order if order.is_file() else "min-fill", max_table=None, memory_limit=None)
        self.net, self.plan, self.name = net, plan, bundled.stem(path)
        self.judge = plan.compile("reference")
        self.random = np.random.default_rng(seed)
        mixed = self.random.permutation(len(net))
        k = max(1, round(SHARE * len(net)))
        self.seen = sorted(mixed[:k].tolist())
        self.some = [net.variables[v] for v in sorted(mixed[k:][:3].tolist())]
        drawn = max(SAMPLED // len(net), 1000)
        self.states = np.ascontiguousarray(forward_sample(net, drawn, self.random)[self.seen])

    def targets(self, which: str) -> list[str]:
        return list(self.net.variables) if which == "all" else self.some

    def rows(self, engine: str, which: str, limit: int) -> int:
        """Cases of a call that takes seconds at most, in time and memory."""
        wide = 8 * sum(len(self.net.states(v)) for v in self.targets(which))
        work = int(WORK[engine] / max(self.plan.plan.cost().flops, 1))
        return max(min(MOST[engine], ANSWERS // wide, work, limit), 1000)

    def codes(self, n: int) -> np.ndarray:
        """(E, n) int8 or int16: states, -1 in the holes."""
        kind = np.int8 if max(len(self.net.states(v)) for v in self.seen) < 128 else np.int16
        made = np.empty((len(self.seen), n), kind)
        width = self.states.shape[1]
        for j, column in enumerate(self.states):
            for at in range(0, n, width):
                part = made[j, at : at + width]
                part[:] = column[: len(part)]
                part[self.random.random(len(part)) < HOLES] = -1
        return made

    def frame(self, library: str, codes: np.ndarray) -> Any:
        """The cases as a frame."""
        names = [self.net.variables[v] for v in self.seen]
        states = [list(self.net.states(v)) for v in self.seen]
        if library in ("pandas", "text"):
            pd = importlib.import_module("pandas")
            columns = {x: pd.Categorical.from_codes(c, s) for x, c, s in zip(names, codes, states, strict=True)}
            frame = pd.DataFrame(columns, copy=False)
            return frame.astype("str").where(codes.T >= 0) if library == "text" else frame
        pa = importlib.import_module("pyarrow")
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(c, mask=c < 0), pa.array(s))
            for c, s in zip(codes, states, strict=True)
        ]
        table = pa.table(arrays, names=names)
        return importlib.import_module("polars").from_arrow(table) if library == "polars" else table

    def check(self, tree: jtgpu.JunctionTree, frame: Any, which: str) -> float:
        """Compare the first answers with those of the definition."""
        some, asked, names = frame[:CHECKED], self.targets(which), _names(frame)
        found = _values(tree.predict_proba(some, asked, evidence_columns=names))
        expected = _values(self.judge.predict_proba(some, asked, evidence_columns=names))
        gap = float(np.abs(found - expected).max())
        if not gap <= 1e-9:
            raise SystemExit(f"{self.name}: the answers differ by {gap:g}; nothing is timed")
        return gap

    def run(self, engine: BackendName, libraries: list[str], runs: int, limit: int) -> Rows:
        """All rows of one engine."""
        with self.plan.compile(engine, replan=engine != "cpu") as tree:
            for which in ("all", "3"):
                n = self.rows(engine, which, limit)
                codes = self.codes(n)
                for library in libraries:
                    here = min(n, TEXT) if library == "text" else n
                    frame = self.frame(library, codes[:, :here])
                    yield self.time(tree, engine, library, which, frame, here, runs)

    def time(
        self, tree: jtgpu.JunctionTree, engine: str, library: str, which: str, frame: Any, n: int, runs: int
    ) -> dict[str, Any]:
        asked, names = self.targets(which), _names(frame)
        gap = self.check(tree, frame, which)

        def solve(frame: Any) -> Any:
            return tree.predict_proba(frame, asked, evidence_columns=names)

        solve(frame)
        spread = timed(solve, [frame], 0.0, runs, runs)
        more = self.stages(tree, frame, asked, runs)
        rate = n / spread.median
        if "device_cases_per_s" in more:
            more["share"] = round(rate / more["device_cases_per_s"], 3)
        found = row("frames", self.name, f"jtgpu {engine}", spread, frame=library, targets=which, cases=n,
                    columns=len(names), entries=self.plan.plan.cost().entries, cases_per_second=rate,
                    answer_bytes=8 * n * sum(len(self.net.states(v)) for v in asked), gap=gap,
                    cores=len(os.sched_getaffinity(0)), **more)  # fmt: skip
        return found | ({"device": tree.device} if tree.device else {})

    def stages(self, tree: jtgpu.JunctionTree, frame: Any, asked: list[str], runs: int) -> dict[str, Any]:
        """Seconds of the stages by themselves, the quickest of some."""
        cases = NativeFrame(frame)
        options = TableOptions(targets=asked, evidence_columns=cases.names)
        query, _ = resolve_query(self.net, cases.names, options)
        solver = CaseSolver(tree, query, options)
        encoder = solver.encoders[False]
        step = cases.n if solver.by_columns else query.rows_per_call(self.net)
        encode, answer, device = [], [], []
        with ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS)) as pool:
            solver.each = pool.map if solver.by_columns else map
            for _ in range(min(runs, 2)):
                begin = time.perf_counter()
                columns = [cases.column(self.net.variables[v]) for v in query.evidence]
                if solver.by_columns:
                    codes = [encoder.encode(columns, cases.n, solver.each).codes]
                else:
                    codes = [
                        encoder.encode([c[at : at + step] for c in columns], min(step, cases.n - at)).codes
                        for at in range(0, cases.n, step)
                    ]
                encode.append(time.perf_counter() - begin)
                begin = time.perf_counter()
                for part in codes:
                    solver.solve(part)
                answer.append(time.perf_counter() - begin)
                took = _device_us(tree)
                if solver.by_columns and took:
                    device.append(took * 1e-6)
        found: dict[str, Any] = {"encode_s": min(encode), "answer_s": min(answer)}
        if device:
            found |= {"kernels_s": min(device), "device_cases_per_s": cases.n / min(device)}
        return found


def _device_us(tree: jtgpu.JunctionTree) -> float:
    """Microseconds that the kernels of the last table took on one card; 0 where nobody says."""
    backend: Any = tree.intervened().backend
    return float(getattr(getattr(getattr(backend, "gpu", backend), "tables", None), "device_us", 0.0))


def _names(frame: Any) -> list[str]:
    return list(getattr(frame, "column_names", None) or frame.columns)


def _values(frame: Any) -> np.ndarray:
    """(n, columns) of any frame."""
    if hasattr(frame, "column_names"):
        return np.column_stack([c.to_numpy() for c in frame.columns])
    return np.asarray(frame.to_numpy())


def forward_sample(net: BayesianNetwork, n: int, random: np.random.Generator) -> np.ndarray:
    """(V, n) states drawn from a network, parents first."""
    states = np.full((len(net), n), -1, np.int16)
    waiting = list(net.variables)
    while waiting:
        left = []
        for v in waiting:
            parents = [net.index(p) for p in net.parents(v)]
            if any(states[p, 0] < 0 for p in parents):
                left.append(v)
                continue
            table = np.asarray(net.cpt(v))[tuple(states[p] for p in parents)]
            sums = np.broadcast_to(table, (n, len(net.states(v)))).cumsum(axis=1)
            drawn = (random.random((n, 1)) * sums[:, -1:] >= sums).sum(axis=1)
            states[net.index(v)] = drawn.clip(max=sums.shape[1] - 1)
        waiting = left
    return states


def summary(r: dict[str, Any]) -> str:
    """A line for people."""
    stages = f"encode {r['encode_s']:.3f}, answer {r['answer_s']:.3f} of {r['median']:.3f} s"
    share = f"; {r['share']:.0%} of the kernels' {r['device_cases_per_s']:,.0f}" if "share" in r else ""
    return (
        f"{r['network']:<11}{r['engine']:<10}{r['frame']:<7}{r['targets']:>4} targets{r['cases']:>11,} cases"
        f"{r['cases_per_second']:>14,.0f} cases/s   ({stages}{share})"
    )


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__, "frames.jsonl", runs=5, seed=1)
    parser.add_argument("networks", nargs="*", help=f"default: {' '.join(NETWORKS)}")
    parser.add_argument("--engines", nargs="+", choices=("cpu", "gpu"), default=["cpu", "gpu"])
    parser.add_argument("--frames", nargs="+", choices=FRAMES, default=list(FRAMES))
    parser.add_argument("--most", type=int, default=max(MOST.values()), help="cases of a call at most")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.networks, arguments.most, arguments.runs = arguments.networks or ["asia"], 1000, 1
    libraries = [x for x in arguments.frames if x not in ("pandas", "polars") or importlib.util.find_spec(x)]
    for name in arguments.networks or NETWORKS:
        bench = Bench(name, arguments.seed)
        for engine in arguments.engines:
            try:
                for found in bench.run(engine, libraries, arguments.runs, arguments.most):
                    print(summary(found), flush=True)
                    store(arguments, [found])
            except jtgpu.errors.BackendUnavailable as error:
                print(f"{name}: {error}", flush=True)


if __name__ == "__main__":
    main()
