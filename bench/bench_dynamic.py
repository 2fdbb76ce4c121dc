"""Dynamic networks compared with pyAgrum's KTBN, a dense chain in JAX, hmmlearn and dynamax, in the same run.

    python bench/bench_dynamic.py [ring hmm long stream first em]    default: all
    python bench/bench_dynamic.py --smoke                            short sequences, one run, nothing stored

`ring`: five hidden variables of three states, each with itself and its neighbour one slice earlier as parents, and an
observation of each; all smoothed posteriors of the hidden ones. `hmm`: 8 states, 12 symbols. `long`: one sequence of
up to 100,000 slices. `stream`: a step. `first`: from a network in memory to the first answer, in a process of its own.
`em`: a pass of EM, and smoothing. CPU seconds on one core of calls that alternate between the engines; answers are
compared before anything is timed. Libraries that are not installed are left out:

    python -m venv peers && peers/bin/pip install . hmmlearn dynamax && peers/bin/python bench/bench_dynamic.py
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from peers.dynamic_peers import DenseChain, Dynamax, Hmmlearn, Ktbn, available
from rows import ROOT, TOLERANCE, append, child, row

sys.path.insert(0, str(ROOT))
import jtgpu
import jtgpu.learn
from jtgpu import timing

RESULTS = ROOT / "bench" / "results" / "dynamic.jsonl"
QUESTIONS = ("ring", "hmm", "long", "stream", "first", "em")
Codes = NDArray[np.int64]


class Template:
    """A network, its hidden and its observed variables."""

    def __init__(self, net: jtgpu.DynamicNetwork):
        self.net = net.with_codes("index")  # observations are numbers of states
        self.hidden = [v for v in net if v.startswith("h")]
        self.observed = [v for v in net if v.startswith("o")]

    def codes(self, n: int, length: int) -> Codes:
        """(n, length, O) random observations."""
        symbols = len(self.net.states(self.observed[0]))
        return np.random.default_rng(1).integers(0, symbols, (n, length, len(self.observed)))

    def arrays(self, codes: Codes) -> dict[str, Codes]:
        """What `smooth` takes."""
        return {v: codes[:, :, i] for i, v in enumerate(self.observed)}

    def smooth(self, tree: Any, codes: Codes) -> tuple[Any, Any]:
        """All smoothed posteriors of the hidden variables, and ln P."""
        answer = tree.smooth(self.arrays(codes), targets=self.hidden)
        return [answer[v] for v in self.hidden], answer.log_evidence


def ring(n: int = 5, states: int = 3, symbols: int = 4) -> Template:
    """Hidden variables in a ring: parents are the variable itself and its left neighbour, one slice earlier."""
    rng = np.random.default_rng(0)
    names = {f"h{i}": [f"s{s}" for s in range(states)] for i in range(n)}
    names |= {f"o{i}": [f"y{s}" for s in range(symbols)] for i in range(n)}
    parents: dict[str, Any] = {f"h{i}": [(f"h{(i - 1) % n}", 1), (f"h{i}", 1)] for i in range(n)}
    parents |= {f"o{i}": [f"h{i}"] for i in range(n)}
    cpts = {f"h{i}": rng.dirichlet(np.ones(states), (states, states)) for i in range(n)}
    cpts |= {f"o{i}": rng.dirichlet(np.ones(symbols), states) for i in range(n)}
    start = {f"h{i}": rng.dirichlet(np.ones(states)) for i in range(n)}
    return Template(jtgpu.DynamicNetwork(names, parents, cpts, start=start, name="ring"))


def hmm(states: int = 8, symbols: int = 12) -> Template:
    """A hidden Markov model."""
    rng = np.random.default_rng(0)
    return Template(
        jtgpu.DynamicNetwork(
            {"h": [f"s{s}" for s in range(states)], "o": [f"y{s}" for s in range(symbols)]},
            {"h": [("h", 1)], "o": ["h"]},
            {"h": rng.dirichlet(np.ones(states), states), "o": rng.dirichlet(np.ones(symbols), states)},
            start={"h": rng.dirichlet(np.ones(states))}, name="hmm",
        )
    )  # fmt: skip


def taking_turns(works: dict[str, Callable[[], Any]], runs: int, parts: int = 1) -> dict[str, timing.Spread]:
    """CPU seconds of each engine's calls, which have so many equal parts."""
    seconds: dict[str, list[float]] = {engine: [] for engine in works}
    for _ in range(runs):
        for engine, work in works.items():
            begin = time.process_time()
            work()
            seconds[engine].append((time.process_time() - begin) / parts)
    return {engine: timing.Spread.of(times) for engine, times in seconds.items()}


