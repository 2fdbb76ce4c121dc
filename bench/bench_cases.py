"""Tables of cases from file to file and from frame to frame, compared with the loops that other libraries need.

    python bench/bench_cases.py                             alarm and hailfinder, everything, to bench/results
    python bench/bench_cases.py asia --cases 1000000        others, or paths
    python bench/bench_cases.py --questions file            some of the questions: file, frame, peers, memory
    python bench/bench_cases.py --backend gpu --questions file frame   one GPU, and all cores to read and write
    python bench/bench_cases.py --smoke                     asia, a thousand cases, nothing kept

Cases are sampled from the network. Three in ten variables are columns of evidence, chosen at random; `whole`: every
cell is full; `holes`: one cell in twenty is empty, so that hardly two cases observe the same variables. Targets: three
variables that are not observed, or all that are not. Times are those of a whole call, from opening the file to the
output's last byte on disk (which is made sure of), after a call that has compiled the loops. Answers are compared with
pyAgrum's before anything is timed. Peers answer a few hundred of the same cases, in a loop (pyAgrum, as its users
write it), or as `bench/peers/tables_peer.py` does (pgmpy, nbn): that is run by the Python that JTGPU_PEERS names,
otherwise by this one; a missing library is left out with a message. Peers get a parsed table in memory and return an
array. Memory is the peak of a separate process.

    python -m venv peers && peers/bin/pip install pgmpy nbn && JTGPU_PEERS=peers/bin/python python bench/bench_cases.py
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from peers import pyagrum_engine
from rows import ROOT, child, compare, network, parser_of, row, store, timed

import jtgpu
from jtgpu import timing
from jtgpu.cases import answer_file
from jtgpu.formats import bundled
from jtgpu.model.network import BayesianNetwork
from jtgpu.util import system
from jtgpu.util.options import BackendName

QUESTIONS = ("file", "frame", "peers", "memory")
THREADS = (1, 2)  # of the CPU's engine
SHARE, HOLES = 0.3, 0.05
FILES = ("csv -> parquet", "parquet -> parquet", "csv -> csv")
CASES = 1_000_000
PEER_CASES = {"pyagrum": 500, "pgmpy": 100, "pgmpy-loop": 100, "nbn": 20_000}
PEER_GAPS = {"pgmpy": 1e-9, "pgmpy-loop": 1e-9, "nbn": 1e-5}  # of a probability; nbn has 32 bits
PEER_SECONDS = 300.0  # after which an answer is not waited for
SCRIPT = ROOT / "bench" / "peers" / "tables_peer.py"

Rows = Iterator[dict[str, Any]]


@contextmanager
def on_cores(n: int) -> Iterator[None]:
    """Hold this thread, and those that it starts, to n cores: reading and writing are work, too."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:n])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Bench:
    """One network and its cases."""

    def __init__(self, path: Path, n: int, seed: int, folder: Path, backend: BackendName = "cpu"):
        net = jtgpu.read(path)
        if not isinstance(net, BayesianNetwork):
            raise SystemExit(f"{path}: no Bayesian network")
        self.net, self.name, self.n, self.folder, self.seed = net, bundled.stem(path), n, folder, seed
        plan, self.engine = net.plan(memory_limit=None), f"jtgpu {backend}"
        if backend == "cpu":
            self.trees = {t: plan.compile("cpu", threads=t) for t in THREADS}
        else:
            self.trees = {len(os.sched_getaffinity(0)): plan.compile(backend)}
        self.tree = list(self.trees.values())[-1]
        random = np.random.default_rng(seed)
        order = random.permutation(len(net))
        k = max(1, round(SHARE * len(net)))
        self.seen = sorted(order[:k].tolist())
        self.some = [net.variables[v] for v in sorted(order[k:][:3].tolist())]
        self.rest = [net.variables[v] for v in sorted(order[k:].tolist())]
        self.states = self.tree.sample(n, seed=seed).states[:, self.seen]
        self.empty = random.random(self.states.shape) < HOLES

    def table(self, kind: str, n: int | None = None) -> Any:
        """Cases as an Arrow table of text."""
        pa = importlib.import_module("pyarrow")
        columns = {}
        for j, v in enumerate(self.seen):
            mask = self.empty[:n, j] if kind == "holes" else None
            indices = pa.array(self.states[:n, j], mask=mask)
            columns[self.net.variables[v]] = pa.DictionaryArray.from_arrays(indices, self.net.states(v)).cast("string")
        return pa.table(columns)

    def path(self, kind: str, suffix: str, n: int | None = None) -> Path:
        """The cases as a file; written once."""
        path = self.folder / f"{self.name}-{kind}-{n or self.n}.{suffix}"
        if not path.exists():
            table = self.table(kind, n)
            if suffix == "csv":
                importlib.import_module("pyarrow.csv").write_csv(table, path)
            else:
                importlib.import_module("pyarrow.parquet").write_table(table, path)
        return path

    def targets(self, which: str) -> list[str]:
        return self.some if which == "3" else self.rest

    def cases(self, kind: str, n: int) -> list[dict[str, int]]:
        """The first cases by number."""
        empty = self.empty if kind == "holes" else np.zeros_like(self.empty)
        pairs = list(zip(self.seen, range(len(self.seen)), strict=True))
        return [{self.net.variables[v]: int(self.states[i, j]) for v, j in pairs if not empty[i, j]} for i in range(n)]

    def row(self, question: str, engine: str, spread: timing.Spread, n: int, **more: Any) -> dict[str, Any]:
        version = pyagrum_engine.version() if engine == "pyagrum" else jtgpu.__version__
        more = {"version": version, **more, "cases": n, "cases_per_second": n / spread.median}
        more |= {"columns": len(self.seen)}
        if engine == "jtgpu gpu":
            more["device"] = str(self.tree.device)
        return row("cases", self.name, engine, spread, question=question, **more)

    def check(self) -> float | None:
        """Compare what comes out of a file with pyAgrum."""
        if not pyagrum_engine.available():
            return None
        solve = pyagrum_engine.Peer(self.net).kept(1, self.rest)
        gap = 0.0
        for kind in ("whole", "holes"):
            out = self.folder / "check.parquet"
            n = min(200, self.n)
            answer_file(self.tree, self.path(kind, "csv", n), out, targets=self.rest, force=True)
            found = importlib.import_module("pyarrow.parquet").read_table(out)
            values = np.column_stack([c.to_numpy() for c in found.columns])
            ends = np.cumsum([0, *(len(self.net.states(v)) for v in self.rest)])
            for i, case in enumerate(self.cases(kind, n)):
                ours = {v: values[i, ends[k] : ends[k + 1]] for k, v in enumerate(self.rest)}
                gap = max(gap, compare(ours, solve(case), self.name))
        return gap

    # Questions --------------------------------------------------------------------------------------------------

    def file(self, runs: int) -> Rows:
        for kind in ("whole", "holes"):
            for files in FILES:
                source, target = files.split(" -> ")
                cases, out = self.path(kind, source), self.folder / f"out.{target}"
                small = self.path(kind, source, min(2000, self.n))
                for which in ("3", "all") if files == "parquet -> parquet" else ("3",):
                    asked = self.targets(which)
                    for threads in self.trees:

                        def solve(path: Path, asked: list[str] = asked, threads: int = threads, out: Path = out) -> Any:
                            with on_cores(threads):
                                return answer_file(
                                    self.trees[threads], path, out, targets=asked, threads=threads, force=True
                                )

                        solve(small)
                        spread = timed(solve, [cases], 0.0, runs)
                        yield self.row("file", self.engine, spread, self.n, kind=kind, files=files, targets=which,
                                       threads=threads, bytes_in=cases.stat().st_size,
                                       bytes_out=out.stat().st_size)  # fmt: skip

    def frame(self, runs: int) -> Rows:
        for kind in ("whole", "holes"):
            table = self.table(kind)
            frames = {"arrow": table}
            if importlib.util.find_spec("pandas"):
                frames["pandas"] = table.to_pandas()
                frames["pandas categories"] = frames["pandas"].astype("category")
            if importlib.util.find_spec("polars"):
                frames["polars"] = importlib.import_module("polars").from_arrow(table)
            for library, frame in frames.items():
                for which in ("3", "all") if library == "arrow" else ("3",):
                    for threads in self.trees:
                        asked, tree = self.targets(which), self.trees[threads]
                        tree.predict_proba(frame[:2000], asked)

                        def solve(
                            frame: Any,
                            threads: int = threads,
                            tree: jtgpu.JunctionTree = tree,
                            asked: list[str] = asked,
                        ) -> Any:
                            with on_cores(threads):
                                return tree.predict_proba(frame, asked)

                        spread = timed(solve, [frame], 0.0, runs)
                        yield self.row("frame", self.engine, spread, self.n, kind=kind, files=library, targets=which,
                                       threads=threads)  # fmt: skip

    def peers(self, runs: int) -> Rows:
        """Other libraries on the first cases, the three targets; a run is all of these cases."""
        for kind in ("whole", "holes"):
            if pyagrum_engine.available():
                yield from self.pyagrum(kind, runs)
        for peer in ("pgmpy", "pgmpy-loop", "nbn"):
            yield from self.elsewhere(peer, runs)

    def pyagrum(self, kind: str, runs: int) -> Rows:
        """A loop over the rows, as its users write it."""
        n = min(PEER_CASES["pyagrum"], self.n)
        cases = self.cases(kind, n)
        best = None
        for threads in THREADS:
            solve = pyagrum_engine.Peer(self.net).kept(threads, self.some)
            solve(cases[0])
            spread = timed(lambda c, solve=solve: [solve(x) for x in c], [cases], 0.0, runs)  # type: ignore[misc]
            if best is None or spread.median < best[0].median:
                best = spread, threads
        assert best is not None
        yield self.row("peer", "pyagrum", best[0], n, kind=kind, files="loop", targets="3", threads=best[1])

    def elsewhere(self, peer: str, runs: int) -> Rows:
        """A library in the Python that has it, on whole rows: none of them takes empty cells."""
        python = os.environ.get("JTGPU_PEERS", sys.executable)
        n = min(PEER_CASES[peer], self.n)
        bif, cases, answers = (self.folder / f"{self.name}-{peer}.{s}" for s in ("bif", "npz", "out.npz"))
        jtgpu.write(self.net, bif)
        np.savez(cases, names=[self.net.variables[v] for v in self.seen], states=self.states[:n], targets=self.some)
        columns = np.full((n, len(self.net)), -1, np.int32)
        columns[:, self.seen] = self.states[:n]
        ours = self.tree.posteriors_batch(columns, targets=self.some).flat
        best: tuple[timing.Spread, int, str] | None = None
        gap = 0.0
        for threads in THREADS:
            words = [python, SCRIPT, peer, bif, cases, answers, "--runs", str(runs), "--threads", str(threads)]
            try:
                # nothing of this one's packages; its own folder is not searched for modules either
                clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
                done = subprocess.run(
                    [*map(str, words)], capture_output=True, text=True, check=False, timeout=PEER_SECONDS, env=clean
                )
            except subprocess.TimeoutExpired:
                yield self.silent(peer, f"no answer in {PEER_SECONDS:g} s for {n} cases")
                return
            if done.returncode:
                yield self.silent(peer, done.stderr.strip().splitlines()[-1][:200])
                return
            found = np.load(answers)
            gap = float(np.abs(found["posterior"] - ours).max())
            if not gap <= PEER_GAPS[peer]:
                yield self.silent(peer, f"its answers are {gap:g} away")
                return
            spread = timing.Spread.of(found["seconds"].tolist())
            if best is None or spread.median < best[0].median:
                best = spread, threads, json.loads(done.stdout)["version"]
        assert best is not None
        targets = "all" if peer == "pgmpy" else "3"
        yield self.row("peer", peer, best[0], n, kind="whole", files="table", targets=targets, threads=best[1],
                       version=best[2], peer_gap=gap)  # fmt: skip

    def silent(self, peer: str, why: str) -> dict[str, Any]:
        """A row for what cannot be timed."""
        what = {"question": "peer", "kind": "whole", "files": "table", "targets": "3"}
        return row("cases", self.name, peer, None, **what, failed=why)


