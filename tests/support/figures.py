"""Digests of figures that must be the same on every processor: orders, samples, structures, chains and others.

``python -m tests.support.figures GROUP ...`` prints those of some groups as JSON. Tests start it with instructions of
the processor switched off, and with loops that are compiled when they are called.
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

from jtgpu import draw, graphs, learn, screen, series
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
            found = learn.structure(few, method=method, score=score, restarts=restarts)
            yield f"{method} by {score}", [found.score, *sorted(found.arcs)]
    yield "order", learn.structure(cases, method="order", max_parents=3, seed=3).arcs
    yield "tabu", learn.structure(cases, method="tabu", prior=("edge", 0.1)).arcs


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
        "uniform": {}, "fair": {"prior": "fair"}, "order": {"prior": "order"}, "edge": {"prior": ("edge", 0.1)},
        "tempering": {"tempering": 4}, "outer sets": {"candidates": 4},
        "outer sets by order": {"candidates": 4, "prior": "order"},
    }  # fmt: skip
    for name, options in variants.items():
        yield from _posterior(name, cases, method="mcmc", steps=4000, seed=3, **options)
    yield from _posterior("many variables", _cases("alarm", 1000), method="mcmc", steps=2000, seed=3)


def exact() -> Found:
    cases = _cases("alarm", 300, 7)
    for prior in ("uniform", "order", "fair", ("edge", 0.2)):
        yield from _posterior(str(prior), cases, method="exact", prior=prior)


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


def numbers() -> Found:
    """Structures of tables with numbers; fits of numbers depend on the kernels of BLAS in their last digits."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(400, 5))
    frame: dict[str, Any] = {"a": x[:, 0], "b": x[:, 0] + 0.5 * x[:, 1], "c": x[:, 2] - 0.7 * x[:, 0], "d": x[:, 3]}
    for method in ("exact", "order"):
        found = learn.structure(frame, method=method, score="bge", numbers=True)
        yield f"bge {method}", sorted(found.arcs)
    both = frame | {"e": np.where(x[:, 4] + x[:, 1] > 0.2, "y", "n")}
    yield "bic-cg", sorted(learn.structure(both, method="exact", score="bic-cg", numbers=list(frame)).arcs)
    network = learn.fit({"b": ["a"], "c": ["a"]}, {v: frame[v] for v in "abc"}, numbers="gaussian").network
    drawn = network.compile("cpu").sample(50, seed=3).to_frame()
    yield "kinds of samples", [list(drawn), len(drawn)]


def close() -> Found:
    """Numbers that BLAS computes: equal to rounding on every processor. They are compared, and not their digests."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(400, 3))
    frame = {"a": x[:, 0], "b": x[:, 0] + 0.5 * x[:, 1], "c": x[:, 2] - 0.7 * x[:, 0]}
    fit: Any = learn.fit({"b": ["a"], "c": ["a"]}, frame, numbers="gaussian")
    yield "fit", [fit.log_likelihood, *(x for v in "abc" for x in _gaussian(fit.network.gaussian(v)))]
    tree = fit.network.compile("cpu")
    post = tree.posterior("a", {"c": 1.5})
    yield "posterior", [float(post.mean), float(post.sd)]
    drawn = tree.sample(20, {"c": 1.5}, seed=3).to_frame()
    yield "samples", [float(v) for name in ("a", "b") for v in drawn[name]]
    holes = frame | {"b": np.where(np.arange(400) % 3, frame["b"], np.nan)}
    em: Any = learn.fit({"b": ["a"], "c": ["b"]}, holes, numbers="gaussian")
    yield "em", [em.log_likelihood, *(x for v in "abc" for x in _gaussian(em.network.gaussian(v)))]


def _gaussian(found: Any) -> list[float]:
    parts = (found.mean, found.sd, *found.coefficients.values())
    return [float(x) for part in parts for x in np.ravel(part)]


def functions() -> Found:
    x = np.random.default_rng(1).random(100_000)
    yield "logarithms", elementary.logs(x)
    yield "exponentials", elementary.exps(100.0 * x - 50.0)


def values() -> Found:
    """Numbers that compiled loops sum with vector registers as wide as the processor's."""
    asia = bundled("asia")
    cases: dict[str, Any] = dict(asia.compile("cpu").sample(300, seed=1))
    cases["smoke"] = [None if i % 3 else state for i, state in enumerate(cases["smoke"])]
    fit = learn.fit(asia, cases, restarts=2, seed=1)
    yield "fit", [fit.log_likelihood, *(fit.network.cpt(v) for v in fit.network.variables)]
    model = series.ar(np.random.default_rng(1).normal(size=(20, 200)))
    yield "series", [model.order, model.coef]
    yield "posteriors", [bundled("water").compile("cpu").posteriors().log_evidence]


GROUPS: dict[str, Callable[[], Found]] = {
    function.__name__: function
    for function in (orders, all_orders, samples, structures, chains, exact, tables, numbers, close, functions, values)
}


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
    made = ((g, name, value) for g in sys.argv[1:] for name, value in GROUPS[g]())
    print(json.dumps({f"{g}: {name}": value if g == "close" else _digest(value) for g, name, value in made}))
