"""Causal questions: adjustment sets, identification, effects over sampled graphs, counterfactuals.

    python bench/bench_causal.py            everything, with pgmpy and pyAgrum where they are installed
    python bench/bench_causal.py --smoke    one run of each, nothing stored

Seconds of one call, over pairs of variables that are the same for every engine; sets are compared before anything is
stored. Compiling a network and learning graphs are not counted.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from rows import ROOT, parser_of, row, store, timed

sys.path.insert(0, str(ROOT))
import jtgpu
from jtgpu.causal import CausalGraph, NotIdentified, graph
from jtgpu.timing import Spread

PAIR = "HR", "BP"  # of alarm
SINGLE = 1e-7  # pyAgrum reads numbers of files in single precision
Row = dict[str, Any]


def peer(name: str) -> Any:
    """A library to compare with; None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed: no rows of it", file=sys.stderr)
        return None


def calls(work: Callable[[Any], Any], cases: Iterable[Any], smoke: bool) -> Spread:
    """Times of calls that take turns among the cases."""
    listed = list(cases)
    return timed(work, listed, 0.0 if smoke else 2.0, least=1 if smoke else 15)


def pairs_of(net: jtgpu.BayesianNetwork, n: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs of a variable and one of its descendants."""
    random = np.random.default_rng(seed)
    result: list[tuple[str, str]] = []
    while len(result) < n:
        v = str(random.choice(net.variables))
        if below := net.descendants(v):
            result.append((v, str(random.choice(below))))
    return result


def of_sets(smoke: bool) -> list[Row]:
    """Tests and minimal sets of munin, and all minimal sets of alarm."""
    munin = jtgpu.load("munin")
    g, pairs = graph(munin), pairs_of(munin, 15)
    sets = [(*pair, g.adjustment_set(*pair) or set()) for pair in pairs]
    alarm = graph(jtgpu.load("alarm"))
    found = alarm.adjustment_sets(*PAIR, limit=1000)
    rows = [
        row("causal", "munin", "jtgpu test of a set", calls(lambda c: g.is_adjustment_set(c[2], *c[:2]), sets, smoke)),
        row("causal", "munin", "jtgpu minimal set", calls(lambda pair: g.adjustment_set(*pair), pairs, smoke)),
        row("causal", "alarm", "jtgpu all minimal sets HR -> BP",
            calls(lambda pair: alarm.adjustment_sets(*pair), [PAIR], smoke), sets=len(found)),
    ]  # fmt: skip
    theirs = peer("pgmpy")
    if theirs is not None:
        models, inferences = (importlib.import_module(f"pgmpy.{name}") for name in ("models", "inference"))
        inference = inferences.CausalInference(models.DiscreteBayesianNetwork([*alarm.arcs]))
        one = inference.get_minimal_adjustment_set(*PAIR)
        assert one is not None
        assert alarm.is_adjustment_set(set(one), *PAIR), one
        rows.append(row("causal", "alarm", "pgmpy minimal set HR -> BP",
            calls(lambda pair: inference.get_minimal_adjustment_set(*pair), [PAIR], smoke)))  # fmt: skip
        rows.append(row("causal", "alarm", "jtgpu minimal set HR -> BP",
            calls(lambda pair: alarm.adjustment_set(*pair), [PAIR], smoke)))  # fmt: skip
    return rows


def random_graph(n: int, seed: int) -> CausalGraph:
    """Of n variables with 1.6 arcs and 0.3 hidden common causes each."""
    random = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(n)]

    def drawn(k: int) -> list[tuple[str, str]]:
        return [(names[a], names[b]) for a, b in (sorted(random.choice(n, 2, replace=False)) for _ in range(k))]

    return CausalGraph(names, drawn(int(1.6 * n)), drawn(int(0.3 * n)))


def of_identification(smoke: bool) -> list[Row]:
    """Formulas, or hedges, of 50 variables."""
    graphs = [random_graph(50, seed) for seed in range(3 if smoke else 40)]
    answered: set[int] = set()
    asked = []  # the first pair of each without adjustment set and front door, if it has one
    for g in graphs:
        ways = [(v, w) for v in g.variables for w in sorted(g.names(g.descendants_of(g.numbers(v)) - g.numbers(v)))]
        hard = (pair for pair in ways if g.adjustment_set(*pair) is None and g.front_door_set(*pair) is None)
        asked.append(next(hard, ways[-1]))

    def identified(i: int) -> None:
        g = graphs[i]
        try:
            g.identify(asked[i][1], do=asked[i][0])
            answered.add(i)
        except NotIdentified:
            pass

    spread = calls(identified, range(len(graphs)), smoke)
    return [row("causal", "random-50", "jtgpu identify", spread, identified=len(answered), graphs=len(graphs))]


def of_effects(smoke: bool) -> list[Row]:
    """P(BP | do(HR)) of alarm by a formula: identification and evaluation."""
    net = jtgpu.load("alarm")
    tree = net.compile("cpu", threads=1)

    def ours(_: Any = None) -> Any:
        return graph(net).identify(PAIR[1], do=PAIR[0]).evaluate(tree).probabilities

    rows = [row("causal", "alarm", "jtgpu formula and effect HR -> BP", calls(ours, [None], smoke))]
    if not smoke and (gum := peer("pyagrum")) is not None:
        causal = importlib.import_module("pyagrum.causal")
        with tempfile.TemporaryDirectory() as folder:
            jtgpu.write(net, f"{folder}/alarm.bif")
            model = causal.CausalModel(gum.loadBN(f"{folder}/alarm.bif"))
        potential = causal.causalImpact(model, on=PAIR[1], doing=PAIR[0])[1]
        table = np.array([potential[{PAIR[0]: s}] for s in net.states(PAIR[0])])
        gap = float(np.abs(table - ours()).max())
        assert gap < SINGLE, gap
        spread = timed(lambda _: causal.causalImpact(model, on=PAIR[1], doing=PAIR[0]), [None], 1.0, least=2)
        rows.append(row("causal", "alarm", "pyagrum formula and effect HR -> BP", spread, max_difference=gap))
    return rows


def of_posterior(smoke: bool) -> list[Row]:
    """Effects in 200 graphs that were sampled given 1,000 cases of alarm."""
    cases = jtgpu.load("alarm").compile("cpu", threads=1).sample(1000, seed=1).to_frame("pandas")
    post = jtgpu.learn.posterior(cases, seed=1)
    pairs = [("BP", "HR", "HIGH", ("LOW", "HIGH")), ("PRESS", "INTUBATION", "HIGH", ("NORMAL", "ONESIDED"))]
    n = 5 if smoke else 200
    spread = calls(lambda c: post.effect(c[0], of=c[1], n_dags=n, state=c[2], between=c[3]), pairs, smoke)
    return [row("causal", "alarm", f"jtgpu effect over {n} graphs", spread)]


def functional(n: int, back: int = 4, seed: int = 0) -> jtgpu.BayesianNetwork:
    """n binary variables, half of them noise: each other one is a function of two of the last few and its noise."""
    random = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(n // 2)]
    parents: dict[str, list[str]] = {}
    cpts: dict[str, Any] = {}
    for i, v in enumerate(names):
        before = sorted(random.choice(np.arange(max(0, i - back), i), min(i, 2), replace=False).tolist())
        parents[v] = [*(names[k] for k in before), f"noise {v}"]
        cpts[f"noise {v}"] = random.dirichlet(np.ones(2))
        cpts[v] = np.eye(2)[random.integers(0, 2, [2] * len(parents[v]))]
    return jtgpu.BayesianNetwork({v: ["0", "1"] for v in cpts}, parents, cpts)


def of_counterfactuals(smoke: bool) -> list[Row]:
    """Cold: each question is the first one about its variables. Warm: the 30th."""
    net = functional(100 if smoke else 1000)
    names = [v for v in net.variables if not v.startswith("noise")]
    tree = net.compile("cpu", threads=1)
    seen = {v: s[0] for v, s in tree.sample(1, seed=3).to_frame("pandas")[names[::5]].items()}
    last = names[-1]
    rows = []
    for label, causes in (("far", names[1:40]), ("near", names[-60:-20])):
        cold = calls(lambda v: tree.counterfactual(last, seen, do={v: "1"}), causes, smoke)
        rows.append(row("causal", f"functional-{len(net)}", f"jtgpu counterfactual, cold, {label}", cold))
        for _ in range(2 if smoke else 30):
            tree.counterfactual(last, seen, do={causes[0]: "1"})
        warm = calls(lambda v: tree.counterfactual(last, seen, do={v: "1"}), causes[:1], smoke)
        rows.append(row("causal", f"functional-{len(net)}", f"jtgpu counterfactual, warm, {label}", warm))
    return rows


def main() -> None:
    arguments = parser_of(__doc__, "causal.jsonl").parse_args()
    rows: list[Row] = []
    for part in (of_sets, of_identification, of_effects, of_posterior, of_counterfactuals):
        rows += part(arguments.smoke)
    for r in rows:
        spread = f"({r['low'] * 1e3:.3f} to {r['high'] * 1e3:.3f})"
        print(f"{r['network']:16} {r['engine']:36} {r['median'] * 1e3:10.3f} ms {spread}")
    store(arguments, rows)


if __name__ == "__main__":
    main()