def memory(path: Path, n: int, seed: int, folder: Path, which: str) -> Rows:
    """The peak of a process that answers a file, and what it had before it opened it; files are there already."""
    net = jtgpu.read(path)
    assert isinstance(net, BayesianNetwork)
    source, kind, targets = which.split(",")
    plan = net.plan(memory_limit=None)
    timing.warm_up("cpu")
    order = np.random.default_rng(seed).permutation(len(net))
    k = max(1, round(SHARE * len(net)))
    asked = [net.variables[v] for v in sorted((order[k:][:3] if targets == "3" else order[k:]).tolist())]
    cases = folder / f"{bundled.stem(path)}-{kind}-{n}.{source}"
    with plan.compile("cpu", threads=2) as tree:
        tree.posteriors_batch(np.full((64, len(net)), -1, np.int32))
        before = system.peak_memory()
        report = answer_file(tree, cases, folder / "memory.parquet", targets=asked, force=True)
    yield row(
        "cases", bundled.stem(path), "jtgpu cpu", None, question="memory", kind=kind, files=f"{source} -> parquet",
        targets=targets, cases=report.cases, before=before, peak=system.peak_memory(), bytes_in=cases.stat().st_size,
        bytes_out=(folder / "memory.parquet").stat().st_size,
    )  # fmt: skip


