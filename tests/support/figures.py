"""Digests of figures that must be the same on every processor: orders, samples, structures, chains and others.

``python -m tests.support.figures GROUP ...`` prints those of some groups as JSON; of the group ``close``, which BLAS
computes, the numbers themselves. Tests start it with instructions of the processor switched off, and with loops that
are compiled when they are called.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import networkx
import numpy as np

from jtgpu import Gaussian, MixedDynamicNetwork, draw, graphs, learn, screen, series
from jtgpu.options.learning import Chains, Search
from jtgpu.util import elementary
from tests.support.bundled import LARGE, bundled

__all__ = ["GROUPS"]

Found = Iterator[tuple[str, Any]]
UNLIMITED: dict[str, Any] = {"cache": False, "max_table": None, "memory_limit": math.inf}


def _auto(names: Iterable[str]) -> Found:
    for name in names:
        yield name, bundled(name).plan(**UNLIMITED).plan.to_bytes()


def orders() -> Found:
    yield from _auto(("munin1", "pigs", "water"))
    for rule in ("min-fill", "min-weight", "weighted-min-fill", "min-neighbours"):
        yield rule, bundled("munin1").plan(rule, **UNLIMITED).plan.to_bytes()


def all_orders() -> Found:
    yield from _auto(sorted(LARGE))
    for name in ("munin1", "link"):
        yield f"best of {name}", bundled(name).plan("best", n_steps=2_000_000, **UNLIMITED).plan.to_bytes()


def _cases(name: str, n: int, n_variables: int = 100) -> dict[str, Any]:
    """Some columns of a sample."""
    sample = bundled(name).compile("cpu").sample(n, seed=1)
    return {v: sample[v] for v in list(sample)[:n_variables]}


def samples() -> Found:
    for name in ("alarm", "water"):
        tree = bundled(name).compile("cpu")
        v = tree.model.variables[-1]
        yield name, tree.sample(2000, seed=1).states
        yield f"{name} with evidence", tree.sample(2000, {v: tree.model.states(v)[0]}, seed=2).states


def structures() -> Found:
    cases, few = _cases("alarm", 500), _cases("alarm", 500, 9)
    for score in ("bdeu", "bds", "k2", "bdj", "bic", "aic"):
        for method in ("exact", "order", "greedy", "tabu"):
            restarts = 2 if method in ("greedy", "tabu") else 0
            found = learn.structure(few, method=method, score=score, search=learn.Search(restarts=restarts))
            yield f"{method} by {score}", [found.score, *sorted(found.arcs)]
    yield "order", learn.structure(cases, method="order", max_parents=3, seed=3).arcs
    yield "tabu", learn.structure(cases, method="tabu", graph_prior=("edge", 0.1)).arcs


def _posterior(title: str, cases: dict[str, Any], **options: Any) -> Found:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the chains are short
        post = learn.posterior(cases, max_parents=3, **options)
        yield f"{title}: arcs", post.edge_probabilities.values
        yield f"{title}: chains", [post.trace, post.rhat, post.coverage, post.mcse.values]
        yield f"{title}: graphs", [sorted(g.edges) for g in post.sample_dags(20)]
        yield f"{title}: best", [sorted(post.map.edges), post.map_score]


def chains() -> Found:
    cases = _cases("alarm", 300, 12)
    variants: dict[str, dict[str, Any]] = {
        "uniform": {}, "fair": {"graph_prior": "fair"}, "order": {"graph_prior": "order"},
        "edge": {"graph_prior": ("edge", 0.1)},
        "tempering": {"chains": Chains(tempering=4)}, "outer sets": {"search": Search(candidates=4)},
        "outer sets by order": {"search": Search(candidates=4), "graph_prior": "order"},
    }  # fmt: skip
    for name, options in variants.items():
        steps = options.pop("chains", Chains()).replaced(steps=4000)
        yield from _posterior(name, cases, method="mcmc", chains=steps, seed=3, **options)
    yield from _posterior("many variables", _cases("alarm", 1000), method="mcmc", chains=Chains(steps=2000), seed=3)


def exact() -> Found:
    cases = _cases("alarm", 300, 7)
    for prior in ("uniform", "order", "fair", ("edge", 0.2)):
        yield from _posterior(str(prior), cases, method="exact", graph_prior=prior)


def tables() -> Found:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2000, 3))
    frame = {"a": x[:, 0], "b": x[:, 1], "c": np.where(x[:, 0] + x[:, 2] > 0.3, "y", "n")}
    for how in ("mdl", "quantile", "width"):
        yield how, learn.discretise(frame, how, target="c" if how == "mdl" else None).edges
    tree = bundled("asia").compile("cpu")
    cases = tree.sample(500, seed=1)
    yield "surprise", np.asarray(screen.surprise(tree, cases, 20))
    found = screen.top_outliers(cases, 10, 3)
    yield "outliers", [found.index, found.weight]
    graph = networkx.gnm_random_graph(60, 150, seed=1)
    yield "betweenness", list(graphs.betweenness(graph, k=20, seed=1).values())
    yield "picture", draw.show(bundled("child")).text()


def _frame() -> dict[str, Any]:
    x = np.random.default_rng(7).normal(size=(400, 5))
    states = np.where(x[:, 4] + x[:, 1] > 0.2, "y", "n")
    return {"a": x[:, 0], "b": x[:, 0] + 0.5 * x[:, 1], "c": x[:, 2] - 0.7 * x[:, 0], "d": x[:, 3], "e": states}


def numbers() -> Found:
    """Structures of tables with numbers, posteriors of them, and states drawn from networks with numbers."""
    frame = _frame()
    alone = {v: frame[v] for v in "abcd"}
    for method in ("exact", "order"):
        found = learn.structure(alone, method=method, score="bge", continuous=True)
        yield f"bge {method}", [found.score, *sorted(found.arcs)]
    found = learn.structure(frame, method="exact", score="bic-cg", continuous=list("abcd"))
    yield "bic-cg", [found.score, *sorted(found.arcs)]
    yield from _posterior("bge posterior", alone, method="exact", score="bge", continuous=True)
    options: dict[str, Any] = {"score": "bic-cg", "continuous": list("abcd"), "chains": Chains(steps=2000), "seed": 3}
    yield from _posterior("bic-cg chain", frame, method="mcmc", **options)
    drawn = _mixed().compile("cpu").sample(50, seed=3).to_frame()
    yield "states of samples", list(drawn["e"])


def _mixed() -> Any:
    arcs = {"a": [], "e": [], "b": ["a", "e"], "c": ["a"]}
    return learn.fit(arcs, {v: x for v, x in _frame().items() if v != "d"}, continuous="gaussian").network


def close() -> Found:
    """Numbers that BLAS computes, in some unit: equal but for rounding."""
    frame = {v: x for v, x in _frame().items() if v != "d"}
    net = _mixed()
    tree = net.compile("cpu")
    missing = frame | {"a": np.where(np.arange(400) % 5, frame["a"], np.nan)}
    for name, cases in (("fit", frame), ("EM", missing)):
        fit: Any = learn.fit(net, cases, em=learn.EM(iterations=5))
        yield name, [fit.log_likelihood / 400, *fit.network.compile("cpu").moments(["a", "b", "c"])]
    yield "evidence", [*tree.moments(["b", "c"], {"a": 0.3}), tree.posteriors({"b": 1.0})["e"]]
    drawn = tree.sample(50, {"c": 0.5}, seed=1).to_frame()
    yield "samples given a number", [np.asarray(drawn[v], float) for v in "abc"]
    checked: Any = learn.check(net, frame, ["a", "b", "c"])
    yield "check", [checked.expected, checked.z]
    machine = MixedDynamicNetwork(
        {"state": ["calm", "busy"], "load": float}, {"state": [("state", 1)], "load": ["state"]},
        {"state": [[0.9, 0.1], [0.2, 0.8]], "load": Gaussian([1.0, 4.0], sd=[0.5, 1.0])}, start={"state": [0.5, 0.5]},
    )  # fmt: skip
    loads = {"load": np.random.default_rng(1).normal(2, 1.5, size=(5, 40))}
    answer = machine.compile("cpu").smooth(loads)
    yield "sequences", [answer["state"], machine.compile("cpu").predict(loads, ahead=2).mean["load"]]
    learnt: Any = learn.fit(machine, loads, hidden="state", em=learn.EM(iterations=5))
    yield "EM of sequences", [learnt.log_likelihood / 200, learnt.network.gaussian("load").mean]


def functions() -> Found:
    x = np.random.default_rng(1).random(100_000)
    yield "logarithms", elementary.logs(x)
    yield "exponentials", elementary.exps(100.0 * x - 50.0)


def values() -> Found:
    """Numbers that compiled loops sum with vector registers as wide as the processor's."""
    asia = bundled("asia")
    cases: dict[str, Any] = dict(asia.compile("cpu").sample(300, seed=1))
    cases["smoke"] = [None if i % 3 else state for i, state in enumerate(cases["smoke"])]
    fit = learn.fit(asia, cases, em=learn.EM(restarts=2, seed=1))
    yield "fit", [fit.log_likelihood, *(fit.network.cpt(v) for v in fit.network.variables)]
    model = series.ar(np.random.default_rng(1).normal(size=(20, 200)))
    yield "series", [model.order, model.coef]
    yield "posteriors", [bundled("water").compile("cpu").posteriors().log_evidence]


GROUPS: dict[str, Callable[[], Found]] = {
    function.__name__: function
    for function in (orders, all_orders, samples, structures, chains, exact, tables, numbers, functions, values, close)
}


def _flat(value: Any) -> list[float]:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [x for part in parts for x in np.ravel(np.asarray(part, float)).tolist()]


def _digest(value: Any) -> str:
    found = hashlib.sha256()
    _add(found, value)
    return found.hexdigest()[:16]


def _add(found: Any, value: Any) -> None:
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, (list, tuple)):
        for part in value:
            _add(found, part)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        found.update(np.ascontiguousarray(value).tobytes())
    else:
        found.update(value if isinstance(value, bytes) else repr(value).encode())


if __name__ == "__main__":
    as_text = {g: _flat if g == "close" else _digest for g in GROUPS}
    print(json.dumps({f"{g}: {name}": as_text[g](value) for g in sys.argv[1:] for name, value in GROUPS[g]()}))