def same(name: str, engine: str, ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> None:
    """Refuse to go on where answers differ."""
    gap = max(float(np.abs(a - theirs[0][:, :, i]).max()) for i, a in enumerate(ours[0]))
    log_p = np.sum(ours[1]), np.sum(theirs[1])  # hmmlearn has the sum only
    if not gap <= TOLERANCE or not np.isclose(*log_p, rtol=1e-10):
        raise SystemExit(f"{name}, {engine}: posteriors differ by {gap:g}, ln P {log_p}; nothing is timed")


def report(name: str, spreads: dict[str, timing.Spread], n: int, **more: Any) -> list[dict[str, Any]]:
    """Print and return the rows of some engines."""
    for engine, s in spreads.items():
        each = f"{s.median / n * 1e3:10.4f} ms a sequence ({s.low / n * 1e3:.4f} to {s.high / n * 1e3:.4f})"
        print(f"{name:22} {engine:18} {each}", flush=True)
    return [row("dynamic", name, engine, s, sequences=n, **more) for engine, s in spreads.items()]


def smoothing(
    made: Template, peers: dict[str, Any], sizes: list[tuple[int, int, bool]], runs: int
) -> list[dict[str, Any]]:
    """Rows of smoothing; sizes: sequences, slices, and whether pyAgrum answers them too."""
    tree, rows = made.net.compile("cpu", threads=1), []
    for n, length, with_ktbn in sizes:
        codes, name = made.codes(n, length), f"{made.net.name} T={length}"
        ours = made.smooth(tree, codes)
        works: dict[str, Callable[[], Any]] = {"jtgpu": lambda codes=codes: made.smooth(tree, codes)}  # type: ignore[misc]
        for engine, peer in peers.items():
            if engine == "pyagrum" and not with_ktbn:
                continue
            part = codes[:1] if engine == "pyagrum" else codes
            first = [a[: len(part)] for a in ours[0]], ours[1][: len(part)]
            same(name, engine, first, peer.smooth(part))
            works[engine] = lambda peer=peer, part=part: peer.smooth(part)  # type: ignore[misc]
        spreads = taking_turns(works, runs)
        alone = {"pyagrum": spreads.pop("pyagrum")} if "pyagrum" in spreads else {}
        rows += report(name, spreads, n, slices=length) + report(name, alone, 1, slices=length)
        if hasattr(tree, "mpe") and "hmmlearn" in peers:
            arrays = made.arrays(codes)
            works = {"jtgpu mpe": lambda arrays=arrays: tree.mpe(arrays)}  # type: ignore[misc]
            works["hmmlearn viterbi"] = lambda codes=codes: peers["hmmlearn"].most_probable(codes)  # type: ignore[misc]
            ours_log, theirs_log = float(np.sum(works["jtgpu mpe"]().log_joint)), works["hmmlearn viterbi"]()[1]
            if not np.isclose(ours_log, theirs_log, rtol=1e-10):
                raise SystemExit(f"{name}: the most probable sequences have ln P {ours_log} and {theirs_log}")
            rows += report(name, taking_turns(works, runs), n, slices=length)
    return rows


def long(made: Template, lengths: list[int], runs: int) -> list[dict[str, Any]]:
    """One sequence of each length, and the memory at most until then."""
    tree, rows = made.net.compile("cpu", threads=1), []
    for length in lengths:
        codes = made.codes(1, length)
        spread = taking_turns({"jtgpu": lambda codes=codes: made.smooth(tree, codes)}, runs)  # type: ignore[misc]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        rows += report(f"{made.net.name} one T={length}", spread, 1, slices=length, peak_bytes=peak)
    return rows


def stream(made: Template, steps: int, runs: int) -> list[dict[str, Any]]:
    """Steps of a stream; the answers equal those of `filter`."""
    tree, codes = made.net.compile("cpu", threads=1), made.codes(1, steps)
    cases = [dict(zip(made.observed, case, strict=True)) for case in codes[0].tolist()]
    live, filtered = tree.stream(), tree.filter(made.arrays(codes), targets=made.hidden[0])[made.hidden[0]]
    last = [live.step(case)[made.hidden[0]] for case in cases][-1]
    if not np.abs(np.asarray(last) - filtered[0, -1]).max() <= TOLERANCE:
        raise SystemExit("the stream and filter() differ; nothing is timed")

    def work() -> None:
        live = tree.stream()
        for case in cases:
            live.step(case)

    return report(f"{made.net.name} stream", taking_turns({"jtgpu step": work}, runs, steps), 1)


def first_answer(length: int) -> dict[str, float]:
    """Seconds until the first answer of this process, and of pyAgrum's."""
    made = ring()
    codes = made.codes(1, length)
    begin = time.process_time()
    ours = made.smooth(made.net.compile("cpu", threads=1), codes)
    seconds = {"jtgpu": time.process_time() - begin}
    if available("pyagrum"):
        peer = Ktbn(made.net, made.hidden, made.observed)
        begin = time.process_time()
        theirs = peer.smooth(codes)
        seconds["pyagrum"] = time.process_time() - begin
        same("first", "pyagrum", ours, theirs)
    return seconds


def first(lengths: list[int], runs: int) -> list[dict[str, Any]]:
    """Rows of first answers."""
    rows = []
    for length in lengths:
        answers = [next(child(__file__, "--first-answer", str(length))) for _ in range(runs)]
        spreads = {e: timing.Spread.of([a[e] for a in answers]) for e in answers[0]}
        rows += report(f"ring first T={length}", spreads, 1, slices=length)
    return rows


def em(made: Template, n: int, length: int, runs: int) -> list[dict[str, Any]]:
    """Passes of EM from the network's own CPTs, and smoothing of the same sequences; a pass is a third of the rest."""
    tree, codes = made.net.compile("cpu", threads=1), made.codes(n, length)
    arrays = made.arrays(codes)

    def fitted(passes: int) -> Any:
        return jtgpu.learn.fit(
            made.net,
            arrays,
            pseudo_counts=0,
            em=jtgpu.learn.EM(start="given", iterations=passes, tolerance=0.0, accelerate=False),
            hidden=made.hidden,
        )

    works: dict[str, Callable[[], Any]] = {
        "jtgpu smoothing": lambda: made.smooth(tree, codes), "jtgpu em 1": lambda: fitted(1),
        "jtgpu em 4": lambda: fitted(4),
    }  # fmt: skip
    if made.net.name == "hmm" and available("hmmlearn"):
        peer = Hmmlearn(made.net, made.hidden, made.observed)
        net = fitted(2).network
        for v, theirs in zip(("h", "o"), peer.em(codes, 2), strict=True):
            if not np.abs(np.asarray(net.cpt(v)) - theirs).max() <= TOLERANCE:
                raise SystemExit(f"after two passes of EM the CPTs of {v} differ; nothing is timed")
        works |= {"hmmlearn em 1": lambda: peer.em(codes), "hmmlearn em 4": lambda: peer.em(codes, 4)}
    spreads = taking_turns(works, runs)
    for engine in ("jtgpu", "hmmlearn"):
        if f"{engine} em 4" in spreads:
            each = (spreads[f"{engine} em 4"].median - spreads[f"{engine} em 1"].median) / 3
            print(f"{made.net.name} em T={length}: a pass of {engine} {each / n * 1e3:.4f} ms a sequence")
    return report(f"{made.net.name} em T={length}", spreads, n, slices=length)


def answered(question: str, smoke: bool, runs: int) -> list[dict[str, Any]]:
    """The rows of a question."""
    many, chain = ring(), hmm()
    peers: dict[str, Any] = {}
    if question == "ring":
        if available("pyagrum"):
            peers["pyagrum"] = Ktbn(many.net, many.hidden, many.observed)
        if available("jax"):
            peers["jax dense chain"] = DenseChain(many.net, many.hidden, many.observed)
        sizes = [(2, 10, True)] if smoke else [(64, 100, True), (1, 100, False), (8, 1000, True)]
        return smoothing(many, peers, sizes, runs)
    if question == "hmm":
        if available("hmmlearn"):
            peers["hmmlearn"] = Hmmlearn(chain.net, chain.hidden, chain.observed)
            peers["hmmlearn log"] = Hmmlearn(chain.net, chain.hidden, chain.observed, "log")
        if available("dynamax"):
            peers["dynamax"] = Dynamax(chain.net, chain.hidden, chain.observed)
        return smoothing(chain, peers, [(2, 10, False)] if smoke else [(64, 1000, False), (64, 100, False)], runs)
    if question == "first":
        return first([10] if smoke else [100, 1_000], 1 if smoke else 3)
    works: dict[str, Callable[[Template], list[dict[str, Any]]]] = {
        "long": lambda made: long(made, [50] if smoke else [1_000, 10_000, 100_000], 1),
        "stream": lambda made: stream(made, 20 if smoke else 1000, runs),
        "em": lambda made: em(made, 2 if smoke else 64, 10 if smoke else 100, runs),
    }
    return [r for made in (many, chain) for r in works[question](made)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", metavar="QUESTION")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--first-answer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.first_answer:
        print(json.dumps(first_answer(arguments.first_answer)))
        return
    if unknown := set(arguments.questions) - {*QUESTIONS}:
        parser.error(f"questions are {', '.join(QUESTIONS)}, not {', '.join(sorted(unknown))}")
    smoke, chosen = arguments.smoke, arguments.questions or QUESTIONS
    rows = [r for question in chosen for r in answered(question, smoke, 1 if smoke else 7)]
    if not smoke:
        append(arguments.out, rows)


if __name__ == "__main__":
    main()