def run_one(arguments: argparse.Namespace) -> Rows:
    """All rows of one network, in this process."""
    path, folder = network(arguments.one), Path(arguments.folder)
    if arguments.memory:
        yield from memory(path, arguments.cases, arguments.seed, folder, arguments.memory)
        return
    timing.warm_up("cpu")
    bench = Bench(path, arguments.cases, arguments.seed, folder, arguments.backend)
    gap = bench.check()
    for source in ("csv", "parquet"):
        for kind in ("whole", "holes"):
            bench.path(kind, source)  # for the process that measures memory, too
    for question in arguments.questions:
        if question != "memory":
            for r in getattr(bench, question)(arguments.runs):
                yield {**r, "gap": gap}


def summary(r: dict[str, Any]) -> str:
    """A line for people."""
    what = f"{r['network']:<12}{r['question']:<7}{r['kind']:<6}{r['files']:<20}{r['targets']:>4} targets"
    if r["question"] == "memory":
        return f"{what}: {r['peak'] / 2**20:,.0f} MiB, {r['before'] / 2**20:,.0f} of them before; {r['cases']:,} cases"
    if "failed" in r:
        return f"{what}  {r['engine']}: {r['failed']}"
    return (
        f"{what}{r['threads']:>2} threads  {r['engine']:<10}{r['cases_per_second']:>13,.0f} cases/s of {r['cases']:,}"
    )


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__, "cases.jsonl", runs=3, seed=1)
    parser.add_argument("networks", nargs="*", help="default: alarm hailfinder")
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--backend", choices=("cpu", "gpu"), default="cpu", help="of file and frame")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        for r in run_one(arguments):
            print(json.dumps(r), flush=True)
        return
    if arguments.smoke:
        arguments.networks, arguments.cases, arguments.runs = arguments.networks or ["asia"], 1000, 1
    words = ["--cases", str(arguments.cases), "--runs", str(arguments.runs), "--seed", str(arguments.seed)]
    words += ["--backend", arguments.backend]
    for name in arguments.networks or ["alarm", "hailfinder"]:
        with tempfile.TemporaryDirectory(prefix="jtgpu-cases-") as folder:
            these = ["--one", name, "--folder", folder, *words]
            asked = [["--questions", *arguments.questions]]
            if "memory" in arguments.questions:
                asked += [["--memory", f"{s},holes,{t}"] for s, t in (("csv", 3), ("parquet", 3), ("parquet", "all"))]
            for more in asked:
                for r in child(__file__, *these, *more):
                    print(summary(r), flush=True)
                    store(arguments, [r])


if __name__ == "__main__":
    main()
